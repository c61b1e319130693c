"""Grants: what a task may plan once it has read text that anybody may have written."""

from collections.abc import Sequence

import pytest

from workflows.account.task import Remains, Task
from workflows.plans.catalogue import Effect, ToolSpec
from workflows.plans.guards import Grants, refusal
from workflows.plans.proposal import Step

PAGE = ToolSpec(kind="page", effect=Effect.READ, untrusted=True)
SPECS = {
    "page": PAGE,
    "look": ToolSpec(kind="look", effect=Effect.READ, fallback="store"),
    "store": ToolSpec(kind="store", effect=Effect.IDEMPOTENT),
    "book": ToolSpec(kind="book", effect=Effect.KEYED, fallback="call_in", undo=None),
    "call_in": ToolSpec(kind="call_in", effect=Effect.UNKEYED),
    "buy": ToolSpec(kind="buy", effect=Effect.TRANSACTIONAL),
}


def tainted(*planned: str, specs: dict[str, ToolSpec] | None = None) -> Grants:
    """The grants of a task that made this plan, and then read a page."""
    grants = Grants()
    grants.plan(planned, specs or SPECS)
    grants.begin(PAGE)
    return grants


CASES: list[tuple[str, Sequence[str], Sequence[str], Sequence[str]]] = [
    ("nothing was planned", [], [], ["store", "book", "call_in", "buy"]),
    ("what was planned stays", ["page", "buy"], [], ["store", "book", "call_in"]),
    ("and with it what may take over from it", ["book"], [], ["store", "buy"]),
    ("also from a read", ["look"], [], ["book", "call_in", "buy"]),
    ("what was named at the start stays", [], ["buy", "store"], ["book", "call_in"]),
    ("a kind that is not there grants nothing", ["nothing"], ["none"], ["store", "book", "call_in", "buy"]),
]


@pytest.mark.parametrize(
    ("planned", "named", "withheld"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_what_nobody_named_in_time_is_withheld(
    planned: Sequence[str], named: Sequence[str], withheld: Sequence[str]
) -> None:
    """Every kind that changes the world, and no read."""
    assert tainted(*planned).withheld(SPECS.values(), named) == withheld


def test_nothing_is_withheld_before_such_text_was_read() -> None:
    """Reading what the task's own systems say changes nothing."""
    grants = Grants()
    grants.begin(SPECS["look"])

    assert grants.withheld(SPECS.values(), ()) == []


def test_a_plan_that_comes_too_late_grants_nothing() -> None:
    """Else the text would only have to ask twice."""
    grants = tainted()
    grants.plan(["buy"], SPECS)

    assert grants.withholds(SPECS["buy"], ())


def test_what_is_trusted_does_not_wash_a_task_clean() -> None:
    """What was read once stays in what the planner knows."""
    grants = tainted()
    grants.begin(SPECS["look"])

    assert grants.withholds(SPECS["buy"], ())


def test_fallbacks_that_lead_back_end() -> None:
    """A worker refuses such a circle, a history may hold it."""
    specs = {
        "a": ToolSpec(kind="a", effect=Effect.KEYED, fallback="b"),
        "b": ToolSpec(kind="b", effect=Effect.KEYED, fallback="a"),
    }

    assert tainted("a", specs=specs).kinds == ["a", "b"]


BEGUN = [
    (None, None, False, False),
    ("run", None, True, False),
    ("run", None, False, True),
    ("run", Remains(is_tainted=False), True, False),
    ("run", Remains(is_tainted=False), False, True),
    ("run", Remains(is_tainted=True), True, True),
]


@pytest.mark.parametrize(("continues", "remains", "is_clean", "tainted"), BEGUN)
def test_a_task_that_carries_a_conversation_on_has_read_what_was_read_there(
    continues: str | None, remains: Remains | None, is_clean: bool, tainted: bool
) -> None:
    """Unless both the store and the end of the task before say that there was nothing."""
    assert Task(text="any", continues=continues, remains=remains).is_tainted(is_clean) is tainted


def test_a_hand_written_plan_names_its_kinds() -> None:
    """Whoever wrote it is whoever gave the task."""
    task = Task(text="any", plan=(Step(id="a", kind="book"),), allow=("buy",))

    assert task.named == {"book", "buy"}


def test_the_refusal_says_what_may_be_done() -> None:
    """To a model, and to the person who reads it at the end of the task."""
    assert "without it, or ask the user" in refusal("buy") and "(--allow buy)" in refusal("buy")
