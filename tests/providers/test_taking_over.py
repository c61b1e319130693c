"""Planners that take over from a model in the middle of a task, and workers that have none: nothing is done again."""

from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.offline.planner import ANSWERS_IN_TEXT, BEGUN, OfflinePlanner
from activities.planning.activities import Planning
from activities.planning.fallback import FallbackPlanner
from activities.planning.model_planner import ModelPlanner
from evals.fakes.model_api import ModelApi, running
from evals.fakes.script import ModelCall, ModelError, ModelReply, ReceivedRequest, Response, calls
from tests.activities.situations import NOW
from tests.harness import outcome, staged
from tests.providers.acting import acting, reacting
from tests.providers.desk import TOOLS
from tests.providers.planning import api_of, model_of
from workflows.account.outcome import Outcome
from workflows.account.progress import Progress
from workflows.account.records import Revision, StepRecord, StepStatus
from workflows.account.task import Remains, Task, TaskStatus
from workflows.agent import AgentWorkflow
from workflows.planning.situation import Situation
from workflows.plans.catalogue import FORM, Effect
from workflows.plans.proposal import Step

NO_KEY = ModelError(401, "authentication_error", code="invalid_api_key")


def booker(at: str, fails: int = 1) -> Any:
    """A model that books one slot, whose key is refused then so many times."""
    asked = list[None]()

    def move(heard: ReceivedRequest) -> Response:
        asked.append(None)
        if not heard.turn:
            return calls(ModelCall("book", {"at": at}))
        return NO_KEY if len(asked) < 2 + fails else ModelReply(text="Done.")

    return move


async def taken_over(client: Client, folder: Path, api: ModelApi, provider: str, task: Task) -> Outcome:
    """What comes of a task that the rules plan where the model cannot."""
    async with running(api):
        planner = FallbackPlanner([ModelPlanner(model_of(provider, api)), OfflinePlanner()])
        async with staged(client, folder, TOOLS, planner) as stage:
            return await stage.run(task)


async def test_no_rule_calls_a_task_done_that_a_model_had_only_begun(
    client: Client, tmp_path: Path, provider: str
) -> None:
    """What a model chose turn by turn may be half of the task: the rules neither repeat it nor say that it is all."""
    api = api_of(provider, booker("15:00", fails=9))
    ended = await taken_over(client, tmp_path, api, provider, reacting("book 15:00, then look up a price"))

    assert (ended.status, ended.code, ended.reason) == (TaskStatus.FAILED, "gave_up", BEGUN)
    assert [(step.id, step.status) for step in ended.steps] == [("t1.c0", StepStatus.COMPLETED)]


async def test_the_rules_mend_a_call_of_a_model_that_came_back(client: Client, tmp_path: Path, provider: str) -> None:
    """With an id that a step may have; and the model goes on from there as soon as it can be asked."""
    api = api_of(provider, booker("14:00"))
    ended = await taken_over(client, tmp_path, api, provider, reacting())

    assert (ended.status, ended.result, api.violations) == (TaskStatus.COMPLETED, "Done.", [])
    assert [(step.id, step.status, step.args["at"]) for step in ended.steps] == [
        ("t1.c0", StepStatus.FAILED, "14:00"),
        ("t1_c0-2", StepStatus.COMPLETED, "14:30:00"),
    ]
    assert "14:30" in api.requests[-1].all_text


RECORD = StepRecord(
    step=Step(id="a", kind="get_price", args={"sku": "A-17"}),
    revision=1,
    effect=Effect.READ,
    status=StepStatus.COMPLETED,
    attempts=1,
    kind="get_price",
    args={"sku": "A-17"},
    started=NOW,
    result={"amount": 24.5},
)


async def test_a_task_that_began_without_a_conversation_is_told_as_a_whole(
    client: Client, tmp_path: Path, provider: str
) -> None:
    """A long one whose newest run finds a model: it hears what was done before, and does not do it once more."""

    def buyer(heard: ReceivedRequest) -> Response:
        return ModelReply(text="24.5" if "24.5" in heard.all_text and "find the price" in heard.all_text else "nothing")

    given = Progress(
        form=FORM,
        task=reacting("find the price"),
        task_id="x",
        started_at=NOW,
        turn=1,
        planner="offline",
        records=[RECORD],
        revisions=[Revision(number=1)],
    )
    async with acting(client, tmp_path, provider, buyer) as one:
        id = f"taken-{provider}-{tmp_path.name}"
        handle = await client.start_workflow(AgentWorkflow.run, given, id=id, task_queue=one.stage.queue)
        ended = await outcome(handle)

    assert (ended.status, ended.result, one.api.violations) == (TaskStatus.COMPLETED, "24.5", [])


async def test_rules_open_no_conversation(client: Client, tmp_path: Path) -> None:
    """So that a model which plans a later run knows that it has to be told all."""
    async with staged(client, tmp_path, TOOLS, OfflinePlanner()) as stage:
        handle = await stage.start("nothing that it knows")
        await outcome(handle)
        progress = await handle.query(AgentWorkflow.progress)

    assert (progress.turn, progress.is_opened) == (1, False)


async def test_a_worker_without_the_model_does_not_plan_from_the_news_alone() -> None:
    """As after a start without its key: a person starts the right one; no rule takes the news for the task."""
    news = Situation(turn=2, now=NOW, converses=True)
    with pytest.raises(ApplicationError, match="offline keeps no conversation: start a worker with the planner"):
        await ActivityEnvironment().run(Planning(OfflinePlanner(), {}, searchable=True).plan, news)


@pytest.mark.parametrize("provider", ["anthropic"])
async def test_what_an_earlier_task_left_is_no_step_of_this_one(client: Client, tmp_path: Path, provider: str) -> None:
    """The rules plan the new task when they take over in its first turn."""
    api = api_of(provider, lambda heard: NO_KEY if heard.turn else ModelReply(text="Done."))
    async with running(api):
        planner = FallbackPlanner([ModelPlanner(model_of(provider, api)), OfflinePlanner()])
        async with staged(client, tmp_path, TOOLS, planner) as stage:
            first = await stage.start(reacting())
            await outcome(first)
            run = first.first_execution_run_id
            more = {"continues": run, "remains": Remains(records=(RECORD,), is_tainted=False)}
            ended = await stage.run(Task(text="calculate 1 + 1", **more))

    assert (ended.status, ended.code) == (TaskStatus.FAILED, "gave_up")
    assert "needs the kind calculate" in ended.reason


async def test_no_rule_answers_where_the_answer_is_to_fit_a_schema(
    client: Client, tmp_path: Path, provider: str
) -> None:
    """What the user's program reads would be another thing; nothing is done before that is said."""
    task = Task(text="get the price of A-17", result_schema={"type": "object"})
    ended = await taken_over(client, tmp_path, api_of(provider, NO_KEY), provider, task)

    assert (ended.status, ended.reason, ended.steps) == (TaskStatus.FAILED, ANSWERS_IN_TEXT, ())
