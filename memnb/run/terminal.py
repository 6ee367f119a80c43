"""What a batch says: numbers, times and tables as text, a log, and progress."""

import json
import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from ..core import require, say
from .redact import redact


def count_text(x) -> str:
    "A count or a number of operations; '?' for None"
    return "?" if x is None else f"{x:,.0f}" if x < 1e7 else f"{x:.1e}"


def duration(s) -> str:
    "A time, from seconds; '?' for None"
    if s is None:
        return "?"
    return f"{s:.0f} s" if s < 120 else f"{s / 60:.0f} min" if s < 7200 else f"{s / 3600:.1f} h"


def table(head: tuple, rows: list) -> str:
    "Rows, tuples of strings, as a text table"
    wide = [max(map(len, column)) for column in zip(head, *rows)]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(r, wide)).rstrip() for r in [head, *rows])


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


def _events(lines):
    "Events of a log; what a kill or a full disk has torn is passed over"
    for line in lines:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict) and isinstance(event.get("run"), str):
            yield event


def last_events(where: Path) -> dict:
    "Name of each run in the log of a folder -> its last event"
    try:
        lines = (where / "batch.jsonl").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    return {e["run"]: e for e in _events(lines) if e.get("what") != "says"}


class Progress:
    "Shows a batch by its log: a bar a run at a terminal, and whatever a run says"

    def __init__(self, where: Path, batch: str, quiet: bool = False):
        "Of the log in a folder the events of a batch count"
        require("rich", "batch")
        from rich import progress as rich
        from rich.console import Console

        self.log, self.batch, self.quiet, self.bars = where / "batch.jsonl", batch, quiet, {}
        self.at = self.log.stat().st_size if self.log.is_file() else 0
        told = rich.TextColumn("{task.description}  {task.fields[section]}", markup=False)
        columns = told, rich.BarColumn(20), rich.MofNCompleteColumn(), rich.TimeElapsedColumn()
        err = Console(stderr=True, highlight=False, markup=False, force_jupyter=False)
        self.live = rich.Progress(*columns, console=err, transient=True, disable=quiet)

    def __enter__(self):
        self.live.start()
        return self

    def __exit__(self, *error):
        self.look()
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
            name, what = e["run"], e.get("what")
            if e.get("batch") != self.batch:
                continue
            if what == "says":
                say(f"{name}: {e['text']}")
            elif what == "started":
                self.bars[name] = self.live.add_task(name, section="starting", total=None)
            elif name in self.bars and what == "cell":
                how = dict(section=e["section"], completed=e["cell"], total=e["of"])
                self.live.update(self.bars[name], **how)
            elif name in self.bars:
                self.live.remove_task(self.bars.pop(name))
