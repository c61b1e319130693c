"""Runs an agent many times, each time in a forked child, so that its framework is imported once: `forked.py PROGRAM`.

Each line that it reads is a run: a JSON object with `arguments`, `folder`, `environment`, `log` and, if what the run
says on stderr is to go elsewhere, `errors`. It says `ready`, and answers each with the exit code, which is negative
after a signal. It needs Python alone.
"""

import ast
import contextlib
import importlib
import json
import os
import runpy
import sys
import traceback
from pathlib import Path
from typing import Any


def import_what(program: Path) -> None:
    """Import what a program imports, but for the modules beside it, which may read what a run is given."""
    for node in ast.parse(program.read_text(encoding="utf-8")).body:
        names = [node.module] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in filter(None, names):
            if not program.with_name(f"{name}.py").exists():
                importlib.import_module(name)
    with contextlib.suppress(ImportError):
        importlib.import_module("pydantic_ai.models.openai")  # which is found by its name only when it is used


def run(program: Path, wanted: dict[str, Any]) -> int:
    """Run the program in a child, which ends as any Python does; returns its exit code."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for stream, name in ((1, "log"), (2, "errors" if "errors" in wanted else "log")):
        os.dup2(os.open(wanted[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600), stream)
    os.chdir(wanted["folder"])
    os.environ.update(wanted["environment"])
    sys.argv = [str(program), *wanted["arguments"]]
    try:
        runpy.run_path(str(program), run_name="__main__")
    except Exception:
        traceback.print_exc()
        sys.exit(1)
    sys.exit(0)


def main() -> None:
    """Answer each line of standard input."""
    program = Path(sys.argv[1])
    import_what(program)
    print("ready", flush=True)  # noqa: T201
    for line in sys.stdin:
        print(run(program, json.loads(line)), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
