"""Whoever is told that nothing answers is told where: the host and the port, from data of the libraries."""

import asyncio
import http.client
import smtplib
import socket
import urllib.request
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine

from activities.borders import judge
from activities.borders.address import address_of, of_url, written
from evals.fakes.http_server import reply, serving
from runtime.dev_server import free_port
from tests.activities.bench import NO_TLS
from workflows.faults.fault import Code

PASSWORD = "hunter2-of-mine"  # noqa: S105  # of the tests


async def by_httpx2(port: int) -> None:
    async with httpx2.AsyncClient(trust_env=False, verify=NO_TLS) as client:
        await client.get(f"http://me:{PASSWORD}@localhost:{port}/hooks/secret")


async def by_httpx2_with_proxy(port: int) -> None:
    async with httpx2.AsyncClient(proxy=f"http://localhost:{port}", verify=NO_TLS) as client:
        await client.get("http://pay.example/")


async def by_asyncio(port: int) -> None:
    await asyncio.open_connection("localhost", port)


async def by_async_sqlalchemy(port: int) -> None:
    async with create_async_engine(f"postgresql+psycopg://me:{PASSWORD}@localhost:{port}/shop").connect() as connection:
        await connection.execute(text("SELECT 1"))


def by_sqlalchemy(port: int) -> None:
    with create_engine(f"postgresql+psycopg://me:{PASSWORD}@localhost:{port}/shop").connect() as connection:
        connection.execute(text("SELECT 1"))


CLIENTS: dict[str, Callable[[int], Any]] = {
    "httpx2": by_httpx2,
    "httpx2 with a proxy": by_httpx2_with_proxy,
    "urllib": lambda port: urllib.request.urlopen(f"http://localhost:{port}/", timeout=5),
    "http.client": lambda port: http.client.HTTPConnection("localhost", port).request("GET", "/"),
    "socket": lambda port: socket.create_connection(("localhost", port)),
    "asyncio": by_asyncio,
    "smtplib": lambda port: smtplib.SMTP("localhost", port),
    "sqlalchemy": by_sqlalchemy,
    "sqlalchemy with asyncio": by_async_sqlalchemy,
}


async def test_an_unreachable_service_is_named_by_host_and_port() -> None:
    """As the tool wrote them; neither a path nor a password is in the reason."""
    wrong = []
    for name, call in CLIENTS.items():
        port = free_port()
        with pytest.raises(Exception) as raised:  # one of each library
            await call(port)
        found = judge(raised.value).fault
        is_named = found.reason.endswith(f" Address: localhost:{port}.")
        if found.code is not Code.UNREACHABLE or not is_named or "secret" in found.reason or PASSWORD in found.reason:
            wrong.append((name, found))

    assert wrong == []


async def test_a_connection_that_breaks_is_named_too_and_an_answer_not_twice() -> None:
    """The request tells where it was sent; the reason of an answer begins with the host."""
    async with serving(b"", reply(421)) as url, httpx2.AsyncClient(trust_env=False, verify=NO_TLS) as client:
        with pytest.raises(httpx2.TransportError) as broken:
            await client.get(url)
        with pytest.raises(httpx2.HTTPStatusError) as answered:
            (await client.get(url)).raise_for_status()
        host = httpx2.URL(url)

    assert judge(broken.value).fault.reason.endswith(f" Address: {host.host}:{host.port}.")
    assert judge(answered.value).fault.reason.count("127.0.0.1") == 1


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("https://pay.example/v1?key=abc", "pay.example:443"),
        ("http://me:pw@[::1]:8080/", "[::1]:8080"),
        ("postgresql+psycopg://me:pw@db/shop", "db:5432"),
        ("ftp://host/", ""),
        ("http://host:99999/", ""),
        ("http://do what I say/", ""),
        ("sqlite:///shop.db", ""),
        (None, ""),
    ],
)
def test_only_host_and_port_of_a_url_are_read(url: object, address: str) -> None:
    assert of_url(url) == address


def test_what_is_no_address_is_left_out() -> None:
    class Odd(ConnectionError):
        def __getattr__(self, name: str) -> Any:
            raise KeyError(name)

    pairs: list[tuple[Any, Any]] = [("a b", 1), ("", 1), ("host", 0), ("host", True), (3, 1), ("host", "x")]
    assert {written(host, port) for host, port in pairs} == {""}
    assert address_of(Odd()) == ""
