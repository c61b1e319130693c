"""Questions of a model to the user, and calls that a person rejects or edits: what the model is told, and where."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from activities.planning.conversation import split_situation, turns, whole_situation
from activities.planning.fallback import FallbackPlanner
from activities.planning.model_planner import ModelPlanner
from activities.planning.planner import Exchange, RecordedTurn
from activities.planning.strategies import ASK
from activities.providers.messages import AssistantTurn, StopReason, ToolCall, Usage, UserTurn
from evals.fakes.model_api import running
from evals.fakes.script import (
    ModelCall,
    ModelError,
    ModelReply,
    ReceivedRequest,
    Response,
    asks,
    calls,
    finishes,
    proposes,
    step,
)
from replan import tool
from runtime.dev_server import DevServer
from tests.activities.situations import NOW, record, step as planned
from tests.gate import sampled
from tests.harness import outcome, staged
from tests.providers.acting import acting, reacting
from tests.providers.desk import TOOLS, Slot
from tests.providers.planning import api_of, model_of
from tests.providers.test_react_crash import begun, dead, working
from tests.workflows.history import Handle, until
from workflows.account.task import Task, TaskStatus
from workflows.people.requests import HumanRequest, Word
from workflows.planning.situation import Situation
from workflows.plans.proposal import MAX_OPTION, MAX_OPTIONS, NewSteps, Proposed, Question

TIMES = ("14:30", "15:00")


def chosen(heard: ReceivedRequest) -> str:
    """The time that the user chose."""
    return next(at for at in TIMES if at in heard.results[-1].text)


def by_turns(heard: ReceivedRequest) -> Response:
    """A model that looks, asks which time, and books what the user says."""
    if heard.turn == 1:
        return asks("Which time?", *TIMES, free_text=False)
    if heard.turn == 3:
        return ModelReply(text="It is booked.")
    return calls(ModelCall("book", {"at": chosen(heard)}) if heard.turn else ModelCall("list_free", {"at": "14:00"}))


def by_plans(heard: ReceivedRequest) -> Response:
    """The same with whole plans."""
    if heard.turn == 1:
        return asks("Which time?", *TIMES, free_text=False)
    if heard.turn == 3:
        return finishes("It is booked.")
    return proposes(step("slot", "book", at=chosen(heard)) if heard.turn else step("free", "list_free", at="14:00"))


def waiting(strategy: str, **more: Any) -> Task:
    """A task that waits for people."""
    task = reacting("book a slot") if strategy == "react" else Task(text="book a slot")
    return task.model_copy(update={"on_escalation": "wait", **more})


STRATEGIES = {"plan": by_plans, "react": by_turns}


async def opened(handle: Handle, number: int = 1) -> HumanRequest:
    """The request with this number, as soon as it is open."""
    return (await until(handle, lambda now: len(now.requests) >= number, seconds=60)).requests[number - 1]


def answering(request: ReceivedRequest) -> tuple[str, str]:
    """The name of the newest call of a tool, and the text of its result."""
    (result,) = request.results
    call = request.calls[-1]
    assert result.call_id == call.id
    return call.name, result.text


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_the_reply_is_the_result_of_the_call(
    client: Client, tmp_path: Path, provider: str, strategy: str
) -> None:
    """And nothing beside it; each request begins with the one before."""
    async with acting(client, tmp_path, provider, STRATEGIES[strategy]) as one:
        handle = await one.stage.start(waiting(strategy))
        request = await opened(handle)
        await handle.execute_update("reply", {"text": "15:00", "by": "ann"})
        ended = await outcome(handle)
    asked, told = one.api.requests[1:3]

    assert (request.reason, request.options, request.free_text) == ("Which time?", TIMES, False)
    assert (ended.status, ended.steps[-1].result) == (TaskStatus.COMPLETED, {"id": 7, "at": "15:00:00"})
    assert answering(told) == (ASK, 'The user chooses this option:\n<data from="option">\n"15:00"\n</data>')
    assert "15:00" not in told.last_text and told.turns[: len(asked.turns)] == asked.turns
    assert one.api.violations == []


async def test_what_the_user_says_in_other_words_is_no_data(client: Client, tmp_path: Path, provider: str) -> None:
    """It is what the user wants, without characters that nobody sees; an option is what the planner wrote."""
    script = (asks("For whom?", "Ada", "the <data> team"), asks("Really?", "yes"), ModelReply(text="done"))
    async with acting(client, tmp_path, provider, *script) as one:
        handle = await one.stage.start(waiting("react"))
        await opened(handle)
        await handle.execute_update("reply", {"text": " THE <data>  team", "request": "r1"})
        await opened(handle, 2)
        await handle.execute_update("reply", {"text": "no: for \u202eBob", "request": "r2"})
        await outcome(handle)
    chosen, said = (answering(heard)[1] for heard in one.api.requests[1:])

    assert chosen == 'The user chooses this option:\n<data from="option">\n"the \\u003cdata> team"\n</data>'
    assert said == "The user answers: no: for Bob"


@pytest.mark.parametrize(("provider", "strategy"), [("anthropic", "plan"), ("openai", "react"), ("responses", "plan")])
@pytest.mark.timeout(180)
@pytest.mark.full
async def test_a_reply_survives_the_worker_that_asked(
    client: Client, server: DevServer, tmp_path: Path, provider: str, strategy: str
) -> None:
    """The worker dies while the user thinks, and the next one when it has the model's move, before it has recorded it.

    The third worker asks the model for the same turn once more, with the reply where it belongs.
    """
    async with working(server, tmp_path, provider, STRATEGIES[strategy]) as (api, workers):
        with workers.one() as first:
            handle = await begun(client, workers.queue, waiting(strategy))
            await opened(handle)
            first.kill()
        with workers.one("plan=die@before_commit:1") as second:
            await handle.execute_update("reply", {"text": "15:00"})
            await dead(second)
        with workers.one():
            ended = await outcome(handle)
    repeats = [heard for heard in api.requests if heard.turn == 2]

    assert (ended.status, len(ended.requests)) == (TaskStatus.COMPLETED, 1)
    assert [answering(heard)[0] for heard in repeats] == [ASK, ASK]
    assert repeats[0].body == repeats[1].body and api.violations == []


async def test_another_provider_is_told_the_reply_as_the_result(client: Client, tmp_path: Path) -> None:
    """The model that asked cannot be used any more: the next one of the list finds call and reply as its own."""
    broken = ModelError(401, "authentication_error", code="invalid_api_key")
    first, second = api_of("openai", asks("Which time?", *TIMES), broken), api_of("anthropic", ModelReply(text="done"))
    async with running(first), running(second):
        planners = [ModelPlanner(model_of("openai", first)), ModelPlanner(model_of("anthropic", second))]
        async with staged(client, tmp_path, TOOLS, FallbackPlanner(planners)) as stage:
            handle = await stage.start(waiting("react"))
            await opened(handle)
            await handle.execute_update("reply", {"text": "14:30"})
            ended = await outcome(handle)

    assert (ended.status, second.violations) == (TaskStatus.COMPLETED, [])
    assert answering(second.requests[0])[0] == ASK and "14:30" in answering(second.requests[0])[1]


BAD = {
    "too many options": ({"question": "Which?", "options": [*map(str, range(MAX_OPTIONS + 1))]}, "'options'"),
    "an option too long": ({"question": "Which?", "options": ["x" * (MAX_OPTION + 1)]}, "'options.0'"),
    "an empty option": ({"question": "Which?", "options": ["  "]}, "'options.0'"),
    "no list": ({"question": "Which?", "options": "14:30"}, "'options'"),
    "a long question": ({"question": "x" * 5_000, "options": [], "free_text": True}, "more than 4000"),
    "no question": ({"options": ["a"], "free_text": True}, "ask needs 'question', which is missing or empty"),
}


@pytest.mark.parametrize(("args", "reason"), sampled(BAD, "too many options", "no question"))
async def test_a_question_that_nobody_can_read_goes_back(
    client: Client, tmp_path: Path, args: dict[str, Any], reason: str
) -> None:
    """The model is told why, as the result of its call; nobody is asked."""
    script = (ModelReply((ModelCall(ASK, args),)), ModelReply(text="done"))
    async with acting(client, tmp_path, "openai", *script) as one:
        ended = await one.run(more={"on_escalation": "wait"})

    assert (ended.status, ended.requests) == (TaskStatus.COMPLETED, ())
    assert reason in answering(one.api.requests[1])[1]


LOOSE: dict[str, tuple[dict[str, Any], tuple[str, ...], bool]] = {
    "only the question": ({"question": "Which?"}, (), True),
    "null for what is left out": ({"question": "Which?", "options": None, "free_text": None}, (), True),
    "nothing to choose from": ({"question": "Which?", "options": [], "free_text": False}, (), True),
    "the same twice": ({"question": "Which?", "options": ["a  b", "a b\n", "c\u200b"]}, ("a b", "c"), True),
}


@pytest.mark.parametrize(("args", "options", "free"), sampled(LOOSE, "nothing to choose from", "the same twice"))
async def test_a_loose_question_is_understood(
    client: Client, tmp_path: Path, args: dict[str, Any], options: Sequence[str], free: bool
) -> None:
    """As servers send it whose models keep to no schema; a question without options takes any words."""
    script = (ModelReply((ModelCall(ASK, args),)), ModelReply(text="done"))
    async with acting(client, tmp_path, "openai", *script) as one:
        handle = await one.stage.start(waiting("react"))
        request = await opened(handle)
        await handle.execute_update("reply", {"text": "any"})
        await outcome(handle)

    assert (request.options, request.free_text) == (options, free)


def situation(turn: int, **more: Any) -> Situation:
    """What is new at a turn."""
    return Situation.model_validate({"turn": turn, "now": NOW, **more})


WHICH = Proposed(proposal=Question(text="Which <b>?", options=("a", "b")))
SAID = Word(question="Which <b>?", text="b", is_option=True)


def test_a_reply_is_told_once_to_whoever_takes_over() -> None:
    """A planner without a conversation is told all replies, a model that is told the whole task the question, too.

    No turn of that conversation has the question, and it may quote the world.
    """
    asked = RecordedTurn("run", 0, 1, situation(1, text="do it"), WHICH)
    plan = RecordedTurn("run", 0, 2, situation(2, words=(SAID,)), Proposed(proposal=NewSteps(steps=(planned("a"),))))
    done = record(planned("a"), "completed", result={})
    whole = whole_situation([asked, plan], "run", situation(3, records=(done,)))
    told = turns(*split_situation(situation(2, text="do it", records=(done,), words=(SAID,), may_ask=True)))
    texts = [turn.text for turn in told if isinstance(turn, UserTurn)]

    assert whole.words == (SAID,)
    assert ["The user chooses" in text for text in texts] == [False, True]
    assert 'You asked:\n<data from="question">\n"Which \\u003cb>?"\n</data>\nThe user chooses' in texts[-1]


def test_a_hint_beside_a_reply_is_told_apart() -> None:
    """The reply is the result of the call, the hint of another person is text."""
    call = ToolCall("id_1", ASK, {"question": "Which <b>?"})
    exchange = Exchange(UserTurn("do it"), AssistantTurn("", (call,)), StopReason.CALLS, Usage())
    words = (SAID, Word(text="Hurry."))
    told = turns([RecordedTurn("run", 0, 1, situation(1, text="do it"), WHICH, exchange)], situation(2, words=words))
    last = told[-1]

    assert isinstance(last, UserTurn)
    assert (["chooses" in one.text for one in last.results], "chooses" in last.text) == ([True], False)
    assert "The user says: Hurry." in last.text


@pytest.mark.parametrize("how", ["end", pytest.param("undo", marks=pytest.mark.full)])
async def test_where_nobody_is_asked_the_question_ends_the_task(client: Client, tmp_path: Path, how: str) -> None:
    """With its options, for a program that starts the task again with the answer."""
    async with acting(client, tmp_path, "anthropic", asks("Which time?", *TIMES, free_text=False)) as one:
        ended = await one.run(more={"on_escalation": how})

    assert (ended.status, ended.code, ended.requests) == (TaskStatus.ESCALATED, "question", ())
    assert (ended.question, ended.question_options) == ("Which time?", TIMES)
    assert ended.reason == "The planner asks: Which time? Options: 14:30, 15:00."


# Calls that a person rejects or edits


@tool.idempotent(approve="always")
async def reserve(args: Slot) -> Slot:
    """Reserve a slot."""
    return args


WANTED: dict[str, list[Response]] = {
    "react": [*(calls(ModelCall("reserve", {"at": at})) for at in TIMES), ModelReply(text="Reserved.")],
    "plan": [*(proposes(step(f"at-{at[:2]}", "reserve", at=at)) for at in TIMES), finishes("Reserved.")],
}
"""A model that wants one slot, and then another."""


@pytest.mark.parametrize("strategy", WANTED)
async def test_a_model_is_told_what_a_person_decided(
    client: Client, tmp_path: Path, provider: str, strategy: str
) -> None:
    """The reason of a rejection in the words of the person, and the arguments that were really used."""
    async with acting(client, tmp_path, provider, *WANTED[strategy], tools=[reserve]) as one:
        handle = await one.stage.start(waiting(strategy))
        await opened(handle)
        await handle.execute_update("reject", {"request": "r1", "reason": "Rather later."})
        second = await opened(handle, 2)
        assert second.call is not None
        edit = {"request": "r2", "call": second.call.code, "args": {"at": "16:00"}}
        await handle.execute_update("edit", edit)
        ended = await outcome(handle)
    rejected, edited = ("\n".join(result.text for result in heard.results) for heard in one.api.requests[1:3])

    assert (ended.status, [one.status for one in ended.steps]) == (TaskStatus.COMPLETED, ["failed", "completed"])
    assert "A person rejected the call of reserve: Rather later." in rejected
    assert "Rather later." in one.api.requests[1].last_text
    assert "A person changed arguments of " in edited and '"16:00"' in edited
    assert one.api.violations == []
