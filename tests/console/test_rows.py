"""Tasks as lines: fitted to a terminal, whole in a file."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.cells import cell_len

from client.listing import Listed
from client.tree import age
from console.commands import list_tasks
from workflows.people.requests import HumanRequest

NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)


def one(number: int, **more: Any) -> Listed:
    """A task of a list."""
    fields = {
        "task_id": f"book-a-slot-for-{number:06}",
        "run_id": "r",
        "task": "book a slot for the team at 14:00, then calculate 18% of 2450",
        "status": "completed",
        "reason": None,
        "started_at": NOW - timedelta(minutes=number),
        "ended_at": None,
        "replans": number,
        "last_fault": "precondition_failed",
        "planner": None,
        "strategy": None,
        "ui_url": None,
        **more,
    }
    return Listed.model_validate(fields)


STRANGE: Sequence[Listed] = [
    one(1),
    one(2, task_id="x" * 300, task="y" * 5000, status="over_budget"),
    one(3, task="预订会议室" * 40, reason="用哪一个?" * 60, status="escalated"),
    one(4, task="a\x1b[31mred\nline\tand tab", replans=None, last_fault=None),
    one(5, task=""),
]


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_list_fits_the_terminal(width: int) -> None:
    """Whatever ids and words are in it, wide letters count twice; an ordinary one leaves room for the task."""
    lines = list_tasks.table(STRANGE, width, NOW)
    ordinary = list_tasks.table([one(1, last_fault="conflict")], 80, NOW)

    below = [line for line in lines if line.startswith("    ")]
    assert len(lines) == 1 + len(STRANGE) + len(below) and 1 < len(below) <= list_tasks.MAX_ROWS
    assert below[-1].endswith(" …") == (width < 200)
    assert max(map(cell_len, lines)) <= width and all(line.replace(" ", "a").isprintable() for line in lines)
    assert "book-a-slot-for-000001  1        conflict    book a slot" in ordinary[1]


def test_a_list_in_a_file_is_whole_and_aligned() -> None:
    """No tabs, no cuts, dates instead of ages, each fact below its own heading, a request with the command first."""
    lines = list_tasks.table(STRANGE, None, NOW)
    heading, row = list_tasks.table([one(1, task="x")], None, NOW)
    *_, request = list_tasks.table([asked("pay needs approval.")], None, NOW)

    assert {line.index("2026-01-02 11:5") for line in lines if "2026" in line} == {13}
    assert "y" * 5000 in lines[2] and "x" * 300 in lines[2] and not any("\t" in line or "…" in line for line in lines)
    assert row[heading.index("REPLANS") : heading.index("LAST FAULT")].split() == ["1"]
    assert row[heading.index("LAST FAULT") :].split() == ["precondition_failed", "x"]
    assert request == "    ? since 0s, `python starter.py answer pay-the-rent`: pay: pay needs approval."


def asked(reason: str) -> Listed:
    """A task that waits for the approval of a call."""
    fields = {"id": "r1", "step": "pay", "kind": "approval", "code": "c", "choices": ["approve"]}
    call = HumanRequest.model_validate({**fields, "reason": reason, "since": NOW, "until": NOW})
    return one(1, status="waiting", request=call, last_fault="needs_approval", task_id="pay-the-rent")


def test_what_a_task_asks_is_whole_at_80_columns() -> None:
    """Wrapped between words, with a command that can be copied, and cut between words only if it is very long.

    The need of an approval is no last fault.
    """
    reason = f"pay needs approval ({' and '.join(['args.amount > 500'] * 6)})."
    heading, row, *below = list_tasks.table([asked(reason)], 80, NOW)
    *_, cut, command = list_tasks.table([asked("because of that " * 100)], 80, NOW)

    assert "needs" not in row and len(heading) <= 80
    assert " ".join(" ".join(below[:-1]).split()) == f"? since 0s, pay: {reason}"
    assert below[-1] == command == "      python starter.py answer pay-the-rent"
    assert max(map(cell_len, below)) <= 80 and not any("…" in line for line in below)
    assert cut.endswith((" because …", " of …", " that …"))


@pytest.mark.parametrize(("seconds", "said"), [(-5, "0s"), (59, "59s"), (60, "1m"), (7200, "2h"), (200_000, "2d")])
def test_an_age_is_in_one_unit(seconds: float, said: str) -> None:
    """The largest that there is one of."""
    assert age(NOW - timedelta(seconds=seconds), NOW) == said
