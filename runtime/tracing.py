"""Traces by OpenTelemetry: whether the environment asks for them, and what records and exports them.

The variables are OpenTelemetry's own. Without them nothing of OpenTelemetry is imported.
"""

import importlib.util
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from runtime import process
from runtime.settings import BadSetting

if TYPE_CHECKING:  # at run time only where a trace is recorded
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Tracer
    from temporalio.api.common.v1 import Payload
    from temporalio.client import Client
    from temporalio.worker import Interceptor

CONVENTIONS = "1.42.0-dev"
"""The version of OpenTelemetry's semantic conventions for generative AI that names and attributes of spans follow:
https://github.com/open-telemetry/semantic-conventions-genai. None of them is stable yet."""
SCHEMA_URL = f"https://opentelemetry.io/schemas/gen-ai-dev/{CONVENTIONS}"
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
PROTOCOL = "http/protobuf"
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
FLUSH_SECONDS = 2.0
"""How long the end of a process waits until the last spans are exported."""


class CannotTrace(BadSetting):
    """The environment asks for traces, and they cannot be exported: `reason` says why, `remedy` what to do."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason}: {remedy}.")
        self.reason = reason
        self.remedy = remedy


def is_on(environment: Mapping[str, str]) -> bool:
    """Whether the environment names a receiver of traces, and does not turn them off."""
    exporters = [name.strip() for name in environment.get("OTEL_TRACES_EXPORTER", "").split(",")]
    return (
        any(environment.get(name) for name in ENDPOINTS)
        and environment.get("OTEL_SDK_DISABLED", "").strip().lower() != "true"
        and (exporters == [""] or "otlp" in exporters)
    )


def captures_content(environment: Mapping[str, str]) -> bool:
    """Whether spans shall have task texts, prompts, arguments and results."""
    return environment.get(CONTENT, "").strip().lower() in ("true", "span_only", "span_and_event")


def check(environment: Mapping[str, str]) -> None:
    """Do nothing if traces can be exported, or if the environment does not ask for them.

    Raises:
        CannotTrace: a package is missing, or the environment asks for another protocol or names no URL.
    """
    if not is_on(environment):
        return
    asking = next(name for name in ENDPOINTS if environment.get(name))
    if not _has("opentelemetry.sdk.trace") or not _has("opentelemetry.exporter.otlp.proto.http"):
        remedy = "install them with `pip install 'replan[otel]'`, or set OTEL_SDK_DISABLED=true"
        raise CannotTrace(f"{asking} asks for traces, and the packages that export them are missing", remedy)
    name = next((name for name in PROTOCOLS if environment.get(name)), PROTOCOLS[0])
    if environment.get(name, PROTOCOL) != PROTOCOL:
        remedy = f"set {name}={PROTOCOL}, and {asking} to that port of the receiver, which is mostly 4318"
        raise CannotTrace(f"{name} is {environment[name]!r}, and Replan exports by {PROTOCOL} only", remedy)
    if not environment[asking].strip().startswith(("http://", "https://")):
        remedy = "write it as in http://localhost:4318"
        raise CannotTrace(f"{asking} is {environment[asking]!r}, which is no URL", remedy)


def _has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of a package around it
        return False


def tracer() -> "Tracer | None":
    """What records the spans of this process; None if the environment does not ask for traces.

    Raises:
        CannotTrace: it asks for traces, and they cannot be exported.
    """
    check(os.environ)
    if not is_on(os.environ):
        return None
    about = {"replan.gen_ai_conventions": CONVENTIONS}
    return _provider().get_tracer("replan", process.version(), schema_url=SCHEMA_URL, attributes=about)


@contextmanager
def recorded(
    steps: "Callable[[Tracer, Callable[[Mapping[str, Payload]], Context | None], bool], Interceptor]",
) -> "Iterator[list[Interceptor]]":
    """The interceptors of a worker that records traces, none where the environment does not ask for them.

    `steps` makes the one for attempts, from what records, what reads the context of a trace from headers, and whether
    content is asked for. When the block ends, the last spans are exported.

    Raises:
        CannotTrace: the environment asks for traces, and they cannot be exported.
    """
    if (recording := tracer()) is None:
        yield []
        return
    from runtime.task_trace import TaskTrace, context_of

    content = captures_content(os.environ)
    try:
        yield [TaskTrace(recording, content), steps(recording, context_of, content)]
    finally:
        flush()


def traced(client: "Client") -> "Client":
    """The client on the same connection, with a span for each task that it starts if the environment asks for traces.

    Raises:
        CannotTrace: the environment asks for traces, and they cannot be exported.
    """
    if (recording := tracer()) is None:
        return client
    from runtime import task_trace

    return task_trace.traced(client, recording)


def install() -> None:
    """Let spans that tools make with OpenTelemetry's own API be exported, too; for a process that is Replan's own.

    Raises:
        CannotTrace: the environment asks for traces, and they cannot be exported.
    """
    if tracer() is not None:
        from opentelemetry import trace

        trace.set_tracer_provider(_provider())


@cache  # one thread of the exporter a process
def _provider() -> "TracerProvider":
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from runtime.task_trace import TaskIds

    is_named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    resource = Resource.create({} if is_named else {"service.name": "replan"})
    provider = TracerProvider(resource=resource, id_generator=TaskIds())
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def flush() -> bool:
    """Export what was recorded, and wait for it at most FLUSH_SECONDS; returns whether nothing is left.

    To be called when a process ends.
    """
    if not _provider.cache_info().currsize:
        return True
    # The SDK has no limit of its own: a receiver that does not answer is asked again for 10 seconds.
    exporting = threading.Thread(target=_provider().force_flush, daemon=True)
    exporting.start()
    exporting.join(FLUSH_SECONDS)
    return not exporting.is_alive()
