"""A person approves, edits or rejects a call in a second terminal, and reads later what was decided."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.client import Client

from client.text import printable
from client.wording import change_text
from console.commands.reset import reset
from console.render import requests
from runtime.dev_server import DevServer
from tests.activities.situations import NOW
from tests.console.desk import QUIET, Desk, desk
from tests.console.test_people import Console
from tests.harness import outcome, plan, step
from tests.processes import Processes
from tests.workflows.history import Handle, until
from workflows.account.task import Task
from workflows.agent import AgentWorkflow
from workflows.people.card import Asker
from workflows.people.requests import Change, Choice, HumanRequest, ProposedCall, RequestKind

WRITE = plan(step("first", "look", word="a"), step("noted", "write", "first", word="dunlin"))
AGAIN = plan(step("second", "write", word="ruff"))


@pytest.fixture
def console(server: DevServer, tmp_path: Path) -> Console:
    """Commands for the shared server."""
    return Console(Processes(server.address, tmp_path))


@pytest.fixture
async def writing(client: Client, tmp_path: Path) -> AsyncIterator[tuple[Desk, Handle]]:
    """A task that waits until somebody approves what it wants to write."""
    async with desk(client, tmp_path, WRITE) as writer:
        yield writer, await asking(writer)


async def asking(writer: Desk) -> Handle:
    """A task that waits for an approval."""
    handle = await writer.begin(Task(text="a task", on_escalation="wait", approve="effects"))
    await until(handle, lambda now: bool(now.requests))
    return handle


async def test_a_call_is_shown_and_approved(writing: tuple[Desk, Handle], console: Console) -> None:
    """With each argument, and with what is approved when it is approved."""
    desk, handle = writing
    asked = await console("answer", handle.id)
    document = await console.document("answer", handle.id)
    listed = await console("list", "--status", "waiting")
    done = await console("answer", handle.id, "approve", "--by", "ann")
    await until(handle, lambda now: len(now.requests) == 1 and not now.open_requests)

    why = "write needs approval: the task asks before each call that changes something."
    call = (
        "    Call: write word dunlin\n    The tool: Change the world.\n      word: dunlin   (chosen by the planner)\n"
    )
    call += f"    Why: {why}\n"
    assert "? r1 noted: may this call be made?" in asked.stdout
    assert (
        "    Undo: it cannot be undone\n    If nobody answers: the task ends without this call as escalated"
        in asked.stdout
    )
    assert call in asked.stdout
    assert f"    python starter.py answer {handle.id} edit --args JSON\n" in asked.stdout
    assert document["requests"][0]["call"]["args"] == {"word": "dunlin"}
    assert "noted: write needs approval" in listed.stdout
    assert "dunlin" not in listed.stdout, "a list shows no arguments"
    assert done.returncode == 0, done.stderr
    assert call in done.stdout
    assert f"{handle.id} took the answer: r1: approve." in done.stdout
    await desk.called("write dunlin")


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


@pytest.mark.full
async def test_a_reset_asks_again(client: Client, tmp_path: Path) -> None:
    """What was approved in the old run was not done, and is not done in the new one without a person."""
    async with desk(client, tmp_path, plan(step("noted", "sign", word="dunlin"))) as writer:
        handle = await asking(writer)
        await approve(handle)
        await until(handle, lambda now: len(now.requests) == 2)
        await handle.execute_update("abort", {"by": "ann"})
        await outcome(handle)
        assert await reset(client, handle, QUIET, to="noted", why=None) == 0
        again = await until(handle, lambda now: bool(now.open_requests))
        before = writer.calls["sign dunlin"]
        await approve(handle)
        ended = await outcome(handle)

    assert [(one.id, one.kind) for one in again.requests] == [("r1", "approval")]
    assert (before, writer.calls["sign dunlin"], ended.status) == (1, 2, "completed")


async def approve(handle: Handle) -> None:
    """Approve the call that a task asks about now."""
    (request,) = (await handle.query(AgentWorkflow.progress)).open_requests
    assert request.call is not None
    await handle.execute_update("approve", {"call": request.call.code})


WRONG = {
    "edit without arguments": (("edit",), 2, "edit needs --args"),
    "no object": (("edit", "--args", "[1]"), 2, "--args"),
    "a reason for an approval": (("approve", "--reason", "x"), 2, "--reason goes with reject, skip or abort"),
    "no such request": (("approve", "--request", "r7"), 1, "No such call waits for an approval"),
    "another answer": (("retry",), 1, "takes approve, reject, edit, abort, and not retry"),
}


@pytest.mark.full
async def test_what_cannot_be_answered_changes_nothing(writing: tuple[Desk, Handle], console: Console) -> None:
    """And says why."""
    _, handle = writing
    for words, code, says in WRONG.values():
        said = await console("answer", handle.id, *words)
        assert (said.returncode, says in said.stderr) == (code, True), said.stderr
    progress = await handle.query("progress", result_type=dict)

    assert [one["answer"] for one in progress["requests"]] == [None]


LOOK_ALIKE = (
    "ann",
    "an\u200dn",
    "ann\u202e",
    "ann\u3164",
    "ann\u00a0",
    "ann\x1b[8m",
    "\u0645\u06cc\u062e",
    "\u0645\u06cc\u200c\u062e",
)
"""Values that a terminal shows alike."""


def test_no_two_calls_to_approve_look_alike() -> None:
    """What a terminal would hide or obey is an escape, in the call and in what was edited."""
    calls = [ProposedCall(kind="send", effect="unkeyed", args={f"to{one}": one}, code="3f9c") for one in LOOK_ALIKE]
    times = {"since": NOW, "until": NOW}
    asked = [
        HumanRequest(
            id="r1", kind=RequestKind.APPROVAL, code="x", reason="y", choices=(Choice.APPROVE,), call=call, **times
        )
        for call in calls
    ]
    lines = [requests.call_lines(one, Asker("t", "a task"))[2] for one in asked]
    edits = [change_text({"to": Change(was="bob", now=one)}) for one in LOOK_ALIKE]

    assert len(set(lines)) == len(set(edits)) == len(LOOK_ALIKE)
    assert [line for line in [*lines, *edits] if printable(line) != line] == []
