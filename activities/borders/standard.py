"""The standard library: the verdict on each exception of the operating system, and of json."""

import errno
from collections.abc import Mapping

from activities.borders.table import Choice, Proof, Row, Table, Verdict
from workflows.faults import Code

_CUT = Row(Code.UNREACHABLE, "The connection broke or could not be made.", Proof.UNKNOWN)
_UNSENT = Row(Code.UNREACHABLE, "No connection could be made; nothing was sent.", Proof.NOT_SENT)
_FULL = Row(
    Code.QUOTA_EXHAUSTED,
    "The worker's disk is full, or it has too many open files: free space, or raise that limit.",
    Proof.UNKNOWN,
)
_TOO_LONG = Row(Code.INVALID_INPUT, "The name is too long: choose a shorter one.", Proof.REFUSED)
_BUG = Row(Code.BUG, "The operating system rejected a call of the tool: fix the tool or the machine.", Proof.UNKNOWN)

_BY_NUMBER: Mapping[int, Row] = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EMFILE: _FULL,
    errno.ENFILE: _FULL,
    errno.ENETUNREACH: _CUT,
    errno.EHOSTUNREACH: _CUT,
    errno.ENETDOWN: _CUT,
    errno.ENAMETOOLONG: _TOO_LONG,
}


def _by_number(error: OSError) -> Verdict:
    return _BY_NUMBER.get(error.errno or 0, _BUG).verdict()


def _gone(reason: str) -> Row:
    return Row(Code.BUG, reason, Proof.UNKNOWN)


TABLE: Table = {
    "builtins.OSError": Choice("its errno", {errno.errorcode[n]: row for n, row in _BY_NUMBER.items()}, _by_number),
    "builtins.TimeoutError": Row(Code.TIMEOUT, "The tool did not answer in time.", Proof.UNKNOWN),
    "builtins.ConnectionError": _CUT,
    "builtins.ConnectionRefusedError": _UNSENT,
    "socket.gaierror": _UNSENT,
    "builtins.BlockingIOError": Row(Code.BUSY, "The resource is in use at the moment.", Proof.UNKNOWN),
    "builtins.InterruptedError": Row(Code.BUSY, "The call was interrupted.", Proof.UNKNOWN),
    "builtins.ChildProcessError": _gone("A process that the tool started is gone: fix the tool."),
    "builtins.ProcessLookupError": _gone("A process that the tool needs is gone: fix the tool."),
    "builtins.FileNotFoundError": Row(
        Code.NOT_FOUND, "There is no such file or folder: look for it under another name.", Proof.REFUSED
    ),
    "builtins.FileExistsError": Row(
        Code.CONFLICT, "A file with this name exists already: choose another name.", Proof.REFUSED
    ),
    "builtins.IsADirectoryError": Row(
        Code.INVALID_INPUT, "This is a folder, not a file: choose a file.", Proof.REFUSED
    ),
    "builtins.NotADirectoryError": Row(
        Code.INVALID_INPUT, "This is a file, not a folder: choose a folder.", Proof.REFUSED
    ),
    "builtins.PermissionError": Row(
        Code.FORBIDDEN, "The worker may not touch this file: give it the permission.", Proof.REFUSED
    ),
    "json.decoder.JSONDecodeError": Row(Code.UNEXPECTED_RESULT, "The response is no JSON.", Proof.UNKNOWN),
}
