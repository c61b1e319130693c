"""confluent-kafka and aiokafka against the broker that librdkafka has in itself, and the numbers of all brokers."""

import asyncio
import importlib
from collections.abc import Iterator
from typing import Any

import pytest

from activities.borders.table import Proof
from runtime.dev_server import free_port
from tests.activities.libraries.verdicts import HIDDEN, NOT_SENT, REFUSED, UNKNOWN, judged, outcome, raised
from workflows.faults.fault import Code

for module in ("confluent_kafka", "kafka", "aiokafka"):
    pytest.importorskip(module)

pytestmark = pytest.mark.full

confluent: Any = importlib.import_module("confluent_kafka")
kafka: Any = importlib.import_module("kafka.errors")
aiokafka: Any = importlib.import_module("aiokafka")
aiokafka_errors: Any = importlib.import_module("aiokafka.errors")


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    """The address of the broker in librdkafka."""
    producer = confluent.Producer({"test.mock.num.brokers": 1})
    [found] = producer.list_topics(timeout=10).brokers.values()
    yield f"{found.host}:{found.port}"
    del producer


def produced(value: bytes = b"x", **options: Any) -> BaseException:
    """What confluent-kafka raises, or tells of a delivery, which a tool raises."""
    settings = {"message.timeout.ms": 1500, **{name.replace("_", "."): given for name, given in options.items()}}
    told = list[Any]()

    def produce() -> None:
        producer = confluent.Producer(settings)
        producer.produce("orders", value, callback=lambda error, _: told.append(error))
        producer.flush(10)
        if told[0] is not None:
            raise confluent.KafkaException(told[0])

    return raised(produce)


def sent(address: str, value: bytes = b"x", **options: Any) -> BaseException:
    """What aiokafka raises."""

    async def send() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=address, request_timeout_ms=2000, **options)
        try:
            await producer.start()
            await producer.send_and_wait("orders", value)
        finally:
            await producer.stop()

    return raised(lambda: asyncio.run(send()))


@pytest.mark.parametrize(
    ("number", "code", "proves"),
    [
        (3, Code.NOT_FOUND, REFUSED),
        (6, Code.UNREACHABLE, UNKNOWN),
        (7, Code.TIMEOUT, UNKNOWN),
        (10, Code.INVALID_INPUT, REFUSED),
        (14, Code.BUSY, UNKNOWN),
        (17, Code.INVALID_INPUT, REFUSED),
        (19, Code.UNREACHABLE, REFUSED),
        (20, Code.UNREACHABLE, UNKNOWN),
        (27, Code.BUSY, UNKNOWN),
        (29, Code.FORBIDDEN, REFUSED),
        (36, Code.CONFLICT, REFUSED),
        (46, Code.CONFLICT, UNKNOWN),
        (58, Code.UNAUTHORIZED, REFUSED),
    ],
)
def test_a_broker_means_the_same_to_all_clients(number: int, code: Code, proves: Proof) -> None:
    """Each makes an exception of its own of the number."""
    errors = [
        confluent.KafkaException(confluent.KafkaError(number)),
        kafka.for_code(number)(HIDDEN),
        aiokafka_errors.for_code(number)(HIDDEN),
    ]

    assert [outcome(error) for error in errors] == [(code, proves)] * 3


def test_a_number_that_no_table_knows_is_retried_if_its_library_says_so() -> None:
    """By the flag `retriable`."""
    later = type("Later", (kafka.BrokerResponseError,), {"errno": 9999, "retriable": True})
    never = type("Never", (kafka.BrokerResponseError,), {"errno": 9998, "retriable": False})
    confluents = confluent.KafkaException(confluent.KafkaError(9999, HIDDEN, retriable=True))

    assert outcome(later()) == (Code.UNREACHABLE, UNKNOWN)
    assert outcome(never()) == (Code.REFUSED, UNKNOWN)
    assert judged(confluents).fault.code is Code.UNREACHABLE


def test_a_fatal_error_needs_a_new_client() -> None:
    """No retry with the same one helps; and an aborted transaction is begun anew."""
    fatal = confluent.KafkaException(confluent.KafkaError(-150, fatal=True))
    aborted = confluent.KafkaException(confluent.KafkaError(59, txn_requires_abort=True))

    assert (judged(fatal).fault.code, judged(aborted).fault.code) == (Code.BUG, Code.BUSY)


def test_a_message_that_is_too_large_is_not_retried(broker: str) -> None:
    """The client knows the limit."""
    confluents = produced(b"x" * 5000, bootstrap_servers=broker, message_max_bytes=1000)
    aiokafkas = sent(broker, b"x" * 5000, max_request_size=100)

    assert {judged(one).fault.code for one in (confluents, aiokafkas)} == {Code.INVALID_INPUT}


def test_no_broker_is_retried_and_a_wrong_option_is_a_bug() -> None:
    """Both clients say that they have waited, or could not connect; a message that waited may have been sent."""
    nowhere = f"127.0.0.1:{free_port()}"

    assert outcome(produced(bootstrap_servers=nowhere)) == (Code.TIMEOUT, UNKNOWN)
    assert outcome(sent(nowhere)) == (Code.UNREACHABLE, UNKNOWN)
    assert outcome(produced(no_such_option=1)) == (Code.BUG, NOT_SENT)
