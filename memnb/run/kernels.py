"""One run: papermill in a process of its own, which is watched; its notebook is redacted, and whole or not there."""

import io
import json
import os
import platform
import subprocess
import sys
import time
from contextlib import suppress
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import TYPE_CHECKING

from ..core import AWAKE_TURNS, cores, replacing, root, version
from ..papers import injected
from .identity import checksum, fetched, run_parts
from .profiles import Run
from .redact import FOLDERS, redact, redact_notebook
from .terminal import tell

if TYPE_CHECKING:
    from nbformat import NotebookNode

# bytes of output of one cell: the largest page that ships has 2 MB in all, and an editor opens ten times as much
MOST_OUTPUT = 10 * 10**6
# characters of a line of a traceback
LONGEST_LINE = 10_000
# seconds that a machine with a hundred busy processes takes to start a kernel, and to hand over a message
START_TIMEOUT = 120
MESSAGE_TIMEOUT = 60


def kernel_env(threads: int) -> dict:
    "What a kernel's environment has beyond that of its batch: what the user has set stays, paths become absolute"
    env = dict(
        GOMP_SPINCOUNT=os.environ.get("GOMP_SPINCOUNT", AWAKE_TURNS),
        OMP_NUM_THREADS=os.environ.get("OMP_NUM_THREADS", str(threads)),
        MEMNB_HOME=str(root().resolve()),
    )
    for name in FOLDERS:
        if os.environ.get(name):
            env[name] = os.path.abspath(os.environ[name])
    return env


# ---- in the process of a run


def _end(pid: int):
    "Kill a process and all that it has started, the kernel first"
    import psutil

    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for one in [*reversed(process.children(recursive=True)), process]:
            one.kill()


class _Relay(io.TextIOBase):
    "File that passes the lines of `say` on to the log of the batch"

    def __init__(self, where: str, event: dict):
        self.where = where
        self.event = event

    def write(self, text: str):
        for line in text.splitlines():
            if line.startswith("memnb: "):
                self.say(line.removeprefix("memnb: "))

    def say(self, text: str):
        tell(self.where, self.event | dict(what="says", text=text))


def _size(value: object):
    "Characters of a message of a kernel"
    if isinstance(value, dict):
        return sum(map(_size, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(_size, value))
    return len(value) if isinstance(value, str) else 0


def _limit_output(relay: _Relay):
    "Let papermill take `MOST_OUTPUT` of each cell, and say what is left out: else a loop that prints fills the memory"
    from nbformat.v4 import new_output
    from papermill import engines

    class Client(engines.PapermillNotebookClient):
        "Takes no more output of a cell than there is room for"

        taken = 0  # characters of output that the cell has now

        def execute_cell(
            self, cell: "NotebookNode", cell_index: int, **options
        ):
            self.taken = 0
            return super().execute_cell(cell, cell_index, **options)

        def process_message(
            self, msg: dict, cell: "NotebookNode", cell_index: int
        ):
            kind = msg["msg_type"]
            content = msg["content"]
            if kind == "clear_output":
                self.taken = 0
            elif kind == "error":
                content["evalue"] = content["evalue"][:LONGEST_LINE]
                content["traceback"] = [
                    line[:LONGEST_LINE] for line in content["traceback"]
                ]
            elif kind in ("stream", "display_data", "execute_result"):
                return self.process_output(msg, cell, cell_index)
            return super().process_message(msg, cell, cell_index)

        def process_output(
            self, msg: dict, cell: "NotebookNode", cell_index: int
        ):
            room = MOST_OUTPUT - self.taken
            size = _size(msg["content"])
            self.taken += size
            if size <= room:
                return super().process_message(msg, cell, cell_index)
            if room > 0:
                if msg["msg_type"] == "stream":
                    msg["content"]["text"] = msg["content"]["text"][:room]
                    super().process_message(msg, cell, cell_index)
                self.tell_cut(cell)
            return None

        def tell_cut(self, cell: "NotebookNode"):
            notice = f"more than {MOST_OUTPUT // 10**6} MB of output of a cell: the rest is left out"
            cell.outputs.append(
                new_output("stream", name="stderr", text=f"memnb: {notice}\n")
            )
            relay.say(notice)

    engines.PapermillNotebookClient = Client


def _sections(nb: "NotebookNode"):
    "The heading above each code cell that has code: id of the cell -> text"
    section = ""
    sections = {}
    for cell in nb.cells:
        if cell.cell_type == "markdown" and cell.source.startswith("#"):
            section = cell.source.splitlines()[0].lstrip("# ")
        elif cell.cell_type == "code" and cell.source.strip():
            sections[cell.id] = section
    return sections


def _execute(
    nb: str, part: str, params: dict, folder: str, where: str, event: dict
):
    "Execute a notebook; an error ends the process with a line about it"
    # jsonschema would make a parser of web addresses, which takes it a second, and notebooks have no use for one
    sys.modules.setdefault("rfc3987_syntax", None)
    import nbformat
    import papermill
    from nbclient.exceptions import DeadKernelError
    from traitlets.config import Config

    relay = _Relay(where, event)
    _limit_output(relay)
    sections = _sections(nbformat.read(nb, 4))
    finished = []

    def ended(cell: "NotebookNode", cell_index: int, execute_reply: dict):
        if cell.id not in sections:  # papermill's own, with the parameters
            return
        finished.append(cell.id)
        place = dict(
            cell=len(finished), of=len(sections), section=sections[cell.id]
        )
        tell(where, event | dict(what="cell") | place)

    # sockets and files of the kernel lie in the folder of this process: two kernels never take the same port
    folder_of_sockets = os.getcwd()
    # the name of a socket has at most 107 characters
    is_short = os.name == "posix" and len(folder_of_sockets) < 80
    connection = dict(
        connection_file=f"{folder_of_sockets}/kernel.json",
        transport="ipc" if is_short else "tcp",
    )
    try:
        papermill.execute_notebook(
            nb,
            part,
            params,
            kernel_name="python3",
            language="python",
            progress_bar=False,
            cwd=folder,
            start_timeout=START_TIMEOUT,
            iopub_timeout=MESSAGE_TIMEOUT,
            on_cell_executed=ended,
            stderr_file=relay,
            config=Config(ConnectionFileMixin=connection),
        )
    except papermill.PapermillExecutionError as error:
        sys.exit(f"{error.ename}: {error.evalue}".strip().splitlines()[0])
    except DeadKernelError:
        sys.exit("DeadKernelError: the kernel died; was there enough memory?")
    except Exception as error:
        sys.exit(f"{type(error).__name__}: {error}".splitlines()[0])


def _main():
    "Execute the run that a line of stdin tells of; with whoever wrote it this process ends, too"
    import logging

    # what is said are the words of a kernel and the last line
    logging.disable(logging.CRITICAL)
    job = json.loads(sys.stdin.readline())
    Thread(
        target=lambda: (sys.stdin.read(), _end(os.getpid())), daemon=True
    ).start()
    _execute(**job)


# ---- beside it


def _joined_streams(outputs: list):
    "Outputs of a cell, pieces of one stream made one: a key that was printed in two goes is seen"
    joined = []
    for name, group in groupby(outputs, lambda output: output.get("name")):
        group = list(group)
        if name is None:
            joined += group
        else:
            text = "".join("".join(output["text"]) for output in group)
            joined.append(group[0] | dict(text=text))
    return joined


def _write_error(cells: list, error: str):
    "Put an error that no cell shows to the last cell that had begun"
    if any(
        output["output_type"] == "error"
        for cell in cells
        for output in cell["outputs"]
    ):
        return
    begun = [
        cell
        for cell in cells
        if cell["metadata"].get("papermill", {}).get("start_time")
    ]
    last = begun[-1] if begun else cells[0]
    name, _, value = error.partition(": ")
    last["outputs"].append(
        dict(output_type="error", ename=name, evalue=value, traceback=[error]),
    )
    last["metadata"].setdefault("papermill", {}).update(
        status="failed", exception=True
    )


def _close(run: Run, meta: dict):
    "Redact what a run has written; give it its name where it is finished, else its error to the last cell"
    if not run.partial.is_file():
        return
    try:
        nb = json.loads(run.partial.read_text(encoding="utf-8"))
    except (
        ValueError
    ):  # killed while it wrote: what it holds cannot be redacted
        run.partial.unlink()
        return
    cells = [cell for cell in nb["cells"] if cell["cell_type"] == "code"]
    for cell in cells:
        cell["outputs"] = _joined_streams(cell["outputs"])
    if run.error:
        _write_error(cells, run.error)
    nb["metadata"]["papermill"].update(
        input_path=run.nb.name, output_path=run.out.name
    )
    nb = redact_notebook(nb)
    if not run.error:
        nb["metadata"]["memnb"] = meta
    with replacing(run.partial if run.error else run.out) as new:
        new.write_bytes(
            json.dumps(nb, indent=1, ensure_ascii=False).encode(
                "utf-8", "replace"
            )
        )
    if not run.error:
        run.partial.unlink()


def _watch(child: subprocess.Popen, job: dict, run: Run, alive: Path):
    "Give a process its job and wait until it ends, or must; why it must, '' where it ended by itself"
    start = time.monotonic()
    child.stdin.write(json.dumps(job).encode() + b"\n")
    child.stdin.flush()
    while child.poll() is None:
        if not alive.exists():
            return "KeyboardInterrupt: stopped by hand"
        if run.timeout and time.monotonic() > start + run.timeout:
            return f"TimeoutError: the run took longer than {run.timeout} s"
        time.sleep(0.05)
    return ""


def _last_words(file: Path | str):
    "The error in the last line that a process has written, with the line before it where its kernel died"
    lines = Path(file).read_text(errors="replace").splitlines()
    lines = [redact(line[:300]) for line in lines if line.strip()]
    if not lines:
        return "the process of the run died"
    if lines[-1].startswith("DeadKernelError") and len(lines) > 1:
        return f"{lines[-1]} Its last words: {lines[-2]}"
    return lines[-1]


def _versions() -> dict[str, str]:
    "Versions of what numbers depend on, as far as it is installed"
    versions = dict(python=platform.python_version())
    for name in ("numpy", "torch", "transformers"):
        # a page that asks no model of this machine needs no torch
        with suppress(PackageNotFoundError):
            versions[name] = installed(name)
    return versions


def _meta(run: Run, parts: dict):
    "What memnb writes into an executed notebook"
    return dict(
        run=run.name,
        identity=checksum(parts),
        parts=parts,
        version=version(),
        seconds=round(run.seconds, 2),
        machine=f"{cores()} cores, {platform.machine()}",
        versions=_versions(),
    )


def execute(run: Run, alive: Path):
    """Execute the notebook of a run, as long as the file `alive` is there; its `error` and `seconds` are set.

    The result gets its name in one step at the end, so a file of that name is whole; until then it is `run.partial`.
    """
    start = time.monotonic()
    parts = run_parts(
        run
    )  # at the start: what changes meanwhile is noticed later
    job = dict(
        nb=str(run.nb),
        part=str(run.partial),
        params=injected(run.nb, run.parameters),
        folder=str(run.nb.parent),
        where=str(run.out.parent),
        event=dict(run=run.name, batch=alive.name),
    )
    path = os.pathsep.join(
        [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    )
    code = "from memnb.run.kernels import _main; _main()"
    with TemporaryDirectory() as folder, open(f"{folder}/words", "wb") as words:
        child = subprocess.Popen(
            [sys.executable, "-c", code],
            start_new_session=True,
            stdin=subprocess.PIPE,
            stdout=words,
            stderr=words,
            cwd=folder,
            env=os.environ
            | run.env
            | dict(PYTHONPATH=path, JUPYTER_PREFER_ENV_PATH="1"),
        )
        try:
            run.error = _watch(child, job, run, alive)
        finally:
            _end(child.pid)
            child.wait()
            child.stdin.close()
        if child.returncode and not run.error:
            run.error = _last_words(words.name)
    run.seconds = time.monotonic() - start
    parts |= fetched(before=parts, after=run_parts(run))
    _close(run, _meta(run, parts))
