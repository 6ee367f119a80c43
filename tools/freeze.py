"""What shipped at commit 0e44263, as one file: boards, measured rows, and what every figure draws.

`python tools/freeze.py write` made data/frozen.zip; `python tools/freeze.py check [--pages] [PAPER ...]` compares
with it, and so does tests/test_frozen.py. Claims in DROPPED were cut on purpose; a figure in REDRAWN was changed.
Where a paper was measured anew, `write PAPER` freezes it again, and MOVED says which verdicts moved and why.
"""

import io
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
FILE = TOP / "data/frozen.zip"
PAPERS = {p.stem[3:]: p for p in sorted((TOP / "nbs").glob("1*_*.ipynb"))}
DROPPED = {  # paper: ids of claims of our own that were cut, and theorems that are tests now
    "tabular": "found correction",
    "icl": "table2 table3 threshold content twins twins_shots doses form topic world learned given_dose",
    "iclinf": """floor below calibration-shared memory size-cut learned-u learned-size learned-knows learned-shots
        learned-best duels used-falls""",
    "contextual": "learners optimal-most weighted learned falls alarms-counterfactual alarms-contextual",
    "capacity": "printed-law consistent-law table1 mean2 mean3 foretold",
    "compare": """implies cut extraction-blind recollection-blind loss-sees one-reference best-epoch dose-agrees fuller few-models
        partner prompt""",
}
DROPPED = {paper: ids.split() for paper, ids in DROPPED.items()}
UNJUDGED = {("icl", m) for m in ("planted:news", "smollm2", "planted:file", "planted:file-swapped")}
# of icl the claims are judged by two halves together, and not by models whose memories nobody knows
REDRAWN = {  # paper: names of figures that draw something else now, or are gone
    "tabular": "tabular_x_completion tabular_x_truth",  # their counts stand in other figures
    # the normal quantile is 1.95996 and no longer 1.96; two figures stand in nbs/extra
    "icl": """icl_x_elements icl_x_cost icl_x_neighbours icl_x_swap icl_x_found icl_fig2 icl_fig3 icl_fig4 icl_x_copies
        icl_x_dose icl_x_world""",
    "iclinf": "",
    "contextual": "",  # contextual_x_learners: twelve replicates of SmolLM2 on 16 strings of L4m instead of six; frozen anew
    "capacity": "capacity_fig18",  # the law is cut off at an F1 of 1
    "compare": "compare_fig3 compare_fig4",  # one figure of three panels
}


MOVED = {  # paper: claim -> what its verdict was, is, and why
    "tabular": {
        "no rows": "of a model that remembers nothing -> of the printed counts: holds",
        "spaceship": "of a model that remembers nothing -> of the printed counts: holds",
        "consistent": "undecided -> of the printed signs: holds",
        "unknown": "undecided -> holds, of 14 invented tables, 7 of them fine-tuned",
        "first copies": "not measured -> holds, of a model fine-tuned on the first rows more often",
        "cause": "undecided -> holds, of the same model",
        "header": "undecided -> does not hold: four splits miss a known table with probability .026 at most",
        "header only": "undecided -> does not hold: the same",
        "eyes": "undecided -> holds: a header counts as missed where four splits miss it; lower ends of intervals",
        "diverse": "holds -> undecided: all samples at the lowest temperature are outside the data; of planted:samples, whose samples are within the data: new, holds",
        "support": "holds -> undecided: the same; of planted:samples, whose samples are within the data: new, holds",
        "written": "does not hold, again: units are samples, 20 of 400 are valid at the highest temperature",
        "california": "holds -> undecided: units are samples, not pairs of features; 575 of them, .52, and the bound is .5; 158,823 would decide",
        "titanic": "undecided, as before: 2354 valid samples, .35 (.07 to .57). After 576 of them, .46 (.39 to .51), as many were drawn as were then said to decide, once; single values of 1e14 carry Pearson's r, so that more do not narrow it",
        "exposure": "of both halves, holds -> undecided: a row a table, within labels; on Iris 40 rows may gain nothing; 167 would decide, and its file has 150",
        "diabetes": "not measured -> holds: 150 samples drawn, 128 of them valid",
        "predict adult": "undecided -> does not hold: all 850 answers are the label of the majority, with which they are compared on the same rows; before, on 4000 others. That less than a point is no advantage was set after they were seen",
        "predict titanic": "undecided -> does not hold: on a par is within ten points",
        "predict diabetes": "undecided -> does not hold: the same",
    },
    "icl": {
        "surface": "undecided -> holds of five topics: both halves as one experiment, k = 25 alone; does not hold of three, new",
        "smallest": "undecided -> holds of five topics, k = 5; does not hold of three topics, new",
        "exact": "holds -> holds: at the k of `surface`, four draws of cuts and demonstrations; does not hold of three topics, new",
        "context": "undecided, as before; does not hold of three topics, new",
        "own_control": "holds -> does not hold: in the models of three topics next to nothing comes back in the frame",
        "key": "undecided, as before: five draws in place of one; own pairs over none is decided, over foreign ones not",
        "labels": "undecided -> holds: in the bridged models, where half of the texts come back",
        "called": "undecided -> does not hold: the same",
        "memorized": "undecided -> does not hold: each text classified by the model that was shown it and the one that was not",
        "stable": "undecided -> holds: the bridged models, up to 200 demonstrations",
        "explicit": "new -> holds: exact matches from 100 to 200",
        "levels": "new -> holds: from 25 to 200",
        "shuffled": "new -> holds: wrong labels, §5.3",
        "printed-surface": "new -> holds: the paper's printed rates",
        "doubles": "new -> undecided: the paper's printed rates",
        "instruction": "new -> does not hold: four draws of cuts say less than ten points; of three topics, too",
    },
    "iclinf": {
        "order-2": "does not hold -> holds: the paper's sentence is about the smallest order of the grid",
        "tuned": "does not hold -> not measured: the packaged model is instruction-tuned, and no base of it is packaged",
        "u-shape": "undecided -> does not hold (tuned): one estimate of three data sets, both ends must be above the middle",
        "learns": "holds -> holds: the slope over three trainings, on a set above chance, in place of one training and sets at chance",
        "knows-query": "undecided -> does not hold (as it is): all of the interval is above -.1, a small correlation",
        "steepest": "undecided -> does not hold: 200 queries, and .3 nats as the bound of a steeper fall",
        "ratio-falls": "was used-falls, undecided -> holds: the ratio, as in the paper; it falls for a model that leaks nothing",
        "attack": "was duels -> holds: two prompts at temperature .25, of which one leaks on purpose; at least 3 must be shown",
        "truth": "new -> holds: ours, mechanisms whose epsilon is known",
    },
    "compare": {
        "lira-best": "holds -> holds: now a difference on the same texts, in each of five worlds and in their mean",
        "unlike": "holds -> does not hold: in one of five worlds contextual and loss rank alike, .61 (.505 to .70)",
        "false-calls": "holds -> holds: the counterfactual measure, named beforehand, in place of any measure",
        "fine-tune": "does not hold -> does not hold: asked again of new trainings of the same recipe",
    },
    "capacity": {
        "linear": "undecided -> does not hold: five models whose training has ended, by twice the steps, in rows of a GPU; the rule is the same",
        "precision": "of `laptop`, undecided -> holds: five pairs of the new recipe",
        "sample": "of `laptop`, undecided -> not measured: no size beyond the smaller model's capacity is left in it",
        "bits": "undecided -> mixed: split at its ends; 1x16 would end below 3.5, 4x32 and 2x64 hold more; in rows of the GPU alone holds -> undecided: 1x64 has not ended",
        "bits-high": "new -> holds: the other end of `bits`, where training ends",
        "plateau": "undecided -> mixed: asks that bits do not rise; at equal steps they do not, at equal passes they do",
        "sample of night": "undecided -> holds: only sizes beyond the smaller model count",
        "oracle": "undecided -> does not hold: asked up to 1536 texts; the top is found on other replicates",
        "descent": "undecided -> holds: the raw loss, as in the paper, and sizes between",
        "descent-place": "new -> undecided: where that peak stands, .3 of the capacity",
        "member-random": "undecided -> holds: a full model with up to 32768 sequences of four tokens",
        "member-fails": "undecided -> holds: the same trainings",
        "law": "undecided -> does not hold: no longer open because bits still grew",
        "limit": "undecided -> holds: 14336 texts, five replicates",
        "length": "undecided -> does not hold: cells alike in bits per parameter, 25600 steps",
        "vocab": "undecided -> holds: the same",
        "hump": "undecided -> mixed: a reference on other texts as a control does not see it",
        "member-law": "new -> undecided: ours, F1 = Phi(sqrt(b/2))",
        "end": "new -> does not hold: ours, 1x8 misses, 1x16 and 1x32 do not",
    },
    "contextual": {
        "counterfactual-L4m": "undecided -> holds: the mean of Kendall's correlation is below .2 (most starts are ties)",
        "inverse-L2": "undecided -> holds: the same statistic, instead of sign tests of every pair of strings",
        "inverse-L4m": "undecided -> holds: the same",
        "sizes": "undecided -> holds: recollection minus contextual in each replicate",
        "alarms": "new -> holds: the paired difference of two measures instead of two limits of a tenth",
        "controls": "new -> holds: ours, the order by recollection of strings that were never trained on",
        "general": "undecided still: three languages of seven, three not, L3 open with 200 replicates",
        "natural": "undecided still: 48 replicates; L4m does not disagree, L2 does at 95 % but not at the 97.5 % of two cases",
    },
}


def numbers(values):
    "Numbers as they are compared: five significant digits"
    import numpy as np

    return [[float(f"{x:.5g}") for x in row] for row in np.atleast_2d(np.asarray(values, float))]


def drawn(fig):
    "What a figure draws: points of lines, corners of bars and bands, places of markers, a list for each axes"
    out = []
    for ax in fig.axes:
        parts = [["line", numbers(x.get_xydata())] for x in ax.lines if len(x.get_xydata())]
        parts += [
            ["patch", numbers(p.get_path().transformed(p.get_patch_transform()).vertices)]
            for p in ax.patches
        ]
        for c in ax.collections:
            if len(c.get_offsets()) > 1 or not c.get_paths():
                parts.append(["points", numbers(c.get_offsets())])
            else:
                parts += [["path", numbers(p.vertices)] for p in c.get_paths() if len(p.vertices)]
        parts += [["image", numbers(i.get_array().filled(-1e9))] for i in ax.images]
        out.append([ax.get_xscale(), ax.get_yscale(), parts])
    return out


def page(word):
    "Run a page with its default parameters; its board and what its figures draw"
    from memnb import claims, plots

    found = dict(board=[], figures={})
    real, save = claims.Verdicts, plots.savefig

    def show(board, *a, **kw):
        found["board"] += [[r.id, r.model, r.verdict, r.evidence] for r in board.itertuples()]
        return real(board, *a, **kw)

    def keep(fig, name, *a, **kw):
        found["figures"][name] = drawn(fig)
        return save(fig, name, *a, **kw)

    claims.Verdicts, plots.savefig = show, keep
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    os.chdir(TOP / "nbs")
    for c in json.loads(PAPERS[word].read_text(encoding="utf8"))["cells"]:
        if c["cell_type"] == "code":
            shell.run_cell("".join(c["source"])).raise_error()
    return found


def pages(words=PAPERS):
    "Boards and figures of pages, each in a process of its own on the answers that ship"
    out = {}
    with tempfile.TemporaryDirectory() as tmp:
        env = os.environ | dict(
            MEMNB_STORE=f"{tmp}/store.sqlite", MEMNB_HOME=f"{tmp}/home", MPLBACKEND="agg"
        )
        Path(tmp, "home").mkdir()
        take = "from memnb.run.replay import take_in; from memnb.store import Store; import os; take_in(Store(os.environ['MEMNB_STORE']))"
        subprocess.run([sys.executable, "-c", take], env=env, check=True, cwd=TOP)
        for word in words:
            to = Path(tmp, word)
            subprocess.run(
                [sys.executable, __file__, "page", word, to],
                env=env,
                check=True,
                stdout=subprocess.DEVNULL,
            )
            out[word] = json.loads(to.read_text())
    return out


def runs(words=PAPERS):
    "Verdicts of every stored run: {paper: {run: [[id, model, verdict], ...]}}"
    from memnb.difference import RUN, verdicts
    from memnb.results import completed, measured

    out = {}
    for word in words:
        rows = measured(word)
        key = completed(rows, RUN).agg(lambda r: f"{r.profile}|{r.variant}|{r.seed:g}", axis=1)
        out[word] = {
            k: sorted([*i, v] for i, v in verdicts(word, rows[key == k]).items())
            for k in dict.fromkeys(key)
        }
    return out


def write(words=PAPERS):
    "Freeze what ships of some papers; the others stay as they are"
    from memnb.results import measured

    made = {"pages.json": pages(words), "runs.json": runs(words)}
    kept = {} if set(words) == set(PAPERS) else {name: frozen(name) for name in made}
    made = {name: json.dumps(kept.get(name, {}) | new) for name, new in made.items()}
    for word in PAPERS:
        buf = io.BytesIO()
        rows = measured(word) if word in words else frozen(f"{word}.parquet")
        rows.to_parquet(buf, compression="zstd", index=False)
        made[f"{word}.parquet"] = buf.getvalue()
    with zipfile.ZipFile(FILE, "w", zipfile.ZIP_LZMA) as z:
        for name, data in made.items():
            z.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), data, zipfile.ZIP_LZMA)


def frozen(name):
    "A part of the frozen file"
    with zipfile.ZipFile(FILE) as z:
        data = z.read(name)
    if name.endswith(".json"):
        return json.loads(data)
    import pandas as pd

    return pd.read_parquet(io.BytesIO(data))


def unlike_verdicts(paper, where, was, now):
    "Lines about verdicts that differ: dicts of (id, model) -> verdict"
    was = {
        k: v
        for k, v in was.items()
        if k[0] not in DROPPED.get(paper, ()) and (paper, k[1]) not in UNJUDGED
    }
    for k in sorted({*was, *now}):
        if was.get(k) != now.get(k):
            yield f"{paper} {where} claim {k}: {was.get(k)} -> {now.get(k)}"


def unlike_rows(paper):
    "Lines about measured rows that differ"
    from memnb.results import KEYS, measured

    was, now = frozen(f"{paper}.parquet"), measured(paper)
    columns = sorted({*was, *now})
    order = [c for c in KEYS if c in columns]

    def plain(d):
        d = d.reindex(columns=columns).astype(object).where(d.reindex(columns=columns).notna(), "")
        d = d.map(lambda x: float(x) if isinstance(x, (int, float)) else x)
        return d.sort_values(order, key=lambda c: c.map(repr)).reset_index(drop=True)

    was, now = plain(was), plain(now)
    if len(was) != len(now):
        yield f"{paper}: {len(was)} rows -> {len(now)}"
    else:
        for c in columns:
            if (was[c] != now[c]).any():
                yield f"{paper}: column {c} differs in {(was[c] != now[c]).sum()} rows"


def unlike_figures(paper, was, now):
    "Lines about figures that draw something else"
    for name in sorted({*was, *now}):
        if name not in REDRAWN.get(paper, ()) and was.get(name) != now.get(name):
            yield f"{paper}: figure {name} draws something else"


def check(words, also_pages=False):
    "Lines about what is not as it was frozen"
    now, was = runs(words), frozen("runs.json")
    for w in words:
        yield from unlike_rows(w)
        for run in sorted({*was[w], *now[w]}):
            before, after = ({(i, m): v for i, m, v in d[w].get(run, ())} for d in (was, now))
            yield from unlike_verdicts(w, run, before, after)
    if also_pages:
        now, was = pages(words), frozen("pages.json")
        for w in words:
            before, after = ({(i, m): v for i, m, v, _ in d[w]["board"]} for d in (was, now))
            yield from unlike_verdicts(w, "page", before, after)
            yield from unlike_figures(w, was[w]["figures"], now[w]["figures"])


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["write", *words]:
            write(words or PAPERS)
        case ["page", word, to]:
            found = page(word)
            Path(to).write_text(json.dumps(found))
        case ["check", *words]:
            lines = [*check([w for w in words if w != "--pages"] or [*PAPERS], "--pages" in words)]
            print(*lines or ["as frozen"], sep="\n")
            sys.exit(bool(lines))
        case _:
            sys.exit(__doc__)
