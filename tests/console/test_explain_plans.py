"""What a new plan changed, step by step and argument by argument."""

from datetime import UTC, datetime

import pytest

from client.explain.page import difference_lines
from client.history.records import Call, CallEnd, Event, History
from client.history.story import Diff, Plan, PlannerTurn, ProposalVerdict, Story, diff
from tests.harness import step
from workflows.plans.proposal import Step

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def planned(number: int, steps: list[Step]) -> Plan:
    """A plan that was asked for at the tenth event for each number."""
    call = Call(f"plan:{number}", "replan", NOON, Event(1, number * 10), ended=Event(1, number * 10 + 1))
    return Plan(number, PlannerTurn(call, ProposalVerdict.ACCEPTED), tuple(steps))


def changed(before: list[Step], after: list[Step], *done: str) -> Diff:
    """How a second plan differs from the first, of which some steps are done."""
    finished = [Call(id, "k", NOON, Event(1, 15), ended=Event(1, 16), closed=CallEnd.COMPLETED) for id in done]
    story = Story(History("the-task", calls=finished))
    return diff(story, planned(1, before), planned(2, after))


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        pytest.param(
            [step("book", "book_slot", at="14:00")],
            [step("book-2", "book_slot", at="14:30")],
            ["changed: book -> book-2 (at: 14:00 -> 14:30)"],
            id="an argument",
        ),
        pytest.param(
            [step("a", "get", url="x")],
            [step("a-2", "read", url="x")],
            ["changed: a -> a-2 (kind: get -> read)"],
            id="the kind",
        ),
        pytest.param(
            [step("a", "get", url="x")],
            [step("other", "get", url="y")],
            ["changed: a -> other (url: x -> y)"],
            id="the same kind under another id",
        ),
        pytest.param(
            [step("a", "get", page={"size": 1, "sort": ["x"]})],
            [step("a", "get", page={"size": 2, "sort": ["x"]}, more=None)],
            ["changed: a (page.size: 1 -> 2, more: (none) -> null)"],
            id="inside an object, and a new one",
        ),
        pytest.param(
            [step("a", "get"), step("c", "say", word={"$from": "a", "path": "said"})],
            [step("b", "say"), step("c", "say", word={"$from": "b"})],
            ["changed: c (word: <a.said> -> <b>, needs: a -> b)", "added: b (say)", "dropped: a"],
            id="a reference",
        ),
        pytest.param(
            [step("a", "get", n=1), step("b", "get", n=2)],
            [step("x", "get", n=2), step("y", "get", n=1)],
            ["changed: b -> x and a -> y"],
            id="the most alike",
        ),
        pytest.param([step("a", "get")], [step("a", "get")], ["planned as before: a"], id="nothing"),
        pytest.param([step("a", "get")], [step("b", "put")], ["added: b (put)", "dropped: a"], id="everything"),
        pytest.param(
            [step("done", "get"), step("a", "put")],
            [step("a-2", "put", n=1)],
            ["changed: a -> a-2 (n: (none) -> 1)", "kept, since finished: done"],
            id="a finished step",
        ),
    ],
)
def test_two_plans_are_compared(before: list[Step], after: list[Step], lines: list[str]) -> None:
    """What changed with its arguments, what came, what went, what stayed."""
    done = [one.id for one in before if one.id == "done"]

    assert difference_lines(changed(before, after, *done)) == lines
