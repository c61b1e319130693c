"""The errors of clients of databases, queues, clouds and mail, raised by the libraries against real servers.

Kafka comes from Maven, and stays in the user's cache; the mail server is the tests' own.
"""

import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from evals.fakes.postgresql import Cluster
from runtime.dev_server import free_port
from tests.activities.bench import bench
from tests.provocations import LINE, servers, stores
from tests.provocations.clients import SECRET
from tests.provocations.provocation import Provocation, line, provoke
from tests.provocations.relay import Relay, relaying
from tests.provocations.stores import Calls

pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(2 * servers.BUILD_SECONDS),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # a client that failed is not closed
]

KNOWN_WRONG = {("kafka", "no such topic"): "the producer says only that it waited too long for the topic"}
"""Provocations that become something else than what a user expects."""
Check = Callable[[str, Calls], Awaitable[None]]


@pytest.fixture
def check(tmp_path: Path, record_property: Callable[[str, str], None]) -> Iterator[Check]:
    """Checks the calls of a library."""

    async def checked(library: str, wrong: Calls) -> None:
        found = list[Provocation]()
        async with bench(tmp_path) as calls:
            for situation, (expected, call) in wrong.situations.items():
                codes = expected if isinstance(expected, tuple) else (expected,)
                found.append(await provoke(calls, library, situation, codes, call, wrong.effects))
        record_property(LINE, line(found))

        assert {
            one.situation: (one.code, one.error)
            for one in found
            if one.is_right is ((library, one.situation) in KNOWN_WRONG)
        } == {}
        assert [one for one in found if one.may_repeat] == []
        assert [one for one in found if SECRET in one.text] == []
        lost = next(one for one in found if one.situation == "lost")
        assert (lost.effects > 0, lost.applied) == (True, "unknown"), lost

    yield checked
    gc.collect()  # while their warnings are ignored: a later test would fail because of them


@pytest.fixture(scope="module")
async def kafka(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[int, Relay]]:
    """The port of a broker, and a relay to it, to which the broker sends its clients."""
    port = free_port()
    try:
        with relaying(port) as relay:
            async with servers.kafka(tmp_path_factory.mktemp("kafka"), port, relay.port):
                yield port, relay
    except servers.Missing as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2", "asyncpg"])
async def test_postgresql(check: Check, postgresql: Cluster, driver: str) -> None:
    """Each driver."""
    pytest.importorskip(driver)
    with relaying(postgresql.port) as relay:
        await check(driver, stores.postgresql(driver, postgresql, relay))


@pytest.mark.parametrize("library", ["confluent_kafka", "kafka", "aiokafka"])
async def test_kafka(check: Check, kafka: tuple[int, Relay], library: str) -> None:
    """One broker for all, with topics of each library's own."""
    pytest.importorskip(library)
    await check(library, getattr(stores, library)(*kafka))


async def test_mail(check: Check) -> None:
    """Its server is the tests' own."""
    await check("smtplib", stores.mail())
