"""The child process that reads one PDF: the file is on standard input, its text goes to standard output as JSON.

Reading a malicious PDF may take endless time or memory. So a PDF is read in a process of its own: the kernel enforces
the limits of memory and time, and the process does not have the worker's environment variables. The process is started
by the path of this file and with `-I`, because modules of this folder would hide modules of the standard library.
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

STREAM = 10_000_000  # bytes of one decompressed stream; a stream of text rarely has 1/100 of it
MAX_PAGES = 20_000
_PR_SET_PDEATHSIG = 1
MAX_PAGE = 200_000  # characters of a page; more are not credible


def main() -> None:
    """Print the pages of the PDF on standard input as JSON; arguments: first page, characters, CPU seconds, MB."""
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
    """Limit this process to 2 * `seconds` of CPU time, 4 * `seconds` of real time and `memory` bytes."""
    if sys.platform == "linux":  # it ends with the worker, whose thread waits for it
        with suppress(ImportError, OSError, AttributeError):
            import ctypes

            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.alarm(4 * seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (2 * seconds, 2 * seconds))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(ValueError, OSError):  # macOS has this limit but does not accept it
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def _read(first: int, max_text: int, seconds: float) -> dict[str, Any]:
    """The title, the number of pages, and texts of pages from `first` on, up to both limits; or why there are none."""
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


def _texts(reader: pypdf.PdfReader, first: int, last: int) -> Iterator[str | None]:
    """Yield the text of each page from `first` to `last`; None for a page that is unreadable or has too much text."""
    for number in range(first, last + 1):
        try:
            text = reader.pages[number - 1].extract_text()
        except Exception:  # any error of pypdf: the other pages may be readable
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
