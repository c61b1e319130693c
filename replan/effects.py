"""Each effect once, in any program: `from replan.effects import Effects`.

    effects = Effects("sqlite:///agent.db", session="order-17")

    @effects.unkeyed(reconcile=find_mail)
    async def send_mail(to: str, subject: str, body: str) -> str: ...

A program that is killed after an effect, resumes and makes the call again gets the recorded result. Nothing here needs
a server or a worker. docs/effects.md has the rules, and a recipe for each framework.
"""

from collections.abc import Callable
from pathlib import Path

from sqlalchemy.ext.asyncio import AsyncConnection as Transaction

from activities.effects.errors import (
    DoubtfulCall as DoubtfulCall,
    EffectError as EffectError,
    EffectRefused as EffectRefused,
    EffectUndone as EffectUndone,
    KeyConflict as KeyConflict,
    OutcomeUnknown as OutcomeUnknown,
)
from activities.effects.floor import Effects as _Effects
from activities.effects.flow import Joined as Joined
from activities.effects.key import Key as Key
from activities.storage.store import Cipher as Cipher, StoreUnavailable as StoreUnavailable

__all__ = [
    "DoubtfulCall",
    "EffectError",
    "EffectRefused",
    "EffectUndone",
    "Effects",
    "Joined",
    "Key",
    "KeyConflict",
    "OutcomeUnknown",
    "StoreUnavailable",
    "Transaction",
]


class Effects(_Effects):
    __doc__ = _Effects.__doc__

    def __init__(
        self,
        store: str,
        session: str | None = None,
        *,
        keys: str | Path | Cipher | None = None,
        restarts: bool = False,
        watch: bool = True,
        on_joined: Callable[[Joined], None] | None = None,
    ) -> None:
        """Remember where effects are recorded.

        Args:
            store: `sqlite:///FILE.db`, the path of a SQLite file, or `postgresql://USER@HOST/DATABASE`.
            session: The name of what the agent works at; calls are recognised within it. `scope` sets it for a block.
            keys: A keyring, or its file (`replan keys new FILE`), which encrypts arguments and results.
            restarts: After it was killed, the agent begins from its start, and makes its calls again in order.
            watch: Count what calls send, by hooks in this process; without them, no rejection proves anything.
            on_joined: Called when a call was taken for an earlier one; by default a warning is logged.

        Raises:
            ValueError: `store` is no URL of a database, or the keyring cannot be used.
        """
        if isinstance(keys, str | Path):
            from runtime.keys import cipher_of  # the keyring needs more than effects do

            cipher: Cipher | None = cipher_of(keys)
        else:
            cipher = keys
        super().__init__(store, session, cipher=cipher, restarts=restarts, watch=watch, on_joined=on_joined)
