"""Resets over effects that stand, on a real worker: nothing is applied twice under another key, and `undo` sees all."""

import asyncio
import json
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest, ResetWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.service import RPCError

from client.client import Client as Replan, TaskHandle
from client.problem import Problem
from runtime.dev_server import DevServer
from tests.console.rollback import Rollbacks, document
from tests.processes import Processes
from workflows.ids import reset_rollback_id

ROSA = "list the free slots tomorrow, then book a slot for Rosa tomorrow at 9:30"


class Bookings(Processes):
    """A worker on the demo world, and the task that books a slot which is taken."""

    def __init__(self, address: str, folder: Path) -> None:
        super().__init__(address, folder)
        self.queue = f"rosa-{uuid.uuid4().hex[:8]}"

    def book(self) -> str:
        """Run the task, which books another slot after a new plan, and return its id."""
        id = f"rosa-{uuid.uuid4().hex[:8]}"
        self.asked("start", "--task", ROSA, "--id", id, "--queue", self.queue)
        return id

    def asked(self, *words: str) -> Any:
        return document(self.starter(*words, "--json"))

    def ended(self, id: str) -> Any:
        return self.asked("show", id, "--follow")

    def effects(self, id: str) -> dict[str, str]:
        """What is known of each booking, by step."""
        found = self.asked("effects", id)["effects"]
        return {one["step"]: one["state"] for one in found if not one["undoes"]}


@pytest.fixture(scope="module")
def desk(server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bookings]:
    desk = Bookings(server.address, tmp_path_factory.mktemp("rosa"))
    with desk.worker("--dev", "--planner", "offline", "--queue", desk.queue):
        yield desk


async def set_back(client: Client, id: str, step: str) -> str:
    """Reset the newest run as the server's own command does, which looks at no effects; the new run's id."""
    run = (await client.get_workflow_handle(id).describe()).run_id
    events = (await client.get_workflow_handle(id, run_id=run).fetch_history()).events
    given = [event.activity_task_scheduled_event_attributes for event in events]
    task = next(one.workflow_task_completed_event_id for one in given if one.activity_id == step)
    request = ResetWorkflowExecutionRequest(
        namespace=client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=id, run_id=run),
        reason="a test",
        workflow_task_finish_event_id=task,
        request_id=uuid.uuid4().hex,
    )
    return (await client.workflow_service.reset_workflow_execution(request)).run_id


def test_a_reset_that_could_apply_an_effect_again_is_refused(desk: Bookings) -> None:
    """The slot that the new plan booked would be booked again under another id: exit 1, what stands, and two ways. With
    `--undo` it is undone before, and one booking stands in the end, under another id."""
    task = desk.book()
    refused = desk.starter("reset", task, "--to", "list_slots", "--json")
    error, before = document(refused)["error"], desk.effects(task)
    reset = desk.starter("reset", task, "--to", "list_slots", "--undo")
    ended = desk.ended(task)

    assert (refused.returncode, error["code"], before) == (1, "effect_stands", {"book-2": "applied"})
    assert "'book-2' (book_slot) was applied after 'list_slots'" in error["reason"]
    assert "--undo" in error["remedy"] and "--keep" in error["remedy"]
    assert (reset.returncode, ended["status"]) == (0, "completed")
    assert desk.effects(task) == {"book-2": "undone", "book-3": "applied"}


async def test_all_calls_of_a_task_have_its_effect_key(desk: Bookings, client: Client) -> None:
    """Those of the run that is reset, of the rollback before, of the new run, and of the rollback after its end."""
    task = await Replan(client, queue=desk.queue).start(ROSA, effect_key="order:7/rosa")
    desk.ended(task.id)
    resets = [desk.starter("reset", task.id, "--to", "list_slots", "--undo").returncode, desk.ended(task.id)["status"]]
    undone = desk.starter("undo", task.id)
    told = {one["key"]: one for one in desk.asked("effects", task.id)["effects"]}
    keys = {id: f"order:7/rosa/{id}" for id in ("book-2", "undo:book-2", "book-3", "undo:book-3")}

    assert (resets, undone.returncode, set(told)) == ([0, "completed"], 0, set(keys.values()))
    assert {id: told[keys[id]]["undone_by"] for id in ("book-2", "book-3")} == {
        id: keys[f"undo:{id}"] for id in ("book-2", "book-3")
    }


@pytest.mark.full
async def test_two_resets_that_undo_leave_nothing(desk: Bookings, client: Client) -> None:
    """Each rollback is read: what the first one undid is not said to stand after the second. A program names the fate
    by a word, as the problem that it got says; another word is an error, and nothing happens. A rollback that was left
    by another reset undoes other effects: the second reset waits for its end."""
    waiting, task = desk.book(), TaskHandle(client, desk.book())
    other = await client.start_workflow("UndoWorkflow", {}, id=reset_rollback_id(waiting), task_queue="nobody")
    waits = desk.starter("reset", waiting, "--to", "list_slots", "--undo", "--json")
    await other.terminate()
    with pytest.raises(Problem) as refused:
        await task.reset("list_slots")
    with pytest.raises(ValueError, match="'undone' is not a valid Fate"):
        await task.reset("list_slots", fate="undone")  # type: ignore[arg-type]  # as a program without types writes it
    first = (await task.reset("list_slots", fate="undo")).undone
    desk.ended(task.id)
    assert desk.asked("reset", task.id, "--to", "list_slots", "--undo")["undone"]
    desk.ended(task.id)
    told = desk.starter("explain", task.id).stdout

    assert "`fate='undo'`" in str(refused.value.remedy) and [effect.step for effect in first] == ["book-2"]
    assert (waits.returncode, document(waits)["error"]["code"]) == (1, "still_running")
    assert desk.effects(task.id) == {"book-2": "undone", "book-3": "undone", "book-4": "applied"}
    assert "Changed in the world: book-4 (book_slot)." in told and "earlier run, before a reset, and" not in told


def test_with_keep_the_planner_knows_what_stands(desk: Bookings) -> None:
    """The planner without a model books nothing more, and tells of the booking in its answer."""
    task = desk.book()
    reset = desk.asked("reset", task, "--to", "list_slots", "--keep")
    ended = desk.ended(task)

    assert (reset["kept"], reset["to"], desk.effects(task)) == (["book-2"], "plan:1", {"book-2": "applied"})
    assert [step["id"] for step in ended["steps"]] == ["book-2", "list_slots"]
    assert "tomorrow for Rosa" in ended["result"]


@pytest.mark.full
def test_what_was_kept_can_be_reset_and_undone_later(desk: Bookings) -> None:
    """A second reset tells it again without being asked to, `--undo` undoes it, and so does `undo` what came then."""
    task, resets = desk.book(), list[int]()
    for more in (["--keep"], [], ["--undo"]):
        resets.append(desk.starter("reset", task, "--to", "list_slots" if more else "plan:1", *more).returncode)
        desk.ended(task)
    before, undone = desk.effects(task), desk.starter("undo", task)

    assert (resets, before) == ([0, 0, 0], {"book-2": "undone", "book-3": "applied"})
    assert (undone.returncode, desk.effects(task)) == (0, {"book-2": "undone", "book-3": "undone"})


async def test_undo_covers_the_runs_that_a_reset_left_behind(desk: Bookings, client: Client) -> None:
    """After the server's own reset, which asks nobody, there are two bookings: all commands say so, and both go."""
    task = desk.book()
    await set_back(client, task, "list_slots")
    before = (desk.ended(task)["status"], desk.effects(task))
    told = [desk.starter(command, task).stdout for command in ("show", "explain")]
    undone = desk.starter("undo", task)

    assert before == ("completed", {"book-2": "applied", "book-3": "applied"})
    assert all("Changed by an earlier run, before a reset, and it stands: book-2 (book_slot)." in one for one in told)
    assert (undone.returncode, f"2 of 2 effects of {task} undone." in undone.stdout) == (0, True)
    assert set(desk.effects(task).values()) == {"undone"}


@pytest.mark.full
async def test_what_a_deleted_history_hides_is_said(desk: Bookings, client: Client) -> None:
    """The ledger still has the booking, so it is undone; that all is undone is not claimed."""
    task = desk.book()
    first = (await client.get_workflow_handle(task).describe()).run_id
    await set_back(client, task, "list_slots")
    desk.ended(task)
    execution = WorkflowExecution(workflow_id=task, run_id=first)
    await client.workflow_service.delete_workflow_execution(
        DeleteWorkflowExecutionRequest(namespace=client.namespace, workflow_execution=execution)
    )
    with pytest.raises(RPCError):
        async with asyncio.timeout(60):
            while True:  # until the server has no history of the run any more
                await client.get_workflow_handle(task, run_id=first).fetch_history()
                await asyncio.sleep(0.1)
    undone = desk.starter("undo", task, "--json")
    done = {one["step_id"]: one["done"] for one in document(undone)["undo"]}

    assert (undone.returncode, desk.asked("effects", task)["deleted_runs"]) == (3, [first])
    assert done == {f"run {first}": False, "book-2": True, "book-3": True}


@pytest.mark.full
@pytest.mark.parametrize("kinds", [["note", "deposit"], ["send", "put"]])
async def test_there_is_something_to_undo_where_only_an_earlier_run_did_it(
    server: DevServer, client: Client, tmp_path: Path, kinds: Sequence[str]
) -> None:
    """The newest run was closed before it did anything: what two ledgers, or the histories, know is undone."""
    desk = Rollbacks(server.address, tmp_path)
    with desk.one():
        task = desk.run_task(*kinds)
    run = await set_back(client, task, kinds[0])
    await client.get_workflow_handle(task, run_id=run).terminate()
    with desk.one():
        undone = desk.starter("undo", task)
        stands = json.loads(desk.starter("effects", task, "--json").stdout)["effects"]

    assert (undone.returncode, f"2 of 2 effects of {task} undone." in undone.stdout) == (0, True)
    assert {one["state"] for one in stands if not one["undoes"]} == {"undone"} and desk.rows() == 0
