"""The public face of Replan: what a tools file imports, `from replan import Refused, Transaction, tool`, and a program,
`from replan import Client`. The events of a task are in `replan.events`.

A tool may raise one of these four exceptions, but only if its call certainly had no effect:

    ToolError
    ├── Refused       the called system rejects the call: Replan makes a new plan
    ├── Busy          the called system has no time now: Replan retries, after `retry_after` seconds if it is given
    ├── Unreachable   the called system was not reached: Replan retries with backoff
    └── NeedsPerson   the deployment is broken: the task stops for an operator

A tool lets any other exception through. Replan knows those of the common HTTP clients, database drivers and cloud
libraries; `raises={ShopError: "conflict"}` and `fault(...)` say what others are.
"""

import dis
import sys
from importlib import import_module
from itertools import pairwise
from types import CodeType
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the list of all public names; at runtime each is imported when it is used
    from activities.borders.declared import fault as fault
    from activities.errors import (
        Busy as Busy,
        NeedsPerson as NeedsPerson,
        Refused as Refused,
        ToolError as ToolError,
        Unreachable as Unreachable,
    )
    from activities.providers.messages import LanguageModel as LanguageModel, Request as Request, UserTurn as UserTurn
    from activities.providers.untrusted import fenced as fenced
    from activities.storage.store import (
        Moment as Moment,
        StoreUnavailable as StoreUnavailable,
        metadata as metadata,
        open_store as open_store,
    )
    from activities.toolbox.declare.approval import Approval as Approval
    from activities.toolbox.declare.tool import Tool as Tool, tool as tool
    from activities.toolbox.injection import (
        Documents as Documents,
        Key as Key,
        Servers as Servers,
        Services as Services,
        Transaction as Transaction,
        Web as Web,
        Workspace as Workspace,
    )
    from activities.toolbox.pages import DocumentText as DocumentText
    from client.client import (
        Client as Client,
        TaskCancelled as TaskCancelled,
        TaskEscalated as TaskEscalated,
        TaskFailed as TaskFailed,
        TaskHandle as TaskHandle,
        TaskNotCompleted as TaskNotCompleted,
        TaskOverBudget as TaskOverBudget,
    )
    from client.problem import Problem as Problem
    from client.remedy import Remedy as Remedy
    from replan.faults_plugin import FaultsPlugin as FaultsPlugin
    from replan.plugin import Replan as Replan
    from workflows.account.outcome import Outcome as Outcome
    from workflows.account.task import Task as Task, TaskStatus as TaskStatus
    from workflows.faults.circuit_breaker import CircuitBreaker as CircuitBreaker
    from workflows.limits.budget import Limits as Limits
    from workflows.people.requests import Choice as Choice, HumanRequest as HumanRequest
    from workflows.plans.contract import AllowedEffect as AllowedEffect, Term as Term
    from workflows.plans.proposal import Step as Step


def _modules(code: CodeType) -> dict[str, str]:
    """The module of each public name, read from the code of the imports above: a workflow's sandbox reads no files."""
    steps = list(dis.get_instructions(code))
    # What stands before an import is the tuple of its names; pytest puts imports without one into what it loads.
    imports = [(names.argval, step.argval) for names, step in pairwise(steps) if step.opname == "IMPORT_NAME"]
    return {
        name: module
        for names, module in imports
        if names and module.partition(".")[0] not in sys.stdlib_module_names
        for name in names
    }


_MODULES = _modules(sys._getframe().f_code)
__all__ = sorted(_MODULES)

if not TYPE_CHECKING:  # a type checker would take every name for one that is here

    def __getattr__(name: str) -> object:
        """Import a public name on first use."""
        # Not at once: in the wheel, the import of any module imports this one, and few need a tool's modules.
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_MODULES[name]), name)
        _name_publicly()
        return value

    def _name_publicly() -> None:
        """Let tracebacks, `help` and pickles name `replan.Client`, and not the module where the class is defined."""
        # Also of classes that nobody imported by name: Client may raise Problem.
        for public, module in _MODULES.items():
            defined = getattr(sys.modules.get(module), public, None)
            if isinstance(defined, type) and defined.__module__.partition(".")[0] == module.partition(".")[0]:
                defined.__module__ = __name__

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
