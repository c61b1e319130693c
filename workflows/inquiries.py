"""Questions of the console that only a worker can answer: each is an `Inquiry`, its answer is `Findings`.

Runs as a short workflow of its own, when a command, the page or the HTTP API needs what only a worker knows.
"""

from datetime import date, datetime
from operator import not_
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

from pydantic import BaseModel, Field, JsonValue, RootModel
from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from workflows import ids
from workflows.account.journal import TaskBegun
from workflows.account.outcome import REFUSED, Ending, TaskEnded
from workflows.account.progress import Progress
from workflows.account.task import Task, TaskStatus
from workflows.arguments import require_argument, undecoded
from workflows.calls.asking import read_catalogue
from workflows.calls.scheduling import InternalActivityFailed, OwnAttempts, OwnCall
from workflows.faults.circuit_breaker import STANDARD_BREAKER, CircuitBreaker
from workflows.faults.fault import Code
from workflows.planning import trust
from workflows.planning.proposing import describe_opening, propose
from workflows.plans import own_activities
from workflows.plans.catalogue import Effect, Price, ToolSpec
from workflows.plans.proposal import NewSteps, Proposal


class PayloadClaim(BaseModel, frozen=True):
    """The reference in a history to a payload in external storage."""

    driver: str
    data: dict[str, str]
    """What the storage driver needs to find the payload."""


class ToolCard(BaseModel, frozen=True):
    """A tool with its schemas."""

    spec: ToolSpec
    description: str
    args_schema: dict[str, Any]
    result_schema: dict[str, Any]
    is_own: bool = True
    """False for a tool that comes with Replan, which the operator of the worker cannot change."""
    breaker: CircuitBreaker | None = STANDARD_BREAKER
    """When the tool is left alone because its service is down; None if it never is."""
    service: str = ""
    """The service that it calls, with the credential after a `/`; empty if the worker is too old to tell."""
    limit: str | None = None
    """The most calls of the service in a time, e.g. `10/s`; None if there is no limit."""


class Place(BaseModel, frozen=True):
    """A store or folder of a worker."""

    name: str
    where: str | None
    """A path, or a URL without its password; None if the worker has no such store or folder."""
    problem: str | None = None
    """Why the store or folder cannot be used; None if it can be used."""


class Capacity(BaseModel, frozen=True):
    """How busy a worker is with calls of tools."""

    calls: int
    """Calls that run or wait for a thread; each holds one of the slots."""
    slots: int
    outlived: int
    """How many threads are still busy with calls whose attempts have already ended."""
    threads: int

    def __str__(self) -> str:
        busy = f", {self.outlived} of {self.threads} threads held by calls that do not return" if self.outlived else ""
        return f"{self.calls} of {self.slots} slots{busy}"


class BreakerCard(BaseModel, frozen=True):
    """The circuit breaker of a tool that has failed."""

    kind: str
    state: str
    """`closed` lets calls through, `open` does not, and `half_open` lets a few trial calls at a time through."""
    since: datetime | None = None
    """When the outage began or, if the breaker is closed, when it was closed; None if it was never open."""
    failures: int = 0
    """Calls in a row that failed."""
    code: Code | None = None
    """How the newest of them failed."""
    trial_in: float | None = None
    """Seconds until the next trial call; 0 if the next call is one, None if calls are let through."""
    trials: int = 0
    """Trial calls that are under way, or may be made now."""
    waiting: int = 0
    """Calls that wait for their turn."""
    limit: str | None = None
    """The most calls in a time that the tools declare, e.g. `10/s`; None if there is no limit."""


class WorkerCard(BaseModel, frozen=True):
    """The configuration of a worker, without secrets."""

    version: str
    python: str
    sdk: str
    places: tuple[Place, ...]
    keys: dict[str, bool]
    """By the name of the environment variable, whether the worker has the API key of a model provider."""
    clock: datetime
    server_clock: datetime
    """The time of the Temporal server, shortly before `clock` (the worker's time) was read."""
    capacity: Capacity | None = None
    """How busy the worker is; None if it cannot say."""
    notifies: str = ""
    """The receiver that is notified of requests to people, without secrets; empty if there is none."""
    breakers: tuple[BreakerCard, ...] | None = None
    """The circuit breakers of tools that have failed; None if the store cannot be read."""
    approvers: tuple[str, ...] | None = None
    """The roles and people of its people file, as a tool names them (`role:finance`); None without a people file."""


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
    is_rejected: bool = False
    """Whether the proposal that the call made was rejected, so that nothing was run."""


class TurnCard(BaseModel, frozen=True):
    """One request to the planner in its conversation about a task, and the planner's reply."""

    turn: int
    branch: int = 0
    task: str
    """The first run id of the task to which this turn belongs; several tasks may share a conversation."""
    planner: str
    at: datetime
    results: tuple[ResultCard, ...] = ()
    told: str = ""
    said: str = ""
    aside: str = Field(default="", exclude_if=not_)
    """What the model wrote that is no part of its answer, such as its reasoning."""
    calls: tuple[CallCard, ...] = ()
    stop: str = ""
    tokens: int = 0
    rejected: tuple[str, ...] = ()
    upto: int = 0
    """For a summary: how many of the oldest turns it replaces; 0 for an ordinary turn."""


class PrunedPayloads(BaseModel, frozen=True):
    """What `prune` has deleted from a store, and how much it kept."""

    payloads: int
    size: int
    """Bytes of the deleted payloads."""
    turns: int = 0
    after: str | None = None
    """The id of the task that was examined last, if there are more tasks to examine; else None."""
    kept: int = 0
    """Number of tasks of which nothing was deleted, because they are open or an open task needs them."""
    ownerless: int = 0
    """Number of payloads and turns whose task is unknown; they are kept."""


class NextCall(BaseModel, frozen=True):
    """A call that an open task has planned, and not finished."""

    task: str
    step: str
    kind: str
    effect: Effect
    """The effect of the tool that it was planned for."""
    args: dict[str, JsonValue]
    """The arguments; those of a step that has not started may contain references."""
    sources: dict[str, str] = Field(default_factory=dict)
    """By the id of an unfinished step to which a reference in `args` leads, the kind that the step calls."""
    tool: ToolSpec | None = None
    """The tool that the call was planned for; None if it names no other tools, such as an undo."""
    undoes: str = ""
    """Of a call that would undo a finished one: the kind of that one. Else empty."""


class AppliedEffect(BaseModel, frozen=True):
    """An effect that, by the history of its task, was applied by a call of which a ledger has a row."""

    key: str
    """The idempotency key of the call."""
    kind: str
    store: str
    """The id of the store of its task."""


class Misfit(BaseModel, frozen=True):
    """A planned call of an open task that a worker's tool does not accept."""

    task: str
    step: str
    kind: str
    difference: str
    """How the tool differs from the one that the call was planned for."""


class PlannedStep(BaseModel, frozen=True):
    """A step of a plan that has not started."""

    step: str
    kind: str
    args: dict[str, JsonValue]
    """The arguments, which may contain references."""


class ApprovalNeed(BaseModel, frozen=True):
    """Whether a person is asked before a call."""

    asks: Literal["yes", "no", "may"]
    """`may`: it depends on the result of another step."""
    why: str = ""
    """In words, why a person is asked, or on what it depends; empty for `no`."""


class Draft(BaseModel, frozen=True):
    """The first proposal of a task, or why there is none."""

    planner: str = ""
    proposal: Proposal | None = None
    """The planner's first proposal; None if no proposal can be run, and then `ending` says why."""
    ending: Ending | None = None
    specs: dict[str, ToolSpec] = {}
    approvals: dict[str, ApprovalNeed] = {}
    """By the id of a step, what ApprovalsInquiry found out; the answer of PlanInquiry has none."""


class Findings(BaseModel, frozen=True):
    """The answer to an inquiry (a question of the console)."""

    planner: str
    tools: tuple[ToolCard, ...] = ()


class ToolsFindings(Findings):
    left_out: tuple[str, ...] = ()
    """Kinds of tools that the worker lacks, because they need a model and the worker has no model."""
    unusable: dict[str, str] = {}
    """Tools of servers that the worker cannot offer, each with the reason."""
    store: str = ""
    """The id of the worker's store; empty if the worker is of a version that does not say it."""


class WorkerFindings(ToolsFindings):
    worker: WorkerCard
    described: str = ""
    """The planner's name and, for each model of OpenAI, the API that is used for it."""
    converses: bool = False
    """Whether the planner is a model."""
    price: Price | None = None
    """The highest price of the planner's models; None if a price is unknown, or the planner is no model."""
    price_date: date | None = None
    """The oldest day on which a published price of the worker's models was known to be valid; None if none is
    published."""


class PlanFindings(Findings):
    draft: Draft


class PayloadFindings(Findings):
    payload: JsonValue = None


class ClaimsFindings(Findings):
    lacks: str
    """Why the first missing payload cannot be fetched; empty if no payload is missing."""


class PruneFindings(Findings):
    pruned: PrunedPayloads


class EffectsFindings(Findings):
    effects: tuple[EffectCard, ...]
    unread: tuple[Place, ...] = ()
    """The stores whose ledger of effects could not be read."""


class RowsFindings(Findings):
    lacks: tuple[str, ...]
    """The keys of which no ledger has a row; without those that this worker cannot judge."""


class TranscriptFindings(Findings):
    transcript: tuple[TurnCard, ...]
    more: bool = False
    """Whether more turns follow, which did not fit into this answer."""


class BreakersFindings(Findings):
    breakers: tuple[BreakerCard, ...]
    """The breakers of all tools that ever failed."""
    kinds: tuple[str, ...] = ()
    """The kinds of the worker's tools that have a breaker."""
    before: BreakerCard | None = None
    """The breaker before it was closed on request; None if none was to be closed, or the kind is unknown."""


class CallsFindings(Findings):
    misfits: tuple[Misfit, ...]
    """The calls that the worker's tools do not take."""


class ApprovalsFindings(Findings):
    approvals: dict[str, ApprovalNeed]
    """By the id of a step, what the tool's `approve=` says of its call."""


UNKNOWN_INQUIRY = "unknown_inquiry"
"""The type of the failure of a worker that cannot read an inquiry: its version, or that of the console, is older."""
F = TypeVar("F", bound=Findings)


class Inquiry(BaseModel, Generic[F], frozen=True):
    """A question of the console to a worker; `about` says which question."""

    about: str
    findings: ClassVar[Any]
    """The class of the answer to this inquiry."""


class ToolsInquiry(Inquiry[ToolsFindings]):
    """Asks which tools the worker has."""

    findings = ToolsFindings
    about: Literal["tools"] = "tools"
    kind: str | None = None


class WorkerInquiry(Inquiry[WorkerFindings]):
    """Asks how the worker is configured."""

    findings = WorkerFindings
    about: Literal["worker"] = "worker"


class PlanInquiry(Inquiry[PlanFindings]):
    """Asks which proposal the planner would make first for `task`."""

    findings = PlanFindings
    about: Literal["plan"] = "plan"
    task: Task


class PayloadInquiry(Inquiry[PayloadFindings]):
    """Asks for the value of a payload in external storage."""

    findings = PayloadFindings
    about: Literal["payload"] = "payload"
    claim: dict[str, str]
    """What the storage driver needs to find the payload; the history contains it."""
    driver: str = ""


class ClaimsInquiry(Inquiry[ClaimsFindings]):
    """Asks whether the worker can fetch all these payloads from external storage."""

    findings = ClaimsFindings
    about: Literal["claims"] = "claims"
    claims: tuple[PayloadClaim, ...] = ()


class PruneInquiry(Inquiry[PruneFindings]):
    """Asks the worker to delete old payloads and conversations of closed tasks; an answer covers some of the tasks."""

    findings = PruneFindings
    about: Literal["prune"] = "prune"
    older_than: datetime
    """Only data stored before this moment is deleted."""
    after: str = ""
    """The id of the task that the previous inquiry examined last; now tasks with greater ids are examined."""
    by: str = ""


class EffectsInquiry(Inquiry[EffectsFindings]):
    """Asks which effects of a task are in the ledgers of the worker."""

    findings = EffectsFindings
    about: Literal["effects"] = "effects"
    task_id: str


class RowsInquiry(Inquiry[RowsFindings]):
    """Asks of which of these effects the ledgers of the worker have no row."""

    findings = RowsFindings
    about: Literal["rows"] = "rows"
    effects: tuple[AppliedEffect, ...]


class TranscriptInquiry(Inquiry[TranscriptFindings]):
    """Asks for the conversation of a task's planner: the requests to the planner, and its replies."""

    findings = TranscriptFindings
    about: Literal["transcript"] = "transcript"
    run: str
    """The id of the task's first run."""
    skip: int = 0
    """How many of the oldest turns the answer leaves out, because the console has them already."""


class BreakersInquiry(Inquiry[BreakersFindings]):
    """Asks for the circuit breakers of tools that have failed."""

    findings = BreakersFindings
    about: Literal["breakers"] = "breakers"
    reset: str = ""
    """The kind whose breaker is to be closed first; empty for none."""


class CallsInquiry(Inquiry[CallsFindings]):
    """Asks which of these calls of open tasks the worker's tools do not take."""

    findings = CallsFindings
    about: Literal["calls"] = "calls"
    calls: tuple[NextCall, ...] = ()


class ApprovalsInquiry(Inquiry[ApprovalsFindings]):
    """Asks which of these calls need a person's approval, because their tools declare it with `approve=`."""

    findings = ApprovalsFindings
    about: Literal["approvals"] = "approvals"
    calls: tuple[PlannedStep, ...] = ()


class InquiryInput(
    RootModel[
        Annotated[
            ToolsInquiry
            | WorkerInquiry
            | PlanInquiry
            | PayloadInquiry
            | ClaimsInquiry
            | PruneInquiry
            | EffectsInquiry
            | RowsInquiry
            | BreakersInquiry
            | CallsInquiry
            | ApprovalsInquiry
            | TranscriptInquiry,
            Field(discriminator="about"),
        ]
    ]
):
    """The input of InspectWorkflow."""


@workflow.defn(name="InspectWorkflow")
class InspectWorkflow:
    """Answers one inquiry: a question of the console."""

    @workflow.run
    @undecoded
    async def run(self, *arguments: InquiryInput | RawValue) -> Findings:
        """Have a worker answer the inquiry; raise ApplicationError if it cannot, or if the inquiry cannot be read."""
        question = require_argument("inquiry", arguments, InquiryInput, UNKNOWN_INQUIRY).root
        if isinstance(question, PlanInquiry):  # it needs the activities of a task, not `inspect`
            drafted = await _draft(question.task)
            return PlanFindings(planner=drafted.planner, draft=drafted)
        spec, payload = own_activities.inquiry_spec(question.about), question.model_dump(mode="json")
        try:
            own = OwnCall(None, spec, ids.INSPECT, revision=0)
            found: Findings = await OwnAttempts(own, payload, question.findings, question.about).run()
        except InternalActivityFailed as failed:
            raise ApplicationError(failed.fault.reason, type=failed.fault.code, non_retryable=True) from None
        return found


async def _draft(task: Task) -> Draft:
    progress = Progress.of(task).model_copy(update={"is_draft": True})
    try:
        catalogue = await read_catalogue(task.requirements, describe_opening(progress))
        if catalogue.refused:
            raise TaskEnded(TaskStatus.FAILED, catalogue.refused, REFUSED)
        contract = trust.first_contract(progress, catalogue)
        progress.write(TaskBegun(proof=ids.CATALOGUE, planner=catalogue.planner, contract=contract))
        proposal, _ = await propose(progress, catalogue)
    except TaskEnded as early:
        return Draft(planner=progress.planner, ending=early.ending)
    steps = proposal.steps if isinstance(proposal, NewSteps) else ()
    specs = {step.kind: catalogue.specs[step.kind] for step in steps}
    return Draft(planner=progress.planner, proposal=proposal, specs=specs)
