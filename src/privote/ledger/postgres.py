"""A ledger in PostgreSQL, for sites that run one: the same contract as the SQLite file.

Needs the extra ``[postgres]``. The key and the anchor stay on this machine, outside the database.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import InputError, LedgerError, missing_extra
from .chain import START, Head
from .store import FORMAT, Row, SQLiteStore, row_of

_TABLES = (
    "CREATE TABLE entries (number BIGINT PRIMARY KEY CHECK (number > 0), "
    "at TEXT NOT NULL, body TEXT NOT NULL, digest TEXT NOT NULL)",
    "CREATE TABLE sealed (number BIGINT PRIMARY KEY REFERENCES entries (number), "
    "body TEXT NOT NULL)",
    "CREATE FUNCTION stay() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION 'a ledger is append-only'; END $$",
    "CREATE TRIGGER entries_stay BEFORE UPDATE OR DELETE ON entries "
    "FOR EACH ROW EXECUTE FUNCTION stay()",
    "CREATE TRIGGER entries_remain BEFORE TRUNCATE ON entries "
    "FOR EACH STATEMENT EXECUTE FUNCTION stay()",
)
# What belongs to the two tables, as the catalogue has it: triggers that are on, with their kind
# (before each row an update or delete; before a truncation), and columns; no rule, no policy, no
# table that inherits.
_BELONGS = {
    ("trigger", "entries", "entries_stay 27 O stay"),
    ("trigger", "entries", "entries_remain 34 O stay"),
    ("function", "stay", "BEGIN RAISE EXCEPTION 'a ledger is append-only'; END"),
    *(("column", "entries", f"{name} text NO") for name in ("at", "body", "digest")),
    ("column", "entries", "number bigint NO"),
    ("column", "sealed", "number bigint NO"),
    ("column", "sealed", "body text NO"),
    ("table", "entries", "r false"),
    ("table", "sealed", "r false"),
}
_CATALOGUE = """
SELECT 'trigger', c.relname, concat_ws(' ', t.tgname, t.tgtype, t.tgenabled, p.proname)
  FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_proc p ON p.oid = t.tgfoid
  WHERE t.tgrelid IN ('entries'::regclass, 'sealed'::regclass) AND NOT t.tgisinternal
UNION ALL SELECT 'function', proname, btrim(prosrc) FROM pg_proc
  WHERE oid IN (SELECT tgfoid FROM pg_trigger WHERE NOT tgisinternal
    AND tgrelid IN ('entries'::regclass, 'sealed'::regclass))
UNION ALL SELECT 'rule', tablename, rulename FROM pg_rules WHERE tablename IN ('entries', 'sealed')
UNION ALL SELECT 'policy', tablename, policyname FROM pg_policies
  WHERE tablename IN ('entries', 'sealed')
UNION ALL SELECT 'heir', inhparent::regclass::text, inhrelid::regclass::text FROM pg_inherits
  WHERE inhparent IN ('entries'::regclass, 'sealed'::regclass)
UNION ALL SELECT 'column', table_name, concat_ws(' ', column_name, data_type, is_nullable,
    column_default, generation_expression)
  FROM information_schema.columns WHERE table_name IN ('entries', 'sealed')
    AND table_schema = current_schema()
UNION ALL SELECT 'table', relname, concat_ws(' ', relkind, relrowsecurity::text) FROM pg_class
  WHERE oid IN ('entries'::regclass, 'sealed'::regclass)
"""
# What is charged is on disk when the commit returns, also where a role's default says otherwise.
_DURABLE = (
    "SELECT set_config('synchronous_commit', 'on', true) "
    "WHERE current_setting('synchronous_commit') = 'off'"
)
_LOCK = 0x70726976  # of this application, taken for the length of a transaction
_PASSWORD = 8  # characters of the shortest


class PostgresStore:
    """Entries in a PostgreSQL database, through SQLAlchemy Core."""

    def __init__(self, address: str, *, create: bool = True) -> None:
        try:
            import psycopg  # noqa: F401 (SQLAlchemy loads it by name)
            import sqlalchemy
        except ImportError:
            raise missing_extra("postgres", "a ledger in PostgreSQL") from None
        self._text = sqlalchemy.text
        self._error = sqlalchemy.exc.SQLAlchemyError
        self._secrets: tuple[str, ...] = ()
        try:
            url = sqlalchemy.make_url(address).set(drivername="postgresql+psycopg")
        except (self._error, ValueError):
            # What was given may hold a password, and the error repeats it.
            raise InputError("ledger", "must be a postgresql:// address that can be read") from None
        self._secrets = tuple(
            text for text in (url.password, url.query.get("password")) if isinstance(text, str)
        )
        # A letter or two can be guessed, and shows wherever `_say` crosses it out.
        if any(0 < len(secret) < _PASSWORD for secret in self._secrets):
            raise InputError(
                f"the password in the ledger's address must have at least {_PASSWORD} characters, "
                "and this one has fewer"
            )
        # At other levels what is read inside was seen before the wait for the lock.
        self._engine = sqlalchemy.create_engine(url, isolation_level="READ COMMITTED")
        try:
            self._connection = self._engine.connect()
            self._make(create)
        except self._error as error:
            self._engine.dispose()
            raise LedgerError(f"the ledger's database cannot be used: {self._say(error)}") from None
        except LedgerError:
            self.close()
            raise

    def _say(self, error: Exception) -> str:
        """Return an error's first line without a password."""
        said = str(error).splitlines()[0]
        for secret in self._secrets:
            said = said.replace(secret, "***") if secret else said
        return said

    def _run(self, statement: str, **values: Any) -> Any:
        return self._connection.execute(self._text(statement), values)

    def _make(self, create: bool) -> None:
        """Make the tables of a new ledger; refuse one of another format."""
        with self.transaction():
            if self._run("SELECT to_regclass('meta')").scalar() is None:
                if not create:
                    raise LedgerError("the database holds no ledger")
                self._run("CREATE TABLE meta (version BIGINT NOT NULL)")
            found = int(self._run("SELECT coalesce(max(version), 0) FROM meta").scalar())
            FORMAT.check(found)
            if found == 0:
                for statement in _TABLES:
                    self._run(statement)
                self._run("INSERT INTO meta VALUES (:version)", version=FORMAT.number)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Take the one write lock; what is read inside stays true until the commit."""
        try:
            if self._connection.in_transaction():
                self._connection.rollback()  # end the read that was open, to see what is new
            self._connection.begin()
            self._run("SELECT pg_advisory_xact_lock(:lock)", lock=_LOCK)
            self._run(_DURABLE)
        except self._error as error:
            raise LedgerError(f"the ledger cannot be written: {self._say(error)}") from None
        try:
            yield
            self._connection.commit()
        except self._error as error:
            self._undo()
            raise LedgerError(f"the ledger cannot be written: {self._say(error)}") from None
        except BaseException:
            self._undo()
            raise

    def _undo(self) -> None:
        if not self._connection.invalidated and self._connection.in_transaction():
            self._connection.rollback()

    def append(self, row: Row) -> None:
        """Add a row; only inside a transaction."""
        if not self._connection.in_transaction():
            raise LedgerError("append outside a transaction")
        self._run(
            "INSERT INTO entries VALUES (:number, :at, :body, :digest)",
            number=row.number,
            at=row.at,
            body=row.body,
            digest=row.digest,
        )
        if row.sealed is not None:
            self._run(
                "INSERT INTO sealed VALUES (:number, :body)", number=row.number, body=row.sealed
            )

    def rows(self, after: int = 0, upto: int | None = None) -> list[Row]:
        """Return the rows after a number, up to another, in order, sealed parts included."""
        found = self._read(
            "SELECT e.number, e.at, e.body, e.digest, s.body FROM entries e "
            "LEFT JOIN sealed s USING (number) WHERE e.number > :after AND e.number <= :upto "
            "ORDER BY e.number",
            after=after,
            upto=2**63 - 1 if upto is None else upto,
        )
        return [row_of(values) for values in found]

    def head(self) -> Head:
        """Return number and digest of the last row; 0 and START if there is none."""
        found = self._read("SELECT number, digest FROM entries ORDER BY number DESC LIMIT 1")
        return (int(found[0][0]), str(found[0][1])) if found else (0, START)

    def problems(self) -> list[str]:
        """Return what does not belong to the tables, or is gone, and lost sealed rows."""
        orphans = self._read(
            "SELECT number FROM sealed WHERE number NOT IN (SELECT number FROM entries)"
        )
        there = {(str(kind), str(of), str(what)) for kind, of, what in self._read(_CATALOGUE)}
        return [
            *(f"{k} {what!r} of {of!r} does not belong there" for k, of, what in there - _BELONGS),
            *(f"{k} {what!r} of {of!r} is gone" for k, of, what in _BELONGS - there),
            *(f"sealed row {number} belongs to no entry" for (number,) in orphans),
        ]

    def _read(self, statement: str, **values: Any) -> list[Any]:
        open_already = self._connection.in_transaction()
        try:
            found = list(self._run(statement, **values).fetchall())
            if not open_already:
                self._connection.rollback()  # a read must not hold an old view
        except self._error as error:
            raise LedgerError(f"the ledger cannot be read: {self._say(error)}") from None
        return found

    def backup(self, path: Path) -> None:
        """Write the entries to a SQLite file, consistent while the ledger is in use."""
        copied = SQLiteStore(path)
        with copied.transaction():
            for row in self.rows():
                copied.append(row)
        copied.close()

    def close(self) -> None:
        """Let go of the database."""
        self._connection.close()
        self._engine.dispose()
