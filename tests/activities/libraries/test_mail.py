"""smtplib against a mail server on loopback that replies as it is told."""

import smtplib
from collections.abc import Mapping

import pytest

from activities.borders.described import describe
from activities.borders.table import Proof
from runtime.dev_server import free_port
from tests.activities.libraries.verdicts import HIDDEN, NOT_SENT, REFUSED, UNKNOWN, outcome, raised
from tests.provocations.mail import mail_server
from workflows.faults.fault import Code


def send(port: int, *, recipients: int = 1) -> None:
    """Send a message, with a login."""
    with smtplib.SMTP("127.0.0.1", port, local_hostname="worker", timeout=5) as client:
        client.login("ann", HIDDEN)
        to = [f"{number}@shop.example" for number in range(recipients)]
        client.sendmail("ann@shop.example", to, "hello")


@pytest.mark.parametrize(
    ("replies", "code", "proves"),
    [
        ({"HELLO": "554 no service"}, Code.REFUSED, REFUSED),
        ({"HELLO": "421 closing"}, Code.UNREACHABLE, REFUSED),
        ({"HELLO": "220 ready", "EHLO": "500 what", "HELO": "421 closing"}, Code.UNREACHABLE, REFUSED),
        ({"AUTH": f"535 {HIDDEN}"}, Code.UNAUTHORIZED, REFUSED),
        ({"AUTH": "454 later"}, Code.BUSY, REFUSED),
        ({"EHLO": "250 mail"}, Code.MALFORMED_SCHEMA, REFUSED),
        ({"MAIL": "451 later"}, Code.BUSY, REFUSED),
        ({"MAIL": "530 login"}, Code.UNAUTHORIZED, REFUSED),
        ({"MAIL": "552 too large"}, Code.INVALID_INPUT, REFUSED),
        ({"RCPT": "550 nobody"}, Code.REFUSED, REFUSED),
        ({"RCPT": "553 what"}, Code.INVALID_INPUT, REFUSED),
        ({"RCPT": "450 greylisted"}, Code.BUSY, REFUSED),
        ({"RCPT": "452 full"}, Code.BUSY, REFUSED),
        ({"DATA": "552 too large"}, Code.INVALID_INPUT, REFUSED),
        ({"BODY": "554 spam"}, Code.REFUSED, REFUSED),
        ({"BODY": "452 no room"}, Code.BUSY, REFUSED),
        ({"BODY": "459 odd"}, Code.BUSY, REFUSED),
        ({"BODY": "599 odd"}, Code.REFUSED, REFUSED),
        ({"BODY": ""}, Code.UNREACHABLE, UNKNOWN),
        ({"MAIL": ""}, Code.UNREACHABLE, UNKNOWN),
    ],
    ids=lambda value: " ".join(f"{word}={reply}" for word, reply in value.items()) if isinstance(value, dict) else None,
)
def test_the_servers_reply_decides(replies: Mapping[str, str], code: Code, proves: Proof) -> None:
    """A lost answer to a message says nothing of it; and no fault shows what the server said."""
    with mail_server(replies) as port:
        error = raised(lambda: send(port))

    assert isinstance(error, smtplib.SMTPException)
    assert outcome(error) == (code, proves)


def test_a_message_that_some_of_several_do_not_get_is_none_of_an_exception() -> None:
    """smtplib returns them: what a tool does with that is the tool's; and no server is no connection."""
    with mail_server({}) as port:
        send(port, recipients=2)

    assert outcome(raised(lambda: send(free_port()))) == (Code.UNREACHABLE, NOT_SENT)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("smtplib.SMTPDataError", "by the code of the server's reply"),
        ("shutil.Error", "no table knows it"),
        ("tarfile.ReadError", "no table knows it"),
    ],
)
def test_classify_shows_no_number_of_the_operating_system(name: str, words: str) -> None:
    """They are children of OSError, whose numbers say nothing of them: a library may count otherwise."""
    said = describe(name, {})

    assert words in said and "ECONNREFUSED" not in said
