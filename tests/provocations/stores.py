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


@dataclass(frozen=True)
class Calls:
    """The wrong calls of a library."""

    situations: Mapping[str, tuple[Code | tuple[Code, ...], Callable[[], object]]]
    """By what is wrong, the codes that a user expects, and the call."""
    effects: Callable[[], int]
    """How many calls have taken effect so far."""


def _import(name: str) -> Any:
    return importlib.import_module(name)


def postgresql(driver: str, cluster: Cluster, relay: Relay) -> Calls:
    """Statements with psycopg, psycopg2 or asyncpg."""
    if not cluster.run("SELECT 1 FROM pg_roles WHERE rolname = 'reader'"):
        cluster.run(f"CREATE ROLE reader LOGIN PASSWORD '{SECRET}'")
    name = cluster.create()
    url = make_url(cluster.url(name)).set(drivername="postgresql")
    other = _import("psycopg").connect(url.render_as_string(hide_password=False), autocommit=True)
    for statement in (
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT)",
        "INSERT INTO orders VALUES (1, 'ann')",
    ):
        other.execute(statement)

    def run(statement: str, *, before: str = "", lose: bool = False, **changes: Any) -> None:
        address = url.set(**changes).render_as_string(hide_password=False)
        if driver == "asyncpg":
            asyncio.run(_by_asyncpg(address, before, statement, relay if lose else None))
            return
        options = {"connect_timeout": WAIT}
        connection = _import(driver).connect(address, **options)
        try:
            connection.autocommit = True
            cursor = connection.cursor()
            if before:
                cursor.execute(before)
            if lose:
                with relay.losing():
                    cursor.execute(statement)
            else:
                cursor.execute(statement)
        finally:
            connection.close()

    def locked() -> None:
        holder = _import("psycopg").connect(url.render_as_string(hide_password=False))
        holder.execute("SELECT * FROM orders WHERE id = 1 FOR UPDATE")
        try:
            run("UPDATE orders SET name = 'eve' WHERE id = 1", before="SET lock_timeout = 100")
        finally:
            holder.close()

    add = "INSERT INTO orders (name, id) SELECT 'ben', 1 + max(id) FROM orders"
    return Calls(
        {
            "wrong password": (Code.UNAUTHORIZED, lambda: run(add, password="sk-wrong")),  # noqa: S106
            "not allowed": (Code.FORBIDDEN, lambda: run(add, username="reader")),
            "no such database": (Code.NEEDS_PERSON, lambda: run(add, database="nowhere")),
            "no such table": (Code.BUG, lambda: run("INSERT INTO nowhere VALUES (1)")),
            "duplicate": (Code.CONFLICT, lambda: run("INSERT INTO orders VALUES (1, 'eve')")),
            "bad value": (Code.INVALID_INPUT, lambda: run("INSERT INTO orders VALUES ('x'::TEXT::INTEGER, 'eve')")),
            "locked": (Code.BUSY, locked),
            "slow": (Code.TIMEOUT, lambda: run("SELECT pg_sleep(5)", before="SET statement_timeout = 100")),
            "refused": (Code.UNREACHABLE, lambda: run(add, port=free_port())),
            "lost": (GONE, lambda: run(add, lose=True, port=relay.port)),
        },
        lambda: int(other.execute("SELECT count(*) FROM orders").fetchone()[0]),
    )


async def _by_asyncpg(address: str, before: str, statement: str, relay: Relay | None) -> None:
    connection = await _import("asyncpg").connect(address, timeout=WAIT)
    try:
        if before:
            await connection.execute(before)
        if relay:
            with relay.losing():
                await connection.execute(statement)
        else:
            await connection.execute(statement)
    finally:
        connection.terminate()


def psycopg_pool(cluster: Cluster, relay: Relay) -> Calls:
    """A pool of connections to PostgreSQL."""
    name = cluster.create()
    url = make_url(cluster.url(name)).set(drivername="postgresql")
    other = _import("psycopg").connect(url.render_as_string(hide_password=False), autocommit=True)
    other.execute("CREATE TABLE orders (id SERIAL PRIMARY KEY)")
    add = "INSERT INTO orders DEFAULT VALUES"

    def run(*, lose: bool = False, held: int = 0, **changes: Any) -> None:
        address = url.set(**changes).render_as_string(hide_password=False)
        options = {"min_size": 1, "max_size": 1, "timeout": 1, "kwargs": {"autocommit": True}}
        with _import("psycopg_pool").ConnectionPool(address, **options) as pool:
            if held:
                taken = pool.getconn()
            try:
                with pool.connection() as connection:
                    if not lose:
                        connection.execute(add)
                        return
                    with relay.losing():
                        connection.execute(add)
            finally:
                if held:
                    pool.putconn(taken)

    return Calls(
        {
            "wrong password": (Code.UNAUTHORIZED, lambda: run(password="sk-wrong")),  # noqa: S106
            "refused": (Code.UNREACHABLE, lambda: run(port=free_port())),
            "none free": (Code.BUSY, lambda: run(held=1)),
            "lost": (GONE, lambda: run(lose=True, port=relay.port)),
        },
        lambda: int(other.execute("SELECT count(*) FROM orders").fetchone()[0]),
    )


def redis(port: int, relay: Relay) -> Calls:
    """Commands of Redis."""
    library = _import("redis")
    retry = _import("redis.retry").Retry(_import("redis.backoff").NoBackoff(), 0)

    def client(to: int = port, **more: Any) -> Any:
        options = {"password": SECRET, "socket_timeout": WAIT, "retry": retry, **more}
        return library.Redis("127.0.0.1", to, **options)

    def lost() -> None:
        with client(relay.port) as through:
            through.ping()
            with relay.losing():
                through.incr("orders")

    def changed() -> None:
        with client() as mine, mine.pipeline() as several:
            several.watch("watched")
            client().incr("watched")
            several.multi()
            several.incr("orders")
            several.execute()

    def full() -> None:
        client().config_set("maxmemory", "1")
        try:
            client().incr("orders")
        finally:
            client().config_set("maxmemory", "0")

    client().rpush("list", "one")
    return Calls(
        {
            "wrong password": (Code.UNAUTHORIZED, lambda: client(password="sk-wrong").incr("orders")),  # noqa: S106
            "no password": (Code.UNAUTHORIZED, lambda: client(password=None).incr("orders")),
            "not allowed": (Code.FORBIDDEN, lambda: client(username="reader").incr("orders")),
            "another type": ((Code.CONFLICT, Code.INVALID_INPUT), lambda: client().incr("list")),
            "no such command": (Code.BUG, lambda: client().execute_command("ORDER", "one")),
            "no such group": (Code.NOT_FOUND, lambda: client().xreadgroup("group", "ann", {"stream": ">"})),
            "changed": ((Code.BUSY, Code.CONFLICT), changed),
            "full": ((Code.QUOTA_EXHAUSTED, Code.OVERLOADED, Code.NEEDS_PERSON), full),
            "refused": (Code.UNREACHABLE, lambda: client(free_port()).incr("orders")),
            "lost": (GONE, lost),
        },
        lambda: int(client().get("orders") or 0),
    )


def boto3(port: int, relay: Relay) -> Calls:
    """Calls of S3 and DynamoDB."""
    library, config = _import("boto3"), _import("botocore.config").Config
    once = config(retries={"total_max_attempts": 1}, connect_timeout=WAIT, read_timeout=WAIT)

    def client(service: str, to: int = port) -> Any:
        keys = {"aws_access_key_id": "AKIAEXAMPLE", "aws_secret_access_key": SECRET, "region_name": "eu-west-1"}
        return library.client(service, endpoint_url=f"http://127.0.0.1:{to}", config=once, **keys)

    table, store = client("dynamodb"), client("s3")
    table.create_table(
        TableName="orders",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    where = {"CreateBucketConfiguration": {"LocationConstraint": "eu-west-1"}}
    store.create_bucket(Bucket="orders", **where)

    def put(name: str = "orders", *, to: int = port, **more: Any) -> None:
        client("dynamodb", to).put_item(TableName=name, **{"Item": {"id": {"S": "1"}}, **more})

    def lost() -> None:
        with relay.losing():
            put(to=relay.port, Item={"id": {"S": "2"}})

    put()
    absent = "attribute_not_exists(id)"
    return Calls(
        {
            "no such table": (Code.NOT_FOUND, lambda: put("nowhere")),
            "no such bucket": (Code.NOT_FOUND, lambda: store.put_object(Bucket="nowhere", Key="1", Body=b"x")),
            "no such object": (Code.NOT_FOUND, lambda: store.get_object(Bucket="orders", Key="nowhere")),
            "condition": ((Code.PRECONDITION_FAILED, Code.CONFLICT), lambda: put(ConditionExpression=absent)),
            "wrong condition": (Code.INVALID_INPUT, lambda: put(ConditionExpression="what is this")),
            "duplicate": (Code.CONFLICT, lambda: store.create_bucket(Bucket="orders", **where)),
            "missing argument": ((Code.BUG, Code.INVALID_INPUT), lambda: table.put_item(TableName="orders")),
            "refused": (Code.UNREACHABLE, lambda: put(to=free_port())),
            "lost": (GONE, lost),
        },
        lambda: len(table.scan(TableName="orders")["Items"]),
    )


def pymongo(port: int, relay: Relay) -> Calls:
    """Writes of MongoDB."""
    library, ids = _import("pymongo"), _import("bson")

    def orders(to: int = port) -> Any:
        options = {"serverSelectionTimeoutMS": 1000, "socketTimeoutMS": 1000 * WAIT, "retryWrites": False}
        return library.MongoClient("127.0.0.1", to, **options)["shop"]["orders"]

    def lost() -> None:
        through = orders(relay.port)
        through.find_one()
        with relay.losing():
            through.insert_one({"name": "ben"})

    direct = orders()
    direct.create_index("number", unique=True, sparse=True)
    direct.insert_one({"_id": 1, "number": 1})
    return Calls(
        {
            "duplicate": (Code.CONFLICT, lambda: direct.insert_one({"_id": 1})),
            "duplicate value": (Code.CONFLICT, lambda: direct.insert_one({"number": 1})),
            "several": (
                (Code.REFUSED, Code.CONFLICT),
                lambda: direct.insert_many([{"_id": 2}, {"_id": 1}, {"_id": 3}]),
            ),
            "bad value": (Code.INVALID_INPUT, lambda: direct.insert_one({"name": object()})),
            "no id": (Code.INVALID_INPUT, lambda: direct.delete_one({"_id": ids.ObjectId("nowhere")})),
            "wrong operator": ((Code.BUG, Code.INVALID_INPUT), lambda: direct.update_one({}, {"$nowhere": {"a": 1}})),
            "no such command": (Code.MALFORMED_SCHEMA, lambda: direct.database.command("nowhere")),
            "exists": (Code.CONFLICT, lambda: direct.database.create_collection("orders")),
            "too large": (Code.INVALID_INPUT, lambda: direct.insert_one({"name": "x" * 17_000_000})),
            "refused": (Code.UNREACHABLE, lambda: orders(free_port()).insert_one({})),
            "lost": (GONE, lost),
        },
        lambda: int(direct.count_documents({})),
    )


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
            with relay.losing():
                producer.produce(topic, b"x" * size, on_delivery=lambda error, _: found.append(error))
                producer.flush()
        else:
            producer.produce(topic, b"x" * size, on_delivery=lambda error, _: found.append(error))
            producer.flush()
        if found[0]:
            raise library.KafkaException(found[0])

    def create() -> None:
        client = admin.AdminClient({"bootstrap.servers": f"127.0.0.1:{relay.port}"})
        client.create_topics([admin.NewTopic(names["orders"], 1, 1)])[names["orders"]].result(WAIT)

    return Calls(
        {
            "no such topic": (Code.NOT_FOUND, lambda: send("nowhere")),
            "too large": (Code.INVALID_INPUT, lambda: send(names["small"], size=5000)),
            "too large for the client": (Code.INVALID_INPUT, lambda: send(names["orders"], size=2_000_000)),
            "exists": (Code.CONFLICT, create),
            "wrong setting": (Code.BUG, lambda: send(names["orders"], acks="what")),
            "refused": (GONE, lambda: send(names["orders"], to=free_port())),
            "lost": (GONE, lambda: send(names["orders"], lose=True)),
        },
        lambda: _messages(port, names["orders"]),
    )


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
                with relay.losing():
                    producer.send(topic, b"x" * size).get(2 * WAIT)
            else:
                producer.send(topic, b"x" * size).get(2 * WAIT)
        finally:
            producer.close(timeout=0)

    def create() -> None:
        client = library.KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{relay.port}")
        try:
            client.create_topics([admin.NewTopic(names["orders"], 1, 1)])
        finally:
            client.close()

    return Calls(
        {
            "no such topic": (Code.NOT_FOUND, lambda: send("nowhere")),
            "too large": (Code.INVALID_INPUT, lambda: send(names["small"], size=5000)),
            "too large for the client": (Code.INVALID_INPUT, lambda: send(names["orders"], size=2_000_000)),
            "exists": (Code.CONFLICT, create),
            "wrong setting": (Code.BUG, lambda: send(names["orders"], nowhere=1)),
            "refused": (GONE, lambda: send(names["orders"], to=free_port())),
            "lost": (GONE, lambda: send(names["orders"], lose=True)),
        },
        lambda: _messages(port, names["orders"]),
    )


def aiokafka(port: int, relay: Relay) -> Calls:
    """Messages with aiokafka; its client for administrators returns what the others raise."""
    library = _import("aiokafka")
    names = _topics(port, "aio")

    async def send(topic: str, *, to: int = relay.port, lose: bool = False, size: int = 5, **more: Any) -> None:
        options = {"request_timeout_ms": 1000, **more}
        producer = library.AIOKafkaProducer(bootstrap_servers=f"127.0.0.1:{to}", **options)
        await producer.start()
        try:
            if lose:
                await producer.partitions_for(topic)
                with relay.losing():
                    await producer.send_and_wait(topic, b"x" * size)
            else:
                await producer.send_and_wait(topic, b"x" * size)
        finally:
            await producer.stop()

    def run(topic: str, **more: Any) -> Callable[[], object]:
        return lambda: asyncio.run(send(topic, **more))

    return Calls(
        {
            "no such topic": (Code.NOT_FOUND, run("nowhere")),
            "too large": (Code.INVALID_INPUT, run(names["small"], size=5000)),
            "too large for the client": (Code.INVALID_INPUT, run(names["orders"], size=2_000_000)),
            "wrong setting": (Code.BUG, run(names["orders"], acks="what")),
            "refused": (GONE, run(names["orders"], to=free_port())),
            "lost": (GONE, run(names["orders"], lose=True)),
        },
        lambda: _messages(port, names["orders"]),
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
    """Messages with smtplib, to a server that replies as it is told."""
    taken = list[str]()

    def send(**replies: str) -> None:
        with mail_server(replies, taken) as port, smtplib.SMTP("127.0.0.1", port, "worker", timeout=WAIT) as client:
            client.login("ann", SECRET)
            client.sendmail("ann@shop.example", "ben@shop.example", "hello")

    return Calls(
        {
            "wrong password": (Code.UNAUTHORIZED, lambda: send(AUTH="535 no")),
            "no login": (Code.UNAUTHORIZED, lambda: send(MAIL="530 login first")),
            "no such mailbox": ((Code.REFUSED, Code.NOT_FOUND), lambda: send(RCPT="550 nobody")),
            "bad address": (Code.INVALID_INPUT, lambda: send(RCPT="553 what")),
            "greylisted": (Code.BUSY, lambda: send(RCPT="450 later")),
            "too large": (Code.INVALID_INPUT, lambda: send(MAIL="552 too large")),
            "spam": (Code.REFUSED, lambda: send(BODY="554 spam")),
            "closing": (Code.UNREACHABLE, lambda: send(HELLO="421 closing")),
            "refused": (Code.UNREACHABLE, lambda: smtplib.SMTP("127.0.0.1", free_port(), timeout=WAIT)),
            "lost": (GONE, lambda: send(BODY="")),
        },
        lambda: len(taken),
    )
