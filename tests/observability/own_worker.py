"""A worker of a user with traces of its own, and Replan beside it: `python -m tests.observability.own_worker`."""

import asyncio
import os
import sys
from pathlib import Path

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from temporalio.client import Client
from temporalio.contrib.opentelemetry import TracingInterceptor
from temporalio.worker import Worker

import replan
from tests.own_worker import CONVERTER, QUEUE, OrderWorkflow, confirm, plugin


async def main(state: Path, receiver: str) -> None:
    """Run a workflow of the user's own, and a task that a program starts, each in a request of its own."""
    own = TracerProvider()
    own.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{receiver}/v1/traces")))
    trace.set_tracer_provider(own)
    tracing = [TracingInterceptor()]
    client = await Client.connect(os.environ["TEMPORAL_ADDRESS"], data_converter=CONVERTER, interceptors=tracing)
    async with Worker(
        client, task_queue=QUEUE, workflows=[OrderWorkflow], activities=[confirm], plugins=[plugin(state)]
    ):
        with trace.get_tracer("shop").start_as_current_span("order"):
            args = [40, str(state.with_name("calls"))]
            done = await client.execute_workflow(OrderWorkflow.run, args=args, id="traced-order", task_queue=QUEUE)
        with trace.get_tracer("shop").start_as_current_span("question"):
            outcome = await replan.Client(client).run("calculate 18% of 2450")
    own.force_flush()
    print(done, outcome.result, trace.get_tracer_provider() is own)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
