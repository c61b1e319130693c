"""Questions of the offline planner: the user decides what no rule decides.

The planner keeps nothing between two requests. A reply belongs to the question whose text it names, so the same
situation always leads to the same question, and then to the same plan.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import date
from typing import TypeVar

from activities.offline.grammar import format_time, parse_day, parse_time
from workflows.planning.situation import Situation
from workflows.plans.proposal import MAX_OPTION, MAX_OPTIONS, Question

MAX_REPEATED = 80
"""The most characters of an unusable reply that the next question repeats."""

T = TypeVar("T")


class Unanswered(Exception):
    """The user must answer `question` before there can be a plan."""

    def __init__(self, question: Question) -> None:
        super().__init__(question.text)
        self.question = question


def ask_user(situation: Situation, text: str, options: Sequence[str], read: Callable[[str], T | None]) -> T:
    """Return the value that `read` finds in the user's newest reply to the question `text`.

    `options` are the answers that the question offers.

    Raises:
        Unanswered: there is no reply, or `read` returned None for the newest reply.
    """
    replies = [word.text for word in situation.words if word.question.endswith(text)]
    if replies and (found := read(replies[-1])) is not None:
        return found
    again = f"{replies[-1][:MAX_REPEATED]!r} cannot be taken. " if replies else ""
    raise Unanswered(Question(text=f"{again}{text}", options=tuple(options[:MAX_OPTIONS])))


def option(value: object) -> str:
    """Write a value as an option of a question: on one line, with at most MAX_OPTION characters."""
    return " ".join(str(value).split())[:MAX_OPTION].strip()


def named_option(reply: str, options: Iterable[str], today: date) -> str | None:
    """Return the option that a reply names, in capital or small letters; None if the reply names no option.

    The reply may write a time or a day as in a task, e.g. `3 pm`.
    """
    at, day = parse_time(reply), parse_day(reply, today)
    spellings = {option(reply).casefold(), *([format_time(at)] if at else []), *([day.isoformat()] if day else [])}
    return next((name for name in options if name.casefold() in spellings), None)
