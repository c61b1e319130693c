"""How values are written into histories: as JSON, and large ones in external storage, except what the console reads."""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import ExternalStorage, StorageDriver, StorageDriverSelectContext

from workflows.catalogue import Catalogue
from workflows.inspect import Findings
from workflows.outcome import Outcome
from workflows.plan import PRUNED, PRUNED_ENCODING, Proposed, StepReturn
from workflows.progress import Progress

LARGE = 64 * 1024
"""Bytes from which on a payload lies in external storage."""
READ_ANYWHERE = (Outcome, Progress, Findings, Catalogue, Proposed)
"""What clients without the storage read; each is small enough for the server by itself."""
MARK = "replan-inline"


class PayloadPruned(RuntimeError):
    """A value that `prune` deleted is needed, and no other may stand in its place."""


class PayloadConverter(PydanticPayloadConverter):
    """JSON by pydantic; marks what must stay in the history."""

    def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
        """Read values; a step's result that `prune` deleted is its sentence, so that the history still replays.

        Raises:
            PayloadPruned: another value was deleted.
        """
        hints: Sequence[Any] = type_hints or [None] * len(payloads)
        readable = [_standing_in(payload, hint) for payload, hint in zip(payloads, hints, strict=True)]
        return super().from_payloads(readable, type_hints)

    def to_payloads(self, values: Sequence[Any]) -> list[Payload]:
        """Write values, marked where clients without the storage read them."""
        payloads = super().to_payloads(values)
        for value, payload in zip(values, payloads, strict=True):
            if isinstance(value, READ_ANYWHERE):
                payload.metadata[MARK] = b"true"
        return payloads


def _standing_in(payload: Payload, hint: Any) -> Payload:
    if payload.metadata.get("encoding") != PRUNED_ENCODING or hint is RawValue:
        return payload
    if hint is not StepReturn:
        raise PayloadPruned(payload.data.decode())
    value = json.dumps({"result": {PRUNED: payload.data.decode()}})
    return Payload(metadata={"encoding": b"json/plain"}, data=value.encode())


def storing(client: Client, drivers: Sequence[StorageDriver], threshold: int = LARGE) -> Client:
    """The same client for a worker: payloads of `threshold` bytes and more go through the first of the drivers.

    The others read what was stored before the first was chosen.
    """

    def choose(_context: StorageDriverSelectContext, payload: Payload) -> StorageDriver | None:
        return None if MARK in payload.metadata else drivers[0]

    storage = ExternalStorage(drivers=drivers, driver_selector=choose, payload_size_threshold=threshold)
    config = client.config()
    config["data_converter"] = dataclasses.replace(config["data_converter"], external_storage=storage)
    return Client(**config)
