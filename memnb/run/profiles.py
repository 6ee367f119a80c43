"""Profiles: which notebooks run with which parameters, all checked before anything starts."""

import hashlib
import json
import re
from dataclasses import dataclass, field
from itertools import product
from math import prod
from pathlib import Path
from reprlib import repr as short
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, Field, JsonValue, StrictStr, TypeAdapter, ValidationError

from ..core import did_you_mean, share_dir
from ..papers import find, parameters
from ..results import CONFIRM, registered_rules
from .redact import redact


# a profile of a thousand runs has some ten thousand values
MOST_VALUES = 100_000
# each is looked at before the first begins, and has a notebook of its own
MOST_RUNS = 1000


class _Loader(yaml.SafeLoader):
    "YAML as people mean it: no key stands twice, and a number is one of ten digits"

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key, _ in node.value:
            if key.value in seen and key.tag != "tag:yaml.org,2002:merge":
                raise yaml.constructor.ConstructorError(
                    None, None, f"'{key.value}' stands twice", key.start_mark
                )
            seen.add(key.value if isinstance(key.value, str) else id(key))
        return super().construct_mapping(node, deep)

    def construct_number(self, node):
        # YAML 1.1 takes 010 for 8 and 1:30 for 90
        if re.fullmatch(r"[-+]?0[\d_]+|.*:.*", node.value):
            how = f"{node.value} could mean several numbers: write it in decimal, or in quotes as text"
            raise yaml.constructor.ConstructorError(None, None, how, node.start_mark)
        if node.tag.endswith("int"):
            return self.construct_yaml_int(node)
        return self.construct_yaml_float(node)


for _kind in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _Loader.construct_number)


def _values(node, known):
    "Values that a node of YAML stands for, its aliases written out; `known` are those of nodes seen before"
    if id(node) not in known:
        known[id(node)] = 0  # what stands in itself is not written out
        inner = [] if isinstance(node.value, str) else node.value
        parts = [part for item in inner for part in (item if isinstance(item, tuple) else [item])]
        known[id(node)] = 1 + sum(_values(part, known) for part in parts)
    return known[id(node)]


def yaml_and_node(text: str) -> tuple:
    "The value of YAML text, and its root node; ValueError with the line of a fault"
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None, None
        if _values(node, {}) > MOST_VALUES:
            raise ValueError(f"has more than {MOST_VALUES:,} values")
        return loader.construct_document(node), node
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}: " if mark else ""
        raise ValueError(f"{line}not YAML, {getattr(error, 'problem', None) or error}") from None
    except RecursionError:
        raise ValueError("lists stand in lists too deeply") from None
    finally:
        loader.dispose()


def read_yaml(text: str):
    "The value of YAML text; ValueError with the line of a fault"
    return yaml_and_node(text)[0]


_KINDS = dict(int=int, float=float, bool=bool, str=str)
_KINDS |= {f"list[{k}]": list[t] for k, t in _KINDS.items()} | dict(list=list[JsonValue])
_KINDS = {k: TypeAdapter(t) for k, t in _KINDS.items()}


def cast(value, kind: str):
    """A parameter as its type, 'int', 'list[float]', ..., with '| None' where none is allowed.

    Text becomes what it says; any other value is taken only where it is one, else ValueError.
    """
    kind, _, none = (s.strip() for s in kind.partition("|"))
    if none == "None" and (value is None or str(value).lower() == "none"):
        return None
    if kind not in _KINDS:
        raise ValueError(f"has type {kind}; memnb run knows {', '.join(_KINDS)}")
    made = value
    try:
        if kind.startswith("list") and isinstance(value, str):
            made = read_yaml(value if value.lstrip().startswith("[") else f"[{value}]")
        return _KINDS[kind].validate_python(made, strict=not isinstance(made, str))
    except ValueError:
        what = f"{short(value)} ({type(value).__name__})"
        raise ValueError(f"must be {kind}, got {what}") from None


def check(nb, params: dict) -> dict:
    "Parameters as a notebook takes them, by name and type; ValueError names what is wrong"
    nb, out = find(nb), {}
    known = parameters(nb)
    for name, parameter in known.items():
        try:
            json.dumps(parameter.default)
        except (TypeError, ValueError):
            what = f"the default of parameter '{name}' must be a plain value"
            raise ValueError(f"{nb.name}: {what}, not {parameter.default!r}") from None
    for k, v in params.items():
        if k not in known:
            raise ValueError(f"{nb.stem} has no parameter '{k}'{did_you_mean(k, known)}")
        try:
            out[k] = cast(v, known[k].type)
        except ValueError as e:
            raise ValueError(f"{nb.stem}: parameter '{k}' {e}") from None
    return out


def _file_name(*parts, most=120):
    "Parts of a name, as characters that any file system takes; a long name ends in a checksum"
    full = "-".join(parts)
    safe = re.sub(r"[^\w.,=+-]", "_", redact(full) if re.search(r"[/\\~]", full) else full)
    if len(safe.encode()) <= most:
        return safe
    begin = safe.encode()[: most - 10].decode(errors="ignore")
    return f"{begin}-{hashlib.sha256(full.encode()).hexdigest()[:9]}"


@dataclass
class Run:
    "One notebook with its parameters, and what became of it"

    notebook: str  # word of the paper
    parameters: dict = field(default_factory=dict)  # name -> value
    grid: tuple = ()  # names that a grid varies: they go into the file name
    where: str = ""  # profile file and line, for messages
    profile: str = ""  # word of the profile
    replaced: tuple = ()  # names whose value differs from that of the profile
    # what a batch adds
    nb: Path = None  # the notebook
    out: Path = None  # where the executed one goes
    timeout: int = None  # seconds
    env: dict = field(default_factory=dict)  # of the kernel, beyond that of the batch
    status: str = ""  # 'done', 'skipped', 'failed' or 'stopped'
    seconds: float = 0
    error: str = ""  # in a line

    def _pairs(self, names):
        values = ((k, self.parameters[k]) for k in names)
        return [f"{k}={','.join(map(str, v)) if isinstance(v, list) else v}" for k, v in values]

    def __post_init__(self):
        "Names of its output file, without extension, and of its tables: what is replaced for once has its own"
        told = self._pairs([*self.grid, *sorted({*self.replaced} - {*self.grid})])
        self.name, self.results_name = (_file_name(x, *told) for x in (self.notebook, self.profile))

    @property
    def partial(self):
        "Where the executed notebook is until it is finished"
        return self.out.with_name(f"{self.out.stem}.partial.ipynb")

    @property
    def lock(self):
        "File of the lock that a batch holds while it is at the run; free when its holder dies"
        return self.out.parent / ".locks" / f"{self.out.stem}.lock"

    @property
    def variant(self):
        """What tells its rows from those of the profile's other runs, as text.

        That is what was replaced, and what a grid varies and no column of the rows holds, as `n` does; rows hold the
        model, the seed, and the elements of a list, as of `datasets`. Those of a profile that ships are told apart.
        """
        own = []
        if not (share_dir("profiles") / f"{self.profile}.yaml").is_file():
            from ..results import KEYS

            swept = [k for k in self.grid if isinstance(self.parameters[k], list)]
            held = ["model", "mode", "seed", *(k for k in swept if k.removesuffix("s") in KEYS)]
            own = [k for k in self.grid if k not in held]
        return redact(" ".join(self._pairs(sorted({*self.replaced, *own}))))


class Entry(BaseModel, extra="forbid"):
    "An entry of a profile: a run for each combination of its grid"

    notebook: StrictStr
    parameters: dict[StrictStr, Any] = {}
    grid: dict[StrictStr, Annotated[list, Field(min_length=1)]] = {}


def profile_file(name: str) -> Path:
    "File of a profile, by its word, as 'laptop', or a path; ValueError when there is none"
    known = {f.stem: f for f in sorted(share_dir("profiles").glob("*.yaml"))}
    path = known.get(str(name), Path(name))
    if path.suffix not in (".yaml", ".yml"):
        raise ValueError(f"no profile '{name}'{did_you_mean(name, known)}, or a YAML file")
    if not path.is_file():
        raise ValueError(f"no profile file {name}")
    if path.stem in known and path.resolve() != known[path.stem].resolve():
        what = f"'{path.stem}' is a profile of memnb, give yours another name"
        raise ValueError(f"{path.name}: {what}")
    return path


def profile(name: str) -> list:
    "List of `Run` of a profile, grids expanded, parameters not yet checked"
    path, out = profile_file(name), []
    try:
        data, root_node = yaml_and_node(path.read_text(encoding="utf-8"))
    except ValueError as e:
        why = "is not UTF-8 text" if isinstance(e, UnicodeDecodeError) else e
        raise ValueError(f"{path.name} {why}") from None
    if not isinstance(data, list) or not data:
        raise ValueError(f"{path.name}: a profile is a list of at least one run")
    for entry, node in zip(data, root_node.value, strict=True):
        where = f"{path.name} line {node.start_mark.line + 1}"
        try:
            e = Entry.model_validate(entry)
        except ValidationError as wrong:
            first = wrong.errors()[0]
            at = ".".join(map(str, first["loc"])) or "a run looks like '- notebook: tabular'"
            raise ValueError(f"{where}: {at}: {first['msg']}") from None
        if both := {*e.grid} & {*e.parameters}:
            raise ValueError(f"{where}: '{min(both)}' stands under both parameters and grid")
        runs = len(out) + prod(map(len, e.grid.values()))
        if runs > MOST_RUNS:
            raise ValueError(f"{where}: {runs:,} runs, more than {MOST_RUNS:,}: split the grid")
        for values in product(*e.grid.values()):
            given = e.parameters | dict(zip(e.grid, values, strict=True))
            out.append(Run(e.notebook, given, tuple(e.grid), where))
    return out


# earlier runs have seeds below
FIRST_CONFIRMING_SEED = 1000


def _may_confirm(run: Run) -> None:
    "ValueError unless a run of the profile `confirm` has a fresh seed, and rules that were registered before"
    seed = run.parameters.get("seed", 0)
    if seed < FIRST_CONFIRMING_SEED:
        how = f"a seed of {FIRST_CONFIRMING_SEED} or more, which no earlier run has"
        raise ValueError(f"{run.where}: a confirmatory run needs {how}, not {seed}")
    try:
        registered_rules(run.notebook)
    except ValueError as error:
        raise ValueError(f"{run.where}: {error}") from None


def select(name: str, only: tuple = (), params: dict = None) -> list:
    "Runs of a profile, list of `Run`: of the papers `only`, all when empty; `params` replace its own, all are checked"
    word, runs, params = profile_file(name).stem, profile(name), params or {}
    has = list(dict.fromkeys(r.notebook for r in runs))
    for w in only:
        find(w)
        if w not in has:
            raise ValueError(f"profile '{word}' has no run of '{w}'. It has: {', '.join(has)}")
    found, known = {}, {}
    for r in runs:
        if only and r.notebook not in only:
            continue
        try:
            here = parameters(r.notebook)
            own = dict(profile=word) if "profile" in here else {}
            own |= check(r.notebook, r.parameters)
        except ValueError as e:
            raise ValueError(f"{r.where}: {e}") from None
        known |= here
        new = check(r.notebook, {k: v for k, v in params.items() if k in here})
        replaced = tuple(k for k in new if new[k] != own.get(k, here[k].default))
        run = Run(r.notebook, own | new, r.grid, r.where, word, replaced)
        if word == CONFIRM:
            _may_confirm(run)
        old = found.setdefault(run.name.lower(), run)  # one file, where a system knows no capitals
        if old.parameters != run.parameters:
            both = f"this run and that of {old.where} would both write {run.name}.ipynb"
            raise ValueError(f"{r.where}: {both}: put what differs under 'grid: {{seed: [1]}}'")
    for k in params:
        if k not in known:
            raise ValueError(f"no notebook here has a parameter '{k}'{did_you_mean(k, known)}")
    return list(found.values())
