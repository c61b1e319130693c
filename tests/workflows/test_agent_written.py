"""A hand-written plan with what comes after it, on a real server."""

from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import JsonValue

from replan import Refused, tool
from tests.harness import DONE, plan, step
from tests.workflows.history import kinds
from tests.workflows.props import Recording, Said, Stages, Word, echo
from workflows.account.outcome import Outcome
from workflows.account.records import StepStatus
from workflows.account.task import Task, TaskStatus
from workflows.plans.proposal import BY_HAND, Answer, GiveUp, Proposal, Question


@tool.read
async def refuse(args: Word) -> Said:
    """Be refused."""
    raise Refused("No.")


def by_hand(first: str, *revisions: Proposal, **more: Any) -> Task:
    """A task whose first plan calls the kind `first`."""
    return Task(text="by hand", plan=(step("a", first),), revisions=revisions, **more)


def ended_steps(ended: Outcome) -> dict[str, StepStatus]:
    """How each step ended."""
    return {one.id: one.status for one in ended.steps}


async def test_after_a_rejection_comes_the_next_written_plan(stages: Stages) -> None:
    """Then, as after every hand-written plan, the planner is asked what comes next."""
    planner = Recording(DONE, DONE, DONE, Answer(result="the end"))
    revisions = [plan(step("b", "refuse", word="again"), because="It may be free now."), plan(step("c", "echo"))]
    ended, handle = await stages.ended([refuse, echo], planner, by_hand("refuse", *revisions))
    scheduled = await kinds(handle)

    assert (ended.status, ended.replans, [told.turn for told in planner.told]) == (TaskStatus.COMPLETED, 2, [4])
    assert ended_steps(ended) == {"a": StepStatus.FAILED, "b": StepStatus.FAILED, "c": StepStatus.COMPLETED}
    assert [one.because for one in ended.revisions] == ["", "It may be free now.", ""]
    assert scheduled == ["catalogue", "refuse", "replan", "refuse", "replan", "echo", "plan"]


@pytest.mark.full
async def test_a_plan_that_finished_needs_none_that_was_written_for_its_rejection(stages: Stages) -> None:
    """The next answer ends the task; the planner is not asked."""
    planner = Recording(DONE)
    ended = await stages.run([echo], planner, by_hand("echo", plan(step("b", "echo")), Answer(result={"ok": True})))

    assert (ended.status, ended.result, ended_steps(ended)) == (
        TaskStatus.COMPLETED,
        {"ok": True},
        {"a": StepStatus.COMPLETED},
    )
    assert planner.told == []


@pytest.mark.full
async def test_an_answer_is_passed_over_after_a_rejection(stages: Stages) -> None:
    """It would say that all was done. When nothing is left, the planner is asked, and nothing is played later."""
    planner = Recording(DONE, plan(step("b", "refuse", word="b")), plan(step("c", "echo")), Answer(result="its own"))
    ended = await stages.run([refuse, echo], planner, by_hand("refuse", Answer(result="all done")))

    assert (ended.status, ended.result) == (TaskStatus.COMPLETED, "its own")


@pytest.mark.parametrize(
    ("said", "status", "code"),
    [
        (GiveUp(reason="Then not."), TaskStatus.FAILED, "gave_up"),
        pytest.param(Question(text="Which other?"), TaskStatus.ESCALATED, "question", marks=pytest.mark.full),
    ],
)
async def test_a_person_may_write_that_a_rejection_ends_the_task(
    stages: Stages, said: Proposal, status: TaskStatus, code: str
) -> None:
    """Without a request to the planner."""
    planner = Recording(DONE)
    ended = await stages.run([refuse], planner, by_hand("refuse", said))

    assert (ended.status, ended.code, planner.told) == (status, code, [])


SUM: dict[str, JsonValue] = {"words": [{"$from": "a", "path": "said"}, {"$from": "b"}], "by": "hand"}


async def test_a_written_answer_is_made_of_results(stages: Stages) -> None:
    """Its references are resolved as those of arguments are; the planner is not asked."""
    steps = step("a", "echo", word="hi"), step("b", "echo", word="ho")
    ended, handle = await stages.ended(
        [echo], Recording(DONE), Task(text="by hand", plan=steps, revisions=(Answer(result=SUM),))
    )
    scheduled = await kinds(handle)

    assert (ended.status, ended.result) == (TaskStatus.COMPLETED, {"words": ["hi", {"said": "ho"}], "by": "hand"})
    assert scheduled == ["catalogue", "echo", "echo"]


@pytest.mark.full
async def test_an_answer_whose_step_was_replaced_is_the_planners(stages: Stages) -> None:
    """The written answer has no result to be made of."""
    planner = Recording(DONE, DONE, Answer(result="the end"))
    ended = await stages.run(
        [refuse, echo],
        planner,
        by_hand("refuse", plan(step("b", "echo")), Answer(result={"$from": "a", "path": "said"})),
    )

    assert (ended.status, ended.result, [one.turn for one in planner.told]) == (TaskStatus.COMPLETED, "the end", [3])


BAD_REVISIONS: list[tuple[Proposal, Sequence[str]]] = [
    (plan(step("b", "ecco")), ["revisions.1: step 'b': there is no kind 'ecco': did you mean echo?"]),
    (plan(step("b", "echo", wrod="x")), ["revisions.1: step 'b': echo: has no argument 'wrod': did you mean word?"]),
    (plan(step("b", "echo", "zz")), ["revisions.1: step 'b' needs 'zz'"]),
    (
        Answer(result=[{"$from": "a"}, {"$from": "ab"}]),
        ["revisions.1: the answer refers to 'ab', which does not exist"],
    ),
]


@pytest.mark.parametrize(
    ("bad", "says"), [BAD_REVISIONS[0], *(pytest.param(*one, marks=pytest.mark.full) for one in BAD_REVISIONS[1:])]
)
async def test_a_mistake_in_a_later_plan_is_found_before_anything_runs(
    stages: Stages, bad: Proposal, says: Sequence[str]
) -> None:
    """Not in the middle of the task, when effects are applied."""
    ended, handle = await stages.ended([echo], Recording(DONE), by_hand("echo", plan(step("aa", "echo", "a")), bad))
    scheduled = await kinds(handle)

    assert (ended.status, ended.code, scheduled) == (TaskStatus.FAILED, "plan_refused", ["catalogue"])
    assert [part for part in says if part not in ended.reason] == []


@pytest.mark.full
async def test_a_later_plan_that_cannot_be_run_where_it_is_needed_is_refused(stages: Stages) -> None:
    """The id of a step that ran is taken, and the rejected call is not repeated: that is no request to the planner."""
    planner = Recording(DONE)
    ended = await stages.run([refuse], planner, by_hand("refuse", plan(step("a", "refuse"))))

    assert (ended.status, ended.code, planner.told) == (TaskStatus.FAILED, "plan_refused", [])


@pytest.mark.full
async def test_a_step_that_never_started_may_be_written_again(stages: Stages) -> None:
    """Under its own id, which no call has used."""
    first = (step("a", "refuse"), step("last", "echo", "a"))
    again = plan(step("b", "echo", word="b"), step("last", "echo", "b"))
    ended = await stages.run([refuse, echo], [DONE, DONE, DONE], Task(text="by hand", plan=first, revisions=(again,)))

    assert (ended.status, ended_steps(ended)["last"]) == (TaskStatus.COMPLETED, StepStatus.COMPLETED)


async def test_the_record_of_a_hand_written_plan_says_by_hand(stages: Stages) -> None:
    """In each revision, and of the task, though a planner without a model puts the results together."""
    ended = await stages.run([refuse, echo], Recording(DONE, DONE, DONE), by_hand("refuse", plan(step("b", "echo"))))

    assert ([one.planner for one in ended.revisions], ended.planner) == ([BY_HAND, BY_HAND], BY_HAND)


@pytest.mark.full
async def test_a_planner_that_plans_after_a_hand_written_plan_is_named(stages: Stages) -> None:
    """From its own plan on."""
    ended = await stages.run([refuse, echo], Recording(DONE, plan(step("b", "echo")), DONE), by_hand("refuse"))

    assert ([one.planner for one in ended.revisions], ended.planner) == ([BY_HAND, "recording"], "recording")
