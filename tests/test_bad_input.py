"Bad input of every kind: a clear error that says what to do, early, and nothing lost."

import subprocess
import sys

import pandas as pd
import pytest

from memnb import core, data, icl, lm, tabular
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


def test_a_table_without_classical_learners_is_measured(model, monkeypatch, capfd):
    "With a word; and no test is held against a guess that nobody could make"

    def find(name, *a, real=core.find_spec):
        return None if name == "xgboost" else real(name, *a)

    monkeypatch.setattr(core, "find_spec", find)
    rows = tabular.measure(model, "iris", n=4, tests=["row_completion", "accuracy"])
    assert {*rows.part} >= {"row_completion", "accuracy"} and "first_token" not in {*rows.part}
    assert {*rows[rows.part == "accuracy"]["item"].dropna()} == {"language model"}
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
    m = tabular.measure(model, t, n=4, samples=3, title="Kinds of 2019", show=False)
    assert set(m["part"]) >= {"row_completion", "header", "feature_values"}


ODD = {  # columns as users have them
    "two rows": dict(a=[1, 2], b=["x", "y"]),
    "a column without values": dict(a=range(40), b=[None] * 40),
    "one value everywhere": dict(a=[1] * 40, b=["x"] * 40),
    "unique texts": dict(a=[f"n{i}" for i in range(40)], b=[f"m {i}" for i in range(40)]),
    "commas and quotes in names": {"a, b": range(40), 'say "hi"': list("xy") * 20},
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
    "powers of ten": dict(a=[f"{1.7**i:e}" for i in range(40)], b=["inf", "-inf"] * 20),
    "huge numbers": dict(a=[str(10**30 + i) for i in range(40)], b=[True, False] * 20),
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
    "long cells": dict(a=["word " * 200 + str(i) for i in range(20)], b=range(20)),
}


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("kind", ODD)
def test_odd_columns_are_measured(kind):
    "Whatever its columns are, a table is measured, by a model that knows it and by one that knows nothing"
    t = data.load(pd.DataFrame(ODD[kind]), name="odd")
    for m in (tabular.Parrot(*tabular.by_heart(t)), tabular.Parrot()):
        got = tabular.measure(
            m, t, n=3, samples=3, tests=tabular.PARTS[:-1], title="Odd things", show=False
        )
        assert "feature_names" in set(got["part"]) and set(got["dataset"]) == {"odd"}
        assert tabular.by_test(got).test.tolist() == tabular.rules.TESTS


def test_numbers_too_large_for_a_learner_are_predicted_from(model):
    t = data.load(
        pd.DataFrame(ODD["infinite numbers"] | dict(y=list("pq") * 48)), name="odd", target="y"
    )
    got = tabular.measure(model, t, n=3, preset="smoke", tests="accuracy", show=False)
    assert {"Logistic Regression", "Gradient Boosted Tree"} <= set(got["item"])


def test_too_few_rows_for_the_prefix(tmp_path, model, capsys):
    "The row test of a small table is left out with a word, the others are made; alone it is refused at once"
    small = csv(tmp_path, "a,b\n" + "\n".join(f"{i},{i + 1}" for i in range(20)) + "\n")
    with pytest.raises(ValueError, match="fewer rows or shots"):
        tabular.row_completion(model, small)
    assert model.calls == 0
    m = tabular.measure(model, small, preset="paper", samples=2, title="Small numbers", show=False)
    said = "".join(capsys.readouterr())
    assert "row_completion is left out: " in said and "fewer rows or shots" in said
    assert "feature_names" in set(m["part"]) and "row_completion" not in set(m["part"])


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
    mute = lm.LM("mute", "mute", store=lm.Store(tmp_path / "m.sqlite"))
    with pytest.raises(lm.Unsupported, match="cannot answer 'generate'"):
        tabular.measure(mute, "iris")


def test_own_data_among_the_examples():
    renamed = data.load(data.load("iris").df, name="flowers")
    with pytest.raises(tabular.GuardError, match="flowers"):
        tabular.other_sets(renamed, names=["iris"])


def test_misspelt_parameter():
    r = subprocess.run(
        [sys.executable, "-m", "memnb.run.cli", "run", "smoke", "-p", "sampels", "3"],
        capture_output=True,
        text=True,
    )
    assert r.returncode == 2 and "samples" in r.stderr and "Traceback" not in r.stderr, r.stderr


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
    df = pd.DataFrame(dict(a=range(60), b=[i * 7 % 11 for i in range(60)], c=list("xyz") * 20))
    m = tabular.measure(model, df, n=3, samples=3, show=False)
    assert (
        m.dataset.unique().tolist() == ["table"] and m[m["part"] == "row_completion"].n.iloc[0] == 3
    )


# --- icl ---


def texts(n=12, words=6):
    "A labelled text set; labels of different length"
    rows = [
        (" ".join(f"{chr(97 + i)}{j}" for j in range(words)), ["x", "a longer label"][i % 2])
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
    d = pd.concat([texts(), pd.DataFrame(dict(text=["one", "two words", ""], label="x"))])
    t = icl.task(d, n=6, k=4)
    assert "3 of 15 texts are too short" in capfd.readouterr().err
    assert t.queries.second.str.len().min() > 0


def test_classes_that_run_out_are_filled_up_and_said(capfd):
    d = texts(12).assign(label=["rare"] * 3 + ["often"] * 9)
    t = icl.task(d, n=2, k=8)
    assert len(t.demos) == 8 and "too few demonstrations of rare" in capfd.readouterr().err


@pytest.mark.parametrize(
    "labels, names", [(["1", "x"], {0: "1", 1: "x"}), ([0.0, 1.0], {0: "0", 1: "1"})]
)
def test_labels_of_any_kind(labels, names):
    assert icl.task(texts().assign(label=labels * 6), n=4, k=2).labels == names


def test_rows_without_a_name_of_their_own(model):
    m = icl.measure(
        model, texts().assign(idx=0, text=[None, 7, *texts().text[2:]]), n=4, ks=[0, 2], repeats=2
    )
    assert set(m[(m.part == "generation") & (m.group == "")].n) == {
        4
    }  # repeats are no further instances


def test_verdicts_that_do_not_exist(model, tmp_path):
    with pytest.raises(FileNotFoundError, match="review"):
        icl.measure(model, texts(), n=4, ks=[0], judge=str(tmp_path / "none.csv"))
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
    own = m[m.part.isin(["replication", "generation"]) & m.quantity.isin(["rate", "accuracy"])]
    assert len(own) and (own.value == 0).all()


def test_judge_that_neither_agrees_nor_denies(model):
    assert icl.llm_judge(model, ["a b", "c"], ["a c", "c"]) == ["unclear", "exact"]


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
        (f"T{i * 7919 % 9973:04d}", "rye oat spelt".split()[i % 3], f"{i * 37 % 91},5")
        for i in range(200)
    ]
    raw = "".join(sep.join(r) + "\r\n" for r in [("ticket", "loaf", "price"), *rows])
    t = data.load(csv(tmp_path, raw.encode("utf-16")))
    assert (t.sep, t.text) == (sep, raw.replace("\r\n", "\n").rstrip()) and len(t) == 200
    m = tabular.Parrot(*tabular.by_heart(t))
    for test in (tabular.row_completion, tabular.header):
        assert test(m, t).ok.all(), test
    bare = data.load(csv(tmp_path, raw.split("\r\n", 1)[1]), header=False)
    assert bare.rows == t.rows and bare.text == t.text.split("\n", 1)[1]
    assert tabular.row_completion(tabular.Parrot(*tabular.by_heart(bare)), bare).ok.all()


def test_how_a_table_is_read_is_said_in_a_terminal_too(tmp_path, monkeypatch):
    path, got = csv(tmp_path, "Prices\n5.1;caf\xe9\n4.9;oat\n".encode("latin1")), []

    def one_page(model, table, *rest, **kw):
        got.append(table)
        return tmp_path / "t.html"

    monkeypatch.setattr("memnb.papers.offered", lambda *names: one_page)
    out = str(tmp_path / "t.html")
    asked = ["table", "echo", str(path), "--skip", "1", "--no-header", "--encoding", "latin1"]
    assert not cli.main([*asked, "--out", out])
    assert (got[0].rows, got[0].header, got[0].sep) == (["5.1;café", "4.9;oat"], "", ";")


def test_rows_of_several_lines_and_rows_too_long_are_told():
    from memnb.tabular import onepage

    lines = pd.DataFrame(dict(a=[f"a {i}\nand more" for i in range(9)], b="x"))
    notes = onepage._notes(data.load(lines), pd.DataFrame(dict(part=[], quantity=[], value=[])))
    assert any(n.startswith("9 rows go over several lines") for n in notes)
    wide = pd.DataFrame({f"f{i}": ["1234"] * 20 for i in range(6000)})
    with pytest.raises(ValueError, match="no model reads at once"):
        onepage.one_page("smollm2", wide)


@pytest.mark.parametrize(
    "url", ["https://ann:pa/ss@h/v1", "https://h:abc/v1", "http://[::1/v1", "http://:8000/v1"]
)
def test_an_address_that_is_none_is_not_shown(url):
    from memnb.servers import _place

    with pytest.raises(ValueError, match="is no address like") as e:
        _place(url)
    assert "pa" not in str(e.value).split("is no")[0] and "abc" not in str(e.value)


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
        gpt.fit([c], [x], absent=[[False]], bits=False, eval_sets=dict(a=x[:2]), epochs=1)


def test_the_first_feature_has_none_before_it(model):
    first, second = data.load("iris").names[:2]
    with pytest.raises(ValueError, match="with another one before it"):
        tabular.conditional_completion(model, "iris", features=first)
    found = tabular.conditional_completion(model, "iris", n=2, features=second)
    assert set(found.feature) == {second}
