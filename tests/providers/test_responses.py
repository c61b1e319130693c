"""OpenAI's Responses API: what is kept of a reply, and which model is asked with it."""

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Required, get_args, get_origin, get_type_hints

import pytest
from openai.types import responses as sdk
from openai.types.responses import response_input_item_param as sdk_input
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from openai.types.shared.reasoning_effort import ReasoningEffort
from openai.types.shared.responses_model import ResponsesModel
from pydantic import TypeAdapter
from temporalio.client import Client

from activities.borders import classify
from activities.borders.model_errors import codes
from activities.planning.model_planner import ModelPlanner
from activities.planning.selection import PlannerSelection
from activities.providers.adapter import AdapterOptions, Endpoint
from activities.providers.messages import AssistantTurn, StopReason
from activities.providers.metering import MeteredModel, start_meter, total
from activities.providers.openai import DEFAULT_MODEL, WIRES, OpenAIModel, Wire, row_of
from activities.providers.prices import own_models
from evals.fakes.model_api import KEY, MODEL, Json, ModelApi, json_answer, running
from evals.fakes.openai_api import OpenAIApi
from evals.fakes.responses_api import EFFORTS, FIELDS, ITEMS, TOOL, ResponsesApi
from evals.fakes.script import DROPPED, ModelCall, ModelError, ModelReply, RawBytes, Response, calls, finishes
from runtime.settings_file import Models
from tests.activities.situations import KINDS, asked
from tests.harness import staged
from tests.processes import ROOT
from tests.providers.asking import ASKED, answered, ask, failing, request
from tests.providers.desk import TOOLS
from tests.providers.planning import api_of, model_of
from workflows.account.task import Task, TaskStatus
from workflows.faults.fault import Code, Fault, ModelUse
from workflows.plans.catalogue import Price

ROME = ModelCall("weather", {"place": "Rome"})
PARIS = ModelCall("weather", {"place": "Paris"})


async def carried(api: ModelApi, *, by: str = "") -> AssistantTurn:
    """What a model said in its first reply, which was told to it in the second request; `by` is another model."""
    async with running(api):
        model = model_of("responses", api)
        reply = await model.reply(request(ASKED))
        if by:
            reply = replace(reply, turn=replace(reply.turn, by=by))
            assert isinstance(api, ResponsesApi) and reply.turn.blocks
            api.wanted.clear()  # as in a conversation that another model began
        await model.reply(request(answered(reply)))
    assert api.violations == []
    return reply.turn


async def test_all_items_of_a_reply_go_back_unchanged_and_in_order() -> None:
    """Reasoning, words, more reasoning and parallel calls, as the API wrote them; then each result with its call_id."""
    api = ResponsesApi([calls(PARIS, ROME, text="I look."), ModelReply(text="Rome.")])
    said = await carried(api)
    items = api.bodies[1]["input"]

    assert [item.get("type") for item in items] == [
        *(None, "reasoning", "message", "reasoning", "function_call", "function_call"),
        *("function_call_output", "function_call_output", None),
    ]
    assert items[1:6] == [*api.sent.values()][:5]
    assert [item["call_id"] for item in items[6:8]] == [call.id for call in said.calls]


@pytest.mark.parametrize("reply", [calls(ROME), ModelReply(text="I look.")], ids=["calls", "words"])
async def test_the_items_of_another_model_are_left_out(reply: ModelReply) -> None:
    """Its reasoning is encrypted for it alone: this model gets words and calls, with ids of our own."""
    api = api_of("responses", reply, ModelReply(text="Rome."))
    await carried(api, by="openai:other")

    assert not [item for item in api.bodies[1]["input"] if "id" in item or item.get("type") == "reasoning"]


class LongIds(ResponsesApi):
    """It gives ids as long as it takes them."""

    def call_id(self, prefix: str, index: int) -> str:
        """64 characters."""
        return super().call_id(prefix, index).ljust(64, "x")


async def test_a_long_id_of_a_call_stays() -> None:
    """Another id would leave the reasoning out."""
    api = LongIds([calls(ROME), ModelReply(text="Rome.")])
    said = await carried(api)

    assert (len(said.calls[0].id), api.bodies[1]["input"][1]["type"]) == (64, "reasoning")


WITHOUT_ITEMS = {
    "arguments that are no JSON": ModelReply((ModelCall("weather", '{"place": '),)),
    "nothing": ModelReply(),
    "cut off": ModelReply((ROME,), stop="max_output_tokens"),
    "filtered": ModelReply((ROME,), stop="content_filter"),
}


@pytest.mark.parametrize("reply", WITHOUT_ITEMS.values(), ids=WITHOUT_ITEMS)
async def test_items_that_the_api_may_reject_are_not_kept(reply: ModelReply) -> None:
    """A call that cannot be read, and reasoning that nothing follows, or an item that is not complete."""
    assert (await carried(api_of("responses", reply, ModelReply(text="Rome.")))).blocks == ()


async def test_the_other_api_is_told_the_words_and_calls_of_a_reply() -> None:
    """A model may be asked with Chat Completions from one day to the next."""
    _, reply = await ask("responses", calls(ROME, text="I look."))
    async with running(api_of("openai", ModelReply(text="Rome."))) as second:
        model = model_of("openai", second)
        await model.reply(request(answered(replace(reply, turn=replace(reply.turn, by=model.name)))))

    assert (second.violations, second.requests[0].calls[0].args) == ([], {"place": "Rome"})


async def test_a_refusal_is_no_answer_and_reasoning_is_told_apart() -> None:
    """The words of a refusal are no text of the reply; tokens of reasoning are a part of the output, paid once."""
    _, refused = await ask("responses", ModelReply(refusal="I cannot help with that."))
    _, reply = await ask("responses", ModelReply(text="Rome.", thinking="South"))

    assert (refused.stop, refused.turn.text) == (StopReason.REFUSED, "")
    assert (reply.usage.output, reply.usage.reasoning, reply.usage.tokens) == (7, 5, 130)


@pytest.mark.parametrize("provider", ["openai", "responses"])
@pytest.mark.parametrize("host", ["", "@HOST"])
async def test_the_effort_is_asked_for_where_it_is_set(provider: str, host: str) -> None:
    """For the model with or without its server, in the field of each API."""
    async with running(api_of(provider, ModelReply(text="Rome."))) as api:
        api.fields |= {"reasoning_effort"}
        here = host.replace("HOST", api.url.removeprefix("http://"))
        wires = {f"openai:{MODEL}": "responses"} if provider == "responses" else {}
        options = AdapterOptions(wires, {f"openai:{MODEL}{here}": "low"})
        await OpenAIModel(MODEL, Endpoint(KEY, f"{api.url}/v1"), options).reply(request(ASKED))
    body = api.bodies[0]

    assert (body.get("reasoning") or {"effort": body.get("reasoning_effort")}, api.violations) == (
        {"effort": "low"},
        [],
    )


def failed(code: str | None, status: str = "failed", **more: Any) -> RawBytes:
    """A response with HTTP status 200 that says that it failed, or that it is not finished."""
    error = {"error": {"code": code, "message": f"secret {KEY}"}} if code else {}
    whole = {"id": "resp_1", "object": "response", "status": status, "output": [], **error, **more}
    return RawBytes(json_answer(200, json.dumps(whole).encode()))


FAILED: dict[str, tuple[RawBytes, Code]] = {
    "server_error": (failed("server_error"), Code.SERVER_ERROR),
    "rate_limit_exceeded": (failed("rate_limit_exceeded"), Code.RATE_LIMITED),
    "invalid_prompt": (failed("invalid_prompt"), Code.REFUSED),
    "misalignment": (failed("misalignment_policy_violation"), Code.REFUSED),
    "data_residency_mismatch": (failed("data_residency_mismatch"), Code.FORBIDDEN),
    "invalid_image": (failed("invalid_image"), Code.MALFORMED_SCHEMA),
    "a new one": (failed("a new one"), Code.SERVER_ERROR),
    "queued": (failed(None, "queued"), Code.SERVER_ERROR),
    "in progress": (failed(None, "in_progress"), Code.SERVER_ERROR),
    "cancelled": (failed(None, "cancelled"), Code.SERVER_ERROR),
}


@pytest.mark.parametrize(("raw", "expected"), FAILED.values(), ids=FAILED)
async def test_a_response_that_failed_is_a_fault_by_its_code(raw: RawBytes, expected: Code) -> None:
    """One request, its message is quoted nowhere; one that is not finished answers a background request, never sent."""
    api, error = await failing("responses", raw)
    fault = classify(error)

    assert (fault.code, len(api.bodies)) == (expected, 1)
    assert KEY not in fault.reason
    assert fault.reason.startswith("The model server at 127.0.0.1 ") or b'"failed"' not in raw.sent


async def test_what_a_failed_response_used_is_paid() -> None:
    """OpenAI may have counted tokens before it failed; the second time a person is asked."""
    used = failed("server_error", usage={"input_tokens": 500, "output_tokens": 1_000})
    async with running(api_of("responses", used)) as api:
        model, meter = MeteredModel(model_of("responses", api), None), start_meter()
        faults = list[Fault]()
        for _ in range(3):
            with pytest.raises(Exception) as raised:  # which class is the adapter's business
                await model.reply(request(ASKED))
            faults.append(classify(raised.value))

    assert [fault.code for fault in faults] == [Code.SERVER_ERROR, Code.NEEDS_PERSON, Code.NEEDS_PERSON]
    assert all("try again later" in fault.reason and "its address" not in fault.reason for fault in faults[1:])
    assert ([use.tokens for use in meter.use], len(api.bodies)) == ([1_500, 1_500], 2)


def test_every_code_of_a_failed_response_has_a_row() -> None:
    """A code that a new version of the SDK brings fails here until somebody says what it means."""
    found = get_args(sdk.ResponseError.model_fields["code"].annotation)

    assert [code for code in found if code not in codes()] == []


# Which API a model takes. OpenAI's address is reached through a proxy on loopback.

OPENAI = "http://api.openai.com/v1"
NO_RESPONSES = "The requested model 'some-model' is not supported with the Responses API."
NO_REASONING = "Encrypted content is not supported with this model."
REJECTED = ModelError(400, "invalid_request_error", NO_RESPONSES, "model_not_found")
FREE = Price(input=0, output=0, cache_read=0, cache_write=0)


class OpenAI(OpenAIApi):
    """Both APIs at OpenAI's address; each request to Responses is answered with the `rejection`, if there is one."""

    def __init__(self, model: str, *script: Response, rejection: ModelError | None = None) -> None:
        """A model, and the script of both APIs."""
        super().__init__([*script], model=model)
        self.responses = ResponsesApi(self.script, model=model, bodies=self.bodies, violations=self.violations)
        self.rejection, self.paths = rejection, list[str]()

    def answer(self, path: str, headers: Mapping[str, str], body: Json) -> Any:
        """Answer as the API at this path."""
        self.paths.append(path := path.removeprefix("http://api.openai.com"))
        if path == OpenAIApi.path:
            return super().answer(path, headers, body)
        return self.rejection or self.responses.answer(path, headers, body)

    def reply_body(self, reply: ModelReply) -> Json:
        """The JSON of a reply of the API that was asked."""
        is_chat = self.paths[-1] == OpenAIApi.path
        return super().reply_body(reply) if is_chat else self.responses.reply_body(reply)

    def events(self, body: Json) -> Iterator[Json]:
        """The events of the API that was asked."""
        return super().events(body) if self.paths[-1] == OpenAIApi.path else self.responses.events(body)


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy but that of the test."""
    for name in ("NO_PROXY", "no_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


async def told(monkeypatch: pytest.MonkeyPatch, api: ModelApi, options: AdapterOptions, times: int = 1) -> list[int]:
    """Ask OpenAI's model with new adapters; how many requests each reply took."""
    async with running(api):
        monkeypatch.setenv("HTTP_PROXY", api.url)
        models = [OpenAIModel(api.model, Endpoint(KEY, OPENAI), options) for _ in range(times)]
        counted = []
        for model in models:
            meter = start_meter()
            await MeteredModel(model, None).reply(request(ASKED))
            counted.append(total(meter.use).calls)
        return counted


@pytest.mark.parametrize("message", [NO_RESPONSES, NO_REASONING])
@pytest.mark.parametrize("status", [400, 404])
async def test_a_model_without_responses_is_asked_once_more_and_remembered(
    monkeypatch: pytest.MonkeyPatch, message: str, status: int
) -> None:
    """Whoever asks it later in this process asks with Chat Completions at once."""
    rejection = ModelError(status, "invalid_request_error", message, "model_not_found")
    api = OpenAI(MODEL, ModelReply(text="Rome."), rejection=rejection)
    requests = await told(monkeypatch, api, AdapterOptions(), times=3)

    assert (requests, api.violations) == ([2, 1, 1], [])
    assert api.paths == [ResponsesApi.path, *[OpenAIApi.path] * 3]


async def test_all_models_of_a_worker_remember_what_one_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its planner, the model of its steps, and the planner that a task names."""
    api = OpenAI(MODEL, finishes(), rejection=REJECTED)
    async with running(api):
        monkeypatch.setenv("HTTP_PROXY", api.url)
        worker = PlannerSelection(f"openai:{MODEL}", {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": OPENAI})
        await worker.planner.propose(asked("do it"), KINDS)
        await worker.for_task(f"openai:{MODEL}").propose(asked("do it"), KINDS)
        assert worker.step_model is not None
        await worker.step_model.reply(request(ASKED))

    assert api.paths == [ResponsesApi.path, *[OpenAIApi.path] * 3]


@pytest.mark.parametrize(
    "second", [finishes(), ModelError(429, "requests"), DROPPED], ids=["answered", "429", "dropped"]
)
async def test_both_requests_of_a_fallback_are_counted(monkeypatch: pytest.MonkeyPatch, second: Response) -> None:
    """Whatever becomes of the second one; the rejected one used no tokens, and costs nothing."""
    meter = start_meter()
    async with running(OpenAI(MODEL, second, rejection=REJECTED)) as api:
        monkeypatch.setenv("HTTP_PROXY", api.url)
        with contextlib.suppress(Exception):  # which class is the SDK's business
            await MeteredModel(OpenAIModel(MODEL, Endpoint(KEY, OPENAI)), FREE).reply(request(ASKED))

    assert (ModelUse(calls=1, usd=0) in meter.wasted, len(meter.wasted), len(api.bodies)) == (True, 1, 2)


async def test_a_task_counts_the_rejected_request_of_an_attempt_that_failed(
    monkeypatch: pytest.MonkeyPatch, client: Client, tmp_path: Path
) -> None:
    """The first attempt was rejected in Responses and found Chat Completions busy; the second one was answered."""
    api = OpenAI(MODEL, ModelError(429, "requests"), finishes(), rejection=REJECTED)
    async with running(api):
        monkeypatch.setenv("HTTP_PROXY", api.url)
        planner = ModelPlanner(OpenAIModel(MODEL, Endpoint(KEY, OPENAI)))
        async with staged(client, tmp_path, TOOLS, planner, jitter=lambda: 0.01) as stage:
            ended = await stage.run(Task(text="x"))

    assert api.paths == [ResponsesApi.path, OpenAIApi.path, OpenAIApi.path]
    assert (ended.status, ended.spent.model_calls, ended.spent.tokens) == (TaskStatus.COMPLETED, 2, 130)


NO_MODEL = "The requested model 'x' does not exist."
NO_FALLBACK: dict[str, tuple[str, Mapping[str, str], ModelError]] = {
    "a model of the table": ("gpt-6-sol", {}, REJECTED),
    "a wire that was set": (MODEL, {f"openai:{MODEL}": "responses"}, REJECTED),
    "no such model": (MODEL, {}, ModelError(400, "invalid_request_error", NO_MODEL, "model_not_found")),
    "another 400": (MODEL, {}, ModelError(400, "invalid_request_error", "Unknown parameter")),
    "a rate limit": (MODEL, {}, ModelError(429, "requests", NO_RESPONSES, "rate_limit_exceeded")),
}


@pytest.mark.parametrize(("model", "wires", "error"), NO_FALLBACK.values(), ids=NO_FALLBACK)
async def test_no_other_error_leads_to_the_other_api(
    monkeypatch: pytest.MonkeyPatch, model: str, wires: Mapping[str, str], error: ModelError
) -> None:
    options = AdapterOptions(wires)
    api = OpenAI(model, ModelReply(text="Rome."), rejection=error)
    with pytest.raises(Exception) as raised:  # which class is the SDK's business
        await told(monkeypatch, api, options)

    assert classify(raised.value).code is not Code.BUG
    assert (api.paths, options.without_responses) == ([ResponsesApi.path], set())


TAKEN = [
    ("gpt-6-sol", {}, ResponsesApi.path),
    (DEFAULT_MODEL, {}, ResponsesApi.path),
    ("gpt-of-tomorrow", {}, ResponsesApi.path),
    ("gpt-audio-mini", {}, OpenAIApi.path),
    ("gpt-4.1-mini", {}, ResponsesApi.path),
    ("gpt-6-sol", {"openai:gpt-6-sol": "chat_completions"}, OpenAIApi.path),
    ("gpt-audio-mini", {"openai:gpt-audio-mini@api.openai.com": "responses"}, ResponsesApi.path),
]


@pytest.mark.parametrize(("model", "wires", "path"), TAKEN)
async def test_a_setting_or_a_row_or_openai_decides(
    monkeypatch: pytest.MonkeyPatch, model: str, wires: dict[str, str], path: str
) -> None:
    """In this order; without any of them, Responses come first. A model that does not reason rejects to be asked to."""
    api = OpenAI(model, ModelReply(text="Rome."))
    api.responses.is_reasoning = model not in ("gpt-audio-mini", "gpt-4.1-mini")
    await told(monkeypatch, api, AdapterOptions(wires))

    assert (api.paths, api.violations) == ([path], [])
    assert path == OpenAIApi.path or ("include" in api.bodies[0]) is api.responses.is_reasoning


@pytest.mark.parametrize("model", ["gpt-6-sol", MODEL])
async def test_a_compatible_server_is_asked_with_chat_completions(model: str) -> None:
    """Whatever its model is called, and without a first request that it would reject."""
    async with running(OpenAIApi([ModelReply(text="Rome.")], model=model)) as api:
        reply = await OpenAIModel(model, Endpoint(KEY, f"{api.url}/v1")).reply(request(ASKED))

    assert (reply.turn.text, len(api.bodies), api.violations) == ("Rome.", 1, [])


PAGE = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
NAMES = {Wire.RESPONSES: "Responses", Wire.CHAT_COMPLETIONS: "Chat Completions"}


def test_the_page_has_the_table_with_the_source_of_each_row() -> None:
    rows = re.findall(r"^\| (`[^|]*`) \| (Responses|Chat Completions) \| (.*) \|$", PAGE, re.MULTILINE)
    said = [
        (re.findall(r"`([^`]*)`", models), wire, re.findall(r"https://[^)\s]*", text)) for models, wire, text in rows
    ]

    assert said == [([*row.models], NAMES[row.wire], [*row.sources]) for row in WIRES]
    assert all(row.sources for row in WIRES)


def test_the_table_agrees_with_the_sdk_and_with_the_prices() -> None:
    """What the SDK names for Responses only is asked with it, and each model with a price of ours has a row."""
    _, _, only = get_args(ResponsesModel)
    priced = {name.removeprefix("openai:") for name in own_models() if name.startswith("openai:")}
    rows = {name: row_of(name) for name in {*get_args(only), *priced, DEFAULT_MODEL}}

    assert [name for name, row in rows.items() if row and row.wire is not Wire.RESPONSES] == []
    assert [name for name, row in rows.items() if row is None and name in {*priced, DEFAULT_MODEL}] == []


def test_the_settings_take_what_the_sdk_takes() -> None:
    efforts = list(get_args(get_args(ReasoningEffort)[0]))
    fields = {
        name: get_args(field.annotation)[1]
        for name, field in Models.model_fields.items()
        if name not in ("compact_at", "idle_timeout")
    }

    assert (list(get_args(fields["reasoning_effort"])), list(EFFORTS)) == (efforts, efforts)
    assert set(get_args(fields["wires"])) == {*Wire}


TYPES: dict[str, Any] = {
    "message": sdk.EasyInputMessageParam,
    "output_message": sdk.ResponseOutputMessageParam,
    "reasoning": sdk.ResponseReasoningItemParam,
    "function_call": sdk.ResponseFunctionToolCallParam,
    "function_call_output": sdk_input.FunctionCallOutput,
}


@pytest.mark.parametrize("kind", ITEMS)
def test_the_strict_server_knows_the_fields_of_the_sdk(kind: str) -> None:
    """No field more, and none required less, except that a result always names its call."""
    hints = get_type_hints(TYPES[kind], include_extras=True)
    required, optional = ITEMS[kind]

    assert required | optional == {*hints}
    assert {name for name, hint in hints.items() if get_origin(hint) is Required} == required - (
        {"call_id"} if kind == "function_call_output" else set()
    )


def test_the_strict_server_allows_only_what_the_sdk_has() -> None:
    request_fields = get_type_hints(sdk.response_create_params.ResponseCreateParamsStreaming, include_extras=True)

    assert (FIELDS - {*request_fields}, TOOL - {*get_type_hints(sdk.FunctionToolParam)}) == (set(), set())


SAID = {
    "words": ModelReply(text="Rome."),
    "calls": calls(PARIS, ROME, text="I look."),
    "refusal": ModelReply(refusal="No."),
    "cut off": ModelReply((ROME,), stop="max_output_tokens", thinking="South"),
}


@pytest.mark.parametrize("said", SAID.values(), ids=SAID)
async def test_requests_and_replies_have_the_types_of_the_sdk(said: ModelReply) -> None:
    """Every field, with its type: what the strict server sends, and what the adapter sends back."""
    api, body = api_of("responses", said, ModelReply(text="Rome.")), TypeAdapter(ResponseCreateParamsStreaming)
    await carried(api)

    sdk.Response.model_validate(api.reply_body(said), strict=True)
    assert [body.validate_python(sent)["store"] for sent in api.bodies] == [False, False]
