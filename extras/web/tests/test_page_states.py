"""The page in every state, in a browser: who can use it, what a person is told before an act, and what it survives."""

import asyncio
import itertools
import re
import signal
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from client.client import Client
from extras.web.page.rendering import environment
from extras.web.tests import axe
from extras.web.tests.browser import Visitor, says
from extras.web.tests.serving import PATIENCE, Served, serving
from maintenance.page_pictures import TOOLS
from maintenance.scene import PAGES, play
from runtime.dev_server import DevServer, ServerSpec, find_cli, free_port
from tests.processes import Processes
from workflows.account import search_attributes
from workflows.account.task import Task
from workflows.inquiries import CallCard, ResultCard, TurnCard

if TYPE_CHECKING:  # of an extra
    from playwright.async_api import Browser

pytestmark = pytest.mark.full

OPEN_ALL = "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
LETTER = {"id": "letter", "kind": "send_letter", "args": {"to": "Ann", "text": "Hello"}}
ROOM = {
    "id": "room",
    "kind": "book_room",
    "args": {"room": "attic", "day": "2026-12-10", "at": "18:30", "seats": 12, "catering": False},
}


@pytest.fixture(scope="module")
async def office(browser: "Browser", tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Client, Served]]:
    """A Temporal server, a worker and a server of the page, where tasks are in all states."""
    folder = tmp_path_factory.mktemp("office")
    spec = ServerSpec(folder, port=free_port(), ui_port=free_port(), attributes=search_attributes.TYPES)
    async with DevServer(spec, await find_cli(lambda _: None)) as temporal:
        client = await Client.connect(temporal.address)
        with Processes(temporal.address, folder).worker("--tools", str(TOOLS), "--planner", "offline"):
            await play(client)
            async with serving(temporal.address, folder) as served:
                yield client, served


@pytest.fixture
async def visitor(browser: "Browser", office: tuple[Client, Served]) -> AsyncIterator[Visitor]:
    """Who visits the page: no page may write an error on the console, which a violation of the CSP is, too."""
    visiting = Visitor(browser, office[1].url)
    yield visiting
    assert [one for one in visiting.complaints if "404" not in one] == []  # of the unknown task


async def waiting(client: Client, *plan: Mapping[str, Any], by: str = "") -> str:
    fields = {"text": "an errand", "plan": plan, "on_escalation": "wait", "approve": "effects", "by": by}
    task = await client.start(Task.model_validate(fields), id=f"errand-{uuid.uuid4().hex[:8]}")
    async with asyncio.timeout(PATIENCE):
        while True:
            if await task.requests():
                return task.id
            await asyncio.sleep(0.1)


# Who can use it


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing(visitor: Visitor, scheme: str, width: int, pytestconfig: pytest.Config) -> None:
    """On every page and in every state, with all forms unfolded: WCAG 2.2 AA and what else axe recommends."""
    script = axe.source(pytestconfig.cache.mkdir("axe"))
    found = list[str]()
    async with visitor.page("/ui/inbox", color_scheme=scheme, viewport={"width": width, "height": 800}) as page:
        for name, path in PAGES.items():
            await page.goto(path)
            await page.evaluate(OPEN_ALL)
            found += [f"{name}: {one}" for one in await axe.violations(page, script)]

    assert found == []


@pytest.mark.parametrize("width", [320, 390])
async def test_a_phone_shows_everything(visitor: Visitor, width: int) -> None:
    of_row = "[...document.querySelectorAll('.bar nav a')].map((one) => one.getBoundingClientRect().top)"
    small = """[...document.querySelectorAll('button, .button, summary, input, select, textarea, nav a')]
        .filter((one) => one.offsetParent && one.type !== 'hidden' && !one.matches('.who button'))
        .filter((one) => { const box = one.getBoundingClientRect(); return Math.min(box.width, box.height) < 24; })
        .filter((one) => !one.closest('label.option')).map((one) => one.outerHTML.slice(0, 90))"""
    wrong = list[str]()
    async with visitor.page("/ui/inbox", viewport={"width": width, "height": 800}) as page:
        for name, path in PAGES.items():
            await page.goto(path)
            await page.evaluate(OPEN_ALL)
            wrong += [f"{name} is wide"] * await page.evaluate("document.documentElement.scrollWidth > innerWidth")
            wrong += [f"{name} has rows"] * (len(set(await page.evaluate(of_row))) > 1)
            wrong += [f"{name}: {one}" for one in await page.evaluate(small)]

    assert wrong == []


async def test_a_screen_reader_hears_the_heading_then_the_facts_then_the_answers(visitor: Visitor) -> None:
    skips = list[str]()
    async with visitor.page("/ui/inbox") as page:
        card = await page.locator("[id='chairs-114-r1']").aria_snapshot()
        for name, path in PAGES.items():
            await page.goto(path)
            levels = await page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map((one) => +one.tagName[1])")
            is_whole = levels[:1] == [1] and all(b - a < 2 for a, b in itertools.pairwise(levels))
            skips += [] if is_whole and levels.count(1) == 1 else [f"{name}: {levels}"]
    places = [card.find(words) for words in ("heading", "Stoll Chairs", "Approve", "Reject", "End the task")]

    assert -1 not in places and places == sorted(places), card
    assert skips == []


async def test_three_keys_approve(visitor: Visitor, office: tuple[Client, Served]) -> None:
    client, _ = office
    id = await waiting(client, LETTER)
    async with visitor.page(f"/ui/tasks/{id}") as page:
        await page.keyboard.press("Tab")
        shown = await page.evaluate("document.activeElement.textContent")
        await page.keyboard.press("Enter")
        at = await page.evaluate("document.activeElement.textContent")
        facts = await page.locator("article.request dl.facts").first.bounding_box()
        await page.keyboard.press("Enter")
        await says(page, "#status", "Completed")

    assert (shown, at) == ("To the first answer", "Approve")
    assert facts is not None and facts["y"] >= 0, "the card is seen that is approved"


# A form that was refused


async def test_a_refused_form_keeps_what_was_typed_while_the_page_follows_the_task(
    visitor: Visitor, office: tuple[Client, Served], pytestconfig: pytest.Config
) -> None:
    script, id = axe.source(pytestconfig.cache.mkdir("axe")), await waiting(office[0], ROOM)
    async with visitor.page(f"/ui/tasks/{id}") as page:
        await page.locator("summary", has_text="Edit").click()
        await page.locator("[name='number.seats']").fill("-5")
        await page.locator("[name='arg.room']").select_option("library")
        await page.get_by_role("button", name="Show what changes").click()
        await says(page, "[role=alert]", "seats must be")
        focused = await page.evaluate("document.activeElement.name")
        error = await page.evaluate(
            "document.getElementById(document.activeElement.getAttribute('aria-describedby')).innerText"
        )
        found = await axe.violations(page, script)
        await page.set_viewport_size({"width": 390, "height": 800})
        found += await axe.violations(page, script)
        await page.evaluate("document.activeElement.blur()")
        await page.get_by_role("link", name="seats must be").click()
        linked = await page.evaluate("document.activeElement.name")
        await page.keyboard.press("Control+a")
        await page.keyboard.type("12")
        await page.evaluate("refresh()")
        await page.evaluate("refresh()")
        kept = [await page.locator(f"[name='{name}']").input_value() for name in ("number.seats", "arg.room")]
        await page.get_by_role("button", name="Show what changes").click()
        changed = await page.locator("ins").all_inner_texts()
        found += await axe.violations(page, script)
        await page.get_by_role("button", name="Make this call").click()
        await says(page, "#status", "Completed")
    visitor.complaints[:] = [one for one in visitor.complaints if "422" not in one]  # the status of the refusal

    assert (focused, linked, found) == ("number.seats", "number.seats", [])
    assert error.startswith("seats must be at least ") and kept == ["12", '"library"'] and changed == ["library"]


async def test_an_amount_that_the_tool_forbids_is_refused_before_it_is_confirmed(
    visitor: Visitor, office: tuple[Client, Served]
) -> None:
    bill = {"payee": "Ann", "iban": "AT61 1904 3002 3457 3201", "amount": "640.50", "due": "2026-12-04"}
    id = await waiting(office[0], {"id": "bill", "kind": "pay", "args": bill})
    told = list[str]()
    async with visitor.page(f"/ui/tasks/{id}") as page:
        await page.locator("summary", has_text="Edit").click()
        for amount in ("-5", "10000.01", "much"):
            field = page.locator("[name='decimal.amount']")
            await field.fill(amount)
            await page.get_by_role("button", name="Show what changes").click()
            await page.locator("[name='decimal.amount'][aria-invalid]").wait_for()
            told.append(await page.locator(".mistake").inner_text())
            assert await field.input_value() == amount
        await page.locator("[name='decimal.amount']").fill("600.10")
        await page.get_by_role("button", name="Show what changes").click()
        changed = await page.locator("ins, del").all_inner_texts()
        await page.get_by_role("button", name="Make this call").click()
        await says(page, "#status", "Completed")
    visitor.complaints[:] = [one for one in visitor.complaints if "422" not in one]  # the status of the refusal

    assert [words.removeprefix("! ").partition(":")[0] for words in told] == [
        "amount must be more than 0.",
        "amount must be at most 10000.",
        "amount is not a number",
    ]
    assert changed == ["640.50", "600.10"]


# The inbox


async def test_many_requests_are_lines_that_open_by_keyboard(
    visitor: Visitor, office: tuple[Client, Served], pytestconfig: pytest.Config
) -> None:
    """Each line has the task and the call; only the first card is open, and the three keys approve it."""
    script = axe.source(pytestconfig.cache.mkdir("axe"))
    ids = [await waiting(office[0], LETTER, by="yan") for _ in range(11)]
    async with visitor.page("/ui/inbox?mine=true", name="yan") as page:
        lines = page.locator("details.entry")
        shown = [await lines.count(), await page.locator("details.entry[open]").count()]
        heights = [box["height"] for box in [await lines.nth(place).bounding_box() for place in (1, 10)] if box]
        text = await lines.nth(1).locator("> summary").inner_text()
        await lines.nth(1).locator("> summary").focus()
        await page.keyboard.press("Enter")
        is_open = await page.locator(f"[id='{ids[1]}-r1']").is_visible()
        await page.evaluate("refresh()")
        is_still = await page.locator(f"[id='{ids[1]}-r1']").is_visible()
        found = await axe.violations(page, script)
        await page.reload()
        told = await page.locator(".keys").inner_text()
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        at = await page.evaluate("document.activeElement.closest('article').id + document.activeElement.textContent")
        card = await page.locator(f"[id='{ids[0]}-r1'] dl.facts").bounding_box()
        await page.keyboard.press("Enter")
        await says(page, "#said", f"Your answer to {ids[0]}: approve.")
        await page.goto("/ui/inbox?mine=true")
        left = [await page.locator("details.entry").count(), await page.locator("article.request").count()]
    for id in ids[1:]:
        await (await office[0].task(id)).cancel()

    assert shown == [11, 1] and max(heights) < 60
    assert "an errand" in text and "send_letter to Ann, text Hello" in text
    assert (is_open, is_still, found, left) == (True, True, [], [0, 10])
    assert at == f"{ids[0]}-r1Approve" and "first answer" in told
    assert card is not None and card["y"] >= 0, "the card is seen that is approved"


SEEN = """
window.seen = [];
window.Notification = class extends Notification {
  constructor(title, how) {
    super(title, how);
    this.addEventListener("show", () => window.seen.push(`${title}: ${how.body}`));
  }
};
// The driver of the browser keeps each page visible; this one is told that it is not.
Object.defineProperty(document, "hidden", { get: () => true });
"""
"""Notes each notification that the browser has really shown, on a page that nobody looks at."""


async def test_the_browser_notifies_if_a_person_has_turned_it_on(
    visitor: Visitor, office: tuple[Client, Served]
) -> None:
    async with visitor.page("/login", permissions=["notifications"]) as page:
        await page.add_init_script(SEEN)
        await page.goto("/ui/inbox")
        before = int(await page.locator("#live").get_attribute("data-count") or 0)
        ids = [await waiting(office[0], LETTER)]
        await page.reload()
        button = page.locator("#notify")
        states, unasked = [await button.inner_text()], await page.evaluate("seen")
        await button.click()
        states.append(await button.inner_text())
        ids.append(await waiting(office[0], LETTER))
        async with asyncio.timeout(PATIENCE):
            while not (told := await page.evaluate("seen")):
                await asyncio.sleep(0.2)
        await button.click()
        states.append(await button.inner_text())
        ids.append(await waiting(office[0], LETTER))
        await page.evaluate("refresh()")
        await page.locator(f"[id='{ids[-1]}-r1']").wait_for()
        after = await page.evaluate("seen")
    for id in ids:
        await (await office[0].task(id)).cancel()

    assert states == ["Notify me in this browser", "Stop notifying me", "Notify me in this browser"]
    assert (unasked, told, after) == ([], [f"Replan: {before + 2} requests wait for a person"], told)


async def test_tasks_with_one_cause_are_one_card(visitor: Visitor) -> None:
    async with visitor.page("/ui/inbox") as page:
        title, count = await page.title(), await page.locator("#count").inner_text()
        card = page.locator("article.incident")
        heading = await card.locator("h2").inner_text()
        listed = await card.locator("li a").count()
        of_tasks = await page.locator("[id^='check-']").count()
        action = await card.locator("form").get_attribute("action")
        await page.get_by_label("What was repaired").fill("a new key")

    assert (title, count) == (
        "(5) Inbox - Replan",
        "5 requests are waiting for a person, from 7 tasks. The longest wait is first.",
    )
    assert heading == "look_up_company/unauthorized: 3 tasks wait for one repair"
    assert (listed, of_tasks, action) == (3, 0, "/ui/incidents/look_up_company%2Funauthorized/resolve")


async def test_a_filter_shows_one_kind_and_the_other_filters(visitor: Visitor) -> None:
    async with visitor.page("/ui/inbox") as page:
        await page.get_by_role("link", name=re.compile("^question")).click()
        await page.wait_for_url("**kind=question*")
        shown = await page.locator("article").evaluate_all("all => all.map((one) => one.id)")
        await page.goto("/ui/inbox?kind=budget")
        empty = await page.locator("#empty").inner_text()

    assert shown == ["room-thursday-r1"]
    assert "Show all 5" in empty


async def test_times_are_local_with_the_exact_one_in_the_title(visitor: Visitor) -> None:
    """With a script in the zone of the reader, without one in UTC."""
    texts = list[str]()
    for settings in ({"timezone_id": "Asia/Kolkata", "locale": "en-GB"}, {"java_script_enabled": False}):
        async with visitor.page("/ui/tasks/chairs-114", **settings) as page:
            element = page.locator("time[data-as=moment]").first
            texts += [await element.inner_text(), str(await element.get_attribute("title"))]

    assert re.fullmatch(r"\d\d:\d\d|\d+ \w+ \d{4}, \d\d:\d\d", texts[0])
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", texts[2])
    assert texts[1] == texts[3] and re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", texts[1])


async def test_an_argument_has_the_field_of_its_type(visitor: Visitor, office: tuple[Client, Served]) -> None:
    id = await waiting(office[0], ROOM)
    async with visitor.page(f"/ui/tasks/{id}") as page:
        await page.locator("summary", has_text="Edit").click()
        fields = await page.locator("details[open] form [name*='.']").evaluate_all(
            "all => all.map((one) => `${one.name} ${one.tagName} ${one.type} ${one.value}`)"
        )
        await page.locator("[name='arg.room']").select_option("library")
        await page.locator("[name='text.day']").fill("2026-12-11")
        await page.locator("[name='number.seats']").fill("20")
        await page.locator("[name='arg.catering']").select_option("yes")
        await page.get_by_role("button", name="Show what changes").click()
        changed = await page.locator("ins").all_inner_texts()
        await page.get_by_role("button", name="Make this call").click()
        await says(page, "#status", "Completed")

    assert fields == [
        'arg.room SELECT select-one "attic"',
        "text.day INPUT date 2026-12-10",
        "text.at INPUT time 18:30",
        "number.seats INPUT text 12",
        "arg.catering SELECT select-one false",
    ]
    assert changed == ["library", "2026-12-11", "20", "true"]


async def test_the_first_answer_to_several_calls_says_which_it_approves(
    visitor: Visitor, office: tuple[Client, Served]
) -> None:
    id = await waiting(office[0], LETTER, {**LETTER, "id": "other", "args": {"to": "Bo", "text": "Hello"}})
    async with visitor.page(f"/ui/tasks/{id}") as page:
        names = await page.locator("article.request button").all_inner_texts()
        headings = await page.locator("dl.facts dt", has_text="Call of the step").all_inner_texts()
        first = headings[0].rpartition(" ")[2]
        await page.get_by_role("button", name=f"Approve only {first}").click()
        await page.locator("article.answered").wait_for()
        calls = await page.locator("article.answered .call").all_inner_texts()
        last = page.get_by_role("button", name="Approve", exact=True)
        await last.click()
        await says(page, "#status", "Completed")

    assert names[:2] == [f"Approve only {first}", "Approve all calls"] and len(headings) == 2
    assert len(calls) == 1 and ("Ann" in calls[0]) == (first == "letter")


# Before an act


async def test_an_end_is_asked_again_by_name(visitor: Visitor, office: tuple[Client, Served]) -> None:
    """Without scripts, too: what stops and what it changed are named, and nothing happens before the second yes."""
    id = await waiting(
        office[0], {**ROOM, "kind": "read_invoice", "args": {"number": "1"}}, {**LETTER, "needs": ["room"]}
    )
    async with visitor.page(f"/ui/tasks/{id}", java_script_enabled=False) as page:
        await page.locator("summary", has_text="End the task").click()
        await page.locator("details[open] textarea").fill("not needed")
        await page.get_by_role("button", name="Show what stops").click()
        asked = await page.locator("main").inner_text()
        before = (await (await office[0].task(id)).outcome()).ended_at
        await page.get_by_role("button", name="End the task").click()
        await page.wait_for_url(f"**/ui/tasks/{id}#r1")
    outcome = await (await office[0].task(id)).outcome()

    assert "letter" in asked and "waits: it is given up" in asked
    assert before is None and (outcome.status, outcome.requests[0].answer and outcome.requests[0].answer.text) == (
        "failed",
        "not needed",
    )


async def test_a_cancel_says_what_stops_and_what_stays(visitor: Visitor) -> None:
    async with visitor.page("/ui/tasks/archive-stoll") as page:
        await page.get_by_role("link", name="Cancel the task").click()
        text = await page.locator("main").inner_text()
        await page.get_by_role("link", name="Back, change nothing").click()
        await says(page, "#status", "Running")

    assert re.search(r"search search_archive .* runs: its call is cancelled", text)
    assert re.search(r"letter send_letter .* is not begun", text)
    assert re.search(r"room book_room .*applied.*cancel_room can undo it", text, re.DOTALL)


async def test_an_undo_shows_its_calls_and_the_task_says_it_was_undone(
    visitor: Visitor, office: tuple[Client, Served]
) -> None:
    id = await waiting(office[0], ROOM)
    async with visitor.page(f"/ui/tasks/{id}", java_script_enabled=False) as page:
        await page.get_by_role("button", name="Approve").click()
        await (await office[0].task(id)).result()
        await page.goto(f"/ui/tasks/{id}")
        await page.get_by_role("link", name="Undo what it did").click()
        calls = await page.locator("main").inner_text()
        await page.get_by_role("button", name="Undo what it did").click()
        await says(page, "h1", "Everything is undone")
        await page.goto(f"/ui/tasks/{id}")
        undone, effects = [await page.locator(one).inner_text() for one in ("#undone", "#effects")]

    assert "cancel_room undoes room" in calls and "41" in calls
    assert "It was undone: room." in undone
    assert re.search(r"room book_room .*undone.*by cancel_room", effects, re.DOTALL)


async def test_the_address_of_a_form_shows_the_task(office: tuple[Client, Served]) -> None:
    """Opened after an answer, e.g. by going back or from the list of visited pages."""
    forms = {
        **{
            f"tasks/chairs-114/{form}": "tasks/chairs-114"
            for form in ("requests/r1/approve", "extend", "requests/r1/abort")
        },
        "incidents/a%2Fb/resolve": "incidents",
    }
    async with office[1].visit() as visiting:
        shown = {path: await visiting.get(f"/ui/{path}", follow_redirects=True) for path in forms}

    assert {path: (one.status_code, one.url.path) for path, one in shown.items()} == {
        path: (200, f"/ui/{there}") for path, there in forms.items()
    }


# One task


async def test_the_timeline_says_in_words_what_it_draws(visitor: Visitor) -> None:
    async with visitor.page("/ui/tasks/chairs-114", java_script_enabled=False) as page:
        lanes = await page.locator("#timeline li").evaluate_all("all => all.map((one) => one.textContent)")
        bars = await page.locator("#timeline ol rect").evaluate_all(
            "all => all.map((one) => one.getAttribute('class'))"
        )
        faults = await page.locator("#faults").inner_text()
    words = [" ".join(lane.split()) for lane in lanes]

    assert [lane.split(" ")[0] for lane in words] == ["planner", "invoice", "a"]
    assert "begins" in words[1] and "waits for an answer" in words[2]
    assert "earlier" in bars and "person" in bars
    assert "unreachable" in faults and "needs approval" not in faults


async def test_why_hangs_behind_its_number(visitor: Visitor) -> None:
    """The second line of a sentence begins where its first does, and so do the sentences that belong to it."""
    left = "all => all.map((one) => Math.round(one.getBoundingClientRect().left))"
    async with visitor.page("/ui/tasks/room-friday/explain", viewport={"width": 390, "height": 800}) as page:
        numbered = await page.locator(".why:has(.lead) > span:last-child").evaluate_all(left)
        deep = await page.locator(".why.deep > span").evaluate_all(left)

    assert len({*numbered, *deep}) == 1, (numbered, deep)


# What it survives


async def test_an_open_page_survives_a_restart_of_the_server(
    browser: "Browser", office: tuple[Client, Served], tmp_path: Path
) -> None:
    """It says that the server is away, and later shows what happened meanwhile, without being loaded again."""
    client, _ = office
    id, port = await waiting(client, LETTER), free_port()
    address = client.temporal.service_client.config.target_host
    visiting = Visitor(browser, f"http://127.0.0.1:{port}")
    async with serving(address, tmp_path, port=port) as served, visiting.page(f"/ui/tasks/{id}") as page:
        await says(page, "#status", "Waiting")
        await served.end(signal.SIGKILL)
        await says(page, "#link", "The server does not answer.")
        task = await client.task(id)
        await task.answer("approve", request=(await task.requests())[0])
        async with serving(address, tmp_path, port=port):
            await says(page, "#link", "The server answers again")
            await says(page, "#status", "Completed")


async def test_an_open_page_survives_a_restart_of_the_worker(
    browser: "Browser", server: DevServer, tmp_path: Path
) -> None:
    queue = f"page-{uuid.uuid4().hex[:8]}"
    client, options = await Client.connect(server.address, queue=queue), ("--tools", str(TOOLS), "--queue", queue)
    processes = Processes(server.address, tmp_path)
    async with serving(server.address, tmp_path, "--queue", queue) as served:
        visiting = Visitor(browser, served.url)
        with processes.worker(*options) as worker:
            id = await waiting(client, LETTER)
            async with visiting.page(f"/ui/tasks/{id}") as page:
                await says(page, "#status", "Waiting")
                worker.kill()
                await says(page, "#no-worker", "No worker answers now.")
                with processes.worker(*options):
                    await page.locator("#no-worker").wait_for(state="detached")
                    await page.get_by_role("button", name="Approve").click()
                    await says(page, "#status", "Completed")


async def test_without_the_temporal_server_a_page_answers_soon_and_comes_back_by_itself(
    browser: "Browser", tmp_path: Path
) -> None:
    spec = ServerSpec(tmp_path, port=free_port(), ui_port=free_port(), attributes=search_attributes.TYPES)
    cli, took = await find_cli(lambda _: None), list[float]()
    async with DevServer(spec, cli) as temporal:
        address = temporal.address
        process = serving(address, tmp_path)
        served = await process.__aenter__()
    try:
        async with served.visit() as visiting:
            for path in ("/ui/inbox", "/ui/tasks/some-task", "/ui/tasks", "/ui/incidents"):
                began = time.monotonic()
                response = await visiting.get(path)
                took.append(time.monotonic() - began)
                assert response.status_code == 503 and "The server does not answer" in response.text, response.text
        visit = Visitor(browser, served.url)
        async with visit.page("/ui/inbox") as page:
            await says(page, "h1", "The server does not answer")
            way_back = await page.get_by_role("link", name="To the inbox").count()
            async with DevServer(spec, cli):
                await says(page, "h1", "Inbox")
    finally:
        await process.__aexit__(None, None, None)

    assert way_back == 1 and max(took) < 2, took


async def test_a_transcript_shows_what_a_model_was_told_and_made_harmless(office: tuple[Client, Served]) -> None:
    said = TurnCard(
        turn=1,
        task="run",
        planner="model",
        at=datetime(2026, 11, 26, tzinfo=UTC),
        told="Pay <b>Ann</b>",
        said="I pay.",
        calls=(CallCard(id="c1", name="pay", args={"amount": 3}),),
        tokens=1200,
    )
    result = ResultCard(call_id="c1", text="\x1b[31m<script>", is_error=True)
    later = said.model_copy(update={"turn": 2, "told": "", "calls": (), "results": (result,)})
    known: dict[str, Any] = {"visitor": None, "has_token": False, "path": "/", "tab": "transcript", "tabs": []}
    turns = {"turns": [said, later], "names": {"c1": "pay"}, "totals": "2 turns", "is_cut": False, "places": ()}
    fields = {"id": "t", **turns, **known}
    page = environment().get_template("transcript.html").render(**fields)
    async with office[1].visit() as visiting:
        nothing = await visiting.get("/ui/tasks/chairs-114/transcript")

    assert "Pay &lt;b&gt;Ann" in page and "1,200 tokens" in page and "amount" in page
    assert "<bdi>pay</bdi> failed" in page and "&lt;script&gt;" in page and "\x1b" not in page
    assert (nothing.status_code, "No conversation yet" in nothing.text) == (200, True)


async def test_that_no_worker_runs_is_said_once(office: tuple[Client, Served], tmp_path: Path) -> None:
    """Above the cards, however many wait, and no card has an alarm of its own."""
    client, _ = office
    address, queue = client.temporal.service_client.config.target_host, f"away-{uuid.uuid4().hex[:8]}"
    away = await Client.connect(address, queue=queue)
    with Processes(address, tmp_path).worker("--tools", str(TOOLS), "--planner", "offline", "--queue", queue):
        ids = [await waiting(away, LETTER) for _ in range(3)]
    async with serving(address, tmp_path, "--queue", queue) as served, served.visit() as visiting:
        page = (await visiting.get("/ui/inbox")).text
    for id in ids:
        await away.temporal.get_workflow_handle(id).terminate()

    assert page.count(f"No worker answers on queue <bdi>{queue}</bdi>") == 1
    assert page.count("as soon as a worker tells it") == 3 and 'role="alert"' not in page
