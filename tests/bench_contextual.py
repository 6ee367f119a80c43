"""How fast memnb trains what Figure 2 needs, against GPT2LMHeadModel with the Hugging Face Trainer: `make bench`

Three strings of L2, three repeats, with and without each string: twelve trainings of 50 epochs on 256 strings, batches
of 8, linear schedule with a warm-up of 5 %, losses of the three strings before training and after every epoch. Both
sides start from the same weights, see the same batches at the same rates, and must give the same losses. The Trainer
trains one repeat (four trainings); its seconds are multiplied by three, which the table says. `whole` trains all
twelve, `short` five epochs of one repeat on both sides. `seeds` is what a page needs: ten repeats of L2, L4 and L4m
with 64 strings, with and without each string and with controls, seven trainings each; `seed` one repeat of each, times
ten. Both say seconds, and CPU seconds, which other programs on the machine change less. A program to run by hand, not
a test; a few minutes.

`--width 32` holds both sides to AVX2.

28 November 2026, two idle cores of an EPYC of family 26: `part` 16.3 times with AVX-512 (152.0 s, one repeat of the
Trainer times three, and 9.3 s), 6.1 times with `--width 32` (116.7 and 19.1 s; 9 are wanted). With vectors of half the
width ours takes twice as long, and the Trainer no longer. What limits it is arithmetic: the engine is at 74 % of the peak
there (`bench_capacity.py --width 32 steps`), so that at the whole peak it would be 8.2 times.

Measured on 25 November 2026 on two idle cores: `seeds` in 54 s (91 CPU seconds; 51 and 88 two days before); all of
Figure 2, one repeat of the Trainer times three, 176 s and 16.0 s, 11.0 times (`short`, two days before: 12.2).
"""

import os

os.environ.setdefault("GOMP_SPINCOUNT", "3000")

import width

# before torch
WIDTH = width.asked()

import sys
import time

import numpy as np
import torch

from memnb import contextual, core, gpt, nets

SIZE, EPOCHS, BATCH, LR, CONFIG, WANTED = 256, 50, 8, 0.002, "2x32", 9
SECONDS, CORES = 60, 2  # wanted of `seeds`
G = contextual.grammar("L2")
THREE = contextual.followed(G, SIZE)


def sets_of(repeat):
    return contextual.paired_sets(G, THREE, SIZE, repeat, published=True)[0]


def ours(repeats, epochs):
    "Losses of the followed strings, repeats x trainings x epochs x strings"
    return [
        contextual.train_tiny(
            contextual.Trainings(
                G, sets_of(r), list(THREE.text), epochs, BATCH, LR, r
            ),
            CONFIG,
        )
        for r in repeats
    ]


# --- the Trainer ---


def library_model(c, seed):
    "GPT2LMHeadModel of the same size, without dropout, with our first weights"
    from transformers import GPT2Config, GPT2LMHeadModel

    net = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=c.vocab,
            n_positions=c.length,
            n_embd=c.d,
            n_layer=c.layers,
            n_head=c.heads,
            resid_pdrop=0,
            embd_pdrop=0,
            attn_pdrop=0,
            bos_token_id=None,
            eos_token_id=None,
        )
    )
    t, names = (
        net.transformer,
        [
            "ln_1",
            "attn.c_attn",
            "attn.c_proj",
            "ln_2",
            "mlp.c_fc",
            "mlp.c_proj",
        ],
    )
    own = [
        t.wte.weight,
        t.wpe.weight,
        *(
            p
            for b in t.h
            for n in names
            for p in b.get_submodule(n).parameters()
        ),
        *t.ln_f.parameters(),
    ]
    flat, at = torch.tensor(gpt.init_weights(c, seed)), 0
    with torch.no_grad():
        for p in own:
            p.copy_(flat[at : at + p.numel()].view(p.shape))
            at += p.numel()
    return net


def token_losses(net, x):
    "Loss of each token; the first one is predicted from its position alone (all strings of L2 are equally long)"
    seen = torch.nn.functional.pad(net.transformer.wte(x[:, :-1]), (0, 0, 1, 0))
    logits = net(inputs_embeds=seen).logits
    return torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), x.flatten(), reduction="none"
    ).view(x.shape)


class Batches(torch.utils.data.Sampler):
    "The order in which ours sees the strings: another one each epoch"

    def __init__(self, n, seed):
        self.n, self.seed, self.epoch = n, seed, 0

    def __len__(self):
        return self.n

    def __iter__(self):
        per = -(-self.n // BATCH)
        rows = gpt.batch_order(
            self.n, BATCH, self.epoch * per, per, self.seed
        ).ravel()
        self.epoch += 1
        return iter(rows[rows >= 0].tolist())


def trainer(strings, epochs, seed):
    "Losses of the followed strings, epochs x strings, and the seconds of the training with its evaluations"
    from transformers import Trainer, TrainerCallback, TrainingArguments

    ids, watch = (
        torch.tensor(contextual.token_ids(G, s))
        for s in (strings, list(THREE.text))
    )
    c = contextual.model_config(CONFIG, G, ids.shape[1])
    net, out, steps = library_model(c, seed), [], epochs * -(-len(ids) // BATCH)
    rates = gpt.Schedule(
        steps, BATCH, LR, contextual.WARMUP, schedule="linear"
    ).rates(0, steps)
    opt = torch.optim.AdamW(
        net.parameters(), lr=1.0, betas=(0.95, 0.995), weight_decay=0.0
    )
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda k: float(rates[min(k, steps - 1)])
    )

    class Own(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, **kw):
            return token_losses(model, inputs["input_ids"]).mean()

        def _get_train_sampler(self, *a):
            return Batches(len(ids), seed)

    class Watch(TrainerCallback):
        def look(self):
            with torch.no_grad():
                out.append(token_losses(net, watch).mean(1).tolist())

        def on_train_begin(self, *a, **kw):
            self.look()

        def on_epoch_end(self, *a, **kw):
            self.look()

    args = TrainingArguments(
        "unused",
        per_device_train_batch_size=BATCH,
        num_train_epochs=epochs,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        max_grad_norm=0.0,
        seed=seed,
    )
    run = Own(
        net,
        args,
        train_dataset=[dict(input_ids=r) for r in ids],
        callbacks=[Watch()],
        optimizers=(opt, sched),
    )
    began = time.perf_counter()
    run.train()
    return np.array(out), time.perf_counter() - began


def bench(repeats, epochs, scale):
    "Both sides, their seconds, and how far their losses are apart"
    nets.c_engine()
    began = time.perf_counter()
    a = ours(range(3) if scale > 1 else repeats, epochs)
    own, spent, far = time.perf_counter() - began, 0.0, []
    for r in repeats:
        for i, strings in enumerate(sets_of(r)):
            b, s = trainer(strings, epochs, r)
            spent += s
            far.append(np.abs(a[r][i] - b))
            print(
                f"repeat {r}, training {i}: {s:.1f} s",
                file=sys.stderr,
                flush=True,
            )
    far = np.max(far, (0, 2))
    told = f", of {len(repeats)} repeat times {scale}" if scale > 1 else ""
    print(
        f"Figure 2, {epochs} epochs: Trainer {scale * spent:.1f} s{told}; ours {own:.1f} s; ratio "
        f"{scale * spent / own:.1f}, wanted >= {WANTED}, met: {'yes' if scale * spent >= WANTED * own else 'NO'}"
    )
    print(
        "largest distance of a loss, nats per token: "
        + ", ".join(
            f"epoch {e}: {far[e]:.1e}"
            for e in sorted({0, 1, 2, 5, epochs // 2, epochs})
            if e < len(far)
        )
    )


def seeds(repeats):
    "Time of ten repeats of three languages, from `repeats` of them"
    nets.c_engine()
    wall, cpu, times = 0.0, 0.0, 10 / repeats
    for lang in ("L2", "L4", "L4m"):
        began, spent = time.perf_counter(), time.process_time()
        contextual.measure(
            lang,
            64,
            CONFIG,
            copies=[8, 3, 1],
            repeats=repeats,
            epochs=EPOCHS,
            lr=LR,
            tests=32,
            controls=True,
        )
        began, spent = (
            times * (time.perf_counter() - began),
            times * (time.process_time() - spent),
        )
        wall, cpu = wall + began, cpu + spent
        print(
            f"{lang}, 64 strings, 10 repeats of 7 trainings: {began:.0f} s, {spent:.0f} CPU s",
            flush=True,
        )
    print(
        f"all: {wall:.0f} s, {cpu:.0f} CPU s"
        + f" (of {repeats} times {times:g})" * (times > 1)
        + f" on {core.cores()} "
        f"core(s), wanted {SECONDS} s on {CORES}; CPU seconds within it: {'yes' if cpu <= CORES * SECONDS else 'NO'}"
    )


PARTS = dict(
    part=lambda: bench([0], EPOCHS, 3),
    whole=lambda: bench([0, 1, 2], EPOCHS, 1),
    short=lambda: bench([0], 5, 1),
    seeds=lambda: seeds(10),
    seed=lambda: seeds(1),
)

if __name__ == "__main__":
    names = sys.argv[1:] or ["part"]
    if wrong := [n for n in names if n not in PARTS]:
        sys.exit(f"no part {wrong[0]!r}: {', '.join(PARTS)}")
    width.begin(WIDTH)
    for n in names:
        PARTS[n]()
