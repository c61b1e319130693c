"""The command `replan`: `replan worker ...` is `worker.py`, `mcp` mostly a bridge, and everything else `starter.py`."""

import sys


def main() -> None:
    """Run a worker if the first argument is `worker`, a bridge for a plain `mcp`, else the command of `starter.py`."""
    if sys.argv[1:2] == ["mcp"] and (code := _bridge(sys.argv[2:])) is not None:
        sys.exit(code)
    if sys.argv[1:2] == ["worker"]:
        from runtime import process
        from worker import main as worker  # not at the top: what a worker needs takes seconds

        try:
            worker(sys.argv[2:], prog_name="replan worker")
        except SystemExit as ended:  # of an option that is none
            process.leave(ended.code if isinstance(ended.code, int) else 1)
    else:
        from console.app import app
        from starter import run

        # It stands in `--help`; the lines above run it.
        app.command("worker", help="Serve a task queue with your tools.", rich_help_panel="Run")(main)
        run()


def _bridge(args: list[str]) -> int | None:
    """Be the bridge that `mcp WORDS` asks for, and return the exit code; None if the whole command line is needed."""
    from importlib.util import find_spec

    from extras import NotHere, part

    try:
        bridge = part("bridge")  # at once: an agent waits, and the command line takes a tenth of a second
    except NotHere:
        return None
    options = bridge.options_of(args)
    return bridge.serve(options) if options is not None and find_spec("mcp") else None


if __name__ == "__main__":
    main()
