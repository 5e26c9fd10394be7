"""The compose file and the image: they can be read, their settings exist, and their commands are those of the tests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from compose_spec import PyCompose
from kubernetes_validate import validate

from fleetsite.config import KNOWN
from tests.support.parts import missing

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = ROOT / "deploy" / "compose.kafka.yml"


DOCKERFILE = ROOT / "deploy" / "Dockerfile"
VARIABLE = re.compile(r"\$\{\w+:(?:\?|-([^}]*))\}")


def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())["services"]
    return found


@pytest.fixture
def steps() -> list[Any]:
    """The instructions, as Docker's own parser reads them."""
    try:
        import dockerfile
    except ImportError:
        missing("the package dockerfile is not here, which reads a Dockerfile")
    return list(dockerfile.parse_file(str(DOCKERFILE)))


def test_the_compose_file_is_one_by_the_specification() -> None:
    given = VARIABLE.sub(lambda found: found[1] or "given", COMPOSE.read_text())
    # the variables put in and the merges made, as Docker does before it looks
    PyCompose.from_yaml(yaml.safe_dump(yaml.safe_load(given))).validate()


def test_the_image_has_a_pinned_base_two_stages_another_user_and_no_secret(steps: list[Any]) -> None:
    bases = [step.value for step in steps if step.cmd == "FROM"]
    stages = {value[2] for value in bases if len(value) == 3}
    for base, *_ in bases:
        assert base in stages or re.fullmatch(r"python:3\.\d+-slim-\w+", base), (
            f"{base}: name a version, and its system"
        )
    assert len(bases) > 1
    (user,) = [step.value[0] for step in steps if step.cmd == "USER"]
    assert user.isdigit()
    assert int(user) > 0
    assert {step.cmd for step in steps} >= {"HEALTHCHECK", "CMD", "EXPOSE"}
    given = [name for step in steps if step.cmd in ("ENV", "ARG") for name in step.value[::2]]
    assert set(given) <= {"PATH", "PYTHONUNBUFFERED", "AGENT_DATA_DIR"}


def test_the_image_and_the_compose_file_start_the_web_process_alike(steps: list[Any]) -> None:
    (command,) = [step.value for step in steps if step.cmd == "CMD"]
    assert list(command) == services()["web"]["command"]
    build = services()["web"]["build"]
    assert (COMPOSE.parent / build["context"] / build["dockerfile"]).resolve() == DOCKERFILE


def test_the_processes_are_started_as_the_tests_start_them() -> None:
    fleet = (ROOT / "tests" / "support" / "fleet.py").read_text()
    commands = {name: one["command"] for name, one in services().items() if "command" in one}
    assert commands["worker"][:3] == ["python", "manage.py", "run_dispatch_worker"]
    assert '"manage.py", "run_dispatch_worker"' in fleet
    assert commands["web"][1:5] == ["-m", "gunicorn", "-c", "fleetsite/gunicorn_conf.py"]
    assert commands["web"][-1] == "fleetsite.wsgi:application"
    assert all(part in fleet for part in ("gunicorn", "fleetsite/gunicorn_conf.py", "fleetsite.wsgi:application"))
    assert commands["migrate"] == ["python", "manage.py", "migrate"]


def test_the_settings_are_settings_of_ours() -> None:
    for name in ("web", "worker", "migrate"):
        unknown = set(services()[name]["environment"]) - KNOWN
        assert not unknown, f"deploy/compose.kafka.yml, {name}: {sorted(unknown)} are not settings"


def test_what_is_depended_on_is_there_and_no_secret_is_written_down() -> None:
    found = services()
    for name, one in found.items():
        assert set(one.get("depends_on", {})) <= set(found), name
    text = COMPOSE.read_text()
    assert "${POSTGRES_PASSWORD:?}" in text
    assert "${DJANGO_SECRET_KEY:?}" in text


def manifests() -> dict[str, Any]:
    """By kind and name."""
    found = list(yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / "fleetsite.yaml").read_text()))
    return {f"{one['kind']}/{one['metadata']['name']}": one for one in found}


@pytest.mark.parametrize("name", sorted(manifests()))
def test_each_manifest_is_one_by_the_schema_of_kubernetes(name: str) -> None:
    one = manifests()[name]
    validate(one, "1.37", strict=True)
    if name.startswith(("Service/", "PodDisruptionBudget/")):
        spec = one["spec"]
        chosen = spec["selector"].get("matchLabels", spec["selector"])
        pods = manifests()[f"Deployment/{one['metadata']['name']}"]["spec"]["template"]
        assert chosen.items() <= pods["metadata"]["labels"].items()


def test_pods_run_the_commands_of_compose_with_our_settings_and_more_time_to_stop_than_their_grace() -> None:
    web, worker = (
        manifests()[f"Deployment/fleetsite-{name}"]["spec"]["template"]["spec"] for name in ("web", "worker")
    )
    assert set(manifests()["ConfigMap/fleetsite"]["data"]) <= KNOWN
    assert web["containers"][0]["command"] == services()["web"]["command"]
    assert web["initContainers"][0]["command"] == services()["migrate"]["command"]
    command = worker["containers"][0]["command"]
    grace = command.index("--grace")
    assert command[:grace] + command[grace + 2 :] == services()["worker"]["command"]
    assert worker["terminationGracePeriodSeconds"] >= int(command[grace + 1]) + 20
    for pod in (web, worker):
        assert pod["securityContext"]["runAsNonRoot"] is True
        for container in pod["containers"]:
            ports = {port["name"] for port in container["ports"]}
            probes = [container[name]["httpGet"] for name in container if name.endswith("Probe")]
            assert len(probes) >= 2
            assert {probe["port"] for probe in probes} <= ports
            assert {probe["path"] for probe in probes} <= {"/healthz", "/readyz", "/metrics"}
