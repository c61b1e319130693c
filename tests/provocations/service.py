"""An HTTP service on loopback that fails as it is told, and knows which of its requests took effect."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Service:
    """What the service does with the next requests, and what it has done."""

    url: str = ""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b"{}"
    drops: bool = False
    """Whether it closes the connection in the place of an answer."""
    answers: Mapping[str, bytes] = field(default_factory=dict)
    """The bodies of successful answers, by the beginning of a path: what a client asks before its call."""
    applied: int = 0
    """How many requests took effect: each that may change something and was not rejected with a 4xx."""

    def fails(self, status: int, body: Any = None, *, headers: Mapping[str, str] = {}) -> None:
        """Answer so from now on; `body` is written as JSON unless it is bytes."""
        self.status, self.headers = status, {"Content-Type": "application/json", **headers}
        self.body = body if isinstance(body, bytes) else json.dumps(body if body is not None else {}).encode()


@contextmanager
def serving() -> Iterator[Service]:
    """A service in threads of this process."""
    service = Service()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            """Read a request, and do with it what the service is told."""
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            known = next((body for path, body in service.answers.items() if self.path.startswith(path)), None)
            if known is not None:
                self.say(200, known, {"Content-Type": "application/json"})
                return
            service.applied += self.command not in ("GET", "HEAD") and not 400 <= service.status < 500
            if service.drops:
                self.close_connection = True
                return
            self.say(service.status, service.body, service.headers)

        do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = answer

        def say(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    service.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
