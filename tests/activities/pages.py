"""Pages fetched by `fetch_page` from servers of this machine, and resolvers that know what a test tells them."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

import pytest

from activities.borders import classify
from activities.toolbox.http.fetch_page import PageAddress, WebPage, fetch_page
from activities.toolbox.http.network import Reach, Resolve, Web
from evals.fakes.http_server import serving
from workflows.faults.fault import Fault

HERE = ("127.0.0.1",)
"""Allows the servers of tests, which all listen there."""
PAGE = b"<title>Prices</title><h1>Lamps</h1><p>A-17 costs 24.50.</p><script>alert(1)</script>"
HTML = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n"
"""How an answer begins that a test goes on with."""


async def fetch(url: str, allowed: Iterable[str] = HERE, **web: Any) -> WebPage:
    """Fetch a page with a worker that allows these hosts."""
    return await fetch_page(PageAddress(url=url), Web(Reach.of(allowed), **web))


async def fault_of(url: str, allowed: Iterable[str] = HERE, **web: Any) -> Fault:
    """What a call that fails is classified as."""
    try:
        page = await fetch(url, allowed, **web)
    except Exception as error:
        return classify(error)
    pytest.fail(f"{url} was fetched: {page}")


async def served(*answers: bytes | None, **web: Any) -> WebPage:
    """The page that a server answers with."""
    async with serving(*answers) as url:
        return await fetch(url, **web)


async def refused(*answers: bytes | None, **web: Any) -> Fault:
    """The fault of a call to a server that answers so."""
    async with serving(*answers) as url:
        return await fault_of(url, **web)


async def whole(answer: bytes) -> AsyncIterator[bytes]:
    """An answer in one piece, for a server that streams."""
    yield answer


def stands_for(*addresses: str) -> Resolve:
    """A resolver for which every name stands for these addresses."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        return addresses

    return resolve


def fails_with(error: Exception) -> Resolve:
    """A resolver that finds nothing."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        raise error

    return resolve


async def offline(host: str, port: int) -> Sequence[str]:
    """A resolver that asks nobody: it knows one name, besides what the system reads as an address."""
    if host == "site.example":
        return ("127.0.0.1",)
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    return [str(address[0]) for *_, address in found]
