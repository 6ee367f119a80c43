"""What makes a run the same: code, parameters, data, and a checksum of each."""

import ast
import hashlib
import json
import os
import re
from functools import lru_cache
from pathlib import Path

from ..core import package_dir, paper_file, sha256
from ..papers import find, parameters, source_cells, stamp, syntax_tree
from .profiles import check
from .redact import redact


def checksum(
    x,  # text, or a plain value
) -> str:  # 16 hexadecimal digits
    "Sixteen hexadecimal digits for a plain value"
    text = x if isinstance(x, str) else json.dumps(x, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _imports(tree, package=()):
    "Names of memnb that Python code imports, relative ones seen from a package"
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = list(package[: len(package) - node.level + 1]) if node.level else []
            base = ".".join(above + [node.module] * bool(node.module))
            names = [base, *(f"{base}.{a.name}" for a in node.names)]
        yield from (n for n in names if n.startswith("memnb."))


@lru_cache(512)
def _module(path, stamps, top):
    "(checksum of a module as it is parsed, without its comments; names that it imports)"
    tree = syntax_tree(path.read_text(encoding="utf-8"))
    text = ast.dump(tree)
    text += "".join(f.read_text(encoding="utf-8") for f in _c_files(path))
    return checksum(text), tuple(_imports(tree, ("memnb", *path.parent.relative_to(top).parts)))


def _c_files(path):
    "The C code of a module: what has its name, for a package all in its folder"
    return sorted(path.parent.glob("*.[ch]" if path.stem == "__init__" else f"{path.stem}.[ch]"))


def modules_used(
    names,  # of modules, as 'memnb.lm'
    top: Path = None,  # folder of the package; default: that of memnb
) -> dict:  # name of a module without 'memnb.' -> checksum of its code; unknown names are left out
    "Modules of memnb that are reached by imports, wherever in the files they stand"
    top, out, todo = Path(top or package_dir()), {}, list(names)
    while todo:
        parts = todo.pop().split(".")[1:]
        for n in range(1, len(parts) + 1):
            name, place = ".".join(parts[:n]), top.joinpath(*parts[:n])
            for f in (place.with_name(f"{place.name}.py"), place / "__init__.py"):
                if name in out or not f.is_file():
                    continue
                out[name], more = _module(f, tuple(map(stamp, [f, *_c_files(f)])), top)
                todo += more
    return out


def _texts_in(values):
    "All texts among the values of parameters, lists included"
    for v in values:
        if isinstance(v, str):
            yield v
        elif isinstance(v, (list, tuple)):
            yield from _texts_in(v)


def _model_folder(name):
    "Folder of a model that lies on this machine; None for any other name"
    from .. import hf

    kind, _, rest = name.partition(":")
    if kind == "planted" and rest in hf.planted_names():
        return hf.planted_dir(rest)
    folder = Path(os.path.expanduser(rest)) if kind == "hf" else None
    return folder if folder and os.path.isdir(folder) else None


def named_files(
    values: dict,  # name -> value of all parameters of a run
    folder: Path,  # folder of the notebook, from which relative paths are seen
) -> dict:  # 'model x' or 'data x' -> checksum
    "Checksums of the models and files that parameters name"
    from .. import data, hf

    out = {}
    if known := data.files_of():  # of sets that code may load by itself
        out["data in MEMNB_DATA"] = checksum([sha256(f) for f in known])
    for word in dict.fromkeys(_texts_in(values.values())):
        if model := _model_folder(word):
            out[f"model {redact(word)}"] = hf.fingerprint(model)
        near = [p for p in (os.path.join(folder, word), word) if os.path.splitext(p)[1]]
        if path := next(filter(os.path.isfile, near), None):
            out[f"data {redact(word)}"] = sha256(path)
        elif found := data.files_of(word):
            out[f"data {redact(word)}"] = checksum([sha256(f) for f in found])
    return out


def run_parts(
    nb,  # word of a paper, or path of a notebook
    params: dict,  # name -> value
    folder: Path = None,  # folder of notebooks; default: those of memnb
) -> dict:  # what the run is made of: name -> checksum
    "What a run depends on: notebook, parameters, code, the paper's numbers, and files named"
    nb = find(nb, folder)
    values = {k: p.default for k, p in parameters(nb).items()} | check(nb, params)
    code, names = [s for s, _ in source_cells(nb, "code")], [f"memnb.{nb.stem[3:]}"]
    for source in code:
        try:
            names += _imports(syntax_tree(re.sub(r"^\s*[%!].*$", "", source, flags=re.M)))
        except SyntaxError:
            continue
    out = {f"parameter {k}": checksum(json.dumps(v)) for k, v in values.items()}
    out["notebook"] = checksum(code)
    out |= {f"code of {k}": v for k, v in modules_used(names).items()}
    table = paper_file(nb.stem[3:], "reported.csv")
    if table.is_file():
        out["reported numbers"] = checksum(table.read_text(encoding="utf-8"))
    return dict(sorted((out | named_files(values, nb.parent)).items()))


def identity_of(
    parts: dict,  # as `run_parts` gives them
) -> str:  # 64 hexadecimal digits
    "Fingerprint of the parts of a run"
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def metadata_of(
    path: Path,  # executed notebook
) -> dict:  # identity, parts, seconds, speed, ...
    "What memnb wrote into an executed notebook; {} for whatever is none"
    try:
        meta = json.loads(path.read_text(encoding="utf-8"))["metadata"]["memnb"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}
    return meta if isinstance(meta, dict) and isinstance(meta.get("parts"), dict) else {}


def finished(
    out: Path,  # executed notebook
    parts: dict,  # of the run, as `run_parts` gives them
) -> bool:  # False also when there is no such file or it is torn
    "Whether `out` is the outcome of this very run"
    return metadata_of(out).get("identity") == identity_of(parts)


def what_changed(
    out: Path,  # executed notebook
    now: dict,  # parts of the run that would be made now
) -> str:  # as 'code of lm, parameter n changed since'; '' when nothing did or nothing is known
    "Why a run that was made is to be done again"
    old = metadata_of(out).get("parts")
    names = sorted(k for k in {*old, *now} if old.get(k) != now.get(k)) if old else []
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more} changed since" if names else ""
