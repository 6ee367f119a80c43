"""Many runs: their locks, several at a time, what is finished reused."""

import os
from collections import Counter
from collections.abc import Callable
from concurrent.futures import (
    FIRST_COMPLETED,
    CancelledError,
    ThreadPoolExecutor,
)
from concurrent.futures import wait as wait_for
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from filelock import FileLock, Timeout

from ..core import (
    cores,
    figures_dir,
    lacking,
    missing,
    replacing,
    require,
    root,
    say,
    share_dir,
)
from ..papers import find, parameters
from .estimate import COSTS, costs, longest_first, seconds_known
from .identity import checksum, finished, what_changed
from .kernels import execute, kernel_env
from .ours import is_foreign_notebook
from .profiles import Run, profile_file, select
from .terminal import first_line, last_events, progress, relative_path, tell


def _is_locked(file: Path):
    "Whether somebody holds the lock in a file"
    if not file.exists():
        return False
    try:
        FileLock(file).acquire(timeout=0).lock.release()
    except OSError as error:  # held, or in a folder that only can be read
        return isinstance(error, Timeout)
    return False


def work(run: Run, alive: Path, force: bool = False) -> Run:
    """Execute a run unless it is finished, as long as the file `alive` is there; its `status` is set.

    Another batch that is at it is waited for. CancelledError where it was stopped before it had begun.
    """
    if not alive.exists():
        raise CancelledError
    try:
        with FileLock(run.lock).acquire(
            cancel_check=lambda: not alive.exists()
        ):
            if finished(run) and not force:
                run.status = "skipped"
                return run
            tell(
                run.out.parent,
                dict(run=run.name, batch=alive.name, what="started"),
            )
            execute(run, alive)
    except Timeout:
        raise CancelledError from None
    except Exception as error:
        run.error = first_line(error)
    if not run.error:
        run.status = "done"
    else:
        run.status = "failed" if alive.exists() else "stopped"
    return run


@contextmanager
def _pool(workers: int, dask: bool, scheduler: str | None):
    "Executor of runs: threads, each of which waits for a process, or a Dask cluster, given or of this machine"
    if not (dask or scheduler):
        with ThreadPoolExecutor(workers) as pool:
            yield pool
        return
    require("distributed", "dask")
    from distributed import Client

    own_cluster = dict(
        n_workers=workers,
        threads_per_worker=1,
        dashboard_address=None,
        silence_logs=50,  # logging.CRITICAL
    )
    try:
        client = Client(
            scheduler, timeout=10, **({} if scheduler else own_cluster)
        )
    except (OSError, TimeoutError, ValueError) as error:
        why = f"no Dask scheduler answers at {scheduler}: {first_line(error)}"
        raise ValueError(why) from None
    with client:
        yield client.get_executor(pure=False)


def _result(future: Any, run: Run):
    "The run that a future gives; None where it was stopped before it had begun"
    try:
        return future.result()  # of a cluster a copy
    except CancelledError:
        return None
    except Exception as error:  # a worker of a cluster that was lost
        run.status = "failed"
        run.error = first_line(error)
        return run


def _tell_end(run: Run, batch_name: str):
    "Put into the log how a run has ended, and say where it failed"
    if run.status != "skipped":
        event = dict(run=run.name, batch=batch_name, what=run.status)
        tell(
            run.out.parent,
            event | dict(seconds=round(run.seconds, 2), error=run.error),
        )
    if run.status == "failed":
        say(f"{run.name} failed: {run.error}; see {relative_path(run.partial)}")


def _all(runs: list, submit: Callable, alive: Path, look: Callable):
    "All runs that had begun, in their order; Ctrl-C stops them cleanly"
    waiting = {submit(run): run for run in longest_first(runs)}
    ended = {}
    while waiting:
        try:
            done, _ = wait_for(
                waiting, timeout=0.5, return_when=FIRST_COMPLETED
            )
            look()
            for future in done:
                run = _result(future, waiting.pop(future))
                if run:
                    ended[run.name] = run
                    _tell_end(run, alive.name)
        except KeyboardInterrupt:
            alive.unlink(missing_ok=True)
            for future in waiting:
                future.cancel()
    return [ended[run.name] for run in runs if run.name in ended]


def _mark(file: Path, folder: Path):
    "What a folder of runs remembers of its profile file, which it does not name"
    if file.parent == share_dir("profiles").resolve():
        return "memnb"
    return checksum(Path(os.path.relpath(file, folder)).as_posix())


def runs_dir(name: str, out: Path = None) -> Path:
    "Folder of the runs of a profile, as in `runs_of`; ValueError where those of another file are there"
    file = profile_file(name).resolve()
    folder = (Path(out or root() / "runs") / file.stem).resolve()
    mark = folder / ".profile"
    if mark.is_file() and mark.read_text(encoding="utf-8").strip() != _mark(
        file, folder
    ):
        cure = "give this profile another name, or another folder with --out"
        raise ValueError(
            f"{relative_path(folder)} holds the runs of another {file.name}: {cure}"
        )
    return folder


def runs_of(
    name: str, only: tuple = (), params: dict = None, out: Path = None
) -> list:
    """The runs of a profile that are wanted, list of `Run` in its order: those of the papers `only`, of all by default.

    Parameters replace those of the profile; `out` is the folder of all executed notebooks, by default `runs`.
    """
    folder = runs_dir(name, out)
    runs = select(name, only, params)
    for run in runs:
        run.nb = find(run.notebook).resolve()
        run.out = folder / f"{run.name}.ipynb"
        run.env = dict(MEMNB_RUN=run.results_name, MEMNB_VARIANT=run.variant)
        if run.out.is_dir():
            raise ValueError(
                f"{relative_path(run.out)} is a folder: move it away"
            )
        if is_foreign_notebook(run.out):
            fault = "is a notebook that no run has written: move it away, or name another --out"
            raise ValueError(f"{relative_path(run.out)} {fault}")
    return runs


def _need_write(runs: list):
    "ValueError for a folder that cannot be written, before hours are spent on what goes into it"
    for run in runs:
        places = [
            root() / "data/papers" / run.notebook / "measured",
            figures_dir(run.profile),
        ]
        for place in places if run.profile != "smoke" else ():
            nearest = next(
                p for p in (place, *place.absolute().parents) if p.exists()
            )
            if not os.access(nearest, os.W_OK):
                fault = "cannot be written, and the run needs it"
                raise ValueError(f"{relative_path(nearest)} {fault}")


def batch(
    name: str,
    only: tuple = (),
    params: dict = None,
    out: Path = None,
    *,
    force: bool = False,
    fresh: bool = False,
    timeout: int = None,
    quiet: bool = False,
    workers: int = 1,
    dask: bool = False,
    scheduler: str = None,
) -> list:
    """Run a profile, chosen as in `runs_of`; an error in one notebook does not stop the others

    Args:
        force: run again what is finished
        fresh: ask and train again too what is kept; implies `force`
        timeout: seconds for each run
        quiet: no progress
        workers: runs at a time
        dask: whether workers are processes of a Dask cluster
        scheduler: address of a Dask scheduler that runs already

    Returns:
        of `Run`, in the order of the profile; after Ctrl-C those that had begun
    """
    for option, number in dict(timeout=timeout, workers=workers).items():
        if number is not None and number < 1:
            raise ValueError(f"{option}: at least 1, not {number}")
    env = kernel_env(max(1, cores() // workers))
    if fresh:
        env["MEMNB_FRESH"] = datetime.now(UTC).isoformat(timespec="seconds")
    runs = runs_of(name, only, params, out)
    for run in runs:
        run.timeout = timeout
        run.env = run.env | env
        run.status = "skipped"
    if not (force or fresh) and all(map(finished, runs)):
        return runs
    require("papermill", "batch")
    _need_write(runs)
    folder = runs[0].out.parent
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / ".profile") as part:
        part.write_text(_mark(profile_file(name).resolve(), folder))
    with (
        _alive(folder / ".locks") as alive,
        _pool(workers, dask, scheduler) as pool,
        progress(folder, alive.name, quiet) as look,
    ):
        return _all(
            runs,
            lambda run: pool.submit(work, run, alive, force or fresh),
            alive,
            look,
        )


@contextmanager
def _alive(folder: Path):
    """A file that is there as long as a batch is at work, for its runs on this machine and on others.

    Its lock is free once its process is gone, however that ended: the next batch removes what a killed one has left.
    """
    folder.mkdir(exist_ok=True)
    alive = folder / f"batch-{uuid4().hex[:8]}"
    held = FileLock(f"{alive}.lock")
    with FileLock(
        folder / "begin.lock"
    ):  # none is looked at between its beginning and its lock
        for lock in folder.glob("batch-*.lock"):
            if not _is_locked(lock):
                lock.with_suffix("").unlink(missing_ok=True)
                lock.unlink(missing_ok=True)
        held.acquire()
        alive.touch()
    try:
        yield alive
    finally:
        alive.unlink(missing_ok=True)
        held.release()
        Path(held.lock_file).unlink(missing_ok=True)


def _state(run: Run, last: dict):
    "(state, remark) of a run, seen from outside: a lock that is held is a run in progress"
    event = last.get("what")
    if finished(run):
        return "done", ""
    if _is_locked(run.lock):
        if event != "cell":
            return "running", "starting"
        return (
            "running",
            f"cell {last.get('cell')}/{last.get('of')}  {last.get('section')}",
        )
    if event == "failed":
        return (
            "failed",
            f"{last.get('error')}; see {relative_path(run.partial)}",
        )
    if event == "stopped" or run.partial.exists():
        state = "stopped" if event == "stopped" else "broken off"
        return state, "the same command goes on from here"
    return "to do", what_changed(run)


def status(
    name: str, only: tuple = (), params: dict = None, out: Path = None
) -> list:
    "How a batch is doing, chosen as in `runs_of`: (run, state, remark) of each run"
    last = last_events(runs_dir(name, out))
    runs = runs_of(name, only, params, out)
    return [(run.name, *_state(run, last.get(run.name, {}))) for run in runs]


def _end_of(folder: Path, run: Run, event: dict):
    "How a run of a folder ended, as 'done', by its last event and its lock"
    if _is_locked(folder / ".locks" / f"{run}.lock"):
        return "running"
    kind = str(event.get("what"))
    return "broken off" if kind in ("started", "cell") else kind


def batches(out: Path = None) -> list:
    "All batches of a folder: (profile, how its runs ended, when something was last heard of them)"
    rows = []
    for log in sorted(Path(out or root() / "runs").glob("*/batch.jsonl")):
        last = last_events(log.parent)
        states = Counter(
            _end_of(log.parent, run, event) for run, event in last.items()
        )
        counts = ", ".join(
            f"{count} {state}" for state, count in states.items()
        )
        heard = max(
            (str(event.get("when", "")) for event in last.values()), default=""
        )
        rows.append((log.parent.name, counts, heard[:16].replace("T", " ")))
    return rows


def left_over(name: str) -> str:
    "Tables of a profile that none of its runs writes any more, as 'a, b': a run was taken out of it"
    runs = select(name)
    word = profile_file(name).stem
    left = []
    for paper in dict.fromkeys(run.notebook for run in runs):
        # a long name is cut there
        names = tuple(
            f"{run.results_name}."[:120]
            for run in runs
            if run.notebook == paper
        )
        files = sorted(
            (root() / "data/papers" / paper / "measured").glob(
                f"{word}[.-]*.parquet"
            )
        )
        left += [
            f"{paper}/{file.stem}"
            for file in files
            if not file.name.startswith(names)
        ]
    return ", ".join(left)


def _cost(run: Run):
    "The keys of `costs` of a run, and why they are not known: text, '' where they are; a finished run costs nothing"
    values = {
        name: one.default for name, one in parameters(run.nb).items()
    } | run.parameters
    is_served = str(values.get("model", "")).startswith("openai:")
    # before all that a paper imports
    if why := lacking(
        *(["openai"] if is_served else ["torch", "transformers"])
    ):
        return dict.fromkeys(COSTS), why
    try:
        return costs(run.notebook, values), ""
    except ModuleNotFoundError as error:
        return dict.fromkeys(COSTS), missing(error.name) or first_line(error)
    except Exception as error:
        return dict.fromkeys(COSTS), first_line(error)


def estimates(
    name: str, only: tuple = (), params: dict = None, out: Path = None
) -> list:
    """What a batch, as of `runs_of`, would do and cost: of each run notebook, parameters, done, and the keys of `costs`.

    What a finished run would cost is not asked, which may take long.
    """
    rows = []
    unknown = {}
    for run in runs_of(name, only, params, out):
        is_done = finished(run)
        cost, why = (dict.fromkeys(COSTS), "") if is_done else _cost(run)
        if why:
            unknown.setdefault(why, []).append(run.name)
        seconds = seconds_known(run)
        # kept answers make it a short one
        if seconds and not (cost["cached"] and not cost["calls"]):
            cost["seconds"] = seconds
        rows.append(
            dict(notebook=run.notebook, parameters=run.parameters, done=is_done)
            | cost
        )
    for why, names in unknown.items():
        say(f"no estimate for {', '.join(names)}: {why}")
    return rows
