"""A state folder in which the gateway of version 0.1.0 has left calls open."""

import sqlite3

import pytest

from extras.gateway.tests.agents import PAY, Agent, Place, said


@pytest.mark.parametrize(
    ("session", "delivery", "is_served"),
    [("one", "pending", False), ("one", "broken", False), ("one", "delivered", True), ("two", "pending", True)],
)
def test_calls_that_are_open_in_its_journal_are_named(
    place: Place, session: str, delivery: str, is_served: bool
) -> None:
    """And nothing of their session is served before a person has looked at them."""
    place.state.mkdir()
    with sqlite3.connect(journal := place.state / "gateway.db") as database:
        database.execute("CREATE TABLE calls (task_id, session, tool, digest, authority, key, delivery, since)")
        row = ("mcp:one:pay-1", "one", "pay", "", "", "", delivery, 1.0)
        database.execute("INSERT INTO calls VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    if is_served:
        assert said(place.agent(session).call("pay", PAY)).startswith("paid ann")
        return
    agent = Agent(place, "--session", session, "--", "true")
    agent.send("initialize")
    why = agent.errors()

    assert "mcp:one:pay-1" in why and f"mv {journal} {journal}.done" in why
    assert place.paid == []
