"""Many runs: jobs and their locks, several at a time, what is finished reused."""

import os
import re
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, CancelledError, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from ..core import (
    cache_dir,
    cores,
    figures_dir,
    private_dir,
    replacing,
    require,
    root,
    say,
    share_dir,
)
from ..papers import find, has_package, parameters
from .estimate import COSTS, costs, look_ahead, seconds_known
from .identity import checksum, finished, metadata_of, run_parts, what_changed
from .kernels import execute, gpu_ids, kernel_env, partial_file, visible_gpus
from .profiles import Run, profile_file, select
from .redact import FOLDERS
from .terminal import Progress, first_line, last_events, relative_path, tell


@dataclass
class Outcome:
    "What became of a run"

    run: Run
    status: str  # 'done', 'skipped', 'failed', 'stopped', or 'busy': another batch is at it
    file: Path  # executed notebook, or the partial one of a failed run
    seconds: float = 0
    error: str = ""  # first line of the error


@dataclass
class Job:
    "A run with all that a worker needs to know"

    run: Run
    nb: Path  # the notebook
    out: Path  # where the executed one goes
    force: bool = False  # run again what is finished
    timeout: int = None  # seconds
    threads: int = None  # threads of the kernel; default: all cores
    env: dict = field(default_factory=dict)  # further environment of the kernel

    @property
    def parts(self):
        "What the run is made of"
        return run_parts(self.nb, self.run.parameters)

    @property
    def ready(self):
        "Whether the run is finished"
        return finished(self.out, self.parts)

    @property
    def values(self):
        "All parameters, defaults included"
        return {k: p.default for k, p in parameters(self.nb).items()} | self.run.parameters

    @property
    def lock(self):
        """The lock of the run, which a batch holds while it is at it.

        It is the operating system's, so it is free when its holder dies, however that happens.
        """
        from filelock import FileLock  # slow to import

        folder = self.out.parent / ".locks"
        folder.mkdir(parents=True, exist_ok=True)
        return FileLock(folder / f"{self.out.stem}.lock")


def _is_locked(file):
    "Whether somebody holds the lock in a file"
    from filelock import FileLock, Timeout

    if not file.exists():
        return False
    try:
        with FileLock(file).acquire(timeout=0):
            return False
    except Timeout:
        return True
    except OSError:  # a folder that only can be read
        return False


def _gpu_lock(i):
    "File of the lock of a GPU, named after the device: two jobs of a cluster may both call theirs 0"
    device = re.sub(r"[^A-Za-z0-9-]", "_", dict(visible_gpus()).get(i, i))
    return private_dir(cache_dir() / "run") / f"gpu-{device}.lock"


@contextmanager
def _gpu(going):
    "Environment of a run that has a GPU of its own; waits until one is free"
    from filelock import FileLock, Timeout

    if not gpu_ids():
        raise ValueError("this run needs a GPU and this machine shows none")
    locks = {i: FileLock(_gpu_lock(i)) for i in gpu_ids()}
    while going():
        for i, lock in locks.items():
            try:
                lock.acquire(timeout=0)
            except Timeout:
                continue
            try:
                return (yield dict(CUDA_VISIBLE_DEVICES=i))
            finally:
                lock.release()
        time.sleep(0.2)
    raise KeyboardInterrupt


def work(
    job: Job,  # what to run
    alive: Path,  # file that is there as long as the batch wants it
    wait: bool = False,  # wait for another batch rather than return 'busy'
) -> Outcome:
    "Execute one run unless it is finished"
    from filelock import Timeout

    start, lock = time.monotonic(), job.lock
    if not alive.exists():
        raise CancelledError
    event = dict(run=job.run.name, batch=alive.name)

    def ended(status, error=""):
        file = job.out if status in ("done", "skipped") else partial_file(job.out)
        return Outcome(job.run, status, file, time.monotonic() - start, error)

    try:
        with lock.acquire(timeout=-1 if wait else 0, cancel_check=lambda: not alive.exists()):
            if not job.force and job.ready:
                return Outcome(job.run, "skipped", job.out)
            tell(job.out.parent, event | dict(what="started"))
            env = kernel_env(job.threads) | job.env
            if job.run.profile:
                env |= dict(MEMNB_RUN=job.run.results_name, MEMNB_VARIANT=job.run.variant)
            with _gpu(alive.exists) if job.run.gpu else nullcontext({}) as gpu:
                error = execute(
                    job.nb,
                    job.out,
                    job.run.parameters,
                    timeout=job.timeout,
                    going=alive.exists,
                    event=event,
                    env=env | gpu,
                    lock_fd=getattr(getattr(lock, "_context", None), "lock_file_fd", None),
                )
    except Timeout:
        return ended("busy" if alive.exists() else "stopped")
    except Exception as e:
        error = first_line(e)
    if not alive.exists() and error:
        return ended("stopped", "stopped by hand")
    return ended("failed" if error else "done", error)


@contextmanager
def _pool(workers, dask, scheduler):
    "Executor of runs: threads, each of which waits for a process, or a Dask cluster, given or of this machine"
    if not (dask or scheduler):
        with ThreadPoolExecutor(workers) as pool:
            yield pool
        return
    require("distributed", "dask")
    from distributed import Client, LocalCluster

    with ExitStack() as stack:
        if not scheduler:
            how = dict(threads_per_worker=1, dashboard_address=None, silence_logs=50)
            scheduler = stack.enter_context(LocalCluster(n_workers=workers, **how))
        try:
            client = stack.enter_context(Client(scheduler, timeout=10))
        except (OSError, TimeoutError, ValueError) as e:
            raise ValueError(f"no Dask scheduler answers at {scheduler}: {first_line(e)}") from None
        yield client.get_executor(pure=False)


def _all(jobs, submit, alive, shown):
    "Outcomes of all jobs, in their order; Ctrl-C stops them cleanly"
    known, results = {submit(work, j, alive): j for j in jobs}, {}
    while known:
        try:
            done, _ = wait_for(known, timeout=0.5, return_when=FIRST_COMPLETED)
            shown.look()
            for f in done:
                job = known.pop(f)
                try:
                    got = f.result()
                except CancelledError:
                    continue
                except Exception as e:  # a worker of a cluster that was lost
                    got = Outcome(job.run, "failed", partial_file(job.out), 0, first_line(e))
                if got.status == "busy":  # another batch is at it: waited for
                    known[submit(work, job, alive, True)] = job
                    continue
                results[job.run.name] = got
                _note(got, job.out.parent, alive.name)
        except KeyboardInterrupt:
            alive.unlink(missing_ok=True)
            for f in known:
                f.cancel()
    return [results[j.run.name] for j in jobs if j.run.name in results]


def runs_dir(
    name: str,  # profile
    out: Path = None,  # folder of the executed notebooks; default `runs`
) -> Path:  # ValueError when the runs of another profile file are there
    "Folder of the runs of a profile"
    file = profile_file(name).resolve()
    where = (Path(out or root() / "runs") / file.stem).resolve()
    mark = where / ".profile"
    if mark.is_file() and mark.read_text(encoding="utf-8").strip() != _profile_mark(file, where):
        raise ValueError(
            f"{relative_path(where)} holds the runs of another {file.name}: "
            "give this profile another name, or another folder with --out"
        )
    return where


def _profile_mark(file, where):
    "What the folder `where` remembers of its profile file, which it does not name"
    if file.parent == Path(share_dir("profiles")).resolve():
        return "memnb"
    return checksum(Path(os.path.relpath(file, where)).as_posix())


def _jobs(name, only, params, out, folder, env=(), **kw):
    "Jobs of a profile"
    where, here = runs_dir(name, out), kernel_env()
    env = {k: here[k] for k in ("MEMNB_HOME", *FOLDERS) if k in here} | dict(env)
    jobs = [
        Job(r, find(r.notebook, folder).resolve(), where / f"{r.name}.ipynb", env=env, **kw)
        for r in select(name, only, params, folder)
    ]
    for j in jobs:
        if j.out.is_dir():
            raise ValueError(f"{relative_path(j.out)} is a folder: move it away")
    return where, jobs


def batch(
    name: str,  # profile
    only: tuple = (),  # words of papers; all when empty
    params: dict = None,  # parameters that replace those of the profile
    out: Path = None,  # folder of the executed notebooks; default `runs`
    *,
    force: bool = False,  # run again what is finished
    fresh: bool = False,  # ask and train again too what is kept; implies `force`
    timeout: int = None,  # seconds for each run
    quiet: bool = False,  # no progress
    folder: Path = None,  # folder of notebooks; default: those of memnb
    workers: int = 1,  # runs at a time
    dask: bool = False,  # whether workers are processes of a Dask cluster
    scheduler: str = None,  # address of a Dask scheduler that runs already
    seconds: float = 20,  # for looking beforehand at what cannot work; 0 does not look
) -> list:  # of `Outcome`, in the order of the profile; after Ctrl-C those that had begun
    "Run a profile; an error in one notebook does not stop the others"
    from datetime import UTC, datetime

    if timeout is not None and timeout < 1:
        raise ValueError(f"timeout: at least 1 second, not {timeout}")
    if workers < 1:
        raise ValueError(f"workers: at least 1, not {workers}")
    anew = dict(MEMNB_FRESH=datetime.now(UTC).isoformat(timespec="seconds")) if fresh else {}
    how = dict(force=force or fresh, timeout=timeout, threads=max(1, cores() // workers))
    where, jobs = _jobs(name, only, params, out, folder, anew, **how)
    todo = [j for j in jobs if j.force or not j.ready]
    if not todo:
        return [Outcome(j.run, "skipped", j.out) for j in jobs]
    require("papermill", "batch")
    if seconds and not (force or fresh or scheduler):
        known = [j for j in todo if has_package(j.run.notebook)]
        asked = [(j.run.name, j.run.notebook, j.values) for j in known]
        look_ahead(asked, seconds, todo[0].nb.parent)
    _may_write(jobs)
    where.mkdir(parents=True, exist_ok=True)
    with replacing(where / ".profile") as part:
        part.write_text(_profile_mark(profile_file(name).resolve(), where))
    alive = where / ".locks" / f"batch-{uuid4().hex[:8]}"
    alive.parent.mkdir(exist_ok=True)
    alive.touch()
    with _pool(workers, dask, scheduler) as pool, Progress(where, alive.name, quiet) as shown:
        try:
            return _all(jobs, pool.submit, alive, shown)
        finally:
            alive.unlink(missing_ok=True)


def _may_write(jobs):
    "Refuse a batch whose tables or figures cannot be written, before hours are spent on them"
    for job in jobs:
        tables = root() / "data/papers" / job.run.notebook / "measured"
        for place in (tables, figures_dir(job.run.profile)) * (job.run.profile != "smoke"):
            there = next(p for p in (place, *place.absolute().parents) if p.exists())
            if not os.access(there, os.W_OK):
                raise ValueError(f"{relative_path(there)} cannot be written, and the run needs it")


def _note(got, where, batch):
    "Log what became of a run, and say what went wrong"
    if got.status != "skipped":
        how = dict(what=got.status, seconds=round(got.seconds, 2), error=got.error)
        tell(where, dict(run=got.run.name, batch=batch) | how)
    if got.status == "failed":
        full = "No space left" in got.error
        hint = "; free some space, then the same command goes on" if full else ""
        say(f"{got.run.name} failed: {got.error}{hint}; see {relative_path(got.file)}")


def _state(job, last):
    "(state, remark) of a run, seen from outside: a lock that is held is a run in progress"
    parts, what = job.parts, last.get("what")
    if finished(job.out, parts):
        return "done", ""
    if _is_locked(job.out.parent / ".locks" / f"{job.out.stem}.lock"):
        if what != "cell":
            return "running", "starting"
        return "running", f"cell {last.get('cell')}/{last.get('of')}  {last.get('section')}"
    if what == "failed":
        return "failed", f"{last.get('error')}; see {relative_path(partial_file(job.out))}"
    if what == "stopped":
        return "stopped", "the same command goes on from here"
    if partial_file(job.out).exists():
        return "broken off", "the same command runs it again"
    return "to do", what_changed(job.out, parts)


def status(
    name: str,  # profile
    only: tuple = (),  # words of papers; all when empty
    params: dict = None,  # parameters that replace those of the profile
    out: Path = None,  # folder of the executed notebooks; default `runs`
    folder: Path = None,  # folder of notebooks; default: those of memnb
) -> list:  # of (run, state, remark)
    "How a batch is doing"
    where, jobs = _jobs(name, only, params, out, folder)
    last = last_events(where)
    return [(j.run.name, *_state(j, last.get(j.run.name, {}))) for j in jobs]


def batches(
    out: Path = None,  # folder of the executed notebooks; default `runs`
) -> list:  # of (profile, how its runs ended, when something was last heard of them)
    "All batches of a folder, as their logs have them"
    rows = []
    for log in sorted(Path(out or root() / "runs").glob("*/batch.jsonl")):
        last, states = last_events(log.parent), Counter()
        for run, event in last.items():
            going = _is_locked(log.parent / ".locks" / f"{run}.lock")
            how = "running" if going else event.get("what")
            states["broken off" if how in ("started", "cell") else how] += 1
        heard = max(str(e.get("when", "")) for e in last.values()) if last else ""
        told = ", ".join(f"{n} {how}" for how, n in states.items())
        rows.append((log.parent.name, told, heard[:16].replace("T", " ")))
    return rows


def left_over(
    name: str,  # profile
) -> str:  # names of files, as 'a, b'; '' where there are none
    "Tables of a profile that none of its runs writes any more: those of a run that was taken out of it"
    runs, word, out = select(name), profile_file(name).stem, []
    for paper in dict.fromkeys(r.notebook for r in runs):
        known = tuple(f"{r.results_name}."[:120] for r in runs if r.notebook == paper)
        for f in sorted((root() / "data/papers" / paper / "measured").glob(f"{word}[.-]*.parquet")):
            if not f.name.startswith(known):
                out.append(f"{paper}/{f.stem}")
    return ", ".join(out)


def tidy(
    name: str,  # profile
    out: Path = None,  # folder of the executed notebooks; default `runs`
    every: bool = False,  # also the executed notebooks
) -> list:  # removed files; ValueError while a batch is at work there
    "Remove partial notebooks and the log of a profile; locks stay, they are empty files"
    from filelock import FileLock, Timeout

    where = runs_dir(name, out)
    more = [where / "batch.jsonl", *([where / ".profile"] if every else [])]

    def ours(f):  # and not a copy under another name, or a notebook that somebody put there
        return f.name.endswith(".partial.ipynb") or every and metadata_of(f).get("run") == f.stem

    there = sorted(where.glob("*.ipynb"))
    gone = [f for f in there if ours(f)]
    with ExitStack() as held:  # nobody begins one of these runs while its files are removed
        for file in sorted(where.glob(".locks/*.lock")):
            try:
                held.enter_context(FileLock(file).acquire(timeout=0))
            except Timeout:
                raise ValueError(f"a batch is at {file.stem}: stop it first") from None
        gone += [f for f in more if f.exists()]
        for f in gone:
            f.unlink()
    if every and (rest := [f.name for f in there if f not in gone]):
        say(f"left, since no run of {where.name} wrote it: {', '.join(rest)}")
    return gone


def estimates(
    name: str,  # profile
    only: tuple = (),  # words of papers; all when empty
    params: dict = None,  # parameters that replace those of the profile
    out: Path = None,  # folder of the executed notebooks; default `runs`
    folder: Path = None,  # folder of notebooks; default: those of memnb
) -> list:  # of dicts: notebook, parameters, done, and the keys of `costs`
    "What a batch would do and cost, without doing it"
    rows = []
    for job in _jobs(name, only, params, out, folder)[1]:
        try:
            cost = costs(job.run.notebook, job.values)
        except Exception as e:
            say(f"no estimate for {job.run.name}: {first_line(e)}")
            cost = dict.fromkeys(COSTS)
        known = seconds_known(job)
        if known and not (cost["cached"] and not cost["calls"]):  # kept answers make it a short one
            cost["seconds"] = known
        row = dict(notebook=job.run.notebook, parameters=job.run.parameters, done=job.ready)
        rows.append(row | cost)
    return rows
