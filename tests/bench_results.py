"""Speed of the measured tables: `python tests/bench_results.py`.

record:  seconds to write 100 rows of a run beside the shipped rows of `contextual`, median of 20, and the same with one
         csv file a paper that is read, merged and written again (what memnb did before)
read:    seconds of `results.measured` on the largest paper
"""

import os
import tempfile
import time
from pathlib import Path
from statistics import median

import pandas as pd

from memnb import results
from memnb.core import replacing, share_dir


def timed(f, n=20):
    out = []
    for i in range(n):
        start = time.perf_counter()
        f(i)
        out.append(time.perf_counter() - start)
    return median(out)


def rows(i):
    return pd.DataFrame(
        [dict(part="bench", dataset=f"d{j}", quantity="rate", value=i + j / 7) for j in range(100)]
    )


def merged(path, i):
    "Read the whole table, replace the rows with the same key, write it again"
    old = pd.read_csv(path, keep_default_na=False, na_values=[""])
    new = rows(i).assign(paper="contextual", model="m", profile="bench", seed=0)
    key = [c for c in new if c != "value"]

    def name(d):
        return d.reindex(columns=key).astype(object).fillna("").astype(str).agg("\x1f".join, axis=1)

    both = pd.concat([old[~name(old).isin(set(name(new)))], new], ignore_index=True)
    with replacing(path) as part:
        both.iloc[name(both).argsort(kind="stable")].to_csv(part, index=False)


def main():
    shipped = results.measured("contextual")
    with tempfile.TemporaryDirectory() as home:
        os.environ["MEMNB_HOME"] = home
        ours = timed(lambda i: results.record("contextual", rows(i), "m", "bench"))
        one = Path(home) / "contextual.csv"
        shipped.to_csv(one, index=False)
        theirs = timed(lambda i: merged(one, i), 5)
    print(
        f"record 100 rows: {1000 * ours:.1f} ms; one file a paper: {1000 * theirs:.0f} ms; ratio {theirs / ours:.0f}"
    )
    print(
        f"measured('contextual'): {1000 * timed(lambda i: results.measured('contextual'), 5):.0f} ms, {len(shipped)} rows, "
        f"{sum(f.stat().st_size for f in (share_dir('papers') / 'contextual/measured').glob('*.csv')) / 1e3:.0f} kB"
    )


if __name__ == "__main__":
    main()
