"""Questions of the console that only a worker can answer: each is an `Inquiry`, its answer is `Findings`."""

from datetime import datetime
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

from pydantic import BaseModel, Field, JsonValue, RootModel
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


class Claim(BaseModel, frozen=True):
    """Where a payload in external storage lies, as the history says."""

    driver: str
    data: dict[str, str]
    """What the storage driver needs to find the payload."""


class ToolCard(BaseModel, frozen=True):
    """A tool with its schemas."""

    spec: ToolSpec
    description: str
    args_schema: dict[str, Any]
    result_schema: dict[str, Any]


class Place(BaseModel, frozen=True):
    """A store or folder of a worker."""

    name: str
    where: str | None
    """A path, or a URL without its password; None if the worker has no such store or folder."""
    problem: str | None = None
    """Why it cannot be used; None if it can."""


class Capacity(BaseModel, frozen=True):
    """How busy a worker is with calls of tools."""

    calls: int
    """Calls that run or wait for a thread; each holds one of the slots."""
    slots: int
    outlived: int
    """Threads that are held by calls whose attempts have ended."""
    threads: int

    def __str__(self) -> str:
        held = f", {self.outlived} of {self.threads} threads held by calls that do not return" if self.outlived else ""
        return f"{self.calls} of {self.slots} slots{held}"


class WorkerCard(BaseModel, frozen=True):
    """The configuration of a worker, without secrets."""

    version: str
    python: str
    sdk: str
    places: tuple[Place, ...]
    keys: dict[str, bool]
    """For each provider's key, by the name of its environment variable: whether the worker has it."""
    clock: datetime
    server_clock: datetime
    """The server's time, shortly before `clock` was read."""
    capacity: Capacity | None = None
    """None for a worker of an earlier version."""


class EffectCard(BaseModel, frozen=True):
    """One effect in a ledger, the table of effects that calls applied."""

    key: str
    step: str
    kind: str
    at: datetime
    result: JsonValue
    undone_at: datetime | None = None
    undone_by: str | None = None


class CallCard(BaseModel, frozen=True):
    """A tool call of a model."""

    id: str
    """The id that the provider gave to the call."""
    name: str
    args: dict[str, JsonValue]


class ResultCard(BaseModel, frozen=True):
    """The result of a tool call, as it was shown to the model."""

    call_id: str
    text: str
    is_error: bool = False


class TurnCard(BaseModel, frozen=True):
    """One turn of a conversation: what the planner was told, and what it said."""

    turn: int
    branch: int = 0
    task: str
    """The first run of the task that this turn belongs to; several tasks may share a conversation."""
    planner: str
    at: datetime
    results: tuple[ResultCard, ...] = ()
    told: str = ""
    said: str = ""
    calls: tuple[CallCard, ...] = ()
    stop: str = ""
    tokens: int = 0
    rejected: tuple[str, ...] = ()
    upto: int = 0
    """For a summary: how many of the oldest turns it replaces; 0 for an ordinary turn."""


class Pruned(BaseModel, frozen=True):
    """What was deleted from a store."""

    payloads: int
    """Number of deleted payloads."""
    size: int
    """Bytes of the deleted payloads."""
    turns: int = 0
    """Number of deleted turns of conversations."""
    after: str | None = None
    """The id of the last task that was examined, if there are more tasks; else None."""
    kept: int = 0
    """Number of tasks of which nothing was deleted, because they are open or an open task needs them."""
    ownerless: int = 0
    """Number of payloads and turns whose task is unknown; they are kept."""


class Draft(BaseModel, frozen=True):
    """The first proposal of a task, or why there is none."""

    planner: str = ""
    proposal: Proposal | None = None
    """None if no proposal can be run; then `ending` says why."""
    ending: Ending | None = None
    specs: dict[str, ToolSpec] = {}


class Findings(BaseModel, frozen=True):
    """The answer to an inquiry; a worker that does not know the inquiry answers an inquiry about `tools` instead."""

    planner: str
    tools: tuple[ToolCard, ...] = ()


class ToolsFindings(Findings):
    left_out: tuple[str, ...] = ()
    """Kinds that need a model, which the worker does not have."""


class WorkerFindings(ToolsFindings):
    worker: WorkerCard | None = None
    converses: bool = False
    """Whether the planner is a model."""
    price: Price | None = None
    """The highest price of the planner's models; None if a price is unknown, or the planner is no model."""


class PlanFindings(Findings):
    draft: Draft | None = None


class PayloadFindings(Findings):
    payload: JsonValue = None


class ClaimsFindings(Findings):
    lacks: str | None = None
    """Why the first missing payload cannot be fetched; empty if none is missing, None from a worker that is too old."""


class PruneFindings(Findings):
    pruned: Pruned | None = None


class EffectsFindings(Findings):
    effects: tuple[EffectCard, ...] | None = None
    unread: tuple[Place, ...] = ()
    """The stores whose ledger of effects could not be read."""


class TranscriptFindings(Findings):
    transcript: tuple[TurnCard, ...] | None = None
    more: bool = False
    """Whether more turns follow, which did not fit into this answer."""


F = TypeVar("F", bound=Findings)


class Inquiry(BaseModel, Generic[F], frozen=True):
    """A question of the console to a worker; `about` says which question."""

    about: str
    findings: ClassVar[Any]
    """The class of the answer, type[F]."""


class ToolsInquiry(Inquiry[ToolsFindings]):
    """Which tools does the worker have?"""

    findings = ToolsFindings
    about: str = "tools"
    kind: str | None = None


class WorkerInquiry(Inquiry[WorkerFindings]):
    """How is the worker configured?"""

    findings = WorkerFindings
    about: Literal["worker"] = "worker"


class PlanInquiry(Inquiry[PlanFindings]):
    """What would `task` do first?"""

    findings = PlanFindings
    about: Literal["plan"] = "plan"
    task: Task


class PayloadInquiry(Inquiry[PayloadFindings]):
    """What is the value of a payload in external storage?"""

    findings = PayloadFindings
    about: Literal["payload"] = "payload"
    claim: dict[str, str]
    """Where the payload lies, as the history says."""
    driver: str = ""


class ClaimsInquiry(Inquiry[ClaimsFindings]):
    """Can these payloads be fetched?"""

    findings = ClaimsFindings
    about: Literal["claims"] = "claims"
    claims: tuple[Claim, ...] = ()


class PruneInquiry(Inquiry[PruneFindings]):
    """Delete what some closed tasks left in the store."""

    findings = PruneFindings
    about: Literal["prune"] = "prune"
    older_than: datetime | None = None
    """Only what was stored before this moment is deleted; None, from a console of an older version, is an error."""
    after: str = ""
    """The id of the last task that was examined before; the tasks with greater ids are examined now."""
    by: str = ""


class EffectsInquiry(Inquiry[EffectsFindings]):
    """Which effects of a task are in the ledgers?"""

    findings = EffectsFindings
    about: Literal["effects"] = "effects"
    task_id: str


class TranscriptInquiry(Inquiry[TranscriptFindings]):
    """What was the planner of a task told, and what did it say?"""

    findings = TranscriptFindings
    about: Literal["transcript"] = "transcript"
    run: str
    """The first run of the task."""
    skip: int = 0
    """How many turns, from the first, the answer leaves out, because the console has them already."""


class InquiryInput(
    RootModel[
        Annotated[
            Annotated[
                WorkerInquiry
                | PlanInquiry
                | PayloadInquiry
                | ClaimsInquiry
                | PruneInquiry
                | EffectsInquiry
                | TranscriptInquiry,
                Field(discriminator="about"),
            ]
            | ToolsInquiry,  # the last, because it accepts each `about`
            Field(union_mode="left_to_right"),
        ]
    ]
):
    """The input of InspectWorkflow; an inquiry that this version does not know is read as an inquiry about tools."""


@workflow.defn(name="InspectWorkflow")
class InspectWorkflow:
    """Answers one inquiry."""

    @workflow.run
    async def run(self, inquiry: InquiryInput) -> Findings:
        """Have a worker answer the inquiry.

        Raises:
            ApplicationError: the worker could not answer.
        """
        question = inquiry.root
        if isinstance(question, PlanInquiry):  # it needs the activities of a task, not `inspect`
            drafted = await _draft(question.task)
            return PlanFindings(planner=drafted.planner, draft=drafted)
        spec, payload = routing.inspect(question.about), question.model_dump(mode="json")
        try:
            found: Findings = await run_internal_activity(
                spec, payload, question.findings, id=ids.INSPECT, title=question.about, revision=0
            )
        except InternalActivityFailed as failed:
            raise ApplicationError(failed.fault.reason, type=failed.fault.code, non_retryable=True) from None
        return found


async def _draft(task: Task) -> Draft:
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
