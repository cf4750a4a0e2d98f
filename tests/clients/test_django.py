"""Django: migrations and the tests of a project, both through a sandbox.

A test database of Django's own cannot be made: CREATE DATABASE is no part of any transaction. What works is a test runner that makes none and
uses the sandbox itself (`SandboxRunner` below, by TEST_RUNNER): migrations run into it, TestCase rolls back, TransactionTestCase empties the
tables of the sandbox, and production never sees any of it.
"""

import os
import shutil
import subprocess
import sys
import unittest
from pathlib import Path
from urllib.parse import unquote, urlsplit

from client_case import PATIENCE, ClientCase

try:
    import django  # noqa: F401
except ImportError as missing:
    raise unittest.SkipTest(f"{missing.name} is missing (tests/clients/requirements.txt)") from None

PROJECT = Path(__file__).resolve().parent / "django_project"


class Project(ClientCase):
    """A project with a model, its migrations and its tests, in the directory of the test."""

    def setUp(self):
        super().setUp()
        self.project = self.directory / "project"
        shutil.copytree(PROJECT, self.project, ignore=shutil.ignore_patterns("__pycache__"))

    def manage(self, *words, code=0):
        """What `manage.py` prints, on both streams."""
        url = urlsplit(self.url)
        connection = {
            "PGHOST": url.hostname,
            "PGPORT": str(url.port),
            "PGUSER": url.username,
            "PGPASSWORD": unquote(url.password),
            "PGDATABASE": url.path[1:],
        }
        environment = {**os.environ, **connection, "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "manage.py", *words]
        output = subprocess.PIPE
        done = subprocess.run(command, cwd=self.project, env=environment, stdout=output, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE)
        if done.returncode != code:
            raise AssertionError(f"manage.py {' '.join(words)}: exit {done.returncode}\n{done.stdout}")
        return done.stdout

    def tables(self):
        rows = self.connect(autocommit=True).execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        return sorted(name for (name,) in rows)


class Migrations(Project):
    def test_migrations_go_forth_and_back(self):
        self.manage("migrate", "--no-input")
        self.assertIn("books_book", self.tables())
        self.assertIn("[X] 0002_book_price", self.manage("showmigrations", "books"))
        self.assertIn("No changes detected", self.manage("makemigrations", "--check", "--dry-run"))
        self.manage("migrate", "books", "0001")
        self.assertIn("[ ] 0002_book_price", self.manage("showmigrations", "books"))
        self.manage("migrate", "books", "zero")
        self.assertNotIn("books_book", self.tables())

    def test_what_was_migrated_is_committed(self):
        self.manage("migrate", "--no-input")
        made = "from books.models import Author; Author.objects.create(name='ann').books.create(title='one', price=3)"
        self.manage("shell", "--command", made)
        self.commit()
        self.assertEqual(self.rows_outside("SELECT title, price FROM books_book"), [("one", 3)])

    def test_models_of_tables_that_are_there(self):
        self.assertIn("class People(models.Model)", self.manage("inspectdb"))

    def test_fixtures_are_dumped_and_loaded(self):
        self.manage("migrate", "--no-input")
        self.manage("shell", "--command", "from books.models import Author; Author.objects.create(name='ann').books.create(title='one')")
        dump = self.directory / "dump.json"
        self.manage("dumpdata", "books", "--output", str(dump))
        self.manage("flush", "--no-input")
        self.manage("loaddata", str(dump))
        self.assertEqual(self.connect().execute("SELECT count(*) FROM books_book").fetchone(), (1,))


class Tests(Project):
    def test_the_tests_of_the_project_pass_in_the_sandbox(self):
        for _ in range(2):
            output = self.manage("test", "--no-input")
            self.assertRegex(output, r"(?m)^Ran 9 tests in")
            self.assertRegex(output, r"(?m)^OK$")

    def test_a_database_of_djangos_own_is_refused(self):
        output = self.manage("test", "--no-input", "--testrunner=django.test.runner.DiscoverRunner", code=2)
        self.assertIn("CREATE and DROP DATABASE cannot run inside a transaction", output)
        self.assertEqual(self.connect().execute("SELECT count(*) FROM people").fetchone(), (3,))
