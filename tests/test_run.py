"The parts of `memnb.run` one by one: what goes out of a text, what a run is made of, what is read from its notebook."

import base64
import io
import json
import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
import types
from importlib.machinery import ModuleSpec
from inspect import signature
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image as Pixels
from test_batch import typed

from memnb import core, papers, plots, rendering, results, store
from memnb.run import (
    batch,
    cli,
    estimate,
    executed,
    identity,
    ours,
    profiles,
    redraw,
    replay,
    report,
    start,
    terminal,
)
from memnb.run.redact import redact, redact_notebook


@pytest.fixture
def dice(monkeypatch):
    "A package `memnb.dice`, into which a test puts what it needs"
    fake = types.ModuleType("memnb.dice")
    fake.__spec__, fake.__path__ = ModuleSpec("memnb.dice", None), []
    monkeypatch.setitem(sys.modules, "memnb.dice", fake)
    return fake


# ---- redact

HOME, DISK = (
    "/home" + "/ann/lib/x.py",
    "/scratch" + "/a1/b/c.csv",
)  # in pieces: no folder is named


@pytest.mark.parametrize(
    "text, clean",
    [
        (f"hf:{HOME}", "hf:~/lib/x.py"),
        ("hf:~ann/models/m", "hf:~/models/m"),
        (DISK, "…/c.csv"),
        ("C:" + r"\Users\ann\x", r"~\x"),
        ("https://u:pw@gpu7:8000/v1", "https://…@…:8000/v1"),
        ("postgres://ann:secret@db/x", "postgres://…@db/x"),
        (
            "http://gpu7.lab:8000/v1 sk-0123456789abcdefXYZ",
            "http://…:8000/v1 …",
        ),
        (
            "certificate is not valid for 'gpu7.lab.org'. (_ssl.c:1)",
            "certificate is not valid for '…'. (_ssl.c:1)",
        ),
        (
            "hostname 'gpu7.lab' doesn't match '*.lab.org'",
            "hostname '…' doesn't match '…'",
        ),
        ("Pool(host='gpu7.lab', port=80)", "Pool(host='…', port=80)"),
    ],
)
def test_folders_logins_servers_and_tokens_go(text, clean):
    assert redact(text) == clean


@pytest.mark.parametrize(
    "text",
    [
        "https://arxiv.org/abs/1",
        "and/or",
        "3/4",
        "sk-learn",
        "a.org/home" + "/x",
        "risk-" + "a" * 30,
    ]
    + [
        "~5/8",
        "hf_HuggingFaceTB_SmolLM2-135M",
        "http://localhost:8000/v1",
        "certificate is not valid for 'localhost'",
        "the hostname is 'long', as the host",
        "x.edu/~ann/y",
    ],
)
def test_what_only_looks_like_a_secret_stays(text):
    assert redact(text) == text


def test_values_of_secret_variables_go_wherever_they_stand(monkeypatch):
    secret = dict(
        DICE_API_KEY="loaded-dice-6666",
        dice_token="open-sesame",
        SHORT_KEY="abc",
    )
    secret |= dict(
        DATABASE_URL="postgres://ann:hunter22@db/x",
        OTHER_KEY="0123456789abcdefghijklm",
    )
    for k, v in secret.items():
        monkeypatch.setenv(k, v)
    assert redact("v_loaded-dice-6666x") == "v_[DICE_API_KEY]x"
    assert (
        redact("open-sesame, open-sesames, abc")
        == "[dice_token], open-sesames, abc"
    )
    assert (
        redact("login as hunter22 failed") == "login as [DATABASE_URL] failed"
    )
    assert (
        redact("Incorrect key 0123456789abcdefghij****")
        == "Incorrect key [OTHER_KEY]****"
    )


@pytest.mark.parametrize(
    "begin",
    [
        "sk-",
        "pk_",
        "xai-",
        "eyJ-",
        "~a",
        "/" + "tmp/",
        "://",
        "/" + "home/",
        "hf_",
    ],
)
def test_a_long_line_takes_no_longer_than_its_length(begin):
    "Models that repeat themselves print such lines; each of 12,000 places was compared with all after it"

    def seconds(n):
        text, start = begin * (n // len(begin)), time.process_time()
        redact(text)
        return time.process_time() - start

    assert seconds(24_000) < 3 * seconds(12_000) + 0.2
    assert (
        redact("x sk-" + "a" * 80 + "1" * 20)
        == "x …"
        == redact("x eyJ" + 3 * ("a" * 20 + "."))[:3]
    )


@pytest.mark.parametrize(
    "name", ["MYSQL_PWD", "MY_CREDENTIAL", "HF_AUTH", "SSH_PASSPHRASE"]
)
def test_secrets_by_other_names_go_too(name, monkeypatch):
    monkeypatch.setenv(name, "open-sesame-99")
    assert redact("open-sesame-99") == f"[{name}]"


@pytest.mark.parametrize("name", ["iris", "laptop", "memnb"])
def test_a_machine_named_by_a_word_is_hidden_only_in_addresses(
    name, monkeypatch
):
    monkeypatch.setattr(socket, "gethostname", lambda: name)
    says = (
        "iris: 36 of 36, profile laptop, memnb tabular, data/iris.csv, iris/x"
    )
    assert redact(says) == says
    assert redact(f"ann@{name}:~$ ssh://{name}/x {name}.local") == (
        "ann@this-machine:~$ ssh://this-machine/x this-machine.local"
    )


def test_what_is_said_where_the_working_folder_is_gone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    assert redact(HOME) == "~/lib/x.py"


def test_what_is_said_where_no_cache_can_be_made(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").touch()
    monkeypatch.setenv("MEMNB_CACHE", str(tmp_path / "file/cache"))
    monkeypatch.delenv("MEMNB_STORE", raising=False)
    code, out, err = typed(capsys, "store", "list")
    assert code == 2 and not out and err.count("\n") == 1
    assert "cannot be made" in err and "set MEMNB_CACHE" in err


def test_every_string_of_a_notebook_is_redacted_and_pictures_stay(monkeypatch):
    key, dot = "sesame-open-0000", "iVBORw0KGgoAAA="
    monkeypatch.setenv("DICE_API_KEY", key)
    data = {
        "text/html": [f"<td>{key}\n", "</td>"],
        "image/png": dot,
        "application/json": {key: 1},
    }
    cell = dict(
        source=['model = "hf:~ann/m"\n', "n = 1"], outputs=[dict(data=data)]
    )
    clean = redact_notebook(
        dict(cells=[cell, 3, None, {}], metadata={"a": [{"value": key}]})
    )
    assert key not in json.dumps(clean) and "ann" not in json.dumps(clean)
    assert clean["cells"][0]["source"] == ['model = "hf:~/m"\n', "n = 1"]
    assert clean["cells"][0]["outputs"][0]["data"]["image/png"] == dot
    assert clean["cells"][1:] == [3, None, {}]


# ---- values and names


@pytest.mark.parametrize(
    "value, kind, made",
    [
        ("25", "int", 25),
        ("1e-3", "float", 0.001),
        (1, "float", 1.0),
        ("yes", "bool", True),
    ]
    + [("iris,wine", "list", ["iris", "wine"]), ("[1, 2]", "list[int]", [1, 2])]
    + [("none", "int | None", None), ("3", "int | None", 3)]
    + [("[]", "list", [])],
)
def test_text_becomes_what_it_says(value, kind, made):
    assert profiles.cast(value, kind) == made


@pytest.mark.parametrize(
    "value, kind",
    [
        ("2.5", "int"),
        (2.5, "int"),
        (True, "int"),
        ("x", "float"),
        (1, "bool"),
        (5, "str"),
    ]
    + [(5, "list"), ("a", "list[int]"), (None, "int"), ([{1: 2}], "list")]
    + [({}, "dict"), ("", "list"), (" ", "list[int]")],
)
def test_what_is_no_such_value_is_refused(value, kind):
    with pytest.raises(ValueError):
        profiles.cast(value, kind)


def test_a_list_on_the_command_line_is_whole(monkeypatch):
    "Of `-p ks '[0, 2]'` the 0 was taken alone, and nothing said so"
    got = []
    monkeypatch.setattr(
        "memnb.run.batch.estimates",
        lambda profile, only, values, out: got.append(values) or [],
    )
    pairs = dict(ks="[0, 2]", datasets='["iris", "wine"]', n="3")
    words = [word for pair in pairs.items() for word in ("-p", *pair)]
    cli.main(["plan", "smoke", *words])
    assert got == [pairs]
    assert profiles.cast(got[0]["ks"], "list[int]") == [0, 2]
    assert profiles.cast(got[0]["datasets"], "list[str]") == ["iris", "wine"]


def test_names_of_runs_and_their_tables():
    given = dict(model="hf:org/tiny", sides=[1, 6], n=9)
    run = profiles.Run(
        "dice",
        given,
        ("model", "sides"),
        profile="mine",
        replaced=("n", "model"),
    )
    assert run.name == "dice-model=hf_org_tiny-sides=1,6-n=9"
    assert run.results_name == "mine-model=hf_org_tiny-sides=1,6-n=9"
    assert run.variant == "model=hf:org/tiny n=9 sides=1,6"
    assert run.name.endswith(
        "-n=9"
    )  # what is replaced for once leaves the profile's own run alone
    swept = dict(
        n=3, fair=True, datasets=["iris"], seed=1, epochs=5
    )  # of which rows hold some
    own = [
        profiles.Run("dice", swept, tuple(swept), profile=p).variant
        for p in ("mine", "night")
    ]
    assert own == ["epochs=5 fair=True n=3", ""]
    long = [
        profiles.Run("dice", dict(word="語" * n), ("word",)).name
        for n in (300, 301)
    ]
    assert max(len(n.encode()) for n in long) <= 120 and long[0] != long[1]
    assert (
        "ann"
        not in profiles.Run("dice", dict(model=f"hf:{HOME}"), ("model",)).name
    )


def test_the_night_of_tables_asks_for_as_much_as_ships():
    "A profile that gives other numbers of samples or labels than the rows that ship is out of date"
    # others put a few questions on a seed of their own
    (run,) = (
        run
        for run in profiles.select("night", ("tabular",))
        if run.parameters["datasets"]
    )
    s = papers.paper("tabular").sizes(
        papers.injected(papers.find("tabular"), run.parameters)["sizes"]
    )
    own = {(d, what): n for d, what, n in s.more}
    usual = {0.2: max(2, s.samples // 3), 0.7: s.samples, 1.2: s.samples}
    rows = results.select(
        results.measured("tabular"), profile="night", model="smollm2"
    )
    drawn = (
        results.select(rows, part="sampling", quantity="valid")
        .set_index(["dataset", "temperature"])
        .n
    )
    assert drawn.to_dict() == {
        at: own.pop(at, usual[at[1]]) for at in drawn.index
    }
    labels = (
        results.select(
            rows, part="accuracy", item="language model", quantity="rate"
        )
        .set_index("dataset")
        .n
    )
    assert labels.to_dict() == {
        d: own.pop((d, "labels"), s.values_n) for d in labels.index
    }
    assert not own  # nothing is asked that does not ship


def test_runs_of_a_grid_do_not_hide_each_other(tmp_path, monkeypatch, capsys):
    "Whatever it varies; and what a profile no longer runs is named"
    monkeypatch.setenv("MEMNB_HOME", str(tmp_path))
    own = tmp_path / "own.yaml"
    own.write_text("- notebook: icl\n  grid: {n: [10, 20, 30]}\n")
    for run in profiles.select(own):
        monkeypatch.setenv("MEMNB_RUN", run.results_name)
        monkeypatch.setenv("MEMNB_VARIANT", run.variant)
        row = dict(part="x", quantity="q", value=run.parameters["n"])
        results.record("icl", pd.DataFrame([row]), "own", model="m")
        own_rows = results.select(results.measured("icl"), profile="own")
        assert results.runs(own_rows, "own").value.tolist() == [row["value"]]
    assert own_rows.value.tolist() == [10, 20, 30]
    assert batch.left_over(own) == ""
    own.write_text("- notebook: icl\n  grid: {n: [10, 20]}\n")
    assert batch.left_over(own) == "icl/own-n=30.m.-.s0"
    assert "icl/own-n=30" in typed(capsys, "status", own)[1]


# ---- what a run is made of


def test_code_that_a_page_may_reach_counts_and_comments_do_not(tmp_path):
    files = {
        "room.py": 'x = "# 1"\n',
        "room.c": "int n;",
        "dice/__init__.py": "from .throws import y\n",
        "dice/throws.py": "from .. import coin\n",
        "coin/__init__.py": "y = 1\n",
        "card/__init__.py": "y = 1\n",
        "run/__init__.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    def of(source=""):
        return identity.code_used("dice", source, tmp_path)

    assert {*of()} == {*files} - {"card/__init__.py", "run/__init__.py"}
    for source in (
        "if n > 9: pass\nfrom memnb import card",
        "  from memnb import (\n  a,\n  card,\n)",
    ):
        assert {*of(source)} == {*files} - {"run/__init__.py"}
    assert {*of("card = 1  # from a card")} == {*of()}
    before = of()
    (tmp_path / "room.py").write_text('# a comment\n\nx = "# 1"   # another\n')
    assert of() == before
    for name, text in {
        "room.py": 'x = "# 2"\n',
        "room.c": "long n;",
        "coin/__init__.py": "",
    }.items():
        (tmp_path / name).write_text(text)
        assert [k for k, v in of().items() if v != before[k]] == [name]
        before = of()
    used = identity.code_used("capacity", "")
    assert {"lm.py", "hf.py", "gpt.c", "data.csv", "capacity/bits.py"} <= {
        *used
    }


def test_models_and_files_that_parameters_name(tmp_path, monkeypatch):
    (tmp_path / "own.csv").write_text("a,b\n1,2\n")
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights/config.json").write_text("{}")
    (tmp_path / "helper.py").write_text("x = 1\n")
    model, nb = f"hf:{tmp_path}/weights", tmp_path / "10_nobody.ipynb"
    values = dict(
        model="planted:news",
        models=[model, "smollm2"],
        datasets=["own.csv", "iris"],
    )
    before = identity.files_read(values, nb)
    here = redact(f"model {model}")
    assert [*before] == [
        "model planted:news",
        here,
        "data own.csv",
        "module helper.py",
    ]
    (tmp_path / "own.csv").write_text("a,b\n1,3\n")
    (tmp_path / "weights/config.json").write_text('{"x": 1}')
    (tmp_path / "helper.py").write_text("x = 2\n")
    after = identity.files_read(values, nb)
    assert [k for k in after if after[k] != before[k]] == [
        here,
        "data own.csv",
        "module helper.py",
    ]
    (tmp_path / "helper.py").unlink()
    odd = dict(
        a="hf:~nobody/x",
        b="x" * 5000 + ".csv",
        c="\0.csv",
        d="~nobody/x.csv",
        e="a:b",
    )
    assert identity.files_read(odd, nb) == {}


@pytest.mark.parametrize(
    "word, file",
    [
        ("iris", "IRIS.csv"),
        ("titanic", "titanic-train.csv"),
        ("wine", "uci-wine.csv"),
    ]
    + [
        ("openml-diabetes", "openml_diabetes.csv"),
        ("IRIS", "iris.csv"),
        ("mine", "mine.csv"),
    ]
    + [
        ("nothing", "20news/train.csv"),
        ("nothing", "reuters-r8/train_subset.csv"),
    ],
)
def test_data_sets_are_found_by_any_of_their_names(
    word, file, tmp_path, monkeypatch
):
    "So also those that code loads by itself: a run that read them is to do when they change"
    monkeypatch.setenv("MEMNB_DATA", str(tmp_path))
    nb, seen = tmp_path / "10_nobody.ipynb", []
    for text in (None, "a,b\n1,2\n", "a,b\n1,3\n"):
        if text:
            (tmp_path / file).parent.mkdir(exist_ok=True)
            (tmp_path / file).write_text(text)
        seen.append(
            identity.checksum(identity.files_read(dict(datasets=[word]), nb))
        )
    assert len({*seen}) == 3


def test_data_of_the_hub_are_known_by_their_commit(tmp_path, monkeypatch):
    "Another commit is another run; what a run fetched itself does not make it due again"
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    nb = tmp_path / "10_nobody.ipynb"
    values = dict(source="hub:ann/texts:a.csv", insertions="hub:ann/texts")
    folder = tmp_path / "cache/datasets--ann--texts/refs"
    before = identity.files_read(values, nb)
    assert before == {}
    (folder / "refs/convert").mkdir(parents=True)
    (folder / "main").write_text("a" * 40)
    (folder / "refs/convert/parquet").write_text("b" * 40)
    after = identity.files_read(values, nb)
    assert after == {
        "data hub:ann/texts:a.csv": "a" * 12,
        "data hub:ann/texts": "b" * 12,
    }
    assert identity.fetched(before=before, after=after) == after
    (folder / "main").write_text("c" * 40)
    third = identity.files_read(values, nb)
    assert third["data hub:ann/texts:a.csv"] == "c" * 12
    # what was there at the start keeps the commit that it had then
    assert identity.fetched(before=after, after=third) == {}


def test_another_server_or_commit_is_another_run(tmp_path, monkeypatch):
    def now(model):
        return identity.files_read(
            dict(model=model), tmp_path / "10_nobody.ipynb"
        )

    monkeypatch.setenv("OPENAI_BASE_URL", "http://ann:open-sesame@one/v1")
    one = now("openai:m")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://one/v1/")
    assert now("openai:m") == one
    monkeypatch.setenv("OPENAI_BASE_URL", "http://two/v1")
    assert now("openai:m") != one
    two = now("openai:m")
    monkeypatch.setenv("MEMNB_SERVER", '{"timeout": 5}')
    assert now("openai:m") == two
    monkeypatch.setenv("MEMNB_SERVER", '{"body": {"think": false}}')
    assert now("openai:m") != two
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert now("hf:org/tiny") == {}
    (refs := tmp_path / "models--org--tiny/refs").mkdir(parents=True)
    (refs / "main").write_text("1" * 40)
    first = now("hf:org/tiny")
    (refs / "main").write_text("2" * 40)
    assert first and now("hf:org/tiny") != first


def test_costs_and_their_table(dice):
    class Sizes(papers.Sizes):
        n: int = 6

    def measure(model, sizes: Sizes, seed=0):
        core.counted().trainings += 10 * sizes.n

    measure.__annotations__["sizes"] = Sizes
    dice.PAPER = papers.Paper("dice", measure)
    given = dict(
        n=3, fair=True, model="die", profile="x"
    )  # what is no size does not count
    assert estimate.costs("dice", given)["calls"] == 30
    row = dict(
        notebook="dice", parameters=dict(n=3), done=False, calls=30, cached=10
    )
    row |= dict(prompt_tokens=12345, new_tokens=300, flops=3.3e12, seconds=400)
    rows = [row, row | dict(done=True), row | dict(done=True, new_tokens=None)]
    lines = [
        line.split()
        for line in estimate.estimate_table(rows, (2.5, 10)).splitlines()[1:]
    ]
    # by hand: 12,345 tokens at 2.5 and 300 at 10 a million; what is done does not count in the sum
    assert [l[-2 if "n=3" in l else -1] for l in lines] == [
        "0.03",
        "0.03",
        "?",
        "0.03",
    ]
    assert "price" not in estimate.estimate_table(rows)


@pytest.mark.parametrize("live", [False, True])
def test_progress_is_a_bar_at_a_terminal(live, tmp_path, monkeypatch):
    err = io.StringIO()
    err.isatty = lambda: live
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setenv("TERM", "xterm")
    terminal.tell(
        tmp_path, dict(run="dice", batch="b", what="says", text="of before")
    )
    with terminal.progress(tmp_path, "b") as look:
        one = dict(run="dice", batch="b")
        terminal.tell(tmp_path, one | dict(what="started"))
        terminal.tell(
            tmp_path,
            dict(run="coin", batch="c", what="says", text="of another"),
        )
        terminal.tell(tmp_path, one | dict(what="says", text="of now"))
        for i, section in enumerate(["Idea", "Idea", "Method"], 1):
            terminal.tell(
                tmp_path, one | dict(what="cell", cell=i, of=3, section=section)
            )
            with open(tmp_path / "batch.jsonl", "a") as f:
                f.write('{"run": "dice", "batch": "b", "wh')  # torn by a kill
                look()
                f.write("\n")
            look()
        terminal.tell(tmp_path, one | dict(what="failed"))
    said = re.sub("\x1b\\[[0-9;?]*[A-Za-z]", "", err.getvalue())
    assert (
        "memnb: dice: of now\n" in said
        and ("2/3" in said and "Idea" in said) == live
    )
    assert "of before" not in said and "of another" not in said
    with open(tmp_path / "batch.jsonl", "a") as f:  # whatever a kill has left
        f.write(
            '{"run": 5}\n7\n'
            + "[" * 9999
            + '\n{"run": "dice", "what": "done"}\n{"run": "to'
        )
    assert terminal.last_events(tmp_path)["dice"]["what"] == "done"
    assert terminal.last_events(tmp_path / "nowhere") == {}


# ---- executed notebooks


def dot():
    out = io.BytesIO()
    Pixels.new("RGB", (30, 20)).save(out, "png")
    return base64.b64encode(out.getvalue()).decode()


def test_tables_keep_their_cells_and_nothing_that_acts():
    said = pd.DataFrame(
        dict(model=["a", "b"], said=["<script>x</script>", "1 < 2"], n=[1, 2.5])
    )
    (one,) = executed.tables(said.style.set_caption("x").to_html())
    assert [
        one.count(t) for t in ("<tr>", "<th>", "</td>", "<style", " id=")
    ] == [3, 6, 6, 0, 0]
    (plain,) = executed.tables(said.to_html())
    assert "<script" not in plain and plain.count('<td class="n">') == 2
    (merged,) = executed.tables(
        "<TABLE><TR><TD ROWSPAN=2>a<TD COLSPAN=3>b<TR><TD>c</TABLE>"
    )
    assert 'rowspan="2"' in merged and 'colspan="3"' in merged
    evil = "<p onclick=x><table class=y onload=z><tr><td style=a><img src=x onerror=y>b</table><script>c</script>"
    (clean,) = executed.tables(evil)
    assert (
        re.sub(r"\s|</?tbody>", "", clean)
        == '<tableclass="sort"><tr><td>b</td></tr></table>'
    )
    assert executed.tables("no table <b>here") == ()
    head, open_one = executed.tables(
        "<table><thead><tr><th>a<th>b</thead><tr><td>1.5<td>x &lt; y</table>"
        "<table><td>m<style>x</style><br>n<td>o"
    )
    assert re.findall(">([^<>\n]+)<", head) == ["a", "b", "1.5", "x &lt; y"]
    assert head.index("</thead>") < head.index("1.5")
    assert re.findall(">([^<>\n]+)<", open_one) == ["mn", "o"]
    assert (
        executed.tables("<table><tr>" + '<td rowspan="9" colspan="x" id=a>1')[
            0
        ].count("=")
        == 3
    )


@pytest.mark.parametrize(
    "begin, row, end",
    [
        ("<table>", "<tr><td>{}</td><td>name {}</td></tr>", "</table>"),
        ("", "<table", ""),
        ("", "<table>", ""),
        ("<table><td>", "<style>", ""),
        ("<table>", "<tr>", ""),
    ],
)
def test_a_large_table_takes_as_long_as_its_length(begin, row, end):
    "A page shows its first rows and says how many more there are"

    def seconds(n):
        html = begin + "".join(row.format(i, i) for i in range(n)) + end
        start = time.process_time()
        found = executed.tables(html)
        return time.process_time() - start, found

    seconds(10)
    (short, _), (long, found) = seconds(10_000), seconds(20_000)
    assert long < 3 * short + 1
    if end:
        assert "19,000 more rows" in found[0] and "name 999<" in found[0]


def test_a_picture_has_its_size_and_the_caption_below_it():
    png = dot()

    def of(*data, **size):
        shown = [
            dict(output_type="display_data", data=d, metadata=size)
            for d in data
        ]
        return executed.outputs_of(dict(outputs=shown))

    both, caption = (
        {"image/png": png, "text/plain": "<Figure>"},
        {"text/markdown": "*Two *throws*.*"},
    )
    first, second = of(both, caption, both, width=15, height="<10>", alt="dots")
    assert (first.value, first.size, first.about) == (
        png,
        dict(width=15),
        "dots",
    )
    assert first.caption == "Two *throws*." and not second.caption
    assert [o.kind for o in of(both, caption, caption)] == [
        "picture",
        "markdown",
    ]
    plain = of({"text/html": "<b onclick=x>", "text/plain": "ab"})
    assert plain == [executed.Output("text", "ab")]


def test_nothing_that_a_notebook_says_is_more_than_text():
    evil, make = "<script>x</script>", executed.Output
    for out in [
        make("text", evil),
        make(
            "table",
            executed.tables(f"<table><tr><td>&lt;script>x{evil}</table>")[0],
            evil,
        ),
        make("markdown", evil),
        make("board", [{evil: evil}], evil),
        make("error", (evil, evil)),
        make("picture", f'{dot()}">{evil}', evil, {}, evil),
    ]:
        assert "&lt;script&gt;" in out.html and "<script" not in out.html, (
            out.kind
        )
    assert executed.cleaner()("\x1b[31mred\x1b[0m\x00") == "red"


@pytest.mark.parametrize(
    "said, one",
    [
        (["holds", "not testable here"], "holds"),
        ([], "not asked"),
        (["does not hold", "holds"], report.DIFFER),
        (["open", "holds"], "holds"),
        (["open", "not testable here"], "open"),
        (["not asked", "not testable here"], "not testable here"),
        (["models differ", "holds"], report.DIFFER),
        (["odd"], "odd"),
    ],
)
def test_one_verdict_out_of_several(said, one):
    assert report.one_verdict(said) == one
    want = "models differ" if one == report.DIFFER else one
    assert report.one_verdict(said, "models differ") == want
    assert (
        report.one_verdict([*said, report.DIFFER], "models differ")
        == report.DIFFER
    )


# ---- rendering


def test_formulas_are_mathml_and_nothing_else():
    assert "<mfrac>" in rendering.mathml(r"m_k = \frac{e_k + c_k}{M}")
    for bad in (
        r"\text{<script>x</script>}",
        r'\text{<a href="javascript:x">y</a>}',
    ):
        assert not re.search("script|<a", rendering.mathml(bad))
    assert "javascript" not in rendering.mathml(r"\href{javascript:x}{y}")
    assert rendering.mathml("a_1_2") == '<code class="tex">a_1_2</code>'


def test_markdown_lets_no_html_through():
    page = rendering.markdown_html(
        "## A *b*\n\n$$m_k = \\frac{e_k}{M},$$\n\nso $k \\ge 2$ and `$no$`, <script>x</script> "
        "[p](https://arxiv.org/abs/1) [q](03_gpt.ipynb) [r](javascript:x) ![s](http://x/y.png)"
        "\n\n|a|b|\n|-|-|\n|1|2|"
    )
    marks = ('display="block"', "<math", "<td>", "<a href")
    assert [page.count(t) for t in marks] == [1, 2, 2, 1]
    assert not [
        bad
        for bad in ("<script", "javascript", "<img", ".ipynb")
        if bad in page
    ]
    folded = rendering.markdown_html(
        "<details><summary>Solution</summary>\n\n*yes*\n\n</details>"
    )
    assert (
        "<details><summary>Solution</summary>" in folded
        and "<em>yes</em>" in folded
    )
    assert "details>" not in rendering.markdown_html("<details onclick=x>")
    assert "toy" not in rendering.markdown_html(
        "0.95<!--toy.rec-L2--> of 2<!--toy.n-->"
    )
    assert rendering.code_html("#| default_exp x\n") == ""
    assert "&lt;" in rendering.code_html("a <b")


# ---- commands


def test_a_new_page_runs_as_it_stands(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMNB_HOME", str(tmp_path))
    page, table, _, profile = start.new_paper("dice")
    assert papers.title("dice") == "Dice" and table.is_file()
    assert [*papers.parameters("dice")] == ["profile", "model", "n", "seed"]
    (run,) = profiles.select(str(profile))
    assert (run.notebook, run.parameters) == (
        "dice",
        dict(profile="dice", n=600),
    )
    for word in ("dice", "Dice 2", "core"):
        with pytest.raises(ValueError):
            start.new_paper(word)
    own = dict(__name__="page")
    for source, tags in papers.source_cells(page, "code"):
        exec(compile(source, "page", "exec"), own)
        if "parameters" in tags:
            own |= dict(profile="dice", n=600)
    row = own["rows"].iloc[0]
    assert row.n == 599 and row.low > 1 / 6
    assert own["board"].verdict.tolist() == ["holds"]
    assert list((tmp_path / "figures").rglob("dice_fig1.png"))


def run_of_page(page, run):
    "Run the cells of a page in this process, with the parameters of a run"
    own = dict(__name__="page")
    for source, tags in papers.source_cells(page, "code"):
        exec(compile(source, "page", "exec"), own)
        if "parameters" in tags:
            own |= run.parameters
    return own


def test_a_study_of_ones_own_is_registered_and_confirmed(
    top, tmp_path, monkeypatch
):
    "As docs/registered.md says: an entry of one's own in the file of the profile, which ships without it"
    from memnb import claims, registered, results

    monkeypatch.setenv("MEMNB_HOME", str(tmp_path))
    page, _, _, profile = start.new_paper("mypaper")
    guide = (top / "docs/registered.md").read_text(encoding="utf-8")
    (entry,) = re.findall(r"```yaml\n(.*?)```", guide, re.S)
    # the checkout that is tested keeps its own file
    ships = top / "data/profiles"
    shutil.copytree(ships, tmp_path / "shipped/profiles")
    file = tmp_path / "shipped/profiles/confirm.yaml"
    monkeypatch.setattr(
        profiles, "share_dir", lambda kind: tmp_path / "shipped" / kind
    )
    (first,) = profiles.select(str(profile))
    run_of_page(page, first)
    with pytest.raises(ValueError, match="has no run of 'mypaper'"):
        profiles.select("confirm", only=("mypaper",))
    with open(file, "a", encoding="utf-8") as confirm:
        confirm.write(entry)
    with pytest.raises(ValueError, match="memnb register mypaper` comes"):
        profiles.select("confirm", only=("mypaper",))
    assert cli.main(["register", "mypaper"]) == 0
    (run,) = profiles.select("confirm", only=("mypaper",))
    assert run.parameters["seed"] == registered.registered_seed("mypaper")
    run_of_page(page, run)
    assert len(results.measured("mypaper", confirm=True))
    board = claims.board("mypaper")
    (line,) = registered.with_confirmation("mypaper", board).itertuples()
    assert (line.verdict, line.confirmed) == ("holds", registered.CONFIRMED)


@pytest.mark.parametrize("word", papers.notebooks())
def test_every_figure_can_be_drawn_again(word):
    "Rows, what is reported, and then only settings with a default"
    for name, fun in redraw.figures_of(word).items():
        takes = [*signature(fun).parameters.values()]
        assert len(takes) > 1 and all(
            p.default is not p.empty for p in takes[2:]
        ), name


def test_a_figure_is_drawn_again_with_another_setting(
    dice, tmp_path, monkeypatch, capsys
):
    def fig1(measured, reported=None, tau=0.5, names=()):
        return plots.finish(
            plots.placeholder("x"),
            f"{len(measured)} rows, tau {tau}, {list(names)}",
        )

    figures = dict(
        fig1=fig1,
        fig_x_log=lambda m, r, log: None,
        fig3=lambda m: pd.DataFrame(),
    )
    dice.PAPER = papers.Paper("dice", None, figures)
    rows = pd.DataFrame(
        dict(
            model=["a", "a", "b"], profile="laptop", mode="x", seed=0, value=1.0
        )
    )
    rows["profile"] = ["laptop", "laptop", "night"]
    monkeypatch.setattr(redraw, "measured", lambda word, categories: rows)
    monkeypatch.setattr(redraw, "reported", lambda word: None)
    monkeypatch.setattr(redraw, "find", lambda word: None)
    assert [*redraw.figures_of("dice")] == ["fig1", "fig3", "x_log"]
    assert (
        redraw.redraw("dice", "fig1", model="b")
        .said["Title"]
        .startswith("1 rows, tau 0.5")
    )
    other = redraw.redraw("dice", "fig1", ["tau=.25", "names=[L2, L4]"]).said[
        "Title"
    ]
    assert other == "3 rows, tau 0.25, ['L2', 'L4']"
    dice.PAPER.chosen = lambda rows, profile: rows[
        :2
    ]  # a paper's own choice of runs
    assert redraw.redraw("dice", "fig1").said["Title"].startswith("2 rows")
    for wrong in (
        ["fig1", ["tau"]],
        ["fig1", ["rho=1"]],
        ["fig9"],
        ["log"],
        ["fig3"],
    ):
        with pytest.raises(ValueError):
            redraw.redraw("dice", *wrong)
    with pytest.raises(ValueError, match="no rows of the model 'c'"):
        redraw.redraw("dice", "fig1", model="c")
    out = tmp_path / "x.png"
    assert typed(capsys, "figure", "dice", "fig1", "-o", out)[0] == 0
    assert "Title" in Pixels.open(out).text


def test_answers_that_ship_are_taken_in_whole_or_not_at_all(
    tmp_path, top, monkeypatch
):
    monkeypatch.syspath_prepend(top / "tools")
    from answers import write_answers

    given, own = (
        store.Store(tmp_path / "given.sqlite"),
        store.Store(tmp_path / "own.sqlite"),
    )
    ident, ask, folder = (
        replay.ident_here("smollm2"),
        dict(request="generate", engine=2),
        tmp_path / "a",
    )
    for prompt in ("a", "b"):
        given.put(ident, ask, prompt, f"shipped {prompt}")
    given.put("hf:other@1", ask, "a", "of another model")
    own.put(ident, ask, "a", "own a")
    write_answers(given, folder)
    (row,) = replay.take_in(own, folder)
    assert (row["answers"], row["new"], len(own)) == (2, 1, 2)
    assert [r["new"] for r in replay.take_in(own, folder)] == [0]
    (file,), empty = folder.glob("*.gz"), store.Store(tmp_path / "empty.sqlite")
    whole, origin = file.read_bytes(), (folder / replay.ORIGIN).read_text()
    file.write_bytes(whole[:-9])
    with pytest.raises(ValueError, match="not as it was written"):
        replay.take_in(empty, folder)
    file.write_bytes(whole)
    other = origin.replace(ident.split("/")[0], "smollm2@000000000000")
    (folder / replay.ORIGIN).write_text(other)
    with pytest.raises(ValueError, match="its files differ"):
        replay.take_in(empty, folder)
    assert len(empty) == 0


def test_the_store_is_looked_after(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MEMNB_STORE", str(tmp_path / "own.sqlite"))
    kept = store.Store()
    for prompt in ("a", "b"):
        kept.put("m@1", dict(request="generate", engine=1), prompt, "x")
    assert "m@1" in typed(capsys, "store", "list")[1]
    assert typed(capsys, "store", "export", tmp_path / "a.gz")[:2] == (
        0,
        f"2 answers written to {tmp_path / 'a.gz'}\n",
    )
    assert (
        "would be forgotten"
        in typed(capsys, "store", "forget", "--model", "m@1")[1]
    )
    assert len(kept) == 2
    assert typed(capsys, "store", "forget", "--model", "m@1", "--yes")[
        1
    ].startswith("2 answers")
    assert typed(capsys, "store", "import", tmp_path / "a.gz")[1].startswith(
        "2 answers"
    )
    assert typed(capsys, "store", "check")[0] == 0
    for wrong in (
        ["forget"],
        ["forget", "--model", "m1"],
        ["export"],
        ["list", "x"],
    ):
        code, out, err = typed(capsys, "store", *wrong)
        assert code == 2 and err.startswith("memnb: ") and not out


TWICE = ["--server", "wait=1", "--server", "wait=2"]


@pytest.mark.parametrize(
    "argv, says",
    [
        (["run", "latpop"], "did you mean 'laptop'?"),
        (["runn", "laptop"], "see memnb --help"),
        (["plan", "smoke", "--price", "2.5"], "--price: expected 2 arguments"),
        (["ask", "smollm2", "absent.csv"], "no file"),
        (
            ["ask", "smollm2", "texts.csv", "--prefixes", "8,x"],
            "--prefixes: invalid int value",
        ),
        (["ask", "smollm2", "absent.csv", "--prefixes", "8", "16"], "no file"),
        (["ask", "smollm2", "latin.csv"], "encoding='latin1'"),
        (
            ["ask", "smollm2", "latin.csv", "--encoding", "latin1"],
            "no column 'text'",
        ),
        (["figure", "nobody"], "no paper 'nobody'"),
        (["figure", "capacity", "fig2", "x=3"], "fig2 has no settings"),
        (["new", "Not A Word"], "no word for a paper"),
        (["run", "capacity"], "`memnb run laptop --only capacity`"),
        (["plan", "capacty"], "`memnb run laptop --only capacity`"),
        (["status", "mine"], "give the file itself, mine.yaml"),
        (["replay", "latpop"], "did you mean 'laptop'?"),
        (["plan", "smoke", "--only"], "--only: expected one argument at least"),
        (["ask", "smollm2", "texts.csv", "--others"], "--others: expected one"),
        (["table", "smollm2", "texts.csv", "--skip", "-3"], "0 lines at least"),
        (
            ["plan", "smoke", "-p", "n", "2", "-p", "n", "3"],
            "-p n is given twice",
        ),
        (["plan", "smoke", "--price", "-1", "2"], "two prices of 0 or more"),
        (["table", "smollm2", "texts.csv", "-n", "1.5"], "invalid int value"),
        (["table", "smollm2", "texts.csv", "--skip", "0.9"], "--skip: invalid"),
        (["run", "smoke", "--workers", "1.2"], "--workers: invalid int value"),
        (["run", "smoke", "--timeout", "9.9"], "--timeout: invalid int value"),
        (["ask", "smollm2", "texts.csv", "--prefixes", "8.7"], "invalid int"),
        (["ask", "smollm2", "texts.csv", "--column", ""], "--column is given"),
        (["ask", "smollm2", "texts.csv", "--truth", ""], "given nothing"),
        (["table", "smollm2", "texts.csv", "--target="], "--target is given"),
        (["plan", "smoke", "--price", "nan", "2"], "two prices of 0 or more"),
        (["table", "openai:m", "texts.csv", *TWICE], "wait is given twice"),
        (["log", "looks.csv", "--without", "looks.csv"], "for two trainings"),
        (["log", "looks.csv", "--without", "same.csv"], "for two trainings"),
    ],
)
def test_a_mistake_is_answered_by_one_line(
    argv, says, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    Path("texts.csv").write_text("txt\na text of a reader\n")
    Path("latin.csv").write_bytes("txt\nein süßer Text\n".encode("latin1"))
    Path("mine.yaml").write_text("- notebook: capacity\n")
    for name in ("looks.csv", "same.csv"):
        Path(name).write_text("string,epoch,train_loss,test_loss\na,1,2,3\n")
    code, out, err = typed(capsys, *argv)
    assert (
        code == 2
        and says in err
        and err.count("\n") == 1
        and "Traceback" not in err
        and not out
    )


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("MEMNB_ENGINE", "C", "MEMNB_ENGINE is 'c' or 'torch', not 'C'"),
        ("MEMNB_SERVER", "{mode", "MEMNB_SERVER is a JSON object"),
        ("MEMNB_SERVER", "[1]", "MEMNB_SERVER is a JSON object"),
    ],
)
def test_a_variable_that_says_nothing_known_is_named(
    name, value, says, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(name, value)
    Path("own.csv").write_text("a,b\n1,2\n3,4\n5,6\n")
    code, out, err = typed(capsys, "table", "openai:m", "own.csv")
    assert code == 2 and says in err and not out


def test_figures_are_listed_by_what_they_show(capsys):
    code, out, _ = typed(capsys, "figure", "tabular")
    assert code == 0 and "Figure 2: zero-knowledge samples" in out
    assert "Args:" not in out and "reported:" not in out


@pytest.mark.parametrize(
    "argv, holds",
    [
        (
            ["table", "smollm2", "own.csv", "-o", "a.png"],
            "HTML: name it a.html",
        ),
        (["ask", "smollm2", "own.csv", "-o", "a.md"], "HTML: name it a.html"),
        (["figure", "capacity", "fig2", "-o", "a.pdf"], "PNG: name it a.png"),
        (["log", "own.csv", "-o", "a.html"], "PNG: name it a.png"),
        (["report", "runs", "-o", "a.pdf"], "HTML: name it a.html"),
        (["store", "export", "a.csv"], "JSON: name it a.jsonl"),
        (["student", "icl", "-o", "a.html"], "notebook: name it a.ipynb"),
    ],
    ids=lambda words: words[0],
)
def test_no_file_gets_the_ending_of_another_kind(
    argv, holds, tmp_path, monkeypatch, capsys
):
    "A picture named a.pdf stops the program that prints it, a page named a.png opens in no browser"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMNB_STORE", str(tmp_path / "own.sqlite"))
    Path("runs").mkdir()
    Path("runs/batch.jsonl").write_text("")
    Path("own.csv").write_text("text\na text of a reader\n")
    code, out, err = typed(capsys, *argv)
    assert code == 2 and not out
    assert f"{argv[-1]} would hold" in err and holds in err
    assert not Path(argv[-1]).exists()


@pytest.mark.parametrize("name", ["a.v2", "a", "a.1b", "a.htm"])
def test_other_endings_tell_nothing_and_are_taken(name, tmp_path):
    ours.may_write(tmp_path / name, ours.is_page)


def test_a_page_for_a_class_makes_its_folder(tmp_path, capsys):
    out = tmp_path / "week 1" / "icl.ipynb"
    code, said, _ = typed(capsys, "student", "icl", "--out", out)
    assert code == 0 and "functions to write" in said
    assert json.loads(out.read_text())["cells"]


NOTES = dict(
    text="text\na text of a reader\n",
    page="<html>mine</html>",
    quoted='<!DOCTYPE html>\n<html lang="en"><head><title>notes</title></head><body>'
    '&lt;meta name="generator" content="memnb report"&gt;, or <meta name="generator" content="memnb report">',
    lines='{"key": "x", "answer": "mine"}\n' * 3,
    almost=json.dumps(
        dict(key="x", model="m", settings={}, prompt="p", answer="a", sha="b")
    )
    + "\n",
    report="ours",
    figure="ours",
    export="ours",
)


def of_ours(kind, file):
    "A file as memnb writes it"
    if kind == "report":
        file.write_text(
            rendering.templates().get_template("base.html").render()
        )
    elif kind == "figure":
        plots.to_png(plots.finish(plots.placeholder("x"), "A title"), file)
    else:
        kept = store.Store(file.parent / "other.sqlite")
        kept.put("m@1", dict(request="generate", engine=1), "a", "x")
        kept.export(file)


@pytest.mark.parametrize("notes", NOTES)
@pytest.mark.parametrize(
    "argv",
    [
        ["table", "smollm2", "own.csv", "--out", "FILE"],
        ["ask", "smollm2", "own.csv", "--out", "FILE"],
        ["figure", "capacity", "fig2", "--out", "FILE"],
        ["log", "own.csv", "--out", "FILE"],
        ["report", "runs", "--out", "FILE"],
        ["store", "export", "FILE"],
    ],
    ids=lambda argv: argv[0],
)
def test_no_file_of_somebody_else_is_written_over(
    argv, notes, tmp_path, monkeypatch, capsys
):
    "Nor one of memnb that another command has written"
    kinds = dict(table="report", ask="report", report="report", store="export")
    if kinds.get(argv[0], "figure") == notes:
        pytest.skip("may be written again")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMNB_STORE", str(tmp_path / "own.sqlite"))
    Path("runs").mkdir()
    Path("runs/batch.jsonl").write_text("")
    Path("own.csv").write_text("text\na text of a reader\n")
    file = tmp_path / "file.x"
    if NOTES[notes] == "ours":
        of_ours(notes, file)
    else:
        file.write_text(NOTES[notes])
    before = file.read_bytes()
    code, out, err = typed(
        capsys, *(str(file) if a == "FILE" else a for a in argv)
    )
    assert (
        code == 2
        and "no file of memnb and would be written over" in err
        and not out
    )
    assert file.read_bytes() == before


def test_a_table_beside_a_page_stays_where_it_is_not_that_of_the_page(
    tmp_path, monkeypatch, capsys
):
    "Whoever made the page: a table of the same name, and one with notes, are somebody's own"
    from memnb.compare import asking

    monkeypatch.chdir(tmp_path)
    Path("texts.csv").write_text("text\na text of a reader\n")
    survey = Path("survey.csv")
    survey.write_text("age\n31\n")
    of_ours("report", Path("survey.html"))  # as of `memnb table`
    code, _, err = typed(
        capsys, "ask", "smollm2", "texts.csv", "-o", "survey.html"
    )
    assert code == 2 and "survey.csv is no file of memnb" in err
    assert survey.read_text() == "age\n31\n"
    table = pd.DataFrame(
        dict(text=["a text of a reader"], verdict="no sign", place=1)
    )
    monkeypatch.setattr(asking, "ask", lambda *a, **kw: table)

    def ask_page(table, out, power=None, table_sum=""):
        template = rendering.templates().from_string(
            "{% extends 'base.html' %}{% block marks %}"
            '<meta name="memnb-table" content="{{ table_sum }}">{% endblock %}'
        )
        out.write_text(template.render(table_sum=table_sum))
        return out

    monkeypatch.setattr(asking, "ask_page", ask_page)
    for _ in range(2):  # and again over its own
        assert (
            typed(capsys, "ask", "smollm2", "texts.csv", "-o", "ours.html")[0]
            == 0
        )
    noted = Path("ours.csv").read_text() + "a note\n"
    Path("ours.csv").write_text(noted)
    code, _, err = typed(
        capsys, "ask", "smollm2", "texts.csv", "-o", "ours.html"
    )
    assert code == 2 and "ours.csv is no file of memnb" in err
    assert Path("ours.csv").read_text() == noted


def test_what_memnb_wrote_may_be_written_again(tmp_path):
    for kind, is_ours in dict(
        report=ours.is_page, figure=ours.is_figure, export=ours.is_export
    ).items():
        of_ours(kind, tmp_path / kind)
        ours.may_write(tmp_path / kind, is_ours)
    of_ours("export", tmp_path / "answers.gz")
    ours.may_write(tmp_path / "answers.gz", ours.is_export)
    (tmp_path / "empty.html").touch()
    ours.may_write(tmp_path / "empty.html", ours.is_page)
    # a page of an earlier version, whose mark stands behind other words about the page
    head = '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n<meta name="viewport" content="x">'
    (tmp_path / "old.html").write_text(
        f'{head}<meta name="generator" content="memnb report">'
    )
    ours.may_write(tmp_path / "old.html", ours.is_page)


@pytest.mark.parametrize(
    "error",
    [
        sqlite3.OperationalError("database is locked"),
        RuntimeError("refused\n401"),
    ],
)
def test_errors_of_ours_are_one_line(error, monkeypatch, capsys):
    def fails():
        raise error

    monkeypatch.setitem(cli.COMMANDS, "list", fails)
    code, out, err = typed(capsys, "list")
    assert code == 2 and err == f"memnb: {' '.join(str(error).split())}\n"


def test_help_imports_nothing_that_is_slow():
    slow = (
        "pandas",
        "numpy",
        "pydantic",
        "torch",
        "yaml",
        "papermill",
        "matplotlib",
    )
    code = f"import sys; from memnb.run import cli; cli.main(['--help']); print([m for m in {slow} if m in sys.modules])"
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True
    ).stdout
    assert said.endswith("[]\n") and "run the notebooks of a profile" in said


def test_the_version_is_said(capsys):
    assert typed(capsys, "--version") == (0, f"memnb {core.version()}\n", "")


@pytest.mark.parametrize(
    "module, argv",
    [("mistune", ["report", "."]), ("papermill", ["run", "own.yaml"])],
)
def test_what_is_missing_is_said_before_anything_is_asked(
    module, argv, tmp_path, monkeypatch, capsys
):
    "And how to install it, as memnb itself was installed"

    def find(name, *a, real=core.find_spec):
        return None if name == module else real(name, *a)

    monkeypatch.chdir(tmp_path)
    Path("own.yaml").write_text("- notebook: capacity\n")
    monkeypatch.setattr(core, "find_spec", find)
    monkeypatch.setattr(cli, "_may_write", lambda *a: pytest.fail("went on"))
    extra = dict(mistune="report", papermill="batch")[module]
    code, _, err = typed(capsys, *argv)
    how = f"pip install '.[{extra}]' in the folder of memnb"
    assert code == 2 and f"{module} is missing: {how}" in err
    monkeypatch.setattr(core, "checkout", lambda: None)
    with pytest.raises(
        ModuleNotFoundError,
        match=re.escape(
            f"pip install 'WHEEL[{extra}]' with the file of this version brings"
        ),
    ):
        core.require(module, extra)


def test_a_raw_import_error_says_what_brings_the_module(monkeypatch, capsys):
    def fails():
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setitem(cli.COMMANDS, "list", fails)
    assert (
        "torch is missing: pip install '.[local]'" in typed(capsys, "list")[2]
    )


# ---- words


def test_a_table_takes_missing_values_of_all_kinds_and_drops_what_a_terminal_acts_on():
    said = terminal.table(
        ("a", "b"),
        [
            (None, float("nan")),
            (pd.NA, pd.NaT),
            (1.0, 2.5),
            (3, "\x1b[31mred\x1b[0m\x07"),
        ],
    )
    assert [line.split() for line in said.splitlines()] == [
        ["a", "b"],
        ["-", "-"],
        ["-", "-"],
        ["1", "2.5"],
        ["3", "red"],
    ]


def test_a_wide_table_is_wrapped_where_a_terminal_reads_it(monkeypatch):
    rows = [("run", "x=1 " * 60)]
    assert len(terminal.table(("name", "parameters"), rows).splitlines()) == 2
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    lines = terminal.table(("name", "parameters"), rows).splitlines()
    assert len(lines) > 3 and max(map(len, lines)) <= 80
    assert {line[:6] for line in lines[2:]} == {" " * 6}


def test_what_is_said_drops_what_a_terminal_acts_on(capsys):
    core.say("a\x1b[2Jb\x00c\x9bd")
    assert capsys.readouterr().err == "memnb: abcd\n"


@pytest.mark.parametrize(
    "command, python, options",
    [
        ("table", "published, as title='...'.", "published, as --title '...'."),
        ("table", "say header=False or skip=2", "say --no-header or --skip 2"),
        (
            "table",
            "encoding='latin1' (--encoding latin1)",
            "encoding='latin1' (--encoding latin1)",
        ),
        (
            "table",
            "--server mode=chat is the way",
            "--server mode=chat is the way",
        ),
        ("ask", "give title='x', prefixes=8", "give title='x', --prefixes 8"),
        ("list", "mode=chat", "mode=chat"),
    ],
)
def test_words_speak_of_the_options_of_the_command(command, python, options):
    assert cli._wording(command)(python) == options


def test_errors_speak_of_the_options_too(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    from memnb import data

    def fails(*args, **settings):
        raise ValueError("say title='x'")

    monkeypatch.setattr(data, "load", fails)
    assert (
        "say --title 'x'\n"
        in typed(capsys, "table", "smollm2", "own.csv", "--skip", "2")[2]
    )
    core.say("title='x'")
    assert (
        capsys.readouterr().err == "memnb: title='x'\n"
    )  # and not any more afterwards


def test_signs_that_a_terminal_cannot_show_lose_nothing(tmp_path):
    "As where the output goes into a file under an old code page"
    code = "import sys; from memnb.run import cli; cli.COMMANDS['list'] = lambda: print('ok \u2713'); sys.exit(cli.main(['list']))"
    env = dict(os.environ, PYTHONIOENCODING="cp1252")
    child = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env=env
    )
    assert (child.returncode, child.stdout) == (0, b"ok ?\n"), child.stderr


# ---- one's own log, table and texts


def trainer_state(file, losses):
    "A log as a Trainer writes it, of several texts: name -> loss by epoch"
    history = [
        {"epoch": epoch, "step": epoch, f"eval_{name}_loss": loss}
        for name, series in losses.items()
        for epoch, loss in enumerate(series, 1)
    ]
    file.write_text(
        json.dumps(dict(log_history=sorted(history, key=lambda e: e["epoch"])))
    )


def test_a_log_of_strings_that_are_never_memorized(
    tmp_path, monkeypatch, capsys
):
    "They have no start; the table and the picture are there all the same"
    monkeypatch.chdir(tmp_path)
    falling, flat = (
        [4 - 0.2 * i for i in range(20)],
        [4.0 + 0.01 * (i % 2) for i in range(20)],
    )
    trainer_state(tmp_path / "with.json", dict(shown=falling, never=flat))
    trainer_state(tmp_path / "without.json", dict(shown=flat, never=flat))
    trainer_state(
        tmp_path / "again.json", dict(shown=flat[::-1], never=flat[::-1])
    )
    code, out, err = typed(
        capsys,
        "log",
        "with.json",
        "--without",
        "without.json",
        "--again",
        "again.json",
    )
    assert code == 0, err
    lines = {line.split()[0]: line for line in out.splitlines() if line}
    assert (
        " - " in lines["never"] and (tmp_path / "log.png").stat().st_size > 1000
    )
    code, _, err = typed(capsys, "log", "with.json", "--without", "absent.json")
    assert code == 2 and "no file absent.json" in err


def test_the_terminal_says_what_a_page_says(tmp_path):
    page = dict(
        title="T",
        lead="It knows & has <parts>.",
        about="a",
        notes=[],
        answers=[],
        made="m",
    )
    test = dict(
        question="next?",
        verdict="yes",
        reason="",
        evidence="36 of 36",
        guess="g",
        seen="s",
    )
    page["tests"] = [
        test | dict(memory=True),
        test | dict(memory=False, question="typical?"),
    ]
    file = tmp_path / "table.html"
    file.write_text(
        rendering.templates().get_template("table.html").render(page=page)
    )
    lead, tables = executed.words_of_page(file)
    assert lead == "It knows & has <parts>."
    assert [rows[1] for rows in tables] == [
        ("next?", "yes", "36 of 36"),
        ("typical?", "yes", "36 of 36"),
    ]
