"""The arms without Replan: a ReAct loop and a plan, as workflows of the Temporal SDK alone."""

import asyncio
from datetime import timedelta
from typing import Any

from pydantic import BaseModel
from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    from evals.retry_waste.arms import MAX_COUNTER, MAX_STEPS, Arm
    from evals.retry_waste.orders import Order

TIMEOUT = timedelta(seconds=10)
REACT, PLAN = "BareReact", "BarePlan"
"""The types of the workflows."""
ONCE = RetryPolicy(maximum_attempts=1)
REFUSAL = "refusal"
"""The type of the error of a call that was answered with another status than 200."""


class ToolUse(BaseModel):
    """A call, as the model writes it."""

    id: str
    tool: str
    args: dict[str, Any]


class Said(BaseModel):
    """One call and its answer in a conversation."""

    use: ToolUse
    status: int
    """0 without an answer."""
    body: dict[str, Any]


class Conversation(BaseModel):
    """What the model is shown."""

    order: Order
    hallucination: float
    turn: int = 0
    said: list[Said] = []
    whole_plan: bool = False
    """Whether the model writes all calls at once."""


class Thought(BaseModel):
    """A reply of the model: calls, or else the end."""

    calls: list[ToolUse] = []
    is_done: bool = False
    """Without calls: whether the order is done, as the model sees it."""
    tokens: int


class BareInput(BaseModel):
    """What a workflow carries out."""

    arm: Arm
    order: Order
    hallucination: float


class BareOutcome(BaseModel):
    """How a workflow ended, as it says itself."""

    is_done: bool = False
    reason: str = ""
    model_calls: int = 0
    tokens: int = 0

    def pay(self, thought: Thought) -> None:
        """Count a reply."""
        self.model_calls += 1
        self.tokens += thought.tokens


async def _think(conversation: Conversation) -> Thought:
    thought: Thought = await workflow.execute_activity(
        "think", conversation, result_type=Thought, start_to_close_timeout=TIMEOUT
    )
    return thought


async def _call(task: str, use: ToolUse, policy: RetryPolicy | None) -> dict[str, Any]:
    result: dict[str, Any] = await workflow.execute_activity(
        "call_tool",
        args=[task, use.tool, use.args],
        result_type=dict[str, Any],
        start_to_close_timeout=TIMEOUT,
        retry_policy=policy,
        summary=use.tool,
    )
    return result


def _said(use: ToolUse, error: ActivityError) -> Said:
    """What the model is told of a call that failed."""
    if isinstance(error.cause, ApplicationError) and error.cause.type == REFUSAL:
        status, body = error.cause.details
        return Said(use=use, status=status, body=body)
    return Said(use=use, status=0, body={"detail": "no answer"})


@workflow.defn(name=REACT)
class ReactWorkflow:
    """Think, act, observe; one counter for the failures of all tools."""

    @workflow.run
    async def run(self, given: BareInput) -> BareOutcome:
        """Carry out an order."""
        outcome, counter = BareOutcome(), 0
        talk = Conversation(order=given.order, hallucination=given.hallucination)
        for turn in range(MAX_STEPS):
            talk.turn = turn
            thought = await _think(talk)
            outcome.pay(thought)
            if not thought.calls:
                outcome.is_done = thought.is_done
                outcome.reason = "" if thought.is_done else "the model gives up"
                return outcome
            for repeat in range(given.arm.repeats):
                try:
                    body = await _call(given.order.task, thought.calls[0], ONCE)
                except ActivityError as error:
                    counter += 1
                    said = _said(thought.calls[0], error)
                    if counter > MAX_COUNTER:
                        outcome.reason = "retries exhausted"
                        return outcome
                    if repeat + 1 < given.arm.repeats:
                        await asyncio.sleep(2.0**repeat)
                else:
                    said = Said(use=thought.calls[0], status=200, body=body)
                    break
            talk.said.append(said)
        outcome.reason = "no turns left"
        return outcome


@workflow.defn(name=PLAN)
class PlanWorkflow:
    """The model writes a plan once; its calls are activities, one after another."""

    @workflow.run
    async def run(self, given: BareInput) -> BareOutcome:
        """Carry out an order."""
        outcome = BareOutcome()
        talk = Conversation(order=given.order, hallucination=given.hallucination, whole_plan=True)
        thought = await _think(talk)
        outcome.pay(thought)
        policy = RetryPolicy(maximum_attempts=given.arm.attempts) if given.arm.attempts else None
        for use in thought.calls:
            try:
                await _call(given.order.task, use, policy)
            except ActivityError:
                outcome.reason = f"{use.tool} failed"
                return outcome
        outcome.is_done = True
        return outcome
