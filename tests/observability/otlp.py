"""A receiver of OTLP over HTTP on loopback, which keeps the spans that are sent to it and shows them as a tree."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2


@dataclass(frozen=True)
class Span:
    raw: trace_pb2.Span
    service: str
    conventions: str
    """The version of the conventions that its scope names."""
    schema_url: str
    """That of its scope."""

    @property
    def name(self) -> str:
        return self.raw.name

    @property
    def trace(self) -> str:
        return self.raw.trace_id.hex()

    @property
    def id(self) -> str:
        return self.raw.span_id.hex()

    @property
    def parent(self) -> str:
        return self.raw.parent_span_id.hex()

    @property
    def has_failed(self) -> bool:
        return self.raw.status.code == trace_pb2.Status.STATUS_CODE_ERROR

    @cached_property
    def attributes(self) -> dict[str, Any]:
        return {one.key: _value(one.value) for one in self.raw.attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(one) for one in value.array_value.values] if kind == "array_value" else getattr(value, kind)


@dataclass
class Receiver:
    url: str = ""
    requests: list[bytes] = field(default_factory=list)
    """The body of each request."""

    @property
    def environment(self) -> dict[str, str]:
        """The variables that a user sets; the SDK exports quickly, so that a test does not wait."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}

    @property
    def spans(self) -> Sequence[Span]:
        found = [
            Span(raw, _named(resource.resource.attributes, "service.name"), _conventions(scope.scope), scope.schema_url)
            for body in list(self.requests)
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope in resource.scope_spans
            for raw in scope.spans
        ]
        return sorted(found, key=lambda span: span.raw.start_time_unix_nano)

    def named(self, prefix: str) -> Sequence[Span]:
        return [span for span in self.spans if span.name.startswith(prefix)]

    def tree(self, *shown: str) -> str:
        """All spans as an indented tree, each with the values of the attributes in `shown` that it has."""
        spans = self.spans
        ids = {span.id for span in spans}

        def lines(parent: str | None, depth: int) -> Iterator[str]:
            for span in spans:
                if span.parent == parent or (parent is None and span.parent not in ids):
                    values = [str(span.attributes[name]) for name in shown if name in span.attributes]
                    yield "  " * depth + " ".join([span.name, *values])
                    yield from lines(span.id, depth + 1)

        return "\n".join(lines(None, 0))


def _named(attributes: Any, name: str) -> str:
    return next((one.value.string_value for one in attributes if one.key == name), "")


def _conventions(scope: Any) -> str:
    return _named(scope.attributes, "replan.gen_ai_conventions")


@contextmanager
def receiver() -> Iterator[Receiver]:
    """Receive until the block ends."""
    received = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            received.requests.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        received.url = f"http://127.0.0.1:{server.server_address[1]}"
        serving = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        serving.start()
        try:
            yield received
        finally:
            server.shutdown()
            serving.join()
