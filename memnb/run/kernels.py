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
from ..papers import find, injected
from .identity import identity_of, run_parts
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


def kernel_env(
    threads: int = None,  # threads that the kernel may use; default: all cores
) -> dict:  # copy of the environment, completed; what the user has set stays
    "Environment of a kernel, which works in the folder of its notebook: so paths are absolute"
    env = dict(os.environ, MEMNB_HOME=str(root().resolve()))
    env |= {k: os.path.abspath(env[k]) for k in FOLDERS if env.get(k)}
    env.setdefault("GOMP_SPINCOUNT", AWAKE_TURNS)
    env.setdefault("OMP_NUM_THREADS", str(threads or cores()))
    return env


def _kernel(folder):
    "Kernel manager for this very Python; it talks through files where their path is short enough"
    from ipykernel.kernelspec import get_kernel_dict
    from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager

    class Ours(KernelSpecManager):
        def get_kernel_spec(self, kernel_name):
            return KernelSpec(**get_kernel_dict())

    return AsyncKernelManager(
        kernel_name="python3",
        kernel_spec_manager=Ours(),
        transport="ipc" if os.name == "posix" and len(str(folder)) < 80 else "tcp",
        connection_file=f"{folder}/kernel.json",
    )


def _kill(pid):
    "End a kernel and its children"
    import signal

    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL) if hasattr(os, "killpg") else os.kill(pid, signal.SIGTERM)


@contextmanager
def _watched(km, should_stop, seconds):
    """A thread that ends the kernel of a manager when it should stop or its time is over.

    Yields a list, to which the reason is added. A run in a thread hears no Ctrl-C itself, and a
    cell that prints without end keeps busy who reads it.
    """
    from threading import Event, Thread

    over, why, end = Event(), [], time.monotonic() + (seconds or float("inf"))

    def watch():
        while not over.wait(0.2):
            if not why and should_stop():
                why.append("stopped")
            elif not why and time.monotonic() > end:
                why.append("timeout")
            pid = getattr(km.provisioner, "pid", None)  # none while the kernel starts
            if why and pid:
                return _kill(pid)

    Thread(target=watch, daemon=True).start()
    try:
        yield why
    finally:
        over.set()


def _whole_streams(outputs):
    "Outputs, neighbouring pieces of one stream as one: a key printed in two goes is seen"
    out = []
    for o in outputs:
        last = out[-1] if out else {}
        same = o["output_type"] == "stream" == last.get("output_type") and o["name"] == last["name"]
        if same:
            out[-1] = type(o)(last | dict(text="".join(last["text"]) + "".join(o["text"])))
        else:
            out.append(o)
    return out


def _redacted(nb, redactor):
    "A copy of a notebook as it may be passed on"
    cells = [
        type(c)({**c, "outputs": _whole_streams(c["outputs"])}) if "outputs" in c else c
        for c in nb.cells
    ]
    return redact_notebook(type(nb)({**nb, "cells": cells}), redactor)


def _last_words(log):
    "What is known about a kernel that died"
    words = [l for l in log.read_text(errors="replace").splitlines() if l.strip()]
    return "the kernel died; was there enough memory?" + (
        f" Its last words: {words[-1]}" if words else ""
    )


class _Relay:
    "File that passes on the lines of `say`"

    def __init__(self, on_message):
        self.on_message = on_message

    def write(self, text):
        for line in text.splitlines():
            if self.on_message and line.startswith("memnb: "):
                self.on_message(line.removeprefix("memnb: "))

    def flush(self):
        pass


@cache
def _engine():
    "Register an engine with papermill, which is slow to import, and give its name"
    from papermill.engines import Engine, NotebookExecutionManager, papermill_engines

    class Manager(NotebookExecutionManager):
        "Writes the notebook as it is so far, redacted"

        redactor = None

        def save(self, **kw):
            text = json.dumps(_redacted(self.nb, self.redactor))
            Path(self.output_path).write_text(text, encoding="utf-8")

    class Ours(Engine):
        @classmethod
        def execute_notebook(cls, nb, kernel_name, output_path=None, source="", **kw):
            nb.metadata.papermill.update(input_path=source, output_path=Path(output_path).name)
            man = Manager(nb, output_path, progress_bar=False, autosave_cell_every=0)
            man.redactor = Redactor()
            man.notebook_start()
            try:
                _drive(man, **kw)
            finally:
                man.notebook_complete()
            return _redacted(nb, man.redactor)

    papermill_engines.register("memnb", Ours)
    return "memnb"


MOST_PRINTED = 10_000_000  # characters of a run: a loop that prints must not fill memory and disk


def _drive(man, folder, timeout, on_cell, on_message, should_stop, env, lock_fd, **kw):
    "Run the cells of a notebook under a manager"
    from tempfile import TemporaryDirectory

    from nbclient.exceptions import DeadKernelError
    from nbformat.v4 import new_output
    from papermill.clientwrap import PapermillNotebookClient

    class Client(PapermillNotebookClient):
        printed = 0

        def output(self, outs, msg, display_id, cell_index):
            "Take in an output, and leave out what is printed beyond a limit"
            if msg["msg_type"] == "stream":
                before, content = self.printed, msg["content"]
                self.printed += len(content["text"])
                if before > MOST_PRINTED:
                    return None
                if self.printed > MOST_PRINTED:
                    content["text"] = "\nmemnb: the rest of what this run prints is left out\n"
            return super().output(outs, msg, display_id, cell_index)

    cells, section = man.nb.cells, ""
    codes, sections = [], {}
    for i, c in enumerate(cells):
        if c.cell_type == "markdown" and c.source.startswith("#"):
            section = c.source.splitlines()[0].lstrip("# ")
        elif c.cell_type == "code" and c.source.strip():
            codes.append(i)
            sections[i] = section
    now = dict(at=codes[0] if codes else None, since=time.monotonic())

    def begins(cell, cell_index):
        if cell_index in sections:
            now.update(at=cell_index, since=time.monotonic())

    def ends(cell, cell_index, execute_reply=None):
        ok = execute_reply is not None and execute_reply["content"]["status"] == "ok"
        took = time.monotonic() - now["since"]
        on_cell(codes.index(cell_index) + 1, len(codes), sections[cell_index], took, ok)

    with TemporaryDirectory(dir=runtime_dir()) as tmp, open(f"{tmp}/kernel.log", "wb") as log:
        km = _kernel(tmp)
        client = Client(
            man,
            km=km,
            on_cell_start=begins,
            on_cell_executed=ends,
            startup_timeout=120,
            iopub_timeout=60,
            resources=dict(metadata=dict(path=str(folder))),
            stderr_file=_Relay(on_message),
        )
        keep = dict(pass_fds=(lock_fd,)) if lock_fd is not None and os.name == "posix" else {}
        with _watched(km, should_stop, timeout) as why:
            try:
                client.execute(env=env, cleanup_kc=True, stdout=log, stderr=log, **keep)
                return
            except (DeadKernelError, RuntimeError, KeyboardInterrupt) as e:
                if not why and isinstance(e, RuntimeError) and not isinstance(e, DeadKernelError):
                    raise
                stopped = isinstance(e, KeyboardInterrupt) or why == ["stopped"]
        if stopped:
            name, text = "KeyboardInterrupt", "stopped by hand"
        elif why:
            name, text = "TimeoutError", f"the run took longer than {timeout} s"
        else:
            name, text = "DeadKernelError", _last_words(Path(log.name))
    if (at := now["at"]) is not None:
        error = new_output("error", ename=name, evalue=text, traceback=[f"{name}: {text}"])
        cells[at].outputs = [o for o in cells[at].outputs if o.output_type != "error"] + [error]
        man.cell_exception(cells[at], cell_index=at)
        ends(cells[at], at)
    if stopped:
        raise KeyboardInterrupt


@cache
def core_speed() -> float:
    """Floating point operations a second of one core: the best of six rounds of products.

    In processor time, which is the same on a busy machine.
    """
    import numpy as np

    a = np.ones((500, 64, 64), "float32")  # small: threads, which wait for each other, are not used

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


def _made(start):
    "What an executed notebook says about how it was made; the machine without its name"
    import platform
    from importlib.metadata import version as installed

    gpus = f", {len(gpu_ids())} GPU" if gpu_ids() else ""
    packages = {p: installed(p) for p in ("numpy", "torch", "transformers")}
    return dict(
        version=version(),
        machine=f"{cores()} cores, {platform.machine()}{gpus}",
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
    on_cell=lambda *a: None,  # called after each cell: (number, of, section, seconds, ok)
    on_message=None,  # called with each line that memnb says in the kernel
    should_stop=lambda: False,  # called several times a second: whether to end the kernel
    env: dict = None,  # environment of the kernel; default `kernel_env()`
    lock_fd: int = None,  # file that the kernel keeps open, and so locked as long as it lives
) -> Path:  # `out`; an error in a cell raises papermill's PapermillExecutionError
    "Run one notebook; it gets its name in one step at the end, so a file of that name is whole"
    import nbformat
    import papermill

    nb, out, start = find(nb, folder), Path(out).resolve(), time.monotonic()
    params, part = check(nb, params or {}), partial_file(out)
    made_of = run_parts(nb, params)  # at the start: code that changes meanwhile is noticed later
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
        on_cell=on_cell,
        should_stop=should_stop,
    )
    got.metadata.papermill.output_path = out.name
    got.metadata["memnb"] = dict(
        run=out.stem, identity=identity_of(made_of), parts=made_of, **_made(start)
    )
    with open(part, "wb") as f:
        f.write(nbformat.writes(got).encode("utf-8", "replace"))
        f.flush()
        os.fsync(f.fileno())
    os.replace(part, out)
    return out
