"""The package of users' tools files, each a module of it: processes that a tool starts import them by its name."""

import sys

# The folders of the tools files are the last of sys.path, which multiprocessing hands to the processes that it starts.
__path__ = sys.path[::-1]
