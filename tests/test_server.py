"""The backend `openai:<model>` against servers on loopback.

First a server that answers wrongly in every way that servers do, when told to; then (marked `serve`) the
server of the transformers library, which holds the packaged model.
"""

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
import traceback
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

import pytest

from memnb import hf, lm, servers, tabular
from memnb.lm import Refused

KEY = "sk-test-0123456789abcdef"
MODES = ["chat", "completion"]
each_mode = pytest.mark.parametrize("mode", MODES)
VARIABLES = [
    "MEMNB_SERVER",
    "OPENAI_BASE_URL",
    "OPENAI_API_KEY",
    "OPENAI_ORG_ID",
    "OPENAI_PROJECT_ID",
    "OPENAI_API_VERSION",
    "AZURE_OPENAI_ENDPOINT",
    "AZURE_OPENAI_API_KEY",
    "AZURE_OPENAI_AD_TOKEN",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
]


def wait(test, seconds=30):
    end = time.monotonic() + seconds
    while not test():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


# ---- a server that does as it is told


class Server(ThreadingHTTPServer):
    "Answers a prompt with its capitals, unless `plan` has faults for that prompt"

    daemon_threads, request_queue_size = True, 128

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.plan = {}  # prompt -> faults, used up one a request; a single fault instead of a list stays
        self.asked = []  # (prompt, time, path, headers, body), one a request
        self.delay, self.now, self.most = 0, 0, 0
        self.looked, self.who, self.who_says = (
            0,
            "",
            "",
        )  # looks at which model this is, its name, words
        self.listed = None  # what `/v1/models` says
        self.not_taken = {}  # field -> the fault of requests that have it
        self.gather = (
            0  # replies wait until as many requests have been here together
        )
        self.lock, self.over, self.full = (
            threading.Lock(),
            threading.Event(),
            threading.Event(),
        )
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(
            target=self.serve_forever,
            kwargs=dict(poll_interval=0.02),
            daemon=True,
        ).start()

    def handle_error(self, request, client_address):
        pass  # a client went away; the tests look at the client

    def close(self):
        self.over.set()
        self.shutdown()
        self.server_close()

    def times(self, prompt):
        return [t for p, t, *_ in self.asked if p == prompt]

    def take(self, prompt):
        "The fault of this request, or None"
        faults = self.plan.get(prompt)
        if isinstance(faults, list):
            return faults.pop(0) if faults else None
        return faults


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_GET(self):
        self.reply(
            self.server.listed or dict(error="nothing here"),
            200 if self.server.listed else 404,
        )

    def do_POST(self):
        srv, body = (
            self.server,
            json.loads(self.rfile.read(int(self.headers["Content-Length"]))),
        )
        prompt = (
            body["messages"][-1]["content"]
            if "messages" in body
            else body["prompt"]
        )
        body["model"] = srv.who or body["model"]
        if prompt == servers.WHO:  # every run begins by looking who answers
            with srv.lock:
                srv.looked += 1
            says = (
                srv.who_says.pop(0)
                if isinstance(srv.who_says, list)
                else srv.who_says
            )
            reply = content(says) if says else changed()
            return reply(self, body)
        with srv.lock:
            srv.asked.append(
                (prompt, time.monotonic(), self.path, self.headers, body)
            )
            fault = next(
                (srv.not_taken[f] for f in body if f in srv.not_taken), None
            ) or srv.take(prompt)
            srv.now += 1
            srv.most = max(srv.most, srv.now)
            if srv.now >= srv.gather:
                srv.full.set()
        srv.full.wait(10)
        srv.over.wait(srv.delay)
        with srv.lock:
            srv.now -= 1
        if fault:
            fault(self, body)
        else:
            self.reply(whole(body))

    def reply(self, data, code=200, kind="application/json", **headers):
        raw = data if isinstance(data, bytes) else json.dumps(data).encode()
        self.send_response(code)
        for k, v in {
            "Content-Type": kind,
            "Content-Length": len(raw),
            **headers,
        }.items():
            self.send_header(k.replace("_", "-"), str(v))
        self.end_headers()
        self.wfile.write(raw)


def whole(body, **changes):
    "A flawless reply to a request, with changes to its one choice"
    if "messages" in body:
        text = body["messages"][-1]["content"].upper()
        kind, said = (
            "chat.completion",
            dict(message=dict(role="assistant", content=text)),
        )
    else:
        kind, said = "text_completion", dict(text=body["prompt"].upper())
    choice = {
        **dict(index=0, finish_reason="stop", logprobs=None),
        **said,
        **changes,
    }
    return dict(
        id="1",
        object=kind,
        created=0,
        model=body["model"],
        choices=[{k: v for k, v in choice.items() if v is not ...}],
    )


# ---- its faults


def status(code, data=None, **headers):
    return lambda h, body: h.reply(
        data or dict(error=dict(message="not now")), code, **headers
    )


def raw(data, **kw):
    return lambda h, body: h.reply(data, **kw)


def changed(**changes):
    return lambda h, body: h.reply(whole(body, **changes))


def content(text):
    "A reply whose text is `text`"
    return changed(message=dict(role="assistant", content=text), text=text)


def hang(h, body):
    h.server.over.wait(120)
    h.close_connection = True


def gone(h, body):
    "The connection closes without a word"
    h.close_connection = True
    h.connection.shutdown(socket.SHUT_RDWR)


def half(h, body):
    "Half of the announced bytes, then the connection is cut"
    data = json.dumps(whole(body)).encode()
    h.send_response(200)
    h.send_header("Content-Type", "application/json")
    h.send_header("Content-Length", str(len(data)))
    h.end_headers()
    h.wfile.write(data[: len(data) // 2])
    gone(h, body)


def half_unannounced(h, body):
    "Half of a reply whose length was not announced: for HTTP it is whole"
    data = json.dumps(whole(body)).encode()
    h.send_response(200)
    h.send_header("Content-Type", "application/json")
    h.send_header("Connection", "close")
    h.end_headers()
    h.wfile.write(data[: len(data) // 2])
    h.close_connection = True


PAGE = b"<html><body>Bad gateway</body></html>"
FAULTS = {
    "429": status(429),
    "429 retry-after": status(429, Retry_After=0.1),
    "500": status(500),
    "503": status(503),
    "502 page": status(502, PAGE, kind="text/html"),
    "408": status(408),
    "hang": hang,
    "gone": gone,
    "half": half,
    "half, unannounced": half_unannounced,
    "page": raw(PAGE, kind="text/html"),
    "no json": raw(b'{"id": "1", "choices": [{"text": oops'),
    "not utf-8": raw(b'{"choices": [{"text": "\xff\xfe"}]}'),
    "nothing": raw(b""),
    "null": raw(None),
    "a list": raw([]),
    "a string": raw("stop"),
    "an error": raw(dict(error=dict(message="overloaded"))),
    "an error in words": raw(dict(error="overloaded")),
    "an error with a code": raw(
        dict(error=dict(message="slow down", code=429), choices=[])
    ),
    "an error in a choice": changed(error=dict(message="overloaded", code=502)),
    "no choices": raw(dict(id="1", choices=[])),
    "choices missing": raw(dict(id="1", object="completion")),
    "choices null": raw(dict(id="1", choices=None)),
    "choices a number": raw(dict(id="1", choices=7)),
    "choice null": raw(dict(id="1", choices=[None])),
    "choice a string": raw(dict(id="1", choices=["stop"])),
    "packed badly": raw(b"oops", Content_Encoding="gzip"),
}
each_fault = pytest.mark.parametrize("fault", FAULTS)
WITHOUT_TEXT = {
    "no text": changed(text=..., message=...),
    "tools": changed(
        text=None,
        message=dict(content=None, tool_calls=[{}]),
        finish_reason="tool_calls",
    ),
    "an error": changed(finish_reason="error"),
    "second choice only": changed(index=1),
}  # the server means it: to ask again would give the same

# ---- fixtures and what the store holds


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    "No variable of the machine reaches the client, and openai's pauses are short"
    for k in VARIABLES:
        monkeypatch.delenv(k, raising=False)
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    monkeypatch.setattr("memnb.servers.LOADING", 0.05)


@pytest.fixture
def server(monkeypatch):
    srv = Server()
    monkeypatch.setenv("OPENAI_BASE_URL", f"{srv.url}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    yield srv
    srv.close()


@pytest.fixture
def at(tmp_path):
    return tmp_path / "answers.sqlite"


def load(at, mode="chat", timeout=30.0, retries=1, name="openai:loud", **kw):
    return lm.load(
        name,
        store=lm.Store(at),
        mode=mode,
        timeout=timeout,
        retries=retries,
        **kw,
    )


def asks(mode, words):
    return [lm.chat("", [], w) if mode == "chat" else w for w in words]


def table(at, what="key, model, settings, prompt, answer"):
    "The rows of the store, read past memnb, without those that say which model answered"
    answers = "json_extract(settings, '$.request') != 'served'"
    with sqlite3.connect(at) as db:
        return db.execute(
            f"SELECT {what} FROM answers WHERE {answers}"
        ).fetchall()


def stored(at):
    "Last words of each stored prompt -> answer; the keys must be what they claim"
    found = {}
    for key, model, *rest in table(at):
        settings, prompt, answer = map(json.loads, rest)
        assert key == lm.key_of(model, settings, prompt)
        last = prompt[-1] if isinstance(prompt, list) else prompt
        name = last["content"] if isinstance(last, dict) else last
        assert name not in found, f"{name!r} is stored twice"
        found[name] = answer
    return found


def upper(words):
    return {w: w.upper() for w in words}


WORDS = ["first", "second", "third"]
# ---- a fault that passes

BOTH = WORDS + ["fourth", "fifth", "sixth"]


def both():
    return asks("chat", WORDS) + asks("completion", BOTH[3:])


@each_fault
def test_fault_then_answer(server, at, fault):
    "Chat and completions: the prompt that met the fault is asked once more, and all answers are there"
    server.plan = dict(second=[FAULTS[fault]], fifth=[FAULTS[fault]])
    assert load(at, timeout=3.0 if fault == "hang" else 30.0).generate(
        both()
    ) == [w.upper() for w in BOTH]
    assert stored(at) == upper(BOTH)
    assert [len(server.times(w)) for w in BOTH] == [1, 2, 1, 1, 2, 1]
    again = load(at)
    assert again.generate(both()) == [w.upper() for w in BOTH]
    assert len(server.asked) == 8 and again.calls == 0, (
        "the second run must be answered from the store"
    )


@pytest.mark.parametrize(
    "told, headers",
    [
        ("slow down", dict(Retry_After=0.2)),
        ("slow down", dict(Retry_After_ms=200)),
        ("Rate limit reached. Please try again in 200ms.", {}),
    ],
)
def test_pause_after_429(server, at, told, headers):
    "As long as the server says, in a header or in words"
    server.plan["first"] = [
        status(429, dict(error=dict(message=told)), **headers)
    ]
    load(at).generate(asks("chat", ["first"]))
    a, b = server.times("first")
    assert b - a >= 0.2


def test_all_faults_in_one_run(server, at):
    "Every kind of fault at once, two in a row for each prompt: nothing lost, nothing mixed up"
    words = [f"{n} of many" for n in FAULTS]
    for w, n in zip(words, FAULTS):
        server.plan[w] = [FAULTS[n], status(500)]
    assert load(at, "completion", timeout=4.0, retries=3).generate(words) == [
        w.upper() for w in words
    ]
    assert stored(at) == upper(words)


# ---- a fault that stays


FOR_GOOD = {
    k: f for k, f in FAULTS.items() if k[:3] not in ("429", "503")
}  # these are waited for


@each_mode
def test_faults_for_good(server, at, mode):
    "Every fault on a prompt of its own, among good prompts: the good ones are stored, the others counted"
    faults = FOR_GOOD | WITHOUT_TEXT
    server.plan, n = {f"word, {k}": f for k, f in faults.items()}, len(faults)
    words = [w for k in faults for w in (f"good, {k}", f"word, {k}")]
    with pytest.raises(
        lm.NoAnswer,
        match=f"^{n} of {2 * n} prompts.* other {n} are in the store",
    ) as e:
        load(at, mode, timeout=4.0).generate(asks(mode, words))
    assert stored(at) == upper(words[::2])
    assert (
        "because of" in str(e.value)
        and server.url not in str(e.value)
        and KEY not in str(e.value)
    )
    assert {w: len(server.times(w)) for w in words} == {
        w: 1 + (w in server.plan and w[6:] not in WITHOUT_TEXT) for w in words
    }
    server.plan.clear()
    server.asked.clear()
    assert load(at, mode).generate(asks(mode, words)) == [
        w.upper() for w in words
    ]
    assert sorted(p for p, *_ in server.asked) == sorted(words[1::2]), (
        "only what is missing is asked"
    )
    assert stored(at) == upper(words)


@pytest.mark.parametrize("retries", [0, 2])
def test_retries(server, at, retries):
    server.plan.update(first=status(500), second=FAULTS["no choices"])
    model = load(at, retries=retries)
    model.known.add("chat")
    with pytest.raises(lm.NoAnswer, match="2 of 3 prompts"):
        model.generate(asks("chat", WORDS))
    assert [len(server.times(w)) for w in WORDS] == [
        retries + 1,
        retries + 1,
        1,
    ]


def test_some_prompts_fail_for_good(server, at):
    "A prompt that is too long for the server (400) is not repeated and does not stop the others"
    words = [f"word {i}" for i in range(40)]
    for w in words[::8]:
        server.plan[w] = status(
            400, dict(error=dict(message="too many tokens"))
        )
    with pytest.raises(
        lm.NoAnswer,
        match="5 of 40 prompts.*BadRequestError.*35 are in the store",
    ):
        load(at).generate(asks("chat", words))
    assert (
        stored(at) == upper(set(words) - set(words[::8]))
        and len(server.asked) == 40
    )
    server.plan.clear()
    model = load(at)
    assert model.generate(asks("chat", words)) == [w.upper() for w in words]
    assert len(server.asked) == 45 and model.calls == 5


def test_what_is_not_stored_is_not_promised(server, at):
    "Samples without a seed are fresh each time: an error must not say that the others are in the store"
    server.plan["second"] = status(400)
    with pytest.raises(lm.NoAnswer) as e:
        load(at).generate(asks("chat", WORDS), temperature=1.0)
    assert stored(at) == {} and "in the store" not in str(e.value), str(e.value)


def test_nobody_listens(at, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{port}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with pytest.raises(
        lm.ModelError, match="cannot be reached.*APIConnectionError"
    ):
        load(at, retries=0).generate(asks("chat", WORDS))
    assert stored(at) == {}


@each_mode
@pytest.mark.parametrize("text", ["", "  \n"], ids=["empty", "blank"])
def test_an_empty_answer_is_not_stored(server, at, mode, text):
    "It counts as an answer, as it does for a local model, but the next run asks again"
    server.plan["second"] = content(text)
    assert load(at, mode).generate(asks(mode, WORDS)) == [
        "FIRST",
        text,
        "THIRD",
    ]
    assert stored(at) == upper(["first", "third"])
    server.plan.clear()
    assert load(at, mode).generate(asks(mode, WORDS)) == [
        "FIRST",
        "SECOND",
        "THIRD",
    ]
    assert len(server.asked) == 4


# ---- errors that hit every prompt alike

REFUSALS = [
    (401, "AuthenticationError"),
    (403, "PermissionDeniedError"),
    (404, "NotFoundError"),
]


@pytest.mark.parametrize("code, name", REFUSALS, ids=lambda x: str(x))
def test_refusal_stops_at_once(server, at, code, name):
    "One clear error, no repetition, and no key in it though the server repeats the key"
    told = dict(
        error=dict(
            message=f"Incorrect API key provided: {KEY}, or no such model"
        )
    )
    words = [f"word {i}" for i in range(200)]
    for w in words:
        server.plan[w] = status(code, told)
    server.delay, model = 0.05, load(at, retries=5)
    with pytest.raises(RuntimeError, match=f"openai:loud.*{name}") as e:
        model.generate(asks("chat", words))
    text = "".join(traceback.format_exception(e.value))
    assert KEY not in text and server.url not in str(e.value)
    assert "key" in str(e.value) and "OPENAI_BASE_URL" in str(e.value)
    assert len(server.asked) == 1, (
        f"{len(server.asked)} of 200 prompts were sent to a server that refuses"
    )
    assert stored(at) == {}


def test_an_account_without_money_stops_at_once(server, at):
    "It comes as a 429, but no pause helps"
    told = dict(
        error=dict(
            message="You exceeded your current quota", code="insufficient_quota"
        )
    )
    words = [f"word {i}" for i in range(200)]
    server.plan, server.delay = (
        {w: status(429, told, retry_after_ms=10) for w in words},
        0.05,
    )
    model = load(at)
    with pytest.raises(RuntimeError, match="openai:loud refused.*quota"):
        model.generate(asks("chat", words))
    assert len(server.asked) == 1 and stored(at) == {}


@pytest.mark.parametrize("code", [400, 500])
def test_no_key_in_the_reason(server, at, code):
    told = dict(
        error=dict(message=f'the header "Bearer {KEY}" and https://x.y/z')
    )
    server.plan["second"] = status(code, told, retry_after_ms=10)
    with pytest.raises(lm.NoAnswer, match="the header") as e:
        load(at).generate(asks("chat", WORDS))
    assert KEY not in "".join(traceback.format_exception(e.value))


def test_a_key_of_one_letter_leaves_words_whole(server, at, monkeypatch):
    "Servers without keys take any, and the guide proposes 'x'"
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    told = dict(error=dict(message="no text for the key x: next"))
    server.plan["second"] = status(400, told)
    with pytest.raises(lm.NoAnswer, match="no text for the key <key>: next"):
        load(at).generate(asks("chat", WORDS))


def test_no_key_and_no_address_in_the_store(server, at):
    model = load(at)
    model.generate(asks("chat", WORDS))
    model.store.export(at.with_suffix(".jsonl"))
    files = list(at.parent.iterdir())
    assert {"answers.sqlite", "answers.jsonl"} <= {f.name for f in files}
    for f in files:
        text = f.read_bytes()
        for secret in (KEY, "127.0.0.1", f":{server.server_port}"):
            assert secret.encode() not in text, f.name


def test_a_folder_as_model_name_stays_out_of_the_store(server, at):
    "Some servers call a model by its folder: the server must get it whole, the store only its last part"
    model = load(at, name="openai:/srv/models/loud")
    assert model.generate(asks("chat", ["first"])) == ["FIRST"]
    assert server.asked[0][-1]["model"] == "/srv/models/loud"
    assert re.fullmatch("openai:loud#[0-9a-f]{8}", table(at, "model")[0][0])
    assert "/srv" not in model.name + model.id + repr(model)


def test_no_piece_of_a_key_is_shown(server, at):
    "OpenAI's message has the first and the last letters of a wrong key"
    masked = (
        f"Incorrect API key provided: {KEY[:8]}********{KEY[-4:]}. See {KEY}"
    )
    server.plan["first"] = status(401, dict(error=dict(message=masked)))
    with pytest.raises(RuntimeError, match="Incorrect API key") as e:
        load(at).generate(asks("chat", WORDS))
    assert not any(k in str(e.value) for k in (KEY[:8], KEY[-4:])), str(e.value)


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_prompts_do_not_follow_to_another_server(server, at, code):
    other = Server()
    try:
        for w in WORDS:
            server.plan[w] = status(
                code, Location=f"{other.url}/v1/chat/completions"
            )
        with pytest.raises(
            RuntimeError, match=f"{code}.*OPENAI_BASE_URL.*elsewhere"
        ) as e:
            load(at).generate(asks("chat", WORDS))
        assert not other.asked and len(server.asked) == 1 and stored(at) == {}
        assert other.url not in str(e.value)
    finally:
        other.close()


def test_answers_of_two_servers_stay_apart(server, at, monkeypatch):
    "The same model name behind another address is another model; a user in the address is no difference"
    assert load(at).generate(asks("chat", WORDS)) == [
        "FIRST",
        "SECOND",
        "THIRD",
    ]
    monkeypatch.setenv(
        "OPENAI_BASE_URL",
        f"http://me:secret@127.0.0.1:{server.server_port}/v1/",
    )
    again = load(at)
    assert again.generate(asks("chat", WORDS)) and again.calls == 0
    other = Server()
    try:
        for w in WORDS:
            other.plan[w] = content(w.title())
        monkeypatch.setenv("OPENAI_BASE_URL", f"{other.url}/v1")
        assert load(at).generate(asks("chat", WORDS)) == [
            "First",
            "Second",
            "Third",
        ]
    finally:
        other.close()
    monkeypatch.delenv("OPENAI_BASE_URL")
    public = load(at).id
    monkeypatch.setenv("OPENAI_BASE_URL", "https://API.openai.com:443/v1/")
    assert load(at).id == public
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://ours.azure.com")
    assert len({m for (m,) in table(at, "model")} | {public, load(at).id}) == 4


# ---- fields that a server does not take


def no_field(field, form):
    "The error of a server that does not take a field, as one of them words it"
    openai = (
        f"Unsupported parameter: '{field}' is not supported with this model."
    )
    if field == "max_tokens":
        openai += " Use 'max_completion_tokens' instead."
    value = f"Unsupported value: '{field}' does not support 0 with this model. Only the default is supported."
    azure = f"Unrecognized request argument supplied: {field}"
    return dict(
        openai=status(
            400,
            dict(
                error=dict(
                    message=openai, param=field, code="unsupported_parameter"
                )
            ),
        ),
        value=status(400, dict(error=dict(message=value, param=field))),
        azure=status(400, dict(error=dict(message=azure, param=None))),
        fastapi=status(
            422,
            dict(
                detail=[
                    dict(
                        type="extra_forbidden",
                        loc=["body", field],
                        msg="Extra inputs are not permitted",
                        input=3,
                    )
                ]
            ),
        ),
    )[form]


@pytest.mark.parametrize("form", ["openai", "value", "azure", "fastapi"])
@pytest.mark.parametrize(
    "field",
    ["max_tokens", "max_completion_tokens", "temperature", "stop", "seed"],
)
def test_a_field_that_the_server_does_not_take(
    server, at, monkeypatch, field, form
):
    "One request finds it out, all prompts are answered, and the model remembers"
    server.not_taken[field] = no_field(field, form)
    if field == "max_completion_tokens":  # the first choice at OpenAI and Azure
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", server.url)
        monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_API_VERSION", "2024-10-21")
    words, model = [f"word {i}" for i in range(30)], load(at)
    kw = dict(
        max_tokens=7,
        stop=["zzz"],
        **dict(temperature=0.5, seed=1) if field == "seed" else {},
    )
    assert model.generate(asks("chat", words), **kw) == [
        w.upper() for w in words
    ]
    assert (
        len(server.asked) == 31
        and sum(field in body for *_, body in server.asked) == 1
    )
    assert all(
        bool({"max_tokens", "max_completion_tokens"} & set(body))
        for *_, body in server.asked
    )
    assert (
        model.generate(asks("chat", ["more"]), **kw) == ["MORE"]
        and len(server.asked) == 32
    )
    settings = {
        json.dumps(json.loads(s)["temperature"])
        for (s,) in table(at, "settings")
    }
    assert settings == {
        "null"
        if field == "temperature"
        else "0.5"
        if field == "seed"
        else "0.0"
    }


def test_a_limit_by_another_name_keeps_the_keys(server, at):
    load(at).generate(asks("chat", WORDS))
    server.not_taken["max_tokens"] = no_field("max_tokens", "openai")
    again = load(at)
    assert (
        again.generate(asks("chat", WORDS + ["more"]))[3] == "MORE"
        and again.calls == 1
    )


def test_several_fields_are_not_taken(server, at):
    "As with the newer models of OpenAI"
    for f in ("max_tokens", "temperature", "stop"):
        server.not_taken[f] = no_field(f, "openai")
    assert load(at).generate(asks("chat", WORDS), stop=["IRD"]) == [
        "FIRST",
        "SECOND",
        "TH",
    ]
    assert len(server.asked) == 6
    sent = {"model", "messages", "max_completion_tokens"}
    assert set(server.asked[-1][-1]) - set(servers.NEUTRAL) == sent


def test_neither_limit_is_taken(server, at):
    "Then there is an error, not a request without a limit, and not one after the other without end"
    for f in ("max_tokens", "max_completion_tokens"):
        server.not_taken[f] = no_field(f, "openai")
    with pytest.raises(RuntimeError, match="refused.*all prompts"):
        load(at).generate(asks("chat", ALL))
    assert len(server.asked) == 2


def test_a_server_without_temperature(server, at, capsys, monkeypatch):
    "Its answers are kept as of its own temperature, this is said, and a later run knows it from the store"
    server.not_taken["temperature"] = no_field("temperature", "value")
    assert load(at).generate(asks("chat", WORDS)) == [
        "FIRST",
        "SECOND",
        "THIRD",
    ]
    assert capsys.readouterr().err.count("takes no temperature") == 1
    assert {json.loads(s)["temperature"] for (s,) in table(at, "settings")} == {
        None
    }
    server.asked.clear()
    assert (
        load(at).generate(asks("chat", WORDS + ["more"]))[3] == "MORE"
        and len(server.asked) == 1
    )
    assert "takes no temperature" in capsys.readouterr().err
    monkeypatch.delenv("OPENAI_API_KEY")
    offline = load(at)
    assert (
        offline.generate(asks("chat", WORDS)) == ["FIRST", "SECOND", "THIRD"]
        and offline.calls == 0
    )


def test_samples_of_a_server_without_temperature(server, at):
    server.not_taken["temperature"] = no_field("temperature", "openai")
    for n in (3, 4):
        load(at).generate(asks("chat", ["first"] * n), temperature=0.7, seed=3)
    assert (
        len(server.asked) == 5
        and len({b["seed"] for *_, b in server.asked}) == 4
    )
    found = [json.loads(s) for (s,) in table(at, "settings")]
    assert sorted((s["draw"], s["temperature"]) for s in found) == [
        (i, None) for i in range(4)
    ]


# ---- an error 400 of one prompt, of all


def bad(param=None, message="something is wrong here", **kw):
    return status(400, dict(error=dict(message=message, param=param, **kw)))


@pytest.mark.parametrize(
    "fault, n",
    [
        (bad("response_format"), 1),
        (bad(), 3),
        (bad("messages"), 3),
        (
            bad(
                "max_tokens",
                "max_tokens is too large: 64. This model supports at most 32 completion tokens",
            ),
            1,
        ),
    ],
)
def test_an_error_that_hits_all_alike(server, at, fault, n):
    words = [f"word {i}" for i in range(200)]
    server.plan, server.delay = dict.fromkeys(words, fault), 0.02
    with pytest.raises(
        RuntimeError, match="openai:loud refused.*all prompts"
    ) as e:
        load(at).generate(asks("chat", words))
    assert (
        not isinstance(e.value, lm.NoAnswer)
        and len(server.asked) == n
        and stored(at) == {}
    )


def test_an_error_of_two_prompts_does_not_stop_the_others(server, at):
    words = [f"word {i}" for i in range(30)]
    for w in words[:2]:
        server.plan[w] = bad()
    with pytest.raises(
        lm.NoAnswer,
        match="2 of 30 prompts.*something is wrong.*28 are in the store",
    ):
        load(at).generate(asks("chat", words))
    assert len(server.asked) == 30 and stored(at) == upper(words[2:])


def test_many_prompts_that_are_too_long(server, at):
    "However many they are, the others are asked"
    words = [f"word {i}" for i in range(60)]
    for w in words[:50]:
        server.plan[w] = bad(
            "messages", "This model's maximum context length is 8 tokens."
        )
    with pytest.raises(
        lm.NoAnswer, match="50 of 60 prompts.*10 are in the store"
    ):
        load(at).generate(asks("chat", words))
    assert len(server.asked) == 60 and stored(at) == upper(words[50:])


# ---- prompts that are refused

REFUSED = {
    "ended": changed(finish_reason="content_filter"),
    "ended, null": changed(
        finish_reason="content_filter", text=None, message=dict(content=None)
    ),
    "azure": bad("prompt", "The response was filtered", code="content_filter"),
    "inner": bad(
        "prompt",
        "filtered",
        code=None,
        innererror=dict(code="ResponsibleAIPolicyViolation"),
    ),
    "policy": bad(None, "flagged", code="content_policy_violation"),
}


@each_mode
@pytest.mark.parametrize("how", REFUSED)
def test_a_refused_prompt(server, at, mode, how, capsys):
    "It is an answer: asked once, and the others are answered as well, wherever it stands"
    for w in ("first", "third"):
        server.plan[w] = REFUSED[how]
    said = load(at, mode).generate(asks(mode, WORDS))
    assert said == ["", "SECOND", ""] and len(server.asked) == 3
    assert (
        [isinstance(a, Refused) for a in said] == [True, False, True]
        and said[0].reason
        and said[2].reason
    )
    assert "refused 2 of 3 prompts" in capsys.readouterr().err
    again = load(at, mode).generate(
        asks(mode, WORDS)
    )  # it is stored: not paid for again
    assert (
        again == said
        and again[0].reason == said[0].reason
        and len(server.asked) == 3
    )


def test_a_model_that_declines(server, at):
    message = dict(
        role="assistant", content="", refusal="I cannot help with that"
    )
    server.plan["second"] = changed(message=message)
    said = load(at).generate(asks("chat", WORDS))
    assert (
        said == ["FIRST", "", "THIRD"]
        and said[1].reason == "I cannot help with that"
    )


# ---- a server that dies


@pytest.mark.parametrize("fault", ["500", "gone", "choices null", "429"])
def test_a_server_that_dies(server, at, fault):
    "The run ends soon, and what was answered is kept"
    words = [f"word {i}" for i in range(300)]
    server.plan = dict.fromkeys(words[30:], FAULTS[fault])
    with pytest.raises(
        lm.NoAnswer, match="36 prompts in a row.*30 are in the store"
    ) as e:
        load(at, retries=0).generate(asks("chat", words))
    most = (
        30 + 32 + 36 + 32
    )  # answered; failed beside the last of these; in a row; in flight then
    assert len(server.asked) <= most and stored(at) == upper(words[:30])
    assert server.url not in str(e.value)


def test_failures_between_answers_do_not_stop_a_run(server, at):
    "Half of 100 prompts fail, but never 20 in a row"
    words = [f"word {i}" for i in range(100)]
    for w in words[::2]:
        server.plan[w] = status(500)
    with pytest.raises(lm.NoAnswer, match="50 of 100 prompts"):
        load(at, retries=0, concurrency=2).generate(asks("chat", words))
    assert stored(at) == upper(words[1::2])


# ---- whose answers they are


def test_the_choice_that_counts(server, at):
    "Choices come in any order: the first by number is taken"

    def reply(h, body):
        r = whole(body)
        wrong = dict(
            r["choices"][0],
            index=1,
            message=dict(role="assistant", content="wrong"),
        )
        r["choices"].insert(0, wrong)
        h.reply(r)

    server.plan["second"] = reply
    assert load(at).generate(asks("chat", WORDS)) == [
        "FIRST",
        "SECOND",
        "THIRD",
    ]


def test_the_name_in_a_reply(server, at, capsys):
    "Another one than was asked for is said, without the folder; the same one in another folder is the same"
    server.who = "loud-2024-08-06"
    server.plan["second"] = lambda h, b: h.reply(
        whole(b) | dict(model="/srv/loud-2024-08-06")
    )
    assert load(at).generate(asks("chat", WORDS)) == [
        "FIRST",
        "SECOND",
        "THIRD",
    ]
    said = capsys.readouterr().err
    assert (
        said.count("the answers are those of 'loud-2024-08-06'") == 1
        and "srv" not in said
    )


# ---- log-probabilities


def echo(
    lengths=(4, 5, 3, 6), values=(None, -1.5, -0.25, -2.0), cut=None, **changes
):
    "A reply that echoes the prompt, in tokens of the given lengths, and adds one token"

    def fault(h, body):
        assert (
            body["echo"] is True
            and body["logprobs"] == 1
            and body["max_tokens"] == 1
        )
        text, at = (
            body["prompt"],
            [sum(lengths[:i]) for i in range(len(lengths) + 1)],
        )
        assert at[-1] == len(text), "the test has miscounted"
        parts = [text[a:b] for a, b in zip(at, at[1:])] + ["!"]
        lp = dict(
            tokens=parts,
            text_offset=at,
            token_logprobs=[*values, -9.0],
            top_logprobs=None,
        )
        lp = {k: v and v[:cut] for k, v in {**lp, **changes}.items()}
        h.reply(
            whole(body, text=text + "!", finish_reason="length", logprobs=lp)
        )

    return fault


def scorer(at, **kw):
    "A model whose way to log-probabilities is known"
    model = load(at, "completion", **kw)
    model.way = "echo", 0
    return model


def score(at, **kw):
    return scorer(at, **kw).logprobs("The quick", [" foxes ru"])


def test_logprobs_of_the_continuation(server, at):
    "Exactly the tokens of the continuation: not the prompt's, not the one that the server added"
    server.plan["The quick foxes ru"] = echo()
    assert score(at) == [[-0.25, -2.0]]
    assert server.asked[0][2] == "/v1/completions"
    assert stored(at) == {" foxes ru": [-0.25, -2.0]}
    assert score(at) == [[-0.25, -2.0]] and len(server.asked) == 1


def test_logprobs_of_several(server, at):
    server.plan["a b c"] = echo((1, 2, 2), (None, -1.0, -3.0))
    server.plan["a b d"] = echo((1, 2, 1, 1), (None, -1.0, -4.0, -5.0))
    assert scorer(at).logprobs("a b", [" c", " d", " c"]) == [
        [-3.0],
        [-4.0, -5.0],
        [-3.0],
    ]
    assert len(server.asked) == 2


def only(place):
    "Log-probabilities of the added token alone, without the echo"
    return changed(
        text="!",
        logprobs=dict(tokens=["!"], text_offset=[place], token_logprobs=[-9.0]),
    )


SILENT = {
    "null": changed(),
    "missing": changed(logprobs=...),
    "empty": changed(logprobs={}),
    "no values": echo(token_logprobs=None),
    "no places": echo(text_offset=None),
    "no echo": only(0),
    "no echo, placed": only(len("The quick foxes ru")),
}


@pytest.mark.parametrize("fault", SILENT)
def test_logprobs_silently_missing(server, at, fault):
    "The error names the tests that still work; the model no longer claims that it can"
    tails = [f" foxes r{c}" for c in "abcdefghijklmnopqrstuvwxyz"]
    for t in tails:
        server.plan["The quick" + t] = SILENT[fault]
    server.delay, model = 0.02, load(at, "completion", concurrency=2)
    with pytest.raises(
        lm.Unsupported,
        match="openai:loud.*log-probabilities.*tabular.row_completion",
    ):
        model.logprobs("The quick", tails)
    assert stored(at) == {} and len(server.asked) < 20
    server.asked.clear()
    with pytest.raises(lm.Unsupported, match="cannot answer 'logprobs'"):
        model.logprobs("The quick", tails)
    assert not server.asked
    assert model.generate(["hello"]) == ["HELLO"]


def test_no_logprobs_of_a_chat(server, at):
    model = load(at)
    with pytest.raises(lm.Unsupported, match="tabular.row_completion"):
        model.logprobs("The quick", [" fox"])
    with pytest.raises(lm.Unsupported, match="tabular.row_completion"):
        model.next_logits(["The quick"])
    assert not server.asked


def test_a_conversation_has_no_logprobs_at_the_completions_endpoint(server, at):
    with pytest.raises((ValueError, lm.Unsupported), match="messages|string"):
        load(at, "completion").logprobs(lm.chat("", [], "The quick"), [" fox"])
    assert not server.asked and stored(at) == {}


NAN = b"""{"choices": [{"index": 0, "text": "The quick foxes ru!", "finish_reason": "length", "logprobs":
    {"tokens": ["The quick", " foxes ru"], "text_offset": [0, 9], "token_logprobs": [null, NaN]}}]}"""
OTHER = ["The ", "quack", " fo", "xes ru", "!"]
WRONG = {
    "other text": echo(tokens=OTHER),
    "straddling": echo((4, 7, 4, 3)),
    "a hole": echo(values=(None, -1.5, None, -2.0)),
    "NaN": raw(NAN),
    "positive": echo(values=(None, -1.5, 0.25, -2.0)),
    "text": echo(values=(None, -1.5, "x", -2.0)),
    "too few values": echo(token_logprobs=[None, -1.5, -0.25]),
}


@pytest.mark.parametrize("fault", WRONG)
def test_wrong_logprobs_are_refused(server, at, fault):
    "A token across the border, a missing value, lists of different lengths: no part of a score is passed on"
    server.plan["The quick foxes ru"] = WRONG[fault]
    with pytest.raises(lm.NoAnswer, match="1 of 1"):
        score(at, retries=0)
    assert stored(at) == {}


def test_offsets_in_bytes(server, at):
    "Places are computed from the tokens, whatever a server counts"
    lp = dict(
        tokens=["éé", " x", " y", " z", "!"],
        text_offset=[0, 4, 6, 8, 10],
        top_logprobs=None,
        token_logprobs=[None, -10.0, -30.0, -40.0, -2.0],
    )
    server.plan["éé x y z"] = lambda h, body: h.reply(
        whole(body, text="éé x y z!", logprobs=lp)
    )
    assert scorer(at).logprobs("éé x", [" y z"]) == [[-30.0, -40.0]]


def test_a_token_before_the_text(server, at):
    lp = dict(
        tokens=["<s>", "a", " b", "!"],
        text_offset=[0, 0, 1, 3],
        token_logprobs=[None, -1.0, -2.0, -9.0],
    )
    server.plan["a b"] = lambda h, body: h.reply(
        whole(body, text="a b!", logprobs=lp)
    )
    assert scorer(at).logprobs("a", [" b"]) == [[-2.0]]


def test_a_server_that_does_not_take_echo(server, at):
    told = "Setting 'echo' and 'logprobs' at the same time is not supported for this model."
    server.not_taken["echo"] = status(
        400, dict(error=dict(message=told, param=None))
    )
    model = load(at, "completion")
    with pytest.raises(lm.Unsupported, match="tabular.row_completion"):
        model.logprobs("The quick", [" fox", " cat"])
    assert len(server.asked) == 2 and model.generate(["hello"]) == ["HELLO"]


@pytest.mark.parametrize(
    "fault", ["no choices", "choice null", "no json", "500", "half"]
)
def test_fault_then_logprobs(server, at, fault):
    "One broken reply is repeated; it does not mean that the server has no log-probabilities"
    server.plan["The quick foxes ru"] = [FAULTS[fault], echo()]
    assert score(at) == [[-0.25, -2.0]]


# ---- what is sent


@each_mode
def test_the_request(server, at, mode):
    load(at, mode).generate(
        asks(mode, ["first"]), max_tokens=7, stop=list("vwxyz")
    )
    *_, path, headers, body = server.asked[0]
    assert path == (
        "/v1/chat/completions" if mode == "chat" else "/v1/completions"
    )
    assert headers["Authorization"] == f"Bearer {KEY}"
    assert (
        body.pop("messages" if mode == "chat" else "prompt")
        == asks(mode, ["first"])[0]
    )
    assert body == dict(
        servers.NEUTRAL,
        model="loud",
        max_tokens=7,
        temperature=0,
        stop=list("vwxy"),
    )


@each_mode
def test_stop_is_cut_here_too(server, at, mode):
    "Servers take four of them, and some leave the stop in the text"
    said = load(at, mode).generate(
        asks(mode, ["one; two, three"]), stop=["5", "6", "7", "8", ",", " T"]
    )
    assert said == ["ONE;"] and stored(at) == {"one; two, three": "ONE;"}


def test_samples(server, at):
    "Each draw is a request with a seed of its own, stored by draw; without a seed nothing is stored"
    kw = dict(temperature=0.7, seed=3)
    load(at).generate(asks("chat", ["first"] * 3), **kw)
    seeds = [body["seed"] for *_, body in server.asked]
    assert len(set(seeds)) == 3 and {
        body["temperature"] for *_, body in server.asked
    } == {0.7}
    load(at).generate(asks("chat", ["first"] * 4), **kw)
    assert len(server.asked) == 4 and server.asked[-1][-1]["seed"] not in seeds
    assert len(table(at)) == 4
    load(at).generate(asks("chat", ["first"]), temperature=0.7)
    assert (
        "seed" not in server.asked[-1][-1]
        and len(server.asked) == 5
        and len(table(at)) == 4
    )


@each_mode
def test_azure(server, at, mode, monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL")
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", server.url)
    monkeypatch.setenv("OPENAI_API_VERSION", "2024-10-21")
    with pytest.raises(RuntimeError, match="AZURE_OPENAI_API_KEY"):
        load(at, mode).generate(asks(mode, WORDS))
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)
    server.plan["second"] = [status(429)]
    assert load(at, mode).generate(asks(mode, WORDS)) == [
        "FIRST",
        "SECOND",
        "THIRD",
    ]
    end = "chat/completions" if mode == "chat" else "completions"
    where = f"/openai/deployments/loud/{end}?api-version=2024-10-21"
    assert {path for _, _, path, *_ in server.asked} == {where}
    assert {h["api-key"] for *_, h, _ in server.asked} == {KEY} and stored(
        at
    ) == upper(WORDS)


def test_azure_without_version(server, at, monkeypatch):
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", server.url)
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)
    model = load(at)
    with pytest.raises((ValueError, RuntimeError), match="OPENAI_API_VERSION"):
        model.generate(["first"])
    assert not server.asked


# ---- many at once


@pytest.mark.parametrize(
    "kw, most", [({}, 32), (dict(concurrency=3), 3)], ids=["default", "three"]
)
def test_requests_in_flight(server, at, kw, most):
    words, model = [f"word {i}" for i in range(64)], load(at, **kw)
    model.generate(asks("chat", ["known"]))
    server.delay, server.gather, server.most = 0.02, most, 0
    server.full.clear()
    assert model.generate(asks("chat", words), max_tokens=8) == [
        w.upper() for w in words
    ]
    assert server.most == most


RUN = textwrap.dedent("""
    import json, openai, signal, sys
    from memnb import lm
    signal.signal(signal.SIGINT, signal.default_int_handler)
    at, first, last = sys.argv[1], *map(int, sys.argv[2:])
    print('ready', flush=True)
    sys.stdin.readline()
    model = lm.load('openai:loud', store=lm.Store(at), timeout=30., retries=1, concurrency=4)
    print(json.dumps(model.generate([lm.chat('', [], f'word {i}') for i in range(first, last)])))
""")
OPEN = textwrap.dedent("""
    import sys
    from memnb.lm import Store
    print('ready', flush=True)
    for path in sys.stdin:
        Store(path.strip())
        print('open', flush=True)
""")
ALL = [f"word {i}" for i in range(60)]


@contextmanager
def process(code, *args):
    "Another Python process, ready to go"
    p = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, args)],
        text=True,
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert p.stdout.readline() == "ready\n", p.stderr.read()
        yield p
    finally:
        p.kill()
        p.wait()
        for f in (p.stdin, p.stdout, p.stderr):
            f.close()


def tell(p, line):
    p.stdin.write(line + "\n")
    p.stdin.flush()


def said(p):
    "The answers that a process printed"
    out, err = p.communicate(timeout=60)
    assert p.returncode == 0, err
    return json.loads(out)


def test_two_processes_share_a_store(server, at):
    "They make it at the same moment and write to it together; a third asks only what neither had"
    server.delay = 0.05
    with process(RUN, at, 0, 40) as a, process(RUN, at, 20, 60) as b:
        for p in (a, b):
            tell(p, "go")
        wait(lambda: len(server.asked) > 20)
        assert len(lm.Store(at)) < 60, "the run should still be on"
        assert said(a) == [w.upper() for w in ALL[:40]] and said(b) == [
            w.upper() for w in ALL[20:]
        ]
    assert stored(at) == upper(ALL)
    server.asked.clear()
    more = ALL + ["one more"]
    assert load(at).generate(asks("chat", more)) == [w.upper() for w in more]
    assert [p for p, *_ in server.asked] == ["one more"]


def test_a_store_made_by_many_at_once(tmp_path):
    "Opening a new file from several processes in the same instant fails in none of them"
    with process(OPEN) as a, process(OPEN) as b, process(OPEN) as c:
        for i in range(60):
            for p in (a, b, c):
                tell(p, f"{tmp_path}/{i}.sqlite")
            for p in (a, b, c):
                assert p.stdout.readline() == "open\n", p.stderr.read()


def test_kill_and_run_again(server, at):
    "After kill -9 the next run asks what is missing, no more, and has all answers"
    server.delay = 0.1
    with process(RUN, at, 0, 60) as p:
        tell(p, "go")
        wait(lambda: len(server.asked) > 24)
        os.killpg(p.pid, signal.SIGKILL)
        p.wait()
    there = stored(at)
    assert 8 <= len(there) < 60 and there.items() <= upper(ALL).items()
    server.delay = 0
    server.asked.clear()
    assert load(at).generate(asks("chat", ALL)) == [w.upper() for w in ALL]
    assert sorted(p for p, *_ in server.asked) == sorted(set(ALL) - set(there))
    assert stored(at) == upper(ALL)


def test_interrupt_stops_asking(server, at):
    "Ctrl-C ends a run after the requests in flight, not after all that were planned"
    server.delay = 0.1
    with process(RUN, at, 0, 60) as p:
        tell(p, "go")
        wait(lambda: len(server.asked) > 12)
        p.send_signal(signal.SIGINT)
        err = p.communicate(timeout=30)[1]
    assert p.returncode and "KeyboardInterrupt" in err
    assert len(server.asked) < 30, (
        f"{len(server.asked)} of 60 prompts were asked, interrupted after about 13"
    )
    assert len(stored(at)) >= 8


def test_interrupt_ends_a_process_whose_server_is_silent(server, at):
    "Ctrl-C does not wait for what is in flight, here for up to ten minutes"
    server.plan = dict.fromkeys(ALL[8:], hang)
    with process(RUN.replace("timeout=30.", "timeout=600."), at, 0, 60) as p:
        tell(p, "go")
        wait(lambda: len(server.asked) >= 12)
        p.send_signal(signal.SIGINT)
        err = p.communicate(timeout=60)[1]
    assert p.returncode and "KeyboardInterrupt" in err and "Task" not in err
    assert len(server.asked) == 12 and stored(at) == upper(ALL[:8])


def test_a_store_that_fails_stops_asking(server, at, monkeypatch):
    "When answers cannot be kept (a full disk, say), no more of them are bought"
    server.delay, model, put = 0.05, load(at, concurrency=4), lm.Store.put

    def full(self, *args):
        if len(self) == 5:
            raise sqlite3.OperationalError("database or disk is full")
        return put(self, *args)

    monkeypatch.setattr(lm.Store, "put", full)
    with pytest.raises(sqlite3.OperationalError, match="disk is full"):
        model.generate(asks("chat", ALL))
    assert len(server.asked) < 30, (
        f"{len(server.asked)} of 60 prompts were asked"
    )


# ---- how answers end, and what is none


@pytest.mark.parametrize(
    "end", ["eos", "eos_token", "STOP", "end_turn", "", None, ...]
)
@each_mode
def test_any_end_is_an_end(server, at, mode, end):
    server.plan["second"] = changed(finish_reason=end)
    assert load(at, mode).generate(asks(mode, WORDS)) == [
        "FIRST",
        "SECOND",
        "THIRD",
    ]
    assert stored(at) == upper(WORDS)


THOUGHT = "Is it THIRD or\n5.1,3.5?"
THINKS = {
    "tags": content(f"<think>{THOUGHT}</think>\n\nSECOND"),
    "no opening tag": content(f"{THOUGHT}</think>SECOND"),
    "parts": content(
        [dict(type="thinking", thinking=[]), dict(type="text", text="SECOND")]
    ),
    "elsewhere": changed(
        message=dict(content="SECOND", reasoning_content=THOUGHT)
    ),
    "channels": content(
        f"<|channel|>analysis<|message|>{THOUGHT}<|channel|>final<|message|>SECOND"
    ),
}


@pytest.mark.parametrize("how", THINKS)
def test_the_answer_is_behind_the_thought(server, at, how):
    server.plan["second"] = THINKS[how]
    assert load(at).generate(asks("chat", WORDS)) == [
        "FIRST",
        "SECOND",
        "THIRD",
    ]
    assert stored(at) == upper(WORDS)


CUT = {
    "tag": changed(
        message=dict(content=f"<think>{THOUGHT}"), finish_reason="length"
    ),
    "no tag": changed(
        message=dict(content=f"Okay, {THOUGHT}"), finish_reason="length"
    ),
    "null": changed(message=dict(content=None), finish_reason="length"),
    "elsewhere": changed(
        message=dict(content="", reasoning=THOUGHT), finish_reason="length"
    ),
    "answer": changed(
        message=dict(content=f"<think>{THOUGHT}</think>FI"),
        finish_reason="length",
    ),
}


@pytest.mark.parametrize("how", CUT)
def test_a_thought_that_is_cut_gets_room(server, at, how, capsys):
    "More tokens are asked for, with no `stop` that could end the thought, for this and all other prompts"
    for w in WORDS:
        server.plan[w] = [content(f"Okay, {THOUGHT}</think>{w.upper()}\nmore")]
    server.plan["first"].insert(0, CUT[how])
    said = load(at).generate(asks("chat", WORDS), max_tokens=20, stop=["\n"])
    assert said == ["FIRST", "SECOND", "THIRD"] and stored(at) == upper(WORDS)
    assert [b["max_tokens"] for *_, b in server.asked] == [20] + [
        20 + servers.THOUGHTS
    ] * 3
    assert [b.get("stop") for *_, b in server.asked] == [
        ["\n"],
        None,
        None,
        None,
    ]
    assert capsys.readouterr().err.count("thinks") == 1


def test_an_answer_that_muses_is_no_thought(server, at):
    server.plan["first"] = changed(
        message=dict(content="So, fine"), finish_reason="length"
    )
    assert load(at).generate(asks("chat", WORDS)) == [
        "So, fine",
        "SECOND",
        "THIRD",
    ]
    assert [b["max_tokens"] for *_, b in server.asked] == [
        64,
        64 + servers.THOUGHTS,
        64,
        64,
    ]


def test_an_answer_that_cannot_be_read(server, at, capsys):
    "It is counted, said on the terminal and for a page, and not stored"
    server.plan["second"] = CUT["elsewhere"]
    model = load(at, body=dict(reasoning_effort="high"))
    said = model.generate(asks("chat", WORDS))
    assert said == ["FIRST", "", "THIRD"] and stored(at) == upper(
        ["first", "third"]
    )
    assert isinstance(said[1], servers.Unread) and not isinstance(
        said[1], Refused
    )
    assert "1 of 3 answers cannot be read" in (told := capsys.readouterr().err)
    assert (
        "reasoning_effort" in told
        and "1 of 3 prompts got no answer" in model.notes[0]
    )
    assert (
        server.asked[0][-1]["reasoning_effort"] == "high"
        and model.id != load(at).id
    )


def test_nothing_but_thoughts_stops_the_run(server, at):
    server.plan = dict.fromkeys(ALL, CUT["elsewhere"])
    with pytest.raises(
        lm.ModelError, match="nothing but thoughts.*reasoning_effort"
    ):
        load(at).generate(asks("chat", ALL))
    assert len(server.asked) == 4 and stored(at) == {}


def test_half_a_character(server, at):
    server.plan["second"] = content("caf\ud83d")
    assert load(at).generate(asks("chat", WORDS)) == ["FIRST", "caf", "THIRD"]


def test_a_model_that_declines_in_words(server, at, capsys):
    "The text stays, here and in the store, and counts as refused"
    server.plan["second"] = content(
        "I'm sorry, but I can't reproduce this file verbatim."
    )
    for n in (3, 3):
        model = load(at)
        said = model.generate(asks("chat", WORDS))
        assert len(server.asked) == n and lm.refusals(said) == 1
        assert (
            said[1]
            == "I'm sorry, but I can't reproduce this file verbatim."
            == said[1].reason
        )
        assert "refused 1 of 3 prompts" in capsys.readouterr().err
        assert "1 of 3 prompts were declined in words" in model.notes[0]
    assert isinstance(stored(at)["second"], str)


def test_pages_say_what_was_declined_and_what_was_not_read(
    server, at, tmp_path, monkeypatch
):
    "Beside the signs of a table, and among the doubts about texts"
    from memnb.compare.asking import ask

    class Odd(dict):
        def get(self, prompt):
            n = len(prompt) % 3
            return [None, CUT["null"], content("I can't help with that.")][n]

    server.plan, model = Odd(), load(at)
    t = ask(
        model,
        [f"{w} text of some words" for w in ("a", "bb", "ccc")],
        prefixes=(1,),
    )
    for notes in (t.attrs["notes"], model.notes):
        assert any("declined in words" in x for x in notes), notes
        assert any("got no answer" in x for x in notes), notes
    monkeypatch.setattr("memnb.tabular.onepage.PARTS", ["row_completion"])
    page = tabular.one_page(
        model, "iris", tmp_path / "page.html", n=2, samples=2
    )
    assert (
        "declined in words" in page.read_text()
        and "got no answer" in page.read_text()
    )


def test_another_body_is_another_run(server, monkeypatch):
    from memnb.run.identity import _model

    plain = _model("openai:loud")
    for same, options in (
        (False, dict(body=dict(a=1))),
        (False, dict(mode="completion")),
    ):
        monkeypatch.setenv("MEMNB_SERVER", json.dumps(options))
        assert (_model("openai:loud") == plain) is same
    monkeypatch.setenv("MEMNB_SERVER", json.dumps(dict(timeout=3)))
    assert _model("openai:loud") == plain


# ---- servers that want it otherwise


@pytest.mark.parametrize(
    "code, told",
    [
        (400, "System role not supported"),
        (
            500,
            "\nJinja Exception: Conversation roles must alternate user/assistant/user",
        ),
    ],
)
def test_a_model_without_a_system_role(server, at, code, told, capsys):
    "The instruction goes in front of the first question: learned once, and said"
    no, prompts = status(code, dict(error=dict(message=told))), []
    for w in WORDS:
        server.plan[w] = lambda h, body, w=w: (
            no(h, body)
            if body["messages"][0]["role"] == "system"
            else h.reply(whole(body))
        )
        prompts.append(lm.chat("Go on.", [("a", "b")], w))
    model = load(at)
    assert (
        model.generate(prompts) == ["FIRST", "SECOND", "THIRD"]
        and len(server.asked) == 4
    )
    first = server.asked[-1][-1]["messages"][0]
    assert first == dict(role="user", content="Go on.\n\na")
    assert (
        capsys.readouterr().err.count("no system role") == 1
        and "no system role" in model.notes[0]
    )


def test_a_server_that_cuts_prompts(server, at):
    "`usage` tells: the run stops, and nothing of it is kept"
    row = "5.1,3.5,1.4,0.2,setosa\n" * 400

    def short(h, body):
        n = min(2048, len(body["messages"][-1]["content"]) // 2)
        h.reply(whole(body) | dict(usage=dict(prompt_tokens=n)))

    class Short(dict):
        def get(self, prompt):
            return short

    server.plan = Short()
    with pytest.raises(
        lm.ModelError,
        match="cuts prompts: it read 2,048 tokens.*CONTEXT_LENGTH",
    ):
        load(at).generate(asks("chat", [row, *WORDS]))
    assert (
        stored(at) == {} and len(server.asked) == 4
    )  # the prompt, and the count of it and its halves


@pytest.mark.parametrize(
    "code, told, headers",
    [
        (429, "tokens per day: try again in 30m0s", {}),
        (429, "slow down", dict(Retry_After=1800)),
        (200, "rate_limit_exceeded, please retry in 30 minutes", {}),
    ],
)
def test_a_wait_that_is_too_long(server, at, code, told, headers):
    "One line, with what is in the store, after one request"
    server.plan["second"] = status(
        code, dict(error=dict(message=told)), **headers
    )
    with pytest.raises(
        lm.ModelError,
        match="left alone for 1,800 s.*wait=600.*are in the store",
    ):
        load(at, concurrency=1).generate(asks("chat", WORDS))
    assert stored(at) == upper(["first"]) and len(server.asked) == 2


def test_a_wait_within_the_limit(server, at, capsys):
    "A server that loads its model is waited for, longer than the client's own repetitions"
    loading = status(503, dict(error=dict(message="Loading model")))
    server.plan["first"] = [loading] * 5
    assert load(at).generate(asks("chat", WORDS)) == [
        "FIRST",
        "SECOND",
        "THIRD",
    ]
    assert (
        len(server.asked) == 8 and capsys.readouterr().err.count("waiting") == 1
    )
    server.plan["fourth"] = loading
    with pytest.raises(lm.ModelError, match="Loading model.*wait=0.3"):
        load(at, wait=0.3).generate(asks("chat", ["fourth"]))


def test_a_server_that_serves_one_at_a_time(server, at):
    "It works on at what nobody waits for any more: fewer are asked at a time, and all are answered"
    one = threading.Lock()

    def slowly(h, body):
        with one:
            time.sleep(0.05)
        h.reply(whole(body))

    words = [f"word {i}" for i in range(30)]
    server.plan, model = (
        dict.fromkeys(words, slowly),
        load(at, timeout=0.6, retries=8),
    )
    assert model.generate(asks("chat", words)) == [w.upper() for w in words]
    assert model.client._client.limit < 16


def test_fewer_after_a_429_and_more_again(server, at):
    words = [f"word {i}" for i in range(150)]
    server.delay, server.plan["word 40"] = 0.01, [status(429)]
    model = load(at)
    model.generate(asks("chat", words))
    assert (
        16 <= model.client._client.limit < 24
        and model.client._client.most == 32
    )


LINES = {
    "a wrong key": (
        status(401, dict(error=dict(message="wrong key"))),
        "wrong key.*Check the key",
    ),
    "a wrong name": (
        status(404, dict(error=dict(message="no model"))),
        "no model.*model name",
    ),
    "an error in a 200": (
        raw(dict(error=dict(message="No auth", code=401))),
        "No auth",
    ),
    "a web page": (raw(PAGE, kind="text/html"), "no answer but begins.*html"),
    "a setting": (
        status(
            400,
            dict(error=dict(message="enable_thinking must be set to false")),
        ),
        "enable_thinking.*--server body",
    ),
    "a first line that is empty": (
        status(400, dict(error=dict(message="\nno tools"))),
        "no tools",
    ),
}


@pytest.mark.parametrize("what", LINES)
def test_one_line_on_the_terminal(
    server, at, what, capsys, monkeypatch, tmp_path
):
    from memnb.run import cli

    fault, line = LINES[what]
    server.plan = dict.fromkeys(WORDS * 2 + ALL, fault)
    monkeypatch.setitem(
        cli.COMMANDS,
        "list",
        lambda: load(at).generate(asks("chat", ALL)) and None,
    )
    assert cli.main(["list"]) == 2
    err = capsys.readouterr().err.strip()
    assert re.fullmatch(f"memnb: openai:loud.*{line}.*", err), err
    assert len(server.asked) <= 6 and KEY not in err


def test_a_key_with_a_line_end(server, at, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}\n")
    assert load(at).generate(asks("chat", ["first"])) == ["FIRST"]
    assert server.asked[0][3]["Authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    "form",
    [
        "{}/v1/",
        "{}/v1//",
        "{}/v1/chat/completions",
        "{}/v1/models",
        '"{}/v1"',
        " {}/v1\n",
        "“{}/v1”",
        "<{}/v1>",
        "{}/v1;",
    ],
)
def test_an_address_is_read_as_it_is_meant(form, server, at, monkeypatch):
    "The server is asked, and its answers are those of the plain address"
    plain = load(at)
    monkeypatch.setenv("OPENAI_BASE_URL", form.format(server.url))
    model = load(at)
    assert model.generate(asks("chat", ["first"])) == ["FIRST"]
    assert server.asked[0][2] == "/v1/chat/completions"
    assert model.id == plain.id


@pytest.mark.parametrize(
    ("form", "says"),
    [
        ("{}/v1?key=hidden-one", "has a query"),
        ("{}/v1 {}/v1", "no address"),
        ("ftp://ann:hidden-one@host:21/v1", "no address"),
        ("   ", "no address"),
    ],
)
def test_an_address_that_cannot_be_asked_is_said(
    form, says, server, monkeypatch
):
    monkeypatch.setenv("OPENAI_BASE_URL", form.format(server.url, server.url))
    with pytest.raises(ValueError, match=says) as error:
        lm.load("openai:loud")
    assert "hidden" not in str(error.value) and not server.asked


@pytest.mark.parametrize("name", ["m\n", " ", " m", "\x1b[31mm"])
def test_a_name_of_a_model_with_blanks_or_signs_is_refused(name):
    "As a line that was read from a file: its answers would be kept apart from those of the model"
    with pytest.raises(ValueError, match="name of a model has no blanks"):
        lm.load(f"openai:{name}")


def test_a_target_of_azure_is_its_address(monkeypatch):
    target = "https://me.openai.azure.com/openai/deployments/a/chat/completions?api-version=1"
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", target)
    model = lm.load("openai:a")
    assert (model.url, model.azure) == ("https://me.openai.azure.com", True)


@pytest.mark.parametrize(
    "key", ["Bearer {}", "OPENAI_API_KEY={}", "$KEY", "{} {}", "export K={}"]
)
def test_a_key_with_more_than_a_key_is_not_sent(key, server, at, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", key.format(KEY, KEY))
    with pytest.raises(servers.NoKey, match="more than a key") as error:
        load(at).generate(asks("chat", ["first"]))
    assert KEY not in str(error.value) and not server.asked


@pytest.mark.parametrize(
    "setting",
    [
        dict(concurrency=0),
        dict(concurrency=2.5),
        dict(timeout="60"),
        dict(timeout=None),
        dict(retries=-3),
        dict(wait=float("nan")),
        dict(body=["x"]),
    ],
)
def test_a_setting_that_cannot_be_is_refused_wherever_it_stands(
    setting, at, monkeypatch
):
    "With no request at a time the first question waited for ever"
    (name,) = setting
    with pytest.raises(ValueError, match=f"{name} of a server is"):
        lm.load("openai:loud", **setting)
    monkeypatch.setenv("MEMNB_SERVER", json.dumps(setting))
    with pytest.raises(ValueError, match=f"{name} of a server is"):
        lm.load("openai:loud")


def test_a_key_among_the_fields_is_sent_and_not_stored(server, at):
    body = dict(
        api_key="hidden-one", top_k=3, metadata=dict(token="hidden-two")
    )
    model = load(at, body=body)
    assert model.generate(asks("chat", ["first"])) == ["FIRST"]
    assert server.asked[0][-1]["api_key"] == "hidden-one"
    assert "hidden" not in model.id and "top_k" in model.id
    assert b"hidden" not in at.read_bytes()


def test_settings_of_a_server(server, at, monkeypatch):
    "Given on the command line, they hold in this process and in those that it starts"
    from memnb.run import cli

    monkeypatch.setenv("MEMNB_SERVER", "")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    body = '{"top_k": 1}'
    words = f"url={server.url}/v1 timeout=7 concurrency=2 mode=completion wait=0".split()
    cli._served([*words, f"body={body}"])
    model = lm.load("openai:loud", store=lm.Store(at))
    assert (
        model.generate(["first"]) == ["FIRST"]
        and server.asked[0][-1]["top_k"] == 1
    )
    assert (model.mode, model.concurrency, model.options["timeout"]) == (
        "completion",
        2,
        7,
    )
    assert lm.load("openai:loud", mode="chat", concurrency=3).concurrency == 3
    for wrong in (
        "body=3",
        "timeout=x",
        "concurrency=0",
        "nothing=1",
        "url=here",
        "url=",
        "timeout",
    ):
        with pytest.raises(ValueError, match="--server|no address"):
            cli._served([wrong])


def test_options_are_the_same_wherever_they_are_said():
    "In the table of docs/servers.md with their defaults, in the help of three commands, and in `lm.load`"
    from memnb.run import cli

    text = (Path(__file__).parents[1] / "docs/servers.md").read_text()
    rows = re.findall(
        r"^\| `(\w+)` \| *(\S*) *\|", text.split("## Options")[1], re.M
    )
    # the address is of the command line only
    taken = dict(servers.OPTIONS, url="")
    shown = {name: default.strip("`") for name, default in rows}
    assert shown.keys() == taken.keys()
    values = {name: str(value) for name, value in taken.items()}
    assert {n: v.removesuffix(".0") for n, v in values.items()} == shown
    for command in (cli._run, cli._table, cli._ask):
        (line,) = re.findall(r"server: NAME=VALUE .*: (.*)", command.__doc__)
        words = line.replace("(JSON)", "").split(",")
        assert {word.strip() for word in words} == taken.keys()
    (line,) = re.findall(r"openai:\s+(\w+(?:, \w+)*)\n", lm.load.__doc__)
    assert {*line.split(", ")} == servers.OPTIONS.keys() - {"mode"}


# ---- log-probabilities of a given text, against a local model's own


TEXTS = [
    ("The capital of France is", " Paris, the city\nof light"),
    ("Zoë said 😀 that", " the naïve fox 日本 jumped"),
    ("\n", "aaa aaa aaa aaa"),
    ("a 😀😁", "😂 b"),
]


@pytest.fixture(scope="session")
def local(tmp_path_factory):
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    tok = AutoTokenizer.from_pretrained(hf.fetch())
    torch.manual_seed(0)
    sizes = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2)
    sizes |= dict(
        num_attention_heads=2, num_key_value_heads=2, tie_word_embeddings=False
    )
    net = LlamaForCausalLM(LlamaConfig(vocab_size=len(tok), **sizes)).eval()
    net.lm_head.weight.data *= 60  # as sure of some tokens as a trained model
    store = lm.Store(tmp_path_factory.mktemp("local") / "a.sqlite")
    m = hf.HF("tiny", "tiny", net, tok, mode="completion", store=store)
    m.whole = net
    return m


def reads(local, text):
    "The tokens of a text, their log-probabilities, and one token more, by the network itself"
    import torch

    ids = local.tok(text, add_special_tokens=False).input_ids
    with torch.no_grad():
        z = local.whole(torch.tensor([ids])).logits[0].log_softmax(-1)
    after = int(z[-1].argmax())
    return [*ids, after], [
        None,
        *(float(z[i, t]) for i, t in enumerate([*ids[1:], after])),
    ]


def pieces(local, ids):
    return [local.tok.decode([i]) for i in ids]


def late(local, ids):
    "Letters are written when they are complete, before that nothing is"
    out, done = [], ""
    for n in range(1, len(ids) + 1):
        now = local.tok.decode(ids[:n])
        new = "" if now.endswith("\ufffd") else now[len(done) :]
        out, done = [*out, new], done + new
    return out


def echoing(values=lambda v: v, tokens=pieces, own=slice(None)):
    def fault(h, body, local):
        ids, v = reads(local, body["prompt"])
        lp = dict(tokens=tokens(local, ids)[own], token_logprobs=values(v)[own])
        if body.get("echo"):
            h.reply(whole(body, text="?", finish_reason="length", logprobs=lp))
        else:
            h.reply(writes(body, local))

    return fault


def writes(body, local):
    "The next token, with its log-probability where it is asked for"
    ids, v = reads(local, body["prompt"])
    text = pieces(local, ids[-1:])[0]
    said = (
        dict(tokens=[text], token_logprobs=v[-1:])
        if body.get("logprobs")
        else None
    )
    return whole(body, text=text, finish_reason="length", logprobs=said)


def behind(h, body, local):
    "As llama-cpp-python 0.3.36: each token is looked up in the distribution behind it"
    import torch

    if not body.get("echo"):
        return h.reply(writes(body, local))
    ids = local.tok(body["prompt"], add_special_tokens=False).input_ids
    with torch.no_grad():
        z = local.whole(torch.tensor([ids])).logits[0].log_softmax(-1)
    v = [None, *(float(z[i, t]) for i, t in enumerate(ids) if i)]
    lp = dict(tokens=pieces(local, ids), token_logprobs=v)
    h.reply(
        whole(
            body, text=body["prompt"] + "?", finish_reason="length", logprobs=lp
        )
    )


def vllm(h, body, local):
    "As vLLM without an echo"
    if "prompt_logprobs" not in body:
        return h.reply(writes(body, local))
    ids, v = reads(local, body["prompt"])
    own = [
        {str(i): dict(logprob=x, rank=1, decoded_token=t)}
        for i, x, t in zip(ids, v, pieces(local, ids))
    ]
    h.reply(whole(body, prompt_logprobs=[None, *own[1:-1]]))


RIGHT = {
    "as they are": echoing(),
    "shifted by one": echoing(lambda v: [*v[1:], -3.0]),
    "GPT-2's letters": echoing(
        tokens=lambda m, ids: m.tok.convert_ids_to_tokens(ids)
    ),
    "complete letters": echoing(tokens=late),
    "a start of the text": echoing(
        lambda v: [None, -5.0, *v[1:]], lambda m, ids: ["<s>", *pieces(m, ids)]
    ),
    "prompt_logprobs": vllm,
}
NONE = {
    "only of the answer": echoing(own=slice(-1, None)),
    "empty tokens": echoing(tokens=lambda m, ids: [""] * len(ids)),
    "numbers of tokens": echoing(
        tokens=lambda m, ids: [f"token_id:{i}" for i in ids]
    ),
    "all alike": echoing(lambda v: [None, *[-2.0] * (len(v) - 1)]),
    "two too early": echoing(lambda v: [*v[2:], -3.0, -3.0]),
    "behind the token": behind,
    "none": lambda h, body, local: h.reply(whole(body)),
}


class Scoring(dict):
    "A plan in which each text is scored"

    def __init__(self, how, local):
        self.how, self.local = how, local

    def get(self, prompt):
        return lambda h, body: self.how(h, body, self.local)


@pytest.mark.parametrize("how", RIGHT)
def test_log_probabilities_as_of_the_local_model(server, at, local, how):
    server.plan, model = (
        Scoring(RIGHT[how], local),
        load(at, "completion", concurrency=1),
    )
    for prefix, tail in TEXTS[: 3 if how != "complete letters" else 4]:
        mine, theirs = (
            model.logprobs(prefix, [tail])[0],
            local.logprobs(prefix, [tail])[0],
        )
        assert (
            len(mine) == len(theirs)
            and max(abs(a - b) for a, b in zip(mine, theirs)) < 1e-3
        )
    n = len(server.asked)
    assert (
        load(at, "completion").logprobs(prefix, [tail]) == [mine]
        and len(server.asked) == n
    )


@pytest.mark.parametrize("how", NONE)
def test_no_log_probabilities_where_they_are_not_right(server, at, local, how):
    server.plan, model = Scoring(NONE[how], local), load(at, "completion")
    with pytest.raises(
        lm.Unsupported, match="does not give the log-probabilities.*echo:"
    ):
        model.logprobs(*[TEXTS[0][0], [TEXTS[0][1]]])
    assert stored(at) == {} and "logprobs" not in model.caps


def test_why_no_log_probabilities_come_is_said(server, at, local, capsys):
    "`ask` left half of its measures out, and neither terminal nor page said why"
    server.plan = Scoring(NONE[next(iter(NONE))], local)
    model = load(at, "completion")
    assert not model.gives("logprobs") and not model.gives("logprobs")
    said = capsys.readouterr().err
    assert said.count("does not give the log-probabilities") == 1
    assert any("does not give the log-prob" in note for note in model.notes)


def test_measures_of_a_served_model(server, at, local):
    "Recollection, membership, influence and bits by the same call as for a local model"
    from memnb.compare.asking import ask

    server.plan, texts = (
        Scoring(RIGHT["as they are"], local),
        ["The cat sat on a mat by the door."],
    )
    model = load(at, "completion")
    t = ask(
        model,
        texts,
        prefixes=(2,),
        reference=lm.load("openai:other", mode="completion", store=model.store),
    )
    own = local.logprobs("\n", texts)[0]
    assert abs(t.loss[0] + sum(own) / len(own)) < 1e-3 and t.tokens[0] == len(
        own
    )
    assert {"queries", "influential", "bits", "ratio", "wbc"} <= set(
        t
    ) and t.bits[0] == 0


ODD_TEXTS = [
    "The cat sat on a mat by the door.",
    " a text that begins with a blank, as some do",
    "\n\na text that begins with two line ends",
    "naïve 日本語 and 😀 in a text of some words",
    "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13",
]


def test_the_same_weights_served_and_local_are_no_bits_apart(server, at, local):
    "Both are read behind the same beginning, whichever of the two is the reference"
    from memnb.capacity.given import unintended
    from memnb.compare.asking import ask

    server.plan, served = (
        Scoring(RIGHT["as they are"], local),
        load(at, "completion"),
    )
    for a, b in ((served, local), (local, served)):
        t = unintended(a, b, ODD_TEXTS[:3], ODD_TEXTS[3:])
        assert t.text.tolist() == ODD_TEXTS[:3] and (t.bits > 20).all()
        assert t.saved.abs().max() < 1e-3, t.saved.tolist()
        t = ask(a, ODD_TEXTS, reference=b, prefixes=(2,))
        assert (
            t.ratio.abs().max() < 1e-4 and t.bits.max() < 1e-3 and "ez" not in t
        )
    alone = ask(served, ODD_TEXTS, prefixes=(2,))
    assert (
        abs(alone.loss - t.loss).max() < 1e-4
    )  # the local one beside a served one


def test_a_text_that_a_server_cannot_read_costs_no_other(
    server, at, local, capsys
):
    "It is named, and the others have their rows; so in `ask` with answers only"
    from memnb.capacity.given import unintended
    from memnb.compare.asking import ask

    right, long = RIGHT["as they are"], "a b c d e f g " * 20

    def short(h, body, local):
        text = (
            body["prompt"]
            if "prompt" in body
            else body["messages"][-1]["content"]
        )
        if len(text) > 150:
            return bad(
                "prompt", "This model's maximum context length is 40 tokens."
            )(h, body)
        return (
            right(h, body, local) if "prompt" in body else h.reply(whole(body))
        )

    server.plan, served = Scoring(short, local), load(at, "completion")
    t = ask(
        served,
        [ODD_TEXTS[0], long, ODD_TEXTS[4]],
        reference=local,
        prefixes=(2,),
    )
    assert t.text.tolist() == [ODD_TEXTS[0], ODD_TEXTS[4]]
    named = "1 of 3 texts are left out, as 'a b c"
    assert any(named in x for x in t.attrs["notes"])
    assert named in capsys.readouterr().err
    t = unintended(served, local, [ODD_TEXTS[0], long])
    assert t.text.tolist() == ODD_TEXTS[:1] and [*t.attrs["left_out"]] == [long]
    t = ask(load(at), [ODD_TEXTS[0], long], prefixes=(2,))
    assert t.influential.isna().tolist() == [False, True]
    assert any("too long" in x for x in t.attrs["notes"])
    assert "prompts are too long" in capsys.readouterr().err


def test_what_ask_leaves_out_is_said_in_the_terminal(
    server, tmp_path, capsys, monkeypatch
):
    "As on its page: texts that are too short or stand there twice, by the beginning of one, and models that cannot be compared"
    from memnb.run import cli

    monkeypatch.chdir(tmp_path)
    long = " ".join(f"word{i}" for i in range(20))
    lines = [long, "too short a text", "and another one", long, f"{long} more"]
    Path("t.txt").write_text("\n".join(lines), encoding="utf8")
    line = ["ask", "openai:loud", "t.txt", "--no-influence"]
    assert cli.main([*line, "--reference", "openai:other"]) == 0
    said = capsys.readouterr().err
    page = Path("ask.html").read_text(encoding="utf8")
    for words in (
        "Left out, as empty or there twice: 1 of 5 texts.",
        "2 of 4 texts are left out, as 'too short a text': they have",
        "openai:other gives no log-probabilities",
    ):
        assert words in said and words.replace("'", "&#39;") in page


def test_icl_on_a_server_without_log_probabilities(server, at):
    "It is found out before labels are read by them, and the rest is measured"
    from memnb import icl

    model = load(at, "completion")
    assert not model.gives("logprobs") and model.gives("generate")
    rows = icl.measure(
        load(at, "completion"),
        "file",
        n=2,
        ks=[0],
        settings=["full"],
        repeats=1,
    )
    assert "generation" in rows.to_csv() and "calibrated" not in rows.to_csv()


def test_what_a_server_gives_is_known_from_the_store(
    server, at, local, monkeypatch
):
    "A page that is made again without a key asks nobody"
    server.plan = Scoring(RIGHT["as they are"], local)
    assert load(at, "completion").gives("logprobs")
    n = len(server.asked)
    monkeypatch.delenv("OPENAI_API_KEY")
    assert load(at, "completion").gives("logprobs") and len(server.asked) == n
    assert not load(at.with_name("other.sqlite"), "completion").gives(
        "logprobs"
    )


# ---- a real server with the packaged model


class Real:
    "`transformers serve` on loopback, started when needed"

    def __init__(self, folder):
        self.folder, self.process = folder, None
        (folder / "smollm2").symlink_to(hf.fetch(), target_is_directory=True)

    def answers(self):
        try:
            return (
                build_opener(ProxyHandler({}))
                .open(f"{self.url}/health", timeout=5)
                .status
                == 200
            )
        except OSError:
            return False

    def log(self):
        return (self.folder / "log").read_text(errors="replace")[-3000:]

    def up(self):
        "Start in the folder that holds the model, so that its name at the server is no path"
        if self.process and self.process.poll() is None:
            return self
        with socket.create_server(("127.0.0.1", 0)) as s:
            port = s.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        cmd = [
            Path(sys.executable).parent / "transformers",
            "serve",
            "smollm2",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--device",
            "cpu",
            "--dtype",
            "float32",
        ]
        env = {**os.environ, "HF_HUB_OFFLINE": "1"}
        with open(self.folder / "log", "w") as log:
            self.process = subprocess.Popen(
                cmd,
                cwd=self.folder,
                env=env,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        end = time.monotonic() + 180
        while not self.answers():
            if self.process.poll() is not None:
                pytest.fail(f"transformers serve ended\n{self.log()}")
            if time.monotonic() > end:
                pytest.fail(
                    f"transformers serve is silent for 180 s\n{self.log()}"
                )
            time.sleep(0.2)
        return self

    def down(self):
        if not self.process:
            return
        for sig in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, sig)
            except ProcessLookupError:
                break
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                continue
        self.process = None


@pytest.fixture(scope="session")
def one_real(tmp_path_factory):
    missing = [m for m in ("fastapi", "uvicorn") if find_spec(m) is None]
    if missing:
        pytest.skip(
            f"no {' and no '.join(missing)} here: the extra 'serve' is not installed"
        )
    srv = Real(tmp_path_factory.mktemp("serve"))
    yield srv
    srv.down()


@pytest.fixture
def real(one_real, monkeypatch):
    srv = one_real.up()
    monkeypatch.setenv("OPENAI_BASE_URL", f"{srv.url}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    return srv


REAL = {
    "chat": [
        lm.chat("", [], "What is the capital of France?"),
        lm.chat("Answer with one word.", [("2+2?", "4")], "3+4?"),
        lm.chat(
            "Complete rows of a csv file.",
            [("5.1,3.5,1.4,", "0.2,Iris-setosa")],
            "4.9,3.0,1.4,",
        ),
        lm.chat("", [], "Say: naïve café — “quotes” 日本 😀"),
    ],
    "completion": [
        "sepal_length,sepal_width,species\n5.1,3.5,setosa\n4.9,3.0,setosa\n",
        "The capital of France is",
        'He said , " hello ! " and do n\'t',
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    ],
}
each_kw = pytest.mark.parametrize(
    "kw",
    [dict(max_tokens=12), dict(max_tokens=12, stop=["\n", " the "])],
    ids=["plain", "stop"],
)


def served(at, mode):
    return lm.load(
        "openai:smollm2",
        store=lm.Store(at),
        mode=mode,
        timeout=300.0,
        retries=0,
    )


@pytest.mark.serve
@each_mode
@each_kw
def test_same_answers_as_the_local_model(real, at, tmp_path, mode, kw):
    local = lm.load("smollm2", store=lm.Store(tmp_path / "local.sqlite"))
    here, there = (
        local.generate(REAL[mode], **kw),
        served(at, mode).generate(REAL[mode], **kw),
    )
    assert there == here and all(here)
    text = b"".join(f.read_bytes() for f in at.parent.glob("answers*"))
    assert (
        str(real.folder).encode() not in text
        and str(hf.fetch()).encode() not in text
    )


@pytest.mark.serve
def test_the_real_server_has_no_logprobs(real, at):
    "It takes the request for them and ignores it"
    model = served(at, "completion")
    with pytest.raises(
        lm.Unsupported,
        match="openai:smollm2.*log-probabilities.*tabular.row_completion",
    ):
        model.logprobs("The capital of France is", [" Paris", " Rome"])
    assert stored(at) == {} and model.generate(
        ["The capital of France is"], max_tokens=2
    ) == [" Paris."]


@pytest.mark.serve
def test_a_paper_test_on_the_real_server(real, at, tmp_path):
    "Row completion of a table gives the same result as on the local model, from the same answers"
    local = lm.load("smollm2", store=lm.Store(tmp_path / "local.sqlite"))
    kw = dict(n=2, rows=4, shots=1, mode="chat")
    here, there = (
        tabular.row_completion(m, "iris", **kw)
        for m in (local, served(at, "chat"))
    )
    assert len(here) == 2 and here.equals(there)
    assert stored(at) == stored(tmp_path / "local.sqlite")


@pytest.mark.serve
def test_answers_outlive_the_server(real, at, monkeypatch):
    "A second call is answered from the store though the server is dead and the key gone"
    first = served(at, "chat").generate(REAL["chat"][:2], max_tokens=4)
    real.down()
    assert not real.answers()
    monkeypatch.delenv("OPENAI_API_KEY")
    again = served(at, "chat")
    assert (
        again.generate(REAL["chat"][:2], max_tokens=4) == first
        and again.calls == 0
    )
    with pytest.raises(RuntimeError, match="OPENAI_API_KEY"):
        again.generate(REAL["chat"][2:3], max_tokens=4)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with pytest.raises(lm.NoAnswer, match="1 of 1.*APIConnectionError"):
        served(at, "chat").generate(REAL["chat"][1:3], max_tokens=4)
