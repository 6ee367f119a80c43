"""A page to begin a paper of one's own with."""

import json
import re
from pathlib import Path

from ..core import replacing, root
from ..papers import has_package, notebooks

_PAGE = """# TITLE

> One sentence: the question that the paper asks.

Ann Author (2026), *TITLE*.

**The paper** finds what, in a sentence, with its table or section.
---
#| default_exp WORD.method
---
profile: str = 'smoke'  # batch profile that sets the sizes; 'smoke' writes nothing
model: str = 'die'      # what is asked
n: int = 60             # throws
seed: int = 0           # of the throws
---
#| export
import random
---
#| hide
import pandas as pd
from fastcore.test import *
from IPython.display import Markdown
from .. import plots, results
from ..stats import binom_ci
---
## What we found

Computed from the rows that a run has recorded.
---
#| hide
try: recorded = results.selected(results.measured('WORD'))
except FileNotFoundError: recorded = None
---
if recorded is None: said = 'Nothing is recorded yet: `memnb run WORD.yaml` does it.'
else:
    r = recorded.iloc[0]
    said = (f'- {r.value:.0%} of throws repeat the last one '
            f'(95 % interval {r.low:.0%} to {r.high:.0%}, n = {r.n}).')
Markdown(said)
---
## Idea

The central equation, and what each symbol is in the code.
---
## How it works

One example from end to end. A throw repeats the last one with probability one half.
---
#| export
def throws(
    n: int,       # how many
    seed: int = 0 # of the random numbers
) -> list:        # numbers from 1 to 6
    "Throws of a die that remembers"
    rng, out = random.Random(seed), [1]
    while len(out) < n: out.append(out[-1] if rng.random() < .5 else rng.randint(1, 6))
    return out
---
test_eq(len(throws(10)), 10)
throws(10)
---
## Findings
---
out = throws(n, seed)
k = sum(a == b for a, b in zip(out, out[1:]))
low, high = binom_ci(k, n - 1)
now = pd.DataFrame([dict(part='throws', quantity='repeats', value=k/(n - 1), low=low, high=high,
                         n=n - 1, unit='throws')])
results.record('WORD', now, model, profile, seed, 'train')
meas = results.rows_to_show('WORD', now, model, 'train', profile, seed)
rep = results.reported('WORD')
---
def fig1(measured, reported):
    "Share of repeated throws, the paper's and ours"
    import matplotlib.pyplot as plt
    with plots.style():
        fig, ax = plt.subplots(figsize=(5, 2))
        plots.errorbar(ax, measured.assign(at=0), 'at', color=plots.REAL)
        ax.plot([1], reported.value[:1], 'o', color='black', mfc='white')
        ax.set(xticks=[0, 1], xticklabels=['here', 'paper'], xlim=(-.5, 1.5), ylim=(0, 1),
               ylabel='share repeated')
    ours, theirs = measured.value.iloc[0], reported.value.iloc[0]
    return plots.finish(fig, f'{ours:.0%} of throws repeat the last one; the paper has {theirs:.0%}',
                        f'n = {measured.n.iloc[0]} throws, 95 % interval',
                        'What is drawn, and how to read it.')

plots.savefig(fig1(meas, rep), 'WORD_fig1', profile)
---
## Claims

What the paper says, put to the rows. A claim has rows on which it holds and rows on which it fails.
---
#| export
import pandas as pd
from ..results import MODEL, Claim

def _remembers(m, rep):
    "More repeats than the paper's fair die?"
    r, fair = m[m.quantity == 'repeats'].iloc[0], rep.value.iloc[0]
    clear = r.low > fair or r.high < fair
    return bool(r.low > fair) if clear else 'undecided', f'{r.value:.2f} ({r.low:.2f} to {r.high:.2f})'

def _rows(low):
    row = dict(part='throws', quantity='repeats', value=low + .05, low=low, high=low + .1, n=99, model='die')
    return lambda: pd.DataFrame([row])

CLAIMS = [Claim('remembers', MODEL, 'Figure 1', 'The die remembers its last throw', _remembers,
                _rows(.4), _rows(.01))]
---
test_eq(results.untried(CLAIMS, rep), [])
results.show_board(results.board(CLAIMS, meas, rep), 'WORD', profile)
---
## What differs

| | paper | ours | effect on the numbers |
|---|---|---|---|
| Throws | a million | `n` | wider intervals |
---
## For the reading group

1. What would the paper have to show for its claim to be wrong?"""


def new_paper(
    word: str,  # of the paper, as in `memnb run`: small letters and digits
    folder: Path = None,  # where it starts; default: where memnb writes
) -> list:  # files: the page, the table of what the paper prints, a profile
    "Start a page for a paper of one's own"
    if not re.fullmatch("[a-z][a-z0-9]{1,30}", str(word)):
        raise ValueError(
            f"'{word}' is no word for a paper: take small letters and digits, as in icl"
        )
    if has_package(word):
        raise ValueError(f"memnb has a part named '{word}': take another word")
    top, known = Path(folder or root()), notebooks()
    known |= notebooks(top / "nbs") if (top / "nbs").is_dir() else {}
    if word in known:
        raise ValueError(f"there is a paper '{word}': {known[word].name}")
    number = max([int(f.name[:2]) for f in known.values()], default=9) + 1
    cells, sources = (
        [],
        _PAGE.replace("WORD", word).replace("TITLE", word.capitalize()).split("\n---\n"),
    )
    for i, source in enumerate(sources):
        text = re.match("#+ ", source)
        tags = dict(tags=["parameters"]) if source.startswith("profile: ") else {}
        folded = dict(jupyter=dict(source_hidden=True)) if source.startswith("#| hide") else {}
        own = (
            dict(cell_type="markdown")
            if text
            else dict(cell_type="code", execution_count=None, outputs=[])
        )
        cells.append(
            own | dict(id=f"{word}-{i}", metadata=tags | folded, source=source.splitlines(True))
        )
    kernel = dict(kernelspec=dict(display_name="python3", language="python", name="python3"))
    page = dict(cells=cells, metadata=kernel, nbformat=4, nbformat_minor=5)
    files = {
        top / f"nbs/{number}_{word}.ipynb": json.dumps(page, indent=1, ensure_ascii=False) + "\n",
        top / f"data/papers/{word}/reported.csv": "where,what,value\nFigure 1,repeats,0.1667\n",
        top / f"{word}.yaml": f"# sizes of a run: memnb run {word}.yaml\n- notebook: {word}\n"
        "  parameters: {n: 600}\n",
    }
    for file in files:
        if file.exists():
            raise ValueError(f"{file.name} is there already: nothing was written")
    for file, text in files.items():
        with replacing(file) as part:
            part.write_text(text, encoding="utf-8")
    return list(files)
