"""What models that are asked for a task say at this moment: told by a query, and never a part of the history."""

from collections.abc import Callable

from pydantic import BaseModel, ConfigDict
from temporalio import workflow

UNFINISHED = "replan_unfinished"
"""The name under which a worker gives its workflows the function that knows what models say, by the id of a run."""
MAX_SAID = 8_000
"""The most characters of a reply that are told: its last ones."""
MAX_TOLD = 10_000
"""The most characters that are told at once: with all escapes, so many stay below the size at which an answer would
be put into the store."""


class Unfinished(BaseModel):
    """The last characters of a reply that is still coming: untrusted, and perhaps never finished."""

    model_config = ConfigDict(frozen=True)

    activity: str
    """The id of the activity that asks the model."""
    reply: str
    """The id of the reply, a new one each time that the model is asked."""
    length: int
    """How many characters have come; `text` has the last of them."""
    text: str

    @property
    def start(self) -> int:
        """The place of the beginning of `text` in the reply."""
        return self.length - len(self.text)

    def shortened(self, most: int) -> "Unfinished":
        """The same with at most `most` characters of its text."""
        return self if len(self.text) <= most else self.model_copy(update={"text": self.text[-most:]})


def said_now() -> list[Unfinished]:
    """For a query handler: what models say for the current run, as far as its worker knows; empty in a replay."""
    known: Callable[[str], list[Unfinished]] | None = workflow.extern_functions().get(UNFINISHED)
    return known(workflow.info().run_id) if known else []
