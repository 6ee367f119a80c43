"""The site of memnb: its notebooks as they stand, rendered offline by Sphinx (`make docs`).

Notebooks and figures are copied below this folder first, since Sphinx reads one folder only; the copies are ignored
by git. Formulas become MathML, which browsers draw without a script, and the search is Sphinx's own: the finished
site opens from disk and asks for nothing from the network.
"""
import json, re, shutil
from configparser import ConfigParser
from pathlib import Path
from posixpath import join, normpath

HERE = Path(__file__).resolve().parent
TOP = HERE.parent
_cfg = ConfigParser()
_cfg.read(TOP/'settings.ini', encoding='utf8')
_cfg = _cfg['DEFAULT']

project, author, release = _cfg['lib_name'], _cfg['author'], _cfg['version']
copyright = _cfg['copyright']
extensions = ['myst_nb']
source_suffix = {'.md': 'myst-nb', '.ipynb': 'myst-nb'}
exclude_patterns = ['_extra', '_build']
html_static_path = ['_static']
suppress_warnings = ['mystnb.unknown_mime_type', 'misc.highlighting_failure']

nb_execution_mode = 'off'
nb_ipywidgets_js = {}
nb_mime_priority_overrides = [('html', 'text/html', 5), ('html', 'image/png', 1)]
myst_enable_extensions = ['dollarmath', 'amsmath']
myst_heading_anchors = 4
myst_update_mathjax = False

html_theme, html_title = 'furo', f'{project} {release}'
html_math_renderer = 'mathml'
html_show_sourcelink = html_copy_source = False
html_show_search_summary = False  # excerpts would need a web server
html_last_updated_fmt = None
html_css_files = ['memnb.css']
html_extra_path = ['_extra']

# --- notebooks as pages ---

def linked(found, at):
    "A link of the notebook `at`: kept inside the site, else to the repository where it has an address, else words"
    words, to = found.groups()
    target = normpath(join(at.parent.as_posix(), to))
    if ':' in to or to.startswith('#') or target.startswith(('nbs/', 'figures/')): return found[0]
    return f'[{words}](<{_cfg["git_url"]}/blob/{_cfg["branch"]}/{target}>)' if _cfg['git_url'] else words

def reader(cell, at):
    "A cell as a reader wants it: no directives of nbdev, links that lead somewhere"
    source = ''.join(cell['source'])
    if cell['cell_type'] == 'code': return re.sub(r'^#\|.*\n?', '', source, flags=re.M)
    return re.sub(r'(?<!!)\[([^\]]*)\]\(([^)\s]+)\)', lambda m: linked(m, at), source)

def wanted(cell, source):
    "Cells that only serve the export are left out"
    return source.strip() and not re.match(r'#\|\s*(hide(?!_input)|default_exp)\b', source)

def page(nb, at):
    "The notebook `at` without what only its author needs"
    cells = []
    for c in nb['cells']:
        source = ''.join(c['source'])
        if not wanted(c, source): continue
        tags = ['remove-input'] if re.match(r'#\|\s*hide_input', source) else []
        meta = dict(tags=tags + c['metadata'].get('tags', []))
        cells.append(c | dict(source=reader(c, at), metadata=meta))
    return nb | dict(cells=cells)

def collect():
    "Copies of notebooks and figures below this folder; only what changed is written"
    for folder in ('nbs', 'figures'): (HERE/folder).mkdir(exist_ok=True)
    for p in sorted((TOP/'figures').glob('*.png')): shutil.copy2(p, HERE/'figures')
    known = {p.relative_to(TOP): p for p in sorted((TOP/'nbs').rglob('*.ipynb')) if '.ipynb_checkpoints' not in p.parts}
    for name, p in known.items():
        text, target = json.dumps(page(json.loads(p.read_text(encoding='utf8')), name)), HERE/name
        target.parent.mkdir(exist_ok=True, parents=True)
        if not target.exists() or target.read_text() != text: target.write_text(text) # ASCII
    for p in (HERE/'nbs').rglob('*.ipynb'):
        if p.relative_to(HERE) not in known: p.unlink()

def report():
    "The report: of the runs in this checkout, else of the notebooks as they stand"
    from memnb.report import batch_report
    runs = TOP/'runs' if any((TOP/'runs').glob('*/*.ipynb')) else TOP/'nbs'
    batch_report(runs, HERE/'_extra/report.html')

# --- formulas ---

def formula(display):
    "Visitor for a formula in a line or on its own"
    def visit(self, node):
        from docutils.nodes import SkipNode
        from memnb.report import mathml
        text = mathml(node.astext(), display)
        self.body.append(f'<div class="math">{text}</div>' if display else text)
        raise SkipNode
    return visit

def setup(app):
    "Register the renderer of formulas"
    app.add_html_math_renderer('mathml', (formula(False), None), (formula(True), None))
    return dict(parallel_read_safe=True, parallel_write_safe=True)

collect()
report()
