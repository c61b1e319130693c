"""The public face of Replan: what a tools file imports, `from replan import Refused, Transaction, tool`.

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
    from workflows.routing import CircuitBreaker

__all__ = [
    "Busy",
    "CircuitBreaker",
    "DocumentText",
    "Documents",
    "Key",
    "LanguageModel",
    "Moment",
    "NeedsPerson",
    "Refused",
    "Request",
    "Services",
    "StoreUnavailable",
    "Tool",
    "ToolError",
    "Transaction",
    "Unreachable",
    "UserTurn",
    "Web",
    "Workspace",
    "fault",
    "fenced",
    "metadata",
    "open_store",
    "tool",
]

_MODULES = {
    "Busy": "activities.errors",
    "CircuitBreaker": "workflows.routing",
    "DocumentText": "activities.toolbox.documents.excerpt",
    "Documents": "activities.toolbox.injection",
    "Key": "activities.toolbox.injection",
    "LanguageModel": "activities.providers.messages",
    "Moment": "activities.storage.store",
    "NeedsPerson": "activities.errors",
    "Refused": "activities.errors",
    "Request": "activities.providers.messages",
    "Services": "activities.toolbox.injection",
    "StoreUnavailable": "activities.storage.store",
    "Tool": "activities.toolbox.declare.tool",
    "ToolError": "activities.errors",
    "Transaction": "activities.toolbox.injection",
    "Unreachable": "activities.errors",
    "UserTurn": "activities.providers.messages",
    "Web": "activities.toolbox.injection",
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
