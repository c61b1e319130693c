"""docker-compose.yml, without starting it: it is held to its schema and, name by name, to the code."""

import os
import re
import subprocess
import sys

import pytest
from temporalio.envconfig import ClientConfig

from activities.providers.registry import PROVIDERS
from extras.web.command import LOOPBACK, PORT
from replan import ready
from runtime.temporal_cli import cached_binary
from tests.processes import ROOT
from tests.whole.deploy import composition
from tests.whole.deploy.composition import Service, services

SERVICES = list(services().values())
WORKER = services()["worker"]
SERVE = services()["serve"]
SERVER_YAML = (ROOT / "deploy/temporal/server.yaml").read_text(encoding="utf-8")
FOREIGN = {
    "postgres": {"POSTGRES_USER", "POSTGRES_PASSWORD"},
    "grafana/grafana": {
        "GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES",
        "GF_ANALYTICS_CHECK_FOR_UPDATES",
        "GF_ANALYTICS_REPORTING_ENABLED",
        "GF_AUTH_ANONYMOUS_ENABLED",
        "GF_AUTH_BASIC_ENABLED",
        "GF_AUTH_DISABLE_LOGIN_FORM",
        "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH",
        "GF_PLUGINS_PREINSTALL_DISABLED",
    },
    "temporalio/ui": {"TEMPORAL_ADDRESS", "TEMPORAL_CORS_ORIGINS", "TEMPORAL_NOTIFY_ON_NEW_VERSION"},
}
"""What the images read that run none of our files, of what they document."""


def named(service: Service) -> str:
    """A service as messages name it."""
    return service.name


def test_it_conforms_to_the_compose_specification() -> None:
    """The specification's own JSON schema accepts it."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*command, str(composition.FILE)], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("service", SERVICES, ids=named)
def test_what_a_service_names_is_there(service: Service) -> None:
    """Each tag names one release, down to its last number; what is mounted, and a path under a mount, exist.

    A bind mount is a read-only folder of the checkout, a volume is declared.
    """
    volumes = composition.document()["volumes"]
    paths = [word for word in (*service.runs, *service.environment.values()) if word.startswith("/etc/replan")]
    files = [composition.on_host(path, service) for path in paths]

    assert re.match(r"v?\d+\.\d+(\.\d+)?\b", service.image[1]), service.image
    assert all(one.source in volumes if one.is_volume else (ROOT / one.source).is_dir() for one in service.mounts)
    assert all(mount.mode == "ro" for mount in service.mounts if not mount.is_volume)
    assert [file for file in files if file is None or not file.is_file()] == []


@pytest.mark.parametrize("service", SERVICES, ids=named)
def test_it_waits_for_what_can_be_waited_for(service: Service) -> None:
    """`healthy` needs a healthcheck, `completed` a service that ends.

    What lasts is started again after a crash, says how it is, and cannot take the whole machine.
    """
    for name, wait in service.said.get("depends_on", {}).items():
        other = services()[name]

        assert other.ends == (wait["condition"] == "service_completed_successfully")
        assert other.ends or "healthcheck" in other.said
    if not service.ends:
        assert service.said["restart"] == "unless-stopped"
        assert service.said["healthcheck"]["test"][0] == "CMD"
        assert set(service.said["deploy"]["resources"]["limits"]) == {"cpus", "memory"}


def test_the_temporal_images_are_the_versions_of_the_development_server() -> None:
    """What was tested with `--dev` is what runs in the containers."""
    if not cached_binary().exists():
        pytest.skip(f"no {cached_binary().name} of ours is here to ask")
    command = [str(cached_binary()), "--version"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    server, ui = (services()[name].image[1] for name in ("temporal", "ui"))

    assert f"(Server {server}, UI {ui})" in said
    assert services()["schema"].image[1].startswith(f"{server}-")


def test_nothing_is_published_beyond_this_machine() -> None:
    """Every published port is bound to the loopback interface, and the database has none."""
    ports = [port for service in SERVICES for port in service.said.get("ports", [])]

    assert ports
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []
    assert "ports" not in services()["postgresql"].said


def test_the_starter_guesses_the_web_ui() -> None:
    """It is published where the starter looks for it by itself: a thousand above the server."""
    server, ui = (int(services()[name].said["ports"][0].split(":")[1]) for name in ("temporal", "ui"))

    assert ui == server + 1000
    assert WORKER.environment["REPLAN_UI"] == f"http://localhost:{ui}"


def test_the_server_reads_what_it_is_given() -> None:
    """Each environment name is in server.yaml, and each that has no default there is given."""
    calls = dict(re.findall(r'env "(\w+)"( \| default)?', SERVER_YAML))
    given = set(services()["temporal"].environment)

    assert given - set(calls) == set()
    assert {name for name, default in calls.items() if not default} - given == set()


@pytest.mark.parametrize("service", [one for one in SERVICES if one.ends or one.image[0] in FOREIGN], ids=named)
def test_a_script_or_a_foreign_image_reads_what_it_is_given(service: Service) -> None:
    """What the comment of a script says that it reads is what it is given, and no name that an image does not know."""
    if service.ends:
        [script] = [path for path in service.runs if path.endswith(".sh")]
        file = composition.on_host(script, service)
        assert file is not None
        [reads] = re.findall(r"^# Reads (.*)\.$", file.read_text(encoding="utf-8"), flags=re.MULTILINE)

        assert set(reads.split(", ")) == set(service.environment)
    if service.image[0] in FOREIGN:
        assert set(service.environment) - FOREIGN[service.image[0]] == set()


@pytest.mark.parametrize("service", [WORKER, SERVE], ids=named)
def test_a_service_of_ours_reads_what_it_is_given(service: Service) -> None:
    """TEMPORAL_* is understood by the SDK, REPLAN_* read by our code."""
    environment = dict(service.environment)
    loaded = ClientConfig.load_client_connect_config(disable_file=True, override_env_vars=environment)
    rooms = ("runtime", "client", "console")
    code = "".join(file.read_text(encoding="utf-8") for room in rooms for file in (ROOT / room).rglob("*.py"))

    assert loaded["target_host"] == environment.pop("TEMPORAL_ADDRESS")
    assert loaded["namespace"] == environment.pop("TEMPORAL_NAMESPACE")
    assert [name for name in environment if f'"{name}"' not in code] == []


def test_the_worker_understands_its_command() -> None:
    """`--check` after the very words of the file: every option is one, and the tools load."""
    command = [sys.executable, "-m", *WORKER.runs, "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    documents = WORKER.runs[WORKER.runs.index("--documents") + 1]

    assert done.returncode == 0, done.stderr
    assert (ROOT / documents).is_dir()


def test_two_workers_share_one_state_folder() -> None:
    """What tools wrote is in a volume that both have, the tasks' files too."""
    [state] = WORKER.mounts

    assert WORKER.said["deploy"]["replicas"] == 2
    assert WORKER.environment["REPLAN_STATE"] == state.target
    assert WORKER.runs[-1].startswith(f"{state.target}/")


TEXT = composition.FILE.read_text(encoding="utf-8")
EXAMPLE = (ROOT / "deploy/compose.env.example").read_text(encoding="utf-8")


def test_there_is_no_secret_in_it() -> None:
    """A password comes from .env, a key by its name alone; only the database that nobody else reaches has a default."""
    secret = re.findall(r"^ *(\w*(?:PASSWORD|PWD|KEY|TOKEN|SECRET)\w*): *(.*)$", TEXT, flags=re.MULTILINE)

    assert {value for _, value in secret} == {"${POSTGRES_PASSWORD:-temporal}", ""}


def test_what_comes_from_outside_is_in_the_example() -> None:
    """What the file takes from .env, and nothing else: the keys of models that a provider's client looks for, too."""
    taken = {(found["name"], found["default"]) for found in composition.INTERPOLATED.finditer(TEXT)}

    assert WORKER.passed_on == {"REPLAN_PEOPLE", *(name for one in PROVIDERS.values() for name in (one.key, one.url))}
    assert set(re.findall(r"^# (\w+)=$", EXAMPLE, flags=re.MULTILINE)) == WORKER.passed_on | SERVE.passed_on
    assert set(re.findall(r"^(\w+)=(.*)$", EXAMPLE, flags=re.MULTILINE)) == taken


@pytest.mark.full
def test_the_web_server_refuses_to_start_without_a_token() -> None:
    """The very words of the file, without REPLAN_TOKEN, end with exit code 2 and name the variable."""
    environment = {name: value for name, value in os.environ.items() if name not in SERVE.passed_on}
    command = [sys.executable, "-m", *SERVE.runs]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 2, done.stderr
    assert "set REPLAN_TOKEN" in done.stderr


def test_the_web_server_is_found_where_it_listens_and_confined_like_a_worker() -> None:
    """The published port and that of the health check are the port of `serve`; it has the image of the worker.

    It has a profile of its own, so a stack without a token starts without it, and the token comes from outside.
    """
    assert SERVE.said["ports"] == [f"{LOOPBACK}:{PORT}:{PORT}"]
    assert SERVE.said["healthcheck"]["test"] == ["CMD", "python", "-m", ready.__name__]
    assert f"http://{LOOPBACK}:{PORT}/health/ready" == ready.URL
    assert SERVE.image == WORKER.image
    assert {service.name for service in SERVICES if "profiles" in service.said} == {SERVE.name}
    known = {"REPLAN_PEOPLE", "REPLAN_DOOR_KEY", "REPLAN_PAGE"} | {"REPLAN_TOKEN", "REPLAN_IDENTITY_HEADER"}
    provider = {f"REPLAN_PROVIDER{name}" for name in ("", "_CLIENT", "_SECRET", "_NAME", "_ROLES")}
    assert SERVE.passed_on == known | provider
    for name in ("read_only", "tmpfs", "cap_drop", "security_opt", "init"):
        assert SERVE.said[name] == WORKER.said[name], name
