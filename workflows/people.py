"""Requests to people: what a task asks, which answers it accepts, and what was answered."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from operator import not_
from typing import Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue, RootModel

from workflows.plan import canonical

MAX_WORDS = 4_000
"""The most characters of a hint, a reason or a reply."""
MAX_SHOWN, MIN_SHOWN = 16_000, 200
"""The most characters of all arguments of a call that a person is shown, and what is shown of each in any case."""
CUT = "… (cut)"
MAX_NAME = 200
"""The most characters of a person's name."""
UNANSWERED, ENDED, REPEATED = "unanswered", "ended", "repeated"
"""Why a request was closed without an answer: nobody answered in time, its task ended, or the task itself found that
the cause is gone."""


class RequestKind(StrEnum):
    APPROVAL = "approval"
    """A call that may only be made if a person approves it."""
    FAULT = "fault"
    """A fault that only a person can repair, or whose outcome only a person can find out."""
    QUESTION = "question"
    """A question of the planner."""
    BUDGET = "budget"
    """A limit of the task is reached."""


class Choice(StrEnum):
    """The answers. Each is also the name of the Update that gives it."""

    APPROVE = "approve"
    REJECT = "reject"
    EDIT = "edit"
    RETRY = "retry"
    REPLAN = "replan"
    PROVIDE = "provide"
    SKIP = "skip"
    ABORT = "abort"
    REPLY = "reply"
    EXTEND = "extend"


class Given(BaseModel):
    """What a person sends with an answer; every field may be left out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    request: str = Field(default="", max_length=MAX_NAME)
    """The id of the request; empty if only one is open."""
    by: str = Field(default="", max_length=MAX_NAME)
    """Who answers, as the person claims."""


class GivenApprove(Given):
    call: str = Field(default="", max_length=MAX_NAME)
    """The code of the call that was shown."""


class GivenReject(Given):
    reason: str = Field(default="", max_length=MAX_WORDS)
    """What the planner is told."""


class GivenEdit(Given):
    call: str = Field(default="", max_length=MAX_NAME)
    """The code of the call that was shown."""
    args: dict[str, JsonValue] = Field(default_factory=dict)
    """The arguments that are changed, by name; the others stay."""


class GivenRetry(Given):
    pass


class GivenReplan(Given):
    hint: str = Field(default="", max_length=MAX_WORDS)
    """What the planner is told."""


class GivenProvide(Given):
    result: JsonValue = None
    """The result of the step, as its kind would return it."""


class GivenSkip(Given):
    reason: str = Field(default="", max_length=MAX_WORDS)


class GivenAbort(Given):
    reason: str = Field(default="", max_length=MAX_WORDS)
    undo: bool = False
    """Whether the effects of the task are undone."""


class GivenReply(Given):
    text: str = Field(default="", max_length=MAX_WORDS)
    """One of the options of the question, or other words if it allows them."""


class GivenExtend(Given):
    tool_calls: int = Field(default=0, ge=0, le=1_000_000)
    replans: int = Field(default=0, ge=0, le=1_000_000)
    tokens: int = Field(default=0, ge=0, le=10**12)
    usd: float = Field(default=0.0, ge=0, le=10**9, allow_inf_nan=False)

    @property
    def amounts(self) -> dict[str, int | float]:
        """By the name of a limit, how much is added to it."""
        given = {name: getattr(self, name) for name in ("tool_calls", "replans", "tokens", "usd")}
        return {name: amount for name, amount in given.items() if amount}


GIVEN: dict[Choice, type[Given]] = {
    Choice.APPROVE: GivenApprove,
    Choice.REJECT: GivenReject,
    Choice.EDIT: GivenEdit,
    Choice.RETRY: GivenRetry,
    Choice.REPLAN: GivenReplan,
    Choice.PROVIDE: GivenProvide,
    Choice.SKIP: GivenSkip,
    Choice.ABORT: GivenAbort,
    Choice.REPLY: GivenReply,
    Choice.EXTEND: GivenExtend,
}
DESCRIPTIONS: dict[Choice, str] = {
    Choice.APPROVE: 'Make this call: {"call": CODE}, with the code that the details show beside it.',
    Choice.REJECT: 'Do not make this call; the planner makes a new plan and is told the "reason".',
    Choice.EDIT: 'Make this call with other arguments: {"call": CODE, "args": {the changed ones}}.',
    Choice.RETRY: "The cause is repaired: make the same call again.",
    Choice.REPLAN: 'Make a new plan; a "hint" tells the planner what to do.',
    Choice.PROVIDE: 'Somebody did the step: its "result", as the tool would return it.',
    Choice.SKIP: "Go on without the step; only if no other step needs it.",
    Choice.ABORT: 'End the task; {"undo": true} undoes its effects, "reason" says why.',
    Choice.REPLY: 'Answer the question of the planner with "text".',
    Choice.EXTEND: 'Give the task more, e.g. {"tool_calls": 10, "replans": 1, "tokens": 10000, "usd": 1.5}.',
}
"""What the web UI says about each Update."""


class Change(BaseModel, frozen=True):
    """An argument that a person changed."""

    was: JsonValue = None
    """None, too, if there was no such argument."""
    now: JsonValue = None


class HumanAnswer(BaseModel, frozen=True):
    """An accepted answer."""

    choice: Choice
    by: str = ""
    at: AwareDatetime
    text: str = ""
    """The hint, the reason or the reply."""
    undo: bool = Field(default=False, exclude_if=not_)
    extended: dict[str, int | float] = Field(default_factory=dict, exclude_if=not_)
    """By the name of a limit, how much was added to it."""
    edited: dict[str, Change] = Field(default_factory=dict, exclude_if=not_)
    """By name, the arguments that were changed."""
    resolution: str = Field(default="", exclude_if=not_)
    """The id of the resolution of an incident that answered the request; empty if a person answered this one alone."""


class ProposedCall(BaseModel, frozen=True):
    """A call that a person is asked to approve."""

    kind: str
    effect: str
    """What the call may change, in the words of `workflows.catalogue.Effect`."""
    undo: str | None = None
    """The kind of tool that can undo its effect; None if there is none."""
    args: dict[str, JsonValue] | None = None
    """The arguments of the call; of long ones the beginning. None once the request is closed: the step has them."""
    code: str
    """What an approval must repeat. It stands for this call with all of its arguments, in this run of the task."""


class HumanRequest(BaseModel):
    """What a task asks of a person; it is open until it has an answer or `closed` says why it needs none."""

    id: str
    kind: RequestKind
    step: str | None = None
    """The id of the step that waits; None if the whole task waits."""
    revision: int = 0
    code: str
    reason: str
    """What happened, or the question."""
    attempts: int = 0
    """How many attempts of the step were made before."""
    since: AwareDatetime
    until: AwareDatetime
    """When the task ends if nobody answers."""
    choices: tuple[Choice, ...]
    options: tuple[str, ...] = Field(default=(), exclude_if=not_)
    """The answers that a question suggests."""
    free_text: bool = True
    """Whether a question may be answered with other words than its options."""
    call: ProposedCall | None = Field(default=None, exclude_if=not_)
    """The call that is to be approved; None for a request of another kind."""
    cause: str = Field(default="", exclude_if=not_)
    """The incident: the cause that requests of other tasks may share, such as `charge/unauthorized`; empty for none."""
    after: str = Field(default="", exclude_if=not_)
    """The id of the resolution of this cause after which the same was asked again; empty if there was none."""
    answer: HumanAnswer | None = None
    closed: str = Field(default="", exclude_if=not_)
    """Why the request was closed without an answer (UNANSWERED, ENDED, REPEATED); empty if it was not."""
    result: JsonValue = Field(default=None, exclude=True)
    """The result that a person provided, until the step has it."""
    given_code: str = Field(default="", exclude=True)
    """The code that came with the approval."""
    given_args: dict[str, JsonValue] = Field(default_factory=dict, exclude=True)
    """The arguments that a person changed, until the step has them."""
    refused: str | None = Field(default=None, exclude_if=not_)
    """Why the result or the arguments that a person gave were not accepted; None until they were checked, empty if they
    were accepted."""

    @property
    def is_open(self) -> bool:
        return self.answer is None and not self.closed

    @property
    def is_ended(self) -> bool:
        """Whether its task ended before anybody answered."""
        return self.closed == ENDED

    def close(self, why: str = "") -> None:
        """Note why the request got no answer, if it has none, and drop the arguments that were only to be shown."""
        self.closed = "" if self.answer else self.closed or why
        if self.call:
            self.call = self.call.model_copy(update={"args": None})

    def option(self, text: str) -> str | None:
        """The option that a text names, whatever its capitals and blanks; None if it names none."""
        words = " ".join(text.split()).casefold()
        return next((one for one in self.options if " ".join(one.split()).casefold() == words), None)


class Requests(RootModel[list[HumanRequest]]):
    """Requests as a memo holds them."""


class Resolution(BaseModel, frozen=True):
    """That the cause of an incident was repaired: the argument of the Signal that answers all requests with it."""

    id: str = Field(max_length=MAX_NAME)
    """The same in each repetition; a request that was opened because this resolution did not help is not answered."""
    cause: str = Field(max_length=MAX_NAME)
    by: str = Field(default="", max_length=MAX_NAME)
    note: str = Field(default="", max_length=MAX_WORDS)

    def answer_to(self, request: HumanRequest, at: Any) -> HumanAnswer | None:
        """The answer that this gives to a request; None if it does not concern the request, or did not help it."""
        if not request.is_open or request.cause != self.cause or request.after == self.id:
            return None
        return HumanAnswer(choice=Choice.RETRY, by=self.by, at=at, text=self.note.strip(), resolution=self.id)


class Word(BaseModel, frozen=True):
    """What a person said to the planner."""

    question: str = Field(default="", exclude_if=not_)
    """The question of the planner that it answers; empty for a hint."""
    text: str
    is_option: bool = Field(default=False, exclude_if=not_)
    """Whether the text is one of the options of the question, which the planner wrote, and not words of the person."""


class NotAccepted(ValueError):
    """An answer that the task does not accept; the message says why, and what it accepts."""


def find_request(requests: Sequence[HumanRequest], choice: Choice, given: Given) -> HumanRequest:
    """The open request that an answer is for.

    Raises:
        NotAccepted: there is none, there are several, or it takes other answers.
    """
    open_ones = [one for one in requests if one.is_open]
    if given.request:
        found = next((one for one in requests if one.id == given.request), None)
        if found is None:
            raise NotAccepted(f"There is no request {given.request!r}{_which(open_ones)}.")
    else:
        if not open_ones:
            raise NotAccepted("The task asks nothing now.")
        fitting = [one for one in open_ones if choice in one.choices] or open_ones
        if len(fitting) > 1:
            raise NotAccepted(f'Several requests are open: say which one with "request"{_which(fitting)}.')
        found = fitting[0]
    _check_open(found)
    if choice not in found.choices:
        takes = ", ".join(one.value for one in found.choices)
        raise NotAccepted(f"The request {found.id} ({found.kind.value}) takes {takes}, and not {choice.value}.")
    return found


def _check_open(request: HumanRequest) -> None:
    if answer := request.answer:
        by = f" by {answer.by}" if answer.by else ""
        when = f"{answer.at:%Y-%m-%d %H:%M} UTC"
        raise NotAccepted(f"The request {request.id} was answered already: {answer.choice.value}{by} at {when}.")
    if request.closed:
        raise NotAccepted(f"The request {request.id} is closed: {request.closed}.")


def _which(requests: Sequence[HumanRequest]) -> str:
    named = [f"{one.id} ({one.step or 'the task'}: {one.code})" for one in requests]
    return f"; open are {', '.join(named)}" if named else "; none is open"


def check_given(request: HumanRequest, choice: Choice, given: Given) -> None:
    """Check what depends on the request alone.

    Raises:
        NotAccepted: something is missing, or is none of the options.
    """
    if isinstance(given, GivenReply):
        text = given.text.strip()
        if not text:
            raise NotAccepted('A reply needs words: {"text": "..."}.')
        if request.options and not request.free_text and request.option(text) is None:
            raise NotAccepted(
                f"The question takes one of {', '.join(map(repr, request.options))}, and not {text[:80]!r}."
            )
    if isinstance(given, GivenEdit) and not given.args:
        raise NotAccepted('Say what is changed: {"call": CODE, "args": {"amount": 400}}.')
    if isinstance(given, GivenProvide) and "result" not in given.model_fields_set:
        raise NotAccepted('The result is missing: {"result": ...}.')


def check_code(request: HumanRequest, given: Given) -> None:
    """Check that who approves or edits a call has seen this very call, in this run of the task.

    Temporal's reset gives the new run the Updates of the old one again: the codes in them are those of the old run.

    Raises:
        NotAccepted: the code is missing, or stands for another call or run.
    """
    if not isinstance(given, GivenApprove | GivenEdit) or request.call is None or given.call == request.call.code:
        return
    now = f'{{"call": "{request.call.code}"}} stands for {request.call.kind} with the arguments that are shown now'
    if not given.call:
        raise NotAccepted(f"Say which call you have seen: {now}.")
    raise NotAccepted(f"The code {given.call[:40]!r} stands for another call, or for the run before a reset: {now}.")


def shown_args(args: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The arguments as people are shown them: whole if they are short together, else the beginning of each long one."""
    if _length(dict(args)) <= MAX_SHOWN:
        return dict(args)
    most = max(MIN_SHOWN, MAX_SHOWN // len(args))
    return {name: value if _length(value) <= most else f"{_text(value)[:most]}{CUT}" for name, value in args.items()}


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else canonical(value)


def _length(value: JsonValue) -> int:
    return len(_text(value))


def changes(before: Mapping[str, JsonValue], given: Mapping[str, JsonValue]) -> dict[str, Change]:
    """What an edit changes, with the beginnings of long values."""
    changed = {name: value for name, value in given.items() if name not in before or before[name] != value}
    was = shown_args({name: before[name] for name in changed if name in before})
    now = shown_args(changed)
    return {name: Change(was=was.get(name), now=now[name]) for name in changed}


def answer_of(choice: Choice, given: Given, at: Any) -> HumanAnswer:
    """The answer as the task keeps it, without a result, which the step has."""
    text = str(getattr(given, "hint", "") or getattr(given, "reason", "") or getattr(given, "text", "")).strip()
    undo = isinstance(given, GivenAbort) and given.undo
    extended = given.amounts if isinstance(given, GivenExtend) else {}
    return HumanAnswer(choice=choice, by=given.by, at=at, text=text, undo=undo, extended=extended)
