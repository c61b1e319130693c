"""The HTTP clients httpx, requests, urllib3, aiohttp and urllib, against real servers that answer, fail or lie."""

import asyncio
import os
import socket
import ssl
import struct
import threading
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from activities.borders import WIRES, judge
from activities.borders.http import STATUS
from activities.borders.table import Proof, Verdict
from evals.fakes.http_server import SILENCE, endlessly, reply, serving, streaming
from runtime.dev_server import free_port
from tests.activities.libraries.verdicts import HIDDEN, NOT_SENT, REFUSED, UNKNOWN, classes_of, failing, judged, outcome
from workflows.faults.fault import QUADRANT, Code, Quadrant

pytestmark = pytest.mark.full

aiohttp: Any = pytest.importorskip("aiohttp")
httpx: Any = pytest.importorskip("httpx")
requests: Any = pytest.importorskip("requests")
urllib3: Any = pytest.importorskip("urllib3")

PEM = Path(__file__).parents[2] / "site.example.pem"
Client = Callable[[str, str, float], object]
Place = Callable[[], AbstractAsyncContextManager[str]]


async def by_httpx2(method: str, url: str, wait: float) -> None:
    async with httpx2.AsyncClient(trust_env=False, timeout=wait, follow_redirects=True) as client:
        (await client.request(method, url)).raise_for_status()


async def by_httpx(method: str, url: str, wait: float) -> None:
    async with httpx.AsyncClient(trust_env=False, timeout=wait, follow_redirects=True) as client:
        (await client.request(method, url)).raise_for_status()


def by_httpx_in_a_thread(method: str, url: str, wait: float) -> None:
    with httpx.Client(trust_env=False, timeout=wait, follow_redirects=True) as client:
        client.request(method, url).raise_for_status()


def by_requests(method: str, url: str, wait: float) -> None:
    with requests.Session() as session:
        session.trust_env = False
        session.request(method, url, timeout=wait).raise_for_status()


def by_urllib3(method: str, url: str, wait: float) -> None:
    with urllib3.PoolManager() as pool:
        pool.request(method, url, timeout=wait)


async def by_aiohttp(method: str, url: str, wait: float) -> None:
    waits = aiohttp.ClientTimeout(total=None, sock_connect=wait, sock_read=wait)
    async with (
        aiohttp.ClientSession(timeout=waits, raise_for_status=True) as session,
        session.request(method, url) as answer,
    ):
        await answer.read()


def by_urllib(method: str, url: str, wait: float) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    body = b"" if method == "POST" else None
    with opener.open(urllib.request.Request(url, body, method=method), timeout=wait) as answer:  # noqa: S310
        answer.read()


def each(*clients: Client) -> pytest.MarkDecorator:
    """Run a test with each of some clients."""
    return pytest.mark.parametrize("client", clients, ids=lambda client: client.__name__)


RAISING: list[Client] = [by_httpx2, by_httpx, by_httpx_in_a_thread, by_requests, by_aiohttp, by_urllib]
"""The clients that raise an exception for the status of an error."""
with_each = each(*RAISING, by_urllib3)
with_raising = each(*RAISING)


async def verdict_of(client: Client, url: str, *, method: str = "POST", wait: float = 5) -> Verdict:
    """The verdict on the exception of a call."""
    return judged(await failing(client, method, url, wait))


@with_raising
async def test_a_status_is_the_same_for_every_client(client: Client) -> None:
    """Its row decides; the reason names method, host and status, and not the path, which may be a secret."""
    wrong = list[str]()
    for status in (400, 401, 404, 408, 409, 421, 424, 425, 429, 431, 451, 500, 501, 502, 503, 504, 507, 508, 529):
        async with serving(reply(status, retry_after="7")) as url:
            verdict = await verdict_of(client, f"{url}/{HIDDEN}")
        code, proves = STATUS[status][0], REFUSED if status < 500 else UNKNOWN
        begins = f"POST 127.0.0.1 returned {status}: "
        if outcome(verdict) != (code, proves) or not verdict.fault.reason.startswith(begins):
            wrong.append(f"{status}: {verdict}")
        if verdict.fault.retry_after != (7.0 if verdict.fault.quadrant.is_transient else None):
            wrong.append(f"{status}: retry after {verdict.fault.retry_after}")

    assert wrong == []


@each(by_httpx2, by_httpx, by_requests)
async def test_a_problem_of_rfc_9457_is_observed(client: Client) -> None:
    """Its members are the state that contradicts the call."""
    problem = b'{"type": "https://shop.example/sold-out", "title": "Sold out", "status": 409, "left": 0}'
    async with serving(reply(409, problem, content_type="application/problem+json")) as url:
        fault = (await verdict_of(client, url)).fault

    said = {"type": "https://shop.example/sold-out", "title": "Sold out", "status": 409, "left": 0}
    assert fault.observed == said


@each(by_aiohttp, by_urllib)
async def test_a_body_that_nobody_read_is_not_waited_for(client: Client) -> None:
    """The server sends half of the body, and then nothing."""
    head = reply(409, b'{"free": []}')[:-4]
    async with asyncio.timeout(5), streaming(lambda _head: endlessly(head, b"")) as server:
        verdict = await verdict_of(client, server.url)

    assert (verdict.fault.code, verdict.fault.observed) == (Code.CONFLICT, None)


@asynccontextmanager
async def at(address: str) -> AsyncIterator[str]:
    """An address; PORT in it is one on which nothing listens."""
    yield address.replace("PORT", f"{free_port()}")


@asynccontextmanager
async def full_queue() -> AsyncIterator[str]:
    """A port whose queue of connections is full, since nobody takes them from it."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            with suppress(BlockingIOError):
                one.connect(server.getsockname())
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        for one in waiting:
            one.close()


@asynccontextmanager
async def listening(
    talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter, asyncio.Server], Awaitable[None]],
    scheme: str = "http",
) -> AsyncIterator[str]:
    """A server on loopback that talks so to each client, and then closes the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await talk(reader, writer, server)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def plain_words(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _server: asyncio.Server) -> None:
    """Answer anything in plain text."""
    await reader.read(1)
    writer.write(reply(400))
    await writer.drain()


async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _server: asyncio.Server) -> None:
    """Break the connection after the request."""
    await reader.readuntil(b"\r\n\r\n")
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def go_away(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter, server: asyncio.Server) -> None:
    """Get one request, and close the port."""
    await reader.readuntil(b"\r\n\r\n")
    server.close()


UNANSWERED: dict[str, tuple[Place, Code, Proof]] = {
    "refused": (partial(at, "http://127.0.0.1:PORT/"), Code.UNREACHABLE, NOT_SENT),
    "no name": (partial(at, "http://name.invalid/"), Code.UNREACHABLE, NOT_SENT),
    "no connection in time": (full_queue, Code.UNREACHABLE, NOT_SENT),
    "no TLS": (partial(listening, plain_words, "https"), Code.UNREACHABLE, NOT_SENT),
    "silent": (partial(serving, SILENCE), Code.TIMEOUT, UNKNOWN),
    "closes": (partial(serving, b""), Code.UNREACHABLE, UNKNOWN),
    "resets": (partial(listening, reset), Code.UNREACHABLE, UNKNOWN),
    "no HTTP": (partial(serving, b"SSH-2.0-OpenSSH_9.6\r\n\r\n"), Code.UNREACHABLE, UNKNOWN),
    "closes in the middle": (
        partial(serving, reply(200, b'{"amount": 24.50}')[:-5]),
        Code.UNREACHABLE,
        UNKNOWN,
    ),
    # It came whole, so that the next one would be the same.
    "not compressed as it says": (
        partial(serving, reply(200, b"this is no gzip", content_encoding="gzip")),
        Code.UNEXPECTED_RESULT,
        UNKNOWN,
    ),
}


@with_each
@pytest.mark.parametrize("name", UNANSWERED)
async def test_what_was_not_connected_was_not_sent_and_a_lost_answer_proves_nothing(client: Client, name: str) -> None:
    """Of a request that was sent, nobody knows what became of it."""
    if (client, name) == (by_urllib, "not compressed as it says"):
        pytest.skip("it decompresses nothing")
    place, code, proves = UNANSWERED[name]
    async with place() as url:
        verdict = await verdict_of(client, url, wait=0.5)

    assert outcome(verdict) == (code, proves)


@with_each
async def test_redirects_without_an_end_are_not_retried(client: Client) -> None:
    """The service sends the client round and round."""
    async with serving(*[reply(302, location="/") for _ in range(40)]) as url:
        verdict = await verdict_of(client, url, method="GET")

    assert QUADRANT[verdict.fault.code] is Quadrant.PERSISTENT_SEMANTIC
    assert verdict.proves is UNKNOWN


@with_each
@pytest.mark.parametrize("status", [302, 303])
async def test_a_redirect_of_a_post_may_follow_its_effect(client: Client, status: int) -> None:
    """The POST was answered, though the request after it was not sent.

    Only variables of private functions of the client show the POST (`_EARLIER` in activities/borders/http.py). If the
    installed version of the client has changed them, `classify` would say that nothing was sent, and this fails.
    """
    async with serving(reply(status, location=f"http://127.0.0.1:{free_port()}/")) as url:
        verdict = await verdict_of(client, url)

    assert outcome(verdict) == (Code.UNREACHABLE, UNKNOWN)


@with_raising
@pytest.mark.parametrize(("method", "status", "proves"), [("POST", 303, UNKNOWN), ("GET", 302, REFUSED)])
async def test_a_rejection_after_a_redirect_is_one_of_a_get(
    client: Client, method: str, status: int, proves: Proof
) -> None:
    """It rejects the GET, which changes nothing, and not a POST that was answered by 303."""
    async with serving(reply(status, location="/order/1"), reply(404)) as url:
        verdict = await verdict_of(client, url, method=method)

    assert outcome(verdict) == (Code.NOT_FOUND, proves)


@each(by_httpx2, by_httpx, by_requests, by_aiohttp)
async def test_a_post_that_is_sent_on_unchanged_may_be_rejected_there(client: Client) -> None:
    """307 says that the resource is elsewhere, as for a missing slash: nothing was done yet."""
    async with serving(reply(307, location="/orders/"), reply(409)) as url:
        verdict = await verdict_of(client, url)

    assert outcome(verdict) == (Code.CONFLICT, REFUSED)


def certified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(PEM)
    return context


@with_each
async def test_a_certificate_that_is_not_trusted_needs_a_person(client: Client) -> None:
    """It is looked at before anything is sent; no retry and no plan makes it valid."""
    async with streaming(lambda _head: endlessly(reply(200), b""), tls=certified()) as server:
        verdict = await verdict_of(client, server.url)

    assert outcome(verdict) == (Code.NEEDS_PERSON, NOT_SENT)
    assert server.requests == []


@contextmanager
def broken_tls() -> Iterator[int]:
    """A server that answers a request over TLS with bytes that are not TLS."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def talk() -> None:
            accepted, _address = server.accept()
            with certified().wrap_socket(accepted, server_side=True) as connection:
                connection.recv(65536)
                os.write(connection.fileno(), reply(200))
                with suppress(OSError):
                    connection.recv(65536)

        thread = threading.Thread(target=talk)
        thread.start()
        yield server.getsockname()[1]
        thread.join(10)


async def test_tls_that_breaks_after_the_handshake_proves_nothing() -> None:
    """It is the same class of ssl, raised while the answer is received: the request had been sent."""

    class Trusting(requests.adapters.HTTPAdapter):  # type: ignore[misc]  # requests is Any
        def init_poolmanager(self, *args: Any, **options: Any) -> None:
            super().init_poolmanager(*args, server_hostname="site.example", assert_hostname="site.example", **options)

    with broken_tls() as port, requests.Session() as session:
        session.trust_env, session.verify = False, str(PEM)
        session.mount("https://", Trusting())
        error = await failing(session.post, f"https://127.0.0.1:{port}/", timeout=5)

    assert type(error) is requests.exceptions.SSLError
    assert outcome(error) == (Code.UNREACHABLE, UNKNOWN)


def repeating(url: str) -> None:
    """Post with a session of requests that repeats each request."""
    retry = urllib3.util.Retry(2, allowed_methods=None, status_forcelist=[503], backoff_factor=0)
    with requests.Session() as session:
        session.trust_env = False
        session.mount("http://", requests.adapters.HTTPAdapter(max_retries=retry))
        session.post(url, timeout=5).raise_for_status()


def falling_back(url: str) -> None:
    """Ask a second server in an `except`; that the first one was down does not prove that this one was."""
    try:
        requests.post(f"http://127.0.0.1:{free_port()}/", timeout=5)
    except requests.exceptions.ConnectionError:
        requests.post(url, timeout=5)


REPEATED: dict[str, tuple[Callable[[str], None], Place, str, Code, Proof]] = {
    "all refused": (repeating, partial(at, "http://127.0.0.1:PORT/"), "ConnectionError", Code.UNREACHABLE, NOT_SENT),
    # The first request may have had its effect.
    "a lost answer, then refused": (
        repeating,
        partial(listening, go_away),
        "ConnectionError",
        Code.UNREACHABLE,
        UNKNOWN,
    ),
    # `exists already` may be what the first request did before its 503.
    "a failure, then a rejection": (
        repeating,
        partial(serving, reply(503), reply(409)),
        "HTTPError",
        Code.CONFLICT,
        UNKNOWN,
    ),
    "failures": (repeating, partial(serving, reply(503)), "RetryError", Code.SERVER_ERROR, UNKNOWN),
    "another server": (falling_back, partial(serving, b""), "ConnectionError", Code.UNREACHABLE, UNKNOWN),
}
"""What requests raises, told to repeat each request."""


@pytest.mark.parametrize("name", REPEATED)
async def test_each_of_several_requests_counts(name: str) -> None:
    """A refused or rejected repetition does not hide what became of the one before."""
    call, place, raised, code, proves = REPEATED[name]
    async with place() as url:
        error = await failing(call, url)

    assert (type(error).__name__, *outcome(error)) == (raised, code, proves)


async def test_a_proxy_that_loses_the_answer_proves_nothing_and_one_that_opens_no_tunnel_passed_nothing_on() -> None:
    """urllib3 calls it `ProxyError: Unable to connect to proxy`, though the request had been sent."""
    shop = "https://shop.example/"
    async with serving(b"") as proxy:
        lost = await failing(requests.post, "http://shop.example/", timeout=5, proxies={"http": proxy})
    async with serving(reply(407)) as proxy, aiohttp.ClientSession() as session:
        by_text = await failing(requests.post, shop, timeout=5, proxies={"https": proxy})
        with pytest.raises(aiohttp.ClientHttpProxyError) as by_status:
            await session.post(shop, proxy=proxy)
        by_class = await failing(httpx.Client(proxy=proxy, trust_env=False).post, shop)

    assert [type(one).__name__ for one in (lost, by_text, by_class)] == ["ProxyError"] * 3
    assert outcome(lost) == (Code.UNREACHABLE, UNKNOWN)
    assert outcome(by_text) == outcome(by_class) == (Code.UNREACHABLE, NOT_SENT)
    assert outcome(by_status.value) == (Code.UNAUTHORIZED, NOT_SENT)


@pytest.mark.parametrize("address", ["shop.example", "ftp://shop.example/", "http://"])
@each(by_httpx, by_requests, by_aiohttp)
async def test_an_address_that_is_none_is_the_planner_s_to_change(client: Client, address: str) -> None:
    """It is rejected before anything is sent."""
    assert outcome(await verdict_of(client, address)) == (Code.INVALID_INPUT, NOT_SENT)


@pytest.mark.parametrize(("status", "code"), [(200, Code.UNEXPECTED_RESULT), (503, Code.SERVER_ERROR)])
async def test_a_response_that_is_no_json(status: int, code: Code) -> None:
    """requests' own class of it, which is also that of `json`; and aiohttp's, by its status."""
    page = reply(status, b"<html>", content_type="text/html")
    async with serving(page) as url, aiohttp.ClientSession() as session, session.get(url) as answer:
        text = await failing((await asyncio.to_thread(requests.get, url, timeout=5)).json)
        html = await failing(answer.json)

    assert (type(text), type(html)) == (requests.exceptions.JSONDecodeError, aiohttp.ContentTypeError)
    assert outcome(text) == (Code.UNEXPECTED_RESULT, UNKNOWN)
    assert outcome(html) == (code, UNKNOWN)


class Nonsense:
    """Whatever is asked of it, it fails."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __iter__(self) -> Iterator[Any]:
        return iter(())


def test_every_entry_answers_whatever_the_exception_carries() -> None:
    """A tool may make an exception itself, and a pickled one has lost what it carried."""
    names = (
        "args",
        "response",
        "request",
        "request_info",
        "status",
        "code",
        "headers",
        "history",
        "reason",
        "url",
        "fp",
    )
    classes = [one for package in WIRES["http"] for one in classes_of(package)]
    for raised in classes:
        for values in ({}, dict.fromkeys(names), dict.fromkeys(names, "x"), dict.fromkeys(names, Nonsense())):
            error = raised.__new__(raised)
            for name, value in values.items():
                with suppress(Exception):  # a property without a setter
                    setattr(error, name, value)
            verdict = judge(error)

            assert verdict.fault.reason.endswith(".") and len(verdict.fault.reason) < 300
            assert values == {} or "x returned" not in verdict.fault.reason
    assert len(classes) > 100
