"""One trace for each task: interceptors that pass its context from the client through the workflow to the activities.

The client writes the header with the SDK's `OpenTelemetryInterceptor`. Its other two parts are not used. In the part
for workflows, a span ends with its run, so that a task that continues as new would have many spans. This part needs a
global tracer provider of the SDK's own class, which a user's worker may not have. And activities that an Update handler
schedules would belong to the trace of that Update. The part for activities makes a tracer for each attempt, which costs
as much as a span.
"""

import asyncio
import hashlib
import json
import uuid
from collections.abc import Mapping
from contextvars import ContextVar
from functools import cached_property, lru_cache
from typing import Any, ClassVar, NoReturn

from opentelemetry import trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from temporalio import client, workflow
from temporalio.api.common.v1 import Payload
from temporalio.contrib.opentelemetry import OpenTelemetryInterceptor
from temporalio.converter import PayloadConverter
from temporalio.exceptions import ApplicationError
from temporalio.worker import (
    ContinueAsNewInput,
    ExecuteWorkflowInput,
    Interceptor,
    StartActivityInput,
    StartLocalActivityInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)

from workflows.account.outcome import Outcome
from workflows.account.task import TaskStatus
from workflows.agent import OUTCOME_MEMO

HEADER = "_tracer-data"
"""The header of the SDK's own interceptors, with the W3C trace context."""
PROPAGATOR = CompositePropagator([TraceContextTextMapPropagator(), W3CBaggagePropagator()])
"""Writes the same header as the SDK's interceptors, whatever OTEL_PROPAGATORS says."""
STARTED = "replan-trace-started"
"""The header in which a run passes the start time of the task to the next run, in nanoseconds since 1970."""
SPANS: Mapping[str, tuple[str, str]] = {
    "AgentWorkflow": ("invoke_agent", "replan"),
    "UndoWorkflow": ("invoke_workflow", "undo"),
}
"""By type of workflow, the operation and the name of its span; other workflows are not traced."""

_FIRST_RUN: ContextVar[str | None] = ContextVar("replan_trace_first_run", default=None)


class TaskIds(RandomIdGenerator):
    """Random ids; only the ids of a task's own span are computed, from the id of the task's first run.

    So every worker and every run of the task has these ids before the span is exported, at the end of the task.
    """

    def generate_span_id(self) -> int:
        first = _FIRST_RUN.get()
        if first is None:
            return super().generate_span_id()
        return int.from_bytes(hashlib.sha256(first.encode()).digest()[:8]) or 1

    def generate_trace_id(self) -> int:
        first = _FIRST_RUN.get()
        return super().generate_trace_id() if first is None else uuid.UUID(first).int


def traced(connection: client.Client, tracer: Tracer) -> client.Client:
    """A client on the same connection that records a span for each task that it starts."""
    config = connection.config()
    config["interceptors"] = [*config["interceptors"], TaskTrace(tracer)]
    config["plugins"] = []
    return client.Client(**config)


class TaskTrace(client.Interceptor, Interceptor):
    """An interceptor of clients and workers that records one trace for each task."""

    def __init__(self, tracer: Tracer, captures_content: bool = False) -> None:
        """With `captures_content`, the span of a task contains the text and the result of the task."""
        self._tracer = tracer
        self._captures_content = captures_content
        self._propagation = OpenTelemetryInterceptor()

    def intercept_client(self, next: client.OutboundInterceptor) -> client.OutboundInterceptor:
        return _Starting(self._propagation.intercept_client(next), self._tracer)

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        class Inbound(_Inbound):
            tracer = self._tracer
            captures_content = self._captures_content

        return Inbound


class _Starting(client.OutboundInterceptor):
    def __init__(self, next: client.OutboundInterceptor, tracer: Tracer) -> None:
        super().__init__(next)
        self._tracer = tracer

    async def start_workflow(self, input: client.StartWorkflowInput) -> client.WorkflowHandle[Any, Any]:
        with self._tracer.start_as_current_span(
            f"StartWorkflow:{input.workflow}",
            kind=SpanKind.CLIENT,
            attributes={"gen_ai.conversation.id": input.id},
            record_exception=False,  # its message may quote the id or the input
            set_status_on_exception=False,
        ) as span:
            try:
                return await super().start_workflow(input)
            except Exception as error:
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(StatusCode.ERROR)
                raise


class _Inbound(WorkflowInboundInterceptor):
    """Makes the task's span the parent of its activities' spans, and exports the task's span when the task ends."""

    tracer: ClassVar[Tracer]
    captures_content: ClassVar[bool]

    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        super().init(_Outbound(outbound, self))

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        if workflow.info().workflow_type not in SPANS:
            return await super().execute_workflow(input)
        try:
            result = await super().execute_workflow(input)
        except ApplicationError as error:
            self._end(next(iter(error.details), None))
            raise
        except asyncio.CancelledError:
            # An evicted workflow passes here, too: only a task that has ended has this memo.
            if OUTCOME_MEMO in workflow.memo():
                self._end(workflow.memo_value(OUTCOME_MEMO, type_hint=Outcome))
            raise
        self._end(result)
        return result

    @cached_property
    def started(self) -> int:
        """When the task started, in nanoseconds since 1970."""
        header = workflow.info().headers.get(STARTED)
        if header is None:
            return int(workflow.info().start_time.timestamp() * 1_000_000_000)
        return int(PayloadConverter.default.from_payload(header))

    @cached_property
    def span(self) -> Span:
        """The task's span, which has the same ids in every run and on every worker."""
        info = workflow.info()
        operation, name = SPANS[info.workflow_type]
        token = _FIRST_RUN.set(info.first_execution_run_id)
        try:
            return self.tracer.start_span(
                f"{operation} {name}",
                context=context_of(info.headers) or Context(),
                start_time=self.started,
                attributes={
                    "gen_ai.operation.name": operation,
                    "gen_ai.agent.name": name,
                    "gen_ai.conversation.id": info.workflow_id,
                },
            )
        finally:
            _FIRST_RUN.reset(token)

    @cached_property
    def carried(self) -> Mapping[str, Payload]:
        """The trace header for the activities of the task, with the task's span as the parent."""
        carrier = dict[str, str]()
        PROPAGATOR.inject(
            carrier, trace.set_span_in_context(self.span, context_of(workflow.info().headers) or Context())
        )
        return {HEADER: PayloadConverter.default.to_payload(carrier)}

    def _end(self, outcome: Any) -> None:
        """End and export the task's span; in a replay do nothing, since the span was exported already."""
        if workflow.unsafe.is_replaying_history_events():
            return
        if isinstance(outcome, Outcome):
            self.span.set_attributes(_summary_attributes(outcome))
            if self.captures_content:
                self.span.set_attributes(_content_attributes(outcome))
            if outcome.status is not TaskStatus.COMPLETED:
                self.span.set_attribute("error.type", outcome.code or outcome.status.value)
                self.span.set_status(StatusCode.ERROR)
        self.span.end()


class _Outbound(WorkflowOutboundInterceptor):
    def __init__(self, next: WorkflowOutboundInterceptor, inbound: _Inbound) -> None:
        super().__init__(next)
        self._inbound = inbound

    @property
    def _carried(self) -> Mapping[str, Payload]:
        return self._inbound.carried if workflow.info().workflow_type in SPANS else {}

    def start_activity(self, input: StartActivityInput) -> workflow.ActivityHandle[Any]:
        input.headers = {**input.headers, **self._carried}
        return super().start_activity(input)

    def start_local_activity(self, input: StartLocalActivityInput) -> workflow.ActivityHandle[Any]:
        input.headers = {**input.headers, **self._carried}
        return super().start_local_activity(input)

    def continue_as_new(self, input: ContinueAsNewInput) -> NoReturn:
        # The next run has the same parent as this one, and not this one as its parent: a task has one span.
        own = {name: value for name, value in workflow.info().headers.items() if name == HEADER}
        started = PayloadConverter.default.to_payload(self._inbound.started)
        input.headers = {**input.headers, **own, STARTED: started}
        super().continue_as_new(input)


def context_of(headers: Mapping[str, Payload]) -> Context | None:
    """The trace context in the headers of a workflow or an activity; None if its sender sent no trace context."""
    sent = headers.get(HEADER)
    return None if sent is None else _context_in(sent.SerializeToString())


@lru_cache(maxsize=1000)  # all attempts of a task have the same
def _context_in(sent: bytes) -> Context:
    return PROPAGATOR.extract(PayloadConverter.default.from_payload(Payload.FromString(sent)), Context())


def _summary_attributes(outcome: Outcome) -> dict[str, str | int | float]:
    provider, _, model = outcome.planner.partition(":")
    spent = outcome.spent
    return {
        "gen_ai.provider.name": provider if model else "replan",
        **({"gen_ai.request.model": model.partition("@")[0]} if model else {}),
        "replan.planner": outcome.planner,
        "replan.status": outcome.status.value,
        "replan.replans": outcome.replans,
        "replan.tool_calls": spent.tool_calls,
        "replan.model_calls": spent.model_calls,
        "replan.tokens": spent.tokens,
        **({} if spent.usd is None else {"replan.usd": spent.usd}),
    }


def _content_attributes(outcome: Outcome) -> dict[str, str]:
    def message(role: str, content: str) -> str:
        return json.dumps([{"role": role, "parts": [{"type": "text", "content": content}]}])

    text = outcome.result if isinstance(outcome.result, str) else json.dumps(outcome.result)
    return {
        "gen_ai.input.messages": message("user", outcome.task),
        "gen_ai.output.messages": message("assistant", text),
    }
