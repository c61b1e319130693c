"""What the commands say of a session that has more tasks than they look at."""

import sys

from client.sessions import SessionTasks
from client.text import printable


def print_more(session: SessionTasks) -> None:
    """Say on stderr that there are older tasks than those in `session`, if there are."""
    if session.more:
        looked = f"only its newest {len(session.handles)} tasks are looked at"
        print(printable(f"note: session {session.name} has more: {looked}"), file=sys.stderr)
