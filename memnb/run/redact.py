"""What leaves this machine leaves without keys, folders and names."""

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TypeVar

from ..core import cache_dir, checkout, root

FOLDERS = "MEMNB_CACHE", "MEMNB_DATA", "MEMNB_WHEELS", "MEMNB_STORE"


def _known_folders():
    "Folders of this machine and the words that stand for them, longest first"
    import tempfile
    from sysconfig import get_path

    folders = {tempfile.gettempdir(): "tmp"}
    with suppress(
        RuntimeError, OSError
    ):  # nobody's home, or one in which no cache can be made
        folders |= {Path.home(): "~", cache_dir(): "cache"}
    folders |= {
        sys.prefix: "env",
        get_path("stdlib"): "python",
        get_path("purelib"): "site-packages",
    }
    with suppress(FileNotFoundError):  # the working folder was removed
        folders |= {Path.cwd(): ".", root(): ".", checkout() or root(): "."}
    folders |= {os.environ[k]: k for k in FOLDERS if os.environ.get(k)}
    both = {
        f(p): w
        for p, w in folders.items()
        for f in (os.path.abspath, os.path.realpath)
    }
    return sorted(
        ((p, w) for p, w in both.items() if p != os.sep),
        key=lambda pw: -len(pw[0]),
    )


HOME = re.compile(
    r"/(?<![\w.~-]/)(?:(?:home|Users)/+[\w.-]+|root(?![\w.-]))"  # home folders, also of others
    r"|[A-Za-z](?<![A-Za-z]{2}):[\\/]+Users[\\/]+[\w.-]+"
    r"|~(?<![\w.~/-]~)[A-Za-z_][\w.-]*(?=[/\\])"
)
OTHER = re.compile(
    r"/(?<![\w.~-]/)(?:tmp|work|opt|mnt|media|scratch|srv|var|private|Volumes)"
    r"(?:/[\w.@+-]+)*/(?=[\w.@+-])"
)

SECRET = re.compile(
    r"(?i)KEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|_PWD\b|_AUTH\b"
)  # names
# of well-known services; what is looked at without being taken has an upper end, or a long line takes days
TOKEN = re.compile(
    r"(?<![A-Za-z0-9])(?:(?:sk|pk|rk|gsk|xai)[-_](?=[\w-]{0,100}?\d)[\w-]{16,}|hf_[A-Za-z0-9]{20,}"
    r"|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|AKIA[0-9A-Z]{16}"
    r"|AIza[\w-]{30,}|xox[abprs]-[\w-]{10,}|eyJ[\w-]{10,500}\.[\w-]{10,}\.[\w-]{5,})"
)
LOGIN = re.compile(r"""://[^\s/"'<>]+@""")
SERVER = re.compile(r"(://(?:…@)?)(?!localhost|127\.0\.0\.1)[\w.-]+(?=:\d)")
# as Python, urllib3 and requests name the server of a connection that failed
HOST = re.compile(
    r"((?:not valid for|[Hh]ostname|doesn't match(?: either of)?|host=) ?['\"])"
    r"(?!localhost\b|127\.0\.0\.1\b)[\w.*-]+"
)


def _secrets():
    "What the environment keeps secret: value -> name of its variable"
    from urllib.parse import quote, unquote

    secrets = {}
    for k, v in os.environ.items():
        if SECRET.search(k) and len(v) >= 8:
            secrets |= {v: k, quote(v, safe=""): k}
        for login in LOGIN.findall(v):  # the password of an address
            word = login[3:-1].partition(":")[2]
            if len(word) >= 6:
                secrets |= {word: k, unquote(word): k}
    return secrets


def _host_patterns(host: str) -> Iterator[str]:
    "Patterns of the name of this machine, and of its part before the first dot"
    for name in sorted(
        {host, host.partition(".")[0]} - {"localhost"}, key=len, reverse=True
    ):
        word = re.escape(name)
        telling = re.search(r"[\d.-]", name)
        if telling and len(name) > 3:
            yield rf"(?<![\w-]){word}(?![\w-])"
        elif not telling and len(name) > 2:  # a word: only in addresses
            yield rf"(?:(?<=@)|(?<=//)|(?<=/net/)|(?<=/nfs/)){word}(?![\w-])"
            yield rf"(?<![\w.-]){word}(?=:\d{{4,5}}(?!\d)|\.(?:local|lan|home|internal)\b)"


def redactor() -> Callable[[str], str]:
    "A function that takes keys, folders, names of the user and of the machine, as they are now, out of many texts"
    import socket

    secrets = _secrets()
    secrets |= {
        s[:20]: k for s, k in secrets.items() if len(s) > 20
    }  # servers repeat beginnings
    steps = []  # (what a text must have, pattern, what it becomes)
    for secret, name in sorted(secrets.items(), key=lambda sk: -len(sk[0])):
        pattern = re.escape(secret)
        if len(secret) <= 12:  # may be a word: only where it stands alone
            pattern = rf"(?<![\w-]){pattern}(?![\w-])"
        steps.append((secret, re.compile(pattern), f"[{name}]"))
    steps += [("", TOKEN, "…"), ("://", LOGIN, "://…@")]
    for path, word in _known_folders():
        edge = (
            r"(?:(?<![\w.~-])|(?<=\dm))" + re.escape(path) + r"(?![\w-]|\.\w)"
        )
        steps.append((path, re.compile(edge), word))
    steps += [("", HOME, "~"), ("/", OTHER, "…/"), ("://", SERVER, r"\1…")]
    steps.append(("", HOST, r"\1…"))
    for pattern in _host_patterns(socket.gethostname()):
        steps.append(("", re.compile(pattern, re.I), "this-machine"))

    @cache  # notebooks of one paper share most of their texts
    def clean(text: str) -> str:
        for need, pattern, word in steps:
            if need in text:
                text = pattern.sub(word, text)
        return text

    return clean


def redact(text: str) -> str:
    "A text that may be passed on: without keys, passwords, folders, servers and the name of this machine"
    return redactor()(text)


# PNG, JPEG, GIF, PDF, WebP
BINARY = re.compile(
    r"(?:iVBORw0KGgo|/9j/|R0lGOD|JVBER|UklGR)[A-Za-z0-9+/\s]*=*\s*"
)


# a dict of JSON, or a `NotebookNode`, which is one; the copy is of the same kind
Notebook = TypeVar("Notebook", bound=dict)


def redact_notebook(
    nb: Notebook, clean: Callable[[str], str] | None = None
) -> Notebook:
    "A copy of a notebook, the content of its file or nbformat's object, that may be passed on"
    clean = clean or redactor()

    def walk(x: object) -> object:
        if isinstance(x, str):
            return x if BINARY.fullmatch(x) else clean(x)
        if isinstance(x, dict):
            return type(x)((walk(k), walk(v)) for k, v in x.items())
        return [walk(o) for o in x] if isinstance(x, (list, tuple)) else x

    return walk(nb)
