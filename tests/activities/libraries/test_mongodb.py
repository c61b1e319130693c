"""pymongo against a server on loopback that speaks MongoDB's protocol and answers as it is told."""

import importlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from activities.borders import judge
from activities.borders.table import Proof
from runtime.dev_server import free_port
from workflows.faults.fault import Code

pytest.importorskip("pymongo")
pytestmark = pytest.mark.full

pymongo: Any = importlib.import_module("pymongo")
bson: Any = importlib.import_module("bson")
gridfs_errors: Any = importlib.import_module("gridfs.errors")

HIDDEN = "sk-secret"
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


def raised(url: str, call: Callable[[Any, Any], object], **options: Any) -> BaseException:
    """What a call with a collection raises; it gets its client, too."""
    api = importlib.import_module("pymongo.server_api").ServerApi("1")
    chosen = {"serverSelectionTimeoutMS": 1500, "socketTimeoutMS": 3000, "retryWrites": False} | options
    with pymongo.MongoClient(url, server_api=api, **chosen) as client:
        try:
            call(client.shop.orders, client)
        except Exception as error:
            return error
    raise AssertionError("nothing was raised")


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
        (insert, {"insert": write_failed(11000)}, Code.CONFLICT, Proof.REFUSED),
        (insert, {"insert": write_failed(121)}, Code.INVALID_INPUT, Proof.REFUSED),
        (insert, {"insert": failed(13)}, Code.FORBIDDEN, Proof.REFUSED),
        (insert, {"insert": failed(18)}, Code.UNAUTHORIZED, Proof.REFUSED),
        (insert, {"insert": failed(112)}, Code.BUSY, Proof.REFUSED),
        (insert, {"insert": failed(10107)}, Code.UNREACHABLE, Proof.REFUSED),
        (insert, {"insert": failed(91)}, Code.UNREACHABLE, Proof.UNKNOWN),
        (insert, {"insert": failed(50)}, Code.TIMEOUT, Proof.UNKNOWN),
        (insert, {"insert": failed(1)}, Code.SERVER_ERROR, Proof.UNKNOWN),
        (insert, {"insert": failed(14031)}, Code.QUOTA_EXHAUSTED, Proof.REFUSED),
        (insert, {"insert": failed(9)}, Code.BUG, Proof.REFUSED),
        (insert, {"insert": failed(404)}, Code.BUG, Proof.UNKNOWN),  # a number of MongoDB's own, and no HTTP status
        (insert, {"insert": UNCONFIRMED}, Code.TIMEOUT, Proof.UNKNOWN),
        (insert, {"insert": UNCONFIRMABLE}, Code.NEEDS_PERSON, Proof.UNKNOWN),
        (insert, {"insert": None}, Code.UNREACHABLE, Proof.UNKNOWN),
        (insert_many, {"insert": write_failed(11000)}, Code.CONFLICT, Proof.UNKNOWN),
        (find, {"find": failed(26)}, Code.NOT_FOUND, Proof.REFUSED),
        (find, {"find": failed(43)}, Code.BUSY, Proof.UNKNOWN),
        (transact, {"insert": failed(251, "TransientTransactionError")}, Code.BUSY, Proof.REFUSED),
        (transact, {"commitTransaction": failed(50, "UnknownTransactionCommitResult")}, Code.TIMEOUT, Proof.UNKNOWN),
        (transact, {"commitTransaction": failed(112, "TransientTransactionError")}, Code.BUSY, Proof.REFUSED),
    ],
)
def test_the_number_of_the_server_decides(
    call: Callable[[Any, Any], object], answers: Mapping[str, Any], code: Code, proves: Proof
) -> None:
    """Where a write may stand, alone or among several, nothing is proven."""
    with mongodb(answers) as url:
        verdict = judge(raised(url, call))

    assert (verdict.fault.code, verdict.proves) == (code, proves)
    assert HIDDEN not in verdict.fault.model_dump_json()


def test_the_fields_of_a_unique_index_are_named() -> None:
    """Never their values."""
    more = {"keyPattern": {"email": 1}, "keyValue": {"email": HIDDEN}}
    with mongodb({"insert": write_failed(11000, **more)}) as url:
        fault = judge(raised(url, insert)).fault

    assert fault.observed == {"fields": ["email"]}
    assert HIDDEN not in fault.model_dump_json()


def test_no_server_is_no_connection() -> None:
    """pymongo waits for a server, and has sent nothing."""
    verdict = judge(raised(f"mongodb://127.0.0.1:{free_port()}", insert, serverSelectionTimeoutMS=300))

    assert (verdict.fault.code, verdict.proves) == (Code.UNREACHABLE, Proof.NOT_SENT)


def test_what_bson_cannot_write_is_not_sent() -> None:
    """The arguments are wrong."""
    with mongodb({}) as url:
        value = judge(raised(url, lambda orders, _: orders.insert_one({"_id": object()})))
    with pytest.raises(bson.errors.InvalidId) as wrong:
        bson.ObjectId("no id")

    assert (value.fault.code, value.proves) == (Code.INVALID_INPUT, Proof.NOT_SENT)
    assert judge(wrong.value).fault.code is Code.INVALID_INPUT


@pytest.mark.parametrize(
    ("name", "code"),
    [("NoFile", Code.NOT_FOUND), ("FileExists", Code.CONFLICT), ("CorruptGridFile", Code.UNEXPECTED_RESULT)],
)
def test_files(name: str, code: Code) -> None:
    """GridFS says what it found."""
    assert judge(getattr(gridfs_errors, name)(HIDDEN)).fault.code is code
