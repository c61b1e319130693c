"""A log filter that leaves out repeated lines, so that a fault that repeats all the time does not fill the disk."""

import logging
import time
from collections.abc import Hashable

SECONDS = 60.0
MAX_KEYS = 1000
"""The most different lines that are remembered. Beyond this number all are forgotten, so each is logged again."""


class OncePer(logging.Filter):
    """Passes the first of equal lines, then one in each period of `seconds`, with the number of lines left out."""

    def __init__(self, seconds: float = SECONDS) -> None:
        super().__init__()
        self._seconds = seconds
        self._passed = dict[Hashable, tuple[float, int]]()
        """By key of a line: the monotonic time when such a line passed last, and how many were left out since."""

    def key(self, record: logging.LogRecord) -> Hashable:
        """The key of a line; lines with the same key count as repetitions of each other."""
        raised = record.exc_info[1] if record.exc_info else None
        frames = raised.__traceback__ if raised else None
        while frames and frames.tb_next:
            frames = frames.tb_next
        line = (frames.tb_frame.f_code, frames.tb_lineno) if frames else None
        # asyncio writes objects, which differ each time, below its first line.
        return record.name, str(record.msg).partition("\n")[0], type(raised), line

    def filter(self, record: logging.LogRecord) -> bool:
        key, now = self.key(record), time.monotonic()
        since, left_out = self._passed.get(key, (-self._seconds, 0))
        if now < since + self._seconds:
            self._passed[key] = since, left_out + 1
            return False
        if len(self._passed) >= MAX_KEYS:
            self._passed.clear()
        self._passed[key] = now, 0
        if left_out:
            record.msg, record.args = f"{record.getMessage()} ({left_out:,} more such lines were left out)", ()
        return True
