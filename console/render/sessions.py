"""The note that commands print about a session with more tasks than they read."""

import sys

from client.sessions import SessionTasks
from client.text import printable


def print_more(session: SessionTasks) -> None:
    """Print a note on stderr if the session has older tasks than those in `session`."""
    if session.more:
        looked = f"only its newest {len(session.handles)} tasks are looked at"
        print(printable(f"note: session {session.name} has more: {looked}"), file=sys.stderr)
