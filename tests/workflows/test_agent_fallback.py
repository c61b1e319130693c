"""What follows the last retry, on a real server: another kind, or a plan without this one."""

from pathlib import Path

import pytest
from temporalio.client import Client

from replan import Refused, Transaction, Unreachable, tool
from tests.harness import DONE, Proposals, outcome, plan, staged, step
from tests.workflows.history import calls, kinds
from tests.workflows.props import Recording, Said, Word, echo
from workflows.account.records import StepStatus
from workflows.account.task import TaskStatus
from workflows.plans.catalogue import Effect


@tool.read(retry="once")
async def cut(args: Word) -> Said:
    """Never get through."""
    raise Unreachable("The line is cut.")


@tool.read(retry="once", fallback=echo)
async def cut_or_echo(args: Word) -> Said:
    """Never get through, but there is an echo."""
    raise Unreachable("The line is cut.")


async def test_the_retries_are_used_up_before_the_fallback_takes_over(client: Client, tmp_path: Path) -> None:
    """Three retries, then the other kind with the same arguments and retries of its own, and everybody can see it."""
    called = list[str]()

    @tool.read
    async def spare(args: Word) -> Said:
        """Get through the second time."""
        called.append("spare")
        if called.count("spare") == 1:
            raise Unreachable("The line is cut.")
        return Said(said=args.word)

    @tool.read(fallback=spare)
    async def main(args: Word) -> Said:
        """Never get through."""
        called.append("main")
        raise Unreachable("The line is cut.")

    script: Proposals = [plan(step("a", "main", word="hi")), DONE]
    async with staged(client, tmp_path, [main, spare], script) as stage:
        ended = await stage.run()

    done = ended.steps[0]
    assert called == ["main"] * 4 + ["spare"] * 2
    assert (done.attempts, done.kind, done.is_fallback, done.result) == (6, "spare", True, {"said": "hi"})
    assert [one.decision for one in ended.faults] == ["retry"] * 3 + ["fallback", "retry"]


async def test_a_fallback_has_a_key_and_a_title_of_its_own(client: Client, tmp_path: Path) -> None:
    """Another kind is another call: it must not find the outcome of the first one under its key."""
    async with staged(client, tmp_path, [cut_or_echo, echo], [plan(step("a", "cut_or_echo", word="x")), DONE]) as stage:
        handle = await stage.start()
        await outcome(handle)
        first, second = (await calls(handle))[2:4]

    assert (first.header["key"].split("/")[1], second.header["key"].split("/")[1]) == ("a", "a:echo")
    assert (first.summary, second.summary) == ("plan 1: x", "plan 1: x (instead of cut_or_echo)")


async def test_the_effect_of_a_step_is_that_of_the_kind_that_did_it(client: Client, tmp_path: Path) -> None:
    """A fallback that changes the world is recorded as such, and the repeat guard knows that the world changed."""
    called = []

    @tool.transactional
    async def touch(args: Word, tx: Transaction) -> Said:
        """Change something."""
        return Said(said="touched")

    @tool.idempotent(retry="once", fallback=touch)
    async def cached(args: Word) -> Said:
        """Never answer."""
        raise Unreachable("The line is cut.")

    @tool.idempotent
    async def take(args: Word) -> Said:
        """Be refused the first time."""
        called.append(args)
        if len(called) == 1:
            raise Refused("It is taken.")
        return Said(said="taken")

    script: Proposals = [
        plan(step("a", "take")),
        plan(step("b", "cached")),
        plan(step("c", "take")),
        DONE,
    ]
    async with staged(client, tmp_path, [touch, cached, take], script) as stage:
        ended = await stage.run()

    assert {one.id: (one.effect, one.status) for one in ended.steps} == {
        "a": (Effect.IDEMPOTENT, StepStatus.FAILED),
        "b": (Effect.TRANSACTIONAL, StepStatus.COMPLETED),
        "c": (Effect.IDEMPOTENT, StepStatus.COMPLETED),
    }


async def test_without_a_fallback_the_next_plan_does_without_the_kind(client: Client, tmp_path: Path) -> None:
    """The kind is marked down, the planner is told, and a proposal that uses it all the same goes back."""
    planner = Recording(plan(step("a", "cut")), plan(step("b", "cut")), plan(step("c", "echo")), DONE)
    async with staged(client, tmp_path, [cut, echo], planner) as stage:
        handle = await stage.start()
        ended = await outcome(handle)
        scheduled = await kinds(handle)

    assert scheduled == ["catalogue", "plan", "cut", "replan", "replan", "echo", "plan"]
    assert [one.down for one in planner.told] == [(), ("cut",), ("cut",), ("cut",)]
    assert [one.text for one in planner.told[2].rejected] == [
        "step 'b': cut is down, its retries are used up: use another kind"
    ]
    assert ended.status is TaskStatus.COMPLETED


@pytest.mark.full
async def test_exhausted_retries_go_to_a_person_when_no_replan_is_left(client: Client, tmp_path: Path) -> None:
    """No fallback and no other plan: only a person can help."""
    async with staged(client, tmp_path, [cut], [plan(step("a", "cut"))]) as stage:
        ended = await stage.run(replans=0)

    assert (ended.status, ended.code, ended.faults[-1].decision) == (TaskStatus.ESCALATED, "unreachable", "escalate")


@pytest.mark.full
async def test_a_kind_that_is_down_is_no_fallback_any_more(client: Client, tmp_path: Path) -> None:
    """What may not be used in this task may not come back through another kind's fallback."""
    called = []

    @tool.read(retry="once")
    async def last(args: Word) -> Said:
        """Never get through."""
        called.append(args)
        raise Unreachable("The line is cut.")

    @tool.read(retry="once", fallback=last)
    async def first(args: Word) -> Said:
        """Never get through."""
        raise Unreachable("The line is cut.")

    script: Proposals = [plan(step("a", "last", word="x")), plan(step("b", "first", word="y")), DONE]
    async with staged(client, tmp_path, [first, last], script) as stage:
        ended = await stage.run()

    assert [(one.step_id, one.source, one.decision) for one in ended.faults] == [
        ("a", "last", "replan"),
        ("b", "first", "replan"),
    ]
    assert len(called) == 1


@pytest.mark.full
async def test_a_fallback_does_not_repeat_a_call_that_was_refused(client: Client, tmp_path: Path) -> None:
    """The repeat guard looks at every call before it is made, whoever chose its kind."""
    called = []

    @tool.read
    async def refusing(args: Word) -> Said:
        """Be refused."""
        called.append(args.word)
        raise Refused("No.")

    @tool.read(retry="once", fallback=refusing)
    async def first(args: Word) -> Said:
        """Never get through."""
        raise Unreachable("The line is cut.")

    script: Proposals = [plan(step("a", "refusing", word="x")), plan(step("b", "first", word="x")), DONE]
    async with staged(client, tmp_path, [first, refusing], script) as stage:
        ended = await stage.run()

    assert [(one.step_id, one.code) for one in ended.faults] == [
        ("a", "refused"),
        ("b", "unreachable"),
        ("b", "repeated_call"),
    ]
    assert called == ["x"]
