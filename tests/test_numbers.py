"Expected numbers at the boundary, asymmetric on purpose: a turned sign, a wrong n or a missing term is another number."

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats as st

from memnb import claims, stats

NAN = math.nan


# --- claims: the word of an interval and two bounds ---


@pytest.mark.parametrize(
    "low, high, no, yes, side, word",
    [
        (8, 20, 0, 10, "above", "holds"),
        (0.5, 6, 0, 10, "above", "too small to matter"),
        (-3, 12, 0, 10, "above", "open"),
        (-3, 7, 0, 10, "above", "does not hold"),
        (
            0,
            20,
            0,
            10,
            "above",
            "open",
        ),  # an end on a bound does not exclude it
        (0.5, 10, 0, 10, "above", "holds"),
        (-3, 10, 0, 10, "above", "open"),
        (3.6, 3.9, 3.5, 3.5, "above", "holds"),
        (3.1, 3.4, 3.5, 3.5, "above", "does not hold"),
        (-20, -8, 0, -10, "below", "holds"),
        (-6, -0.5, 0, -10, "below", "too small to matter"),
        (-12, 3, 0, -10, "below", "open"),
        (-7, 3, 0, -10, "below", "does not hold"),
        (0.98, 1.02, 0.97, 1.03, "between", "holds"),
        (1.04, 1.2, 0.97, 1.03, "between", "does not hold"),
        (0.7, 0.9, 0.97, 1.03, "between", "does not hold"),
        (0.9, 1.0, 0.97, 1.03, "between", "open"),
        (NAN, 1.0, 0, 0, "above", "open"),
    ],
)
def test_word_of_an_interval(low, high, no, yes, side, word):
    assert claims.word(low, high, no, yes, side) == word


def rows(*numbers, **same):
    "Rows of a claim with value, low, high and n"
    return pd.DataFrame(
        [
            dict(zip(("value", "low", "high", "n"), row))
            | dict(quantity="gain", unit="texts")
            for row in numbers
        ]
    ).assign(**same)


def claim(**how):
    return claims.Claim(
        **dict(id="c", about="models", where="§1", says="s") | how
    )


def test_estimate_of_a_share_pools_successes_and_trials():
    table = pd.DataFrame(
        dict(
            value=[3, 7],
            n=[10, 12],
            unit="texts",
            quantity="share",
            low=NAN,
            high=NAN,
        )
    )
    found = claims.estimate(claim(estimate="share"), table)
    assert found.value == pytest.approx(10 / 22) and found.n == 22
    assert [found.low, found.high] == pytest.approx(
        st.binomtest(10, 22).proportion_ci()[:]
    )


def test_estimate_of_the_worst_takes_the_side_into_account():
    table = rows((4, 3, 6, 10), (5, 1, 9, 20))
    wide = st.norm.isf(0.0125) / st.norm.isf(0.025)
    least = claims.estimate(claim(estimate="worst"), table)
    assert least[:4] == pytest.approx((4, 5 - 4 * wide, 4 + 2 * wide, 10))
    most = claims.estimate(claim(estimate="worst", side="below"), table)
    # the largest of two numbers lies between the larger of their ends
    assert most[:4] == pytest.approx((5, 4 - wide, 5 + 4 * wide, 20))


def test_an_open_claim_says_how_many_units_would_decide():
    line = claims.judge(claim(estimate="only", yes=10), rows((6, -2, 14, 50)))
    assert line["verdict"] == "open"
    # four points to the nearer bound, half a width of eight
    assert line["why"] == f"about {stats.n_to_decide(-4, 8, 50):,} would decide"


# --- results: what a row is made of ---


def test_rows_have_the_intervals_of_their_kind():
    from memnb.results import Rows

    written = Rows(part="p", unit="texts")
    written.share("rate", hits=3, n=10)
    written.mean("f1", [1, 2, 4, 9])
    written.mean("few", [1, 2, 4, 9], least=5)
    share, mean, few = written.frame().to_dict("records")
    assert [share[k] for k in ("value", "low", "high", "n")] == pytest.approx(
        [0.3, 0.066740, 0.652453, 10], abs=1e-6
    )
    half = 3.182446 * (38 / 3) ** 0.5 / 2
    assert [mean[k] for k in ("value", "low", "high", "n")] == pytest.approx(
        [4, 4 - half, 4 + half, 4], abs=1e-5
    )
    assert few["value"] == 4 and math.isnan(few["low"])


def test_of_two_rows_the_younger_counts():
    from memnb.results import joined

    same = dict(paper="p", part="a", model="m", quantity="q", profile="laptop")
    old = pd.DataFrame([dict(same, value=1.0, when="2026-01-09")])
    new = pd.DataFrame([dict(same, value=2.0, when="2026-01-10")])
    assert (
        joined([old, new]).value.tolist()
        == joined([new, old]).value.tolist()
        == [2.0]
    )


# --- sampling ---


def test_tokens_are_drawn_with_their_probabilities():
    "Fifty-two tokens, some likely and some not, and two temperatures"
    import torch

    from memnb.prefix import next_tokens

    logits = torch.linspace(0, 3, 52)
    for temperature in (1.0, 0.5):
        generator = torch.Generator().manual_seed(1)
        settings = [(dict(temperature=temperature), generator)] * 6000
        drawn = next_tokens(logits.expand(6000, -1), settings)
        counts = np.bincount(drawn.numpy(), minlength=52)
        expected = 6000 * (logits / temperature).softmax(-1).double().numpy()
        likely = expected >= 5
        observed = [*counts[likely], counts[~likely].sum()]
        wanted = [*expected[likely], expected[~likely].sum()]
        if wanted[-1] == 0:
            observed, wanted = observed[:-1], wanted[:-1]
        wanted = np.array(wanted) * sum(observed) / sum(wanted)
        assert st.chisquare(observed, wanted).pvalue > 1e-4
    cold = next_tokens(logits.expand(3, -1), [(dict(temperature=0), None)] * 3)
    assert cold.tolist() == [51, 51, 51]


# --- training ---


@pytest.mark.parametrize(
    "fall, last",
    [("linear", 1 / 7), ("cosine", 0.5 + 0.5 * math.cos(math.pi * 6 / 7))],
)
def test_the_learning_rate_rises_and_falls(fall, last):
    from memnb.engine import Schedule

    rates = Schedule(steps=10, lr=0.3, warmup=0.3, schedule=fall).rates(0, 10)
    assert rates[:4] == pytest.approx([0.1, 0.2, 0.3, 0.3], rel=1e-5)
    assert rates[9] == pytest.approx(0.3 * last, rel=1e-4)


# --- the papers' measures ---


def test_starts_depend_on_tau():
    from memnb.contextual import memorized

    train, left_out = [1, 0.5, 0.3, 0.15], [1.2, 0.9, 0.8, 0.4]
    starts = {
        m: start for m, (start, _) in memorized(train, left_out, 0.2).items()
    }
    assert starts == dict(recollection=3, counterfactual=0, contextual=2)
    assert memorized(train, left_out, 0.35)["recollection"][0] == 2
    assert math.isnan(memorized(train, left_out, 0.15)["recollection"][0])


def test_recollection_of_texts_depends_on_tau():
    from memnb.compare import recollected

    assert recollected(np.array([0.1, 0.2, 0.3, 0.5])).tolist() == [
        True,
        False,
        False,
        False,
    ]


def test_kendall_counts_a_start_from_the_margin_on():
    from memnb.contextual import kendall

    starts = [[5, 7, 20], [5, 6, 20], [20, 7, 5], [3, NAN, NAN]]
    # an epoch earlier is earlier, as in the paper
    assert kendall(starts) == pytest.approx([1, 1, -1, 2 / 3])
    assert kendall(starts, margin=2) == pytest.approx([1, 2 / 3, -1, 2 / 3])


def test_lira_and_the_counterfactual_measure_are_larger_for_members():
    from memnb.compare import counterfactual, lira

    trained = np.array([[1, 0], [1, 0], [1, 0], [0, 1], [0, 1], [0, 1]], bool)
    noise = np.array(
        [[0.0, 0.3], [0.1, 0.1], [0.3, 0.0], [0.1, 0.2], [0.0, 0.1], [0.2, 0.0]]
    )
    losses = np.where(trained, 1.0, 3.0) + noise
    for score in (lira(losses, trained), counterfactual(losses, trained)):
        assert score[trained].min() > max(0.5, score[~trained].max())
    # the other models that were not trained on the first text have 3.1, 3, 3.2, the model itself 1
    assert counterfactual(losses, trained)[0, 0] == pytest.approx(3.1 - 1.0)


def test_bits_held_are_saved_bits():
    from memnb.compare import bits_held

    assert bits_held(
        np.array([1.0, 3.0]), np.array([2.5, 2.5]), np.array([4, 4])
    ) == pytest.approx([1.5 * 4 / math.log(2), 0])


def test_epsilon_from_renyi_divergence():
    from memnb.iclinf import conversion, rdp_to_approxdp, renyi, token_rdp

    # Theorem C.8: log(1 - 1/a) - (log delta + log a) / (a - 1)
    assert conversion(3, 1e-5) == pytest.approx(
        math.log(2 / 3) - (math.log(1e-5) + math.log(3)) / 2
    )
    best = rdp_to_approxdp([1.0, 4.0], 1e-5, [2, 3])
    assert best.alpha == 3 and best.eps == pytest.approx(
        4 + float(conversion(3, 1e-5))
    )
    p, q = np.log([0.7, 0.3]), np.log([0.4, 0.6])
    assert renyi(p, q, 2) == pytest.approx(math.log(0.49 / 0.4 + 0.09 / 0.6))
    assert token_rdp(3, c=10, s=50, tau=2) == pytest.approx(1.5 * 0.1**2)


def test_least_epsilon_rests_on_two_exact_ends():
    from memnb.iclinf import least_epsilon

    low = st.binomtest(40, 50).proportion_ci(0.95).low
    high = st.binomtest(3, 50).proportion_ci(0.95).high
    assert float(least_epsilon(40, 3, 50)) == pytest.approx(
        math.log(low / high)
    )
    with_delta = math.log((low - 0.01) / high)
    assert float(least_epsilon(40, 3, 50, delta=0.01)) == pytest.approx(
        with_delta
    )


def answers(times, before, after, first=0):
    "Answers to two prompts, a row an item: 1 where it is recalled"
    index = pd.MultiIndex.from_tuples(
        [(times, first + i, 0) for i in range(len(before))],
        names=["times", "idx", "draw"],
    )
    return pd.DataFrame(
        {("full", 0): before, ("full", 25): after}, index=index, dtype=float
    )


def test_a_change_of_recall_carries_the_uncertainty_of_its_controls():
    from memnb.icl.halves import change, paired
    from memnb.icl.replication import OFTEN

    # of ten training texts three are recalled before and seven after: five gained, one lost
    training = answers(
        OFTEN, [1, 1, 1] + [0] * 7, [0, 1, 1] + [1] * 5 + [0] * 2
    )
    # of twelve controls two before and one after: one gained, two lost
    controls = answers(0, [1, 1] + [0] * 10, [0, 0, 1] + [0] * 9, first=100)
    step = training["full", 25] - training["full", 0]
    wald = 1.959964 * (7 - 16 / 11) ** 0.5 / 11
    share = st.binomtest(5, 6).proportion_ci()
    ends = [
        4 / 11 - wald,
        4 / 11 + wald,
        (2 * share.low - 1) * 0.6,
        (2 * share.high - 1) * 0.6,
    ]
    assert paired(step) == pytest.approx((0.4, min(ends), max(ends)), abs=1e-6)
    drift, low, high = paired(controls["full", 25] - controls["full", 0])
    assert drift == pytest.approx(-1 / 12)
    found = change(pd.concat([training, controls]), ("full", 0), ("full", 25))
    value = 0.4 + 1 / 12
    # square and add: the difference of two estimates, Zou and Donner (2008)
    below = math.hypot(0.4 - min(ends), high - drift)
    above = math.hypot(max(ends) - 0.4, drift - low)
    assert [found["value"], found["low"], found["high"]] == pytest.approx(
        [value, value - below, value + above], abs=1e-6
    )
    assert [found["gained"], found["lost"], found["n"]] == [5, 1, 10]


@pytest.mark.parametrize(
    "lines, guess, control, mark",
    [
        (3, 1, 0, "✓"),
        (2, 1, 0, "?"),
        (3, 0, 2, "?"),
        (2, 0, 0, "✓"),
        (0, 0, 0, "✗"),
        (1, 0, 0, "?"),
    ],
)
def test_a_header_needs_two_lines_beyond_a_guess(lines, guess, control, mark):
    from memnb.tabular import sign

    row = dict(
        part="header",
        lines=lines,
        line_guess=guess,
        twin_lines=control,
        rate=0.5,
        n=4,
    )
    assert sign(pd.Series(row)) == mark


@pytest.mark.parametrize(
    "low, high, mark",
    [(0.26, 0.6, "✓"), (0.25, 0.6, "?"), (0.0, 0.09, "✗"), (0.0, 0.11, "?")],
)
def test_rows_are_completed_above_a_quarter(low, high, mark):
    from memnb.tabular import sign

    row = dict(
        part="row_completion", rate=(low + high) / 2, low=low, high=high, n=36
    )
    assert sign(pd.Series(row)) == mark
