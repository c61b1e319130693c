"""How an attempt fails: the four classes of ours, what is kept of a fault, and the one line in the log."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx2
import pytest
import structlog
from pydantic import BaseModel, Field, JsonValue, SecretStr
from temporalio.activity import ActivityCancellationDetails
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.testing import ActivityEnvironment

from activities.errors import RESERVED_CODES
from activities.log_redaction import MAX_VALUES
from replan import Busy, NeedsPerson, Refused, Tool, ToolError, Unreachable, tool
from runtime.telemetry import IDS
from tests.activities.bench import Bench
from tests.log_events import EVENTS
from tests.log_lines import captured
from workflows.faults.fault import (
    MAX_TEXT,
    QUADRANT,
    Applied,
    Code,
    Fault,
    Quadrant,
)
from workflows.json_values import canonical

HIDDEN = "sk-secret"
CLASSES: list[type[ToolError]] = [Refused, Busy, Unreachable, NeedsPerson]


class Word(BaseModel):
    """An argument."""

    word: str = ""
    more: dict[str, JsonValue] = {}


def raising(make: Callable[[], BaseException]) -> Tool[..., Any]:
    """A tool that raises what is made when it is called."""

    @tool.read(timeout=0.2)
    async def broken(args: Word) -> Word:
        """Fail."""
        raise make()

    return broken


@tool.read(timeout=30)
async def waiting(args: Word) -> Word:
    """Wait until somebody stops it."""
    CALLED.append(args.word)
    await asyncio.sleep(30)
    return args


CALLED: list[str] = []
"""The calls of `waiting`."""


async def cancel_when_called(environment: ActivityEnvironment, details: ActivityCancellationDetails) -> None:
    """Cancel the activity as soon as its tool runs; before, a connection to the store may be half open."""
    CALLED.clear()
    while not CALLED:
        await asyncio.sleep(0.01)
    environment.cancel(details)


@tool.read(timeout=0.05)
async def slow(args: Word) -> Word:
    """Take too long."""
    await asyncio.sleep(30)
    return args


@tool.read
async def echo(args: Word) -> Word:
    """Say the word."""
    return args


# The four classes


@pytest.mark.parametrize("code", list(Code))
@pytest.mark.parametrize("raised", CLASSES)
def test_a_code_belongs_to_the_class_of_its_cell(raised: type[ToolError], code: Code) -> None:
    """A class takes the codes of its own cell but Replan's own, and says which when it is given another."""
    if QUADRANT[code] is raised.quadrant and code not in RESERVED_CODES:
        assert raised("No.", code=code.value).fault.code is code
    else:
        with pytest.raises(ValueError, match=rf"{raised.__name__} has no code '{code}': use one of .*{raised.default}"):
            raised("No.", code=code.value)


def test_the_four_classes_are_the_four_cells() -> None:
    """What happens next is the class: there is one for each cell."""
    assert {raised.quadrant for raised in CLASSES} == set(Quadrant)


def test_a_code_that_does_not_exist_is_a_mistake() -> None:
    """A typing error in a tool is said with what there is."""
    with pytest.raises(ValueError, match="Refused has no code 'confict': use one of conflict, gone"):
        Refused("No.", code="confict")


@pytest.mark.parametrize(
    ("raised", "quadrant", "retried", "benign"),
    [
        (Refused("No."), "persistent_semantic", False, True),
        (Busy("Later."), "transient_semantic", True, True),
        (Unreachable("Cut."), "transient_infrastructural", True, False),
        (NeedsPerson("Help."), "persistent_infrastructural", False, False),
        (KeyError("x"), "persistent_infrastructural", False, False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
async def test_a_fault_tells_temporal_what_to_do(
    calls: Bench, raised: Exception, quadrant: str, retried: bool, benign: bool
) -> None:
    """The type is the cell, only transient faults may be retried, and the world's refusals are no failures of ours."""
    _, error = await calls.fails(raising(lambda: raised))

    assert (error.type, error.non_retryable) == (quadrant, not retried)
    assert (error.category is ApplicationErrorCategory.BENIGN) is benign


@pytest.mark.parametrize(
    ("retry_after", "at_least", "retried"),
    [(None, 0, True), (7, 7, True), (60, 60, True), (61, None, False), (1e12, None, False), (-5, 0, True)],
)
async def test_a_wait_of_a_minute_is_temporals_and_a_longer_one_the_workflows(
    calls: Bench, retry_after: float | None, at_least: float | None, retried: bool
) -> None:
    """What the world asks for is honoured; an activity does not back off longer than a minute."""
    _, error = await calls.fails(raising(lambda: Busy("Later.", retry_after=retry_after)))

    assert error.non_retryable is not retried
    assert (error.next_retry_delay is None) if at_least is None else (error.next_retry_delay is not None)
    if at_least is not None and error.next_retry_delay is not None:
        assert timedelta(seconds=at_least) <= error.next_retry_delay <= timedelta(seconds=at_least + 1)


# What is kept of a fault


@pytest.mark.parametrize(
    "observed",
    ["x" * 20_000, ["😀" * 100] * 100, {"key": '\\"\n' * 5000}, ["\x00"] * 5000],
    ids=["text", "emoji", "quotes", "control"],
)
async def test_an_observation_that_is_too_long_is_cut(calls: Bench, observed: JsonValue) -> None:
    """History is for what decides: 8 KB as JSON, and the cut is marked."""
    fault, _ = await calls.fails(raising(lambda: Refused("No.", observed=observed)))

    assert str(fault.observed).endswith("(cut)")
    assert len(canonical(fault.observed).encode()) <= MAX_TEXT


@pytest.mark.parametrize("reason", ["x" * 20_000, "😀" * 20_000])
async def test_a_reason_that_is_too_long_is_cut(calls: Bench, reason: str) -> None:
    """One sentence, and in no case more than 8 KB."""
    fault, error = await calls.fails(raising(lambda: Refused(reason)))

    assert len(fault.reason.encode()) <= MAX_TEXT and error.message == fault.reason


@pytest.mark.parametrize(
    ("observed", "kept"),
    [
        (Word(word="hi"), {"word": "hi", "more": {}}),
        ({"at": timedelta(minutes=5)}, {"at": "PT5M"}),
        ((1, 2), [1, 2]),
        (float("nan"), None),
        ({"half": "\ud800"}, None),
    ],
    ids=["model", "timedelta", "tuple", "nan", "half a character"],
)
async def test_an_observation_is_json(calls: Bench, observed: Any, kept: JsonValue) -> None:
    """A model, a date, whatever JSON can carry; what it cannot is left out and does no harm."""
    fault, error = await calls.fails(raising(lambda: Refused("No.", observed=observed)))

    assert (fault.code, fault.observed) == (Code.REFUSED, kept)
    assert json.loads(fault.model_dump_json()) and not error.__cause__


async def test_a_reason_with_half_a_character_is_still_the_tools(calls: Bench) -> None:
    """A file name that is no UTF-8 may stand in a sentence: the fault stays what the tool said it is."""
    fault, _ = await calls.fails(raising(lambda: Refused("There is no \udcff.txt.", code="not_found")))

    assert (fault.code, fault.reason) == (Code.NOT_FOUND, "There is no ?.txt.")


@pytest.mark.parametrize(
    "make",
    [
        lambda: KeyError(HIDDEN),
        lambda: httpx2.ConnectError(HIDDEN),
        lambda: OSError(5, HIDDEN),
        lambda: Word.model_validate(HIDDEN),
    ],
    ids=["bug", "HTTP", "OS", "validation"],
)
async def test_foreign_words_stay_out_of_the_failure(calls: Bench, make: Callable[[], BaseException]) -> None:
    """Neither message nor details nor cause carry what a foreign exception said."""
    fault, error = await calls.fails(raising(make))

    assert HIDDEN not in fault.model_dump_json() + str(error) + repr(error.details)
    assert error.__suppress_context__ and error.__cause__ is None


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: SystemExit(3), Code.BUG),
        (lambda: asyncio.CancelledError(), Code.BUG),
        (lambda: TimeoutError(), Code.TIMEOUT),
        (lambda: ExceptionGroup("x", [KeyError("a"), KeyError("b")]), Code.BUG),
    ],
    ids=["exit", "cancels itself", "times out", "group"],
)
async def test_the_boundary_is_total(calls: Bench, make: Callable[[], BaseException], code: Code) -> None:
    """Whatever a tool raises becomes a fault, also what is no `Exception` and a cancel that nobody asked for."""
    fault, _ = await calls.fails(raising(make))

    assert fault.code is code


async def test_a_bug_says_where_its_cause_is(calls: Bench) -> None:
    """The fault may not quote the exception; the line of the log that does is named in it."""
    with captured() as lines:
        fault, _ = await calls.fails(raising(lambda: KeyError("sku")))
    (line,) = lines

    assert fault.reason.endswith("The cause is in the worker's log, in its line with step 'a' and code 'bug'.")
    assert (line["step"], line["code"], line["error"], line["task"]) == ("a", "bug", "KeyError", "a-task")


async def test_a_tool_that_takes_too_long_has_timed_out(calls: Bench) -> None:
    """The boundary reports the timeout before the server has to."""
    fault, error = await calls.fails(slow)

    assert (fault.code, fault.applied, error.non_retryable) == (Code.TIMEOUT, Applied.NONE, False)


async def test_earlier_faults_travel_with_the_result(calls: Bench) -> None:
    """What went wrong in the attempts before is part of what comes back; what the tool said in a heartbeat is not."""
    beats = list[Any]()
    environment = ActivityEnvironment()
    environment.on_heartbeat = lambda *details: beats.append(details)
    await calls.fails(raising(lambda: Unreachable("Cut.")), environment=environment)
    back = await calls.call(echo, attempt=2, heartbeats=["the tool's own", *beats[-1]])

    assert [Fault.model_validate(fault).reason for fault in back.earlier] == ["Cut."]


async def test_a_short_call_sends_no_heartbeat(calls: Bench) -> None:
    """The server writes each heartbeat to its database, and keeps the last one of the attempt before without it."""

    @tool.read
    async def short(args: Word) -> Word:
        """Wait a moment."""
        await asyncio.sleep(0.01)
        return args

    beats = list[Any]()
    environment = ActivityEnvironment()
    environment.on_heartbeat = lambda *details: beats.append(details)
    await calls.call(short, attempt=2, heartbeats=["of the attempt before"], environment=environment)

    assert beats == []


async def test_a_kind_that_this_worker_does_not_know_is_a_fault(calls: Bench) -> None:
    """A task of a newer worker meets an older one: not retried at once, and the remedy is named."""
    *_, catch_all = calls.boundary.activities({})
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, activity_type="pay")
    with pytest.raises(ApplicationError) as failed:
        await environment.run(catch_all, [])
    fault = failed.value.details[0]

    assert (fault.code, fault.source, failed.value.non_retryable) == (Code.MISSING_TOOL, "pay", True)
    assert "does not know the kind 'pay': start it with the tools file that defines it" in fault.reason


# The line in the log


async def lines_of(calls: Bench, tool: Tool[..., Any], **more: Any) -> list[Any]:
    """The lines `step` of one attempt, however it ends."""
    with captured() as lines:
        await asyncio.gather(calls.call(tool, **more), return_exceptions=True)
    return [line for line in lines if line["event"] == "step"]


KEYS = {"event", "log_level", *EVENTS["step"].always.split()}
FAILED = {"code", "quadrant", "effect", "error"}


@pytest.mark.parametrize(
    ("tool", "attempt", "outcome", "more"),
    [
        (echo, 1, "ok", set()),
        (echo, 2, "retried", set()),
        (raising(lambda: Busy("Later.")), 1, "transient_fail", FAILED | {"retry_in"}),
        (raising(lambda: Refused("No.")), 1, "persistent_fail", FAILED),
        (raising(lambda: KeyError("x")), 1, "persistent_fail", FAILED | {"at"}),
    ],
    ids=["ok", "retried", "transient", "refused", "bug"],
)
async def test_each_attempt_is_one_line(
    calls: Bench, tool: Tool[..., Any], attempt: int, outcome: str, more: set[str]
) -> None:
    """The same keys for every attempt; a failed one says its code and effect as well."""
    (line,) = await lines_of(calls, tool, attempt=attempt, word="hi")

    assert line.keys() == KEYS | more
    assert (line["task"], line["step"], line["attempt"], line["outcome"]) == ("a-task", "a", attempt, outcome)


@pytest.mark.parametrize(
    ("args", "shape"),
    [
        ({"word": "hello"}, {"word": "str[5]"}),
        ({"more": {HIDDEN: HIDDEN}}, {"more": "dict[1]"}),
        ({"word": 7, "more": {"list": [HIDDEN]}}, {"word": "int", "more": "dict[1]"}),
        ({HIDDEN: HIDDEN}, {}),
    ],
)
async def test_the_line_has_the_shape_of_the_input_and_never_a_value(
    calls: Bench, args: dict[str, JsonValue], shape: JsonValue
) -> None:
    """Names of arguments, types and sizes; the keys of a free dictionary are values, too."""
    (line,) = await lines_of(calls, echo, **args)

    assert line["shape"] == shape
    assert HIDDEN not in repr(line)


async def test_the_line_of_a_bug_says_where_it_is(calls: Bench) -> None:
    """Whoever mends the tool sees which exception was raised where; its message may quote values."""
    (line,) = await lines_of(calls, raising(lambda: KeyError(f"no price in {HIDDEN}")), word="hi")

    assert (line["error"], line["log_level"]) == ("KeyError", "error") and HIDDEN not in repr(line)
    assert line["at"][-1].startswith("test_boundary_faults.py:")


class Login(BaseModel):
    """A word with what nobody may see."""

    word: str
    pin: str = Field(repr=False)
    secret: SecretStr


@tool.read
async def log_in(args: Login) -> Login:
    """Return what was given."""
    return args


async def test_a_worker_that_logs_values_logs_arguments_results_and_messages(calls: Bench) -> None:
    """But for what their model hides, what looks like a secret, and what is beyond a size."""
    calls.logs_values = True
    args = {"word": f"hello {'x ' * 9999}", "pin": "hidden", "secret": "hidden"}
    (line,) = await lines_of(calls, log_in, **args)
    (failed,) = await lines_of(calls, raising(lambda: KeyError(f"no price in {HIDDEN}")), word="hi")

    assert line["args"].startswith("Login(word='hello x") and line["result"].startswith("Login(word='hello x")
    assert len(line["args"]) == len(line["result"]) == MAX_VALUES and "hidden" not in repr(line)
    assert failed["message"].startswith("KeyError: 'no price in") and HIDDEN not in repr(failed)


async def test_lines_of_a_tool_and_of_its_thread_say_which_attempt_they_are_of(calls: Bench) -> None:
    """It binds nothing itself; a line by the standard library's logger gets the same on the way out."""

    @tool.read
    def talk(args: Word) -> Word:
        """Write a line in a thread."""
        structlog.get_logger("shop").info("said")
        return args

    with captured() as lines:
        await calls.call(talk, attempt=2, word="hi")
    (said, ended) = lines

    assert said["event"] == "said" and {name: said[name] for name in IDS} == {name: ended[name] for name in IDS}
    assert (said["task"], said["step"], said["kind"], said["attempt"]) == ("a-task", "a", "talk", 2)


@pytest.mark.parametrize(
    ("details", "outcomes"),
    [
        (ActivityCancellationDetails(cancel_requested=True), ["cancelled"]),
        (ActivityCancellationDetails(cancel_requested=True, worker_shutdown=True), ["cancelled"]),
        (ActivityCancellationDetails(worker_shutdown=True), ["transient_fail"]),
        (ActivityCancellationDetails(paused=True), ["transient_fail"]),
        (ActivityCancellationDetails(paused=True, cancel_requested=True), ["cancelled"]),
        (ActivityCancellationDetails(reset=True), ["transient_fail"]),
    ],
    ids=["asked", "asked during a shutdown", "shutdown", "paused", "asked during a pause", "reset"],
)
async def test_a_cancelled_attempt_is_one_line(
    calls: Bench, details: ActivityCancellationDetails, outcomes: list[str]
) -> None:
    """A cancel is no fault; a worker's shutdown, or an operator's pause or reset, is one that time cures."""
    environment = ActivityEnvironment()
    cancelling = asyncio.create_task(cancel_when_called(environment, details))

    assert [line["outcome"] for line in await lines_of(calls, waiting, environment=environment)] == outcomes
    await cancelling


async def test_a_cancel_comes_out_as_a_cancel(calls: Bench) -> None:
    """Temporal has to see it as one."""
    environment = ActivityEnvironment()
    asked = ActivityCancellationDetails(cancel_requested=True)
    cancelling = asyncio.create_task(cancel_when_called(environment, asked))

    with pytest.raises(asyncio.CancelledError):
        await calls.call(waiting, environment=environment)
    await cancelling
