"""The entries of a journal about requests to people, and about their answers.

Made when a task opens a request to a person, when the request is answered or closed, and when the answer is used.
"""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field, JsonValue

from workflows.account import metrics
from workflows.account.entry import LEFT_OUT, JournalEntry, LogLine
from workflows.account.metrics import Sample
from workflows.account.records import StepStatus
from workflows.account.state import MAX_UPDATES, EntryLists, JournalState
from workflows.faults.fault import Applied
from workflows.json_values import digest
from workflows.marks import Kept
from workflows.people.approval import ApprovedCall
from workflows.people.requests import ENDED, Choice, HumanAnswer, HumanRequest, RequestKind, Word


class PersonIsAsked(JournalEntry, frozen=True):
    """A person is asked; the request stands in the state."""

    kind: Literal["asked"] = "asked"
    request: Kept[str]
    """The id of the request."""
    opened: HumanRequest = Field(default=LEFT_OUT, exclude=True)

    def apply(self, state: JournalState) -> None:
        state.requests.append(self.opened.model_copy())
        if self.step:
            state.record_of(self.step).status = StepStatus.WAITING

    def samples(self, state: JournalState) -> Iterator[Sample]:
        yield from metrics.of_opened(self.opened)

    def lines(self, state: JournalState) -> Iterator[LogLine]:
        yield "request_opened", self.opened.log_fields


class Closed(JournalEntry, frozen=True):
    """A request was closed without an answer."""

    kind: Literal["closed"] = "closed"
    request: Kept[str]
    why: Kept[str]

    def apply(self, state: JournalState) -> None:
        state.request(self.request).close(self.why)

    def samples(self, state: JournalState) -> Iterator[Sample]:
        yield from metrics.of_closed(state.request(self.request))

    def lines(self, state: JournalState) -> Iterator[LogLine]:
        if self.why != ENDED:  # the end of the task logs those
            yield state.request(self.request).closed_line(self.at)


class Answered(JournalEntry, frozen=True):
    """A person answered a request; the answer stands with it."""

    kind: Literal["answered"] = "answered"
    request: Kept[str]
    answer: HumanAnswer = Field(default=LEFT_OUT, exclude=True)
    result: JsonValue = Field(default=None, exclude=True)
    args: dict[str, JsonValue] = Field(default_factory=dict, exclude=True)
    code: str = Field(default="", exclude=True)
    others: tuple[str, ...] = Field(default=(), exclude=True)
    """What a person gave; see `HumanRequest`."""

    def apply(self, state: JournalState) -> None:
        request, choice = state.request(self.request), self.answer.choice
        request.answer, request.result, request.given_args = self.answer, self.result, self.args
        request.given_code, request.given_others = self.code, self.others
        if choice is Choice.REPLY:
            option = request.option(self.answer.text)
            word = Word(question=request.reason, text=option or self.answer.text, is_option=option is not None)
            state.words.append(word)
        elif choice in (Choice.REPLAN, Choice.REJECT) and self.answer.text:
            state.words.append(Word(text=self.answer.text))
        state.undo_when_aborted = state.undo_when_aborted or self.answer.undo
        request.close()
        if self.proof:
            _remember(state, self.proof)
        if request.step and request.kind in (RequestKind.FAULT, RequestKind.APPROVAL):
            self._free(state, request.step, choice)

    @staticmethod
    def _free(state: JournalState, step: str, choice: Choice) -> None:
        record = state.record_of(step)
        fault = next((fault for fault in reversed(state.faults) if fault.step_id == step), None)
        is_looked_at = choice is Choice.RETRY and fault is not None and fault.applied is Applied.UNKNOWN
        if choice is Choice.RETRY:
            record.used, record.losses, record.failed = 0, 0, None
        # A person has looked, or gives the result: the call takes over what an attempt has claimed.
        record.fencing_token += 1 if is_looked_at or choice is Choice.PROVIDE else 0

    def samples(self, state: JournalState) -> Iterator[Sample]:
        yield from metrics.of_closed(state.request(self.request))

    def lines(self, state: JournalState) -> Iterator[LogLine]:
        yield state.request(self.request).closed_line(self.at)


class Endorsed(JournalEntry, frozen=True):
    """One of several people who must answer a request alike has answered it."""

    kind: Literal["endorsed"] = "endorsed"
    request: Kept[str]
    answer: HumanAnswer

    def apply(self, state: JournalState) -> None:
        request = state.request(self.request)
        request.endorsed = (*request.endorsed, self.answer)
        if self.proof:
            _remember(state, self.proof)

    def lines(self, state: JournalState) -> Iterator[LogLine]:
        request = state.request(self.request)
        people = {"answers": len(request.endorsed), "needed": request.needed}
        yield "request_endorsed", {**request.log_fields, "answer": self.answer.choice.value, **people}


class Checked(JournalEntry, frozen=True):
    """What a person gave was accepted, or not."""

    kind: Literal["checked"] = "checked"
    request: Kept[str]
    refused: str = ""
    """Why it was not accepted; empty if it was."""

    def apply(self, state: JournalState) -> None:
        request = state.request(self.request)
        request.refused, request.result, request.given_args = self.refused, None, {}


class Edited(JournalEntry, frozen=True):
    """The arguments of a call are those that a person wrote."""

    kind: Literal["edited"] = "edited"
    args: dict[str, JsonValue] = Field(default=LEFT_OUT, exclude=True)
    changes: dict[str, JsonValue] = Field(default=LEFT_OUT, exclude=True)

    def apply(self, state: JournalState) -> None:
        record = state.record_of(self.step)
        record.args, record.edited = self.args, {**record.edited, **self.changes}


class Approved(JournalEntry, frozen=True):
    """A person has approved a call."""

    kind: Literal["approved"] = "approved"
    approval: ApprovedCall = Field(default=LEFT_OUT, exclude=True)

    def apply(self, state: JournalState) -> None:
        state.record_of(self.step).approval = self.approval


class Extended(JournalEntry, frozen=True):
    """A person added to the limits of the task."""

    kind: Literal["extended"] = "extended"
    answer: HumanAnswer

    def tell(self, lists: EntryLists) -> None:
        lists.extensions.append(self.answer)

    def apply(self, state: JournalState) -> None:
        self.tell(state)
        limits, more = state.budget.limits, self.answer.extended
        raised = {name: getattr(limits, name) + amount for name, amount in more.items()}
        state.budget.limits = limits.model_copy(update=raised)
        for request in self._answered(state):
            request.answer = self.answer
        if self.proof:
            _remember(state, self.proof)

    def _answered(self, state: JournalState) -> list[HumanRequest]:
        asked = [request for request in state.requests if request.kind is RequestKind.BUDGET]
        about = [request for request in asked if request.code in self.answer.extended]
        return [request for request in about if request.is_open or request.answer == self.answer]

    def samples(self, state: JournalState) -> Iterator[Sample]:
        for request in self._answered(state):
            yield from metrics.of_closed(request)

    def lines(self, state: JournalState) -> Iterator[LogLine]:
        for request in self._answered(state):
            yield request.closed_line(self.at)


def _remember(state: JournalState, update: str) -> None:
    state.updates = [*state.updates, digest(update)][-MAX_UPDATES:]
