"""One page about a batch: what was found, which claims hold, figures, tables, and where every number comes from."""

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

from ..core import replacing, require, root
from ..plots import label
from ..rendering import DIFFER, MARKS, code_html, markdown_html, mathml, templates
from ..sliding import sliders_of
from .executed import Notebook, read_notebooks, run_files, tables

DECIDED = "holds", "does not hold", "mixed"


def people_say(
    model: str,  # as in a board
) -> str:
    "Name of a model for people; what was done to it stands behind a comma"
    name, comma, rest = model.partition(", ")
    return label(name) + comma + rest


def one_verdict(
    said,  # verdicts
    apart: str = DIFFER,  # the word for decided ones that contradict each other
) -> str:
    "One verdict out of several: those that decide outweigh those that do not"
    decided = {v for v in said if v in (*DECIDED, DIFFER)}
    if len(decided) > 1:
        return DIFFER if DIFFER in decided else apart
    order = [*decided, "undecided", *sorted({*said} - {*MARKS}), "not testable here"]
    return next((v for v in order if v in said), "not measured")


@dataclass
class Vote:
    "What one run says about one claim"

    notebook: Notebook
    model: str
    verdict: str
    evidence: str
    about: str = ""


@dataclass
class Judged:
    "What the runs say about one claim and one model"

    votes: list  # of `Vote`

    @cached_property
    def verdict(self):
        return one_verdict([v.verdict for v in self.votes])

    @property
    def agree(self):
        return sum(v.verdict == self.verdict for v in self.votes)

    @property
    def evidence(self):
        "(verdict, evidence) -> notebooks that say so"
        by = {}
        for v in self.votes:
            by.setdefault((v.verdict, v.evidence), []).append(v.notebook)
        return by


@dataclass
class Counted:
    "A claim with one verdict, whatever the number of models and runs; mixed where models disagree"

    where: str
    says: str
    by: dict  # model -> `Judged`

    @property
    def about(self):
        return next((v.about for j in self.by.values() for v in j.votes if v.about), "")

    @property
    def ours(self):
        "Whether it is no empirical claim of the paper: one of ours, or a theorem"
        return bool(re.search(r"\bours\b", self.where.lower())) or "theorem" in self.about

    @cached_property
    def verdict(self):
        return one_verdict([j.verdict for j in self.by.values()], "mixed")

    @property
    def decided(self):
        return self.verdict not in ("not measured", "not testable here")


def scoreboard(
    nbs: list,  # of `Notebook`
) -> dict:  # word of the paper -> list of `Counted`
    """The verdicts by paper, claim and model.

    A run speaks for its own model; others are heard, and smoke runs, where there is no such run.
    """
    votes = {}
    for nb in nbs:
        for r in (r for _, o in nb.outputs("board") for r in o.value):
            model = r.get("model", nb.model) or "all models"
            vote = Vote(nb, model, r["verdict"], r.get("evidence", ""), r.get("about", ""))
            claims = votes.setdefault(nb.paper, {}).setdefault((r["where"], r["says"]), {})
            claims.setdefault(model, []).append(vote)

    def judged(found):
        found = [v for v in found if v.notebook.model == v.model] or found
        return Judged([v for v in found if v.notebook.profile != "smoke"] or found)

    return {
        paper: [
            Counted(*claim, {model: judged(found) for model, found in sorted(by.items())})
            for claim, by in claims.items()
        ]
        for paper, claims in votes.items()
    }


@dataclass
class Paper:
    "What all runs of one paper say"

    word: str
    notebooks: list  # of `Notebook`
    claims: list  # of `Counted`

    @cached_property
    def title(self):
        "That of the last notebook, since a log knows none"
        return max(reversed(self.notebooks), key=lambda nb: bool(nb.cells)).title

    @cached_property
    def tally(self):
        "Counters of verdicts: of the paper's claims, of theorems and claims of ours"
        return [Counter(c.verdict for c in self.claims if c.ours == k) for k in (False, True)]

    @property
    def cited(self):
        "Is it a paper, whose claims are judged?"
        return self.tally[0].total() > 0

    @cached_property
    def counted(self):
        "Its claims, those of the paper first"
        return sorted(self.claims, key=lambda c: c.ours)

    def strip(self):
        "The paper's own claims in the order of their verdicts"
        order = {v: i for i, v in enumerate(MARKS)}
        own = [c for c in self.claims if not c.ours]
        return sorted(own, key=lambda c: order.get(c.verdict, len(order)))

    @cached_property
    def head(self):
        "Paragraphs of the first cell of its page: title, question, source, what the paper found"
        first = next((nb.cells[0].source for nb in reversed(self.notebooks) if nb.cells), "")
        return [*first.split("\n\n"), "", ""]

    @property
    def asks(self):
        return self.head[1].lstrip("> ") if self.head[1].startswith("> ") else ""

    @property
    def finds(self):
        "What the paper found and what came out here, as its page says it; empty where it does not"
        return next((p for p in self.head if p.startswith("| ")), "")

    @property
    def source(self):
        "Authors, year, title and address, without what follows"
        cut = re.match(r"(?s).*?\*[^*]+\*.*?\.(?=\s|$)", self.head[2])
        return cut[0] if cut else self.head[2]

    @cached_property
    def lead(self):
        "Outputs of the first run that has a lead; a smoke run comes last"
        small_last = sorted(self.notebooks, key=lambda nb: nb.profile == "smoke")
        return next((nb.lead for nb in small_last if nb.lead), [])

    @cached_property
    def picture(self):
        "The picture of its claims; None where there is none"
        return next((o for _, o in self.lead if o.kind == "picture"), None)


def notebook_html(
    notebook: Notebook,
    home: str = "",  # address of the report, for a link back
) -> str:  # a whole page
    "An executed notebook as HTML"
    return templates().get_template("notebook.html").render(nb=notebook, home=home)


def _shown(nbs, papers):
    "Key of a run -> [(heading, [(output, link and name of where the same was shown before)])]"
    first = {o.html: (f"paper-{p.word}", p.title) for p in papers for _, o in p.lead}
    shown = {}
    for nb in nbs:
        here, shown[nb.key] = (nb.key, nb.key), []
        for heading, group in groupby(nb.exhibits, lambda found: found[0].heading):
            places = [(o, first.setdefault(o.html, here)) for _, o in group]
            shown[nb.key].append((heading, [(o, at if at != here else None) for o, at in places]))
    return shown


def report_html(
    nbs: list,  # of `Notebook`
    odd: list,  # of (file name, why it could not be read)
    pages: dict,  # key of a run -> address of its notebook's page
    sliders: dict,  # word of a paper -> a slider, see `sliding`
    changed: str = "",  # what differs from the rows that ship, as text
) -> str:  # a whole page
    "The report of a batch as HTML"
    board = scoreboard(nbs)
    papers = [
        Paper(word, [nb for nb in nbs if nb.paper == word], board.get(word, []))
        for word in dict.fromkeys(nb.paper for nb in nbs)
    ]
    total, ours = (sum((p.tally[k] for p in papers), Counter()) for k in (0, 1))
    models = {people_say(m) for p in papers for c in p.claims for m in c.by} - {"all models"}
    said = {*total, *ours}
    page = templates().get_template("report.html")
    return page.render(
        notebooks=nbs,
        odd=odd,
        pages=pages,
        papers=papers,
        models=sorted(models),
        total=total,
        ours=ours,
        verdicts=[v for v in MARKS if v in DECIDED[:2] or v in said] + sorted(said - {*MARKS}),
        shown=_shown(nbs, papers),
        sliders=sliders,
        changed=changed,
        label=people_say,
    )


def _write(path, text):
    "Replace a file in one step"
    with replacing(path) as part:
        part.write_bytes(text.encode("utf-8", "replace"))


def _remove_old(folder, keep):
    "Remove pages of ours for runs that are gone"
    for f in folder.glob("*.html"):
        if f.name in keep:
            continue
        with open(f, "rb") as file:
            ours = b'content="memnb report"' in file.read(1200)
        if ours:
            f.unlink()


def runs_found(
    runs: Path = None,  # folder of executed notebooks; default `runs`
) -> Path:  # it; ValueError where it has none
    "Folder of runs to report on, asked before anything slow is done"
    require("mistune", "report")
    runs = Path(runs or root() / "runs")
    if not any(run_files(runs, name) for name in ("*.ipynb", "batch.jsonl")):
        raise ValueError(
            f"no executed notebooks in {runs}: make some with `memnb run smoke`, "
            "or name the folder that has them, as in `memnb report runs`"
        )
    return runs


def batch_report(
    runs: Path = None,  # folder of executed notebooks; default `runs`
    out: Path = None,  # file to write; default `report.html` in that folder
    changed: str = "",  # what differs from the rows that ship, as text
) -> Path:  # the file; ValueError where there is nothing to report
    "Write the report of a batch, and a page for each notebook beside it"
    runs = runs_found(runs)
    out = Path(out or runs / "report.html")
    if out.is_dir():
        raise ValueError(f"{out} is a folder: name a file, as in --out {out}/report.html")
    for f in (markdown_html, code_html, mathml, tables, templates):
        f.cache_clear()  # files may have changed
    nbs, odd = read_notebooks(runs)
    taken = Counter()
    for nb in nbs:  # runs with distinct names, whatever the files are called
        taken[key := nb.key] += 1
        if taken[key] > 1:
            nb.name += f" {taken[key]}"
    beside = out.with_name(f"{out.stem}_files")
    beside.mkdir(parents=True, exist_ok=True)
    pages = {nb.key: f"{quote(beside.name)}/{quote(nb.key)}.html" for nb in nbs if nb.cells}
    for nb in nbs:
        if nb.cells:
            _write(beside / f"{nb.key}.html", notebook_html(nb, f"../{quote(out.name)}"))
    _remove_old(beside, {f"{k}.html" for k in pages})
    _write(
        out,
        report_html(nbs, odd, pages, sliders_of(dict.fromkeys(nb.paper for nb in nbs)), changed),
    )
    return out
