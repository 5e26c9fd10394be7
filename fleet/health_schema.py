"""The JSON schema of `GET /api/fleet/health`, with that of its `evidence`, `fleet.health.v1`, among the definitions."""

from __future__ import annotations

import json

from fleet.health import SCHEMA_VERSION
from fleet.topology import HealthBody

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def health_schema() -> str:
    """As it stands in docs/: indented text that ends with a newline."""
    described = HealthBody.model_json_schema(mode="serialization")
    schema = {"$schema": DIALECT, "$id": f"urn:fleetsite:{SCHEMA_VERSION}", **described, "title": SCHEMA_VERSION}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
