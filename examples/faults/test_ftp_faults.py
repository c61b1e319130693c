"""Each exception is what a user expects, and the mapping is one that Replan takes: `pytest` in this folder."""

import ftplib
import subprocess
import sys

import pytest
from ftp_faults import CODES, FAULTS, by_reply


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ftplib.error_perm("550 No such file."), "not_found"),
        (ftplib.error_perm("530 Login incorrect."), "unauthorized"),
        (ftplib.error_temp("450 File busy."), "busy"),
        (ftplib.error_temp("499 Something."), "server_error"),
        (ftplib.error_perm("599 Something."), "refused"),
        (ftplib.error_perm("words without a code"), "refused"),
    ],
    ids=str,
)
def test_the_code_of_the_reply_decides(error: ftplib.Error, code: str) -> None:
    """What follows is in docs/errors.md."""
    assert by_reply(error) == code


def test_each_class_of_the_library_is_declared() -> None:
    """A class that a new version brings fails here, until somebody says what it is."""
    assert {*ftplib.Error.__subclasses__()} == {*FAULTS}


@pytest.mark.parametrize("name", [raised.__name__ for raised in FAULTS])
def test_a_worker_knows_the_class(name: str) -> None:
    """Once this package is installed."""
    command = [sys.executable, "-m", "replan", "worker", "--classify", f"ftplib.{name}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert "no table knows it" not in done.stdout and "faults_not_loaded" not in done.stderr


def test_no_reply_is_shown() -> None:
    """A server's text is foreign: it may have secrets, or instructions for a model."""
    assert by_reply(ftplib.error_perm("550 sk-secret")) in CODES.values()
