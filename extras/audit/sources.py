"""Reads histories from files and from a server, event by event, so that memory holds one event and not one file.

A file holds one history, as the web UI, `temporal workflow show --output json`, `WorkflowHistory.to_json` or `export`
write it, or as a binary History message; or many, as JSON lines, as a JSON list, or as a zip archive of such files. Any
of these may be compressed with gzip. The first bytes of a file decide what it holds, never its name.
"""

import codecs
import gzip
import os
import re
import stat
import zipfile
import zlib
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError
from pydantic_core import from_json
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client

from client.filters import using_filter
from client.problem import Problem
from client.replay import open_file, parse_history
from client.tasks import existing
from client.text import one_line

CHUNK = 256 * 1024
MAX_EVENT = 16 * 1024 * 1024
"""The most bytes of one event. A server keeps no payload that is larger than a few megabytes."""
MAX_EVENTS = 200_000
"""The most events of one history. A server ends a workflow at 51,200."""
MAX_DEPTH = 200
ENDINGS = (".json", ".jsonl", ".ndjson", ".bin", ".binpb", ".pb", ".gz", ".zip")
"""The files of a folder that are read; others are passed over."""
NO_FILE = f"has no file whose name ends in {', '.join(ENDINGS)}"

BROKEN_ARCHIVE: tuple[type[Exception], ...] = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    gzip.BadGzipFile,
    NotImplementedError,
)
"""What the standard library raises for archives that are broken, or packed in a way that it does not know."""
with suppress(ImportError):  # a Python may lack lzma, and reads all other archives
    from lzma import LZMAError

    BROKEN_ARCHIVE += (LZMAError,)


class UnreadableHistory(NamedTuple):
    """A file, or a history in one, that cannot be read."""

    name: str
    reason: str
    """What is wrong, as the end of a sentence."""


class Begin(NamedTuple):
    """A history begins; the events up to the next Begin are its own."""

    name: str
    """The file, and the place of the history in it; for a server, the id of the workflow."""


Item = Begin | HistoryEvent | UnreadableHistory
"""What sources yield: a history is its Begin and its events. An UnreadableHistory with the same name withdraws it."""


class _NoHistory(ValueError):
    """A text is no history, or is broken; the message is a sentence without its subject, such as `is empty`."""


@dataclass
class Extent:
    """How much of the files has been read."""

    done: int = 0
    total: int = 0


def files_of(paths: Iterable[Path]) -> list[Path]:
    """The files that `paths` name; of a folder, the files at any depth with one of the ENDINGS, sorted.

    A folder that has no such file stands for itself, so that it is reported beside the others.

    Raises:
        Problem: there is no such file or folder, or there are only folders without such a file.
    """
    found, empty = list[Path](), list[Path]()
    for path in paths:
        if _is_missing(path):
            raise Problem("no_file", f"There is no file {str(path)!r}", "name files or folders with histories")
        inside = _inside(path) if os.path.isdir(path) else [path]  # noqa: PTH112  # of pathlib's, errors come out
        found += inside
        empty += [] if inside else [path]
    if empty and not found:
        reason = f"The folder {str(empty[0])!r} {NO_FILE}"
        raise Problem("no_file", reason, "name the folder with the histories")
    return [*found, *empty]


def _is_missing(path: Path) -> bool:
    try:
        path.stat()
    except FileNotFoundError:
        return True
    except OSError:
        return False  # it is there, and whoever opens it says why it cannot be read
    return False


def _inside(folder: Path) -> list[Path]:
    """The files of a folder with one of the ENDINGS, and the folders in it that cannot be listed.

    Pipes and devices are left out: their content might never end.
    """
    closed = list[Path]()
    walk = os.walk(folder, onerror=lambda error: closed.append(Path(error.filename)))
    files = [Path(at, name) for at, _, names in walk for name in names if name.endswith(ENDINGS)]
    return sorted([*closed, *(file for file in files if not _is_endless(file))])


def _is_endless(path: Path) -> bool:
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False  # whoever opens it says why it cannot be read


def of_files(files: Iterable[Path], extent: Extent) -> Iterator[Item]:
    """Yield the histories in files; `extent` counts the bytes that have been read."""
    files = list(files)
    extent.total = sum(map(_size, files))
    for file in files:
        before = extent.done
        try:
            with open_file(file) as opened:
                for item in _of_stream(opened, str(file)):
                    extent.done = before + (opened.tell() if opened.seekable() else 0)
                    yield item
        except IsADirectoryError:
            yield UnreadableHistory(str(file), NO_FILE)
        except OSError as error:
            yield UnreadableHistory(str(file), f"cannot be read ({error.strerror or error})")
        extent.done = before + _size(file)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size if file.is_file() else 0
    except OSError:
        return 0


def _of_stream(stream: Any, name: str) -> Iterator[Item]:
    """The histories of a stream of bytes, which may be an archive."""
    try:
        first = stream.read(4)
        rest = _Rewound(first, stream)
        if first[:4] == b"PK\x03\x04" and isinstance(stream, BufferedReader) and stream.seekable():
            yield from _of_archive(stream, name)
        elif first[:2] == b"\x1f\x8b":
            unpacked = gzip.GzipFile(fileobj=rest, mode="rb")  # type: ignore[call-overload]  # it needs `read` only
            yield from _of_json_or_binary(unpacked, name)
        elif first[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):  # PowerShell's `>` writes it
            yield from _of_json_or_binary(_InUtf8(rest), name)
        else:
            yield from _of_json_or_binary(rest, name)
    except _NoHistory as error:
        yield UnreadableHistory(name, str(error))
    except BROKEN_ARCHIVE as error:
        yield UnreadableHistory(name, f"is a broken archive ({one_line(str(error))})")


def _of_archive(stream: BufferedReader, name: str) -> Iterator[Item]:
    with zipfile.ZipFile(stream) as archive:
        for entry in archive.infolist():
            if entry.is_dir() or not entry.filename.endswith(ENDINGS):
                continue
            inside = f"{name}:{entry.filename}"
            try:
                with archive.open(entry) as opened:
                    yield from _of_stream(opened, inside)
            except BROKEN_ARCHIVE as error:  # of these, NotImplementedError is a RuntimeError
                yield UnreadableHistory(inside, f"is broken ({one_line(str(error))})")
            except RuntimeError:  # of a password
                yield UnreadableHistory(inside, "is encrypted: unpack the archive first")


class _Rewound:
    """A stream that returns its bytes from the first on, although the bytes `first` have been read from it already."""

    def __init__(self, first: bytes, stream: Any) -> None:
        self._first, self._stream = first, stream

    def read(self, size: int = -1) -> bytes:
        found, self._first = self._first, b""
        if 0 <= size < len(found):
            found, self._first = found[:size], found[size:]
            return found
        more: bytes = self._stream.read(size if size < 0 else size - len(found))
        return found + more


class _InUtf8:
    """A stream of UTF-16 with its byte order mark, as a stream of UTF-8."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._decoder = stream, codecs.getincrementaldecoder("utf-16")()

    def read(self, size: int = -1) -> bytes:
        """About `size` bytes; empty at the end. Raises _NoHistory for what is no UTF-16."""
        try:
            while more := self._stream.read(size):
                if text := self._decoder.decode(more):
                    return text.encode()
            return self._decoder.decode(b"", final=True).encode()
        except UnicodeError as error:
            raise _NoHistory(f"is no text in UTF-16 ({one_line(str(error))})") from None


def _of_json_or_binary(stream: Any, name: str) -> Iterator[Item]:
    first = stream.read(CHUNK)
    if not first:
        raise _NoHistory("is empty")
    rest = _Rewound(first, stream)
    text = first.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text[:1] in (b"{", b"["):
        yield from _of_json(rest, name)
    elif first[:1] == b"\n":  # field 1 of a History; a text that begins with an empty line was stripped above
        yield from _of_messages(rest, name)
    else:
        raise _NoHistory("holds no history: it is neither JSON nor a binary History")


# JSON


_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\]]|"', re.DOTALL)
"""A whole string, a bracket, or the quote of a string whose end is not there yet. It cannot backtrack."""
_COLON = re.compile(rb"\s*(:)?", re.DOTALL)


class _Json:
    """Walks through JSON texts that follow each other, and yields each event of their histories as bytes."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._text, self._at, self._is_over = b"", 0, False
        self._start: int | None = None
        """The start of the value that is being captured; None while no value is."""
        self._opened = b""
        """The brackets that are open."""
        self._keys = list[bytes]()
        """For each open bracket: the last key of an object; empty for a list."""
        self._around = 0
        """How many brackets are open around the value that is being captured."""
        self.texts = 0
        """How many texts have ended."""

    @property
    def is_in_events(self) -> bool:
        """Whether the value that was captured last is an event, and not an item of a list at the top."""
        return self._around > 1

    def _more(self, at: int) -> bool:
        """Read more of the stream, and continue the search at the place `at`; returns False at the end of the stream.

        The text before `at` is dropped, except a value that is being captured.
        """
        keep = at if self._start is None else self._start
        # As much as is there already, so that a long string is not looked through again for each chunk.
        more = b"" if self._is_over else self._stream.read(max(CHUNK, len(self._text) - keep))
        if len(self._text) - keep + len(more) > 2 * MAX_EVENT:
            raise _NoHistory(f"has an event of more than {MAX_EVENT // 2**20} MB")
        self._text, self._at = self._text[keep:] + more, at - keep
        self._start = None if self._start is None else 0
        self._is_over = not more
        return bool(more)

    def values(self) -> Iterator[tuple[int, bytes]]:
        """Yield events, and items of a list at the top, after the number of their text, from 0. Raises _NoHistory."""
        while True:
            found = _TOKEN.search(self._text, self._at)
            if found is None:
                if not self._more(len(self._text)):
                    break
                continue
            token, begin = found[0], found.start()
            if token == b'"':
                if not self._more(begin):
                    raise _NoHistory("is cut off in the middle of a text")
            elif token[:1] == b'"':
                self._skip_string(token, begin)
            elif token in b"{[":
                self._open_bracket(token, begin)
            else:
                number = self.texts
                if (value := self._close_bracket(token, found.end())) is not None:
                    yield number, value
        if self._opened:
            raise _NoHistory("is cut off: its last event is not complete")

    def _skip_string(self, token: bytes, begin: int) -> None:
        """Skip a string; remember it if it is a key outside of a captured value."""
        self._at = begin + len(token)
        if self._start is not None or self._opened[-1:] != b"{":
            return
        colon = _COLON.match(self._text, self._at)
        if colon is not None and colon[1]:
            self._keys[-1] = token
        elif colon is not None and colon.end() == len(self._text) and not self._is_over:
            self._more(begin)  # the colon may come yet

    def _open_bracket(self, token: bytes, begin: int) -> None:
        if self._start is None and self._begins_value(token):
            self._start, self._around = begin, len(self._opened)
        self._opened += token
        self._keys.append(b"")
        self._at = begin + 1
        if len(self._opened) > MAX_DEPTH:
            raise _NoHistory(f"is nested more than {MAX_DEPTH} levels deep")

    def _close_bracket(self, token: bytes, end: int) -> bytes | None:
        """Close a bracket, and return the captured value that it ends, or None. Raises _NoHistory if none was open."""
        if self._opened[-1:] != (b"{" if token == b"}" else b"["):
            raise _NoHistory("is no JSON: a bracket is closed that is not open")
        self._opened = self._opened[:-1]
        self._keys.pop()
        self._at = end
        self.texts += 0 if self._opened else 1
        if self._start is None or len(self._opened) > self._around:
            return None
        value, self._start = self._text[self._start : end], None
        return value

    def _begins_value(self, token: bytes) -> bool:
        """Whether an opening bracket begins an event, or an item of a list at the top."""
        if token != b"{" or self._opened[-1:] != b"[":
            return False
        if len(self._opened) == 1:
            return True
        return len(self._opened) <= 3 and self._keys[-2] == b'"events"'


def _of_json(stream: Any, name: str) -> Iterator[Item]:
    """Yield the histories of JSON texts; a broken history does not affect the others."""
    texts, histories = _Json(stream), _Histories(name)
    try:
        for index, (text, found) in enumerate(texts.values()):
            try:
                if texts.is_in_events:
                    yield from histories.add((text, -1), [found])
                    continue
                value = _parse_object(found)
                is_event = "eventId" in value or "eventType" in value
                yield from histories.add((text, -1 if is_event else index), [value] if is_event else _events_in(value))
            except _NoHistory as error:
                yield histories.mark_unreadable((text, -1), str(error))
    except _NoHistory as error:
        yield histories.mark_unreadable((texts.texts, -1), str(error))
    if not histories.number:
        yield UnreadableHistory(name, "holds no history: no list `events` with events is in it")


class _Histories:
    """The histories of a file; events are added with the key of their history."""

    def __init__(self, file: str) -> None:
        self._file = file
        self.number = 0
        """How many histories have begun, or are broken."""
        self._key: tuple[int, int] | None = None
        self._events, self._is_broken = 0, False

    @property
    def _name(self) -> str:
        return self._file if self.number == 1 else f"{self._file}:{self.number}"

    def add(self, key: tuple[int, int], events: Iterable[Any]) -> Iterator[Item]:
        """Add events to the history with this key, and yield them parsed; for a new key, a Begin comes first."""
        if key != self._key:
            self._begin_history(key)
            yield Begin(self._name)
        for event in events if not self._is_broken else ():
            self._events += 1
            if self._events > MAX_EVENTS:
                raise _NoHistory(f"has more than {MAX_EVENTS:,} events")
            yield _event_of(event, self._events)

    def mark_unreadable(self, key: tuple[int, int], reason: str) -> UnreadableHistory:
        """Mark the history with this key as unreadable, so that the rest of its events is skipped."""
        if key[0] != (self._key or (-1, -1))[0]:
            self._begin_history(key)
        self._is_broken = True
        return UnreadableHistory(self._name, reason)

    def _begin_history(self, key: tuple[int, int]) -> None:
        self._key, self._events, self._is_broken = key, 0, False
        self.number += 1


def _events_in(value: dict[str, Any]) -> list[Any]:
    history = value.get("history")
    events = value.get("events", history.get("events") if isinstance(history, dict) else None)
    if not isinstance(events, list):
        raise _NoHistory("holds no history: an item of its list has no `events`")
    return events


def _parse_object(text: bytes) -> dict[str, Any]:
    try:
        value = from_json(text)
    except ValueError as error:
        raise _NoHistory(f"is no JSON ({one_line(str(error))[:200]})") from None
    return value if isinstance(value, dict) else {}


def _event_of(event: Any, number: int) -> HistoryEvent:
    """An event from its JSON, as bytes or parsed; bytes are faster, since the SDK copies parsed values.

    `number` is the place of the event in its history, for the message of an error.
    """
    try:
        history = f'{{"events":[{event.decode()}]}}' if isinstance(event, bytes) else {"events": [event]}
        found: HistoryEvent = parse_history("", history).events[0]
        return found
    except (ValueError, LookupError) as error:
        raise _NoHistory(f"has an event that cannot be read, number {number} ({one_line(str(error))[:200]})") from None


# Binary


def _of_messages(stream: Any, name: str) -> Iterator[Item]:
    """The history of a binary History message: its events, each with a tag and its length before it."""
    yield Begin(name)
    number = 0
    left = _ByteReader(stream)
    while tag := left.take(1, is_first=True):
        if tag != b"\n":
            raise _NoHistory("holds no history: it is neither JSON nor a binary History")
        size = left.read_number()
        if size > MAX_EVENT:
            raise _NoHistory(f"has an event of more than {MAX_EVENT // 2**20} MB, or is no history")
        number += 1
        if number > MAX_EVENTS:
            raise _NoHistory(f"has a history of more than {MAX_EVENTS:,} events")
        text = left.take(size)
        try:
            event = HistoryEvent.FromString(text)
        except DecodeError as error:
            raise _NoHistory(f"has an event that cannot be read, number {number} ({one_line(str(error))})") from None
        yield event


class _ByteReader:
    def __init__(self, stream: Any) -> None:
        self._stream, self._text = stream, b""

    def take(self, size: int, *, is_first: bool = False) -> bytes:
        """Return the next `size` bytes; empty at the end if `is_first`. Raises _NoHistory if it ends too early."""
        parts = [self._text]
        missing = size - len(self._text)
        while missing > 0 and (more := self._stream.read(max(missing, CHUNK))):
            parts.append(more)
            missing -= len(more)
        text = b"".join(parts)
        if len(text) < size and not (is_first and not text):
            raise _NoHistory("is cut off: its last event is not complete")
        self._text = text[size:]
        return text[:size]

    def read_number(self) -> int:
        """Read a number of protobuf: seven bits a byte, the lowest first; more than five bytes are MAX_EVENT + 1."""
        found = 0
        for position in range(5):
            byte = self.take(1)[0]
            found |= (byte & 0x7F) << (7 * position)
            if byte < 0x80:
                return found
        return MAX_EVENT + 1


# A server


async def count(client: Client, query: str) -> int:
    """How many workflows a list filter finds. Raises Problem if the filter cannot be used."""
    with using_filter():
        return (await client.count_workflows(query or None)).count


async def of_server(client: Client, query: str, limit: int | None, extent: Extent) -> AsyncIterator[Item]:
    """The histories of the workflows that a list filter finds, of any type, the newest first; `extent` counts them.

    Raises:
        Problem: the filter cannot be used.
    """
    with using_filter():
        async for row in client.list_workflows(query or None, limit=limit):
            yield Begin(row.id)
            events = client.get_workflow_handle(row.id, run_id=row.run_id).fetch_history_events()
            while (event := await existing(anext(events, None))) is not None:
                yield event
            extent.done += 1
