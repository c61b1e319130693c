"""Traces with OpenTelemetry: whether the environment asks for traces, and what records and exports their spans.

The environment variables are OpenTelemetry's own. Without these variables, nothing of OpenTelemetry is imported.
"""

import importlib.util
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from runtime import process
from runtime.settings import BadSetting, WithRemedy

if TYPE_CHECKING:  # at run time only where a trace is recorded
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Tracer
    from temporalio.api.common.v1 import Payload
    from temporalio.client import Client
    from temporalio.worker import Interceptor

CONVENTIONS = "1.42.0-dev"
"""The version of OpenTelemetry's semantic conventions for generative AI, for the names and attributes of spans:
https://github.com/open-telemetry/semantic-conventions-genai. None of these conventions is stable yet."""
SCHEMA_URL = f"https://opentelemetry.io/schemas/gen-ai-dev/{CONVENTIONS}"
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
PROTOCOL = "http/protobuf"
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The variable that allows task texts, prompts, arguments and results in spans."""
FLUSH_SECONDS = 2.0
"""The most seconds that a process waits at its end until its last spans are exported."""


class CannotTrace(WithRemedy, BadSetting):
    """The environment asks for traces, but traces cannot be exported."""


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of a package around it
        return False


def tracer() -> "Tracer | None":
    """The tracer that records the spans of this process; None if the environment does not ask for traces.

    The environment asks for traces if it names an OTLP endpoint, and does not turn traces off.

    Raises:
        CannotTrace: a package is missing, or the environment asks for another protocol or names no URL.
    """
    environment = os.environ
    asking = next(filter(environment.get, ENDPOINTS), None)
    exporters = [name.strip() for name in environment.get("OTEL_TRACES_EXPORTER", "").split(",")]
    is_off = environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if asking is None or is_off or not (exporters == [""] or "otlp" in exporters):
        return None
    if not _is_installed("opentelemetry.sdk.trace") or not _is_installed("opentelemetry.exporter.otlp.proto.http"):
        remedy = "install them with `pip install 'replan[otel]'`, or set OTEL_SDK_DISABLED=true"
        raise CannotTrace(f"{asking} asks for traces, and the packages that export them are missing", remedy)
    name = next((name for name in PROTOCOLS if environment.get(name)), PROTOCOLS[0])
    if environment.get(name, PROTOCOL) != PROTOCOL:
        remedy = f"set {name}={PROTOCOL}, and {asking} to that port of the receiver, which is mostly 4318"
        raise CannotTrace(f"{name} is {environment[name]!r}, and Replan exports by {PROTOCOL} only", remedy)
    if not environment[asking].strip().startswith(("http://", "https://")):
        remedy = "write it as in http://localhost:4318"
        raise CannotTrace(f"{asking} is {environment[asking]!r}, which is no URL", remedy)
    about = {"replan.gen_ai_conventions": CONVENTIONS}
    return _provider().get_tracer("replan", process.version(), schema_url=SCHEMA_URL, attributes=about)


@contextmanager
def recorded(
    steps: "Callable[[Tracer, Callable[[Mapping[str, Payload]], Context | None], bool], Interceptor]",
) -> "Iterator[list[Interceptor]]":
    """Yield the interceptors with which a worker records traces; none if the environment does not ask for traces.

    `steps` makes the interceptor for attempts. Its arguments: the tracer, the function that reads a trace context from
    headers, and whether spans may have content. When the block ends, the last spans are exported. Raises CannotTrace as
    `tracer` does.
    """
    if (recording := tracer()) is None:
        yield []
        return
    from runtime.task_trace import TaskTrace, context_of

    content = os.environ.get(CONTENT, "").strip().lower() in ("true", "span_only", "span_and_event")
    try:
        yield [TaskTrace(recording, content), steps(recording, context_of, content)]
    finally:
        flush()


def traced(client: "Client") -> "Client":
    """A client on the same connection that records a span for each task it starts; `client` itself without traces.

    Raises CannotTrace as `tracer` does.
    """
    if (recording := tracer()) is None:
        return client
    from runtime import task_trace

    return task_trace.traced(client, recording)


def install() -> None:
    """If the environment asks for traces, export also the spans that tools make with OpenTelemetry's own API.

    This sets the global tracer provider, so it is only for Replan's own processes. Raises CannotTrace as `tracer` does.
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
    """At the end of a process, export the recorded spans; returns False if that takes longer than FLUSH_SECONDS."""
    if not _provider.cache_info().currsize:
        return True
    # The SDK has no limit of its own: a receiver that does not answer is asked again for 10 seconds.
    exporting = threading.Thread(target=_provider().force_flush, daemon=True)
    exporting.start()
    exporting.join(FLUSH_SECONDS)
    return not exporting.is_alive()
