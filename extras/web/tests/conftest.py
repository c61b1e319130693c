"""One worker for each module, and servers: one that only this machine reaches, one with a token, one behind a proxy."""

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import pytest

from extras.web.tests.browser import launched
from extras.web.tests.serving import TOKEN, Served, serving
from runtime.dev_server import DevServer
from tests.processes import Processes

if TYPE_CHECKING:  # of an extra
    from playwright.async_api import Browser

TOOLS = str(Path(__file__).with_name("tools.py"))


@pytest.fixture(scope="module")
def queue(server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    name = f"web-{uuid.uuid4().hex[:8]}"
    with Processes(server.address, tmp_path_factory.mktemp("worker")).worker("--tools", TOOLS, "--queue", name):
        yield name


@pytest.fixture(scope="module")
async def local(server: DevServer, queue: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """A server without a token."""
    async with serving(server.address, tmp_path_factory.mktemp("local"), "--queue", queue) as running:
        yield running


@pytest.fixture(scope="module")
async def guarded(server: DevServer, queue: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    folder = tmp_path_factory.mktemp("guarded")
    async with serving(server.address, folder, "--queue", queue, token=TOKEN) as running:
        yield running


@pytest.fixture(scope="module")
async def proxied(server: DevServer, queue: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """A server behind a proxy, which says who is signed in."""
    folder = tmp_path_factory.mktemp("proxied")
    async with serving(
        server.address, folder, "--queue", queue, token=TOKEN, REPLAN_IDENTITY_HEADER="X-User"
    ) as running:
        yield running


@pytest.fixture
async def program(local: Served) -> AsyncIterator[httpx2.AsyncClient]:
    """A program that speaks to the server without a token."""
    async with local.visit() as speaking:
        yield speaking


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator["Browser"]:
    """One Chromium for all tests of a module."""
    async with launched() as running:
        yield running
