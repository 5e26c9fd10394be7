"""Who is calling: the one record that REST, MCP, the console and commands hand to services and selectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

SCOPES = ("read", "dispatch", "operate")


@dataclass(frozen=True)
class Caller:
    """A caller with its tenant and scopes. `platform` sees every tenant."""

    tenant: str
    name: str
    kind: str  # api_key | staff | command_line | system
    scopes: frozenset[str]
    platform: bool = False
    key_id: int | None = None
    request_id: str = ""
    traceparent: str | None = None  # W3C trace context of the request

    is_authenticated: ClassVar[bool] = True

    def may(self, scope: str) -> bool:
        return scope in self.scopes

    def sees(self, tenant: str) -> bool:
        """Its own tenant, or any for a platform caller. A caller without a tenant sees none."""
        return self.platform or (bool(self.tenant) and tenant == self.tenant)

    @property
    def scope_tenant(self) -> str | None:
        """The tenant that reads are narrowed to; None: a platform caller, which sees all."""
        return None if self.platform else self.tenant
