"`memnb ask` that is killed and begun again, and `memnb run hubble` where the hub is out of reach."

import csv
import os
import subprocess
import sys
from collections import Counter

import pytest
from test_server import KEY, Server, wait

from memnb.run.ours import is_table

N = 2000  # texts
WORDS = "a long list of things that somebody has written down for later"


@pytest.fixture
def server():
    srv = Server()
    yield srv
    srv.close()


def ask(server, folder, out):
    "The command in a process of its own, with a store of its own"
    argv = [
        "openai:loud",
        "mine.csv",
        "--prefixes",
        "8",
        "--no-influence",
        "--out",
        out,
    ]
    argv += ["--server", f"url={server.url}/v1", "--server", "mode=completion"]
    own = {
        k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")
    }
    own |= dict(OPENAI_API_KEY=KEY, MEMNB_STORE=str(folder / f"{out}.sqlite"))
    call = [sys.executable, "-m", "memnb.run.cli", "ask", *argv]
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return subprocess.Popen(call, cwd=folder, env=own, **pipes)


@pytest.mark.slow
def test_asking_that_is_killed_goes_on(server, tmp_path):
    "No text is asked about twice but the few that were on their way, and the page is that of one run"
    rows = [dict(text=f"{i} {WORDS}") for i in range(N)]
    with open(tmp_path / "mine.csv", "w", newline="") as f:
        csv.DictWriter(f, ["text"]).writerows([dict(text="text"), *rows])
    server.delay = 0.005
    p = ask(server, tmp_path, "killed.html")
    wait(lambda: len(server.asked) > N // 3 or p.poll() is not None, 120)
    p.kill()
    p.communicate()
    before = len({p for p, *_ in server.asked if p[0].isdigit()})
    assert (
        p.returncode < 0
        and before < N
        and not (tmp_path / "killed.html").exists()
    )
    server.delay = 0
    said = ask(server, tmp_path, "killed.html").communicate(timeout=300)
    prompts = [
        p for p, *_ in server.asked if p[0].isdigit()
    ]  # others ask what it can do
    twice = Counter(Counter(prompts).values())
    assert set(twice) <= {1, 2} and sum(twice.values()) == N
    assert (
        twice[2] < 0.1 * before
        and f"{before - twice[2]:,} are answered already" in said[1]
    )
    ask(server, tmp_path, "whole.html").communicate(timeout=300)
    for end in ("html", "csv"):
        killed, whole = (
            tmp_path / f"{name}.{end}" for name in ("killed", "whole")
        )
        assert killed.read_bytes() == whole.read_bytes()
    assert (tmp_path / "whole.csv").read_text().count("a long list") == N
    assert is_table(tmp_path / "whole.csv", tmp_path / "whole.html")


def test_a_pair_out_of_reach_is_said_and_costs_nothing(tmp_path):
    "Without a network `memnb run hubble` ends in one line that says what to do, and leaves what was measured"
    kept = tmp_path / "data/papers/compare/measured/night.parquet"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"rows of another run")
    own = dict(
        MEMNB_HOME=str(tmp_path),
        HF_HUB_OFFLINE="1",
        HF_HOME=str(tmp_path / "hub"),
    )
    call = [sys.executable, "-m", "memnb.run.cli", "run", "hubble", "--quiet"]
    p = subprocess.run(
        call, env=os.environ | own, capture_output=True, text=True
    )
    (line,) = [l for l in p.stderr.splitlines() if "FileNotFoundError" in l]
    assert p.returncode == 1 and "Traceback" not in p.stderr
    assert (
        "hf download" in line
        and "-p pair=hf:FOLDER,hf:FOLDER -p insertions=FILE" in line
    )
    assert [*kept.parent.iterdir()] == [
        kept
    ] and kept.read_bytes() == b"rows of another run"


def test_what_a_measure_is_where_a_server_gives_texts_alone(server, tmp_path):
    "Its influence is of answers and not of log-probabilities, and an empty cell says why it is empty"
    (tmp_path / "mine.csv").write_text(f"text\n1 {WORDS}\n2 {WORDS}\n")
    argv = ["ask", "openai:loud", "mine.csv", "--prefixes", "8"]
    asked = ["--server", f"url={server.url}/v1"]
    own = {
        k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")
    }
    own |= dict(OPENAI_API_KEY=KEY, MEMNB_STORE=str(tmp_path / "s.sqlite"))
    run = subprocess.run(
        [sys.executable, "-m", "memnb.run.cli", *argv, *asked],
        cwd=tmp_path,
        env=own,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    line = next(x for x in run.stdout.splitlines() if x.startswith("influen"))
    assert line.split("  ")[-1].strip() == "it has none"
    page = (tmp_path / "ask.html").read_text()
    assert "share of the beginnings whose answer changes" in page
    assert "how much more likely the second half" not in page
