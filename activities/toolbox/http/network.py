"""HTTP to addresses that a planner chose: only public addresses are reached, unless the operator allows others."""

import asyncio
import re
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, NamedTuple, TypeVar

import httpcore2
import httpx2

from activities import deadline, tracing
from activities.errors import Refused, Unreachable, unsent

READ_DEADLINE = 20.0
"""The most seconds for reading the body of a web server's answer; the rest of the body is left out."""
MAX_URL = 2000  # characters of a URL; browsers and servers accept this many


def redirected(here: httpx2.URL, location: str) -> httpx2.URL:
    """Return the absolute URL of a redirect's Location header; raises Refused if `checked` rejects the URL."""
    try:
        return checked(here.join(location))
    except ValueError:  # raised by the standard library for wrong brackets
        raise Refused("The address redirects to an invalid one: use another one.", code="unexpected_result") from None


def checked(url: httpx2.URL) -> httpx2.URL:
    """Return `url` if it has an acceptable form; the host is not looked up.

    Raises:
        Refused: it is no http(s) URL, is too long, or has an invalid port, a user name or a password.
    """
    if url.scheme not in ("http", "https") or not url.raw_host:
        reason = "The address must begin with http:// or https:// and name a host."
    elif url.userinfo:
        reason = "The address has something before an @: give it without a user's name and password."
    elif url.port is not None and not 0 < url.port < 65536:
        reason = "The port of the address is invalid: leave it out, or give one from 1 to 65535."
    elif len(str(url)) > MAX_URL:
        reason = f"The address has more than {MAX_URL} characters: use a shorter one."
    else:
        return url
    raise unsent(Refused(reason, code="invalid_input"))


_NAME = re.compile(r"(?:[a-z0-9_][a-z0-9_-]*\.)*(?![0-9]+$)[a-z0-9_][a-z0-9_-]*")
"""Matches a host name in small letters. Its last part is no number, so a mistyped IP address does not match."""

_UNICAST = IPv6Network("2000::/3")  # the public part of IPv6 (IANA, IPv6 Global Unicast Address Assignments)
_NAT64 = IPv6Network("64:ff9b::/96")
"""IPv6 addresses that stand for the IPv4 address in their last 32 bits (RFC 6052)."""
# Not public, although Python's `is_global` is true for some of these addresses.
_CLOSED = (
    ip_network("168.63.129.16/32"),  # Azure's services for its own machines, at an address that looks public
    ip_network("192.0.0.0/24"),  # for protocols (RFC 6890); some clouds have services here
    ip_network("192.88.99.0/24"),  # an unknown 6to4 relay (RFC 7526)
    ip_network("3fff::/20"),  # for documentation (RFC 9637); newer than Python's table
)


class BadReach(ValueError):
    """A value of `--allow-host`, `--allow-request` or `--http-header` cannot be used; the message names the value."""


@dataclass(frozen=True)
class Reach:
    """The addresses that may be reached: public addresses, and the names and networks of `--allow-host`."""

    names: frozenset[str] = frozenset()
    networks: tuple[IPv4Network | IPv6Network, ...] = ()

    @classmethod
    def of(cls, allowed: Iterable[str]) -> "Reach":
        """Read the values of `--allow-host`: names, addresses and networks; raises BadReach for anything else."""
        names, networks = set[str](), list[IPv4Network | IPv6Network]()
        for entry in allowed:
            name = plain(entry)
            try:
                networks.append(ip_network(name.strip("[]"), strict=False))
            except ValueError:
                if not _NAME.fullmatch(name):
                    examples = "intranet.example, 10.0.0.7 or 10.0.0.0/8"
                    reason = f"--allow-host: {entry!r} is no host, address or network, such as {examples}."
                    raise BadReach(reason) from None
                names.add(name)
        return cls(frozenset(names), tuple(networks))

    def allows_name(self, host: str) -> bool:
        """Whether a request to `host` may connect to any address."""
        return plain(host) in self.names

    def allows(self, host: str, address: str) -> bool:
        """Whether a request to `host` may connect to `address`, which is an IP address of this host."""
        if self.allows_name(host):
            return True
        found = _reached(ip_address(address))
        return is_public(found) or any(found in network for network in self.networks)


def read_host(text: str) -> str | None:
    """The normalised name or address of a host; None if the text is neither."""
    name = plain(text)
    try:
        return str(ip_address(name[1:-1] if name.startswith("[") and name.endswith("]") else name))
    except ValueError:
        return name if _NAME.fullmatch(name) else None


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether an address is on the public internet: no private network, loopback, multicast or cloud metadata."""
    found = _reached(address)
    if found.version == 6 and found not in _UNICAST:
        return False
    return found.is_global and not found.is_multicast and not any(found in network for network in _CLOSED)


def _reached(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address inside a mapped, 6to4 or NAT64 IPv6 address; else the address itself."""
    # Otherwise a private IPv4 address could be written as an IPv6 address that looks public.
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


def plain(name: str) -> str:
    """A host name in small letters, without surrounding spaces and without a final dot."""
    return name.strip().lower().removesuffix(".")


MAX_REDIRECTS = 5
MAX_ADDRESSES = 4  # addresses of one name that are tried, one after the other
PARSERS = 2  # pages that are parsed at the same time; Python runs one thread at a time
MAX_TRAFFIC = 6_000_000  # bytes that a server may send on one connection, with headers, before decompression

HEADERS: Mapping[str, str] = {
    "user-agent": "Replan",
    "accept": "text/html, text/*;q=0.9, */*;q=0.1",
    "accept-encoding": "gzip, deflate",
}

T = TypeVar("T")

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Resolves a host and port to addresses, the best first; raises `socket.gaierror`."""


async def resolve(host: str, port: int) -> Sequence[str]:
    """Resolve a name with the system's resolver, which also reads addresses such as 0x7f.1."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


@dataclass(frozen=True)
class Patience:
    """Time limits of a request, in seconds."""

    silence: float = deadline.CONNECT_TIMEOUT  # the time to connect, and between two pieces of a page
    reading: float = READ_DEADLINE  # the time to read the body, which is cut then


class Web:
    """An HTTP client for addresses that a planner or a page chose; it reaches public addresses only.

    It resolves a name once for each connection, checks all its addresses, and connects to one of these, so that a
    second look-up cannot give another address. It checks redirects in the same way. It ignores the proxy settings of
    the environment, because a proxy would resolve the name again. It keeps no cookies and no connections.
    """

    def __init__(
        self,
        reach: Reach | None = None,
        resolve: Resolve = resolve,
        tls: ssl.SSLContext | None = None,
        patience: Patience | None = None,
    ) -> None:
        """Connect only to addresses that `reach` allows, by default public ones. `tls` has the trusted certificates.

        `resolve` looks up host names, and `patience` has the time limits.
        """
        self.patience = patience or Patience()
        self._reach = reach or Reach()
        self._network = _CheckedNetwork(self._reach, resolve, self.patience)
        self._given_tls = tls
        self._parsers = ThreadPoolExecutor(PARSERS, thread_name_prefix="page")

    def allows_name(self, host: str) -> bool:
        """Whether the operator allows a host by its name, whatever its address is."""
        return self._reach.allows_name(host)

    async def parse(self, function: Callable[[], T]) -> T:
        """Call `function`, which reads the content of a page, in one of a few threads that do nothing else."""
        # A large page takes a second of the processor: not on the event loop, nor in the threads that others wait for.
        return await asyncio.get_running_loop().run_in_executor(self._parsers, function)

    @asynccontextmanager
    async def get(self, url: str) -> AsyncIterator[httpx2.Response]:
        """Get `url` and follow redirects; the caller reads the body of the answer as a stream, inside the block.

        Only the bytes on the network are limited here: the caller must limit the decompressed bytes (see `read_body`).

        Raises:
            Refused, Unreachable, httpx2.InvalidURL, httpcore2.*: see `borders/http.py`.
        """
        here = checked(httpx2.URL(url))
        for _ in range(MAX_REDIRECTS + 1):
            async with self.exchange(here, "GET", HEADERS, None) as answer:
                if not answer.has_redirect_location:
                    yield answer
                    return
                here = redirected(here, answer.headers["location"])
        reason = f"The address redirects more than {MAX_REDIRECTS} times: use another one."
        raise Refused(reason, code="unexpected_result")

    @asynccontextmanager
    async def exchange(
        self, url: httpx2.URL, method: str, headers: Mapping[str, str], content: bytes | None
    ) -> AsyncIterator[httpx2.Response]:
        """Send one request to a URL that `checked` returned; redirects are not followed. `content` is the body or None.

        Inside the block, the caller reads the body of the answer as a stream.
        """
        target = httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        silence, is_page = self.patience.silence, method == "GET"
        # The attempt's deadline ends the wait for an answer, since the service may work on it.
        limits = httpx2.Timeout(silence, read=silence if is_page and deadline.left() is None else None).as_dict()
        extensions = {"timeout": limits, "trace": deadline.Guard()}
        sent: list[tuple[str | bytes, str | bytes]] = list(headers.items())
        tls = self._tls if url.scheme == "https" else None
        with tracing.http_span(method, url) as span:  # whose headers are not sent: a planner chose the address
            async with (
                httpcore2.AsyncConnectionPool(ssl_context=tls, network_backend=self._network) as connections,
                connections.stream(method, target, headers=sent, content=content, extensions=extensions) as answer,
            ):
                span.answered(answer.status)
                if is_page:  # one that stops in the middle is not waited for
                    limits["read"] = silence
                request = httpx2.Request(method, url)
                yield httpx2.Response(answer.status, headers=answer.headers, stream=_Stream(answer), request=request)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return self._given_tls or httpx2.create_ssl_context()


class Body(NamedTuple):
    content: bytes
    cut: str  # why it is not the whole body; empty if it is


async def read_body(
    answer: httpx2.Response, max_bytes: int, seconds: float, *, keeps_undecodable: bool = False
) -> Body:
    """Read and decompress a body, which may never end: at most `max_bytes` bytes, and for at most `seconds`.

    At broken compression, the body is cut if `keeps_undecodable`; if not, httpx2.DecodingError is raised.
    """
    content, cut = bytearray(), ""
    try:
        async with asyncio.timeout(seconds), aclosing(answer.aiter_bytes()) as parts:
            async for part in parts:
                content += part
                if len(content) > max_bytes:
                    cut = f"cut after {max_bytes:,} bytes"
                    break
    except TimeoutError:
        cut = f"cut after {seconds:g} s, when more was still to come"
    except httpx2.DecodingError:
        if not keeps_undecodable:
            raise
        cut = "cut where its encoding was broken"
    return Body(bytes(content[:max_bytes]), cut)


class _Stream(httpx2.AsyncByteStream):
    """Adapts the body of an httpcore2 response to httpx2, which decompresses it."""

    def __init__(self, answer: httpcore2.Response) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async with aclosing(self._answer.aiter_stream()) as parts:
            async for part in parts:
                yield part


class _CheckedNetwork(httpcore2.AsyncNetworkBackend):
    """Resolves names and connects only to allowed addresses; httpcore2 uses the name for TLS and the Host header."""

    def __init__(self, reach: Reach, resolve: Resolve, patience: Patience) -> None:
        self._reach = reach
        self._patience = patience
        self._resolve = resolve
        self._sockets = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  # httpcore2's signature
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to the first address of the host that accepts a connection.

        Raises:
            Refused: an address of the host is not allowed, or there is no such host.
            Unreachable: no address accepts a connection, or the look-up failed.
        """
        for address in (await self._addresses(host, port))[:MAX_ADDRESSES]:
            deadline.check()
            limit = deadline.connect_timeout(timeout)
            try:
                stream = await self._sockets.connect_tcp(address, port, limit, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
            return _Metered(stream, _shortened(host))
        raise unsent(Unreachable(f"{_shortened(host)} takes no connection at port {port}; nothing was sent."))

    async def _addresses(self, host: str, port: int) -> Sequence[str]:
        """The addresses of a host, after checking that all of them are allowed; raises as `connect_tcp`."""
        try:
            async with asyncio.timeout(self._patience.silence):
                addresses = await self._resolve(host, port)
        except TimeoutError:
            raise unsent(Unreachable(f"Looking up {_shortened(host)} took too long; nothing was sent.")) from None
        except UnicodeError:
            reason = f"{_shortened(host)} cannot be the name of a host: use another."
            raise unsent(Refused(reason, code="invalid_input")) from None
        except socket.gaierror as error:
            raise unsent(_unknown(host, error)) from None
        # One forbidden address is enough: somebody may have added it to a public name to reach the private network.
        if not all(self._reach.allows(host, address) for address in addresses):
            reason = (
                f"{_shortened(host)} is not on the public internet; outside of it, this worker reaches only what "
                "--allow-host names: use a public address."
            )
            raise unsent(Refused(reason, code="invalid_input"))
        return addresses


def _unknown(host: str, error: socket.gaierror) -> Refused | Unreachable:
    """The error for a failed look-up: Refused if there is no such name, Unreachable if no resolver answered."""
    if error.errno in (socket.EAI_NONAME, socket.EAI_FAIL, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)):
        return Refused(f"There is no host {_shortened(host)}: check the spelling, or use another.", code="not_found")
    return Unreachable(f"The name {_shortened(host)} could not be looked up at the moment; nothing was sent.")


def _shortened(host: str) -> str:
    return host if len(host) <= 100 else f"{host[:100]}…"


class TooMuch(Refused):
    """A server sent more than `MAX_TRAFFIC` bytes. The effect of the request may have been applied."""


class _Metered(httpcore2.AsyncNetworkStream):
    """A connection whose `read` raises TooMuch after the server has sent `MAX_TRAFFIC` bytes."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream, host: str) -> None:
        self._stream = stream
        self._host = host
        self._left = MAX_TRAFFIC

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109  # httpcore2's signature
        read = await self._stream.read(max_bytes, timeout)
        self._left -= len(read)
        if self._left < 0:
            reason = f"{self._host} sent {MAX_TRAFFIC:,} bytes and had not finished: use another address."
            raise TooMuch(reason, code="unexpected_result")
        return read

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109  # httpcore2's signature
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  # httpcore2's signature
    ) -> httpcore2.AsyncNetworkStream:
        try:
            stream = await self._stream.start_tls(ssl_context, server_hostname, timeout)
        except httpcore2.ConnectError as error:
            if isinstance(error.__cause__, ssl.SSLCertVerificationError):
                reason = f"The certificate of {self._host} cannot be verified: use another address."
                raise unsent(Refused(reason)) from None
            raise
        return _Metered(stream, self._host)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
