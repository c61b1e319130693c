"""The process that an agent starts: passes lines of MCP between its stdin and stdout and the holder, which it starts.

It starts in a few milliseconds, so it imports little of the standard library, and nothing of Replan.
"""

import hashlib
import json
import os
import re
import select
import socket
import sys
import time
from collections import deque
from contextlib import suppress
from typing import Any

FORMAT = 1
"""The number of the format of the lines between a bridge and a holder."""
MAX_LINE = 64 * 2**20
"""The most bytes of a line, which has one message of MCP."""
MAX_WAITING = 8 * 2**20
"""How many bytes may wait for one side before no more are read from the other one."""
MAX_SOCKET = 100
"""The most bytes of a socket's path; operating systems accept 104 or 108."""
CHUNK = 64 * 2**10
SAFE_CHUNK = min(select.PIPE_BUF, 4096)
"""How many bytes can be written to a pipe without waiting, if `poll` says that it can be written to."""
START_SECONDS = 60.0
"""Seconds within which a holder must listen."""
ENDING_SECONDS = 900.0
"""Seconds for which a bridge waits for the end of a holder that only finishes its calls."""
AGAIN_SECONDS = 1.0
"""Seconds after which one more holder is started if none listens; it ends at once if another one has the lock."""
LOOK_SECONDS = 0.01
STEADY_SECONDS, MAX_FAILURES = 20.0, 10
"""At most MAX_FAILURES holders in a row may end within STEADY_SECONDS after they were connected to."""
LAST_ANSWERS_SECONDS = 1.0
"""Seconds for which the open requests of an agent that has closed its end are still answered."""
REPLAYED = ("initialize", "notifications/initialized", "logging/setLevel", "resources/subscribe")
"""The methods of messages that are sent again to a new holder."""
PARSE_ERROR, NOT_SERVED = -32700, -32000
UNREACHABLE = 6
"""The exit code if no holder serves the agent."""
MAX_LOG, LOG_KEPT = 2 * 2**20, 2**18
"""A log of more than MAX_LOG bytes is cut to the last LOG_KEPT bytes."""
VOLATILE = re.compile(
    "_|PWD|OLDPWD|SHLVL|COLUMNS|LINES|WINDOWID|TERM.*|SSH_.*|XDG_SESSION.*|DBUS_.*|INVOCATION_ID|JOURNAL_STREAM|TMUX.*"
)
"""Variables that differ from agent to agent, and do not count in the comparison of sets of tools."""
OWN_VARIABLES = (
    "REPLAN_STATE",
    "REPLAN_QUEUE",
    "REPLAN_MCP_SESSION",
    "REPLAN_STORE",
    "REPLAN_STORE_FILE",
    "REPLAN_TOKEN",
    "REPLAN_TOKEN_FILE",
    "REPLAN_PAGE",
    "REPLAN_KEYS",
    "REPLAN_CODEC",
    "TEMPORAL_ADDRESS",
)
"""Variables for the gateway itself, which are not passed on from the agent to its servers."""
OF_STORE = ("REPLAN_STORE", "REPLAN_STORE_FILE", "REPLAN_KEYS")
"""Variables that say where effects are recorded, and with which keys."""

# The first letter of each line from a bridge, before its text.
HELLO, MESSAGE, RESENT, SETUP, LEAVING, FAILED = b"H", b"M", b"R", b"S", b"L", b"F"
# The first letter of each line from a holder. An answer is its number, the id of its request and its message.
ANSWER, OTHER, REFUSED, ENDING = b"A", b"N", b"X", b"E"


class CannotServe(Exception):
    """No holder can be started, or none serves this process; the message says why."""


def version() -> str:
    """The version of Replan, without the import that `importlib.metadata` takes; `unknown` if it is not installed."""
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")  # noqa: PTH208  # pathlib takes a third of the time of a bridge
        except OSError:
            continue
        for name in names:
            if name.startswith("replan-") and name.endswith(".dist-info"):
                return name[len("replan-") : -len(".dist-info")]
    return "unknown"


def server_variables(environment: "os._Environ[str] | dict[str, str]") -> dict[str, str]:
    """The variables of an agent that its MCP servers get, too."""
    return {name: value for name, value in environment.items() if name not in OWN_VARIABLES}


class HolderPlace:
    """Where the holder for some tools in one session is: its socket, its lock and its files in the state folder."""

    def __init__(self, state: str, name: str) -> None:
        """`state` is the state folder; `name` is that of `name_of`, or another one that no other holder has."""
        self.state, self.name = os.path.abspath(state), name  # noqa: PTH100

    def file(self, ending: str) -> str:
        """The path of a file of the holder, such as its `log`."""
        return f"{self.state}/gateway/{self.name}.{ending}"

    @property
    def socket(self) -> str:
        """The path of the socket: in the state folder, or in a private folder if that path is too long.

        Raises:
            OSError: others can use the private folder.
        """
        path = os.path.realpath(self.file("sock"))
        if len(os.fsencode(path)) <= MAX_SOCKET - 8:  # it is made under a longer name
            return path
        folder = os.environ.get("XDG_RUNTIME_DIR") or f"{os.environ.get('TMPDIR') or '/tmp'}/replan-{os.getuid()}"  # noqa: S108
        os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
        status = os.stat(folder)  # noqa: PTH116
        if status.st_uid != os.getuid() or status.st_mode & 0o077:
            raise OSError(f"{folder} can be used by others: set XDG_RUNTIME_DIR, or choose a shorter --state")
        return f"{folder}/replan-{hashlib.sha256(os.fsencode(path)).hexdigest()[:16]}.sock"

    def last_line(self) -> str:
        """The last line of the log with text; `it printed nothing` without one."""
        try:
            with open(self.file("log"), "rb") as log:  # noqa: PTH123
                log.seek(max(0, os.fstat(log.fileno()).st_size - 4096))
                lines = [line.strip() for line in log.read().decode(errors="replace").splitlines() if line.strip()]
        except OSError:
            lines = []
        return lines[-1].rstrip(".") if lines else "it printed nothing"


def name_of(hello: dict[str, Any], environment: "os._Environ[str] | dict[str, str]") -> str:
    """A name that is equal for agents that share a holder. It reveals no value of the environment."""
    variables = {name: value for name, value in server_variables(environment).items() if not VOLATILE.fullmatch(name)}
    store = {name: environment.get(name) for name in OF_STORE}
    where = hello["cwd"] if hello["command"] else ""
    asked = [hello["session"], hello["tools"], hello["command"], hello.get("timeout"), where, store, variables]
    asked += [hello.get("tasks")]
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()[:16]


class Lines:
    """Whole lines out of pieces of a stream."""

    def __init__(self) -> None:
        self._pieces = list[bytes]()
        self._size = 0

    def feed(self, piece: bytes) -> list[bytes]:
        """The lines that end in `piece`, without their ends. Raises ValueError for a line of more than MAX_LINE."""
        self._size += len(piece)
        if b"\n" not in piece:
            self._pieces.append(piece)
            if self._size > MAX_LINE:
                self._pieces, self._size = [], 0
                raise ValueError(f"it has more than {MAX_LINE} bytes")
            return []
        *lines, rest = b"".join([*self._pieces, piece]).split(b"\n")
        self._pieces, self._size = [rest], len(rest)
        return lines

    def end(self) -> bytes:
        """What came after the last whole line."""
        return b"".join(self._pieces)


class Bridge:
    """Passes messages on, and sends open requests again to a new holder."""

    def __init__(self, place: HolderPlace, hello: dict[str, Any], idle: float, source: int = 0, sink: int = 1) -> None:
        """`source` and `sink` are the descriptors of the agent's messages, and of those for the agent."""
        self._place, self._hello, self._idle = place, hello, idle
        self._source, self._sink = source, sink
        self.open = dict[Any, bytes]()
        """The messages of the requests without an answer, by their ids."""
        self._setup = dict[tuple[str, str], tuple[Any, bytes]]()
        """By method of REPLAYED and, for a subscription, address: the id and the newest message."""
        self._poll = select.poll()
        self._masks = dict[int, int]()
        self._of_agent, self._of_holder = Lines(), Lines()
        self._to_agent, self._to_holder = deque[tuple[int, memoryview]](), deque[memoryview]()
        self._waiting_agent = self._waiting_holder = 0
        self._holder: socket.socket | None = None
        self._is_first = True
        """Whether no holder has taken messages yet."""
        self._is_ending = False
        """Whether a holder has said that it only finishes its calls."""
        self._has_left = False
        self._left_at = 0.0
        self._connected_at = 0.0
        self._failures = 0

    def run(self) -> None:
        """Serve the agent until it closes its end. Raises CannotServe without a holder that stays and serves it."""
        try:
            self._pass_on()
        finally:
            self._close()

    def _pass_on(self) -> None:
        while not self._is_over():
            if self._holder is None:
                self._connect()
                continue
            self._watch()
            for descriptor, _ in self._poll.poll(self._patience()):
                if descriptor == self._source:
                    self._read_agent()
                elif descriptor == self._sink:
                    self._write_agent()
                elif self._holder is not None and descriptor == self._holder.fileno():
                    self._write_holder()
                    self._read_holder()

    def _patience(self) -> float | None:
        """Milliseconds to wait for what happens next; None without a limit."""
        return max(0.0, self._left_at + LAST_ANSWERS_SECONDS - time.monotonic()) * 1000 if self._has_left else None

    def _is_over(self) -> bool:
        if not self._has_left:
            return False
        is_late = time.monotonic() >= self._left_at + LAST_ANSWERS_SECONDS
        return is_late or not (self.open or self._to_agent)

    def _watch(self) -> None:
        reads_agent = not self._has_left and self._waiting_holder < MAX_WAITING
        wanted = {self._source: select.POLLIN if reads_agent else 0}
        wanted[self._sink] = select.POLLOUT if self._to_agent else 0
        if self._holder is not None:
            reads = select.POLLIN if self._waiting_agent < MAX_WAITING else 0
            wanted[self._holder.fileno()] = reads | (select.POLLOUT if self._to_holder else 0)
        for descriptor, mask in wanted.items():
            if self._masks.get(descriptor, 0) == mask:
                continue
            if mask:
                self._poll.register(descriptor, mask)
            else:
                self._poll.unregister(descriptor)
            self._masks[descriptor] = mask

    # The agent

    def _read_agent(self) -> None:
        try:
            piece = os.read(self._source, CHUNK)
        except OSError:
            piece = b""
        try:
            lines = self._of_agent.feed(piece) if piece else [self._of_agent.end()]
        except ValueError as error:
            self._reject(str(error))
            return
        for line in lines:
            if line.strip():
                self._take_line(line.strip())
        if not piece:
            self._leave()

    def _take_line(self, line: bytes) -> None:
        try:
            message = json.loads(line)
            messages = message if isinstance(message, list) else [message]  # batches of old versions
            if not all(isinstance(each, dict) for each in messages):
                raise ValueError("it is no object")
        except (ValueError, RecursionError) as error:
            self._reject(str(error))
            return
        for each in messages:
            self._take(each, line if each is message else json.dumps(each).encode())

    def _reject(self, why: str) -> None:
        error = {"code": PARSE_ERROR, "message": f"No message of JSON-RPC: {why[:200]}"}
        self._tell({"jsonrpc": "2.0", "id": None, "error": error})

    def _tell(self, message: dict[str, Any]) -> None:
        self._queue(0, json.dumps(message).encode())

    def _take(self, message: dict[str, Any], line: bytes) -> None:
        """Pass a message of the agent on, and keep what a new holder needs."""
        method, number, params = message.get("method"), message.get("id"), message.get("params")
        uri = str(params.get("uri", "")) if isinstance(params, dict) else ""
        if method in REPLAYED:
            self._setup[method, uri] = (number, line)
        elif method == "resources/unsubscribe":
            self._setup.pop(("resources/subscribe", uri), None)
        if _is_id(number) and isinstance(method, str):
            self.open[number] = line
        elif method == "notifications/cancelled" and isinstance(params, dict) and _is_id(params.get("requestId")):
            self.open.pop(params["requestId"], None)
        self._send(MESSAGE + line)

    def _leave(self) -> None:
        """Note that the agent has closed its end, and say so at once: its successor may be quicker than we end."""
        self._has_left, self._left_at = True, time.monotonic()
        self._send(LEAVING)

    def _queue(self, number: int, line: bytes) -> None:
        """Write a line to the agent, as soon as it reads; `number` is that of an answer, 0 for others."""
        self._to_agent.append((number, memoryview(line + b"\n")))
        self._waiting_agent += len(line)
        if len(self._to_agent) == 1 and len(line) < SAFE_CHUNK and _can_write(self._sink):
            self._write_agent()

    def _write_agent(self) -> None:
        number, rest = self._to_agent[0]
        try:
            written = os.write(self._sink, rest[:SAFE_CHUNK])
        except OSError:  # the agent reads no more
            self._fail_unwritten()
            self.open.clear()
            if not self._has_left:
                self._leave()
            return
        if written < len(rest):
            self._to_agent[0] = number, rest[written:]
        else:
            self._to_agent.popleft()
        self._waiting_agent = max(0, self._waiting_agent - written)

    def _fail_unwritten(self) -> None:
        """Report the answers that did not reach the agent whole."""
        for number, _ in self._to_agent:
            if number:
                self._send(FAILED + str(number).encode())
        self._to_agent.clear()
        self._waiting_agent = 0

    # The holder

    def _send(self, line: bytes) -> None:
        if self._holder is None:
            return  # a new connection sends again what waits for an answer
        self._to_holder.append(memoryview(line + b"\n"))
        self._waiting_holder += len(line)
        if len(self._to_holder) == 1:
            self._write_holder()

    def _write_holder(self) -> None:
        while self._to_holder and self._holder is not None:
            rest = self._to_holder[0]
            try:
                written = self._holder.send(rest, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                return  # what it has said before is still read
            self._waiting_holder = max(0, self._waiting_holder - written)
            if written < len(rest):
                self._to_holder[0] = rest[written:]
            else:
                self._to_holder.popleft()

    def _read_holder(self) -> None:
        if self._holder is None:
            return
        try:
            piece = self._holder.recv(CHUNK, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece:
            self._lose()
            return
        for line in self._of_holder.feed(piece):
            self._hear(line[:1], line[1:])

    def _hear(self, letter: bytes, rest: bytes) -> None:
        if letter == ENDING:
            self._is_ending = True
            return
        self._is_first = self._is_ending = False
        if letter == REFUSED:
            raise CannotServe(rest.decode(errors="replace"))
        if letter == OTHER:
            self._queue(0, rest)
        elif letter == ANSWER:
            number, id, message = rest.split(b"\t", 2)
            self.open.pop(json.loads(id), None)
            self._queue(int(number), message)

    def _lose(self) -> None:
        """Close the connection that has ended; raises CannotServe if holders end again and again."""
        if self._holder is None:
            return
        if self._masks.pop(self._holder.fileno(), 0):
            self._poll.unregister(self._holder)
        self._holder.close()
        self._holder, self._of_holder = None, Lines()
        self._to_holder.clear()
        self._waiting_holder = 0
        if self._is_ending:
            time.sleep(LOOK_SECONDS)
            return
        is_steady = time.monotonic() - self._connected_at > STEADY_SECONDS
        self._failures = 0 if is_steady else self._failures + 1
        if self._failures > MAX_FAILURES:
            last, log = self._place.last_line(), self._place.file("log")
            raise CannotServe(f"the gateway's process ends again and again ({last}): look into {log}")

    def _connect(self) -> None:
        """Connect to the holder, which is started if there is none, and send what it needs."""
        began, started = time.monotonic(), 0.0
        while self._holder is None:
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.connect(self._place.socket)
                self._holder = connection
                break
            except OSError:
                connection.close()
            now = time.monotonic()
            if now - began > (ENDING_SECONDS if self._is_ending else START_SECONDS):
                last, log = self._place.last_line(), self._place.file("log")
                raise CannotServe(f"the gateway's process does not listen ({last}): look into {log}")
            if self._has_left or (not self._is_first and _has_hung_up(self._source)):
                self._has_left = True  # nobody waits for an answer any more
                self.open.clear()
                self._to_agent.clear()
                return
            if now - started > AGAIN_SECONDS:
                start(self._place, self._hello, self._idle)
                started = now
            time.sleep(LOOK_SECONDS)
        self._connected_at = time.monotonic()
        self._greet()

    def _greet(self) -> None:
        """Send the Hello, the answered messages that a new holder needs, and the open requests."""
        self._send(HELLO + json.dumps({**self._hello, "is_again": not self._is_first}).encode())
        for id, line in self._setup.values():
            if not (_is_id(id) and id in self.open):
                self._send((MESSAGE if self._is_first else SETUP) + line)
        for line in self.open.values():
            self._send((MESSAGE if self._is_first else RESENT) + line)
        if self._has_left:
            self._send(LEAVING)

    def _close(self) -> None:
        if self._has_left:
            self._fail_unwritten()
        if self._holder is not None:
            self._holder.settimeout(LAST_ANSWERS_SECONDS)
            with suppress(OSError):
                self._holder.sendall(b"".join(self._to_holder))
            self._holder.close()

    def refuse_all(self, why: str) -> None:
        """Answer the open requests with the reason why nobody serves the agent."""
        for id in self.open:
            error = {"code": NOT_SERVED, "message": f"The gateway cannot serve: {why}"}
            self._tell({"jsonrpc": "2.0", "id": id, "error": error})
        deadline = time.monotonic() + LAST_ANSWERS_SECONDS
        while self._to_agent and time.monotonic() < deadline:
            if _can_write(self._sink, 50):
                self._write_agent()


def _is_id(value: Any) -> bool:
    return isinstance(value, int | str) and not isinstance(value, bool)


def _can_write(descriptor: int, milliseconds: float = 0) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(milliseconds))


def _has_hung_up(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, 0)
    return bool(poll.poll(0))


def peer_is_gone(connection: "socket.socket") -> bool:
    """Whether the other end of a socket has closed it, also if what came before that was not read yet."""
    descriptor = connection.fileno()
    if descriptor < 0:
        return True
    poll = select.poll()
    poll.register(descriptor, getattr(select, "POLLRDHUP", 0))
    return bool(poll.poll(0))


def start(place: HolderPlace, hello: dict[str, Any], idle: float) -> None:
    """Start a holder in a session of its own, which keeps nothing of this process open; it may find itself superfluous.

    It is no child of this process, and in no group with it, so that it survives what kills the agent and all of its.
    """
    os.makedirs(f"{place.state}/gateway", mode=0o700, exist_ok=True)  # noqa: PTH103
    log = _log(place.file("log"))
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        os.close(log)
        return
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor, stream in ((null, 0), (log, 1), (log, 2)):
            os.dup2(descriptor, stream)
        os.closerange(3, max(256, log + 1, null + 1))
        os.chdir(_root())
        command = [sys.executable, "-m", f"{_package()}.holder", place.state, place.name, str(idle), json.dumps(hello)]
        os.execv(sys.executable, command)  # noqa: S606
    finally:
        os._exit(1)


def _package() -> str:
    """The package of this module: a wheel has the room elsewhere."""
    return __name__.rpartition(".")[0]


def _root() -> str:
    """The folder that must be on the module path to import this package."""
    root = os.path.abspath(__file__)  # noqa: PTH100
    for _ in __name__.split("."):
        root = os.path.dirname(root)  # noqa: PTH120
    return root


def _log(path: str) -> int:
    """Open a log to write to its end; a large log is cut before."""
    log = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    cut_log(log)
    return log


def cut_log(log: int) -> None:
    """Cut a log of more than MAX_LOG bytes to its last LOG_KEPT bytes. Its descriptor appends."""
    if os.fstat(log).st_size > MAX_LOG:
        kept = os.pread(log, LOG_KEPT, os.fstat(log).st_size - LOG_KEPT)
        os.ftruncate(log, 0)
        os.write(log, kept.partition(b"\n")[2])


# The command line

TEXTS = ("--session", "--doubt", "--state", "--keys")
NUMBERS = ("--patience", "--list-wait", "--timeout", "--idle")
SWITCHES = ("--attended",)
DOUBTS = ("ask", "repeat", "replay")
SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
IDLE_SECONDS, PATIENCE, LIST_WAIT = 60.0, 30.0, 25.0


def options_of(args: list[str]) -> dict[str, Any] | None:
    """The options of `mcp WORDS`, by name without dashes; None if the whole command line has to read them.

    That one knows all options, and says what is wrong with them.
    """
    found: dict[str, Any] = {"tools": [], "command": []}
    rest = deque(args)
    while rest:
        word = rest.popleft()
        if word == "--":
            found["command"] = list(rest)
            break
        name, is_joined, value = word.partition("=")
        if name in SWITCHES and not is_joined:
            found[name[2:]] = True
            continue
        if name not in (*TEXTS, *NUMBERS, "--tools") or not (is_joined or rest):
            return None
        value = value if is_joined else rest.popleft()
        try:
            parsed: Any = float(value) if name in NUMBERS else value
        except ValueError:
            return None
        if name == "--tools":
            found["tools"].append(value)
        else:
            found[name[2:].replace("-", "_")] = parsed
    return found if _are_usable(found) else None


def _are_usable(found: dict[str, Any]) -> bool:
    session = found.get("session") or os.environ.get("REPLAN_MCP_SESSION")
    numbers = [found.get(name[2:].replace("-", "_"), 1.0) for name in NUMBERS]
    return (
        bool(found["command"] or found["tools"])
        and not os.environ.get("REPLAN_QUEUE")
        and found.get("doubt", "ask") in DOUBTS
        and (session is None or SESSION.fullmatch(session) is not None)
        and all(0 <= number < 1e9 for number in numbers)
        and numbers[2] > 0
        and numbers[3] >= 1
    )


def serve(options: dict[str, Any]) -> int:
    """Serve the agent at stdin and stdout until it closes its end; returns the exit code."""
    options = {name: value for name, value in options.items() if value is not None}
    if keys := options.get("keys"):
        os.environ["REPLAN_KEYS"] = _absolute(keys)
    session = options.get("session") or os.environ.get("REPLAN_MCP_SESSION")
    number = os.urandom(8).hex()
    hello = {
        "format": FORMAT,
        "version": version(),
        "process": number,
        "session": session or f"stdio-{number}",
        "doubt": options.get("doubt", "ask"),
        "patience": options.get("patience", PATIENCE),
        "list_wait": options.get("list_wait", LIST_WAIT),
        "timeout": options.get("timeout"),
        "attended": bool(options.get("attended")),
        "tasks": options.get("tasks"),
        "tools": [_absolute(name) for name in options["tools"]],
        "command": options["command"],
        "cwd": os.getcwd(),  # noqa: PTH109
    }
    state = options.get("state") or os.environ.get("REPLAN_STATE") or ".replan"
    bridge: Bridge | None = None
    try:
        bridge = Bridge(
            HolderPlace(state, name_of(hello, os.environ)), hello, options.get("idle", IDLE_SECONDS), sink=_own_stdout()
        )
        bridge.run()
    except (CannotServe, OSError) as why:
        if bridge is not None:
            bridge.refuse_all(str(why))
        reason = f"The gateway cannot serve: {why}".rstrip(".")
        sys.stderr.write(f"{reason}: mend that, and start the agent again.\n")
        return UNREACHABLE
    except KeyboardInterrupt:
        return 130
    return 0


def _own_stdout() -> int:
    """A copy of stdout for messages alone: whatever else prints must not reach the agent."""
    sink = os.dup(1)
    os.dup2(2, 1)
    return sink


def _absolute(name: str) -> str:
    """The absolute path of a file, since the holder has another working directory; `name` itself if there is none."""
    return os.path.abspath(name) if os.path.exists(name) else name  # noqa: PTH100, PTH110
