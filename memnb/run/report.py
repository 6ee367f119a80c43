"""One page about a batch: what was found, which claims hold, figures, tables, and where every number comes from."""

import re
from collections import Counter
from collections.abc import Iterable
from itertools import takewhile
from pathlib import Path
from urllib.parse import quote

from ..core import replacing, require, root
from ..plots import label
from ..rendering import DIFFER, MARKS, templates
from .executed import Output, read_notebooks, run_files
from .ours import is_page, may_write
from .specification import choices, curves

APART = "models differ"
# the verdicts of a claim that is not open
DECIDED = "holds", "does not hold", "too small to matter", APART


def people_say(model: str) -> str:
    "Name of a model for people; what was done to it stands behind a comma"
    name, comma, treatment = model.partition(", ")
    return label(name) + comma + treatment


def one_verdict(said: Iterable[str], apart: str = DIFFER) -> str:
    """One verdict out of several: those that decide outweigh those that do not

    Args:
        said: verdicts
        apart: what to say where two that decide differ
    """
    verdicts = {*said}
    decided = verdicts & {*DECIDED, DIFFER}
    if len(decided) > 1:
        return DIFFER if DIFFER in decided else apart
    unknown_words = sorted(verdicts - {*MARKS})
    order = [*decided, "open", *unknown_words, "not testable here"]
    for verdict in order:
        if verdict in verdicts:
            return verdict
    return "not asked"


def _that_count(votes: list, model: str) -> list:
    "The votes about a model that count: of runs of this model, before all others; smoke runs where there is no other"
    counting = [vote for vote in votes if vote["model"] == model]
    tests = (
        lambda run: run.model == model,
        lambda run: run.profile != "smoke",
    )
    for test in tests:
        preferred = [vote for vote in counting if test(vote["notebook"])]
        counting = preferred or counting
    return counting


class Counted:
    """A claim with one verdict, whatever the number of models and runs, or that models differ

    Args:
        where: place of the claim in the paper
        says: the claim
        votes: what each run says, dicts: notebook, model, verdict, evidence, confirmed, about, told
    """

    def __init__(self, where: str, says: str, votes: list):
        self.where = where
        self.says = says
        models = sorted({vote["model"] for vote in votes})
        self.by = {model: _that_count(votes, model) for model in models}
        self.verdicts = {
            model: one_verdict(vote["verdict"] for vote in counting)
            for model, counting in self.by.items()
        }
        self.verdict = one_verdict(self.verdicts.values(), APART)
        abouts = (vote["about"] for vote in votes if vote["about"])
        self.about = next(abouts, "")
        # no empirical claim of the paper: one of ours, or a theorem
        is_ours = re.search(r"\bours\b", where.lower()) is not None
        self.ours = is_ours or "theorem" in self.about
        self.decided = self.verdict not in ("not asked", "not testable here")


def scoreboard(nbs: list) -> list:
    """What the runs of a paper say about its claims: list of `Counted`

    Args:
        nbs: of `executed.Notebook`
    """
    votes = {}
    for nb in nbs:
        for _, board in nb.outputs("board"):
            for row in board.value:
                # boards of older runs do not say what new rows confirm
                vote = dict(evidence="", about="", confirmed="") | row
                vote["notebook"] = nb
                vote["model"] = row.get("model", nb.model) or "all models"
                parts = "verdict", "evidence", "confirmed"
                vote["told"] = tuple(vote[part] for part in parts)
                claim = row["where"], row["says"]
                votes.setdefault(claim, []).append(vote)
    return [
        Counted(where, says, of_claim)
        for (where, says), of_claim in votes.items()
    ]


class Paper:
    """What all runs of one paper say

    Args:
        word: of the paper
        notebooks: its runs, each a `Notebook`; the last one has its title
    """

    def __init__(self, word: str, notebooks: list):
        self.word = word
        self.title = notebooks[-1].title
        # those of the paper first, then ours and theorems; the paper's own by their verdicts
        claims = scoreboard(notebooks)
        self.claims = sorted(claims, key=lambda claim: claim.ours)
        self.own = sorted(
            (claim for claim in claims if not claim.ours),
            key=lambda claim: [*MARKS, claim.verdict].index(claim.verdict),
        )
        # of the paper's claims, and of ours
        self.tally = [Counter(), Counter()]
        for claim in self.claims:
            self.tally[claim.ours][claim.verdict] += 1
        first_screen = takewhile(
            lambda cell: cell.cell_type == "markdown", notebooks[-1].cells
        )
        asked = {claim.says for claim in claims if claim.decided}
        self.curves = [one for one in curves(word) if one.says in asked]
        self.choices = choices(word) if self.curves else {}
        self.read_head("\n\n".join(cell.source for cell in first_screen))
        self.lead = self.lead_picture(notebooks)

    def read_head(self, source: str) -> None:
        "Take from the first screen: the question, what the paper found and came out here, authors to address"
        parts = source.split("\n\n")
        question, about = [*parts, "", ""][1:3]
        self.asks = question.lstrip("> ") if question.startswith("> ") else ""
        tables = (part for part in parts if part.startswith("| "))
        self.finds = next(tables, "")
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
        cure = "make some with `memnb run smoke`, or name their folder, as in `memnb report runs`"
        raise ValueError(f"no executed notebooks in {runs}: {cure}")
    return runs


def _write(file: Path, template: str, **parts) -> None:
    with replacing(file) as part:
        html = templates().get_template(template).render(**parts)
        part.write_bytes(html.encode("utf-8", "replace"))


def _write_pages(nbs: list, folder: Path, home: str) -> None:
    "Write a page a notebook, and remove pages of ours for runs that are gone"
    home = f"../{quote(home)}"
    for nb in nbs:
        file = folder / f"{nb.key}.html"
        _write(file, "notebook.html", nb=nb, home=home)
    keys = {nb.key for nb in nbs}
    for file in folder.glob("*.html"):
        if file.stem not in keys and is_page(file):
            file.unlink()


def batch_report(
    runs: Path = None, out: Path = None, changed: str = ""
) -> Path:
    """Write the report of a folder of runs, and a page for each notebook beside it

    Args:
        runs: folder of the runs; default: where memnb writes them
        out: file of the report; default: `report.html` in that folder
        changed: what differs from the rows that ship, in words

    Returns:
        the file

    Raises ValueError where there is nothing to report, and where a file of somebody else would be written over.
    """
    runs = runs_found(runs)
    out = Path(out or runs / "report.html")
    beside = out.with_name(f"{out.stem}_files")
    nbs, odd, lost = read_notebooks(runs)
    for file in (out, *(beside / f"{nb.key}.html" for nb in nbs)):
        may_write(file, is_page)
    by_paper = {}
    for nb in nbs:
        by_paper.setdefault(nb.paper, []).append(nb)
    papers = [Paper(word, of_paper) for word, of_paper in by_paper.items()]
    total = sum((paper.tally[False] for paper in papers), Counter())
    ours = sum((paper.tally[True] for paper in papers), Counter())
    verdicts = {*total, *ours}
    models = {
        people_say(model)
        for paper in papers
        for claim in paper.claims
        for model in claim.by
    }
    address = quote(beside.name)
    _write_pages(nbs, beside, out.name)
    _write(
        out,
        "report.html",
        changed=changed,
        label=people_say,
        notebooks=nbs,
        odd=odd,
        lost=lost,
        pages={nb.key: f"{address}/{quote(nb.key)}.html" for nb in nbs},
        papers=papers,
        models=sorted(models - {"all models"}),
        total=total,
        ours=ours,
        verdicts=[
            *(v for v in MARKS if v in DECIDED[:2] or v in verdicts),
            *sorted(verdicts - {*MARKS}),
        ],
    )
    return out
