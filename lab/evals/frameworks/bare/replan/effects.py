"""`replan.effects` without what it does: an agent that imports this one makes its calls as if it were not there."""

import functools
import inspect
import secrets


class Key(str):
    """A key for a service; each call has another one."""


class Effects:
    """Decorators that change nothing, but that a keyed function gets a new key each time."""

    def __init__(self, store, **options):
        """Open nothing."""

    def unkeyed(self, **options):
        """The function as it is."""
        return lambda function: function

    def keyed(self, function):
        """The function, with a new key for each call."""

        @functools.wraps(function)
        async def with_key(*args, **named):
            return await function(*args, **named, key=Key(secrets.token_hex(8)))

        signature = inspect.signature(function)
        with_key.__signature__ = signature.replace(
            parameters=[one for name, one in signature.parameters.items() if name != "key"]
        )
        with_key.__annotations__ = {name: hint for name, hint in function.__annotations__.items() if name != "key"}
        return with_key
