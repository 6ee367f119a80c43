"""How fast leave-one-out scoring and the audit are, against plain ways of doing the same: `python tests/bench_iclinf.py`

Parts can be named: `score audit target neighbours accountant`. `--cpu` counts processor time of one thread instead of
seconds, which says the same on a machine that others use. All baselines run in turns with ours in one process.

`score`: n + 1 plain forward passes in one padded batch, with the weights of the library's model, against one packed
pass; medians of five turns with 4 shots, of three with 16. Prompt i begins like the full one only up to exemplar i and
all behind it must be read anew, so that about half of the tokens are left (422 of 776 and 3,619 of 7,488): sharing
gives a factor of 1.8 and 2.1, and what is beyond is padding, the order of the weights, and the scores of a vocabulary
that are computed after the last token alone. `audit`: one text of T = 40 tokens from s = 50 prompts; the baseline runs
all prompts again at each token. That is the longer the later the token, so it is timed at every tenth token from the
fifth on and the time is multiplied (said in the table); the tokens of the baseline are compared at those. `target`:
one row of Table 4 as the profile `laptop` measures it, four texts in both readings with the games of the attack; two
idle cores should need less than three minutes. `neighbours`: each of 50 neighbours built from its 49 prompts, against
the closed form in both readings; medians of fifteen turns, since one takes milliseconds. The model has no part in it.
What cannot be saved is to read the scores twice (the mean of all prompts, then what each adds to it) and one power of
two for each score: about a third of our time, timed one by one, on one thread.

Measured on 26 November 2026 with `--cpu`: leaving one out 4.2 and 4.9 times as fast with 4 and 16 shots (2.69 and
0.639 s, 27.98 and 5.717 s), audit 79 times (648 and 8.2 s), neighbours 19 to 21 times (0.12 and 0.006 s), the accountant
0.026 s. With two threads on an idle machine neighbours were 11 times as fast before the last change, since the
baseline shares its longer sums between two cores better than ours its short ones.

27 November 2026, two idle cores of a Xeon with AVX-512, which reads the padded batch faster: leaving one out 1.9 and 2.4
times as fast (with torch and oneDNN held to AVX2 1.6 and 1.7), with `--cpu` 2.2 and 2.4; neighbours 10 times, the
accountant 0.03 s. The 2.5 and 3 that are wanted are not reached there.

28 November 2026, `--cpu` on the same kind of machine with other work, both sides held to AVX2 (`--width 32`): 2.2 and
2.4 times (2.96 and 1.33 s, 28.1 and 11.6 s). The figures for AVX2 above held torch to it, but not MKL, which takes the
products of matrices in float32, and so are none of AVX2. About half of the tokens are left, so that sharing alone gives
1.8 and 2.1; 2.5 and 3 are not reached here either.

28 November 2026, two idle cores of an EPYC of family 26: 4.3 and 4.7 times with AVX-512 (1.38 and .318 s, 14.4 and
3.06 s), 2.7 and 3.0 with `--width 32` (1.38 and .506 s, 14.6 and 4.86 s; the second is 2.999). torch is as fast with
either width there.
"""

import os
import sys

CPU = "--cpu" in sys.argv
os.environ.setdefault("OMP_NUM_THREADS", "1" if CPU else "2")
os.environ.setdefault("GOMP_SPINCOUNT", "3000")

import width

# before torch
WIDTH = width.asked()

import tempfile
import time

import bench_tabular
import numpy as np
import torch
from bench_tabular import clock, race, row, show

S, T, EVERY = 50, 40, 10


def ready():
    "Our model on an empty store, and the library's with the same weights"
    from transformers import AutoModelForCausalLM

    from memnb import hf, lm

    net = hf.quiet(
        lambda: AutoModelForCausalLM.from_pretrained(
            hf.fetch(), dtype="float32"
        ).eval()
    )
    return lm.load(
        "smollm2",
        device="cpu",
        store=lm.Store(f"{tempfile.mkdtemp()}/s.sqlite"),
    ), net


def batched(net, ids):
    "Log-probabilities after each prompt, by one padded batch"
    w = max(map(len, ids))
    x = torch.tensor([[0] * (w - len(i)) + i for i in ids])
    mask = torch.tensor([[0] * (w - len(i)) + [1] * len(i) for i in ids])
    at = (mask.cumsum(-1) - 1).clamp(min=0)
    with torch.inference_mode():
        return (
            net(input_ids=x, attention_mask=mask, position_ids=at)
            .logits[:, -1]
            .log_softmax(-1)
        )


def score():
    "Label log-probabilities of one query with all exemplars and with each one left out"
    from memnb import iclinf

    m, net = ready()
    p = iclinf.pool("news", 4)
    at = iclinf.label_tokens(m, p.labels).first
    for shots, wanted, turns in ((4, 2.5, 5), (16, 3, 3)):
        prompts = iclinf.case(p, p.queries.text[0], iclinf.draw(p, 0, shots))[
            : shots + 1
        ]
        ids = [m.encode(x) for x in prompts]

        def packed():
            found = dict(m.read(ids))
            return torch.cat(
                [found[i][-1:] for i in range(len(ids))]
            ).log_softmax(-1)

        (
            packed(),
            batched(net, ids[:1]),
        )  # ready, and the weights of the library's model are read
        a, b, x, y = race(
            lambda: batched(net, ids)[:, at], lambda: packed()[:, at], turns
        )
        far = max(float((u - v).abs().max()) for u, v in zip(x, y))
        row(
            f"leave one out, {shots} shots, {sum(map(len, ids))} tokens",
            a,
            b,
            wanted,
            f"{'yes' if far < 1e-4 else 'no'}, {far:.0e} nats at most",
        )


def audit():
    "One text of Algorithm 1"
    from memnb import iclinf

    m, net = ready()
    prompts = iclinf.audit_prompts(s=S)
    m.next_logits(["x"])  # weights are read outside of the clock
    b, text = clock(
        lambda: iclinf.write(
            iclinf.Ensemble(m, prompts, T), 1.42, tokens=T, seed=0, norms=()
        )
    )
    ids = text.ids
    draws, spent, same = np.random.default_rng(0).random(len(ids)), 0.0, 0
    read = [m.encode(p) for p in prompts]
    batched(net, read[:1])  # and the weights of the library's model are read
    times = range(min(5, len(ids) - 1), len(ids), EVERY)
    for t in times:

        def again():
            z = iclinf.clipped(batched(net, [r + ids[:t] for r in read]), 10)
            return int(
                np.searchsorted(
                    np.cumsum((z.mean(0) / 1.42).softmax(0).numpy()),
                    draws[t],
                    side="right",
                )
            )

        seconds, token = clock(again)
        spent, same = spent + seconds, same + (token == ids[t])
    tried = len(times)
    row(
        f"audit, s = {S}, {len(ids)} tokens, baseline from {tried} of them",
        spent * len(ids) / tried,
        b,
        33,
        f"{'yes' if same == tried else 'no'}, {same}/{tried} tokens",
    )


def target():
    "One target of Table 4: four texts of T = 40 tokens, all orders, both readings, 800 games"
    from memnb import iclinf

    m, _ = ready()
    m.next_logits(["x"])
    seconds, t = clock(
        lambda: iclinf.audit(
            m, "Table 4", [1], s=S, tokens=T, sequences=4, games=800
        )
    )
    n = t[t.quantity == "tokens"].value.iloc[0]
    row(
        f"one target, 4 texts, {n:.0f} tokens",
        None,
        seconds,
        "< 180 s",
        "yes" if n <= 4 * T else "no",
    )


def neighbours():
    "Divergences of all neighbours of one token, order 2"
    from memnb import iclinf

    z = iclinf.clipped(
        3 * torch.randn(S, 49152, generator=torch.Generator().manual_seed(0)),
        10,
    )

    def built(norm):
        full, worst = (z.sum(0) / S).log_softmax(0), 0.0
        for i in range(S):
            q = (
                torch.cat([z[:i], z[i + 1 :]]).sum(0)
                / (S if norm == "s" else S - 1)
            ).log_softmax(0)
            pairs = [(full, q), (q, full)]
            worst = max(
                worst, *(torch.logsumexp(2 * a - b, 0).item() for a, b in pairs)
            )
        return worst

    for norm in ("s", "s-1"):

        def ours():
            return float(iclinf.neighbour_rdp(z, 1.0, [2], norm)[0])

        ours()
        a, b, x, y = race(lambda: built(norm), ours, 15)
        far = abs(x[0] - y[0])
        row(
            f"{S} neighbours of one token, {norm}",
            a,
            b,
            10,
            f"{'yes' if far < 1e-9 else 'no'}, {far:.0e} nats",
        )


def accountant():
    "All parameters and orders of Tables 4 to 6"
    from memnb import iclinf, results

    rep = results.reported("iclinf")
    seconds, t = clock(lambda: iclinf.solved(rep))
    right = ((t.value.round(2) - t.printed).abs() < 1e-9) & (
        t.alpha == t.printed_alpha
    )
    row(
        f"accountant, {len(t)} rows of Tables 4 to 6",
        None,
        seconds,
        "< 0.1 s",
        f"{'yes' if right.all() else 'no'}, {right.sum()}/{len(t)} rows as printed",
    )


PARTS = dict(
    score=score,
    audit=audit,
    target=target,
    neighbours=neighbours,
    accountant=accountant,
)


def main(names):
    "Run the named parts, or all"
    if CPU:
        bench_tabular.CLOCK = time.process_time
        names = [n for n in names if n != "--cpu"]
    if wrong := [n for n in names if n not in PARTS]:
        sys.exit(f"no part {wrong[0]!r}: {', '.join(PARTS)}")
    width.begin(WIDTH)
    for n in names or PARTS:
        PARTS[n]()
    return show()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
