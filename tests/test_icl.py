"Replication and its claims: refused answers, two judges, what is recorded, and checks that notice a swap."

import pandas as pd
import pytest

from memnb import icl, lm, results
from memnb.claims import board


class No(str):
    "An answer that a server refused"

    reason = "content_filter"


class Some(lm.LM):
    "Repeats the word that the last demonstration ends in; refuses what is about `b0`"

    caps = frozenset({"generate"})

    def _answer(self, todo):
        for i, (_, prompt) in enumerate(todo):
            asked = prompt.rsplit("\n\n", 1)[-1]
            yield i, No() if "b0" in asked else "0"


@pytest.fixture
def model(tmp_path):
    return Some(
        "some", "some", "completion", store=lm.Store(tmp_path / "s.sqlite")
    )


def texts(n=12):
    "A labelled text set; text i has words with the i-th letter"
    rows = [
        (" ".join(f"{chr(97 + i)}{j}" for j in range(6)), "xy"[i % 2])
        for i in range(n)
    ]
    return pd.DataFrame(rows, columns=["text", "label"])


def of(rows, part, quantity, k):
    "The row of all instances"
    r = rows[
        (rows.part == part)
        & (rows.quantity == quantity)
        & (rows.k == k)
        & (rows.group == "")
    ]
    assert len(r) <= 1
    return r.iloc[0] if len(r) else None


def test_refused_answers_count_in_no_share(model):
    task = icl.task(texts(4), n=4, k=0)
    m = icl.measure(model, task, n=4, ks=[0], settings="full", repeats=2)
    assert (
        of(m, "replication", "refused", 0).value == 1
        and of(m, "replication", "rate", 0).n == 3
    )
    assert of(m, "generation", "refused", 0).value == 2  # in both repeats
    right = of(
        m, "generation", "accuracy", 0
    )  # of a, c, d the first two have label 0
    assert right.n == 3 and right.value == pytest.approx(2 / 3, abs=1e-6)
    assert (m[m.group == "not memorized"].n == 3).all()


def test_without_refusals_there_is_no_such_row(model):
    m = icl.measure(
        model, texts()[2:], n=4, ks=[0, 2], settings="pairs", repeats=1
    )
    assert of(m, "replication", "rate", 0).n == 4 and "refused" not in set(
        m.quantity
    )


def test_a_run_writes_its_rows_once_for_all_data_sets(
    model, tmp_path, monkeypatch
):
    monkeypatch.setenv("MEMNB_HOME", str(tmp_path / "home"))
    for name in ("one", "two"):
        texts().to_csv(tmp_path / f"{name}.csv", index=False)
    sets = [str(tmp_path / f"{name}.csv") for name in ("one", "two")]
    sizes = icl.Sizes(
        datasets=sets, n=4, ks=[0, 2], settings=["full", "pairs"], repeats=2
    )
    made = icl.run(model, sizes, profile="laptop")
    results.record("icl", made, "laptop", model="some", mode="completion")
    rows = results.measured("icl")
    rows = rows[rows.model == "some"]
    assert len(rows) == len(made) and set(rows.dataset) == {"one", "two"}
    shown = results.runs("icl", "laptop", ("model", "dataset"), made)
    assert len(shown[shown.model == "some"]) == len(
        made
    )  # recorded, so not shown twice
    by = ["dataset", "setting", "group", "k"]
    some = (d[d.model == "some"] for d in (made, shown))
    a, b = (icl.overall(d, "generation").sort_values(by) for d in some)
    columns = [
        "dataset",
        "setting",
        "group",
        "k",
        "hits",
        "accuracy",
        "low",
        "high",
        "n",
    ]
    assert a[columns].values.tolist() == b[columns].values.tolist()


def test_a_second_judge_doubles_nothing(model, tmp_path, monkeypatch):
    monkeypatch.setenv("MEMNB_HOME", str(tmp_path / "home"))
    made = icl.measure(
        model, texts(), n=4, ks=[0, 2], settings=icl.method.SETTINGS, repeats=1
    )
    both = pd.concat(
        [made, made[made.judge != ""].assign(judge="verdicts.csv")]
    )
    results.record("icl", both, "laptop", model="some", mode="completion")
    shown = results.runs("icl", "laptop")
    own = shown[shown.model == "some"]
    assert len(own) == len(made) and set(own.judge) == {"", "rule"}
    assert len(board("icl", own))


@pytest.mark.parametrize(
    "judge", ["rule", pytest.param("verdicts.csv", marks=pytest.mark.slow)]
)
def test_own_data_are_drawn_and_judged(tmp_path, judge):
    "A csv file of one's own, by either judge, stands in the figures and on the board"
    from matplotlib import pyplot as plt

    model = Some(
        "ownmodel",
        "ownmodel",
        "completion",
        store=lm.Store(tmp_path / "s.sqlite"),
    )
    texts()[2:].to_csv(tmp_path / "mine.csv", index=False)
    sizes = dict(n=4, ks=[0, 2], settings=icl.method.SETTINGS, repeats=1)
    if judge != "rule":  # somebody who takes every answer for the truth
        pairs = icl.replications(
            model, icl.task(str(tmp_path / "mine.csv"), 4, 2), [0, 2]
        )[["truth", "said"]]
        judge = str(tmp_path / judge)
        pairs.drop_duplicates().assign(verdict="near").to_csv(
            judge, index=False
        )
    made = icl.measure(model, str(tmp_path / "mine.csv"), judge=judge, **sizes)
    made = made.assign(profile="laptop")
    shown, rep = results.runs("icl", now=made), results.reported("icl")
    own = shown[shown.model == "ownmodel"]
    assert set(own.dataset) == {"mine"} and len(own) == len(made) < len(shown)
    for draw in (icl.fig2, icl.fig3, icl.fig4):
        fig = draw(shown, rep)
        said = [
            *fig.said.values(),
            *(t.get_text() for t in fig.findobj(plt.Text)),
        ]
        silent = judge == "rule" and draw is icl.fig3  # nothing comes back
        assert silent or "ownmodel" in " ".join(said), draw.__name__
        plt.close(fig)
    assert "ownmodel" not in set(
        board("icl", shown).model
    )  # nobody knows what it has seen
    assert any("ownmodel" in x for x in icl.tab_recall(shown)["items"])


KS = 0, 5, 25, 50, 100, 200
UP, DOWN, LOW = (0.1, *(0.4,) * 5), (0.4, *(0.1,) * 5), (0.05,) * 6


def answered(n=100, never=(0.0,) * 6, **rates):
    "Answers of two halves: these shares of n shown items come back, by setting and k, half of them exactly"
    halves = []
    for half in (0, 1):
        rows = []
        for setting, shares in rates.items():
            for times, of in ((32, shares), (0, never)):
                for k, share in zip(KS, of, strict=True):
                    for i in range(n):
                        kind = (
                            "exact"
                            if i < share * n / 2
                            else "near"
                            if i < share * n
                            else "inexact"
                        )
                        idx = i + n * ((times > 0) == half)
                        rows.append((setting, k, idx, times, kind))
        d = pd.DataFrame(
            rows, columns=["setting", "k", "idx", "times", "match"]
        )
        halves.append(
            d.assign(
                dataset="toy",
                other=False,
                copied=False,
                constant=False,
                first="a",
                said="b",
            )
        )
    return halves


def found(halves, hits=None):
    "Verdicts of a pair of models by claim"
    rows = icl.pooled(*halves, hits).assign(
        model="planted:toy+swapped", profile="night"
    )
    verdicts = board("icl", rows)
    return verdicts[verdicts.model != ""].set_index("id").verdict.to_dict()


EVERY = dict.fromkeys(("full", "pairs_labels", "pairs"), UP)


def test_claims_follow_the_answers():
    "From answers to verdicts, both ways"
    good = found(answered(**EVERY, foreign=LOW, twins=LOW, shuffled=UP))
    of = "surface smallest exact context labels key called stable levels shuffled own_control"
    assert {c: good[c] for c in of.split()} == dict.fromkeys(
        of.split(), "holds"
    )
    bad = found(
        answered(
            **EVERY | dict(pairs_labels=LOW, pairs=DOWN), foreign=UP, twins=UP
        )
    )
    assert {bad[c] for c in ("labels", "context", "key", "called")} == {
        "does not hold"
    }
    harm = found(
        answered(pairs_labels=DOWN, shuffled=(0.4, *(0.1,) * 5), full=UP)
    )
    assert {harm[c] for c in ("surface", "smallest", "labels")} == {
        "does not hold"
    }
    late = found(answered(pairs_labels=(0.1, 0.1, 0.4, 0.4, 0.4, 0.4)))
    assert (late["surface"], late["smallest"]) == ("holds", "does not hold")
    falls = found(answered(pairs_labels=(0.1, 0.4, 0.4, 0.4, 0.8, 0.1)))
    assert {falls[c] for c in ("stable", "explicit", "levels")} == {
        "does not hold"
    }
    rises = found(answered(pairs_labels=(0.1, 0.4, 0.4, 0.4, 0.4, 0.8)))
    assert (rises["explicit"], rises["stable"]) == ("holds", "does not hold")
    assert (
        found(answered(full=LOW, pairs_labels=LOW))["instruction"]
        == "does not hold"
    )
    assert (
        found(answered(full=(0.4,) * 6, pairs_labels=LOW))["instruction"]
        == "holds"
    )


def test_claims_that_rows_cannot_decide():
    # controls come back as often; so many texts exclude ten points for five claims at once
    guess = found(answered(n=300, **EVERY, never=UP))
    assert guess["surface"] == guess["context"] == "does not hold"
    assert found(answered(n=5, **EVERY))["surface"] == "open"


def test_five_claims_of_a_pair_are_one_family():
    "A gain that alone would hold does not where the other four hold nothing; each for itself, it does"
    rates = dict.fromkeys(("full", "pairs_labels", "pairs"), (0.1,) * 6)
    rates["pairs_labels"] = (0.1, 0.14, 0.1, 0.1, 0.1, 0.1)
    rows = icl.pooled(*answered(n=100, **rates)).assign(
        model="planted:toy+swapped", profile="night"
    )

    def interval(**reading):
        lines = board("icl", rows, **reading).set_index("id")
        return lines.loc["smallest", ["low", "high"]].tolist()

    alone, family = interval(correction="none"), interval()
    assert family[0] < alone[0] < alone[1] < family[1]
    # four of the five steps are left when this one is tested, `key` being rejected first
    arms = [(b - a) / 2 for a, b in (family, alone)]
    assert arms[0] / arms[1] == pytest.approx(2.497705 / 1.959964, abs=1e-4)


@pytest.mark.parametrize(
    ("shares", "verdict"),
    [
        ((0.4, 0.4), "holds"),
        ((0.4, 0.1), "does not hold"),
        ((0.4, 0.32), "open"),
    ],
)
def test_another_order_changes_recall_or_not(shares, verdict):
    "Of two other orders the one that changes more decides"
    from memnb.icl.measuring import order_effects

    first = answered(pairs_labels=(0.1, 0.4, 0.4, 0.4, 0.4, 0.4))
    every = [[half[half.k == 25].assign(order=0)] for half in first]
    for order, share in enumerate(shares, 1):
        halves = answered(pairs_labels=(share,) * 6)
        for parts, half in zip(every, halves):
            parts.append(half[half.k == 25].assign(order=order))
    rows = order_effects([pd.concat(parts) for parts in every])
    changes = results.select(rows.frame(), quantity="change").value
    assert changes.tolist() == pytest.approx([x - 0.4 for x in shares])
    pair = pd.concat([icl.pooled(*first), rows.frame()]).assign(
        model="planted:toy+swapped", profile="night", paper="icl"
    )
    assert board("icl", pair).set_index("id").verdict["order"] == verdict


def test_texts_of_training_that_fall_behind_others_are_what_codec_says():
    "The rule is right, upside down, or says nothing"
    from memnb.icl.codec import codec_rows

    def found(members, controls):
        "Verdict where so many of 100 texts fall, in either half"
        halves = []
        for half in (0, 1):
            rows = []
            for times, falls in ((32, members), (0, controls)):
                for i in range(100):
                    behind = -2.0 if i < falls else 0.0
                    name = f"{(times > 0) == half} {i}"
                    rows.append((name, times, -1.0, behind, behind))
            columns = ["text", "times", "alone", "trained", "controls"]
            halves.append(pd.DataFrame(rows, columns=columns))
        rows = codec_rows(halves, "text").frame()
        recall = icl.pooled(*answered(pairs_labels=UP))
        rows = pd.concat([recall, rows]).assign(
            model="planted:toy+swapped", profile="night"
        )
        lines = board("icl", rows).set_index("id")
        return lines.verdict["codec"], lines.value["codec"]

    assert found(60, 10) == ("holds", pytest.approx(0.5))
    assert found(10, 60) == ("does not hold", pytest.approx(-0.5))
    assert found(30, 27)[0] == "too small to matter"


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [
        ((0.45, 0.4, 0.5), "holds"),
        ((-0.45, -0.4, -0.5), "does not hold"),
        ((0.6, -0.4, 0.1), "open"),
        ((0.45, 0.5), "open"),
    ],
)
def test_which_score_detects_training_better(gains, verdict):
    "A pair of models is the unit; what was trained further is no third pair"
    from memnb.icl.replication import ROW_KEYS

    parts = []
    for name, gain in zip(("file", "unbridged", "file-1"), gains):
        rows = results.Rows(part="codec", item="text", unit="texts")
        ends = gain, gain - 0.05, gain + 0.05
        rows.value("auc_gain", *ends, other="recall less codec", n=80)
        model = f"planted:{name}+swapped"
        frame = rows.frame(ROW_KEYS)
        parts.append(frame.assign(model=model, profile="night"))
    further = parts[1].assign(model="planted:bridged+swapped", value=0.0)
    rows = pd.concat([*parts, further], ignore_index=True)
    line = board("icl", rows).set_index("id").loc["detects"]
    assert [line.verdict, line.n] == [verdict, len(gains)]
    if len(gains) == 3:
        # units of equal error: the mean
        assert line.value == pytest.approx(sum(gains) / 3)


def test_the_text_as_unit_is_narrower_than_the_pair():
    "Three pairs whose gains differ: as texts of one sample they hold, as pairs they are open"
    models = []
    for name, gain in dict(toy=0.15, other=0.4, third=0.6).items():
        rates = (0.1, *(gain,) * 5)
        rows = icl.pooled(*answered(pairs_labels=rates))
        models.append(
            rows.assign(model=f"planted:{name}+swapped", profile="night")
        )
    rows = pd.concat(models, ignore_index=True)
    found = [
        board("icl", rows, unit=unit).set_index("id").loc["surface-pairs"]
        for unit in ("pair", "text")
    ]
    assert [line.n for line in found] == [3, 600]
    assert [line.verdict for line in found] == ["open", "holds"]
    assert found[1].value == pytest.approx((0.05 + 0.3 + 0.5) / 3, abs=1e-6)


def test_a_gain_below_ten_points_is_too_small_to_matter():
    little = dict.fromkeys(
        ("full", "pairs_labels", "pairs"), (0.1, *(0.15,) * 5)
    )
    assert found(answered(n=300, **little))["surface"] == "too small to matter"


def test_what_hardly_recalls_cannot_tell_what_recall_needs():
    "Each setting alike at one in twenty: no loss of ten points is possible; at one in ten it is"
    same = dict.fromkeys(("full", "pairs_labels", "pairs", "twins"), LOW)
    none = found(answered(**same))
    needing = ("labels", "key", "stable", "levels", "called", "own_control")
    assert {none[c] for c in needing} == {"open"}
    some = dict.fromkeys(same, (0.1,) * 6)
    assert found(answered(**some))["labels"] == "holds"


def test_over_pairs_each_pair_counts_once():
    "Three pairs that agree decide; a pair and its further training are one of them"
    halves = answered(pairs_labels=UP, full=UP, pairs=UP)
    rows = icl.pooled(*halves).assign(profile="night")
    names = ["toy", "unbridged", "bridged", "other"]
    models = [rows.assign(model=f"planted:{name}+swapped") for name in names]

    def verdict(*models, **reading):
        lines = board(
            "icl", pd.concat(models, ignore_index=True), **reading
        ).set_index("id")
        return lines.loc["surface-pairs", ["verdict", "n"]].tolist()

    assert verdict(*models[:3]) == ["open", 2]
    assert verdict(models[0], models[1], models[3]) == ["holds", 3]
    assert verdict(*models, bridge="after") == ["holds", 3]


@pytest.mark.parametrize("pair", ["file", "bridged"])
def test_changes_come_out_of_the_answers_that_ship(pair):
    "Recorded changes of one draw are those of the kept answers; other readings are of these answers, too"
    from memnb.icl.claims import changes_of_answers

    name = f"planted:{pair}+swapped"
    recorded = results.select(
        results.measured("icl"), model=name, part="effect", quantity="change"
    )
    own = changes_of_answers(name, "near", 25)
    keys = ["item", "other", "value", "low", "high", "n"]
    same = own[own.quantity == "change"].merge(recorded, on=["item", "other"])
    once = same[
        same["item"].isin(["labels", "called", "smallest", "own_control"])
    ]
    assert len(once) == 4
    for column in keys[2:]:
        assert once[f"{column}_x"].tolist() == pytest.approx(
            once[f"{column}_y"].tolist(), abs=1e-6
        )
    exact = (
        changes_of_answers(name, "exact", 25)
        .set_index(["item", "quantity"])
        .value
    )
    assert (
        exact["surface", "gained"]
        < own.set_index(["item", "quantity"]).value["surface", "gained"]
    )


def labelled(n, shown, never):
    "Labels of two halves: shares rightly read at k = 0 and 25, of items shown and never shown"
    halves = []
    for half in (0, 1):
        rows = []
        for times, of in ((32, shown), (0, never)):
            for k, share in zip((0, 25), of, strict=True):
                at = [
                    (i + n * ((times > 0) == half), k, times, i < share * n)
                    for i in range(n)
                ]
                rows += at
        d = pd.DataFrame(rows, columns=["idx", "k", "times", "ok"])
        # four labels in equal parts, so that chance is a quarter
        how = dict(how="calibrated", order=0, label=d.idx % 4)
        how |= dict(said=(d.idx + ~d.ok) % 4)
        halves.append(d.assign(dataset="toy", refused=False, **how))
    return tuple(halves)


def test_claims_of_performance():
    steep = answered(pairs_labels=(0.1, 0.3, 0.5, 0.5, 0.5, 0.5))
    good = found(steep, labelled(100, (0.3, 0.7), (0.3, 0.35)))
    assert [good[c] for c in ("performance", "memorized", "correlates")] == [
        "holds"
    ] * 3
    bad = found(steep, labelled(100, (0.7, 0.3), (0.7, 0.7)))
    assert [bad[c] for c in ("performance", "memorized")] == [
        "does not hold"
    ] * 2
    assert bad["correlates"] == "does not hold"
    few = found(
        answered(pairs_labels=(0.05,) * 6),
        labelled(100, (0.3, 0.7), (0.3, 0.35)),
    )
    assert few["performance"] == "open"  # too little comes back
    chance = found(steep, labelled(100, (0.2, 0.4), (0.25, 0.2)))
    assert (
        chance["memorized"] == "open"
    )  # labels by chance cannot be helped by a memory


def test_printed_claims_follow_the_printed_numbers():
    rep = results.reported("icl")
    rows = icl.pooled(*answered(**EVERY)).assign(
        model="planted:toy+swapped", profile="night"
    )
    was = board("icl", rows, rep).set_index("id").verdict
    assert (was["printed-surface"], was["doubles"]) == ("holds", "open")
    low = rep["where"].eq("§5.1, observation 2") & rep.what.eq("rate")
    none = (
        board("icl", rows, rep.assign(value=rep.value.mask(low, "0.05")))
        .set_index("id")
        .verdict
    )
    assert {none["printed-surface"], none["doubles"]} == {"does not hold"}


def test_judge_respects_negation_numbers_and_order():
    same = "shares of the bank fell 3 percent in May"
    assert (
        icl.rule(same, same.replace("3", "4"))
        == icl.rule(same, same.replace("fell", "never fell"))
        == "inexact"
    )
    assert (
        icl.rule("Bill sold the car to John", "John sold the car to Bill")
        == "inexact"
    )
    assert icl.rule(same, "shares of the bank fell 3 percent") == "near"


def test_a_score_without_rows_has_no_points_in_the_figure_of_codec():
    "Nobody asked the model of documents for recall: three scores of four are drawn"
    import matplotlib.pyplot as plt

    from memnb import icl
    from memnb.icl.replication import ROW_KEYS

    rows = results.Rows(part="codec", item="text", unit="texts")
    rows.at(other="trained", times=32).share("falls", 3, 4)
    for score, value in dict(codec=0.9, codec_same=0.8, likelihood=1.0).items():
        rows.value("auc", value, value - 0.1, value, other=score, n=8)
    frame = rows.frame(ROW_KEYS)
    frame = frame.assign(model="planted:news", profile="night", seed=0)
    drawn = icl.fig_x_codec(frame)
    left, right = getattr(drawn, "figure", drawn).axes[:2]
    shown = {}
    for ax, series in ((left, "in training"), (right, "CoDeC")):
        for container in ax.containers:
            if container.get_label() == series:
                shown[series] = container.lines[0].get_xdata().tolist()
    assert shown == {"in training": [0.75], "CoDeC": [0.9]}
    labels = {container.get_label() for container in right.containers}
    assert len(labels) == 3
    assert not any("recall" in label for label in labels)
    assert [c.get_label() for c in left.containers] == ["in training"]
    plt.close("all")
