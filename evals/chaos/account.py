"""The account of a trial: what tasks said against what happened, step by step."""

from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from pydantic import BaseModel, computed_field

from evals.chaos.effects import Effects
from workflows.faults import Applied
from workflows.outcome import Outcome, OutcomeStep
from workflows.record import StepStatus


class Verdict(StrEnum):
    """What one effect came to."""

    RIGHT = "right"
    """It is as the task said."""
    DUPLICATE = "duplicate"
    """It happened more than once."""
    LOST = "lost"
    """The task said that it happened, and it did not."""
    DENIED = "denied"
    """The task said that it did not happen, and it did."""
    UNKNOWN_DONE = "unknown that happened"
    """The task said that it cannot tell; it happened."""
    UNKNOWN_NOT = "unknown that did not happen"


BROKEN = (Verdict.DUPLICATE, Verdict.LOST, Verdict.DENIED)
"""What breaks a promise."""

UNDO = {"transfer": "move_back", "pay": "refund"}
"""The kinds that can be taken back, and those that do it."""


class Finding(NamedTuple):
    """One effect that is worth a line."""

    verdict: Verdict
    reference: str
    kind: str
    said: str
    times: int


class Account(BaseModel):
    """What became of all tasks and all their effects."""

    tasks: dict[str, int]
    """How many ended in which status; `unfinished` is no status of ours."""
    codes: dict[str, int]
    """Why those ended that are not completed."""
    verdicts: dict[str, int]
    """How many effects came to what."""
    findings: list[Finding]
    """The effects that break a promise."""
    applied: dict[str, int]
    """Effects that happened, by sort."""
    replayed: int
    """Steps that got the result of an effect that had happened already."""
    undone: int
    """Steps that were taken back."""
    reconciled: dict[str, int]
    """Unknown effects that were found out, by what the look came to."""
    attempts: dict[int, int]
    """Steps by the number of their attempts."""
    ran_again: list[str]
    """Finished steps that ran again in a task that nobody had reset."""
    not_replaying: list[str] = []
    """Histories that do not replay."""
    total_before: int
    total_after: int
    unbalanced: list[int]
    troubles: dict[str, int]
    """What went wrong at the payment service."""

    @computed_field  # type: ignore[prop-decorator]  # as pydantic's own pages have it
    @property
    def duplicates(self) -> int:
        """Effects that happened more than once."""
        return self.verdicts.get(Verdict.DUPLICATE, 0)

    @computed_field  # type: ignore[prop-decorator]  # as pydantic's own pages have it
    @property
    def lost(self) -> int:
        """Effects that did not happen, or not as was said."""
        return self.verdicts.get(Verdict.LOST, 0) + self.verdicts.get(Verdict.DENIED, 0)

    @computed_field  # type: ignore[prop-decorator]  # as pydantic's own pages have it
    @property
    def broken(self) -> list[str]:
        """The promises that were broken, one line each."""
        said = [
            f"{one.verdict}: {one.kind} {one.reference}, said {one.said}, {one.times} times" for one in self.findings
        ]
        said += [f"unfinished: {self.tasks['unfinished']} tasks"] if self.tasks.get("unfinished") else []
        said += [f"ran again: {step}" for step in self.ran_again]
        said += [f"does not replay: {history}" for history in self.not_replaying]
        if self.total_before != self.total_after or self.unbalanced:
            said.append(f"total {self.total_before} -> {self.total_after}, accounts {self.unbalanced} are off")
        return said


def verdicts(outcome: Outcome, effects: Effects, *, was_reset: bool) -> Iterator[Finding]:
    """What each step of a task, and of its rollback, says against what happened."""
    for step in outcome.steps:
        reference = str(step.args.get("reference"))
        count = effects.count(step.kind, reference)
        if count is None:
            continue
        said = _said(step)
        if was_reset and count and _is_of_before(step, effects):
            said = Applied.APPLIED
        yield Finding(_verdict(said, count), reference, step.kind, said, count)
    yield from _strays(outcome, effects, was_reset=was_reset)


def _is_of_before(step: OutcomeStep, effects: Effects) -> bool:
    """Whether a task that was reset may have done a step in the life before, and say now that it did not.

    It does not come to it again, or it may not do again what was taken back then.
    """
    taken_back = effects.count(UNDO.get(step.kind, ""), str(step.args.get("reference")))
    return step.status is StepStatus.SKIPPED or (step.status is StepStatus.FAILED and taken_back == 1)


def _strays(outcome: Outcome, effects: Effects, *, was_reset: bool) -> Iterator[Finding]:
    """What was taken back although the task does not say so."""
    ids = {step.id for step in outcome.steps}
    for step in outcome.steps:
        kind, reference = UNDO.get(step.kind, ""), str(step.args.get("reference"))
        count = effects.count(kind, reference) or 0
        if count and f"undo:{step.id}" not in ids:
            is_known = was_reset and count == 1
            yield Finding(Verdict.RIGHT if is_known else Verdict.DENIED, reference, kind, Applied.NONE, count)


def _said(step: OutcomeStep) -> Applied:
    """What a task says of an effect."""
    match step.status:
        case StepStatus.COMPLETED | StepStatus.UNDONE:
            return Applied.APPLIED
        case StepStatus.FAILED if step.fault is not None:
            return step.fault.effect
        case StepStatus.SKIPPED:
            return Applied.NONE
    return Applied.UNKNOWN


def _verdict(said: Applied, count: int) -> Verdict:
    if count > 1:
        return Verdict.DUPLICATE
    match said:
        case Applied.APPLIED:
            return Verdict.RIGHT if count else Verdict.LOST
        case Applied.NONE:
            return Verdict.DENIED if count else Verdict.RIGHT
        case _:
            return Verdict.UNKNOWN_DONE if count else Verdict.UNKNOWN_NOT


def tally(words: Sequence[str]) -> dict[str, int]:
    """How often each word occurs, the most frequent first."""
    return dict(Counter(words).most_common())
