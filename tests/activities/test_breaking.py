"""`--break KIND=FAULT[:N]`: what is no break is one sentence with its remedy, and none shows what could not be."""

import os
import signal
import subprocess
import sys

import pytest

from activities.boundary.failpoints import BadBreak, Failpoint, FaultInjection
from tests.gate import sampled
from tests.processes import ROOT
from workflows.faults.fault import Code
from workflows.plans.catalogue import CompanionSpec, Effect, ToolSpec

SPECS = {
    "weather": ToolSpec(kind="weather", effect=Effect.READ),
    "save": ToolSpec(kind="save", effect=Effect.IDEMPOTENT),
    "book": ToolSpec(kind="book", effect=Effect.UNKEYED),
    "pay": ToolSpec(kind="pay", effect=Effect.UNKEYED, reconcile=CompanionSpec(kind="weather")),
}
WRONG = {
    "weather": "--break weather: write KIND=FAULT or KIND=FAULT:TIMES, e.g. weather=503:2.",
    "": "--break : write KIND=FAULT or KIND=FAULT:TIMES, e.g. search=503:2.",
    "wether=503": "--break wether=503: there is no kind 'wether': did you mean weather?",
    "nope=503": "--break nope=503: there is no kind 'nope': there are book, compact, pay, plan,",
    "weather=503:0": "--break weather=503:0: '0' is no number of times: write weather=503:1.",
    "weather=503:": "--break weather=503:: '' is no number of times: write weather=503:1.",
    "weather=503:-1": "'-1' is no number of times",
    "weather=503:two": "'two' is no number of times",
    "weather=conflit": "there is no fault 'conflit': did you mean conflict?: use an HTTP status or lost, 429,",
    "weather=": "there is no fault '': use an HTTP status",
    "weather=200": "there is no fault '200'",
    "book=lost": "book is unkeyed and has no reconcile, so the outcome of the call would stay unknown",
    "book=worker_lost:1": "book is unkeyed and has no reconcile",
    "book=die": "no failpoint '': write die@ and one of before_claim, after_claim, before_commit, after_commit.",
    "book=freeze@before_comit:1": "there is no failpoint 'before_comit': write freeze@ and one of before_claim,",
    "book=die@after_claim:0": "'0' is no number of times: write book=die@after_claim:1.",
}


def test_what_is_no_break_is_one_sentence() -> None:
    """A worker says at its start what to write instead; a second break of a kind would silently replace the first."""
    wrong = []
    for wanted, words in WRONG.items():
        with pytest.raises(BadBreak) as refused:
            FaultInjection([wanted], SPECS)
        if words not in str(refused.value):
            wrong.append((wanted, str(refused.value)))

    assert wrong == []
    with pytest.raises(BadBreak, match="weather is broken already: give each kind one --break"):
        FaultInjection(["weather=503:1", "weather=409:1"], SPECS)


SHOWN = [
    ("weather", "worker_lost", Failpoint.BEFORE_CLAIM),
    ("save", "worker_lost", Failpoint.BEFORE_CLAIM),
    ("pay", "worker_lost", Failpoint.BEFORE_CLAIM),
    ("pay", "lost", Failpoint.AFTER_COMMIT),
]


def test_a_fault_can_be_shown_where_a_real_one_has_an_end() -> None:
    """A kind that may be called twice is called again, and an unkeyed one with a reconcile finds out what it did."""
    for kind, name, point in SHOWN:
        fault = FaultInjection([f"{kind}={name}:1"], SPECS).fault(kind, point)
        assert fault is not None, kind
        assert name == "lost" or fault.code is Code.WORKER_LOST
    twice = FaultInjection(["weather=503:2"], SPECS)
    assert [twice.fault("weather", Failpoint.BEFORE_CLAIM) is not None for _ in range(3)] == [True, True, False]


SCRIPT = """
import sys
from activities.boundary.failpoints import Failpoint, FaultInjection
from workflows.plans.catalogue import Effect, ToolSpec
breaks = FaultInjection([sys.argv[1]], {"book": ToolSpec(kind="book", effect=Effect.UNKEYED)})
for point in Failpoint:
    print(point, flush=True)
    breaks.stop("book", point)
"""


@pytest.mark.parametrize("point", sampled({str(point): [point] for point in Failpoint}, Failpoint.AFTER_CLAIM))
def test_a_worker_dies_where_it_was_told(point: Failpoint) -> None:
    """SIGKILL to itself: nothing after the point runs, not even a `finally`."""
    command = [sys.executable, "-c", SCRIPT, f"book=die@{point}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)

    assert (done.returncode, done.stdout.split()) == (-signal.SIGKILL, [*Failpoint][: [*Failpoint].index(point) + 1])


def test_a_frozen_worker_goes_on_from_the_same_point() -> None:
    """SIGSTOP to itself, and after SIGCONT all the rest, once."""
    command = [sys.executable, "-c", SCRIPT, f"book=freeze@{Failpoint.AFTER_CLAIM}:1"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        process.send_signal(signal.SIGCONT)
        output, _ = process.communicate(timeout=60)

    assert os.WIFSTOPPED(status)
    assert (process.returncode, output.split()) == (0, [*Failpoint])
