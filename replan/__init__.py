"""The public face of Replan: what a tools file imports, `from replan import Refused, Transaction, tool`, and a program,
`from replan import Client`.

A tool may raise one of these four exceptions, but only if its call certainly had no effect:

    ToolError
    ├── Refused       the called system rejects the call: Replan makes a new plan
    ├── Busy          the called system has no time now: Replan retries, after `retry_after` seconds if it is given
    ├── Unreachable   the called system was not reached: Replan retries with backoff
    └── NeedsPerson   the deployment is broken: the task stops for an operator

A tool lets any other exception through. Replan knows those of the common HTTP clients, database drivers and cloud
libraries; `raises={ShopError: "conflict"}` and `fault(...)` say what others are.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from activities.borders.declared import fault
    from activities.errors import Busy, NeedsPerson, Refused, ToolError, Unreachable
    from activities.providers.messages import LanguageModel, Request, UserTurn
    from activities.providers.untrusted import fenced
    from activities.storage.store import Moment, StoreUnavailable, metadata, open_store
    from activities.toolbox.declare.tool import Tool, tool
    from activities.toolbox.documents.excerpt import DocumentText
    from activities.toolbox.injection import Documents, Key, Services, Transaction, Web, Workspace
    from client.client import (
        Client,
        TaskCancelled,
        TaskEscalated,
        TaskFailed,
        TaskHandle,
        TaskNotCompleted,
        TaskOverBudget,
    )
    from client.events import (
        Began,
        Compacted,
        Ended,
        FaultHappened,
        Paused,
        PersonAnswered,
        PersonAsked,
        PlanAccepted,
        PlannerAwaited,
        PlannerPassedOver,
        ProposalRejected,
        Silence,
        StepChanged,
        TaskEvent,
        Thinking,
        WorkerBusy,
        WorkflowTaskFails,
    )
    from client.problem import Problem
    from client.remedy import Remedy
    from replan.plugin import Replan
    from workflows.account.outcome import Outcome
    from workflows.account.task import Task, TaskStatus
    from workflows.faults.retries import CircuitBreaker
    from workflows.limits.budget import Limits
    from workflows.people.requests import Choice, HumanRequest
    from workflows.plans.proposal import Step

__all__ = [
    "Began",
    "Busy",
    "Choice",
    "CircuitBreaker",
    "Client",
    "Compacted",
    "DocumentText",
    "Documents",
    "Ended",
    "FaultHappened",
    "HumanRequest",
    "Key",
    "LanguageModel",
    "Limits",
    "Moment",
    "NeedsPerson",
    "Outcome",
    "Paused",
    "PersonAnswered",
    "PersonAsked",
    "PlanAccepted",
    "PlannerAwaited",
    "PlannerPassedOver",
    "Problem",
    "ProposalRejected",
    "Refused",
    "Remedy",
    "Replan",
    "Request",
    "Services",
    "Silence",
    "Step",
    "StepChanged",
    "StoreUnavailable",
    "Task",
    "TaskCancelled",
    "TaskEscalated",
    "TaskEvent",
    "TaskFailed",
    "TaskHandle",
    "TaskNotCompleted",
    "TaskOverBudget",
    "TaskStatus",
    "Thinking",
    "Tool",
    "ToolError",
    "Transaction",
    "Unreachable",
    "UserTurn",
    "Web",
    "WorkerBusy",
    "WorkflowTaskFails",
    "Workspace",
    "fault",
    "fenced",
    "metadata",
    "open_store",
    "tool",
]

_MODULES = {
    "Began": "client.events",
    "Busy": "activities.errors",
    "Choice": "workflows.people.requests",
    "CircuitBreaker": "workflows.faults.retries",
    "Client": "client.client",
    "Compacted": "client.events",
    "DocumentText": "activities.toolbox.documents.excerpt",
    "Documents": "activities.toolbox.injection",
    "Ended": "client.events",
    "FaultHappened": "client.events",
    "HumanRequest": "workflows.people.requests",
    "Key": "activities.toolbox.injection",
    "LanguageModel": "activities.providers.messages",
    "Limits": "workflows.limits.budget",
    "Moment": "activities.storage.store",
    "NeedsPerson": "activities.errors",
    "Outcome": "workflows.account.outcome",
    "Paused": "client.events",
    "PersonAnswered": "client.events",
    "PersonAsked": "client.events",
    "PlanAccepted": "client.events",
    "PlannerAwaited": "client.events",
    "PlannerPassedOver": "client.events",
    "Problem": "client.problem",
    "ProposalRejected": "client.events",
    "Refused": "activities.errors",
    "Remedy": "client.remedy",
    "Replan": "replan.plugin",
    "Request": "activities.providers.messages",
    "Services": "activities.toolbox.injection",
    "Silence": "client.events",
    "Step": "workflows.plans.proposal",
    "StepChanged": "client.events",
    "StoreUnavailable": "activities.storage.store",
    "Task": "workflows.account.task",
    "TaskCancelled": "client.client",
    "TaskEscalated": "client.client",
    "TaskEvent": "client.events",
    "TaskFailed": "client.client",
    "TaskHandle": "client.client",
    "TaskNotCompleted": "client.client",
    "TaskOverBudget": "client.client",
    "TaskStatus": "workflows.account.task",
    "Thinking": "client.events",
    "Tool": "activities.toolbox.declare.tool",
    "ToolError": "activities.errors",
    "Transaction": "activities.toolbox.injection",
    "Unreachable": "activities.errors",
    "UserTurn": "activities.providers.messages",
    "Web": "activities.toolbox.injection",
    "WorkerBusy": "client.events",
    "WorkflowTaskFails": "client.events",
    "Workspace": "activities.toolbox.injection",
    "fault": "activities.borders.declared",
    "fenced": "activities.providers.untrusted",
    "metadata": "activities.storage.store",
    "open_store": "activities.storage.store",
    "tool": "activities.toolbox.declare.tool",
}

if not TYPE_CHECKING:  # a type checker would take every name for one that is here

    def __getattr__(name: str) -> object:
        """Import a public name when it is used: in the wheel, all modules are below this one, and few need a tool's."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
