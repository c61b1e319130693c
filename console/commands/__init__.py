"""One module for each command of `console/app.py`, imported only when its command runs, so that `--help` is quick."""
