"""Answers that ship: a page asks, and no model has to run."""

import json
from pathlib import Path

from ..core import sha256, share_dir
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
