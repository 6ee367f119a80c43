"""Numbers in prose. A digit is written by hand and carries a tag that no reader sees, as in `0.94<!--capacity.kept-->`;
`data/papers/<word>/facts.yaml` says by one line of pandas how the number comes out of the stored rows."""

import re
from functools import cache

import numpy as np
import pandas as pd
import yaml

from .. import claims, results
from ..core import did_you_mean, paper_file, replacing

TAG = re.compile(r"([+−-]?[\w.,]*\w)(\s?%)?<!--(\w+)\.([\w-]+)-->")


@cache
def facts(word):
    """Name -> value of each fact of a paper. An expression sees `rows` (the runs that figures read), `measured` (all
    rows), `printed` (what the paper reports) and `board` (verdicts, indexed by claim)."""
    file = paper_file(word, "facts.yaml")
    if not file.exists():
        return {}
    rows, printed = results.runs(word), results.reported(word)
    known = dict(
        np=np,
        pd=pd,
        rows=rows,
        measured=results.measured(word),
        printed=printed,
        board=claims.board(word, rows, printed).set_index("id"),
        select=results.select,
    )
    found = {}
    for name, line in (yaml.safe_load(file.read_text(encoding="utf-8")) or {}).items():
        try:
            found[name] = eval(str(line), known)
        except Exception as e:
            raise ValueError(f"fact {word}.{name} cannot be computed: {e!r}") from e
    return found


def stands(printed, word, name):
    "What should stand where `printed` stands: the same text where it is true, to the digits that it has"
    known = facts(word)
    if name not in known:
        raise ValueError(f"no fact {word}.{name} in facts.yaml{did_you_mean(name, known)}")
    value = known[name]
    if isinstance(value, (bool, np.bool_)):  # a word: an assertion holds or does not
        return printed if value else f"(not so: {printed})"
    if isinstance(value, str):
        return value
    if not np.isfinite(value):
        return "(no number)"
    sign = "−" if printed.startswith("−") or (printed[:1] != "-" and value < 0) else "-"
    digits = len(printed.partition(".")[2])
    text = f"{value:{'+' * printed.startswith('+')}{',' * (',' in printed)}.{digits}f}"
    return text.replace("-", sign)


def checked(text):
    "(text with true digits, sentences in which one was wrong)"
    wrong = []

    def put(m):
        printed, percent, word, name = m.groups()
        right = stands(printed, word, name)
        if right != printed:
            begin = max(text.rfind(c, 0, m.start()) for c in ("\n", ". ", "| ", '"')) + 1
            end = re.search(r"[.|\n]\s|\\n|$", text[m.end() :]).start() + m.end()
            wrong.append(f"{text[begin:end].strip()}  [{word}.{name}: {right}]")
        return f"{right}{percent or ''}<!--{word}.{name}-->"

    return TAG.sub(put, text), wrong


def check(files, write=False):
    "File -> sentences of it whose digits differ from the rows; with `write` the digits are put right"
    found = {}
    for file in files:
        text = file.read_text(encoding="utf-8")
        right, wrong = checked(text)
        if wrong:
            found[file] = wrong
            if write:
                with replacing(file) as part:
                    part.write_text(right, encoding="utf-8")
    return found
