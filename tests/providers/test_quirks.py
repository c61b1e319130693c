"""Quirks of servers of the user's own: each task is done, with the right calls, once each."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from activities.planning.model_planner import ModelPlanner
from activities.providers.messages import Reply, StopReason
from evals.fakes.local_servers import TEXT_FORMS, THOUGHT, LocalServer, Quirk
from evals.fakes.model_api import MODEL, running
from evals.fakes.script import ModelCall, ModelReply, ReceivedRequest, Response, calls, finishes, proposes, step
from runtime.dev_server import DevServer
from tests.gate import sampled
from tests.harness import Stage, outcome, staged
from tests.providers.acting import reacting
from tests.providers.asking import ASKED, request
from tests.providers.desk import TOOLS
from tests.providers.planning import adapter_of
from tests.providers.test_react import shopper
from tests.providers.test_react_crash import DESK, Workers, begun, dead
from tests.providers.test_textual import examples
from workflows.account.records import StepStatus
from workflows.account.task import Task, TaskStatus
from workflows.limits.budget import Limits


def planner(heard: ReceivedRequest) -> Response:
    """The same task as a plan."""
    if heard.turn:
        return finishes("26.50 in all")
    prices = [{"$from": "one", "path": "amount"}, {"$from": "two", "path": "amount"}]
    return proposes(
        step("one", "get_price", sku="A-17"),
        step("two", "get_price", sku="B-2"),
        step("sum", "add", amounts=prices),
    )


MODELS = {"plan": planner, "react": shopper}
QUIRKS = {f"{quirk}, {strategy}": (quirk, strategy) for quirk in Quirk for strategy in MODELS}


@asynccontextmanager
async def served(client: Client, folder: Path, server: LocalServer) -> AsyncIterator[Stage]:
    """A worker whose planner asks this server."""
    async with running(server), staged(client, folder, TOOLS, ModelPlanner(adapter_of("openai", server))) as stage:
        yield stage


@pytest.mark.parametrize(("quirk", "strategy"), sampled(QUIRKS, *[f"{quirk}, react" for quirk in Quirk][:3]))
async def test_a_task_is_done_in_spite_of_a_quirk(client: Client, tmp_path: Path, quirk: Quirk, strategy: str) -> None:
    """Three calls, once each, and no request more than at the provider's own server."""
    server = LocalServer([MODELS[strategy]], quirks=frozenset([quirk]))
    async with served(client, tmp_path, server) as stage:
        task = Task(text="what do A-17 and B-2 cost together?", strategy=strategy, limits=Limits(replans=5))
        ended = await stage.run(task)
    called = [(one.kind, one.args, one.attempts) for one in ended.steps]

    assert (ended.status, ended.result) == (TaskStatus.COMPLETED, "26.50 in all"), ended.reason
    assert called == [
        ("get_price", {"sku": "A-17"}, 1),
        ("get_price", {"sku": "B-2"}, 1),
        ("add", {"amounts": [24.5, 2.0]}, 1),
    ]
    assert (len(server.bodies), server.violations) == (3 if strategy == "react" else 2, [])


async def replied(quirk: Quirk, reply: ModelReply) -> Reply:
    """One reply of a server with this quirk."""
    async with running(LocalServer([reply], quirks=frozenset([quirk]))) as server:
        return await adapter_of("openai", server).reply(request(ASKED))


PAIR = calls(ModelCall("weather", {"place": "Paris"}), ModelCall("weather", {"place": "Paris"}), text="Both.")


@pytest.mark.parametrize("quirk", Quirk)
async def test_equal_calls_stay_two(quirk: Quirk) -> None:
    """Of one tool with the same arguments, whatever tells them apart is missing."""
    reply = await replied(quirk, PAIR)

    assert [(call.name, call.args, call.broken) for call in reply.turn.calls] == [
        ("weather", {"place": "Paris"}, "")
    ] * 2
    assert (reply.turn.text, reply.stop is StopReason.CUT) == ("Both.", False)


@pytest.mark.parametrize("quirk", [Quirk.THINKS, Quirk.THINKS_UNOPENED, Quirk.REASONING])
async def test_reasoning_is_kept_beside_the_answer(quirk: Quirk) -> None:
    """And is no part of it."""
    reply = await replied(quirk, ModelReply(text="Rome."))

    assert (reply.turn.text, reply.turn.aside) == ("Rome.", THOUGHT)


def refused(heard: ReceivedRequest) -> Response:
    """A model that books, is refused, books another time, and says so."""
    times, turn = ("14:00", "14:30"), heard.turn - examples(heard)
    return calls(ModelCall("book", {"at": times[turn]})) if turn < 2 else ModelReply(text="At 14:30.")


def replanned(heard: ReceivedRequest) -> Response:
    """The same as plans."""
    at = ("14:00", "14:30")
    return proposes(step(f"at{heard.turn}", "book", at=at[heard.turn])) if heard.turn < 2 else finishes("At 14:30.")


KILLED = {
    **{str(quirk): ("react", {"quirks": frozenset([quirk])}) for quirk in Quirk},
    **{f"{quirk}, a plan": ("plan", {"quirks": frozenset([quirk])}) for quirk in Quirk},
    **{f"calls as text, {form}": ("react", {"form": form, "rejects_tools": True}) for form in TEXT_FORMS},
}


@pytest.mark.parametrize("point", ["plan=die@before_commit:1", "book=die@after_commit:1"])
@pytest.mark.parametrize(("strategy", "options"), sampled(KILLED, "calls as text, ReAct"))
@pytest.mark.timeout(180)
async def test_a_task_survives_a_worker_that_dies(
    client: Client, server: DevServer, tmp_path: Path, strategy: str, options: dict[str, Any], point: str
) -> None:
    """After the model's reply and after an effect: what was recorded is not asked or done again."""
    model, ids = (refused, ("t1.c0", "t2.c0")) if strategy == "react" else (replanned, ("at0", "at1"))
    async with running(LocalServer([model], model=MODEL, **options)) as api:
        workers = Workers(server.address, tmp_path, "openai", api, DESK)
        with workers.one(point) as first:
            handle = await begun(
                client, workers.queue, reacting("book a slot").model_copy(update={"strategy": strategy})
            )
            await dead(first)
        with workers.one():
            ended = await outcome(handle)
    asked = [body for body in api.bodies if not (options.get("rejects_tools") and "tools" in body)]

    assert (ended.status, ended.result, api.violations) == (TaskStatus.COMPLETED, "At 14:30.", []), ended.reason
    assert [(one.id, one.args, one.status) for one in ended.steps] == [
        (ids[0], {"at": "14:00"}, StepStatus.FAILED),
        (ids[1], {"at": "14:30"}, StepStatus.COMPLETED),
    ]
    assert len(asked) == (4 if point.startswith("plan") else 3) and ended.spent.tool_calls >= 3
