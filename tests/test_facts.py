"Digits in prose are those of the rows."

import json
import re
import sys
from pathlib import Path

import pandas as pd
import pytest

from memnb.run import facts
from memnb.run.cli import main

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))
import confirmed as confirmed_tables  # noqa: E402

CLAIMS = "data/papers/*/claims.yaml"


def test_prose_says_what_the_rows_say(top):
    wrong = facts.check(facts.prose(top))
    assert not wrong, (
        "after a look at each sentence, `memnb facts --write`:\n"
        + "\n".join(
            f"{file.name}: {s}" for file, said in wrong.items() for s in said
        )
    )


def test_no_tag_is_passed_over(top):
    "A tag behind a sign that the pattern does not know would never be held against the rows"
    papers = "|".join(file.parent.name for file in top.glob(CLAIMS))
    any_tag = re.compile(rf"<!--(?:{papers})\.[\w-]+-->")
    for file in facts.prose(top):
        text = file.read_text(encoding="utf-8")
        read = {match.end() for match in facts.TAG.finditer(text)}
        passed_over = [
            text[tag.start() - 40 : tag.end()]
            for tag in any_tag.finditer(text)
            if tag.end() not in read
        ]
        assert not passed_over, file.name


@pytest.fixture
def toy(monkeypatch):
    known = dict(
        low=2.711, n=1234, falls=-0.5, none=True, more=False, who="iris"
    )
    monkeypatch.setattr(facts, "facts", lambda word: known)


@pytest.mark.parametrize(
    "text, right",
    [
        ("at least 2.7<!--toy.low--> bits", "2.7"),
        ("at least 2.5<!--toy.low--> bits", "2.7"),
        ("2.65<!--toy.low-->", "2.71"),
        ("1,000<!--toy.n--> texts", "1,234"),
        ("by −0.4<!--toy.falls-->", "−0.5"),
        ("+0.4<!--toy.low-->", "+2.7"),
        ("90 %<!--toy.n--> of them", "1234 %"),
        ("none<!--toy.none--> of them", "none"),
        ("clearly more<!--toy.more--> come", "NOT-TRUE-more"),
        ("of wine<!--toy.who-->", "iris"),
        ("is **more**<!--toy.more-->", "NOT-TRUE-more**"),
        ("holds in $L_2$<!--toy.none-->", "$L_2$"),
        ("(up to 2.5 %)<!--toy.low-->", "2.7 %)"),
    ],
)
def test_a_digit_is_put_right_as_it_is_printed(toy, text, right):
    said, wrong = facts.checked(text)
    assert f"{right}<!--toy." in said
    assert bool(wrong) == (said != text)


def test_sentences_touched_are_told(toy):
    _, (said,) = facts.checked(
        "First. It holds 2.5<!--toy.low--> bits a weight. Last."
    )
    assert said == "It holds 2.5<!--toy.low--> bits a weight [now 2.7]"


def test_a_fact_that_nobody_knows_is_an_error(toy):
    with pytest.raises(ValueError, match="lov.*did you mean 'low'"):
        facts.checked("2.7<!--toy.lov-->")


def test_command_writes_and_tells(toy, tmp_path, monkeypatch, capsys):
    file = tmp_path / "README.md"
    file.write_text("It holds 2.5<!--toy.low--> bits.")
    monkeypatch.setattr(facts, "prose", lambda top: [file])
    assert main(["facts"]) == 1 and "2.5<!--" in file.read_text()
    assert (
        main(["facts", "--write"]) == 0
        and "2.7<!--toy.low-->" in file.read_text()
    )
    assert "README.md: It holds" in capsys.readouterr().out
    assert main(["facts"]) == 0


@pytest.mark.parametrize(
    "line",
    [
        "__import__('os').getpid()",
        "np.os.getpid()",
        "rows.to_csv('x')",
        "rows.query('@pd.io.common.os.getpid() > 0')",
        "rows.eval('n + 1')",
        "rows.groupby('model').agg('sum')",
        "rows.__class__.__mro__",
        "(lambda: 1)()",
        "[x for x in rows]",
        "f'{rows}'",
        "10 ** 10 ** 10",
        "open('x')",
        "rows.n.apply(print)",
        "x := 1",
    ],
)
def test_a_fact_selects_and_counts_and_is_no_program(
    line, tmp_path, monkeypatch
):
    "A folder of somebody's paper runs no code; also where it has a column of the name of a method"
    from memnb import results

    monkeypatch.chdir(tmp_path)
    table = pd.DataFrame(
        dict(
            model=["a", "b"],
            n=[1, 2],
            value=[0.5, 2.0],
            what="to_csv",
            to_csv=1,
        )
    )
    for name in ("measured", "reported"):
        monkeypatch.setattr(results, name, lambda word: table)
    monkeypatch.setattr(results, "runs", lambda rows: rows)
    monkeypatch.setattr(facts, "paper_file", lambda word, name: tmp_path / name)
    (tmp_path / "board.csv").write_text("id,model,verdict\n")
    (tmp_path / "facts.yaml").write_text(
        json.dumps(dict(_two="rows[rows.n > 1]", fact="_two.value.sum()"))
    )
    facts.facts.cache_clear()
    assert facts.facts("dice")["fact"] == 2.0
    (tmp_path / "facts.yaml").write_text(json.dumps(dict(fact=line)))
    facts.facts.cache_clear()
    with pytest.raises(ValueError, match="fact dice.fact cannot be computed"):
        facts.facts("dice")
    assert {f.name for f in tmp_path.iterdir()} == {"board.csv", "facts.yaml"}
    facts.facts.cache_clear()


GUIDE = "docs/registered.md"


@pytest.mark.parametrize("file", ["README.md", GUIDE])
def test_the_count_of_confirmed_verdicts_is_that_of_the_boards(top, file):
    papers = sorted(top.glob("data/papers/*/board.csv"))
    boards = [pd.read_csv(board, keep_default_na=False) for board in papers]
    words = pd.concat(boards).confirmed
    assert len(boards) == 6
    assert {*words} <= {"confirmed", "not confirmed", ""}
    confirmed = (words == "confirmed").sum()
    measured = (words != "").sum()
    decided, printed, *_ = confirmed_tables.counts()["all"]
    told = re.findall(
        r"Of (\d+) verdicts about models (\d+) were measured anew\W+(?:and )?(\d+) are",
        (top / file).read_text(),
    )
    numbers = decided - printed, measured, confirmed
    assert told == [tuple(map(str, numbers))]


def test_tables_of_new_verdicts_are_those_of_the_rows(top):
    text = (top / GUIDE).read_text(encoding="utf-8")
    assert confirmed_tables.with_tables(text) == text, (
        "python tools/confirmed.py"
    )
    # by hand: how many, and how many without new rows in each paper
    before = confirmed_tables.open_before()
    words = ["holds", "does not hold"]
    numbers = [len(before), *((before.new_word == w).sum() for w in words)]
    assert numbers == [10, 6, 4]
    assert "Ten lines" in text and "Six hold and four do not" in text
    bare = dict(re.findall(r"^- `(\w+)`, (\d+): ", text, re.M))
    counts = confirmed_tables.counts()
    without = {p: str(n[-1]) for p, n in counts.items() if n[-1]}
    assert bare | {"all": "40"} == without
    assert re.findall(r"and (\d+) without new rows", text) == ["40"]


def test_the_table_of_what_is_open_on_new_data_is_that_of_the_rows(top):
    "Its reasons are written by hand, its lines and numbers are not free"
    text = (top / GUIDE).read_text(encoding="utf-8")
    line = re.compile(
        r"^\| `(\w+)`, `([\w-]+)`.*?\| (.*?), (holds|does not hold) \| (.*?) \|",
        re.M,
    )
    lines = confirmed_tables.with_verdict()
    is_open = (lines.confirmed == "not confirmed") & (lines.new_word == "open")
    wanted = {
        (row.paper, row.id, row.first, row.first_word, row.new)
        for row in lines[is_open].itertuples()
    }
    # the guide has no zero before a point
    shorter = {
        (*names, re.sub(r"\b0\.", ".", first), word, re.sub(r"\b0\.", ".", new))
        for *names, first, word, new in wanted
    }
    told = re.findall(line, text)
    assert len(told) == 6 and {*told} == shorter


@pytest.mark.parametrize(
    "paper, claim, hits, n, bound, fresh, printed",
    [
        ("capacity", "extract-all", 96, 96, 0.95, 96, "has a power of .09"),
        ("tabular", "copies", 0, 136, 0.5, 20, "has .62"),
    ],
)
def test_powers_that_were_computed_afterwards_are_exact(
    top, paper, claim, hits, n, bound, fresh, printed
):
    "Of a proportion whose distance from its bound is half of the one that was seen"
    from scipy.stats import binom

    from memnb import claims
    from memnb.stats import binom_ci

    board = pd.read_csv(top / f"data/papers/{paper}/board.csv")
    line = board[board.id == claim].iloc[0]
    assert (round(line.value * line.n), line.n) == (hits, n)
    assert {line.no, line.yes} == {bound}
    sizes = claims.rules(paper).confirm[line.model]
    assert sizes[claim] == fresh
    share = (hits / n + bound) / 2
    above = hits / n > bound
    chance = 0
    for found in range(fresh + 1):
        low, high = binom_ci(found, fresh)
        if low > bound if above else high < bound:
            chance += binom.pmf(found, fresh, share)
    text = (top / GUIDE).read_text(encoding="utf-8")
    told = re.search(rf"`{claim}` of `{paper}` ({re.escape(printed)})", text)
    assert told and f"{chance:.2f}".lstrip("0") == printed.split()[-1]
