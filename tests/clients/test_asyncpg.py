"""asyncpg: pools of connections, prepared statements, cursors, COPY, and queries that are given up."""

import asyncio
import unittest

from client_case import ClientCase

try:
    import asyncpg
except ImportError as missing:
    raise unittest.SkipTest(f"{missing.name} is missing (tests/clients/requirements.txt)") from None

# A query that hangs fails its test, and the others go on.
PATIENCE = 30
COUNT = "SELECT count(*) FROM people"


class AsyncCase(ClientCase):
    def run_async(self, work):
        """Runs it with one connection that is closed afterwards."""

        async def with_connection():
            connection = await asyncpg.connect(self.url)
            try:
                return await asyncio.wait_for(work(connection), PATIENCE)
            finally:
                # Not a polite end: one that waits for ever has to be seen, not waited for.
                connection.terminate()

        return asyncio.run(with_connection())

    def run_pool(self, work, **options):
        """Runs it with a pool that is closed afterwards."""

        async def with_pool():
            pool = await asyncpg.create_pool(self.url, **options)
            try:
                done = await asyncio.wait_for(work(pool), PATIENCE)
                await asyncio.wait_for(pool.close(), PATIENCE)
                return done
            finally:
                pool.terminate()

        return asyncio.run(with_pool())


class Connections(AsyncCase):
    def test_a_commit_of_the_sandbox_publishes(self):
        async def work(connection):
            async with connection.transaction():
                await connection.execute("INSERT INTO people (name, age) VALUES ($1, $2)", "dan", 4)
            with self.assertRaises(ZeroDivisionError):
                async with connection.transaction():
                    await connection.execute("INSERT INTO people (name) VALUES ('eve')")
                    raise ZeroDivisionError
            return await connection.fetchval(COUNT)

        self.assertEqual(self.run_async(work), 4)
        self.commit()
        self.assertEqual(self.rows_outside("SELECT name, age FROM people WHERE id > 3"), [("dan", 4)])

    def test_nested_transactions_and_errors(self):
        async def work(connection):
            async with connection.transaction():
                await connection.execute("INSERT INTO people (name) VALUES ('dan')")
                with self.assertRaises(asyncpg.UniqueViolationError):
                    async with connection.transaction():
                        await connection.execute("INSERT INTO people (name) VALUES ('bob')")
                async with connection.transaction():
                    await connection.execute("INSERT INTO people (name) VALUES ('eve')")
            with self.assertRaises(asyncpg.UndefinedColumnError):
                await connection.fetch("SELECT nothing FROM people")
            return await connection.fetchval(COUNT)

        self.assertEqual(self.run_async(work), 5)

    def test_isolation_levels_and_read_only(self):
        async def work(connection):
            async with connection.transaction(isolation="serializable"):
                await connection.execute("INSERT INTO people (name) VALUES ('dan')")
            with self.assertRaises(asyncpg.ReadOnlySQLTransactionError):
                async with connection.transaction(readonly=True):
                    await connection.execute("INSERT INTO people (name) VALUES ('eve')")
            await connection.execute("INSERT INTO people (name) VALUES ('fay')")
            return await connection.fetchval(COUNT)

        self.assertEqual(self.run_async(work), 5)

    def test_prepared_statements(self):
        async def work(connection):
            statement = await connection.prepare("SELECT name, feels FROM people WHERE age > $1 ORDER BY id")
            self.assertEqual([kind.name for kind in statement.get_parameters()], ["int4"])
            self.assertEqual([column.name for column in statement.get_attributes()], ["name", "feels"])
            for _ in range(3):
                self.assertEqual([tuple(row) for row in await statement.fetch(20)], [("ann", "calm")])
            with self.assertRaises(asyncpg.DivisionByZeroError):
                await connection.fetchval("SELECT 1 / $1::int", 0)
            return [row["name"] for row in await statement.fetch(1)]

        self.assertEqual(self.run_async(work), ["ann", "bob"])

    def test_types_of_the_database_are_introspected(self):
        async def work(connection):
            await connection.execute("CREATE TYPE spot AS (x int, y int)")
            row = await connection.fetchrow("SELECT ARRAY['glad'::mood], (1, 2)::spot, $1::jsonb", '{"a": 1}')
            return row[0], tuple(row[1]), row[2]

        self.assertEqual(self.run_async(work), (["glad"], (1, 2), '{"a": 1}'))

    def test_many_rows_by_executemany(self):
        async def work(connection):
            rows = [(f"p{number}", number) for number in range(1000)]
            await connection.executemany("INSERT INTO people (name, age) VALUES ($1, $2)", rows)
            with self.assertRaises(asyncpg.UniqueViolationError):
                again = [("new", 1), ("p7", 2)]
                await connection.executemany("INSERT INTO people (name, age) VALUES ($1, $2)", again)
            return await connection.fetchval(COUNT)

        self.assertEqual(self.run_async(work), 1003)

    def test_copy(self):
        async def work(connection):
            records = [(f"p{number}", number, "glad") for number in range(3000)]
            columns = ["name", "age", "feels"]
            done = await connection.copy_records_to_table("people", records=records, columns=columns)
            self.assertEqual(done, "COPY 3000")
            chunks = []

            async def keep(chunk):
                chunks.append(chunk)

            await connection.copy_from_query("SELECT age FROM people WHERE id > $1 ORDER BY age", 3, output=keep)
            return b"".join(chunks)

        self.assertEqual(self.run_async(work).split(), [str(number).encode() for number in range(3000)])

    def test_cursors(self):
        async def work(connection):
            ages = []
            async with connection.transaction():
                await connection.execute("INSERT INTO people (name, age) SELECT 'p' || n, n FROM generate_series(1, 500) n")
                async for row in connection.cursor("SELECT age FROM people WHERE id > $1 ORDER BY id", 3, prefetch=11):
                    ages.append(row["age"])
                cursor = await connection.cursor("SELECT id FROM people ORDER BY id")
                await cursor.forward(400)
                self.assertEqual(len(await cursor.fetch(200)), 103)
            return ages

        self.assertEqual(self.run_async(work), list(range(1, 501)))

    def test_log_messages(self):
        async def work(connection):
            heard = []
            connection.add_log_listener(lambda _, message: heard.append(message.message))
            await connection.fetchval("SELECT greet($1)", "you")
            # Listeners are called by the loop, when it is its turn.
            while not heard:
                await asyncio.sleep(0)
            return heard

        self.assertEqual(self.run_async(work), ["greeting you"])


class GivenUp(AsyncCase):
    def test_a_timeout_cancels_the_query_and_the_connection_goes_on(self):
        async def work(connection):
            await connection.execute("INSERT INTO people (name) VALUES ('dan')")
            with self.assertRaises(asyncio.TimeoutError):
                await connection.fetchval("SELECT pg_sleep(600)", timeout=0.2)
            return await connection.fetchval(COUNT)

        self.assertEqual(self.run_async(work), 4)

    def test_a_timeout_in_a_transaction_undoes_it(self):
        async def work(connection):
            with self.assertRaises(asyncio.TimeoutError):
                async with connection.transaction():
                    await connection.execute("INSERT INTO people (name) VALUES ('dan')")
                    await connection.fetchval("SELECT pg_sleep(600)", timeout=0.2)
            return await connection.fetchval(COUNT)

        self.assertEqual(self.run_async(work), 3)

    def test_a_task_that_is_cancelled_gives_its_connection_back(self):
        async def work(pool):
            async def sleep():
                async with pool.acquire() as connection:
                    running.set()
                    await connection.execute("UPDATE people SET age = 1 RETURNING pg_sleep(600)")

            running = asyncio.Event()
            task = asyncio.ensure_future(sleep())
            await running.wait()
            await asyncio.sleep(0.2)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            return await pool.fetchval("SELECT max(age) FROM people")

        self.assertEqual(self.run_pool(work, min_size=1, max_size=2), 31)


class Pools(AsyncCase):
    def test_several_connections_at_once(self):
        async def insert(pool, number):
            async with pool.acquire() as connection, connection.transaction():
                await connection.execute("INSERT INTO people (name, age) VALUES ($1, $2)", f"p{number}", number)
                return await connection.fetchval("SELECT age FROM people WHERE name = $1", f"p{number}")

        async def work(pool):
            done = await asyncio.gather(*(insert(pool, number) for number in range(40)))
            self.assertEqual(done, list(range(40)))
            self.assertEqual(pool.get_size(), 5)
            return await pool.fetchval(COUNT)

        self.assertEqual(self.run_pool(work, min_size=5, max_size=5), 43)

    def test_a_connection_is_reset_when_it_is_given_back(self):
        async def work(pool):
            async with pool.acquire() as connection:
                await connection.execute("SET search_path TO pg_catalog")
            return await pool.fetchval("SHOW search_path"), await pool.fetchval(COUNT)

        self.assertEqual(self.run_pool(work, min_size=1, max_size=1), ('"$user", public', 3))

    def test_settings_given_with_the_connection(self):
        async def work(pool):
            return [await pool.fetchval(f"SHOW {name}") for name in ("application_name", "work_mem")]

        settings = {"application_name": "shop", "work_mem": "7MB"}
        self.assertEqual(self.run_pool(work, min_size=1, max_size=2, server_settings=settings), ["shop", "7MB"])

    def test_a_schema_change_in_one_connection_while_others_have_plans(self):
        async def work(pool):
            await pool.execute("CREATE TABLE things (id int)")
            async with pool.acquire() as first, pool.acquire() as second:
                for connection in (first, second):
                    self.assertEqual(await connection.fetch("SELECT * FROM things"), [])
                await first.execute("ALTER TABLE things ADD COLUMN name text DEFAULT 'x'")
                await first.execute("INSERT INTO things VALUES (1)")
                return [dict(row) for row in await second.fetch("SELECT * FROM things")]

        self.assertEqual(self.run_pool(work, min_size=2, max_size=2), [{"id": 1, "name": "x"}])
