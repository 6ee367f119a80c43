"""What a run would cost, asked before it starts."""

import csv
from typing import get_type_hints

from ..core import share_dir
from ..papers import paper
from .identity import metadata_of, run_parts
from .kernels import core_speed
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


def seconds_known(job):
    "Seconds that a job took before, here or where memnb was made, as this machine would take; else None"

    def given(parts):
        return {k: v for k, v in parts.items() if k.startswith("parameter ")}

    took, table = metadata_of(job.out), share_dir("profiles") / "durations.csv"
    if given(took.get("parts", {})) != given(run_parts(job.nb, job.run.parameters)):
        took = {}
    if not took and not job.run.replaced and table.is_file():
        with open(table, newline="", encoding="utf-8") as f:
            for r in csv.DictReader(f):
                if (r["profile"], r["run"]) == (job.run.profile, job.run.name):
                    took = {k: float(r[k]) for k in ("seconds", "speed")}
    if not took.get("seconds"):
        return None
    return took["seconds"] * took.get("speed", core_speed()) / core_speed()


def estimate_table(
    rows: list,  # dicts: notebook, parameters, done, and the keys of `costs`
    price: tuple = (),  # (of a million prompt tokens, of a million new ones), in any currency
) -> str:  # one line a run, and the sum of what is to do
    "What a batch would cost, as text"
    head = ["notebook", "state", "calls", "cached", "prompt tokens", "new tokens", "FLOPs", "time"]

    def line(first, state, cost, last):
        tokens = cost["prompt_tokens"], cost["new_tokens"]
        paid = "?" if None in tokens else sum(a * b for a, b in zip(tokens, price)) / 1e6
        paid = paid if paid == "?" else f"{paid:.2f}"
        counts = [count_text(cost[k]) for k in COSTS[:-1]]
        return [first, state, *counts, duration(cost["seconds"]), *[paid] * bool(price), last]

    todo = [r for r in rows if not r["done"]]
    total = {k: None if any(r[k] is None for r in todo) else sum(r[k] for r in todo) for k in COSTS}
    states = {False: "to do", True: "done"}
    lines = [
        line(
            r["notebook"],
            states[r["done"]],
            r,
            " ".join(f"{k}={v}" for k, v in r["parameters"].items()),
        )
        for r in rows
    ]
    lines.append(line("sum", f"{len(todo)} of {len(rows)} to do", total, ""))
    return table([*head, *["price"] * bool(price), "parameters"], lines)
