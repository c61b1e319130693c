"""What a server wrote to stderr before it ended: one line of it says why."""

import sys
from pathlib import Path

import pytest

from activities.toolbox.http.network import Web
from extras.mcp.config import CannotOpen, Config
from extras.mcp.servers import McpServers
from extras.mcp.stderr import explaining_line

DRAWN = " |╰─▶"
"""What Python and uv draw before a line."""
TAILS = {
    "python": """\
INFO:server:starting
Traceback (most recent call last):
  File "/app/server.py", line 31, in <module>
    main()
  File "/app/server.py", line 12, in main
    token = os.environ["SHOP_TOKEN"]
            ~~~~~~~~~~^^^^^^^^^^^^^^
  File "<frozen os>", line 685, in __getitem__
>>>KeyError: 'SHOP_TOKEN'""",
    "chained, with notes of pip": """\
Traceback (most recent call last):
  File "/app/server.py", line 4, in connect
    raise OSError("refused")
OSError: refused

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/app/server.py", line 9, in <module>
    connect()
>>>app.errors.NoDatabase: cannot open /data/shop.db: is the folder mounted?

[notice] A new release of pip is available: 23.2.1 -> 26.1
[notice] To update, run: pip install --upgrade pip""",
    "group of exceptions": """\
  + Exception Group Traceback (most recent call last):
  |   File "<string>", line 7, in <module>
  |   File "/usr/lib/python3.11/asyncio/taskgroups.py", line 145, in __aexit__
  |     raise me from None
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "<string>", line 5, in f
>>>    | ValueError: the port is no number
    +------------------------------------""",
    "python without a traceback": ">>>/usr/bin/python3: No module named mcp_server_shop",
    "arguments": "usage: server [-h] --db DB\n>>>server: error: the following arguments are required: --db",
    "only a usage": ">>>Usage: server DIRECTORY\n\n",
    "node": """\
/app/index.js:3
throw new Error("SHOP_TOKEN is not set");
^

>>>Error: SHOP_TOKEN is not set
    at Object.<anonymous> (/app/index.js:3:7)
    at Module._compile (node:internal/modules/cjs/loader:1554:14)
    at node:internal/main/run_main_module:36:49 {
  [cause]: Error: x
      at Object.<anonymous> (/app/index.js:2:15)
      at node:internal/main/run_main_module:36:49
}

Node.js v22.1.0""",
    "node without a module": """\
node:internal/modules/cjs/loader:1210
  throw err;
  ^

>>>Error: Cannot find module '/app/build/index.js'
Require stack:
- /app/[eval]
    at Module._resolveFilename (node:internal/modules/cjs/loader:1207:15)
    at node:internal/main/run_main_module:28:49 {
  code: 'MODULE_NOT_FOUND',
  requireStack: []
}

Node.js v20.20.2""",
    "node with a code": """\
node:events:497
      throw er; // Unhandled 'error' event
      ^

>>>Error [ERR_SERVER]: listen EADDRINUSE: address already in use :::3000
    at Server.setupListenHandle [as _listen2] (node:net:1898:16)
Emitted 'error' event on Server instance at:
    at emitErrorNT (node:net:1877:8)

Node.js v22.1.0""",
    "npx without the package": """\
npm error code E404
>>>npm error 404 Not Found - GET https://registry.npmjs.org/mcp-server-that-is-not-there
npm error 404
npm error 404  The requested resource 'mcp-server-that-is-not-there@*' could not be found or you do not have permission
npm error 404
npm error 404 Note that you can also install from a
npm error 404 tarball, folder, http url, or git url.
npm error A complete log of this run can be found in: /root/.npm/_logs/2026-11-28T22_47_44_329Z-debug-0.log""",
    "npx without a network": """\
npm ERR! code ENOTFOUND
npm ERR! syscall getaddrinfo
npm ERR! errno ENOTFOUND
>>>npm ERR! network request to https://registry.npmjs.org/x failed, reason: getaddrinfo ENOTFOUND registry.npmjs.org
npm ERR! network This is a problem related to network connectivity.
npm ERR! A complete log of this run can be found in: /root/.npm/_logs/x.log""",
    "uvx without the package": """\
  \N{MULTIPLICATION SIGN} No solution found when resolving tool dependencies:
>>>  ╰─▶ Because mcp-server-shop was not found in the package registry and you
      require mcp-server-shop, we can conclude that your requirements are
      unsatisfiable.""",
    "uvx without a network": """\
  \N{MULTIPLICATION SIGN} Failed to fetch: `https://pypi.org/simple/mcp-server-shop/`
  ├─▶ Request failed after 3 retries
  ├─▶ error sending request for url (https://pypi.org/simple/mcp-server-shop/)
>>>  ╰─▶ failed to lookup address information: Name or service not known
hint: the network may be missing""",
    "go": """\
2026/11/28 22:00:00 listening
>>>panic: assignment to entry in nil map

goroutine 19 [running]:
main.main.func1()
\t/app/main.go:3 +0x28
created by main.main in goroutine 1
\t/app/main.go:3 +0x35
exit status 2""",
    "rust": """\
thread 'main' (28969) panicked at src/main.rs:1:56:
>>>called `Result::unwrap()` on an `Err` value: "no token"
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace""",
    "rust with a backtrace": """\
>>>thread 'main' panicked at 'no token', src/main.rs:2:5
stack backtrace:
   0: std::panicking::begin_panic
             at /rustc/5980/library/std/src/panicking.rs:689:5
note: Some details are omitted, run with `RUST_BACKTRACE=full` for a verbose backtrace.""",
    "java": """\
Exception in thread "main" java.lang.IllegalStateException: no database
\tat shop.Main.main(Main.java:5)
>>>Caused by: java.net.ConnectException: Connection refused
\tat java.base/sun.nio.ch.Net.pollConnect(Native Method)
\t... 1 more""",
    "docker without its daemon": """\
>>>docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?

Run 'docker run --help' for more information""",
    "docker without the image": """\
Unable to find image 'mcp/shop:latest' locally
>>>docker: Error response from daemon: pull access denied for mcp/shop, repository does not exist

Run 'docker run --help' for more information""",
    "sh": ">>>sh: 1: mcp-shop: not found\n",
    "bash": ">>>bash: line 1: mcp-shop: command not found\n",
    "env": ">>>/usr/bin/env: 'node': No such file or directory",
    "no word of a failure": "starting\n>>>  listening on stdio  \n\n",
    "a traceback that was cut off": 'Traceback (most recent call last):\n>>>  File "/app/server.py", line 31',
    "nothing": "\n",
}
"""The last lines of stderr of real programs; `>>>` is before the line that explains the end."""


@pytest.mark.parametrize("program", TAILS)
def test_the_line_that_says_why_is_found(program: str) -> None:
    """And not a version, a frame or a note below it."""
    lines = TAILS[program].split("\n")
    marked = [line.removeprefix(">>>") for line in lines if line.startswith(">>>")]

    assert explaining_line([line.removeprefix(">>>") for line in lines]) == "".join(marked).strip(DRAWN)


async def test_a_server_that_ends_is_explained_by_the_line_that_says_why(tmp_path: Path) -> None:
    """A server whose exception is followed by a hint, without an end of its line."""
    program = tmp_path / "server.py"
    program.write_text(
        "import atexit, sys\natexit.register(sys.stderr.write, 'hint: see the manual')\nopen('/nowhere')\n"
    )
    config = Config("shop", command=[sys.executable, str(program)])

    async with McpServers({"shop": config}, None, Web()).opened() as servers:
        with pytest.raises(CannotOpen) as failed:
            await servers.listing("shop")
    assert failed.value.words == "FileNotFoundError: [Errno 2] No such file or directory: '/nowhere'"
