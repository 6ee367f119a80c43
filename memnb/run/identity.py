"""What makes a run the same: code, parameters, data, and a checksum of each."""

import ast
import hashlib
import json
import os
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from ..core import package_dir, paper_file, sha256
from ..papers import parameters, source_cells, stamp, syntax_tree
from .redact import redact


def checksum(x) -> str:
    "Sixteen hexadecimal digits for text or a plain value"
    text = x if isinstance(x, str) else json.dumps(x, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# ---- code


@lru_cache(512)
def _code(file, stamp):
    "(text of a file of code, checksum of it as it is parsed, without its comments)"
    text = file.read_text(encoding="utf-8")
    parsed = ast.dump(syntax_tree(text)) if file.suffix == ".py" else text
    return text, checksum(parsed)


def _imports(package: str, text: str) -> bool:
    "Whether code imports a package of memnb, as in 'from memnb.tabular import x' or 'from . import tabular'"
    line = r"(?m)(?:^|:)\s*(?:from|import) [^\n(]*(?:\([^)]*)?\b%s\b"
    return re.search(line % package, text) is not None


def code_used(word: str, source: str, top: Path = None) -> dict:
    """Code of memnb that a page may reach: all rooms, the package of its paper, and the packages that are imported.

    word: of the paper, as 'tabular'; source: the code of the page; top: folder of the package. File, as
    'tabular/rules.py' -> its checksum. So an edit of any room makes every run due again.
    """
    top = Path(top or package_dir())
    packages = {
        f.parent.name: [*f.parent.glob("*.py")]
        for f in top.glob("*/__init__.py")
    }
    used = set()
    found = {word} & {*packages}
    while True:
        used |= found
        files = [f for name in used for f in packages[name]]
        text = "\n".join([source, *(_code(f, stamp(f))[0] for f in files)])
        found = (
            {name for name in packages if _imports(name, text)} - {"run"} - used
        )
        if not found:
            break
    rooms = [f for f in top.iterdir() if f.suffix in (".py", ".c", ".csv")]
    rooms = [f for f in rooms if f.name != "_modidx.py"]
    files = rooms + [f for name in used for f in packages[name]]
    return {f.relative_to(top).as_posix(): _code(f, stamp(f))[1] for f in files}


# ---- models and files


def _server() -> str:
    "Checksum of the address of a server that the environment names, and of what is asked of it"
    env = os.environ
    address = (
        env.get("OPENAI_BASE_URL") or env.get("AZURE_OPENAI_ENDPOINT") or ""
    )
    without_login = re.sub("//[^/@]*@", "//", address).rstrip("/")
    options = json.loads(env.get("MEMNB_SERVER") or "{}")  # of `--server`
    asked = "".join(f"{options[k]}" for k in ("mode", "body") if k in options)
    return checksum(without_login + asked)


def _model(word: str, home: Path = None) -> str:
    "Checksum of the model that a word names: state of its files, its commit, or its server; '' for no model"
    kind = word.partition(":")[0]
    if kind == "openai":
        return _server()
    if kind not in ("planted", "hf"):
        return ""
    from .. import hf

    try:
        return hf.state(word, home)
    except (
        OSError,
        ValueError,
    ):  # it cannot be loaded, and the run will say why
        return ""


def _words(value) -> Iterator[str]:
    "All strings in the value of a parameter, in lists and mappings, too"
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _words([*value.values()])
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _words(part)


def _own_data(words) -> dict:
    "The reader's own files of data sets, in the folder MEMNB_DATA, by any of their names: word -> checksum"
    if not os.path.isdir(os.environ.get("MEMNB_DATA", "")):
        return {}
    from .. import data

    files = {word: data.files_of(word) for word in (*data.SETS, *words)}
    return {
        word: checksum([sha256(f) for f in found])
        for word, found in files.items()
        if found
    }


def _modules(folder: Path) -> dict:
    "Modules and packages beside a page: name -> checksum"
    files = [*folder.glob("*.py")]
    for package in folder.glob("*/__init__.py"):
        files += package.parent.rglob("*.py")
    return {f.relative_to(folder).as_posix(): sha256(f) for f in files}


def files_read(values: dict, nb: Path) -> dict:
    """What a run reads beside code, as 'model x', 'data x', 'module x', 'table x' -> checksum.

    Whatever its parameters (`values`) name, and what its page `nb` finds by itself: models by their files, commit or
    server; files by their path, from the folder of the page, else the working folder; the reader's own files of data
    sets by any of their names; modules beside the page; tables and claims of the paper.
    """
    read, words = {}, dict.fromkeys(_words([*values.values()]))
    for word in words:
        if ":" in word and (found := _model(word, nb.parent)):
            read[f"model {redact(word)}"] = found
        paths = [os.path.join(nb.parent, word), word]
        if path := next(filter(os.path.isfile, paths), None):
            read[f"data {redact(word)}"] = sha256(path)
    for word, found in _own_data(words).items():
        read.setdefault(f"data {redact(word)}", found)
    folder = paper_file(nb.stem[3:], "reported.csv").parent
    for file in (*folder.glob("*.csv"), *folder.glob("*.yaml")):
        if (
            file.name != "board.csv"
        ):  # what is found, and not what it is found with
            read[f"table {file.name}"] = sha256(file)
    return read | {
        f"module {name}": found for name, found in _modules(nb.parent).items()
    }


def run_parts(run) -> dict:
    "What a run depends on, name -> checksum: notebook, parameters, code, and all that it reads"
    nb = run.nb
    defaults = {name: p.default for name, p in parameters(nb).items()}
    values = defaults | run.parameters
    code = [source for source, _ in source_cells(nb, "code")]
    parts = {
        f"parameter {k}": checksum(json.dumps(v)) for k, v in values.items()
    }
    parts["notebook"] = checksum(code)
    used = code_used(nb.stem[3:], "\n".join(code))
    parts |= {f"code of {file}": found for file, found in used.items()}
    return dict(sorted((parts | files_read(values, nb)).items()))


# ---- runs that are done


def metadata_of(path: Path) -> dict:
    "What memnb wrote into an executed notebook (identity, parts, seconds, ...); {} for whatever is none"
    try:
        meta = json.loads(path.read_text(encoding="utf-8"))["metadata"]["memnb"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}
    return (
        meta
        if isinstance(meta, dict) and isinstance(meta.get("parts"), dict)
        else {}
    )


def finished(run) -> bool:
    "Whether a run is done, as it is now; False also where its file is torn"
    return metadata_of(run.out).get("parts") == run_parts(run)


def what_changed(run) -> str:
    "Why a run is to be done again, as 'code of lm, parameter n changed since'; '' where nothing is known"
    old, now = metadata_of(run.out).get("parts"), run_parts(run)
    if not old:
        return ""
    names = sorted(k for k in {*old, *now} if old.get(k) != now.get(k))
    if not names:
        return ""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more} changed since"
