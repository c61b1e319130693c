"""Tools to copy: `python worker.py --check --tools examples/guestbook.py`."""
