"""Content-Security-Policy: pages get what their scripts need, everything else gets nothing."""

from __future__ import annotations

from typing import Any

from csp.constants import NONE, SELF, UNSAFE_EVAL, UNSAFE_INLINE
from csp.middleware import CSPMiddleware, PolicyParts
from django.http import HttpRequest, HttpResponseBase

PAGES = ("/admin/", "/api/docs")

# The console's menus are Alpine expressions, which need eval and set inline styles. Inline scripts stay blocked.
PAGE_POLICY: dict[str, Any] = {
    "default-src": [NONE],
    "script-src": [SELF, UNSAFE_EVAL],
    "style-src": [SELF, UNSAFE_INLINE],
    "img-src": [SELF, "data:"],
    "font-src": [SELF],
    "connect-src": [SELF],
    "form-action": [SELF],
    "base-uri": [NONE],
    "frame-ancestors": [NONE],
}
CLOSED_POLICY: dict[str, Any] = {"default-src": [NONE], "frame-ancestors": [NONE]}


class ContentPolicyMiddleware(CSPMiddleware):
    """Give a page the configured policy, and any other response the closed one."""

    def get_policy_parts(
        self, request: HttpRequest, response: HttpResponseBase, report_only: bool = False
    ) -> PolicyParts:
        parts = super().get_policy_parts(request, response, report_only)
        if parts.config is None and not report_only and not request.path_info.startswith(PAGES):
            parts.config = CLOSED_POLICY
        return parts
