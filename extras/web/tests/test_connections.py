"""Connections on which nothing happens keep nobody out, whoever opens them, and fill no disk."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx2
import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from console.serving.connections import FILES, FULL, MAX_HEAD, Connections
from extras.web.tests.serving import TOKEN, Served, path_of, serving, started
from runtime.dev_server import DevServer

PLACES = 40
CROWD = 150
"""Connections that are opened; more than a server with so many PLACES has, and than it may open files."""
MAX_LOG = 2_000
"""Bytes that a server may log meanwhile."""
UNREAD = b"GET /static/style.css HTTP/1.1\r\nHost: x\r\n\r\n" * 500
"""Requests of somebody who reads no response."""
Wire = tuple[asyncio.StreamReader, asyncio.StreamWriter]

BEGINNINGS: Mapping[str, bytes] = {
    "nothing": b"",
    "half a head": b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Y: ",
    "half a body": b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nname=",
    "half a body in pieces": b"POST /login HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nname=\r\n",
}
"""What a client sends before it falls silent."""


@asynccontextmanager
async def wires(port: int, number: int, sent: bytes) -> AsyncIterator[list[Wire]]:
    opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(number)]
    try:
        for _, writer in opened:
            writer.write(sent)
        yield opened
    finally:
        for _, writer in opened:
            writer.transport.abort()


async def answered(visitor: httpx2.AsyncClient, path: str) -> httpx2.Response:
    """The response to a visitor who comes back while the server works on all its connections.

    Of many clients at the same time it tells some that there is no place, and cuts the others off.
    """
    async with asyncio.timeout(5):
        while True:
            with suppress(httpx2.ReadError):
                response = await visitor.get(path)
                if response.status_code != 503:
                    return response
            await asyncio.sleep(0.1)


async def is_over(wire: Wire, within: float) -> bool:
    """Whether the server ends a connection in time, whatever it says before."""
    try:
        await asyncio.wait_for(wire[0].read(), within)
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize("beginning", [*BEGINNINGS.values(), UNREAD], ids=[*BEGINNINGS, "much that it does not read"])
async def test_a_crowd_that_says_nothing_keeps_nobody_out(
    server: DevServer, queue: str, tmp_path: Path, beginning: bytes
) -> None:
    """It has no token, and is larger than the number of files that the server may open."""
    async with (
        serving(server.address, tmp_path, "--queue", queue, token=TOKEN, files=PLACES + FILES) as served,
        wires(served.port, CROWD, beginning),
        served.visit(TOKEN) as program,
        served.visit() as stranger,
    ):
        began = time.monotonic()
        answers = [await answered(program, "/tasks?limit=1"), await answered(stranger, "/login")]
        took = time.monotonic() - began
    log = (tmp_path / "serve.log").read_text()

    assert [one.status_code for one in answers] == [200, 200]
    assert took < 5
    assert len(log) < MAX_LOG, log[:MAX_LOG]


async def test_streams_leave_half_of_the_places_to_others(server: DevServer, queue: str, tmp_path: Path) -> None:
    async with (
        serving(server.address, tmp_path, "--queue", queue, files=PLACES + FILES) as served,
        served.visit() as program,
    ):
        id = await started(program, 905)
        asked = f"GET {path_of(id, 'events')} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        async with wires(served.port, PLACES, asked) as crowd:
            lines = [await asyncio.wait_for(reader.readline(), 10) for reader, _ in crowd]
            task = await program.get(path_of(id))
            streams = [wire for wire, line in zip(crowd, lines, strict=True) if b"200" in line]
            are_open = [not await is_over(wire, 0.01) for wire in streams]
        await program.post(path_of(id, "cancel"))

    assert task.status_code == 200
    assert {line.split()[1] for line in lines} == {b"200", b"503"}
    assert (len(are_open), all(are_open)) == (PLACES // 2, True)


async def test_a_file_limit_that_is_too_low_is_said(server: DevServer, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="needs"):
        async with serving(server.address, tmp_path, files=FILES):
            pass


# How long, with a server of few places and little patience

PATIENCE = 0.4


@asynccontextmanager
async def impatient(most: int) -> AsyncIterator[tuple[int, asyncio.Event]]:
    go = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        if scope["path"] == "/slow":
            await go.wait()
        body = b"x" * (16_000_000 if scope["path"] == "/large" else 2)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body[:-1], "more_body": True})
        await send({"type": "http.response.body", "body": body[-1:]})

    protocol = Connections(most, PATIENCE).protocol
    config = uvicorn.Config(app, port=0, http=protocol, ws="none", lifespan="off", log_config=None)  # type: ignore[arg-type]  # as in `serve`
    listening = config.bind_socket()
    listening.listen()
    running = uvicorn.Server(config)
    serving_it = asyncio.create_task(running._serve([listening]))
    try:
        yield listening.getsockname()[1], go
    finally:
        go.set()
        running.should_exit = running.force_exit = True
        await serving_it


@pytest.mark.parametrize("beginning", BEGINNINGS.values(), ids=BEGINNINGS)
async def test_a_client_that_falls_silent_is_cut_off(beginning: bytes) -> None:
    """Before its request, in its head or in its body, even if it goes on letter by letter."""
    async with impatient(10) as (port, _), wires(port, 1, beginning) as [wire]:
        closing = asyncio.create_task(is_over(wire, 5 * PATIENCE))
        while not closing.done():
            wire[1].write(b"1" if beginning else b"")
            await asyncio.sleep(PATIENCE / 10)

    assert await closing


async def test_a_client_that_reads_nothing_is_cut_off() -> None:
    async with impatient(1) as (port, _), wires(port, 1, b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n") as [wire]:
        wire[1].transport.pause_reading()  # type: ignore[attr-defined]  # it reads, too
        await asyncio.sleep(3 * PATIENCE)
        wire[1].transport.resume_reading()  # type: ignore[attr-defined]
        received = b""
        with suppress(ConnectionError):
            received = await asyncio.wait_for(wire[0].read(), 5)

    assert len(received) < 16_000_000


async def test_requests_that_do_not_wait_for_responses_hold_no_place() -> None:
    """The first is answered, and then the connection ends, as HTTP allows; else its client need never be waited for."""
    request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    async with impatient(1) as (port, _), wires(port, 1, request * 50) as [(reader, _)]:
        answer = b""
        with suppress(ConnectionError):
            answer = await asyncio.wait_for(reader.readuntil(b"xx"), 5)
            answer += await asyncio.wait_for(reader.read(), 5)

    assert answer.count(b"HTTP/1.1 200") == 1


async def test_a_request_may_take_its_time() -> None:
    request = b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"
    async with impatient(1) as (port, go), wires(port, 1, request) as [(reader, writer)]:
        await asyncio.sleep(3 * PATIENCE)
        go.set()
        first = await asyncio.wait_for(reader.readuntil(b"xx"), 5)
        writer.write(request)
        second = await asyncio.wait_for(reader.readuntil(b"xx"), 5)

    assert (first[:15], second[:15]) == (b"HTTP/1.1 200 OK",) * 2


async def test_without_a_place_a_client_is_told_when_to_come_back() -> None:
    """If the server works on all its connections, nobody is cut off for a new one, which gets a problem document."""
    request = b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"
    async with impatient(2) as (port, go), wires(port, 2, request) as working:
        await asyncio.sleep(PATIENCE / 4)
        async with wires(port, 1, request) as [late]:
            refused = await asyncio.wait_for(late[0].read(), 5)
        go.set()
        answers = [await asyncio.wait_for(reader.readuntil(b"xx"), 5) for reader, _ in working]

    assert refused.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 5\r\n" in refused
    assert f'"detail": "{FULL}"'.encode() in refused
    assert all(one.startswith(b"HTTP/1.1 200 ") for one in answers)


async def test_the_longest_silence_makes_room() -> None:
    async with impatient(2) as (port, _), wires(port, 1, b"") as [old], wires(port, 1, b"") as [young]:
        await asyncio.sleep(PATIENCE / 4)
        async with wires(port, 1, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") as [new]:
            answer = await asyncio.wait_for(new[0].readuntil(b"xx"), 5)
            ended = [await is_over(old, PATIENCE / 8), await is_over(young, PATIENCE / 8)]

    assert answer.startswith(b"HTTP/1.1 200 ")
    assert ended == [True, False]


def request_of(size: int, path: str = "/static/style.css") -> bytes:
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nX-Filler: \r\n\r\n".encode()
    return head.replace(b"Filler: ", b"Filler: " + b"x" * (size - len(head)))


async def statuses(port: int, *requests: bytes) -> list[int]:
    """The statuses of requests that are sent one after the other, each at once as a whole, on one connection.

    The last is 0 if the server ended the connection before it had read the request.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    found = list[int]()
    try:
        for sent in requests:
            writer.write(sent)
            found.append(int((await reader.readline()).split()[1]))
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = head.partition(b"content-length: ")[2].split(b"\r\n")[0]
            await reader.readexactly(int(length)) if length else await reader.read()
    except ConnectionResetError:
        found += [0] * (len(requests) - len(found))
    finally:
        writer.transport.abort()
    return found


@pytest.mark.parametrize("size", [MAX_HEAD + 1, 17_000, 60_000, 200_000])
async def test_a_head_has_at_most_16_kib(local: Served, size: int) -> None:
    """Also if it arrives as a whole, as a later one of a connection, or is long in its path."""
    fits, larger = request_of(MAX_HEAD), request_of(size)
    in_path = f"GET /{'x' * size} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()

    assert await statuses(local.port, fits, fits, larger) in ([200, 200, 400], [200, 200, 0])
    assert await statuses(local.port, in_path) in ([400], [0])


async def test_a_large_body_is_no_head(local: Served) -> None:
    """It is read as before, and the connection serves the next request."""
    body = b'{"text": "' + b"x" * 300_000 + b'"}'
    head = b"POST /tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"

    assert await statuses(local.port, head % len(body) + body, request_of(100)) == [422, 200]
