"""Executed notebooks as plain data: cells with their outputs, how each run ended, and where it comes from."""

import re
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path

from ..claims import BOARD_MIME
from ..core import printable
from ..papers import notebooks, parameters_of
from ..rendering import templates
from .redact import redact_notebook, redactor
from .terminal import duration, first_line, last_events


def cleaner():
    "A `redactor` that also drops what a terminal acts on and a page cannot show"
    clean = redactor()
    return lambda text: clean(printable(text))


# a page with more rows of one table than this is read by nobody, and slows every browser
MOST_ROWS = 1000
_SPAN = re.compile(r"\d{1,3}")
_NUMBER = re.compile(r"\s*[-+−]?[\d.,]+\s*%?|NaN")


class _Tables(HTMLParser):
    "Reads the tables of HTML in one pass, whatever its length: the words of their cells, and nothing that acts"

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.found = []  # of each table its rows, a list of cells each, those of its head marked
        self.depth = 0  # of tables within tables
        self.cell = None  # tag, attributes and words of the cell that is open
        self.is_head = False

    def handle_starttag(self, tag, attributes):
        if tag == "table":
            self.depth += 1
            if self.depth == 1:
                self.found.append([])
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
            if not self.found[-1]:
                self.begin_row()
            self.cell = (tag, self.spans(attributes), [])

    def handle_endtag(self, tag):
        if tag == "table" and self.depth:
            self.depth -= 1
        if tag in ("td", "th", "tr", "table", "thead"):
            self.close_cell()
        if tag == "thead":
            self.is_head = False

    def handle_data(self, text):
        if self.cell and self.cdata_elem is None:  # not of a script or a style
            self.cell[2].append(text)

    def close(self):
        super().close()
        self.close_cell()

    def begin_row(self):
        self.close_cell()
        self.found[-1].append((self.is_head, []))

    def close_cell(self):
        if self.cell:
            self.found[-1][-1][1].append(self.cell)
        self.cell = None

    def spans(self, attributes):
        "What is kept of the attributes of a cell"
        return [
            (name, value)
            for name, value in attributes
            if name in ("rowspan", "colspan") and _SPAN.fullmatch(value or "")
        ]


def _cell_html(cell):
    tag, spans, words = cell
    text = "".join(words)
    if tag == "td" and _NUMBER.fullmatch(text):
        spans = [*spans, ("class", "n")]
    attributes = "".join(f' {name}="{value}"' for name, value in spans)
    return f"<{tag}{attributes}>{escape(text)}</{tag}>"


def _table_html(rows):
    "A table as HTML, its first rows where it has many"
    lines, section = [], None
    for is_head, cells in rows[:MOST_ROWS]:
        wanted = "thead" if is_head else "tbody"
        if section != wanted:
            lines += [f"</{section}>"] if section else []
            lines.append(f"<{wanted}>")
            section = wanted
        lines.append(f"<tr>{''.join(map(_cell_html, cells))}</tr>")
    lines += [f"</{section}>"] if section else []
    if len(rows) > MOST_ROWS:
        lines.append(
            f"<tfoot><tr><td>… {len(rows) - MOST_ROWS:,} more rows</td></tr></tfoot>"
        )
    return "\n".join(['<table class="sort">', *lines, "</table>"])


@lru_cache(2**12)
def tables(html: str) -> tuple:
    "Tables of an output, each as HTML: their cells and words, and nothing that acts"
    from markupsafe import Markup

    # a last tag that does not end would be looked at from each of its characters
    unfinished = html.find("<", html.rfind(">") + 1)
    reader = _Tables()
    reader.feed(html if unfinished < 0 else html[:unfinished])
    reader.close()
    return tuple(Markup(_table_html(rows)) for rows in reader.found if rows)


@dataclass
class Output:
    "An output of a cell"

    kind: str  # 'text', 'markdown', 'table', 'board', 'picture' or 'error'
    value: object  # str, HTML, PNG in base64, list of dicts, (first line, traceback) of an error
    about: str = ""  # what it shows, for who cannot see it
    size: dict = field(
        default_factory=dict
    )  # width and height of a picture, points of the page
    caption: str = ""  # of a picture, Markdown

    @cached_property
    def html(self):
        return templates().get_template("parts.html").module.output(self)


def _best_form(data, meta):
    "The best of the forms in which a notebook holds one output: list of `Output`, several where it has several tables"
    if BOARD_MIME in data:
        claims = data[BOARD_MIME]["claims"]
        rows = [
            {name: str(value or "") for name, value in claim.items()}
            for claim in claims
        ]
        return [Output("board", rows)]
    png = "".join(data.get("image/png", "").split())
    if re.fullmatch(
        "[A-Za-z0-9+/]+=*", png
    ):  # what is no picture could be anything
        meta = meta.get("image/png", meta)
        size = {
            side: meta[side]
            for side in ("width", "height")
            if isinstance(meta.get(side), int)
        }
        return [Output("picture", png, meta.get("alt") or "", size)]
    if found := tables(data.get("text/html", "")):
        return [Output("table", html) for html in found]
    for form, kind in (("text/markdown", "markdown"), ("text/plain", "text")):
        if form in data:
            return [Output(kind, data[form])]
    return []


def caption_of(markdown: str) -> str:
    "A caption, the output below a picture, without the asterisks that set all of it in italics"
    return re.sub(r"(?s)\A\*(?!\*)(.*)(?<!\*)\*\Z", r"\1", markdown.strip())


def _outputs_of_one(output):
    "List of `Output` of one output as a notebook holds it"
    if "data" in output:
        return _best_form(output["data"], output.get("metadata", {}))
    if output["output_type"] == "stream":
        return [Output("text", output["text"])]
    first_line = f"{output['ename']}: {output['evalue']}".partition("\n")[0]
    return [Output("error", (first_line, "\n".join(output["traceback"])))]


def outputs_of(cell: dict) -> list:
    "List of `Output` of a cell; a caption goes to its picture"
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


def _cells(cells):
    """Cells of a notebook, each with `section` and `heading`, those of level 2 and of any level above it, and `shown`, its
    outputs; `folded` is code that only its author needs. Papermill's own error notes are left out."""
    section = heading = ""
    for cell in cells:
        if "papermill-error-cell-tag" in cell.metadata.get("tags", []):
            continue
        if cell.cell_type != "code":
            for level, text in re.findall(
                r"^(#{1,6}) +(.+?)\s*$", cell.source, re.M
            ):
                heading = text
                section = text if len(level) < 3 else section
        cell.section = section
        cell.heading = heading
        cell.shown = outputs_of(cell)
        for output in cell.shown:
            output.about = output.about or heading or "output"
        hidden = cell.metadata.get("jupyter", {}).get("source_hidden")
        cell.folded = bool(hidden or re.match(r"#\|\s*hide\b", cell.source))
        yield cell


def _paper_of(cells, input_path):
    "Word of the paper of a notebook, by what its code says or its name was; ValueError for a notebook of others"
    code = "\n".join(cell.source for cell in cells)
    found = re.search(r"(?m)^#\| *default_exp (\w+)", code)
    found = found or re.fullmatch(r"\d\d_(\w+)\.ipynb", str(input_path))
    if not found or not cells:
        raise ValueError("no notebook of memnb")
    return found[1]


def _parameters_of(cells, given):
    "Values of the parameters of a run: those that were given, else as the page has them; those of `sizes` beside them"
    tagged = (
        cell.source
        for cell in cells
        if "parameters" in cell.metadata.get("tags", [])
    )
    values = {
        name: one.default
        for name, one in parameters_of(next(tagged, ""), "").items()
    }
    values |= given
    return values | values.pop("sizes", {})


class Notebook:
    "An executed notebook: its cells, as `_cells` gives them, and where it comes from"

    def __init__(self, path: Path, profile: str, clean):
        "`profile` is that of a notebook that names none, `clean` a `cleaner`; any error for what is no run of memnb"
        from nbformat import v4

        raw = redact_notebook(v4.reads(path.read_text(encoding="utf-8")), clean)
        own, papermill = (
            raw.metadata.get("memnb", {}),
            raw.metadata.get("papermill", {}),
        )
        self.cells = list(_cells(raw.cells))
        self.paper = _paper_of(self.cells, papermill.get("input_path"))
        self.params = _parameters_of(
            self.cells, papermill.get("parameters", {})
        )
        self.profile = str(self.params.pop("profile", "") or profile)
        self.model = str(self.params.get("model", ""))
        self.name = clean(path.stem.removesuffix(".partial"))
        is_partial = path.stem.endswith(".partial")
        self.state = "unfinished" if is_partial else "done"
        key = f"{self.profile}-{self.name}{'-unfinished' if is_partial else ''}"
        self.key = re.sub(r"[^\w.,=+-]", "_", key)
        headings = (cell.heading for cell in self.cells if cell.heading)
        self.title = next(headings, self.paper)
        self.seconds = own.get("seconds", papermill.get("duration"))
        self.time = (
            "unknown" if self.seconds is None else duration(self.seconds)
        )
        facts = dict(
            duration=self.time,
            machine=own.get("machine") or "unknown",
            finished=str(papermill.get("end_time") or "")[:10],
            memnb=own.get("version"),
        )
        facts |= own.get("versions", {})
        facts |= dict(
            papermill=papermill.get("version"),
            identity=own.get("identity", "")[:12],
        )
        self.facts = {
            name: str(value) for name, value in facts.items() if value
        }

    def outputs(self, *kinds):
        "(cell, `Output`) of these kinds, in their order"
        pairs = ((cell, output) for cell in self.cells for output in cell.shown)
        return [
            (cell, output) for cell, output in pairs if output.kind in kinds
        ]


def run_files(runs: Path, name: str) -> list:
    "(file, its profile) of files, as '*.ipynb', in a folder and in the folders of the profiles"
    files = sorted([*runs.glob(name), *runs.glob(f"[!.]*/{name}")])
    return [
        (file, file.parent.name if file.parent != runs else "")
        for file in files
    ]


def _unfinished(runs, nbs, clean):
    "Last events of runs that did not finish, and of notebooks of whose end no log tells: dicts"
    done = {(nb.profile, nb.name) for nb in nbs if nb.state == "done"}
    lost = []
    for log, profile in run_files(runs, "batch.jsonl"):
        for event in redact_notebook(last_events(log.parent), clean).values():
            event = dict(profile=clean(profile)) | event
            # a failure is told also of a run that was done again; its other events are late
            has_ended = event.get("what") in ("failed", "stopped")
            is_done = (event["profile"], event["run"]) in done
            if event.get("what") != "done" and (has_ended or not is_done):
                lost.append(event)
    told = {(event["profile"], event["run"]) for event in lost}
    for nb in nbs:
        if nb.state != "done" and (nb.profile, nb.name) not in told:
            lost.append(
                dict(profile=nb.profile, run=nb.name, what="unfinished")
            )
    return lost


def read_notebooks(runs: Path) -> tuple:
    """Read all runs of a folder: `Notebook`s, (file name, why it could not be read), last events of what did not finish.

    Papers stand in the order of the notebooks, then profile and run.
    """
    nbs, odd, clean = [], [], cleaner()
    for path, profile in run_files(runs, "*.ipynb"):
        try:
            nbs.append(Notebook(path, clean(profile), clean))
        except Exception as error:  # torn, or anything else: the others are reported all the same
            odd.append((clean(path.name), first_line(error)))
    lost = _unfinished(runs, nbs, clean)
    places = {word: place for place, word in enumerate(notebooks())}
    # papers that memnb does not know stand behind
    nbs.sort(
        key=lambda nb: (
            places.get(nb.paper, 99),
            nb.paper,
            nb.profile,
            nb.name,
            nb.state,
        ),
    )
    return nbs, odd, lost


def words_of_page(page: Path, columns: int = 3) -> tuple:
    "The first sentence of a page of memnb, and its tables but for those of single texts: lists of tuples, the head first"
    html = page.read_text(encoding="utf-8")
    lead = re.search(r'(?s)<p class="lead">(.*?)</p>', html)
    sentence = unescape(re.sub("<[^>]+>", "", lead[1])) if lead else ""
    reader = _Tables()
    reader.feed(html)
    reader.close()
    tables = []
    for rows in reader.found:
        words = [
            tuple("".join(cell[2]) for cell in cells[:columns])
            for _, cells in rows
        ]
        if len(words) > 1 and words[0][0] not in ("place", "in the file"):
            tables.append(words)
    return " ".join(sentence.split()), tables
