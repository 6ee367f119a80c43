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
    return (
        json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    )


def _need_intact(folder: Path, name: str, origin: dict) -> None:
    "ValueError for a file of answers that is damaged, or whose model is not the one here"
    file = folder / name
    if not file.is_file():
        raise ValueError(f"{name} is missing: nothing was taken in")
    if sha256(file) != origin["sha256"]:
        raise ValueError(
            f"{name} is not as it was written: nothing was taken in"
        )
    # of planted:news@6c2a+smollm2@fb2f/float32
    word = origin["model"].partition("@")[0]
    model = ident_here(word)
    if model != origin["model"]:
        fault = f"{name} has the answers of {origin['model']}, but the model here is {model}"
        why = "its files differ, and so may its answers; nothing was taken in"
        raise ValueError(f"{fault}: {why}")


def take_in(store: Store, folder: Path = None) -> list:
    """Take the answers that ship, or those of a folder, into a store; ValueError for a damaged file.

    A dict a file: file, model, code, answers, new.
    """
    folder = Path(folder or share_dir("answers"))
    shipped = origins(folder)
    for name, origin in shipped.items():
        _need_intact(folder, name, origin)
    taken = []
    for name, origin in shipped.items():
        before = len(store)
        answers = store.load(folder / name)
        row = dict(file=name, model=origin["model"], code=origin["code"])
        taken.append(row | dict(answers=answers, new=len(store) - before))
    return taken
