"""confluent-kafka, kafka-python and aiokafka: the numbers of a broker, and what a client says itself."""

import importlib
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
aiokafka_errors: Any = importlib.import_module("aiokafka.errors")


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


def test_a_message_of_a_client_that_cannot_be_sent() -> None:
    """A wrong option is a bug of which nothing was sent; a message that waited in vain may have been sent.

    tests/provocations/test_stores.py has a broker, what it rejects, and the other ways of getting no answer.
    """
    told = list[Any]()
    nowhere = {"bootstrap.servers": f"127.0.0.1:{free_port()}", "message.timeout.ms": 500, "log_level": 0}
    producer = confluent.Producer(nowhere)
    producer.produce("orders", b"x", callback=lambda error, _: told.append(error))
    producer.flush(10)

    assert outcome(confluent.KafkaException(told[0])) == (Code.TIMEOUT, UNKNOWN)
    assert outcome(raised(lambda: confluent.Producer({"no.such.option": 1}))) == (Code.BUG, NOT_SENT)
