"""Answers the console's questions that only a worker can."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue
from temporalio import workflow
from temporalio.exceptions import ApplicationError

from workflows import ids, routing
from workflows.catalogue import Price, ToolSpec
from workflows.guards import Grants
from workflows.outcome import Ending, TaskEnded
from workflows.plan import NewSteps, Proposal
from workflows.progress import Progress
from workflows.proposing import propose
from workflows.scheduling import InternalActivityFailed, read_catalogue, run_internal_activity
from workflows.task import Task, TaskStatus


class Claim(BaseModel):
    """Where a payload lies that a history only refers to."""

    model_config = ConfigDict(frozen=True)

    driver: str
    """Which storage that is."""
    data: dict[str, str]
    """What that storage needs to find it."""


class Inquiry(BaseModel):
    """What the console wants to know."""

    model_config = ConfigDict(frozen=True)

    about: str = "tools"
    """`tools`; `worker`: the tools and how the worker stands; `plan`: what it would do for `task`; `payload`: what a
    history only refers to; `claims`: whether all that it refers to is there; `prune`: to delete what closed tasks left;
    `effects`: what `task_id` did to the world; `transcript`: what the planner of the task whose first run is `run` was
    told, and said."""
    kind: str | None = None
    """One kind only."""
    task: Task | None = None
    task_id: str | None = None
    run: str | None = None
    skip: int = 0
    """The turns of the transcript, from its beginning, that are known already."""
    claim: dict[str, str] | None = None
    """Where the payload lies, as the history says."""
    driver: str = ""
    """Which storage that is."""
    before: datetime | None = None
    """As `older_than`, from an older console."""
    older_than: datetime | None = None
    """What closed tasks left in the store before this moment is deleted. An older worker does not know it, and so
    deletes nothing."""
    after: str = ""
    """The task after which, in the order of ids, the deletion continues."""
    by: str = ""
    """Who has it deleted."""
    claims: tuple[Claim, ...] = ()
    """What must be there."""


class ToolCard(BaseModel):
    """A tool as people and planners read it."""

    model_config = ConfigDict(frozen=True)

    spec: ToolSpec
    description: str
    args_schema: dict[str, Any]
    result_schema: dict[str, Any]


class Place(BaseModel):
    """Where a worker keeps or finds something."""

    model_config = ConfigDict(frozen=True)

    name: str
    where: str | None
    """A path, or a URL without its password; None for a worker that has no such place."""
    problem: str | None = None
    """What is wrong with it, in one sentence."""


class WorkerCard(BaseModel):
    """What a worker says of itself; of secrets it says only whether there are any."""

    model_config = ConfigDict(frozen=True)

    version: str
    """Of Replan."""
    python: str
    sdk: str
    """Version of the Temporal SDK."""
    places: tuple[Place, ...]
    """The store and the folders."""
    keys: dict[str, bool]
    """Which keys its environment has, by name."""
    clock: datetime
    """The worker's clock."""
    server_clock: datetime
    """The server's, a moment before."""


class EffectCard(BaseModel):
    """One effect as the ledger has it."""

    model_config = ConfigDict(frozen=True)

    key: str
    """The idempotency key."""
    step: str
    kind: str
    at: datetime
    result: JsonValue
    undone_at: datetime | None = None
    undone_by: str | None = None
    """The key of the call that took it back."""


class CallCard(BaseModel):
    """A call that a model made, and what it was told of it."""

    model_config = ConfigDict(frozen=True)

    id: str
    """The provider's."""
    name: str
    args: dict[str, JsonValue]


class ResultCard(BaseModel):
    """What a model was told of one of its calls."""

    model_config = ConfigDict(frozen=True)

    call_id: str
    text: str
    is_error: bool = False


class TurnCard(BaseModel):
    """One turn of a conversation: what the planner was told, and what it said."""

    model_config = ConfigDict(frozen=True)

    turn: int
    branch: int = 0
    task: str
    """The first run of the task that the turn belongs to: a task may carry on another one's conversation."""
    planner: str
    at: datetime
    results: tuple[ResultCard, ...] = ()
    told: str = ""
    said: str = ""
    calls: tuple[CallCard, ...] = ()
    stop: str = ""
    tokens: int = 0
    rejected: tuple[str, ...] = ()
    """Why what it said could not be used."""
    upto: int = 0
    """For a summary: how many of the oldest turns it stands for; 0 for a turn."""


class Pruned(BaseModel):
    """What was deleted of the payloads that a store keeps for histories."""

    model_config = ConfigDict(frozen=True)

    payloads: int
    size: int
    """Bytes."""
    turns: int = 0
    """Of conversations."""
    after: str | None = None
    """The last task that was looked at, where there are more."""
    kept: int = 0
    """Tasks that are open, or that an open one needs."""
    ownerless: int = 0
    """Payloads and turns of nobody knows which task, which stay."""


class Draft(BaseModel):
    """What a task would do first, or why it could do nothing."""

    model_config = ConfigDict(frozen=True)

    planner: str = ""
    proposal: Proposal | None = None
    """None where there is none that could be run; `ending` says why."""
    ending: Ending | None = None
    """How the task would have ended without a proposal."""
    specs: dict[str, ToolSpec] = {}
    """What the kinds of the proposed steps promise."""


class Findings(BaseModel):
    """The answer to an Inquiry; a worker that does not know what was asked about tells its tools."""

    model_config = ConfigDict(frozen=True)

    planner: str
    tools: tuple[ToolCard, ...]
    left_out: tuple[str, ...] = ()
    """Kinds that ask a model, which the worker does not have."""
    worker: WorkerCard | None = None
    converses: bool = False
    """Whether the planner is a model."""
    price: Price | None = None
    """What the planner's tokens cost, at the most; None where that is not known, or it is no model."""
    draft: Draft | None = None
    payload: JsonValue = None
    pruned: Pruned | None = None
    lacks: str | None = None
    """Why the first of the claims cannot be fetched; empty where all can, None where nobody asked for them."""
    effects: tuple[EffectCard, ...] | None = None
    transcript: tuple[TurnCard, ...] | None = None
    more: bool = False
    """Whether the transcript goes on; an answer must not be too large for the server."""
    unread: tuple[Place, ...] = ()
    """Ledgers that could not be read, so that there may be effects that nobody knows of."""


@workflow.defn(name="InspectWorkflow")
class InspectWorkflow:
    """One question, one answer; nothing in the world changes."""

    @workflow.run
    async def run(self, inquiry: Inquiry) -> Findings:
        """Ask a worker.

        Raises:
            ApplicationError: the worker could not answer.
        """
        if inquiry.about == "plan" and inquiry.task is not None:
            drafted = await draft(inquiry.task)
            return Findings(planner=drafted.planner, tools=(), draft=drafted)
        payload: JsonValue = inquiry.model_dump(mode="json")
        try:
            return await run_internal_activity(
                routing.INSPECT, payload, Findings, id=ids.INSPECT, title=inquiry.about, revision=0
            )
        except InternalActivityFailed as failed:
            raise ApplicationError(failed.fault.reason, type=failed.fault.code, non_retryable=True) from None


async def draft(task: Task) -> Draft:
    """Ask for the first proposal of `task` and run no step of it."""
    progress = Progress.of(task)
    try:
        catalogue = await read_catalogue(task.wanted)
        if catalogue.refused:
            raise TaskEnded(TaskStatus.FAILED, catalogue.refused, "task_refused")
        progress.planner = catalogue.planner
        progress.grants = Grants(is_tainted=task.is_tainted(catalogue.is_clean))
        proposal = await propose(progress, catalogue)
    except TaskEnded as early:
        return Draft(planner=progress.planner, ending=early.ending)
    steps = proposal.steps if isinstance(proposal, NewSteps) else ()
    specs = {step.kind: catalogue.specs[step.kind] for step in steps}
    return Draft(planner=progress.planner, proposal=proposal, specs=specs)
