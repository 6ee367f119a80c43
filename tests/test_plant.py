"`plant.tune` and who calls it, held bit for bit against loops as one would write them out."

import copy
import math
import random

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from memnb import gpt, hf, lm, plant  # noqa: E402
from memnb.compare import measuring  # noqa: E402
from memnb.contextual import retraining  # noqa: E402
from memnb.iclinf import ladder  # noqa: E402


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    "A model of two layers with random weights and the tokenizer of the packaged one"
    from transformers import LlamaConfig, LlamaForCausalLM

    packaged = lm.load("smollm2")
    config = LlamaConfig(
        vocab_size=packaged.config.vocab_size,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        bos_token_id=0,
        eos_token_id=0,
        tie_word_embeddings=True,
    )
    folder = tmp_path_factory.mktemp("plant") / "toy"
    torch.manual_seed(5)
    LlamaForCausalLM(config).save_pretrained(folder)
    packaged.tok.save_pretrained(folder)
    return lm.load(f"hf:{folder}")


def whole(model):
    "A copy of a model's network, all weights of which are learned"
    return copy.deepcopy(model.net).eval().requires_grad_(True)


def same(net, other):
    "Whether two networks have the same bits"
    pairs = zip(
        net.state_dict().items(), other.state_dict().items(), strict=True
    )
    return all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs)


def loss_of(net, ids):
    "Sum over the tokens of a string, the first of which is given"
    x = torch.tensor([ids])
    logits = net(input_ids=x[:, :-1]).logits[0]
    return torch.nn.functional.cross_entropy(logits, x[0, 1:], reduction="sum")


STRINGS = [[0, *map(int, np.random.default_rng(i).integers(1, 40, 5))] for i in range(9)]  # fmt: skip
STEPS = [[], STRINGS[:2], STRINGS[2:3], [], STRINGS[3:6], STRINGS[6:]]
RATES = [0.01, 0.02, 0.03, 0.02, 0.01, 0.005]


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("frozen", [False, True])
def test_a_loop_written_out(toy, fused, frozen):
    "Parts add up, what is frozen stays, and a step without parts goes on by momentum alone"
    net, other = whole(toy), whole(toy)
    for x in (net, other):
        x.model.layers[0].requires_grad_(not frozen)
    losses = [
        [float(x) for x in step]
        for step in plant.tune(
            net, STEPS, RATES, lambda ids: loss_of(net, ids), fused
        )
    ]
    weights = [p for p in other.parameters() if p.requires_grad]
    adam = torch.optim.AdamW(weights, lr=1.0, weight_decay=0.0, fused=fused)
    noted, moved = [], []
    for parts, rate in zip(STEPS, RATES, strict=True):
        before = copy.deepcopy(other)
        for group in adam.param_groups:
            group["lr"] = rate
        noted.append([])
        for ids in parts:
            value = loss_of(other, ids)
            value.backward()
            noted[-1].append(value.item())
        torch.nn.utils.clip_grad_norm_(other.parameters(), 1.0)
        adam.step()
        adam.zero_grad(set_to_none=False)
        moved.append(not same(before, other))
    assert losses == noted and same(net, other)
    assert moved == [False, True, True, True, True, True]
    assert same(net.model.layers[0], toy.net.model.layers[0]) == frozen


def test_steps_are_made_when_they_are_asked_for(toy):
    net = whole(toy)
    tuning = plant.tune(net, STEPS, RATES, lambda ids: loss_of(net, ids))
    assert same(net, toy.net)
    assert next(tuning) == [] and same(net, toy.net)
    assert len(next(tuning)) == 2 and not same(net, toy.net)


@pytest.mark.parametrize("dtype, below", [("float32", 1), ("bfloat16", 0)])
def test_documents_as_a_loop_written_out(toy, dtype, below):
    "`plant.train`, which made the models that ship"
    docs = [" ".join(f"word{i * j % 17}" for j in range(i % 9 + 1)) for i in range(140)]  # fmt: skip
    docs[3] = ("given only", " learned")
    torch.manual_seed(1)
    net = plant._adapted(toy, 2, dtype, below)
    other = copy.deepcopy(net)
    losses = plant.train(net, toy.tok, docs, 2e-2, 64, 3)

    ids = [plant._ids(toy.tok, d) for d in docs]
    steps = plant._batches(ids, 64, random.Random(3))
    learned = [p for p in other.parameters() if p.requires_grad]
    adam = torch.optim.AdamW(learned, 2e-2, weight_decay=0.0)
    warm = max(1, len(steps) // 20)

    def factor(i):
        return min(
            (i + 1) / warm, 0.5 + 0.5 * math.cos(math.pi * i / len(steps))
        )

    schedule = torch.optim.lr_scheduler.LambdaLR(adam, factor)
    noted = []
    for batch in steps:
        loss = plant._loss(other, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(other.parameters(), 1.0)
        adam.step()
        schedule.step()
        adam.zero_grad()
        noted.append(loss.item())
    assert len(noted) > 20 and losses == noted and same(net, other)


@pytest.mark.parametrize(
    "absent, looks",
    [
        ([i % 3 == 0 for i in range(30)], None),
        ([i < 28 for i in range(30)], [1, 2, 3, 9]),
    ],
)
def test_strings_as_a_loop_written_out(toy, absent, looks):
    "`fine_tune` of contextual, where some steps have nothing to learn from"
    draws = np.random.default_rng(0)
    data = [
        [*map(int, draws.integers(1, 40, draws.integers(2, 9))), 0]
        for _ in range(30)
    ]
    net, other = whole(toy), whole(toy)
    found = retraining.fine_tune(
        net, data, absent, data[:3], 0, 4, 8, 0.02, 1, looks
    )

    schedule = gpt.Schedule(
        16, 8, 0.02, retraining.WARMUP, schedule="linear"
    ).rates(0, 16)
    adam = torch.optim.AdamW(
        other.parameters(), lr=0.02, weight_decay=0.0, fused=True
    )

    def look():
        with torch.no_grad():
            return retraining.tree_losses(other, data[:3], 0).numpy()

    noted = [look()]
    order = gpt.batch_order(30, 8, 0, 16, 1)
    for k, (places, rate) in enumerate(zip(order, schedule, strict=True), 1):
        adam.param_groups[0]["lr"] = float(rate)
        now = [data[i] for i in places if i >= 0 and not absent[i]]
        adam.zero_grad(set_to_none=False)
        if now:
            n = torch.tensor([len(s) for s in now])
            losses = retraining.tree_losses(other, now, 0)
            ((losses * n).sum() / n.sum()).backward()
        torch.nn.utils.clip_grad_norm_(other.parameters(), 1.0)
        adam.step()
        if k in (looks or [4, 8, 12, 16]):
            noted.append(look())
    assert np.array_equal(found, np.array(noted, float)) and same(net, other)


@pytest.mark.parametrize("batch, stops", [(2, [3, 8]), (4, [2, 9])])
def test_prompts_as_a_loop_written_out(toy, batch, stops):
    "`ladder.tune` of iclinf: prompts one by one, and a step, too, where a model is kept"
    taught = ladder.lessons(["news", "goods"], 9, 2, seed=1)
    rungs = [*ladder.tune(toy, taught, stops, 1e-2, batch, 4, 7)]

    torch.manual_seed(7)
    net = plant._adapted(toy, 4, "float32")
    inner = net.get_base_model()
    learned = [p for p in net.parameters() if p.requires_grad]
    adam = torch.optim.AdamW(learned, lr=1e-2, weight_decay=0.0)
    kept = []
    for i, (p, text) in enumerate(taught[: max(stops)], 1):
        ids, places = ladder._answers(toy, p, text)
        hidden = inner.model(input_ids=torch.tensor([ids])).last_hidden_state[0]
        logits = inner.lm_head(hidden[[k - 1 for k in places]])
        answers = torch.tensor([ids[k] for k in places])
        loss = torch.nn.functional.cross_entropy(logits, answers)
        (loss / batch).backward()
        if i % batch == 0 or i in stops:
            for group in adam.param_groups:
                group["lr"] = 1e-2 * min(1.0, i / (4 * batch))
            torch.nn.utils.clip_grad_norm_(learned, 1.0)
            adam.step()
            adam.zero_grad()
        if i in stops:
            kept.append(copy.deepcopy(net).merge_and_unload())
    assert len(rungs) == len(kept) == 2
    for i, rung, merged in zip(stops, rungs, kept, strict=True):
        assert rung.name == f"{toy.name}, tuned on {i} prompts"
        assert same(rung.net, merged)


def test_the_trainer_of_transformers(toy, tmp_path, monkeypatch):
    "The Trainer, to which compare leaves its fine-tuning, does the same steps"
    batches = []
    collated = measuring._collated

    def noted(rows):
        batches.append([r["input_ids"] for r in rows])
        return collated(rows)

    monkeypatch.setattr(measuring, "_collated", noted)
    texts = [f"the {w} house is the house of {w}" for w in "abcdefghijk"]
    name = measuring._fine_tuned(
        texts, tmp_path / "tuned", toy, epochs=3, batch=4, lr=0.01
    )
    net = whole(toy).train()

    def loss(rows):
        x = collated([dict(input_ids=r) for r in rows])
        labels = torch.nn.functional.pad(x.pop("labels"), (0, 1), value=-100)
        logits = net(**x).logits.float()
        total = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), labels[:, 1:].flatten(), reduction="sum"
        )
        return total / (labels[:, 1:] != -100).sum()

    n = len(batches)
    rates = [0.01 * ((n - i) / n) for i in range(n)]
    steps = [[batch] for batch in batches]
    assert n == 9 and [*plant.tune(net, steps, rates, loss, fused=True)]
    assert same(net, lm.load(name).net.float())
    assert isinstance(lm.load(name), hf.HF)
