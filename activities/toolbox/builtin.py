"""The tools that every worker has."""

from typing import Any

from activities.toolbox.calculate import calculate
from activities.toolbox.search import search
from activities.toolbox.tool import Tool
from activities.toolbox.web import fetch_page

TOOLS: tuple[Tool[..., Any], ...] = (calculate, search, fetch_page)
"""The built-in tools, in the order in which people see them."""
