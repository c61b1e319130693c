"""The forms of the page, sent as a browser without scripts sends them."""

import asyncio
import re
from collections.abc import Mapping
from urllib.parse import quote

import httpx2
import pytest
from pydantic import JsonValue

from server.page.answers import _form_values
from server.page.inputs import fields_of, with_defaults
from tests.gate import sampled
from tests.server.serving import asked, path_of, standing, started
from workflows.people.requests import Choice, ProposedCall


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


def gift(to: JsonValue, *before: dict[str, JsonValue]) -> list[JsonValue]:
    """A plan that gives something, and that leaves out how much."""
    return [*before, {"id": "gift", "kind": "give", "args": {"to": to}, "needs": [str(step["id"]) for step in before]}]


async def page_of(program: httpx2.AsyncClient, id: str, what: str = "") -> str:
    """A page about a task, without the differences of its blanks."""
    return " ".join((await program.get(f"/ui{path_of(id)}{what}")).text.split())


async def test_what_a_plan_leaves_out_is_shown_edited_and_undone(program: httpx2.AsyncClient) -> None:
    """Each page about the call has its arguments; a check of an edit is no failure, and an undo is offered once."""
    id = await started(program, plan=gift("ann"))
    request = await asked(program, id)
    card = await page_of(program, id)
    form = {
        **{"text.to": "ann", "number.amount": "20", "arg.currency": '"CHF"', "text_or_null.note": ""},
        "call": request["call"]["code"],
    }
    edit = (await program.post(form_of(id, request["id"], "edit"), data=form)).text
    only = {"arg.currency": '"CHF"', "call": request["call"]["code"], "confirmed": "yes"}
    await program.post(form_of(id, request["id"], "edit"), data=only)
    document = await standing(program, id, "completed")
    task, effects = await page_of(program, id), await page_of(program, id, "/effects")
    undo = await page_of(program, id, "/undo")
    await program.post(f"/ui{path_of(id, 'undo')}")
    undone = await page_of(program, id)

    assert '<bdi>currency</bdi></dt> <dd class="line" dir="auto">EUR <span class="origin">default</span>' in card
    assert '<bdi>Left empty</bdi></dt> <dd class="line" dir="auto">note</dd>' in card
    assert re.findall(r"<label><bdi>(\w+)</bdi> \(default\)", card) == ["amount", "currency", "note"]
    assert re.findall(r'name="([a-z_]+\.\w+)"', card) == [*form][:4]
    assert edit.count("<del>") == 1 and "<del>EUR</del>" in edit and "<ins>CHF</ins>" in edit
    assert document["steps"][0]["args"] == {"to": "ann", "currency": "CHF"}
    assert '<p class="call" dir="auto">give with to: ann, currency: EUR</p>' in task, "as it was asked"
    assert '<rect class="failed" x=' not in task and '<rect class="completed" x=' in task
    assert all('dir="auto">to: ann, currency: CHF<' in page for page in (task, effects, undone))
    assert "gift was give with to: ann, currency: CHF" in undo
    assert f"{path_of(id)}/undo" in task and f"{path_of(id)}/undo" not in undone


async def test_a_value_that_untrusted_content_chose_is_a_warning(program: httpx2.AsyncClient) -> None:
    """With a sign and words beside the colour."""
    to: JsonValue = {"$from": "wish", "path": "to"}
    id = await started(program, plan=gift(to, {"id": "wish", "kind": "wish", "args": {}}))
    await asked(program, id)
    card = await page_of(program, id)
    await program.post(path_of(id, "cancel"))

    warning = '<span class="origin untrusted"><span aria-hidden="true">⚠</span> <b>Check this:</b>'
    assert f"{warning} untrusted result of step wish (to)</span>" in card


def test_the_schema_tells_what_an_older_worker_does_not() -> None:
    """The defaults of a call that no worker has told, each as a field of its type; no secret is one."""
    properties = {
        "to": {"type": "string"},
        "amount": {"type": "integer", "default": 20},
        "until": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        "is_paid": {"type": "boolean", "default": None},
        "pin": {"type": "string", "default": "1234", "writeOnly": True},
        "at": {"type": "string"},
    }
    call = ProposedCall(kind="give", effect="keyed", args={"to": "ann"}, code="1f0c")
    whole = with_defaults(call, {"properties": properties})
    told = with_defaults(call.model_copy(update={"defaults": {"amount": 7}}), {"properties": properties})

    assert whole.defaults == {"amount": 20, "until": None, "is_paid": None}
    assert told.defaults == {"amount": 7} and with_defaults(call, None) == call
    assert [
        (one.name, one.form, one.type, one.value, one.is_default)
        for one in fields_of(whole, {"properties": properties})
    ] == [
        ("to", "text", "text", "ann", False),
        ("amount", "number", "number", "20", True),
        ("until", "text_or_null", "text", "", True),
        ("is_paid", "arg", "select", "null", True),
    ]


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
