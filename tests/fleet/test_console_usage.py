"""What was spent on models stands on the pages of its job and its session, and what is not known is said."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from dispatch.models import ModelUsage, WorkItem
from fleet.console.usage import usage_line
from tests.fleet import rows
from tests.fleet.test_console import person, text

pytestmark = [pytest.mark.django_db, pytest.mark.store, pytest.mark.usefixtures("fleet_queue")]


def spent(item: WorkItem, **more: Any) -> None:
    facts = {"epoch": 1, "session_pk": item.session_id, "tenant": item.tenant, "agent_name": "chat", "model": "small"}
    ModelUsage.objects.create(work_item=item, **{**facts, **more})


def test_a_job_and_its_session_show_what_they_spent(client: Client) -> None:
    person(client)
    session = rows.session("chat")
    asked, also, never = (rows.item(session, status=status) for status in ("succeeded", "succeeded", "ready"))
    spent(asked, requests=2, input_tokens=1500, output_tokens=20, tool_calls=1, cost=Decimal("0.0125"))
    spent(also, requests=1, unpriced=1, input_tokens=5, output_tokens=6)

    def shown(page: str, pk: int) -> str:
        return text(client.get(reverse(f"admin:{page}_change", args=[pk])))

    job = shown("dispatch_workitem", asked.pk)
    assert "Models: 2 requests, 1,500 tokens in, 20 out, 1 tool call, cost 0.0125." in job
    assert "Models: 1 request, 5 tokens in, 6 out, 0 tool calls, cost not known." in shown("dispatch_workitem", also.pk)
    assert "Models:" not in shown("dispatch_workitem", never.pk)
    whole = "Models: 3 requests, 1,505 tokens in, 26 out, 1 tool call, cost 0.0125 beside 1 request of unknown cost."
    assert whole in shown("sessions_app_session", session.pk)


def test_no_model_no_line() -> None:
    assert usage_line(None) == ""
