"""A person settles a call while a program makes it again: one of the two wins, in both databases."""

import os
import random
import signal
import threading
import time
from collections import Counter

from replan.effects import EffectRefused, Effects, OutcomeUnknown

ROUNDS = 12


def killed_call(store: str, who: str) -> None:
    """Begin a call in a process that is killed before its effect."""
    if (child := os.fork()) == 0:
        effects = Effects(store, session="race")

        @effects.unkeyed
        def pay(who: str) -> str:
            os.kill(os.getpid(), signal.SIGKILL)
            return who

        pay(who)
    os.waitpid(child, 0)


def test_what_a_person_settled_as_applied_is_not_made(store_url: str) -> None:
    """Whether the person or the program is quicker; and what the program has made is refused to the person."""
    effects, made = Effects(store_url, session="race"), list[str]()

    @effects.unkeyed(reconcile=lambda: None, settle=0.0)
    def pay(who: str) -> str:
        made.append(who)
        return "new"

    ends = Counter[tuple[str, str, int]]()
    for who in map(str, range(ROUNDS)):
        killed_call(store_url, who)
        [key] = [call.key for call in effects.calls() if call.arguments == {"who": who}]
        end = dict[str, str]()

        def program(who: str = who, end: dict[str, str] = end) -> None:
            try:
                end["program"] = pay(who)
            except OutcomeUnknown:
                end["program"] = "unknown"

        def person(key: str = key, end: dict[str, str] = end) -> None:
            time.sleep(random.random() / 50)  # noqa: S311  # to meet each moment of the call
            try:
                effects.settle(key, "applied", result="old")
                end["person"] = "settled"
            except EffectRefused as refused:
                end["person"] = refused.code

        both = [threading.Thread(target=program), threading.Thread(target=person)]
        for one in both:
            one.start()
        for one in both:
            one.join()
        ends[end["program"], end["person"], made.count(who)] += 1
    effects.close()

    allowed = {("new", "already_settled", 1), ("new", "still_running", 1), ("new", "changed", 1), ("old", "settled", 0)}
    assert ends.keys() <= allowed | {("unknown", "settled", 0)}
