"""Operations keep what became of each object, and the request that asked for them. None was ever written before."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("fleet", "0003_scale_memories")]

    operations = [
        migrations.AlterModelOptions(name="bulkoperation", options={"verbose_name": "operation"}),
        migrations.AddField("bulkoperation", "request_id", models.CharField(max_length=100, unique=True, default="")),
        migrations.AlterField("bulkoperation", "request_id", models.CharField(max_length=100, unique=True)),
        migrations.AddField("bulkoperation", "object_type", models.CharField(max_length=40, default="")),
        migrations.AlterField("bulkoperation", "object_type", models.CharField(max_length=40)),
        migrations.AddField("bulkoperation", "results", models.JSONField(default=list)),
        migrations.AlterField("bulkoperation", "status", models.CharField(max_length=20)),
    ]
