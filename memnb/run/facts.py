"""Numbers in prose. A digit is written by hand and carries a tag that no reader sees, as in `0.94<!--capacity.kept-->`;
`data/papers/<word>/facts.yaml` says by a line of pandas how the number comes out of the stored rows. A word that says a
direction is tagged, too: its fact is true or false."""

import re
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

from .. import results
from ..core import did_you_mean, paper_file, replacing
from ..papers import notebooks, paper

TAG = re.compile(r"([+−-]?[\w.,]*\w)((?:\s?%)?)<!--(\w+)\.([\w-]+)-->")


@cache
def facts(word: str) -> dict:
    """The facts of a paper's prose, name -> number, text, or True or False: lines of pandas in `facts.yaml`, else
    `PAPER.facts` of its package. The lines see `measured` (all rows), `rows` (of each model the largest run), `printed`
    (what the paper reports), `board` (verdicts), and the facts above them. ValueError names one that fails."""
    file, found = paper_file(word, "facts.yaml"), {}
    if not file.exists():
        own = paper(word) if word in notebooks() else None
        return own.facts(results.measured(word)) if own and own.facts else {}
    known = dict(np=np, pd=pd, measured=results.measured(word), printed=results.reported(word))
    known |= dict(rows=results.runs(known["measured"]))
    known |= dict(board=pd.read_csv(paper_file(word, "board.csv"), keep_default_na=False))
    for name, line in (yaml.safe_load(file.read_text(encoding="utf-8")) or {}).items():
        try:
            found[name] = eval(line, known | found)
        except Exception as e:
            raise ValueError(f"fact {word}.{name} cannot be computed: {e!r}") from e
    return found


def stands(printed, word, name):
    "What should stand where `printed` stands: the same, where it is true to the digits that it has"
    known = facts(word)
    if name not in known:
        raise ValueError(f"no fact {name!r} in facts.yaml of {word}{did_you_mean(name, known)}")
    value = known[name]
    if isinstance(value, (bool, np.bool_)):
        return printed if value else f"NOT-TRUE-{printed}"
    if isinstance(value, str):
        return value
    sign, comma = "+" * printed.startswith("+"), "," * ("," in printed)
    text = f"{value:{sign}{comma}.{len(printed.partition('.')[2])}f}"
    return text.replace("-", "−") if "−" in printed else text


def checked(text: str) -> tuple:
    "Hold tagged digits against the rows: (text with true digits, sentences in which one was wrong)"
    wrong = []

    def put(m):
        printed, percent, word, name = m.groups()
        right = stands(printed, word, name)
        if right != printed:
            before = re.split(r'\n|\. |\| |"', text[: m.start()])[-1]
            end = m.end() + re.search(r"[.|\n]\s|\\n|$", text[m.end() :]).start()
            wrong.append(f"{(before + text[m.start() : end]).strip()} [now {right}]")
        return f"{right}{percent}<!--{word}.{name}-->"

    return TAG.sub(put, text), wrong


def prose(top: Path) -> list:
    "Files of a checkout in which tagged numbers may stand: README, pages, guides"
    return [top / "README.md", *sorted([*top.glob("nbs/*.ipynb"), *top.glob("docs/*.md")])]


def check(files: list, write: bool = False) -> dict:
    "File -> its sentences whose digits differ from the rows; with `write` the digits are put right"
    found = {}
    for file in files:
        right, wrong = checked(file.read_text(encoding="utf-8"))
        if wrong:
            found[file] = wrong
        if wrong and write:
            with replacing(file) as part:
                part.write_text(right, encoding="utf-8")
    return found
