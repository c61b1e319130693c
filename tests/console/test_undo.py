"""`undo`, `cancel --undo` and `start --on-escalation`: what a task did is taken back, once, and what stays is named."""

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from runtime.dev_server import DevServer
from tests.console.rollback import Rollbacks, document
from tests.console.terminal import Terminal, starter
from tests.processes import ROOT

ALL = ("note", "deposit", "send", "shout", "put")
"""One step of each effect; each has an undo."""
BACK = ["drop put", "whisper shout", "recall send", "withdraw 1", "remove 1"]
"""What undoes them, the newest first."""


@pytest.fixture
def desk(server: DevServer, tmp_path: Path) -> Rollbacks:
    """Commands and worker processes."""
    return Rollbacks(server.address, tmp_path)


@pytest.fixture(scope="module")
def worked(server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rollbacks]:
    """The same with a worker that runs, for all tests that leave it alive."""
    desk = Rollbacks(server.address, tmp_path_factory.mktemp("served"))
    with desk.one():
        yield desk


@pytest.fixture
def served(worked: Rollbacks) -> Rollbacks:
    """The same when nothing has happened yet."""
    worked.clear()
    return worked


def test_every_effect_is_undone_once_however_often_it_is_wanted(served: Rollbacks) -> None:
    """Rows in the store and in the bank, letters, shouts, files: the newest first; then nothing is called."""
    task = served.run_task(*ALL)
    first, calls = served.starter("undo", task), served.calls()[-5:]
    made = len(served.calls())
    second, document_of_third = served.starter("undo", task), document(served.starter("undo", task, "--json"))

    assert (first.returncode, calls, served.rows()) == (0, BACK, 0)
    assert "  ↶ put (put) undone with drop" in first.stdout and f"5 of 5 effects of {task} undone." in first.stdout
    assert (second.returncode, len(served.calls())) == (0, made)
    assert second.stdout.startswith(f"{task} is already undone: 5 effects, at 20")
    assert (document_of_third["undone"], document_of_third["already"], len(document_of_third["undo"])) == (
        True,
        True,
        5,
    )


def test_what_cannot_be_undone_is_named(served: Rollbacks) -> None:
    """No undo, and nobody knows: the exit code says that a person has to look, and what can be undone is."""
    task = served.run_task("note", "engrave", "shout:lost")
    undone = served.starter("undo", task, "--json")
    told = document(undone)

    assert (undone.returncode, told["undone"], served.rows()) == (3, False, 0)
    assert [(one["step_id"], one["done"]) for one in told["undo"]] == [
        ("shout", False),
        ("engrave", False),
        ("note", True),
    ]
    assert "nobody knows whether it was applied" in told["undo"][0]["reason"]


@pytest.mark.full
def test_what_an_earlier_undo_has_undone_is_not_called_again(served: Rollbacks) -> None:
    """Only what stayed is tried once more; both are listed, as they were."""
    task = served.run_task("note", "put", "engrave")
    first = served.starter("undo", task, "--json")
    made = served.calls()
    second = served.starter("undo", task, "--json")

    assert (first.returncode, made[-2:]) == (3, ["drop put", "remove 1"])
    assert (second.returncode, served.calls()) == (3, made)
    undone = [{one["step_id"]: one["done"] for one in document(done)["undo"]} for done in (first, second)]
    assert undone == [{"engrave": False, "put": True, "note": True}] * 2


@pytest.mark.full
def test_a_thread_that_outlived_its_task_is_named_and_its_end_is_known(served: Rollbacks) -> None:
    """Past its limit it is for a person: `undo` and `effects` name it, and `effects` what it came to in the end."""
    with served.hanging():
        task = served.run_task("note", "ponder")
        undone, listed = served.starter("undo", task), served.starter("effects", task)
    until = time.monotonic() + 40
    while "ponder  ponder (unkeyed)  applied" not in served.starter("effects", task).stdout:
        assert time.monotonic() < until

    assert (undone.returncode, served.rows()) == (3, 0)
    assert "ponder (ponder) stays: nobody knows" in undone.stdout and "was still running" in undone.stdout
    assert "ponder  ponder (unkeyed)  outcome unknown" in listed.stdout


@pytest.mark.full
def test_a_worker_may_be_killed_in_the_middle(desk: Rollbacks) -> None:
    """Each effect is undone once all the same, and `undo` a second time follows the rollback that runs already."""
    with desk.one():
        task = desk.run_task(*ALL)
    with desk.hanging(), desk.one() as doomed:
        first = threading.Thread(target=desk.starter, args=("undo", task))
        first.start()
        desk.called("recall send")
        doomed.kill()
    with desk.one():
        second = desk.starter("undo", task, "--json")
    first.join()
    recalls = [line for line in (desk.folder / "calls").read_text().splitlines() if line.startswith("recall")]

    assert (second.returncode, document(second)["undone"], desk.rows()) == (0, True, 0)
    assert len(set(recalls)) == 1
    assert [desk.calls().count(one) for one in BACK if one != "recall send"] == [1, 1, 1, 1]


def test_a_running_task_is_not_undone_but_can_be_cancelled_so(served: Rollbacks) -> None:
    """`undo` names `cancel --undo`, which ends it as cancelled with everything taken back."""
    task = served.run_task("note", "linger", options=("--detach",))
    served.called("linger")
    refused = served.starter("undo", task, "--json")
    asked = served.starter("cancel", task, "--undo", "--json")
    ended = served.starter("show", task, "--follow", "--json")

    assert (refused.returncode, document(refused)["error"]["code"]) == (1, "still_running")
    assert f"cancel {task} --undo" in document(refused)["error"]["remedy"]
    told: dict[str, object] = {"cancel_requested": True, "undo": True, "failing": None, "paused": []}
    assert document(asked) == {"schema": 1, "task_id": task, **told}
    assert (ended.returncode, document(ended)["undo"][0]["done"], served.rows()) == (5, True, 0)


def test_a_closed_task_cannot_be_cancelled_but_undone(served: Rollbacks) -> None:
    """`cancel --undo` comes too late and names `undo`."""
    task = served.run_task("note")
    late = served.starter("cancel", task, "--undo", "--json")

    assert (late.returncode, document(late)["error"]["code"]) == (1, "closed")
    assert f"undo {task}" in document(late)["error"]["remedy"]


@pytest.mark.full
def test_a_cancelled_task_that_was_not_asked_keeps_what_it_did(served: Rollbacks) -> None:
    """A plain `cancel`; `undo` takes it back afterwards."""
    task = served.run_task("note", "linger", options=("--detach",))
    served.called("linger")
    served.starter("cancel", task)
    served.starter("show", task, "--follow")
    kept = served.rows()

    assert (kept, served.starter("undo", task).returncode, served.rows()) == (1, 0, 0)


@pytest.mark.parametrize(("how", "rows"), [("end", 1), ("undo", 0)])
def test_an_escalated_task_keeps_or_undoes(served: Rollbacks, how: str, rows: int) -> None:
    """As `--on-escalation` says."""
    served.run_task("note", "person", options=("--on-escalation", how))

    assert served.rows() == rows


def test_there_is_no_other_way_to_escalate(desk: Rollbacks) -> None:
    """The three that there are are named."""
    wrong = desk.starter("start", "--task", "x", "--on-escalation", "pause")

    assert wrong.returncode == 2
    assert "'pause' is not one of 'wait', 'end', 'undo'" in wrong.stderr


@pytest.mark.full
def test_an_effect_of_a_run_after_an_undo_is_undone(served: Rollbacks) -> None:
    """A task that was reset after it had been undone is undone anew: its last run has effects of its own."""
    task = served.run_task("put", "person")
    served.starter("undo", task)
    assert served.starter("reset", task, "--to", "put", "--keep").returncode == 0
    served.starter("show", task, "--follow")
    again = served.starter("undo", task)

    assert (again.returncode, served.calls()[-2:]) == (0, ["put put", "drop put"]), again


def test_nothing_is_undone_where_nothing_was_done(served: Rollbacks) -> None:
    """A sentence, and success."""
    task = served.run_task("person")
    undone = served.starter("undo", task)

    assert undone.returncode == 0
    assert undone.stdout == f"There is nothing to undo: {task} has changed nothing that still stands.\n"


@pytest.mark.full
def test_whoever_looks_at_an_undone_task_is_told(served: Rollbacks) -> None:
    """Its own history knows nothing of a rollback after its end; `show` and `explain` do."""
    task = served.run_task("note", "engrave")
    before = served.starter("explain", task).stdout
    served.starter("undo", task)
    said = f"What it did was undone after its end, but some effects stay (workflow undo-{task})"

    assert said not in before
    assert said in served.starter("explain", task).stdout and said in served.starter("show", task).stdout


@pytest.mark.full
def test_without_a_worker_nobody_knows_what_to_undo(desk: Rollbacks) -> None:
    """Said in a sentence, with the remedy."""
    with desk.one():
        task = desk.run_task("note")
    refused = desk.starter("undo", task, "--json")

    assert (refused.returncode, document(refused)["error"]["code"]) == (6, "no_worker")
    assert f"python worker.py --queue {desk.queue}" in document(refused)["error"]["remedy"]


@pytest.mark.full
def test_a_rollback_is_no_task(served: Rollbacks) -> None:
    """`list` has the task alone, and the newest task is still that one."""
    task = served.run_task("note")
    served.starter("undo", task)
    listed = document(served.starter("list", "--json", "--query", f"WorkflowId IN ('{task}', 'undo-{task}')"))["tasks"]

    assert [one["task_id"] for one in listed] == [task]


def test_a_task_that_goes_back_to_before_an_undone_effect_meets_a_conflict(served: Rollbacks) -> None:
    """The step is called again with its key, which was undone: no second effect, and not the old result either."""
    task = served.run_task("note", "person")
    served.starter("undo", task)
    assert served.starter("reset", task, "--to", "note").returncode == 0
    ended = document(served.starter("show", task, "--follow", "--json"))
    note = next(step for step in ended["steps"] if step["id"] == "note")

    assert (note["fault"]["code"], note["result"], served.rows()) == ("conflict", None, 0)
    assert "was done and then undone" in note["fault"]["reason"]


@pytest.mark.full
def test_a_rollback_is_left_alone_by_ctrl_c(served: Rollbacks) -> None:
    """It goes on, and the command says how to come back."""
    task = served.run_task("send")
    with served.hanging(), served.begin("undo", task) as left:
        served.called("recall send")
        left.send_signal(2)
        said = left.communicate(timeout=30)[1]

    assert (left.returncode, f"Follow: python starter.py undo {task}" in said) == (130, True)
    assert served.starter("undo", task).returncode == 0


HELD = {
    **{"step": "reserve", "kind": "wire", "args": {"word": "large"}, "approve": "the word is large"},
    **{"undoes_kind": "reserve", "undoes_args": {"word": "large"}},
}


def test_a_call_that_needs_an_approval_is_held_until_it_was_seen(served: Rollbacks) -> None:
    """Without a terminal the calls are shown with a code, which stands for these calls alone."""
    task = served.run_task("put", "reserve:large")
    unseen, told = served.starter("undo", task), document(held := served.starter("undo", task, "--json"))
    made = served.calls()
    wrong = served.starter("undo", task, "--confirm", "0" * 12, "--json")
    confirmed = served.starter("undo", task, "--confirm", told["confirm"], "--json")
    again = document(served.starter("undo", task, "--json"))

    assert (unseen.returncode, held.returncode, made) == (3, 3, ["put put", "reserve large", "drop put"])
    assert f"python starter.py undo {task} --confirm {told['confirm']}" in unseen.stdout
    assert "wire (the word is large) undoes reserve\n      word: large\n" in unseen.stdout
    assert "      (the call was: reserve word large)\n" in unseen.stdout
    assert told["held"] == [HELD | {"is_certain": True}]
    assert (wrong.returncode, document(wrong)["error"]["code"]) == (1, "not_confirmed")
    assert (confirmed.returncode, document(confirmed)["held"], again["already"]) == (0, [], True)
    assert served.calls() == [*made, "wire large"]


async def seen(desk: Rollbacks, words: Sequence[str], typed: str) -> tuple[int, str]:
    """The exit code of a command at a terminal where this is typed, and what it showed."""
    with Terminal(starter(ROOT, *words), {"TEMPORAL_ADDRESS": desk.address}, ROOT) as window:
        await window.until("then Enter: ")
        window.press(typed)
        ended = await window.ended()
    return ended, "\n".join(window.shown.text)


async def test_a_person_at_a_terminal_is_shown_what_would_be_called(served: Rollbacks) -> None:
    """Only a yes lets the rollback begin; no call is made before."""
    task = await asyncio.to_thread(served.run_task, "put", "reserve:large")
    no = await seen(served, ("undo", task), "n\n")
    before = served.calls()
    yes = await seen(served, ("undo", task), "yes\n")

    assert (no[0], before) == (1, ["put put", "reserve large"])
    assert "To undo this, 2 calls would be made:" in yes[1] and "drop undoes put" in yes[1]
    assert (yes[0], served.calls()[2:]) == (0, ["wire large", "drop put"])


async def test_a_person_who_cancels_is_shown_what_would_be_called(served: Rollbacks) -> None:
    """The task is told what was seen, and makes exactly that."""
    task = await asyncio.to_thread(served.run_task, "reserve:large", "linger", options=("--detach",))
    await asyncio.to_thread(served.called, "linger")
    code, shown = await seen(served, ("cancel", task, "--undo"), "yes\n")
    ended = await asyncio.to_thread(served.starter, "show", task, "--follow", "--json")

    assert (code, "wire (the word is large) undoes reserve" in shown) == (0, True), shown
    assert ([one["done"] for one in document(ended)["undo"]], served.calls()[-1]) == ([True], "wire large")


@pytest.mark.full
def test_nobody_sees_what_a_cancel_without_a_terminal_undoes(served: Rollbacks) -> None:
    """The outcome names what was held, and `undo` can make it."""
    task = served.run_task("reserve:large", "linger", options=("--detach",))
    served.called("linger")
    served.starter("cancel", task, "--undo")
    ended = document(served.starter("show", task, "--follow", "--json"))
    told = document(served.starter("undo", task, "--json"))

    assert "Not undone: reserve (wire needs approval: the word is large)." in ended["reason"]
    assert (told["held"], served.calls()) == ([HELD | {"is_certain": True}], ["reserve large", "linger"])
