"""The standard library: the verdict on each exception of the operating system, asyncio, queues and subprocesses.

Also on those of tenacity, with which a tool's own retries end. The errors of Python itself (TypeError, KeyError ...)
have no row: they are bugs of the tool, and a row for ValueError would also cover every library's children of it.
"""

import errno
import functools
import socket
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from activities.borders import judge
from activities.borders.service_api import refused, unknown, unsent
from activities.borders.table import MAX_CARRIED, Cases, Proof, Row, Table, Verdict, frames, qualified
from workflows.faults.fault import Code

_CUT = unknown(Code.UNREACHABLE, "The connection broke or could not be made.")
_UNSENT = unsent(Code.UNREACHABLE, "No connection could be made; nothing was sent.")
_TIMEOUT = unknown(Code.TIMEOUT, "The tool did not answer in time.")
# A socket that does not block may have sent a part.
_BLOCKED = unknown(Code.BUSY, "The resource is in use at the moment.")
_DENIED = refused(Code.FORBIDDEN, "The worker may not use this file, address or process: give it the permission.")
_REJECTED = unknown(Code.BUG, "The operating system rejected a call of the tool: fix the tool or the machine.")

_BY_ERRNO: Mapping[str, Row] = {
    # A router's answer may also end a connection that was in use; only where it was raised can prove more.
    **dict.fromkeys(("ENETUNREACH", "EHOSTUNREACH", "EHOSTDOWN", "ENETDOWN", "ENETRESET", "ENOTCONN"), _CUT),
    **dict.fromkeys(("ECONNRESET", "ECONNABORTED", "EPIPE", "ESHUTDOWN"), _CUT),
    "ECONNREFUSED": _UNSENT,
    "ETIMEDOUT": _TIMEOUT,
    "EADDRNOTAVAIL": unsent(
        Code.UNREACHABLE, "The worker's machine does not have this address, or no free port for it; nothing was sent."
    ),
    "EADDRINUSE": unsent(Code.BUSY, "Another program uses this address; nothing was sent."),
    "ENOBUFS": unknown(Code.BUSY, "The worker's machine has no free buffers for its network."),
    **dict.fromkeys(("EAGAIN", "EWOULDBLOCK", "EALREADY", "EINPROGRESS"), _BLOCKED),
    "EINTR": unknown(Code.BUSY, "The call was interrupted."),
    "EBUSY": refused(Code.BUSY, "The file or device is in use at the moment."),
    "ETXTBSY": refused(Code.BUSY, "The program is running, or is being written, at the moment."),
    "EDEADLK": refused(Code.BUSY, "A lock of the file is held by a program that waits for this one."),
    # The file was replaced on the file server: opening it again helps.
    "ESTALE": unknown(Code.UNREACHABLE, "The file server no longer knows the opened file."),
    # What was written before the disk was full, or failed, may stay.
    "ENOSPC": unknown(Code.QUOTA_EXHAUSTED, "The worker's disk is full: free some space."),
    "EDQUOT": unknown(Code.QUOTA_EXHAUSTED, "The worker's quota of the disk is used up: raise it."),
    "EFBIG": unknown(Code.QUOTA_EXHAUSTED, "The file is larger than the worker or its disk allows: raise the limit."),
    "ENOMEM": unknown(Code.QUOTA_EXHAUSTED, "The worker's machine lacks memory: give it more."),
    "EIO": unknown(Code.NEEDS_PERSON, "A disk or device of the worker's machine failed: check it."),
    "EMFILE": unsent(Code.QUOTA_EXHAUSTED, "The worker has too many open files: raise that limit."),
    "ENFILE": unsent(Code.QUOTA_EXHAUSTED, "The worker's machine has too many open files: raise that limit."),
    "ENOLCK": refused(Code.QUOTA_EXHAUSTED, "The worker's machine gives no more locks of files."),
    **dict.fromkeys(("EACCES", "EPERM"), _DENIED),
    "EROFS": refused(Code.FORBIDDEN, "The file system is read-only: let the worker write to it."),
    "ENOENT": refused(Code.NOT_FOUND, "There is no such file or folder: look for it under another name."),
    "EEXIST": refused(Code.CONFLICT, "A file with this name exists already: choose another name."),
    "ENOTEMPTY": refused(Code.CONFLICT, "The folder is not empty: choose another, or empty it first."),
    "EISDIR": refused(Code.INVALID_INPUT, "This is a folder, not a file: choose a file."),
    "ENOTDIR": refused(Code.INVALID_INPUT, "This is a file, not a folder: choose a folder."),
    "ENAMETOOLONG": refused(Code.INVALID_INPUT, "The name is too long: choose a shorter one."),
    "ELOOP": refused(Code.INVALID_INPUT, "The path leads through too many links: choose another."),
    "E2BIG": refused(Code.INVALID_INPUT, "The arguments of a program are too long: give less."),
    "EXDEV": refused(Code.BUG, "The tool renames a file onto another file system: use shutil.move in the tool."),
    "ECHILD": unknown(Code.BUG, "A process that the tool started is gone: fix the tool."),
    "ESRCH": unknown(Code.BUG, "A process that the tool needs is gone: fix the tool."),
}
"""Rows by the name of an errno."""
_ROWS = {getattr(errno, name): row for name, row in _BY_ERRNO.items() if hasattr(errno, name)}

_WRONG_LOOK_UP = unsent(
    Code.BUG, "The tool looks up a host in a way that does not exist; nothing was sent: fix the tool."
)
_UNKNOWN_HOST = unsent(Code.UNREACHABLE, "The host's name has no address; nothing was sent: check the name.")
_NO_LOOK_UP = unsent(Code.UNREACHABLE, "The host's name could not be looked up; nothing was sent.")
_BY_LOOK_UP: Mapping[str, Row] = {
    "EAI_AGAIN": unsent(Code.UNREACHABLE, "The name server gave no answer; nothing was sent."),
    **dict.fromkeys(("EAI_NONAME", "EAI_NODATA", "EAI_ADDRFAMILY"), _UNKNOWN_HOST),
    **dict.fromkeys(("EAI_BADFLAGS", "EAI_FAMILY", "EAI_SERVICE", "EAI_SOCKTYPE"), _WRONG_LOOK_UP),
}
"""Rows by the name of the error number of a failed look-up of a host; the numbers differ between systems."""
_LOOK_UPS = {getattr(socket, name): row for name, row in _BY_LOOK_UP.items() if hasattr(socket, name)}

_CONNECTING = {("socket", "create_connection"), ("asyncio.base_events", "create_connection")}
"""Modules and functions that make a connection, and return before a request is sent on it."""


def _was_connecting(error: BaseException) -> bool:
    """Whether an exception was raised while a connection was made.

    Class and number do not show this: ETIMEDOUT may also end a connection that was in use, and for a host with several
    addresses asyncio may raise an OSError without a number.
    """
    return any((module, frame.f_code.co_name) in _CONNECTING for module, frame in frames(error))


def _by_errno(error: OSError) -> Verdict:
    number: object = error.errno
    row = _ROWS.get(number, _REJECTED) if isinstance(number, int) else _REJECTED
    if (row in (_CUT, _TIMEOUT) or number is None) and _was_connecting(error):
        row = _UNSENT
    return row.verdict()


def _unless_connecting(row: Row) -> Cases:
    """The entry with `row`, or with _UNSENT if the exception was raised while a connection was made."""

    def decide(error: BaseException) -> Verdict:
        return (_UNSENT if _was_connecting(error) else row).verdict()

    return Cases("where it was raised", {"while connecting": _UNSENT}, decide, otherwise=row)


def _by_look_up_number(error: OSError) -> Verdict:
    number: object = error.errno
    return (_LOOK_UPS.get(number, _NO_LOOK_UP) if isinstance(number, int) else _NO_LOOK_UP).verdict()


_NO_PROGRAM = unsent(
    Code.NEEDS_PERSON,
    "A program that the tool runs is not on the worker's machine, or cannot be run there: install it.",
)


def _while_starting(error: OSError) -> Verdict | None:
    """The verdict on a missing program; None if the folder (`cwd`) is missing, or no program was being started."""
    for module, frame in frames(error):
        if (module, frame.f_code.co_name) == ("subprocess", "_execute_child"):
            folder: object = frame.f_locals.get("cwd")
            return None if folder is not None and error.filename == folder else _NO_PROGRAM.verdict()
    return None


# What an exit code means, only the tool can know: it may be a rejection as well as an outage, after any effect.
_FAILED = unknown(
    Code.BUG, "A program that the tool ran failed: declare in raises={CalledProcessError: ...} what it means."
)
_KILLED = unknown(Code.BUG, "A program that the tool ran was killed: find out by what, e.g. for lack of memory.")


def _by_exit_code(error: Any) -> Verdict:
    code = getattr(error, "returncode", None)
    if not isinstance(code, int):
        return _FAILED.verdict()
    return (_KILLED if code < 0 else _FAILED).verdict(observed={"exit_code": int(code)})


_NEVER_RIGHT = unknown(
    Code.UNEXPECTED_RESULT, "The tool retried until it gave up, and no result was the one that it waits for."
)
_UNREADABLE = unknown(Code.BUG, "The tool retried until it gave up, and does not say why: fix the tool.")


def _by_last_attempt(error: BaseException) -> Verdict:
    """The verdict on the exception of the last attempt, which proves nothing if there were several attempts."""
    cause: BaseException | None = error
    attempts: list[object] = []
    while isinstance(last := getattr(cause, "last_attempt", None), Future) and len(attempts) < MAX_CARRIED:
        if not last.done() or last.cancelled():
            return _UNREADABLE.verdict()
        attempts.append(getattr(last, "attempt_number", None))
        cause = last.exception()
    if cause is None:
        return _NEVER_RIGHT.verdict()
    if not attempts or hasattr(cause, "last_attempt"):
        return _UNREADABLE.verdict()
    if qualified(type(cause)) == "tenacity.TryAgain":  # as tenacity's `reraise` does
        cause = cause.__cause__ or cause.__context__ or cause
    verdict = judge(cause)
    # An earlier attempt may have had an effect, whatever the last one proves.
    return verdict if attempts == [1] * len(attempts) else replace(verdict, proves=Proof.UNKNOWN)


_bug = functools.partial(unknown, Code.BUG)
_LOOP = _bug("The tool uses asyncio or a future wrongly: fix the tool.")
_POOL = _bug(
    "A thread or process of the tool's pool ended, e.g. for lack of memory: make a new pool, and find out why."
)
_CLOSED = _bug("The tool uses a queue that was shut down: fix the tool.")
_QUEUE_FULL = refused(Code.BUSY, "A queue of the tool is full.")

TABLE: Table = {
    # The number of a library's own class may be the library's, too: SSLError(1, ...).
    "builtins.OSError": Cases("its errno", _BY_ERRNO, _by_errno, otherwise=_REJECTED, covers_children=False),
    "builtins.TimeoutError": _unless_connecting(_TIMEOUT),
    "builtins.ConnectionError": _unless_connecting(_CUT),
    "builtins.ConnectionRefusedError": _BY_ERRNO["ECONNREFUSED"],
    "builtins.BlockingIOError": _BY_ERRNO["EAGAIN"],
    "builtins.InterruptedError": _BY_ERRNO["EINTR"],
    "builtins.ChildProcessError": _BY_ERRNO["ECHILD"],
    "builtins.ProcessLookupError": _BY_ERRNO["ESRCH"],
    "builtins.FileNotFoundError": Cases(
        "where it was raised", {"while a program was started": _NO_PROGRAM}, _while_starting, _BY_ERRNO["ENOENT"]
    ),
    "builtins.FileExistsError": _BY_ERRNO["EEXIST"],
    "builtins.IsADirectoryError": _BY_ERRNO["EISDIR"],
    "builtins.NotADirectoryError": _BY_ERRNO["ENOTDIR"],
    "builtins.PermissionError": _BY_ERRNO["EACCES"],
    "builtins.MemoryError": _bug("The tool ran out of memory: let it hold less at once, or give the worker more."),
    "socket.gaierror": Cases("its number", _BY_LOOK_UP, _by_look_up_number, otherwise=_NO_LOOK_UP),
    "socket.herror": _NO_LOOK_UP,
    "json.decoder.JSONDecodeError": unknown(Code.UNEXPECTED_RESULT, "The response is no JSON."),
    "asyncio.exceptions.IncompleteReadError": unknown(
        Code.UNREACHABLE, "The connection ended before the whole response was read."
    ),
    "asyncio.exceptions.LimitOverrunError": _bug(
        "The response has a longer line than the tool reads: raise `limit=` where the tool opens the stream."
    ),
    "asyncio.exceptions.InvalidStateError": _LOOP,
    "asyncio.exceptions.BrokenBarrierError": _LOOP,
    "asyncio.exceptions.SendfileNotAvailableError": _bug("The tool sends a file where that is not supported: fix it."),
    "asyncio.queues.QueueEmpty": _bug("The tool takes from an empty queue without waiting: await `get()` in the tool."),
    "asyncio.queues.QueueFull": _QUEUE_FULL,
    "asyncio.queues.QueueShutDown": _CLOSED,
    # What another thread or process should have put into the queue may come later, with its effect.
    "_queue.Empty": unknown(Code.TIMEOUT, "Nothing came into a queue of the tool in time."),
    "queue.Full": _QUEUE_FULL,
    "queue.ShutDown": _CLOSED,
    "concurrent.futures._base.Error": _LOOP,
    "concurrent.futures._base.BrokenExecutor": _POOL,
    "subprocess.SubprocessError": _bug("A program that the tool runs could not be started: fix the tool."),
    "subprocess.TimeoutExpired": unknown(Code.TIMEOUT, "A program that the tool ran did not end in time."),
    "subprocess.CalledProcessError": Cases(
        "its exit code", {"below 0, a signal": _KILLED}, _by_exit_code, otherwise=_FAILED
    ),
    "tenacity.RetryError": Cases(
        "the exception of its last attempt", {"a result": _NEVER_RIGHT}, _by_last_attempt, otherwise=_UNREADABLE
    ),
    "tenacity.TryAgain": unknown(Code.BUSY, "The tool asks to be called again."),
}
