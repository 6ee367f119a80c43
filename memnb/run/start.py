"""Pages to begin with: for a paper of one's own, and for a class, with the method emptied and the tests kept."""

import ast
import json
import mimetypes
import os
import re
from base64 import b64encode
from importlib.util import find_spec
from pathlib import Path

from ..core import package_dir, replacing, root
from ..papers import notebooks


# the first rows of what a paper prints, and a profile, in which WORD is the word of the paper
REPORTED = """\
where,what,value
Figure 1,repeats,0.1667
"""
PROFILE = """\
# sizes of a run: memnb run WORD.yaml
- notebook: WORD
  parameters: {n: 600}
"""


def _check_word(word: str) -> None:
    "ValueError for what cannot be the word of a new paper"
    if not re.fullmatch("[a-z][a-z0-9]{1,30}", str(word)):
        take = "take small letters and digits, as in icl"
        raise ValueError(f"'{word}' is no word for a paper: {take}")
    if find_spec(f"memnb.{word}"):
        raise ValueError(f"memnb has a part named '{word}': take another word")
    pages = notebooks()
    if word in pages:
        raise ValueError(f"there is a paper '{word}': {pages[word].name}")


def new_paper(word: str) -> list:
    """Start a page for a paper of one's own, where memnb writes; it runs as it stands.

    It is about a die that remembers its last throw, and has the headings of the other pages.

    Args:
        word: of the paper, small letters and digits

    Returns:
        files that were made: the page, what the paper prints, its claims, a profile

    Raises ValueError for a word that is no word or taken, and where a file is there already.
    """
    _check_word(word)
    numbers = [int(page.name[:2]) for page in notebooks().values()]
    number = max(numbers, default=9) + 1
    templates = package_dir() / "templates"
    page = (templates / "page.json").read_text("utf-8")
    claims = (templates / "claims.yaml").read_text("utf-8")
    files = {
        f"nbs/{number}_{word}.ipynb": page.replace("TITLE", word.capitalize()),
        f"data/papers/{word}/reported.csv": REPORTED,
        f"data/papers/{word}/claims.yaml": claims,
        f"{word}.yaml": PROFILE,
    }
    top = root()
    for name in files:
        if (top / name).exists():
            raise ValueError(f"{name} is there already: nothing was written")
    for name, text in files.items():
        with replacing(top / name) as part:
            part.write_text(text.replace("WORD", word), encoding="utf-8")
    return [top / name for name in files]


TO_WRITE = "...  # your lines"


def _outer_functions(source: str) -> list:
    "The functions of a source that stand in no other function, the last one first"
    functions = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef)
    ]
    inner = {
        node
        for function in functions
        for node in ast.walk(function)
        if node is not function
    }
    outer = [function for function in functions if function not in inner]
    return sorted(outer, key=lambda function: -function.lineno)


def emptied(source: str) -> str:
    "The source of a cell with its functions emptied; signatures and docstrings stay"
    lines = source.splitlines()
    # from the last one upwards: the numbers of the lines above stay as they are
    for function in _outer_functions(source):
        body = function.body
        if ast.get_docstring(function) is not None:
            body = body[1:]
        if not body or body[0].lineno == function.lineno:
            continue
        first = body[0]
        indent = " " * first.col_offset
        # a function begins with its decorators, which stand above its line
        decorators = getattr(first, "decorator_list", [])
        begins = min(node.lineno for node in (first, *decorators))
        lines[begins - 1 : function.end_lineno] = [indent + TO_WRITE]
    return "\n".join(lines)


_SOLUTION = re.compile(
    r"<details><summary>Solution</summary>.*?</details>\n*", re.S
)
_DIRECTIVE = re.compile(r"^#\|.*\n", re.M)
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
_MEASURED = re.compile(r"<!--[\w.-]+-->")  # behind a number of the rows
_NUMBER = re.compile(r"\d[.,]\d|\.\d|\d %")
# numbers of sections, figures, formulas and addresses are no results, nor are counts of thousands, which are settings
_NO_RESULT = re.compile(
    r"§+[\w.]+|\$[^$]*\$|\b[A-Z]\.\d+(\.\d+)*|\]\([^)]*\)|\d,\d{3}"
)
RESULT = "result"  # tag of prose that is folded as a whole
_FOLDED = "<details><summary>{}</summary>\n\n{}\n\n</details>"
# what follows these up to the next heading is about settings, or asks
_NEVER_FOLDED = "**For the reading group", "**What differs"
# the words in bold that a paragraph begins with
_LEAD = re.compile(r"\*\*([^*$`]+)\*\*")
TO_STUDENTS = """\
**How to use this notebook.** Where you find `# your lines`, write the body of the function. The text above it, its
signature and its docstring say what it computes. Until then, cells that call it stop with an error. Cells with
`test_eq`, `test_close` or `mark` check what you wrote. Write down what you expect before you open a folded *What came
out*. With solutions and outputs this is [{name}]({to}).
"""


def _tells_a_result(paragraph: str, after_code: bool) -> bool:
    "Whether a paragraph has a measured number, or says behind a cell of code what came out"
    if _MEASURED.search(paragraph):
        return True
    begins_something = paragraph.startswith(("#", "**"))
    # a question, or what introduces the next cell
    leads_on = paragraph.rstrip().endswith(("?", ":"))
    return (
        after_code
        and not begins_something
        and not leads_on
        and bool(_NUMBER.search(_NO_RESULT.sub("", paragraph)))
    )


def _summary(result: str) -> str:
    "What stands above a folded result: the words in bold that it begins with, where it has some"
    lead = _LEAD.match(result)
    return f"What came out: {lead[1].rstrip('.,')}" if lead else "What came out"


def _folded(source: str, after_code: bool) -> str:
    """Prose whose results are folded until the class has its own.

    What stands behind a cell of code, `after_code`, tells what it gave, up to the next heading.
    Differences from the paper and questions for the reading group are never folded.
    """
    parts = []
    results = []
    stays_open = False

    def fold():
        if results:
            folded = "\n\n".join(results)
            parts.append(_FOLDED.format(_summary(folded), folded))
            results.clear()

    for paragraph in source.split("\n\n"):
        if paragraph.startswith("#"):
            after_code = stays_open = False
        stays_open = stays_open or paragraph.startswith(_NEVER_FOLDED)
        if not stays_open and _tells_a_result(paragraph, after_code):
            results.append(paragraph)
        else:
            fold()
            parts.append(paragraph)
    fold()
    return "\n\n".join(parts)


def _with_links(source: str, page: Path, out: Path) -> tuple[str, dict]:
    "Prose of a page whose links are seen from the file `out`, and its pictures, which travel with the notebook"
    pictures = {}

    def moved(link):
        mark, words, to = link.groups()
        file = page.parent / to.partition("#")[0]
        if ":" in to or to.startswith("#") or not file.is_file():
            return link[0]
        if not mark:
            there = os.path.relpath(page.parent / to, out.resolve().parent)
            return f"[{words}]({Path(there).as_posix()})"
        kind = mimetypes.guess_type(file.name)[0] or "image/png"
        pictures[file.name] = {kind: b64encode(file.read_bytes()).decode()}
        return f"![{words}](attachment:{file.name})"

    return _LINK.sub(moved, source), pictures


def _after_code(cells: list) -> list[bool]:
    "Of each cell, whether there is code before it and no heading between the two"
    flags = []
    after_code = False
    for cell in cells:
        flags.append(after_code)
        if cell["cell_type"] == "code":
            after_code = True
        elif re.search("^#", "".join(cell["source"]), re.M):
            after_code = False
    return flags


def _for_a_class(cell: dict, after_code: bool, page: Path, out: Path) -> dict:
    "A cell of a page, as a class gets it: functions emptied, results folded, without solution, outputs and directives"
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        source = _SOLUTION.sub("", source).rstrip()
        # a page tags prose that tells a result in words alone
        if RESULT in cell["metadata"].get("tags", []):
            source = _FOLDED.format(_summary(source), source)
        else:
            source = _folded(source, after_code)
        source, pictures = _with_links(source, page, out)
        attached = dict(attachments=pictures) if pictures else {}
        return cell | dict(source=source) | attached
    folded_away = cell["metadata"].get("jupyter", {}).get("source_hidden")
    if not folded_away and not source.startswith("#| hide"):
        source = emptied(source)
    return cell | dict(
        source=_DIRECTIVE.sub("", source), outputs=[], execution_count=None
    )


def _tells_all(cell: dict) -> bool:
    "Whether a cell lists the verdicts of the page, which a class is to find"
    source = "".join(cell["source"])
    return "claims.contents_of_page(" in source or source.startswith(
        "**What is claimed, and where"
    )


def student(page: Path, out: Path) -> int:
    """Write the notebook for a class that belongs to a page

    Args:
        page: as nbs/14_capacity.ipynb
        out: file to write

    Returns:
        number of functions to write

    Raises ValueError where the file is there already, or its name is that of no notebook.
    """
    if out.exists():
        raise ValueError(f"{out} is there already: name another --out")
    if out.suffix != ".ipynb":
        raise ValueError(
            f"{out} would hold a notebook: name it {out.stem}.ipynb"
        )
    nb = json.loads(page.read_text(encoding="utf-8"))
    kept = [cell for cell in nb["cells"] if not _tells_all(cell)]
    cells = [
        _for_a_class(cell, after_code, page, out)
        for after_code, cell in zip(_after_code(kept), kept)
    ]
    cells = [cell for cell in cells if cell["source"].strip()]
    kinds = [cell["cell_type"] for cell in cells]
    first_code = kinds.index("code")
    to = Path(os.path.relpath(page, out.resolve().parent)).as_posix()
    guide = TO_STUDENTS.format(name=page.name, to=to)
    cells.insert(
        first_code,
        dict(
            cell_type="markdown",
            id="how-to-use",
            metadata={},
            source=guide.replace("\n", " ").strip(),
        ),
    )
    nb["cells"] = cells
    out.parent.mkdir(parents=True, exist_ok=True)
    with open(out, "x", encoding="utf-8") as file:
        json.dump(nb, file, indent=1, ensure_ascii=False)
        file.write("\n")
    return sum(cell["source"].count(TO_WRITE) for cell in nb["cells"])
