"""Receivers of notifications: a URL and a command, what they get, and what nobody gets to see of them."""

import asyncio
import base64
import json
import os
import re
import shlex
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import get_args

import psutil
import pytest
import standardwebhooks
from structlog.testing import capture_logs
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.notification import (
    SIGNING_KEY,
    BadReceiver,
    NotDelivered,
    Notifier,
    Receiver,
    body,
    page_base,
    receiver_of,
)
from evals.fakes.http_server import reply, serving
from runtime.dev_server import free_port
from tests.documentation import sections, tables
from tests.processes import ROOT
from tests.receiving import receiver
from workflows.people.notifications import End, Event, Notification
from workflows.people.requests import Choice, RequestKind

NOW = datetime(2026, 11, 23, 12, 4, tzinfo=UTC)
ENVIRONMENT = {"PATH": os.defpath}
TOLD = Notification(
    id="notify-1-r1-opened",
    event=Event.OPENED,
    at=NOW,
    task="pay; rm -rf",
    queue="replan",
    request="r1",
    kind=RequestKind.FAULT,
    step="paid",
    code="unauthorized",
    since=NOW,
    until=NOW,
    choices=(Choice.RETRY,),
)


def receiving(given: str, **environment: str) -> Receiver:
    """The receiver that an option names."""
    found = receiver_of(given, {**ENVIRONMENT, **environment})
    assert found is not None
    return found


def script(folder: Path, text: str) -> str:
    """A command that runs this Python, with a word that a shell would read."""
    (file := folder / f"{uuid.uuid4().hex[:6]}.py").write_text(text)
    return shlex.join([sys.executable, str(file), "$HOME; echo no"])


async def until(seen: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not seen():
            await asyncio.sleep(0.02)


PAGE = (ROOT / "docs" / "people.md").read_text(encoding="utf-8")


def test_the_page_shows_what_a_receiver_gets() -> None:
    """The example, every type, and every way in which a request is closed."""
    [block] = re.findall(r"```json\n(.*?)```", PAGE, flags=re.DOTALL)
    example = json.loads(block)
    data = {name: value for name, value in example["data"].items() if name in Notification.model_fields}
    event = Event(example["type"].removeprefix("request."))
    told = Notification(id=example["id"], event=event, at=example["timestamp"], task=example["data"]["task_id"], **data)
    rows = tables(sections(PAGE)["Being told"])

    assert json.loads(body(told, "default")) == example
    assert [row[0] for row in rows["type"]] == [f"request.{one.value}" for one in Event]
    assert {row[0] for row in rows["end"]} == set(get_args(End))


WRONG = {
    "ftp://files.example/hidden-token": "--notify takes no URL that begins with ftp://",
    "https://": "--notify is a URL without a valid host or port",
    "https://hooks.example:99999/hidden-token": "--notify is",
    "hooks.example/hidden-token": "--notify: there is no command 'hooks.example'",
    "/nowhere/page-on-call hidden-token": "--notify: there is no command '/nowhere/page-on-call'",
    "mail 'hidden-token": "--notify is no command (No closing quotation)",
}
UNSIGNED = "REPLAN_NOTIFY_SECRET is no secret of Standard Webhooks: write whsec_ and the"
NO_PAGE = "REPLAN_PAGE is no URL of a page: give one as https://replan.example."
NO_PAGES = ("replan.example", "ftp://replan.example", "https://", "https://x/?a=b", "http://[", "https://a:hidden@x")
MISTAKES: list[tuple[Callable[[], object], str]] = [
    *((partial(receiver_of, given, ENVIRONMENT), said) for given, said in WRONG.items()),
    *(
        (partial(receiver_of, "https://hooks.example/", {SIGNING_KEY: secret}), UNSIGNED)
        for secret in ("hidden", "whsec_aGlkZGVu", "whsec_" + "%" * 40)
    ),
    *((partial(page_base, given), NO_PAGE) for given in NO_PAGES),
]


@pytest.mark.parametrize(("given", "said"), MISTAKES)
def test_a_mistake_is_found_at_the_start(given: Callable[[], object], said: str) -> None:
    """In a sentence that says what to do, without what may be secret."""
    with pytest.raises(BadReceiver) as raised:
        given()

    assert str(raised.value).startswith(said) and ": " in str(raised.value)
    assert "hidden" not in str(raised.value)


def test_nobody_is_told_where_nobody_is_named() -> None:
    """An empty variable in the environment is none."""
    assert [receiver_of(given, ENVIRONMENT) for given in (None, "", "  ")] == [None] * 3


async def test_a_post_is_one_of_standard_webhooks() -> None:
    """Signed as any library checks it; user and password of the URL are sent as HTTP does it, and nowhere else."""
    secret = f"whsec_{base64.b64encode(bytes(24)).decode()}"
    async with receiver() as mailbox:
        found = receiving(mailbox.url.replace("http://", "http://ann:hidden@"), **{SIGNING_KEY: secret})
        await found.tell(TOLD.id, body(TOLD, "default"))

    [headers], [posted] = mailbox.headers, mailbox.posted
    assert (headers["webhook-id"], headers["content-type"]) == (TOLD.id, "application/json")
    assert int(headers["webhook-timestamp"]) > NOW.timestamp() - 10**9
    assert headers["authorization"].startswith("Basic ")
    assert found.name == mailbox.url.partition("/hook")[0]
    assert "hidden" not in found.name + repr(found) and secret not in repr(found)
    assert standardwebhooks.Webhook(secret).verify(json.dumps(posted), headers) == posted
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook(secret).verify(json.dumps({**posted, "id": "another"}), headers)


def test_what_is_told_has_a_command_to_answer_and_a_link_to_the_page() -> None:
    """An id may have any character: it is quoted for a shell, and for a URL; without a base there is no link."""
    linked = json.loads(body(TOLD, "default", page_base("https://replan.example/at/ ")))["data"]
    unlinked = json.loads(body(TOLD, "default", page_base("")))["data"]

    assert [*unlinked["commands"].values()] == ["python starter.py answer 'pay; rm -rf' retry --request r1"]
    assert linked["url"] == "https://replan.example/at/ui/tasks/pay%3B%20rm%20-rf#r1"
    assert "url" not in unlinked


async def test_all_but_2xx_is_no_delivery() -> None:
    """A redirect is not followed."""
    statuses, reasons = (301, 302, 307, 308, 400, 401, 404, 410, 429, 500, 503), list[str]()
    async with receiver() as elsewhere, receiver(*statuses, location=elsewhere.url) as mailbox:
        for _ in statuses:
            with pytest.raises(NotDelivered) as raised:
                await receiving(mailbox.url).tell("id", "{}")
            reasons.append(str(raised.value))

    assert reasons == [f"{mailbox.url.partition('/hook')[0]} answered {status}." for status in statuses]
    assert elsewhere.posted == []


async def run(found: Receiver) -> str:
    return await ActivityEnvironment().run(Notifier(found).notify_people, TOLD)


async def failing(found: Receiver) -> tuple[str, list[Mapping[str, object]]]:
    """Why the activity fails, and what is logged."""
    with capture_logs() as lines, pytest.raises(ApplicationError) as raised:
        await run(found)
    assert (raised.value.type, raised.value.non_retryable, raised.value.__cause__) == ("not_delivered", False, None)
    return raised.value.message, list(lines)


async def test_a_failure_is_one_line_in_the_log() -> None:
    """With the task, the request, the event and the reason; without the path of the URL, which may be a secret."""
    host = f"http://127.0.0.1:{free_port()}"
    reason, lines = await failing(receiving(f"{host}/hidden?token=hidden"))

    assert reason == f"{host} cannot be reached (ConnectError)."
    [line] = lines
    assert (line["event"], line["log_level"], line["reason"]) == ("not_notified", "warning", reason)
    assert (line["task"], line["request"], line["type"], line["attempt"]) == (TOLD.task, "r1", "request.opened", 1)


async def test_what_is_no_http_and_a_command_that_is_gone_are_no_delivery(tmp_path: Path) -> None:
    """Nor what ends too early. The command was there when the worker started."""
    (program := tmp_path / "page").write_text("#!/bin/sh\n")
    program.chmod(0o700)
    command = receiving(str(program))
    program.unlink()
    async with serving(b"SSH-2.0-OpenSSH\r\n") as url, serving(reply(200)[:12]) as short:
        reasons = [(await failing(found))[0] for found in (receiving(url), receiving(short), command)]

    assert reasons == [
        f"{url} cannot be reached (RemoteProtocolError).",
        f"{short} cannot be reached (RemoteProtocolError).",
        "the command page cannot be reached (FileNotFoundError).",
    ]


CHILD = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open({out!r}, "w").write(f"{{child.pid}}\\n{{sys.argv[1]}}\\n{{sys.stdin.read()}}")
print("a" * 10**6)
"""


async def test_a_command_gets_the_json_without_a_shell(tmp_path: Path) -> None:
    """Its words are its own, whatever a shell would make of them; what it prints goes nowhere.

    It may leave its work to a process of its own, which keeps its outputs open, and holds nothing up.
    """
    out, began = tmp_path / "out", time.monotonic()
    told = await run(receiving(script(tmp_path, CHILD.format(out=str(out)))))
    seconds = time.monotonic() - began
    child, words, posted = out.read_text().split("\n")
    psutil.Process(int(child)).kill()

    assert (told, words) == (f"the command {Path(sys.executable).name}", "$HOME; echo no")
    assert posted == body(TOLD, "default")
    assert seconds < 50


async def test_a_command_that_fails_says_why_in_a_line(tmp_path: Path) -> None:
    """The last line of its error output, shortened, and without what looks like a secret."""
    said = "print('first', file=sys.stderr); print('no route, token=hidden ' + 'y ' * 999, file=sys.stderr)"
    reason, _ = await failing(receiving(script(tmp_path, f"import sys; {said}; sys.exit(7)")))

    assert reason.startswith(f"the command {Path(sys.executable).name} ended with the exit code 7 (no route, *** y")
    assert len(reason) < 400 and "first" not in reason


SLEEPS = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open(os.path.join({folder!r}, "pids"), "w").write(f"{{os.getpid()}} {{child.pid}} end")
child.wait()
"""


def runs(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody waited for does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def test_a_command_without_an_end_is_killed_with_its_children(tmp_path: Path) -> None:
    """When its time is over, and when its worker stops: both cancel it."""
    file = tmp_path / "pids"
    telling = asyncio.create_task(receiving(script(tmp_path, SLEEPS.format(folder=str(tmp_path)))).tell("id", "{}"))
    await until(lambda: file.exists() and file.read_text().endswith("end"))
    pids = [int(one) for one in file.read_text().split()[:2]]
    ran = [runs(pid) for pid in pids]
    telling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await telling
    await until(lambda: not any(map(runs, pids)))

    assert ran == [True, True]
