"""Every line of README and of the guides below docs/, shell and Python, is run as it stands.

Models are tiny networks and a server of this machine; where a line starts a batch, its notebooks are not executed
(`test_batch.py` does that), but take the outputs that ship.
"""

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
from importlib.util import find_spec
from inspect import signature
from pathlib import Path

import pytest
from test_repo import TOP, project
from test_server import KEY, VARIABLES, Server

from memnb import core, hf, lm, plant, results
from memnb.run import batch, cli, estimate, identity, profiles

GUIDES = [
    "README.md",
    *(f"docs/{f.name}" for f in sorted((TOP / "docs").glob("*.md"))),
]


def blocks(kind):
    "Blocks of one kind in README and guides: pytest parameters"
    found = []
    for guide in GUIDES:
        text = (TOP / guide).read_text(encoding="utf8")
        for number, code in enumerate(
            re.findall(rf"```{kind}\n(.*?)```", text, re.S), 1
        ):
            found.append(pytest.param(code, id=f"{guide} {number}"))
    return found


def inline():
    "Commands that stand in prose"
    found = set()
    for guide in GUIDES:
        text = re.sub(
            r"```.*?```",
            "",
            (TOP / guide).read_text(encoding="utf8"),
            flags=re.S,
        )
        found |= {*re.findall(r"`(memnb [a-z][^`]*)`", text)}
    return sorted(found)


@pytest.fixture(scope="module")
def networks(tmp_path_factory):
    "Two tiny networks with the tokenizer of the packaged model, each in a folder"
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(hf.fetch())
    size = dict(
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
    )
    config = LlamaConfig(
        vocab_size=len(tokenizer), max_position_embeddings=8192, **size
    )
    folders = []
    for seed in (0, 1):
        folders.append(tmp_path_factory.mktemp("network"))
        torch.manual_seed(seed)
        LlamaForCausalLM(config).save_pretrained(folders[-1])
        tokenizer.save_pretrained(folders[-1])
    return folders


def texts(words, n=60):
    places = ["gate", "shop", "mill", "bridge", "tower"]
    rows = ["text,label"]
    for i in range(n):
        place = places[i % 5]
        rows.append(
            f'"The {words} {place} of house {i} was closed at {i % 12} in the rain, and number {7 * i} of '
            f'the {places[i // 5 % 5]} said that nobody had come for {i + 2} days.",{i % 2}'
        )
    return "\n".join(rows) + "\n"


def losses(falls, strings=0, level=4):
    "A log of the Trainer: the loss of the first string falls; they are a and b, or s1, s2, ..."
    names = [f"s{i}" for i in range(1, strings + 1)] or ["a", "b"]
    history = [
        {
            "epoch": epoch,
            "step": epoch,
            f"eval_{name}_loss": level
            - falls * 0.2 * epoch * (name == names[0]),
        }
        for epoch in range(1, 16)
        for name in names
    ]
    return json.dumps(dict(log_history=history))


@pytest.fixture
def place(tmp_path, networks, monkeypatch):
    "A folder with the files that the guides speak of, and the working directory in it"
    for name in ("mine", "before", "my/model", "path/to/model"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(networks[name == "before"], tmp_path / name)
    rows = [
        f"{17 * i % 101},{(7 * i % 13) / 2},{['low', 'mid', 'high'][i % 3]}"
        for i in range(60)
    ]
    (tmp_path / "my.csv").write_text(
        "height,weight,grade\n" + "\n".join(rows) + "\n"
    )
    (tmp_path / "texts.csv").write_text(texts("old"))
    (tmp_path / "other.csv").write_text(texts("new", 25))
    for name, falls in (("with", True), ("without", False)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "trainer_state.json").write_text(losses(falls))
    lines = ["string,epoch,train_loss,test_loss"]
    lines += [
        f"{s},{e},{4 - 0.2 * e * (s == 'a')},4"
        for s in "ab"
        for e in range(1, 16)
    ]
    for name in ("losses.csv", "my_losses.csv"):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    # two trainings never have the same losses
    for name, falls, level in (
        ("with", True, 4),
        ("without", False, 4),
        ("again", False, 4.01),
    ):
        file = tmp_path / f"{name}.json"
        file.write_text(losses(falls, strings=8, level=level))
    shutil.copy(tmp_path / "texts.csv", tmp_path / "t.csv")
    (tmp_path / "mine.yaml").write_text("- notebook: capacity\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMNB_HOME", str(tmp_path))
    monkeypatch.setenv("MEMNB_STORE", str(tmp_path / "answers.sqlite"))
    return tmp_path


@pytest.fixture
def server(monkeypatch):
    "A server that knows nothing, and the environment in which it is found"
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    one = Server()
    monkeypatch.setenv("OPENAI_BASE_URL", f"{one.url}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    yield one
    one.close()


@pytest.fixture
def small(networks, monkeypatch):
    "The tiny network in the place of the packaged model, on this machine's processor"
    real = lm._load

    def load(name, store=None, mode=None, **settings):
        name = f"hf:{networks[0]}" if name == "smollm2" else name
        if "device" in settings:
            settings["device"] = "cpu"
        return real(name, store, mode, **settings)

    monkeypatch.setattr(lm, "_load", load)


def without_kernel(run, alive):
    "As `kernels.execute`, but the page keeps the outputs that ship"
    nb = json.loads(run.nb.read_text(encoding="utf8"))
    parts = identity.run_parts(run)
    nb["metadata"]["memnb"] = dict(
        parts=parts, identity=identity.checksum(parts), seconds=1.0
    )
    nb["metadata"]["papermill"] = dict(
        parameters=run.parameters, input_path=run.nb.name
    )
    run.out.write_text(json.dumps(nb), encoding="utf8")
    run.seconds = 1.0


# what a guide takes as done already when it names a command in a sentence
BEFORE = {
    "memnb report": ["memnb run mine.yaml"],
    "memnb register mypaper": ["memnb new mypaper"],
    "memnb run confirm --only mypaper": [
        "memnb new mypaper",
        "memnb register mypaper",
    ],
}


def typed(line, server):
    "Run a line of a shell; the servers that a guide names are the one of this test"
    line = re.sub(r"http://(HOST|localhost):\d+/v1", f"{server.url}/v1", line)
    words = shlex.split(line, comments=True)
    if words[0] == "make":
        subprocess.run(
            ["make", "-n", *words[1:]], cwd=TOP, check=True, capture_output=True
        )
    elif words[0].endswith("pip"):
        extras = re.fullmatch(r"\.\[([\w,]+)\]", words[-1])[1].split(",")
        assert {*extras} <= {*project()["optional-dependencies"]}, line
        if "-c" in words:
            assert (TOP / words[words.index("-c") + 1]).is_file(), line
    elif words[:3] == ["python3", "-m", "venv"]:
        assert find_spec("venv"), line
    elif words[0] == ".venv/bin/jupyter":
        config = re.search(r"--config=(\S+)", line)[1]
        assert (TOP / config).is_file(), line
    elif words[0] == ".venv/bin/memnb":
        assert cli.main([*words[1:], "--help"]) == 0, line
    elif words[0] == "git":
        # what git says of the checkout changes nothing; what would is looked up only
        looks = words[1] in ("log", "diff", "show", "status")
        asked = words[1:] if looks else [words[1], "-h"]
        done = subprocess.run(["git", *asked], cwd=TOP, capture_output=True)
        # -h ends with 129
        assert done.returncode in (0, 129), line
    elif words[0] == "sha256sum":
        # the guide says where its first twelve digits stand
        done = subprocess.run(words, cwd=TOP, capture_output=True, text=True)
        paper = Path(words[1]).parent.name
        rows = results.measured(paper, confirm=True)
        assert {*rows.rule} == {done.stdout[:12]}, line
    elif words[0] == "export":
        # the fixture has set these, and takes them back
        given = dict(word.split("=", 1) for word in words[1:])
        assert {*given} <= {*os.environ}, line
        assert given.get("OPENAI_BASE_URL") == os.environ["OPENAI_BASE_URL"]
    elif words[0] == "memnb":
        assert cli.main(words[1:]) == 0, line
    else:
        raise AssertionError(f"who runs this? {line}")


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(batch, "execute", without_kernel)
    cost = dict.fromkeys(estimate.COSTS, 1)
    monkeypatch.setattr(batch, "costs", lambda word, params: dict(cost))


@pytest.mark.parametrize("code", blocks("sh"))
def test_lines_of_a_shell(code, place, server, small, quick):
    for line in code.strip().splitlines():
        if line.strip() and not line.startswith("#"):
            typed(line, server)


def with_own_entry(folder, monkeypatch):
    "The profiles that ship, in a folder, and in `confirm` the entry of a study of one's own, as the guide has it"
    guide = (TOP / "docs/registered.md").read_text(encoding="utf8")
    (entry,) = re.findall(r"```yaml\n(.*?)```", guide, re.S)
    shutil.copytree(TOP / "data/profiles", folder / "profiles")
    with open(folder / "profiles/confirm.yaml", "a", encoding="utf8") as file:
        file.write(entry)
    monkeypatch.setattr(profiles, "share_dir", lambda kind: folder / kind)


@pytest.mark.parametrize("line", inline())
def test_commands_in_prose(
    line, place, server, small, quick, tmp_path_factory, monkeypatch
):
    if "confirm --only mypaper" in line:
        with_own_entry(tmp_path_factory.mktemp("shipped"), monkeypatch)
    for first in BEFORE.get(line, ()):
        typed(first, server)
    typed(line, server)


def settled(code):
    "A block whose trainings are looked at, and not done"
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in (
            "plant.make",
            "plant.what_came",
        ):
            node.func = ast.Name(f"checked_{node.func.attr}", ast.Load())
    return compile(ast.fix_missing_locations(tree), "guide", "exec")


@pytest.mark.slow  # all measures of two tiny networks: some minutes
@pytest.mark.parametrize("code", blocks("python"))
def test_lines_of_python(code, place, server, small):
    if "memnb.exercises" in code:
        pytest.skip("test_teaching.py runs it")
    own = {
        f"checked_{f.__name__}": lambda *a, _f=f, **kw: signature(_f).bind(
            *a, **kw
        )
        for f in (plant.make, plant.what_came)
    }
    exec(settled(code), own)


def test_all_variables_of_the_environment_stand_in_the_guide():
    "As MEMNB_STORE: which the code reads, and which docs/use.md tells"
    code = "\n".join(
        f.read_text(encoding="utf8") for f in core.package_dir().rglob("*.py")
    )
    told = {
        *re.findall(
            r"^\| `(MEMNB_\w+)` \|", (TOP / "docs/use.md").read_text(), re.M
        )
    }
    assert told == {*re.findall(r"\bMEMNB_[A-Z]+\b", code)}


def test_where_things_are_is_true(place, monkeypatch):
    "The folders that the guide names are those that memnb uses"
    monkeypatch.delenv("MEMNB_STORE")
    monkeypatch.setenv("MEMNB_CACHE", str(place / "cache"))
    text = (TOP / "docs/use.md").read_text()
    assert (
        "`answers.sqlite`" in text
        and lm.Store().path == place / "cache/answers.sqlite"
    )
    (run,) = batch.runs_of("mine.yaml")
    assert (
        run.out == place / "runs/mine/capacity.ipynb"
        and "`runs/PROFILE`" in text
    )
    assert (
        core.figures_dir("mine") == place / "figures/mine"
        and "`figures/PROFILE`" in text
    )
    assert "`data/papers/PAPER/measured`" in text and os.environ[
        "MEMNB_HOME"
    ] == str(place)
    assert Path(core.cache_dir()) == place / "cache"
