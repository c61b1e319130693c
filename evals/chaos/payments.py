"""The payment service: `python -m evals.chaos.payments PORT BOOK TROUBLES`, a process of its own on loopback."""

import json
import socket
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from evals.chaos.book import Answer, Book, Call, Endpoint, Trouble, troubles_of
from evals.chaos.proxy import AT_ONCE

PATIENCE = 4.0
"""Seconds that the bank's tools wait for an answer: their `timeout`."""
SETTLE = 4.0
"""Seconds after which the tools believe that a call which is not found never came: their `settle`."""
TOO_LONG = PATIENCE + 2
"""Seconds after which nobody waits for an answer any more."""
REFUSALS = {
    Trouble.BUSY: Answer(429, {}),
    Trouble.DOWN: Answer(503, {}),
    Trouble.DENIED: Answer(401, {}),
}


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: "Service"

    def do_GET(self) -> None:
        """Read a rate, or look a charge up."""
        self._handle(0)

    def do_POST(self) -> None:
        """Charge."""
        self._handle(self._amount())

    def do_PUT(self) -> None:
        """Set a limit."""
        self._handle(self._amount())

    def _amount(self) -> int:
        """Raises ConnectionError where the sender went away with its request half sent."""
        length = int(self.headers["content-length"])
        body = self.rfile.read(length)
        if len(body) < length:
            raise ConnectionError("half a request")
        return int(json.loads(body)["amount"])

    def _handle(self, amount: int) -> None:
        asked = urlsplit(self.path)
        call = Call(
            endpoint=Endpoint(asked.path.strip("/")),
            reference=parse_qs(asked.query)["reference"][0],
            key=self.headers.get("idempotency-key"),
            amount=amount,
            worker=int(self.headers.get("x-worker", 0)),
        )
        number, trouble = self.server.book.arrived(call)
        answer = self._meet(trouble, number, call)
        if answer is None:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
            self.connection.close()
            return
        self._say(answer)

    def _meet(self, trouble: Trouble, number: int, call: Call) -> Answer | None:
        """What is answered; None for a connection that is to be reset."""
        if trouble in REFUSALS:
            return REFUSALS[trouble]
        if trouble is Trouble.RESET:
            return None
        if trouble is Trouble.LATE:
            time.sleep(self.server.too_long)
        answer = self.server.book.carry_out(number, call)
        if trouble in (Trouble.SLOW, Trouble.KILL):
            time.sleep(self.server.too_long)
        return answer if trouble is Trouble.NONE else None

    def _say(self, answer: Answer) -> None:
        body = json.dumps(answer.body).encode()
        self.send_response(answer.status)
        self.send_header("content-length", str(len(body)))
        if answer.status == REFUSALS[Trouble.BUSY].status:
            self.send_header("retry-after", "1")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent: the book has every call."""


class Service(ThreadingHTTPServer):
    """Serves one book."""

    request_queue_size = 100

    def __init__(self, port: int, book: Book, too_long: float = TOO_LONG) -> None:
        """Listen on loopback; after `too_long` seconds nobody waits for an answer any more."""
        super().__init__(("127.0.0.1", port), Handler)
        self.book = book
        self.too_long = too_long

    def handle_error(self, request: object, client_address: object) -> None:
        """A caller that was killed is no news; anything else is."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]  # only printed


def main(port: str, book: str, troubles: str) -> None:
    """Serve until killed."""
    with Service(int(port), Book(Path(book), troubles_of(Path(troubles)))) as service:
        service.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
