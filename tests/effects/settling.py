"""What a person does with the rows of a store, until the floor offers it."""

import json
from typing import Any, NamedTuple

from sqlalchemy import select, update

from activities.effects.ledger import LEDGER


class Row(NamedTuple):
    key: str
    function: str
    state: str
    arguments: Any
    result: Any


def calls(effects: Any, session: str | None = None) -> list[Any]:
    if hasattr(effects, "calls"):
        return list(effects.calls(session))
    query = select(LEDGER).where(LEDGER.c.session == session) if session else select(LEDGER)
    effects.open()
    rows = effects._store.database.read(lambda tx: tx.execute(query.order_by(LEDGER.c.seq)).all())
    return [
        Row(row.key, row.kind, row.state, json.loads(row.arguments), json.loads(row.result) if row.result else None)
        for row in rows
    ]


def settle(effects: Any, key: str, how: str, result: Any = None) -> None:
    if hasattr(effects, "settle"):
        effects.settle(key, how, result=result) if result is not None else effects.settle(key, how)
        return
    state = {"applied": "applied", "not-applied": "void", "same": "same", "another": "another"}[how]
    values = {"state": state, "reader": None}
    if how == "applied":
        values["result"] = json.dumps(result)
    effects.open()
    if how == "not-applied":
        values["claim"] = LEDGER.c.claim + 1
    effects._store.database.write(
        lambda tx: tx.execute(update(LEDGER).where(LEDGER.c.key == key).values(**values)).rowcount
    )
