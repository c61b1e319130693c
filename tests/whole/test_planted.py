"""Planted secrets: with a keyring no search for their bytes finds them, and with the key they are read everywhere."""

import base64
import json
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload, Payloads

from extras.web.tests.browser import launched
from extras.web.tests.serving import serving
from runtime.client import connect
from tests import scraping
from tests.planted import MARK, SECRETS, Place, placed
from workflows.plans.references import ENCRYPTED_ENCODING

if TYPE_CHECKING:  # of an extra
    from playwright.async_api import Page

pytestmark = [pytest.mark.full, pytest.mark.timeout(400)]
PLANTED = f"{MARK}-"
KEPT = base64.b64encode(ENCRYPTED_ENCODING).decode()
"""What the web UI shows of a payload that it cannot read."""
QUIET = ("--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync")  # fmt: skip
"""Flags of a browser that reaches nothing but what it is sent to."""


@pytest.fixture(scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    async with placed(tmp_path_factory.mktemp("planted")) as made:
        yield made


async def test_with_the_key_all_of_it_is_read(place: Place) -> None:
    show, explain, effects, transcript = [
        await place.run(command, place.task, "--json") for command in ("show", "explain", "effects", "transcript")
    ]
    report = await place.run("report", "--json")
    replay = await place.run("replay", "--query", f"WorkflowId = '{place.task}'")
    async with place.served.visit() as program:
        page = await program.get(f"/ui/tasks/{place.task}", follow_redirects=True)
        document = (await program.get(f"/tasks/{place.task}")).text
        inbox = await program.get("/ui/inbox")

    assert [name for name in SECRETS if PLANTED + name not in show.stdout + transcript.stdout] == []
    assert [name for name in ("task-text", "reason") if PLANTED + name not in explain.stdout] == []
    assert [name for name in ("argument", "observed", "finish") if PLANTED + name not in document] == []
    assert [name for name in ("task-text", "finish") if PLANTED + name not in page.text] == []
    assert PLANTED + "reason" in inbox.text
    assert (effects.returncode, report.returncode, replay.returncode) == (0, 0, 0), replay.stderr
    assert b"x-colour: planted-header" in place.page.requests[0]
    assert any(PLANTED + "body" in str(one.body) for one in place.api.requests)


async def test_no_file_and_nothing_that_is_sent_on_has_it(place: Place) -> None:
    exported = await place.run("export", place.task, str(place.folder / "redacted.json"), "--redact")
    reported = await place.run("report", "--html", str(place.folder / "report.html"))
    blind = [
        await place.run(*words, place.task, blind=True)
        for words in (("show",), ("show", "--json"), ("explain",), ("effects",), ("transcript",))
    ]
    client = await connect(address=place.server.address, plain=True)
    ids = [row.id async for row in client.list_workflows("")]
    metrics = scraping.read(place.metrics)
    async with place.served.visit() as program:
        pages = [
            await program.get(path, follow_redirects=True)
            for path in (
                "/ui/inbox",
                "/ui/tasks",
                "/ui/incidents",
                f"/ui/tasks/{place.task}",
                f"/ui/tasks/{place.waiting}",
            )
        ]
        of_serve = (await program.get("/metrics")).text
    addresses = [word for page in pages for word in re.findall(r'(?:href|src|action)="([^"]*)"', page.text)]
    addresses += [str(page.url) for page in pages]

    assert (exported.returncode, reported.returncode) == (0, 0), exported.stderr + reported.stderr
    assert place.holders() == []
    assert [one.args for one in blind if PLANTED in one.stdout + one.stderr] == []
    assert [id for id in ids if MARK in id] == []
    assert re.fullmatch("task-[0-9a-f]{6}", place.task)
    assert any(id.startswith("notify-") for id in ids)
    assert "replan_" in metrics and PLANTED not in metrics + of_serve
    assert place.spans.named("execute_tool") and PLANTED.encode() not in b"".join(place.spans.requests)
    assert "request.opened r1" in place.mailbox.types and PLANTED not in json.dumps(place.mailbox.posted)
    assert addresses and [one for one in addresses if MARK in one] == []


async def test_the_codec_endpoint_decodes_what_the_server_keeps(place: Place) -> None:
    """What the web UI shows of a history: nothing readable is in it before, and all of it after."""
    client = await connect(address=place.server.address, plain=True)
    handle = client.get_workflow_handle(place.task)
    events = [event async for event in handle.fetch_history_events()]
    found = [payload for event in events for payload in payloads_in(event)]
    body = MessageToDict(Payloads(payloads=found))
    async with place.served.visit(origin=place.server.ui_url, x_namespace="default") as browser:
        decoded = (await browser.post("/codec/decode", json=body)).json()
    clear = b"".join(base64.b64decode(one.get("data", "")) for one in decoded["payloads"]).decode(errors="replace")

    assert PLANTED.encode() not in b"".join(event.SerializeToString() for event in events)
    assert [name for name in SECRETS if PLANTED + name not in clear] == []


def payloads_in(message: Message) -> list[Payload]:
    if isinstance(message, Payload):
        return [message]
    found = list[Payload]()
    for field, value in message.ListFields():
        if field.type != field.TYPE_MESSAGE:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            values = list(value.values())
        else:
            values = list(value) if isinstance(value, list) or hasattr(value, "append") else [value]
        found += [payload for one in values if isinstance(one, Message) for payload in payloads_in(one)]
    return found


@asynccontextmanager
async def web_ui(place: Place, endpoint: str) -> AsyncIterator["Page"]:
    async with launched(*QUIET) as browser:
        context = await browser.new_context(viewport={"width": 1280, "height": 1400})
        page = await context.new_page()
        page.set_default_timeout(60_000)
        await page.goto(place.server.ui_url)
        await page.evaluate("endpoint => localStorage.setItem('endpoint', JSON.stringify(endpoint))", endpoint)
        await page.goto(f"{place.server.ui_url}/namespaces/default/workflows/{place.task}")
        yield page


async def test_the_web_ui_shows_what_the_endpoint_decodes(place: Place) -> None:
    async with web_ui(place, f"{place.served.url}/codec") as page:
        await page.get_by_text(f"{PLANTED}task-text").first.wait_for()
        if kept := os.environ.get("REPLAN_KEEP_PICTURE"):
            await page.screenshot(path=kept)
        told = await page.content()

    assert PLANTED + "finish" in told


async def test_another_origin_reads_nothing(place: Place, tmp_path: Path) -> None:
    options, other_ui = ("--keys", str(place.keys)), "http://localhost:1"
    async with (
        serving(place.server.address, tmp_path, *options, REPLAN_WEB_UI_ORIGIN=other_ui) as other,
        web_ui(place, f"{other.url}/codec") as page,
    ):
        async with page.expect_event("requestfailed", lambda request: "/codec/decode" in request.url):
            await page.reload()
        await page.get_by_text("Event History").first.wait_for()
        await page.get_by_text(KEPT).first.wait_for()
        told = await page.content()
        refused = await page.evaluate(
            "url => fetch(url, {method: 'POST', body: '{}'}).then(one => one.status, error => String(error))",
            f"{other.url}/codec/decode",
        )

    assert PLANTED not in told
    assert "Failed to fetch" in refused
