"""What every figure draws from the rows that ship, as text: axes, labels, legends, and the first points of each series.

`python tools/figures.py --text` writes tests/figures/*.txt anew after a figure was changed on purpose; git shows how.
"""

import re
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from test_repo import PAPERS

TOP = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP / "tools"))
import figures  # noqa: E402


@pytest.mark.parametrize("word", PAPERS)
def test_figures_draw_what_their_text_says(word):
    was = (figures.TEXTS / f"{word}.txt").read_text(encoding="utf8")
    found = figures.differences(was, figures.text_of(word))
    assert not found, "\n".join(
        ["look at these, then: python tools/figures.py --text " + word, *found]
    )


SAID = re.compile(r"^  said '(.*)'$|^  said \"(.*)\"$", re.M)
INTERVAL = re.compile(
    r" · ((bars|bands|lower bounds|interval of r): |no inter)"
)


@pytest.mark.parametrize("word", PAPERS)
def test_feet_say_n_and_interval(word):
    "Of whatever is no table the foot says n, and which interval is drawn or that none is"
    text = (figures.TEXTS / f"{word}.txt").read_text(encoding="utf8")
    silent = {}
    for figure in text.strip().split("\n\n"):
        name, first = figure.splitlines()[:2]
        said = ["".join(part) for part in SAID.findall(figure)]
        if first.startswith("  table of"):
            continue
        foot = said[-1] if len(said) == 2 else ""
        if not ("n = " in foot and INTERVAL.search(foot)):
            silent[name] = foot
    assert not silent


def sketch(**change):
    "A small figure of one labelled series with error bars, beside bars and a line, as text"
    given = dict(
        label="near-exact",
        low=0.1,
        colour="#D55E00",
        x="demonstrations",
        scale="linear",
    )
    given |= change
    fig, ax = plt.subplots()
    arms = [[given["low"], 0.1], [0.3, 0.2]]
    ax.errorbar(
        [1, 2],
        [0.5, 0.6],
        yerr=arms,
        fmt="o",
        color=given["colour"],
        label=given["label"],
    )
    ax.bar(["a name", "another"], [3, 4])
    ax.axhline(0.25, ls="--")
    ax.set(
        xlabel=given["x"],
        ylabel="recall",
        yscale=given["scale"],
        title="a title",
    )
    ax.legend(title="matches")
    text = figures.described(fig)
    plt.close(fig)
    return f"fig1\n{text}"


def test_text_of_a_figure_has_words_and_numbers():
    text = sketch()
    for part in (
        "title 'a title'",
        "x 'demonstrations' linear",
        "ticks 'a name | another'",
        "legend 'matches | near-exact'",
        "points o #d55e00 'near-exact': 2 in 1, mean (1.5, 0.55), first (1, 0.5) (2, 0.6)",
        "error bars #d55e00 'near-exact': 2 in 1, mean (1.5, 0.45, 1.5, 0.8), first (1, 0.4, 1, 0.8)",
        "bars #1f77b4 '': 2 in 1, mean (0.1, 0, 0.9, 3.5), first (-0.4, 0, 0.4, 3) (0.6, 0, 1.4, 4)",
        "line -- #1f77b4 '': 2 in 1, mean (0.5, 0.25), first (0, 0.25) (1, 0.25)",
    ):
        assert part in text, f"{part}\n{text}"


@pytest.mark.parametrize(
    "change",
    [
        dict(label="exact"),
        dict(low=0.2),
        dict(colour="#0072B2"),
        dict(x="recall"),
        dict(scale="log"),
    ],
)
def test_a_changed_figure_is_seen(change):
    found = figures.differences(sketch(), sketch(**change))
    assert found and all(line.startswith("fig1: ") for line in found)


def test_machines_may_differ_in_the_last_digit_only():
    was = "fig1\n line #0072b2 'a1': 2 in 1, first (1, 0.125)"
    assert not figures.differences(was, was.replace("0.125", "0.126"))
    assert figures.differences(was, was.replace("0.125", "0.128"))
    assert figures.differences(was, was.replace("a1", "a2"))
    assert figures.differences(was, was.replace("0072b2", "0072b3"))
    other = was.replace("fig1", "fig2")
    assert figures.differences(was, other) == [
        "fig1: no longer drawn",
        "fig2: new",
    ]
