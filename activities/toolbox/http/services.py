"""Services: the hosts that a worker may send requests to, and the headers that it adds to these requests.

`fetch_page` may read any public page. A request that may change something goes only to hosts that the operator named.
"""

import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

import httpx2

from activities.errors import NeedsPerson, Refused, answered, unsent
from activities.toolbox.http.network import MAX_REDIRECTS, BadReach, TooMuch, Web, checked, plain, read_host, redirected
from workflows.text import decode_text

HEADER_NAME = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}$"
HEADER_VALUE = r"^[\t\x20-\x7e]{0,2000}$"
"""Patterns of a header's name and of its value (RFC 9110, section 5), in ASCII. A value contains no line break, because
a line break would begin another header."""

OURS: Mapping[str, str] = {
    "user-agent": "Replan",
    "accept": "application/json, */*;q=0.5",
    "accept-encoding": "gzip, deflate",
}
"""Headers of every request to a service."""
_PASSED_ON = frozenset({301, 307, 308})  # such a redirect proves that nothing was applied; a 302 may follow an effect


class AllowedHost(NamedTuple):
    """An allowed host, with one port, or with any port (None)."""

    host: str
    port: int | None


@dataclass(frozen=True)
class Services:
    """Sends requests to the hosts of `--allow-request` only, with the checks of `Web`."""

    web: Web = field(default_factory=Web)
    places: frozenset[AllowedHost] = frozenset()
    headers: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    """By host, the headers that the worker adds: mostly credentials, which no argument and no history may contain."""

    @classmethod
    def of(
        cls, allowed: Iterable[str], headers: Iterable[str], environment: Mapping[str, str], web: Web | None = None
    ) -> "Services":
        """Read the values of `--allow-request` (`HOST`, `HOST:PORT`) and of `--http-header` (`HOST=NAME:VARIABLE`).

        VARIABLE is the environment variable with the value of the header NAME. Raises BadReach for a wrong value.
        """
        places = frozenset(map(_read_host_and_port, allowed))
        headers_of = dict[str, dict[str, str]]()
        for text in headers:
            host, name, value = _header(text, environment)
            if host not in {place.host for place in places}:
                raise BadReach(f"--http-header {text}: {host} is not allowed: give --allow-request {host}, too.")
            headers_of.setdefault(host, {})[name] = value
        return cls(web or Web(), places, headers_of)

    @asynccontextmanager
    async def send(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes | None
    ) -> AsyncIterator[httpx2.Response]:
        """Send one request; the caller reads the body of the answer as a stream, inside the block.

        Only a GET follows redirects, and only to allowed hosts.

        Raises:
            NeedsPerson: the host of `url` is not allowed.
            Exception: the errors of `Web.get`.
        """
        here = self._check_allowed(checked(httpx2.URL(url)))
        for _ in range(MAX_REDIRECTS + 1):
            more = {**OURS, **headers, **self.headers.get(_host(here), {})}
            try:
                async with self.web.exchange(here, method, more, content) as answer:
                    if not answer.has_redirect_location or (method != "GET" and answer.status_code not in _PASSED_ON):
                        yield answer
                        return
                    target = redirected(here, answer.headers["location"])
            except TooMuch as much:
                if method == "GET":
                    raise
                # The effect may have been applied: an unknown outcome, and not a rejection.
                raise httpx2.RemoteProtocolError(str(much)) from None
            if method != "GET":
                reason = f"{here.host} returned {answer.status_code}, a redirect: use the address in `location`."
                raise answered(Refused(reason, code="unexpected_result", observed={"location": str(target)}))
            here, headers = self._follows(here, target), headers if _origin(here) == _origin(target) else {}
        reason = f"The address redirects more than {MAX_REDIRECTS} times: use another one."
        raise Refused(reason, code="unexpected_result")

    def _check_allowed(self, url: httpx2.URL) -> httpx2.URL:
        """Return `url`. Raises NeedsPerson if its host is not allowed, Refused if headers for it need https."""
        host = _host(url)
        if not self._is_allowed(url):
            at = host if len(host) <= 100 else f"{host[:100]}…"
            reason = f"This worker may send nothing to {at}: start it with --allow-request {at}, if it should."
            raise unsent(NeedsPerson(reason, code="forbidden"))
        if url.scheme != "https" and host in self.headers and not _is_loopback(host):
            reason = f"The worker sends its own headers to {host}, so the address must begin with https://."
            raise unsent(Refused(reason, code="invalid_input"))
        return url

    def _is_allowed(self, url: httpx2.URL) -> bool:
        host, port = _host(url), _port(url)
        return not self.places.isdisjoint({AllowedHost(host, None), AllowedHost(host, port)})

    def _follows(self, here: httpx2.URL, target: httpx2.URL) -> httpx2.URL:
        """Return `target`, to which `here` redirects. Raises Refused if the worker may not send requests to it."""
        if not self._is_allowed(target) or (here.scheme, target.scheme) == ("https", "http"):
            reason = f"{here.host} redirects to a host that this worker may not send to: use another address."
            raise Refused(reason, code="unexpected_result")
        return self._check_allowed(target)


def _read_host_and_port(text: str) -> AllowedHost:
    """Read a value of `--allow-request`. Raises BadReach if it cannot be used."""
    host, port = text, ""
    if re.fullmatch(r"(?:\[.*\]|[^:]*):[^:\]]*", text):
        host, _, port = text.rpartition(":")
    read = read_host(host)
    if read is None or (port and not (port.isdecimal() and 0 < int(port) < 65536)) or text.endswith(":"):
        examples = "api.example, api.example:8443 or 10.0.0.7"
        raise BadReach(f"--allow-request: {text!r} is no host, such as {examples}.")
    return AllowedHost(read, int(port) if port else None)


def _header(text: str, environment: Mapping[str, str]) -> tuple[str, str, str]:
    """Read a value of `--http-header`: the host, the header's name, its value. Raises BadReach if it cannot be used."""
    host, has_host, rest = text.partition("=")
    name, has_name, variable = rest.partition(":")
    read = read_host(host)
    if not (has_host and has_name and variable) or read is None or not re.fullmatch(HEADER_NAME, name):
        example = "api.example=Authorization:SHOP_AUTHORIZATION"
        raise BadReach(f"--http-header: {text!r} is not HOST=NAME:VARIABLE, such as {example}.")
    value = environment.get(variable, "") or _content_of(text, environment.get(f"{variable}_FILE"))
    if not value:
        raise BadReach(
            f"--http-header {text}: the environment has no {variable}: set it to the value of the header, or"
            f" {variable}_FILE to a file with the value."
        )
    if not re.fullmatch(HEADER_VALUE, value) or value != value.strip():
        raise BadReach(f"--http-header {text}: {variable} is no header value: it must be one line of ASCII.")
    return read, name.lower(), value


def _content_of(text: str, file: str | None) -> str:
    """The text in `file`, e.g. a container's secret; empty if `file` is None. Raises BadReach for the option `text`."""
    try:
        return decode_text(Path(file).read_bytes()).strip() if file else ""
    except (OSError, UnicodeDecodeError) as error:
        raise BadReach(f"--http-header {text}: {file!r} cannot be read ({error}): correct its variable.") from error


def service_at(url: str) -> str:
    """`HOST:PORT` of an address, which names its service for breakers and limits; raises Refused as `checked`."""
    at = checked(httpx2.URL(url))
    return f"{_host(at)}:{_port(at)}"


def _port(url: httpx2.URL) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


def _host(url: httpx2.URL) -> str:
    return plain(url.raw_host.decode())


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, _host(url), url.port


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
