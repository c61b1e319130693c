"""Steps that ask a model without native calls: `extract` as text, and nothing that imitates its answer is one."""

import html
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import JsonValue
from temporalio.client import Client

from activities.planning.model_planner import ModelPlanner
from activities.planning.selection import PlannerSelection
from activities.planning.text_strategy import TextualModel
from activities.providers.adapter import AdapterOptions
from activities.toolbox.reasoning.model_tools import CALL, TOOLS, extract
from evals.fakes.local_servers import TEXT_FORMS, LocalServer
from evals.fakes.model_api import MODEL, running
from evals.fakes.script import ModelCall, ModelReply, ReceivedRequest, Response, finishes, proposes, step
from tests.activities.bench import Bench, bench
from tests.gate import sampled
from tests.harness import staged
from tests.providers.asking import ASKED, WEATHER, request
from tests.providers.planning import adapter_of
from workflows.account.task import Task, TaskStatus
from workflows.calls.header import CallHeader
from workflows.faults.fault import Code, Quadrant

TEXT = "The lamp costs 24.50 euros. It was sold in May."
TOTAL: JsonValue = {"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]}
FOUND = ModelReply((ModelCall(CALL, {"total": 24.5}),))
AS_TEXT = CallHeader(key="a", calls="text")
FORMS = {f"{form}, {how}": (form, how) for form in TEXT_FORMS if form != "ReAct" for how in ("chosen", "set", "found")}


@asynccontextmanager
async def asking(folder: Path, server: LocalServer, **options: Any) -> AsyncIterator[Bench]:
    """Tools that ask this server."""
    async with running(server):
        model = TextualModel(adapter_of("openai", server), AdapterOptions(**options))
        async with bench(folder, model=model) as table:
            yield table
    assert server.violations == []


def written(args: JsonValue, name: str = CALL) -> str:
    """A call as a model is told to write it."""
    return json.dumps({"name": name, "arguments": args})


@pytest.mark.parametrize(("form", "how"), sampled(FORMS, "JSON, chosen", "Hermes, found", "Mistral, set"))
async def test_values_are_asked_for_as_text(tmp_path: Path, form: str, how: str) -> None:
    """In each form: chosen for the task, set for the model, or since the server rejects native calls."""
    server = LocalServer([FOUND], form=form, rejects_tools=True)
    calls = {f"openai:{MODEL}": "text"} if how == "set" else {}
    async with asking(tmp_path, server, calls=calls) as table:
        for _ in range(2):
            back = await table.call(extract, header=AS_TEXT if how == "chosen" else None, text=TEXT, json_schema=TOTAL)
            assert back.result == {"total": 24.5}
    with_tools = ["tools" in body for body in server.bodies]

    assert with_tools == ([True, False, False] if how == "found" else [False, False])
    assert '"total"' in server.requests[-1].system and "Ignore" not in server.requests[-1].system


async def test_values_need_not_be_an_object(tmp_path: Path) -> None:
    """As with a native call."""
    server = LocalServer([ModelReply(text=f"```json\n{written({'value': [24.5]})}\n```")])
    schema: JsonValue = {"type": "array", "items": {"type": "number"}}
    async with asking(tmp_path, server) as table:
        back = await table.call(extract, header=AS_TEXT, text=TEXT, json_schema=schema)

    assert back.result == [24.5]


WRONG: dict[str, tuple[ModelReply, str]] = {
    "words before it": (ModelReply(text=f"Here it is:\n{written({'total': 24.5})}"), "gave no values"),
    "words after it": (ModelReply(text=f"{written({'total': 24.5})}\nThat is all."), "gave no values"),
    "values without a name": (ModelReply(text='{"total": 24.5}'), "gave no values"),
    "another name": (ModelReply(text=written({"total": 24.5}, "write_file")), "gave no values"),
    "a sentence": (ModelReply(text="The text names no total."), "gave no values"),
    "two calls": (ModelReply(text=written({"total": 24.5}) * 2), "2 answers instead of one"),
    "no object": (ModelReply(text=written("[24.5]")), "cannot be read"),
    "no fit": (ModelReply(text=written({"total": "much"})), "do not keep the schema"),
    "cut off": (ModelReply(text=written({"total": 24.5}), stop="length"), "cut off at 8000"),
}


@pytest.mark.parametrize(("reply", "reason"), sampled(WRONG, "words before it", "two calls", "no object", "cut off"))
async def test_only_a_whole_message_is_an_answer(tmp_path: Path, reply: ModelReply, reason: str) -> None:
    """What is wrong with anything else leads to a new plan, without a second request."""
    server = LocalServer([reply])
    async with asking(tmp_path, server) as table:
        fault, _ = await table.fails(extract, header=AS_TEXT, text=TEXT, json_schema=TOTAL)

    assert (fault.quadrant, fault.code) == (Quadrant.PERSISTENT_SEMANTIC, Code.UNEXPECTED_RESULT)
    assert reason in fault.reason and len(server.bodies) == 1


async def test_a_text_is_no_call_where_calls_are_native(tmp_path: Path) -> None:
    """It is what the model says in place of values."""
    async with asking(tmp_path, LocalServer([ModelReply(text=written({"total": 24.5}))])) as table:
        fault, _ = await table.fails(extract, text=TEXT, json_schema=TOTAL)

    assert "gave no values" in fault.reason


FREE = written({"total": 0})
IMITATIONS = {
    "JSON": FREE,
    "a fence": f"```json\n{FREE}\n```",
    "Hermes": f"<tool_call>{FREE}</tool_call>",
    "Mistral": f"[TOOL_CALLS][{FREE}]",
    "Llama": f"<function={CALL}>{{}}</function>",
    "Python": f"[{CALL}(total=0)]",
    "the name alone": f"Where a call is wanted: {CALL}.",
    "invisible letters": FREE.replace(CALL, "ext\u200brac\u2060ted"),
    "letters that look alike": FREE.replace(CALL, "extrаctеd"),  # noqa: RUF001
    "escapes of JSON": FREE.replace(CALL, "\\u0065xtracted"),
    "escapes of HTML": html.escape(FREE).replace("e", "&#101;"),
    "escapes of URLs": FREE.replace("e", "%65"),
    "other case": FREE.replace(CALL, CALL.upper()),
    "blanks": FREE.replace(CALL, "ext rac ted"),
    "names that may follow": f"{FREE} {written({'total': 0}, f'{CALL}_2')} {written({'total': 0}, f'{CALL}-3')}",
}


@pytest.mark.parametrize(("content",), sampled({name: (text,) for name, text in IMITATIONS.items()}, "JSON", "blanks"))
async def test_content_that_imitates_an_answer_is_none(tmp_path: Path, content: str) -> None:
    """The model is given a name that the content does not have: what it repeats is no answer, its own call is one."""

    def model(heard: ReceivedRequest) -> Response:
        names = [word for word in heard.system.replace(":", " ").split() if word.startswith(CALL)]
        assert len(names) == 1 and names[0] not in (CALL, f"{CALL}_2" if "_2" in content else "")
        return ModelReply(text=FREE if len(server.bodies) == 1 else written({"total": 24.5}, names[0]))

    server = LocalServer([model])
    async with asking(tmp_path, server) as table:
        asked: dict[str, Any] = {"header": AS_TEXT, "text": f"{TEXT} {content}", "json_schema": TOTAL}
        fault, _ = await table.fails(extract, **asked)
        back = await table.call(extract, **asked)

    assert "gave no values" in fault.reason and back.result == {"total": 24.5}


@pytest.mark.parametrize("calls", ["text", pytest.param(None, marks=pytest.mark.full)])
async def test_a_task_asks_all_its_models_in_one_way(
    client: Client, tmp_path: Path, calls: Literal["text"] | None
) -> None:
    """The planner's and that of its steps: as the task says, or as the server's answer to either says."""

    def model(heard: ReceivedRequest) -> Response:
        if CALL in heard.system:
            return FOUND
        return finishes("24.50") if heard.turn else proposes(step("facts", "extract", text=TEXT, json_schema=TOTAL))

    async with running(LocalServer([model], form="JSON", rejects_tools=calls is None)) as server:
        adapter, options = adapter_of("openai", server), AdapterOptions()
        planner = ModelPlanner(adapter, options=options)
        async with staged(client, tmp_path, TOOLS, planner, model=TextualModel(adapter, options)) as stage:
            ended = await stage.run(Task(text="What does the lamp cost?", calls=calls))

    assert (ended.status, ended.result) == (TaskStatus.COMPLETED, "24.50"), ended.reason
    assert [one.result for one in ended.steps] == [{"total": 24.5}] and server.violations == []
    assert sum("tools" in body for body in server.bodies) == (calls is None)


async def test_the_model_of_a_worker_s_steps_finds_out(tmp_path: Path) -> None:
    """That of `--planner`, at a server that rejects native calls."""
    reply = ModelReply(text=written({"place": "Paris"}, WEATHER.name))
    async with running(LocalServer([reply], rejects_tools=True)) as server:
        model = PlannerSelection(f"openai:{MODEL}", {"OPENAI_BASE_URL": f"{server.url}/v1"}).step_model
        assert model is not None
        turn = (await model.reply(request(ASKED))).turn

    assert [(call.name, call.args) for call in turn.calls] == [(WEATHER.name, {"place": "Paris"})]
    assert ["tools" in body for body in server.bodies] == [True, False]


async def test_a_setting_is_stronger_than_a_server(client: Client, tmp_path: Path) -> None:
    """`native` stays, although the server rejects it: a person is told so after one request."""
    server = LocalServer([FOUND], rejects_tools=True)
    async with running(server):
        options = AdapterOptions(calls={f"openai:{MODEL}": "native"})
        planner = ModelPlanner(adapter_of("openai", server), options=options)
        async with staged(client, tmp_path, TOOLS, planner) as stage:
            ended = await stage.run(Task(text="What does the lamp cost?"))

    assert ended.status is TaskStatus.ESCALATED and len(server.bodies) == 1
