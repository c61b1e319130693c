"""Which call is an earlier call once more, and which is another one."""

import pytest

from tests.effects.agents import Agents, keys

PAID = 'tell(pay, "a", "x")\n'


@pytest.mark.parametrize("ids", ['key="k"', 'run="r", call="c"'])
def test_the_same_key_or_ids_return_the_recorded_result(agents_of_both: Agents, ids: str) -> None:
    """At any age, in the same process and in another one, however the first one ended."""
    call = f'tell(pay, "a", "x", {ids})\n'
    first = agents_of_both.run(call + call + PAID.replace("x", "y"))
    second = agents_of_both.run(call)
    third = agents_of_both.run(call + "die()")

    returned = [line for line in first + second + third if line.startswith("returned")]
    assert returned == ["returned w1", "returned w1", "returned w2", "returned w1", "returned w1"]
    assert agents_of_both.happened() == ["pay(a, x)", "pay(a, y)"]


def test_the_last_call_of_a_killed_process_is_handed_out(agents: Agents) -> None:
    """It may not have seen the answer."""
    agents.run(PAID + "die()")

    assert agents.run(PAID) == ["said pay", "returned w1"]


def test_an_older_call_of_a_killed_process_is_doubtful(agents_of_both: Agents) -> None:
    """The process went on after it, so an equal call may be a new one, or the agent begins again."""
    agents_of_both.run(PAID + 'tell(mail, "a", "x")\ndie()')
    lines = agents_of_both.run(PAID + PAID)

    assert [line.split()[1] for line in lines] == ["DoubtfulCall", "DoubtfulCall"]
    assert len(set(keys(lines))) == 1
    assert agents_of_both.happened() == ["pay(a, x)", "mail(a, x)"]


def test_a_restart_from_the_beginning_gets_each_result_once(agents_of_both: Agents) -> None:
    """With `restarts=True`: two equal calls get their two results, and a third one is made."""
    agents_of_both.run(PAID + PAID + 'tell(pay, "b", "x")\ndie()')
    lines = agents_of_both.run(PAID + PAID + PAID, restarts=True)

    assert lines == ["said pay", "returned w1", "said pay", "returned w2", "returned w4"]


def test_an_equal_call_after_an_answer_is_made(agents: Agents) -> None:
    """In the process that got the answer, and after its orderly end."""
    assert agents.run(PAID + PAID) == ["returned w1", "returned w2"]
    assert agents.run(PAID) == ["returned w3"]


def test_two_keys_are_two_calls(agents: Agents) -> None:
    """Even if the first is unknown."""
    agents.run('befalls(dies="after")\ntell(pay, "a", "x", key="one")')

    assert agents.run('tell(pay, "a", "x", key="two")') == ["returned w2"]


@pytest.mark.parametrize(
    "earlier",
    [
        PAID + "die()",
        'befalls(dies="after")\n' + PAID,
        PAID + 'tell(mail, "a", "x")\ndie()',
        'befalls(error="lost answer")\n' + PAID,
    ],
    ids=["last", "stopped", "passed", "unknown"],
)
@pytest.mark.parametrize("restarts", [False, True])
def test_an_equal_call_never_gets_an_earlier_result_in_silence(agents: Agents, earlier: str, restarts: bool) -> None:
    """It is said, or asked, or made."""
    agents.run(earlier)
    lines = agents.run(PAID, restarts=restarts)

    got_earlier = lines[-1] == "returned w1"
    assert not got_earlier or "said pay" in lines
    assert agents.happened().count("pay(a, x)") == 1


REWORDED = 'tell(mail, "a", "in other words")\n'
"""`mail` declares whom (`authority`) and words (`content`)."""


@pytest.mark.parametrize(
    "earlier",
    [
        'befalls(dies="after")\ntell(mail, "a", "x")',
        'tell(mail, "a", "x")\ndie()',
        'befalls(error="lost answer")\ntell(pay, "a", "x")',
    ],
    ids=["stopped", "last", "unknown"],
)
def test_a_reworded_call_is_doubtful(agents: Agents, earlier: str) -> None:
    """A model writes the same message in other words, after a kill or a lost answer."""
    function = "pay" if "tell(pay" in earlier else "mail"
    agents.run(earlier)
    lines = agents.run(REWORDED.replace("mail", function))

    assert [line.split()[1] for line in lines] == ["DoubtfulCall"]
    assert agents.happened() == [f"{function}(a, x)"]


def test_a_reworded_call_to_somebody_else_is_made(agents: Agents) -> None:
    """What `authority` names differs."""
    agents.run('tell(mail, "a", "x")\ndie()')

    assert agents.run('tell(mail, "b", "in other words")') == ["returned w2"]


def test_a_reworded_call_is_made_if_the_first_was_not(agents: Agents) -> None:
    """`reconcile=` says so."""
    agents.run('befalls(dies="before")\ntell(mail, "a", "x")')

    assert agents.run(REWORDED) == ["returned w1"]
    assert agents.happened() == ["mail(a, in other words)"]


@pytest.mark.parametrize(("says", "expected"), [("same", "returned w1"), ("another", "returned w2")])
def test_a_person_says_same_or_another(agents: Agents, says: str, expected: str) -> None:
    """Then the call gets the earlier result, or is made, once."""
    agents.run('tell(mail, "a", "x")\ndie()')
    [key] = keys(agents.run(REWORDED))
    lines = agents.run(f'effects.settle("{key}", "{says}")\n{REWORDED}')

    assert lines[-1] == expected
    assert len(agents.happened()) == (1 if says == "same" else 2)


def test_what_a_person_says_holds_for_the_calls_before_the_question(agents: Agents) -> None:
    """A call that was made since then, and is unknown, may be the doubtful one, too."""
    agents.run('befalls(dies="before")\ntell(pay, "a", "x")')
    [first] = keys(agents.run('tell(pay, "a", "x")'))
    [doubt] = keys(agents.run('tell(pay, "a", "y")'))
    agents.run(f'effects.settle("{first}", "not-applied")\neffects.settle("{doubt}", "another")')
    agents.run('befalls(error="lost answer")\ntell(pay, "a", "x")')
    [again] = keys(agents.run('tell(pay, "a", "y")'))

    assert agents.happened() == ["pay(a, x)"]
    assert agents.run(f'effects.settle("{again}", "another")\ntell(pay, "a", "y")') == ["returned w2"]


def test_what_a_person_says_of_a_call_with_a_key_is_said_of_no_other(agents: Agents) -> None:
    """An equal call without the key is made for itself, and one with another key is asked about."""
    agents.run('befalls(dies="before")\ntell(pay, "a", "x")')
    [first] = keys(agents.run('tell(pay, "a", "x")'))
    [doubt, other] = keys(agents.run('tell(pay, "a", "y", key="k")\ntell(pay, "a", "y", key="l")'))
    agents.run(f'effects.settle("{first}", "not-applied")\neffects.settle("{doubt}", "another")')

    assert doubt != other
    assert agents.run('tell(pay, "a", "y")\ntell(pay, "a", "y", key="k")') == ["returned w1", "returned w2"]


def test_a_key_belongs_to_its_arguments(agents: Agents) -> None:
    """Nothing is called."""
    lines = agents.run('tell(pay, "a", "x", key="k")\ntell(pay, "a", "y", key="k")\ntell(pay, "b", "x", key="k")')

    assert [line.split()[1] for line in lines] == ["w1", "KeyConflict", "KeyConflict"]
    assert agents.happened() == ["pay(a, x)"]


def test_what_was_surely_not_applied_is_made(agents: Agents) -> None:
    """A call that the service refused before its effect, with the same key."""
    lines = agents.run("""
        befalls(error="refused")
        tell(pay, "a", "x", key="k")
        befalls()
        tell(pay, "a", "x", key="k")
    """)

    assert lines == ["raised Refused ", "returned w1"]


@pytest.mark.parametrize("function", ["charge", "mail"])
def test_a_call_after_an_unknown_one_is_told_whose_result_it_gets(agents: Agents, function: str) -> None:
    """A keyed call is repeated with the key of the unknown one, so the service may return the earlier result."""
    agents.run(f'befalls(error="lost answer", dies="after")\ntell({function}, "a", "x")')

    assert agents.run(f'tell({function}, "a", "x")') == [f"said {function}", "returned w1"]


def test_a_call_after_a_committed_transaction_is_told_whose_result_it_gets(agents: Agents) -> None:
    """The process was killed between the commit and the record of the result."""
    agents.run("""
        import sys
        def calls(frame, event, argument):
            if frame.f_code.co_name == "record":
                die()
        sys.settrace(calls)
        tell(move, "a", "x")
    """)

    assert agents.happened() == ["move(a, x)"]
    assert agents.run('tell(move, "a", "x")') == ["said move", "returned t1"]


DIES_UNTOLD = """
import sys
def calls(frame, event, argument):
    if frame.f_code.co_name == "_tell":
        die()
sys.settrace(calls)
"""


@pytest.mark.parametrize(
    ("first", "second"),
    [('key="k"', ""), ('run="r", call="c"', ""), ('key="k"', 'run="r", call="c"'), ('run="r", call="c"', 'key="k"')],
)
def test_a_transaction_for_two_calls_is_told_to_one_of_them(agents: Agents, first: str, second: str) -> None:
    """Two agents mean an equal call; the first is killed before its commit. Made again by its ids, it gets the result
    of the second, which was told: also if the second was killed once before that.
    """
    agents.run(f'befalls(dies="before")\ntell(move, "a", "x", {first})')
    agents.run(f'{DIES_UNTOLD}\ntell(move, "a", "x", {second})')
    again = agents.run(f'tell(move, "a", "x", {second})')

    assert again == ["said move", "returned t1"]
    assert agents.run(f'tell(move, "a", "x", {first})') == ["returned t1"]


@pytest.mark.parametrize(
    ("function", "first", "second"),
    [
        ("pay", "", DIES_UNTOLD),
        ("move", DIES_UNTOLD.replace("_tell", "record"), DIES_UNTOLD),
        ("charge", 'befalls(dies="after")', 'befalls(error="lost answer")'),
    ],
)
def test_a_call_that_was_taken_for_another_one_is_told_although_it_has_ids(
    agents: Agents, function: str, first: str, second: str
) -> None:
    """The process that was to be told got no result, or was killed before: its ids find the row from then on."""
    call = f'tell({function}, "a", "x", run="r", call="c")\n'
    agents.run(f'{first}\ntell({function}, "a", "x")\ndie()')
    agents.run(f"{second}\n{call}\ndie()")
    said, returned, *again = agents.run(call + call)

    assert said == f"said {function}"
    assert again == [returned]
    assert len(agents.happened()) == 1


def test_a_transaction_that_is_made_again_by_its_key_is_not_told(agents: Agents) -> None:
    """It is the same call: nothing was applied before."""
    call = 'tell(move, "a", "x", key="k", run="r", call="c")'
    agents.run(f'befalls(dies="before")\n{call}')

    assert agents.run(f"{call}\n{call}") == ["returned t1", "returned t1"]


SAID = ["said pay", "returned w1"]


@pytest.mark.parametrize(("ids", "again"), [('key="k"', SAID), ('run="r", call="c"', ["returned w1"])])
def test_a_call_that_is_taken_for_one_without_ids_is_found_by_its_own(
    agents: Agents, ids: str, again: list[str]
) -> None:
    """The first process gave no ids; the second one did, and ended in order; so does the third.

    With a key it is said each time: a process that was killed before it was told would have kept it for itself.
    """
    agents.run(PAID + "die()")
    second = agents.run(f'tell(pay, "a", "x", {ids})')
    third = agents.run(f'tell(pay, "a", "x", {ids})')

    assert (second, third) == (SAID, again)


def test_a_call_that_was_surely_not_applied_hides_no_other_one(agents: Agents) -> None:
    """The same ids once belonged to a call that was refused; an equal call since then may have been applied."""
    agents.run('befalls(error="refused")\ntell(mail, "a", "x", run="r", call="c")')
    agents.run('befalls(dies="after")\ntell(mail, "a", "x")')

    assert agents.run('tell(mail, "a", "x", run="r", call="c")') == ["said mail", "returned w1"]
