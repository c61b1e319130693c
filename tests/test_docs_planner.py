"""What docs/models.md says a planner is asked and must answer is what is sent and understood."""

import json
import re
from pathlib import Path

from temporalio.client import Client

from activities.planning.strategies import ENDINGS, PlanStrategy
from activities.toolbox.builtin import TOOLS
from activities.toolbox.expressions.calculate import calculate
from activities.toolbox.json_schema import JsonSchema
from activities.toolbox.registry import Registry
from evals.fakes.script import RawBytes, finishes
from tests import documentation
from tests.activities.situations import asked
from tests.harness import staged
from tests.processes import ROOT
from tests.providers.planning import planning
from workflows.account.task import TaskStatus
from workflows.plans.proposal import MAX_STEPS

PAGE = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
CALLS = {call: cells for call, *cells in documentation.tables(PAGE)["call"]}
REPLY = PAGE.partition("A whole reply of a server with OpenAI's API:")[2].partition("```json\n")[2].partition("```")[0]


def test_the_page_has_each_call_with_its_arguments() -> None:
    """Those that are offered to a model, with each field that it must or may give."""
    tools = PlanStrategy().tools(asked("x"), Registry([], builtin=TOOLS))
    plan = tools[0].schema
    [step, *_] = plan["properties"]["steps"]["items"]["anyOf"]
    fields = {tool.name: set(tool.schema["properties"]) for tool in tools}
    fields[tools[0].name] |= set(step["properties"])

    assert {call: set(re.findall(r"`(\w+)`", cells[0])) - {"value"} for call, cells in CALLS.items()} == fields
    assert f"1 to {MAX_STEPS} objects" in CALLS[tools[0].name][0]
    assert set(ENDINGS) == set(CALLS) - {tools[0].name}
    assert set(JsonSchema({"type": "string"}).arguments["properties"]) == {"value"}


async def test_the_reply_of_the_page_is_understood(client: Client, tmp_path: Path) -> None:
    body = json.dumps(json.loads(REPLY)).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    script = (RawBytes(head.encode() + body), finishes("It is 2."))
    async with planning("openai", *script) as (api, planner), staged(client, tmp_path, [calculate], planner) as stage:
        ended = await stage.run("what is 1 + 1?")
    first, second = (body["messages"] for body in api.bodies)

    assert (ended.status, ended.result, [step.id for step in ended.steps]) == (
        TaskStatus.COMPLETED,
        "It is 2.",
        ["sum"],
    )
    assert [one["role"] for one in second] == ["system", "user", "assistant", "tool", "user"]
    assert ("1 + 1" in first[1]["content"], "tool calls are left" in second[-1]["content"]) == (True, True)
    assert ended.spent.tokens > 940
