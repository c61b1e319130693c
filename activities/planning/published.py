"""What the workers of a queue have: each publishes its catalogue in the store while it serves.

So a worker can tell a mistake in a proposal, such as an unknown kind, from what another worker of the queue can do: in
a rolling deploy, an older worker checks proposals that name kinds of a newer one.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from pydantic import JsonValue
from sqlalchemy import Column, Connection, Float, String, Table, Text, delete, or_, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from activities.borders.sql import DATABASE_ERRORS
from activities.storage.store import REPLAN_TABLES, clock, insert_new, reading, transaction, write
from activities.toolbox.declare.kind import Kind
from activities.toolbox.json_schema import JsonSchema
from activities.toolbox.schemas.drafts import BadSchema
from workflows.json_values import digest
from workflows.plans.catalogue import ToolSpec
from workflows.plans.references import references

CATALOGUES = Table(
    "replan_catalogues",
    REPLAN_TABLES,
    Column("namespace", String(200), primary_key=True),
    Column("queue", String(1000), primary_key=True),
    Column("digest", String(64), primary_key=True),
    Column("kinds", Text, nullable=False),
    Column("until", Float, nullable=False),
)
"""One row for each catalogue that workers of a queue have had: by kind, the digest of its spec and the schema of its
arguments. A worker with the catalogue counts as alive until `until`."""

RENEW_SECONDS = 20.0
"""Seconds after which a worker says again that it serves."""
ALIVE_SECONDS = 3 * RENEW_SECONDS
"""Seconds after which a worker that has stopped saying so counts as gone."""
FORGET_SECONDS = 90 * 24 * 3600.0
"""Seconds after which the catalogue of workers that are gone is deleted: until then a running task may know it."""


def digest_of(specs: Mapping[str, ToolSpec]) -> str:
    """The digest of a catalogue, the same for all workers with the same tools."""
    plain: dict[str, JsonValue] = {kind: spec.digest for kind, spec in specs.items()}
    return digest(plain)[:16]


@dataclass(frozen=True)
class OtherKinds:
    """The kinds of the queue's workers: all their names, and the schemas that differ from those of this worker."""

    names: Collection[str] = frozenset()
    schemas: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    """By kind, the schemas of its arguments in workers that are alive and have another version of it."""

    def takes(self, kind: str, args: Mapping[str, JsonValue]) -> bool:
        """Whether another worker has a version of the kind whose schema allows these arguments."""
        return any(_fits(schema, args) for schema in self.schemas.get(kind, ()))

    def has_arguments(self, kind: str, names: Collection[str]) -> bool:
        """Whether another worker has a version of the kind with arguments of all these names."""
        return any({*names} <= {*schema.get("properties", ())} for schema in self.schemas.get(kind, ()))


NO_OTHERS = OtherKinds()


def _fits(schema: Mapping[str, Any], args: Mapping[str, JsonValue]) -> bool:
    """Whether a schema allows arguments, as far as they can be judged while references have no value."""
    known = {name: value for name, value in args.items() if not any(references(value))}
    is_named = schema.get("additionalProperties") or {*args} <= {*schema.get("properties", ())}
    if not is_named or not {*schema.get("required", ())} <= {*args}:
        return False
    try:
        return not JsonSchema.part_of_checked({**schema, "required": []}).misfits(known)
    except BadSchema:  # beyond the limits of a check
        return True


class Catalogues:
    """The catalogues of the workers of one queue, in the store that they share."""

    def __init__(self, engine: AsyncEngine, namespace: str, queue: str, kinds: Mapping[str, Kind]) -> None:
        """`kinds` are those of this worker; `namespace` is the id of the Temporal namespace."""
        self._engine = engine
        self._queue = CATALOGUES.c.namespace == namespace, CATALOGUES.c.queue == queue
        self._key = {"namespace": namespace, "queue": queue}
        self._kinds = {name: kind for name, kind in kinds.items() if not kind.is_hidden}
        self._digest = digest_of({name: kind.spec for name, kind in kinds.items()})

    @asynccontextmanager
    async def published(self) -> AsyncIterator[None]:
        """Within the block, the other workers know what this one has.

        Raises:
            DatabaseUnavailable: the store cannot be reached.
        """
        await write(self._engine, self._publish)
        renewing = asyncio.create_task(self._renew())
        try:
            yield
        finally:
            renewing.cancel()
            with suppress(asyncio.CancelledError):
                await renewing

    async def is_elsewhere(self, kind: str) -> bool:
        """Whether a worker of the queue that is alive has a kind. Raises as `others`."""
        return kind in (await self.others()).names

    async def others(self, task: str = "") -> OtherKinds:
        """What other workers have that are alive, and the names of the kinds in the catalogue with the digest `task`.

        Raises:
            DatabaseUnavailable: the store cannot be reached.
        """
        async with transaction(reading(self._engine)) as tx:
            is_read = or_(CATALOGUES.c.until > clock(tx), CATALOGUES.c.digest == task)
            columns = select(CATALOGUES.c.kinds, (CATALOGUES.c.until > clock(tx)).label("is_alive"))
            rows = (await tx.execute(columns.where(*self._queue, is_read))).all()
        names, schemas = set[str](), dict[str, dict[str, Any]]()
        for row in rows:
            found = json.loads(row.kinds)
            names |= found.keys()
            for kind, (version, schema) in found.items() if row.is_alive else ():
                if kind not in self._kinds or version != self._kinds[kind].spec.digest:
                    schemas.setdefault(kind, {})[version] = schema
        return OtherKinds(names, {kind: [*versions.values()] for kind, versions in schemas.items()})

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            with suppress(*DATABASE_ERRORS):  # whoever needs the store says so in the log
                await write(self._engine, self._publish)

    def _publish(self, tx: Connection) -> None:
        now = float(tx.execute(select(clock(tx))).scalar_one())
        until, own = now + ALIVE_SECONDS, (*self._queue, CATALOGUES.c.digest == self._digest)
        if tx.execute(update(CATALOGUES).where(*own).values(until=until)).rowcount:
            return
        tx.execute(delete(CATALOGUES).where(CATALOGUES.c.until < now - FORGET_SECONDS))
        kinds = {name: [kind.spec.digest, kind.args_schema] for name, kind in self._kinds.items()}
        insert_new(tx, CATALOGUES, {**self._key, "digest": self._digest, "kinds": json.dumps(kinds), "until": until})
