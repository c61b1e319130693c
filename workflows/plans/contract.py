"""The contract of a task: which effects it may have once it has read untrusted content, and with which arguments.

It is fixed before the first untrusted content is read, by the plans until then or by the user. Untrusted content may
contain instructions, so whatever is planned later may follow them.
"""

from workflows.sparse import Sparse


class Origin(Sparse, frozen=True):
    """A literal in the arguments of a proposed step that has no trusted source.

    Trusted sources are what the user wrote, and results of tools that return no untrusted content.
    """

    step: str
    at: str
    """The path of the literal in the step's arguments, such as `receiver` or `items.0.sku`."""
    source: str = ""
    """The id of the step whose untrusted result shows the value, or `input` or `conversation`; empty if nothing shows
    it."""
    line: int = 0
    """The line of the untrusted text, from 1; 0 if unknown."""
    quote: str = ""
    """The sentence of the untrusted text that contains the value."""
    unusual: str = ""
    """What is unusual about the value, such as "looks like shop.example, but is written with other letters"."""
