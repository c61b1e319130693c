"""The command lines with containers in the pages, which no test can run: what they name is there."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from runtime.process import SECRETS
from tests import documentation
from tests.documentation import Line
from tests.processes import ROOT
from tests.whole.deploy.composition import Service, services

LINES = [line for line in documentation.lines() if line.command.startswith(("docker ", "cp "))]
WORKER = services()["worker"]


def after(line: Line, *words: str) -> str | None:
    """What follows these words at the line's beginning, None for another line."""
    beginning = " ".join([*words, ""])
    return line.command.removeprefix(beginning) if line.command.startswith(beginning) else None


def of(text: str) -> Service:
    """The service that an argument names, alone or in `SERVICE:PATH` or `SERVICE=NUMBER`."""
    return services()[re.split("[:=]", text)[0]]


def test_the_override_of_the_page_fits_the_file(tmp_path: Path) -> None:
    """It conforms to the specification, its words are options, and each secret is one that is read and declared."""
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    [block] = re.findall(r"```yaml\n(services:\n.*?)```", page, flags=re.DOTALL)
    override = yaml.safe_load(block)
    (tmp_path / "override.yml").write_text(yaml.safe_dump({**override, "name": "replan"}))
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*command, str(tmp_path / "override.yml")], capture_output=True, text=True, check=False)
    [(name, said)] = override["services"].items()

    assert done.returncode == 0, done.stdout
    assert name == WORKER.name and set(said["secrets"]) == set(override["secrets"])
    assert {variable.removesuffix("_FILE") for variable in said["environment"]} <= {*SECRETS}
    assert {file.removeprefix("/run/secrets/") for file in said["environment"].values()} == set(said["secrets"])


@pytest.mark.parametrize("line", LINES, ids=str)
def test_a_line_names_what_is_there(line: Line) -> None:
    """Services after the command of `docker compose` and its options, and what is copied from the checkout.

    An image, and the volume of its state, are those of docker-compose.yml.
    """
    for command in ("exec", "exec -T", "stop", "start", "cp", "up --detach --scale"):
        rest = after(line, "docker compose", command)
        if rest is None or rest.startswith("-"):
            continue
        words = shlex.split(rest)

        assert [of(word).name for word in (words if command in ("stop", "start") else words[:1])]
    copied = after(line, "cp")
    assert copied is None or (ROOT / copied.split()[0]).is_file()
    if line.command.startswith(("docker build", "docker run")):
        volume = f"replan_{WORKER.mounts[0].source}:{WORKER.mounts[0].target}"

        assert ":".join(WORKER.image) in line.command.split()
        assert "--volume" not in line.command or volume in line.command


def test_there_are_such_lines() -> None:
    """The other test looks at something."""
    assert len(LINES) > 8
