"""What concerns the whole process: its packages, its secrets, the version of Replan, and how it ends.

Entry scripts import this module first and call `require_packages()` before they import anything that needs a package.
"""

import importlib.util
import os
import sys
import threading
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")

NEEDED = ("temporalio", "pydantic", "structlog", "typer")


def require_packages() -> None:
    """If a needed package is not installed, print the remedy and end the process with exit code 2."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        script = sys.argv[0] or "worker.py"
        _refuse(
            f"This Python ({sys.executable}) has no {', '.join(missing)}: "
            f"run `make demo` once, which makes .venv, then `.venv/bin/python {script} ...`."
        )


SECRETS = (
    "ANTHROPIC_API_KEY",
    "OPENAI_API_KEY",
    "TEMPORAL_API_KEY",
    "REPLAN_STORE",
    "REPLAN_NOTIFY",
    "REPLAN_NOTIFY_SECRET",
    "REPLAN_TOKEN",
    "REPLAN_PROVIDER_SECRET",
)
"""Variables with a secret. For each, a variable such as ANTHROPIC_API_KEY_FILE may name a file with the value."""


def read_secrets() -> None:
    """Set each variable of SECRETS whose `_FILE` variable names a file to the text of the file.

    If the file cannot be read, or both variables are set, print the reason and end the process with exit code 2.
    """
    for name in SECRETS:
        file = os.environ.get(f"{name}_FILE")
        if not file:
            continue
        if os.environ.get(name):
            _refuse(f"{name} and {name}_FILE are both set: unset one of them.")
        try:
            from workflows.text import decode_text  # not at the top: `--help` needs no file

            with open(file, "rb") as opened:  # noqa: PTH123  # pathlib takes a part of the time of `--help`
                os.environ[name] = decode_text(opened.read()).strip()
        except PermissionError:
            user = f"user {os.getuid()}" if hasattr(os, "getuid") else "the user"
            _refuse(
                f"{name}_FILE names {file!r}, which {user} may not read, as whom this process runs: let that user read"
                f" it (`chown`, or `chmod a+r`), or unset {name}_FILE."
            )
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            _refuse(
                f"{name}_FILE names {file!r}, which cannot be read ({why}): correct the path, or unset {name}_FILE."
            )


BAD_USAGE = 2
STAY = "REPLAN_STAY"
SERVICES = ("worker", "serve")


def _refuse(sentence: str) -> NoReturn:
    sys.stderr.write(f"{sentence}\n")
    _stay(BAD_USAGE)
    raise SystemExit(BAD_USAGE)


def _stay(code: int) -> None:
    """If REPLAN_STAY is set, and a service ends because of bad settings (`code` is BAD_USAGE), wait to be stopped."""
    # What restarts containers would start the service again and again, and each start would fail.
    if code == BAD_USAGE and os.environ.get(STAY) and sys.argv[1:2] and sys.argv[1] in SERVICES:
        sys.stderr.write("A new start would end the same way, so this process waits to be stopped (REPLAN_STAY).\n")
        sys.stderr.flush()
        threading.Event().wait()


def version() -> str:
    """The version of Replan; `unknown` in a checkout that was not installed."""
    from importlib import metadata  # it takes a tenth of the time of `--help`

    try:
        return metadata.version("replan")
    except metadata.PackageNotFoundError:
        return "unknown"


def raise_file_limit(limit: int) -> int:
    """Let this process open `limit` files, or as many as its hard limit allows; returns how many files it may open."""
    try:
        import resource
    except ImportError:  # Windows, which has no such limit
        return limit
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    infinite = resource.RLIM_INFINITY
    if soft == infinite or soft >= limit:
        return limit if soft == infinite else soft
    soft = limit if hard == infinite else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft


END_SECONDS = 3.0


def run(work: "Coroutine[Any, Any, T]") -> "T":
    """As `asyncio.run`, but tasks that do not end END_SECONDS after they were cancelled are left behind, for `leave`.

    A replay of the SDK may never end once it was cancelled, and `asyncio.run` would wait for it.
    """
    import asyncio  # not at the top: `--help` does not need it

    runner = asyncio.Runner()
    try:
        return runner.run(work)
    finally:
        left = asyncio.all_tasks(loop := runner.get_loop())
        for task in left:
            task.cancel()
        done, left = loop.run_until_complete(asyncio.wait(left, timeout=END_SECONDS)) if left else (left, left)
        for task in done:
            if not task.cancelled():
                task.exception()  # whoever waited for it has ended; unread, it would be logged with a traceback
        if not left:
            runner.close()


def leave(code: int) -> NoReturn:
    """Flush the output and end the process at once with exit code `code`; the caller has closed everything before.

    If REPLAN_STAY is set and `code` means bad settings, a worker or web server waits instead until it is stopped.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # it was closed before the process began (`>&-`)
            stream.flush()
    _stay(code)
    # The interpreter's own shutdown is skipped: threads of Temporal's core may still call into Python meanwhile, which
    # ends the process with 134 or 139 in a few of a hundred runs.
    os._exit(code)
