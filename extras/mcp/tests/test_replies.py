"""Lists and results with a strange part: it costs itself, and is named; nothing beside it is lost."""

import json
import subprocess
import sys
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from activities.toolbox.registry import ToolMistakes
from console.commands import doctor
from console.render.checks import Status
from extras.mcp.loading import McpTools
from extras.mcp.replies import MAX_TOOLS, UnreadableEntry, tidy_result, tool_of
from extras.mcp.tests.foreign import AtGateway, asked, loaded, of_gateway, serving, table, tool_of as made_of, written
from tests.activities.bench import bench
from tests.processes import ROOT
from workflows.faults.fault import Applied, Code
from workflows.inquiries import ToolCard, ToolsFindings
from workflows.plans.catalogue import Effect, ToolSpec

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}
READS = {"readOnlyHint": True}
GOOD = {"name": "good", "inputSchema": SCHEMA, "annotations": READS}


def listing(folder: Path, *pages: Any, name: str = "list") -> str:
    """The table of a server that answers `tools/list` with these results, one after the other."""
    (file := folder / name).write_text(json.dumps(list(pages)))
    return table("listed", "--contents", file)


# Tools

NOT_USED = "is not used"
READ: dict[str, tuple[dict[str, Any], str]] = {
    "a schema without a type": ({"inputSchema": {"properties": {"text": {"type": "string"}}}}, ""),
    "a schema that composes": ({"inputSchema": {"anyOf": [SCHEMA, {"type": "object"}]}}, ""),
    "a schema of an object or null": ({"inputSchema": {**SCHEMA, "type": ["object", "null"]}}, ""),
    "a schema with nulls": ({"inputSchema": {"type": "object", "properties": None, "required": None}}, ""),
    "a schema with an odd required": ({"inputSchema": {**SCHEMA, "required": "text"}}, "required of its inputSchema"),
    "a hint in words": ({"annotations": {"readOnlyHint": "true"}}, "its hint readOnlyHint is the text 'true'"),
    "a hint in numbers": ({"annotations": {"readOnlyHint": 1}}, "its hint readOnlyHint is 1"),
    "a hint that is null": ({"annotations": {"readOnlyHint": None}}, ""),
    "hints in a list": ({"annotations": [READS]}, "its annotations is a list"),
    "hints in words": ({"annotations": "readOnlyHint"}, "its annotations is the text"),
    "an odd title": ({"title": 5}, "its title is 5"),
    "an odd title of the hints": ({"annotations": {"title": []}}, "its hint title is a list"),
    "an odd description": ({"description": {"en": "x"}}, "its description is an object"),
    "a null description": ({"description": None}, ""),
    "odd icons": ({"icons": [{"src": 5}]}, "its icons is a list"),
    "odd tasks": ({"execution": {"taskSupport": "sometimes"}}, "its execution is an object"),
    "an odd _meta": ({"_meta": []}, "its _meta is a list"),
    "a null result schema": ({"outputSchema": None}, ""),
    "a result schema of a list": ({"outputSchema": {"type": "array"}}, "its outputSchema is no schema of an object"),
    "no result schema": ({"outputSchema": "object"}, "its outputSchema is the text 'object'"),
    "a long name": ({"name": "x" * 5_000}, ""),
}
"""By name, the fields of a tool that is read, and what is said of it."""
LEFT_OUT: dict[str, tuple[Any, str]] = {
    "no schema": ({"name": "odd"}, "its inputSchema is missing or null"),
    "a null schema": ({"name": "odd", "inputSchema": None}, "its inputSchema is missing or null"),
    "a schema in a list": ({"name": "odd", "inputSchema": [SCHEMA]}, "its inputSchema is a list"),
    "a schema of a list": ({"name": "odd", "inputSchema": {"type": "array"}}, "its type is the text 'array'"),
    "properties in a list": ({"name": "odd", "inputSchema": {"type": "object", "properties": []}}, "the properties of"),
    "no name": ({"inputSchema": SCHEMA}, "its name is missing or null"),
    "an empty name": ({"name": "", "inputSchema": SCHEMA}, "its name is an empty text"),
    "a number as name": ({"name": 5, "inputSchema": SCHEMA}, "its name is 5"),
    "a number": (5, "it is 5, and no object"),
    "null": (None, "it is missing or null, and no object"),
    "a list": ([], "it is a list, and no object"),
}
"""By name, an entry of a list that is no tool, and what is said of it."""


def test_a_tool_is_read_without_the_fields_that_are_odd() -> None:
    """What only describes it costs nothing but itself, and is said; no odd hint makes a read of it."""
    wrong = list[str]()
    for name, (fields, said) in READ.items():
        found = tool_of({"name": "odd", "inputSchema": SCHEMA, **fields})
        is_said = found.oddities == () if not said else [said in found.oddities[0], NOT_USED in found.oddities[0]]
        if found.read_only or found.schema["type"] != "object" or is_said not in (True, [True, True]):
            wrong.append(f"{name}: {found}")

    assert wrong == []


def test_an_entry_that_is_no_tool_is_left_out_with_its_reason() -> None:
    """Without a name or arguments it cannot be called."""
    wrong = list[str]()
    for name, (entry, said) in LEFT_OUT.items():
        try:
            wrong.append(f"{name}: {tool_of(entry)}")
        except UnreadableEntry as why:
            wrong += [] if said in str(why) else [f"{name}: {why}"]

    assert wrong == []


def test_odd_tools_cost_no_other_tool_and_no_other_server(tmp_path: Path) -> None:
    """All at once, over a connection: they are read, or named with the reason, in the order of the server."""
    odd = [{"name": f"odd{number}", "inputSchema": SCHEMA, **READ[name][0]} for number, name in enumerate(READ)]
    left = [entry for entry, _ in LEFT_OUT.values()]
    found = loaded(tmp_path, listing(tmp_path, {"tools": [*left, *odd, GOOD]}) + table(server="other"))
    kinds = {tool.__name__: tool.effect for tool in found.tools}

    assert kinds["shop.good"] is Effect.READ and kinds["other.look"] is Effect.READ
    assert {effect for kind, effect in kinds.items() if "odd" in kind} == {Effect.UNKEYED}
    assert len([kind for kind in kinds if kind.startswith("shop.")]) == len(READ) + 1
    assert {*found.left_out} == {"shop.odd", "shop (a tool without a name)"}
    assert "number 6: its name is missing or null; number 7" in found.left_out["shop (a tool without a name)"]


def test_two_tools_of_one_name_are_a_read_only_if_both_say_so(tmp_path: Path) -> None:
    """The server decides which of them it calls."""
    pairs = [{"name": "a", "inputSchema": SCHEMA}, {"name": "b", "inputSchema": SCHEMA, "annotations": READS}]
    twice = [*pairs, {"name": "a", "inputSchema": SCHEMA, "annotations": READS}, {"name": "b", "inputSchema": SCHEMA}]
    found = loaded(tmp_path, listing(tmp_path, {"tools": [*twice, GOOD, GOOD]}))

    assert {tool.__name__: tool.effect for tool in found.tools} == {
        "shop.a": Effect.UNKEYED,
        "shop.b": Effect.UNKEYED,
        "shop.good": Effect.READ,
    }
    assert {*found.left_out} == {"shop.a (a)", "shop.b (b)", "shop.good (good)"}


WHOLE: dict[str, tuple[list[dict[str, Any]], str]] = {
    "null": ([{"tools": None}], "shop (its tools): its list of tools is missing or null"),
    "an object": ([{"tools": {"good": GOOD}}], "shop (its tools): its list of tools is an object"),
    "missing": ([{}], "shop (its tools): its list of tools is missing or null"),
    "an odd cursor": ([{"tools": [GOOD], "nextCursor": 5}], "goes on with a nextCursor that is 5"),
    "a cursor without end": ([{"tools": [], "nextCursor": "a"}], "nextCursor is the text 'a' again and again"),
    "an empty cursor": ([{"tools": [GOOD], "nextCursor": ""}], ""),
    "two pages": ([{"tools": [], "nextCursor": "a"}, {"tools": [GOOD]}], ""),
    "more than is read": (
        [{"tools": [{"name": f"t{number}", "inputSchema": {"type": "object"}} for number in range(MAX_TOOLS + 1)]}],
        f"more than {MAX_TOOLS} tools",
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_list_that_cannot_be_read_costs_its_server_alone(tmp_path: Path, name: str) -> None:
    """What was read of it is served, with the tools of other servers; a table of a tool behind it is no mistake."""
    pages, said = WHOLE[name]
    tables = "[servers.shop.tools.later]\neffect = 'read'\n" if said else ""
    found = loaded(tmp_path, listing(tmp_path, *pages) + tables + table(server="other"))
    told = [f"{kind}: {reason}" for kind, reason in found.left_out.items()]

    assert "other.look" in [tool.__name__ for tool in found.tools]
    assert any(said in line for line in told) if said else told == []
    assert not said or "shop.later" in found.left_out


def test_a_tool_that_the_file_names_and_cannot_be_read_is_named(tmp_path: Path) -> None:
    """By `only` or a table, with the line; tools that need it are left out too, and no worker is kept from starting."""
    odd = {"name": "odd", "inputSchema": None}
    pay, go = ({"name": name, "inputSchema": SCHEMA} for name in ("pay", "go"))
    tables = (
        "only = ['good', 'odd', 'pay', 'go']\n[servers.shop.tools.pay]\nundo = { kind = 'shop.odd' }\n"
        "[servers.shop.tools.go]\nfallback = 'shop.pay'\n"
    )
    found = loaded(tmp_path, listing(tmp_path, {"tools": [odd, pay, go, GOOD]}) + tables)
    unknown = listing(tmp_path, {"tools": [odd, GOOD]}) + "only = ['gud']\n"

    assert [tool.__name__ for tool in found.tools] == ["shop.good"]
    assert found.left_out["shop.odd"].startswith("its inputSchema is missing or null")
    assert found.left_out["shop.odd"].endswith(f"(named in {tmp_path}/shop.toml:3)")
    assert found.left_out["shop.pay"] == "its undo is shop.odd, which is not offered either"
    assert found.left_out["shop.go"] == "its fallback is shop.pay, which is not offered either"
    with pytest.raises(ToolMistakes, match="shop has no tool 'gud': it has good"):
        loaded(tmp_path, unknown)


async def test_a_tool_that_becomes_unreadable_while_a_worker_runs_is_not_called(tmp_path: Path) -> None:
    """Its call says why; a list that is odd as a whole is read again with the next call."""
    text = listing(tmp_path, {"tools": [GOOD]})
    found = loaded(tmp_path, text)
    for number, (now, code, said) in enumerate(
        [
            ({"tools": [{"name": "good"}]}, Code.NEEDS_PERSON, "its inputSchema is missing or null"),
            ({"tools": None}, Code.UNREACHABLE, "its list of tools is missing or null"),
        ]
    ):
        (file := tmp_path / f"now{number}").write_text(json.dumps(now))
        (folder := tmp_path / str(number)).mkdir()
        async with bench(folder, servers=serving(found, "listed", "--contents", file)) as calls:
            fault, _ = await calls.fails(made_of(found, "shop.good"))

            assert (fault.code, fault.applied) == (code, Applied.NONE) and said in fault.reason


# Results

UNIT = {"id": "u1"}
IMAGE = {"type": "image", "mimeType": "image/png", "data": "AAAA"}
PART = {"type": "image", "mime_type": "image/png", "data": "AAAA"}
HOLOGRAM = {"type": "hologram", "ray": 1}


def words(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def sent(content: Any, *structure: Any, **more: Any) -> dict[str, Any]:
    """What a server sends."""
    return {"content": content, **({"structuredContent": structure[0]} if structure else {}), **more}


LONG = "x" * 50_000
IN_WORDS = '{"id":"u1"}'
BIG_UNIT = {"id": LONG}
RESULTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "structure alone": (sent([], UNIT), {"text": IN_WORDS, "structured": UNIT}),
    "no content": ({"structuredContent": UNIT}, {"text": IN_WORDS, "structured": UNIT}),
    "null content": (sent(None, UNIT), {"text": IN_WORDS, "structured": UNIT}),
    "a text beside it": (sent([words("made")], UNIT), {"text": "made", "structured": UNIT}),
    "an image beside it": (sent([IMAGE], UNIT), {"text": "", "structured": UNIT, "parts": [PART]}),
    "a list": (sent([], [UNIT]), {"text": f"[{IN_WORDS}]", "structured": [UNIT]}),
    "a list and a text": (sent([words("rows")], [UNIT]), {"text": "rows", "structured": [UNIT]}),
    "a text as structure": (sent([], "u1"), {"text": '"u1"', "structured": "u1"}),
    "an unknown block": (sent([HOLOGRAM, words("beside")]), {"text": '{"type":"hologram","ray":1}\nbeside'}),
    "a block that is null": (sent([None, words("beside")]), {"text": "null\nbeside"}),
    "an odd annotation": (sent([{**words("a"), "annotations": 5}]), {"text": "a"}),
    "an image without a type": (
        sent([{"type": "image", "data": "AAAA"}]),
        {"text": "", "parts": [{**PART, "mime_type": "application/octet-stream"}]},
    ),
    "content as a text": (sent("a"), {"text": "a"}),
    "content as one block": (sent(words("a")), {"text": "a"}),
    "nothing": (sent([]), {"text": ""}),
    "nothing but null": (sent(None), {"text": ""}),
    "odd fields": (sent([words("a")], isError=None, _meta=[]), {"text": "a"}),
    "a long text above a small structure": (
        sent([words(LONG)], UNIT),
        {"text": "x" * 39_987, "left_out": 10_013, "structured": UNIT},
    ),
    "a structure that is too large": (sent([words("made")], BIG_UNIT), {"text": "made", "structured_left_out": 50_009}),
    "a structure alone that is too large": (sent([], BIG_UNIT), {"text": '{"id":"' + "x" * 39_988, "left_out": 10_014}),
}
"""What the server answers for a tool without a result schema, and the result of the step."""


async def result_of(folder: Path, shop: McpTools, kind: str, answer: dict[str, Any], *, layout: bool = False) -> Any:
    """The result of a call that the server answers so."""
    (file := folder / "contents").write_text(json.dumps(answer))
    served = serving(shop, "contents", "--contents", file)
    async with bench(Path(mkdtemp(dir=folder)), servers=AtGateway(**vars(served)) if layout else served) as calls:
        return (await calls.call(made_of(shop, kind))).result


@pytest.mark.parametrize("name", RESULTS)
async def test_what_a_server_sends_beside_its_content_is_in_the_result(
    tmp_path: Path, shop: McpTools, name: str
) -> None:
    """Of a tool that declares no form of its results; an odd block is a text, and what is too large is counted.

    An agent gets it as the server sent it: structured content as it is, if it is an object, as its protocol wants it.
    """
    answer, expected = RESULTS[name]

    assert await result_of(tmp_path, shop, "shop.plain", answer) == expected
    if "large" in name or "long" in name:
        return
    found = of_gateway("results").success(
        await result_of(tmp_path, shop, "shop.plain", answer, layout=True), is_structured=False
    )
    structured, content = expected.get("structured"), tidy_result(answer)["content"]
    if structured is not None and (not content or not isinstance(structured, dict)):
        content = [*content, words(json.dumps(structured, separators=(",", ":")))]
    assert found["content"] == content
    assert found.get("structuredContent") == (structured if isinstance(structured, dict) else None)


DONE = {"done": True, "text": "it"}
TYPED: dict[str, tuple[list[Any] | None, dict[str, Any]]] = {
    "nothing": ([], {}),
    "null": (None, {}),
    "a text that repeats it": ([words(json.dumps(DONE, indent=2))], {}),
    "another text": ([words("Ask ann.")], {"text": "Ask ann."}),
    "both": ([words(json.dumps(DONE)), words("Ask ann.")], {"text": "Ask ann."}),
    "an image": ([IMAGE], {"text": "", "parts": [PART]}),
    "a sound": ([{**IMAGE, "type": "audio"}], {"text": "", "parts": [{**PART, "type": "audio"}]}),
    "a link": (
        [{"type": "resource_link", "uri": "file:///a", "name": "a"}],
        {"text": "", "parts": [{"type": "resource_link", "uri": "file:///a", "name": "a"}]},
    ),
    "a resource": (
        [{"type": "resource", "resource": {"uri": "file:///a", "text": "in it"}}],
        {"text": "in it", "parts": [{"type": "resource", "uri": "file:///a"}]},
    ),
    "data": (
        [{"type": "resource", "resource": {"uri": "file:///a", "blob": "AAAA"}}],
        {"text": "", "parts": [{"type": "resource", "uri": "file:///a", "data": "AAAA"}]},
    ),
    "an unknown block": ([HOLOGRAM], {"text": '{"type":"hologram","ray":1}'}),
}
"""The content beside a structured result, and what of it the step has beside the result."""


@pytest.mark.parametrize("name", TYPED)
async def test_content_beside_a_declared_result_is_kept_unless_it_repeats_it(
    tmp_path: Path, shop: McpTools, name: str
) -> None:
    """The structured content is the result, and its fields are where they were."""
    content, rest = TYPED[name]
    found = await result_of(tmp_path, shop, "shop.do", {"content": content, "structuredContent": DONE})

    assert found == {**DONE, **({"replan_content": rest} if rest else {})}


async def test_a_declared_result_that_fills_its_room_is_not_refused_for_a_text_beside_it(
    tmp_path: Path, shop: McpTools
) -> None:
    """An effect that was applied would have no result."""
    value = {"done": True, "text": "x" * 48_900}
    near = {"done": True, "text": "x" * 47_000}
    whole = await result_of(tmp_path, shop, "shop.do", {"content": [words("y")], "structuredContent": value})
    cut = await result_of(tmp_path, shop, "shop.do", {"content": [words("y")], "structuredContent": near})

    assert whole == value and cut == {**near, "replan_content": {"text": "", "left_out": 1}}


ERRORS: dict[str, tuple[dict[str, Any], str]] = {
    "of a structure": (sent([], {"why": "declined"}), '{"why":"declined"}'),
    "of a structure without content": ({"structuredContent": {"why": "declined"}}, '{"why":"declined"}'),
    "of a text and a structure": (sent([words("No.")], {"why": "declined"}), 'No.\n{"why":"declined"}'),
    "of an unknown block": (sent([HOLOGRAM]), '{"type":"hologram","ray":1}'),
}
BROKEN = (sent([words("Made.")], UNIT), f"Made.\n{IN_WORDS}")
"""It breaks the schema of `do`, and may have the id of an effect."""


@pytest.mark.parametrize("kind", ["shop.do", "shop.plain"])
@pytest.mark.parametrize("name", [*ERRORS, "of a result that breaks its schema"])
async def test_the_words_of_an_error_are_shown_wherever_they_are(
    tmp_path: Path, shop: McpTools, name: str, kind: str
) -> None:
    """To who decides what follows, and not as a reason; where no schema is declared, none is broken."""
    answer, said = ERRORS.get(name, BROKEN)
    failed = {**answer, "isError": True} if name in ERRORS else answer
    if name not in ERRORS and kind == "shop.plain":
        assert (await result_of(tmp_path, shop, kind, failed))["structured"] == UNIT
        return
    (file := tmp_path / "contents").write_text(json.dumps(failed))
    async with bench(tmp_path, servers=serving(shop, "contents", "--contents", file)) as calls:
        fault, _ = await calls.fails(made_of(shop, kind))

    code = Code.REFUSED if name in ERRORS else Code.UNEXPECTED_RESULT
    assert (fault.code, fault.applied, fault.observed) == (code, Applied.UNKNOWN, {"text": said})
    assert "u1" not in fault.reason


# Through the gateway

SECONDS = 30.0


async def test_an_agent_gets_what_is_beside_a_declared_result(tmp_path: Path, shop: McpTools) -> None:
    """After the result as a text; and the `_meta` of an effect, of both sorts of tools."""
    answer = {"content": [IMAGE, words("Ask ann.")], "structuredContent": DONE, "_meta": {"trace": 7}}
    typed = of_gateway("results").success(
        await result_of(tmp_path, shop, "shop.do", answer, layout=True), is_structured=True
    )
    plain = of_gateway("results").success(
        await result_of(tmp_path, shop, "shop.plain", answer, layout=True), is_structured=False
    )

    assert typed["content"] == [words('{"done":true,"text":"it"}'), IMAGE, words("Ask ann.")]
    assert plain == answer and {**typed, "content": answer["content"]} == answer


async def test_a_read_that_is_passed_on_has_no_part_that_an_agent_cannot_read(tmp_path: Path, shop: McpTools) -> None:
    """One odd block would cost it the whole answer."""
    (file := tmp_path / "contents").write_text(json.dumps({"content": [HOLOGRAM, IMAGE], "structuredContent": [1]}))
    async with asked(serving(shop, "contents", "--contents", file)) as servers:
        found = await servers.request("shop", "tools/call", {"name": "look"}, SECONDS)

    assert found == {"content": [words('{"type":"hologram","ray":1}'), IMAGE], "structuredContent": [1]}
    assert of_gateway("results").presentable(found) == {"content": [*found["content"], words("[1]")]}


async def test_odd_entries_of_other_lists_cost_themselves_alone(tmp_path: Path) -> None:
    """Resources, templates and prompts: an odd field or entry is left out of what an agent gets."""
    shop = loaded(tmp_path, table("offers", "--odd"))
    lists = ("resources/list", "resources/templates/list", "prompts/list")
    async with asked(shop) as servers:
        found = [await servers.request("shop", method, {}, SECONDS) for method in lists]

    assert found[0] == {"resources": [{"uri": "note:1", "name": "one", "x": None}], "nextCursor": "more"}
    assert found[1] == {"resourceTemplates": [{"uriTemplate": "note:{id}", "name": "note"}]}
    assert found[2] == {"prompts": [{"name": "greet"}]}


def test_a_gateway_is_told_which_tools_are_left_out(tmp_path: Path) -> None:
    """And tells its agent, in the description of a tool of its own: on one line, and bounded."""
    offers = of_gateway("offers")
    told = loaded(tmp_path, listing(tmp_path, {"tools": [{"name": "odd"}, GOOD]})).left_out
    many = {f"shop.odd{number}": "x\n" * 1_000 for number in range(50)}
    line, bounded = (
        next(
            tool["description"]
            for tool in offers.listed(offers.OF_STORE, (), note=offers.not_offered(left_out))
            if "odd" in tool["description"]
        )
        for left_out in (told, many)
    )

    assert told == {"shop.odd": "its inputSchema is missing or null, so that its arguments are not known"}
    assert line.endswith(f" Tools that cannot be offered here: shop.odd ({told['shop.odd']}).")
    assert "\n" not in bounded and "; 40 more." in bounded and len(bounded) < 5_000


def test_check_and_doctor_name_what_is_left_out(tmp_path: Path) -> None:
    """With the reason, and what is odd of a tool that is offered; the worker would start."""
    odd = {"name": "odd", "inputSchema": SCHEMA, "title": 5}
    file = written(tmp_path, listing(tmp_path, {"tools": [{"name": "lost"}, odd, GOOD]}))
    command = [sys.executable, "worker.py", "--check", "--tools", str(file)]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    card = ToolCard(spec=ToolSpec(kind="pay", effect=Effect.READ), description="", args_schema={}, result_schema={})
    found = ToolsFindings(planner="", tools=(card,), unusable={"shop.lost": "its name is 5"})
    [check] = [check for check in doctor.of_tools(found) if check.name == "tools not offered"]

    assert "Not offered: shop.lost: its inputSchema is missing or null" in said
    assert "its title is 5, and is not used" in said and "shop.good" in said
    assert check.status is Status.WARN and "shop.lost its name is 5" in check.found
