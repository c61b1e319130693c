"""A tools file for races: a call that may be sent late, and one that is stopped after its last look at the clock."""

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2

from activities.toolbox import Key, tool
from evals.chaos import notes
from evals.chaos.bank import Charge, Payment, find_payment, sent
from evals.chaos.payments import PATIENCE, SETTLE

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
    is_first = all(note.kind != "pay_frozen" for note in notes.read(Path(os.environ[notes.FILE])))
    notes.take()
    body = f'{{"amount": {args.amount}}}'.encode()

    async def slowly() -> AsyncIterator[bytes]:
        if is_first:
            os.kill(os.getpid(), signal.SIGSTOP)
        yield body

    length = {"content-length": str(len(body))}
    return Charge.model_validate(await sent(http, "POST", "plain", args.reference, headers=length, content=slowly()))
