"""What a batch says: numbers, times and tables as text, a log, and progress."""

import json
import os
import sys
from pathlib import Path

from ..core import require, say
from .redact import redact


def count_text(
    x,  # a number, or None
) -> str:
    "A count or a number of operations; '?' for an unknown one"
    if x is None:
        return "?"
    return f"{x:,.0f}" if x < 1e7 else f"{x:.1e}"


def duration(
    s: float,  # seconds, or None
) -> str:
    "A time; '?' for an unknown one"
    if s is None:
        return "?"
    return f"{s:.0f} s" if s < 120 else f"{s / 60:.0f} min" if s < 7200 else f"{s / 3600:.1f} h"


def pairs(
    d: dict,  # name -> value
) -> str:  # 'a=1 b=x'
    "Parameters on one line"
    return " ".join(f"{k}={v}" for k, v in d.items())


def table(
    head: tuple,  # names of the columns
    rows: list,  # of tuples of strings
) -> str:  # text, columns aligned
    "Rows as a text table"
    wide = [max(map(len, column)) for column in zip(head, *rows)]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(r, wide)).rstrip() for r in [head, *rows])


def first_line(
    e: Exception,  # what a run raised
) -> str:  # '<class>: <first line of the message>'
    "The error in one line"
    name, text = (e.ename, e.evalue) if hasattr(e, "ename") else (type(e).__name__, str(e))
    return redact(f"{name}: {text}".strip().splitlines()[0][:300])


def relative_path(
    path: Path,  # any path
) -> str:  # relative to the working directory when inside of it
    "A path as a person would write it"
    path = Path(path).resolve()
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def _bars():
    "One line a run that changes, below what is printed"
    require("rich", "batch")
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}  {task.fields[section]}", markup=False),
        BarColumn(20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True, highlight=False, markup=False, force_jupyter=False),
        transient=True,
        refresh_per_second=2,
    )


class Progress:
    "Shows and logs what happens in a batch: bars at a terminal, else a line for each section"

    def __init__(
        self,
        folder: Path,  # of the executed notebooks
        quiet: bool = False,  # whether to log only
    ):
        from threading import Lock

        self.folder, self.quiet, self.lock, self.runs = folder, quiet, Lock(), {}
        self.live = None if quiet or not sys.stderr.isatty() else _bars()

    def __enter__(self):
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *error):
        if self.live:
            self.live.stop()

    def tell(
        self,
        event: dict,  # with `run` and `what`: 'started', 'cell', 'says', or how the run ended
    ):
        "Log an event and show it"
        with self.lock:
            self.log(event)
            if not self.quiet:
                self.show(event)

    def log(self, event):
        "Append an event to the log; a full disk must not stop a batch"
        from datetime import UTC, datetime

        line = json.dumps({**event, "when": datetime.now(UTC).isoformat(timespec="seconds")})
        try:
            with open(self.folder / "batch.jsonl", "a", encoding="utf-8") as f:
                f.write(line + "\n")
        except OSError as e:
            if not self.quiet:
                say(f"no log: {e.strerror}")

    def show(self, e):
        "Show an event"
        name, what = e["run"], e["what"]
        if what == "started":
            bar = self.live and self.live.add_task(name, section="starting", total=None)
            self.runs[name] = dict(bar=bar, section="", spent=0.0)
        elif what == "says":
            say(f"{name}: {e['text']}")
        elif what == "cell" and name in self.runs:  # from a cluster it may come too late
            self.cell(self.runs[name], e)
        elif name in self.runs and self.live:
            self.live.remove_task(self.runs.pop(name)["bar"])

    def cell(self, run, e):
        "Show that a cell has ended"
        new = run["section"] != e["section"]
        run["section"], run["spent"] = e["section"], run["spent"] + e["seconds"]
        if self.live:
            how = dict(section=e["section"], completed=e["cell"], total=e["of"])
            self.live.update(run["bar"], **how)
        if not e["ok"] or not self.live and (new or e["cell"] == e["of"]):
            end = "" if e["ok"] else "  FAILED"
            at = f"cell {e['cell']}/{e['of']}  {e['section']}  {run['spent']:.1f} s{end}"
            say(f"{e['run']}  {at}")


def last_events(
    where: Path,  # folder with a log
) -> dict:  # name of a run -> its last event; torn lines are passed over
    "Last event of each run in the log of a folder"
    last = {}
    try:
        lines = (where / "batch.jsonl").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return last
    for line in lines:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue  # torn by a kill or a full disk
        named = isinstance(event, dict) and isinstance(event.get("run"), str)
        if named and event.get("what") != "says":
            last[event["run"]] = event
    return last
