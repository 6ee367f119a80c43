"Replication and its claims: refused answers, two judges, what is recorded, and checks that notice a swap."

import pandas as pd
import pytest

from memnb import icl, lm, results
from memnb.icl import claims


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
    made = icl.run_all(model, sets, "laptop", 4, [0, 2], ["full", "pairs"], repeats=2)
    rows = results.measured("icl")
    rows = rows[rows.model == "some"]
    assert len(rows) == len(made) and set(rows.dataset) == {"one", "two"}
    shown = icl.side_by_side(made, model, "laptop")
    assert len(shown[shown.model == "some"]) == len(made)  # recorded, so not shown twice
    a, b = (
        icl.cells(d[d.model == "some"], "generation").sort_values(
            ["dataset", "setting", "group", "k"]
        )
        for d in (made, shown)
    )
    columns = ["dataset", "setting", "group", "k", "hits", "accuracy", "low", "high", "n"]
    assert a[columns].values.tolist() == b[columns].values.tolist()


def test_a_second_judge_doubles_nothing(model, tmp_path, monkeypatch):
    monkeypatch.setenv("MEMNB_HOME", str(tmp_path / "home"))
    made = icl.measure(model, texts(), n=4, ks=[0, 2], settings=icl.SETTINGS, repeats=1)
    both = pd.concat([made, made[made.judge != ""].assign(judge="verdicts.csv")]).drop(
        columns="model"
    )
    results.record("icl", both, "some", "laptop", 0, "completion")
    shown = icl.side_by_side(None, None, "laptop")
    own = shown[shown.model == "some"]
    assert len(own) == len(made) and set(own.judge) == {"", "rule"}
    assert len(results.board(icl.CLAIMS, own, results.reported("icl")))


@pytest.mark.parametrize("judge", ["rule", "verdicts.csv"])
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
    shown, rep = icl.side_by_side(made, model, "laptop"), results.reported("icl")
    own = shown[shown.model == "ownmodel"]
    assert set(own.dataset) == {"mine"} and len(own) == len(made) < len(shown)
    for draw in (icl.fig_x_summary, icl.fig2, icl.fig3, icl.fig4, icl.fig_x_elements):
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


def test_checks_notice_shares_that_are_swapped(monkeypatch):
    more, counts = claims._more, claims.pair_counts
    monkeypatch.setattr(claims, "_more", lambda a, b, looks=1: more(b, a, looks))

    def swap(found):
        return {d: {g: (y, x, n) for g, (x, y, n) in groups.items()} for d, groups in found.items()}

    monkeypatch.setattr(claims, "pair_counts", lambda *a, **kw: swap(counts(*a, **kw)))
    wrong = {s.split(":")[0] for s in results.untried(icl.CLAIMS, results.reported("icl"))}
    assert wrong >= {
        "surface",
        "smallest",
        "labels",
        "context",
        "key",
        "performance",
        "memorized",
        "form",
        "topic",
        "called",
        "shuffled",
    }


def test_judge_respects_negation_numbers_and_order():
    same = "shares of the bank fell 3 percent in May"
    assert (
        icl.rule(same, same.replace("3", "4"))
        == icl.rule(same, same.replace("fell", "never fell"))
        == "inexact"
    )
    assert icl.rule("Bill sold the car to John", "John sold the car to Bill") == "inexact"
    assert icl.rule(same, "shares of the bank fell 3 percent") == "near"
