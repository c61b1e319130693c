"""Temporal alone, with keys, non-retryable errors and limits, as its pages on error handling have them."""

import asyncio
import json
import os
from datetime import timedelta

import httpx2
import world
from openai import AsyncOpenAI
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ActivityError, ApplicationError, WorkflowAlreadyStartedError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

TOOLS = world.begin()
FUNCTIONS = [
    {"type": "function", "function": {k: one[k] for k in ("name", "description", "parameters")}} for one in TOOLS
]


@activity.defn
async def think(messages: list) -> dict:
    reply = await AsyncOpenAI(max_retries=0).chat.completions.create(
        model=world.MODEL, messages=messages, tools=FUNCTIONS
    )
    return reply.choices[0].message.model_dump(exclude_none=True)


@activity.defn
async def call(tool: str, args: dict) -> str:
    info = activity.info()
    try:
        return await world.acall(tool, args, f"{info.workflow_run_id}-{info.activity_id}")
    except httpx2.HTTPStatusError as error:
        status, after = error.response.status_code, error.response.headers.get("retry-after")
        raise ApplicationError(
            error.response.text,
            type=f"Http{status}",
            non_retryable=status < 500 and status not in (408, 409, 429),
            next_retry_delay=timedelta(seconds=float(after)) if after else None,
        ) from error


@workflow.defn
class AgentLoop:
    @workflow.run
    async def run(self, text: str) -> str:
        messages = [{"role": "user", "content": text}]
        timeout = {"start_to_close_timeout": timedelta(seconds=10)}
        while True:
            said = await workflow.execute_activity(think, messages, **timeout)
            messages.append(said)
            if not said.get("tool_calls"):
                return said["content"]
            for one in said["tool_calls"]:
                args = [one["function"]["name"], json.loads(one["function"]["arguments"])]
                try:
                    result = await workflow.execute_activity(
                        call, args=args, **timeout, schedule_to_close_timeout=timedelta(seconds=30)
                    )
                except ActivityError as error:
                    result = json.dumps({"error": str(error.cause or error)})
                messages.append({"role": "tool", "tool_call_id": one["id"], "content": result})


async def main() -> None:
    client = await Client.connect(os.environ["TEMPORAL_ADDRESS"])
    name, keep, once = world.MODEL, WorkflowIDConflictPolicy.USE_EXISTING, WorkflowIDReusePolicy.REJECT_DUPLICATE
    runner = UnsandboxedWorkflowRunner()
    async with Worker(client, task_queue=name, workflows=[AgentLoop], activities=[think, call], workflow_runner=runner):
        try:
            handle = await client.start_workflow(
                AgentLoop.run, world.TEXT, id=name, task_queue=name, id_conflict_policy=keep, id_reuse_policy=once
            )
        except WorkflowAlreadyStartedError:
            handle = client.get_workflow_handle_for(AgentLoop.run, name)
        print(await handle.result())


asyncio.run(main())
