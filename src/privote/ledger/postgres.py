"""A ledger in PostgreSQL, for several guardians: the same contract as the SQLite file.

Needs the extra ``[postgres]``. The key and the anchor stay outside the database, with whoever uses
it. A line to a server can break at any moment, also while a commit is on its way: then nobody here
knows whether it happened (:class:`UnsettledError`), and the ledger connects again and looks.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from ..errors import InputError, LedgerError, StorageError, missing_extra
from .store import FORMAT, LostError, Store, UnsettledError, refuse_format

_TABLES = (
    "CREATE TABLE meta (version BIGINT NOT NULL)",
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
# What belongs to the tables, as the catalogue has it: triggers that are on, with their kind (before
# each row an update or delete; before a truncation) and neither condition nor columns; keys;
# columns; tables that survive a crash; no rule, no policy, no table that inherits, and no sessions
# in which triggers and keys do not hold.
_STAY = "O stay BEGIN RAISE EXCEPTION 'a ledger is append-only'; END"
_BELONGS = {
    f"trigger entries entries_stay 27 {_STAY}",
    f"trigger entries entries_remain 34 {_STAY}",
    "key entries PRIMARY KEY (number)",
    "key entries CHECK ((number > 0))",
    "key sealed PRIMARY KEY (number)",
    "key sealed FOREIGN KEY (number) REFERENCES entries(number)",
    *(f"column entries {name} t f" for name in ("number bigint", "at text", "body text")),
    *(f"column {name} t f" for name in ("entries digest text", "sealed number bigint")),
    *(f"column {name} t f" for name in ("sealed body text", "meta version bigint")),
    *(f"table {name} r f p" for name in ("entries", "sealed", "meta")),
    "setting session_replication_role=origin",
}
_CATALOGUE = """
WITH ours AS (SELECT * FROM pg_class
  WHERE oid IN ('entries'::regclass, 'sealed'::regclass, 'meta'::regclass))
SELECT concat_ws(' ', 'trigger', relname, tgname, tgtype, tgenabled, proname, btrim(prosrc),
    CASE WHEN tgqual IS NOT NULL THEN 'WHEN' END, 'OF ' || nullif(tgattr::text, ''))
  FROM ours JOIN pg_trigger ON tgrelid = ours.oid JOIN pg_proc ON pg_proc.oid = tgfoid
  WHERE NOT tgisinternal OR tgenabled <> 'O'
UNION ALL SELECT concat_ws(' ', 'key', relname, pg_get_constraintdef(pg_constraint.oid))
  FROM ours JOIN pg_constraint ON conrelid = ours.oid WHERE contype <> 'n'
UNION ALL SELECT concat_ws(' ', 'column', relname, attname, format_type(atttypid, atttypmod),
    attnotnull, atthasdef)
  FROM ours JOIN pg_attribute ON attrelid = ours.oid WHERE attnum > 0 AND NOT attisdropped
UNION ALL SELECT concat_ws(' ', 'table', relname, relkind, relrowsecurity, relpersistence) FROM ours
UNION ALL SELECT concat_ws(' ', 'rule', rulename) FROM ours JOIN pg_rewrite ON ev_class = ours.oid
UNION ALL SELECT concat_ws(' ', 'policy', polname) FROM ours JOIN pg_policy ON polrelid = ours.oid
UNION ALL SELECT concat_ws(' ', 'heir', inhrelid) FROM ours JOIN pg_inherits ON inhparent = ours.oid
UNION ALL SELECT 'setting session_replication_role=' || current_setting('session_replication_role')
UNION ALL SELECT concat_ws(' ', 'setting', coalesce(setrole::regrole::text, 'all'), chosen)
  FROM pg_db_role_setting CROSS JOIN unnest(setconfig) chosen
  WHERE chosen LIKE 'session_replication_role=%' AND chosen NOT LIKE '%=origin'
    AND setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
"""
# Taken by every writer for the length of its transaction. At other levels of isolation what is read
# inside was seen before the wait for the lock. And what is charged is on disk, and with the standby
# that must have it, when the commit returns, also where a role's default says otherwise; and where
# somebody ends the wait for that standby, the warning is heard.
_BEGIN = """
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
SET LOCAL lock_timeout = '{patience}s';
SET LOCAL client_min_messages = warning;
SELECT pg_advisory_xact_lock(1886546294);
SELECT set_config('synchronous_commit', 'on', true)
  WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')
"""
# A commit that wrote nothing waits for no standby; this one waits for all that was written before.
_WAIT_TOO = "SELECT pg_logical_emit_message(true, 'privote', '')"
_PATIENCE = 60  # seconds to wait for others who write, and for a server that comes back
# How both ends learn that the other is gone without a word. The server's matters most: its session
# holds the lock. Seconds; what an address says itself goes first.
_LINE = {"connect_timeout": 10, "keepalives_idle": 10, "keepalives_interval": 5}
_LINE |= {"keepalives_count": 3, "tcp_user_timeout": 30_000}
_SERVERS_LINE = "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; " + (
    "SET tcp_keepalives_count = 3; SET tcp_user_timeout = 30000"
)
_WRITER = (
    "SELECT body::json->>'version' FROM entries WHERE body::json->>'version' IS NOT NULL "
    "ORDER BY number DESC LIMIT 1"
)
_SETTINGS = "SELECT current_setting('fsync'), current_setting('synchronous_standby_names')"


class PostgresStore(Store):
    """Entries in a PostgreSQL database.

    Parameters
    ----------
    address
        As libpq has it: ``postgresql://user@host/database``, also with several hosts, of which the
        one that takes writes is used.
    create
        Make the tables if there are none.
    readonly
        Take no lock and ask nothing of the server's durability: a standby will do.
    patience
        How many seconds to wait for others who write, and for a server that comes back.
    """

    shared = True

    def __init__(
        self,
        address: str,
        *,
        create: bool = True,
        readonly: bool = False,
        patience: int = _PATIENCE,
    ) -> None:
        try:
            import psycopg
        except ImportError:
            raise missing_extra("postgres", "a ledger in PostgreSQL") from None
        self._psycopg, self._error = psycopg, psycopg.Error
        self._readonly, self._patience = readonly, patience
        try:
            plain = re.sub(r"^postgres(ql)?(\+\w+)?:", "postgresql:", address, flags=re.IGNORECASE)
            facts = psycopg.conninfo.conninfo_to_dict(plain)
        except psycopg.Error:
            # The address may hold a password, and the error repeats it.
            raise InputError("ledger", "must be a valid postgresql:// address") from None
        if "@" in str(facts.get("host") or ""):  # which every error would repeat
            raise InputError("ledger", "must have %40 for an @ in a password")
        self._secret = str(facts.get("password") or "")
        role = {} if readonly else {"target_session_attrs": "read-write"}
        self._address = {**_LINE, **role, **facts}
        self._warned: list[str] = []
        self._unsettled = False
        self._connection: Any = None
        try:
            self._connect()
            self._make(create)
        except BaseException as error:
            if self._connection is not None:
                self.close()
            if isinstance(error, self._error):
                why = f"the ledger's database cannot be used: {self._say(error)}"
                raise StorageError(why) from None
            raise

    def _say(self, error: Exception) -> str:
        """Return an error's first line without a password."""
        line = (str(error).splitlines() or [""])[0]
        return type(error).__name__ if not line or (self._secret and self._secret in line) else line

    # -- the connection ----------------------------------------------------------------------------

    def _connect(self) -> None:
        """Connect, and refuse a server that may forget what it says is committed."""
        # Nothing is prepared: behind a pooler the next statement may meet another session.
        self._connection = self._psycopg.connect(
            **self._address, autocommit=True, prepare_threshold=None
        )
        self._connection.add_notice_handler(self._on_notice)
        if self._readonly:
            return
        self._execute(_SERVERS_LINE)
        fsync, standbys = self._execute(_SETTINGS).fetchone()
        if fsync != "on":
            raise LedgerError(
                "the ledger's server runs with fsync off, so a power failure could lose charges. "
                "Set fsync = on"
            )
        # Where the address, the environment or a service names several, any of them may answer.
        names, reached = ("host", "hostaddr"), self._connection.info.get_parameters()
        hosts = [self._address.get(n) or os.environ.get(f"PG{n.upper()}") for n in names]
        if not standbys and any("," in str(host) for host in [*hosts, *map(reached.get, names)]):
            raise LedgerError(
                "the ledger's address names several servers, and the active one does not wait for "
                "a standby: a failover could lose charges. Set synchronous_standby_names there, or "
                "name one server"
            )

    def _on_notice(self, notice: Any) -> None:
        if notice.severity_nonlocalized == "WARNING":
            self._warned.append(str(notice.message_primary))

    def reconnect(self) -> None:
        """Connect anew after the line broke, for as long as patience lasts."""
        end = time.monotonic() + self._patience
        while True:
            self._connection.close()
            try:
                self._connect()
                return
            except self._error as error:
                if time.monotonic() > end:
                    raise LostError(f"the server does not answer: {self._say(error)}") from None
                time.sleep(0.2)

    def _execute(self, statement: str, *values: Any) -> Any:
        return self._connection.execute(statement.replace("?", "%s"), values or None)

    def _first(self, statement: str, *values: Any) -> Any:
        """Run what a unit of work begins with; if the line was found broken, on a new one."""
        try:
            return self._execute(statement, *values)
        except self._psycopg.OperationalError:
            if not self._connection.closed:
                raise
        self.reconnect()
        return self._execute(statement, *values)

    @property
    def _inside(self) -> bool:
        line, idle = self._connection, self._psycopg.pq.TransactionStatus.IDLE
        return bool(not line.closed and line.info.transaction_status != idle)

    def _make(self, create: bool) -> None:
        """Make the tables of a new ledger; refuse one of another format."""
        with nullcontext() if self._readonly else self.transaction():
            if self._execute("SELECT to_regclass('meta')").fetchone()[0] is None:
                if not create or self._readonly:
                    raise LedgerError("the database contains no ledger")
                for statement in _TABLES:
                    self._execute(statement)
                self._execute("INSERT INTO meta VALUES (%s)", FORMAT)
            number = int(self._execute("SELECT coalesce(max(version), 0) FROM meta").fetchone()[0])
            if number != FORMAT:
                refuse_format(number, lambda: self._execute(_WRITER).fetchone()[0])

    # -- the contract ------------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Take the one write lock; what is read inside stays true until the commit."""
        try:
            if self._inside:
                self._execute("ROLLBACK")
            self._first(_BEGIN.format(patience=self._patience))
            if self._unsettled:
                # Who looks what became of a commit may find it here and not yet with the standby.
                self._execute(_WAIT_TOO)
        except self._error as error:
            raise self._failed("written", error) from None
        try:
            yield
        except self._error as error:
            raise self._failed("written", error) from None
        except BaseException:
            self._undo()
            raise
        self._commit()

    def _commit(self) -> None:
        self._warned.clear()
        try:
            done = self._execute("COMMIT").statusmessage
        except self._error as error:
            if self._connection.closed:  # the answer was lost, and perhaps the question
                self._unsettled = True
                raise UnsettledError(self._say(error)) from None
            raise self._failed("written", error) from None
        except BaseException:  # an interrupt while the answer was on its way
            self._connection.close()
            raise
        if done != "COMMIT":  # what a transaction that had failed is told
            raise LedgerError("the ledger cannot be written: the server rolled back")
        if self._warned:  # above all that somebody ended the wait for the standby
            raise LedgerError(
                f"the charge is written, but the server warns: {self._warned[0]}. Nothing is "
                "released"
            )
        self._unsettled = False

    def _failed(self, what: str, error: Exception) -> LedgerError:
        kind = LostError if self._connection.closed else LedgerError
        if kind is LedgerError and isinstance(error, self._psycopg.OperationalError):
            kind = StorageError  # the lock is taken for too long, the disk is full
        self._undo()
        return kind(f"the ledger cannot be {what}: {self._say(error)}")

    def _undo(self) -> None:
        """End the transaction; if there is doubt, with the connection."""
        try:
            if self._inside:
                self._execute("ROLLBACK")
        except BaseException:
            self._connection.close()

    def problems(self) -> list[str]:
        """Return what does not belong to the tables, or is gone, and lost sealed rows."""
        present = {str(text) for (text,) in self.run(_CATALOGUE)}
        return [
            *(f"{text!r} does not belong there" for text in present - _BELONGS),
            *(f"{text!r} is gone" for text in _BELONGS - present),
            *self.orphans(),
        ]

    def run(self, statement: str, *values: Any) -> list[Any]:
        """Run one statement, and return all its rows."""
        try:
            # Inside a transaction a new line would be outside of it.
            cursor = (self._execute if self._inside else self._first)(statement, *values)
            return list(cursor.fetchall()) if cursor.description else []
        except self._error as error:
            raise self._failed("read or written", error) from None

    def close(self) -> None:
        """Let go of the database."""
        self._connection.close()
