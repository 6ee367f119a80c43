"""What a batch says: numbers, times and tables as text, a log, and progress."""

import json
import os
import re
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
    wide = [max(len(r[i]) for r in [head, *rows]) for i in range(len(head))]

    def line(r):
        return "  ".join(c.ljust(w) for c, w in zip(r, wide)).rstrip()

    return "\n".join(map(line, [head, *rows]))


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


def pace(
    folder: Path,  # executed notebooks
    word: str,  # word of a paper
) -> list:  # seconds of each code cell of the last finished run; empty when there is none
    "How long the cells of a notebook take"
    ended = re.compile(rf"{word}(-.*)?(?<!\.partial)\.ipynb")
    try:
        files = [f for f in folder.glob(f"{word}*.ipynb") if ended.fullmatch(f.name)]
        if not files:
            return []
        cells = json.loads(max(files, key=lambda f: f.stat().st_mtime).read_text(encoding="utf-8"))[
            "cells"
        ]
        return [
            float(c["metadata"].get("papermill", {}).get("duration") or 0)
            for c in cells
            if c["cell_type"] == "code" and "".join(c["source"]).strip()
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return []


def time_left(
    past: list,  # seconds of each cell, as `pace` gives them
    i: int,  # cells done
    spent: float,  # seconds they took
):  # seconds; None where nothing is known
    "Estimate of the time that a run still takes"
    if i >= len(past) or not sum(past):
        return None
    slower = spent / sum(past[:i]) if sum(past[:i]) > 0.05 * sum(past) else 1
    return slower * sum(past[i:])


def _display():
    "One line a run that changes, below what is printed"
    require("rich", "batch")
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    text = TextColumn("{task.fields[run]}  {task.fields[section]}{task.fields[left]}", markup=False)
    return Progress(
        text,
        BarColumn(20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True, highlight=False, markup=False, force_jupyter=False),
        transient=True,
        refresh_per_second=2,
    )


class Progress:
    "Shows and logs what happens in a batch"

    def __init__(
        self,
        folder: Path,  # of the executed notebooks
        quiet: bool = False,  # whether to log only
    ):
        from threading import Lock

        self.folder, self.quiet, self.lock, self.runs = folder, quiet, Lock(), {}
        self.live = None if quiet or not sys.stderr.isatty() else _display()

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
            self.quiet or say(f"no log: {e.strerror}")

    def show(self, e):
        "Show an event"
        name, what = e["run"], e["what"]
        if name not in self.runs:
            line = self.live and self.live.add_task(
                "", run=name, section="starting", left="", total=None
            )
            past = pace(self.folder, name.split("-")[0])
            self.runs[name] = dict(pace=past, spent=0.0, section="", line=line)
        run = self.runs[name]
        if what == "says":
            say(f"{name}: {e['text']}")
        elif what == "cell":
            self.cell(run, e)
        elif what != "started" and self.live:
            self.live.remove_task(self.runs.pop(name)["line"])

    def cell(self, run, e):
        "Show that a cell has ended"
        new, run["section"] = run["section"] != e["section"], e["section"]
        run["spent"] += e["seconds"]
        left = time_left(run["pace"], e["cell"], run["spent"])
        left = "" if left is None else f", about {duration(left)} left"
        how = dict(section=e["section"], left=left, completed=e["cell"], total=e["of"])
        if self.live:
            self.live.update(run["line"], **how)
        if not e["ok"] or not self.live and (new or e["cell"] == e["of"]):
            say(
                f"{e['run']}  cell {e['cell']}/{e['of']}  {e['section']}  {run['spent']:.1f} s{left}"
                f"{'' if e['ok'] else '  FAILED'}"
            )


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
        if (
            isinstance(event, dict)
            and isinstance(event.get("run"), str)
            and event.get("what") != "says"
        ):
            last[event["run"]] = event
    return last
