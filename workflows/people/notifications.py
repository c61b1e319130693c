"""Notifications: a receiver outside of Replan is told of requests to people.

Runs when a request is opened or closed, and once while it stays open, if workers have a receiver (`--notify`). A
workflow of its own delivers each notification. So a receiver that is down delays no task and no answer, and is told
even after the task has ended, continued as new, or was reset.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from operator import not_
from typing import Any, Literal

from pydantic import AwareDatetime, BaseModel, Field
from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import FailureError
from temporalio.workflow import ChildWorkflowCancellationType, ParentClosePolicy

from workflows import ids
from workflows.account.progress import Progress
from workflows.arguments import require_argument, undecoded
from workflows.calls.running import deliver
from workflows.faults import retries
from workflows.people.approvers import Approvers
from workflows.people.requests import CHOICES, REPEATED, UNANSWERED, Choice, HumanRequest, RequestKind
from workflows.plans import own_activities
from workflows.task_queues import control_queue
from workflows.web_ui import summary


class Event(StrEnum):
    OPENED = "opened"
    REMINDER = "reminder"
    ESCALATED = "escalated"
    """From now on, further people may answer."""
    CLOSED = "closed"


End = Literal["answered", "aborted", "unanswered", "repeated", "ended"]


class Notification(BaseModel, frozen=True):
    """What a receiver is told: an event of a request to a person.

    It has no arguments, no results, and no words of a tool, a planner or a person, because these may quote them. The
    reason of a request is such words. Of the card that people see, it has what is named here; the page has the rest.
    """

    # Set in each notification
    id: str
    """The same in each repetition of this notification, and in no other notification."""
    event: Event
    at: AwareDatetime
    task: str
    queue: str
    request: str
    """The id of the request in the task, such as `r1`."""
    kind: RequestKind
    step: str | None
    code: str
    since: AwareDatetime
    until: AwareDatetime
    choices: tuple[Choice, ...]

    # Set if the request has it
    cause: str = Field(default="", exclude_if=not_)
    """The incident that the request belongs to, such as `charge/unauthorized`; empty for none."""
    by: str = Field(default="", exclude_if=not_)
    """Who started the task, as that person or program claims."""
    tool: str = Field(default="", exclude_if=not_)
    """The tool whose call is to be approved; empty for another request."""
    effect: str = Field(default="", exclude_if=not_)
    """What the call may change, e.g. `keyed`."""
    undo: str = Field(default="", exclude_if=not_)
    """The tool that undoes the call; empty if none does."""
    approvers: Approvers | None = Field(default=None, exclude_if=lambda rule: rule is None)
    """Who may answer so that the call is made; None for anybody."""
    needed: int = Field(default=0, exclude_if=not_)
    """How many different people `approvers` asks for in this task."""
    endorsed_by: tuple[str, ...] = Field(default=(), exclude_if=not_)
    """Who has answered so far, or before the last of several people who had to."""

    # Set once the request is closed
    end: End | None = None
    """How the request was closed; None while it is open. `ended`: the task ended for another reason."""
    answer: Choice | None = None
    """The answer that closed the request; None if there is none."""


class Notifications:
    """Tells a receiver of the requests of one task."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._reminders = dict[str, asyncio.Task[None]]()
        """By the id of each open request that the receiver was told of, the asyncio task that tells of it again."""
        self._starts = list[asyncio.Task[None]]()

    def tell(self) -> None:
        """Start a notification for each request that was opened or closed since the last call, and return at once."""
        for request in self._progress.requests:
            is_known = request.id in self._reminders
            if request.is_open and not is_known:
                self._start(request, Event.OPENED)
                self._reminders[request.id] = asyncio.create_task(self._remind(request))
            elif is_known and not request.is_open:
                self._start(request, Event.CLOSED)
                self._reminders.pop(request.id).cancel()

    async def handed_over(self) -> None:
        """Wait until the server has started all workflows that deliver notifications; from then on the task may end.

        The server drops the start of a workflow whose parent has ended. This does not wait for the receiver.
        """
        while starting := [start for start in self._starts if not start.done()]:
            with suppress(asyncio.CancelledError):  # a cancelled task tells of its end, too
                await workflow.wait(starting)

    async def _remind(self, request: HumanRequest) -> None:
        later = [(retries.remind_after(request.until - request.since), Event.REMINDER, ids.reminder_timer(request))]
        if request.approvers and request.approvers.then:
            escalated = retries.timer(request.approvers.after), Event.ESCALATED, ids.escalation_timer(request)
            later = sorted([*later, escalated])
        begun = workflow.now()
        for seconds, event, name in later:
            await workflow.sleep(begun + seconds - workflow.now(), summary=summary(name))
            if request.is_open:
                self._start(request, event)

    def _start(self, request: HumanRequest, event: Event) -> None:
        call = request.call
        about: dict[str, Any] = {"approvers": request.approvers, "needed": request.needed}
        about |= {"endorsed_by": tuple(one.by for one in request.endorsed)}
        about |= {"tool": call.kind, "effect": call.effect, "undo": call.undo or ""} if call else {}
        notification = Notification(
            id=ids.notification(request, event.value),
            event=event,
            at=workflow.now(),
            task=self._progress.task_id,
            queue=workflow.info().task_queue,
            by=self._progress.task.by,
            end=None if request.is_open else self._how_closed(request),
            answer=request.answer.choice if request.answer else None,
            request=request.id,
            **request.model_dump(include={"kind", "step", "code", "cause", "since", "until", "choices"}),
            **about,
        )
        running = [start for start in self._starts if not start.done()]
        self._starts = [*running, asyncio.create_task(_start_delivery(notification))]

    def _how_closed(self, request: HumanRequest) -> End:
        answers = [other.answer.choice for other in self._progress.requests if other.answer]
        if any(CHOICES[choice].ends_task for choice in ([request.answer.choice] if request.answer else answers)):
            return "aborted"
        if request.answer:
            return "answered"
        closed: Mapping[str, End] = {REPEATED: "repeated", UNANSWERED: "unanswered"}
        return closed.get(request.closed, "ended")


async def _start_delivery(notification: Notification) -> None:
    title = f"{notification.event.value}: request {notification.request} of {notification.task}"
    with suppress(FailureError):  # one with this id runs: the task was reset after it had been started
        delivery = await workflow.start_child_workflow(
            NotifyWorkflow.run,
            notification,
            id=notification.id,
            task_queue=control_queue(notification.queue),
            parent_close_policy=ParentClosePolicy.ABANDON,
            cancellation_type=ChildWorkflowCancellationType.ABANDON,
            static_summary=summary(title),
        )
        # A receiver that was never told is no matter of the task; asyncio would log an exception that nobody asks for.
        delivery.add_done_callback(lambda ended: ended.cancelled() or ended.exception())


@workflow.defn(name="NotifyWorkflow")
class NotifyWorkflow:
    """Delivers one notification to the receiver of a worker; returns which receiver was told."""

    @workflow.run
    @undecoded
    async def run(self, *arguments: Notification | RawValue) -> str:
        """Have workers attempt the delivery for a day, until an attempt succeeds; return the name of the receiver.

        Raises:
            ActivityError: no receiver was told in that time.
            ApplicationError: the notification cannot be read.
        """
        notification = require_argument("notification", arguments, Notification)
        title = f"{notification.event.value}: request {notification.request} of {notification.task}"
        return await deliver(notification.model_dump(mode="json"), id=own_activities.NOTIFY.kind, title=title)
