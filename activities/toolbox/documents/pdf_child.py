"""The process that reads one PDF: the file on standard input, its text as JSON on standard output.

A malicious PDF may use endless time or memory. So it is read in a process without the worker's environment, whose
limits of memory and time the kernel enforces. It runs by its path and with `-I`, because module names of this folder
would hide those of the standard library.
"""

import io
import json
import logging
import resource
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

try:
    import pypdf
    from pypdf.errors import DependencyError
except ImportError:  # the extra `documents` is not installed
    sys.exit(3)

STREAM = 10_000_000  # bytes of one decompressed stream; streams of text rarely have a hundredth
MAX_PAGES = 20_000
MAX_PAGE = 200_000  # characters of a page; no real page has more


def main() -> None:
    """Print the pages from `first` on, until there are `max_text` characters or `seconds` of CPU time are used."""
    first, max_text, seconds, megabytes = map(int, sys.argv[1:])
    _limit(seconds, megabytes * 1_000_000)
    logging.disable()
    try:
        with pypdf.apply_configuration(
            zlib_maximum_output_length=STREAM,
            lzw_maximum_output_length=STREAM,
            run_length_maximum_output_length=STREAM,
            array_based_stream_maximum_output_length=STREAM,
            stream_decoding_work_maximum_length=4 * STREAM,
            page_tree_maximum_entries=MAX_PAGES,
            jbig2dec_binary=None,
        ):
            found = _read(first, max_text, seconds)
    except DependencyError:  # a cipher that needs another library
        found = {"why": "it is encrypted"}
    except MemoryError:
        found = {"why": "it needs too much memory to read"}
    json.dump(found, sys.stdout)


def _limit(seconds: int, memory: int) -> None:
    signal.alarm(4 * seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (2 * seconds, 2 * seconds))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(ValueError, OSError):  # macOS has the limit but does not take it
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def _read(first: int, max_text: int, seconds: float) -> dict[str, Any]:
    reader = pypdf.PdfReader(io.BytesIO(sys.stdin.buffer.read()))
    if reader.is_encrypted and not reader.decrypt(""):
        return {"why": "it is encrypted"}
    of, pages = len(reader.pages), list[str | None]()
    for text in _texts(reader, first, of):
        pages.append(text)
        max_text -= len(text or "")
        if max_text < 0 or time.process_time() > seconds:
            break
    return {"title": _title(reader), "of": of, "pages": pages}


def _texts(reader: pypdf.PdfReader, first: int, of: int) -> Iterator[str | None]:
    for number in range(first, of + 1):
        try:
            text = reader.pages[number - 1].extract_text()
        except Exception:  # total: the other pages may be readable
            yield None
        else:
            yield text if len(text) <= MAX_PAGE else None


def _title(reader: pypdf.PdfReader) -> str:
    try:
        return str((reader.metadata and reader.metadata.title) or "")
    except Exception:  # a broken title is no title
        return ""


if __name__ == "__main__":
    main()
