from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0001_initial")]

    operations = [
        migrations.AddField("session", "seen_by", models.CharField(blank=True, max_length=64, null=True)),
    ]
