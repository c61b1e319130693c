"""Replan, don't retry: what follows a refusal of the world, on a real server."""

import asyncio
from typing import Any

import pytest
from pydantic import JsonValue

from activities.boundary.attempt import FaultRaised
from replan import NeedsPerson, Refused, Tool, Unreachable, tool
from tests.harness import DONE, Proposals, plan, step
from tests.workflows.history import kinds
from tests.workflows.props import Recording, Said, Scripts, Stages, Word, echo, played
from workflows.account.records import StepStatus
from workflows.account.task import TaskStatus
from workflows.faults.fault import Code, Fault

CUT, TAKEN = Unreachable("The line is cut."), Refused("It is taken.")


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

        touch = played("touch", None, declare=tool.idempotent, called=self.called)
        return [look, take, touch, echo]


async def test_a_refusal_leads_to_one_attempt_one_look_and_one_new_plan(stages: Stages) -> None:
    """No retry; finished steps are kept and not run again; what needed the refused step is dropped.

    The planner is told the fault, the results and what the world looks like now; a plan says what it is built on,
    a mere continuation does not.
    """
    planner = Recording(
        plan(
            *(step("first", "echo", word="x"), step("a", "take", "first", word="nine"), step("c", "echo", "a")),
            because="why not",
        ),
        plan(step("b", "take", "first", word="ten"), because="Ten is free."),
        plan(step("d", "echo")),
        DONE,
    )
    ended, handle = await stages.ended(World("nine", "two").tools(), planner, "take a word")
    told = planner.told[1]

    assert await kinds(handle) == [
        *("catalogue", "plan", "echo", "take", "look", "replan", "take", "plan", "echo", "plan"),
    ]
    assert [(one.id, one.status, one.revision, one.attempts) for one in ended.steps] == [
        ("first", StepStatus.COMPLETED, 1, 1),
        ("a", StepStatus.FAILED, 1, 1),
        ("c", StepStatus.SKIPPED, 1, 0),
        ("b", StepStatus.COMPLETED, 2, 1),
        ("d", StepStatus.COMPLETED, 3, 1),
    ]
    assert (told.text, told.turn, told.calls_left) == ("take a word", 2, 97)
    assert [(one.step_id, one.code, one.observed) for one in told.faults] == [
        ("a", "conflict", {"taken": ["nine", "two"]})
    ]
    assert [(one.step.id, one.status, one.result) for one in told.records][:2] == [
        ("first", "completed", {"said": "x"}),
        ("a", "failed", None),
    ]
    assert [(one.step_id, one.kind, one.args, one.value, one.stale) for one in told.observations] == [
        ("a", "look", {"word": "nine"}, {"said": "taken: ['nine', 'two']"}, False)
    ]
    assert [one.model_dump(exclude={"planner", "at"}) for one in ended.revisions] == [
        {"number": 1, "because": "why not", "refused": (), "kept": (), "looked": (), "turn": 1},
        {"number": 2, "because": "Ten is free.", "refused": ("a",), "kept": ("first",), "looked": ("look",), "turn": 2},
        {"number": 3, "because": "", "refused": (), "kept": ("first", "b"), "looked": (), "turn": 3},
    ]


BROKEN: dict[str, Exception] = {
    "look failed (refused): No.": Refused("No."),
    "look failed (unreachable): Cut.": Unreachable("Cut."),
    "look failed (needs_person): No key.": NeedsPerson("No key."),
    "look failed (bug): ": KeyError("bug"),
    "look failed (circuit_open): Left": FaultRaised(Fault.of(Code.CIRCUIT_OPEN, "Left alone.", retry_after=61)),
}


async def test_where_looking_fails_the_fault_itself_is_the_stale_view(stages: Stages) -> None:
    """A planner is told how old its view is, and why; a look that fails does not end the task."""
    tools: list[Tool[..., Any]] = [echo]
    for number, error in enumerate(BROKEN.values()):
        tools.append(played(f"look{number}", error, declare=tool.read(retry="once")))
        no = Refused("It is taken.", observed={"taken": "nine"})
        tools.append(played(f"take{number}", no, declare=tool.idempotent(observe=tools[-1])))
    scripts = Scripts(
        {
            why: [plan(step("a", f"take{number}", word="nine")), plan(step("b", "echo")), DONE]
            for number, why in enumerate(BROKEN)
        }
    )
    ended = await stages.each(tools, scripts)

    for number, (why, one) in enumerate(ended.items()):
        assert (one.status, one.revisions[1].looked) == (TaskStatus.COMPLETED, ()), why
        [seen] = scripts.told[why][1].observations
        assert (seen.kind, seen.value, seen.stale) == (f"take{number}", {"taken": "nine"}, True), why
        assert seen.unread.startswith(why.replace("look", f"look{number}", 1))


@pytest.mark.full
async def test_a_look_is_made_and_counted_like_any_call(stages: Stages) -> None:
    """One tool call for the refusal, four for a look that failed each time; none with a kind that is down.

    A hiccup before the refusal is in the record of the task, and no reason for a new plan.
    """
    called = list[str]()
    look = played("look", Unreachable("It failed.", code="server_error"), called=called)
    once = played("once", CUT, declare=tool.read(retry="once"), called=called)
    tools = [
        *(look, once, played("flaky", CUT, Refused("No."))),
        played("take", TAKEN, declare=tool.idempotent(observe=look)),
        played("take_once", TAKEN, declare=tool.idempotent(observe=once)),
    ]
    scripts = Scripts(
        {
            "counted": [plan(step("a", "take")), DONE],
            "down": [plan(step("a", "once")), plan(step("b", "take_once")), DONE],
            "cured": [plan(step("a", "flaky")), DONE],
        }
    )
    ended = await stages.each(tools, scripts)
    [seen] = scripts.told["down"][2].observations

    assert (sorted(called), ended["counted"].spent.tool_calls) == (["look"] * 4 + ["once"], 5)
    assert (seen.step_id, seen.stale, seen.unread) == ("b", True, "once cannot be used any more")
    assert [one.code for one in ended["cured"].faults] == ["unreachable", "refused"]
    assert [one.code for one in scripts.told["cured"][1].faults] == ["refused"]


async def test_siblings_that_run_finish_and_are_kept_and_nothing_new_is_started(stages: Stages) -> None:
    """A refusal drains the plan: what runs may end, what only became ready is left to the next plan."""
    running, refused = asyncio.Event(), asyncio.Event()

    @tool.read
    async def no(args: Word) -> Said:
        """Be refused once the sibling runs."""
        await running.wait()
        refused.set()
        raise Refused("No.")

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

    both = plan(step("a", "refuse", word="first"), step("b", "refuse", word="second"))
    ended = await stages.run([refuse, echo], [both, plan(step("c", "echo")), DONE])

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

    assert (ended.status, ended.replans, len(ended.revisions)) == (TaskStatus.COMPLETED, 0, 2)
    assert "replan" not in await kinds(handle)


@pytest.mark.parametrize("refers", [pytest.param(False, marks=pytest.mark.full), True])
async def test_a_call_that_was_refused_is_not_proposed_again(stages: Stages, refers: bool) -> None:
    """The repeat guard knows a call by its resolved arguments, and sends the plan back before it is scheduled."""
    world = World("nine")
    word: JsonValue = {"$from": "nine", "path": "said"} if refers else "nine"
    planner = Recording(
        plan(step("nine", "echo", word="nine"), step("a", "take", "nine", word="nine")),
        plan(step("b", "take", word=word)),
        DONE,
    )
    await stages.run(world.tools(), planner)

    assert [one.text for one in planner.told[2].rejected] == [
        "step 'b' repeats a call that failed, and nothing has changed since: change the call"
    ]
    assert world.called.count("take nine") == 1


HIDDEN = plan(step("hide", "echo", word="nine"), step("b", "take", word={"$from": "hide", "path": "said"}))
"""A repetition whose arguments come late."""


@pytest.mark.parametrize(
    ("changes_at", "script", "called"),
    [
        (0, [HIDDEN, DONE], ["take nine", "look nine", "look nine"]),
        (2, [HIDDEN, plan(step("c", "take", word="nine")), DONE], ["take nine", "look nine", "look nine", "take nine"]),
        (0, [plan(step("t", "touch"), step("b", "take", "t", word="nine")), DONE], None),
    ],
    ids=["it is caught when it starts", "not when the world looks different", "not after an effect"],
)
async def test_a_refused_call_may_be_made_again_when_the_world_has_changed(
    stages: Stages, changes_at: int, script: Proposals, called: list[str] | None
) -> None:
    """By the task itself, or by somebody else: the look after the refused repetition shows it."""
    world = World("nine", changes_at=changes_at)
    ended = await stages.run(world.tools(), [plan(step("a", "take", word="nine")), *script])

    if called is None:
        assert world.called.count("take nine") == 2
        return
    assert world.called == called
    assert [(one.step_id, one.code, one.attempt) for one in ended.faults] == [
        ("a", "conflict", 1),
        ("b", "repeated_call", 0),
    ]
    assert changes_at == 0 or (ended.steps[-1].id, ended.steps[-1].status) == ("c", StepStatus.COMPLETED)
