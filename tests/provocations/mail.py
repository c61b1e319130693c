"""A mail server on loopback that replies as it is told."""

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

GOOD: Mapping[str, str] = {
    "HELLO": "220 ready",
    "EHLO": "250-mail\r\n250-AUTH PLAIN\r\n250 SIZE",
    "AUTH": "235 welcome",
    "MAIL": "250 ok",
    "RCPT": "250 ok",
    "DATA": "354 go on",
    "BODY": "250 taken",
    "QUIT": "221 bye",
}
"""What a server replies to each command that it takes; HELLO is what it says first, and BODY what follows a message."""


@contextmanager
def mail_server(replies: Mapping[str, str], taken: list[str] | None = None) -> Iterator[int]:
    """A mail server with these replies among the good ones; an empty one closes the connection. Yields its port.

    In `taken` it keeps the messages that it did not reject, also one to which it gives no answer.
    """
    said = {**GOOD, **replies}

    def serve(client: socket.socket) -> None:
        with client, client.makefile("rb") as lines:
            if not answer(client, "HELLO"):
                return
            for line in lines:
                word = line.split(maxsplit=1)[0].decode().upper()
                if not answer(client, word):
                    return
                if word == "DATA" and said["DATA"].startswith("354"):
                    while lines.readline() not in (b".\r\n", b""):
                        pass
                    if taken is not None and said["BODY"][:1] in ("", "2"):
                        taken.append("a message")
                    if not answer(client, "BODY"):
                        return

    def answer(client: socket.socket, word: str) -> bool:
        reply = said.get(word, "250 ok")
        client.sendall(f"{reply}\r\n".encode() if reply else b"")
        return bool(reply)

    def accept(server: socket.socket) -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(client,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=accept, args=(server,), daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
