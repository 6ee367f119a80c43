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


def count_text(x) -> str:
    "A count or a number of operations; '?' for None"
    return "?" if x is None else f"{x:,.0f}" if x < 1e7 else f"{x:.1e}"


def duration(s) -> str:
    "A time, from seconds; '?' for None"
    if s is None:
        return "?"
    return f"{s:.0f} s" if s < 120 else f"{s / 60:.0f} min" if s < 7200 else f"{s / 3600:.1f} h"


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
    first, *more = textwrap.wrap(line[indent:], room) or [""]
    return "\n".join([line[:indent] + first, *(" " * indent + text for text in more)])


def table(head: tuple, rows: list) -> str:
    "Rows, tuples of values, as a text table; a missing value is '-'"
    lines = [[_cell_text(value) for value in row] for row in [head, *rows]]
    widths = [max(map(len, column)) for column in zip(*lines)]
    indent = sum(widths[:-1]) + 2 * len(widths[:-1])
    padded = ("  ".join(text.ljust(w) for text, w in zip(line, widths)) for line in lines)
    return "\n".join(_wrapped(line.rstrip(), indent) for line in padded)


def first_line(e: Exception) -> str:
    "An error in one line: '<class>: <first line of the message>'"
    return redact(f"{type(e).__name__}: {e}".strip().splitlines()[0][:300])


def relative_path(path: Path) -> str:
    "A path as a person would write it, relative to the working directory when inside of it"
    path = Path(path).resolve()
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


# ---- the log


def tell(where: Path, event: dict):
    """Append an event to the log of a folder; a full disk must not stop a batch.

    It has `run` and `what`: 'started', 'cell', 'says', or how the run ended.
    """
    line = json.dumps({**event, "when": datetime.now(UTC).isoformat(timespec="seconds")})
    with suppress(OSError), open(Path(where) / "batch.jsonl", "a", encoding="utf-8") as f:
        f.write(redact(line) + "\n")


def events(where: Path, at: int = 0) -> tuple:
    "Events of the log of a folder from a byte on, and where they end; what a kill or a full disk has torn is passed over"
    log, out = Path(where) / "batch.jsonl", []
    if not log.is_file():
        return out, at
    with open(log, "rb") as f:
        f.seek(at)
        for line in iter(f.readline, b""):
            if not line.endswith(b"\n"):
                break
            at = f.tell()
            with suppress(ValueError, RecursionError, TypeError, KeyError):
                event = json.loads(line)
                out += [event] * isinstance(event["run"], str)
    return out, at


def last_events(where: Path) -> dict:
    "Name of each run in the log of a folder -> its last event"
    return {e["run"]: e for e in events(where)[0] if e.get("what") != "says"}


@contextmanager
def progress(where: Path, batch: str, quiet: bool = False):
    """Shows a batch by its events in the log of a folder: a bar a run at a terminal, and whatever a run says.

    Gives a function that shows what is new.
    """
    require("rich", "batch")
    from rich import progress as rich
    from rich.console import Console

    log = Path(where) / "batch.jsonl"
    bars, at = {}, log.stat().st_size if log.is_file() else 0
    told = rich.TextColumn("{task.description}  {task.fields[section]}", markup=False)
    columns = told, rich.BarColumn(20), rich.MofNCompleteColumn(), rich.TimeElapsedColumn()
    err = Console(stderr=True, highlight=False, markup=False, force_jupyter=False)

    def look():
        nonlocal at
        new, at = events(where, at)
        for e in new if not quiet else ():
            name, what = e["run"], e.get("what")
            if e.get("batch") != batch:
                continue
            if what == "says":
                say(f"{name}: {e['text']}")
            elif what == "started":
                bars[name] = live.add_task(name, section="starting", total=None)
            elif name in bars and what == "cell":
                live.update(bars[name], section=e["section"], completed=e["cell"], total=e["of"])
            elif name in bars:
                live.remove_task(bars.pop(name))
        live.refresh()

    with rich.Progress(*columns, console=err, transient=True, disable=quiet) as live:
        yield look
        look()
