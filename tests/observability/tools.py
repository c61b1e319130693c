"""Tools of the tests of traces: one sends an HTTP request, one writes to the store, one asks the model."""

from typing import Any

import httpx2
from opentelemetry import trace
from pydantic import BaseModel
from sqlalchemy import Column, String, Table, text

from activities.providers.messages import LanguageModel, Request, UserTurn
from replan import Transaction, metadata, tool

PURCHASES = Table("purchases", metadata, Column("text", String(200)))


class Page(BaseModel):
    """An address."""

    url: str


class Said(BaseModel):
    """A text."""

    text: str


@tool.read
async def get_price(args: Page, http: httpx2.AsyncClient) -> Said:
    """Read a price."""
    own = trace.get_tracer("mine")
    with own.start_as_current_span("parse", record_exception=False, set_status_on_exception=False):
        return Said(text=(await http.get(args.url)).raise_for_status().text)


@tool.transactional
async def buy(args: Said, tx: Transaction) -> Said:
    """Buy something."""
    await tx.execute(text("INSERT INTO purchases (text) VALUES (:text)"), args.model_dump())
    return args


@tool.read(tokens=1000)
async def describe(args: Said, model: LanguageModel) -> dict[str, Any]:
    """Ask the model."""
    reply = await model.reply(Request(system="planted-system", tools=(), turns=(UserTurn(args.text),)))
    return {"text": reply.turn.text}
