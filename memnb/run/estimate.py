"""What a run would cost, asked before it starts."""

import json
import os
import sys
import time
from pathlib import Path
from typing import get_type_hints

from ..core import package_dir, share_dir
from .identity import metadata_of, run_parts
from .kernels import core_speed, kernel_env
from .. import lm
from ..papers import offered, paper
from .terminal import count_text, duration, first_line, pairs, table

COSTS = "calls", "cached", "prompt_tokens", "new_tokens", "flops", "seconds"


def costs(
    word: str,  # word of a paper
    params: dict,  # values of all its parameters
) -> dict:  # calls, cached, prompt_tokens, new_tokens, flops, seconds; None for unknown
    "What a run of a paper costs, from the `estimate` of its package"
    from inspect import signature

    none = dict.fromkeys(COSTS)
    if one := paper(word):
        known = get_type_hints(one.measure)["sizes"].model_fields
        sizes = one.sizes({k: v for k, v in params.items() if k in known})
        return lm.cost(lambda: one.measure(params["model"], sizes, seed=params.get("seed", 0)))
    if (fun := offered(word, "estimate")) is None:
        return none
    takes = signature(fun).parameters
    every = any(p.kind == p.VAR_KEYWORD for p in takes.values())
    return none | fun(**{k: v for k, v in params.items() if every or k in takes})


def seconds_known(
    job,  # a run: its notebook `nb`, its `run`, where its outcome is (`out`), and `inputs`
):  # None where it was not made
    "Seconds that a run took before, as this machine would take"
    import csv

    meta = metadata_of(job.out)
    old, now = meta.get("parts"), run_parts(job.nb, job.run.parameters, None, job.inputs)

    def mine(d):
        return {k: v for k, v in d.items() if k.startswith("parameter ")}

    took = meta if isinstance(old, dict) and mine(old) == mine(now) else {}
    table = share_dir("profiles") / "durations.csv"
    if not took and not job.run.replaced and table.is_file():
        with open(table, newline="", encoding="utf-8") as f:
            same = job.run.profile, job.run.name
            found = [r for r in csv.DictReader(f) if (r["profile"], r["run"]) == same]
        took = {k: float(found[-1][k]) for k in ("seconds", "speed")} if found else {}
    seconds, speed = took.get("seconds"), took.get("speed")
    if type(seconds) not in (int, float) or seconds <= 0:
        return None
    return seconds * speed / core_speed() if type(speed) in (int, float) and speed > 0 else seconds


def _ask(asked):
    "In a process of its own: a line of JSON for each run that has been asked about"
    out, sys.stdout = sys.stdout, sys.stderr

    def tell(*x):
        return print(json.dumps(x), file=out, flush=True)

    import pandas  # noqa: F401
    import torch  # noqa: F401
    import transformers  # noqa: F401

    for _, word, _ in asked:
        offered(word, "estimate")
    tell("ready", "")
    for name, word, values in asked:
        try:
            costs(word, values)
        except (ValueError, FileNotFoundError) as e:
            tell(name, first_line(e))
        except Exception:
            pass  # a fault of the estimate, not of the run
    tell("end", "")


def look_ahead(
    asked: list,  # of (name of the run, word of the paper, values of all parameters)
    seconds: float,  # for all of them, imports not counted
    folder: Path,  # in which the notebooks work
):  # ValueError about the first run that cannot work
    "Refuse a batch with a run that cannot work"
    import subprocess
    from queue import Empty, Queue
    from threading import Thread

    if not asked:
        return
    code = "import json, sys; from memnb.run.estimate import _ask as f; f(json.load(sys.stdin))"
    path = os.pathsep.join([str(package_dir().parent), os.environ.get("PYTHONPATH", "")])
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=folder,
        env=kernel_env() | dict(PYTHONPATH=path, MEMNB_LOOK="1"),
    )  # unpacks nothing
    lines = Queue()

    def read():
        for line in child.stdout:
            lines.put(line)
        lines.put('["end", ""]')

    Thread(target=read, daemon=True).start()
    try:
        child.stdin.write(json.dumps(asked))
        child.stdin.close()
        end = time.monotonic() + 60  # for imports; then `seconds`
        while (left := end - time.monotonic()) > 0:
            name, error = json.loads(lines.get(timeout=left))
            if name == "end":
                return
            if name == "ready":
                end = time.monotonic() + seconds
            elif error:
                raise ValueError(f"{name} cannot work: {error} (--no-check runs it all the same)")
    except (Empty, BrokenPipeError):
        pass
    finally:
        child.kill()
        child.wait()


def estimate_table(
    rows: list,  # dicts: notebook, parameters, done, and the keys of `costs`
    price: tuple = (),  # (of a million prompt tokens, of a million new ones), in any currency
) -> str:  # one line a run, and the sum of what is to do
    "What a batch would cost, as text"
    head = (
        "notebook",
        "state",
        "calls",
        "cached",
        "prompt tokens",
        "new tokens",
        "FLOPs",
        "time",
        *["price"] * bool(price),
        "parameters",
    )

    def paid(r):
        tokens = r["prompt_tokens"], r["new_tokens"]
        return [
            "?" if None in tokens else f"{sum(a * b for a, b in zip(tokens, price)) / 1e6:.2f}"
        ] * bool(price)

    def line(r):
        return (
            r["notebook"],
            "done" if r["done"] else "to do",
            *(count_text(r[k]) for k in COSTS[:-1]),
            duration(r["seconds"]),
            *paid(r),
            pairs(r["parameters"]),
        )

    todo = [r for r in rows if not r["done"]]
    total = {k: None if any(r[k] is None for r in todo) else sum(r[k] for r in todo) for k in COSTS}
    last = (
        "sum",
        f"{len(todo)} of {len(rows)} to do",
        *(count_text(total[k]) for k in COSTS[:-1]),
        duration(total["seconds"]),
        *paid(total),
        "",
    )
    return table(head, [*map(line, rows), last])
