"""Answers the console's questions that only a worker can."""

from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue
from temporalio import workflow
from temporalio.exceptions import ApplicationError

from workflows import routing
from workflows.call import Stuck, ask
from workflows.catalogue import ToolSpec


class Inquiry(BaseModel):
    """What the console wants to know."""

    model_config = ConfigDict(frozen=True)

    about: str = "tools"
    kind: str | None = None
    """One kind only."""


class ToolCard(BaseModel):
    """A tool as people and planners read it."""

    model_config = ConfigDict(frozen=True)

    spec: ToolSpec
    description: str
    args_schema: dict[str, Any]
    result_schema: dict[str, Any]


class Findings(BaseModel):
    """The answer to an Inquiry."""

    model_config = ConfigDict(frozen=True)

    planner: str
    tools: tuple[ToolCard, ...]


@workflow.defn(name="InspectWorkflow")
class InspectWorkflow:
    """One question, one activity, one answer."""

    @workflow.run
    async def run(self, inquiry: Inquiry) -> Findings:
        """Ask a worker.

        Raises:
            ApplicationError: the worker could not answer.
        """
        payload: JsonValue = inquiry.model_dump(mode="json")
        try:
            return await ask(routing.INSPECT, payload, Findings, id="inspect", summary=inquiry.about, revision=0)
        except Stuck as stuck:
            raise ApplicationError(stuck.fault.reason, type=stuck.fault.code, non_retryable=True) from None
