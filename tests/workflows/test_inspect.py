"""Inquiries and findings between a console and a worker of different versions."""

import uuid
from typing import Any, ClassVar

import pytest
from temporalio.client import Client

from client.problem import Problem
from client.workers import ask
from tests.harness import worker
from workflows.inquiries import (
    EffectsInquiry,
    Findings,
    Inquiry,
    InquiryInput,
    ToolsInquiry,
    TranscriptInquiry,
    WorkerInquiry,
)


class WeatherInquiry(Inquiry[Findings]):
    """What a later console may ask."""

    findings: ClassVar[Any] = Findings
    about: str = "the weather"


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ({"about": "worker"}, WorkerInquiry()),
        ({"about": "tools", "kind": "search"}, ToolsInquiry(kind="search")),
        ({"about": "effects", "task_id": "t"}, EffectsInquiry(task_id="t")),
        ({"about": "transcript", "run": "r", "skip": 2}, TranscriptInquiry(run="r", skip=2)),
    ],
    ids=lambda given: given["about"] if isinstance(given, dict) else "",
)
def test_a_worker_reads_the_question_of_another_version(sent: dict[str, Any], read: object) -> None:
    """Fields that it does not know are ignored."""
    assert InquiryInput.model_validate({**sent, "more": 1}).root == read


async def test_a_question_that_a_worker_does_not_know_is_answered_with_a_sentence(client: Client) -> None:
    """No workflow task fails, and the sentence says what to do."""
    async with worker(client, queue := f"queue-{uuid.uuid4().hex}", []):
        with pytest.raises(Problem) as problem:
            await ask(client, queue, WeatherInquiry())

    assert problem.value.code == "old_worker"
    assert str(problem.value.remedy) == "restart it on the version of this console"
