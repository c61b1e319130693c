"""What a framework sees of a decorated function: a signature without what is injected, with types that it can read."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from pydantic import BaseModel, Field
from sqlalchemy import Connection, create_engine

from replan.effects import Effects, Key

if TYPE_CHECKING:
    from tests.effects.world import World


class Line(BaseModel):
    """A type of this module, which no module of Replan knows."""

    count: int


class Receipt(BaseModel):
    """What a call returns."""

    paid: int


def declared(folder: Path) -> Callable[..., Any]:
    """A function with everything that a signature may have."""
    effects = Effects(str(folder / "effects.db"), session="order-17")

    @effects.keyed
    async def pay(ctx: Context, who: str, key: Key, lines: Annotated[list[Line], Field(min_length=1)]) -> Receipt:
        """Pay somebody."""
        return Receipt(paid=len(lines))

    return pay


def test_what_is_injected_does_not_show(tmp_path: Path) -> None:
    """Neither in the signature nor in the annotations; the docstring and the name stay."""
    pay = declared(tmp_path)

    assert [*inspect.signature(pay).parameters] == ["ctx", "who", "lines"]
    assert {*get_type_hints(pay)} == {"ctx", "who", "lines", "return"}
    assert (pay.__name__, pay.__doc__) == ("pay", "Pay somebody.")


def test_types_that_are_written_as_text_are_types(tmp_path: Path) -> None:
    """A framework that reads the signature does not have to know the module of the function."""
    signature = inspect.signature(declared(tmp_path))

    assert signature.return_annotation is Receipt
    assert get_args(signature.parameters["lines"].annotation)[0] == list[Line]


async def test_an_mcp_server_has_the_schemas_of_the_bare_function(tmp_path: Path) -> None:
    """For arguments and results, which are types of the user's module."""
    server = MCPServer("shop")
    server.tool()(declared(tmp_path))
    (tool,) = await server.list_tools()

    assert [*tool.input_schema["properties"]] == ["who", "lines"]
    assert tool.input_schema["properties"]["lines"]["items"] == {"$ref": "#/$defs/Line"}
    assert tool.output_schema is not None and [*tool.output_schema["properties"]] == ["paid"]
    answer = await server.call_tool("pay", {"who": "ann", "lines": [{"count": 2}]})
    assert "'paid': 1" in str(answer)


def test_a_type_that_only_a_checker_sees_hides_no_other(tmp_path: Path) -> None:
    """The parameters that are injected are found all the same."""
    effects = Effects(str(tmp_path / "effects.db"), session="order-17")

    @effects.transactional(create_engine("sqlite://"))
    def book(world: World | None, amount: int, tx: Connection) -> int:
        return amount

    signature = inspect.signature(book)
    assert [*signature.parameters] == ["world", "amount"]
    assert signature.parameters["amount"].annotation is int


def test_a_decorator_below_keeps_the_types(tmp_path: Path) -> None:
    """As does `functools.partial`."""
    effects = Effects(str(tmp_path / "effects.db"), session="order-17")

    def mail(to: str, lines: list[Line]) -> Receipt:
        return Receipt(paid=len(lines))

    @effects.unkeyed(name="wrapped")
    @functools.wraps(mail)
    def wrapped(*args: Any, **named: Any) -> Receipt:
        return mail(*args, **named)

    bound = effects.unkeyed(name="bound")(functools.partial(mail, to="ann"))
    for function in (wrapped, bound):
        assert inspect.signature(function).parameters["lines"].annotation == list[Line]
        assert inspect.signature(function).return_annotation is Receipt
