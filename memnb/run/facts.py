"""Numbers in prose. A digit is written by hand and carries a tag that no reader sees, as in `0.94<!--capacity.kept-->`;
`data/papers/<word>/facts.yaml` says by a line of pandas how the number comes out of the stored rows. A word that says a
direction is tagged, too: its fact is true or false. Names that begin with `new-` are numbers of rows that were measured
after registration, see `registered.new_facts`."""

import ast
import re
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

from .. import registered, results
from ..core import did_you_mean, paper_file, replacing
from ..papers import notebooks, paper, syntax_tree

# a number or a word, marks that may stand behind it, and its fact
TAG = re.compile(r"([+−-]?[\w.,]*\w)((?:\s?%)?[*)$]*)<!--(\w+)\.([\w-]+)-->")

# What a line of `facts.yaml` may be made of: it selects and counts, and somebody else's folder of a paper is no program.
_SYNTAX = (
    ast.Expression,
    ast.Constant,
    ast.Name,
    ast.Attribute,
    ast.Subscript,
    ast.Slice,
    ast.Call,
    ast.keyword,
    ast.Compare,
    ast.cmpop,
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.operator,
    ast.unaryop,
    ast.boolop,
    ast.expr_context,
    ast.Tuple,
    ast.List,
    ast.Set,
    ast.GeneratorExp,
    ast.comprehension,
)
_FUNCTIONS = {
    f.__name__: f
    for f in (abs, all, any, float, int, len, max, min, round, set, sorted, sum)
}
# methods of tables and columns that compute from them alone: none takes code, a file or the name of a method
_METHODS = """abs all any astype between count corr cumsum diff drop_duplicates dropna endswith fillna first groupby head
    idxmax idxmin iloc index isin isna item last loc log log2 max mean median min nlargest notna nsmallest nunique pivot
    prod quantile rank reset_index round set_index shape size sort_index sort_values sqrt startswith std str sum tail
    tolist unique unstack values var xs""".split()


def _need_plain(line, columns):
    "ValueError where a line does more than select and count"
    for node in ast.walk(line):
        if not isinstance(node, _SYNTAX):
            raise ValueError(f"a fact has no {type(node).__name__}")
        if isinstance(node, ast.Attribute) and node.attr not in (
            *_METHODS,
            *columns,
        ):
            raise ValueError(
                f"a fact knows no '.{node.attr}'{did_you_mean(node.attr, _METHODS)}"
            )
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            raise ValueError(
                "a fact has no powers, which could take all memory"
            )


def _is_only_a_column(name):
    "Whether a name of a column names nothing else of a table, as 'to_csv' does"
    taken = any(hasattr(kind, name) for kind in (pd.DataFrame, pd.Series))
    return name.isidentifier() and not name.startswith("_") and not taken


def _value(line, tables, columns):
    "Value of a line of pandas, given the tables and the facts above it"
    tree = ast.Expression(syntax_tree(line.strip()).body[0].value)
    _need_plain(tree, columns)
    return eval(
        compile(tree, "facts.yaml", "eval"),
        {"__builtins__": _FUNCTIONS} | tables,
    )


@cache
def facts(word: str) -> dict:
    """The facts of a paper's prose, name -> number, text, or True or False: lines of pandas in `facts.yaml`, else
    `PAPER.facts` of its package. The lines see `measured` (all rows), `rows` (of each model the largest run), `printed`
    (what the paper reports), `board` (verdicts), and the facts above them; they can select and count, and nothing else.
    ValueError names one that fails."""
    file = paper_file(word, "facts.yaml")
    if not file.exists():
        of_paper = paper(word) if word in notebooks() else None
        if not of_paper or not of_paper.facts:
            return {}
        return of_paper.facts(results.measured(word))
    measured = results.measured(word)
    tables = dict(
        np=np,
        measured=measured,
        rows=results.runs(measured),
        printed=results.reported(word),
        board=pd.read_csv(paper_file(word, "board.csv"), keep_default_na=False),
    )
    columns = {
        str(name)
        for table in tables.values()
        if hasattr(table, "columns")
        for name in table
    }
    # columns that a pivoted table has by its values
    columns |= {str(name) for name in tables["printed"].what}
    columns = {name for name in columns if _is_only_a_column(name)}
    values = {}
    for name, line in (
        yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    ).items():
        try:
            values[name] = _value(str(line), tables | values, columns)
        except Exception as error:
            raise ValueError(
                f"fact {word}.{name} cannot be computed: {error!r}"
            ) from error
    return values


# boards on new rows take seconds, so they are made for tags that name them
new_facts = cache(registered.new_facts)


def stands(printed: str, word: str, name: str) -> str:
    "What should stand where `printed` stands: the same, where it is true to the digits that it has"
    of_new_rows = name.startswith("new-")
    values = new_facts(word) if of_new_rows else facts(word)
    if name not in values:
        raise ValueError(
            f"no fact {name!r} in facts.yaml of {word}{did_you_mean(name, values)}"
        )
    value = values[name]
    if isinstance(value, (bool, np.bool_)):
        return printed if value else f"NOT-TRUE-{printed}"
    if isinstance(value, str):
        return value
    sign = "+" if printed.startswith("+") else ""
    comma = "," if "," in printed else ""
    digits = len(printed.partition(".")[2])
    text = f"{value:{sign}{comma}.{digits}f}"
    return text.replace("-", "−") if "−" in printed else text


def checked(text: str) -> tuple:
    "Hold tagged digits against the rows: (text with true digits, sentences in which one was wrong)"
    wrong = []

    def put(match):
        printed, marks, word, name = match.groups()
        right = stands(printed, word, name)
        if right != printed:
            before = re.split(r'\n|\. |\| |"', text[: match.start()])[-1]
            end = (
                match.end()
                + re.search(r"[.|\n]\s|\\n|$", text[match.end() :]).start()
            )
            wrong.append(
                f"{(before + text[match.start() : end]).strip()} [now {right}]"
            )
        return f"{right}{marks}<!--{word}.{name}-->"

    return TAG.sub(put, text), wrong


def prose(top: Path) -> list:
    "Files of a checkout in which tagged numbers may stand: README, pages, appendices, guides, talks"
    places = (
        "nbs/*.ipynb",
        "nbs/extra/*.ipynb",
        "docs/*.md",
        "data/papers/*/talk.yaml",
    )
    return [
        top / "README.md",
        *sorted(file for place in places for file in top.glob(place)),
    ]


def check(files: list, write: bool = False) -> dict:
    "File -> its sentences whose digits differ from the rows; with `write` the digits are put right"
    errors = {}
    for file in files:
        right, wrong = checked(file.read_text(encoding="utf-8"))
        if wrong:
            errors[file] = wrong
        if wrong and write:
            with replacing(file) as part:
                part.write_text(right, encoding="utf-8")
    return errors
