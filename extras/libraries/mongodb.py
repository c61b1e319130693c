"""MongoDB: the verdict on each exception of pymongo, bson and gridfs (https://www.mongodb.com/docs/manual/reference/).

The number of the server's error decides. A statement over several documents, and a write whose confirmation failed, may
have changed something. pymongo repeats a write by itself once; only the server can recognise the repetition.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import JsonValue

from activities.borders import service_api as api
from activities.borders.service_api import answered, code_in, field, refused, some, unknown, unsent
from activities.borders.table import Cases, Proof, Row, Table, Verdict, named, of_module
from workflows.faults.fault import Code

_TRANSIENT = "TransientTransactionError"
_UNCONFIRMED_COMMIT = "UnknownTransactionCommitResult"
_LOST = unknown(Code.UNREACHABLE, "The server of MongoDB is stopping, or lost the others.")
_NO_PRIMARY = refused(Code.UNREACHABLE, "The server of MongoDB is no primary: the next connection finds one.")
_STOPPED = unknown(Code.TIMEOUT, "MongoDB stopped the operation, which took too long.")
_UNCONFIRMED = unknown(Code.TIMEOUT, "The write was made, but not confirmed by as many servers as the tool asks for.")
_NOT_CONFIRMABLE = unknown(
    Code.NEEDS_PERSON,
    "The write was made, but the tool asks for more servers than there are: correct its writeConcern.",
)
_CURSOR_GONE = unknown(Code.BUSY, "The cursor ended before everything was read: the query has to run again.")
_EXISTS = refused(Code.CONFLICT, "There is one with the same unique value already: choose another.")
_TAKEN = refused(Code.CONFLICT, "There is one with this name already: choose another.")
_PARTLY = unknown(Code.REFUSED, "MongoDB rejected some of the writes: read which ones it has made.")
_WRONG_VALUE = unsent(Code.INVALID_INPUT, "MongoDB cannot store such a value; nothing was sent: change the arguments.")

MONGODB: Mapping[str, Row] = named(
    (api.FAILED, "1 8"),
    (api.INVALID, "2 14 121 10334 17280"),
    (_LOST, "6 7 89 91 133 189 9001 11600 11602"),
    (_NO_PRIMARY, "10107 13435 13436 10058"),
    (_STOPPED, "50 262 11601"),
    (refused(Code.BUG, "MongoDB rejected the command: fix the tool."), "9 40 52 66 72 40324"),
    (api.FORBIDDEN, "13"),
    (api.CREDENTIALS, "18"),
    (api.UNSUPPORTED, "20 59 115 263 303"),
    # Of a transaction, and of one document: the server has undone it.
    (api.BUSY, "24 46 112 117 225 251"),
    (api.MISSING, "26 27"),
    (_TAKEN, "48 68 85 86"),
    (_CURSOR_GONE, "43 136 175 237"),
    (_UNCONFIRMED, "64"),
    (_NOT_CONFIRMABLE, "79 100"),
    (api.QUOTA, "14031"),
    (api.OVERLOADED, "146"),
    (api.THROTTLED, "462"),
    (_EXISTS, "11000 11001 12582"),
)
"""Rows by the number of an error of the server."""


def _by_code(otherwise: Row, *, is_sure: bool = True) -> Cases:
    """The table's entry for an error of the server: the row of its number, else `otherwise`.

    If `is_sure` is False, the error proves nothing: writes may have been applied.
    """

    def decide(error: Any) -> Verdict:
        number, labels = _number(error), set(some(field(error, "_error_labels")))
        row = MONGODB.get(number, otherwise)
        if _TRANSIENT in labels:
            row = replace(api.BUSY, reason=_ABORTED)
        if _UNCONFIRMED_COMMIT in labels or not is_sure:
            row = replace(row, proves=Proof.UNKNOWN)
        return answered("MongoDB answered with error", number, row, _observed(error))

    rows = MONGODB if is_sure else {number: replace(row, proves=Proof.UNKNOWN) for number, row in MONGODB.items()}
    return Cases("the number of MongoDB's error", {**rows, _TRANSIENT: api.BUSY}, decide, otherwise)


_ABORTED = "MongoDB aborted the transaction, as it does when another one changes the same documents."


def _number(error: Any) -> str:
    """The number of an error of the server, else of the first failed write among several; empty if there is none."""
    writes = [*some(field(error, "details", "writeErrors")), *some(field(error, "details", "writeConcernErrors"))]
    numbers = (field(error, "code"), field(error, "details", "code"), *(field(write, "code") for write in writes))
    of_several = [number for number in numbers if isinstance(number, int)]
    # 65 says only that several failed.
    return str(next((number for number in of_several if number != 65), "")) if of_several else ""


def _observed(error: Any) -> JsonValue:
    """The names, but not the values, of the fields whose values must be unique; None if the error has no names."""
    pattern = field(error, "details", "keyPattern")
    names: list[JsonValue] = [name for name in map(code_in, some(pattern)) if name]
    return {"fields": names} if names else None


TABLE: Table = {
    **of_module(
        "pymongo.errors",
        (_by_code(api.NO_CODE), "OperationFailure WriteError"),
        (_by_code(_EXISTS), "DuplicateKeyError"),
        (_by_code(_CURSOR_GONE), "CursorNotFound"),
        (_by_code(_STOPPED), "ExecutionTimeout"),
        (_by_code(_UNCONFIRMED, is_sure=False), "WriteConcernError WTimeoutError"),
        # The writes before the one that failed, or all others, are done.
        (_by_code(_PARTLY, is_sure=False), "BulkWriteError ClientBulkWriteException"),
        (_by_code(_LOST), "NotPrimaryError"),
        (api.BROKEN, "ConnectionFailure AutoReconnect _OperationCancelled"),
        (api.NO_ANSWER, "NetworkTimeout"),
        (
            unsent(Code.UNREACHABLE, "No server of MongoDB that fits the tool's wishes answers; nothing was sent."),
            "ServerSelectionTimeoutError",
        ),
        (unsent(Code.BUSY, "All connections of the pool are in use; nothing was sent."), "WaitQueueTimeoutError"),
        (api.CLIENT_BUG_UNSENT, "ConfigurationError InvalidURI InvalidName"),
        (_TAKEN, "CollectionInvalid"),
        (
            unsent(Code.INVALID_INPUT, "The document is larger than MongoDB allows; it was not sent: store less."),
            "DocumentTooLarge",
        ),
        (api.UNREADABLE, "ProtocolError"),
        (api.CLIENT_BUG, "PyMongoError InvalidOperation EncryptionError EncryptedCollectionError"),
    ),
    "pymongo.pool_shared._PoolClosedError": api.CLIENT_BUG_UNSENT,
    **of_module(
        "bson.errors",
        (_WRONG_VALUE, "InvalidDocument InvalidStringData"),
        (
            unsent(Code.INVALID_INPUT, "This is no id of MongoDB, which has 24 hexadecimal digits: give another."),
            "InvalidId",
        ),
        (api.UNREADABLE, "InvalidBSON"),
        (api.CLIENT_BUG, "BSONError"),
    ),
    **of_module(
        "gridfs.errors",
        (api.MISSING, "NoFile"),
        (api.CONFLICT, "FileExists"),
        (api.UNREADABLE, "CorruptGridFile"),
        (api.CLIENT_BUG, "GridFSError"),
    ),
}
