"""Addresses that are none, and redirects: whoever chose an address, it passes the same check before it is asked."""

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, strategies as st

from activities.toolbox.http.network import MAX_REDIRECTS, MAX_URL
from evals.fakes.http_server import endlessly, reply, serving, streaming
from tests.activities.bench import NO_TLS
from tests.activities.pages import PAGE, fails_with, fault_of, fetch, offline, whole
from workflows.faults.fault import Code, Fault, Quadrant


def redirect(to: str, status: int = 302) -> bytes:
    """An answer that sends the client elsewhere."""
    return reply(status, PAGE, location=to)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_followed(status: int) -> None:
    """The result says where the page stood in the end."""
    async with serving(redirect("/there?x=1#part", status), reply(200, PAGE)) as url:
        page = await fetch(f"{url}/here")

    assert (page.title, page.url) == ("Prices", f"{url}/there?x=1#part")


HOSTS = [
    "http://127.0.0.1:{port}/ http://2130706433:{port}/ //127.0.0.1:{port}/ http://169.254.169.254/latest/meta-data/",
    "http://[::1]:{port}/ https://127.0.0.1:{port}/ http://localhost@127.0.0.1:{port}/ http://site.example:99999/",
    "http://me:secret@site.example:{port}/ http://a:b:c/ http://[::1 /" + "x" * MAX_URL,
    "file:///etc/passwd ftp://site.example/ gopher://site.example:{port}/_x ws://site.example:{port}/",
    "javascript:alert(1) data:text/html,hello",
]
REDIRECTED = {to: Code.INVALID_INPUT for line in HOSTS for to in line.split()}


@pytest.mark.parametrize(
    ("to", "code"), [*REDIRECTED.items(), ("http:////[", Code.UNEXPECTED_RESULT), ("http://xn--/", Code.NOT_FOUND)]
)
async def test_a_redirect_passes_the_same_check(to: str, code: Code) -> None:
    """Only the first address was the planner's; none of those that follow may lead where that one could not."""
    async with streaming(lambda _head: whole(redirect(to.format(port=server.port)))) as server:
        fault = await fault_of(f"http://site.example:{server.port}/", ["site.example"], resolve=offline)

    assert (fault.code, len(server.requests)) == (code, 1)


@pytest.mark.parametrize("to", ["/again", "?", "//127.0.0.1:{port}/other"])
async def test_redirects_without_end_are_refused(to: str) -> None:
    """Five are followed."""
    async with streaming(lambda _head: whole(redirect(to.format(port=server.port)))) as server:
        fault = await fault_of(server.url)

    assert (fault.code, len(server.requests)) == (Code.UNEXPECTED_RESULT, MAX_REDIRECTS + 1)


async def test_the_body_of_a_redirect_is_not_read() -> None:
    """It may be endless too."""
    head = b"HTTP/1.1 302 Found\r\nlocation: /there\r\n\r\n"

    def answer(request: bytes) -> AsyncIterator[bytes]:
        return whole(reply(200, PAGE)) if b"/there" in request else endlessly(head, b"x" * 65_536)

    async with streaming(answer) as server:
        page = await fetch(server.url)

    assert page.title == "Prices" and server.sent < 15_000_000


NO_ADDRESSES = {
    "nothing": ["", " ", "http:", "http://", "http://:80/"],
    "no scheme": ["127.0.0.1", "example.org/prices", "//127.0.0.1/", "/etc/passwd"],
    "no host": ["http:///etc/passwd", "http:127.0.0.1", "http://127.0.0.1\\@good.example/"],
    "files": ["file:///etc/passwd", "file://localhost/etc/passwd", "FILE:///etc/passwd"],
    "other schemes": ["ftp://127.0.0.1/", "gopher://127.0.0.1/", "ws://127.0.0.1/"],
    "no schemes of the web": ["data:text/html,hello", "javascript:alert(1)"],
    "users": ["http://good@127.0.0.1/", "http://good:secret@127.0.0.1/", "http://good.example%40127.0.0.1@127.0.0.1/"],
    "ports": ["http://127.0.0.1:0/", "http://127.0.0.1:-1/", "http://127.0.0.1:65536/", "http://127.0.0.1:80x/"],
    "two ports": ["http://127.0.0.1:80:80/"],
    "IPv6": ["http://[::1/", "http://[::g]/"],
    "IPv4": ["http://1.2.3.4.5/%00\x00", "http://300.1.1.1/", "http://0177.0.0.1/", "http://\u2460\u2461\u2466.0.0.1/"],
    "names": ["http://a..b/", "http://" + "a" * 70 + ".example/", "http://a b/"],
    "lines": ["http://127.0.0.1/\r\nHost: evil"],
    "other languages": ["'; DROP TABLE slots; --", "http://'; DROP TABLE slots; --/", "{{7*7}}"],
}


@pytest.mark.parametrize("kind", NO_ADDRESSES)
async def test_an_address_that_is_none_is_the_planners_to_change(kind: str) -> None:
    """Whatever it is, it is refused before anything is sent, in a sentence that does not repeat it."""
    faults = {url: await fault_of(url, resolve=offline) for url in NO_ADDRESSES[kind]}

    assert {fault.quadrant for fault in faults.values()} == {Quadrant.PERSISTENT_SEMANTIC}
    assert {fault.code for fault in faults.values()} <= {Code.INVALID_INPUT, Code.NOT_FOUND}
    assert [fault for fault in faults.values() if "secret" in fault.reason] == []


@given(url=st.text(max_size=60) | st.text(max_size=60).map("http://{}".format))
def test_any_text_is_a_legal_argument(url: str) -> None:
    """Every text, and everything behind `http://`, gives a fault that leads to another plan."""
    unknown = fails_with(socket.gaierror(socket.EAI_NONAME, "x"))
    fault = asyncio.run(fault_of(url, allowed=(), resolve=unknown, tls=NO_TLS))

    assert fault.quadrant is Quadrant.PERSISTENT_SEMANTIC and len(fault.reason) < 400


@given(to=st.text(st.characters(min_codepoint=33, max_codepoint=255, exclude_characters="\x7f"), max_size=60))
def test_any_text_is_a_legal_redirect(to: str) -> None:
    """Whatever a server names, following it ends in a page or in a fault that leads to another plan."""

    async def follow() -> Fault:
        async with streaming(lambda _head: whole(redirect(to).decode().encode("latin-1"))) as server:
            return await fault_of(server.url, resolve=offline, tls=NO_TLS)

    assert asyncio.run(follow()).quadrant is Quadrant.PERSISTENT_SEMANTIC
