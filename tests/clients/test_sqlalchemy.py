"""SQLAlchemy: an engine with a pool, the ORM, reflection, and a schema that is made and dropped."""

from __future__ import annotations

import unittest
from typing import List, Optional

from client_case import ClientCase

try:
    import sqlalchemy as sa
    from sqlalchemy import orm
except ImportError as missing:
    raise unittest.SkipTest(f"{missing.name} is missing (tests/clients/requirements.txt)") from None


class Base(orm.DeclarativeBase):
    pass


class Person(Base):
    __tablename__ = "people"

    id: orm.Mapped[int] = orm.mapped_column(sa.Identity(), primary_key=True)
    name: orm.Mapped[str] = orm.mapped_column(unique=True)
    age: orm.Mapped[Optional[int]]
    notes: orm.Mapped[List[Note]] = orm.relationship(back_populates="author", cascade="all, delete-orphan")


class Note(Base):
    __tablename__ = "notes"

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    person: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("people.id"))
    body: orm.Mapped[Optional[str]]
    author: orm.Mapped[Person] = orm.relationship(back_populates="notes")


class AlchemyCase(ClientCase):
    def setUp(self):
        super().setUp()
        url = sa.make_url(self.url).set(drivername="postgresql+psycopg")
        self.engine = sa.create_engine(url, pool_size=3, max_overflow=0, pool_pre_ping=True)
        self.addCleanup(self.engine.dispose)

    def count(self, table="people"):
        with self.engine.connect() as connection:
            return connection.scalar(sa.text(f"SELECT count(*) FROM {table}"))


class Sessions(AlchemyCase):
    def test_commit_and_rollback(self):
        with orm.Session(self.engine) as session:
            session.add(Person(name="dan", age=3, notes=[Note(body="one"), Note(body="two")]))
            session.commit()
            session.add(Person(name="eve"))
            session.flush()
            session.rollback()
        with orm.Session(self.engine) as session:
            dan = session.scalars(sa.select(Person).where(Person.name == "dan")).one()
            self.assertEqual([note.body for note in dan.notes], ["one", "two"])
        self.assertEqual(self.count(), 4)

    def test_savepoints(self):
        with orm.Session(self.engine) as session, session.begin():
            session.add(Person(name="dan"))
            with self.assertRaises(sa.exc.IntegrityError), session.begin_nested():
                session.add(Person(name="bob"))
                session.flush()
            nested = session.begin_nested()
            session.add(Person(name="eve"))
            session.flush()
            nested.rollback()
            with session.begin_nested():
                session.add(Person(name="fay"))
        with orm.Session(self.engine) as session:
            self.assertEqual(session.scalars(sa.select(Person.name).where(Person.id > 3)).all(), ["dan", "fay"])

    def test_an_error_at_the_commit_rolls_back_and_the_session_goes_on(self):
        with orm.Session(self.engine) as session:
            session.add(Person(name="dan"))
            session.execute(sa.insert(Note.__table__).values(person=77))
            with self.assertRaises(sa.exc.IntegrityError):
                session.commit()
            session.rollback()
            session.add(Person(name="eve"))
            session.commit()
        self.assertEqual(self.count(), 4)

    def test_bulk_inserts_updates_and_deletes(self):
        with orm.Session(self.engine) as session:
            rows = [{"name": f"p{number}", "age": number} for number in range(2500)]
            returned = session.scalars(sa.insert(Person).returning(Person.age, sort_by_parameter_order=True), rows)
            self.assertEqual(list(returned), list(range(2500)))
            session.execute(sa.update(Person).where(Person.age > 2000).values(age=Person.age + 1))
            session.execute(sa.delete(Person).where(Person.age.between(100, 199)))
            session.commit()
        self.assertEqual(self.count(), 2403)

    def test_streamed_results(self):
        with self.engine.connect() as connection:
            connection.execute(sa.text("INSERT INTO people (name) SELECT 'p' || n FROM generate_series(1, 5000) n"))
            result = connection.execution_options(yield_per=64).execute(sa.select(Person.id))
            self.assertEqual(sum(1 for _ in result), 5003)
            connection.rollback()
        self.assertEqual(self.count(), 3)

    def test_a_commit_of_the_sandbox_publishes_the_session(self):
        with orm.Session(self.engine) as session:
            ann = session.get(Person, 1)
            ann.age = 32
            ann.notes.append(Note(body="published"))
            session.commit()
        self.commit()
        self.assertEqual(self.rows_outside("SELECT age FROM people WHERE id = 1"), [(32,)])
        self.assertEqual(self.rows_outside("SELECT person FROM notes WHERE body = 'published'"), [(1,)])


class Pools(AlchemyCase):
    def test_connections_of_the_pool_one_after_the_other(self):
        for number in range(12):
            with self.engine.begin() as connection:
                connection.execute(sa.insert(Person), [{"name": f"p{number}", "age": number}])
        self.assertEqual(self.engine.pool.checkedin(), 1)
        self.assertEqual(self.count(), 15)

    def test_several_checked_out_and_used_in_turns(self):
        connections = [self.engine.connect() for _ in range(3)]
        for number in range(9):
            connection = connections[number % 3]
            with connection.begin():
                connection.execute(sa.insert(Person), [{"name": f"p{number}", "age": number}])
        for connection in connections:
            connection.close()
        self.assertEqual(self.count(), 12)

    def test_autocommit_and_isolation_levels(self):
        autocommit = self.engine.execution_options(isolation_level="AUTOCOMMIT")
        with autocommit.connect() as connection:
            connection.execute(sa.insert(Person), [{"name": "dan", "age": 1}])
        serializable = self.engine.execution_options(isolation_level="SERIALIZABLE")
        with serializable.connect() as connection:
            connection.execute(sa.insert(Person), [{"name": "eve", "age": 1}])
            connection.rollback()
        self.assertEqual(self.count(), 4)

    def test_a_transaction_is_undone_when_the_sandbox_rolls_back(self):
        with self.engine.begin() as connection:
            connection.execute(sa.insert(Person), [{"name": "dan", "age": 1}])
        self.sandbox("rollback", "try")
        self.assertEqual(self.count(), 3)


class Schemas(AlchemyCase):
    def test_reflection(self):
        metadata = sa.MetaData()
        metadata.reflect(self.engine, views=True)
        self.assertEqual(sorted(metadata.tables), ["adults", "notes", "people"])
        notes = metadata.tables["notes"]
        self.assertEqual([key.target_fullname for key in notes.foreign_keys], ["people.id"])
        inspector = sa.inspect(self.engine)
        self.assertEqual(inspector.get_columns("people")[3]["type"].enums, ["calm", "glad"])
        self.assertEqual([index["name"] for index in inspector.get_indexes("notes")], ["notes_of_person"])
        self.assertEqual(inspector.get_check_constraints("people")[0]["sqltext"], "age >= 0")
        self.assertEqual(inspector.get_table_comment("people"), {"text": "everybody; -- not a comment"})
        # The sandbox's own guard is in sight; nothing else is.
        schemas = [name for name in inspector.get_schema_names() if not name.startswith("sandboxer_guard_")]
        self.assertEqual(schemas, ["information_schema", "public"])

    def test_tables_are_made_and_dropped(self):
        metadata = new_tables()
        metadata.create_all(self.engine)
        metadata.create_all(self.engine)
        with self.engine.begin() as connection:
            connection.execute(metadata.tables["orders"].insert(), [{"size": "small"}, {"size": "large"}])
            connection.execute(metadata.tables["lines"].insert(), [{"order_id": 1}, {"order_id": 2}])
        self.assertEqual(self.count("lines"), 2)
        self.assert_outside_unchanged()
        metadata.drop_all(self.engine)
        self.assertFalse(sa.inspect(self.engine).has_table("orders"))

    def test_new_tables_are_committed_with_their_rows(self):
        metadata = new_tables()
        metadata.create_all(self.engine)
        with self.engine.begin() as connection:
            connection.execute(metadata.tables["orders"].insert(), [{"size": "small"}])
            connection.execute(metadata.tables["lines"].insert(), [{"order_id": 1}])
        self.engine.dispose()
        self.commit()
        self.assertEqual(self.rows_outside("SELECT o.size::text, l.order_id FROM orders o JOIN lines l ON true"), [("small", 1)])

    def test_a_table_of_production_is_not_dropped(self):
        with self.assertRaises(sa.exc.DBAPIError) as refused:
            Note.__table__.drop(self.engine)
        self.assertIn("drop table", str(refused.exception).lower())
        self.assertEqual(self.count("notes"), 2)


class AllowedSchemas(AlchemyCase):
    allowed_ddl = ["drop table", "alter table"]

    def test_a_table_of_production_is_dropped_where_that_is_allowed(self):
        with self.engine.begin() as connection:
            connection.execute(sa.text("ALTER TABLE people ADD COLUMN email text"))
        self.assertIn("email", [column["name"] for column in sa.inspect(self.engine).get_columns("people")])
        Note.__table__.drop(self.engine)
        self.assertFalse(sa.inspect(self.engine).has_table("notes"))
        # What was dropped is locked until the sandbox is done with.
        self.engine.dispose()
        self.sandbox("rollback", "try")


def new_tables():
    metadata = sa.MetaData()
    size = sa.Enum("small", "large", name="size")
    sa.Table("orders", metadata, sa.Column("id", sa.Integer, primary_key=True), sa.Column("size", size, index=True))
    order = sa.Column("order_id", sa.ForeignKey("orders.id"))
    sa.Table("lines", metadata, sa.Column("id", sa.Integer, primary_key=True), order)
    return metadata
