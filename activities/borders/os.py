"""The operating system: the Fault of `OSError` and of its subclasses."""

import errno
import socket

from activities.borders.table import Table, always
from workflows.faults import Code, Fault

_CUT = always(Code.UNREACHABLE, "The connection broke or could not be made.")
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE}


def _by_number(error: OSError) -> Fault:
    if error.errno in _FULL:
        return Fault.of(
            Code.QUOTA_EXHAUSTED,
            "The worker's disk is full, or it has too many open files: free space, or raise that limit.",
        )
    if error.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN):
        return _CUT(error)
    if error.errno == errno.ENAMETOOLONG:
        return Fault.of(Code.INVALID_INPUT, "The name is too long: choose a shorter one.")
    return Fault.of(Code.BUG, "The operating system rejected a call of the tool: fix the tool or the machine.")


TABLE: Table = {
    OSError: _by_number,
    TimeoutError: always(Code.TIMEOUT, "The tool did not answer in time."),
    ConnectionError: _CUT,
    socket.gaierror: _CUT,
    BlockingIOError: always(Code.BUSY, "The resource is in use at the moment."),
    InterruptedError: always(Code.BUSY, "The call was interrupted."),
    ChildProcessError: always(Code.BUG, "A process that the tool started is gone: fix the tool."),
    ProcessLookupError: always(Code.BUG, "A process that the tool needs is gone: fix the tool."),
    FileNotFoundError: always(Code.NOT_FOUND, "There is no such file or folder: look for it under another name."),
    FileExistsError: always(Code.CONFLICT, "A file with this name exists already: choose another name."),
    IsADirectoryError: always(Code.INVALID_INPUT, "This is a folder, not a file: choose a file."),
    NotADirectoryError: always(Code.INVALID_INPUT, "This is a file, not a folder: choose a folder."),
    PermissionError: always(Code.FORBIDDEN, "The worker may not touch this file: give it the permission."),
}
