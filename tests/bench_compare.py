"""How fast the small world is, and `ask`: all measures out of one reading of each text: `python tests/bench_compare.py`

Parts can be named: `world`, `ask`, `ratio`. `world` trains 32 models on halves of 600 texts as the profile `laptop` does and computes
all rows of it; two idle cores should need less than six minutes. `ask` takes a number of texts behind it (1000 by default): texts of some 60 tokens are asked
of SmolLM2 on an empty store; two idle cores should need less than five minutes. `ratio` is the same number of texts, or 24 by
default, in one run: each measure that SmolLM2 can be asked for, with a planted model as its reference, by calls of its own
(greedy answers behind each prefix; the log-probabilities of both models for each measure that uses them), against one `ask`. Nothing is scaled
from a smaller run to a larger one.

Measured on 23 November 2026 on two idle cores: the world in 78 s (139 CPU seconds), `ask` about 1,000 texts of 56,717 tokens,
each read twice in a row for its influence, in 183 s (361 CPU seconds; 92 s and 182 with influence=False); on a busy machine
(load 3 to 5) 330 s. The ratio of the measures by themselves (six columns then), with two models, to one `ask`: 12 texts 20.0 s and 4.2 s, 4.8 times, the
same numbers to 6e-07. Five minutes and 3 times are wanted.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("GOMP_SPINCOUNT", "3000")

import width

# before torch
WIDTH = width.asked()

import sys
import time

from bench_tabular import clock, fresh, row, show

PREFIXES, WORDS = (8, 16, 32), 44  # words make some 60 tokens


def ready(n):
    "SmolLM2, and different newsgroup texts long enough for all prefixes"
    from memnb import lm, plant

    m = lm.load("smollm2", device="cpu")

    def size(t):
        return len(m.tok(t, add_special_tokens=False).input_ids)

    texts = [
        t
        for t in dict.fromkeys(
            plant.ordinary(min(3 * n + 50, 6000), words=WORDS)
        )
        if 48 <= size(t) <= 80
    ][:n]
    if len(texts) < n:
        raise ValueError(f"there are {len(texts)} such texts, not {n}")
    return m, texts, sum(map(size, texts))


def ours(m, texts, reference=None):
    "One table, on an empty store"
    from memnb import lm
    from memnb.compare import ask

    with fresh() as path:
        for x in (m, reference):
            if x is not None:
                x.store = lm.Store(path)
        return ask(m, texts, reference=reference, prefixes=PREFIXES)


def warm(*models):
    "What a process does once is outside of the clock"
    from memnb import lm

    for m in models:
        with fresh() as path:
            m.store = lm.Store(path)
            m.tokens(["The first text that a process reads."])


def world_part(n):
    "The small world, trained and put to all measures"
    from memnb.compare import small_world, world_rows

    was = time.process_time()
    seconds, w = clock(lambda: small_world(n=n or 600))
    more, rows = clock(lambda: world_rows(w))
    row(
        f"world: {len(w.texts)} texts, {len(w.shown)} models",
        None,
        seconds + more,
        "< 360 s" if len(w.texts) == 600 else None,
        f"{len(rows)} rows, {time.process_time() - was:.0f} CPU s",
    )


def ask_part(n):
    "All measures that one model without a reference gives"
    m, texts, tokens = ready(n or 1000)
    warm(m)
    was = time.process_time()
    seconds, t = clock(lambda: ours(m, texts))
    cpu, wanted = (
        time.process_time() - was,
        "< 300 s" if len(texts) == 1000 else None,
    )
    row(
        f"ask, {len(texts)} texts, {tokens} tokens, SmolLM2",
        None,
        seconds,
        wanted,
        f"{len(t.columns) - 3} columns, {cpu:.0f} CPU s",
    )


def alone(m, reference, texts):
    "Each measure by calls of its own, each on an empty store: column -> values"
    from memnb import lm
    from memnb.capacity import oracle_bits

    def bits(model):
        with fresh() as path:
            model.store = lm.Store(path)
            return oracle_bits(model, texts)

    def extracted():
        bos, ids = (
            m.tok.bos_token,
            [m.tok(t, add_special_tokens=False).input_ids for t in texts],
        )
        found = [0] * len(texts)
        for k in PREFIXES:
            with fresh() as path:
                m.store = lm.Store(path)
                said = m.generate(
                    [bos + m.tok.decode(i[:k]) for i in ids],
                    max_tokens=max(map(len, ids)) - k,
                )
            for j, (s, i) in enumerate(zip(said, ids)):
                found[j] += s.startswith(m.tok.decode(i[k:])) / len(PREFIXES)
        return found

    sizes = [len(m.tok(t, add_special_tokens=False).input_ids) for t in texts]

    def loss(model):
        return [b * 0.6931471805599453 / n for b, n in zip(bits(model), sizes)]

    def influence():
        at = [
            i[: len(i) // 2]
            for i in (
                m.tok(t, add_special_tokens=False).input_ids for t in texts
            )
        ]
        first = [m.tok.decode(i) for i in at]
        rest = [t[len(f) :] for t, f in zip(texts, first)]
        with fresh() as path:
            m.store = lm.Store(path)
            prompts = [f"{t}\n{f}" for t, f in zip(texts, first)], first
            a, b = (
                m.logprobs([m.tok.bos_token + x for x in p], rest)
                for p in prompts
            )
        return [sum(x) / len(x) - sum(y) / len(y) for x, y in zip(a, b)]

    return dict(
        extractable=extracted,
        influential=influence,
        loss=lambda: loss(m),
        bits=lambda: [max(0, b - a) for a, b in zip(bits(m), bits(reference))],
        ratio=lambda: [b - a for a, b in zip(loss(m), loss(reference))],
    )


def ratio(n):
    "One reading for all measures against each measure by itself"
    from memnb import lm

    m, texts, tokens = ready(n or 24)
    reference = lm.load("planted:news", device="cpu")
    warm(m, reference)
    b, t = clock(lambda: ours(m, texts, reference))
    spent, far = 0.0, 0.0
    for name, f in alone(m, reference, texts).items():
        a, values = clock(f)
        spent, far = (
            spent + a,
            max(
                far,
                max(
                    abs(x - y) / max(1, abs(x)) for x, y in zip(values, t[name])
                ),
            ),
        )
        row(f"{name} by itself", None, a, None, "")
    row(
        f"5 measures of {len(texts)} texts, {tokens} tokens, 2 models",
        spent,
        b,
        3,
        f"{'yes' if far < 1e-3 else 'no'}, to {far:.0e}",
    )


PARTS = dict(world=world_part, ask=ask_part, ratio=ratio)


def main(words):
    "Run the named parts, or all; a number belongs to the part before it"
    todo = []
    for w in words or PARTS:
        if w.isdigit():
            todo[-1][1] = int(w)
        else:
            todo.append([w, None])
    width.begin(WIDTH)
    for name, n in todo:
        PARTS[name](n)
    return show()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
