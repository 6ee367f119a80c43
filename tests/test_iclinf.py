"""Influence of a model behind a server, whose labels are scored by log-probabilities of given text; and what claims of the audit say of numbers that are known."""

import math
import re

import numpy as np
import pandas as pd
import pytest
from test_server import at, environment, load, server, whole  # noqa: F401

from memnb import claims, iclinf, lm
from memnb.iclinf import influence
from memnb.run import profiles

LABELS = ["gold", "sugar"]


class Counting(dict):
    "A plan of a stub server that learns by counting: the log-probability of a label is that of its share in the prompt"

    def get(self, text, default=None):
        return self.reply

    def reply(self, handler, body):
        text = body["prompt"]
        pieces = re.findall(r"\s*\S+|\s+$", text)
        values = [None] + [-1.0] * (len(pieces) - 1)
        label = pieces[-1].strip()
        if label in LABELS:
            shown = re.findall(r"Answer: (\w+)", text)[:-1]
            share = (0.5 + shown.count(label)) / (1 + len(shown))
            values[-1] = math.log(share)
        starts = [0]
        for piece in pieces:
            starts.append(starts[-1] + len(piece))
        scored = dict(
            tokens=[*pieces, "!"],
            text_offset=starts,
            token_logprobs=[*values, -9.0],
        )
        handler.reply(
            whole(
                body, text=text + "!", finish_reason="length", logprobs=scored
            )
        )


def texts():
    words = "ore dealer cane harvest price mill vault bar crop field".split()
    lines = [f"the {word} report number {i}" for i, word in enumerate(words)]
    return pd.DataFrame(dict(text=lines * 1, label=LABELS * 5))


def counted(exemplars):
    "Loss of a query by hand: the largest change of a log-share when one exemplar goes"
    losses = []
    for i in range(len(exemplars)):
        rest = exemplars[:i] + exemplars[i + 1 :]
        changes = []
        for label in LABELS:
            share = (0.5 + exemplars.count(label)) / (1 + len(exemplars))
            less = (0.5 + rest.count(label)) / (1 + len(rest))
            changes.append(abs(math.log(share / less)))
        losses.append(max(changes))
    return max(losses)


def test_labels_of_a_served_model(server, at):  # noqa: F811
    "Each label is scored behind each prompt, and the loss is that of the counts by hand"
    server.plan = Counting()
    model = load(at, "completion")
    model.way = "echo", 0
    rows = iclinf.measure(model, texts(), n=4, shots=2)
    loss = rows[(rows.quantity == "loss") & (rows.setting == "label")]
    pool = iclinf.pool(texts(), 4)
    drawn = [iclinf.draw(pool, j, 2).label.tolist() for j in range(4)]
    by_hand = np.mean([counted(exemplars) for exemplars in drawn])
    assert loss.value.item() == pytest.approx(by_hand)
    assert len({tuple(sorted(d)) for d in drawn}) > 1
    # nothing is known of other tokens
    assert "full" not in {*rows.setting}
    assert {"calibrated", "signed"} < {*rows.setting.dropna()}
    # two queries as much: prompts with both, less each and blank, by two labels
    prompts = {prompt for prompt, *_ in server.asked}
    assert all(p.endswith(tuple(f" {k}" for k in LABELS)) for p in prompts)
    asked = len(server.asked)
    again = iclinf.measure(model, texts(), n=4, shots=2)
    assert len(server.asked) == asked
    pd.testing.assert_frame_equal(rows, again)
    shots = influence.by_shots(model, texts(), 4, [1, 2])
    assert "full" not in {*shots.setting}


@pytest.mark.parametrize("part", ["audit", "attack", "ladder"])
def test_what_needs_all_scores_is_refused_before_any_request(server, at, part):  # noqa: F811
    sizes = iclinf.PAPER.sizes(dict(parts=[part]))
    with pytest.raises(lm.Unsupported, match="cannot answer 'next_logits'"):
        iclinf.PAPER.measure(load(at, "completion"), sizes)
    assert not server.asked


def test_a_served_chat_is_refused_in_one_line(server, at):  # noqa: F811
    for model in (load(at), load(at, "completion")):
        with pytest.raises(lm.Unsupported, match="mode=.?completion") as error:
            iclinf.measure(model, texts(), n=2, shots=1, mode="chat")
        assert "\n" not in str(error.value)
    assert not [body for *_, body in server.asked if "messages" in body]


def test_a_server_without_log_probabilities_is_refused(server, at):  # noqa: F811
    "The stub answers with text alone: no label can be scored, and that is said"
    with pytest.raises(lm.Unsupported, match="cannot answer 'logprobs'"):
        iclinf.measure(load(at, "completion"), texts(), n=2, shots=1)


def test_mu_and_epsilon_of_gaussian_privacy():
    "84.1 % and 15.9 % are a standard deviation each; published values of epsilon for mu 1 and 2"
    mu, low, high = iclinf.gaussian_mu(8413, 1587, 10000)
    assert mu == pytest.approx(2, abs=1e-3)
    # exact intervals of both shares, 97.5 % each
    assert (low, high) == pytest.approx((1.941, 2.059), abs=2e-3)
    assert iclinf.gaussian_mu(841, 159, 1000)[1] < low
    # by the definition, at the epsilon that is given back
    for mu, delta, epsilon in ((1, 1e-5, 4.3772), (2, 1e-5, 9.9973)):
        assert iclinf.gaussian_epsilon(mu, delta) == pytest.approx(
            epsilon, abs=2e-3
        )
    assert iclinf.gaussian_epsilon(0.1, 0.5) == 0


def test_games_are_judged_by_the_half_that_did_not_choose():
    "Losses that tell both sides apart in the first half alone prove nothing"
    rng = np.random.default_rng(5)
    p, q = rng.normal(0, 1, (2, 2000))
    lucky = p.copy()
    lucky[:1000] += 3
    shown = iclinf.gaussian_attack(lucky, q)
    assert shown.n == 1000 and shown.low < 0.1
    assert iclinf.gaussian_attack(p + 3, q).low > 2


@pytest.mark.parametrize("slope, order", [(0.0157, 24), (0.2, 7), (1e-6, 100)])
def test_the_order_that_suits_the_data(slope, order):
    "For divergences in proportion to the order: the lowest of what all whole orders read"
    from memnb.iclinf import auditing

    sums = {a: np.full(3, slope * a) for a in auditing.TRIED}
    chosen = auditing._chosen(sums, 1e-5)
    orders = np.array(auditing.TRIED)
    assert chosen == orders[iclinf.read_at(slope, orders).argmin()]
    every = iclinf.ORDERS[iclinf.read_at(slope).argmin()]
    assert abs(np.log(chosen / every)) < 0.3 and chosen == order


def queries_of(run):
    "Queries that a run of a profile asks, of each data set"
    sizes = iclinf.PAPER.sizes(
        {k: v for k, v in run.parameters.items() if k not in ("model", "seed")}
    )
    if not {"influence", "shots", "ladder"} & {*sizes.parts}:
        return {}
    seed = run.parameters.get("seed", 0)
    most = dict.fromkeys(sizes.datasets, sizes.n)
    if "shots" in sizes.parts:
        first = sizes.datasets[0]
        most[first] = max(most[first], sizes.shots_n)
    return {
        dataset: {
            *iclinf.pool(
                dataset, n, sizes.splits, seed, sizes.apart
            ).queries.text
        }
        for dataset, n in most.items()
    }


def test_the_last_confirmatory_run_asks_what_nobody_has_asked():
    fresh, earlier = {}, {}
    for profile in ("laptop", "night", "confirm"):
        for run in profiles.profile(profile):
            if run.notebook != "iclinf":
                continue
            repeated = (
                run.parameters.get("seed") in claims.rules("iclinf").repeated
            )
            for dataset, texts in queries_of(run).items():
                (fresh if repeated else earlier).setdefault(
                    dataset, set()
                ).update(texts)
    assert {k: len(v) for k, v in fresh.items()} == dict(
        goods=149, topics=200, news=101
    )
    for dataset, texts in fresh.items():
        assert not texts & earlier[dataset], dataset
    # the test would see it: without `apart`, some would be asked again
    again = iclinf.pool("news", 101, seed=4000).queries.text
    assert {*again} & earlier["news"]
