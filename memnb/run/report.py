"""One page about a batch: what was found, which claims hold, figures, tables, and where every number comes from."""

import re
from collections import Counter
from pathlib import Path
from urllib.parse import quote

from ..core import replacing, require, root
from ..plots import label
from ..rendering import DIFFER, MARKS, templates
from .executed import read_notebooks, run_files
from .ours import is_page, may_write

APART = "models differ"
DECIDED = "holds", "does not hold", "too small to matter", APART


def people_say(model: str) -> str:
    "Name of a model for people; what was done to it stands behind a comma"
    name, comma, rest = model.partition(", ")
    return label(name) + comma + rest


def one_verdict(said, apart: str = DIFFER) -> str:
    "One verdict out of several: those that decide outweigh those that do not; `apart` where two differ"
    decided = {v for v in said if v in (*DECIDED, DIFFER)}
    if len(decided) > 1:
        return DIFFER if DIFFER in decided else apart
    order = [*decided, "open", *sorted({*said} - {*MARKS}), "not testable here"]
    return next((v for v in order if v in said), "not asked")


class Counted:
    "A claim with one verdict, whatever the number of models and runs, or that models differ"

    def __init__(self, where: str, says: str, votes: list):
        "`votes` are dicts: notebook, model, verdict, evidence, about, told"
        self.where, self.says, self.by = where, says, {}  # model -> the votes that count
        for model in sorted({v["model"] for v in votes}):
            # a run speaks for its own model; others are heard, and smoke runs, where there is none
            found = [v for v in votes if v["model"] == model]
            found = [v for v in found if v["notebook"].model == model] or found
            self.by[model] = [v for v in found if v["notebook"].profile != "smoke"] or found
        self.verdicts = {m: one_verdict([v["verdict"] for v in vs]) for m, vs in self.by.items()}
        self.verdict = one_verdict(self.verdicts.values(), APART)
        self.about = next((v["about"] for v in votes if v["about"]), "")
        # no empirical claim of the paper: one of ours, or a theorem
        self.ours = bool(re.search(r"\bours\b", where.lower())) or "theorem" in self.about
        self.decided = self.verdict not in ("not asked", "not testable here")


def scoreboard(nbs: list) -> list:
    "What the runs of a paper, each a `Notebook`, say about its claims: list of `Counted`"
    found = {}
    for nb in nbs:
        for r in (r for _, o in nb.outputs("board") for r in o.value):
            model = r.get("model", nb.model) or "all models"
            vote = dict(evidence="", about="") | r | dict(notebook=nb, model=model)
            vote["told"] = vote["verdict"], vote["evidence"]
            found.setdefault((r["where"], r["says"]), []).append(vote)
    return [Counted(*claim, votes) for claim, votes in found.items()]


class Paper:
    "What all runs of one paper say"

    def __init__(self, word: str, notebooks: list):
        self.word, order = word, [*MARKS]
        self.title = notebooks[-1].title
        # those of the paper first, then ours and theorems; the paper's own by their verdicts
        self.claims = sorted(scoreboard(notebooks), key=lambda c: c.ours)
        own = [c for c in self.claims if not c.ours]
        self.own = sorted(own, key=lambda c: [*order, c.verdict].index(c.verdict))
        self.tally = [Counter(c.verdict for c in self.claims if c.ours == k) for k in (False, True)]
        # of its first cell: question, what the paper found and came out here, authors to address
        head = [*notebooks[-1].cells[0].source.split("\n\n"), "", ""]
        self.asks = head[1].lstrip("> ") if head[1].startswith("> ") else ""
        self.finds = next((p for p in head if p.startswith("| ")), "")
        cut = re.match(r"(?s).*?\*[^*]+\*.*?\.(?=\s|$)", head[2])
        self.source = cut[0] if cut else head[2]
        # the picture of its claims of the first run that has one, a smoke run last; else None
        small_last = sorted(notebooks, key=lambda nb: nb.profile == "smoke")
        pictures = (co for nb in small_last for co in nb.outputs("picture"))
        self.lead = next((o for c, o in pictures if "What holds" in c.section), None)


def runs_found(runs: Path = None) -> Path:
    "Folder of runs to report on, asked before anything slow is done; ValueError where it has none"
    require("mistune", "report")
    runs = Path(runs or root() / "runs")
    if not any(run_files(runs, name) for name in ("*.ipynb", "batch.jsonl")):
        how = "make some with `memnb run smoke`, or name their folder, as in `memnb report runs`"
        raise ValueError(f"no executed notebooks in {runs}: {how}")
    return runs


def batch_report(runs: Path = None, out: Path = None, changed: str = "") -> Path:
    """Write the report of a folder of runs, `report.html` in it or `out`, and a page for each notebook beside it.

    `changed` says what differs from the rows that ship. ValueError where there is nothing to report.
    """
    runs = runs_found(runs)
    out = Path(out or runs / "report.html")
    nbs, odd, lost = read_notebooks(runs)
    words = dict.fromkeys(nb.paper for nb in nbs)
    papers = [Paper(w, [nb for nb in nbs if nb.paper == w]) for w in words]
    total, ours = (sum((p.tally[k] for p in papers), Counter()) for k in (0, 1))
    said = {*total, *ours}
    models = {people_say(m) for p in papers for c in p.claims for m in c.by} - {"all models"}
    beside = out.with_name(f"{out.stem}_files")
    pages = {nb.key: f"{quote(beside.name)}/{quote(nb.key)}.html" for nb in nbs}

    def write(file, template, **parts):
        with replacing(file) as part:
            html = templates().get_template(template).render(**parts)
            part.write_bytes(html.encode("utf-8", "replace"))

    for file in (out, *(beside / f"{key}.html" for key in pages)):
        may_write(file, is_page)
    for nb in nbs:
        write(beside / f"{nb.key}.html", "notebook.html", nb=nb, home=f"../{quote(out.name)}")
    for f in beside.glob("*.html"):  # pages of ours for runs that are gone
        if f.stem not in pages and is_page(f):
            f.unlink()
    verdicts = [v for v in MARKS if v in DECIDED[:2] or v in said] + sorted(said - {*MARKS})
    found = dict(notebooks=nbs, odd=odd, lost=lost, pages=pages, papers=papers)
    found |= dict(models=sorted(models), total=total, ours=ours, verdicts=verdicts)
    write(out, "report.html", changed=changed, label=people_say, **found)
    return out
