"""Kafka: the verdict on each exception of confluent-kafka, kafka-python and aiokafka.

The number of the broker's error decides (https://kafka.apache.org/protocol#protocol_error_codes), for confluent-kafka
also that of librdkafka, which is below zero; else the flag `retriable` of the library. The clients repeat a
retriable request by themselves, so that the last answer proves nothing about the requests before it.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from activities.borders import service_api as api
from activities.borders.service_api import answered, field, refused, unknown, unsent
from activities.borders.table import Cases, Entry, Proof, Row, Table, Verdict, class_name, named, of_module
from workflows.faults.fault import Code

_LOST = unknown(Code.UNREACHABLE, "The broker of Kafka cannot be reached, or no longer leads the partition.")
_UNREACHED = unsent(Code.UNREACHABLE, "No broker of Kafka can be reached; nothing was sent.")
_REBALANCED = unknown(Code.BUSY, "The group gave the partitions to other members: join it again.")
_ABORTED = unknown(Code.BUSY, "The transaction was aborted: begin it anew.")
_FENCED = refused(Code.CONFLICT, "Another producer or member with the same id has taken over: find out which one.")
_NO_OFFSET = refused(Code.GONE, "The partition does not have this offset: choose another one.")
_NOT_FOUND = refused(Code.NOT_FOUND, "Kafka has no such topic, partition or group: look for it under another name.")
_UNSERIALISED = unsent(Code.INVALID_INPUT, "The message cannot be written in its format; nothing was sent.")
_PURGED = unknown(Code.BUG, "The tool closed its producer before the messages were delivered: flush it first.")
_FATAL = unknown(Code.BUG, "The client of Kafka cannot be used any more: make a new one in the tool.")

KAFKA: Mapping[str, Row] = named(
    (unknown(Code.SERVER_ERROR, "The broker of Kafka failed."), "-1 2 56"),
    (_LOST, "5 6 8 9 13 15 16 41 74 75 77 78 80 83"),
    (api.NO_ANSWER, "7"),
    (refused(Code.UNREACHABLE, "Too few replicas of the partition are there, so that the broker wrote nothing."), "19"),
    (unknown(Code.UNREACHABLE, "The broker wrote the messages, and too few replicas followed."), "20"),
    (unknown(Code.BUSY, "Kafka is not ready for it at the moment."), "14 51 60 88"),
    (_REBALANCED, "22 25 27 79 82 110 111 113"),
    (_ABORTED, "45 48 49 59 120"),
    (unknown(Code.CONFLICT, "The broker has the messages already."), "46"),
    (_FENCED, "47 52 90"),
    (refused(Code.CONFLICT, "It exists already, or is in use: observe the state and choose again."), "36 68 86 92"),
    (_NO_OFFSET, "1"),
    (_NOT_FOUND, "3 57 62 69 85 91 100 105"),
    (refused(Code.INVALID_INPUT, "The message is larger than Kafka takes: send less."), "10 12 18"),
    (api.INVALID, "17 21 24 26 28 32 37 38 39 40 42 50 67 87"),
    (api.REJECTED, "44"),
    (api.FORBIDDEN, "29 30 31 53 63 64 65"),
    (api.CREDENTIALS, "34 58 66 93"),
    (api.THROTTLED, "89"),
    (api.QUOTA, "81"),
    (api.UNSUPPORTED, "33 35 43 54 61 73 76"),
)
"""Rows by the number of a broker's error."""
LIBRDKAFKA: Mapping[str, Row] = named(
    (_LOST, "-195 -187 -198 -196"),
    (_UNREACHED, "-193"),
    (api.NO_ANSWER, "-192 -185"),
    (unsent(Code.TIMEOUT, "The message waited too long in the producer, and was not sent."), "-166"),
    (unsent(Code.BUSY, "The queue of the producer is full; the message was not sent."), "-184"),
    (_NOT_FOUND, "-190 -188 -179"),
    (unsent(Code.NEEDS_PERSON, "The worker and the broker do not agree on TLS: correct the certificate."), "-181"),
    (replace(api.CREDENTIALS, proves=Proof.NOT_SENT), "-169"),
    (api.CLIENT_BUG_UNSENT, "-186 -172 -170 -174 -164"),
    (_UNSERIALISED, "-162 -161"),
    (api.UNREADABLE, "-160 -159 -199"),
    (refused(Code.NO_RESULTS, "There are no more messages."), "-191 -168"),
    (_REBALANCED, "-147 -142"),
    (_FENCED, "-144"),
    (_PURGED, "-152 -151"),
    (_FATAL, "-150 -197"),
)
"""Rows by the number of an error of librdkafka."""


def _by_number(otherwise: Row) -> Cases:
    """The entry for an error of a broker: by its number, else by the flag `retriable`, else `otherwise`."""

    def decide(error: Any) -> Verdict:
        row = KAFKA.get(str(field(error, "errno")))
        if row is None:
            row = _LOST if field(error, "retriable") is True else otherwise
        return answered("Kafka answered with", class_name(error), row)

    return Cases("the number of Kafka's error", {**KAFKA, "any other, retriable": _LOST}, decide, otherwise)


def _by_kafka_error(otherwise: Row) -> Cases:
    """The entry for an exception of confluent-kafka: by the KafkaError that is its first argument, else `otherwise`."""

    def decide(error: Any) -> Verdict | None:
        inner = error.args[0]
        number = str(inner.code())
        if inner.fatal():
            row = _FENCED if LIBRDKAFKA.get(number, KAFKA.get(number)) is _FENCED else _FATAL
        elif inner.txn_requires_abort():
            row = _ABORTED
        else:
            row = KAFKA.get(number) or LIBRDKAFKA.get(number) or (_LOST if inner.retriable() else otherwise)
        return answered("Kafka answered with", str(inner.name()), row)

    rows = {**KAFKA, **LIBRDKAFKA, "any other, retriable": _LOST, "fatal": _FATAL, "to be aborted": _ABORTED}
    return Cases("the number of its KafkaError", rows, decide, otherwise)


_REJECTED = replace(api.REJECTED, proves=Proof.UNKNOWN)
_COMMITTED = unknown(Code.BUSY, "The group gave the partitions to other members before the offsets were committed.")

_BY_FLAG = Cases(
    "the flag `retriable` of its class",
    {"retriable": _LOST},
    lambda error: _LOST.verdict() if error.retriable is True else None,
    api.CLIENT_BUG,
)

_OWN: tuple[tuple[Entry, str], ...] = (
    (_BY_FLAG, "KafkaError"),
    (api.CLIENT_BUG, "IllegalStateError"),
    (api.CLIENT_BUG_UNSENT, "IllegalArgumentError KafkaConfigurationError UnsupportedCodecError"),
    (
        _LOST,
        "KafkaConnectionError NodeNotReadyError StaleMetadata Cancelled TooManyInFlightRequests CorrelationIdError",
    ),
    (api.UNREADABLE, "KafkaProtocolError"),
    # Also while the producer looks for the topic, and then nothing was sent: it does not say which.
    (api.NO_ANSWER, "KafkaTimeoutError"),
    (_UNREACHED, "MetadataEmptyBrokerList"),
    (_COMMITTED, "CommitFailedError"),
    (_NO_OFFSET, "NoOffsetForPartitionError"),
    (api.THROTTLED, "QuotaViolationError"),
    (api.UNSUPPORTED, "UnrecognizedBrokerVersion"),
)
"""Entries by the names of the classes that kafka-python and aiokafka share."""

TABLE: Table = {
    **of_module(
        "kafka.errors",
        *_OWN,
        (_by_number(_REJECTED), "BrokerResponseError"),
        (_by_number(_LOST), "RetriableError InvalidMetadataError"),  # nearer than that of its number
        (api.UNREADABLE, "InvalidReceiveError"),
        (_NO_OFFSET, "LogTruncationError"),
        (_LOST, "UnknownBrokerIdError"),
        (_ABORTED, "TransactionAbortedError"),
    ),
    "kafka.consumer.fetcher.RecordTooLargeError": api.UNREADABLE,
    "kafka.coordinator.base.UnjoinedGroupException": _REBALANCED,
    **of_module(
        "aiokafka.errors",
        *_OWN,
        (_by_number(_REJECTED), "BrokerResponseError"),
        (_UNREACHED, "NoBrokersAvailable KafkaUnavailableError"),
        (api.UNSUPPORTED, "IncompatibleBrokerVersion"),
        (replace(api.CREDENTIALS, proves=Proof.NOT_SENT), "AuthenticationFailedError AuthenticationMethodNotSupported"),
        (api.CLIENT_BUG, "ConsumerStoppedError IllegalOperation ProducerClosed"),
        (api.UNREADABLE, "RecordTooLargeError"),
        (_FENCED, "ProducerFenced"),
    ),
    "cimpl.KafkaException": _by_kafka_error(_REJECTED),
    **of_module("cimpl", (api.CLIENT_BUG, "ConcurrentModificationException IllegalStateException")),
    "confluent_kafka.serialization.SerializationError": _UNSERIALISED,
    **of_module(
        "confluent_kafka.error",
        (_by_kafka_error(_UNSERIALISED), "KeySerializationError ValueSerializationError"),
        (_by_kafka_error(api.UNREADABLE), "KeyDeserializationError ValueDeserializationError"),
    ),
    "confluent_kafka.avro.error.ClientError": api.CLIENT_BUG,
    "confluent_kafka.avro.serializer.SerializerError": _UNSERIALISED,
}
