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
    return sum(map(len, (await desk.rows()).values()))


async def test_it_has_a_thousand_rows_the_same_for_everybody(desk: Desk, tmp_path: Path) -> None:
    """Enough to search in, with every family of kinds in it; a worker that starts again finds it as it left it."""
    (folder := tmp_path / "twin").mkdir()
    twin = await open_desk(sqlite_url(folder))
    digest = await twin.digest()
    await twin.engine.dispose()

    assert all((await desk.rows()).values())
    assert (await count(desk), await desk.digest()) == (1000, digest)

    await desk.do(book_slot, Book(day=TODAY, at=time(14, 30), name="team"))
    before = await desk.digest()

    assert await seed(desk.engine, TODAY + timedelta(days=1)) == {}
    assert await desk.digest() == before


@pytest.mark.parametrize(("wanted", "smallest"), [(400, 8), (1, 8), pytest.param(5000, 40, marks=pytest.mark.full)])
async def test_its_size_can_be_chosen(store_url: str, wanted: int, smallest: int) -> None:
    """What is not calendar or document grows and shrinks; the smallest still has something of everything."""
    chosen = await open_desk(store_url, wanted)
    sizes = [len(rows) for rows in (await chosen.rows()).values()]
    await chosen.engine.dispose()

    assert min(sizes) >= smallest
    assert wanted == 1 or sum(sizes) == wanted


async def test_the_calendar_is_two_weeks_of_half_hours_with_taken_and_free_slots(desk: Desk) -> None:
    """The first demo begins with a conflict at 14:00; the document says what the shop asks."""
    rows = await desk.rows()
    slots = [row[1:3] for row in rows["slots"]]
    taken = {(id, name) for id, _, _, name in rows["slots"] if name is not None}
    days = [TODAY + timedelta(days=ahead) for ahead in range(14)]
    free = [(await desk.do(list_slots, Day(day=day))).free for day in days]

    assert len(slots) == 14 * 16
    assert (min(slots), max(slots)) == ((TODAY, time(9)), (days[-1], time(16, 30)))
    assert {(slot, name) for _, slot, name, cancelled in rows["bookings"] if cancelled is None} == taken
    assert [day for day, times in zip(days, free, strict=True) if not 8 <= len(times) < 16] == []
    assert time(14) not in free[0] and {time(14, 30), time(15)} <= set(free[0])

    document = Path("examples/documents/price-list.txt").read_text()
    listed = [line.split("  ") for line in document.splitlines() if line[1:2] == "-"]
    asked = [await desk.do(get_price, PriceOf(sku=line[0])) for line in listed]

    assert asked
    assert [(price.name, str(price.price)) for price in asked] == [
        (line[1].strip(), line[-1].strip()) for line in listed
    ]


@pytest.mark.parametrize(
    ("table", "row"), [(SLOTS, {"day": TODAY, "at": time(7)}), (PAPERS, {"name": "mine", "title": "Mine", "text": "…"})]
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
def test_the_script_says_what_it_made_and_makes_it_once(store_url: str, tmp_path: Path) -> None:
    """Also a store that no worker serves can be given a world; one that cannot be opened is bad usage."""
    first, again = (script("--store", store_url, "--rows", "600") for _ in range(2))
    code, said = script("--store", sqlite_url(tmp_path / "nowhere"))

    assert first == (0, "Made 600 rows: 224 slots, 84 bookings, 40 papers, 42 articles, 126 customers, 84 orders.\n")
    assert again == (0, "There are rows already: nothing was made.\n")
    assert code == 2 and "check --store" in said
