"""The schemas of tools, for values in which a text may be a number."""

from collections.abc import Iterable, Mapping
from contextlib import suppress

from pydantic import JsonValue
from temporalio.client import Client

from client.problem import Problem
from client.schemas import has_number
from client.workers import ask
from workflows.inquiries import ToolCard, ToolsInquiry


async def tools_of(client: Client, queue: str, values: Iterable[JsonValue]) -> Mapping[str, ToolCard]:
    """The tools by kind; none if no value has a text that reads as a number, or if no worker tells them."""
    if any(map(has_number, values)):
        with suppress(Problem):
            return {card.spec.kind: card for card in (await ask(client, queue, ToolsInquiry())).tools}
    return {}
