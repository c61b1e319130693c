"""Sends inquiries to a worker: each is a short workflow on the control task queue of the worker.

Runs when a command or the page needs what only a worker knows, such as its tools, its ledgers or its breakers.
"""

import asyncio
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from pydantic import JsonValue
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from client.effects import EffectState, TaskEffect, all_effects, effects_with_row, fetch_effects
from client.encrypted import GIVE_KEY, no_key, require_key
from client.history.fetch import fetch_story
from client.history.story import Story
from client.problem import Problem, ProblemKind
from client.remedy import Remedy, Text, start_worker
from client.schemas import has_number
from client.tasks import TASKS, Handle
from client.workflow_task import Cause, failing
from runtime.payloads import NoKey
from runtime.process import version
from runtime.queue_store import pollers
from workflows.inquiries import (
    UNKNOWN_INQUIRY,
    AppliedEffect,
    BreakersFindings,
    BreakersInquiry,
    EffectsInquiry,
    F,
    Inquiry,
    Place,
    PrunedPayloads,
    PruneInquiry,
    RowsInquiry,
    ToolCard,
    ToolsInquiry,
)
from workflows.seal import NOT_SEALED
from workflows.task_queues import control_queue
from workflows.text import few, nearest
from workflows.web_ui import summary

RPC_TIMEOUT = timedelta(seconds=2)
POLL_SECONDS = 0.05
INQUIRY_TAKEN_WITHIN = timedelta(seconds=5)
"""A live worker takes an inquiry of the console from the queue within this time."""
# `plan` may need several requests to a model, `prune` runs one long activity.
INQUIRY_LIMITS: Mapping[str, timedelta] = {"plan": timedelta(minutes=10), "prune": timedelta(minutes=11)}
INQUIRY_LIMIT = timedelta(seconds=30)
"""How long a worker may work on an inquiry (a question of the console) that has no limit in INQUIRY_LIMITS."""
READ_WITHIN = 1.0
"""Seconds until an unanswered inquiry is checked: a worker that cannot read it has failed its workflow task by then."""
GIVEN_EVENTS = 3
"""The number of events in a history whose first workflow task has been started, and not completed."""
MAX_EFFECTS = 1_000
"""The most effects in one inquiry; the server accepts 2 MB, and a key has 1,200 characters at most."""
AT_ONCE = 5
MAX_NAMED = 5
RESTORED = "the store was probably restored from an older backup"
LOOK = "Look whether what was written is still there, and restore a newer backup, or do it again in a new task"
OLD_WORKER = "old_worker"
"""The code of the Problem of `other_version`."""


async def ask(client: Client, queue: str, question: Inquiry[F], *, on_wait: Callable[[], None] | None = None) -> F:
    """Send `question` to a worker of this task queue, and return the findings.

    `on_wait` is called if a worker has taken the question but has not answered within INQUIRY_TAKEN_WITHIN.

    Raises:
        Problem: no worker took the question, or the worker could not read or answer it, or did not answer in time.
    """
    limit = INQUIRY_LIMITS.get(question.about, INQUIRY_LIMIT)
    handle = await _put(client, queue, question, limit)
    answer = asyncio.create_task(handle.result())
    try:
        await asyncio.wait([answer], timeout=READ_WITHIN)
        if not answer.done():
            await _require_readable(client, await handle.describe(rpc_timeout=RPC_TIMEOUT))
            await asyncio.wait([answer], timeout=INQUIRY_TAKEN_WITHIN.total_seconds() - READ_WITHIN)
        if not answer.done():
            # A worker that hangs has started the first workflow task, too. More events follow only when that ends.
            description = await handle.describe(rpc_timeout=RPC_TIMEOUT)
            if description.history_length <= GIVEN_EVENTS:
                raise no_worker(queue)
            await _require_readable(client, description)
            if on_wait:
                on_wait()
        return await answer
    except NoKey as error:
        raise no_key(error) from error
    except WorkflowFailureError as failure:
        reason, remedy = f"The worker gave no answer within {limit.total_seconds():g} s", "see the worker's log"
        if isinstance(failure.cause, ApplicationError) and failure.cause.type == UNKNOWN_INQUIRY:
            raise other_version() from failure
        if isinstance(failure.cause, ApplicationError) and failure.cause.type == NOT_SEALED:
            what = "The workers of this queue take only what their key has encrypted"
            raise Problem("no_key", what, GIVE_KEY, ProblemKind.FAILED) from failure
        if isinstance(failure.cause, ApplicationError):
            message = failure.cause.message.rstrip(".")
            raise Problem("refused", message, remedy, ProblemKind.FAILED) from failure
        raise Problem("no_answer", reason, remedy, ProblemKind.FAILED) from failure
    finally:
        if answer.cancelled() or not answer.done():
            answer.cancel()
            with suppress(RPCError):  # without the server, the execution timeout ends the question
                await handle.terminate("nobody waits for the answer any more", rpc_timeout=RPC_TIMEOUT)


async def _require_readable(client: Client, description: WorkflowExecutionDescription) -> None:
    failed = await failing(client, description)
    if failed and failed.cause is Cause.PAYLOAD:  # another failure of a busy machine passes
        why = f" ({failed.message})" if failed.message else ""
        reason = f"The worker cannot read what is sent from here: its workflow task fails{why}"
        remedy = Text(GIVE_KEY, "; the worker's log says more")
        raise Problem("no_key", reason, remedy, ProblemKind.FAILED)


def no_worker(queue: str, then: str = "") -> Problem:
    """The Problem of a queue without a worker; the remedy ends with `then`, what to do after starting a worker."""
    remedy = Text("start one with ", start_worker(queue), then)
    return Problem("no_worker", f"No worker answers on queue {queue}", remedy, ProblemKind.UNREACHABLE)


async def serving(client: Client, queue: str) -> int:
    """The number of workers that polled this task queue within the last LATELY; some may have ended since."""
    return len(await pollers(client, queue))


async def is_served(client: Client, queue: str) -> bool:
    """Whether a worker takes a question from this task queue now, even if it is frozen and does not answer."""
    handle = await _put(client, queue, ToolsInquiry(), INQUIRY_LIMIT)
    try:
        async with asyncio.timeout(INQUIRY_TAKEN_WITHIN.total_seconds()):
            while (await handle.describe(rpc_timeout=RPC_TIMEOUT)).history_length < GIVEN_EVENTS:  # noqa: ASYNC110
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        return False
    finally:
        with suppress(RPCError):
            await handle.terminate("nobody waits for the answer", rpc_timeout=RPC_TIMEOUT)
    return True


async def _put(client: Client, queue: str, question: Inquiry[F], limit: timedelta) -> WorkflowHandle[Any, F]:
    """Put a question to the workers of a task queue."""
    return await client.start_workflow(
        "InspectWorkflow",
        question,
        id=f"inspect-{secrets.token_hex(4)}",
        task_queue=control_queue(queue),
        execution_timeout=limit,
        result_type=question.findings,
        static_summary=summary(f"the console asks for {question.about}"),
    )


def other_version() -> Problem:
    """The Problem for a worker of another version of Replan, which does not know the inquiry."""
    reason = f"The worker is of another version of Replan, and does not know what this one ({version()}) asks"
    return Problem(OLD_WORKER, reason, "restart it on the version of this console", ProblemKind.FAILED)


class EffectList(NamedTuple):
    """The effects of a task, and the places where more effects may be recorded."""

    effects: Sequence[TaskEffect]
    unread: Sequence[Place]
    """The ledgers that the worker could not read."""
    deleted_runs: Sequence[str]
    """The ids of the task's runs whose history was deleted."""

    @property
    def lost(self) -> str:
        """A sentence about the effects that lack their row in a ledger; empty if there are none."""
        steps = [effect.step for effect in self.effects if effect.lacks_row]
        if not steps:
            return ""
        what = f"The history says that {few(steps, MAX_NAMED)} {'was' if len(steps) == 1 else 'were'} applied"
        return f"{what}, and no ledger has a row of it: {RESTORED}. {LOOK}."

    def document(self, task_id: str) -> dict[str, Any]:
        """The effects in the form that JSON outputs have."""
        effects = [effect.model_dump(mode="json") for effect in self.effects]
        unread = [ledger.model_dump(mode="json") for ledger in self.unread]
        return {"task_id": task_id, "effects": effects, "unread": unread, "deleted_runs": list(self.deleted_runs)}


async def list_effects(client: Client, handle: Handle) -> EffectList:
    """Every effect that a task had or may have had, by history and ledgers. Raises Problem if no worker answers."""
    try:
        description = await handle.describe()
        await require_key(description)
        ledgers = await ask(client, description.task_queue, EffectsInquiry(task_id=handle.id))
        story = await fetch_story(client, handle)
        found, listed = await fetch_effects(client, story, ledgers.effects), {card.key for card in ledgers.effects}
        expected = [effect for effect in effects_with_row(story, found) if effect.key not in listed]
        lost = await _without_row(client, description.task_queue, expected)
        effects = [effect.model_copy(update={"lacks_row": effect.key in lost}) for effect in found]
        return EffectList(effects, ledgers.unread, story.history.deleted)
    except NoKey as error:
        raise no_key(error) from error


async def _without_row(client: Client, queue: str, effects: Sequence[AppliedEffect]) -> set[str]:
    """The keys of `effects` of which the ledgers of a worker have no row; empty if an older worker answers."""
    lost = set[str]()
    with suppress(Problem):
        for at in range(0, len(effects), MAX_EFFECTS):
            inquiry = RowsInquiry(effects=tuple(effects[at : at + MAX_EFFECTS]))
            lost |= {*(await ask(client, queue, inquiry)).lacks}
    return lost


class LostRows(NamedTuple):
    """The tasks that were looked at, and those with applied effects of which no ledger has a row."""

    looked_at: int
    tasks: Mapping[str, Sequence[str]]
    """By task, the ids of the steps of these effects."""


async def find_lost_rows(client: Client, queue: str, limit: int, seconds: float) -> LostRows:
    """Look at the newest `limit` tasks of a queue; after `seconds`, no further task is read."""
    until = asyncio.get_running_loop().time() + seconds
    newest = [row.id async for row in client.list_workflows(f"{TASKS} AND TaskQueue = '{queue}'", limit=limit)]
    left, stories = iter(dict.fromkeys(newest)), dict[str, Story]()

    async def look() -> None:
        for id in left:
            if asyncio.get_running_loop().time() > until:
                return
            with suppress(NoKey, RPCError, Problem):  # what cannot be read here, or was deleted since
                stories[id] = await fetch_story(client, client.get_workflow_handle(id))

    await asyncio.gather(*(look() for _ in range(AT_ONCE)))
    applied = {id: effects_with_row(story, all_effects(story, None, ())) for id, story in stories.items()}
    lost = await _without_row(client, queue, [effect for effects in applied.values() for effect in effects])
    tasks = dict[str, Sequence[str]]()
    for id in [id for id, effects in applied.items() if any(effect.key in lost for effect in effects)]:
        known = await fetch_effects(client, stories[id], ())  # a rollback may have undone it
        if steps := [effect.step for effect in known if effect.key in lost and effect.state is EffectState.APPLIED]:
            tasks[id] = steps
    return LostRows(len(stories), tasks)


async def tools_of(client: Client, queue: str, values: Iterable[JsonValue]) -> Mapping[str, ToolCard]:
    """The tools of a worker by kind; their schemas declare which texts in `values` are numbers.

    Empty if no value has a text that reads as a number, or if no worker answers.
    """
    if any(map(has_number, values)):
        with suppress(Problem):
            return {card.spec.kind: card for card in (await ask(client, queue, ToolsInquiry())).tools}
    return {}


async def list_breakers(client: Client, queue: str, reset: str | None = None) -> BreakersFindings:
    """Close the breaker of the kind `reset`, if given; return all. Raises Problem without that breaker or a worker."""
    found = await ask(client, queue, BreakersInquiry(reset=reset or ""))
    if reset and found.before is None:
        reason = f"No tool {reset!r} has a circuit breaker{nearest(reset, found.kinds)}"
        raise Problem("unknown_kind", reason, Text(Remedy("breakers"), " lists those of tools that have failed"))
    return found


async def prune(client: Client, queue: str, before: datetime) -> PrunedPayloads:
    """Delete what closed tasks stored before `before`, and return the totals. Raises Problem if no worker answers."""
    all = PrunedPayloads(payloads=0, size=0)
    inquiry = PruneInquiry(older_than=before, by=client.identity)
    while True:
        found = (await ask(client, queue, inquiry)).pruned
        counts = {name: getattr(all, name) + getattr(found, name) for name in ("payloads", "size", "turns", "kept")}
        all = PrunedPayloads.model_validate({**counts, "ownerless": found.ownerless})
        if found.after is None:  # each answer covers a part; `after` is where the next part begins
            return all
        inquiry = inquiry.model_copy(update={"after": found.after})
