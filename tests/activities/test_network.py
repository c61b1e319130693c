"""`Web`: connections go to checked addresses only, however they are spelt, and whoever chose them."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from activities.toolbox.http.network import MAX_REDIRECTS, MAX_URL, Patience
from evals.fakes.http_server import endlessly, reply, serving, streaming
from runtime.dev_server import free_port
from tests.activities.bench import NO_TLS
from tests.activities.pages import PAGE, fails_with, fault_of, fetch, offline, stands_for, whole
from tests.gate import needs_extra
from workflows.faults.fault import Code, Fault, Quadrant

PEM = Path(__file__).parents[1] / "site.example.pem"
BELIEVING = ssl.create_default_context(cafile=str(PEM))

SPELLINGS = {
    "this host": "127.0.0.1 2130706433 0x7f000001 0x7f.1 0X7F.0x0.0.1 017700000001 127.1 127.0.1 0 0.0.0.0 [::1] [::]",
    "this host in IPv6": "[::ffff:127.0.0.1] [::ffff:7f00:1] [::127.0.0.1] [0:0:0:0:0:ffff:127.0.0.1] "
    "[64:ff9b::127.0.0.1] [2002:7f00:1::]",
    "networks": "[fe80::1] 10.0.0.1 169.254.169.254 192.168.0.1 [fd00:ec2::254]",
}


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("kind", SPELLINGS)
async def test_an_address_inside_is_refused_however_it_is_spelt(kind: str, scheme: str) -> None:
    """The check sees what the connection would use; none is made, and the planner has to choose another address."""
    connections, faults = list[Any](), dict[str, Fault]()
    server = await asyncio.start_server(lambda *both: connections.append(both), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        for host in SPELLINGS[kind].split():
            faults[host] = await fault_of(f"{scheme}://{host}:{port}/", allowed=())
        await asyncio.sleep(0.05)

    assert connections == []
    assert {(fault.code, fault.quadrant) for fault in faults.values()} == {
        (Code.INVALID_INPUT, Quadrant.PERSISTENT_SEMANTIC)
    }
    assert [fault for fault in faults.values() if "is not on the public internet" not in fault.reason] == []
    assert [fault for fault in faults.values() if not fault.reason.endswith(".")] == []


@pytest.mark.parametrize(
    "addresses",
    [("10.0.0.1",), ("8.8.8.8", "10.0.0.1"), ("127.0.0.1", "10.0.0.1"), ("::1",), ("127.0.0.1", "fe80::1%lo")],
)
async def test_a_name_is_refused_when_one_of_its_addresses_is(addresses: tuple[str, ...]) -> None:
    """A name that also leads inside is not tried at its other addresses."""
    async with streaming(lambda _head: whole(reply(200, PAGE))) as server:
        url = f"http://site.example:{server.port}/"
        fault = await fault_of(url, resolve=stands_for(*addresses))

    assert fault.code is Code.INVALID_INPUT and "site.example is not on the public internet" in fault.reason
    assert server.requests == []


@needs_extra("documents")
async def test_a_name_is_looked_up_once() -> None:
    """A name that means another address when it is asked again (DNS rebinding) leads nowhere: nobody asks again."""
    left = [("127.0.0.1",), ("10.0.0.1",), ("169.254.169.254",)]

    async def rebinding(host: str, port: int) -> Sequence[str]:
        return left.pop(0)

    async with streaming(lambda _head: whole(reply(200, PAGE))) as server:
        page = await fetch(f"http://site.example:{server.port}/", resolve=rebinding)

    assert page.title == "Prices" and f"Host: site.example:{server.port}".encode() in server.requests[0]
    assert len(left) == 2


@needs_extra("documents")
async def test_a_name_that_is_allowed_is_reached_under_no_other_name() -> None:
    """`--allow-host intranet.example` opens that name, not the address behind it; of two addresses, one may do."""
    async with serving(reply(200, PAGE), reply(200, PAGE)) as url:
        named = url.replace("127.0.0.1", "intranet.example")
        page = await fetch(named, ["intranet.example"], resolve=stands_for("127.0.0.1"))
        fault = await fault_of(url, ["intranet.example"])
        second = await fetch(named, ["127.0.0.0/8", "::1"], resolve=stands_for("::1", "127.0.0.1"))

    assert (page.title, fault.code, second.title) == ("Prices", Code.INVALID_INPUT, "Prices")


LOOK_UPS = {
    socket.EAI_NONAME: Code.NOT_FOUND,
    socket.EAI_FAIL: Code.NOT_FOUND,
    socket.EAI_AGAIN: Code.UNREACHABLE,
    socket.EAI_MEMORY: Code.UNREACHABLE,
}


@pytest.mark.parametrize("number", LOOK_UPS)
async def test_a_failed_look_up_says_whether_time_helps(number: int) -> None:
    """A name that does not exist is the planner's to change; a resolver that cannot be asked may answer later."""
    fault = await fault_of("http://site.example/", resolve=fails_with(socket.gaierror(number, "x")))

    assert fault.code is LOOK_UPS[number] and "site.example" in fault.reason


async def test_what_does_not_answer_is_transient() -> None:
    """A look-up that takes too long is ended, and counts like a connection that is not made."""

    async def slow(host: str, port: int) -> Sequence[str]:
        await asyncio.sleep(5)
        return ()

    late = await fault_of("http://site.example/", resolve=slow, patience=Patience(silence=0.05))
    nobody = await fault_of(f"http://127.0.0.1:{free_port()}/")

    assert late.code is nobody.code is Code.UNREACHABLE
    assert "took too long" in late.reason and nobody.reason.startswith("127.0.0.1 takes no connection")


def certified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(PEM)
    return context


@needs_extra("documents")
async def test_tls_asks_for_the_name_though_it_connects_to_an_address() -> None:
    """The certificate is checked for the name, which is also what the server is told."""
    names = list[str | None]()
    server_side = certified()
    server_side.sni_callback = lambda _socket, name, _context: names.append(name)
    async with streaming(lambda _head: whole(reply(200, PAGE)), tls=server_side) as server:
        page = await fetch(f"https://site.example:{server.port}/", resolve=offline, tls=BELIEVING)

    assert (page.title, names) == ("Prices", ["site.example"])
    assert f"Host: site.example:{server.port}".encode() in server.requests[0]


@pytest.mark.parametrize(
    ("host", "tls"),
    [("site.example", None), ("127.0.0.1", BELIEVING)],
    ids=["signed by nobody", "of another host"],
)
async def test_a_certificate_that_proves_nothing_is_refused(host: str, tls: ssl.SSLContext | None) -> None:
    """Nothing is sent to a server that is not who it should be; asking again would not make it so."""
    async with streaming(lambda _head: whole(reply(200, PAGE)), tls=certified()) as server:
        fault = await fault_of(f"https://{host}:{server.port}/", resolve=offline, tls=tls)

    assert fault.code is Code.REFUSED and "certificate" in fault.reason
    assert server.requests == []


async def test_traffic_is_counted_under_tls_too() -> None:
    """What a server sends without end is ended there as well."""
    endless = b"HTTP/1.1 100 Continue\r\nx: " + b"y" * 60_000 + b"\r\n\r\n"
    async with streaming(lambda _head: endlessly(b"", endless), tls=certified()) as server:
        fault = await fault_of(f"https://site.example:{server.port}/", resolve=offline, tls=BELIEVING)

    assert fault.code is Code.UNEXPECTED_RESULT and "had not finished" in fault.reason


# Addresses that are none, and redirects.


def redirect(to: str, status: int = 302) -> bytes:
    """An answer that sends the client elsewhere."""
    return reply(status, PAGE, location=to)


@needs_extra("documents")
async def test_a_redirect_is_followed() -> None:
    """The result says where the page stood in the end."""
    for status in (301, 302, 303, 307, 308):
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


@needs_extra("documents")
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
