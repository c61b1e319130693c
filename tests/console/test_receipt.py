"""The waste receipt: what retries were good for, what was prevented, what models were paid, each with its events."""

import pytest

from client import tree
from client.wording import count
from tests.console.histories import NAMES, explained, text
from workflows.account import metrics

SAID = {
    "retried": ["Retries of tools: 2 (2 helped); wasted attempts: 0.  [event 16]"],
    "fallback": ["Retries of tools: 3 (0 helped); wasted attempts: 0.  [event 16]"],
    "replanned": ["Retries of tools: 0; wasted attempts: 0."],
    "compacted": [
        "Paid to models: planning 390 tokens, correcting 260 tokens and summarising 130 tokens."
        "  [events 9, 21, 33, 39, 51, 57]"
    ],
    "straight": [],
}


@pytest.mark.parametrize(("name", "said"), SAID.items(), ids=SAID)
async def test_explain_ends_with_the_receipt(name: str, said: list[str]) -> None:
    """What is zero is left out, but for the wasted attempts of a task that met faults: their promise is zero."""
    lines = (await text(name)).splitlines()

    assert [line for line in lines if line.startswith(("Retries", "Duplicates", "Calls not", "Paid"))] == said


async def test_the_receipt_agrees_with_the_counts_of_the_metrics() -> None:
    """On every saved history: retries, wasted attempts, replayed results, calls not made, tokens by purpose."""
    differ = []
    for name in NAMES:
        whole = await explained(name)
        sums, receipt = whole.story.account.counts or {}, whole.receipt
        paid = {purpose: tokens for (purpose,), tokens in metrics.counted(sums, metrics.TOKENS).items()}
        summed = metrics.RETRIES, metrics.WASTED_ATTEMPTS, metrics.REPLAYED_RESULTS, metrics.CIRCUIT_OPEN
        counted = [metrics.total(sums, metric) for metric in summed]
        lines = receipt.helped.number + receipt.not_helped.number, receipt.wasted.number
        prevented = receipt.replayed.number + receipt.reconciled.number
        told = [*lines, prevented, receipt.not_made.number]
        if told != counted or {purpose: one.tokens for purpose, one in receipt.paid.items()} != paid:
            differ.append((name, told, counted))

    assert differ == []


async def test_show_counts_retries_as_the_receipt_does() -> None:
    """Its last line has only the Outcome to go by."""
    differ = []
    for name in NAMES:
        whole = await explained(name)
        receipt, outcome = whole.receipt, whole.story.account
        number = receipt.helped.number + receipt.not_helped.number
        if f", {count(number, 'retry', 'retries')}" not in tree.headline(outcome):
            differ.append((name, number, tree.headline(outcome)))

    assert differ == []


async def test_no_saved_history_has_a_wasted_attempt() -> None:
    """The promise of Replan: an attempt never follows a fault that it cannot cure."""
    assert [name for name in NAMES if (await explained(name)).receipt.wasted.number] == []


async def test_the_json_of_explain_has_the_receipt() -> None:
    """Each figure with the events that prove it."""
    told = (await explained("retried")).document()["receipt"]

    assert told["helped"] == {"number": 2, "events": [16]}
    assert (told["wasted"], told["paid"]) == ({"number": 0, "events": []}, {})
