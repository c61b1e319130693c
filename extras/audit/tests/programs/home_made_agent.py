"""A loop as in Temporal's own samples: one activity asks the model, a dynamic one runs the tool that it names."""

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import ActivityError
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    import httpx2
    from ending import to_the_end

ADDRESS, SHOP, ID = sys.argv[1:4]
POLICY = {
    "start_to_close_timeout": timedelta(seconds=4),
    "retry_policy": RetryPolicy(maximum_attempts=4, initial_interval=timedelta(milliseconds=50)),
}


@activity.defn
async def call_llm(messages: list[dict]) -> dict:
    async with httpx2.AsyncClient() as http:
        reply = await http.post(f"{SHOP}/v1/chat/completions", json={"model": "some-model", "messages": messages})
        return reply.raise_for_status().json()


@activity.defn(dynamic=True)
async def tool(args: Sequence[RawValue]) -> str:
    values = activity.payload_converter().from_payload(args[0].payload, dict)
    async with httpx2.AsyncClient(timeout=60) as http:
        if activity.info().activity_type == "get_price":
            return (await http.get(f"{SHOP}/price")).raise_for_status().text
        return (await http.post(f"{SHOP}/charge", json=values)).raise_for_status().text


@workflow.defn
class Loop:
    @workflow.run
    async def run(self, prompt: str) -> str:
        messages = [{"role": "user", "content": prompt}]
        for _ in range(10):
            reply = await workflow.execute_activity(call_llm, messages, **POLICY)
            message = reply["choices"][0]["message"]
            messages.append(message)
            for call in message.get("tool_calls") or ():
                function = call["function"]
                try:
                    args = json.loads(function["arguments"])
                    result = await workflow.execute_activity(function["name"], args, result_type=str, **POLICY)
                except ActivityError as error:
                    result = f"failed: {error.cause}"
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
            if not message.get("tool_calls"):
                return message["content"]
        return "no answer"


async def main():
    client = await Client.connect(ADDRESS)
    async with Worker(client, task_queue=ID, workflows=[Loop], activities=[call_llm, tool]):
        await to_the_end(client, Loop.run, ID)


if __name__ == "__main__":
    asyncio.run(main())
    os._exit(0)
