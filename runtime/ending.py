"""How our processes end."""

import os
import sys
from typing import NoReturn


def leave(code: int) -> NoReturn:
    """End the process with `code`, now that all work is done and everything is closed.

    Threads of Temporal's core may still call into Python while the interpreter is being taken apart, which kills the
    process with 134 or 139 in a few of a hundred runs; exit codes are a promise, so that part is left out.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # it was closed before we began (`>&-`)
            stream.flush()
    os._exit(code)
