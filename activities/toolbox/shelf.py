"""The documents that stand in a folder: their names, and reading one of them."""

import os
import stat
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from activities.toolbox.document import Document, Unreadable, of_text
from activities.toolbox.html import text_of
from activities.toolbox.pdf import read_pdf

MAX_FILE, MAX_PDF = 2_000_000, 50_000_000
"""Bytes of a text and of a PDF, most of which are pictures."""
MAX_FILES = 10_000
TEXT, MARKDOWN, HTML, PDF = (".txt",), (".md", ".markdown"), (".html", ".htm"), (".pdf",)
SUFFIXES = TEXT + MARKDOWN + HTML + PDF


def documents(root: Path) -> dict[str, Path]:
    """Find the documents below `root`, the first `MAX_FILES` in order, by their names relative to it.

    What a link leads to is one of them if it stands below `root`, too.
    """
    root = root.resolve()
    found = dict[str, Path]()
    for name, path in _files(root):
        if len(found) == MAX_FILES:
            break
        found[name] = path
    return found


def read(path: Path, *, first: int = 1, max_text: int = MAX_FILE) -> Document:
    """Read one of the documents that `documents` found: a PDF from page `first` on, others as a whole.

    Raises:
        Unreadable: it is gone, too large, or not what its name says.
    """
    limit = MAX_PDF if path.suffix.lower() in PDF else MAX_FILE
    with _opened(path) as file:
        if os.fstat(file.fileno()).st_size > limit:
            raise Unreadable(f"larger than {limit:,} bytes")
        if path.suffix.lower() in PDF:
            return read_pdf(file, first=first, max_text=max_text)
        content = file.read(limit)
    return _html(content) if path.suffix.lower() in HTML else _text(content, path)


def _files(root: Path) -> Iterator[tuple[str, Path]]:
    for folder, folders, names in os.walk(root):  # does not follow links to folders
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(folder, name)
            if path.suffix.lower() not in SUFFIXES:
                continue
            target = path.resolve() if path.is_symlink() else path
            if target.is_relative_to(root) and target.suffix.lower() in SUFFIXES and target.is_file():
                yield _shown(path.relative_to(root)), target


def _shown(path: Path) -> str:
    name = path.as_posix().encode(errors="replace").decode()  # it may have bytes that are no characters
    return unicodedata.normalize("NFC", name)


def _opened(path: Path) -> BinaryIO:
    try:
        # No link and no pipe may have taken the file's place since it was found.
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    except OSError:
        raise Unreadable("the worker cannot open it") from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise Unreadable("it is no file")
    return file


def _html(content: bytes) -> Document:
    page = text_of(content)
    notes = ["it goes on, but is nested too deep to be read"] if page.is_cut else []
    return of_text(page.text, title=page.title, has_headings=True, notes=notes)


def _text(content: bytes, path: Path) -> Document:
    text = content.decode("utf-8-sig", errors="replace")
    return of_text(text, has_headings=path.suffix.lower() in MARKDOWN)
