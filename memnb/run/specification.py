"""Specification curves for the report: a claim under every reading, where its verdict depends on the reading."""

from itertools import groupby
from math import inf, isfinite
from typing import NamedTuple

import pandas as pd

from ..claims import rules
from ..core import paper_file

# of a drawing, in points; marks stay off its edges
WIDTH = 200
EDGE = 8
BOARD = "as on the board"


class Line(NamedTuple):
    "A claim under one reading"

    reading: str
    verdict: str
    estimate: str  # with its interval, in words
    at: float  # of the estimate, as of the others: points from the left
    low: float
    high: float


class Curve(NamedTuple):
    "A claim about a model under all readings, the least estimate first"

    says: str
    model: str  # '' where the claim is about none
    bounds: list[float]  # points from the left
    lines: list[Line]
    agree: int  # lines with the verdict of the board


def _words(line: tuple) -> str:
    "Estimate and interval of a reading"
    words = f"{line.value:g}"
    if line.low != line.high:
        high = f"to {line.high:g}" if line.high < inf else "or more"
        words += f" ({line.low:g} {high})"
    return words.replace("-", "\N{MINUS SIGN}")


def _scale(lines: list):
    "Function from a number to points, for the estimates, intervals and bounds of some readings"
    numbers = [
        number
        for line in lines
        for number in (line.value, line.low, line.high, line.no, line.yes)
        if isfinite(number)
    ]
    least = min(numbers)
    span = max(numbers) - least or 1

    def points(number: float) -> float:
        share = (number - least) / span
        # an interval without an end goes up to the edge
        return round(EDGE + (WIDTH - 2 * EDGE) * min(max(share, 0), 1), 1)

    return points


def _curve(says: str, lines: list) -> Curve:
    "The curve of a claim from its lines of readings.csv, of which that of the board is the first"
    first = lines[0]
    points = _scale(lines)
    drawn = [
        Line(
            f"{line.reading}: {line.choice}" if line.reading else BOARD,
            line.verdict,
            _words(line),
            *map(points, (line.value, line.low, line.high)),
        )
        for line in sorted(lines, key=lambda line: line.value)
    ]
    return Curve(
        says,
        first.model,
        sorted({points(first.no), points(first.yes)}),
        drawn,
        sum(line.verdict == first.verdict for line in lines),
    )


def curves(paper: str) -> list[Curve]:
    """Specification curves of the claims of a paper whose readings differ, by the rows that ship; none without readings.csv

    Args:
        paper: its word
    """
    file = paper_file(paper, "readings.csv")
    if not file.exists():
        return []
    table = pd.read_csv(
        file, keep_default_na=False, dtype=dict(model=str, choice=str)
    )
    says = {claim.id: claim.says for claim in rules(paper).claims}
    return [
        _curve(says[claim], [*lines])
        for (claim, _), lines in groupby(
            table.itertuples(), key=lambda line: (line.id, line.model)
        )
    ]


def choices(paper: str) -> dict[str, str]:
    """What the readings of a paper vary, in words, by their names

    Args:
        paper: its word
    """
    return {name: one.says for name, one in rules(paper).readings.items()}
