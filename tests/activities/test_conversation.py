"""What a model is told of the turns before: unchanged, or summarised with what must stay word for word."""

from typing import Any

import pytest
from pydantic import JsonValue

from activities.planning.conversation import NEVER_SUMMARISED, text_to_summarise, turns, turns_to_summarise
from activities.planning.planner import Exchange, RecordedTurn
from activities.providers.messages import AssistantTurn, StopReason, ToolCall, ToolResult, Turn, Usage, UserTurn
from tests.activities.situations import NOW, fault, record, seen, step
from workflows.account.records import StepStatus
from workflows.planning.situation import Situation
from workflows.plans.catalogue import Effect
from workflows.plans.proposal import Answer, GiveUp, Mistake, NewSteps, Proposed

THOUGHT: tuple[dict[str, JsonValue], ...] = ({"type": "thinking", "thinking": "", "signature": "s"},)


def situation(turn: int, **more: Any) -> Situation:
    """What is new at a turn of a model that calls tools itself."""
    text = "find the price" if turn == 1 else ""
    return Situation.model_validate({"turn": turn, "text": text, "now": NOW, "strategy": "react", **more})


def past(turn: int, result: str = "", *, is_error: bool = False, task: str = "run", text: str = "") -> RecordedTurn:
    """A turn in which one call was made, after it was told the result of the one before."""
    call = ToolCall(f"id_{turn}", "look", {"at": turn})
    results = (ToolResult(f"id_{turn - 1}", result, is_error),) if turn > 1 else ()
    words = f"The task:\n{text or 'find the price'}" if turn == 1 else "What comes next?"
    exchange = Exchange(UserTurn(words, results), AssistantTurn("", (call,), THOUGHT, "m"), StopReason.CALLS, Usage())
    steps = (step(f"t{turn}.c0", "look", {"at": turn}),)
    asked = situation(turn) if not text else situation(turn, text=text)
    return RecordedTurn(task, 0, turn, asked, Proposed(proposal=NewSteps(steps=steps)), exchange)


def summary(turn: int, upto: int, words: str = "Eleven was too late.") -> RecordedTurn:
    """A summary of the oldest turns."""
    said = Exchange(UserTurn("all of it"), AssistantTurn(words), StopReason.DONE, Usage())
    return RecordedTurn(
        "run", 0, turn, situation(turn, compact=upto), Proposed(proposal=Answer(result=None)), said, upto=upto
    )


def user(turn: Turn) -> UserTurn:
    """A turn of the user."""
    assert isinstance(turn, UserTurn)
    return turn


def news(turn: int, **more: Any) -> Situation:
    """A call that came back."""
    done = record(step(f"t{turn - 1}.c0", "look", {}), StepStatus.COMPLETED, result={"price": 3})
    return situation(turn, **{"records": (done,), **more})


def test_a_model_is_told_that_the_state_could_not_be_read_again() -> None:
    """Else it takes an old view for a fresh one. Why is text of the world."""
    failed = record(step("t1.c0", "look", {}), StepStatus.FAILED)
    unread = seen("t1.c0", {"free": []}, stale=True).model_copy(
        update={"unread": "list_slots failed (timeout): <Late>."}
    )
    told = user(turns([past(1)], situation(2, records=(failed,), faults=(fault("t1.c0"),), observations=(unread,)))[-1])

    assert "As it was at the refusal of t1.c0" in told.text
    assert (
        'The state could not be read again after the refusal of t1.c0:\n<data from="check">\n'
        '"list_slots failed (timeout): \\u003cLate>."'
    ) in told.text


def test_the_turns_stay_as_they_were() -> None:
    """Word for word, with what the provider signed; the news comes last."""
    before = [past(1), past(2, "r1")]
    told = turns(before, news(3))

    assert [told[0], told[2]] == [one.exchange.told for one in before if one.exchange]
    assert [told[1], told[3]] == [one.exchange.said for one in before if one.exchange]
    assert user(told[4]).results[0].call_id == "id_2" and '{"price":3}' in user(told[4]).results[0].text


def test_a_summary_stands_in_the_place_of_the_oldest_turns() -> None:
    """With the goal before it, and the pairs of the turns that stay."""
    told = turns([past(1), past(2, "r1"), past(3, "r2"), past(4, "r3"), summary(5, upto=2)], news(6))
    opening = user(told[0])

    assert "The task:\nfind the price" in opening.text and "Eleven was too late." in opening.text
    assert opening.results == () and "r1" not in str(told)
    assert [user(turn).results[0].call_id for turn in told[2::2]] == ["id_3", "id_4"]


def test_what_is_open_stays_word_for_word() -> None:
    """A refusal that was told with the first turn that stays."""
    told = turns([past(1), past(2, "r1"), past(3, "taken: 14:30 is free", is_error=True), summary(4, upto=2)], news(5))

    assert "taken: 14:30 is free" in user(told[0]).text


def test_what_a_provider_signed_before_a_summary_is_marked() -> None:
    """It belongs to another conversation now, and each wire knows whether its provider takes it; the rest does not."""
    told = turns([past(1), past(2, "r1"), past(3, "r2"), summary(4, upto=2), past(5, "r3")], news(6))
    said = [turn for turn in told if isinstance(turn, AssistantTurn)]

    assert [(turn.blocks, turn.follows_summary) for turn in said] == [(THOUGHT, True), (THOUGHT, False)]


def test_a_second_summary_takes_the_place_of_the_first() -> None:
    """And tells its words, not the first one's."""
    before = [past(1), past(2), past(3), summary(4, 2), past(5), past(6), summary(7, 4, "All was dear.")]
    told = turns(before, news(8))

    assert "All was dear." in user(told[0]).text and "Eleven" not in str(told)
    assert [turn.calls[0].id for turn in told if isinstance(turn, AssistantTurn)] == ["id_5", "id_6"]


def test_the_newest_turns_are_never_summarised() -> None:
    """However long they are; a conversation with no others is left as it is."""
    short = [past(turn, "r") for turn in range(1, NEVER_SUMMARISED + 1)]
    long = [*short, past(NEVER_SUMMARISED + 1, "r" * 100_000)]

    assert (turns_to_summarise(short), turns_to_summarise(long)) == (0, 1)


def test_a_summary_leaves_the_smaller_part() -> None:
    """Of ten turns that are all alike, the newest three; what was summarised is not counted again."""
    turns = [past(number, "r" * 1000) for number in range(1, 11)]
    again = [*turns, summary(11, 6), *(past(number, "r" * 1000) for number in range(12, 18))]

    assert turns_to_summarise(turns) == 7
    assert turns_to_summarise(again) > 11


def test_what_is_summarised_has_all_of_it() -> None:
    """Goal, calls, and the results of the last call, which is told one turn later."""
    told = text_to_summarise([past(1), past(2, "eleven is too late"), past(3, "noon is free"), past(4)], 2)

    assert "find the price" in told and "eleven is too late" in told and "noon is free" in told
    assert told.count('Call: <data from="look">') == 2


def test_a_task_that_carries_on_is_told_its_goal() -> None:
    """The last call of the task before is answered, and what it did not learn is told."""
    done = record(step("t2.c0", "look", {}), StepStatus.COMPLETED, result={"price": 3})
    told = turns([past(1), past(2, "r1")], situation(1, text="now buy it", continues="run", records=(done,)))
    last = user(told[-1])

    assert "The next task:\nnow buy it" in last.text
    assert last.results[0].call_id == "id_2" and '{"price":3}' in last.results[0].text


def test_a_call_of_unknown_effect_is_told_as_such() -> None:
    """Nobody may repeat it because it looks refused."""
    doubt = fault("t2.c0").model_copy(update={"applied": "unknown"})
    failed = record(step("t2.c0", "look", {}), StepStatus.FAILED)
    told = turns([past(1), past(2)], situation(1, text="go on", continues="run", records=(failed,), faults=(doubt,)))

    assert "Nobody knows whether it happened" in user(told[-1]).results[0].text


def test_what_another_planner_proposed_is_told_as_calls() -> None:
    """A plan by hand or without a model becomes the calls that a model would have made."""
    plan = Proposed(proposal=NewSteps(steps=(step("a", "look", {"at": 1}), step("b", "look", {"at": 2}))))
    done = [record(step(id, "look", {}), StepStatus.COMPLETED, result=id) for id in ("a", "b")]
    told = turns([RecordedTurn("run", 0, 1, situation(1), plan)], situation(2, records=tuple(done)))

    assert isinstance(told[1], AssistantTurn) and [call.name for call in told[1].calls] == ["look", "look"]
    assert ['"a"' in user(told[2]).results[0].text, '"b"' in user(told[2]).results[1].text] == [True, True]


def test_each_call_of_a_refused_turn_is_told_why() -> None:
    """Its own reason, or that another call is to blame."""
    asked = AssistantTurn("", (ToolCall("x", "look", {}), ToolCall("y", "lok", {})))
    steps = NewSteps(steps=(step("t1.c0", "look", {}), step("t1.c1", "lok", {})))
    before = RecordedTurn(
        "run", 0, 1, situation(1), Proposed(proposal=steps), Exchange(UserTurn("do"), asked, StopReason.CALLS, Usage())
    )
    told = user(
        turns([before], situation(2, rejected=(Mistake(text="step 't1.c1': there is no kind 'lok'", step="t1.c1"),)))[
            -1
        ]
    )

    assert [result.is_error for result in told.results] == [True, True]
    assert "Not carried out" in told.results[0].text and "there is no kind 'lok'" in told.results[1].text


def test_an_empty_answer_is_told_as_one() -> None:
    """No provider takes a turn without words."""
    empty = Exchange(UserTurn("do"), AssistantTurn("  "), StopReason.DONE, Usage())
    before = RecordedTurn(
        "run", 0, 1, situation(1), Proposed(proposal=GiveUp(reason="?"), rejected=(Mistake(text="?"),)), empty
    )
    said, told = turns([before], situation(2, rejected=(Mistake(text="your answer was empty"),)))[1:]

    assert isinstance(said, AssistantTurn) and said.text.strip()
    assert "your answer was empty" in user(told).text


def test_what_was_undone_after_an_earlier_turn_is_told() -> None:
    """A task that is carried on may have been rolled back: no call of its last turn says so."""
    gone = record(step("t1.c0", "look", {}), StepStatus.UNDONE)
    told = user(turns([past(1), past(2, "r1")], news(1, text="go on", records=(gone,)))[-1])

    assert "these finished steps were undone, and what they did is gone: t1.c0." in told.text


@pytest.mark.parametrize(("effect", "in_doubt"), [(Effect.READ, False), (Effect.KEYED, True)])
def test_an_effect_that_was_cancelled_is_in_doubt(effect: Effect, in_doubt: bool) -> None:
    """It may have happened all the same, so the next task may not simply do it again."""
    cut = record(step("t2.c0", "pay", {}), StepStatus.CANCELLED, attempts=1).model_copy(update={"effect": effect})
    (result,) = user(turns([past(1), past(2, "r1")], news(1, text="go on", records=(cut,)))[-1]).results

    assert ("Nobody knows whether it happened" in result.text, result.is_error) == (in_doubt, True)
