"""The Dockerfile, without building it: what it copies is there, what it installs is locked, nobody is root."""

import re
from pathlib import Path

from tests.processes import ROOT
from tests.whole.deploy.composition import services
from tests.whole.deploy.dockerfile import entrypoint, sent, stages
from tests.workflows.test_rooms import ROOMS, SCRIPTS

*BUILDERS, IMAGE = stages()


def test_the_base_is_pinned() -> None:
    """Each stage begins with one release of a slim Python, the same one, that Replan supports."""
    bases = {one.base for one in stages()}

    assert len(bases) == 1
    assert re.fullmatch(r"python:3\.1[1-9]\.\d+-slim-\w+", bases.pop())


def test_what_is_copied_is_there_and_the_image_has_all_of_the_code() -> None:
    """In the checkout, and not held back by .dockerignore.

    Every room goes into the wheel that the image installs, and what docker-compose.yml names is copied.
    """
    copied = [source for stage in stages() for sources, _ in stage.copies for source in sources]
    named = [word for word in services()["worker"].said["command"] if (ROOT / word).exists()]

    assert [source for source in copied if not (ROOT / source).exists()] == []
    assert [source for source in copied if not any(Path(source).is_relative_to(one) for one in sent())] == []
    assert {*ROOMS, *SCRIPTS, "examples"} <= {source for one in BUILDERS for given, _ in one.copies for source in given}
    assert named == [source for sources, _ in IMAGE.copies for source in sources]


def test_the_entry_point_is_a_worker_that_is_not_root() -> None:
    """A command of the container is options of `replan worker`; its last USER is one that it made itself."""
    made = [found for rest in IMAGE.of("RUN") for found in re.findall(r"useradd [^&]*?(\w+)\s+&&", rest)]

    assert (entrypoint(), IMAGE.of("CMD")) == (["replan", "worker"], [])
    assert IMAGE.of("USER") == made != ["root"]


def test_every_package_is_locked() -> None:
    """Pip takes hashed packages, our own code and what it made of these, and nothing that it finds by itself."""
    uses = [rest for stage in stages() for rest in stage.of("RUN") if "/pip " in rest]

    own = " --no-build-isolation --wheel-dir /opt/wheels ."

    assert len(uses) == 4
    assert all("--no-deps" in rest for rest in uses)
    assert all("--require-hashes" in rest or "--no-index" in rest or rest.endswith(own) for rest in uses)
    assert all("--no-build-isolation" in rest for rest in uses if "pip wheel" in rest)


def test_what_builds_packages_is_not_in_the_image() -> None:
    """One environment is copied, and that has no pip."""
    copied = [rest for rest in IMAGE.of("COPY") if rest.startswith("--from=")]

    assert copied == ["--from=packages /opt/replan /opt/replan"]
    assert "python -m venv --without-pip /opt/replan" in BUILDERS[0].of("RUN")


def test_the_image_is_that_of_docker_compose() -> None:
    """The folder that the image's user owns is the one that is mounted, and the tag the version in pyproject.toml."""
    worker = services()["worker"]
    [home] = re.findall(r"--home-dir (\S+)", " ".join(IMAGE.of("RUN")))
    [version] = re.findall(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), flags=re.MULTILINE)

    assert [IMAGE.environment["REPLAN_STATE"]] == [mount.target for mount in worker.mounts] == [home]
    assert worker.image[1] == version
