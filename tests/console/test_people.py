"""A person answers and approves in a second terminal: how a waiting task is shown, and what is told and kept of it."""

import asyncio
import json
import re
import subprocess
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHistory, WorkflowUpdateFailedError

from client.explain import explanation, page
from client.history.story import Story
from client.redaction import Redaction, Values
from client.text import printable
from client.wording import change_text
from console.render import requests
from runtime.dev_server import DevServer
from tests.activities.situations import NOW
from tests.console.desk import Desk, desk
from tests.console.histories import history
from tests.console.replaying import replay
from tests.console.terminal import Terminal, starter
from tests.gate import sampled
from tests.harness import outcome, plan, step
from tests.processes import ROOT, Processes
from tests.workflows.history import Handle, until
from workflows.account.records import StepRecord
from workflows.account.task import Task
from workflows.limits.budget import Limits
from workflows.people.card import Asker
from workflows.people.requests import Change, Choice, HumanAnswer, HumanRequest, ProposedCall, RequestKind
from workflows.plans.catalogue import Effect
from workflows.plans.proposal import Question, Step

SIGN = plan(step("first", "look", word="a"), step("signed", "sign", "first", word="b"))


def waiting(text: str = "a task", **more: Any) -> Task:
    """A task that waits for people."""
    return Task(text=text, on_escalation="wait", **more)


STARTED: dict[str, tuple[tuple[str, ...], str, float]] = {
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
    def __init__(self, processes: Processes) -> None:
        self._processes = processes

    async def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command while the worker of the test goes on."""
        return await asyncio.to_thread(self._processes.starter, *words)

    async def document(self, *words: str) -> Any:
        """What a command prints with --json."""
        return json.loads((await self(*words, "--json")).stdout)


@pytest.fixture
def console(server: DevServer, tmp_path: Path) -> Console:
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
    """Each answer that it takes, ready to be typed; one that is not accepted says why, and the task goes on waiting.
    Without a terminal following ends with exit code 3, as events each once. An answer lets the task go on; the outcome
    keeps who gave it."""
    id = signing[1].id
    said, document = await console("answer", id), await console.document("answer", id)
    wrong = await console("answer", id, "reply", "--text", "yes")
    other = await console.document("answer", id, "retry", "--request", "r9")
    lines, looked = await console("show", id, "--follow"), await console("show", id)
    events = [json.loads(line) for line in (await console("show", id, "--follow", "--jsonl")).stdout.splitlines()]
    done = await console("answer", id, "retry", "--by", "ann", "--request", "r1")
    await signing[1].result()
    shown, late = await console.document("show", id), await console("answer", id, "retry")

    assert (said.returncode, "  ? r1 signed: The key is missing. (until " in said.stdout) == (0, True)
    for given in ("retry", "replan [--hint TEXT]", "provide --result JSON", "skip [--reason TEXT]"):
        assert f"    python starter.py answer {id} {given}\n" in said.stdout
    assert f"    python starter.py answer {id} abort [--reason TEXT] [--undo]\n" in said.stdout
    assert [(one["id"], one["step"], one["kind"]) for one in document["requests"]] == [("r1", "signed", "fault")]
    takes = "The request r1 (fault) takes retry, replan, provide, skip, abort, and not reply"
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert wrong.stderr == f"{takes}: `python starter.py answer {id}` shows what it asks now.\n"
    assert other["error"]["code"] == "not_accepted"
    assert other["error"]["reason"] == "There is no request 'r9'; open are r1 (signed: needs_person)."
    assert (lines.returncode, looked.returncode) == (3, 3)
    for screen in (lines.stdout, looked.stdout):
        assert "? r1 signed: The key is missing." in screen
        assert f"    Answer: python starter.py answer {id} retry   (or replan, provide, skip, abort)" in screen
    assert [one["id"] for one in events if one["event"] == "request"] == ["r1"]
    assert (events[-1]["event"], events[-1]["document"]["status"]) == ("end", "waiting")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{id} took the answer: r1: retry. Follow: python starter.py show " in done.stdout
    assert [(one["answer"]["choice"], one["answer"]["by"]) for one in shown["requests"]] == [("retry", "ann")]
    assert (late.returncode, late.stderr.split(":")[0]) == (1, f"Task '{id}' has ended, and takes no answer")


TOO_LONG = "A request cannot be open for 8.64e+12 s: the most are 3155760000 s, a hundred years: give a shorter time"
WITHIN = "start --task x --answer-within"
WRONG = {
    "another's option": ("answer x retry --hint y", "--hint goes with replan, and not with retry"),
    "an option without an answer": ("answer x --hint y", "--hint goes with an answer"),
    "no result": ("answer x provide", "provide needs --result"),
    "no JSON": ("answer x provide --result {", "--result is not JSON ("),
    "too long": (f"answer x replan --hint {'y' * 5000}", "--hint "),
    "no time": (f"{WITHIN} soon", "--answer-within 'soon' is no duration"),
    "no time at all": (f"{WITHIN} 0", "--answer-within must be"),
    "no end": (f"{WITHIN} 99999999d", TOO_LONG),
}


@pytest.mark.parametrize(("words", "says"), sampled(WRONG, "no JSON", "no end"))
async def test_a_mistake_is_found_before_a_server_is_asked(console: Console, words: str, says: str) -> None:
    wrong = await console(*words.split(), "--address", "127.0.0.1:1")

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


WRITE = plan(step("first", "look", word="a"), step("noted", "write", "first", word="dunlin"))
AGAIN = plan(step("second", "write", word="ruff"))


@pytest.fixture
async def writing(client: Client, tmp_path: Path) -> AsyncIterator[tuple[Desk, Handle]]:
    """A task that waits until somebody approves what it wants to write."""
    async with desk(client, tmp_path, WRITE) as writer:
        yield writer, await asking(writer)


async def asking(writer: Desk) -> Handle:
    handle = await writer.begin(Task(text="a task", on_escalation="wait", approve="effects"))
    await until(handle, lambda now: bool(now.requests))
    return handle


async def test_a_call_is_shown_and_approved(writing: tuple[Desk, Handle], console: Console) -> None:
    """With each argument, and with what is approved when it is approved; what cannot be answered changes nothing."""
    (desk, handle), id = writing, writing[1].id
    asked, document = await console("answer", id), await console.document("answer", id)
    listed = await console("list", "--status", "waiting")
    for words, code, says in REFUSED:
        said = await console("answer", id, *words.split())
        assert (said.returncode, says in said.stderr) == (code, True), said.stderr
    progress = await handle.query("progress", result_type=dict)
    done = await console("answer", id, "approve", "--by", "ann")
    await until(handle, lambda now: len(now.requests) == 1 and not now.open_requests)

    call = (
        "    Call: write word dunlin\n    The tool: Change the world.\n      word: dunlin   (chosen by the planner)\n"
    )
    call += "    Why: write needs approval: the task asks before each call that changes something.\n"
    ends = "    Undo: it cannot be undone\n    If nobody answers: the task ends without this call as escalated"
    edits = f"    python starter.py answer {id} edit --args JSON\n"
    for words in ("? r1 noted: may this call be made?", ends, call, edits):
        assert words in asked.stdout
    assert document["requests"][0]["call"]["args"] == {"word": "dunlin"}
    assert "noted: write needs approval" in listed.stdout
    assert "dunlin" not in listed.stdout, "a list shows no arguments"
    assert [one["answer"] for one in progress["requests"]] == [None]
    assert done.returncode == 0, done.stderr
    assert call in done.stdout and f"{id} took the answer: r1: approve." in done.stdout
    await desk.called("write dunlin")


REFUSED = (
    ("edit", 2, "edit needs --args"),
    ("edit --args [1]", 2, "--args"),
    ("approve --reason x", 2, "--reason goes with reject, skip or abort"),
    ("approve --request r7", 1, "No such call waits for an approval"),
    ("retry", 1, "takes approve, reject, edit, abort, and not retry"),
)


async def test_what_was_edited_is_told(writing: tuple[Desk, Handle], console: Console) -> None:
    """By show and by explain, with who and what."""
    desk, handle = writing
    wrong = await console("answer", handle.id, "edit", "--args", '{"word": 7}')
    done = await console("answer", handle.id, "edit", "--args", '{"word": "knot"}', "--by", "ann")
    assert (wrong.returncode, done.returncode) == (1, 0), wrong.stderr + done.stderr
    ended = await outcome(handle)
    shown = await console.document("show", handle.id)
    explained = await console("explain", handle.id)

    assert (wrong.returncode, done.returncode) == (1, 0), done.stderr
    assert "The arguments were not accepted: The arguments do not fit write: 'word'" in wrong.stderr
    assert (desk.calls["write knot"], desk.calls["write dunlin"], ended.status) == (1, 0, "completed")
    assert shown["requests"][1]["answer"]["edited"] == {"word": {"was": "dunlin", "now": "knot"}}
    assert shown["steps"][1]["args"] == {"word": "knot"}
    assert "noted (write) was not called at first: write needs approval: the task asks before each call" in (
        explained.stdout
    )
    assert "and ann answered edit after" in explained.stdout
    assert ": word dunlin -> knot." in explained.stdout
    assert "This call with these arguments was made, and succeeded." in explained.stdout


async def test_a_rejection_is_told(client: Client, tmp_path: Path, console: Console) -> None:
    """Who, when, with which reason, and the plan that followed; its new call is asked about, too."""
    async with desk(client, tmp_path, WRITE, AGAIN) as writer:
        handle = await asking(writer)
        done = await console("answer", handle.id, "reject", "--reason", "Not that bird.", "--by", "bob")
        await until(handle, lambda now: len(now.requests) == 2)
        await console("answer", handle.id, "approve", "--request", "r2")
        ended = await outcome(handle)
        explained = await console("explain", handle.id)
        shown = await console("show", handle.id)

    assert done.returncode == 0, done.stderr
    assert (writer.calls["write dunlin"], writer.calls["write ruff"], ended.replans) == (0, 1, 1)
    assert re.search(
        r"bob answered reject after [\d.]+ s, at \d{4}-\d\d-\d\d [\d:]+Z: \"Not that bird\"\.", explained.stdout
    )
    assert "noted was not called: A person rejected the call of write: Not that bird." in explained.stdout
    assert "A person rejected the call, so it was not made." in explained.stdout
    assert "The planner was asked for a new plan: plan 2 has second in its place" in explained.stdout
    assert "a person rejected the call -> a new plan, no retry" in shown.stdout


def test_no_two_calls_to_approve_look_alike() -> None:
    """What a terminal would hide or obey is an escape, in the call and in what was edited."""
    alike = ["ann", "an\u200dn", "ann\u202e", "ann\u3164", "ann\u00a0", "ann\x1b[8m", "\u0645\u06cc\u062e"]
    alike.append("\u0645\u06cc\u200c\u062e")
    about: dict[str, Any] = {"id": "r1", "kind": RequestKind.APPROVAL, "code": "x", "reason": "y", "since": NOW}
    lines = []
    for one in alike:
        call = ProposedCall(kind="send", effect="unkeyed", args={f"to{one}": one}, code="3f9c")
        request = HumanRequest(choices=(Choice.APPROVE,), call=call, until=NOW, **about)
        lines.append(requests.call_lines(request, Asker("t", "a task"))[2])
    edits = [change_text({"to": Change(was="bob", now=one)}) for one in alike]

    assert len(set(lines)) == len(set(edits)) == len(alike)
    assert [line for line in [*lines, *edits] if printable(line) != line] == []


SIGNED = plan(step("signed", "sign", word="dunlin"))
QUESTION = Question(text="kestrel?", options=("wren", "lark"))
TAKEN = plan(step("written", "write", word="taken"))


@pytest.fixture(scope="module")
async def much(client: Client, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[list[HistoryEvent]]:
    """A task that asked four times: a question, a fault whose first result is refused, and a budget.

    Somebody extended it before, which nobody had asked for.
    """

    async def answered(number: int, choice: str, **given: Any) -> None:
        await asked(handle, number)
        await handle.execute_update(choice, {**given, "request": f"r{number}"}, result_type=str)

    async with desk(client, tmp_path_factory.mktemp("much"), QUESTION, SIGNED, TAKEN) as busy:
        handle = await busy.begin(Task(text="magpie", on_escalation="wait", limits=Limits(replans=0)))
        await asked(handle)
        await handle.execute_update("extend", {"tool_calls": 2, "by": "dora"}, result_type=str)
        await answered(1, "reply", text="wren", by="ann")
        with pytest.raises(WorkflowUpdateFailedError):
            await answered(2, "provide", result={"word": 7}, by="bob")
        await answered(3, "retry", by="cleo")
        await answered(4, "extend", replans=1)
        await handle.result()
        yield list((await handle.fetch_history()).events)


async def told(events: list[HistoryEvent]) -> str:
    return "\n".join(page.page_lines(explanation.explain_task(await history(events)), None))


async def test_who_answered_what_and_after_how_long(much: list[HistoryEvent]) -> None:
    """With the events that prove it, whether the task has ended or not; what was asked twice is one item."""
    whole, running = await told(much), await told(much[:-1])
    items = explanation.explain_task(await history(much)).items

    assert [item.decision for item in items] == ["ask"] * 2 + ["replan", "ask"]
    for said in (
        "The planner asked: kestrel?",
        "dora extended the budget: 2 tool calls more.",
        "A person was asked (r1), and ann answered reply after ",
        ': "wren".',
        "A person was asked (r2), and bob answered provide after ",
        "A person was asked (r3), and cleo answered retry after ",
        "The same call was made again, and succeeded.",
        "A person was asked for more of a budget (replans).",
        "A person was asked (r4), and somebody answered extend after ",
        ": 1 replans more.",
    ):
        assert said in whole and said in running, said
    assert "The result was not accepted: " in whole


async def test_a_task_that_waits_says_for_what(much: list[HistoryEvent]) -> None:
    """Cut where the first request was opened; the command that answers is named."""
    opened = next(event for event in much if event.HasField("timer_started_event_attributes"))
    said = await told([event for event in much if event.event_id <= opened.event_id])

    assert "A person was asked (r1), and has not answered yet." in said
    assert "Now  The task waits for a person (r1: question) since " in said
    assert ": `python starter.py answer the-task` shows the answers." in said


async def test_redacted_it_replays_without_words_and_names(much: list[HistoryEvent], tmp_path: Path) -> None:
    """What decides stays: the requests and the answers."""
    events = Redaction().events(much)
    file = tmp_path / "redacted.json"
    file.write_text(json.dumps(WorkflowHistory("x", events).to_json_dict()))
    said = "".join(str(event) for event in events)
    story = Story(await history(events))

    assert replay(file).returncode == 0, replay(file).stdout
    assert [
        word for word in ("kestrel", "wren", "lark", "ann", "bob", "cleo", "dora", "dunlin") if f'"{word}' in said
    ] == []
    assert [one.choice.value for one in story.history.answers] == ["extend", "reply", "provide", "retry", "extend"]
    assert story.history.outcome is not None
    assert [one.id for one in story.history.outcome.requests] == ["r1", "r2", "r3", "r4"]


def test_redacted_an_edit_has_none_of_its_values() -> None:
    """Neither numbers nor texts, as it is answered and as the step keeps it; the names are those of its arguments."""
    edit: dict[str, Any] = {"amount": 450, "note": "kestrel", "to": {"city": "wren", "zip": 1234}}
    changed = {name: Change(was=8_765, now=value) for name, value in edit.items()}
    answer = HumanAnswer(choice=Choice.EDIT, at=NOW, edited=changed)
    record = StepRecord(step=Step(id="a", kind="k"), revision=1, effect=Effect.KEYED, kind="k", edited=edit)
    values = Values()
    told = [
        values.of(answer.model_dump(mode="json"), (HumanAnswer,)),
        values.of(record.model_dump(mode="json"), (StepRecord,)),
    ]

    assert [word for word in ("450", "8765", "1234", "kestrel", "wren") if word in json.dumps(told)] == []
    assert HumanAnswer.model_validate(told[0]).edited.keys() == StepRecord.model_validate(told[1]).edited.keys()
