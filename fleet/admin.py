"""Registers the pages of the console. They stand here and not beside the models: they look at every floor."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.auth.models import Group, User

from dispatch.models import (
    ClaimGate,
    ClaimLimit,
    DispatchWorker,
    KnownAgent,
    Schedule,
    WebhookDelivery,
    WebhookEndpoint,
    WorkItem,
)
from fleet.console.agents import KnownAgentAdmin
from fleet.console.audit import AuditAdmin
from fleet.console.bulk import BulkOperationAdmin
from fleet.console.callbacks import CallbackAdmin, EndpointAdmin
from fleet.console.gates import ClaimGateAdmin
from fleet.console.goals import GoalAdmin
from fleet.console.keys import ApiKeyAdmin, GroupAdmin, TenantMembershipAdmin, UserAdmin
from fleet.console.limits import ClaimLimitAdmin
from fleet.console.schedules import ScheduleAdmin
from fleet.console.sessions import SessionAdmin
from fleet.console.turns import TurnAdmin
from fleet.console.work import WorkItemAdmin
from fleet.console.workers import DispatchWorkerAdmin
from fleet.models import ApiKey, BulkOperation, TenantMembership
from sessions_app.models import AuditEntry, Goal, Session, Turn

admin.site.unregister([User, Group])  # by Django's own pages, which the imports above have registered

admin.site.register(Session, SessionAdmin)
admin.site.register(Turn, TurnAdmin)
admin.site.register(Goal, GoalAdmin)
admin.site.register(AuditEntry, AuditAdmin)
admin.site.register(WorkItem, WorkItemAdmin)
admin.site.register(DispatchWorker, DispatchWorkerAdmin)
admin.site.register(KnownAgent, KnownAgentAdmin)
admin.site.register(ClaimGate, ClaimGateAdmin)
admin.site.register(ClaimLimit, ClaimLimitAdmin)
admin.site.register(Schedule, ScheduleAdmin)
admin.site.register(WebhookDelivery, CallbackAdmin)
admin.site.register(WebhookEndpoint, EndpointAdmin)
admin.site.register(BulkOperation, BulkOperationAdmin)
admin.site.register(ApiKey, ApiKeyAdmin)
admin.site.register(TenantMembership, TenantMembershipAdmin)
admin.site.register(User, UserAdmin)
admin.site.register(Group, GroupAdmin)
