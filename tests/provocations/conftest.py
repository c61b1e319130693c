"""Prints what was right and wrong, by library, at the end of a run; the tests may have run in other processes."""

import pytest

LINE = "right and wrong"
"""The name under which a test records its line."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write the lines that the tests recorded."""
    reports = [report for key in ("passed", "failed") for report in terminalreporter.stats.get(key, [])]
    for report in reports:
        for name, line in getattr(report, "user_properties", ()):
            if name == LINE:
                terminalreporter.write_line(str(line))
