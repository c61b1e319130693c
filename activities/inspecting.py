"""The activity behind InspectWorkflow: what this worker says of itself."""

from collections.abc import Callable, Mapping
from typing import Any

from temporalio import activity

from activities.attempt import attempt
from activities.host import Host
from activities.toolbox.kind import Kind
from workflows import routing
from workflows.inspect import Findings, Inquiry, ToolCard


class Inspecting:
    """Answers inquiries."""

    def __init__(self, kinds: Mapping[str, Kind], planner: str, host: Host) -> None:
        """Speak for a worker with these kinds and this planner, running on `host`."""
        self._kinds = kinds
        self._planner = planner
        self._host = host

    def activities(self) -> list[Callable[..., Any]]:
        """What the worker registers."""
        return [self.inspect]

    @activity.defn(name=routing.INSPECT.kind)
    async def inspect(self, inquiry: Inquiry) -> Findings:
        """The tools, or the one that was asked for; and the worker itself where the inquiry is about it."""
        async with attempt(routing.INSPECT):
            wanted = [kind for name, kind in self._kinds.items() if inquiry.kind in (None, name)]
            worker = await self._host.card() if inquiry.about == "worker" else None
            return Findings(planner=self._planner, tools=tuple(_card(kind) for kind in wanted), worker=worker)


def _card(kind: Kind) -> ToolCard:
    return ToolCard(
        spec=kind.spec,
        description=kind.description,
        args_schema=kind.args_schema,
        result_schema=kind.result.json_schema(),
    )
