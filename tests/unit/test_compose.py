"""The compose file and the image agree with the code: no engine is needed to see that they drift."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from turnhold.cli.main import app
from turnhold.session.creation import Config
from turnhold.settings import Settings

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = [name for name, service in SERVICES.items() if service.get("build")]
KNOWN = {f"TURNHOLD_{name.upper()}" for name in Settings.model_fields}


def environment(service: str) -> dict[str, str]:
    """What the container sees when the caller's shell sets none of the file's variables."""
    given = SERVICES[service].get("environment", {})
    return {name: re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value) for name, value in given.items()}


def seconds(duration: str) -> float:
    match = re.fullmatch(r"(\d+)(s|m)", duration)
    assert match, f"{duration} is not a duration that this test understands"
    return int(match[1]) * {"s": 1, "m": 60}[match[2]]


@pytest.mark.parametrize("service", OURS)
def test_our_services_set_only_settings_that_exist_and_are_valid(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = environment(service)
    ours = {name for name in given if name.startswith("TURNHOLD_")}
    assert ours <= KNOWN
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert Settings().agent_modules


def test_our_services_run_commands_that_exist() -> None:
    commands = {command.name or command.callback.__name__ for command in app.registered_commands}
    assert {SERVICES[name]["command"][0] for name in OURS if "command" in SERVICES[name]} <= commands


def test_worker_and_api_load_the_same_agents_s6() -> None:
    assert environment("worker")["TURNHOLD_AGENTS"] == environment("api")["TURNHOLD_AGENTS"]


def test_the_worker_is_killed_only_after_its_grace() -> None:
    grace = float(environment("worker")["TURNHOLD_GRACE"])
    flush = 10  # what is left to report, and the SDK's own shutdown
    assert seconds(SERVICES["worker"]["stop_grace_period"]) >= grace + Config().stop_deadline + flush


@pytest.mark.parametrize("service", ["worker", "api"])
def test_a_signal_reaches_the_process(service: str) -> None:
    assert SERVICES[service]["init"] is True
    assert 'ENTRYPOINT ["turnhold"]' in (ROOT / "Dockerfile").read_text().splitlines()


def test_ports_are_published_on_loopback_alone() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert published
    assert [port for port in published if not port.startswith("127.0.0.1:")] == []


def test_an_api_beyond_loopback_has_keys() -> None:
    api = environment("api")
    assert api["TURNHOLD_HOST"] != "127.0.0.1"
    volume = f"keys:{Path(api['TURNHOLD_KEYS_FILE']).parent}"
    assert f"{volume}:ro" in SERVICES["api"]["volumes"]
    assert SERVICES["api"]["depends_on"]["keys"]["condition"] == "service_completed_successfully"
    assert volume in SERVICES["keys"]["volumes"]


def test_worker_and_api_share_the_store() -> None:
    store = environment("worker")["TURNHOLD_STORE"]
    assert environment("api")["TURNHOLD_STORE"] == store
    assert all(f"store:{store}" in SERVICES[service]["volumes"] for service in ("worker", "api"))
    assert "store" in COMPOSE["volumes"]
    assert store in (ROOT / "Dockerfile").read_text(), "else a new volume belongs to root"


def test_whoever_is_waited_for_to_be_healthy_says_when_it_is() -> None:
    waited_for = {
        (name, on["condition"])
        for service in SERVICES.values()
        for name, on in service.get("depends_on", {}).items()
    }
    assert waited_for
    for name, condition in waited_for:
        if condition == "service_healthy":
            assert "healthcheck" in SERVICES[name], name
        else:
            assert condition == "service_completed_successfully", name
            assert "restart" not in SERVICES[name], f"{name} is a job: it ends"


def test_what_is_mounted_from_the_checkout_is_there() -> None:
    mounts = [mount for service in SERVICES.values() for mount in service.get("volumes", [])]
    sources = {mount.split(":")[0] for mount in mounts if mount.startswith(".")}
    assert sources
    assert [source for source in sources if not (ROOT / source).exists()] == []


@pytest.mark.parametrize(
    ("knob", "at_least"),
    [
        ("history.MaxBufferedQueryCount", 100),
        ("history.transferProcessorMaxPollRPS", 1000),
        ("frontend.namespaceRPS.visibility", 50),
        ("frontend.enableCancelWorkerPollsOnShutdown", True),
    ],
)
def test_temporal_runs_with_the_knobs_that_sessions_need(knob: str, at_least: int) -> None:
    mount, inside = SERVICES["temporal"]["volumes"][0].split(":")[:2]
    path = environment("temporal")["DYNAMIC_CONFIG_FILE_PATH"]
    assert path.startswith(f"{inside}/")
    config = yaml.safe_load((ROOT / mount / path.removeprefix(f"{inside}/")).read_text())
    assert config[knob][0].keys() == {"value"}  # without constraints: it holds everywhere
    assert config[knob][0]["value"] >= at_least


def test_the_image_holds_everything_that_runs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = {"pyproject.toml", project["project"]["readme"], *project["project"]["license-files"]}
    for name in project["tool"]["importlinter"]["root_packages"]:
        needed.add(f"{name}.py" if name == "worker" else name)
    admitted = {
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")
    }
    assert needed <= admitted
