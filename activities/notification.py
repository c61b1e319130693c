"""Notifies a receiver outside of Replan of requests to people: JSON is posted to a URL, or is the input of a command.

The headers follow Standard Webhooks (https://www.standardwebhooks.com). The address of a receiver may be a secret, so
messages, logs and the history contain only the host of the address, or the name of the command.
"""

import asyncio
import base64
import json
import os
import shlex
import shutil
import signal
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Protocol
from urllib.parse import urlsplit

import httpx2
import structlog
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.log_redaction import scrubbed
from workflows.commands import command
from workflows.people.card import more_text
from workflows.people.notifications import Event, Notification
from workflows.people.requests import CHOICES, Choice, answer_command
from workflows.people.updates import RESOLVE
from workflows.plans import own_activities
from workflows.web_ui import request_url

READ = 4096
"""How many bytes are read at the end of a failed command's error output; the last line of them is logged."""

SIGNING_KEY = "REPLAN_NOTIFY_SECRET"
"""The environment variable with the secret that signs what is posted; without it nothing is signed."""
MIN_SECRET = 24
"""The fewest bytes of a secret, by the specification of Standard Webhooks."""

Sign = Callable[[str, datetime, str], str]
"""Makes the header of a signature from the id, the time and the body of a post."""

log = structlog.get_logger("replan.notify")


class BadReceiver(ValueError):
    """The value of `--notify` cannot be used; the message says why, without what may be secret in it."""


class NotDelivered(Exception):
    """A notification was not delivered; the message says why, without what may be secret in the receiver's address."""


class Receiver(Protocol):
    """Takes notifications: a web server or a command."""

    @property
    def name(self) -> str:
        """The name of the receiver in messages, without what may be secret in its address."""

    async def tell(self, id: str, body: str) -> None:
        """Deliver `body`, a JSON text; a repetition has the same `id`. Raises NotDelivered if it is not accepted."""


def receiver_of(option: str | None, environment: Mapping[str, str]) -> Receiver | None:
    """The receiver that `option`, the value of `--notify`, names; None if the option is missing or blank.

    Raises:
        BadReceiver: the value is neither a URL nor a command that can be run here, or the signing secret is invalid.
    """
    if option is None or not option.strip():
        return None
    if "://" in option.partition(" ")[0]:
        secret = environment.get(SIGNING_KEY, "").strip()
        return Webhook(_url(option.strip()), _signer(secret) if secret else None)
    try:
        args = shlex.split(option)
    except ValueError as error:
        raise BadReceiver(f"--notify is no command ({error}): quote its words as in a shell.") from None
    program = shutil.which(args[0], path=environment.get("PATH"))
    if program is None:
        # Of a URL without its scheme, only the host is shown.
        shown = args[0] if args[0].startswith(("/", ".", "~")) else args[0].partition("/")[0]
        remedy = "give a URL that begins with https:// or http://, or the path of a program that may be run"
        raise BadReceiver(f"--notify: there is no command {shown!r}: {remedy}.")
    return CommandReceiver(program, tuple(args[1:]))


def _url(text: str) -> httpx2.URL:
    remedy = "give one as https://hooks.example/path"
    try:
        url = httpx2.URL(text)
        has_port = url.port is None or 0 < url.port < 65536
    except (httpx2.InvalidURL, ValueError):
        raise BadReceiver(f"--notify is no valid URL: {remedy}.") from None
    if url.scheme not in ("http", "https"):
        raise BadReceiver(f"--notify takes no URL that begins with {url.scheme}://: {remedy}.")
    if not url.host or not has_port:
        raise BadReceiver(f"--notify is a URL without a valid host or port: {remedy}.")
    return url


def page_base(option: str | None) -> str | None:
    """The URL in REPLAN_PAGE, without a slash at its end; None if it is missing or blank. Raises BadReceiver."""
    if option is None or not option.strip():
        return None
    base = option.strip().rstrip("/")
    try:
        url = urlsplit(base)
    except ValueError:
        url = urlsplit("")
    if url.scheme not in ("http", "https") or not url.hostname or url.query or url.fragment or url.username:
        raise BadReceiver("REPLAN_PAGE is no URL of a page: give one as https://replan.example.")
    return base


def _signer(secret: str) -> Sign:
    from standardwebhooks.webhooks import Webhook as Signer  # only here it is needed

    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except ValueError:
        key = b""
    if len(key) < MIN_SECRET:
        remedy = f"write whsec_ and the base64 of at least {MIN_SECRET} random bytes"
        raise BadReceiver(f"{SIGNING_KEY} is no secret of Standard Webhooks: {remedy}.")
    return Signer(key).sign


@dataclass(frozen=True)
class Webhook:
    """A server that takes a notification as a POST, and answers 2xx."""

    url: httpx2.URL = field(repr=False)
    sign: Sign | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        return f"{self.url.scheme}://{self.url.netloc.decode()}"

    async def tell(self, id: str, body: str) -> None:
        now = datetime.now(UTC)
        headers = {
            "content-type": "application/json",
            "user-agent": "Replan",
            "webhook-id": id,
            "webhook-timestamp": str(int(now.timestamp())),
            **({"webhook-signature": self.sign(id, now, body)} if self.sign else {}),
        }
        # A redirect is not followed: it may lead to another receiver.
        async with (
            httpx2.AsyncClient(timeout=own_activities.NOTIFY.timeout, follow_redirects=False) as http,
            http.stream("POST", self.url, content=body, headers=headers) as reply,
        ):
            if not reply.is_success:
                raise NotDelivered(f"{self.name} answered {reply.status_code}.")


@dataclass(frozen=True)
class CommandReceiver:
    """A command that is run without a shell, takes a notification as its input, and ends with the exit code 0."""

    program: str
    args: tuple[str, ...] = field(repr=False)

    @property
    def name(self) -> str:
        return f"the command {Path(self.program).name}"

    async def tell(self, id: str, body: str) -> None:
        # Files, because a child that goes on could keep a pipe open.
        with tempfile.TemporaryFile() as input_file, tempfile.TemporaryFile() as error_file:
            input_file.write(body.encode())
            input_file.seek(0)
            process = await asyncio.create_subprocess_exec(
                self.program,
                *self.args,
                stdin=input_file,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=error_file,
                start_new_session=True,  # the leader of a group, so that its children can be killed with it
            )
            try:
                code = await process.wait()
            except asyncio.CancelledError:  # its time is over, or the worker stops
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
                raise
            if code:
                raise NotDelivered(f"{self.name} ended with the exit code {code}{_last_line(error_file)}.")


def _last_line(error_file: BinaryIO) -> str:
    error_file.seek(max(0, error_file.seek(0, os.SEEK_END) - READ))
    lines = error_file.read().decode(errors="replace").strip().splitlines()
    return f" ({scrubbed(NotDelivered(lines[-1])).partition(': ')[2]})" if lines else ""


class Notifier:
    """Holds the activity that notifies the receiver of this worker."""

    def __init__(self, receiver: Receiver, page_base: str | None = None) -> None:
        """`page_base` is the base URL of the page on which people answer; None if it is not known."""
        self._receiver, self._page_base = receiver, page_base

    @activity.defn(name=own_activities.NOTIFY.kind)
    async def notify_people(self, notification: Notification) -> str:
        """Deliver a notification, and return the receiver's name; raises ApplicationError for another attempt."""
        info = activity.info()
        about = {
            "task": notification.task,
            "request": notification.request,
            "type": _event_type(notification),
            "attempt": info.attempt,
        }
        try:
            await self._deliver(notification, info.namespace)
        except NotDelivered as failed:
            log.warning("not_notified", **about, reason=str(failed))
            raise ApplicationError(str(failed), type="not_delivered") from None
        log.info("notified", **about, receiver=self._receiver.name)
        return self._receiver.name

    async def _deliver(self, notification: Notification, namespace: str) -> None:
        receiver, limit = self._receiver, own_activities.NOTIFY.timeout
        try:
            async with asyncio.timeout(limit):
                await receiver.tell(notification.id, body(notification, namespace, self._page_base))
        except TimeoutError:
            raise NotDelivered(f"{receiver.name} did not take it within {limit:g} s.") from None
        except (httpx2.HTTPError, OSError) as error:  # its message may have the whole address
            raise NotDelivered(f"{receiver.name} cannot be reached ({type(error).__name__}).") from None


def body(notification: Notification, namespace: str, page_base: str | None = None) -> str:
    """The JSON object, as text, that a receiver gets; `page_base` as in Notifier."""
    link = {"url": request_url(page_base, notification.task, notification.request)} if page_base else {}
    data = notification.model_dump(mode="json", exclude={"id", "event", "at", "task"})
    fields: dict[str, Any] = {
        "schema": 1,
        "id": notification.id,
        "type": _event_type(notification),
        "timestamp": notification.model_dump(mode="json")["at"],
        "text": _text(notification),
        "data": {
            "task_id": notification.task,
            "namespace": namespace,
            **data,
            **link,
            "commands": _commands(notification),
        },
    }
    return json.dumps(fields)


def _event_type(notification: Notification) -> str:
    return f"request.{notification.event.value}"


def _text(notification: Notification) -> str:
    kind, code = notification.kind.value, notification.code
    about = code if code == kind else f"{kind} {code}"
    about += f" of the step {notification.step}" if notification.step else ""
    match notification.event:
        case Event.OPENED:
            happened = "waits for a person"
        case Event.REMINDER:
            happened = "still waits for a person"
        case Event.ESCALATED:
            happened = "waits for a person, and further people may answer now"
        case Event.CLOSED:
            happened = f"has closed its request: {notification.end}" + (
                f" with {notification.answer.value}" if notification.answer and notification.end == "answered" else ""
            )
    return f"The task {notification.task} {happened} ({notification.request}: {about}).{_needs(notification)}"


def _needs(notification: Notification) -> str:
    """Who must answer, and who has, as a further sentence; empty if anybody may, and once the request is closed."""
    rule, by = notification.approvers, notification.endorsed_by
    if rule is None or notification.end is not None:
        return ""
    has = f" ({', '.join(by)} did; {more_text(notification.needed - len(by))})" if by else ""
    what = "It needs" if notification.tool else "A result by hand needs"
    return f" {what} {rule.text(notification.since, notification.needed)}{has}."


def _commands(notification: Notification) -> dict[str, str]:
    """Console commands by answer, and one for `resolve` if the request has a cause; none if the request is closed."""
    if notification.end is not None:
        return {}
    whole = {RESOLVE: command(RESOLVE, notification.cause)} if notification.cause else {}
    return {choice.value: _command(notification, choice) for choice in notification.choices} | whole


def _command(notification: Notification, choice: Choice) -> str:
    if CHOICES[choice].needs_code:  # `answer` alone shows the call, which a notification does not
        return command("answer", notification.task)
    return answer_command(notification.task, choice, notification.code, notification.request)
