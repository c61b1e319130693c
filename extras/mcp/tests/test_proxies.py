"""MCP over HTTP through a proxy: the variables of the environment count, as they do for other HTTP clients."""

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from extras.mcp.config import CannotOpen, Config
from extras.mcp.loading import McpTools
from extras.mcp.tests.bad_http import BadHttp, response, running
from extras.mcp.tests.foreign import tool_of
from extras.mcp.transports import proxy_to
from tests.activities.bench import bench
from tests.processes import Processes
from workflows.faults.fault import Applied, Code, Fault, Quadrant

PEM = Path(__file__).parents[3] / "tests" / "site.example.pem"
TOKEN = "t-1"  # noqa: S105  # of the tests
SHOP, SITE = "mcp.shop.test", "site.example"
"""Names that no resolver has: only a proxy reaches them."""
SECRET = "hidden-7"  # noqa: S105  # of the tests
VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
DEAD = "127.0.0.1:9"


@dataclass
class ForwardProxy:
    """A proxy on loopback: it connects to a port on loopback, by the host that is named."""

    port: int
    """The port of all hosts that are not in `ports`."""
    ports: dict[str, int] = field(default_factory=dict)
    refuses: int = 0
    """The status of its answers in place of forwarding; 0 to forward."""
    requests: list[str] = field(default_factory=list)
    logins: set[str] = field(default_factory=set)
    address: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").strip().split("\r\n")
            self.requests.append(" ".join(first.split()[:2]))
            self.logins |= {line.partition(": ")[2] for line in lines if line.lower().startswith("proxy-authorization")}
            if self.refuses:
                writer.write(response(self.refuses))
            elif first.startswith("CONNECT "):
                writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
                await self.connect(self.port, reader, writer, b"")
            else:
                host = httpx2.URL(first.split()[1]).host
                await self.connect(self.ports.get(host, self.port), reader, writer, head)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    async def connect(
        self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, start: bytes
    ) -> None:
        """Pass bytes on in both directions, until one end closes."""
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        far_writer.write(start)
        ways = [asyncio.create_task(_pump(reader, far_writer)), asyncio.create_task(_pump(far_reader, writer))]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        far_writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


@asynccontextmanager
async def proxying(server: BadHttp, **options: Any) -> AsyncIterator[ForwardProxy]:
    """A proxy that reaches the server; `server` runs already, and gets a name that only the proxy knows."""
    port = httpx2.URL(server.url).port
    assert port is not None
    proxy = ForwardProxy(port, **options)
    listening = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.address = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    server.url = f"http://{SHOP}:{port}/mcp"
    try:
        yield proxy
    finally:
        listening.close()


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """An environment without proxies."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    yield monkeypatch


async def called(
    folder: Path, shop: McpTools, url: str, allow_hosts: tuple[str, ...] = (), **config: Any
) -> Fault | None:
    """Call the tool `shop.do` at this URL; its fault, or None for a success."""
    foreign = replace(shop, configs={"shop": Config("shop", url=url, **config)})
    async with bench(folder, servers=foreign, allow_hosts=allow_hosts) as calls:
        try:
            await calls.call(tool_of(shop, "shop.do"), text="first")
        except Exception as error:
            return Fault.model_validate(getattr(error, "details")[0])  # noqa: B009  # an ApplicationError's
    return None


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
async def test_the_proxy_of_the_environment_is_used(
    tmp_path: Path, shop: McpTools, environment: pytest.MonkeyPatch, variable: str
) -> None:
    """The name of the server is known only to the proxy, which gets its user and password."""
    async with running(BadHttp()) as server, proxying(server) as proxy:
        environment.setenv(variable, f"http://me:{SECRET}@{proxy.address}")
        fault = await called(tmp_path, shop, server.url)

    assert fault is None and server.effects == ["first"] and f"POST {server.url}" in proxy.requests
    assert proxy.logins == {"Basic " + base64.b64encode(f"me:{SECRET}".encode()).decode()}


async def test_a_server_with_tls_is_reached_by_a_tunnel(
    tmp_path: Path, shop: McpTools, environment: pytest.MonkeyPatch
) -> None:
    """HTTPS_PROXY counts, and the server's own certificate is checked through the tunnel."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(PEM)
    server = BadHttp()
    (again := tmp_path / "again").mkdir()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
    server.url = f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}/mcp"
    async with proxying(server) as proxy:
        environment.setenv("HTTPS_PROXY", proxy.address)
        environment.setenv("SSL_CERT_FILE", str(PEM))
        fault = await called(tmp_path, shop, f"https://{SITE}/mcp")
        environment.delenv("SSL_CERT_FILE")
        distrusted = await called(again, shop, f"https://{SITE}/mcp")
    listening.close()

    assert fault is None and server.effects == ["first"] and f"CONNECT {SITE}:443" in proxy.requests
    assert distrusted is not None and f"it takes no connection through the proxy {proxy.address}" in distrusted.reason


DIRECT = [
    ("127.0.0.1", "http://127.0.0.1:81/mcp", True),
    ("127.0.0.1", "http://127.0.0.2:81/mcp", False),
    ("localhost,127.0.0.1,::1", "http://[::1]:81/mcp", True),
    ("localhost", "http://LOCALHOST/mcp", True),
    ("127.0.0.0/8", "https://127.9.9.9/mcp", True),
    ("10.0.0.0/8", "http://127.0.0.1/mcp", False),
    ("fd00::/8", "http://[fd12::1]/mcp", True),
    (" shop.test , x", "http://mcp.shop.test:8931/mcp", True),
    ("shop.test", "http://shop.test/mcp", True),
    ("shop.test", "http://workshop.test/mcp", False),
    (".shop.test", "https://mcp.shop.test/mcp", True),
    (".shop.test", "https://shop.test/mcp", False),
    ("*.shop.test", "https://mcp.shop.test/mcp", True),
    ("mcp.shop.test:8931", "http://mcp.shop.test:8931/mcp", True),
    ("mcp.shop.test:8931", "http://mcp.shop.test:8932/mcp", False),
    ("https://shop.test", "http://shop.test/mcp", False),
    ("other.test, *", "http://shop.test/mcp", True),
    ("[[,::::,http://,%, ,shop.test", "http://shop.test/mcp", True),
    ("", "http://shop.test/mcp", False),
]


@pytest.mark.parametrize("variable", ["NO_PROXY", "no_proxy"])
@pytest.mark.parametrize(("hosts", "url", "is_direct"), DIRECT)
def test_no_proxy_names_servers_that_are_reached_directly(
    environment: pytest.MonkeyPatch, variable: str, hosts: str, url: str, is_direct: bool
) -> None:
    """Hosts, domains, ports and networks, as other programs of Python read them."""
    environment.setenv("ALL_PROXY", "http://proxy.test:3128")
    environment.setenv(variable, hosts)

    assert (proxy_to(httpx2.URL(url)) is None) is is_direct


async def test_a_server_on_this_machine_needs_no_usable_proxy(
    tmp_path: Path, shop: McpTools, environment: pytest.MonkeyPatch
) -> None:
    """A proxy that is no use to this server costs nothing: here one of a kind that needs another package."""
    environment.setenv("ALL_PROXY", f"socks5://me:{SECRET}@proxy.test:1080")
    environment.setenv("HTTPS_PROXY", "nonsense://:0")
    environment.setenv("NO_PROXY", "localhost,127.0.0.1")
    async with running(BadHttp()) as server:
        fault = await called(tmp_path, shop, server.url)

    assert fault is None and server.effects == ["first"]


@pytest.mark.parametrize("value", [f"ftp://me:{SECRET}@x:1", f"http://me:{SECRET}@x:99999", f"http://{SECRET}@", "//"])
def test_an_unusable_proxy_is_named_by_its_variable(environment: pytest.MonkeyPatch, value: str) -> None:
    """Its value is not in the message: it may have a password."""
    environment.setenv("HTTP_PROXY", value)
    with pytest.raises(CannotOpen) as caught:
        proxy_to(httpx2.URL("http://shop.test/mcp"))

    assert "HTTP_PROXY has no address of a proxy" in str(caught.value) and SECRET not in str(caught.value)


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_that_is_down_is_named(
    tmp_path: Path, shop: McpTools, environment: pytest.MonkeyPatch, scheme: str
) -> None:
    """By host and port, without its password; nothing was sent, and a retry can help."""
    environment.setenv("ALL_PROXY", f"http://me:{SECRET}@{DEAD}")
    fault = await called(tmp_path, shop, f"{scheme}://{SHOP}/mcp")

    assert fault is not None and (fault.code, fault.applied) == (Code.UNREACHABLE, Applied.NONE)
    assert fault.quadrant is Quadrant.TRANSIENT_INFRASTRUCTURAL and SECRET not in fault.model_dump_json()
    assert f"the proxy {DEAD} takes no connection" in fault.reason


async def test_a_refused_tunnel_proves_that_nothing_was_sent(
    tmp_path: Path, shop: McpTools, environment: pytest.MonkeyPatch
) -> None:
    """The proxy was asked only for the tunnel; the error names the proxy and its status."""
    async with running(BadHttp()) as server, proxying(server, refuses=403) as proxy:
        environment.setenv("HTTPS_PROXY", proxy.address)
        fault = await called(tmp_path, shop, f"https://{SITE}/mcp")

    assert fault is not None and fault.applied is Applied.NONE and server.effects == []
    assert f"the proxy {proxy.address} does not let the request through (HTTP status 403)" in fault.reason


@pytest.mark.parametrize(("number", "code"), [(407, Code.UNAUTHORIZED), (503, Code.SERVER_ERROR)])
async def test_a_status_through_a_proxy_names_the_proxy(
    tmp_path: Path, shop: McpTools, environment: pytest.MonkeyPatch, number: int, code: Code
) -> None:
    """It may be the proxy's own answer, when it cannot reach the server or knows no such user."""
    async with running(BadHttp("status", number)) as server, proxying(server) as proxy:
        environment.setenv("HTTP_PROXY", f"http://me:{SECRET}@{proxy.address}")
        fault = await called(tmp_path, shop, server.url)

    assert fault is not None and fault.code is code and SECRET not in fault.model_dump_json()
    assert f"HTTP status {number} through the proxy {proxy.address}" in fault.reason


@pytest.mark.parametrize("is_allowed", [True, False])
async def test_an_authorization_server_behind_the_proxy_must_be_allowed_by_name(
    tmp_path: Path, shop: McpTools, environment: pytest.MonkeyPatch, is_allowed: bool
) -> None:
    """The proxy looks its name up, so no address can be checked here: the MCP server may have named any host."""
    oauth = {"client_id": "shop", "client_secret": SECRET, "issuer": "http://login.test"}
    async with (
        running(BadHttp(token=TOKEN, secret=SECRET)) as login,
        running(BadHttp(token=TOKEN)) as server,
        proxying(server, ports={"login.test": httpx2.URL(login.url).port}) as proxy,
    ):
        environment.setenv("HTTP_PROXY", proxy.address)
        server.issuer, login.url = "http://login.test", "http://login.test/mcp"
        hosts = ("login.test",) if is_allowed else ()
        fault = await called(tmp_path, shop, server.url, hosts, **oauth)

    assert bool(login.requests) is is_allowed and server.effects == ["first"] * is_allowed
    assert is_allowed or (fault is not None and "--allow-host" in fault.reason)


async def test_a_worker_is_checked_through_the_proxy(tmp_path: Path) -> None:
    """The whole process reads its environment; its output names a proxy that is down, without the password."""
    async with running(BadHttp()) as server, proxying(server) as proxy:
        file = tmp_path / "servers.toml"
        file.write_text(f'[servers.h]\nurl = "{server.url}"\n')
        outputs = []
        for address in (proxy.address, DEAD):
            proxied = {"http_proxy": f"http://me:{SECRET}@{address}"}
            processes = Processes("127.0.0.1:1", tmp_path, proxied)
            outputs.append(await asyncio.to_thread(processes.asked, "--check", "--tools", str(file)))
    up, down = outputs

    assert "h.do" in up.stdout and f"the proxy {DEAD} takes no connection" in down.stdout + down.stderr
    assert not any(SECRET in output.stdout + output.stderr for output in outputs)
