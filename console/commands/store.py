"""The commands with `--store`: what a person sees of a store of `replan.effects`, and settles, without a server.

No connection to Temporal is made, and its SDK is not imported.
"""

import asyncio
import getpass
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from pydantic import JsonValue

from activities.effects.calls import State
from activities.effects.database import Database
from activities.effects.desk import UNSAID, CallRecord, Desk, clause_about
from activities.effects.errors import EffectError, EffectRefused
from activities.effects.explanation import explain, items_of, todo_of
from activities.effects.floor import Effects
from activities.effects.upkeep import Pruned, check, prune
from activities.storage.store import StoreUnavailable, spoken
from client import document
from client.problem import Problem, ProblemKind
from client.text import cut, one_line, printable
from console.arguments import read_json
from console.exits import Exit
from console.files import STDOUT, require_writable, write_file
from console.options import part_of_extra, require_extra
from console.render.checks import Check, Status, check_lines
from console.render.terminal import print_lines
from runtime.named_object import LOADABLE, CannotLoad, named_object
from workflows.json_values import canonical
from workflows.people.card import args_text

if TYPE_CHECKING:
    from client.placeholders import Placeholders

MAX_RESULT = 400
PORT = 8301
LOOPBACK = "127.0.0.1"
MIN_DAYS = 1 / 24
CODES_OF_USAGE = ("unknown_key", "ambiguous_key", "other_answer", "bad_result")
"""The codes of refusals that a corrected command line avoids."""

Key = Annotated[str, typer.Argument(metavar="KEY", help="The key of a call, or its beginning.")]
OptionalKey = Annotated[
    str | None, typer.Argument(metavar="KEY", help="Only the call with this key, or its beginning.")
]
OfSession = Annotated[str | None, typer.Option("--session", metavar="NAME", help="Only the calls of this session.")]
Answer = Literal["applied", "not-applied", "same", "another"]


@dataclass(frozen=True)
class StoreOptions:
    """The options that every command about a store has."""

    store: Annotated[
        str,
        typer.Option(
            metavar="STORE", help="The store of `replan.effects`: a SQLite file, or postgresql://USER@HOST/DB."
        ),
    ]
    json: Annotated[bool, typer.Option("--json", help="One JSON document instead of lines.")] = False
    keys: Annotated[
        str | None,
        typer.Option(
            envvar="REPLAN_KEYS", metavar="FILE", help="The keyring of the program, if it encrypts its store."
        ),
    ] = None

    @contextmanager
    def desk(self) -> Iterator[Desk]:
        """The opened store. Inside the block, its errors become Problems."""
        with _problems():
            database = Database(self.store, _cipher(self.keys), must_exist=True)
            try:
                yield Desk(database)
            finally:
                database.close()


class _Refused(Problem):
    """The problem of something that is refused about a call."""

    def __init__(self, refused: EffectRefused) -> None:
        is_usage = refused.code in CODES_OF_USAGE
        kind = ProblemKind.BAD_REQUEST if is_usage else ProblemKind.FAILED
        super().__init__(refused.code, printable(refused.reason), printable(refused.remedy), kind)


@contextmanager
def _problems() -> Iterator[None]:
    try:
        yield
    except EffectRefused as error:
        raise _Refused(error) from error
    except StoreUnavailable as error:
        reason, remedy = _parts(str(error))
        raise Problem("unreachable", reason, remedy, ProblemKind.UNREACHABLE) from error
    except ValueError as error:  # the URL of the store
        reason, remedy = _parts(str(error))
        raise Problem("usage", reason, remedy) from error


def _parts(text: str) -> tuple[str, str]:
    """Reason and remedy of a message that has both."""
    reason, _, remedy = printable(text).removesuffix(".").rpartition(": ")
    return (reason, remedy) if reason else (remedy, "check --store")


def _cipher(keys: str | None) -> Any:
    if not keys:
        return None
    from runtime.keys import BadKeys, cipher_of  # it imports the SDK

    try:
        return cipher_of(keys)
    except BadKeys as error:
        raise Problem("misconfigured", error.reason, error.remedy) from error


def effects_command(
    *,
    key: OptionalKey = None,
    session: OfSession = None,
    web: Annotated[bool, typer.Option("--web", help="Serve them as a page for this machine, until Ctrl-C.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="With --web; 0 takes a free one.")] = PORT,
    options: StoreOptions,
) -> int:
    """Print the calls of a store, the oldest first."""
    with options.desk() as desk:
        if web:
            return _serve(desk, port)
        calls = [desk.find(key)] if key else desk.calls(session)
        if options.json:
            shown = (
                _fields(calls[0]) if key else {"store": spoken(desk.database.url), "calls": list(map(_fields, calls))}
            )
            print(document.of_anything(shown))
            return Exit.COMPLETED
        lines = [line for call in calls for line in _lines(desk, call)]
        where = f"The session {session}" if session else f"The store {spoken(desk.database.url)}"
        print_lines(map(printable, lines or [f"{where} has no calls."]))
        waiting = sum(call.is_unsettled for call in calls)
        if waiting and not key:
            print_lines([f"{waiting} of {len(calls)} wait for an answer."])
        return Exit.COMPLETED


def settle_command(
    *,
    key: Key,
    answer: Annotated[
        Answer,
        typer.Argument(
            metavar="ANSWER", help="applied or not-applied; of a doubtful call same (as the earlier one) or another."
        ),
    ],
    result: Annotated[
        str | None,
        typer.Option(
            metavar="JSON", help="With applied: what the call returned as JSON, or @FILE; the next call gets it."
        ),
    ] = None,
    by: Annotated[str | None, typer.Option(metavar="NAME", help="Who says so; else your login name.")] = None,
    options: StoreOptions,
) -> int:
    """Record what a person says of a call, and print what it is now."""
    value: Any = UNSAID if result is None else read_json(result, "The result is", """write JSON, e.g. '"sent"'""")
    with options.desk() as desk:
        call = desk.settle(desk.find(key).key, answer, result=value, by=by if by is not None else _login())
        if options.json:
            print(document.of_anything(_fields(call)))
        else:
            print_lines(map(printable, _lines(desk, call)))
        return Exit.COMPLETED


def explain_command(*, key: Key, options: StoreOptions) -> int:
    """Print why a call is as it is, and what follows when it is made again."""
    with options.desk() as desk:
        explained = explain(desk, desk.find(key))
        if options.json:
            print(document.of_anything(explained.document()))
            return Exit.COMPLETED
        lines = [explained.summary]
        for item in explained.items:
            lines += [f"- {item.what}", *([f"    {item.why}"] if item.why else [])]
        lines += [f"If the same call comes again: {explained.following.text}", *explained.todo]
        print_lines(map(printable, lines))
        return Exit.COMPLETED


def undo_command(
    *,
    key: Key,
    app: Annotated[
        str, typer.Argument(metavar="MODULE:OBJECT", help="The Effects of the program, with its undo functions.")
    ],
    options: StoreOptions,
) -> int:
    """Undo a call with the `undo=` of its function, which is imported from the current folder."""
    with options.desk() as desk:
        found = desk.find(key).key
        effects = _effects(app)
        with _problems():
            if effects.desk.store_id() != desk.store_id():
                theirs = spoken(effects.desk.database.url)
                raise Problem("usage", f"{app} records its effects in {theirs}, and not in --store", "name that store")
            call = _undo(effects, found)
            if options.json:
                print(document.of_anything(_fields(call)))
            else:
                print_lines(map(printable, _lines(desk, call)))
        return Exit.COMPLETED


def _undo(effects: Effects, key: str) -> CallRecord:
    try:
        with effects:
            return asyncio.run(effects.undo_async(key))
    except (EffectRefused, StoreUnavailable):
        raise
    except EffectError as error:
        reason, remedy = _parts(str(error))
        raise Problem("undo_unknown", reason, remedy, ProblemKind.NEEDS_PERSON) from error
    except Exception as error:  # of the user's function
        reason = f"The undo of {key} failed ({type(error).__name__}: {one_line(str(error))})"
        raise Problem("undo_failed", reason, "repair the cause and repeat the command", ProblemKind.FAILED) from error


def _effects(name: str) -> Effects:
    """The Effects that MODULE:OBJECT names; raises Problem if there is none."""
    try:
        found = named_object(name)
    except CannotLoad as error:
        reason = f"{name} cannot be loaded ({one_line(str(error))})"
        raise Problem("misconfigured", reason, LOADABLE) from error
    if not isinstance(found, Effects):
        reason = f"{name} is a {type(found).__name__}, and no Effects of replan.effects"
        raise Problem("misconfigured", reason, "name the object that `Effects(...)` made, as in my_agent:effects")
    return found


def export_command(
    *,
    key: OptionalKey = None,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A new file; `-` is standard output.")] = STDOUT,
    session: OfSession = None,
    redact: Annotated[
        bool, typer.Option("--redact", help="Replace values by placeholders, so that the file can be given away.")
    ] = False,
    options: StoreOptions,
) -> int:
    """Write calls with their explanations as one JSON document."""
    if session is not None and key is not None and file != STDOUT:
        raise Problem("usage", "export takes a KEY or --session, not both", "leave one out")
    if session is not None and key is not None:  # the only word is the file
        file, key = key, None
    require_writable(file)
    from client.placeholders import Placeholders  # its patterns take a tenth of a second, which `effects` has not

    with options.desk() as desk:
        calls = [desk.find(key)] if key else desk.calls(session)
        names = Placeholders() if redact else None
        exported = [_exported(desk, call, names) for call in calls]
        at = datetime.now(UTC).isoformat()
        whole = {"store_id": desk.store_id(), "exported_at": at, "redacted": redact, "calls": exported}
    text = document.of_anything(whole)
    if file == STDOUT:
        print(text)
        return Exit.COMPLETED
    write_file(text, file)
    line = f"{len(calls)} calls in {file}{', redacted' if redact else ''}"
    print(document.of_anything({"file": file, "calls": len(calls), "redacted": redact}) if options.json else line)
    return Exit.COMPLETED


def _exported(desk: Desk, call: CallRecord, names: "Placeholders | None") -> dict[str, Any]:
    """A call with its explanation, with placeholders in place of values if `names` makes them."""
    explained = explain(desk, call).document()
    if names is None:
        return {**_fields(call), "explain": explained}
    shown = redacted(call, names)
    items = [item.document() for item in items_of(shown)]
    return {**_fields(shown), "explain": {"items": items, "again": explained["again"]["decision"]}}


def redacted(call: CallRecord, names: "Placeholders") -> CallRecord:
    """A call without its values: function, effect, state, times, counts and the names of arguments stay."""

    def name(text: str | None) -> str | None:
        return names.text(text) if text is not None else None

    arguments = {one: names.data(value) for one, value in (call.arguments or {}).items()}
    process = call.process.model_copy(update={"host": name(call.process.host)}) if call.process else None
    keys = ("key", "session", "about", "caller_key", "run", "call", "undone_by")
    return call.model_copy(
        update={
            **{field: name(getattr(call, field)) for field in keys},
            "arguments": arguments if call.arguments is not None else None,
            "result": names.data(call.result),
            "process": process,
            "why": _redacted_why(call.why, names) if call.why else None,
        }
    )


KEPT_OF_WHY = ("code", "at", "was", "standing")


def _redacted_why(why: Mapping[str, JsonValue], names: "Placeholders") -> dict[str, JsonValue]:
    found = dict[str, JsonValue]()
    for name, value in why.items():
        match value:
            case dict():
                found[name] = _redacted_why(value, names)
            case str() if name not in KEPT_OF_WHY:
                found[name] = names.text(value)
            case _:
                found[name] = value
    return found


def prune_command(
    *,
    days: Annotated[
        float, typer.Option("--older-than", metavar="DAYS", min=0, help="Only what is older; an hour at least.")
    ] = 30,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be deleted, and delete nothing.")] = False,
    options: StoreOptions,
) -> int:
    """Delete settled calls that are old, and what is left of processes that are gone."""
    with options.desk() as desk:
        done = prune(desk, max(days, MIN_DAYS), is_dry_run=dry_run)
    if options.json:
        fields = {"pruned": len(done.calls), "kept": done.kept, "owners": done.owners, "files": len(done.files)}
        keys = [call.key for call in done.calls]
        print(document.of_anything({**fields, "before": done.before.isoformat(), "dry_run": dry_run, "keys": keys}))
        return Exit.COMPLETED
    print_lines(_pruned_lines(done, is_dry_run=dry_run))
    return Exit.COMPLETED


def _pruned_lines(done: Pruned, *, is_dry_run: bool) -> Iterator[str]:
    if is_dry_run:
        yield from (printable(f"{_moment(call.at)}  {call.function}  {call.key}") for call in done.calls)
    verb = "would be pruned" if is_dry_run else "pruned"
    what = f"{len(done.calls)} calls, {done.owners} processes and {len(done.files)} lock files"
    yield f"{verb}: {what}, of before {done.before:%Y-%m-%d %H:%M} UTC"
    if done.kept:
        yield f"kept {done.kept} calls that are as old: they are not settled, or another call or the store needs them"


def doctor_command(*, options: StoreOptions) -> int:
    """Check a store, and name what waits for a person."""
    with _problems():
        database = Database(options.store, _cipher(options.keys), must_exist=True)
    try:
        found = [Check(one.name, Status(one.status), one.found, one.remedy) for one in check(Desk(database))]
    finally:
        database.close()
    if options.json:
        print(document.of_anything({"checks": [vars(one) for one in found]}))
    else:
        print("\n".join(check_lines(found)))
    return Exit.FAILED if any(one.status is Status.FAIL for one in found) else Exit.COMPLETED


def _serve(desk: Desk, port: int) -> int:
    require_extra("--web", "web")
    from console.serving.access import TOKEN, Access  # their packages are optional
    from console.serving.connections import most_connections
    from console.serving.listening import serve

    make_store_app = part_of_extra("--web", "store_page").make_store_app
    desk.store_id()  # opens the store, so that what is wrong with it is said now
    access = Access(os.environ.get(TOKEN) or None)
    app = make_store_app(desk, access)

    def ready(url: str) -> None:
        how = "with a token" if access.token else "for this machine only"
        print(f"ready  {url}  {how}  store {spoken(desk.database.url)}", flush=True)

    asyncio.run(serve(app, LOOPBACK, port, most_connections(), on_ready=ready, on_stop=lambda: None))
    print("stopped", flush=True)
    return Exit.COMPLETED


def _fields(call: CallRecord) -> dict[str, Any]:
    return call.model_dump(mode="json")


def _lines(desk: Desk, call: CallRecord) -> list[str]:
    """A call in a few lines."""
    kind = f" ({call.effect})" if call.effect else ""
    often = f", attempt {call.attempts}" if call.attempts > 1 else ""
    lines = [f"{_moment(call.at)}  {call.function}{kind}  {clause_about(call)}{often}"]
    lines.append(f"    key {call.key}, session {call.session}")
    if call.arguments:
        lines.append(f"    with {one_line(args_text(call.arguments))}")
    if call.has_result:
        lines.append(f"    {cut(one_line(canonical(call.result)), MAX_RESULT)}")
    if call.joined:
        lines.append(f"    later calls that were taken for it: {call.joined}")
    if call.why and call.why.get("reason") and call.state is not State.APPLIED:
        lines.append(f"    {one_line(str(call.why['reason']))}")
    return [*lines, *(f"    {sentence}" for sentence in todo_of(desk, call))]


def _moment(when: datetime) -> str:
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"


def _login() -> str:
    with suppress(OSError, KeyError):
        return getpass.getuser()
    return ""
