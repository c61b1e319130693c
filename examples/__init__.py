"""Examples of tools, to be copied. Check one with `python worker.py --check --tools examples/guestbook.py`."""
