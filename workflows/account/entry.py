"""What all entries of a journal have.

Made whenever a workflow decides something about its task or learns it; read by each client that tells of the task.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, ClassVar

from pydantic import AwareDatetime

from workflows.account.metrics import Sample
from workflows.account.records import StepStatus
from workflows.account.state import EntryLists, JournalState
from workflows.marks import Kept
from workflows.sparse import Sparse

LONG_AGO = datetime.min.replace(tzinfo=UTC)
LEFT_OUT: Any = None
"""Stands for a value that the JSON of an entry leaves out: only an entry that was just written has it."""
LogLine = tuple[str, dict[str, Any]]


class Standing(Sparse, frozen=True):
    """How a step stands after an entry."""

    id: Kept[str]
    kind: Kept[str]
    """The kind that it calls: the planned one, or a fallback."""
    title: str = ""
    """Only where its plan is new."""
    revision: int
    status: StepStatus = StepStatus.PENDING
    attempts: int = 0


class JournalEntry(Sparse, frozen=True):
    """Something that happened to a task."""

    kind: str
    number: int = 0
    """From 1, over all runs of the task."""
    at: AwareDatetime = LONG_AGO
    step: Kept[str] = ""
    """The id of the step that it is about; empty if it is about the task."""
    proof: Kept[str] = ""
    """The id of what proves it in Temporal's history: of an activity or of an Update. A timer has the number of its
    entry at the end of its name."""

    stands: tuple[Standing, ...] = ()
    """How the steps stand after it that stood otherwise before it."""
    changes_all: ClassVar[bool] = False
    """Whether it may change how any step stands, and not only `step`."""

    @property
    def is_told_later(self) -> bool:
        """Whether what it changes of its step is told with the entry that follows."""
        return False

    def tell(self, lists: EntryLists) -> None:
        """Add what the entry says to the lists of the state; called again when a snapshot is read."""

    def apply(self, state: JournalState) -> None:
        """Change the state."""
        self.tell(state)

    def samples(self, state: JournalState) -> Iterator[Sample]:
        """What it adds to the metrics; `state` is that after the entry."""
        yield from ()

    def lines(self, state: JournalState) -> Iterator[LogLine]:
        """What a worker logs about it: the names of events with their fields."""
        yield from ()
