"""The tools that let a model read and write: in a worker with a model they take the places of their plain twins."""

from typing import Any

from activities.toolbox.reasoning.compose import compose
from activities.toolbox.reasoning.extract import extract
from activities.toolbox.reasoning.summarise import key_sentences, summarise
from activities.toolbox.tool import Tool

__all__ = ["TOOLS", "compose", "extract", "key_sentences", "summarise"]

TOOLS: tuple[Tool[..., Any], ...] = (summarise, key_sentences, extract, compose)
"""In the order in which people see them."""
