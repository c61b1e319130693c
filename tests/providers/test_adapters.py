"""The adapters alone, against servers that hold every request to the providers' rules."""

import pytest

from activities.llm.reply import Stop, Usage
from activities.llm.turns import AssistantTurn, ToolResult, Turn, UserTurn
from tests.providers.asking import ASKED, PARIS, ROME, ask
from tests.providers.script import Call, Says

TOLD: list[Turn] = [
    *ASKED,
    AssistantTurn("I look.", (PARIS, ROME)),
    UserTurn("Go on.", (ToolResult("call_a", "12"), ToolResult("call_b", "no station", is_error=True))),
]
BOTH = Says((Call("weather", {"place": "Paris"}), Call("weather", {"place": "Rome"})), text="I look.")


async def test_parallel_calls_come_back_in_order_with_their_ids(provider: str) -> None:
    """One turn may hold words and several calls."""
    _, reply = await ask(provider, BOTH)

    assert (reply.turn.text, reply.stop) == ("I look.", Stop.CALLS)
    assert [call.args for call in reply.turn.calls] == [{"place": "Paris"}, {"place": "Rome"}]
    assert len({call.id for call in reply.turn.calls}) == 2


async def test_results_go_back_paired_and_first(provider: str) -> None:
    """Every call has its result, same ids, same order, before all words; a failure says so."""
    api, _ = await ask(provider, Says(text="Rome."), turns=TOLD)

    assert api.violations == []


async def test_a_failed_result_is_marked_where_the_protocol_has_a_mark() -> None:
    """Anthropic's `is_error`; the other result carries none."""
    api, _ = await ask("anthropic", Says(text="Rome."), turns=TOLD)
    blocks = api.bodies[0]["messages"][-1]["content"]

    assert [block.get("is_error") for block in blocks] == [None, True, None, None]


async def test_only_the_stable_prefix_is_marked_for_the_cache() -> None:
    """Tools, system and the turns so far, but not the words that are different each time."""
    api, _ = await ask("anthropic", Says(text="Rome."), turns=TOLD)
    body = api.bodies[0]
    marked = [block for message in body["messages"] for block in message["content"] if "cache_control" in block]

    assert "cache_control" in body["tools"][-1] and "cache_control" in body["system"][-1]
    assert [block["text"] for block in marked] == ["Go on."]


async def test_usage_is_the_provider_s_own(provider: str) -> None:
    """What was read from a cache or written to one is counted apart, and nothing twice."""
    _, reply = await ask(provider, Says(text="Rome."))

    assert (reply.usage, reply.usage.tokens) == (Usage(input=100, output=7, cache_read=3, cache_write=20), 130)


STOPS = [
    ("anthropic", "end_turn", Stop.DONE),
    ("anthropic", "stop_sequence", Stop.DONE),
    ("anthropic", "max_tokens", Stop.CUT),
    ("anthropic", "model_context_window_exceeded", Stop.CUT),
    ("anthropic", "refusal", Stop.REFUSED),
    ("openai", "stop", Stop.DONE),
    ("openai", "length", Stop.CUT),
    ("openai", "content_filter", Stop.REFUSED),
]


@pytest.mark.parametrize(("whose", "word", "stop"), STOPS)
async def test_why_a_model_stopped(whose: str, word: str, stop: Stop) -> None:
    """Each provider's word for it."""
    _, reply = await ask(whose, Says(text="It", stop=word))

    assert reply.stop is stop


@pytest.mark.parametrize(
    ("written", "says"),
    [('{"place": "Par', "no JSON"), ("[1]", "a JSON list"), ("NaN", "no JSON"), ("1", "a JSON int")],
)
async def test_arguments_that_are_no_object_are_said_and_never_guessed(written: str, says: str) -> None:
    """OpenAI's protocol carries them as the text that the model wrote."""
    _, reply = await ask("openai", Says((Call("weather", written),)))

    assert says in reply.turn.calls[0].broken and reply.turn.calls[0].args == {}


async def test_a_retry_after_on_a_success_is_no_error(provider: str) -> None:
    """Recorded answers carry one."""
    api, reply = await ask(provider, Says(text="Rome.", headers={"retry-after": "25"}))

    assert (reply.turn.text, len(api.bodies)) == ("Rome.", 1)
