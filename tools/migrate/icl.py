"""The table of Golchin et al.: cells of shares as rows, seconds apart from shares, examples as texts"""

import json
from functools import cache

import pandas as pd

RUN = ["model", "mode", "profile", "seed", "version", "when"]
SHARE = dict(replication="rate", generation="accuracy", scoring="accuracy")
OLD = dict(near_exact="near", hits="exact", accuracy="rate")  # names of quantities
PIECES = "first", "near_answer", "exact_answer"


@cache
def planted():
    "Planted items: (text, number as `icl` counts them, times shown)"
    from memnb import plant

    truth = plant.truth("news")
    return [(t, str(i), n) for i, (t, n) in enumerate(zip(truth.text, truth.times))]


def item(first):
    "Number and dose of the planted item that begins so"
    (found,) = [(i, n) for t, i, n in planted() if t.startswith(first + " ")]
    return found


def cell(r, part, at):
    "Rows of a cell of shares"
    counts = dict(hits=r["exact"])
    if part == "replication":
        counts = dict(
            exact=r["exact"], near_exact=r["near"], unclear=r["unclear"], other=r["other"]
        )
    rows = [dict(quantity=q, value=v) for q, v in counts.items() if v]
    rows.append(dict(quantity=SHARE[part], value=r["rate"], low=r["low"], high=r["high"]))
    return [at | dict(n=r["n"], unit="texts") | x for x in rows]


def rows_of(r):
    "Long rows of one old row"
    what, at = r["what"], {c: r[c] for c in RUN} | dict(dataset=r["dataset"], k=r["k"])
    if what == "cost":
        at |= dict(part="cost", instances=r["n"], n="1", unit="timings")
        return [at | dict(quantity="seconds", value=r["rate"])]
    if what == "became_exact":
        texts = json.loads(r["note"])
        i, dose = item(texts[0])
        at |= dict(
            part=what,
            setting=r["setting"],
            judge=r["judge"],
            item=i,
            times=dose,
            near=r["times"],
            n=r["n"],
            unit="texts",
        )
        return [at | dict(quantity=q, text=t) for q, t in zip(PIECES, texts)]
    if what == "replication":
        at |= dict(part=what, setting=r["setting"], judge=r["judge"], times=r["times"])
        return cell(r, "replication", at)
    part = what.removeprefix("performance_")
    group, _, setting = r["setting"].partition(", ")
    if group != "all":
        at |= dict(setting=setting, group=group, judge=r["judge"])
    return cell(r, part, at | dict(part=part))


def new(old):
    "Long rows"
    d = pd.DataFrame([x for r in old.to_dict("records") for x in rows_of(r)]).replace(
        "", float("nan")
    )
    numbers = ["k", "times", "near", "instances", "value", "low", "high", "n"]
    return d.assign(**{c: pd.to_numeric(d[c]) for c in numbers}, seed=d.seed.astype(int))


def old(new):
    "The old table"
    new = new.astype(object).where(new.notna() & (new != ""), "")
    judge, rows = new[new.judge != ""].groupby("model").judge.first(), {}
    keys = [*RUN, "part", "dataset", "setting", "group", "k", "times", "near", "item", "instances"]
    for r in new.to_dict("records"):
        was = rows.setdefault(tuple(r[c] for c in keys), {c: r[c] for c in RUN})
        part, q = r["part"], r["quantity"]
        was |= dict(dataset=r["dataset"], judge=judge[r["model"]], k=r["k"])
        if part == "cost":
            n = int(r["instances"])
            was |= dict(what=part, setting=f"{n} instances", n=n, rate=r["value"])
        elif part == "became_exact":
            was |= dict(what=part, setting=r["setting"], n=r["n"], times=r["near"]) | {q: r["text"]}
        else:
            what, setting = part, r["setting"]
            if part != "replication":
                what, setting = (
                    f"performance_{part}",
                    f"{r['group']}, {setting}" if setting else "all",
                )
            was |= dict(what=what, setting=setting, n=r["n"], times=r["times"])
            was[OLD.get(q, q)] = r["value"]
            if q == SHARE[part]:
                was |= dict(low=r["low"], high=r["high"])
    for r in rows.values():
        if "first" in r:
            r["note"] = json.dumps([r.pop(q) for q in PIECES], ensure_ascii=False)
    return pd.DataFrame(list(rows.values()))
