"""Who is known: personal tokens, a proxy's names and programs with scopes, and what the server vouches for."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from temporalio.client import Client

from client.client import Client as Replan
from console.serving.access import COOKIE, Access
from extras.web import app as web
from extras.web.scopes import SCOPES
from extras.web.tests.serving import TOKEN, Served, approval_of, asked, path_of, serving, standing
from runtime.dev_server import DevServer
from runtime.people_file import (
    SCOPES as ALL,
    Door,
    KnownPeople,
    Machine,
    PeopleFile,
    Person,
    Scope,
    Signer,
    new_token,
    token_digest,
)
from tests.processes import Processes, written
from workflows import ids
from workflows.people.incidents import Resolve
from workflows.people.statement import Statement

NOW = datetime.now(UTC)
TOOLS = '''
from pydantic import BaseModel

from replan import Approval, Key, NeedsPerson, tool


class Amount(BaseModel):
    amount: int = 0


class Receipt(BaseModel):
    amount: int


RULE = Approval(when="args.amount > 500", by="role:finance", not_starter=True)


@tool.keyed(approve=RULE)
async def refund(args: Amount, key: Key) -> Receipt:
    """Pay back."""
    return Receipt(amount=args.amount)


@tool.keyed(approve=RULE)
async def broken(args: Amount, key: Key) -> Receipt:
    """Pay back at a bank that is closed."""
    raise NeedsPerson("The bank is closed: open it.")


@tool.keyed(undo=refund.using(amount="result.amount"))
async def charge(args: Amount, key: Key) -> Receipt:
    """Charge a card."""
    return Receipt(amount=args.amount)


@tool.idempotent
async def pay(args: Amount) -> Receipt:
    """Need a key that nobody has."""
    raise NeedsPerson("The key was revoked.", code="unauthorized")
'''


@dataclass
class Office:
    """People with tokens, programs, a door, the people file that server and worker read, and a server."""

    folder: Path
    tokens: dict[str, str] = field(default_factory=dict)
    served: Served | None = None

    @property
    def file(self) -> Path:
        return self.folder / "people.json"

    def person(self, name: str, *roles: str, **more: Any) -> None:
        """Write a person with these roles and a new token."""
        self.tokens[name] = new_token()
        fields = {"name": name, "roles": roles, "token": token_digest(self.tokens[name]), **more}
        PeopleFile.change(self.file, lambda file: file.with_rows(Person(**fields)))

    def machine(self, name: str, *scopes: Scope) -> None:
        self.tokens[name] = new_token()
        row = Machine(name=name, scopes=scopes, token=token_digest(self.tokens[name]))
        PeopleFile.change(self.file, lambda file: file.with_rows(row))

    def change(self, name: str, **more: Any) -> None:
        def changed(file: PeopleFile) -> PeopleFile:
            person = file.person(name)
            assert person is not None
            return file.with_rows(person.model_copy(update=more))

        PeopleFile.change(self.file, changed)

    def visit(self, name: str, **headers: str) -> httpx2.AsyncClient:
        """A program that sends a token: that of somebody, or the operator's; without a name, none."""
        assert self.served is not None
        token = TOKEN if name == "operator" else self.tokens.get(name)
        return self.served.visit(token, **headers)


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Office:
    """Ann and cleo are in finance, bob is in sales; programs have all scopes, or one each."""
    made = Office(tmp_path_factory.mktemp("office"))
    door = Signer.new(made.folder / "door.key", "desk")
    PeopleFile(doors=(Door(name="desk", keys=(door.public_key(NOW - timedelta(days=1)),)),)).write(made.file)
    for name, role in {"ann": "finance", "cleo": "finance", "bob": "sales"}.items():
        made.person(name, role, also=(f"{name}@shop",))
    made.machine("whole", *ALL)
    for scope in ALL:
        made.machine(f"may-{scope}", scope)
    return made


@pytest.fixture(scope="module")
def queue(server: DevServer, office: Office) -> Iterator[str]:
    name, tools = f"people-{uuid.uuid4().hex[:8]}", written(office.folder, TOOLS, "refunds.py")
    options = ("--tools", str(tools), "--people", str(office.file), "--queue", name)
    with Processes(server.address, office.folder).worker(*options):
        yield name


@pytest.fixture(scope="module")
async def desk(server: DevServer, queue: str, office: Office) -> AsyncIterator[Office]:
    """The office, with a server of its door that has the operator's token and a proxy, too."""
    files = ("--people", str(office.file), "--door-key", str(office.folder / "door.key"))
    options = ("--queue", queue, *files)
    async with serving(server.address, office.folder, *options, token=TOKEN, REPLAN_IDENTITY_HEADER="X-User") as served:
        office.served = served
        yield office


async def refunding(program: httpx2.AsyncClient, amount: int = 900, kind: str = "refund") -> str:
    plan = [{"id": "p1", "kind": kind, "args": {"amount": amount}}]
    response = await program.post("/tasks", json={"text": "pay back", "plan": plan, "on_escalation": "wait"})
    assert response.status_code == 201, response.text
    return str(response.json()["task_id"])


async def approved(program: httpx2.AsyncClient, id: str, request: Mapping[str, Any], **more: Any) -> httpx2.Response:
    return await program.post(path_of(id, "answers"), json=approval_of(request, **more))


async def signed_in(browser: httpx2.AsyncClient, token: str, name: str = "") -> httpx2.Response:
    return await browser.post("/login", data={"name": name, "token": token, "next": "/ui/tasks"})


async def test_a_person_approves_in_their_own_name(desk: Office) -> None:
    """Whom the server knows by a token; not who has another role, not who started it, no program, no claim."""
    async with (
        desk.visit("ann") as ann,
        desk.visit("bob") as bob,
        desk.visit("cleo") as cleo,
        desk.visit("whole") as program,
        desk.visit("operator", x_user="eve") as nobody,
    ):
        id = await refunding(ann)
        request = await asked(ann, id)
        refused = {
            name: await approved(who, id, request, by="cleo")
            for name, who in (("bob", bob), ("ann", ann), ("program", program), ("eve", nobody))
        }
        said = await approved(cleo, id, request, by="bob")
        ended = await standing(ann, id, "completed")

    reasons = {name: (response.status_code, response.json()["detail"]) for name, response in refused.items()}
    needs = "a person with the role finance, who did not start the task"
    vouched = f"This answer needs {needs}, and nobody vouches for who gives it: answer where you are signed in."
    assert reasons == {
        "bob": (409, f"bob (sales) may not approve it: it needs {needs}."),
        "ann": (409, "ann started the task, and may not approve this call: another person must."),
        "program": (409, vouched),
        "eve": (409, vouched),
    }
    assert (said.status_code, said.json()["by"]) == (200, "cleo"), said.text
    statement = ended["requests"][0]["answer"]["statement"]
    assert (statement["person"], statement["how"], statement["roles"]) == ("cleo", "token", ["finance"])
    KnownPeople(desk.file).now().check_signature(Statement.model_validate(statement))


async def test_a_person_signs_in_at_the_page_with_their_own_token(desk: Office) -> None:
    """Whatever name they type; the form approves in their name. A program's token signs nobody in."""
    async with desk.visit("bob") as bob, desk.visit("") as browser, desk.visit("") as other:
        id = await refunding(bob)
        request = await asked(bob, id)
        done = await signed_in(browser, desk.tokens["ann"], "cleo")
        page = await browser.get("/ui/tasks")
        form = {"call": request["call"]["code"]}
        sent = await browser.post(f"/ui/tasks/{id}/requests/{request['id']}/approve", data=form)
        ended = await standing(bob, id, "completed")
        of_program = await signed_in(other, desk.tokens["whole"], "cleo")
        wrong = await signed_in(other, "wrong", "cleo")

    assert (done.status_code, sent.status_code) == (303, 303), sent.text
    assert "<bdi>ann</bdi>" in page.text and desk.tokens["ann"] not in done.headers["set-cookie"]
    assert ended["requests"][0]["answer"]["by"] == "ann"
    assert (of_program.status_code, wrong.status_code) == (403, 401)
    assert "set-cookie" not in of_program.headers and "set-cookie" not in wrong.headers
    assert "The token is that of whole, a program" in of_program.text


async def test_the_first_of_two_people_is_told_that_one_more_must(desk: Office) -> None:
    """Nobody vouches for who started it, so two people must approve; the request stays in the inbox until then."""
    async with desk.visit("operator", x_user="eve") as starter, desk.visit("") as ann, desk.visit("") as cleo:
        id = await refunding(starter)
        request = await asked(starter, id)
        await signed_in(ann, desk.tokens["ann"])
        await signed_in(cleo, desk.tokens["cleo"])
        form = {"call": request["call"]["code"], "from": "inbox"}
        where = f"/ui/tasks/{id}/requests/{request['id']}/approve"
        first = await ann.post(where, data=form)
        seen = await ann.get(first.headers["location"])
        second = await cleo.post(where, data=form)
        ended = await standing(starter, id, "completed")

    assert first.headers["location"].endswith("&choice=approve&left=1")
    assert "One more must answer alike." in seen.text and f'id="{id}' in seen.text
    assert "left=" not in second.headers["location"]
    assert [one["by"] for one in ended["requests"][0]["endorsed"]] == ["ann"]


async def test_a_proxy_says_who_it_is_and_the_file_what_they_may(desk: Office) -> None:
    """Under any of a person's names; a name that the file does not have is a name, and nobody vouches for it. Beside
    another token than the proxy's, the header says nothing."""
    async with (
        desk.visit("operator", x_user="ann@shop") as ann,
        desk.visit("operator", x_user="bob") as bob,
        desk.visit("bob", x_user="cleo") as forged,
        desk.visit("may-answer", x_user="cleo") as program,
        desk.visit("", x_user="cleo") as stranger,
    ):
        id = await refunding(bob)
        request = await asked(bob, id)
        no = [await approved(who, id, request) for who in (bob, forged, program, stranger)]
        yes = await approved(ann, id, request)
        ended = await standing(bob, id, "completed")

    assert [response.status_code for response in no] == [409, 409, 409, 401]
    assert "bob (sales)" in no[1].text and "nobody vouches" in no[2].text
    assert (yes.status_code, yes.json()["by"]) == (200, "ann")
    assert ended["requests"][0]["answer"]["statement"]["how"] == "proxy"


@pytest.mark.parametrize("how", ["removed", "ended", "another token"])
async def test_who_may_no_more_is_refused_at_the_next_request(desk: Office, how: str) -> None:
    """With the token, in a session, and behind the proxy if the person is gone."""
    name = f"dan-{how.partition(' ')[0]}"
    desk.person(name, "finance")
    async with (
        desk.visit(name) as program,
        desk.visit("operator", x_user=name) as proxied,
        desk.visit("") as browser,
    ):
        await signed_in(browser, desk.tokens[name])
        before = [(await one.get("/ui/tasks")).status_code for one in (program, proxied, browser)]
        ends: dict[str, dict[str, Any]] = {
            "removed": {"until": datetime.now(UTC), "token": ""},
            "ended": {"until": datetime.now(UTC)},
            "another token": {"token": token_digest("another")},
        }
        desk.change(name, **ends[how])
        after = [await one.get("/tasks") for one in (program, proxied, browser)]
        page = await browser.get("/ui/tasks")
        again = await signed_in(browser, desk.tokens[name])

    codes = [response.json().get("code") for response in after]
    assert before == [200] * 3
    assert codes == ["wrong_token", None if how == "another token" else "removed", "no_token"]
    assert (page.status_code, page.headers["location"], again.status_code) == (303, "/login?next=%2Fui%2Ftasks", 401)


async def test_a_role_that_is_taken_away_counts_no_more(desk: Office) -> None:
    desk.person("fay", "finance")
    async with desk.visit("fay") as fay, desk.visit("bob") as bob:
        id = await refunding(bob)
        request = await asked(bob, id)
        desk.change("fay", roles=("sales",))
        response = await approved(fay, id, request)
        await bob.post(path_of(id, "cancel"))

    assert "fay (sales) may not approve it" in response.text


async def test_a_stream_of_events_ends_with_the_token(desk: Office) -> None:
    """Of a person who is removed, nothing more is told; others hear the task to its end."""
    desk.person("guest", "sales")
    async with desk.visit("ann") as ann, desk.visit("guest") as guest, desk.visit("cleo") as cleo:
        id = await refunding(ann)
        request = await asked(ann, id)

        async def heard(program: httpx2.AsyncClient) -> list[str]:
            async with program.stream("GET", path_of(id, "events")) as response:
                return [line async for line in response.aiter_lines() if line.startswith("event:")]

        both = [asyncio.create_task(heard(program)) for program in (guest, cleo)]
        await asyncio.sleep(1.5)  # longer than between two looks
        desk.change("guest", until=datetime.now(UTC))
        await approved(cleo, id, request)
        cut, whole = await asyncio.gather(*both)

    assert whole[-1] == "event: end" and "event: end" not in cut
    assert cut == whole[: len(cut)] and cut


async def test_extending_resolving_and_undoing_are_signed(desk: Office, client: Client, queue: str) -> None:
    """By the API and the page alike, if the server knows the person."""
    async with (
        desk.visit("ann") as ann,
        desk.visit("") as browser,
        desk.visit("whole") as program,
    ):
        await signed_in(browser, desk.tokens["cleo"])
        id = await refunding(ann, kind="pay")
        cause = (await asked(ann, id))["cause"]
        await ann.post(path_of(id, "extend"), json={"tool_calls": 1})
        await browser.post(f"/ui/tasks/{id}/extend", data={"tool_calls": "1"})
        await program.post(path_of(id, "extend"), json={"tool_calls": 1})
        resolved = await ann.post(f"/incidents/{quote(cause, safe='')}/resolve", json={"note": "open", "by": "bob"})
        shown = await standing(ann, id, "waiting")
        await ann.post(path_of(id, "cancel"))
        charged = await refunding(ann, 900, kind="charge")
        await standing(ann, charged, "completed")
        held = (await program.post(path_of(charged, "undo"))).json()
        claimed = (await program.post(path_of(charged, "undo"), json={"confirm": held["confirm"]})).json()
        own = (await ann.post(path_of(charged, "undo"), json={"confirm": held["confirm"]})).json()
        undone = (await browser.post(f"/ui/tasks/{charged}/undo", data={"confirm": held["confirm"]})).text

    signers = [(one["by"], (one.get("statement") or {}).get("person")) for one in shown["extensions"]]
    assert signers == [("ann", "ann"), ("cleo", "cleo"), ("whole", None)]
    assert resolved.json()["by"] == "ann"
    resolution = client.get_workflow_handle(ids.resolution(cause, queue))
    begun = (await resolution.fetch_history()).events[0].workflow_execution_started_event_attributes
    [given] = await client.data_converter.decode(begun.input.payloads, [Resolve])
    assert given.statement is not None and given.statement.person == "ann"
    assert [one["status"] for one in (held, claimed, own)] == ["incomplete"] * 3
    assert "undone" in undone
    assert (await (await Replan(client).task(charged)).effects())[0].undone_at is not None


# Programs


async def test_each_route_needs_one_scope(client: Client) -> None:
    """All routes are in the table, but those that need nothing, and no other."""
    app = web.make_app(Replan(client), Access(), max_streams=1, web_ui="http://localhost:1")
    flat = [getattr(one, "original_router", None) for one in app.routes]
    routes = [*app.routes, *(route for router in flat if router for route in router.routes)]
    there = {(method, route.path) for route in routes for method in getattr(route, "methods", ())}
    needed = {one for one in there if not one[1].startswith((*web.OPEN, web.LOGOUT)) and one[0] != "HEAD"}

    assert needed == set(SCOPES)


REQUESTS: Sequence[tuple[str, str, Scope]] = (
    ("POST", "/tasks", "start"),
    ("GET", "/tasks", "read"),
    ("GET", "/tasks/nobody", "read"),
    ("GET", "/tasks/no%2Fbody/explain", "read"),
    ("GET", "/tasks/nobody/effects", "read"),
    ("GET", "/tasks/nobody/events", "read"),
    ("GET", "/incidents", "read"),
    ("GET", "/openapi.json", "read"),
    ("GET", "/ui/tasks/nobody/cancel", "operate"),
    ("POST", "/tasks/nobody/answers", "answer"),
    ("POST", "/ui/tasks/nobody/requests/r1/approve", "answer"),
    ("POST", "/tasks/nobody/extend", "operate"),
    ("POST", "/tasks/nobody/cancel", "operate"),
    ("POST", "/tasks/nobody/undo", "operate"),
    ("POST", "/ui/tasks/nobody/undo", "operate"),
    ("POST", "/incidents/a%2Fb/resolve", "operate"),
    ("POST", "/ui/new", "start"),
)


async def test_a_program_may_do_what_its_scopes_say(desk: Office) -> None:
    """Each request with each scope: what it may not is refused in one sentence that names the scope."""
    wrong = list[object]()
    for scope in ALL:
        async with desk.visit(f"may-{scope}") as program:
            for method, path, needed in REQUESTS:
                response = await program.request(method, path, json={} if method == "POST" else None)
                is_refused = response.status_code == 403 and "no_scope" in response.text
                names_it = f"needs the scope {needed}, and may-{scope} has {scope}" in response.text
                if is_refused is (scope == needed) or is_refused is not names_it:
                    wrong.append((scope, method, path, response.status_code, response.text[:200]))
            unknown = [await program.request(*one) for one in (("GET", "/nowhere"), ("PUT", "/tasks"))]
            assert [one.status_code for one in unknown] == [404, 404]

    assert not wrong


async def test_a_person_may_do_what_the_file_says(desk: Office) -> None:
    """By the API and at the page, which shows no button that would be refused."""
    desk.person("reader", "finance", scopes=("read",))
    async with desk.visit("ann") as ann, desk.visit("reader") as api, desk.visit("") as browser:
        id = await refunding(ann)
        request = await asked(ann, id)
        refused = [
            await approved(api, id, request),
            *[await api.post(path_of(id, what), json={}) for what in ("extend", "cancel", "undo")],
        ]
        desk.change("reader", scopes=("read", "answer"))
        operating = [{"choice": "extend", "request": "r1"}, {"choice": "abort", "undo": True}]
        refused += [await api.post(path_of(id, "answers"), json=one) for one in operating]
        half = (await api.get(f"/ui/tasks/{id}")).text
        desk.change("reader", scopes=("read",))
        await signed_in(browser, desk.tokens["reader"])
        page = (await browser.get(f"/ui/tasks/{id}")).text
        pressed = await browser.post(f"/ui/tasks/{id}/cancel", data={"confirmed": "yes"})
        new = await browser.post("/ui/new", data={"text": "calculate 1 + 1"})
        own = (await ann.get(f"/ui/tasks/{id}")).text
        await ann.post(path_of(id, "cancel"))

    assert [(one.status_code, one.json()["code"]) for one in refused] == [(403, "no_scope")] * 6
    assert f"/requests/{request['id']}/approve" in half and 'name="undo"' in own and 'name="undo"' not in half
    assert (
        refused[0].json()["detail"].startswith("POST /tasks/{id}/answers needs the scope answer, and reader has read")
    )
    assert "You may read this request, and not answer it." in page and "You may read this task" in page
    for shown in ("Raise the limits", "Cancel the task", f"/requests/{request['id']}/approve", 'href="/ui/new"'):
        assert shown not in page and shown in own, shown
    assert (pressed.status_code, new.status_code) == (403, 403)
    assert all("text/html" in one.headers["content-type"] and "no_scope" in one.text for one in (pressed, new))


async def test_who_was_removed_can_sign_in_as_somebody_else_and_out(desk: Office) -> None:
    desk.person("leaver", "sales")
    async with desk.visit("") as browser:
        await signed_in(browser, desk.tokens["leaver"])
        desk.change("leaver", scopes=("start",))
        out = await browser.post("/logout")
        await signed_in(browser, desk.tokens["leaver"])
        desk.change("leaver", until=datetime.now(UTC))
        page = await browser.get("/login")
        again = await signed_in(browser, desk.tokens["ann"])
        home = await browser.get("/ui/inbox")

    assert (out.status_code, page.status_code, again.status_code, home.status_code) == (303, 200, 303, 200)


async def test_a_program_cannot_begin_what_a_person_must(desk: Office) -> None:
    """Its name is its own, whatever it claims, and nobody vouches for it."""
    async with desk.visit("whole") as program:
        plan = [{"id": "p1", "kind": "charge", "args": {"amount": 1}}]
        started = await program.post("/tasks", json={"text": "pay", "plan": plan, "by": "ann"})
        ended = await standing(program, started.json()["task_id"], "completed")

    assert ended["by"] == "whole"


# Attacks on sessions


async def test_who_has_the_operators_token_makes_no_session_of_a_person(desk: Office) -> None:
    """Sessions of people are signed with the door's key; one of the operator is a claim, whatever name it has."""
    forged = Access(TOKEN, people=KnownPeople(desk.file))
    sessions = [forged.session("cleo"), forged.sign_in(desk.tokens["cleo"], "")]
    async with desk.visit("bob") as bob, desk.visit("") as browser:
        id = await refunding(bob)
        request = await asked(bob, id)
        answers = [
            await browser.post(
                path_of(id, "answers"), json=approval_of(request), headers={"cookie": f"{COOKIE}={session}"}
            )
            for session in sessions
        ]
        await bob.post(path_of(id, "cancel"))

    assert [response.status_code for response in answers] == [409, 401]
    assert "nobody vouches" in answers[0].text


async def test_a_session_from_before_a_sign_in_is_not_the_one_after(desk: Office) -> None:
    """Session fixation: what somebody put into the browser beforehand never becomes a person's session."""
    async with desk.visit("") as browser, desk.visit("") as attacker:
        planted = (await signed_in(attacker, desk.tokens["bob"])).cookies[COOKIE]
        browser.cookies.set(COOKIE, planted)
        fresh = (await signed_in(browser, desk.tokens["ann"])).cookies[COOKIE]
        theirs = await attacker.get("/ui/tasks")
        junk = await attacker.get("/tasks", headers={"cookie": f"{COOKIE}=planted"})

    assert fresh != planted and "<bdi>bob</bdi>" in theirs.text
    assert junk.status_code == 401


FOREIGN: Sequence[Mapping[str, str]] = ({"sec-fetch-site": "cross-site"}, {"origin": "https://evil.example"})


@pytest.mark.parametrize("headers", FOREIGN)
async def test_another_website_answers_nothing_and_signs_nobody_in(desk: Office, headers: Mapping[str, str]) -> None:
    """CSRF with a person's session, and login CSRF with the attacker's own token."""
    async with desk.visit("bob") as bob, desk.visit("") as browser, desk.visit("") as fresh:
        id = await refunding(bob)
        request = await asked(bob, id)
        await signed_in(browser, desk.tokens["ann"])
        form = {"call": request["call"]["code"]}
        path = f"/ui/tasks/{id}/requests/{request['id']}/approve"
        attacks = [
            await browser.post(path, data=form, headers=dict(headers)),
            await browser.post(path_of(id, "answers"), json=approval_of(request), headers=dict(headers)),
            await fresh.post("/login", data={"token": desk.tokens["bob"]}, headers=dict(headers)),
            await browser.post("/logout", headers=dict(headers)),
        ]
        standing_now = await asked(bob, id)
        await bob.post(path_of(id, "cancel"))

    assert [response.status_code for response in attacks] == [403] * 4
    assert not any("set-cookie" in response.headers for response in attacks)
    assert standing_now["id"] == request["id"]


async def test_a_personal_sign_in_leads_to_no_other_place(desk: Office) -> None:
    async with desk.visit("") as browser:
        places = [
            (await browser.post("/login", data={"token": desk.tokens["ann"], "next": next})).headers["location"]
            for next in ("https://evil.example/ui/", "//evil.example/ui/", "/ui/\\evil.example")
        ]

    assert set(places) == {"/ui/inbox"}


# Settings


@pytest.mark.parametrize("wrong", ["a door without people", "a key of nobody", "a withdrawn key", "an open key"])
def test_a_door_that_cannot_vouch_does_not_start(server: DevServer, tmp_path: Path, wrong: str) -> None:
    door, people = Signer.new(tmp_path / "door.key", "desk"), tmp_path / "people.json"
    key = door.public_key(NOW)
    keys = {"a withdrawn key": (key.model_copy(update={"withdrawn": NOW}),), "a key of nobody": ()}.get(wrong, (key,))
    PeopleFile(doors=(Door(name="desk", keys=keys),)).write(people)
    if wrong == "an open key":
        (tmp_path / "door.key").chmod(0o644)
    words = ["--door-key", str(tmp_path / "door.key")]
    words += [] if wrong == "a door without people" else ["--people", str(people)]
    done = Processes(server.address, tmp_path).starter("serve", "--port", "0", *words)

    said = {
        "a door without people": "--door-key vouches for the people of --people, which is missing: give both.",
        "a key of nobody": f"vouches for nobody, since no door in the people file has the key {door.id}",
        "a withdrawn key": f"vouches for nobody, since the key {door.id} was withdrawn",
        "an open key": "Others can read or write the key",
    }[wrong]
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr


async def test_with_people_alone_everybody_signs_in(server: DevServer, queue: str, tmp_path: Path) -> None:
    """Also on this machine, and on any address; no claim opens it. Without a door's key nobody is vouched for."""
    office = Office(tmp_path)
    PeopleFile().write(office.file)
    office.person("ann", "finance")
    options = ("--host", "0.0.0.0", "--queue", queue, "--people", str(office.file))  # noqa: S104 - what is tested
    async with serving(server.address, tmp_path, *options) as office.served:
        async with office.visit("") as stranger, office.visit("ann") as ann:
            closed = [await stranger.get("/tasks"), await signed_in(stranger, "", "ann")]
            page = await stranger.get("/login")
            id = await refunding(ann)
            request = await asked(ann, id)
            answer = await approved(ann, id, request)
            office.file.write_text("{")
            broken = await ann.get("/tasks")
        office.file.unlink()

    assert [response.status_code for response in closed] == [401, 401]
    assert 'name="name"' not in page.text and 'name="token"' in page.text
    assert "nobody vouches for who gives it" in answer.text
    assert (broken.status_code, broken.json()["code"]) == (503, "no_people")


@pytest.mark.parametrize(("name", "is_first"), [("ann", True), ("ann", False), ("cleo", True)])
def test_a_claim_of_a_known_name_is_a_claim(office: Office, name: str, is_first: bool) -> None:
    """The operator's session, and the operator's token, vouch for no name, also not for one in the file."""
    door = Signer.read(office.folder / "door.key")
    access = Access(TOKEN, people=KnownPeople(office.file), door=door)
    cookie = {"cookie": f"{COOKIE}={access.sign_in(TOKEN, name)}"}
    visitor = access.visitor(cookie if is_first else {"authorization": f"Bearer {TOKEN}"})

    assert visitor is not None and access.voucher(visitor) is None
    assert visitor.name == (name if is_first else "")
