"""Replan, don't retry: what follows a refusal of the world, on a real server."""

import asyncio
from typing import Any

import pytest
from pydantic import JsonValue

from activities.boundary.attempt import FaultRaised
from replan import NeedsPerson, Refused, Tool, Unreachable, tool
from tests.harness import DONE, Proposals, plan, step
from tests.workflows.history import kinds
from tests.workflows.props import Recording, Said, Stages, Word, echo
from workflows.account.records import StepStatus
from workflows.account.task import TaskStatus
from workflows.faults.fault import Code, Fault


class World:
    """A list of words that are taken, what looks at it, and what takes more."""

    def __init__(self, *taken: str, changes_at: int = 0) -> None:
        """Begin with these words taken; just before the look of that number, all become free."""
        self.taken = set(taken)
        self.changes_at = changes_at
        self.called = list[str]()

    def tools(self) -> list[Tool[..., Any]]:
        """`look` reads, `take` is refused what is taken, `touch` has an effect and is never refused."""

        @tool.read
        async def look(args: Word) -> Said:
            """Look."""
            self.called.append(f"look {args.word}")
            if self.called.count(f"look {args.word}") == self.changes_at:
                self.taken.clear()
            return Said(said=f"taken: {sorted(self.taken)}")

        @tool.idempotent(observe=look)
        async def take(args: Word) -> Said:
            """Take a word, unless it is taken."""
            self.called.append(f"take {args.word}")
            if args.word in self.taken:
                raise Refused("It is taken.", code="conflict", observed={"taken": sorted(self.taken)})
            return Said(said=args.word)

        @tool.idempotent
        async def touch(args: Word) -> Said:
            """Change something else."""
            self.called.append(f"touch {args.word}")
            return Said(said=args.word)

        return [look, take, touch, echo]


async def test_a_refusal_leads_to_one_attempt_one_look_and_one_new_plan(stages: Stages) -> None:
    """No retry; finished steps are kept and not run again; what needed the refused step is dropped."""
    world = World("nine")
    script: Proposals = [
        plan(step("first", "echo", word="x"), step("a", "take", "first", word="nine"), step("c", "echo", "a")),
        plan(step("b", "take", "first", word="ten")),
        DONE,
    ]
    ended, handle = await stages.ended(world.tools(), script)
    scheduled = await kinds(handle)

    assert scheduled == ["catalogue", "plan", "echo", "take", "look", "replan", "take", "plan"]
    assert [(one.id, one.status, one.revision, one.attempts) for one in ended.steps] == [
        ("first", StepStatus.COMPLETED, 1, 1),
        ("a", StepStatus.FAILED, 1, 1),
        ("c", StepStatus.SKIPPED, 1, 0),
        ("b", StepStatus.COMPLETED, 2, 1),
    ]


async def test_the_planner_is_told_the_fault_the_results_and_what_the_world_looks_like_now(stages: Stages) -> None:
    """A new plan can only be better when its planner knows more than before."""
    planner = Recording(
        plan(step("first", "echo", word="x"), step("a", "take", "first", word="nine")),
        plan(step("b", "take", word="ten")),
        DONE,
    )
    await stages.run(World("nine", "two").tools(), planner, "take a word")

    told = planner.told[1]
    assert (told.text, told.turn, told.calls_left) == ("take a word", 2, 97)
    assert [(one.step_id, one.code, one.observed) for one in told.faults] == [
        ("a", "conflict", {"taken": ["nine", "two"]})
    ]
    assert [(one.step.id, one.status, one.result) for one in told.records] == [
        ("first", "completed", {"said": "x"}),
        ("a", "failed", None),
    ]
    assert [(one.step_id, one.kind, one.args, one.value, one.stale) for one in told.observations] == [
        ("a", "look", {"word": "nine"}, {"said": "taken: ['nine', 'two']"}, False)
    ]


@pytest.mark.full
async def test_the_planner_is_not_told_of_what_time_has_cured(stages: Stages) -> None:
    """A hiccup before the refusal is in the record of the task, and no reason for a new plan."""
    called = []

    @tool.read
    async def flaky(args: Word) -> Said:
        """Be cut off, then be refused."""
        called.append(args)
        raise Unreachable("The line is cut.") if len(called) == 1 else Refused("No.")

    planner = Recording(plan(step("a", "flaky")), DONE)
    ended = await stages.run([flaky], planner)

    assert [one.code for one in ended.faults] == ["unreachable", "refused"]
    assert [one.code for one in planner.told[1].faults] == ["refused"]


async def test_the_new_plan_says_what_it_is_built_on(stages: Stages) -> None:
    """An accepted plan names the refused steps, the kept ones, and what was looked at; a mere continuation does not."""
    script: Proposals = [
        plan(step("first", "echo", word="x"), step("a", "take", "first", word="nine"), because="why not"),
        plan(step("b", "take", word="ten"), because="Ten is free."),
        plan(step("c", "echo")),
        DONE,
    ]
    ended = await stages.run(World("nine").tools(), script)

    assert [one.model_dump(exclude={"planner", "at"}) for one in ended.revisions] == [
        {"number": 1, "because": "why not", "refused": (), "kept": (), "looked": (), "turn": 1},
        {"number": 2, "because": "Ten is free.", "refused": ("a",), "kept": ("first",), "looked": ("look",), "turn": 2},
        {"number": 3, "because": "", "refused": (), "kept": ("first", "b"), "looked": (), "turn": 3},
    ]


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (Refused("No."), "look failed (refused): No."),
        pytest.param(Unreachable("Cut."), "look failed (unreachable): Cut.", marks=pytest.mark.full),
        pytest.param(NeedsPerson("No key."), "look failed (needs_person): No key.", marks=pytest.mark.full),
        pytest.param(KeyError("bug"), "look failed (bug): ", marks=pytest.mark.full),
        pytest.param(
            FaultRaised(Fault.of(Code.CIRCUIT_OPEN, "Left alone.", retry_after=61)),
            "look failed (circuit_open): Left",
            marks=pytest.mark.full,
        ),
    ],
)
async def test_where_looking_fails_the_fault_itself_is_the_stale_view(
    stages: Stages, broken: Exception, why: str
) -> None:
    """A planner is told how old its view is, and why; a look that fails does not end the task."""

    @tool.read(retry="once")
    async def look(args: Word) -> Said:
        """Fail to look."""
        raise broken

    @tool.idempotent(observe=look)
    async def take(args: Word) -> Said:
        """Be refused."""
        raise Refused("It is taken.", observed={"taken": "nine"})

    planner = Recording(plan(step("a", "take", word="nine")), plan(step("b", "echo")), DONE)
    ended = await stages.run([look, take, echo], planner)

    assert (ended.status, ended.revisions[1].looked) == (TaskStatus.COMPLETED, ())
    [seen] = planner.told[1].observations
    assert (seen.kind, seen.value, seen.stale) == ("take", {"taken": "nine"}, True)
    assert seen.unread.startswith(why)


@pytest.mark.full
async def test_every_attempt_of_a_look_is_counted(stages: Stages) -> None:
    """Observations are tool calls too: one for the refusal, four for a look that failed each time."""
    called = []

    @tool.read
    async def look(args: Word) -> Said:
        """Fail to look."""
        called.append(args)
        raise Unreachable("It failed.", code="server_error")

    @tool.idempotent(observe=look)
    async def take(args: Word) -> Said:
        """Be refused."""
        raise Refused("It is taken.")

    ended = await stages.run([look, take], [plan(step("a", "take")), DONE])

    assert (len(called), ended.spent.tool_calls) == (4, 5)


@pytest.mark.full
async def test_a_kind_that_is_down_is_not_looked_with(stages: Stages) -> None:
    """What may not be used any more is not worth four attempts of looking either: the view is the fault's own."""
    called = []

    @tool.read(retry="once")
    async def look(args: Word) -> Said:
        """Never get through."""
        called.append(args)
        raise Unreachable("The line is cut.")

    @tool.idempotent(observe=look)
    async def take(args: Word) -> Said:
        """Be refused."""
        raise Refused("It is taken.")

    planner = Recording(plan(step("a", "look")), plan(step("b", "take")), DONE)
    await stages.run([look, take], planner)

    [seen] = planner.told[2].observations
    assert (seen.step_id, seen.stale, seen.unread) == ("b", True, "look cannot be used any more")
    assert len(called) == 1


async def test_siblings_that_run_finish_and_are_kept_and_nothing_new_is_started(stages: Stages) -> None:
    """A refusal drains the plan: what runs may end, what only became ready is left to the next plan."""
    refused = asyncio.Event()

    @tool.read
    async def no(args: Word) -> Said:
        """Be refused once the sibling runs."""
        await running.wait()
        refused.set()
        raise Refused("No.")

    running = asyncio.Event()

    @tool.read
    async def slow(args: Word) -> Said:
        """End only after the sibling was refused, and a little later."""
        running.set()
        await refused.wait()
        await asyncio.sleep(0.5)
        return Said(said="kept")

    steps = plan(step("a", "no"), step("b", "slow"), step("c", "echo", "b", word="new"))
    ended = await stages.run([no, slow, echo], [steps, DONE])

    assert [(one.id, one.status, one.result) for one in ended.steps] == [
        ("a", StepStatus.FAILED, None),
        ("b", StepStatus.COMPLETED, {"said": "kept"}),
        ("c", StepStatus.SKIPPED, None),
    ]


async def test_several_refusals_of_one_plan_lead_to_one_replan(stages: Stages) -> None:
    """All faults are told at once; what is looked at twice is looked at once."""
    world = World("nine")
    planner = Recording(plan(step("a", "take", word="nine"), step("b", "take", word="nine")), DONE)
    ended = await stages.run(world.tools(), planner)

    assert ended.replans == 1
    assert [(one.step_id, one.kind) for one in planner.told[1].observations] == [("a", "look"), ("b", "look")]
    assert sorted(world.called) == ["look nine", "take nine", "take nine"]


@pytest.mark.full
async def test_refusals_are_told_in_the_order_of_the_plan(stages: Stages) -> None:
    """Which of two siblings is refused first is chance; what the planner and the next plan say is not."""
    second_was_refused = asyncio.Event()

    @tool.read
    async def refuse(args: Word) -> Said:
        """Be refused; the first step only after the second."""
        if args.word == "first":
            await second_was_refused.wait()
            await asyncio.sleep(1)  # the other's fault is on its way to the server
        second_was_refused.set()
        raise Refused("No.")

    script: Proposals = [
        plan(step("a", "refuse", word="first"), step("b", "refuse", word="second")),
        plan(step("c", "echo")),
        DONE,
    ]
    ended = await stages.run([refuse, echo], script)

    assert [one.step_id for one in ended.faults] == ["b", "a"]
    assert ended.revisions[1].refused == ("a", "b")


@pytest.mark.full
async def test_a_continuation_of_a_finished_plan_is_no_replan(stages: Stages) -> None:
    """A planner that goes on after a finished plan has not replanned."""
    script: Proposals = [
        plan(step("a", "echo", word="x")),
        plan(step("b", "echo", word={"$from": "a", "path": "said"})),
        DONE,
    ]
    ended, handle = await stages.ended([echo], script, replans=0)
    scheduled = await kinds(handle)

    assert (ended.status, ended.replans, len(ended.revisions)) == (TaskStatus.COMPLETED, 0, 2)
    assert "replan" not in scheduled


def nested(refers: bool) -> JsonValue:
    """The refused argument as such, or as a reference to a finished step that holds it."""
    return {"$from": "nine", "path": "said"} if refers else "nine"


@pytest.mark.parametrize("refers", [pytest.param(False, marks=pytest.mark.full), True])
async def test_a_call_that_was_refused_is_not_proposed_again(stages: Stages, refers: bool) -> None:
    """The repeat guard knows a call by its resolved arguments, and sends the plan back before it is scheduled."""
    world = World("nine")
    planner = Recording(
        plan(step("nine", "echo", word="nine"), step("a", "take", "nine", word="nine")),
        plan(step("b", "take", word=nested(refers))),
        DONE,
    )
    await stages.run(world.tools(), planner)

    assert [one.text for one in planner.told[2].rejected] == [
        "step 'b' repeats a call that failed, and nothing has changed since: change the call"
    ]
    assert world.called.count("take nine") == 1


@pytest.mark.full
async def test_a_call_that_was_refused_is_not_made_again_when_its_arguments_come_late(stages: Stages) -> None:
    """What a proposal hides behind a step that has not run yet is caught when it starts."""
    world = World("nine")
    script: Proposals = [
        plan(step("a", "take", word="nine")),
        plan(step("hide", "echo", word="nine"), step("b", "take", word={"$from": "hide", "path": "said"})),
        DONE,
    ]
    ended = await stages.run(world.tools(), script)

    assert [(one.step_id, one.code, one.attempt) for one in ended.faults] == [
        ("a", "conflict", 1),
        ("b", "repeated_call", 0),
    ]
    assert world.called.count("take nine") == 1


@pytest.mark.full
async def test_a_refused_call_may_be_made_again_after_an_effect(stages: Stages) -> None:
    """The task itself has changed the world since, so the answer may be another."""
    world = World("nine")
    script: Proposals = [
        plan(step("a", "take", word="nine")),
        plan(step("t", "touch"), step("b", "take", "t", word="nine")),
        DONE,
    ]
    await stages.run(world.tools(), script)

    assert world.called.count("take nine") == 2


async def test_a_refused_call_may_be_made_again_when_the_world_looks_different(stages: Stages) -> None:
    """Somebody else changed the world: the look after the refused repetition shows it, and the next plan may try."""
    world = World("nine", changes_at=2)
    script: Proposals = [
        plan(step("a", "take", word="nine")),
        plan(step("hide", "echo", word="nine"), step("b", "take", word={"$from": "hide", "path": "said"})),
        plan(step("c", "take", word="nine")),
        DONE,
    ]
    ended = await stages.run(world.tools(), script)

    assert [(one.id, one.status) for one in ended.steps][-1] == ("c", StepStatus.COMPLETED)
    assert world.called == ["take nine", "look nine", "look nine", "take nine"]
