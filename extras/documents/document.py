"""Lists the documents in a folder and reads one of them; the content of each is untrusted."""

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from activities.toolbox.extra import MissingPackage
from activities.toolbox.pages import MAX_TITLE, Document, Page, clean, of_text
from extras.documents.html import text_of
from workflows.text import decode_text, normalized


class UnreadableDocument(Exception):
    """A document cannot be read; the message says why, e.g. "it is encrypted"."""


CHILD = Path(__file__).with_name("pdf_child.py")
SECONDS = 5
"""CPU seconds after which the child begins no page; the kernel ends it after 2 times that, or 4 times in real time."""
MEGABYTES = 512  # memory limit of the process
NO_PYPDF = 3  # the exit code of the process if pypdf is not installed
_SLOW = "it takes too long to read"
_KILLED = {-signal.SIGALRM, -signal.SIGXCPU, -signal.SIGKILL}


def read_pdf(
    file: BinaryIO, *, first: int, max_text: int, seconds: int = SECONDS, megabytes: int = MEGABYTES
) -> Document:
    """Read pages of a PDF from number `first` on, up to `max_text` characters or `seconds` of CPU time, in a child.

    Raises UnreadableDocument for a file that is no PDF, broken, encrypted or slow, and MissingPackage without pypdf.
    """
    numbers = map(str, (first, max_text, seconds, megabytes))
    try:
        child = subprocess.run(  # noqa: S603 - the command is our own; the file is only its standard input
            [sys.executable, "-I", str(CHILD), *numbers],
            stdin=file,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            start_new_session=True,  # a Ctrl-C must not reach it: the worker lets its tools finish
            timeout=4 * seconds + 4,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UnreadableDocument(_SLOW) from None
    if child.returncode == NO_PYPDF:
        raise MissingPackage("pypdf")
    if child.returncode:
        raise UnreadableDocument(_SLOW if child.returncode in _KILLED else "it is no PDF, or a broken one")
    return _document(json.loads(child.stdout), first)


def _document(found: dict[str, Any], first: int) -> Document:
    """Make the Document of what `pdf_child.py` printed; raises UnreadableDocument if it could not read the PDF."""
    if "why" in found:
        raise UnreadableDocument(found["why"])
    texts: list[str | None] = found["pages"]
    pages = [Page(number, 1, clean(text)) for number, text in enumerate(texts, first) if text is not None]
    bad = [str(number) for number, text in enumerate(texts, first) if text is None]
    notes = [f"page {', '.join(bad[:10])}{' and others' if bad[10:] else ''} cannot be read"] if bad else []
    if pages and not any(page.text.strip() for page in pages):
        notes.append("its pages hold no text, perhaps pictures of it")
    title = " ".join(clean(found["title"]).split())[:MAX_TITLE]
    return Document(title, pages, first + len(texts) - 1, found["of"], has_headings=False, notes=notes)


MAX_FILE, MAX_PDF = 2_000_000, 50_000_000  # bytes of a text, and of a PDF with its pictures
MAX_FILES = 10_000
TEXT, MARKDOWN, HTML, PDF = (".txt",), (".md", ".markdown"), (".html", ".htm"), (".pdf",)
SUFFIXES = TEXT + MARKDOWN + HTML + PDF


def documents(root: Path) -> dict[str, Path]:
    """The first `MAX_FILES` documents below `root` by their relative names; links that lead out of it are ignored.

    What cannot be followed or listed, such as a link to itself or a folder of somebody else, is among them: `read` says
    why it is left out.
    """
    return dict(islice(_files(root.resolve()), MAX_FILES))


def read(path: Path, *, first: int = 1, max_text: int = MAX_FILE) -> Document:
    """Read a document of `documents`: a PDF from page `first` on, up to `max_text` characters; any other one whole.

    Raises UnreadableDocument, or MissingPackage for a package that this format needs.
    """
    limit = MAX_PDF if path.suffix.lower() in PDF else MAX_FILE
    with _opened(path) as file:
        if os.fstat(file.fileno()).st_size > limit:
            raise UnreadableDocument(f"larger than {limit:,} bytes")
        if path.suffix.lower() in PDF:
            return read_pdf(file, first=first, max_text=max_text)
        try:
            content = file.read(limit)
        except OSError as error:
            raise UnreadableDocument(f"the worker cannot read it: {error.strerror}") from None
    if path.suffix.lower() in HTML:
        page = text_of(content)
        notes = [f"it goes on, but {page.cut}"] if page.cut else []
        return of_text(page.text, title=page.title, has_headings=True, notes=notes)
    return of_text(decode_text(content, errors="replace"), has_headings=path.suffix.lower() in MARKDOWN)


def _files(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the name and the path of each document below `root`, sorted; folders with a leading dot are left out."""
    closed = list[Path]()
    walk = os.walk(root, onerror=lambda error: closed.append(Path(error.filename)))  # follows no links to folders
    for folder, folders, names in walk:
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(folder, name)
            if path.suffix.lower() in SUFFIXES and (target := _target(path, root)) is not None:
                yield _shown(path, root), target
    yield from ((_shown(path, root), path) for path in closed)


def _target(path: Path, root: Path) -> Path | None:
    """The file that `path` names, through links inside `root`; None for what is no document, or leads out of `root`."""
    try:
        target = path.resolve(strict=True) if path.is_symlink() else path
        return (
            target if target.is_relative_to(root) and target.suffix.lower() in SUFFIXES and target.is_file() else None
        )
    except FileNotFoundError:
        return None  # deleted meanwhile, or a link to nothing
    except (OSError, RuntimeError):  # no permission, or a loop of links, which pathlib reports as a RuntimeError
        return path


def _shown(path: Path, root: Path) -> str:
    name = path.relative_to(root).as_posix().encode(errors="replace").decode()  # not all names are UTF-8
    return normalized("NFC", name)


def _opened(path: Path) -> BinaryIO:
    """Open a regular file without following a link. Raises UnreadableDocument if that is impossible."""
    try:
        # Meanwhile the file may have been replaced by a link (it is not followed) or a pipe (opening must not block).
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise UnreadableDocument(f"the worker cannot open it: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise UnreadableDocument("it is not a file")
    return os.fdopen(handle, "rb")
