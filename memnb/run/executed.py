"""Executed notebooks as plain data: cells with their outputs, how each run ended, and where it comes from."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from html import escape, unescape
from html.parser import HTMLParser
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from ..claims import BOARD_MIME
from ..core import printable
from ..papers import notebooks, parameters_of
from ..rendering import templates
from .redact import redact_notebook, redactor
from .terminal import duration, first_line, last_events


def cleaner():
    "A `redactor` that also drops what a terminal acts on and a page cannot show"
    redacted = redactor()

    def clean(text: str):
        return redacted(printable(text))

    return clean


# a page with more rows of one table than this is read by nobody, and slows every browser
MOST_ROWS = 1000
_SPAN = re.compile(r"\d{1,3}")
_NUMBER = re.compile(r"\s*[-+−]?[\d.,]+\s*%?|NaN")


class _Cell(NamedTuple):
    "A cell of a table in HTML"

    tag: str  # 'td' or 'th'
    spans: list  # (attribute, number) of those that say over how much it goes
    words: list

    @property
    def text(self) -> str:
        return "".join(self.words)


class _Row(NamedTuple):
    "A row of a table in HTML"

    is_head: bool
    cells: list


class _Tables(HTMLParser):
    "Reads the tables of HTML in one pass, whatever its length: the words of their cells, and nothing that acts"

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.tables = []  # of each its rows
        self.depth = 0  # of tables within tables
        self.cell = None  # that is open
        self.is_head = False

    def handle_starttag(self, tag: str, attributes: list):
        if tag == "table":
            self.depth += 1
            if self.depth == 1:
                self.tables.append([])
                self.is_head = False
        if not self.depth:
            return
        if tag in ("thead", "tbody", "tfoot"):
            self.close_cell()
            self.is_head = tag == "thead"
        elif tag == "tr":
            self.begin_row()
        elif tag in ("td", "th"):
            self.close_cell()
            if not self.tables[-1]:
                self.begin_row()
            self.cell = _Cell(tag, self.spans(attributes), [])

    def handle_endtag(self, tag: str):
        if tag == "table" and self.depth:
            self.depth -= 1
        if tag in ("td", "th", "tr", "table", "thead"):
            self.close_cell()
        if tag == "thead":
            self.is_head = False

    def handle_data(self, text: str):
        if self.cell and self.cdata_elem is None:  # not of a script or a style
            self.cell.words.append(text)

    def close(self):
        super().close()
        self.close_cell()

    def begin_row(self):
        self.close_cell()
        self.tables[-1].append(_Row(self.is_head, []))

    def close_cell(self):
        if self.cell:
            self.tables[-1][-1].cells.append(self.cell)
        self.cell = None

    def spans(self, attributes: list):
        "What is kept of the attributes of a cell"
        return [
            (name, value)
            for name, value in attributes
            if name in ("rowspan", "colspan") and _SPAN.fullmatch(value or "")
        ]


def _read_tables(html: str) -> list:
    "The tables of HTML, each a list of `_Row`"
    reader = _Tables()
    reader.feed(html)
    reader.close()
    return reader.tables


def _cell_html(cell: dict):
    attributes = [*cell.spans]
    if cell.tag == "td" and _NUMBER.fullmatch(cell.text):
        attributes.append(("class", "n"))
    written = "".join(f' {name}="{value}"' for name, value in attributes)
    return f"<{cell.tag}{written}>{escape(cell.text)}</{cell.tag}>"


def _table_html(rows: list):
    "A table as HTML, its first rows where it has many"
    lines = ['<table class="sort">']
    sections = groupby(rows[:MOST_ROWS], key=lambda row: row.is_head)
    for is_head, of_section in sections:
        section = "thead" if is_head else "tbody"
        lines.append(f"<{section}>")
        for row in of_section:
            cells = "".join(map(_cell_html, row.cells))
            lines.append(f"<tr>{cells}</tr>")
        lines.append(f"</{section}>")
    if len(rows) > MOST_ROWS:
        left_out = f"… {len(rows) - MOST_ROWS:,} more rows"
        lines.append(f"<tfoot><tr><td>{left_out}</td></tr></tfoot>")
    return "\n".join([*lines, "</table>"])


@lru_cache(2**12)
def tables(html: str) -> tuple:
    """Tables of an output, each as HTML: their cells and words, and nothing that acts

    Args:
        html: of the output, whoever wrote it
    """
    from markupsafe import Markup

    # a last tag that does not end would be looked at from each of its characters
    unfinished = html.find("<", html.rfind(">") + 1)
    whole = _read_tables(html if unfinished < 0 else html[:unfinished])
    return tuple(Markup(_table_html(rows)) for rows in whole if rows)


@dataclass
class Output:
    "An output of a cell"

    # 'text', 'markdown', 'table', 'board', 'picture' or 'error'
    kind: str
    # str, HTML, PNG in base64, list of dicts, (first line, traceback) of an error
    value: object
    # what it shows, for who cannot see it
    about: str = ""
    # width and height of a picture, points of the page
    size: dict = field(default_factory=dict)
    # of a picture, Markdown
    caption: str = ""

    @cached_property
    def html(self):
        return templates().get_template("parts.html").module.output(self)


def _best_form(data: dict, meta: dict):
    "The best of the forms in which a notebook holds one output: list of `Output`, several where it has several tables"
    if BOARD_MIME in data:
        rows = []
        for claim in data[BOARD_MIME]["claims"]:
            row = {name: str(value or "") for name, value in claim.items()}
            rows.append(row)
        return [Output("board", rows)]
    png = "".join(data.get("image/png", "").split())
    # what is no picture could be anything
    if re.fullmatch("[A-Za-z0-9+/]+=*", png):
        meta = meta.get("image/png", meta)
        sides = {side: meta.get(side) for side in ("width", "height")}
        size = {k: n for k, n in sides.items() if isinstance(n, int)}
        return [Output("picture", png, meta.get("alt") or "", size)]
    if of_html := tables(data.get("text/html", "")):
        return [Output("table", html) for html in of_html]
    for form, kind in (("text/markdown", "markdown"), ("text/plain", "text")):
        if form in data:
            return [Output(kind, data[form])]
    return []


def caption_of(markdown: str) -> str:
    """A caption, the output below a picture, without the asterisks that set all of it in italics

    Args:
        markdown: of that output
    """
    return re.sub(r"(?s)\A\*(?!\*)(.*)(?<!\*)\*\Z", r"\1", markdown.strip())


def _outputs_of_one(output: dict):
    "List of `Output` of one output as a notebook holds it"
    if "data" in output:
        return _best_form(output["data"], output.get("metadata", {}))
    if output["output_type"] == "stream":
        return [Output("text", output["text"])]
    message = f"{output['ename']}: {output['evalue']}"
    head, *_ = message.partition("\n")
    traceback = "\n".join(output["traceback"])
    return [Output("error", (head, traceback))]


def outputs_of(cell: dict) -> list:
    """List of `Output` of a cell; a caption goes to its picture

    Args:
        cell: of a notebook that was executed
    """
    outputs = []
    for output in cell.get("outputs", []):
        new = _outputs_of_one(output)
        is_caption = [one.kind for one in new] == ["markdown"]
        last = outputs[-1] if outputs else None
        if is_caption and last and last.kind == "picture" and not last.caption:
            last.caption = caption_of(new[0].value)
        else:
            outputs += new
    return outputs


def _cells(cells: list):
    """Cells of a notebook, each with `section` and `heading`, those of level 2 and of any level above it, and `shown`, its
    outputs; `folded` is code that only its author needs. Papermill's own error notes are left out."""
    section = heading = ""
    for cell in cells:
        if "papermill-error-cell-tag" in cell.metadata.get("tags", []):
            continue
        if cell.cell_type != "code":
            headings = re.findall(r"^(#{1,6}) +(.+?)\s*$", cell.source, re.M)
            for level, heading in headings:
                if len(level) < 3:
                    section = heading
        cell.section = section
        cell.heading = heading
        cell.shown = outputs_of(cell)
        for output in cell.shown:
            output.about = output.about or heading or "output"
        jupyter = cell.metadata.get("jupyter", {})
        is_hidden = re.match(r"#\|\s*hide\b", cell.source)
        cell.folded = bool(jupyter.get("source_hidden") or is_hidden)
        yield cell


def _paper_of(cells: list, input_path: str):
    "Word of the paper of a notebook, by what its code says or its name was; ValueError for a notebook of others"
    code = "\n".join(cell.source for cell in cells)
    exported = re.search(r"(?m)^#\| *default_exp (\w+)", code)
    named = re.fullmatch(r"\d\d_(\w+)\.ipynb", str(input_path))
    word = exported or named
    if not word or not cells:
        raise ValueError("no notebook of memnb")
    return word[1]


def _parameters_of(cells: list, given: dict):
    "Values of the parameters of a run: those that were given, else as the page has them; those of `sizes` beside them"
    tagged = (
        cell.source
        for cell in cells
        if "parameters" in cell.metadata.get("tags", [])
    )
    defaults = parameters_of(next(tagged, ""), "")
    values = {name: one.default for name, one in defaults.items()} | given
    return values | values.pop("sizes", {})


class Notebook:
    """An executed notebook: its cells, as `_cells` gives them, and where it comes from

    Args:
        path: file
        profile: of a notebook that names none
        clean: a `cleaner`

    Raises any error for what is no run of memnb.
    """

    def __init__(self, path: Path, profile: str, clean: Callable):
        from nbformat import v4

        raw = redact_notebook(v4.reads(path.read_text(encoding="utf-8")), clean)
        ours = raw.metadata.get("memnb", {})
        papermill = raw.metadata.get("papermill", {})
        self.cells = list(_cells(raw.cells))
        self.paper = _paper_of(self.cells, papermill.get("input_path"))
        given = papermill.get("parameters", {})
        self.params = _parameters_of(self.cells, given)
        self.profile = str(self.params.pop("profile", "") or profile)
        self.model = str(self.params.get("model", ""))
        self.name = clean(path.stem.removesuffix(".partial"))
        is_partial = path.stem.endswith(".partial")
        self.state = "unfinished" if is_partial else "done"
        key = f"{self.profile}-{self.name}{'-unfinished' if is_partial else ''}"
        self.key = re.sub(r"[^\w.,=+-]", "_", key)
        headings = (cell.heading for cell in self.cells if cell.heading)
        self.title = next(headings, self.paper)
        self.seconds = ours.get("seconds", papermill.get("duration"))
        if self.seconds is None:
            self.time = "unknown"
        else:
            self.time = duration(self.seconds)
        facts = {
            "duration": self.time,
            "machine": ours.get("machine") or "unknown",
            "finished": str(papermill.get("end_time") or "")[:10],
            "memnb": ours.get("version"),
            **ours.get("versions", {}),
            "papermill": papermill.get("version"),
            "identity": ours.get("identity", "")[:12],
        }
        self.facts = {name: str(fact) for name, fact in facts.items() if fact}

    def outputs(self, *kinds):
        "(cell, `Output`) of these kinds, in their order"
        return [
            (cell, output)
            for cell in self.cells
            for output in cell.shown
            if output.kind in kinds
        ]


def run_files(runs: Path, name: str) -> list:
    """Files of runs, with their profiles

    Args:
        runs: folder, which has a folder for each profile
        name: of the files, as '*.ipynb'

    Returns:
        (file, profile) of each, '' for a file of no profile
    """
    of_profiles = [
        (file, file.parent.name) for file in runs.glob(f"[!.]*/{name}")
    ]
    return sorted([*((file, "") for file in runs.glob(name)), *of_profiles])


def _unfinished(runs: list, nbs: Any, clean: Callable):
    "Last events of runs that did not finish, and of notebooks of whose end no log tells: dicts"
    done = {(nb.profile, nb.name) for nb in nbs if nb.state == "done"}
    lost = []
    for log, profile in run_files(runs, "batch.jsonl"):
        for event in redact_notebook(last_events(log.parent), clean).values():
            event = dict(profile=clean(profile)) | event
            # a failure is told also of a run that was done again; its other events are late
            kind = event.get("what")
            has_ended = kind in ("failed", "stopped")
            is_done = (event["profile"], event["run"]) in done
            if kind != "done" and (has_ended or not is_done):
                lost.append(event)
    logged = {(event["profile"], event["run"]) for event in lost}
    for nb in nbs:
        if nb.state == "done" or (nb.profile, nb.name) in logged:
            continue
        lost.append(dict(profile=nb.profile, run=nb.name, what="unfinished"))
    return lost


def read_notebooks(runs: Path) -> tuple:
    """Read all runs of a folder

    Args:
        runs: folder

    Returns:
        (`Notebook`s, of papers in the order of their pages, then by profile and run;
        for each file that could not be read its name and why;
        last events of what did not finish)
    """
    nbs = []
    odd = []
    clean = cleaner()
    for path, profile in run_files(runs, "*.ipynb"):
        try:
            nbs.append(Notebook(path, clean(profile), clean))
        except Exception as error:  # torn, or anything else: the others are reported all the same
            odd.append((clean(path.name), first_line(error)))
    lost = _unfinished(runs, nbs, clean)
    places = {word: place for place, word in enumerate(notebooks())}
    # papers that memnb does not know stand behind
    last = len(places)

    def place(nb: dict):
        rank = places.get(nb.paper, last)
        return rank, nb.paper, nb.profile, nb.name, nb.state

    return sorted(nbs, key=place), odd, lost


def words_of_page(page: Path, columns: int = 3) -> tuple:
    """The first sentence of a page of memnb, and its tables but for those of single texts

    Args:
        page: file
        columns: of a table, the first ones

    Returns:
        (sentence, tables: lists of tuples, the head first)
    """
    html = page.read_text(encoding="utf-8")
    lead = re.search(r'(?s)<p class="lead">(.*?)</p>', html)
    sentence = unescape(re.sub("<[^>]+>", "", lead[1])) if lead else ""
    wanted = []
    for rows in _read_tables(html):
        words = [
            tuple(cell.text for cell in row.cells[:columns]) for row in rows
        ]
        if len(words) > 1 and words[0][0] not in ("place", "in the file"):
            wanted.append(words)
    return " ".join(sentence.split()), wanted
