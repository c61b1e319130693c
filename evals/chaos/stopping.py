"""A tools file for races: a call that may be sent late, one that is stopped after its last look at the clock, and
threads that outlive their timeouts."""

import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2

from evals.chaos import notes
from evals.chaos.bank import Charge, Payment, find_payment, sent
from evals.chaos.payments import PATIENCE, SETTLE
from replan import Key, tool
from workflows.routing import OVERTIME_TIMES

PATIENTLY = 30.0
"""Seconds: longer than a worker is frozen."""


@tool.keyed(reconcile=find_payment.using(reference="key"), settle=SETTLE, timeout=PATIENTLY)
async def pay_patiently(args: Payment, key: Key, http: httpx2.AsyncClient) -> Charge:
    """Charge; a worker that was frozen for a while may still send it."""
    notes.take()
    body = {"amount": args.amount}
    return Charge.model_validate(
        await sent(http, "POST", "keyed", args.reference, headers={"idempotency-key": key}, json=body)
    )


@tool.unkeyed(reconcile=find_payment.using(reference="args.reference"), settle=SETTLE, timeout=PATIENCE)
async def pay_frozen(args: Payment, http: httpx2.AsyncClient) -> Charge:
    """Charge; the first call stops its worker between the head of the request and its body."""
    is_first = _is_first("pay_frozen")
    notes.take()
    body = f'{{"amount": {args.amount}}}'.encode()

    async def slowly() -> AsyncIterator[bytes]:
        if is_first:
            os.kill(os.getpid(), signal.SIGSTOP)
        yield body

    length = {"content-length": str(len(body))}
    return Charge.model_validate(await sent(http, "POST", "plain", args.reference, headers=length, content=slowly()))


IMPATIENTLY = 0.5
"""Seconds of a timeout so short that its thread outlives the limit of its attempt, too."""


@tool.unkeyed(
    reconcile=find_payment.using(reference="args.reference"), timeout=PATIENCE, settle=0, enforces_timeout=True
)
def pay_late(args: Payment) -> Charge:
    """Charge from a thread; the first call blocks past its timeout, whatever its declaration says."""
    seconds = 2 * PATIENCE + 3 if _is_first("pay_late") else 0  # by then nobody else would wait for it
    notes.take()
    return _sent_after(seconds, args)


@tool.unkeyed(
    reconcile=find_payment.using(reference="args.reference"), timeout=IMPATIENTLY, settle=0, enforces_timeout=True
)
def pay_too_late(args: Payment) -> Charge:
    """Charge from a thread; the first call blocks even past the limit of its attempt."""
    seconds = (1 + OVERTIME_TIMES) * IMPATIENTLY + 1 if _is_first("pay_too_late") else 0
    notes.take()
    return _sent_after(seconds, args)


def _is_first(kind: str) -> bool:
    return all(note.kind != kind for note in notes.read(Path(os.environ[notes.FILE])))


def _sent_after(seconds: float, args: Payment) -> Charge:
    time.sleep(seconds)
    url, given = f"{os.environ['REPLAN_CHAOS_PAYMENTS']}/plain", {"x-worker": str(os.getpid())}
    body = {"amount": args.amount}
    reply = httpx2.post(url, params={"reference": args.reference}, headers=given, json=body, timeout=PATIENCE)
    return Charge.model_validate(reply.raise_for_status().json())
