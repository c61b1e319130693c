"""The network: gets what stands at an address that somebody else chose, and does not let it lead inside."""

import asyncio
import re
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

import httpcore2
import httpx2

from activities.deadline import Guard
from activities.errors import Refused, Unreachable, unsent
from workflows import routing

MAX_URL = 2000
"""Characters of an address, which is what browsers and servers agree on."""


def joined(here: httpx2.URL, location: str) -> httpx2.URL:
    """Where a redirect leads, which is often said as seen from `here`."""
    try:
        return here.join(location)
    except ValueError:  # the standard library's, on brackets
        raise Refused("The address redirects to none: use another one.", code="unexpected_result") from None


def checked(url: httpx2.URL) -> httpx2.URL:
    """An address that can be asked at all.

    Raises:
        Refused: it is none of the web, is too long, or carries a name and password.
    """
    if url.scheme not in ("http", "https") or not url.raw_host:
        reason = "The address must begin with http:// or https:// and name a host."
    elif url.userinfo:
        reason = "The address has something before an @: give it without a user's name and password."
    elif url.port is not None and not 0 < url.port < 65536:
        reason = "The port of the address is none: leave it out, or give one from 1 to 65535."
    elif len(str(url)) > MAX_URL:
        reason = f"The address has more than {MAX_URL} characters: use a shorter one."
    else:
        return url
    raise unsent(Refused(reason, code="invalid_input"))


_NAME = re.compile(r"(?:[a-z0-9_][a-z0-9_-]*\.)*(?![0-9]+$)[a-z0-9_][a-z0-9_-]*")
"""A host name in small letters whose last part is no number, so that a mistyped address is none."""

_UNICAST = IPv6Network("2000::/3")
"""All of IPv6 that is given out for use between networks (IANA, IPv6 Global Unicast Address Assignments)."""
_NAT64 = IPv6Network("64:ff9b::/96")
"""IPv6 addresses that a translator turns into the IPv4 address in their last 32 bits (RFC 6052)."""
_CLOSED = (
    ip_network("168.63.129.16/32"),  # Azure's services for its own machines, at an address that looks public
    ip_network("192.0.0.0/24"),  # for protocols (RFC 6890), of which some clouds use parts
    ip_network("192.88.99.0/24"),  # the nearest 6to4 relay, whoever runs it (RFC 7526)
    ip_network("3fff::/20"),  # for documentation (RFC 9637), which Python's table does not know yet
)


class BadReach(ValueError):
    """An entry of the allow-list cannot be used; the message says which."""


@dataclass(frozen=True)
class Reach:
    """Public addresses, and what the person who started the worker allowed besides."""

    names: frozenset[str] = frozenset()
    networks: tuple[IPv4Network | IPv6Network, ...] = ()

    @classmethod
    def of(cls, allowed: Iterable[str]) -> "Reach":
        """Read what is allowed: names, addresses and networks.

        Raises:
            ValueError: one of them is none of these; its message is for the person who wrote it.
        """
        names, networks = set[str](), list[IPv4Network | IPv6Network]()
        for entry in allowed:
            name = plain(entry)
            try:
                networks.append(ip_network(name.strip("[]"), strict=False))
            except ValueError:
                if not _NAME.fullmatch(name):
                    examples = "intranet.example, 10.0.0.7 or 10.0.0.0/8"
                    raise BadReach(
                        f"--allow-host: {entry!r} is no host, address or network, such as {examples}."
                    ) from None
                names.add(name)
        return cls(frozenset(names), tuple(networks))

    def allows(self, host: str, address: str) -> bool:
        """Whether a call of `host` may connect to `address`, one of those that the name stands for."""
        if plain(host) in self.names:
            return True
        found = _reached(ip_address(address))
        return is_public(found) or any(found in network for network in self.networks)


def read_host(text: str) -> str | None:
    """The name or the address of one host, as it is compared; None when it is neither."""
    name = plain(text)
    try:
        return str(ip_address(name[1:-1] if name.startswith("[") and name.endswith("]") else name))
    except ValueError:
        return name if _NAME.fullmatch(name) else None


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether an address belongs to the public internet: nobody's own network, machine, group or cloud metadata."""
    found = _reached(address)
    if found.version == 6 and found not in _UNICAST:
        return False
    return found.is_global and not found.is_multicast and not any(found in network for network in _CLOSED)


def _reached(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address that an IPv6 address is only a wrapping of: mapped, 6to4, NAT64; else the address itself."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


def plain(name: str) -> str:
    """A host's name as it is compared."""
    return name.strip().lower().removesuffix(".")


MAX_REDIRECTS = 5
MAX_ADDRESSES = 4
"""Addresses of one name that are tried one after the other."""
MAX_TRAFFIC = 6_000_000
"""Bytes that one connection may send, headers included, before anything is unpacked."""

HEADERS: Mapping[str, str] = {
    "user-agent": "Replan",
    "accept": "text/html, text/*;q=0.9, */*;q=0.1",
    "accept-encoding": "gzip, deflate",
}

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Looks a name up: host and port to addresses, the best first; raises `socket.gaierror` like the system's resolver."""


async def resolve(host: str, port: int) -> Sequence[str]:
    """Look a name up as the system does; also reads the numbers that are an address in disguise, e.g. 0x7f.1."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


@dataclass(frozen=True)
class Patience:
    """How long a page is waited for, in seconds."""

    silence: float = routing.HTTP_CONNECT_TIMEOUT
    """To connect, and to say the next word."""
    reading: float = routing.HTTP_READ_DEADLINE
    """After which a page that is still arriving is cut."""


class Web:
    """A way to public addresses only, for tools whose address is not their author's choice.

    A name is looked up once for each connection, all its addresses are checked, and the connection goes to one of
    these: a second look-up, which could lead elsewhere, never happens. Redirects pass the same check. Settings of
    the environment for proxies do not count, since a proxy would look the name up again; nothing is kept between
    two calls, neither cookies nor connections.
    """

    def __init__(
        self,
        reach: Reach | None = None,
        resolve: Resolve = resolve,
        tls: ssl.SSLContext | None = None,
        patience: Patience | None = None,
    ) -> None:
        """Go as far as `reach`, by default to public addresses; `tls` says whose certificates are believed."""
        self.patience = patience or Patience()
        self._network = _CheckedNetwork(reach or Reach(), resolve, self.patience)
        self._given_tls = tls

    @asynccontextmanager
    async def get(self, url: str) -> AsyncIterator[httpx2.Response]:
        """Get `url`, following redirects; the body is read from the response, as a stream, inside the block.

        Whoever reads it counts what is unpacked: only what arrives is limited here.

        Raises:
            Refused: the address, or one that it redirects to, is none, or leads where it may not.
            Unreachable: nobody answers there.
            httpx2.InvalidURL, httpcore2.*: see `borders/http.py`.
        """
        here = checked(httpx2.URL(url))
        for _ in range(MAX_REDIRECTS + 1):
            async with self.exchange(here, "GET", HEADERS, None) as answer:
                if not answer.has_redirect_location:
                    yield answer
                    return
                here = checked(joined(here, answer.headers["location"]))
        reason = f"The address redirects more than {MAX_REDIRECTS} times: use another one."
        raise Refused(reason, code="unexpected_result")

    @asynccontextmanager
    async def exchange(
        self, url: httpx2.URL, method: str, headers: Mapping[str, str], content: bytes | None
    ) -> AsyncIterator[httpx2.Response]:
        """Send one request to a `checked` address, and get its answer as it is, whatever it redirects to."""
        target = httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        silence = self.patience.silence
        until = httpx2.Timeout(silence, read=silence if method == "GET" else None)  # work takes as long as it takes
        extensions = {"timeout": until.as_dict(), "trace": Guard()}
        said: list[tuple[str | bytes, str | bytes]] = list(headers.items())
        tls = self._tls if url.scheme == "https" else None
        async with (
            httpcore2.AsyncConnectionPool(ssl_context=tls, network_backend=self._network) as connections,
            connections.stream(method, target, headers=said, content=content, extensions=extensions) as answer,
        ):
            request = httpx2.Request(method, url)
            yield httpx2.Response(answer.status, headers=answer.headers, stream=_Body(answer), request=request)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return self._given_tls or httpx2.create_ssl_context()


class _Body(httpx2.AsyncByteStream):
    """The body of httpcore2's answer as httpx2, which unpacks it, wants it."""

    def __init__(self, answer: httpcore2.Response) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async with aclosing(self._answer.aiter_stream()) as parts:
            async for part in parts:
                yield part


class _CheckedNetwork(httpcore2.AsyncNetworkBackend):
    """Connects to checked addresses only; httpcore2 goes on using the name for TLS and the Host header."""

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
        for address in (await self._addresses(host, port))[:MAX_ADDRESSES]:
            try:
                stream = await self._sockets.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
            return _Metered(stream, _name(host))
        raise unsent(Unreachable(f"{_name(host)} takes no connection at port {port}; nothing was sent."))

    async def _addresses(self, host: str, port: int) -> Sequence[str]:
        try:
            async with asyncio.timeout(self._patience.silence):
                addresses = await self._resolve(host, port)
        except TimeoutError:
            raise unsent(Unreachable(f"Looking up {_name(host)} took too long; nothing was sent.")) from None
        except UnicodeError:
            reason = f"{_name(host)} cannot be the name of a host: use another."
            raise unsent(Refused(reason, code="invalid_input")) from None
        except socket.gaierror as error:
            raise unsent(_unknown(host, error)) from None
        if not all(self._reach.allows(host, address) for address in addresses):
            reason = (
                f"{_name(host)} is not on the public internet, and besides that this worker reaches only what its "
                "--allow-host names: use a public address."
            )
            raise unsent(Refused(reason, code="invalid_input"))
        return addresses


def _unknown(host: str, error: socket.gaierror) -> Refused | Unreachable:
    """What a failed look-up means: there is no such name, or nobody could be asked."""
    if error.errno in (socket.EAI_NONAME, socket.EAI_FAIL, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)):
        return Refused(f"There is no host {_name(host)}: check the spelling, or use another.", code="not_found")
    return Unreachable(f"The name {_name(host)} could not be looked up at the moment; nothing was sent.")


def _name(host: str) -> str:
    return host if len(host) <= 100 else f"{host[:100]}…"


class TooMuch(Refused):
    """A server did not stop sending. What was asked of it may have happened."""


class _Metered(httpcore2.AsyncNetworkStream):
    """A connection that ends before a server can send without end."""

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
