"""Which call is an earlier call once more, and which is another one."""

import pytest

from tests.effects.agents import DIES, DIES_AFTER, DIES_BEFORE, LOST, MAILED, PAID, REFUSED, Agents, Run, Story, keys

SAID, RETURNED, DOUBTFUL = ["said pay", "returned w1"], ["returned w1"], ["raised DoubtfulCall"]
MADE = ["returned w2"]


@pytest.mark.parametrize("ids", ['key="k"', 'run="r", call="c"'])
def test_the_same_key_or_ids_return_the_recorded_result(agents_of_both: Agents, ids: str) -> None:
    """At any age, in the same process and in another one, however the first one ended."""
    call = f'tell(pay, "a", "x", {ids})\n'
    first = Run(call + call + PAID.replace("x", "y"), [*RETURNED, *RETURNED, *MADE])
    runs = [first, Run(call, RETURNED), Run(call + DIES, [*RETURNED, "killed"])]

    agents_of_both.play((runs, ["pay(a, x)", "pay(a, y)"]))


def test_an_older_call_of_a_killed_process_is_doubtful(agents_of_both: Agents) -> None:
    """The process went on after it, so an equal call may be a new one, or the agent begins again."""
    agents_of_both.run(PAID + MAILED + DIES)
    lines = agents_of_both.run(PAID + PAID)

    assert [line.split()[1] for line in lines] == ["DoubtfulCall", "DoubtfulCall"]
    assert len(set(keys(lines))) == 1
    assert agents_of_both.happened() == ["pay(a, x)", "mail(a, x)"]


def test_a_restart_from_the_beginning_gets_each_result_once(agents_of_both: Agents) -> None:
    """With `restarts=True`: two equal calls get their two results, and a third one is made."""
    again = Run(PAID * 3, ["said pay", "returned w1", "said pay", "returned w2", "returned w4"], {"restarts": True})

    agents_of_both.play(([Run(PAID + PAID + 'tell(pay, "b", "x")\n' + DIES), again], 4))


EQUAL: dict[str, Story] = {
    "the last call of a killed process is handed out": ([Run(PAID + DIES), Run(PAID, SAID)], 1),
    "an equal call after an answer is made, in its process and after an orderly end": (
        [Run(PAID + PAID, ["returned w1", "returned w2"]), Run(PAID, ["returned w3"])],
        3,
    ),
    "two keys are two calls, even if the first is unknown": (
        [Run(f'{DIES_AFTER}tell(pay, "a", "x", key="one")'), Run('tell(pay, "a", "x", key="two")', MADE)],
        2,
    ),
    "a key belongs to its arguments": (
        [
            Run(
                'tell(pay, "a", "x", key="k")\ntell(pay, "a", "y", key="k")\ntell(pay, "b", "x", key="k")',
                ["returned w1", "raised KeyConflict", "raised KeyConflict"],
            )
        ],
        ["pay(a, x)"],
    ),
    "what the service refused before its effect is made, with the same key": (
        [
            Run(
                f'{REFUSED}tell(pay, "a", "x", key="k")\nbefalls()\ntell(pay, "a", "x", key="k")',
                ["raised Refused", *RETURNED],
            )
        ],
        1,
    ),
    "a call that was surely not applied hides no other one with its ids": (
        [
            Run(f'{REFUSED}tell(mail, "a", "x", run="r", call="c")'),
            Run(DIES_AFTER + MAILED),
            Run('tell(mail, "a", "x", run="r", call="c")', ["said mail", "returned w1"]),
        ],
        1,
    ),
}


@pytest.mark.parametrize("story", EQUAL.values(), ids=EQUAL)
def test_an_equal_call_is_handed_out_or_made(agents: Agents, story: Story) -> None:
    """By its key, by the end of its process, and by what became of the earlier one."""
    agents.play(story)


EARLIER = {"last": PAID + DIES, "stopped": DIES_AFTER + PAID, "passed": PAID + MAILED + DIES, "unknown": LOST + PAID}


@pytest.mark.parametrize("earlier", EARLIER.values(), ids=EARLIER)
@pytest.mark.parametrize("restarts", [False, True])
def test_an_equal_call_never_gets_an_earlier_result_in_silence(agents: Agents, earlier: str, restarts: bool) -> None:
    """It is said, or asked, or made."""
    agents.run(earlier)
    lines = agents.run(PAID, restarts=restarts)

    assert lines[-1] != "returned w1" or "said pay" in lines
    assert agents.happened().count("pay(a, x)") == 1


ANOTHER = 'tell(mail, "a", "in other words")\n'
"""`mail` declares whom (`authority`) and words (`content`)."""
ASKED = [Run(MAILED + DIES), Run(ANOTHER, DOUBTFUL)]
REWORDED: dict[str, Story] = {
    "of a stopped one is doubtful": ([Run(DIES_AFTER + MAILED), Run(ANOTHER, DOUBTFUL)], ["mail(a, x)"]),
    "of the last one is doubtful": (ASKED, ["mail(a, x)"]),
    "of an unknown one is doubtful": ([Run(LOST + PAID), Run(ANOTHER.replace("mail", "pay"), DOUBTFUL)], ["pay(a, x)"]),
    "to somebody else is made": ([Run(MAILED + DIES), Run('tell(mail, "b", "in other words")', MADE)], 2),
    "is made if reconcile says that the first was not": (
        [Run(DIES_BEFORE + MAILED), Run(ANOTHER, RETURNED)],
        ["mail(a, in other words)"],
    ),
    "that a person calls the same gets the earlier result": (
        [*ASKED, Run(f'effects.settle("KEY0", "same")\n{ANOTHER}', ["said mail", "returned w1"])],
        1,
    ),
    "that a person calls another one is made": (
        [*ASKED, Run(f'effects.settle("KEY0", "another")\n{ANOTHER}', MADE)],
        2,
    ),
}


@pytest.mark.parametrize("story", REWORDED.values(), ids=REWORDED)
def test_a_reworded_call(agents: Agents, story: Story) -> None:
    """A model writes the same message in other words, after a kill or a lost answer."""
    agents.play(story)


def test_what_a_person_says_holds_for_the_calls_before_the_question(agents: Agents) -> None:
    """A call that was made since then, and is unknown, may be the doubtful one, too."""
    reworded = 'tell(pay, "a", "y")\n'
    runs = [
        Run(DIES_BEFORE + PAID),
        Run(PAID, ["raised OutcomeUnknown"]),
        Run(reworded, DOUBTFUL),
        Run('effects.settle("KEY0", "not-applied")\neffects.settle("KEY1", "another")'),
        Run(LOST + PAID, ["raised OutcomeUnknown"]),
        Run(reworded, DOUBTFUL),
    ]

    agents.play((runs, ["pay(a, x)"]))
    [again] = keys(agents.run(reworded))
    assert agents.run(f'effects.settle("{again}", "another")\n{reworded}') == ["returned w2"]


def test_what_a_person_says_of_a_call_with_a_key_is_said_of_no_other(agents: Agents) -> None:
    """An equal call without the key is made for itself, and one with another key is asked about."""
    runs = [
        Run(DIES_BEFORE + PAID),
        Run(PAID, ["raised OutcomeUnknown"]),
        Run('tell(pay, "a", "y", key="k")\ntell(pay, "a", "y", key="l")', DOUBTFUL * 2),
        Run('assert "KEY1" != "KEY2"\neffects.settle("KEY0", "not-applied")\neffects.settle("KEY1", "another")', []),
        Run('tell(pay, "a", "y")\ntell(pay, "a", "y", key="k")', ["returned w1", "returned w2"]),
    ]

    agents.play((runs, 2))


DIES_UNTOLD = """
import sys
def calls(frame, event, argument):
    if frame.f_code.co_name == "_tell":
        die()
sys.settrace(calls)
"""
DIES_UNRECORDED = DIES_UNTOLD.replace("_tell", "record")
LOST_AND_DIES = 'befalls(error="lost answer", dies="after")\n'
CHARGED, MOVED = 'tell(charge, "a", "x")\n', 'tell(move, "a", "x")\n'
BY_KEY = 'tell(move, "a", "x", key="k", run="r", call="c")\n'
TOLD: dict[str, Story] = {
    "after an unknown keyed one, whose key the service may know": (
        [Run(LOST_AND_DIES + CHARGED), Run(CHARGED, ["said charge", "returned w1"])],
        1,
    ),
    "after an unknown one that reconcile finds": (
        [Run(LOST_AND_DIES + MAILED), Run(MAILED, ["said mail", "returned w1"])],
        1,
    ),
    "after a committed transaction that was not recorded": (
        [Run(DIES_UNRECORDED + MOVED), Run(MOVED, ["said move", "returned t1"])],
        ["move(a, x)"],
    ),
    "but not of a transaction that is made again by its key": (
        [Run(DIES_BEFORE + BY_KEY), Run(BY_KEY + BY_KEY, ["returned t1", "returned t1"])],
        1,
    ),
}


@pytest.mark.parametrize("story", TOLD.values(), ids=TOLD)
def test_a_call_is_told_whose_result_it_gets(agents: Agents, story: Story) -> None:
    """Where its process was killed before the answer was recorded."""
    agents.play(story)


KEY, IDS = 'key="k"', 'run="r", call="c"'


@pytest.mark.parametrize(("first", "second"), [(KEY, ""), (IDS, ""), (KEY, IDS), (IDS, KEY)])
def test_a_transaction_for_two_calls_is_told_to_one_of_them(agents: Agents, first: str, second: str) -> None:
    """Two agents mean an equal call; the first is killed before its commit. Made again by its ids, it gets the result
    of the second, which was told: also if the second was killed once before that.
    """
    one, other = (f'tell(move, "a", "x", {ids})' for ids in (first, second))
    told = Run(other, ["said move", "returned t1"])

    agents.play(([Run(DIES_BEFORE + one), Run(f"{DIES_UNTOLD}\n{other}"), told, Run(one, ["returned t1"])], 1))


@pytest.mark.parametrize(
    ("function", "first", "second"),
    [("pay", "", DIES_UNTOLD), ("move", DIES_UNRECORDED, DIES_UNTOLD), ("charge", DIES_AFTER, LOST)],
)
def test_a_call_that_was_taken_for_another_one_is_told_although_it_has_ids(
    agents: Agents, function: str, first: str, second: str
) -> None:
    """The process that was to be told got no result, or was killed before: its ids find the row from then on."""
    call = f'tell({function}, "a", "x", run="r", call="c")\n'
    agents.run(f'{first}\ntell({function}, "a", "x")\n{DIES}')
    agents.run(f"{second}\n{call}\n{DIES}")
    said, returned, *again = agents.run(call + call)

    assert (said, again, len(agents.happened())) == (f"said {function}", [returned], 1)


@pytest.mark.parametrize(("ids", "again"), [(KEY, SAID), (IDS, RETURNED)])
def test_a_call_that_is_taken_for_one_without_ids_is_found_by_its_own(
    agents: Agents, ids: str, again: list[str]
) -> None:
    """The first process gave no ids; the second one did, and ended in order; so does the third.

    With a key it is said each time: a process that was killed before it was told would have kept it for itself.
    """
    call = f'tell(pay, "a", "x", {ids})'

    agents.play(([Run(PAID + DIES), Run(call, SAID), Run(call, again)], 1))
