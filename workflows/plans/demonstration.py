"""Demonstrations: tasks with the moves that solve them, which a model is shown as examples.

Made when a user starts a task; read when the planner is told the text of the task.
"""

from pydantic import Field, JsonValue

from workflows.marks import Refers
from workflows.sparse import Sparse

MAX_DEMONSTRATIONS, MAX_MOVES = 10, 20
"""The most demonstrations of a task, and the most moves of each."""
MAX_DEMONSTRATION_BYTES = 16_000
"""The most bytes of all demonstrations of a task, as JSON: each request to the model repeats them."""


class DemonstratedMove(Sparse, frozen=True, extra="forbid"):
    """One call of a demonstration, and what came of it."""

    kind: str = Field(min_length=1, max_length=200)
    args: Refers[dict[str, JsonValue]] = Field(default_factory=dict)
    result: JsonValue = None
    thought: str = ""
    """Why the call is made, in one sentence."""


class Demonstration(Sparse, frozen=True, extra="forbid"):
    """A task, the calls that solve it one after the other, and the answer."""

    task: str = Field(min_length=1)
    moves: tuple[DemonstratedMove, ...] = Field(default=(), max_length=MAX_MOVES)
    answer: str = Field(min_length=1)
    thought: str = ""
    """Why the answer can be given, in one sentence."""
