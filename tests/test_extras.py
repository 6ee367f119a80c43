"""Lines of the guides, run by a wheel in an environment that holds one extra and nothing else.

An environment is made of links to the packages that are installed here: what a fresh install of memnb with EXTRA
would bring, and none besides. So it needs no network, and takes seconds.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import venv
from importlib.metadata import distribution
from pathlib import Path

import pytest
from test_lines import (  # noqa: F401 - fixtures are found by their names
    BEFORE,
    blocks,
    inline,
    networks,
    place,
    server,
)
from test_repo import TOP, closure, requirements

pytestmark = pytest.mark.slow  # a wheel, and an interpreter for each line

# memnb COMMAND -> the extras that it needs, where it needs some
EXTRA_OF = dict(slides="slides", run="batch,local")  # pages train models
BASE = "base"


def extra_of(line):
    "The smallest extra that a line of the guides asks for"
    command = line.split()[1]
    if command in EXTRA_OF:
        return EXTRA_OF[command]
    if command in ("table", "ask"):
        return "api" if "openai:" in line else "local"
    return BASE


def documented():
    "(extra, line) of every line that starts memnb, in blocks and in sentences; of those that differ in names only one"
    lines = [
        line
        for param in blocks("sh")
        for line in param.values[0].splitlines()
        if line.startswith("memnb ")
    ]
    plain = set()
    for line in [*lines, *inline()]:
        # a comment behind a line is none of its words
        words = shlex.join(shlex.split(line, comments=True))
        words = re.sub(r"openai:[\w.-]+", "openai:NAME", words)
        plain.add(re.sub(r"url=http://\S+", "url=http://HOST:8000/v1", words))
    return sorted((extra_of(line), line) for line in plain if not dear(line))


def dear(line):
    "Whether a line needs a whole batch, which `test_batch.py` and `test_lines.py` look at"
    command = line.split()[1]
    is_large = command == "run" and "smoke" not in line
    return is_large or command in ("replay", "report")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    "The files of a wheel of this checkout, in a folder"
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    ignored = shutil.ignore_patterns(
        "__pycache__", ".ipynb_checkpoints", "kernel-ipc-*"
    )
    for name in ("memnb", "nbs", "data", "figures"):
        shutil.copytree(TOP / name, source / name, ignore=ignored)
    for name in (
        "settings.ini",
        "setup.py",
        "pyproject.toml",
        "README.md",
        "LICENSE",
    ):
        shutil.copy(TOP / name, source)
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps"]
    command += ["--no-build-isolation", "--target", folder / "site", source]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "site"


def link(name, site):
    "Link each file of an installed distribution into a folder of packages, its shared files beside it"
    dist = distribution(name)
    for file in dist.files:
        # scripts name the interpreter that they were installed with
        is_script = ".." in file.parts and "bin" in file.parts
        if not is_script:
            target = Path(os.path.normpath(site / file))
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(dist.locate_file(file))


@pytest.fixture(scope="module")
def environment_of(wheel, tmp_path_factory):
    "A function: the interpreter of an environment that has memnb with one extra"
    made = {}

    def interpreter(extra):
        if extra not in made:
            folder = tmp_path_factory.mktemp(f"env-{extra.replace(',', '-')}")
            venv.create(folder, with_pip=False)
            (site,) = folder.glob("lib/python*/site-packages")
            extras = [] if extra == BASE else extra.split(",")
            for name in closure(requirements(*extras)):
                link(name, site)
            (site / "memnb.pth").write_text(f"{wheel}\n", encoding="utf8")
            made[extra] = folder / "bin" / "python"
        return made[extra]

    return interpreter


def of_this_machine(line, server):  # noqa: F811
    "A line with the server of the test, and a tiny network for the packaged one"
    line = re.sub(r"http://(HOST|localhost):\d+/v1", f"{server.url}/v1", line)
    return re.sub(r"\bsmollm2\b", "hf:mine", line)


def memnb(python, words):
    "The command in that environment, as a finished process"
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    code = "from memnb.run.cli import main; raise SystemExit(main())"
    return subprocess.run(
        [python, "-c", code, *words],
        env=kept,
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.mark.parametrize(("extra", "line"), documented())
def test_line_runs_with_its_extra_alone(
    extra,
    line,
    environment_of,
    place,  # noqa: F811
    server,  # noqa: F811
):
    "To its end; baselines that are not installed are named, and nothing else is asked for"
    python = environment_of(extra)
    for first in [*BEFORE.get(line, ()), line]:
        words = shlex.split(of_this_machine(first, server))[1:]
        done = memnb(python, words)
        assert done.returncode == 0, done.stderr
        # `plan` and `table` name what would bring more
        hints = re.findall(
            r"\[(\w+)\]' with the file", done.stdout + done.stderr
        )
        assert {*hints} <= {"baselines", "local"}, done.stdout


# ---- Python


def extra_of_code(code):
    "The smallest extras that a block of Python asks for"
    extras = []
    if "openai:" in code:
        extras.append("api")
    if re.search(r"['\"](hf:|smollm2)", code):
        extras.append("plant" if "plant." in code else "local")
    return ",".join(extras) or BASE


def blocks_by_extra():
    "Extras -> blocks of Python in the guides; exercises are `test_teaching.py`'s"
    kept = {}
    for param in blocks("python"):
        code = param.values[0]
        if "memnb.exercises" not in code:
            kept.setdefault(extra_of_code(code), []).append(code)
    return kept


# Fewer questions than the guides ask: what a block imports does not depend on them, and
# `test_lines.py` runs the sizes as they stand, in an environment with everything.
FEWER = {r"\bn=\d+": "n=4", r"ks=\[0, 10\]": "ks=[0, 2]", r'"cuda"': '"cpu"'}

# in the environment of an extra: trainings are looked at and not done, as in `test_lines.py`
DRIVER = """
import json, sys
from inspect import signature
for name in ("make", "what_came") if "plant" in sys.argv[1] else ():
    from memnb import plant
    bound = signature(getattr(plant, name))
    setattr(plant, name, lambda *a, _bound=bound, **kw: _bound.bind(*a, **kw))
for code in json.load(sys.stdin):
    print(code, file=sys.stderr)
    exec(compile(code, "guide", "exec"), {})
"""


def test_every_block_of_python_has_its_extra():
    "One of each kind there is, so that none is left out by a change of words"
    kept = blocks_by_extra()
    assert sum(map(len, kept.values())) == len(blocks("python")) - 1
    assert {*kept} == {BASE, "local", "plant", "api,local"}


@pytest.mark.parametrize("extra", blocks_by_extra())
def test_python_runs_with_its_extra_alone(
    extra,
    environment_of,
    place,  # noqa: F811
    server,  # noqa: F811
):
    "To their ends, all of an extra in one process, whose first imports take longest"
    codes = []
    for code in blocks_by_extra()[extra]:
        for pattern, fewer in FEWER.items():
            code = re.sub(pattern, fewer, code)
        codes.append(re.sub(r"(['\"])smollm2\1", r"\1hf:mine\1", code))
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [environment_of(extra), "-c", DRIVER, extra],
        input=json.dumps(codes),
        env=kept,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
