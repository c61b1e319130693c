"""The person's entry: `python starter.py --task "..."`, and the commands that `--help` lists."""

from runtime import packages

packages.require()

import sys

from console.app import app
from console.entry import main

if __name__ == "__main__":
    sys.exit(main(app, sys.argv[1:]))
