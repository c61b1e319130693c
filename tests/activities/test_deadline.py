"""The deadline of an attempt: nothing is sent after it, however the time went by."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel, JsonValue

from activities import deadline
from activities.borders import classify
from activities.deadline import DeadlinePassed
from activities.errors import ToolError
from activities.sends import Sends, counted, has_changed
from evals.fakes.http_server import reply, serving, streaming
from replan import tool
from runtime.dev_server import free_port
from tests.activities.bench import Bench
from tests.activities.pages import PAGE, fetch, whole
from workflows.faults.fault import Applied, Code, Quadrant

ROOT = Path(__file__).parents[2]


async def answering(_head: bytes) -> AsyncIterator[bytes]:
    """Say yes to everything."""
    yield reply(200, b"{}")


async def slowly(head: bytes) -> AsyncIterator[bytes]:
    """Say yes after a while, or send the client elsewhere."""
    await asyncio.sleep(0.6)
    yield reply(307, location="/there") if b"/elsewhere" in head else reply(200, b"{}")


@pytest.mark.parametrize(
    ("first", "then", "proves"), [("POST", "/second", False), ("GET", "/second", True), ("POST", "/elsewhere", False)]
)
async def test_a_second_request_is_not_sent_late(first: str, then: str, proves: bool) -> None:
    """Nor one that `httpx2` sends by itself; it proves nothing after a request that may have changed something."""
    path = "/first" if then == "/second" else then
    async with streaming(slowly) as server, deadline.client(trust_env=False, follow_redirects=True) as http:
        with deadline.within(0.5), counted(Sends()), pytest.raises((TimeoutError, DeadlinePassed)) as passed:
            await http.request(first, f"{server.url}{path}")
            await http.post(f"{server.url}{then}", json={})

    assert [head.split()[1].decode() for head in server.requests] == [path]
    assert classify(passed.value).code is Code.TIMEOUT
    assert isinstance(passed.value, DeadlinePassed) is isinstance(passed.value, ToolError) is proves


async def test_before_the_deadline_a_request_is_sent() -> None:
    """After it not even a connection is made: a timeout that proves that nothing happened. `Web` keeps it, too."""
    async with streaming(answering) as server, deadline.client(trust_env=False) as http:
        await http.post(server.url, json={})
        outside = has_changed()
        with deadline.within(10), counted(Sends()) as sends:
            await http.get(server.url)
            await http.post(server.url, json={})

    assert (len(server.requests), outside, sends.all, sends.changes) == (3, False, 2, 1)

    async with streaming(lambda _head: whole(reply(200, PAGE))) as server, deadline.client(trust_env=False) as http:
        with deadline.within(0):
            with pytest.raises(DeadlinePassed) as passed:
                await http.post(server.url, json={})
            with pytest.raises(DeadlinePassed):
                await fetch(server.url)

    assert server.requests == [] and isinstance(passed.value, ToolError)
    fault = classify(passed.value)
    assert (fault.code, fault.quadrant) == (Code.TIMEOUT, Quadrant.TRANSIENT_INFRASTRUCTURAL)


async def test_a_request_that_waits_for_a_connection_is_not_sent_late() -> None:
    """The time may go by between the call and the first byte: a full pool. The wait ends before the attempt does."""
    limits = httpx2.Limits(max_connections=1)
    async with streaming(slowly) as server, deadline.client(trust_env=False, limits=limits) as http:
        first = asyncio.create_task(http.get(f"{server.url}/first"))
        await asyncio.sleep(0.1)
        with deadline.within(0.2), pytest.raises(httpx2.PoolTimeout):
            await http.post(f"{server.url}/second", json={})
        await first

    assert [head.split()[1] for head in server.requests] == [b"/first"]


async def test_a_body_is_not_sent_late() -> None:
    """The time may also go by after the headers; a service cannot work on half a request."""
    seen = list[str]()

    async def dawdle(event: str, _info: Mapping[str, Any]) -> None:
        seen.append(event)
        if event.endswith("send_request_headers.complete"):
            await asyncio.sleep(0.3)

    async with serving(reply(200)) as url, deadline.client(trust_env=False) as http:
        with deadline.within(0.2), counted(Sends()), pytest.raises(TimeoutError):
            await http.post(url, json={}, extensions={"trace": dawdle})

    assert "http11.send_request_headers.complete" in seen and "http11.send_request_body.complete" not in seen


FROZEN = """
import asyncio, sys
from activities import deadline

async def main():
    async with deadline.client(trust_env=False) as http:
        with deadline.within(1):
            print("ready", flush=True)
            await asyncio.sleep(0.5)
            try:
                await http.post(sys.argv[1], json={})
            except deadline.DeadlinePassed as passed:
                print(passed, flush=True)

asyncio.run(main())
"""


async def test_a_process_that_was_frozen_sends_nothing_when_it_wakes_up() -> None:
    """Its clock goes on while it is stopped: a SIGSTOP past the deadline ends what it had begun."""
    async with streaming(answering) as server:
        command = [sys.executable, "-c", FROZEN, server.url]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as frozen:
            assert frozen.stdout is not None and frozen.stdout.readline() == "ready\n"
            os.kill(frozen.pid, signal.SIGSTOP)
            await asyncio.sleep(1.2)
            os.kill(frozen.pid, signal.SIGCONT)
            said = await asyncio.to_thread(frozen.stdout.read)

    assert "The deadline of this attempt passed before anything was sent" in said
    assert server.requests == []


class Asked(BaseModel):
    url: str
    methods: list[str]
    last: str = ""


@tool.unkeyed
async def ask(args: Asked, http: httpx2.AsyncClient) -> Asked:
    """Send several requests."""
    for method in args.methods[:-1]:
        (await http.request(method, args.url, json={})).raise_for_status()
    (await http.request(args.methods[-1], args.last or args.url, json={})).raise_for_status()
    return args


OK, REFUSED = reply(200), reply(409)
SEVERAL: list[tuple[list[JsonValue], list[bytes], Applied]] = [
    (["POST"], [REFUSED], Applied.NONE),
    (["GET", "POST"], [OK, REFUSED], Applied.NONE),
    (["POST", "POST"], [OK, REFUSED], Applied.UNKNOWN),
    (["POST", "GET"], [OK, REFUSED], Applied.UNKNOWN),
]


@contextmanager
def deaf() -> Iterator[str]:
    """A port of this machine that accepts no connection and refuses none: its queue is full."""
    with socket.socket() as listener, ExitStack() as waiting:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            client = waiting.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


async def test_a_refusal_proves_nothing_of_requests_before(calls: Bench) -> None:
    """What a service took before it refused something else, or was gone, has happened, and is not done again."""
    for methods, answers, effect in SEVERAL:
        async with serving(*answers) as url:
            fault, _ = await calls.fails(ask, url=url, methods=methods)
        assert (fault.code, fault.applied) == (Code.CONFLICT, effect), methods
    async with serving(OK) as url:
        nobody = f"http://127.0.0.1:{free_port()}"
        fault, _ = await calls.fails(ask, url=url, methods=["POST", "POST"], last=nobody)
    assert (fault.code, fault.applied) == (Code.UNREACHABLE, Applied.UNKNOWN)


async def test_an_answer_is_waited_for_as_long_as_the_tool_s_timeout_says(calls: Bench) -> None:
    """`timeout=` governs the injected client: the 5 seconds of `httpx2` are not the end of an attempt that has 30.

    A connection that is not made ends before the attempt, so that it is known that nothing was sent.
    """

    async def late(_head: bytes) -> AsyncIterator[bytes]:
        await asyncio.sleep(5.2)
        yield reply(200, b"{}")

    hasty = tool.unkeyed(timeout=0.6)(ask.function)
    async with streaming(late) as server:
        back = await calls.call(ask, url=server.url, methods=["POST"])
    with deaf() as url:
        fault, _ = await calls.fails(hasty, url=url, methods=["POST"])

    assert back.attempt == 1 and len(server.requests) == 1
    assert (fault.code, fault.applied) == (Code.UNREACHABLE, Applied.NONE)
