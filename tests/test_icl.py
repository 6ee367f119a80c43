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
    return Some("some", "some", "completion", store=lm.Store(tmp_path / "s.sqlite"))


def texts(n=12):
    "A labelled text set; text i has words with the i-th letter"
    rows = [(" ".join(f"{chr(97 + i)}{j}" for j in range(6)), "xy"[i % 2]) for i in range(n)]
    return pd.DataFrame(rows, columns=["text", "label"])


def of(rows, part, quantity, k):
    "The row of all instances"
    r = rows[(rows.part == part) & (rows.quantity == quantity) & (rows.k == k) & (rows.group == "")]
    assert len(r) <= 1
    return r.iloc[0] if len(r) else None


def test_refused_answers_count_in_no_share(model):
    task = icl.task(texts(4), n=4, k=0)
    m = icl.measure(model, task, n=4, ks=[0], settings="full", repeats=2)
    assert of(m, "replication", "refused", 0).value == 1 and of(m, "replication", "rate", 0).n == 3
    assert of(m, "generation", "refused", 0).value == 2  # in both repeats
    right = of(m, "generation", "accuracy", 0)  # of a, c, d the first two have label 0
    assert right.n == 3 and right.value == pytest.approx(2 / 3, abs=1e-6)
    assert (m[m.group == "not memorized"].n == 3).all()


def test_without_refusals_there_is_no_such_row(model):
    m = icl.measure(model, texts()[2:], n=4, ks=[0, 2], settings="pairs", repeats=1)
    assert of(m, "replication", "rate", 0).n == 4 and "refused" not in set(m.quantity)


def test_a_run_writes_its_rows_once_for_all_data_sets(model, tmp_path, monkeypatch):
    monkeypatch.setenv("MEMNB_HOME", str(tmp_path / "home"))
    for name in ("one", "two"):
        texts().to_csv(tmp_path / f"{name}.csv", index=False)
    sets = [str(tmp_path / f"{name}.csv") for name in ("one", "two")]
    sizes = icl.Sizes(datasets=sets, n=4, ks=[0, 2], settings=["full", "pairs"], repeats=2)
    made = icl.run(model, sizes, profile="laptop")
    rows = made.drop(columns=["model", "mode"])
    results.record("icl", rows.mask(rows.eq("")), "some", "laptop", 0, "completion")
    rows = results.measured("icl")
    rows = rows[rows.model == "some"]
    assert len(rows) == len(made) and set(rows.dataset) == {"one", "two"}
    shown = results.runs("icl", "laptop", ("model", "dataset"), made)
    assert len(shown[shown.model == "some"]) == len(made)  # recorded, so not shown twice
    by = ["dataset", "setting", "group", "k"]
    some = (d[d.model == "some"] for d in (made, shown))
    a, b = (icl.overall(d, "generation").sort_values(by) for d in some)
    columns = ["dataset", "setting", "group", "k", "hits", "accuracy", "low", "high", "n"]
    assert a[columns].values.tolist() == b[columns].values.tolist()


def test_a_second_judge_doubles_nothing(model, tmp_path, monkeypatch):
    monkeypatch.setenv("MEMNB_HOME", str(tmp_path / "home"))
    made = icl.measure(model, texts(), n=4, ks=[0, 2], settings=icl.SETTINGS, repeats=1)
    both = pd.concat([made, made[made.judge != ""].assign(judge="verdicts.csv")]).drop(
        columns="model"
    )
    results.record("icl", both, "some", "laptop", 0, "completion")
    shown = results.runs("icl", "laptop")
    own = shown[shown.model == "some"]
    assert len(own) == len(made) and set(own.judge) == {"", "rule"}
    assert len(board("icl", own))


@pytest.mark.parametrize("judge", ["rule", pytest.param("verdicts.csv", marks=pytest.mark.slow)])
def test_own_data_are_drawn_and_judged(tmp_path, judge):
    "A csv file of one's own, by either judge, stands in the figures and on the board"
    from matplotlib import pyplot as plt

    model = Some("ownmodel", "ownmodel", "completion", store=lm.Store(tmp_path / "s.sqlite"))
    texts()[2:].to_csv(tmp_path / "mine.csv", index=False)
    sizes = dict(n=4, ks=[0, 2], settings=icl.SETTINGS, repeats=1)
    if judge != "rule":  # somebody who takes every answer for the truth
        pairs = icl.replications(model, icl.task(str(tmp_path / "mine.csv"), 4, 2), [0, 2])[
            ["truth", "said"]
        ]
        judge = str(tmp_path / judge)
        pairs.drop_duplicates().assign(verdict="near").to_csv(judge, index=False)
    made = icl.measure(model, str(tmp_path / "mine.csv"), judge=judge, **sizes)
    made = made.assign(profile="laptop")
    shown, rep = results.runs("icl", now=made), results.reported("icl")
    own = shown[shown.model == "ownmodel"]
    assert set(own.dataset) == {"mine"} and len(own) == len(made) < len(shown)
    for draw in (icl.fig_x_found, icl.fig2, icl.fig3, icl.fig4, icl.fig_x_elements):
        fig = draw(shown, rep)
        said = [*fig.said.values(), *(t.get_text() for t in fig.findobj(plt.Text))]
        silent = (
            judge == "rule" and draw is icl.fig_x_elements
        )  # nothing comes back, so no element matters
        assert silent or "ownmodel" in " ".join(said), draw.__name__
        plt.close(fig)
    found = icl.verdicts_of(shown, rep)
    verdicts = found.verdict[found.model == "ownmodel"]
    assert len(verdicts) >= 10 and "does not hold" not in set(verdicts)
    assert any("ownmodel" in c for c in icl.tab2(shown, rep))


KS = 0, 25, 50, 100, 200
UP, DOWN, LOW = (0.1, 0.4, 0.4, 0.4, 0.4), (0.4, 0.1, 0.1, 0.1, 0.1), (0.05,) * 5


def answered(n=200, never=(0.01,) * 5, known=True, **rates):
    "Rows of a model of which these shares of n shown items come back, by setting and k; half of them exactly"
    said = [
        dict(
            dataset="toy",
            setting=setting,
            k=k,
            idx=f"{times} {i}",
            times=times,
            other=False,
            copied=False,
            match="exact" if i < share * n / 2 else "near" if i < share * n else "inexact",
        )
        for setting, shares in rates.items()
        for times, of in ([(8, shares), (0, never)] if known else [(8, shares)])
        for k, share in zip(KS, of, strict=True)
        for i in range(n)
    ]
    d = pd.DataFrame(said) if known else pd.DataFrame(said).drop(columns="times")
    rows = icl.in_long_form(icl.matches_of(d), icl.paired_rows(d))
    return rows.assign(model="planted:toy" if known else "stranger")


def classified(rows, said=(0.5, 5, 60), **shares):
    "Rows with accuracies by k of 200 instances, of all, and of `shown` and `never`"
    more = dict(zip(("constant", "distinct", "commonest"), said, strict=True))
    parts = []
    for group, of in shares.items():
        for k, share in zip(KS, of, strict=True):
            at = dict(part="generation", dataset="toy", group=group.replace("every", ""), k=k)
            counts = dict(hits=share * 200) | (more if k else {})
            parts += icl.share_rows(at, counts, "accuracy", share * 200, 200)
    return icl.in_long_form(rows, parts).assign(model=rows.model.iloc[0])


def found(rows):
    "Verdicts by claim"
    return board("icl", rows).set_index("id").verdict.to_dict()


EVERY = dict.fromkeys(("full", "pairs_labels", "pairs"), UP)
OF_MEMORY = {"surface", "smallest", "labels", "context", "key", "called"}


def test_claims_follow_the_answers():
    "From answers to verdicts, both ways"
    good = found(answered(**EVERY, foreign=LOW, twins=LOW))
    assert {good[c] for c in OF_MEMORY | {"stable", "exact"}} == {"holds"}
    bad = found(answered(**EVERY | dict(pairs_labels=LOW, pairs=DOWN), foreign=UP, twins=UP))
    assert {bad[c] for c in ("labels", "context", "key")} == {"does not hold"}
    assert found(answered(pairs=UP, twins=UP))["called"] == "does not hold"
    assert found(answered(pairs_labels=DOWN))["surface"] == "does not hold"
    late = found(answered(pairs_labels=(0.1, 0.1, 0.4, 0.4, 0.4)))
    assert (late["surface"], late["smallest"]) == ("holds", "does not hold")
    assert found(answered(pairs_labels=(0.1, 0.4, 0.4, 0.5, 0.2)))["stable"] == "does not hold"


def test_claims_that_rows_cannot_decide():
    silent = found(answered(**dict.fromkeys(EVERY, (0,) * 5), never=(0,) * 5, foreign=(0,) * 5))
    guess = found(answered(**EVERY, never=UP, foreign=LOW))  # controls come back as often
    few = found(answered(n=5, **EVERY))
    stranger = found(answered(known=False, **dict.fromkeys(EVERY, DOWN), foreign=DOWN))
    for verdicts in (silent, guess, few, stranger):
        of_memory = {verdicts[c] for c in ("surface", "smallest", "context")}
        assert of_memory == {"undecided"}, verdicts


def test_claims_of_performance():
    grown = (0.3, 0.4, 0.5, 0.55, 0.62)
    steep = answered(pairs_labels=(0.1, 0.42, 0.52, 0.6, 0.7), n=400)
    apart = dict(shown=(0.6,) * 5, never=(0.3,) * 5)
    three = "performance", "memorized", "correlates"
    good = found(classified(steep, every=(0.3, 0.5, 0.6, 0.66, 0.75), **apart))
    assert [good[c] for c in three] == ["holds"] * 3
    bad = found(classified(steep, every=(0.6,) * 5, shown=(0.3,) * 5, never=(0.6,) * 5))
    assert [bad[c] for c in three] == ["does not hold", "does not hold", "undecided"]
    one = found(classified(steep, (0.96, 2, 60), every=grown, **apart))  # one label, always
    assert {one[c] for c in three} == {"undecided"}


def test_judge_respects_negation_numbers_and_order():
    same = "shares of the bank fell 3 percent in May"
    assert (
        icl.rule(same, same.replace("3", "4"))
        == icl.rule(same, same.replace("fell", "never fell"))
        == "inexact"
    )
    assert icl.rule("Bill sold the car to John", "John sold the car to Bill") == "inexact"
    assert icl.rule(same, "shares of the bank fell 3 percent") == "near"
