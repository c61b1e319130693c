"""The tools that every worker has."""

from typing import Any

from activities.toolbox.calculate import calculate
from activities.toolbox.calendar import book_slot, list_slots
from activities.toolbox.search import search
from activities.toolbox.tool import Tool

TOOLS: tuple[Tool[..., Any], ...] = (calculate, search, list_slots, book_slot)
"""The built-in tools, in the order in which people see them."""
