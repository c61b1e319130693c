"""Configures the log: one line per call, decision and task, as text on a terminal and as JSON elsewhere."""

import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import structlog
from structlog.types import EventDict, Processor, WrappedLogger
from temporalio import activity, workflow
from temporalio.runtime import LogForwardingConfig, LoggingConfig, Runtime, TelemetryFilter

from runtime import prometheus, tracing
from runtime.repeated_lines import OncePer
from runtime.settings import LogStyle
from workflows.text import visible

COMMON = ("timestamp", "level", "event", "logger")
"""The fields of every line."""
IDS = ("task", "run", "step", "kind", "revision", "attempt")
"""More fields of every line that is written while a call runs, also of a tool's own lines, also from its threads."""
WORKFLOW_LOGGER = "replan.workflow"
_EXTRA = structlog.stdlib.ExtraAdder()
HIDDEN_IN_TEXT = ("logger", "run")
"""The fields that only JSON lines have; text lines leave them out, to be short."""


def configure(style: LogStyle | None = None, metrics_address: str | None = None) -> None:
    """Send the log lines of structlog and of the standard library (also Temporal's lines) to stderr in one style.

    Without a `style`: text if stderr is a terminal, else JSON. With a `metrics_address`, metrics are served there.

    Raises:
        BadSetting: nothing can be served at the address, or traces are asked for and cannot be exported.
    """
    tracing.install()
    chosen = style or (LogStyle.TEXT if sys.stderr.isatty() else LogStyle.JSON)
    first: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: list[Processor] = [structlog.processors.JSONRenderer()]
    if chosen is LogStyle.TEXT:
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=8, sort_keys=False)
        last = [_drop_hidden_and_none, _escape, renderer]
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            *first,
            _set_fields_of_workflow,
        ],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            _sort,
            *last,
        ],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.captureWarnings(capture=True)  # Python's own way to write them is text
    root = logging.getLogger()
    root.handlers, root.level = [handler], logging.INFO
    structlog.configure(
        processors=[*first, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    # Replan's boundary around activities logs each call without its values. So the SDK's own lines, which may contain
    # values, are left out, and so are lines for every HTTP request or SQL statement.
    workflow.logger.workflow_info_on_message = False
    activity.logger.activity_info_on_message = False
    # The SDK says of each of the two workers that it stops; `serve` says it once.
    for name in ("temporalio.activity", "temporalio.worker._worker", "httpx", "httpx2", "aiosqlite", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    logging.getLogger("mcp").setLevel(logging.WARNING)
    logging.getLogger("mcp.client").setLevel(logging.CRITICAL)  # its lines may have what a server said
    core = logging.getLogger("temporalio.core")
    core.filters = [_OneOutage()]
    forwarded = LoggingConfig(TelemetryFilter("WARN", "ERROR"), forwarding=LogForwardingConfig(core))
    Runtime.set_default(prometheus.runtime(forwarded, metrics_address), error_if_already_set=False)


@contextmanager
def quiet(logger: str) -> Iterator[None]:
    """Inside the block, log nothing of this logger below `critical`."""
    quieted = logging.getLogger(logger)
    level = quieted.level
    quieted.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        quieted.setLevel(level)


class _OneOutage(OncePer):
    """Logs one line a minute for an outage of the server, where the SDK's core logs each retry of each poller."""

    def key(self, record: logging.LogRecord) -> str:
        return "outage"

    def filter(self, record: logging.LogRecord) -> bool:
        if "temporalio_client::retry" not in record.name:
            return True
        status = re.search(r"code: (\w+)", record.msg)
        why = f" ({status[1]})" if status else ""
        record.msg = f"The Temporal server does not answer{why}; the worker keeps asking."
        return super().filter(record)


def _escape(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Escape what a terminal would obey, and line breaks except in `exception`: a value could imitate a log line."""
    for name, value in event.items():
        if isinstance(value, str):
            kept = "\n" if name == "exception" else ""
            event[name] = visible(value, kept)
    return event


def _set_fields_of_workflow(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Add the fields of a line that a workflow logs. Those of libraries may hold values, and are left out."""
    if event.get("logger") != "temporalio.workflow":
        return event
    event = _EXTRA(logger, method, event)
    info = event.pop("temporal_workflow", None) or {}
    return {**event, "logger": WORKFLOW_LOGGER, "task": info.get("workflow_id"), "run": info.get("run_id")}


def _sort(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Put the fields that every line has first."""
    first = {name: event.pop(name) for name in (*COMMON, *IDS) if name in event}
    return {**first, **event}


def _drop_hidden_and_none(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    return {name: value for name, value in event.items() if name not in HIDDEN_IN_TEXT and value is not None}
