"""The worker interceptor that sends the header of a call.

Runs each time that a workflow schedules an activity. It is separate from `header`, because clients import `header`, and
to import the worker of the SDK takes 80 ms.
"""

from typing import Any

from temporalio import workflow
from temporalio.worker import (
    Interceptor,
    StartActivityInput,
    StartLocalActivityInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)

from workflows.calls.header import is_for_any_worker, with_call, with_provided


class CallInterceptor(Interceptor):
    """A worker interceptor: it sends the current `CallHeader` with each activity that a workflow schedules."""

    def workflow_interceptor_class(
        self, input: WorkflowInterceptorClassInput
    ) -> type[WorkflowInboundInterceptor] | None:
        return _Inbound


class _Inbound(WorkflowInboundInterceptor):
    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        super().init(_Outbound(outbound))


class _Outbound(WorkflowOutboundInterceptor):
    def start_activity(self, input: StartActivityInput) -> workflow.ActivityHandle[Any]:
        input.headers, input.args = with_call(input.headers), with_provided(input.args)
        input.disable_eager_execution = input.disable_eager_execution or is_for_any_worker()
        return super().start_activity(input)

    def start_local_activity(self, input: StartLocalActivityInput) -> workflow.ActivityHandle[Any]:
        input.headers, input.args = with_call(input.headers), with_provided(input.args)
        return super().start_local_activity(input)
