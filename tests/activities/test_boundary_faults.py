"""How an attempt fails: the four classes of ours, what is kept of a fault, and the one line in the log."""

import asyncio
import json
from dataclasses import replace
from datetime import timedelta
from itertools import product
from typing import Any

import httpx2
import pytest
import structlog
from pydantic import BaseModel, Field, JsonValue, SecretStr, ValidationError
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
from workflows.faults.fault import MAX_TEXT, QUADRANT, Applied, Code, Fault, Quadrant
from workflows.json_values import canonical

HIDDEN = "sk-secret"
CLASSES: list[type[ToolError]] = [Refused, Busy, Unreachable, NeedsPerson]


class Word(BaseModel):
    word: str = ""
    more: dict[str, JsonValue] = {}


def raising(error: BaseException) -> Tool[..., Any]:
    @tool.read
    async def broken(args: Word) -> Word:
        """Fail."""
        raise error

    return broken


@tool.read(timeout=30)
async def waiting(args: Word) -> Word:
    """Wait until somebody stops it."""
    CALLED.append(args.word)
    await asyncio.sleep(30)
    return args


CALLED: list[str] = []


async def cancel_when_called(environment: ActivityEnvironment, details: ActivityCancellationDetails) -> None:
    """Cancel the activity as soon as its tool runs; before, a connection to the store may be half open."""
    CALLED.clear()
    while not CALLED:
        await asyncio.sleep(0.01)
    environment.cancel(details)


@tool.read
async def echo(args: Word) -> Word:
    """Say the word."""
    return args


def test_a_code_belongs_to_the_class_of_its_cell() -> None:
    """A class takes the codes of its own cell but Replan's own, and says which when it is given another."""
    for raised, code in product(CLASSES, Code):
        if QUADRANT[code] is raised.quadrant and code not in RESERVED_CODES:
            assert raised("No.", code=code.value).fault.code is code
        else:
            words = rf"{raised.__name__} has no code '{code}': use one of .*{raised.default}"
            with pytest.raises(ValueError, match=words):
                raised("No.", code=code.value)

    assert {raised.quadrant for raised in CLASSES} == set(Quadrant)
    with pytest.raises(ValueError, match="Refused has no code 'confict': use one of conflict, gone"):
        Refused("No.", code="confict")


TOLD: list[tuple[Exception, str, bool, bool]] = [
    (Refused("No."), "persistent_semantic", False, True),
    (Busy("Later."), "transient_semantic", True, True),
    (Unreachable("Cut."), "transient_infrastructural", True, False),
    (NeedsPerson("Help."), "persistent_infrastructural", False, False),
    (KeyError("x"), "persistent_infrastructural", False, False),
]
WAITS: list[tuple[float | None, int | None, bool]] = [
    (None, 0, True),
    (7, 7, True),
    (60, 60, True),
    (61, None, False),
    (1e12, None, False),
    (-5, 0, True),
]


async def test_a_fault_tells_temporal_what_to_do(calls: Bench) -> None:
    """Only transient faults are retried; an activity does not back off longer than a minute."""
    for raised, quadrant, retried, benign in TOLD:
        _, error = await calls.fails(raising(raised))

        assert (error.type, error.non_retryable) == (quadrant, not retried)
        assert (error.category is ApplicationErrorCategory.BENIGN) is benign

    for retry_after, at_least, retried in WAITS:
        _, error = await calls.fails(raising(Busy("Later.", retry_after=retry_after)))
        delay = error.next_retry_delay

        assert error.non_retryable is not retried
        assert (delay is None) is (at_least is None)
        if delay is not None and at_least is not None:
            assert at_least <= delay.total_seconds() <= at_least + 1


OBSERVED: list[tuple[Any, JsonValue]] = [
    (Word(word="hi"), {"word": "hi", "more": {}}),
    ({"at": timedelta(minutes=5)}, {"at": "PT5M"}),
    ((1, 2), [1, 2]),
    (float("nan"), None),
    ({"half": "\ud800"}, None),
]


async def test_an_observation_is_json(calls: Bench) -> None:
    """Whatever JSON can carry, up to 8 KB: history is for what decides."""
    for observed, kept in OBSERVED:
        fault, error = await calls.fails(raising(Refused("No.", observed=observed)))
        assert (fault.code, fault.observed) == (Code.REFUSED, kept)
        assert json.loads(fault.model_dump_json()) and not error.__cause__
    fault, _ = await calls.fails(raising(Refused("There is no \udcff.txt.", code="not_found")))
    assert (fault.code, fault.reason) == (Code.NOT_FOUND, "There is no ?.txt.")

    observations: list[JsonValue] = ["x" * 20_000, ["😀" * 100] * 100, {"key": '\\"\n' * 5000}, ["\x00"] * 5000]
    for observed in observations:
        fault, _ = await calls.fails(raising(Refused("No.", observed=observed)))
        assert str(fault.observed).endswith("(cut)")
        assert len(canonical(fault.observed).encode()) <= MAX_TEXT
    for reason in ("x" * 20_000, "😀" * 20_000):
        fault, error = await calls.fails(raising(Refused(reason)))
        assert len(fault.reason.encode()) <= MAX_TEXT and error.message == fault.reason


async def test_foreign_words_stay_out_of_the_failure(calls: Bench) -> None:
    """Whatever a tool raises becomes a fault, and neither message nor details nor cause say what it said."""
    with pytest.raises(ValidationError) as invalid:
        Word.model_validate(HIDDEN)
    for raised in (KeyError(HIDDEN), httpx2.ConnectError(HIDDEN), OSError(5, HIDDEN), invalid.value):
        fault, error = await calls.fails(raising(raised))
        assert HIDDEN not in fault.model_dump_json() + str(error) + repr(error.details)
        assert error.__suppress_context__ and error.__cause__ is None

    group = ExceptionGroup("x", [KeyError("a"), KeyError("b")])
    others = [SystemExit(3), asyncio.CancelledError(), TimeoutError(), group]
    codes = [(await calls.fails(raising(one)))[0].code for one in others]

    assert codes == [Code.BUG, Code.BUG, Code.TIMEOUT, Code.BUG]


async def test_a_tool_that_takes_too_long_has_timed_out(calls: Bench) -> None:
    """The boundary reports it before the server has to; a kind that an older worker does not know has its remedy."""

    @tool.read(timeout=0.05)
    async def slow(args: Word) -> Word:
        """Take too long."""
        await asyncio.sleep(30)
        return args

    fault, error = await calls.fails(slow)
    *_, catch_all = calls.boundary.activities({})
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, activity_type="pay")
    with pytest.raises(ApplicationError) as failed:
        await environment.run(catch_all, [])
    unknown = failed.value.details[0]

    assert (fault.code, fault.applied, error.non_retryable) == (Code.TIMEOUT, Applied.NONE, False)
    assert (unknown.code, unknown.source, failed.value.non_retryable) == (Code.MISSING_TOOL, "pay", True)
    assert "does not know the kind 'pay': start it with the tools file that defines it" in unknown.reason


async def test_earlier_faults_travel_with_the_result(calls: Bench) -> None:
    """What went wrong in the attempts before is part of what comes back; what the tool said in a heartbeat is not.

    A short call sends none: the server writes each to its database, and keeps the last one of the attempt before.
    """

    @tool.read
    async def short(args: Word) -> Word:
        """Wait a moment."""
        await asyncio.sleep(0.01)
        return args

    beats, environment = list[Any](), ActivityEnvironment()
    environment.on_heartbeat = lambda *details: beats.append(details)
    await calls.call(short, attempt=2, heartbeats=["of the attempt before"], environment=environment)
    silent = not beats
    await calls.fails(raising(Unreachable("Cut.")), environment=environment)
    back = await calls.call(echo, attempt=2, heartbeats=["the tool's own", *beats[-1]])

    assert silent
    assert [Fault.model_validate(fault).reason for fault in back.earlier] == ["Cut."]


async def lines_of(calls: Bench, tool: Tool[..., Any], **more: Any) -> list[Any]:
    with captured() as lines:
        await asyncio.gather(calls.call(tool, **more), return_exceptions=True)
    return [line for line in lines if line["event"] == "step"]


KEYS = {"event", "log_level", *EVENTS["step"].always.split()}
FAILED = {"code", "quadrant", "effect", "error"}
ATTEMPTS: list[tuple[Tool[..., Any], int, str, set[str]]] = [
    (echo, 1, "ok", set()),
    (echo, 2, "retried", set()),
    (raising(Busy("Later.")), 1, "transient_fail", FAILED | {"retry_in"}),
    (raising(Refused("No.")), 1, "persistent_fail", FAILED),
]


async def test_each_attempt_is_one_line(calls: Bench) -> None:
    """The same keys for every attempt; names of arguments, types and sizes, and never a value."""
    for one, attempt, outcome, more in ATTEMPTS:
        (line,) = await lines_of(calls, one, attempt=attempt, word="hi")

        assert line.keys() == KEYS | more
        assert (line["task"], line["step"], line["attempt"], line["outcome"]) == ("a-task", "a", attempt, outcome)

    for args, shape in SHAPES:
        (line,) = await lines_of(calls, echo, **args)
        assert line["shape"] == shape and HIDDEN not in repr(line)


async def test_the_line_of_a_bug_says_where_it_is(calls: Bench) -> None:
    """Whoever mends the tool sees which exception was raised where; its message may quote values."""
    with captured() as lines:
        fault, _ = await calls.fails(raising(KeyError(f"no price in {HIDDEN}")), word="hi")
    (line,) = lines

    assert fault.reason.endswith("The cause is in the worker's log, in its line with step 'a' and code 'bug'.")
    assert line.keys() == KEYS | FAILED | {"at"} and line["at"][-1].startswith("test_boundary_faults.py:")
    assert (line["task"], line["step"], line["outcome"], line["code"]) == ("a-task", "a", "persistent_fail", "bug")
    assert (line["error"], line["log_level"]) == ("KeyError", "error") and HIDDEN not in repr(line)


SHAPES: list[tuple[dict[str, JsonValue], dict[str, str]]] = [
    ({"word": "hello"}, {"word": "str[5]"}),
    ({"more": {HIDDEN: HIDDEN}}, {"more": "dict[1]"}),
    ({"word": 7, "more": {"list": [HIDDEN]}}, {"word": "int", "more": "dict[1]"}),
    ({HIDDEN: HIDDEN}, {}),
]


class Login(BaseModel):
    word: str
    pin: str = Field(repr=False)
    secret: SecretStr


async def test_a_worker_that_logs_values_logs_arguments_results_and_messages(calls: Bench) -> None:
    """But for what their model hides, what looks like a secret, and what is beyond a size."""

    @tool.read
    async def log_in(args: Login) -> Login:
        """Return what was given."""
        return args

    calls.logs_values = True
    args = {"word": f"hello {'x ' * 9999}", "pin": "hidden", "secret": "hidden"}
    (line,) = await lines_of(calls, log_in, **args)
    (failed,) = await lines_of(calls, raising(KeyError(f"no price in {HIDDEN}")), word="hi")

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


CANCELS = {
    "asked": (ActivityCancellationDetails(cancel_requested=True), "cancelled"),
    "asked during a shutdown": (ActivityCancellationDetails(cancel_requested=True, worker_shutdown=True), "cancelled"),
    "shutdown": (ActivityCancellationDetails(worker_shutdown=True), "transient_fail"),
    "paused": (ActivityCancellationDetails(paused=True), "transient_fail"),
    "asked during a pause": (ActivityCancellationDetails(paused=True, cancel_requested=True), "cancelled"),
    "reset": (ActivityCancellationDetails(reset=True), "transient_fail"),
}


@pytest.mark.parametrize(("details", "outcome"), CANCELS.values(), ids=CANCELS)
async def test_a_cancelled_attempt_is_one_line(
    calls: Bench, details: ActivityCancellationDetails, outcome: str
) -> None:
    """A cancel comes out as one; a worker's shutdown, or an operator's pause or reset, is a fault that time cures."""
    environment = ActivityEnvironment()
    cancelling = asyncio.create_task(cancel_when_called(environment, details))
    expected = asyncio.CancelledError if outcome == "cancelled" else ApplicationError
    with captured() as lines, pytest.raises(expected):
        await calls.call(waiting, environment=environment)
    await cancelling

    assert [line["outcome"] for line in lines if line["event"] == "step"] == [outcome]
