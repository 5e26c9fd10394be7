"""What cannot be stored as it is: from an agent it is cleaned, from a caller it is refused."""

from __future__ import annotations

import json

import pytest

from tests.support.api import Api
from tests.support.fleet import Fleet

pytestmark = [pytest.mark.process, pytest.mark.store, pytest.mark.usefixtures("standing_worker")]


@pytest.mark.parametrize("odd", ["nul", "surrogate", "nan", "big", "object"])
@pytest.mark.parametrize("how", ["returned", "raised"])
def test_an_agents_odd_output_never_blocks_the_final_write(fleet: Fleet, api: Api, odd: str, how: str) -> None:
    job = api.dispatch("odd", payload={"odd": odd, "raise": how == "raised"})
    shown = api.finish([job], 15)[job]
    assert shown["status"] == ("succeeded" if how == "returned" else "dead_letter")
    text = json.dumps(shown).lower()
    assert "\\u0000" not in text
    assert "\\ud800" not in text
    assert "nan" not in json.dumps(shown["result"]).lower().replace("non-finite", "")
    assert len(text) < 1_200_000
    if how == "returned" and odd != "object":
        assert shown["result"] != {"nul": "a\x00b", "surrogate": "a\ud800b"}.get(odd)
    assert len(fleet.journal.runs(job)) == 1


@pytest.mark.parametrize(
    "raw",
    [
        b'{"action": "dispatch", "task": "a\\u0000b"}',
        b'{"action": "dispatch", "task": "a\\ud800b"}',
        b'{"action": "dispatch", "task": "x", "payload": {"x": NaN}}',
        b'{"action": "dispatch", "task": "x", "payload": {"x": "\\u0000"}}',
        b'{"action": "dispatch", "task": "x", "payload": [1]}',
        b'{"action": "dispatch", "task": "\xff"}',
        b'["dispatch"]',
        b"[" * 5000,
    ],
    ids=["nul", "surrogate", "nan", "nul in payload", "list as payload", "not UTF-8", "a list", "too deep"],
)
def test_the_same_from_a_caller_is_refused_and_leaves_no_row(api: Api, raw: bytes) -> None:
    before = len(api.jobs())
    answer = api.request("POST", "/api/graph/jobs", raw)
    assert (answer.status, answer.json()["code"]) == (400, "invalid"), answer.text
    assert len(api.jobs()) == before


def test_a_body_over_a_mebibyte_is_refused(api: Api) -> None:
    answer = api.call("dispatch", task="x" * (1 << 20))
    assert (answer.status, answer.json()["code"]) == (413, "too_large")
