#!/usr/bin/env python3
"""Write the tables of docs/registered.md from the boards that ship and from the rows of confirmatory runs.

A table stands between the lines `<!-- NAME -->` and `<!-- end NAME -->`; what stands outside of them is written by hand.
"""

import sys
from functools import cache
from pathlib import Path

import pandas as pd

from memnb import claims, registered
from memnb.core import paper_file

TOP = Path(__file__).resolve().parents[1]
GUIDE = TOP / "docs/registered.md"
PAPERS = "tabular icl iclinf contextual capacity compare".split()
UNDECIDED = ("", claims.OPEN, claims.NOT_ASKED)


def decided(paper: str) -> pd.DataFrame:
    """Lines of a board that ships which are decided, each with `about`

    Args:
        paper: its word
    """
    board = pd.read_csv(paper_file(paper, "board.csv"), keep_default_na=False)
    about = {claim.id: claim.about for claim in claims.read(paper)}
    board["about"] = board.id.map(about)
    return board[~board.verdict.isin(UNDECIDED)]


@cache
def comparison() -> pd.DataFrame:
    "All papers' `registered.compared`, which takes some seconds"
    tables = [registered.compared(p).assign(paper=p) for p in PAPERS]
    return pd.concat(tables, ignore_index=True)


def _table(head: list, rows: list) -> str:
    "A table of Markdown"
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, cells))} |" for cells in lines)


def counts() -> dict[str, tuple]:
    """Decided verdicts of each paper, and of all.

    Word -> all, about printed numbers, confirmed, not confirmed, without new rows.
    """
    of_paper = {}
    for paper in PAPERS:
        lines = decided(paper)
        printed = lines.about == claims.PRINTED
        words = lines.confirmed[~printed]
        of_paper[paper] = (
            len(lines),
            int(printed.sum()),
            int((words == registered.CONFIRMED).sum()),
            int((words == registered.NOT_CONFIRMED).sum()),
            int((words == "").sum()),
        )
    total = [sum(column) for column in zip(*of_paper.values())]
    return of_paper | {"all": tuple(total)}


def counts_table() -> str:
    "How many verdicts of each paper were measured anew"
    head = "paper, decided, about printed numbers, confirmed, not confirmed, no new rows"
    rows = [[paper, *numbers] for paper, numbers in counts().items()]
    return _table(head.split(", "), rows)


def _asker(line: tuple) -> str:
    "Whom the first rows are about and, if another, whom the new ones"
    if line.asked == line.model:
        return line.model or "all"
    return f"{line.model}; new: {line.asked}"


def _lines_table(lines: pd.DataFrame) -> str:
    "Lines with both estimates and both verdicts"
    head = (
        "claim, about, first estimate, first verdict, new estimate, new verdict"
    )
    rows = []
    for line in lines.itertuples():
        claim = f"`{line.paper}`, `{line.id}`"
        first = [line.first or "none", line.first_word or "no line"]
        word = line.new_word
        if line.confirmed == registered.NOT_CONFIRMED:
            word += ", **not confirmed**"
        rows.append([claim, _asker(line), *first, line.new, word])
    return _table(head.split(", "), rows)


def open_before() -> pd.DataFrame:
    "Lines that new rows decide, and the first did not"
    lines = comparison()
    return lines[lines.first_word.isin(UNDECIDED)]


def with_verdict() -> pd.DataFrame:
    "Lines that the first rows had decided"
    lines = comparison()
    return lines[~lines.first_word.isin(UNDECIDED)]


TABLES = {
    "counts": counts_table,
    "open before": lambda: _lines_table(open_before()),
    "all": lambda: _lines_table(with_verdict()),
}


def with_tables(text: str) -> str:
    """The guide with its tables as they should be

    Raises ValueError where a place is missing.

    Args:
        text: of the guide
    """
    for name, make in TABLES.items():
        begin = f"<!-- {name} -->\n"
        end = f"<!-- end {name} -->"
        if begin not in text or end not in text:
            raise ValueError(f"{GUIDE.name} has no place for {name!r}")
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}\n{make()}\n\n{end}{after}"
    return text


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit("usage: python tools/confirmed.py")
    GUIDE.write_text(
        with_tables(GUIDE.read_text(encoding="utf-8")), encoding="utf-8"
    )
