"""What a tools file imports: `from activities.toolbox import Refused, Transaction, tool`."""

from activities.llm.fence import fenced
from activities.llm.language_model import LanguageModel, Request
from activities.llm.turns import UserTurn
from activities.toolbox.errors import Busy, NeedsPerson, Refused, ToolError, Unreachable
from activities.toolbox.injection import Documents, Key, Services, Transaction, Web, Workspace
from activities.toolbox.tool import Tool, tool

__all__ = [
    "Busy",
    "Documents",
    "Key",
    "LanguageModel",
    "NeedsPerson",
    "Refused",
    "Request",
    "Services",
    "Tool",
    "ToolError",
    "Transaction",
    "Unreachable",
    "UserTurn",
    "Web",
    "Workspace",
    "fenced",
    "tool",
]
