"""What a planner may propose, on a real server: the checks before anything is scheduled, and the other answers."""

import asyncio
import gc
from collections.abc import Mapping, Sequence

import pytest
from pydantic import BaseModel, JsonValue

from activities.toolbox.declare.kind import Kind
from replan import Busy, NeedsPerson, Refused, Unreachable, tool
from tests.harness import DONE, Proposals, outcome, plan, step
from tests.workflows.history import Timer, calls, timers, until
from tests.workflows.props import Recording, Said, Scripts, Stages, echo, played
from workflows.account.records import StepStatus
from workflows.account.task import Task, TaskStatus
from workflows.limits.budget import Limits
from workflows.planning.situation import Situation
from workflows.plans.proposal import Answer, GiveUp, NewSteps, Question, Step

DEEP: JsonValue = "x"
for _ in range(25):
    DEEP = [DEEP]


class Meeting(BaseModel):
    who: str
    minutes: int


@tool.read
async def meet(args: Meeting) -> Said:
    """Meet somebody."""
    return Said(said=args.who)


BAD_PLANS: dict[str, tuple[list[Step], Sequence[str]]] = {
    "unknown kind": ([step("a", "ecco", word="x")], ["step 'a': there is no kind 'ecco': did you mean echo?"]),
    "nothing near": ([step("a", "qqqq")], ["step 'a': there is no kind 'qqqq': there are echo, meet"]),
    "cycle": ([step("a", "echo", "b"), step("b", "echo", "a")], ["steps need each other in a circle"]),
    "missing need": ([step("a", "echo", "aa")], ["step 'a' needs 'aa', which does not exist: leave it out"]),
    "missing reference": ([step("b", "echo", word={"$from": "zz"})], ["step 'b' needs 'zz', which does not exist"]),
    "wrong arguments": ([step("a", "meet", who="Ada", minutes="many")], ["step 'a': meet: 'minutes' "]),
    "no arguments": ([step("a", "meet")], ["step 'a': meet: 'who' ", "'minutes' "]),
    "duplicate ids": ([step("a", "echo"), step("a", "echo")], ["step id 'a' is used twice"]),
    "an id with a space": ([step("a b", "echo")], ["step id 'a b' must be a letter, then letters"]),
    "too deep": ([step("a", "echo", word=DEEP)], ["step 'a': its arguments are nested deeper than 20"]),
    "no steps": ([], ["the plan has no steps"]),
    "too many steps": ([step(f"a{number}", "echo") for number in range(51)], ["the plan has 51 steps, more than 50"]),
    "too large": ([step("a", "echo", word="w" * 70_000)], ["more than 65536"]),
    "two mistakes": ([step("a", "ecco"), step("b", "echo", "zz")], ["there is no kind 'ecco'", "'b' needs 'zz'"]),
}


async def test_a_hand_written_plan_that_cannot_be_run_is_refused_with_the_reason(stages: Stages) -> None:
    """Its mistakes are bad usage: nothing is sent back or scheduled, and the reason says what to mend."""
    tasks = [Task(text=name, plan=tuple(steps)) for name, (steps, _) in BAD_PLANS.items()]
    planner = Scripts(dict.fromkeys(BAD_PLANS, (DONE,)))
    ended = await stages.each([echo, meet], planner, *tasks)

    assert {(one.status, one.code, one.spent.tool_calls) for one in ended.values()} == {
        (TaskStatus.FAILED, "plan_refused", 0)
    }
    missing = {name: [part for part in says if part not in ended[name].reason] for name, (_, says) in BAD_PLANS.items()}
    assert {name: parts for name, parts in missing.items() if parts} == {} and planner.told == {}


async def test_a_hand_written_plan_runs_and_then_the_planner_is_asked(stages: Stages) -> None:
    """It is the first proposal, and what comes after it is the planner's: also after a refusal of the world.

    A task of its plan alone asks no planner when it is done: the results are the result. A refusal is its end.
    """
    refuse = played("refuse", Refused("It is taken.", code="conflict"))
    one, no = (step("a", "echo", word="hi"),), (step("a", "refuse"),)
    tasks = [
        Task(text="by hand", plan=one),
        Task(text="refused", plan=no),
        Task(text="alone", plan=one, plan_only=True),
        Task(text="alone and refused", plan=no, plan_only=True, limits=Limits(replans=0)),
    ]
    more = plan(step("more", "echo"))
    planner = Scripts(
        {
            "by hand": [Answer(result="not asked for the first"), Answer(result="the end")],
            "refused": [DONE, plan(step("b", "echo", word="instead")), DONE],
            **dict.fromkeys(("alone", "alone and refused"), (more,)),
        }
    )
    ended = await stages.each([echo, refuse], planner, *tasks)

    assert [(task.status, task.code, task.result, [one.id for one in task.steps]) for task in ended.values()] == [
        (TaskStatus.COMPLETED, None, "the end", ["a"]),
        (TaskStatus.COMPLETED, None, "done", ["a", "b"]),
        (TaskStatus.COMPLETED, None, {"a": {"said": "hi"}}, ["a"]),
        (TaskStatus.FAILED, "conflict", None, ["a"]),
    ]
    assert {text: [one.turn for one in told] for text, told in planner.told.items()} == {
        "by hand": [2],
        "refused": [2, 3],
    }
    assert (ended["refused"].replans, ended["alone and refused"].reason) == (1, "a: It is taken.")


async def test_a_proposal_that_cannot_be_run_goes_back_with_the_reasons(stages: Stages) -> None:
    """The planner is told and may mend it; nothing of the bad proposal was scheduled or kept."""
    planner = Recording(plan(step("a", "ecco")), plan(step("a", "echo", "b"), step("b", "echo", "a")), DONE)
    ended, handle = await stages.ended([echo], planner)

    assert [[(one.step, one.text) for one in told.rejected] for told in planner.told] == [
        [],
        [("a", "step 'a': there is no kind 'ecco': did you mean echo?")],
        [("", "steps need each other in a circle: a -> b -> a: remove one of these needs")],
    ]
    assert [(one.kind, one.id) for one in (await calls(handle))[1:]] == [("plan", f"plan:{n}") for n in (1, 2, 3)]
    assert (ended.status, ended.steps, ended.revisions, ended.replans) == (TaskStatus.COMPLETED, (), (), 0)


async def test_after_two_corrections_a_person_is_asked(stages: Stages) -> None:
    """Three proposals that cannot be run: the third one's reasons are in the task's. They are counted for each alone.

    A planner that mends its proposals within two tries may go on for ever.
    """
    bad = plan(step("z", "ecco"))
    mended: Proposals = [bad, bad, plan(step("a", "echo")), bad, bad, plan(step("b", "echo")), bad, bad, DONE]
    ended = await stages.each([echo], {"three": [bad, bad, bad, DONE], "two at a time": mended})

    assert (ended["three"].status, ended["three"].code) == (TaskStatus.ESCALATED, "proposals_rejected")
    assert ended["three"].reason == (
        "The planner made 3 proposals that cannot be run; the last: "
        "step 'z': there is no kind 'ecco': did you mean echo?"
    )
    assert ended["three"].spent.tool_calls == 0
    assert [one.id for one in ended["two at a time"].steps] == ["a", "b"]


LATER = {
    "an id that has run": (
        plan(step("a", "echo", word="again")),
        "step id 'a' belongs to an earlier step of this task: choose another, e.g. 'a-2'",
    ),
    "nothing in a finished result": (
        plan(step("b", "echo", word={"$from": "a", "path": "text"})),
        "step 'b': the result of 'a' has nothing at 'text': it has ['said']",
    ),
}


async def test_what_can_be_checked_before_scheduling_is(stages: Stages) -> None:
    """With what is there instead. Step ids are unique over all revisions: they make the idempotency keys.

    When the result comes only while the plan runs, its shape is the world's answer: a new plan, no attempt.
    """
    planner = Scripts(
        {
            **{name: [plan(step("a", "echo")), bad, DONE] for name, (bad, _) in LATER.items()},
            "late": [plan(step("a", "echo"), step("b", "echo", word={"$from": "a", "path": "text"})), DONE],
        }
    )
    late = (await stages.each([echo], planner))["late"]

    assert {name: [one.text for one in planner.told[name][2].rejected] for name in LATER} == {
        name: [says] for name, (_, says) in LATER.items()
    }
    assert [(one.step_id, one.code, one.attempt, one.decision) for one in late.faults] == [
        ("b", "invalid_input", 0, "replan")
    ]
    assert (late.status, late.replans) == (TaskStatus.COMPLETED, 1)


async def test_a_planner_may_answer_ask_or_give_up(stages: Stages) -> None:
    """Not every proposal is a plan; what was finished before is kept."""
    proposals: dict[str, Answer | Question | GiveUp] = {
        "ask": Question(text="Which Ada?"),
        "give up": GiveUp(reason="There is no such person."),
        "answer": Answer(result={"x": None}),
    }
    ended = await stages.each([echo], {name: [plan(step("a", "echo")), one] for name, one in proposals.items()})

    assert [(one.status, one.code, one.reason, one.question) for one in ended.values()] == [
        (TaskStatus.ESCALATED, "question", "The planner asks: Which Ada?", "Which Ada?"),
        (TaskStatus.FAILED, "gave_up", "There is no such person.", None),
        (TaskStatus.COMPLETED, None, "", None),
    ]
    assert {tuple(step.status for step in one.steps) for one in ended.values()} == {(StepStatus.COMPLETED,)}


class AttemptFailure:
    """A planner that fails for some time, and then answers."""

    name = "failing"

    def __init__(self, *errors: Exception) -> None:
        """Raise these, one per call."""
        self._errors = list(errors)

    @property
    def left(self) -> int:
        """Errors that were not asked for."""
        return len(self._errors)

    async def propose(self, situation: Situation, kinds: Mapping[str, Kind]) -> NewSteps | Answer:
        """Raise the next error, or answer."""
        if self._errors:
            raise self._errors.pop(0)
        return DONE


async def test_a_planner_that_cannot_be_reached_for_a_moment_is_asked_again(stages: Stages) -> None:
    """A model's hiccup is a transient fault like any other."""
    ended = await stages.run([echo], AttemptFailure(Unreachable("Cut."), Busy("Busy.")))

    assert (ended.status, ended.result) == (TaskStatus.COMPLETED, "done")


@pytest.mark.full
async def test_a_planner_that_stays_away_is_waited_for(stages: Stages) -> None:
    """After its eight attempts the workflow asks once more after each wait, by any worker, until the outage ends."""
    planner = AttemptFailure(*(Unreachable("Cut.") for _ in range(8)))
    async with stages([echo], planner, jitter=lambda: 0.01) as stage:
        handle = await stage.start()
        waiting = (await until(handle, lambda progress: progress.waiting is not None)).waiting
    gc.collect()  # what the evicted workflow still runs as it goes would fail outside of its loop
    async with stages([echo], planner, queue=stage.queue):
        ended = await outcome(handle)
    scheduled = await calls(handle)

    assert waiting is not None and (waiting.code, waiting.reason) == ("unreachable", "Cut.")
    assert (ended.status, ended.waiting, planner.left) == (TaskStatus.COMPLETED, None, 0)
    assert await timers(handle) == [Timer(seconds=5, summary="plan waits: unreachable, then again")]
    assert [call.id for call in scheduled] == ["catalogue", "plan:1", "plan:1"]


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (NeedsPerson("The key was revoked.", code="unauthorized"), "unauthorized", "The planner: The key was revoked."),
        pytest.param(
            Refused("This cannot be planned."),
            "refused",
            "The planner: This cannot be planned.",
            marks=pytest.mark.full,
        ),
        (
            KeyError("x"),
            "bug",
            "The planner: The tool raised KeyError, which no table knows: fix the tool. "
            "The cause is in the worker's log, in its line with step 'plan:1' and code 'bug'.",
        ),
    ],
)
async def test_a_planner_that_fails_for_good_goes_to_a_person(
    stages: Stages, error: Exception, code: str, reason: str
) -> None:
    """There is nobody else who could plan."""
    ended = await stages.run([echo], AttemptFailure(error))

    assert (ended.status, ended.code, ended.reason) == (TaskStatus.ESCALATED, code, reason)


@pytest.mark.full
async def test_a_planner_that_wants_a_long_pause_gets_it_on_a_named_timer(stages: Stages) -> None:
    """A rate limit of a model is waited for by the workflow too."""
    async with stages([echo], AttemptFailure(Busy("Later.", retry_after=600))) as stage:
        handle = await stage.start()
        async with asyncio.timeout(20):
            while not (started := await timers(handle)):
                await asyncio.sleep(0.05)
        await handle.cancel()
        ended = await outcome(handle)

    assert started == [Timer(seconds=600, summary="plan waits: busy, then again")]
    assert ended.status is TaskStatus.CANCELLED
