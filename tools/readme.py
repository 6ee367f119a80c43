#!/usr/bin/env python3
"Make README.md from nbs/index.ipynb: what its cells show, without the code that is hidden."

import re
from pathlib import Path
from posixpath import join, normpath

import nbformat
from nbconvert import MarkdownExporter
from nbformat.v4 import new_markdown_cell

TOP = Path(__file__).resolve().parents[1]


def link(found):
    "A link of a notebook in `nbs/`, as seen from one folder above"
    return f"]({normpath(join('nbs', found[1]))}{found[2] or ''})"


def shown(cell):
    "The cell as the README shows it, or None"
    if re.match(r"#\|\s*(hide|export)\b", cell.source):
        return None
    if re.match(r"#\|\s*hide_input\b", cell.source):
        data = [o.get("data", {}) for o in cell.outputs]
        cell = new_markdown_cell(
            "\n\n".join(d["text/markdown"] for d in data if "text/markdown" in d)
        )
        assert cell.source, "a `hide_input` cell must end in Markdown(...) and be executed"
    if cell.cell_type == "code":
        cell.source = re.sub(r"^#\|.*\n?", "", cell.source, flags=re.M)
    else:
        relative = r"\]\((?!\w+:|/|#)([^()\s#]*\.[^()\s#]+)(#[^()\s]*)?\)"
        cell.source = re.sub(relative, link, cell.source)
    return cell if cell.source.strip() else None


def readme(notebook):
    "The text of the README"
    book = nbformat.read(notebook, 4)
    book.cells = [c for c in map(shown, book.cells) if c]
    book.metadata.setdefault("language_info", nbformat.from_dict(dict(name="python")))
    text, files = MarkdownExporter().from_notebook_node(book)
    assert not files["outputs"], "index.ipynb shows an image: link a file of figures/ instead"
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"^[ \t]+$", "", text, flags=re.M)).strip() + "\n"


if __name__ == "__main__":
    (TOP / "README.md").write_text(readme(TOP / "nbs/index.ipynb"), encoding="utf-8")
