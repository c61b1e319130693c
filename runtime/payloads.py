"""How values and failures are written into histories: JSON, and large payloads in external storage.

Clients have no external storage, so the models that they read always stay in the history.
"""

import dataclasses
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self
from urllib.parse import urlsplit

from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultFailureConverter,
    ExternalStorage,
    PayloadConverter as AnyPayloadConverter,
    SerializationContext,
    StorageDriver,
    StorageDriverSelectContext,
    WorkflowSerializationContext,
)
from temporalio.exceptions import ApplicationError

from runtime.settings import BadSetting
from workflows.account.outcome import Outcome
from workflows.account.progress import Progress
from workflows.inquiries import Findings
from workflows.plans.catalogue import Catalogue
from workflows.plans.proposal import Proposed, StepReturn
from workflows.plans.references import PRUNED, PRUNED_ENCODING

LARGE = 64 * 1024
"""Bytes; a payload of this size and more is kept in external storage."""
READ_BY_CLIENTS = (Outcome, Progress, Findings, Catalogue, Proposed)
"""The models that are always kept in the history, since the clients that read them have no external storage."""
INLINE = "replan-inline"
"""The metadata key that marks a payload as staying in the history, whatever its size."""


class PayloadPruned(RuntimeError):
    """A value is needed that the command `prune` has deleted, and nothing can replace it."""


_ENCODINGS = tuple(PydanticPayloadConverter().converters.values())
"""The SDK's converters of single values, with the cache of the types that were read before."""


class PayloadConverter(CompositePayloadConverter):
    """JSON by pydantic; marks the payloads that must stay in the history."""

    # The SDK makes several converters for each activity, so they share what takes long to make.

    _is_lenient = False

    def __init__(self) -> None:
        super().__init__(*_ENCODINGS)

    def with_context(self, context: SerializationContext) -> Self:
        is_lenient = isinstance(context, WorkflowSerializationContext)
        if is_lenient is self._is_lenient:
            return self
        other = type(self)()
        other._is_lenient = is_lenient
        return other

    def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
        """Read values. A step's result that `prune` deleted becomes a sentence that says so; its history still replays.

        Raises:
            PayloadPruned: a value of another type was deleted.
        """
        if self._is_lenient and type_hints is None and len(payloads) > 1:
            # More arguments than the workflow takes, so that the SDK knows no types: the workflow itself refuses them.
            return [self._value(payload) for payload in payloads]
        hints: Sequence[Any] = type_hints or [None] * len(payloads)
        readable = [_readable(payload, hint) for payload, hint in zip(payloads, hints, strict=True)]
        return super().from_payloads(readable, type_hints)

    def _value(self, payload: Payload) -> Any:
        try:
            return self.from_payload(payload)
        except Exception:  # the converters raise whatever they like
            return RawValue(payload)

    def to_payloads(self, values: Sequence[Any]) -> list[Payload]:
        payloads = super().to_payloads(values)
        for value, payload in zip(values, payloads, strict=True):
            if isinstance(value, READ_BY_CLIENTS):
                payload.metadata[INLINE] = b"true"
        return payloads


def _readable(payload: Payload, hint: Any) -> Payload:
    if payload.metadata.get("encoding") != PRUNED_ENCODING or hint is RawValue:
        return payload
    if hint is not StepReturn:
        raise PayloadPruned(payload.data.decode())
    value = json.dumps({"result": {PRUNED: payload.data.decode()}})
    return Payload(metadata={"encoding": b"json/plain"}, data=value.encode())


class FailureConverter(DefaultFailureConverter):
    """Leaves the stack trace out of every ApplicationError; any other exception keeps its stack trace."""

    # Its Fault or Outcome says everything; the trace would add 1.5 KB and paths of the machine to each attempt.

    def to_failure(self, exception: BaseException, payload_converter: AnyPayloadConverter, failure: Failure) -> None:
        super().to_failure(exception, payload_converter, failure)
        if isinstance(exception, ApplicationError):
            failure.ClearField("stack_trace")


DATA_CONVERTER = DataConverter(payload_converter_class=PayloadConverter, failure_converter_class=FailureConverter)
"""The converter of every client and worker of Replan."""


def with_storage(client: Client, drivers: Sequence[StorageDriver], threshold: int = LARGE) -> Client:
    """The client for a worker, with external storage: `drivers[0]` stores payloads of `threshold` bytes and more.

    The other drivers only read payloads that they stored in earlier configurations.
    """

    def choose(_context: StorageDriverSelectContext, payload: Payload) -> StorageDriver | None:
        return None if INLINE in payload.metadata else drivers[0]

    storage = ExternalStorage(drivers=drivers, driver_selector=choose, payload_size_threshold=threshold)
    config = client.config()
    config["data_converter"] = dataclasses.replace(config["data_converter"], external_storage=storage)
    return Client(**config)


@asynccontextmanager
async def s3(url: str) -> AsyncIterator[StorageDriver]:
    """The SDK's driver for the bucket `s3://BUCKET`; it finds region and credentials as AWS's own tools do.

    Raises:
        BadSetting: the URL names no bucket, or the packages are missing.
    """
    parts = urlsplit(url)
    if parts.scheme != "s3" or not parts.netloc or parts.path.strip("/"):
        raise BadSetting(f"--payloads {url!r} names no bucket: write s3://BUCKET.")
    try:  # the extra `s3`
        import aioboto3
        from temporalio.contrib.aws.s3driver import S3StorageDriver
        from temporalio.contrib.aws.s3driver.aioboto3 import new_aioboto3_client
    except ImportError as error:
        raise BadSetting(f'--payloads needs {error.name}: pip install "temporalio[aioboto3]".') from error
    async with aioboto3.Session().client("s3") as client:
        yield S3StorageDriver(new_aioboto3_client(client), parts.netloc)
