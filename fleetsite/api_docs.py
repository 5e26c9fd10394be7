"""The OpenAPI document, for a key with `read` or for signed-in staff, and the page that shows it."""

from __future__ import annotations

from django.contrib.admin.views.decorators import staff_member_required
from drf_spectacular.renderers import (
    OpenApiJsonRenderer,
    OpenApiJsonRenderer2,
    OpenApiYamlRenderer,
    OpenApiYamlRenderer2,
)
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from rest_framework.authentication import SessionAuthentication
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.views import APIView

from dispatch.api.permissions import HasScope
from fleet.api.authentication import ApiKeyAuthentication


class StaffOrReader(HasScope):
    """Let signed-in staff in besides keys: the page asks for the document with the browser's own session."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        return bool(getattr(request.user, "is_staff", False)) or super().has_permission(request, view)


class SchemaView(SpectacularAPIView):
    """The OpenAPI document; JSON unless YAML is asked for."""

    authentication_classes = [ApiKeyAuthentication, SessionAuthentication]
    permission_classes = [StaffOrReader]
    required_scope = "read"
    renderer_classes = [OpenApiJsonRenderer, OpenApiJsonRenderer2, OpenApiYamlRenderer, OpenApiYamlRenderer2]


# The page holds no data. Who is not signed in is sent to the sign-in.
docs_view = staff_member_required(
    SpectacularSwaggerSplitView.as_view(url_name="schema", authentication_classes=[], permission_classes=[AllowAny])
)
