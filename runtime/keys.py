"""The keyring of `--keys`, which encrypts what Replan hands to Temporal and writes into its store, and REPLAN_CODEC.

A keyring file has one key a line: its id, a blank, 32 bytes in Base64. The first key encrypts, and all keys decrypt.
So a new key becomes the first line, and an old key stays as long as data that it has encrypted may be read.
"""

import base64
import binascii
import copy
import dataclasses
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    DataConverter,
    DefaultFailureConverter,
    DefaultFailureConverterWithEncodedAttributes,
    PayloadCodec,
    SerializationContext,
    WithSerializationContext,
)
from temporalio.exceptions import ApplicationError

from runtime.named_object import LOADABLE, CannotLoad, named_object
from runtime.payloads import Codec, FailureConverter, NoKey, adapted
from runtime.settings import WithRemedy
from workflows.commands import command
from workflows.faults.fault import Code, Fault
from workflows.plans.references import ENCRYPTED_ENCODING, SEALED
from workflows.seal import IN_CLEAR, NO_USE, USE, use_of
from workflows.text import NOT_TEXT, decode_text

KEY = "replan-key"
"""The metadata entry of a payload that holds the id of the encryption key."""
SIZE, NONCE = 32, 12
"""The bytes of a key, and of the nonce in front of encrypted data."""
WRITABLE_BY_OTHERS = 0o022
NEW = f"`{command('keys', 'new', 'FILE')}`"
ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_BASE64 = r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
_SEALED = re.compile(rf"{SEALED}({ID.pattern}):({_BASE64})")


class BadKeys(WithRemedy, ValueError):
    """A keyring or a codec cannot be used."""


class KeyMissing(NoKey, ApplicationError):
    """A keyring cannot read a payload: its key is missing, or it was encrypted for another namespace, or was changed.

    Like PayloadLost, this error is retryable: a workflow task fails and waits, and an activity is scheduled again.
    """

    def __init__(self, reason: str) -> None:
        fault = Fault.of(Code.STORE_UNAVAILABLE, reason)
        ApplicationError.__init__(self, reason, fault, type=fault.quadrant.value)
        self.args = (reason,)

    def __str__(self) -> str:
        return self.message


_SENT_FOR = ContextVar("sent_for", default=b"")
"""The use for which a client encrypts at this moment; empty if it is none of those in `workflows.seal`."""


@contextmanager
def sent_for(*use: str) -> Iterator[None]:
    """Within the `with` block, a Keyring encrypts payloads for this use."""
    token = _SENT_FOR.set(use_of(*use))
    try:
        yield
    finally:
        _SENT_FOR.reset(token)


class Keyring(PayloadCodec, WithSerializationContext):
    """Encrypts with the first of its keys (AES-256-GCM), and decrypts with all of them.

    Namespace, key id and the use of a payload are authenticated, too. A payload that no keyring encrypted is decoded by
    `older`, if there is an `older` codec, else left as it is.
    """

    def __init__(
        self,
        keys: Mapping[str, bytes],
        namespace: str = "",
        older: PayloadCodec | None = None,
        *,
        tells_use: bool = False,
    ) -> None:
        """`keys`: by id; the first key encrypts. `namespace`: its name. `older`: the codec for all other payloads.

        With `tells_use`, as in workers, the metadata of decoded payloads say for which use they were encrypted.
        """
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # not at the top: 7 MB, and few have keys

        self._ciphers = {id: AESGCM(key) for id, key in keys.items()}
        self._namespace = namespace
        self._older = older
        self._tells_use = tells_use

    def telling_use(self) -> "Keyring":
        """The same keyring with `tells_use`."""
        found = copy.copy(self)
        found._tells_use = True
        return found

    def with_context(self, context: SerializationContext) -> "Keyring":
        """The same keyring with `older` for this context; the encryption is the same in all contexts."""
        if not isinstance(self._older, WithSerializationContext):
            return self
        found = copy.copy(self)
        found._older = self._older.with_context(context)
        return found

    @property
    def ids(self) -> Sequence[str]:
        """The ids of the keys; the first key encrypts."""
        return tuple(self._ciphers)

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Encrypt whole payloads, with their metadata, which says for which use."""
        id = self.ids[0]
        metadata = {"encoding": ENCRYPTED_ENCODING, KEY: id.encode()}
        found = list[Payload]()
        for payload in payloads:
            if (use := _SENT_FOR.get()) and USE not in payload.metadata:
                payload = _with_use(payload, use)
            data = self._seal(id, payload.SerializeToString(deterministic=True), "payload")
            found.append(Payload(metadata=metadata, data=data))
        return found

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Decrypt the payloads; a payload that no keyring encrypted is decoded by `older`, or left as it is.

        Raises:
            KeyMissing: a key is not in the keyring, or a payload was changed.
        """
        found = list[Payload]()
        for payload in payloads:
            if payload.metadata.get("encoding") == ENCRYPTED_ENCODING:
                id = payload.metadata.get(KEY, b"").decode(errors="replace")
                opened = Payload.FromString(self._open(id, payload.data, "payload"))
                if self._tells_use:
                    opened.metadata[USE] = opened.metadata.get(USE, NO_USE)
                elif USE in opened.metadata:
                    del opened.metadata[USE]
                found.append(opened)
            else:
                older = await self._decode_older(payload)
                found += [_with_use(one, IN_CLEAR) for one in older] if self._tells_use else older
        return found

    async def _decode_older(self, payload: Payload) -> list[Payload]:
        """Decode with `older`, if there is one; if it rejects a payload in clear, return the payload as it is."""
        if self._older is None:
            return [payload]
        try:
            return await self._older.decode([payload])
        except Exception:  # codecs may raise anything
            encoding = payload.metadata.get("encoding", b"")
            if encoding and not encoding.startswith((b"json/", b"binary/null", b"binary/plain")):
                raise
            return [payload]

    def seal(self, text: str) -> str:
        """Encrypt a text of the store."""
        id = self.ids[0]
        return f"{SEALED}{id}:{base64.b64encode(self._seal(id, text.encode(), 'store')).decode()}"

    def open(self, text: str) -> str:
        """Decrypt a text of the store, or return it if it was stored unencrypted. Raises KeyMissing as `decode`."""
        sealed = _SEALED.fullmatch(text)
        return self._open(sealed[1], base64.b64decode(sealed[2]), "store").decode() if sealed else text

    def _seal(self, id: str, data: bytes, purpose: Literal["payload", "store"]) -> bytes:
        nonce = secrets.token_bytes(NONCE)
        return nonce + self._ciphers[id].encrypt(nonce, data, self._associated_data(id, purpose))

    def _open(self, id: str, data: bytes, purpose: Literal["payload", "store"]) -> bytes:
        from cryptography.exceptions import InvalidTag

        if id not in self._ciphers:
            raise KeyMissing(f"The values are encrypted with the key {id!r}, which is not in this keyring.")
        try:
            return self._ciphers[id].decrypt(data[:NONCE], data[NONCE:], self._associated_data(id, purpose))
        except (InvalidTag, ValueError) as error:
            raise KeyMissing(
                f"A value that the key {id!r} encrypted cannot be read: it was changed, belongs to another namespace,"
                " or the key is another one of this name."
            ) from error

    def _associated_data(self, id: str, purpose: Literal["payload", "store"]) -> bytes:
        # A store may serve several namespaces.
        return "\0".join(["replan", purpose, self._namespace if purpose == "payload" else "", id]).encode()


def _with_use(payload: Payload, use: bytes) -> Payload:
    copied = Payload()  # the other one may belong to somebody else
    copied.CopyFrom(payload)
    copied.metadata[USE] = use
    return copied


def keyring_of(converter: DataConverter) -> Keyring | None:
    """The keyring of a data converter; None if it has none, or another codec."""
    codec = converter.payload_codec
    found = codec.theirs if isinstance(codec, Codec) else codec
    return found if isinstance(found, Keyring) else None


def read_keys(file: Path) -> dict[str, bytes]:
    """The keys of a keyring file by their ids, in the order of the file.

    Raises:
        BadKeys: the file cannot be read, is no keyring, or others than its user can write it.
    """
    try:
        with file.open("rb") as opened:
            _require_own(file, os.fstat(opened.fileno()))
            lines = decode_text(opened.read()).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else NOT_TEXT
        raise BadKeys(f"The keyring {str(file)!r} cannot be read ({why})", f"{NEW} writes one") from error
    keys = dict[str, bytes]()
    for number, line in enumerate(lines, 1):
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        where = f"Line {number} of the keyring {str(file)!r}"
        if len(fields) != 2 or not ID.fullmatch(fields[0]):
            raise BadKeys(
                f"{where} is no key", f"a line has an id, a blank and a key in Base64; {NEW} writes such lines"
            )
        if fields[0] in keys:
            raise BadKeys(f"{where} repeats the id {fields[0]!r}", "give each key its own")
        try:
            keys[fields[0]] = base64.b64decode(fields[1], validate=True)
        except binascii.Error:
            raise BadKeys(f"{where} has no Base64 after {fields[0]!r}", f"{NEW} writes a key") from None
        if len(keys[fields[0]]) != SIZE:
            raise BadKeys(
                f"The key {fields[0]!r} has {len(keys[fields[0]])} bytes, and needs {SIZE}", f"{NEW} writes such a key"
            )
    if not keys:
        raise BadKeys(f"The keyring {str(file)!r} has no key", f"{NEW} adds one")
    return keys


def _require_own(file: Path, found: os.stat_result) -> None:
    """Raise BadKeys if others than root and the user of this process can write the file: they could add their key."""
    if found.st_uid not in (0, os.geteuid()):
        user, owner = os.geteuid(), found.st_uid
        remedy = f"`chown {user} {file}`, or run this as the user {owner}"
        raise BadKeys(f"The keyring {str(file)!r} belongs to the user {owner}, who can change it", remedy)
    if found.st_mode & WRITABLE_BY_OTHERS:
        raise BadKeys(f"Others can write the keyring {str(file)!r}", f"`chmod go-w {file}`")


def add_key(file: Path) -> str:
    """Insert a new key as the first line of a keyring file, and return the key's id.

    A file that exists keeps its owner and mode. One that does not exist is made, and only its owner can read it.

    Raises:
        BadKeys: the file is no keyring, or cannot be written.
    """
    file, before, kept = file.resolve(), "", None  # a link stays a link
    if file.exists():
        read_keys(file)  # a file that is no keyring is left as it is
        before, kept = decode_text(file.read_bytes()), file.stat()
    id = f"k{datetime.now(UTC):%Y%m%d}-{secrets.token_hex(4)}"
    line = f"{id} {base64.b64encode(secrets.token_bytes(SIZE)).decode()}\n"
    try:
        handle, written = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")  # only its owner may read it
        try:
            with os.fdopen(handle, "wb") as new:
                if kept is not None:
                    os.fchown(new.fileno(), kept.st_uid, kept.st_gid)
                    os.fchmod(new.fileno(), stat.S_IMODE(kept.st_mode))
                new.write((line + before).encode())
                new.flush()
                os.fsync(new.fileno())
            Path(written).replace(file)
        finally:
            Path(written).unlink(missing_ok=True)
    except PermissionError as error:
        reason = f"The keyring {str(file)!r} cannot be written ({error.strerror})"
        raise BadKeys(reason, "run this as the user who owns it, or choose another file") from error
    except OSError as error:
        reason = f"The keyring {str(file)!r} cannot be written ({error.strerror})"
        raise BadKeys(reason, "choose another file") from error
    return id


def load_codec(name: str) -> PayloadCodec:
    """The PayloadCodec that MODULE:OBJECT names, or that this object returns; raises BadKeys if there is none."""
    try:
        found = named_object(name)
        codec = found if isinstance(found, PayloadCodec) else found()
    except Exception as error:  # the user's code may raise anything
        why = str(error) if isinstance(error, CannotLoad) else f"{type(error).__name__}: {error}"
        raise BadKeys(f"The codec {name} of REPLAN_CODEC cannot be loaded ({why})", LOADABLE) from error
    if not isinstance(codec, PayloadCodec):
        reason = f"The codec {name} of REPLAN_CODEC is no PayloadCodec of temporalio.converter"
        raise BadKeys(reason, "name a codec, or what makes one")
    return codec


def cipher_of(keys: Path | str | None) -> Keyring | None:
    """The keyring for a store, which may serve several namespaces; None without `--keys`. Raises BadKeys."""
    return Keyring(read_keys(Path(keys))) if keys else None


def codec_of(
    keys: Path | str | None, codec: str | None, namespace: str, *, tells_use: bool = False
) -> PayloadCodec | None:
    """The codec of `--keys` and REPLAN_CODEC; None if neither is set. With both, the keyring encrypts and both decode.

    `tells_use` is that of Keyring.

    Raises:
        BadKeys: the keyring or the codec cannot be used.
    """
    theirs = load_codec(codec) if codec else None
    return Keyring(read_keys(Path(keys)), namespace, theirs, tells_use=tells_use) if keys else theirs


def with_keys(theirs: DataConverter, keys: Path | str, namespace: str) -> DataConverter:
    """A user's data converter, changed to encrypt with the keyring `keys`; unchanged if it has a payload codec.

    Messages of failures are encrypted, too, unless the user has a failure converter of their own.

    Raises:
        BadKeys: the keyring cannot be used.
    """
    if theirs.payload_codec is not None:
        return theirs
    failures = theirs.failure_converter_class
    if failures in (DefaultFailureConverter, FailureConverter):
        failures = DefaultFailureConverterWithEncodedAttributes
    ring = Keyring(read_keys(Path(keys)), namespace)
    return dataclasses.replace(theirs, payload_codec=ring, failure_converter_class=failures)


def encrypting(codec: PayloadCodec) -> DataConverter:
    """Replan's data converter with `codec`, which also encodes the messages and stack traces of failures."""
    return adapted(
        DataConverter(payload_codec=codec, failure_converter_class=DefaultFailureConverterWithEncodedAttributes)
    )
