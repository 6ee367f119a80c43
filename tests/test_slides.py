"Talks: twelve slides with notes and true numbers, a handout on one sheet; in a browser nothing overflows."

import base64
import json
import re

import pandas as pd
import pytest
from test_lab import chromium
from test_repo import TOP

from memnb.papers import notebooks
from memnb.run import facts
from memnb.run.cli import main
from memnb.run.ours import is_page
from memnb.run.slides import (
    HEIGHT,
    WIDTH,
    Page,
    few_rows,
    slides,
    slides_notebook,
    talk,
    verdicts,
)

# somebody's own paper may have none
WORDS = sorted(file.parent.name for file in TOP.glob("data/papers/*/talk.yaml"))


def words_in(text):
    "Number of words; a formula is one"
    return len(re.sub(r"\$[^$]+\$", "formula", plain(text)).split())


def plain(text):
    return re.sub(r"<!--.*?-->", "", text)


def numbers(text):
    "Numbers in a text, but for those in formulas and names"
    text = re.sub(r"\$[^$]+\$", " ", plain(text))
    return {
        digits.replace(",", "").lstrip("0")
        for digits in re.findall(r"(?<![\w.-])\d*[.,]?\d[\d,]*(?!\w)", text)
    }


@pytest.mark.parametrize("word", WORDS)
def test_a_talk_has_twelve_slides_of_few_words_with_notes(word):
    given = talk(word)
    assert len(given.slides) == 12 and len(given.questions) == 5
    for part in given.slides:
        where = f"{word}: {part.heading}"
        assert words_in(part.heading) <= 10, where
        shows = part.code or part.picture or part.table or part.board
        assert len(part.lines) <= (2 if shows or part.printed else 5), where
        assert all(words_in(line) <= 18 for line in part.lines), where
        assert 40 <= words_in(part.notes) <= 80, (where, words_in(part.notes))
        if part.code:
            code = Page(word).code(*part.code)
            assert len(code.splitlines()) <= 12, where
    for one in given.questions:
        sentences = re.findall(r"[.?!](?=\s|$)", plain(one.answer))
        assert 2 <= len(sentences) <= 4, one


@pytest.mark.parametrize("word", WORDS)
def test_numbers_of_a_talk_are_those_of_its_page(word, top):
    "Tagged ones are compared with the rows, the others are on the page"
    file = top / "data/papers" / word / "talk.yaml"
    assert file in facts.prose(top)
    assert not facts.checked(file.read_text(encoding="utf-8"))[1]
    given = talk(word)
    texts = [line for part in given.slides for line in part.lines]
    texts += [part.notes for part in given.slides]
    texts += [one.question + " " + one.answer for one in given.questions]
    page = json.loads(Page(word).name.read_text(encoding="utf-8"))
    printed = " ".join(
        "".join(cell["source"])
        + json.dumps(
            [
                output.get("text") or output.get("data", {}).get("text/html")
                for output in cell.get("outputs", ())
            ],
            ensure_ascii=False,
        )
        for cell in page["cells"]
    ).replace(r"\n", " ")
    known = numbers(printed) | numbers(re.sub(r"[$<>]", " ", printed))
    unknown = numbers(" ".join(texts)) - known
    assert not unknown, unknown


@pytest.mark.parametrize("word", WORDS)
def test_slides_and_handout_are_built(word, tmp_path):
    "Every cell, figure and claim that a talk names is there; nothing is fetched"
    cells = slides_notebook(word).cells
    kinds = [
        cell.metadata.get("slideshow", {}).get("slide_type") for cell in cells
    ]
    assert kinds.count("slide") == kinds.count("notes") == 12
    for file in slides(word, tmp_path):
        html = file.read_text(encoding="utf-8")
        text = re.sub(r"(?s)<script>.*?</script>", "", html)
        assert is_page(file) and "<!--" not in text
        assert not re.search(r"<script\s", html)
        assert not re.search(r"(src|href)=.?(http|//|\.)", text)
        assert not re.search(r"@import|url\(.?(http|\.)", text)
    files = slides(word, tmp_path)  # its own files are written again
    (tmp_path / f"{word}.html").write_text("<p>mine</p>")
    assert main(["slides", word, "-o", str(tmp_path)]) == 2
    assert files.slides.read_text() == "<p>mine</p>"


def test_what_was_not_confirmed_says_so():
    (of_one,) = verdicts("icl", ["surface"])
    holds, fails, _ = of_one.outcome.split("**: ")[1:]
    assert holds.startswith("SmolLM2, five topics (not confirmed); ")
    assert "(not confirmed)" not in fails
    (of_none,) = verdicts("capacity", ["law"])  # about all models
    assert of_none.outcome.startswith("**does not hold**: not confirmed; ")


def test_the_six_papers_have_a_talk():
    six = {file.stem[3:] for file in TOP.glob("nbs/1[0-5]_*.ipynb")}
    assert len(six) == 6 and six <= {*WORDS} <= {*notebooks()}


def test_a_paper_without_a_talk_is_named(capsys, tmp_path):
    assert main(["slides", "nothing", "-o", str(tmp_path / "a")]) == 2
    assert "nothing" in capsys.readouterr().err
    assert not (tmp_path / "a").exists()


def test_what_a_talk_names_must_be_on_the_page():
    page = Page("capacity")
    with pytest.raises(ValueError, match="14_capacity.* has no cell 123"):
        page.code("123")
    with pytest.raises(ValueError, match="no lines from 'def nothing' to ''"):
        page.code("9ca4eae2", "def nothing")
    with pytest.raises(ValueError, match="shows no image/png, number 1"):
        page.picture("9ca4eae2")
    with pytest.raises(ValueError, match="prints nothing"):
        page.printed("9ca4eae2")


def test_a_table_has_no_numbers_of_lines_and_the_rows_that_are_named():
    table = pd.DataFrame(dict(items=["news", "rhymes", "new"], k=[3, 10, 7]))

    def cells(table, beginnings):
        html = few_rows(table.to_html(border=0), beginnings)
        return re.findall(r"<t[hd]>(.*?)</t[hd]>", html)

    few = ["items", "k", "news", "3", "rhymes", "10"]
    assert cells(table, ["rhymes", "news"]) == few
    assert cells(table, []) == [*few, "new", "7"]
    table["only new"] = ["", "", "yes"]
    assert cells(table, ["rhymes", "news"]) == few
    # an index that says something stays
    table = table.drop(columns="only new")
    assert cells(table.set_index("items"), ["new"])[-4:] == [
        "news",
        "3",
        "new",
        "7",
    ]
    with pytest.raises(ValueError, match="no row that begins with 'old'"):
        cells(table, ["news", "old"])


OVERFLOWS = """
const seen = document.querySelector('section.present section.present') || document.querySelector('section.present')
const wide = innerWidth + 1, high = innerHeight - 30  // below it stands the number of the slide
return [...seen.querySelectorAll('h2, p, li, pre, table, img, svg, math, .jp-Cell')].filter(x => {
  if (!x.checkVisibility() || x.closest('aside')) return false
  const box = x.getBoundingClientRect()
  return box.right > wide || box.bottom > high || box.left < 0 || box.top < 0 || x.scrollWidth > x.clientWidth + 1 && x.tagName == 'PRE'
}).map(x => x.tagName + ' ' + x.textContent.slice(0, 60))"""
APART = """
const cells = [...document.querySelector('section.present section.present').querySelectorAll(':scope > .jp-Cell')]
return cells.slice(1).filter((x, i) => {
  const bottom = Math.max(...[cells[i], ...cells[i].querySelectorAll('*')].filter(y => y.checkVisibility()).map(y => y.getBoundingClientRect().bottom))
  return bottom > x.getBoundingClientRect().top + 2
}).map(x => x.textContent.trim().slice(0, 60))"""
# pictures of the page have 128 dots an inch; a letter of 7 points has ten on the slide
SMALL = """
const seen = document.querySelector('section.present section.present')
return [...seen.querySelectorAll('img')].filter(x => x.src.startsWith('data:image/png') &&
  x.getBoundingClientRect().height < 0.8 * x.naturalHeight).map(x => x.naturalHeight)"""
SPEAKER = """
return window.speaker.document.querySelector('.speaker-controls-notes').innerText"""
ASKED = """return performance.getEntriesByType('resource').map(x => x.name).filter(x => !x.startsWith('data:'))"""


@pytest.mark.browser
@pytest.mark.parametrize("word", WORDS)
def test_nothing_overflows_and_nothing_is_fetched(word, tmp_path):
    from selenium.webdriver.support.ui import WebDriverWait

    files = slides(word, tmp_path)
    with chromium(tmp_path) as page:
        page.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            dict(width=WIDTH, height=HEIGHT, deviceScaleFactor=1, mobile=False),
        )
        page.get(files.slides.as_uri())
        assert page.execute_script("return Reveal.getTotalSlides()") == 12
        for place in range(12):
            page.execute_script(f"Reveal.slide({place})")
            lost = page.execute_script(OVERFLOWS) + page.execute_script(APART)
            assert not lost, (place + 1, lost)
            assert not page.execute_script(SMALL), f"small print, {place + 1}"
            notes = page.execute_script("return Reveal.getSlideNotes()")
            assert len(notes) > 200
            assert page.find_element(
                "css selector", ".present h2"
            ).is_displayed()
        page.execute_script(
            "const open = window.open;"
            "window.open = (...all) => window.speaker = open(...all)"
        )
        page.find_element("css selector", "body").send_keys("s")
        WebDriverWait(page, 20).until(
            lambda page: (
                talk(word).questions[4].answer.split("<")[0][:40]
                in page.execute_script(SPEAKER)
            )
        )
        assert not page.execute_script(ASKED)
        page.get(files.handout.as_uri())
        assert not page.execute_script(ASKED)
        assert not page.get_log("browser")
        pdf = page.execute_cdp_cmd(
            "Page.printToPDF", dict(preferCSSPageSize=True)
        )
        sheets = re.findall(rb"/Type\s*/Page\b", base64.b64decode(pdf["data"]))
        assert len(sheets) == 1
