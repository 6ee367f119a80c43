"""A page for a class: the method is emptied, the tests are kept, and solutions and outputs are left out."""

import ast
import re
from pathlib import Path


def emptied(source: str) -> str:
    "The source of a cell with its functions emptied; signatures and docstrings stay"
    lines = source.splitlines()
    todo = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef)]
    inner = {m for n in todo for m in ast.walk(n) if m is not n}
    for n in sorted((n for n in todo if n not in inner), key=lambda n: -n.lineno):
        body = n.body[1:] if ast.get_docstring(n) is not None else n.body
        if body and body[0].lineno > n.lineno:
            left = " " * body[0].col_offset + "...  # your lines"
            lines[body[0].lineno - 1 : n.end_lineno] = [left]
    return "\n".join(lines)


def student(page: Path, out: Path) -> int:
    """Write the notebook for a class that belongs to a page, as nbs/14_capacity.ipynb.

    A file that is there is not written over. The number of functions to write comes back.
    """
    import nbformat

    nb, n = nbformat.read(page, 4), 0
    for cell in nb.cells:
        if cell.cell_type == "markdown":
            solution = r"<details><summary>Solution</summary>.*?</details>\n*"
            cell.source = re.sub(solution, "", cell.source, flags=re.S).rstrip()
            continue
        cell.outputs, cell.execution_count = [], None
        if re.match(r"#\| *export\b", re.sub(r"#\| *default_exp.*\n", "", cell.source)):
            cell.source = emptied(cell.source)
            n += cell.source.count("...  # your lines")
        cell.source = re.sub(r"^#\|.*\n", "", cell.source, flags=re.M)
    nb.cells = [c for c in nb.cells if c.source.strip()]
    with open(out, "x", encoding="utf-8") as f:
        nbformat.write(nb, f)
    return n
