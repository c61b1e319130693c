"""The commands; `start` is also reached by a bare `--task`."""

from pathlib import Path
from typing import Annotated

import typer

from console.connection import Address, Json, Namespace, Profile, connected
from console.entry import run
from console.problem import Exit

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
    help="Give tasks to Replan's workers and see what became of them.",
    epilog='Example: python starter.py --task "book a slot for the team at 14:00, then calculate 18% of 2450"',
)
TaskId = Annotated[str, typer.Argument(metavar="ID", help="The id of the task.")]
Queue = Annotated[str, typer.Option(help="The task queue that the workers serve.")]


@app.command()
def start(
    task: Annotated[str | None, typer.Option(help="What to do, in words.")] = None,
    plan: Annotated[Path | None, typer.Option(help="A hand-written plan: JSON, used instead of the planner's.")] = None,
    id: Annotated[str | None, typer.Option("--id", help="The id of the task; else made from its words.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Start anew under the id of a task that has ended.")] = False,
    documents: Annotated[str | None, typer.Option(help="A folder below the worker's --documents.")] = None,
    queue: Queue = "replan",
    tool_calls: Annotated[int, typer.Option(min=1, help="Calls of tools that the task may make.")] = 100,
    replans: Annotated[int, typer.Option(min=0, help="New plans that the task may make.")] = 2,
    deadline: Annotated[float | None, typer.Option(help="Seconds after which the task ends.")] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Start it and return at once.")] = False,
    json: Json = False,
    address: Address = None,
    namespace: Namespace = None,
    profile: Profile = None,
) -> None:
    """Start a task and follow it."""
    from console import start as starting

    limits = {"tool_calls": tool_calls, "replans": replans, "deadline": deadline}
    wanted = starting.wanted(task, plan, documents, limits)

    async def work() -> int:
        from console import watching

        client = await connected(address, namespace, profile)
        handle = await starting.start(client, wanted, id=id, queue=queue, again=again)
        return await (
            watching.detached(client, handle, json) if detach else watching.follow(client, handle, queue, json)
        )

    raise typer.Exit(run(work()))


@app.command()
def show(
    id: TaskId,
    follow: Annotated[bool, typer.Option("--follow", help="Stay until the task ends.")] = False,
    queue: Queue = "replan",
    json: Json = False,
    address: Address = None,
    namespace: Namespace = None,
    profile: Profile = None,
) -> None:
    """Show a task: plans, steps, faults, result."""

    async def work() -> int:
        from console import watching

        client = await connected(address, namespace, profile)
        handle = await watching.known(client, id)
        return await (watching.follow(client, handle, queue, json) if follow else watching.show(client, handle, json))

    raise typer.Exit(run(work()))


@app.command()
def cancel(
    id: TaskId, json: Json = False, address: Address = None, namespace: Namespace = None, profile: Profile = None
) -> None:
    """Ask a task to stop; what is done stays done."""

    async def work() -> int:
        from console import document, watching

        await (await watching.known(await connected(address, namespace, profile), id)).cancel()
        asked = f"{id} was asked to stop. See what is done: python starter.py show {id}"
        print(document.of_anything({"task_id": id, "cancel_requested": True}) if json else asked)
        return Exit.COMPLETED

    raise typer.Exit(run(work()))


@app.command()
def tools(
    kind: Annotated[str | None, typer.Argument(metavar="[KIND]", help="One tool, with what it takes.")] = None,
    queue: Queue = "replan",
    json: Json = False,
    address: Address = None,
    namespace: Namespace = None,
    profile: Profile = None,
) -> None:
    """List what a live worker can do."""

    async def work() -> int:
        from console import tools as asking

        return await asking.tools(await connected(address, namespace, profile), queue, kind, json)

    raise typer.Exit(run(work()))


@app.command()
def call(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="The tool.")],
    arguments: Annotated[str, typer.Argument(metavar="JSON", help="Its arguments as JSON, or @FILE.")] = "{}",
    queue: Queue = "replan",
    json: Json = False,
    address: Address = None,
    namespace: Namespace = None,
    profile: Profile = None,
) -> None:
    """Run one step: the quickest way to try a tool."""

    async def work() -> int:
        from console import tools as asking

        asking.read_arguments(arguments)  # before anything is connected
        return await asking.call(await connected(address, namespace, profile), queue, kind, arguments, json)

    raise typer.Exit(run(work()))
