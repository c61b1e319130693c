"""Asking people: a request holds a task open until somebody answers it with an Update, or until its time is over.

Runs from the opening of a request to its end, and when an Update or the Signal of a resolved incident arrives.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from workflows import ids
from workflows.account.entries_of_people import Answered, Closed, Endorsed, Extended, PersonIsAsked
from workflows.account.outcome import TaskEnded
from workflows.account.progress import Progress
from workflows.account.records import StepRecord, StepStatus
from workflows.account.task import TaskStatus
from workflows.arguments import MalformedArgument, log_dropped, read_argument, read_signal, undecoded
from workflows.faults import retries
from workflows.faults.fault import cause_of
from workflows.json_values import canonical, digest
from workflows.limits.spending import Limit, limit_message
from workflows.people.approvers import Approvers
from workflows.people.requests import (
    BUYS,
    CHOICES,
    ENDED,
    REPEATED,
    UNANSWERED,
    Choice,
    Given,
    GivenApproveAll,
    GivenEdit,
    GivenExtend,
    GivenProvide,
    GivenWithCode,
    HumanAnswer,
    HumanRequest,
    NotAccepted,
    RequestKind,
    Resolution,
    answer_of,
    changes,
    check_code,
    check_fits,
    check_given,
    find_request,
)
from workflows.people.statement import folded
from workflows.seal import Seal
from workflows.web_ui import summary, timer_name

MAX_RESULT = 512 * 1024
"""The most bytes of a result that a person provides."""
RESOLVE = "resolve"
"""The name of the Signal with a Resolution."""
PLANNER = "planner"
"""The resource of an incident that is not about a tool; it stands for the catalogue, too."""
ABORTED = "aborted"
"""The code of a task that a person ended; UNANSWERED is the code of one that nobody answered."""


class People:
    """Asks people on behalf of one task, and gives its steps the answers."""

    def __init__(self, progress: Progress, published: Callable[[], None]) -> None:
        """`published` is called whenever a request has been opened or closed."""
        self._progress = progress
        self._published = published

    @property
    def abort(self) -> HumanAnswer | None:
        """The answer that ends the task; None if there is none."""
        answers = (request.answer for request in self._progress.requests if request.answer)
        return next((answer for answer in answers if CHOICES[answer.choice].ends_task), None)

    @property
    def are_asked(self) -> bool:
        """Whether the task asks people, and waits for them; if not, the task ends where it needs a person."""
        return self._progress.task.on_escalation == "wait" and not self._progress.is_draft and self.abort is None

    async def ask(
        self,
        kind: RequestKind,
        code: str,
        reason: str,
        choices: tuple[Choice, ...],
        record: StepRecord | None = None,
        *,
        cause: str = "",
        approvers: Approvers | None = None,
        repeat: Callable[[], Awaitable[bool]] | None = None,
        **more: Any,
    ) -> HumanRequest:
        """Open a request, wait until it is answered or closed, and return it; without an answer, its `closed` says why.

        `record` is the step that waits, None for the whole task. `repeat` is called at the time of the reminder, and at
        each such interval after that; if it returns True, no answer is needed any more. `more` are further fields.
        """
        progress, within = self._progress, retries.timer(self._progress.task.answer_within)
        about = {"step": record.step.id, "attempts": record.attempts} if record else {}
        request = HumanRequest(
            id=f"r{len(progress.requests) + 1}",
            kind=kind,
            code=code,
            reason=reason,
            choices=choices,
            revision=progress.revision,
            since=workflow.now(),
            until=workflow.now() + within,
            cause=cause,
            after=self._resolved_before(cause, record),
            approvers=approvers,
            needed=approvers.needed(progress.task.starter) if approvers else 0,
            **about,
            **more,
        )
        progress.write(PersonIsAsked(request=request.id, step=request.step or "", opened=request))
        request = progress.request(request.id)
        self._published()
        try:
            is_repeated = await self._wait(request, within, repeat)
        except asyncio.CancelledError:
            if request.is_open:
                progress.write(Closed(request=request.id, why=ENDED))
            raise
        if request.is_open:
            why = REPEATED if is_repeated else ENDED if self.abort else UNANSWERED
            progress.write(Closed(request=request.id, why=why))
        self._published()
        return request

    async def ask_for_budget(self, limit: Limit) -> bool:
        """Ask a person to extend a limit that is reached; return whether it was extended."""
        about, reason = (RequestKind.BUDGET, limit), limit_message(self._progress.budget.limits, limit)
        same = (opened for opened in self._progress.open_requests if (opened.kind, opened.code) == about)
        request = next(same, None) or await self.ask(*about, reason, (Choice.EXTEND, Choice.ABORT))
        if request.is_open:  # another step asks already
            await workflow.wait_condition(lambda: not request.is_open)
        return request.answer is not None and request.answer.choice is Choice.EXTEND

    async def ask_about(self, early: TaskEnded) -> None:
        """Ask a person about `early`, which would end the task; raise TaskEnded unless the task shall go on."""
        ending, code = early.ending, early.ending.code or ""
        if not self.are_asked or ending.status not in (TaskStatus.ESCALATED, TaskStatus.OVER_BUDGET):
            raise early
        if ending.status is TaskStatus.OVER_BUDGET:
            if code == "deadline" or not await self.ask_for_budget(code):
                self.raise_if_aborted()
                raise early
            return
        choices = (Choice.RETRY, Choice.REPLAN, Choice.ABORT)
        request = await self.ask(RequestKind.FAULT, code, ending.reason, choices, cause=cause_of(PLANNER, code))
        self.raise_if_aborted()
        if request.answer is None:
            raise unanswered(request)

    def raise_if_aborted(self) -> None:
        """Raise TaskEnded if a person has answered `abort`."""
        if self.abort is not None:
            by = f" by {self.abort.by}" if self.abort.by else ""
            why = f": {self.abort.text}" if self.abort.text else ""
            raise TaskEnded(TaskStatus.FAILED, f"Aborted{by}{why}", ABORTED)

    async def _wait(
        self, request: HumanRequest, within: timedelta, repeat: Callable[[], Awaitable[bool]] | None
    ) -> bool:
        """Wait until the request is over; return whether its call was repeated, and so needs no answer."""

        def is_over() -> bool:
            return not request.is_open or self.abort is not None

        name = timer_name(ids.request_timer(request), self._progress.number)
        if repeat is None:
            with suppress(TimeoutError):
                await workflow.wait_condition(is_over, timeout=within, timeout_summary=name)
            return False
        end = asyncio.create_task(workflow.sleep(within, summary=name))
        try:
            while not is_over() and not end.done():
                try:
                    await workflow.wait_condition(
                        lambda: is_over() or end.done(),
                        timeout=retries.remind_after(within),
                        timeout_summary=summary(ids.repeat_timer(request)),
                    )
                except TimeoutError:
                    with request.tried():
                        if await repeat():
                            return True
        finally:
            end.cancel()
        return False

    def _resolved_before(self, cause: str, record: StepRecord | None) -> str:
        """The id of the resolution that answered the step's newest request with this cause; empty if there is none."""
        about, requests = (cause, record.step.id if record else None), self._progress.requests
        same = [request for request in requests if cause and (request.cause, request.step) == about]
        return same[-1].answer.resolution if same and same[-1].answer else ""


def unanswered(request: HumanRequest) -> TaskEnded:
    """The exception that ends a task whose request nobody answered in time."""
    where = f"{request.step}: " if request.step else ""
    since = f"since {request.since:%Y-%m-%d %H:%M} UTC"
    return TaskEnded(TaskStatus.ESCALATED, f"{where}{request.reason} Nobody has answered {since}.", UNANSWERED)


def _update(choice: Choice) -> Callable[..., Any]:
    """The Update with which a person gives this answer; what its validator rejects leaves no trace in history."""

    @undecoded
    async def handle(self: "Answers", *arguments: Any) -> str:
        if _is_repeated(self._progress):
            return choice.value
        return await _accept(self._progress, choice, _read(choice, arguments), self._publish_requests)

    @undecoded
    def check(self: "Answers", *arguments: Any) -> None:
        self._seal.check_update(arguments)
        if _is_repeated(self._progress):
            return
        read = _read(choice, arguments)
        # Not in `_accept`, which a run made by a reset repeats: there the code is one of another run.
        if request := _check(self._progress, choice, read):
            check_code(request, read)

    update = workflow.update(name=choice.value, description=CHOICES[choice].description)(handle)
    update.validator(check)
    return update


class Answers:
    """The Updates with which people answer a workflow's requests, and the Signal that answers those of an incident."""

    _progress: Progress
    _seal: Seal

    def _publish_requests(self) -> None:
        """Show anew, wherever no worker is asked, what the task asks."""
        raise NotImplementedError

    @workflow.signal(name=RESOLVE, description="The cause of an incident was repaired: repeat what waits for it.")
    @undecoded
    def resolve(self, *arguments: Resolution | RawValue) -> None:
        resolution = read_signal(RESOLVE, arguments, Resolution, self._seal)
        if resolution is None:
            return
        answers = [(opened, resolution.answer_to(opened, workflow.now())) for opened in self._progress.open_requests]
        accepted = [(request, answer) for request, answer in answers if answer]
        if accepted and not resolution.cause:
            log_dropped(RESOLVE, "it names no cause, and would answer requests that belong to no incident")
            return
        for request, answer in accepted:
            self._progress.write(Answered(request=request.id, step=request.step or "", answer=answer))


for _choice in Choice:
    setattr(Answers, _choice.value, _update(_choice))  # where the SDK looks for the Updates of a workflow


def _update_id() -> str:
    update = workflow.current_update_info()
    return update.id if update else ""


def _is_repeated(progress: Progress) -> bool:
    """Whether an earlier run accepted this Update; a client repeats an Update if that run ended before its reply."""
    return digest(_update_id()) in progress.updates


def _read(choice: Choice, arguments: tuple[Any, ...]) -> Given:
    model = CHOICES[choice].given
    try:
        return read_argument(arguments, model) if arguments and not _is_null(arguments) else model()
    except MalformedArgument as malformed:
        fields = ", ".join(f'"{name}"' for name in model.model_fields)
        raise NotAccepted(f"The answer cannot be read: {malformed}. It takes an object with {fields}.") from None


def _is_null(arguments: tuple[Any, ...]) -> bool:
    first = arguments[0]
    encoding = first.payload.metadata.get("encoding") if isinstance(first, RawValue) else None
    is_null = encoding == b"binary/null" or (encoding is not None and first.payload.data == b"null")
    return len(arguments) == 1 and is_null


def _check(progress: Progress, choice: Choice, message: Given) -> HumanRequest | None:
    """The request that an answer is for, None if it needs none; raises NotAccepted if it is not accepted now."""
    if progress.ending is not None:
        raise NotAccepted("The task has ended.")
    check_given(choice, message)
    if isinstance(message, GivenExtend):
        for name in message.amounts:
            if getattr(progress.budget.limits, name) is None:
                raise NotAccepted(f"The task has no limit of {name}: nothing to extend.")
        if not message.request:
            return None
    request = find_request(progress.requests, choice, message)
    check_fits(request, message)
    _check_person(request, choice, message, progress.task.starter)
    if choice is Choice.SKIP:
        pending = (
            record for record in progress.with_status(StepStatus.PENDING) if record.revision == progress.revision
        )
        if needing := [record.step.id for record in pending if request.step in record.step.dependencies]:
            raise NotAccepted(f"The step {request.step!r} cannot be skipped: {', '.join(needing)} needs it.")
    if isinstance(message, GivenProvide) and (size := len(canonical(message.result).encode())) > MAX_RESULT:
        raise NotAccepted(f"The result has {size} bytes, more than {MAX_RESULT}.")
    if isinstance(message, GivenEdit) and (size := len(canonical(message.args).encode())) > MAX_RESULT:
        raise NotAccepted(f"The arguments have {size} bytes, more than {MAX_RESULT}.")
    return request


def _check_person(request: HumanRequest, choice: Choice, message: Given, starter: str | None) -> None:
    """Raise NotAccepted unless the tool's rule lets this person answer. Nothing is verified here: the worker does."""
    rule, stated = request.approvers, message.statement
    if rule is None or choice not in BUYS:
        return
    if stated is None:
        needs = f"This answer needs {rule.text(request.since, request.needed)}"
        raise NotAccepted(f"{needs}, and nobody vouches for who gives it: answer where you are signed in.")
    if (stated.request, stated.choice, stated.asked) != (request.id, choice.value, request.since):
        raise NotAccepted(f"What was signed is about another request or answer: sign {choice.value} of {request.id}.")
    if why := rule.refuses(stated, starter):
        raise NotAccepted(why)
    if folded(stated.person) in [folded(one.person) for one in request.statements]:
        needs = rule.text(request.since, request.needed)
        raise NotAccepted(f"{stated.person} has answered it already: it needs {needs}.")
    if choice is Choice.PROVIDE and any(one.given != stated.given for one in request.statements):
        raise NotAccepted(f"{request.statements[0].person} has given another result: everybody must give the same.")


async def _accept(progress: Progress, choice: Choice, message: Given, publish: Callable[[], None]) -> str:
    """Accept an answer; return the result of the Update: the request and the answer, or the extended limits.

    `publish` is called if further people must answer alike.
    """
    # The state changes before the first await: another answer to the same request is rejected from now on.
    request = _check(progress, choice, message)
    answer = answer_of(choice, message, workflow.now())
    if isinstance(message, GivenExtend) or request is None:
        progress.write(Extended(proof=_update_id(), answer=answer))
        limits = progress.budget.limits
        return ", ".join(f"{name} {getattr(limits, name)}" for name in answer.extended)
    given: dict[str, Any] = {}
    if isinstance(message, GivenProvide):
        given = {"result": message.result}
    if isinstance(message, GivenWithCode):
        given = {"code": message.call}
    if isinstance(message, GivenApproveAll):
        given |= {"others": message.others}
    if isinstance(message, GivenEdit):
        args = progress.record_of(request.step or "").args or {}
        before = {**args, **(request.call.defaults if request.call else {})}
        answer = answer.model_copy(update={"edited": changes(before, message.args)})
        given |= {"args": message.args}
    about = {"request": request.id, "step": request.step or "", "proof": _update_id()}
    if (rule := request.approvers) and choice in BUYS and choice is not Choice.EDIT and message.statement:
        stated, starter = (*request.statements, message.statement), progress.task.starter
        if not rule.are_enough(stated, starter):
            progress.write(Endorsed(**about, answer=answer))
            publish()
            return f"{request.id}: {choice.value} ({len(stated)} of {request.needed})"
    progress.write(Answered(**about, answer=answer, **given))
    if choice in (Choice.PROVIDE, Choice.EDIT):
        await workflow.wait_condition(lambda: request.refused is not None)
        if request.refused:
            what = "result was" if choice is Choice.PROVIDE else "arguments were"
            raise ApplicationError(f"The {what} not accepted: {request.refused}", type="not_accepted")
    return f"{request.id}: {choice.value}"
