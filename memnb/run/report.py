"""One page about a batch: what was found, which claims hold, the figures, the tables, and where every number comes from."""

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

from ..core import replacing, require, root
from .executed import (
    Notebook,
    read_notebooks,
    run_files,
    tables,
)
from ..plots import label
from ..rendering import DIFFER, MARKS, code_html, markdown_html, mathml, templates
from ..sliding import sliders_of


DECIDED = "holds", "does not hold", "mixed"


@dataclass
class Vote:
    "What one run says about one claim"

    notebook: Notebook
    model: str
    where: str
    says: str
    verdict: str
    evidence: str
    about: str = ""


@dataclass
class Judged:
    "What the runs say about one claim and one model"

    votes: list  # of `Vote`

    @cached_property
    def verdict(self):
        "One verdict out of several"
        said = [v.verdict for v in self.votes]
        decided = {v for v in said if v in DECIDED}
        if decided:
            return decided.pop() if len(decided) == 1 else DIFFER
        order = ["undecided", *sorted(set(said) - set(MARKS)), "not testable here", "not measured"]
        return next((v for v in order if v in said), "not measured")

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


def people_say(
    model: str,  # as in a board
) -> str:
    "Name of a model for people; what was done to it stands behind a comma"
    name, comma, rest = model.partition(", ")
    return label(name) + comma + rest


def votes(notebook: Notebook) -> list:  # of `Vote`
    "The claims that a run judges"

    def words(r):
        return (
            r["where"],
            r["says"],
            r["verdict"],
            r.get("evidence", ""),
            r.get("about", ""),
        )

    return [
        Vote(notebook, r.get("model", notebook.model) or "all models", *words(r))
        for _, o in notebook.outputs("board")
        for r in o.value
    ]


def _without_weaker(votes):
    "Votes of runs of the model itself, without smoke runs, wherever there are such"
    votes = [v for v in votes if v.notebook.model == v.model] or votes
    return [v for v in votes if v.notebook.profile != "smoke"] or votes


def scoreboard(
    nbs: list,  # of `Notebook`
) -> dict:  # word of the paper -> {(where, says): {model: `Judged`}}
    "The verdicts by paper, claim and model"
    papers = {}
    for nb in nbs:
        for v in votes(nb):
            by = papers.setdefault(nb.paper, {}).setdefault((v.where, v.says), {})
            by.setdefault(v.model, []).append(v)

    def judged(by):
        return {model: Judged(_without_weaker(vs)) for model, vs in sorted(by.items())}

    return {
        paper: {claim: judged(by) for claim, by in claims.items()}
        for paper, claims in papers.items()
    }


@dataclass
class Counted:
    "A claim with one verdict, whatever the number of models and runs"

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
        "That of the models; mixed where they disagree"
        said = {j.verdict for j in self.by.values()}
        decided = said & {*DECIDED, DIFFER}
        if decided:
            return decided.pop() if len(decided) == 1 else DIFFER if DIFFER in decided else "mixed"
        order = ["undecided", *sorted(said - {*MARKS}), "not testable here", "not measured"]
        return next((v for v in order if v in said), "not measured")

    @property
    def decided(self):
        return self.verdict not in ("not measured", "not testable here")


def tally(
    claims: dict,  # {(where, says): {model: `Judged`}}
) -> tuple:  # Counters of verdicts: of the paper's claims, of theorems and claims of ours
    "Number of claims by verdict, each claim once"
    each = [Counted(*key, by) for key, by in claims.items()]
    return tuple(Counter(c.verdict for c in each if c.ours == ours) for ours in (False, True))


def notebook_html(
    notebook: Notebook,
    home: str = "",  # address of the report, for a link back
) -> str:  # a whole page
    "An executed notebook as HTML"
    return templates().get_template("notebook.html").render(nb=notebook, home=home)


@dataclass
class Paper:
    "What all runs of one paper say"

    word: str
    notebooks: list  # of `Notebook`
    claims: dict  # {(where, says): {model: `Judged`}}

    @cached_property
    def title(self):
        "That of the last notebook, since a log knows none"
        return max(reversed(self.notebooks), key=lambda nb: bool(nb.cells)).title

    @cached_property
    def tally(self):
        "Counters of verdicts: of the paper's claims, of others"
        return tally(self.claims)

    @property
    def cited(self):
        "Is it a paper, whose claims are judged?"
        return self.tally[0].total() > 0

    @cached_property
    def counted(self):
        "Its claims, those of the paper first, each with one verdict"
        return sorted((Counted(*key, by) for key, by in self.claims.items()), key=lambda c: c.ours)

    def strip(self, ours=False):
        "Claims in the order of their verdicts"
        order = [*MARKS]
        return sorted(
            (c for c in self.counted if c.ours == ours),
            key=lambda c: order.index(c.verdict) if c.verdict in order else len(order),
        )

    @cached_property
    def head(self):
        "What its page says below the title: the question, and where the paper stands"
        found = next((nb.cells[0].source for nb in reversed(self.notebooks) if nb.cells), "")
        parts = [*found.split("\n\n"), "", "", ""][1:3]
        return [p if p.startswith(mark) else "" for p, mark in zip(parts, ("> ", ""))]

    @property
    def asks(self):
        return self.head[0].lstrip("> ")

    @property
    def finds(self):
        "What the paper itself found, as its page says it; empty where it does not"
        found = next((nb.cells[0].source for nb in reversed(self.notebooks) if nb.cells), "")
        return next((p for p in found.split("\n\n") if p.startswith("**The paper** ")), "")

    @property
    def source(self):
        "Authors, year, title and address, without what follows"
        cut = re.match(r"(?s).*?\*[^*]+\*.*?\.(?=\s|$)", self.head[1])
        return cut[0] if cut else self.head[1]

    @cached_property
    def picture(self):
        "The picture of its lead, with the finding as its text; None where there is none"
        return next((o for _, o in self.lead if o.kind == "picture"), None)

    @cached_property
    def lead(self):
        "Outputs of the first run that has a lead; a smoke run comes last"
        small_last = sorted(self.notebooks, key=lambda nb: nb.profile == "smoke")
        return next((nb.lead for nb in small_last if nb.lead), [])


def report_html(
    nbs: list,  # of `Notebook`
    odd: list,  # of (file name, why it could not be read)
    pages: dict,  # key of a run -> address of its notebook's page
    sliders: dict = {},  # noqa: B006 # word of a paper -> a slider, see `sliding`
    changed: str = "",  # what differs from the rows that ship, as text
) -> str:  # a whole page
    "The report of a batch as HTML"
    board = scoreboard(nbs)
    papers = [
        Paper(word, [nb for nb in nbs if nb.paper == word], board.get(word, {}))
        for word in dict.fromkeys(nb.paper for nb in nbs)
    ]
    total, ours = (sum((p.tally[k] for p in papers), Counter()) for k in (0, 1))
    models = sorted(
        {people_say(m) for p in papers for by in p.claims.values() for m in by} - {"all models"}
    )
    said = {*total, *ours}
    verdicts = [v for v in MARKS if v in DECIDED[:2] or v in said] + sorted(said - {*MARKS})
    first = {o.html: (f"paper-{p.word}", p.title) for p in papers for _, o in p.lead}
    shown = {}  # key of a run -> [(heading, [(output, link and name of where the same was shown before)])]
    for nb in nbs:
        here = (nb.key, nb.key)

        def before(o, here=here):
            return None if first.setdefault(o.html, here) == here else first[o.html]

        shown[nb.key] = [
            (heading, [(o, before(o)) for _, o in group])
            for heading, group in groupby(nb.exhibits, lambda shown: shown[0].heading)
        ]
    return (
        templates()
        .get_template("report.html")
        .render(
            notebooks=nbs,
            odd=odd,
            pages=pages,
            papers=papers,
            models=models,
            total=total,
            ours=ours,
            verdicts=verdicts,
            shown=shown,
            sliders=sliders,
            changed=changed,
            label=people_say,
        )
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


def batch_report(
    runs: Path = None,  # folder of executed notebooks; default `runs`
    out: Path = None,  # file to write; default `report.html` in that folder
    changed: str = "",  # what differs from the rows that ship, as text
) -> Path:  # the file; ValueError where there is nothing to report
    "Write the report of a batch, and a page for each notebook beside it"
    require("mistune", "report")
    runs = Path(runs or root() / "runs")
    if not any(run_files(runs, name) for name in ("*.ipynb", "batch.jsonl")):
        raise ValueError(
            f"no executed notebooks in {runs}: make some with `memnb run smoke`, "
            "or name the folder that has them, as in `memnb report runs`"
        )
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
