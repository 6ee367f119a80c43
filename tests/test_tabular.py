"What the claims of the paper on tables read: each can come out either way, and what cannot tell says so."

import pandas as pd
import pytest

from memnb import claims, results
from memnb.results import Rows
from memnb.tabular.claims import codes_of, diversity, statistics
from memnb.tabular.counting import ROW_KEYS
from memnb.tabular.rules import sign, sure_recall


def of(rows, model="toy"):
    "Rows of claims that `statistics` makes of rows of one model: claim -> its rows"
    measured = rows.frame(ROW_KEYS).assign(model=model)
    made = statistics(measured, results.reported("tabular"))
    table = results.frame_of(made)
    own = table[table.model == model]
    return {
        claim: found.reset_index(drop=True)
        for claim, found in own.groupby("item")
    }


def verdict(claim, rows):
    "Verdict of a claim of the paper on such rows"
    (rule,) = (c for c in claims.read("tabular") if c.id == claim)
    return claims.judge(rule, rows)["verdict"]


def accuracy(table, right, often):
    "A language model that labels so many of 200 rows rightly, and gives one label to a share of them"
    rows = Rows(part="accuracy", dataset=table, unit="rows")
    model = rows.at(item="language model")
    model.share("rate", right, 200)
    model.value("commonest", often)
    rows.at(item="majority").share("rate", 120, 200)
    rows.at(item="Logistic Regression").share("rate", 160, 200)
    return rows


TABLES = {
    "predict titanic": "titanic",
    "predict diabetes": "openml-diabetes",
    "predict adult": "adult",
    "predict spaceship": "spaceship-titanic",
}


@pytest.mark.parametrize("claim", TABLES)
def test_one_label_for_all_rows_predicts_nothing_on_any_table(claim):
    table = TABLES[claim]
    assert verdict(claim, of(accuracy(table, 80, often=0.97))[claim]) == "open"
    expected = "holds" if claim == "predict spaceship" else "does not hold"
    assert verdict(claim, of(accuracy(table, 80, often=0.6))[claim]) == expected


def copied(rate, but_unique):
    "100 samples of Adult, of which so many are rows, and rows but maybe for fnlwgt"
    rows = Rows(part="known_sample", dataset="adult", unit="samples")
    cell = rows.at(test="copied_observations", times=64)
    cell.share("rate", rate, 100)
    cell.share("but_unique", but_unique, 100)
    return rows


def test_a_unique_number_is_the_cause_where_it_is_wrong_in_most():
    "Of 52 samples that are rows otherwise it is wrong in 10: it is not what keeps them from being copies"
    few = of(copied(42, 52))["cause"]
    assert few[["value", "n"]].values.tolist() == [[10, 52]]
    assert verdict("cause", few) == "does not hold"
    assert verdict("cause", of(copied(10, 52))["cause"]) == "holds"


def test_exposure_is_of_all_tables_and_each_is_a_case():
    rows = Rows(part="exposure", unit="rows", item="paired", times=64, n=40)
    rows.value("more", 0.13, 0.06, 0.21, dataset="")
    rows.value("more", 0.08, -0.03, 0.2, dataset="iris")
    rows.value("more", 0.2, 0.1, 0.3, dataset="wine")
    found = of(rows)["exposure"]
    assert found.quantity.tolist() == ["statistic", "case", "case"]
    assert verdict("exposure", found) == "holds"
    (rule,) = (c for c in claims.read("tabular") if c.id == "exposure")
    alone = claims.judge(rule, found[found.quantity == "case"][:0])
    assert alone["verdict"] == "not asked"


def few_repetitions(found, gains, times=4):
    "Gains of rows of two tables in two models that are each other's controls; the row test finds so many of 40"
    rows = Rows()
    for table in ("iris", "adult"):
        known = rows.at(part="eyes", dataset=table, times=times, unit="rows")
        known.at(test="row_completion").share("rate", found, 20)
        each = rows.at(part="own_contexts", dataset=table, times=times, n=1)
        for half in ("toy", "toy-swapped"):
            for i, gain in enumerate(gains):
                cell = each.at(other=half, item=f"{table} row {half} {i}")
                cell.value("gain", gain, text="yes", unit="contexts")
    return rows


def unseen(rows, **reading):
    measured = rows.frame(ROW_KEYS).assign(model="planted:toy, both halves")
    made = statistics(measured, results.reported("tabular"), **reading)
    return results.select(results.frame_of(made), item="unseen")


def test_few_repetitions_raise_accuracy_where_the_row_test_is_blind():
    "Of 20 rows a block 4 or 16 are gained: 20 or 80 points, of 80 rows; two rows of five right by chance are none"
    gained = [1.0] * 4 + [0.0] * 16
    (line,) = unseen(few_repetitions(1, gained)).to_dict("records")[:1]
    assert line["value"] == pytest.approx(0.2)
    assert (line["n"], line["unit"]) == (80, "rows")
    assert line["model"] == "planted:toy"
    assert verdict("unseen", unseen(few_repetitions(1, gained))) == "holds"
    nothing = [1.0, -1.0] + [0.0] * 18
    found = unseen(few_repetitions(1, nothing))
    assert verdict("unseen", found) == "does not hold"


def test_what_the_row_test_finds_is_not_unseen():
    "30 of 40 rows are found, more than a quarter: nothing is said of what it does not see"
    gained = [1.0] * 4 + [0.0] * 16
    found = unseen(few_repetitions(15, gained))
    assert "30 of 40" in found.guard.iloc[0]
    assert verdict("unseen", found) == "open"


def test_readings_of_few_repetitions_take_other_rows():
    gained = [1.0] * 4 + [0.0] * 16
    rows = few_repetitions(1, gained)
    rows.add(few_repetitions(1, [0.0] * 20, times=1))
    assert unseen(rows, few=1).value.iloc[0] == 0
    assert unseen(rows, table="iris").n.iloc[0] == 40
    by_block = unseen(rows, by="block").iloc[0]
    assert (by_block.value, by_block.n) == (pytest.approx(0.2), 4)
    assert not len(unseen(rows, few=2))


def header(found, asked):
    rows = Rows()
    cell = rows.at(part="header", dataset="adult", unit="splits")
    cell.share("rate", 0, 4)
    cell.value("lines", 0)
    cell.value("line_guess", 0)
    known = rows.at(part="eyes", dataset="iris", unit="rows")
    known.at(test="header", times=64).share("rate", found, asked)
    return of(rows)["header only"]


def test_cuts_of_one_block_are_no_independent_units():
    "32 cuts of four blocks cannot prove that a header is absent; 17 blocks can"
    assert sure_recall("header", 32, 32) == pytest.approx(0.025**0.25)
    assert verdict("header only", header(32, 32)) == "open"
    assert verdict("header only", header(17 * 8, 17 * 8)) == "does not hold"


def test_an_unknown_name_is_no_absence():
    known = dict(feature_completion=(30, 30))
    row = pd.Series(
        dict(part="feature_completion", feature="Name", n=60) | dict(rate=0.0)
    )
    row = pd.concat([row, pd.Series(dict(low=0.0, high=0.05))])
    assert sign(row, known) == "?"
    assert (
        sign(
            pd.concat([row.drop("feature"), pd.Series(dict(feature="fnlwgt"))]),
            known,
        )
        == "✗"
    )


def test_diversity_is_the_chance_of_two_different_values():
    samples = pd.DataFrame(dict(a=["x", "x", "y"], b=["1", None, "2"]))
    # of three pairs two differ in a; of the one pair of b, one
    assert diversity(codes_of(samples)) == pytest.approx((2 / 3 + 1) / 2)
