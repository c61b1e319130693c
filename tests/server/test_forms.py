"""The forms of the page, sent as a browser without scripts sends them."""

import asyncio
import re
from collections.abc import Mapping
from urllib.parse import quote

import httpx2
import pytest
from pydantic import JsonValue

from server.page.answers import _form_values
from tests.gate import sampled
from tests.server.serving import asked, path_of, standing, started
from workflows.people.requests import Choice


def form_of(id: str, request: str, choice: str) -> str:
    """The path that the form of an answer is sent to."""
    return f"/ui{path_of(id, 'requests', request, choice)}"


EDITS: Mapping[str, tuple[dict[str, str], int, str]] = {
    "another call": ({"arg.amount": "600", "call": "0000"}, 409, "The call is another one than the page showed"),
    "no call": ({"arg.amount": "600"}, 409, "The call is another one than the page showed"),
    "nothing changed": ({"arg.amount": "920"}, 422, "No argument was changed"),
    "no JSON": ({"arg.amount": "six"}, 422, "amount is not JSON"),
}


@pytest.mark.parametrize("case", sampled({one: [one] for one in EDITS}, "another call", "no JSON"))
async def test_an_edit_that_cannot_be_confirmed_changes_nothing(program: httpx2.AsyncClient, case: str) -> None:
    """The page of the task says why, and the request stays open."""
    fields, status, reason = EDITS[case]
    id = await started(program, 920)
    request = await asked(program, id)
    form = {"call": request["call"]["code"], **fields} if case not in ("no call",) else fields
    response = await program.post(form_of(id, request["id"], "edit"), data=form)
    after = (await standing(program, id, "waiting"))["requests"]
    await program.post(path_of(id, "cancel"))

    assert (response.status_code, reason in response.text) == (status, True), response.text
    assert [one.get("answer") for one in after] == [None]


async def test_an_edit_is_shown_and_then_made(program: httpx2.AsyncClient) -> None:
    """The first form leads to a page with the difference, and only the second one makes the call."""
    id = await started(program, 921)
    request = await asked(program, id)
    form = {"arg.amount": "622", "call": request["call"]["code"], "from": "inbox"}
    shown = await program.post(form_of(id, request["id"], "edit"), data=form)
    is_open = (await standing(program, id, "waiting"))["requests"][0].get("answer") is None
    done = await program.post(form_of(id, request["id"], "edit"), data={**form, "confirmed": "yes"})
    document = await standing(program, id, "completed")

    assert (shown.status_code, is_open, done.status_code) == (200, True, 303)
    assert "<del>921</del>" in shown.text and "<ins>622</ins>" in shown.text
    assert '<input type="hidden" name="from" value="inbox">' in shown.text
    assert done.headers["location"].startswith("/ui/inbox?") and done.headers["location"].endswith("&choice=edit")
    assert document["steps"][0]["result"] == {"id": 622}


def test_what_is_written_counts_beside_an_option() -> None:
    """Who chooses an option and writes other words means the words; an option alone is the answer."""
    written = _form_values(Choice.REPLY, {"option": "Bo", "text": "No, ask Cyd"})
    chosen = _form_values(Choice.REPLY, {"option": "Bo", "text": " "})

    assert (written, chosen) == ({"text": "No, ask Cyd"}, {"text": "Bo"})


async def test_an_undo_is_shown_and_then_made(program: httpx2.AsyncClient) -> None:
    """The page has the call that needs an approval with its arguments, and a form that makes exactly that call."""
    id = await started(program, plan=[{"id": "p1", "kind": "reserve", "args": {"amount": 947}}])
    await standing(program, id, "completed")
    shown = (await program.post(f"/ui{path_of(id, 'undo')}")).text
    [code] = re.findall(r'name="confirm" value="(\w{12})"', shown)
    done = (await program.post(f"/ui{path_of(id, 'undo')}", data={"confirm": code})).text

    assert "Something stays" in shown and "<dt><bdi>amount</bdi></dt>" in shown and "947" in shown
    assert "Everything is undone" in done and 'name="confirm"' not in done


async def test_a_resolution_that_told_nobody_says_so(program: httpx2.AsyncClient) -> None:
    """Of the one task that tried and failed again, and of a cause for which no task waits."""
    id = await started(program, plan=[{"id": "shut", "kind": "shut"}])
    await asked(program, id)
    failed = await program.post(f"/ui/incidents/{quote('shut/unauthorized', safe='')}/resolve", data={"note": "a key"})
    await program.post(path_of(id, "cancel"))
    await standing(program, id, "cancelled")
    unknown = await program.post("/ui/incidents/shut%2Fnothing/resolve", data={"note": "a key"})

    assert (failed.status_code, f"{id} failed again" in failed.text) == (409, True), failed.text
    assert (unknown.status_code, "No task" in unknown.text) == (409, True), unknown.text


async def test_the_page_of_incidents_says_which_services_are_left_alone(program: httpx2.AsyncClient) -> None:
    """And how many calls wait for each."""
    before = (await program.get("/ui/incidents")).text
    id = await started(program, plan=[{"id": "knock", "kind": "knock"}])
    async with asyncio.timeout(20):
        while "<bdi>knock</bdi>" not in (shown := (await program.get("/ui/incidents")).text):
            await asyncio.sleep(0.2)
    await program.post(path_of(id, "cancel"))

    assert "Every service is called." in before
    assert re.search(r"<bdi>knock</bdi></dt><dd>open, since .*, 1 call waits for its turn</dd>", shown), shown


async def test_a_call_shows_what_nobody_would_see(program: httpx2.AsyncClient) -> None:
    """Neither the card nor the page of an edit has two values that look alike: what is invisible is an escape."""
    args = {"to": "an\u200dn\u202e\u3164", "text": "Dear\nAnn,\n\x1b[31m\u2066ruin\u2069"}
    plan: list[JsonValue] = [{"id": "post", "kind": "send", "args": dict(args)}]
    id = await started(program, plan=plan, approve="effects")
    request = await asked(program, id)
    card = (await program.get(f"/ui{path_of(id)}")).text
    form = {"arg.to": '"ann\\u2060"', "call": request["call"]["code"]}
    edit = (await program.post(form_of(id, request["id"], "edit"), data=form)).text
    done = await program.post(form_of(id, request["id"], "edit"), data={**form, "confirmed": "yes"})
    document = await standing(program, id, "completed")

    assert r"an\u200dn\u202e\u3164" in card and r"\u2066ruin" in card
    assert r"an\u200dn\u202e\u3164" in edit and r"ann\u2060" in edit
    assert not set("\u200d\u202e\u3164\u2066\u2060\x1b") & set(card + re.sub("<input[^>]*>", "", edit))
    assert (done.status_code, document["steps"][0]["result"]) == (303, {**args, "to": "ann\u2060"})
