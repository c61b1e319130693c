"""What a line of a worker's log may hold, made from the table of events; and the lines that a worker wrote."""

import json
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, Required, get_type_hints

from pydantic import ConfigDict, Field, JsonValue, TypeAdapter, ValidationError, with_config
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs
from typing_extensions import TypedDict

from runtime.telemetry import COMMON
from tests.log_events import EVENTS
from workflows.account.task import TaskStatus
from workflows.faults.fault import Applied, Quadrant

Level = Literal["info", "warning", "error"]


class Fields(TypedDict, total=False):
    """Every field of a line; a name has one meaning in all events."""

    timestamp: Annotated[str, Field(description="UTC.")]
    level: Annotated[Level, Field(description="`info`, `warning` or `error`.")]
    event: Annotated[str, Field(description="What happened.")]
    logger: Annotated[str, Field(description="Part that wrote the line.")]

    task: Annotated[str, Field(description="Workflow id.")]
    run: Annotated[str, Field(description="Run id.")]
    step: Annotated[str | None, Field(description="Step id, which is its activity id.")]
    kind: Annotated[str, Field(description="Kind of the step, e.g. `plan`.")]
    revision: Annotated[int, Field(description="Number of the plan.")]
    attempt: Annotated[int, Field(description="Number of the attempt, from 1.")]

    shape: Annotated[JsonValue, Field(description="Names, types and sizes of the arguments.")]
    outcome: Annotated[
        Literal["ok", "retried", "replayed", "transient_fail", "persistent_fail", "needs_approval", "cancelled"],
        Field(
            description="`ok`, `retried` (ok after the first attempt), `replayed` (recorded result),"
            " `transient_fail`, `persistent_fail`, `needs_approval` or `cancelled`."
        ),
    ]
    ms: Annotated[float, Field(description="Milliseconds of the attempt.")]
    code: Annotated[str | None, Field(description="The [code](errors.md) of a fault, request or ending.")]
    quadrant: Annotated[Quadrant, Field(description="Class of the fault.")]
    effect: Annotated[Applied, Field(description="`none`, `applied` or `unknown`.")]
    guessed: Annotated[str, Field(description="Attribute with the HTTP status behind a guessed code.")]
    retry_in: Annotated[float, Field(description="Seconds until the next attempt.")]
    error: Annotated[str | None, Field(description="Class of the exception.")]
    at: Annotated[list[str], Field(description="`file:line function`, the innermost last.")]
    args: Annotated[str, Field(description="Only with `--log-values`.")]
    result: Annotated[str, Field(description="Only with `--log-values`.")]
    message: Annotated[str, Field(description="Of the exception; only with `--log-values`.")]

    decision: Annotated[str, Field(description="What follows: see the [JSON document](console.md#the-json-document).")]
    seconds: Annotated[float | None, Field(description="How long a wait or action takes.")]
    fallback: Annotated[str, Field(description="Kind that is called instead.")]
    verdict: Annotated[Literal["applied", "not_applied", "cannot_tell"], Field(description="Result of reconciliation.")]
    reasons: Annotated[int, Field(description="Number of mistakes.")]
    status: Annotated[TaskStatus, Field(description="How the task ended.")]
    replans: Annotated[int, Field(description="New plans because of faults.")]
    wasted: Annotated[int, Field(description="Retries after a persistent fault: always 0.")]
    tool_calls: Annotated[int, Field(description="Attempts of tools.")]
    model_calls: Annotated[int, Field(description="Requests to models.")]
    tokens: Annotated[int, Field(description="Tokens of models.")]
    usd: Annotated[float | None, Field(description="US dollars; null without a known price.")]
    estimated: Annotated[int, Field(description="Requests with estimated tokens.")]
    unpriced: Annotated[int, Field(description="Requests with an unknown price.")]
    undone: Annotated[int, Field(description="Effects undone.")]
    left: Annotated[int, Field(description="Effects not undone.")]

    request: Annotated[str, Field(description="Request id, e.g. `r1`.")]
    type: Annotated[
        str,
        Field(
            description="`fault`, `approval`, `question`, `budget`; of a notification `request.opened`,"
            " `request.reminder`, `request.escalated`, `request.closed`."
        ),
    ]
    answer: Annotated[str | None, Field(description="The answer, e.g. `retry`; null without one.")]
    answers: Annotated[int, Field(description="Answers so far, each of another person.")]
    needed: Annotated[int, Field(description="People who must answer alike.")]
    closed: Annotated[str, Field(description="Why without an answer: `unanswered`, `ended`, `repeated`.")]
    receiver: Annotated[str, Field(description="Who was told.")]
    signal: Annotated[str, Field(description="Name of the Signal.")]
    reason: Annotated[str, Field(description="Why, in words.")]

    model: Annotated[str, Field(description="Model or planner.")]
    role: Annotated[str, Field(description="`planner`, `compaction` or `step`.")]
    stop: Annotated[str, Field(description="Why the reply ended.")]
    input: Annotated[int, Field(description="Tokens of the request, uncached.")]
    output: Annotated[int, Field(description="Tokens of the reply.")]
    cache_read: Annotated[int, Field(description="Tokens read from the cache.")]
    cache_write: Annotated[int, Field(description="Tokens written to the cache.")]
    reasoning: Annotated[int, Field(description="Part of `output` for reasoning.")]
    is_estimated: Annotated[bool, Field(description="Whether tokens are estimated.")]
    beside: Annotated[int, Field(description="Part of `output` that the server counts separately.")]
    status_code: Annotated[str, Field(description="HTTP status.")]
    provider_type: Annotated[str, Field(description="The provider's type of the error.")]
    provider_code: Annotated[str, Field(description="The provider's code of the error.")]
    request_id: Annotated[str, Field(description="The provider's request id.")]
    remedy: Annotated[str, Field(description="What to do.")]

    failures: Annotated[int, Field(description="Failures in a row.")]
    trial_in: Annotated[float, Field(description="Seconds until the trial call.")]
    holder: Annotated[int | None, Field(description="Process id that holds a lock.")]
    key: Annotated[str, Field(description="Idempotency key.")]
    live: Annotated[int, Field(description="Threads with calls.")]
    outlived: Annotated[int, Field(description="Of these, threads whose attempt ended.")]
    threads: Annotated[int, Field(description="Threads of the worker.")]
    call: Annotated[str, Field(description="`kind (task/step)` that blocks.")]
    entry_point: Annotated[str, Field(description="In `replan.faults`.")]
    package: Annotated[str, Field(description="Whose exceptions it declares.")]
    problems: Annotated[list[str], Field(description="Its mistakes.")]
    classes: Annotated[list[str], Field(description="Classes declared twice.")]

    server: Annotated[str, Field(description="MCP server.")]
    line: Annotated[str, Field(description="Output of the server: untrusted content.")]
    lines: Annotated[int, Field(description="Lines left out.")]
    wait: Annotated[float, Field(description="Seconds until the server is restarted.")]
    queue: Annotated[str, Field(description="Task queue.")]
    tools: Annotated[int, Field(description="Number of tools.")]


def _line_of(name: str) -> Any:
    """The type of the lines of one event: it has no other fields."""
    event, types = EVENTS[name], get_type_hints(Fields, include_extras=True)
    fixed: Any = {
        "level": Literal[tuple(event.levels.split())],
        "event": Literal[name],
        "logger": Literal[event.logger],
    }
    always = {field: Required[fixed.get(field, types[field])] for field in (*COMMON, *event.always.split())}
    sometimes = {field: NotRequired[types[field]] for field in event.sometimes.split()}
    line = TypedDict(name, {**always, **sometimes})  # type: ignore[misc]  # its fields are data
    return with_config(ConfigDict(extra="forbid"))(line)


@cache
def _schema_of(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(_line_of(name))


def captured() -> AbstractContextManager[list[Any]]:
    """The lines that this process writes meanwhile, with what is bound to the attempt that writes them."""
    return capture_logs(processors=[merge_contextvars])


def lines_of(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


def wrong(line: dict[str, Any]) -> str | None:
    """What is wrong with a line; None for a good one. A line of a library or a tool only needs what all lines have."""
    if lacking := [name for name in COMMON if not isinstance(line.get(name), str)]:
        return f"no {', '.join(lacking)}: {line}"
    if not line["logger"].startswith("replan."):
        return None
    if line["event"] not in EVENTS:
        return f"unknown event: {line}"
    try:
        _schema_of(line["event"]).validate_python(line)
    except ValidationError as error:
        return f"{error}: {line}"
    return None
