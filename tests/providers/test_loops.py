"""A model that makes the same call again and again: it is told once, then refused, and the task goes on."""

from pathlib import Path

from temporalio.client import Client

from replan.testing.script import ModelCall, ModelReply, ReceivedRequest, calls
from tests.harness import staged
from tests.providers.desk import TOOLS
from tests.providers.planning import planning
from workflows.account.task import Task, TaskStatus
from workflows.plans.guards import REPEATED_NOTICE

REFUSED = "makes the same call for the third time"


class Stubborn:
    """A model that looks the price up until it is refused, and remembers after which turns it was told so."""

    def __init__(self) -> None:
        """Begin with nothing heard."""
        self.told, self.refused = list[int](), list[int]()

    def __call__(self, heard: ReceivedRequest) -> ModelReply:
        """Look the price up once more, unless that was refused."""
        newest = "".join(result.text for result in heard.results)
        self.told += [heard.turn] if REPEATED_NOTICE in newest else []
        self.refused += [heard.turn] if REFUSED in newest + heard.last_text else []
        return ModelReply(text="24.50") if self.refused else calls(ModelCall("get_price", {"sku": "A-17"}))


async def test_the_same_call_is_told_once_and_then_refused(client: Client, tmp_path: Path, provider: str) -> None:
    """Two calls are made, the third is not."""
    model = Stubborn()
    async with planning(provider, model) as (api, planner), staged(client, tmp_path, TOOLS, planner) as stage:
        ended = await stage.run(Task(text="what does A-17 cost?", strategy="react"))

    assert (ended.status, ended.result, ended.spent.tool_calls) == (TaskStatus.COMPLETED, "24.50", 2)
    assert (model.told, model.refused, api.violations) == ([2], [3], [])
