"""Tools with the schemas that real servers write: they are offered, called with what the server takes, and listed."""

import json
from pathlib import Path
from typing import Any

import pytest

from activities.toolbox.registry import Registry
from extras.mcp.loading import McpTools, load_servers
from extras.mcp.tests.foreign import asked, lines, of_gateway, table, tool_of, written
from tests.activities.bench import bench

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}


def form(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties}


def branch(action: str, **properties: Schema) -> Schema:
    return {
        **form(action={"const": action}, **properties),
        "required": ["action", *properties],
        "additionalProperties": False,
    }


CREATE_OR_UPDATE: Schema = {"type": "object", "oneOf": [branch("create", title=TEXT), branch("update", id=TEXT)]}
ODD: Schema = {
    **form(**{"filter[status]": TEXT, "$top": {"type": "integer"}, "row": form(**{"First Name": TEXT})}),
    "required": ["filter[status]"],
}
UNREADABLE: Schema = form(amount={"$ref": "#/$defs/missing"}, key=TEXT)


def served(folder: Path, *tools: Schema, more: str = "", takes_unread: bool = False) -> McpTools:
    """The tools of a server that lists `tools`, and answers a call with its arguments; `log` has what it received."""
    (spec := folder / "spec.json").write_text(json.dumps({"tools": tools}))
    text = table("listed", "--contents", spec, "--log", folder / "log")
    return load_servers([str(written(folder, text + more))], {}, (), takes_unread=takes_unread)


def called(folder: Path) -> list[Schema]:
    """The arguments of the calls that the server received."""
    received = map(json.loads, lines(folder / "log"))
    return [one["params"]["arguments"] for one in received if one["method"] == "tools/call"]


def tool(name: str, schema: Schema, **more: Any) -> Schema:
    return {"name": name, "inputSchema": schema, **more}


CALLED: dict[str, tuple[Schema, dict[str, Any]]] = {
    "one branch": (CREATE_OR_UPDATE, {"action": "create", "title": "x"}),
    "the other branch": (CREATE_OR_UPDATE, {"action": "update", "id": "1"}),
    "odd names": (ODD, {"filter[status]": "open", "$top": 3, "row": {"First Name": "Ann"}}),
    "a name of a pattern": (
        {"type": "object", "patternProperties": {"^x-": TEXT}, "additionalProperties": False},
        {"x-a": "1"},
    ),
}


@pytest.mark.parametrize(("schema", "args"), CALLED.values(), ids=CALLED)
async def test_a_server_gets_the_arguments_that_its_schema_takes(
    tmp_path: Path, schema: Schema, args: dict[str, Any]
) -> None:
    """Under the server's own names, and so does the result have them."""
    foreign = served(tmp_path, tool("do", schema, outputSchema=schema))
    async with bench(tmp_path, servers=foreign) as calls:
        result = (await calls.call(tool_of(foreign, "shop.do"), **args)).result

    assert called(tmp_path) == [args] and result == args


async def test_arguments_that_fit_no_branch_are_not_sent(tmp_path: Path) -> None:
    """The server would reject them, and the reason says what the nearest branch demands."""
    foreign = served(tmp_path, tool("do", CREATE_OR_UPDATE))
    async with bench(tmp_path, servers=foreign) as calls:
        fault, _ = await calls.fails(tool_of(foreign, "shop.do"), action="create", id="1")

    assert "does not fit oneOf of its schema (lacks title; has a name that is not declared)" in fault.reason
    assert called(tmp_path) == []


async def test_a_gateway_offers_tools_that_it_cannot_check(tmp_path: Path) -> None:
    """As the agent would have them without it: the server checks the arguments, and policies still see them."""
    key = '[servers.shop.tools.pay]\neffect = "keyed"\nkey = "key"\n'
    tools = (tool("pay", UNREADABLE), tool("read", UNREADABLE, annotations={"readOnlyHint": True}))
    foreign = served(tmp_path, *tools, more=f"trusted = true\n{key}", takes_unread=True)
    found = {
        each["kind"]: each
        for each in of_gateway("local_tools").tools_result(Registry(foreign.tools, builtin=()), foreign)["tools"]
    }
    async with asked(foreign) as servers:
        answer = await servers.request("shop", "tools/call", {"name": "read", "arguments": {"amount": 1}}, 30.0)

    assert found["shop.pay"]["tool"]["inputSchema"]["properties"] == {"amount": {"$ref": "#/$defs/missing"}}
    assert found["shop.read"]["tool"]["inputSchema"] == UNREADABLE
    assert answer["content"][0]["text"] == '{"amount": 1}'


def test_what_is_filled_in_is_not_shown_in_any_branch(tmp_path: Path) -> None:
    """Neither to planners nor to an agent."""
    schema = {"type": "object", "anyOf": [{**form(to=TEXT, key=TEXT), "required": ["to", "key"]}, form(key=TEXT)]}
    foreign = served(tmp_path, tool("do", schema), more='[servers.shop.tools.do]\neffect = "keyed"\nkey = "key"\n')
    [found] = foreign.classified

    assert list(found.args.model_json_schema()["properties"]) == ["to"]
    assert '"key"' not in json.dumps(found.listed.as_listed(found.filled))
