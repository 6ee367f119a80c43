"JupyterLab, started as `make lab` starts it: it lists the notebooks, and a real browser runs one to its end."

import json
import os
import re
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

import nbformat
import pytest
from test_repo import NOTEBOOKS, TOP

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not find_spec("jupyterlab"), reason="install the extra 'lab'"
    ),
]
NOTEBOOK = "10_tabular.ipynb"
SETTINGS = {  # no request for news or updates, no saving unasked, and every cell in the page at once
    "apputils-extension/notification": dict(
        fetchNews="false", checkForUpdates=False, doNotDisturbMode=True
    ),
    "docmanager-extension/plugin": dict(autosave=False),
    "notebook-extension/tracker": dict(windowingMode="none"),
}
FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1400,1000",
]

# --- the server ---


def lab_command():
    "The recipe of `make lab`, with the environment that runs this test"
    recipe = re.search(
        r"^lab:.*\n\t(.+)$", (TOP / "Makefile").read_text(encoding="utf8"), re.M
    )[1]
    return shlex.split(
        recipe.replace("$(BIN)", str(Path(sys.executable).parent))
    )


def write_settings(config):
    "Settings and disabled extensions of a Lab that must not reach for the network"
    for name, values in SETTINGS.items():
        path = (
            config / f"lab/user-settings/@jupyterlab/{name}.jupyterlab-settings"
        )
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(values))
    (config / "labconfig").mkdir()
    off = {"@jupyterlab/apputils-extension:announcements": True}
    (config / "labconfig/page_config.json").write_text(
        json.dumps(dict(disabledExtensions=off))
    )


def environment(folder, token, store):
    "The environment of a reader whose Jupyter and results are all below `folder`"
    mine = dict(
        MEMNB_HOME=folder / "home",
        MEMNB_STORE=store,
        IPYTHONDIR=folder / "ipython",
        JUPYTER_CONFIG_DIR=folder / "config",
        JUPYTER_DATA_DIR=folder / "share",
        JUPYTER_RUNTIME_DIR=folder / "runtime",
        JUPYTER_TOKEN=token,
    )
    (folder / "home").mkdir()
    # the suite's MPLBACKEND would keep the figures out of the notebook
    rest = {
        k: v
        for k, v in os.environ.items()
        if k != "MPLBACKEND" and not k.startswith("JUPYTER")
    }
    return {**rest, **{k: str(v) for k, v in mine.items()}}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Lab:
    "A running JupyterLab: its address, its token, its folder of notebooks"

    def __init__(self, nbs, port):
        self.nbs, self.url, self.token = (
            nbs,
            f"http://127.0.0.1:{port}",
            secrets.token_hex(16),
        )

    def get(self, path, token=True, **how):
        head = {"Authorization": f"token {self.token}"} if token else {}
        with urlopen(
            Request(f"{self.url}/{path}", headers=head, **how), timeout=30
        ) as r:
            return r.read().decode()

    def put(self, path, model):
        "Save a file as the browser does"
        self.get(path, data=json.dumps(model).encode(), method="PUT")

    def ready(self):
        try:
            return bool(self.get("api/status"))
        except (URLError, ConnectionError, TimeoutError):
            return False


@contextmanager
def serving(folder, store):
    "JupyterLab on a copy of the notebooks"
    lab, log = Lab(folder / "nbs", port := free_port()), folder / "lab.log"
    for p in NOTEBOOKS:  # pages, and below them workshops and rooms
        (target := lab.nbs / p.relative_to(TOP / "nbs")).parent.mkdir(
            parents=True, exist_ok=True
        )
        shutil.copy(p, target)
    write_settings(folder / "config")
    (folder / "tools").mkdir()
    shutil.copy(TOP / "tools/lab.py", folder / "tools")
    (folder / "figures").mkdir()
    for p in (TOP / "figures").glob("*.svg"):  # drawings that pages name
        shutil.copy(p, folder / "figures")
    extra = [
        "--no-browser",
        "--ip=127.0.0.1",
        f"--port={port}",
        "--ServerApp.port_retries=0",
    ]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        extra.append("--allow-root")
    with open(log, "w") as out:
        p = subprocess.Popen(
            lab_command() + extra,
            cwd=folder,
            env=environment(folder, lab.token, store),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    try:
        wait(
            lambda: lab.ready() or p.poll() is not None,
            60,
            lambda: log.read_text()[-2000:],
        )
        assert p.poll() is None, (
            f"JupyterLab ended at once:\n{log.read_text()[-2000:]}"
        )
        yield lab
    finally:
        p.terminate()
        try:
            p.wait(30)
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()


def wait(test, seconds, report=lambda: ""):
    "Wait until `test()` is true, and fail with `report()` when it never is"
    end = time.monotonic() + seconds
    while not test():
        assert time.monotonic() < end, f"waited {seconds} s in vain {report()}"
        time.sleep(0.3)


def test_make_lab_lists_the_notebooks(tmp_path):
    with serving(tmp_path, tmp_path / "store.sqlite") as lab:

        def listed(folder=""):
            return sorted(
                f["name"]
                for f in json.loads(lab.get(f"api/contents/nbs{folder}"))[
                    "content"
                ]
            )

        def below(folder):
            return sorted(
                p.name
                for p in folder.iterdir()
                if p.suffix in ("", ".ipynb") and p.name[0] != "."
            )

        assert listed().count(NOTEBOOK) == 1 and listed() == below(lab.nbs)
        assert listed("/rooms") == sorted(
            p.name for p in NOTEBOOKS if p.parent.name == "rooms"
        )
        kernels = json.loads(lab.get("api/kernelspecs"))["kernelspecs"]
        wanted = nbformat.read(lab.nbs / NOTEBOOK, 4).metadata.kernelspec.name
        assert wanted in kernels, (
            f"{NOTEBOOK} asks for the kernel {wanted!r}, Lab has {sorted(kernels)}"
        )
        assert "jupyter-config-data" in lab.get("lab")
        with pytest.raises(HTTPError, match="403"):
            lab.get("api/contents", token=False)


def test_a_page_that_is_run_and_saved_stays_as_git_has_it(tmp_path):
    "In a checkout: outputs and counts of a run are not written, an edited sentence is"
    page = f"api/contents/nbs/{NOTEBOOK}"

    def git(*words):
        who = ["-c", "user.name=x", "-c", "user.email=x"]
        cmd = ["git", *who, *words]
        return subprocess.run(
            cmd, cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout

    with serving(tmp_path, tmp_path / "store.sqlite") as lab:
        git("init", "-q"), git("add", "nbs"), git("commit", "-qm", "pages")
        model = json.loads(lab.get(page))
        for cell in model["content"]["cells"]:
            if cell["cell_type"] == "code":
                said = dict(
                    output_type="stream", name="stdout", text="of this run"
                )
                cell.update(execution_count=7, outputs=[said])
                cell["metadata"]["execution"] = {"iopub.status.idle": "now"}
        model["content"]["metadata"]["language_info"] = dict(
            name="python", version="3.99"
        )
        lab.put(page, model)
        assert not git("diff", "--stat", "--", "nbs")
        model["content"]["cells"][0]["source"] += " A sentence of mine."
        lab.put(page, model)
        diff = git("diff", "--", "nbs")
        assert (
            "A sentence of mine." in diff and 'execution_count": 7' not in diff
        )
        assert "iopub" not in diff and "3.99" not in diff


def test_pages_are_trusted(tmp_path):
    "What scripts of stored outputs need: a slider is there before its cell is run"
    with serving(tmp_path, tmp_path / "store.sqlite") as lab:
        pages = sorted(lab.nbs.glob("1*.ipynb"))
        assert len(pages) >= 6
        for file in pages:
            model = json.loads(lab.get(f"api/contents/nbs/{file.name}"))
            trusted = [
                cell["metadata"].get("trusted")
                for cell in model["content"]["cells"]
                if cell["cell_type"] == "code"
            ]
            assert trusted and all(trusted), file.name


# --- the browser ---


def major(program):
    "Major version of a browser or driver"
    said = subprocess.run(
        [program, "--version"], capture_output=True, text=True, timeout=60
    ).stdout
    return re.search(r"(\d+)\.\d+", said)[1]


def browser():
    "Paths of a Chromium and its driver; skips the test where they are missing"
    pytest.importorskip(
        "selenium", reason="selenium is missing: install the extra 'browser'"
    )
    driver = shutil.which("chromedriver")
    if not driver:
        pytest.skip(
            "chromedriver is missing: install chromium and chromium-driver"
        )
    names = [
        "chromium",
        "chromium-browser",
        "google-chrome",
        "google-chrome-stable",
        "chrome",
    ]
    found = [p for p in map(shutil.which, names) if p]
    fit = [p for p in found if major(p) == major(driver)]
    if not fit:
        pytest.skip(
            f"chromedriver {major(driver)} needs a Chromium of its version, found {found}"
        )
    return fit[0], driver


@contextmanager
def chromium(folder):
    "A headless Chromium with a new profile"
    binary, driver = browser()
    from selenium import webdriver

    opts = webdriver.ChromeOptions()
    opts.binary_location = binary
    opts.set_capability("goog:loggingPrefs", dict(browser="ALL"))
    for flag in [*FLAGS, f"--user-data-dir={folder / 'profile'}"]:
        opts.add_argument(flag)
    env = {**os.environ, "HOME": str(folder)}
    page = webdriver.Chrome(
        opts,
        webdriver.ChromeService(driver, log_output=subprocess.DEVNULL, env=env),
    )
    try:
        yield page
    finally:
        page.quit()


def cut_on_paper(driver, wide=718):
    "What a page loses at the edge of an A4 sheet: tables, texts and pictures that stick out, or that would have to scroll"
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        dict(width=wide, height=1000, deviceScaleFactor=1, mobile=False),
    )
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", dict(media="print"))
    return driver.execute_script("""
        document.querySelectorAll('details').forEach(x => x.open = true)
        const edge = document.documentElement.clientWidth + 1, lost = x => x.getBoundingClientRect().right > edge
        const scrolls = x => x.scrollWidth > x.clientWidth + 1 && getComputedStyle(x).overflowX != 'visible'
        return [...document.querySelectorAll('table, pre, .wide, .math, figure, img')].filter(x => x.checkVisibility() &&
            x.clientWidth && (lost(x) || x.tagName != 'IMG' && scrolls(x))).map(x => x.tagName + ' ' + x.textContent.trim().slice(0, 50))""")


class Page:
    "A notebook open in Lab, as a reader sees it"

    def __init__(self, driver, lab):
        self.driver, self.path = driver, lab.nbs / NOTEBOOK
        driver.get(
            f"{lab.url}/lab/tree/nbs/{quote(NOTEBOOK)}?token={lab.token}"
        )

    def count(self, css):
        return len(self.driver.find_elements("css selector", css))

    def each(self, css, value):
        "The JavaScript expression `value` for each element `x`"
        return self.driver.execute_script(
            f"return [...document.querySelectorAll({css!r})].map(x => {value})"
        )

    def prompts(self):
        "Text of every code cell's prompt, as in '[12]:'; '' for a folded cell, which shows none"
        return self.each(
            ".jp-Notebook .jp-CodeCell",
            "x.querySelector('.jp-InputPrompt').textContent",
        )

    def unasked(self):
        "Fail when a dialog waits for the reader, as when the kernel has died"
        asks = self.each(".jp-Dialog", "x.innerText")
        assert not asks, f"Lab asks the reader: {asks}"

    def idle(self):
        "Is a kernel connected and free? The indicator beside the notebook says idle before there is one"
        self.unasked()
        return any(
            "| Idle" in text
            for text in self.each("#jp-main-statusbar", "x.textContent")
        )

    def menu(self, name, command):
        "Click a command in the menu bar"
        bar = self.driver.find_elements("css selector", ".lm-MenuBar-itemLabel")
        next(x for x in bar if x.text == name).click()
        css = f'.lm-Menu-item[data-command="{command}"]'
        wait(
            lambda: self.count(css),
            10,
            lambda: f"for {command} in the menu {name}",
        )
        self.driver.find_element("css selector", css).click()

    def saved(self):
        return [
            c
            for c in nbformat.read(self.path, 4).cells
            if c.cell_type == "code"
        ]

    def images(self):
        "Widths of the figures, 0 for one that the browser could not show"
        return self.each(
            ".jp-OutputArea-output img", "x.complete ? x.naturalWidth : 0"
        )


def numbered(prompt):
    return re.fullmatch(r"\[\d+\]:", prompt)


def all_numbered(prompts):
    return any(prompts) and all(map(numbered, filter(None, prompts)))


def turn_slider(page):
    "Turn the slider of a page that was not run, by keyboard; the notebook stays where it is"
    arrow_right = "\ue014"
    slider = "input[type=range]"
    wait(lambda: page.count(slider) == 1, 30, lambda: "for the slider")
    before = page.each("output", "x.textContent")
    page.driver.find_element("css selector", slider).send_keys(arrow_right)
    wait(
        lambda: page.each("output", "x.textContent") != before,
        10,
        lambda: f"for the slider to leave {before}",
    )
    assert page.driver.execute_script(
        "return document.activeElement.type == 'range'"
    )


def run_all(page, seconds):
    "Run all cells and wait until every prompt shows a number, or the notebook has stopped at an error"
    before = page.prompts()
    assert not any(map(numbered, before)), (
        "the notebook is not clean: run `make export`"
    )
    page.menu("Run", "runmenu:run-all")
    wait(
        lambda: page.prompts() != before,
        60,
        lambda: "for the first cell to run",
    )
    idle = 0

    def over():
        nonlocal idle
        page.unasked()
        now = page.prompts()
        idle = 0 if any("*" in p for p in now) else idle + 1
        return idle > 20 or all_numbered(now)

    wait(over, seconds, lambda: f"for the cells, which show {page.prompts()}")


def save(page):
    "Save as a reader does, and wait for the file"
    assert page.count(".jp-mod-dirty"), (
        "nothing to save after running all cells"
    )
    page.menu("File", "docmanager:save")

    def done():
        there = zip(counts(page.saved()), page.prompts(), strict=True)
        return not page.count(".jp-mod-dirty") and all(
            seen in ("", kept) for kept, seen in there
        )

    wait(
        done,
        60,
        lambda: (
            f"for the notebook to be saved: {counts(page.saved())} against {page.prompts()}"
        ),
    )


def counts(cells):
    return [f"[{c.execution_count or ' '}]:" for c in cells]


def outputs(cells, kind):
    return [o for c in cells for o in c.outputs if o.output_type == kind]


@pytest.mark.browser
def test_notebook_runs_in_lab(tmp_path, answers):
    (tmp_path / "browser").mkdir()
    with (
        chromium(tmp_path / "browser") as driver,
        serving(tmp_path, answers) as lab,
    ):
        page = Page(driver, lab)
        codes = len(page.saved())
        wait(
            lambda: len(page.prompts()) == codes,
            60,
            lambda: f"for {codes} code cells: {page.prompts()}",
        )
        wait(page.idle, 60, lambda: "for the kernel to be idle")
        turn_slider(page)
        run_all(page, 900)
        save(page)
        cells = page.saved()
        errors = [f"{o.ename}: {o.evalue}" for o in outputs(cells, "error")]
        assert not errors, f"the notebook fails in Lab: {errors}"
        assert all(map(numbered, counts(cells))), (
            f"not all cells ran: {counts(cells)}"
        )
        assert all_numbered(page.prompts()) and "" in page.prompts(), (
            "technical cells are not folded"
        )
        figures = [
            o
            for o in outputs(cells, "execute_result")
            + outputs(cells, "display_data")
            if any(k.startswith("image/") for k in o.data)
        ]
        shown, sliders = (
            page.images(),
            sum("plots.slide(" in c.source for c in cells),
        )
        assert figures and len(shown) == len(figures), (
            f"{len(figures)} figures: {shown}"
        )
        assert page.count("input[type=range]") == sliders == 1
        assert min(shown) > 100, shown
        severe = [
            e["message"]
            for e in driver.get_log("browser")
            if e["level"] == "SEVERE"
        ]
        assert not severe, f"errors in the console of the browser: {severe}"
