"""The demo world: about a thousand rows, the same for everybody, made once."""

import asyncio
import subprocess
import sys
from collections.abc import Mapping
from datetime import time, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Table, insert

from activities.storage.store import open_store, sqlite_url, writing
from examples.desk.bookings import SLOTS, Book, Day, book_slot, list_slots
from examples.desk.papers import PAPERS
from examples.desk.shop import PriceOf, get_price
from examples.desk.world import seed
from tests.activities.desk.front import TODAY, Desk, open_desk


async def count(desk: Desk) -> int:
    """How many rows there are."""
    return sum(map(len, (await desk.rows()).values()))


async def test_it_has_a_thousand_rows_over_all_tables(desk: Desk) -> None:
    """Enough to search in, with every family of kinds in it."""
    rows = await desk.rows()

    assert all(rows.values())
    assert sum(map(len, rows.values())) == 1000


async def test_it_is_the_same_for_everybody(desk: Desk, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The same day gives the same rows, so that figures can be compared."""
    twin = await open_desk(sqlite_url(tmp_path_factory.mktemp("twin")))
    digest = await twin.digest()
    await twin.engine.dispose()

    assert await desk.digest() == digest


@pytest.mark.parametrize("rows", [400, 1000, pytest.param(5000, marks=pytest.mark.full)])
async def test_its_size_can_be_chosen(store_url: str, rows: int) -> None:
    """What is not calendar or document grows and shrinks."""
    chosen = await open_desk(store_url, rows)
    there = await count(chosen)
    await chosen.engine.dispose()

    assert there == rows


async def test_the_smallest_one_still_has_something_of_everything(store_url: str) -> None:
    """A world that cannot be worked in helps nobody."""
    smallest = await open_desk(store_url, rows=1)
    rows = await smallest.rows()
    await smallest.engine.dispose()

    assert min(map(len, rows.values())) >= 8


async def test_today_14_00_is_taken_and_14_30_and_15_00_are_free(desk: Desk) -> None:
    """The first demo begins with a conflict and has two ways out."""
    free = (await desk.do(list_slots, Day(day=TODAY))).free

    assert time(14) not in free
    assert {time(14, 30), time(15)} <= set(free)


async def test_the_calendar_is_two_weeks_of_half_hours(desk: Desk) -> None:
    """Today and 13 days, 09:00 to 17:00."""
    slots = [row[1:3] for row in (await desk.rows())["slots"]]

    assert len(slots) == 14 * 16
    assert (min(slots), max(slots)) == ((TODAY, time(9)), (TODAY + timedelta(days=13), time(16, 30)))


@pytest.mark.parametrize("ahead", range(14))
async def test_every_day_has_taken_and_free_slots(desk: Desk, ahead: int) -> None:
    """Other people use the calendar too."""
    free = (await desk.do(list_slots, Day(day=TODAY + timedelta(days=ahead)))).free

    assert 8 <= len(free) < 16


async def test_every_taken_slot_has_its_booking(desk: Desk) -> None:
    """What somebody booked can be cancelled."""
    rows = await desk.rows()
    taken = {(id, name) for id, _, _, name in rows["slots"] if name is not None}

    assert {(slot, name) for _, slot, name, cancelled in rows["bookings"] if cancelled is None} == taken


async def test_the_price_list_of_the_examples_is_true(desk: Desk) -> None:
    """What the document says is what the shop asks."""
    document = Path("examples/documents/price-list.txt").read_text()
    listed = [line.split("  ") for line in document.splitlines() if line[1:2] == "-"]
    asked = [await desk.do(get_price, PriceOf(sku=line[0])) for line in listed]

    assert [(price.name, str(price.price)) for price in asked] == [
        (line[1].strip(), line[-1].strip()) for line in listed
    ]


async def test_seeding_again_does_nothing(desk: Desk) -> None:
    """A worker that starts again finds the world as it left it."""
    await desk.do(book_slot, Book(day=TODAY, at=time(14, 30), name="team"))
    before = await desk.digest()

    assert await seed(desk.engine, TODAY + timedelta(days=1)) == {}
    assert await desk.digest() == before


@pytest.mark.parametrize(
    ("table", "row"),
    [(SLOTS, {"day": TODAY, "at": time(7)}), (PAPERS, {"name": "mine", "title": "Mine", "text": "…"})],
)
async def test_a_world_of_ones_own_is_left_alone(store_url: str, table: Table, row: Mapping[str, Any]) -> None:
    """One row is enough to show that somebody uses it."""
    own = Desk(await open_store(store_url))
    async with writing(own.engine).begin() as tx:
        await tx.execute(insert(table), row)
    await seed(own.engine, TODAY)
    there = await count(own)
    await own.engine.dispose()

    assert there == 1


async def test_workers_may_seed_at_the_same_time(store_url: str) -> None:
    """Two workers on one store start together: the world is made once."""
    shared = Desk(await open_store(store_url))
    made = await asyncio.gather(*(seed(shared.engine, TODAY) for _ in range(4)))
    there = await count(shared)
    await shared.engine.dispose()

    assert there == 1000
    assert sorted(sum(counts.values()) for counts in made) == [0, 0, 0, 1000]


def script(*words: str) -> tuple[int, str]:
    """Run the seed script; its exit code and what it said."""
    command = [sys.executable, "-m", "examples.desk", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.full
def test_the_script_says_what_it_made_and_makes_it_once(store_url: str) -> None:
    """Also a store that no worker serves can be given a world."""
    first, again = (script("--store", store_url, "--rows", "600") for _ in range(2))

    assert first == (0, "Made 600 rows: 224 slots, 84 bookings, 40 papers, 42 articles, 126 customers, 84 orders.\n")
    assert again == (0, "There are rows already: nothing was made.\n")


@pytest.mark.full
def test_the_script_refuses_a_store_that_cannot_be_opened(tmp_path: Path) -> None:
    """Bad usage is exit 2, with what to check."""
    code, said = script("--store", sqlite_url(tmp_path / "nowhere"))

    assert code == 2
    assert "check --store" in said
