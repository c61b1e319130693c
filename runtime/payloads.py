"""How values and failures are written into histories: JSON, and large payloads in external storage.

Clients have no external storage, so the models that they read always stay in the history. For a user's connection,
`adapted` adds this to the user's own data converter.
"""

import dataclasses
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, ClassVar, Self
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
    DefaultPayloadConverter,
    ExternalStorage,
    FailureConverter as AnyFailureConverter,
    PayloadCodec,
    PayloadConverter as AnyPayloadConverter,
    SerializationContext,
    StorageDriver,
    StorageDriverSelectContext,
    WithSerializationContext,
    WorkflowSerializationContext,
)
from temporalio.exceptions import ApplicationError

from runtime.settings import BadSetting
from workflows.account.journal import JournalPage
from workflows.account.outcome import Outcome
from workflows.account.progress import Progress
from workflows.inquiries import Findings
from workflows.people.requests import Resolution
from workflows.people.updates import RESOLVE
from workflows.plans.catalogue import Catalogue
from workflows.plans.proposal import Proposed, StepReturn
from workflows.plans.references import PRUNED, PRUNED_ENCODING
from workflows.seal import SIGNAL, USE, NotSealed, use_of

LARGE = 64 * 1024
"""Bytes; a payload of this size and more is kept in external storage."""
READ_BY_CLIENTS = (Outcome, Progress, JournalPage, Findings, Catalogue, Proposed)
"""The models that are always kept in the history, since the clients that read them have no external storage."""
MAX_ENCODING = 80
"""The most characters of the name of an encoding in a message."""
MAX_ERROR = 200
"""The most characters of a codec's message in a message."""
INLINE = "replan-inline"
"""The metadata key that marks a payload as staying in the history, whatever its size."""


class NoKey(RuntimeError):
    """A payload is encrypted, and this process has no key or codec that reads it; the message is a sentence."""

    def __init__(self, encoding: str) -> None:
        super().__init__(f"The values are encrypted ({encoding[:MAX_ENCODING]}), and their key is not here.")


class CodecFailed(NoKey):
    """A user's payload codec raised an exception when it should decode a payload."""

    def __init__(self, error: Exception) -> None:
        text = " ".join(str(error).split()).rstrip(".")[:MAX_ERROR]
        said = ": ".join(filter(None, [type(error).__name__, text]))
        RuntimeError.__init__(self, f"The payload codec cannot read a value ({said}).")


class PayloadPruned(RuntimeError):
    """The command `prune` has deleted a value that is needed, and nothing can replace this value."""


_ENCODINGS = tuple(PydanticPayloadConverter().converters.values())
"""The SDK's converters of single values; all PayloadConverters share them, and so their cache of types."""


class PayloadConverter(CompositePayloadConverter):
    """JSON by pydantic; marks the payloads that must stay in the history."""

    # The SDK makes several converters for each activity, so they share what takes long to make.

    _theirs: ClassVar[type[AnyPayloadConverter] | None] = None
    """The class of a user's converter, which reads the encodings of its own; None if there is none."""
    _is_lenient = False

    def __init__(self) -> None:
        super().__init__(*_ENCODINGS)
        self._others = self._theirs() if self._theirs else None

    def with_context(self, context: SerializationContext) -> Self:
        is_lenient, others = isinstance(context, WorkflowSerializationContext), self._others
        if isinstance(others, WithSerializationContext):
            others = others.with_context(context)
        if is_lenient is self._is_lenient and others is self._others:
            return self
        other = type(self)()
        other._is_lenient, other._others = is_lenient, others
        return other

    def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
        """Read values. A step's result that `prune` deleted becomes a sentence about that; its history still replays.

        Raises:
            PayloadPruned: `prune` deleted a value that is no step's result.
            NoKey: a value is encrypted, and no codec has decoded it.
        """
        if self._is_lenient and type_hints is None and len(payloads) > 1:
            # More arguments than the workflow takes, so that the SDK knows no types: the workflow itself refuses them.
            return [self._value_or_raw(payload) for payload in payloads]
        hints: Sequence[Any] = type_hints or [None] * len(payloads)
        readable = [self._readable(payload, hint) for payload, hint in zip(payloads, hints, strict=True)]
        return super().from_payloads(readable, type_hints)

    def _readable(self, payload: Payload, hint: Any) -> Payload:
        """The payload in an encoding of `converters`; `hint` is the type of its value. Raises as `from_payloads`."""
        if hint is RawValue:
            return payload
        if _is_pruned(payload):
            if hint is not StepReturn:
                raise PayloadPruned(payload.data.decode())
            return self.to_payload({"result": {PRUNED: payload.data.decode()}})
        encoding = payload.metadata.get("encoding", b"")
        if encoding in self.converters:
            return payload
        if self._others:
            return self.to_payload(self._others.from_payload(payload))
        if encoding.startswith(b"json/"):  # a reference to external storage, or of another converter
            return payload
        raise NoKey(encoding.decode(errors="replace") or "without an encoding")

    def _value_or_raw(self, payload: Payload) -> Any:
        try:
            return self.from_payload(payload)
        except Exception:  # the converters raise whatever they like
            return RawValue(payload)

    def to_payloads(self, values: Sequence[Any]) -> list[Payload]:
        payloads = super().to_payloads(values)
        for value, payload in zip(values, payloads, strict=True):
            if isinstance(value, READ_BY_CLIENTS):
                payload.metadata[INLINE] = b"true"
            elif isinstance(value, Resolution):  # one payload for many tasks
                payload.metadata[USE] = use_of(SIGNAL, RESOLVE)
        return payloads


def _is_pruned(payload: Payload) -> bool:
    """Whether a payload has, in place of a value that `prune` deleted, a sentence about that."""
    return payload.metadata.get("encoding") == PRUNED_ENCODING


class _Brief(AnyFailureConverter):
    """A mixin that leaves out stack traces of ApplicationErrors, and keeps encoded attributes in the history."""

    # Its Fault or Outcome says everything; the trace would add 1.5 KB and paths of the machine to each attempt.

    def to_failure(self, exception: BaseException, payload_converter: AnyPayloadConverter, failure: Failure) -> None:
        if isinstance(exception, NotSealed):
            DefaultFailureConverter().to_failure(exception, payload_converter, failure)
        else:
            super().to_failure(exception, payload_converter, failure)  # type: ignore[safe-super]  # that of the user
        if isinstance(exception, ApplicationError):
            failure.ClearField("stack_trace")
        if failure.HasField("encoded_attributes"):  # the message and the trace, which clients read
            failure.encoded_attributes.metadata[INLINE] = b"true"


class FailureConverter(_Brief, DefaultFailureConverter):
    """Leaves the stack trace out of every ApplicationError; any other exception keeps its stack trace."""


class Codec(PayloadCodec, WithSerializationContext):
    """Wraps a user's payload codec, so that the same payloads stay in the history as without a codec."""

    # External storage sees a payload when the codec has hidden its metadata and changed its size.

    def __init__(self, theirs: PayloadCodec, threshold: int = LARGE) -> None:
        self.theirs = theirs
        self._threshold = threshold

    def with_context(self, context: SerializationContext) -> "Codec":
        """This wrapper around the user's codec for `context`."""
        theirs = self.theirs
        if isinstance(theirs, WithSerializationContext):
            theirs = theirs.with_context(context)
        return self if theirs is self.theirs else Codec(theirs, self._threshold)

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Encode the payloads, and mark for `with_storage` those that stay in the history."""
        encoded = await self.theirs.encode(payloads)
        stays = [INLINE in payload.metadata or payload.ByteSize() < self._threshold for payload in payloads]
        if len(encoded) != len(payloads):  # a codec may make fewer of them
            stays = [any(stays)] * len(encoded)
        return [
            _mark_inline(payload) if stay and payload.ByteSize() >= self._threshold else payload
            for payload, stay in zip(encoded, stays, strict=True)
        ]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Decode the payloads; what `prune` left of a payload is returned as it is, since it was never encoded.

        Raises:
            NoKey: the codec cannot read a payload.
        """
        try:
            if not any(map(_is_pruned, payloads)):
                return await self.theirs.decode(payloads)
            return [
                part
                for payload in payloads
                for part in ([payload] if _is_pruned(payload) else await self.theirs.decode([payload]))
            ]
        except NoKey:
            raise
        except Exception as error:  # codecs may raise anything
            raise CodecFailed(error) from error


def _mark_inline(payload: Payload) -> Payload:
    copy = Payload()  # the codec may have returned what it was given, which is not to be changed
    copy.CopyFrom(payload)
    copy.metadata[INLINE] = b"true"
    return copy


DATA_CONVERTER = DataConverter(payload_converter_class=PayloadConverter, failure_converter_class=FailureConverter)
"""The data converter of all clients and workers of Replan, except those on a user's connection (see `adapted`)."""


def adapted(theirs: DataConverter, storage: ExternalStorage | None = None, threshold: int = LARGE) -> DataConverter:
    """A user's data converter, changed so that Replan reads and writes its own models with it.

    The user's codec and failure converter stay in use; the user's payload converter only reads encodings of its own.
    `storage`, whose threshold is `threshold` bytes, takes the place of the user's external storage.
    """
    codec = theirs.payload_codec.theirs if isinstance(theirs.payload_codec, Codec) else theirs.payload_codec
    return dataclasses.replace(
        theirs,
        payload_converter_class=_payload_converter(theirs.payload_converter_class),
        payload_codec=codec and Codec(codec, threshold),
        failure_converter_class=_failure_converter(theirs.failure_converter_class),
        external_storage=storage or theirs.external_storage,
    )


@cache
def _payload_converter(theirs: type[AnyPayloadConverter]) -> type[PayloadConverter]:
    if issubclass(theirs, PayloadConverter):
        return theirs
    if theirs in (DefaultPayloadConverter, PydanticPayloadConverter):  # no encodings of their own
        return PayloadConverter
    return type(theirs.__name__, (PayloadConverter,), {"_theirs": theirs})


@cache
def _failure_converter(theirs: type[AnyFailureConverter]) -> type[AnyFailureConverter]:
    if issubclass(theirs, _Brief):
        return theirs
    if theirs is DefaultFailureConverter:
        return FailureConverter
    return type(theirs.__name__, (_Brief, theirs), {})


def with_storage(client: Client, drivers: Sequence[StorageDriver], threshold: int = LARGE) -> Client:
    """A client for a worker, with external storage: `drivers[0]` stores payloads of `threshold` bytes and more.

    The other drivers, and the drivers of the client's own external storage, only read: payloads that were stored in
    earlier configurations, or by a user's programs.
    """
    config = client.config()
    theirs = config["data_converter"]

    def choose(_context: StorageDriverSelectContext, payload: Payload) -> StorageDriver | None:
        if INLINE not in payload.metadata:
            return drivers[0]
        if theirs.payload_codec:  # the codec's own metadata goes to the server as the codec wrote it
            del payload.metadata[INLINE]
        return None

    storage = ExternalStorage(
        drivers=with_drivers_of(theirs, drivers), driver_selector=choose, payload_size_threshold=threshold
    )
    config["data_converter"] = adapted(theirs, storage, threshold)
    return Client(**config)


def with_drivers_of(theirs: DataConverter, drivers: Sequence[StorageDriver]) -> Sequence[StorageDriver]:
    """`drivers`, and the external storage drivers of the data converter `theirs` that have other names."""
    names = {driver.name() for driver in drivers}
    own = theirs.external_storage.drivers if theirs.external_storage else ()
    return [*drivers, *(driver for driver in own if driver.name() not in names)]


@asynccontextmanager
async def s3(url: str) -> AsyncIterator[StorageDriver]:
    """The SDK's driver for the bucket `s3://BUCKET`; it finds region and credentials as AWS's own tools do.

    Raises:
        BadSetting: the URL names no bucket, or the packages are missing.
    """
    parts = urlsplit(url)
    if parts.scheme != "s3" or not parts.netloc or parts.path.strip("/"):
        raise BadSetting(f"REPLAN_PAYLOADS={url!r} names no bucket: write s3://BUCKET.")
    try:  # the extra `s3`
        import aioboto3
        from temporalio.contrib.aws.s3driver import S3StorageDriver
        from temporalio.contrib.aws.s3driver.aioboto3 import new_aioboto3_client
    except ImportError as error:
        raise BadSetting(f'REPLAN_PAYLOADS needs {error.name}: pip install "temporalio[aioboto3]".') from error
    async with aioboto3.Session().client("s3") as client:
        yield S3StorageDriver(new_aioboto3_client(client), parts.netloc)
