"""What a run would cost, asked before it starts."""

import csv
from operator import mul
from typing import get_type_hints

from ..core import share_dir
from ..papers import paper
from .identity import metadata_of, run_parts
from .terminal import count_text, duration, table

COSTS = "calls", "cached", "prompt_tokens", "new_tokens", "flops", "seconds"


def costs(word: str, params: dict) -> dict:
    "What a run of a paper costs, by its `measure` on models that count: `COSTS`, None for unknown"
    from .. import lm

    one = paper(word)
    if not one:
        return dict.fromkeys(COSTS)
    known = get_type_hints(one.measure)["sizes"].model_fields
    sizes = one.sizes({k: v for k, v in params.items() if k in known})
    return lm.cost(lambda: one.measure(params["model"], sizes, seed=params.get("seed", 0)))


def seconds_known(run):
    "Seconds that a run took before, here or where memnb was made; else None"

    def given(parts):
        return {k: v for k, v in parts.items() if k.startswith("parameter ")}

    took = metadata_of(run.out)
    if given(took.get("parts", {})) == given(run_parts(run)):
        return took.get("seconds")
    table = share_dir("profiles") / "durations.csv"
    if run.replaced or not table.is_file():
        return None
    rows = csv.DictReader(table.read_text(encoding="utf-8").splitlines())
    known = {(r["profile"], r["run"]): float(r["seconds"]) for r in rows}
    return known.get((run.profile, run.name))


def estimate_table(rows: list, price: tuple = ()) -> str:
    """What a batch would cost, by `estimates`, as text: a line a run, and the sum of what is to do.

    With `price`, of a million prompt tokens and of a million new ones, what that comes to.
    """
    head = ["notebook", "state", "calls", "cached", "prompt tokens", "new tokens", "FLOPs", "time"]
    todo = [r for r in rows if not r["done"]]
    total = dict(notebook="sum", parameters={}, done=f"{len(todo)} of {len(rows)} to do")
    for k in COSTS:
        known = [r[k] for r in todo]
        total[k] = None if None in known else sum(known)
    lines = []
    for r in [*rows, total]:
        state = {True: "done", False: "to do"}.get(r["done"], r["done"])
        counts = [count_text(r[k]) for k in COSTS[:-1]]
        line = [r["notebook"], state, *counts, duration(r["seconds"])]
        if price:
            tokens = r["prompt_tokens"], r["new_tokens"]
            paid = None if None in tokens else sum(map(mul, tokens, price)) / 1e6
            line.append("?" if paid is None else f"{paid:.2f}")
        lines.append([*line, " ".join(f"{k}={v}" for k, v in r["parameters"].items())])
    return table([*head, *["price"] * bool(price), "parameters"], lines)
