"""A line of the log that comes back every moment is written once, and then counted."""

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from runtime.repeated_lines import OncePer


def records(*given: tuple[str, str]) -> list[logging.LogRecord]:
    return [logging.LogRecord("asyncio", logging.ERROR, __file__, 1, words, (more,), None) for words, more in given]


def passed(filter: OncePer, *given: tuple[str, str]) -> list[str]:
    return [one.getMessage() for one in records(*given) if filter.filter(one)]


def test_equal_lines_are_written_once() -> None:
    """They are equal if they differ only in what is inserted, or below the first line."""
    given = [(f"no files for %s\nsocket {number}", str(number)) for number in range(1000)]

    assert passed(OncePer(), *given, ("other %s", "line")) == ["no files for 0\nsocket 0", "other line"]


def test_the_next_line_says_how_many_were_left_out() -> None:
    """After its time, so that nobody takes a thousand for one."""
    once = OncePer(seconds=0.0)
    once._passed["asyncio", "full %s", type(None), None] = (0.0, 41)

    assert passed(once, ("full %s", "now")) == ["full now (41 more such lines were left out)"]


def test_faults_of_different_places_are_different_lines() -> None:
    """A traceback of another line of code is not left out because of one that was written."""
    once = OncePer()
    faults = [raised(json.loads, "{"), raised(json.loads, "{,"), raised([].pop)]
    found = [once.filter(failed(one)) for fault in faults for one in (fault, fault)]

    assert found == [True, False, False, False, True, False]


def raised(code: Callable[..., Any], *given: str) -> Exception:
    """What the code raises."""
    with pytest.raises(Exception) as caught:
        code(*given)
    return caught.value


def failed(error: Exception) -> logging.LogRecord:
    caused = (type(error), error, error.__traceback__)
    return logging.LogRecord("uvicorn.error", logging.ERROR, __file__, 1, "Exception", (), caused)


def test_what_is_remembered_is_bounded() -> None:
    once = OncePer()
    for number in range(5000):
        once.filter(*records((f"{number} %s", "")))

    assert len(once._passed) <= 1000
