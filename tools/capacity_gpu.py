"""Rows of Table 1 of `capacity` on a GPU, in ten minutes: many tiny GPTs side by side, in captured graphs.

Needs torch and numpy, nothing else. `python tools/capacity_gpu.py --minutes 10 --out rows` goes through a list of
trainings, keeps the state of each (stop it, start it again, and it goes on), and writes
`rows/capacity_gpu.csv` after each, in the columns of memnb. `python tools/capacity_gpu.py --record rows` (with memnb)
checks them and writes them to `data/papers/capacity/measured`, as the run `gpu`. `--toy` tries it all on a CPU in seconds.

A model is GPT-2's: pre-LN, learned positions, GELU, biases, tied head, a learned start in the place of a first token.
Replicates of one model train together, each with its own weights and data: their products are batched (`bmm`).
"""

import argparse
import csv
import hashlib
import json
import math
import os
import time
from datetime import date
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

V, S, FILL, SEEDS = 2048, 64, 4.8, 5
# model, steps, batch: capacities that have ended, by twice the steps; then more rows of Table 1; then the paper's batch
PLAN = [
    ("1x16", 12_800, 64),
    ("1x16", 25_600, 64),
    ("1x32", 12_800, 64),
    ("1x32", 25_600, 64),
    ("2x32", 12_800, 64),
    ("2x32", 25_600, 64),
    ("4x32", 12_800, 64),
    ("4x32", 25_600, 64),
    ("1x32", 51_200, 64),
    ("2x64", 12_800, 64),
    ("2x64", 25_600, 64),
    ("2x64", 51_200, 64),
    ("1x16", 51_200, 64),
    ("1x64", 12_800, 64),
    ("1x64", 25_600, 64),
    ("1x32", 102_400, 64),
    ("1x64", 51_200, 64),
    # planned: from here on no machine has run any of them so far
    ("8x32", 12_800, 64),
    ("1x32", 3_200, 2048),
    ("4x64", 12_800, 64),
    ("1x128", 12_800, 64),
    ("8x64", 12_800, 64),
    ("2x128", 12_800, 64),
    # more models to their ends, and one of a million parameters
    ("1x24", 12_800, 64),
    ("1x24", 25_600, 64),
    ("1x24", 51_200, 64),
    ("1x48", 12_800, 64),
    ("1x48", 25_600, 64),
    ("1x48", 51_200, 64),
    ("3x32", 12_800, 64),
    ("3x32", 25_600, 64),
    ("3x32", 51_200, 64),
    ("2x48", 12_800, 64),
    ("2x48", 25_600, 64),
    ("2x48", 51_200, 64),
    ("1x64", 102_400, 64),
    ("4x128", 12_800, 64),
    ("4x128", 25_600, 64),
]
COLUMNS = (
    "part setting config precision vocab length sequences run x quantity value "
    "model mode profile seed code when"
).split()


def weights(L, d, vocab, length, seeds, device):
    "Weights of one model for each seed, as tensors with the seeds in front"

    each = [torch.Generator().manual_seed(s) for s in seeds]

    def normal(*shape):
        w = torch.stack([0.02 * torch.randn(shape, generator=g) for g in each])
        return w.to(device).requires_grad_()

    def full(value, *shape):
        return torch.full(
            (len(seeds), *shape), value, device=device, requires_grad=True
        )

    out = {}
    out["wte"], out["wpe"] = normal(vocab, d), normal(length, d)
    for i in range(L):
        for name, a, b in (
            ("qkv", d, 3 * d),
            ("proj", d, d),
            ("up", d, 4 * d),
            ("down", 4 * d, d),
        ):
            out[f"{i}{name}"], out[f"{i}{name}b"] = normal(a, b), full(0.0, b)
        for name in ("ln1", "ln2"):
            out[f"{i}{name}"], out[f"{i}{name}b"] = full(1.0, d), full(0.0, d)
    out["ln"], out["lnb"] = full(1.0, d), full(0.0, d)
    return out


def losses(w, ids, L, d):
    "Loss of every token in nats: models x sequences x tokens"
    M, B, T = ids.shape
    rows = torch.arange(M, device=ids.device)[:, None, None]
    tokens = F.pad(
        w["wte"][rows, ids[:, :, :-1]], (0, 0, 1, 0)
    )  # place 0 reads no token: a learned start
    x = tokens + w["wpe"][:, None, :T]
    heads = max(1, d // 8)

    def norm(x, name):
        return (
            F.layer_norm(x, (d,)) * w[name][:, None, None]
            + w[name + "b"][:, None, None]
        )

    def linear(x, name):
        y = torch.baddbmm(w[name + "b"][:, None], x.flatten(1, 2), w[name])
        return y.view(M, B, T, -1)

    for i in range(L):
        qkv = linear(norm(x, f"{i}ln1"), f"{i}qkv").view(
            M * B, T, 3, heads, d // heads
        )
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + linear(a.transpose(1, 2).reshape(M, B, T, d), f"{i}proj")
        x = x + linear(
            F.gelu(linear(norm(x, f"{i}ln2"), f"{i}up"), approximate="tanh"),
            f"{i}down",
        )
    z = torch.bmm(norm(x, "ln").flatten(1, 2), w["wte"].transpose(1, 2))
    return F.cross_entropy(
        z.flatten(0, 1), ids.flatten(), reduction="none"
    ).view(M, B, T)


class Training:
    "Replicates of one model, with a state that can be kept and a step that is captured once"

    def __init__(self, name, steps, batch, seeds, device, vocab=V, length=S):
        self.name, self.steps, self.seeds, self.device = (
            name,
            steps,
            list(seeds),
            device,
        )
        self.L, self.d = map(int, name.split("x"))
        self.w = weights(self.L, self.d, vocab, length, self.seeds, device)
        self.params = sum(p[0].numel() for p in self.w.values())
        self.n = round(FILL * self.params / (length * math.log2(vocab)))
        self.batch = min(batch, self.n)
        sets = [
            np.random.default_rng([s, self.n]).integers(
                vocab, size=(self.n, length)
            )
            for s in seeds
        ]
        self.data = torch.tensor(np.stack(sets), device=device)
        self.peak, self.done, self.spent = min(0.64 / self.d, 0.04), 0, 0.0
        self.m = {k: torch.zeros_like(p) for k, p in self.w.items()}
        self.v = {k: torch.zeros_like(p) for k, p in self.w.items()}
        self.at = torch.zeros(
            len(self.seeds), self.batch, dtype=torch.long, device=device
        )
        self.rate, self.fix1, self.fix2 = (
            torch.zeros((), device=device) for _ in range(3)
        )
        self.rng = [np.random.default_rng([s, 7]) for s in self.seeds]
        self.left, self.graph, self.vocab, self.length = (
            None,
            None,
            vocab,
            length,
        )

    def step(self):
        "One step of Adam on the batch at `at`, without a word to the CPU"
        rows = torch.arange(len(self.seeds), device=self.device)[:, None]
        loss = (
            losses(self.w, self.data[rows, self.at], self.L, self.d)
            .mean((1, 2))
            .sum()
        )
        grads = torch.autograd.grad(loss, list(self.w.values()))
        w, m, v = (list(d.values()) for d in (self.w, self.m, self.v))
        with (
            torch.no_grad()
        ):  # all weights at once: a kernel for each takes longer
            torch._foreach_lerp_(m, grads, 0.05)
            torch._foreach_lerp_(v, torch._foreach_mul(grads, grads), 0.005)
            size = torch._foreach_mul(v, self.fix2)
            torch._foreach_sqrt_(size)
            torch._foreach_add_(size, 1e-8)
            step = torch._foreach_mul(m, self.rate * -self.fix1)
            torch._foreach_div_(step, size)
            torch._foreach_add_(w, step)

    def capture(self):
        "The step as a graph: launching kernels one by one would take longer than they do"
        side = torch.cuda.Stream()
        keep = self.state()
        with torch.cuda.stream(side):
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.step()
        self.load(keep)

    def advance(self, steps):
        "Some steps: every sequence once a pass, in an order of its own for each replicate"
        began = time.perf_counter()
        for _ in range(steps):
            if self.left is None or self.left.shape[1] < self.batch:
                new = np.stack([r.permutation(self.n) for r in self.rng])
                self.left = (
                    new
                    if self.left is None
                    else np.concatenate([self.left, new], 1)
                )
            now, self.left = (
                self.left[:, : self.batch],
                self.left[:, self.batch :],
            )
            self.at.copy_(torch.tensor(now))
            self.done += 1
            warm = max(1, round(0.3 * self.steps))
            far = (self.done - warm) / max(1, self.steps - warm)
            half = 0.5 * (1 + math.cos(math.pi * max(0.0, far)))
            self.rate.fill_(
                self.peak * (self.done / warm if self.done < warm else half)
            )
            self.fix1.fill_(1 / (1 - 0.95**self.done))
            self.fix2.fill_(1 / (1 - 0.995**self.done))
            self.graph.replay() if self.graph else self.step()
        if self.device == "cuda":
            torch.cuda.synchronize()
        self.spent += time.perf_counter() - began

    def bits(self):
        "Bits memorized by each replicate"
        total = torch.zeros(
            len(self.seeds), dtype=torch.float64, device=self.device
        )
        with torch.no_grad():
            for x in self.data.split(256, 1):
                total += losses(self.w, x, self.L, self.d).double().sum((1, 2))
        return self.n * self.length * math.log2(
            self.vocab
        ) - total.cpu().numpy() / math.log(2)

    def state(self):
        "All that a training needs to go on"
        tensors = [
            {k: p.detach().clone() for k, p in d.items()}
            for d in (self.w, self.m, self.v)
        ]
        rng = [r.bit_generator.state for r in self.rng]
        return dict(
            tensors=tensors,
            done=self.done,
            spent=self.spent,
            rng=rng,
            left=self.left,
        )

    def load(self, state):
        "Go on from a state"
        with torch.no_grad():
            for own, kept in zip(
                (self.w, self.m, self.v), state["tensors"], strict=True
            ):
                for k, p in own.items():
                    p.copy_(kept[k])
        self.done, self.spent, self.left = (
            state["done"],
            state["spent"],
            state["left"],
        )
        for r, s in zip(self.rng, state["rng"], strict=True):
            r.bit_generator.state = s


def rows_of(t, bits):
    "A training as rows of memnb: bits by the number of steps, a replicate each"
    same = dict(
        part="ladder",
        setting=f"batch {t.batch}",
        config=t.name,
        precision="fp32",
        quantity="bits",
    )
    same |= dict(
        vocab=t.vocab,
        length=t.length,
        sequences=t.n,
        x=t.steps,
        model="gpt",
        mode="train",
    )
    code = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:8]
    same |= dict(
        profile="gpu",
        seed=t.seeds[0],
        code=f"capacity_gpu+{code}",
        when=f"{date.today()}",
    )
    return [
        same | dict(run=s, value=round(float(b), 6))
        for s, b in zip(t.seeds, bits, strict=True)
    ]


def keep(file, write):
    "Write a file whole or not at all"
    part = file.with_suffix(".part")
    write(part)
    os.replace(part, file)


def run(plan, minutes, out, seeds, device, vocab=V, length=S, chunk=200):
    "Train what is not finished, as far as the time goes; returns the rows"
    out, end, rows = Path(out), time.perf_counter() + 60 * minutes, []
    out.mkdir(parents=True, exist_ok=True)
    for name, steps, batch in plan:
        done = out / f"{name}-{steps}-{batch}.json"
        if done.exists():
            rows += json.loads(done.read_text())
            continue
        if time.perf_counter() > end:
            break
        t, file = (
            Training(name, steps, batch, seeds, device, vocab, length),
            done.with_suffix(".pt"),
        )
        if device == "cuda":
            t.capture()
        if file.exists():
            t.load(torch.load(file, map_location=device, weights_only=False))
        saved = time.perf_counter()
        while t.done < t.steps and time.perf_counter() < end:
            t.advance(min(chunk, t.steps - t.done))
            if time.perf_counter() > saved + 20:
                keep(file, partial(torch.save, t.state()))
                saved = time.perf_counter()
        if t.done < t.steps:
            keep(file, partial(torch.save, t.state()))
            print(f"{name}: {t.done} of {t.steps} steps, kept", flush=True)
            break
        bits = t.bits()
        rows += (new := rows_of(t, bits))
        keep(done, partial(Path.write_text, data=json.dumps(new)))
        file.unlink(missing_ok=True)
        write_csv(out / "capacity_gpu.csv", rows)
        bpp = bits / t.params
        print(
            f"{name}, {steps} steps of {t.batch}: {bpp.mean():.3f} bits per parameter, {t.spent:.0f} s",
            flush=True,
        )
    return rows


def write_csv(file, rows):
    "Rows as a table, whole or not at all"

    def write(f):
        with open(f, "w", newline="", encoding="utf-8") as to:
            w = csv.DictWriter(to, COLUMNS)
            w.writeheader()
            w.writerows(rows)

    keep(file, write)


def record(out):
    "Hand the rows to memnb, which checks them and writes them"
    import pandas as pd

    from memnb import results

    d = pd.read_csv(Path(out) / "capacity_gpu.csv")
    made = ["model", "mode", "profile", "seed", "code", "when"]
    who = dict(model="gpt", mode="train")
    rows = results.record(
        "capacity", d.drop(columns=made), "gpu", int(d.seed.min()), **who
    )
    print(f"{len(rows)} rows recorded")


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--minutes", type=float, default=10)
    p.add_argument("--out", default="capacity_gpu")
    p.add_argument("--seeds", type=int, default=SEEDS)
    p.add_argument("--toy", action="store_true", help="tiny sizes, on the CPU")
    p.add_argument(
        "--record",
        metavar="OUT",
        help="write the rows of a run to memnb's folder",
    )
    a = p.parse_args()
    if a.record:
        record(a.record)
    elif a.toy:
        run(
            [("1x8", 60, 8), ("2x8", 60, 8)],
            a.minutes,
            a.out,
            range(2),
            "cpu",
            64,
            16,
            chunk=20,
        )
    else:
        run(
            PLAN,
            a.minutes,
            a.out,
            range(a.seeds),
            "cuda" if torch.cuda.is_available() else "cpu",
        )
