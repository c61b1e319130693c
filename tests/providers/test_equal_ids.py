"""Servers that give all calls of one turn the same id, such as the tool's name."""

from pydantic import JsonValue

from activities.providers.messages import AssistantTurn, ToolCall, ToolResult, Turn, UserTurn
from evals.fakes.model_api import KEY, running
from evals.fakes.script import ModelReply
from tests.providers.asking import ASKED, request
from tests.providers.planning import api_of, model_of


async def test_equal_ids_of_one_turn_are_told_apart(provider: str) -> None:
    """Each call has a result of its own, as every provider wants it, also beside what was thought before them."""
    async with running(api_of(provider, ModelReply(text="Rome."))) as api:
        model = model_of(provider, api, KEY)
        pair = [ToolCall("weather", "weather", {"place": place}) for place in ("Paris", "Rome")]
        blocks: tuple[dict[str, JsonValue], ...] = tuple(
            {"type": "tool_use", "id": one.id, "name": one.name, "input": {**one.args}} for one in pair
        )
        said = AssistantTurn("", tuple(pair), blocks, model.name)
        told: list[Turn] = [*ASKED, said, UserTurn("", (ToolResult("weather", "12"), ToolResult("weather", "20")))]
        await model.reply(request(told))

    assert (api.violations, [result.text for result in api.requests[0].results]) == ([], ["12", "20"])
