"""The site of memnb: its notebooks as they stand, rendered offline by Sphinx (`make docs`).

Notebooks and figures are copied below this folder first, since Sphinx reads one folder only; the copies are ignored
by git. Formulas become MathML, which browsers draw without a script, and the search is Sphinx's own: the finished
site opens from disk and asks for nothing from the network.
"""
import json, re, shutil
from configparser import ConfigParser
from pathlib import Path
from posixpath import join, normpath
from tempfile import TemporaryDirectory

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
nb_render_markdown_format = 'myst'  # sentences and captions that cells compute hold formulas, too
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

def figure(found, at):
    "A picture of figures/ that stands alone in its line, with the title and the caption that its file holds"
    from PIL import Image
    alt, to = found.groups()
    file = TOP/normpath(join(at.parent.as_posix(), to))
    if not file.is_file(): return found[0]
    with Image.open(file) as im: said, wide, dpi = im.info, im.width, im.info.get('dpi', [200])[0]
    if not said.get('Description'): return found[0]
    head = f'````{{figure}} {to}\n:alt: {" ".join((said.get("Title") or alt).split())}\n:width: {wide*72/dpi:.0f}px'
    return f'{head}\n\n{said["Description"]}\n````'

def reader(cell, at):
    "A cell as a reader wants it: no directives of nbdev, links that lead somewhere, pictures with captions"
    source = ''.join(cell['source'])
    if cell['cell_type'] == 'code': return re.sub(r'^#\|.*\n?', '', source, flags=re.M)
    source = re.sub(r'^!\[([^\]]*)\]\(([^)\s]+\.png)\)$', lambda m: figure(m, at), source, flags=re.M)
    return re.sub(r'(?<!!)\[([^\]]*)\]\(([^)\s]+)\)', lambda m: linked(m, at), source)

def wanted(cell, source):
    "Cells that only serve the export are left out"
    return source.strip() and not re.match(r'#\|\s*(hide(?!_input)|default_exp)\b', source)

def tags(cell):
    "Tags of a cell: what nbdev hides is left out, and what Jupyter folds is folded"
    hidden = re.match(r'#\|\s*hide_input', ''.join(cell['source']))
    folded = cell['metadata'].get('jupyter', {}).get('source_hidden')
    return cell['metadata'].get('tags', []) + ['remove-input']*bool(hidden) + ['hide-input']*bool(folded and not hidden)

def captioned(cell):
    "A cell, cut so that each picture with a caption behind it is a figure with that caption"
    from memnb.report import caption_of
    outs, at, done = cell.get('outputs', []), 0, []
    def part(outputs, meta, first=False):
        rest = dict(source=cell['source']) if first else dict(source='0', id=f"{cell.get('id', 'cell')}-{len(done)}")
        done.append(cell | rest | dict(outputs=outputs, metadata=meta))
    kinds = [o.get('data', {}) for o in outs]
    for i in [i for i in range(len(outs) - 1) if 'image/png' in kinds[i] and set(kinds[i + 1]) & {'text/markdown'}]:
        own = outs[i].get('metadata', {}).get('image/png', {})
        text = caption_of(''.join(kinds[i + 1]['text/markdown']))
        if i > at or not done: part(outs[at:i], cell['metadata'], first=not done)
        shape = {k: f'{own[k]}px' for k in ['width'] if k in own}  # the height follows, on a phone too
        picture = outs[i] | dict(metadata={})
        about = dict(image=dict(alt=own.get('alt', ''), **shape), figure=dict(caption=text))
        part([picture], dict(tags=['remove-input'], mystnb=about))
        at = i + 2
    if not done: part(outs, cell['metadata'], first=True)
    elif at < len(outs): part(outs[at:], dict(tags=['remove-input']))
    return done

def page(nb, at):
    "The notebook `at` without what only its author needs"
    cells = []
    for c in nb['cells']:
        if not wanted(c, ''.join(c['source'])): continue
        c = c | dict(source=reader(c, at), metadata=dict(tags=tags(c)))
        cells += captioned(c) if c['cell_type'] == 'code' else [c]
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
    "The report: of the runs in this checkout, else of the pages as they stand"
    from memnb.batch import notebooks
    from memnb.report import batch_report
    with TemporaryDirectory() as tmp:
        for p in notebooks(TOP/'nbs').values(): shutil.copy(p, tmp)
        batch_report(TOP/'runs' if any((TOP/'runs').glob('*/*.ipynb')) else tmp, HERE/'_extra/report.html')

# --- the table of contents ---

def workshops(app, name, source):
    "One list for each folder of workshops, in the order of the pages"
    if name != 'index': return
    folders = {p.parent.name for p in (HERE/'nbs').glob('*/*.ipynb')} - {'rooms'}
    order = [p.stem[3:] for p in sorted((HERE/'nbs').glob('[1-9][0-9]_*.ipynb'))]
    order = [w for w in order if w in folders] + sorted(folders - set(order))
    def listed(w):
        pages = sorted((p.stem for p in (HERE/'nbs'/w).glob('*.ipynb')), key=lambda p: (p != 'index', p))
        return '\n'.join([f'```{{toctree}}\n:caption: "Workshops: {w}"\n:maxdepth: 1\n',
                          *[f'nbs/{w}/{p}' for p in pages], '```'])
    source[0] = source[0].replace('% workshops', '\n\n'.join(map(listed, order)))

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
    "Register the renderer of formulas and the lists of workshops"
    app.connect('source-read', workshops)
    app.connect('env-get-outdated', lambda *args: ['index'])  # a folder may be new
    app.add_html_math_renderer('mathml', (formula(False), None), (formula(True), None))
    return dict(parallel_read_safe=True, parallel_write_safe=True)

collect()
report()
