"""What the tests of a tools file use."""

from activities.store import open_store

__all__ = ["open_store"]
