"Each test of a claim says yes, no and neither; a claim is data; boards are made from rows alone."

import math

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from memnb import claims, core, results
from memnb.claims import ABOUT, Claim, board, combine, forest, judge, read, verdict

PAPERS = "tabular icl iclinf contextual capacity compare".split()
numbers = some.floats(-50, 50).map(lambda x: round(x, 3))
halves = some.floats(0.01, 20).map(lambda x: round(x, 3))
votes = some.lists(some.sampled_from([True, False, "undecided", None]), min_size=1, max_size=6)


def rows(*cases):
    "Rows of (value, half-width, more columns)"
    return pd.DataFrame(
        [
            dict(value=v, low=v - h, high=v + h, n=10, unit="texts", guard="") | more
            for v, h, more in cases
        ]
    )


def said(test, d, **args):
    return judge(test, d, **args)[0]


@given(numbers, halves, numbers)
def test_a_bound_follows_the_interval(value, half, at):
    d = rows((value, half, {}))
    want = True if value - half > at else False if value + half <= at else "undecided"
    assert said("bound", d, at=at) == want
    turned = {True: False, False: True, "undecided": "undecided"}
    if at not in (value - half, value + half):
        assert said("bound", d, at=at, side="below") == turned[want]


@given(numbers, halves, some.floats(0.1, 10))
def test_shifted_rows_turn_a_bound(value, half, far):
    d = rows((value, half, {}))
    for move, want in ((half + far, True), (-half - far, False), (0, "undecided")):
        assert (
            said("bound", d.assign(**{c: d[c] + move for c in ("value", "low", "high")}), at=value)
            == want
        )


@given(numbers, halves, some.floats(0.1, 10))
def test_a_gain_too_small_to_matter_is_a_no(value, half, far):
    "With `refuted_at` an interval around the bound refutes, where it leaves out what would matter"
    d = rows((value, half, {}))
    for side, sign in (("above", 1), ("below", -1)):
        at, no = value - sign * half / 2, value + sign * (half + far)
        assert said("bound", d, at=at, side=side) == "undecided"
        assert said("bound", d, at=at, side=side, refuted_at=no) is False
        assert said("bound", d, at=at - sign * (half + far), side=side, refuted_at=no) is True


@given(numbers, halves, halves)
def test_between(value, half, room):
    d = rows((value, half, {}))
    around = dict(low=value - half - room, high=value + half + room)
    assert said("between", d, **around) is True
    assert said("between", d, low=value + half + room, high=value + half + 2 * room) is False
    assert said("between", d, low=value, high=value + half + room) == "undecided"


@settings(max_examples=10)
@given(some.integers(30, 200))
def test_share_and_sign(n):
    def counts(k):
        return pd.DataFrame([dict(value=k, n=n, guard="")])

    for test in ("share", "sign"):
        assert [said(test, counts(k)) for k in (n, 0)] == [True, False]
        assert said(test, counts(n // 2)) == "undecided"


@given(some.lists(numbers, min_size=6, max_size=12, unique=True))
def test_trend(values):
    d = pd.DataFrame(dict(value=sorted(values), x=range(len(values))))
    assert said("trend", d, by="x") is True and said("trend", d, by="x", side="below") is False
    assert said("trend", d[:4], by="x") == "undecided"
    assert said("trend", d.assign(value=1.0), by="x") == "undecided"


@given(numbers, some.floats(0.01, 5))
def test_printed_and_never(x, within):
    d = pd.DataFrame([dict(value=x, x=x + within / 2), dict(value=x, x=x)])
    assert said("printed", d, within=within) is True
    assert said("printed", d, within=within / 4) is False
    assert said("never", pd.DataFrame(dict(value=[0, 0]))) is True
    assert said("never", pd.DataFrame(dict(value=[0, 1]))) is False


@given(votes)
def test_cases_are_combined(v):
    everything, anything = combine(v, "all"), combine(v, "any")
    if all(x is None for x in v):
        assert everything is anything is combine(v, "most") is None
        return
    assert (everything is True) == all(x is True for x in v) and (everything is False) == (
        False in v
    )
    assert (anything is True) == (True in v)
    if True in v and False in v:
        assert combine(v, "most") == combine(v, "always") == "mixed"
    assert combine([True, True, "undecided"], "most") is True
    assert combine([True, True, "undecided"], "always") == "undecided"


def test_a_guard_and_a_missing_number_decide_nothing():
    d = rows((5, 1, dict(guard="one label only")))
    assert said("bound", d) == "undecided"
    assert (
        "one label only"
        in verdict(Claim(id="a", about=ABOUT[2], where="ours", says="x", rows="value > 0"), d)[
            "evidence"
        ]
    )
    assert said("bound", d.assign(value=math.nan)) is None


def test_evidence_is_short_and_says_what_would_decide():
    d = rows(*[(0.5, 1.0, dict(other=f"case {i} of a rather long name")) for i in range(9)])
    v = verdict(Claim(id="a", about=ABOUT[2], where="ours", says="x", rows="value > 0"), d)
    assert v["verdict"] == "undecided" and "would decide" in v["evidence"]
    assert len(v["evidence"].split()) <= 25


@pytest.mark.parametrize("wrong", [dict(about="a cat"), dict(test="bond")])
def test_a_claim_that_cannot_be_is_refused(wrong):
    with pytest.raises(ValueError, match="Input should be"):
        Claim(**dict(id="a", about=ABOUT[0], where="ours", says="x") | wrong)


@pytest.mark.parametrize("paper", PAPERS)
def test_claims_are_data(paper):
    "Ids, and at most four claims of our own a paper"
    found = read(paper)
    if not found:
        pytest.skip(f"{paper} has its claims in Python")
    assert len({c.id for c in found}) == len(found)
    own = [c.id for c in found if c.where.startswith("ours")]
    assert len(own) <= 4, f"{paper} has {len(own)} claims of its own: {own}"


def test_board_and_forest(tmp_path, monkeypatch):
    "A reader's own rows and claims, from a folder of her own"
    import matplotlib

    matplotlib.use("agg")
    monkeypatch.setenv("MEMNB_HOME", str(tmp_path))
    folder = tmp_path / "data/papers/dice"
    folder.mkdir(parents=True)
    (folder / "claims.yaml").write_text(
        "- {id: fair, about: a model, where: Figure 1, says: A die is fair, rows: quantity == 'rate', test: between, low: .1, high: .3}\n"
        "- {id: lucky, about: models, where: ours, says: It shows more than twos, rows: quantity == 'mean', at: 2}\n"
    )
    m = rows(
        (0.2, 0.05, dict(quantity="rate", model="die")),
        (3.5, 0.2, dict(quantity="mean", model="die")),
    )
    b = board("dice", m, pd.DataFrame())
    assert b[["id", "model", "verdict"]].values.tolist() == [
        ["fair", "die", "holds"],
        ["lucky", "", "holds"],
    ]
    ax = forest(b)
    assert [t.get_text() for t in ax.get_yticklabels()] == [
        "A die is fair",
        "It shows more than twos",
    ]
    assert board("dice", m[:0].assign(model=""), pd.DataFrame()).verdict.tolist() == [
        "not measured"
    ]


def judged_rows(paper, monkeypatch):
    "Claims that hold intervals against a bound, each with the rows that its board reads of the largest run that ships"
    m, seen = results.measured(paper), []
    run = [c for c in ("profile", "variant", "seed") if c in m]
    _, m = max(m.groupby(run, dropna=False), key=lambda g: len(g[1]))
    monkeypatch.setattr(claims, "verdict", lambda c, d: seen.append((c, d)) or verdict(c, d))
    board(paper, m.dropna(axis=1, how="all"))
    for c, d in seen:
        d = claims.queried(d, c.rows or f"part == 'claim' and item == '{c.id}'")
        if c.test in ("bound", "between", "printed") and len(d):
            yield c, d.assign(guard="")


@pytest.mark.parametrize("paper", PAPERS)
def test_every_claim_on_intervals_turns(paper, monkeypatch):
    "The rows of a claim, moved to either side of its bound"
    if not read(paper):
        pytest.skip(f"{paper} has its claims in Python")
    for c, d in judged_rows(paper, monkeypatch):
        low, high = c.model_extra.get("low", -math.inf), c.model_extra.get("high", math.inf)
        if c.test == "printed":
            yes, no = d.x, d.x + 2 * c.model_extra["within"]
        elif c.test == "between":
            yes, no = (low + high) / 2, high + 1
        else:
            up = 1 if c.model_extra.get("side", "above") == "above" else -1
            yes, no = (c.model_extra.get("at", 0) + up * far for far in (1, -1))
        for value, want in ((yes, True), (no, False)):
            moved = d.assign(value=value, low=value, high=value)
            assert judge(c.test, moved, **c.model_extra)[0] is want, f"{c.id} at {value}"


@pytest.mark.parametrize("paper", ["compare", "icl"])
def test_the_board_that_ships_is_that_of_all_rows(paper):
    "Whoever judges a paper, by whatever call, judges the same rows: those of the runs that figures read"
    own = board(paper)
    own = own[own.verdict != "not measured"].sort_values(["id", "model"])
    ships = pd.read_csv(core.paper_file(paper, "board.csv"), keep_default_na=False)
    assert own[["id", "model", "verdict"]].values.tolist() == ships.values.tolist()
