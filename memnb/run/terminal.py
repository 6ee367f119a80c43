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
    return redact(f"{type(e).__name__}: {e}".strip().splitlines()[0][:300])


def relative_path(
    path: Path,  # any path
) -> str:  # relative to the working directory when inside of it
    "A path as a person would write it"
    path = Path(path).resolve()
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


# ---- the log


def tell(
    where: Path,  # folder with a log
    event: dict,  # with `run` and `what`: 'started', 'cell', 'says', or how the run ended
):
    "Append an event to the log; a full disk must not stop a batch"
    from datetime import UTC, datetime

    line = json.dumps({**event, "when": datetime.now(UTC).isoformat(timespec="seconds")})
    try:
        with open(Path(where) / "batch.jsonl", "a", encoding="utf-8") as f:
            f.write(redact(line) + "\n")
    except OSError:
        pass


def _events(lines):
    "Events of a log; what a kill or a full disk has torn is passed over"
    for line in lines:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict) and isinstance(event.get("run"), str):
            yield event


def last_events(
    where: Path,  # folder with a log
) -> dict:  # name of a run -> its last event
    "Last event of each run in the log of a folder"
    try:
        lines = (where / "batch.jsonl").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    return {e["run"]: e for e in _events(lines) if e.get("what") != "says"}


class Progress:
    "Shows what the log says of a batch: bars at a terminal, else a line for each section"

    def __init__(
        self,
        where: Path,  # folder with the log
        batch: str,  # whose events count
        quiet: bool = False,  # whether to show nothing
    ):
        self.log, self.batch, self.quiet, self.runs, self.live = (
            where / "batch.jsonl",
            batch,
            quiet,
            {},
            None,
        )
        self.at = self.log.stat().st_size if self.log.is_file() else 0
        if not quiet and sys.stderr.isatty():
            require("rich", "batch")
            from rich import progress as bars
            from rich.console import Console

            self.live = bars.Progress(
                bars.TextColumn("{task.description}  {task.fields[section]}", markup=False),
                bars.BarColumn(20),
                bars.MofNCompleteColumn(),
                bars.TimeElapsedColumn(),
                bars.TimeRemainingColumn(),
                console=Console(stderr=True, highlight=False, markup=False, force_jupyter=False),
                transient=True,
                refresh_per_second=2,
            )

    def __enter__(self):
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *error):
        self.look()
        if self.live:
            self.live.stop()

    def look(self):
        "Show what is new"
        if self.quiet or not self.log.is_file():
            return
        with open(self.log, "rb") as f:
            f.seek(self.at)
            new = f.read()
        whole = new[: new.rfind(b"\n") + 1]
        self.at += len(whole)
        for e in _events(whole.decode("utf-8", "replace").splitlines()):
            if e.get("batch") == self.batch:
                self.show(e)

    def show(self, e):
        "Show an event"
        name, what = e["run"], e["what"]
        if what == "started":
            bar = self.live and self.live.add_task(name, section="starting", total=None)
            self.runs[name] = dict(bar=bar, section="", spent=0.0)
        elif what == "says":
            say(f"{name}: {e['text']}")
        elif what == "cell" and name in self.runs:
            run = self.runs[name]
            new = run["section"] != e["section"]
            run["section"], run["spent"] = e["section"], run["spent"] + e["seconds"]
            if self.live:
                how = dict(section=e["section"], completed=e["cell"], total=e["of"])
                self.live.update(run["bar"], **how)
            if not e["ok"] or not self.live and (new or e["cell"] == e["of"]):
                end = "" if e["ok"] else "  FAILED"
                at = f"cell {e['cell']}/{e['of']}  {e['section']}  {run['spent']:.1f} s{end}"
                say(f"{name}  {at}")
        elif name in self.runs and self.live:
            self.live.remove_task(self.runs.pop(name)["bar"])
