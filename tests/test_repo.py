"What holds for the repository as a whole: exports, arrows between modules, notebooks, hygiene, packaging."

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tokenize
import tomllib
from configparser import ConfigParser
from functools import cache
from importlib.metadata import packages_distributions, requires
from importlib.metadata import version as installed_version
from io import StringIO
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

TOP = Path(__file__).resolve().parents[1]


def files(folder, pattern):
    "Files below a folder of the checkout, the checkpoints of Jupyter aside"
    found = sorted((TOP / folder).rglob(pattern))
    return [
        p for p in found if p.is_file() and ".ipynb_checkpoints" not in p.parts
    ]


NOTEBOOKS = files("nbs", "*.ipynb")
PAPER_NOTEBOOKS = sorted((TOP / "nbs").glob("1*.ipynb"))
PAPERS = [p.stem.partition("_")[2] for p in PAPER_NOTEBOOKS]


def dotted(path, top=TOP / "memnb"):
    "Name of a module below memnb: `lm`, `tabular.method`, `tabular` for its package"
    parts = path.relative_to(top).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {
    dotted(p): p
    for p in files("memnb", "*.py")
    if p.name != "_modidx.py" and p != TOP / "memnb/__init__.py"
}


def read(path):
    return path.read_text(encoding="utf8", errors="replace")


def tree(path):
    return ast.parse(read(path))


def cells(path, kind=None):
    "Cells of a notebook with their source as one text"
    found = json.loads(read(path))["cells"]
    return [
        c | dict(source="".join(c["source"]))
        for c in found
        if kind in (None, c["cell_type"])
    ]


def prose(path):
    "The Markdown of a notebook, or the text of another file"
    if path.suffix != ".ipynb":
        return read(path)
    return "\n".join(c["source"] for c in cells(path, "markdown"))


def settings():
    "settings.ini as a dict"
    cfg = ConfigParser()
    assert cfg.read(TOP / "settings.ini", encoding="utf8"), (
        "settings.ini is missing"
    )
    return dict(cfg["DEFAULT"])


def project():
    "The table [project] of pyproject.toml"
    return tomllib.loads(read(TOP / "pyproject.toml"))["project"]


def extra(name):
    "Requirements of an extra, those of the extras that it names included"
    for r in map(Requirement, project()["optional-dependencies"][name]):
        if r.name != "memnb":
            yield r
        else:
            for e in r.extras:
                yield from extra(e)


def requirements(*extras):
    "What memnb asks for, bare or with some extras"
    base = map(Requirement, project()["dependencies"])
    return [*base, *(r for e in extras for r in extra(e))]


def names(found):
    return {canonicalize_name(r.name) for r in found}


def python(code, cwd, **env):
    "Output of a fresh Python process; fails with its error"
    cmd, env = [sys.executable, "-c", code], {**os.environ, **env}
    r = subprocess.run(cmd, cwd=cwd, env=env, capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    return r.stdout


# --- the notebooks are the source ---


def test_there_is_something_to_test():
    assert {"core", "lm", "data", "tabular", "tabular.method"} <= {*MODULES}, (
        "run `make export`"
    )
    assert (TOP / "nbs/index.ipynb").exists() and len(PAPERS) > 4


def test_export_and_clean_change_nothing(tmp_path):
    "Formatting, exporting and cleaning a copy of the checkout gives the files in it, byte for byte"
    sources = [*files("memnb", "*.py"), *NOTEBOOKS]
    for p in [*sources, TOP / "settings.ini", TOP / "pyproject.toml"]:
        (tmp_path / p.relative_to(TOP)).parent.mkdir(
            parents=True, exist_ok=True
        )
        shutil.copy(p, tmp_path / p.relative_to(TOP))
    calls = [
        "ruff check -q --fix --select I nbs",
        "ruff format nbs",
        "ruff format memnb",
        "nbdev_export",
        "nbdev_clean",
    ]
    for call in calls:
        tool, *words = call.split()
        cmd = [Path(sys.executable).parent / tool, *words]
        r = subprocess.run(cmd, cwd=tmp_path, capture_output=True, text=True)
        assert r.returncode == 0, f"{call}: {r.stdout}{r.stderr}"
    was = {str(p.relative_to(TOP)): read(p) for p in sources}
    made = [
        *(tmp_path / "memnb").rglob("*.py"),
        *(tmp_path / "nbs").rglob("*.ipynb"),
    ]
    now = {str(p.relative_to(tmp_path)): read(p) for p in made}
    stale = sorted(p for p in {*was, *now} if was.get(p) != now.get(p))
    assert not stale, f"run `make export`, which changes: {stale}"


def test_every_module_has_a_notebook():
    "But for memnb/run and `rendering`, which are written by hand"
    exported = {
        m[1].removesuffix(".__init__")
        for p in NOTEBOOKS
        for c in cells(p, "code")
        if (m := re.match(r"#\|\s*default_exp ([\w.]+)", c["source"]))
    }
    by_hand = {n for n in MODULES if n.split(".")[0] in ("run", "rendering")}
    assert {*MODULES} == exported | by_hand


def test_ruff_finds_nothing():
    "The rules that pyproject.toml selects"
    cmd = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "-q",
        "--no-cache",
        "--output-format=concise",
    ]
    folders = ["memnb", "tests", "tools", "docs"]
    r = subprocess.run(
        [*cmd, *folders], cwd=TOP, capture_output=True, text=True
    )
    assert r.returncode == 0, r.stdout + r.stderr


# --- arrows between modules ---

# the rooms and what each may import; papers stand above the rooms of FOR_PAPERS, `compare` above the papers, `run`
# above all
ARROWS = dict(
    core=[],
    store=["core"],
    prefix=["store"],
    lm=["core", "store", "prefix"],
    hf=["core", "lm", "prefix"],
    fourbit=["core", "hf"],
    servers=["core", "store", "lm"],
    data=["core"],
    engine=["core"],
    nets=["core", "engine"],
    gpt=["core", "engine", "nets"],
    stats=[],
    plots=["core"],
    results=["core", "stats"],
    claims=["core", "stats", "papers", "plots", "results"],
    plant=["core", "stats", "data", "hf", "lm"],
    papers=["core"],
    registered=["core", "claims", "papers", "results"],
    difference=["core", "claims", "papers", "registered", "results"],
    rendering=["core"],
    exercises=["core", "papers", "plots"],
)
FOR_PAPERS = {
    *[
        "core",
        "stats",
        "plots",
        "results",
        "claims",
        "papers",
        "store",
        "data",
        "gpt",
        "hf",
        "lm",
    ],
    *["prefix", "plant", "rendering", "exercises"],
}
ABOVE_PAPERS, ABOVE_ALL = "compare", "run"
# they import packages of papers and back ends, whose names are read
BY_NAME = {"papers", "lm"}


def may_import(name):
    "Modules that a module may import"
    folder, _, part = name.partition(".")
    if folder == ABOVE_ALL:
        return {n for n in MODULES if n.split(".")[0] not in PAPERS}
    if folder not in PAPERS:
        assert name in ARROWS, (
            f"{name} has no line in ARROWS (tests/test_repo.py): "
            "which rooms may it import?"
        )
        return {*ARROWS[name]}
    if part == "method" and folder != ABOVE_PAPERS:
        return FOR_PAPERS
    own = {*PAPERS} if folder == ABOVE_PAPERS else {folder}
    return FOR_PAPERS | {n for n in MODULES if n.split(".")[0] in own}


def imported(path, top=TOP / "memnb", known=MODULES):
    "Modules of memnb that a file imports, wherever in it; '*' for one whose name is not written there"
    package = ("memnb", *path.relative_to(top).parent.parts)
    for node in ast.walk(tree(path)):
        found = []
        if isinstance(node, ast.Import):
            found = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            up = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*up, *filter(None, [node.module])])
            found = [f"{base}.{a.name}" for a in node.names]
        elif isinstance(node, ast.Call):
            called = getattr(node.func, "id", None) or getattr(
                node.func, "attr", None
            )
            if called in ("import_module", "__import__", "run_module"):
                name = (node.args or [k.value for k in node.keywords])[0]
                if not isinstance(name, ast.Constant):
                    yield "*"
                elif name.value.startswith("."):
                    found = ["memnb" + name.value]
                else:
                    found = [name.value]
        for name in (
            n.removeprefix("memnb.") for n in found if n.startswith("memnb.")
        ):
            while name and name not in known:
                name = name.rpartition(".")[
                    0
                ]  # a name in a module, not a module
            if name:
                yield name


def test_arrows_go_down_and_make_no_circle():
    wrong, to = (
        [],
        {name: {*imported(path)} - {name} for name, path in MODULES.items()},
    )
    for name, found in to.items():
        hidden = (
            set()
            if name in BY_NAME or name.split(".")[0] == ABOVE_ALL
            else found & {"*"}
        )
        if lost := hidden | (found - may_import(name) - {"*"}):
            wrong.append(f"{name} imports {sorted(lost)}")
    assert not wrong, wrong
    while free := [n for n, found in to.items() if not found & {*to}]:
        for n in free:  # what imports nothing that is left is taken away
            del to[n]
    assert not to, f"these import each other in a circle: {sorted(to)}"


def test_imported_reads_every_form(tmp_path):
    known = dict.fromkeys(
        ["lm", "core", "data", "gpt", "plant", "toy", "toy.method", "papers"]
    )

    def found(code, name="x.py"):
        (tmp_path / "toy").mkdir(exist_ok=True)
        (tmp_path / name).write_text(code)
        return {*imported(tmp_path / name, tmp_path, known)}

    assert found("import os, memnb.lm\nfrom .core import *") == {"lm", "core"}
    assert found("from memnb import data\nfrom . import gpt") == {"data", "gpt"}
    assert found("def g():\n    from memnb.plant import a") == {"plant"}
    inside = "from .method import f\nfrom ..core import say\nfrom .. import gpt"
    assert found(inside, "toy/claims.py") == {"toy.method", "core", "gpt"}
    assert found("from memnb.toy import nothing") == {"toy"}
    assert found("import_module('memnb.papers')\nimport_module('torch')") == {
        "papers"
    }
    assert found(
        "importlib.import_module('.lm', 'memnb')\n__import__('memnb.gpt')"
    ) == {
        "lm",
        "gpt",
    }
    for hidden in ("f'memnb.{word}'", "'memnb.' + word", "word", "name=word"):
        assert found(f"import_module({hidden})") == {"*"}


def test_import_is_light(tmp_path):
    "What every process of memnb pays for at its start is the standard library"
    code = (
        "import sys\nwas = {*sys.modules}\nimport memnb, memnb.core\n"
        "print(*{m.split('.')[0] for m in {*sys.modules} - was})"
    )
    loaded = (
        {*python(code, tmp_path).split()} - {"memnb"} - sys.stdlib_module_names
    )
    assert not loaded, f"import {sorted(loaded)} where they are needed"


# --- notebooks ---


def test_notebooks_are_sound():
    "No stored error, no cell without an id of its own, no export, which would rewrite the package during a batch"
    wrong = []
    for p in NOTEBOOKS:
        ids = [c.get("id") for c in cells(p)]
        if len({*ids}) < len(ids):
            wrong.append(f"{p.name}: two cells have the same id")
        for c in cells(p):
            outputs = [o["output_type"] for o in c.get("outputs", [])]
            if (
                not c.get("id")
                or "error" in outputs
                or "nbdev_export(" in c["source"]
            ):
                wrong.append(f"{p.name}: {c['source'][:60]}")
    assert not wrong, wrong


def test_links_lead_somewhere():
    wrong = []
    guides = [
        TOP / f
        for f in (
            "README.md",
            "CONTRIBUTING.md",
            "docs/use.md",
            "docs/teaching.md",
        )
    ]
    for p in [*NOTEBOOKS, *guides]:
        links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose(p))
        wrong += [
            f"{p.name}: {l}"
            for l in links
            if not re.match(r"\w+:", l) and not (p.parent / l).exists()
        ]
    assert not wrong, wrong


def test_pages_have_their_parameters():
    "One cell tagged `parameters`, with profile, model, n and seed among them in this order"
    for p in PAPER_NOTEBOOKS:
        tagged = [
            c for c in cells(p) if "parameters" in c["metadata"].get("tags", [])
        ]
        assert len(tagged) == 1, (
            f"{p.name} has {len(tagged)} cells tagged `parameters`"
        )
        body = ast.parse(tagged[0]["source"]).body
        found = [n.target.id for n in body if isinstance(n, ast.AnnAssign)]
        common = ["profile", "model", "n", "seed"]
        assert [n for n in found if n in common] == common, f"{p.name}: {found}"


def test_plumbing_of_pages_is_folded():
    "A reader who opens a page in Lab sees no imports, no formatters, and no parameters of batches"
    plumbing = re.compile(r"#\|\s*(hide(?!_)|default_exp (?!.*\n#\| export))")
    shown = [
        f"{p.name}: {c['source'][:40]}"
        for p in PAPER_NOTEBOOKS
        for c in cells(p, "code")
        if (
            plumbing.match(c["source"])
            or "parameters" in c["metadata"].get("tags", [])
        )
        and not c["metadata"].get("jupyter", {}).get("source_hidden")
    ]
    assert not shown, f"fold these cells (jupyter.source_hidden): {shown}"


def test_front_page_leads_to_where_it_can_be_read():
    "Site, a page and Binder, as far as settings.ini has an address; nothing without one"
    sys.path.insert(0, str(TOP / "tools"))
    from readme import addresses, readme

    none = dict(doc_host="", doc_baseurl="/memnb", git_url="", branch="main")
    assert addresses(none) == ""
    address = "https://github.com/ann/memnb"
    both = none | dict(doc_host="https://ann.example/", git_url=address)
    index = TOP / "nbs/index.ipynb"
    title, line, bold = readme(index, both).split("\n\n")[:3]
    assert title == "# memnb" and bold.startswith("**Five papers")
    assert re.findall(r"\((.*?)\)", line) == [
        "https://ann.example/memnb/index.html",
        "https://ann.example/memnb/nbs/14_capacity.html",
        "https://mybinder.org/v2/gh/ann/memnb/main?urlpath=lab/tree/nbs/index.ipynb",
    ]
    elsewhere = none | dict(git_url="https://code.example/ann/memnb")
    assert addresses(elsewhere) == ""


def test_front_page():
    "README is what index.ipynb says and names every paper; commands and Python there and in the guide can be run"
    sys.path.insert(0, str(TOP / "tools"))
    from readme import readme, settings

    text, makefile = read(TOP / "README.md"), read(TOP / "Makefile")
    written = readme(TOP / "nbs/index.ipynb", settings())
    assert text == written, "run `make readme`"
    lost = [p.name for p in PAPER_NOTEBOOKS if f"(nbs/{p.name})" not in text]
    assert not lost, f"README does not link to {lost}"
    assert len(text.split()) <= 600, (
        "a front page is read in a minute: 600 words, tables and code included"
    )
    text += read(TOP / "docs/use.md")
    shell = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.S))
    shell += "\n" + "\n".join(re.findall(r"`((?:make|memnb) [^`]+)`", text))
    targets = {*re.findall(r"^([a-z-]+):", makefile, re.M)}
    asked = {*re.findall(r"^make ([a-z-]+)", shell, re.M)}
    assert asked and asked <= targets, f"no such target: {asked - targets}"
    module, _, main = project()["scripts"]["memnb"].partition(":")
    usage = python(
        f"import sys, {module} as m\nsys.argv = ['memnb', '-h']\nm.{main}()",
        TOP,
    )
    commands = {*re.findall(r"^    (\w+)  ", usage, re.M)}
    asked = {*re.findall(r"^memnb ([a-z]+)", shell, re.M)}
    assert asked and asked <= commands, f"no such command: {asked - commands}"
    for code in re.findall(r"```python\n(.*?)```", text, re.S):
        ast.parse(code)


# --- what help() says of a parameter ---

# modules in which every parameter of every public function is described, a list that grows
DESCRIBED = """capacity.exercises capacity.measuring capacity.method claims compare.exercises contextual.claims
    contextual.exercises difference engine exercises gpt icl.exercises iclinf.exercises nets papers plots prefix registered results run.redraw stats store
    tabular.onepage""".split()
# types that say nothing about what a parameter means
PLAIN_TYPES = (
    "Path Callable Iterable Sequence ArrayLike DataFrame Series None".split()
)


def described(name, text):
    "Does a docstring name a parameter, in the singular or the plural?"
    words = {w.lower() for w in re.findall(r"[A-Za-z]\w*", text)}
    name = name.lower().strip("_")
    return bool(words & {name, name + "s", name.removesuffix("s")})


def own_comments(function, comments):
    "Parameters of a function -> whether a comment stands behind each, on a line of its own"
    a = function.args
    positional = [*a.posonlyargs, *a.args]
    defaults = [None] * (len(positional) - len(a.defaults)) + a.defaults
    ends = {}
    for arg, default in [
        *zip(positional, defaults),
        *zip(a.kwonlyargs, a.kw_defaults),
    ]:
        if arg.arg not in ("self", "cls"):
            ends[arg] = (default or arg).end_lineno
    lines = [*ends.values()]
    signature = range(function.lineno, function.body[0].lineno)
    return {
        arg: end in comments and end in signature and lines.count(end) == 1
        for arg, end in ends.items()
    }


def public_functions(module):
    "Public functions and methods of a module, each with its docstring and that of its class"
    for owner in ast.walk(module):
        if not isinstance(owner, ast.Module | ast.ClassDef):
            continue
        around = ""
        if isinstance(owner, ast.ClassDef):
            if owner.name.startswith("_"):
                continue
            around = ast.get_docstring(owner) or ""
        for f in owner.body:
            public = isinstance(f, ast.FunctionDef) and not re.match(
                "_(?!_init__$)", f.name
            )
            if public:
                yield f, f"{ast.get_docstring(f) or ''} {around}"


def undescribed(source, every=True):
    "Parameters of public functions without a description; not `every`: of those that describe some of them"
    tokens = tokenize.generate_tokens(StringIO(source).readline)
    comments = {t.start[0] for t in tokens if t.type == tokenize.COMMENT}
    for f, doc in public_functions(ast.parse(source)):
        own = own_comments(f, comments)
        refers = re.search(r"(as in|as of|see|As) `", doc)
        if (not every and not any(own.values())) or refers:
            continue
        for arg, comment in own.items():
            kind = ast.unparse(arg.annotation) if arg.annotation else ""
            ours = (
                kind[:1].isupper()
                and kind.split("[")[0].split(".")[-1] not in PLAIN_TYPES
            )
            if not (comment or ours or described(arg.arg, doc)):
                yield f"{f.name}({arg.arg})"


def test_parameters_have_their_own_comments():
    "Where a signature has comments, each parameter has its own, or is named in the docstring, or is of a type of ours"
    lost = [
        f"{name}: {x}"
        for name, p in MODULES.items()
        for x in undescribed(read(p), every=False)
    ]
    assert not lost, lost


def test_parameters_are_described():
    lost = [
        f"{name}: {x}"
        for name in DESCRIBED
        for x in undescribed(read(MODULES[name]))
    ]
    assert not lost, lost


def test_a_comment_of_two_parameters_is_seen():
    source = 'def f(\n    a,\n    b: int = 1,  # a sum, a count\n    c="x"  # a word\n):\n    "Nothing"\n'
    assert (
        [*undescribed(source)]
        == [*undescribed(source, every=False)]
        == ["f(a)"]
    )
    assert [*undescribed(source.replace("Nothing", "The sum of `a`"))] == []
    assert [*undescribed('def f(x: Path):\n    "Nothing"\n')] == ["f(x)"]
    assert [*undescribed('def f(x: Path):\n    "Nothing"\n', every=False)] == []
    assert [*undescribed('def f(a, b):  # of two\n    "Nothing"\n')] == [
        "f(a)",
        "f(b)",
    ]
    assert [*undescribed('def _f(x):\n    "Nothing"\n')] == []


# --- breaks that `make mutate` applies ---


def test_breaks_are_breaks_of_this_code():
    "What is to be replaced stands once in its module, and once in the notebook that the module is exported from"
    sys.path.insert(0, str(TOP / "tools"))
    import mutate

    breaks = mutate.mutations()
    lost = {
        m["what"]: {
            path.relative_to(TOP).as_posix(): n for path, n in found.items()
        }
        for m in breaks
        if {*(found := mutate.places(m)).values()} != {1}
    }
    assert not lost, f"write these entries of tests/mutations.yaml anew: {lost}"
    assert len({m["what"] for m in breaks}) == len(breaks) >= 40
    assert all(m["old"] != m["new"] for m in breaks)


# --- hygiene ---


def texts():
    "Every text file of the project"
    folders = "nbs memnb data tests tools .ci .github .devcontainer binder docs/_static".split()
    found = [p for d in folders for p in files(d, "*")]
    found += [
        p
        for d in (TOP, TOP / "docs")
        for p in sorted(d.iterdir())
        if p.is_file()
    ]
    binary = {".png", ".pyc", ".safetensors", ".gz", ".zip", ".parquet"}
    return [p for p in found if p.suffix not in binary and p.name != ".git"]


# written in pieces, so that this file does not contain what it forbids
MACHINE = re.compile(
    "/("
    + "|".join(["home", "Users", "root", "tmp", "work", "opt"])
    + r")/[\w.]"
)
REGISTRIES = "pypi[.]org pythonhosted download[.]pytorch npmjs[.] anaconda[.]org conda-forge file://"
HOSTS = re.compile("|".join(REGISTRIES.split()))
# what a reader would paste or a tool would follow: no name may be in it that anybody can register
OWNED = re.compile(
    r"git\+https?:|github[.]com/memnb|memnb[.]github|"
    r'pip\W+install(\s+-\S+)*\s+[\'"]?memnb\b(?!/)'
)


def test_nothing_names_a_machine_a_registry_or_what_nobody_owns():
    found = [
        f"{p.relative_to(TOP)}: {m[0]}"
        for p in texts()
        for what in (MACHINE, HOSTS, OWNED)
        if p != Path(__file__)
        for m in what.finditer(read(p))
    ]
    assert not found, (
        f"write pip install '.[extra]', run in the checkout; not to be named: {found}"
    )


def test_patterns_find_what_they_forbid():
    wrong = [
        "pip install 'memnb[dask]'",
        "pip install git+https://x.org/y",
        "%pip install -q memnb",
        "run_line_magic('pip', 'install -q memnb')",
        "see github.com/memnb/memnb",
    ]
    right = [
        "pip install '.[all]' in the folder of memnb",
        "pip install memnb/.",
    ]
    assert all(map(OWNED.search, wrong)) and not any(map(OWNED.search, right))
    home, tmp = ("/" + name for name in ("home/ada/x", "tmp/abc"))
    assert MACHINE.search(f"see {home}") and MACHINE.search(f'"\\n{tmp}')
    assert not MACHINE.search("at home/work")
    assert HOSTS.search("https://pypi.org/simple")


def test_figures_are_named_and_captioned():
    "By paper and number; a figure carries its finding, who was measured, and its caption"
    from PIL import Image

    figures = sorted((TOP / "figures").glob("*.png"))  # profiles have folders
    good = re.compile(rf"({'|'.join(PAPERS)})_((fig|tab)\d+\w*|x_\w+)[.]png$")
    wrong = [p.name for p in figures if not good.match(p.name)]
    for p in figures:
        with Image.open(p) as f:
            lost = {"Title", "Foot", "Description"} - {*f.text}
        wrong += [f"{p.name} lacks {sorted(lost)}"] * bool(lost)
    assert figures and not wrong, wrong


def test_measured_rows_say_where_they_come_from():
    from pyarrow.parquet import read_schema

    tables, wrong = (
        sorted((TOP / "data/papers").glob("*/measured/*.parquet")),
        [],
    )
    for p in tables:
        lost = {"model", "profile", "seed", "code", "when"} - {
            *read_schema(p).names
        }
        wrong += [f"{p.relative_to(TOP)} lacks {sorted(lost)}"] * bool(lost)
        if not {*PAPERS} & {*p.parts, p.stem}:
            wrong.append(f"{p.relative_to(TOP)} is of no paper")
    assert tables and not wrong, wrong


# --- packaging ---


def test_metadata_has_one_source():
    "pyproject.toml says what memnb is; settings.ini keeps what nbdev reads; both agree"
    p, cfg = project(), settings()
    twice = "requirements$|^description$|^keywords$|^console_scripts$"
    assert not [k for k in cfg if re.search(twice, k)], (
        "these belong into pyproject.toml"
    )
    assert (p["name"], p["requires-python"]) == (
        cfg["lib_name"],
        ">=" + cfg["min_python"],
    )
    init = ast.literal_eval(tree(TOP / "memnb/__init__.py").body[0].value)
    assert p["dynamic"] == ["version"] and cfg["update_pyproject"] == "False"
    assert init == cfg["version"] == installed_version("memnb"), (
        "set up again: `make test`"
    )


def third_party(path):
    "Top-level modules of others that a file imports, wherever in the file"
    for node in ast.walk(tree(path)):
        found = []
        if isinstance(node, ast.Import):
            found = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found = [node.module]
        yield from (
            {n.split(".")[0] for n in found}
            - sys.stdlib_module_names
            - {"memnb"}
        )


installed = cache(packages_distributions)


def undeclared(*extras):
    "(file, module): what memnb imports and does not ask for, bare or with some extras"
    known = names(requirements(*extras))
    for p in files("memnb", "*.py"):
        for m in sorted(third_party(p)):
            if (
                not {canonicalize_name(d) for d in installed().get(m, [m])}
                & known
            ):
                yield p.relative_to(TOP).as_posix(), m


# extras that memnb/ may import
READERS = "api local plant baselines hub batch report slides lab dask complete".split()


def test_imports_are_declared():
    "Nothing is imported that is only there because something else brought it along"
    lost = [*undeclared(*READERS)]
    assert not lost, f"pyproject.toml does not declare {lost}"


def test_modules_import_without_extras(tmp_path):
    """Every module can be imported, and a model behind a server made, where no extra is installed; nets, which is made
    of torch, is imported by gpt when it trains"""
    absent = sorted({m for _, m in undeclared()})
    assert {"torch", "transformers", "openai", "peft", "xgboost"} <= {*absent}
    code = (
        "import importlib, pkgutil, sys\nclass Absent:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name.split('.')[0] in {absent}: raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, Absent())\nimport memnb\n"
        'for m in pkgutil.walk_packages(memnb.__path__, "memnb."):\n'
        "    try: importlib.import_module(m.name)\n"
        '    except ImportError as e: print(m.name, "needs", e.name)\n'
        'from memnb import lm\nassert lm.load("openai:x").mode == "chat"'
    )
    lost = python(code, tmp_path, MEMNB_STORE=str(tmp_path / "s.sqlite"))
    assert lost.strip() == "memnb.nets needs torch", (
        f"import these where they are needed: {lost}"
    )


def closure(found):
    "Names of all distributions that a fresh install of some requirements brings, as installed here"
    todo, seen = (
        [(canonicalize_name(r.name), tuple(sorted(r.extras))) for r in found],
        set(),
    )
    while todo:
        if (one := todo.pop()) in seen:
            continue
        seen.add(one)
        for r in map(Requirement, requires(one[0]) or []):
            if any(
                r.marker is None or r.marker.evaluate({"extra": e})
                for e in (*one[1], "")
            ):
                todo.append(
                    (canonicalize_name(r.name), tuple(sorted(r.extras)))
                )
    return {name for name, _ in seen}


def test_one_paper_on_an_api_is_a_small_install():
    asked, brought = names(requirements("api")), closure(requirements("api"))
    heavy = "torch transformers peft xgboost-cpu papermill jupyterlab".split()
    assert asked <= brought and not {*heavy} & brought and len(brought) <= 65, (
        sorted(brought)
    )


def test_constraints_hold_every_requirement():
    "constraints.txt has one exact version of each, which satisfies pyproject.toml"
    lines = [l for l in read(TOP / "constraints.txt").splitlines() if l.strip()]
    pins = {canonicalize_name(r.name): r for r in map(Requirement, lines)}
    wrong = [
        str(r)
        for r in pins.values()
        if not re.fullmatch(r"==[\w.]+", str(r.specifier))
    ]
    for r in requirements(*project()["optional-dependencies"]):
        pin = pins.get(canonicalize_name(r.name))
        if not pin or not r.specifier.contains(
            str(pin.specifier).removeprefix("==")
        ):
            wrong.append(f"{r} against {pin}")
    assert not wrong, wrong
    for system, want in dict(
        linux="xgboost-cpu", win32="xgboost-cpu", darwin="xgboost"
    ).items():
        found = [r for r in extra("baselines") if r.name.startswith("xgboost")]
        assert [
            r.name for r in found if r.marker.evaluate({"sys_platform": system})
        ] == [want]


def test_wheel_carries_what_it_reads(tmp_path):
    "Installed by copy, memnb brings notebooks, numbers and profiles along, and leaves nothing in its source"
    source, site, away = [tmp_path / n for n in ("source", "site", "away")]
    skip = shutil.ignore_patterns(
        "__pycache__", ".ipynb_checkpoints", "kernel-ipc-*"
    )
    for d in ["memnb", "nbs", "data"]:
        shutil.copytree(TOP / d, source / d, ignore=skip)
    for f in [
        "settings.ini",
        "setup.py",
        "pyproject.toml",
        "README.md",
        "LICENSE",
    ]:
        shutil.copy(TOP / f, source)
    away.mkdir()
    before = sorted(source.rglob("*"))
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-build-isolation",
    ]
    r = subprocess.run(
        [*pip, "--target", site, source],
        cwd=away,
        capture_output=True,
        text=True,
    )
    assert r.returncode == 0, r.stderr
    assert sorted(source.rglob("*")) == before, (
        "the build left something in the source"
    )
    shipped = [
        p
        for p in source.rglob("*")
        if p.is_file() and p.suffix in (".c", ".csv", ".css", ".js")
    ]
    shipped += [
        p
        for d in ("nbs", "data")
        for p in (source / d).rglob("*.*[!d]")
        if p.is_file()
    ]
    came = {(p.name, p.stat().st_size) for p in site.rglob("*")}
    lost = [p.name for p in shipped if (p.name, p.stat().st_size) not in came]
    assert len(shipped) > 200 and not lost, f"not in the wheel: {lost}"
    code = (
        "import memnb, memnb.core as c, memnb.results as r\n"
        "print(memnb.__file__, len(r.reported('tabular')) > 0, c.figures_dir())"
    )
    file, reported, figures = python(code, away, PYTHONPATH=str(site)).split()
    assert (
        file.startswith(str(site))
        and reported == "True"
        and figures == str(away / "figures/laptop")
    )


def test_citation():
    cff = yaml.safe_load(read(TOP / "CITATION.cff"))
    assert not {"cff-version", "message", "title", "authors"} - {*cff}
    assert (
        cff["cff-version"] == "1.2.0"
        and cff["version"] == settings()["version"]
    )
    pages = [
        p
        for p, word in zip(PAPER_NOTEBOOKS, PAPERS, strict=True)
        if word != ABOVE_PAPERS
    ]
    for page, r in zip(pages, cff["references"], strict=True):
        assert r["type"] and r["title"] and r["year"] and r["authors"]
        assert all(
            a["family-names"] and a["given-names"] for a in r["authors"]
        ), r["title"]
        assert r["authors"][0]["family-names"] in cells(page)[0]["source"], (
            page.name
        )
        said = yaml.safe_load(
            read(TOP / "data/papers" / page.stem[3:] / "paper.yaml")
        )
        assert (said["title"], said["year"], said["page"]) == (
            r["title"],
            r["year"],
            page.stem,
        )
        # where the paper stands in the archive, as its page says
        numbers = [one["value"] for one in r.get("identifiers", [])]
        assert numbers == [f"arXiv:{said[k]}" for k in ("arxiv",) if k in said]


def test_a_version_has_one_day():
    "In the list of changes, newest first, and where it says how memnb is cited"
    heads = re.findall(
        r"(?m)^## (\S+) \((\d{4}-\d\d-\d\d)\)$", read(TOP / "CHANGELOG.md")
    )
    versions = re.findall(r"(?m)^## (\S+)", read(TOP / "CHANGELOG.md"))
    assert [version for version, _ in heads] == versions
    days = [day for _, day in heads]
    assert days == sorted(days, reverse=True)
    cff = yaml.safe_load(read(TOP / "CITATION.cff"))
    assert (cff["version"], str(cff["date-released"])) == heads[0]


def test_workflows_may_no_more_than_they_need():
    "Each says what it may do and that a newer run takes its place; what installs from constraints.txt keeps packages"
    files = sorted((TOP / ".github/workflows").glob("*.yml"))
    assert len(files) == 3
    for file in files:
        flow = yaml.safe_load(read(file))
        assert flow["permissions"]["contents"] == "read", file.name
        assert flow["concurrency"]["group"], file.name
        for job in flow["jobs"].values():
            checks_out = any(
                "checkout" in step.get("uses", "") for step in job["steps"]
            )
            for step in job["steps"]:
                if checks_out and "setup-python" in step.get("uses", ""):
                    assert step["with"]["cache"] == "pip", file.name


def test_everybody_sets_up_in_the_same_way():
    "Binder, the dev container and CI call targets of the Makefile, with the oldest Python or a newer one"
    dev = json.loads(read(TOP / ".devcontainer/devcontainer.json"))
    called = [
        dev["postCreateCommand"],
        *read(TOP / "binder/postBuild").splitlines(),
    ]
    assert [c for c in called if c.startswith("make ")] == ["make setup"] * 2
    assert os.access(TOP / "binder/postBuild", os.X_OK) and os.access(
        TOP / ".ci/run", os.X_OK
    )
    ci, low = read(TOP / ".github/workflows/ci.yml"), settings()["min_python"]
    assert "run: make test" in ci and "run: .ci/run" in ci
    assert (
        re.search(r"for target in (.+);", read(TOP / ".ci/run"))[1]
        == "test test-slow"
    )
    assert (
        re.search(r"^test-all: (.+)  ##", read(TOP / "Makefile"), re.M)[1]
        == "test test-slow"
    )
    assert re.search(r'python: \["([\d.]+)"', ci)[1] == low
    for text in (
        read(TOP / "binder/runtime.txt"),
        read(TOP / ".devcontainer/Dockerfile"),
    ):
        assert re.search(r"python[-:](\d+\.\d+)", text)[1] >= low


def test_long_tests_are_marked():
    "`make test` leaves out what needs minutes, a browser, the real server or the tools of the site"
    cmd = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-m",
        "not slow",
    ]
    cmd += [
        TOP / f"tests/test_{x}.py"
        for x in "lab docs server batch notebooks".split()
    ]
    r = subprocess.run(cmd, cwd=TOP, capture_output=True, text=True)
    assert r.returncode == 0, r.stdout + r.stderr
    for name in (
        "test_lab.py",
        "test_docs.py",
        "real_server",
        "test_kills_lose_nothing[25]",
        "[rooms/hf]",
        "[extra/planted]",
    ):
        assert name not in r.stdout
    pages = [f"[{path.stem}]" for path in PAPER_NOTEBOOKS]
    for name in (
        *pages,
        "[rooms/lm]",
        "test_server.py",
        "test_kills_lose_nothing[2]",
    ):
        assert name in r.stdout


def test_reproduce_runs_as_many_at_a_time_as_the_guide_says():
    makefile = (TOP / "Makefile").read_text()
    recipe = re.search(r"(?ms)^reproduce:.*?\n\n", makefile)[0]
    assert "--workers $(RUNS)" in recipe
    assert re.search(r"(?m)^RUNS += 1$", makefile)
    guide = (TOP / "docs/use.md").read_text()
    assert "leave `--workers` at one, as `make reproduce` does" in guide
