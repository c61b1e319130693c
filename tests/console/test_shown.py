"""Commands that are shown, and sentences: they can be copied, and end once."""

import shlex

import pytest

from client.problem import Problem
from console.render.command import starter


@pytest.mark.parametrize("id", ["a b", "x; rm -rf ~", "it's", "$HOME", "tä"])
def test_a_shown_command_means_its_id(id: str) -> None:
    """A shell reads it back as one word."""
    assert shlex.split(starter("show", id, "--follow")) == ["python", "starter.py", "show", id, "--follow"]


def test_a_usual_id_is_shown_as_it_is() -> None:
    """No quotes where none are needed, and nothing that draws."""
    assert starter("show", "book-a-slot") == "python starter.py show book-a-slot"
    assert "\x1b" not in starter("show", "\x1b[31m")


@pytest.mark.parametrize(
    ("reason", "remedy", "sentence"),
    [
        ("It is not there", "look", "It is not there: look."),
        ("It is not there.", "look", "It is not there: look."),
        ("It is not there", "did you mean this?", "It is not there: did you mean this?"),
        ("It is not there", "look.", "It is not there: look."),
    ],
)
def test_a_problem_ends_once(reason: str, remedy: str, sentence: str) -> None:
    """With one sign."""
    assert str(Problem("x", reason, remedy)) == sentence
