"""Many runs: their locks, several at a time, what is finished reused."""

import os
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, CancelledError, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from filelock import FileLock, Timeout

from ..core import cores, figures_dir, missing, replacing, require, root, say, share_dir
from ..papers import find, parameters
from .estimate import COSTS, costs, longest_first, seconds_known
from .identity import checksum, finished, what_changed
from .kernels import execute, kernel_env
from .ours import is_foreign_notebook
from .profiles import Run, profile_file, select
from .terminal import first_line, last_events, progress, relative_path, tell


def _is_locked(file):
    "Whether somebody holds the lock in a file"
    if file.exists():
        try:
            FileLock(file).acquire(timeout=0).lock.release()
        except OSError as e:  # or a folder that only can be read
            return isinstance(e, Timeout)
    return False


def work(run: Run, alive: Path, force: bool = False) -> Run:
    """Execute a run unless it is finished, as long as the file `alive` is there; its `status` is set.

    Another batch that is at it is waited for. CancelledError where it was stopped before it had begun.
    """
    if not alive.exists():
        raise CancelledError
    try:
        with FileLock(run.lock).acquire(cancel_check=lambda: not alive.exists()):
            if finished(run) and not force:
                run.status = "skipped"
                return run
            tell(run.out.parent, dict(run=run.name, batch=alive.name, what="started"))
            execute(run, alive)
    except Timeout:
        raise CancelledError from None
    except Exception as e:
        run.error = first_line(e)
    run.status = "done" if not run.error else "failed" if alive.exists() else "stopped"
    return run


@contextmanager
def _pool(workers, dask, scheduler):
    "Executor of runs: threads, each of which waits for a process, or a Dask cluster, given or of this machine"
    if not (dask or scheduler):
        with ThreadPoolExecutor(workers) as pool:
            yield pool
        return
    require("distributed", "dask")
    from distributed import Client

    here = dict(n_workers=workers, threads_per_worker=1, dashboard_address=None, silence_logs=50)
    try:
        client = Client(scheduler, timeout=10, **({} if scheduler else here))
    except (OSError, TimeoutError, ValueError) as e:
        raise ValueError(f"no Dask scheduler answers at {scheduler}: {first_line(e)}") from None
    with client:
        yield client.get_executor(pure=False)


def _all(runs, submit, alive, look):
    "All runs that had begun, in their order; Ctrl-C stops them cleanly"
    known, ended = {submit(r): r for r in longest_first(runs)}, {}
    while known:
        try:
            done, _ = wait_for(known, timeout=0.5, return_when=FIRST_COMPLETED)
            look()
            for f in done:
                run = known.pop(f)
                try:
                    run = f.result()  # of a cluster a copy
                except CancelledError:
                    continue
                except Exception as e:  # a worker of a cluster that was lost
                    run.status, run.error = "failed", first_line(e)
                ended[run.name] = run
                if run.status != "skipped":
                    event = dict(run=run.name, batch=alive.name, what=run.status)
                    event |= dict(seconds=round(run.seconds, 2), error=run.error)
                    tell(run.out.parent, event)
                if run.status == "failed":
                    say(f"{run.name} failed: {run.error}; see {relative_path(run.partial)}")
        except KeyboardInterrupt:
            alive.unlink(missing_ok=True)
            for f in known:
                f.cancel()
    return [ended[r.name] for r in runs if r.name in ended]


def _mark(file, where):
    "What a folder of runs remembers of its profile file, which it does not name"
    ships = file.parent == share_dir("profiles").resolve()
    return "memnb" if ships else checksum(Path(os.path.relpath(file, where)).as_posix())


def runs_dir(name: str, out: Path = None) -> Path:
    "Folder of the runs of a profile, as in `runs_of`; ValueError where those of another file are there"
    file = profile_file(name).resolve()
    where = (Path(out or root() / "runs") / file.stem).resolve()
    mark = where / ".profile"
    if mark.is_file() and mark.read_text(encoding="utf-8").strip() != _mark(file, where):
        how = "give this profile another name, or another folder with --out"
        raise ValueError(f"{relative_path(where)} holds the runs of another {file.name}: {how}")
    return where


def runs_of(name: str, only: tuple = (), params: dict = None, out: Path = None) -> list:
    """The runs of a profile that are wanted, list of `Run` in its order: those of the papers `only`, of all by default.

    Parameters replace those of the profile; `out` is the folder of all executed notebooks, by default `runs`.
    """
    where, runs = runs_dir(name, out), select(name, only, params)
    for run in runs:
        run.nb, run.out = find(run.notebook).resolve(), where / f"{run.name}.ipynb"
        run.env = dict(MEMNB_RUN=run.results_name, MEMNB_VARIANT=run.variant)
        if run.out.is_dir():
            raise ValueError(f"{relative_path(run.out)} is a folder: move it away")
        if is_foreign_notebook(run.out):
            what = "is a notebook that no run has written: move it away, or name another --out"
            raise ValueError(f"{relative_path(run.out)} {what}")
    return runs


def batch(
    name: str,
    only: tuple = (),
    params: dict = None,
    out: Path = None,
    *,
    force: bool = False,  # run again what is finished
    fresh: bool = False,  # ask and train again too what is kept; implies `force`
    timeout: int = None,  # seconds for each run
    quiet: bool = False,  # no progress
    workers: int = 1,  # runs at a time
    dask: bool = False,  # whether workers are processes of a Dask cluster
    scheduler: str = None,  # address of a Dask scheduler that runs already
) -> list:  # of `Run`, in the order of the profile; after Ctrl-C those that had begun
    "Run a profile, chosen as in `runs_of`; an error in one notebook does not stop the others"
    for what, number in dict(timeout=timeout, workers=workers).items():
        if number is not None and number < 1:
            raise ValueError(f"{what}: at least 1, not {number}")
    env = kernel_env(max(1, cores() // workers))
    if fresh:
        env["MEMNB_FRESH"] = datetime.now(UTC).isoformat(timespec="seconds")
    runs = runs_of(name, only, params, out)
    for run in runs:
        run.timeout, run.env, run.status = timeout, run.env | env, "skipped"
    if not (force or fresh) and all(map(finished, runs)):
        return runs
    require("papermill", "batch")
    for run in runs:  # what cannot be written is said before hours are spent on it
        tables = root() / "data/papers" / run.notebook / "measured"
        for place in (tables, figures_dir(run.profile)) * (run.profile != "smoke"):
            there = next(p for p in (place, *place.absolute().parents) if p.exists())
            if not os.access(there, os.W_OK):
                raise ValueError(f"{relative_path(there)} cannot be written, and the run needs it")
    where = runs[0].out.parent
    where.mkdir(parents=True, exist_ok=True)
    with replacing(where / ".profile") as part:
        part.write_text(_mark(profile_file(name).resolve(), where))
    with (
        _alive(where / ".locks") as alive,
        _pool(workers, dask, scheduler) as pool,
        progress(where, alive.name, quiet) as look,
    ):
        return _all(runs, lambda r: pool.submit(work, r, alive, force or fresh), alive, look)


@contextmanager
def _alive(folder):
    """A file that is there as long as a batch is at work, for its runs on this machine and on others.

    Its lock is free once its process is gone, however that ended: the next batch removes what a killed one has left.
    """
    folder.mkdir(exist_ok=True)
    alive = folder / f"batch-{uuid4().hex[:8]}"
    held = FileLock(f"{alive}.lock")
    with FileLock(folder / "begin.lock"):  # none is looked at between its beginning and its lock
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


def _state(run, last):
    "(state, remark) of a run, seen from outside: a lock that is held is a run in progress"
    what = last.get("what")
    if finished(run):
        return "done", ""
    if _is_locked(run.lock):
        if what != "cell":
            return "running", "starting"
        return "running", f"cell {last.get('cell')}/{last.get('of')}  {last.get('section')}"
    if what == "failed":
        return "failed", f"{last.get('error')}; see {relative_path(run.partial)}"
    if what == "stopped" or run.partial.exists():
        state = "stopped" if what == "stopped" else "broken off"
        return state, "the same command goes on from here"
    return "to do", what_changed(run)


def status(name: str, only: tuple = (), params: dict = None, out: Path = None) -> list:
    "How a batch is doing, chosen as in `runs_of`: (run, state, remark) of each run"
    last = last_events(runs_dir(name, out))
    runs = runs_of(name, only, params, out)
    return [(r.name, *_state(r, last.get(r.name, {}))) for r in runs]


def batches(out: Path = None) -> list:
    "All batches of a folder: (profile, how its runs ended, when something was last heard of them)"
    rows = []
    for log in sorted(Path(out or root() / "runs").glob("*/batch.jsonl")):
        last, states = last_events(log.parent), Counter()
        for run, event in last.items():
            going = _is_locked(log.parent / ".locks" / f"{run}.lock")
            how = "running" if going else str(event.get("what"))
            states["broken off" if how in ("started", "cell") else how] += 1
        told = ", ".join(f"{n} {how}" for how, n in states.items())
        heard = max((str(e.get("when", "")) for e in last.values()), default="")
        rows.append((log.parent.name, told, heard[:16].replace("T", " ")))
    return rows


def left_over(name: str) -> str:
    "Tables of a profile that none of its runs writes any more, as 'a, b': a run was taken out of it"
    runs, word, out = select(name), profile_file(name).stem, []
    for paper in dict.fromkeys(r.notebook for r in runs):
        known = tuple(f"{r.results_name}."[:120] for r in runs if r.notebook == paper)
        found = (root() / "data/papers" / paper / "measured").glob(f"{word}[.-]*.parquet")
        out += [f"{paper}/{f.stem}" for f in sorted(found) if not f.name.startswith(known)]
    return ", ".join(out)


def _cost(run):
    "The keys of `costs` of a run, and why they are not known: text, '' where they are; a finished run costs nothing"
    values = {name: one.default for name, one in parameters(run.nb).items()} | run.parameters
    try:
        return costs(run.notebook, values), ""
    except ModuleNotFoundError as error:
        return dict.fromkeys(COSTS), missing(error.name) or first_line(error)
    except Exception as error:
        return dict.fromkeys(COSTS), first_line(error)


def estimates(name: str, only: tuple = (), params: dict = None, out: Path = None) -> list:
    """What a batch, as of `runs_of`, would do and cost: of each run notebook, parameters, done, and the keys of `costs`.

    What a finished run would cost is not asked, which may take long.
    """
    rows, unknown = [], {}
    for run in runs_of(name, only, params, out):
        is_done = finished(run)
        cost, why = (dict.fromkeys(COSTS), "") if is_done else _cost(run)
        if why:
            unknown.setdefault(why, []).append(run.name)
        known = seconds_known(run)
        # kept answers make it a short one
        if known and not (cost["cached"] and not cost["calls"]):
            cost["seconds"] = known
        rows.append(dict(notebook=run.notebook, parameters=run.parameters, done=is_done) | cost)
    for why, names in unknown.items():
        say(f"no estimate for {', '.join(names)}: {why}")
    return rows
