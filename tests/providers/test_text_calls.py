"""Calls that models write as text: what counts as one, and what only looks like one."""

import json

import pytest

from activities.planning.text_calls import called_in, read_move, whole_calls

ARGS = {"sku": "A-17"}
JSON = '{"name": "get_price", "arguments": {"sku": "A-17"}}'
NAMES = ("get_price", "add", "finish", "plan_effects")
FORMS = {
    "JSON": JSON,
    "JSON in lines": json.dumps(json.loads(JSON), indent=2),
    "parameters": '{"name": "get_price", "parameters": {"sku": "A-17"}}',
    "arguments as a text": '{"name": "get_price", "arguments": "{\\"sku\\": \\"A-17\\"}"}',
    "OpenAI's": '{"type": "function", "function": {"name": "get_price", "arguments": "{\\"sku\\": \\"A-17\\"}"}}',
    "tool_calls": f'{{"tool_calls": [{JSON}]}}',
    "a list": f"[{JSON}]",
    "a fence": f"```json\n{JSON}\n```",
    "a fence without a word": f"```\n{JSON}\n```",
    "Hermes": f"<tool_call>\n{JSON}\n</tool_call>",
    "Hermes, not closed": f"<tool_call>\n{JSON}",
    "Qwen coder": "<tool_call>\n<function=get_price>\n<parameter=sku>\nA-17\n</parameter>\n</function>\n</tool_call>",
    "Mistral": f"[TOOL_CALLS][{JSON}]",
    "Mistral, newer": '[TOOL_CALLS]get_price[ARGS]{"sku": "A-17"}',
    "Llama": '<|python_tag|>{"name": "get_price", "parameters": {"sku": "A-17"}}<|eom_id|>',
    "Llama, custom": '<function=get_price>{"sku": "A-17"}</function>',
    "Llama, as Python": '[get_price(sku="A-17")]',
    "Granite": f"<|tool_call|>[{JSON}]",
    "LangChain": '{"action": "get_price", "action_input": {"sku": "A-17"}}',
}


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_a_call_that_is_the_whole_message_is_read(text: str) -> None:
    """In each known form, with blanks around it; beside other words it is none, but it is found."""
    (call,) = whole_calls(f"\n {text} \n".strip(), NAMES)

    assert (call.name, call.args, call.broken) == ("get_price", ARGS, "")
    assert whole_calls(f"I look it up. {text}", NAMES) == [] == whole_calls(text, ("add",))
    if "as Python" not in text and "get_price(" not in text:
        assert called_in(f"I look it up.\n{text}\nThat is all.", NAMES) == "get_price"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (f"{JSON}\n{JSON}", 2),
        (f"<tool_call>{JSON}</tool_call>\n<tool_call>{JSON}</tool_call>", 2),
        ('[get_price(sku="A-17"), get_price(sku="B-2")]', 2),
        ('[TOOL_CALLS]get_price{"sku": "A-17"}[TOOL_CALLS]get_price{"sku": "B-2"}', 2),
    ],
)
def test_several_calls_are_read(text: str, count: int) -> None:
    """One after the other."""
    assert len(whole_calls(text, NAMES)) == count


ANSWERS = [
    "A-17 costs 24.50.",
    'The reply was {"amount": 24.5}.',
    '{"name": "Ada", "arguments": ["for", "against"]}',
    "The tool get_price shows 24.50; I used add, too.",
    "get_price says: 24.50",
    '{"name": "get_price"}',
    "Action is needed: ask Ann.",
]


@pytest.mark.parametrize("text", ANSWERS)
def test_an_answer_is_no_call(text: str) -> None:
    """Although it names tools, or has JSON."""
    assert (called_in(text, NAMES), whole_calls(text, NAMES)) == ("", [])


TOOLS = {"get_price": ["sku"], "add": ["amounts"], "plan_effects": ["effects"]}
MOVES = {
    "plain": 'Thought: I look.\nAction: get_price\nAction Input: {"sku": "A-17"}',
    "an observation of its own": (
        'Thought: I look.\nAction: get_price\nAction Input: {"sku": "A-17"}\nObservation: 99\n'
        'Thought: Now.\nAction: add\nAction Input: {"amounts": [99]}'
    ),
    "two actions": (
        'Thought: I look.\nAction: get_price\nAction Input: {"sku": "A-17"}\n'
        'Action: add\nAction Input: {"amounts": [1]}'
    ),
    "words after it": 'Thought: I look.\nAction: get_price\nAction Input: {"sku": "A-17"} and then I add.',
    "bold": 'Thought: I look.\n**Action:** `get_price`\n**Action Input:** {"sku": "A-17"}',
    "numbers": 'Thought 1: I look.\nAction 1: get_price\nAction Input 1: {"sku": "A-17"}',
    "a fence": 'Thought: I look.\nAction: get_price\nAction Input:\n```json\n{"sku": "A-17"}\n```',
    "as in the paper": "Thought 1: I look.\nAction 1: get_price[A-17]\nObservation 1: 99\nAction 2: Finish[99]",
    "in other case": 'Thought: I look.\naction: Get_Price\naction input: {"sku": "A-17"}',
    "an answer too early": (
        'Thought: I look.\nAction: get_price\nAction Input: {"sku": "A-17"}\nObservation: 99\nFinish[It costs 99.]'
    ),
}


@pytest.mark.parametrize("text", MOVES.values(), ids=MOVES)
def test_one_action_is_taken(text: str) -> None:
    """The first; what the model makes of observations of its own is ignored."""
    move = read_move(text, TOOLS)

    assert [(call.name, call.args, call.broken) for call in move.calls] == [("get_price", ARGS, "")]
    assert (move.thought, move.answer) == ("I look.", None)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Thought: I know.\nFinish[It costs 24.50 [EUR].]", "It costs 24.50 [EUR]."),
        ("Thought: I know.\nAction: Finish[It costs 24.50.]", "It costs 24.50."),
        ("Thought: I know.\nFinal Answer: It costs 24.50.\nThank you.", "It costs 24.50.\nThank you."),
        ("Finish[one\ntwo]\nObservation: nothing", "one\ntwo"),
    ],
)
def test_finish_ends_the_task(text: str, answer: str) -> None:
    """With the text in its brackets."""
    assert read_move(text, TOOLS).answer == answer


def test_effects_may_be_planned_before_the_first_action() -> None:
    """The call that plans effects is no action of its own."""
    text = 'Action: plan_effects\nAction Input: {"effects": []}\nAction: get_price\nAction Input: {"sku": "A-17"}'
    calls = read_move(text, TOOLS, before={"plan_effects"}).calls

    assert [call.name for call in calls] == ["plan_effects", "get_price"]


def test_arguments_that_are_no_json_are_said_to_be() -> None:
    """Nothing is guessed."""
    (call,) = read_move("Action: get_price\nAction Input: sku = A-17", TOOLS).calls

    assert "no JSON" in call.broken


@pytest.mark.parametrize("text", ["", "It costs 24.50.", "Thought: I wonder."])
def test_a_text_without_an_action_has_none(text: str) -> None:
    """It is no answer either."""
    move = read_move(text, TOOLS)

    assert (move.calls, move.answer) == ((), None)
