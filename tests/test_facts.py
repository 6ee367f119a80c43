"Digits in prose are those of the rows."

import json
import re

import pandas as pd
import pytest

from memnb.run import facts
from memnb.run.cli import main


def test_prose_says_what_the_rows_say(top):
    wrong = facts.check(facts.prose(top))
    assert not wrong, (
        "after a look at each sentence, `memnb facts --write`:\n"
        + "\n".join(
            f"{file.name}: {s}" for file, said in wrong.items() for s in said
        )
    )


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


@pytest.mark.parametrize("file", ["README.md", "docs/registered.md"])
def test_the_count_of_confirmed_verdicts_is_that_of_the_boards(top, file):
    boards = [
        pd.read_csv(board).confirmed.dropna()
        for board in sorted(top.glob("data/papers/*/board.csv"))
    ]
    words = pd.concat(boards)
    assert len(boards) == 6 and set(words) <= {"confirmed", "not confirmed"}
    confirmed = (words == "confirmed").sum()
    told = re.findall(r"(\d+) of (\d+) verdicts", (top / file).read_text())
    assert told == [(str(confirmed), str(len(words)))]
