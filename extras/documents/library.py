"""A full-text index of a folder of documents; a file is read again only if it has changed."""

import math
import re
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from activities.errors import Busy
from activities.toolbox.extra import MissingPackage
from activities.toolbox.pages import Document, Heading, Page, first_line, headings_in, title_of
from extras.documents.document import MAX_FILES, UnreadableDocument, documents, read


class Passage(NamedTuple):
    """The text below one heading on one page."""

    page: int | None  # the page's number; None if the document has one page
    line: int  # the line on which `body` begins, counted as `Page.line` is
    above: str  # the headings above `heading`, the outermost first
    heading: str
    body: str


def passages(name: str, document: Document) -> list[Passage]:
    """Cut a document into passages at its headings and pages."""
    title = title_of(name, document)
    cut = _by_headings(document.pages, title) if document.has_headings else _as_one(document.pages, title)
    alone = document.of == 1
    return [passage._replace(page=None) if alone else passage for passage in cut if passage.body.strip()]


def _as_one(pages: Sequence[Page], title: str) -> Iterator[Passage]:
    """Yield one passage for each page, without the page's first line if that line is the title."""
    for page in pages:
        lines = page.text.split("\n")
        first = next((number for number, line in enumerate(lines) if line.strip()), 0)
        begin = first + 1 if first_line(page) == title else first
        yield _passage(page, lines, begin, len(lines), [title])


def _by_headings(pages: Sequence[Page], title: str) -> Iterator[Passage]:
    trail = list[Heading]()
    marks = {page: list(found) for page, found in groupby(headings_in(pages), lambda mark: mark.page)}
    for page in pages:
        lines, start = page.text.split("\n"), 0
        for mark in marks.get(page.number, []):
            yield _passage(page, lines, start, mark.number, [above.heading for above in trail] or [title])
            trail = [*(above for above in trail if above.level < mark.level), mark]
            start = mark.number + 1
        yield _passage(page, lines, start, len(lines), [above.heading for above in trail] or [title])


def _passage(page: Page, lines: list[str], start: int, end: int, trail: list[str]) -> Passage:
    """The passage with the lines from `start` to `end`; `trail` has its headings, the outermost first."""
    while start < end and not lines[start].strip():
        start += 1
    *above, heading = trail
    return Passage(page.number, page.line + start, " > ".join(above), heading, "\n".join(lines[start:end]))


MAX_TOTAL = 16_000_000  # characters of all documents of a folder
SECONDS, PATIENCE = 12.0, 20.0  # seconds that one call reads new files, and that it waits while another call reads
FORGIVE = 600.0  # seconds after which an unreadable document is read again: the machine may have been overloaded
MAX_LIBRARIES, MAX_NOTES = 16, 30
TICK = 20_000_000  # nanoseconds: a file may change twice in this time and keep one modification time
SNIPPET = 40  # words of a passage that a hit shows
FIRST, END, CUT = "\x02", "\x03", "\x04"
"""Marks before and after a found word, and at a cut. The documents have no such characters: `clean` removed them."""


_CREATE = (
    "CREATE VIRTUAL TABLE passages USING fts5(name UNINDEXED, page UNINDEXED, line UNINDEXED, above, heading, body,"
    " tokenize = 'porter unicode61 remove_diacritics 2')"
)
_INSERT = "INSERT INTO passages (rowid, name, page, line, above, heading, body) VALUES (?, ?, ?, ?, ?, ?, ?)"
_DELETE = "DELETE FROM passages WHERE rowid BETWEEN ? AND ?"
_FIND = (
    "SELECT name, page, line, above, heading, body, snippet(passages, 5, ?, ?, ?, ?) FROM passages"
    " WHERE passages MATCH ? ORDER BY bm25(passages, 0, 0, 0, 1, 6, 1), name, page, line LIMIT ?"
)


class Match(NamedTuple):
    """A passage that has all the terms of a search."""

    name: str
    page: int | None
    line: int
    above: str
    heading: str
    body: str
    marked: str  # the part of the body around the terms, with marks (see `FIRST`)


class _FileEntry(NamedTuple):
    signature: tuple[int, ...]  # changes when the file changes
    notes: Sequence[str]
    characters: int = 0
    rows: range = range(0)
    expires: float = math.inf  # the monotonic time after which it is read again, even if it has not changed


class Library:
    """The full-text index of the documents of one folder; safe for any number of threads."""

    def __init__(
        self, root: Path, *, seconds: float = SECONDS, patience: float = PATIENCE, forgive: float = FORGIVE
    ) -> None:
        """Begin with an empty index; for the times see `SECONDS`, `PATIENCE` and `FORGIVE`."""
        self._root = root
        self._seconds = seconds
        self._patience = patience
        self._forgive = forgive
        self.reads = 0
        self.unread = 0  # how many new or changed documents there was no time to read
        self.skipped: list[str] = []  # documents that were not read, and why
        self._entries = dict[str, _FileEntry]()
        self._vocabulary: list[str] | None = None
        self._next_row = 1
        self._lock = threading.Lock()
        self._index = sqlite3.connect("", check_same_thread=False)  # a temporary file, which SQLite deletes on close
        weakref.finalize(self, self._index.close)
        self._index.execute(_CREATE)

    @contextmanager
    def fresh(self) -> Iterator[None]:
        """Bring the index up to date and lock it for the block; raises Busy if the lock takes over `patience` s."""
        if not self._lock.acquire(timeout=self._patience):
            raise Busy("Another call is reading the documents: retry.", retry_after=1)
        try:
            self._refresh()
            yield
        finally:
            self._lock.release()

    def find(self, terms: Sequence[str], limit: int) -> list[Match]:
        """The best passages that have all terms, at most `limit`; a term may have only letters, digits and `-.'`."""
        if not terms:
            return []
        match = " AND ".join(f'"{term}"' for term in terms)  # quoted: a term such as `or` is no operator
        rows = self._index.execute(_FIND, (FIRST, END, CUT, SNIPPET, match, limit))
        return [Match(*row) for row in rows]

    @property
    def is_empty(self) -> bool:
        return self._index.execute("SELECT 1 FROM passages LIMIT 1").fetchone() is None

    @property
    def vocabulary(self) -> list[str]:
        """All words of the index that have three or more letters or digits, in small letters, sorted."""
        if self._vocabulary is None:
            rows = self._index.execute("SELECT above || ' ' || heading || ' ' || body FROM passages")
            self._vocabulary = sorted({word for (text,) in rows for word in re.findall(r"[^\W_]{3,}", text.lower())})
        return self._vocabulary

    def _refresh(self) -> None:
        """Read new and changed documents for up to `seconds`, forget deleted ones, and set `unread` and `skipped`."""
        files, until, total, dropped = documents(self._root), time.monotonic() + self._seconds, 0, list[str]()
        self.unread, before = 0, self.reads
        for name in self._entries.keys() - files.keys():
            self._forget(name)
        for name, path in files.items():
            if total > MAX_TOTAL:
                self._forget(name)
                dropped.append(name)
            elif not self._is_up_to_date(name, path):
                self._forget(name)
                # Each call reads at least one file, so that the index is complete at some time.
                if self.reads == before or time.monotonic() < until:
                    self._read(name, path)
                else:
                    self.unread += 1
            total += self._entries[name].characters if name in self._entries else 0
        self.skipped = self._notes(dropped, has_max_files=len(files) == MAX_FILES)

    def _is_up_to_date(self, name: str, path: Path) -> bool:
        entry = self._entries.get(name)
        return entry is not None and entry.signature == _signature(path) and time.monotonic() < entry.expires

    def _forget(self, name: str) -> None:
        entry = self._entries.pop(name, None)
        if entry is not None and entry.rows:
            self._vocabulary = None
            with self._index:
                self._index.execute(_DELETE, (entry.rows[0], entry.rows[-1]))

    def _read(self, name: str, path: Path) -> None:
        self.reads += 1
        signature = _signature(path)
        if any(abs(time.time_ns() - at) < TICK for at in signature[1:]):
            signature = ()  # it may change again at the same mtime: an unknown signature, so it is read again
        try:
            document = read(path)
        except (UnreadableDocument, MissingPackage) as why:
            self._entries[name] = _FileEntry(signature, [str(why)], expires=time.monotonic() + self._forgive)
            return
        cut = passages(name, document)
        rows = range(self._next_row, self._next_row + len(cut))
        with self._index:
            values = ((row, name, *passage) for row, passage in zip(rows, cut, strict=True))
            self._index.executemany(_INSERT, values)
        more = [f"only its first {document.last} of {document.of} pages were read"] * (document.last < document.of)
        size = sum(len(page.text) for page in document.pages)
        self._entries[name] = _FileEntry(signature, [*document.notes, *more], size, rows)
        self._next_row, self._vocabulary = rows.stop, None

    def _notes(self, dropped: Sequence[str], *, has_max_files: bool) -> list[str]:
        """Which documents were not read completely, and why; `dropped` are those beyond `MAX_TOTAL` characters."""
        notes = [f"{name}: {note}" for name, entry in sorted(self._entries.items()) for note in entry.notes]
        if dropped:
            notes.append(f"{dropped[0]} and all after it: the folder has more than {MAX_TOTAL:,} characters")
        if self.unread:
            notes.append(f"{self.unread} new documents: there was no time yet, search again")
        if has_max_files:
            notes.append(f"what is left: the folder has more than {MAX_FILES:,} documents")
        return notes if len(notes) <= MAX_NOTES else [*notes[:MAX_NOTES], f"and {len(notes) - MAX_NOTES} more"]


def _signature(path: Path) -> tuple[int, ...]:
    """The size and the times of a file, which change when the file changes; empty if the file cannot be found."""
    # ctime also changes if somebody sets mtime back.
    try:
        found = path.stat()
    except OSError:
        return ()
    return (found.st_size, found.st_mtime_ns, found.st_ctime_ns)


class Libraries:
    """The indexes of the `MAX_LIBRARIES` folders that were used last, shared by all calls of a worker."""

    def __init__(self, *, seconds: float = SECONDS) -> None:
        self._lock = threading.Lock()
        self._of = lru_cache(MAX_LIBRARIES)(partial(Library, seconds=seconds))

    def of(self, root: Path) -> Library:
        """The index of the folder `root`; a new, empty index if the folder has none."""
        with self._lock:  # the cache alone would let two calls make two
            return self._of(root)
