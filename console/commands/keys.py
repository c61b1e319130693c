"""`keys`: write a keyring for `--keys`, or print the ids of its keys."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from client import document
from client.problem import Problem
from console.exits import Exit
from runtime.keys import BadKeys, add_key, read_keys

OTHERS = 0o077


async def keys_command(
    *,
    action: Annotated[
        Literal["new", "check"],
        typer.Argument(metavar="ACTION", help="new: put a new key in front. check: say which keys are there."),
    ],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The keyring.")],
    json: Annotated[bool, typer.Option("--json", help="One JSON document instead of lines.")] = False,
) -> int:
    """Keep the file as you keep a password: without it, nothing that it encrypted can be read."""
    try:
        made = add_key(file) if action == "new" else ""
        ids = list(read_keys(file))
    except BadKeys as error:
        raise Problem("misconfigured", error.reason, error.remedy) from error
    is_open = bool(file.stat().st_mode & OTHERS)
    if json:
        print(document.of_anything({"file": str(file), "writes": ids[0], "reads": ids, "others_may_read": is_open}))
        return Exit.COMPLETED
    if made:
        print(
            f"{made} is new in {file}. First give the file to all workers, consoles and `serve`: one that lacks the key"
        )
        print("cannot read what another one writes with it, and waits.")
    print(f"{ids[0]} writes; {', '.join(ids)} {'reads' if len(ids) == 1 else 'read'}.")
    if is_open:
        print(f"Others may read {file}: `chmod 600` it.")
    return Exit.COMPLETED
