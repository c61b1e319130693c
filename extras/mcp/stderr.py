"""When the process of an MCP server has ended: the line of its stderr that explains why."""

import re
from collections.abc import Iterator, Sequence

MAX_LINES = 200
"""The last lines of stderr that are kept to explain the end of a process."""
FEW = 20
"""The most lines between an exception's line and the first frame below it, such as Node's `Require stack:`."""

_FRAME = re.compile(r"^\s+at \S")
_DRAWING = " \t|+│╰─▶\N{MULTIPLICATION SIGN}"
"""What Python draws before the lines of an exception group, and uv before those of a reason."""
_TRACEBACK = re.compile(r"(?:Exception Group )?Traceback \(most recent call last\):$")
_EXCEPTION = re.compile(r"[\w.]+(?::|$)")
_ABOVE_FRAMES = re.compile(
    r"(?:Uncaught |Caused by: |Exception in thread \S+ )?[\w.$]*(?:Error|Exception)\b[^:]{0,80}(?::|$)"
)
_PANIC = re.compile(r"(?:panic|fatal error): \S|thread '.*' .*panicked at .")
_NPM = re.compile(
    r"npm (?:error|ERR!) (?!code |syscall |path |errno |command |Lifecycle script |A complete log )\S+ \S"
)
_FAILURE = re.compile(
    r"(?i)error|\b(?:cannot|could not|can't|couldn't|unable to|failed|failure|fatal|denied|refused|not found|no such|"
    r"no module named|not set|missing|required|invalid|unknown|unrecognized|usage:)"
)
_NOTE = re.compile(
    r"(?i)(?:note|hint|notice|warning|info|debug)\b|\[(?:note|hint|notice|warning|info|debug)\]|npm notice "
)


def explaining_line(lines: Sequence[str]) -> str:
    """The line that explains the end of a process best, without space around it; empty if no line has text.

    That is the exception's line of the last traceback of Python, stack of Node or Java, or panic of Go or Rust; else
    the reason that npm gives; else the last line that speaks of a failure, else the last line with text.
    """
    if crashes := [*_crashes(lines)]:
        return crashes[-1].strip()
    if reasons := [line for line in lines if _NPM.match(line)]:
        return reasons[0].strip()
    texts = [text for line in lines if (text := line.strip(_DRAWING))]
    failures = [text for text in texts if _FAILURE.search(text) and not _NOTE.match(text)]
    return (failures or texts or [""])[-1]


def _crashes(lines: Sequence[str]) -> Iterator[str]:
    """Yield the line of each exception and panic that has ended, or may have ended, the process, in their order."""
    for number, line in enumerate(lines):
        following = lines[number + 1 :]
        if _TRACEBACK.match(line.lstrip(_DRAWING)):
            yield from _exception_below(line, following)
        elif _PANIC.match(line):
            yield next(iter(following), line) if line.endswith(":") else line
        elif _FRAME.match(line) and not (number and _FRAME.match(lines[number - 1])):
            above = reversed(lines[max(0, number - FEW) : number])
            yield from [found for found in above if _ABOVE_FRAMES.match(found)][:1]


def _exception_below(head: str, following: Sequence[str]) -> Iterator[str]:
    """Yield the exception's line, which is as far to the right as the head of its traceback."""
    indent = len(head) - len(head.lstrip(_DRAWING))
    for line in following:
        text = line.lstrip(_DRAWING)
        if len(line) - len(text) <= indent and text:
            if _EXCEPTION.match(text):
                yield text
            return
