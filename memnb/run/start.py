"""Pages to begin with: for a paper of one's own, and for a class, with the method emptied and the tests kept."""

import ast
import json
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
    page, claims = (
        (templates / f).read_text("utf-8") for f in ("page.json", "claims.yaml")
    )
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
    todo = [
        n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef)
    ]
    inner = {m for n in todo for m in ast.walk(n) if m is not n}
    for n in sorted(
        (n for n in todo if n not in inner), key=lambda n: -n.lineno
    ):
        body = n.body[1:] if ast.get_docstring(n) is not None else n.body
        if body and body[0].lineno > n.lineno:
            left = " " * body[0].col_offset + TO_WRITE
            lines[body[0].lineno - 1 : n.end_lineno] = [left]
    return "\n".join(lines)


_SOLUTION = re.compile(
    r"<details><summary>Solution</summary>.*?</details>\n*", re.S
)
_EXPORT = re.compile(r"#\| *export\b")
_DIRECTIVE = re.compile(r"^#\|.*\n", re.M)
TO_WRITE = "...  # your lines"


def _for_a_class(cell):
    "A cell of a page, as a class gets it: without solution, outputs and directives"
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return cell | dict(source=_SOLUTION.sub("", source).rstrip())
    if _EXPORT.match(re.sub(r"#\| *default_exp.*\n", "", source)):
        source = emptied(source)
    return cell | dict(
        source=_DIRECTIVE.sub("", source), outputs=[], execution_count=None
    )


def student(page: Path, out: Path) -> int:
    """Write the notebook for a class that belongs to a page, as nbs/14_capacity.ipynb.

    A file that is there is not written over. The number of functions to write comes back.
    """
    if out.exists():
        raise ValueError(f"{out} is there already: name another --out")
    nb = json.loads(page.read_text(encoding="utf-8"))
    cells = [_for_a_class(cell) for cell in nb["cells"]]
    nb["cells"] = [cell for cell in cells if cell["source"].strip()]
    with open(out, "x", encoding="utf-8") as file:
        json.dump(nb, file, indent=1, ensure_ascii=False)
        file.write("\n")
    return sum(cell["source"].count(TO_WRITE) for cell in nb["cells"])
