"""The tools of the trial: `worker.py --tools evals/chaos/bank.py`.

A bank whose books are in a database of their own, and a payment service that is spoken to over HTTP, in every way that
an effect can be declared.
"""

import os
from typing import Any

import httpx2
from pydantic import BaseModel
from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import create_async_engine

from evals.chaos import notes
from evals.chaos.accounts import ACCOUNTS, RECEIPTS, TRANSFERS, back_of
from evals.chaos.payments import PATIENCE, SETTLE
from replan import Key, Refused, Transaction, tool

BANK = create_async_engine(os.environ["REPLAN_CHAOS_BANK"])


class Owner(BaseModel):
    """Whose account."""

    account: int


class Balance(BaseModel):
    """What is in it, in cents."""

    balance: int


@tool.read(datasource=BANK)
async def balance(args: Owner, tx: Transaction) -> Balance:
    """Look into an account."""
    notes.take()
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


@tool.transactional(datasource=BANK, timeout=20)
async def move_back(args: Order, tx: Transaction) -> Transfer:
    """Move an amount back to where it came from."""
    notes.take()
    back = {"reference": back_of(args.reference), "source": args.target, "target": args.source}
    return await _move(args.model_copy(update=back), tx)


@tool.transactional(datasource=BANK, timeout=20, undo=move_back)
async def transfer(args: Order, tx: Transaction) -> Transfer:
    """Move an amount from one account to another."""
    notes.take()
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
    """What a receipt says."""

    reference: str
    of: int


class Receipt(BaseModel):
    """A row of `receipts`."""

    id: int


@tool.transactional(datasource=BANK, timeout=20)
async def write_receipt(args: Words, tx: Transaction) -> Receipt:
    """Write a receipt."""
    notes.take()
    row = {"reference": args.reference, "words": f"for {args.of}"}
    return Receipt(id=await tx.scalar(insert(RECEIPTS).values(row).returning(RECEIPTS.c.id)) or 0)


class Statement(BaseModel):
    """A statement of an account: more than a history carries, so it lies in the store."""

    account: int
    lines: str


class Asked(BaseModel):
    """Whose statement."""

    reference: str
    account: int


@tool.read
async def print_statement(args: Asked) -> Statement:
    """Print a long statement of an account."""
    notes.take()
    return Statement(account=args.account, lines=f"{args.reference} " * 8_000)


class Reference(BaseModel):
    """What a charge or a rate is looked up by."""

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
    notes.take()
    return Charge.model_validate(await sent(http, "GET", "find", args.reference))


@tool.read(timeout=PATIENCE)
async def get_rate(args: Reference, http: httpx2.AsyncClient) -> Rate:
    """Ask for the rate of the day."""
    notes.take()
    return Rate.model_validate(await sent(http, "GET", "rate", args.reference))


@tool.idempotent(timeout=PATIENCE)
async def set_limit(args: Payment, http: httpx2.AsyncClient) -> Payment:
    """Set a limit, as often as you like."""
    notes.take()
    return Payment.model_validate(await sent(http, "PUT", "limit", args.reference, json={"amount": args.amount}))


@tool.keyed(reconcile=find_payment.using(reference="key"), settle=SETTLE, timeout=PATIENCE)
async def refund(args: Payment, key: Key, http: httpx2.AsyncClient) -> Charge:
    """Give a charge back."""
    notes.take()
    back = args.model_copy(update={"reference": back_of(args.reference)})
    return await _charged(http, "keyed", back, headers={"idempotency-key": key})


@tool.keyed(reconcile=find_payment.using(reference="key"), settle=SETTLE, timeout=PATIENCE, undo=refund)
async def pay(args: Payment, key: Key, http: httpx2.AsyncClient) -> Charge:
    """Charge; the service gives a second call with the same key the first one's answer."""
    notes.take()
    return await _charged(http, "keyed", args, headers={"idempotency-key": key})


@tool.keyed(reconcile=find_payment.using(reference="key"), settle=SETTLE, timeout=PATIENCE)
async def pay_strictly(args: Payment, key: Key, http: httpx2.AsyncClient) -> Charge:
    """Charge; the service refuses a second call with the same key."""
    notes.take()
    return await _charged(http, "strict", args, headers={"idempotency-key": key})


@tool.unkeyed(reconcile=find_payment.using(reference="args.reference"), settle=SETTLE, timeout=PATIENCE)
async def pay_once(args: Payment, http: httpx2.AsyncClient) -> Charge:
    """Charge; the service knows no keys, and can be asked what became of it."""
    notes.take()
    return await _charged(http, "plain", args)


@tool.unkeyed(timeout=PATIENCE)
async def pay_blindly(args: Payment, http: httpx2.AsyncClient) -> Charge:
    """Charge; the service knows no keys, and nobody can ask what became of it."""
    notes.take()
    return await _charged(http, "plain", args)


async def _charged(http: httpx2.AsyncClient, endpoint: str, args: Payment, **more: Any) -> Charge:
    return Charge.model_validate(
        await sent(http, "POST", endpoint, args.reference, json={"amount": args.amount}, **more)
    )


async def sent(
    http: httpx2.AsyncClient, method: str, endpoint: str, reference: str, headers: Any = None, **body: Any
) -> Any:
    """Send one request to the payment service, with the process that it comes from, and read its answer."""
    url = f"{os.environ['REPLAN_CHAOS_PAYMENTS']}/{endpoint}"
    given = {**(headers or {}), "x-worker": str(os.getpid())}
    reply = await http.request(method, url, params={"reference": reference}, headers=given, **body)
    return reply.raise_for_status().json()
