"""How long the report of 200 runs takes: `python tests/bench_report.py`

The runs are the paper notebooks with their outputs, under other models and seeds. In every copy the
numbers of all tables and verdicts are others, and every second copy has pictures of its own, so that little is
shared between runs but the code. A program to run by hand, not a test.
"""

import json
import random
import re
import sys
import tempfile
from pathlib import Path

from bench_tabular import clock, row, show
from test_repo import PAPER_NOTEBOOKS

RUNS = 200


def varied(html, rng):
    "A table with other numbers"
    return re.sub(
        r"(?<=<td>)(\d+)([.]\d+)?(?=</td>)",
        lambda m: f"{rng.randrange(10**4)}{m[2] or ''}",
        html,
    )


def repainted(png, rng):
    "A picture whose bytes differ: a comment is put behind its header"
    import base64
    import zlib

    data, text = base64.b64decode(png), b"tEXtrun\0%d" % rng.randrange(10**9)
    chunk = (
        (len(text) - 4).to_bytes(4, "big")
        + text
        + zlib.crc32(text).to_bytes(4, "big")
    )
    return base64.b64encode(data[:33] + chunk + data[33:]).decode()


def copy(nb, i, path):
    "One run out of a notebook with outputs"
    rng, nb = random.Random(i), json.loads(nb)
    model = f"model{i % 10}"
    from memnb.claims import BOARD_MIME

    for o in (
        o for c in nb["cells"] for o in c.get("outputs", []) if "data" in o
    ):
        d = o["data"]
        if "text/html" in d:
            html = varied("".join(d["text/html"]), rng)
            d["text/html"] = re.sub(
                "(?<=<td>)(smollm2|planted:news|gpt)(?=</td>)", model, html
            )
        for r in d.get(BOARD_MIME, {}).get("claims", ()):
            r |= dict(
                model=model, evidence=f"{r['evidence']} {rng.randrange(10**4)}"
            )
        if "image/png" in d and i % 2:
            d["image/png"] = repainted("".join(d["image/png"]), rng)
    params = dict(model=model, seed=i // 10, profile="night")
    nb["metadata"] |= dict(
        papermill=dict(parameters=params, duration=60.0),
        memnb=dict(identity=f"{i:064}"),
    )
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(nb))


def folder(top, n=RUNS):
    "A folder of n runs"
    texts = [
        (p.stem[3:], p.read_text(encoding="utf8")) for p in PAPER_NOTEBOOKS
    ]
    for i in range(n):
        word, nb = texts[i % len(texts)]
        copy(nb, i, top / f"night/{word}-model=model{i % 10}-seed={i}.ipynb")
    return top


def main():
    from memnb.run.report import batch_report

    with tempfile.TemporaryDirectory(prefix="memnb-bench-") as tmp:
        runs = folder(Path(tmp))
        seconds, out = clock(lambda: batch_report(runs))
        pages = list((runs / "report_files").iterdir())
        mb = sum(p.stat().st_size for p in [out, *pages]) / 1e6
        size = f"{out.stat().st_size / 1e6:.0f} MB, with {len(pages)} pages {mb:.0f} MB"
        row(f"report of {RUNS} runs", None, seconds, "< 10 s", size)
    return show()


if __name__ == "__main__":
    sys.exit(main())
