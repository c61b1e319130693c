"""The parts of the chaos harness: its world, its payment service, its table of placed kills, and its proxy."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from threading import Thread

import httpx2
import pytest
from sqlalchemy import insert, update
from sqlalchemy.ext.asyncio import create_async_engine

from evals.chaos import payments
from evals.chaos.payments import Answer, Book, Call, Endpoint, Trouble
from evals.chaos.placed import KINDS, POINTS, TIMES, Cell, Expected, expected, placed_kills
from evals.chaos.stage import Proxy
from evals.chaos.world import ACCOUNTS, TRANSFERS, Effects, open_accounts, read_effects
from runtime.dev_server import free_port

MOVED = {"reference": "r", "source": 1, "target": 2, "amount": 5}


async def after(folder: Path, *changes: tuple[int, int], rows: int = 1) -> Effects:
    url = f"sqlite+aiosqlite:///{folder / 'bank.db'}"
    engine = create_async_engine(url)
    await open_accounts(engine)
    async with engine.begin() as tx:
        await tx.execute(insert(TRANSFERS), [MOVED] * rows)
        for account, change in changes:
            changed = update(ACCOUNTS).where(ACCOUNTS.c.id == account)
            await tx.execute(changed.values(balance=ACCOUNTS.c.balance + change))
    await engine.dispose()
    return await read_effects(url, Book(folder / "book.db"))


@pytest.mark.parametrize(
    ("changes", "rows", "unbalanced", "total"),
    [
        ([(1, -5), (2, 5)], 1, [], 2_000_000),
        ([(1, -5), (2, 5)], 2, [1, 2], 2_000_000),
        ([(1, -5)], 1, [2], 1_999_995),
        ([(1, -5), (2, 5), (3, 1), (4, -1)], 1, [3, 4], 2_000_000),
    ],
    ids=["moved", "written twice", "a cent is missing", "nobody wrote it down"],
)
async def test_the_books_are_held_against_the_balances(
    tmp_path: Path, changes: list[tuple[int, int]], rows: int, unbalanced: list[int], total: int
) -> None:
    """Each balance must be what the transfers made of it, and the total what it was."""
    found = await after(tmp_path, *changes, rows=rows)

    assert (found.unbalanced, found.total) == (unbalanced, total)
    assert found.count("transfer", "r") == rows


ONCE = Expected(statuses=("completed",), effects=(1,))


@pytest.mark.parametrize(
    ("ended", "counts", "is_right"),
    [
        (["completed"] * 3, [1, 1, 1], True),
        (["completed"] * 3, [1, 2, 1], False),
        (["completed"] * 3, [1, 0, 1], False),
        (["completed", "escalated"], [1, 1], False),
        ([], [], False),
    ],
)
def test_a_cell_is_right_when_all_its_tasks_are(ended: list[str], counts: list[int | None], is_right: bool) -> None:
    cell = Cell(effect="keyed", point="after_claim", expected=ONCE, ended=ended, effects=counts)

    assert cell.is_right is is_right


def test_every_effect_is_killed_three_times_at_every_point() -> None:
    """And no kind follows itself, since the next victim serves the task before its own."""
    kinds = [hit.kind for hit in placed_kills(7)]

    assert len(kinds) == len(KINDS) * len(POINTS) * TIMES
    assert all(kind != following for kind, following in pairwise(kinds))


def test_what_nobody_can_find_out_is_left_to_a_person() -> None:
    """The only kind that may end as escalated, and only where its answer was lost."""
    escalated = {(kind, point) for kind in KINDS for point in POINTS if expected(kind, point).statuses != ONCE.statuses}

    assert escalated == {("pay_blindly", point) for point in POINTS if point not in ("after_answer", "after_commit")}


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while part := await reader.read(1000):
        writer.write(part)
    writer.close()


async def test_what_is_sent_comes_through_until_it_is_cut() -> None:
    """A connection that is dropped is reset, none is accepted for a while, and then all is as before."""
    there = await asyncio.start_server(echo, "127.0.0.1", port := free_port())
    async with there, Proxy(free_port(), port) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"before")
        before = await reader.readexactly(6)
        dropping = asyncio.create_task(proxy.drop(0.3))
        with pytest.raises(ConnectionError):
            await reader.readexactly(1)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", proxy.port)
        cut = await dropping
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"after")
        after = await reader.readexactly(5)
        writer.close()

    assert (before, cut, after) == (b"before", 1, b"after")


@contextmanager
def served(folder: Path, troubles: dict[str, list[str]]) -> Iterator[tuple[httpx2.Client, Book]]:
    book = Book(folder / "book.db", troubles)
    with payments.Service(0, book, too_long=0.2) as service:
        Thread(target=service.serve_forever, daemon=True).start()
        with httpx2.Client(base_url=f"http://127.0.0.1:{service.server_port}", timeout=20, trust_env=False) as client:
            yield client, book
        service.shutdown()


def charged(client: httpx2.Client, endpoint: str = "plain", key: str = "k") -> int | None:
    """The status of a charge; None where no answer came."""
    try:
        reply = client.post(
            f"/{endpoint}", params={"reference": "r"}, json={"amount": 5}, headers={"idempotency-key": key}
        )
    except httpx2.TransportError:
        return None
    return reply.status_code


@pytest.mark.parametrize(
    ("trouble", "statuses", "charges"),
    [
        ([], [200, 200], 2),
        ([Trouble.RESET], [None, 200], 1),
        ([Trouble.DROP], [None, 200], 2),
        ([Trouble.BUSY, Trouble.DOWN], [429, 503], 0),
        ([Trouble.DENIED], [401, 200], 1),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) and all(isinstance(one, str) for one in value) else "",
)
def test_the_fault_plan_is_met_call_by_call(
    tmp_path: Path, trouble: list[str], statuses: list[int | None], charges: int
) -> None:
    with served(tmp_path, {"r": trouble}) as (client, book):
        said = [charged(client) for _ in statuses]

    assert said == statuses
    assert book.charges().get("r", 0) == charges


@pytest.mark.parametrize("trouble", [Trouble.SLOW, Trouble.LATE, Trouble.KILL])
def test_an_answer_comes_too_late(tmp_path: Path, trouble: Trouble) -> None:
    """The charge is made, before or after the caller gave up, and no answer comes."""
    with served(tmp_path, {"r": [trouble]}) as (client, book):
        said = charged(client)

    assert (said, book.charges()) == (None, {"r": 1})


@pytest.mark.parametrize(("endpoint", "second"), [("keyed", 200), ("strict", 409)])
def test_a_key_charges_once(tmp_path: Path, endpoint: str, second: int) -> None:
    with served(tmp_path, {}) as (client, book):
        said = [charged(client, endpoint) for _ in range(2)]

    assert (said, book.charges()) == ([200, second], {"r": 1})


@pytest.mark.parametrize("reference", ["r", "k"])
def test_a_charge_is_found(tmp_path: Path, reference: str) -> None:
    with served(tmp_path, {}) as (client, _):
        before = client.get("/find", params={"reference": reference}).status_code
        charged(client)
        after = client.get("/find", params={"reference": reference}).json()

    assert (before, after["reference"], after["amount"]) == (404, "r", 5)


def test_who_is_to_be_killed_is_in_the_book(tmp_path: Path) -> None:
    """Only a call that was carried out condemns its worker, once."""
    book = Book(tmp_path / "book.db", {"r": [Trouble.KILL, Trouble.KILL]})
    call = Call(Endpoint.PLAIN, "r", None, 5, worker=4711)
    first, _ = book.record_call(call)
    book.record_call(call)
    answer = book.apply(first, call)

    assert answer == Answer(200, {"id": 1, "reference": "r", "amount": 5}, applied=True)
    assert (book.workers_to_kill(0), book.workers_to_kill(first)) == ([(first, 4711)], [])
