"""Executed notebooks as plain data: cells with their outputs, how each run ended, and where it comes from."""

import base64
import json
import re
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

from ..papers import notebooks, parameters_of
from .terminal import duration, last_events
from .redact import Redactor, redact_notebook
from ..rendering import templates
from ..claims import BOARD_MIME

_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")


class Cleaner(Redactor):
    "Redacts texts, and drops what a terminal acts on and a page cannot show"

    def __call__(self, text):
        clean = self.seen.get(text)
        if clean is None:
            clean = self.seen[text] = super().__call__(_CONTROL.sub("", text))
        return clean


def run_name(
    name: str,  # of a run, as of its file
    clean=str,  # a `Cleaner`, where that is still to be done
) -> str:
    "Name of a run without the folder of a person"
    return re.sub(r"(?<!_)_++(?:home|Users)_++[^_]++_", "_", clean(name))


def _slug(text):
    "Part of a file name and of an anchor"
    return re.sub(r"[^\w.,=+-]", "_", text)


@lru_cache(2**12)
def tables(
    html: str,  # an output of a notebook
) -> tuple:  # of HTML
    "Tables of an HTML output: their cells and words, and nothing that acts"
    from bleach import clean
    from markupsafe import Markup

    tags, out = ("table", "thead", "tbody", "tr", "th", "td"), []
    html = re.sub(r"(?is)<(style|script)\b.*?</\1>", "", html)
    for found in re.findall(r"(?is)<table\b.*?</table>", html):
        found = clean(found, tags, ["rowspan", "colspan"], strip=True)
        found = re.sub(r"<td>(\s*[-+−]?[\d.,]+\s*%?|NaN)</td>", r'<td class="n">\1</td>', found)
        out.append(Markup(found.replace("<table>", '<table class="sort">', 1)))
    return tuple(out)


@dataclass
class Image:
    "A picture as a notebook shows it"

    png: str  # base64
    width: int  # points of the page
    height: int
    alt: str = ""  # what it shows, for who cannot see it
    caption: str = ""  # Markdown


def read_image(
    png,  # base64, line ends allowed
    meta=None,  # dict with width, height and alt, as notebooks keep them
) -> Image:  # None for what is no PNG
    "A picture of a notebook"
    meta = meta or {}
    try:
        png = "".join(png.split())
        head = base64.b64decode(png, validate=True)[:24]
    except (AttributeError, ValueError):
        return None
    if head[:8] != b"\x89PNG\r\n\x1a\n" or len(head) < 24:
        return None
    width, height = (int.from_bytes(head[i : i + 4], "big") for i in (16, 20))
    size = [meta.get(k) for k in ("width", "height")]
    if all(type(s) in (int, float) and 1 <= s <= 10_000 for s in size):
        width, height = map(round, size)
    return Image(png, width, height, str(meta.get("alt") or ""))


@dataclass
class Output:
    "An output of a cell"

    kind: str  # 'text', 'markdown', 'table', 'board', 'picture' or 'error'
    value: object  # str; HTML; an `Image`; a list of dicts; (first line, traceback) of an error
    about: str = ""  # what it shows, for who cannot see it

    @cached_property
    def html(self):
        return templates().get_template("parts.html").module.output(self)


def _text(lines):
    return "".join(map(str, lines)) if isinstance(lines, list) else str(lines)


def _board_rows(data):
    "Claims of a board, each with its words; [] for anything else"
    rows = data.get("claims") if isinstance(data, dict) else data
    rows = [r for r in rows if isinstance(r, dict)] if isinstance(rows, list) else []
    return [
        {str(k): "" if v is None else str(v) for k, v in r.items()}
        for r in rows
        if all(r.get(k) for k in ("where", "says", "verdict"))
    ]


def _best_form(data, meta):
    "The best of the forms in which a notebook holds one output"
    if rows := _board_rows(data.get(BOARD_MIME)):
        return [Output("board", rows)]
    if "image/png" in data and (
        image := read_image(_text(data["image/png"]), meta.get("image/png") or meta)
    ):
        return [Output("picture", image)]
    if found := tables(_text(data.get("text/html", ""))):
        return [Output("table", t) for t in found]
    for form, kind in (("text/markdown", "markdown"), ("text/plain", "text")):
        if form in data:
            return [Output(kind, _text(data[form]))]
    return []


def caption_of(
    markdown: str,  # output below a picture
) -> str:  # Markdown
    "A caption without the asterisks that set all of it in italics"
    return re.sub(r"(?s)\A\*(?!\*)(.*)(?<!\*)\*\Z", r"\1", markdown.strip())


def outputs_of(
    cell: dict,  # of a notebook file
) -> list:  # of `Output`
    "Outputs of a cell; a caption goes to its picture"
    out = []
    for o in cell.get("outputs", []):
        if "data" in o:
            new = _best_form(o["data"], o.get("metadata", {}))
        elif o["output_type"] == "stream":
            new = [Output("text", _text(o["text"]))]
        elif o["output_type"] == "error":
            said = f"{o.get('ename', '')}: {o.get('evalue', '')}"
            trace = "\n".join(map(str, o.get("traceback", []))) or said
            new = [Output("error", (next(iter(said.splitlines()), ""), trace))]
        else:
            new = []
        last = out[-1].value if out and out[-1].kind == "picture" else None
        if last and not last.caption and [n.kind for n in new] == ["markdown"]:
            last.caption = caption_of(new[0].value)
        else:
            out += new
    return out


HOLDS = "What holds"  # the section of the claims


@dataclass
class Cell:
    "A cell of an executed notebook"

    source: str
    code: bool
    outputs: list  # of `Output`
    section: str  # heading of level 2 above
    heading: str  # nearest heading above
    state: str  # 'completed', 'failed', 'pending' or '', as papermill says
    folded: bool  # code that only its author needs


@dataclass
class Notebook:
    "An executed notebook"

    name: str  # name of the run
    paper: str  # word of the paper
    profile: str
    state: str  # 'done', 'failed', 'unfinished' or what the batch wrote last
    title: str = ""
    cells: list = field(default_factory=list)  # of `Cell`
    params: dict = field(default_factory=dict)  # all parameters, defaults included
    facts: dict = field(default_factory=dict)  # name -> text: machine, versions, ...
    seconds: float = None
    note: str = ""  # how far it came, and the first line of the error
    STATES = dict(
        done="done",
        failed="failed",
        unfinished="not finished",
        started="started, not finished",
        stopped="stopped by hand",
        skipped="notebook is gone",
    )

    @property
    def key(self):
        return _slug(f"{self.profile}-{self.name}") + "-unfinished" * (self.state != "done")

    @property
    def model(self):
        return str(self.params.get("model", ""))

    @property
    def ended(self):
        return self.STATES.get(self.state, self.state)

    @property
    def time(self):
        return "unknown" if self.seconds is None else duration(self.seconds)

    @property
    def provenance(self):
        "Where a run comes from: two lists of name -> text"

        def word(v):
            return (", ".join(map(word, v)) if isinstance(v, list) else str(v)) or "–"

        facts = {"profile": self.profile} | {
            k: word(v) for k, v in self.params.items() if k != "profile"
        }
        return dict(Parameters=facts, Run=dict(duration=self.time, machine="unknown") | self.facts)

    @property
    def sections(self):
        return [s for s in dict.fromkeys(c.section for c in self.cells) if s and s != self.title]

    def outputs(self, *kinds):
        return [(c, o) for c in self.cells for o in c.outputs if o.kind in kinds]

    @property
    def lead(self):
        "What leads a paper: (cell, output) of the picture of its claims; [] without one"
        return [(c, o) for c, o in self.outputs("picture") if HOLDS in c.section][:1]

    @property
    def exhibits(self):
        "What a run has to show: (cell, output) of all figures and tables"
        return self.outputs("picture", "table")


def _name(outputs, source, heading):
    "Say of each output what it shows: the figure or table that its cell calls for, and its title"
    numbers = {o.kind: [] for o in outputs}
    for kind, word in (("picture", "fig"), ("table", "tab")):
        called = re.findall(rf"\b{word}(\d+)\w*\(", source)
        if len(called) == sum(o.kind == kind for o in outputs):  # one each, in their order
            numbers[kind] = [f"{dict(fig='Figure', tab='Table')[word]} {n}" for n in called[::-1]]
    for o in outputs:
        label = numbers[o.kind].pop() if numbers[o.kind] else ""
        title = o.value.alt if o.kind == "picture" else ""
        told = title if title.startswith(label) else f"{label}: {title}"
        o.about = told if title else label or re.sub(r"^\d+ +", "", heading) or "output"


def _cells(cells):
    "Cells of a notebook file, with the headings above them; papermill's own error notes are left out"
    section = heading = ""
    for c in cells:
        source, meta, code = _text(c["source"]), c.get("metadata", {}), c["cell_type"] == "code"
        if "papermill-error-cell-tag" in meta.get("tags", []):
            continue
        for level, text in re.findall(r"^(#{1,6}) +(.+?)\s*$", "" if code else source, re.M):
            heading, section = text, text if len(level) < 3 else section
        outputs = outputs_of(c) if code else []
        _name(outputs, source, heading)
        state = str(meta.get("papermill", {}).get("status") or "")
        folded = re.match(r"#\|\s*hide\b", source) or meta.get("jupyter", {}).get("source_hidden")
        yield Cell(source, code, outputs, section, heading, state, bool(folded))


def _facts(meta):
    "Where a run comes from: name -> text; unknown facts are left out"
    own, versions = meta["memnb"], meta["memnb"].get("versions")
    known = dict(versions) if isinstance(versions, dict) else {}
    known.setdefault("python", meta["language_info"].get("version"))
    facts = dict(
        machine=own.get("machine"),
        finished=str(meta["papermill"].get("end_time") or "")[:10],
        memnb=own.get("version"),
        **{str(k): v for k, v in sorted(known.items())},
        papermill=meta["papermill"].get("version"),
        identity=str(own.get("identity") or "")[:12],
    )
    return {k: str(v) for k, v in facts.items() if v}


def _outcome(cells, partial):
    "State of a run and a line on it"
    codes = [c for c in cells if c.code and c.source.strip()]
    for i, c in enumerate(codes, 1):
        if error := next((o.value[0] for o in c.outputs if o.kind == "error"), None):
            return "failed", f"cell {i} of {len(codes)}, {c.heading}: {error.strip()[:300]}"
    ended = sum(c.state == "completed" for c in codes)
    return ("unfinished", f"{ended} of {len(codes)} cells had ended") if partial else ("done", "")


def read_notebook(
    path: Path,  # an executed notebook
    profile: str = "",  # of a notebook that does not say it
    clean=None,  # `Cleaner` to use for many; default: one of its own
) -> Notebook:  # ValueError, in one line, for what is no run of memnb
    "Read one executed notebook"
    path, clean = Path(path), clean or Cleaner()
    try:
        raw = redact_notebook(json.loads(path.read_text(encoding="utf-8")), clean)
    except (ValueError, RecursionError):
        raise ValueError("torn, or no notebook") from None
    try:
        cells, meta = list(_cells(raw["cells"])), dict(raw["metadata"])
        tagged = [c for c in raw["cells"] if "parameters" in c.get("metadata", {}).get("tags", [])]
    except (KeyError, TypeError, AttributeError, ValueError):
        raise ValueError("no notebook") from None
    parts = "memnb", "papermill", "language_info"
    meta = {k: v if isinstance(v := meta.get(k), dict) else {} for k in parts}
    code = "\n".join(c.source for c in cells if c.code)
    paper = re.search(r"^#\| *default_exp (\w+)", code, re.M)
    paper = paper or re.fullmatch(r"\d\d_(\w+)\.ipynb", str(meta["papermill"].get("input_path")))
    if not paper:
        raise ValueError("no notebook of memnb")
    params, given = {}, meta["papermill"].get("parameters")
    with suppress(ValueError, IndexError):
        known = parameters_of(_text(tagged[0]["source"]), "")
        params = {k: p.default for k, p in known.items()}
    params |= given if isinstance(given, dict) else {}
    params |= params.pop("sizes") if isinstance(params.get("sizes"), dict) else {}
    time = meta["memnb"].get("seconds", meta["papermill"].get("duration"))
    state, note = _outcome(cells, path.stem.endswith(".partial"))
    return Notebook(
        name=run_name(path.stem.removesuffix(".partial"), clean),
        paper=paper[1],
        profile=str(params.get("profile") or profile),
        state=state,
        title=next((c.heading for c in cells if c.heading), paper[1]),
        cells=cells,
        params=params,
        facts=_facts(meta),
        seconds=float(time) if type(time) in (int, float) and time >= 0 else None,
        note=note,
    )


def _logged(row, profile):
    "A run that left an event in the log, but no notebook"
    at = f"cell {row.get('cell')} of {row.get('of')}" if row.get("cell") else "no cell has ended"
    paper = str(row.get("notebook") or row["run"].split("-")[0])
    state = str(row.get("what", "unknown")).replace("cell", "started")
    note = ": ".join(map(str, filter(None, [at, row.get("error")])))
    return Notebook(run_name(row["run"]), paper, profile, state, paper, note=note)


def run_files(
    runs: Path,  # folder of executed notebooks
    name: str,  # of files, as '*.ipynb'
) -> list:  # of (file, its profile)
    "Files in a folder and in the folders of the profiles"
    found = sorted([*runs.glob(name), *runs.glob(f"[!.]*/{name}")])
    return [(p, p.parent.name if p.parent != runs else "") for p in found]


def read_notebooks(
    runs: Path,  # folder of executed notebooks
) -> tuple:  # (list of `Notebook`, list of (file name, why it could not be read))
    "Read all runs of a folder: papers in the order of the notebooks, then profile and run"
    nbs, odd, clean = [], [], Cleaner()
    for path, profile in run_files(runs, "*.ipynb"):
        try:
            nbs.append(read_notebook(path, clean(profile), clean))
        except ValueError as e:
            odd.append((clean(path.name), str(e)))
        except OSError:
            odd.append((clean(path.name), "cannot be opened"))
    for log, profile in run_files(runs, "batch.jsonl"):
        have = {nb.name for nb in nbs if nb.profile == clean(profile)}
        rows = [redact_notebook(row, clean) for _, row in sorted(last_events(log.parent).items())]
        nbs += [_logged(r, clean(profile)) for r in rows if run_name(r["run"]) not in have]
    papers = {word: i for i, word in enumerate(notebooks())}

    def place(nb):
        return papers.get(nb.paper, 99), nb.paper, nb.profile, nb.name, nb.state

    return sorted(nbs, key=place), odd
