"""The OpenAPI document of these addresses."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiYamlRenderer
from openapi_spec_validator import validate

from dispatch.api import outputs
from dispatch.api.actions import ACTIONS

PATHS = {
    "/api/graph/jobs": {"get", "post"},
    "/api/graph/jobs/{job_id}": {"get"},
    "/api/graph/jobs/{job_id}/stream": {"get"},
    "/api/sessions": {"get", "post"},
    "/api/sessions/{session_id}": {"get"},
    "/api/sessions/{session_id}/turns": {"get"},
    "/api/sessions/{session_id}/reply": {"post"},
    "/api/fleet/pause": {"post"},
    "/api/fleet/resume": {"post"},
    "/api/fleet/kill": {"post"},
    "/api/fleet/gates": {"get"},
    "/api/fleet/gates/shut": {"post"},
    "/api/fleet/gates/open": {"post"},
    "/api/fleet/limits": {"get"},
    "/api/fleet/limits/set": {"post"},
    "/api/fleet/limits/clear": {"post"},
}


@pytest.fixture(scope="module")
def document() -> Any:
    GENERATOR_STATS.reset()
    generator = SchemaGenerator(urlconf="dispatch.api.urls")  # type: ignore[no-untyped-call]
    made = generator.get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return yaml.safe_load(OpenApiYamlRenderer().render(made))  # type: ignore[no-untyped-call]


def test_it_is_valid_and_made_without_a_warning(document: Any) -> None:
    validate(document)
    assert not GENERATOR_STATS


def test_it_has_every_address_and_method(document: Any) -> None:
    assert {path: set(item) for path, item in document["paths"].items()} == PATHS


def test_every_action_has_a_body_of_its_own(document: Any) -> None:
    mapping = document["components"]["schemas"]["JobAction"]["discriminator"]["mapping"]
    assert set(mapping) == set(ACTIONS)
    for action, ref in mapping.items():
        body = document["components"]["schemas"][ref.rsplit("/", 1)[1]]
        assert body["properties"]["action"]["const"] == action
        assert body["additionalProperties"] is False


def test_every_operation_needs_a_key(document: Any) -> None:
    for item in document["paths"].values():
        for operation in item.values():
            assert operation["security"]
            assert {"401", "403", "503"} <= set(operation["responses"])


def test_the_shown_handle_is_a_handle(document: Any) -> None:
    shown = document["paths"]["/api/graph/jobs"]["post"]["responses"]["202"]["content"]["application/json"]["examples"]
    (example,) = shown.values()
    assert outputs.Handle.model_validate(example["value"]).model_dump(exclude_unset=True) == example["value"]
