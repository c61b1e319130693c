"""The commands with `--store`, as a person types them; no Temporal server is there."""

import ast
import json
import os
import re
import shlex
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

from activities.effects.errors import RefusalCode
from console import app as application
from runtime.keys import add_key
from tests.documentation import sections, tables
from tests.effects.shop import Shop
from tests.processes import ROOT, Processes

NOWHERE = "127.0.0.1:1"
CONSOLE = sections((ROOT / "docs" / "console.md").read_text(encoding="utf-8"))
ERRORS = sections((ROOT / "docs" / "errors.md").read_text(encoding="utf-8"))
SECTION = "Without a server"


@pytest.fixture
def console(shop: Shop) -> Processes:
    return Processes(NOWHERE, shop.folder)


def done(console: Processes, shop: Shop, *words: str, code: int = 0) -> str:
    """What a command prints that ends with this exit code."""
    ended = console.starter(*words, "--store", shop.store)
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def document(console: Processes, shop: Shop, *words: str, code: int = 0) -> dict[str, Any]:
    """The JSON document of a command."""
    found: dict[str, Any] = json.loads(done(console, shop, *words, "--json", code=code))
    assert found["schema"] == 1
    return found


def test_effects_are_listed_with_what_can_be_done(shop: Shop, console: Processes) -> None:
    """The oldest first; of a session, or one by the beginning of its key, as `Effects.calls` has it."""
    doubt = shop.doubtful()
    call = shop.effects.desk.call(doubt)
    text, found = done(console, shop, "effects"), document(console, shop, "effects", doubt[:-2])

    assert re.search(r"_order \(unkeyed\)  was begun by process \d+ on .* which is gone", text)
    assert f"Settle it: `python starter.py settle {doubt} same --store {shop.store}`" in text
    assert text.endswith("2 of 2 wait for an answer.\n")
    assert len(document(console, shop, "effects", "--session", "order 17")["calls"]) == 2
    assert "no calls" in done(console, shop, "effects", "--session", "other")
    assert found == {"schema": 1, **json.loads(call.model_dump_json())} | {"process": found["process"]}


def test_the_command_of_an_error_can_be_pasted_into_a_shell(shop: Shop, console: Processes) -> None:
    """From another folder, for a key with blanks: it settles the call."""
    with shop.effects.scope(key="a 'b'; rm"):
        shop.dies(lambda: shop.order("lamp", "after"))
    told = document(console, shop, "explain", "order 17")["todo"][0]
    [command] = re.findall(r"`(.*?)`", told)[:1]
    here = command.replace("python starter.py", f"{sys.executable} {ROOT / 'starter.py'}")
    ended = subprocess.run(["sh", "-c", here], cwd="/", capture_output=True, text=True, check=False)

    assert ended.returncode == 0, ended.stderr
    assert shop.effects.calls()[0].state == "applied"


def test_a_call_is_settled_with_its_result(shop: Shop, console: Processes) -> None:
    """The next caller gets it; who said it is recorded."""
    key = shop.unknown()
    settled = document(console, shop, "settle", key, "applied", "--result", '{"id": "x"}', "--by", "ann")

    assert (settled["state"], settled["why"]["by"]) == ("applied", "ann")
    assert shop.order("lamp", "after") == {"id": "x"}


REFUSALS = {
    "unknown_key": (("settle", "nothing", "applied"), 2),
    "ambiguous_key": (("settle", "_", "applied"), 2),
    "other_answer": (("settle", "_order-", "same"), 2),
    "already_settled": (("settle", "doubt-", "same"), 1),
    "bad_arguments": (("settle", "_order-", "applied", "--result", "{"), 2),
    "earlier_first": (("settle", "doubt-", "same"), 1),
    "usage": (("settle", "_order-", "perhaps"), 2),
    "no_file": (("export", "_order-", "no/folder/file"), 2),
    "misconfigured": (("undo", "_order-", "no_module:effects"), 2),
}


@pytest.mark.parametrize("code", REFUSALS)
def test_a_refusal_has_a_code_and_a_remedy(shop: Shop, console: Processes, code: str) -> None:
    """As every command of the console."""
    words, exit = REFUSALS[code]
    doubt = shop.doubtful()
    if code == "ambiguous_key":
        shop.order("chair")
    if code == "already_settled":
        shop.effects.settle(doubt, "another")
    error = document(console, shop, *words, code=exit)["error"]

    assert error["code"] == code
    assert error["reason"] and error["remedy"]


@pytest.mark.parametrize(
    ("store", "reason"),
    [
        ("{folder}/typo.db", "There is no store"),
        ("nonsense://x", "nonsense://x is neither SQLite nor PostgreSQL"),
        ("postgresql://u:secret@127.0.0.1:1/db", "u:***@127.0.0.1:1/db cannot be opened (nothing listens there)"),
        ("mysql://x/y", "mysql://x/y is neither SQLite nor PostgreSQL"),
    ],
)
def test_a_store_that_cannot_be_used_is_said(shop: Shop, console: Processes, store: str, reason: str) -> None:
    """With exit code 6, as for a server that does not answer, without its password; and it is not made."""
    ended = console.starter("effects", "--store", store.format(folder=shop.folder))

    assert ended.returncode == 6 and reason in ended.stderr
    assert "Traceback" not in ended.stderr and "secret" not in ended.stderr
    assert not (shop.folder / "typo.db").exists()


def test_an_explanation_and_an_export_have_all_that_is_known(shop: Shop, console: Processes) -> None:
    """An explanation in sentences and as data; an export of one call, of a session, or of all, in a file or not."""
    key, file = shop.unknown(), shop.folder / "calls.json"
    text, found = done(console, shop, "explain", key), document(console, shop, "explain", key)
    done(console, shop, "export", "--session", "order 17", str(file))
    whole = json.loads(file.read_text(encoding="utf-8"))

    assert all(item["what"] in text for item in found["items"])
    assert found["again"]["text"] in text
    assert {*found["items"][0]} == {"what", "why", "decision", "data"}
    assert whole["calls"] == document(console, shop, "export", key)["calls"]
    assert whole["calls"][0]["explain"]["items"]
    assert "exists" in done(console, shop, "export", key, str(file), code=2)


def test_a_redacted_export_has_no_values(shop: Shop, console: Processes) -> None:
    """Equal ones have equal placeholders; function, state, times and the names of arguments stay."""
    doubt = shop.doubtful()
    shop.effects.settle(doubt, "another", by="ann")
    text = done(console, shop, "export", "--redact")
    first, second = json.loads(text)["calls"]

    assert not [word for word in ("lamp", "after", "order 17", "ann", doubt, first["key"][1:]) if f'"{word}' in text]
    assert (first["function"], first["state"], second["about"]) == ("_order", "unknown", first["key"])
    assert first["arguments"].keys() == {"item", "note"}
    assert first["arguments"]["item"] == second["arguments"]["item"] != first["arguments"]["note"]
    assert second["why"]["code"] == "settled"


def test_prune_says_first_what_it_would_delete(shop: Shop, console: Processes) -> None:
    """An hour is the least."""
    shop.order("lamp")
    shop.order("chair")
    shop.effects.close()
    old = "UPDATE replan_ledger SET at = '2020-01-01 00:00:00'"
    with sqlite3.connect(shop.store) as database:
        database.execute(old)
    planned = document(console, shop, "prune", "--older-than", "30", "--dry-run")
    pruned = document(console, shop, "prune", "--older-than", "30")

    assert (planned["pruned"], planned["dry_run"], planned["keys"]) == (1, True, pruned["keys"])
    assert [call.arguments for call in shop.effects.calls()] == [{"item": "chair", "note": ""}]


def test_doctor_checks_a_store(shop: Shop, console: Processes) -> None:
    """Exit code 0 with warnings, 1 if a check failed."""
    shop.unknown()
    checks = {one["name"]: one for one in document(console, shop, "doctor")["checks"]}

    assert checks["store"]["status"] == "ok"
    assert "settle _order-" in checks["unknown"]["remedy"]
    assert console.starter("doctor", "--store", str(shop.folder / "none.db")).returncode == 1


def undone(console: Processes, folder: str, store: str, key: str) -> subprocess.CompletedProcess[str]:
    """Undo a call by the program in a folder."""
    command = [sys.executable, str(ROOT / "starter.py"), "undo", key, "shop_program:effects", "--store", store]
    environment, text = console._environment, True
    return subprocess.run([*command, "--json"], cwd=folder, env=environment, capture_output=True, text=text, timeout=60)


def test_a_call_is_undone_by_the_program_that_made_it(shop: Shop, console: Processes, tmp_path: Path) -> None:
    """Whose module is imported from the current folder; repeated, nothing is called. That of another store is named."""
    (other := tmp_path / "other").mkdir()
    folder, stranger = shop.program(), Shop(other).program()
    made = "from shop_program import order; order('lamp')"
    subprocess.run([sys.executable, "-c", made], cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
    [call] = shop.effects.calls()
    refused = undone(console, stranger, shop.store, call.key)
    ended = [undone(console, folder, shop.store, call.key) for _ in range(2)]

    assert refused.returncode == 2
    assert f"records its effects in sqlite:///{other}/agent.db" in refused.stdout + refused.stderr
    assert [one.returncode for one in ended] == [0, 0], ended[0].stderr
    assert [json.loads(one.stdout)["state"] for one in ended] == ["undone", "undone"]
    assert shop.world == ["order lamp", "cancel lamp lamp"]


def test_an_encrypted_store_needs_its_keyring(tmp_path: Path) -> None:
    """`--keys`, as for encrypted tasks."""
    from replan.effects import Effects

    ring, store = tmp_path / "replan.keys", str(tmp_path / "agent.db")
    add_key(ring)
    effects = Effects(store, session="s", keys=ring)
    effects.unkeyed(os.path.basename)("secret")
    effects.close()
    console = Processes(NOWHERE, tmp_path)
    without = console.starter("effects", "--store", store)
    found = json.loads(console.starter("effects", "--store", store, "--keys", str(ring), "--json").stdout)

    assert without.returncode == 6 and "--keys" in without.stderr
    assert found["calls"][0]["result"] == "secret"


def test_a_variable_does_not_turn_commands_about_tasks_into_those_about_a_store(shop: Shop) -> None:
    """REPLAN_STORE is that of a worker: only `--store` on the line counts."""
    shop.order("lamp")
    console = Processes(NOWHERE, shop.folder, {"REPLAN_STORE": shop.store})
    ended = console.starter("effects", shop.effects.calls()[0].key)

    assert ended.returncode == 6 and "127.0.0.1:1" in ended.stderr


@pytest.mark.parametrize("words", [("effects",), ("explain", "_order"), ("settle", "_order", "applied"), ("doctor",)])
def test_no_command_about_a_store_imports_the_sdk(shop: Shop, words: tuple[str, ...]) -> None:
    """It takes half a second, and nothing of it is needed."""
    shop.order("lamp")
    shop.effects.close()
    code = (
        "import sys; sys.argv = ['starter.py', *sys.argv[1:]]\nfrom console.app import app\nfrom console.entry import"
        " main\nmain(app, sys.argv[1:])\nprint([one for one in ('temporalio', 'fastapi') if one in sys.modules])"
    )
    line = [sys.executable, "-c", code, *words, "--store", shop.store]
    ended = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)

    assert ended.stdout.endswith("[]\n"), ended.stdout + ended.stderr


@pytest.mark.parametrize("name", application.ON_STORE)
def test_every_option_about_a_store_is_explained(name: str) -> None:
    """In one section of the page, and none that is not there."""
    texts = [CONSOLE[SECTION], *([CONSOLE["settle"]] if name == "settle" else [])]
    rows = [row for text in texts for row in tables(text)["option"]]
    named = {option for row in rows for option in re.findall(r"(?<!\S)--[\w-]+", row[0])}
    own = {option for one in application.load_on_store(name).params for option in one.opts if option.startswith("--")}

    assert own - {"--help"} <= named
    assert f"{name} " in texts[-1]


def test_the_options_of_the_section_exist() -> None:
    """Of one of its commands."""
    commands = [application.load_on_store(name) for name in application.ON_STORE]
    named = {option for row in tables(CONSOLE[SECTION])["option"] for option in re.findall(r"--[\w-]+", row[0])}

    assert named <= {option for command in commands for one in command.params for option in one.opts}


def test_every_refusal_is_explained() -> None:
    """Each code, and none that is gone; each is given somewhere."""
    rows = [row[0] for row in tables(ERRORS["Refusals about a store of effects"])["code"]]
    source = [ast.parse(file.read_text(encoding="utf-8")) for file in (ROOT / "activities" / "effects").glob("*.py")]
    given = {
        node.args[0].value
        for module in source
        for node in ast.walk(module)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "EffectRefused"
        if isinstance(node.args[0], ast.Constant)
    }

    assert rows == list(get_args(RefusalCode))
    assert given == set(rows)


def test_a_line_of_the_section_is_a_command(shop: Shop, console: Processes) -> None:
    """As a reader copies it, with the store and the key of here."""
    key = shop.unknown()
    shop.effects.close()
    block = "\n".join(re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / "console.md").read_text(), flags=re.DOTALL))
    lines = [line for line in block.splitlines() if "--store" in line and "--web" not in line and "undo" not in line]
    for line in lines:
        typed = (
            line.replace("agent.db", shop.store).replace("send_mail-1f", key).replace("calls.json", str(shop.folder))
        )
        words = shlex.split(typed.replace(str(shop.folder) + " ", str(shop.folder / "calls.json") + " "))[2:]
        ended = console.starter(*words)
        assert ended.returncode == 0, (line, ended.stdout + ended.stderr)

    assert len(lines) > 5
