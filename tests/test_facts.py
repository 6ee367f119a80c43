"Digits in prose are those of the rows."

import pytest

from memnb.run import facts
from memnb.run.cli import main


def test_prose_says_what_the_rows_say(top):
    wrong = facts.check(facts.prose(top))
    assert not wrong, "after a look at each sentence, `memnb facts --write`:\n" + "\n".join(
        f"{file.name}: {s}" for file, said in wrong.items() for s in said
    )


@pytest.fixture
def toy(monkeypatch):
    known = dict(low=2.711, n=1234, falls=-0.5, none=True, more=False, who="iris")
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
    _, (said,) = facts.checked("First. It holds 2.5<!--toy.low--> bits a weight. Last.")
    assert said == "It holds 2.5<!--toy.low--> bits a weight [now 2.7]"


def test_a_fact_that_nobody_knows_is_an_error(toy):
    with pytest.raises(ValueError, match="lov.*did you mean 'low'"):
        facts.checked("2.7<!--toy.lov-->")


def test_command_writes_and_tells(toy, tmp_path, monkeypatch, capsys):
    file = tmp_path / "README.md"
    file.write_text("It holds 2.5<!--toy.low--> bits.")
    monkeypatch.setattr(facts, "prose", lambda top: [file])
    assert main(["facts"]) == 1 and "2.5<!--" in file.read_text()
    assert main(["facts", "--write"]) == 0 and "2.7<!--toy.low-->" in file.read_text()
    assert "README.md: It holds" in capsys.readouterr().out
    assert main(["facts"]) == 0
