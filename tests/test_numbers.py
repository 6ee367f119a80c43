"Expected numbers at the boundary, asymmetric on purpose: a turned sign, a wrong n or a missing term is another number."

import inspect
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats as st

from memnb import claims, stats

NAN = math.nan


# --- stats ---

# an interval of a normal estimate has arms of Z errors
Z = 1.959964


def test_shares_have_their_exact_intervals():
    # binom.test of R, (3, 10) and (7, 12)
    assert stats.binom_ci(3, 10) == pytest.approx(
        (0.066740, 0.652453), abs=1e-6
    )
    at_90 = st.binomtest(7, 12).proportion_ci(0.9)[:]
    assert stats.binom_ci(7, 12, 0.9) == pytest.approx(at_90)
    # none and all: one end is closed, the other (tail)^(1/n)
    assert stats.binom_ci(0, 10) == pytest.approx((0, 1 - 0.025**0.1))
    assert stats.binom_ci(12, 12) == pytest.approx((0.025 ** (1 / 12), 1))
    assert stats.binom_ci(0, 0) == (0, 1)


def test_means_have_the_intervals_of_student():
    # variance 38 / 3 of four numbers, three degrees of freedom
    half = 3.182446 * (38 / 3) ** 0.5 / 2
    assert stats.mean_ci([1, 2, 4, 9, NAN]) == pytest.approx(
        (4, 4 - half, 4 + half), abs=1e-5
    )
    lone = stats.mean_ci([7])
    assert lone.value == 7 and math.isnan(lone.low) and math.isnan(lone.high)
    two = stats.mean_ci([3, 7])
    assert two == pytest.approx((5, 5 - 2 * 12.706205, 5 + 2 * 12.706205))


def test_bootstrap_means_are_percentiles():
    # a resample of five has Binomial(5, .2) tens: none in 33 %, two at most in 94.2 %, three in 99.3 %
    assert stats.boot_ci([0, 0, 0, 0, 10]) == (2, 0, 6)


def test_cases_of_one_unit_count_less():
    yes = [1, 1, 1, 1, 0, 0, 0, 0, 1, 1]
    units = list("aaabbbccdd")
    # residuals of share .6, summed in each unit: 1.2, -.8, -1.2, .8
    variance = (1.44 + 0.64 + 1.44 + 0.64) * 4 / 3 / 10**2
    independent = 0.6 * 0.4 / variance
    assert stats.cluster_ci(yes, units) == pytest.approx(
        stats.binom_ci(0.6 * independent, independent)
    )
    # all agree: each unit counts once; one unit says nothing
    assert stats.cluster_ci([1] * 10, units) == stats.binom_ci(4, 4)
    assert stats.cluster_ci([1, 0, 0], ["a"] * 3) == (0, 1)


def test_differences_are_b_minus_a():
    # a success and a failure more in each: 4 of 12, 8 of 14
    p, q = 4 / 12, 8 / 14
    half = Z * (p * (1 - p) / 12 + q * (1 - q) / 14) ** 0.5
    assert stats.difference_ci((3, 10), (7, 12)) == pytest.approx(
        (q - p - half, q - p + half), abs=1e-6
    )
    # seven hits or more among twelve drawn of 22, of which ten are hits
    greater = st.hypergeom.sf(6, 22, 10, 12)
    assert stats.fisher((3, 10), (7, 12), "greater") == pytest.approx(greater)
    assert stats.fisher((3, 10), (7, 12)) == pytest.approx(0.230531, abs=1e-6)
    assert stats.fisher((7, 12), (3, 10), "greater") > 0.9


def test_paired_differences_are_gains_minus_losses():
    # half a unit more on each side: 7.5 gained, 2.5 lost, 21 in all
    half = Z * (10 - 25 / 21) ** 0.5 / 21
    assert stats.paired_ci(7, 2, 20) == pytest.approx(
        (5 / 21 - half, 5 / 21 + half), abs=1e-6
    )
    # none changed: the interval has a width
    assert stats.paired_ci(0, 0, 20) == pytest.approx(
        (-Z / 21, Z / 21), abs=1e-6
    )


@pytest.mark.parametrize(
    "k, n, alternative, chance, p",
    [
        (7, 9, "two-sided", 0.5, 2 * 46 / 2**9),
        (7, 9, "greater", 0.5, 46 / 2**9),
        (2, 9, "greater", 0.5, 1 - 10 / 2**9),
        (3, 10, "greater", 0.1, 0.0701908264),
        # six of six are the fewest below 5 % with two sides, five of five with one
        (6, 6, "two-sided", 0.5, 1 / 32),
        (5, 5, "two-sided", 0.5, 1 / 16),
        (5, 5, "greater", 0.5, 1 / 32),
        (0, 0, "two-sided", 0.5, 1),
    ],
)
def test_sign_tests_count_to_the_end(k, n, alternative, chance, p):
    assert stats.sign_test(k, n, alternative, chance) == pytest.approx(p)


def test_strata_are_weighted_by_both_kinds():
    # differences 6 - 2 and 1 - 2/3, weights 2 * 1 / 3 and 1 * 3 / 4
    found = stats.stratified_ci(
        [5, 7, 2, 1, 0, 0, 2], [1, 1, 0, 1, 0, 0, 0], list("aaabbbb")
    )
    value = (4 * 2 / 3 + 1 / 3 * 3 / 4) / (2 / 3 + 3 / 4)
    assert found.value == pytest.approx(value) and found.n == 7
    # Student's t with 7 - 3 degrees of freedom
    squares = 2 + 8 / 3 + 2 / 3 * (4 - value) ** 2 + 0.75 * (value - 1 / 3) ** 2
    half = 2.776445 * (squares / 4 / (2 / 3 + 3 / 4)) ** 0.5
    assert [found.low, found.high] == pytest.approx(
        [value - half, value + half], abs=1e-5
    )


def test_random_effects_are_a_mean_of_units():
    # equal errors: the mean and Student's t of the units themselves, whose variance is 13
    half = 4.302653 * (13 / 3) ** 0.5
    assert stats.random_effects([1, 3, 8], [-1, 1, 6], [3, 5, 10]) == (
        pytest.approx((4, 4 - half, 4 + half), abs=1e-5)
    )
    # units that agree keep the error of each: 1 / sqrt(3)
    arms = np.full(3, Z)
    half = 4.302653 / 3**0.5
    assert stats.random_effects([2, 2, 2], 2 - arms, 2 + arms) == (
        pytest.approx((2, 2 - half, 2 + half), abs=1e-5)
    )
    with pytest.raises(ValueError, match="width"):
        stats.random_effects([1, 2], [1, 1], [1, 3])


def test_intervals_that_hold_at_once_are_wider():
    # two of them: z(1 - .025 / 2) = 2.241403
    factor = 2.241403 / Z
    lows, highs = stats.simultaneous([4, 5], [3, 1], [6, 9])
    assert lows == pytest.approx([4 - factor, 5 - 4 * factor], abs=1e-6)
    assert highs == pytest.approx([4 + 2 * factor, 5 + 4 * factor], abs=1e-6)


def test_holm_rejects_step_by_step():
    "p of .001, .02 and .04: below .05 / 3, .05 / 2 and .05 / 1; if the second is .03, the third is not asked"
    z = st.norm.isf(np.array([0.001, 0.02, 0.04]) / 2)
    arms = Z / z
    lows, highs = stats.holm([1, 1, 1], 1 - arms, 1 + arms, 0)
    assert (lows > 0).all()
    factors = np.array([2.393980, 2.241403, Z]) / Z
    assert highs == pytest.approx(1 + arms * factors, abs=1e-6)
    z[1] = st.norm.isf(0.03 / 2)
    arms = Z / z
    lows, _ = stats.holm([1, 1, 1], 1 - arms, 1 + arms, [0, 0, 0])
    assert (lows > 0).tolist() == [True, False, False]


def test_rank_correlations_have_the_error_of_ranks():
    a, b = [1, 2, 3, 4, 5], [20, 10, 90, 30, 40]
    # squared differences of ranks 1, 1, 4, 1, 1
    r, p = stats.spearman(a, b)
    assert r == pytest.approx(1 - 6 * 8 / (5 * 24))
    assert p == pytest.approx(2 * st.t.sf(0.6 * (3 / 0.64) ** 0.5, 3))
    half = Z * ((1 + 0.6**2 / 2) / 2) ** 0.5
    ends = np.tanh([math.atanh(0.6) - half, math.atanh(0.6) + half])
    assert stats.spearman_ci(a, b) == pytest.approx((0.6, *ends), abs=1e-6)
    # three units say nothing; of four in order the next lower order has r = .8
    assert stats.spearman_ci([1, 2, 3], [1, 3, 2]) == (0.5, -1, 1)
    low = math.tanh(math.atanh(0.8) - Z * 1.5**0.5)
    assert stats.spearman_ci(range(4), range(4)) == pytest.approx(
        (1, low, 1), abs=1e-6
    )


def test_agreement_is_beyond_chance():
    # six of ten agree; by chance .3 * .7 + .7 * .3
    kappa = stats.kappa(list("yyynnnnnnn"), list("yyyyyyynnn"))
    assert kappa == pytest.approx((0.6 - 0.42) / (1 - 0.42))
    assert math.isnan(stats.kappa("yyy", "yyy"))


def test_scores_are_compared_pair_by_pair():
    # 5 is above 4, 2 and 1; 2 is above 1 and ties with 2
    assert stats.auc([5, 2, 4, 2, 1], [1, 1, 0, 0, 0]) == 4.5 / 6
    assert stats.auc([5, 2, 4, 2, 1], [0, 0, 1, 1, 1]) == 1.5 / 6
    assert math.isnan(stats.auc([1, 2], [True, True]))
    # an equal control counts against the text, which counts itself
    p = stats.conformal_p([5, 2, 0, NAN], [1, 2, 3, NAN])
    assert p[:3] == pytest.approx([1 / 4, 3 / 4, 1]) and math.isnan(p[3])
    assert math.isnan(stats.conformal_p([1], [])[0])


def test_units_that_decide_and_power():
    # (1.959964 + .841621)^2 / 1.959964^2 = 2.0432
    assert stats.n_to_decide(1, 1, 100) == 205
    assert stats.n_to_decide(-2, 3, 100) == math.ceil(204.32 * 9 / 4)
    assert stats.n_to_decide(1, 1, 10, power=0.5) == 10
    assert stats.n_to_decide(0, 1, 100) == stats.n_to_decide(1, 1, 0) == 0
    # of 5 and 7 units, the pairs of counts whose difference is significant
    pairs = [(3, 0), (4, 0), (5, 0), (5, 1), (5, 2)]
    power = sum(
        st.binom.pmf(x, 5, 0.7) * st.binom.pmf(y, 7, 0.2) for x, y in pairs
    )
    assert stats.fisher_power(5, 7, 0.7, 0.2) == pytest.approx(power, abs=1e-5)
    assert stats.fisher_power(5, 5, 0, 1) == 0


def test_every_statistic_has_its_numbers():
    "A function that is added to `stats`, or a way to make an estimate, comes with expected numbers"
    source = Path(__file__).read_text(encoding="utf8")
    public = {
        name
        for name in stats.__all__
        if inspect.isroutine(inspect.unwrap(getattr(stats, name)))
    }
    assert len(public) >= 15
    lost = {name for name in public if f"stats.{name}(" not in source}
    lost |= {
        name for name in claims.ESTIMATES if f'estimate="{name}"' not in source
    }
    assert not lost, f"write expected numbers for {sorted(lost)}"


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


def test_estimate_of_one_row_and_of_several():
    only = claims.estimate(claim(estimate="only"), rows((6, -2, 14, 50)))
    assert only[:5] == (6, -2, 14, 50, "texts")
    with pytest.raises(ValueError, match="has 2 rows"):
        claims.estimate(
            claim(estimate="only"), rows((6, 1, 9, 5), (7, 2, 9, 5))
        )
    # units with intervals: random effects; the units of all are counted
    several = rows((1, -1, 3, 10), (3, 1, 5, 12), (8, 6, 10, 7))
    half = 4.302653 * (13 / 3) ** 0.5
    mean = claims.estimate(claim(estimate="mean"), several)
    assert mean[:4] == pytest.approx((4, 4 - half, 4 + half, 29), abs=1e-5)
    # numbers without intervals are the units themselves
    exact = rows(*[(x, NAN, NAN, 10) for x in (1, 2, 4, 9)])
    half = 3.182446 * (38 / 3) ** 0.5 / 2
    mean = claims.estimate(claim(estimate="mean"), exact)
    assert mean[:4] == pytest.approx((4, 4 - half, 4 + half, 4), abs=1e-5)
    assert mean.cases == (1, 2, 4, 9)


def test_estimate_of_a_worst_case_far_from_the_middle():
    table = rows((1.01, 1.0, 1.04, 10), (0.98, 0.97, 0.985, 20))
    found = claims.estimate(
        claim(estimate="worst", side="between", no=0.97, yes=1.03), table
    )
    wide = st.norm.isf(0.0125) / st.norm.isf(0.025)
    assert found[:4] == pytest.approx(
        (0.98, 0.98 - 0.01 * wide, 0.98 + 0.005 * wide, 20)
    )


def test_estimate_of_an_order_and_of_printed_numbers():
    table = rows(*[(x, NAN, NAN, 9) for x in (20, 10, 90, 30, 40)])
    order = claims.estimate(
        claim(estimate="rank", by="times"), table.assign(times=range(1, 6))
    )
    half = Z * ((1 + 0.6**2 / 2) / 2) ** 0.5
    ends = np.tanh([math.atanh(0.6) - half, math.atanh(0.6) + half])
    assert order[:4] == pytest.approx((0.6, *ends, 5), abs=1e-6)
    # the number that is farthest off, with its sign
    table = rows((3.5, NAN, NAN, 1), (1.0, NAN, NAN, 1)).assign(x=[3.51, 1.03])
    printed = claims.estimate(claim(estimate="printed"), table)
    assert printed[:4] == pytest.approx((-0.03, -0.03, -0.03, 2))
    assert printed.cases == pytest.approx((-0.01, -0.03))


@pytest.mark.parametrize(
    "guards, estimate, verdict",
    [
        (["", "few"], "worst", "open"),
        (["few", "few"], "worst", "open"),
        (["", "few"], "mean", "holds"),
        (["few", "few"], "mean", "open"),
    ],
)
def test_a_guard_opens_a_claim_unless_others_decide(guards, estimate, verdict):
    table = rows((4, 3, 5, 10), (5, 4, 6, 20)).assign(guard=guards)
    if estimate == "mean":
        table = table.assign(low=table.value - 0.1, high=table.value + 0.1)
    line = claims.judge(claim(estimate=estimate, no=1), table)
    assert line["verdict"] == verdict
    # the worst of several is refuted by the one that can tell
    line = claims.judge(claim(estimate="worst", no=9), table)
    able = "" in guards
    assert line["verdict"] == ("does not hold" if able else "open")


@pytest.mark.parametrize(
    "line, words",
    [
        (
            dict(value=3.04, low=2.9, high=3.1, no=3.5, yes=3.5, side="above"),
            "3.04 (2.9 to 3.1); more than 3.5",
        ),
        (
            dict(value=-7, low=-12, high=-2, no=0, yes=-10, side="below"),
            "-7 (-12 to -2); less than 0, matters from -10",
        ),
        (
            dict(value=1, low=0.9, high=1.2, no=0.97, yes=1.03, side="between"),
            "1 (0.9 to 1.2); 0.97 to 1.03",
        ),
        (
            dict(value=3, low=3, high=math.inf, no=2, yes=2, side="above"),
            "3 or more; more than 2",
        ),
        (
            dict(value=3, low=2, high=math.inf, no=2, yes=2, side="above"),
            "3 (2 or more); more than 2",
        ),
        (
            dict(value=3, low=-math.inf, high=5, no=2, yes=2, side="above"),
            "3 (5 or less); more than 2",
        ),
        (
            dict(
                value=1234.4, low=1234.4, high=1234.4, no=0, yes=0, side="above"
            ),
            "1,234; more than 0",
        ),
        (dict(value=NAN), ""),
    ],
)
def test_estimates_in_words(line, words):
    assert claims.estimate_text(SimpleNamespace(**line)) == words


def test_units_in_words():
    for n, words in ((1234, "1,234 texts"), (3, "3 texts"), (NAN, "")):
        line = SimpleNamespace(n=n, unit="texts")
        assert claims.units_text(line) == words


def test_a_board_that_ships_keeps_its_verdicts():
    # three digits would lift the upper end to the bound
    near = dict(value=1.04, low=1.0004, high=1.0996, no=0.9, yes=1.1)
    short = claims.rounded(near | dict(side="between"))
    assert short["high"] == 1.0996 and short["low"] == 1.0004
    far = dict(value=1.0412, low=1.0004, high=1.0896, no=0.9, yes=1.1)
    short = claims.rounded(far | dict(side="between"))
    assert [short[c] for c in ("value", "low", "high")] == [1.04, 1.0, 1.09]
    lines = [
        claims.judge(claim(estimate="only"), table)
        for table in (rows((3, 1, 5, 10.4)), rows((NAN, NAN, NAN, 1)))
    ]
    board = pd.DataFrame(lines).assign(id=["b", "a"], model="")
    ships = claims.shipped(board)
    # nobody was asked about the second; units are whole
    assert ships.id.tolist() == ["b"] and ships.n.tolist() == [10]


def judged(*verdicts):
    "Lines of one claim under several readings"
    line = dict(id="c", model="", says="s", no=0, yes=10)
    return pd.DataFrame(
        [
            line
            | dict(value=k, low=k - 1, high=k + 2, verdict=verdict)
            | dict(reading="margin" if k else "", choice=str(k))
            for k, verdict in enumerate(verdicts)
        ]
    )


def test_agreement_counts_the_reading_of_the_board_too():
    counts = claims.agreement(judged("open", "open", "holds", "open"))
    assert counts["c", ""] == "3 of 4"
    assert claims.agreement(judged("open"))["c", ""] == ""


def test_forest_and_curve_draw_both_arms():
    import matplotlib.pyplot as plt

    board = pd.DataFrame(
        [
            claims.judge(claim(yes=10), rows((6, -2, 16, 50))),
            claims.judge(
                claim(side="below", no=0, yes=-10), rows((-6, -16, 2, 50))
            ),
        ]
    ).assign(id="c", model="", says="s")
    axes = claims.forest(board)
    # about the middle of the bounds, 5, the farthest end is 11 away; what lies below is turned around
    interval = [[-7 / 11, 1]]
    bounds = [-5 / 11, 5 / 11]
    drawn = [
        c.get_segments() for c in axes.collections if len(c.get_segments())
    ]
    for place, line in enumerate((drawn[:2], drawn[2:])):
        (ends,), strokes = line
        assert ends.tolist() == [
            [pytest.approx(interval[0][0]), place],
            [pytest.approx(interval[0][1]), place],
        ]
        assert sorted(x for (x, _), _ in strokes) == pytest.approx(bounds)
    axes = claims.curve(judged("open", "holds"), "c")
    ends = [c.get_segments()[0][:, 0].tolist() for c in axes.collections]
    assert ends == [[-1, 2], [0, 3]]
    plt.close("all")


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


def test_rmia_and_informia_hold_a_text_against_texts_that_nobody_was_shown():
    from memnb.compare import informia, log_marginal, rmia

    # the first text was shown to two models of four, the others to none
    shown = np.zeros((4, 3), bool)
    shown[:2, 0] = True
    probs = np.array(
        [[0.5, 0.2, 0.1], [0.4, 0.1, 0.1], [0.2, 0.3, 0.2], [0.1, 0.1, 0.4]]
    )
    population = np.array([False, True, True])
    marginal = log_marginal(-np.log(probs), shown)
    # (.4 + mean of .2 and .1) / 2; of what nobody was shown the mean of three
    assert np.exp(marginal[0]) == pytest.approx([0.275, 0.5 / 3, 0.7 / 3])
    ratios = np.array([0.5 / 0.275, 0.2 / (0.5 / 3), 0.1 / (0.7 / 3)])
    counted = rmia(-np.log(probs), shown, population)
    assert counted[0].tolist() == [1, 0.5, 0]
    # 1.82 is not four times 1.2, and it is four times .43
    strict = rmia(-np.log(probs), shown, population, gamma=4)
    assert strict[0].tolist() == [0.5, 0, 0]
    gained = informia(-np.log(probs), shown, population)
    expected = np.log(ratios) - np.log(ratios[1:]).mean()
    assert gained[0] == pytest.approx(expected)


def test_informia_by_token_takes_what_the_vocabulary_lost():
    from memnb.compare import informia_by_token

    gain = informia_by_token([-1.0, -4.0], [-3.0, -3.5], [0.25, 0.75])
    assert gain == pytest.approx((2.25 + 0.25) / 2)


def test_the_tail_is_what_lies_beyond_nearly_all_members():
    from memnb.compare import tail_share

    losses = np.array([[*range(1, 11), 8.5, 9.5, 10.5, 3, 2]], float)
    shown = np.array([[True] * 10 + [False] * 5])
    assert tail_share(losses, shown, 0.1).tolist() == [2 / 5]  # the bar is 9
    assert tail_share(losses, shown, 0.01).tolist() == [1 / 5]
    assert tail_share(losses, shown, 0.3).tolist() == [3 / 5]


def test_one_spread_for_all_texts_in_lira():
    from memnb.compare import lira, lira_of_few

    losses = np.array([[1.0, 5], [1, 2], [2, 6], [4, 3], [3, 7], [5, 4]])
    shown = np.array([[1, 0], [1, 1], [1, 0], [0, 1], [0, 0], [0, 1]], bool)
    # others of the first model: texts with 1, 2 | 4, 3, 5 and 2, 3, 4 | 6, 7
    squares = 0.5 + 2, 2 + 0.5
    own = [s / 3 for s in squares]
    assert own[0] == own[1]
    score = lira(losses, shown, shared=True)[0]
    var = np.mean(own)
    centres = [(1.5, 4.0), (3.0, 6.5)]
    expected = [
        ((x - out) ** 2 - (x - into) ** 2) / (2 * var)
        for x, (into, out) in zip(losses[0], centres)
    ]
    assert score == pytest.approx(expected)
    wider = losses.copy()
    wider[:, 1] += [0, 0, 9, 9, -9, -9]
    each = lira(wider, shown)[0]
    one = lira(wider, shown, shared=True)[0]
    assert abs(one[0]) < abs(each[0])  # the second text has a wide spread
    groups = lira_of_few(np.tile(losses, (2, 1)), np.tile(shown, (2, 1)), 6)
    assert groups[:6] == pytest.approx(lira(losses, shown, shared=True))


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
