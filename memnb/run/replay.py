"""Answers that ship: a page asks, and no model has to run."""

import json
import re
from pathlib import Path

from ..core import replacing, sha256, share_dir
from ..results import code_version
from ..store import Store
from ..hf import fetch, fingerprint, planted_dir

ORIGIN = "origin.json"


def _model_name(ident):  # as in 'planted:news@6c2a+smollm2@fb2f/float32'
    return ident.partition("@")[0]


def ident_here(
    name: str,  # 'smollm2' or 'planted:<name>'
) -> str:  # as `lm.load(name).id`, but nothing is read
    "Identity of a packaged model, or of one planted in it, on this machine"
    base = f"smollm2@{fingerprint(fetch())}/float32"
    if name == "smollm2":
        return base
    return f"{name}@{fingerprint(planted_dir(name.removeprefix('planted:')))}+{base}"


def write_answers(
    store: Store,  # whose answers
    folder: Path,  # as data/answers
    word: str = "pages",  # with which the files' names begin; files of other words stay
    code: str = None,  # version of memnb that asked; default: this one
) -> dict:  # file name -> what `origin.json` says of it
    "Write the answers of the packaged model and of what ships planted in it, a file each"
    there = {m["model"] for m in store.models()}
    names = [
        "smollm2",
        *(f"planted:{d.name}" for d in sorted(share_dir("planted").iterdir()) if d.is_dir()),
    ]
    found = {name: o for name, o in origins(folder).items() if not name.startswith(f"{word}-")}
    mine = {}
    for ident in map(ident_here, names):
        if ident not in there:
            continue
        name = f"{word}-{re.sub(r'[^a-z0-9-]', '_', _model_name(ident))}.jsonl.gz"
        n = store.export(Path(folder) / name, ident)
        mine[name] = dict(
            model=ident, answers=n, code=code or code_version(), sha256=sha256(Path(folder) / name)
        )
    with replacing(Path(folder) / ORIGIN) as part:
        part.write_text(json.dumps(found | mine, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return mine


def origins(
    folder: Path = None,  # default: that of memnb
) -> dict:  # file name -> model, answers, code, sha256; {} where there are none
    "Where the answers that ship come from"
    file = Path(folder or share_dir("answers")) / ORIGIN
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def take_in(
    store: Store,  # where answers go
    folder: Path = None,  # default: that of memnb
) -> list:  # of dicts: file, model, code, answers, new; ValueError for a damaged file
    "Take the answers that ship into a store"
    folder, known = Path(folder or share_dir("answers")), origins(folder)
    for name, o in known.items():
        file = folder / name
        if not file.is_file() or sha256(file) != o["sha256"]:
            how = "not as it was written" if file.is_file() else "missing"
            raise ValueError(f"{name} is {how}: nothing was taken in")
        here = ident_here(_model_name(o["model"]))
        if here != o["model"]:
            raise ValueError(
                f"{name} has the answers of {o['model']}, but the model here is {here}: "
                "its files differ, and so may its answers; nothing was taken in"
            )
    out = []
    for name, o in known.items():
        before = len(store)
        n = store.load(folder / name)
        out.append(
            dict(file=name, model=o["model"], code=o["code"], answers=n, new=len(store) - before)
        )
    return out
