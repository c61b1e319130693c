"""What models do wrong while they act, on the wire: each is told exactly, and the task goes on."""

from pathlib import Path

import pytest
from temporalio.client import Client

from evals.fakes.script import ModelCall, ModelReply, ReceivedRequest, Response, calls
from tests.gate import sampled
from tests.providers.acting import acting
from tests.providers.planning import CUT_OFF, FINISHED
from workflows.account.task import TaskStatus

GOOD = calls(ModelCall("book", {"at": "14:30"}))
WRONG: dict[str, tuple[ModelReply, str]] = {
    "unknown tool": (calls(ModelCall("bok", {"at": "14:30"})), "did you mean book"),
    "a tool of another program": (calls(ModelCall("functions.book", {"at": "14:30"})), "there is no kind"),
    "a name with spaces": (calls(ModelCall("book a slot", {"at": "14:30"})), "there is no kind"),
    "no name": (calls(ModelCall("", {"at": "14:30"})), "there is no kind"),
    "unknown argument": (calls(ModelCall("book", {"when": "14:30"})), "has no argument 'when'"),
    "missing argument": (calls(ModelCall("book", {})), "'at' field required"),
    "misfit": (calls(ModelCall("book", {"at": "soon"})), "'at'"),
    "one of two": (calls(ModelCall("book", {"at": "14:30"}), ModelCall("book", {"at": "soon"})), "'at'"),
    "an end among calls": (calls(ModelCall("book", {"at": "14:30"}), ModelCall("ask", {"question": "Why?"})), "alone"),
    "a question without words": (calls(ModelCall("ask", {})), "needs 'question'"),
    "refusal": (ModelReply(refusal="I cannot."), "you declined"),
    "nothing": (ModelReply(), "your answer was empty"),
    "spaces": (ModelReply(text=" \n "), "your answer was empty"),
    "a reference": (calls(ModelCall("book", {"at": {"$from": "t0.c0"}})), "t0.c0"),
}


@pytest.mark.parametrize(
    ("wrong", "reason"), sampled(WRONG, "unknown tool", "one of two", "an end among calls", "refusal")
)
async def test_a_model_mends_its_own_mistake(
    client: Client, tmp_path: Path, provider: str, wrong: ModelReply, reason: str
) -> None:
    """It is told what is wrong; nothing of the bad turn is carried out, and its calls keep their results."""
    async with acting(client, tmp_path, provider, wrong, GOOD, ModelReply(text="It is booked.")) as one:
        ended = await one.run("book a slot at 14:30")
    heard = one.api.requests[1]
    told = "\n".join([*(result.text for result in heard.results), heard.last_text])

    assert reason in told, told
    assert (ended.status, [step.id for step in ended.steps]) == (TaskStatus.COMPLETED, ["t2.c0"])
    assert (len(heard.results), one.api.violations) == (len(wrong.calls), [])


BROKEN = {
    "half": ('{"at": "14:3',),
    "a list": ("[1]",),
    "no number": ("NaN",),
    "two objects": ('{"at": "14:30"} {"at": "15:00"}',),
}


@pytest.mark.parametrize("written", sampled(BROKEN, "two objects"))
async def test_arguments_that_are_no_json_are_never_guessed(client: Client, tmp_path: Path, written: str) -> None:
    """OpenAI's protocol carries them as the text that the model wrote; later requests hold JSON all the same."""
    async with acting(
        client, tmp_path, "openai", calls(ModelCall("book", written)), GOOD, ModelReply(text="Done.")
    ) as one:
        ended = await one.run()

    assert "cannot be read" in one.api.requests[1].results[0].text
    assert (ended.status, len(ended.steps), one.api.violations) == (TaskStatus.COMPLETED, 1, [])


CUT = [*CUT_OFF.items(), ("anthropic", "model_context_window_exceeded")]


@pytest.mark.parametrize(("whose", "word"), CUT)
async def test_a_call_that_was_cut_off_is_never_made(client: Client, tmp_path: Path, whose: str, word: str) -> None:
    """However whole it looks; its pair stays whole, too."""
    cut = ModelReply((ModelCall("book", {"at": "15:00"}),), stop=word)
    async with acting(client, tmp_path, whose, cut, GOOD, ModelReply(text="Done.")) as one:
        ended = await one.run()

    assert [step.args for step in ended.steps if step.status == "completed"] == [{"at": "14:30"}]
    assert (ended.status, len(one.api.bodies), one.api.violations) == (TaskStatus.COMPLETED, 3, [])


async def test_text_that_was_cut_off_is_no_answer(client: Client, tmp_path: Path) -> None:
    """Half an answer would look like a whole one."""
    async with acting(
        client, tmp_path, "openai", ModelReply(text="It is bo", stop="length"), ModelReply(text="Booked.")
    ) as one:
        ended = await one.run()

    assert (ended.result, len(one.api.bodies), one.api.violations) == ("Booked.", 2, [])


UNFINISHED = [("anthropic", "pause_turn"), ("openai", "model_length"), ("openai", "error"), ("openai", "abort")]


@pytest.mark.parametrize(("whose", "word"), UNFINISHED)
async def test_a_turn_that_the_server_left_unfinished_is_no_answer(
    client: Client, tmp_path: Path, whose: str, word: str
) -> None:
    """A pause, an error in the middle, a limit under another name: the model is asked to say it again."""
    async with acting(
        client, tmp_path, whose, ModelReply(text="I will look it up.", stop=word), ModelReply(text="Booked.")
    ) as one:
        ended = await one.run()

    assert (ended.status, ended.result) == (TaskStatus.COMPLETED, "Booked.")
    assert (len(one.api.bodies), one.api.violations) == (2, [])


async def test_a_stop_sequence_is_an_end_like_any_other(client: Client, tmp_path: Path) -> None:
    """What was said before it is the answer."""
    async with acting(client, tmp_path, "anthropic", ModelReply(text="It is booked.", stop="stop_sequence")) as one:
        ended = await one.run()

    assert (ended.status, ended.result) == (TaskStatus.COMPLETED, "It is booked.")


async def test_calls_that_are_called_an_end_are_made(client: Client, tmp_path: Path, provider: str) -> None:
    """Some compatible servers say `stop` although there are calls."""
    said = ModelReply((ModelCall("book", {"at": "14:30"}),), stop=FINISHED[provider])
    async with acting(client, tmp_path, provider, said, ModelReply(text="Done.")) as one:
        ended = await one.run()

    assert (ended.status, ended.spent.tool_calls) == (TaskStatus.COMPLETED, 1)


async def test_a_model_that_does_not_mend_it_leads_to_a_person(client: Client, tmp_path: Path, provider: str) -> None:
    """After two corrections nobody is asked again."""
    async with acting(client, tmp_path, provider, calls(ModelCall("bok", {}))) as one:
        ended = await one.run()

    assert (ended.status, ended.code) == (TaskStatus.ESCALATED, "proposals_rejected")
    assert (len(one.api.bodies), ended.steps, one.api.violations) == (3, (), [])


def stubborn(heard: ReceivedRequest) -> Response:
    """A model that goes on calling the same, whatever it is told."""
    return calls(ModelCall("book", {"at": "14:00"}))


async def test_a_model_that_repeats_a_refused_call_is_stopped(client: Client, tmp_path: Path, provider: str) -> None:
    """The call is made once; after that it is refused before anything is done."""
    async with acting(client, tmp_path, provider, stubborn) as one:
        ended = await one.run()

    assert (ended.status, ended.code) == (TaskStatus.ESCALATED, "proposals_rejected")
    assert ([step.attempts for step in ended.steps], one.api.violations) == ([1], [])
