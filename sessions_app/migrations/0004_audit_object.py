"""The index that the audit of one thing is read by."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0003_counts")]

    operations = [
        migrations.AddIndex("auditentry", models.Index(fields=["object_id", "-id"], name="audit_object")),
    ]
