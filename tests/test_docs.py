"The site: built without a warning, complete, and quiet towards the network."
import re, shutil, subprocess, sys
from importlib.util import find_spec
from urllib.parse import unquote
import pytest
from test_lab import chromium, wait
from test_repo import NOTEBOOKS, TOP

pytestmark = pytest.mark.skipif(not find_spec('myst_nb'), reason="no Sphinx with myst-nb: install the extra 'docs'")

@pytest.fixture(scope='module')
def site(tmp_path_factory):
    "The site, built from a copy of what it needs"
    top = tmp_path_factory.mktemp('site')
    for d in ['nbs', 'figures']: shutil.copytree(TOP/d, top/d, ignore=shutil.ignore_patterns('.*', 'kernel-*'))
    shutil.copytree(TOP/'docs', top/'docs', ignore=shutil.ignore_patterns('nbs', 'figures', '_extra'))
    shutil.copy(TOP/'settings.ini', top)
    cmd = [sys.executable, '-m', 'sphinx', '-q', '-W', '--keep-going', '-b', 'html', 'docs', '_docs']
    r = subprocess.run(cmd, cwd=top, capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    return top/'_docs'

def test_site_has_every_notebook_and_the_report(site):
    pages = [p.relative_to(TOP).with_suffix('.html').as_posix() for p in NOTEBOOKS]
    lost = [p for p in pages if not (site/p).is_file()]
    assert not lost and (site/'report.html').is_file() and (site/'index.html').is_file()
    front = (site/'index.html').read_text(encoding='utf8')
    assert all(p in front for p in pages)

def test_site_names_no_server_in_what_it_loads(site):
    for p in site.rglob('*.html'):
        tags = re.findall(r'<(?:script|link|img|iframe|source)\b[^>]*>', p.read_text(encoding='utf8'))
        loads = [t for t in tags if re.search(r'(?:src|href)="(?:https?:)?//', t) and 'rel="canonical"' not in t]
        assert not loads, f'{p.name}: {loads[:3]}'

def test_links_inside_of_the_site_lead_somewhere(site):
    for p in [*site.glob('*.html'), *site.glob('nbs/**/*.html')]:
        for link in re.findall(r'<a [^>]*href="([^"]*)"', p.read_text(encoding='utf8')):
            file = unquote(link.partition('#')[0])
            if file and ':' not in file: assert (p.parent/file).exists(), f'{p.name} -> {link}'

@pytest.mark.browser
def test_site_opens_from_disk(site, tmp_path):
    "No request beyond the folder, no error, mathematics set, search finds"
    with chromium(tmp_path) as page:
        for p in [site/'index.html', *sorted(site.glob('nbs/**/*.html'))]:
            page.get(p.as_uri())
            asked = page.execute_script("return performance.getEntriesByType('resource').map(e => e.name)")
            away = [a for a in asked if not a.startswith(('file:', 'data:'))]
            assert not away, f'{p.name}: {away}'
        page.get(next(site.glob('nbs/*capacity.html')).as_uri())
        high = page.execute_script('return [...document.querySelectorAll("mfrac")].map(x => x.offsetHeight || '
                                   'x.getBoundingClientRect().height)')
        assert high and min(high) > 15
        page.get((site/'search.html').as_uri() + '?q=demonstrations')
        found = lambda: page.find_elements('css selector', '#search-results li a')
        wait(found, 20)
        assert any('11_icl' in a.get_attribute('href') for a in found())
        severe = [e['message'] for e in page.get_log('browser') if e['level'] == 'SEVERE']
        assert not severe, severe
