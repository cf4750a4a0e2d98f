"""The project's own tests, of each kind that Django has for databases."""

from django.db import DatabaseError, IntegrityError, connection, transaction
from django.test import TestCase, TransactionTestCase

from .models import Author, Book


class InTransactions(TestCase):
    @classmethod
    def setUpTestData(cls):
        cls.ann = Author.objects.create(name="ann")

    def test_rows_of_the_class_are_there(self):
        self.assertEqual(Author.objects.filter(name="ann").count(), 1)

    def test_rows_of_one_test_are_not_seen_by_the_next(self):
        self.assertEqual(self.ann.books.count(), 0)
        self.ann.books.create(title="one", price=3, details={"pages": 7})
        self.assertEqual(Book.objects.get(details__pages=7).title, "one")

    def test_rows_of_one_test_are_not_seen_by_the_one_before(self):
        self.assertEqual(self.ann.books.count(), 0)
        Book.objects.bulk_create(Book(author=self.ann, title=f"{number}") for number in range(100))

    def test_errors_inside_atomic_blocks(self):
        with self.assertRaises(IntegrityError), transaction.atomic():
            Author.objects.create(name="ann")
        with self.assertRaises(IntegrityError), transaction.atomic():
            self.ann.books.create(title="one", price=-1)
        self.assertEqual(Book.objects.count(), 0)

    def test_deferred_constraints_are_checked(self):
        book = Book(author_id=self.ann.id + 1000, title="of nobody")
        book.save()
        with self.assertRaises(IntegrityError), transaction.atomic():
            connection.check_constraints()
        book.delete()

    def test_callbacks_on_commit(self):
        with self.captureOnCommitCallbacks(execute=True) as callbacks:
            transaction.on_commit(lambda: Author.objects.create(name="after"))
        self.assertEqual(len(callbacks), 1)
        self.assertTrue(Author.objects.filter(name="after").exists())


class WithCommits(TransactionTestCase):
    def test_commits_and_rollbacks(self):
        with transaction.atomic():
            ann = Author.objects.create(name="ann")
            with self.assertRaises(DatabaseError), transaction.atomic():
                connection.cursor().execute("SELECT 1 / 0")
        with self.assertRaises(ZeroDivisionError), transaction.atomic():
            ann.books.create(title="one")
            raise ZeroDivisionError
        self.assertEqual((Author.objects.filter(name="ann").count(), Book.objects.count()), (1, 0))

    def test_tables_were_emptied(self):
        self.assertEqual(Author.objects.filter(name="ann").count(), 0)
        Author.objects.create(name="ann")

    def test_server_side_cursors(self):
        Author.objects.bulk_create(Author(name=f"{number}") for number in range(500))
        self.assertEqual(sum(1 for _ in Author.objects.exclude(name="anonymous").iterator(chunk_size=50)), 500)
