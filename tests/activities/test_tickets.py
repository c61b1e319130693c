"""The tickets of calls that wait for their turn, row by row: how often each was told, and how often it was a trial."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, create_engine, select

from activities.boundary.breakers.tickets import TICKETS, Caller, call, issue, recall, take

SERVICE, MOST = "shop", 3
CALLER = Caller(key="a", namespace="default", workflow="w", started=1.0)


@pytest.fixture
def tx() -> Iterator[Connection]:
    with create_engine("sqlite://").begin() as connection:
        TICKETS.create(connection)
        yield connection


def told(tx: Connection, at: float) -> list[str]:
    """The keys of the calls whose turn comes; none of them is made, so that they wait again."""
    found = [one.key for one in call(tx, SERVICE, "default", 1, at, (), is_trial=False)]
    recall(tx, SERVICE, (), at + 1, MOST)
    return found


def row(tx: Connection) -> tuple[int, int]:
    """How often the call was told in a row, and how often it was a trial."""
    found = tx.execute(select(TICKETS.c.calls, TICKETS.c.trials)).one()
    return found.calls, found.trials


def test_a_call_that_does_not_come_loses_its_ticket_after_so_many_turns(tx: Connection) -> None:
    issue(tx, SERVICE, CALLER, 1.0)
    begun = row(tx)
    turns = [told(tx, at) for at in (2.0, 4.0, 6.0, 8.0)]

    assert begun == (0, 0)
    assert turns == [["a"]] * MOST + [[]]


def test_a_call_that_came_may_miss_as_many_turns_again(tx: Connection) -> None:
    """Also one that asks for a ticket anew."""
    issue(tx, SERVICE, CALLER, 1.0)
    for at in (2.0, 4.0):
        told(tx, at)
    call(tx, SERVICE, "default", 1, 6.0, (), is_trial=False)
    take(tx, SERVICE, "a", 6.0)
    made = row(tx)
    issue(tx, SERVICE, CALLER, 7.0, trials=1)
    anew = row(tx)

    assert (made, anew) == ((0, 2), (0, 3))
    assert [told(tx, at) for at in (8.0, 10.0, 12.0, 14.0)] == [["a"]] * MOST + [[]]
