"""What a person sees of a store of effects, and settles, while programs may run or be killed."""

import json
import os
import signal
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from activities.effects.database import Database
from activities.effects.desk import CallRecord, Desk
from activities.effects.explanation import explain
from activities.effects.remedies import as_argument, to_settle
from activities.effects.upkeep import check
from replan.effects import DoubtfulCall, EffectRefused, Effects, EffectUndone, OutcomeUnknown, StoreUnavailable
from runtime.keys import add_key
from tests.effects.shop import Shop


def refusal(shop: Shop, key: str, answer: Any, **more: Any) -> str:
    """The code with which a settlement is refused."""
    with pytest.raises(EffectRefused) as refused:
        shop.effects.settle(key, answer, **more)
    return refused.value.code


def test_a_call_of_a_killed_process_is_listed_as_unknown(shop: Shop) -> None:
    """Its row is open, but no process has it: with what was called, by whom, and how often, also as JSON."""
    key = shop.unknown()
    call = shop.effects.desk.call(key)
    fields = json.loads(call.model_dump_json())

    assert (call.state, call.function, call.session, call.effect) == ("unknown", "_order", "order 17", "unkeyed")
    assert (call.arguments, call.attempts, call.has_result) == ({"item": "lamp", "note": "after"}, 1, False)
    assert call.process is not None and call.process.life.value == "dead"
    assert (fields["key"], fields["state"], fields["process"]["life"]) == (key, "unknown", "dead")


def test_an_attempt_is_counted_as_one_and_not_as_a_call_that_was_taken_for_it(shop: Shop) -> None:
    """Which a person reads beside the call: how often it was made, and how often its result was given again."""

    def order() -> None:
        with shop.effects.scope(key="order 17, lamp"):
            shop.order("lamp", "before")

    shop.dies(order)
    shop.effects.settle(shop.key("unknown"), "not-applied")
    shop.dies(order)
    [call] = shop.effects.calls()

    assert (call.state, call.attempts, call.joined) == ("unknown", 2, 0)


def test_an_applied_call_without_a_result_is_never_made(shop: Shop) -> None:
    """Each equal call says so, until a person gives the result."""
    key = shop.unknown()
    shop.effects.settle(key, "applied")
    for _ in range(2):
        with pytest.raises(OutcomeUnknown, match=f"its result is not known.*settle {key} applied --result null"):
            shop.order("lamp", "after")
    shop.effects.settle(key, "applied", result={"id": "lamp"})

    assert shop.order("lamp", "after") == {"id": "lamp"}
    assert shop.world == ["order lamp"]


def test_the_result_of_a_function_without_one_is_not_missed(tmp_path: Path) -> None:
    """It returns None, whatever was applied."""
    effects = Effects(str(tmp_path / "agent.db"), session="s")
    made = []

    @effects.unkeyed
    def ping() -> None:
        made.append(1)
        raise OSError("reset")

    with pytest.raises(OutcomeUnknown) as unknown:
        ping()
    effects.settle(unknown.value.key, "applied")
    answers = [ping()]
    effects.close()

    assert (answers, made) == ([None], [1])


def test_a_call_is_settled_once(shop: Shop) -> None:
    """What a person said stays; who said it is recorded, with the time, and what it was before."""
    key = shop.unknown()
    why = shop.effects.settle(key, "not-applied", by="ann").why or {}

    assert (why["code"], why["by"], why["was"]) == ("settled", "ann", "open") and why["at"]
    assert refusal(shop, key, "applied") == "already_settled"
    assert shop.state(key) == "void"


def test_an_unknown_and_a_doubtful_call_have_two_answers_each(shop: Shop) -> None:
    """Those of the other are refused: one that was not made was neither applied nor not."""
    doubt, unknown = shop.doubtful(), shop.key("unknown")
    given = [(unknown, "same"), (unknown, "another"), (unknown, "maybe"), (doubt, "applied"), (doubt, "not-applied")]

    assert [refusal(shop, key, answer) for key, answer in given] == ["other_answer"] * 5


def test_a_result_is_json_and_belongs_to_an_applied_call(shop: Shop) -> None:
    """Nothing is changed by what is neither."""
    key = shop.unknown()
    wrong: list[Any] = [{1, 2}, float("nan"), "\ud800", b"x", "x" * 2_000_000]

    assert [refusal(shop, key, "applied", result=value) for value in wrong] == ["bad_result"] * 5
    assert refusal(shop, key, "not-applied", result=1) == "bad_result"
    assert shop.state(key) == "unknown"


def test_an_unknown_key_names_the_nearest(shop: Shop) -> None:
    """A person may have mistyped it."""
    key = shop.unknown()
    with pytest.raises(EffectRefused, match=f"did you mean {key}") as refused:
        shop.effects.settle(f"{key[:-1]}x", "applied")

    assert refused.value.code == "unknown_key"


def test_a_running_call_is_not_settled(shop: Shop) -> None:
    """Its process is named; when it is dead, it can be settled."""
    child = shop.lives(lambda: shop.order("lamp", "stays"))
    while not shop.world:
        time.sleep(0.01)
    key = shop.effects.calls()[0].key
    with pytest.raises(EffectRefused, match=f"still runs in process {child} ") as refused:
        shop.effects.settle(key, "applied")
    assert shop.state(key) == "open"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    shop.effects.settle(key, "not-applied")

    assert refused.value.code == "still_running"


def test_a_call_of_this_process_is_open_while_it_runs(shop: Shop) -> None:
    """Also for the process itself, which sees its own calls without a look at the list of processes."""
    seen = list[CallRecord]()

    @shop.effects.unkeyed
    def order(item: str) -> None:
        seen.extend(shop.effects.calls())

    order("lamp")
    [call] = seen

    assert (call.state, call.process and call.process.life.value) == ("open", "lives")
    assert shop.state(call.key) == "applied"


def test_a_call_of_an_owner_of_which_nothing_is_known_may_be_settled(shop: Shop) -> None:
    """Only a person can know then."""
    key = shop.unknown()
    shop.effects.close()
    with sqlite3.connect(shop.store) as database:
        database.execute("DELETE FROM replan_owners")

    assert shop.effects.settle(key, "not-applied").state == "void"


def test_a_call_that_is_settled_right_after_its_claim_is_not_made(shop: Shop) -> None:
    """The owner reads its claim once more before it calls: of the two, one wins."""
    shop.effects.open()
    with sqlite3.connect(shop.store) as database:  # a person who is so quick
        database.execute(
            "CREATE TRIGGER person AFTER INSERT ON replan_ledger BEGIN"
            " UPDATE replan_ledger SET state = 'void' WHERE key = NEW.key; END"
        )
    with pytest.raises(OutcomeUnknown, match="was not called: its claim was taken away"):
        shop.order("lamp")

    assert shop.world == []


def test_a_doubtful_call_is_the_same(shop: Shop) -> None:
    """It gets the earlier result, once that is known."""
    doubt = shop.doubtful()
    about = shop.effects.desk.call(doubt).about
    assert about is not None
    with pytest.raises(EffectRefused, match=f"{about} was begun by process .* gone.*settle {about} applied") as first:
        shop.effects.settle(doubt, "same")
    shop.effects.settle(about, "applied")
    assert refusal(shop, doubt, "same") == first.value.code == "earlier_first"
    shop.effects.settle(about, "applied", result={"id": "lamp"})
    shop.effects.settle(doubt, "same")

    assert shop.order("lamp", "after this one comes another one") == {"id": "lamp"}
    assert shop.world == ["order lamp"]


def test_a_doubtful_call_is_another(shop: Shop) -> None:
    """It is made when it comes again."""
    doubt = shop.doubtful()
    shop.effects.settle(doubt, "another")
    shop.dies(lambda: shop.order("lamp", "after this one comes another one"))

    assert shop.world == ["order lamp", "order lamp"]
    assert shop.state(doubt) == "unknown"
    assert shop.effects.settle(doubt, "applied").state == "applied"


def test_a_doubtful_call_is_not_the_same_as_one_that_was_not_applied(shop: Shop) -> None:
    """Nothing is there that it could get."""
    doubt = shop.doubtful()
    shop.effects.settle(shop.key("unknown"), "not-applied")

    assert refusal(shop, doubt, "same") == "earlier_first"


@pytest.mark.parametrize("is_first", [True, False])
def test_the_result_of_an_undone_call_is_not_that_of_a_doubtful_one(shop: Shop, is_first: bool) -> None:
    """Neither if it was undone before a person said that they are the same, nor since."""
    doubt, about = shop.doubtful(), shop.key("unknown")
    shop.effects.settle(about, "applied", result={"id": "lamp"})
    if is_first:
        shop.effects.undo(about)
        assert refusal(shop, doubt, "same") == "earlier_first"
        return
    shop.effects.settle(doubt, "same")
    shop.effects.undo(about)

    with pytest.raises(EffectUndone, match="was applied and undone"):
        shop.order("lamp", "after this one comes another one")


def test_the_beginning_of_a_key_is_enough_if_it_is_of_one(shop: Shop) -> None:
    """Else all that begin so are named; no sign stands for others."""
    key = shop.unknown()
    shop.dies(lambda: shop.order("chair"))

    assert shop.effects.desk.find(key[:-3]).key == key
    for beginning in ("", "x", "%", "_x", "_order"):
        with pytest.raises(EffectRefused) as refused:
            shop.effects.desk.find(beginning)
        assert ("2 keys begin with '_order'" in str(refused.value)) is (beginning == "_order")


def test_looking_makes_and_migrates_no_store(tmp_path: Path) -> None:
    """A mistyped path is named; another program's database, or one of an earlier version, is left as it is."""
    with pytest.raises(StoreUnavailable, match="There is no store"):
        Desk(Database(str(tmp_path / "typo.db"), must_exist=True)).calls()
    assert list(tmp_path.iterdir()) == []
    with sqlite3.connect(tmp_path / "other.db") as database:
        database.execute("CREATE TABLE mine (x)")
    with pytest.raises(StoreUnavailable, match="has no effects yet"):
        Desk(Database(str(tmp_path / "other.db"), must_exist=True)).calls()

    with sqlite3.connect(tmp_path / "other.db") as database:
        assert database.execute("SELECT name FROM sqlite_master").fetchall() == [("mine",)]


def test_explain_says_why_a_call_was_not_made_again(shop: Shop) -> None:
    """By the recorded fact, and by what the rules decide of the next one; nothing is changed by asking."""
    shop.dies(lambda: shop.order("lamp"))
    shop.order("lamp")
    [call] = shop.effects.calls()
    explained = explain(shop.effects.desk, call)

    assert [item.decision for item in explained.items] == ["made", "answered"]
    assert explained.items[1].data["standing"] == "last" and "killed later" in (explained.items[1].why or "")
    assert shop.effects.calls() == [call]


def test_explain_says_what_follows_of_an_unknown_call(shop: Shop) -> None:
    """And how a person settles it."""
    explained = explain(shop.effects.desk, shop.effects.desk.call(shop.unknown()))

    assert explained.following.decision == "found_out_first"
    assert [item.decision for item in explained.items] == ["made", "unknown"]
    assert f"settle {explained.call.key} applied --store {shop.store}" in explained.todo[0]


def test_explain_says_that_a_doubtful_call_stays_doubtful(shop: Shop) -> None:
    """Until somebody answers."""
    call = shop.effects.desk.call(shop.doubtful())
    explained = explain(shop.effects.desk, call)
    before, [item] = explained.following.decision, explained.items
    shop.effects.settle(call.key, "another")

    assert before == "doubtful" and str(item.why).startswith("That call ")
    assert explain(shop.effects.desk, shop.effects.desk.call(call.key)).following.decision == "made"


def test_what_a_person_is_told_to_type_is_one_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys with blanks are quoted, a password is not shown, and a variable that has the URL is named instead."""
    url = "postgresql://me:pw@db/agents?sslmode=require"
    monkeypatch.delenv("AGENT_DB", raising=False)
    without = to_settle("a b/c", "outcome", url)
    monkeypatch.setenv("AGENT_DB", url)

    assert "settle 'a b/c' applied --store postgresql://me@db/agents`" in without and "PGPASSWORD" in without
    assert "pw" not in without.replace("PGPASSWORD", "")
    assert to_settle("a", "identity", url).startswith("Settle it: `")
    assert as_argument(url) == '"$AGENT_DB"'
    assert as_argument("/var/a b.db") == "'/var/a b.db'"
    assert as_argument("sqlite:////var/a.db") == "/var/a.db"


def test_prune_keeps_what_is_open_and_the_newest(shop: Shop) -> None:
    """And what a doubtful call may be; a dry run says the same, and deletes nothing."""
    with pytest.raises(DoubtfulCall):
        shop.dies(lambda: shop.order("first"))
        shop.unknown()
        shop.order("lamp", "after this one comes another one")
    shop.order("last")
    before = {call.key for call in shop.effects.calls()}
    assert shop.effects.prune(1).calls == [], "all of them are young"
    planned = shop.effects.prune(0, dry_run=True)
    assert {call.key for call in shop.effects.calls()} == before
    done = shop.effects.prune(0)

    assert [call.arguments for call in done.calls] == [{"item": "first", "note": ""}]
    assert [call.key for call in planned.calls] == [call.key for call in done.calls]
    assert sorted(call.state for call in shop.effects.calls()) == ["applied", "doubtful", "unknown"]
    assert done.kept == 3


def test_prune_forgets_owners_on_which_nothing_depends(shop: Shop) -> None:
    """The dead and the ended, with their lock files; not one of whose end it depends whether an answer was read."""
    for item in ("a", "b", "c"):
        shop.dies(lambda item=item: shop.order(item))  # type: ignore[misc]
    unknown = shop.unknown()
    shop.order("last")
    done = shop.effects.prune(0)
    shop.effects.close()
    with sqlite3.connect(shop.store) as database:
        owners = database.execute("SELECT count(*) FROM replan_owners").fetchone()[0]

    assert (len(done.calls), done.owners, len(done.files)) == (3, 3, 3)
    assert owners == 2  # of the unknown call, and of this process
    assert shop.state(unknown) == "unknown"
    assert shop.order("last") == {"id": "last"}


def test_doctor_names_what_waits_with_its_command(shop: Shop) -> None:
    """And that all else is well; of a store that cannot be used it says why, and checks no more."""
    doubt = shop.doubtful()
    shop.effects.close()
    found = {one.name: one for one in check(Desk(Database(shop.store, must_exist=True)))}

    assert {one.status for one in found.values()} == {"ok", "warn"}
    assert f"settle {doubt} same" in found["doubtful"].remedy
    assert "settle _order-" in found["unknown"].remedy
    assert "2 dead" in found["owners"].found and found["owners"].status == "ok"
    assert found["file system"].found.endswith("MB free")

    first, *others = check(Desk(Database(f"{shop.store}.not", must_exist=True)))
    assert (first.status, first.remedy) == ("fail", "check the path, or run the program that makes it")
    assert {one.status for one in others} == {"skipped"}


def test_an_encrypted_store_shows_its_values_with_its_keys(tmp_path: Path) -> None:
    """And only with them."""
    ring = tmp_path / "replan.keys"
    add_key(ring)
    effects = Effects(str(tmp_path / "agent.db"), session="s", keys=ring)

    @effects.unkeyed
    def say(word: str) -> str:
        return word

    say("secret")
    [call] = effects.calls()
    effects.close()
    raw = b"".join(file.read_bytes() for file in tmp_path.glob("agent.db*") if file.is_file())

    assert (call.arguments, call.result) == ({"word": "secret"}, "secret")
    assert b"secret" not in raw
    with pytest.raises(StoreUnavailable, match="--keys"):
        Desk(Database(str(tmp_path / "agent.db"), must_exist=True)).calls()
