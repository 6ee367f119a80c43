"""One run: papermill in a process of its own, which is watched; its notebook is redacted, and whole or not there."""

import io
import json
import os
import platform
import subprocess
import sys
import time
from contextlib import suppress
from importlib.metadata import version as installed
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

from ..core import AWAKE_TURNS, cores, replacing, root, version
from ..papers import injected
from .identity import checksum, run_parts
from .profiles import Run
from .redact import FOLDERS, redact, redact_notebook
from .terminal import tell


def kernel_env(threads: int) -> dict:
    "What a kernel's environment has beyond that of its batch: what the user has set stays, paths become absolute"
    env = dict(GOMP_SPINCOUNT=AWAKE_TURNS, OMP_NUM_THREADS=str(threads))
    env = {k: os.environ.get(k, v) for k, v in env.items()} | dict(MEMNB_HOME=str(root().resolve()))
    return env | {k: os.path.abspath(os.environ[k]) for k in FOLDERS if os.environ.get(k)}


# ---- in the process of a run


def _end(pid):
    "Kill a process and all that it has started, the kernel first"
    import psutil

    with suppress(psutil.NoSuchProcess):
        tree = psutil.Process(pid)
        for p in [*reversed(tree.children(recursive=True)), tree]:
            p.kill()


class _Relay(io.TextIOBase):
    "File that passes the lines of `say` on to the log of the batch"

    def __init__(self, where, event):
        self.where, self.event = where, event

    def write(self, text):
        for line in text.splitlines():
            if line.startswith("memnb: "):
                tell(self.where, self.event | dict(what="says", text=line.removeprefix("memnb: ")))


def _execute(nb, part, params, folder, where, event):
    "Execute a notebook; an error ends the process with a line about it"
    # jsonschema would make a parser of web addresses, which takes it a second, and notebooks have no use for one
    sys.modules.setdefault("rfc3987_syntax", None)
    import nbformat
    import papermill
    from nbclient.exceptions import DeadKernelError
    from traitlets.config import Config

    section, sections, done = "", {}, []
    for c in nbformat.read(nb, 4).cells:
        if c.cell_type == "markdown" and c.source.startswith("#"):
            section = c.source.splitlines()[0].lstrip("# ")
        elif c.cell_type == "code" and c.source.strip():
            sections[c.id] = section

    def ended(cell, cell_index, execute_reply):
        if cell.id not in sections:  # papermill's own, with the parameters
            return
        done.append(cell.id)
        how = dict(cell=len(done), of=len(sections), section=sections[cell.id])
        tell(where, event | dict(what="cell") | how)

    tmp = os.getcwd()  # sockets and files of the kernel; two kernels never take the same port
    short = os.name == "posix" and len(tmp) < 80
    talk = dict(connection_file=f"{tmp}/kernel.json", transport="ipc" if short else "tcp")
    try:
        how = dict(kernel_name="python3", language="python", progress_bar=False, cwd=folder)
        how |= dict(start_timeout=120, iopub_timeout=60, on_cell_executed=ended)
        how |= dict(stderr_file=_Relay(where, event), config=Config(ConnectionFileMixin=talk))
        papermill.execute_notebook(nb, part, params, **how)
    except papermill.PapermillExecutionError as e:
        sys.exit(f"{e.ename}: {e.evalue}".strip().splitlines()[0])
    except DeadKernelError:
        sys.exit("DeadKernelError: the kernel died; was there enough memory?")
    except Exception as e:
        sys.exit(f"{type(e).__name__}: {e}".splitlines()[0])


def _main():
    "Execute the run that a line of stdin tells of; with whoever wrote it this process ends, too"
    import logging

    logging.disable(logging.CRITICAL)  # what is said are the words of a kernel and the last line
    job = json.loads(sys.stdin.readline())
    Thread(target=lambda: (sys.stdin.read(), _end(os.getpid())), daemon=True).start()
    _execute(**job)


# ---- beside it


def _close(run, meta):
    "Redact what a run has written; give it its name where it is finished, else its error to the last cell"
    if not run.partial.is_file():
        return
    try:
        nb = json.loads(run.partial.read_text(encoding="utf-8"))
    except ValueError:  # killed while it wrote: what it holds cannot be redacted
        run.partial.unlink()
        return
    codes = [c for c in nb["cells"] if c["cell_type"] == "code"]
    for c in codes:  # pieces of one stream become one: a key printed in two goes is seen
        whole = []
        for name, some in groupby(c["outputs"], lambda o: o.get("name")):
            first, *more = some
            text = dict(text="".join("".join(o["text"]) for o in (first, *more))) if name else {}
            whole += [first | text, *([] if name else more)]
        c["outputs"] = whole
    if run.error and all(o["output_type"] != "error" for c in codes for o in c["outputs"]):
        begun = [c for c in codes if c["metadata"].get("papermill", {}).get("start_time")]
        name, _, said = run.error.partition(": ")
        last, told = (begun or codes[:1])[-1], dict(ename=name, evalue=said, traceback=[run.error])
        last["outputs"].append(dict(output_type="error") | told)
        last["metadata"].setdefault("papermill", {}).update(status="failed", exception=True)
    nb["metadata"]["papermill"].update(input_path=run.nb.name, output_path=run.out.name)
    nb = redact_notebook(nb)
    if not run.error:
        nb["metadata"]["memnb"] = meta
    with replacing(run.partial if run.error else run.out) as new:
        new.write_bytes(json.dumps(nb, indent=1, ensure_ascii=False).encode("utf-8", "replace"))
    if not run.error:
        run.partial.unlink()


def execute(run: Run, alive: Path):
    """Execute the notebook of a run, as long as the file `alive` is there; its `error` and `seconds` are set.

    The result gets its name in one step at the end, so a file of that name is whole; until then it is `run.partial`.
    """
    start = time.monotonic()
    parts = run_parts(run)  # at the start: what changes meanwhile is noticed later
    job = dict(nb=str(run.nb), part=str(run.partial), params=injected(run.nb, run.parameters))
    job |= dict(folder=str(run.nb.parent), where=str(run.out.parent))
    job |= dict(event=dict(run=run.name, batch=alive.name))
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    env = os.environ | run.env | dict(PYTHONPATH=path, JUPYTER_PREFER_ENV_PATH="1")
    code, why = "from memnb.run.kernels import _main; _main()", ""
    with TemporaryDirectory() as tmp, open(f"{tmp}/said", "wb") as said:
        how = dict(stdin=subprocess.PIPE, stdout=said, stderr=said, cwd=tmp, env=env)
        child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, **how)
        try:
            child.stdin.write(json.dumps(job).encode() + b"\n")
            child.stdin.flush()
            while child.poll() is None and not why:
                if not alive.exists():
                    why = "KeyboardInterrupt: stopped by hand"
                elif run.timeout and time.monotonic() > start + run.timeout:
                    why = f"TimeoutError: the run took longer than {run.timeout} s"
                time.sleep(0.05)
        finally:
            _end(child.pid)
            child.wait()
            child.stdin.close()
        lines = Path(said.name).read_text(errors="replace").splitlines()
        lines = [line for line in lines if line.strip()] or ["the process of the run died"]
        if child.returncode and not why:
            why = redact(lines[-1][:300])
            if why.startswith("DeadKernelError") and len(lines) > 1:
                why += f" Its last words: {redact(lines[-2][:300])}"
    run.error, run.seconds = why, time.monotonic() - start
    packages = {p: installed(p) for p in ("numpy", "torch", "transformers")}
    made = dict(run=run.name, identity=checksum(parts), parts=parts, version=version())
    made |= dict(seconds=round(run.seconds, 2), machine=f"{cores()} cores, {platform.machine()}")
    made |= dict(versions=dict(python=platform.python_version()) | packages)
    _close(run, made)
