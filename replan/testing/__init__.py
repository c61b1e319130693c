"""For tests of your tools, and of workers with a scripted model.

open_store      a store with the tables of your tools; import it from `replan.testing`
worker          a worker for tests of tools, and calls of them: what the fixtures of the plugin for pytest return
script          what a scripted model answers, and how it fails
model_api       serve the scripted model on loopback; `anthropic_api` and `openai_api` check requests like the real APIs
http_server     a web server that sends prepared answers
postgresql      a throw-away PostgreSQL
"""

from activities.storage.store import open_store

__all__ = ["open_store"]
