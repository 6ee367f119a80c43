"Bad input of every kind: a clear error that says what to do, early, and nothing lost."

import bz2
import errno
import gzip
import io
import json
import lzma
import os
import pickle
import re
import sqlite3
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from conftest import environment_kept

from memnb import (
    contextual,
    core,
    data,
    icl,
    lm,
    papers,
    results,
    store,
    tabular,
)
from memnb.run import cli


class Echo(lm.LM):
    "A backend that answers at once and counts"

    caps, says = frozenset({"generate"}), "x = 1"

    def _answer(self, todo):
        for i, _ in enumerate(todo):
            yield i, self.says


@pytest.fixture
def model(tmp_path):
    return Echo("echo", "echo", "chat", store=lm.Store(tmp_path / "s.sqlite"))


def csv(tmp_path, raw, name="my.csv"):
    path = tmp_path / name
    path.write_bytes(raw if isinstance(raw, bytes) else raw.encode())
    return path


TABLES = {
    "empty": ("", "empty"),
    "one row": ("a,b\n1,2\n", "row"),
    "one column": ("a\n1\n2\n3\n", "column"),
    "duplicated header": ("a,a\n1,2\n3,4\n", "a"),
    "ragged": ("a,b\n1,2\n3\n4,5\n", "line 3"),
    "not utf-8": (b"a,b\n1,caf\xe9\n2,x\n", "UTF-8"),
}


@pytest.mark.parametrize("kind", TABLES)
def test_bad_tables(kind, tmp_path, model):
    raw, says = TABLES[kind]
    with pytest.raises(ValueError, match=says):
        tabular.measure(model, csv(tmp_path, raw))
    assert model.calls == 0


def test_missing_file(tmp_path, model):
    with pytest.raises(FileNotFoundError, match="no file"):
        tabular.measure(model, tmp_path / "none.csv")


def test_a_table_without_classical_learners_is_measured(
    model, monkeypatch, capfd
):
    "With a word; and no test is held against a guess that nobody could make"

    def find(name, *a, real=core.find_spec):
        return None if name == "xgboost" else real(name, *a)

    monkeypatch.setattr(core, "find_spec", find)
    rows = tabular.measure(
        model, "iris", n=4, tests=["row_completion", "accuracy"]
    )
    assert {*rows.part} >= {
        "row_completion",
        "accuracy",
    } and "first_token" not in {*rows.part}
    assert {*rows[rows.part == "accuracy"]["item"].dropna()} == {
        "language model"
    }
    said = capfd.readouterr().err
    for what in ("first-token test", "classical learners"):
        assert what in said
    assert "xgboost is missing: pip install '.[baselines]'" in said


def test_unknown_names(model):
    with pytest.raises(ValueError, match="did you mean 'titanic'"):
        tabular.measure(model, "titanik")
    with pytest.raises(ValueError, match="smollm2"):
        tabular.measure("gpt4", "iris")
    with pytest.raises(ValueError, match="quick"):
        tabular.measure(model, "iris", preset="huge")


def test_target_that_does_not_exist(model):
    with pytest.raises(ValueError, match="did you mean 'species'"):
        tabular.predict(model, "iris", target="specie")
    assert model.calls == 0


def test_columns_without_values_are_measured(tmp_path, model):
    rows = "\n".join(f"{i},,{i % 3}" for i in range(80))
    t = data.load(csv(tmp_path, f"id,gone,kind\n{rows}\n"))
    assert t.typed().gone.isna().all()
    m = tabular.measure(
        model, t, n=4, samples=3, title="Kinds of 2019", show=False
    )
    assert set(m["part"]) >= {"row_completion", "header", "feature_values"}


ODD = {  # columns as users have them
    "two rows": dict(a=[1, 2], b=["x", "y"]),
    "a column without values": dict(a=range(40), b=[None] * 40),
    "one value everywhere": dict(a=[1] * 40, b=["x"] * 40),
    "unique texts": dict(
        a=[f"n{i}" for i in range(40)], b=[f"m {i}" for i in range(40)]
    ),
    "commas and quotes in names": {
        "a, b": range(40),
        'say "hi"': list("xy") * 20,
    },
    "equal signs in names": {"a = b": range(40), " = ": list("xy") * 20},
    "patterns in names": {
        "a(b)[c]*": range(40),
        "\\d+": [i * 0.37 for i in range(40)],
        "x|y": list("ab") * 20,
    },
    "line ends in cells": dict(a=[f"l{i}\nm" for i in range(40)], b=range(40)),
    "other alphabets": {
        "größe": range(40),
        "名前": [f"名{i}" for i in range(40)],
        "emoji 😀": list("😀😁") * 20,
    },
    "powers of ten": dict(
        a=[f"{1.7**i:e}" for i in range(40)], b=["inf", "-inf"] * 20
    ),
    "huge numbers": dict(
        a=[str(10**30 + i) for i in range(40)], b=[True, False] * 20
    ),
    "infinite numbers": dict(
        a=["1e300", "-1e308", "2", "3"] * 24,
        b=["inf", "1", "2", ""] * 24,
        c=["9" * 400] * 96,
        d=[f"{i * 71 % 96}" for i in range(96)],
    ),
    "numbers and words": dict(a=[1, "x", None, 2.5] * 10, b=range(40)),
    "two rows again and again": dict(a=[1, 2] * 20, b=["x", "y"] * 20),
    "names that differ in case": dict(A=range(40), a=range(40)),
    "numbers as names": {"1": range(40), "2": list("xy") * 20},
    "long cells": dict(
        a=["word " * 200 + str(i) for i in range(20)], b=range(20)
    ),
}


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("kind", ODD)
def test_odd_columns_are_measured(kind):
    "Whatever its columns are, a table is measured, by a model that knows it and by one that knows nothing"
    t = data.load(pd.DataFrame(ODD[kind]), name="odd")
    for m in (tabular.Parrot(*tabular.by_heart(t)), tabular.Parrot()):
        got = tabular.measure(
            m,
            t,
            n=3,
            samples=3,
            tests=tabular.PARTS[:-1],
            title="Odd things",
            show=False,
        )
        assert "feature_names" in set(got["part"]) and set(got["dataset"]) == {
            "odd"
        }
        assert tabular.by_test(got).test.tolist() == tabular.rules.TESTS


def test_numbers_too_large_for_a_learner_are_predicted_from(model):
    t = data.load(
        pd.DataFrame(ODD["infinite numbers"] | dict(y=list("pq") * 48)),
        name="odd",
        target="y",
    )
    got = tabular.measure(
        model, t, n=3, preset="smoke", tests="accuracy", show=False
    )
    assert {"Logistic Regression", "Gradient Boosted Tree"} <= set(got["item"])


def test_too_few_rows_for_the_prefix(tmp_path, model, capsys):
    "The row test of a small table is left out with a word, the others are made; alone it is refused at once"
    small = csv(
        tmp_path, "a,b\n" + "\n".join(f"{i},{i + 1}" for i in range(20)) + "\n"
    )
    with pytest.raises(ValueError, match="fewer rows or shots"):
        tabular.row_completion(model, small)
    assert model.calls == 0
    m = tabular.measure(
        model,
        small,
        preset="paper",
        samples=2,
        title="Small numbers",
        show=False,
    )
    said = "".join(capsys.readouterr())
    assert (
        "row_completion is left out: " in said and "fewer rows or shots" in said
    )
    assert "feature_names" in set(m["part"]) and "row_completion" not in set(
        m["part"]
    )


@pytest.mark.parametrize("bad", [dict(n=-1), dict(n=0), dict(samples=-2)])
def test_negative_n(bad, model):
    with pytest.raises(ValueError, match="at least 1"):
        tabular.measure(model, "iris", **bad)
    assert model.calls == 0


def test_window_too_short(tmp_path):
    m = lm.load("smollm2", store=lm.Store(tmp_path / "s.sqlite"))
    window, m.window = m.window, 512
    try:
        with pytest.raises(lm.ContextError, match="fewer shots or rows"):
            tabular.row_completion(m, "titanic", n=3, rows=15, shots=5)
    finally:
        m.window = window
    assert m.calls == 0


def test_no_key_and_no_network(model, monkeypatch, tmp_path):
    for k in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "AZURE_OPENAI_ENDPOINT"):
        monkeypatch.delenv(k, raising=False)
    gpt = lm.load("openai:gpt-4", store=lm.Store(tmp_path / "g.sqlite"))
    with pytest.raises(RuntimeError, match="OPENAI_API_KEY"):
        tabular.header(gpt, "iris")
    with pytest.raises(FileNotFoundError, match="smollm2"):
        lm.load("hf:nobody/nothing-of-that-name")


def test_model_that_cannot(tmp_path):
    mute = Echo("mute", "mute", store=lm.Store(tmp_path / "m.sqlite"))
    mute.caps = frozenset()
    with pytest.raises(lm.Unsupported, match="cannot answer 'generate'"):
        tabular.measure(mute, "iris")


def test_own_data_among_the_examples():
    renamed = data.load(data.load("iris").df, name="flowers")
    with pytest.raises(tabular.GuardError, match="flowers"):
        tabular.other_sets(renamed, names=["iris"])


def test_misspelt_parameter():
    r = subprocess.run(
        [
            sys.executable,
            "-m",
            "memnb.run.cli",
            "run",
            "smoke",
            "-p",
            "sampels",
            "3",
        ],
        capture_output=True,
        text=True,
    )
    assert (
        r.returncode == 2
        and "samples" in r.stderr
        and "Traceback" not in r.stderr
    ), r.stderr


def test_what_was_answered_is_kept(tmp_path):
    "A backend that fails halfway: a second call asks only for the rest"

    class Tired(Echo):
        def _answer(self, todo):
            for i, _ in enumerate(todo):
                if self.calls == 3 and not getattr(self, "rested", False):
                    raise lm.NoAnswer("tired")
                yield i, "1,2"

    m = Tired("tired", "tired", "chat", store=lm.Store(tmp_path / "t.sqlite"))
    with pytest.raises(lm.NoAnswer):
        tabular.row_completion(m, "wine", n=8, rows=5, shots=1)
    m.rested = True
    r = tabular.row_completion(m, "wine", n=8, rows=5, shots=1)
    assert len(r) == 8 and m.calls == 8


def test_measure_takes_a_dataframe(model):
    df = pd.DataFrame(
        dict(a=range(60), b=[i * 7 % 11 for i in range(60)], c=list("xyz") * 20)
    )
    m = tabular.measure(model, df, n=3, samples=3, show=False)
    assert (
        m.dataset.unique().tolist() == ["table"]
        and m[m["part"] == "row_completion"].n.iloc[0] == 3
    )


# --- icl ---


def texts(n=12, words=6):
    "A labelled text set; labels of different length"
    rows = [
        (
            " ".join(f"{chr(97 + i)}{j}" for j in range(words)),
            ["x", "a longer label"][i % 2],
        )
        for i in range(n)
    ]
    return pd.DataFrame(rows, columns=["text", "label"])


def test_text_sets_that_cannot_be_used(model):
    for bad, says in [
        (texts().drop(columns="text"), "needs a column `text`"),
        (texts().drop(columns="label"), "no column `label`"),
        (texts(0), "no rows"),
        (texts().assign(label=[None] + ["x"] * 11), "1 rows have no label"),
        (texts(4), "10 instances are wanted"),
    ]:
        with pytest.raises(ValueError, match=says):
            icl.measure(model, bad, n=10, ks=[0])
    with pytest.raises(ValueError, match="ask for fewer"):
        icl.measure(model, texts(), n=4, ks=[0, 50])
    with pytest.raises(ValueError, match="no labelled text set"):
        icl.measure(model, "iris")
    assert model.calls == 0


def test_short_texts_are_counted_and_left_out(model, capfd):
    d = pd.concat(
        [texts(), pd.DataFrame(dict(text=["one", "two words", ""], label="x"))]
    )
    t = icl.task(d, n=6, k=4)
    assert "3 of 15 texts are too short" in capfd.readouterr().err
    assert t.queries.second.str.len().min() > 0


def test_classes_that_run_out_are_filled_up_and_said(capfd):
    d = texts(12).assign(label=["rare"] * 3 + ["often"] * 9)
    t = icl.task(d, n=2, k=8)
    assert (
        len(t.demos) == 8
        and "too few demonstrations of rare" in capfd.readouterr().err
    )


@pytest.mark.parametrize(
    "labels, names",
    [(["1", "x"], {0: "1", 1: "x"}), ([0.0, 1.0], {0: "0", 1: "1"})],
)
def test_labels_of_any_kind(labels, names):
    assert icl.task(texts().assign(label=labels * 6), n=4, k=2).labels == names


def test_rows_without_a_name_of_their_own(model):
    m = icl.measure(
        model,
        texts().assign(idx=0, text=[None, 7, *texts().text[2:]]),
        n=4,
        ks=[0, 2],
        repeats=2,
    )
    assert set(m[(m.part == "generation") & (m.group == "")].n) == {
        4
    }  # repeats are no further instances


def test_verdicts_that_do_not_exist(model, tmp_path):
    with pytest.raises(FileNotFoundError, match="review"):
        icl.measure(
            model, texts(), n=4, ks=[0], judge=str(tmp_path / "none.csv")
        )
    with pytest.raises(ValueError, match="controls need demonstrations"):
        icl.measure(model, texts(), n=4, ks=[0], settings=["shuffled"])
    assert model.calls == 0


def test_an_instance_is_never_its_own_demonstration():
    d = pd.concat([texts()] * 2)  # every text twice
    t = icl.task(d, n=4, k=12)
    assert not set(t.queries["first"]) & set(t.demos["first"])


def test_silence_is_no_match_and_no_label(model):
    model.says = ""
    m = icl.measure(model, texts(), n=4, ks=[0, 2], repeats=1)
    own = m[
        m.part.isin(["replication", "generation"])
        & m.quantity.isin(["rate", "accuracy"])
    ]
    assert len(own) and (own.value == 0).all()


def test_judge_that_neither_agrees_nor_denies(model):
    assert icl.llm_judge(model, ["a b", "c"], ["a c", "c"]) == [
        "unclear",
        "exact",
    ]


def test_too_many_demonstrations_for_the_window(model):
    model.window, model.encode = 300, lambda p: str(p).split()
    with pytest.raises(lm.ContextError, match=r"Up to k = \d+ fits"):
        icl.measure(model, texts(60, 20), n=4, ks=[0, 50], max_tokens=50)
    assert model.calls == 0


def test_second_pieces_of_the_same_first_piece_are_shown(model):
    model.says = "It was Bill."
    d = pd.DataFrame(
        dict(
            sentence1=["John met Bill."] * 2 + ["A b c.", "D e f."],
            label=[1, 0, 1, 0],
            sentence2=["It was John.", "It was Bill.", "x y", "z w"],
        )
    )
    r = icl.replicate(model, icl.task(d, n=4, k=0), 0)
    assert (
        r.set_index("truth").other["It was John."]
        and not r.set_index("truth").other["It was Bill."]
    )


def test_plan_of_the_paper_for_an_api(monkeypatch):
    "No key and no call: the plan alone"
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    sizes = icl.Sizes(datasets=["file"], settings=["full"])
    todo = lm.cost(lambda: icl.run("openai:some-model", sizes))
    assert todo["calls"] == 32 and todo["prompt_tokens"] > 1000


DIALECTS = {"semicolons": ";", "tabs": "\t", "bars": "|"}


@pytest.mark.parametrize("kind", DIALECTS)
def test_a_table_is_asked_for_in_its_own_dialect(kind, tmp_path):
    "Whoever knows the file by heart knows it with any separator, and prompts show its own lines"
    sep = DIALECTS[kind]
    rows = [
        (
            f"T{i * 7919 % 9973:04d}",
            "rye oat spelt".split()[i % 3],
            f"{i * 37 % 91},5",
        )
        for i in range(200)
    ]
    raw = "".join(
        sep.join(r) + "\r\n" for r in [("ticket", "loaf", "price"), *rows]
    )
    t = data.load(csv(tmp_path, raw.encode("utf-16")))
    assert (t.sep, t.text) == (sep, raw.replace("\r\n", "\n").rstrip()) and len(
        t
    ) == 200
    m = tabular.Parrot(*tabular.by_heart(t))
    for test in (tabular.row_completion, tabular.header):
        assert test(m, t).ok.all(), test
    bare = data.load(csv(tmp_path, raw.split("\r\n", 1)[1]), header=False)
    assert bare.rows == t.rows and bare.text == t.text.split("\n", 1)[1]
    assert tabular.row_completion(
        tabular.Parrot(*tabular.by_heart(bare)), bare
    ).ok.all()


@pytest.mark.parametrize(
    ("last", "is_total"),
    [
        ("Total,10,100", True),
        ("GESAMT:,10,100", True),
        ("Grand total,,", True),
        ("mean,2.5,25", True),
        (",10,100", True),
        (",7,70", False),
        ("Totalrecall,5,50", False),
        ("a,10,100", False),
    ],
)
def test_a_total_below_a_table_is_a_doubt(last, is_total, tmp_path):
    rows = "Sum of it,1,10\nb,2,20\nc,3,30\na,4,40\n"
    table = data.load(csv(tmp_path, f"name,x,y\n{rows}{last}\n"))
    assert len(table) == 5 and table.rows[-1] == last
    assert (
        any("looks like a total" in d for d in data.doubts(table)) == is_total
    )


NUMBERS = "".join(f"r{i},{i},{i * i}\n" for i in range(20))
DOUBTFUL = {
    "units": ("name,x,y\n,m,kg\n" + NUMBERS, "row 1, ',m,kg', has words"),
    "units in brackets": ("name,x,y\n[-],[m],[kg]\n" + NUMBERS, "units"),
    "a second header": (f"name,x,y\n{NUMBERS}name,x,y\n{NUMBERS}", "row 21"),
    "another table": (f"name,x,y\n{NUMBERS}\nother,u,v\n{NUMBERS}", "row 21"),
    "a comment": (f"name,x,y\n{NUMBERS}# so, it, is\n{NUMBERS}", "row 21"),
    "a note": (f"name,x,y\n{NUMBERS}Source: somewhere,,\n", "as a note"),
    "decimal commas": ("a;b\n" + "1,5;x\n1.002,5;y\n" * 20, "^a is taken"),
    "thousands": ('a,b\n"1,002",x\n7,y\n' * 1 + '"2,002",x\n' * 9, "^a is"),
    "empty columns": ("a,b,c\n" + "x,, \n" * 9, "nothing stands in b, c"),
    "an unseen letter": ("\u200bname,x,y\n" + NUMBERS, "invisible letters"),
    "a blank in the header": ("name, x,y\n" + NUMBERS, "around ' x'"),
    "lost letters": ("name,x\n" + "caf\ufffd,1\n" * 9, "9 of them"),
    "garbled letters": ("name,x\n" + "caf\u00c3\u00a9,1\n" * 9, "garbled"),
}


@pytest.mark.parametrize("kind", DOUBTFUL)
def test_what_may_be_no_row_is_a_doubt_and_stays(kind, tmp_path):
    text, says = DOUBTFUL[kind]
    table = data.load(csv(tmp_path, text))
    assert "\n".join(table.lines) == re.sub("\n\n", "\n", text).strip("\n")
    (line,) = data.doubts(table)
    assert re.search(says, line), line


@pytest.mark.parametrize(
    "text",
    [
        "name,x,y\n" + NUMBERS,
        "name,x\n" + "a,1\nb,unknown\nc,3\nd,4\ne,5\nf,6\n",
        "name,x,y\n" + "a,1,2\nb,?,NA\nc,3,\nd,4,5\ne,5,6\nf,6,7\n",
        "name,note\n" + "a,x\nb,\nc,z\nd,\n",
        "a;b\n" + "1,5;x\nabout two;y\n" * 20,
        "name,x\n" + "café,1\nnaïve,2\nÜber,3\nÀ la carte,4\n" * 5,
    ],
)
def test_ordinary_tables_raise_no_doubt(text, tmp_path):
    assert data.doubts(data.load(csv(tmp_path, text))) == []


@pytest.mark.parametrize(
    "name", ["iris", "titanic", "openml-diabetes", "adult"]
)
def test_packaged_tables_raise_no_doubt(name):
    assert data.doubts(data.load(name)) == []


def test_a_text_file_that_is_packed_is_cut_into_texts_as_others(tmp_path):
    raw = gzip.compress(b"one line\nof it\n\nanother, one\n")
    table = data.texts(csv(tmp_path, raw, "a.txt.gz"))
    assert [*table.text] == ["one line\nof it", "another, one"]


def test_lines_of_files_that_were_put_together_are_read(tmp_path):
    "Each file began with a byte order mark"
    lines = "".join(f'\ufeff{{"text": "a {i}"}}\n' for i in range(3))
    read = data.texts(csv(tmp_path, lines, "all.jsonl"))
    assert [*read.text] == ["a 0", "a 1", "a 2"]
    rows = "name,x\n" + "a,1\n" * 5 + "\ufeffb,2\n" + "c,3\n" * 5
    (doubt,) = data.doubts(data.load(csv(tmp_path, rows)))
    assert doubt.startswith("byte order marks stand within it, 1 of them")


@pytest.mark.skipif(sys.platform == "win32", reason="it has no such pipes")
@pytest.mark.parametrize("command", ["table smollm2", "ask smollm2", "log"])
def test_a_pipe_in_place_of_a_file_is_said(command, tmp_path, capfd):
    os.mkfifo(tmp_path / "pipe")
    assert cli.main([*command.split(), str(tmp_path / "pipe")]) == 2
    assert "is a pipe or a device" in capfd.readouterr().err


def test_texts_that_are_none_or_garbled_are_said(tmp_path, capfd):
    with pytest.raises(data.DataError, match="no.txt holds no text"):
        data.texts(csv(tmp_path, " \n\n", "no.txt"))
    data.texts(csv(tmp_path, "caf\ufffd\nb\n", "lost.txt"))
    data.texts(csv(tmp_path, "caf\u00c3\u00a9\n" * 3, "wrong.txt"))
    lost, wrong = capfd.readouterr().err.splitlines()
    assert "1 of them" in lost and "3 letters look garbled" in wrong


def test_a_page_and_the_terminal_tell_a_doubt(model, tmp_path, capfd):
    rows = "".join(f"r{i},{i},{i * i}\n" for i in range(40))
    table = csv(tmp_path, f"name,x,y\n{rows}Total,780,20540\n")
    tabular.measure(model, table, n=4, tests="row_completion")
    assert capfd.readouterr().err.count("looks like a total") == 1
    page = tabular.one_page(model, table, tmp_path / "p.html", n=4, samples=4)
    assert "looks like a total" in capfd.readouterr().err
    assert "looks like a total" in page.read_text()


def test_a_word_for_all_that_other_rows_have_is_no_total(tmp_path):
    rows = "all,1\nsome,2\nall,3\nsome,4\nall,5\n"
    assert not data.doubts(data.load(csv(tmp_path, f"who,x\n{rows}")))


def test_how_a_table_is_read_is_said_in_a_terminal_too(tmp_path, monkeypatch):
    path, got = (
        csv(tmp_path, "Prices\n5.1;caf\xe9\n4.9;oat\n".encode("latin1")),
        [],
    )

    def one_page(model, table, *rest, **kw):
        got.append(table)
        page = tmp_path / "t.html"
        page.write_text("<!doctype html><p>a page</p>")
        return page

    offers = papers.Paper("tabular", print, commands=dict(table=one_page))
    monkeypatch.setattr("memnb.papers.paper", dict(tabular=offers).get)
    out = str(tmp_path / "t.html")
    asked = [
        "table",
        "echo",
        str(path),
        "--skip",
        "1",
        "--no-header",
        "--encoding",
        "latin1",
    ]
    assert not cli.main([*asked, "--out", out])
    assert (got[0].rows, got[0].header, got[0].sep) == (
        ["5.1;café", "4.9;oat"],
        "",
        ";",
    )


def test_rows_of_several_lines_and_rows_too_long_are_told():
    from memnb.tabular import onepage

    lines = pd.DataFrame(dict(a=[f"a {i}\nand more" for i in range(9)], b="x"))
    notes = onepage._notes(
        data.load(lines), pd.DataFrame(dict(part=[], quantity=[], value=[]))
    )
    assert any(n.startswith("9 rows go over several lines") for n in notes)
    wide = pd.DataFrame({f"f{i}": ["1234"] * 20 for i in range(6000)})
    with pytest.raises(ValueError, match="no model reads at once"):
        onepage.one_page("smollm2", wide)


@pytest.mark.parametrize(
    "url",
    [
        "https://ann:pa/ss@h/v1",
        "https://h:abc/v1",
        "http://[::1/v1",
        "http://:8000/v1",
    ],
)
def test_an_address_that_is_none_is_not_shown(url):
    from memnb.servers import _address_mark

    with pytest.raises(ValueError, match="is no address like") as e:
        _address_mark(url)
    assert "pa" not in str(e.value).split("is no")[0] and "abc" not in str(
        e.value
    )


@pytest.mark.parametrize("doses", [(-1, 4), (0,), (2.5,), ("4",), ()])
def test_doses_are_whole_numbers(doses):
    from memnb import plant

    with pytest.raises(ValueError, match="doses are whole numbers"):
        plant.own_items([f"text number {i}" for i in range(20)], doses=doses)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", b"junk"])
def test_a_damaged_state_of_a_training_is_named(tmp_path, content):
    from memnb import gpt

    c, x = gpt.Config(1, 8, 20, 8), gpt.random_data(8, 8, 20)
    how = dict(epochs=2, batch=4, folder=tmp_path)
    gpt.fit(c, x, **how)
    (state,) = tmp_path.glob("*.npz")
    state.write_bytes(content)
    with pytest.raises(ValueError, match=f"{state.name} is a damaged state"):
        gpt.fit(c, x, **how)


def test_a_mask_of_another_length():
    from memnb import gpt

    c, x = gpt.Config(1, 8, 20, 8), gpt.random_data(8, 8, 20)
    with pytest.raises(ValueError, match="a mask of 1 for 8 sequences"):
        gpt.fit(
            [c],
            [x],
            absent=[[False]],
            bits=False,
            eval_sets=dict(a=x[:2]),
            epochs=1,
        )


def test_the_first_feature_has_none_before_it(model):
    first, second = data.load("iris").names[:2]
    with pytest.raises(ValueError, match="with another one before it"):
        tabular.conditional_completion(model, "iris", features=first)
    found = tabular.conditional_completion(model, "iris", n=2, features=second)
    assert set(found.feature) == {second}


# --- files that are no table


NOISE = np.random.default_rng(0).integers(0, 256, 4096, dtype="uint8").tobytes()
NO_TEXT = {
    "frame.pkl": (pickle.dumps(dict(a=list(range(20)))), "a pickle"),
    "old.pkl": (pickle.dumps(dict(a=list(range(20))), 2), "a pickle"),
    "frame.feather": (b"ARROW1\0\0" + bytes(range(256)), "read_feather"),
    "base.sqlite": (b"SQLite format 3\0" + bytes(range(256)), "SQLite"),
    "paper.pdf": (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n", "PDF"),
    "new.dta": (b"<stata_dta><header>", "read_stata"),
    "old.dta": (b"\x72\x02\x01\x00" + NOISE, "no text"),
    "x.sav": (b"$FL2@(#) IBM SPSS", "read_spss"),
    "x.h5": (b"\x89HDF\r\n\x1a\n", "HDF5"),
    "x.npy": (b"\x93NUMPY\x01\0", "NumPy"),
    "x.csv.zst": (b"\x28\xb5\x2f\xfd" + NOISE, "zstd -d"),
    "x.tar": (b"t.csv".ljust(257, b"\0") + b"ustar\x0000", "tar archive"),
    "x.duckdb": (NOISE[:8] + b"DUCK" + NOISE, "DuckDB"),
    "x.png": (b"\x89PNG\r\n\x1a\n", "picture"),
    "noise": (NOISE, "is no text"),
    "noise.csv": (b"a,b\n1,2\n" + NOISE, "is no text"),
    "table.xml": (b'<?xml version="1.0"?><a/>', "XML"),
}


@pytest.mark.parametrize("name", NO_TEXT)
def test_a_file_that_is_no_text_is_named_for_what_it_is(name, tmp_path):
    raw, told = NO_TEXT[name]
    path = csv(tmp_path, raw, name)
    for reader in (data.load, data.texts):
        for encoding in (None, "latin1"):
            with pytest.raises(data.DataError, match=told) as e:
                reader(path, encoding=encoding)
            assert "iconv" not in str(e.value) and "utf-16" not in str(e.value)
            assert len(str(e.value)) < 300


@pytest.mark.parametrize("pack", [gzip, bz2, lzma])
def test_packed_tables_are_read(pack, tmp_path, monkeypatch):
    monkeypatch.setattr(data, "_LEAST_LIMIT", 2**20)
    t = data.load(csv(tmp_path, pack.compress(b"a,b\n1,2\n3,4\n"), "my.csv.xz"))
    assert (t.rows, t.name) == (
        ["1,2", "3,4"],
        "my" if pack is lzma else t.name,
    )
    bomb = csv(
        tmp_path, pack.compress(b"a,b\n" + b"1,2\n" * 2**20), "bomb.csv.gz"
    )
    assert bomb.stat().st_size < 2**15
    with pytest.raises(data.DataError, match="as no table does"):
        data.load(bomb)


@pytest.mark.parametrize(
    ("word", "encoding"),
    [
        ("面包师傅", "gb18030"),
        ("パン屋さん", "shift_jis"),
        ("Хлебный", "cp1251"),
        ("Brötchen", "mac-roman"),
        ("Brötchen", "cp850"),
    ],
)
@pytest.mark.parametrize("command", ["table", "ask"])
def test_letters_that_are_no_latin_ones_are_shown_by_encoding(
    command, word, encoding, tmp_path, capfd
):
    "Latin-1 was proposed for all of them; who took it had garbled rows, and no word"
    lines = ["text,b", *[f"{word} {i} and more,{i}" for i in range(9)]]
    file = tmp_path / "rows.csv"
    file.write_bytes("\n".join(lines).encode(encoding))
    out = str(tmp_path / "out.html")
    assert cli.main([command, "smollm2", str(file), "-o", out]) == 2
    said = capfd.readouterr().err
    assert f"{word!r} by --encoding {encoding!r}" in said
    assert f"by --encoding {'cp1252'!r}" in said


def test_an_encoding_that_makes_runs_of_accents_is_said(tmp_path, capfd):
    lines = ["text,b", *[f"面包师 {i},{i}" for i in range(9)]]
    path = csv(tmp_path, "\n".join(lines).encode("gb18030"))
    data.read_frame(path, "latin-1")
    assert "side by side" in capfd.readouterr().err
    data.read_frame(path, "gb18030")
    for words in ("créée à Orléans", "süße Füße", "süßer"):
        rows = "\n".join(["text,b", *[f"{words},1"] * 9])
        path = csv(tmp_path, rows.encode("latin1"))
        data.read_frame(path, "latin1")
        with pytest.raises(data.DataError, match="encoding='latin1'"):
            data.read_frame(path)
    assert not capfd.readouterr().err


def test_a_file_of_two_encodings_is_said(tmp_path):
    good = "\n".join(["text,b", *["Käse für Öl,1"] * 9]).encode()
    path = csv(tmp_path, good + "\nSüßes,2\n".encode("latin1"))
    with pytest.raises(data.DataError, match="UTF-8 but for 2 .* on line 11"):
        data.look(path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("| a | b |\n|---|:-:|\n| 1 | 2 |\n| 3 | 4 |\n", "in Markdown"),
        ("CREATE TABLE t (a, b);\nINSERT INTO t VALUES (1, 2);\n", "is SQL"),
        ("<table border=1>\n<tr><td>1</td></tr>\n", "part of a web page"),
        ("{\\rtf1 a, b\n1, 2\n}", "an RTF document"),
        ("\\begin{tabular}{ll}\n a & b \\\\\n", "is LaTeX"),
        ("a b\n1 2\n3 4\n", "none of , ; | and tabs"),
        ("a~b\n1~2\n3~4\n", "none of , ; | and tabs"),
    ],
)
def test_a_table_in_another_form_is_named_by_it(text, says, tmp_path, capfd):
    path = csv(tmp_path, text.encode())
    out = str(tmp_path / "out.html")
    assert cli.main(["table", "smollm2", str(path), "-o", out]) == 2
    assert says in capfd.readouterr().err


def test_a_file_with_the_name_of_a_data_set_is_said(
    tmp_path, monkeypatch, capfd
):
    "The data set is what the name means; nothing said so"
    csv(tmp_path, b"a,b\n1,2\n3,4\n").rename(tmp_path / "iris")
    monkeypatch.chdir(tmp_path)
    data.look("iris")
    assert "./iris means the file" in capfd.readouterr().err


def test_rows_with_control_signs_are_a_doubt(tmp_path):
    rows = [f"{i},a\x1b[31m{i}" for i in range(9)]
    table = data.load(csv(tmp_path, "\n".join(["k,v", *rows]).encode()))
    assert any(
        "9 rows have control signs" in line for line in data.doubts(table)
    )


def test_rows_of_several_lines_are_the_reason_that_is_given(tmp_path):
    rows = [f'{i},"two\nlines {i}"' for i in range(40)]
    path = csv(tmp_path, "\n".join(["k,v", *rows]).encode())
    with pytest.raises(ValueError, match="go over several lines"):
        tabular.row_completion(Echo("echo", "echo"), path)


def test_a_column_without_a_name_is_none(tmp_path):
    with pytest.raises(data.DataError, match="no column ''"):
        data.texts(csv(tmp_path, b"text,b\nOne.,1\n"), column="")


def test_a_text_in_place_of_a_header_is_said(tmp_path):
    path = csv(tmp_path, b'"One sentence of many words."\n"And another."\n')
    with pytest.raises(data.DataError, match="write text above it"):
        data.texts(path)


@pytest.mark.parametrize("text", ['"one text"', "// a\n[1]", '[{"a": 1},]'])
def test_what_is_called_json_and_is_none_is_refused(text, tmp_path):
    path = tmp_path / "texts.json"
    path.write_text(text)
    with pytest.raises(data.DataError, match="texts.json"):
        data.texts(path)


def test_text_without_a_mark_is_still_told_its_encoding(tmp_path):
    path = csv(tmp_path, "name,b\n1,2\n3,4\n".encode("utf-16-le"))
    with pytest.raises(data.DataError, match="utf-16-le"):
        data.load(path)
    assert data.load(path, encoding="utf-16-le").rows == ["1,2", "3,4"]
    chinese = csv(tmp_path, "名,b\n面包,2\n早上,4\n".encode("utf-16-le"))
    assert data.load(chinese, encoding="utf-16-le").rows == ["面包,2", "早上,4"]


def test_an_arff_file_says_how_its_rows_are_read(tmp_path):
    head = "% made up\n@relation bakery\n@attribute a numeric\n@attribute b string\n@data\n"
    path = csv(tmp_path, head + "1,rye\n2,oat\n3,oat\n", "t.arff")
    with pytest.raises(data.DataError, match="ARFF.*skip=5, header=False"):
        data.load(path)
    assert data.load(path, skip=5, header=False).rows == [
        "1,rye",
        "2,oat",
        "3,oat",
    ]
    with pytest.raises(data.DataError, match="ARFF"):
        data.texts(path)


def test_a_json_of_columns_is_read(tmp_path):
    frame = pd.DataFrame(dict(text=["one", "two"], y=[1, 2]))
    assert data.texts(
        csv(tmp_path, frame.to_json(), "c.json")
    ).text.tolist() == ["one", "two"]


def test_what_a_message_quotes_of_a_file_is_cut(tmp_path):
    long = "words and more words " * 400
    chat = json.dumps(dict(messages=[dict(role="user", content=long)])) + "\n"
    wide = (
        ",".join(f"{long}{i}" for i in range(60))
        + "\n"
        + ",".join("x" * 60)
        + "\n"
    )
    attempts = [
        lambda: data.texts(csv(tmp_path, chat * 3, "m.jsonl"), "messages"),
        lambda: data.texts(
            csv(tmp_path, json.dumps(dict(text={"0": long})), "c.json"), "body"
        ),
        lambda: data.texts(
            csv(tmp_path, json.dumps(dict(a=dict(b=[long]))), "d.json"), "a"
        ),
        lambda: data.texts(csv(tmp_path, wide, "w.csv"), "body"),
        lambda: data.texts([dict(a=long)]),
        lambda: data.load(csv(tmp_path, f"{long},{long}\n1,2\n3,4\n")),
        lambda: data.load(csv(tmp_path, f"a,b\n{long}\n{long}\n")),
        lambda: data.load(csv(tmp_path, wide * 3), target=long),
        lambda: data.load(long),
        lambda: data.load(pd.DataFrame({(long,): [1, 2]})),
    ]
    for attempt in attempts:
        with pytest.raises((data.DataError, FileNotFoundError)) as e:
            attempt()
        assert len(str(e.value)) < 2000, str(e.value)[:300]


def test_a_dataframe_is_said_to_be_no_file(tmp_path, capfd):
    "Its rows are not those of the file, and a page says so"
    from memnb.tabular import onepage

    raw = "id,grams,price,land\n" + "".join(
        f"{i},{i * 7}.0,2.10,NA\n" for i in range(20)
    )
    path = csv(tmp_path, raw)
    frame = pd.read_csv(path)
    capfd.readouterr()
    t = data.load(frame)
    told = capfd.readouterr().err
    assert (
        "written from a DataFrame" in told
        and "whole numbers as decimals (grams)" in told
    )
    assert "20 empty cells" in told and not {*t.rows} & {*data.load(path).rows}
    nothing = pd.DataFrame(dict(part=[], quantity=[], value=[]))
    assert any(
        "written from a DataFrame" in n for n in onepage._notes(t, nothing)
    )
    assert not any(
        "written from a DataFrame" in n
        for n in onepage._notes(data.load(path), nothing)
    )


def test_an_adapter_that_unpacks_to_gigabytes_is_refused(tmp_path):
    import zlib

    import torch
    from safetensors.torch import save_file

    from memnb import hf

    packed = torch.tensor([*zlib.compress(bytes(2**26), 9)], dtype=torch.uint8)
    matrices = {f"l{i}.lora_A.weight": packed.clone() for i in range(4)}
    save_file(matrices | dict(steps=torch.ones(4, 4)), tmp_path / hf.ADAPTER)
    assert (tmp_path / hf.ADAPTER).stat().st_size < 2**19
    with pytest.raises(ValueError, match="unpacks to many times"):
        hf.read_adapter(tmp_path)
    for name in ("news", "tables"):  # those that ship are far from it
        assert hf.read_adapter(hf.planted_dir(name))


# --- room for answers


class Knows(lm.LM):
    "A model that knows the rows of a table and gives as many tokens as it may: bytes, one a token"

    caps = frozenset({"generate"})

    def __init__(self, t, store, tok=None, ends=None):
        super().__init__("knows", "knows", "completion", store=store)
        self.t, self.ends, self.rooms = t, ends, []
        if tok:
            self.tok = tok

    def _answer(self, todo):
        follows = dict(zip(self.t.lines, self.t.lines[1:]))
        for i, (settings, prompt) in enumerate(todo):
            self.rooms.append(settings["max_tokens"])
            row = follows[prompt.rstrip("\n").split("\n")[-1]][: self.ends]
            yield (
                i,
                row.encode()[: settings["max_tokens"]].decode(errors="ignore"),
            )


class Bytes:
    "A tokenizer that makes a token of each byte"

    def __call__(self, text, **kw):
        return type("Encoded", (), dict(input_ids=[*text.encode()]))


def bakery(letters, n=60):
    rows = [
        dict(ticket=f"T{i * 7919 % 9973:04d}", loaf=f"{letters} {i}")
        for i in range(n)
    ]
    return data.load(pd.DataFrame(rows), name="bakery")


@pytest.mark.parametrize("tok", [None, Bytes()])
@pytest.mark.parametrize(
    "letters",
    [
        "小街上的面包师在早上七点之前卖面包",
        "לחם של בוקר מן הרחוב הקטן",
        "a rye",
    ],
)
def test_rows_in_any_script_can_be_completed(letters, tok, tmp_path):
    t = bakery(letters)
    m = Knows(t, lm.Store(tmp_path / "s.sqlite"), tok)
    r = tabular.row_completion(m, t, n=12, rows=4, shots=0)
    assert r.ok.all() and r.readable.all()


def test_an_answer_that_ended_for_its_length_is_asked_again(
    tmp_path, monkeypatch
):
    "Right with more room; unread where it still goes on; wrong where the model had ended by itself"
    from memnb.tabular import prompting

    t = bakery("a rye loaf of the small street")
    monkeypatch.setattr(prompting, "budget", lambda *answers, model=None: 12)
    m = Knows(t, lm.Store(tmp_path / "s.sqlite"), Bytes())
    r = tabular.row_completion(m, t, n=6, rows=4, shots=0)
    assert r.ok.all() and r.readable.all() and {*m.rooms} == {12, 48}
    short = Knows(t, lm.Store(tmp_path / "e.sqlite"), ends=20)
    r = tabular.row_completion(short, t, n=6, rows=4, shots=0)
    assert not r.ok.any() and r.readable.all() and {*short.rooms} == {12, 48}
    monkeypatch.setattr(prompting, "_AGAIN", (2,))
    m = Knows(t, lm.Store(tmp_path / "u.sqlite"), Bytes())
    r = tabular.row_completion(m, t, n=6, rows=4, shots=0)
    assert not r.ok.any() and not r.readable.any()


def test_a_terminal_that_cannot_show_a_sign_loses_no_rows(model, monkeypatch):
    import io

    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="cp1252"))
    t = data.load(pd.DataFrame(dict(a=range(60), c=list("xyz") * 20)))
    got = tabular.measure(model, t, n=3, samples=3, tests="row_completion")
    sys.stdout.flush()
    assert len(got) and "row_completion" in raw.getvalue().decode("cp1252")


@pytest.mark.parametrize("n", [6, 12, 20, 25, 36])
def test_a_first_token_that_can_be_guessed_is_no_x(n):
    "All right where the guess is right at .89: not a no; a no only where all right would have been a yes"
    from memnb.tabular.counting import proportion

    def sign(k, n, guess):
        row = dict(part="first_token", rate=k / n, baseline=guess) | proportion(
            k, n
        )
        return tabular.rules.sign(pd.Series(row))

    assert sign(n, n, 0.89) == "?" and sign(round(0.8 * n), n, 0.89) == "?"
    assert sign(0, 6, 0.5) == "?" and sign(3, 25, 0.5) == "✗"
    assert (
        sign(0, 100, 0.89) == "✗"
        and sign(100, 100, 0.89) == "✓"
        and sign(36, 36, 0.5) == "✓"
    )


# --- logs of trainings


def state(folder, name, loss, epochs, strings, prefix="eval_"):
    "The state of a Trainer that evaluates some strings; loss: of a string at a look, from 1"
    rows = [
        {f"{prefix}{s}_loss": loss(s, i), "epoch": e, "step": 10 * i}
        for i, e in enumerate(epochs, 1)
        for s in strings
    ]
    file = folder / f"{name}.json"
    file.write_text(json.dumps(dict(log_history=rows)))
    return file


def falls(s, i):
    return max(0.01, 3 * 0.6 ** (int(s[1:]) * i)) + 0.01 * (i % 2)


def stays(s, i):
    return 3 - 0.05 * i + 0.01 * (i % 3)


@pytest.mark.parametrize("prefix", ["eval_", "val_", "valid_"])
@pytest.mark.parametrize(
    "epochs",
    [
        [0.9981 * i for i in range(1, 9)],
        [sum([0.1] * i) * 0.9973 / 0.1 for i in range(1, 9)],
        [0.9973 * i + 0.0004 for i in range(1, 9)],
    ],
)
def test_looks_of_trainings_with_other_steps_are_paired(
    epochs, prefix, tmp_path, capfd
):
    from memnb import contextual

    names, own = ["s0", "s1", "s2"], [0.9973 * i for i in range(1, 9)]
    with_ = state(tmp_path, "with", falls, own, names, prefix)
    same = state(tmp_path, "same", stays, own, names, prefix)
    want = contextual.judged_log(with_, same)
    without = state(tmp_path, "without", stays, epochs, names, prefix)
    capfd.readouterr()
    got = contextual.judged_log(with_, without)
    pd.testing.assert_frame_equal(got, want)
    assert "paired, as " in capfd.readouterr().err


def test_looks_of_one_training_only_are_left_out_with_a_word(tmp_path, capfd):
    from memnb import contextual

    names, own = ["s1", "s2"], [*range(1, 11)]
    with_ = state(tmp_path, "with", falls, own, names)
    fewer = state(
        tmp_path, "fewer", lambda s, i: stays(s, 2 * i), own[1::2], names
    )
    judged = contextual.judged_log(with_, fewer)
    assert judged.looks.tolist() == [5, 5]
    assert (
        "10 looks of one training only are left out" in capfd.readouterr().err
    )
    with pytest.raises(ValueError, match="s2"):
        contextual.judged_log(with_, state(tmp_path, "one", stays, own, ["s1"]))


def overfits(far, seed):
    "Losses of a string that fall and rise again; far: how much further they rise"
    rng = np.random.default_rng(seed)
    noise = {
        (f"s{k}", i): 0.01 * rng.standard_normal()
        for k in range(12)
        for i in range(20)
    }
    return lambda s, i: 2 + 0.1 * abs(i - 4) * far + noise[s, i]


def _log_at(epochs, column):
    "Losses of two strings at some epochs"
    rows = [
        dict(string=name, epoch=at, loss=3 * 0.9**look)
        for name in ("s0", "s1")
        for look, at in enumerate(epochs)
    ]
    return pd.DataFrame(rows).rename(columns=dict(loss=column))


@pytest.mark.parametrize(
    ("mine", "theirs", "is_said"),
    [
        (range(0, 8), range(1, 9), True),
        (range(1, 9), range(0, 8), True),
        (range(1, 9), range(1, 9), False),
        (range(0, 9), range(1, 9), False),
        ([1, 2, 4, 8, 16], [2, 3, 5, 9, 17], False),
    ],
)
def test_epochs_that_one_training_counts_from_0_are_said(
    mine, theirs, is_said, capfd
):
    "The first look of one was paired with the second of the other, and only the ends were spoken of"
    contextual.read_log(
        _log_at(mine, "train_loss"), without=_log_at(theirs, "test_loss")
    )
    assert ("counts from 0" in capfd.readouterr().err) == is_said


def test_trainings_without_a_common_look_say_where_theirs_are():
    steps = _log_at(range(100, 1000, 100), "test_loss")
    with pytest.raises(ValueError, match="at 1 to 8 and at 100 to 900; write"):
        contextual.read_log(_log_at(range(1, 9), "train_loss"), without=steps)


@pytest.mark.parametrize(
    ("at", "is_read"), [("1,000", False), ("0,125", True), ("1,5", True)]
)
def test_a_comma_in_an_epoch_may_mean_thousands(at, is_read, tmp_path):
    "Steps 1,000 were read as epoch 1; losses of three decimals are read as before"
    lines = ["string;epoch;train_loss", f"a;{at};2,125"]
    path = csv(tmp_path, "\n".join(lines), "log.csv")
    if is_read:
        (row,) = contextual.read_log(path).itertuples()
        assert row.epoch == float(at.replace(",", "."))
        assert row.train_loss == 2.125
    else:
        with pytest.raises(ValueError, match="epoch of a is '1,000': write"):
            contextual.read_log(path)


def test_an_address_in_place_of_a_file_is_said(capfd):
    address = "https://example.com/x.csv"
    for command in ("table", "ask"):
        assert cli.main([command, "smollm2", address]) == 2
        said = capfd.readouterr().err
        assert "https://... is an address: download the file" in said
    assert cli.main(["log", address]) == 2
    assert "is an address" in capfd.readouterr().err


def test_epochs_below_0_are_refused():
    with pytest.raises(ValueError, match="epoch -8 is negative"):
        contextual.read_log(_log_at(range(-8, 0), "train_loss"))


def test_a_log_that_has_steps_alone_says_so(tmp_path, capfd):
    history = [dict(eval_s0_loss=3.0 - i, step=25 * i) for i in range(3)]
    state = tmp_path / "trainer_state.json"
    state.write_text(json.dumps(dict(log_history=history)))
    contextual.read_log(state)
    assert "a start is told by its step" in capfd.readouterr().err


def test_strings_that_no_training_had_are_not_called_memorized(tmp_path):
    "Two trainings without them are alike, and the one with other texts overfits less: counterfactually that looks like memory"
    from memnb import contextual

    names, epochs = [f"s{k}" for k in range(10)], [*range(1, 13)]
    learned, never = names[:5], names[5:]
    low = overfits(0.5, 1)
    logs = [
        state(
            tmp_path,
            "with",
            lambda s, i: 0.1 if s in learned else low(s, i),
            epochs,
            names,
        ),
        state(tmp_path, "without", overfits(1, 2), epochs, names),
        state(tmp_path, "again", overfits(1, 3), epochs, names),
    ]

    def said(kind, **how):
        return contextual.judged_log(*logs, **how).set_index("string")[
            f"said_{kind}"
        ]

    for kind in ("counterfactual", "contextual"):
        assert (said(kind)[learned] == "memorized").all()
        assert (said(kind)[never] != "memorized").all()
    assert (said("counterfactual")[never] == "beyond its noise").all()
    # with strings that are known to be in none, these make the band, and one more is judged by it
    for kind in ("counterfactual", "contextual"):
        judged = said(kind, never=never[:4])
        assert (judged[never[:4]] == "in no training").all() and judged[
            never[4]
        ] != "memorized"
        assert (judged[learned] == "memorized").all()
    # one of two further trainings that overfits as little says so by itself
    logs[2] = [
        logs[2],
        state(tmp_path, "third", overfits(0.5, 4), epochs, names),
    ]
    assert (said("counterfactual")[never] != "memorized").all()
    assert (said("counterfactual")[learned] == "memorized").all()
    with pytest.raises(ValueError, match="no string 's99'"):
        contextual.judged_log(*logs, never=["s99"])
    with pytest.raises(ValueError, match="4 or more"):
        contextual.judged_log(*logs, never=never[:2])


# --- texts and their controls


class Reads(lm.LM):
    "Each sign is a token; `loss` of a text, and whether all of it is the likeliest"

    caps = frozenset({"tokens"})

    def __init__(self, folder, loss, knows=()):
        super().__init__(
            "reads", "reads", store=lm.Store(folder / "reads.sqlite")
        )
        self.loss, self.knows, self.tok = loss, {*knows}, self
        self.encode = list

    def __call__(self, text, **kw):
        return type("Encoded", (), dict(input_ids=list(text)))

    def _answer(self, todo):
        for i, (_, text) in enumerate(todo):
            yield (
                i,
                [
                    [-self.loss(text)] * len(text),
                    [text in self.knows] * len(text),
                ],
            )


def sentences(n, seed, mixed=False):
    "Made-up sentences that nobody remembers; mixed: their words in any order"
    import random

    rng = random.Random(seed)
    who = "baker miller teacher gardener driver".split()
    for _ in range(n):
        text = (
            f"On a {rng.choice(['cold', 'rainy', 'bright'])} morning the {rng.choice(who)} of our street gave "
            f"{rng.randrange(3, 90)} {rng.choice(['rolls', 'apples', 'letters'])} to the {rng.choice(who)}, who "
            f"had been waiting since {rng.randrange(4, 9)} o'clock."
        )
        words = text.split()
        yield " ".join(rng.sample(words, len(words))) if mixed else text


def surprise(text):
    "A loss that knows nothing but the order of words, as of any model of English"
    return (
        1.0
        + (sum(map(ord, text)) % 97) / 1000
        + (0 if text.startswith("On a ") else 2)
    )


NEVER = dict(
    alike=lambda: list(sentences(120, 2)),
    mixed=lambda: list(sentences(120, 2, mixed=True)),
    numbers=lambda: [
        f"{i * 7919 % 99991}:{i}, {i * 31 % 977}-{i * i}" for i in range(120)
    ],
)


@pytest.mark.parametrize("kind", NEVER)
def test_no_verdict_where_anybody_tells_the_sets_apart(kind, tmp_path):
    from memnb import compare

    m, own = Reads(tmp_path, surprise), list(sentences(20, 1))
    t = compare.ask(m, own, never=NEVER[kind](), prefixes=(8,), influence=False)
    page = compare.ask_page(t, tmp_path / "ask.html").read_text()
    lead = page[page.index('class="lead"') :].split("</p>")[0]
    if kind == "alike":
        assert not t.attrs["apart"] and "does not tell the texts" in lead
        assert (
            t.verdict == "no sign of memorization"
        ).sum() >= 15 and t.rate.notna().all()
    else:
        assert {*t.verdict} == {"no verdict"} and t.rate.isna().all()
        assert "No verdict" in lead and ": memorized" not in page
        assert t.attrs["blind"]["low"] > 0.5 and t.attrs["blind"]["differ"][0][
            :8
        ] in lead.replace("&#39;", "'")


@pytest.mark.parametrize("known", [0, 3, 5])
def test_a_verdict_on_no_others_is_not_spoken_of(known, tmp_path):
    from memnb import compare

    own = list(sentences(5, 1))
    m = Reads(tmp_path, surprise, knows=own[:known])
    never = NEVER["numbers"]()[:40]
    t = compare.ask(m, own, never=never, prefixes=(8,), influence=False)
    lead = compare.ask_lead(t)
    assert t.attrs["apart"] and "Without the model" in lead
    # none of them, two of them, and nobody
    assert ("No verdict on the others." in lead) == (known == 3)
    assert ("No verdict." in lead) == (known == 0)
    page = compare.ask_page(t, tmp_path / "ask.html").read_text()
    assert "No rates: without the model, the" in page


def test_the_headline_takes_the_controls_in(tmp_path):
    from memnb import compare

    own, never = list(sentences(5, 1)), list(sentences(5, 2))
    m = Reads(tmp_path, surprise, knows=[*own, *never])
    t = compare.ask(m, own, never=never, prefixes=(8,), influence=False)
    lead = compare.ask_lead(t)
    assert (
        "5 of 5: reproduced word for word; 5 of 5 that were not in training are reproduced, too"
        in lead
    )
    assert "cannot tell" in lead
    one = Reads(tmp_path / "one", surprise, knows=own)
    lead = compare.ask_lead(
        compare.ask(one, own, never=never, prefixes=(8,), influence=False)
    )
    assert (
        "0 of 5 that were not in training" in lead and "cannot tell" not in lead
    )


TRUTHS = {
    "words": (["often", "0"], "number 1 it says 'often'"),
    "below zero": (["1", "-1"], "number 2 it says '-1'"),
    "without end": (["inf", "0"], "it says 'inf'"),
    "a comma": (["1,0", "0"], "it says '1,0'"),
    "never": (["0", "0"], "no text was ever in training"),
    "both": (
        ["1", "0", "0"],
        "1 texts are there as training texts and as never in training",
    ),
}


@pytest.mark.parametrize("kind", TRUTHS)
def test_a_column_of_truth_that_says_none_is_refused(kind, tmp_path, model):
    labels, says = TRUTHS[kind]
    file = tmp_path / "t.jsonl"
    records = (
        dict(text=f"text {i % 2}", shown=one) for i, one in enumerate(labels)
    )
    file.write_text("".join(json.dumps(one) + "\n" for one in records))
    ask_files = papers.paper("compare").commands["ask"]
    with pytest.raises(data.DataError, match=re.escape(says)) as error:
        ask_files(model, file, tmp_path / "p.html", truth="shown")
    assert "t.jsonl" in str(error.value) and model.calls == 0


def test_a_column_of_truth_may_be_in_words(tmp_path, model):
    words = " and goes on so long that it can be asked about, number "
    shown = [True, "yes", 3, False, "No", 0]
    records = (
        dict(text=f"text {i}{words}{i}", shown=one)
        for i, one in enumerate(shown)
    )
    file = tmp_path / "t.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in records))
    ask_files = papers.paper("compare").commands["ask"]
    page = ask_files(
        model, file, tmp_path / "p.html", truth="shown", prefixes=[8]
    )
    told = pd.read_csv(page.with_suffix(".csv")).text
    assert sorted(text[:6] for text in told) == ["text 0", "text 1", "text 2"]


def test_a_table_of_texts_is_read_again_as_it_was_written(tmp_path, capfd):
    "By csv readers as the same rows, and by spreadsheets as no formula, without signs and cells they cannot hold"
    long = " ".join(["long"] * 20_000)
    odd = [
        *("=cmd()", "+1", "-1", "@a", "\t=a", "\r=a", "＝a"),
        *("b\rc", "b\r\nc", "nul\0", "esc\x1b[31m", long, 'q"u,o;te\nd'),
    ]
    store = lm.Store(tmp_path / "s.sqlite")
    heard = Echo("echo", "echo", "chat", store=store)
    given = tmp_path / "t.jsonl"
    words = " and goes on so long that it can be asked about"
    given.write_text(
        "".join(json.dumps(dict(text=t + words)) + "\n" for t in odd)
    )
    ask_files = papers.paper("compare").commands["ask"]
    page = ask_files(heard, given, tmp_path / "ü 日.html", prefixes=[8])
    raw = page.with_suffix(".csv").read_bytes().decode()
    again = pd.read_csv(io.StringIO(raw, newline=""), dtype=str)
    assert len(again) == len(odd)
    read = {t.removesuffix(words) for t in again.text}
    assert read >= {"'=cmd()", "'\r=a", "'＝a", "b\rc", "b\r\nc", odd[-1]}
    assert read >= {"nul␀", "esc␛[31m"}
    assert max(map(len, again.text)) < 32_767
    assert "are cut in the csv: 1" in capfd.readouterr().err
    assert not re.search("[\0\x1b]", raw + page.read_text())


def test_texts_that_anybody_goes_on_with_are_said(tmp_path):
    from memnb import compare

    own = ["1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12", *sentences(2, 1)]
    m = Reads(tmp_path, surprise, knows=own)
    t = compare.ask(m, own, prefixes=(8,), influence=False)
    assert (
        t.verdict.tolist()
        == ["reproduced, as anybody would go on"]
        + ["reproduced word for word"] * 2
    )
    assert any("takes no memory" in note for note in t.attrs["notes"])
    assert "1 of 3: reproduced, as anybody would go on" in compare.ask_lead(t)


# ---- encodings that read without an error


BREAD = "name,bread\na,Brötchen\nb,Brot\n"


@pytest.mark.parametrize(
    ("raw", "advice"),
    [
        (BREAD.encode("utf-16-be"), "encoding='utf-16-be'"),
        (BREAD.encode("utf-16-le"), "encoding='utf-16-le'"),
        (BREAD.encode("utf-32-le"), "encoding='utf-32-le'"),
        (BREAD.encode("utf-32-be"), "encoding='utf-32-be'"),
        (
            BREAD.replace("Brot", "“Brot”").encode("cp1252"),
            "encoding='cp1252'",
        ),
        (BREAD.encode("latin1"), "encoding='latin1'"),
    ],
)
def test_the_encoding_that_a_message_names_reads_the_file(
    raw, advice, tmp_path
):
    "The letters of the file, and not Chinese ones or control signs in their place"
    file = csv(tmp_path, raw)
    with pytest.raises(data.DataError, match=advice):
        data.load(file)
    encoding = advice.split("'")[1]
    bread = data.load(file, encoding=encoding).df.bread.tolist()
    assert bread[0] == "Brötchen" and bread[1].strip("“”") == "Brot"


def test_utf32_and_two_marks_are_read(tmp_path, capfd):
    for raw in (BREAD.encode("utf-32"), b"\xef\xbb\xbf" * 2 + BREAD.encode()):
        table = data.load(csv(tmp_path, raw))
        assert table.names == ["name", "bread"]
        assert table.df.bread.tolist() == ["Brötchen", "Brot"]
    said = capfd.readouterr().err
    assert "read as UTF-32" in said and "byte order mark" in said


def test_an_encoding_that_is_surely_another_is_said(tmp_path, capfd):
    "Latin-1 reads every file: of UTF-8 and of Windows it makes other letters"
    data.load(csv(tmp_path, BREAD), encoding="latin1")
    assert "it is valid UTF-8" in capfd.readouterr().err
    windows = BREAD.replace("Brot", "“Brot”").encode("cp1252")
    data.load(csv(tmp_path, windows), encoding="latin1")
    assert "2 control signs" in capfd.readouterr().err
    data.load(csv(tmp_path, windows), encoding="cp1252")
    data.load(csv(tmp_path, BREAD.encode("latin1")), encoding="latin1")
    assert not capfd.readouterr().err


# ---- JSON that is none, or too much


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{}", "is empty"),
        ("[]", "is empty"),
        ("[" * 100_000 + "]" * 100_000, "too deeply"),
        ('{"text": 1' + "0" * 5000 + "}", "thousands of digits"),
        ('{"text": "a"}\n{"text": 1' + "0" * 5000 + "}", "line 2.*digits"),
        ('{"text": "caf\\ud83d"}', "half a letter"),
        ('{"text": "a"}\n{"text": "a", "text": "b"}', "line 2: .*'text' twice"),
        ('[{"text": "a", "text": "b"}]', "texts.json: .*'text' twice"),
        ('{"log_history": null}', "no list"),
        ('{"log_history": {"a": 1}}', "no list"),
    ],
)
def test_json_without_texts_is_refused_in_a_line(text, says, tmp_path):
    with pytest.raises(data.DataError, match=says):
        data.texts(csv(tmp_path, text, "texts.json"))


def test_a_json_of_lists_is_read_by_columns(tmp_path):
    file = csv(tmp_path, '{"text": ["one", "two"], "n": [1, 2]}', "t.json")
    assert data.texts(file).text.tolist() == ["one", "two"]
    with pytest.raises(data.DataError, match="number 2 has half a letter"):
        data.texts(["whole", "caf\ud83d"])


# ---- texts that are given in Python, and lines that end


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (dict(text=["one", "two"]), "not dict"),
        (b"one", "not bytes"),
        (None, "not NoneType"),
        (7, "not int"),
        (
            pd.DataFrame([["a", "b"]], columns=["text", "text"]),
            "several columns 'text'",
        ),
        (
            pd.DataFrame(
                [["a", "b"]],
                columns=pd.MultiIndex.from_product([["text"], ["x", "y"]]),
            ),
            "several columns 'text'",
        ),
    ],
    ids=["dict", "bytes", "none", "number", "twice", "levels"],
)
def test_what_is_no_list_of_texts_is_refused_in_a_line(given, says):
    with pytest.raises(data.DataError, match=says):
        data.texts(given)


def test_labels_that_stand_in_two_columns_are_refused():
    frame = pd.DataFrame([["a", "x", "y"]], columns=["text", "kind", "kind"])
    assert data.texts(frame).text.tolist() == ["a"]
    with pytest.raises(data.DataError, match="several columns 'kind'"):
        data.texts(frame, label="kind")


@pytest.mark.parametrize(
    ("raw", "texts"),
    [
        ("one \u2028 line\nand two\n", ["one \u2028 line", "and two"]),
        ("one\x85 line\r\nand two", ["one\x85 line", "and two"]),
        ("one\x0c line\nand two", ["one\x0c line", "and two"]),
        ("one\rtwo\r\rthree\r", ["one\ntwo", "three"]),
        ("one\rtwo\r", ["one", "two"]),
        ("one\r\ntwo\r\n\r\nthree", ["one\r\ntwo", "three"]),
    ],
)
def test_lines_of_a_text_file_end_where_an_editor_ends_them(
    raw, texts, tmp_path
):
    assert data.texts(csv(tmp_path, raw, "t.txt")).text.tolist() == texts


@pytest.mark.parametrize(
    ("raw", "is_said"),
    [
        ("one\ntwo\n\nthree\n", True),
        ("one\n\ntwo\n\nthree", False),
        ("one\ntwo", False),
    ],
)
def test_what_ends_a_text_of_a_file_is_said(raw, is_said, tmp_path, capfd):
    data.texts(csv(tmp_path, raw, "t.txt"))
    said = capfd.readouterr().err
    assert ("t.txt: 2 texts, which end at blank lines" in said) == is_said


# ---- logs without numbers


def test_a_log_without_a_number_is_no_empty_verdict(tmp_path):
    from memnb import contextual

    rows = "".join(f"s0,{e},nan,nan\n" for e in range(8))
    file = csv(tmp_path, f"string,epoch,train_loss,test_loss\n{rows}")
    with pytest.raises(ValueError, match="did the training diverge"):
        contextual.judged_log(file)


@pytest.mark.parametrize("form", ["state", "csv"])
def test_a_loss_that_is_nan_is_said_and_not_only_left_out(
    form, tmp_path, capfd
):
    from memnb import contextual

    losses = [3.0, 2.0, float("nan"), *(1 / e for e in range(1, 6))]
    if form == "state":
        history = [
            {"epoch": e, "eval_a_loss": loss}
            for e, loss in enumerate(losses, 1)
        ]
        file = csv(tmp_path, json.dumps(dict(log_history=history)), "s.json")
    else:
        rows = "".join(f"{e},{x}\n,\n" for e, x in enumerate(losses, 1))
        file = csv(tmp_path, f"epoch,eval_a_loss\n{rows}")
    judged = contextual.judged_log(file)
    assert judged.looks.tolist() == [7]
    assert "left out are 1 rows without a number" in capfd.readouterr().err


def test_the_losses_of_a_log_and_of_the_training_without(tmp_path):
    from memnb import contextual

    first = csv(tmp_path, "string,epoch,train_loss\ns0,1,2.5\n", "a.csv")
    other = csv(tmp_path, "string,epoch,test_loss\ns0,1,4\n", "b.csv")
    alone = contextual.read_log(first)
    assert alone.train_loss.tolist() == [2.5] and "test_loss" not in alone
    pair = contextual.read_log(first, without=other)
    assert pair[["train_loss", "test_loss"]].values.tolist() == [[2.5, 4]]
    with pytest.raises(ValueError, match="give the first one as without"):
        contextual.read_log(first, again=other)


def test_a_log_is_read_once_for_its_table_and_its_figure(
    tmp_path, monkeypatch, capfd
):
    rows = "".join(f"s0,{e},{1 / (e + 1)},1\n" for e in range(8))
    file = csv(
        tmp_path, f"string,epoch,train_loss,test_loss\ns0,9,nan,1\n{rows}"
    )
    monkeypatch.chdir(tmp_path)
    assert cli.main(["log", str(file)]) == 0
    assert capfd.readouterr().err.count("left out are") == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "String,Epoch,Train_Loss\na,0,1\n",
            "write string, epoch, train_loss in",
        ),
        ("Train loss,epoch,string\n1,0,a\n", "write train_loss in small"),
        ("hello\nworld\n", "none of its columns is a loss, but hello"),
        ("epoch,loss\n1,2\n", "losses of whole sets only"),
    ],
)
def test_a_log_is_refused_by_its_columns(text, says, tmp_path):
    from memnb import contextual

    file = csv(tmp_path, text, "log.csv")
    good = csv(tmp_path, "string,epoch,train_loss\na,0,1\na,1,1\n", "good.csv")
    for logs in ([file], [good, file], [good, good, file]):
        with pytest.raises(ValueError, match=re.escape(says)):
            contextual.paired_logs(*logs) if logs[1:] else contextual.read_log(
                *logs
            )


def test_what_a_message_names_is_there(tmp_path):
    "A log without single strings is refused with the name of what writes one that has them"
    from memnb import contextual

    file = csv(tmp_path, "epoch,loss\n1,2\n", "log.csv")
    with pytest.raises(ValueError, match="whole sets only") as error:
        contextual.read_log(file)
    (name,) = re.findall(r"`contextual\.(\w+)`", str(error.value))
    assert callable(getattr(contextual, name))


@pytest.mark.parametrize("step", [0, 7])
def test_a_log_of_a_training_is_written_over_no_other_file(step, tmp_path):
    "A table of the user's, at the start of a training or where it goes on; a log of its own is replaced"
    from types import SimpleNamespace

    from memnb import contextual, gpt

    net = gpt.module(gpt.Config(layers=1, d=8, vocab=8, length=8))
    state = SimpleNamespace(global_step=step, epoch=0)
    own = csv(tmp_path, "name,age\nme,30\n", "losses.csv")
    before = own.read_bytes()
    callback = contextual.loss_log(own, dict(a=[1, 2, 3]), 0)
    with pytest.raises(ValueError, match="begins 'name,age': take another"):
        callback.on_train_begin(None, state, None, model=net)
    assert own.read_bytes() == before
    other = contextual.loss_log(tmp_path, dict(a=[1, 2, 3]), 0)
    with pytest.raises(ValueError, match="is a folder"):
        other.on_train_begin(None, state, None, model=net)


# ---- options that nothing would come of


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("table smollm2 t.csv --server concurrency=2", "smollm2 is none"),
        ("ask hf:mine t.csv --server mode=chat", "hf:mine is none"),
        ("ask hf:mine t.csv --never a.csv --truth n", "give one of them"),
        ("table smollm2 iris --skip 2", "is for files|are for files"),
        ("log t.csv --again t.csv", "--without"),
        ("store list --model x", "takes no --model"),
        ("store check --yes", "takes no --yes"),
        ("store forget", "--model"),
        ("status --only icl", "name it"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(
    line, says, tmp_path, monkeypatch, capfd
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MEMNB_SERVER", raising=False)
    rows = "".join(f"s0,{e},1\n" for e in range(4))
    csv(tmp_path, f"string,epoch,train_loss\n{rows}", "t.csv")
    assert cli.main(line.split()) == 2
    out, err = capfd.readouterr()
    assert err.startswith("memnb: ") and err.count("\n") == 1 and not out
    assert pd.Series([err]).str.contains(says)[0], err


def test_a_setting_of_servers_is_said_where_no_run_asks_one(
    tmp_path, monkeypatch, capfd
):
    monkeypatch.delenv("MEMNB_SERVER", raising=False)
    monkeypatch.setattr("memnb.run.batch.batch", lambda *a, **kw: [])
    line = ["run", "smoke", "-o", str(tmp_path), "--server", "concurrency=2"]
    cli.main(line)
    assert "names an openai: model" in capfd.readouterr().err
    monkeypatch.delenv("MEMNB_SERVER", raising=False)
    cli.main([*line, "-p", "model", "openai:m"])
    assert "names an openai: model" not in capfd.readouterr().err


@pytest.mark.parametrize("name", ["smollm2", "hf:mine", "planted:tables"])
def test_a_setting_that_no_model_has_is_named_with_those_there_are(name):
    with pytest.raises(ValueError, match="no setting 'devise'.*'device'"):
        lm.load(name, devise="cpu")
    with pytest.raises(ValueError, match="concurrency"):
        lm.load("openai:m", devise="cpu")


# ---- folders and disks that take nothing


@pytest.mark.parametrize("command", ["table smollm2 t.csv", "log t.csv"])
def test_what_cannot_be_written_is_said_before_anything_is_asked(
    command, tmp_path, monkeypatch, capfd
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lm, "load", lambda *a, **kw: pytest.fail("asked"))
    csv(tmp_path, "a,b\n1,2\n3,4\n", "t.csv")
    line = command.split()
    assert cli.main([*line, "-o", "t.csv/page.html"]) == 2
    assert "t.csv is a file and no folder" in capfd.readouterr().err
    (tmp_path / "closed").mkdir()
    access = cli._may_write.__globals__["os"].access
    monkeypatch.setattr(
        "memnb.run.ours.os.access",
        lambda path, mode: path.name != "closed" and access(path, mode),
    )
    assert cli.main([*line, "-o", "closed/page.html"]) == 2
    assert "its folder is read-only" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(errno.ENOSPC, "No space"), "no room is left.*free some"),
        (
            sqlite3.OperationalError("database or disk is full"),
            "disk of the store.*free some",
        ),
        (
            OSError(errno.EROFS, "x", ".p.html.e29cc314badd.part"),
            "^memnb: p.html cannot be written",
        ),
        (PermissionError(errno.EACCES, "x", "p"), "lack the permission"),
        (FileNotFoundError(errno.ENOENT, "x", "zz"), "no file zz"),
        (FileNotFoundError("no file zz: give one"), "^memnb: no file zz: give"),
        (IsADirectoryError(errno.EISDIR, "x", "p"), "p is a folder"),
    ],
)
def test_errors_of_the_system_say_what_to_do(error, says, monkeypatch, capfd):
    def fails():
        raise error

    monkeypatch.setitem(cli.COMMANDS, "list", fails)
    assert cli.main(["list"]) == 2
    assert re.search(says, capfd.readouterr().err.strip())


def test_a_line_that_is_no_answer_is_said_in_words(
    tmp_path, capfd, monkeypatch
):
    monkeypatch.setenv("MEMNB_STORE", str(tmp_path / "s.sqlite"))
    csv(tmp_path, "null\n", "a.jsonl")
    assert cli.main(["store", "import", str(tmp_path / "a.jsonl")]) == 2
    assert "no answer as `memnb store export` writes" in capfd.readouterr().err


@pytest.mark.parametrize(
    "setting",
    [
        *("timeout=NaN", "wait=Infinity", "concurrency=2.5"),
        *("concurrency=1e999", "body=[]", "body=3"),
    ],
)
def test_settings_of_servers_are_numbers_that_can_be(setting, monkeypatch):
    monkeypatch.delenv("MEMNB_SERVER", raising=False)
    with pytest.raises(ValueError, match="--server takes NAME=VALUE"):
        cli._served([setting])
    cli._served(["concurrency=2.0", "timeout=7"])
    assert json.loads(cli.os.environ["MEMNB_SERVER"])["concurrency"] == 2


def test_what_a_command_sets_for_its_processes_ends_with_the_test(monkeypatch):
    monkeypatch.setenv("MEMNB_SERVER", '{"timeout": 5}')
    monkeypatch.setenv("MEMNB_FRESH", "1")
    with environment_kept():
        cli._served(["concurrency=2"])
        del os.environ["MEMNB_FRESH"]
        os.environ["MEMNB_ANSWERS"] = "some"
    assert os.environ["MEMNB_SERVER"] == '{"timeout": 5}'
    assert os.environ["MEMNB_FRESH"] == "1"
    assert "MEMNB_ANSWERS" not in os.environ


def test_a_profile_with_a_control_character_is_a_line(tmp_path, capfd):
    csv(tmp_path, "- notebook: cap\0\n", "mine.yaml")
    assert cli.main(["plan", str(tmp_path / "mine.yaml")]) == 2
    assert "not YAML" in capfd.readouterr().err


# ---- logs given in Python, and a store that cannot grow


@pytest.mark.parametrize("column", ["string", "epoch", "test_loss"])
def test_a_log_with_two_columns_of_one_name_is_refused(column):
    from memnb import contextual

    log = pd.DataFrame(
        dict(string="a", epoch=[0, 1], train_loss=[2.0, 1], test_loss=[2.0, 2])
    )
    assert contextual.judged_log(log).looks.tolist() == [2]
    # several further trainings may be a tuple
    further = contextual.judged_log(log, log, (log, log))
    assert further.looks.tolist() == [2]
    twice = pd.concat([log, log[[column]]], axis=1)
    for logs in ([twice], [log, twice], [log, log, twice]):
        with pytest.raises(ValueError, match=f"several columns '{column}'"):
            contextual.judged_log(*logs)


@pytest.mark.parametrize("log", [[1, 2], dict(string=["a"])])
def test_what_is_no_log_is_refused(log):
    from memnb import contextual

    with pytest.raises(ValueError, match="a log is a DataFrame or a file, not"):
        contextual.judged_log(log)


LIMITED = """
import resource, signal, sys
from memnb.run import cli
from memnb.store import Store
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))
def fill():
    store = Store()
    for i in range(1000): store.put("m", dict(request="generate"), str(i), "x" * 500)
cli._app = lambda: lambda *args, **kw: fill()
sys.exit(cli.main(["fill"]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="it has no such limits")
def test_a_store_that_may_not_grow_is_said_in_a_line(tmp_path):
    env = os.environ | dict(MEMNB_STORE=str(tmp_path / "s.sqlite"))
    ran = subprocess.run(
        [sys.executable, "-c", LIMITED], env=env, capture_output=True, text=True
    )
    assert ran.returncode == 2, ran.stderr
    (line,) = ran.stderr.splitlines()
    assert line.startswith("memnb: ") and "ulimit -f" in line


# ---- variables with quotes


@pytest.mark.parametrize("quote", ["'", '"'])
def test_quotes_around_a_variable_are_no_part_of_it(quote, monkeypatch):
    monkeypatch.setenv("MEMNB_STORE", f"{quote}/a b/s.sqlite{quote} ")
    monkeypatch.setenv("MEMNB_SERVER", '{"body": {"user": "me"}}')
    monkeypatch.setenv("MEMNB_HOME", f"/it{quote}s")
    monkeypatch.setenv("NO_MEMNB", f"{quote}as it is{quote}")
    core.read_environment()
    assert os.environ["MEMNB_STORE"] == "/a b/s.sqlite"
    assert os.environ["MEMNB_SERVER"] == '{"body": {"user": "me"}}'
    assert os.environ["MEMNB_HOME"] == f"/it{quote}s"
    assert os.environ["NO_MEMNB"] == f"{quote}as it is{quote}"


@pytest.mark.parametrize(
    "start", ['"{}', "~", "$HOME", "${{HOME}}", "'~", " {}"]
)
def test_a_store_is_where_a_shell_would_have_it(start, tmp_path):
    "Quotes are left out, and the home folder is meant, not a folder called `~`"
    quote = start[0] if start[0] in "'\"" else ""
    place = start.format(tmp_path) + "/a.sqlite" + quote
    code = "from memnb.store import Store; print(Store().path)"
    env = os.environ | dict(MEMNB_STORE=place, HOME=str(tmp_path))
    path = subprocess.check_output(
        [sys.executable, "-c", code], env=env, cwd=tmp_path
    )
    assert path.decode().strip() == f"{tmp_path}/a.sqlite"
    assert {f.name for f in tmp_path.iterdir()} >= {"a.sqlite"}
    assert not (tmp_path / "~").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="its made-up folders")
@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("/dev/null", "names no folder"),
        ("/dev/null/x", "names no folder"),
        ("/proc", "names no folder"),
        ("~nobody-here/x", "begins with ~nobody-here"),
    ],
)
def test_a_home_that_is_none_is_said_before_anything_is_done(
    place, says, monkeypatch, capfd
):
    monkeypatch.setenv("MEMNB_HOME", place)
    assert cli.main(["run", "smoke", "--only", "capacity"]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("memnb: MEMNB_HOME ") and says in line


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("MEMNB_STOR", "MEMNB_STORE"),
        ("MEMNB_SERVERS", "MEMNB_SERVER"),
        ("memnb_home", "MEMNB_HOME"),
        ("MEMNB_TEST_MARK", ""),
        ("MEMORY_HOME", ""),
    ],
)
def test_a_misspelt_variable_is_said(name, meant, monkeypatch, capfd):
    "The answers went into another store than the one that was meant"
    monkeypatch.setenv(name, "x")
    assert cli.main(["store", "list"]) == 0
    said = capfd.readouterr().err
    assert (f"{name} is no variable of memnb" in said) == bool(meant)
    assert not meant or f"{meant}?" in said


def test_a_replay_that_is_turned_off_by_a_zero_is_said(monkeypatch, capfd):
    monkeypatch.setenv("MEMNB_REPLAY", "0")
    assert cli.main(["list"]) == 2
    assert "MEMNB_REPLAY is '1' or unset, not '0'" in capfd.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="it keeps such a folder")
def test_a_working_folder_that_was_removed_is_said(
    tmp_path, monkeypatch, capfd
):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    code = cli.main(["figure", "capacity", "fig2"])
    monkeypatch.chdir(tmp_path)
    assert code == 2
    assert "the working folder was removed" in capfd.readouterr().err


def test_all_variables_are_known_to_the_command():
    guide = (core.checkout() / "docs/use.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| `MEMNB_(\w+)` \|", guide, re.M)
    assert {*told} == {*cli._VARIABLES}


def test_a_cache_that_is_a_file_is_said(tmp_path, monkeypatch, capfd):
    (tmp_path / "file").write_text("mine")
    monkeypatch.setenv("MEMNB_CACHE", str(tmp_path / "file"))
    assert cli.main(["list"]) == 2
    assert "MEMNB_CACHE names no folder" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("link.png", "is a link"),
        ("nowhere.png", "is a link"),
        ("s3://bucket/a.png", "is an address"),
        ("a\nb.png", "control character"),
        ("x" * 300, "too long for a name"),
    ],
)
def test_a_name_by_which_no_file_should_be_made_is_refused(
    name, says, tmp_path, monkeypatch, capfd
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").write_text("")
    os.symlink("there", "link.png")
    os.symlink("not-there", "nowhere.png")
    before = {*os.listdir()}
    assert cli.main(["figure", "capacity", "fig2", "-o", name]) == 2
    assert says in capfd.readouterr().err
    assert {*os.listdir()} == before and os.path.islink("nowhere.png")


@pytest.mark.parametrize("words", ["--out=~/a.png", "-o ~/a.png"])
def test_a_home_folder_that_a_shell_left_is_meant(words, tmp_path, monkeypatch):
    "`--out=~/a.png`, in which a shell sees no path"
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    assert cli.main(["figure", "capacity", "fig2", *words.split()]) == 0
    # Matplotlib keeps its fonts in a hidden folder there, once a process
    seen = [name for name in os.listdir("home") if not name.startswith(".")]
    assert seen == ["a.png"] and os.listdir() == ["home"]


def test_a_home_folder_that_a_notebook_names_is_meant(tmp_path, monkeypatch):
    "Behind the import a ~ stayed as it was, and rows and answers went to a folder of that name"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMNB_STORE", "~/answers.sqlite")
    assert store.Store().path == tmp_path / "answers.sqlite"
    monkeypatch.setenv("MEMNB_HOME", "~/mine")
    rows = pd.DataFrame([dict(part="a", quantity="rate", value=0.5, n=2)])
    results.record("tabular", rows, "mine", model="x", mode="chat")
    (file,) = tmp_path.rglob("*.parquet")
    assert file.is_relative_to(tmp_path / "mine/data")
    monkeypatch.setenv("MEMNB_DATA", "$HOME/sets")
    (tmp_path / "sets").mkdir()
    data.look("nowhere")
    assert os.environ["MEMNB_DATA"] == str(tmp_path / "sets")


@pytest.mark.parametrize("target", ["loop", "nowhere"])
def test_a_folder_that_is_a_link_to_nowhere_is_said_before_anything_is_asked(
    target, tmp_path, capfd
):
    "All was asked, and then there was a traceback of links that lead in a circle"
    os.symlink(target, tmp_path / "loop")
    texts = csv(tmp_path, b"text\nOne sentence.\n")
    out = str(tmp_path / "loop" / "out.html")
    for command in ("ask", "table"):
        assert cli.main([command, "smollm2", str(texts), "-o", out]) == 2
        assert "loop is a link that leads nowhere" in capfd.readouterr().err


def test_links_in_a_circle_are_written_as_they_are(tmp_path):
    from memnb.run import terminal

    os.symlink("loop", tmp_path / "loop")
    assert terminal.relative_path(tmp_path / "loop" / "x.html").endswith(
        "loop/x.html"
    )


def test_a_device_is_never_written_over(tmp_path):
    from memnb.run import ours

    os.mkfifo(tmp_path / "pipe.html")
    for file in ("/dev/null", tmp_path / "pipe.html"):
        with pytest.raises(ValueError, match="a device and no file"):
            ours.may_write(file)


# ---- sizes that are no sizes


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", -5),
        ("seed", -1),
        ("temperatures", [0.7, -0.1]),
        ("temperatures", [float("nan")]),
        ("own_doses", [1, -4]),
    ],
)
def test_a_size_below_zero_is_refused_by_its_name(name, value):
    from memnb.run import profiles

    with pytest.raises(ValueError, match=f"'{name}' must be 0 or more"):
        profiles.check("tabular", {name: value})
    if name != "seed":
        with pytest.raises(ValueError, match=f"'{name}' must be 0 or more"):
            papers.paper("tabular").sizes({name: value})
    assert profiles.check("tabular", {"n": 0}) == {"n": 0}
    papers.need_no_negative("datasets", ["-1"])
