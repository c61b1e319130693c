"""What models cost and how much they can hold: the rows of `prices.toml`, and those that a settings file gives."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from activities.providers.messages import Usage
from workflows.catalogue import Price

ROWS = Path(__file__).with_name("prices.toml")
MILLION = 1_000_000
SNAPSHOT = re.compile(r"-\d{4}-?\d{2}-?\d{2}$")
"""The date by which a provider names one state of a model: it costs what the model costs."""
COMPACT_AT = 0.8
"""The part of a model's window that a conversation may fill before it is summarised."""


class Long(BaseModel):
    """A request with more tokens of input than `above` costs so many times as much, all of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    above: int = Field(gt=0)
    input: float = Field(ge=1)
    output: float = Field(ge=1)


class Row(BaseModel):
    """What a provider publishes of a model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    window: int = Field(gt=0)
    """Tokens of input that a request may have."""
    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cache_read: float = Field(ge=0)
    cache_write: float = Field(ge=0)
    long: Long | None = None
    read: date
    """When it was compared with the source."""
    source: str

    @property
    def price(self) -> Price:
        """What its tokens cost."""
        rates = self.model_dump(include={"input", "output", "cache_read", "cache_write"})
        if self.long:
            rates |= {"long_from": self.long.above, "long_input": self.long.input, "long_output": self.long.output}
        return Price.model_validate(rates)


@dataclass(frozen=True)
class Rates:
    """What is known of models; what whoever runs the worker says goes before our rows."""

    prices: Mapping[str, Price] = field(default_factory=dict)
    """By the name of a model, with or without `@HOST`."""
    windows: Mapping[str, int] = field(default_factory=dict)
    compact_at: float = COMPACT_AT

    def price_of(self, name: str) -> Price | None:
        """What the tokens of a model cost, by its whole name; None where nobody said.

        On another server than the provider's own a model costs what its operator says, and nothing is known of that.
        """
        own = self.prices.get(name) or self.prices.get(_bare(name))
        row = self._row(name)
        return own or (row.price if row else None)

    def window_of(self, name: str) -> int | None:
        """Tokens that a request to a model may have; None where nobody said."""
        own = self.windows.get(name) or self.windows.get(_bare(name))
        row = self._row(name)
        return own or (row.window if row else None)

    def _row(self, name: str) -> Row | None:
        return self._rows.get(name) or self._rows.get(SNAPSHOT.sub("", name))

    @cached_property
    def _rows(self) -> Mapping[str, Row]:
        return rows()


def rows() -> dict[str, Row]:
    """The models that we know, by name."""
    return {name: Row.model_validate(row) for name, row in tomllib.loads(ROWS.read_text(encoding="utf-8")).items()}


def usd(usage: Usage, price: Price | None) -> float | None:
    """What a reply cost; None where the price is not known."""
    if price is None:
        return None
    read = usage.input * price.input + usage.cache_read * price.cache_read + usage.cache_write * price.cache_write
    said, asked = usage.output * price.output, usage.tokens - usage.output
    if price.long_from is not None and asked > price.long_from:
        read, said = read * price.long_input, said * price.long_output
    return (read + said) / MILLION


def dearest(prices: Iterable[Price | None]) -> Price | None:
    """The highest of each rate, for whoever may be asked any of these; None as soon as one is not known."""
    known = list(prices)
    if not known or None in known:
        return None
    each = [one.model_dump(exclude_none=True) for one in known if one]
    highest = {name: max(one.get(name, 0) for one in each) for name in Price.model_fields if name != "long_from"}
    thresholds = [one["long_from"] for one in each if "long_from" in one]
    return Price.model_validate({**highest, "long_from": min(thresholds, default=None)})


def _bare(name: str) -> str:
    return name.partition("@")[0]
