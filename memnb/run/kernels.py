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
from ..papers import find, injected
from .identity import identity_of, run_parts
from .profiles import check
from .redact import FOLDERS, redact, redact_notebook
from .terminal import tell


def kernel_env(threads: int = None) -> dict:
    "What a kernel's environment has beyond that of its batch: what the user has set stays, paths become absolute"
    env = dict(GOMP_SPINCOUNT=AWAKE_TURNS, OMP_NUM_THREADS=str(threads or cores()))
    env = {k: os.environ.get(k, v) for k, v in env.items()} | dict(MEMNB_HOME=str(root().resolve()))
    return env | {k: os.path.abspath(os.environ[k]) for k in FOLDERS if os.environ.get(k)}


def partial_file(out: Path) -> Path:
    "Where a notebook is until it is finished"
    return out.with_name(f"{out.stem}.partial.ipynb")


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


def _papermill(nb, part, params, folder, where, event):
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
    _papermill(**job)


# ---- beside it


def _close(part, out, source, meta, error):
    "Redact what a run has written; give it its name where it is finished, else its error to the last cell"
    if not part.is_file():
        return
    try:
        nb = json.loads(part.read_text(encoding="utf-8"))
    except ValueError:  # killed while it wrote: what it holds cannot be redacted
        part.unlink()
        return
    codes = [c for c in nb["cells"] if c["cell_type"] == "code"]
    for c in codes:  # pieces of one stream become one: a key printed in two goes is seen
        whole = []
        for name, some in groupby(c["outputs"], lambda o: o.get("name")):
            first, *more = some
            text = dict(text="".join("".join(o["text"]) for o in (first, *more))) if name else {}
            whole += [first | text, *([] if name else more)]
        c["outputs"] = whole
    if error and all(o["output_type"] != "error" for c in codes for o in c["outputs"]):
        begun = [c for c in codes if c["metadata"].get("papermill", {}).get("start_time")]
        name, _, said = error.partition(": ")
        last, told = (begun or codes[:1])[-1], dict(ename=name, evalue=said, traceback=[error])
        last["outputs"].append(dict(output_type="error") | told)
        last["metadata"].setdefault("papermill", {}).update(status="failed", exception=True)
    nb["metadata"]["papermill"].update(input_path=source, output_path=out.name)
    nb = redact_notebook(nb)
    if not error:
        nb["metadata"]["memnb"] = meta
    with replacing(part if error else out) as new:
        new.write_bytes(json.dumps(nb, indent=1, ensure_ascii=False).encode("utf-8", "replace"))
    if not error:
        part.unlink()


def execute(
    nb, out: Path, params: dict = None, *, timeout=None, going=lambda: True, event=None, env=None
) -> str:
    """Run one notebook, a path or the word of a paper; its error in a line comes back, '' when `out` is there.

    It gets its name in one step at the end, so a file of that name is whole; until then it is `….partial.ipynb`.
    `params` are checked before the start; `timeout` is in seconds; `going()` says several times a second whether to go
    on; `event` is what the log says of the run beside its own news (without it, no log); `env` is that of the kernel,
    beyond that of this process, by default `kernel_env()`.
    """
    nb, out, start = find(nb), Path(out).resolve(), time.monotonic()
    params, part = check(nb, params or {}), partial_file(out)
    made_of = run_parts(nb, params)  # at the start: code that changes meanwhile is noticed later
    out.parent.mkdir(parents=True, exist_ok=True)
    job = dict(nb=str(nb.resolve()), part=str(part), params=injected(nb, params))
    job |= dict(folder=str(nb.parent.resolve()), event=event or {})
    job |= dict(where=str(out.parent) if event else os.devnull)
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    env = os.environ | (env or kernel_env()) | dict(PYTHONPATH=path, JUPYTER_PREFER_ENV_PATH="1")
    code, why = "from memnb.run.kernels import _main; _main()", ""
    with TemporaryDirectory() as tmp, open(f"{tmp}/said", "wb") as said:
        how = dict(stdin=subprocess.PIPE, stdout=said, stderr=said, cwd=tmp, env=env)
        child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, **how)
        try:
            child.stdin.write(json.dumps(job).encode() + b"\n")
            child.stdin.flush()
            while child.poll() is None and not why:
                if not going():
                    why = "KeyboardInterrupt: stopped by hand"
                elif timeout and time.monotonic() > start + timeout:
                    why = f"TimeoutError: the run took longer than {timeout} s"
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
    packages = {p: installed(p) for p in ("numpy", "torch", "transformers")}
    made = dict(run=out.stem, identity=identity_of(made_of), parts=made_of, version=version())
    made |= dict(seconds=round(time.monotonic() - start, 2))
    made |= dict(machine=f"{cores()} cores, {platform.machine()}")  # without its name
    made |= dict(versions=dict(python=platform.python_version()) | packages)
    _close(part, out, nb.name, made, why)
    return why
