"A class: pages with their functions emptied, and a Lab that leaves git clean"

import ast
import re
import subprocess
from types import SimpleNamespace

import nbformat
import pytest
from test_repo import TOP

from memnb.papers import notebooks
from memnb.run.cli import main
from memnb.run.start import _after_code, _folded, _for_a_class, emptied

# somebody's own page may have no hints
SIX = "tabular icl iclinf contextual capacity compare".split()
FUNCTION = """
def double(
    x,  # a number
):  # twice as much
    "Two times x"
    y = 2 * x
    return y


def half(x): return x / 2


def tree():
    "Decorated functions within"

    @cache
    def leaf():
        return 3 * x

    return leaf
"""


def test_functions_are_emptied():
    code = emptied(FUNCTION)
    ast.parse(code)
    assert (
        "Two times x" in code
        and "# twice as much" in code
        and "2 * x" not in code
    )
    assert (
        code.count("...  # your lines") == 2 and "x / 2" in code
    )  # a line of one has no body below
    assert "@cache" not in code


@pytest.mark.parametrize("word", notebooks(TOP / "nbs"))
def test_page_for_a_class(word, tmp_path, capsys):
    page, out = notebooks(TOP / "nbs")[word], tmp_path / "out.ipynb"
    assert main(["student", word, "--out", str(out)]) == 0
    nb = nbformat.read(out, 4)
    nbformat.validate(nb)
    text = "\n".join(c.source for c in nb.cells)
    whole = "\n".join(c.source for c in nbformat.read(page, 4).cells)
    assert (
        text.count("...  # your lines") >= 2
        and "Solution</summary>" not in text
    )
    assert (
        "Solution</summary>" in whole
        and len(re.findall("test_eq|test_close|mark\\(", text)) >= 2
    )
    assert not any(c.get("outputs") for c in nb.cells)
    for cell in nb.cells:
        if cell.cell_type == "code":
            ast.parse(cell.source)
    assert text.count("**How to use this notebook.**") == 1
    # results are folded, and the list of verdicts is left out
    prose = [c.source for c in nb.cells if c.cell_type == "markdown"]
    open_prose = re.sub(
        r"<details>.*?</details>", "", "\n".join(prose), flags=re.S
    )
    assert "What came out</summary>" in "\n".join(prose)
    assert not re.search(r"^\|.*<!--", open_prose, re.M)
    assert "contents_of_page" not in text
    # questions and differences from the paper are not
    assert "**For the reading group**\n\n1. " in open_prose
    assert re.search(r"\*\*What differs\*\* from [^\n]+\n\n- ", open_prose)
    # pictures travel with the page, and links lead where they led
    pictures = re.findall(r"!\[[^\]]*\]\((.*?)\)", "\n".join(prose))
    assert pictures and all(p.startswith("attachment:") for p in pictures)
    for to in re.findall(r"(?<!!)\[[^\]]*\]\(([^):#]+\.ipynb)\)", open_prose):
        assert (out.parent / to).exists(), to
    before = out.read_bytes()
    assert (
        main(["student", word, "--out", str(out)]) == 2
        and out.read_bytes() == before
    )
    assert "--out" in capsys.readouterr().err


def test_what_follows_code_is_folded_up_to_the_next_heading():
    prose = "It stops at 2.9 bits.\n\nWhy?\n\n## 4 Fill it\n\nIn Figure 2.1 of the paper"
    result, rest = prose.split("\n\n", 1)
    folded = _folded(prose, True)
    assert folded.startswith("<details>") and folded.count("<details>") == 1
    assert folded.endswith(f"{result}\n\n</details>\n\n{rest}")
    assert _folded(prose, False) == prose
    table = "| a | here |\n|---|---|\n| b | 3<!--toy.n--> |"
    assert _folded(table, False).startswith("<details>")
    lead = "**A plateau?** It gains 3<!--toy.n--> %."
    assert "<summary>What came out: A plateau?</summary>" in _folded(lead, True)
    # a number of a section or in a formula is no result
    for prose in ("Settings (§3.3) omit labels.", "Here $q = 0.23$, by D.5."):
        assert _folded(prose, True) == prose


def test_what_asks_or_introduces_is_not_folded():
    for prose in (
        "Games ([2025](https://arxiv.org/abs/2511.13502)) give",
        "The maximum is over 49,152 tokens.",
        "Cut tokens into 0.5 and 0.25. What will it be?",
        "The paper has 30.3, samples 28.8. Our test:",
        "**For the reading group**\n\n1. A share of 95 % is guessed. Why?\n2. It is 0.3.",
        "**What differs** from the paper:\n\n- *Models.* Ten points, not 2.5<!--toy.n-->.",
    ):
        assert _folded(prose, True) == prose
    # up to the next heading
    later = "**What differs**\n\n- a\n\n## 2 Next\n\n- 3<!--toy.n-->"
    assert _folded(later, True).endswith("- 3<!--toy.n-->\n\n</details>")


def test_a_cell_tagged_as_a_result_is_folded_whole(tmp_path):
    prose = "One of them suffices.\n\nThe others mislead."
    cell = dict(cell_type="markdown", source=[prose], metadata={})
    files = tmp_path / "page.ipynb", tmp_path / "out.ipynb"
    assert _for_a_class(cell, True, *files)["source"] == prose
    tagged = cell | dict(metadata=dict(tags=["result"]))
    folded = _for_a_class(tagged, False, *files)["source"]
    assert folded.startswith("<details><summary>What came out</summary>")
    assert folded.endswith(f"{prose}\n\n</details>")


@pytest.mark.parametrize("word", SIX)
def test_every_exercise_of_a_page_has_a_hint(word):
    cells = nbformat.read(notebooks(TOP / "nbs")[word], 4).cells
    prose = "\n".join(c.source for c in cells if c.cell_type == "markdown")
    exercises = re.findall(r"(?m)^\*\*Exercise \d\*\*.*", prose)
    assert exercises
    assert not [one for one in exercises if one.count("*Hint:* ") != 1]


RESULTS_IN_WORDS = [
    ("tabular", "SmolLM2 completes no row."),
    ("compare", "LiRA is better than the ratio for every size"),
    ("contextual", "Counterfactual memorization starts early"),
    ("contextual", "The counterfactual measure calls two of the four"),
    ("capacity", "Fewer sequences share the bits"),
]


@pytest.mark.parametrize("word, told", RESULTS_IN_WORDS)
def test_a_result_without_a_number_is_folded(word, told, tmp_path):
    page, out = notebooks(TOP / "nbs")[word], tmp_path / "out.ipynb"
    cells = nbformat.read(page, 4).cells
    (cell,) = [cell for cell in cells if cell.source.startswith(told)]
    folded = _for_a_class(cell, False, page, out)["source"]
    assert folded.startswith("<details>") and told in folded


def test_what_is_split_in_two_cells_is_folded_in_both():
    kinds = ["markdown", "code", "markdown", "markdown", "markdown", "markdown"]
    texts = ["a", "b", "It is 0.5.", "And 0.7.", "## Next\n\nc", "d 0.9"]
    cells = [
        dict(cell_type=kind, source=[text]) for kind, text in zip(kinds, texts)
    ]
    assert _after_code(cells) == [False, False, True, True, True, False]


@pytest.fixture
def lab(tmp_path):
    "Function that saves a notebook as `make lab` does, in a repository with one notebook"
    code = nbformat.v4.new_code_cell("1 + 1", id="a", execution_count=1)
    code.outputs = [
        nbformat.v4.new_output(
            "execute_result", {"text/plain": "2"}, execution_count=1
        )
    ]
    nb = nbformat.v4.new_notebook(cells=[code])
    (tmp_path / "settings.ini").write_text((TOP / "settings.ini").read_text())
    (tmp_path / "page.ipynb").write_text(nbformat.writes(nb))
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (
        ["init", "-q"],
        ["add", "."],
        [*who, "commit", "-qm", "first"],
    ):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    config = SimpleNamespace(
        LabApp=SimpleNamespace(), ContentsManager=SimpleNamespace()
    )
    exec((TOP / "tools/lab.py").read_text(), dict(get_config=lambda: config))

    def save(change, name="page.ipynb"):
        model = dict(
            type="notebook", content=nbformat.reads(nbformat.writes(nb), 4)
        )
        change(model["content"].cells[0])
        config.ContentsManager.pre_save_hook(
            model=model,
            path=name,
            contents_manager=SimpleNamespace(root_dir=str(tmp_path)),
        )
        return model["content"].cells[0]

    return save


def test_looking_and_running_leave_git_clean(lab):
    def run(cell):
        cell.execution_count, cell.metadata = 7, {"scrolled": True}
        cell.outputs[0]["data"]["text/plain"] = "2.0"

    cell = lab(run)
    assert cell.execution_count == 1 and not cell.metadata
    assert cell.outputs[0].data["text/plain"] == "2"


def test_what_is_edited_is_kept(lab):
    def edit(cell):
        cell.source, cell.metadata = "1 + 2", {"scrolled": True}
        cell.outputs[0]["data"]["text/plain"] = "3"

    cell = lab(edit)
    assert cell.source == "1 + 2" and cell.outputs[0].data["text/plain"] == "3"
    assert not cell.metadata, "nbdev has cleaned it"
    cell = lab(edit, "mine.ipynb")  # not ours
    assert cell.metadata == {"scrolled": True}
