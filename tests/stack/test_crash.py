"""The crash tests again, on the stack: the same workers, tools and promises, on PostgreSQL and production settings."""

from tests.crash.test_crash import (
    notes,
    test_a_call_survives_three_workers,
    test_a_killed_server_loses_nothing,
    test_a_killed_worker_loses_nothing_between_steps,
    test_sigterm_ends_a_worker_in_order,
)

__all__ = [
    "notes",
    "test_a_call_survives_three_workers",
    "test_a_killed_server_loses_nothing",
    "test_a_killed_worker_loses_nothing_between_steps",
    "test_sigterm_ends_a_worker_in_order",
]
