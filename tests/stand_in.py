"""Stands for the interpreter: `stand_in.py FOLDER EXECUTABLE WORDS`, which `preloaded.python` starts as EXECUTABLE.

`python WORDS` is asked for at the socket of FOLDER. It is no child of ours: signals are passed on to it, it is killed
when our connection ends, and we end as it does. This is run without the site's packages, and so within 20 ms.
"""

import contextlib
import json
import os
import signal
import socket
import sys

PASSED_ON = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


def main(folder: str, executable: str, words: list[str]) -> None:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(f"{folder}/socket")
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)  # until we know to whom they go
    is_leader = os.getsid(0) == os.getpid()
    asked = {"command": words, "executable": executable, "is_leader": is_leader, "is_tied": True}
    cwd = os.getcwd()  # noqa: PTH109  # pathlib would take a third of our time
    request = json.dumps({**asked, "environment": dict(os.environ), "cwd": cwd}).encode()
    socket.send_fds(connection, [len(request).to_bytes(8, "big")], [0, 1, 2])
    connection.sendall(request)
    answers = connection.makefile()
    process = int(answers.readline())
    if process == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
        os.execv(sys.executable, [sys.executable, *words])  # noqa: S606  # the very command that we are

    def pass_on(number: int, _: object) -> None:
        with contextlib.suppress(ProcessLookupError):  # it ended just now
            if is_leader and os.getpgid(process) == process:  # it becomes the leader first of all
                os.killpg(process, number)
            else:
                os.kill(process, number)

    for number in PASSED_ON:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)  # or a pipe would not end with the process
    code = int(answers.readline())
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


main(sys.argv[1], sys.argv[2], sys.argv[3:])
