"""`export` and `replay`: histories that replay, redacted ones too, which give nothing away; events of pure steps."""

import asyncio
import base64
import gc
import gzip
import json
import os
import shutil
import weakref
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from temporalio.client import Client, WorkflowHistory

from activities.boundary.boundary import MAX_LOCAL_RESULT
from client.explain import explanation, page
from client.history import fetch
from client.history.records import CallEnd
from client.people import open_requests
from client.problem import Problem
from client.replay import replayed, saved
from client.tasks import Handle
from console.commands.export import export
from console.commands.reset import reset
from console.commands.show import print_result
from console.exits import OF_PROBLEM
from console.files import require_writable
from console.options import Common
from replan import Busy, NeedsPerson, Refused, Tool, tool
from tests.console.desk import QUIET
from tests.console.replaying import HISTORIES, replay
from tests.gate import sampled
from tests.harness import DONE, Proposals, outcome, plan, staged, step
from tests.processes import Processes
from tests.workflows.props import Said, Word, echo
from tests.workflows.test_agent_pure import Number, chain, double, lengthen, refuse
from workflows.account.records import StepStatus
from workflows.account.task import Task
from workflows.agent import AgentWorkflow
from workflows.plans.proposal import Answer

SECRETS = (
    "kestrel", "4711.25", "47110815", "plover@example.com", "dunlin", "whimbrel", "godwit", "curlew", "sandpiper",
    "turnstone", "phalarope", "lapwing", "avocet", "sanderling", "ruff and reeve",
)  # fmt: skip
"""Words and numbers that a task is given, sees, does and says; no word of ours contains one."""


class Order(BaseModel):
    """An argument with all kinds of values."""

    bird: str = ""
    price: float = 0
    number: int = 0
    by_mail: dict[str, list[str]] = {}


def tools() -> list[Tool[..., Any]]:
    """One that refuses, one that is busy at first, one that answers."""
    tried = list[str]()

    @tool.read
    async def look(args: Order) -> Order:
        """Look."""
        return Order(bird="turnstone", by_mail={"plover@example.com": ["phalarope"]})

    @tool.idempotent(observe=look)
    async def buy(args: Order) -> Order:
        """Buy what is there."""
        if args.bird == "dunlin":
            raise Refused("The dunlin is sold, lapwing.", observed={"left": ["godwit"], "price": 4711.25})
        tried.append(args.bird)
        if len(tried) == 1:
            raise Busy("Busy with the curlew.", retry_after=0.01)
        return args

    return [look, buy]


SCRIPT: Proposals = [
    plan(step("a", "buy", bird="dunlin", price=4711.25, number=47110815), because="The whimbrel said so."),
    plan(
        step("b", "buy", bird="godwit", price=4711.25, by_mail={"plover@example.com": ["avocet"]}),
        step("c", "look", bird={"$from": "b", "path": "bird"}, price={"$from": "b", "path": "price"}),
    ),
    Answer(result={"said": "sandpiper", "paid": 4711.25}),
]


@pytest.fixture(scope="module")
async def task(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Handle:
    """A task that ended, with secrets wherever a task can have some."""
    async with staged(client, tmp_path_factory.mktemp("task"), tools(), SCRIPT) as stage:
        handle = await client.start_workflow(
            AgentWorkflow.run,
            Task(text="buy the kestrel"),
            id=f"buy-the-kestrel-{stage.queue}",
            task_queue=stage.queue,
            memo={"task": "buy the kestrel", "note": "sanderling"},
            static_summary="buy the kestrel",
            static_details="ruff and reeve",
        )
        assert (await outcome(handle)).replans == 1
    return client.get_workflow_handle_for(AgentWorkflow.run, handle.id)


def words(value: Any) -> Iterator[str]:
    """All that a file says, also inside payloads."""
    match value:
        case {"metadata": {"encoding": _}, "data": str(data)}:
            yield base64.b64decode(data).decode()
        case dict():
            for key, item in value.items():
                yield key
                yield from words(item)
        case list():
            for item in value:
                yield from words(item)
        case _:
            yield str(value)


async def test_an_exported_task_replays(client: Client, task: Handle, tmp_path: Path) -> None:
    """As it is and redacted, the file as it was written, with the explanation in it. The redacted one gives nothing
    away, not in plain text, not in a payload, not in the explanation; equal values have equal placeholders, so that a
    reader sees what came from where."""
    whole, hidden = tmp_path / "whole.json", tmp_path / "hidden.json"
    await export(client, task, Common(), str(whole), redact=False)
    await export(client, task, Common(), str(hidden), redact=True)
    done, document = replay(whole, hidden), json.loads(hidden.read_text())
    here, there = ("\n".join(words(json.loads(file.read_text()))) for file in (whole, hidden))
    events = [event.get("activityTaskScheduledEventAttributes", {}) for event in document["events"]]
    sent = {given["activityId"]: given["input"]["payloads"][0]["data"] for given in events if "input" in given}
    a, b, c = (json.loads(base64.b64decode(sent[id])) for id in "abc")

    assert (done.returncode, done.stdout.count(": ok")) == (0, 2), done.stdout + done.stderr
    assert json.loads(whole.read_text())["explain"]
    assert [secret for secret in SECRETS if secret not in here] == []
    assert [secret for secret in SECRETS if secret in there] == []
    assert (a["price"], b["price"], b["bird"]) == (b["price"], c["price"], c["bird"])
    assert a["bird"] != b["bird"] and isinstance(a["number"], int) and a["number"] != a["price"]


async def test_no_file_is_overwritten(client: Client, task: Handle, tmp_path: Path) -> None:
    """It stays as it was; after it was removed, the new one is whole, and nothing else is left in the folder."""
    folder = tmp_path / "exports"
    folder.mkdir()
    file = folder / "task.json"
    file.write_text("precious")
    with pytest.raises(Problem, match="exists: name another, or remove it"):
        await export(client, task, Common(), str(file), redact=False)
    kept = file.read_text()
    file.unlink()
    await export(client, task, Common(), str(file), redact=False)

    assert (kept, json.loads(file.read_text())["task_id"]) == ("precious", task.id)
    assert [*folder.iterdir()] == [file]


@pytest.mark.parametrize(
    ("name", "replaces", "words"),
    [
        ("there.json", False, "exists: name another, or remove it"),
        (".", True, "is a folder or a device, no file"),
        ("/dev/null", True, "is a folder or a device, no file"),
        ("", True, "is a folder or a device, no file"),
        ("nowhere/x.json", False, "cannot be written (there is no folder"),
    ],
)
def test_a_file_that_cannot_be_written_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, replaces: bool, words: str
) -> None:
    """Before any server is asked."""
    monkeypatch.chdir(tmp_path)
    Path("there.json").touch()

    with pytest.raises(Problem) as wrong:
        require_writable(name, replaces=replaces)
    assert words in str(wrong.value) and OF_PROBLEM[wrong.value.kind] == 2


async def test_standard_output_holds_the_document_alone(
    client: Client, task: Handle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """So that it can be piped; what was written into a file is said, as a line or as a document."""
    capsys.readouterr()
    await export(client, task, Common(), "-", redact=True)
    piped = json.loads(capsys.readouterr().out)
    await export(client, task, Common(), str(tmp_path / "a.json"), redact=True)
    line = capsys.readouterr().out
    await export(client, task, Common(json=True), str(tmp_path / "b.json"), redact=False)
    document = json.loads(capsys.readouterr().out)

    assert (piped["schema"], piped["redacted"], piped["events"][0]["eventId"]) == (1, True, "1")
    assert line.startswith(f"{task.id}: ") and line.endswith(" events in " + str(tmp_path / "a.json") + ", redacted\n")
    assert (document["file"], document["redacted"]) == (str(tmp_path / "b.json"), False)


async def test_pure_steps_are_told_printed_and_exported_like_others(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is cited by its only event. A local and an ordinary activity of one call are one call: the first failed only
    because it was local, which is no news for a person. A result is printed whichever activity returned it. Redaction
    replaces results, and keeps the SDK's own records of the local activities."""
    large = MAX_LOCAL_RESULT + 1
    long = step("long", "lengthen", value=large)
    again = plan(step("b", "double", value=1), step("short", "lengthen", value=9), long)
    async with staged(
        client, tmp_path, [double, refuse, lengthen], [plan(step("a", "refuse", value=47110815)), again, DONE]
    ) as stage:
        handle = await stage.start()
        await outcome(handle)
        history = await fetch.fetch_history(client, handle, journal=True)
        printed = []
        for id in ("short", "long"):
            capsys.readouterr()
            await print_result(client, handle, Common(), id)
            printed.append(json.loads(capsys.readouterr().out)["text"])
    whole, hidden = tmp_path / "whole.json", tmp_path / "hidden.json"
    newest = client.get_workflow_handle_for(AgentWorkflow.run, handle.id)
    for file in (whole, hidden):
        await export(client, newest, Common(), str(file), redact=file is hidden)
    told, replays = page.page_lines(explanation.explain_task(history), None), replay(whole, hidden)

    refused, doubled = (history.of_step(id)[0].scheduled.id for id in "ab")
    assert next(line for line in told if line.startswith(" 1.  a (refuse) was rejected")).endswith(f"[event {refused}]")
    assert f"  +  b (double) finished at its first attempt and returned: value: 2.  [event {doubled}]" in told
    [call] = history.of_step("long")
    assert (call.closed, call.attempt) == (CallEnd.COMPLETED, 1)
    assert [item.steps for item in explanation.explain_task(history).items] == [("a",)]
    assert printed == ["a" * 9, "a" * large]
    assert (replays.returncode, replays.stdout.count(": ok")) == (0, 2), replays.stdout + replays.stderr
    assert base64.b64encode(b'{"result":{"text":"aaaaaaaaa"}}').decode() in whole.read_text()
    assert "aaaaaaaaa" not in "".join(words(json.loads(hidden.read_text())))


@pytest.mark.parametrize("to", sampled({to: [to] for to in ("s1", "s2", "s3")}, "s2"))
async def test_a_task_is_reset_to_a_pure_step(client: Client, tmp_path: Path, to: str) -> None:
    """The new run begins with the workflow task that ran the step, so pure steps before it may run again, too."""
    ran = list[int]()

    @tool.pure
    def double(args: Number) -> Number:
        """Double a number, and count the call."""
        ran.append(args.value)
        return Number(value=2 * args.value)

    async with staged(client, tmp_path, [double], chain("double", 3)) as stage:
        handle = await stage.start()
        await outcome(handle)
        newest = client.get_workflow_handle_for(AgentWorkflow.run, handle.id)
        code = await reset(client, newest, QUIET, to=to, why=None)
        done = await outcome(newest)

    assert (code, [one.status for one in done.steps]) == (0, [StepStatus.COMPLETED] * 3)
    assert ran == [1, 2, 4, 1, 2, 4]


@tool.read
async def locked(args: Word) -> Said:
    """Say nothing to anybody."""
    raise NeedsPerson("the key was revoked", code="unauthorized")


STRAIGHT = next(file for file in HISTORIES if file.stem == "straight")
DOCUMENT = json.loads(STRAIGHT.read_text(encoding="utf-8"))
EVENTS = DOCUMENT["events"]


def changed(folder: Path, old: str, new: str) -> str:
    """A saved history in which a word is another one."""
    (file := folder / "changed.json").write_text(STRAIGHT.read_text().replace(old, new))
    return str(file)


def test_a_history_that_differs_fails(commands: Processes, tmp_path: Path) -> None:
    """With what differs, what that means, and what to do."""
    file, running = changed(tmp_path, '"plan"', '"another"'), tmp_path / "running.json"
    events = json.loads(Path(file).read_text())["events"]
    running.write_text(json.dumps({"task_id": "book-a-slot", "events": events[:-1]}))
    done = commands.starter("replay", str(STRAIGHT), file, str(running))
    lines = done.stdout.splitlines()

    assert (done.returncode, done.stderr) == (1, "")
    assert lines[0] == f"{STRAIGHT}: ok, 33 events"
    assert lines[1].startswith(f"{file}: does not replay (ended): the worker's code decides otherwise")
    assert lines[1].endswith("scheduled event 'another' does not match activity type of activity command 'plan'")
    assert lines[2].startswith(f"{running}: does not replay (running): ")
    assert lines[3:] == [
        "2 of 3 histories do not replay with this version.",
        "1 of them still running: a worker of this version stops at the next step, and nothing is lost.",
        "1 of them ended: `undo` and `reset` need a version that replays them.",
        "nondeterminism: guard the change (workflow.patched), or let workers of the earlier version end these tasks.",
    ]


def test_an_encrypted_history_is_none_of_another_version(commands: Processes, tmp_path: Path) -> None:
    """Whoever has the codec replays it in a program."""
    plain, encrypted = (base64.b64encode(name).decode() for name in (b"json/plain", b"binary/encrypted"))
    done = commands.starter("replay", changed(tmp_path, plain, encrypted), "--json")
    document = json.loads(done.stdout)

    assert (done.returncode, document["replayed"], document["failed"]) == (1, 1, 1)
    assert document["histories"][0]["cause"] == "payload"
    assert document["histories"][0]["reason"] == "its values are encrypted by a codec that is not here"


WRONG = {
    "a.json --limit 3": "--limit is for --query",
    "pyproject.toml": "'pyproject.toml' holds no history",
    "tests/golden.json": "",
}


@pytest.mark.parametrize("words", sampled({words: [words] for words in WRONG}, "tests/golden.json"))
def test_what_cannot_be_replayed_is_bad_usage(commands: Processes, words: str) -> None:
    """It is no verdict on this version; of mistakes.toml only what it lacks."""
    done = commands.starter("replay", *words.split())

    assert (done.returncode, done.stdout, WRONG[words] in done.stderr) == (2, "", True)


STRANGE: dict[str, bytes] = {
    "surrogate": b'{"events":[{"eventId":"1","eventType":"\\ud800"}]}',
    "deep": b"[" * 10_000 + b"]" * 10_000,
    "cut gzip": gzip.compress(STRAIGHT.read_bytes())[:500],
    "empty": b"",
    "null": b"null",
    "not a number": b'{"events":[{"eventId":NaN}]}',
    "long number": b'{"events":[{"eventId":' + b"9" * 5000 + b"}]}",
    "no order": json.dumps({**DOCUMENT, "events": [EVENTS[0], *EVENTS[:1:-1]]}).encode(),
    "no ids": json.dumps({**DOCUMENT, "events": [{**event, "eventId": "0"} for event in EVENTS]}).encode(),
}
"""Files that hold no history; the SDK's core does not end for the last two."""


def test_a_strange_file_costs_itself(tmp_path: Path) -> None:
    """It is named, the others are replayed, and the exit code says that something is missing."""
    for name, content in STRANGE.items():
        (tmp_path / name).write_bytes(content)
    os.mkfifo(tmp_path / "pipe")
    names = [str(tmp_path / name) for name in (*STRANGE, "pipe")]
    commands = Processes("localhost:1", tmp_path)
    done = commands.starter("replay", *names, str(STRAIGHT))
    read = commands.starter("replay", "--json", *names, str(STRAIGHT))
    unread = json.loads(read.stdout)["unread"]

    assert (done.returncode, read.returncode) == (2, 2)
    assert [name for name in names if f"The file {name!r}" not in done.stdout] == []
    assert done.stdout.endswith("\n1 history replays with this version.\n10 files could not be read.\n")
    assert [row["file"] for row in unread] == names


async def test_a_history_that_has_just_begun_replays(tmp_path: Path) -> None:
    """A delayed start has one event, and nothing was decided; a file may have any name. The id of a workflow is in the
    ids of others that it starts, so its history is replayed under it."""
    for number in (1, 2, 3):
        begun = {**DOCUMENT, "events": EVENTS[:number]}
        (tmp_path / f"begun-{number}.json").write_text(json.dumps(begun))
    shutil.copy(STRAIGHT, tmp_path / "straight.json")
    files = [tmp_path / f"{name}.json" for name in ("begun-1", "straight", "begun-2", "begun-3")]
    async with asyncio.timeout(30):
        found = [one async for one in replayed(saved(files))]

    assert [(one.events, one.cause) for one in found] == [(1, None), (len(EVENTS), None), (2, None), (3, None)]
    assert found[1].task_id.startswith("test-")


async def test_the_histories_of_a_server_are_replayed(client: Client, commands: Processes, tmp_path: Path) -> None:
    """Of tasks that run and of those that ended, with a filter of Temporal."""
    waits = Task(text="wait", plan=(step("x", "locked", word="x"),), on_escalation="wait")
    async with staged(client, tmp_path, [echo, locked], [plan(step("a", "echo", word="x")), DONE]) as stage:
        await stage.run()
        handle = await stage.start(waits)
        query = f"TaskQueue = '{stage.queue}'"
        while not await open_requests(handle) or (await client.count_workflows(query)).count < 2:
            await asyncio.sleep(0.1)
        both, one, wrong, none = await asyncio.gather(
            *(
                asyncio.to_thread(commands.starter, "replay", "--query", *words)
                for words in ([query], [query, "--limit", "1"], ["Colour = 'red'"], ["WorkflowId = 'none'"])
            )
        )
        await handle.terminate()

    assert both.returncode == 0, both.stdout + both.stderr
    assert sorted(line.partition(": ok")[0] for line in both.stdout.splitlines()[:-1]) == sorted(stage.started)
    assert both.stdout.endswith("\n2 histories replay with this version.\n")
    assert one.stdout.endswith("\n1 history replays with this version.\n")
    assert (wrong.returncode, none.returncode) == (2, 0)
    assert "The server rejects this --query" in wrong.stderr
    assert none.stdout == "There is no history to replay.\n"


@pytest.mark.full
async def test_no_history_is_kept_in_memory() -> None:
    """Ten thousand of them take no more than two."""
    seen = list[weakref.ref[WorkflowHistory]]()

    async def read() -> AsyncIterator[WorkflowHistory]:
        async for history in saved(HISTORIES):
            seen.append(weakref.ref(history))
            yield history

    most = 0
    async for _ in replayed(read()):
        gc.collect()
        most = max(most, sum(one() is not None for one in seen))

    assert (len(seen), most <= 2) == (len(HISTORIES), True)


@pytest.mark.parametrize("name", ["continued", "beside_tasks/rollback", "straight"])
async def test_a_state_of_another_form_is_not_misread(tmp_path: Path, name: str) -> None:
    """The run of a long task that an unreleased version continued, and a rollback of what it did. A task that such a
    version began waits for a worker of that version, whatever its history says."""
    history = WorkflowHistory.from_json("older", (STRAIGHT.parent / f"{name}.json").read_text())
    markers = [event.marker_recorded_event_attributes.details.values() for event in history.events]
    payloads = [payload for details in markers for one in details for payload in one.payloads]
    if name != "straight":
        payloads = [*history.events[0].workflow_execution_started_event_attributes.input.payloads]
    assert any(b'"form":2,' in payload.data for payload in payloads)
    for payload in payloads:
        payload.data = payload.data.replace(b'"form":2,', b"")
    (file := tmp_path / "old.json").write_text(history.to_json())
    [old] = [one async for one in replayed(saved([file]))]

    begun = "This run was begun by another version of Replan (form 0, here 2): a worker of that version"
    assert old.is_stuck and (name != "straight" or begun in old.reason)
