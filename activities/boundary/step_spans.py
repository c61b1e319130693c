"""A span for each attempt of an activity of a traced task: `execute_tool` for a step, `plan` for a planner turn.

Runs around each attempt, from its start to its end, on a worker that exports traces.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from activities import tracing
from workflows.json_values import canonical
from workflows.plans import own_activities
from workflows.plans.proposal import StepReturn

if TYPE_CHECKING:  # at run time only where a trace is recorded
    from opentelemetry.context import Context
    from opentelemetry.trace import Tracer

TURNS = (own_activities.PLAN.kind, own_activities.REPLAN.kind)

ContextOf = Callable[[Mapping[str, Payload]], "Context | None"]
"""Reads the context of the trace from the headers of an activity; None for an activity that belongs to no trace."""


class StepSpans(Interceptor):
    """A worker interceptor: it makes the span of an attempt, and the recorder for what the attempt does."""

    def __init__(self, tracer: "Tracer", context_of: ContextOf, captures_content: bool) -> None:
        """With `captures_content`, spans have arguments, results and prompts."""
        self.tracer = tracer
        self.context_of = context_of
        self.captures_content = captures_content

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Spanned(next, self)


class _Spanned(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, spans: StepSpans) -> None:
        super().__init__(next)
        self._spans = spans

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        tracer, captures_content = self._spans.tracer, self._spans.captures_content
        parent = self._spans.context_of(input.headers)
        if parent is None:  # of a workflow that answers the console
            return await super().execute_activity(input)
        from opentelemetry import context, trace

        name, attributes = _name_and_attributes(activity.info())
        span = tracer.start_span(name, parent, attributes=attributes)
        token = context.attach(trace.set_span_in_context(span, parent))
        try:
            if not span.is_recording():  # the sampler left the task out
                return await super().execute_activity(input)
            recorder = tracing.Recorder(tracer, captures_content, span)
            tracing.RECORDER.set(recorder)  # each attempt has a context of its own
            if captures_content:
                span.set_attributes(recorder.content(gen_ai__tool__call__arguments=_arguments(input)))
            result = await super().execute_activity(input)
            if captures_content and isinstance(result, StepReturn):
                span.set_attributes(recorder.content(gen_ai__tool__call__result=canonical(result.result)))
            return result
        finally:
            context.detach(token)
            span.end()


def _name_and_attributes(info: activity.Info) -> tuple[str, tracing.Attributes]:
    kind, task = info.activity_type, {"gen_ai.conversation.id": info.workflow_id or ""}
    if kind in TURNS:
        return turn_span(kind, task)
    if kind in own_activities.KINDS:
        return kind, task
    tool = {"gen_ai.tool.name": kind, "gen_ai.tool.type": "function", "gen_ai.tool.call.id": info.activity_id}
    return f"execute_tool {kind}", {"gen_ai.operation.name": "execute_tool", **tool, **task}


def turn_span(kind: str, more: tracing.Attributes) -> tuple[str, tracing.Attributes]:
    """The name and the attributes of a planner turn's span; `kind` is `plan` or `replan`, `more` further attributes."""
    return "plan replan", {"gen_ai.operation.name": "plan", "gen_ai.agent.name": "replan", "replan.turn": kind, **more}


def _arguments(input: ExecuteActivityInput) -> str:
    """The arguments of a tool as JSON; empty for Replan's own activities, whose model calls have the content."""
    match input.args:
        case [RawValue() as raw] if raw.payload.metadata.get("encoding", b"").startswith(b"json/"):
            return raw.payload.data.decode(errors="replace")
    return ""
