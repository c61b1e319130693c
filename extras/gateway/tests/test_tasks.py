"""`replan mcp --tasks`: each call with an effect is a task of a worker, and is recognised as without."""

import random
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from client.client import Client
from extras.gateway import attending
from extras.gateway.tests.agents import NOT_AGAIN, PAY, Agent, Place, said, until
from runtime.dev_server import DevServer
from tests import preloaded
from tests.processes import ROOT, Processes, Running
from workflows.people import requests
from workflows.people.requests import Choice, RequestKind

TOOLS = """[servers.shop.tools.pay]
effect = "unkeyed"
undo = { kind = "shop.pay", using = { who = "args.who" } }

[servers.shop.errors]
"no such order" = { code = "not_found", applied = "none" }
"""


class TaskPlace(Place):
    """A state folder with a shop, and a task queue."""

    def __init__(self, folder: Path, address: str) -> None:
        self.queue = f"q-{uuid.uuid4().hex[:8]}"
        super().__init__(folder, address, preloaded.python(), ("--tasks", "--queue", self.queue))
        self._processes = Processes(address, folder, {"REPLAN_QUEUE": self.queue})

    def worker(self, file: Path) -> AbstractContextManager[Running]:
        """A worker with the tools of a file."""
        return self._processes.worker("--tools", str(file))


@pytest.fixture
def place(tmp_path: Path, server: DevServer) -> Iterator[TaskPlace]:
    place = TaskPlace(tmp_path, server.address)
    yield place
    place.close()


def test_a_call_is_a_task_and_is_recognised_as_without_one(place: TaskPlace, session: str) -> None:
    """By its key, or after its agent was killed; the console and the agent see the tasks."""
    file = place.tools_file(TOOLS, is_gated=True)
    place.open_gate()
    with place.worker(file):
        agent = place.of_tools(file, "--session", session)
        first, second = agent.call("pay", PAY, key="k", run="r1"), agent.call("pay", PAY, key="k", run="r1")
        conflict = agent.call("pay", {"who": "bob"}, key="k", run="r1")
        refused = agent.call("refuse")
        place.gate.unlink()
        agent.begin("pay", {"who": "eve"})
        place.until_paid(3)
        agent.kill()
        again = place.of_tools(file, "--session", session)
        number = again.begin("pay", {"who": "eve"})
        place.open_gate()
        answer = again.answer(number)["result"]
        effects = again.call("replan_effects")["structuredContent"]["effects"]
        words = [place.python, "-m", "replan", "effects", "--session", session]
        done = subprocess.run(words, env=place.environment, cwd=ROOT, capture_output=True, text=True, check=True)

    assert second == first and said(first).startswith("paid ann")
    assert conflict["structuredContent"]["code"] == "conflict"
    assert refused["structuredContent"]["do"] == "change_the_call" and "no such order" in said(refused)
    assert said(answer).startswith("paid eve") and NOT_AGAIN in said(answer)
    assert place.paid == ["ann", "refused", "eve"]
    assert [effect["kind"] for effect in effects] == ["shop.pay", "shop.pay"]
    assert all(effect["id"].startswith(f"mcp:{session}:pay-") for effect in effects)
    assert done.stdout.index("paid ann") < done.stdout.index("paid eve")


def test_everything_is_killed_and_the_task_is_found(place: TaskPlace, session: str) -> None:
    """The holder and the agent end in the call: the task goes on, and the next equal call gets its result."""
    file = place.tools_file(TOOLS, is_gated=True)
    with place.worker(file):
        agent = place.of_tools(file, "--session", session)
        agent.begin("pay", PAY)
        place.until_paid(1)
        agent.kill()
        place.kill_all()
        place.open_gate()
        result = place.of_tools(file, "--session", session).call("pay", PAY)

    assert said(result).startswith("paid ann") and NOT_AGAIN in said(result)
    assert place.paid == ["ann"]


async def test_an_approval_is_asked_for_and_waited_for(place: TaskPlace, session: str, server: DevServer) -> None:
    """The agent is told who is asked; no agent of another session sees the call, and no agent answers it."""
    file = place.tools_file('[servers.shop.tools.pay]\neffect = "unkeyed"\napprove = "always"\n')
    with place.worker(file):
        agent = place.of_tools(file, "--session", session, "--patience", "0.5")
        pending = agent.call("pay", PAY)
        told = pending["structuredContent"]
        stranger = place.of_tools(file, "--session", f"{session}-2")
        strange = [said(stranger.call(tool, {"id": told["task"]})) for tool in ("replan_outcome", "replan_explain")]
        reply = said(agent.call("replan_answer", {"id": told["task"], "text": "approve"}))
        waits = agent.call("replan_outcome", {"id": told["task"]})
        again = agent.begin("pay", PAY)
        task = await (await Client.connect(server.address)).task(told["task"])
        [request] = await task.requests()
        await task.answer(Choice.APPROVE, request=request)
        result = agent.answer(again)["result"]
        if result.get("isError"):  # its patience ended before the answer came
            result = agent.call("pay", PAY)
        outcome = agent.call("replan_outcome", {"id": told["task"]})

    assert request.kind is RequestKind.APPROVAL
    assert told["code"] == "waits_for_a_person" and told["applied"] == "none"
    assert f"`python starter.py answer {told['task']}`" in said(pending)
    assert all("This session has no call" in words for words in strange)
    assert "approvals and faults are for a person" in reply
    assert waits["structuredContent"]["code"] == "waits_for_a_person"
    assert said(result).startswith("paid ann") and said(outcome).startswith("paid ann")
    assert place.paid == ["ann"]


def test_a_call_without_a_worker_is_said_with_the_command_that_starts_one(place: TaskPlace, session: str) -> None:
    """Within 10 s, and the call is not lost: the equal call goes on with it as soon as there is a worker."""
    agent = place.agent(session)
    began = time.monotonic()
    told = agent.call("pay", PAY)
    seconds = time.monotonic() - began
    command = said(told).split("start one with `python worker.py ")[1].split("`")[0]
    file = Path(command.split("--tools ")[1].split()[0])
    with place.worker(file):
        result = agent.call("pay", PAY)

    assert seconds < 10
    assert f"No worker serves the queue {place.queue}" in said(told)
    assert told["structuredContent"]["applied"] == "unknown" and told["structuredContent"]["do"] == "wait"
    assert said(result).startswith("paid ann")
    assert place.paid == ["ann"]


def test_a_call_without_a_server_is_said_and_not_made(tmp_path: Path, session: str) -> None:
    place = Place(tmp_path, "127.0.0.1:9", preloaded.python(), ("--tasks",))
    try:
        agent = place.agent(session)
        told, book = agent.call("pay", PAY), agent.call("book")
    finally:
        place.close()

    assert told["structuredContent"] | {"code": "unreachable", "applied": "none"} == told["structuredContent"]
    assert "python worker.py --dev" in said(told)
    assert not book.get("isError"), "what only reads needs no task"
    assert place.paid == []


def test_a_task_is_started_once(place: TaskPlace, session: str) -> None:
    """By its key, and by an agent that comes back; another text is another task."""
    file = place.tools_file(TOOLS)
    task = {"task": "Greet Ann"}
    with place.worker(file):
        agent = place.of_tools(file, "--session", session)
        keyed = [agent.call("replan_start_task", task, key="1")["structuredContent"]["id"] for _ in range(2)]
        other = agent.call("replan_start_task", {"task": "Greet Bob"})["structuredContent"]["id"]
        agent.leave()
        back = place.of_tools(file, "--session", session)
        again = back.call("replan_start_task", {"task": "Greet Bob"})
        status = back.call("replan_task_status", {"id": other})["structuredContent"]

    assert keyed[0] == keyed[1] != other
    assert again["structuredContent"]["id"] == other and NOT_AGAIN in said(again)
    assert status["id"] == other


def test_what_a_session_paid_is_undone_once(place: TaskPlace, session: str) -> None:
    """By the undo of the tasks, which knows what was undone already."""
    file = place.tools_file(TOOLS)
    with place.worker(file):
        agent = place.of_tools(file, "--session", session)
        agent.call("pay", PAY)
        first, second = (agent.call("replan_undo")["structuredContent"]["undone"] for _ in range(2))

    assert place.paid == ["ann", "ann"], "it is undone by a payment here"
    assert [one["undone"] for one in first] == [True]
    assert second == []


def test_a_form_takes_what_a_task_takes() -> None:
    """The gateway without tasks does not import what says so, which takes time at each start."""
    assert (attending.MAX_NAME, attending.MAX_WORDS) == (requests.MAX_NAME, requests.MAX_WORDS)


def test_the_tools_of_the_workers_are_offered_where_none_are_named(place: TaskPlace, session: str) -> None:
    """They are there as soon as a worker is, and what only reads is a task, too."""
    file = place.tools_file(TOOLS)
    agent = Agent(place, "--session", session, "--list-wait", "0.2")
    agent.hello()
    early = agent.tools()
    with place.worker(file):
        until(lambda: "shop_pay" in agent.tools())
        result, book = agent.call("shop_pay", PAY), agent.call("shop_book")
        agent.leave()

    assert "shop_pay" not in early
    assert said(result).startswith("paid ann") and "ann" in said(book)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_kills_at_drawn_moments_leave_one_payment_each(place: TaskPlace, session: str) -> None:
    """Of the agent, the holder or the worker: the agent calls again until it has an answer."""
    file = place.tools_file(
        '[servers.shop.tools.pay]\neffect = "unkeyed"\nsettle = 0.5\ntimeout = 5\n'
        'reconcile = { kind = "shop.book", applied_if = "args.who in result.text" }\n'
    )
    drawn, names = random.Random(7), [f"w{number}." for number in range(24)]  # noqa: S311
    worker = ExitStack()
    process = worker.enter_context(place.worker(file))
    agent = place.of_tools(file, "--session", session)
    for who in names:
        victim = drawn.choice(["agent", "holder", "worker", "all"])
        agent.begin("pay", {"who": who})
        time.sleep(drawn.uniform(0, 0.4))
        if victim in ("holder", "all"):
            place.kill_all()
        if victim in ("worker", "all"):
            process.kill()
            process = worker.enter_context(place.worker(file))
        agent.kill()
        agent = place.of_tools(file, "--session", session)
        result = agent.call("pay", {"who": who})
        while result.get("isError"):
            assert result["structuredContent"]["do"] == "wait", result
            time.sleep(1)
            result = agent.call("pay", {"who": who})
    agent.leave()
    worker.close()

    assert Counter(place.paid) == dict.fromkeys(names, 1)
