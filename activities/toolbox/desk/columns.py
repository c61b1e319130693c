"""A column type that loses nothing on any database: money in whole cents."""

from decimal import Decimal
from typing import Any

from sqlalchemy import BigInteger
from sqlalchemy.types import TypeDecorator

PLACES = 2


class Cents(TypeDecorator[Decimal]):
    """An exact amount of money, kept as whole cents: SQLite would make a float of a NUMERIC."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: Decimal | None, dialect: Any) -> int | None:
        """Write an amount.

        Raises:
            ValueError: it has a part of a cent.
        """
        if value is None:
            return None
        cents = value.scaleb(PLACES)
        if cents != int(cents):
            raise ValueError(f"{value} is no whole number of cents: round it first.")
        return int(cents)

    def process_result_value(self, value: int | None, dialect: Any) -> Decimal | None:
        """Read an amount, with both places: 24.50."""
        return None if value is None else Decimal(value).scaleb(-PLACES)
