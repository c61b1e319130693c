"""Spans of OpenTelemetry within an attempt: HTTP requests, SQL statements, model calls.

Without a `Recorder` in the context nothing is recorded. This module imports nothing of OpenTelemetry before a span is
made.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import httpx2
from sqlalchemy import event
from sqlalchemy.engine import Connection, ExceptionContext
from sqlalchemy.ext.asyncio import AsyncEngine

if TYPE_CHECKING:  # at run time only where a trace is recorded
    from opentelemetry.trace import Span, Tracer

MAX_CONTENT = 64 * 1024
"""Characters of one attribute with content; a longer text is cut."""

Attributes = Mapping[str, str | bool | int | float | list[str]]


@dataclass(frozen=True)
class Recorder:
    """Makes the spans of one attempt."""

    tracer: "Tracer"
    captures_content: bool
    """Whether spans may have arguments, results and prompts."""
    attempt: "Span"

    def content(self, **texts: str) -> dict[str, str]:
        """The texts as attributes, with a dot for `__` in a name; empty unless the recorder captures content."""
        if not self.captures_content:
            return {}
        return {name.replace("__", "."): text[:MAX_CONTENT] for name, text in texts.items()}


RECORDER: ContextVar[Recorder | None] = ContextVar("replan_recorder", default=None)
"""The recorder of the current attempt; None where nothing is recorded."""


def describe_attempt(attributes: Attributes, fault: str | None = None) -> None:
    """Add attributes to the span of the attempt; `fault` is the code with which the attempt failed, if it did."""
    if (recorder := RECORDER.get()) is not None:
        recorder.attempt.set_attributes(attributes)
        if fault is not None:
            fail(recorder.attempt, fault)


def fail(span: "Span", error: str) -> None:
    """Mark a span as failed; `error` is a code or the name of a class, and never a message, which may quote values."""
    from opentelemetry.trace import StatusCode

    span.set_attribute("error.type", error)
    span.set_status(StatusCode.ERROR)


@contextmanager
def span(name: str, attributes: Attributes, *, is_client: bool = False) -> Iterator["Span | None"]:
    """Record the block as a span, which an exception marks as failed; yield the span, or None without a recorder."""
    if (recorder := RECORDER.get()) is None:
        yield None
        return
    from opentelemetry.trace import SpanKind

    kind = SpanKind.CLIENT if is_client else SpanKind.INTERNAL
    with recorder.tracer.start_as_current_span(
        name, kind=kind, attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as made:
        try:
            yield made
        except BaseException as error:
            fail(made, type(error).__name__)
            raise


@contextmanager
def http_span(method: str, url: httpx2.URL) -> Iterator["HttpSpan"]:
    """Record one HTTP request. The URL, without its query, is content, since its path may be made of arguments."""
    recorder = RECORDER.get()
    if recorder is None:
        yield HttpSpan(None)
        return
    port = url.port or (443 if url.scheme == "https" else 80)
    bare = str(url.copy_with(username=None, password=None, query=None, fragment=None))
    about: Attributes = {"http.request.method": method, "server.address": url.host, "server.port": port}
    with span(method, {**about, **recorder.content(url__full=bare)}, is_client=True) as made:
        yield HttpSpan(made)


@dataclass(frozen=True)
class HttpSpan:
    """The span of an HTTP request, if one is recorded."""

    span: "Span | None"

    def inject(self, headers: httpx2.Headers) -> None:
        """Add the headers with which the service can continue the trace."""
        if self.span is not None:
            from opentelemetry.propagate import inject

            inject(headers)

    def answered(self, status: int) -> None:
        """Record the status of the response."""
        if self.span is not None:
            self.span.set_attribute("http.response.status_code", status)
            if status >= 400:
                fail(self.span, str(status))


def watch(engine: AsyncEngine) -> None:
    """Record the statements of an engine, without those of the ledger; a second call changes nothing."""
    sync = engine.sync_engine
    if not event.contains(sync, "before_cursor_execute", _begin):
        event.listen(sync, "before_cursor_execute", _begin)
        event.listen(sync, "after_cursor_execute", _end)
        event.listen(sync, "handle_error", _fail, insert=True)  # a listener that raises would end the round


_SPAN = "replan_span"
"""The key of the statement's span in the `info` of its connection, which executes one statement at a time."""


def _begin(connection: Connection, _cursor: Any, statement: str, *_more: Any) -> None:
    recorder = RECORDER.get()
    connection.info.pop(_SPAN, None)
    if recorder is None or (summary := _summary(statement)) is None:
        return
    from opentelemetry.trace import SpanKind

    operation, _, table = summary.partition(" ")
    about: Attributes = {
        "db.system.name": connection.dialect.name,
        "db.operation.name": operation,
        **({"db.collection.name": table} if table else {}),
        **recorder.content(db__query__text=statement),
    }
    connection.info[_SPAN] = recorder.tracer.start_span(summary, kind=SpanKind.CLIENT, attributes=about)


def _end(connection: Connection, *_more: Any) -> None:
    if (made := connection.info.pop(_SPAN, None)) is not None:
        made.end()


def _fail(context: ExceptionContext) -> None:
    if context.connection is not None and (made := context.connection.info.pop(_SPAN, None)) is not None:
        fail(made, type(context.original_exception).__name__)
        made.end()


_LEDGER = "replan_ledger"
"""The ledger: its statements get no spans, since two for each step that writes would double the cost of a trace."""
_LITERAL = re.compile(r"'(?:[^']|'')*'")
_TABLE = re.compile(r'\b(?:FROM|INTO|UPDATE|JOIN)\s+"?([A-Za-z_][\w.]*)', re.IGNORECASE)
_OPERATIONS = frozenset({"SELECT", "INSERT", "UPDATE", "DELETE", "WITH", "MERGE", "CREATE", "ALTER", "DROP"})


@lru_cache(maxsize=1000)
def _summary(statement: str) -> str | None:
    """The operation and the first table of a statement, without values; None for a statement that gets no span."""
    operation = statement.split(None, 1)[0].upper() if statement.strip() else ""
    if operation not in _OPERATIONS:
        return None  # e.g. the begin of a transaction
    table = _TABLE.search(_LITERAL.sub("''", statement))
    if table and table[1] == _LEDGER:
        return None
    return f"{operation} {table[1]}" if table else operation
