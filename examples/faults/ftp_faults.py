"""What the exceptions of ftplib are, by the code with which the server's reply begins (RFC 959, section 4.2.2)."""

import ftplib

from replan import fault

CODES = {
    "421": "unreachable",
    "425": "unreachable",
    "426": "unreachable",
    "430": "unauthorized",
    "450": "busy",
    "452": "quota_exhausted",
    "501": "invalid_input",
    "502": "malformed_schema",
    "530": "unauthorized",
    "550": "not_found",
    "552": "quota_exhausted",
    "553": "invalid_input",
}
"""The code of a fault by the code of a reply. docs/errors.md says what follows each."""


def by_reply(error: ftplib.Error) -> str:
    """The code of a fault; a reply that nobody knows may be tried again if it begins with 4.

    Only the first three characters are read: the rest of a reply is the server's own text.
    """
    reply = str(error)[:3]
    return CODES.get(reply, "server_error" if reply.startswith("4") else "refused")


FAULTS = {
    ftplib.error_perm: by_reply,
    ftplib.error_temp: by_reply,
    # What comes after a file was sent says nothing of the file.
    ftplib.error_reply: fault("unexpected_result", applied="unknown"),
    ftplib.error_proto: fault("unreachable", applied="unknown"),
}
