"""A slider turns its figure in exported HTML: by mouse and keyboard, on a small screen, without a kernel."""

import os
import subprocess
import sys

import nbformat
import pytest
from test_lab import chromium
from test_repo import TOP

PAGE = """\
from memnb import plots
import matplotlib.pyplot as plt

def line(slope):
    fig, ax = plt.subplots(figsize=(3, 2))
    ax.plot([0, 1], [0, slope])
    ax.set_ylim(0, 2)
    return plots.finish(fig, f"slope {slope}", caption="A line.")

plots.slide(line, [0.5, 1, 2], "slope", start=1)
"""


@pytest.fixture(scope="module")
def html(tmp_path_factory):
    "Two figures, each with a slider, as nbconvert exports them"
    folder = tmp_path_factory.mktemp("slide")
    cells = [nbformat.v4.new_code_cell(PAGE) for _ in range(2)]
    cells[1].source = cells[1].source.replace("[0.5, 1, 2]", "[0.2, 0.7, 1.5]")
    nbformat.write(nbformat.v4.new_notebook(cells=cells), folder / "a.ipynb")
    subprocess.run(
        [
            sys.executable,
            "-m",
            "nbconvert",
            "--execute",
            "--to",
            "html",
            "a.ipynb",
        ],
        cwd=folder,
        check=True,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(TOP)},
    )
    return folder / "a.html"


SEEN = "return [...document.querySelectorAll('img')].map(image => image.src)"
READ = "return [...document.querySelectorAll('output')].map(x => x.textContent)"


@pytest.mark.browser
def test_a_slider_turns_its_own_figure(html, tmp_path):
    with chromium(tmp_path) as page:
        page.get(html.as_uri())
        before = page.execute_script(SEEN)
        first, second = page.find_elements("css selector", "input[type=range]")
        assert len(before) == 2
        assert page.execute_script(READ) == ["1", "0.7"]
        first.send_keys("\ue014")  # arrow to the right
        after = page.execute_script(SEEN)
        assert after[0] != before[0] and after[1] == before[1]
        assert page.execute_script(READ) == ["2", "0.7"]
        assert first.get_attribute("aria-valuetext") == "slope 2"
        second.send_keys("\ue012", "\ue012")  # beyond the left end
        assert page.execute_script(READ) == ["2", "0.2"]
        page.set_window_size(400, 800)
        width = page.execute_script(
            "return [document.documentElement.clientWidth, "
            "document.querySelector('.memnb-slide').getBoundingClientRect().right]"
        )
        assert width[1] <= width[0], width


@pytest.mark.browser
def test_without_scripts_the_first_frame_stands_there(html, tmp_path):
    with chromium(tmp_path) as page:
        page.execute_cdp_cmd(
            "Emulation.setScriptExecutionDisabled", dict(value=True)
        )
        page.get(html.as_uri())
        assert len(page.find_elements("css selector", "img")) == 2
        assert not page.find_elements("css selector", "input[type=range]")
