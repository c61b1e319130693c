"""What a tools file imports: `from activities.toolbox import Refused, Transaction, tool`."""

from activities.toolbox.errors import Busy, NeedsPerson, Refused, ToolError, Unreachable
from activities.toolbox.injection import Documents, Key, Services, Transaction, Web, Workspace
from activities.toolbox.tool import Tool, tool

__all__ = [
    "Busy",
    "Documents",
    "Key",
    "NeedsPerson",
    "Refused",
    "Services",
    "Tool",
    "ToolError",
    "Transaction",
    "Unreachable",
    "Web",
    "Workspace",
    "tool",
]
