"""What the console calls them; no column changes."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("dispatch", "0014_coalesced_requests")]

    operations = [
        migrations.AlterModelOptions("webhookdelivery", {"verbose_name": "callback"}),
        migrations.AlterModelOptions("webhookendpoint", {"verbose_name": "callback endpoint"}),
    ]
