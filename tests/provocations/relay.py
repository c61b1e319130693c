"""A relay between a client and a server on loopback that can lose the answers."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Relay:
    """Passes on what both sides say, until it is told to lose answers."""

    port: int
    """Where clients connect."""
    loses: bool = False
    """Whether the next answer of the server is lost, with its connection, and each one after it."""
    _pairs: list[tuple[socket.socket, socket.socket]] = field(default_factory=list)

    @contextmanager
    def losing(self, does: bool = True) -> Iterator[None]:
        """Lose each answer during the block, if asked for."""
        self.loses = does
        try:
            yield
        finally:
            self.loses = False


@contextmanager
def relaying(target: int, port: int = 0) -> Iterator[Relay]:
    """A relay to a port of loopback."""
    with socket.create_server(("127.0.0.1", port)) as server:
        relay = Relay(server.getsockname()[1])
        accepting = threading.Thread(target=_accept, args=(server, relay, target), daemon=True)
        accepting.start()
        try:
            yield relay
        finally:
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            for pair in relay._pairs:
                _close(*pair)


def _accept(server: socket.socket, relay: Relay, target: int) -> None:
    while True:
        try:
            client, _ = server.accept()
        except OSError:
            return
        try:
            other = socket.create_connection(("127.0.0.1", target))
        except OSError:
            client.close()
            continue
        relay._pairs.append((client, other))
        for one, two, is_answer in ((client, other, False), (other, client, True)):
            threading.Thread(target=_pass_on, args=(relay, one, two, is_answer), daemon=True).start()


def _pass_on(relay: Relay, one: socket.socket, two: socket.socket, is_answer: bool) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(65536):
            if relay.loses and is_answer:
                break
            two.sendall(data)
    _close(one, two)


def _close(*sockets: socket.socket) -> None:
    for one in sockets:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()
