"""The command `replan`: `replan worker ...` is `worker.py`, and everything else is `starter.py`."""

import sys


def main() -> None:
    """Run a worker if the first argument is `worker`, else the command of `starter.py`."""
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


if __name__ == "__main__":
    main()
