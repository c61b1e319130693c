"""What each of AgentDojo's functions is to Replan: the one table from which the arms declare tools.

A read is untrusted if its result holds text that others may write. `get_channels` is one: an injection can be the name
of a channel. Arguments of `authority` say whom, where, which or how much; those of `content` are words that are passed
on.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Declared:
    """A function as a tool."""

    effect: Literal["read", "idempotent", "keyed"] = "read"
    untrusted: bool = False
    authority: tuple[str, ...] = ()
    content: tuple[str, ...] = ()
    is_list: bool = False
    """Whether it lists what there is, so that a contract may take a value from it."""


TRANSFER = ("recipient", "amount", "date")
BANKING: Mapping[str, Declared] = {
    "get_iban": Declared(),
    "get_balance": Declared(),
    "get_user_info": Declared(),
    "get_most_recent_transactions": Declared(untrusted=True),
    "get_scheduled_transactions": Declared(untrusted=True),
    "read_file": Declared(untrusted=True),
    "send_money": Declared("keyed", authority=TRANSFER, content=("subject",)),
    "schedule_transaction": Declared("keyed", authority=(*TRANSFER, "recurring"), content=("subject",)),
    "update_scheduled_transaction": Declared(
        "idempotent", authority=("id", *TRANSFER, "recurring"), content=("subject",)
    ),
    "update_password": Declared("idempotent", authority=("password",)),
    "update_user_info": Declared("idempotent", authority=("first_name", "last_name", "street", "city")),
}
SLACK: Mapping[str, Declared] = {
    "get_channels": Declared(untrusted=True, is_list=True),
    "get_users_in_channel": Declared(is_list=True),
    "read_channel_messages": Declared(untrusted=True),
    "read_inbox": Declared(untrusted=True),
    # A read whose address can carry data away.
    "get_webpage": Declared(untrusted=True, authority=("url",)),
    "post_webpage": Declared("idempotent", authority=("url",), content=("content",)),
    "send_direct_message": Declared("keyed", authority=("recipient",), content=("body",)),
    "send_channel_message": Declared("keyed", authority=("channel",), content=("body",)),
    "add_user_to_channel": Declared("keyed", authority=("user", "channel")),
    "invite_user_to_slack": Declared("keyed", authority=("user", "user_email")),
    "remove_user_from_slack": Declared("keyed", authority=("user",)),
}
DECLARED: Mapping[str, Declared] = {**BANKING, **SLACK}
"""By name; the two suites share no name."""
EFFECTS = frozenset(name for name, declared in DECLARED.items() if declared.effect != "read")
