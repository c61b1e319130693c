"""The replies that models are writing for a task at this moment: a query returns them, and no history has them.

Made by a worker while a reply arrives, and read when a client asks with the query `words`.
"""

from collections.abc import Callable

from pydantic import BaseModel
from temporalio import workflow

UNFINISHED = "replan_unfinished"
"""The name of the extern function with which a worker gives its workflows the unfinished replies for a run id."""
MAX_SAID = 8_000
"""The most characters of one reply that an answer to the query contains: the last characters."""
MAX_TOLD = 10_000
"""The most characters of all replies in one answer to the query: even if all are escaped, the answer stays below the
size at which it would be put into the store."""


class Unfinished(BaseModel, frozen=True):
    """The last characters of a reply that is still coming: untrusted, and perhaps never finished."""

    activity: str
    """The id of the activity that asks the model."""
    reply: str
    """The id of the reply, a new one each time that the model is asked."""
    length: int
    """How many characters of the reply have arrived; `text` has the last of them."""
    text: str

    @property
    def start(self) -> int:
        """The index, from 0, of the first character of `text` in the reply."""
        return self.length - len(self.text)

    def shortened(self, most: int) -> "Unfinished":
        """This reply with at most the last `most` characters of `text`."""
        return self if len(self.text) <= most else self.model_copy(update={"text": self.text[-most:]})


def said_now() -> list[Unfinished]:
    """The unfinished replies for the current run that its worker knows; empty in a replay. Only for query handlers."""
    known: Callable[[str], list[Unfinished]] | None = workflow.extern_functions().get(UNFINISHED)
    return known(workflow.info().run_id) if known else []
