"The store of answers against damage, kills, other processes, other versions, and folders of all kinds."

import gzip
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from memnb import lm, store
from memnb.store import Store, key_of

PAGE = 4096
ASK = dict(request="generate", max_tokens=5, engine=1)


def prompt(i):
    return f"row{i:03d} " * (1500 if i % 10 == 3 else 40 + i % 50)


def answer(i):
    return f"row{i:03d} {i * i}" * (800 if i % 10 == 7 else 2)


def key(i):
    return key_of(f"model {i % 3}", ASK, prompt(i))


def put(st, i):
    return st.put(f"model {i % 3}", ASK, prompt(i), answer(i))


def truth(n):
    return {key(i): answer(i) for i in range(n)}


def fill(path, n):
    "A store of n answers, all in its one file"
    st = Store(path)
    for i in range(n):
        put(st, i)
    st.db.close()
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return fill(tmp_path_factory.mktemp("whole") / "a.sqlite", 120).read_bytes()


@pytest.fixture
def at(tmp_path):
    return tmp_path / "a.sqlite"


def rows(at):
    "Past memnb: key -> answer"
    with sqlite3.connect(at) as db:
        return {
            k: json.loads(a)
            for k, a in db.execute("SELECT key, answer FROM answers")
        }


def use(at, n=120):
    "Open, look up, ask what is missing, look up again: what the first look gave, which must be true"
    st = Store(at)
    got = st.get([key(i) for i in range(n)])
    assert got.items() <= truth(n).items(), "a changed answer was served"
    for i in range(n):
        if key(i) not in got:
            put(st, i)
    assert st.get([key(i) for i in range(n)]) == truth(n)
    st.db.close()
    return got


# ---- damage

KINDS = dict(
    zeros=lambda old: bytes(len(old)),
    noise=lambda old: random.Random(0).randbytes(len(old)),
)


def hurt(whole, page, kind="noise"):
    "A store with one damaged page, and the answers of which that page held no part"
    old = whole[page * PAGE : (page + 1) * PAGE]
    touched = {int(m) for m in re.findall(rb"row(\d{3})", old)}
    raw = whole[: page * PAGE] + KINDS[kind](old) + whole[(page + 1) * PAGE :]
    return raw, {key(i) for i in range(120) if i not in touched}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "page",
    [
        *range(2, 12, 3),
        *(pytest.param(i, marks=pytest.mark.slow) for i in range(12, 60)),
    ],
)
def test_a_damaged_page(whole, at, kind, page):
    "Whatever SQL can still read is served, nothing wrong is; the damaged file is kept as it was"
    raw, sound = hurt(whole, page, kind)
    if len(raw) != len(whole) or page * PAGE >= len(whole):
        pytest.skip("the file has fewer pages")
    at.write_bytes(raw)
    got = set(use(at))
    kept = at.with_name("a.broken-1")
    if kept.exists():
        assert kept.read_bytes() == raw
    assert (
        len(got) >= len(sound) - 12
    )  # rows beside the damage in an inner page are read one by one


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("begin, end", [(16, 100), (0, 100), (0, PAGE)])
def test_a_damaged_beginning(whole, at, kind, begin, end):
    "Of a file whose first page is lost, in part or whole, all answers are read; it is set aside as it was"
    raw = whole[:begin] + KINDS[kind](whole[begin:end]) + whole[end:]
    at.write_bytes(raw)
    assert use(at) == truth(120)
    assert at.with_name("a.broken-1").read_bytes() == raw


def test_a_file_that_was_cut(whole, at):
    "What lies before the cut is kept"
    for size in (
        PAGE,
        9 * PAGE + 77,
        len(whole) // 2,
        9 * len(whole) // 10,
        len(whole) - 1,
    ):
        at.write_bytes(whole[:size])
        before = {i for i in range(120) if max_place(whole, i) < size}
        got = use(at)
        assert len({key(i) for i in before} - {*got}) <= 2, size
        for f in at.parent.iterdir():
            f.unlink()


def max_place(whole, i):
    "Where the last byte of a row stands"
    return whole.rindex(b"row%03d" % i) + PAGE


@pytest.mark.parametrize("broken", [[0], [40], [0, 1, 2, 50, 51]])
def test_damage_behind_a_gap(at, broken):
    "12,000 answers of one model are forgotten; of another's 300 the damage of some pages takes a few only"
    st = Store(at)
    short = [
        (f"{i:064x}", "old", "{}", "p", "a", "x", "") for i in range(12000)
    ]
    st._with_connection(
        lambda db: db.executemany(store._INSERT_OR_REPLACE, short)
    )
    for i in range(300):
        put(st, 3 * i)
    st.forget("old")
    st.db.close()
    raw = bytearray(at.read_bytes())
    leaves = [n for n in range(len(raw) // PAGE) if raw[n * PAGE] == 13]
    for n in broken:
        raw[leaves[n] * PAGE : (leaves[n] + 1) * PAGE] = bytes(PAGE)
    at.write_bytes(raw)
    Store(at)._mend()
    kept = len(Store(at))
    assert 300 - 25 * len(broken) <= kept < 300


@pytest.mark.parametrize(
    "seed",
    [
        *range(4),
        *(pytest.param(i, marks=pytest.mark.slow) for i in range(4, 40)),
    ],
)
def test_flipped_bits(whole, at, seed):
    rng, raw = random.Random(seed), bytearray(whole)
    for _ in range(3):
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    at.write_bytes(raw)
    try:
        use(at)  # nothing wrong is served
    except ValueError as e:  # a bit of the magic word
        assert "not a store" in str(e)


def test_a_changed_letter_of_an_answer(whole, at):
    "SQLite does not notice it"
    at.write_bytes(whole.replace(b"row005 25", b"row005 24"))
    st = Store(at)
    assert st.get([key(5), key(6)]) == {key(6): answer(6)} and st.bad == 1
    assert (
        put(st, 5) == answer(5)
        and st.get([key(5)]) == {key(5): answer(5)}
        and len(st) == 120
    )


def damage(at, pages):
    "Write noise over pages of a file that is in use"
    with open(at, "r+b") as f:
        for p in pages:
            f.seek(p * PAGE)
            f.write(random.Random(p).randbytes(PAGE))


def test_damage_while_it_is_open(whole, at, capsys):
    "len, get, put, export, models, check, forget: each of them goes on"
    uses = [
        len,
        lambda st: st.get([key(i) for i in range(120)]),
        lambda st: [put(st, i) for i in range(120, 160)],
        lambda st: st.export(at.parent / "out.jsonl"),
        lambda st: st.models(),
        lambda st: st.check(),
        lambda st: put(st, 0) and st.forget("model 0"),
    ]
    for j, f in enumerate(uses):
        at = at.with_name(f"{j}.sqlite")
        at.write_bytes(whole)
        damage(
            at, range(1, len(whole) // PAGE, 3 if j else 1)
        )  # to count, SQLite reads the smallest index
        f(Store(at))
        said = capsys.readouterr().err
        assert said.count("was damaged") == 1 and f"{j}.broken-1" in said, (
            j,
            said,
        )


def test_twice_damaged(whole, at):
    for i in (1, 2, 3):
        at.write_bytes(whole)
        damage(at, [2, 3])
        use(at)
        assert at.with_name(f"a.broken-{i}").exists()


# ---- what is not ours


def library(path):
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE books (title)")
    db.executemany("INSERT INTO books VALUES (?)", [("x" * 999,)] * 99)
    db.commit()
    db.close()
    return path.read_bytes()


def like_ours(path):
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE answers (question, answer)")
    db.close()
    return path.read_bytes()


STRANGERS = {
    "letter": lambda p: b"PK\x03\x04" + b"thesis" * 9999,
    "word": lambda p: b"xy",  # of one letter SQLite takes a file for empty
    "zeros": lambda p: bytes(9 * PAGE),
    "text": lambda p: "Gedächtnis\n".encode() * 999,
    "library": library,
    "like ours": like_ours,
    "broken library": lambda p: library(p)[: PAGE // 2] + b"?" * 9 * PAGE,
    "noise": lambda p: random.Random(1).randbytes(50 * PAGE),
}


@pytest.mark.parametrize("name", STRANGERS)
def test_a_file_of_somebody_else(tmp_path, name):
    at = tmp_path / "thesis.docx"
    raw = STRANGERS[name](at)
    at.write_bytes(raw)
    for _ in range(2):
        with pytest.raises(
            ValueError, match="thesis.docx is not a store.*MEMNB_STORE"
        ):
            Store(at)
    assert at.read_bytes() == raw
    more = (
        {"thesis.docx.lock"} if raw.startswith(b"SQLite") else set()
    )  # a database is looked into
    assert {f.name for f in tmp_path.iterdir()} <= {"thesis.docx", *more}


def test_a_folder_a_device_and_an_empty_file(tmp_path, at):
    with pytest.raises(ValueError, match="is a folder"):
        Store(tmp_path)
    with pytest.raises(ValueError, match="/dev/null is a device"):
        Store("/dev/null")
    at.touch()
    assert use(at, 5) == {}


# ---- several processes

PRELUDE = """
import signal
from store_helpers import *
"""


@pytest.fixture(scope="module", autouse=True)
def helpers(tmp_path_factory):
    "The first functions of this file as a module of their own, for the other processes"
    folder = tmp_path_factory.mktemp("helpers")
    text = Path(__file__).read_text()
    (folder / "store_helpers.py").write_text(
        "import json, os, random, sqlite3, sys, time\nfrom memnb import store\n"
        "from memnb.store import Store, key_of\n"
        + text[text.index("PAGE =") : text.index("def fill")]
    )
    global HELPERS
    HELPERS = folder


@contextmanager
def process(code, *args, **env):
    path = os.pathsep.join([str(HELPERS), *sys.path])
    p = subprocess.Popen(
        [
            sys.executable,
            "-c",
            PRELUDE + textwrap.dedent(code),
            *map(str, args),
        ],
        text=True,
        env={**os.environ, "PYTHONPATH": path, **env},
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield p
    finally:
        p.kill()
        p.wait()
        for f in (p.stdin, p.stdout, p.stderr):
            f.close()


def ends(p, line=""):
    out, err = p.communicate(line, timeout=300)
    assert p.returncode == 0, err
    return out, err


def test_one_goes_on_while_another_mends(whole, at):
    "Who has the old file open and writes without pause loses nothing when it is moved away"
    at.write_bytes(whole)
    code = """
    st = Store(sys.argv[1])
    print('ready', flush=True)
    i = 200
    while not os.path.exists(sys.argv[2]):
        assert put(st, i) == answer(i)
        i += 1
    print(i, flush=True)
    """
    stop = at.with_name("stop")
    with process(code, at, stop) as a:
        assert a.stdout.readline() == "ready\n", a.stderr.read()
        for _ in range(4):
            n = len(st := Store(at))
            while len(st) < n + 20:
                assert a.poll() is None, a.stderr.read()
            st._mend()
            assert len(st) >= n + 20
        stop.touch()
        last = int(ends(a)[0])
    assert Store(at).get([key(i) for i in range(200, last)]) == {
        key(i): answer(i) for i in range(200, last)
    }


@pytest.mark.parametrize("moment", ["before", "after"])
def test_one_opens_while_another_mends(whole, at, monkeypatch, moment):
    "The file is set aside just before, or just after it was opened; nothing stands in its place yet"
    at.write_bytes(whole if moment == "before" else whole[: len(whole) // 2])
    real, seen = Store._prepare, []

    def prepare(self):
        try:
            if moment == "before" and not seen:
                seen.append(at.rename(at.with_name("a.broken-1")))
            return real(self)
        except sqlite3.DatabaseError:
            if not seen:
                seen.append(at.rename(at.with_name("a.broken-1")))
            raise

    monkeypatch.setattr(Store, "_prepare", prepare)
    st = Store(at)
    assert seen and len(st) >= (120 if moment == "before" else 40)
    assert put(st, 7) == answer(7)


def test_a_file_that_is_away_while_it_is_mended_may_be_written(
    whole, at, monkeypatch
):
    "Another process has just set it aside, so nobody can write to it; that is no lack of permission"
    at.write_bytes(whole)
    st = Store(at)
    damage(at, range(1, 9))
    real, away = Store._is_writable, []

    def is_writable(self):
        if not away:
            away.append(at.rename(at.with_name("a.broken-1")))
        return real(self)

    monkeypatch.setattr(Store, "_is_writable", is_writable)
    assert put(st, 200) == answer(200) and away
    assert st.get([key(200)]) == {key(200): answer(200)}
    st.db.close()
    away.clear()
    st.need_write()
    assert away


READ_TORN = """
at = sys.argv[1]
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
assert not os.access(at, os.W_OK) and os.access(os.path.dirname(at), os.W_OK)
try:
    st = Store(at)
    len(st.get([key(i) for i in range(120)])), len(st), st.export(os.path.dirname(at) + "/out")
except PermissionError as e: print(e)
"""


@pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can become another user"
)
@pytest.mark.parametrize("how", ["closed", "open"])
def test_who_may_only_read_does_not_mend(whole, how):
    "A torn page may be one that its owner writes at this moment"
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder) / "in" / "a.sqlite"
        at.parent.mkdir()
        at.write_bytes(whole)
        for f, mode in ((folder, 0o755), (at.parent, 0o777), (at, 0o644)):
            os.chmod(f, mode)
        if how == "open":  # its write-ahead log is there
            st = Store(at)
            put(st, 200)
        damage(at, range(1, 9))
        raw = at.read_bytes()
        with process(READ_TORN, at) as p:
            out, _ = ends(p)
        assert "try again" in out and at.read_bytes() == raw
        assert not list(at.parent.glob("*.broken-*"))
        if how == "open":
            st.db.close()


KILL = """
at, step = sys.argv[1], int(sys.argv[2])
seen = 0
def dies(f):
    def g(*args, **kw):
        global seen
        seen += 1
        if seen == step: os.kill(os.getpid(), signal.SIGKILL)
        return f(*args, **kw)
    return g
store.os.rename, store.os.replace = dies(os.rename), dies(os.replace)
st = Store(at)
st.get([key(i) for i in range(120)])
print(seen)
"""


def test_a_kill_at_each_step_of_mending(whole, at):
    "Whoever comes next finds all answers"
    untouched = {
        key(i): answer(i)
        for i in range(120)
        if f"row{i:03d}".encode() not in whole[3 * PAGE : 4 * PAGE]
    }
    step, steps = 1, None
    while steps is None:
        at.write_bytes(whole)
        damage(at, [2, 3])
        Path(f"{at}-journal").write_bytes(b"")
        with process(KILL, at, step) as p:
            out, err = p.communicate(timeout=300)
            assert p.returncode in (0, -signal.SIGKILL), err
        if p.returncode == 0:
            steps = int(out)
        st = Store(at)
        assert (
            untouched.items() <= st.get([key(i) for i in range(120)]).items()
        ), step
        st.db.close()
        for f in at.parent.iterdir():
            shutil.rmtree(f) if f.is_dir() else f.unlink()
        step += 1
    assert steps >= 2


WRITE = """
at, who, n = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
st = Store(at)
for j in range(n):
    put(st, who*1000 + j)
    print(who*1000 + j, flush=True)
"""


def test_writers_that_are_killed(at):
    "24 processes write, half of them are killed: every answer that one told is there"
    ps = []
    try:
        for i in range(24):
            cm = process(WRITE, at, i, 10**6 if i % 2 else 30)
            ps.append((cm, cm.__enter__()))
        for i, (_, p) in enumerate(ps):
            if i % 2:
                p.stdout.readline()
                p.kill()
        # by the same reader: another one would begin in the middle of a line that `readline` had taken in
        told = [int(l) for _, p in ps for l in p.stdout.read().split()]
    finally:
        for cm, _ in ps:
            cm.__exit__(None, None, None)
    assert len(told) >= 12 * 30
    assert Store(at).get([key(i) for i in told]) == {
        key(i): answer(i) for i in told
    }
    with sqlite3.connect(at) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert not list(at.parent.glob("*.broken-*"))


def test_the_first_answer_stays(at):
    "Two processes that got different answers to one prompt go on with the same one"
    a, b = Store(at), Store(at)
    assert (
        a.put("m", ASK, "p", "first") == "first"
        and b.put("m", ASK, "p", "second") == "first"
    )

    class Late(lm.LM):
        caps = frozenset({"generate"})

        def _answer(self, todo):
            for i, (s, p) in enumerate(todo):
                Store(at).put(self.id, s, p, "of another process")
                yield i, "mine"

    assert Late("late", "late", store=a).generate(["p"]) == [
        "of another process"
    ]


def test_a_store_that_is_removed_while_it_is_open(at):
    st = Store(at)
    put(st, 1)
    at.unlink()
    put(st, 2)
    assert rows(at) == {key(2): answer(2)} and st.get([key(1)]) == {}


# ---- the number of the engine


class Echo(lm.LM):
    caps = frozenset({"generate", "logprobs"})

    def _answer(self, todo):
        for i, (_, p) in enumerate(todo):
            yield i, f"{p} {self.calls}"


def test_the_engine_is_in_the_key(at):
    st = Store(at)
    m = Echo("echo", "echo", store=st)
    assert m.generate(["a"]) == m.generate(["a"]) == ["a 0"]
    m.engine = 2
    assert m.generate(["a"]) == ["a 1"]
    assert [(d["engine"], d["answers"]) for d in st.models()] == [
        (1, 1),
        (2, 1),
    ]


# ---- asking anew


def test_fresh(at, monkeypatch):
    "Asked once for all calls of a process; what was stored is replaced"
    m = Echo("echo", "echo", store=Store(at))
    assert m.generate(["a", "b"]) == ["a 0", "b 1"]
    monkeypatch.setenv("MEMNB_FRESH", "1")
    assert m.generate(["a"]) == m.generate(["a"]) == ["a 2"]
    assert m.generate(["a", "b"]) == ["a 2", "b 3"] and m.calls == 4
    monkeypatch.delenv("MEMNB_FRESH")
    assert (
        Echo("echo", "echo", store=Store(at)).generate(["a", "b"])
        == ["a 2", "b 3"]
        and len(m.store) == 2
    )


@pytest.mark.parametrize("date", ["2026-2-1", "2026-02-31", "1.2.2026", "2026"])
def test_a_date_that_is_none_asks_nothing_anew(at, monkeypatch, date):
    "Taken for a word, it meant now: every answer would be paid for once more"
    m = Echo("echo", "echo", store=Store(at))
    assert m.generate(["a"]) == ["a 0"]
    monkeypatch.setenv("MEMNB_FRESH", date)
    with pytest.raises(ValueError, match=f"MEMNB_FRESH={date} is no moment"):
        m.generate(["a"])
    monkeypatch.setenv("MEMNB_FRESH", "off")
    assert m.generate(["a"]) == ["a 0"] and m.calls == 1


def test_fresh_for_the_processes_of_a_batch(at, monkeypatch):
    "What one of them asked counts for the others; also when its clock is behind that of the batch"
    m = Echo("echo", "echo", store=Store(at))
    m.generate(["a"])
    soon = datetime.now(UTC) + store._CLOCK_DIFFERENCE / 2
    for token in [store._now(), soon.isoformat(), "2200-01-01T00:00:00Z"]:
        if m.calls:  # before the clock that is far ahead, whose answers nobody else trusts
            monkeypatch.setenv("MEMNB_FRESH", "2000-01-01")
            assert m.generate(["a"]) == Echo(
                "echo", "echo", store=Store(at)
            ).generate(["a"])
        monkeypatch.setenv("MEMNB_FRESH", token)
        calls = m.calls
        said = [
            Echo("echo", "echo", store=Store(at)).generate(["a"])
            for _ in range(2)
        ]
        first = m.generate(["a"])
        assert said == [first, first] and m.calls == calls


FUTURE = "9999-01-01T00:00:00.000000+00:00"


@pytest.mark.parametrize("way", ["imported", "stored"])
def test_an_answer_of_the_future_is_not_fresh(at, monkeypatch, way):
    "It was made by a clock that was wrong: who asks anew gets a new answer, and it is the one that stays"
    m = Echo("echo", "echo", store=Store(at))
    m.generate(["a"])
    with sqlite3.connect(at) as db:
        db.execute('UPDATE answers SET "when"=?', (FUTURE,))
    if way == "imported":
        m.store.export(out := at.with_name("out.jsonl"))
        m.store = Store(at.with_name("b.sqlite"))
        m.store.load(out)
    assert m.generate(["a"]) == ["a 0"]
    monkeypatch.setenv("MEMNB_FRESH", "1")
    assert m.generate(["a"]) == m.generate(["a"]) == ["a 1"]
    monkeypatch.delenv("MEMNB_FRESH")
    assert Echo("echo", "echo", store=m.store).generate(["a"]) == ["a 1"]
    assert m.store.models()[0]["last"] < FUTURE


# ---- refusals


class Prude(lm.LM):
    caps = frozenset({"generate", "logprobs"})

    def _answer(self, todo):
        for i, (_, p) in enumerate(todo):
            yield i, lm.Refused("content_filter") if "no" in p else "yes"


def test_a_refusal_is_kept(at):
    for calls in (3, 0):
        m = Prude("prude", "prude", store=Store(at))
        got = m.generate(["a", "no", "no way no", "a"])
        assert got == ["yes", "", "yes", "yes"] or got == ["yes", "", "", "yes"]
        assert (
            lm.refusals(got) == 2
            and got[1].reason == "content_filter"
            and m.calls == calls
        )
    with pytest.raises(lm.NoAnswer, match="1 of 2 prompts.*content_filter"):
        m.logprobs(["a", "no"], ["x", "no"])
    assert {"refused": "content_filter"} in rows(at).values()
    assert Store(at).forget("prude") > 3
    assert m.generate(["no"]) == [""] and m.calls == 3


def test_a_refusal_travels():
    import copy
    import pickle

    r = lm.Refused("why")
    for c in (copy.copy(r), copy.deepcopy(r), pickle.loads(pickle.dumps(r))):
        assert (c, c.reason) == ("", "why")


# ---- folders of all kinds


def test_who_may_read_it(tmp_path):
    mask = os.umask(0o022)
    try:
        put(st := Store(tmp_path / "new" / "a.sqlite"), 1)
        assert {
            oct(f.stat().st_mode & 0o777) for f in st.path.parent.iterdir()
        } == {"0o600"}
        assert st.path.parent.stat().st_mode & 0o777 == 0o700
        shared = tmp_path / "shared"
        shared.mkdir(mode=0o755)
        Store(shared / "a.sqlite")
        assert (
            shared.stat().st_mode & 0o777 == 0o755
            and (shared / "a.sqlite").stat().st_mode & 0o777 == 0o600
        )
    finally:
        os.umask(mask)


def test_the_mode_outlives_mending(whole, at):
    at.write_bytes(whole)
    at.chmod(0o640)
    damage(at, [2, 3])
    Store(at)
    assert at.stat().st_mode & 0o777 == 0o640


READ = """
from memnb import lm
import encodings.idna
at, folder = sys.argv[1:]
if os.geteuid() == 0:  # root may write everywhere
    os.setgid(65534)
    os.setuid(65534)
assert not os.access(at, os.W_OK)
st = Store(at)
assert len(st) == 20 and len(st.models()) == 1 and st.check()['answers'] == 20
class Asked(lm.LM):
    caps = frozenset({'generate'})
    def _answer(self, todo):
        for i, _ in enumerate(todo): yield i, 'asked'
m = Asked('m', 'm', store=st)
keys = [r[0] for r in st.db.execute('SELECT key FROM answers')]
assert len(st.get(keys)) == 20
try: m.generate(['new'])
except PermissionError as e: assert 'MEMNB_STORE' in str(e) and at in str(e), e
else: assert 0, 'asked and not stored'
assert m.calls == 0
try: Store(folder + '/deeper/b.sqlite')
except PermissionError as e: assert 'MEMNB_STORE' in str(e), e
else: assert 0
"""


@pytest.mark.parametrize("wal", [True, False])
def test_a_store_that_cannot_be_written(wal):
    "Reading works; a new answer is refused before it is asked"
    with tempfile.TemporaryDirectory() as d:
        os.chmod(d, 0o755)
        at = Path(d) / "in" / "a.sqlite"
        at.parent.mkdir()
        st = Store(at)
        for i in range(0, 60, 3):
            put(st, i)
        if not wal:
            st.db.execute("PRAGMA journal_mode=DELETE")
        st.db.close()
        Path(f"{at}.lock").unlink(missing_ok=True)
        at.chmod(0o444)
        at.parent.chmod(0o555)
        try:
            with process(READ, at, at.parent) as p:
                ends(p)
        finally:
            at.parent.chmod(0o755)
        assert [f.name for f in at.parent.iterdir()] == ["a.sqlite"]


def test_a_disk_without_write_ahead_log(at, monkeypatch):
    real = sqlite3.connect

    class Poor(sqlite3.Connection):
        def execute(self, sql, *args):
            if sql == "PRAGMA journal_mode=WAL":
                raise sqlite3.OperationalError("disk I/O error")
            return super().execute(sql, *args)

    monkeypatch.setattr(
        sqlite3, "connect", lambda *a, **kw: real(*a, factory=Poor, **kw)
    )
    assert use(at, 20) == {} and use(at, 20) == truth(20)
    assert Store(at).check()["journal"] == "delete"


@pytest.mark.parametrize(
    "kind, journal",
    [
        ("nfs4", "delete"),
        ("9p", "delete"),
        ("virtiofs", "delete"),
        ("fuse.rclone", "delete"),
        ("fuse.s3fs", "delete"),
        ("ext4", "wal"),
        ("fuse.ext4", "wal"),
    ],
)
def test_a_network_folder(tmp_path, monkeypatch, capsys, kind, journal):
    "A write-ahead log needs memory that all its users share"
    mounts = tmp_path / "mounts"
    place = str(tmp_path / "with space").replace(" ", r"\040")
    mounts.write_text(
        f"disk / ext4 rw 0 0\nserver:/x {place} {kind} rw 0 0\nproc /proc proc rw 0 0\n"
    )
    monkeypatch.setattr(store, "_MOUNTS", mounts)
    store._network_kind.cache_clear()
    at = tmp_path / "with space" / "a.sqlite"
    for _ in range(2):
        assert Store(at).check()["journal"] == journal
    said = capsys.readouterr().err
    assert said.count(f"network folder ({kind})") == (journal == "delete")
    store._network_kind.cache_clear()


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="Linux has it")
def test_a_folder_that_takes_no_file_is_said_and_not_waited_for():
    "Root may write to /proc, by its mode; the lock of the store would be waited for without end"
    code = "from memnb.store import Store; Store('/proc/memnb.sqlite')"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )
    assert "PermissionError: the store /proc/memnb.sqlite cannot be made" in (
        ran.stderr
    )


def test_a_store_below_a_file_is_said(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(PermissionError, match="a file stands where its folder"):
        Store(tmp_path / "file" / "a.sqlite")
    assert (tmp_path / "file").read_text() == "mine"


# ---- lines


def test_out_and_in_again(at, tmp_path):
    "Also in batches, over another store, and of one model"
    st, out = Store(fill(at, 2500)), tmp_path / "out.jsonl"
    assert (
        st.export(out) == 2500
        and st.export(tmp_path / "one.jsonl", "model 1") == 833
    )
    b = Store(tmp_path / "b.sqlite")
    assert b.load(tmp_path / "one.jsonl") == 833 and len(b) == 833
    assert b.load(out) == 2500 and len(b) == 2500
    assert b.get([key(i) for i in range(2500)]) == truth(2500)
    first = {
        d["key"]: d
        for d in map(json.loads, out.read_text(encoding="utf8").splitlines())
    }
    b.export(tmp_path / "again.jsonl")
    lines = (tmp_path / "again.jsonl").read_text(encoding="utf8").splitlines()
    assert first == {d["key"]: d for d in map(json.loads, lines)}


@pytest.mark.parametrize(
    "bad", ["nonsense", "{}", "[]", "3", "", "\xff", '"key"', "[" * 99999]
)
def test_a_damaged_line(at, tmp_path, bad):
    st, out = Store(fill(at, 1200)), tmp_path / "out.jsonl"
    st.export(out)
    lines = out.read_bytes().split(b"\n")
    for i in (1, 7, 1100):
        out.write_bytes(
            b"\n".join(
                [*lines[: i - 1], bad.encode("latin-1"), *lines[i - 1 :]]
            )
        )
        b = Store(tmp_path / f"{i}.sqlite")
        with pytest.raises(
            ValueError,
            match=f"out.jsonl, line {i}: .* the {i - 1} answers before it",
        ):
            b.load(out)
        assert len(b) == i - 1


def test_a_changed_line(at, tmp_path):
    st, out = Store(fill(at, 3)), tmp_path / "out.jsonl"
    st.export(out)
    d = json.loads(out.read_text().splitlines()[1])
    for change in [
        dict(answer="other"),
        dict(prompt="other"),
        dict(model="other"),
        dict(key="0" * 64),
        dict(sha="0"),
        dict(settings={}),
        dict(model=3),
        dict(when=3),
    ]:
        out.write_text(json.dumps(d | change))
        with pytest.raises(ValueError, match="line 1"):
            Store(tmp_path / "b.sqlite").load(out)


def line_of(**change):
    "A line of an export with right checksums"
    d = dict(model="m", settings=ASK, prompt="p", answer="a") | change
    d["key"] = key_of(d["model"], d["settings"], d["prompt"])
    return json.dumps(d) + "\n"


@pytest.mark.parametrize(
    "change",
    [
        *(
            dict(answer=a)
            for a in (
                "",
                " \n",
                None,
                123,
                float("nan"),
                {},
                {"a": 1},
                [],
                [1.5],
            )
        ),
        dict(answer={"refused": 3}),
        dict(answer=[0.5, float("nan")], settings=dict(request="logprobs")),
        dict(answer=[["a"]], settings=dict(request="tokens")),
        dict(model="m\x1b[31m"),
        dict(model="m\u202e"),
    ],
    ids=repr,
)
def test_an_import_of_what_is_no_answer(at, tmp_path, change):
    lines = tmp_path / "lines.jsonl"
    lines.write_text(
        line_of(prompt="q") + line_of(**change) + line_of(prompt="r")
    )
    with pytest.raises(
        ValueError, match="lines.jsonl, line 2: .* the 1 answers before it"
    ):
        Store(at).load(lines)
    assert len(Store(at)) == 1


def test_an_import_of_all_that_can_be_one(at, tmp_path):
    scores, left_out = (
        [[-0.5, -1e-9], [True, False]],
        dict(blank=[[-1.5]], without=[[[0.25, -2]]]),
    )
    kinds = {
        "logprobs": [-1.5, 0.0],
        "tokens": scores,
        "leave_one_out": left_out,
        "next_logits": "4A==",
    }
    lines = [
        line_of(settings=dict(request=r), answer=a) for r, a in kinds.items()
    ]
    lines += [line_of(), line_of(prompt="q", answer={"refused": "filter"})]
    (tmp_path / "lines.jsonl").write_text("".join(lines))
    assert Store(at).load(tmp_path / "lines.jsonl") == 6 == len(Store(at))


@pytest.mark.parametrize(
    "text, why",
    [
        ("0" * 60_000_000, "a line of more than 50 MB"),
        (line_of(answer="x" * 10**6) * 60, "unpacks"),
    ],
    ids=["line", "lines"],
)
def test_an_import_that_would_fill_the_memory(at, tmp_path, text, why):
    packed = tmp_path / "bomb.jsonl.gz"
    packed.write_bytes(gzip.compress(text.encode(), 1))
    assert packed.stat().st_size < 10**6
    with pytest.raises(ValueError, match=f"bomb.jsonl.gz.* {why}"):
        Store(at).load(packed)


def test_an_export_leaves_the_old_file_until_it_is_whole(
    at, tmp_path, monkeypatch
):
    st, out = Store(fill(at, 10)), tmp_path / "out.jsonl"
    out.write_text("before")

    def fails(row):
        raise OSError("disk full")

    monkeypatch.setattr(store, "is_sound", fails)
    with pytest.raises(OSError):
        st.export(out)
    assert out.read_text() == "before" and not list(tmp_path.glob(".*"))


def test_forgotten_is_gone(at):
    "No byte of it stays in the file"
    st = Store(fill(at, 60))
    assert b"row004" in at.read_bytes()
    assert st.forget("model 1") == 20
    st.db.close()
    raw = b"".join(f.read_bytes() for f in at.parent.iterdir())
    assert b"row004" not in raw and b"row005" in raw


def test_names_of_models_can_be_copied_from_what_is_said(at):
    "They are long, and `forget` takes them whole"
    st = Store(at)
    names = [f"planted:{'x' * 60}+{end}" for end in "cab"]
    for name in names:
        st.put(name, ASK, "p", "a")
    with pytest.raises(ValueError, match="no answers of 'planted'") as error:
        st.forget("planted")
    assert ", ".join(sorted(names)) in str(error.value)


def test_a_second_store_of_a_process_keeps_the_first_ones_locks(tmp_path):
    path = tmp_path / "s.sqlite"
    first, _second = Store(path), Store(path)
    first.put("m", {}, "1", "x")
    code = f"from memnb.store import Store; Store({str(path)!r}).put('m', {{}}, '2', 'x')"
    subprocess.run(
        [sys.executable, "-c", code], check=True
    )  # the last to close drops the WAL
    first.put("m", {}, "3", "x")
    assert len(first) == len(Store(path)) == 3
