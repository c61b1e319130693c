"""`replan mcp --http`: agents over HTTP, of both protocols, whose connections break."""

import json
import os
import socket
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest
from mcp import Client as McpClient
from mcp_types import ElicitRequestFormParams, ElicitResult

from extras.gateway.tests.agents import NOT_AGAIN, PATIENCE, Place, said, until
from extras.gateway.tests.http import (
    ACCEPTS,
    NEW,
    OLD,
    Broken,
    Gateway,
    Http,
    answer_of,
    call,
    headers_of,
    message,
    tools_of,
)
from runtime.dev_server import DevServer
from runtime.people_file import Machine, PeopleFile, Person, token_digest
from tests import preloaded
from tests.processes import Processes

TOKEN = "a-token-of-the-tests"  # noqa: S105
BOTH = pytest.mark.parametrize("version", [NEW, OLD])
MODES = pytest.mark.parametrize("mode", ["auto", "legacy"])


def forked(folder: Path) -> Place:
    """A state folder, whose programs are forked."""
    return Place(folder, python=preloaded.python())


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """One whose shop answers when its gate is open."""
    gateway = Gateway(forked(tmp_path_factory.mktemp("http")), "--patience", "2", is_gated=True)
    gateway.place.open_gate()
    yield gateway
    assert gateway.close() == "stopped\n" and not gateway.place.shops()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """One behind a proxy that says who is signed in, which people and programs with tokens of their own reach, too."""
    place = forked(tmp_path_factory.mktemp("guarded"))
    digests = {name: token_digest(own_token(name)) for name in ("cleo", "books", "reader")}
    people = PeopleFile(
        people=(Person(name="cleo", token=digests["cleo"]),),
        machines=(
            Machine(name="books", scopes=("start",), token=digests["books"]),
            Machine(name="reader", scopes=("read", "answer"), token=digests["reader"]),
        ),
    )
    file = place.state.parent / "people.json"
    people.write(file)
    gateway = Gateway(place, REPLAN_IDENTITY_HEADER="X-User", REPLAN_TOKEN=TOKEN, REPLAN_PEOPLE=str(file))
    yield gateway
    gateway.close()


@pytest.fixture(scope="module")
def attended(tmp_path_factory: pytest.TempPathFactory, server: DevServer) -> Iterator[Gateway]:
    """One whose payments need an approval, with persons at its clients."""
    folder, queue = tmp_path_factory.mktemp("attended"), f"q-{uuid.uuid4().hex[:8]}"
    place = Place(folder, server.address, preloaded.python(), ("--tasks", "--queue", queue))
    file = place.tools_file('[servers.shop.tools.pay]\neffect = "unkeyed"\napprove = "always"\n')
    with Processes(server.address, folder, {"REPLAN_QUEUE": queue}).worker("--tools", str(file)):
        gateway = Gateway(place, "--tools", str(file), "--attended", "--patience", "2")
        yield gateway
        gateway.close()


def paid(gateway: Gateway, who: str) -> int:
    return gateway.place.paid.count(who)


@BOTH
def test_a_session_is_named_by_path_header_or_meta(gateway: Gateway, session: str, version: str) -> None:
    """Each of them; without one it is of the connection, so that nobody else sees its calls."""
    with Http(f"{gateway.url}/{session}-p", version) as agent:
        agent.call("pay", {"who": session})
        named = agent.call("replan_effects", {}, {"replan_session": f"{session}-h"})
        agent.call("pay", {"who": session}, {"replan_session": f"{session}-h"})
        agent.call("pay", {"who": session}, session=f"{session}-m")
        of_meta = agent.call("replan_effects", {}, session=f"{session}-m")["structuredContent"]["effects"]
        of_path = agent.call("replan_effects", {})["structuredContent"]["effects"]
    with Http(gateway.url, version) as other:
        assert said(other.call("book", {})).count(session) == 3
        assert other.call("replan_effects", {})["structuredContent"]["effects"] == []

    assert named["structuredContent"]["effects"] == []
    assert len(of_meta) == len(of_path) == 1 and of_meta[0]["id"] != of_path[0]["id"]


def test_an_answer_that_was_cut_off_belongs_to_the_next_equal_call(gateway: Gateway, session: str) -> None:
    """The connection breaks while a payment is made: one payment, and the answer on the next connection."""
    gateway.place.gate.unlink()
    broken = Broken(gateway, call("pay", {"who": session}), f"/{session}")
    until(lambda: paid(gateway, session) == 1)
    broken.cut()
    with Http(f"{gateway.url}/{session}") as agent:
        # As after a break in a network, the agent's second request may come while the first payment is still made.
        gateway.place.open_gate()
        again = agent.call("pay", {"who": session})
        wanted = agent.call("pay", {"who": session})

    assert NOT_AGAIN in said(again)
    assert NOT_AGAIN not in said(wanted)
    assert paid(gateway, session) == 2


def cancel(agent: Http, url: str, number: int) -> int:
    """Say on a connection of its own that a request was given up; returns the status."""
    told = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}}
    return httpx2.post(url, json=told, headers={**ACCEPTS, **agent.headers}).status_code


def test_a_call_whose_cancel_came_before_it_is_not_made(gateway: Gateway, session: str) -> None:
    """The two are on connections of their own, and the cancel may overtake."""
    url, made = f"{gateway.url}/{session}", list[int]()
    with Http(url, OLD) as agent:
        cancel(agent, url, 77)
        for number in (77, 78):
            pay = message("tools/call", call("pay", {"who": session}), version=OLD, number=number)
            httpx2.post(url, json=pay, headers={**ACCEPTS, **agent.headers})
            made.append(paid(gateway, session))

    assert made == [0, 1]


def test_a_cancel_that_comes_after_the_answer_says_that_it_was_not_read(gateway: Gateway, session: str) -> None:
    """The client had given up when the answer came; what it then calls on another connection is the same call."""
    url = f"{gateway.url}/{session}"
    with Http(url, OLD) as agent, Http(url, OLD) as other:
        agent.call("pay", {"who": session})
        status = cancel(agent, url, agent.number)
        again = other.call("pay", {"who": session})

    assert status == 202 and NOT_AGAIN in said(again)
    assert paid(gateway, session) == 1


@BOTH
def test_a_client_that_leaves_at_once_has_left_a_call_that_is_made_once(
    gateway: Gateway, session: str, version: str
) -> None:
    """Perhaps before the gateway has begun with it: the next equal call is that one."""
    with Http(f"{gateway.url}/{session}", version) as agent:
        more = {"mcp_session_id": agent.headers["mcp-session-id"]} if version == OLD else {}
        for number in range(10):
            who = {"who": f"{session}-{number}"}
            Broken(gateway, call("pay", who), f"/{session}", version=version, **more).cut()
            assert not agent.call("pay", who).get("isError")

    assert [paid(gateway, f"{session}-{number}") for number in range(10)] == [1] * 10


def test_an_answer_that_nobody_may_have_read_belongs_to_the_next_equal_call(gateway: Gateway, session: str) -> None:
    """It was written to a connection that then was closed: nobody knows, unless a later call proves it."""
    lost = Broken(gateway, call("pay", {"who": session}), f"/{session}")
    lost.peek()
    lost.cut()
    with Http(f"{gateway.url}/{session}") as agent:
        asked = agent.call("pay", {"who": session})
    with Http(f"{gateway.url}/{session}-2") as other:
        for _ in range(2):
            assert not other.call("pay", {"who": session}).get("isError")

    assert NOT_AGAIN in said(asked)
    assert paid(gateway, session) == 3


def test_a_client_goes_on_in_its_session_although_each_request_has_a_connection(gateway: Gateway, session: str) -> None:
    """On this machine nothing is lost on the way: an equal call of the same session is another one."""
    with Http(f"{gateway.url}/{session}", OLD, connection="close") as agent:
        for _ in range(2):
            assert not agent.call("pay", {"who": session}).get("isError")
            agent.call("book", {})
        agent.call("pay", {"who": session})
        assert NOT_AGAIN not in said(agent.call("pay", {"who": session}))
    assert paid(gateway, session) == 4


def test_a_proxy_proves_no_delivery(gateway: Gateway, session: str) -> None:
    """Its connections carry the requests of several agents."""
    with Http(f"{gateway.url}/{session}", via="1.1 proxy") as agent:
        agent.call("pay", {"who": session})
        agent.call("book", {})
        asked = agent.call("pay", {"who": session})

    assert NOT_AGAIN in said(asked)
    assert paid(gateway, session) == 1


@BOTH
def test_a_key_in_a_header_is_one_call(gateway: Gateway, session: str, version: str) -> None:
    """For clients that cannot send `_meta`; other arguments are a conflict."""
    key = {"replan_key": "order-1", "replan_session": session}
    with Http(gateway.url, version) as agent:
        first = agent.call("pay", {"who": session}, key)
        conflict = agent.call("pay", {"who": "bob"}, key)
    with Http(gateway.url, version) as again:
        second = again.call("pay", {"who": session}, key)
        effects = again.call("replan_effects", {}, {"replan_session": session})["structuredContent"]["effects"]

    assert said(first) == said(second) and len(effects) == 1
    assert conflict["structuredContent"]["code"] == "conflict"
    assert paid(gateway, session) == 1


async def test_the_clients_of_the_sdk_can_use_it(gateway: Gateway, session: str) -> None:
    """Of both protocols."""
    for mode in ("auto", "legacy"):
        async with McpClient(f"{gateway.url}/{session}-{mode}", mode=mode) as agent:
            gateway.place.gate.unlink()
            until(lambda: not gateway.place.gate.exists())
            tools = {tool.name for tool in (await agent.list_tools()).tools}
            result = await agent.call_tool("book", {})
            resource = await agent.read_resource("shop://rules")
            gateway.place.open_gate()
            payment = await agent.call_tool("pay", {"who": session})

        assert {"pay", "book", "replan_outcome"} <= tools
        assert not result.is_error
        assert not payment.is_error
        assert resource.contents


def test_another_website_and_another_host_are_refused(gateway: Gateway) -> None:
    """Also for what only reads, since a website can let its name stand for this machine."""
    for headers in ({"host": "evil.example"}, {"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}):
        for method in ("POST", "GET"):
            response = httpx2.request(method, gateway.url, headers={**ACCEPTS, **headers}, content=b"{}")
            assert response.status_code in (403, 421), headers


ODD: list[tuple[str, dict[str, str], int]] = [
    ("/a%20b", {}, 400),
    ("/..%2Fx", {}, 404),
    ("", {"replan-session": "x" * 65}, 400),
    ("", {"replan-session": "a:b"}, 400),
    ("", {"replan-key": "k" * 501}, 400),
    ("/a.b", {"replan-session": "x" * 64, "replan-key": "k" * 500}, 200),
]


@pytest.mark.parametrize(("path", "headers", "status"), ODD)
def test_odd_names_and_keys_are_refused(gateway: Gateway, path: str, headers: dict[str, str], status: int) -> None:
    """In one sentence, as a mistake of the client; the request is one that is answered under other names."""
    body = message("tools/list", {})
    response = httpx2.post(f"{gateway.url}{path}", json=body, headers=headers_of(body, headers))

    assert response.status_code == status, response.text
    assert "Traceback" not in response.text


def test_a_session_belongs_to_its_principal(guarded: Gateway, session: str) -> None:
    """Two principals with one session name and one key are two sessions; neither sees what the other did."""
    signed_in = {"authorization": f"Bearer {TOKEN}", "replan_session": session}
    ann, bob = ({**signed_in, "x_user": name} for name in ("ann", "bob"))
    with Http(guarded.url, OLD, **ann) as hers, Http(guarded.url, OLD, **bob) as his:
        first = hers.call("pay", {"who": session}, {"replan_key": "1"})
        second = his.call("pay", {"who": session}, {"replan_key": "1"})
        her_id = hers.call("replan_effects", {})["structuredContent"]["effects"][0]["id"]
        for tool in ("replan_outcome", "replan_explain", "replan_undo"):
            assert his.call(tool, {"id": her_id})["isError"], tool
        stolen = his.post("tools/list", {}, mcp_session_id=hers.headers["mcp-session-id"])

    assert NOT_AGAIN not in said(first) + said(second)
    assert paid(guarded, session) == 2
    assert stolen.status_code == 404


def own_token(name: str) -> str:
    return f"the-token-of-{name}"


def test_people_and_programs_have_tokens_of_their_own(guarded: Gateway, session: str) -> None:
    """A session of one of them is nobody else's; a program that may not start tasks calls no tool."""
    about = {"replan_session": session}
    cleo, books = ({**about, "authorization": f"Bearer {own_token(name)}"} for name in ("cleo", "books"))
    with Http(guarded.url, NEW, **cleo) as hers, Http(guarded.url, NEW, **books) as its:
        hers.call("pay", {"who": session}, {"replan_key": "1"})
        its.call("pay", {"who": session}, {"replan_key": "1"})
    reader = {**ACCEPTS, "authorization": f"Bearer {own_token('reader')}"}
    refused = httpx2.post(guarded.url, json={}, headers=reader)

    assert paid(guarded, session) == 2
    assert (refused.status_code, refused.json()["code"]) == (403, "no_scope")


def test_without_the_token_nobody_is_let_in(guarded: Gateway) -> None:
    """Nor without the header that says who it is."""
    proxy = [("authorization", f"Bearer {TOKEN}")]
    for headers, status in (
        ([], 401),
        ([("authorization", "Bearer wrong")], 401),
        (proxy, 403),
        ([*proxy, ("x-user", "bob"), ("x-user", "ann")], 403),  # one of them may be the client's
    ):
        response = httpx2.post(guarded.url, json={}, headers=[*ACCEPTS.items(), *headers])
        assert response.status_code == status, headers
        assert TOKEN not in response.text


def test_the_tools_of_running_workers(tmp_path: Path, server: DevServer, session: str) -> None:
    """`--queue`: the gateway, a fresh interpreter here, starts no worker, and its reads are tasks, too."""
    place = Place(tmp_path, server.address)
    processes = Processes(server.address, tmp_path, {"REPLAN_QUEUE": session})
    with processes.worker("--tools", str(tools_of(place))):
        gateway = Gateway(place, "--queue", session, REPLAN_PAGE="https://replan.example")
        try:
            with Http(f"{gateway.url}/{session}") as agent:
                listed = answer_of(agent.post("tools/list", {}))["result"]["tools"]
                result = agent.call("pay", {"who": session})
                seen = agent.call("book", {"who": ""})
        finally:
            assert gateway.close() == "stopped\n"

    pay = next(one for one in listed if one["name"] == "pay")
    assert pay["outputSchema"]["properties"].keys() == {"who"}
    assert result["structuredContent"] == {"who": session}
    assert said(seen) == f'["{session}"]'


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--http", "8700", "--", "true"], "is no HOST:PORT"),
        (["--http", "0.0.0.0:8700", "--", "true"], "would let everybody"),
        (["--http", "127.0.0.1:99999", "--", "true"], "is no HOST:PORT"),
        ([], "has no tools"),
    ],
)
def test_mistakes_of_the_command_line(tmp_path: Path, words: list[str], reason: str) -> None:
    """Each ends with usage, and the reason."""
    ended = preloaded.run(["mcp", "--state", str(tmp_path / "state"), *words], os.environ, PATIENCE)

    assert ended.returncode == 2
    assert reason in ended.stderr


def test_a_folder_has_one_gateway_and_a_port_one_server(gateway: Gateway, tmp_path: Path) -> None:
    """The second is told so."""
    for state, port, reason in (
        (gateway.place.state, 0, "runs in"),
        (tmp_path / "state", gateway.port, "listens at 127.0.0.1"),
    ):
        where = ["--state", str(state), "--http", f"127.0.0.1:{port}"]
        shop = [*gateway.place.shop, str(gateway.place.gate)]
        command = [gateway.place.python, "-m", "replan", "mcp", *where, "--", *shop]
        environment = gateway.place.environment
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE)
        assert ended.returncode == 2 and reason in ended.stderr
        assert "Traceback" not in ended.stderr


def test_a_client_that_stops_in_its_request_harms_nobody(gateway: Gateway, session: str) -> None:
    """Half a request, and a connection on which nothing is sent."""
    half = socket.create_connection(("127.0.0.1", gateway.port))
    half.sendall(b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 100\r\n\r\n{")
    silent = socket.create_connection(("127.0.0.1", gateway.port))
    with Http(f"{gateway.url}/{session}") as agent:
        assert agent.call("pay", {"who": session})["content"]
    half.close()
    silent.close()


@MODES
async def test_the_person_at_an_attended_client_is_asked_there(
    attended: Gateway, session: str, mode: Literal["auto", "legacy"]
) -> None:
    """Both protocols; the question shows the call, and a client without a person is not asked."""
    shown, answers = list[str](), ["reject", "approve"]

    async def answer(context: object, params: ElicitRequestFormParams) -> ElicitResult:
        shown.append(params.message)
        return ElicitResult(action="accept", content={"answer": answers.pop(), "words": "not now"})

    async with McpClient(f"{attended.url}/{session}", mode=mode, elicitation_callback=answer) as agent:  # type: ignore[arg-type]
        approved = await agent.call_tool("pay", {"who": session})
        rejected = await agent.call_tool("pay", {"who": f"{session}-2"})
    async with McpClient(f"{attended.url}/{session}-3", mode=mode) as alone:
        waits = await alone.call_tool("pay", {"who": f"{session}-3"})

    assert not approved.is_error
    assert rejected.is_error
    assert "not now" in rejected.content[0].text  # type: ignore[union-attr]
    assert [session in message for message in shown] == [True, True]
    assert "A person is asked" in waits.content[0].text  # type: ignore[union-attr]
    assert attended.place.paid.count(session) == 1
    assert not {f"{session}-2", f"{session}-3"} & {*attended.place.paid}


@MODES
async def test_the_person_at_an_attended_client_says_what_nobody_knows(
    tmp_path: Path, session: str, mode: Literal["auto", "legacy"]
) -> None:
    """Without tasks, too: the call is made again only if they say that it was not done."""
    shown, answers = list[str](), ["applied", "not-applied"]

    async def answer(context: object, params: ElicitRequestFormParams) -> ElicitResult:
        shown.append(params.message)
        return ElicitResult(action="accept", content={"answer": answers.pop()})

    gateway = Gateway(forked(tmp_path), "--attended")
    try:
        async with McpClient(f"{gateway.url}/{session}", mode=mode, elicitation_callback=answer) as agent:  # type: ignore[arg-type]
            result = await agent.call_tool("refuse", {})
    finally:
        gateway.close()

    assert len(shown) == 2 and all("The outcome of shop.refuse is unknown" in words for words in shown)
    assert not any("settle" in words.lower() for words in shown), "the person is asked, and needs no command"
    assert result.is_error and "was applied, but its result is not known" in result.content[0].text  # type: ignore[union-attr]
    assert gateway.place.paid == ["refused", "refused"]


async def test_an_input_of_another_session_is_refused(attended: Gateway, session: str) -> None:
    """What was shown is named by the client: it must be of its session, and the call that was shown."""
    able: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
    said = {"person": {"action": "accept", "content": {"answer": "approve"}}}
    with Http(f"{attended.url}/{session}") as agent:
        params = {**call("pay", {"who": session}), "_meta": able}
        state = answer_of(agent.post("tools/call", params))["result"]["requestState"]
        task_id, request, code, sent = json.loads(state)
        others = ([task_id, request, "other", sent], [f"x{task_id}", request, code, sent])
        for bad in ("x", "[]", *map(json.dumps, others)):
            tried = answer_of(agent.post("tools/call", {**params, "requestState": bad, "inputResponses": said}))
            assert "error" in tried or tried["result"].get("isError"), tried
    with Http(f"{attended.url}/{session}-2") as other:
        stolen = answer_of(other.post("tools/call", {**params, "requestState": state, "inputResponses": said}))

    assert "error" in stolen
    assert session not in attended.place.paid
