"""What the console's actions ask beside the rows that they act on."""

from __future__ import annotations

from django import forms
from django.http import HttpRequest
from unfold.forms import ActionForm


class ReasonForm(ActionForm):
    """The reason goes into the audit log."""

    reason = forms.CharField(
        required=False,
        max_length=500,
        label="",
        widget=forms.TextInput(attrs={"placeholder": "Reason", "aria-label": "Reason", "class": "fc-reason"}),
    )


def reason_in(request: HttpRequest) -> str:
    return request.POST.get("reason", "").replace("\0", "").strip()[:500]


def user_id_of(request: HttpRequest) -> int:
    return int(request.user.pk or 0)
