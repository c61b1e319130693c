"""`python -m evals.tape PORT FILE TAPE`: plays a tape on loopback, until it is killed.

`POST /begin` starts the world's clock, which stands still before. `POST /TOOL` with `{"task": ..., "args": ...}` makes
a call; `idempotency-key`, `x-worker`, the caller's process, and `x-step`, its activity, are headers.
"""

import json
import math
import socket
import sys
import threading
import time
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from evals.chaos.payments import RESET_ON_CLOSE
from evals.tape.desk import DeskPlot
from evals.tape.tape import Point, Tape
from evals.tape.world import Answer, World

HELD_SECONDS = 8.0
"""How long a caller waits that is to be killed: longer than it takes to kill it."""


class TapeHandler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: "TapePlayer"

    def do_POST(self) -> None:
        """Begin, or make a call."""
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        tool = self.path.strip("/")
        if tool == "begin":
            self.server.begin()
            self._send(200, b"{}")
            return
        sent = json.loads(body)
        key, worker = self.headers.get("idempotency-key"), int(self.headers.get("x-worker", 0))
        step = self.headers.get("x-step", "")
        answer = self.server.world.call(sent["task"], tool, sent["args"], self.server.clock, key, worker, step)
        self._answer(answer)

    def _answer(self, answer: Answer) -> None:
        if answer.reply is not None:
            wait = answer.retry_after
            seconds = None if wait is None else str(math.ceil(min(wait, 3600)))
            self._send(answer.reply.status, json.dumps(dict(answer.reply.body)).encode(), seconds)
            return
        if answer.point is not Point.LOST:
            self.server.stopping.wait(HELD_SECONDS)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self.connection.close()

    def _send(self, status: int, body: bytes, retry_after: str | None = None) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        if retry_after is not None:
            self.send_header("retry-after", retry_after)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: the journal has every call."""


class TapePlayer(ThreadingHTTPServer):
    """Serves one world."""

    request_queue_size = 200
    daemon_threads = True

    def __init__(self, port: int, world: World[Any]) -> None:
        """Listen on loopback."""
        super().__init__(("127.0.0.1", port), TapeHandler)
        self.world = world
        self.stopping = threading.Event()
        self._began: float | None = None

    def begin(self) -> None:
        """Start the clock."""
        self._began = time.monotonic()

    @property
    def clock(self) -> float:
        """Seconds since the clock was started."""
        return 0.0 if self._began is None else time.monotonic() - self._began

    def handle_error(self, request: object, client_address: object) -> None:
        """Print all errors but those of callers that were killed."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]  # only printed


def play(port: int, world: World[Any]) -> None:
    """Serve a world until killed."""
    with closing(world), TapePlayer(port, world) as player:
        player.serve_forever()


if __name__ == "__main__":
    named = sys.argv[1:]
    play(int(named[0]), World(Path(named[1]), DeskPlot(Tape.model_validate_json(Path(named[2]).read_text()))))
