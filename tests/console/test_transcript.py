"""`transcript`: the conversation of a real task, with a model behind a server, and how each part of it is shown."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from console.commands import transcript
from evals.fakes.model_api import ModelApi, running
from evals.fakes.script import Delayed, ModelCall, calls, finishes, proposes, step
from runtime.dev_server import DevServer
from tests import documentation
from tests.console.terminal import Terminal, starter
from tests.processes import ROOT, Processes
from tests.providers.planning import APIS, PROVIDERS, api_of
from tests.providers.test_worker import DEFAULTS, environment
from workflows.inquiries import CallCard, ResultCard, TurnCard

KEYS = documentation.printed()["transcript"]
QUEUE = "transcripts"
ACTS = calls(
    ModelCall("calculate", {"expression": "6 * 7"}), ModelCall("calculate", {"expression": "1 + 1"}), text="Both now."
)
ENDS = calls(ModelCall("finish", {"answer": 42}))
PLANS = proposes(step("sum", "calculate", expression="18% of 2450"))


@pytest.fixture(params=PROVIDERS, scope="module")
async def api(request: pytest.FixtureRequest) -> AsyncIterator[ModelApi]:
    api = api_of(request.param, ACTS)
    api.model = DEFAULTS[request.param]
    async with running(api):
        yield api


@pytest.fixture(scope="module")
def desk(server: DevServer, api: ModelApi, tmp_path_factory: pytest.TempPathFactory, request: Any) -> Any:
    """A worker whose model it is, and commands for it."""
    provider = next(name for name, form in APIS.items() if form is type(api))
    processes = Processes(server.address, tmp_path_factory.mktemp("transcripts"), environment(provider, api))
    with processes.worker("--queue", QUEUE):
        yield processes


async def done(desk: Processes, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of the console, while the model's server goes on in this process."""
    return await asyncio.to_thread(desk.starter, *words, "--queue", QUEUE)


async def task(desk: Processes, api: ModelApi, *script: Any, options: tuple[str, ...] = ()) -> str:
    """Run a task that this script answers; its id."""
    api.script = [*script]
    ran = json.loads((await done(desk, "--task", "find the answer", "--json", *options)).stdout)
    assert (ran["status"], api.violations) == ("completed", []), ran["reason"]
    return str(ran["task_id"])


async def test_a_conversation_is_printed_turn_by_turn(desk: Processes, api: ModelApi) -> None:
    """What the model was told, said and called, and what came back: plain lines off a terminal, in their order."""
    schema = desk.folder / "schema.json"
    schema.write_text('{"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"]}')
    id = await task(desk, api, ACTS, ENDS, options=("--strategy", "react", "--result-schema", str(schema)))
    said = (await done(desk, "transcript", id)).stdout.splitlines()
    told = [line for line in said if line.startswith("  ") and not line.startswith("   ")]

    assert said[0].startswith(f"{id}  2 turns, ") and said[1].startswith("Turn 1  ") and "\x1b" not in "".join(said)
    assert [line[2] for line in told] == [">", "<", "→", "→", "←", "←", ">", "→"]
    assert "      find the answer" in said and "      Both now." in said and "      expression=6 * 7" in said
    assert told[-1] == "  → finish" and said[-1] == "      answer=42"


@pytest.mark.full
async def test_a_proposal_that_was_rejected_did_not_fail(desk: Processes, api: ModelApi) -> None:
    """Nothing of it was run, so nothing can have failed: the call of the model was rejected."""
    id = await task(desk, api, proposes(step("sum", "calculat", expression="1 + 1")), PLANS, finishes("441"))
    said = (await done(desk, "transcript", id)).stdout.splitlines()

    assert [line for line in said if "✗" in line] == ["  ✗ could not be used", "  ✗ propose_plan was rejected"]


async def test_a_conversation_that_is_carried_on_begins_with_the_earlier_task(desk: Processes, api: ModelApi) -> None:
    """`start --continue`: the turns of both, and which is whose; the model was told the earlier ones, too. As one
    document: with the plan as the model wrote it, whole, and the keys that docs/console.md names."""
    earlier = await task(desk, api, PLANS, finishes("441"))
    document = json.loads((await done(desk, "transcript", earlier, "--json")).stdout)
    later = await task(desk, api, finishes("still 441"), options=("--continue", earlier))
    said = (await done(desk, "transcript", later)).stdout.splitlines()
    [first, second] = document["turns"]

    assert [set(document), set(first)] == [{"schema", *KEYS}, {*KEYS["turns"]}]
    assert (document["task_id"], document["tasks"]) == (earlier, {document["run"]: earlier})
    assert first["calls"][0]["args"] == {"steps": [step("sum", "calculate", expression="18% of 2450")]}
    assert "441" in second["results"][0]["text"] and second["calls"][0]["name"] == "finish"
    assert said[0].startswith(f"{later}  3 turns, ") and said[0].endswith(f"; it continues {earlier}")
    assert said.index(f"Continued by {later}") > said.index("      result=441")
    assert "18% of 2450" in json.dumps(api.bodies[-1])


@pytest.mark.full
async def test_what_a_cancelled_task_had_done_is_told_to_the_next(desk: Processes, api: ModelApi) -> None:
    """The model had called for it, and died before it was told what came of it."""
    api.script = [PLANS, Delayed(60)]
    id = f"cut-short-by-{type(api).__name__.lower()}"
    await done(desk, "--task", "find the answer", "--id", id, "--detach")
    async with asyncio.timeout(60):
        while json.loads((await done(desk, "show", id, "--json")).stdout)["spent"]["tool_calls"] == 0:
            await asyncio.sleep(0.1)
    await done(desk, "cancel", id)
    await done(desk, "show", id, "--follow")
    await task(desk, api, finishes("441"), options=("--continue", id))

    assert "sum is finished" in json.dumps(api.bodies[-1])


@pytest.mark.full
async def test_a_terminal_shows_it_in_colours(desk: Processes, api: ModelApi) -> None:
    """In its width: signs and words have colours, what was said has none."""
    id = await task(desk, api, PLANS, finishes("word " * 40))
    shown = {"TEMPORAL_ADDRESS": desk.address}
    with Terminal(starter(ROOT, "transcript", id), shown, ROOT, (60, 40)) as terminal:
        assert await terminal.ended() == 0

    assert "\x1b[32m→ propose_plan\x1b[0m" in terminal.raw and "\x1b[36m> told\x1b[0m" in terminal.raw
    assert max(map(len, terminal.shown.text)) <= 60


async def test_a_task_that_no_model_planned_has_none(desk: Processes) -> None:
    """One sentence and exit code 0: nothing is wrong with it."""
    ran = json.loads((await done(desk, "--task", "calculate 1 + 1", "--planner", "offline", "--json")).stdout)
    said = await done(desk, "transcript", ran["task_id"])

    assert (said.returncode, said.stderr, said.stdout.count("\n")) == (0, "", 1)
    assert said.stdout.startswith(f"{ran['task_id']} has no conversation in the store of its worker: no model")


@pytest.mark.full
async def test_without_a_worker_it_says_so(server: DevServer, tmp_path: Path) -> None:
    """A console never opens the store."""
    processes = Processes(server.address, tmp_path)
    await asyncio.to_thread(processes.starter, "--task", "x", "--id", "nobody-s", "--queue", "nobody-there", "--detach")
    said = await asyncio.to_thread(processes.starter, "transcript", "nobody-s")

    assert (said.returncode, said.stdout) == (6, "")
    assert said.stderr.startswith("No worker answers on queue nobody-there: start one with")


AT = datetime(2026, 11, 21, 12, 4, 11, tzinfo=UTC)
NAMES = {"run-1": "book-a-slot", "run-2": "go-on"}
LONG = "word " * 400


def card(turn: int = 1, **more: Any) -> TurnCard:
    return TurnCard.model_validate({"turn": turn, "task": "run-1", "planner": "openai:x", "at": AT, **more})


def call(id: str, name: str, **args: Any) -> CallCard:
    return CallCard(id=id, name=name, args=args)


def lines(*cards: TurnCard, full: bool = False) -> list[str]:
    return list(transcript.turn_lines(cards, NAMES, full=full))


def test_a_turn_says_who_said_what() -> None:
    """What the model was told, what it said, what it called, and what became of that, each by a sign and a word."""
    asked = card(
        told="The task:\nbook", said="At once.", calls=(call("c1", "book_slot", at="14:00", seats=2),), tokens=9
    )
    refused = card(
        2, results=(ResultCard(call_id="c1", text="It is taken.", is_error=True),), at=AT + timedelta(hours=1)
    )
    done = card(3, results=(ResultCard(call_id="c1", text="It is booked."),), at=AT + timedelta(days=1))

    assert lines(asked, refused, done) == [
        "Turn 1  openai:x  2026-11-21 12:04:11Z  9 tokens",
        "  > told",
        "      The task:",
        "      book",
        "  < said",
        "      At once.",
        "  → book_slot",
        "      at=14:00, seats=2",
        "Turn 2  openai:x  13:04:11Z",
        "  ✗ book_slot failed",
        "      It is taken.",
        "Turn 3  openai:x  2026-11-22 12:04:11Z",
        "  ← book_slot",
        "      It is booked.",
    ]


def test_calls_of_one_kind_are_told_apart() -> None:
    """By the provider's id, which the results have too; a provider that uses its ids again means the newest."""
    two = card(calls=(call("c1", "get_price", sku="A"), call("c2", "get_price", sku="B")))
    results = ResultCard(call_id="c2", text="9"), ResultCard(call_id="c1", text="8")
    back, again = card(2, results=results, calls=two.calls[:1]), card(3, results=results[1:])

    assert [line.strip() for line in lines(two, back, again) if "get_price" in line] == [
        *("→ get_price  c1", "→ get_price  c2"),
        *("← get_price  c2", "← get_price  c1", "→ get_price"),
        "← get_price",
    ]


def test_a_plan_is_a_line_for_each_step() -> None:
    """Its id, its kind, its arguments, what it needs."""
    steps = [
        {"id": "price", "kind": "get_price", "args": {"sku": "A-17"}},
        {"id": "sum", "kind": "calculate", "args": {"expression": {"$from": "price"}}, "needs": ["price"]},
    ]

    assert lines(card(calls=(call("c1", "propose_plan", because="It is cheap. " * 9, steps=steps),)))[2:] == [
        "      because=" + ("It is cheap. " * 9).strip(),
        "      steps:",
        "        price  get_price sku=A-17",
        '        sum  calculate expression={"$from":"price"}, needs=["price"]',
    ]


def test_long_text_is_folded_and_says_how_much_there_is() -> None:
    """By characters and by lines; `--full` shows all of it."""
    long = card(results=(ResultCard(call_id="c1", text=LONG),), told="\n".join(map(str, range(20))))
    folded, full = lines(long), lines(long, full=True)

    assert [line for line in folded if "…" in line] == [
        "      … 1,400 more characters of 2,000: --full",
        "      … 34 more characters of 49: --full",
    ]
    assert f"      {LONG}".rstrip() in full and "      19" in full


def test_the_marks_around_foreign_text_are_shown_with_full_only() -> None:
    """They are for the model."""
    told = card(told='Its result:\n<data from="page">\n"<data from=x>"\n</data>\nSeen <data from="args">\n1\n</data>:')

    assert lines(told)[2:] == ["      Its result:", '      "<data from=x>"', "      Seen 1:"]
    assert '      <data from="page">' in lines(told, full=True) and "      </data>:" in lines(told, full=True)


@pytest.mark.parametrize("field", ["told", "said", "planner", "result", "args", "name", "id", "rejected"])
def test_foreign_text_cannot_draw_on_the_terminal(field: str) -> None:
    """Whoever wrote it: no colour, no bell, no cursor; and no line of it looks like one of ours."""
    evil = "a\x1b[31m\x07\r\n  < said\n\x9b2J\u202eb"
    given: dict[str, Any] = {
        "result": {"results": (ResultCard(call_id="c1", text=evil),)},
        "args": {"calls": (call("c1", "k", x=evil),)},
        "name": {"calls": (call("c1", evil),)},
        "id": {"results": (ResultCard(call_id=evil, text="x"),)},
        "rejected": {"rejected": (evil,)},
    }
    shown = lines(card(**given.get(field, {field: evil})), full=True)

    assert all(line.isprintable() for line in shown)
    assert field == "said" or "  < said" not in shown


SHOWN: dict[str, tuple[list[TurnCard], list[str]]] = {
    "what could not be used": (
        [card(said="I would", stop="cut", rejected=("it was cut off",)), card(2, told="x", stop="refused")],
        [
            *("  < said", "      I would", "  ✗ cut off at its limit, so nothing of it was used"),
            *("  ✗ could not be used", "      it was cut off"),
            *("Turn 2  openai:x  12:04:11Z", "  > told", "      x", "  ✗ declined to answer"),
        ],
    ),
    "another branch, where it begins": (
        [card(said="x"), card(2, branch=1, said="y"), card(3, branch=1, said="z")],
        [
            *("  < said", "      x", "Turn 2, branch 1, after a reset  openai:x  12:04:11Z", "  < said", "      y"),
            *("Turn 3, branch 1  openai:x  12:04:11Z", "  < said", "      z"),
        ],
    ),
    "a summary": (
        [card(said="x"), card(41, upto=40, told="Told: much", said="It is 441.")],
        [
            *("  < said", "      x", "Summary of the oldest 40 turns  openai:x  12:04:11Z"),
            *("  > asked to summarise", "      Told: much", "  ≡ in their place", "      It is 441."),
        ],
    ),
    "the turns of an earlier task": (
        [card(said="x"), card(task="run-2", said="y")],
        ["  < said", "      x", "Continued by go-on", "Turn 1  openai:x  12:04:11Z", "  < said", "      y"],
    ),
    "no model, but a plan by hand": ([card()], ["  · no model was asked"]),
}


@pytest.mark.parametrize(("cards", "said"), SHOWN.values(), ids=SHOWN)
def test_what_is_special_about_a_turn_is_shown(cards: list[TurnCard], said: list[str]) -> None:
    """Why a reply could not be used; how many turns a summary stands for; who carried turns on."""
    assert lines(*cards)[1:] == said
    assert transcript.is_conversation(cards) == (len(cards) > 1)


def test_the_tally_counts_summaries_apart() -> None:
    """They are no turns, and cost tokens, too."""
    assert transcript.tally([card(tokens=1000), card(2, tokens=1), card(3, upto=1, tokens=3)]) == (
        "2 turns, 1 summary, 1,004 tokens"
    )
