"""`start`: give a task to the workers and follow it; `--continue` carries on the conversation of an earlier task."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic import JsonValue, TypeAdapter, ValidationError

from client import document, people, start as starting
from client.continuing import continued
from client.encrypted import require_key_of_queue
from client.problem import Problem
from client.text import cut, one_line
from console.arguments import read_duration, read_effect, read_input
from console.commands import show
from console.commands.dry_run import show_plan
from console.completion import task_ids
from console.options import Common, Identity, Jsonl, Stream, voucher_of
from runtime.settings_file import BadSettings, Profile, SettingsFile
from runtime.validation import first_mistake
from workflows.account.task import MAX_REPLY, MIN_REPLY
from workflows.json_values import items
from workflows.plans.demonstration import MAX_DEMONSTRATION_BYTES, Demonstration
from workflows.text import NOT_TEXT, decode_text

TEXT_BESIDE_PLAN = "--plan runs as it is written; the text of --task names the task, and later plans are made for it."
NOBODY_IS_ASKED = (
    "note: nobody is asked here, so the task ends at the first call that needs an approval; with `--on-escalation wait`"
    " it waits for an answer"
)


async def start_command(
    *,
    task: Annotated[
        str | None, typer.Option(help="What to do, in words; beside --plan, its name and the goal of later plans.")
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(help="A hand-written plan (JSON), used instead of the planner's; it may say what comes next."),
    ] = None,
    id: Annotated[str | None, typer.Option("--id", help="The id of the task; else made from its text.")] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Start a new task under the id of one that has ended.")
    ] = False,
    documents: Annotated[str | None, typer.Option(help="A folder below the worker's --documents.")] = None,
    strategy: Annotated[
        Literal["plan", "react"] | None,
        typer.Option(help="plan: the model proposes whole plans (default). react: it makes one move at a time."),
    ] = None,
    planner: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Planners in the order to try; else the worker's own.")
    ] = None,
    effort: Annotated[
        Literal["low", "medium", "high"] | None,
        typer.Option(help="How much the planner's model reasons; else as the worker says, or as usual for the model."),
    ] = None,
    reply_tokens: Annotated[
        int | None,
        typer.Option(
            min=MIN_REPLY,
            max=MAX_REPLY,
            metavar="N",
            help="The most tokens of a reply, reasoning included; else 16000.",
        ),
    ] = None,
    calls: Annotated[
        Literal["native", "text"] | None,
        typer.Option(help="How models make their calls: by the API or as text; else as the worker knows."),
    ] = None,
    demonstrations: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With react: a JSON file of examples, tasks with the calls that solve them."),
    ] = None,
    result_schema: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A JSON schema for the answer; else the answer is text.")
    ] = None,
    continues: Annotated[
        str | None,
        typer.Option(
            "--continue",
            metavar="ID",
            help="Continue the conversation of an ended task; or of `newest`.",
            autocompletion=task_ids,
        ),
    ] = None,
    tool_calls: Annotated[int | None, typer.Option(min=1, metavar="N", help="Limit of tool calls; else 100.")] = None,
    replans: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Limit of new plans after a rejection: 2, with react 20.")
    ] = None,
    tokens: Annotated[int | None, typer.Option(min=1, metavar="N", help="Limit of model tokens; else 500000.")] = None,
    usd: Annotated[
        float | None, typer.Option(metavar="USD", help="Limit of model costs in US dollars; else none.")
    ] = None,
    deadline: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="The task ends at the latest after this time, e.g. 90, 5m, 1h30m; else no limit."
        ),
    ] = None,
    settings: Annotated[
        Path | None,
        typer.Option(
            envvar="REPLAN_SETTINGS", metavar="FILE", help="The settings file with other limits; else replan.toml."
        ),
    ] = None,
    on_escalation: Annotated[
        Literal["wait", "end", "undo"] | None,
        typer.Option(
            help="When the task needs a person: wait for an answer (at a terminal), end (else), or end and undo."
        ),
    ] = None,
    approve: Annotated[
        Literal["declared", "effects", "all"],
        typer.Option(help="Which calls a person must approve: as tools declare, or also all with an effect, or all."),
    ] = "declared",
    answer_within: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long it waits for an answer, e.g. 30m, 2d; else 3 days.")
    ] = None,
    untrusted_input: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="A text that the task is about, e.g. a mail; - reads standard input."),
    ] = None,
    contract: Annotated[
        list[str] | None,
        typer.Option(
            metavar="EFFECT",
            help="What the task may do after it has read untrusted content, e.g. 'pay iban=DE89 amount<=50'.",
        ),
    ] = None,
    identity: Identity = None,
    detach: Annotated[bool, typer.Option("--detach", help="Start the task and return at once.")] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Show the plan, what it would change and before which steps it asks; run nothing."
        ),
    ] = False,
    jsonl: Jsonl = False,
    stream: Stream = False,
    common: Common,
) -> int:
    show.check(common, jsonl=jsonl, stream=stream, follows=not (detach or dry_run))
    if demonstrations and strategy != "react":
        raise Problem("usage", "--demonstrations are examples of single moves", "add --strategy react")
    if detach and dry_run:
        raise Problem("usage", "--detach starts a task and --dry-run starts none", "give one of them")
    if id is not None:
        starting.check_id(id)
    until = read_duration("--deadline", deadline)
    limits = {"tool_calls": tool_calls, "replans": replans, "tokens": tokens, "usd": usd, "deadline": until}
    profile = profile_name(common, detach=detach, jsonl=jsonl)
    new_task = starting.build_task(
        task,
        plan,
        documents=documents or None,
        strategy=strategy,
        planner=planner,
        effort=effort,
        reply_tokens=reply_tokens,
        calls=calls,
        demonstrations=read_demonstrations(demonstrations) if demonstrations is not None else (),
        result_schema=read_schema(result_schema) if result_schema is not None else None,
        on_escalation=on_escalation or ("wait" if profile == "interactive" else "end"),
        approve=approve,
        answer_within=read_duration("--answer-within", answer_within),
        untrusted_input=read_input(untrusted_input) if untrusted_input else "",
        contract=tuple(map(read_effect, contract or ())),
        by=people.login_name(),
        limits=limits_for(settings, profile, limits),
    )
    if task and plan and not (common.json or jsonl):
        print(TEXT_BESIDE_PLAN, file=sys.stderr)
    voucher = voucher_of(identity)
    client = await common.connected()
    await require_key_of_queue(client, common.queue)
    if continues is not None:
        new_task = await continued(client, new_task, continues)
    if dry_run:
        return await show_plan(client, new_task, common)
    if on_escalation is None and approve != "declared" and profile == "background":
        print(NOBODY_IS_ASKED, file=sys.stderr)
    handle = await starting.start(client, new_task, id=id, queue=common.queue, again=again, voucher=voucher)
    if detach:
        return await show.detached(client, handle, common)
    return await show.follow_task(client, handle, common, voucher, jsonl=jsonl, stream=stream)


def limits_for(path: Path | None, profile: Profile, options: Mapping[str, Any]) -> dict[str, Any]:
    """The limits of a task, by the command line and the settings file. Raises Problem if the file cannot be used."""
    try:
        return SettingsFile.read(path).limits(profile, options)
    except BadSettings as wrong:
        raise Problem("bad_settings", wrong.reason, wrong.remedy) from wrong


def profile_name(common: Common, *, detach: bool, jsonl: bool) -> Profile:
    """`interactive` if a person waits for the task at a terminal, else `background`."""
    return "interactive" if common.is_interactive and not (jsonl or detach) else "background"


MAX_SCHEMA = 32 * 1024
"""Bytes: the largest schema file. The limit is low because each request to the model contains the schema."""
MAX_WORDS = 200
"""The most terminal cells for the reason why a schema cannot be used; the rest is cut off."""
AN_EXAMPLE = """write a JSON schema, e.g. {"type": "object", "properties": {"total": {"type": "number"}}}"""


_DEMONSTRATIONS = TypeAdapter[tuple[Demonstration, ...]](tuple[Demonstration, ...])
AN_EXAMPLE_TASK = "docs/models.md#demonstrations shows one"


def read_demonstrations(path: Path) -> tuple[Demonstration, ...]:
    """Read a file of demonstrations. Raises Problem if it cannot be read, holds something else, or is too large."""
    name = f"The demonstrations {str(path)!r}"
    try:
        text = path.read_bytes()
        if len(text) > MAX_DEMONSTRATION_BYTES:
            remedy = f"make it smaller than {MAX_DEMONSTRATION_BYTES}: the model reads it each time"
            raise Problem("bad_demonstrations", f"{name} have {len(text)} bytes", remedy)
        return _DEMONSTRATIONS.validate_json(decode_text(text))
    except OSError as error:
        reason = f"{name} cannot be read ({error.strerror})"
        raise Problem("no_demonstrations", reason, "give --demonstrations a file that can be read") from error
    except UnicodeDecodeError as error:
        raise Problem("bad_demonstrations", f"{name} are not usable: {NOT_TEXT}", "save them as UTF-8") from error
    except ValidationError as error:
        reason = f"{name} are not usable: {first_mistake(error, 'the file')}"
        raise Problem("bad_demonstrations", reason, AN_EXAMPLE_TASK) from error


def read_schema(path: Path) -> dict[str, JsonValue]:
    """Read the JSON schema of an answer. Raises Problem if it cannot be read, is no JSON schema, or is too large."""
    schema = _parsed(path)
    if not isinstance(schema, dict):
        raise _unusable(path, "it is not a JSON object", AN_EXAMPLE)
    try:
        _check(path, schema)
    except RecursionError as error:
        raise _unusable(path, "it refers to itself without end, or is nested too deeply", "make it flatter") from error
    return schema


def _parsed(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            read = file.read(MAX_SCHEMA + 1)  # one byte more tells that the file is too large
    except OSError as error:
        reason = f"The schema {str(path)!r} cannot be read ({error.strerror})"
        raise Problem("no_schema", reason, "give --result-schema a file that can be read") from error
    if len(read) > MAX_SCHEMA:
        raise _unusable(path, f"it has more than {MAX_SCHEMA} bytes", "make it smaller: the model reads it each time")
    try:
        return document.parsed(decode_text(read))
    except RecursionError as error:
        raise _unusable(path, "it is nested too deeply", "make it flatter") from error
    except ValueError as error:
        raise _unusable(path, f"it is not JSON ({error})", AN_EXAMPLE) from error


def _check(path: Path, schema: dict[str, Any]) -> None:
    """Raise Problem if the schema is invalid or a `$ref` has no target, RecursionError if references never end."""
    from jsonschema import Draft202012Validator, SchemaError  # type: ignore[import-untyped]  # ships no types
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    try:
        Draft202012Validator.check_schema(schema)  # the dialect with which the worker validates the answer
    except SchemaError as error:
        where = ".".join(map(str, error.absolute_path)) or "the whole"
        raise _unusable(path, f"{where}: {error.message}", "fix it; --result-schema takes a JSON schema") from error
    root = DRAFT202012.create_resource(schema)
    resolver = Registry().with_resource("", root).crawl().resolver()
    for reference in _references(schema):
        try:
            resolver.lookup(reference)
        except Unresolvable as error:
            remedy = "refer only to what is in the file, as in #/$defs/NAME"
            raise _unusable(path, f"$ref {reference!r} refers to nothing", remedy) from error
    Draft202012Validator(schema).is_valid(None)  # an endless reference raises RecursionError only here


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict) and isinstance(value.get("$ref"), str):
        yield value["$ref"]
    for item in items(value):
        yield from _references(item)


def _unusable(path: Path, wrong: str, remedy: str) -> Problem:
    return Problem("bad_schema", f"The schema {str(path)!r} is not usable: {cut(one_line(wrong), MAX_WORDS)}", remedy)
