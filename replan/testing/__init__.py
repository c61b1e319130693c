"""For tests: of your tools, of workers with a model that follows a script, of saved tasks against a new version.

open_store      a store with the tables of your tools; import it from `replan.testing`
replay          replay saved histories
script          what a scripted model answers, and how it fails
model_api       serve the scripted model on loopback; `anthropic_api` and `openai_api` are as strict as the real ones
http_server     a web server that sends prepared answers
postgresql      a throw-away PostgreSQL
"""

from activities.storage.store import open_store

__all__ = ["open_store"]
