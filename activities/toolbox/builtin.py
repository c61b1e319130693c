"""The tools that every worker has."""

from typing import Any

from activities.toolbox.calculate import calculate
from activities.toolbox.http_request import http_request
from activities.toolbox.read_document import read_document
from activities.toolbox.search import search
from activities.toolbox.summarise import summarise
from activities.toolbox.tool import Tool
from activities.toolbox.web import fetch_page
from activities.toolbox.write_file import write_file

TOOLS: tuple[Tool[..., Any], ...] = (calculate, search, read_document, summarise, fetch_page, http_request, write_file)
"""The built-in tools, in the order in which people see them."""
