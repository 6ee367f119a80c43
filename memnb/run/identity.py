"""What makes a run the same: code, parameters, data, and a checksum of each."""

import ast
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, Protocol

from ..core import hub_commit, package_dir, paper_file, sha256
from ..papers import parameters, source_cells, stamp, syntax_tree
from .redact import redact


def checksum(x: object) -> str:
    """Sixteen hexadecimal digits for text or a plain value

    Args:
        x: text, or what JSON can write, whatever the order of its keys
    """
    text = x if isinstance(x, str) else json.dumps(x, sort_keys=True)
    digits = hashlib.sha256(text.encode()).hexdigest()
    return digits[:16]


# ---- code


class Code(NamedTuple):
    "A file of code"

    text: str
    sha: str  # checksum


@lru_cache(512)
def _code(file: Path, stamp: object) -> Code:
    "Text of a file of code, and the checksum of it as it is parsed, without its comments"
    text = file.read_text(encoding="utf-8")
    parsed = ast.dump(syntax_tree(text)) if file.suffix == ".py" else text
    return Code(text, checksum(parsed))


def _imports(package: str, text: str) -> bool:
    "Whether code imports a package of memnb, as in 'from memnb.tabular import x' or 'from . import tabular'"
    line = r"(?m)(?:^|:)\s*(?:from|import) [^\n(]*(?:\([^)]*)?\b%s\b"
    return re.search(line % package, text) is not None


def _files_reached(word: str, source: str, packages: dict) -> list:
    "Files of the packages, name -> files, that a page reaches: its paper's, those it imports, and what these import"
    reached = set()
    new = {word} & {*packages}
    while True:
        reached |= new
        files = [file for name in reached for file in packages[name]]
        texts = [_code(file, stamp(file)).text for file in files]
        text = "\n".join([source, *texts])
        imported = {name for name in packages if _imports(name, text)}
        new = imported - {"run"} - reached
        if not new:
            return files


def code_used(word: str, source: str, top: Path = None) -> dict:
    """Code of memnb that a page may reach: all rooms, the package of its paper, and the packages that are imported

    So an edit of any room makes every run due again.

    Args:
        word: of the paper, as 'tabular'
        source: the code of the page
        top: folder of the package

    Returns:
        file, as 'tabular/rules.py' -> its checksum
    """
    top = Path(top or package_dir())
    packages = {
        file.parent.name: [*file.parent.glob("*.py")]
        for file in top.glob("*/__init__.py")
    }
    rooms = [
        file
        for file in top.iterdir()
        if file.suffix in (".py", ".c", ".csv") and file.name != "_modidx.py"
    ]
    sums = {}
    for file in rooms + _files_reached(word, source, packages):
        name = file.relative_to(top).as_posix()
        sums[name] = _code(file, stamp(file)).sha
    return sums


# ---- models and files


def _server() -> str:
    "Checksum of the address of a server that the environment names, and of what is asked of it"
    from ..servers import environment_options, server_address

    names = "OPENAI_BASE_URL", "AZURE_OPENAI_ENDPOINT"
    addresses = filter(None, map(os.environ.get, names))
    # a query is refused by the run itself
    address = next(addresses, "").partition("?")[0]
    address = server_address(address)
    without_login = re.sub("//[^/@]*@", "//", address).rstrip("/")
    options = environment_options()  # `--server`
    asked = [str(options[k]) for k in ("mode", "body") if k in options]
    return checksum("".join([without_login, *asked]))


def _hub_data(source: str) -> str:
    "Commit of the data set that 'OWNER/NAME:FILE', or a whole 'OWNER/NAME' as parquet, was read from; '' for none"
    repo, _, file = source.partition(":")
    revision = "main" if file else "refs/convert/parquet"
    return hub_commit(repo, revision=revision)


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
    except (OSError, ValueError):
        return ""  # it cannot be loaded, and the run will say why


def _words(value: object) -> Iterator[str]:
    "All strings in the value of a parameter, in lists and mappings, too"
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _words([*value.values()])
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _words(part)


def _own_data(words: Iterable[str]) -> dict:
    "The reader's own files of data sets, in the folder MEMNB_DATA, by any of their names: word -> checksum"
    if not os.path.isdir(os.environ.get("MEMNB_DATA", "")):
        return {}
    from .. import data

    sums = {}
    for word in (*data.SETS, *words):
        if files := data.files_of(word):
            sums[word] = checksum([sha256(file) for file in files])
    return sums


def _modules(folder: Path) -> dict:
    "Modules and packages beside a page: name -> checksum"
    files = [*folder.glob("*.py")]
    for package in folder.glob("*/__init__.py"):
        files += package.parent.rglob("*.py")
    return {f.relative_to(folder).as_posix(): sha256(f) for f in files}


def files_read(values: dict, nb: Path) -> dict:
    """What a run reads beside code: whatever its parameters name, and what its page finds by itself

    These are models by their files, commit or server; data sets of the hub by their commit; files by their path,
    from the folder of the page, else the working folder; the reader's own files of data sets by any of their names; modules beside the page; tables and
    claims of the paper.

    Args:
        values: of the parameters
        nb: the page

    Returns:
        'model x', 'data x', 'module x', 'table x' -> checksum
    """
    read = {}
    words = dict.fromkeys(_words([*values.values()]))
    for word in words:
        if ":" in word and (sha := _model(word, nb.parent)):
            read[f"model {redact(word)}"] = sha
        if word.startswith("hub:") and (sha := _hub_data(word[4:])):
            read[f"data {redact(word)}"] = sha
        paths = [os.path.join(nb.parent, word), word]
        if path := next(filter(os.path.isfile, paths), None):
            read[f"data {redact(word)}"] = sha256(path)
    for word, sha in _own_data(words).items():
        read.setdefault(f"data {redact(word)}", sha)
    folder = paper_file(nb.stem[3:], "reported.csv").parent
    for file in (*folder.glob("*.csv"), *folder.glob("*.yaml")):
        # verdicts are what is found, and not what it is found with
        if file.name not in ("board.csv", "readings.csv"):
            read[f"table {file.name}"] = sha256(file)
    for name, sha in _modules(nb.parent).items():
        read[f"module {name}"] = sha
    return read


def fetched(before: dict, after: dict) -> dict:
    """Parts of a run that came from the hub while it ran, and had no commit here when it began

    Args:
        before: its parts at the start, as by `run_parts`
        after: its parts at the end
    """
    return {
        part: sha
        for part, sha in after.items()
        if part not in before and part.startswith(("data hub:", "model hf:"))
    }


class Planned(Protocol):
    "What is looked at of a run; a `profiles.Run` has it"

    nb: Path  # its notebook
    out: Path  # where it is executed
    parameters: dict  # values of some parameters


def run_parts(run: Planned) -> dict:
    """What a run depends on

    Args:
        run: of which the notebook and the parameters count

    Returns:
        name of a part -> checksum: notebook, parameters, code, and all that it reads
    """
    nb = run.nb
    defaults = {name: p.default for name, p in parameters(nb).items()}
    values = defaults | run.parameters
    code = [source for source, _ in source_cells(nb, "code")]
    parts = {"notebook": checksum(code)}
    for name, value in values.items():
        parts[f"parameter {name}"] = checksum(json.dumps(value))
    for file, sha in code_used(nb.stem[3:], "\n".join(code)).items():
        parts[f"code of {file}"] = sha
    parts |= files_read(values, nb)
    return dict(sorted(parts.items()))


# ---- runs that are done


def metadata_of(path: Path) -> dict:
    "What memnb wrote into an executed notebook (identity, parts, seconds, ...); {} for whatever is none"
    try:
        nb = json.loads(path.read_text(encoding="utf-8"))
        meta = nb["metadata"]["memnb"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}
    if not isinstance(meta, dict) or not isinstance(meta.get("parts"), dict):
        return {}
    return meta


def finished(run: Planned) -> bool:
    "Whether a run is done, as it is now; False also where its file is torn"
    return metadata_of(run.out).get("parts") == run_parts(run)


def what_changed(run: Planned) -> str:
    "Why a run is to be done again, as 'code of lm, parameter n changed since'; '' where nothing is known"
    before = metadata_of(run.out).get("parts")
    if not before:
        return ""
    now = run_parts(run)
    either = sorted({*before, *now})
    changed = [k for k in either if before.get(k) != now.get(k)]
    if not changed:
        return ""
    named = ", ".join(changed[:3])
    if len(changed) > 3:
        named += f" and {len(changed) - 3} more"
    return f"{named} changed since"
