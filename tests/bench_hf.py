"""How fast the local engine is, against `generate` of transformers and against llama.cpp: `python tests/bench_hf.py`

All three read SmolLM2 out of the same GGUF file, on the same number of threads (OMP_NUM_THREADS, default 2), and continue
the same prompts greedily. llama.cpp computes with the 4-bit weights of the file, the other two with the float32 numbers that
these stand for: another arithmetic, a seventh of the bytes, and not always the same tokens. It is no dependency of memnb.
To have it in the race, build it into an environment of its own and name that environment's Python:

    python -m venv /some/where && /some/where/bin/pip install llama-cpp-python
    MEMNB_LLAMA=/some/where/bin/python python tests/bench_hf.py

Parts can be named. `one`: a prompt by itself, a table, demonstrations, and a
question. `sixteen` and `many`, which is 64: several prompts, ours in one call, generate in padded batches of 16, llama.cpp one after the other
(it keeps what a prompt shares with the one before). `long`: reading a prompt of 2,000 tokens. `busy`: with another
process on one of the cores, against one thread on an idle core: to be run on an otherwise idle machine. Seconds of writing
are those of the whole call without those of a call for one token. `cpu` before the parts measures processor time, which
with OMP_NUM_THREADS=1 can be compared on a machine that has other work, too. `--width 32` holds both sides to AVX2.

Measured on 26 November 2026 in CPU seconds of one thread beside other work, answers out of blocks of 4 bits, against
`generate`: writing behind one prompt .30 against 2.13 (table), .29 against 1.52 (demonstrations), .25 against 1.93
(question). 16 prompts 2.06 against 6.01, which is the rate of reading (60 % are wanted). Tokens are those of `generate` in
all of them. Reading 2,133 tokens 6.1 against 7.2. Against llama.cpp 0.3.36 (a factor of 2 is wanted), seconds of two
idle cores: .40, .13 and .34 for the three single prompts, where ours takes .21, .16 and .15; 4.4 and 1.1 for 16.

28 November 2026, CPU seconds of one thread of a Xeon with AVX-512, on a machine with more work than cores. With
`--width 32`, so that both sides have AVX2 alone: 16 prompts 3.8 against 7.7, 2.0 times, at .8 of the rate of reading;
one prompt 1.00 against 2.82 (table), .84 against 2.09 (demonstrations) and 1.04 against 2.67 (question), 2.5 to 2.8
times. A minute before, with AVX-512, one prompt was 3.5 to 3.8 times as fast. On idle cores with AVX2 it was measured
as 5 to 7 times before; why less was gained here is not known.

28 November 2026, seconds of two idle cores of an EPYC of family 26 with `--width 32`: one prompt .23 against 1.87 (table),
.20 against 1.36 (demonstrations), .21 against 1.86 (question), 6.7 to 9.1 times; 16 prompts 1.5 against 3.8, 2.5 times,
at .8 of the rate of reading.

`busy` with float32 weights, seconds of two threads beside another process and of one thread by itself (half the speed is wanted): one prompt 2.4
and 1.9, 16 prompts 10.7 and 5.5. With GOMP_SPINCOUNT=100000, as it was before, 11.4 and 1.4, and 46 and 7.4.
"""

import json
import os
import sys
import time


def serve(gguf, threads):
    "What the other Python does: for each line with prompts, tokens allowed and end tokens, one with seconds and answers"
    from llama_cpp import Llama

    m = Llama(
        gguf,
        n_ctx=8192,
        n_threads=threads,
        n_threads_batch=threads,
        verbose=False,
    )
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        prompts, size, ends = json.loads(line)
        m.reset()  # nothing is left of the call before
        start, said = [f() for f in (time.perf_counter, time.process_time)], []
        for ids in prompts:
            own = []
            for t in m.generate(ids, temp=0.0, top_k=1):
                own.append(t)
                if t in ends or len(own) == size:
                    break
            said.append(own)
        spent = [
            f() - a
            for f, a in zip((time.perf_counter, time.process_time), start)
        ]
        print(json.dumps([spent, said]), flush=True)


if __name__ == "__main__" and sys.argv[1:2] == ["serve"]:
    sys.exit(serve(sys.argv[2], int(sys.argv[3])))

os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("GOMP_SPINCOUNT", "3000")

import width

# before torch
WIDTH = width.asked()

import subprocess
from functools import cache
from importlib.util import find_spec

from bench_tabular import fresh, plain, prefix_prompts, row, show

TOKENS, CLOCK = 48, [time.perf_counter]
THREADS = int(os.environ["OMP_NUM_THREADS"])


def seconds(f):
    "Seconds that a call takes by the chosen clock, and what it returns"
    start = CLOCK[0]()
    out = f()
    return CLOCK[0]() - start, out


@cache
def ready():
    "Our model, and the library's with the same weights"
    from transformers import AutoModelForCausalLM

    from memnb import hf, lm

    m = lm.load("smollm2", device="cpu")
    return m, hf.quiet(
        lambda: AutoModelForCausalLM.from_pretrained(
            hf.fetch(), dtype="float32"
        ).eval()
    )


@cache
def llama():
    "A process with llama.cpp on the same file; None where there is none"
    from memnb import core, hf

    named = os.environ.get("MEMNB_LLAMA")
    if not named and not find_spec("llama_cpp"):
        print(
            "llama.cpp is missing: its lines are left out; how to add it is at the head of this file",
            file=sys.stderr,
        )
        return None
    words = [
        named or sys.executable,
        __file__,
        "serve",
        str(core.wheel_file(*hf.SMOLLM2)),
        str(THREADS),
    ]
    p = subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    if p.stdout.readline().strip() != '"ready"':
        sys.exit(f"llama.cpp does not start:\n{p.communicate()[1][-2000:]}")
    return p


def ours(prompts, size):
    "Seconds and texts of the local engine, on an empty store"
    from memnb import lm

    m, _ = ready()
    with fresh() as path:
        m.store = lm.Store(path)
        return seconds(lambda: m.generate(prompts, max_tokens=size))


def theirs(prompts, size):
    "Seconds and texts of transformers"
    m, net = ready()
    return seconds(lambda: plain(net, m.tok, m, prompts, size, together=16))


def of_llama(prompts, size):
    "Seconds and texts of llama.cpp"
    m, _ = ready()
    llama().stdin.write(
        json.dumps([[m.encode(p) for p in prompts], size, [*m.eos]]) + "\n"
    )
    llama().stdin.flush()
    spent, said = json.loads(llama().stdout.readline())
    kw = dict(skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return spent[CLOCK[0] is time.process_time], [
        m.tok.decode(s, **kw) for s in said
    ]


def writing(side, prompts, size=TOKENS, repeats=1):
    "Least seconds of writing, and the texts; one token is given away to reading"
    first, whole = [
        [side(prompts, n) for _ in range(repeats)] for n in (1, size)
    ]
    return min(s for s, _ in whole) - min(s for s, _ in first), whole[0][1]


def compare(what, prompts, wanted, f=writing, **kw):
    "A line for each of the others; returns our seconds and tokens"
    (b, y), m = f(ours, prompts, **kw), ready()[0]
    count = sum(len(m.tok(t, add_special_tokens=False).input_ids) for t in y)
    rival = [("generate", theirs, None)] + [("llama.cpp", of_llama, wanted)] * (
        llama() is not None
    )
    true = None
    for name, side, want in rival:
        a, x = f(side, prompts, **kw)
        true = x if true is None else true  # what float32 `generate` says
        same = ["yes" if y == true else "no"][0] if side is theirs else ""
        k = sum(p == q for p, q in zip(x if side is of_llama else y, true))
        who = "of llama.cpp " if side is of_llama else ""
        row(
            f"{what}, against {name}",
            a,
            b,
            want,
            f"{same} {k}/{len(y)} texts {who}as fp32 generate".strip(),
        )
    return b, count


def table_prompts(n, lines=8):
    "Beginnings of Titanic: the header and some lines from places of their own"
    from memnb import data

    text = data.load("titanic").text.split("\n")
    return [
        "\n".join([text[0], *text[4 * i + 1 : 4 * i + 1 + lines]]) + "\n"
        for i in range(n)
    ]


def demonstrations():
    "A prompt of the paper on in-context learning: the first piece of a text that is to be completed, behind 25 texts"
    from memnb import icl, plant

    t = icl.task(
        plant.news().assign(text=lambda d: d.text.str.strip()), n=1, k=25
    )
    return icl.replication_prompts(t, 25, "full", ready()[0].mode)[:1]


def one():
    "One prompt"
    from memnb.lm import chat

    ask = chat(
        "", [], "Write a short story about a lighthouse keeper who finds a map."
    )
    for what, prompts in (
        ("table", table_prompts(1)),
        ("demonstrations", demonstrations()),
        ("question", [ask]),
    ):
        b, n = compare(f"one prompt, {what}", prompts, 0.5, repeats=3)
        print(f"   ours: {n} tokens, {n / b:.0f} a second", file=sys.stderr)


def batch(k, wanted=None):
    "Several prompts, also against the rate at which a prompt is read"
    m, _ = ready()
    text = prefix_prompts(m.tok, 1, 2000)
    read = min(ours(text, 1)[0] for _ in range(2)) / len(m.encode(text[0]))
    b, n = compare(
        f"{k} prompts", table_prompts(k, 2), None, repeats=2
    )  # short ones: reading is taken off
    print(f"   ours: {n} tokens, {n / b:.0f} a second", file=sys.stderr)
    row(
        f"{k} prompts, {n} tokens, against reading as many",
        n * read,
        b,
        wanted,
        "",
    )


def long():
    "A long prompt, and one token"
    m, _ = ready()
    prompts = prefix_prompts(m.tok, 1, 2000)

    def f(side, prompts):
        return min((side(prompts, 1) for _ in range(3)), key=lambda x: x[0])

    b, _ = compare(
        f"reading {len(m.encode(prompts[0]))} tokens", prompts, None, f
    )
    print(
        f"   ours: {len(m.encode(prompts[0])) / b:.0f} tokens a second",
        file=sys.stderr,
    )


def busy():
    "Another process computes on one of the cores"
    import torch

    for k in (1, 16):
        prompts = table_prompts(k)
        torch.set_num_threads(1)
        a, x = writing(ours, prompts)
        torch.set_num_threads(THREADS)
        other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        try:
            b, y = writing(ours, prompts)
        finally:
            other.kill()
        same = "yes" if x == y else "no"
        row(
            f"{k} prompts beside another process, {THREADS} threads, against one idle core",
            a,
            b,
            0.5,
            same,
        )


PARTS = dict(
    one=one,
    sixteen=lambda: batch(16, 0.6),
    many=lambda: batch(64),
    long=long,
    busy=busy,
)


def main(names):
    "Run the named parts, or all"
    if names[:1] == ["cpu"]:
        CLOCK[0], names = time.process_time, names[1:]
    if wrong := [n for n in names if n not in PARTS]:
        sys.exit(f"no part {wrong[0]!r}: {', '.join(PARTS)}")
    from memnb import fourbit

    width.begin(WIDTH)
    (
        ours(["one, two,"], 4),
        theirs(["one, two,"], 2),
    )  # weights are read and packed outside of the clock
    print(
        "ours: few tokens",
        "out of 4-bit blocks"
        if fourbit._decoder(ready()[0].fast)
        else "with float32 weights",
        file=sys.stderr,
    )
    try:
        for n in names or PARTS:
            PARTS[n]()
    finally:
        if p := llama():
            p.kill()
    return show()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
