"""The forms of the page, sent as a browser without scripts sends them."""

import asyncio
import re
from collections.abc import Mapping
from urllib.parse import quote

import httpx2
import pytest
from pydantic import JsonValue

from extras.web.page.answers import _form_values
from extras.web.page.inputs import Mistakes, arguments, fields_of, json_value, misfits, with_defaults
from extras.web.tests.serving import asked, path_of, standing, started
from workflows.people.requests import Choice, ProposedCall


def form_of(id: str, request: str, choice: str) -> str:
    return f"/ui{path_of(id, 'requests', request, choice)}"


EDITS: Mapping[str, tuple[dict[str, str], int, str]] = {
    "another call": ({"arg.amount": "600", "call": "0000"}, 409, "The call is another one than the page showed"),
    "no call": ({"arg.amount": "600"}, 409, "The call is another one than the page showed"),
    "nothing changed": ({"arg.amount": "920"}, 422, "No argument was changed"),
    "no JSON": ({"arg.amount": "six"}, 422, "amount is not JSON"),
}


async def test_only_an_edit_that_was_shown_is_made(program: httpx2.AsyncClient) -> None:
    """One that cannot be confirmed changes nothing: the page of the task says why, and the request stays open."""
    id = await started(program, 920)
    request = await asked(program, id)
    path, code = form_of(id, request["id"], "edit"), request["call"]["code"]
    refused = {
        case: await program.post(path, data=fields if case == "no call" else {"call": code, **fields})
        for case, (fields, _, _) in EDITS.items()
    }
    form = {"arg.amount": "622", "call": code, "from": "inbox"}
    shown = await program.post(path, data=form)
    waiting = (await standing(program, id, "waiting"))["requests"]
    done = await program.post(path, data={**form, "confirmed": "yes"})
    document = await standing(program, id, "completed")

    wrong = {case: response.text for case, response in refused.items() if response.status_code != EDITS[case][1]}
    wrong |= {case: response.text for case, response in refused.items() if EDITS[case][2] not in response.text}
    assert wrong == {}
    assert [one.get("answer") for one in waiting] == [None]
    assert (shown.status_code, done.status_code) == (200, 303)
    assert "<del>920</del>" in shown.text and "<ins>622</ins>" in shown.text
    assert '<input type="hidden" name="from" value="inbox">' in shown.text
    assert done.headers["location"].startswith("/ui/inbox?") and done.headers["location"].endswith("&choice=edit")
    assert document["steps"][0]["result"] == {"id": 622}


def typed(page: str, name: str) -> str:
    """The element of a page that has this name, the wrong one of several, with its text if it is an area."""
    found = re.findall(rf'<(?:input|textarea)\b[^>]*name="{re.escape(name)}"[^>]*>(?:[^<]*</textarea>)?', page)
    return str(min(found, key=lambda element: "aria-invalid" not in element))


def is_wrong(page: str, name: str) -> bool:
    field = typed(page, name)
    marked = re.search(r'id="([^"]+)" aria-invalid="true" aria-describedby="([^"]+)"', field)
    return bool(marked and f'id="{marked[2]}"' in page and f'href="#{marked[1]}"' in page)


REFUSED: Mapping[str, tuple[str, dict[str, str], int, str, str]] = {
    "no number": ("edit", {"number.amount": "six"}, 422, "amount is not a number", "six"),
    "below the schema": ("edit", {"number.amount": "-5"}, 422, "amount must be at least 0.", "-5"),
    "no whole number": ("edit", {"number.amount": "6.5"}, 422, "amount must be a whole number.", "6.5"),
    "too long": ("reject", {"reason": "w" * 4001}, 422, "The reason must have at most 4000 characters.", "w" * 4001),
}


async def test_a_refused_form_comes_back_as_it_was_typed(program: httpx2.AsyncClient) -> None:
    """Open, with the error beside the field, a link to the field above, and the focus in the field.

    The page asks for the words of an answer, and a program is told which field lacks them.
    """
    id = await started(program, 923)
    request = await asked(program, id)
    pages = dict[str, httpx2.Response]()
    for case, (choice, fields, _, _, _) in REFUSED.items():
        form = {**fields, "call": request["call"]["code"], "from": "inbox"}
        pages[case] = await program.post(form_of(id, request["id"], choice), data=form)
    told = await program.post(path_of(id, "answers"), json={"choice": "reply", "request": request["id"]})
    asking = await program.post(form_of(id, request["id"], "reply"), data={"text": " "})
    limits = {"tool_calls": "ten", "tokens": "500", "usd": "", "replans": ""}
    more = (await program.post(f"/ui{path_of(id, 'extend')}", data=limits)).text
    empty = (await program.post(f"/ui{path_of(id, 'extend')}", data=dict.fromkeys(limits, ""))).text
    await program.post(path_of(id, "cancel"))

    for case, (choice, [name], status, words, value) in REFUSED.items():
        page = pages[case].text
        assert (pages[case].status_code, is_wrong(page, name)) == (status, True), page
        assert words in page and value in typed(page, name) and "autofocus" in typed(page, name), case
        assert f'id="{id}-{request["id"]}-{choice}" open' in page, case
        assert '<input type="hidden" name="from" value="inbox">' in page, "the answer still leads back to the inbox"
    assert (told.status_code, told.json()["detail"]) == (422, "The answer reply needs text")
    assert (asking.status_code, "Write your answer." in asking.text) == (422, True)
    assert is_wrong(more, "tool_calls") and not is_wrong(more, "tokens")
    assert 'value="ten"' in typed(more, "tool_calls") and 'value="500"' in typed(more, "tokens")
    assert is_wrong(empty, "tool_calls") and "Write how many tool calls more, e.g. 10." in empty


async def test_what_only_the_tool_refuses_comes_back_too(program: httpx2.AsyncClient) -> None:
    """After the second form of an edit: the page says why above, and the first form has what was typed."""
    id = await started(program, 924)
    request = await asked(program, id)
    form = {"number.amount": "-7", "call": request["call"]["code"], "confirmed": "yes"}
    response = await program.post(form_of(id, request["id"], "edit"), data=form)
    after = await asked(program, id)
    await program.post(path_of(id, "cancel"))

    assert (response.status_code, "The arguments were not accepted" in response.text) == (409, True)
    assert after["id"] != request["id"], "the task asks again"
    assert 'value="-7"' in typed(response.text, "number.amount")
    assert f'id="{id}-{after["id"]}-edit" open' in response.text


MISFITS: Mapping[str, tuple[dict[str, JsonValue], JsonValue, str]] = {
    "at the bound": ({"type": "integer", "minimum": 0}, 0, ""),
    "below": ({"type": "integer", "minimum": 0}, -5, "a must be at least 0."),
    "text of a number": ({"type": "number", "exclusiveMaximum": 10}, "10", "a must be less than 10."),
    "no number": ({"type": "number"}, "ten", "a must be a number."),
    "a decimal": (
        {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string"}]},
        "-0.01",
        "a must be more",
    ),
    "perhaps no decimal": ({"anyOf": [{"type": "number", "minimum": 0}, {"type": "string"}]}, "soon", ""),
    "null": ({"anyOf": [{"type": "number", "minimum": 1}, {"type": "null"}]}, None, ""),
    "not null": ({"anyOf": [{"type": "number", "minimum": 1}, {"type": "null"}]}, 0, "a must be at least 1."),
    "by reference": ({"$ref": "#/$defs/Few"}, 9, "a must be at most 3."),
    "no choice": ({"enum": ["attic", "hall"]}, "roof", "a must be one of attic, hall."),
    "too short": ({"type": "string", "minLength": 2}, "x", "a must have at least 2 characters."),
    "of an unknown kind": ({"type": "string", "format": "iban"}, "x", ""),
    "beyond numbers": ({"type": "number", "maximum": 5}, "1e999999", "a must be at most 5."),
}


@pytest.mark.parametrize("case", MISFITS)
def test_what_a_schema_refuses(case: str) -> None:
    """As the tool would say it; where only the tool can say, nothing is refused."""
    schema, value, words = MISFITS[case]
    whole: dict[str, JsonValue] = {"properties": {"a": schema}, "$defs": {"Few": {"type": "integer", "maximum": 3}}}

    found = misfits({"a": value, "b": "unknown"}, whole)

    assert found.get("a", "").startswith(words) and (bool(found), misfits({"a": value}, None)) == (bool(words), {})


def gift(to: JsonValue, *before: dict[str, JsonValue]) -> list[JsonValue]:
    return [*before, {"id": "gift", "kind": "give", "args": {"to": to}, "needs": [str(step["id"]) for step in before]}]


async def page_of(program: httpx2.AsyncClient, id: str, what: str = "") -> str:
    """A page about a task, without the differences of its blanks."""
    return " ".join((await program.get(f"/ui{path_of(id)}{what}")).text.split())


async def test_what_a_plan_leaves_out_is_shown_edited_and_undone(program: httpx2.AsyncClient) -> None:
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
    assert '<p class="call" dir="auto">give to ann, currency EUR</p>' in task, "as it was asked"
    assert '<rect class="failed" x=' not in task and '<rect class="completed" x=' in task
    assert all("to ann, currency CHF<" in page for page in (task, effects, undone))
    assert "The call was: give to ann, currency CHF" in undo
    assert f"{path_of(id)}/undo" in task and f"{path_of(id)}/undo" not in undone
    assert "<h2>Result</h2>" in task and "<h2>Result, before it was undone</h2>" in undone


async def test_a_timeline_of_forty_steps_has_them_all_and_the_planner(program: httpx2.AsyncClient) -> None:
    ids = [f"wish-{number}" for number in range(40)]
    plan: list[JsonValue] = [{"id": id, "kind": "wish", "args": {"amount": 5}} for id in ids]
    id = await started(program, plan=plan, limits={"tool_calls": 50})
    await standing(program, id, "completed")
    task = await page_of(program, id)

    lanes = re.findall(r'<li><span class="name"><bdi>([\w-]+)</bdi>', task)
    assert sorted(lanes) == sorted(["planner", *ids]) and "left out" not in task
    assert '<ol class="timeline dense">' in task
    assert "</svg>done</span>" in task and "</svg>failed</span>" not in task


async def test_a_card_says_once_what_its_arguments_have_in_common_and_warns_of_untrusted_ones(
    program: httpx2.AsyncClient,
) -> None:
    """The warning has a sign and words beside the colour."""
    plain: list[JsonValue] = [{"id": "gift", "kind": "give", "args": {"to": "ann", "amount": 30, "currency": "CHF"}}]
    wished = gift({"$from": "wish", "path": "to"}, {"id": "wish", "kind": "wish", "args": {}})
    cards = list[str]()
    for plan in (plain, wished):
        id = await started(program, plan=plan)
        await asked(program, id)
        cards.append(await page_of(program, id))
        await program.post(path_of(id, "cancel"))
    card, warned = cards

    assert "<bdi>Approve this call?</bdi>" in card and card.count('class="go"') == 1
    assert '<bdi>Call</bdi></dt> <dd class="line" dir="auto">give</dd>' in card and "<bdi>Task</bdi>" not in card
    assert card.count("the plan that was written by hand") == 1
    assert '<dd class="line" dir="auto">CHF</dd>' in card
    warning = '<span class="origin untrusted"><span aria-hidden="true">⚠</span> <b>Check this:</b>'
    assert f"{warning} untrusted result of step wish (to)</span>" in warned


def test_the_schema_tells_what_an_older_worker_does_not() -> None:
    properties = {
        "to": {"type": "string"},
        "amount": {"type": "integer", "default": 20},
        "until": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        "is_paid": {"type": "boolean", "default": None},
        "price": {"anyOf": [{"type": "number"}, {"type": "string"}], "default": "9.50"},
        "pin": {"type": "string", "default": "1234", "writeOnly": True},
        "at": {"type": "string"},
    }
    call = ProposedCall(kind="give", effect="keyed", args={"to": "ann"}, code="1f0c")
    whole = with_defaults(call, {"properties": properties})
    told = with_defaults(call.model_copy(update={"defaults": {"amount": 7}}), {"properties": properties})

    assert whole.defaults == {"amount": 20, "until": None, "is_paid": None, "price": "9.50"}
    assert told.defaults == {"amount": 7} and with_defaults(call, None) == call
    assert [
        (one.name, one.form, one.type, one.value, one.is_default)
        for one in fields_of(whole, {"properties": properties})
    ] == [
        ("to", "text", "text", "ann", False),
        ("amount", "number", "number", "20", True),
        ("until", "text_or_null", "text", "", True),
        ("is_paid", "arg", "select", "null", True),
        ("price", "decimal", "number", "9.50", True),
    ]


def test_a_form_gives_decimals_with_their_digits_and_what_is_written_beside_an_option() -> None:
    """Other words than a number are a mistake of that field."""
    with pytest.raises(Mistakes) as raised:
        arguments({"decimal.price": "nine", "number.seats": "4"})
    written = _form_values(Choice.REPLY, {"option": "Bo", "text": "No, ask Cyd"})
    chosen = _form_values(Choice.REPLY, {"option": "Bo", "text": " "})

    assert arguments({"decimal.price": " 0.10 "}) == {"price": "0.10"}
    assert {*raised.value.fields_of_form} == {"decimal.price"} and "price is not a number" in str(raised.value)
    assert (written, chosen) == ({"text": "No, ask Cyd"}, {"text": "Bo"})


async def test_an_undo_is_shown_and_then_made(program: httpx2.AsyncClient) -> None:
    id = await started(program, plan=[{"id": "p1", "kind": "reserve", "args": {"amount": 947}}])
    await standing(program, id, "completed")
    shown = (await program.post(f"/ui{path_of(id, 'undo')}")).text
    [code] = re.findall(r'name="confirm" value="(\w{12})"', shown)
    done = (await program.post(f"/ui{path_of(id, 'undo')}", data={"confirm": code})).text

    assert "Something stays" in shown and "<dt><bdi>amount</bdi></dt>" in shown and "947" in shown
    assert "Everything is undone" in done and 'name="confirm"' not in done


async def test_a_resolution_that_told_nobody_says_so(program: httpx2.AsyncClient) -> None:
    id = await started(program, plan=[{"id": "shut", "kind": "shut"}])
    await asked(program, id)
    failed = await program.post(f"/ui/incidents/{quote('shut/unauthorized', safe='')}/resolve", data={"note": "a key"})
    await program.post(path_of(id, "cancel"))
    await standing(program, id, "cancelled")
    unknown = await program.post("/ui/incidents/shut%2Fnothing/resolve", data={"note": "a key"})

    assert (failed.status_code, f"{id} failed again" in failed.text) == (409, True), failed.text
    assert 'value="a key"' in typed(failed.text, "note"), "the note is not lost"
    assert (unknown.status_code, "No task" in unknown.text) == (409, True), unknown.text


async def test_the_page_of_incidents_says_which_services_are_left_alone(program: httpx2.AsyncClient) -> None:
    before = (await program.get("/ui/incidents")).text
    id = await started(program, plan=[{"id": "knock", "kind": "knock"}])
    async with asyncio.timeout(20):
        while "<bdi>knock</bdi>" not in (shown := (await program.get("/ui/incidents")).text):
            await asyncio.sleep(0.2)
    await program.post(path_of(id, "cancel"))

    assert "Every service is called." in before
    assert re.search(r"<bdi>knock</bdi></dt><dd>open, since .*, 1 call waits for its turn</dd>", shown), shown


async def test_a_call_shows_what_nobody_would_see(program: httpx2.AsyncClient) -> None:
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


@pytest.mark.parametrize("text", ["{", "[" * 5_000 + "]" * 5_000, "NaN", "1e999", "9" * 5_000, r'"\ud800"'])
def test_json_that_cannot_be_sent_is_a_mistake_of_its_field(text: str) -> None:
    with pytest.raises(Mistakes) as wrong:
        json_value("result", "The result", text)

    assert list(wrong.value.fields_of_form) == ["result"]
