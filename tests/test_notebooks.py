"Every notebook runs top to bottom with its default parameters, writes nothing and tells nothing; exercises solve."

import ast
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
from papermill.exceptions import PapermillExecutionError
from test_repo import MACHINE, NOTEBOOKS, PAPER_NOTEBOOKS, TOP
from traitlets.config import Config

from memnb.exercises import UNFILLED

# pages for which stored answers are not enough: an audit needs the scores of all words
COMPUTES = {"12_iclinf"}
MARKER = "sk-marker-that-must-stay-out-of-sight"
IDS = [p.relative_to(TOP / "nbs").with_suffix("").as_posix() for p in NOTEBOOKS]


@pytest.fixture(scope="session")
def warm():
    "Name of a kernel that is new to each notebook, but for the large libraries, which need not be loaded again"
    if not hasattr(socket, "recv_fds") or not hasattr(os, "fork"):
        yield "python3"
        return
    with (
        tempfile.TemporaryDirectory() as top,
        pytest.MonkeyPatch.context() as patch,
    ):
        call = [sys.executable, str(Path(__file__).with_name("warm.py"))]
        argv = [*call, "kernel", f"{top}/door", "{connection_file}"]
        folder = Path(top) / "kernels/warm"
        folder.mkdir(parents=True)
        spec = dict(argv=argv, display_name="warm", language="python")
        (folder / "kernel.json").write_text(json.dumps(spec))
        patch.setenv("JUPYTER_PATH", top, prepend=os.pathsep)
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        with subprocess.Popen(
            [*call, "serve", f"{top}/door"], **pipes
        ) as server:
            # before that stands what a first conversion of the model says
            lines = iter(server.stdout.readline, b"")
            assert b"ready\n" in lines, "the warm kernel did not start"
            yield "warm"
            server.stdin.close()


def execute(path, out, folder, kernel="python3"):
    "Run a notebook through papermill as a batch does, kernels on local sockets where the system has them"
    with tempfile.TemporaryDirectory() as sockets:  # their paths must be short
        local = (
            dict(transport="ipc", ip=f"{sockets}/k")
            if os.name == "posix"
            else {}
        )
        try:
            return papermill.execute_notebook(
                path,
                out,
                cwd=folder,
                progress_bar=False,
                config=Config(KernelManager=local),
                execution_timeout=900,
                kernel_name=kernel,
                # a batch saves a page before and behind each cell, see `test_batch.py`; that takes longer than most cells
                request_save_on_cell_execute=False,
            )
        except PapermillExecutionError as e:
            # what went wrong stands first: reports are cut at their ends
            why = f"{path.name}, cell {e.exec_count}: {e.ename}: {e.evalue}"
            pytest.fail(f"{why}\n{e}", pytrace=False)


def said(nb):
    "Everything a reader sees below the code cells, images aside"
    for c in nb.cells:
        for o in c.get("outputs", []):
            if "text" in o:
                yield o["text"]
            yield from (
                str(v)
                for k, v in o.get("data", {}).items()
                if not k.startswith("image/")
            )


def checkout():
    "Files of the checkout that a run could write, with size and time of the last change"
    found = [
        p
        for d in ("data", "figures", "nbs")
        for p in (TOP / d).rglob("*")
        if p.is_file()
    ]
    stats = {p: p.stat() for p in found if not p.name.startswith("kernel-ipc-")}
    return {
        str(p.relative_to(TOP)): (s.st_size, s.st_mtime_ns)
        for p, s in stats.items()
    }


def exercises(nb):
    """(cell to fill in, its check, solution) of each exercise of a page, as code; both may be one cell; checks give their last
    expression"""
    for i, c in enumerate(nb.cells):
        if (
            c.cell_type == "markdown"
            and "<summary>Solution</summary>" in c.source
        ):
            code = [
                x.source for x in nb.cells[i - 2 : i] if x.cell_type == "code"
            ]
            asked = ast.unparse(ast.parse(code[-1]).body[-1])
            yield (
                code[0],
                code[-1],
                asked,
                c.source.split("```python\n")[1].split("```")[0],
            )


def solved(path, out):
    "A copy of a notebook with its exercises solved at the end"
    nb = nbformat.read(path, 4)
    for _, _, asked, solution in exercises(nb):
        code = f"{solution}\nassert {asked} == 'right'"
        nb.cells.append(nbformat.v4.new_code_cell(code))
    nbformat.write(nb, out)
    return out


# reference notebooks that train models, or read one again and again, for more than ten seconds
LONG_NOTEBOOKS = {
    "compare/asking",
    "compare/measuring",
    "iclinf/influence",
    "iclinf/ladder",
    "iclinf/measuring",
    "rooms/hf",
    "rooms/plant",
    "tabular/measuring",
}


def marked(path, name):
    "The path of a notebook; those of appendices and the long ones are left to `make test-slow`"
    if path.parent.name == "extra" or name in LONG_NOTEBOOKS:
        return pytest.param(path, marks=pytest.mark.slow)
    return path


@pytest.mark.parametrize("path", map(marked, NOTEBOOKS, IDS), ids=IDS)
def test_notebook_runs(
    path, tmp_path, home, warm, answers, shipped_answers, monkeypatch
):
    page = path in PAPER_NOTEBOOKS
    shared = shipped_answers if page else answers
    # how a notebook of a room asks is the point of it
    alone = path.parent.name == "rooms" or "MEMNB_FRESH" in path.read_text(
        encoding="utf8"
    )
    monkeypatch.setenv(
        "MEMNB_STORE", str(tmp_path / "store.sqlite" if alone else shared)
    )
    monkeypatch.setenv("MEMNB_REPLAY", "1")  # who has to compute says so
    monkeypatch.setenv("OPENAI_API_KEY", MARKER)
    before = checkout()
    out = tmp_path / path.name
    nb = execute(solved(path, out), out, path.parent, warm)
    after = checkout()
    changed = sorted(
        p for p in {*before, *after} if before.get(p) != after.get(p)
    )
    assert not changed, f"the default run wrote into the checkout: {changed}"
    paths = [m[0] for text in said(nb) for m in MACHINE.finditer(text)]
    assert not paths, f"machine paths in the outputs: {paths}"
    if page:  # `memnb replay` promises it; after a change of prompts, `tools/answers.py`
        assert any("has to compute" in text for text in said(nb)) == (
            path.stem in COMPUTES
        )
    written = [
        p
        for p in (*tmp_path.rglob("*"), *shared.parent.glob("*"))
        if p.is_file()
    ]
    told = [p.name for p in written if MARKER.encode() in p.read_bytes()]
    assert not told, f"the key of the environment is in {told}"


THREADS = """
import sys, threading, torch
sys.setswitchinterval(1e-6)
n = 64
together, errors = threading.Barrier(n), []

def convert():
    together.wait()
    try:
        torch.ones(2000).to(torch.bfloat16)
    except RuntimeError as e:
        errors.append(e)

threads = [threading.Thread(target=convert) for _ in range(n)]
for t in threads: t.start()
for t in threads: t.join()
print(errors)
"""


def test_threads_compute_at_once_in_a_warm_kernel(tmp_path, warm):
    "As those that read weights do: a fork has lost the threads of torch, which half of the kernels notice"
    nb = tmp_path / "threads.ipynb"
    code = nbformat.v4.new_code_cell(THREADS)
    nbformat.write(nbformat.v4.new_notebook(cells=[code]), nb)
    for _ in range(4):
        assert [*said(execute(nb, nb, tmp_path, warm))] == ["[]\n"]


FRESH = """
for start, check, asked, solution in {exercises!r}:
    names = {{}}
    exec(start, names)
    exec(check, names)
    before = eval(asked, names)
    exec(solution, names)
    print([before, eval(asked, names)])
"""


@pytest.mark.parametrize("path", PAPER_NOTEBOOKS, ids=lambda p: p.stem)
def test_exercises_begin_without_the_page(path, tmp_path, warm, monkeypatch):
    "In fresh names: a cell to fill in, its check before, its solution, its check after"
    monkeypatch.setenv("MEMNB_STORE", str(tmp_path / "store.sqlite"))
    found, alone = [*exercises(nbformat.read(path, 4))], tmp_path / path.name
    code = nbformat.v4.new_code_cell(FRESH.format(exercises=found))
    nbformat.write(nbformat.v4.new_notebook(cells=[code]), alone)
    told = [
        l
        for text in said(execute(alone, alone, TOP, warm))
        for l in text.splitlines()
    ]
    lines = [l for l in told if re.match(r"\['", l)]
    assert len(found) >= 2 and lines == [str([UNFILLED, "right"])] * len(
        found
    ), told
