"""The payment service of the chaos harness: what it did stands in its book, whatever the caller was told."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import httpx2
import pytest

from evals.chaos import payments
from evals.chaos.payments import Answer, Book, Call, Endpoint, Trouble


@contextmanager
def served(folder: Path, troubles: dict[str, list[str]]) -> Iterator[tuple[httpx2.Client, Book]]:
    book = Book(folder / "book.db", troubles)
    with payments.Service(0, book, too_long=0.2) as service:
        Thread(target=service.serve_forever, daemon=True).start()
        with httpx2.Client(base_url=f"http://127.0.0.1:{service.server_port}", timeout=20, trust_env=False) as client:
            yield client, book
        service.shutdown()


def charged(client: httpx2.Client, endpoint: str = "plain", key: str = "k") -> int | None:
    """The status of a charge; None where no answer came."""
    try:
        reply = client.post(
            f"/{endpoint}", params={"reference": "r"}, json={"amount": 5}, headers={"idempotency-key": key}
        )
    except httpx2.TransportError:
        return None
    return reply.status_code


@pytest.mark.parametrize(
    ("trouble", "statuses", "charges"),
    [
        ([], [200, 200], 2),
        ([Trouble.RESET], [None, 200], 1),
        ([Trouble.DROP], [None, 200], 2),
        ([Trouble.BUSY, Trouble.DOWN], [429, 503], 0),
        ([Trouble.DENIED], [401, 200], 1),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) and all(isinstance(one, str) for one in value) else "",
)
def test_the_fault_plan_is_met_call_by_call(
    tmp_path: Path, trouble: list[str], statuses: list[int | None], charges: int
) -> None:
    with served(tmp_path, {"r": trouble}) as (client, book):
        said = [charged(client) for _ in statuses]

    assert said == statuses
    assert book.charges().get("r", 0) == charges


@pytest.mark.parametrize("trouble", [Trouble.SLOW, Trouble.LATE, Trouble.KILL])
def test_an_answer_comes_too_late(tmp_path: Path, trouble: Trouble) -> None:
    """The charge is made, before or after the caller gave up, and no answer comes."""
    with served(tmp_path, {"r": [trouble]}) as (client, book):
        said = charged(client)

    assert (said, book.charges()) == (None, {"r": 1})


@pytest.mark.parametrize(("endpoint", "second"), [("keyed", 200), ("strict", 409)])
def test_a_key_charges_once(tmp_path: Path, endpoint: str, second: int) -> None:
    with served(tmp_path, {}) as (client, book):
        said = [charged(client, endpoint) for _ in range(2)]

    assert (said, book.charges()) == ([200, second], {"r": 1})


@pytest.mark.parametrize("reference", ["r", "k"])
def test_a_charge_is_found(tmp_path: Path, reference: str) -> None:
    with served(tmp_path, {}) as (client, _):
        before = client.get("/find", params={"reference": reference}).status_code
        charged(client)
        after = client.get("/find", params={"reference": reference}).json()

    assert (before, after["reference"], after["amount"]) == (404, "r", 5)


def test_who_is_to_be_killed_is_in_the_book(tmp_path: Path) -> None:
    """Only a call that was carried out condemns its worker, once."""
    book = Book(tmp_path / "book.db", {"r": [Trouble.KILL, Trouble.KILL]})
    call = Call(Endpoint.PLAIN, "r", None, 5, worker=4711)
    first, _ = book.record_call(call)
    book.record_call(call)
    answer = book.apply(first, call)

    assert answer == Answer(200, {"id": 1, "reference": "r", "amount": 5}, applied=True)
    assert (book.workers_to_kill(0), book.workers_to_kill(first)) == ([(first, 4711)], [])
