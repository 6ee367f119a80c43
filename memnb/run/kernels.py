"""One run: papermill in a process of its own, which is watched; its notebook is redacted, and whole or not there."""

import json
import os
import re
import sys
import time
from functools import cache
from pathlib import Path

from ..core import AWAKE_TURNS, cores, replacing, root, version
from ..papers import find, injected
from .identity import identity_of, run_parts
from .profiles import check
from .redact import FOLDERS, redact, redact_notebook
from .terminal import tell


def kernel_env(
    threads: int = None,  # threads that the kernel may use; default: all cores
) -> dict:  # copy of the environment, completed; what the user has set stays
    "Environment of a kernel, which works in the folder of its notebook: so paths are absolute"
    env = dict(os.environ, MEMNB_HOME=str(root().resolve()))
    env |= {k: os.path.abspath(env[k]) for k in FOLDERS if env.get(k)}
    env.setdefault("GOMP_SPINCOUNT", AWAKE_TURNS)
    env.setdefault("OMP_NUM_THREADS", str(threads or cores()))
    return env


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


def partial_file(
    out: Path,  # where the finished notebook goes
) -> Path:  # where it is until then
    "Name of an unfinished notebook"
    return out.with_name(f"{out.stem}.partial.ipynb")


# ---- in the process of a run


def _end(pid):
    "Kill a process and all that it has started, the kernel first"
    import psutil

    try:
        tree = psutil.Process(pid)
        for p in [*reversed(tree.children(recursive=True)), tree]:
            p.kill()
    except psutil.NoSuchProcess:
        pass


class _Relay:
    "File that passes the lines of `say` on to the log of the batch"

    def __init__(self, where, event):
        self.where, self.event = where, event

    def write(self, text):
        for line in text.splitlines():
            if line.startswith("memnb: "):
                tell(self.where, self.event | dict(what="says", text=line.removeprefix("memnb: ")))

    def flush(self):
        pass


MOST = 10e6  # characters of outputs that are kept of a cell, as of one that prints without end


def _output_has_an_end():
    "Keep of the outputs of a cell, in this process, no more than fits into memory"
    from collections import Counter

    from nbclient import NotebookClient
    from nbformat.v4 import new_output

    whole, kept = NotebookClient.output, Counter()

    def output(self, outs, msg, display_id, cell_index):
        room, content = MOST - kept[cell_index], msg["content"]
        kept[cell_index] += 200 + len(str(content))
        if kept[cell_index] <= MOST:
            return whole(self, outs, msg, display_id, cell_index)
        if room > 0:
            said = f"\nmemnb: more than {MOST / 1e6:.0f} MB of outputs; the others are left out\n"
            text = content.get("text", "")[: int(room)] + said
            outs.append(new_output("stream", name=content.get("name", "stderr"), text=text))
            return outs[-1]

    NotebookClient.output = output


def _papermill(nb, part, params, folder, where, event):
    "Execute a notebook; an error ends the process with a line about it"
    # jsonschema would make a parser of web addresses, which takes it a second, and notebooks have no use for one
    sys.modules.setdefault("rfc3987_syntax", None)
    import nbformat
    import papermill
    from nbclient.exceptions import DeadKernelError
    from traitlets.config import Config

    _output_has_an_end()
    sections, section, now = [], "", dict(cell=0, at=time.monotonic())
    for c in nbformat.read(nb, 4).cells:
        if c.cell_type == "markdown" and c.source.startswith("#"):
            section = c.source.splitlines()[0].lstrip("# ")
        elif c.cell_type == "code" and c.source.strip():
            injected_here = params and "parameters" in c.metadata.get("tags", [])
            sections += [section, section] if injected_here else [section]

    def ended(cell, cell_index, execute_reply):
        i, took = now["cell"] + 1, time.monotonic() - now["at"]
        now.update(cell=i, at=time.monotonic())
        how = dict(section=(sections[:i] or [""])[-1], of=len(sections), seconds=took)
        ok = execute_reply["content"]["status"] == "ok"
        tell(where, event | dict(what="cell", cell=i, ok=ok) | how)

    tmp = os.getcwd()  # sockets and files of the kernel; two kernels never take the same port
    short = os.name == "posix" and len(tmp) < 80
    talk = dict(connection_file=f"{tmp}/kernel.json", transport="ipc" if short else "tcp")
    try:
        papermill.execute_notebook(
            re.sub("([{}])", r"\1\1", nb),
            re.sub("([{}])", r"\1\1", part),
            params,
            kernel_name="python3",
            language="python",
            progress_bar=False,
            cwd=folder,
            stderr_file=_Relay(where, event),
            start_timeout=120,
            iopub_timeout=60,
            on_cell_executed=ended,
            config=Config(ConnectionFileMixin=talk),
        )
    except papermill.PapermillExecutionError as e:
        sys.exit(f"{e.ename}: {e.evalue}".strip().splitlines()[0])
    except DeadKernelError:
        sys.exit("DeadKernelError: the kernel died; was there enough memory?")
    except Exception as e:
        sys.exit(f"{type(e).__name__}: {e}".splitlines()[0])


def _main():
    "Execute the run that a line of stdin tells of; with whoever wrote it this process ends, too"
    import logging
    from threading import Thread

    logging.disable(logging.CRITICAL)  # what is said are the words of a kernel and the last line
    job = json.loads(sys.stdin.readline())

    def follow():
        sys.stdin.read()
        _end(os.getpid())

    Thread(target=follow, daemon=True).start()
    _papermill(**job)


# ---- beside it


def _made(seconds):
    "What an executed notebook says about how it was made; the machine without its name"
    import platform
    from importlib.metadata import version as installed

    gpus = f", {len(gpu_ids())} GPU" if gpu_ids() else ""
    packages = {p: installed(p) for p in ("numpy", "torch", "transformers")}
    return dict(
        version=version(),
        machine=f"{cores()} cores, {platform.machine()}{gpus}",
        seconds=round(seconds, 2),
        speed=core_speed(),
        versions=dict(python=sys.version.split()[0], **packages),
    )


def _whole_streams(outputs):
    "Outputs, neighbouring pieces of one stream as one: a key printed in two goes is seen"
    out = []
    for o in outputs:
        last = out[-1] if out else {}
        if o["output_type"] == "stream" == last.get("output_type") and o["name"] == last["name"]:
            out[-1] = last | dict(text="".join(last["text"]) + "".join(o["text"]))
        else:
            out.append(o)
    return out


def _close(part, out, source, meta, error):
    "Redact what a run has written; give it its name where it is finished, else its error to the last cell"
    if not part.is_file():
        return
    try:
        nb = json.loads(part.read_text(encoding="utf-8"))
    except ValueError:  # killed while it wrote: what it holds cannot be redacted
        part.unlink()
        return
    for c in nb["cells"]:
        if "outputs" in c:
            c["outputs"] = _whole_streams(c["outputs"])
    codes = [c for c in nb["cells"] if c["cell_type"] == "code"]
    begun = [c for c in codes if c["metadata"].get("papermill", {}).get("start_time")] or codes[:1]
    if error and begun and all(o["output_type"] != "error" for c in begun for o in c["outputs"]):
        name, _, said = error.partition(": ")
        shown = dict(output_type="error", ename=name, evalue=said, traceback=[error])
        begun[-1]["outputs"].append(shown)
        begun[-1]["metadata"].setdefault("papermill", {}).update(status="failed", exception=True)
    nb["metadata"]["papermill"].update(input_path=source, output_path=out.name)
    nb = redact_notebook(nb)
    if not error:
        nb["metadata"]["memnb"] = meta
    with replacing(part if error else out) as new:
        new.write_bytes(json.dumps(nb, indent=1, ensure_ascii=False).encode("utf-8", "replace"))
    if not error:
        part.unlink()


def execute(
    nb,  # word of a paper, or path of a notebook
    out: Path,  # executed notebook; until it is finished `….partial.ipynb` in the same folder
    params: dict = None,  # name -> value, checked before the start
    *,
    timeout: int = None,  # seconds for the whole notebook; None for no limit
    going=lambda: True,  # called several times a second: whether to go on
    event: dict = None,  # what the log says of the run beside its own news; without it, no log
    env: dict = None,  # environment of the kernel; default `kernel_env()`
    lock_fd: int = None,  # file that the process keeps open, and so locked as long as it lives
) -> str:  # its error in a line; empty when `out` is there
    "Run one notebook; it gets its name in one step at the end, so a file of that name is whole"
    import subprocess
    from tempfile import TemporaryDirectory

    nb, out, start = find(nb), Path(out).resolve(), time.monotonic()
    params, part = check(nb, params or {}), partial_file(out)
    made_of = run_parts(nb, params)  # at the start: code that changes meanwhile is noticed later
    out.parent.mkdir(parents=True, exist_ok=True)
    where = str(out.parent) if event else os.devnull
    job = dict(nb=str(nb.resolve()), part=str(part), params=injected(nb, params), where=where)
    job |= dict(folder=str(nb.parent.resolve()), event=event or {})
    keep = dict(pass_fds=(lock_fd,)) if lock_fd is not None and os.name == "posix" else {}
    path = os.pathsep.join(
        [str(Path(__file__).parents[2]), (env or os.environ).get("PYTHONPATH", "")]
    )
    env = (env or kernel_env()) | dict(PYTHONPATH=path, JUPYTER_PREFER_ENV_PATH="1")
    code, why = "from memnb.run.kernels import _main; _main()", ""
    with TemporaryDirectory() as tmp, open(f"{tmp}/said", "wb") as said:
        how = dict(
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=said,
            cwd=tmp,
            env=env,
            start_new_session=True,
        )
        child = subprocess.Popen([sys.executable, "-c", code], **how, **keep)
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
    _close(
        part,
        out,
        nb.name,
        dict(run=out.stem, identity=identity_of(made_of), parts=made_of)
        | _made(time.monotonic() - start),
        why,
    )
    return why
