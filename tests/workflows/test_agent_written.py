"""A hand-written plan with what comes after it, on a real server."""

from typing import Any

import pytest
from pydantic import JsonValue

from replan import Refused
from tests.harness import DONE, Proposals, plan, step
from tests.workflows.history import kinds
from tests.workflows.props import Recording, Scripts, Stages, echo, played
from workflows.account.outcome import Outcome
from workflows.account.records import StepStatus
from workflows.account.task import Task, TaskStatus
from workflows.plans.proposal import BY_HAND, Answer, GiveUp, Proposal, Question

COMPLETED, FAILED = StepStatus.COMPLETED, StepStatus.FAILED
refuse = played("refuse", Refused("No."))


def by_hand(first: str, *revisions: Proposal, text: str = "by hand", **more: Any) -> Task:
    """A task whose first plan calls the kind `first`."""
    return Task(text=text, plan=(step("a", first),), revisions=revisions, **more)


def ended_steps(ended: Outcome) -> dict[str, StepStatus]:
    """How each step ended."""
    return {one.id: one.status for one in ended.steps}


async def test_after_a_rejection_comes_the_next_written_plan(stages: Stages) -> None:
    """Then, as after every hand-written plan, the planner is asked what comes next; the record says `by hand`."""
    planner = Recording(DONE, DONE, DONE, Answer(result="the end"))
    revisions = [plan(step("b", "refuse", word="again"), because="It may be free now."), plan(step("c", "echo"))]
    ended, handle = await stages.ended([refuse, echo], planner, by_hand("refuse", *revisions))

    assert (ended.status, ended.replans, [told.turn for told in planner.told]) == (TaskStatus.COMPLETED, 2, [4])
    assert ended_steps(ended) == {"a": FAILED, "b": FAILED, "c": COMPLETED}
    assert [(one.because, one.planner) for one in ended.revisions] == [
        ("", BY_HAND),
        ("It may be free now.", BY_HAND),
        ("", BY_HAND),
    ]
    assert ended.planner == BY_HAND
    assert await kinds(handle) == ["catalogue", "refuse", "replan", "refuse", "replan", "echo", "plan"]


SUM: dict[str, JsonValue] = {"words": [{"$from": "a", "path": "said"}, {"$from": "b"}], "by": "hand"}


async def test_what_a_person_wrote_for_the_end_needs_no_planner(stages: Stages) -> None:
    """An answer is made of results, as arguments are; a rejection may end the task; mistakes are found before."""
    said = step("a", "echo", word="hi"), step("b", "echo", word="ho")
    tasks = [
        Task(text="an answer of results", plan=said, revisions=(Answer(result=SUM),)),
        by_hand("echo", plan(step("b", "echo")), Answer(result={"ok": True}), text="a plan that finished"),
        by_hand("refuse", GiveUp(reason="Then not."), text="give up"),
        by_hand("refuse", Question(text="Which other?"), text="ask"),
        by_hand("refuse", plan(step("a", "refuse")), text="the id of a step that ran, and a rejected call"),
    ]
    planner = Scripts({task.text: [DONE] for task in tasks})
    ended = await stages.each([refuse, echo], planner, *tasks)

    assert [(one.status, one.code, one.result) for one in ended.values()] == [
        (TaskStatus.COMPLETED, None, {"words": ["hi", {"said": "ho"}], "by": "hand"}),
        (TaskStatus.COMPLETED, None, {"ok": True}),
        (TaskStatus.FAILED, "gave_up", None),
        (TaskStatus.ESCALATED, "question", None),
        (TaskStatus.FAILED, "plan_refused", None),
    ]
    assert ended_steps(ended["a plan that finished"]) == {"a": COMPLETED}
    assert planner.told == {}


@pytest.mark.full
async def test_the_planner_goes_on_where_what_was_written_cannot(stages: Stages) -> None:
    """An answer after a rejection would say that all was done, and one of a replaced step has no result to be made of.

    A planner that plans is named, from its own plan on. A step that never started may be written again, under its id.
    """
    again = plan(step("b", "echo", word="b"), step("last", "echo", "b"))
    tasks = [
        by_hand("refuse", Answer(result="all done"), text="passed over"),
        by_hand("refuse", plan(step("b", "echo")), Answer(result={"$from": "a", "path": "said"}), text="replaced"),
        by_hand("refuse", text="named"),
        Task(text="again", plan=(step("a", "refuse"), step("last", "echo", "a")), revisions=(again,)),
    ]
    its_own: Proposals = [DONE, plan(step("b", "refuse", word="b")), plan(step("c", "echo")), Answer(result="its own")]
    scripts = Scripts(
        {
            "passed over": its_own,
            "replaced": [DONE, DONE, Answer(result="the end")],
            "named": [DONE, plan(step("b", "echo")), DONE],
            "again": [DONE] * 3,
        }
    )
    ended = await stages.each([refuse, echo], scripts, *tasks)

    assert {text: (one.status, one.result) for text, one in ended.items()} == {
        "passed over": (TaskStatus.COMPLETED, "its own"),
        "replaced": (TaskStatus.COMPLETED, "the end"),
        "named": (TaskStatus.COMPLETED, "done"),
        "again": (TaskStatus.COMPLETED, "done"),
    }
    assert [one.turn for one in scripts.told["replaced"]] == [3]
    assert ([one.planner for one in ended["named"].revisions], ended["named"].planner) == (
        [BY_HAND, "scripted"],
        "scripted",
    )
    assert ended_steps(ended["again"])["last"] is COMPLETED


BAD_REVISIONS: dict[str, Proposal] = {
    "revisions.1: step 'b': there is no kind 'ecco': did you mean echo?": plan(step("b", "ecco")),
    "revisions.1: step 'b': echo: has no argument 'wrod': did you mean word?": plan(step("b", "echo", wrod="x")),
    "revisions.1: step 'b' needs 'zz'": plan(step("b", "echo", "zz")),
    "revisions.1: the answer refers to 'ab', which does not exist": Answer(result=[{"$from": "a"}, {"$from": "ab"}]),
}


async def test_a_mistake_in_a_later_plan_is_found_before_anything_runs(stages: Stages) -> None:
    """Not in the middle of the task, when effects are applied."""
    tasks = [by_hand("echo", plan(step("aa", "echo", "a")), bad, text=says) for says, bad in BAD_REVISIONS.items()]
    planner = Scripts({task.text: [DONE] for task in tasks})
    ended = await stages.each([echo], planner, *tasks)

    assert {(one.status, one.code, one.spent.tool_calls) for one in ended.values()} == {
        (TaskStatus.FAILED, "plan_refused", 0)
    }
    assert [says for says, one in ended.items() if says not in one.reason] == [] and planner.told == {}
