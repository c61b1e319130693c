"""What a planner is told, made for tests."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, JsonValue

from activities.offline.planner import OfflinePlanner
from activities.toolbox import builtin
from activities.toolbox.pages import DocumentText
from activities.toolbox.registry import Registry
from examples import desk
from examples.desk.bookings import Slots
from replan import tool
from workflows.account.records import FaultRecord, Observation, StepRecord, StepStatus
from workflows.faults.fault import Code, Fault
from workflows.planning.situation import Situation
from workflows.plans.catalogue import Effect
from workflows.plans.proposal import Answer, GiveUp, NewSteps, Question, Step

NOW = datetime(2025, 11, 21, 12, tzinfo=UTC)
TODAY = "2025-11-21"


class Parcel(BaseModel):
    """A tool's arguments that the planner has never heard of."""

    weight: float
    depot: str


@tool.idempotent
def send_parcel(args: Parcel) -> Parcel:
    """Send a parcel from a depot."""
    return args


class Query(BaseModel):
    query: str
    limit: int = 5


class Hits(BaseModel):
    hits: list[dict[str, JsonValue]]


class DocumentName(BaseModel):
    name: str
    page: int = 1


@tool.read(untrusted=True)
def search(args: Query) -> Hits:
    """Search the task's documents: what the extra for documents brings, which is not needed to plan it."""
    return Hits(hits=[])


@tool.read(untrusted=True)
def read_document(args: DocumentName) -> DocumentText:
    """Read one of the task's documents by its name."""
    return DocumentText(name=args.name, title="", text="", first=1, last=1, pages=1)


OF_DOCUMENTS = (search, read_document)
"""Tools that stand for those of extras/documents, so that plans with them can be made and checked without it."""
KINDS = Registry([send_parcel], builtin=(*builtin.TOOLS, *OF_DOCUMENTS), demo=desk.TOOLS)


async def propose(situation: Situation) -> NewSteps | Answer | Question | GiveUp:
    """Ask the planner."""
    return await OfflinePlanner().propose(situation, KINDS)


def asked(text: str, **more: Any) -> Situation:
    """A task at its beginning."""
    return Situation.model_validate({"text": text, "turn": 1, "now": NOW, **more})


async def gives_up(situation: Situation) -> str:
    """Why the planner gives up."""
    proposal = await propose(situation)
    assert isinstance(proposal, GiveUp), proposal
    return proposal.reason


BOOK: dict[str, JsonValue] = {"day": TODAY, "at": "14:00", "name": "team"}


def step(id: str, kind: str = "book_slot", args: Mapping[str, JsonValue] = BOOK, **more: Any) -> Step:
    """A step of the old plan."""
    return Step.model_validate({"id": id, "kind": kind, "args": dict(args), **more})


def record(step: Step, status: str, *, revision: int = 1, **more: Any) -> StepRecord:
    """What became of a step."""
    started = None if status in ("pending", "skipped") else NOW
    effect = KINDS[step.kind].spec.effect if step.kind in KINDS else Effect.READ
    common = {"step": step, "revision": revision, "effect": effect, "kind": step.kind, "started": started}
    return StepRecord.model_validate({**common, "args": step.args if started else None, "status": status, **more})


def fault(step_id: str, code: Code = Code.CONFLICT, observed: JsonValue = None, revision: int = 1) -> FaultRecord:
    """Why a step was refused."""
    base = Fault.of(code, "It is taken.", observed=observed, source="book_slot").model_dump()
    return FaultRecord.model_validate(
        {**base, "step_id": step_id, "revision": revision, "decision": "replan", "at": NOW}
    )


def seen(step_id: str, value: JsonValue, *, stale: bool = False) -> Observation:
    """What was seen afterwards."""
    return Observation(step_id=step_id, kind="list_slots", args={"day": TODAY}, value=value, at=NOW, stale=stale)


FREE: JsonValue = Slots.model_validate({"day": TODAY, "free": ["09:30", "13:00", "14:30", "15:00"]}).model_dump(
    mode="json"
)


def refused(*records: StepRecord, **more: Any) -> Situation:
    """A task after `book` was refused; only what is given differs."""
    first = record(step("book", title="team 14:00"), StepStatus.FAILED)
    usual = {"turn": 2, "records": (first, *records), "faults": (fault("book"),), "observations": (seen("book", FREE),)}
    return asked("book a slot for the team at 14:00", **{**usual, **more})
