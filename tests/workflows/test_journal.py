"""The journal of a task: one list, which alone changes the state, and of which a reader misses nothing.

That a replay has the same journal, and that its entries make the state, is checked of each task of `tests.harness`; see
`tests.counting.check_journal`.
"""

import ast
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import get_args

from temporalio.client import WorkflowHistory

from activities.offline.planner import OfflinePlanner
from client.history.account import replayed_progress
from replan import tool
from runtime.payloads import DATA_CONVERTER
from tests.console.histories import FOLDER
from tests.counting import check_journal
from tests.harness import outcome, step
from tests.workflows.props import Said, Stages, Word
from tests.workflows.test_rooms import ROOT, tree
from workflows.account.entries_of_steps import Attempted, Waited
from workflows.account.journal import KEPT, AnyEntry, MovedOn
from workflows.account.progress import MAX_PAGE, Progress, fold
from workflows.account.records import FaultRecord
from workflows.account.task import Task, TaskStatus
from workflows.agent import AgentWorkflow
from workflows.faults.fault import Code, Fault
from workflows.people.requests import Choice

NOW = datetime(2026, 11, 29, tzinfo=UTC)
CHANGES = {"append", "extend", "insert", "remove", "pop", "clear", "update", "setdefault", "sort"}
"""The methods that change a list or a dict."""
STATE = {"progress", "record", "request", "state", "undo", "opened"}
"""The names under which the state of a task, or a part of it, is passed around."""
UNDER_WAY = {"budget", "turns"}
"""What is under way at this moment is no entry: what is reserved, whose turn has come, what is tried again just now."""


def changed() -> Iterator[str]:
    """Where code that replays changes a part of the state by itself."""
    for path in sorted(ROOT.glob("workflows/**/*.py")):
        if path.parent.name == "account":
            continue
        for node in ast.walk(tree(path)):
            targets = node.targets if isinstance(node, ast.Assign) else []
            targets = [node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign) else targets
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
                targets = [node.func.value]
            for target in targets:
                names = ast.unparse(target).removeprefix("self._").split(".")
                if len(names) > 1 and names[0] in STATE and not UNDER_WAY & {*names}:
                    yield f"{path.name}: {ast.unparse(node)}"


def test_only_an_entry_changes_the_state_of_a_task() -> None:
    """Else the journal would not be what happened."""
    assert list(changed()) == []


async def test_a_local_activity_that_outlasts_a_workflow_task_is_replayed_as_it_was(stages: Stages) -> None:
    """The worker reports such a workflow task in parts; no entry may depend on where they end."""

    @tool.pure
    def ponder(args: Word) -> Said:
        """Think for a while."""
        time.sleep(0.8)
        return Said(said=args.word)

    written = Task(text="by hand", plan=(step("a", "ponder", word="x"), step("b", "ponder", "a", word="y")))
    async with stages([ponder], OfflinePlanner()) as stage:
        id, soon = f"test-{uuid.uuid4().hex[:12]}", {"seconds": 1}
        handle = await stages.client.start_workflow(
            AgentWorkflow.run, written, id=id, task_queue=stage.queue, task_timeout=timedelta(**soon)
        )
        ended = await outcome(handle)
        types = [event.WhichOneof("attributes") async for event in handle.fetch_history_events()]
        await check_journal(stages.client, handle)

    assert ended.status is TaskStatus.COMPLETED
    assert types.count("workflow_task_completed_event_attributes") > 2


def task() -> Progress:
    """A task that has begun."""
    return Progress(task=Task(text="long"), task_id="long", started_at=NOW)


def waits(progress: Progress, count: int) -> None:
    """Add entries."""
    for _ in range(count):
        progress.apply(Waited(number=progress.number + 1, at=NOW))


def test_a_reader_gets_each_entry_once_in_order() -> None:
    """A cursor is the run and the number of the last entry.

    With one of another history it begins anew, as after a reset: what was read may never have happened in this run.
    """
    one = task()
    waits(one, 3)
    first = one.entries_after("run")
    waits(one, 2)
    second = one.entries_after("run", first.cursor)

    assert [entry.number for entry in (*first.entries, *second.entries)] == [1, 2, 3, 4, 5]
    assert one.entries_after("run", second.cursor).entries == ()
    assert one.entries_after("run", second.cursor).cursor == second.cursor
    for cursor in ("other:3", "run:99", "run:x", "run:-1", "run", ":", "²:²"):
        page = one.entries_after("run", cursor)
        assert (page.restarted, [entry.number for entry in page.entries]) == (True, [1, 2, 3, 4, 5]), cursor


def test_large_entries_come_in_pages() -> None:
    """An answer of more than 2 MB would break the query."""
    one, fault = task(), Fault.of(Code.CONFLICT, "x" * 8_000, source="pay")
    record = FaultRecord.of_call(fault, "a", 1, "retry", at=NOW)
    for number in range(1, 180):
        one.apply(Attempted(number=number, at=NOW, fault=record, is_own=True))
    page, numbers, sizes = one.entries_after("run"), list[int](), list[int]()
    while True:
        numbers += [entry.number for entry in page.entries]
        sizes.append(len(page.model_dump_json()))
        if not page.more:
            break
        page = one.entries_after("run", page.cursor)

    assert numbers == [*range(1, 180)]
    assert len(sizes) > 1
    assert max(sizes) < MAX_PAGE + 20_000


def test_a_reader_that_slept_too_long_is_told_which_run_has_the_rest() -> None:
    """A long task drops its oldest entries."""
    one = task()
    waits(one, 10)
    one.apply(MovedOn(number=11, at=NOW, run="first"))
    waits(one, KEPT.get("waited", 300))
    fold(one)

    assert one.dropped == 10
    assert (one.entries_after("second", "first:4").gap, one.entries_after("second", "first:10").gap) == ("first", "")
    assert [entry.number for entry in one.entries_after("second", "first:4").entries][:2] == [11, 12]


async def test_each_kind_of_entry_and_each_answer_is_in_a_saved_history() -> None:
    """So that a change of any of them is seen to replay, or not."""
    kinds, answers = set[str](), set[str]()
    for file in sorted(FOLDER.glob("*.json")):
        events = WorkflowHistory.from_json(file.stem, file.read_text()).events
        replayed = await replayed_progress(file.stem, events, DATA_CONVERTER)
        assert replayed is not None
        kinds |= {entry.kind for entry in replayed.journal}
        answers |= {request.answer.choice for request in replayed.requests if request.answer}
    (union, *_) = get_args(AnyEntry)

    assert kinds == {entry.model_fields["kind"].default for entry in get_args(union)}
    assert answers == {*Choice}
