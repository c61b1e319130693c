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

    timestamp: Annotated[str, Field(description="When, in UTC.")]
    level: Annotated[Level, Field(description="`info`, `warning` or `error`.")]
    event: Annotated[str, Field(description="What happened: a word of the table above.")]
    logger: Annotated[str, Field(description="Which part wrote the line; those of Replan begin with `replan.`.")]

    task: Annotated[str, Field(description="The id of the task, which is its workflow id.")]
    run: Annotated[str, Field(description="The run id of the workflow.")]
    step: Annotated[str | None, Field(description="The id of the step, which is the id of its activity.")]
    kind: Annotated[str, Field(description="The kind of the step: its tool, or an activity of Replan such as `plan`.")]
    revision: Annotated[int, Field(description="The number of the plan within the task.")]
    attempt: Annotated[int, Field(description="The number of the attempt within its activity execution, from 1.")]

    shape: Annotated[
        JsonValue, Field(description="The shape of the arguments: names, types and sizes, such as `str[5]`.")
    ]
    outcome: Annotated[
        Literal["ok", "retried", "replayed", "transient_fail", "persistent_fail", "needs_approval", "cancelled"],
        Field(
            description="`ok`, `retried` (ok after the first attempt), `replayed` (the recorded result was returned),"
            " `transient_fail`, `persistent_fail`, `needs_approval` (a person is asked first) or `cancelled`."
        ),
    ]
    ms: Annotated[float, Field(description="Milliseconds that the attempt took.")]
    code: Annotated[str | None, Field(description="The [code](errors.md) of a fault, of a request, or of an ending.")]
    quadrant: Annotated[Quadrant, Field(description="The class of the fault.")]
    effect: Annotated[Applied, Field(description="Whether the effect was applied: `none`, `applied` or `unknown`.")]
    guessed: Annotated[str, Field(description="The attribute with the HTTP status from which the code was guessed.")]
    retry_in: Annotated[float, Field(description="Seconds until the next attempt, if the step has one left.")]
    error: Annotated[str | None, Field(description="The class of the exception.")]
    at: Annotated[list[str], Field(description="Where in the code, as `file:line function`, the innermost last.")]
    args: Annotated[str, Field(description="The arguments; only with `--log-values`.")]
    result: Annotated[str, Field(description="The result; only with `--log-values`.")]
    message: Annotated[str, Field(description="The message of the exception; only with `--log-values`.")]

    decision: Annotated[
        str,
        Field(
            description="What follows, as in the [JSON document](console.md#the-json-document). Temporal decides on a"
            " `retry`, which is noted when the execution has ended; `escalate` ends the task, or for its planner asks a"
            " person."
        ),
    ]
    seconds: Annotated[float | None, Field(description="Seconds: how long a wait takes, or how long something took.")]
    fallback: Annotated[str, Field(description="The kind that is called instead.")]
    verdict: Annotated[
        Literal["applied", "not_applied", "cannot_tell"], Field(description="What reconciliation found out.")
    ]
    reasons: Annotated[int, Field(description="How many mistakes were found; `explain` has them.")]
    status: Annotated[TaskStatus, Field(description="How the task ended.")]
    replans: Annotated[int, Field(description="New plans because of a fault.")]
    wasted: Annotated[
        int, Field(description="Retries that followed a persistent fault, so that they could not help: always 0.")
    ]
    tool_calls: Annotated[int, Field(description="Calls of tools, each attempt counted.")]
    model_calls: Annotated[int, Field(description="Requests to models.")]
    tokens: Annotated[int, Field(description="Tokens of models.")]
    usd: Annotated[float | None, Field(description="US dollars; null if no model was called, or a price is unknown.")]
    estimated: Annotated[int, Field(description="Requests to models whose tokens are estimated.")]
    unpriced: Annotated[int, Field(description="Requests to models whose price is unknown.")]
    undone: Annotated[int, Field(description="Effects that were undone.")]
    left: Annotated[int, Field(description="Effects that were not undone.")]

    request: Annotated[str, Field(description="The id of the request within its task, such as `r1`.")]
    type: Annotated[
        str,
        Field(
            description="Of a request: `fault`, `approval`, `question` or `budget`."
            " Of a notification: `request.opened`, `request.reminder` or `request.closed`."
        ),
    ]
    answer: Annotated[
        str | None,
        Field(description="The answer that was given, such as `retry`; null if the request was closed without one."),
    ]
    closed: Annotated[
        str, Field(description="Why it was closed without an answer: `unanswered`, `ended` or `repeated`.")
    ]
    receiver: Annotated[str, Field(description="Who was told.")]
    signal: Annotated[str, Field(description="The name of the Signal.")]
    reason: Annotated[str, Field(description="Why, as a sentence of Replan.")]

    model: Annotated[str, Field(description="The model, or the planner, by its name.")]
    role: Annotated[str, Field(description="What the model is asked for: `planner`, `compaction` or `step`.")]
    stop: Annotated[str, Field(description="Why the reply ended.")]
    input: Annotated[int, Field(description="Tokens of the request, without those of the cache.")]
    output: Annotated[int, Field(description="Tokens of the reply.")]
    cache_read: Annotated[int, Field(description="Tokens that the provider read from its cache.")]
    cache_write: Annotated[int, Field(description="Tokens that the provider wrote into its cache.")]
    reasoning: Annotated[int, Field(description="Of the tokens of the reply, those used for reasoning.")]
    is_estimated: Annotated[bool, Field(description="Whether the tokens are estimated.")]
    beside: Annotated[int, Field(description="Of the tokens of the reply, those that the server counts beside them.")]
    status_code: Annotated[str, Field(description="The HTTP status.")]
    provider_type: Annotated[str, Field(description="The type of the error, in the provider's words.")]
    provider_code: Annotated[str, Field(description="The code of the error, in the provider's words.")]
    request_id: Annotated[str, Field(description="The provider's id of the request.")]
    remedy: Annotated[str, Field(description="What to do.")]

    failures: Annotated[int, Field(description="Calls in a row that failed.")]
    trial_in: Annotated[float, Field(description="Seconds until the trial call.")]
    holder: Annotated[int | None, Field(description="The id of the process that holds a lock.")]
    key: Annotated[str, Field(description="The idempotency key: the first run id or the effect key, and the step.")]
    live: Annotated[int, Field(description="Threads in which calls run.")]
    outlived: Annotated[int, Field(description="Of these, threads whose attempt has ended.")]
    threads: Annotated[int, Field(description="How many threads the worker has.")]
    call: Annotated[str, Field(description="The call that blocks, as `kind (task/step)`.")]
    entry_point: Annotated[str, Field(description="The entry point of `replan.faults`.")]
    package: Annotated[str, Field(description="The package whose exceptions it declares.")]
    problems: Annotated[list[str], Field(description="Its mistakes.")]
    classes: Annotated[list[str], Field(description="The classes that another package declares, too.")]

    server: Annotated[str, Field(description="The MCP server, by its name in the tools file.")]
    line: Annotated[
        str, Field(description="What the server wrote, without what may be a secret. It may be anybody's words.")
    ]
    lines: Annotated[int, Field(description="How many lines were left out.")]
    wait: Annotated[float, Field(description="Seconds until the server is started again.")]
    queue: Annotated[str, Field(description="The task queue of a worker.")]
    tools: Annotated[int, Field(description="How many tools there are.")]


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
    line.__doc__ = event.meaning
    return with_config(ConfigDict(extra="forbid"))(line)


@cache
def _schema_of(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(_line_of(name))


def captured() -> AbstractContextManager[list[Any]]:
    """The lines that this process writes meanwhile, with what is bound to the attempt that writes them."""
    return capture_logs(processors=[merge_contextvars])


def lines_of(log: Path) -> list[dict[str, Any]]:
    """The lines of a log, each of which is JSON."""
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
