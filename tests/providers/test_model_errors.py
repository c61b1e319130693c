"""What vendors of models say when they fail, as real answers over HTTP: each is read as what it means.

The table's own examples come first; then answers that are not in it: other numbers, models, versions and wrappings.
"""

import json
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from activities.borders import classify
from activities.borders.model_errors import Meaning, error_in, meaning_of, meaning_of_words, table
from evals.fakes.model_api import json_answer, running
from evals.fakes.script import ModelReply, RawBytes, ReceivedRequest, Response, Streamed
from tests.gate import sampled
from tests.providers.acting import acting
from tests.providers.asking import ASKED, failing, request
from tests.providers.planning import adapter_of, api_of
from tests.providers.plates import GOAL, read_plate
from tests.providers.visitor import FOUND, visitor
from tests.providers.wire import body as whole_body, chunk, stream, used
from workflows.account.task import TaskStatus
from workflows.faults.fault import Code

VENDORS = sorted({row.vendor for row in table()})
Case = tuple[int, Any, Code]


def answer(status: int, body: Any) -> RawBytes:
    """The answer of a server, whose body is JSON or a text."""
    return RawBytes(json_answer(status, (body if isinstance(body, str) else json.dumps(body)).encode()))


async def misread(wire: str, cases: list[Case]) -> list[tuple[Case, Code]]:
    """The answers that are read as something else than they mean, all of one server."""
    wrong = list[tuple[Case, Code]]()
    async with running(api_of(wire, *[answer(status, body) for status, body, _ in cases])) as api:
        model = adapter_of(wire, api)
        for case in cases:
            with pytest.raises(Exception) as raised:  # which class is the SDK's business
                await model.reply(request(ASKED))
            found = classify(raised.value).code
            wrong += [(case, found)] if found is not case[2] else []
    return wrong


def test_each_row_says_when_it_was_met_or_written() -> None:
    """One of the two: a reader sees which rows were compared with their source."""
    assert [row.source for row in table() if (row.seen is None) is (row.written is None)] == []


@pytest.mark.parametrize("wire", ["anthropic", "openai"])
@pytest.mark.parametrize("vendor", VENDORS)
async def test_the_examples_of_a_vendor_mean_what_their_rows_say(vendor: str, wire: str) -> None:
    """Whichever API the server speaks: proxies send the errors of all vendors in each of them."""
    rows = (row for row in table() if row.vendor == vendor)
    cases: list[Case] = [(example.status, example.body, row.means.code) for row in rows for example in row.examples]

    assert await misread(wire, cases) == []


def test_each_example_is_read_as_its_own_row_and_not_as_another_reason() -> None:
    """Two meanings may have one code, and different remedies."""
    read = [
        (row.means, meaning_of(json.loads(example.body), example.status)) for row in table() for example in row.examples
    ]

    assert [pair for pair in read if pair[0] is not pair[1]] == []


def test_each_row_can_decide_and_has_a_source() -> None:
    """A row without a code or a text would fit each error; every kind of error is there for whoever looks it up."""
    kinds = {row.means for row in table()}

    assert all(row.codes or row.texts for row in table())
    assert all(text == text.casefold() for row in table() for text in row.texts)
    assert kinds >= {
        Meaning.TOO_LONG,
        Meaning.QUOTA,
        Meaning.SLOW_DOWN,
        Meaning.FILTERED,
        Meaning.NO_MODEL,
        Meaning.KEY,
    }
    assert len(VENDORS) > 25


def said(message: str, **more: Any) -> dict[str, Any]:
    """An error in the form of OpenAI."""
    return {"error": {"message": message, **more}}


LONG, SPENT, SLOW, BAD = Code.TOO_LARGE, Code.QUOTA_EXHAUSTED, Code.RATE_LIMITED, Code.MALFORMED_SCHEMA
FULL = Code.OVERLOADED
SIBLINGS: dict[str, list[Case]] = {
    vendor: [(case["status"], case["body"], Code(case["code"])) for case in cases]
    for vendor, cases in tomllib.loads(Path(__file__).with_name("model_errors.toml").read_text()).items()
}


@pytest.mark.parametrize("vendor", SIBLINGS)
async def test_what_a_vendor_says_in_other_words_means_the_same(vendor: str) -> None:
    """Numbers, names and versions differ, and nobody adds a row for each."""
    wrong = await misread("openai", SIBLINGS[vendor]) + await misread("anthropic", SIBLINGS[vendor])

    assert wrong == []


POOR, TOO_MUCH = "Your credit balance is too low", "You exceeded your current quota"
QUOTED: list[Case] = [
    (400, said(f"Invalid value: '{POOR}'. Supported values are: 'a' and 'b'."), BAD),
    (400, said(f'messages.2.content: expected a list, got "{TOO_MUCH}, prompt is too long"'), BAD),
    (400, said(f"[{{'type': 'string_type', 'loc': ('body',), 'msg': 'bad', 'input': '{POOR}'}}]", code=400), BAD),
    (400, said(f"Could not parse `{TOO_MUCH}` as JSON", code="bad"), BAD),
    (400, said(f"Bad role in “{POOR}”"), BAD),
    (400, said("bad", failed_generation=POOR, param=TOO_MUCH), BAD),
    (422, {"detail": [{"msg": "Field required", "input": {"messages": [{"content": POOR}]}}]}, BAD),
    (400, said(f"Unexpected tokens in {'x ' * 500} {POOR}"), BAD),
    (400, said('Invalid body: {"messages": [{"role": "user", "content": "insufficient balance"}]}'), BAD),
    (429, said("Too many requests: 'prompt is too long, insufficient credits'"), SLOW),
    (500, said(f"Failed on {POOR}"), Code.SERVER_ERROR),
]


async def test_a_quotation_of_a_prompt_says_nothing() -> None:
    """A user who writes of an empty account has none."""
    assert await misread("openai", QUOTED) + await misread("anthropic", QUOTED) == []


def in_stream(*events: Any) -> Iterator[tuple[str, RawBytes]]:
    """The events as the first ones of a stream of Chat Completions, and after a word of the reply."""
    yield "first", stream(*events)
    yield "later", stream(chunk({"content": "It is "}), *events)


FAILED_CHUNKS: dict[str, tuple[Any, Code]] = {
    "an error": (said("Insufficient credits", code=402), SPENT),
    "a text": ({"error": "Input validation error: `inputs` must have less than 9 tokens. Given: 10"}, LONG),
    "an error of a choice": (
        {
            **chunk({}, "error"),
            "choices": [{"index": 0, "delta": {}, "finish_reason": "error", "error": {"code": 429, "message": "slow"}}],
        },
        SLOW,
    ),
    "an error object": ({"object": "error", "message": "no", "type": "BadRequestError", "code": 400}, BAD),
    "MiniMax": ({"id": "0", "choices": None, "base_resp": {"status_code": 1008, "status_msg": "no"}}, SPENT),
    "Gemini's list": ([said("The model is overloaded.", code=503, status="UNAVAILABLE")], FULL),
    "a raw cause": (said("Provider returned error", code=502, metadata={"raw": "prompt is too long: 9 > 8"}), LONG),
    "a reason to stop": (chunk({}, "error"), Code.SERVER_ERROR),
    "a code that is no status": (said("Provider disconnected", code="server_error"), Code.SERVER_ERROR),
}


@pytest.mark.parametrize("name", FAILED_CHUNKS)
async def test_an_error_in_a_stream_is_that_error(name: str) -> None:
    """At its beginning and in its middle, although the stream began with 200."""
    event, code = FAILED_CHUNKS[name]
    found = {place: classify((await failing("openai", move))[1]).code for place, move in in_stream(event, {})}

    assert found == {"first": code, "later": code}


async def test_tokens_of_a_reply_that_an_error_ends_are_counted() -> None:
    """The server has told them, so they are paid, and the request is not made for ever."""
    _, error = await failing("openai", stream(chunk({"content": "It"}), chunk({}, "error"), used(), {}))

    assert (classify(error).code, getattr(error, "usage", None) is not None) == (Code.SERVER_ERROR, True)


@pytest.mark.parametrize(
    ("wire", "event", "code"),
    [
        ("anthropic", {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, FULL),
        ("anthropic", {"type": "error", "error": {"type": "invalid_request_error", "message": POOR}}, SPENT),
        ("anthropic", {"type": "error", "error": {"type": None, "message": "boom"}}, Code.SERVER_ERROR),
        ("responses", {"type": "error", "code": "context_length_exceeded", "message": "x", "param": None}, LONG),
        ("responses", {"type": "error", "code": None, "message": "Insufficient Balance", "param": None}, SPENT),
    ],
)
async def test_an_event_of_an_error_is_that_error(wire: str, event: Any, code: Code) -> None:
    """After 200, in the form of each API."""
    sent = f"event: error\ndata: {json.dumps(event)}\n\n".encode()
    _, error = await failing(wire, Streamed(ModelReply(text="It is warmer in Rome."), events=2, then=sent))

    assert classify(error).code is code


ODD: list[Any] = [
    None, [], {}, 7, True, "", "{", "[[[[", {"error": []}, {"error": [None]},
    {"error": {"message": {"a": 1}, "code": True}},
    {"error": {"code": [1], "type": {"a": 1}, "details": {"violations": 3}, "metadata": "no", "innererror": 7}},
    {"error": {"message": "{" * 5_000}}, {"error": {"message": '{"error":' * 2_000}}, {"base_resp": 7},
    {"error": {"code": 10**400, "message": "x"}}, {"choices": [None, 7]}, [[[]]], {"error": {"metadata": {"raw": [1]}}},
]  # fmt: skip

GOOD: list[Any] = [{}, [], {"error": None}, {"choices": [None, 7]}, {"base_resp": {"status_code": 0}}]


def test_an_error_may_be_anything() -> None:
    """Whatever a server sends, it has a meaning, and nothing is raised."""
    assert {meaning_of(odd, 418).code for odd in ODD} == {BAD}
    assert [error_in(good) for good in GOOD] == [None] * len(GOOD)


def test_a_message_is_read_in_bounded_time() -> None:
    """Quotation marks and braces without end take no longer than a word."""
    began = time.monotonic()
    for text in ("'a" * 200_000, "\"' " * 200_000, '{"error": {"message": "' * 50_000, "token count of " * 100_000):
        meaning_of(said(text), 400)
        meaning_of(text, 400)

    assert time.monotonic() - began < 5


def test_a_text_alone_has_a_meaning() -> None:
    """The report on a history has no more of an old failure."""
    assert (
        meaning_of_words("openai.BadRequestError: This model's maximum context length is 9 tokens") is Meaning.TOO_LONG
    )
    assert meaning_of_words("no") is None


TOO_LONG: dict[str, RawBytes] = {
    "in a 200": whole_body(json.dumps(said("This endpoint's maximum context length is 4096 tokens", code=400))),
    "in a stream": stream(said("This endpoint's maximum context length is 4096 tokens", code=400)),
    "as a limit of a minute": answer(413, said("Request too large for model `m` on tokens per minute (TPM): Limit 6000,"
                                               " Requested 7000", type="tokens", code="rate_limit_exceeded")),
    "in a list": answer(
        400, [said("The input token count (9) exceeds the maximum number of tokens allowed (8).", code=400)]
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "move", sampled({name: (move,) for name, move in TOO_LONG.items()}, "in a 200", "as a limit of a minute")
)
async def test_a_conversation_that_is_too_long_in_any_words_is_summarised(
    client: Client, tmp_path: Path, move: RawBytes
) -> None:
    """Once, and the task goes on: it is no malformed request, and no limit to wait for."""
    summaries = list[ReceivedRequest]()

    def limited(heard: ReceivedRequest) -> Response:
        summaries.extend([] if heard.tools else [heard])
        return visitor(heard) if summaries or heard.turn < 4 else move

    async with acting(client, tmp_path, "openai", limited, tools=[read_plate]) as one:
        ended = await one.run(GOAL, tool_calls=100)

    assert (ended.status, ended.result, len(ended.compactions)) == (TaskStatus.COMPLETED, FOUND, 1), ended.reason


async def test_an_empty_account_in_a_200_ends_the_task_after_one_request(client: Client, tmp_path: Path) -> None:
    """As a 402 does: a person pays, and no retry helps."""
    move = whole_body(json.dumps(said("Insufficient credits", code=402)))
    async with acting(client, tmp_path, "openai", lambda heard: move, tools=[read_plate]) as one:
        ended = await one.run(GOAL)

    assert (ended.status, ended.code, len(one.api.bodies)) == (TaskStatus.ESCALATED, "quota_exhausted", 1)
