"""psycopg 3: what its documentation offers, through a sandbox."""

import contextlib
import os
import signal
import subprocess
import sys
import threading

from client_case import PATIENCE, ClientCase, psycopg

NAMES = "SELECT name FROM people ORDER BY id"


def names(connection):
    return [name for (name,) in connection.execute(NAMES)]


class Transactions(ClientCase):
    def test_autocommit_is_seen_by_the_next_connection_at_once(self):
        first, second = self.connect(autocommit=True), self.connect(autocommit=True)
        first.execute("INSERT INTO people (name) VALUES ('dan')")
        self.assertEqual(names(second), ["ann", "bob", "cyd", "dan"])
        self.assertEqual(first.info.transaction_status, psycopg.pq.TransactionStatus.IDLE)

    def test_commit_and_rollback(self):
        connection = self.connect()
        connection.execute("INSERT INTO people (name) VALUES ('dan')")
        self.assertEqual(connection.info.transaction_status, psycopg.pq.TransactionStatus.INTRANS)
        connection.commit()
        connection.execute("DELETE FROM notes")
        connection.execute("DELETE FROM people")
        connection.rollback()
        self.assertEqual(names(connection), ["ann", "bob", "cyd", "dan"])

    def test_a_connection_that_closes_without_a_commit_leaves_nothing(self):
        connection = self.connect()
        connection.execute("INSERT INTO people (name) VALUES ('dan')")
        connection.close()
        self.assertEqual(names(self.connect()), ["ann", "bob", "cyd"])

    def test_nested_transactions(self):
        connection = self.connect(autocommit=True)
        with connection.transaction():
            connection.execute("UPDATE people SET age = 40 WHERE name = 'ann'")
            with self.assertRaises(psycopg.errors.UniqueViolation), connection.transaction():
                connection.execute("INSERT INTO people (name) VALUES ('bob')")
            with connection.transaction(force_rollback=True):
                connection.execute("UPDATE people SET age = 99")
            with connection.transaction():
                connection.execute("INSERT INTO people (name) VALUES ('dan')")
        self.assertEqual(names(connection), ["ann", "bob", "cyd", "dan"])
        ages = connection.execute("SELECT name, age FROM people WHERE age > 30").fetchall()
        self.assertEqual(ages, [("ann", 40)])

    def test_after_an_error_the_transaction_is_failed_and_the_next_works(self):
        connection = self.connect()
        connection.execute("INSERT INTO people (name) VALUES ('dan')")
        with self.assertRaises(psycopg.errors.CheckViolation):
            connection.execute("UPDATE people SET age = -1")
        with self.assertRaises(psycopg.errors.InFailedSqlTransaction):
            connection.execute("SELECT 1")
        self.assertEqual(connection.info.transaction_status, psycopg.pq.TransactionStatus.INERROR)
        connection.rollback()
        self.assertEqual(names(connection), ["ann", "bob", "cyd"])

    def test_after_an_error_autocommit_goes_on(self):
        connection = self.connect(autocommit=True)
        connection.execute("INSERT INTO people (name) VALUES ('dan')")
        with self.assertRaises(psycopg.errors.UndefinedTable) as failure:
            connection.execute("SELECT * FROM nothing_of_the_kind")
        self.assertEqual(failure.exception.diag.statement_position, "15")
        self.assertEqual(names(connection), ["ann", "bob", "cyd", "dan"])

    def test_what_is_deferred_is_checked_at_the_clients_commit(self):
        connection = self.connect()
        connection.execute("INSERT INTO notes (person, body) VALUES (77, 'nobody')")
        with self.assertRaises(psycopg.errors.ForeignKeyViolation):
            connection.commit()
        connection.rollback()
        connection.execute("INSERT INTO notes (person, body) VALUES (77, 'somebody')")
        connection.execute("INSERT INTO people (id, name) VALUES (77, 'dan')")
        connection.commit()
        self.assertEqual(connection.execute("SELECT count(*) FROM notes").fetchone(), (3,))

    def test_a_read_only_transaction_refuses_writes_and_the_next_does_not(self):
        connection = self.connect()
        connection.read_only = True
        with self.assertRaises(psycopg.errors.ReadOnlySqlTransaction):
            connection.execute("DELETE FROM notes")
        connection.rollback()
        connection.read_only = None
        connection.execute("INSERT INTO people (name) VALUES ('dan')")
        connection.commit()
        self.assertEqual(len(names(connection)), 4)

    def test_isolation_levels_are_accepted(self):
        connection = self.connect()
        connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        connection.execute("INSERT INTO people (name) VALUES ('dan')")
        connection.commit()
        self.assertEqual(len(names(connection)), 4)

    def test_a_commit_of_the_sandbox_publishes_what_clients_committed(self):
        connection, open_one = self.connect(), self.connect()
        connection.execute("INSERT INTO people (name, age) VALUES (%s, %s)", ["dan", 50])
        connection.commit()
        connection.execute("INSERT INTO people (name) VALUES ('rolled back')")
        connection.rollback()
        open_one.execute("INSERT INTO people (name) VALUES ('closed')")
        open_one.close()
        self.commit()
        self.assertEqual(self.rows_outside("SELECT name, age FROM people WHERE id > 3"), [("dan", 50)])


class Statements(ClientCase):
    def test_pipeline_mode(self):
        connection = self.connect(autocommit=True)
        with connection.pipeline(), connection.cursor() as cursor:
            for number in range(200):
                cursor.execute("INSERT INTO people (name, age) VALUES (%s, %s)", [f"p{number}", number])
            first = connection.execute("SELECT count(*) FROM people")
            second = connection.execute("SELECT max(age) FROM people")
            self.assertEqual((first.fetchone(), second.fetchone()), ((203,), (199,)))
        self.assertEqual(connection.execute("SELECT count(*) FROM people").fetchone(), (203,))

    def test_an_error_in_a_pipeline_undoes_it_and_the_connection_goes_on(self):
        connection = self.connect(autocommit=True)
        with self.assertRaises(psycopg.errors.UniqueViolation), connection.pipeline():
            connection.execute("INSERT INTO people (name) VALUES ('dan')")
            connection.execute("INSERT INTO people (name) VALUES ('bob')")
            connection.execute("INSERT INTO people (name) VALUES ('eve')")
        self.assertEqual(names(connection), ["ann", "bob", "cyd"])

    def test_transactions_in_a_pipeline(self):
        connection = self.connect(autocommit=True)
        with connection.pipeline() as pipeline:
            with connection.transaction():
                connection.execute("INSERT INTO people (name) VALUES ('dan')")
            pipeline.sync()
            with connection.transaction(force_rollback=True):
                connection.execute("INSERT INTO people (name) VALUES ('eve')")
        self.assertEqual(names(connection), ["ann", "bob", "cyd", "dan"])

    def test_server_side_cursors(self):
        connection = self.connect()
        connection.execute("INSERT INTO people (name, age) SELECT 'p' || n, n FROM generate_series(1, 1000) n")
        with connection.cursor(name="few") as cursor:
            cursor.itersize = 7
            self.assertEqual(sum(age or 0 for (age,) in cursor.execute("SELECT age FROM people")), 500543)
        with connection.cursor(name="Quoted name", scrollable=True) as cursor:
            cursor.execute("SELECT age FROM people WHERE id > 3 ORDER BY age")
            cursor.scroll(500)
            self.assertEqual(cursor.fetchone(), (501,))
            cursor.scroll(-2)
            self.assertEqual(cursor.fetchmany(2), [(500,), (501,)])
        connection.commit()

    def test_a_cursor_with_hold_outlives_its_transaction(self):
        connection = self.connect()
        cursor = connection.cursor(name="held", withhold=True)
        cursor.execute(NAMES)
        connection.commit()
        self.assertEqual(cursor.fetchall(), [("ann",), ("bob",), ("cyd",)])
        cursor.close()

    def test_copy_in_and_out(self):
        connection = self.connect()
        with connection.cursor().copy("COPY people (name, age) FROM STDIN") as copy:
            for number in range(5000):
                copy.write_row((f"copied {number}", number))
        connection.commit()
        with connection.cursor().copy("COPY (SELECT age FROM people WHERE id > 3 ORDER BY age) TO STDOUT") as copy:
            self.assertEqual([int(age) for (age,) in copy.rows()], list(range(5000)))
        self.assertEqual(connection.execute("SELECT count(*) FROM people").fetchone(), (5003,))

    def test_binary_copy(self):
        connection = self.connect(autocommit=True)
        with connection.cursor().copy("COPY people (name, age) FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(["text", "int4"])
            copy.write_row(("dan", 5))
            copy.write_row(("eve", None))
        with connection.cursor().copy("COPY people (name, age) TO STDOUT (FORMAT BINARY)") as copy:
            copy.set_types(["text", "int4"])
            self.assertEqual(list(copy.rows())[3:], [("dan", 5), ("eve", None)])

    def test_a_copy_that_fails_or_is_given_up_leaves_nothing(self):
        connection = self.connect(autocommit=True)
        with self.assertRaises(psycopg.errors.InvalidTextRepresentation):
            with connection.cursor().copy("COPY people (name, age) FROM STDIN") as copy:
                copy.write("dan\t1\neve\tno number\n" + "more\t1\n" * 10000)
        with self.assertRaises(ZeroDivisionError):
            with connection.cursor().copy("COPY people (name, age) FROM STDIN") as copy:
                copy.write_row(("dan", 1))
                raise ZeroDivisionError
        self.assertEqual(names(connection), ["ann", "bob", "cyd"])

    def test_a_connection_that_closes_in_the_middle_of_a_copy_holds_nobody_up(self):
        reader = self.connect()
        reading = reader.cursor().copy("COPY (SELECT generate_series(1, 1000000)) TO STDOUT")
        self.assertEqual(bytes(reading.__enter__().read())[:2], b"1\n")
        reader.close()
        close_quietly(reading)
        self.assertEqual(names(self.connect(autocommit=True)), ["ann", "bob", "cyd"])
        writer = self.connect()
        writing = writer.cursor().copy("COPY people (name) FROM STDIN")
        writing.__enter__().write("dan\n")
        writer.close()
        close_quietly(writing)
        self.assertEqual(names(self.connect(autocommit=True)), ["ann", "bob", "cyd"])

    def test_executemany(self):
        connection = self.connect()
        cursor = connection.cursor()
        rows = [(f"p{number}", number) for number in range(300)]
        cursor.executemany("INSERT INTO people (name, age) VALUES (%s, %s)", rows)
        self.assertEqual(cursor.rowcount, 300)
        cursor.executemany("DELETE FROM people WHERE name = %s RETURNING age", [("p1",), ("p2",)], returning=True)
        returned = [cursor.fetchall()]
        while cursor.nextset():
            returned.append(cursor.fetchall())
        self.assertEqual(returned, [[(1,)], [(2,)]])
        connection.commit()
        self.assertEqual(connection.execute("SELECT count(*) FROM people").fetchone(), (301,))

    def test_prepared_statements_of_two_connections_with_the_same_names(self):
        first, second = self.connect(prepare_threshold=0), self.connect(prepare_threshold=0)
        for connection in (first, second):
            connection.autocommit = True
        for number in range(20):
            self.assertEqual(first.execute("SELECT %s::int + 1", [number]).fetchone(), (number + 1,))
            self.assertEqual(second.execute("SELECT %s::int * 2", [number]).fetchone(), (number * 2,))
        prepared = "SELECT count(*) FROM people WHERE age > %s"
        self.assertEqual(first.execute(prepared, [20]).fetchone(), second.execute(prepared, [20]).fetchone())

    def test_prepared_statements_survive_errors_rollbacks_and_more_than_are_kept(self):
        connection = self.connect(prepare_threshold=0)
        connection.prepared_max = 3
        for number in range(12):
            self.assertEqual(connection.execute(f"SELECT %s::int + {number}", [1]).fetchone(), (number + 1,))
            with self.assertRaises(psycopg.errors.DivisionByZero):
                connection.execute("SELECT 1 / %s::int", [number * 0])
            connection.rollback()

    def test_notices(self):
        connection, heard = self.connect(autocommit=True), []
        connection.add_notice_handler(lambda notice: heard.append((notice.severity, notice.message_primary)))
        self.assertEqual(connection.execute("SELECT greet('you')").fetchone(), ("hello you",))
        connection.execute("DO $$ BEGIN RAISE WARNING 'careful'; END $$")
        self.assertEqual(heard, [("NOTICE", "greeting you"), ("WARNING", "careful")])

    def test_several_statements_in_one_string(self):
        connection = self.connect(autocommit=True)
        cursor = connection.execute("INSERT INTO people (name) VALUES ('dan'); SELECT count(*) FROM people; SELECT 'x'")
        self.assertEqual(cursor.rowcount, 1)
        self.assertTrue(cursor.nextset())
        self.assertEqual(cursor.fetchone(), (4,))
        with self.assertRaises(psycopg.errors.DivisionByZero):
            connection.execute("INSERT INTO people (name) VALUES ('eve'); SELECT 1 / 0")
        self.assertEqual(len(names(connection)), 4)

    def test_binary_results_and_types(self):
        connection = self.connect()
        query = "SELECT %s::int8, %s::numeric, %s::text[], %s::bytea, now() IS NOT NULL, %s::jsonb"
        values = [2**40, 1.5, ["a", "b"], b"\0\xff", psycopg.types.json.Jsonb({"k": 1})]
        row = connection.execute(query, values, binary=True).fetchone()
        self.assertEqual((row[0], float(row[1]), row[2], bytes(row[3]), row[4], row[5]), (2**40, 1.5, ["a", "b"], b"\0\xff", True, {"k": 1}))


class Several(ClientCase):
    def test_two_connections_interleaved_keep_their_own_settings(self):
        first, second = self.connect(autocommit=True), self.connect(autocommit=True)
        first.execute("SET search_path TO pg_catalog")
        second.execute("SET TimeZone TO 'Asia/Tokyo'")
        for _ in range(3):
            self.assertEqual(first.execute("SHOW search_path").fetchone(), ("pg_catalog",))
            self.assertEqual(second.execute("SHOW search_path").fetchone(), ('"$user", public',))
            self.assertEqual(first.execute("SHOW TimeZone").fetchone(), ("UTC",))
            self.assertEqual(second.execute("SHOW TimeZone").fetchone(), ("Asia/Tokyo",))
        self.assertEqual(second.info.parameter_status("TimeZone"), "Asia/Tokyo")

    def test_settings_given_with_the_connection_outlive_a_reset(self):
        # Of a single setting, `RESET x` gives the server's default: docs/databases.md says so.
        for statement in ("RESET ALL", "DISCARD ALL"):
            with self.subTest(statement):
                connection = self.connect(autocommit=True, options="-c work_mem=7MB")
                connection.execute("SET work_mem TO '8MB'")
                connection.execute(statement)
                self.assertEqual(connection.execute("SHOW work_mem").fetchone(), ("7MB",))

    def test_a_connection_waits_for_anothers_transaction(self):
        first, second, seen = self.connect(), self.connect(), []
        first.execute("INSERT INTO people (name) VALUES ('dan')")
        waiting = threading.Thread(target=lambda: seen.extend(names(second)))
        waiting.start()
        first.execute("INSERT INTO people (name) VALUES ('eve')")
        first.commit()
        waiting.join(PATIENCE)
        self.assertEqual(seen[-2:], ["dan", "eve"])

    def test_a_second_connection_in_the_same_flow_is_told_and_not_hung(self):
        first, second = self.connect(), self.connect()
        first.execute("INSERT INTO people (name) VALUES ('dan')")
        with self.assertRaises(psycopg.errors.LockNotAvailable):
            second.execute("SELECT 1")
        second.rollback()
        first.commit()
        self.assertEqual(len(names(second)), 4)

    def test_many_threads(self):
        def work(number):
            with psycopg.connect(self.url) as connection:
                for turn in range(10):
                    connection.execute("INSERT INTO people (name, age) VALUES (%s, %s)", [f"{number}/{turn}", turn])
                    connection.commit()

        threads = [threading.Thread(target=work, args=[number]) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        self.assertEqual(self.connect().execute("SELECT count(*), sum(age) FROM people WHERE id > 3").fetchone(), (60, 270))

    def test_cancel(self):
        connection = self.connect()
        connection.execute("INSERT INTO people (name) VALUES ('dan')")
        connection.commit()
        timer = cancel_when_running(connection)
        with self.assertRaises(psycopg.errors.QueryCanceled):
            connection.execute("SELECT pg_sleep(600)")
        timer.set()
        connection.rollback()
        self.assertEqual(len(names(connection)), 4)

    def test_a_cancel_of_one_connection_spares_the_other(self):
        idle, busy = self.connect(autocommit=True), self.connect(autocommit=True)
        idle.execute("SELECT 1")
        idle.cancel_safe()
        self.assertEqual(busy.execute("SELECT count(*) FROM people").fetchone(), (3,))
        self.assertEqual(idle.execute("SELECT count(*) FROM people").fetchone(), (3,))

    def test_a_client_that_is_killed_within_a_query_is_followed_by_the_next(self):
        for statement in ("SELECT pg_sleep(600)", "UPDATE people SET age = 7 RETURNING pg_sleep(600)"):
            with self.subTest(statement):
                self._kill_a_client_within(statement)
                connection = self.connect(autocommit=True)
                self.assertEqual(connection.execute("SELECT max(age) FROM people").fetchone(), (31,))
                connection.execute("INSERT INTO people (name) VALUES (%s)", [statement])

    def _kill_a_client_within(self, statement):
        script = "import psycopg, sys; psycopg.connect(sys.argv[1]).execute(sys.argv[2])"
        child = subprocess.Popen([sys.executable, "-c", script, self.url, statement])
        try:
            while not self.rows_outside("SELECT 1 FROM pg_stat_activity WHERE state = 'active' AND wait_event = 'PgSleep'"):
                self.assertIsNone(child.poll(), "it ended before it was killed")
        finally:
            os.kill(child.pid, signal.SIGKILL)
            child.wait(PATIENCE)


def close_quietly(copying):
    """Ends the context of a COPY whose connection has gone."""
    with contextlib.suppress(psycopg.OperationalError):
        copying.__exit__(None, None, None)


def cancel_when_running(connection):
    """Cancels again and again, since one that comes too early does nothing, until the event is set."""
    done = threading.Event()

    def cancel():
        while not done.wait(0.05):
            connection.cancel_safe()

    threading.Thread(target=cancel, daemon=True).start()
    return done


class Refused(ClientCase):
    def test_what_cannot_be_in_a_held_transaction_is_an_error_and_no_more(self):
        connection = self.connect(autocommit=True)
        for statement in ("CREATE DATABASE other", "VACUUM", "PREPARE TRANSACTION 'x'", "ALTER SYSTEM SET work_mem = 1"):
            with self.subTest(statement), self.assertRaises(psycopg.Error):
                connection.execute(statement)
        connection.execute("INSERT INTO people (name) VALUES ('dan')")
        self.assertEqual(len(names(connection)), 4)

    def test_hidden_ends_of_the_transaction_end_only_the_clients(self):
        connection = self.connect(autocommit=True)
        for statement in ("/* a /* b */ c */ commit", "-- x\ncommit", "SELECT 1; COMMIT; SELECT 2", "END", "ABORT"):
            with self.subTest(statement):
                connection.execute("INSERT INTO people (name) VALUES (%s)", [statement])
                connection.execute(statement)
        self.assertEqual(len(names(connection)), 8)
        for statement in ("DO $$ BEGIN COMMIT; END $$", "COMMIT PREPARED 'x'"):
            with self.subTest(statement), self.assertRaises(psycopg.Error):
                connection.execute(statement)
        self.assertEqual(len(names(connection)), 8)

    def test_a_transaction_by_tpc_is_refused(self):
        connection = self.connect()
        connection.tpc_begin(connection.xid(1, "gtrid", "bqual"))
        connection.execute("INSERT INTO people (name) VALUES ('dan')")
        with self.assertRaises(psycopg.Error):
            connection.tpc_prepare()
        connection.close()
        self.assertEqual(len(names(self.connect())), 3)
