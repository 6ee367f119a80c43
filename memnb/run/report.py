"""One page about a batch: what was found, which claims hold, figures, tables, and where every number comes from."""

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

from ..core import replacing, require, root
from ..plots import label
from ..rendering import DIFFER, MARKS, templates
from .executed import Output, read_notebooks, run_files
from .ours import is_page, may_write

APART = "models differ"
DECIDED = "holds", "does not hold", "too small to matter", APART


def people_say(model: str) -> str:
    "Name of a model for people; what was done to it stands behind a comma"
    name, comma, rest = model.partition(", ")
    return label(name) + comma + rest


def one_verdict(said: Iterable[str], apart: str = DIFFER) -> str:
    "One verdict out of several: those that decide outweigh those that do not; `apart` where two differ"
    said = [*said]
    decided = {verdict for verdict in said if verdict in (*DECIDED, DIFFER)}
    if len(decided) > 1:
        return DIFFER if DIFFER in decided else apart
    unknown_words = sorted({*said} - {*MARKS})
    order = [*decided, "open", *unknown_words, "not testable here"]
    return next((verdict for verdict in order if verdict in said), "not asked")


def _that_count(votes, model):
    "The votes about a model that count: of runs of this model, before all others; smoke runs where there is no other"
    of_model = [vote for vote in votes if vote["model"] == model]
    own = [
        vote for vote in of_model if vote["notebook"].model == model
    ] or of_model
    return [vote for vote in own if vote["notebook"].profile != "smoke"] or own


class Counted:
    "A claim with one verdict, whatever the number of models and runs, or that models differ"

    def __init__(self, where: str, says: str, votes: list):
        "`votes` are dicts: notebook, model, verdict, evidence, about, told"
        self.where = where
        self.says = says
        models = sorted({vote["model"] for vote in votes})
        self.by = {model: _that_count(votes, model) for model in models}
        self.verdicts = {
            model: one_verdict(vote["verdict"] for vote in own)
            for model, own in self.by.items()
        }
        self.verdict = one_verdict(self.verdicts.values(), APART)
        self.about = next(
            (vote["about"] for vote in votes if vote["about"]), ""
        )
        # no empirical claim of the paper: one of ours, or a theorem
        self.ours = (
            bool(re.search(r"\bours\b", where.lower()))
            or "theorem" in self.about
        )
        self.decided = self.verdict not in ("not asked", "not testable here")


def scoreboard(nbs: list) -> list:
    "What the runs of a paper, each a `Notebook`, say about its claims: list of `Counted`"
    votes = {}
    for nb in nbs:
        for _, board in nb.outputs("board"):
            for row in board.value:
                vote = dict(evidence="", about="") | row
                vote["notebook"] = nb
                vote["model"] = row.get("model", nb.model) or "all models"
                vote["told"] = vote["verdict"], vote["evidence"]
                votes.setdefault((row["where"], row["says"]), []).append(vote)
    return [Counted(*claim, own) for claim, own in votes.items()]


class Paper:
    "What all runs of one paper say"

    def __init__(self, word: str, notebooks: list):
        self.word = word
        self.title = notebooks[-1].title
        # those of the paper first, then ours and theorems; the paper's own by their verdicts
        self.claims = sorted(
            scoreboard(notebooks), key=lambda claim: claim.ours
        )
        order = [*MARKS]
        self.own = sorted(
            [claim for claim in self.claims if not claim.ours],
            key=lambda claim: [*order, claim.verdict].index(claim.verdict),
        )
        self.tally = [
            Counter(
                claim.verdict for claim in self.claims if claim.ours == is_ours
            )
            for is_ours in (False, True)
        ]
        self.read_head(notebooks[-1].cells[0].source)
        self.lead = self.lead_picture(notebooks)

    def read_head(self, source: str):
        "Take from the first cell: the question, what the paper found and came out here, authors to address"
        question, about = [*source.split("\n\n"), "", ""][1:3]
        self.asks = question.lstrip("> ") if question.startswith("> ") else ""
        self.finds = next(
            (part for part in source.split("\n\n") if part.startswith("| ")), ""
        )
        # up to the sentence that ends behind the title, which is set in italics
        title = re.match(r"(?s).*?\*[^*]+\*.*?\.(?=\s|$)", about)
        self.source = title[0] if title else about

    def lead_picture(self, notebooks: list) -> Output | None:
        "The picture of its claims of the first run that has one, a smoke run last"
        for nb in sorted(notebooks, key=lambda nb: nb.profile == "smoke"):
            for cell, picture in nb.outputs("picture"):
                if "What holds" in cell.section:
                    return picture
        return None


def runs_found(runs: Path = None) -> Path:
    "Folder of runs to report on, asked before anything slow is done; ValueError where it has none"
    require("mistune", "report")
    runs = Path(runs or root() / "runs")
    if not any(run_files(runs, name) for name in ("*.ipynb", "batch.jsonl")):
        how = "make some with `memnb run smoke`, or name their folder, as in `memnb report runs`"
        raise ValueError(f"no executed notebooks in {runs}: {how}")
    return runs


def _write(file, template, **parts):
    with replacing(file) as part:
        html = templates().get_template(template).render(**parts)
        part.write_bytes(html.encode("utf-8", "replace"))


def _write_pages(nbs, folder, home):
    "Write a page a notebook, and remove pages of ours for runs that are gone"
    for nb in nbs:
        _write(
            folder / f"{nb.key}.html",
            "notebook.html",
            nb=nb,
            home=f"../{quote(home)}",
        )
    keys = {nb.key for nb in nbs}
    for file in folder.glob("*.html"):
        if file.stem not in keys and is_page(file):
            file.unlink()


def batch_report(
    runs: Path = None, out: Path = None, changed: str = ""
) -> Path:
    """Write the report of a folder of runs, `report.html` in it or `out`, and a page for each notebook beside it.

    `changed` says what differs from the rows that ship. ValueError where there is nothing to report, and where a file
    of somebody else would be written over.
    """
    runs = runs_found(runs)
    out = Path(out or runs / "report.html")
    beside = out.with_name(f"{out.stem}_files")
    nbs, odd, lost = read_notebooks(runs)
    for file in (out, *(beside / f"{nb.key}.html" for nb in nbs)):
        may_write(file, is_page)
    words = dict.fromkeys(nb.paper for nb in nbs)
    papers = [
        Paper(word, [nb for nb in nbs if nb.paper == word]) for word in words
    ]
    total, ours = (
        sum((paper.tally[kind] for paper in papers), Counter())
        for kind in (0, 1)
    )
    told = {*total, *ours}
    models = {
        people_say(model)
        for paper in papers
        for claim in paper.claims
        for model in claim.by
    }
    _write_pages(nbs, beside, out.name)
    _write(
        out,
        "report.html",
        changed=changed,
        label=people_say,
        notebooks=nbs,
        odd=odd,
        lost=lost,
        pages={
            nb.key: f"{quote(beside.name)}/{quote(nb.key)}.html" for nb in nbs
        },
        papers=papers,
        models=sorted(models - {"all models"}),
        total=total,
        ours=ours,
        verdicts=[v for v in MARKS if v in DECIDED[:2] or v in told]
        + sorted(told - {*MARKS}),
    )
    return out
