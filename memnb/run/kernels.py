"""One run: a notebook in a fresh kernel, watched, redacted, and written whole or not at all."""

import json
import os
import re
import sys
import time
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from ..core import AWAKE_TURNS, cache_dir, cores, private_dir, root, version
from .identity import identity_of, run_parts
from ..papers import find, injected
from .profiles import check
from .redact import FOLDERS, Redactor, redact_notebook


def runtime_dir() -> Path:
    "Folder of the user on this very machine for locks and sockets; made if missing, private"
    import warnings

    from platformdirs import user_runtime_path

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no such folder on this system: another one is taken
        path = user_runtime_path("memnb", appauthor=False)
    try:
        path = private_dir(path)
        if hasattr(os, "getuid") and path.stat().st_uid != os.getuid():
            raise PermissionError
        return path
    except OSError:
        return private_dir(cache_dir() / "run")


@contextmanager
def _kernel_dir():
    "A new folder for the files of one kernel"
    import shutil
    from tempfile import mkdtemp

    from filelock import FileLock, Timeout

    top = private_dir(runtime_dir() / "k")
    for old in top.iterdir():  # a folder whose lock is free was left by a batch that was killed
        try:
            if time.time() - old.stat().st_mtime < 60:
                continue
            with FileLock(old / "lock").acquire(timeout=0):
                shutil.rmtree(old, ignore_errors=True)
        except (OSError, Timeout):
            pass
    own = Path(mkdtemp(dir=top, prefix=""))
    try:
        with FileLock(own / "lock"):
            yield own
    finally:
        shutil.rmtree(own, ignore_errors=True)


def _kernel(folder):
    "Kernel manager for this very Python"
    from ipykernel.kernelspec import get_kernel_dict
    from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager

    class Ours(KernelSpecManager):
        def get_kernel_spec(self, kernel_name):
            return KernelSpec(**get_kernel_dict())

    way = "ipc" if os.name == "posix" and len(str(folder)) < 80 else "tcp"
    return AsyncKernelManager(
        kernel_name="python3",
        kernel_spec_manager=Ours(),
        transport=way,
        connection_file=f"{folder}/kernel.json",
    )


def kernel_env(
    threads: int = None,  # threads that the kernel may use; default: all cores
) -> dict:  # copy of the environment, completed; what the user has set stays
    "Environment of a kernel"
    env = dict(os.environ, MEMNB_HOME=str(root().resolve()))
    env |= {k: os.path.abspath(env[k]) for k in FOLDERS if env.get(k)}
    env.setdefault("GOMP_SPINCOUNT", AWAKE_TURNS)
    env.setdefault("OMP_NUM_THREADS", str(threads or cores()))
    return env


def _kill(pid):
    "End a kernel and its children"
    import signal

    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL) if hasattr(os, "killpg") else os.kill(pid, signal.SIGTERM)


class _Guard:
    "As long as this lasts, the kernel of a manager is ended when it should stop or when the time is over"

    def __init__(self, km, should_stop, seconds):
        from threading import Event

        self.km, self.should_stop, self.over, self.reason = km, should_stop, Event(), ""
        self.end = time.monotonic() + seconds if seconds else float("inf")

    def __enter__(self):
        from threading import Thread

        Thread(target=self.watch, daemon=True).start()
        return self

    def __exit__(self, *error):
        self.over.set()

    def watch(self):
        while not self.over.wait(0.2):
            if not self.reason:
                late = time.monotonic() > self.end
                self.reason = "stopped" if self.should_stop() else "timeout" if late else ""
            pid = getattr(self.km.provisioner, "pid", None)  # none while the kernel starts
            if self.reason and pid:
                return _kill(pid)


MOST_OUTPUT = 10_000_000  # characters that a cell may put out


def _whole_streams(outputs):
    "Outputs in which neighbouring pieces of one stream are one, so that a key printed in two goes is seen"
    out = []
    for o in outputs:
        kind = o["output_type"], o.get("name")
        if out and kind[0] == "stream" and kind == out[-1][0]:
            out[-1][1].append(o)
        else:
            out.append((kind, [o]))

    def text(o):
        return "".join(o["text"]) if isinstance(o["text"], list) else o["text"]

    return [
        g[0] if len(g) == 1 else type(g[0])({**g[0], "text": "".join(map(text, g))}) for _, g in out
    ]


def _redacted_cell(cell, redactor):
    "A cell as it may be passed on"
    if "outputs" in cell:
        cell = type(cell)({**cell, "outputs": _whole_streams(cell["outputs"])})
    return redact_notebook(cell, redactor)


def _length(x):
    "Characters in a message of a kernel"
    if isinstance(x, dict):
        return sum(_length(v) for v in x.values())
    if isinstance(x, (list, tuple)):
        return sum(map(_length, x))
    return len(x) if isinstance(x, str) else 8


def _section(cells, i):
    "Heading above cell `i`"
    heads = [c.source for c in cells[:i] if c.cell_type == "markdown" and c.source.startswith("#")]
    return heads[-1].splitlines()[0].lstrip("# ") if heads else ""


def _last_words(log):
    "What is known about a kernel that died"
    words = [l for l in log.read_text(errors="replace").splitlines() if l.strip()]
    return "the kernel died; was there enough memory?" + (
        f" Its last words: {words[-1]}" if words else ""
    )


@cache
def _papermill_parts():
    "(manager, client) of ours; papermill is slow to import"
    from nbformat.v4 import new_output
    from papermill.clientwrap import PapermillNotebookClient
    from papermill.engines import NotebookExecutionManager

    class Manager(NotebookExecutionManager):
        "Writes the notebook as it is so far, redacted"

        def __init__(self, nb, path):
            super().__init__(nb, output_path=path, progress_bar=False, autosave_cell_every=0)
            self.redactor, self.cells = Redactor(), {}

        def text(self, i, cell):
            "A cell as JSON, made anew when its state is another one"
            state = cell.metadata.get("papermill", {}).get("status")
            if state == self.RUNNING or self.cells.get(i, ("",))[0] != state:
                self.cells[i] = state, json.dumps(_redacted_cell(cell, self.redactor))
            return self.cells[i][1]

        def save(self, **kw):
            rest = redact_notebook(
                {k: v for k, v in self.nb.items() if k != "cells"}, self.redactor
            )
            cells = ", ".join(self.text(i, c) for i, c in enumerate(self.nb.cells))
            text = f'{json.dumps(rest)[:-1]}, "cells": [{cells}]}}'
            Path(self.output_path).write_text(text, encoding="utf-8")

        def fail(self, i, name, why):
            "Give a cell that did not end an error output"
            cell = self.nb.cells[i]
            error = new_output("error", ename=name, evalue=why, traceback=[f"{name}: {why}"])
            cell.outputs = [o for o in cell.outputs if o.output_type != "error"] + [error]
            self.cell_exception(cell, cell_index=i)

    class Client(PapermillNotebookClient):
        "Runs the cells of a notebook, tells of each, and caps what they put out"

        def __init__(self, man, on_cell, **kw):
            super().__init__(man, on_cell_start=self.begins, on_cell_executed=self.ends, **kw)
            self.since, self.sizes, self.on_cell = time.monotonic(), {}, on_cell
            self.codes = [
                i for i, c in enumerate(man.nb.cells) if c.cell_type == "code" and c.source.strip()
            ]
            self.at = self.codes[0] if self.codes else None

        def begins(self, cell, cell_index):
            if cell_index in self.codes:
                self.at, self.since = cell_index, time.monotonic()

        def ends(self, cell, cell_index, execute_reply=None):
            ok = execute_reply is not None and execute_reply["content"]["status"] == "ok"
            number, section = self.codes.index(cell_index) + 1, _section(self.nb.cells, cell_index)
            self.on_cell(number, len(self.codes), section, time.monotonic() - self.since, ok)

        def output(self, outs, msg, display_id, i):
            if self.clear_before_next_output:
                self.sizes[i] = 0
            content, used = msg["content"], self.sizes.get(i, 0)
            if msg["msg_type"] == "error":
                return super().output(outs, msg, display_id, i)
            if used > MOST_OUTPUT:
                return None
            self.sizes[i] = used + _length(content)
            if self.sizes[i] <= MOST_OUTPUT:
                return super().output(outs, msg, display_id, i)
            if msg["msg_type"] == "stream":
                content["text"] = content["text"][: MOST_OUTPUT - used]
                super().output(outs, msg, display_id, i)
            most = f"{MOST_OUTPUT / 1e6:g} million characters"
            note = f"\nmemnb: more than {most}; the rest of this output is left out\n"
            outs.append(new_output("stream", name="stderr", text=note))

        def clear_output(self, outs, msg, i):
            super().clear_output(outs, msg, i)
            if not outs:
                self.sizes[i] = 0

    return Manager, Client


@cache
def _engine():
    "Register our engine with papermill, and give its name"
    from papermill.engines import Engine, papermill_engines

    class Ours(Engine):
        @classmethod
        def execute_notebook(cls, nb, kernel_name, output_path=None, source="", **kw):
            nb.metadata.papermill.update(input_path=source, output_path=Path(output_path).name)
            man = _papermill_parts()[0](nb, output_path)
            man.notebook_start()
            try:
                _drive(man, **kw)
            finally:
                man.notebook_complete()
            for i, c in enumerate(nb.cells):
                nb.cells[i] = _redacted_cell(c, man.redactor)
            return redact_notebook(nb, man.redactor)

    papermill_engines.register("memnb", Ours)
    return "memnb"


def _drive(man, folder, timeout, on_cell, on_message, should_stop, env, lock_fd, **kw):
    "Run the cells of a notebook under a manager"
    from nbclient.exceptions import DeadKernelError

    with _kernel_dir() as tmp, open(tmp / "kernel.log", "wb") as log:
        km = _kernel(tmp)
        client = _papermill_parts()[1](
            man,
            on_cell,
            km=km,
            startup_timeout=120,
            iopub_timeout=60,
            resources=dict(metadata=dict(path=str(folder))),
            stderr_file=_Relay(on_message) if on_message else None,
        )
        keep = dict(pass_fds=(lock_fd,)) if lock_fd is not None and os.name == "posix" else {}
        guard = _Guard(km, should_stop, timeout)
        try:
            with guard:
                client.execute(env=env, cleanup_kc=True, stdout=log, stderr=log, **keep)
        except (DeadKernelError, RuntimeError, KeyboardInterrupt) as e:
            stopped = isinstance(e, KeyboardInterrupt) or guard.reason == "stopped"
            if not (stopped or guard.reason or isinstance(e, DeadKernelError)):
                raise
            what = (
                ("KeyboardInterrupt", "stopped by hand")
                if stopped
                else ("TimeoutError", f"the run took longer than {timeout} s")
                if guard.reason
                else ("DeadKernelError", _last_words(Path(log.name)))
            )
            if client.at is not None:
                man.fail(client.at, *what)
                client.ends(man.nb.cells[client.at], client.at)
            if stopped:
                raise KeyboardInterrupt from None


class _Relay:
    "File that passes on the lines of `say`"

    def __init__(self, on_message):
        self.on_message = on_message

    def write(self, text):
        for line in text.splitlines():
            if line.startswith("memnb: "):
                self.on_message(line.removeprefix("memnb: "))

    def flush(self):
        pass


@cache
def core_speed() -> float:
    "Floating point operations a second of one core: the best of six rounds of products, in processor time"
    import numpy as np

    a = np.ones(
        (500, 64, 64), "float32"
    )  # small ones: threads, which wait for each other, are not used

    def once():
        start = time.thread_time()
        a @ a
        return time.thread_time() - start

    return 500 * 2 * 64**3 / max(min(once() for _ in range(6)), 1e-6)


@cache
def visible_gpus() -> tuple:  # of (index, identity)
    "GPUs that the driver shows"
    import shutil
    import subprocess

    if not shutil.which("nvidia-smi"):
        return ()
    lines = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout
    return tuple(re.findall(r"^GPU (\d+):.*\(UUID: (\S+)\)", lines, re.M))


@cache
def gpu_ids() -> tuple:  # names as CUDA_VISIBLE_DEVICES takes them; empty without a GPU
    "GPUs of this machine that may be used"
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return tuple(i.strip() for i in given.split(",") if i.strip() not in ("", "-1"))
    return tuple(uuid for _, uuid in visible_gpus())


def _machine():
    "What kind of machine this is, without its name"
    import platform

    return f"{cores()} cores, {platform.machine()}" + (
        f", {len(gpu_ids())} GPU" if gpu_ids() else ""
    )


def _made(start):
    "What an executed notebook says about how it was made"
    from importlib.metadata import version as installed

    packages = {p: installed(p) for p in ("numpy", "torch", "transformers")}
    return dict(
        version=version(),
        machine=_machine(),
        seconds=round(time.monotonic() - start, 2),
        speed=core_speed(),
        versions=dict(python=sys.version.split()[0], **packages),
    )


def partial_file(
    out: Path,  # where the finished notebook goes
) -> Path:  # where it is until then
    "Name of an unfinished notebook"
    return out.with_name(f"{out.stem}.partial.ipynb")


def execute(
    nb,  # word of a paper, or path of a notebook
    out: Path,  # executed notebook; until it is finished `….partial.ipynb` in the same folder
    params: dict = None,  # name -> value, checked before the start
    *,
    folder: Path = None,  # folder of notebooks; default: those of memnb
    timeout: int = None,  # seconds for the whole notebook; None for no limit
    on_cell=None,  # called after each cell: (number, of, section, seconds, ok)
    on_message=None,  # called with each line that memnb says in the kernel
    should_stop=None,  # called several times a second: whether to end the kernel
    env: dict = None,  # environment of the kernel; default `kernel_env()`
    inputs=None,  # functions as in `INPUTS`; default: those
    lock_fd: int = None,  # file that the kernel keeps open, and so locked as long as the kernel lives
) -> Path:  # `out`; an error in a cell raises papermill's PapermillExecutionError
    "Run one notebook"
    import nbformat
    import papermill

    nb, out, start = find(nb, folder), Path(out).resolve(), time.monotonic()
    params, part = check(nb, params or {}), partial_file(out)
    made_of = run_parts(nb, params, None, inputs)
    out.parent.mkdir(parents=True, exist_ok=True)
    got = papermill.execute_notebook(
        nbformat.read(nb, 4),
        re.sub("([{}])", r"\1\1", str(part)),
        injected(nb, params),
        engine_name=_engine(),
        progress_bar=False,
        kernel_name="python3",
        language="python",
        source=nb.name,
        folder=nb.parent.resolve(),
        timeout=timeout,
        on_message=on_message,
        env=env or kernel_env(),
        lock_fd=lock_fd,
        on_cell=on_cell or (lambda *a: None),
        should_stop=should_stop or (lambda: False),
    )
    got.metadata.papermill.output_path = out.name
    got.metadata["memnb"] = dict(identity=identity_of(made_of), parts=made_of, **_made(start))
    with open(part, "wb") as f:
        f.write(nbformat.writes(got).encode("utf-8", "replace"))
        f.flush()
        os.fsync(f.fileno())
    os.replace(part, out)
    return out
