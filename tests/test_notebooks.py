"Every notebook runs top to bottom with its default parameters, writes nothing and tells nothing."

import hashlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
import papermill
import pytest
from test_repo import MACHINE, NOTEBOOKS, PAPER_NOTEBOOKS, TOP, python
from traitlets.config import Config

from memnb.exercises import LEVELS, UNFILLED, exercise

INDEX = TOP / "nbs/index.ipynb"
COMPUTES = {
    "12_iclinf"
}  # pages for which stored answers are not enough: an audit needs the scores of all words
MARKER = "sk-marker-that-must-stay-out-of-sight"


@pytest.fixture(scope="session")
def warm():
    "Name of a kernel that is new to each notebook, but for the large libraries, which need not be loaded again"
    if not hasattr(socket, "recv_fds") or not hasattr(os, "fork"):
        yield "python3"
    else:
        with tempfile.TemporaryDirectory() as top, pytest.MonkeyPatch.context() as patch:
            call = [sys.executable, str(Path(__file__).with_name("warm.py"))]
            spec = dict(
                argv=[*call, "kernel", f"{top}/door", "{connection_file}"],
                display_name="warm",
                language="python",
            )
            folder = Path(top) / "kernels/warm"
            folder.mkdir(parents=True)
            (folder / "kernel.json").write_text(json.dumps(spec))
            patch.setenv("JUPYTER_PATH", top, prepend=os.pathsep)
            with subprocess.Popen(
                [*call, "serve", f"{top}/door"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            ) as server:
                assert server.stdout.readline() == b"ready\n"
                yield "warm"
                server.stdin.close()


def execute(path, out, kernel="python3"):
    "Run a notebook through papermill as a batch does, kernels on local sockets where the system has them"
    with tempfile.TemporaryDirectory() as sockets:  # their paths must be short
        config = Config(
            KernelManager=dict(transport="ipc", ip=f"{sockets}/k") if os.name == "posix" else {}
        )
        return papermill.execute_notebook(
            path,
            out,
            cwd=path.parent if path.is_relative_to(TOP) else TOP / "nbs",
            progress_bar=False,
            config=config,
            execution_timeout=900,
            kernel_name=kernel,
        )


def said(nb):
    "Everything a reader sees below the code cells, images aside"
    for c in nb.cells:
        for o in c.get("outputs", []):
            if "text" in o:
                yield o["text"]
            yield from (str(v) for k, v in o.get("data", {}).items() if not k.startswith("image/"))


def prints():
    "Checksums of the results in the checkout, and the names of what lies beside the notebooks"
    files = [p for d in ["data", "figures"] for p in (TOP / d).rglob("*") if p.is_file()]
    found = {str(p.relative_to(TOP)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}
    beside = {
        f"nbs/{p.name}": ""
        for p in (TOP / "nbs").rglob("*")
        if not p.name.startswith("kernel-ipc-")
    }
    return {**found, **beside}


def solutions(nb):
    "Folded solutions of exercises, each with the check that it must pass"
    for i, c in enumerate(nb.cells):
        if c.cell_type != "markdown" or "<summary>Solution</summary>" not in c.source:
            continue
        code = c.source.split("```python\n")[1].split("```")[0]
        yield f"{code}assert {nb.cells[i - 1].source.splitlines()[-1]} == 'right'"


def solved(path, out):
    "A copy of a notebook with its exercises solved at the end"
    nb = nbformat.read(path, 4)
    nb.cells += [nbformat.v4.new_code_cell(s) for s in solutions(nb)]
    nbformat.write(nb, out)
    return out


@pytest.mark.parametrize(
    "path", NOTEBOOKS, ids=lambda p: p.relative_to(TOP / "nbs").with_suffix("").as_posix()
)
def test_notebook_runs(path, tmp_path, home, warm, answers, shipped_answers, between, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", MARKER)
    alone = path.parent.name == "rooms" or "MEMNB_FRESH" in path.read_text(
        encoding="utf8"
    )  # how it asks is the point
    shared = shipped_answers if path in PAPER_NOTEBOOKS else answers
    monkeypatch.setenv("MEMNB_STORE", str(tmp_path / "store.sqlite" if alone else shared))
    monkeypatch.setenv("MEMNB_REPLAY", "1")  # who has to compute says so
    before = prints()
    nb = execute(solved(path, tmp_path / path.name), tmp_path / path.name, warm)
    after = prints()
    changed = sorted(p for p in {*before, *after} if before.get(p) != after.get(p))
    assert not changed, f"the default run wrote into the checkout: {changed}"
    paths = [m[0] for text in said(nb) for m in MACHINE.finditer(text)]
    assert not paths, f"machine paths in the outputs: {paths}"
    written = *tmp_path.rglob("*"), *shared.parent.glob("*")
    if (
        path in PAPER_NOTEBOOKS
    ):  # `memnb replay` promises it; after a change of prompts, `memnb replay --write`
        assert any("has to compute" in text for text in said(nb)) == (path.stem in COMPUTES)
    told = [p.name for p in written if p.is_file() and MARKER.encode() in p.read_bytes()]
    assert not told, f"the key of the environment is in {told}"
    if path == INDEX:
        (tmp_path / path.name).replace(between / path.name)  # for the test of the README


def exercises(nb):
    "(question, cell to fill in, check, solution) of each exercise of a page, as text"
    for i, c in enumerate(nb.cells):
        if c.cell_type == "code" and c.source.endswith("= None # your line here"):
            question = nb.cells[i - 1].source.rpartition("**Exercise ")[2]
            yield question, c.source, nb.cells[i + 1].source, nb.cells[i + 2].source


@pytest.mark.parametrize("path", PAPER_NOTEBOOKS, ids=lambda p: p.stem)
def test_exercises_show_the_question_and_not_the_answer(path):
    "Minutes, level, hints one by one, a check that is imported, a folded solution"
    nb, word = nbformat.read(path, 4), path.stem.partition("_")[2]
    found, text = list(exercises(nb)), "\n".join(c.source for c in nb.cells)
    for k in (1, 2):
        assert f"`exercise('{word}', {k})`" in text and len(exercise(word, k).hints) > 1
    assert len(found) == len(list(solutions(nb))) >= 2
    for k, (question, start, check, solution) in enumerate(found, 1):
        name = start.splitlines()[-1].split(" = ")[0]
        assert re.match(rf"{k}\*\* \(\d+ minutes, ({'|'.join(LEVELS)})\)\. ", question), question[
            :60
        ]
        assert "<summary>Hint 1</summary>" in question, f"{name} has no hint"
        assert check == f"from memnb.exercises import mark\nmark('{word}', '{name}', {name})"
        assert solution.startswith("<details><summary>Solution</summary>") and name in solution


@pytest.mark.parametrize("path", PAPER_NOTEBOOKS, ids=lambda p: p.stem)
def test_exercises_begin_without_the_page(path, tmp_path):
    "In a fresh process, a cell to fill in, its check before, its solution, its check after"
    for _, start, check, solution in exercises(nbformat.read(path, 4)):
        *lines, asked = check.splitlines()
        solved = solution.split("```python\n")[1].split("```")[0]
        code = "\n".join([start, *lines, f"print({asked})", solved, f"print({asked})"])
        said = python(code, TOP, MEMNB_STORE=str(tmp_path / "store.sqlite")).splitlines()
        assert [l for l in said if l in (UNFILLED, "right")] == [UNFILLED, "right"], said


@pytest.mark.parametrize("path", PAPER_NOTEBOOKS, ids=lambda p: p.stem)
def test_parameters_are_honoured(path, tmp_path):
    "A parameter given to papermill comes after the defaults and wins over them"
    ready = papermill.execute_notebook(
        path, tmp_path / "ready.ipynb", dict(seed=4711), prepare_only=True, progress_bar=False
    )
    tags = [c.metadata.get("tags", []) for c in ready.cells]
    defaults = next(i for i, t in enumerate(tags) if "parameters" in t)
    assert "injected-parameters" in tags[defaults + 1], (
        "papermill did not inject behind the parameters cell"
    )
    ready.cells = ready.cells[: defaults + 2] + [
        nbformat.v4.new_code_cell("print('seed is', seed)")
    ]
    nbformat.write(ready, tmp_path / "short.ipynb")
    nb = execute(tmp_path / "short.ipynb", tmp_path / "out.ipynb")
    assert "seed is 4711" in "".join(said(nb))


def test_readme_shows_what_a_run_shows(tmp_path, warm, between):
    "The numbers on the front page are those of the measured table, not of an older one"
    from memnb.run import cli

    run = between / INDEX.name  # of this session
    if not run.exists():
        execute(INDEX, run := tmp_path / INDEX.name, warm)
    fresh, page = cli.readme(run), (TOP / "README.md").read_text(encoding="utf8")
    assert fresh == page, "run nbs/index.ipynb again, then `make readme`"
