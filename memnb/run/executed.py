"""Executed notebooks as plain data: cells with their outputs, how each run ended, and where it comes from."""

import re
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path

from ..claims import BOARD_MIME
from ..papers import notebooks, parameters_of
from ..rendering import templates
from .redact import redact_notebook, redactor
from .terminal import duration, first_line, last_events

_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")


def cleaner():
    "A `redactor` that also drops what a terminal acts on and a page cannot show"
    clean = redactor()
    return lambda text: clean(_CONTROL.sub("", text))


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
        lines.append(f"<tfoot><tr><td>… {len(rows) - MOST_ROWS:,} more rows</td></tr></tfoot>")
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
    size: dict = field(default_factory=dict)  # width and height of a picture, points of the page
    caption: str = ""  # of a picture, Markdown

    @cached_property
    def html(self):
        return templates().get_template("parts.html").module.output(self)


def _best_form(data, meta):
    "The best of the forms in which a notebook holds one output, and what is told of it"
    if BOARD_MIME in data:
        rows = data[BOARD_MIME]["claims"]
        return [Output("board", [{k: str(v or "") for k, v in r.items()} for r in rows])]
    png = "".join(data.get("image/png", "").split())
    if re.fullmatch("[A-Za-z0-9+/]+=*", png):  # what is no picture could be anything
        meta = meta.get("image/png", meta)
        size = {k: meta[k] for k in ("width", "height") if isinstance(meta.get(k), int)}
        return [Output("picture", png, meta.get("alt") or "", size)]
    if found := tables(data.get("text/html", "")):
        return [Output("table", t) for t in found]
    for form, kind in (("text/markdown", "markdown"), ("text/plain", "text")):
        if form in data:
            return [Output(kind, data[form])]
    return []


def caption_of(markdown: str) -> str:
    "A caption, the output below a picture, without the asterisks that set all of it in italics"
    return re.sub(r"(?s)\A\*(?!\*)(.*)(?<!\*)\*\Z", r"\1", markdown.strip())


def outputs_of(cell: dict) -> list:
    "List of `Output` of a cell; a caption goes to its picture"
    out = []
    for o in cell.get("outputs", []):
        if "data" in o:
            new = _best_form(o["data"], o.get("metadata", {}))
        elif o["output_type"] == "stream":
            new = [Output("text", o["text"])]
        else:
            said, trace = f"{o['ename']}: {o['evalue']}", "\n".join(o["traceback"])
            new = [Output("error", (said.partition("\n")[0], trace))]
        last = out[-1] if out and out[-1].kind == "picture" else None
        if last and not last.caption and [n.kind for n in new] == ["markdown"]:
            last.caption = caption_of(new[0].value)
        else:
            out += new
    return out


def _cells(cells):
    """Cells of a notebook, each with `section` and `heading`, those of level 2 and of any level above it, and `shown`, its
    outputs; `folded` is code that only its author needs. Papermill's own error notes are left out."""
    section = heading = ""
    for c in cells:
        if "papermill-error-cell-tag" in c.metadata.get("tags", []):
            continue
        code = c.cell_type == "code"
        for level, text in re.findall(r"^(#{1,6}) +(.+?)\s*$", "" if code else c.source, re.M):
            heading, section = text, text if len(level) < 3 else section
        c.section, c.heading, c.shown = section, heading, outputs_of(c)
        for o in c.shown:
            o.about = o.about or heading or "output"
        hidden = c.metadata.get("jupyter", {}).get("source_hidden")
        c.folded = bool(hidden or re.match(r"#\|\s*hide\b", c.source))
        yield c


class Notebook:
    "An executed notebook: its cells, as `_cells` gives them, and where it comes from"

    def __init__(self, path: Path, profile: str, clean):
        "`profile` is that of a notebook that names none, `clean` a `cleaner`; any error for what is no run of memnb"
        from nbformat import v4

        raw = redact_notebook(v4.reads(path.read_text(encoding="utf-8")), clean)
        self.cells, meta = list(_cells(raw.cells)), raw.metadata
        tagged = (c.source for c in self.cells if "parameters" in c.metadata.get("tags", []))
        params = parameters_of(next(tagged, ""), "")
        own, by = meta.get("memnb", {}), meta.get("papermill", {})
        paper = re.search(r"(?m)^#\| *default_exp (\w+)", "\n".join(c.source for c in self.cells))
        paper = paper or re.fullmatch(r"\d\d_(\w+)\.ipynb", str(by.get("input_path")))
        if not paper or not self.cells:
            raise ValueError("no notebook of memnb")
        params = {k: p.default for k, p in params.items()} | by.get("parameters", {})
        params |= params.pop("sizes", {})
        self.paper, self.profile = paper[1], str(params.pop("profile", "") or profile)
        self.params, self.model = params, str(params.get("model", ""))
        self.name = clean(path.stem.removesuffix(".partial"))
        self.state = "unfinished" if path.stem.endswith(".partial") else "done"
        key = f"{self.profile}-{self.name}" + "-unfinished" * (self.state != "done")
        self.key = re.sub(r"[^\w.,=+-]", "_", key)
        self.title = next((c.heading for c in self.cells if c.heading), self.paper)
        self.seconds = own.get("seconds", by.get("duration"))
        self.time = "unknown" if self.seconds is None else duration(self.seconds)
        facts = dict(duration=self.time, machine=own.get("machine") or "unknown")
        facts |= dict(finished=str(by.get("end_time") or "")[:10], memnb=own.get("version"))
        facts |= own.get("versions", {}) | dict(papermill=by.get("version"))
        facts |= dict(identity=own.get("identity", "")[:12])
        self.facts = {k: str(v) for k, v in facts.items() if v}

    def outputs(self, *kinds):
        "(cell, `Output`) of these kinds, in their order"
        return [(c, o) for c in self.cells for o in c.shown if o.kind in kinds]


def run_files(runs: Path, name: str) -> list:
    "(file, its profile) of files, as '*.ipynb', in a folder and in the folders of the profiles"
    found = sorted([*runs.glob(name), *runs.glob(f"[!.]*/{name}")])
    return [(p, p.parent.name if p.parent != runs else "") for p in found]


def read_notebooks(runs: Path) -> tuple:
    """Read all runs of a folder: `Notebook`s, (file name, why it could not be read), last events of what did not finish.

    Papers stand in the order of the notebooks, then profile and run.
    """
    nbs, odd, lost, clean = [], [], [], cleaner()
    for path, profile in run_files(runs, "*.ipynb"):
        try:
            nbs.append(Notebook(path, clean(profile), clean))
        except Exception as e:  # torn, or anything else: the others are reported all the same
            odd.append((clean(path.name), first_line(e)))
    for log, profile in run_files(runs, "batch.jsonl"):
        events = redact_notebook(last_events(log.parent), clean).values()
        lost += [dict(profile=clean(profile)) | e for e in events if e.get("what") != "done"]
    done = {(r.profile, r.name) for r in nbs if r.state == "done"}
    # a failure is told also of a run that was done again; its other events are late
    over = ("failed", "stopped")
    lost = [e for e in lost if e.get("what") in over or (e["profile"], e["run"]) not in done]
    told = {(e["profile"], e["run"]) for e in lost}
    torn = [r for r in nbs if r.state != "done" and (r.profile, r.name) not in told]
    lost += [dict(profile=r.profile, run=r.name, what="unfinished") for r in torn]
    papers = {word: i for i, word in enumerate(notebooks())}
    nbs.sort(key=lambda nb: (papers.get(nb.paper, 99), nb.paper, nb.profile, nb.name, nb.state))
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
        words = [tuple("".join(cell[2]) for cell in cells[:columns]) for _, cells in rows]
        if len(words) > 1 and words[0][0] not in ("place", "in the file"):
            tables.append(words)
    return " ".join(sentence.split()), tables
