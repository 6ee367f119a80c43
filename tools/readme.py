#!/usr/bin/env python3
"Make README.md from the Markdown of nbs/index.ipynb, its links as seen from one folder above."

import re
from pathlib import Path
from posixpath import join, normpath

import nbformat

TOP = Path(__file__).resolve().parents[1]


def readme(notebook):
    "The text of the README"
    text = "\n\n".join(
        c.source.strip() for c in nbformat.read(notebook, 4).cells
    )
    relative = r"\]\((?!\w+:|/|#)([^()\s#]+)"
    return (
        re.sub(relative, lambda m: f"]({normpath(join('nbs', m[1]))}", text)
        + "\n"
    )


if __name__ == "__main__":
    (TOP / "README.md").write_text(
        readme(TOP / "nbs/index.ipynb"), encoding="utf-8"
    )
