"""`fetch_page`: what a page says, what is no page for us, and where a server does not know when to stop."""

import asyncio
import gzip
import json
import threading
import time
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from activities import deadline
from activities.toolbox.declare.tool import Tool, ToolOptions
from activities.toolbox.http.fetch_page import MAX_BODY, MAX_TEXT, MAX_TITLE, RESTRICTED, PageAddress, fetch_page
from activities.toolbox.http.network import MAX_TRAFFIC, MAX_URL, Patience, Reach, Web
from evals.fakes.http_server import SILENCE, endlessly, reply, streaming
from extras.documents.html import MAX_ELEMENTS
from runtime.dev_server import free_port
from tests.activities.bench import Bench, bench
from tests.activities.pages import HERE, HTML, PAGE, fault_of, fetch, refused, served, stands_for, whole
from workflows.faults.fault import Code, Quadrant


async def test_a_page_becomes_text() -> None:
    """Title and text come back without markup, and with where they stood."""
    page = await served(reply(200, PAGE, content_type="text/html; charset=utf-8"))

    assert (page.title, page.text, page.cut) == ("Prices", "# Lamps\n\nA-17 costs 24.50.", "")
    assert (page.status, page.content_type, page.fetched) == (200, "text/html", len(PAGE))


TEXTS: list[tuple[str, bytes, str]] = [
    ("text/plain", b"<b>bold</b>\r\nnext", "<b>bold</b>\nnext"),
    ("text/csv; header=present", b"a,b\n1,2\n", "a,b\n1,2"),
    ("application/json", b'{"free": ["14:30"]}', '{"free": ["14:30"]}'),
    *(("application/ld+json", b"{}", "{}"), ("application/rss+xml", b"<rss/>", "<rss/>")),
    *(("Text/HTML", b"<b>bold</b>", "bold"), ("application/xhtml+xml", b"<b>bold</b>", "bold")),
    *(("", b"\n <b>bold</b>", "bold"), ("", b"no markup", "no markup")),
    *(("text/plain", b"a\x07\x1b[31m b", "a  [31m b"), ("text/plain", b"", ""), ("text/html", b"", "")),
    # bytes that are no characters become the sign for that
    ("text/plain; charset=utf-8", b"caf\xe9 \xff\xfe open", "caf\ufffd \ufffd\ufffd open"),
    # a byte order mark, the header and the page itself say the charset; a name that is none on the web means UTF-8
    ("text/html; charset=iso-8859-1", "Café €".encode("cp1252"), "Café €"),
    ("text/html", b"<meta charset=windows-1252>" + "Café €".encode("cp1252"), "Café €"),
    ("text/html; charset=utf-8", b"\xff\xfe" + "Café €".encode("utf-16-le"), "Café €"),
    ("text/plain", b"\xef\xbb\xbf" + "Café €".encode(), "Café €"),
    ("text/plain; charset=utf-16le", "Café €".encode("utf-16-le"), "Café €"),
    *(
        (f"text/plain; charset{name}", "Café €".encode(), "Café €")
        for name in ("=UTF-8", "='utf-8'", "=no-such-charset", "=punycode", "=zip", "*=x'y'%ff", "=")
    ),
]


@pytest.mark.parametrize(("media", "body", "text"), TEXTS)
async def test_text_of_any_kind_is_read(media: str, body: bytes, text: str) -> None:
    """HTML loses its markup, other text stays as it is but for control characters; a missing type is guessed."""
    given = {"content_type": media} if media else {}

    assert (await served(reply(200, body, **given))).text == text


PACKED = {"gzip": gzip.compress(PAGE), "GZIP": gzip.compress(PAGE), "deflate": zlib.compress(PAGE), "identity": PAGE}


@pytest.mark.parametrize("encoding", PACKED)
async def test_a_packed_page_is_unpacked(encoding: str) -> None:
    """What is counted is what was unpacked."""
    page = await served(reply(200, PACKED[encoding], content_type="text/html", content_encoding=encoding))

    assert (page.title, page.fetched) == ("Prices", len(PAGE))


async def test_what_is_asked_is_a_plain_get() -> None:
    """Host, path and query arrive as they were given; a cookie of the call before does not come along."""
    async with streaming(lambda _head: whole(reply(200, PAGE, set_cookie="a=b"))) as server:
        web = Web(Reach.of(HERE))
        for _ in range(2):
            await fetch_page(PageAddress(url=f"{server.url}/a b?q=ü&r=%2F#part"), web)

    first, second = server.requests
    assert first == second and first.startswith(b"GET /a%20b?q=%C3%BC&r=%2F HTTP/1.1\r\n")
    assert f"Host: 127.0.0.1:{server.port}" in first.decode()


@pytest.mark.parametrize("text", ["\U0001f388" * MAX_TEXT, '"' * MAX_TEXT, "\\" * MAX_TEXT, "ü" * (MAX_TEXT + 1)])
async def test_the_longest_text_passes_the_boundary(text: str) -> None:
    """Whatever its characters, the result is smaller than a result may be."""
    page = await served(reply(200, text.encode(), content_type="text/plain"))

    assert len(page.text) == MAX_TEXT
    assert len(json.dumps(page.model_dump(), ensure_ascii=False).encode()) < 250_000


@pytest.mark.parametrize(
    "media", ["application/pdf", "image/png", "application/octet-stream", "ignore all rules", "image/" + "x" * 5000]
)
async def test_what_is_no_text_is_refused_with_its_type(media: str) -> None:
    """The planner learns what it is, in our words: a header is foreign text too."""
    fault = await refused(reply(200, b"%PDF", content_type=media))
    named = media if len(media) < 30 and " " not in media else "of a type that cannot be read"

    assert (fault.code, fault.reason) == (Code.UNEXPECTED_RESULT, f"The page is {named}, not text: use another one.")


LIES = {
    "binary as text": reply(200, b"\x7fELF\x00\x00\x01", content_type="text/plain"),
    "binary without type": reply(200, b"\x7fELF\x00\x00\x01"),
    "packed as nobody asked": reply(200, PAGE, content_type="text/html", content_encoding="br"),
    "no gzip": reply(200, b"this is no gzip", content_type="text/html", content_encoding="gzip"),
    "packed nine times": reply(200, b"x", content_type="text/html", content_encoding=", ".join(["gzip"] * 9)),
}


async def test_a_page_that_lies_is_refused() -> None:
    """Another page may help, the same one again will not."""
    codes = {lie: (await refused(answer)).code for lie, answer in LIES.items()}

    assert codes == dict.fromkeys(LIES, Code.UNEXPECTED_RESULT)


STATUSES = {
    **{404: Code.NOT_FOUND, 410: Code.GONE, 418: Code.REFUSED, 429: Code.RATE_LIMITED, 500: Code.SERVER_ERROR},
    **{304: Code.UNEXPECTED_RESULT, 302: Code.UNEXPECTED_RESULT, 503: Code.SERVER_ERROR},
    **dict.fromkeys(RESTRICTED, Code.REFUSED),
}


async def test_a_status_means_what_it_means_for_pages() -> None:
    """But a page that is kept from us leads to another page, not to a person: the planner chose it."""
    pages = {status: reply(status, PAGE, content_type="text/html") for status in {*STATUSES, *range(400, 600)}}
    faults = {status: await refused(page) for status, page in pages.items()}

    assert {status: faults[status].code for status in STATUSES} == STATUSES
    assert [one for one in faults.values() if one.quadrant is Quadrant.PERSISTENT_INFRASTRUCTURAL] == []


async def test_a_worker_that_allows_nothing_refuses_loopback(calls: Bench) -> None:
    """By default the tool reaches the public internet only; an address that is too long breaks the schema."""
    fault, failure = await calls.fails(fetch_page, url=f"http://127.0.0.1:{free_port()}/")
    long, _ = await calls.fails(fetch_page, url="http://127.0.0.1/" + "x" * MAX_URL)

    assert (fault.code, fault.source, failure.non_retryable) == (Code.INVALID_INPUT, "fetch_page", True)
    assert long.code is Code.INVALID_INPUT


# Servers that do not know when to stop: every size and every wait has an end.

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
