"""Where the server's program comes from: named, on PATH, cached, downloaded, built; and what is said if none."""

import asyncio
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from runtime.dev_server import ServerUnavailable, find_cli
from runtime.temporal_cli import cached_binary, spoken

Write = Callable[[str, str], Path]

BUILDS = 'sleep 0.2; mkdir -p "$GOBIN"; printf "#!/bin/sh\\n# %s" "$*" > "$GOBIN/temporal"; chmod +x "$GOBIN/temporal"'


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a program, by name, into the only folder on PATH besides the system's own."""
    monkeypatch.delenv("TEMPORAL_CLI", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")  # so that nothing can be downloaded
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/bin:/usr/bin")
    tmp_path.joinpath("bin").mkdir()

    def write(name: str, script: str) -> Path:
        file = tmp_path / "bin" / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
        return file

    return write


async def test_a_named_program_comes_before_path_and_that_before_the_cache(
    program: Write, monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    """A mistyped TEMPORAL_CLI is not passed over in silence."""
    cached_binary().parent.mkdir(parents=True)
    cached_binary().touch(stat.S_IRWXU)
    cached = await find_cli(lines.append)
    installed, mine = program("temporal", ""), program("mine", "")
    on_path = await find_cli(lines.append)
    monkeypatch.setenv("TEMPORAL_CLI", str(mine))
    named = await find_cli(lines.append)
    monkeypatch.setenv("TEMPORAL_CLI", "/no/such/temporal")

    assert (cached, on_path, named, lines) == (cached_binary(), installed, mine, [])
    with pytest.raises(ServerUnavailable, match=r"TEMPORAL_CLI names '/no/such/temporal'.*unset it"):
        await find_cli(lines.append)


async def test_a_build_is_announced_and_kept(program: Write, lines: list[str]) -> None:
    """Where nothing can be downloaded Go builds a fixed version, once; two at the same time do not spoil it."""
    program("go", BUILDS)
    both = await asyncio.gather(*[find_cli(lines.append) for _ in range(2)])
    said = list(lines)

    assert [*both, await find_cli(lines.append)] == [cached_binary()] * 3 and lines == said
    assert list(cached_binary().parent.iterdir()) == [cached_binary()]
    assert "install -ldflags -s -w github.com/temporalio/cli/cmd/temporal@v" in cached_binary().read_text()
    assert said[-1].startswith("building the Temporal server with Go, about 5 min, once (or install")


async def test_from_nowhere_is_one_sentence_with_the_remedies(program: Write, lines: list[str]) -> None:
    program("go", "echo go: proxy is down >&2; exit 1")

    with pytest.raises(ServerUnavailable) as failure:
        await find_cli(lines.append)
    said = str(failure.value)
    assert "the download failed: " in said
    assert "the build failed: go: proxy is down" in said
    assert all(remedy in said for remedy in ("install the temporal CLI or Go", "TEMPORAL_CLI", "TEMPORAL_ADDRESS"))


async def test_a_build_that_is_given_up_stops(program: Write, lines: list[str], tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    os.mkfifo(pid)
    program("go", f"echo $$ > {pid}; exec sleep 60")
    building = asyncio.create_task(find_cli(lines.append))
    number = int(await asyncio.to_thread(pid.read_text))
    building.cancel()
    await asyncio.wait([building])

    assert list(cached_binary().parent.iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


async def test_a_cache_that_cannot_be_written_is_a_sentence(
    program: Write, monkeypatch: pytest.MonkeyPatch, lines: list[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(program("go", BUILDS)))

    with pytest.raises(ServerUnavailable, match=r"cannot be written .*XDG_CACHE_HOME"):
        await find_cli(lines.append)


@pytest.mark.parametrize(("seconds", "words"), [(9.6, "10 s"), (60, "1 min 0 s"), (80, "1 min 20 s")])
def test_durations_are_said_as_people_say_them(seconds: float, words: str) -> None:
    assert spoken(seconds) == words
