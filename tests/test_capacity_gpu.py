"The script for a machine with a GPU, in toy sizes on the CPU: its model is memnb's, it goes on where it was, memnb reads it."

import json
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))
import capacity_gpu as script  # noqa: E402

TOY = dict(device="cpu", vocab=64, length=16)


def test_its_model_is_that_of_memnb():
    from memnb import gpt

    t = script.Training("2x16", 10, 8, [0, 3], **TOY)
    assert t.params == gpt.Config(2, 16, 64, 16).n_params
    got = script.losses(t.w, t.data[:, :5], t.L, t.d)
    for k in range(2):
        net = gpt.module(gpt.Config(2, 16, 64, 16))
        own = {name: p[k].detach() for name, p in t.w.items()}
        with torch.no_grad():
            for name, w in gpt.parts(net.config, net.weights).items():
                layer, _, kind = name.rpartition(".")
                kind, _, bias = kind.partition("_")
                here = layer + dict(fc="up", out="down", lnf="ln").get(
                    kind, kind
                )
                norm = "ln" in kind
                w.copy_(
                    torch.stack([own[here], own[f"{here}b"]])
                    if norm
                    else own[here + bias]
                )
            x = t.data[k, :5]
            want = -net(x).log_softmax(-1).gather(-1, x[..., None])[..., 0]
        assert torch.allclose(got[k], want, atol=1e-5)


def test_it_learns_as_memnb_does():
    "Bits after the same number of steps, from other first weights"
    from memnb import gpt

    t = script.Training("1x16", 1500, 16, range(2), **TOY)
    t.advance(1500)
    c = gpt.Config(1, 16, 64, 16)
    sets = [t.data[k].numpy() for k in range(2)]
    fits = gpt.fit([c, c], sets, steps=1500, batch=16, lr=t.peak)
    assert np.allclose(t.bits(), [f.bits for f in fits], rtol=0.1)


def test_a_run_that_is_stopped_goes_on(tmp_path):
    plan = [("1x8", 40, 8)]
    whole = script.run(plan, 1, tmp_path / "whole", range(2), chunk=10, **TOY)
    first = script.run(plan, 0, tmp_path / "parts", range(2), chunk=10, **TOY)
    assert first == []  # no time left
    t = script.Training("1x8", 40, 8, range(2), **TOY)
    t.advance(13)
    torch.save(t.state(), tmp_path / "parts/1x8-40-8.pt")
    rest = script.run(plan, 1, tmp_path / "parts", range(2), chunk=10, **TOY)
    assert [r["value"] for r in rest] == pytest.approx(
        [r["value"] for r in whole], rel=1e-4
    )
    assert not (tmp_path / "parts/1x8-40-8.pt").exists()
    assert json.loads((tmp_path / "parts/1x8-40-8.json").read_text()) == rest


def test_memnb_reads_its_rows(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMNB_HOME", str(tmp_path))
    from memnb import results
    from memnb.capacity.bits import endings

    script.run(
        [("1x8", s, 8) for s in (20, 40)],
        1,
        tmp_path / "rows",
        range(2),
        chunk=20,
        **TOY,
    )
    script.record(tmp_path / "rows")
    (file,) = (tmp_path / "data/papers/capacity/measured").glob("*.parquet")
    rows = results.rows_in(file.parent)
    e = endings(rows, "ladder").iloc[0]
    assert (e.config, e.steps, e.runs) == ("1x8", 40, 2) and e.gain > 0
