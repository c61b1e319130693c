"""A payment service on loopback: it keeps its charges, and breaks in the ways that were planned."""

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass
class Payments:
    """The charges, and what goes wrong with the next requests."""

    url: str = ""
    charges: list[dict[str, Any]] = field(default_factory=list)
    refunds: list[dict[str, Any]] = field(default_factory=list)
    plan: list[str] = field(default_factory=list)
    """`503`: refused before; `402`: a refusal; `drop`: charged, and the answer is lost."""
    keys: bool = True
    """Whether the service honours `Idempotency-Key`."""

    def charge(self, key: str | None, body: dict[str, Any]) -> dict[str, Any]:
        """Charge, or return the charge that this key has made."""
        return self._made(self.charges, key, body)

    def refund(self, key: str | None, body: dict[str, Any]) -> dict[str, Any]:
        """Pay back, or return what this key has paid back."""
        return self._made(self.refunds, key, body)

    def _made(self, before: list[dict[str, Any]], key: str | None, body: dict[str, Any]) -> dict[str, Any]:
        known = next((one for one in before if key and one["key"] == key), None) if self.keys else None
        if known is None:
            known = {"id": len(before) + 1, "key": key, **body}
            before.append(known)
        return known


@contextmanager
def payments() -> Iterator[Payments]:
    """Run the service."""
    service = Payments()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            trouble = service.plan.pop(0) if service.plan else ""
            if trouble.isdecimal():
                self.answer(int(trouble), b"")
                return
            act = service.refund if self.path.endswith("/refunds") else service.charge
            made = act(self.headers.get("idempotency-key"), body)
            if trouble == "drop":
                self.close_connection = True
                return
            self.answer(200, json.dumps(made).encode())

        def do_GET(self) -> None:
            wanted = parse_qs(urlsplit(self.path).query).get("reference")
            found = [one for one in service.charges if [one["key"]] == wanted]
            self.answer(200 if found else 404, json.dumps(found[0] if found else {}).encode())

        def answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Stay silent."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        service.url = f"http://127.0.0.1:{server.server_port}/charges"
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield service
        server.shutdown()
