"""The command line for people: `python starter.py --task "..."`, and the commands that `--help` lists."""

import os
import signal

signal.signal(signal.SIGINT, lambda *_: os._exit(130))  # until a command runs, Ctrl-C ends without a traceback

from runtime import process

process.require_packages()

import sys

from console.app import app
from console.entry import main
from runtime.process import leave

if __name__ == "__main__":
    leave(main(app, sys.argv[1:]))
