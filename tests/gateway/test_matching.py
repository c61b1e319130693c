"""The rules that say which calls are the same call, and the journal from which they are read."""

from pathlib import Path

import pytest

from runtime.keys import Keyring, add_key, read_keys
from server.gateway.journal import CannotOpen, Journal
from server.gateway.matching import RULES, WINDOW, Caller, Delivery, Earlier, Verdict, match

NOW = 1_000_000.0
PAY = Caller("pay", digest="d1", authority="a1")


def earlier(delivery: Delivery, call: Caller = PAY, *, ago: float = 1, id: str = "t1", request: str = "r1") -> Earlier:
    return Earlier(id, call, delivery, NOW - ago, request)


@pytest.mark.parametrize(
    ("call", "before", "verdict"),
    [
        pytest.param(PAY, [], Verdict.NEW, id="the first"),
        pytest.param(PAY, [earlier(Delivery.OPEN)], Verdict.NEW, id="two equal calls on live streams"),
        pytest.param(PAY, [earlier(Delivery.DELIVERED)], Verdict.NEW, id="after the agent went on"),
        pytest.param(PAY, [earlier(Delivery.BROKEN)], Verdict.SAME, id="not handed over"),
        pytest.param(PAY, [earlier(Delivery.BROKEN, ago=WINDOW + 1)], Verdict.NEW, id="too long ago"),
        pytest.param(PAY, [earlier(Delivery.PENDING, ago=10 * WINDOW)], Verdict.SAME, id="a person is still asked"),
        pytest.param(PAY, [earlier(Delivery.WRITTEN)], Verdict.DOUBTFUL, id="written, and nobody knows"),
        pytest.param(PAY, [earlier(Delivery.WRITTEN, ago=WINDOW + 1)], Verdict.NEW, id="written long ago"),
        pytest.param(Caller("pay", "d2", "a1"), [earlier(Delivery.BROKEN)], Verdict.DOUBTFUL, id="other words"),
        pytest.param(Caller("pay", "d2", "a1"), [earlier(Delivery.WRITTEN)], Verdict.NEW, id="written, other words"),
        pytest.param(Caller("pay", "d2", "a2"), [earlier(Delivery.BROKEN)], Verdict.NEW, id="another receiver"),
        pytest.param(Caller("say", "d1"), [earlier(Delivery.BROKEN)], Verdict.NEW, id="another tool"),
        pytest.param(
            Caller("say", "d2"), [earlier(Delivery.BROKEN, Caller("say", "d1"))], Verdict.NEW, id="no authority"
        ),
        pytest.param(
            Caller("pay", "d1", "a1", "k1"),
            [earlier(Delivery.DELIVERED, Caller("pay", "d1", "a1", "k1"), ago=10 * WINDOW)],
            Verdict.SAME,
            id="its key, long ago",
        ),
        pytest.param(PAY, [earlier(Delivery.VOID)], Verdict.NEW, id="failed without an effect"),
        pytest.param(
            Caller("pay", "d2", "a1", "k1"),
            [earlier(Delivery.VOID, Caller("pay", "d1", "a1", "k1"))],
            Verdict.NEW,
            id="its key, under which nothing was done",
        ),
        pytest.param(
            Caller("pay", "d2", "a1", "k1"),
            [earlier(Delivery.DELIVERED, Caller("pay", "d1", "a1", "k1"))],
            Verdict.CONFLICT,
            id="its key with other arguments",
        ),
        pytest.param(
            Caller("pay", "d1", "a1", "k2"),
            [earlier(Delivery.BROKEN, Caller("pay", "d1", "a1", "k1"))],
            Verdict.NEW,
            id="another key",
        ),
        pytest.param(Caller("pay", "d1", "a1", "k1"), [earlier(Delivery.BROKEN)], Verdict.NEW, id="a key, before none"),
        pytest.param(
            PAY, [earlier(Delivery.BROKEN, Caller("pay", "d1", "a1", "k1"))], Verdict.NEW, id="none, before a key"
        ),
        pytest.param(
            Caller("pay", "d1", "a1", resent="r1"), [earlier(Delivery.OPEN)], Verdict.SAME, id="the same request"
        ),
    ],
)
def test_a_call_is_what_the_rules_say(call: Caller, before: list[Earlier], verdict: Verdict) -> None:
    assert match(call, before, NOW).verdict is verdict


def test_the_oldest_answer_that_fits_is_handed_over_first() -> None:
    before = [earlier(Delivery.BROKEN, ago=5, id="young"), earlier(Delivery.BROKEN, ago=9, id="old")]
    found = match(PAY, before, NOW).earlier

    assert found is not None
    assert found.task_id == "old"


def test_what_is_certain_goes_before_a_doubt() -> None:
    before = [earlier(Delivery.WRITTEN, ago=9, id="written"), earlier(Delivery.BROKEN, ago=5, id="broken")]

    assert match(PAY, before, NOW).verdict is Verdict.SAME


def test_each_rule_is_in_the_documentation() -> None:
    page = Path("docs/mcp.md").read_text()

    for rule in RULES:
        assert f"| {rule.call} | {rule.earlier} | {rule.verdict} |" in page


class Clock:
    now = NOW

    def __call__(self) -> float:
        return self.now


def written(journal: Journal, id: str, call: Caller = PAY, session: str = "s", connection: str = "c1") -> None:
    journal.add(session, id, call, effect_key=f"e-{id}", request=f"r-{id}", connection=connection, doubts="")


def test_a_session_never_sees_calls_of_another(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "gateway.db")
    written(journal, "t1", session="a")

    assert [one.task_id for one in journal.earlier("a", PAY)] == ["t1"]
    assert journal.earlier("b", PAY) == []


def test_answers_under_way_when_the_process_ended_were_not_handed_over(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "gateway.db")
    written(journal, "t1")
    written(journal, "t2")
    journal.note("t2", Delivery.WRITTEN, "r-t2")
    journal.close()
    found = {one.task_id: one.delivery for one in Journal(tmp_path / "gateway.db").earlier("s", PAY)}

    assert found == {"t1": Delivery.BROKEN, "t2": Delivery.WRITTEN}


def test_a_later_call_on_the_same_connection_proves_what_was_written_to_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "gateway.db")
    for id, connection in (("t1", "c1"), ("t2", "c2"), ("t3", "c1")):
        written(journal, id, connection=connection)
    journal.note("t1", Delivery.WRITTEN, "r-t1")
    journal.note("t2", Delivery.WRITTEN, "r-t2")
    journal.went_on("c1")
    found = {one.task_id: one.delivery for one in journal.earlier("s", PAY)}

    assert found == {"t1": Delivery.DELIVERED, "t2": Delivery.WRITTEN, "t3": Delivery.OPEN}


def test_a_late_word_of_an_earlier_request_changes_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "gateway.db")
    written(journal, "t1")
    journal.left("c1")
    journal.attach("t1", request="r-new", connection="c2")
    journal.note("t1", Delivery.WRITTEN, "r-t1")

    assert [one.delivery for one in journal.earlier("s", PAY)] == [Delivery.OPEN]


def test_keys_are_known_longer_than_calls_without(tmp_path: Path) -> None:
    clock, keyed = Clock(), Caller("pay", "d1", "a1", "k1")
    journal = Journal(tmp_path / "gateway.db", clock)
    written(journal, "t1")
    written(journal, "t2", keyed)
    journal.note("t2", Delivery.DELIVERED, "r-t2")
    journal.left("c1")
    clock.now += 86_400
    journal.close()
    journal = Journal(tmp_path / "gateway.db", clock)

    assert journal.earlier("s", PAY) == []
    assert [one.task_id for one in journal.earlier("s", keyed)] == ["t2"]


def test_only_its_owner_reads_it_and_other_versions_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "gateway.db"
    journal = Journal(path)
    assert path.stat().st_mode & 0o777 == 0o600
    with journal._engine.begin() as transaction:
        transaction.exec_driver_sql("PRAGMA user_version = 99")
    journal.close()

    with pytest.raises(CannotOpen, match="another version"):
        Journal(path)


def test_with_a_keyring_the_keys_of_agents_and_the_digests_are_encrypted(tmp_path: Path) -> None:
    """Calls from before, and those that an older key encrypted, are found; the journal opens with no other keys."""
    path, file, keyed = tmp_path / "gateway.db", tmp_path / "replan.keys", Caller("pay", "digest-d", "auth-a", "key-k")

    def opened(*, blind: bool = False) -> Journal:
        return Journal(path, cipher=None if blind else Keyring(read_keys(file)))

    journal = opened(blind=True)
    written(journal, "in clear", keyed)
    journal.close()
    for id in ("first key", "second key"):
        add_key(file)
        journal = opened()
        written(journal, id, keyed)
        journal.close()
    journal = opened()
    found, plain = journal.earlier("s", keyed), journal.earlier("s", Caller("pay", "digest-d"))
    journal.close()
    raw = b"".join(one.read_bytes() for one in tmp_path.glob("gateway.db*"))

    assert {(one.task_id, one.caller) for one in found} == {
        (id, keyed) for id in ("in clear", "first key", "second key")
    }
    assert len(plain) == 3
    assert [raw.count(word) for word in (b"key-k", b"digest-d", b"auth-a")] == [1, 1, 1], "the one in clear"
    with pytest.raises(CannotOpen, match="which is not here"):
        opened(blind=True)
    file.write_text(file.read_text().splitlines()[0] + "\n")
    with pytest.raises(CannotOpen, match="which is not here"):
        opened()
