"""Authors and their books."""

from django.db import models


class Author(models.Model):
    name = models.CharField(max_length=100, unique=True)


class Book(models.Model):
    author = models.ForeignKey(Author, on_delete=models.CASCADE, related_name="books")
    title = models.CharField(max_length=200, db_index=True)
    details = models.JSONField(default=dict)
    price = models.DecimalField(max_digits=8, decimal_places=2, null=True)

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(price__gte=0), name="price_is_not_negative")]
