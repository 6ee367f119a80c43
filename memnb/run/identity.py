"""What makes a run the same: code, parameters, data, and a checksum of each."""

import ast
import hashlib
import json
import os
import re
from functools import lru_cache
from pathlib import Path

from ..core import package_dir, paper_file, sha256
from ..papers import parameters, source_cells, stamp, syntax_tree
from .redact import redact


def checksum(x) -> str:
    "Sixteen hexadecimal digits for text or a plain value"
    text = x if isinstance(x, str) else json.dumps(x, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@lru_cache(512)
def _code(file, stamp):
    "(text of a file of code, checksum of it as it is parsed, without its comments)"
    text = file.read_text(encoding="utf-8")
    return text, checksum(ast.dump(syntax_tree(text)) if file.suffix == ".py" else text)


def code_used(word: str, source: str, top: Path = None) -> dict:
    """Code of memnb that a page may reach: all rooms, the package of its paper, and the packages that are imported.

    File, as 'tabular/rules.py' -> its checksum. So an edit of any room makes every run due again.
    """
    top, kinds = Path(top or package_dir()), (".py", ".c", ".csv")
    packages = {f.parent.name: [*f.parent.glob("*.py")] for f in top.glob("*/__init__.py")}
    imported = r"(?m)(?:^|:)\s*(?:from|import) [^\n(]*(?:\([^)]*)?\b%s\b"
    named, more = set(), {word} & {*packages}
    while True:
        named |= more
        own = [_code(f, stamp(f))[0] for k in named for f in packages[k]]
        texts = "\n".join([source, *own])
        more = {k for k in packages if re.search(imported % k, texts)} - {"run"} - named
        if not more:
            break
    files = [f for f in top.iterdir() if f.suffix in kinds and f.name != "_modidx.py"]
    files += [f for k in named for f in packages[k]]
    return {f.relative_to(top).as_posix(): _code(f, stamp(f))[1] for f in files}


def _hub_commit(name):
    "Commit of a model of the hub that its cache holds; '' where there is none"
    home = os.environ.get("HF_HOME") or os.path.expanduser("~/.cache/huggingface")
    cache = os.environ.get("HF_HUB_CACHE") or f"{home}/hub"
    ref = Path(cache, f"models--{name.replace('/', '--')}", "refs", "main")
    return ref.read_text() if re.fullmatch(r"[\w.-]+/[\w.-]+", name) and ref.is_file() else ""


def _model(word):
    "Checksum of the model that a word names: its files, its commit, or its server; '' for no model"
    kind, _, rest = word.partition(":")
    if kind == "openai":
        env = os.environ
        address = env.get("OPENAI_BASE_URL") or env.get("AZURE_OPENAI_ENDPOINT") or ""
        asked = json.loads(os.environ.get("MEMNB_SERVER") or "{}")  # of `--server`
        asked = "".join(f"{asked[k]}" for k in ("mode", "body") if k in asked)
        return checksum(re.sub("//[^/@]*@", "//", address).rstrip("/") + asked)
    if kind not in ("planted", "hf"):
        return ""
    from .. import hf

    folder = Path(os.path.expanduser(rest))
    if kind == "planted":
        folder = hf.planted_dir(rest) if rest in hf.planted_names() else Path(os.devnull)
    return hf.fingerprint(folder) if os.path.isdir(folder) else _hub_commit(rest)


def files_read(values: dict, nb: Path) -> dict:
    """What a run reads beside code, as 'model x', 'data x', 'module x', 'table x' -> checksum.

    Whatever its parameters name, and what its page finds by itself: models by their files, commit or server; files by
    their path; the reader's own files of data sets by any of their names; modules beside the page; tables and claims of
    the paper.
    """
    every = [w for v in values.values() for w in (v if isinstance(v, list) else [v])]
    out, words = {}, dict.fromkeys(w for w in every if isinstance(w, str))
    for word in words:
        if ":" in word and (found := _model(word)):
            out[f"model {redact(word)}"] = found
        near = [p for p in (os.path.join(nb.parent, word), word) if os.path.splitext(p)[1]]
        if path := next(filter(os.path.isfile, near), None):
            out[f"data {redact(word)}"] = sha256(path)
    if os.path.isdir(os.environ.get("MEMNB_DATA", "")):
        from .. import data

        for word in (*data.SETS, *words):
            if f"data {redact(word)}" not in out and (files := data.files_of(word)):
                out[f"data {redact(word)}"] = checksum([sha256(f) for f in files])
    folder = paper_file(nb.stem[3:], "reported.csv").parent
    tables = [f for f in (*folder.glob("*.csv"), *folder.glob("*.yaml")) if f.name != "board.csv"]
    out |= {f"table {f.name}": sha256(f) for f in tables}
    return out | {f"module {f.name}": sha256(f) for f in nb.parent.glob("*.py")}


def run_parts(run) -> dict:
    "What a run depends on, name -> checksum: notebook, parameters, code, and all that it reads"
    nb = run.nb
    values = {k: p.default for k, p in parameters(nb).items()} | run.parameters
    code = [s for s, _ in source_cells(nb, "code")]
    out = {f"parameter {k}": checksum(json.dumps(v)) for k, v in values.items()}
    out["notebook"] = checksum(code)
    used = code_used(nb.stem[3:], "\n".join(code))
    out |= {f"code of {k}": v for k, v in used.items()}
    return dict(sorted((out | files_read(values, nb)).items()))


def metadata_of(path: Path) -> dict:
    "What memnb wrote into an executed notebook (identity, parts, seconds, ...); {} for whatever is none"
    try:
        meta = json.loads(path.read_text(encoding="utf-8"))["metadata"]["memnb"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}
    return meta if isinstance(meta, dict) and isinstance(meta.get("parts"), dict) else {}


def finished(run) -> bool:
    "Whether a run is done, as it is now; False also where its file is torn"
    return metadata_of(run.out).get("parts") == run_parts(run)


def what_changed(run) -> str:
    "Why a run is to be done again, as 'code of lm, parameter n changed since'; '' where nothing is known"
    old, now = metadata_of(run.out).get("parts"), run_parts(run)
    names = sorted(k for k in {*old, *now} if old.get(k) != now.get(k)) if old else []
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more} changed since" if names else ""
