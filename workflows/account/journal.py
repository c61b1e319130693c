"""The journal of a task: one list of what happened to it, each entry written where it is decided, once.

Made from the start of a task to its end, in each of its runs; read whenever a client follows or explains the task.

An entry changes the state with `apply`, and nothing else does. It holds what is said of it once; values (arguments,
results, requests) stand with their step or request in the state, so that the JSON of an entry leaves them out.
A new kind of entry is a class here, the line that writes it, and its sentence in `client.explain`.
"""

from collections.abc import Iterator
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import AwareDatetime, BaseModel, Field

from workflows.account import entries_of_people, entries_of_steps, metrics
from workflows.account.entries_of_steps import MAX_FAULTS
from workflows.account.entry import LEFT_OUT, JournalEntry, LogLine
from workflows.account.metrics import Sample
from workflows.account.outcome import Ending
from workflows.account.records import (
    Compaction,
    Failover,
    Rejection,
    Revision,
    StepRecord,
    StepStatus,
    UndoRecord,
)
from workflows.account.state import EntryLists, JournalState
from workflows.faults.fault import Code
from workflows.marks import Kept
from workflows.people.requests import ENDED
from workflows.people.statement import Statement, newest_of_each
from workflows.plans.contract import Contract

MAX_REVISIONS = 100
"""How many plans a task keeps: the newest."""
MAX_PLANNED = 1_000
"""How many planned steps a task keeps in the entries of its plans: the newest. Of older plans only `Revision` stays."""
MAX_OF_KIND = 300
"""How many entries of a kind a task keeps if KEPT does not name it: the newest."""


class TaskBegun(JournalEntry, frozen=True):
    """A worker has taken the task up, in each of its runs."""

    kind: Literal["began"] = "began"
    planner: Kept[str] = ""
    store: Kept[str | None] = None
    searchable: bool = False
    page: str = ""
    contract: Contract | None = Field(default=None, exclude=True)
    """The contract of a task that begins; None in a later run."""

    def apply(self, state: JournalState) -> None:
        state.planner, state.searchable, state.page = self.planner, self.searchable, self.page
        state.store = state.store or self.store
        if self.contract is not None:
            state.contract = self.contract.model_copy(deep=True)


class Requested(JournalEntry, frozen=True):
    """The planner is asked, or what a person wrote is taken in its place."""

    kind: Literal["requested"] = "requested"
    turn: int
    source: Kept[str]
    """The kind of the activity."""
    is_untrusted: bool = False
    """Whether the planner is told something of the tools that no person has read."""

    def apply(self, state: JournalState) -> None:
        state.turn = self.turn
        state.contract.begin(is_untrusted=self.is_untrusted)


class Turned(JournalEntry, frozen=True):
    """What a person wrote for a turn was used, or a turn is taken again, since nothing came of it."""

    kind: Literal["turned"] = "turned"
    turn: int
    taken: int
    """See `State.revisions_taken`."""

    def apply(self, state: JournalState) -> None:
        state.turn, state.revisions_taken = self.turn, self.taken


class Replied(JournalEntry, frozen=True):
    """The planner has answered."""

    kind: Literal["replied"] = "replied"
    planner: Kept[str]
    converses: bool = False
    branch: int = 0
    context: int = 0
    words: int = 0
    """How many words of people it was told."""
    tells_effects: bool = False
    """Whether it was told of the effects of earlier runs."""
    is_untrusted: bool = False

    def apply(self, state: JournalState) -> None:
        state.planner = self.planner or state.planner
        if self.converses:
            state.branch, state.told, state.is_opened = self.branch, state.revision, True
        state.context, state.words_told = self.context or state.context, self.words
        state.has_untold_effects = state.has_untold_effects and not self.tells_effects
        state.contract.begin(is_untrusted=self.is_untrusted)


class FailedOver(JournalEntry, frozen=True):
    """A planner could not be used, and another one was asked."""

    kind: Literal["failed_over"] = "failed_over"
    failover: Failover

    def tell(self, lists: EntryLists) -> None:
        lists.failovers.append(self.failover)


class ConversationCompacted(JournalEntry, frozen=True):
    """The oldest turns of the conversation were summarised."""

    kind: Literal["compacted"] = "compacted"
    compaction: Compaction
    branch: int = 0

    def tell(self, lists: EntryLists) -> None:
        lists.compactions.append(self.compaction)

    def apply(self, state: JournalState) -> None:
        self.tell(state)
        # Half of the tokens is an estimate, until the provider counts the shorter conversation.
        state.branch, state.context = self.branch, state.context // 2


class RejectedPlan(JournalEntry, frozen=True):
    """A proposal was rejected."""

    kind: Literal["rejected_plan"] = "rejected_plan"
    rejection: Rejection
    mistakes: int

    def tell(self, lists: EntryLists) -> None:
        lists.rejections.append(self.rejection)

    def lines(self, state: JournalState) -> Iterator[LogLine]:
        yield "proposal_rejected", {"revision": state.revision + 1, "reasons": self.mistakes}


class PlanInForce(JournalEntry, frozen=True):
    """A plan was accepted; it replaces the one before."""

    kind: Literal["planned"] = "planned"
    revision: Revision
    failed_at: AwareDatetime | None = None
    """When the first fault happened that made the plan necessary; None if none did."""
    changes_all: ClassVar[bool] = True
    records: tuple[StepRecord, ...] = Field(default=(), exclude=True)
    contract: Contract | None = Field(default=None, exclude=True)

    def tell(self, lists: EntryLists) -> None:
        lists.revisions.append(self.revision)

    def apply(self, state: JournalState) -> None:
        state.add_plan(record.model_copy() for record in self.records)
        if self.contract is not None:
            state.contract = self.contract.model_copy(deep=True)
        self.tell(state)

    def samples(self, state: JournalState) -> Iterator[Sample]:
        if self.failed_at:
            yield Sample(metrics.TIME_TO_REPLAN, (), (self.at - self.failed_at).total_seconds())


class Executed(JournalEntry, frozen=True):
    """No step of the plan in force runs any more, and none will start."""

    kind: Literal["executed"] = "executed"
    rejected: tuple[str, ...] = ()
    """The ids of the steps whose faults require a new plan."""

    def apply(self, state: JournalState) -> None:
        state.replanning = bool(self.rejected)
        if self.rejected:
            state.observations = []


class Replanned(JournalEntry, frozen=True):
    """It was decided to ask for a new plan because of a fault."""

    kind: Literal["replanned"] = "replanned"
    code: Code
    fruitless: int = 0
    """See `State.fruitless`."""

    def apply(self, state: JournalState) -> None:
        state.replans, state.fruitless = state.replans + 1, self.fruitless

    def samples(self, state: JournalState) -> Iterator[Sample]:
        yield from metrics.of_replan(self.code, state.revision)


class Allowed(JournalEntry, frozen=True):
    """The limit of tool calls was raised, so that a reconciliation or a rollback need not stop at it."""

    kind: Literal["allowed"] = "allowed"
    calls: int

    def apply(self, state: JournalState) -> None:
        state.budget.allow(self.calls)


class EarlierKnown(JournalEntry, frozen=True):
    """A reset told of effects of earlier runs."""

    kind: Literal["earlier_known"] = "earlier_known"
    changes_all: ClassVar[bool] = True
    records: tuple[StepRecord, ...] = Field(default=LEFT_OUT, exclude=True)

    def apply(self, state: JournalState) -> None:
        state.add_earlier(self.records)


class UndoAsked(JournalEntry, frozen=True):
    """The effects are to be undone when the task is cancelled; or a person has confirmed calls that undo."""

    kind: Literal["undo_asked"] = "undo_asked"
    confirmed: dict[str, str] | None = Field(default=None, exclude=True)
    """See `State.confirmed`; None if nothing was confirmed."""
    vouched: tuple[Statement, ...] = Field(default=(), exclude=True)

    def apply(self, state: JournalState) -> None:
        state.undo_when_cancelled = state.undo_when_cancelled or self.confirmed is None
        state.confirmed = {**state.confirmed, **(self.confirmed or {})}
        state.vouched = newest_of_each((*state.vouched, *self.vouched))


class UndoBegun(JournalEntry, frozen=True):
    """The effect of a step is about to be undone; `step` is the id of the call that undoes it."""

    kind: Literal["undoing"] = "undoing"
    record: StepRecord = Field(default=LEFT_OUT, exclude=True)
    outside: str = ""
    """Why a person must have confirmed the call; empty if nobody must."""

    def apply(self, state: JournalState) -> None:
        state.records.append(self.record.model_copy())
        state.contract.outside.pop(self.step, None)
        if self.outside:
            state.contract.outside[self.step] = self.outside


class UndoEnded(JournalEntry, frozen=True):
    """An effect was undone, or stays."""

    kind: Literal["undone"] = "undone"
    undo: UndoRecord

    def tell(self, lists: EntryLists) -> None:
        lists.undo.append(self.undo)

    def apply(self, state: JournalState) -> None:
        self.tell(state)
        if self.undo.done:
            state.record_of(self.step).status = StepStatus.UNDONE


class MovedOn(JournalEntry, frozen=True):
    """The run `run` ended by continuing as new; the task goes on in the next one."""

    kind: Literal["moved_on"] = "moved_on"
    run: Kept[str]
    was_reset: bool = False

    def apply(self, state: JournalState) -> None:
        state.was_reset = state.was_reset or self.was_reset


class TaskClosed(JournalEntry, frozen=True):
    """The task has ended."""

    kind: Literal["ended"] = "ended"
    changes_all: ClassVar[bool] = True
    ending: Ending = Field(default=LEFT_OUT, exclude=True)

    def apply(self, state: JournalState) -> None:
        for record in state.with_status(StepStatus.PENDING, StepStatus.WAITING):
            record.status = StepStatus.SKIPPED
        for request in state.open_requests:
            request.close(ENDED)
        state.ending, state.ended_at = self.ending, self.at

    def samples(self, state: JournalState) -> Iterator[Sample]:
        yield from metrics.of_ending(self.ending)
        steps = len(state.folded.ids) + sum(record.started is not None for record in state.records)
        spent = state.spent_until(self.at)
        yield from metrics.distributions(self.ending.status, steps, state.replans, spent, state.budget)

    def lines(self, state: JournalState) -> Iterator[LogLine]:
        for request in state.requests:
            if request.is_ended:
                yield request.closed_line(self.at)
        spent = state.spent_until(self.at).model_dump()
        wasted = metrics.total(state.counts, metrics.WASTED_ATTEMPTS)
        about = {"status": self.ending.status.value, "code": self.ending.code, "revision": state.revision}
        yield "task", {**about, "replans": state.replans, "wasted": wasted, **spent}


if TYPE_CHECKING:
    AnyEntry = JournalEntry
else:  # an entry of any kind: each class here, and in the modules about steps and people
    _HERE = (*globals().values(), *vars(entries_of_people).values(), *vars(entries_of_steps).values())
    _KINDS = [kind for kind in _HERE if isinstance(kind, type) and issubclass(kind, JournalEntry)]
    AnyEntry = Annotated[
        reduce(or_, (kind for kind in _KINDS if kind is not JournalEntry)), Field(discriminator="kind")
    ]
KEPT = {"attempted": MAX_FAULTS, "planned": MAX_REVISIONS, "rejected_plan": 20, "failed_over": 50}
"""By kind, how many of the newest entries a task keeps; MAX_OF_KIND of all others."""


class JournalPage(BaseModel, frozen=True):
    """Entries of a journal in their order: the answer of the query `journal`."""

    run: str
    """The id of the run that answers."""
    entries: tuple[AnyEntry, ...]
    number: int
    """The number of the last entry that the reader knows now."""
    more: bool = False
    """Whether further entries follow, which did not fit into this page."""
    gap: str = ""
    """If entries are missing, since a long task has dropped them: the id of the run whose history has the first."""
    restarted: bool = False
    """Whether the cursor is of another history, as after a reset: the page begins anew."""

    @property
    def cursor(self) -> str:
        """What to ask the next page with."""
        return f"{self.run}:{self.number}"
