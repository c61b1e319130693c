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
