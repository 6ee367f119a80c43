"""Profiles: which notebooks run with which parameters, all checked before anything starts."""

import hashlib
import json
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from ..core import did_you_mean, share_dir
from ..papers import find, parameters
from .redact import redact

DEEPEST = 20  # lists within lists that anybody writes by hand


@cache
def _yaml_loader():
    "A reader of plain values: numbers, words, lists and mappings"
    import yaml

    class Loader(yaml.SafeLoader):
        depth = 0

        def fault(self, node, text):
            raise ValueError(f"line {node.start_mark.line + 1}: {text}")

        def compose_node(self, parent, index):
            event = self.peek_event()
            if isinstance(event, yaml.AliasEvent):
                self.fault(event, f"write the value of '*{event.anchor}' out")
            if self.depth > DEEPEST:
                self.fault(event, f"more than {DEEPEST} lists or mappings in each other")
            self.depth += 1
            try:
                return super().compose_node(parent, index)
            finally:
                self.depth -= 1

        def construct_mapping(self, node, deep=False):
            seen = set()
            for k, _ in node.value:
                if str(k.value) in seen:
                    self.fault(k, f"'{k.value}' is written twice")
                seen.add(str(k.value))
            return super().construct_mapping(node, deep)

        def number(self, node):
            make = (
                self.construct_yaml_int if node.tag.endswith("int") else self.construct_yaml_float
            )
            try:
                value = make(node)
            except ValueError:
                self.fault(node, f"'{node.value[:30]}' is no number")
            if ":" in node.value or re.match(r"[-+]?0[0-9_]", node.value) and "." not in node.value:
                self.fault(
                    node, f"YAML reads {node.value} as {value}: write that, or put it into quotes"
                )
            return value

        def other(self, node):
            kind = node.tag.rpartition(":")[2]
            what = "a date" if kind == "timestamp" else f"of the kind {kind}"
            self.fault(node, f"a value here is {what}: put it into quotes, or write it as a list")

    for kind in "int", "float":
        Loader.add_constructor(f"tag:yaml.org,2002:{kind}", Loader.number)
    for kind in "timestamp", "binary", "set", "omap", "pairs":
        Loader.add_constructor(f"tag:yaml.org,2002:{kind}", Loader.other)
    return Loader


def read_yaml(text):
    "(value, lines of its entries) of YAML text; ValueError with the line for a fault"
    import yaml

    try:
        loader = _yaml_loader()(text)
        node = loader.get_single_node()
        if node is None:
            return None, []
        lines = (
            [n.start_mark.line + 1 for n in node.value]
            if isinstance(node, yaml.SequenceNode)
            else []
        )
        return loader.construct_document(node), lines
    except yaml.YAMLError as e:
        mark = getattr(e, "problem_mark", None)
        at = f"line {mark.line + 1}: " if mark else ""
        why = getattr(e, "problem", None) or getattr(e, "reason", None) or e
        raise ValueError(f"{at}not YAML, {why}") from None


def _no(*kinds):
    "A check that refuses values of just these types"
    from pydantic import BeforeValidator

    def look(x):
        if type(x) in kinds:
            raise ValueError("not what was meant")
        return x

    return BeforeValidator(look)


def _from_text(x):
    "The list that '[1, 6]' or '1,6' stands for"
    return read_yaml(x if x.lstrip().startswith("[") else f"[{x}]")[0] if isinstance(x, str) else x


def _whole(x):
    "A value whose text is of whole characters"
    json.dumps(x, ensure_ascii=False).encode()
    return x


@cache
def _types():
    "What the types of parameters are for pydantic"
    from typing import Annotated

    from pydantic import AfterValidator, BeforeValidator, JsonValue

    def listed(of):
        return Annotated[list[of], BeforeValidator(_from_text), AfterValidator(_whole)]

    plain = dict(
        int=Annotated[int, _no(bool)],
        float=Annotated[float, _no(bool)],
        bool=Annotated[bool, _no(int, float)],
        str=Annotated[str, AfterValidator(_whole)],
    )
    return plain | {"list": listed(JsonValue)} | {f"list[{k}]": listed(v) for k, v in plain.items()}


@cache
def _adapter(kind):
    from pydantic import TypeAdapter

    return TypeAdapter(_types()[kind])


def cast(
    value,  # what somebody wrote
    kind: str,  # 'int', 'float', 'bool', 'str', 'list', 'list[int]', ...; '| None' allows none
):  # value of that type; ValueError when it is no such value
    "Convert a parameter to its type"
    kind, _, none = (s.strip() for s in kind.partition("|"))
    if none == "None" and (value is None or str(value).lower() == "none"):
        return None
    if kind not in _types():
        raise ValueError(f"has type {kind}; memnb run knows {', '.join(_types())}")
    try:
        return _adapter(kind).validate_python(value)
    except (ValueError, RecursionError):
        raise ValueError(f"must be {kind}, got {value!r} ({type(value).__name__})") from None


def check(
    nb,  # word of a paper, or path of a notebook
    params: dict,  # name -> value, as written
    folder: Path = None,  # folder of notebooks; default: those of memnb
) -> dict:  # name -> value of the right type; ValueError names what is wrong
    "Check parameters by name and type against a notebook"
    nb, out = find(nb, folder), {}
    known = parameters(nb)
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


def _value(v):
    return ",".join(map(str, v)) if isinstance(v, list) else str(v)


@dataclass
class Run:
    "One notebook with its parameters"

    notebook: str  # word of the paper
    parameters: dict = field(default_factory=dict)  # name -> value
    grid: tuple = ()  # names that a grid varies: they go into the file name
    where: str = ""  # profile file and line, for messages
    gpu: bool = False  # whether it needs a GPU of its own
    profile: str = ""  # word of the profile
    replaced: tuple = ()  # names whose value differs from that of the profile

    def _pairs(self, names):
        return [f"{k}={_value(self.parameters[k])}" for k in names]

    @property
    def name(self):
        "Name of the output file, without extension"
        return _file_name(self.notebook, *self._pairs(self.grid))

    @property
    def results_name(self):
        "Name of the tables that the run writes"
        return _file_name(
            self.profile,
            *self._pairs(self.grid),
            *self._pairs(sorted(set(self.replaced) - set(self.grid))),
        )

    @property
    def variant(self):
        "What was replaced, as text; empty for a run of the profile as it is"
        return redact(" ".join(self._pairs(sorted(self.replaced))))


MOST_RUNS = 10_000  # of a profile
FAULTS = dict(
    notebook="the key 'notebook' with a paper's word is missing",
    gpu="'gpu' is true or false",
    parameters="'parameters' and 'grid' hold names with values",
    grid="'parameters' and 'grid' hold names with values",
)


@cache
def _entry():
    "Model of an entry of a profile"
    from math import prod
    from typing import Annotated, Any

    from pydantic import BaseModel, Field, StrictBool, StrictStr, model_validator

    class Entry(BaseModel, extra="forbid"):
        notebook: StrictStr
        parameters: dict[StrictStr, Any] | None = None
        grid: dict[StrictStr, Annotated[list, Field(min_length=1)]] | None = None
        gpu: StrictBool = False

        @model_validator(mode="after")
        def together(self):
            grid, params = self.grid or {}, self.parameters or {}
            for k in grid:
                if k in params:
                    raise ValueError(f"'{k}' stands under both parameters and grid")
            if (n := prod(map(len, grid.values()))) > MOST_RUNS:
                raise ValueError(
                    f"this grid makes {n:,} runs, more than {MOST_RUNS:,}: make several profiles of it"
                )
            return self

    return Entry


def _fault(errors):
    "What to do about the first thing that pydantic found"
    first = min(errors, key=lambda e: e["type"] != "extra_forbidden")
    where, name = first["loc"], str((*first["loc"], "")[0])
    if first["type"] == "extra_forbidden":
        return f"unknown key '{name}'{did_you_mean(name, _entry().model_fields)}"
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])
    if name == "grid" and len(where) == 2:
        return f"grid: '{where[1]}' needs a list of at least one value"
    return FAULTS.get(name, "a run looks like '- notebook: tabular'")


def _expand(entry, where):
    "Runs of one entry of a profile, one for each combination of its grid"
    from itertools import product

    from pydantic import ValidationError

    try:
        e = _entry().model_validate(entry)
    except ValidationError as wrong:
        raise ValueError(f"{where}: {_fault(wrong.errors())}") from None
    grid = e.grid or {}
    return [
        Run(
            e.notebook,
            {**(e.parameters or {}), **dict(zip(grid, values))},
            tuple(grid),
            where,
            e.gpu,
        )
        for values in product(*grid.values())
    ]


def profile_file(
    name: str,  # 'smoke', 'laptop', 'night', 'table1', 'gpu', 'paper', or a path
) -> Path:  # the YAML file; ValueError when there is none
    "File of a profile"
    known = {f.stem: f for f in sorted(share_dir("profiles").glob("*.yaml"))}
    path = known.get(str(name), Path(name))
    if path.is_file():
        if not re.fullmatch(r"\w[\w.-]*", path.stem) or len(path.stem.encode()) > 120:
            raise ValueError(
                f"{path.name}: a profile's name is made of letters, digits, '_', '.' and '-'"
            )
        if path.stem in known and path.resolve() != known[path.stem].resolve():
            raise ValueError(
                f"{path.name}: '{path.stem}' is a profile of memnb, give yours another name"
            )
        return path
    if path.suffix in (".yaml", ".yml"):
        raise FileNotFoundError(f"no profile file {name}")
    raise ValueError(f"no profile '{name}'{did_you_mean(name, known)}, or the path of a YAML file")


def profile(
    name: str,  # 'smoke', 'laptop', 'night', 'table1', 'gpu', 'paper', or the path of a YAML file
) -> list:  # of `Run`, grids expanded, parameters not yet checked
    "Runs of a profile"
    path, runs = profile_file(name), []
    try:
        data, lines = read_yaml(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise ValueError(f"{path.name} is not UTF-8 text") from None
    except ValueError as e:
        raise ValueError(f"{path.name} {e}") from None
    if not isinstance(data, list) or not data:
        raise ValueError(f"{path.name}: a profile is a list of at least one run")
    for entry, line in zip(data, lines):
        where = f"{path.name} line {line}"
        runs += _expand(entry, where)
        if len(runs) > MOST_RUNS:
            raise ValueError(f"{where}: more than {MOST_RUNS:,} runs in one profile")
    return runs


def _ready(run, params, name, folder):
    "A run with its parameters replaced, completed and checked"
    try:
        known = parameters(run.notebook, folder)
    except ValueError as e:
        raise ValueError(f"{run.where}: {e}") from None
    own = dict(profile=name) if "profile" in known else {}
    try:
        own |= check(run.notebook, run.parameters, folder)
    except ValueError as e:
        raise ValueError(f"{run.where}: {e}") from None
    new = check(run.notebook, {k: v for k, v in params.items() if k in known}, folder)
    replaced = tuple(k for k in new if new[k] != own.get(k, known[k].default))
    return Run(run.notebook, own | new, run.grid, run.where, run.gpu, name, replaced)


def _distinct(runs):
    "The runs without repetitions; ValueError when two different ones have the same name"
    seen = {}
    for r in runs:
        old = seen.setdefault(r.name, r)
        if old.parameters != r.parameters:
            raise ValueError(
                f"{r.where}: this run and that of {old.where} would both write {r.name}.ipynb. "
                f"Put what differs under 'grid', as in grid: {{seed: [1]}}"
            )
    return list(seen.values())


def select(
    name: str,  # profile
    only: tuple = (),  # words of papers; all when empty
    params: dict = None,  # parameters that replace those of the profile
    folder: Path = None,  # folder of notebooks; default: those of memnb
) -> list:  # of `Run`, every parameter checked
    "Runs of a profile that were asked for, checked"
    word, runs, params = profile_file(name).stem, profile(name), params or {}
    has = list(dict.fromkeys(r.notebook for r in runs))
    for w in only:
        find(w, folder)
        if w not in has:
            raise ValueError(f"profile '{word}' has no run of '{w}'. It has: {', '.join(has)}")
    runs = [r for r in runs if not only or r.notebook in only]
    ready = [_ready(r, params, word, folder) for r in runs]
    known = list(dict.fromkeys(k for r in runs for k in parameters(r.notebook, folder)))
    for k in params:
        if k not in known:
            raise ValueError(f"no notebook here has a parameter '{k}'{did_you_mean(k, known)}")
    return _distinct(ready)
