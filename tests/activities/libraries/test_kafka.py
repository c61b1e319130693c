"""confluent-kafka and aiokafka against the broker that librdkafka has in itself, and the numbers of all brokers."""

import asyncio
import importlib
from collections.abc import Iterator
from typing import Any

import pytest

from activities.borders import judge
from activities.borders.table import Proof
from runtime.dev_server import free_port
from workflows.faults.fault import Code

for module in ("confluent_kafka", "kafka", "aiokafka"):
    pytest.importorskip(module)

pytestmark = pytest.mark.full

confluent: Any = importlib.import_module("confluent_kafka")
kafka: Any = importlib.import_module("kafka.errors")
aiokafka: Any = importlib.import_module("aiokafka")
aiokafka_errors: Any = importlib.import_module("aiokafka.errors")

NUMBERS = [
    (3, Code.NOT_FOUND, Proof.REFUSED),
    (6, Code.UNREACHABLE, Proof.UNKNOWN),
    (7, Code.TIMEOUT, Proof.UNKNOWN),
    (10, Code.INVALID_INPUT, Proof.REFUSED),
    (14, Code.BUSY, Proof.UNKNOWN),
    (17, Code.INVALID_INPUT, Proof.REFUSED),
    (19, Code.UNREACHABLE, Proof.REFUSED),
    (20, Code.UNREACHABLE, Proof.UNKNOWN),
    (27, Code.BUSY, Proof.UNKNOWN),
    (29, Code.FORBIDDEN, Proof.REFUSED),
    (36, Code.CONFLICT, Proof.REFUSED),
    (46, Code.CONFLICT, Proof.UNKNOWN),
    (58, Code.UNAUTHORIZED, Proof.REFUSED),
]
"""What the errors of a broker become."""


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
    try:
        producer = confluent.Producer(settings)
        producer.produce("orders", value, callback=lambda error, _: told.append(error))
    except Exception as error:
        return error
    producer.flush(10)
    if told[0] is None:
        raise AssertionError("it was delivered")
    made: BaseException = confluent.KafkaException(told[0])
    return made


def sent(address: str, value: bytes = b"x", **options: Any) -> BaseException:
    """What aiokafka raises."""

    async def send() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=address, request_timeout_ms=2000, **options)
        try:
            await producer.start()
            await producer.send_and_wait("orders", value)
        finally:
            await producer.stop()

    try:
        asyncio.run(send())
    except Exception as error:
        return error
    raise AssertionError("it was delivered")


@pytest.mark.parametrize(("number", "code", "proves"), NUMBERS)
def test_a_broker_means_the_same_to_all_clients(number: int, code: Code, proves: Proof) -> None:
    """Each makes an exception of its own of the number."""
    errors = [
        confluent.KafkaException(confluent.KafkaError(number)),
        kafka.for_code(number)("sk-secret"),
        aiokafka_errors.for_code(number)("sk-secret"),
    ]
    verdicts = [judge(error) for error in errors]

    assert [(verdict.fault.code, verdict.proves) for verdict in verdicts] == [(code, proves)] * 3
    assert not [verdict for verdict in verdicts if "sk-secret" in verdict.fault.model_dump_json()]


def test_a_number_that_no_table_knows_is_retried_if_its_library_says_so() -> None:
    """By the flag `retriable`."""

    class Later(kafka.BrokerResponseError):  # type: ignore[misc]
        errno, retriable = 9999, True

    class Never(kafka.BrokerResponseError):  # type: ignore[misc]
        errno, retriable = 9998, False

    later, never = judge(Later()), judge(Never())
    confluents = judge(confluent.KafkaException(confluent.KafkaError(9999, "sk-secret", retriable=True)))

    assert (later.fault.code, later.proves) == (Code.UNREACHABLE, Proof.UNKNOWN)
    assert (never.fault.code, never.proves) == (Code.REFUSED, Proof.UNKNOWN)
    assert confluents.fault.code is Code.UNREACHABLE


def test_a_fatal_error_needs_a_new_client() -> None:
    """No retry with the same one helps; and an aborted transaction is begun anew."""
    fatal = judge(confluent.KafkaException(confluent.KafkaError(-150, fatal=True)))
    aborted = judge(confluent.KafkaException(confluent.KafkaError(59, txn_requires_abort=True)))

    assert fatal.fault.code is Code.BUG
    assert aborted.fault.code is Code.BUSY


def test_a_message_that_is_too_large_is_not_retried(broker: str) -> None:
    """The client knows the limit."""
    confluents = judge(produced(b"x" * 5000, bootstrap_servers=broker, message_max_bytes=1000))
    aiokafkas = judge(sent(broker, b"x" * 5000, max_request_size=100))

    assert {confluents.fault.code, aiokafkas.fault.code} == {Code.INVALID_INPUT}


def test_no_broker_is_retried() -> None:
    """Both say that they have waited, or could not connect; a message that waited may have been sent."""
    nowhere = f"127.0.0.1:{free_port()}"
    confluents, aiokafkas = judge(produced(bootstrap_servers=nowhere)), judge(sent(nowhere))

    assert (confluents.fault.code, confluents.proves) == (Code.TIMEOUT, Proof.UNKNOWN)
    assert (aiokafkas.fault.code, aiokafkas.proves) == (Code.UNREACHABLE, Proof.UNKNOWN)


def test_a_wrong_option_is_a_bug() -> None:
    """Nothing was sent."""
    verdict = judge(produced(no_such_option=1))

    assert (verdict.fault.code, verdict.proves) == (Code.BUG, Proof.NOT_SENT)
