"""The library: the text documents of a folder, cut into the passages between two headings."""

import os
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

MAX_FILE, MAX_TOTAL = 2_000_000, 16_000_000
"""Bytes that are read of one file and of all."""
MAX_FILES, MAX_HEADING = 2_000, 200
SUFFIXES = (".md", ".txt")


class Passage(NamedTuple):
    """What stands below one heading."""

    path: str
    line: int
    """The line, from 1, on which `body` begins."""
    above: str
    """The headings above its own, from the document's on."""
    heading: str
    body: str


@dataclass(frozen=True)
class Library:
    """What was read, and what was not."""

    passages: list[Passage] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    @cached_property
    def words(self) -> list[str]:
        """The words of all passages in small letters, sorted."""
        texts = (f"{passage.above} {passage.heading} {passage.body}".lower() for passage in self.passages)
        return sorted({word for text in texts for word in re.findall(r"[^\W_]{3,}", text)})


def read_library(root: Path) -> Library:
    """Read the documents below `root`; what a link leads to elsewhere is none of them."""
    library, root, total = Library(), root.resolve(), 0
    for count, path in enumerate(_documents(root)):
        name = path.relative_to(root).as_posix()
        if count >= MAX_FILES or total > MAX_TOTAL:
            library.skipped.append(f"{name} and all after it: more than {MAX_FILES} files or {MAX_TOTAL:,} bytes")
            break
        try:
            with path.open("rb") as file:
                content = file.read(MAX_FILE + 1)
        except (PermissionError, FileNotFoundError):
            library.skipped.append(f"{name}: cannot be read")
            continue
        if len(content) > MAX_FILE:
            library.skipped.append(f"{name}: larger than {MAX_FILE:,} bytes")
            continue
        total += len(content)
        library.passages.extend(_passages(name, _clean(content)))
    return library


def _documents(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):  # does not follow links to folders
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(folder, name)
            if path.suffix.lower() in SUFFIXES and path.is_file() and path.resolve().is_relative_to(root):
                yield path


def _clean(content: bytes) -> str:
    """Text of one spelling, without control characters, its lines kept."""
    text = "\n".join(content.decode("utf-8-sig", errors="replace").splitlines())
    return unicodedata.normalize("NFC", re.sub(r"[\x00-\x09\x0b-\x1f\x7f]", " ", text))


def _passages(name: str, text: str) -> list[Passage]:
    lines = text.split("\n")
    cut = _by_headings(name, lines) if name.lower().endswith(".md") else _as_one(name, lines)
    return [passage for passage in cut if passage.body.strip()]


def _as_one(name: str, lines: list[str]) -> Iterator[Passage]:
    """A plain text: its first line with words is its heading, if more follows."""
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    if len(lines[first]) <= MAX_HEADING and any(line.strip() for line in lines[first + 1 :]):
        yield _section(name, lines, first + 1, len(lines), [lines[first].strip()])
    else:
        yield _section(name, lines, first, len(lines), [])


def _by_headings(name: str, lines: list[str]) -> Iterator[Passage]:
    trail, start, is_code = list[tuple[int, str]](), 0, False
    for number, line in enumerate(lines):
        is_code ^= line.lstrip().startswith(("```", "~~~"))
        level = len(line) - len(line.lstrip("#"))
        if is_code or not 1 <= level <= 6 or not line[level:].startswith((" ", "\t")):
            continue
        yield _section(name, lines, start, number, [heading for _, heading in trail])
        trail = [above for above in trail if above[0] < level] + [(level, line.strip("# \t"))]
        start = number + 1
    yield _section(name, lines, start, len(lines), [heading for _, heading in trail])


def _section(name: str, lines: list[str], start: int, end: int, trail: list[str]) -> Passage:
    while start < end and not lines[start].strip():
        start += 1
    *above, heading = [heading[:MAX_HEADING] for heading in trail] or [_stem(name)]
    return Passage(name, start + 1, " > ".join(above), heading, "\n".join(lines[start:end]))


def _stem(name: str) -> str:
    return Path(name).stem.replace("-", " ").replace("_", " ")
