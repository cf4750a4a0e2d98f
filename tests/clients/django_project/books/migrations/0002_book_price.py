"""A column, a constraint, and rows that are changed on the way."""

from django.db import migrations, models


def add_somebody(apps, schema_editor):
    apps.get_model("books", "Author").objects.get_or_create(name="anonymous")


def remove_somebody(apps, schema_editor):
    apps.get_model("books", "Author").objects.filter(name="anonymous").delete()


class Migration(migrations.Migration):
    dependencies = [("books", "0001_initial")]
    operations = [
        migrations.AddField("book", "price", models.DecimalField(max_digits=8, decimal_places=2, null=True)),
        migrations.AddConstraint(
            "book", models.CheckConstraint(condition=models.Q(price__gte=0), name="price_is_not_negative")
        ),
        migrations.RunPython(add_somebody, remove_somebody),
    ]
