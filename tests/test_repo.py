"What holds for the repository as a whole: exports, arrows, grain, hygiene, packaging."
import ast, json, os, re, shutil, subprocess, sys
from configparser import ConfigParser
from importlib.metadata import version as installed_version
from pathlib import Path
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

TOP = Path(__file__).resolve().parents[1]
PAPERS = ['tabular', 'icl', 'iclinf', 'contextual', 'capacity']
SHARED = ['core', 'stats', 'plots', 'results']
ARROWS = dict(core=[], store=['core'], backend=['core', 'store'], hf=['core', 'store', 'backend'],
              servers=['core', 'store', 'backend'], lm=['core', 'store', 'backend', 'hf', 'servers'],
              data=['core'], gpt=['core'], stats=[], plots=['core'], results=['core', 'stats'],
              redact=['core'], batch=['core', 'redact'], report=['core', 'redact', 'results', 'batch'],
              plant=['core', 'stats', 'plots', 'data', 'gpt', 'hf', 'lm'],
              cli=['core', 'store', 'redact', 'results', 'data', 'lm', 'plant', 'batch', 'report'],
              **{p: [*SHARED, 'data', 'gpt', 'hf', 'lm', 'plant'] for p in PAPERS})
HEADINGS = ['Idea', 'Method', 'Measure', 'Figures', 'Claims', 'What differs', 'For the reading group']

MODULES = [p for p in sorted((TOP/'memnb').glob('*.py')) if not p.name.startswith('_')]
NOTEBOOKS = sorted((TOP/'nbs').rglob('*.ipynb'))
PAPER_NOTEBOOKS = sorted((TOP/'nbs').glob('1*.ipynb'))
each_module = pytest.mark.parametrize('path', MODULES, ids=lambda p: p.stem)
each_notebook = pytest.mark.parametrize('path', NOTEBOOKS, ids=lambda p: p.stem)
each_paper = pytest.mark.parametrize('path', PAPER_NOTEBOOKS, ids=lambda p: p.stem)

def settings():
    "settings.ini as a dict"
    cfg = ConfigParser()
    assert cfg.read(TOP/'settings.ini', encoding='utf8'), 'settings.ini is missing'
    return dict(cfg['DEFAULT'])

def requirements():
    "Every requirement of settings.ini, the extras included"
    cfg = settings()
    return [Requirement(r) for k in cfg if k.endswith('requirements') for r in cfg[k].split()]

def pins():
    "constraints.txt as name -> requirement"
    found = [Requirement(l) for l in (TOP/'constraints.txt').read_text().splitlines() if l.strip()]
    return {canonicalize_name(r.name): r for r in found}

def tree(path): return ast.parse(path.read_text(encoding='utf8'))

def dunder_all(path):
    "The statement `__all__ = [...]` of a module"
    for n in tree(path).body:
        if isinstance(n, ast.Assign) and getattr(n.targets[0], 'id', '') == '__all__': return n
    raise AssertionError(f'{path.name} has no __all__')

def public(path): return ast.literal_eval(dunder_all(path).value)

def cells(path): return json.loads(path.read_text(encoding='utf8'))['cells']

def python(code, cwd, **env):
    "Output of a fresh Python process; fails with its error"
    env = {**os.environ, **env}
    r = subprocess.run([sys.executable, '-c', code], cwd=cwd, env=env, capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    return r.stdout

# --- the notebooks are the source ---

def test_there_is_something_to_test():
    assert {'core', 'lm', 'data', 'batch', 'cli', 'tabular'} <= {p.stem for p in MODULES}, 'run `make export`'
    assert (TOP/'nbs/index.ipynb').exists() and PAPER_NOTEBOOKS

def test_export_and_clean_change_nothing(tmp_path):
    "Exporting and cleaning a copy of the checkout gives the files that are in it, byte for byte"
    for folder, pattern in [('memnb', '*.py'), ('nbs', '*.ipynb')]:
        for p in (TOP/folder).rglob(pattern):
            if '.ipynb_checkpoints' in p.parts: continue
            target = tmp_path/p.relative_to(TOP)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(p, target)
    for p in ['settings.ini', 'pyproject.toml']: shutil.copy(TOP/p, tmp_path)
    for tool in ['nbdev_export', 'nbdev_clean']:
        r = subprocess.run([Path(sys.executable).parent/tool], cwd=tmp_path, capture_output=True, text=True)
        assert r.returncode == 0, f'{tool}: {r.stderr}'
    def texts(top): return {str(p.relative_to(top)): p.read_text(encoding='utf8')
                            for p in [*top.rglob('memnb/*.py'), *top.rglob('nbs/*.ipynb')]}
    was, now = texts(TOP), texts(tmp_path)
    stale = sorted(p for p in {*was, *now} if was.get(p) != now.get(p))
    assert not stale, f'run `make export`, which changes: {stale}'

def test_every_module_has_a_notebook():
    sources = {re.search(r'default_exp (\w+)', p.read_text(encoding='utf8')) for p in NOTEBOOKS} - {None}
    orphans = {p.stem for p in MODULES} - {m[1] for m in sources}
    assert not orphans, f'memnb/*.py without a notebook that exports it: {sorted(orphans)}'

def test_readme_is_current(tmp_path):
    cmd = [sys.executable, '-m', 'memnb.cli', 'readme', '--check']
    r = subprocess.run(cmd, cwd=TOP, capture_output=True, text=True)
    assert r.returncode == 0, f'README.md is stale, run `make readme`\n{r.stdout}{r.stderr}'

# --- arrows and imports ---

HEAVY = ['torch', 'transformers', 'openai', 'pandas', 'numpy', 'sklearn', 'matplotlib', 'papermill']

@pytest.mark.parametrize('name', ['memnb', 'memnb.core'])
def test_import_is_light(name, tmp_path):
    loaded = python(f'import sys, {name}; print(*[m for m in {HEAVY} if m in sys.modules])', tmp_path).split()
    assert not loaded, f'`import {name}` loads {loaded}: import them inside the function that needs them'

def test_import_is_fast(tmp_path):
    code = 'from time import perf_counter as t; a = t(); import memnb.core; print(t() - a)'
    best = min(float(python(code, tmp_path)) for _ in range(5))
    assert best < 0.3, f'`import memnb.core` takes {best:.2f} s'

def imported(path):
    "Modules of memnb that a file imports, wherever in the file"
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import): names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ('memnb.' if node.level else '') + (node.module or '')
            names = [base] if base.strip('.') != 'memnb' else [f'memnb.{a.name}' for a in node.names]
        else: continue
        yield from (n.split('.')[1] for n in names if n.startswith('memnb.'))

@each_module
def test_arrows(path):
    assert path.stem in ARROWS, f'{path.name} has no place in the arrows of this test'
    rooms = {p.stem for p in MODULES}
    wrong = {m for m in imported(path) if m in rooms} - set(ARROWS[path.stem])
    assert not wrong, f'{path.stem} imports {sorted(wrong)}; it may import {ARROWS[path.stem]}'

def test_imported_reads_every_form(tmp_path):
    "The reader of imports above sees each way to write one"
    f = tmp_path/'x.py'
    f.write_text('import os, memnb.lm\nfrom .core import *\nfrom memnb import data\nfrom . import gpt\n'
                 'def g():\n    from memnb.plant import a\n')
    assert set(imported(f)) == {'lm', 'core', 'data', 'gpt', 'plant'}

def test_public_names_are_unique():
    "Only what all paper modules share may occur twice, and the door of `lm` and `data`: load and fetch"
    agreed, seen = re.compile(r'(measure|run_all|claims|plan|(fig|tab)\d*\w*)$'), {}
    for p in MODULES:
        for name in public(p): seen.setdefault(name, []).append(p.stem)
    def may(name, modules):
        if name == 'fetch': return set(modules) == {'hf', 'data'}
        if name == 'load': return set(modules) == {'lm', 'data'}
        if name == 'identity': return set(modules) == {'batch', 'data'}
        if name == 'BACKENDS': return set(modules) == {'hf', 'servers', 'lm'}
        return agreed.match(name) and set(modules) <= set(PAPERS)
    twice = {n: m for n, m in seen.items() if len(m) > 1 and not may(n, m)}
    assert not twice, f'defined in several modules: {twice}'

@pytest.mark.parametrize('path', [p for p in MODULES if p.stem in PAPERS], ids=lambda p: p.stem)
def test_paper_modules_share_their_shape(path):
    names = public(path)
    assert {'measure', 'claims'} <= set(names), f'{path.stem} lacks measure or claims'
    assert any(re.match(r'(fig|tab)\d', n) for n in names), f'{path.stem} has no figN or tabN'

# --- grain ---

@each_module
def test_lines_are_short(path):
    "What nbdev writes itself is not counted: line 1 (the notebook's summary), `# %%` and `__all__`"
    names = dunder_all(path)
    theirs = {1, *range(names.lineno, names.end_lineno + 1)}
    long = [i for i, l in enumerate(path.read_text(encoding='utf8').splitlines(), 1)
            if len(l) > 110 and i not in theirs and not l.startswith('# %%')]
    assert not long, f'{path.name}: over 110 characters in lines {long}'

@each_module
def test_docstrings_are_one_line(path):
    "Public functions and classes have a docstring; any docstring is one line"
    wrong, names = [], set(public(path))
    for node in ast.walk(tree(path)):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)): continue
        doc = ast.get_docstring(node, clean=False)
        if doc is None and node.name in names: wrong.append(f'{node.name} has none')
        if doc is not None and len(doc.strip().splitlines()) != 1: wrong.append(f'{node.name}: not one line')
    assert not wrong, f'{path.name}, docstrings: {wrong}'

@each_notebook
def test_cells_are_small(path):
    "Exported cells have at most 25 lines, directives not counted"
    exported = [c['source'] for c in cells(path) if c['cell_type'] == 'code'
                and any(re.match(r'#\|\s*exports?\b', l) for l in c['source'])]
    sizes = [len([l for l in s if l.strip() and not l.startswith('#|')]) for s in exported]
    big = {s[1].strip()[:40]: n for s, n in zip(exported, sizes) if n > 25}
    assert not big, f'{path.name}, exported cells over 25 lines: {big}'

@each_notebook
def test_notebook_is_light(path):
    kb = path.stat().st_size/1000
    assert kb < 300, f'{path.name} is {kb:.0f} KB; make its outputs smaller'

# --- the skeleton of a paper notebook ---

@each_paper
def test_one_parameters_cell(path):
    tagged = [c for c in cells(path) if 'parameters' in c['metadata'].get('tags', [])]
    assert len(tagged) == 1, f'{path.name} has {len(tagged)} cells tagged `parameters`'
    source = ''.join(tagged[0]['source'])
    names = [n.target.id for n in ast.parse(source).body if isinstance(n, ast.AnnAssign)]
    common = ['profile', 'model', 'n', 'seed']
    assert [n for n in names if n in common] == common, f'the parameters {names} lack, or reorder, {common}'
    bare = [l for l in source.splitlines() if l.strip() and not l.startswith('#') and '#' not in l]
    assert not bare, f'parameters without a comment, which is their help: {bare}'

@each_paper
def test_headings_in_order(path):
    text = '\n'.join(''.join(c['source']) for c in cells(path) if c['cell_type'] == 'markdown')
    found = re.findall(r'^## (.+?)\s*$', text, flags=re.M)
    assert found == HEADINGS, f'{path.name} has the headings {found}'

@each_notebook
def test_notebooks_hold_no_batch_hazards(path):
    "No export call (parallel runs would rewrite the package), no cell that errs, every cell id in place"
    for c in cells(path):
        source = ''.join(c['source'])
        assert c.get('id'), f'{path.name}: a cell without id'
        assert 'nbdev_export(' not in source, f'{path.name} calls nbdev_export'
        errors = [o for o in c.get('outputs', []) if o['output_type'] == 'error']
        assert not errors, f'{path.name} has a stored error below: {source[:60]}'

# --- hygiene ---

def texts():
    "Every text file of the project"
    folders = ['nbs', 'memnb', 'data', 'tests', '.ci', '.github']
    files = [p for d in folders for p in sorted((TOP/d).rglob('*')) if p.is_file()]
    files += [p for p in sorted(TOP.iterdir()) if p.is_file()]
    return [p for p in files if p.suffix not in ('.png', '.pyc', '.safetensors')]

# written in pieces, so that this file does not contain what it forbids
MACHINE = re.compile('/(' + '|'.join(['home', 'Users', 'root', 'tm' 'p', 'work', 'opt']) + r')/[\w.]')
HOSTS = re.compile('|'.join(['pypi[.]' 'org', 'python' 'hosted', 'download[.]py' 'torch', 'npm' 'js[.]',
                             'anaconda[.]' 'org', 'conda-' 'forge', 'file:' '//']))

@pytest.mark.parametrize('what', [MACHINE, HOSTS], ids=['machine paths', 'package registries'])
def test_no_trace_of_a_machine(what):
    found = [f'{p.relative_to(TOP)}: {m[0]}' for p in texts()
             for m in [what.search(p.read_text(encoding='utf8', errors='replace'))] if m]
    assert not found, f'not to be named in the project: {found}'

def test_patterns_find_what_they_forbid():
    assert MACHINE.search('see /ho' 'me/ada/x') and MACHINE.search('"\\n/tm' 'p/abc')
    assert not MACHINE.search('at home/work')
    assert HOSTS.search('https://py' 'pi.org/simple')

def test_figures_are_named_by_paper_and_number():
    names = [p.name for p in (TOP/'figures').glob('*') if p.is_file()] # profiles have folders
    good = re.compile(rf'({"|".join(PAPERS)})_((fig|tab)\d+\w*|x_\w+)[.]png$')
    wrong = [n for n in names if not good.match(n)]
    assert names, 'figures/ is empty, run `make reproduce`'
    assert not wrong, f'figures are <paper>_fig<N>, <paper>_tab<N> or <paper>_x_<word>.png, not {wrong}'

def test_figures_have_their_function():
    lost = []
    for p in (TOP/'figures').glob('*.png'):
        paper, _, kind = p.stem.partition('_')
        number = re.match(r'(fig|tab)\d+', kind)
        if number and number[0] not in public(TOP/f'memnb/{paper}.py'): lost.append(p.name)
    assert not lost, f'no function draws {lost}'

def test_measured_rows_say_where_they_come_from():
    tables = sorted((TOP/'data/measured').glob('*.csv'))
    assert tables, 'data/measured is empty, run `make reproduce`'
    for p in tables:
        assert p.stem in PAPERS, f'{p.name} is no paper'
        columns = p.read_text(encoding='utf8').splitlines()[0].split(',')
        missing = {'model', 'profile', 'seed', 'version'} - set(columns)
        assert not missing, f'{p.name} lacks the columns {sorted(missing)}'

# --- packaging ---

def test_extras():
    extras = {k.removesuffix('_requirements') for k in settings() if k.endswith('_requirements')}
    assert {'lab', 'serve', 'dev', 'bench', 'browser'} <= extras

def test_constraints_hold_every_requirement():
    found, lost = pins(), []
    for r in requirements():
        pin = found.get(canonicalize_name(r.name))
        if pin is None: lost.append(f'{r} has no pin'); continue
        version = str(pin.specifier).removeprefix('==')
        if not r.specifier.contains(version): lost.append(f'{pin} does not satisfy {r}')
    assert not lost, f'constraints.txt against settings.ini: {lost}'

def test_constraints_are_exact():
    loose = [str(r) for r in pins().values() if not re.fullmatch(r'==[\w.]+', str(r.specifier)) or r.url]
    assert not loose, f'constraints are name==version, without local versions or addresses: {loose}'
    assert str(pins()['torch'].specifier) == '==2.13.0'

def test_installed_version_is_the_one_of_settings():
    assert installed_version('memnb') == settings()['version'], 'set up again: `make test`'

def test_wheel_carries_what_it_reads(tmp_path):
    "Installed by copy, memnb brings notebooks, numbers and profiles along, and writes where it is run"
    source, site, away = [tmp_path/n for n in ('source', 'site', 'away')]
    skip = shutil.ignore_patterns('__pycache__', '.ipynb_checkpoints', 'kernel-ipc-*')
    for d in ['memnb', 'nbs', 'data']: shutil.copytree(TOP/d, source/d, ignore=skip)
    for f in ['settings.ini', 'setup.py', 'pyproject.toml', 'README.md', 'LICENSE']:
        if (TOP/f).exists(): shutil.copy(TOP/f, source)
    away.mkdir()
    pip = [sys.executable, '-m', 'pip', 'install', '-q', '--no-deps', '--no-build-isolation']
    r = subprocess.run([*pip, '--target', site, source], cwd=away, capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    assert (site/'memnb/gpt.c').is_file(), 'the engine in C is not in the wheel'
    code = ("import memnb, memnb.core as c, memnb.results as r; print(memnb.__file__); print(len(r.reported('tabular')) > 0)\n"
            "for k in c.SHIPPED: print(k, len([f for f in c.share_dir(k).rglob('*') if f.is_file()]))\nprint(c.figures_dir())")
    lines = python(code, away, PYTHONPATH=str(site)).splitlines()
    assert lines[0].startswith(str(site)) and lines[1] == 'True', lines
    want = {'nbs': 'nbs/**/*.ipynb', 'reported': 'data/reported/*.csv', 'measured': 'data/measured/*.csv',
            'profiles': 'data/profiles/*.yaml', 'planted': 'data/planted/*/*'}
    assert lines[2:-1] == [f'{k} {len(list(TOP.glob(p)))}' for k, p in want.items()]
    assert lines[-1] == str(away/'figures')

def test_python_versions_agree():
    "The versions that the workflow tests are allowed by settings.ini, the oldest one among them"
    text = (TOP/'.github/workflows/ci.yml').read_text()
    tested = re.search(r'python: \[(.+)\]', text)[1].replace('"', '').split(', ')
    assert tested[0] == settings()['min_python'], f'min_python is not the oldest of {tested}'

def test_citation():
    import yaml
    cff = yaml.safe_load((TOP/'CITATION.cff').read_text(encoding='utf8'))
    assert not {'cff-version', 'message', 'title', 'authors'} - set(cff)
    assert cff['cff-version'] == '1.2.0' and cff['version'] == settings()['version']
    first = [r['authors'][0]['family-names'] for r in cff['references']]
    assert first == ['Bordt', 'Golchin', 'Li', 'Ghosh', 'Morris']
    for r in cff['references']:
        assert r['type'] and r['title'] and r['year'] and r['authors']
        assert all(a['family-names'] and a['given-names'] for a in r['authors']), r['title']

def test_containers_set_up_as_everybody_does():
    "Binder and the dev container call targets of the Makefile, with the Python of the settings or a newer one"
    targets = set(re.findall(r'^([a-z]+):.*##', (TOP/'Makefile').read_text(), re.M))
    dev = json.loads((TOP/'.devcontainer/devcontainer.json').read_text())
    called = [dev['postCreateCommand'], *(TOP/'binder/postBuild').read_text().splitlines()]
    called = [c.split()[1] for c in called if c.startswith('make ')]
    assert called == ['setup', 'setup'] and {'setup', 'reproduce', 'test'} <= targets
    assert os.access(TOP/'binder/postBuild', os.X_OK)
    low = settings()['min_python']
    for text in (TOP/'binder/runtime.txt').read_text(), (TOP/'.devcontainer/Dockerfile').read_text():
        assert re.search(r'python[-:](\d+\.\d+)', text)[1] >= low

def test_ci_runs_the_same_command():
    run = (TOP/'.ci/run')
    assert os.access(run, os.X_OK), '.ci/run is not executable'
    assert 'make test' in run.read_text() and 'run: make test' in (TOP/'.github/workflows/ci.yml').read_text()
