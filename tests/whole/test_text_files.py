"""Files that a person wrote are read alike, whatever editor, shell and locale they come from."""

import asyncio
import base64
import codecs
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from activities.planning.selection import _scripted
from activities.toolbox.http.services import _content_of
from client.replay import saved
from client.start import read_plan
from console.arguments import read_arguments, read_input
from console.commands.start import read_demonstrations, read_schema
from extras.documents.document import read as read_document
from extras.mcp import tools_file
from extras.mcp.config import Config
from runtime.keys import add_key, read_keys
from runtime.settings_file import SettingsFile
from tests.processes import ROOT

STEPS = [{"id": "a", "kind": "calculate", "args": {"expression": "é"}}]
DEMONSTRATION = {"task": "é", "moves": [{"kind": "calculate", "args": {}, "result": 1}], "answer": "é"}
KEYRING = f"# é\nk1 {base64.b64encode(bytes(32)).decode()}\n"
IN_ASCII = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONPATH": str(ROOT)}
"""The environment of a minimal container, in which Python reads files as ASCII by default."""


async def _task_of(file: Path) -> str:
    return (await anext(saved([file]))).workflow_id


def _header_of(file: Path) -> str:
    table = tools_file.ServerTable.model_validate({"url": "http://x", "headers": {"A": f"file:{file.name}"}})
    return dict(Config.of("x", table, {}, file.parent).headers)["A"]


READERS: Mapping[str, tuple[str, Callable[[Path], Any]]] = {
    "plan.json": (json.dumps({"steps": STEPS}, ensure_ascii=False), read_plan),
    "script.json": ('[{"type": "answer", "result": "é"}]', lambda file: vars(_scripted(str(file)))),
    "arguments.json": ('{"expression": "é"}', lambda file: read_arguments(f"@{file}")),
    "demonstrations.json": (json.dumps([DEMONSTRATION], ensure_ascii=False), read_demonstrations),
    "schema.json": ('{"title": "é"}', read_schema),
    "input.txt": ("é\r\nü\n", lambda file: read_input(str(file))),
    "replan.keys": (KEYRING, read_keys),
    "replan.toml": ("# é\n[budgets]\n", SettingsFile.read),
    "tools.toml": ("# é\n[servers.x]\nurl = 'http://127.0.0.1:1/é'\n", tools_file.read),
    "header.txt": ("token-é\n", lambda file: _content_of("x", str(file))),
    "secret.txt": ("token-é\n", _header_of),
    "history.json": (
        (ROOT / "tests/histories/answered.json").read_text(encoding="utf-8"),
        lambda file: asyncio.run(_task_of(file)),
    ),
    "document.txt": ("é\nü", read_document),
}
"""By file: its text, and what reads such a file."""


def read_all(folder: Path) -> dict[str, str]:
    return {name: _shown(read(folder / name)) for name, (_, read) in READERS.items()}


def _shown(value: Any) -> str:
    return ascii(value.model_dump() if isinstance(value, BaseModel) else value)


def write_all(folder: Path, encoding: str, mark: bytes = b"") -> Path:
    """Write each file in an encoding, with a byte order mark before its text."""
    folder.mkdir()
    for name, (text, _) in READERS.items():
        (folder / name).write_bytes(mark + text.encode(encoding))
    return folder


@pytest.mark.parametrize(
    ("encoding", "mark"),
    [
        ("utf-8", codecs.BOM_UTF8),
        ("utf-16-le", codecs.BOM_UTF16_LE),
        ("utf-16-be", codecs.BOM_UTF16_BE),
        ("utf-32-le", codecs.BOM_UTF32_LE),
    ],
    ids=["utf-8", "utf-16-le", "utf-16-be", "utf-32"],
)
def test_a_byte_order_mark_does_not_matter(tmp_path: Path, encoding: str, mark: bytes) -> None:
    """Editors of Windows write one before UTF-8, and PowerShell's `>` writes UTF-16."""
    plain = read_all(write_all(tmp_path / "plain", "utf-8"))

    assert read_all(write_all(tmp_path / "marked", encoding, mark)) == plain


def test_the_locale_does_not_matter(tmp_path: Path) -> None:
    """A file is read as UTF-8 where Python's default is ASCII."""
    folder = write_all(tmp_path / "plain", "utf-8")
    code = "import sys, pathlib, tests.whole.test_text_files as of; print(of.read_all(pathlib.Path(sys.argv[1])))"
    command = [sys.executable, "-c", code, str(folder)]
    done = subprocess.run(command, env=IN_ASCII, cwd=ROOT, capture_output=True, encoding="utf-8")

    assert done.stdout.strip() == str(read_all(folder)), done.stderr


@pytest.mark.parametrize("name", [name for name in READERS if name != "document.txt"])
def test_what_is_no_text_is_a_sentence(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_bytes(b"# \xe9\xff\n")

    with pytest.raises(Exception, match=name) as raised:
        READERS[name][1](file)
    assert not isinstance(raised.value, UnicodeError)


def test_a_new_key_stands_before_a_marked_rest(tmp_path: Path) -> None:
    file = tmp_path / "replan.keys"
    file.write_bytes(codecs.BOM_UTF8 + KEYRING.encode())
    id = add_key(file)

    assert list(read_keys(file)) == [id, "k1"]
    assert codecs.BOM_UTF8 not in file.read_bytes()


def test_standard_input_is_read_like_a_file() -> None:
    code = "from console.arguments import read_input; print(ascii(read_input('-')))"
    text = codecs.BOM_UTF8 + "é\r\n".encode()
    done = subprocess.run([sys.executable, "-c", code], env=IN_ASCII, cwd=ROOT, input=text, capture_output=True)

    assert done.stdout.decode().strip() == ascii("é\n"), done.stderr
