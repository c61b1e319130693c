"""The HTTP clients httpx, requests, urllib3, aiohttp and urllib, against real servers that answer, fail or lie."""

import asyncio
import importlib
import os
import pkgutil
import socket
import ssl
import threading
import urllib.request
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from activities.borders import judge
from activities.borders.http import STATUS, TABLE
from activities.borders.table import Proof, Verdict, qualified
from evals.fakes.http_server import SILENCE, endlessly, reply, serving, streaming
from runtime.dev_server import free_port
from workflows.faults.fault import QUADRANT, Code, Quadrant

pytestmark = pytest.mark.full

aiohttp: Any = pytest.importorskip("aiohttp")
httpx: Any = pytest.importorskip("httpx")
requests: Any = pytest.importorskip("requests")
urllib3: Any = pytest.importorskip("urllib3")

PEM = Path(__file__).parents[2] / "site.example.pem"
PACKAGES = ("httpx2", "httpcore2", "httpx", "httpcore", "requests", "urllib3", "aiohttp", "urllib", "http", "ssl")


async def by_httpx2(method: str, url: str, wait: float) -> None:
    async with httpx2.AsyncClient(trust_env=False, timeout=wait, follow_redirects=True) as client:
        (await client.request(method, url)).raise_for_status()


async def by_httpx(method: str, url: str, wait: float) -> None:
    async with httpx.AsyncClient(trust_env=False, timeout=wait, follow_redirects=True) as client:
        (await client.request(method, url)).raise_for_status()


async def by_httpx_in_a_thread(method: str, url: str, wait: float) -> None:
    def call() -> None:
        with httpx.Client(trust_env=False, timeout=wait, follow_redirects=True) as client:
            client.request(method, url).raise_for_status()

    await asyncio.to_thread(call)


async def by_requests(method: str, url: str, wait: float) -> None:
    def call() -> None:
        with requests.Session() as session:
            session.trust_env = False
            session.request(method, url, timeout=wait).raise_for_status()

    await asyncio.to_thread(call)


async def by_urllib3(method: str, url: str, wait: float) -> None:
    def call() -> None:
        with urllib3.PoolManager() as pool:
            pool.request(method, url, timeout=wait)

    await asyncio.to_thread(call)


async def by_aiohttp(method: str, url: str, wait: float) -> None:
    waits = aiohttp.ClientTimeout(total=None, sock_connect=wait, sock_read=wait)
    async with (
        aiohttp.ClientSession(timeout=waits, raise_for_status=True) as session,
        session.request(method, url) as answer,
    ):
        await answer.read()


async def by_urllib(method: str, url: str, wait: float) -> None:
    def call() -> None:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        body = b"" if method == "POST" else None
        with opener.open(urllib.request.Request(url, body, method=method), timeout=wait) as answer:  # noqa: S310
            answer.read()

    await asyncio.to_thread(call)


Client = Callable[[str, str, float], Awaitable[None]]
CLIENTS: list[Client] = [by_httpx2, by_httpx, by_httpx_in_a_thread, by_requests, by_urllib3, by_aiohttp, by_urllib]
RAISING: list[Client] = [client for client in CLIENTS if client is not by_urllib3]
"""The clients that raise an exception for the status of an error."""
with_each = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
with_raising = pytest.mark.parametrize("client", RAISING, ids=lambda client: client.__name__)


async def verdict_of(client: Client, url: str, *, method: str = "GET", wait: float = 5) -> Verdict:
    """The verdict on the exception of a call."""
    try:
        await client(method, url, wait)
    except Exception as error:
        return judge(error)
    raise AssertionError("the call did not fail")


def outcome(verdict: Verdict) -> tuple[Code, Proof]:
    return verdict.fault.code, verdict.proves


@with_raising
async def test_a_status_is_the_same_for_every_client(client: Client) -> None:
    """Its row decides; the reason names method, host and status, and not the path, which may be a secret."""
    wrong = list[str]()
    for status in (400, 401, 404, 408, 409, 421, 424, 425, 429, 431, 451, 500, 501, 502, 503, 504, 507, 508, 529):
        async with serving(reply(status, retry_after="7")) as url:
            verdict = await verdict_of(client, f"{url}/sk-secret", method="POST")
        code, proves = STATUS[status][0], Proof.REFUSED if status < 500 else Proof.UNKNOWN
        if outcome(verdict) != (code, proves) or not verdict.fault.reason.startswith(
            f"POST 127.0.0.1 returned {status}: "
        ):
            wrong.append(f"{status}: {verdict}")
        if verdict.fault.retry_after != (7.0 if verdict.fault.quadrant.is_transient else None):
            wrong.append(f"{status}: retry after {verdict.fault.retry_after}")

    assert wrong == []


@pytest.mark.parametrize("client", [by_httpx2, by_httpx, by_requests], ids=lambda client: client.__name__)
async def test_a_problem_of_rfc_9457_is_observed(client: Client) -> None:
    """Its members are the state that contradicts the call."""
    problem = b'{"type": "https://shop.example/sold-out", "title": "Sold out", "status": 409, "left": 0}'
    async with serving(reply(409, problem, content_type="application/problem+json")) as url:
        verdict = await verdict_of(client, url)

    assert verdict.fault.observed == {
        "type": "https://shop.example/sold-out",
        "title": "Sold out",
        "status": 409,
        "left": 0,
    }


@pytest.mark.parametrize("client", [by_aiohttp, by_urllib], ids=lambda client: client.__name__)
async def test_a_body_that_nobody_read_is_not_waited_for(client: Client) -> None:
    """The server sends half of the body, and then nothing."""
    head = reply(409, b'{"free": []}')[:-4]
    async with asyncio.timeout(5), streaming(lambda _head: endlessly(head, b"")) as server:
        verdict = await verdict_of(client, server.url)

    assert (verdict.fault.code, verdict.fault.observed) == (Code.CONFLICT, None)


@with_each
@pytest.mark.parametrize("url", ["http://127.0.0.1:{port}/", "http://name.invalid/"], ids=["refused", "no name"])
async def test_what_was_not_connected_was_not_sent(client: Client, url: str) -> None:
    """A refused connection and a failed name look-up prove that the request had no effect."""
    verdict = await verdict_of(client, url.format(port=free_port()), method="POST")

    assert outcome(verdict) == (Code.UNREACHABLE, Proof.NOT_SENT)


@with_each
async def test_a_server_that_takes_no_connection_in_time_got_nothing(client: Client) -> None:
    """Its queue of connections is full, so that the next one is not made."""
    async with full_queue() as url:
        verdict = await verdict_of(client, url, method="POST", wait=0.3)

    assert outcome(verdict) == (Code.UNREACHABLE, Proof.NOT_SENT)


@with_each
@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (SILENCE, Code.TIMEOUT),
        (b"", Code.UNREACHABLE),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", Code.UNREACHABLE),
        (reply(200, b'{"amount": 24.50}')[:-5], Code.UNREACHABLE),
    ],
    ids=["silent", "closes", "no HTTP", "closes in the middle"],
)
async def test_a_lost_answer_proves_nothing(client: Client, answer: bytes | None, code: Code) -> None:
    """The request was sent, and nobody knows what became of it."""
    async with serving(answer) as url:
        verdict = await verdict_of(client, url, method="POST", wait=0.5)

    assert outcome(verdict) == (code, Proof.UNKNOWN)


@with_each
async def test_an_answer_that_is_not_compressed_as_it_says_is_not_retried(client: Client) -> None:
    """It came whole, so that the next one would be the same."""
    if client is by_urllib:
        pytest.skip("it decompresses nothing")
    async with serving(reply(200, b"this is no gzip", content_encoding="gzip")) as url:
        verdict = await verdict_of(client, url, method="POST")

    assert outcome(verdict) == (Code.UNEXPECTED_RESULT, Proof.UNKNOWN)


@with_each
async def test_redirects_without_an_end_are_not_retried(client: Client) -> None:
    """The service sends the client round and round."""
    answers = [reply(302, location="/") for _ in range(40)]
    async with serving(*answers) as url:
        verdict = await verdict_of(client, url)

    assert QUADRANT[verdict.fault.code] is Quadrant.PERSISTENT_SEMANTIC
    assert verdict.proves is Proof.UNKNOWN


@with_each
@pytest.mark.parametrize("status", [302, 303])
async def test_a_redirect_of_a_post_may_follow_its_effect(client: Client, status: int) -> None:
    """The POST was answered, though the request after it was not sent.

    Only variables of private functions of the client show the POST (`_EARLIER` in activities/borders/http.py). If the
    installed version of the client has changed them, `classify` would say that nothing was sent, and this fails.
    """
    async with serving(reply(status, location=f"http://127.0.0.1:{free_port()}/")) as url:
        verdict = await verdict_of(client, url, method="POST")

    assert outcome(verdict) == (Code.UNREACHABLE, Proof.UNKNOWN)


@with_raising
async def test_a_rejection_after_a_redirected_post_proves_nothing(client: Client) -> None:
    """It rejects the GET, and not the POST that was answered by 303."""
    async with serving(reply(303, location="/order/1"), reply(404)) as url:
        verdict = await verdict_of(client, url, method="POST")

    assert outcome(verdict) == (Code.NOT_FOUND, Proof.UNKNOWN)


@with_raising
async def test_a_rejection_after_a_redirected_get_is_one(client: Client) -> None:
    """A GET changes nothing, and is redirected every day."""
    async with serving(reply(302, location="/order/1"), reply(404)) as url:
        verdict = await verdict_of(client, url)

    assert outcome(verdict) == (Code.NOT_FOUND, Proof.REFUSED)


@pytest.mark.parametrize("client", [by_httpx2, by_httpx, by_requests, by_aiohttp], ids=lambda client: client.__name__)
async def test_a_post_that_is_sent_on_unchanged_may_be_rejected_there(client: Client) -> None:
    """307 says that the resource is elsewhere, as for a missing slash: nothing was done yet."""
    async with serving(reply(307, location="/orders/"), reply(409)) as url:
        verdict = await verdict_of(client, url, method="POST")

    assert outcome(verdict) == (Code.CONFLICT, Proof.REFUSED)


@with_each
async def test_a_certificate_that_is_not_trusted_needs_a_person(client: Client) -> None:
    """It is looked at before anything is sent; no retry and no plan makes it valid."""
    async with streaming(lambda _head: endlessly(reply(200), b""), tls=certified()) as server:
        verdict = await verdict_of(client, server.url, method="POST")

    assert outcome(verdict) == (Code.NEEDS_PERSON, Proof.NOT_SENT)
    assert server.requests == []


@with_each
async def test_a_failed_handshake_sent_nothing(client: Client) -> None:
    """The server does not speak TLS."""
    async with listening(plain_words) as (_server, port):
        verdict = await verdict_of(client, f"https://127.0.0.1:{port}/", method="POST")

    assert outcome(verdict) == (Code.UNREACHABLE, Proof.NOT_SENT)


async def test_tls_that_breaks_after_the_handshake_proves_nothing() -> None:
    """It is the same class of ssl, raised while the answer is received: the request had been sent."""

    class Trusting(requests.adapters.HTTPAdapter):  # type: ignore[misc]  # requests is Any
        def init_poolmanager(self, *args: Any, **options: Any) -> None:
            super().init_poolmanager(*args, server_hostname="site.example", assert_hostname="site.example", **options)

    with broken_tls() as port, requests.Session() as session:
        session.trust_env, session.verify = False, str(PEM)
        session.mount("https://", Trusting())
        with pytest.raises(requests.exceptions.SSLError) as broken:
            await asyncio.to_thread(session.post, f"https://127.0.0.1:{port}/", timeout=5)

    assert outcome(judge(broken.value)) == (Code.UNREACHABLE, Proof.UNKNOWN)


async def test_retries_of_urllib3_that_were_all_refused_sent_nothing() -> None:
    """requests can be told to repeat requests; each of them counts."""
    session = repeating()
    with pytest.raises(requests.exceptions.ConnectionError) as refused:
        await asyncio.to_thread(session.post, f"http://127.0.0.1:{free_port()}/", timeout=5)

    assert outcome(judge(refused.value)) == (Code.UNREACHABLE, Proof.NOT_SENT)


async def test_a_refused_retry_does_not_hide_a_lost_answer() -> None:
    """The server goes away after it got the first request: that one may have had its effect."""
    async with gone_after_one_request() as url:
        with pytest.raises(requests.exceptions.ConnectionError) as refused:
            await asyncio.to_thread(repeating().post, url, timeout=5)

    assert outcome(judge(refused.value)) == (Code.UNREACHABLE, Proof.UNKNOWN)


async def test_a_rejected_retry_does_not_hide_a_failure() -> None:
    """`exists already` may be what the first request did before its 503."""
    async with serving(reply(503), reply(409)) as url:
        answer = await asyncio.to_thread(repeating().post, url, timeout=5)
        with pytest.raises(requests.exceptions.HTTPError) as rejected:
            answer.raise_for_status()

    assert outcome(judge(rejected.value)) == (Code.CONFLICT, Proof.UNKNOWN)


async def test_too_many_failures_are_a_server_error() -> None:
    """requests gives up without the last response."""
    async with serving(reply(503)) as url:
        with pytest.raises(requests.exceptions.RetryError) as failed:
            await asyncio.to_thread(repeating().post, url, timeout=5)

    assert outcome(judge(failed.value)) == (Code.SERVER_ERROR, Proof.UNKNOWN)


async def test_an_earlier_exception_says_nothing_of_the_next_request() -> None:
    """A tool asks a second server in its `except`; that the first one was down does not prove that this one was."""

    def fall_back(second: str) -> None:
        try:
            requests.post(f"http://127.0.0.1:{free_port()}/", timeout=5)
        except requests.exceptions.ConnectionError:
            requests.post(second, timeout=5)

    async with serving(b"") as url:
        with pytest.raises(requests.exceptions.ConnectionError) as lost:
            await asyncio.to_thread(fall_back, url)

    assert outcome(judge(lost.value)) == (Code.UNREACHABLE, Proof.UNKNOWN)


async def test_a_proxy_that_loses_the_answer_proves_nothing() -> None:
    """urllib3 calls it `ProxyError: Unable to connect to proxy`, though the request had been sent."""
    async with serving(b"") as proxy:
        with pytest.raises(requests.exceptions.ProxyError) as lost:
            await asyncio.to_thread(requests.post, "http://shop.example/", timeout=5, proxies={"http": proxy})

    assert outcome(judge(lost.value)) == (Code.UNREACHABLE, Proof.UNKNOWN)


async def test_a_proxy_that_opens_no_tunnel_passed_nothing_on() -> None:
    """The request comes after the tunnel."""
    async with serving(reply(407)) as proxy, aiohttp.ClientSession() as session:
        with pytest.raises(requests.exceptions.ProxyError) as by_text:
            await asyncio.to_thread(requests.post, "https://shop.example/", timeout=5, proxies={"https": proxy})
        with pytest.raises(aiohttp.ClientHttpProxyError) as by_status:
            await session.post("https://shop.example/", proxy=proxy)
        with pytest.raises(httpx.ProxyError) as by_class:
            await asyncio.to_thread(httpx.Client(proxy=proxy, trust_env=False).post, "https://shop.example/")

    assert outcome(judge(by_text.value)) == (Code.UNREACHABLE, Proof.NOT_SENT)
    assert outcome(judge(by_status.value)) == (Code.UNAUTHORIZED, Proof.NOT_SENT)
    assert outcome(judge(by_class.value)) == (Code.UNREACHABLE, Proof.NOT_SENT)


@pytest.mark.parametrize("address", ["shop.example", "ftp://shop.example/", "http://"])
@pytest.mark.parametrize("client", [by_httpx, by_requests, by_aiohttp], ids=lambda client: client.__name__)
async def test_an_address_that_is_none_is_the_planner_s_to_change(client: Client, address: str) -> None:
    """It is rejected before anything is sent."""
    assert outcome(await verdict_of(client, address, method="POST")) == (Code.INVALID_INPUT, Proof.NOT_SENT)


async def test_a_response_that_is_no_json() -> None:
    """requests' own class of it, which is also that of `json`; and aiohttp's, by its status."""
    async with serving(reply(200, b"<html>", content_type="text/html")) as url, aiohttp.ClientSession() as session:
        with pytest.raises(requests.exceptions.JSONDecodeError) as wrong:
            (await asyncio.to_thread(requests.get, url, timeout=5)).json()
        async with session.get(url) as answer:
            with pytest.raises(aiohttp.ContentTypeError) as html:
                await answer.json()
    async with (
        serving(reply(503, b"<html>", content_type="text/html")) as url,
        aiohttp.ClientSession() as session,
        session.get(url) as answer,
    ):
        with pytest.raises(aiohttp.ContentTypeError) as failure:
            await answer.json()

    assert outcome(judge(wrong.value)) == (Code.UNEXPECTED_RESULT, Proof.UNKNOWN)
    assert outcome(judge(html.value)) == (Code.UNEXPECTED_RESULT, Proof.UNKNOWN)
    assert outcome(judge(failure.value)) == (Code.SERVER_ERROR, Proof.UNKNOWN)


def test_every_exception_has_an_entry_of_its_own_library() -> None:
    """A class that a new version brings fails here until somebody says what it means."""
    uncovered = list[str]()
    for raised in (one for package in PACKAGES for one in exceptions_of(package)):
        names = [name for name in map(qualified, raised.__mro__) if name in TABLE]
        if not names or names[0].partition(".")[0] != raised.__module__.partition(".")[0]:
            uncovered.append(qualified(raised))

    assert uncovered == []


def test_every_entry_answers_whatever_the_exception_carries() -> None:
    """A tool may make an exception itself, and a pickled one has lost what it carried."""
    for raised in (one for package in PACKAGES for one in exceptions_of(package)):
        for values in ({}, dict.fromkeys(NAMES), dict.fromkeys(NAMES, "x"), dict.fromkeys(NAMES, Nonsense())):
            error = raised.__new__(raised)
            for name, value in values.items():
                try:
                    setattr(error, name, value)
                except Exception:  # noqa: S112  # a property without a setter
                    continue
            verdict = judge(error)

            assert verdict.fault.reason.endswith(".") and len(verdict.fault.reason) < 300
            assert values == {} or "x returned" not in verdict.fault.reason


NAMES = ("args", "response", "request", "request_info", "status", "code", "headers", "history", "reason", "url", "fp")


class Nonsense:
    """Whatever is asked of it, it fails."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __iter__(self) -> Iterator[Any]:
        return iter(())


def exceptions_of(package: str) -> list[type[BaseException]]:
    """All exceptions that a package and its modules define, as far as they can be imported."""
    module = importlib.import_module(package)
    for info in pkgutil.walk_packages(getattr(module, "__path__", []), f"{package}."):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                importlib.import_module(info.name)
            except Exception:  # noqa: S112  # it needs another package
                continue

    def below(raised: type[BaseException]) -> Iterator[type[BaseException]]:
        for child in raised.__subclasses__():
            yield child
            yield from below(child)

    found = {one for one in below(BaseException) if one.__module__.partition(".")[0] == package}
    return sorted((one for one in found if not issubclass(one, Warning)), key=qualified)


def repeating() -> Any:
    """A session of requests that repeats each request, also a POST."""
    retry = urllib3.util.Retry(2, allowed_methods=None, status_forcelist=[503], backoff_factor=0)
    session = requests.Session()
    session.trust_env = False
    session.mount("http://", requests.adapters.HTTPAdapter(max_retries=retry))
    return session


def certified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(PEM)
    return context


@asynccontextmanager
async def listening(
    talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[Any]:
    """A server on loopback; yields it with its port."""
    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        yield server, server.sockets[0].getsockname()[1]


async def plain_words(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer anything in plain text."""
    await reader.read(1)
    writer.write(reply(400))
    await writer.drain()
    writer.close()


@asynccontextmanager
async def gone_after_one_request() -> AsyncIterator[str]:
    """A server that gets one request, and then closes the connection and its port."""
    servers = list[Any]()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        servers[0].close()
        writer.close()

    async with listening(talk) as (server, port):
        servers.append(server)
        yield f"http://127.0.0.1:{port}"


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
