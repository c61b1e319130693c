"""For tests of your tools.

open_store      a store with the tables of your tools; import it from `replan.testing`
worker          a worker for tests of tools, and calls of them: what the fixtures of the plugin for pytest return
"""

from activities.storage.store import open_store

__all__ = ["open_store"]
