"""What the gateway of version 0.1.0 has left open in a state folder: its journal is not read by this version."""

import shlex
import sqlite3
from contextlib import closing
from pathlib import Path

from workflows.commands import command

JOURNAL = "gateway.db"
MAX_NAMED = 3
_OPEN = "SELECT task_id FROM calls WHERE delivery IN ('open', 'broken', 'pending')"


def left_open(state: Path, session: str | None) -> str:
    """Why calls of a session, or of any, are not served with this state folder; empty if nothing is open."""
    path = state / JOURNAL
    if not path.exists():
        return ""
    of_session, values = (" AND session = ?", (session,)) if session else ("", ())
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
            ids = [str(row[0]) for row in database.execute(_OPEN + of_session + " ORDER BY since", values)]
    except sqlite3.Error as error:
        return f"{path} of Replan 0.1.0 cannot be read ({error}): rename it if nothing of it is open"
    if not ids:
        return ""
    named = ", ".join(ids[:MAX_NAMED]) + (f" and {len(ids) - MAX_NAMED} more" if len(ids) > MAX_NAMED else "")
    look, moved = command("show", ids[0]), f"mv {shlex.quote(str(path))} {shlex.quote(f'{path}.done')}"
    return (
        f"Replan 0.1.0 has recorded calls in {path} whose answers no agent has ({named}): see what became of each, with"
        f" `{look}`, then `{moved}`"
    )
