"""Profiles: which notebooks run with which parameters, all checked before anything starts."""

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import product
from math import prod
from pathlib import Path
from reprlib import repr as short
from typing import Annotated, Any

import yaml
from pydantic import (
    BaseModel,
    Field,
    JsonValue,
    StrictStr,
    TypeAdapter,
    ValidationError,
)

from ..core import did_you_mean, package_dir, share_dir
from ..papers import find, need_no_negative, notebooks, parameters
from ..results import CONFIRM, registered_rules
from .redact import redact


# a profile of a thousand runs has some ten thousand values
MOST_VALUES = 100_000
# each is looked at before the first begins, and has a notebook of its own
MOST_RUNS = 1000


class _Loader(yaml.SafeLoader):
    "YAML as people mean it: no key stands twice, and a number is one of ten digits"

    def construct_mapping(self, node: yaml.Node, deep: bool = False):
        seen = set()
        for key, _ in node.value:
            if key.value in seen and key.tag != "tag:yaml.org,2002:merge":
                raise yaml.constructor.ConstructorError(
                    None, None, f"'{key.value}' stands twice", key.start_mark
                )
            seen.add(key.value if isinstance(key.value, str) else id(key))
        return super().construct_mapping(node, deep)

    def construct_number(self, node: yaml.Node):
        # YAML 1.1 takes 010 for 8 and 1:30 for 90
        if re.fullmatch(r"[-+]?0[\d_]+|.*:.*", node.value):
            cure = f"{node.value} could mean several numbers: write it in decimal, or in quotes as text"
            raise yaml.constructor.ConstructorError(
                None, None, cure, node.start_mark
            )
        if node.tag.endswith("int"):
            return self.construct_yaml_int(node)
        return self.construct_yaml_float(node)


for _kind in ("int", "float"):
    _Loader.add_constructor(
        f"tag:yaml.org,2002:{_kind}", _Loader.construct_number
    )


def _values(node: yaml.Node, known: Any):
    "Values that a node of YAML stands for, its aliases written out; `known` are those of nodes seen before"
    if id(node) not in known:
        known[id(node)] = 0  # what stands in itself is not written out
        inner = [] if isinstance(node.value, str) else node.value
        parts = [
            part
            for item in inner
            for part in (item if isinstance(item, tuple) else [item])
        ]
        known[id(node)] = 1 + sum(_values(part, known) for part in parts)
    return known[id(node)]


def yaml_and_node(text: str) -> tuple:
    "The value of YAML text, and its root node; ValueError with the line of a fault"
    try:
        loader = _Loader(text)
    except yaml.YAMLError as error:
        # a character that no YAML has; of those that have a line the loader knows
        raise ValueError(f"not YAML, {' '.join(str(error).split())}") from None
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
        raise ValueError(
            f"{line}not YAML, {getattr(error, 'problem', None) or error}"
        ) from None
    except RecursionError:
        raise ValueError("lists stand in lists too deeply") from None
    finally:
        loader.dispose()


def read_yaml(text: str):
    "The value of YAML text; ValueError with the line of a fault"
    return yaml_and_node(text)[0]


_PLAIN = dict(int=int, float=float, bool=bool, str=str)
# type of a parameter, as its page writes it -> what makes a value of it
_KINDS = {kind: TypeAdapter(plain) for kind, plain in _PLAIN.items()}
_KINDS |= {
    f"list[{kind}]": TypeAdapter(list[plain]) for kind, plain in _PLAIN.items()
}
_KINDS["list"] = TypeAdapter(list[JsonValue])


def cast(value: object, kind: str):
    """A parameter as its type, 'int', 'list[float]', ..., with '| None' where none is allowed.

    Text becomes what it says; any other value is taken only where it is one, else ValueError.
    """
    kind, _, none = (part.strip() for part in kind.partition("|"))
    if none == "None" and (value is None or str(value).lower() == "none"):
        return None
    if kind not in _KINDS:
        raise ValueError(
            f"has type {kind}; memnb run knows {', '.join(_KINDS)}"
        )
    given = value
    try:
        if kind.startswith("list") and isinstance(value, str):
            # what a shell left out is no empty list, which is []
            if not value.strip():
                raise ValueError
            given = read_yaml(
                value if value.lstrip().startswith("[") else f"[{value}]"
            )
        return _KINDS[kind].validate_python(
            given, strict=not isinstance(given, str)
        )
    except ValueError:
        quoted = f"{short(value)} ({type(value).__name__})"
        raise ValueError(f"must be {kind}, got {quoted}") from None


def _need_plain_defaults(nb: Path, known: Any):
    "ValueError for a parameter whose default no file of YAML or JSON can hold"
    for name, parameter in known.items():
        try:
            json.dumps(parameter.default)
        except (TypeError, ValueError):
            rule = f"the default of parameter '{name}' must be a plain value"
            raise ValueError(
                f"{nb.name}: {rule}, not {parameter.default!r}"
            ) from None


def check(nb: Path, params: dict) -> dict:
    "Parameters as a notebook takes them, by name and type; ValueError names what is wrong"
    nb = find(nb)
    parameters_here = parameters(nb)
    _need_plain_defaults(nb, parameters_here)
    values = {}
    for name, value in params.items():
        if name not in parameters_here:
            raise ValueError(
                f"{nb.stem} has no parameter '{name}'{did_you_mean(name, parameters_here)}"
            )
        try:
            values[name] = cast(value, parameters_here[name].type)
        except ValueError as error:
            raise ValueError(f"{nb.stem}: parameter '{name}' {error}") from None
        # a page of somebody's own may count otherwise
        if (package_dir() / nb.stem[3:]).is_dir():
            need_no_negative(name, values[name])
    return values


# bytes of a name; a file system takes 255, and endings are added
_LONGEST_NAME = 120


def _file_name(*parts):
    "Parts of a name, as characters that any file system takes; a long name ends in a checksum"
    full = "-".join(parts)
    plain = redact(full) if re.search(r"[/\\~]", full) else full
    safe = re.sub(r"[^\w.,=+-]", "_", plain)
    if len(safe.encode()) <= _LONGEST_NAME:
        return safe
    begin = safe.encode()[: _LONGEST_NAME - 10].decode(errors="ignore")
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
    env: dict = field(
        default_factory=dict
    )  # of the kernel, beyond that of the batch
    status: str = ""  # 'done', 'skipped', 'failed' or 'stopped'
    seconds: float = 0
    error: str = ""  # in a line

    def _pairs(self, names: list):
        pairs = []
        for name in names:
            value = self.parameters[name]
            text = (
                ",".join(map(str, value)) if isinstance(value, list) else value
            )
            pairs.append(f"{name}={text}")
        return pairs

    def __post_init__(self):
        "Names of its output file, without extension, and of its tables: what is replaced for once has its own"
        pairs = self._pairs(
            [*self.grid, *sorted({*self.replaced} - {*self.grid})]
        )
        self.name = _file_name(self.notebook, *pairs)
        self.results_name = _file_name(self.profile, *pairs)

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
        names = {*self.replaced}
        if not (share_dir("profiles") / f"{self.profile}.yaml").is_file():
            names |= {name for name in self.grid if not self._is_in_rows(name)}
        return redact(" ".join(self._pairs(sorted(names))))

    def _is_in_rows(self, name: str):
        "Whether rows hold the value of a parameter of the grid, in a column of its own"
        from ..results import KEYS

        if name in ("model", "mode", "seed"):
            return True
        return (
            isinstance(self.parameters[name], list)
            and name.removesuffix("s") in KEYS
        )


class Entry(BaseModel, extra="forbid"):
    "An entry of a profile: a run for each combination of its grid"

    notebook: StrictStr
    parameters: dict[StrictStr, Any] = {}
    grid: dict[StrictStr, Annotated[list, Field(min_length=1)]] = {}


def _instead_of_profile(name: str, shipped: Iterable[str]) -> str:
    "The end of a message about a word that is no profile: a file of its name, a paper, or the profiles that there are"
    for ending in (".yaml", ".yml"):
        if Path(name + ending).is_file():
            return f": give the file itself, {name}{ending}"
    close = get_close_matches(name.lower(), [*shipped, *notebooks()], 1)
    if close and close[0] not in shipped:
        word = close[0]
        is_paper = f"{word} is a paper, of which a profile has runs"
        return f": {is_paper}, as in `memnb run laptop --only {word}`"
    return f"{did_you_mean(name, shipped)}, or a YAML file"


def profile_file(name: str) -> Path:
    "File of a profile, by its word, as 'laptop', or a path; ValueError when there is none"
    shipped = {f.stem: f for f in sorted(share_dir("profiles").glob("*.yaml"))}
    path = shipped.get(str(name), Path(name))
    if path.suffix not in (".yaml", ".yml"):
        hint = _instead_of_profile(str(name), shipped)
        raise ValueError(f"no profile '{name}'{hint}")
    if not path.is_file():
        raise ValueError(f"no profile file {name}")
    if path.stem in shipped and path.resolve() != shipped[path.stem].resolve():
        fault = f"'{path.stem}' is a profile of memnb, give yours another name"
        raise ValueError(f"{path.name}: {fault}")
    return path


def _read_profile(path: Path):
    "(value, node) of each entry of a profile; ValueError for a file that is none"
    try:
        entries, root_node = yaml_and_node(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise ValueError(f"{path.name} is not UTF-8 text") from None
    except ValueError as error:
        raise ValueError(f"{path.name} {error}") from None
    if not isinstance(entries, list) or not entries:
        raise ValueError(
            f"{path.name}: a profile is a list of at least one run"
        )
    return zip(entries, root_node.value, strict=True)


def _entry(given: dict, where: str):
    "An entry of a profile, checked; ValueError says where it stands"
    try:
        entry = Entry.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        place = (
            ".".join(map(str, first["loc"]))
            or "a run looks like '- notebook: tabular'"
        )
        raise ValueError(f"{where}: {place}: {first['msg']}") from None
    if both := {*entry.grid} & {*entry.parameters}:
        raise ValueError(
            f"{where}: '{min(both)}' stands under both parameters and grid"
        )
    return entry


def profile(name: str) -> list:
    "List of `Run` of a profile, grids expanded, parameters not yet checked"
    path = profile_file(name)
    runs = []
    for given, node in _read_profile(path):
        where = f"{path.name} line {node.start_mark.line + 1}"
        entry = _entry(given, where)
        number = len(runs) + prod(map(len, entry.grid.values()))
        if number > MOST_RUNS:
            raise ValueError(
                f"{where}: {number:,} runs, more than {MOST_RUNS:,}: split the grid"
            )
        for values in product(*entry.grid.values()):
            swept = dict(zip(entry.grid, values, strict=True))
            runs.append(
                Run(
                    entry.notebook,
                    entry.parameters | swept,
                    tuple(entry.grid),
                    where,
                )
            )
    return runs


def _may_confirm(run: Run) -> None:
    "ValueError unless a run of the profile `confirm` has a fresh seed, and rules that were registered before"
    # imports scipy, which only a confirmatory run needs here
    from ..registered import registered_seed

    seed = run.parameters.get("seed", 0)
    try:
        registered_rules(run.notebook)
    except ValueError as error:
        raise ValueError(f"{run.where}: {error}") from None
    least = registered_seed(run.notebook)
    if seed < least:
        need = f"a seed of {least} or more, which no earlier run has"
        raise ValueError(
            f"{run.where}: a confirmatory run needs {need}, not {seed}"
        )


def _with_values(run: Run, word: str, params: dict) -> Run:
    "A run of a profile with its own parameters checked, and those that replace them"
    try:
        declared = parameters(run.notebook)
        values = dict(profile=word) if "profile" in declared else {}
        values |= check(run.notebook, run.parameters)
    except ValueError as error:
        raise ValueError(f"{run.where}: {error}") from None
    new = check(
        run.notebook,
        {name: value for name, value in params.items() if name in declared},
    )
    replaced = tuple(
        name
        for name, value in new.items()
        if value != values.get(name, declared[name].default)
    )
    return Run(run.notebook, values | new, run.grid, run.where, word, replaced)


def select(name: str, only: tuple = (), params: dict = None) -> list:
    "Runs of a profile, list of `Run`: of the papers `only`, all when empty; `params` replace its own, all are checked"
    word = profile_file(name).stem
    runs = profile(name)
    params = params or {}
    papers = list(dict.fromkeys(run.notebook for run in runs))
    for paper in only:
        find(paper)
        if paper not in papers:
            has = ", ".join(papers)
            raise ValueError(
                f"profile '{word}' has no run of '{paper}'. It has: {has}"
            )
    selected = {}
    declared = {}
    for given in runs:
        if only and given.notebook not in only:
            continue
        run = _with_values(given, word, params)
        declared |= parameters(run.notebook)
        if word == CONFIRM:
            _may_confirm(run)
        # one file, where a system knows no capitals
        before = selected.setdefault(run.name.lower(), run)
        if before.parameters != run.parameters:
            both = f"this run and that of {before.where} would both write {run.name}.ipynb"
            raise ValueError(
                f"{run.where}: {both}: put what differs under 'grid: {{seed: [1]}}'"
            )
    for parameter in params:
        if parameter not in declared:
            fault = f"no notebook here has a parameter '{parameter}'"
            raise ValueError(f"{fault}{did_you_mean(parameter, declared)}")
    return list(selected.values())
