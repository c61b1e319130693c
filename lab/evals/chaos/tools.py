"""The tools of the trial: `worker.py --tools lab/evals/chaos/tools.py`.

A bank with a database of its own, and a payment service over HTTP, with every effect that a tool can declare. The tools
at the end are for races: calls that are sent late, that freeze their worker, or whose threads outlive their timeouts.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
from pydantic import BaseModel
from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import create_async_engine

from evals.chaos.payments import PATIENCE, SETTLE
from evals.chaos.world import ACCOUNTS, NOTES, RECEIPTS, TRANSFERS, back_of, read_notes, take_note
from replan import Key, Refused, Transaction, tool
from workflows.faults.retries import OVERTIME_TIMES

LONG_TIMEOUT = 30.0
"""Seconds: longer than a worker is frozen."""
SHORT_TIMEOUT = 0.5
"""Seconds: the thread outlives the limit of its attempt, too."""
BANK = create_async_engine(os.environ["REPLAN_CHAOS_BANK"])


class Owner(BaseModel):
    """Whose account."""

    account: int


class Balance(BaseModel):
    """In cents."""

    balance: int


@tool.read(datasource=BANK)
async def balance(args: Owner, tx: Transaction) -> Balance:
    """Look into an account."""
    take_note()
    found = await tx.scalar(select(ACCOUNTS.c.balance).where(ACCOUNTS.c.id == args.account))
    return Balance(balance=found or 0)


class Order(BaseModel):
    """An amount to move, in cents."""

    reference: str
    source: int
    target: int
    amount: int


class Transfer(BaseModel):
    """A row of `transfers`."""

    id: int


@tool.transactional(datasource=BANK, timeout=40)
async def move_back(args: Order, tx: Transaction) -> Transfer:
    """Move an amount back to where it came from."""
    take_note()
    back = {"reference": back_of(args.reference), "source": args.target, "target": args.source}
    return await _move(args.model_copy(update=back), tx)


@tool.transactional(datasource=BANK, timeout=40, undo=move_back)
async def transfer(args: Order, tx: Transaction) -> Transfer:
    """Move an amount from one account to another."""
    take_note()
    return await _move(args, tx)


async def _move(args: Order, tx: Transaction) -> Transfer:
    both = select(ACCOUNTS).where(ACCOUNTS.c.id.in_([args.source, args.target])).order_by(ACCOUNTS.c.id)
    await tx.execute(both.with_for_update())
    for account, change in ((args.source, -args.amount), (args.target, args.amount)):
        await tx.execute(update(ACCOUNTS).where(ACCOUNTS.c.id == account).values(balance=ACCOUNTS.c.balance + change))
    left = await tx.scalar(select(ACCOUNTS.c.balance).where(ACCOUNTS.c.id == args.source))
    if left is None or left < 0:
        raise Refused(f"Account {args.source} has not so much.", code="conflict")
    id = await tx.scalar(insert(TRANSFERS).values(**args.model_dump()).returning(TRANSFERS.c.id))
    return Transfer(id=id or 0)


class Words(BaseModel):
    """The text of a receipt."""

    reference: str
    of: int


class Receipt(BaseModel):
    """A row of `receipts`."""

    id: int


@tool.transactional(datasource=BANK, timeout=40)
async def write_receipt(args: Words, tx: Transaction) -> Receipt:
    """Write a receipt."""
    take_note()
    row = {"reference": args.reference, "words": f"for {args.of}"}
    return Receipt(id=await tx.scalar(insert(RECEIPTS).values(row).returning(RECEIPTS.c.id)) or 0)


class Statement(BaseModel):
    """A statement of an account: so large that it lies in the store."""

    account: int
    lines: str


class Asked(BaseModel):
    """Whose statement."""

    reference: str
    account: int


@tool.read
async def print_statement(args: Asked) -> Statement:
    """Print a long statement of an account."""
    take_note()
    return Statement(account=args.account, lines=f"{args.reference} " * 8_000)


class Reference(BaseModel):
    """By what a charge or a rate is looked up."""

    reference: str


class Payment(Reference):
    """An amount to charge, in cents."""

    amount: int


class Charge(Payment):
    """A charge that was made."""

    id: int


class Rate(BaseModel):
    """A rate of the day."""

    percent: int


@tool.read(timeout=PATIENCE)
async def find_payment(args: Reference, http: httpx2.AsyncClient) -> Charge:
    """Look a charge up by its reference or by the key that it was made with."""
    take_note()
    return Charge.model_validate(await _sent(http, "GET", "find", args.reference))


@tool.read(timeout=PATIENCE)
async def get_rate(args: Reference, http: httpx2.AsyncClient) -> Rate:
    """Ask for the rate of the day."""
    take_note()
    return Rate.model_validate(await _sent(http, "GET", "rate", args.reference))


@tool.idempotent(timeout=PATIENCE)
async def set_limit(args: Payment, http: httpx2.AsyncClient) -> Payment:
    """Set a limit, as often as you like."""
    take_note()
    return Payment.model_validate(await _sent(http, "PUT", "limit", args.reference, json={"amount": args.amount}))


@tool.keyed(reconcile=find_payment.using(reference="key"), settle=SETTLE, timeout=PATIENCE)
async def refund(args: Payment, key: Key, http: httpx2.AsyncClient) -> Charge:
    """Give a charge back."""
    take_note()
    back = args.model_copy(update={"reference": back_of(args.reference)})
    return await _charged(http, "keyed", back, headers={"idempotency-key": key})


@tool.keyed(reconcile=find_payment.using(reference="key"), settle=SETTLE, timeout=PATIENCE, undo=refund)
async def pay(args: Payment, key: Key, http: httpx2.AsyncClient) -> Charge:
    """Charge; the service gives a second call with the same key the first one's answer."""
    take_note()
    return await _charged(http, "keyed", args, headers={"idempotency-key": key})


@tool.keyed(reconcile=find_payment.using(reference="key"), settle=SETTLE, timeout=PATIENCE)
async def pay_strictly(args: Payment, key: Key, http: httpx2.AsyncClient) -> Charge:
    """Charge; the service refuses a second call with the same key."""
    take_note()
    return await _charged(http, "strict", args, headers={"idempotency-key": key})


@tool.unkeyed(reconcile=find_payment.using(reference="args.reference"), settle=SETTLE, timeout=PATIENCE)
async def pay_once(args: Payment, http: httpx2.AsyncClient) -> Charge:
    """Charge; the service knows no keys, but charges can be looked up."""
    take_note()
    return await _charged(http, "plain", args)


@tool.unkeyed(timeout=PATIENCE)
async def pay_blindly(args: Payment, http: httpx2.AsyncClient) -> Charge:
    """Charge; the service knows no keys, and charges cannot be looked up."""
    take_note()
    return await _charged(http, "plain", args)


@tool.unkeyed(timeout=LONG_TIMEOUT)
async def pay_slowly(args: Payment, http: httpx2.AsyncClient) -> Charge:
    """Charge blindly, after two seconds: the Temporal server is stopped meanwhile."""
    take_note()
    await asyncio.sleep(2)
    return await _charged(http, "plain", args)


@tool.unkeyed(reconcile=find_payment.using(reference="args.reference"), settle=SETTLE, timeout=PATIENCE)
async def pay_and_exit(args: Payment, http: httpx2.AsyncClient) -> Charge:
    """Charge, and exit as a script does."""
    take_note()
    await _charged(http, "plain", args)
    sys.exit(1)


@tool.unkeyed(reconcile=find_payment.using(reference="args.reference"), settle=SETTLE, timeout=PATIENCE)
async def pay_and_stop(args: Payment, http: httpx2.AsyncClient) -> Charge:
    """Charge, and stop the event loop, on which the calls of all tools run."""
    take_note()
    charge = await _charged(http, "plain", args)
    asyncio.get_running_loop().stop()
    return charge


@tool.unkeyed(timeout=PATIENCE)
def pay_and_ask(args: Payment) -> Charge:
    """Charge with a client of its own, and ask then for what does not exist: the refusal is of the second request."""
    take_note()
    _sent_after(0, args)
    url = f"{os.environ['REPLAN_CHAOS_PAYMENTS']}/find"
    reply = httpx2.get(url, params={"reference": f"no {args.reference}"}, headers={"x-worker": str(os.getpid())})
    return Charge.model_validate(reply.raise_for_status().json())


async def _charged(http: httpx2.AsyncClient, endpoint: str, args: Payment, **more: Any) -> Charge:
    return Charge.model_validate(
        await _sent(http, "POST", endpoint, args.reference, json={"amount": args.amount}, **more)
    )


async def _sent(
    http: httpx2.AsyncClient, method: str, endpoint: str, reference: str, headers: Any = None, **body: Any
) -> Any:
    """Send one request to the payment service, with the id of this process, and read the answer."""
    url = f"{os.environ['REPLAN_CHAOS_PAYMENTS']}/{endpoint}"
    headers = {**(headers or {}), "x-worker": str(os.getpid())}
    reply = await http.request(method, url, params={"reference": reference}, headers=headers, **body)
    return reply.raise_for_status().json()


@tool.keyed(reconcile=find_payment.using(reference="key"), settle=SETTLE, timeout=LONG_TIMEOUT)
async def pay_patiently(args: Payment, key: Key, http: httpx2.AsyncClient) -> Charge:
    """Charge; a worker that was frozen for a while may still send it."""
    take_note()
    return await _charged(http, "keyed", args, headers={"idempotency-key": key})


@tool.unkeyed(reconcile=find_payment.using(reference="args.reference"), settle=SETTLE, timeout=PATIENCE)
async def pay_frozen(args: Payment, http: httpx2.AsyncClient) -> Charge:
    """Charge; the first call stops its worker between the head of the request and its body."""
    is_first = _is_first("pay_frozen")
    take_note()
    body = f'{{"amount": {args.amount}}}'.encode()

    async def body_parts() -> AsyncIterator[bytes]:
        if is_first:
            os.kill(os.getpid(), signal.SIGSTOP)
        yield body

    length = {"content-length": str(len(body))}
    return Charge.model_validate(
        await _sent(http, "POST", "plain", args.reference, headers=length, content=body_parts())
    )


@tool.unkeyed(
    reconcile=find_payment.using(reference="args.reference"), timeout=PATIENCE, settle=0, enforces_timeout=True
)
def pay_late(args: Payment) -> Charge:
    """Charge from a thread; the first call blocks past its timeout, whatever its declaration says."""
    seconds = 2 * PATIENCE + 3 if _is_first("pay_late") else 0  # by then no other attempt would wait for it
    take_note()
    return _sent_after(seconds, args)


@tool.unkeyed(
    reconcile=find_payment.using(reference="args.reference"), timeout=SHORT_TIMEOUT, settle=0, enforces_timeout=True
)
def pay_too_late(args: Payment) -> Charge:
    """Charge from a thread; the first call blocks even past the limit of its attempt."""
    seconds = (1 + OVERTIME_TIMES) * SHORT_TIMEOUT + 1 if _is_first("pay_too_late") else 0
    take_note()
    return _sent_after(seconds, args)


def _is_first(kind: str) -> bool:
    return all(note.kind != kind for note in read_notes(Path(os.environ[NOTES])))


def _sent_after(seconds: float, args: Payment) -> Charge:
    time.sleep(seconds)
    url, headers = f"{os.environ['REPLAN_CHAOS_PAYMENTS']}/plain", {"x-worker": str(os.getpid())}
    body = {"amount": args.amount}
    reply = httpx2.post(url, params={"reference": args.reference}, headers=headers, json=body, timeout=PATIENCE)
    return Charge.model_validate(reply.raise_for_status().json())
