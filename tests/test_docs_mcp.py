"""What docs/mcp.md says of tools files: its examples can be read, and its tables have every word."""

import re
import tomllib
from collections.abc import Iterator

import pytest

from activities.toolbox.mcp.answers import MAX_EFFECT, MAX_READ
from activities.toolbox.mcp.schema import MAX_PARTS
from activities.toolbox.mcp.tools_file import ErrorRow, ServerTable, ToolsFile, ToolTable, read
from activities.toolbox.mcp.transports import LINES_PER_MINUTE, MAX_MESSAGE
from activities.toolbox.schemas.reading import MAX_FOREIGN, MAX_FOREIGN_PARTS
from tests.documentation import tables
from tests.processes import ROOT

PAGE = (ROOT / "docs" / "mcp.md").read_text(encoding="utf-8")


def blocks() -> Iterator[str]:
    for page in (PAGE, (ROOT / "README.md").read_text(encoding="utf-8")):
        for block in re.findall(r"^```toml\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE):
            if "servers." in block:
                yield block


@pytest.mark.parametrize("block", [*blocks()])
def test_an_example_is_a_tools_file(block: str) -> None:
    """But for the command, where an example is only about something else."""
    values = tomllib.loads(block)
    for server in values["servers"].values():
        if not {"command", "url"} & {*server}:
            server["command"] = ["server"]

    assert ToolsFile.model_validate(values)


def test_the_example_of_the_repository_can_be_read() -> None:
    """What needs git's server is in tests/mcp/test_real_servers.py."""
    assert "git" in read(ROOT / "examples" / "git.toml").servers


@pytest.mark.parametrize(
    ("table", "model"),
    [("of a server, in `[servers.NAME]`", ServerTable), ("of a tool, in `[servers.NAME.tools.TOOL]`", ToolTable)],
)
def test_a_table_has_every_word(table: str, model: type[ServerTable | ToolTable]) -> None:
    cells = [row[0] for row in tables(PAGE)[table]]
    words = {match for cell in cells for match in re.findall(r"[a-z_]+", re.sub(r"[={].*?(`|$)", "", cell))}

    assert words == {*model.model_fields} - ({"tools", "errors"} if model is ServerTable else set())


def test_the_page_has_the_numbers_of_the_code() -> None:
    assert f"more than {MAX_FOREIGN // 1024**2} MB or more than {MAX_FOREIGN_PARTS:,} parts" in PAGE
    assert f"more than {MAX_MESSAGE // 1024**2} MB" in PAGE and f"more than {MAX_PARTS:,} parts" in PAGE
    assert f"at {MAX_READ // 1000} kB" in PAGE and f"at {MAX_EFFECT // 1000} kB" in PAGE
    assert f"at most {LINES_PER_MINUTE} lines" in PAGE
    assert all(f"`{word}`" in PAGE or f"`{word} =" in PAGE for word in ErrorRow.model_fields)
