"What docs/teaching.md tells a class to do, done as it stands there: on a table and texts that nobody has seen."

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from test_repo import PAPER_NOTEBOOKS, PAPERS

TOP = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP / "tools"))

import minutes  # noqa: E402


def teach():
    return (TOP / "docs/teaching.md").read_text(encoding="utf8")


def lessons():
    "Word of a paper -> what its row of the teaching table tells to do, each in its own backticks"
    rows = [
        [c.strip() for c in l.strip("|").split("|")]
        for l in teach().splitlines()
        if l.startswith("| `")
    ]
    return {r[0].strip("`"): re.findall("`([^`]+)`", r[3]) for r in rows}


LESSONS = lessons()


def test_minutes_of_sections_are_those_of_the_pages():
    assert minutes.with_table(teach()) == teach(), "python tools/minutes.py"
    for page in PAPER_NOTEBOOKS:
        (said,) = re.findall(
            r"takes (\d+) minutes to read", page.read_text(encoding="utf8")
        )
        counted = sum(
            s.minutes for s in minutes.sections(page.stem.split("_")[1])
        )
        assert abs(int(said) - counted) <= 3, page.name


def told(word, begins):
    found = [c for c in LESSONS[word] if c.startswith(begins)]
    assert len(found) == 1, (
        f"{word}: the guide tells {found or 'nothing'} that begins with {begins}"
    )
    return found[0]


@pytest.fixture
def at(tmp_path):
    "A folder with a table of somebody and a file of texts"
    rows = [
        f"{17 * i % 101},{(7 * i % 13) / 2},{['low', 'mid', 'high'][i % 3]}"
        for i in range(40)
    ]
    (tmp_path / "my.csv").write_text(
        "height,weight,grade\n" + "\n".join(rows) + "\n"
    )
    texts = [
        f"The {a} of {b} was closed on a {c} in the rain, and nobody came."
        for a, b, c in zip(
            ["gate", "shop", "mill", "bridge"],
            ["Orvath", "Quelm", "Tessar", "Brund"],
            ["Monday", "Friday", "Sunday", "Tuesday"],
        )
    ]
    (tmp_path / "texts.csv").write_text(
        "text\n" + "\n".join(f'"{t}"' for t in texts) + "\n"
    )
    return tmp_path


def run(code, cwd):
    "A line of a terminal that begins with memnb, or lines of Python"
    cmd = (
        [sys.executable, "-m", "memnb.run.cli", *code.split()[1:]]
        if code.startswith("memnb ")
        else [sys.executable, "-c", code]
    )
    env = os.environ | dict(PYTHONPATH=str(TOP), MPLBACKEND="agg")
    r = subprocess.run(
        cmd, cwd=cwd, env=env, capture_output=True, text=True, encoding="utf8"
    )
    assert r.returncode == 0, f"{code}:\n{r.stdout}{r.stderr}"
    return r.stdout


def test_every_paper_has_two_experiments():
    from memnb.exercises import exercise
    from memnb.papers import notebooks

    assert [*LESSONS] == list(notebooks(TOP / "nbs"))
    for word, does in LESSONS.items():
        assert f'exercise("{word}", 1)' in does and "2" in does
        assert [exercise(word, n).minutes <= 15 for n in (1, 2)] == [True, True]


# what each experiment comes to, and a prediction that it refutes; None: what came out is right
OUTCOMES = {
    ("tabular", 1): (3, 1),
    ("tabular", 2): (None, dict(file=20, changed=20)),
    ("icl", 1): (None, 0.5),
    ("icl", 2): (None, dict(none=0.9, own=0.2, other=0.9, held_out=0.9)),
    ("iclinf", 1): (None, {1: 0, 10: 0, 100: 1}),
    ("iclinf", 2): (
        dict(one="falls", all="rises"),
        dict(one="rises", all="rises"),
    ),
    ("contextual", 1): (None, {0.02: 15, 0.2: 15, 5: 0}),
    ("contextual", 2): ("counterfactual", "contextual"),
    ("capacity", 1): (None, {8: 0, 32: 0, 128: 1}),
    ("capacity", 2): (32, 128),
    ("compare", 1): (
        ["extractable", "recollected", "loss"],
        ["loss", "recollected", "extractable"],
    ),
    ("compare", 2): ([0], [0, 0.7, 2]),
}


def test_every_experiment_has_its_outcome():
    from memnb.core import paper_file
    from memnb.papers import notebooks

    listed = {
        (word, n)
        for word in notebooks(TOP / "nbs")
        for n, _ in enumerate(
            yaml.safe_load(
                paper_file(word, "experiments.yaml").read_text(encoding="utf8")
            ),
            1,
        )
    }
    assert listed == {*OUTCOMES}


@pytest.mark.parametrize("word", PAPERS)
def test_a_paper_names_what_experiments_and_page_ask_for(word):
    "Readers of `experiments.yaml`, and the checks that the page calls: no more and no fewer"
    from memnb.core import paper_file
    from memnb.papers import find, paper

    described = paper(word)
    assert described.word == word
    readers, checks = described.exercises()
    text = paper_file(word, "experiments.yaml").read_text(encoding="utf8")
    named = {
        entry[field]
        for entry in yaml.safe_load(text)
        for field in ("shown", "judge")
        if isinstance(entry[field], str)
    }
    assert {*readers} == named
    page = "".join(
        "".join(cell["source"])
        for cell in json.loads(find(word).read_text(encoding="utf8"))["cells"]
        if cell["cell_type"] == "code"
    )
    assert {*checks} == {*re.findall(rf'mark\("{word}", "(\w+)"', page)}


def test_exercises_are_imported_when_somebody_asks(tmp_path):
    code = (
        "import sys\nfrom memnb.papers import paper\n"
        "one = paper('contextual')\nplace = 'memnb.contextual.exercises'\n"
        "assert place not in sys.modules\none.exercises()\n"
        "assert place in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


@pytest.mark.parametrize("word, number", OUTCOMES, ids=lambda part: str(part))
def test_experiment_runs_and_is_graded(word, number, tmp_path, monkeypatch):
    "The code as it stands runs; the right prediction is right, a wrong one is answered with what came out"
    from memnb.exercises import exercise, grade
    from memnb.papers import paper

    monkeypatch.setenv("MEMNB_STORE", str(tmp_path / "store.sqlite"))
    experiment = exercise(word, number)
    call = f"grade('{word}', {number}, predicted, run)"
    assert experiment.code.strip().endswith(call), (
        "the last line hands in prediction and run"
    )
    names = {}
    exec(experiment.code.split("grade(")[0], names)
    run = names["run"]
    right, wrong = OUTCOMES[word, number]
    if right is None:
        shown = paper(word).exercises().readers[experiment.shown](wrong, run)
        numbers = [
            value for guess, value in shown.values() if guess is not None
        ]
        right = (
            dict(zip(wrong, numbers))
            if experiment.form == "dict"
            else numbers[0]
        )
    graded = grade(word, number, right, run)
    assert graded == f"right. {experiment.follows}"
    assert "data:image/png" in graded._repr_html_()
    assert not grade(word, number, wrong, run).startswith("right")
    for part in wrong if experiment.form == "dict" else []:
        with pytest.raises(ValueError, match=re.escape(experiment.title)):
            grade(word, number, right | {part: math.nan}, run)


def test_snippet_of_the_guide(at):
    "Its lines as they stand, with a prediction and what the exercise says to run put in before the last"
    (code,) = re.findall(r"```python\n(.*?)```", teach(), re.S)
    lines = code.strip().splitlines()
    assert lines[-1].startswith('grade("capacity", 1, predicted, run)')
    begin = [
        "from memnb.exercises import exercise as _e; exec(_e('capacity', 1).code.split('grade(')[0])",
        'predicted = {r.n: r.bits/r.entropy for r in run[run.part == "synthetic"].itertuples()}',
    ]
    shown = [
        f"print({l.split('#')[0].strip()})" if not l.startswith("from") else l
        for l in lines
    ]
    out = run(
        "\n".join(
            [
                *shown[:-1],
                *begin,
                shown[-1],
                shown[-1].replace("predicted", "dict.fromkeys(predicted, 0)"),
            ]
        ),
        at,
    )
    asked, rest = out.split("```\n", 2)[0], out.split("\n```\n")[1].splitlines()
    assert (
        "**How much fits into a model?** (10 minutes, easy)" in asked
        and "How many parameters" not in asked
    )
    assert rest[0].startswith("A sequence has 8 x 4 bits.")
    assert rest[0].endswith("(2 more: hint('capacity', 1, 2))")
    assert (
        rest[1].startswith("right. ")
        and "are memorized, not 0 %" in rest[2]
        and "right" not in rest[2]
    )


@pytest.mark.slow
def test_a_table_of_your_own(at):
    out = run(told("tabular", "memnb table"), at)
    *found, name = out.splitlines()
    page = (at / name).read_text(encoding="utf8")
    assert name.endswith(".html") and found[0].endswith(".")
    title = "What does SmolLM2 remember of my?"
    assert f"<title>{title}</title>" in page and f"<h1>{title}</h1>" in page
    assert "<p>40 rows, 3 columns (height, weight, grade).</p>" in page
    told_of = dict(re.findall('<th scope="row">(.*?)</th><td>(.*?)</td>', page))
    names = next(v for q, v in told_of.items() if "column names" in q)
    assert len(told_of) == 8 and names.startswith(
        "cannot be asked"
    )  # no model could know its name
    line = next(v for q, v in told_of.items() if "what is the next?" in q)
    assert line.split(":")[0] in ("yes", "no", "open")
    lines = {*(at / "my.csv").read_text().splitlines()}
    said = re.findall(
        "<tr><td><code>(.*?)</code></td>",
        page.split("<h2>What the model says</h2>")[1],
    )
    assert len(said) == 9 and {*said} <= lines


def test_twenty_answers_to_judge(at):
    pytest.importorskip(
        "ipywidgets", reason="ipywidgets is missing: install the extra 'lab'"
    )
    code = told("icl", "icl.review")
    out = run(
        f"from memnb import icl\nbox = {code}\nprint(box.children[0].value)\nbox.children[1].children[0].click()\n"
        'print(icl.reviewed("mine.csv").to_string())',
        at,
    )
    assert "20 to go" in out and "exact" in out and (at / "mine.csv").exists()


@pytest.mark.slow
def test_bits_of_your_texts(at):
    code = told("capacity", "capacity.unintended").replace(
        "[...]", "['The gate of Orvath was closed in the rain.']"
    )
    out = run(
        f'from memnb import capacity\nprint({code}.to_json(orient="records"))',
        at,
    )  # JSON has null for NaN
    (row,) = json.loads(out.splitlines()[-1])
    bits = {k: v for k, v in row.items() if k != "text"}
    assert row["text"] == "The gate of Orvath was closed in the rain."
    assert all(
        isinstance(v, (int, float)) and math.isfinite(v) for v in bits.values()
    ), bits
    assert bits["unintended"] >= 0


@pytest.mark.slow
def test_all_notions_of_your_texts(at):
    *found, page, table = run(told("compare", "memnb ask"), at).splitlines()
    assert found and all(
        "Orvath" in (at / f).read_text(encoding="utf8") for f in (page, table)
    )


def test_orders_by_threshold(at):
    assert {"memnb run smoke --only contextual", "memnb report"} <= {
        *LESSONS["contextual"]
    }  # both are run in test_batch and test_report


def test_every_page_has_a_slider():
    for p in PAPER_NOTEBOOKS:
        code = [
            "".join(c["source"]) for c in json.loads(p.read_text())["cells"]
        ]
        assert sum("plots.slide(" in c for c in code) == 1, p.name
