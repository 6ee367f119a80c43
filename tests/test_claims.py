"A verdict is one picture: each word that ships follows from the numbers that are drawn, and no other."

import math
import os
import subprocess
import sys

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as some

from memnb import claims, core, results
from memnb.claims import (
    ABOUT,
    Claim,
    Rules,
    board,
    estimate,
    forest,
    judge,
    read,
    word,
)

PAPERS = "tabular icl iclinf contextual capacity compare".split()
numbers = some.floats(-50, 50).map(lambda x: round(x, 3))
widths = some.floats(0.01, 20).map(lambda x: round(x, 3))


def claim(**rule):
    return Claim(**dict(id="a", about=ABOUT[2], where="ours", says="x") | rule)


def rows(*cases):
    "Rows of (value, half-width, more columns)"
    lines = [
        dict(value=v, low=v - half, high=v + half, n=10, unit="texts") | more
        for v, half, more in cases
    ]
    return pd.DataFrame(lines)


@given(numbers, widths, numbers, widths)
def test_a_word_follows_from_four_numbers(value, half, no, gap):
    low, high, yes = value - half, value + half, no + gap
    expected = {
        (True, True): "holds",
        (True, False): "too small to matter",
        (False, True): "open",
        (False, False): "does not hold",
    }[low > no, high >= yes]
    assert word(low, high, no, yes) == expected
    # the mirror image says the same of the other side
    assert word(-high, -low, -no, -yes, "below") == expected


@given(numbers, widths, numbers, widths)
def test_a_range_holds_all_of_an_interval_or_none(value, half, low, gap):
    high = low + gap
    said = word(value - half, value + half, low, high, "between")
    assert (said == "holds") == (value - half > low and value + half < high)
    assert (said == "does not hold") == (
        value + half < low or value - half > high
    )
    assert said != "too small to matter"


@pytest.mark.parametrize(
    "wrong, why",
    [
        (dict(about="a cat"), "Input should be"),
        (dict(estimate="vote"), "Input should be"),
        (dict(refuted_at=0.1), "Extra inputs"),
        (dict(no=0.1, yes=0), "wrong side"),
        (dict(side="below", no=0, yes=0.1), "wrong side"),
        (dict(side="between"), "two bounds"),
        (dict(estimate="rank"), "`by` names"),
    ],
)
def test_a_claim_that_cannot_be_is_refused(wrong, why):
    with pytest.raises(ValueError, match=why):
        claim(**wrong)


def test_a_guard_leaves_a_claim_open_unless_the_other_cases_refute_it():
    said = judge(claim(), rows((5, 1, dict(guard="one label only"))))
    assert (said["verdict"], said["why"]) == ("open", "one label only")
    two = rows((5, 1, dict(guard="")), (5, 1, dict(guard="at chance")))
    assert judge(claim(estimate="worst"), two)["verdict"] == "open"
    assert judge(claim(estimate="mean"), two)["verdict"] == "holds"
    refuted = rows((-5, 1, dict(guard="")), (5, 1, dict(guard="at chance")))
    assert judge(claim(estimate="worst"), refuted)["verdict"] == "does not hold"
    all_guarded = rows(
        (-5, 1, dict(guard="at chance")), (-5, 1, dict(guard="at chance"))
    )
    assert judge(claim(estimate="worst"), all_guarded)["verdict"] == "open"


def test_the_worst_of_several_needs_a_wider_interval():
    "One case alone clears the bound by .1 of its half-width; as one of three it does not"
    one, others = (1.1, 1.0, {}), [(9, 1.0, {}), (9, 1.0, {})]
    assert judge(claim(), rows(one))["verdict"] == "holds"
    assert (
        judge(claim(estimate="worst"), rows(one, *others))["verdict"] == "open"
    )
    below = judge(
        claim(estimate="worst", side="below", no=3), rows(one, (2.5, 0.1, {}))
    )
    assert below["value"] == 2.5 and below["verdict"] == "holds"


def test_a_share_is_exact_and_pools_its_cases():
    counted = pd.DataFrame([dict(value=2, n=4), dict(value=7, n=8)])
    found = estimate(claim(estimate="share"), counted)
    # Clopper and Pearson, 9 of 12
    assert (found.value, found.n) == (0.75, 12)
    assert (found.low, found.high) == pytest.approx((0.4281, 0.9451), abs=1e-4)
    assert found.cases == (2, 7) or len(found.cases) == 2


def test_a_printed_number_may_differ_by_its_rounding():
    table = pd.DataFrame([dict(value=3.514, x=3.51), dict(value=2.004, x=2.0)])
    rule = dict(estimate="printed", side="between", no=-0.005, yes=0.005)
    assert judge(claim(**rule), table)["verdict"] == "holds"
    assert (
        judge(claim(**rule), table.assign(x=[3.51, 2.01]))["verdict"]
        == "does not hold"
    )


def test_an_open_claim_says_what_would_decide_and_no_rows_are_not_asked():
    said = judge(claim(), rows((0.5, 1.0, {})))
    assert said["verdict"] == "open" and "would decide" in said["why"]
    assert judge(claim(), rows((0.5, 1.0, {}))[:0])["verdict"] == "not asked"
    exact = judge(claim(no=3), pd.DataFrame([dict(value=4.0)]))
    assert (exact["verdict"], exact["low"], exact["high"]) == ("holds", 4, 4)


@pytest.mark.parametrize("paper", PAPERS)
def test_claims_are_data(paper):
    "Every entry is valid, and at most four claims of a paper are our own"
    found = read(paper)
    assert found
    own = [c.id for c in found if c.where.startswith("ours")]
    assert len(own) <= 4, f"{paper} has {len(own)} claims of its own: {own}"


@pytest.mark.parametrize("paper", PAPERS)
def test_every_word_that_ships_follows_from_its_numbers(paper):
    table = pd.read_csv(
        core.paper_file(paper, "board.csv"), keep_default_na=False
    )
    assert [*table] == claims.SHIPPED and len(table)
    for line in table.itertuples():
        ends = [
            float(x) if x != "" else math.nan
            for x in (line.low, line.high, line.no, line.yes)
        ]
        said = word(*ends, line.side)
        # a guard can leave a claim open, and nothing else can change the word
        assert line.verdict in (said, "open"), (
            f"{line.id} of {line.model}: {line.verdict}, shows {said}"
        )


@pytest.mark.parametrize("paper", ["compare", "icl"])
def test_the_board_that_ships_is_that_of_all_rows(paper):
    "Whoever judges a paper, by whatever call, judges the same rows: those of the runs that figures read"
    own = claims.shipped(
        board(paper).assign(readings="", confirmed="", looked="")
    )
    ships = pd.read_csv(
        core.paper_file(paper, "board.csv"), keep_default_na=False
    )
    columns = ["id", "model", "verdict", "value", "low", "high"]
    assert (
        own[columns].astype(str).values.tolist()
        == ships[columns].astype(str).values.tolist()
    )


@pytest.fixture
def dice(tmp_path, monkeypatch):
    "A reader's own paper, in a folder of her own"
    monkeypatch.setenv("MEMNB_HOME", str(tmp_path))
    folder = tmp_path / "data/papers/dice"
    folder.mkdir(parents=True)
    (folder / "claims.yaml").write_text(
        "claims:\n"
        "- {id: fair, about: a model, where: Figure 1, says: A die is fair, rows: {part: throws, quantity: rate}, side: between, no: .1, yes: .3}\n"
        "- {id: lucky, about: models, where: ours, says: It shows more than twos, rows: {part: throws, quantity: mean}, no: 2}\n"
    )
    return rows(
        (0.2, 0.05, dict(part="throws", quantity="rate", model="die")),
        (3.5, 0.2, dict(part="throws", quantity="mean", model="die")),
    )


def test_board_and_forest(dice):
    import matplotlib

    matplotlib.use("agg")
    found = board("dice", dice, pd.DataFrame())
    expected = [["fair", "die", "holds"], ["lucky", "", "holds"]]
    assert found[["id", "model", "verdict"]].values.tolist() == expected
    axes = forest(found)
    names = [text.get_text() for text in axes.get_yticklabels()]
    assert names == ["A die is fair", "It shows more than twos"]
    beside = [text.get_text() for text in axes.texts]
    assert beside[1] == "3.5 (3.3 to 3.7)\nmore than 2; n = 10 texts"
    none = board("dice", dice[:0].assign(model=""), pd.DataFrame())
    assert none.verdict.tolist() == ["not asked", "not asked"]


def test_a_model_more_is_a_line_more(dice):
    both = pd.concat(
        [dice, dice[:1].assign(model="cube", value=0.5, low=0.4, high=0.6)]
    )
    found = (
        board("dice", both, pd.DataFrame()).set_index(["id", "model"]).verdict
    )
    assert (
        found["fair", "die"] == "holds"
        and found["fair", "cube"] == "does not hold"
    )


def test_rules_run_no_code(dice, tmp_path):
    "What stands in claims.yaml is values of columns: a text in the form of code selects nothing"
    file = tmp_path / "data/papers/dice/claims.yaml"
    file.write_text(
        file.read_text().replace(
            "quantity: rate", "quantity: '@pd.io.common.os.getpid() > 0'"
        )
    )
    assert board("dice", dice, pd.DataFrame()).verdict[0] == "not asked"
    file.write_text("- {id: fair}\n")
    with pytest.raises(ValueError, match="list named `claims`"):
        read("dice")
    with pytest.raises(ValueError, match="claims that there are not"):
        Rules(
            readings=dict(
                margin=dict(says="m", values=[0, 1], claims=["nobody"])
            )
        )


def test_confirmatory_rows_are_no_part_of_a_board(dice, tmp_path):
    record = dict(profile="laptop", mode="train", model="die")
    (tmp_path / "data/papers/dice/registered.csv").write_text(
        "id,rule\nfair,0\n"
    )
    results.record("dice", dice[:1].drop(columns="model"), **record)
    results.record(
        "dice",
        dice[:1].drop(columns="model"),
        **record | dict(profile="confirm", seed=1000),
    )
    assert set(results.measured("dice").profile) == {"laptop"}
    fresh = results.measured("dice", confirm=True)
    assert set(fresh.profile) == {
        "confirm"
    } and fresh.rule.str.len().tolist() == [12]


def test_power_says_which_claims_fresh_units_cannot_decide(dice, tmp_path):
    "The mean is 1.5 above its bound, of ten texts with a half-width of .2; the share .1 off, with .05"
    from memnb import registered

    results.record("dice", dice, "laptop", 0)
    units = "confirm: {die: {texts: 10}}\n"
    file = tmp_path / "data/papers/dice/claims.yaml"
    file.write_text(units + file.read_text())
    # half of the distance is .05, just the half-width of the share: an even chance
    none = pd.DataFrame()
    assert registered.powers("dice", none) == {
        "fair": "power 0.50 for half the effect",
        "lucky": "no fresh rows",
    }
    file.write_text(file.read_text().replace("texts: 10", "texts: 1000"))
    assert registered.powers("dice", none)["fair"] == ""


@pytest.mark.parametrize(
    "word",
    ["tabular", "icl", "iclinf", "contextual", "capacity", "compare"],
)
def test_every_claim_can_be_registered(word):
    "Also where classes that `dataclass` writes are among what its estimate needs"
    from memnb import registered

    found = claims.read(word)
    rules = {c.id: registered.rule_of(word, c) for c in found}
    assert found and len({*rules.values()}) == len(found)


def test_a_rule_does_not_depend_on_who_speaks(monkeypatch):
    "`memnb register` words its lines as options, where a notebook words them as Python"
    from memnb import core, registered

    first, *_ = claims.read("iclinf")
    told = registered.rule_of("iclinf", first)
    monkeypatch.setattr(core, "_WORDING", [lambda line: line.upper()])
    assert registered.rule_of("iclinf", first) == told


def test_a_rule_is_the_same_in_every_process(tmp_path):
    "Else the rows that confirm it, which another process makes, would find it changed"
    code = (
        "from memnb import claims, registered\n"
        "for word in ('icl', 'tabular'):\n"
        "    print(registered.rule_of(word, claims.read(word)[0]))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | dict(PYTHONHASHSEED=str(seed)),
            capture_output=True,
            check=True,
            text=True,
            cwd=tmp_path,
        ).stdout
        for seed in (1, 2)
    }
    assert len(outputs) == 1
