"""Many runs of pages: one at a time or several, on this machine or a cluster; what is finished is not run again.

A *run* is one page with one set of parameters; a *profile* is a list of runs. For each profile there is a folder:

    runs/laptop/tabular.ipynb             an executed notebook, whole; `tabular.partial.ipynb` while it is at work
    runs/laptop/batch.jsonl               what happened, a line an event (`terminal.tell`)
    runs/laptop/.profile                  which profile file the folder belongs to
    runs/laptop/.locks/tabular.lock       held by the batch that is at this run
    runs/laptop/.locks/batch-1a2b3c4d     there as long as a batch is at work: its runs stop when it is removed

From the command line a batch is `memnb run laptop`; from Python

    runs = batch("smoke", only=("capacity",))    # executes what is not finished
    [(run.name, run.status) for run in runs]     # [('capacity', 'done')], or 'skipped', 'failed', 'stopped'
    status("smoke")                              # how a batch is doing, from any process

The order of this module: one run (`work`), where runs are executed (`_executor`), all runs of a batch (`_run_all`),
which they are (`runs_dir`, `runs_of`), the batch (`batch`), and what is said of it (`status`, `batches`, `left_over`,
`estimates`).

Locks belong to processes: the system frees them however a process ends. So a lock that is held means a run in
progress, and nothing has to be cleaned up after a crash.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    CancelledError,
    Executor,
    Future,
    ThreadPoolExecutor,
)
from concurrent.futures import wait as wait_for
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
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


def _is_locked(file: Path) -> bool:
    "Whether somebody holds the lock in a file"
    if not file.exists():
        return False
    lock = FileLock(file)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    except OSError:
        # a lock file of a folder that can only be read: nobody here can hold it
        return False
    lock.release()
    return False


def work(run: Run, alive: Path, force: bool = False) -> Run:
    """Execute a run unless it is finished; its `status` and `error` are set

    Where another batch is at the same run, that is waited for.

    Args:
        run: what to execute
        alive: file of the batch, as of `_batch_file`; the run stops when it is removed
        force: execute it although it is finished

    Returns:
        the same run; of a worker of a cluster a copy

    Raises CancelledError where the batch was stopped before the run had begun.
    """
    if not alive.exists():
        raise CancelledError
    try:
        # waits for another batch that is at this run; a `Timeout` where ours is stopped
        with FileLock(run.lock).acquire(
            cancel_check=lambda: not alive.exists()
        ):
            # only now: whoever held the lock may have finished it
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
def _executor(
    workers: int, dask: bool, scheduler: str | None
) -> Iterator[Executor]:
    "Executor of runs: threads, each of which waits for a process, or a Dask cluster, given or of this machine"
    if not (dask or scheduler):
        with ThreadPoolExecutor(workers) as pool:
            yield pool
        return
    require("distributed", "dask")
    from distributed import Client

    # a cluster of this machine: processes, since each run computes for itself
    own_cluster = dict(
        n_workers=workers,
        threads_per_worker=1,
        dashboard_address=None,
        silence_logs=50,  # logging.CRITICAL
    )
    try:
        # seconds until it counts as absent; one that is there answers in one
        client = Client(
            scheduler, timeout=10, **({} if scheduler else own_cluster)
        )
    except (OSError, TimeoutError, ValueError) as error:
        why = f"no Dask scheduler answers at {scheduler}: {first_line(error)}"
        raise ValueError(why) from None
    with client:
        # not pure: the same run may be computed again, as with `force`
        yield client.get_executor(pure=False)


def _run_of(future: Future, run: Run) -> Run | None:
    "The run that a future gives; None where it was stopped before it had begun"
    try:
        # of a cluster a copy, so `run` itself does not know how it ended
        return future.result()
    except CancelledError:
        return None
    except Exception as error:  # a worker of a cluster that was lost
        run.status = "failed"
        run.error = first_line(error)
        return run


def _tell_end(run: Run, batch_name: str) -> None:
    "Put into the log how a run has ended, and say where it failed"
    if run.status != "skipped":
        event = dict(run=run.name, batch=batch_name, what=run.status)
        tell(
            run.out.parent,
            event | dict(seconds=round(run.seconds, 2), error=run.error),
        )
    if run.status == "failed":
        say(f"{run.name} failed: {run.error}; see {relative_path(run.partial)}")


def _run_all(
    runs: list[Run],
    submit: Callable[[Run], Future],
    alive: Path,
    show_progress: Callable[[], None],
) -> list[Run]:
    """All runs that had begun, in their order

    Ctrl-C removes the file of the batch and goes on waiting: each run at work notices, keeps its cells, and ends.

    Args:
        runs: what to execute
        submit: gives a run to the executor; returns its future
        alive: file of the batch, as of `_batch_file`
        show_progress: draws how far the runs at work are
    """
    # the longest first, so that at the end no worker waits long for another
    waiting = {submit(run): run for run in longest_first(runs)}
    ended = {}
    while waiting:
        try:
            # twice a second progress is shown and Ctrl-C heard
            done, _ = wait_for(
                waiting, timeout=0.5, return_when=FIRST_COMPLETED
            )
            show_progress()
            for future in done:
                run = _run_of(future, waiting.pop(future))
                if run:
                    ended[run.name] = run
                    _tell_end(run, alive.name)
        except KeyboardInterrupt:
            alive.unlink(missing_ok=True)
            for future in waiting:
                future.cancel()
    return [ended[run.name] for run in runs if run.name in ended]


def _profile_mark(file: Path, folder: Path) -> str:
    """What the file `.profile` holds: 'memnb' for a profile that ships, else a checksum of the place of its file

    With it two profile files of one name are told apart, and no path stands in a folder that is passed on.
    """
    if file.parent == share_dir("profiles").resolve():
        return "memnb"
    return checksum(Path(os.path.relpath(file, folder)).as_posix())


def runs_dir(name: str, out: Path | None = None) -> Path:
    """Folder of the runs of a profile

    Args:
        name: of the profile, or its file
        out: folder of all runs; default: `runs` in the working folder

    Raises ValueError where the folder holds the runs of another profile file of this name.
    """
    file = profile_file(name).resolve()
    folder = (Path(out or root() / "runs") / file.stem).resolve()
    mark = folder / ".profile"
    if mark.is_file() and mark.read_text(
        encoding="utf-8"
    ).strip() != _profile_mark(file, folder):
        cure = "give this profile another name, or another folder with --out"
        raise ValueError(
            f"{relative_path(folder)} holds the runs of another {file.name}: {cure}"
        )
    return folder


def runs_of(
    name: str,
    only: tuple[str, ...] = (),
    params: dict | None = None,
    out: Path | None = None,
) -> list[Run]:
    """The runs of a profile that are wanted

    Args:
        name: of the profile, or its file
        only: words of papers; default: all
        params: parameters that replace those of the profile
        out: folder of all runs; default: `runs` in the working folder

    Returns:
        in the order of the profile; where each is executed (`out`), and with which variables (`env`), is set

    Raises ValueError where the place of a run is taken by a folder, or by a notebook that no run has written.
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


def _need_write(runs: list[Run]) -> None:
    "ValueError for a folder that cannot be written, before hours are spent on what goes into it"
    # a run of the profile `smoke` writes no rows and no figures
    for run in [run for run in runs if run.profile != "smoke"]:
        places = [
            root() / "data/papers" / run.notebook / "measured",
            figures_dir(run.profile),
        ]
        for place in places:
            nearest = next(
                p for p in (place, *place.absolute().parents) if p.exists()
            )
            if not os.access(nearest, os.W_OK):
                fault = "cannot be written, and the run needs it"
                raise ValueError(f"{relative_path(nearest)} {fault}")


def batch(
    name: str,
    only: tuple[str, ...] = (),
    params: dict | None = None,
    out: Path | None = None,
    *,
    force: bool = False,
    fresh: bool = False,
    timeout: int | None = None,
    quiet: bool = False,
    workers: int = 1,
    dask: bool = False,
    scheduler: str | None = None,
) -> list[Run]:
    """Run a profile; an error in one notebook does not stop the others

    Args:
        name: as of `runs_of`
        only: as of `runs_of`
        params: as of `runs_of`
        out: as of `runs_of`
        force: run again what is finished
        fresh: ask and train again too what is kept; implies `force`
        timeout: seconds for each run
        quiet: no progress
        workers: runs at a time
        dask: whether workers are processes of a Dask cluster
        scheduler: address of a Dask scheduler that runs already

    Returns:
        in the order of the profile, each with its `status` ('done', 'skipped' where it was finished before, 'failed'
        or 'stopped') and the first line of its `error`; after Ctrl-C those that had begun

    Raises ValueError for less than one second or worker, a folder that cannot be written, and a scheduler that does
    not answer; what `runs_of` raises; ModuleNotFoundError where what a batch needs is not installed.
    """
    for option, number in dict(timeout=timeout, workers=workers).items():
        if number is not None and number < 1:
            raise ValueError(f"{option}: at least 1, not {number}")
    # the cores are divided among the runs at work
    env = kernel_env(max(1, cores() // workers))
    if fresh:
        # one moment for all: what one run asked anew, the others take from the store
        env["MEMNB_FRESH"] = datetime.now(UTC).isoformat(timespec="seconds")
    runs = runs_of(name, only, params, out)
    for run in runs:
        run.timeout = timeout
        run.env = run.env | env
        # so it stays where nothing is to be done; `work` sets it anew
        run.status = "skipped"
    if not (force or fresh) and all(map(finished, runs)):
        return runs
    require("papermill", "batch")
    _need_write(runs)
    folder = runs[0].out.parent
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / ".profile") as part:
        part.write_text(_profile_mark(profile_file(name).resolve(), folder))
    with (
        _batch_file(folder / ".locks") as alive,
        _executor(workers, dask, scheduler) as pool,
        progress(folder, alive.name, quiet) as show_progress,
    ):
        return _run_all(
            runs,
            lambda run: pool.submit(work, run, alive, force or fresh),
            alive,
            show_progress,
        )


@contextmanager
def _batch_file(folder: Path) -> Iterator[Path]:
    """A file that is there as long as a batch is at work; its runs, here or on other machines, look for it

    A lock beside it is held by the process of the batch. A batch that was killed leaves its file, but not its lock:
    the next batch removes files whose locks are free, and the runs that still work for nobody stop.
    """
    folder.mkdir(exist_ok=True)
    alive = folder / f"batch-{uuid4().hex[:8]}"
    held = FileLock(f"{alive}.lock")
    # under a lock of all batches: none is looked at between its file and its lock
    with FileLock(folder / "begin.lock"):
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


class RunState(NamedTuple):
    "How a run is doing"

    run: str  # its name
    state: str  # 'done', 'running', 'failed', 'stopped', 'broken off' (killed) or 'to do'
    remark: str


def _state_of(run: Run, last: dict) -> tuple[str, str]:
    "(state, remark) of a run, from its files, its lock and the last event that its log has"
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
    name: str,
    only: tuple[str, ...] = (),
    params: dict | None = None,
    out: Path | None = None,
) -> list[RunState]:
    """How a batch is doing, by its files, locks and log; nothing is started

    Args:
        name: as of `runs_of`
        only: as of `runs_of`
        params: as of `runs_of`
        out: as of `runs_of`

    Returns:
        one for each run, in the order of the profile
    """
    last = last_events(runs_dir(name, out))
    runs = runs_of(name, only, params, out)
    states = []
    for run in runs:
        state, remark = _state_of(run, last.get(run.name, {}))
        states.append(RunState(run.name, state, remark))
    return states


class BatchSummary(NamedTuple):
    "A batch in a folder of runs"

    profile: str
    counts: str  # of runs by their states, as '3 done, 1 failed'
    heard: str  # when its log was last written to, UTC


def _last_state(folder: Path, run: str, event: dict) -> str:
    "How a run of a folder ended, as 'done', by its last event and its lock"
    if _is_locked(folder / ".locks" / f"{run}.lock"):
        return "running"
    kind = str(event.get("what"))
    # it began, nobody is at it, and nothing tells of its end: it was killed
    return "broken off" if kind in ("started", "cell") else kind


def batches(out: Path | None = None) -> list[BatchSummary]:
    """All batches of a folder, by their logs

    Args:
        out: folder of all runs; default: `runs` in the working folder

    Returns:
        one for each folder with a log, by name
    """
    summaries = []
    for log in sorted(Path(out or root() / "runs").glob("*/batch.jsonl")):
        last = last_events(log.parent)
        states = Counter(
            _last_state(log.parent, run, event) for run, event in last.items()
        )
        counts = ", ".join(
            f"{count} {state}" for state, count in states.items()
        )
        heard = max(
            (str(event.get("when", "")) for event in last.values()), default=""
        )
        # an ISO moment to the minute
        heard = heard[:16].replace("T", " ")
        summaries.append(BatchSummary(log.parent.name, counts, heard))
    return summaries


# Letters of the name of a table by which it is compared. `results` cuts a name of more
# than 150 letters to 140, and a checksum follows: 120 are never cut.
_COMPARED = 120


def left_over(name: str) -> str:
    """Tables of a profile that none of its runs writes any more, since a run was taken out of it

    Args:
        name: of the profile, or its file

    Returns:
        names of the tables, as 'icl/a, icl/b'; '' where there are none
    """
    runs = select(name)
    word = profile_file(name).stem
    left = []
    for paper in dict.fromkeys(run.notebook for run in runs):
        names = tuple(
            f"{run.results_name}."[:_COMPARED]
            for run in runs
            if run.notebook == paper
        )
        files = sorted(
            (root() / "data/papers" / paper / "measured").glob(
                f"{word}[.-]*.parquet"
            )
        )
        for file in files:
            if not file.name.startswith(names):
                left.append(f"{paper}/{file.stem}")
    return ", ".join(left)


def _cost_of(run: Run) -> tuple[dict, str]:
    "(what a run would cost, as of `costs`; why that is not known, '' where it is)"
    defaults = {
        name: parameter.default
        for name, parameter in parameters(run.nb).items()
    }
    values = defaults | run.parameters
    is_served = str(values.get("model", "")).startswith("openai:")
    # Asked first: `costs` imports the paper, which fails with a less helpful message.
    needed = ["openai"] if is_served else ["torch", "transformers"]
    if why := lacking(*needed):
        return dict.fromkeys(COSTS), why
    try:
        return costs(run.notebook, values), ""
    except ModuleNotFoundError as error:
        return dict.fromkeys(COSTS), missing(error.name) or first_line(error)
    except Exception as error:
        return dict.fromkeys(COSTS), first_line(error)


def estimates(
    name: str,
    only: tuple[str, ...] = (),
    params: dict | None = None,
    out: Path | None = None,
) -> list[dict]:
    """What a batch would do and cost; a finished run costs nothing, and is not looked at, which may take long

    Args:
        name: as of `runs_of`
        only: as of `runs_of`
        params: as of `runs_of`
        out: as of `runs_of`

    Returns:
        a dict of each run: notebook, parameters, done, and the keys of `costs`, None where they are not known
    """
    rows = []
    unknown = {}
    for run in runs_of(name, only, params, out):
        is_done = finished(run)
        cost, why = (dict.fromkeys(COSTS), "") if is_done else _cost_of(run)
        if why:
            unknown.setdefault(why, []).append(run.name)
        seconds = seconds_known(run)
        # The time that the run took before, unless all its answers are stored by now:
        # then it will be shorter.
        all_stored = cost["cached"] and not cost["calls"]
        if seconds and not all_stored:
            cost["seconds"] = seconds
        rows.append(
            dict(notebook=run.notebook, parameters=run.parameters, done=is_done)
            | cost
        )
    for why, names in unknown.items():
        say(f"no estimate for {', '.join(names)}: {why}")
    return rows
