"""The command line for people: `python starter.py --task "..."`, and the commands that `--help` lists."""

import os
import signal

signal.signal(signal.SIGINT, lambda *_: os._exit(130))  # until a command runs, Ctrl-C ends without a traceback

from runtime import process

process.require_packages()
process.read_secrets()

import sys
from typing import NoReturn

from console.app import app
from console.entry import main


def run() -> NoReturn:
    """Run the command that the process was started with."""
    process.leave(main(app, sys.argv[1:]))


if __name__ == "__main__":
    run()
