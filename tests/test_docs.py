"The site: built without a warning, complete, and quiet towards the network."

import ast
import base64
import io
import json
import re
import shutil
import subprocess
import sys
from html import unescape
from importlib.util import find_spec
from urllib.parse import unquote

import pytest
from test_lab import chromium, cut_on_paper, wait
from test_repo import MODULES, NOTEBOOKS, PAPERS, TOP, tree

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not find_spec("myst_nb"), reason="install the extra 'docs'"
    ),
]


def png(**said):
    "A picture with words in its file"
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    info, out = PngInfo(), io.BytesIO()
    for k, v in said.items():
        info.add_text(k, v)
    Image.new("RGB", (400, 200), "white").save(
        out, "png", pnginfo=info, dpi=(200, 200)
    )
    return out.getvalue()


def write_notebook(path, *cells):
    "A notebook out of markdown texts and (source, outputs) pairs"
    made = [
        dict(cell_type="markdown", id=f"c{i}", metadata={}, source=c)
        if isinstance(c, str)
        else dict(
            cell_type="code",
            id=f"c{i}",
            metadata={},
            execution_count=None,
            source=c[0],
            outputs=c[1],
        )
        for i, c in enumerate(cells)
    ]
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        json.dumps(
            dict(
                cells=made,
                metadata=dict(
                    kernelspec=dict(
                        name="python3",
                        display_name="Python 3",
                        language="python",
                    )
                ),
                nbformat=4,
                nbformat_minor=5,
            )
        )
    )


def shown(meta=None, **data):
    return dict(
        output_type="display_data",
        metadata=meta or {},
        data={k.replace("_", "/"): v for k, v in data.items()},
    )


def write_toy(top):
    "A sixth paper: a page with captions, a folder of reference notebooks, a figure; nothing else says that it is there"

    def pic(n):
        return shown(
            {"image/png": dict(width=200, height=100, alt=f"Throw {n}")},
            text_plain="<Image>",
            image_png=base64.b64encode(png(Comment=f"{n}")).decode(),
        )

    def caption(n):
        return shown(
            text_markdown=f"*Number {n} is thrown $x^{n}$ times.*",
            text_plain="x",
        )

    say, after = (
        shown(text_markdown="We see **3 of 6**, $y^2$.", text_plain="x"),
        shown(text_plain="behind"),
    )
    write_notebook(
        top / "nbs/16_toy.ipynb",
        "# Toy dice",
        ("#| default_exp toy.method", []),
        "## 1 What holds",
        ("found = 1", [say, pic(1), caption(1), pic(2), caption(2), after]),
        "## 2 More throws",
        ("plain = 2", [pic(3), after]),
        "See:\n\n![dice](../figures/toy_fig1.png)\n\n![old](../figures/toy_fig2.png)",
    )
    write_notebook(
        top / "nbs/toy/index.ipynb", "# Reference notebooks of the dice"
    )
    write_notebook(
        top / "nbs/toy/bones.ipynb",
        "# How bones are cut",
        ("#| hide\nsecret = 3", []),
    )
    (top / "figures/toy_fig1.png").write_bytes(
        png(Title="Dice fall", Foot="n = 6", Description="Each falls *once*.")
    )
    (top / "figures/toy_fig2.png").write_bytes(png())


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    "The site, built from a copy of what it needs"
    top = tmp_path_factory.mktemp("site")
    for d in ["nbs", "figures", "data/papers"]:
        shutil.copytree(
            TOP / d, top / d, ignore=shutil.ignore_patterns(".*", "kernel-*")
        )
    shutil.copytree(
        TOP / "docs",
        top / "docs",
        ignore=shutil.ignore_patterns("nbs", "figures", "_extra", "rows"),
    )
    shutil.copy(TOP / "settings.ini", top)
    write_toy(top)
    cmd = [
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
    ]
    r = subprocess.run(cmd, cwd=top, capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    return top / "_docs"


def test_site_has_every_notebook_and_the_report(site):
    pages = [
        p.relative_to(TOP).with_suffix(".html").as_posix() for p in NOTEBOOKS
    ]
    lost = [p for p in pages if not (site / p).is_file()]
    assert (
        not lost
        and (site / "report.html").is_file()
        and (site / "index.html").is_file()
    )
    front = (site / "index.html").read_text(encoding="utf8")
    assert all(p in front for p in pages)


def test_reference_has_every_public_function(site):
    "A page a module, linked from the first page; docstrings of Google's kind and comments beside parameters alike"
    front = (site / "index.html").read_text(encoding="utf8")
    listed = (site / "api.html").read_text(encoding="utf8")
    assert 'href="api.html"' in front
    lost = []
    for name, path in MODULES.items():
        folder, _, part = name.rpartition(".")
        if name in PAPERS or "run" in (folder, part):
            continue
        assert f'href="api/{name}.html"' in listed, name
        page = (site / f"api/{name}.html").read_text(encoding="utf8")
        public = (
            f.name
            for f in tree(path).body
            if isinstance(f, ast.FunctionDef | ast.ClassDef)
            and not f.name.startswith("_")
            and ast.get_docstring(f)
            and not any("patch" in ast.unparse(d) for d in f.decorator_list)
        )
        lost += [x for x in public if f'id="memnb.{name}.{x}"' not in page]
    assert not lost, lost

    def described(name, function, parameter):
        page = (site / f"api/{name}.html").read_text(encoding="utf8")
        section = page[page.index(f'id="memnb.{name}.{function}"') :]
        section = section[: section.index("</dd></dl>")]
        return f"<strong>{parameter}</strong>" in section

    assert described("plant", "tune", "rates")  # in its docstring
    assert described("contextual.retraining", "Trainings", "watch")  # beside it


def test_a_sixth_paper_appears_by_itself(site):
    "Pages, the reference notebooks of each paper in the order of the pages, extra, rooms; and its claims in the report"
    front = (site / "index.html").read_text(encoding="utf8")
    body = front[front.index("toctree-wrapper") : front.index("</article>")]
    links = [
        unquote(l)
        for l in re.findall(r'<a [^>]*href="(nbs/[^"#]*)\.html"', body)
    ]
    kinds = [
        re.sub(r"nbs/(?:\d\d_.*|(index$)|(\w+)/.*)", r"\1\2", l) or "page"
        for l in links
    ]
    order = [
        k
        for k, before in zip(kinds, [None, *kinds])
        if k not in (before, "extra")
    ]
    assert (
        order[:2] == ["index", "page"]
        and order[-2:] == ["toy", "rooms"]
        and len(set(order)) == len(order)
    ), order
    assert (
        links[kinds.index("toy") :][:2] == ["nbs/toy/index", "nbs/toy/bones"]
        and "Reference notebooks: toy" in front
    )
    papers = [
        p.stem[3:] for p in sorted((TOP / "nbs").glob("[1-9][0-9]_*.ipynb"))
    ]
    assert list(order[2:-2]) == [
        w for w in papers if (TOP / "nbs" / w).is_dir()
    ]
    report = (site / "report.html").read_text(encoding="utf8")
    assert (
        "Toy dice" in report
        and "Throw 1" in report
        and "Files that were left out" not in report
    )
    assert "rooms" not in re.findall(
        r'<tr><th scope="row"><a[^>]*>[^<]*</a></th><td>(\w+)</td>', report
    )


def test_captions_stand_below_their_pictures(site):
    "Pictures of cells, and files of figures/, with alternative text, width and caption"
    page = (site / "nbs/16_toy.html").read_text(encoding="utf8")
    # the list of pages beside it has words of all titles, as "behind" in "Models behind a server"
    page = page[page.index("<article") : page.index("</article>")]
    found = re.findall(r"<figure\b.*?</figure>", page, re.S)
    assert len(found) == 3, found

    def seen(html):
        return (
            " ".join(unescape(re.sub("<[^>]+>", "", html)).split())
            .removesuffix("#")
            .rstrip("¶ ")
        )

    assert [re.search('alt="([^"]*)"', f)[1] for f in found] == [
        "Throw 1",
        "Throw 2",
        "Dice fall",
    ]
    captions = [
        seen(re.search("<figcaption>(.*)</figcaption>", f, re.S)[1])
        for f in found
    ]
    assert captions == [
        "Number 1 is thrown x1 times.",
        "Number 2 is thrown x2 times.",
        "Each falls once.",
    ]
    assert "<msup>" in found[0] and "<em>once</em>" in found[2]
    assert ["200px" in f for f in found[:2]] == [True] * 2 and "144px" in found[
        2
    ]  # half of 400 dots; 2 inches of 72 points
    assert (
        page.count("found")
        and page.count("is thrown") == 2
        and "<strong>3 of 6</strong>" in page
        and "behind" in page
    )
    places = [page.index(x) for x in ("3 of 6", "Throw 1", "Throw 2", "behind")]
    assert (
        places == sorted(places)
        and "toy_fig2.png" in page
        and "secret" not in (site / "nbs/toy/bones.html").read_text()
    )


def test_papers_come_first_with_picture_and_rows(site):
    "The first page shows each paper; a paper's page its picture before its sentences, and where the rows are"
    front = (site / "index.html").read_text(encoding="utf8")
    cards = front[: front.index("toctree-wrapper")]
    cards = cards[cards.index("<article") :]
    assert front.index("Papers") < front.index("Reference notebooks")
    for p in [
        p for p in NOTEBOOKS if p.parent == TOP / "nbs" and p.name[:1].isdigit()
    ]:
        word, page = (
            p.stem[3:],
            (site / "nbs" / p.with_suffix(".html").name).read_text(
                encoding="utf8"
            ),
        )
        picture = re.search(rf"{word}_(x_found|fig2)", cards)
        assert f'href="nbs/{p.stem}.html"' in cards and picture, word
        if 'id="what-we-found"' in page:
            found = page[page.index('id="what-we-found"') :]
            assert 0 < found.index("<img ") < 3000, (
                f"{word}: {found.index('<img ')} letters before the picture"
            )
        links = set(re.findall(r'class="rows" href="\.\./([^"]*)"', page))
        assert (
            links == {f"rows/{word}.html"}
            and (site / f"rows/{word}.html").is_file()
        )
        files = re.findall(
            rf'href="({word}/[^"]*\.csv)"',
            (site / f"rows/{word}.html").read_text(encoding="utf8"),
        )
        assert files and all(
            (site / "rows" / unquote(f)).is_file() for f in files
        )
        assert "<table" in page and not re.search(
            r"\|\s*:?-{3,}", re.sub(r"(?s)<(pre|script)\b.*?</\1>", "", page)
        ), f"{word}: a table in raw pipes"


def test_site_names_no_server_in_what_it_loads(site):
    for p in site.rglob("*.html"):
        tags = re.findall(
            r"<(?:script|link|img|iframe|source)\b[^>]*>",
            p.read_text(encoding="utf8"),
        )
        loads = [
            t
            for t in tags
            if re.search(r'(?:src|href)="(?:https?:)?//', t)
            and 'rel="canonical"' not in t
        ]
        assert not loads, f"{p.name}: {loads[:3]}"


def test_links_inside_of_the_site_lead_somewhere(site):
    for p in [*site.glob("*.html"), *site.glob("nbs/**/*.html")]:
        for link in re.findall(
            r'<a [^>]*href="([^"]*)"', p.read_text(encoding="utf8")
        ):
            file = unquote(link.partition("#")[0])
            if file and ":" not in file:
                assert (p.parent / file).exists(), f"{p.name} -> {link}"


@pytest.mark.browser
def test_a_link_to_a_page_shows_title_and_first_sentence(site):
    page = (site / "nbs/10_tabular.html").read_text(encoding="utf8")
    said = dict(
        re.findall(
            r'<meta (?:name|property)="([\w:]+)" content="([^"]*)"', page
        )
    )
    head = "".join(
        json.loads((TOP / "nbs/10_tabular.ipynb").read_text("utf8"))["cells"][
            0
        ]["source"]
    ).split("\n\n")
    first = " ".join(re.sub(r"[>*_`]", "", head[1]).split())
    assert unescape(said["og:title"]) == head[0].lstrip("# ")
    assert len(said["description"]) > 40
    assert unescape(said["description"])[:40] == first[:40]
    icon = re.search(r'<link rel="shortcut icon" href="([^"?]*)', page)[1]
    assert (site / "nbs" / icon).resolve().is_file()


def test_code_is_not_cut_on_a_phone_and_nothing_covers_a_printed_page(
    site, tmp_path
):
    with chromium(tmp_path) as page:
        page.get((site / "nbs/14_capacity.html").as_uri())
        size = dict(width=390, height=800, deviceScaleFactor=1, mobile=True)
        page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        cut = """return [...document.querySelectorAll('article pre')].filter(
            x => x.scrollWidth > x.clientWidth + 1).length"""
        assert page.execute_script(cut) == 0
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", dict(media="print"))
        assert (
            page.execute_script(
                "return document.querySelector('.skip-to-content').checkVisibility()"
            )
            is False
        )


def test_site_opens_from_disk(site, tmp_path):
    "No request beyond the folder, no error, mathematics set, search finds"
    high = []  # of the fractions of all pages, in pixels
    with chromium(tmp_path) as page:
        for p in [site / "index.html", *sorted(site.glob("nbs/**/*.html"))]:
            page.get(p.as_uri())
            asked = page.execute_script(
                "return performance.getEntriesByType('resource').map(e => e.name)"
            )
            away = [a for a in asked if not a.startswith(("file:", "data:"))]
            assert not away, f"{p.name}: {away}"
            broken = page.execute_script(
                'return [...document.images].filter(x => x.loading != "lazy" && !x.naturalWidth).map(x => x.src)'
            )
            assert not broken, f"{p.name}: {broken}"
            high += page.execute_script(
                'return [...document.querySelectorAll("mfrac")].map(x => [document.title, x.closest("math").'
                'getAttribute("display"), x.offsetHeight || x.getBoundingClientRect().height])'
            )
            if p.parent == site / "nbs":  # the pages
                assert not (lost := cut_on_paper(page)), (
                    f"{p.name}, on paper: {lost}"
                )
                page.execute_cdp_cmd(
                    "Emulation.setEmulatedMedia", dict(media="")
                )
                page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        assert {kind for _, kind, _ in high} == {
            "block",
            "inline",
        }  # in a line fractions have smaller letters
        flat = [h for h in high if h[2] <= (15 if h[1] == "block" else 10)]
        assert not flat, f"fractions that are not set as fractions: {flat}"
        page.get((site / "search.html").as_uri() + "?q=demonstrations")

        def found():
            return page.find_elements("css selector", "#search-results li a")

        wait(
            lambda: any("11_icl" in a.get_attribute("href") for a in found()),
            20,
        )
        severe = [
            e["message"]
            for e in page.get_log("browser")
            if e["level"] == "SEVERE"
        ]
        assert not severe, severe
