"""Pages to begin with: for a paper of one's own, and for a class, with the method emptied and the tests kept."""

import ast
import re
from importlib.util import find_spec
from pathlib import Path

from ..core import package_dir, replacing, root
from ..papers import notebooks


def new_paper(word: str) -> list:
    """Start a page for a paper of one's own, where memnb writes; it runs as it stands.

    It is about a die that remembers its last throw, and has the headings of the other pages. The files that were made
    come back: the page, what the paper prints, its claims, a profile.
    """
    if not re.fullmatch("[a-z][a-z0-9]{1,30}", str(word)):
        take = "take small letters and digits, as in icl"
        raise ValueError(f"'{word}' is no word for a paper: {take}")
    if find_spec(f"memnb.{word}"):
        raise ValueError(f"memnb has a part named '{word}': take another word")
    top, known = root(), notebooks()
    if word in known:
        raise ValueError(f"there is a paper '{word}': {known[word].name}")
    number = max([int(f.name[:2]) for f in known.values()], default=9) + 1
    templates = package_dir() / "templates"
    page, claims = ((templates / f).read_text("utf-8") for f in ("page.json", "claims.yaml"))
    files = {
        f"nbs/{number}_{word}.ipynb": page.replace("TITLE", word.capitalize()),
        f"data/papers/{word}/reported.csv": "where,what,value\nFigure 1,repeats,0.1667\n",
        f"data/papers/{word}/claims.yaml": claims,
        f"{word}.yaml": "# sizes of a run: memnb run WORD.yaml\n- notebook: WORD\n"
        "  parameters: {n: 600}\n",
    }
    if there := [name for name in files if (top / name).exists()]:
        raise ValueError(f"{there[0]} is there already: nothing was written")
    for name, text in files.items():
        with replacing(top / name) as part:
            part.write_text(text.replace("WORD", word), encoding="utf-8")
    return [top / name for name in files]


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

    if out.exists():
        raise ValueError(f"{out} is there already: name another --out")
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
