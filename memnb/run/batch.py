"""Many runs: jobs and their locks, several at a time, what is finished reused."""

import os
import re
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ..core import cores, replacing, require, root, say, share_dir
from .estimate import COSTS, costs, look_ahead, seconds_known
from .identity import INPUTS, checksum, finished, run_identity, run_parts, what_changed
from .kernels import execute, gpu_ids, kernel_env, partial_file, runtime_dir, visible_gpus
from ..papers import find, has_package, parameters
from .profiles import Run, profile_file, select
from .redact import FOLDERS, redact
from .terminal import Progress, first_line, last_events, relative_path


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
    inputs: tuple = ()  # functions as in `INPUTS`

    @property
    def ready(self):
        "Whether the run is finished"
        return finished(self.out, run_identity(self.nb, self.run.parameters, None, self.inputs))


def _lock(out):
    "The lock of a run"
    from filelock import FileLock

    folder = out.parent / ".locks"
    folder.mkdir(parents=True, exist_ok=True)
    return FileLock(folder / f"{out.stem}.lock")


def _is_locked(out):
    "Whether somebody is at a run"
    from filelock import Timeout

    if not (out.parent / ".locks" / f"{out.stem}.lock").exists():
        return False
    try:
        with _lock(out).acquire(timeout=0):
            return False
    except Timeout:
        return True


def _gpu_lock(i):
    "File of the lock of a GPU"
    return (
        runtime_dir() / f"gpu-{re.sub(r'[^A-Za-z0-9-]', '_', dict(visible_gpus()).get(i, i))}.lock"
    )


@contextmanager
def _gpu(should_stop):
    "Environment of a run that has a GPU of its own; waits until one is free"
    from filelock import FileLock, Timeout

    if not gpu_ids():
        raise ValueError("this run needs a GPU and this machine shows none")
    locks = {i: FileLock(_gpu_lock(i)) for i in gpu_ids()}
    while not should_stop():
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
    on_event,  # called with a dict for each event
    should_stop,  # called several times a second: whether to stop
    wait: bool = False,  # wait for another batch rather than return 'busy'
) -> Outcome:
    "Execute one run unless it is finished"
    from filelock import Timeout

    if not job.force and job.ready:
        return Outcome(job.run, "skipped", job.out)
    start, part, lock = time.monotonic(), partial_file(job.out), _lock(job.out)

    def took():
        return time.monotonic() - start

    try:
        with lock.acquire(timeout=-1 if wait else 0, cancel_check=should_stop):
            if not job.force and job.ready:
                return Outcome(job.run, "skipped", job.out)
            fd = getattr(getattr(lock, "_context", None), "lock_file_fd", None)
            _execute(job, on_event, should_stop, fd)
    except Timeout:
        return Outcome(job.run, "stopped" if should_stop() else "busy", part)
    except KeyboardInterrupt:
        return Outcome(job.run, "stopped", part, took(), "stopped by hand")
    except Exception as e:
        if should_stop():
            return Outcome(job.run, "stopped", part, took(), "stopped by hand")
        return Outcome(job.run, "failed", part, took(), first_line(e))
    return Outcome(job.run, "done", job.out, took())


def _execute(job, on_event, should_stop, lock_fd):
    "Execute a run that nobody else is at, and tell of its cells"
    from contextlib import nullcontext

    def cell(i, of, section, seconds, ok):
        on_event(
            dict(
                run=job.run.name,
                what="cell",
                cell=i,
                of=of,
                section=section,
                seconds=seconds,
                ok=ok,
            )
        )

    def message(line):
        return on_event(dict(run=job.run.name, what="says", text=redact(line)))

    on_event(dict(run=job.run.name, what="started"))
    named = (
        dict(MEMNB_RUN=job.run.results_name, MEMNB_VARIANT=job.run.variant)
        if job.run.profile
        else {}
    )
    with _gpu(should_stop) if job.run.gpu else nullcontext({}) as gpu:
        env = kernel_env(job.threads) | job.env | named | gpu
        execute(
            job.nb,
            job.out,
            job.run.parameters,
            timeout=job.timeout,
            on_cell=cell,
            on_message=message,
            should_stop=should_stop,
            env=env,
            inputs=job.inputs,
            lock_fd=lock_fd,
        )


@contextmanager
def _threads(workers, address, on_event, folder):
    "(submit, stop): start a job in a thread; end all"
    from concurrent.futures import ThreadPoolExecutor
    from threading import Event

    stop = Event()
    cpu, gpu = ThreadPoolExecutor(workers), ThreadPoolExecutor(max(1, len(gpu_ids())))

    def submit(job, wait):
        return (gpu if job.run.gpu else cpu).submit(work, job, on_event, stop.is_set, wait)

    try:
        yield submit, stop.set
    finally:
        for pool in (cpu, gpu):
            pool.shutdown(cancel_futures=True)


def _on_worker(job, wait, topic, flag):
    "`work` on a worker of a Dask cluster: events go to the scheduler, a file says when to stop"
    from distributed import get_worker

    me = get_worker()
    return work(job, lambda e: me.log_event(topic, e), flag.exists, wait)


@contextmanager
def _dask(workers, address, on_event, folder):
    "(submit, stop): as `_threads`, on a Dask cluster"
    from uuid import uuid4

    topic = f"memnb-{uuid4().hex[:8]}"
    flag = folder / ".locks" / f"stop-{topic}"
    flag.parent.mkdir(exist_ok=True)
    with _client_of(workers, address) as client:
        client.subscribe_topic(topic, lambda e: on_event(e[1]))
        pools = {
            g: client.get_executor(pure=False, **(dict(resources=dict(GPU=1)) if g else {}))
            for g in (False, True)
        }

        def submit(job, wait):
            return pools[job.run.gpu].submit(_on_worker, job, wait, topic, flag)

        try:
            yield submit, flag.touch
        finally:
            flag.unlink(missing_ok=True)


@contextmanager
def _client_of(workers, address):
    "Client of the cluster at an address, or of one of our own on this machine"
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise ValueError(
            "Dask is missing: pip install '.[dask]' in the folder of memnb brings it"
        ) from None
    if address:
        try:
            client = Client(address, timeout=10)
        except (OSError, TimeoutError, ValueError) as e:
            raise ValueError(f"no Dask scheduler answers at {address}: {first_line(e)}") from None
        with client:
            yield client
        return
    gpu = dict(GPU=len(gpu_ids())) if gpu_ids() else None
    with (
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            dashboard_address=None,
            resources=gpu,
            silence_logs=50,
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def _collect(jobs, submit, known):
    "Outcomes of jobs as they end; `known` holds the futures, so that it can be gone on with after a stop"
    from concurrent.futures import FIRST_COMPLETED, CancelledError, wait

    known.update({submit(j, False): j for j in jobs})
    while known:
        done, _ = wait(known, timeout=1, return_when=FIRST_COMPLETED)
        for f in done:
            job = known.pop(f)
            try:
                got = f.result()
            except CancelledError:
                continue
            except Exception as e:
                got = Outcome(job.run, "failed", partial_file(job.out), 0, first_line(e))
            if got.status == "busy":
                known[submit(job, True)] = job
            else:
                yield got


def _all(jobs, submit, stop, note):
    "Outcomes of all jobs; Ctrl-C stops them cleanly"
    known, results = {}, []

    def take(outcomes):
        for got in outcomes:
            results.append(got), note(got)

    try:
        take(_collect(jobs, submit, known))
    except KeyboardInterrupt:
        stop()
        for f in known:
            f.cancel()
        take(_collect([], submit, known))
    order = {j.run.name: i for i, j in enumerate(jobs)}
    return sorted(results, key=lambda o: order[o.run.name])


def _values(job):
    return {k: p.default for k, p in parameters(job.nb).items()} | job.run.parameters


def runs_dir(
    name: str,  # profile
    out: Path = None,  # folder of the executed notebooks; default `runs`
) -> Path:  # ValueError when the runs of another profile file are there
    "Folder of the runs of a profile"
    where, file = (
        (Path(out or root() / "runs") / profile_file(name).stem).resolve(),
        profile_file(name).resolve(),
    )
    try:
        mark = (where / ".profile").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        mark = ""
    if mark and mark != _profile_mark(file, where):
        raise ValueError(
            f"{relative_path(where)} holds the runs of another {file.name}: "
            "give this profile another name, or another folder with --out"
        )
    return where


def _profile_mark(file, where):
    "What the folder `where` remembers of its profile file"
    if file.parent == Path(share_dir("profiles")).resolve():
        return "memnb"
    try:
        seen_from_there = os.path.relpath(file, where)
    except ValueError:
        seen_from_there = str(file)  # on another drive
    return checksum(Path(seen_from_there).as_posix())


def _jobs(name, only, params, out, folder, **kw):
    "Jobs of a profile"
    where, here = runs_dir(name, out), kernel_env()
    env = {k: here[k] for k in ("MEMNB_HOME", *FOLDERS) if k in here}  # the same on every worker
    env |= kw.pop("env", {})
    jobs = [
        Job(
            r,
            find(r.notebook, folder).resolve(),
            where / f"{r.name}.ipynb",
            env=env,
            inputs=tuple(INPUTS),
            **kw,
        )
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
    seconds: float = 10,  # for looking beforehand at what cannot work; 0 does not look
) -> list:  # of `Outcome`, in the order of the profile; after Ctrl-C those that had begun
    "Run a profile"
    from datetime import UTC, datetime

    if timeout is not None and timeout < 1:
        raise ValueError(f"timeout: at least 1 second, not {timeout}")
    if workers < 1:
        raise ValueError(f"workers: at least 1, not {workers}")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    where, jobs = _jobs(
        name,
        only,
        params,
        out,
        folder,
        force=force or fresh,
        timeout=timeout,
        threads=max(1, cores() // workers),
        env=dict(MEMNB_FRESH=now) if fresh else {},
    )
    todo = [j for j in jobs if j.force or not j.ready]
    if not todo:
        return [Outcome(j.run, "skipped", j.out) for j in jobs]
    require("papermill", "batch")
    if seconds and not (force or fresh or scheduler):
        known = [
            (j.run.name, j.run.notebook, _values(j)) for j in todo if has_package(j.run.notebook)
        ]
        look_ahead(known, seconds, todo[0].nb.parent)
    where.mkdir(parents=True, exist_ok=True)
    mark = _profile_mark(profile_file(name).resolve(), where)
    with replacing(where / ".profile") as part:
        part.write_text(mark)
    pool = _dask if dask or scheduler else _threads
    with (
        Progress(where, quiet) as shown,
        pool(workers, scheduler, shown.tell, where) as (submit, stop),
    ):
        return _all(jobs, submit, stop, lambda got: _note(got, shown))


def _note(got, shown):
    "Log what became of a run, and say what went wrong"
    if got.status != "skipped":
        shown.tell(
            dict(run=got.run.name, what=got.status, seconds=round(got.seconds, 2), error=got.error)
        )
    if got.status != "failed":
        return
    hint = (
        "; free some space, then the same command goes on" if "No space left" in got.error else ""
    )
    say(f"{got.run.name} failed: {got.error}{hint}; see {relative_path(got.file)}")


def _state(job, last):
    "(state, remark) of a run"
    if job.ready:
        return "done", ""
    what = last.get("what")
    if _is_locked(job.out):
        if what != "cell":
            return "running", "starting"
        return "running", f"cell {last.get('cell')}/{last.get('of')}  {last.get('section')}"
    if what == "failed":
        return "failed", f"{last.get('error')}; see {relative_path(partial_file(job.out))}"
    if what == "stopped":
        return "stopped", "the same command goes on from here"
    if partial_file(job.out).exists():
        return "broken off", "the same command runs it again"
    return "to do", what_changed(job.out, run_parts(job.nb, job.run.parameters, None, job.inputs))


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


def tidy(
    name: str,  # profile
    out: Path = None,  # folder of the executed notebooks; default `runs`
    every: bool = False,  # also the executed notebooks
) -> list:  # removed files; ValueError while a batch is at work there
    "Remove partial notebooks and the log of a profile; locks stay, they are empty files"
    from contextlib import ExitStack

    from filelock import Timeout

    where = runs_dir(name, out)
    busy = [
        f.stem for f in sorted(where.glob(".locks/*.lock")) if _is_locked(where / f"{f.stem}.ipynb")
    ]
    if busy:
        raise ValueError(f"a batch is at {busy[0]}: stop it first")
    gone = [f for f in sorted(where.glob("*.ipynb")) if every or f.name.endswith(".partial.ipynb")]
    with ExitStack() as held:  # nobody begins one of these runs while its files are removed
        for name in dict.fromkeys(
            f.name.removesuffix(".ipynb").removesuffix(".partial") for f in gone
        ):
            try:
                held.enter_context(_lock(where / f"{name}.ipynb").acquire(timeout=0))
            except Timeout:
                raise ValueError(f"a batch is at {name}: stop it first") from None
        gone += [f for f in [where / "batch.jsonl", *([where / ".profile"] * every)] if f.exists()]
        for f in gone:
            f.unlink()
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
            cost = costs(job.run.notebook, _values(job))
        except Exception as e:
            say(f"no estimate for {job.run.name}: {first_line(e)}")
            cost = dict.fromkeys(COSTS)
        known = seconds_known(job)
        answered = cost["cached"] and not cost["calls"]  # what was kept makes this run a short one
        if known and not answered:
            cost["seconds"] = known
        rows.append(
            dict(notebook=job.run.notebook, parameters=job.run.parameters, done=job.ready) | cost
        )
    return rows
