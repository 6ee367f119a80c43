"What holds for the repository as a whole: exports, arrows, lint, grain, hygiene, packaging."

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from configparser import ConfigParser
from functools import cache
from importlib.metadata import packages_distributions, requires
from importlib.metadata import version as installed_version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

TOP = Path(__file__).resolve().parents[1]
# the rooms and what each may import; papers stand above the rooms of `FOR_PAPERS`
ARROWS = dict(
    core=[],
    answers=["core"],
    store=["core", "answers"],
    backend=["core", "store"],
    attention=["core"],
    weights=["core"],
    batching=["attention"],
    decoding=["store"],
    fourbit=["core", "engine"],
    hf=["core", "store", "backend", "attention", "batching", "decoding", "fourbit", "weights"],
    servers=["core", "store", "backend"],
    lm=["core", "store", "backend", "hf", "servers"],
    csvfile=["core"],
    data=["core", "csvfile"],
    engine=["core"],
    gpt=["core", "engine"],
    stats=[],
    plots=["core"],
    results=["core", "stats"],
    items=["data"],
    plant=["core", "stats", "plots", "data", "items", "weights", "hf", "lm"],
    papers=["core"],
    difference=["core", "papers", "results"],
    rendering=["core"],
    sliding=["core", "papers", "results"],
    exercises=["core", "papers", "plots"],
)
FOR_PAPERS = [
    "core",
    "stats",
    "plots",
    "results",
    "store",
    "data",
    "gpt",
    "hf",
    "lm",
    "plant",
    "rendering",
    "sliding",
    "exercises",
]
ABOVE = "compare"  # it stands above the papers, and may import them
# modules named in a string, '*' for one put together: `papers` finds the packages of papers by their pages
HIDDEN = {"papers": {"*"}, "claims": {"*"}}
ABOVE_PAPERS = {
    "compare"
}  # the page that puts the papers' notions side by side may import their folders
HEADINGS = [
    "What we found",
    "Idea",
    "How it works",
    "Findings",
    "Claims",
    "What differs",
    "For the reading group",
]


def all_notebooks(top=TOP / "nbs"):
    return sorted(p for p in top.rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts)


PLAIN = [*sorted((TOP / "memnb/run").glob("*.py")), TOP / "memnb/rendering.py"]  # no notebook
MODULES = [
    p
    for p in sorted((TOP / "memnb").rglob("*.py"))
    if p not in PLAIN
    and (p.name == "__init__.py" and p.parent != TOP / "memnb" or not p.name.startswith("_"))
]
NOTEBOOKS = all_notebooks()
PAPER_NOTEBOOKS = sorted((TOP / "nbs").glob("1*.ipynb"))
PAPERS = [p.stem.partition("_")[2] for p in PAPER_NOTEBOOKS]


def dotted(path, top=TOP / "memnb"):
    "Name of a module below memnb: `lm`, `tabular.method`, `tabular` for its package"
    parts = path.relative_to(top).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {dotted(p): p for p in MODULES}
each_module = pytest.mark.parametrize("path", MODULES, ids=dotted)
each_notebook = pytest.mark.parametrize(
    "path", NOTEBOOKS, ids=lambda p: p.relative_to(TOP / "nbs").with_suffix("").as_posix()
)
each_paper = pytest.mark.parametrize("path", PAPER_NOTEBOOKS, ids=lambda p: p.stem)


def settings():
    "settings.ini as a dict"
    cfg = ConfigParser()
    assert cfg.read(TOP / "settings.ini", encoding="utf8"), "settings.ini is missing"
    return dict(cfg["DEFAULT"])


def project():
    "The table [project] of pyproject.toml"
    return tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf8"))["project"]


def extra(name):
    "Requirements of an extra, those of the extras that it names included"
    for r in map(Requirement, project()["optional-dependencies"][name]):
        if r.name != "memnb":
            yield r
        else:
            for e in r.extras:
                yield from extra(e)


def requirements():
    "Every requirement of pyproject.toml, the extras included"
    base = map(Requirement, project()["dependencies"])
    return [*base, *(r for e in project()["optional-dependencies"] for r in extra(e))]


def names(found):
    return {canonicalize_name(r.name) for r in found}


def pins():
    "constraints.txt as name -> requirement"
    found = [
        Requirement(l) for l in (TOP / "constraints.txt").read_text().splitlines() if l.strip()
    ]
    return {canonicalize_name(r.name): r for r in found}


def tree(path):
    return ast.parse(path.read_text(encoding="utf8"))


def dunder_all(path):
    "The statement `__all__ = [...]` of a module"
    for n in tree(path).body:
        if isinstance(n, ast.Assign) and getattr(n.targets[0], "id", "") == "__all__":
            return n
    raise AssertionError(f"{path.name} has no __all__")


def public(path):
    return ast.literal_eval(dunder_all(path).value)


def cells(path):
    return json.loads(path.read_text(encoding="utf8"))["cells"]


def python(code, cwd, **env):
    "Output of a fresh Python process; fails with its error"
    env = {**os.environ, **env}
    r = subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, env=env, capture_output=True, text=True
    )
    assert r.returncode == 0, r.stderr
    return r.stdout


# --- the notebooks are the source ---


def test_there_is_something_to_test():
    assert {"core", "lm", "data", "tabular", "tabular.method"} <= {*NAMES}, "run `make export`"
    assert (TOP / "nbs/index.ipynb").exists() and len(PAPERS) > 4


def test_export_and_clean_change_nothing(tmp_path):
    "Exporting and cleaning a copy of the checkout gives the files that are in it, byte for byte"
    for folder, pattern in [("memnb", "*.py"), ("nbs", "*.ipynb")]:
        for p in (TOP / folder).rglob(pattern):
            if ".ipynb_checkpoints" in p.parts:
                continue
            target = tmp_path / p.relative_to(TOP)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(p, target)
    for p in ["settings.ini", "pyproject.toml"]:
        shutil.copy(TOP / p, tmp_path)
    for call in ["ruff format nbs", "nbdev_export", "nbdev_clean", "ruff format memnb"]:
        tool, *words = call.split()
        r = subprocess.run(
            [Path(sys.executable).parent / tool, *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert r.returncode == 0, f"{call}: {r.stderr}"

    def texts(top):
        return {
            str(p.relative_to(top)): p.read_text(encoding="utf8")
            for p in [*(top / "memnb").rglob("*.py"), *(top / "nbs").rglob("*.ipynb")]
            if ".ipynb_checkpoints" not in p.parts
        }

    was, now = texts(TOP), texts(tmp_path)
    stale = sorted(p for p in {*was, *now} if was.get(p) != now.get(p))
    assert not stale, f"run `make export`, which changes: {stale}"


@each_paper
def test_plumbing_is_folded_in_jupyter(path):
    "A reader who opens a page in Lab sees no imports and no formatters"
    open_ = [
        "".join(c["source"])[:40]
        for c in cells(path)
        if c["cell_type"] == "code"
        and re.match(r"#\|\s*(hide(?!_)|default_exp (?!.*\n#\| export))", "".join(c["source"]))
        and not c["metadata"].get("jupyter", {}).get("source_hidden")
    ]
    assert not open_, f"fold these cells (jupyter.source_hidden): {open_}"


def test_every_module_has_a_notebook():
    sources = {
        m[1].removesuffix(".__init__")
        for p in NOTEBOOKS
        for m in re.finditer(r"default_exp ([\w.]+)", p.read_text(encoding="utf8"))
    }
    assert not {*NAMES} - sources, (
        f"modules without a notebook that exports them: {sorted({*NAMES} - sources)}"
    )


def test_readme_is_current(tmp_path):
    cmd = [sys.executable, "-m", "memnb.run.cli", "readme", "--check"]
    r = subprocess.run(cmd, cwd=TOP, capture_output=True, text=True)
    assert r.returncode == 0, f"README.md is stale, run `make readme`\n{r.stdout}{r.stderr}"


# --- arrows and imports ---

HEAVY = ["torch", "transformers", "openai", "pandas", "numpy", "sklearn", "matplotlib", "papermill"]


@pytest.mark.parametrize("name", ["memnb", "memnb.core"])
def test_import_is_light(name, tmp_path):
    loaded = python(
        f"import sys, {name}; print(*[m for m in {HEAVY} if m in sys.modules])", tmp_path
    ).split()
    assert not loaded, (
        f"`import {name}` loads {loaded}: import them inside the function that needs them"
    )


@pytest.mark.parametrize("name", ["memnb", "memnb.core"])
def test_import_needs_only_python(name, tmp_path):
    "What every process of memnb pays for at its start is the standard library"
    code = (
        f"import sys\nwas = {{*sys.modules}}\nimport {name}\n"
        "print(*{m.split('.')[0] for m in {*sys.modules} - was})"
    )
    loaded = set(python(code, tmp_path).split()) - {"memnb"} - sys.stdlib_module_names
    assert not loaded, f"`import {name}` loads {sorted(loaded)}: import them where they are needed"


def imported(path, top=TOP / "memnb", known=NAMES):
    "Modules of memnb that a file imports, wherever in the file"
    package = ("memnb", *path.relative_to(top).parent.parts)
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = (
                ".".join([*package[: len(package) - node.level + 1], *filter(None, [node.module])])
                if node.level
                else node.module
            )
            found = [f"{base}.{a.name}" for a in node.names]
        else:
            continue
        for name in (n.removeprefix("memnb.") for n in found if n.startswith("memnb.")):
            while name and name not in known:
                name = name.rpartition(".")[0]  # a name in a module, not a module
            if name:
                yield name


def spelled(node):
    "The text of an expression as far as it stands in the file, with a * for what is put in when it runs"
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(spelled, node.values))
    if isinstance(node, ast.BinOp):
        return spelled(node.left) + (spelled(node.right) if isinstance(node.op, ast.Add) else "*")
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "format"
    ):
        return re.sub(r"\{.*?\}", "*", spelled(node.func.value))
    return "*"


def hidden(path):
    "Modules of memnb that a file names in a string where it imports or looks for one"
    for node in ast.walk(tree(path)):
        if not isinstance(node, ast.Call):
            continue
        fun = getattr(node.func, "id", None) or getattr(node.func, "attr", None)
        if fun not in ("import_module", "__import__", "find_spec", "run_module"):
            continue
        name = spelled((node.args or [k.value for k in node.keywords] or [None])[0])
        if name.startswith("."):
            name = "memnb" + name
        if name.startswith("memnb."):
            yield re.sub(r".*[*%{].*", "*", name.split(".")[1])
        elif name.startswith("*") and fun != "find_spec":
            yield "*"


def may_import(name):
    "What a module may import: rooms as `ARROWS` says, papers the rooms below them and their own folder"
    paper, _, part = name.partition(".")
    if paper == ABOVE:
        return {*FOR_PAPERS} | {n for n in NAMES if n.partition(".")[0] in {ABOVE, *PAPERS}}
    if paper not in PAPERS:
        return {*ARROWS[name]}
    below = {*PAPERS} - ABOVE_PAPERS if paper in ABOVE_PAPERS else set()
    seen = {n for n in NAMES if n.split(".")[0] in {paper, *below}} if part != "method" else set()
    return {*FOR_PAPERS} | seen


@each_module
def test_arrows(path):
    name = dotted(path)
    assert name.split(".")[0] in {*ARROWS, *PAPERS, ABOVE}, (
        f"{path.name} has no place in the arrows of this test"
    )
    wrong = {*imported(path)} - may_import(name) - {name}
    assert not wrong, f"{name} imports {sorted(wrong)}; it may import {sorted(may_import(name))}"
    secret = set(hidden(path)) - may_import(name) - HIDDEN.get(name, set())
    assert not secret, f"{name} hides arrows in strings: {sorted(secret)}"


def test_nobody_imports_run():
    known = NAMES | {dotted(p): p for p in PLAIN}
    for path in MODULES + [TOP / "memnb/rendering.py"]:
        wrong = [n for n in imported(path, known=known) if n.split(".")[0] == "run"]
        assert not wrong, f"{dotted(path)} imports {wrong}"


def test_arrows_make_no_circle():
    "Taking away modules that import nothing that is left, again and again, leaves nothing"
    left = {n: {*imported(p)} - {n} for n, p in NAMES.items()}
    while free := [n for n, to in left.items() if not to & {*left}]:
        for n in free:
            del left[n]
    assert not left, f"these import each other in a circle: {sorted(left)}"


def test_imported_reads_every_form(tmp_path):
    "The reader of imports above sees each way to write one"
    f = tmp_path / "x.py"
    f.write_text(
        "import os, memnb.lm\nfrom .core import *\nfrom memnb import data\nfrom . import gpt\n"
        "def g():\n    from memnb.plant import a\n"
    )
    known = dict.fromkeys(["lm", "core", "data", "gpt", "plant", "toy", "toy.method"])
    assert {*imported(f, tmp_path, known)} == {"lm", "core", "data", "gpt", "plant"} and not set(
        hidden(f)
    )
    (tmp_path / "toy").mkdir()
    g = tmp_path / "toy/claims.py"
    g.write_text(
        "from .method import f\nfrom ..core import say\nfrom .. import gpt\nfrom memnb.toy import nothing\n"
    )
    assert {*imported(g, tmp_path, known)} == {"toy.method", "core", "gpt", "toy"}


@pytest.mark.parametrize(
    "code, found",
    [
        ("importlib.import_module('memnb.plant')", {"plant"}),
        ("import_module('.plant', 'memnb')", {"plant"}),
        ("__import__('memnb.lm', fromlist=['x'])", {"lm"}),
        ("find_spec('memnb.lm')", {"lm"}),
        ("import_module(f'memnb.{word}')", {"*"}),
        ("import_module('memnb.' + word)", {"*"}),
        ("import_module('memnb.%s' % word)", {"*"}),
        ("import_module('memnb.{}'.format(word))", {"*"}),
        ("import_module(name=word)", {"*"}),
        ("import_module(word)", {"*"}),
        ("find_spec(word)", set()),
        ("find_spec('memnb')", set()),
        ("import_module('torch')", set()),
    ],
)
def test_hidden_reads_every_form(code, found, tmp_path):
    "An arrow in a string is seen, whichever way the string is made"
    f = tmp_path / "x.py"
    f.write_text(f"def g(word):\n    return {code}\n")
    assert set(hidden(f)) == found


def defined(path):
    "Names that a module makes at its top level, not those it hands on"
    for n in tree(path).body:
        if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield n.name
        targets = [n.target] if isinstance(n, ast.AnnAssign) else getattr(n, "targets", [])
        yield from (x.id for t in targets for x in ast.walk(t) if isinstance(x, ast.Name))


def test_public_names_are_unique():
    "Only what all papers have may occur twice, and the door of `lm` and `data`: load and fetch"
    agreed, seen = (
        re.compile(
            r"(measure|run_all|CLAIMS|estimate|to_long|from_long|to_draw|all_runs|slides|EXPERIMENTS|CHECKS|(fig|tab)\d*\w*)$"
        ),
        {},
    )
    for name, p in NAMES.items():
        for n in {*public(p)} & {*defined(p)}:
            seen.setdefault(n, []).append(name)

    def may(name, modules):
        if name == "fetch":
            return set(modules) == {"weights", "data"}
        if name == "load":
            return set(modules) == {"lm", "data"}
        if name == "BACKENDS":
            return set(modules) == {"hf", "servers", "lm"}
        papers = [m.split(".")[0] for m in modules]
        return agreed.match(name) and {*papers} <= {*PAPERS} and len({*papers}) == len(papers)

    twice = {n: m for n, m in seen.items() if len(m) > 1 and not may(n, m)}
    assert not twice, f"defined in several modules: {twice}"


def of_paper(paper):
    "Public names of a paper, wherever in its folder they are defined"
    return {n for name, p in NAMES.items() if name.split(".")[0] == paper for n in public(p)}


@pytest.mark.parametrize("paper", PAPERS)
def test_papers_share_their_shape(paper):
    found = of_paper(paper)
    assert {"measure", "estimate", "CLAIMS"} <= found, f"{paper} lacks measure, estimate or CLAIMS"
    assert {f"{paper}.method", f"{paper}.claims", f"{paper}.figures"} <= {*NAMES}
    figures = {n for n in found if re.match(r"(fig|tab)\d", n)}
    want = {"measure", "estimate", "CLAIMS", *figures, *public(NAMES[f"{paper}.method"])}
    code = f"import memnb.{paper} as p; print(*[n for n in {sorted(want)} if not hasattr(p, n)])"
    assert figures and not python(code, TOP).strip(), (
        f"`from memnb import {paper}` does not give all of: {sorted(want)}"
    )


# --- lint and grain ---


def test_ruff_finds_nothing():
    "Names that are lost, unused or shadowed, and the traps of flake8-bugbear, as pyproject.toml selects them"
    cmd = [sys.executable, "-m", "ruff", "check", "-q", "--no-cache", "--output-format=concise"]
    r = subprocess.run([*cmd, "memnb", "tests", "docs"], cwd=TOP, capture_output=True, text=True)
    assert r.returncode == 0, r.stdout + r.stderr


@each_module
def test_a_module_is_one_idea(path):
    name, lines = dotted(path), len(path.read_text(encoding="utf8").splitlines())
    most = 250 if name.endswith(".method") else 500
    assert lines <= most, f"{name} has {lines} lines, {most} at most: cut it along its ideas"


@each_module
def test_lines_are_short(path):
    "What nbdev writes itself is not counted: line 1 (the notebook's summary), `# %%` and `__all__`"
    names = dunder_all(path)
    theirs = {1, *range(names.lineno, names.end_lineno + 1)}
    long = [
        i
        for i, l in enumerate(path.read_text(encoding="utf8").splitlines(), 1)
        if len(l) > 110 and i not in theirs and not l.startswith("# %%")
    ]
    assert not long, f"{path.name}: over 110 characters in lines {long}"


@each_module
def test_docstrings_are_one_line(path):
    "Public functions and classes have a docstring; any docstring is one line"
    wrong, names = [], set(public(path))
    for node in ast.walk(tree(path)):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        doc = ast.get_docstring(node, clean=False)
        if doc is None and node.name in names:
            wrong.append(f"{node.name} has none")
        if doc is not None and len(doc.strip().splitlines()) != 1:
            wrong.append(f"{node.name}: not one line")
    assert not wrong, f"{path.name}, docstrings: {wrong}"


@each_notebook
def test_notebook_is_light(path):
    kb = path.stat().st_size / 1000
    assert kb < 300, f"{path.name} is {kb:.0f} KB; make its outputs smaller"


# --- the skeleton of a paper notebook ---


@each_paper
def test_one_parameters_cell(path):
    tagged = [c for c in cells(path) if "parameters" in c["metadata"].get("tags", [])]
    assert len(tagged) == 1, f"{path.name} has {len(tagged)} cells tagged `parameters`"
    source = "".join(tagged[0]["source"])
    names = [n.target.id for n in ast.parse(source).body if isinstance(n, ast.AnnAssign)]
    common = ["profile", "model", "n", "seed"]
    assert [n for n in names if n in common] == common, (
        f"the parameters {names} lack, or reorder, {common}"
    )
    bare = [l for l in source.splitlines() if l.strip() and not l.startswith("#") and "#" not in l]
    assert not bare, f"parameters without a comment, which is their help: {bare}"


@each_paper
def test_headings_in_order(path):
    text = "\n".join("".join(c["source"]) for c in cells(path) if c["cell_type"] == "markdown")
    found = re.findall(r"^## (.+?)\s*$", text, flags=re.M)
    assert found == HEADINGS, f"{path.name} has the headings {found}"


def pictures(cell):
    return [
        o for o in cell.get("outputs", []) if any(k.startswith("image/") for k in o.get("data", {}))
    ]


@each_paper
def test_a_page_is_a_page(path):
    "Some 50 cells, a picture in the first screen, an output below more than half of the code"
    found = cells(path)
    code = [c for c in found if c["cell_type"] == "code"]
    shown = sum(bool(c["outputs"]) for c in code)
    assert len(found) <= 65, f"{path.name} has {len(found)} cells, 65 at most"
    assert any(pictures(c) for c in found[:8]), f"{path.name} shows no picture in its first 8 cells"
    assert shown > len(code) / 2, f"{path.name}: {shown} of {len(code)} code cells have an output"


@each_notebook
def test_notebooks_hold_no_batch_hazards(path):
    "No export call (parallel runs would rewrite the package), no cell that errs, every cell id in place"
    for c in cells(path):
        source = "".join(c["source"])
        assert c.get("id"), f"{path.name}: a cell without id"
        assert "nbdev_export(" not in source, f"{path.name} calls nbdev_export"
        errors = [o for o in c.get("outputs", []) if o["output_type"] == "error"]
        assert not errors, f"{path.name} has a stored error below: {source[:60]}"


@each_notebook
def test_links_of_notebooks_lead_somewhere(path):
    text = "\n".join("".join(c["source"]) for c in cells(path) if c["cell_type"] == "markdown")
    links = [l for l in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) if not re.match(r"\w+:", l)]
    lost = [l for l in links if not (path.parent / l).exists()]
    assert not lost, f"{path.name} links to {lost}"


# --- hygiene ---


def texts():
    "Every text file of the project"
    folders = [
        "nbs",
        "memnb",
        "data",
        "tests",
        ".ci",
        ".github",
        ".devcontainer",
        "binder",
        "docs/_static",
    ]
    files = [p for d in folders for p in sorted((TOP / d).rglob("*")) if p.is_file()]
    files += [
        p
        for d in (TOP, TOP / "docs")
        for p in sorted(d.iterdir())
        if p.is_file() and p.name != ".git"
    ]
    return [p for p in files if p.suffix not in (".png", ".pyc", ".safetensors")]


# written in pieces, so that this file does not contain what it forbids
MACHINE = re.compile("/(" + "|".join(["home", "Users", "root", "tmp", "work", "opt"]) + r")/[\w.]")
HOSTS = re.compile(
    "|".join(
        [
            "pypi[.]org",
            "pythonhosted",
            "download[.]pytorch",
            "npmjs[.]",
            "anaconda[.]org",
            "conda-forge",
            "file://",
        ]
    )
)


@pytest.mark.parametrize("what", [MACHINE, HOSTS], ids=["machine paths", "package registries"])
def test_no_trace_of_a_machine(what):
    found = [
        f"{p.relative_to(TOP)}: {m[0]}"
        for p in texts()
        for m in [what.search(p.read_text(encoding="utf8", errors="replace"))]
        if m
    ]
    assert not found, f"not to be named in the project: {found}"


# what a reader would paste or a tool would follow: no name may be in it that anybody can register
OWNED = re.compile(
    r"git\+https?:|github[.]com/memnb|memnb[.]github|"
    r'pip\W+install(\s+-\S+)*\s+[\'"]?memnb\b(?!/)'
)


def test_no_install_line_names_what_nobody_owns():
    found = [
        f"{p.relative_to(TOP)}: {m[0]}"
        for p in texts()
        if p.name != "test_repo.py"
        for m in OWNED.finditer(p.read_text(encoding="utf8", errors="replace"))
    ]
    assert not found, f"write pip install '.[extra]', run in the checkout, instead of: {found}"


def test_patterns_find_what_they_forbid():
    assert all(
        map(
            OWNED.search,
            [
                "pip install 'memnb[dask]'",
                "pip install git+https://x.org/y",
                "%pip install -q memnb",
                "run_line_magic('pip', 'install -q memnb')",
                "see github.com/memnb/memnb",
            ],
        )
    )
    assert not any(
        map(OWNED.search, ["pip install '.[all]' in the folder of memnb", "pip install memnb/."])
    )
    assert MACHINE.search("see /home/ada/x") and MACHINE.search('"\\n/tmp/abc')
    assert not MACHINE.search("at home/work")
    assert HOSTS.search("https://pypi.org/simple")


def test_figures_are_named_by_paper_and_number():
    names = [p.name for p in (TOP / "figures").glob("*") if p.is_file()]  # profiles have folders
    good = re.compile(rf"({'|'.join(PAPERS)})_((fig|tab)\d+\w*|x_\w+)[.]png$")
    wrong = [n for n in names if not good.match(n)]
    assert names, "figures/ is empty, run `make reproduce`"
    assert not wrong, (
        f"figures are <paper>_fig<N>, <paper>_tab<N> or <paper>_x_<word>.png, not {wrong}"
    )


def test_figures_have_their_function():
    lost = []
    for p in (TOP / "figures").glob("*.png"):
        paper, _, kind = p.stem.partition("_")
        number = re.match(r"(fig|tab)\d+", kind)
        if number and number[0] not in of_paper(paper):
            lost.append(p.name)
    assert not lost, f"no function draws {lost}"


def test_figures_stand_alone():
    "A figure carries its finding, who was measured, and its caption"
    from PIL import Image

    for p in (TOP / "figures").glob("*.png"):
        with Image.open(p) as f:
            told = f.text
        lost = {"Title", "Foot", "Description"} - {*told}
        assert not lost or told.get("Comment") == "a placeholder", (
            f"{p.name} lacks {sorted(lost)}; draw it with plots.finish"
        )


def test_measured_rows_say_where_they_come_from():
    top = TOP / "data/papers"
    tables = sorted(top.glob("*/measured/*.csv"))
    assert tables, "no measured rows, run `make reproduce`"
    for p in tables:
        assert p.relative_to(top).parts[0] in PAPERS, f"{p.name} is of no paper"
        columns = p.read_text(encoding="utf8").splitlines()[0].split(",")
        missing = {"model", "profile", "seed", "code", "when"} - set(columns)
        assert not missing, f"{p.name} lacks the columns {sorted(missing)}"


# --- packaging ---


def test_metadata_has_one_source():
    "pyproject.toml says what memnb is; settings.ini keeps what nbdev reads and no second copy; both agree"
    p, cfg = project(), settings()
    twice = {
        k for k in cfg if re.search("requirements$|^description$|^keywords$|^console_scripts$", k)
    }
    assert not twice, f"{sorted(twice)} of settings.ini belong into pyproject.toml"
    assert (p["name"], p["requires-python"]) == (cfg["lib_name"], ">=" + cfg["min_python"])
    init = ast.literal_eval(tree(TOP / "memnb/__init__.py").body[0].value)
    assert (
        p["dynamic"] == ["version"]
        and init == cfg["version"]
        and cfg["update_pyproject"] == "False"
    )


def test_extras():
    extras = {*project()["optional-dependencies"]}
    assert {"api", "local", "plant", "baselines", "batch", "report", "all", "lab", "dask"} <= extras
    assert {"serve", "dev", "bench", "browser", "docs"} <= extras
    wanted = {
        "jupyterlab",
        "papermill",
        "torch",
        "transformers",
        "openai",
        "matplotlib",
        "seaborn",
        "pandas",
    }
    assert wanted <= names(map(Requirement, project()["dependencies"])) | names(extra("all"))


def third_party(path):
    "Top-level modules of others that a file imports, wherever in the file"
    for node in ast.walk(tree(path)):
        found = (
            [a.name for a in node.names]
            if isinstance(node, ast.Import)
            else [node.module]
            if isinstance(node, ast.ImportFrom) and not node.level
            else []
        )
        yield from {n.split(".")[0] for n in found} - sys.stdlib_module_names - {"memnb"}


installed = cache(packages_distributions)


def providers(module):
    "The distributions that a module may come from"
    return {canonicalize_name(d) for d in installed().get(module, [module])}


READERS = [
    "api",
    "local",
    "plant",
    "baselines",
    "hub",
    "batch",
    "report",
    "lab",
    "dask",
    "complete",
]  # extras that memnb/ may import


@pytest.mark.parametrize(
    "path", sorted((TOP / "memnb").rglob("*.py")), ids=lambda p: p.relative_to(TOP).as_posix()
)
def test_imports_are_declared(path):
    "Nothing is imported that is only there because something else brought it along"
    known = names(map(Requirement, project()["dependencies"])) | names(
        r for e in READERS for r in extra(e)
    )
    lost = sorted(m for m in third_party(path) if not providers(m) & known)
    assert not lost, f"{path.name} imports {lost}, which pyproject.toml does not declare"


def only_extras():
    "Modules imported somewhere in memnb that the bare package does not ask for"
    base = names(map(Requirement, project()["dependencies"]))
    return sorted(
        {
            m
            for p in (TOP / "memnb").rglob("*.py")
            for m in third_party(p)
            if not providers(m) & base
        }
    )


def test_modules_import_without_extras(tmp_path):
    "Every module can be imported, and a model behind a server made, where no extra is installed"
    code = (
        f"import importlib, pkgutil, sys\nsys.modules |= dict.fromkeys({only_extras()})\nimport memnb\n"
        'for m in pkgutil.walk_packages(memnb.__path__, "memnb."):\n'
        "    try: importlib.import_module(m.name)\n"
        '    except ImportError as e: print(m.name, "needs", e.name)\n'
        'from memnb import lm\nassert lm.load("openai:x").mode == "chat"'
    )
    assert {"torch", "transformers", "openai", "peft", "sklearn", "xgboost", "papermill"} <= {
        *only_extras()
    }
    lost = python(code, tmp_path, MEMNB_STORE=str(tmp_path / "s.sqlite"))
    assert not lost, f"import these inside the function that needs them: {lost}"


def closure(found):
    "Names of all distributions that a fresh install of some requirements brings, as installed here"
    todo, seen = [(canonicalize_name(r.name), tuple(sorted(r.extras))) for r in found], set()
    while todo:
        if (one := todo.pop()) in seen:
            continue
        seen.add(one)
        for r in map(Requirement, requires(one[0]) or []):
            if any(r.marker is None or r.marker.evaluate({"extra": e}) for e in (*one[1], "")):
                todo.append((canonicalize_name(r.name), tuple(sorted(r.extras))))
    return {name for name, _ in seen}


def test_one_paper_on_an_api_is_a_small_install():
    base = [*map(Requirement, project()["dependencies"])]
    asked, brought = names([*base, *extra("api")]), closure([*base, *extra("api")])
    assert len(asked) <= 15, f"{len(asked)} packages asked for: {sorted(asked)}"
    heavy = {
        "torch",
        "transformers",
        "peft",
        "scikit-learn",
        "xgboost-cpu",
        "papermill",
        "jupyterlab",
    }
    assert asked <= brought and not heavy & brought and len(brought) <= 65, sorted(brought)


def test_every_system_has_its_xgboost():
    "xgboost-cpu has no wheel for macOS"
    for system, want in [("linux", "xgboost-cpu"), ("win32", "xgboost-cpu"), ("darwin", "xgboost")]:
        found = [r for r in extra("baselines") if r.name.startswith("xgboost")]
        assert [r.name for r in found if r.marker.evaluate({"sys_platform": system})] == [want]


def test_constraints_hold_every_requirement():
    found, lost = pins(), []
    for r in requirements():
        pin = found.get(canonicalize_name(r.name))
        if pin is None:
            lost.append(f"{r} has no pin")
            continue
        version = str(pin.specifier).removeprefix("==")
        if not r.specifier.contains(version):
            lost.append(f"{pin} does not satisfy {r}")
    assert not lost, f"constraints.txt against pyproject.toml: {lost}"


def test_constraints_are_exact():
    loose = [
        str(r) for r in pins().values() if not re.fullmatch(r"==[\w.]+", str(r.specifier)) or r.url
    ]
    assert not loose, f"constraints are name==version, without local versions or addresses: {loose}"
    assert str(pins()["torch"].specifier) == "==2.13.0"


def test_installed_version_is_the_one_of_settings():
    assert installed_version("memnb") == settings()["version"], "set up again: `make test`"


def test_wheel_carries_what_it_reads(tmp_path):
    "Installed by copy, memnb brings notebooks, numbers and profiles along, and leaves nothing in its source"
    source, site, away = [tmp_path / n for n in ("source", "site", "away")]
    skip = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints", "kernel-ipc-*")
    for d in ["memnb", "nbs", "data"]:
        shutil.copytree(TOP / d, source / d, ignore=skip)
    for f in ["settings.ini", "setup.py", "pyproject.toml", "README.md", "LICENSE"]:
        if (TOP / f).exists():
            shutil.copy(TOP / f, source)
    own = source / "data/papers/tabular/measured/one-run.csv"
    own.with_suffix(".csv.unfinished").write_text("")
    own.write_text("model,profile,seed,version\n")
    away.mkdir()
    before = sorted(source.rglob("*"))
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation"]
    r = subprocess.run([*pip, "--target", site, source], cwd=away, capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    assert sorted(source.rglob("*")) == before, "the build left something in the source"
    for name in ("gpt.c", "fourbit.c"):
        assert (site / "memnb" / name).is_file(), f"{name} is not in the wheel"
    code = (
        "import memnb, memnb.core as c, memnb.results as r; print(memnb.__file__); print(len(r.reported('tabular')) > 0)\n"
        "for k in c.SHIPPED: print(k, len([f for f in c.share_dir(k).rglob('*') if f.is_file()]))\nprint(c.figures_dir())"
    )
    lines = python(code, away, PYTHONPATH=str(site)).splitlines()
    assert lines[0].startswith(str(site)) and lines[1] == "True", lines
    want = {
        "nbs": "nbs/**/*.ipynb",
        "papers": "data/papers/**/*.*[!d]",
        "profiles": "data/profiles/*",
        "planted": "data/planted/*/*",
        "answers": "data/answers/*",
    }
    assert lines[2:-1] == [f"{k} {len(list(source.glob(p)))}" for k, p in want.items()]
    assert list(site.rglob("nbs/rooms/*.ipynb")) and list(
        site.rglob("papers/tabular/measured/one-run.csv")
    )
    assert lines[-1] == str(away / "figures")


def test_python_versions_agree():
    "The versions that the workflow tests are allowed by pyproject.toml, the oldest one among them"
    text = (TOP / ".github/workflows/ci.yml").read_text()
    tested = re.search(r"python: \[(.+)\]", text)[1].replace('"', "").split(", ")
    assert tested[0] == settings()["min_python"], f"min_python is not the oldest of {tested}"


def test_citation():
    import yaml

    cff = yaml.safe_load((TOP / "CITATION.cff").read_text(encoding="utf8"))
    assert not {"cff-version", "message", "title", "authors"} - set(cff)
    assert cff["cff-version"] == "1.2.0" and cff["version"] == settings()["version"]
    pages = [
        p for p, word in zip(PAPER_NOTEBOOKS, PAPERS, strict=True) if word not in ABOVE_PAPERS
    ]  # those of a paper
    for page, r in zip(pages, cff["references"], strict=True):
        head = "".join(cells(page)[0]["source"])
        assert r["authors"][0]["family-names"] in head, (
            f"the reference of {page.name} is not that of its page"
        )
    for r in cff["references"]:
        assert r["type"] and r["title"] and r["year"] and r["authors"]
        assert all(a["family-names"] and a["given-names"] for a in r["authors"]), r["title"]


def test_containers_set_up_as_everybody_does():
    "Binder and the dev container call targets of the Makefile, with the Python of the settings or a newer one"
    targets = set(re.findall(r"^([a-z]+):.*##", (TOP / "Makefile").read_text(), re.M))
    dev = json.loads((TOP / ".devcontainer/devcontainer.json").read_text())
    called = [dev["postCreateCommand"], *(TOP / "binder/postBuild").read_text().splitlines()]
    called = [c.split()[1] for c in called if c.startswith("make ")]
    assert called == ["setup", "setup"] and {"setup", "reproduce", "test"} <= targets
    assert os.access(TOP / "binder/postBuild", os.X_OK)
    low = settings()["min_python"]
    for text in (
        (TOP / "binder/runtime.txt").read_text(),
        (TOP / ".devcontainer/Dockerfile").read_text(),
    ):
        assert re.search(r"python[-:](\d+\.\d+)", text)[1] >= low


def test_ci_runs_the_same_command():
    run = TOP / ".ci/run"
    assert os.access(run, os.X_OK), ".ci/run is not executable"
    assert (
        "make test" in run.read_text()
        and "run: make test" in (TOP / ".github/workflows/ci.yml").read_text()
    )
