"What stored outputs print below their pictures, and of exercises, is what the code of today says."

import ast
import functools
import json
import re

import pytest
from test_repo import NOTEBOOKS, TOP, files

from memnb.exercises import exercise

# of a template, the place of a value
VALUE = "\0"
SENTENCES = re.compile(r"(?<=[.:?!])\s+")
# shorter ones, as 'Left:' or the name of a table, are no sentences
SENTENCE = 13
ANY_VALUE = ".+?"
ASKED = re.compile(r'exercise\("(\w+)", (\d+)\)')


def templates(code):
    "Strings of a piece of code, with a mark where a value is put in"
    for node in ast.walk(code):
        if isinstance(node, ast.JoinedStr):
            parts = [
                part.value if isinstance(part, ast.Constant) else VALUE
                for part in node.values
            ]
            yield "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def cells(path):
    return json.loads(path.read_text(encoding="utf8"))["cells"]


def codes():
    "All code, that of the modules and that of notebooks"
    for path in files("memnb", "*.py"):
        yield path.read_text(encoding="utf8")
    for path in NOTEBOOKS:
        for cell in cells(path):
            if cell["cell_type"] == "code":
                yield "".join(cell["source"])


@functools.cache
def written():
    "Sentences of all strings as they stand, and patterns of those with values, or that go on in another string"
    plain = set()
    patterns = []
    for code in codes():
        try:
            parsed = ast.parse(code)
        except SyntaxError:
            # a magic of IPython
            continue
        for template in templates(parsed):
            for sentence in SENTENCES.split(template.strip()):
                open_end = "" if sentence[-1:] in {*".:?!"} else VALUE
                given = len(sentence.replace(VALUE, ""))
                if VALUE not in sentence:
                    plain.add(sentence)
                if VALUE in sentence + open_end and given > SENTENCE:
                    parts = (sentence + open_end).split(VALUE)
                    patterns.append(ANY_VALUE.join(map(re.escape, parts)))
    return plain, [re.compile(pattern, re.S) for pattern in {*patterns}]


def foreign_sentences(caption):
    "Sentences of a caption that no string of the code has"
    plain, patterns = written()
    return [
        sentence
        for sentence in SENTENCES.split(caption)
        if len(sentence) >= SENTENCE
        and sentence not in plain
        and not any(pattern.fullmatch(sentence) for pattern in patterns)
    ]


def stored(path):
    "Source of a cell and each Markdown it printed"
    for cell in cells(path):
        for output in cell.get("outputs", []):
            text = "".join(output.get("data", {}).get("text/markdown", ""))
            if text:
                yield "".join(cell["source"]), text.strip()


IDS = [p.relative_to(TOP / "nbs").with_suffix("").as_posix() for p in NOTEBOOKS]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=IDS)
def test_stored_captions_are_those_of_today(path):
    captions = [
        text.strip("*")
        for _, text in stored(path)
        if re.fullmatch(r"[*][^*].*[*]", text, re.S)
    ]
    old = [s for caption in captions for s in foreign_sentences(caption)]
    assert not old, f"run {path.name} again: {old}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=IDS)
def test_stored_exercises_are_those_of_today(path):
    for source, text in stored(path):
        for word, number in ASKED.findall(source):
            if text.startswith("**"):
                assert text == str(exercise(word, int(number))), path.name


def test_captions_of_figures_are_those_of_today():
    from PIL import Image

    old = {}
    for path in sorted((TOP / "figures").glob("*.png")):
        with Image.open(path) as image:
            caption = image.text["Description"]
        if foreign_sentences(caption):
            old[path.name] = foreign_sentences(caption)
    assert not old, f"draw them again: {old}"


def test_a_sentence_that_nothing_writes_is_found():
    good = "Dots: τ = 7.25, one threshold for all languages."
    assert foreign_sentences(f"{good} Left: a grey point is a galaxy.") == [
        "a grey point is a galaxy."
    ]
