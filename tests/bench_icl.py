"""How fast many-shot replication is, against one `generate` call per instance: `python tests/bench_icl.py`

Both sides use the same weights and give the same tokens. Calls one by one cost the same each, so the baseline asks
four instances and its time is multiplied (said in the table). `cell` is 200 instances of a data set in one setting at
k = 100, asked as a run asks them: packaged Reuters, and WNLI and TREC where they are at hand. `labels` scores the
labels of the task, with a row for each query against a row for each label of each query. Parts: `cell`, `ratio`,
`labels`, `cost`.

Measured on 23 November 2026 in CPU seconds of one thread (OMP_NUM_THREADS=1): 16 instances at k = 50 take 215 and 20.8,
10.3 times; 64 at k = 100 take 1677 and 67.9, 24.7 times. 6 and 15 times are wanted. On 25 November 2026 in seconds of
two idle cores: 83.2 and 6.2, 13.4 times; 652 and 26.4, 24.6 times. The cell of Reuters: 42 s (39 two days before), 90 are
wanted.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("GOMP_SPINCOUNT", "3000")

import width

# before torch
WIDTH = width.asked()

import sys

from bench_tabular import clock, fresh, plain, row, show

TOKENS = 24  # of an answer


def ready(k, n):
    "A task, its prompts, and the packaged model"
    from memnb import icl, lm, plant

    t = icl.task(
        plant.news().assign(text=lambda d: d.text.str.strip()), n=n, k=k
    )
    m = lm.load("smollm2", device="cpu")
    return t, icl.replication_prompts(t, k, "full", m.mode), m


def ours(m, prompts):
    "All prompts in one call, on an empty store"
    from memnb import lm

    with fresh() as path:
        m.store = lm.Store(path)
        return m.generate(prompts, max_tokens=TOKENS)


def ratio():
    "One call for all instances against a call for each"
    from transformers import AutoModelForCausalLM

    from memnb import hf

    net = hf.quiet(
        lambda: AutoModelForCausalLM.from_pretrained(
            hf.fetch(), dtype="float32"
        ).eval()
    )
    for k, n, every, wanted in ((50, 16, 4, 6), (100, 64, 16, 15)):
        _, prompts, m = ready(k, n)
        b, y = clock(lambda: ours(m, prompts))
        a, x = clock(lambda: plain(net, m.tok, m, prompts[::every], TOKENS))
        same = sum(p == q for p, q in zip(x, y[::every]))
        scaled = f", baseline from {len(x)} of {n}" if every > 1 else ""
        row(
            f"k = {k}, {n} instances{scaled}",
            a * every,
            b,
            wanted,
            f"{'yes' if same == len(x) else 'no'}, {same}/{len(x)} texts",
        )


def labels():
    "Labels behind their prompt, against one prompt and label at a time"
    from memnb import icl, lm

    for k, n in ((0, 36), (25, 36)):
        t, _, m = ready(k, n)
        prompts, found = icl.performance_prompts(t, k, m.mode), {}
        asked = [(p, f"{l}\n") for p in prompts for l in t.labels]
        for name, size in (("single", 1), ("ours", len(asked))):
            with fresh() as path:
                m.store = lm.Store(path)
                found[name] = clock(
                    lambda size=size, m=m, asked=asked: [
                        x
                        for i in range(0, len(asked), size)
                        for x in m.logprobs(
                            *map(list, zip(*asked[i : i + size]))
                        )
                    ]
                )
        (a, x), (b, y) = found["single"], found["ours"]
        far = max(abs(p - q) for u, v in zip(x, y) for p, q in zip(u, v))
        row(
            f"labels, k = {k}, {n} instances, {len(t.labels)} labels",
            a,
            b,
            2,
            f"to {far:.0e} nats",
        )


def cell():
    "Two hundred instances in one setting at k = 100"
    from memnb import icl, lm, plant

    m = lm.load("smollm2", mode="completion", device="cpu")
    news = plant.news().assign(text=lambda d: d.text.str.strip())
    for name, data in (("news", news), ("wnli", "wnli"), ("trec", "trec")):
        try:
            t = icl.task(
                data, 210, 100
            )  # a text that occurs twice is asked once
        except FileNotFoundError:
            continue
        t.queries, t.telling = t.queries[:200], t.telling[:200]
        with fresh() as path:
            m.store = lm.Store(path)
            seconds, found = clock(
                lambda: icl.replicate(m, t, 100, max_tokens=TOKENS)
            )
        row(
            f"cell: {name}, k = 100, {len(found)} instances",
            None,
            seconds,
            "< 90 s",
            "",
        )


def cost():
    "How the time grows with demonstrations and with instances"
    for k, n in (
        (0, 32),
        (25, 32),
        (50, 32),
        (100, 32),
        (100, 1),
        (100, 8),
        (100, 64),
    ):
        _, prompts, m = ready(k, n)
        seconds, _ = clock(lambda: ours(m, prompts))
        row(f"ours, k = {k}, {n} instances", None, seconds, None, "")


PARTS = dict(cell=cell, ratio=ratio, labels=labels, cost=cost)


def main(names):
    "Run the named parts, or all"
    width.begin(WIDTH)
    for n in names or PARTS:
        PARTS[n]()
    return show()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
