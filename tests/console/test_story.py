"""Tests that the entries of a task's journal are joined with the calls that prove them."""

import pytest

from client.history.records import CallEnd
from client.history.story import Story, failures_of
from tests.console.histories import NAMES, events, history
from tests.console.outcomes import BEGAN, fault, outcome
from workflows.account.entries_of_people import Answered, PersonIsAsked
from workflows.account.entries_of_steps import Attempted, Settled
from workflows.faults.fault import Code
from workflows.people.requests import Choice, HumanAnswer, HumanRequest, ProposedCall, RequestKind


@pytest.mark.parametrize("name", NAMES)
async def test_each_execution_of_a_tool_has_the_entry_that_says_how_it_ended(name: str) -> None:
    """The n-th end of an activity in the journal is that of its n-th call, also after waits and answers."""
    story = Story(await history(events(name)))
    settled = [(entry, call) for entry, call in story.happened if isinstance(entry, Settled) and call]
    ended = [call for call in story.history.calls if call.closed and not call.is_own]

    assert {call.scheduled for _, call in settled} >= {call.scheduled for call in ended}
    assert [(entry.source, entry.is_done) for entry, call in settled if not call.is_own] == [
        (call.kind, call.closed is CallEnd.COMPLETED) for _, call in settled if not call.is_own
    ]
    assert [
        failure for failure in story.failures if failure.record and failure.record.attempt and not failure.call
    ] == []


def request(id: str, step: str, *others: str) -> HumanRequest:
    """A request for the approval of the calls of some steps."""
    calls = [ProposedCall(kind="pay", effect="keyed", code=step, step=step) for step in others]
    about = {"code": "needs_approval", "reason": "It asks.", "since": BEGAN, "until": BEGAN}
    choices = (Choice.APPROVE, Choice.APPROVE_ALL)
    return HumanRequest(id=id, kind=RequestKind.APPROVAL, step=step, others=tuple(calls), choices=choices, **about)


def test_a_call_that_several_requests_showed_belongs_to_the_newest() -> None:
    """The answer to the first one was only about its own call."""
    requests = (request("r1", "a", "b"), request("r2", "c", "b"))
    account = outcome(requests=requests)
    found = {step: fault(Code.NEEDS_APPROVAL, "ask", step_id=step) for step in "abc"}
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
