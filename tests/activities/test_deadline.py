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


async def slowly(_head: bytes) -> AsyncIterator[bytes]:
    """Say yes after a while."""
    await asyncio.sleep(0.3)
    yield reply(200, b"{}")


async def leading_on(_head: bytes) -> AsyncIterator[bytes]:
    """Send the client elsewhere after a while."""
    await asyncio.sleep(0.3)
    yield reply(307, location="/there")


async def test_before_the_deadline_a_request_is_sent() -> None:
    """In time nothing is different, and what may change something is counted."""
    async with streaming(answering) as server, deadline.client(trust_env=False) as http:
        with deadline.within(10), counted(Sends()) as sends:
            await http.get(server.url)
            await http.post(server.url, json={})

    assert (len(server.requests), sends.all, sends.changes) == (2, 2, 1)


async def test_outside_an_attempt_there_is_no_deadline() -> None:
    """A unit test of a tool needs no boundary."""
    async with streaming(answering) as server, deadline.client(trust_env=False) as http:
        await http.post(server.url, json={})

    assert (len(server.requests), has_changed()) == (1, False)


async def test_after_the_deadline_nothing_is_sent() -> None:
    """Not even a connection is made; it is a timeout, and it proves that nothing happened."""
    async with streaming(answering) as server, deadline.client(trust_env=False) as http:
        with deadline.within(0), pytest.raises(DeadlinePassed) as passed:
            await http.post(server.url, json={})

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


async def test_after_an_earlier_request_nothing_is_proven() -> None:
    """The second request is not sent either, but the first may have changed something."""
    async with streaming(slowly) as server, deadline.client(trust_env=False) as http:
        with deadline.within(0.2), counted(Sends()), pytest.raises(TimeoutError) as passed:
            await http.post(f"{server.url}/first", json={})
            await http.post(f"{server.url}/second", json={})

    assert [head.split()[1] for head in server.requests] == [b"/first"]
    assert classify(passed.value).code is Code.TIMEOUT and not isinstance(passed.value, ToolError)


async def test_a_look_before_proves_nothing_wrong() -> None:
    """A GET changes nothing, so that after it the proof still holds."""
    async with streaming(slowly) as server, deadline.client(trust_env=False) as http:
        with deadline.within(0.2), counted(Sends()), pytest.raises(DeadlinePassed):
            await http.get(f"{server.url}/look")
            await http.post(f"{server.url}/change", json={})

    assert [head.split()[1] for head in server.requests] == [b"/look"]


async def test_a_redirect_is_not_followed_late() -> None:
    """What `httpx2` sends by itself counts like what the tool sends."""
    async with streaming(leading_on) as server, deadline.client(trust_env=False, follow_redirects=True) as http:
        with deadline.within(0.2), counted(Sends()), pytest.raises(TimeoutError):
            await http.post(server.url, json={})

    assert len(server.requests) == 1


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


async def test_a_page_is_not_asked_for_late() -> None:
    """`Web` keeps the deadline, too."""
    async with streaming(lambda _head: whole(reply(200, PAGE))) as server:
        with deadline.within(0), pytest.raises(DeadlinePassed):
            await fetch(server.url)

    assert server.requests == []


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
    """Which methods, in turn."""

    url: str
    methods: list[str]


@tool.unkeyed
async def ask(args: Asked, http: httpx2.AsyncClient) -> Asked:
    """Send several requests."""
    for method in args.methods:
        (await http.request(method, args.url, json={})).raise_for_status()
    return args


OK, REFUSED = reply(200), reply(409)
SEVERAL = {
    "the only one refused": (["POST"], [REFUSED], Applied.NONE),
    "refused after a look": (["GET", "POST"], [OK, REFUSED], Applied.NONE),
    "refused after another": (["POST", "POST"], [OK, REFUSED], Applied.UNKNOWN),
    "a look refused after another": (["POST", "GET"], [OK, REFUSED], Applied.UNKNOWN),
}


@pytest.mark.parametrize(("methods", "answers", "effect"), SEVERAL.values(), ids=SEVERAL)
async def test_a_refusal_proves_nothing_of_requests_before(
    calls: Bench, methods: list[JsonValue], answers: list[bytes], effect: Applied
) -> None:
    """What a service took before it refused something else has happened, and is not done again."""
    async with serving(*answers) as url:
        fault, _ = await calls.fails(ask, url=url, methods=methods)

    assert (fault.code, fault.applied) == (Code.CONFLICT, effect)


async def test_no_connection_proves_nothing_of_requests_before(calls: Bench) -> None:
    """The first one was taken; then the service was gone."""
    async with streaming(answering) as server:
        fault, _ = await calls.fails(sequel, url=server.url, methods=["POST", "POST"])

    assert (fault.code, fault.applied) == (Code.UNREACHABLE, Applied.UNKNOWN)


@tool.unkeyed
async def sequel(args: Asked, http: httpx2.AsyncClient) -> Asked:
    """Send one request, and one to a port where nobody listens."""
    for method, url in zip(args.methods, (args.url, f"http://127.0.0.1:{free_port()}"), strict=True):
        (await http.request(method, url, json={})).raise_for_status()
    return args


async def late(_head: bytes) -> AsyncIterator[bytes]:
    """Answer later than `httpx2` waits by itself, which is 5 seconds."""
    await asyncio.sleep(5.2)
    yield reply(200, b"{}")


async def test_an_answer_is_waited_for_as_long_as_the_tool_s_timeout_says(calls: Bench) -> None:
    """`timeout=` governs the injected client: 5 seconds are not the end of an attempt that has 30."""
    async with streaming(late) as server:
        back = await calls.call(ask, url=server.url, methods=["POST"])

    assert back.attempt == 1 and len(server.requests) == 1


@tool.unkeyed(timeout=0.6)
async def ask_in_haste(args: Asked, http: httpx2.AsyncClient) -> Asked:
    """Send one request, with little time."""
    (await http.post(args.url, json={})).raise_for_status()
    return args


async def test_a_connection_that_is_not_made_ends_before_the_attempt(calls: Bench) -> None:
    """So that it is known that nothing was sent, however short the tool's timeout is."""
    with deaf() as url:
        fault, _ = await calls.fails(ask_in_haste, url=url, methods=["POST"])

    assert (fault.code, fault.applied) == (Code.UNREACHABLE, Applied.NONE)


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
