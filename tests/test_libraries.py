"""Tools that use other libraries without a line of error handling: what becomes of their errors, on a real server."""

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import botocore.config
import botocore.session
import psycopg
import pytest
import requests
from pydantic import BaseModel
from temporalio.client import Client

from evals.fakes.http_server import reply, serving
from evals.fakes.postgresql import Cluster
from replan import Key, tool
from tests.activities.payments import Payments, payments
from tests.harness import DONE, plan, staged, step
from workflows.account.outcome import Outcome
from workflows.account.task import TaskStatus
from workflows.faults.fault import Applied, Code


class Where(BaseModel):
    url: str


class Charge(BaseModel):
    id: int = 0
    key: str | None = None


# requests, in a plain def


@tool.read
def fetch(args: Where) -> Charge:
    """Fetch something."""
    reply = requests.get(args.url, timeout=5)
    reply.raise_for_status()
    return Charge.model_validate(reply.json())


@tool.keyed
def pay(args: Where, key: Key) -> Charge:
    """Charge, with the key."""
    reply = requests.post(args.url, json={"amount": 5}, headers={"Idempotency-Key": key}, timeout=5)
    reply.raise_for_status()
    return Charge.model_validate(reply.json())


class Reference(BaseModel):
    url: str
    reference: str


@tool.read
def look_up(args: Reference) -> Charge:
    """Find a charge by the reference that it was made with."""
    reply = requests.get(args.url, params={"reference": args.reference}, timeout=5)
    reply.raise_for_status()
    return Charge.model_validate(reply.json())


@tool.unkeyed(reconcile=look_up.using(reference="key"), settle=0, timeout=10, enforces_timeout=True)
def pay_once(args: Where, key: Key) -> Charge:
    """Charge at a service that honours no key; it takes a reference."""
    reply = requests.post(args.url, json={"amount": 5}, headers={"Idempotency-Key": key}, timeout=5)
    reply.raise_for_status()
    return Charge.model_validate(reply.json())


OK = reply(200, b'{"id": 1}')


async def run_fetch(client: Client, folder: Path, *answers: bytes, proposals: int = 2) -> Outcome:
    async with serving(*answers) as url:
        plans = [plan(step(f"fetch-{number}", "fetch", url=f"{url}/{number}")) for number in range(1, proposals)]
        async with staged(client, folder, [fetch], [*plans, DONE]) as stage:
            return await stage.run()


async def test_requests_a_503_is_retried(client: Client, tmp_path: Path) -> None:
    ended = await run_fetch(client, tmp_path, reply(503), OK)

    assert (ended.status, ended.replans, ended.steps[0].attempts) == (TaskStatus.COMPLETED, 0, 2)


async def test_requests_a_409_leads_to_a_new_plan(client: Client, tmp_path: Path) -> None:
    ended = await run_fetch(client, tmp_path, reply(409, b'{"free": ["14:30"]}'), OK, proposals=3)
    [fault] = ended.faults

    assert (ended.status, ended.replans) == (TaskStatus.COMPLETED, 1)
    assert (fault.code, fault.attempt, fault.observed) == (Code.CONFLICT, 1, {"free": ["14:30"]})


@pytest.mark.full
async def test_requests_a_429_waits_as_long_as_it_is_told(client: Client, tmp_path: Path) -> None:
    began = time.monotonic()
    ended = await run_fetch(client, tmp_path, reply(429, retry_after="2"), OK)

    assert (ended.status, ended.steps[0].attempts) == (TaskStatus.COMPLETED, 2)
    assert time.monotonic() - began > 2


@pytest.fixture
def service() -> Iterator[Payments]:
    with payments() as running:
        running.plan = ["drop"]
        yield running


async def test_requests_a_lost_answer_of_a_keyed_call_is_repeated(
    client: Client, tmp_path: Path, service: Payments
) -> None:
    """With its key, so that there is one charge."""
    async with staged(client, tmp_path, [pay], [plan(step("pay", "pay", url=service.url)), DONE]) as stage:
        ended = await stage.run()

    assert (ended.status, ended.steps[0].attempts, len(service.charges)) == (TaskStatus.COMPLETED, 2, 1)


async def test_requests_a_lost_answer_of_an_unkeyed_call_is_looked_up(
    client: Client, tmp_path: Path, service: Payments
) -> None:
    """It is never made again: what `reconcile=` finds is its result."""
    steps = plan(step("pay", "pay_once", url=service.url))
    async with staged(client, tmp_path, [pay_once, look_up], [steps, DONE]) as stage:
        ended = await stage.run()
    [charge] = service.charges

    assert (ended.status, ended.steps[0].attempts) == (TaskStatus.COMPLETED, 1)
    assert ended.steps[0].result == {"id": 1, "key": charge["key"]}


# psycopg


class Rows(BaseModel):
    url: str
    first: int
    then: int


def change(url: str, *rows: int) -> None:
    with psycopg.connect(url) as connection:
        for row in rows:
            connection.execute("UPDATE seats SET taken = taken + 1 WHERE id = %s", [row])
            time.sleep(0.5)


@tool.keyed
def take(args: Rows, key: Key) -> Charge:
    """Change two rows; the row that is changed first is locked meanwhile."""
    change(args.url, args.first, args.then)
    return Charge()


@pytest.fixture
def seats(postgresql: Cluster) -> Iterator[str]:
    name = postgresql.create()
    url = postgresql.url(name).replace("+psycopg", "")
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE seats (id integer PRIMARY KEY, taken integer NOT NULL)")
        connection.execute("INSERT INTO seats VALUES (1, 0), (2, 0)")
    yield url
    postgresql.drop(name)


async def test_psycopg_a_deadlock_is_retried(client: Client, tmp_path: Path, seats: str) -> None:
    """PostgreSQL rolls one of the two back: that one is made again, so that both are done, once each."""
    crossing = plan(step("a", "take", url=seats, first=1, then=2), step("b", "take", url=seats, first=2, then=1))
    async with staged(client, tmp_path, [take], [crossing, DONE]) as stage:
        ended = await stage.run()
    with psycopg.connect(seats) as connection:
        taken = connection.execute("SELECT taken FROM seats ORDER BY id").fetchall()

    assert (ended.status, taken) == (TaskStatus.COMPLETED, [(2,), (2,)])
    assert sorted(one.attempts for one in ended.steps) == [1, 2]


# botocore


@tool.unkeyed
def put(args: Where, key: Key) -> Charge:
    """Put an item into a table, with a client that does not retry by itself."""
    session = botocore.session.Session()
    session.set_credentials("a-key", "a-secret")
    config = botocore.config.Config(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=5)
    table: Any = session.create_client("dynamodb", region_name="eu-west-1", endpoint_url=args.url, config=config)
    table.put_item(TableName="seats", Item={"id": {"S": "1"}})
    return Charge()


def refuses(code: str, status: int = 400) -> bytes:
    body = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "sk-secret"}
    return reply(status, json.dumps(body).encode(), content_type="application/x-amz-json-1.0")


async def run_put(client: Client, folder: Path, *answers: bytes, proposals: int = 1) -> Outcome:
    async with serving(*answers) as url:
        plans: Sequence[Any] = [plan(step(f"put-{n}", "put", url=f"{url}/{n}")) for n in range(proposals)]
        async with staged(client, folder, [put], [*plans, DONE]) as stage:
            return await stage.run()


async def test_botocore_a_throttle_is_retried(client: Client, tmp_path: Path) -> None:
    ended = await run_put(client, tmp_path, refuses("ThrottlingException"), reply(200, b"{}"))

    assert (ended.status, ended.replans, ended.steps[0].attempts) == (TaskStatus.COMPLETED, 0, 2)


async def test_botocore_a_failed_condition_leads_to_a_new_plan(client: Client, tmp_path: Path) -> None:
    """The world has changed since it was read."""
    answers = [refuses("ConditionalCheckFailedException"), reply(200, b"{}")]
    ended = await run_put(client, tmp_path, *answers, proposals=2)

    assert (ended.status, ended.replans, ended.faults[0].code) == (TaskStatus.COMPLETED, 1, Code.PRECONDITION_FAILED)


async def test_botocore_an_expired_credential_goes_to_a_person(client: Client, tmp_path: Path) -> None:
    ended = await run_put(client, tmp_path, refuses("ExpiredTokenException"))
    [fault] = ended.faults

    assert (ended.status, fault.code, fault.attempt, fault.applied) == (
        TaskStatus.ESCALATED,
        Code.UNAUTHORIZED,
        1,
        Applied.NONE,
    )
    assert "sk-secret" not in ended.model_dump_json()
