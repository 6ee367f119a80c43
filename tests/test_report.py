"The report of a batch: what it says, what it must not say, and how it works in a browser."

import json
import os
import re
import shutil
import socket
from html import unescape
from math import inf
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote

import pytest
from test_lab import chromium, cut_on_paper, wait
from test_notebooks import MARKER
from test_repo import MACHINE, PAPER_NOTEBOOKS, TOP

from memnb import rendering
from memnb.claims import BOARD_MIME
from memnb.run import executed, report, specification
from memnb.run.report import batch_report

YES, NO, MIXED, OPEN, GONE, NONE = (
    "holds",
    "does not hold",
    "models differ",
    "open",
    "not asked",
    "not testable here",
)
EVIL = '<script>document.title="owned"</script><img src=x onerror="document.title=1">'
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

# --- small executed notebooks ---


def stream(text):
    return dict(output_type="stream", name="stdout", text=text)


def shown(**data):
    return dict(
        output_type="display_data",
        metadata={},
        data={k.replace("_", "/"): v for k, v in data.items()},
    )


def picture():
    return shown(image_png=DOT, text_plain="<Figure>")


def html_table(head, rows):
    "A table as pandas writes it, its words escaped"
    import pandas as pd

    return shown(
        text_html=pd.DataFrame(rows, columns=head).to_html(border=0),
        text_plain="table",
    )


def board(*rows, head=("model", "where", "says", "verdict", "evidence")):
    "A board as `claims.Verdicts` shows it: a table for people, records for programs"
    out = html_table(head, rows)
    out["data"][BOARD_MIME] = dict(
        paper="dice", claims=[dict(zip(head, r)) for r in rows]
    )
    return out


def read(path):
    return json.loads(path.read_text(encoding="utf8"))


def copy_paper(path, folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / path.name).write_text(path.read_text(encoding="utf8"))


def cell(source, *outputs):
    return dict(
        cell_type="code", metadata={}, source=source, outputs=list(outputs)
    )


def text(source):
    return dict(cell_type="markdown", metadata={}, source=source)


def notebook(path, *cells, word="dice", params=None, **meta):
    "Write an executed notebook of memnb"
    params = dict(profile=path.parent.name, model="m", seed=0) | (params or {})
    first = [text("# Dice"), cell(f"#| default_exp {word}")]
    own = dict(
        papermill=dict(
            parameters=params, duration=61.5, end_time="2026-01-02T03:04:05"
        ),
        memnb=dict(
            identity="f" * 64,
            version="0.1.0",
            machine="2 cores, CPU",
            versions=dict(torch="2.13.0"),
        ),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    nb = dict(
        cells=[*first, *cells],
        metadata=own | meta,
        nbformat=4,
        nbformat_minor=5,
    )
    path.write_text(json.dumps(nb))
    return path


def claims(*rows):
    return [text("## Claims"), cell("plots.to_html(board)", board(*rows))]


def wide_picture():
    "A picture of 400 times 200 dots, in base64"
    import base64
    import io

    from PIL import Image

    out = io.BytesIO()
    Image.new("RGB", (400, 200), "white").save(out, "png")
    return base64.b64encode(out.getvalue()).decode()


def toy(path, dots=DOT, points=(3, 2), **kw):
    "A page as papers have them: sentences, a picture with its caption, then the picture of the claims"
    size = {
        "image/png": dict(
            width=points[0], height=points[1], alt=f"Throws & {EVIL}"
        )
    }

    def pic():
        return shown(image_png=dots, text_plain="<Figure>") | dict(
            metadata=size
        )

    return notebook(
        path,
        text("## 1 Throws"),
        cell(
            "found(m)", shown(text_markdown=f"Fair in **3 of 6**, $2^3$ {EVIL}")
        ),
        cell(
            "savefig(figures.fig2(m))", pic(), shown(text_markdown="*Again.*")
        ),
        text("## 2 What holds"),
        cell(
            "savefig(figures.fig1(m))",
            pic(),
            shown(
                text_markdown=f"*The die {EVIL} is thrown. By $n$.*",
                text_plain="x",
            ),
        ),
        *claims(("m", "§1", "toy claim", YES, "e")),
        word=kw.pop("word", "toy.method"),
        **kw,
    )


def beside(out):
    return sorted((out.parent / f"{out.stem}_files").iterdir())


def pages(out):
    return {p.name: p.read_text() for p in [out, *beside(out)]}


def words(html):
    "What a reader sees of a page"
    html = re.sub(r"<(style|script)>.*?</\1>", "", html, flags=re.S)
    return unescape(re.sub(r"<[^>]+>", " ", html))


def row_of(page, says):
    "(model, verdict) of each cell of a claim"
    row = next(
        r
        for r in re.findall(r"<tr data-has.*?</tr>", page, re.S)
        if f">{says}</th>" in r
    )
    return dict(
        re.findall(r'<li data-label="([^"]*)" data-sort="([^"]*)"', row)
    )


def verdict_of(page, says):
    "The one verdict of a claim"
    row = next(
        r
        for r in re.findall(r"<tr data-has.*?</tr>", page, re.S)
        if f">{says}</th>" in r
    )
    return re.search(r'<td data-label="verdict" data-sort="([^"]*)"', row)[1]


# --- what it says ---


def test_counts_are_those_of_the_notebooks(tmp_path):
    "The real boards: each claim of a paper once, whatever the number of models; theorems and claims of ours apart"
    said = {True: {}, False: {}}
    for p in PAPER_NOTEBOOKS:
        copy_paper(p, tmp_path / "smoke")
        by = {}
        for o in (
            o
            for c in read(p)["cells"]
            for o in c.get("outputs", [])
            if BOARD_MIME in o.get("data", {})
        ):
            rows = o["data"][BOARD_MIME]
            for r in rows["claims"] if isinstance(rows, dict) else rows:
                ours = r["about"] == "a theorem" or bool(
                    re.search(r"\bours\b", r["where"].lower())
                )
                by.setdefault((r["where"], r["says"], ours), set()).add(
                    r["verdict"]
                )
        for (*_, ours), found in by.items():
            decided = found & {YES, NO, "too small to matter", MIXED}
            one = (
                (decided.pop() if len(decided) == 1 else MIXED)
                if decided
                else next(v for v in (OPEN, NONE, GONE) if v in found)
            )
            said[ours][one] = said[ours].get(one, 0) + 1
    page = batch_report(tmp_path).read_text()
    tiles = {
        v: int(n) for n, v in re.findall(r"<b>(\d+)</b> ([a-z ]+)</li>", page)
    }
    assert {v: n for v, n in tiles.items() if n} == said[False] and sum(
        said[False].values()
    ) > 50
    rows = re.search(r'class="summary.*?</table>', page, re.S)[0].split("<tr")[
        2:
    ]
    for ours in (False, True):
        counts = [
            tuple(map(int, re.findall(r'<td class="n"[^>]*>(\d+)<', r)))
            for r in rows
            if (' class="ours"' in r) == ours
        ]
        assert {
            v: n for v, n in zip(tiles, map(sum, zip(*counts))) if n
        } == said[ours]
    marks = sum(
        len(re.findall("<svg", m))
        for m in re.findall(r'<span class="marks".*?</span>', page, re.S)
    )
    assert marks == sum(said[False].values())  # the strips of the poster


def test_the_poster_says_who_what_and_how_it_came_out(tmp_path):
    "A card a paper: question, finding, picture, the paper's claims as marks that unfold, authors with year and link"
    nb = json.loads(toy(tmp_path / "laptop/toy.ipynb").read_text())
    nb["cells"][0]["source"] = (
        "# Dice\n\n> Do they fall?\n\nAnn, Bo (2026), [*On dice*](https://x.org/a). Here is more.\n\n| | paper | here |\n|---|---|---|\n| six | ⅙ | 0.2<!--dice.six--> |"
    )
    nb["cells"][-1]["outputs"][0]["data"][BOARD_MIME]["claims"] = [
        dict(where=w, says=s, verdict=v, about=a, model=m, evidence="e")
        for w, s, v, a, m in [
            ("§1", "fair", YES, "a model", "m"),
            ("§1", "fair", GONE, "a model", "gpt"),
            ("ours", "odd", NO, "a model", "m"),
            ("§2", "sum", YES, "a theorem", ""),
            ("§3", "bias", GONE, "the paper's numbers", ""),
        ]
    ]
    (tmp_path / "laptop/toy.ipynb").write_text(json.dumps(nb))
    page = batch_report(tmp_path, changed="2 rows <changed>").read_text()
    card = page[page.index("<article") : page.index("</article>")]
    assert "0.2</td>" in card and "dice.six" not in page
    assert (
        card.index("Do they fall?")
        < card.index("<table")
        < card.index(f"base64,{DOT}")
    )
    assert (
        "Do they fall?" in card
        and "Throws" in card
        and f"base64,{DOT}" in card
        and "holds 1 · not asked 1" in words(card)
    )
    assert (
        '<a href="https://x.org/a" rel="noreferrer"><em>On dice</em></a>.</p>'
        in page
        and "Here is more" not in page
    )
    assert (
        re.findall("<li>.*?</b> (.*?)</li>", card) == ["fair", "bias"]
        and verdict_of(page, "fair") == YES
    )
    assert (
        row_of(page, "fair") == {"m": YES, "tiny GPT-2": GONE}
        and "1 paper, 2 models</summary>\n<p>m; tiny GPT-2</p>" in page
    )
    folded = page[page.index('<details class="rest">') :]
    assert (
        "1 claim not asked" in folded
        and ">bias</th>" in folded
        and ">bias</th>" not in page[: page.index('<details class="rest">')]
    )
    assert (
        "2 rows &lt;changed&gt;" in page
        and "about" not in row_of(page, "fair")
        and "the paper's numbers" in unescape(folded)
    )


def test_real_notebooks_bring_their_figures_and_mathematics(tmp_path):
    copy_paper(
        next(p for p in PAPER_NOTEBOOKS if "iclinf" in p.stem),
        tmp_path / "smoke",
    )
    found = pages(batch_report(tmp_path))
    alts = re.findall(r'<img [^>]*alt="([^"]*)"', found["report.html"])
    assert len({*alts}) >= 5 and all(alts), alts
    page = next(v for k, v in found.items() if "iclinf" in k)
    assert (
        "<mfrac>" in page
        and page.count("<math") > 20
        and 'class="tex"' not in page
    )


def test_readings_that_differ_are_drawn(tmp_path):
    "A line a reading, sorted, with words for who does not see it; of claims that the report has, and no others"
    copy_paper(
        next(p for p in PAPER_NOTEBOOKS if "icl" in p.stem.split("_")),
        tmp_path / "smoke",
    )
    page = batch_report(tmp_path).read_text()
    tables = re.findall(r'<table class="curve">.*?</table>', page, re.S)
    drawn = specification.curves("icl")
    assert len(tables) == len(drawn) > 10
    for table, curve in zip(tables, drawn):
        assert table.count("<tr>") == len(curve.lines)
        count = f"{curve.agree} of {len(curve.lines)} readings"
        assert count in table and curve.agree < len(curve.lines)
        assert len({line.verdict for line in curve.lines}) > 1
        places = [line.at for line in curve.lines]
        assert places == sorted(places)
        for line in curve.lines:
            assert f'aria-label="{line.estimate}"' in table
            assert 0 <= line.low <= line.at <= line.high <= specification.WIDTH
            assert line.verdict in words(table)
    assert sum(map(len, tables)) < 100_000
    # a paper of one's own has none
    toy(tmp_path / "own/toy.ipynb")
    page = batch_report(tmp_path / "own").read_text()
    assert 'class="curve"' not in page


def test_an_interval_without_an_end_goes_to_the_edge():
    line = SimpleNamespace(
        reading="", choice="", model="m", verdict=YES, no=0, yes=0.5
    )
    there = SimpleNamespace(**vars(line) | dict(value=1, low=0.5, high=inf))
    here = SimpleNamespace(**vars(line) | dict(value=-1, low=-1, high=-1))
    curve = specification._curve("it", [there, here])
    assert [one.estimate for one in curve.lines] == ["−1", "1 (0.5 or more)"]
    edge = specification.WIDTH - specification.EDGE
    assert curve.lines[1].high == edge and curve.bounds == [100, 146]


def test_a_grid_agrees_or_differs(tmp_path):
    for seed, (a, b) in enumerate([(YES, YES), (NONE, NO), (YES, YES)]):
        notebook(
            tmp_path / f"grid/dice-seed={seed}.ipynb",
            *claims(
                ("m", "§1", "one", a, f"s{seed}"),
                ("m", "§1", "two", b, f"s{seed}"),
            ),
            params=dict(seed=seed),
        )
    page = batch_report(tmp_path).read_text()
    assert row_of(page, "one") == {"m": YES} and row_of(page, "two") == {
        "m": "runs differ"
    }
    assert (
        verdict_of(page, "one") == YES
        and verdict_of(page, "two") == "runs differ"
    )
    assert "2 of 3 runs" in page
    assert all(
        f'href="#grid-dice-seed={i}"' in page and f"s{i}" in page
        for i in range(3)
    )


def test_smoke_and_foreign_models_give_way(tmp_path):
    "A run speaks for its own model, and a smoke run counts only where there is no larger one"
    own, hearsay = (
        ("m", "§1", "x", YES, "own"),
        ("o", "§1", "x", YES, "hearsay"),
    )
    notebook(tmp_path / "laptop/a.ipynb", *claims(own, hearsay))
    notebook(
        tmp_path / "laptop/b.ipynb",
        *claims(("o", "§1", "x", NO, "own o")),
        params=dict(model="o"),
    )
    tiny, only = (
        ("m", "§1", "x", NO, "tiny"),
        ("m", "§2", "y", YES, "only smoke"),
    )
    notebook(tmp_path / "smoke/a.ipynb", *claims(tiny, only))
    page = batch_report(tmp_path).read_text()
    assert (
        row_of(page, "x") == {"m": YES, "o": NO}
        and "hearsay" not in page
        and "tiny" not in page
    )
    assert row_of(page, "y") == {"m": YES} and verdict_of(page, "x") == MIXED


def test_board_without_a_model_column_is_that_of_the_run(tmp_path):
    table = board(
        ("§1", "x", YES, "e"), head=["where", "says", "verdict", "evidence"]
    )
    notebook(
        tmp_path / "a.ipynb",
        text("## Claims"),
        cell("b", table),
        params=dict(model="mine"),
    )
    assert row_of(batch_report(tmp_path).read_text(), "x") == {"mine": YES}


def test_a_board_is_data_not_a_table_that_looks_like_one(tmp_path):
    "Whatever a table shows, only the records of a board are verdicts"
    head, row = (
        ["model", "where", "says", "verdict", "evidence"],
        ("m", "§1", "looks", YES, "e"),
    )
    says = dict(
        where="§1",
        says="x",
        verdict=YES,
        evidence=None,
        id="a",
        about="a model",
        n=[1],
    )
    notebook(
        tmp_path / "a.ipynb",
        text("## Claims"),
        cell("t", html_table(head, [row])),
        cell(
            "b",
            shown(text_plain="y")
            | dict(data={BOARD_MIME: dict(claims=[says])}),
        ),
    )
    page = batch_report(tmp_path).read_text()
    assert row_of(page, "x") == {"m": YES} and page.count("<tr data-has") == 1


def test_every_verdict_has_a_mark_and_undecided_ones_do_not_object(tmp_path):
    kinds = YES, NO, MIXED, OPEN, GONE, NONE
    notebook(
        tmp_path / "laptop/a.ipynb",
        *claims(
            *(("m", "§1", f"says {v}", v, "e") for v in kinds),
            ("m", "§1", "both", OPEN, "few"),
        ),
    )
    notebook(
        tmp_path / "laptop/b.ipynb",
        *claims(
            ("m", "§1", "both", YES, "e"),
            ("m", "§1", f"says {GONE}", OPEN, "e"),
        ),
    )
    page = batch_report(tmp_path).read_text()
    assert {row_of(page, f"says {v}")["m"] for v in kinds if v != GONE} == {
        *kinds
    } - {GONE}
    assert row_of(page, "both") == {"m": YES} and row_of(
        page, f"says {GONE}"
    ) == {"m": OPEN}
    marks = re.findall(r'<symbol id="m-(\w+)"', page)
    assert {report.MARKS[v] for v in kinds} <= set(marks) and len(
        set(re.findall("<symbol.*?</symbol>", page))
    ) == len(marks)


def test_provenance(tmp_path):
    notebook(
        tmp_path / "laptop/a.ipynb",
        *claims(("m", "§1", "x", YES, "e")),
        params=dict(ks=[1, 2]),
    )
    notebook(tmp_path / "laptop/b.ipynb", memnb={}, papermill={})
    page = words(batch_report(tmp_path).read_text())
    first, second = page.split("The executed notebook")[1:]
    for fact in ("2 cores, CPU", "62 s", "2026-01-02", "2.13.0", "1, 2"):
        assert fact in first, fact
    assert (
        "duration unknown" in " ".join(second.split()) and "2026" not in second
    )


def test_pictures_and_tables_that_two_runs_share_are_shown_once(tmp_path):
    for n in "ab":
        notebook(
            tmp_path / f"laptop/{n}.ipynb",
            text("## Figures"),
            cell("fig1(x)", picture()),
        )
    page = batch_report(tmp_path).read_text()
    assert (
        page.count(DOT) == 1 and 'the same as in <a href="#laptop-a">' in page
    )


def test_the_picture_of_its_claims_leads_a_paper(tmp_path):
    "It stands above the table, that of a larger run first; without one, the claims alone"
    toy(tmp_path / "smoke/toy.ipynb")
    (tmp_path / "laptop").mkdir()
    large = (
        (tmp_path / "smoke/toy.ipynb")
        .read_text()
        .replace("is thrown", "falls")
        .replace('"smoke"', '"laptop"')
    )
    (tmp_path / "laptop/toy.ipynb").write_text(large)
    notebook(tmp_path / "smoke/a.ipynb", *claims(("m", "§1", "x", YES, "e")))
    page = batch_report(tmp_path).read_text()
    paper = page[page.index('id="paper-toy"') : page.index('id="runs"')]
    before, table = paper.split("<table", 1)
    assert (
        "falls. By" in before
        and before.count("<figure>") == 1
        and "<math" in before
    )
    assert (
        "is thrown" not in page[: page.index('id="runs"')]
        and "toy claim" in table
    )
    plain = page[page.index('id="paper-dice"') :].split("</section>")[0]
    assert "<figure" not in plain and "x</th>" in plain
    assert (
        "Throws" in page[page.index('id="runs"') :]
        and page.count('the same as in <a href="#paper-toy">') == 1
    )


def test_captions_stand_below_their_pictures_and_widths_are_kept(tmp_path):
    toy(tmp_path / "smoke/toy.ipynb")
    for name, page in pages(batch_report(tmp_path)).items():
        found = re.findall(r"<figure>(.*?)</figure>", page, re.S)
        assert len(found) == 2 and page.count("<figcaption>") == 2, name
        assert all(
            'width="3" height="2"' in f for f in found
        )  # points of the page, not dots of the picture
        alts = [unescape(re.search('alt="([^"]*)"', f)[1]) for f in found]
        captions = [
            " ".join(words(f.split("<figcaption>")[1]).split()) for f in found
        ]
        assert alts == [f"Throws & {EVIL}"] * 2
        assert {*captions} == {f"The die {EVIL} is thrown. By n .", "Again."}
        assert (
            page.count("<math") >= 1
            and "*The die" not in page
            and page.count("is thrown") == 1
        )


def test_a_sixth_paper_appears_by_itself(tmp_path):
    "No list of papers: a run of a notebook that memnb has never seen has its title, its counts and its claims"
    nb = json.loads(toy(tmp_path / "smoke/toy.ipynb").read_text())
    nb["cells"][0]["source"] = "# Toy dice: `a` & b"
    (tmp_path / "smoke/toy.ipynb").write_text(json.dumps(nb))
    copy_paper(PAPER_NOTEBOOKS[0], tmp_path / "smoke")
    page = batch_report(tmp_path).read_text()
    assert (
        "2 runs, 2 papers" in page
        and "Toy dice: `a` &amp; b</h3>" in page
        and row_of(page, "toy claim") == {"m": YES}
    )
    own = [
        *(Path(m.__file__) for m in (report, executed, rendering)),
        # but for the page of `memnb ask`, which names measures
        *{*(Path(rendering.__file__).parent / "templates").glob("[!a]*")},
        TOP / "docs/conf.py",
        TOP / "docs/index.md",
    ]
    named = [
        (p.name, w)
        for p in own
        for w in re.findall(
            r"\b(tabular|icl|iclinf|contextual|capacity|[Ff]ive|Elephants)\b",
            p.read_text(),
        )
    ]
    assert not named, named


def test_failed_unfinished_and_unknown_runs(tmp_path):
    oops = dict(
        output_type="error",
        ename="ValueError",
        evalue=f"no {EVIL}\nsecond",
        traceback=["\x1b[31mTrace\x1b[0m"],
    )
    notebook(
        tmp_path / "p/bad.partial.ipynb",
        text("## Measure"),
        cell("1/0", oops),
        cell("2"),
    )
    half = cell("1") | dict(metadata=dict(papermill=dict(status="completed")))
    notebook(tmp_path / "p/half.partial.ipynb", half, cell("2"))
    notebook(
        tmp_path / "p/lone.partial.ipynb", half, cell("2")
    )  # nothing of it in the log
    notebook(tmp_path / "p/ended.ipynb", *claims(("m", "§1", "x", YES, "e")))
    rows = [
        dict(
            run="ended", what="cell", cell=8, of=9
        ),  # killed before it was told
        dict(run="next", notebook="dice", what="cell", cell=3, of=9),
        dict(run="next"),
        [],
        7,
        dict(run="gone", what="failed", error="OSError: disk full"),
        dict(run="bad", what="failed", error=f"ValueError: no {EVIL}"),
        dict(run="half", what="started"),
        dict(run="fine", what="done"),
    ]
    (tmp_path / "p/batch.jsonl").write_text(
        "\n".join(map(json.dumps, rows)) + '\n{"run": "to'
    )
    page = words(batch_report(tmp_path).read_text())
    assert (
        "5 runs did not finish" in page
        and "ended (p):" not in page
        and "Trace" in page
        and "\x1b" not in page
    )
    told = [
        "next (p): unknown",
        "gone (p): failed  OSError: disk full",
        "half (p): started",
    ]
    told += ["lone (p): unfinished"]
    assert [
        t
        for t in [*told, "bad (p): failed  ValueError: no <script>"]
        if t not in page
    ] == []


def test_torn_and_foreign_files_are_named(tmp_path):
    notebook(tmp_path / "a.ipynb", *claims(("m", "§1", "x", YES, "e")))
    bad = {
        "torn": '{"cells": [{"cell_ty',
        "list": "[1]",
        "none": "[]",
        "number": '{"cells": [1], "metadata": {}}',
        "null": '{"cells": [{"cell_type": "raw", "metadata": {}, "source": "x"}], "metadata": {"papermill": null}}',
        "binary": "\x00",
        "deep": "[" * 10**5,
        "empty": "",
        "foreign": '{"cells": [], "metadata": {}}',
        "odd": '{"cells": [{"cell_type": 3}], "metadata": {}}',
        "outs": '{"cells": [{"cell_type": "code", "source": "", "outputs": [3]}], "metadata": {}}',
    }
    for name, content in bad.items():
        (tmp_path / f"{name}.ipynb").write_text(content)
    (tmp_path / "latin.ipynb").write_bytes(b"\xff\xfe")
    page = batch_report(tmp_path).read_text()
    left = page[page.index('id="odd"') :]
    assert all(f"<li>{n}.ipynb: " in left for n in [*bad, "latin"]) and row_of(
        page, "x"
    ) == {"m": YES}


# --- what it must not say ---


def hostile(path, **kw):
    "A notebook with HTML wherever text can stand"
    bad = dict(output_type="error", ename=EVIL, evalue=EVIL, traceback=[EVIL])
    link, table = (
        '<a href="javascript:x">y</a>',
        f"<table><tr><td>{EVIL}</td><td>%s</td></tr></table>",
    )
    outs = [
        stream(EVIL),
        bad,
        html_table(["said", EVIL], [(EVIL, '"'), ("a", "'")]),
        shown(text_html=f"<div>{EVIL}</div>", text_plain=EVIL),
        shown(text_html=table % link),
        shown(text_markdown=f"**{EVIL}**"),
        shown(application_javascript="alert(1)", text_plain="j"),
        shown(image_png=f'{DOT}"><script>x</script>', text_plain="p"),
        shown(**{"image_svg+xml": EVIL}, text_plain="s"),
    ]
    prose = (
        f"# {EVIL}\n\n{EVIL} [x](javascript:alert(1)) ![p](http://x.org/p.png) ${EVIL}$\n\n"
        rf"$\text{{{EVIL}}}$ $\text{{<iframe>x</iframe>}}$ $\href{{javascript:x}}{{y}}$"
    )
    return notebook(
        path,
        text(prose),
        text("## Measure"),
        cell(EVIL, *outs),
        *claims(
            (EVIL, EVIL, EVIL, EVIL, EVIL),
            ("m", '"', "'", YES, "</td></table>"),
        ),
        params=dict(model=EVIL, note=EVIL),
        memnb=dict(machine=EVIL, versions={EVIL: EVIL}),
        **kw,
    )


def test_output_is_escaped(tmp_path):
    "A model, a paper, a run, a verdict, a fact, a figure: named <script>, each stays a word"
    hostile(tmp_path / 'laptop/a"><script>.ipynb')
    hostile(tmp_path / "laptop/b.partial.ipynb")
    toy(
        tmp_path / "laptop/toy.ipynb",
        params={"model": EVIL, "seed": EVIL, EVIL: [EVIL]},
    )
    hostile(tmp_path / f"{re.sub('/', '', EVIL)}/b.ipynb", word="other")
    row = dict(run=EVIL, notebook=EVIL, what=EVIL, cell=EVIL, of=1, error=EVIL)
    (tmp_path / "laptop/batch.jsonl").write_text(json.dumps(row))
    for name, page in pages(batch_report(tmp_path)).items():
        scripts = re.findall(r"<script\b[^>]*>", page)
        assert scripts == ["<script>"] and page.rstrip().endswith(
            "</body></html>"
        ), name
        tags = {t.lower() for t in re.findall(r"<([a-zA-Z]+)", page)}
        assert not tags & {
            "iframe",
            "object",
            "embed",
            "form",
            "input",
            "base",
        }, name
        assert not re.findall(
            r"<[^>]*\s(?:on\w+|style)\s*=", re.sub('"[^"]*"', '""', page)
        ), name
        known = r"#|data:|https?://|report_files/|\.\./report\.html"
        assert not re.findall(rf'(?:src|href)="(?!{known})[^"]*"', page), name
        pictures = re.findall(r'<img [^>]*?src="([^"]*)"', page)
        assert all(u.startswith("data:image/png;base64,") for u in pictures)
        assert not [a for a in re.findall(r'="([^"]*)"', page) if "<" in a], (
            name
        )
    env = rendering.templates()
    sources = [env.loader.get_source(env, t)[0] for t in env.list_templates()]
    assert env.autoescape is True and not [t for t in sources if "|safe" in t]


def test_no_key_path_host_or_user(tmp_path, monkeypatch):
    host = "gpu-node-17.example.edu"
    monkeypatch.setenv("OPENAI_API_KEY", MARKER)
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    user, inside = "/home" + "/adalovelace", str(Path(report.__file__))
    leak = (
        f"{MARKER} {host} {user}/models/x {inside} {tmp_path}/y sk-abcdefghij0123456789 "
        f"http://{host}:8000/v1 {MARKER[:7]}\x1b[31m{MARKER[7:]} sk-abcde\x1b[0mfghij0123456789"
    )
    oops = dict(output_type="error", ename="E", evalue=leak, traceback=[leak])
    notebook(
        tmp_path / "laptop/a.ipynb",
        text(f"# {leak}\n\n${leak}$"),
        cell(
            f'x = "{leak}"', stream(leak), html_table([leak], [(leak,)]), oops
        ),
        *claims((leak, leak, leak, YES, leak)),
        params=dict(model=f"hf:{user}/models/x"),
        memnb=dict(machine=leak),
    )
    row = dict(run=f"b-{MARKER}", what="failed", error=leak, notebook=leak)
    (tmp_path / "laptop/batch.jsonl").write_text(json.dumps(row))
    (tmp_path / f"laptop/torn {MARKER}.ipynb").write_text("{")
    for name, page in pages(batch_report(tmp_path)).items():
        for word in (
            MARKER,
            host,
            "adalovelace",
            str(tmp_path),
            inside,
            "sk-abcdefghij",
        ):
            assert word not in page and word not in name, f"{word} in {name}"
        assert not MACHINE.search(re.sub('base64,[^"]*', "", page)), name


def test_nothing_is_asked_of_the_network(tmp_path):
    copy_paper(PAPER_NOTEBOOKS[0], tmp_path)
    for name, page in pages(batch_report(tmp_path)).items():
        policy = re.search(
            r'http-equiv="Content-Security-Policy" content="([^"]*)"', page
        )[1]
        assert (
            policy.startswith("default-src 'none'; img-src data:;")
            and "unsafe" not in policy
        )
        asks = r'url\(|@import|<link(?! rel="icon" href="data:,")|src="(?!data:)|srcset|fetch\(|XMLHttp'
        assert not re.search(asks, page), name


def test_the_policy_allows_what_the_page_has(tmp_path):
    "Checksums of style and script are of the very bytes in the page, so that a browser takes them and nothing else"
    import base64
    import hashlib

    toy(tmp_path / "smoke/toy.ipynb")
    for page in pages(batch_report(tmp_path)).values():
        policy = re.search(r'Security-Policy" content="([^"]*)"', page)[1]
        for kind, body in re.findall(r"<(style|script)>(.*?)</\1>", page, re.S):
            sha = base64.b64encode(
                hashlib.sha256(body.encode()).digest()
            ).decode()
            assert f"{kind}-src 'sha256-{sha}'" in policy
        assert sorted(d.split()[0] for d in policy.split(";")) == sorted(
            [
                "default-src",
                "img-src",
                "style-src",
                "script-src",
                "base-uri",
                "form-action",
            ]
        )


def test_links_lead_somewhere(tmp_path):
    for n in "ab":
        notebook(
            tmp_path / f"laptop/{n} x=1,2.ipynb",
            text("## Figures"),
            cell("f", picture()),
            *claims(("m", "§1", "x", YES, n)),
        )
    out = batch_report(tmp_path, tmp_path / "away" / "my report.html")
    for p in [out, *beside(out)]:
        page = p.read_text()
        ids = set(re.findall(r'\bid="([^"]*)"', page))
        for link in map(unescape, re.findall(r'href="([^"]*)"', page)):
            file, _, at = link.partition("#")
            if file.startswith(("data:", "https:")):
                continue
            target = p.parent / unquote(file) if file else p
            assert target.is_file(), link
            if not file:
                assert at in ids, link
    assert len(beside(out)) == 2


# --- writing ---


def test_same_runs_same_bytes(tmp_path):
    for n in "ba":
        notebook(
            tmp_path / f"laptop/{n}.ipynb",
            *claims(("m", "§1", "x", YES, n)),
            text("## Figures"),
            cell("f", picture()),
        )
    first = pages(batch_report(tmp_path))
    shutil.copytree(tmp_path / "laptop", tmp_path / "other/laptop")
    assert (
        pages(batch_report(tmp_path)) != {}
        and pages(batch_report(tmp_path / "other")) == first
    )


def test_pages_of_somebody_beside_a_report_stay(tmp_path):
    "A browser saves the parts of a page into a folder of this name"
    notebook(tmp_path / "a.ipynb", *claims(("m", "§1", "x", YES, "e")))
    ours = beside(batch_report(tmp_path))
    (tmp_path / "b.ipynb").write_bytes((tmp_path / "a.ipynb").read_bytes())
    key = ours[0].name.replace("-a.", "-b.")
    for name in (key, "notes.html"):
        (ours[0].parent / name).write_text(
            "<html>mine: content='memnb report'</html>"
        )
    with pytest.raises(ValueError, match="no file of memnb"):
        batch_report(tmp_path)
    assert (ours[0].parent / key).read_text().startswith("<html>mine")
    (ours[0].parent / key).unlink()
    batch_report(tmp_path)
    assert (ours[0].parent / "notes.html").exists()


def test_a_failed_write_leaves_the_old_report(tmp_path, monkeypatch):
    notebook(tmp_path / "a.ipynb", *claims(("m", "§1", "x", YES, "e")))
    before = pages(batch_report(tmp_path))
    notebook(tmp_path / "a.ipynb", *claims(("m", "§1", "x", NO, "e")))
    monkeypatch.setattr(
        os,
        "replace",
        lambda *a: (_ for _ in ()).throw(
            OSError(28, "No space left on device")
        ),
    )
    with pytest.raises(OSError):
        batch_report(tmp_path)
    assert pages(tmp_path / "report.html") == before and not list(
        tmp_path.rglob("*.tmp")
    )


# --- in a browser ---

CONTRAST = """
const light = c => { const f = x => (x /= 255) <= .03928 ? x/12.92 : ((x + .055)/1.055)**2.4;
  return .2126*f(c[0]) + .7152*f(c[1]) + .0722*f(c[2]); };
const rgb = s => s.match(/[\\d.]+/g).map(Number);
const back = x => { for (; x; x = x.parentElement) { const c = rgb(getComputedStyle(x).backgroundColor);
  if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
const own = x => [...x.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
const found = new Map();
for (const x of document.querySelectorAll('body *')) {
  if (!own(x) || !x.getClientRects().length || x.closest('.skip')) continue;
  const [a, b] = [light(rgb(getComputedStyle(x).color)), light(back(x))];
  const ratio = (Math.max(a, b) + .05)/(Math.min(a, b) + .05);
  const name = x.tagName + '.' + (x.className.baseVal ?? x.className);
  found.set(name, Math.min(ratio, found.get(name) ?? 99)); }
return [...found].filter(([k, v]) => v < 4.5)"""


@pytest.fixture(scope="module")
def batch(tmp_path_factory):
    "A report with real notebooks, hostile text, a grid and a failed run"
    folder = tmp_path_factory.mktemp("batch")
    for p in PAPER_NOTEBOOKS:
        copy_paper(p, folder / "smoke")
    hostile(folder / "laptop/hostile.partial.ipynb")
    toy(folder / "laptop/toy.ipynb", dots=wide_picture(), points=(200, 100))
    sizes = html_table(
        ["name", "size"],
        [("b", "10"), ("a", "9"), ("c", "NaN"), ("d", "1,000")],
    )
    for i, v in enumerate([YES, NO]):
        notebook(
            folder / f"laptop/dice-seed={i}.ipynb",
            text("## Measure"),
            cell("x", sizes),
            *claims(("m", "§1", "differs", v, "e")),
            params=dict(seed=i),
        )
    return batch_report(folder)


@pytest.fixture
def page(batch, tmp_path):
    "The report, open in a browser that must not complain"
    with chromium(tmp_path) as driver:
        driver.get(batch.as_uri())
        driver.file = batch
        yield driver
        severe = [
            e["message"]
            for e in driver.get_log("browser")
            if e["level"] != "INFO"
        ]
        assert not severe, f"the console says: {severe}"


def emulate(driver, wide=1280, high=900, dark=False, media=""):
    size = dict(width=wide, height=high, deviceScaleFactor=1, mobile=wide < 600)
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        dict(
            media=media,
            features=[
                dict(
                    name="prefers-color-scheme",
                    value="dark" if dark else "light",
                )
            ],
        ),
    )


def css(driver, selector):
    return driver.find_elements("css selector", selector)


def each(driver, selector, value):
    "The JavaScript expression `value` for each element `x`"
    return driver.execute_script(
        f"return [...document.querySelectorAll({selector!r})].map(x => {value})"
    )


def open_all(driver):
    each(driver, "details", "x.open = true")


def column(driver, table, n):
    return driver.execute_script(
        "return [...arguments[0].tBodies[0].rows].map(r => r.cells[arguments[1]]?.textContent.trim())",
        table,
        n,
    )


@pytest.mark.browser
def test_opens_without_error_or_request(page, batch):
    for p in [batch, *beside(batch)]:
        page.get(p.as_uri())
        open_all(page)
        asked = page.execute_script(
            "return performance.getEntriesByType('resource').map(e => e.name)"
        )
        assert not [a for a in asked if not a.startswith("data:")], asked
        assert page.title not in ("owned", "1") and ":" in page.title


@pytest.mark.browser
def test_pictures_are_drawn_and_formulas_set(page, batch):
    open_all(page)
    sizes = each(
        page, "img", "[x.complete, x.naturalWidth, x.width, x.alt.length]"
    )
    assert len(sizes) > 15 and all(
        done and real > 0 and drawn > 0 and alt
        for done, real, drawn, alt in sizes
    )
    page.get(next((batch.parent / "report_files").glob("*icl*")).as_uri())
    high = each(page, "mfrac", "x.getBoundingClientRect().height")
    assert high and min(high) > 15, (
        f"fractions are not set as fractions: {high}"
    )


@pytest.mark.browser
@pytest.mark.parametrize("wide, drawn", [(1280, 200), (180, 0)])
def test_two_dots_of_a_picture_are_one_point_of_the_page(page, wide, drawn):
    "As wide as the notebook says, so that a screen with two dots a point shows every dot; narrower where there is no room"
    emulate(page, wide)
    open_all(page)
    found = each(
        page,
        'img[width="200"]',
        "[x.naturalWidth, x.getBoundingClientRect().width, x.getBoundingClientRect().height]",
    )
    assert found and all(
        dots == 400
        and abs(w - 2 * h) < 1.5
        and (w == drawn or not drawn and 50 < w < wide)
        for dots, w, h in found
    ), found


@pytest.mark.browser
def test_tables_sort_by_mouse_and_by_keyboard(page):
    from selenium.webdriver.common.keys import Keys

    open_all(page)
    table = next(
        t
        for t in css(page, ".run table.sort")
        if column(page, t, 2)[:1] == ["10"]
    )
    head = table.find_elements("css selector", "thead th")[2]
    button = head.find_element("css selector", "button")
    button.click()
    assert column(page, table, 2) == ["9", "10", "1,000", "NaN"]
    assert head.get_attribute("aria-sort") == "ascending"
    button.send_keys(Keys.ENTER)
    assert column(page, table, 2) == ["1,000", "10", "9", "NaN"]
    assert head.get_attribute("aria-sort") == "descending"
    first = table.find_elements("css selector", "thead button")[1]
    first.send_keys(Keys.SPACE)
    assert (
        column(page, table, 1) == ["a", "b", "c", "d"]
        and head.get_attribute("aria-sort") is None
    )


@pytest.mark.browser
def test_claims_sort_and_filter(page):
    emulate(page)
    kinds = set()
    for table in css(page, "table.claims.sort"):
        for i, button in enumerate(
            table.find_elements("css selector", "thead button")[2:], 2
        ):
            button.click()
            verdicts = page.execute_script(
                "return [...arguments[0].tBodies[0].rows].map(r => r.cells[arguments[1]].dataset.sort)",
                table,
                i,
            )
            assert verdicts == sorted(
                verdicts, key=lambda v: (v in ("~", "not asked"), v != "~", v)
            )  # gaps last
            kinds |= set(verdicts)
    assert len(kinds) >= 4
    each(page, "details.rest", "x.open = true")
    for button in css(page, ".tools [data-show]"):
        button.click()
        kind = button.get_attribute("data-show")
        rows = each(page, "tr[data-has]", "[x.dataset.has, x.offsetHeight > 0]")
        assert all(
            seen == (not kind or kind in has.split()) for has, seen in rows
        )
        assert any(seen for _, seen in rows)
        assert [
            b.get_attribute("data-show")
            for b in css(page, "[aria-pressed=true]")
        ] == [kind]


@pytest.mark.parametrize("new", ["not confirmed", "confirmed", ""])
def test_evidence_says_what_new_data_confirm(tmp_path, new):
    "As the board of a page does; and a board that knows of no new data says nothing of them"
    import pandas as pd

    from memnb.claims import BOARD, Verdicts

    ends = dict(value=2.0, low=1.5, high=2.5, no=0.0, yes=1.0, side="above")
    words = dict(id="dice", model="m", where="§1", says="High", verdict=YES)
    words |= dict(about="", why="", cases=())
    of_line = words | ends | dict(n=9.0, unit="throws", confirmed=new)
    line = pd.DataFrame([of_line]).reindex(columns=[*BOARD, "confirmed"])
    (record,) = Verdicts(line)._records()
    assert record["confirmed"] == new
    # boards that ship have the word, and one of nobody has none
    (bare,) = Verdicts(line[BOARD])._records()
    assert bare["confirmed"] == ""
    out = shown(text_html="", text_plain="table")
    out["data"][BOARD_MIME] = dict(paper="dice", claims=[record])
    notebook(
        tmp_path / "runs/night/dice.ipynb",
        text("## Claims"),
        cell("plots.to_html(board)", out),
    )
    html = batch_report(tmp_path / "runs").read_text()
    told = re.findall(r"more than 0.*?9 throws(.*?) <small>", html)
    assert told == ([f"; on new data: <b>{new}</b>"] if new else [""])


@pytest.mark.browser
def test_evidence_opens_by_keyboard_and_links_open_runs(page):
    from selenium.webdriver.common.keys import Keys

    emulate(page)
    summary = css(page, "table.claims summary")[0]
    evidence = summary.find_element("xpath", "../ul")
    assert not evidence.is_displayed()
    summary.send_keys(Keys.ENTER)
    assert evidence.is_displayed() and evidence.text
    link = evidence.find_element("css selector", "a")
    target = page.find_element(
        "id", unquote(link.get_attribute("href").partition("#")[2])
    )
    assert not target.is_displayed()
    link.send_keys(Keys.ENTER)
    wait(target.is_displayed, 5)
    css(page, "[data-open]")[0].click()
    assert all(
        d.get_attribute("open") for d in css(page, "table.claims details")
    )


@pytest.mark.browser
def test_the_keyboard_reaches_everything_and_shows_where_it_is(page):
    from selenium.webdriver.common.keys import Keys

    emulate(page)
    page.find_element("css selector", "body").send_keys(Keys.TAB)
    first = page.switch_to.active_element
    assert first.get_attribute("class") == "skip" and first.rect["x"] >= 0
    seen = set()
    for _ in range(60):
        page.switch_to.active_element.send_keys(Keys.TAB)
        now = page.switch_to.active_element
        seen.add(now.tag_name)
        assert now.value_of_css_property("outline-style") == "solid", (
            now.get_attribute("outerHTML")[:200]
        )
    assert {"a", "button", "summary"} <= seen


@pytest.mark.browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_contrast(page, batch, dark):
    for p in (batch, next((batch.parent / "report_files").glob("*icl*"))):
        page.get(p.as_uri())
        emulate(page, dark=dark)
        open_all(page)
        assert not page.execute_script(CONTRAST)
    body = page.find_element("css selector", "body").value_of_css_property(
        "background-color"
    )
    assert (sum(map(int, re.findall(r"\d+", body)[:3])) < 150) == dark


@pytest.mark.browser
@pytest.mark.parametrize("wide", [360, 768])
def test_no_sideways_scrolling(page, batch, wide):
    for p in [batch, *beside(batch)]:
        page.get(p.as_uri())
        emulate(page, wide)
        open_all(page)
        got, view = each(page, "html", "[x.scrollWidth, x.clientWidth]")[0]
        assert got <= view and wide - 20 < view <= wide, (
            f"{p.name} is {got} wide"
        )


@pytest.mark.browser
def test_all_is_there_without_script(page, batch):
    page.execute_cdp_cmd(
        "Emulation.setScriptExecutionDisabled", dict(value=True)
    )
    page.get(batch.as_uri())
    summary = css(page, "table.claims summary")[0]
    evidence = summary.find_element("xpath", "../ul")
    summary.click()
    assert (
        evidence.is_displayed()
        and not css(page, "th button")
        and not css(page, ".tools")[0].is_displayed()
    )
    assert css(page, ".run img") and css(page, ".summary td.n")
    page.execute_cdp_cmd(
        "Emulation.setScriptExecutionDisabled", dict(value=False)
    )


@pytest.mark.browser
@pytest.mark.parametrize("script", [True, False], ids=["script", "style alone"])
def test_print_opens_the_evidence(page, script):
    if script:
        page.execute_script("dispatchEvent(new Event('beforeprint'))")
    emulate(page, media="print")
    high = each(
        page,
        "table.claims td details ul",
        "x.checkVisibility() ? x.offsetHeight : 0",
    )
    assert len(high) > 50 and min(high) > 5
    assert not css(page, ".tools")[0].is_displayed()
    if script:
        page.execute_script("dispatchEvent(new Event('afterprint'))")
    assert not any(
        d.get_attribute("open") for d in css(page, "table.claims details")
    )


@pytest.mark.browser
def test_nothing_is_cut_off_on_paper(page, batch):
    for p in [batch, *beside(batch)]:
        page.get(p.as_uri())
        assert not (lost := cut_on_paper(page)), f"{p.name}: {lost}"
    each(page, "table", "x.style.minWidth = '1000px'")  # it would be seen
    assert cut_on_paper(page)
