"""Owners on other machines, which PostgreSQL lets share a store: an expired lease proves no death."""

import re
from pathlib import Path

import psycopg
import pytest

from evals.fakes.postgresql import Cluster
from tests.effects.agents import DIES, DIES_AFTER, DIES_BEFORE, MAILED, Agents

EXPIRED = "UPDATE replan_owners SET lease = 0"
SAID = "said mail\nreturned w1"
CASES: dict[str, tuple[str, list[str], str]] = {
    "what was answered elsewhere a moment ago may be unread: its machine may be gone": (MAILED + DIES, [], SAID),
    "an effect that is found is not made again: it proves itself": (DIES_AFTER + MAILED, [EXPIRED], SAID),
    "nothing found proves nothing while the time of the call has not run out, as its lease has": (
        DIES_BEFORE + MAILED,
        [EXPIRED],
        "unknown .*may still arrive.* settle mail-.*",
    ),
    "nothing found counts when the time of the call is over: no attempt sends anything after it": (
        DIES_BEFORE + MAILED,
        [EXPIRED, "UPDATE replan_ledger SET expires = 0"],
        "returned w1",
    ),
}
"""What an agent does that is killed elsewhere, what happens to the store, and what an equal call says here."""
AGAIN = """
    try:
        say("returned", mail("a", "x"))
    except OutcomeUnknown as error:
        say("unknown", error)
"""


@pytest.mark.parametrize(("source", "statements", "expected"), CASES.values(), ids=CASES)
def test_a_call_of_another_machine(
    tmp_path: Path, postgresql: Cluster, source: str, statements: list[str], expected: str
) -> None:
    """Of which nobody here sees whether it lives."""
    agents = Agents(tmp_path, postgresql.url(name := postgresql.create()))
    agents.run(source, timeout=200.0)
    with psycopg.connect(agents.url.replace("+psycopg", ""), autocommit=True) as store:
        for statement in ("UPDATE replan_owners SET boot = 'another machine', host = 'other'", *statements):
            store.execute(statement.encode())
    lines = agents.run(AGAIN, timeout=200.0)
    postgresql.drop(name)

    assert re.fullmatch(expected, "\n".join(lines), re.DOTALL), lines
