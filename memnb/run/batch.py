"""Many runs: jobs and their locks, several at a time, what is finished reused."""

import os
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, CancelledError, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from filelock import FileLock, Timeout

from ..core import cores, figures_dir, replacing, require, root, say, share_dir
from ..papers import find, parameters
from .estimate import COSTS, costs, seconds_known
from .identity import checksum, finished, run_parts, what_changed
from .kernels import execute, kernel_env, partial_file
from .profiles import Run, profile_file, select
from .terminal import Progress, first_line, last_events, relative_path, tell


@dataclass
class Outcome:
    "What became of a run"

    run: Run
    status: str  # 'done', 'skipped', 'failed' or 'stopped'
    file: Path  # executed notebook, or the partial one of a failed run
    seconds: float = 0
    error: str = ""  # first line of the error


def _parts(run):
    return run_parts(run.nb, run.parameters)


def _lock(run):
    "File of the lock of a run, which a batch holds while it is at it; free when its holder dies"
    return run.out.parent / ".locks" / f"{run.out.stem}.lock"


def _is_locked(file):
    "Whether somebody holds the lock in a file"
    if file.exists():
        try:
            FileLock(file).acquire(timeout=0).lock.release()
        except OSError as e:  # or a folder that only can be read
            return isinstance(e, Timeout)
    return False


def work(run: Run, alive: Path) -> Outcome:
    """Execute a run unless it is finished, as long as the file `alive` is there.

    Another batch that is at it is waited for. CancelledError where it was stopped before it had begun.
    """
    start, event = time.monotonic(), dict(run=run.name, batch=alive.name)
    if not alive.exists():
        raise CancelledError
    try:
        with FileLock(_lock(run)).acquire(cancel_check=lambda: not alive.exists()):
            if not run.force and finished(run.out, _parts(run)):
                return Outcome(run, "skipped", run.out)
            tell(run.out.parent, event | dict(what="started"))
            how = dict(timeout=run.timeout, going=alive.exists, event=event, env=run.env)
            error = execute(run.nb, run.out, run.parameters, **how)
    except Timeout:
        raise CancelledError from None
    except Exception as e:
        error = first_line(e)
    status = "done" if not error else "failed" if alive.exists() else "stopped"
    error = "stopped by hand" if status == "stopped" else error
    file = partial_file(run.out) if error else run.out
    return Outcome(run, status, file, time.monotonic() - start, error)


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


def _all(runs, submit, alive, shown):
    "Outcomes of all runs, in their order; Ctrl-C stops them cleanly"
    known, results = {submit(work, r, alive): r for r in runs}, {}
    while known:
        try:
            done, _ = wait_for(known, timeout=0.5, return_when=FIRST_COMPLETED)
            shown.look()
            for f in done:
                run = known.pop(f)
                try:
                    got = f.result()
                except CancelledError:
                    continue
                except Exception as e:  # a worker of a cluster that was lost
                    got = Outcome(run, "failed", partial_file(run.out), 0, first_line(e))
                results[run.name] = got
                if got.status != "skipped":
                    event = dict(run=run.name, batch=alive.name, what=got.status)
                    event |= dict(seconds=round(got.seconds, 2), error=got.error)
                    tell(run.out.parent, event)
                if got.status == "failed":
                    say(f"{run.name} failed: {got.error}; see {relative_path(got.file)}")
        except KeyboardInterrupt:
            alive.unlink(missing_ok=True)
            for f in known:
                f.cancel()
    return [results[r.name] for r in runs if r.name in results]


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
) -> list:  # of `Outcome`, in the order of the profile; after Ctrl-C those that had begun
    "Run a profile, chosen as in `runs_of`; an error in one notebook does not stop the others"
    for what, number in dict(timeout=timeout, workers=workers).items():
        if number is not None and number < 1:
            raise ValueError(f"{what}: at least 1, not {number}")
    env = kernel_env(max(1, cores() // workers))
    if fresh:
        env["MEMNB_FRESH"] = datetime.now(UTC).isoformat(timespec="seconds")
    runs = runs_of(name, only, params, out)
    for run in runs:
        run.force, run.timeout, run.env = force or fresh, timeout, run.env | env
    if not any(r.force or not finished(r.out, _parts(r)) for r in runs):
        return [Outcome(r, "skipped", r.out) for r in runs]
    require("papermill", "batch")
    for run in runs:  # what cannot be written is said before hours are spent on it
        tables = root() / "data/papers" / run.notebook / "measured"
        for place in (tables, figures_dir(run.profile)) * (run.profile != "smoke"):
            there = next(p for p in (place, *place.absolute().parents) if p.exists())
            if not os.access(there, os.W_OK):
                raise ValueError(f"{relative_path(there)} cannot be written, and the run needs it")
    where = runs[0].out.parent
    alive = where / ".locks" / f"batch-{uuid4().hex[:8]}"
    alive.parent.mkdir(parents=True, exist_ok=True)
    with replacing(where / ".profile") as part:
        part.write_text(_mark(profile_file(name).resolve(), where))
    alive.touch()
    with _pool(workers, dask, scheduler) as pool, Progress(where, alive.name, quiet) as shown:
        try:
            return _all(runs, pool.submit, alive, shown)
        finally:
            alive.unlink(missing_ok=True)


def _state(run, last):
    "(state, remark) of a run, seen from outside: a lock that is held is a run in progress"
    parts, what = _parts(run), last.get("what")
    if finished(run.out, parts):
        return "done", ""
    if _is_locked(_lock(run)):
        if what != "cell":
            return "running", "starting"
        return "running", f"cell {last.get('cell')}/{last.get('of')}  {last.get('section')}"
    if what == "failed":
        return "failed", f"{last.get('error')}; see {relative_path(partial_file(run.out))}"
    if what == "stopped":
        return "stopped", "the same command goes on from here"
    if partial_file(run.out).exists():
        return "broken off", "the same command runs it again"
    return "to do", what_changed(run.out, parts)


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
            how = "running" if going else event.get("what")
            states["broken off" if how in ("started", "cell") else how] += 1
        heard = max((str(e.get("when", "")) for e in last.values()), default="")
        told = ", ".join(f"{n} {how}" for how, n in states.items())
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


def estimates(name: str, only: tuple = (), params: dict = None, out: Path = None) -> list:
    "What a batch, as of `runs_of`, would do and cost: of each run notebook, parameters, done, and the keys of `costs`"
    rows = []
    for run in runs_of(name, only, params, out):
        values = {k: p.default for k, p in parameters(run.nb).items()} | run.parameters
        try:
            cost = costs(run.notebook, values)
        except Exception as e:
            say(f"no estimate for {run.name}: {first_line(e)}")
            cost = dict.fromkeys(COSTS)
        known = seconds_known(run)
        if known and not (cost["cached"] and not cost["calls"]):  # kept answers make it a short one
            cost["seconds"] = known
        done = finished(run.out, _parts(run))
        rows.append(dict(notebook=run.notebook, parameters=run.parameters, done=done) | cost)
    return rows
