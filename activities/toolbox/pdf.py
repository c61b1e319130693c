"""PDF as pages of text, read by `pypdf` in a process of its own."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, BinaryIO

from activities.toolbox.document import MAX_TITLE, Document, Page, Unreadable, clean

CHILD = Path(__file__).with_name("pdf_child.py")
SECONDS = 5
"""Of the processor, after which no further page of a file is begun; twice that ends the process, as does four times
that by the clock.
"""
MEGABYTES = 512
"""Memory that the process may ask for."""
_SLOW = "it takes too long to read"
_KILLED = {-signal.SIGALRM, -signal.SIGXCPU, -signal.SIGKILL}


def read_pdf(
    file: BinaryIO, *, first: int, max_text: int, seconds: int = SECONDS, megabytes: int = MEGABYTES
) -> Document:
    """Read the pages from number `first` on, until there are `max_text` characters or time is up.

    Raises:
        Unreadable: it is broken, encrypted, or made so that reading it takes too much.
    """
    numbers = map(str, (first, max_text, seconds, megabytes))
    try:
        child = subprocess.run(  # noqa: S603 - the command is our own; the file is only its standard input
            [sys.executable, "-I", str(CHILD), *numbers],
            stdin=file,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            start_new_session=True,  # a Ctrl-C is for the worker, which lets its tools finish
            timeout=4 * seconds + 4,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unreadable(_SLOW) from None
    if child.returncode:
        raise Unreadable(_SLOW if child.returncode in _KILLED else "it is no PDF, or a broken one")
    return _document(json.loads(child.stdout), first)


def _document(found: dict[str, Any], first: int) -> Document:
    if "why" in found:
        raise Unreadable(found["why"])
    texts: list[str | None] = found["pages"]
    pages = [Page(number, 1, clean(text)) for number, text in enumerate(texts, first) if text is not None]
    bad = [str(number) for number, text in enumerate(texts, first) if text is None]
    notes = [f"page {', '.join(bad[:10])}{' and others' if bad[10:] else ''} cannot be read"] if bad else []
    if pages and not any(page.text.strip() for page in pages):
        notes.append("its pages hold no text, perhaps pictures of it")
    title = " ".join(clean(found["title"]).split())[:MAX_TITLE]
    return Document(title, pages, first + len(texts) - 1, found["of"], has_headings=False, notes=notes)
