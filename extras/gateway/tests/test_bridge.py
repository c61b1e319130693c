"""The thin process between an agent and a holder: what it imports, what it passes on, and what it sends again."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest

from extras.gateway import bridge
from extras.gateway.bridge import HolderPlace, Lines, name_of, options_of
from tests.processes import ROOT

HEAVY = ("mcp", "sqlalchemy", "pydantic", "asyncio", "temporalio", "structlog", "typer")
HELLO = {"session": "s", "tools": [], "command": ["true"], "cwd": "/", "timeout": None}


class ScriptedHolder:
    """A holder of the test: it reads the lines of a bridge, and writes what the test says."""

    def __init__(self, folder: Path) -> None:
        self.place = HolderPlace(str(folder), "n")
        (folder / "gateway").mkdir()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.place.socket)
        self._listener.listen()
        self._listener.settimeout(10)
        self._connections = list["Connection"]()
        self._bridges = list["Running"]()

    def begun(self) -> tuple["Running", "Connection"]:
        """A bridge to this holder, and its connection."""
        self._bridges.append(running := Running(self.place))
        return running, self.accept()

    def accept(self) -> "Connection":
        """The next connection of a bridge."""
        self._connections.append(connection := Connection(self._listener.accept()[0]))
        return connection

    def close(self) -> None:
        for running in self._bridges:
            running.hang_up()
        for connection in self._connections:
            connection.close()
        self._listener.close()
        for running in self._bridges:
            running.close()


class Connection:
    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(10)
        self._socket, self._file = connection, connection.makefile("rwb")

    def line(self) -> tuple[bytes, bytes]:
        """The letter and the text of the next line."""
        line = self._file.readline().rstrip(b"\n")
        return line[:1], line[1:]

    def write(self, line: bytes) -> None:
        self._file.write(line + b"\n")
        self._file.flush()

    def answer(self, number: int, id: Any, message: dict[str, Any]) -> None:
        self.write(b"A%d\t%b\t%b" % (number, json.dumps(id).encode(), json.dumps(message).encode()))

    def close(self) -> None:
        with suppress(OSError):
            self._file.close()
        self._socket.close()


class Running:
    """A bridge in a thread, and the agent's ends of its pipes."""

    def __init__(self, place: HolderPlace) -> None:
        source, self.to_bridge = os.pipe()
        of_bridge, sink = os.pipe()
        self.of_bridge = os.fdopen(of_bridge, "rb")
        self.error: Exception | None = None
        self._bridge = bridge.Bridge(place, HELLO, 1.0, source, sink)
        self._ends = source, sink
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self._bridge.run()
        except Exception as error:
            self.error = error

    def send(self, *messages: Any) -> None:
        for message in messages:
            os.write(self.to_bridge, json.dumps(message).encode() + b"\n")

    def hang_up(self) -> None:
        """Close stdin of the bridge."""
        if self.to_bridge >= 0:
            os.close(self.to_bridge)
            self.to_bridge = -1

    def close(self) -> None:
        self.thread.join(10)
        self.of_bridge.close()
        for end in self._ends:
            os.close(end)


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[ScriptedHolder]:
    """A holder whose lines the test writes."""
    made = ScriptedHolder(tmp_path)
    yield made
    made.close()


def request(id: Any, method: str = "tools/call", **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def test_a_bridge_imports_neither_the_sdk_nor_a_database_nor_an_event_loop(tmp_path: Path) -> None:
    """Each agent starts one, some agents for each call."""
    words = ["mcp", "--state", str(tmp_path), "--", "/does/not/exist"]
    run = "import runpy, sys; runpy.run_module('replan', run_name='__main__', alter_sys=True)"
    code = f"import atexit; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); {run}"
    command = [sys.executable, "-c", code, *words]
    ended = subprocess.run(command, input="", capture_output=True, cwd=ROOT, timeout=60, text=True)
    imported = {*ended.stderr.split()}

    assert "extras.gateway.bridge" in imported
    assert {name for name in imported if name.partition(".")[0] in HEAVY} == set()


UNKNOWN = (
    *("--help", "", "--tools", "true"),
    *("--http 127.0.0.1:0 -- true", "--tasks -- true", "--queue q -- true", "--patience soon -- true"),
    *("--patience -1 -- true", "--idle 0 -- true", "--timeout 0 -- true", "--timeout nan -- true"),
    *("--doubt guess -- true", "--attended=yes -- true"),
)


def test_what_a_bridge_does_not_know_the_whole_command_line_reads() -> None:
    """That one knows all options, and says what is wrong."""
    assert [line for line in UNKNOWN if options_of(line.split()) is not None] == []
    assert options_of(["--session", "a b", "--", "true"]) is None


def test_the_options_of_a_bridge() -> None:
    words = ["--session=s", "--tools", "a.toml", "--tools=b.py", "--idle", "5", "--attended", "--", "x", "--help", "--"]

    assert options_of(words) == {
        "session": "s",
        "tools": ["a.toml", "b.py"],
        "idle": 5.0,
        "attended": True,
        "command": ["x", "--help", "--"],
    }


def test_agents_share_a_holder_unless_their_tools_could_differ() -> None:
    """Another session, command, folder, option or variable is another holder; a terminal's variables are none."""
    environment = {"HOME": "/h", "TOKEN": "t"}
    same = name_of(HELLO, environment)
    others = [
        name_of(HELLO | change, environment)
        for change in ({"session": "z"}, {"command": ["false"]}, {"cwd": "/tmp"}, {"timeout": 5.0}, {"tools": ["x"]})  # noqa: S108
    ]

    assert name_of({**HELLO, "doubt": "replay", "process": "1"}, {**environment, "TERM": "x", "PWD": "/y"}) == same
    assert len({same, *others, name_of(HELLO, environment | {"TOKEN": "u"})}) == 7
    assert name_of(HELLO, environment | {"REPLAN_STORE": "s"}) != same


@pytest.mark.parametrize("size", [1, 5, 64, 10_000])
def test_lines_come_whole_whatever_the_pieces(size: int) -> None:
    text = b'{"a": 1}\n\n{"b": "x"}\r\nrest'
    lines, found = Lines(), list[bytes]()
    for start in range(0, len(text), size):
        found += lines.feed(text[start : start + size])

    assert found == [b'{"a": 1}', b"", b'{"b": "x"}\r']
    assert lines.end() == b"rest"


@pytest.mark.parametrize("length", range(60, 111, 10))
def test_a_state_folder_may_have_any_path(tmp_path_factory: pytest.TempPathFactory, length: int) -> None:
    """A system takes no long path for a socket, nor for the name under which it is made."""
    folder = tmp_path_factory.mktemp("s")
    state = folder / ("s" * max(1, length - len(str(folder)) - 1))
    (state / "gateway").mkdir(parents=True)
    path, other = (HolderPlace(str(state), name).socket for name in ("0123456789abcdef", "0123456789abcdee"))
    for name in (path, f"{path}.new"):
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(name)
        Path(name).unlink()

    assert path == HolderPlace(str(state), "0123456789abcdef").socket != other


def test_requests_without_an_answer_are_sent_again_to_the_next_holder(holder: ScriptedHolder) -> None:
    """With the handshake, whose second answer nobody gets, and marked; what was answered or cancelled is not."""
    running, first = holder.begun()
    about, told = request(0, "initialize"), {"jsonrpc": "2.0", "method": "notifications/initialized"}
    running.send(about, told, request(1), request("1"), request(2), request(3))
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 3}}
    running.send(cancel)
    assert first.line()[0] == b"H"
    assert [first.line()[0] for _ in range(7)] == [b"M"] * 7
    for id in (0, 1):
        first.answer(id, id, {"id": id})
    assert [json.loads(running.of_bridge.readline()) for _ in range(2)] == [{"id": 0}, {"id": 1}]
    first.close()
    second = holder.accept()
    hello = json.loads(second.line()[1])
    lines = [second.line() for _ in range(4)]

    assert hello["is_again"]
    assert [letter for letter, _ in lines] == [b"S", b"S", b"R", b"R"]
    assert [json.loads(text) for _, text in lines] == [about, told, request("1"), request(2)]
    running.hang_up()
    assert second.line() == (b"L", b"")
    second.answer(1, "1", {"id": "1"})
    second.answer(2, 2, {"id": 2})
    running.thread.join(5)
    assert running.of_bridge.readline() == b'{"id": "1"}\n'


def test_a_holder_that_ends_has_taken_nothing(holder: ScriptedHolder) -> None:
    """So the next one gets the messages as for the first time."""
    running, ending = holder.begun()
    running.send(request(1))
    ending.line()
    ending.write(b"E")
    ending.close()
    second = holder.accept()

    assert not json.loads(second.line()[1])["is_again"]
    assert second.line()[0] == b"M"
    running.hang_up()


def test_a_refusal_answers_the_open_requests(holder: ScriptedHolder) -> None:
    """An agent sees answers, and not what is printed."""
    running, connection = holder.begun()
    running.send(request(7))
    connection.line()
    connection.line()
    connection.write(b"Xthe server cannot be started")
    running.thread.join(5)
    running._bridge.refuse_all(str(running.error))
    answer = json.loads(running.of_bridge.readline())

    assert isinstance(running.error, bridge.CannotServe)
    assert answer["id"] == 7
    assert "cannot be started" in answer["error"]["message"]


def test_a_batch_is_sent_one_by_one_and_what_is_no_message_is_answered(holder: ScriptedHolder) -> None:
    running, connection = holder.begun()
    connection.line()
    running.send([request(1), request(2)], 5)
    os.write(running.to_bridge, b"{nonsense\n\n")
    os.write(running.to_bridge, json.dumps(request(3)).encode())  # without the end of the line
    running.hang_up()
    passed = [json.loads(connection.line()[1])["id"] for _ in range(3)]
    errors = [json.loads(running.of_bridge.readline())["error"]["code"] for _ in range(2)]

    assert passed == [1, 2, 3]
    assert errors == [-32700, -32700]


def test_large_messages_pass_both_ways_at_once(holder: ScriptedHolder) -> None:
    """Neither side has to read before the other one may write."""
    running, connection = holder.begun()
    connection.line()
    big = "x" * 3_000_000

    def answer_all() -> None:
        for id in range(4):
            connection.answer(id + 1, id, {"big": big})

    writing = [
        threading.Thread(target=lambda: running.send(*(request(id, text=big) for id in range(4))), daemon=True),
        threading.Thread(target=answer_all, daemon=True),
    ]
    for thread in writing:
        thread.start()
    time.sleep(0.2)
    answers = [len(running.of_bridge.readline()) for _ in range(4)]
    messages = [len(connection.line()[1]) for _ in range(4)]

    assert min(answers) > len(big) and min(messages) > len(big)
    running.hang_up()


def test_an_answer_that_the_agent_did_not_read_is_reported(holder: ScriptedHolder) -> None:
    """Its connection was closed, so the next equal call gets the answer."""
    running, connection = holder.begun()
    running.send(request(1), request(2))
    for _ in range(3):
        connection.line()
    running.of_bridge.close()
    connection.answer(1, 1, {"text": "x" * 200_000})
    letters = [connection.line() for _ in range(2)]
    running.thread.join(5)

    assert letters == [(b"F", b"1"), (b"L", b"")]
    assert not running.thread.is_alive()


def test_a_bridge_ends_at_once_when_it_is_told_to(tmp_path: Path) -> None:
    """Clients send SIGTERM two seconds after they closed stdin, and kill two seconds later."""
    command = [sys.executable, "-m", "replan", "mcp", "--state", str(tmp_path), "--idle", "1", "--", "sleep", "60"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)
    while not list(tmp_path.glob("gateway/*.lock")):
        time.sleep(0.01)
    is_running, began = process.poll() is None, time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=10)

    assert is_running and time.monotonic() - began < 1


def test_the_version_is_that_of_the_package() -> None:
    """As the library says that finds it, which takes longer."""
    found = [one.version for one in distributions(name="replan")]

    assert bridge.version() == (found[0] if found else "unknown")


def test_a_log_stays_small(tmp_path: Path) -> None:
    """Its end is kept."""
    path = tmp_path / "log"
    with path.open("ab", buffering=0) as log:
        for number in range(40):
            log.write(b"x" * 99_999 + b"\n")
            log.write(f"{number}\n".encode())
            bridge.cut_log(os.open(path, os.O_RDWR | os.O_APPEND))

    assert path.stat().st_size <= bridge.MAX_LOG + 200_000
    assert path.read_text().endswith("39\n")
