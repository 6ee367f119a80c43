"""What a run would cost, asked before it starts."""

import csv
import time
from functools import lru_cache
from operator import mul
from typing import get_type_hints

import numpy as np

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
    fields = get_type_hints(one.measure)["sizes"].model_fields
    sizes = one.sizes({k: v for k, v in params.items() if k in fields})
    return lm.cost(
        lambda: one.measure(params["model"], sizes, seed=params.get("seed", 0))
    )


@lru_cache(None)
def core_speed() -> float:
    """Operations in float32 that a core of this machine does in a second, found within half a second

    By products of small matrices, for which a library takes one thread, in processor time: what others do on the
    machine counts little. The best of many tries.
    """
    size = 64
    times = 50
    a = np.ones((size, size), "float32")
    least = np.inf
    until = time.perf_counter() + 0.5
    while time.perf_counter() < until:
        begin = time.thread_time()
        for _ in range(times):
            a @ a
        least = min(least, time.thread_time() - begin)
    # a clock that stands still for so long says nothing
    return times * 2 * size**3 / max(least, 1e-6)


# a rule of thumb: contextual took 293 s of a thread's processor time at 42 GFLOP/s (AVX2), and 146 s on the clock at 152
# (AVX-512, another run beside it), which is an exponent of .54; memory and Python gain nothing from wider vectors
_BY_SPEED = 0.5


def durations() -> dict:
    "Seconds of the runs that ship, as they would be on a core of this machine: (profile, run) -> seconds"
    table = share_dir("profiles") / "durations.csv"
    if not table.is_file():
        return {}
    rows = csv.DictReader(table.read_text(encoding="utf-8").splitlines())
    return {
        (r["profile"], r["run"]): float(r["seconds"])
        * (float(r["speed"]) / core_speed()) ** _BY_SPEED
        for r in rows
    }


def _parameters_of(parts):
    return {
        name: mark
        for name, mark in parts.items()
        if name.startswith("parameter ")
    }


def seconds_known(run) -> float | None:
    "Seconds that a run took before here, or would take as it took where memnb was made; else None"
    took = metadata_of(run.out)
    if _parameters_of(took.get("parts", {})) == _parameters_of(run_parts(run)):
        return took.get("seconds")
    if run.replaced:
        return None
    return durations().get((run.profile, run.name))


def longest_first(runs: list) -> list:
    "Runs by the seconds known of them, the longest first, so that none is left alone at the end; others keep their order"
    return sorted(runs, key=lambda run: -(seconds_known(run) or 0))


def _sum_of(rows):
    "The line below all runs: the sum of what is to do, None where a part of it is not known"
    todo = [row for row in rows if not row["done"]]
    total = dict(
        notebook="sum", parameters={}, done=f"{len(todo)} of {len(rows)} to do"
    )
    for name in COSTS:
        values = [row[name] for row in todo]
        total[name] = None if None in values else sum(values)
    return total


def _price(row, price):
    "What the tokens of a run cost, as '0.03'; '?' where their number is not known"
    tokens = row["prompt_tokens"], row["new_tokens"]
    if None in tokens:
        return "?"
    return f"{sum(map(mul, tokens, price)) / 1e6:.2f}"


def estimate_table(rows: list, price: tuple = ()) -> str:
    """What a batch would cost, by `estimates`, as text: one line per run, and the sum of what is to do.

    With `price`, of a million prompt tokens and of a million new ones, what that comes to.
    """
    head = [
        "notebook",
        "state",
        "calls",
        "cached",
        "prompt tokens",
        "new tokens",
        "FLOPs",
        "time",
    ]
    if price:
        head.append("price")
    lines = []
    for row in [*rows, _sum_of(rows)]:
        state = {True: "done", False: "to do"}.get(row["done"], row["done"])
        counts = [count_text(row[name]) for name in COSTS if name != "seconds"]
        line = [row["notebook"], state, *counts, duration(row["seconds"])]
        if price:
            line.append(_price(row, price))
        values = (
            f"{name}={value}" for name, value in row["parameters"].items()
        )
        lines.append([*line, " ".join(values)])
    return table([*head, "parameters"], lines)
