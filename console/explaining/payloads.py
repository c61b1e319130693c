"""What the events of a history carry, decoded; what cannot be decoded is noted and left out."""

from collections.abc import Sequence
from typing import TypeVar

from pydantic import BaseModel, JsonValue, ValidationError
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.api.sdk.v1.external_storage_pb2 import ExternalStorageReference
from temporalio.converter import DataConverter

from console.history import Unreadable

T = TypeVar("T", bound=BaseModel)

PLAIN = frozenset({"json/plain", "json/protobuf", "binary/null", "binary/plain", "binary/protobuf"})
"""The encodings that Temporal's own converters write."""
REFERENCES = frozenset({"json/external-storage-reference", ExternalStorageReference.DESCRIPTOR.full_name})
"""The encoding, or the message type, of a payload that says where the real one lies."""
REFERENCE_MARK = "__temporal_external_storage_reference"


class Payloads:
    """Decodes as the client does, one run of a task after the other."""

    def __init__(self, converter: DataConverter) -> None:
        """Decode with this converter, which may have a codec or external storage."""
        self._converter = converter
        self.run = 1
        self.unreadable = list[Unreadable]()

    async def value(self, event: int, what: str, payloads: Sequence[Payload]) -> JsonValue:
        """The first of the payloads as JSON; None where there is none, or none that can be read."""
        if not payloads:
            return None
        try:
            value: JsonValue = (await self._converter.decode(payloads[:1]))[0]
        except Exception:  # codecs and storage drivers are anybody's code, and a history is told without them
            self._note(event, what, _why(payloads[0]))
            return None
        return None if isinstance(value, bytes) else value

    async def model(self, event: int, what: str, payloads: Sequence[Payload], type: type[T]) -> T | None:
        """The first of the payloads as a model of ours."""
        noted = len(self.unreadable)
        value = await self.value(event, what, payloads)
        try:
            return type.model_validate(value)
        except ValidationError:
            if payloads and noted == len(self.unreadable):
                self._note(event, what, "was written by another version")
            return None

    async def failure(self, event: int, failure: Failure) -> BaseException | None:
        """The exception that a failure stands for, with its details; None where they cannot be read."""
        copy = Failure()
        copy.CopyFrom(failure)  # decoding writes into it
        try:
            return await self._converter.decode_failure(copy)
        except Exception:  # see value()
            details = _details(failure)
            self._note(event, "failure", _why(details[0]) if details else "cannot be decoded")
            return None

    def _note(self, event: int, what: str, why: str) -> None:
        self.unreadable.append(Unreadable(self.run, event, what, why))


def _details(failure: Failure) -> Sequence[Payload]:
    if failure.HasField("encoded_attributes"):
        return [failure.encoded_attributes]
    if failure.HasField("timeout_failure_info"):
        return failure.timeout_failure_info.last_heartbeat_details.payloads
    return failure.application_failure_info.details.payloads


def _why(payload: Payload) -> str:
    encoding = payload.metadata.get("encoding", b"").decode(errors="replace")
    kind = payload.metadata.get("messageType", b"").decode(errors="replace")
    if encoding in REFERENCES or kind in REFERENCES or REFERENCE_MARK in payload.metadata:
        return "is stored elsewhere"
    return "cannot be decoded" if encoding in PLAIN else "is encrypted"
