"""Requests to people: what a task asks, which answers it accepts, and what was answered.

Made when a task needs a person; read by every screen until the answer comes, and when the answer is checked.
"""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum
from operator import not_
from typing import Annotated, Any, NamedTuple

from pydantic import AwareDatetime, BaseModel, Field, JsonValue, PrivateAttr, RootModel

from workflows.commands import Option, command
from workflows.json_values import canonical, text_of
from workflows.limits.budget import Amounts
from workflows.marks import Kept, Named, Refers
from workflows.people.approvers import Approvers
from workflows.people.statement import Statement
from workflows.text import capitalised

MAX_WORDS = 4_000
"""The most characters of a hint, a reason or a reply."""
MAX_SHOWN, MIN_SHOWN = 16_000, 200
"""The most characters of all arguments of a call that a person is shown, and how many are shown of each in any case."""
CUT = "… (cut)"
MAX_OTHERS = 20
"""The most further calls that one request is about."""
MAX_NAME = 200
"""The most characters of a person's name."""
UNANSWERED, ENDED, REPEATED = "unanswered", "ended", "repeated"
"""Why a request was closed without an answer: nobody gave one, its task ended, or its cause is gone."""


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
    APPROVE_ALL = "approve_all"
    REJECT = "reject"
    EDIT = "edit"
    RETRY = "retry"
    REPLAN = "replan"
    PROVIDE = "provide"
    SKIP = "skip"
    ABORT = "abort"
    REPLY = "reply"
    EXTEND = "extend"


Words = Annotated[str, Field(max_length=MAX_WORDS)]
Reason = Annotated[Words, Option("the reason", '"Not needed."')]


class Given(BaseModel, frozen=True, extra="forbid"):
    """What a person sends with an answer; every field may be left out."""

    request: Kept[str] = Field(default="", max_length=MAX_NAME)
    """The id of the request; empty if only one is open."""
    by: str = Field(default="", max_length=MAX_NAME)
    """Who answers, as the person claims."""
    statement: Statement | None = Field(default=None, exclude_if=lambda stated: stated is None)
    """What a door has signed about who answers; None if it does not know."""


class GivenWithCode(Given):
    call: str = Field(default="", max_length=MAX_NAME)
    """The code of the call that was shown."""


class GivenApprove(GivenWithCode):
    pass


class GivenApproveAll(GivenWithCode):
    others: tuple[Annotated[str, Field(max_length=MAX_NAME)], ...] = Field(default=(), max_length=MAX_OTHERS)
    """The codes of the further calls that were shown, in this order."""


class GivenReject(Given):
    reason: Reason = ""


class GivenEdit(GivenWithCode):
    args: Refers[Annotated[dict[str, JsonValue], Option("the arguments that change", '{"amount": 400}', "object")]] = (
        Field(default_factory=dict)
    )
    """The changed arguments by name; the other arguments stay."""


class GivenRetry(Given):
    pass


class GivenReplan(Given):
    hint: Annotated[Words, Option("a hint for the planner", '"Pay by invoice."')] = ""


class GivenProvide(Given):
    result: Annotated[JsonValue, Option("the result of the step", '{"id": 7}', "value")] = None


class GivenSkip(Given):
    reason: Reason = ""


class GivenAbort(Given):
    reason: Reason = ""
    undo: Annotated[bool, Option("undo what the task has done", "true", "switch")] = False


class GivenReply(Given):
    text: Annotated[Words, Option("your answer", '"15:00"')] = ""
    """One of the options of the question, or other words if it allows them."""


class GivenExtend(Amounts, Given):
    pass


class ChoiceRow(NamedTuple):
    """The words for an answer, the same on every screen, and the data that a person sends with it."""

    given: type[Given]
    """The model of the data that is sent; a person may fill in its fields that have an Option."""
    button: str
    """The name of the answer's button on the page."""
    says: str
    """What follows the answer, as a clause; the same at the terminal, on the page and in the web UI."""
    needs_option: bool = False
    """Whether the answer needs at least one of its options."""
    ends_task: bool = False
    sends: str = ""
    """The name of the page's button that sends the form that `button` opens; empty if `button` itself sends it."""

    @property
    def options(self) -> tuple[Option, ...]:
        """The options of the answer, each with the name of its field."""
        found = ((name, item) for name, field in self.given.model_fields.items() for item in field.metadata)
        return tuple(item._replace(name=name) for name, item in found if isinstance(item, Option))

    @property
    def needs_code(self) -> bool:
        """Whether the answer repeats the code of the call that was shown."""
        return issubclass(self.given, GivenWithCode)

    @property
    def argument(self) -> str:
        """An example of the Update's argument; empty if the Update needs no argument."""
        fields = ['"call": CODE'] if self.needs_code else []
        fields += ['"others": [CODE, ...]'] if self.given is GivenApproveAll else []
        fields += [f'"{option.name}": {option.example}' for option in self.options]
        return f"{{{', '.join(fields)}}}" if fields else ""

    @property
    def sentence(self) -> str:
        """What follows the answer, as a sentence."""
        return f"{capitalised(self.says)}."

    @property
    def description(self) -> str:
        """What Temporal's web UI says about the Update."""
        code = " The details show CODE." if self.needs_code else ""
        return self.sentence + (f" Argument: {self.argument}.{code}" if self.argument else "")


CHOICES: Mapping[Choice, ChoiceRow] = {
    Choice.APPROVE: ChoiceRow(GivenApprove, "Approve", "make this call"),
    Choice.APPROVE_ALL: ChoiceRow(
        GivenApproveAll, "Approve all calls", "make this call, and the others that are shown when their turn comes"
    ),
    Choice.REJECT: ChoiceRow(
        GivenReject,
        "Reject",
        "do not make this call; the planner is told the reason and makes a new plan",
        sends="Reject the call",
    ),
    Choice.EDIT: ChoiceRow(
        GivenEdit,
        "Edit",
        "make this call with changed arguments; the others stay",
        needs_option=True,
        sends="Show what changes",
    ),
    Choice.RETRY: ChoiceRow(GivenRetry, "Retry", "the cause is repaired: make the same call again"),
    Choice.REPLAN: ChoiceRow(
        GivenReplan, "New plan", "make a new plan; the hint tells the planner what to do", sends="Make a new plan"
    ),
    Choice.PROVIDE: ChoiceRow(
        GivenProvide,
        "Provide the result",
        "the step was done by hand: take its result, as its tool would return it",
        needs_option=True,
        sends="Give this result",
    ),
    Choice.SKIP: ChoiceRow(
        GivenSkip, "Skip", "go on without the step; only if no other step needs it", sends="Skip the step"
    ),
    Choice.ABORT: ChoiceRow(
        GivenAbort,
        "End the task",
        "end the task; with undo, what it has done is undone",
        ends_task=True,
        sends="Show what stops",
    ),
    Choice.REPLY: ChoiceRow(GivenReply, "Reply", "answer the question of the planner", needs_option=True),
    Choice.EXTEND: ChoiceRow(
        GivenExtend, "Give more", "raise the limit, and go on", needs_option=True, sends="Raise the limits"
    ),
}


def options_for(choice: Choice, about: str) -> tuple[Option, ...]:
    """The options of an answer to a request with the code `about`; for `extend`, only that of the limit `about`."""
    return tuple(option for option in CHOICES[choice].options if choice is not Choice.EXTEND or option.name == about)


def answer_command(
    task_id: str, choice: Choice, about: str, request: str = "", text: str = "", *, is_whole: bool = False
) -> str:
    """The command of the console that gives an answer, with the options that it needs.

    `about` is the code of the request, `request` its id, empty if it is the only open one. `text` stands for the words
    of a reply. If `is_whole`, the command has the optional options, too, in brackets.
    """
    which = ("--request", request) if request else ()
    args = ("extend", task_id) if choice is Choice.EXTEND else ("answer", task_id, choice.value)
    typed = [command(*args, *which)]
    for option in options_for(choice, about):
        if CHOICES[choice].needs_option and option.type != "switch":
            typed.append(f"--text {shlex.quote(text)}" if choice is Choice.REPLY and text else option.typed)
        elif is_whole:
            typed.append(f"[{option.typed}]")
    return " ".join(typed)


class Change(BaseModel, frozen=True):
    """An argument that a person changed."""

    was: Refers[JsonValue] = None
    """None, too, if there was no such argument."""
    now: Refers[JsonValue] = None


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
    edited: Named[dict[str, Change]] = Field(default_factory=dict, exclude_if=not_)
    """By name, the arguments that were changed."""
    statement: Statement | None = Field(default=None, exclude_if=lambda stated: stated is None)
    """What a door has signed about who answered; None if it did not know."""
    resolution: Kept[str] = Field(default="", exclude_if=not_)
    """The id of the resolution of an incident that answered the request; empty if a person answered this one alone."""


class ProposedCall(BaseModel, frozen=True):
    """A call that a person is asked to approve."""

    kind: Kept[str]
    effect: Kept[str]
    """What the call may change, in the words of `workflows.plans.catalogue.Effect`."""
    undo: Kept[str | None] = None
    """The kind of tool that can undo its effect; None if there is none."""
    args: Refers[dict[str, JsonValue] | None] = None
    """The arguments of the call; of long ones the beginning. None once the request is closed: the step has them."""
    code: str
    """What an approval must repeat. It stands for this call with all of its arguments, in this run of the task."""
    step: Kept[str] = Field(default="", exclude_if=not_)
    """The id of its step; empty for the call of the step that waits."""
    says: str = Field(default="", exclude_if=not_)
    """What the tool says of itself, in a sentence."""
    defaults: Refers[dict[str, JsonValue]] = Field(default_factory=dict, exclude_if=not_)
    """By name, the arguments that the tool adds, of long ones the beginning. An argument of the call of which parts are
    left out is here whole. Empty if no worker told them, and once the request is closed."""
    origins: Named[dict[str, str]] = Field(default_factory=dict, exclude_if=not_)
    """By argument, where its value comes from, in words; empty once the request is closed."""
    untrusted: tuple[str, ...] = Field(default=(), exclude_if=not_)
    """The arguments with a value that no trusted source has, so that untrusted content may have chosen it."""
    reason: str = Field(default="", exclude_if=not_)
    """Why a further call needs an approval; empty if for the same reason as the call of the step that waits."""

    @property
    def without_args(self) -> "ProposedCall":
        """A copy for a closed request: without the arguments and what describes them."""
        return self.model_copy(update={"args": None, "defaults": {}, "origins": {}, "untrusted": ()})

    @property
    def whole_args(self) -> dict[str, JsonValue]:
        """The arguments that the tool gets, as far as they are known: those of the call, and the tool's defaults."""
        return {**(self.args or {}), **self.defaults}


class HumanRequest(BaseModel):
    """What a task asks of a person; it is open until it has an answer or `closed` says why it needs none."""

    # Set when the request is opened
    id: Kept[str]
    kind: RequestKind
    step: Kept[str | None] = None
    """The id of the step that waits; None if the whole task waits."""
    revision: int = 0
    code: Kept[str]
    reason: str
    """What happened, or the question."""
    words: str = Field(default="", exclude_if=not_)
    """The message in the answer of the called system, which is untrusted; empty without one. See Fault."""
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
    others: tuple[ProposedCall, ...] = Field(default=(), exclude_if=not_)
    """Further calls of the same plan that need an approval, and that may be approved with the call."""
    cause: Kept[str] = Field(default="", exclude_if=not_)
    """The incident: the cause that requests of other tasks may share, such as `charge/unauthorized`; empty for none."""
    after: Kept[str] = Field(default="", exclude_if=not_)
    """The id of the resolution of this cause after which the same was asked again; empty if there was none."""

    approvers: Approvers | None = Field(default=None, exclude_if=lambda rule: rule is None)
    """Who may answer so that a call is made, or counts as made, by the tool's own rule; None for anybody."""
    needed: int = Field(default=0, exclude_if=not_)
    """How many different people `approvers` asks for in this task; 0 without `approvers`."""

    # Set while further people must answer
    endorsed: tuple[HumanAnswer, ...] = Field(default=(), exclude_if=not_)
    """The answers so far of a request that several people must answer alike."""

    # Set when the request is answered or closed
    answer: HumanAnswer | None = None
    closed: Kept[str] = Field(default="", exclude_if=not_)
    """Why the request was closed without an answer (UNANSWERED, ENDED, REPEATED); empty if it was not."""
    result: JsonValue = Field(default=None, exclude=True)
    """The result that a person provided, until the step has it."""
    given_code: str = Field(default="", exclude=True)
    """The code that came with the approval."""
    given_others: tuple[str, ...] = Field(default=(), exclude=True)
    """The codes of further calls that came with the approval."""
    given_args: dict[str, JsonValue] = Field(default_factory=dict, exclude=True)
    """The arguments that a person changed, until the step has them."""

    # Set while the call is made again
    _is_tried: bool = PrivateAttr(default=False)

    # Set when what a person gave was checked
    refused: str | None = Field(default=None, exclude_if=not_)
    """Why what a person gave was not accepted; None until it was checked, empty if it was accepted."""

    @property
    def steps(self) -> tuple[str, ...]:
        """The ids of the steps that the request is about, first the step that waits; empty if the whole task waits."""
        return (*([self.step] if self.step else []), *(call.step for call in self.others))

    @property
    def is_open(self) -> bool:
        return self.answer is None and not self.closed and not self._is_tried

    @contextmanager
    def tried(self) -> Iterator[None]:
        """Within the `with` block its call is made again, and no answer is accepted."""
        self._is_tried = True
        try:
            yield
        finally:
            self._is_tried = False

    @property
    def is_ended(self) -> bool:
        """Whether the end of the task closed the request."""
        return self.closed == ENDED

    @property
    def log_fields(self) -> dict[str, Any]:
        about = {"request": self.id, "type": self.kind.value, "code": self.code, "revision": self.revision}
        return {**about, "step": self.step} if self.step else about

    def closed_line(self, at: datetime) -> tuple[str, dict[str, Any]]:
        """What a worker logs when the request is closed `at` a time: the name of the event, and its fields."""
        fields = {"answer": self.answer.choice.value if self.answer else None, "closed": self.closed}
        seconds = round((at - self.since).total_seconds(), 1)
        return "request_closed", {**self.log_fields, **fields, "seconds": seconds}

    def close(self, why: str = "") -> None:
        """Close the request, with the reason `why` if it has no answer, and drop the arguments that were only shown."""
        self.closed = "" if self.answer else self.closed or why
        if self.call:
            self.call = self.call.without_args
        self.others = tuple(call.without_args for call in self.others)

    @property
    def statements(self) -> tuple[Statement, ...]:
        """What was signed about the people who have answered."""
        answers = (*self.endorsed, *([self.answer] if self.answer else []))
        return tuple(answer.statement for answer in answers if answer.statement)

    def option(self, text: str) -> str | None:
        """The option that `text` names, without regard to capitals and blanks; None if `text` names no option."""
        typed = " ".join(text.split()).casefold()
        return next((option for option in self.options if " ".join(option.split()).casefold() == typed), None)


class Requests(RootModel[list[HumanRequest]]):
    """Requests as a memo holds them."""


class Resolution(BaseModel, frozen=True):
    """That the cause of an incident was repaired: the argument of the Signal that answers all requests with it."""

    id: Kept[str] = Field(max_length=MAX_NAME)
    """The same in each repetition; a request that was opened because this resolution did not help is not answered."""
    cause: Kept[str] = Field(max_length=MAX_NAME)
    by: str = Field(default="", max_length=MAX_NAME)
    note: str = Field(default="", max_length=MAX_WORDS)

    def answer_to(self, request: HumanRequest, at: Any) -> HumanAnswer | None:
        """The answer to a request; None if it is closed, has another cause, or was opened after this resolution."""
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


BUYS = (Choice.APPROVE, Choice.APPROVE_ALL, Choice.EDIT, Choice.PROVIDE)
"""The answers after which a call is made, or counts as made: only whom the tool's rule names may give them."""


def find_request(requests: Sequence[HumanRequest], choice: Choice, message: Given) -> HumanRequest:
    """The open request that an answer is for; raises NotAccepted if none, or more than one, takes the answer."""
    open_ones = [request for request in requests if request.is_open]
    if message.request:
        fitting = [request for request in requests if request.id == message.request]
        if not fitting:
            raise NotAccepted(f"There is no request {message.request!r}{_list_open(open_ones)}.")
    else:
        fitting = [request for request in open_ones if choice in request.choices] or open_ones
        if not fitting:
            raise NotAccepted("The task asks nothing now.")
        if len(fitting) > 1:
            raise NotAccepted(f'Several requests are open: say which one with "request"{_list_open(fitting)}.')
    found = fitting[0]
    _raise_unless_open(found)
    if choice not in found.choices:
        takes = ", ".join(answer.value for answer in found.choices)
        raise NotAccepted(f"The request {found.id} ({found.kind.value}) takes {takes}, and not {choice.value}.")
    return found


def _raise_unless_open(request: HumanRequest) -> None:
    if answer := request.answer:
        by = f" by {answer.by}" if answer.by else ""
        when = f"{answer.at:%Y-%m-%d %H:%M} UTC"
        raise NotAccepted(f"The request {request.id} was answered already: {answer.choice.value}{by} at {when}.")
    if not request.is_open:
        raise NotAccepted(f"The request {request.id} is closed: {request.closed or REPEATED}.")


def _list_open(requests: Sequence[HumanRequest]) -> str:
    named = [f"{request.id} ({request.step or 'the task'}: {request.code})" for request in requests]
    return f"; open are {', '.join(named)}" if named else "; none is open"


def missing_options(choice: Choice, message: Given) -> tuple[Option, ...]:
    """The options of which the answer needs at least one but has none; empty if no option is missing."""
    row = CHOICES[choice]
    is_missing = row.needs_option and not any(_gives(message, option) for option in row.options)
    return row.options if is_missing else ()


def check_given(choice: Choice, message: Given) -> None:
    """Raise NotAccepted if an answer lacks an option that it needs."""
    if missing_options(choice, message):
        raise NotAccepted(f"Something is missing: {choice.value} takes {CHOICES[choice].argument}.")


def _gives(message: Given, option: Option) -> bool:
    value = getattr(message, option.name)
    if option.type == "value":  # null is a result, too
        return option.name in message.model_fields_set
    return bool(value.strip() if isinstance(value, str) else value)


def check_fits(request: HumanRequest, message: Given) -> None:
    """Raise NotAccepted if a reply is none of the options of its question, and the question takes no other words."""
    if not isinstance(message, GivenReply) or not request.options or request.free_text:
        return
    if request.option(message.text) is None:
        options = ", ".join(map(repr, request.options))
        raise NotAccepted(f"The question takes one of {options}, and not {message.text.strip()[:80]!r}.")


def check_code(request: HumanRequest, message: Given) -> None:
    """Raise NotAccepted unless the person who approves or edits a call was shown this very call, in this run.

    Temporal's reset sends the Updates of the old run to the new run again: the codes in them are those of the old run.
    """
    if not isinstance(message, GivenWithCode) or request.call is None:
        return
    now = f'{{"call": "{request.call.code}"}} stands for {request.call.kind} with the arguments that are shown now'
    if not message.call:
        raise NotAccepted(f"Say which call you have seen: {now}.")
    if message.call != request.call.code:
        void = f"The code {message.call[:40]!r} stands for another call, or for the run before a reset"
        raise NotAccepted(f"{void}: {now}.")
    codes = tuple(call.code for call in request.others)
    if isinstance(message, GivenApproveAll) and message.others != codes:
        raise NotAccepted(f'The further calls that are shown now are "others": {json.dumps(codes)}, in this order.')


def shown_args(args: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The arguments as people are shown them: whole if they are short together, else the beginning of each long one."""
    if len(canonical(dict(args))) <= MAX_SHOWN:
        return dict(args)
    most = max(MIN_SHOWN, MAX_SHOWN // len(args))
    texts = {name: text_of(value) for name, value in args.items()}
    return {name: args[name] if len(text) <= most else f"{text[:most]}{CUT}" for name, text in texts.items()}


def is_secret(schema: Mapping[str, JsonValue]) -> bool:
    """Whether the schema of an argument declares that nobody may see its value."""
    return bool(schema.get("writeOnly")) or schema.get("format") == "password"


def changes(before: Mapping[str, JsonValue], after: Mapping[str, JsonValue]) -> dict[str, Change]:
    """By name, the arguments that an edit changes or adds, with the beginnings of long values."""
    changed = {name: value for name, value in after.items() if name not in before or before[name] != value}
    was = shown_args({name: before[name] for name in changed if name in before})
    now = shown_args(changed)
    return {name: Change(was=was.get(name), now=now[name]) for name in changed}


def answer_of(choice: Choice, message: Given, at: Any) -> HumanAnswer:
    """The answer as the task keeps it; `at` is its time. A provided result is left out, because the step has it."""
    words = [getattr(message, option.name).strip() for option in CHOICES[choice].options if option.type == "text"]
    undo = isinstance(message, GivenAbort) and message.undo
    extended = message.amounts if isinstance(message, GivenExtend) else {}
    stated = message.statement
    return HumanAnswer(
        choice=choice,
        by=stated.person if stated else message.by,
        at=at,
        text="".join(words),
        undo=undo,
        extended=extended,
        statement=stated,
    )
