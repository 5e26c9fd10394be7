"""Callbacks: endpoints, watched jobs and the outbox. Questions that remind, and that a default answers in time."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("dispatch", "0012_model_usage"),
        ("sessions_app", "0004_audit_object"),
    ]

    operations = [
        migrations.CreateModel(
            name="WebhookDelivery",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("delivery_id", models.CharField(max_length=40)),
                ("event_id", models.BigIntegerField()),
                ("event", models.CharField(max_length=40)),
                ("body", models.TextField()),
                ("state", models.CharField(default="pending", max_length=10)),
                ("tries", models.IntegerField(default=0)),
                ("due_at", models.DateTimeField(null=True)),
                ("created_at", models.DateTimeField()),
                ("delivered_at", models.DateTimeField(null=True)),
                ("last_status", models.IntegerField(null=True)),
                ("last_error", models.CharField(blank=True, default="", max_length=100)),
            ],
            options={
                "db_table": "webhook_deliveries",
            },
        ),
        migrations.CreateModel(
            name="WebhookEndpoint",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("tenant", models.CharField(max_length=200)),
                ("url", models.CharField(max_length=2000)),
                ("salt", models.CharField(max_length=32)),
                ("old_salt", models.CharField(blank=True, default="", max_length=32)),
                ("old_until", models.DateTimeField(null=True)),
                ("created_at", models.DateTimeField()),
            ],
            options={
                "db_table": "webhook_endpoints",
            },
        ),
        migrations.CreateModel(
            name="WebhookWatch",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("url", models.CharField(max_length=2000)),
                ("seen_event", models.BigIntegerField(default=0)),
                ("version", models.IntegerField(default=0)),
                ("done_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "webhook_watches",
            },
        ),
        migrations.AddField(
            model_name="question",
            name="answer_by",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="question",
            name="default_answer",
            field=models.TextField(null=True),
        ),
        migrations.AddField(
            model_name="question",
            name="due_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="question",
            name="remind_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="question",
            name="reminded_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddIndex(
            model_name="question",
            index=models.Index(
                condition=models.Q(
                    ("answered_at__isnull", True), ("due_at__isnull", False), ("withdrawn_at__isnull", True)
                ),
                fields=["due_at"],
                name="questions_due",
            ),
        ),
        migrations.AddField(
            model_name="webhookdelivery",
            name="work_item",
            field=models.ForeignKey(
                db_constraint=False, on_delete=django.db.models.deletion.CASCADE, to="dispatch.workitem"
            ),
        ),
        migrations.AddConstraint(
            model_name="webhookendpoint",
            constraint=models.UniqueConstraint(fields=("tenant", "url"), name="webhook_endpoints_once"),
        ),
        migrations.AddField(
            model_name="webhookwatch",
            name="endpoint",
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="dispatch.webhookendpoint"),
        ),
        migrations.AddField(
            model_name="webhookwatch",
            name="work_item",
            field=models.ForeignKey(
                db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, to="dispatch.workitem"
            ),
        ),
        migrations.AddField(
            model_name="webhookdelivery",
            name="watch",
            field=models.ForeignKey(
                db_index=False, on_delete=django.db.models.deletion.CASCADE, to="dispatch.webhookwatch"
            ),
        ),
        migrations.AddIndex(
            model_name="webhookwatch",
            index=models.Index(
                condition=models.Q(("done_at__isnull", True)), fields=["id"], name="webhook_watches_open"
            ),
        ),
        migrations.AddConstraint(
            model_name="webhookwatch",
            constraint=models.UniqueConstraint(fields=("work_item", "url"), name="webhook_watches_once"),
        ),
        migrations.AddIndex(
            model_name="webhookdelivery",
            index=models.Index(
                condition=models.Q(("due_at__isnull", False)), fields=["due_at"], name="webhook_deliveries_due"
            ),
        ),
        migrations.AddIndex(
            model_name="webhookdelivery",
            index=models.Index(fields=["state", "created_at"], name="webhook_deliveries_state"),
        ),
        migrations.AddConstraint(
            model_name="webhookdelivery",
            constraint=models.UniqueConstraint(fields=("delivery_id",), name="webhook_deliveries_id"),
        ),
        migrations.AddConstraint(
            model_name="webhookdelivery",
            constraint=models.UniqueConstraint(fields=("watch", "event_id"), name="webhook_deliveries_once"),
        ),
        migrations.AddConstraint(
            model_name="webhookdelivery",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("due_at__isnull", False), ("state", "pending")),
                    models.Q(("due_at__isnull", True), ("state__in", ["delivered", "dead"])),
                    _connector="OR",
                ),
                name="webhook_deliveries_due_iff_pending",
            ),
        ),
    ]
