"""What a planner may propose, on a real server: the checks before anything is scheduled, and the other answers."""

import asyncio
import gc
from collections.abc import Mapping, Sequence

import pytest
from pydantic import BaseModel, JsonValue

from activities.toolbox.declare.kind import Kind
from replan import Busy, NeedsPerson, Refused, Unreachable, tool
from tests.gate import sampled
from tests.harness import DONE, Proposals, outcome, plan, step
from tests.workflows.history import Timer, calls, kinds, timers, until
from tests.workflows.props import Recording, Said, Stages, Word, echo
from workflows.account.records import StepStatus
from workflows.account.task import Task, TaskStatus
from workflows.limits.budget import Limits
from workflows.planning.situation import Situation
from workflows.plans.proposal import Answer, GiveUp, NewSteps, Question, Step

DEEP: JsonValue = "x"
for _ in range(25):
    DEEP = [DEEP]


class Meeting(BaseModel):
    """Arguments that can be wrong in several ways."""

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


@pytest.mark.parametrize(("steps", "says"), sampled(BAD_PLANS, "too many steps", "two mistakes"))
async def test_a_hand_written_plan_that_cannot_be_run_is_refused_with_the_reason(
    stages: Stages, steps: list[Step], says: Sequence[str]
) -> None:
    """Its mistakes are bad usage: nothing is sent back or scheduled, and the reason says what to mend."""
    planner = Recording(DONE)
    ended, handle = await stages.ended([echo, meet], planner, Task(text="by hand", plan=tuple(steps)))
    scheduled = await kinds(handle)

    assert (ended.status, ended.code, scheduled) == (TaskStatus.FAILED, "plan_refused", ["catalogue"])
    assert [part for part in says if part not in ended.reason] == []


async def test_a_hand_written_plan_runs_and_then_the_planner_is_asked(stages: Stages) -> None:
    """It is the first proposal, and what comes after it is the planner's."""
    planner = Recording(Answer(result="not asked for the first"), Answer(result="the end"))
    ended = await stages.run([echo], planner, Task(text="by hand", plan=(step("a", "echo", word="x"),)))

    assert (ended.status, ended.result, [one.id for one in ended.steps]) == (TaskStatus.COMPLETED, "the end", ["a"])
    assert [one.turn for one in planner.told] == [2]


@pytest.mark.full
async def test_a_refusal_within_a_hand_written_plan_is_replanned_by_the_planner(stages: Stages) -> None:
    """The world may refuse any plan; only mistakes of the plan itself are bad usage."""

    @tool.read
    async def refuse(args: Word) -> Said:
        """Be refused."""
        raise Refused("No.")

    script: Proposals = [DONE, plan(step("b", "echo", word="instead")), DONE]
    ended = await stages.run([refuse, echo], script, Task(text="by hand", plan=(step("a", "refuse"),)))

    assert (ended.status, ended.replans) == (TaskStatus.COMPLETED, 1)
    assert [(one.id, one.status) for one in ended.steps] == [("a", StepStatus.FAILED), ("b", StepStatus.COMPLETED)]


async def test_a_proposal_that_cannot_be_run_goes_back_with_the_reasons(stages: Stages) -> None:
    """The planner is told and may mend it; nothing of the bad proposal was scheduled or kept."""
    planner = Recording(plan(step("a", "ecco")), plan(step("a", "echo", "b"), step("b", "echo", "a")), DONE)
    ended, handle = await stages.ended([echo], planner)
    scheduled = await calls(handle)

    assert [[(one.step, one.text) for one in told.rejected] for told in planner.told] == [
        [],
        [("a", "step 'a': there is no kind 'ecco': did you mean echo?")],
        [("", "steps need each other in a circle: a -> b -> a: remove one of these needs")],
    ]
    assert [(one.kind, one.id) for one in scheduled[1:]] == [("plan", "plan:1"), ("plan", "plan:2"), ("plan", "plan:3")]
    assert (ended.status, ended.steps, ended.revisions, ended.replans) == (TaskStatus.COMPLETED, (), (), 0)


async def test_after_two_corrections_a_person_is_asked(stages: Stages) -> None:
    """Three proposals that cannot be run: the third one's reasons are in the task's."""
    bad = [plan(step("a", "ecco", word=str(number))) for number in range(3)]
    ended, handle = await stages.ended([echo], [*bad, DONE])
    scheduled = await kinds(handle)

    assert (ended.status, ended.code) == (TaskStatus.ESCALATED, "proposals_rejected")
    assert ended.reason == (
        "The planner made 3 proposals that cannot be run; the last: "
        "step 'a': there is no kind 'ecco': did you mean echo?"
    )
    assert scheduled == ["catalogue", "plan", "plan", "plan"]


@pytest.mark.full
async def test_the_corrections_are_counted_for_each_proposal_alone(stages: Stages) -> None:
    """A planner that mends its proposals within two tries may go on for ever."""
    bad = plan(step("z", "ecco"))
    script: Proposals = [bad, bad, plan(step("a", "echo")), bad, bad, plan(step("b", "echo")), bad, bad, DONE]
    ended = await stages.run([echo], script)

    assert (ended.status, [one.id for one in ended.steps]) == (TaskStatus.COMPLETED, ["a", "b"])


async def test_a_new_plan_may_not_use_an_id_again_that_has_run(stages: Stages) -> None:
    """Step ids are unique in the task over all revisions: they make the idempotency keys."""
    planner = Recording(plan(step("a", "echo")), plan(step("a", "echo", word="again")), DONE)
    await stages.run([echo], planner)

    assert [one.text for one in planner.told[2].rejected] == [
        "step id 'a' belongs to an earlier step of this task: choose another, e.g. 'a-2'"
    ]


@pytest.mark.full
async def test_a_reference_to_nothing_in_a_finished_result_goes_back(stages: Stages) -> None:
    """What can be checked before scheduling is, with what is there instead."""
    planner = Recording(plan(step("a", "echo")), plan(step("b", "echo", word={"$from": "a", "path": "text"})), DONE)
    await stages.run([echo], planner)

    assert [one.text for one in planner.told[2].rejected] == [
        "step 'b': the result of 'a' has nothing at 'text': it has ['said']"
    ]


async def test_a_reference_that_turns_out_to_lead_nowhere_is_a_refusal(stages: Stages) -> None:
    """When the result comes only while the plan runs, its shape is the world's answer: a new plan, no attempt."""
    steps = plan(step("a", "echo"), step("b", "echo", word={"$from": "a", "path": "text"}))
    ended = await stages.run([echo], [steps, DONE])

    assert [(one.step_id, one.code, one.attempt, one.decision) for one in ended.faults] == [
        ("b", "invalid_input", 0, "replan")
    ]
    assert (ended.status, ended.replans) == (TaskStatus.COMPLETED, 1)


@pytest.mark.parametrize(
    ("proposal", "status", "code", "reason", "question"),
    [
        (Question(text="Which Ada?"), TaskStatus.ESCALATED, "question", "The planner asks: Which Ada?", "Which Ada?"),
        (GiveUp(reason="There is no such person."), TaskStatus.FAILED, "gave_up", "There is no such person.", None),
        pytest.param(Answer(result={"x": None}), TaskStatus.COMPLETED, None, "", None, marks=pytest.mark.full),
    ],
)
async def test_a_planner_may_answer_ask_or_give_up(
    stages: Stages,
    proposal: Answer | Question | GiveUp,
    status: TaskStatus,
    code: str | None,
    reason: str,
    question: str | None,
) -> None:
    """Not every proposal is a plan; what was finished before is kept."""
    ended = await stages.run([echo], [plan(step("a", "echo")), proposal])

    assert (ended.status, ended.code, ended.reason, ended.question) == (status, code, reason, question)
    assert [one.status for one in ended.steps] == [StepStatus.COMPLETED]


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


async def test_a_task_of_its_plan_alone_asks_no_planner_when_it_is_done(stages: Stages) -> None:
    """One step that a person calls stays one step: the results are the result, and nothing more is proposed."""
    task = Task(text="one step", plan=(step("a", "echo", word="hi"),), plan_only=True)
    ended = await stages.run([echo], [plan(step("more", "echo"))], task)

    assert (ended.status, ended.result) == (TaskStatus.COMPLETED, {"a": {"said": "hi"}})


@pytest.mark.full
async def test_a_task_of_its_plan_alone_fails_with_the_refusal(stages: Stages) -> None:
    """Where no new plan is allowed, the refusal of the one step is how the task ends, and no planner is asked."""

    @tool.read
    async def refuse(args: Word) -> Said:
        """Refuse."""
        raise Refused("It is taken.", code="conflict")

    task = Task(text="one step", plan=(step("a", "refuse"),), plan_only=True, limits=Limits(replans=0))
    ended = await stages.run([refuse], [plan(step("more", "refuse"))], task)

    assert (ended.status, ended.code, ended.reason) == (TaskStatus.FAILED, "conflict", "a: It is taken.")
    assert len(ended.steps) == 1
