"""What a batch costs beyond its notebooks, in one run on this machine:

- overhead: seconds a run beyond the cells of its notebook (start and end of the kernel, checks, files)
- rerun:    seconds of `memnb run` on a finished batch with as many runs as the laptop profile
- pair:     the smoke runs of the notebooks that train, two at a time against one after the other, same cores

python tests/bench_batch.py [overhead rerun pair]

28 November 2026, two idle cores of an AMD EPYC, family 26: `memnb run laptop --only capacity compare --fresh` takes 102
and 119 s with one worker, 125 and 130 s with two, where the engine is built for x86-64-v3 and torch held to AVX2; 116 and
133 s with AVX-512.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from nbformat.v4 import new_code_cell, new_notebook, writes

from memnb.run import batch as run
from memnb.run import profiles

PARAMS = "profile: str = 'smoke'\nn: int = 1"


def house(folder, *codes, n=1):
    "A folder with one notebook and a profile of n runs"
    cells = [
        new_code_cell(PARAMS, metadata=dict(tags=["parameters"])),
        *map(new_code_cell, codes),
    ]
    (folder / "10_one.ipynb").write_text(writes(new_notebook(cells=cells)))
    (folder / "mine.yaml").write_text(
        f"- notebook: one\n  grid: {{n: {list(range(1, n + 1))}}}\n"
    )


def batch(folder, **kw):
    "Seconds of a batch"
    start = time.perf_counter()
    got = run.batch(folder / "mine.yaml", quiet=True, out=folder / "runs", **kw)
    took = time.perf_counter() - start
    assert {o.status for o in got} <= {"done", "skipped"}, [
        o.error for o in got
    ]
    return took


def overhead(folder, n=8):
    house(folder, "import time\ntime.sleep(.5)", n=n)
    took, inside = batch(folder), 0
    for f in (folder / "runs/mine").glob("*.ipynb"):
        inside += sum(
            c["metadata"]["papermill"]["duration"]
            for c in json.loads(f.read_text())["cells"]
        )
    print(
        f"overhead: {(took - inside) / n:.2f} s a run ({n} runs, {inside / n:.2f} s in the cells of each)"
    )


def rerun(folder):
    n = len(profiles.profile("laptop"))
    house(folder, "print(1)", n=n)
    batch(folder)
    code = (
        "from memnb import papers; from memnb.run import cli; import sys; from pathlib import Path; share = papers.share_dir\n"
        f'papers.share_dir = lambda kind: Path({str(folder)!r}) if kind == "nbs" else share(kind)\n'
        f'sys.exit(cli.main(["run", {str(folder / "mine.yaml")!r}, "-o", {str(folder / "runs")!r}]))'
    )
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        stdout=subprocess.DEVNULL,
        cwd=folder,
    )
    print(
        f"rerun: {time.perf_counter() - start:.2f} s for {n} finished runs, Python started"
    )


def pair(folder):
    "The smoke runs of the two notebooks that train, two seeds each"
    os.environ.pop("OMP_NUM_THREADS", None)
    profile, took = folder / "train.yaml", []
    profile.write_text(
        "".join(
            f"- notebook: {w}\n  grid: {{seed: [0, 1]}}\n"
            for w in ("contextual", "capacity")
        )
    )
    for workers in 1, 2:
        start = time.perf_counter()
        got = run.batch(
            profile, quiet=True, out=folder / f"runs{workers}", workers=workers
        )
        took.append(time.perf_counter() - start)
        assert {o.status for o in got} == {"done"}, [o.error for o in got]
    print(
        f"pair: {len(got)} training notebooks {took[0]:.1f} s one after the other, {took[1]:.1f} s two at a time: "
        f"{took[0] / took[1]:.2f} times ({run.cores()} cores)"
    )


if __name__ == "__main__":
    for part in sys.argv[1:] or ["overhead", "rerun", "pair"]:
        with tempfile.TemporaryDirectory() as tmp:
            globals()[part](Path(tmp))
