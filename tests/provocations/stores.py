"""What each client of a database, a queue, a cloud or a mail server is called to do wrong, with a real server."""

import asyncio
import importlib
import smtplib
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sqlalchemy.engine import make_url

from evals.fakes.postgresql import Cluster
from runtime.dev_server import free_port
from tests.provocations.clients import SECRET
from tests.provocations.mail import mail_server
from tests.provocations.relay import Relay
from workflows.faults.fault import Code

GONE = (Code.UNREACHABLE, Code.TIMEOUT)
"""What a call without an answer may be: which of the two it is, depends on the patience of the client."""
WAIT = 3
"""Seconds that the clients wait for an answer."""


Situation = tuple[Code | tuple[Code, ...], Callable[[], object]]
"""The codes that a user expects, and the call."""


@dataclass(frozen=True)
class Calls:
    """The wrong calls of a library."""

    situations: Mapping[str, Situation]
    """By what is wrong."""
    effects: Callable[[], int]
    """How many calls have taken effect so far."""


def _import(name: str) -> Any:
    return importlib.import_module(name)


def postgresql(driver: str, cluster: Cluster, relay: Relay) -> Calls:
    """Statements with psycopg, psycopg2 or asyncpg; tests/activities/libraries/test_sql.py has more answers."""
    url = make_url(cluster.url(cluster.create())).set(drivername="postgresql")
    other = _import("psycopg").connect(url.render_as_string(hide_password=False), autocommit=True)
    other.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    other.execute("INSERT INTO orders VALUES (1)")

    async def by_asyncpg(address: str, statement: str, lose: bool) -> None:
        connection = await _import("asyncpg").connect(address, timeout=WAIT)
        try:
            with relay.losing(lose):
                await connection.execute(statement)
        finally:
            connection.terminate()

    def run(statement: str, *, lose: bool = False, **changes: Any) -> None:
        address = url.set(**changes).render_as_string(hide_password=False)
        if driver == "asyncpg":
            asyncio.run(by_asyncpg(address, statement, lose))
            return
        connection = _import(driver).connect(address, connect_timeout=WAIT)
        try:
            connection.autocommit = True
            with relay.losing(lose):
                connection.cursor().execute(statement)
        finally:
            connection.close()

    add = "INSERT INTO orders SELECT 1 + max(id) FROM orders"
    return Calls(
        {
            "wrong password": (Code.UNAUTHORIZED, lambda: run(add, password="sk-wrong")),  # noqa: S106
            "duplicate": (Code.CONFLICT, lambda: run("INSERT INTO orders VALUES (1)")),
            "refused": (Code.UNREACHABLE, lambda: run(add, port=free_port())),
            "lost": (GONE, lambda: run(add, lose=True, port=relay.port)),
        },
        lambda: int(other.execute("SELECT count(*) FROM orders").fetchone()[0]),
    )


Send = Callable[..., None]
"""Sends a message to a topic: `to=` a port, losing its answer (`lose=`), of a `size=`, with settings of the client."""


def confluent_kafka(port: int, relay: Relay) -> Calls:
    """Messages with librdkafka."""
    library, admin = _import("confluent_kafka"), _import("confluent_kafka.admin")
    names = _topics(port, "confluent")

    def send(topic: str, *, to: int = relay.port, lose: bool = False, size: int = 5, **more: Any) -> None:
        waits = {"message.timeout.ms": 1000 * WAIT, "topic.metadata.propagation.max.ms": 500}
        others = {"socket.timeout.ms": 1000, "retries": 0, "log_level": 0}
        producer = library.Producer({"bootstrap.servers": f"127.0.0.1:{to}", **waits, **others, **more})
        found = list[Any]()
        if lose:
            producer.list_topics(topic, timeout=WAIT)
        with relay.losing(lose):
            producer.produce(topic, b"x" * size, on_delivery=lambda error, _: found.append(error))
            producer.flush()
        if found[0]:
            raise library.KafkaException(found[0])

    def create() -> None:
        client = admin.AdminClient({"bootstrap.servers": f"127.0.0.1:{relay.port}"})
        client.create_topics([admin.NewTopic(names["orders"], 1, 1)])[names["orders"]].result(WAIT)

    return _of_kafka(port, names, send, {"acks": "what"}, {"exists": (Code.CONFLICT, create)})


def kafka(port: int, relay: Relay) -> Calls:
    """Messages with kafka-python."""
    library, admin = _import("kafka"), _import("kafka.admin")
    names = _topics(port, "python")

    def send(topic: str, *, to: int = relay.port, lose: bool = False, size: int = 5, **more: Any) -> None:
        waits = dict.fromkeys(("bootstrap_timeout_ms", "max_block_ms", "delivery_timeout_ms"), 1000 * WAIT)
        waits["request_timeout_ms"] = 1000
        options = {"retries": 0, "enable_idempotence": False, **waits, **more}
        producer = library.KafkaProducer(bootstrap_servers=f"127.0.0.1:{to}", **options)
        try:
            if lose:
                producer.partitions_for(topic)
            with relay.losing(lose):
                producer.send(topic, b"x" * size).get(2 * WAIT)
        finally:
            producer.close(timeout=0)

    def create() -> None:
        client = library.KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{relay.port}")
        try:
            client.create_topics([admin.NewTopic(names["orders"], 1, 1)])
        finally:
            client.close()

    return _of_kafka(port, names, send, {"nowhere": 1}, {"exists": (Code.CONFLICT, create)})


def aiokafka(port: int, relay: Relay) -> Calls:
    """Messages with aiokafka; its client for administrators returns what the others raise."""
    library = _import("aiokafka")

    async def sent(topic: str, to: int, lose: bool, size: int, **more: Any) -> None:
        options = {"request_timeout_ms": 1000, **more}
        producer = library.AIOKafkaProducer(bootstrap_servers=f"127.0.0.1:{to}", **options)
        await producer.start()
        try:
            if lose:
                await producer.partitions_for(topic)
            with relay.losing(lose):
                await producer.send_and_wait(topic, b"x" * size)
        finally:
            await producer.stop()

    def send(topic: str, *, to: int = relay.port, lose: bool = False, size: int = 5, **more: Any) -> None:
        asyncio.run(sent(topic, to, lose, size, **more))

    return _of_kafka(port, _topics(port, "aio"), send, {"acks": "what"}, {})


def _of_kafka(
    port: int, names: Mapping[str, str], send: Send, wrong: Mapping[str, Any], more: Mapping[str, Situation]
) -> Calls:
    """What a client of Kafka is called to do wrong; `wrong` is a setting that it does not have."""
    orders = names["orders"]
    return Calls(
        {
            "no such topic": (Code.NOT_FOUND, lambda: send("nowhere")),
            "too large": (Code.INVALID_INPUT, lambda: send(names["small"], size=5000)),
            "too large for the client": (Code.INVALID_INPUT, lambda: send(orders, size=2_000_000)),
            **more,
            "wrong setting": (Code.BUG, lambda: send(orders, **wrong)),
            "refused": (GONE, lambda: send(orders, to=free_port())),
            "lost": (GONE, lambda: send(orders, lose=True)),
        },
        lambda: _messages(port, orders),
    )


def _topics(port: int, prefix: str) -> Mapping[str, str]:
    """Topics of a library's own: one for orders, and one of small messages."""
    admin = _import("confluent_kafka.admin")
    settings = {"orders": {}, "small": {"max.message.bytes": "1000"}}
    names = {name: f"{prefix}-{name}" for name in settings}
    client = admin.AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
    made = client.create_topics([admin.NewTopic(names[one], 1, 1, config=more) for one, more in settings.items()])
    for done in made.values():
        done.result(30)
    for name in names.values():
        _messages(port, name)
    return names


def _messages(port: int, topic: str) -> int:
    library = _import("confluent_kafka")
    consumer = library.Consumer({"bootstrap.servers": f"127.0.0.1:{port}", "group.id": "tests", "log_level": 0})
    try:
        for _ in range(100):  # a new topic has no leader at first
            with suppress(library.KafkaException):
                return int(consumer.get_watermark_offsets(library.TopicPartition(topic, 0), 10)[1])
            time.sleep(0.1)
    finally:
        consumer.close()
    raise TimeoutError(f"the topic {topic} has no leader")


def mail() -> Calls:
    """Messages with smtplib, to a server that replies as it is told; test_mail.py of the libraries has more replies."""
    taken = list[str]()

    def send(**replies: str) -> None:
        with mail_server(replies, taken) as port, smtplib.SMTP("127.0.0.1", port, "worker", timeout=WAIT) as client:
            client.login("ann", SECRET)
            client.sendmail("ann@shop.example", "ben@shop.example", "hello")

    return Calls(
        {
            "wrong password": (Code.UNAUTHORIZED, lambda: send(AUTH="535 no")),
            "spam": (Code.REFUSED, lambda: send(BODY="554 spam")),
            "refused": (Code.UNREACHABLE, lambda: smtplib.SMTP("127.0.0.1", free_port(), timeout=WAIT)),
            "lost": (GONE, lambda: send(BODY="")),
        },
        lambda: len(taken),
    )
