"""Inquiries and findings between a console and a worker of different versions."""

from typing import Any

import pytest

from workflows.inquiries import (
    EffectsFindings,
    EffectsInquiry,
    Findings,
    InquiryInput,
    PruneInquiry,
    ToolsInquiry,
    TranscriptInquiry,
    WorkerInquiry,
)

OLD: dict[str, Any] = {
    "kind": None,
    "task": None,
    "task_id": None,
    "run": None,
    "skip": 0,
    "claim": None,
    "driver": "",
    "before": None,
    "older_than": None,
    "after": "",
    "by": "",
    "claims": [],
}
"""What a console sent with each question when an inquiry had the fields of all questions."""


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ({"about": "worker"}, WorkerInquiry()),
        ({"about": "tools", "kind": "search"}, ToolsInquiry(kind="search")),
        ({"about": "effects", "task_id": "t"}, EffectsInquiry(task_id="t")),
        ({"about": "transcript", "run": "r", "skip": 2}, TranscriptInquiry(run="r", skip=2)),
        ({"about": "prune", "before": "2026-01-02T00:00:00Z"}, PruneInquiry()),
    ],
    ids=lambda given: given["about"] if isinstance(given, dict) else "",
)
def test_a_worker_reads_the_question_of_an_older_console(sent: dict[str, Any], read: object) -> None:
    """Fields of other questions are ignored."""
    assert InquiryInput.model_validate({**OLD, **sent}).root == read


def test_a_question_of_a_newer_console_is_answered_like_one_about_tools() -> None:
    """The console sees from the answer that the worker is too old; no workflow task fails."""
    assert isinstance(InquiryInput.model_validate({"about": "the weather", "where": "here"}).root, ToolsInquiry)


def test_an_older_console_reads_the_answer() -> None:
    """It requires the planner and the tools in every answer."""
    assert {"planner", "tools"} <= EffectsFindings(planner="offline").model_dump(mode="json").keys()


def test_a_console_reads_the_answer_of_an_older_worker() -> None:
    """One that does not know the question tells its tools, and nothing of what was asked."""
    tools = Findings(planner="offline").model_dump_json()

    assert EffectsFindings.model_validate_json(tools).effects is None
