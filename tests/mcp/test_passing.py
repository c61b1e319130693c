"""The socket on which a gateway reaches the servers of a worker: what is passed on, what is refused, who is cut off."""

import asyncio
import json
import os
import signal
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from activities.toolbox.http.network import Web
from activities.toolbox.mcp import passing
from activities.toolbox.mcp.loading import ForeignTools
from activities.toolbox.mcp.servers import Servers
from activities.toolbox.registry import Registry
from replan import tool
from runtime.dev_server import DevServer
from tests.mcp.bad_server import OFFERS
from tests.mcp.foreign import lines, loaded, serving, table, wait_until, written
from tests.processes import Processes

Message = dict[str, Any]
FILE = """
only = ["do", "look", "count"]
[servers.shop.tools.do]
effect = "keyed"
key = "text"
[servers.shop.tools.count]
approve = "always"
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> ForeignTools:
    """Tools of a server that has resources and prompts, too."""
    return loaded(tmp_path_factory.mktemp("shop"), table("offers") + FILE)


class Amount(BaseModel):
    cents: int


@tool.pure
def double(args: Amount) -> Amount:
    """Double an amount."""
    return Amount(cents=2 * args.cents)


@tool.unkeyed
async def pay(args: Amount) -> str:
    """Pay an amount."""
    return "paid"


class Gateway:
    """A client of the socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, message: object) -> None:
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.writer.write(line + b"\n")
        await self.writer.drain()

    async def hear(self) -> Message:
        """The next line."""
        async with asyncio.timeout(30):
            found: Message = json.loads(await self.reader.readline())
            return found

    async def ask(self, id: int | str, method: str, server: str | None = "shop", **params: object) -> Message:
        """The result or the error of a request, when no other line comes before."""
        await self.send({"id": id, "method": method, "params": params} | ({"server": server} if server else {}))
        answer = await self.hear()
        assert answer["id"] == id, answer
        return answer


@asynccontextmanager
async def opened(folder: Path, foreign: ForeignTools) -> AsyncIterator[Path]:
    """The path of a socket that a worker with these tools listens on."""
    path = folder / "socket"
    registry = Registry({double: "", pay: "", **foreign.tools})
    servers = Servers(foreign.configs, None, Web())
    servers.expect(foreign.listings)
    async with servers.opened(), passing.listening(path, registry, foreign, servers):
        yield path


@asynccontextmanager
async def connected(path: Path) -> AsyncIterator[Gateway]:
    reader, writer = await asyncio.open_unix_connection(str(path), limit=2**26)
    try:
        yield Gateway(reader, writer)
    finally:
        writer.close()


@asynccontextmanager
async def gateway(folder: Path, foreign: ForeignTools) -> AsyncIterator[Gateway]:
    async with opened(folder, foreign) as path, connected(path) as client:
        yield client


async def test_the_tools_are_as_their_servers_list_them(tmp_path: Path, shop: ForeignTools) -> None:
    """With what Replan knows of them; without arguments that it fills in, and tools that only it calls."""
    async with gateway(tmp_path, shop) as client:
        result = (await client.ask(1, "replan/tools", None))["result"]
    tools = {found["kind"]: found for found in result["tools"]}
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}

    assert result["servers"] == {
        "shop": {
            "info": {"name": "bad", "version": "1"},
            "capabilities": {
                "tools": {"listChanged": True},
                "resources": {"subscribe": True, "listChanged": True},
                "logging": {},
                "completions": {},
            },
            "instructions": "Look first.",
            "protocol": "2025-11-25",
        }
    }
    assert tools["shop.look"] == {
        "kind": "shop.look",
        "server": "shop",
        "name": "look",
        "effect": "read",
        "authority": [],
        "approve": "never",
        "tool": {
            "name": "look",
            "title": "Look",
            "description": "Looks.",
            "inputSchema": schema,
            "annotations": {"readOnlyHint": True},
            "_meta": {"a": 1},
        },
    }
    do = tools["shop.do"]
    assert (do["effect"], do["tool"]["inputSchema"]["properties"]) == ("keyed", {})
    assert tools["shop.count"]["approve"] == "always" and "shop.plain" not in tools


async def test_a_python_tool_is_a_tool_of_mcp(tmp_path: Path, shop: ForeignTools) -> None:
    """Its hints say what it declares; a result that is no object has no schema there."""
    async with gateway(tmp_path, shop) as client:
        result = (await client.ask(1, "replan/tools", None))["result"]
    tools = {found["kind"]: found for found in result["tools"]}
    reads = {"readOnlyHint": True, "idempotentHint": True, "destructiveHint": False}

    assert (tools["double"]["server"], tools["double"]["name"], tools["double"]["effect"]) == (None, "double", "pure")
    assert tools["double"]["tool"]["annotations"] == reads
    assert tools["double"]["tool"]["inputSchema"]["required"] == ["cents"]
    assert tools["double"]["tool"]["outputSchema"]["type"] == "object"
    assert (tools["pay"]["effect"], tools["pay"]["authority"]) == ("unkeyed", ["cents"])
    assert "outputSchema" not in tools["pay"]["tool"] and not tools["pay"]["tool"]["annotations"]["readOnlyHint"]


async def test_what_changes_nothing_is_passed_on(tmp_path: Path, shop: ForeignTools) -> None:
    """Each result is what the server sent, also fields that no protocol has; and so are its errors."""
    given: dict[str, Message] = {
        "resources/read": {"uri": "note:1"},
        "resources/unsubscribe": {"uri": "note:1"},
        "prompts/get": {"name": "greet"},
        "completion/complete": {
            "ref": {"type": "ref/prompt", "name": "greet"},
            "argument": {"name": "a", "value": "r"},
        },
    }
    async with gateway(tmp_path, shop) as client:
        for method in [method for method in OFFERS if method not in ("resources/subscribe", "logging/setLevel")]:
            assert (await client.ask(method, method, **given.get(method, {})))["result"] == OFFERS[method]
        unknown = await client.ask(1, "resources/read", uri="note:unknown")
        look = await client.ask(2, "tools/call", name="look", arguments={"text": "a"})

    error = {"code": -32002, "message": "Resource not found", "data": {"uri": "note:unknown"}}
    assert unknown["error"] == error
    assert look["result"]["content"] == [{"type": "text", "text": "done"}]


async def test_a_server_s_own_error_is_unchanged(tmp_path: Path, shop: ForeignTools) -> None:
    foreign = serving(shop, "error", "--code", 7, "--message", "seven")
    async with gateway(tmp_path, foreign) as client:
        answer = await client.ask(1, "tools/call", name="look")

    assert answer["error"] == {"code": 7, "message": "seven"}


async def test_requests_reach_one_process(tmp_path: Path, shop: ForeignTools) -> None:
    """A server may keep state: all clients and the worker's own calls have the same one."""
    starts = tmp_path / "starts"
    foreign = serving(shop, "offers", "--starts", starts)
    async with opened(tmp_path, foreign) as path, connected(path) as first, connected(path) as second:
        await first.ask(1, "tools/call", name="look")
        await second.ask(1, "resources/list")

    assert len(lines(starts)) == 1


REFUSED: dict[str, tuple[Message, int, str]] = {
    "an effect": ({"method": "tools/call", "params": {"name": "do"}}, -32602, "effects go through tasks"),
    "left out": ({"method": "tools/call", "params": {"name": "plain"}}, -32602, "offers no tool 'plain'"),
    "unknown tool": ({"method": "tools/call", "params": {"name": "loook"}}, -32602, "look"),
    "no name": ({"method": "tools/call", "params": {}}, -32602, "offers no tool"),
    "odd name": ({"method": "tools/call", "params": {"name": ["do"]}}, -32602, "offers no tool"),
    "approval": ({"method": "tools/call", "params": {"name": "count"}}, -32602, "approves calls"),
    "list of tools": ({"method": "tools/list"}, -32601, "tools/list"),
    "unknown method": ({"method": "shop/burn"}, -32601, "shop/burn"),
    "odd method": ({"method": {"a": 1}}, -32601, "it takes"),
    "unknown server": ({"method": "tools/call", "server": "other"}, -32602, "'other'"),
    "a Python tool": ({"method": "tools/call", "server": None, "params": {"name": "double"}}, -32602, "there is shop"),
    "odd params": ({"method": "resources/list", "params": [1]}, -32602, "objects"),
    "odd meta": ({"method": "resources/list", "params": {"_meta": 1}}, -32602, "objects"),
}


async def test_everything_else_is_refused(tmp_path: Path, shop: ForeignTools) -> None:
    """With a sentence; nothing of it reaches the server."""
    log = tmp_path / "log"
    wrong = list[str]()
    async with gateway(tmp_path, serving(shop, "offers", "--log", log)) as client:
        for name, (message, code, words) in REFUSED.items():
            await client.send({"id": name, "server": "shop", **message})
            answer = await client.hear()
            if (answer["id"], answer["error"]["code"]) != (name, code) or words not in answer["error"]["message"]:
                wrong.append(f"{name}: {answer}")

    assert wrong == [] and lines(log) == []


HOSTILE: dict[str, tuple[bytes, int]] = {
    "no JSON": (b"hello", -32700),
    "half": (b'{"id": 1', -32700),
    "no UTF-8": (b'{"id": "\xff"}', -32700),
    "surrogate": (rb'{"id": "\ud800"}', -32700),
    "NaN": (b'{"id": NaN}', -32700),
    "deep": (b"[" * 100_000 + b"]" * 100_000, -32700),
    "a list": (b"[1]", -32600),
    "null": (b"null", -32600),
    "no id": (b'{"method": "replan/tools"}', -32600),
    "null id": (b'{"id": null, "method": "replan/tools"}', -32600),
    "true id": (b'{"id": true, "method": "replan/tools"}', -32600),
    "fraction": (b'{"id": 1.0, "method": "replan/tools"}', -32600),
    "list id": (b'{"id": [1], "method": "replan/tools"}', -32600),
    "huge id": (b'{"id": 1' + b"0" * 4000 + b', "method": "replan/tools"}', -32600),
    "long id": (b'{"id": "' + b"x" * 300 + b'", "method": "replan/tools"}', -32600),
    "odd cancel": (b'{"cancel": {"a": 1}}', -32600),
}


async def test_hostile_lines_get_an_error_and_harm_nobody(tmp_path: Path, shop: ForeignTools) -> None:
    """The connection goes on, and so do others."""
    wrong = list[str]()
    async with opened(tmp_path, shop) as path, connected(path) as client, connected(path) as other:
        for name, (line, code) in HOSTILE.items():
            await client.send(line)
            answer = await client.hear()
            if (answer["id"], answer["error"]["code"]) != (None, code):
                wrong.append(f"{name}: {answer}")
        await client.send(b"")
        await client.send({"cancel": 12345})
        deep: Any = {}
        for _ in range(150):
            deep = {"a": deep}
        assert "result" in await client.ask(1, "tools/call", name="look", arguments=deep)
        assert "result" in await other.ask(1, "resources/list")

    assert wrong == []


async def test_a_line_that_is_too_long_closes_the_connection(tmp_path: Path, shop: ForeignTools) -> None:
    """After an error; a line of 7 MB is taken."""
    async with opened(tmp_path, shop) as path, connected(path) as client, connected(path) as other:
        assert "result" in await client.ask(1, "tools/call", name="look", arguments={"text": "x" * 7_000_000})
        client.writer.write(b"x" * 9_000_000)
        answer = await client.hear()
        with pytest.raises((ConnectionError, json.JSONDecodeError)):
            await client.hear()
        assert "result" in await other.ask(1, "resources/list")

    assert answer["id"] is None and "8388608 bytes" in answer["error"]["message"]


async def test_an_id_names_one_request_at_a_time(tmp_path: Path, shop: ForeignTools) -> None:
    """The second is refused, the first is answered, and then the id is free."""
    request = {"id": 1, "server": "shop", "method": "tools/call", "params": {"name": "look"}}
    async with gateway(tmp_path, serving(shop, "slow", "--delay", 0.5)) as client:
        await client.send(request)
        await client.send(request)
        await client.send({**request, "id": "1"})
        refused, *answers = [await client.hear() for _ in range(3)]
        again = await client.ask(1, "tools/call", name="look")

    assert (refused["id"], refused["error"]["data"]) == (None, {"id": 1})
    assert sorted(str(answer["id"]) for answer in answers if "result" in answer) == ["1", "1"] and "result" in again


def cancelled(log: Path) -> int:
    return sum("notifications/cancelled" in line for line in lines(log))


async def test_a_request_is_cancelled(tmp_path: Path, shop: ForeignTools) -> None:
    """By its id, or with the connection: the server is told, and no answer comes. Others go on."""
    log = tmp_path / "log"
    call = {"server": "shop", "method": "tools/call", "params": {"name": "look"}}
    async with opened(tmp_path, serving(shop, "never", "--log", log)) as path, connected(path) as other:
        async with connected(path) as client:
            await client.send({"id": 1, **call})
            await client.send({"id": 2, **call})
            assert await asyncio.to_thread(wait_until, lambda: sum("tools/call" in line for line in lines(log)) == 2)
            await client.send({"cancel": 1})
            assert await asyncio.to_thread(wait_until, lambda: cancelled(log) == 1)
            assert (await client.ask(1, "resources/list"))["error"]["code"] == -32601  # the id is free
        assert await asyncio.to_thread(wait_until, lambda: cancelled(log) == 2)
        assert "result" in await other.ask(3, "replan/tools", None)


async def test_progress_comes_to_a_request_that_asks_for_it(tmp_path: Path, shop: ForeignTools) -> None:
    """A token in `_meta` is not passed on: on the connection, which is shared, it would name another request."""
    log, call = tmp_path / "log", {"server": "shop", "method": "tools/call"}
    params = {"name": "look", "_meta": {"progressToken": "mine", "mine": 1}}
    async with gateway(tmp_path, serving(shop, "progress", "--log", log)) as client:
        await client.send({"id": 1, **call, "params": params})
        first = await client.hear()
        await client.send({"id": 2, **call, "params": params, "progress": True})
        heard = [await client.hear() for _ in range(4)]
    metas = [json.loads(line)["params"]["_meta"] for line in lines(log) if "tools/call" in line]

    assert first["id"] == 1
    assert {"progress": {"id": 2, "progress": 1.0, "total": 3.0, "message": "step 1"}} in heard
    assert sum("progress" in line for line in heard) == 3 and sum(line.get("id") == 2 for line in heard) == 1
    assert [meta["mine"] for meta in metas] == [1, 1] and "mine" not in [meta.get("progressToken") for meta in metas]


async def test_every_client_hears_what_a_server_says(tmp_path: Path, shop: ForeignTools) -> None:
    updated = {"method": "notifications/resources/updated", "params": {"uri": "note:1"}}
    logged = {"method": "notifications/message", "params": {"level": "info", "data": "a log line"}}
    async with opened(tmp_path, shop) as path, connected(path) as first, connected(path) as second:
        await second.ask(1, "resources/list")
        await first.send({"id": 1, "server": "shop", "method": "resources/subscribe", "params": {"uri": "note:1"}})
        await first.send({"id": 2, "server": "shop", "method": "logging/setLevel", "params": {"level": "info"}})
        heard = [await first.hear() for _ in range(4)]
        others = [await second.hear() for _ in range(2)]

    assert {"server": "shop", "notification": updated} in heard and {"id": 1, "result": {}} in heard
    assert [line["notification"] for line in others if line["server"] == "shop"] == [updated, logged]


async def test_a_subscription_outlives_a_process_and_another_client(tmp_path: Path, shop: ForeignTools) -> None:
    """A new process is asked again for it, and for the level of logging; it ends with its last client."""
    starts, log, uri = tmp_path / "starts", tmp_path / "log", {"uri": "note:1"}
    foreign = serving(shop, "offers", "--starts", starts, "--log", log)

    def is_asked(method: str, count: int) -> bool:
        return sum(f'"{method}"' in line for line in lines(log)) == count

    async with opened(tmp_path, foreign) as path, connected(path) as first, connected(path) as second:
        for number, client in enumerate((first, second)):
            await client.send({"id": number, "server": "shop", "method": "resources/subscribe", "params": uri})
            await asyncio.to_thread(wait_until, partial(is_asked, "resources/subscribe", number + 1))
        await first.send({"id": 2, "server": "shop", "method": "logging/setLevel", "params": {"level": "info"}})
        await asyncio.to_thread(wait_until, partial(is_asked, "logging/setLevel", 1))
        os.kill(int(lines(starts)[-1]), signal.SIGKILL)
        await asyncio.sleep(0.5)
        await first.send({"id": 3, "server": "shop", "method": "resources/list"})
        assert await asyncio.to_thread(wait_until, partial(is_asked, "resources/subscribe", 3))
        assert await asyncio.to_thread(wait_until, partial(is_asked, "logging/setLevel", 2))
        await first.send({"id": 4, "server": "shop", "method": "resources/unsubscribe", "params": uri})
        while "result" not in (line := await first.hear()) or line["id"] != 4:
            pass
        assert is_asked("resources/unsubscribe", 0)
        second.writer.close()
        assert await asyncio.to_thread(wait_until, partial(is_asked, "resources/unsubscribe", 1))


async def test_a_server_of_the_newer_protocol_has_subscriptions_too(tmp_path: Path, shop: ForeignTools) -> None:
    """By a stream for each resource; clients see no difference."""
    log = tmp_path / "log"
    foreign = serving(shop, "offers", "--era", "modern", "--log", log)
    async with gateway(tmp_path, foreign) as client:
        await client.send({"id": 1, "server": "shop", "method": "resources/subscribe", "params": {"uri": "note:1"}})
        heard = [await client.hear() for _ in range(2)]
        ended = await client.ask(2, "resources/unsubscribe", uri="note:1")
        assert await asyncio.to_thread(wait_until, lambda: cancelled(log) == 1)

    updated = {"method": "notifications/resources/updated", "params": {"uri": "note:1"}}
    assert {"server": "shop", "notification": updated} in heard and {"id": 1, "result": {}} in heard
    assert ended["result"] == {}


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_change_of_the_tools_is_said_once(tmp_path: Path, era: str, shop: ForeignTools) -> None:
    """Also over the newer protocol, where such notifications belong to a subscription of the connection."""
    foreign = serving(shop, "list-changed", "--change", "gone", "--era", era)
    async with gateway(tmp_path, foreign) as client:
        await client.send({"id": 1, "server": "shop", "method": "tools/call", "params": {"name": "look"}})
        heard = [await client.hear() for _ in range(2)]

    assert {"server": "shop", "notification": {"method": "notifications/tools/list_changed"}} in heard
    assert [line["id"] for line in heard if "result" in line] == [1]


async def test_a_read_that_has_changed_is_not_called(tmp_path: Path, shop: ForeignTools) -> None:
    """The gateway was told another one: the worker has to be started again."""
    assert shop.listings["shop"].tools[1].name == "look"
    tools = [replace(found, schema={"type": "object"}) for found in shop.listings["shop"].tools]
    foreign = replace(shop, listings={"shop": replace(shop.listings["shop"], tools=tools)})
    async with gateway(tmp_path, foreign) as client:
        error = (await client.ask(1, "tools/call", name="look"))["error"]

    assert (error["code"], error["data"]) == (-32000, {"code": "needs_person"}) and "has changed" in error["message"]


@pytest.mark.parametrize(("mode", "era"), [("elicitation", "legacy"), ("input-required", "modern")])
async def test_what_a_server_asks_needs_a_task(tmp_path: Path, mode: str, era: str, shop: ForeignTools) -> None:
    """The request fails with the server's words; other requests and calls go on."""
    async with gateway(tmp_path, serving(shop, mode, "--era", era)) as client:
        answers = [await client.ask(number, "tools/call", name="look") for number in (1, 2)]
        other = await client.ask(3, "resources/list")

    for answer in answers:
        assert "only a task can ask a person" in answer["error"]["message"] and "colour" in answer["error"]["message"]
        assert answer["error"]["data"] == {"code": "needs_approval"}
    assert other["error"]["code"] == -32601


async def test_a_server_that_ended_is_started_again(tmp_path: Path, shop: ForeignTools) -> None:
    """The request that it ended with says so; one that cannot be made says why, with a remedy."""
    state = ("--state", tmp_path / "state", "--times", 1)
    async with gateway(tmp_path, serving(shop, "die-before", *state)) as client:
        died = (await client.ask(1, "tools/call", name="look"))["error"]
        again = await client.ask(2, "resources/list")
    async with gateway(tmp_path, serving(shop, "exit-at-start")) as client:
        unmade = (await client.ask(1, "resources/list"))["error"]

    assert died["code"] == -32000 and "gave no answer" in died["message"] and again["error"]["code"] == -32601
    assert unmade["code"] == -32000 and unmade["data"] == {"code": "unreachable"}
    assert "its process ended with 4" in unmade["message"] and "Send it again" in unmade["message"]


async def test_a_server_that_gives_no_answer_ends_the_request_at_the_timeout(tmp_path: Path) -> None:
    """That of the tool; the server is told."""
    foreign, log = loaded(tmp_path, table("never", "--log", tmp_path / "log") + "timeout = 0.7\n"), tmp_path / "log"
    async with gateway(tmp_path, foreign) as client:
        error = (await client.ask(1, "tools/call", name="look"))["error"]

    assert error["code"] == -32001 and "0.7 s" in error["message"]
    assert wait_until(lambda: cancelled(log) == 1)


@pytest.mark.parametrize("mode", ["flood", "big"])
async def test_a_client_that_does_not_read_is_cut_off(tmp_path: Path, mode: str, shop: ForeignTools) -> None:
    """Whether it is told much or asked for much, after a while; one that reads gets all 3 MB, and 30."""
    call = {"server": "shop", "method": "tools/call", "params": {"name": "look"}}
    count, size = (1, 300) if mode == "flood" else (30, 1_000_000)
    foreign = serving(shop, mode, "--size", size)
    async with opened(tmp_path, foreign) as path, connected(path) as client, connected(path) as silent:
        silent.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a transport of both ways
        for number in range(count):
            await client.send({"id": number, **call})
            if mode == "big":
                await silent.send({"id": number, **call})
        heard = [await client.hear() for _ in range(301 if mode == "flood" else 30)]
        await asyncio.sleep(2.5 * passing.STALLED_SECONDS)
        silent.writer.transport.resume_reading()  # type: ignore[attr-defined]
        with pytest.raises((ConnectionError, json.JSONDecodeError)):
            for _ in heard:
                await silent.hear()

    assert {line["id"] for line in heard if "result" in line} == {*range(count)}


async def test_an_old_socket_is_replaced_and_no_other_file(tmp_path: Path, shop: ForeignTools) -> None:
    """A socket that another process listens on, and a file, are left alone."""
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(path))
    async with opened(tmp_path, shop):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with pytest.raises(passing.BadSocket, match="Another process listens"):
            async with opened(tmp_path, shop):
                pass
        async with connected(path) as client:
            assert "result" in await client.ask(1, "resources/list")
    assert not path.exists()

    path.write_text("mine")
    with pytest.raises(passing.BadSocket, match="no socket"):
        async with opened(tmp_path, shop):
            pass
    assert path.read_text() == "mine"

    (long := tmp_path / ("x" * 120)).mkdir()
    with pytest.raises(passing.BadSocket, match="100 bytes"):
        async with opened(long, shop):
            pass
    with pytest.raises(passing.BadSocket, match="No such file"):
        async with opened(tmp_path / "missing", shop):
            pass


def asked(path: Path, *messages: Message) -> list[Message]:
    """The answers to requests, in their order."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(30)
        client.connect(str(path))
        with client.makefile("rwb") as file:
            answers = []
            for message in messages:
                file.write(json.dumps(message).encode() + b"\n")
                file.flush()
                answers.append(json.loads(file.readline()))
            return answers


def test_a_worker_listens_from_ready_to_its_end(server: DevServer, tmp_path: Path) -> None:
    """For its user only; it goes on with a new process of a server that was killed."""
    starts, path = tmp_path / "starts", tmp_path / "socket"
    file = written(tmp_path, table("offers", "--starts", starts))
    look = {"server": "shop", "method": "tools/call", "params": {"name": "look"}}
    processes = Processes(server.address, tmp_path)
    options = ("--dev", "--tools", str(file), "--planner", "offline", "--queue", f"passing-{os.getpid()}")
    with processes.worker(*options, "--mcp-socket", str(path)) as worker:
        mode = stat.S_IMODE(path.stat().st_mode)
        listed, read, refused = asked(
            path,
            {"id": 1, "method": "replan/tools"},
            {"id": 2, **look},
            {"id": 3, **look, "params": {"name": "do"}},
        )
        os.kill(int(lines(starts)[-1]), signal.SIGKILL)
        assert wait_until(lambda: "result" in asked(path, {"id": 1, **look})[0])
        worker.terminate()
        code = worker.wait(30)

    assert mode == 0o600 and "shop.look" in [found["kind"] for found in listed["result"]["tools"]]
    assert read["result"]["structuredContent"]["done"] and "go through tasks" in refused["error"]["message"]
    assert len(lines(starts)) == 3 and code == 0 and not path.exists()


def test_a_worker_whose_socket_cannot_be_opened_says_why(server: DevServer, tmp_path: Path) -> None:
    processes = Processes(server.address, tmp_path)
    path = tmp_path / "missing" / "socket"
    ended = processes.asked("--planner", "offline", "--mcp-socket", str(path))

    assert ended.returncode == 2 and f"--mcp-socket {path} cannot be opened: No such file" in ended.stderr
