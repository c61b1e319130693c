"""A person answers in a second terminal: `answer`, `extend`, and how a waiting task is shown."""

import asyncio
import json
import subprocess
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from runtime.dev_server import DevServer
from tests.console.desk import Desk, desk
from tests.console.terminal import Terminal, starter
from tests.gate import sampled
from tests.harness import plan, step
from tests.processes import ROOT, Processes
from tests.workflows.history import Handle, until
from workflows.account.task import Task
from workflows.limits.budget import Limits
from workflows.plans.proposal import Question

SIGN = plan(step("first", "look", word="a"), step("signed", "sign", "first", word="b"))


def waiting(text: str = "a task", **more: Any) -> Task:
    """A task that waits for people."""
    return Task(text=text, on_escalation="wait", **more)


STARTED = {
    "off a terminal": ((), "end", 3 * 86400),
    "to wait": (("--on-escalation", "wait", "--answer-within", "1h30m"), "wait", 5400),
}


@pytest.mark.parametrize(("words", "how", "seconds"), STARTED.values(), ids=STARTED)
async def test_a_task_waits_where_it_is_told_to(
    client: Client, console: "Console", words: tuple[str, ...], how: str, seconds: float
) -> None:
    """Where nobody can be asked, it ends instead of blocking for three days."""
    began = await console.document("start", "--task", "any", "--detach", "--queue", "nobody", *words)
    handle = client.get_workflow_handle(began["task_id"])
    begun = (await handle.fetch_history()).events[0]
    await handle.terminate()
    task = Task.model_validate_json(begun.workflow_execution_started_event_attributes.input.payloads[0].data)

    assert (task.on_escalation, task.answer_within) == (how, seconds)


class Console:
    """The commands of a person."""

    def __init__(self, processes: Processes) -> None:
        """Run them here."""
        self._processes = processes

    async def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command while the worker of the test goes on."""
        return await asyncio.to_thread(self._processes.starter, *words)

    async def document(self, *words: str) -> Any:
        """What a command prints with --json."""
        return json.loads((await self(*words, "--json")).stdout)


@pytest.fixture
def console(server: DevServer, tmp_path: Path) -> Console:
    """Commands for the shared server."""
    return Console(Processes(server.address, tmp_path))


async def asked(handle: Handle, number: int = 1) -> None:
    """Wait until a task has asked so often."""
    await until(handle, lambda now: len(now.requests) >= number)


@pytest.fixture
async def signing(client: Client, tmp_path: Path) -> AsyncIterator[tuple[Desk, Handle]]:
    """A task that waits because its key is missing."""
    async with desk(client, tmp_path, SIGN) as signed:
        handle = await signed.begin(waiting())
        await asked(handle)
        yield signed, handle


async def test_what_a_task_asks_is_shown_with_the_commands_that_answer(
    signing: tuple[Desk, Handle], console: Console
) -> None:
    """Each answer that it takes, ready to be typed; the exit code says that the command did its work."""
    _, handle = signing
    said = await console("answer", handle.id)
    document = await console.document("answer", handle.id)

    assert said.returncode == 0
    assert "  ? r1 signed: The key is missing. (until " in said.stdout
    for given in (
        "retry",
        "replan [--hint TEXT]",
        "provide --result JSON",
        "skip [--reason TEXT]",
        "abort [--reason TEXT] [--undo]",
    ):
        assert f"    python starter.py answer {handle.id} {given}\n" in said.stdout
    assert [(one["id"], one["step"], one["kind"]) for one in document["requests"]] == [("r1", "signed", "fault")]


async def test_an_answer_lets_the_task_go_on(signing: tuple[Desk, Handle], console: Console) -> None:
    """The outcome keeps who gave it; the same answer again says that it was given."""
    _, handle = signing
    done = await console("answer", handle.id, "retry", "--by", "ann", "--request", "r1")
    await handle.result()
    shown = await console.document("show", handle.id)
    late = await console("answer", handle.id, "retry")

    assert (done.returncode, done.stderr) == (0, "")
    assert f"{handle.id} took the answer: r1: retry. Follow: python starter.py show " in done.stdout
    assert [(one["answer"]["choice"], one["answer"]["by"]) for one in shown["requests"]] == [("retry", "ann")]
    assert (late.returncode, late.stderr.split(":")[0]) == (1, f"Task '{handle.id}' has ended, and takes no answer")


async def test_an_answer_that_is_not_accepted_says_why(signing: tuple[Desk, Handle], console: Console) -> None:
    """With exit code 1; the task goes on waiting."""
    _, handle = signing
    wrong = await console("answer", handle.id, "reply", "--text", "yes")
    other = await console.document("answer", handle.id, "retry", "--request", "r9")

    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert wrong.stderr == (
        "The request r1 (fault) takes retry, replan, provide, skip, abort, and not reply: "
        f"`python starter.py answer {handle.id}` shows what it asks now.\n"
    )
    assert other["error"]["code"] == "not_accepted"
    assert other["error"]["reason"] == "There is no request 'r9'; open are r1 (signed: needs_person)."


WRONG = {
    "no such answer": (("answer", "x", "rety"), "There is no answer 'rety': did you mean retry"),
    "another's option": (("answer", "x", "retry", "--hint", "y"), "--hint goes with replan, and not with retry"),
    "an option without an answer": (("answer", "x", "--hint", "y"), "--hint goes with an answer"),
    "no text": (("answer", "x", "reply"), "reply needs --text"),
    "no result": (("answer", "x", "provide"), "provide needs --result"),
    "no JSON": (("answer", "x", "provide", "--result", "{"), "--result is not JSON ("),
    "too long": (("answer", "x", "replan", "--hint", "y" * 5000), "--hint "),
    "nothing more": (("extend", "x"), "extend needs to know what to give"),
    "no time": (("start", "--task", "x", "--answer-within", "soon"), "--answer-within 'soon' is no duration"),
    "no time at all": (("start", "--task", "x", "--answer-within", "0"), "--answer-within must be"),
    "no end": (
        ("start", "--task", "x", "--answer-within", "99999999d"),
        "A request cannot be open for 8.64e+12 s: the most are 3155760000 s, a hundred years: give a shorter time",
    ),
    "less": (("extend", "x", "--tool-calls", "-1"), "--tool-calls "),
}


@pytest.mark.parametrize(("words", "says"), sampled(WRONG, "no such answer", "no JSON", "no end", "less"))
async def test_a_mistake_is_found_before_a_server_is_asked(console: Console, words: tuple[str, ...], says: str) -> None:
    """Bad usage, with exit code 2."""
    wrong = await console(*words, "--address", "127.0.0.1:1")

    assert wrong.returncode == 2
    assert wrong.stderr.startswith(says)


@pytest.mark.full
async def test_without_a_worker_the_answer_waits(client: Client, console: Console, tmp_path: Path) -> None:
    """After some seconds the command says so; a worker that starts then takes the answer."""
    queue = f"queue-{uuid.uuid4().hex[:8]}"
    async with desk(client, tmp_path, SIGN, queue=queue) as signed:
        handle = await signed.begin(waiting())
        await asked(handle)
    untaken = await console("answer", handle.id, "retry", "--by", "ann")
    shown = await console.document("answer", handle.id)
    async with desk(client, tmp_path, SIGN, queue=queue, calls=signed.calls):
        ended = await handle.result()

    assert untaken.returncode == 6
    assert untaken.stderr.startswith(f"No worker has taken the answer to task '{handle.id}' yet, and one that starts")
    assert [one["id"] for one in shown["requests"]] == ["r1"]
    assert [one.answer.by for one in ended.requests if one.answer] == ["ann"]


async def test_a_question_and_a_budget(client: Client, console: Console, tmp_path: Path) -> None:
    """A reply in words, and more of a limit; both are kept with the name of the user."""
    question = Question(text="Which slot?", options=("14:30", "15:00"))
    taken = plan(step("written", "write", word="taken"))
    async with desk(client, tmp_path, question, taken) as asking:
        handle = await asking.begin(waiting(limits=Limits(replans=0)))
        await asked(handle)
        first = await console("answer", handle.id)
        replied = await console.document("answer", handle.id, "reply", "--text", "15:00")
        await asked(handle, 2)
        second = await console("answer", handle.id)
        extended = await console("extend", handle.id, "--replans", "+2")
        ended = await handle.result()

    assert "  ? r1 The planner asks: Which slot? Options: 14:30, 15:00. (until " in first.stdout
    assert f"    python starter.py answer {handle.id} reply --text 14:30\n" in first.stdout
    assert (replied["answer"], replied["said"], bool(replied["by"])) == ("reply", "r1: reply", True)
    assert f"    python starter.py extend {handle.id} --replans +1\n" in second.stdout
    assert "took the answer: replans 2." in extended.stdout
    assert [one.extended for one in ended.extensions] == [{"replans": 2}]


async def test_the_same_answer_again_is_the_same_update(signing: tuple[Desk, Handle], console: Console) -> None:
    """A program that repeats its command after a broken connection is told what became of it, and changes nothing."""
    desk, handle = signing
    words = ("answer", handle.id, "provide", "--result", '{"word": "b"}', "--request", "r1", "--by", "ann")
    slow = await asyncio.gather(*(console(*words) for _ in range(3)))
    ended = await handle.result()

    accepted = [
        event
        async for event in handle.fetch_history_events()
        if event.HasField("workflow_execution_update_accepted_event_attributes")
    ]
    assert (len(accepted), len(ended.requests), desk.calls["sign b"]) == (1, 1, 1)
    assert all(one.returncode == 0 or "has ended" in one.stderr for one in slow)


async def test_waiting_tasks_are_listed_the_longest_wait_first(
    client: Client, console: Console, tmp_path: Path
) -> None:
    """With what they ask and the command that answers, although others are listed with the newest first."""
    async with desk(client, tmp_path, SIGN) as signed:
        handles = list[Handle]()
        for _ in range(2):
            handles.append(await signed.begin(waiting()))
            await asked(handles[-1])
            signed.calls.clear()  # the key is missing at the first call only
        query = f"TaskQueue = '{(await handles[0].describe()).task_queue}'"
        async with asyncio.timeout(60):
            while len((await console.document("list", "--status", "waiting", "--query", query))["tasks"]) < 2:
                await asyncio.sleep(0.1)
        listed = await console.document("list", "--status", "waiting", "--query", query)
        said = await console("list", "--status", "waiting", "--query", query)
        for handle in handles:
            await handle.cancel()

    assert [one["task_id"] for one in listed["tasks"]] == [handle.id for handle in handles]
    assert (listed["tasks"][0]["reason"], listed["tasks"][0]["request"]["step"]) == ("The key is missing.", "signed")
    assert f"s, `python starter.py answer {listed['tasks'][0]['task_id']}`: signed: The key is missing." in said.stdout


async def test_without_a_terminal_following_ends(signing: tuple[Desk, Handle], console: Console) -> None:
    """Exit code 3, with the request and the command; the task goes on waiting. As events, each once."""
    _, handle = signing
    lines = await console("show", handle.id, "--follow")
    events = [
        json.loads(line) for line in (await console("show", handle.id, "--follow", "--jsonl")).stdout.splitlines()
    ]
    shown = await console("show", handle.id)

    assert (lines.returncode, shown.returncode) == (3, 3)
    for said in (lines.stdout, shown.stdout):
        assert "? r1 signed: The key is missing." in said
        assert f"    Answer: python starter.py answer {handle.id} retry   (or replan, provide, skip, abort)" in said
    assert [one["id"] for one in events if one["event"] == "request"] == ["r1"]
    assert (events[-1]["event"], events[-1]["document"]["status"]) == ("end", "waiting")


@pytest.mark.full
async def test_where_nobody_can_type_it_is_followed_until_somebody_answers(
    signing: tuple[Desk, Handle], console: Console, server: DevServer
) -> None:
    """The request stands below the tree, with the command for a second terminal."""
    _, handle = signing
    environment = {"TEMPORAL_ADDRESS": server.address}
    without_keys = ["sh", "-c", '"$@" </dev/null', "sh", *starter(ROOT, "show", handle.id, "--follow")]
    with Terminal(without_keys, environment, ROOT) as terminal:
        await terminal.until("r1 signed: The key is missing.")
        await terminal.until("Answer: python starter.py answer ")
        await console("answer", handle.id, "retry", "--by", "ann")
        code = await terminal.ended()

    assert code == 0
    assert any("ann answered retry" in row for row in terminal.shown.text)
