"""One account of a task: all that read a history say the same of it, also of one that was redacted."""

import asyncio
from pathlib import Path

import pytest
from pydantic import BaseModel
from temporalio.client import Client

from activities.boundary.attempt import FaultRaised
from client import tree
from client.explain import explanation, page
from client.history.fetch import fetch_history, final_outcome
from client.history.records import CallEnd
from client.history.story import failures_of
from client.redaction import Redaction
from client.report.row import row_of
from replan import Refused, Unreachable, tool
from tests.console import made, outcomes
from tests.console.histories import NAMES, events, history
from tests.console.outcomes import BEGAN
from tests.counting import check_readers, is_alike
from tests.harness import DONE, Proposals, outcome, plan, staged, step
from workflows.account.entries_of_people import Answered, PersonIsAsked
from workflows.account.entries_of_steps import MAX_FAULTS, Attempted, Settled
from workflows.account.records import StepStatus
from workflows.account.task import TaskStatus
from workflows.faults.fault import Code, Fault
from workflows.people.requests import Choice, HumanAnswer, HumanRequest, ProposedCall, RequestKind


class Said(BaseModel):
    word: str = "here"


@pytest.mark.parametrize("name", NAMES)
async def test_every_reader_says_the_same_of_a_saved_history(name: str) -> None:
    """The same counts, also where an older workflow did not write its account; redacted, the same but for values. The
    n-th end of an activity in the journal is that of its n-th call, also after waits and answers."""
    whole, hidden = [
        explanation.explain_task(await history(one)) for one in (events(name), Redaction().events(events(name)))
    ]
    told = [[(item.decision, item.steps, item.cost, item.events) for item in one.items] for one in (whole, hidden)]
    said = [[sentence.text for item in one.items for sentence in item.sentences] for one in (whole, hidden)]
    story = whole.story
    settled = [(entry, call) for entry, call in story.happened if isinstance(entry, Settled) and call]
    ended = [call for call in story.history.calls if call.closed and not call.is_own]

    check_readers(story.history)
    assert told[0] == told[1]
    assert [pair for pair in zip(*said, strict=True) if not is_alike(*pair)] == []
    assert not is_alike("a (pay) failed (busy): Later.", "a (pay) was rejected (conflict): <text-3>.")
    assert {call.scheduled for _, call in settled} >= {call.scheduled for call in ended}
    assert [(entry.source, entry.is_done) for entry, call in settled if not call.is_own] == [
        (call.kind, call.closed is CallEnd.COMPLETED) for _, call in settled if not call.is_own
    ]
    assert [one for one in story.failures if one.record and one.record.attempt and not one.call] == []


def request(id: str, step: str, *others: str) -> HumanRequest:
    """A request for the approval of the calls of some steps."""
    calls = [ProposedCall(kind="pay", effect="keyed", code=step, step=step) for step in others]
    about = {"code": "needs_approval", "reason": "It asks.", "since": BEGAN, "until": BEGAN}
    choices = (Choice.APPROVE, Choice.APPROVE_ALL)
    return HumanRequest(id=id, kind=RequestKind.APPROVAL, step=step, others=tuple(calls), choices=choices, **about)


def test_a_call_that_several_requests_showed_belongs_to_the_newest() -> None:
    """The answer to the first one was only about its own call."""
    account = outcomes.outcome(requests=(request("r1", "a", "b"), request("r2", "c", "b")))
    found = {step: outcomes.fault(Code.NEEDS_APPROVAL, "ask", step_id=step) for step in "abc"}
    entries = [
        Attempted(step="a", fault=found["a"]),
        PersonIsAsked(step="a", request="r1"),
        Attempted(step="b", fault=found["b"]),
        Attempted(step="c", fault=found["c"]),
        Answered(step="a", request="r1", answer=HumanAnswer(choice=Choice.APPROVE, at=BEGAN)),
        PersonIsAsked(step="c", request="r2"),
    ]
    failures = failures_of([(entry, None) for entry in entries], account)

    assert [[asked.id for asked in failure.requests] for failure in failures] == [["r1"], ["r2"], ["r2"]]


async def test_a_retried_read_and_an_attempt_that_was_cut_off_count_alike_in_every_reader(
    client: Client, tmp_path: Path
) -> None:
    """The last line, the receipt and the report say 1 retry, although no step was retried. `explain --step` and `show`
    say the same number: an attempt that a shutdown cut off is none of the step's."""
    broken = iter([Unreachable("The line is cut.")])
    cut = iter([FaultRaised(Fault.of(Code.WORKER_SHUTDOWN, "The worker stops."))])

    @tool.read
    async def look(args: Said) -> Said:
        """Look, at the second attempt."""
        for error in broken:
            raise error
        return Said()

    @tool.read(observe=look)
    async def refuse(args: Said) -> Said:
        """Reject the call."""
        raise Refused("No.")

    @tool.read
    async def ask(args: Said) -> Said:
        """Ask, at the second attempt."""
        for error in cut:
            raise error
        return Said()

    script: Proposals = [plan(step("a", "refuse")), plan(step("b", "ask")), DONE]
    async with staged(client, tmp_path, [look, refuse, ask], script, jitter=lambda: 0.0) as stage:
        handle = await stage.start()
        ended = await outcome(handle)
        told = explanation.explain_task(await fetch_history(client, handle, journal=True))
    heading = "\n".join(page.step_lines(told.step("b"), None))

    assert ", 1 retry (it helped), 0 wasted, " in tree.headline(ended)
    assert (told.receipt.helped.number, row_of(told.story.history).status) == (1, ended.status)
    [cut_off] = [one for one in ended.steps if one.id == "b"]
    assert (cut_off.attempts, len(told.story.history.of_step("b"))) == (1, 2)
    assert "b (ask)" in heading and "completed after 1 attempt." in heading


async def test_a_task_that_was_terminated_is_told_as_far_as_it_came(client: Client, tmp_path: Path) -> None:
    """It wrote no Outcome; what it had done is in its history."""
    begun = asyncio.Event()

    @tool.read
    async def hang(args: Said) -> Said:
        """Answer never."""
        begun.set()
        await asyncio.sleep(600)
        return Said()

    async with staged(client, tmp_path, [hang], [plan(step("a", "hang")), DONE]) as stage:
        handle = await stage.start()
        await begun.wait()
        await handle.terminate("a test")
        told = await final_outcome(client, handle)

    assert [(one.id, one.kind, one.status) for one in told.steps] == [("a", "hang", StepStatus.CANCELLED)]
    assert (told.status, told.code, told.planner) == (TaskStatus.FAILED, "closed", "scripted")


async def test_it_says_that_the_oldest_faults_of_a_long_task_are_left_out() -> None:
    """Of 202 failed calls, the task keeps 200 faults; the other two calls are not passed over in silence."""
    calls = [made.call(number, f"s{number}", "read", made.refused()) for number in range(1, MAX_FAULTS + 3)]
    told = made.story(*calls)
    notes = {}
    for kept in (calls, calls[2:]):
        faults = tuple(made.decided(call, "replan") for call in kept)
        told.history.replayed = told.history.account.model_copy(update={"faults": faults})
        notes[len(kept)] = [note.text for note in explanation.explain_task(told.history).notes]

    assert notes[MAX_FAULTS + 2] == []
    assert "the oldest failed calls (2)" in " ".join(notes[MAX_FAULTS])
