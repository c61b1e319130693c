"""The images of docker-compose.yml: ours by the Dockerfile, and for podman stand-ins of Debian's and Go's programs.

`python -m tests.containers.images [PREFIX]` makes all of them, each line of its output after PREFIX; where containers
cannot be had it says why and ends with 2, or with 0 if the tests may be skipped.
"""

import asyncio
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from runtime.temporal_cli import Say, find_cli, spoken
from tests.containers import engine as engines
from tests.containers.engine import Engine
from tests.stack import programs
from tests.stack.programs import Source, built
from tests.whole.deploy.composition import services
from tests.whole.deploy.dockerfile import stages

HERE = Path(__file__).parent / "images"
BASE = "replan.test/debian:bookworm"
PACKAGES = "ca-certificates"
UI = Source("temporal-ui", "github.com/temporalio/ui-server/v2", ["./cmd/server"])
LEFT_OUT = {"grafana"}
"""Services without a stand-in: Debian has no Grafana."""


def started(engine: Engine) -> list[str]:
    """The services that can be brought up, without those of a profile."""
    names = [name for name, service in services().items() if "profiles" not in service.said]
    return names if engine.is_docker else [name for name in names if name not in LEFT_OUT]


async def make(engine: Engine, say: Say) -> None:
    """Make every image that is not there. Raises EngineFailed, ProgramMissing."""
    if engine.is_docker:
        say("building replan, and fetching the others")
        await engine.build("docker", "compose", "build", "worker")
        await engine.build("docker", "compose", "pull", "--ignore-buildable", *started(engine))
        return
    await _base(engine, say)
    for name, tag, files in await _stand_ins(say):
        with tempfile.TemporaryDirectory(prefix="replan-image-") as folder:
            shutil.copytree(HERE / name, folder, dirs_exist_ok=True)
            for target, source in files.items():
                shutil.copy2(source, Path(folder, target))
            await _build(engine, say, tag, folder)
    await _build(engine, say, _name("worker"), ".", *_trust())


async def _base(engine: Engine, say: Say) -> None:
    if (await engine.result("podman", "image", "exists", BASE)).returncode == 0:
        return
    say("fetching Debian, a minute or two, once")
    with tempfile.TemporaryDirectory(dir=engines.cache(), prefix="debian-") as folder:
        suite = BASE.rpartition(":")[2]
        await engine.build("debootstrap", "--variant=minbase", f"--include={PACKAGES}", suite, folder)
        await engine.build("sh", "-c", f"rm -rf {folder}/var/cache/apt/archives/*.deb {folder}/var/lib/apt/lists/*")
        await engine.build(
            "sh", "-c", f"umount {folder}/proc {folder}/sys; tar -C {folder} -c . | podman import - {BASE}"
        )


async def _stand_ins(say: Say) -> Sequence[tuple[str, str, Mapping[str, Path]]]:
    server, cli = await programs.server(say), await find_cli(say)
    ui_version = services()["ui"].image[1]
    ui = await built(UI, f"v{ui_version}", say)
    tools = {"temporal": cli, "temporal-server": server / "server", "temporal-sql-tool": server / "sql"}
    return [
        ("python", stages()[0].base, {}),
        ("postgres", _name("postgresql"), {}),
        ("server", _name("temporal"), {name: tools[name] for name in ("temporal", "temporal-server")}),
        ("admin-tools", _name("schema"), {name: tools[name] for name in ("temporal", "temporal-sql-tool")}),
        ("ui", _name("ui"), {"ui-server": ui / "server"}),
        ("prometheus", _name("prometheus"), {}),
    ]


def _name(service: str) -> str:
    return ":".join(services()[service].image)


async def _build(engine: Engine, say: Say, name: str, folder: str, *options: str) -> None:
    say(f"image {name}")
    tag = f"docker.io/{name}" if "/" in name else f"docker.io/library/{name}"
    await engine.build(
        *("podman", "build", "--pull=never", "--format=docker", "--layers", "--network=host"),
        *options,
        "--tag",
        tag,
        folder,
    )


def _trust() -> Iterator[str]:
    """The certificates and the settings of pip that this machine has, without a trace in the image."""
    for path in ("/etc/ssl/certs", "/etc/pip.conf"):
        if Path(path).exists():
            yield f"--volume={path}:{path}:ro"


async def sizes(engine: Engine) -> Mapping[str, int]:
    """The bytes of the image of each service, and of the base of ours."""
    names = {name: _name(name) for name in started(engine)} | {"base": stages()[0].base}
    said = {
        name: await engine.run(engine.program, "image", "inspect", "--format={{.Size}}", image)
        for name, image in names.items()
    }
    return {name: int(size) for name, size in said.items()}


async def _main(say: Say) -> None:
    async with engines.running(say) as engine:
        await make(engine, say)
        for name, size in (await sizes(engine)).items():
            say(f"{name}: {size / 1e6:.0f} MB")


def main(words: Sequence[str]) -> int:
    def say(line: str) -> None:
        sys.stdout.write(" ".join([*words, line]) + "\n")
        sys.stdout.flush()

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    reason = engines.missing()
    if reason is not None and not engines.may_be_skipped():
        sys.stderr.write(f"No test was run. {reason}\n")
        return 2
    if reason is not None:
        say(f"skipped. {reason}")
        return 0
    began = time.monotonic()
    try:
        asyncio.run(_main(say))
    except RuntimeError as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    say(f"after {spoken(time.monotonic() - began)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
