"""What makes a run the same: code, parameters, data, and a checksum of each."""

import hashlib
import json
import re
from functools import lru_cache
from pathlib import Path

from ..core import package_dir, paper_file
from ..papers import comments, find, parameters, source_cells, stamp, syntax_tree
from .profiles import check


def checksum(
    x,  # text, or a plain value
) -> str:  # 16 hexadecimal digits
    "Sixteen hexadecimal digits for a plain value"
    text = x if isinstance(x, str) else json.dumps(x, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _imports(source, package=()):
    "Names of memnb that Python code imports, relative ones seen from a package"
    import ast

    try:
        tree = syntax_tree(source)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = list(package[: len(package) - node.level + 1]) if node.level else []
            base = ".".join(above + [node.module] * bool(node.module))
            names = [base, *(f"{base}.{a.name}" for a in node.names)]
        else:
            continue
        yield from (n for n in names if n.startswith("memnb."))


def _files_of(name, top):
    "Files of the modules on the way to a name, as memnb/a/__init__.py and memnb/a/b.py for memnb.a.b"
    path = top
    for part in name.split(".")[1:]:
        path = path / part
        for f in (path.with_name(f"{part}.py"), path / "__init__.py"):
            if f.is_file():
                yield f


@lru_cache(512)
def _module(path, stamp, top):
    "(checksum of a module without its comments, names that it imports)"
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines()
    for line, at, _ in comments(source):
        lines[line - 1] = lines[line - 1][:at]
    text = "\n".join(l.rstrip() for l in lines if l.strip())
    own = (
        path.parent.glob("*.[ch]")
        if path.stem == "__init__"
        else path.parent.glob(f"{path.stem}.[ch]")
    )
    text += "".join(f.read_text(encoding="utf-8") for f in sorted(own))
    package = ("memnb", *path.parent.relative_to(top).parts)
    return checksum(text), tuple(_imports(source, package))


def modules_used(
    names,  # of modules, as 'memnb.lm'
    top: Path = None,  # folder of the package; default: that of memnb
) -> dict:  # name of a module without 'memnb.' -> checksum of its code; unknown names are left out
    "Modules of memnb that are reached by imports"
    top, out, todo = Path(top or package_dir()), {}, list(names)
    while todo:
        for f in _files_of(todo.pop(), top):
            rel = f.relative_to(top).with_suffix("")
            name = ".".join(rel.parts[:-1] if rel.stem == "__init__" else rel.parts)
            if name in out:
                continue
            stamps = tuple(stamp(o) for o in [f, *sorted(f.parent.glob("*.[ch]"))])
            out[name], more = _module(f, stamps, top)
            todo += more
    return out


INPUTS = []  # functions: (values of all parameters, folder of the notebook) -> dict of name: checksum


def run_parts(
    nb,  # word of a paper, or path of a notebook
    params: dict,  # name -> value
    folder: Path = None,  # folder of notebooks; default: those of memnb
    inputs=None,  # functions as in `INPUTS`; default: those
) -> dict:  # what the run is made of: name -> checksum
    "What a run depends on"
    nb = find(nb, folder)
    values = {k: p.default for k, p in parameters(nb).items()} | check(nb, params)
    code, word = [s for s, _ in source_cells(nb, "code")], nb.stem[3:]
    plain = (re.sub(r"^\s*[%!].*$", "", s, flags=re.M) for s in code)
    names = [f"memnb.{word}", *(n for s in plain for n in _imports(s))]
    out = {f"parameter {k}": checksum(json.dumps(v)) for k, v in values.items()}
    out["notebook"] = checksum(code)
    out |= {f"code of {k}": v for k, v in modules_used(names).items()}
    table = paper_file(word, "reported.csv")
    if table.is_file():
        out["reported numbers"] = checksum(table.read_text(encoding="utf-8"))
    for more in INPUTS if inputs is None else inputs:
        out |= more(values, nb.parent)
    return dict(sorted(out.items()))


def run_identity(
    nb,  # word of a paper, or path of a notebook
    params: dict,  # name -> value
    folder: Path = None,  # folder of notebooks; default: those of memnb
    inputs=None,  # functions as in `INPUTS`; default: those
) -> str:  # 64 hexadecimal digits
    "Fingerprint of a run: all that it depends on"
    return identity_of(run_parts(nb, params, folder, inputs))


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
    return meta if isinstance(meta, dict) else {}


def finished(
    out: Path,  # executed notebook
    ident: str,  # identity of the run
) -> bool:  # False also when there is no such file or it is torn
    "Whether `out` is the outcome of this very run"
    return metadata_of(out).get("identity") == ident


def what_changed(
    out: Path,  # executed notebook
    now: dict,  # parts of the run that would be made now
) -> str:  # as 'code of lm, parameter n changed since'; '' when nothing did or nothing is known
    "Why a run that was made is to be done again"
    old = metadata_of(out).get("parts")
    if not isinstance(old, dict):
        return "made by an older memnb" if metadata_of(out) else ""
    names = sorted(k for k in {*old, *now} if old.get(k) != now.get(k))
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more} changed since" if names else ""
