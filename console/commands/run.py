"""The commands that do something: `start`, `call`."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from console.options import Common, Jsonl, command


async def start(
    *,
    task: Annotated[str | None, typer.Option(help="What to do, in words.")] = None,
    plan: Annotated[Path | None, typer.Option(help="A hand-written plan: JSON, used instead of the planner's.")] = None,
    id: Annotated[str | None, typer.Option("--id", help="The id of the task; else made from its words.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Start anew under the id of a task that has ended.")] = False,
    documents: Annotated[str | None, typer.Option(help="A folder below the worker's --documents.")] = None,
    strategy: Annotated[
        Literal["plan", "react"] | None,
        typer.Option(help="A whole plan at a time (plan, the default), or one move of a model (react)."),
    ] = None,
    planner: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Who plans, as the worker's --planner; else the worker's own.")
    ] = None,
    result_schema: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A JSON schema that the answer keeps; else it is a text.")
    ] = None,
    continues: Annotated[
        str | None,
        typer.Option("--continue", metavar="ID", help="Carry on the conversation of an ended task; or `newest`."),
    ] = None,
    tool_calls: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Calls of tools that it may make: 25 at a terminal, else 200."),
    ] = None,
    replans: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="New plans that it may make after a refusal: 2, with react 20."),
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Tokens of models that it may use: 50000 at a terminal, else 500000."),
    ] = None,
    usd: Annotated[
        float | None, typer.Option(metavar="USD", help="US dollars that models may cost; else no limit.")
    ] = None,
    deadline: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="When it ends at the latest; else no limit.")
    ] = None,
    settings: Annotated[
        Path | None,
        typer.Option(envvar="REPLAN_SETTINGS", metavar="FILE", help="Other limits than these; else replan.toml."),
    ] = None,
    on_escalation: Annotated[
        Literal["end", "undo"],
        typer.Option(help="What becomes of its effects when it needs a person: stay, or undone."),
    ] = "end",
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="KINDS", help="Kinds that may change the world even after foreign text was read."),
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Start it and return at once.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan and what it would change, run nothing; JSON for --plan.")
    ] = False,
    jsonl: Jsonl = False,
    common: Common,
) -> int:
    """Start a task and follow it."""
    from client import start as starting
    from console.commands import show
    from console.commands import start as budgets

    show.check(common, jsonl=jsonl, follows=not (detach or dry_run))
    starting.check(id, detach=detach, dry_run=dry_run)
    given = {"tool_calls": tool_calls, "replans": replans, "tokens": tokens, "usd": usd, "deadline": deadline}
    limits = budgets.limits_for(settings, budgets.profile_name(common, detach=detach, jsonl=jsonl), given)
    more: dict[str, Any] = {"on_escalation": on_escalation, "strategy": strategy, "planner": planner}
    if result_schema is not None:
        from console.commands.start import read_schema

        more["result_schema"] = read_schema(result_schema)
    more["allow"] = starting.kinds(allow)
    wanted = starting.wanted(task, plan, documents, limits, **more)
    client = await common.connected()
    if continues is not None:
        from console.commands.start import continued

        wanted = await continued(client, wanted, continues)
    if dry_run:
        from console.commands import dry_run as looking

        return await looking.dry_run(client, wanted, common)
    handle = await starting.start(client, wanted, id=id, queue=common.queue, again=again)
    if detach:
        return await show.detached(client, handle, common)
    return await show.follow(client, handle, common, jsonl=jsonl)


async def call(
    *,
    kind: Annotated[str, typer.Argument(metavar="KIND", help="The tool.")],
    arguments: Annotated[str, typer.Argument(metavar="JSON", help="Its arguments as JSON, or @FILE.")] = "{}",
    common: Common,
) -> int:
    """Run one step: the quickest way to try a tool."""
    from console.commands import tools as asking

    read = asking.read_arguments(arguments)  # before anything is connected
    return await asking.call(await common.connected(), common, kind, read)


COMMANDS = {
    "start": (command(start), 'python starter.py start --task "search the documents for refund policy" --json'),
    "call": (command(call), """python starter.py call get_price '{"sku": "A-17"}'"""),
}
