"Measured rows: many writers, kills, and what is kept apart."

import ast
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import date

import pandas as pd
import pytest

from memnb import core, papers, results

WRITER = """
import sys
import pandas as pd
from memnb.results import record
who, parts = sys.argv[1], int(sys.argv[2])
rows = [dict(part=f'part {i}', dataset=d, quantity='rate', value=i) for i in range(parts) for d in 'abc']
print('ready', flush=True)
if len(sys.argv) > 3: sys.stdin.readline()
record('toy', pd.DataFrame(rows), 'laptop', model=f'model-{who}', mode='chat')
print('done', flush=True)
"""


def rows(value=1.0, dataset="iris", **kw):
    return pd.DataFrame(
        [dict(part="row", dataset=dataset, quantity="rate", value=value) | kw]
    )


def writer(home, *argv):
    env = {**os.environ, "MEMNB_HOME": str(home), "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, *map(str, argv)],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def names(home):
    return sorted(p.name for p in (home / "data/papers/toy/measured").iterdir())


@pytest.mark.parametrize("vectors", ["avx2", ""])
def test_a_row_says_on_which_vectors_it_was_made(home, monkeypatch, vectors):
    "Sums of torch and of blocks differ by them in the last bits"
    monkeypatch.setattr(results, "vectors", lambda: vectors)
    results.record("toy", rows(), "laptop", model="m", mode="chat")
    (made_by,) = results.measured("toy").code
    assert made_by == f"{core.code_version()} {vectors}".strip()


@pytest.mark.parametrize(
    "models", [range(6), [0, 0]], ids=["of six models", "of one run"]
)
def test_processes_at_once_lose_and_double_nothing(home, models):
    children = [writer(home, i, 5, "wait") for i in models]
    for c in children:
        assert c.stdout.readline() == "ready\n"
    for c in children:
        c.stdin.write("\n"), c.stdin.flush()  # all write now
    for c in children:
        assert c.wait(120) == 0
    got, files = (
        results.measured("toy"),
        [f"laptop.model-{i}.chat.s0.parquet" for i in {*models}],
    )
    assert (
        len(got) == len(files) * 5 * 3
        and not got.duplicated(results.key_columns(got)).any()
    )
    assert names(home) == files


def test_threads_at_once(home):
    def one(i):
        results.record(
            "toy", rows(i), "laptop", i, model=f"m{i % 4}", mode="chat"
        )

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(24)))
    assert sorted(results.measured("toy").value) == list(range(24))


def test_threads_that_write_one_file_lose_nothing(home):
    with ThreadPoolExecutor(4) as pool:
        done = [
            pool.submit(
                results.record, "toy", rows(i, f"d{i}"), "laptop", model="m"
            )
            for i in range(40)
        ]
        assert all(f.result() is not None for f in done)
    assert (
        sorted(results.measured("toy").value) == list(range(40))
        and len(names(home)) == 1
    )


def test_runs_of_a_grid_over_what_is_no_column_do_not_hide_each_other(
    home, monkeypatch, capsys
):
    for n in (10, 20, 30):
        monkeypatch.setenv("MEMNB_RUN", f"own-n={n}")
        monkeypatch.setenv("MEMNB_VARIANT", f"n={n}")
        results.record("toy", rows(n), "own", model="m")
        assert results.runs("toy").value.tolist() == [n]  # each shows its own
    assert sorted(results.measured("toy").variant) == ["n=10", "n=20", "n=30"]
    assert not capsys.readouterr().err


def test_files_that_contradict_each_other_are_named(home, capsys):
    results.record("toy", rows(1), "laptop", model="m")
    folder = home / "data/papers/toy/measured"
    results._write(
        results.measured("toy").assign(value=2.0), folder / "copy.parquet"
    )
    assert len(results.measured("toy")) == 1
    assert (
        "copy.parquet and laptop.m.-.s0.parquet have other numbers"
        in capsys.readouterr().err
    )


def test_a_picture_that_cannot_be_drawn_leaves_the_old_one(tmp_path):
    from memnb import plots

    file, fig = tmp_path / "a.png", plots.placeholder("nothing")
    plots.to_png(fig, file)
    whole = file.read_bytes()

    def torn(part, **kw):
        part.write_bytes(whole[:50])
        raise OSError("no space left")

    fig.savefig = torn
    with pytest.raises(OSError, match="no space"):
        plots.to_png(fig, file)
    assert file.read_bytes() == whole and [*tmp_path.iterdir()] == [file]


@pytest.mark.parametrize(
    "index, how, printed",
    [
        (None, {}, False),
        (None, dict(index=True), True),
        (["x", "y"], {}, True),
        (["x", "y"], dict(index=False), False),
        (pd.RangeIndex(2, name="k"), {}, True),
        (pd.RangeIndex(1, 3), {}, True),
        ([0, 1], {}, True),
    ],
)
def test_numbers_of_rows_are_not_printed_but_names_are(index, how, printed):
    from memnb.plots import to_html

    table = pd.DataFrame(dict(a=[5, 6]), index=index)
    html = to_html(table, **how).data
    head, body = html.split("<tbody>")
    assert "<th>a</th>" in head and body.count("<th>") == 2 * printed
    assert re.findall("<td>(.*?)</td>", body) == ["5", "6"]


def test_a_file_cut_anywhere_is_refused(home):
    results.record(
        "toy",
        pd.concat([rows(i, f"d{i}") for i in range(40)]),
        "laptop",
        model="m",
    )
    (file,) = (home / "data/papers/toy/measured").iterdir()
    whole = file.read_bytes()
    for at in range(0, len(whole), max(1, len(whole) // 50)):
        file.write_bytes(whole[:at])
        with pytest.raises(
            ValueError, match=r"laptop.m.-.s0.parquet is no table"
        ):
            results.measured("toy")


def test_a_killed_run_leaves_the_rows_of_before(home):
    assert writer(home, 0, 2).wait(120) == 0
    before = (
        home / "data/papers/toy/measured/laptop.model-0.chat.s0.parquet"
    ).read_bytes()
    child = writer(home, 0, 7, "wait")
    assert child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGKILL)
    child.wait(60)
    assert (
        home / "data/papers/toy/measured/laptop.model-0.chat.s0.parquet"
    ).read_bytes() == before
    assert writer(home, 0, 7).wait(120) == 0
    assert len(results.measured("toy")) == 21


def test_kills_while_writing_leave_a_whole_table(home, monkeypatch):
    "A process that dies in the middle of `os.replace`'s way: the file is the old one or the new one"
    code = WRITER.replace("print('done', flush=True)", "")
    for at in ("fsync", "replace"):
        hook = f"import os; old = os.{at}\ndef die(*a):\n    os.kill(os.getpid(), 9)\nos.{at} = die\n"
        env = {**os.environ, "MEMNB_HOME": str(home)}
        done = subprocess.run(
            [sys.executable, "-c", hook + code, "0", "3"],
            env=env,
            capture_output=True,
        )
        assert done.returncode == -9
        with pytest.raises(FileNotFoundError):
            results.measured("toy")
    assert writer(home, 0, 3).wait(120) == 0
    assert len(results.measured("toy")) == 9


def test_modes_seeds_profiles_and_variants_are_kept_apart(home, monkeypatch):
    for mode in ("chat", "completion"):
        results.record("toy", rows(0.1), "laptop", model="m", mode=mode)
    for seed in (0, 1):
        results.record(
            "toy", rows(0.2), "night", model="m", seed=seed, mode="chat"
        )
    monkeypatch.setenv("MEMNB_RUN", "laptop-n=5")
    monkeypatch.setenv("MEMNB_VARIANT", "n=5")
    results.record("toy", rows(0.3), "laptop", model="m", mode="chat")
    got = results.measured("toy")
    assert len(got) == 5
    assert results.runs(got, "laptop").value.tolist() == [
        0.3
    ]  # this process is that run
    monkeypatch.delenv("MEMNB_RUN"), monkeypatch.delenv("MEMNB_VARIANT")
    assert results.runs(got, "laptop").value.tolist() == [0.1]
    assert results.runs(got).value.tolist() == [
        0.2
    ]  # the larger profile, the smaller seed


def test_equal_numbers_keep_their_line_and_their_day(home):
    results.record(
        "toy", pd.concat([rows(0.1, "a"), rows(0.2, "b")]), "laptop", model="m"
    )
    file = home / "data/papers/toy/measured" / names(home)[0]
    results._write(results._read(file).assign(when="2020-01-01"), file)
    results._WRITTEN_HERE.clear()
    results.record(
        "toy", pd.concat([rows(0.2, "b"), rows(0.15, "a")]), "laptop", model="m"
    )
    got = results.measured("toy")
    assert dict(zip(got.dataset, got.when)) == {
        "a": date.today().isoformat(),
        "b": "2020-01-01",
    }
    before = file.stat()
    results.record(
        "toy",
        pd.concat([rows(0.15, "a"), rows(0.2000001, "b")]),
        "laptop",
        model="m",
    )
    assert (
        file.stat().st_mtime_ns == before.st_mtime_ns
    )  # it says the same: not written again


@pytest.mark.parametrize(
    "names_",
    [
        ("001", "1"),
        ("256", "256.0"),
        ("a\rb", "a b"),
        ("x,y", "x"),
        ("1e3", "1000"),
    ],
)
def test_names_that_look_like_numbers_stay_names(home, names_):
    for _ in range(3):
        results.record(
            "toy",
            pd.concat([rows(i, n) for i, n in enumerate(names_)]),
            "laptop",
            model="m",
        )
    got = results.measured("toy")
    assert got.value.tolist() == [0.0, 1.0] or sorted(got.value) == [0.0, 1.0]
    assert set(got.dataset) == {n.replace("\r", "\n") for n in names_}


def test_smoke_writes_nothing(home):
    results.record("toy", rows(), "smoke", model="m")
    assert not (home / "data").exists()


def test_a_paper_cannot_lead_out_of_the_folder(home):
    with pytest.raises(ValueError, match="one word"):
        results.record("../../escape", rows(), "laptop", model="m")


@pytest.mark.parametrize("paper", papers.notebooks())
def test_shipped_rows_are_sound(paper):
    got = results.measured(paper)
    results.checked(got)
    for c in ("model", "profile", "quantity", "code", "when"):
        assert (got[c] != "").all(), c
    compound = got[
        [
            c
            for c in got
            if results.COLUMNS[c][0] is str and c not in ("text", "code")
        ]
    ].astype(str)
    assert not compound.apply(lambda x: x.str.contains("|", regex=False)).any(
        axis=None
    )


# ---- one writer for measured rows


def of_tabular():
    from memnb import tabular
    from memnb.tabular.parrot import Parrot

    sizes = dict(n=2, samples=4, preset="smoke", show=False)
    tests = ["feature_names", "sampling", "header"]
    return tabular.measure(Parrot(), "iris", tests=tests, **sizes)


def of_icl():
    from memnb import icl
    from memnb.tabular.parrot import Parrot

    words = [" ".join(f"{c}{i}" for i in range(6)) for c in "abcdef"]
    texts = pd.DataFrame(dict(text=words, label=["x", "y"] * 3))
    sizes = dict(n=2, ks=[0, 2], settings=["pairs"], repeats=1)
    return icl.measure(Parrot(), texts, **sizes)


def of_iclinf():
    from memnb import iclinf

    sizes = dict(parts=["influence"], datasets=["goods"], n=1, shots=1)
    return iclinf.PAPER.measure("smollm2", iclinf.Sizes(**sizes))


@pytest.mark.parametrize(
    "measure", [of_tabular, of_icl, of_iclinf], ids=lambda f: f.__name__
)
def test_measured_rows_are_made_by_rows(measure, monkeypatch):
    "What a paper measures is a frame that `Rows` gave, and can be recorded"
    frame = results.Rows.frame

    def marked(self, *columns):
        table = frame(self, *columns)
        table.attrs["writer"] = "Rows"
        return table

    monkeypatch.setattr(results.Rows, "frame", marked)
    made = measure()
    assert len(made) and made.attrs == dict(writer="Rows")
    filled = made.mask(made.eq("")).dropna(axis=1, how="all")
    results.checked(filled.assign(paper="p", model="m", profile="smoke"))


@pytest.mark.parametrize(
    "paper, files",
    [("tabular", {"counting.py"}), ("icl", set()), ("iclinf", set())],
)
def test_measured_rows_are_not_written_by_hand(paper, files):
    "No module has a dict of quantity and value, but for one row that says that nothing was answered"
    by_hand = set()
    for file in (core.package_dir() / paper).glob("*.py"):
        tree = papers.syntax_tree(file.read_text(encoding="utf8"))
        for node in ast.walk(tree):
            names = set()
            if isinstance(node, ast.Call):
                names = {word.arg for word in node.keywords}
                names &= {"quantity", "value"}
                if getattr(node.func, "id", "") != "dict":
                    names = set()
            if isinstance(node, ast.Dict):
                names = {getattr(key, "value", "") for key in node.keys}
            if {"quantity", "value"} <= names:
                by_hand.add(file.name)
    assert by_hand == files


# ---- confirmatory runs


def test_a_confirmatory_run_needs_registered_rules_and_a_fresh_seed(
    home, tmp_path, monkeypatch
):
    from memnb import registered
    from memnb.run import profiles

    # the rules that ship are registered
    for module in (results, registered):
        monkeypatch.setattr(
            module,
            "paper_file",
            lambda paper, name: home / "data/papers" / paper / name,
        )
    file = tmp_path / "confirm.yaml"
    monkeypatch.setattr(profiles, "profile_file", lambda name: file)
    file.write_text("- notebook: contextual\n  parameters: {seed: 1000}\n")
    with pytest.raises(
        ValueError, match="memnb register contextual` comes before"
    ):
        profiles.select("confirm")
    (home / "data/papers/contextual").mkdir(parents=True)
    (home / "data/papers/contextual/registered.csv").write_text("id,rule\n")
    (run,) = profiles.select("confirm")
    assert (
        run.parameters["seed"] == 1000
        and run.parameters["profile"] == "confirm"
    )
    file.write_text("- notebook: contextual\n  parameters: {seed: 999}\n")
    with pytest.raises(
        ValueError,
        match="a seed of 1000 or more, which no earlier run has, not 999",
    ):
        profiles.select("confirm")


def test_fresh_seeds_share_no_sequence_with_earlier_ones():
    """What `confirm` trains on was in no earlier run, by the generators that runs use

    Replicates of `contextual` are drawn by the seeds 1000 s + r, random sequences of `capacity` by s + r.
    """
    from memnb import gpt
    from memnb.contextual import grammar

    language = grammar("L2")
    # the strings of D' of a replicate, in their order
    earlier = {
        tuple(language.sample(16, [1000 * s + r, 3]))
        for s in range(3)
        for r in range(48)
    }
    fresh = {
        tuple(language.sample(16, [1000 * 1000 + r, 3])) for r in range(36)
    }
    assert (len(earlier), len(fresh)) == (3 * 48, 36) and not earlier & fresh
    tables = {
        seed: gpt.random_data(512, 64, 2048, seed=seed)
        for seed in (*range(8), 1000, 1001, 1002)
    }
    rows = {seed: {*map(bytes, table)} for seed, table in tables.items()}
    old, new = (
        set().union(*(rows[s] for s in rows if (s >= 1000) == late))
        for late in (False, True)
    )
    assert (len(old), len(new)) == (8 * 512, 3 * 512) and not old & new


def planned(paper, *names):
    "Parameters of the runs of a paper in these profiles"
    from memnb.run import profiles

    for name in names:
        for run in profiles.profile(name):
            if run.notebook == paper:
                yield run.parameters


def test_a_run_in_place_of_a_faulty_one_decides_alone():
    "The lines of `tabular` that were mended, from the rows of the later run and no others"
    from memnb import claims, registered

    (lines_of_asker,) = claims.rules("tabular").mended.values()
    (seed,) = {*lines_of_asker.values()}
    rows = results.frame_of(results.measured("tabular", confirm=True))
    alone = claims.board("tabular", rows[rows.seed == seed])
    confirmed = registered.confirmed_board("tabular")
    for claim in lines_of_asker:
        (line,) = confirmed[confirmed.id == claim].itertuples()
        (later,) = alone[(alone.id == claim) & (alone.n > 0)].itertuples()
        assert (line.value, line.low, line.high, line.n, line.verdict) == (
            later.value,
            later.low,
            later.high,
            later.n,
            later.verdict,
        )


def test_a_run_in_place_of_a_faulty_one_is_planned():
    from memnb import claims, registered

    faulty = {}
    for paper in (
        "tabular",
        "icl",
        "iclinf",
        "contextual",
        "capacity",
        "compare",
    ):
        mended = claims.rules(paper).mended
        ids = {claim.id for claim in claims.read(paper)}
        seeds = {run.get("seed") for run in planned(paper, "confirm")}
        lines = registered.confirmed_board(paper) if mended else None
        for asker, of_claims in mended.items():
            assert {*of_claims} <= ids and {*of_claims.values()} <= seeds
            for claim in of_claims:
                own = (lines.id == claim) & (lines.model == asker)
                assert own.sum() == 1
                faulty.setdefault(paper, set()).add(claim)
    assert faulty == {
        "tabular": {"diabetes", "written"},
        "capacity": {"extract-test"},
    }


EARLIER = "laptop", "night"


def told_of_new_texts(top, paper):
    "Numbers in the line of a paper in the guide's table of texts that had been used before"
    text = (top / "docs/registered.md").read_text(encoding="utf-8")
    _, _, table = text.partition("| paper | what was drawn | used before |")
    (line,) = re.findall(rf"^\| `{paper}` \|.*\| (.*) \|$", table, re.M)
    return [int(n.replace(",", "")) for n in re.findall(r"[\d,]*\d", line)]


def test_texts_of_new_pairs_are_in_no_earlier_one(top):
    "And the guide says of how many"
    from memnb import plant

    def names_of(*profiles):
        models = [run.get("model") for run in planned("icl", *profiles)]
        named = [m for m in models if str(m).startswith("planted:file")]
        return {m.removeprefix("planted:") for m in named}

    texts = {
        name: {*plant.truth(name).text}
        for name in names_of("confirm") | names_of(*EARLIER)
    }
    fresh = {name for name in names_of("confirm") if "swapped" not in name}
    assert len(fresh) == 4
    new = set()
    for name in fresh:
        # the halves of one pair share their texts, and no two pairs share one
        assert texts[name] == texts[f"{name}-swapped"]
        assert not new & texts[name]
        new |= texts[name]
    earlier = names_of(*EARLIER)
    assert {"file", "file-1"} <= earlier
    again = {text for name in earlier for text in texts[name]} & new
    assert told_of_new_texts(top, "icl") == [len(again), len(new)]


def test_the_guide_says_which_rows_of_the_second_planting_had_been_in_the_first(
    top,
):
    from memnb import plant

    (forms,) = [
        run["forms"]
        for run in planned("tabular", "confirm")
        if run.get("forms")
    ]
    first, second = plant.truth("forms"), plant.truth(forms[0])
    both = first.merge(second, on=["source", "text"], suffixes=("", "_new"))
    numbers = [len(both), len(second)]
    for source in ("iris", "openml-diabetes"):
        of_source = second.source == source
        numbers += [(both.source == source).sum(), of_source.sum()]
    alike = both[both.times == both.times_new]
    numbers += [len(alike), (alike.times == 0).sum()]
    wide, wide_again = plant.truth("wide"), plant.truth("wide-1")
    assert {*wide.text}.isdisjoint(wide_again.text)
    numbers += [0, len(wide_again)]
    assert told_of_new_texts(top, "tabular") == numbers


def test_the_guide_says_how_many_private_prompts_had_been_drawn_before(top):
    from memnb.iclinf import PAPER
    from memnb.iclinf.prompts import audit_prompts

    def prompts(*profiles):
        drawn = set()
        for run in planned("iclinf", *profiles):
            given = {k: v for k, v in run.items() if k not in ("model", "seed")}
            sizes = PAPER.sizes(given)
            if "audit" in (sizes.parts or ["audit"]):
                seed = run.get("seed") or 0
                drawn |= {*audit_prompts(s=sizes.subset, seed=seed)}
        return drawn

    new = prompts("confirm")
    again = prompts(*EARLIER) & new
    assert told_of_new_texts(top, "iclinf") == [len(again), len(new)]


def beginnings_of_worlds(*profiles):
    "(profile, texts of a world or pool) -> beginnings of its texts, for each collection, seed and number of texts"
    from memnb.capacity.text import corpus
    from memnb.compare import PAPER
    from memnb.compare.worlds import dealt_texts

    found = {}
    for profile in profiles:
        for run in planned("compare", profile):
            first = run.get("seed") or 0
            given = {k: v for k, v in run.items() if k not in ("model", "seed")}
            sizes = PAPER.sizes(given)
            if not sizes.n:
                continue
            worlds = [(world, sizes.n) for world in sizes.worlds]
            worlds += [(sizes.worlds[0], n) for n in sizes.pools]
            for world, n in worlds:
                source, _, number, *before = world.split()
                key = profile, n, source, number
                if source != "20news" or key in found:
                    continue
                seed = first + int(number)
                pool = source
                if sizes.apart > 1:
                    pool = dealt_texts(source, sizes.apart, seed % sizes.apart)
                size = n, n, sizes.vocab, sizes.length
                for earlier in before:
                    pool = corpus(pool, *size, seed=int(earlier)).unread
                texts = corpus(pool, *size, seed=seed).texts
                # what is one text, as for `dealt_texts`; no tokenizer cuts one before
                found[key] = {" ".join(t.split())[:100] for t in texts}
    return found


@pytest.mark.slow  # tokenizers of all pools: two minutes
def test_the_guide_says_which_texts_of_new_pools_had_been_in_earlier_ones(top):
    new = [*beginnings_of_worlds("confirm").values()]
    assert [len(texts) for texts in new] == 8 * [512]
    assert len(set().union(*new)) == 8 * 512
    shared = {
        (profile, n, number): [len(pool & texts) for texts in new]
        for (profile, n, _, number), pool in beginnings_of_worlds(
            *EARLIER
        ).items()
    }
    of_verdicts = [shared["night", 512, number] for number in "0123"]
    assert of_verdicts == 4 * [8 * [0]]
    largest = shared["night", 1024, "0"]
    of_two = [number for number in largest if number]
    small = shared["laptop", 240, "0"]
    pool = shared["laptop", 480, "0"]
    assert told_of_new_texts(top, "compare") == [
        *(0, 8 * 512, 1024),
        *(*of_two, 512, 240),
        *(min(small), max(small), 512, 480),
        *(min(pool), max(pool)),
    ]


@pytest.mark.slow  # half a minute
def test_the_guide_says_that_news_items_had_been_drawn_before(top):
    from memnb.contextual import grammar
    from memnb.contextual.retraining import followed, paired_sets

    language = grammar("news")

    def items(*profiles):
        drawn = set()
        for run in planned("contextual", *profiles):
            if "news" not in run.get("natural", []):
                continue
            size = run["natural_size"]
            for repeat in range(run["natural_repeats"]):
                number = 1000 * run["seed"] + repeat
                three = followed(language, size, 3, [], number)
                sets, _ = paired_sets(
                    language, three, size, number, False, True
                )
                drawn |= {text for strings in sets for text in strings}
        return drawn

    new = items("confirm")
    assert new <= items(*EARLIER)
    items_of_language = len(language.rules["S"])
    told = [len(new), items_of_language]
    assert told_of_new_texts(top, "contextual") == told


def test_beside_the_board_stands_nothing_of_lengths_that_were_not_measured():
    "As after a run of the profile `laptop`, whose rows of 1x16 and 1x8 take the place of the long trainings"
    from memnb import capacity

    rows = capacity.judged(results.measured("capacity"))
    without = rows[~((rows.part == "steps") & (rows.config == "1x16"))]
    beside = capacity.beside_board(without)
    of_steps = beside[beside.quantity == "over what as many steps fill"]
    assert {*of_steps.model} == {"1x32"}


def test_tables_of_capacity_say_which_term_is_smaller_and_what_gives_alpha():
    "Of min(alpha P, H): 1x32 on 384 sequences of 64 tokens has alpha P = 230,452 and H = 270,336"
    from memnb import capacity

    rows = capacity.judged(results.measured("capacity"))
    printed = results.reported("capacity")
    lengths = capacity.tab2(rows, printed)
    of_32 = lengths["expected (1x32)"].to_dict()
    below = dict.fromkeys((4, 8, 16, 32), "H")
    assert of_32 == below | dict.fromkeys((64, 128, 256), "αP")
    vocabularies = capacity.tab3(rows, printed)
    assert vocabularies.loc[2048, "expected (1x32)"] == "αP"
    # an error of zero that follows from the choice of alpha is none
    errors = [*lengths.filter(like="α ="), *vocabularies.filter(like="α =")]
    assert len(errors) == 4
    both = pd.concat([lengths, vocabularies])
    assert (both.filter(like="α =") == "gives α").to_numpy().sum() == 2
    assert not both.isin([0.0]).to_numpy().any()


def test_table_1_of_capacity_tells_formats_apart():
    from memnb import capacity

    rows = capacity.judged(results.measured("capacity"))
    table = capacity.tab1(rows, results.reported("capacity"))
    assert not table.duplicated(["model", "precision"]).any()
    assert {*table.precision} == {"fp32", "bf16, in use", "bf16, stored"}


@pytest.mark.parametrize("profile", ["", "laptop", None])
def test_table_of_equal_passes(profile):
    "A line a setting and a mean with its interval; none without rows"
    from memnb import capacity

    measured = results.measured("capacity")
    rows = capacity.judged(measured, profile) if profile != "" else measured[:0]
    table = capacity.tab_x_passes(rows)
    if profile == "":
        assert not len(table)
        return
    means = table[table.setting == "mean of all"]
    assert [*means.varied] == ["length, S", "vocabulary, V"]
    assert (means["95 %"] != "").all()
    settings = table.drop(means.index)
    assert (settings["95 %"] == "").all()
    assert settings.groupby("varied").setting.nunique().tolist() == [4, 5]
