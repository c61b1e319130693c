"""Share prices over HTTP: a read, so it may be repeated. QUOTES_URL is the service, e.g. https://quotes.example."""

import os
from decimal import Decimal

import httpx2
from pydantic import BaseModel, Field

from replan import NeedsPerson, tool


class QuoteOf(BaseModel):
    """Which share."""

    symbol: str = Field(description="Ticker symbol, e.g. ACME", pattern=r"^[A-Z]{1,6}$")


class Quote(BaseModel):
    """What one share costs."""

    symbol: str
    price: Decimal = Field(gt=0)
    """The price, in `currency`. If a service answers 200 with a price of 0, it is wrong, and the result is rejected."""
    currency: str


@tool.read(ensure="result.symbol == args.symbol", timeout=10)
async def get_quote(args: QuoteOf, http: httpx2.AsyncClient) -> Quote:
    """Look up the latest price of one share."""
    base = os.environ.get("QUOTES_URL")  # read here: loading a tools file must not depend on the environment
    if base is None:
        raise NeedsPerson("QUOTES_URL is not set: start the worker with the address of the service.")
    reply = await http.get(f"{base}/quotes/{args.symbol}")
    return Quote.model_validate_json(reply.raise_for_status().content)
