"""Fill the front desk's tables in a store: `python -m examples.desk --store URL`."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated

import typer

from examples import desk
from replan import StoreUnavailable, open_store

Store = Annotated[str, typer.Option(envvar="REPLAN_STORE", help="URL of the store, e.g. sqlite+aiosqlite:///desk.db.")]
Rows = Annotated[int, typer.Option(min=1, max=1_000_000, help="About how many rows to insert.")]


def main(store: Store, rows: Rows = 1000) -> None:
    """Fill the tables of the front desk, unless one of them has a row."""
    try:
        made = asyncio.run(_seed(store, rows))
    except StoreUnavailable as error:
        typer.echo(error, err=True)
        raise typer.Exit(2) from None
    counts = ", ".join(f"{count} {table}" for table, count in made.items())
    typer.echo(f"Made {sum(made.values())} rows: {counts}." if made else "There are rows already: nothing was made.")


async def _seed(store: str, rows: int) -> Mapping[str, int]:
    engine = await open_store(store)
    try:
        return await desk.seed(engine, datetime.now(UTC).date(), rows)
    finally:
        await engine.dispose()


if __name__ == "__main__":
    typer.run(main)
