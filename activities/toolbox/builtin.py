"""The tools that every worker has."""

from importlib import import_module
from typing import Any

from activities.toolbox.declare.tool import Tool
from activities.toolbox.expressions.calculate import calculate
from activities.toolbox.http.fetch_page import fetch_page
from activities.toolbox.http.http_request import http_request
from activities.toolbox.reasoning import model_tools
from activities.toolbox.reasoning.compose import compose
from activities.toolbox.reasoning.summarise import summarise
from activities.toolbox.registry import tools_in
from activities.toolbox.workspace import write_file
from extras import plugins

TOOLS: tuple[Tool[..., Any], ...] = (
    calculate,
    summarise,
    compose,
    fetch_page,
    http_request,
    write_file,
)
"""The built-in tools of a worker without a model and without extras, in the order in which `--check` lists them."""


def tools(*, has_model: bool) -> tuple[Tool[..., Any], ...]:
    """The built-in tools of a worker. If it has a model, those of `model_tools` replace tools of the same name."""
    modules = [import_module(name) for plugin in plugins().values() for name in plugin.kinds]
    found = (*TOOLS, *(tool for module in modules for tool in tools_in(module)))
    if not has_model:
        return found
    taken = {tool.__name__ for tool in model_tools.TOOLS}
    return (*(tool for tool in found if tool.__name__ not in taken), *model_tools.TOOLS)
