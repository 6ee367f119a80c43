"""Files that memnb has written, and may write again; a file of anybody else is never written over."""

import gzip
import hashlib
import json
import os
import re
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import NamedTuple

from .redact import FOLDERS

# only what stands in a head of ours may stand before the mark, so that a page that quotes it is none of ours
_PAGE = re.compile(
    rb'\s*<!DOCTYPE html>\s*<html lang="en"><head>\s*(?:<meta [^<>]*>\s*)*?'
    rb'<meta (?:name="generator" content="memnb (?:report|slides)"'
    # nbconvert puts attributes in order
    rb'|content="memnb slides" name="generator"/)>'
)
_HEAD = 4000  # bytes in which the head of a page ends
_TABLE = re.compile(rb'<meta name="memnb-table" content="([0-9a-f]{64})">')


def is_page(file: Path) -> bool:
    "Whether a file is a page of memnb: its head says so"
    with open(file, "rb") as opened:
        return bool(_PAGE.match(opened.read(_HEAD)))


def is_figure(file: Path) -> bool:
    "Whether a file is a picture that `plots.to_png` wrote: its `Software` says so"
    from PIL import Image

    with (
        suppress(OSError, ValueError, SyntaxError),
        Image.open(file) as picture,
    ):
        return picture.info.get("Software") == "memnb"
    return False


def is_export(file: Path) -> bool:
    "Whether a file begins with a line of `Store.export`, whose key and checksum are right"
    from ..store import _LONGEST_LINE, row_of

    opener = gzip.open if file.suffix == ".gz" else open
    with suppress(
        ValueError,
        KeyError,
        TypeError,
        RecursionError,
        EOFError,
        OSError,
        zlib.error,
    ):
        with opener(file, "rb") as opened:
            line = opened.readline(_LONGEST_LINE)
        return row_of(line).sha.encode() in line
    return False


def is_any(file: Path) -> bool:
    "Whether a file is a page, a figure or an export of memnb"
    return is_page(file) or is_figure(file) or is_export(file)


def is_table(file: Path, page: Path) -> bool:
    "Whether a csv file is, byte for byte, the one that was written beside a page of memnb"
    if not page.is_file() or not is_page(page):
        return False
    with open(page, "rb") as opened:
        mark = _TABLE.search(opened.read(_HEAD))
    return (
        bool(mark)
        and mark[1].decode() == hashlib.sha256(file.read_bytes()).hexdigest()
    )


class _Kind(NamedTuple):
    "A kind of file that commands write"

    words: str
    endings: tuple  # the first is proposed


_KINDS = {
    is_page: _Kind("a page of HTML", (".html", ".htm")),
    is_figure: _Kind("a picture in PNG", (".png",)),
    is_export: _Kind("lines of JSON", (".jsonl", ".json", ".gz", ".txt")),
}
# by these, programs and people take a file for another kind than it is
_TELLING = {ending for kind in _KINDS.values() for ending in kind.endings} | {
    *(".csv", ".tsv", ".xlsx", ".parquet", ".sqlite", ".ipynb", ".yaml"),
    *(".pdf", ".svg", ".eps", ".jpg", ".jpeg", ".gif", ".webp", ".tex", ".md"),
}


def _check_ending(file: Path, is_ours: Callable[..., bool]) -> None:
    "ValueError where the name of a file tells another kind than what would be in it"
    kind = _KINDS.get(is_ours)
    ending = file.suffix.lower()
    if kind and ending in _TELLING and ending not in kind.endings:
        name = file.with_suffix(kind.endings[0]).name
        raise ValueError(f"{file} would hold {kind.words}: name it {name}")


def _check_name(file: Path) -> None:
    "ValueError for a name by which no file should be made"
    name = str(file)
    # `Path` makes one slash of two
    if address := re.match(r"\w{2,}:/", name):
        raise ValueError(
            f"{address[0]}/... is an address, and files are written to this machine: name a file, and copy it there"
        )
    if re.search(r"[\x00-\x1f\x7f]", name):
        raise ValueError(
            f"{name!r} has a control character, as the end of a line: name another --out"
        )
    # the file would take the place of the link
    if file.is_symlink():
        raise ValueError(
            f"{file} is a link: name the file that it leads to, or another --out"
        )


def may_write(
    file: Path, is_ours: Callable[..., bool] = is_any, *beside: Path
) -> None:
    """Raise ValueError where a folder, or a file that memnb did not write, stands in the place of a file.

    So it does where the ending of its name tells another kind of file, and where no file can be made there: before minutes of questions, not behind them.
    `is_ours` tells a file of the kind that is to be written, from it and the files `beside`.
    An empty file may be written over.
    """
    file = Path(file)
    _check_name(file)
    if file.is_dir():
        raise ValueError(f"{file} is a folder: name a file")
    # a file that takes the place of /dev/null would end other programs
    if file.exists() and not file.is_file():
        raise ValueError(f"{file} is a device and no file: name another --out")
    for folder in file.absolute().parents:
        if folder.is_symlink() and not folder.exists():
            raise ValueError(
                f"{file} cannot be written, since {folder.name} is a link that leads nowhere: name another --out"
            )
    above = _nearest(file.absolute().parent)
    if not above.is_dir():
        raise ValueError(
            f"{file} cannot be written, since {above.name} is a file and no folder: name another --out"
        )
    if not os.access(above, os.W_OK):
        raise ValueError(
            f"{file} cannot be written: its folder is read-only; name another --out"
        )
    _check_ending(file, is_ours)
    if file.is_file() and file.stat().st_size and not is_ours(file, *beside):
        why = "is no file of memnb and would be written over, or was changed since: name another --out"
        raise ValueError(f"{file} {why}")


def _nearest(path: Path) -> Path:
    "A path, or what is there of the folders above it"
    return next(one for one in (path, *path.parents) if one.exists())


def check_places(writes: bool) -> None:
    """Raise ValueError where a variable of memnb names a place that cannot be used, before anything is done.

    `writes` says whether files will be made in `MEMNB_HOME`. It is tried, since root may write everywhere but on disks
    that are full, or that the system makes up.
    """
    for name in ("MEMNB_HOME", *FOLDERS):
        place = os.environ.get(name, "")
        if place.startswith("~"):
            user = Path(place).parts[0]
            raise ValueError(
                f"{name} begins with {user}, and nobody here has that name: write the path out"
            )
    for name in ("MEMNB_HOME", "MEMNB_CACHE"):
        if place := os.environ.get(name):
            try:
                _check_folder(Path(place), writes and name == "MEMNB_HOME")
            except OSError as e:
                raise ValueError(
                    f"{name} names no folder to work in: it cannot be made or written ({e.strerror}); "
                    f"set {name} to another one, or unset it"
                ) from None


def _check_folder(folder: Path, writes: bool) -> None:
    "OSError where a path is no folder, there or to be made, and where no file can be written to it"
    above = _nearest(folder.absolute())
    os.scandir(above).close()
    if writes:
        with TemporaryFile(dir=above) as file:
            file.write(bytes(4096))


def is_foreign_notebook(file: Path) -> bool:
    "Whether a file is a notebook that no run has written, neither papermill nor memnb has left its word in it"
    with suppress(OSError, ValueError, RecursionError):
        notebook = json.loads(file.read_text(encoding="utf-8"))
        if isinstance(notebook, dict) and notebook.get("cells"):
            return not {"memnb", "papermill"} & {*notebook.get("metadata", ())}
    return False
