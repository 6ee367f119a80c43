"""The site of memnb: its notebooks as they stand, rendered offline by Sphinx (`make docs`).

Notebooks and figures are copied below this folder first, since Sphinx reads one folder only; the copies are ignored
by git. Formulas become MathML, which browsers draw without a script, and the search is Sphinx's own: the finished
site opens from disk and asks for nothing from the network.
"""

import ast
import inspect
import json
import re
import shutil
from configparser import ConfigParser
from html import escape, unescape
from pathlib import Path
from posixpath import join, normpath, relpath
from tempfile import TemporaryDirectory
from urllib.parse import quote

import memnb

HERE = Path(__file__).resolve().parent
TOP = HERE.parent
PACKAGE = Path(memnb.__file__).parent
_cfg = ConfigParser()
_cfg.read(TOP / "settings.ini", encoding="utf8")
_cfg = _cfg["DEFAULT"]

project, author, release = _cfg["lib_name"], _cfg["author"], _cfg["version"]
copyright = _cfg["copyright"]
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
]
source_suffix = {
    ".md": "myst-nb",
    ".ipynb": "myst-nb",
    ".rst": "restructuredtext",  # the reference
}
exclude_patterns = ["_extra", "_build"]
html_static_path = ["_static"]
suppress_warnings = ["mystnb.unknown_mime_type", "misc.highlighting_failure"]

nb_execution_mode = "off"
nb_merge_streams = True  # what a cell prints is one block
nb_output_stderr = "remove"  # how far a run is, which nobody reads afterwards
nb_ipywidgets_js = {}
nb_render_markdown_format = (
    "myst"  # sentences and captions that cells compute hold formulas, too
)
nb_mime_priority_overrides = [
    ("html", "text/html", 5),
    ("html", "image/png", 1),
]
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 4
myst_update_mathjax = False

html_theme, html_title = "furo", f"{project} {release}"
html_math_renderer = "mathml"
html_show_sourcelink = html_copy_source = False
html_show_search_summary = False  # excerpts would need a web server
html_last_updated_fmt = None
html_css_files = ["memnb.css"]
html_favicon = "_static/memnb.svg"
html_extra_path = ["_extra"]

autodoc_member_order = "bysource"
autosummary_ignore_module_all = (
    True  # a paper's page exports its method's names
)
maximum_signature_line_length = 60
napoleon_use_rtype = False

# --- notebooks as pages ---


LINK = r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)"


def linked(found, at):
    "A link of the notebook `at`: kept inside the site, else to the repository where it has an address, else words"
    words, to = found.groups()
    target = normpath(join(at.parent.as_posix(), to))
    if ":" in to or to.startswith("#"):
        return found[0]
    if target.startswith(
        ("nbs/", "figures/", "docs/")
    ):  # the site's own top is this folder
        own = (
            at.parent.relative_to("docs")
            if at.parts[0] == "docs"
            else at.parent
        )
        return f"[{words}]({relpath(target.removeprefix('docs/'), own)})"
    return (
        f"[{words}](<{_cfg['git_url']}/blob/{_cfg['branch']}/{target}>)"
        if _cfg["git_url"]
        else words
    )


def figure(found, at):
    "A picture of figures/ that stands alone in its line, with the title and the caption that its file holds"
    from PIL import Image

    alt, to = found.groups()
    file = TOP / normpath(join(at.parent.as_posix(), to))
    if not file.is_file():
        return found[0]
    with Image.open(file) as im:
        said, wide, dpi = im.info, im.width, im.info.get("dpi", [200])[0]
    if not said.get("Description"):
        return found[0]
    head = f"````{{figure}} {to}\n:alt: {' '.join((said.get('Title') or alt).split())}\n:width: {wide * 72 / dpi:.0f}px"
    return f"{head}\n\n{said['Description']}\n````"


def reader(cell, at):
    "A cell as a reader wants it: no directives of nbdev, links that lead somewhere, pictures with captions"
    source = "".join(cell["source"])
    if cell["cell_type"] == "code":
        return re.sub(r"^#\|.*\n?", "", source, flags=re.M)
    source = re.sub(
        r"^!\[([^\]]*)\]\(([^)\s]+\.png)\)$",
        lambda m: figure(m, at),
        source,
        flags=re.M,
    )
    return re.sub(LINK, lambda m: linked(m, at), source)


def wanted(cell, source):
    "Cells that only serve the export are left out"
    return source.strip() and not re.match(
        r"#\|\s*(hide(?!_input)|default_exp)\b", source
    )


def tags(cell):
    "Tags of a cell: what nbdev hides is left out, and what Jupyter folds is folded"
    hidden = re.match(r"#\|\s*hide_input", "".join(cell["source"]))
    folded = cell["metadata"].get("jupyter", {}).get(
        "source_hidden"
    ) or "parameters" in cell["metadata"].get("tags", [])
    return (
        cell["metadata"].get("tags", [])
        + ["remove-input"] * bool(hidden)
        + ["hide-input"] * bool(folded and not hidden)
    )


def rows_link(at):
    "The end of a caption: where the rows of the paper are that the cell above its picture draws"
    word = at.stem[3:]
    known = (
        at.parent.as_posix() == "nbs"
        and (TOP / "data/papers" / word / "measured").is_dir()
    )
    return (
        f' <a class="rows" href="../rows/{word}.html">drawn by this cell from these rows</a>'
        if known
        else ""
    )


def captioned(cell, at=Path()):
    "A cell, cut so that each picture with a caption behind it is a figure with that caption and a link to its rows"
    from memnb.run.executed import caption_of

    outs, link, at, done = cell.get("outputs", []), rows_link(at), 0, []

    def part(outputs, meta, first=False):
        rest = (
            dict(source=cell["source"])
            if first
            else dict(source="0", id=f"{cell.get('id', 'cell')}-{len(done)}")
        )
        done.append(cell | rest | dict(outputs=outputs, metadata=meta))

    kinds = [o.get("data", {}) for o in outs]
    for i in [
        i
        for i in range(len(outs) - 1)
        if "image/png" in kinds[i] and set(kinds[i + 1]) & {"text/markdown"}
    ]:
        own = outs[i].get("metadata", {}).get("image/png", {})
        text = caption_of("".join(kinds[i + 1]["text/markdown"])) + link
        if i > at or not done:
            part(outs[at:i], cell["metadata"], first=not done)
        shape = {
            k: f"{own[k]}px" for k in ["width"] if k in own
        }  # the height follows, on a phone too
        picture = outs[i] | dict(metadata={})
        about = dict(
            image=dict(alt=own.get("alt", ""), **shape),
            figure=dict(caption=text),
        )
        part([picture], dict(tags=["remove-input"], mystnb=about))
        at = i + 2
    if not done:
        part(outs, cell["metadata"], first=True)
    elif at < len(outs):
        part(outs[at:], dict(tags=["remove-input"]))
    return done


def heading(cell):
    "The match of a heading of the second level, or None"
    return (
        re.match(r"## (.*)", "".join(cell["source"]))
        if cell["cell_type"] == "markdown"
        else None
    )


def launched(at):
    "A link that opens a page in Binder, for a repository that has an address on GitHub"
    repo = re.fullmatch(
        r"https://github\.com/([^/]+/[^/]+?)/?", _cfg["git_url"]
    )
    if not repo or at.parent.as_posix() != "nbs":
        return []
    to = f"https://mybinder.org/v2/gh/{repo[1]}/{_cfg['branch']}?urlpath=lab/tree/{at.as_posix()}"
    return [
        dict(
            cell_type="markdown",
            id="launch",
            metadata={},
            source=f"[Open in Binder]({to})",
        )
    ]


def page(nb, at):
    "The notebook `at` without what only its author needs"
    cells = []
    for c in nb["cells"]:
        if not wanted(c, "".join(c["source"])):
            continue
        c = c | dict(source=reader(c, at), metadata=dict(tags=tags(c)))
        cells += captioned(c, at) if c["cell_type"] == "code" else [c]
    return nb | dict(cells=cells[:1] + launched(at) + cells[1:])


def collect():
    "Copies of notebooks and figures below this folder; only what changed is written"
    for folder in ("nbs", "figures"):
        (HERE / folder).mkdir(exist_ok=True)
    for p in sorted((TOP / "figures").glob("*.[ps][nv]g")):
        shutil.copy2(p, HERE / "figures")
    known = {
        p.relative_to(TOP): p
        for p in sorted((TOP / "nbs").rglob("*.ipynb"))
        if ".ipynb_checkpoints" not in p.parts
    }
    for name, p in known.items():
        text, target = (
            json.dumps(page(json.loads(p.read_text(encoding="utf8")), name)),
            HERE / name,
        )
        target.parent.mkdir(exist_ok=True, parents=True)
        if not target.exists() or target.read_text() != text:
            target.write_text(text)  # ASCII
    for p in (HERE / "nbs").rglob("*.ipynb"):
        if p.relative_to(HERE) not in known:
            p.unlink()


def write(path, text):
    "Write a file, unless it says so already"
    path.parent.mkdir(exist_ok=True, parents=True)
    if not path.exists() or path.read_text(encoding="utf8") != text:
        path.write_text(text, encoding="utf8")


def rows():
    "A page for the measured rows of each paper, and the rows"
    import pandas as pd

    for folder in sorted(
        p for p in (TOP / "data/papers").glob("*") if p.is_dir()
    ):
        lines = []
        for f in sorted(folder.glob("measured/*.parquet")):
            table, name = (
                pd.read_parquet(f, dtype_backend="numpy_nullable"),
                f"{f.stem}.csv",
            )
            write(
                HERE / "_extra/rows" / folder.name / name,
                table.to_csv(index=False),
            )
            link = f'<a href="{folder.name}/{quote(name)}">{name}</a>'
            lines.append(f"- {link}, {len(table):,} rows")
        write(
            HERE / f"rows/{folder.name}.md",
            "\n".join(
                [
                    "---",
                    "orphan: true",
                    "---",
                    f"# Rows of {folder.name}",
                    "",
                    "What runs have measured, as they wrote it: one number per row, with its interval, n, code and day.",
                    "",
                    *lines,
                    "",
                ]
            ),
        )


def cards():
    "The papers with question, picture and finding, for the first page"
    from PIL import Image

    out = []
    for p in sorted((TOP / "nbs").glob("[1-9][0-9]_*.ipynb")):
        head = "".join(
            json.loads(p.read_text(encoding="utf8"))["cells"][0]["source"]
        ).split("\n\n")
        word, to = p.stem[3:], f"nbs/{p.stem}"
        found = [
            TOP / "figures" / f"{word}_{x}.png" for x in ("x_found", "fig2")
        ]
        picture = next((f for f in found if f.is_file()), found[0])
        out.append(
            f"## [{head[0].lstrip('# ')}]({to}.ipynb)\n\n"
            + (head[1].lstrip("> ") if len(head) > 1 else "")
        )
        if not picture.is_file():
            continue
        with Image.open(picture) as im:
            said = " ".join((im.info.get("Title") or word).split())
        out.append(
            f"````{{figure}} figures/{picture.name}\n:alt: {said}\n:target: {to}.html\n\n{said}\n````"
        )
    return "\n\n".join(out)


# --- the reference ---


def public_modules():
    "Names of the rooms, and of the modules of each paper by its word; what stands above them is behind the command"
    parts = {p for p in PACKAGE.rglob("*.py") if not p.name.startswith("_")}
    groups = {"": sorted(p.stem for p in parts if p.parent == PACKAGE)}
    for page in sorted((TOP / "nbs").glob("[1-9][0-9]_*.ipynb")):
        word = page.stem[3:]
        of_paper = (p for p in parts if p.parent == PACKAGE / word)
        groups[word] = sorted(f"{word}.{p.stem}" for p in of_paper)
    return {word: names for word, names in groups.items() if names}


def headed(title, line, *body):
    "Lines of a page or a section in reStructuredText"
    return [title, line * len(title), "", *body, ""]


def reference():
    "A page for each public module, and one that lists them with what each is about"
    pages = {}
    about = "What every public function takes and gives, from its docstring and the comments beside its parameters."
    listed = headed("Reference", "=", about)
    for word, names in public_modules().items():
        listed += headed(
            f"The paper {word}" if word else "What papers share", "-"
        )
        for name in names:
            code = (PACKAGE / f"{name.replace('.', '/')}.py").read_text("utf8")
            doc = " ".join(ast.get_docstring(ast.parse(code)).split())
            listed += [f":doc:`{name} <api/{name}>`", f"    {rst(doc)}", ""]
            body = [
                f".. automodule:: memnb.{name}",
                "   :members:",
                "   :ignore-module-all:",
            ]
            pages[f"{name}.rst"] = headed(name, "=", *body)
        listed += [".. toctree::", "   :hidden:", ""]
        listed += [f"   {name} <api/{name}>" for name in names] + [""]
    write(HERE / "api.rst", "\n".join(listed))
    for file, lines in pages.items():
        write(HERE / "api" / file, "\n".join(lines))
    for file in (HERE / "api").glob("*.rst"):
        if file.name not in pages:
            file.unlink()


def escaped(words):
    "Words without the letters that are markup in reStructuredText: emphasis, substitutions, and links (`name_`)"
    return re.sub(r"[\\*|]|(?<=\w)_(?!\w)", r"\\\g<0>", words)


def rst(doc):
    "A docstring as reStructuredText: words, code in backticks, and Google's sections, which napoleon reads"
    parts = re.split(r"`([^`\n]+)`", doc)
    parts[::2] = map(escaped, parts[::2])
    parts[1::2] = [f"``{code}``" for code in parts[1::2]]
    return "".join(parts)


def described(app, what, name, obj, options, lines):
    "The docstring of an object, with the comments beside its parameters where it does not say what they are"
    lines[:] = rst("\n".join(lines)).split("\n")
    if what in ("function", "class", "method") and "Args:" not in lines:
        lines += comments(obj)


def comments(obj):
    "The comments beside the parameters of a function or the fields of a class, as a section of its docstring"
    from fastcore.docments import docments

    found = {k: escaped(text) for k, text in docments(obj).items() if text}
    result = found.pop("return", None)
    lines = [f"    {k}: {' '.join(text.split())}" for k, text in found.items()]
    section = ["", "Args:", *lines] if lines else []
    return section + (["", "Returns:", f"    {result}"] if result else [])


def left_out(app, what, name, obj, skip, options):
    "What other packages give, and the fields of a tuple, which have no docstring of their own"
    module = getattr(inspect.unwrap(obj), "__module__", None) or "memnb"
    doc = getattr(obj, "__doc__", None) or ""
    foreign = callable(obj) and not module.startswith("memnb")
    if foreign or doc.startswith(
        ("Alias for field", "Configuration for the model")
    ):
        return True


def report():
    "The report: of the runs in this checkout, else of the pages as they stand"
    from memnb.papers import notebooks
    from memnb.run.report import batch_report

    with TemporaryDirectory() as tmp:
        for p in notebooks(TOP / "nbs").values():
            shutil.copy(p, tmp)
        batch_report(
            TOP / "runs" if any((TOP / "runs").glob("*/*.ipynb")) else tmp,
            HERE / "_extra/report.html",
        )


# --- the table of contents ---


def listed_notebooks(app, name, source):
    "One list for each folder of reference notebooks, in the order of the pages; links of the guides"
    if name in ("use", "teaching"):
        at = Path(f"docs/{name}.md")
        source[0] = re.sub(LINK, lambda m: linked(m, at), source[0])
    if name != "index":
        return
    folders = {p.parent.name for p in (HERE / "nbs").glob("*/*.ipynb")} - {
        "rooms"
    }
    order = [
        p.stem[3:] for p in sorted((HERE / "nbs").glob("[1-9][0-9]_*.ipynb"))
    ]
    order = [w for w in order if w in folders] + sorted(folders - set(order))

    def listed(w):
        pages = sorted(
            (p.stem for p in (HERE / "nbs" / w).glob("*.ipynb")),
            key=lambda p: (p != "index", p),
        )
        return "\n".join(
            [
                f'```{{toctree}}\n:caption: "Reference notebooks: {w}"\n:maxdepth: 1\n',
                *[f"nbs/{w}/{p}" for p in pages],
                "```",
            ]
        )

    source[0] = (
        source[0]
        .replace("% reference notebooks", "\n\n".join(map(listed, order)))
        .replace("% papers", cards())
    )


# --- what a shared link shows ---


def described_page(app, pagename, templatename, context, doctree):
    "Title and first sentences of a page, for search engines and for who passes a link on"
    from docutils import nodes

    if doctree is None:
        return
    lines = [node.astext() for node in doctree.findall(nodes.paragraph)]
    first = " ".join(next(filter(None, lines), project).split())
    title = re.sub("<[^>]+>", "", context.get("title") or project)
    about = {
        "description": first[:200],
        "og:title": unescape(title),
        "og:description": first[:200],
        "og:type": "article",
        "og:site_name": project,
    }
    made = ""
    for name, text in about.items():
        kind = "property" if name.startswith("og:") else "name"
        made += f'<meta {kind}="{name}" content="{escape(text)}">\n'
    context["metatags"] = context.get("metatags", "") + made


# --- formulas ---


def formula(display):
    "Visitor for a formula in a line or on its own"

    def visit(self, node):
        from docutils.nodes import SkipNode

        from memnb.rendering import mathml

        text = mathml(node.astext(), display)
        self.body.append(f'<div class="math">{text}</div>' if display else text)
        raise SkipNode

    return visit


def setup(app):
    "Register the renderer of formulas and the lists of notebooks"
    app.connect("source-read", listed_notebooks)
    app.connect("html-page-context", described_page)
    app.connect("autodoc-process-docstring", described, priority=400)
    app.connect("autodoc-skip-member", left_out)
    app.connect(
        "env-get-outdated", lambda *args: ["index"]
    )  # a folder may be new
    app.add_html_math_renderer(
        "mathml", (formula(False), None), (formula(True), None)
    )
    return dict(parallel_read_safe=True, parallel_write_safe=True)


collect()
rows()
reference()
report()
