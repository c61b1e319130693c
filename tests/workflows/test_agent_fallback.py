"""What follows the last retry, on a real server: another kind, or a plan without this one."""

import pytest

from replan import Refused, Transaction, Unreachable, tool
from tests.harness import DONE, Proposals, plan, step
from tests.workflows.history import calls, kinds
from tests.workflows.props import Recording, Said, Stages, Word, echo, played
from workflows.account.records import StepStatus
from workflows.account.task import TaskStatus
from workflows.plans.catalogue import Effect

CUT = Unreachable("The line is cut.")
cut = played("cut", CUT, declare=tool.read(retry="once"))


async def test_the_retries_are_used_up_before_the_fallback_takes_over(stages: Stages) -> None:
    """Three retries, then the other kind with the same arguments and retries of its own, and everybody can see it.

    It is another call, with a key and a title of its own: it must not find the outcome of the first one under its key.
    """
    called = list[str]()
    spare = played("spare", CUT, None, called=called)
    main = played("main", CUT, declare=tool.read(fallback=spare), called=called)
    ended, handle = await stages.ended([main, spare], [plan(step("a", "main", word="hi")), DONE])
    first, second = (await calls(handle))[2:4]

    done = ended.steps[0]
    assert called == ["main hi"] * 4 + ["spare hi"] * 2
    assert (done.attempts, done.kind, done.is_fallback, done.result) == (6, "spare", True, {"said": "hi"})
    assert [one.decision for one in ended.faults] == ["retry"] * 3 + ["fallback", "retry"]
    assert (first.header["key"].split("/")[1], second.header["key"].split("/")[1]) == ("a", "a:spare")
    assert (first.summary, second.summary) == ("plan 1: hi", "plan 1: hi (instead of main)")


async def test_the_effect_of_a_step_is_that_of_the_kind_that_did_it(stages: Stages) -> None:
    """A fallback that changes the world is recorded as such, and the repeat guard knows that the world changed."""

    @tool.transactional
    async def touch(args: Word, tx: Transaction) -> Said:
        """Change something."""
        return Said(said="touched")

    cached = played("cached", CUT, declare=tool.idempotent(retry="once", fallback=touch))
    take = played("take", Refused("It is taken."), "taken", declare=tool.idempotent)
    script: Proposals = [plan(step("a", "take")), plan(step("b", "cached")), plan(step("c", "take")), DONE]
    ended = await stages.run([touch, cached, take], script)

    assert {one.id: (one.effect, one.status) for one in ended.steps} == {
        "a": (Effect.IDEMPOTENT, StepStatus.FAILED),
        "b": (Effect.TRANSACTIONAL, StepStatus.COMPLETED),
        "c": (Effect.IDEMPOTENT, StepStatus.COMPLETED),
    }


async def test_without_a_fallback_the_next_plan_does_without_the_kind(stages: Stages) -> None:
    """The kind is marked down, the planner is told, and a proposal that uses it all the same goes back."""
    planner = Recording(plan(step("a", "cut")), plan(step("b", "cut")), plan(step("c", "echo")), DONE)
    ended, handle = await stages.ended([cut, echo], planner)

    assert await kinds(handle) == ["catalogue", "plan", "cut", "replan", "replan", "echo", "plan"]
    assert [one.down for one in planner.told] == [(), ("cut",), ("cut",), ("cut",)]
    assert [one.text for one in planner.told[2].rejected] == [
        "step 'b': cut is down, its retries are used up: use another kind"
    ]
    assert ended.status is TaskStatus.COMPLETED


@pytest.mark.full
async def test_a_fallback_is_no_way_round_what_the_task_knows(stages: Stages) -> None:
    """A kind that is down may not come back as another's fallback, and the repeat guard looks at each call.

    Without a fallback and another plan, only a person can help.
    """
    called = list[str]()
    last = played("last", CUT, declare=tool.read(retry="once"), called=called)
    refusing = played("refusing", Refused("No."), called=called)
    kinds = [
        *(last, refusing, cut),
        played("or_last", CUT, declare=tool.read(retry="once", fallback=last)),
        played("or_refusing", CUT, declare=tool.read(retry="once", fallback=refusing)),
    ]
    scripts: dict[str, Proposals] = {
        "down": [plan(step("a", "last", word="x")), plan(step("b", "or_last", word="y")), DONE],
        "refused": [plan(step("a", "refusing", word="x")), plan(step("b", "or_refusing", word="x")), DONE],
    }
    ended = await stages.each(kinds, scripts)
    alone = await stages.run(kinds, [plan(step("a", "cut"))], replans=0)

    assert {text: [(one.step_id, one.source, one.code) for one in task.faults] for text, task in ended.items()} == {
        "down": [("a", "last", "unreachable"), ("b", "or_last", "unreachable")],
        "refused": [
            ("a", "refusing", "refused"),
            ("b", "or_refusing", "unreachable"),
            ("b", "refusing", "repeated_call"),
        ],
    }
    assert [one.decision for one in ended["down"].faults] == ["replan", "replan"]
    assert sorted(called) == ["last x", "refusing x"]
    assert (alone.status, alone.code, alone.faults[-1].decision) == (TaskStatus.ESCALATED, "unreachable", "escalate")
