"""Where the gateway and its workers listen: a system takes no long path for a socket."""

import socket
import tempfile
from pathlib import Path

import pytest

from server.gateway.wire import socket_path


@pytest.mark.parametrize("length", range(60, 111, 5))
def test_a_state_folder_may_have_any_path(length: int) -> None:
    """Of the daemon and of each worker, also where only the longer name of a worker's socket is too long."""
    with tempfile.TemporaryDirectory(prefix="replan-") as folder:
        state = Path(folder) / ("s" * (length - len(folder) - 1))
        state.mkdir()
        paths = [socket_path(state), socket_path(state, "013b61be26fc"), socket_path(state, "a5c84dd47497")]
        for path in paths:
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(path))
            path.unlink()

    assert len(set(paths)) == 3
