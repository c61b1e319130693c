"""smtplib against a mail server on loopback that replies as it is told."""

import smtplib
from collections.abc import Mapping

import pytest

from activities.borders import judge
from activities.borders.described import describe
from activities.borders.table import Proof
from runtime.dev_server import free_port
from tests.provocations.mail import mail_server
from workflows.faults.fault import Code

HIDDEN = "sk-secret"


def send(port: int, *, recipients: int = 1) -> None:
    """Send a message, with a login."""
    with smtplib.SMTP("127.0.0.1", port, local_hostname="worker", timeout=5) as client:
        client.login("ann", HIDDEN)
        to = [f"{number}@shop.example" for number in range(recipients)]
        client.sendmail("ann@shop.example", to, "hello")


@pytest.mark.parametrize(
    ("replies", "code", "proves"),
    [
        ({"HELLO": "554 no service"}, Code.REFUSED, Proof.REFUSED),
        ({"HELLO": "421 closing"}, Code.UNREACHABLE, Proof.REFUSED),
        ({"HELLO": "220 ready", "EHLO": "500 what", "HELO": "421 closing"}, Code.UNREACHABLE, Proof.REFUSED),
        ({"AUTH": f"535 {HIDDEN}"}, Code.UNAUTHORIZED, Proof.REFUSED),
        ({"AUTH": "454 later"}, Code.BUSY, Proof.REFUSED),
        ({"EHLO": "250 mail"}, Code.MALFORMED_SCHEMA, Proof.REFUSED),
        ({"MAIL": "451 later"}, Code.BUSY, Proof.REFUSED),
        ({"MAIL": "530 login"}, Code.UNAUTHORIZED, Proof.REFUSED),
        ({"RCPT": "550 nobody"}, Code.REFUSED, Proof.REFUSED),
        ({"RCPT": "553 what"}, Code.INVALID_INPUT, Proof.REFUSED),
        ({"RCPT": "450 greylisted"}, Code.BUSY, Proof.REFUSED),
        ({"RCPT": "452 full"}, Code.BUSY, Proof.REFUSED),
        ({"DATA": "552 too large"}, Code.INVALID_INPUT, Proof.REFUSED),
        ({"BODY": "554 spam"}, Code.REFUSED, Proof.REFUSED),
        ({"BODY": "452 no room"}, Code.BUSY, Proof.REFUSED),
        ({"BODY": "459 odd"}, Code.BUSY, Proof.REFUSED),
        ({"BODY": "599 odd"}, Code.REFUSED, Proof.REFUSED),
        ({"BODY": ""}, Code.UNREACHABLE, Proof.UNKNOWN),
        ({"MAIL": ""}, Code.UNREACHABLE, Proof.UNKNOWN),
    ],
    ids=lambda value: " ".join(f"{word}={reply}" for word, reply in value.items()) if isinstance(value, dict) else None,
)
def test_the_servers_reply_decides(replies: Mapping[str, str], code: Code, proves: Proof) -> None:
    """A lost answer to a message says nothing of it; and no fault shows what the server said."""
    with mail_server(replies) as port, pytest.raises(smtplib.SMTPException) as raised:
        send(port)
    verdict = judge(raised.value)

    assert (verdict.fault.code, verdict.proves) == (code, proves)
    assert HIDDEN not in verdict.fault.model_dump_json()


def test_a_message_that_some_of_several_do_not_get_is_none_of_an_exception() -> None:
    """smtplib returns them: what a tool does with that is the tool's."""
    with mail_server({}) as port:
        send(port, recipients=2)


def test_no_server_is_no_connection() -> None:
    """Nothing was sent."""
    with pytest.raises(OSError) as raised:
        send(free_port())
    verdict = judge(raised.value)

    assert (verdict.fault.code, verdict.proves) == (Code.UNREACHABLE, Proof.NOT_SENT)


def test_classify_shows_no_number_of_the_operating_system() -> None:
    """SMTPException is a child of OSError, whose numbers say nothing of it."""
    said = describe("smtplib.SMTPDataError", {})

    assert "by the code of the server's reply" in said and "ECONNREFUSED" not in said


@pytest.mark.parametrize("name", ["shutil.Error", "tarfile.ReadError"])
def test_classify_shows_no_number_for_a_child_that_nobody_knows(name: str) -> None:
    """It is a bug, whatever its number: a library may count otherwise."""
    said = describe(name, {})

    assert "no table knows it" in said and "ECONNREFUSED" not in said
