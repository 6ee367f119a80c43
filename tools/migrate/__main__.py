"""Write `data/measured/<paper>/*.csv` from the tables of version 0.1.0, and check the result cell by cell.

For each paper there is a module with two functions: `new(old)` gives the long rows (with model, mode, profile, seed,
version and when as in the old table), `old(new)` the old table again, columns and rows in any order. The old tables
are those of a folder, or of a commit: `python -m tools.migrate e75ecc3`.
"""

import importlib
import io
import subprocess
import sys
from pathlib import Path

import pandas as pd

from memnb import results
from memnb.core import data_dir, replacing

PAPERS = "tabular", "icl", "iclinf", "contextual", "capacity"


def read(text):
    return pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False)


def old_table(source, paper):
    "The old table as text"
    file = Path(source) / f"{paper}.csv"
    if file.is_file():
        return read(file.read_text(encoding="utf-8"))
    show = ["git", "show", f"{source}:data/measured/{paper}.csv"]
    return read(
        subprocess.run(show, capture_output=True, text=True, check=True, encoding="utf-8").stdout
    )


def number(x):
    "A cell for comparison: numbers by value, everything else as it is"
    try:
        return float(x)
    except ValueError:
        return x


def lines(d, columns):
    "Rows as sorted tuples of cells"
    return sorted((tuple(number(x) for x in r) for r in d[columns].values.tolist()), key=str)


def write(paper, rows):
    "One file a run; the paths"
    files = []
    rows = rows.assign(paper=paper, code=rows.version, variant="").drop(columns="version")
    for (profile, model, mode, seed), g in rows.groupby(
        ["profile", "model", "mode", "seed"], sort=False
    ):
        d = results.checked(g.dropna(axis=1, how="all"))
        d = d.sort_values(results.key_columns(d), kind="stable", key=results._in_order)
        file = data_dir() / "measured" / paper / results._file_name(profile, model, mode, seed)
        with replacing(file) as part:
            part.write_text(results._table_text(d), encoding="utf-8", newline="")
        files.append(file)
    return files


def main(source, papers=PAPERS):
    for paper in papers:
        way, was = importlib.import_module(f"tools.migrate.{paper}"), old_table(source, paper)
        files = write(paper, way.new(was.copy()))
        again = way.old(results.measured(paper).rename(columns=dict(code="version")))
        again = (
            again.reindex(columns=was.columns).astype(object).where(again.notna(), "").astype(str)
        )
        a, b = lines(was, list(was)), lines(again, list(was))
        wrong = [(x, y) for x, y in zip(a, b) if x != y]
        print(
            f"{paper}: {len(was)} rows, {was.size} cells; {'equal' if a == b else f'NOT equal, {len(b)} rows, {len(wrong)} differ'}"
        )
        for x, y in wrong[:3]:
            print("  old", x, "\n  new", y)
        if a != b:
            sys.exit(1)
        for f in files:
            print(f"  {f.name}: {f.stat().st_size / 1000:.0f} KB")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:] or PAPERS)
