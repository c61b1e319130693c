"""What a command leaves on a terminal, and a drawing of that."""

import io
import os
import subprocess
import termios
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from console.playground import ROOT
from console.screen import DONE

COLUMNS, ROWS = 80, 50
THEME = TerminalTheme(
    background=(22, 27, 34),
    foreground=(230, 237, 243),
    normal=[
        (72, 79, 88),
        (255, 123, 114),
        (86, 211, 100),
        (227, 179, 65),
        (121, 192, 255),
        (210, 168, 255),
        (86, 212, 221),
        (230, 237, 243),
    ],
)
"""Every colour but black, which we never use, stands out from the ground by more than 6 to 1."""
DRAWING = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
    font: {char_height}px/{line_height}px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono",
        "Liberation Mono", monospace;
}}
.{unique_id}-title {{ font: bold 16px system-ui, "Helvetica Neue", Arial, sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""As rich's own, whose font comes from another host: a forge shows no picture that asks elsewhere."""


def left_by(command: Sequence[str], environment: Mapping[str, str], exit: int = 0) -> str:
    """What a command leaves on a terminal of 80 columns, with its colours.

    Raises:
        SystemExit: it ended with another exit code than `exit`; a picture of that would mislead.
    """
    screen, terminal = os.openpty()
    termios.tcsetwinsize(terminal, (ROWS, COLUMNS))
    process = subprocess.Popen(  # noqa: S603  # our own script
        command,
        cwd=ROOT,
        env=_plain(environment),
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
    os.close(terminal)
    try:
        shown = _read(screen).replace("\r\n", "\n")
        code = process.wait()
    finally:
        process.kill()
        os.close(screen)
    if code != exit:
        raise SystemExit(f"{' '.join(command)!r} ended with {code} instead of {exit}:\n{shown}")
    return shown.rpartition(DONE)[2]


def drawing(text: str, title: str, id: str) -> str:
    """An SVG of a terminal with this text in it, which needs nothing but itself; `id` makes its names its own."""
    console = Console(file=io.StringIO(), record=True, width=COLUMNS, force_terminal=True, color_system="standard")
    console.print(Text.from_ansi(text), soft_wrap=True, highlight=False)
    return console.export_svg(title=title, theme=THEME, code_format=DRAWING, unique_id=id)


def _plain(environment: Mapping[str, str]) -> dict[str, str]:
    """Without what makes the same run look different elsewhere."""
    own = ("NO_COLOR", "FORCE_COLOR", "COLORTERM", "COLUMNS", "LINES")
    return {name: value for name, value in environment.items() if name not in own} | {"TERM": "xterm-256color"}


def _read(screen: int) -> str:
    """All that is written until the last writer is gone, which Linux reports as an error and others as an end."""
    parts = list[bytes]()
    while True:
        try:
            part = os.read(screen, 65536)
        except OSError:
            part = b""
        if not part:
            return b"".join(parts).decode(errors="replace")
        parts.append(part)
