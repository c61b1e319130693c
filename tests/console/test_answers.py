"""Who must approve and who has, on each screen, and the record of answers that an auditor gets."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHistory

from client import people
from client.client import TaskHandle
from client.explain import explanation, page
from client.history.decoder import payloads_of
from client.history.fetch import fetch_history
from client.redaction import Redaction
from client.wording import person_text
from console.render import requests
from replan.events import PersonAnswered, PersonEndorsed, TaskEvent
from runtime.dev_server import DevServer
from runtime.people_file import KnownPeople, Person
from tests.console.replaying import replay
from tests.console.terminal import Terminal, starter
from tests.console.test_prompt import shows
from tests.harness import outcome, staged
from tests.processes import ROOT, Processes
from tests.receiving import receiver
from tests.workflows.history import Handle
from tests.workflows.test_agent_people import asked
from tests.workflows.test_approvers import Office, approve, paying, refunding, started
from workflows.account.progress import Progress
from workflows.people.requests import Choice, HumanAnswer
from workflows.people.statement import Statement
from workflows.web_ui import details

RULE = {"by": ["role:finance", "person:dora"], "count": 2, "not_starter": True}
NEEDS = "2 people with the role finance or dora, none of whom started the task."


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office.of(tmp_path)


@dataclass
class Refunded:
    """A task for which ann and cleo have approved a refund, and what was seen of it on the way."""

    office: Office
    handle: Handle
    queue: str
    processes: Processes
    between: dict[str, Any] = field(default_factory=dict)
    """What screens showed after the approval of ann."""
    events: list[TaskEvent] = field(default_factory=list)
    posted: list[Any] = field(default_factory=list)

    def run(self, *words: str) -> tuple[int, str]:
        done = self.processes.starter(*words)
        return done.returncode, done.stdout + done.stderr

    async def exported(self, *options: str) -> Path:
        """The history of the task in a new file."""
        file = self.office.path.parent / f"{len(list(self.office.path.parent.iterdir()))}.json"
        code, said = await asyncio.to_thread(self.run, "export", self.handle.id, str(file), *options)
        assert code == 0, said
        return file

    async def answers(self, *words: str) -> tuple[int, Any]:
        """The exit code and the document of `answers` with these words, with the people file."""
        options = ("--people", str(self.office.path), "--json")
        code, said = await asyncio.to_thread(self.run, "answers", *words, *options)
        return code, json.loads(said)


@asynccontextmanager
async def refunded(client: Client, server: DevServer, office: Office) -> AsyncIterator[Refunded]:
    """Bob starts the task; ann and cleo approve, the one after the other."""
    tools, known = refunding(**RULE), KnownPeople(office.path)
    processes = Processes(server.address, office.path.parent)
    async with (
        receiver() as mailbox,
        staged(client, office.path.parent, tools, paying(900), people=known, notify=mailbox.url) as stage,
    ):
        handle = await started(stage, office, "bob")
        seen = Refunded(office, handle, stage.queue, processes)

        async def follow() -> None:
            async for event in TaskHandle(client, handle.id).follow():
                seen.events.append(event)

        following = asyncio.create_task(follow())
        request = await asked(handle)
        await approve(office, handle, request, "ann")
        progress: Progress = await handle.query("progress", result_type=Progress)
        description = await handle.describe()
        memo = await people.oldest_request(description)
        seen.between = {
            "card": "\n".join(requests.lines(progress.outcome(request.since))),
            "details": details(progress).replace("\\", ""),
            "memo": memo.model_dump(mode="json") if memo else {},
            "explain": await explained(client, handle),
        }
        await approve(office, handle, request, "cleo")
        await outcome(handle)
        await following
        await mailbox.has(2)
        seen.posted = mailbox.posted
        yield seen


async def explained(client: Client, handle: Handle) -> str:
    told = explanation.explain_task(await fetch_history(client, handle, journal=True))
    return " ".join(" ".join(page.page_lines(told, 10_000)).split())


async def test_each_screen_says_who_must_approve_and_who_has(client: Client, server: DevServer, office: Office) -> None:
    """In one sentence, which is the same on all of them; a follower sees each approval once."""
    async with refunded(client, server, office) as done:
        _, shown = await asyncio.to_thread(done.run, "show", done.handle.id)
        _, followed = await asyncio.to_thread(done.run, "show", done.handle.id, "--follow")
        after = await explained(client, done.handle)

    has = f"Needs: {NEEDS} ann approved at {datetime.now(UTC):%Y-%m-%d}"
    for screen in ("card", "details"):
        assert has in done.between[screen].replace("**", ""), done.between[screen]
        assert "; one more." in done.between[screen]
    assert "It needs one more." in done.between["explain"] and "as 1 of 2" in done.between["explain"]
    assert [one["by"] for one in done.between["memo"]["endorsed"]] == ["ann"]
    assert "ann (finance, known by token) and cleo (finance, known by token) answered approve" in shown
    assert "ann (finance, known by token) answered approve" in followed and "; one more" in followed
    key = done.office.door.id
    for name, place in {"ann": "as 1 of 2", "cleo": "as the last"}.items():
        assert f"{name} (finance, known by token) answered approve after" in after
        assert f"signed with the key {key}, {place}" in after
    told = [event for event in done.events if isinstance(event, PersonEndorsed | PersonAnswered)]
    assert [type(event) for event in told] == [PersonEndorsed, PersonAnswered]
    opened, closed = done.posted
    assert f"It needs {NEEDS}" in opened["text"] and opened["data"]["needed"] == 2
    assert closed["data"]["endorsed_by"] == ["ann"]


def test_a_claimed_name_is_not_taken_for_a_stated_one() -> None:
    """Somebody may claim to have the name that a screen shows for a person whom a door knows."""
    now = datetime.now(UTC)
    claims = HumanAnswer(choice=Choice.APPROVE, by="ann (finance, known by token)", at=now)

    assert person_text(claims) == '"ann (finance, known by token)", as claimed'
    assert person_text(claims.model_copy(update={"by": "ann"})) == "ann"


async def test_an_auditor_gets_each_answer_verified(client: Client, server: DevServer, office: Office) -> None:
    """From the server, and from a file without one; a key that is withdrawn later stays good for what it signed."""
    async with refunded(client, server, office) as done:
        desk = office.file.doors[0]
        withdrawn = desk.keys[0].model_copy(update={"withdrawn": datetime.now(UTC) + timedelta(seconds=1)})
        office.change(doors=(desk.model_copy(update={"keys": (withdrawn,)}),), people=(Person(name="ann"),))
        file = await done.exported()
        query = f"WorkflowId = '{done.handle.id}'"
        code, found = await done.answers("--since", "1h", "--query", query)
        offline, same = await done.answers(str(file))
        _, lines = await asyncio.to_thread(done.run, "answers", str(file))

    assert (code, offline) == (0, 0), found
    rows = found["answers"]
    assert rows == same["answers"] and found["verdicts"] == {"verified": 2, "signed": 0, "unsigned": 0, "false": 0}
    assert [(row["person"], row["how"], row["roles"], row["number"]) for row in rows] == [
        ("ann", "token", ["finance"], 1),
        ("cleo", "token", ["finance"], 2),
    ]
    [call] = rows[0]["shown"]
    assert call["args"] and [call["code"]] == rows[0]["statement"]["calls"]
    assert (call["tool"], rows[0]["key"], rows[0]["task_id"]) == ("refund", office.door.id, done.handle.id)
    assert "2 answers of 1 task: 2 signed." in lines and "With --people FILE" in lines


STATED = {"who": ("person", "dora"), "roles": ("roles", ["board"]), "when": ("at", "2026-01-01T00:00:00Z")}


@pytest.mark.parametrize("change", [*STATED, "taken out", "arguments", "key", "event", "redacted"])
async def test_a_changed_history_is_found(client: Client, server: DevServer, office: Office, change: str) -> None:
    """Whatever was changed of a statement, and wherever: the row says why, and the exit code is 1."""
    async with refunded(client, server, office) as done:
        if change == "redacted":
            file = await done.exported("--redact")
        else:
            file = await done.exported()
            changed(file, change)
        if change == "key":
            office.change(doors=())
        code, found = await done.answers(str(file))

    assert code == 1, found
    assert found["verdicts"]["false"] >= 1 and all(row["why"] for row in found["answers"] if row["verdict"] == "false")


def changed(file: Path, change: str) -> None:
    """Write a file anew in which what ann has approved, or stated, is another thing: everywhere, or in events alone."""
    whole = json.loads(file.read_text())
    history = WorkflowHistory.from_json("x", whole)
    for event in history.events:
        is_answer = event.HasField("workflow_execution_update_accepted_event_attributes")
        for payload in payloads_of(event):
            if change == "key" or (change == "event" and not is_answer):
                continue
            value = json.loads(payload.data) if payload.metadata.get("encoding") == b"json/plain" else None
            payload.data = json.dumps(_forged(value, change)).encode() if value is not None else payload.data
    file.write_text(json.dumps({"task_id": whole["task_id"], **history.to_json_dict()}))


def _forged(value: Any, change: str) -> Any:
    if isinstance(value, list):
        return [_forged(one, change) for one in value]
    if not isinstance(value, dict):
        return value
    if value.get("person") == "ann" and "signature" in value:
        name, other = STATED.get(change, ("person", "dora"))
        return {**value, name: other}
    if change == "arguments" and value.get("amount") == 900:
        return {**value, "amount": 9}
    whole = {name: _forged(one, change) for name, one in value.items()}
    if change == "taken out" and isinstance(whole.get("statement"), dict):
        del whole["statement"]
    return whole


async def test_a_redacted_statement_names_nobody_and_replays(client: Client, server: DevServer, office: Office) -> None:
    """Roles, ids, times and the key stay; names go, and what a guess of a name could be tested with."""
    async with refunded(client, server, office) as done:
        fetched = await done.handle.fetch_history()
        ended = await outcome(done.handle)
        file = done.office.path.parent / "redacted.json"
        file.write_text(json.dumps(WorkflowHistory("x", Redaction().events(fetched.events)).to_json_dict()))
        again = replay(file)

    text = file.read_text()
    saved = WorkflowHistory.from_json("x", text)
    data = "".join(p.data.decode(errors="replace") for event in saved.events for p in payloads_of(event))
    statements = [*ended.requests[0].statements]
    assert again.returncode == 0, again.stdout + again.stderr
    for name in ("ann", "cleo", "dora", "bob"):
        assert f'"{name}"' not in data and f":{name}" not in data
    for statement in statements:
        assert not [one for one in (statement.signature, statement.given, *statement.calls) if one in data]
        assert statement.key in data and statement.request in data
    assert all(isinstance(one, Statement) for one in statements) and "role:finance" in data


async def test_a_terminal_shows_the_first_approval(client: Client, server: DevServer, office: Office) -> None:
    """Where the task is followed the request stays, and says who has approved and how many must still."""
    tools, known = refunding(**RULE), KnownPeople(office.path)
    async with staged(client, office.path.parent, tools, paying(900), people=known) as stage:
        handle = await started(stage, office, "bob")
        request = await asked(handle)
        command, address = starter(ROOT, "show", handle.id, "--follow"), {"TEMPORAL_ADDRESS": server.address}
        with Terminal(command, address, ROOT, (120, 40)) as terminal:
            await shows(terminal, f"Needs: {NEEDS}", "Type approve")
            await approve(office, handle, request, "ann")
            await shows(terminal, "ann approved at", "; one more.", "answered approve after", "Type approve")
            await approve(office, handle, request, "cleo")
            await shows(terminal, "and cleo (finance, known by token) answered approve")
