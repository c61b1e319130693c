"""The entries of a journal about the steps of a plan, their calls and their faults.

Made when a step starts, waits or ends, after each execution of an activity, and after each fault.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

from pydantic import Field, JsonValue

from workflows.account import metrics
from workflows.account.entry import LEFT_OUT, JournalEntry, LogLine
from workflows.account.metrics import Sample
from workflows.account.records import FaultRecord, Observation, PlannerWait, StepStatus
from workflows.account.state import EntryLists, JournalState
from workflows.faults.fault import Code, Fault
from workflows.limits.budget import Spent
from workflows.marks import Kept
from workflows.plans import own_activities
from workflows.plans.catalogue import Effect
from workflows.plans.proposal import StepReturn

MAX_FAULTS = 200
"""How many faults of steps, and how many of its own calls, a task keeps: the newest."""


class Observed(JournalEntry, frozen=True):
    """The state of the world was read again after a fault, or is known from the fault alone."""

    kind: Literal["observed"] = "observed"
    observation: Observation = Field(default=LEFT_OUT, exclude=True)

    def apply(self, state: JournalState) -> None:
        shown, record = self.observation, state.record_of(self.step)
        state.observations.append(shown)
        if not shown.stale:
            fault = next(fault for fault in state.rejecting_faults if fault.step_id == self.step)
            read = shown.kind, shown.args, shown.value
            state.guard.observed(record.kind, record.args or {}, *read, fault.observed, state.effects)


class Started(JournalEntry, frozen=True):
    """A step has started or, without a step, a read that observes or reconciles."""

    kind: Literal["started"] = "started"
    is_untrusted: bool = False
    """Whether its tool returns untrusted content."""
    args: dict[str, JsonValue] | None = Field(default=None, exclude=True)
    """See `StepRecord.args`."""
    outside: str = ""
    """Why the call is outside the contract, if only its arguments with results show it."""

    def apply(self, state: JournalState) -> None:
        # Now, because a call that fails may have read untrusted content, too.
        state.contract.begin(is_untrusted=self.is_untrusted)
        if not self.step:
            return
        record = state.record_of(self.step)
        record.status, record.started = StepStatus.RUNNING, self.at
        record.args = record.args if self.args is None else self.args
        if self.outside:
            state.contract.outside[self.step] = self.outside


class Settled(JournalEntry, frozen=True):
    """One execution of an activity came back, and what it used is known."""

    # Set when the execution is scheduled
    kind: Literal["settled"] = "settled"
    source: Kept[str]
    """The kind of the tool or of the activity."""
    is_read: bool = False
    """Whether it observed or reconciled for the step."""
    is_check: bool = False
    """Whether it only checked what a person gave, and so is no attempt of the step."""

    # Set from its attempts
    is_cancelled: bool = False
    taken: int = 0
    """How many attempts it made; one whose worker stopped or went silent is not counted."""
    silent: int = 0
    """How many of these, except the last, ended without a report."""
    lost: int = 0
    """How many attempts were lost, since their workers went silent."""

    # Set when the budget is settled
    retries: int | None = None
    """How many retries count against those that the task may make of this tool; None for an activity of Replan's."""
    used: Spent = Spent()
    """What is added to what the task has spent."""
    purpose: Kept[str] = ""
    """What models were paid for (`metrics`); empty if none was paid."""
    tokens: int = 0
    """The tokens of `used` that the result reports; all others were lost."""
    usd: float = 0.0
    """The US dollars of `used` that the result reports."""

    # Set from its faults and its result
    retried: Kept[tuple[str, ...]] = ()
    """For each attempt that was a retry, the code of the fault before it."""
    wasted: Kept[tuple[str, ...]] = ()
    """Those of `retried` that followed a persistent fault."""
    helped: dict[str, int] = Field(default_factory=dict)
    """If the call is completed: its retries in all executions, by the code of the fault before each."""
    replayed: bool = False
    is_open: bool = False
    """Whether no call was made, since the circuit breaker is open."""
    is_done: bool = False
    """Whether the call is completed."""
    failed: Fault | None = Field(default=None, exclude=True)
    """See `StepRecord.failed`."""

    @classmethod
    def of_execution(
        cls,
        result: StepReturn | Fault | None,
        earlier: Sequence[Fault],
        repeated: Fault | None,
        retried: dict[str, int],
        **fields: Any,
    ) -> "Settled":
        """The entry of an execution of a tool, with further `fields`; `result` is None if it was cancelled.

        `retried` are the retries of the call in the executions before. See `metrics.retry_causes` for the others.
        """
        done, fault = (result, None) if isinstance(result, StepReturn) else (None, result)
        taken = 1 if result is None else fault.taken if fault else result.attempt
        causes = metrics.retry_causes(taken, earlier, repeated)
        codes = tuple(code for code, _ in causes)
        return cls(
            is_cancelled=result is None,
            taken=taken,
            silent=codes.count(metrics.UNREPORTED),
            lost=fault.uncounted if fault else 0,
            tokens=done.tokens if done else 0,
            usd=(done.usd or 0.0) if done else 0.0,
            retried=codes,
            wasted=tuple(code for code, is_wasted in causes if is_wasted),
            helped=added(retried, codes) if done else {},
            replayed=done is not None and done.replayed,
            is_open=fault is not None and fault.code is Code.CIRCUIT_OPEN,
            is_done=done is not None,
            failed=metrics.last_fault(result, earlier, repeated),
            **fields,
        )

    @property
    def is_told_later(self) -> bool:
        return True

    def apply(self, state: JournalState) -> None:
        state.budget.spend(self.source, self.used, self.retries)
        if not self.step or self.is_read:
            return
        record = state.record_of(self.step)
        record.attempts += 0 if self.is_check else self.taken
        record.used += 0 if self.is_cancelled else self.taken
        record.silent, record.losses = record.silent + self.silent, record.losses + self.lost
        record.repeated = None
        if not (self.is_done or self.is_cancelled):
            record.failed = self.failed
        record.retried = {} if self.is_done else added(record.retried, self.retried)

    def samples(self, state: JournalState) -> Iterator[Sample]:
        is_planner = self.source in metrics.PLANNERS
        yield Sample(metrics.PLANNER_CALLS if is_planner else metrics.TOOL_CALLS, (self.source,), self.taken)
        for code in self.retried:
            yield Sample(metrics.PLANNER_RETRIES if is_planner else metrics.RETRIES, (self.source, code))
        for code in self.wasted:
            yield Sample(metrics.WASTED_ATTEMPTS, (self.source, code))
        for code, number in self.helped.items():
            yield Sample(metrics.HELPED_RETRIES, (self.source, code), number)
        if self.replayed:
            yield Sample(metrics.REPLAYED_RESULTS, (self.source, "ledger"))
        if self.is_open:
            yield Sample(metrics.CIRCUIT_OPEN, (self.source,))
        if self.purpose:
            yield from metrics.of_spending(self.purpose, self.tokens, self.usd)
            lost_usd = (self.used.usd or self.usd) - self.usd
            yield from metrics.of_spending(metrics.LOST, self.used.tokens - self.tokens, lost_usd)


class Attempted(JournalEntry, frozen=True):
    """An attempt failed, and it is decided what follows."""

    kind: Literal["attempted"] = "attempted"
    fault: FaultRecord
    is_own: bool = False
    """Whether the call is Replan's own: to the planner, or a read that observes or reconciles."""
    is_check: bool = False
    """Whether the call only checked what a person gave."""
    seconds: float | None = None
    """How long the call waits before it is made again."""
    fallback: Kept[str] = ""
    """The kind that is called instead."""
    effect: Effect | None = None
    is_untrusted: bool = False
    """The effect of the fallback, and whether it returns untrusted content."""
    marks_down: bool = False
    """Whether the kind is blocked for all later plans."""
    is_over: bool = False
    """Whether a rollback wrote it: what followed the fault has followed."""

    @property
    def is_told_later(self) -> bool:
        return not self.fallback

    def tell(self, lists: EntryLists) -> None:
        if not self.is_check:
            faults = lists.own_faults if self.is_own else lists.faults
            faults.append(self.fault)
            del faults[: -MAX_FAULTS if self.is_own else 0]

    def apply(self, state: JournalState) -> None:
        self.tell(state)
        if not (self.is_own or self.is_check or self.is_over):
            self._follow(state)

    def _follow(self, state: JournalState) -> None:
        record, fault = state.record_of(self.step), self.fault
        if self.fallback:
            record.kind, record.used, record.failed, record.retried = self.fallback, 0, None, {}
            record.effect = self.effect or record.effect
            state.contract.begin(is_untrusted=self.is_untrusted)
        if fault.decision != "replan":
            return
        args = record.args or record.step.args
        if self.marks_down:
            state.down.append(record.kind)
        elif fault.code is not Code.REPEATED_CALL and not fault.by_id:  # in both cases the call was not made
            state.guard.remember(record.kind, args, state.effects)
        if fault.code is not Code.REPEATED_CALL:
            about = {"revision": record.revision, "changes": state.effects, "sent": len(state.words)}
            state.loops.note_fault(record.kind, args, [fault.code.value, fault.observed], **about)

    def samples(self, state: JournalState) -> Iterator[Sample]:
        fault = self.fault
        if fault.decision == "retry" and fault.waited is not None and fault.source not in own_activities.KINDS:
            yield Sample(metrics.RETRY_DELAY, (fault.source, fault.code), fault.waited)
        if not (self.is_own or self.is_check or self.is_over):
            yield from metrics.of_fault(fault)

    def lines(self, state: JournalState) -> Iterator[LogLine]:
        if not self.is_over:
            yield decision_line(self.fault, self.seconds, self.fallback)


def decision_line(fault: FaultRecord, seconds: float | None = None, fallback: str = "") -> LogLine:
    """What is logged about a fault and what follows: a wait of `seconds`, or the kind `fallback` that is called."""
    fields = {
        "step": fault.step_id,
        "kind": fault.source,
        "revision": fault.revision,
        "attempt": fault.attempt,
        "code": fault.code.value,
        "quadrant": fault.quadrant.value,
        "effect": fault.applied.value,
        "decision": fault.decision,
        "seconds": seconds,
        "fallback": fallback or None,
    }
    return "decision", {name: value for name, value in fields.items() if value is not None}


class Reconciled(Attempted, frozen=True):
    """It was found out whether the call of the newest fault of a step was applied; `fault` takes its place."""

    kind: Literal["reconciled"] = "reconciled"  # type: ignore[assignment]

    def tell(self, lists: EntryLists) -> None:
        index = next((at for at in reversed(range(len(lists.faults))) if lists.faults[at].step_id == self.step), None)
        if index is not None:  # a long task may have dropped it
            lists.faults[index] = self.fault

    def apply(self, state: JournalState) -> None:
        self.tell(state)
        if self.fault.reconciled == "not_applied":
            state.record_of(self.step).fencing_token += 1
        if not self.is_over:
            self._follow(state)

    def lines(self, state: JournalState) -> Iterator[LogLine]:
        about = {"step": self.step, "kind": self.fault.source, "revision": self.fault.revision}
        yield "reconciled", {**about, "verdict": self.fault.reconciled}
        if self.fault.decision != "reconcile" and not self.is_over:  # else what was decided before has come to its end
            yield from super().lines(state)


class Decided(JournalEntry, frozen=True):
    """What follows the newest fault of a step was decided by a person, or because nobody answered."""

    kind: Literal["decided"] = "decided"
    decision: Literal["replan", "escalate"]

    def tell(self, lists: EntryLists) -> None:
        for index in reversed(range(len(lists.faults))):
            if lists.faults[index].step_id == self.step:
                lists.faults[index] = lists.faults[index].model_copy(update={"decision": self.decision})
                return


class Waited(JournalEntry, frozen=True):
    """A step, a read or the planner waits; a `Resumed` follows."""

    kind: Literal["waited"] = "waited"
    code: Kept[str] = ""
    """The code of the fault after which it waits; empty if it waits for something else than a repetition."""
    seconds: float = 0.0
    planner: PlannerWait | None = None
    """What the task waits for, if it waits for its planner."""

    def apply(self, state: JournalState) -> None:
        state.waiting = self.planner or state.waiting
        if not self.step:
            return
        record = state.record_of(self.step)
        if self.code:
            record.waits, record.repeated = record.waits + 1, record.failed
            record.waited += self.seconds if self.code == Code.MISSING_TOOL else 0.0
        record.status = StepStatus.WAITING


class Resumed(JournalEntry, frozen=True):
    """What waited goes on."""

    kind: Literal["resumed"] = "resumed"
    slept: float = 0.0
    """Seconds; not a difference of times, which may be another one on replay."""

    def apply(self, state: JournalState) -> None:
        if not self.step:
            state.waiting = None
            return
        record = state.record_of(self.step)
        record.status, record.slept = StepStatus.RUNNING, record.slept + self.slept


class StepEnded(JournalEntry, frozen=True):
    """A step has ended: `status` says how."""

    kind: Literal["step_ended"] = "step_ended"
    status: StepStatus
    replayed: bool = False
    in_history: bool = False
    """Whether the events of this run have its result."""
    has_waited: bool = False
    """Whether the call, or the waits before it, took so long that the world may have changed."""
    is_by_model: bool = False
    """Whether a model wrote the result."""
    result: JsonValue = Field(default=None, exclude=True)

    def apply(self, state: JournalState) -> None:
        record = state.record_of(self.step)
        record.was_waiting = self.status is StepStatus.CANCELLED and record.status is StepStatus.WAITING
        record.status = self.status
        if record.started is not None:
            record.ended, record.place = record.ended or self.at, record.place or state.next_place
        if self.status is not StepStatus.COMPLETED:
            return
        record.result, record.replayed = self.result, self.replayed
        if record.args is not None and record.undoes is None:
            record.unchanged = state.loops.note(
                record.step.kind,
                record.args,
                record.result,
                record.effect,
                revision=record.revision,
                changes=state.effects,
                sent=len(state.words),
                has_waited=self.has_waited,
                is_by_model=self.is_by_model,
            )
        if self.in_history:
            state.note_in_history(record)


def added(counts: dict[str, int], codes: Iterable[str]) -> dict[str, int]:
    """These counts, and one more for each of the `codes`."""
    return dict(Counter(counts) + Counter(codes))
