"""`--break KIND=FAULT[:N]`: what is no break is one sentence with its remedy, and none shows what could not be."""

import pytest

from activities.breaking import BadBreak, Breaks
from workflows.catalogue import Effect, ToolSpec
from workflows.faults import Code

SPECS = {
    "weather": ToolSpec(kind="weather", effect=Effect.READ),
    "save": ToolSpec(kind="save", effect=Effect.IDEMPOTENT),
    "book": ToolSpec(kind="book", effect=Effect.UNKEYED),
}
WRONG = {
    "weather": "--break weather: write KIND=FAULT or KIND=FAULT:TIMES, e.g. weather=503:2.",
    "": "--break : write KIND=FAULT or KIND=FAULT:TIMES, e.g. search=503:2.",
    "wether=503": "--break wether=503: there is no kind 'wether': did you mean weather?",
    "nope=503": "--break nope=503: there is no kind 'nope': there are book, save, weather.",
    "weather=503:0": "--break weather=503:0: '0' is no number of times: write weather=503:1.",
    "weather=503:": "--break weather=503:: '' is no number of times: write weather=503:1.",
    "weather=503:-1": "'-1' is no number of times",
    "weather=503:two": "'two' is no number of times",
    "weather=conflit": "there is no fault 'conflit': did you mean conflict?: use an HTTP status or lost, 429,",
    "weather=": "there is no fault '': use an HTTP status",
    "weather=200": "there is no fault '200'",
    "book=lost": "book is unkeyed, and after that nobody could say whether its effect happened: use",
    "book=worker_lost:1": "book is unkeyed, and after that nobody could say whether its effect happened",
}


@pytest.mark.parametrize(("wanted", "words"), WRONG.items(), ids=WRONG)
def test_what_is_no_break_is_one_sentence(wanted: str, words: str) -> None:
    """A worker says at its start what to write instead."""
    with pytest.raises(BadBreak) as wrong:
        Breaks([wanted], SPECS)

    assert words in str(wrong.value)


def test_a_kind_is_broken_in_one_way() -> None:
    """A second `--break` of a kind would silently take the first one's place."""
    with pytest.raises(BadBreak, match="weather is broken already: give each kind one --break"):
        Breaks(["weather=503:1", "weather=409:1"], SPECS)


@pytest.mark.parametrize("kind", ["weather", "save"])
def test_a_lost_worker_can_be_shown_where_a_real_one_is_retried(kind: str) -> None:
    """A kind that may be called twice meets it before the call, and a real one is called again as well."""
    fault = Breaks([f"{kind}=worker_lost:1"], SPECS).next(kind, after=False)

    assert fault is not None and fault.code is Code.WORKER_LOST


def test_a_break_happens_as_often_as_it_says() -> None:
    """Twice, and not once more."""
    breaks = Breaks(["weather=503:2"], SPECS)

    assert [breaks.next("weather", after=False) is not None for _ in range(3)] == [True, True, False]
