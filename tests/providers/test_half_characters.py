"""Halves of characters: JSON can carry them and no text can, so that nobody could write them down."""

from pathlib import Path

from temporalio.client import Client

from evals.fakes.script import ModelCall, ModelReply, ReceivedRequest, Response, calls
from tests.providers.acting import acting
from workflows.account.task import TaskStatus

HALF = "A-\ud83d17"


async def test_halves_of_characters_end_no_task(client: Client, tmp_path: Path, provider: str) -> None:
    """In words and in an answer a sign stands in their place; arguments with one are not what the model meant."""

    def cut(heard: ReceivedRequest) -> Response:
        return (
            ModelReply(text=f"It costs 2 {HALF}")
            if heard.turn
            else calls(ModelCall("get_price", {"sku": HALF}), text=HALF)
        )

    async with acting(client, tmp_path, provider, cut) as one:
        ended = await one.run()

    assert (ended.status, ended.result) == (TaskStatus.COMPLETED, "It costs 2 A-?17")
    assert "half a character" in one.api.requests[1].results[0].text
    assert ended.steps == ()
    assert one.api.violations == []
