"""`fetch_page` and servers that do not know when to stop: every size and every wait has an end."""

import asyncio
import gzip
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from activities import deadline
from activities.toolbox.declare.tool import Tool, ToolOptions
from activities.toolbox.documents.html import MAX_ELEMENTS
from activities.toolbox.http.fetch_page import MAX_BODY, MAX_TEXT, MAX_TITLE, fetch_page
from activities.toolbox.http.network import MAX_TRAFFIC, Patience
from evals.fakes.http_server import SILENCE, endlessly, reply, streaming
from tests.activities.bench import bench
from tests.activities.pages import HERE, HTML, PAGE, fault_of, fetch, refused, served, stands_for
from workflows.faults.fault import Code, Quadrant

BUFFERS = 10_000_000
"""Bytes that a server can send without being read, whatever the system."""


@pytest.mark.parametrize("length", [b"content-length: 1000000000\r\n\r\n", b"\r\n"], ids=["of 1 GB", "without end"])
async def test_a_page_that_is_too_long_is_cut(length: bytes) -> None:
    """No more is read than is wanted, and the result says that it is not all."""
    part = b"<p>" + b" " * 60_000
    async with streaming(lambda _head: endlessly(HTML + length, part)) as server:
        page = await fetch(server.url)

    assert (page.fetched, page.cut) == (MAX_BODY, f"cut after {MAX_BODY:,} bytes")
    assert server.sent < MAX_BODY + BUFFERS


async def test_a_text_that_is_too_long_is_cut() -> None:
    """The result fits into a history, and says that it is not all."""
    page = await served(reply(200, b"<title>" + b"t" * 999 + b"</title>" + b"w " * MAX_TEXT, content_type="text/html"))

    assert (len(page.text), page.cut) == (MAX_TEXT, f"cut after {MAX_TEXT:,} characters")
    assert len(page.title) == MAX_TITLE


async def test_a_page_of_elements_is_cut_where_it_has_text_and_rejected_where_it_has_none() -> None:
    """A page of 5 MB may have a million elements; what comes before the limit is better than nothing."""
    fault = await refused(reply(200, b"<br>" * (MAX_BODY // 4), content_type="text/html"))
    page = await served(reply(200, b"<p>first" + b"<br>" * (MAX_BODY // 5), content_type="text/html"))

    assert (fault.code, fault.quadrant) == (Code.UNEXPECTED_RESULT, Quadrant.PERSISTENT_SEMANTIC)
    assert f"more than {MAX_ELEMENTS:,} elements" in fault.reason
    assert (page.text, page.cut) == ("first", f"cut where it has more than {MAX_ELEMENTS:,} elements")


async def test_pages_are_parsed_in_threads_of_their_own() -> None:
    """Other work in threads, such as that of tools, does not wait for pages, nor pages for it."""
    loop, done = asyncio.get_running_loop(), threading.Event()
    others = [loop.run_in_executor(None, done.wait) for _ in range(40)]  # more than the loop has threads
    try:
        async with asyncio.timeout(20):
            page = await served(reply(200, PAGE, content_type="text/html"), resolve=stands_for("127.0.0.1"))
    finally:
        done.set()
        await asyncio.gather(*others)

    assert page.title == "Prices"


@pytest.mark.parametrize("media", ["text/html", pytest.param("text/plain", marks=pytest.mark.full)])
async def test_a_gzip_bomb_is_cut(media: str) -> None:
    """It is unpacked no further than to the limit."""
    bomb = gzip.compress(b"<p>" + b"boom " * 40_000_000)
    began = time.process_time()
    page = await served(reply(200, bomb, content_type=media, content_encoding="gzip"))

    assert (page.fetched, len(page.text), bool(page.cut)) == (MAX_BODY, MAX_TEXT, True)
    assert time.process_time() - began < 3


LINE = b"x: " + b"y" * 1_000 + b"\r\n"


@pytest.mark.parametrize(
    ("head", "part"),
    [
        (HTML + b"content-encoding: gzip\r\n\r\n" + gzip.compress(b"")[:10], b"\x00\x00\x00\xff\xff" * 10_000),
        (b"", (b"HTTP/1.1 100 Continue\r\n" + LINE + b"\r\n") * 50),
        (HTML + b"transfer-encoding: chunked\r\n\r\n", (b"1;" + b"x" * 1_000 + b"\r\n \r\n") * 50),
    ],
    ids=["unpacks to nothing", "never begins", "all envelope"],
)
async def test_traffic_without_a_page_is_ended(head: bytes, part: bytes) -> None:
    """What arrives is counted as well as what it is unpacked to."""
    async with streaming(lambda _head: endlessly(head, part)) as server:
        fault = await fault_of(server.url)

    assert fault.code is Code.UNEXPECTED_RESULT and f"{MAX_TRAFFIC:,} bytes" in fault.reason
    assert server.sent < MAX_TRAFFIC + BUFFERS


@pytest.mark.parametrize("headers", [b"x: " + b"y" * 1_000_000 + b"\r\n", LINE * 1_000], ids=["long", "many"])
async def test_huge_headers_are_refused(headers: bytes) -> None:
    """Their limit is the HTTP library's."""
    assert (await refused(HTML + headers + b"\r\n")).code is Code.UNREACHABLE


async def test_a_page_that_drips_is_cut() -> None:
    """What has come in time is better than nothing."""
    async with streaming(lambda _head: endlessly(HTML + b"\r\n", b"<p>drop</p>", pause=0.02)) as server:
        began = time.monotonic()
        page = await fetch(server.url, patience=Patience(reading=0.3))

    assert page.text.startswith("drop") and page.cut == "cut after 0.3 s, when more was still to come"
    assert time.monotonic() - began < 3


@pytest.mark.parametrize("answer", [SILENCE, HTML + b"content-length: 9\r\n\r\nhalf"], ids=["nothing", "half a page"])
async def test_a_server_that_falls_silent_is_tried_again(answer: bytes | None) -> None:
    """A page that stops in the middle is no page."""

    async def half(_head: bytes) -> AsyncIterator[bytes]:
        yield answer or b""
        await asyncio.sleep(5)

    async with streaming(half) as server:
        fault = await fault_of(server.url, patience=Patience(silence=0.2))

    assert (fault.code, fault.quadrant) == (Code.TIMEOUT, Quadrant.TRANSIENT_INFRASTRUCTURAL)


async def test_a_slow_page_is_waited_for_until_the_attempt_ends() -> None:
    """A server may take its time for the first byte, as the tool's timeout says; then the page has to go on."""

    async def late(head: bytes) -> AsyncIterator[bytes]:
        await asyncio.sleep(0.5)
        yield HTML + b"content-length: 4\r\n\r\n" + (b"page" if b"/whole" in head else b"pa")
        await asyncio.sleep(1)

    async with streaming(late) as server:
        with deadline.within(30):
            page = await fetch(f"{server.url}/whole", patience=Patience(silence=0.2))
            fault = await fault_of(f"{server.url}/half", patience=Patience(silence=0.2))

    assert (page.text, page.cut, fault.code) == ("page", "", Code.TIMEOUT)


async def test_headers_that_drip_end_with_the_call(tmp_path: Path) -> None:
    """A server that always says a little is ended by the time that the whole call has."""
    hasty = Tool(fetch_page.function, fetch_page.effect, ToolOptions(timeout=0.5))
    async with (
        bench(tmp_path, allow_hosts=HERE) as calls,
        streaming(lambda _head: endlessly(HTML, b"x: y\r\n", pause=0.02)) as server,
    ):
        fault, _ = await calls.fails(hasty, url=server.url)

    assert fault.code is Code.TIMEOUT
