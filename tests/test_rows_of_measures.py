"What the papers on contextual memorization, capacity and comparison measure is written as `results.Rows` all through."

import numpy as np
import pytest

from memnb import core, results
from memnb.papers import paper

# sizes of a run of seconds
SMALL = dict(
    contextual=(
        "ngram",
        dict(main=["L2"], apart=[], published=[], repeats=2, epochs=2, tests=4),
    ),
    capacity=(
        "",
        dict(
            parts=["synthetic", "precision", "steps"],
            models=["1x8"],
            random_sizes=[4],
            lengths_of_training=[2],
            repeats=1,
            epochs=2,
            held=4,
        ),
    ),
    compare=(
        "gpt",
        dict(
            n=20,
            worlds=["reuters_r52 1x8 0"],
            epochs=2,
            length=16,
            vocab=300,
            prefixes=[4],
            pools=[],
        ),
    ),
)


def measured(word, **change):
    model, sizes = SMALL[word]
    return paper(word).measure(model, paper(word).sizes(sizes | change))


@pytest.mark.parametrize("word", SMALL)
def test_measure_gives_rows_that_can_be_recorded(word):
    rows = measured(word)
    assert isinstance(rows, results.Rows) and len(rows) > 20
    for record in rows.records:
        assert {*record} <= {*results.COLUMNS}
        assert isinstance(record["value"], float)
        assert np.isfinite(record["value"])
    table = rows.frame().assign(paper=word, model="m", profile="laptop")
    assert len(results.checked(table)) == len(rows)


@pytest.mark.parametrize("word", SMALL)
def test_counting_gives_rows_and_trains_nothing(word):
    with core.counting() as count:
        assert isinstance(measured(word), results.Rows)
    # an n-gram model is not trained
    assert (count.trainings > 0) == (word != "contextual")


def test_a_training_that_diverged_leaves_its_note_alone():
    from memnb import gpt
    from memnb.capacity import of_training, trainings, write_training

    c = gpt.Config(1, 8, 4, 4)
    data = gpt.random_data(4, 4, 4, seed=0)
    fits = gpt.fit([c, c], [data, data], epochs=1, batch=4, seed=[0, 1])
    fits[1].note = "diverged at step 3"
    rows = results.Rows()
    for run, fit in enumerate(fits):
        write_training(
            of_training(rows, "synthetic", c, 4, run), fit, dict(f1=0.5)
        )
    table = rows.frame()
    diverged = table[table.run == 1]
    assert diverged.quantity.tolist() == ["note"]
    assert diverged.text.tolist() == ["diverged at step 3"]
    assert trainings(rows, "synthetic").run.tolist() == [0]
    checked = table.assign(paper="capacity", model="gpt", profile="laptop")
    assert len(results.checked(checked)) == len(rows)


def test_rows_of_other_rows_keep_what_they_say():
    inner = results.Rows(part="tuned")
    inner.value("share", 0.5, 0.25, 0.75, n=4)
    inner.at(model="its own").value("share", 1.0)
    outer = results.Rows(mode="train")
    outer.at(model="outer").add(inner)
    first, second = outer.records
    assert first["model"] == "outer" and second["model"] == "its own"
    assert {first["mode"], second["mode"]} == {"train"}
    # whole numbers stay whole, and what one row lacks is not written into it
    assert first["n"] == 4 and isinstance(first["n"], int)
    assert "low" not in second
