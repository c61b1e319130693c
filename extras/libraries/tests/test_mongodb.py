"""pymongo against a server on loopback that speaks MongoDB's protocol and answers as it is told."""

import importlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from activities.borders.table import Proof
from runtime.dev_server import free_port
from tests.activities.libraries.verdicts import HIDDEN, NOT_SENT, REFUSED, UNKNOWN, judged, outcome, raised
from workflows.faults.fault import Code

pytest.importorskip("pymongo")
pytestmark = pytest.mark.full

pymongo: Any = importlib.import_module("pymongo")
bson: Any = importlib.import_module("bson")
gridfs_errors: Any = importlib.import_module("gridfs.errors")

HELLO: Mapping[str, Any] = {
    "ok": 1,
    "isWritablePrimary": True,
    "maxWireVersion": 25,
    "minWireVersion": 0,
    "logicalSessionTimeoutMinutes": 30,
    "msg": "isdbgrid",  # as a router of shards, which takes transactions, too
}
_OP_MSG = 2013


@contextmanager
def mongodb(answers: Mapping[str, Any]) -> Iterator[str]:
    """A server that answers each command with its document in `answers`, None by closing; yields its address."""

    def received(client: socket.socket, size: int) -> bytes:
        data = b""
        while len(data) < size and (part := client.recv(size - len(data))):
            data += part
        return data

    def serve(client: socket.socket) -> None:
        with client:
            while len(head := received(client, 16)) == 16:
                length, request, _, _ = struct.unpack("<iiii", head)
                body = received(client, length - 16)
                command = next(iter(bson.decode(body[5 : 5 + struct.unpack_from("<i", body, 5)[0]])))
                answer = HELLO if command in ("hello", "ismaster") else answers.get(command, {"ok": 1})
                if answer is None:
                    return
                section = struct.pack("<IB", 0, 0) + bson.encode(answer)
                client.sendall(struct.pack("<iiii", 16 + len(section), 1, request, _OP_MSG) + section)

    def accept(server: socket.socket) -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(client,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=accept, args=(server,), daemon=True).start()
        yield f"mongodb://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def error_of(url: str, call: Callable[[Any, Any], object], **options: Any) -> BaseException:
    """What a call with a collection raises; it gets its client, too."""
    api = importlib.import_module("pymongo.server_api").ServerApi("1")
    chosen = {"serverSelectionTimeoutMS": 1500, "socketTimeoutMS": 3000, "retryWrites": False} | options
    with pymongo.MongoClient(url, server_api=api, **chosen) as client:
        return raised(lambda: call(client.shop.orders, client))


def insert(orders: Any, _client: Any) -> None:
    orders.insert_one({"_id": 1})


def insert_many(orders: Any, _client: Any) -> None:
    orders.insert_many([{"_id": 1}, {"_id": 2}])


def find(orders: Any, _client: Any) -> None:
    list(orders.find({}))


def transact(orders: Any, client: Any) -> None:
    with client.start_session() as session, session.start_transaction():
        orders.insert_one({"_id": 1}, session=session)


def failed(code: int, *labels: str) -> Mapping[str, Any]:
    """How the server says that a command failed."""
    return {"ok": 0, "code": code, "errmsg": HIDDEN, "codeName": "Failed", "errorLabels": list(labels)}


def write_failed(code: int, **more: Any) -> Mapping[str, Any]:
    """How the server says that a write of a command failed."""
    return {"ok": 1, "n": 0, "writeErrors": [{"index": 0, "code": code, "errmsg": HIDDEN, **more}]}


UNCONFIRMED = {"ok": 1, "n": 1, "writeConcernError": {"code": 64, "errmsg": HIDDEN, "errInfo": {"wtimeout": True}}}
UNCONFIRMABLE = {"ok": 1, "n": 1, "writeConcernError": {"code": 100, "errmsg": HIDDEN}}


@pytest.mark.parametrize(
    ("call", "answers", "code", "proves"),
    [
        (insert, {"insert": write_failed(11000)}, Code.CONFLICT, REFUSED),
        (insert, {"insert": write_failed(121)}, Code.INVALID_INPUT, REFUSED),
        (insert, {"insert": failed(13)}, Code.FORBIDDEN, REFUSED),
        (insert, {"insert": failed(18)}, Code.UNAUTHORIZED, REFUSED),
        (insert, {"insert": failed(112)}, Code.BUSY, REFUSED),
        (insert, {"insert": failed(10107)}, Code.UNREACHABLE, REFUSED),
        (insert, {"insert": failed(91)}, Code.UNREACHABLE, UNKNOWN),
        (insert, {"insert": failed(50)}, Code.TIMEOUT, UNKNOWN),
        (insert, {"insert": failed(1)}, Code.SERVER_ERROR, UNKNOWN),
        (insert, {"insert": failed(14031)}, Code.QUOTA_EXHAUSTED, REFUSED),
        (insert, {"insert": failed(9)}, Code.BUG, REFUSED),
        (insert, {"insert": failed(48)}, Code.CONFLICT, REFUSED),
        (insert, {"insert": failed(59)}, Code.MALFORMED_SCHEMA, REFUSED),
        (insert, {"insert": failed(404)}, Code.BUG, UNKNOWN),  # a number of MongoDB's own, and no HTTP status
        (insert, {"insert": UNCONFIRMED}, Code.TIMEOUT, UNKNOWN),
        (insert, {"insert": UNCONFIRMABLE}, Code.NEEDS_PERSON, UNKNOWN),
        (insert, {"insert": None}, Code.UNREACHABLE, UNKNOWN),
        (insert_many, {"insert": write_failed(11000)}, Code.CONFLICT, UNKNOWN),
        (find, {"find": failed(26)}, Code.NOT_FOUND, REFUSED),
        (find, {"find": failed(43)}, Code.BUSY, UNKNOWN),
        (transact, {"insert": failed(251, "TransientTransactionError")}, Code.BUSY, REFUSED),
        (transact, {"commitTransaction": failed(50, "UnknownTransactionCommitResult")}, Code.TIMEOUT, UNKNOWN),
        (transact, {"commitTransaction": failed(112, "TransientTransactionError")}, Code.BUSY, REFUSED),
    ],
)
def test_the_number_of_the_server_decides(
    call: Callable[[Any, Any], object], answers: Mapping[str, Any], code: Code, proves: Proof
) -> None:
    """Where a write may stand, alone or among several, nothing is proven."""
    with mongodb(answers) as url:
        assert outcome(error_of(url, call)) == (code, proves)


def test_the_fields_of_a_unique_index_are_named() -> None:
    """Never their values."""
    more = {"keyPattern": {"email": 1}, "keyValue": {"email": HIDDEN}}
    with mongodb({"insert": write_failed(11000, **more)}) as url:
        assert judged(error_of(url, insert)).fault.observed == {"fields": ["email"]}


def test_no_server_is_no_connection_and_what_bson_cannot_write_is_not_sent() -> None:
    """pymongo waits for a server, and has sent nothing; wrong arguments are found before."""
    nowhere = error_of(f"mongodb://127.0.0.1:{free_port()}", insert, serverSelectionTimeoutMS=300)
    with mongodb({}) as url:
        value = error_of(url, lambda orders, _: orders.insert_one({"_id": object()}))
        large = error_of(url, lambda orders, _: orders.insert_one({"name": "x" * 17_000_000}))

    assert outcome(nowhere) == (Code.UNREACHABLE, NOT_SENT)
    assert outcome(value) == (Code.INVALID_INPUT, NOT_SENT)
    assert judged(large).fault.code is Code.INVALID_INPUT
    assert judged(raised(lambda: bson.ObjectId("no id"))).fault.code is Code.INVALID_INPUT


@pytest.mark.parametrize(
    ("name", "code"),
    [("NoFile", Code.NOT_FOUND), ("FileExists", Code.CONFLICT), ("CorruptGridFile", Code.UNEXPECTED_RESULT)],
)
def test_files(name: str, code: Code) -> None:
    """GridFS says what it found."""
    assert judged(getattr(gridfs_errors, name)(HIDDEN)).fault.code is code
