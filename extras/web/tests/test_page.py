"""The page in a browser, with a worker and a server: what people do on it, and what texts of the world cannot do."""

import asyncio
import re
import secrets
import unicodedata
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from pydantic import BaseModel
from temporalio.client import Client
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.runtime import MetricBuffer, Runtime, TelemetryConfig

from activities.inspection import Host, Inspector
from activities.storage.store import open_store, sqlite_url
from activities.storage.vault import Vault
from activities.toolbox.declare.kind import Kind
from activities.toolbox.registry import Registry
from client.client import Client as Replan
from client.tasks import TASK_MEMO
from console.serving.access import Access
from evals.fakes.script import ModelReply, Streamed
from extras.web.app import make_app
from extras.web.tests.browser import Visitor, says
from extras.web.tests.serving import TOKEN, serving
from replan import tool
from runtime.client import connect
from runtime.dev_server import DevServer, ServerSpec, find_cli, free_port
from runtime.payloads import DATA_CONVERTER
from tests.harness import Stage, plan, staged, step
from tests.providers.acting import acting, reacting
from workflows.account import search_attributes
from workflows.account.task import Task
from workflows.agent import REQUEST_MEMO, AgentWorkflow
from workflows.people.requests import Choice, HumanRequest, RequestKind
from workflows.planning.situation import Situation
from workflows.plans.proposal import Answer, NewSteps

if TYPE_CHECKING:  # of an extra
    from playwright.async_api import Browser, Page

pytestmark = pytest.mark.full

HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(2)> \x1b[31mred\x1b[0m \u202egnp.exe "
    "[click](javascript:alert(3)) https://evil.example/x " + "W" * 200
)
LINES = "\nfirst\n\n  third, \u00e9\n"
"""A text whose empty lines and spaces a form could lose."""
OPEN, OF_PAGE = 500, 25


class Note(BaseModel):
    text: str


@tool.idempotent
async def write(args: Note) -> Note:
    """Write a note."""
    return args


class Writer:
    name = "writer"

    async def propose(self, situation: Situation, kinds: Mapping[str, Kind]) -> NewSteps | Answer:
        if not situation.records:
            text = LINES if situation.text == "lines" else situation.text
            return plan(step("note", "write", text=text), because=situation.text[:200])
        result: Any = situation.records[-1].result
        return Answer(result=result["text"] if isinstance(result, dict) else "written")


@pytest.fixture(scope="module")
async def stage(browser: "Browser", client: Client, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """A worker that writes notes; only where there is a browser."""
    folder = tmp_path_factory.mktemp("worker")
    engine = await open_store(sqlite_url(folder))
    host = Host(engine, {}, {}, "1.2.3")
    inspector = Inspector(Registry([write]), Writer.name, host, Vault(engine), [engine])
    async with staged(client, folder, [write], Writer(), extra=[inspector.inspect]) as running:
        yield running
    await engine.dispose()


@pytest.fixture(scope="module")
async def url(server: DevServer, stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    async with serving(server.address, tmp_path_factory.mktemp("serve"), "--queue", stage.queue) as served:
        yield served.url


@pytest.fixture
async def visitor(browser: "Browser", url: str) -> AsyncIterator[Visitor]:
    """Who visits the page: no page may write an error on the console, which a violation of the CSP is, too."""
    visiting = Visitor(browser, url)
    yield visiting
    assert visiting.complaints == []


async def waiting(stage: Stage, text: str) -> str:
    handle = await stage.start(Task.model_validate({"text": text, "on_escalation": "wait", "approve": "effects"}))
    async with asyncio.timeout(30):
        while not (await handle.query(AgentWorkflow.progress)).open_requests:
            await asyncio.sleep(0.05)
    return handle.id


async def test_a_person_starts_edits_and_approves_without_a_reload(visitor: Visitor) -> None:
    async with visitor.page("/ui/new") as page:
        await page.get_by_label("What is to be done").fill("buy milk")
        await page.get_by_label("Who approves calls").select_option("effects")
        await page.get_by_role("button", name="Start").click()
        await says(page, "#status", "Waiting")
        await page.locator("summary", has_text="Edit").click()
        await page.locator("[name='text.text']").fill("buy bread")
        await page.get_by_role("button", name="Show what changes").click()
        changed = [await page.locator(one).inner_text() for one in ("del", "ins")]
        await page.get_by_role("button", name="Make this call").click()
        await says(page, "#status", "Completed")

        assert changed == ["buy milk", "buy bread"]
        assert "buy bread" in await page.locator("#result").inner_text()


async def test_an_open_page_sees_what_another_person_does(visitor: Visitor, stage: Stage) -> None:
    """One person approves, and the page of another shows the end without being loaded again."""
    id = await waiting(stage, "shared")
    async with visitor.page(f"/ui/tasks/{id}") as watching, visitor.page(f"/ui/tasks/{id}", name="ann") as acting:
        await says(watching, "#status", "Waiting")
        await acting.get_by_role("button", name="Approve").click()
        await says(watching, "#status", "Completed")

        assert "ann answered approve" in await watching.locator("#r1").inner_text()


async def test_a_card_that_another_person_answers_moves_no_button_under_the_pointer(
    visitor: Visitor, stage: Stage
) -> None:
    """It stays where it was, says so, and cannot be used; the card below keeps its place."""
    first, second = await waiting(stage, "pay ann"), await waiting(stage, "pay bea")
    async with visitor.page("/ui/inbox") as watching, visitor.page(f"/ui/tasks/{first}", name="ann") as acting:
        below = watching.locator(f"[id='{second}-r1']")
        before = await below.bounding_box()
        await acting.get_by_role("button", name="Approve").click()
        await says(watching, f"[id='{first}-r1']", "This is answered, or waits no longer.")
        after = await below.bounding_box()
        is_inert = await watching.locator(f"[id='{first}-r1']").evaluate("card => card.inert")
        await watching.reload()
        left = await watching.locator(f"[id='{first}-r1']").count()

    assert before is not None and after is not None
    assert abs(after["y"] - before["y"]) < 60, "by no more than the line that says so"
    assert (is_inert, left) == (True, 0)


async def test_of_two_answers_at_once_one_wins_and_the_other_reads_whose(visitor: Visitor, stage: Stage) -> None:
    id = await waiting(stage, "race")
    async with visitor.page(f"/ui/tasks/{id}", name="ann") as ann, visitor.page(f"/ui/tasks/{id}", name="bob") as bob:
        buttons = [one.get_by_role("button", name="Approve") for one in (ann, bob)]
        await asyncio.gather(*(button.click() for button in buttons))
        await asyncio.gather(*(says(page, "#status", "Completed") for page in (ann, bob)))
        lost = [await page.locator("p.wrong").all_inner_texts() for page in (ann, bob)]
        loser, winner = (ann, "bob") if lost[0] else (bob, "ann")
        told = await loser.locator("#r1").inner_text()
        visitor.complaints[:] = [one for one in visitor.complaints if "409" not in one]  # the status of the refusal

        assert sum(map(len, lost)) == 1, lost
        assert f"{winner} answered approve" in told


async def test_a_link_to_a_request_survives_the_sign_in(
    browser: "Browser", server: DevServer, stage: Stage, tmp_path: Path
) -> None:
    id = await waiting(stage, "linked")
    async with (
        serving(server.address, tmp_path, "--queue", stage.queue, token=TOKEN) as served,
        Visitor(browser, served.url).page(f"/ui/tasks/{id}#r1") as page,
    ):
        await page.get_by_label("Your name").fill("ann")
        await page.get_by_label("Token").fill(TOKEN)
        await page.get_by_role("button", name="Sign in").click()
        await page.wait_for_url(f"**/ui/tasks/{id}#r1")
        await page.get_by_role("button", name="Approve").click()
        await says(page, "#status", "Completed")

        assert "ann answered approve" in await page.locator("#r1").inner_text()


async def test_after_a_refusal_an_ended_task_has_the_buttons_of_its_end(visitor: Visitor, stage: Stage) -> None:
    id = await waiting(stage, "refused")
    async with visitor.page(f"/ui/tasks/{id}") as page:
        await page.locator("#acts").get_by_label("Tool calls").fill("none")
        await page.get_by_role("button", name="Raise the limits").click()
        await says(page, "p.wrong", "Tool calls must be a whole number")
        await stage.client.get_workflow_handle(id).cancel()
        await says(page, "#acts", "nothing is left that could be undone")

        assert await page.get_by_role("link", name="Undo what it did").count() == 0
        assert await page.get_by_role("link", name="Cancel the task").count() == 0
        assert await page.locator("p.wrong").count() == 1
    visitor.complaints[:] = [one for one in visitor.complaints if "422" not in one]  # the status of the refusal


async def test_an_argument_of_many_lines_survives_the_form(visitor: Visitor, stage: Stage) -> None:
    """Line breaks and spaces at its ends, too, are in the call as they were, with only what the person changed."""
    id = await waiting(stage, "lines")
    async with visitor.page(f"/ui/tasks/{id}") as page:
        await page.locator("summary", has_text="Edit").click()
        field = page.locator("[name='text.text']")
        shown = await field.input_value()
        await field.fill(f"{shown}last")
        await page.get_by_role("button", name="Show what changes").click()
        await page.get_by_role("button", name="Make this call").click()
        await says(page, "#status", "Completed")
    done = await stage.client.get_workflow_handle_for(AgentWorkflow.run, id).result()

    assert shown == LINES
    assert done.result == f"{LINES}last"


async def test_what_a_person_is_typing_stays(visitor: Visitor, stage: Stage) -> None:
    id = await waiting(stage, "typing")
    async with visitor.page(f"/ui/tasks/{id}") as page:
        await page.locator("summary", has_text="Reject").click()
        await page.locator("[name=reason]").first.press_sequentially("not ")
        before = await page.locator("#status").inner_text()
        await asyncio.sleep(1.1)  # the age in the headline changes
        await page.evaluate("refresh()")
        await page.keyboard.type("now")

        assert await page.locator("#status").inner_text() != before
        assert await page.locator("[name=reason]").first.input_value() == "not now"


async def test_the_page_works_without_scripts(visitor: Visitor, stage: Stage) -> None:
    """Each form is a plain form: a browser without JavaScript answers, and sees the end after a reload."""
    id = await waiting(stage, "plain")
    async with visitor.page("/ui/inbox", java_script_enabled=False) as page:
        card = page.locator(f"[id='{id}-r1']")
        await card.get_by_role("button", name="Approve").click()
        await says(page, "#said", id)
        await stage.client.get_workflow_handle_for(AgentWorkflow.run, id).result()
        await page.goto(f"/ui/tasks/{id}")

        assert "Completed" in await page.locator("#status").inner_text()


def paths(id: str) -> Sequence[str]:
    of_task = f"/ui/tasks/{id}"
    return ["/ui/inbox", of_task, f"{of_task}/effects", f"{of_task}/explain", "/ui/tasks", "/ui/incidents", "/ui/new"]


async def test_hostile_texts_do_nothing_on_a_phone(visitor: Visitor, stage: Stage) -> None:
    """Text of a task, an argument and a result make no element and no link, and show no control character.

    At 400 pixels no page scrolls sideways, also with words that are longer than a line, and a screen reader names every
    field of every form.
    """
    fields = "[...document.querySelectorAll('input:not([type=hidden]), textarea, select')]"
    looks = {
        "is wide": "document.documentElement.scrollWidth > innerWidth",
        "has a field without a label": f"{fields}.some((one) => !one.labels.length)",
    }
    id = await waiting(stage, HOSTILE)
    found = list[str]()
    async with visitor.page("/ui/inbox", viewport={"width": 400, "height": 800}) as page:
        for is_done in (False, True):
            if is_done:
                await page.goto(f"/ui/tasks/{id}")
                await page.get_by_role("button", name="Approve").click()
                await says(page, "#status", "Completed")
            for path in (*paths(id), "/login", "/ui/tasks/unknown-id"):
                await page.goto(path)
                found += [f"{path}: {one}" for one in await _made_of_data(page) if path in paths(id)]
                await page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
                found += [f"{path} {what}" for what, looked in looks.items() if await page.evaluate(looked)]
    visitor.complaints[:] = [one for one in visitor.complaints if "404" not in one]  # of the unknown id

    assert found == []


async def _made_of_data(page: "Page") -> list[str]:
    """Elements that only a text of the world can have made, and characters that no text may show."""
    wrong = await page.locator("main img, main script, a[href*='evil'], a[href^='javascript']").count()
    text = await page.locator("body").inner_text()
    hidden = {f"{ord(one):04x}" for one in text if unicodedata.category(one) in ("Cc", "Cf") and one not in "\n\t"}
    return [*([f"{wrong} elements"] if wrong else []), *hidden]


async def test_without_a_worker_the_history_is_shown(
    visitor: Visitor, stage: Stage, client: Client, tmp_path: Path
) -> None:
    async with staged(client, tmp_path, [write], Writer()) as gone:
        id = await waiting(gone, "alone")
        gone.started.clear()  # its end is not waited for
    async with visitor.page(f"/ui/tasks/{id}") as page:
        silent = await page.locator("#no-worker").inner_text()
        lines = await page.locator("#live").inner_text()
    await client.get_workflow_handle(id).terminate()

    assert "No worker answers now." in silent
    assert "write" in lines and "alone" in lines


# Many requests


class Crowd:
    """A server of its own where many tasks wait, which no worker serves."""

    def __init__(self, address: str, order: Sequence[str]) -> None:
        self.address, self.order = address, order


@pytest.fixture(scope="module")
async def crowd(browser: "Browser", tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Crowd]:
    folder = tmp_path_factory.mktemp("crowd")
    spec = ServerSpec(folder, port=free_port(), ui_port=free_port(), attributes=search_attributes.TYPES)
    async with DevServer(spec, await find_cli(lambda _: None)) as running:
        client = await connect(address=running.address, plain=True)
        now, limit = datetime.now(UTC), asyncio.Semaphore(20)
        order = [f"{number:03}-{secrets.token_hex(2)}" for number in range(OPEN)]
        status = TypedSearchAttributes([SearchAttributePair(search_attributes.STATUS, "waiting")])

        async def start(number: int, id: str) -> None:
            since = now - timedelta(hours=24) + timedelta(seconds=number)
            asked = HumanRequest(
                id="r1",
                kind=RequestKind.QUESTION,
                code="question",
                reason=f"Which one of {number}?",
                since=since,
                until=now + timedelta(days=1),
                choices=(Choice.REPLY, Choice.ABORT),
            )
            memo = {TASK_MEMO: f"task {id}", REQUEST_MEMO: asked}
            async with limit:
                await client.start_workflow(
                    AgentWorkflow.run, Task(text="x"), id=id, task_queue="nobody", memo=memo, search_attributes=status
                )

        mixed = sorted(enumerate(order), key=lambda one: one[1][-4:])
        await asyncio.gather(*(start(number, id) for number, id in mixed))
        async with asyncio.timeout(30):
            while (await client.count_workflows("ReplanStatus = 'waiting'")).count < OPEN:
                await asyncio.sleep(0.1)
        yield Crowd(running.address, order)


async def test_an_inbox_of_500_has_pages_oldest_first(browser: "Browser", crowd: Crowd, tmp_path: Path) -> None:
    seen = list[str]()
    async with serving(crowd.address, tmp_path, "--queue", "nobody") as served:
        visiting = Visitor(browser, served.url)
        async with visiting.page("/ui/inbox") as page:
            count = await page.locator("#count").inner_text()
            for number in range(2, OPEN // OF_PAGE + 2):
                ids = await page.locator("article.request").evaluate_all("all => all.map((one) => one.id)")
                assert len(ids) == OF_PAGE
                seen += [id.removesuffix("-r1") for id in ids]
                if number <= OPEN // OF_PAGE:
                    await page.get_by_role("link", name="Shorter waits").click()
                    await page.wait_for_url(f"**page={number}")

    assert re.match(rf"{OPEN} requests are waiting for a person", count) and visiting.complaints == []
    assert seen == crowd.order


async def test_an_inbox_is_one_query_however_many_wait(crowd: Crowd) -> None:
    buffer = MetricBuffer(10_000)
    runtime = Runtime(telemetry=TelemetryConfig(metrics=buffer))
    asking = await Client.connect(crowd.address, data_converter=DATA_CONVERTER, runtime=runtime)
    transport = httpx2.ASGITransport(make_app(Replan(asking, queue="nobody"), Access(None, None), max_streams=1))
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as visiting:
        buffer.retrieve_updates()
        page = await visiting.get("/ui/inbox?page=7")
    asked = [
        one.attributes["operation"]
        for one in buffer.retrieve_updates()
        if one.metric.name == "temporal_request" and "operation" in one.attributes
    ]

    assert page.text.count("<article") == OF_PAGE
    # The connection itself asks for the last one, which may be counted late.
    assert [one for one in asked if one != "GetSystemInfo"] == ["ListWorkflowExecutions", "DescribeTaskQueue"]


# What a model says, while it says it

SAID = "\u202eRome <img src=x onerror=alert(1)> is warm. " + "And so on. " * 12
"""Words that would turn others around, and that a page could take for its own."""


async def test_the_words_of_a_model_are_shown_as_text_and_go_when_they_are_complete(
    browser: "Browser", client: Client, server: DevServer, tmp_path: Path
) -> None:
    async with (
        acting(client, tmp_path, "openai", Streamed(ModelReply(text=SAID), pause=0.08)) as act,
        serving(server.address, tmp_path, "--queue", act.stage.queue) as served,
    ):
        handle = await act.stage.start(reacting())
        visitor = Visitor(browser, served.url)
        async with visitor.page(f"/ui/tasks/{handle.id}") as page:
            await page.locator("#words p.said-now", has_text="onerror=alert(1)> is warm.").wait_for()
            shown = await page.locator("#words").inner_text()
            images = await page.locator("#words img").count()
            await page.locator("#result").wait_for()
            left = await page.locator("#words").count()

    assert shown.startswith("The model says") and "unfinished" in shown and "\u202e" not in shown
    assert (images, left, visitor.complaints) == (0, 0, [])
