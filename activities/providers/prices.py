"""Prices of models, and their windows (input tokens of a request): from the settings file, else from `prices.toml`."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from activities.providers.messages import Usage
from workflows.catalogue import Price

PRICES_FILE = Path(__file__).with_name("prices.toml")
MILLION = 1_000_000
SNAPSHOT = re.compile(r"-\d{4}-?\d{2}-?\d{2}$")
"""Matches the date at the end of a snapshot's name. A snapshot is a dated version of a model, and has the model's
price."""
COMPACT_AT = 0.8
"""The part of a model's window that a conversation may fill before it is summarised."""


class LongRequest(BaseModel):
    """Factors for the prices of a request with more than `above` input tokens; they apply to all of its tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    above: int = Field(gt=0)
    input: float = Field(ge=1)
    output: float = Field(ge=1)


class PublishedModel(BaseModel):
    """What a provider publishes about a model; prices are in US dollars for a million tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    window: int = Field(gt=0)
    """The most input tokens that a request may have."""
    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cache_read: float = Field(ge=0)
    cache_write: float = Field(ge=0)
    long: LongRequest | None = None
    read: date
    """The day on which the entry was compared with `source`."""
    source: str

    @property
    def price(self) -> Price:
        rates = self.model_dump(include={"input", "output", "cache_read", "cache_write"})
        if self.long:
            rates |= {"long_from": self.long.above, "long_input": self.long.input, "long_output": self.long.output}
        return Price.model_validate(rates)


@cache
def published_models() -> Mapping[str, PublishedModel]:
    entries = tomllib.loads(PRICES_FILE.read_text(encoding="utf-8"))
    return {name: PublishedModel.model_validate(entry) for name, entry in entries.items()}


@dataclass(frozen=True)
class PriceList:
    """Prices and windows of models: those of the settings file, else those that the provider publishes."""

    prices: Mapping[str, Price] = field(default_factory=dict)
    """Prices from the settings file, by the model's name, with or without `@HOST`."""
    windows: Mapping[str, int] = field(default_factory=dict)
    """Windows from the settings file, in tokens, by the same names as `prices`."""
    compact_at: float = COMPACT_AT

    def price_of(self, name: str) -> Price | None:
        """The price of a model's tokens, by its full name; None if it is unknown.

        A published price never counts for a model on another server: its operator sets the price.
        """
        published = self._published(name)
        own = self.prices.get(name) or self.prices.get(_without_host(name))
        return own or (published.price if published else None)

    def window_of(self, name: str) -> int | None:
        """The most input tokens that a request to a model may have; None if unknown."""
        published = self._published(name)
        own = self.windows.get(name) or self.windows.get(_without_host(name))
        return own or (published.window if published else None)

    def _published(self, name: str) -> PublishedModel | None:
        models = published_models()
        return models.get(name) or models.get(SNAPSHOT.sub("", name))


def _without_host(name: str) -> str:
    return name.partition("@")[0]


def cost_in_usd(usage: Usage, price: Price | None) -> float | None:
    """The cost of a request and its reply in US dollars; None if the price is unknown."""
    if price is None:
        return None
    input_tokens = usage.tokens - usage.output
    input_cost = usage.input * price.input + usage.cache_read * price.cache_read + usage.cache_write * price.cache_write
    output_cost = usage.output * price.output
    if price.long_from is not None and input_tokens > price.long_from:
        input_cost, output_cost = input_cost * price.long_input, output_cost * price.long_output
    return (input_cost + output_cost) / MILLION


def highest_price(prices: Iterable[Price | None]) -> Price | None:
    """A price with the highest value of each rate, for a task that may use any of the models.

    None if one of the prices is unknown, or if there are no prices.
    """
    known = list(prices)
    if not known or None in known:
        return None
    each = [price.model_dump(exclude_none=True) for price in known if price]
    highest = {name: max(rates.get(name, 0) for rates in each) for name in Price.model_fields if name != "long_from"}
    # The lowest threshold makes the most requests "long", which is the higher price.
    thresholds = [rates["long_from"] for rates in each if "long_from" in rates]
    return Price.model_validate({**highest, "long_from": min(thresholds, default=None)})
