"""PostgreSQL's own programs: psql with scripts and meta commands, pg_dump, pg_restore."""

import csv
import difflib
import re

from client_case import ClientCase

WITHOUT_GUARD = "--exclude-schema=sandboxer_guard_*"


def comparable(dump):
    """A dump without what is random in it: the key that newer versions put around it."""
    return re.sub(r"^\\(un)?restrict .*\n", "", dump, flags=re.MULTILINE)


class Psql(ClientCase):
    def psql(self, *words, **options):
        return self.program("psql", "--no-psqlrc", "--set=ON_ERROR_STOP=1", "--tuples-only", "--no-align", *words, **options)

    def script(self, text, **options):
        path = self.directory / "script.sql"
        path.write_text(text)
        return self.psql("--quiet", "--file", str(path), **options)

    def test_meta_commands_are_answered_as_by_the_server(self):
        for command in (r"\d people", r"\d+ notes", r"\dt+ public.*", r"\dv+ adults", r"\df+ greet", r"\dT+ mood", r"\di+ public.*", r"\ds public.*"):
            with self.subTest(command):
                direct = self.psql("--command", command, url=self.outside_url())
                self.assertEqual(self.psql("--command", command), direct)
                self.assertTrue(direct)
        self.assertIn(self.database, self.psql("--command", r"\conninfo"))

    def test_copy_in_and_out(self):
        given, out = self.directory / "given.csv", self.directory / "out.csv"
        given.write_text("name,age\ndan,4\neve,\n\"fay, \"\"f\"\"\",6\n")
        script = rf"""
            \copy people (name, age) FROM '{given}' CSV HEADER
            \copy (SELECT name, age FROM people WHERE id > 3 ORDER BY id) TO '{out}' CSV HEADER
        """
        self.script(script)
        with open(out, newline="") as file:
            self.assertEqual(list(csv.reader(file)), [["name", "age"], ["dan", "4"], ["eve", ""], ['fay, "f"', "6"]])

    def test_a_script_with_variables_conditions_and_transactions(self):
        script = r"""
            \set who dan
            BEGIN;
            INSERT INTO people (name) VALUES (:'who') RETURNING id AS made \gset
            SAVEPOINT a;
            DELETE FROM people WHERE id = :made;
            ROLLBACK TO a;
            COMMIT;
            SELECT count(*) = 4 AS right FROM people \gset
            \if :right
                SELECT 'as expected';
            \endif
            SELECT format('INSERT INTO people (name) VALUES (%L)', 'g' || n) FROM generate_series(1, 2) n \gexec
            BEGIN; DELETE FROM notes; ROLLBACK;
            SELECT $1::int + 1 \bind 41 \g
            SELECT (SELECT count(*) FROM people), (SELECT count(*) FROM notes);
        """
        if self.server_programs_before(16):
            script = script.replace(r"SELECT $1::int + 1 \bind 41 \g", "SELECT 42;")
        self.assertEqual(self.script(script).split("\n"), ["as expected", "42", "6|2", ""])

    def server_programs_before(self, version):
        return int(re.search(r"\d+", self.psql("--version")).group()) < version

    def test_single_transaction_is_all_or_nothing(self):
        statements = ["--command", "INSERT INTO people (name) VALUES ('dan')", "--command", "INSERT INTO people (name) VALUES ('bob')"]
        self.assertIn("duplicate key", self.psql("--single-transaction", *statements, code=1))
        self.assertEqual(self.psql("--command", "SELECT count(*) FROM people"), "3\n")

    def test_errors_are_told_and_rolled_back_to(self):
        script = "BEGIN;\nINSERT INTO people (name) VALUES ('dan');\nSELECT 1/0;\nINSERT INTO people (name) VALUES ('eve');\nCOMMIT;\n"
        self.psql("--set=ON_ERROR_STOP=0", "--set=ON_ERROR_ROLLBACK=1", "--quiet", given=script)
        self.assertEqual(self.psql("--command", "SELECT name FROM people WHERE id > 3 ORDER BY id"), "dan\neve\n")

    def test_rows_by_cursor(self):
        rows = self.psql("--set=FETCH_COUNT=10", "--command", "SELECT n FROM generate_series(1, 95) n")
        self.assertEqual(rows.split(), [str(number) for number in range(1, 96)])

    def test_a_commit_of_the_sandbox_publishes_a_script(self):
        self.script("CREATE TABLE made (id int PRIMARY KEY, name text);\nCOPY made FROM STDIN;\n1\tone\n2\ttwo\n\\.\nDELETE FROM notes WHERE id = 2;\n")
        self.commit()
        self.assertEqual(self.rows_outside("SELECT * FROM made ORDER BY id"), [(1, "one"), (2, "two")])
        self.assertEqual(self.rows_outside("SELECT id FROM notes"), [(1,)])


class Dumps(ClientCase):
    def dump(self, *words, **options):
        return comparable(self.program("pg_dump", WITHOUT_GUARD, *words, **options))

    def assert_same_text(self, one, other):
        difference = "\n".join(difflib.unified_diff(other.splitlines(), one.splitlines(), "direct", "sandbox", lineterm="", n=1))
        self.assertEqual(difference, "")

    def test_dumps_are_those_of_the_server(self):
        for words in (["--schema-only"], [], ["--inserts", "--clean", "--if-exists"], ["--data-only", "--table=people"]):
            with self.subTest(words):
                self.assert_same_text(self.dump(*words), self.dump(*words, url=self.outside_url()))

    def test_a_dump_has_what_was_done_in_the_sandbox(self):
        connection = self.connect(autocommit=True)
        connection.execute("INSERT INTO people (name) VALUES ('only inside')")
        connection.execute("CREATE TABLE made (id int)")
        self.assertIn("only inside", self.dump())
        self.assertIn("CREATE TABLE public.made", self.dump("--schema-only"))
        self.assertNotIn("only inside", self.dump(url=self.outside_url()))
        self.assertEqual(connection.execute("SHOW search_path").fetchone(), ('"$user", public',))

    def test_a_dump_is_restored_into_the_sandbox_by_psql(self):
        path = self.directory / "dump.sql"
        path.write_text(self.dump("--no-owner", url=self.outside_url()).replace("public.", "copied.").replace("COMMENT ON SCHEMA", "-- "))
        connection = self.connect(autocommit=True)
        connection.execute("CREATE SCHEMA copied")
        self.program("psql", "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--file", str(path))
        self.assert_copied(connection)
        self.program("psql", "--no-psqlrc", "--quiet", "--command", "DROP SCHEMA copied CASCADE")
        self.program("psql", "--no-psqlrc", "--quiet", "--command", "CREATE SCHEMA copied")
        self.program("psql", "--no-psqlrc", "--quiet", "--single-transaction", "--set=ON_ERROR_STOP=1", "--file", str(path))
        self.assert_copied(connection)

    def assert_copied(self, connection):
        for table in ("people", "notes"):
            rows = connection.execute(f"SELECT * FROM copied.{table} ORDER BY id").fetchall()
            self.assertEqual(rows, connection.execute(f"SELECT * FROM public.{table} ORDER BY id").fetchall())
        self.assertEqual(connection.execute("SELECT name FROM copied.adults").fetchall(), [("ann",)])

    def test_pg_restore_of_rows_into_emptied_tables(self):
        archive = self.directory / "archive"
        self.program("pg_dump", WITHOUT_GUARD, "--format=custom", "--data-only", "--file", str(archive))
        connection = self.connect(autocommit=True)
        connection.execute("DELETE FROM notes; DELETE FROM people")
        self.program("pg_restore", "--single-transaction", "--exit-on-error", str(archive))
        self.assertEqual(connection.execute("SELECT count(*) FROM people, notes").fetchone(), (6,))

    def test_a_dump_of_the_sandbox_is_restored_and_committed(self):
        connection = self.connect(autocommit=True)
        connection.execute("CREATE SCHEMA more")
        connection.execute("CREATE TABLE more.made (id serial PRIMARY KEY, name text)")
        connection.execute("INSERT INTO more.made (name) VALUES ('one'), ('two')")
        archive = self.directory / "archive"
        self.program("pg_dump", "--schema=more", "--format=custom", "--file", str(archive))
        connection.execute("DROP SCHEMA more CASCADE")
        self.program("pg_restore", "--exit-on-error", str(archive))
        connection.close()
        self.commit()
        self.assertEqual(self.rows_outside("SELECT name FROM more.made ORDER BY id"), [("one",), ("two",)])

    def test_a_parallel_dump_is_told_that_it_cannot_be(self):
        archive = self.directory / "archive"
        said = self.program("pg_dump", "--format=directory", "--jobs=2", "--file", str(archive), code=1)
        self.assertTrue(said)
        self.assertEqual(self.connect().execute("SELECT count(*) FROM people").fetchone(), (3,))
