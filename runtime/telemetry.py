"""Configures the log: one line per call, decision and task, as text on a terminal and as JSON elsewhere."""

import logging
import sys

import structlog
from structlog.types import EventDict, Processor, WrappedLogger
from temporalio import activity, workflow

from runtime.settings import LogStyle

DECISION_KEYS = ("step", "kind", "revision", "code", "decision", "reasons", "status", "replans")
SPENT_KEYS = ("tool_calls", "model_calls", "tokens", "seconds")


def configure(style: LogStyle | None = None) -> None:
    """Send structlog's lines and the standard library's (Temporal's among them) to stderr in one style."""
    chosen = style or (LogStyle.TEXT if sys.stderr.isatty() else LogStyle.JSON)
    first: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: Processor = structlog.processors.JSONRenderer()
    if chosen is LogStyle.TEXT:
        last = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=8)
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            *first,
            structlog.stdlib.ExtraAdder(allow=(*DECISION_KEYS, *SPENT_KEYS, "temporal_workflow")),
            _name_task,
        ],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            last,
        ],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
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
    for name in ("temporalio.activity", "httpx", "httpx2", "aiosqlite", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)


def _name_task(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    workflow_info = event.pop("temporal_workflow", None)
    if isinstance(workflow_info, dict):
        event["task"] = workflow_info.get("workflow_id")
    return event
