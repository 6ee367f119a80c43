"The table of `iclinf`: settings that held deltas, differences, kinds and readings; `x` that was a target or a position."

import pandas as pd

RUN = ["model", "mode", "profile", "seed", "version", "when"]
NUMBERS = ["value", "sd", "low", "high", "n"]
PLACES = "first", "last"
FROM_TEXTS = (
    "empirical",
    "ratio",
    "used",
    "tight",
    "tight_alpha",
)  # what the texts of an audit have a say in


def _asked(r, queries):
    "A row of the parts that ask queries"
    out = {c: r[c] for c in ["part", "dataset", "shots", *NUMBERS, *RUN]} | dict(
        quantity=r["what"], unit="queries"
    )
    kind = r["setting"]
    if r["what"] == "position":
        return out | dict(quantity="loss at position", setting=kind, position=r["x"])
    if kind == "full above label":
        return out | dict(quantity="above", setting="full", other="label", n=queries)
    if r["part"] == "memory":
        a, _, b = kind.partition(" - ")
        return out | dict(item=a, other=b)
    if r["what"] != "difference":
        return out | dict(setting=kind)
    a, b = kind.split(" - ")
    return out | (
        dict(setting="label", item=a, other=b) if a in PLACES else dict(setting=a, other=b)
    )


def _audited(r):
    "A row of an audit; one text was written for each target"
    out = {c: r[c] for c in ["part", "dataset", "where", "value", *RUN]} | dict(
        quantity=r["what"], target=r["x"]
    )
    texts = dict(n=1, unit="texts")
    if r["what"] in (
        "tau",
        "c",
        "s",
    ):  # each target has one such row, which says how many tokens were measured
        return [out | dict(text=r["note"]), out | dict(quantity="tokens", value=r["n"], **texts)]
    return [out | dict(delta=r["setting"], **(texts if r["what"] in FROM_TEXTS else {}))]


def new(old):
    rows, groups = [], ["part", "dataset", "shots", *RUN]
    queries = old[old.what == "loss"].drop_duplicates(groups).set_index(groups).n
    for r in old.to_dict("records"):
        if r["part"] == "audit":
            rows += _audited(r)
        else:
            rows.append(_asked(r, queries.get(tuple(r[c] for c in groups))))
    for _, r in old.drop_duplicates(RUN).iterrows():
        rows.append(r[RUN].to_dict() | dict(part="model", quantity="parameters", value=r["params"]))
    d = pd.DataFrame(rows)
    return d.astype(object).where(d.notna() & (d != ""), None)


def _setting(r):
    "The old column `setting`"
    if r["part"] == "audit":
        return f"{r['delta']:g}" if r["delta"] == r["delta"] else ""
    if r["quantity"] == "above":
        return f"{r['setting']} above {r['other']}"
    kind = r["item"] or r["setting"]
    return f"{kind} - {r['other']}" if r["other"] else kind


def old(new):
    d = new[new.part != "model"]
    d = d.merge(
        new[new.part == "model"][[*RUN, "value"]].rename(columns=dict(value="params")), on=RUN
    )
    audit, at = d.part == "audit", ["dataset", "where", "target", *RUN]
    tokens = d[audit & (d.quantity == "tokens")][[*at, "value"]].rename(
        columns=dict(value="tokens")
    )
    d = d[~(audit & (d.quantity == "tokens"))].merge(tokens, on=at, how="left")
    audit, above, place = d.part == "audit", d.quantity == "above", d.quantity == "loss at position"
    return d.assign(
        setting=[_setting(r) for r in d.to_dict("records")],
        note=d.text,
        x=d.target.where(audit, d.position),
        what=d.quantity.mask(place, "position").mask(above, "difference"),
        shots=d.shots.where(~audit, 1),
        n=d.n.where(~audit, d.tokens).mask(above),
    )
