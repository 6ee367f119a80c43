"""A talk about a paper and a handout of one page, from the page of the paper and `data/papers/<word>/talk.yaml`."""

import base64
import json
import re
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, NamedTuple
from xml.etree import ElementTree

import pandas as pd
import yaml
from pydantic import BaseModel

from ..core import paper_file, package_dir, replacing, require, share_dir
from ..core import version
from ..papers import find, notebooks, title
from ..plots import label
from ..rendering import MARKS, markdown_html, templates
from .ours import is_page, may_write

if TYPE_CHECKING:
    from nbformat import NotebookNode

# of a slide, in CSS pixels
WIDTH = 1280
HEIGHT = 720


class Part(BaseModel, extra="forbid"):
    "One slide: a heading, at most one thing to look at, two lines, and what the speaker says"

    heading: str
    lines: list[str] = []
    notes: str
    code: list[str] = []  # cell, start of the first line, start of the last
    picture: str = ""  # cell of the page, or a file in figures/
    table: str = ""  # cell of the page, in Markdown or shown; 'first' is that of the first screen
    rows: list[str] = []  # of a table that is shown, those that begin so
    printed: str = ""  # cell of the page, of which the printed text is shown
    board: list[str] = []  # claims


class Question(BaseModel, extra="forbid"):
    "A question that will be asked, and what to say"

    question: str
    answer: str


class Talk(BaseModel, extra="forbid"):
    "A file `talk.yaml`"

    slides: list[Part]
    questions: list[Question]
    picture: str  # of the handout, as that of a slide
    verdicts: list[str]  # claims of the handout


def talk(word: str) -> Talk:
    """What `talk.yaml` of a paper says

    Args:
        word: of the paper, as 'tabular'

    Raises ValueError where the paper has none, or where it is no talk.
    """
    page = find(word)
    file = paper_file(word, "talk.yaml")
    if word not in notebooks() or not file.exists():
        raise ValueError(f"no talk about {page.name}: {file} is not there")
    return Talk(**yaml.safe_load(file.read_text(encoding="utf-8")))


# ---- what stands on a page


def _place(lines: list[str], beginning: str, start: int) -> int | None:
    "Number of the first line, from `start` on, with this beginning; None where there is none"
    for number in range(start, len(lines)):
        if lines[number].startswith(beginning):
            return number
    return None


class Page:
    "The notebook of a paper, its cells by their ids"

    def __init__(self, word: str):
        self.word = word
        self.name = find(word)
        notebook = json.loads(self.name.read_text(encoding="utf-8"))
        first_screen = takewhile(
            lambda cell: cell["cell_type"] == "markdown", notebook["cells"]
        )
        self.head = "\n\n".join(
            "".join(cell["source"]) for cell in first_screen
        )
        self.cells = {cell["id"]: cell for cell in notebook["cells"]}

    def cell(self, name: str) -> dict:
        """A cell of the page; ValueError where there is none

        Args:
            name: its id
        """
        if name not in self.cells:
            raise ValueError(f"{self.name.name} has no cell {name}")
        return self.cells[name]

    def code(self, name: str, first: str = "", last: str = "") -> str:
        """Lines of a cell, from the one that begins with `first` to the one that begins with `last`.

        Args:
            name: id of the cell
            first: beginning of the first line; that of the cell where it is empty
            last: beginning of the last line; the end of the cell where it is empty
        """
        source = "".join(self.cell(name)["source"])
        # directives of nbdev are none of the method
        lines = re.sub(r"(?m)^#\|.*\n?", "", source).splitlines()
        begin = _place(lines, first, 0)
        end = len(lines)
        if begin is not None and last:
            end = _place(lines, last, begin)
        if begin is None or end is None:
            lost = f"no lines from '{first}' to '{last}'"
            raise ValueError(f"cell {name} of {self.name.name} has {lost}")
        chosen = dedent("\n".join(lines[begin : end + 1])).strip("\n")
        # a slide has no room for two empty lines
        return re.sub(r"\n{3,}", "\n\n", chosen)

    def data(self, name: str, kind: str) -> dict:
        """An output of a cell, as kind -> content

        Args:
            name: id of the cell, and behind a blank the number of the output, by default 1
            kind: MIME type, as 'image/png'

        Raises ValueError where the cell shows no such thing.
        """
        cell, _, number = name.partition(" ")
        outputs = [
            output
            for output in self.cell(cell).get("outputs", ())
            if kind in output.get("data", ())
        ]
        place = int(number or 1) - 1
        if place >= len(outputs):
            raise ValueError(
                f"cell {cell} of {self.name.name} shows no {kind}, number {place + 1}"
            )
        return {kind: "".join(outputs[place]["data"][kind])}

    def picture(self, name: str) -> dict:
        """A picture, as kind -> content

        Args:
            name: as of `data`, or a file in figures/
        """
        if not name.endswith(".svg"):
            return self.data(name, "image/png")
        file = share_dir("figures") / name
        return {"image/svg+xml": file.read_text(encoding="utf-8")}

    def caption(self, name: str) -> str:
        """What the page says below a picture, '' where it says nothing

        Args:
            name: as of `data`
        """
        cell, _, number = name.partition(" ")
        outputs = self.cells.get(cell, {}).get("outputs", ())
        captions = [
            "".join(output["data"]["text/markdown"]).strip("*\n")
            for output in outputs
            if "text/markdown" in output.get("data", ())
        ]
        place = int(number or 1) - 1
        return captions[place] if place < len(captions) else ""

    def printed(self, name: str) -> str:
        """What a cell prints; ValueError where it prints nothing

        Args:
            name: id of the cell
        """
        outputs = self.cell(name).get("outputs", ())
        # without what is said of progress
        printed = [o for o in outputs if o.get("name") == "stdout"]
        text = "".join("".join(o["text"]) for o in printed)
        if not text:
            raise ValueError(f"cell {name} of {self.name.name} prints nothing")
        return text.strip("\n")

    @property
    def question(self) -> str:
        "The question below the title"
        return self.head.split("\n\n")[1].removeprefix("> ")

    def written_table(self, name: str) -> str:
        """The table that a cell has in Markdown, '' where it has none

        Args:
            name: id of the cell; 'first' is that of the first screen
        """
        source = self.cell(name)["source"] if name != "first" else self.head
        parts = "".join(source).split("\n\n")
        return next((part for part in parts if part.startswith("| ")), "")


def few_rows(table: str, beginnings: list[str]) -> str:
    """A table of pandas without the numbers of its lines, of its lines those that somebody looks at, and no empty column

    Args:
        table: HTML, as pandas writes it
        beginnings: of the first words of a line; all lines where there are none

    Raises ValueError for a beginning that no line has.
    """
    root = ElementTree.fromstring(table)
    body = root.find("tbody")
    lines = list(body)
    indices = [line.findtext("th") for line in lines]
    if indices == [str(number) for number in range(len(lines))]:
        for line in root.iter("tr"):
            line.remove(line.find("th"))
    found = set()
    for line in lines:
        words = "".join(line[0].itertext())
        begins = [start for start in beginnings if words.startswith(start)]
        found.update(begins)
        if beginnings and not begins:
            body.remove(line)
    if lost := [start for start in beginnings if start not in found]:
        raise ValueError(f"the table has no row that begins with {lost[0]!r}")
    for column in reversed(list(zip(*root.iter("tr")))):
        if not any("".join(cell.itertext()) for cell in column[1:]):
            for line, cell in zip(root.iter("tr"), column):
                line.remove(cell)
    return ElementTree.tostring(root, encoding="unicode", method="html")


class Verdict(NamedTuple):
    "A claim of the paper and, in a line, what came out"

    says: str
    outcome: str


def _estimate(row: pd.Series) -> str:
    "Estimate and interval of a line of a board"
    high = f"to {row.high}" if row.high != "inf" else "or more"
    words = row.value
    if row.low != row.high:
        words += f" ({row.low} {high})"
    words = words.replace("-", "\N{MINUS SIGN}")
    return f"{words}, {row.readings} readings" if row.readings else words


def _of(row: tuple) -> str:
    "The model of a line of a board, and whether new data failed to repeat the verdict"
    words = label(row.model) if row.model else ""
    if row.confirmed != "not confirmed":
        return words
    return f"{words} (not confirmed)" if words else row.confirmed


def verdicts(word: str, claims: list[str]) -> list[Verdict]:
    """Claims with their verdicts, as the board of the paper says them

    Of a claim with one line on the board stand its estimate and interval, else the models of each verdict. What was not confirmed says so.

    Args:
        word: of the paper, as 'tabular'
        claims: ids, in the order in which they are shown

    Raises ValueError for a claim that the board does not have.
    """
    board = pd.read_csv(
        paper_file(word, "board.csv"), keep_default_na=False, dtype=str
    )
    rules = yaml.safe_load(paper_file(word, "claims.yaml").read_text("utf-8"))
    says = {rule["id"]: rule["says"] for rule in rules["claims"]}
    lines = []
    for claim in claims:
        rows = board[board.id == claim]
        if rows.empty:
            raise ValueError(f"the board of {word} has no claim {claim}")
        outcomes = []
        # what is decided first
        for verdict in sorted({*rows.verdict}, key=[*MARKS].index):
            same = rows[rows.verdict == verdict]
            about = [words for row in same.itertuples() if (words := _of(row))]
            if len(rows) == 1:
                about.append(_estimate(same.iloc[0]))
            outcomes.append(f"**{verdict}**: {'; '.join(about)}")
        lines.append(Verdict(says[claim], "; ".join(outcomes)))
    return lines


def _board(word: str, claims: list[str]) -> str:
    "A board as a table in Markdown"
    lines = [
        f"| {says} | {outcome} |" for says, outcome in verdicts(word, claims)
    ]
    return "\n".join(["| claim | verdict |", "|---|---|", *lines])


def authors(word: str) -> str:
    """Authors, year and address of a paper

    Args:
        word: of the paper, as 'tabular'
    """
    about = yaml.safe_load(paper_file(word, "paper.yaml").read_text("utf-8"))
    names = ", ".join(about["authors"])
    address = f", arXiv:{about['arxiv']}" if "arxiv" in about else ""
    return f"{names} ({about['year']}){address}"


# ---- slides


class More(NamedTuple):
    "What the first and the last slide have beside the words of `talk.yaml`"

    above: str = ""  # below the heading, in Markdown
    below: str = ""
    spoken: list[str] = []  # paragraphs of the notes


def _shown(page: Page, part: Part) -> "NotebookNode | None":
    "The cell of a slide that is looked at, None where there is only text"
    from nbformat import v4

    outputs = []
    if part.picture:
        # for those who do not see it
        caption = page.caption(part.picture) or part.heading
        data = page.picture(part.picture)
        spoken = {kind: dict(alt=caption) for kind in data}
        outputs.append(v4.new_output("display_data", data, metadata=spoken))
    if part.table and not page.written_table(part.table):
        ((kind, table),) = page.data(part.table, "text/html").items()
        data = {kind: few_rows(table, part.rows)}
        outputs.append(v4.new_output("display_data", data))
    if part.printed:
        outputs.append(v4.new_output("stream", text=page.printed(part.printed)))
    if not part.code and not outputs:
        return None
    source = page.code(*part.code) if part.code else ""
    tags = [] if source else ["no-input"]
    return v4.new_code_cell(source, outputs=outputs, metadata=dict(tags=tags))


def _tables(page: Page, part: Part) -> list[str]:
    "Tables of a slide that are Markdown"
    tables = []
    if part.table and (table := page.written_table(part.table)):
        tables.append(table)
    if part.board:
        tables.append(_board(page.word, part.board))
    return tables


def _cells(page: Page, part: Part, more: More) -> list["NotebookNode"]:
    "The cells of one slide"
    from nbformat import v4

    top = v4.new_markdown_cell(f"## {part.heading}\n\n{more.above}")
    top.metadata["slideshow"] = dict(slide_type="slide")
    body = [v4.new_markdown_cell(table) for table in _tables(page, part)]
    if shown := _shown(page, part):
        body.append(shown)
    if part.lines:
        lines = "\n".join(f"- {line}" for line in part.lines)
        body.append(v4.new_markdown_cell(f"{lines}\n\n{more.below}"))
    caption = page.caption(part.picture)
    spoken = [part.notes, *more.spoken]
    if caption:
        spoken.append(f"*The figure.* {caption}")
    notes = v4.new_markdown_cell("\n\n".join(spoken))
    notes.metadata["slideshow"] = dict(slide_type="notes")
    return [top, *body, notes]


def slides_notebook(word: str) -> "NotebookNode":
    """The notebook whose cells are the slides of a talk, as Jupyter marks slides and notes

    Args:
        word: of the paper, as 'tabular'
    """
    from nbformat import v4

    page = Page(word)
    given = talk(word)
    numbered = [*enumerate(given.questions, 1)]
    asked = "\n".join(f"{i}. {one.question}" for i, one in numbered)
    answers = [f"**{i}.** {one.answer}" for i, one in numbered]
    more = {
        0: More(above=f"> {page.question}", below=authors(word)),
        len(given.slides) - 1: More(above=asked, spoken=answers),
    }
    cells = []
    for place, part in enumerate(given.slides):
        cells += _cells(page, part, more.get(place, More()))
    # the same talk is the same file
    for place, cell in enumerate(cells):
        cell["id"] = f"cell{place}"
    return v4.new_notebook(cells=cells, metadata=dict(title=title(word)))


def _reveal() -> dict:
    "Scripts and styles of reveal.js, as a package brings them"
    require("sphinx_revealjs", "slides")
    package = find_spec("sphinx_revealjs").submodule_search_locations[0]
    folder = Path(package) / "_static/revealjs"
    files = dict(
        css="dist/reveal.css",
        theme="dist/theme/white.css",
        js="dist/reveal.js",
        notes="plugin/notes/notes.js",
    )
    texts = {
        name: (folder / file).read_text(encoding="utf-8")
        for name, file in files.items()
    }
    # fonts and maps lie in other files, which nobody has who is sent the talk
    texts["theme"] = re.sub(r"@import [^;]*;", "", texts["theme"])
    texts["js"] = re.sub(r"(?m)^//# sourceMappingURL=.*$", "", texts["js"])
    return texts


def slides_html(word: str) -> str:
    """A talk as one file of HTML, which asks nothing of a network

    Args:
        word: of the paper, as 'tabular'
    """
    require("nbconvert", "slides")
    require("mistune", "report")
    from nbconvert import SlidesExporter
    from traitlets.config import Config

    settings = Config()
    settings.TagRemovePreprocessor.enabled = True
    settings.TagRemovePreprocessor.remove_input_tags = {"no-input"}
    settings.CSSHTMLHeaderPreprocessor.style = "friendly"
    exporter = SlidesExporter(
        config=settings,
        template_file=str(package_dir() / "templates" / "slides.html"),
        # formulas as MathML, where the exporter would fetch MathJax
        filters=dict(markdown2html=markdown_html),
        exclude_input_prompt=True,
        exclude_output_prompt=True,
    )
    memnb = dict(_reveal(), width=WIDTH, height=HEIGHT, version=version())
    html, _ = exporter.from_notebook_node(
        slides_notebook(word), resources=dict(memnb=memnb)
    )
    return html


# ---- handout


def _as_url(data: dict) -> str:
    "A picture as the address of an image"
    ((kind, content),) = data.items()
    if kind == "image/svg+xml":
        content = base64.b64encode(content.encode()).decode()
    return f"data:{kind};base64,{''.join(content.split())}"


def handout_html(word: str) -> str:
    """A page of A4 for those who listen: question, table, one picture, verdicts, and what to ask

    Args:
        word: of the paper, as 'tabular'
    """
    require("mistune", "report")
    page = Page(word)
    given = talk(word)
    return (
        templates()
        .get_template("handout.html")
        .render(
            title=title(word),
            authors=authors(word),
            question=page.question,
            table=page.written_table("first"),
            picture=_as_url(page.picture(given.picture)),
            caption=page.caption(given.picture),
            verdicts=verdicts(word, given.verdicts),
            questions=[one.question for one in given.questions],
        )
    )


class Written(NamedTuple):
    "Files of a talk"

    slides: Path
    handout: Path


def slides(word: str, folder: Path) -> Written:
    "Write slides and handout of a paper into a folder; a file that memnb did not write is not written over"
    files = Written(folder / f"{word}.html", folder / f"{word}-handout.html")
    for file in files:
        may_write(file, is_page)
    for file, html in zip(files, (slides_html(word), handout_html(word))):
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file) as part:
            part.write_text(html, encoding="utf-8")
    return files
