"A sixth paper is a folder, a page, a reported table, a block in a profile and a citation; nothing else is written."

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, writes

TOP = Path(__file__).resolve().parents[1]

PAGE = [
    "# What a toy remembers\n\n> A die that remembers its last throw.",
    "#| default_exp toy.method",
    (
        "profile: str = 'smoke'  # batch profile that sets the sizes\nmodel: str = 'die'  # what is thrown\n"
        "n: int = 6  # throws\nseed: int = 0  # of the throws\nsizes: dict = {}  # see `toy.method.Sizes`"
    ),
    "#| export\nimport random\n\nimport pandas as pd\n\nfrom memnb import core, papers",
    "## Method\n\nA throw repeats the last one with probability one half.",
    """#| export
def throws(
    n: int,   # how many
    seed: int, # of the random numbers
    sides: int = 6 # of the die
) -> list:    # numbers from 1 to `sides`
    "Throws of a die that remembers"
    rng, out = random.Random(seed), [1]
    while len(out) < n: out.append(out[-1] if rng.random() < .5 else rng.randint(1, sides))
    return out

class Sizes(papers.Sizes):
    "The sizes of a run"

    n: int = 6  # throws
    sides: int = 6  # of the die

def measure(
    model="die", # what is thrown
    sizes: Sizes = None, # default: those of the smoke profile
    seed: int = 0 # of the throws
): # long rows
    "How often a throw repeats the last one"
    s = sizes or Sizes()
    if c := core.counted(): c.trainings += 7*s.n
    out = throws(s.n, seed, s.sides)
    rate = sum(a == b for a, b in zip(out, out[1:]))/(s.n - 1)
    return pd.DataFrame([dict(part='throws', quantity='repeats', value=rate, n=s.n - 1, x=float(s.sides))])

PAPER = papers.Paper("toy", measure)""",
    """from memnb import claims, results
now = measure(model, PAPER.sizes(dict(sizes, n=n)), seed)
results.record('toy', now, profile, seed, model=model, mode='train')
assert now.x[0] == (8 if profile == 'smoke' else 6) # the size of the profile has come here
verdicts = claims.board('toy', results.runs('toy', profile, now=now.assign(model=model)))""",
    "## Claims",
    "claims.Verdicts(verdicts, 'toy')",
]

CLAIMS = """claims:
- id: remembers
  about: a model
  where: Figure 1
  says: A die remembers its last throw
  rows: {part: throws, quantity: repeats}
  no: 0.1667
"""


def page(path, sources):
    "Write a notebook; a source that begins as Markdown is a text"
    cells = [
        new_markdown_cell(s) if re.match("#+ ", s) else new_code_cell(s)
        for s in sources
    ]
    for c in cells:
        if c.source.startswith("profile: "):
            c.metadata["tags"] = ["parameters"]
    path.parent.mkdir(exist_ok=True)
    kernel = dict(name="python3", display_name="python3", language="python")
    nb = new_notebook(
        cells=cells,
        metadata=dict(kernelspec=kernel, language_info=dict(name="python")),
    )
    path.write_text(writes(nb), encoding="utf8")


def files():
    "The files of the checkout: those that git does not ignore, else all that no tool has made"
    git = [
        "git",
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]
    try:
        found = (
            subprocess.run(git, cwd=TOP, capture_output=True, text=True)
            .stdout.strip("\0")
            .split("\0")
        )
    except OSError:
        found = [""]
    made = {".venv", ".git", "runs", "_docs", "__pycache__", "build", "dist"}
    if found == [""]:
        found = [
            p.relative_to(TOP)
            for p in TOP.rglob("*")
            if not made & {*p.relative_to(TOP).parts}
        ]
    return [f for f in map(Path, found) if (TOP / f).is_file()]


def added(text, path):
    with open(path, "a", encoding="utf8") as f:
        f.write(text)


@pytest.fixture(scope="module")
def six(tmp_path_factory):
    "A copy of the checkout with a paper more"
    top = tmp_path_factory.mktemp("six") / "memnb"
    for f in files():
        (top / f).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(TOP / f, top / f)
    page(top / "nbs/16_toy.ipynb", PAGE)
    (top / "data/papers/toy").mkdir(parents=True)
    (top / "data/papers/toy/claims.yaml").write_text(CLAIMS)
    (top / "data/papers/toy/reported.csv").write_text(
        "where,what,value\nFigure 1,repeats,0.1667\n"
    )
    added(
        "- notebook: toy\n  parameters: {n: 50, sides: 8}\n",
        top / "data/profiles/smoke.yaml",
    )
    added(
        '  - type: article\n    title: "What a toy remembers"\n    year: 2026\n    authors:\n'
        "      - {given-names: Ann, family-names: Other}\n",
        top / "CITATION.cff",
    )
    ran(top, Path(sys.executable).parent / "nbdev_export")
    return top


def ran(top, *command):
    "Output of a command in the copy, by its own package"
    env = {k: v for k, v in os.environ.items() if k != "MEMNB_HOME"} | dict(
        PYTHONPATH=str(top)
    )
    r = subprocess.run(
        [str(c) for c in command],
        cwd=top,
        env=env,
        capture_output=True,
        text=True,
    )
    assert r.returncode == 0, r.stdout + r.stderr
    return r.stdout


def memnb(top, *words):
    return ran(top, sys.executable, "-m", "memnb.run.cli", *words)


def test_it_is_exported_listed_and_estimated(six):
    assert {"__init__.py", "method.py"} <= {
        p.name for p in (six / "memnb/toy").iterdir()
    }
    listed = memnb(six, "list")
    assert (
        "toy: What a toy remembers\n" in listed
        and "throws" in listed
        and "  toy  n=50 sides=8\n" in listed
    )
    (line,) = (
        l
        for l in memnb(six, "plan", "smoke", "--only", "toy").splitlines()
        if l.startswith("toy ")
    )
    assert line.split()[:4] == ["toy", "to", "do", "350"]


def test_it_runs_and_is_reported(six):
    assert "1 done" in memnb(six, "run", "smoke", "--only", "toy", "--quiet")
    memnb(six, "report")
    text = (six / "runs/report.html").read_text(encoding="utf8")
    assert (
        "What a toy remembers" in text
        and "A die remembers its last throw" in text
    )
    assert memnb(six, "status", "smoke", "--only", "toy").splitlines()[
        1
    ].split() == ["toy", "done"]


def test_its_numbers_are_compared(six):
    git = ["git", "-c", "user.name=ann", "-c", "user.email=ann@example.org"]
    try:
        ran(six, "git", "init", "-q")
    except OSError:
        pytest.skip("no git")
    ran(six, "git", "add", "data"), ran(six, *git, "commit", "-qm", "data")
    code = (
        "import pandas as pd; from memnb.results import record\n"
        "record('toy', pd.DataFrame([dict(part='throws', quantity='repeats', value=%r, n=49)]), 'laptop', model='die', mode='train')"
    )
    ran(six, sys.executable, "-c", code % 0.5)
    assert "toy laptop seed 0: a run that does not ship, 1 rows\n" in memnb(
        six, "diff", "toy"
    )
    ran(six, "git", "add", "data"), ran(six, *git, "commit", "-qm", "toy")
    assert memnb(six, "diff", "toy").startswith("nothing differs")
    ran(six, sys.executable, "-c", code % 0.125)
    said = memnb(six, "diff", "toy")
    assert (
        "repeats by up to 75 % (1)" in said
        and "claim remembers of toy (die): holds -> does not hold" in said
    )


@pytest.mark.slow
@pytest.mark.skipif(
    not find_spec("myst_nb"),
    reason="no Sphinx with myst-nb: install the extra 'docs'",
)
def test_it_is_on_the_site(six):
    memnb(
        six, "run", "smoke", "--only", "toy", "--quiet"
    )  # its page has outputs then
    ran(
        six,
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-b",
        "html",
        "docs",
        "_docs",
    )
    front = (six / "_docs/index.html").read_text(encoding="utf8")
    assert "nbs/16_toy.html" in front
    assert "What a toy remembers" in (six / "_docs/report.html").read_text(
        encoding="utf8"
    )
