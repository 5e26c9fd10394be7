"""The client's types are those of the REST API, and it needs nothing of the server."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from dispatch.api import outputs
from dispatch.client import AsyncClient, AsyncJob, Client, ClientMisuse, Job, shapes
from dispatch.client.access import KEY_FILE, Access
from dispatch.client.errors import CLASSES
from dispatch.specs import DispatchBody
from fleet.topology import HealthBody, TopologyBody

ROOT = Path(__file__).resolve().parents[3]
PAIRS: list[tuple[Any, type[BaseModel]]] = [
    (shapes.JobState, outputs.JobState),
    (shapes.JobError, outputs.JobError),
    (shapes.Usage, outputs.Usage),
    (shapes.JobResult, outputs.JobResult),
    (shapes.CancelAnswer, outputs.CancelAnswer),
    (shapes.Explanation, outputs.Explanation),
    (shapes.JobEvent, outputs.JobEvent),
    (shapes.JobSummary, outputs.JobSummary),
    (shapes.JobDetails, outputs.Job),
    (shapes.Delivery, outputs.Delivery),
    (shapes.Redelivered, outputs.Redelivered),
    (shapes.Validation, outputs.Validation),
    (shapes.Iteration, outputs.Iteration),
    (shapes.IterationPage, outputs.IterationPage),
    (shapes.JobPage, outputs.JobPage),
    (shapes.OpenQuestion, outputs.OpenQuestion),
    (shapes.Desired, outputs.Desired),
    (shapes.SessionSummary, outputs.SessionSummary),
    (shapes.SessionDetails, outputs.Session),
    (shapes.SessionPage, outputs.SessionPage),
    (shapes.ReplyAnswer, outputs.ReplyAnswer),
    (shapes.Health, HealthBody),
    (shapes.Topology, TopologyBody),
    (shapes.DispatchBody, DispatchBody),
]


@pytest.mark.parametrize(("shape", "model"), PAIRS, ids=lambda one: one.__name__)
def test_a_shape_has_the_keys_of_its_body(shape: Any, model: type[BaseModel]) -> None:
    keys = {info.alias or name for name, info in model.model_fields.items()}
    assert set(shape.__annotations__) == keys, f"dispatch/client/shapes.py: {shape.__name__} is not {model.__name__}"


def test_every_documented_code_has_a_class() -> None:
    documented = set(re.findall(r"^\| \d{3} \| `([a-z_]+)`", (ROOT / "docs/rest.md").read_text(), re.M))
    assert documented - {"error"} == set(CLASSES)


@pytest.mark.parametrize(("one", "other"), [(Client, AsyncClient), (Job, AsyncJob)])
def test_both_clients_take_the_same_calls(one: type, other: type) -> None:
    def calls(kind: type) -> dict[str, list[str]]:
        members = inspect.getmembers(kind, inspect.isfunction)
        return {name: list(inspect.signature(it).parameters) for name, it in members if not name.startswith("_")}

    assert calls(one) == calls(other)


def test_it_is_imported_without_anything_of_the_server() -> None:
    code = (
        "import sys, dispatch.client; "
        "print([name for name in ('django', 'pydantic', 'rest_framework', 'sessions_app') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_key_comes_from_the_file_that_the_environment_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "key"
    file.write_text("fs_secret\n")
    monkeypatch.setenv(KEY_FILE, str(file))
    access = Access.of("http://127.0.0.1:8000/", None)
    assert (access.base_url, access.key) == ("http://127.0.0.1:8000", "fs_secret")
    assert "fs_secret" not in repr(access)


@pytest.mark.parametrize("content", ["", "two words", "né"])
def test_a_key_that_can_be_none_is_refused(content: str) -> None:
    with pytest.raises(ClientMisuse, match="issue_api_key"):
        Client("http://127.0.0.1:1", content)


def test_no_key_at_all_names_the_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(KEY_FILE, raising=False)
    with pytest.raises(ClientMisuse, match=KEY_FILE):
        Client("http://127.0.0.1:1")
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "none"))
    with pytest.raises(ClientMisuse, match=f"{KEY_FILE}: cannot be read"):
        Client("http://127.0.0.1:1")


@pytest.mark.parametrize("address", ["", "127.0.0.1:8000", "ftp://x", "http://", "http://me:pw@x", "http://x/?a=1"])
def test_an_address_that_can_be_none_is_refused(address: str) -> None:
    with pytest.raises(ClientMisuse, match="base_url"):
        Client(address, "k")
