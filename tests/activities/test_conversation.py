"""What a model is told of the turns before: unchanged, or summarised with what must stay word for word."""

from typing import Any

from pydantic import JsonValue

from activities.planning.conversation import NEVER_SUMMARISED, text_to_summarise, turns, turns_to_summarise
from activities.planning.planner import Exchange, RecordedTurn
from activities.providers.messages import AssistantTurn, StopReason, ToolCall, ToolResult, Turn, Usage, UserTurn
from tests.activities.situations import NOW, fault, record, seen, step
from workflows.account.records import StepRecord, StepStatus
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
    said = Exchange(UserTurn("all of it"), AssistantTurn(words), StopReason.DONE, Usage())
    return RecordedTurn(
        "run", 0, turn, situation(turn, compact=upto), Proposed(proposal=Answer(result=None)), said, upto=upto
    )


def user(turn: Turn) -> UserTurn:
    assert isinstance(turn, UserTurn)
    return turn


def news(turn: int, **more: Any) -> Situation:
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
    """With the goal before it, and a refusal that was told with the first turn that stays."""
    refusal = past(3, "taken: 14:30 is free", is_error=True)
    told = turns([past(1), past(2, "r1"), refusal, past(4, "r3"), summary(5, upto=2), past(6, "r5")], news(7))
    opening, said = user(told[0]), [turn for turn in told if isinstance(turn, AssistantTurn)]

    assert "The task:\nfind the price" in opening.text and "Eleven was too late." in opening.text
    assert "taken: 14:30 is free" in opening.text
    assert opening.results == () and "r1" not in str(told)
    assert [user(turn).results[0].call_id for turn in told[2::2]] == ["id_3", "id_5", "id_6"]
    assert [(turn.blocks, turn.follows_summary) for turn in said] == [*[(THOUGHT, True)] * 2, (THOUGHT, False)]

    before = [past(1), past(2), past(3), summary(4, 2), past(5), past(6), summary(7, 4, "All was dear.")]
    told = turns(before, news(8))

    assert "All was dear." in user(told[0]).text and "Eleven" not in str(told)
    assert [turn.calls[0].id for turn in told if isinstance(turn, AssistantTurn)] == ["id_5", "id_6"]


def test_a_summary_leaves_the_smaller_part() -> None:
    """The newest turns are never summarised; what is has goal, calls, and results."""
    alike = [past(number, "r" * 1000) for number in range(1, 11)]
    again = [*alike, summary(11, 6), *(past(number, "r" * 1000) for number in range(12, 18))]
    short = [past(turn, "r") for turn in range(1, NEVER_SUMMARISED + 1)]
    long = [*short, past(NEVER_SUMMARISED + 1, "r" * 100_000)]

    assert [turns_to_summarise(one) for one in (alike, short, long)] == [7, 0, 1]
    assert turns_to_summarise(again) > 11

    told = text_to_summarise([past(1), past(2, "eleven is too late"), past(3, "noon is free"), past(4)], 2)

    assert "find the price" in told and "eleven is too late" in told and "noon is free" in told
    assert told.count('Call: <data from="look">') == 2


def carried_on(*records: StepRecord, **more: Any) -> UserTurn:
    """What is told last to the model of a task that carries on after two turns."""
    carrying = situation(1, text="now buy it", continues="run", records=records, **more)
    return user(turns([past(1), past(2, "r1")], carrying)[-1])


def test_a_task_that_carries_on_is_told_its_goal() -> None:
    """The last call of the task before is answered, and what it did not learn is told, or what was rolled back.

    Nobody may repeat a call because it looks refused, nor an effect that was cancelled: it may have happened.
    """
    done = record(step("t2.c0", "look", {}), StepStatus.COMPLETED, result={"price": 3})
    doubt = fault("t2.c0").model_copy(update={"applied": "unknown"})
    cut = record(step("t2.c0", "pay", {}), StepStatus.CANCELLED, attempts=1)
    last = carried_on(done)
    unclear = [
        carried_on(record(step("t2.c0", "look", {}), StepStatus.FAILED), faults=(doubt,)),
        carried_on(cut.model_copy(update={"effect": Effect.KEYED})),
        carried_on(cut.model_copy(update={"effect": Effect.READ})),
    ]
    gone = carried_on(record(step("t1.c0", "look", {}), StepStatus.UNDONE))

    assert "The next task:\nnow buy it" in last.text
    assert last.results[0].call_id == "id_2" and '{"price":3}' in last.results[0].text
    assert [one.results[0].is_error for one in unclear] == [True] * 3
    assert ["Nobody knows whether it happened" in one.results[0].text for one in unclear] == [True, True, False]
    assert "these finished steps were undone, and what they did is gone: t1.c0." in gone.text


def test_what_another_planner_proposed_is_told_as_calls() -> None:
    """A plan by hand or without a model becomes the calls that a model would have made."""
    plan = Proposed(proposal=NewSteps(steps=(step("a", "look", {"at": 1}), step("b", "look", {"at": 2}))))
    done = [record(step(id, "look", {}), StepStatus.COMPLETED, result=id) for id in ("a", "b")]
    told = turns([RecordedTurn("run", 0, 1, situation(1), plan)], situation(2, records=tuple(done)))

    assert isinstance(told[1], AssistantTurn) and [call.name for call in told[1].calls] == ["look", "look"]
    assert ['"a"' in user(told[2]).results[0].text, '"b"' in user(told[2]).results[1].text] == [True, True]


def test_each_call_of_a_refused_turn_is_told_why() -> None:
    """Its own reason, or that another call is to blame; no provider takes a turn without words."""
    asked = AssistantTurn("", (ToolCall("x", "look", {}), ToolCall("y", "lok", {})))
    proposed = Proposed(proposal=NewSteps(steps=(step("t1.c0", "look", {}), step("t1.c1", "lok", {}))))
    mistake = Mistake(text="step 't1.c1': there is no kind 'lok'", step="t1.c1")
    exchange = Exchange(UserTurn("do"), asked, StopReason.CALLS, Usage())
    before = RecordedTurn("run", 0, 1, situation(1), proposed, exchange)
    told = user(turns([before], situation(2, rejected=(mistake,)))[-1])
    empty = Exchange(UserTurn("do"), AssistantTurn("  "), StopReason.DONE, Usage())
    nothing = Proposed(proposal=GiveUp(reason="?"), rejected=(Mistake(text="?"),))
    silent = RecordedTurn("run", 0, 1, situation(1), nothing, empty)
    said, why = turns([silent], situation(2, rejected=(Mistake(text="your answer was empty"),)))[1:]

    assert [result.is_error for result in told.results] == [True, True]
    assert "Not carried out" in told.results[0].text and "there is no kind 'lok'" in told.results[1].text
    assert isinstance(said, AssistantTurn) and said.text.strip()
    assert "your answer was empty" in user(why).text
