"""Influence of a model behind a server, whose labels are scored by log-probabilities of given text; and what claims of the audit say of numbers that are known."""

import math
import re

import numpy as np
import pandas as pd
import pytest
from test_server import at, environment, load, server, whole  # noqa: F401

from memnb import iclinf, lm
from memnb.iclinf import influence

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
