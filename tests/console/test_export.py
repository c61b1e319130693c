"""`export`: a history that replays, and a redacted one that replays as well and gives nothing away."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from temporalio.client import Client

from client.problem import Problem
from client.tasks import Handle
from console.commands.export import export
from console.exits import OF_PROBLEM
from console.files import require_writable
from console.options import Common
from replan import Busy, Refused, Tool, tool
from tests.console.replaying import replay
from tests.harness import Proposals, outcome, plan, staged, step
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
    """As it is and redacted, the file as it was written, with the explanation in it.

    The redacted one gives nothing away, not in plain text, not in a payload, not in the explanation; equal values have
    equal placeholders, so that a reader sees what came from where.
    """
    whole, hidden = tmp_path / "whole.json", tmp_path / "hidden.json"
    await export(client, task, Common(), str(whole), redact=False, force=False)
    await export(client, task, Common(), str(hidden), redact=True, force=False)
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


async def test_a_file_is_overwritten_only_on_purpose(client: Client, task: Handle, tmp_path: Path) -> None:
    """Without --force it stays as it was; with it, it is replaced whole, and nothing else is left in the folder."""
    folder = tmp_path / "exports"
    folder.mkdir()
    file = folder / "task.json"
    file.write_text("precious")
    with pytest.raises(Problem, match="exists: add --force to overwrite it"):
        await export(client, task, Common(), str(file), redact=False, force=False)
    kept = file.read_text()
    await export(client, task, Common(), str(file), redact=False, force=True)

    assert (kept, json.loads(file.read_text())["task_id"]) == ("precious", task.id)
    assert [*folder.iterdir()] == [file]


@pytest.mark.parametrize(
    ("name", "force", "words"),
    [
        ("there.json", False, "exists: add --force to overwrite it, or name another"),
        (".", True, "is a folder or a device, no file"),
        ("/dev/null", True, "is a folder or a device, no file"),
        ("", True, "is a folder or a device, no file"),
        ("nowhere/x.json", False, "cannot be written (there is no folder"),
    ],
)
def test_a_file_that_cannot_be_written_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, force: bool, words: str
) -> None:
    """Before any server is asked."""
    monkeypatch.chdir(tmp_path)
    Path("there.json").touch()

    with pytest.raises(Problem) as wrong:
        require_writable(name, force=force)
    assert words in str(wrong.value) and OF_PROBLEM[wrong.value.kind] == 2


async def test_standard_output_holds_the_document_alone(
    client: Client, task: Handle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """So that it can be piped; what was written into a file is said, as a line or as a document."""
    capsys.readouterr()
    await export(client, task, Common(), "-", redact=True, force=False)
    piped = json.loads(capsys.readouterr().out)
    await export(client, task, Common(), str(tmp_path / "a.json"), redact=True, force=False)
    line = capsys.readouterr().out
    await export(client, task, Common(json=True), str(tmp_path / "b.json"), redact=False, force=False)
    document = json.loads(capsys.readouterr().out)

    assert (piped["schema"], piped["redacted"], piped["events"][0]["eventId"]) == (1, True, "1")
    assert line.startswith(f"{task.id}: ") and line.endswith(" events in " + str(tmp_path / "a.json") + ", redacted\n")
    assert (document["file"], document["redacted"]) == (str(tmp_path / "b.json"), False)
