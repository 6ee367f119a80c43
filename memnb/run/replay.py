"""Answers that ship: a page asks, and no model has to run."""

import json
from pathlib import Path

from ..core import sha256, share_dir
from ..store import Store
from ..hf import fetch, fingerprint, planted_dir

ORIGIN = "origin.json"


def ident_here(name: str) -> str:
    "Identity of 'smollm2', or of a 'planted:<name>' in it, as `lm.load(name).id`, but nothing is read"
    base = f"smollm2@{fingerprint(fetch())}/float32"
    if name == "smollm2":
        return base
    return f"{name}@{fingerprint(planted_dir(name.removeprefix('planted:')))}+{base}"


def origins(folder: Path = None) -> dict:
    "Where the answers that ship come from: file name -> model, answers, code, sha256"
    file = Path(folder or share_dir("answers")) / ORIGIN
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def take_in(store: Store, folder: Path = None) -> list:
    """Take the answers that ship, or those of a folder, into a store; ValueError for a damaged file.

    A dict a file: file, model, code, answers, new.
    """
    folder, known = Path(folder or share_dir("answers")), origins(folder)
    for name, o in known.items():
        file = folder / name
        if not file.is_file() or sha256(file) != o["sha256"]:
            how = "not as it was written" if file.is_file() else "missing"
            raise ValueError(f"{name} is {how}: nothing was taken in")
        here = ident_here(o["model"].partition("@")[0])  # of planted:news@6c2a+smollm2@fb2f/float32
        if here != o["model"]:
            what = f"{name} has the answers of {o['model']}, but the model here is {here}"
            why = "its files differ, and so may its answers; nothing was taken in"
            raise ValueError(f"{what}: {why}")
    out = []
    for name, o in known.items():
        before, row = len(store), dict(file=name, model=o["model"], code=o["code"])
        row |= dict(answers=store.load(folder / name), new=len(store) - before)
        out.append(row)
    return out
