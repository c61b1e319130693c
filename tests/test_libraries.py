"""Tools that use other libraries without a line of error handling: what becomes of their errors, on a real server."""

import json
import time
from collections.abc import Iterator
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
from tests.activities.payments import payments
from tests.gate import needs_extra
from tests.harness import DONE, plan, staged, step
from workflows.account.outcome import Outcome
from workflows.account.task import TaskStatus
from workflows.faults.fault import Applied, Code
from workflows.plans.proposal import Step


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


async def test_requests_a_refusal_is_retried_waited_for_or_planned_anew(client: Client, tmp_path: Path) -> None:
    """503 is retried in its step, 409 is not, and 429 waits for Retry-After, not for the tool's backoff."""
    answers = [reply(503), OK, reply(409, b'{"free": ["14:30"]}'), reply(429, retry_after="2"), OK]
    async with serving(*answers) as url:
        plans = [
            plan(step("down", "fetch", url=f"{url}/1"), step("taken", "fetch", "down", url=f"{url}/2")),
            plan(step("busy", "fetch", url=f"{url}/3")),
        ]
        async with staged(client, tmp_path, [fetch], [*plans, DONE]) as stage:
            began = time.monotonic()
            ended = await stage.run()
            took = time.monotonic() - began
    conflict = next(fault for fault in ended.faults if fault.step_id == "taken")

    assert (ended.status, ended.replans) == (TaskStatus.COMPLETED, 1)
    assert [(one.id, one.attempts) for one in ended.steps] == [("down", 2), ("taken", 1), ("busy", 2)]
    assert (conflict.code, conflict.observed) == (Code.CONFLICT, {"free": ["14:30"]})
    assert took > 2


async def test_requests_a_lost_answer_is_repeated_with_its_key_or_looked_up(client: Client, tmp_path: Path) -> None:
    """An unkeyed call is never made again: what `reconcile=` finds is its result."""
    with payments() as service:
        service.plan = ["drop"]
        keyed = await paid(client, tmp_path, step("pay", "pay", url=service.url))
        service.plan = ["drop"]
        unkeyed = await paid(client, tmp_path, step("pay", "pay_once", url=service.url))
    first, second = service.charges

    assert (keyed.status, keyed.steps[0].attempts) == (TaskStatus.COMPLETED, 2)
    assert (unkeyed.status, unkeyed.steps[0].attempts) == (TaskStatus.COMPLETED, 1)
    assert unkeyed.steps[0].result == {"id": 2, "key": second["key"]} and first["key"] != second["key"]


async def paid(client: Client, folder: Path, step: Step) -> Outcome:
    async with staged(client, folder, [pay, pay_once, look_up], [plan(step), DONE]) as stage:
        return await stage.run()


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


@needs_extra("libraries")
async def test_botocore_a_refusal_is_retried_planned_anew_or_goes_to_a_person(client: Client, tmp_path: Path) -> None:
    """Even an unkeyed call is retried after a throttle: the service said that it did nothing.

    Nothing of a foreign message is in the outcome.
    """
    refused = [refuses(f"{word}Exception") for word in ("Throttling", "ConditionalCheckFailed", "ExpiredToken")]
    answers = [refused[0], reply(200, b"{}"), *refused[1:]]
    async with serving(*answers) as url:
        plans = [
            plan(step("throttled", "put", url=f"{url}/1"), step("changed", "put", "throttled", url=f"{url}/2")),
            plan(step("expired", "put", url=f"{url}/3")),
        ]
        async with staged(client, tmp_path, [put], [*plans, DONE]) as stage:
            ended = await stage.run()
    codes = {fault.step_id: (fault.code, fault.attempt, fault.applied) for fault in ended.faults[1:]}

    assert (ended.status, ended.replans, ended.steps[0].attempts) == (TaskStatus.ESCALATED, 1, 2)
    assert codes == {
        "changed": (Code.PRECONDITION_FAILED, 1, Applied.NONE),
        "expired": (Code.UNAUTHORIZED, 1, Applied.NONE),
    }
    assert "sk-secret" not in ended.model_dump_json()
