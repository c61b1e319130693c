"""Prices of models, and their windows (input tokens of a request).

Values of the settings file come first, then those of the package `genai-prices`, then those of `prices.toml`, which has
the models that the package lacks. No request is sent over the network.
"""

import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from activities.providers.messages import Usage
from workflows.plans.catalogue import Price

if TYPE_CHECKING:  # to import the package takes 0.1 s, or 0.5 s without bytecode; only a worker with a model needs it
    from genai_prices.types import ModelInfo, ModelPrice, TieredPrices

T = TypeVar("T")

PRICES_FILE = Path(__file__).with_name("prices.toml")
PACKAGE_DATE = date(2026, 11, 9)
"""The day of the newest price in the oldest version of `genai-prices` that pyproject.toml allows."""
MILLION = 1_000_000
SNAPSHOT = re.compile(r"-\d{4}-?\d{2}-?\d{2}$")
"""Matches the date at the end of a snapshot's name. A snapshot is a dated version of a model, and has the model's
price."""
PAID_BY_SEARCH = re.compile(r"-search|deep-research")
"""Matches names of models whose requests search, which costs more than their tokens."""
LARGE_WINDOW, LARGE_REPLY = 400_000, 128_000
"""In tokens. Subtract LARGE_REPLY from OpenAI's published windows >= LARGE_WINDOW: they include the reply.
The source: https://developers.openai.com/api/docs/models/gpt-6-sol."""
COMPACT_AT = 0.8
"""The part of a model's window that a conversation may fill before it is summarised."""


class LongRequest(BaseModel):
    """Factors for the prices of a request with more than `above` input tokens; they apply to all of its tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    above: int = Field(gt=0)
    input: float = Field(gt=0)
    output: float = Field(gt=0)


class PublishedModel(BaseModel):
    """What is published about a model; prices are in US dollars for a million tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    window: int | None = Field(default=None, gt=0)
    """The most input tokens that a request may have; None if unknown."""
    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cache_read: float = Field(ge=0)
    cache_write: float = Field(ge=0)
    long: LongRequest | None = None
    read: date
    """The day on which the prices were known to be valid."""
    source: str

    @property
    def price(self) -> Price:
        rates = self.model_dump(include={"input", "output", "cache_read", "cache_write"})
        if self.long:
            rates |= {"long_from": self.long.above, "long_input": self.long.input, "long_output": self.long.output}
        return Price.model_validate(rates)


def published_model(name: str) -> PublishedModel | None:
    """What is published about the model with this full name; None if nothing is.

    Nothing is published about a model on another server (`@HOST`), whose operator sets the price and the window.
    """
    provider, _, model = name.partition(":")
    if not model or "@" in model:
        return None
    own = own_models()
    return _in_package(provider, model) or own.get(name) or own.get(SNAPSHOT.sub("", name))


@cache
def own_models() -> Mapping[str, PublishedModel]:
    """The models of `prices.toml`, by their full names."""
    entries = tomllib.loads(PRICES_FILE.read_text(encoding="utf-8"))
    return {name: PublishedModel.model_validate(entry) for name, entry in entries.items()}


def _in_package(provider: str, name: str) -> PublishedModel | None:
    from genai_prices.data import providers

    found = next((candidate for candidate in providers if candidate.id == provider), None)
    model = found.find_model(name) if found else None
    rates = rates_of(model.get_prices(datetime.now(UTC))) if model else None
    if model is None or rates is None or PAID_BY_SEARCH.search(model.id):
        return None
    window = _window(provider, model)
    return PublishedModel(
        **rates, window=window, read=_package_date(), source="https://github.com/pydantic/genai-prices"
    )


def _window(provider: str, model: "ModelInfo") -> int | None:
    whole = model.context_window
    is_shared = provider == "openai" and whole is not None and whole >= LARGE_WINDOW
    return whole - LARGE_REPLY if whole and is_shared else whole


def rates_of(prices: "ModelPrice") -> dict[str, Any] | None:
    """The prices of the package as fields of a PublishedModel; None if these fields cannot express the prices."""
    input, output = prices.input_mtok, prices.output_mtok
    if input is None or output is None:
        return None
    # What has no price for the cache counts as any other input.
    read, write = (input if price is None else price for price in (prices.cache_read_mtok, prices.cache_write_mtok))
    each = {"input": input, "cache_read": read, "cache_write": write, "output": output}
    usual, long = ({name: _price_at(tokens, price) for name, price in each.items()} for tokens in (0, math.inf))
    rates: dict[str, Any] = {name: float(price) for name, price in usual.items()}
    if usual == long:
        return rates
    starts = {tier.start for price in each.values() for tier in getattr(price, "tiers", ())}
    *of_input, of_output = (float(long[name] / usual[name]) if usual[name] else None for name in each)
    if len(starts) > 1 or len(set(of_input)) > 1 or None in (*of_input, of_output):
        return None
    return {**rates, "long": {"above": starts.pop(), "input": of_input[0], "output": of_output}}


def _price_at(tokens: float, rate: "Decimal | TieredPrices") -> Decimal:
    """The price by `rate` in a request with `tokens` input tokens."""
    if isinstance(rate, Decimal):
        return rate
    return next((tier.price for tier in reversed(rate.tiers) if tokens > tier.start), rate.base)


@cache
def _package_date() -> date:
    """The day of the newest price in the package. The package has no date itself, but gets prices almost every week."""
    from genai_prices.data import providers
    from genai_prices.types import ModelPrice, StartDateConstraint

    today = datetime.now(UTC).date()
    models = [model for provider in providers for model in provider.models]
    prices = (model.prices for model in models if not isinstance(model.prices, ModelPrice))
    limits = [price.constraint for each in prices for price in each]
    limits += [variant.constraint for model in models for variant in model.price_variants or ()]
    days = (limit.start_date for limit in limits if isinstance(limit, StartDateConstraint))
    return max(PACKAGE_DATE, *(day for day in days if day <= today))


@dataclass(frozen=True)
class PriceList:
    """Prices and windows of models: those of the settings file, else those that are published."""

    prices: Mapping[str, Price] = field(default_factory=dict)
    """Prices from the settings file, by the model's name, with or without `@HOST`."""
    windows: Mapping[str, int] = field(default_factory=dict)
    """Windows from the settings file, in tokens, by the same names as `prices`."""
    compact_at: float = COMPACT_AT

    def price_of(self, name: str) -> Price | None:
        """The price of the tokens of the model with this full name; None if the price is unknown."""
        own = of_model(self.prices, name)
        published = published_model(name) if own is None else None
        return published.price if published else own

    def date_of(self, name: str) -> date | None:
        """The day on which a published price was valid; None if the settings file has the price, or it is unknown."""
        published = published_model(name) if of_model(self.prices, name) is None else None
        return published.read if published else None

    def window_of(self, name: str) -> int | None:
        """The most input tokens that a request to a model may have; None if unknown."""
        own = of_model(self.windows, name)
        published = published_model(name) if own is None else None
        return published.window if published else own


def of_model(settings: Mapping[str, T], name: str) -> T | None:
    """The setting of a model by its full name, else by its name without `@HOST`; None if neither has a setting."""
    return settings.get(name, settings.get(name.partition("@")[0]))


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
