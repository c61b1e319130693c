"""The standard library: what the operating system, sockets, queues, pools, programs and groups prove."""

import asyncio
import builtins
import concurrent.futures
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from activities.borders import entry_of, judge
from activities.borders.table import Proof, Verdict, qualified
from replan import Busy, NeedsPerson, Refused, Unreachable
from workflows.faults.fault import Code

HIDDEN = "sk-secret"


def raised(call: Callable[[], object]) -> BaseException:
    """The exception of a call, as a tool would let it through."""
    try:
        call()
    except BaseException as error:
        return error
    raise AssertionError("the call did not fail")


def said(verdict: Verdict) -> tuple[Code, Proof]:
    """What a verdict decides."""
    return verdict.fault.code, verdict.proves


def free_port() -> int:
    """A port of loopback on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


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


@pytest.mark.parametrize(
    ("name", "code", "proves"),
    [
        ("ENOSPC", Code.QUOTA_EXHAUSTED, Proof.UNKNOWN),
        ("EDQUOT", Code.QUOTA_EXHAUSTED, Proof.UNKNOWN),
        ("EFBIG", Code.QUOTA_EXHAUSTED, Proof.UNKNOWN),
        ("ENOMEM", Code.QUOTA_EXHAUSTED, Proof.UNKNOWN),
        ("EMFILE", Code.QUOTA_EXHAUSTED, Proof.NOT_SENT),
        ("ENFILE", Code.QUOTA_EXHAUSTED, Proof.NOT_SENT),
        ("ENOLCK", Code.QUOTA_EXHAUSTED, Proof.REFUSED),
        ("EROFS", Code.FORBIDDEN, Proof.REFUSED),
        ("EACCES", Code.FORBIDDEN, Proof.REFUSED),
        ("EPERM", Code.FORBIDDEN, Proof.REFUSED),
        ("EIO", Code.NEEDS_PERSON, Proof.UNKNOWN),
        ("EBUSY", Code.BUSY, Proof.REFUSED),
        ("ETXTBSY", Code.BUSY, Proof.REFUSED),
        ("EDEADLK", Code.BUSY, Proof.REFUSED),
        ("EAGAIN", Code.BUSY, Proof.UNKNOWN),
        ("EINPROGRESS", Code.BUSY, Proof.UNKNOWN),
        ("EINTR", Code.BUSY, Proof.UNKNOWN),
        ("ENOBUFS", Code.BUSY, Proof.UNKNOWN),
        ("EADDRINUSE", Code.BUSY, Proof.NOT_SENT),
        ("EADDRNOTAVAIL", Code.UNREACHABLE, Proof.NOT_SENT),
        ("ECONNREFUSED", Code.UNREACHABLE, Proof.NOT_SENT),
        ("ECONNRESET", Code.UNREACHABLE, Proof.UNKNOWN),
        ("ECONNABORTED", Code.UNREACHABLE, Proof.UNKNOWN),
        ("EPIPE", Code.UNREACHABLE, Proof.UNKNOWN),
        ("ENETUNREACH", Code.UNREACHABLE, Proof.UNKNOWN),
        ("EHOSTUNREACH", Code.UNREACHABLE, Proof.UNKNOWN),
        ("EHOSTDOWN", Code.UNREACHABLE, Proof.UNKNOWN),
        ("ENETDOWN", Code.UNREACHABLE, Proof.UNKNOWN),
        ("ENETRESET", Code.UNREACHABLE, Proof.UNKNOWN),
        ("ENOTCONN", Code.UNREACHABLE, Proof.UNKNOWN),
        ("ESTALE", Code.UNREACHABLE, Proof.UNKNOWN),
        ("ETIMEDOUT", Code.TIMEOUT, Proof.UNKNOWN),
        ("ENOENT", Code.NOT_FOUND, Proof.REFUSED),
        ("EEXIST", Code.CONFLICT, Proof.REFUSED),
        ("ENOTEMPTY", Code.CONFLICT, Proof.REFUSED),
        ("EISDIR", Code.INVALID_INPUT, Proof.REFUSED),
        ("ENOTDIR", Code.INVALID_INPUT, Proof.REFUSED),
        ("ENAMETOOLONG", Code.INVALID_INPUT, Proof.REFUSED),
        ("ELOOP", Code.INVALID_INPUT, Proof.REFUSED),
        ("E2BIG", Code.INVALID_INPUT, Proof.REFUSED),
        ("EXDEV", Code.BUG, Proof.REFUSED),
        ("EINVAL", Code.BUG, Proof.UNKNOWN),
        ("EBADF", Code.BUG, Proof.UNKNOWN),
    ],
)
def test_the_errno_decides(name: str, code: Code, proves: Proof) -> None:
    """The same number means the same, whether Python made a class of its own of it or not."""
    number = getattr(errno, name)
    plain = OSError(HIDDEN)
    plain.errno = number

    assert said(judge(OSError(number, HIDDEN))) == (code, proves)
    assert said(judge(plain)) == (code, proves)


@pytest.mark.parametrize("number", [None, "", "2", 10**30, -1, 0, [errno.ENOENT], 2.0])
def test_an_errno_that_is_none_is_a_bug(number: object) -> None:
    """Nothing is guessed from what is no number of an operating system."""
    error = OSError(HIDDEN)
    error.errno = number  # type: ignore[assignment]  # what a library may have put there

    assert said(judge(error)) == (Code.BUG, Proof.UNKNOWN)


@pytest.mark.parametrize("arguments", [(errno.ENOTEMPTY, HIDDEN), (errno.ECONNREFUSED, HIDDEN), (HIDDEN,), ()])
def test_the_number_of_another_librarys_class_says_nothing(arguments: tuple[Any, ...]) -> None:
    """A library that inherits from OSError may count otherwise, as ssl and smtplib do."""

    class DeviceError(OSError):
        pass

    assert said(judge(DeviceError(*arguments))) == (Code.BUG, Proof.UNKNOWN)


@pytest.mark.skipif(sys.platform != "linux", reason="it needs the devices of Linux")
def test_real_files(tmp_path: Path) -> None:
    """What a tool meets that works with files."""
    full, loop, lock = Path("/dev/full"), tmp_path / "loop", tmp_path / "lock"
    loop.symlink_to(loop)
    with lock.open("w") as held, lock.open("w") as wanted:
        fcntl.flock(held, fcntl.LOCK_EX)
        locked = raised(lambda: fcntl.flock(wanted, fcntl.LOCK_EX | fcntl.LOCK_NB))

    assert said(judge(raised(lambda: full.write_text("x")))) == (Code.QUOTA_EXHAUSTED, Proof.UNKNOWN)
    assert said(judge(raised(loop.read_text))) == (Code.INVALID_INPUT, Proof.REFUSED)
    assert said(judge(raised(tmp_path.rmdir))) == (Code.CONFLICT, Proof.REFUSED)
    assert said(judge(raised((tmp_path / ("x" * 300)).touch))) == (Code.INVALID_INPUT, Proof.REFUSED)
    assert said(judge(raised((tmp_path / "none").read_text))) == (Code.NOT_FOUND, Proof.REFUSED)
    assert said(judge(locked)) == (Code.BUSY, Proof.UNKNOWN)


def test_a_refused_connection_was_not_used() -> None:
    """An unkeyed call may be made again."""
    error = raised(lambda: socket.create_connection(("127.0.0.1", free_port())))

    assert said(judge(error)) == (Code.UNREACHABLE, Proof.NOT_SENT)


def test_a_lost_answer_proves_nothing() -> None:
    """The request was sent: the connection was reset, or silent, after it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        reset = raised(lambda: read_from(server, struct.pack("ii", 1, 0)))
        silent = raised(lambda: read_from(server, None))

    assert said(judge(reset)) == (Code.UNREACHABLE, Proof.UNKNOWN)
    assert said(judge(silent)) == (Code.TIMEOUT, Proof.UNKNOWN)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems answer beyond the backlog")
def test_a_connection_that_was_not_made_in_time_was_not_used() -> None:
    """TimeoutError has no field for this: the place where it was raised says it."""
    with socket.socket() as server, socket.socket() as first:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        first.connect(server.getsockname())
        error = raised(lambda: socket.create_connection(server.getsockname(), timeout=0.1))

    assert isinstance(error, TimeoutError)
    assert said(judge(error)) == (Code.UNREACHABLE, Proof.NOT_SENT)


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
    assert said(judge(error)) == (Code.UNREACHABLE, Proof.NOT_SENT)


def test_a_failed_look_up_sent_nothing() -> None:
    """Whatever the name server said; a service that does not exist is a bug of the tool."""
    unknown = raised(lambda: socket.getaddrinfo("host.invalid", 80))
    wrong = raised(lambda: socket.getaddrinfo("127.0.0.1", "no such service"))
    numbers = [socket.EAI_AGAIN, socket.EAI_NONAME, socket.EAI_FAIL, 12345, None, "x"]

    assert said(judge(unknown)) == (Code.UNREACHABLE, Proof.NOT_SENT)
    assert said(judge(wrong)) == (Code.BUG, Proof.NOT_SENT)
    assert {said(judge(socket.gaierror(one, HIDDEN))) for one in numbers} == {(Code.UNREACHABLE, Proof.NOT_SENT)}
    assert said(judge(socket.herror(1, HIDDEN))) == (Code.UNREACHABLE, Proof.NOT_SENT)


def test_an_address_in_use() -> None:
    """Another program may give it back."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as second:
        error = raised(lambda: second.bind(server.getsockname()))

    assert said(judge(error)) == (Code.BUSY, Proof.NOT_SENT)


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
    verdict = judge(raised(lambda: subprocess.run(command, check=True, timeout=seconds, capture_output=True)))

    assert (*said(verdict), verdict.fault.observed) == (code, Proof.UNKNOWN, observed)
    assert HIDDEN not in verdict.fault.model_dump_json()


async def test_a_missing_program_is_for_a_person(tmp_path: Path) -> None:
    """No other name helps, but that of a folder which the arguments name does."""
    missing = raised(lambda: subprocess.run(["no-such-program"], check=True))
    with pytest.raises(FileNotFoundError) as started:
        await asyncio.create_subprocess_exec("no-such-program")
    folder = raised(lambda: subprocess.run([sys.executable, "-V"], cwd=tmp_path / "none", check=True))

    assert said(judge(missing)) == said(judge(started.value)) == (Code.NEEDS_PERSON, Proof.NOT_SENT)
    assert said(judge(folder)) == (Code.NOT_FOUND, Proof.REFUSED)


@pytest.mark.parametrize("code", [None, "1", 1.5, [1]])
def test_an_exit_code_that_is_none(code: object) -> None:
    """Nothing is observed then."""
    verdict = judge(subprocess.CalledProcessError(code, [HIDDEN]))  # type: ignore[arg-type]  # what nobody promises

    assert (*said(verdict), verdict.fault.observed) == (Code.BUG, Proof.UNKNOWN, None)


async def test_a_stream_that_ended_early() -> None:
    """The peer closed the connection within its answer, or sent a longer line than the tool reads."""
    short, long = asyncio.StreamReader(), asyncio.StreamReader(limit=4)
    short.feed_data(b"half")
    short.feed_eof()
    long.feed_data(b"more than four")
    with pytest.raises(asyncio.IncompleteReadError) as incomplete:
        await short.readexactly(8)
    with pytest.raises(asyncio.LimitOverrunError) as overrun:
        await long.readuntil(b"\n")

    assert said(judge(incomplete.value)) == (Code.UNREACHABLE, Proof.UNKNOWN)
    assert said(judge(overrun.value)) == (Code.BUG, Proof.UNKNOWN)


async def test_queues() -> None:
    """A full queue took nothing; an empty one may get its answer later."""
    full, empty = queue.Queue[int](maxsize=1), queue.Queue[int]()
    full.put(1)
    async_full, async_empty = asyncio.Queue[int](maxsize=1), asyncio.Queue[int]()
    async_full.put_nowait(1)

    assert said(judge(raised(lambda: full.put(2, timeout=0.01)))) == (Code.BUSY, Proof.REFUSED)
    assert said(judge(raised(lambda: empty.get(timeout=0.01)))) == (Code.TIMEOUT, Proof.UNKNOWN)
    assert said(judge(raised(lambda: async_full.put_nowait(2)))) == (Code.BUSY, Proof.REFUSED)
    assert said(judge(raised(async_empty.get_nowait))) == (Code.BUG, Proof.UNKNOWN)


def test_a_process_of_a_pool_that_ended() -> None:
    """The pool stays broken, so that a retry cannot help."""
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn) as pool:
        error = raised(pool.submit(os._exit, 1).result)

    assert isinstance(error, concurrent.futures.BrokenExecutor)
    assert said(judge(error)) == (Code.BUG, Proof.UNKNOWN)


@pytest.mark.parametrize(
    "error",
    [
        asyncio.InvalidStateError(HIDDEN),
        asyncio.BrokenBarrierError(HIDDEN),
        asyncio.SendfileNotAvailableError(HIDDEN),
        concurrent.futures.CancelledError(HIDDEN),
        concurrent.futures.InvalidStateError(HIDDEN),
        subprocess.SubprocessError(HIDDEN),
        MemoryError(HIDDEN),
        RecursionError(HIDDEN),
        AssertionError(HIDDEN),
        KeyError(HIDDEN),
        TypeError(HIDDEN),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_bug_of_the_tool(error: Exception) -> None:
    """A person fixes it; what the tool did before is unknown."""
    verdict = judge(error)

    assert said(verdict) == (Code.BUG, Proof.UNKNOWN)
    assert HIDDEN not in verdict.fault.reason


def test_an_answer_that_is_no_json() -> None:
    """The call was answered, and may have had its effect."""
    assert said(judge(raised(lambda: json.loads(HIDDEN)))) == (Code.UNEXPECTED_RESULT, Proof.UNKNOWN)


def test_no_class_of_python_itself_but_those_of_the_system_has_a_row() -> None:
    """A row for ValueError or RuntimeError would cover the exceptions of every library."""
    errors = [one for one in vars(builtins).values() if isinstance(one, type) and issubclass(one, Exception)]
    others = [one for one in errors if not issubclass(one, OSError | Warning | ExceptionGroup | MemoryError)]

    assert [one for one in others if entry_of(map(qualified, one.__mro__)) is not None] == []


GROUPS: list[tuple[BaseException, Code, Proof]] = [
    (ExceptionGroup("x", [TimeoutError(), ConnectionRefusedError()]), Code.TIMEOUT, Proof.UNKNOWN),
    (ExceptionGroup("x", [ConnectionRefusedError(), socket.gaierror()]), Code.UNREACHABLE, Proof.NOT_SENT),
    (ExceptionGroup("x", [ConnectionRefusedError(), FileNotFoundError()]), Code.NOT_FOUND, Proof.REFUSED),
    (ExceptionGroup("x", [FileNotFoundError(), TimeoutError()]), Code.NOT_FOUND, Proof.UNKNOWN),
    (ExceptionGroup("x", [FileNotFoundError(), PermissionError(), TimeoutError()]), Code.FORBIDDEN, Proof.UNKNOWN),
    (ExceptionGroup("x", [FileNotFoundError(), ExceptionGroup("y", [KeyError()])]), Code.BUG, Proof.UNKNOWN),
    (
        ExceptionGroup("x", [ExceptionGroup("y", [ExceptionGroup("z", [FileExistsError()])])]),
        Code.CONFLICT,
        Proof.REFUSED,
    ),
    (ExceptionGroup("x", [Refused("No."), ConnectionRefusedError()]), Code.REFUSED, Proof.NOT_SENT),
    (ExceptionGroup("x", [Refused("No."), NeedsPerson("Ask."), TimeoutError()]), Code.NEEDS_PERSON, Proof.UNKNOWN),
    (ExceptionGroup("x", [Busy("Wait.", retry_after=5), Busy("Wait.", retry_after=9)]), Code.BUSY, Proof.PROMISED),
    (ExceptionGroup("x", [Unreachable("Cut."), FileNotFoundError()]), Code.NOT_FOUND, Proof.REFUSED),
    (BaseExceptionGroup("x", [FileNotFoundError(), KeyboardInterrupt()]), Code.BUG, Proof.UNKNOWN),
    (BaseExceptionGroup("x", [asyncio.CancelledError(), ConnectionRefusedError()]), Code.BUG, Proof.UNKNOWN),
]


@pytest.mark.parametrize(("error", "code", "proves"), GROUPS, ids=repr)
def test_a_group_is_as_bad_as_its_worst_member(error: BaseException, code: Code, proves: Proof) -> None:
    """A person before a plan before a retry; and it proves no more than each of its members."""
    assert said(judge(error)) == (code, proves)


def test_a_group_waits_for_the_member_that_asks_to_wait_longest() -> None:
    """A retry before that would be rejected again."""
    group = ExceptionGroup("x", [Busy("Wait.", retry_after=5), ExceptionGroup("y", [Busy("Wait.", retry_after=9)])])

    assert judge(group).fault.retry_after == 9


async def test_a_task_group_of_a_tool() -> None:
    """Its other tasks were cancelled, and are no members."""

    async def connect(port: int) -> None:
        await asyncio.open_connection("127.0.0.1", port)

    with pytest.raises(ExceptionGroup) as error:
        async with asyncio.TaskGroup() as group:
            group.create_task(connect(free_port()))
            group.create_task(asyncio.sleep(60))

    assert said(judge(error.value)) == (Code.UNREACHABLE, Proof.NOT_SENT)
