"""A shop and a model on loopback, with planted faults: what the agents of extras/audit/tests/programs talk to.

The first part of each path is the scenario: `/lost/charge`, `/lost/v1/chat/completions`.
"""

import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL_ERRORS: Mapping[str, tuple[int, str, str]] = {
    "model_key": (401, "invalid_api_key", "Incorrect API key provided"),
    "model_quota": (429, "insufficient_quota", "You exceeded your current quota"),
}
"""By scenario, the status, code and message with which the model always answers."""
CHARGE = {"account": "ann", "amount": 840}
SECONDS_OF_A_KILL = 30.0
"""How long the shop keeps a worker waiting that is to be killed."""


class Shop:
    """The shop's address, what was charged, and when a worker waits to be killed."""

    def __init__(self) -> None:
        self.url = ""
        self.charges = Counter[str]()
        """Applied charges, by scenario."""
        self.requests = Counter[str]()
        self.is_waiting = threading.Event()
        """Set once a worker waits for the answer to a charge that the shop has applied."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, shop: Shop, *args: Any) -> None:
        self.shop = shop
        super().__init__(*args)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._answer(200, {"sku": "A-17", "price": 840})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        scenario, _, path = self.path.strip("/").partition("/")
        number = self.shop.requests[self.path] = self.shop.requests[self.path] + 1
        if path == "charge":
            self._charge(scenario, number)
        else:
            self._model(scenario, body)

    def _charge(self, scenario: str, number: int) -> None:
        if scenario == "conflict":
            return self._answer(409, {"error": "this charge contradicts an open one"})
        if scenario == "unauthorized":
            return self._answer(401, {"error": "the key is not accepted"})
        if scenario == "limited":
            return self._answer(429, {"error": "too many requests, retry after 30 s"}, {"retry-after": "30"})
        self.shop.charges[scenario] += 1
        if scenario == "lost" and number == 1:
            self.close_connection = True
            self.connection.close()
            return None
        if scenario == "killed" and number == 1:
            self.shop.is_waiting.set()
            threading.Event().wait(SECONDS_OF_A_KILL)
            return None
        return self._answer(200, {"charged": CHARGE["amount"]})

    def _model(self, scenario: str, body: dict[str, Any]) -> None:
        """Ask for the price, then charge it, then answer; in scenario `model_key` the key is wrong."""
        if error := MODEL_ERRORS.get(scenario):
            status, code, words = error
            kind = "invalid_request_error" if status == 401 else code
            return self._answer(status, {"error": {"message": words, "type": kind, "code": code}})
        results = sum(message["role"] == "tool" for message in body["messages"])
        calls = [("get_price", {"sku": "A-17"}), ("charge", CHARGE)]
        message: dict[str, Any] = {"role": "assistant", "content": "Ann was charged 840."}
        if results < len(calls):
            name, args = calls[results]
            function = {"name": name, "arguments": json.dumps(args)}
            call = {"id": f"call_{results}", "type": "function", "function": function}
            message |= {"content": None, "tool_calls": [call]}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if results < len(calls) else "stop"}
        usage = {"prompt_tokens": 100 + 50 * results, "completion_tokens": 20, "total_tokens": 120 + 50 * results}
        head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "some-model"}
        return self._answer(200, {**head, "choices": [choice], "usage": usage})

    def _answer(self, status: int, body: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {
            "content-type": "application/json",
            "content-length": str(len(text)),
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)


@contextmanager
def shop() -> Iterator[Shop]:
    """A shop that is open within the block."""
    opened = Shop()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, opened))
    server.daemon_threads = True
    opened.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield opened
    finally:
        server.shutdown()
        server.server_close()
