"""Mail: the verdict on each exception of smtplib, by the code of the server's reply (RFC 5321, RFC 4954, RFC 3207)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from activities.borders import service_api as api
from activities.borders.service_api import field, refused, some, unsent
from activities.borders.table import Cases, Row, Table, Verdict, as_words, named, of_module
from workflows.faults.fault import Code

_LATER = refused(Code.BUSY, "The mail server cannot take the message at the moment.")
_LOGIN = refused(Code.UNAUTHORIZED, "The mail server does not accept the user or the password: correct them.")
_ADDRESS = refused(Code.INVALID_INPUT, "The mail server does not accept an address: correct it.")
_UNSUPPORTED = refused(Code.MALFORMED_SCHEMA, "The mail server does not support a command of the tool: fix the tool.")
_NOT_TAKEN = refused(
    Code.REFUSED, "The mail server does not take the message, or not for this mailbox: choose another address or text."
)
_NO_SERVICE = unsent(Code.UNREACHABLE, "The mail server gives no service to this worker; nothing was sent.")

SMTP: Mapping[str, Row] = named(
    (refused(Code.UNREACHABLE, "The mail server closes the connection, and takes nothing at the moment."), "421"),
    (_LATER, "450 451 454 455"),
    (refused(Code.BUSY, "The mailbox is full, or the mail server has no room at the moment."), "422 452"),
    (_LOGIN, "432 530 534 535 538"),
    (_UNSUPPORTED, "500 502 503 504 555"),
    (_ADDRESS, "501 510 511 512 515 553"),
    (refused(Code.INVALID_INPUT, "The message is larger than the mail server takes: send less."), "523 552"),
    (_NOT_TAKEN, "521 541 550 551 554 556"),
)
"""Rows by the code of a reply; for any other code the first digit decides: 4 for a temporary failure."""


def _row(code: object) -> Row | None:
    if not isinstance(code, int):
        return None
    return SMTP.get(str(code)) or {4: _LATER, 5: _NOT_TAKEN}.get(code // 100)


def _by_reply_code(otherwise: Row) -> Cases:
    def decide(error: Any) -> Verdict | None:
        row = _row(field(error, "smtp_code"))
        words = as_words(field(error, "smtp_error"))
        return replace(row.verdict(observed={"smtp_code": error.smtp_code}), words=words) if row else None

    return Cases(
        "the code of the server's reply", {**SMTP, "another 4xx": _LATER, "another 5xx": _NOT_TAKEN}, decide, otherwise
    )


def _by_recipients(error: Any) -> Verdict | None:
    """The verdict on a message that the server takes for none of its recipients, by the reply for the first one."""
    replies = field(error, "recipients")
    first = next(iter(some(replies.values())), None) if isinstance(replies, dict) else None
    code, *words = first if isinstance(first, tuple) and first else (None,)
    row = _row(code)
    return replace(row.verdict(observed={"smtp_code": code}), words=as_words(*words[:1] or [""])) if row else None


TABLE: Table = of_module(
    "smtplib",
    (_by_reply_code(api.REJECTED), "SMTPResponseException SMTPSenderRefused SMTPDataError"),
    (Cases("the code of the reply for the first recipient", SMTP, _by_recipients, _ADDRESS), "SMTPRecipientsRefused"),
    (_by_reply_code(_LOGIN), "SMTPAuthenticationError"),
    (_by_reply_code(_NO_SERVICE), "SMTPConnectError SMTPHeloError"),
    (_UNSUPPORTED, "SMTPNotSupportedError"),
    # After the message was sent, it may have been taken.
    (api.BROKEN, "SMTPServerDisconnected"),
    (api.CLIENT_BUG, "SMTPException"),
)
