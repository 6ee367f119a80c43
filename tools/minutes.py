"""How long the sections of a page take to read, and the table of docs/teaching.md that says so.

python tools/minutes.py     writes the table anew
"""

import re
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import nbformat
from nbformat import NotebookNode

from memnb.core import replacing
from memnb.papers import notebooks

GUIDE = Path(__file__).resolve().parents[1] / "docs/teaching.md"
BEGIN = "<!-- minutes -->"
END = "<!-- end minutes -->"
# slow reading, as of a text that one wants to explain to others
WORDS = 200
LINES = 20
# the first part of the session
QUARTER = 15
# what is folded, tags of numbers, formulas, addresses
NOT_READ = re.compile(
    r"<details>.*?</details>|<!--.*?-->|\$[^$]*\$|\(\S+\)", re.S
)


class Section(NamedTuple):
    "A section of a page"

    number: str  # empty for what stands before the first
    minutes: int  # at least one


def minutes_of(cell: NotebookNode) -> float:
    "Minutes for the words of a cell, or for its code and figures; a folded cell takes none"
    if cell.cell_type == "markdown":
        return len(NOT_READ.sub("", cell.source).split()) / WORDS
    figures = sum("image/png" in o.get("data", {}) for o in cell.outputs)
    if cell.metadata.get("jupyter", {}).get("source_hidden"):
        return figures
    lines = [line for line in cell.source.splitlines() if line.strip()]
    return len(lines) / LINES + figures


def sections(word: str) -> list[Section]:
    "Sections of the page of a paper but for the last, which has exercises"
    page = nbformat.read(notebooks()[word], as_version=4)
    numbers = [""]
    minutes = [0.0]
    for cell in page.cells:
        if begun := re.match(r"## (\d+) ", cell.source):
            numbers.append(begun[1])
            minutes.append(0.0)
        minutes[-1] += minutes_of(cell)
    both = zip(numbers[:-1], minutes[:-1], strict=True)
    return [Section(number, max(1, round(m))) for number, m in both]


def read_in(parts: list[Section], limit: int) -> str:
    "The number of the last section that is read in so many minutes"
    last = ""
    for part, so_far in zip(parts, accumulate(p.minutes for p in parts)):
        if so_far <= limit:
            last = part.number
    return last


def table() -> str:
    "Minutes of all pages, in Markdown"
    lines = [
        f"| paper | first screen | sections 1, 2, 3, ... | together | in {QUARTER} minutes |",
        "|---|---:|---|---:|---|",
    ]
    for word in notebooks():
        parts = sections(word)
        first, *others = parts
        each = ", ".join(str(section.minutes) for section in others)
        total = first.minutes + sum(section.minutes for section in others)
        until = f"to section {read_in(parts, QUARTER)}"
        lines.append(
            f"| {word} | {first.minutes} | {each} | {total} | {until} |"
        )
    return "\n".join(lines)


def with_table(text: str) -> str:
    "The guide with the table of now"
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


if __name__ == "__main__":
    guide = with_table(GUIDE.read_text(encoding="utf-8"))
    with replacing(GUIDE) as part:
        part.write_text(guide, encoding="utf-8")
