"""Workflows that another program started with what nobody can read: each command says a sentence, no traceback."""

import asyncio
import json
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest
from temporalio.api.common.v1 import Memo, Payload
from temporalio.client import Client

from tests import malformed
from tests.console import server_lists
from tests.gate import sampled
from tests.harness import DONE, staged
from tests.malformed import FORMS, as_json, payload
from tests.processes import Processes
from tests.workflows.props import echo

MEMOS = {
    "a task in half": Memo(fields={"task": payload('"a ta')}),
    "an encrypted task": Memo(fields={"task": payload(b"\x00", "binary/encrypted")}),
    "a task and an outcome that are none": Memo(fields={"task": as_json(7), "outcome": as_json(7)}),
    "a task that is too long, and rings": Memo(fields={"task": as_json("\x1b[31m\a" + "x" * 17_000)}),
}
"""Memos that are not ours."""
READING, ENDING = ("show", "explain", "export"), ("undo", "cancel", "show")


def traceback(said: str) -> bool:
    """Whether a command broke, or gave a character to the terminal that commands it."""
    return "Traceback" in said or any(not char.isprintable() and char != "\n" for char in said)


async def commanded(processes: Processes, *words: str) -> str:
    """What a command says wrongly; "" if nothing."""
    done = await asyncio.to_thread(processes.starter, *words)
    said = done.stdout + done.stderr
    return f"{' '.join(words)}: {said[-300:]}" if not said.strip() or traceback(said) else ""


async def test_a_list_shows_tasks_that_nobody_can_read(commands: Processes, client: Client, tmp_path: Path) -> None:
    """One such workflow, taken or not, does not hide the others."""
    queue = f"list-{uuid.uuid4().hex[:8]}"
    query = f"TaskQueue = '{queue}'"
    fine = [as_json({"text": "a task"})]
    ids = [await malformed.start(client, "AgentWorkflow", sent, queue) for sent in FORMS.values()]
    ids += [await malformed.start(client, "AgentWorkflow", fine, queue, memo=memo) for memo in MEMOS.values()]
    await server_lists.listed(client, query, len(ids))
    listed = ("list", "--query", query, "--limit", "99")
    before = await commanded(commands, *listed)
    async with staged(client, tmp_path, [echo], [DONE] * len(ids), queue=queue):
        for id in ids:
            await asyncio.wait([asyncio.create_task(client.get_workflow_handle(id).result())])
        after = await commanded(commands, *listed)
    shown = json.loads((await asyncio.to_thread(commands.starter, *listed, "--json")).stdout)["tasks"]

    assert (before, after) == ("", "")
    assert {one["task_id"] for one in shown} == set(ids)


@pytest.mark.parametrize("form", ["no argument", pytest.param("bytes", marks=pytest.mark.full)])
async def test_every_command_says_a_sentence(commands: Processes, client: Client, tmp_path: Path, form: str) -> None:
    """Before a worker has taken the task, and after it has refused it."""
    sent = FORMS[form]
    memo = Memo(fields={**MEMOS["a task in half"].fields, "outcome": as_json(7)})
    waits = await malformed.start(client, "AgentWorkflow", sent, "nobody", memo=memo)
    async with staged(client, tmp_path, [echo], [DONE]) as stage:
        refused = await malformed.start(client, "AgentWorkflow", sent, stage.queue, memo=memo)
        asked = [commanded(commands, command, id) for id in (waits, refused) for command in READING]
        wrong = await asyncio.gather(*asked)
        wrong += [await commanded(commands, command, id) for id in (waits, refused) for command in ENDING]

    assert [one for one in wrong if one] == []


@pytest.mark.parametrize("sent", sampled({"no argument": [[]], "another": [[as_json({"progress": 7})]]}, "no argument"))
async def test_a_foreign_rollback_is_no_traceback(
    commands: Processes, client: Client, tmp_path: Path, sent: Sequence[Payload]
) -> None:
    """Under the id under which `undo` looks for its own."""
    async with staged(client, tmp_path, [echo], [DONE]) as stage:
        task = await stage.start()
        await task.result()
        memo = Memo(fields={"origin": payload("{"), "covers_all_runs": as_json("x")})
        await malformed.start(client, "UndoWorkflow", sent, stage.queue, id=f"undo-{task.id}", memo=memo)
        wrong = await asyncio.gather(*(commanded(commands, command, task.id) for command in ("show", "explain")))
        wrong += [await commanded(commands, "undo", task.id)]

    assert [one for one in wrong if one] == []


async def test_no_command_prints_a_foreign_id_as_it_is(commands: Processes, client: Client, tmp_path: Path) -> None:
    """An id may clear a terminal, or begin a line that looks like ours."""
    file = str(tmp_path / "x.json")
    given = f"{uuid.uuid4().hex}\x1b[2J\x1b]0;owned\x07\u202e"
    id = await malformed.start(client, "AgentWorkflow", [as_json({"text": "\x1b[2Ja task"})], "nobody", id=given)
    wrong = [await commanded(commands, *words) for words in (("explain", id), ("export", id, file), ("cancel", id))]

    assert [one for one in wrong if one] == []
