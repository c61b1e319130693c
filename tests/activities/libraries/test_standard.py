"""The standard library: what the operating system, sockets, queues, pools, programs and groups prove."""

import asyncio
import builtins
import concurrent.futures
import email.message
import errno
import fcntl
import json
import multiprocessing
import os
import queue
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from activities.borders import entry_of
from activities.borders.table import Proof, qualified
from replan import Busy, NeedsPerson, Refused, Unreachable
from runtime.dev_server import free_port
from tests.activities.libraries.verdicts import (
    HIDDEN,
    NOT_SENT,
    PROMISED,
    REFUSED,
    UNKNOWN,
    Outcome,
    failing,
    judged,
    outcome,
    raised,
)
from workflows.faults.fault import Code

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such devices, and no such backlog")


def read_from(server: socket.socket, linger: bytes | None) -> bytes:
    """Send a request to a server that resets the connection, or gives no answer."""
    with socket.create_connection(server.getsockname(), timeout=0.2) as client:
        client.sendall(b"charge 10 EUR")
        peer, _ = server.accept()
        with peer:
            if linger:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                peer.close()
            return client.recv(1)


ERRNOS: dict[Outcome, str] = {
    (Code.QUOTA_EXHAUSTED, UNKNOWN): "ENOSPC EDQUOT EFBIG ENOMEM",
    (Code.QUOTA_EXHAUSTED, NOT_SENT): "EMFILE ENFILE",
    (Code.QUOTA_EXHAUSTED, REFUSED): "ENOLCK",
    (Code.FORBIDDEN, REFUSED): "EROFS EACCES EPERM",
    (Code.NEEDS_PERSON, UNKNOWN): "EIO",
    (Code.BUSY, REFUSED): "EBUSY ETXTBSY EDEADLK",
    (Code.BUSY, UNKNOWN): "EAGAIN EINPROGRESS EINTR ENOBUFS",
    (Code.BUSY, NOT_SENT): "EADDRINUSE",
    (Code.UNREACHABLE, NOT_SENT): "EADDRNOTAVAIL ECONNREFUSED",
    (Code.UNREACHABLE, UNKNOWN): "ECONNRESET ECONNABORTED EPIPE ENETUNREACH EHOSTUNREACH EHOSTDOWN ENETDOWN ENETRESET"
    " ENOTCONN ESTALE",
    (Code.TIMEOUT, UNKNOWN): "ETIMEDOUT",
    (Code.NOT_FOUND, REFUSED): "ENOENT",
    (Code.CONFLICT, REFUSED): "EEXIST ENOTEMPTY",
    (Code.INVALID_INPUT, REFUSED): "EISDIR ENOTDIR ENAMETOOLONG ELOOP E2BIG",
    (Code.BUG, REFUSED): "EXDEV",
    (Code.BUG, UNKNOWN): "EINVAL EBADF",
}
"""By what they become, the numbers of the operating system."""


@pytest.mark.parametrize(
    ("name", "expected"), [(name, expected) for expected, names in ERRNOS.items() for name in names.split()]
)
def test_the_errno_decides(name: str, expected: Outcome) -> None:
    """The same number means the same, whether Python made a class of its own of it or not."""
    plain = OSError(HIDDEN)
    plain.errno = getattr(errno, name)

    assert outcome(OSError(plain.errno, HIDDEN)) == outcome(plain) == expected


@on_linux
def test_real_files(tmp_path: Path) -> None:
    """What a tool meets that works with files."""
    full, loop, lock = Path("/dev/full"), tmp_path / "loop", tmp_path / "lock"
    loop.symlink_to(loop)
    with lock.open("w") as held, lock.open("w") as wanted:
        fcntl.flock(held, fcntl.LOCK_EX)
        locked = raised(lambda: fcntl.flock(wanted, fcntl.LOCK_EX | fcntl.LOCK_NB))

    assert outcome(raised(lambda: full.write_text("x"))) == (Code.QUOTA_EXHAUSTED, UNKNOWN)
    assert outcome(raised(loop.read_text)) == (Code.INVALID_INPUT, REFUSED)
    assert outcome(raised(tmp_path.rmdir)) == (Code.CONFLICT, REFUSED)
    assert outcome(raised((tmp_path / ("x" * 300)).touch)) == (Code.INVALID_INPUT, REFUSED)
    assert outcome(raised((tmp_path / "none").read_text)) == (Code.NOT_FOUND, REFUSED)
    assert outcome(locked) == (Code.BUSY, UNKNOWN)


def test_a_refused_connection_was_not_used_and_a_lost_answer_proves_nothing() -> None:
    """The connection was reset, or silent, after the request was sent; an address in use may be given back."""
    refused = raised(lambda: socket.create_connection(("127.0.0.1", free_port())))
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as second:
        reset = raised(lambda: read_from(server, struct.pack("ii", 1, 0)))
        silent = raised(lambda: read_from(server, None))
        taken = raised(lambda: second.bind(server.getsockname()))

    assert outcome(refused) == (Code.UNREACHABLE, NOT_SENT)
    assert outcome(reset) == (Code.UNREACHABLE, UNKNOWN)
    assert outcome(silent) == (Code.TIMEOUT, UNKNOWN)
    assert outcome(taken) == (Code.BUSY, NOT_SENT)


@on_linux
def test_a_connection_that_was_not_made_in_time_was_not_used() -> None:
    """TimeoutError has no field for this: the place where it was raised says it."""
    with socket.socket() as server, socket.socket() as first:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        first.connect(server.getsockname())
        error = raised(lambda: socket.create_connection(server.getsockname(), timeout=0.1))

    assert isinstance(error, TimeoutError)
    assert outcome(error) == (Code.UNREACHABLE, NOT_SENT)


class TwoAddresses(asyncio.SelectorEventLoop):
    """A loop for which each host has two addresses of loopback."""

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        """As the standard library's, without a look-up."""
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in ("127.0.0.1", "127.0.0.2")]


def test_asyncio_gives_up_on_all_addresses() -> None:
    """It raises an OSError without errno then, which a tool with asyncpg meets for `localhost`."""
    with asyncio.Runner(loop_factory=TwoAddresses) as runner:
        error = raised(lambda: runner.run(asyncio.open_connection("shop.example", free_port())))

    assert isinstance(error, OSError) and error.errno is None
    assert outcome(error) == (Code.UNREACHABLE, NOT_SENT)


def test_a_failed_look_up_sent_nothing() -> None:
    """Whatever the name server said; a service that does not exist is a bug of the tool."""
    unknown = raised(lambda: socket.getaddrinfo("host.invalid", 80))
    wrong = raised(lambda: socket.getaddrinfo("127.0.0.1", "no such service"))
    numbers = [socket.EAI_AGAIN, socket.EAI_NONAME, socket.EAI_FAIL, 12345, None, "x"]

    assert outcome(unknown) == (Code.UNREACHABLE, NOT_SENT)
    assert outcome(wrong) == (Code.BUG, NOT_SENT)
    assert {outcome(socket.gaierror(one, HIDDEN)) for one in numbers} == {(Code.UNREACHABLE, NOT_SENT)}
    assert outcome(socket.herror(1, HIDDEN)) == (Code.UNREACHABLE, NOT_SENT)


@pytest.mark.parametrize(
    ("program", "seconds", "code", "observed"),
    [
        ("import sys; sys.exit('sk-secret')", None, Code.BUG, {"exit_code": 1}),
        ("import os; os.kill(os.getpid(), 9)", None, Code.BUG, {"exit_code": -signal.SIGKILL}),
        ("import time; time.sleep(60)", 0.3, Code.TIMEOUT, None),
    ],
)
def test_a_program_that_failed(
    program: str, seconds: float | None, code: Code, observed: dict[str, int] | None
) -> None:
    """Its effect is unknown, and only its exit code is kept: its output and its arguments may hold secrets."""
    command = [sys.executable, "-c", program, HIDDEN]
    verdict = judged(raised(lambda: subprocess.run(command, check=True, timeout=seconds, capture_output=True)))

    assert (*outcome(verdict), verdict.fault.observed) == (code, UNKNOWN, observed)


async def test_a_missing_program_is_for_a_person(tmp_path: Path) -> None:
    """No other name helps, but that of a folder which the arguments name does."""
    missing = raised(lambda: subprocess.run(["no-such-program"], check=True))
    started = await failing(asyncio.create_subprocess_exec, "no-such-program")
    folder = raised(lambda: subprocess.run([sys.executable, "-V"], cwd=tmp_path / "none", check=True))

    assert outcome(missing) == outcome(started) == (Code.NEEDS_PERSON, NOT_SENT)
    assert outcome(folder) == (Code.NOT_FOUND, REFUSED)


@pytest.mark.parametrize("code", [None, "1", 1.5, [1]])
def test_an_exit_code_that_is_none(code: object) -> None:
    """Nothing is observed then."""
    verdict = judged(subprocess.CalledProcessError(code, [HIDDEN]))  # type: ignore[arg-type]  # what nobody promises

    assert (*outcome(verdict), verdict.fault.observed) == (Code.BUG, UNKNOWN, None)


async def test_streams_queues_and_texts() -> None:
    """A full queue took nothing, and an empty one may get its answer later; a call whose answer is broken was made."""
    short, long = asyncio.StreamReader(), asyncio.StreamReader(limit=4)
    short.feed_data(b"half")
    short.feed_eof()
    long.feed_data(b"more than four")
    full, async_full = queue.Queue[int](maxsize=1), asyncio.Queue[int](maxsize=1)
    full.put(1)
    async_full.put_nowait(1)

    assert outcome(await failing(short.readexactly, 8)) == (Code.UNREACHABLE, UNKNOWN)
    assert outcome(await failing(long.readuntil, b"\n")) == (Code.BUG, UNKNOWN)
    assert outcome(raised(lambda: full.put(2, timeout=0.01))) == (Code.BUSY, REFUSED)
    assert outcome(raised(lambda: queue.Queue[int]().get(timeout=0.01))) == (Code.TIMEOUT, UNKNOWN)
    assert outcome(raised(lambda: async_full.put_nowait(2))) == (Code.BUSY, REFUSED)
    assert outcome(raised(asyncio.Queue[int]().get_nowait)) == (Code.BUG, UNKNOWN)
    assert outcome(raised(lambda: json.loads(HIDDEN))) == (Code.UNEXPECTED_RESULT, UNKNOWN)


def test_a_process_of_a_pool_that_ended() -> None:
    """The pool stays broken, so that a retry cannot help."""
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn) as pool:
        error = raised(pool.submit(os._exit, 1).result)

    assert isinstance(error, concurrent.futures.BrokenExecutor)
    assert outcome(error) == (Code.BUG, UNKNOWN)


class DeviceError(OSError):
    """Of a library, which may count otherwise than the operating system, as ssl and smtplib do."""


def numbered(number: Any) -> OSError:
    error = OSError(HIDDEN)
    error.errno = number  # what a library may have put there
    return error


BUGS: list[Exception] = [
    *map(numbered, (None, "", "2", 10**30, -1, 0, [errno.ENOENT], 2.0)),
    *(DeviceError(*some) for some in ((errno.ENOTEMPTY, HIDDEN), (errno.ECONNREFUSED, HIDDEN), (HIDDEN,), ())),
    asyncio.InvalidStateError(HIDDEN),
    asyncio.BrokenBarrierError(HIDDEN),
    asyncio.SendfileNotAvailableError(HIDDEN),
    concurrent.futures.CancelledError(HIDDEN),
    concurrent.futures.InvalidStateError(HIDDEN),
    subprocess.SubprocessError(HIDDEN),
    *(kind(HIDDEN) for kind in (MemoryError, RecursionError, AssertionError, KeyError, TypeError)),
]


@pytest.mark.parametrize("error", BUGS, ids=lambda one: f"{type(one).__name__} {getattr(one, 'errno', '')}".strip())
def test_a_bug_of_the_tool(error: Exception) -> None:
    """A person fixes it; what the tool did before is unknown. Nothing is guessed from what is no number of a system."""
    assert outcome(error) == (Code.BUG, UNKNOWN)


def test_no_class_of_python_itself_but_those_of_the_system_has_a_row() -> None:
    """A row for ValueError or RuntimeError would cover the exceptions of every library."""
    errors = [one for one in vars(builtins).values() if isinstance(one, type) and issubclass(one, Exception)]
    others = [one for one in errors if not issubclass(one, OSError | Warning | ExceptionGroup | MemoryError)]

    assert [one for one in others if entry_of(map(qualified, one.__mro__)) is not None] == []


def status(number: int) -> HTTPError:
    return HTTPError("http://shop.example/", number, HIDDEN, email.message.Message(), None)


GROUPS: list[tuple[BaseException, Code, Proof]] = [
    (ExceptionGroup("x", [TimeoutError(), ConnectionRefusedError()]), Code.TIMEOUT, UNKNOWN),
    (ExceptionGroup("x", [ConnectionRefusedError(), socket.gaierror()]), Code.UNREACHABLE, NOT_SENT),
    (ExceptionGroup("x", [ConnectionRefusedError(), FileNotFoundError()]), Code.NOT_FOUND, REFUSED),
    (ExceptionGroup("x", [FileNotFoundError(), TimeoutError()]), Code.NOT_FOUND, UNKNOWN),
    (ExceptionGroup("x", [FileNotFoundError(), PermissionError(), TimeoutError()]), Code.FORBIDDEN, UNKNOWN),
    (ExceptionGroup("x", [FileNotFoundError(), ExceptionGroup("y", [KeyError()])]), Code.BUG, UNKNOWN),
    (ExceptionGroup("x", [ExceptionGroup("y", [ExceptionGroup("z", [FileExistsError()])])]), Code.CONFLICT, REFUSED),
    (ExceptionGroup("x", [ConnectionRefusedError(), status(429)]), Code.UNREACHABLE, REFUSED),
    (ExceptionGroup("x", [status(429), status(409)]), Code.CONFLICT, REFUSED),
    (ExceptionGroup("x", [Refused("No."), ConnectionRefusedError()]), Code.REFUSED, NOT_SENT),
    (ExceptionGroup("x", [Refused("No."), NeedsPerson("Ask."), TimeoutError()]), Code.NEEDS_PERSON, UNKNOWN),
    (ExceptionGroup("x", [Busy("Wait.", retry_after=5), Busy("Wait.", retry_after=9)]), Code.BUSY, PROMISED),
    (ExceptionGroup("x", [Unreachable("Cut."), FileNotFoundError()]), Code.NOT_FOUND, REFUSED),
    (BaseExceptionGroup("x", [FileNotFoundError(), KeyboardInterrupt()]), Code.BUG, UNKNOWN),
    (BaseExceptionGroup("x", [asyncio.CancelledError(), ConnectionRefusedError()]), Code.BUG, UNKNOWN),
]


@pytest.mark.parametrize(("error", "code", "proves"), GROUPS, ids=repr)
def test_a_group_is_as_bad_as_its_worst_member(error: BaseException, code: Code, proves: Proof) -> None:
    """A person before a plan before a retry; and it proves no more than each of its members."""
    assert outcome(error) == (code, proves)


def test_a_group_waits_for_the_member_that_asks_to_wait_longest() -> None:
    """A retry before that would be rejected again."""
    group = ExceptionGroup("x", [Busy("Wait.", retry_after=5), ExceptionGroup("y", [Busy("Wait.", retry_after=9)])])

    assert judged(group).fault.retry_after == 9


async def test_a_task_group_of_a_tool() -> None:
    """Its other tasks were cancelled, and are no members."""

    async def connect(port: int) -> None:
        await asyncio.open_connection("127.0.0.1", port)

    with pytest.raises(ExceptionGroup) as error:
        async with asyncio.TaskGroup() as group:
            group.create_task(connect(free_port()))
            group.create_task(asyncio.sleep(60))

    assert outcome(error.value) == (Code.UNREACHABLE, NOT_SENT)
