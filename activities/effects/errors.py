"""The errors of effects: in each case the function was not called, or nobody knows what its call did.

EffectError
├── OutcomeUnknown  nobody knows whether the call was applied
│   └── ResultUnknown  it was applied, and what it returned is not known
├── DoubtfulCall    the call may be an earlier call once more, or another one
├── KeyConflict     the key of the call belongs to a call with other arguments
├── EffectUndone    the effect was applied and undone: its result must not be returned again
└── EffectRefused   what was asked about an effect is not done, such as to settle a call that still runs
"""

from typing import Literal

RefusalCode = Literal[
    "unknown_key",
    "ambiguous_key",
    "still_running",
    "already_settled",
    "other_answer",
    "earlier_first",
    "bad_result",
    "changed",
    "not_applied",
    "no_undo",
]
"""Why something about an effect is refused, for programs."""


class EffectError(Exception):
    """The base of the errors of effects; it is not raised itself."""

    def __init__(self, key: str, message: str = "", what: str = "") -> None:
        """`key` is the key of the row in the ledger; `message` says what is known, and what to do, `what` the first."""
        super().__init__(message or key)
        self.key, self.what = key, what or message


class OutcomeUnknown(EffectError):
    """The call was begun and no result is recorded: the effect may have been applied."""


class ResultUnknown(OutcomeUnknown):
    """The call was applied, and what it returned is not known."""


class DoubtfulCall(EffectError):
    """The call may be an earlier call once more, or another one: it was not made."""

    def __init__(self, key: str, message: str = "", about: str = "", what: str = "") -> None:
        super().__init__(key, message, what)
        self.about = about
        """The key of the earlier call."""


class KeyConflict(EffectError):
    """The key belongs to a call with other arguments."""


class EffectUndone(EffectError):
    """The effect was applied and then undone, so its recorded result must not be returned."""


class EffectRefused(EffectError):
    """What was asked about an effect is not done, and nothing was changed."""

    def __init__(self, code: RefusalCode, key: str, reason: str, remedy: str) -> None:
        """`reason` and `remedy` together make one sentence."""
        super().__init__(key, f"{reason}: {remedy}.")
        self.code, self.reason, self.remedy = code, reason, remedy
