"""The idempotency key of a call, as a parameter of its function."""


class Key(str):
    """The idempotency key of the call: the same after a retry, crash, replay or reset.

    Send it to the service, which then applies the effect only once.
    """

    __slots__ = ()
