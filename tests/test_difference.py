"`memnb diff`: what a run changed beside what ships, in a checkout and in an installed package."

import gc
import re
import shutil
import subprocess

import pandas as pd
import pytest

from memnb import claims, core, difference, papers, results
from memnb.run import cli


def git(top, *words):
    "Do something in a repository of one's own"
    who = ["-c", "user.name=ann", "-c", "user.email=ann@example.org"]
    subprocess.run(
        ["git", "-C", str(top), *who, *words], check=True, capture_output=True
    )


def scaled(file, quantity, by):
    "Multiply the values of one quantity in a measured table"
    d = results._read(file)
    mine = (d.quantity == quantity) & d.value.notna()
    d.loc[mine, "value"] *= by
    d.loc[mine, [c for c in ("low", "high") if c in d]] = float("nan")
    results._write(d, file)
    return int(mine.sum())


@pytest.fixture
def house(tmp_path, home, monkeypatch, top):
    "A checkout with the tables of this one, all committed, into which runs write"
    monkeypatch.setenv("MEMNB_HOME", str(tmp_path))
    shutil.copytree(top / "data/papers", tmp_path / "data/papers")
    monkeypatch.setattr(difference, "checkout", lambda: tmp_path)
    for room in core, difference, results:
        monkeypatch.setattr(
            room, "share_dir", lambda kind: tmp_path / "data" / kind
        )
    try:
        git(tmp_path, "init", "-q")
    except OSError:
        pytest.skip("no git")
    git(tmp_path, "add", "data"), git(tmp_path, "commit", "-qm", "numbers")
    return tmp_path


def said(capsys, *words):
    capsys.readouterr()
    code = cli.main(["diff", *words])
    return (code, *capsys.readouterr())


def test_nothing_differs_and_no_paper_is_asked(house, capsys, monkeypatch):
    monkeypatch.setattr(
        difference, "verdicts", lambda *a: pytest.fail("claims were judged")
    )
    assert said(capsys) == (0, "nothing differs\n", "")


def test_without_runs_nothing_is_compared(home, top, capsys, monkeypatch):
    "In a folder of one's own, and in a checkout whose rows are those of its commit"
    monkeypatch.setattr(
        difference, "differences", lambda *a: pytest.fail("compared")
    )
    told = "nothing differs: no run has written rows beside those that ship\n"
    assert said(capsys) == (0, told, "")
    code, _, err = said(capsys, "nobody")
    assert code == 2 and "no paper 'nobody'" in err
    folder = home / "checkout"
    (folder / "data/papers/dice/measured").mkdir(parents=True)
    table = folder / "data/papers/dice/measured/own.parquet"
    table.write_text("rows")
    monkeypatch.setenv("MEMNB_HOME", str(folder))
    monkeypatch.setattr(cli, "checkout", lambda: folder)
    try:
        git(folder, "init", "-q")
    except OSError:
        pytest.skip("no git")
    assert not cli._only_shipped_rows()
    git(folder, "add", "data"), git(folder, "commit", "-qm", "numbers")
    assert said(capsys) == (0, told, "")
    table.write_text("others")
    assert not cli._only_shipped_rows()
    git(folder, "checkout", "data")
    (folder / ".gitignore").write_text("new.parquet\n")
    (table.parent / "new.parquet").write_text("rows")
    assert not cli._only_shipped_rows()


def test_numbers_and_verdicts_that_turned(house, capsys):
    "The gains of a pair of models of `icl` are a third of those that ship: a claim that holds is too small to matter"
    folder = house / "data/papers/icl/measured"
    (file,) = folder.glob("night.planted_file+swapped.completion.*.parquet")
    n = scaled(file, "change", 1 / 3)
    code, out, err = said(capsys, "icl")
    first, second, *turned, last = out.splitlines()
    assert (
        code == 0
        and err == ""
        and first.startswith("icl night seed 0: ")
        and f"{n} changed of " in first
    )
    assert second.startswith(f"  change by up to 67 % ({n})") and re.search(
        r", [1-9]\d* verdicts? turned$", last
    )
    assert any(t.startswith("claim ") and " -> " in t for t in turned), out
    known = {c.id for c in claims.read("icl")}
    assert {t.split()[1] for t in turned if t.startswith("claim ")} <= known


def test_times_say_nothing_of_a_claim(house, capsys, monkeypatch):
    monkeypatch.setattr(
        difference, "verdicts", lambda *a: pytest.fail("claims were judged")
    )
    (file,) = (house / "data/papers/icl/measured").glob(
        "night-model=planted_file.planted*.parquet"
    )
    n = scaled(file, "seconds", 1.5)
    code, out, err = said(capsys, "icl")
    assert (
        code == 0
        and n
        and f"{n} changed of " in out
        and out.splitlines()[-1].endswith(", no verdicts turned")
    )


def test_rows_that_the_claims_do_not_read(house, capsys):
    files = [*(house / "data/papers/capacity/measured").glob("*.parquet")]
    d = pd.concat([results._read(f) for f in files])
    for f in files:
        f.unlink()
    results._write(d[d.part == "kept"].head(1), files[0])
    code, out, err = said(capsys, "capacity")
    assert code == 0 and " gone" in out and "Traceback" not in err
    assert "claims of capacity not compared" in err


def test_tables_are_compared_byte_by_byte(tmp_path):
    "Of two folders the later one counts, as where a run wrote beside what ships"
    before, ships, written = (tmp_path / name for name in "abc")
    for folder in before, ships, written:
        folder.mkdir()
    for folder in before, ships:
        (folder / "x.parquet").write_bytes(b"rows")
    assert difference._same_files(before, ships, written)
    (written / "x.parquet").write_bytes(b"sowr")
    assert not difference._same_files(before, ships, written)
    (written / "x.parquet").write_bytes(b"rows")
    assert difference._same_files(before, ships, written)
    (written / "y.parquet").write_bytes(b"rows")
    assert not difference._same_files(before, ships, written)


@pytest.mark.parametrize("frozen_before", [False, True])
def test_collections_are_short_for_a_board_alone(frozen_before):
    "Objects are frozen within the block, and afterwards only if they were before"
    if frozen_before:
        gc.freeze()
    else:
        gc.unfreeze()
    try:
        with difference._short_collections("icl"):
            assert gc.get_freeze_count() > 100_000
        assert (gc.get_freeze_count() > 0) == frozen_before
    finally:
        gc.freeze()


def test_runs_that_are_new_or_gone(house, capsys):
    folder = house / "data/papers"
    parts = [results.measured("icl", confirm=new) for new in (False, True)]
    gone = len(pd.concat(parts)[["profile", "seed"]].drop_duplicates())
    shutil.rmtree(folder / "icl")
    row = dict(part="x", quantity="rate", value=1.0, model="me")
    results.record("tabular", pd.DataFrame([row]), "laptop", 7)
    code, out, err = said(capsys)
    assert (
        "icl laptop seed 0: no longer there, " in out
        and "tabular laptop seed 7: a run that does not ship, 1 rows" in out
    )
    assert out.count("icl ") == out.count(": no longer there, ") == gone
    assert (
        out.splitlines()[-1].startswith(f"{gone + 1} of ")
        and "no verdicts turned" in out
    )


def test_an_installed_package_compares_with_its_copies(
    house, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(difference, "checkout", lambda: None)
    own = house / "own"
    monkeypatch.setenv("MEMNB_HOME", str(own))
    assert said(capsys)[1].startswith("nothing differs")
    name = "tabular/measured/laptop.smollm2.chat.s0.parquet"
    (own / "data/papers/tabular/measured").mkdir(parents=True)
    shutil.copy(house / "data/papers" / name, own / "data/papers" / name)
    scaled(own / "data/papers" / name, "rate", 0.5)
    assert "tabular laptop seed 0: " in said(capsys, "tabular")[1]


@pytest.mark.parametrize("paper", papers.notebooks())
def test_the_board_that_ships_is_that_of_the_rows_that_ship(paper, top):
    "Else `memnb diff --write`, and look at what `git diff` shows"
    file = top / "data/papers" / paper / "board.csv"
    assert difference.board_text(paper) == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("paper", papers.notebooks())
def test_the_readings_that_ship_are_those_of_the_rows_that_ship(paper, top):
    "Else `memnb diff --write`; they say of each claim on the board whether its readings differ"
    folder = top / "data/papers" / paper
    text = (folder / "readings.csv").read_text(encoding="utf-8")
    assert difference.readings_text(paper) == text
    lines = pd.read_csv(folder / "readings.csv", keep_default_na=False)
    board = pd.read_csv(folder / "board.csv", keep_default_na=False)
    counts = board.readings.str.extract(r"(\d+) of (\d+)")
    differing = board[counts[0].ne(counts[1]) & counts[0].notna()]
    assert {*zip(lines.id, lines.model)} == {
        *zip(differing.id, differing.model)
    }


def test_boards_are_written_by_the_command(house, capsys):
    code, out, err = said(capsys, "tabular", "--write")
    assert (code, err) == (0, "") and out.splitlines()[-1].endswith(
        "data/papers/tabular/board.csv"
    )
    d = pd.read_csv(
        house / "data/papers/tabular/board.csv", keep_default_na=False
    )
    assert [*d] == claims.SHIPPED
    assert d.equals(d.sort_values(["id", "model"]))


def test_mistakes_are_one_line(house, capsys):
    assert said(capsys, "tabluar")[::2] == (
        2,
        "memnb: no paper 'tabluar'; did you mean 'tabular'? "
        f"Known: {', '.join(papers.notebooks())}\n",
    )
    shutil.rmtree(house / ".git")
    code, out, err = said(capsys)
    assert (
        code == 2
        and "this folder has no commit" in err
        and err.count("\n") == 1
    )
