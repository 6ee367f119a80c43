"""Speed of the measured tables: `python tests/bench_results.py`.

record:  seconds to write 100 rows of a run beside the shipped rows of `contextual`, median of 20
read:    seconds of `results.measured` on all papers, and of reading the same rows as csv
"""

import os
import tempfile
import time
from pathlib import Path
from statistics import median

import pandas as pd

from memnb import papers, results


def timed(f, n):
    "Median of the seconds of calls"
    out = []
    for i in range(n):
        start = time.perf_counter()
        f(i)
        out.append(time.perf_counter() - start)
    return median(out)


def rows(i):
    "100 rows of a run"
    d = [
        dict(part="x", dataset=f"d{j}", quantity="rate", value=i + j / 7)
        for j in range(100)
    ]
    return pd.DataFrame(d)


def main():
    words = papers.notebooks()
    ours = timed(lambda i: [results.measured(w) for w in words], 5)
    with tempfile.TemporaryDirectory() as home:
        csv = [Path(home) / f"{w}.csv" for w in words]
        for w, file in zip(words, csv, strict=True):
            results.measured(w).to_csv(file, index=False)
        plain = timed(
            lambda i: [pd.read_csv(f, low_memory=False) for f in csv], 3
        )
        n = sum(len(results.measured(w)) for w in words)
        print(
            f"read {n:,} rows: {ours:.2f} s; as csv {plain:.2f} s; ratio {plain / ours:.1f}"
        )
        os.environ["MEMNB_HOME"] = home
        one = timed(
            lambda i: results.record("contextual", rows(i), "bench", model="m"),
            20,
        )
        print(f"record 100 rows: {1000 * one:.1f} ms")


if __name__ == "__main__":
    main()
