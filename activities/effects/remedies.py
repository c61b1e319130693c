"""What a person does about a call, as a command that can be pasted into a shell."""

import os
import shlex
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from workflows.commands import STARTER

OUTCOME, RESULT, IDENTITY = "outcome", "result", "identity"
"""What is missing: whether a call was applied; what an applied call returned; whether a doubtful call is the earlier
one again."""


def to_settle(key: str, missing: str, store: str) -> str:
    """The sentence that says how the call with this key is settled in the store with this URL."""
    match missing:
        case _ if missing == OUTCOME:
            commands = f"{to_see(store, 'settle', key, 'applied')} (its result: `--result JSON`), or with `not-applied`"
        case _ if missing == RESULT:
            commands = f"{to_see(store, 'settle', key, 'applied', result='null')}, with its result in place of null"
        case _:
            commands = f"{to_see(store, 'settle', key, 'same')}, or with `another`"
    return f"Settle it: {commands}.{_password(store)}"


def to_see(store: str, command: str, *args: str, **options: str) -> str:
    """A command about a store, in backticks: `replan effects --store agent.db`."""
    switches = [*(f"--{name} {shlex.quote(value)}" for name, value in options.items()), f"--store {as_argument(store)}"]
    if any(word.startswith("-") for word in args):  # else it would be taken for an option
        parts = [command, *switches, "--", *map(shlex.quote, args)]
    else:
        parts = [command, *map(shlex.quote, args), *switches]
    return f"`{STARTER} {' '.join(parts)}`"


def as_argument(store: str) -> str:
    """A store as it is typed behind `--store`: its file, its URL, or the variable that has a URL with a password."""
    url = _parsed(store)
    if url is None:
        return shlex.quote(store)
    if url.get_backend_name() == "sqlite" and not url.query and url.database:
        return shlex.quote(str(Path(url.database).absolute()))
    if not (url.password or url.query):
        return shlex.quote(store)
    if variable := _variable(store):
        return f'"${variable}"'
    return shlex.quote(_public(url).render_as_string())


def _password(store: str) -> str:
    url = _parsed(store)
    is_left_out = url is not None and url.password is not None and _variable(store) is None
    return " The variable PGPASSWORD must have the password then." if is_left_out else ""


def _parsed(store: str) -> URL | None:
    try:
        return make_url(store if "://" in store else f"sqlite:///{store}")
    except (ArgumentError, ValueError):
        return None


def _variable(store: str) -> str | None:
    """The name of a variable of this process that has exactly this URL."""
    return next((name for name, value in os.environ.items() if value == store and name.isidentifier()), None)


def _public(url: URL) -> URL:
    # A query can have a password, too.
    return URL.create(url.drivername, url.username, host=url.host, port=url.port, database=url.database)
