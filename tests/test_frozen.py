"Rows and verdicts are those that shipped when this round began; the pages' boards and figures too."

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))
import freeze

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("paper", freeze.PAPERS)
def test_rows_and_verdicts_are_as_frozen(paper):
    assert not [*freeze.check([paper])]


@pytest.mark.parametrize("paper", freeze.PAPERS)
def test_boards_and_figures_of_pages_are_as_frozen(paper):
    assert not [*freeze.check([paper], also_pages=True)]


def test_a_turned_verdict_is_seen():
    was, now = (
        {("a", ""): "holds", ("b", "x"): "mixed"},
        {("a", ""): "undecided", ("b", "x"): "mixed"},
    )
    assert [*freeze.unlike_verdicts("tabular", "page", was, now)] == [
        "tabular page claim ('a', ''): holds -> undecided"
    ]
    assert [*freeze.unlike_figures("tabular", {"f": [[1.0]]}, {"f": [[2.0]]})] == [
        "tabular: figure f draws something else"
    ]
