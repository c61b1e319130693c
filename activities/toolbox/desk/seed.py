"""Make the demo world in a store: `python -m activities.toolbox.desk.seed --store URL`."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated

import typer

from activities.storage.store import StoreUnavailable, open_store
from activities.toolbox.desk import world

Store = Annotated[str, typer.Option(envvar="REPLAN_STORE", help="URL of the store, e.g. sqlite+aiosqlite:///desk.db.")]
Rows = Annotated[int, typer.Option(min=1, max=1_000_000, help="About how many rows to make.")]


def main(store: Store, rows: Rows = 1000) -> None:
    """Fill an empty front desk; a world that has any row is left alone."""
    try:
        made = asyncio.run(_seed(store, rows))
    except StoreUnavailable as wrong:
        typer.echo(wrong, err=True)
        raise typer.Exit(2) from None
    counts = ", ".join(f"{count} {table}" for table, count in made.items())
    typer.echo(f"Made {sum(made.values())} rows: {counts}." if made else "There is a world already: nothing was made.")


async def _seed(store: str, rows: int) -> Mapping[str, int]:
    engine = await open_store(store)
    try:
        return await world.seed(engine, datetime.now(UTC).date(), rows)
    finally:
        await engine.dispose()


if __name__ == "__main__":
    typer.run(main)
