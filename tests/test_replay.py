"`memnb replay`: a page from the answers that ship, in a process of its own, and nothing is computed."

import gzip
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from test_repo import TOP

from memnb import core


def memnb(*words, **env):
    r = subprocess.run(
        [sys.executable, "-m", "memnb.run.cli", *map(str, words)],
        capture_output=True,
        text=True,
        env=os.environ | dict(PYTHONPATH=str(TOP)) | env,
    )
    return r.returncode, r.stdout, r.stderr


@pytest.mark.slow
def test_a_page_from_the_answers_that_ship(tmp_path, home):
    "The page is executed and reported, the answers are taken in once, no model has to answer; again it takes no run"
    env = dict(MEMNB_STORE=str(tmp_path / "store.sqlite"))
    call = (
        "replay",
        "--only",
        "capacity",
        "--workers",
        "1",
        "--out",
        tmp_path / "runs",
    )
    code, out, err = memnb(*call, **env)
    assert code == 0 and "1 done" in out, out + err
    assert "has to compute" not in err and "were asked for" not in err, err
    assert (tmp_path / "runs/replay/capacity.ipynb").is_file() and (
        tmp_path / "runs/replay/report.html"
    ).is_file()
    assert not list(home.rglob("*.csv")) and not list(
        home.rglob("*.png")
    )  # what ships stays as it is
    new = [
        l.split()[-2]
        for l in out.splitlines()
        if l.startswith(("smollm2@", "planted:"))
    ]
    assert len(new) > 2 and {*new} != {"0"}
    code, out, err = memnb(*call, **env)
    assert code == 0 and "1 skipped" in out, out + err
    assert {
        l.split()[-2]
        for l in out.splitlines()
        if l.startswith(("smollm2@", "planted:"))
    } == {"0"}


def test_a_damaged_file_stops_it(tmp_path, home, monkeypatch):
    "Before a page runs and before an answer is taken in"
    from memnb.run import cli, replay
    from memnb.store import Store

    monkeypatch.setenv("MEMNB_STORE", str(tmp_path / "store.sqlite"))
    shipped = shutil.copytree(core.share_dir("answers"), tmp_path / "answers")
    file = sorted(shipped.glob("*.gz"))[-1]
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    monkeypatch.setattr(replay, "share_dir", lambda kind: tmp_path / kind)
    monkeypatch.setattr(cli, "_run", lambda *a, **kw: 1 / 0)
    assert cli.main(["replay", "--out", str(tmp_path / "runs")]) == 2
    assert len(Store()) == 0 and not (tmp_path / "runs").exists()


def test_the_model_says_what_ships(tmp_path):
    "Answers that ship are those of the model as it is read and computed now: the shortest, asked anew of an empty store"
    from memnb import lm

    m = lm.load("smollm2", store=lm.Store(tmp_path / "empty.sqlite"))
    lines = gzip.decompress(
        (core.share_dir("answers") / "pages-smollm2.jsonl.gz").read_bytes()
    ).splitlines()
    rows = sorted(
        (json.loads(l) for l in lines),
        key=lambda d: len(json.dumps([d["prompt"], d["answer"]])),
    )
    scored, said = (
        [d for d in rows if d["settings"]["request"] == r][:8]
        for r in ("logprobs", "generate")
    )
    assert len(scored) == len(said) == 8 and {d["model"] for d in rows} == {
        m.id
    }
    for d, now in zip(
        scored, m.logprobs(*map(list, zip(*(d["prompt"] for d in scored))))
    ):
        np.testing.assert_allclose(now, d["answer"], atol=1e-3)
    for d in said:
        s = d["settings"]
        assert m.generate(
            [d["prompt"]], max_tokens=s["max_tokens"], stop=s["stop"]
        ) == [d["answer"]]
    assert m.calls == 16  # all of them were computed


@pytest.mark.slow
def test_answers_are_those_of_transformers(tmp_path):
    "Tables and demonstrations as the pages ask for them: the tokens of `generate` in float32"
    import torch

    from memnb import lm

    lines = gzip.decompress(
        (core.share_dir("answers") / "pages-smollm2.jsonl.gz").read_bytes()
    ).splitlines()
    rows = sorted(
        (json.loads(l) for l in lines),
        key=lambda d: len(json.dumps([d["prompt"], d["answer"]])),
    )
    greedy = [
        d
        for d in rows
        if d["settings"]["request"] == "generate"
        and not d["settings"]["temperature"]
    ]
    rows = [d for d in greedy if d["settings"]["max_tokens"] >= 20][:4]
    m = lm.load(
        "smollm2", device="cpu", store=lm.Store(tmp_path / "empty.sqlite")
    )
    net = m.plain()
    for d in rows:
        s, ids = d["settings"], torch.tensor([m.encode(d["prompt"])])
        with torch.inference_mode():
            said = m.generate(
                [d["prompt"]], max_tokens=s["max_tokens"], stop=s["stop"]
            )
            own = net.generate(
                ids,
                max_new_tokens=s["max_tokens"],
                do_sample=False,
                pad_token_id=0,
            )[0, ids.shape[1] :]
        want = m.tok.decode(
            own, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        for stop in s["stop"]:
            want = want.split(stop)[0]
        assert said == [want] == [d["answer"]]
    assert len(rows) == 4
