"""What a batch says: numbers, times and tables as text, a log, and progress."""

import json
import os
import shutil
import sys
import textwrap
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from ..core import printable, require, say
from .redact import redact


def count_text(count: float | None) -> str:
    "A count or a number of operations; '?' for None"
    if count is None:
        return "?"
    return f"{count:,.0f}" if count < 1e7 else f"{count:.1e}"


def duration(seconds: float | None) -> str:
    "A time in seconds, minutes or hours, as '90 s'; '?' for None"
    if seconds is None:
        return "?"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return (
        f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )


def _cell_text(value):
    "A value as it stands in a table: '-' where it is missing, as of pandas, and nothing that a terminal acts on"
    if value is None:
        return "-"
    try:
        if value != value:
            return "-"
    except TypeError:  # NA of pandas is neither
        return "-"
    return printable(f"{value:g}" if isinstance(value, float) else str(value))


def _wrapped(line, indent):
    "A line of a table, its last column wrapped where a terminal is narrower; whole where no terminal reads it"
    room = shutil.get_terminal_size().columns - indent
    if not sys.stdout.isatty() or room < 20 or len(line) <= indent + room:
        return line
    first, *others = textwrap.wrap(line[indent:], room) or [""]
    return "\n".join(
        [line[:indent] + first, *(" " * indent + text for text in others)]
    )


def table(head: tuple, rows: list) -> str:
    "Rows, tuples of values, as a text table; a missing value is '-'"
    lines = [[_cell_text(value) for value in row] for row in [head, *rows]]
    widths = [max(map(len, column)) for column in zip(*lines)]
    indent = sum(widths[:-1]) + 2 * len(widths[:-1])
    padded = (
        "  ".join(text.ljust(w) for text, w in zip(line, widths))
        for line in lines
    )
    return "\n".join(_wrapped(line.rstrip(), indent) for line in padded)


def first_line(error: Exception) -> str:
    "An error in one line: '<class>: <first line of the message>'"
    line = f"{type(error).__name__}: {error}".strip().splitlines()[0]
    return redact(line[:300])


def relative_path(path: Path) -> str:
    "A path as a person would write it, relative to the working directory when inside of it"
    # where links lead in a circle, `Path.resolve` raises an error
    path = Path(os.path.realpath(path))
    return (
        os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
    )


# ---- the log


def tell(folder: Path, event: dict):
    """Append an event to the log of a folder; a full disk must not stop a batch.

    It has `run` and `what`: 'started', 'cell', 'says', or how the run ended.
    """
    line = json.dumps(
        {**event, "when": datetime.now(UTC).isoformat(timespec="seconds")}
    )
    with (
        suppress(OSError),
        open(Path(folder) / "batch.jsonl", "a", encoding="utf-8") as file,
    ):
        file.write(redact(line) + "\n")


def events(folder: Path, start: int = 0) -> tuple:
    "Events of the log of a folder from a byte on, and where they end; what a kill or a full disk has torn is passed over"
    log = Path(folder) / "batch.jsonl"
    read = []
    end = start
    if not log.is_file():
        return read, end
    with open(log, "rb") as file:
        file.seek(start)
        for line in iter(file.readline, b""):
            if not line.endswith(b"\n"):  # somebody is writing it
                break
            end = file.tell()
            with suppress(ValueError, RecursionError, TypeError, KeyError):
                event = json.loads(line)
                if isinstance(event["run"], str):
                    read.append(event)
    return read, end


def last_events(folder: Path) -> dict:
    "Name of each run in the log of a folder -> its last event"
    return {
        event["run"]: event
        for event in events(folder)[0]
        if event.get("what") != "says"
    }


class _Bars:
    "A bar a run, moved by the events of a batch"

    def __init__(self, live):
        self.live = live
        self.tasks = {}  # name of a run -> its bar

    def show(self, event):
        run = event["run"]
        kind = event.get("what")
        if kind == "says":
            say(f"{run}: {event['text']}")
        elif kind == "started":
            self.tasks[run] = self.live.add_task(
                run, section="starting", total=None
            )
        elif run in self.tasks and kind == "cell":
            self.live.update(
                self.tasks[run],
                section=event["section"],
                completed=event["cell"],
                total=event["of"],
            )
        elif run in self.tasks:
            self.live.remove_task(self.tasks.pop(run))


@contextmanager
def progress(folder: Path, batch: str, quiet: bool = False):
    """Shows a batch by its events in the log of a folder: a bar a run at a terminal, and whatever a run says.

    Gives a function that shows what is new.
    """
    require("rich", "batch")
    from rich import progress as rich
    from rich.console import Console

    log = Path(folder) / "batch.jsonl"
    end = log.stat().st_size if log.is_file() else 0
    live = rich.Progress(
        rich.TextColumn(
            "{task.description}  {task.fields[section]}", markup=False
        ),
        rich.BarColumn(20),
        rich.MofNCompleteColumn(),
        rich.TimeElapsedColumn(),
        console=Console(
            stderr=True, highlight=False, markup=False, force_jupyter=False
        ),
        transient=True,
        disable=quiet,
    )
    bars = _Bars(live)

    def look():
        nonlocal end
        new, end = events(folder, end)
        for event in new:
            if event.get("batch") == batch and not quiet:
                bars.show(event)
        live.refresh()

    with live:
        yield look
        look()
