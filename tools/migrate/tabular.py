"Tests of `tabular`: numbers stood in notes, and two names in one cell."

import pandas as pd

from memnb.stats import binom_ci

UNITS = dict(
    feature_values="cells",
    feature_distribution="features",
    header="splits",
    accuracy="rows",
    conditional_distribution="pairs",
    row_independence="rows",
    pearson="samples",
    copied_observations="samples",
    copied_feature_values="cells",
)
RUN = ["model", "mode", "profile", "seed", "version", "when"]


def num(x):
    return float(x) if x else float("nan")


def rate(r):
    "The share of right answers with its interval; that of the header test is counted from its splits"
    k, n = num(r.k), int(r.n)
    low, high = binom_ci(int(k), n) if r.what == "header" else (num(r.low), num(r.high))
    counted = r.what in ("header", "conditional_distribution")  # their value is another number
    value = num(r.value) if not counted else k / n if n else float("nan")
    return dict(value=round(value, 6), low=round(low, 6), high=round(high, 6), n=n)


def numbers(r, size):
    "(columns that name it, {quantity: its numbers}) of an old row; `size`: rows, samples and pairs by data set"
    n, value, what = r.n, num(r.value), r.what
    both = dict(value=value, low=num(r.low), high=num(r.high))
    if what == "truth":
        test, times = r["item"].split("|")
        return dict(test=test, times=int(times)), dict(rate=rate(r))
    if what == "conditional_distribution":
        pairs = size["pairs"].get(r.dataset, 0)
        correlation = dict(value=value, n=pairs) if pairs == 0 or value == value else None
        return {}, dict(
            rate=rate(r), correlation=correlation, p=dict(value=num(r.note.split("p=")[1]), n=n)
        )
    if what == "conditional_completion":
        f = r["item"].removeprefix("marginal: ")
        if f != r["item"]:
            return dict(feature=f), dict(baseline=both | dict(n=n))
        gap, p = r.note.removeprefix("against the marginal: ").split(", t-test p=")
        difference, p = (dict(value=float(x), n=n) for x in (gap, p))
        return dict(feature=f), dict(rate=rate(r), difference=difference, p=p)
    if what == "header":
        return {}, dict(rate=rate(r), lines=dict(value=value, n=n))
    if what == "row_completion":
        room, twice = (int(x.split()[0]) for x in r.note.split(", "))
        return {}, dict(rate=rate(r), places=dict(value=room), duplicates=dict(value=twice))
    if what == "first_token":
        base, name = r.note.removeprefix("baseline ").split(" ", 1)
        return {}, dict(rate=rate(r), baseline=dict(value=float(base), text=name[1:-1]))
    if what == "fragments":
        chance, *pieces = r.note.removeprefix("chance ").split("; ", 1)
        return {}, dict(
            rate=rate(r) | dict(text="".join(pieces)), chance=dict(value=float(chance), n=n)
        )
    if what == "row_independence":
        correlation, p = (dict(value=x, n=n) for x in (value, num(r.note[2:])))
        return dict(feature=r["item"]), dict(correlation=correlation, p=p)
    if what == "row_levenshtein":
        paired, welch = (num(x.split("p=")[1]) for x in r.note.split(";")[0].split(", "))
        return {}, dict(
            difference=both | dict(n=n), p_paired=dict(value=paired), p_welch=dict(value=welch)
        )
    if what == "pearson":
        f, g = r["item"].split("|")
        return dict(feature=f, other=g), dict(
            data=dict(value=float(r.note[5:])),
            samples=dict(value=value, n=n) if value == value else None,
        )
    if what == "best_ngram_match":
        data = r["item"] == "data"
        item, unit = ("data", "rows") if data else ("samples", "samples")
        rows = min(500, size["rows"][r.dataset]) if data else size["samples"][r.dataset]
        return dict(item=item, unit=unit), dict(
            mean=both | dict(n=rows), features=dict(value=int(n))
        )
    if what == "accuracy":
        return dict(item=r["item"] or "language model"), dict(rate=rate(r) | dict(text=r.note))
    if what == "feature_completion":
        return dict(feature=r["item"]), dict(rate=rate(r))
    assert not r["item"] and not r.note, r
    return {}, dict(rate=rate(r))


def drawn(t):
    "Numbers of Figure 2, and the share of samples that have one"
    out, names = [], t["item"].str.split("|")
    t = t.assign(temperature=names.str[0], feature=names.str[1])
    for (*run, dataset, temp), g in t.groupby([*RUN, "dataset", "temperature"], sort=False):
        about = dict(
            zip(RUN, run),
            part="temperature",
            dataset=dataset,
            temperature=float(temp),
            unit="samples",
        )
        n, features = int(g.n.iloc[0]), t[t.dataset == dataset].feature.unique()
        for f in features:
            v = g[g.feature == f].value.tolist()
            value, low, high = (round(x, 6) for x in (len(v) / n, *binom_ci(len(v), n)))
            about["feature"] = f
            out.append(about | dict(quantity="rate", value=value, low=low, high=high, n=n))
            out += [
                about | dict(item=str(i), quantity="drawn", value=float(x)) for i, x in enumerate(v)
            ]
    return out


def new(old):
    "Long rows"
    hot, rest, out = old[old.what == "temperature"], old[old.what != "temperature"], []
    for run, t in rest.groupby(RUN, sort=False):
        pairs = t[(t.what == "pearson") & (t.value != "")]
        size = dict(
            rows=t[t.what == "row_independence"].set_index("dataset").n.astype(int),
            samples=t[t.what == "copied_observations"].set_index("dataset").n.astype(int),
            pairs=pairs.groupby("dataset").size(),
        )
        for _, r in t.iterrows():
            keys, values = numbers(r, size)
            about = dict(
                zip(RUN, run), part=r.what, dataset=r.dataset, unit=UNITS.get(r.what, "queries")
            )
            about |= keys
            out += [about | dict(quantity=q) | v for q, v in values.items() if v]
    d = pd.DataFrame(out + drawn(hot))
    return d.mask(d == "").astype({"n": float, "seed": int})


def old(new):
    "The table of version 0.1.0"
    new, out = new.fillna(dict.fromkeys(("feature", "other", "test", "item", "text"), "")), []
    keys = [*RUN, "part", "dataset", "feature", "other", "test", "item", "temperature", "times"]
    for key, g in new.groupby(keys, sort=False, dropna=False):
        r, q = dict(zip(keys, key)), g.set_index("quantity")
        same = new[(new[RUN] == g[RUN].iloc[0]).all(axis=1) & (new.dataset == r["dataset"])]
        name = {c: r[c] for c in RUN} | dict(dataset=r["dataset"], what=r["part"])
        out += [name | row for row in cells(r, q, same)]
    return pd.DataFrame(out)


def cells(r, q, same):
    "Old rows of one thing measured; `same` are all rows of its run and data set"
    v, part = q.value, r["part"]
    out = dict(item="", note="", k="", low="", high="", n="", value=v.iloc[0])
    if "rate" in q.index:
        a = q.loc["rate"]
        out |= dict(
            value=a.value, low=a.low, high=a.high, n=a.n, k=round(a.value * a.n) if a.n else 0
        )
    if part == "temperature":
        if "drawn" in q.index:
            rates = same[(same.part == part) & (same.quantity == "rate")]
            n = rates[rates.temperature == r["temperature"]].n.iloc[0]
            yield out | dict(item=f"{r['temperature']:g}|{r['feature']}", n=n)
        return
    if part == "truth":
        out["item"] = f"{r['test']}|{r['times']:.0f}"
    if part == "conditional_distribution":
        out |= dict(value=v.get("correlation"), note=f"sign test p={v['p']:.2g}")
    if part == "conditional_completion":
        b = q.loc["baseline"]
        yield out | dict(
            item=f"marginal: {r['feature']}", value=b.value, low=b.low, high=b.high, n=b.n, k=""
        )
        note = f"against the marginal: {v['difference']:+.3f}, t-test p={v['p']:.2g}"
        out |= dict(item=r["feature"], note=note)
    if part == "header":
        out |= dict(
            value=v["lines"], note=f"lines completed in the best of {q.n['rate']:.0f} splits"
        )
    if part == "row_completion":
        out["note"] = f"{v['places']:.0f} places to ask, {v['duplicates']:.0f} duplicate rows"
    if part == "first_token":
        out["note"] = f"baseline {v['baseline']:.3f} ({q.text['baseline']})"
    if part == "fragments":
        out["note"] = f"chance {v['chance']:.2f}" + (
            f"; {q.text['rate']}" if q.text["rate"] else ""
        )
    if part == "row_independence":
        out |= dict(item=r["feature"], n=q.n["correlation"], note=f"p={v['p']:.2g}")
    if part == "row_levenshtein":
        a = q.loc["difference"]
        order = same[(same.part == "row_independence") & (same.quantity == "p")].value.iloc[0]
        out |= dict(
            value=a.value,
            low=a.low,
            high=a.high,
            n=a.n,
            note=f"paired p={v['p_paired']:.2g}, Welch p={v['p_welch']:.2g}"
            + "; rows are not in random order, so this is no evidence" * bool(order < 0.01),
        )
    if part == "pearson":
        n = same[(same.part == "copied_observations") & (same.quantity == "rate")].n.iloc[0]
        name = f"{r['feature']}|{r['other']}"
        out |= dict(item=name, value=v.get("samples"), n=n, note=f"data {v['data']:.4f}")
    if part == "best_ngram_match":
        a = q.loc["mean"]
        item = "data" if r["item"] == "data" else ""
        out |= dict(item=item, value=a.value, low=a.low, high=a.high, n=v["features"])
    if part == "accuracy":
        out |= dict(item=r["item"].replace("language model", ""), note=q.text["rate"])
    if part == "feature_completion":
        out["item"] = r["feature"]
    yield out
