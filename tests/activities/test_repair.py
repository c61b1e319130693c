"""What the offline planner proposes after a refusal."""

from datetime import date, time
from typing import Any

import pytest
from hypothesis import given, strategies as st
from pydantic import JsonValue

from tests.activities.situations import BOOK, FREE, TODAY, fault, gives_up, propose, record, refused, seen, step
from workflows.account.records import FaultRecord, Observation, StepStatus
from workflows.faults.fault import Code
from workflows.json_values import canonical
from workflows.people.requests import Word
from workflows.planning.situation import Situation
from workflows.plans.proposal import GiveUp, NewSteps, Question


async def new_plan(situation: Situation) -> NewSteps:
    proposal = await propose(situation)
    assert isinstance(proposal, NewSteps), proposal
    return proposal


async def question(situation: Situation) -> Question:
    proposal = await propose(situation)
    assert isinstance(proposal, Question), proposal
    return proposal


async def test_the_nearest_alternative_is_taken() -> None:
    """A refused step is proposed again with what is free, under a new id, in one sentence for people."""
    plan = await new_plan(refused())

    (again,) = plan.steps
    assert (again.id, again.title, again.args) == ("book-2", "team 14:30", {**BOOK, "at": "14:30"})
    assert plan.because == "book was rejected (conflict); nearest free alternative 14:30"


async def test_a_call_of_which_only_the_id_is_used_up_is_planned_again() -> None:
    """It was undone, or the id is that of another call: the free slot is taken under another id."""
    used_up = fault("book").model_copy(update={"by_id": True})
    again = await new_plan(refused(observations=[seen("book", {"free": ["14:00", "15:00"]})], faults=[used_up]))

    assert [(one.id, one.args) for one in again.steps] == [("book-2", BOOK)]
    assert again.because == "only the id book is used up"


@pytest.mark.parametrize(
    ("observations", "faults", "at"),
    [
        ([seen("book", {"free": ["13:30", "14:30"]})], [fault("book")], "14:30"),
        ([seen("book", {"free": ["13:30", "15:00"]})], [fault("book")], "13:30"),
        ([seen("book", {"free": ["15:00"]})], [fault("book", observed={"free": ["14:30"]})], "15:00"),
        ([seen("book", {"free": ["15:00"]}, stale=True)], [fault("book")], "15:00"),
        ([], [fault("book", observed={"free": ["15:30"]})], "15:30"),
        ([seen("other", {"free": ["14:30"]})], [fault("book", observed={"free": ["15:30"]})], "15:30"),
        ([seen("book", {"taken": ["14:30"], "open": ["16:00"]})], [fault("book")], "16:00"),
        ([seen("book", [{"id": 1, "at": "14:30"}, {"id": 2, "at": "13:00"}])], [fault("book")], "14:30"),
        ([seen("book", {"free": ["14:00", "16:00"]})], [fault("book")], "16:00"),
    ],
)
async def test_alternatives_come_from_the_newest_view(
    observations: list[Observation], faults: list[FaultRecord], at: str
) -> None:
    """The fresh observation goes before the fault's own; ties go to the later; what failed is never taken."""
    (again,) = (await new_plan(refused(observations=observations, faults=faults))).steps

    assert again.args["at"] == at


async def test_a_second_refusal_takes_the_next_alternative() -> None:
    """No call that failed in any revision is proposed again; when the day is full, another day is taken."""
    second = record(step("book-2", args={**BOOK, "at": "14:30"}), StepStatus.FAILED, revision=2)
    faults = (fault("book"), fault("book-2", revision=2))
    full: JsonValue = {"day": TODAY, "free": [], "days": ["2025-11-22", "2025-11-23"]}
    (again,) = (await new_plan(refused(second, faults=faults, observations=(seen("book-2", FREE),)))).steps
    (later,) = (await new_plan(refused(observations=[seen("book", full)]))).steps

    assert (again.id, again.args["at"]) == ("book-3", "15:00")
    assert later.args == {**BOOK, "day": "2025-11-22"}


async def test_two_steps_do_not_take_the_same_alternative() -> None:
    """One plan does not compete with itself: neither with another refused step, nor with what has not started."""
    twin, other = record(step("book-2"), "failed"), record(step("other", args={**BOOK, "at": "14:30"}), "pending")
    both = {"faults": (fault("book"), fault("book-2")), "observations": (seen("book", FREE), seen("book-2", FREE))}
    plans = [await new_plan(situation) for situation in (refused(twin, **both), refused(other))]

    assert [[(one.id, one.args["at"]) for one in plan.steps] for plan in plans] == [
        [("book-3", "14:30"), ("book-4", "15:00")],
        [("book-2", "15:00"), ("other", "14:30")],
    ]


async def test_a_planned_call_that_has_failed_elsewhere_is_changed_too() -> None:
    """A call that equals a failed one would be refused unseen."""
    steps = (await new_plan(refused(record(step("again"), StepStatus.PENDING)))).steps

    assert [one.id for one in steps] == ["book-2", "again"]
    assert len({canonical(one.args) for one in steps} | {canonical(BOOK)}) == 3


async def test_what_had_not_started_follows_with_its_needs_moved() -> None:
    """Later steps keep their ids and wait for the step that replaces the refused one; finished steps are kept."""
    args: dict[str, JsonValue] = {"expression": "it + 1", "it": {"$from": "book", "path": "id"}}
    after = step("sum", "calculate", args, needs=("price", "book"))
    price = record(step("price", "calculate", {"expression": "1+1"}), StepStatus.COMPLETED)
    (book, moved) = (await new_plan(refused(price, record(after, StepStatus.PENDING)))).steps

    changed = {"args": {**args, "it": {"$from": "book-2", "path": "id"}}, "needs": ("price", "book-2")}
    assert (book.id, moved) == ("book-2", after.model_copy(update=changed))


def failed(id: str, kind: str, args: dict[str, JsonValue], observed: JsonValue, code: Code, **more: Any) -> Situation:
    """A task whose only step was refused."""
    one, faults = record(step(id, kind, args), StepStatus.FAILED), (fault(id, code, observed),)
    return refused(**{"records": (one,), "faults": faults, "observations": (), **more})


def searching(**more: Any) -> Situation:
    """A task whose search found nothing."""
    observed: JsonValue = {"query": "refund zeppelin", "wider": ["refund", "zeppelins"], "skipped": ["x.md"]}
    return failed("search", "search", {"query": "refund zeppelin", "limit": 3}, observed, Code.NO_RESULTS, **more)


def sending(**more: Any) -> Situation:
    """A task whose own kind was refused."""
    observed: JsonValue = {"depots": ["south", "west"], "limit": 5}
    return failed("send", "send_parcel", {"weight": 7, "depot": "north"}, observed, Code.CONFLICT, **more)


async def test_a_wider_query_is_taken() -> None:
    """Text has no distance: the first offer is the best. Which depot an effect goes to is the user's choice."""
    plans = [await new_plan(searching(**more)) for more in ({}, {"may_ask": True})]

    assert [plan.steps[0].args for plan in plans] == [{"query": "refund", "limit": 3}] * 2
    assert plans[0].because == "search was rejected (no_results); wider alternative 'refund'"
    assert (await question(sending(may_ask=True))).text == "send: It is taken. Which depot instead of north?"


async def test_the_rules_know_nothing_of_the_kind() -> None:
    """A user's own tool is planned around in the same way, also in a hand-written plan."""
    (again,) = (await new_plan(sending())).steps

    assert (again.id, again.args) == ("send-2", {"weight": 7, "depot": "south"})


@pytest.mark.parametrize(
    ("observed", "code"),
    [(None, Code.INVALID_INPUT), ({"free": []}, Code.CONFLICT), ({"free": ["14:00"]}, Code.CONFLICT)],
)
async def test_without_an_alternative_the_planner_gives_up(observed: JsonValue, code: Code) -> None:
    """The reason is the fault's, and that nothing else was offered, or that the state could not be read."""
    reason = await gives_up(refused(faults=(fault("book", code, observed),), observations=()))
    unread = seen("book", None, stale=True).model_copy(update={"unread": "list_slots failed (timeout): It was late."})

    assert reason == f"book cannot be done ({code}): It is taken. Nothing that was seen offers an alternative."
    assert (await gives_up(refused(observations=(unread,)))).endswith(
        "The state could not be read again: list_slots failed (timeout): It was late."
    )
    down = refused(faults=(fault("book", Code.TIMEOUT),), down=("book_slot",))
    assert "book needs book_slot, which cannot be used any more (timeout)" in await gives_up(down)


async def test_a_rejected_alternative_gives_way_to_the_next() -> None:
    """The reasons name the step, and another offer is there; what no rule answers is given up with its reasons."""
    repeated = refused(rejected=({"text": "step 'book-2' repeats a call that failed", "step": "book-2"},))
    unanswered = refused(rejected=({"text": "1 steps, but only 0 tool calls are left"},))

    assert (await new_plan(repeated)).steps[0].args["at"] == "15:00"
    assert "1 steps, but only 0 tool calls are left" in await gives_up(unanswered)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.times().map(time.isoformat)
    | st.dates(min_value=date(1, 1, 1)).map(date.isoformat),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["free", "at", "name", "x"]), inner),
    max_leaves=12,
)  # fmt: skip


def choosing(*free: str, words: tuple[Word, ...] = (), **more: Any) -> Situation:
    """A task that waits for people; after 14:00 was refused, these times are free."""
    return refused(observations=(seen("book", {"free": [*free]}),), may_ask=True, words=words, **more)


async def test_which_of_two_equally_near_times_is_the_users_choice() -> None:
    """The nearest times come first; a single nearest time needs no question, nor does a task that does not wait."""
    asks = await question(choosing("09:30", "13:30", "14:30", "15:00"))
    nobody = refused(observations=(seen("book", {"free": ["13:30", "14:30"]}),))
    plans = [await new_plan(situation) for situation in (choosing("14:30", "15:00"), nobody)]

    assert asks.text == "book: It is taken. Which time instead of 14:00?"
    assert (asks.options, asks.free_text) == (("14:30", "13:30", "15:00", "09:30"), True)
    assert [plan.steps[0].args["at"] for plan in plans] == ["14:30", "14:30"]


async def test_the_reply_is_understood() -> None:
    """As it is offered, or as a task may have it; the new plan says who chose."""
    asks = await question(choosing("13:30", "14:30"))
    for reply in ("13:30", " 13:30 ", "1:30 pm", "13.30"):
        plan = await new_plan(choosing("13:30", "14:30", words=(Word(question=asks.text, text=reply),)))
        assert (plan.steps[0].args["at"], plan.steps[0].title) == ("13:30", "team 13:30")
        assert plan.because == "book was rejected (conflict); the user chose 13:30"


async def test_a_reply_that_cannot_be_used_is_asked_for_again() -> None:
    """With the reply; the next one counts."""
    free = [f"{hour:02}:{minute}" for hour in range(9, 16) for minute in ("00", "30") if (hour, minute) != (14, "00")]
    first = await question(choosing(*free))
    second = await question(choosing(*free, words=(Word(question=first.text, text="at noon or so"),)))
    words = (Word(question=first.text, text="at noon or so"), Word(question=second.text, text="noon"))
    plan = await new_plan(choosing(*free, words=words))

    assert len(first.options) == 10
    assert second.text == f"'at noon or so' cannot be taken. {first.text}"
    assert plan.steps[0].args["at"] == "12:00"


async def test_two_refused_bookings_are_two_questions() -> None:
    """The reply to one is not that to the other, and they do not get the same time."""
    twin = record(step("other"), StepStatus.FAILED)
    times: JsonValue = {"free": ["13:30", "14:30", "15:00"]}
    both = {"faults": (fault("book"), fault("other")), "observations": (seen("book", times), seen("other", times))}
    first = await question(refused(twin, may_ask=True, **both))
    words = (Word(question=first.text, text="14:30"),)
    (book, other) = (await new_plan(refused(twin, may_ask=True, words=words, **both))).steps

    assert first.text.startswith("book: ")
    assert [book.args["at"], other.args["at"]] == ["14:30", "13:30"]  # 15:00 is farther away


def misnamed(kind: str, args: dict[str, JsonValue], near: JsonValue, **more: Any) -> Situation:
    """A task that named something which does not exist, though others are spelt alike."""
    return failed("one", kind, args, {"near": near}, Code.NOT_FOUND, **{"may_ask": True, **more})


LAMPS: JsonValue = {"A-17": "Desk lamp", "A-18": "Wall lamp"}


@pytest.mark.parametrize("reply", ["A-17 (Desk lamp)", "a-17", "desk lamp"])
async def test_what_a_misspelt_name_means_is_asked(reply: str) -> None:
    """It is never guessed; the name, its words or both are understood."""
    buy: dict[str, JsonValue] = {"sku": "A-71", "quantity": 2, "at_most": "24.50"}
    asks = await question(misnamed("purchase", buy, LAMPS))
    plan = await new_plan(misnamed("purchase", buy, LAMPS, words=(Word(question=asks.text, text=reply),)))

    assert asks.text == "one: It is taken. Which sku did you mean instead of 'A-71'?"
    assert asks.options == ("A-17 (Desk lamp)", "A-18 (Wall lamp)")
    assert plan.steps[0].args == {**buy, "sku": "A-17"}
    assert plan.because == "one was rejected (not_found); the user meant 'A-17'"


async def test_a_name_that_nobody_offered_is_taken_too() -> None:
    """The user knows; only a name that failed already is asked for again."""
    gone: dict[str, JsonValue] = {"document": "returns"}
    asks = await question(misnamed("delete_document", gone, ["returns-contract"]))
    other, same = (Word(question=asks.text, text=text) for text in ("suppliers-minutes", "returns"))
    plan = await new_plan(misnamed("delete_document", gone, ["returns-contract"], words=(other,)))
    again = await question(misnamed("delete_document", gone, ["returns-contract"], words=(same,)))

    assert plan.steps[0].args == {"document": "suppliers-minutes"}
    assert again.text == f"'returns' cannot be taken. {asks.text}"


async def test_what_is_near_is_found_although_a_fresh_observation_does_not_say_it() -> None:
    """A list of all documents was read after the refusal, which had named those that are spelt alike."""
    listed = (seen("one", {"documents": [{"name": "b", "title": "B"}]}),)
    situation = misnamed("delete_document", {"document": "a"}, ["aa"], observations=listed)

    assert (await question(situation)).options == ("aa",)
    # without anybody to ask, it is given up with the names
    unasked = await gives_up(misnamed("get_price", {"sku": "A-71"}, LAMPS, may_ask=False))
    assert unasked.endswith("Spelt alike: A-17 (Desk lamp), A-18 (Wall lamp).")


@given(JSON, st.text(max_size=20))
async def test_no_observation_and_no_reply_breaks_a_replan(observed: JsonValue, reply: str) -> None:
    """Whatever a tool shows and a person types: a plan without the failed call, a question, or neither."""
    situation = refused(observations=(seen("book", observed),))
    first = await propose(situation.model_copy(update={"may_ask": True}))
    words = (Word(question=first.text, text=reply),) if isinstance(first, Question) else ()
    for more in ({}, {"may_ask": True, "words": words}):
        proposal = await propose(situation.model_copy(update=more))
        assert isinstance(proposal, GiveUp | NewSteps) or (isinstance(proposal, Question) and bool(more))
        assert not isinstance(proposal, NewSteps) or proposal.steps[0].args != BOOK
