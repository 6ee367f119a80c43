"""What a backend must do, whatever stands behind it; `python tests/conformance.py` records what a real server replies.

    python tests/conformance.py NAME URL 'vLLM 0.32.0, SmolLM2-135M-Instruct in float32 on a CPU'

asks the server at URL for the model `smollm2`, which must be the packaged one, and writes tests/replies/NAME.json.
The tests replay that file, so a change of memnb that a real server would not take is noticed without one.
"""

import json
import sys
import tempfile
from collections.abc import Callable
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import numpy as np

from memnb import lm

REPLIES = Path(__file__).parent / "replies"
QUESTION = lm.chat("", [], "What is the capital of France?")
SUM = lm.chat("Answer with one word.", [("2+2?", "4")], "3+4?")
OPENING = lm.chat("", [], "Once upon")
BEGUN = "The capital of France is"
ENDS = [" Paris", " Rome", " Lyon"]


class Seen(NamedTuple):
    "What a model did when the suite asked it"

    greedy: list[str]  # answers to two chats
    drawn: list[str]  # six samples of one chat
    written: list[str]  # how it goes on with a text; [] in a server of chats
    logprobs: np.ndarray | None  # nats of three ends of a text; None: refused


def asked(load: Callable) -> Seen:
    """What a model does; raises AssertionError where it breaks a rule that holds for every backend

    Args:
        load: gives the model, by `mode`
    """
    chat = load(mode="chat")
    greedy = chat.generate([QUESTION, SUM], max_tokens=12)
    assert all(greedy), "an answer is empty"
    drawn = chat.generate([OPENING] * 6, max_tokens=4, temperature=1.0, seed=1)
    assert len(set(drawn)) > 3, f"samples are alike: {drawn}"
    plain = load(mode="completion")
    try:
        written = plain.generate([BEGUN], max_tokens=4)
    except lm.NoAnswer as error:
        assert "mode=chat" in str(error), error
        return Seen(greedy, drawn, [], None)
    try:
        by_token = plain.logprobs(BEGUN, ENDS)
    except lm.Unsupported:
        return Seen(greedy, drawn, written, None)
    logprobs = np.array([np.sum(tokens) for tokens in by_token])
    assert logprobs.shape == (len(ENDS),) and (logprobs < 0).all()
    return Seen(greedy, drawn, written, logprobs)


# ---- recording


@contextmanager
def recorder(url: str):
    "(address, exchanges): a server that passes requests on to `url`, and keeps them with their replies"
    exchanges = []
    lock = Lock()

    class Passing(BaseHTTPRequestHandler):
        def log_message(self, *args):
            pass

        def do_GET(self):
            self.pass_on("GET", None)

        def do_POST(self):
            length = int(self.headers["Content-Length"])
            self.pass_on("POST", self.rfile.read(length))

        def pass_on(self, method, data):
            request = Request(url + self.path, data, method=method)
            request.add_header("Content-Type", "application/json")
            opener = build_opener(ProxyHandler({}))
            try:
                reply = opener.open(request, timeout=600)
            except HTTPError as error:
                reply = error
            raw = reply.read()
            try:
                told = json.loads(raw)
            except ValueError:
                told = raw.decode(errors="replace")
            body = None if data is None else json.loads(data)
            with lock:
                exchanges.append(
                    dict(
                        method=method,
                        path=self.path,
                        body=body,
                        status=reply.status,
                        reply=settled(told),
                    )
                )
            self.send_response(reply.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Passing)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", exchanges
    finally:
        server.shutdown()
        server.server_close()


# what is different in every reply and read by nobody
VOLATILE = ("id", "created", "system_fingerprint", "timings", "request_id")


def settled(value: object) -> object:
    "A reply without what changes from one call to the next, and without the path of the model"
    if isinstance(value, dict):
        return {
            key: settled(part)
            for key, part in value.items()
            if key not in VOLATILE
        }
    if isinstance(value, list):
        return [settled(part) for part in value]
    if isinstance(value, str) and value.startswith("/"):
        return Path(value).name
    return value


def record(name: str, url: str, server: str) -> Seen:
    "Ask a real server, and write its replies into tests/replies"
    import os

    with tempfile.TemporaryDirectory() as folder, recorder(url) as (at, kept):
        os.environ.update(OPENAI_BASE_URL=f"{at}/v1", OPENAI_API_KEY="none")

        def load(mode):
            store = lm.Store(Path(folder) / "answers.sqlite")
            return lm.load(
                "openai:smollm2",
                store=store,
                mode=mode,
                concurrency=1,
                timeout=600.0,
            )

        seen = asked(load)
    text = json.dumps(
        dict(server=server, exchanges=kept),
        indent=1,
        ensure_ascii=False,
        sort_keys=True,
    )
    (REPLIES / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    return seen


if __name__ == "__main__":
    print(record(*sys.argv[1:]))
