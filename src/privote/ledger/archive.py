"""A ledger in one file: entries, key and anchor, to be put back where all three are lost.

The archive is a zip of four members that are stored as they are, so none is larger than the file;
nothing is ever unpacked by a name that stands in it. Putting it back writes key, anchor and entries
in this order. Until the entries are there nobody can charge anything, so a crash leaves a ledger or
none, and the same can be done again.
"""

from __future__ import annotations

import datetime
import fcntl
import json
import os
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from .._version import check_written, written
from ..errors import InputError, LedgerError, PrivoteWarning
from ..files import check_file
from .chain import KEY_VARIABLE, Anchor, Chain, verify
from .postgres import PostgresStore
from .store import START, Row, SQLiteStore

if TYPE_CHECKING:
    from .book import Location

_FORMAT = 1
_MANIFEST, _ENTRIES, _KEY, _ANCHOR = "manifest.json", "ledger.db", "ledger.db.key", "ledger.db.head"
_FEW = 1 << 16  # bytes of every member but the entries
_SECRET = (
    "holds the ledger's key and what is sealed: whoever has this file can read and forge the ledger"
)


def write(path: Path, rows: Sequence[Row], chain: Chain) -> bool:
    """Write entries, key and anchor to a new file, for its owner only; say if the key is inside.

    It is not where the environment has it: then it is kept elsewhere on purpose.
    """
    own_key = Chain.from_environment() is None
    with closing(SQLiteStore.of(rows)) as copy:
        check(copy, chain)
        head, entries = copy.head(), copy.packed()
    at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    manifest = {**written(_FORMAT), "at": at, "entries": head[0], "head": head[1]}
    manifest["note"] = _SECRET if own_key else f"the key is not inside: {KEY_VARIABLE} has it"
    members = {
        _MANIFEST: json.dumps(manifest, indent=2).encode(),
        _ENTRIES: entries,
        _ANCHOR: Anchor(Path(_ANCHOR), chain).text(head, backup=at),
    }
    if own_key:
        members[_KEY] = chain.text
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(file, "wb") as stream:
            with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
                for name, content in members.items():
                    archive.writestr(name, content)
            stream.flush()
            os.fsync(stream.fileno())
    except FileExistsError:
        raise InputError(f"backup {str(path)!r} exists already") from None
    except OSError as error:
        path.unlink(missing_ok=True)
        raise LedgerError(f"backup {str(path)!r} cannot be written: {error}") from None
    return own_key


def check(store: SQLiteStore, chain: Chain) -> None:
    """Raise unless the entries are whole and under this key."""
    problems = store.problems() or verify(store, chain, None).problems
    if problems:
        raise LedgerError(f"its entries are broken, or of another key: {'; '.join(problems)}")


@dataclass(frozen=True)
class Archive:
    """What an archive holds, checked: entries that end where its anchor says, under its key."""

    rows: Sequence[Row]
    chain: Chain
    own_key: bool
    at: str

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Archive:
        """Read what :func:`write` wrote. Nothing in it is run or unpacked."""
        file = check_file(path, "backup")
        try:
            members = _members(file)
        except InputError:
            raise
        except Exception as error:  # whatever a damaged or hostile file leads to
            why = f"{str(path)!r} was not written by `privote ledger backup`: {error!s:.200}"
            raise InputError("backup", why) from None
        own_key, chain = _KEY in members, Chain.from_environment()
        if own_key:
            inside = Chain.parse(members[_KEY], _KEY)
            if chain is not None and chain.text != inside.text:
                raise LedgerError(f"{KEY_VARIABLE} is another key than the archive's")
            chain = inside
            if os.name == "posix" and file.stat().st_mode & 0o077:
                warnings.warn(
                    f"{file.name!r} {_SECRET}, and others can: chmod 600 it",
                    PrivoteWarning,
                    stacklevel=1,
                )
        if chain is None:
            raise LedgerError(f"the archive holds no key: set {KEY_VARIABLE}")
        with closing(SQLiteStore.unpacked(members[_ENTRIES])) as copy:
            check(copy, chain)
            rows, head = copy.rows(), copy.head()
        record, known = Anchor(Path(_ANCHOR), chain).parse(members[_ANCHOR])
        if known != [head]:
            raise LedgerError(f"in the archive {Anchor.rolled_back(head, known)}")
        return cls(rows, chain, own_key, str(record["backup"]))

    def put(self, place: Location, rows: Sequence[Row]) -> None:
        """Put a ledger with these rows, which go on from the archive's, where none is."""
        if not place.file.parent.is_dir():
            raise InputError("ledger", f"needs its folder {str(place.file.parent)!r}")
        if place.address is not None:
            self._check_place(place)
            with closing(PostgresStore(place.address)) as store, store.transaction():
                if store.head() != (0, START):
                    raise LedgerError(f"{place.shown!r} holds entries: nothing is replaced")
                self._put_beside(place, rows)
                for row in rows:
                    store.append(row)
            return
        draft = place.file.with_name(f".{place.file.name}.restoring")
        with _locked(draft) as stream, closing(SQLiteStore.of(rows)) as copy:
            self._check_place(place)  # before it is emptied: whoever was faster may have moved it
            stream.truncate(0)
            stream.write(copy.packed())
            stream.flush()
            os.fsync(stream.fileno())
            self._put_beside(place, rows)
            os.replace(draft, place.file)
            folder = os.open(place.file.parent, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)

    def _put_beside(self, place: Location, rows: Sequence[Row]) -> None:
        """Put key and anchor; until the entries are there, these say that a ledger is missing."""
        if self.own_key and not place.key.exists():
            self.chain.keep(place.key)
        *_, last, added = [(0, START), *((row.number, row.digest) for row in rows)]
        Anchor(place.head, self.chain).write(last, added, restoring=True)

    def _check_place(self, place: Location) -> None:
        """Refuse a place where anything would be replaced, or that knows of later charges."""
        if place.key.exists() and Chain.read(place.key).text != self.chain.text:
            raise LedgerError(f"{place.key.name!r} is the key of another ledger: move it away")
        anchor = Anchor(place.head, self.chain)
        known = anchor.read()[: 1 if anchor.restoring else 2]  # killed, it had announced its own
        heads = [(0, START), *((row.number, row.digest) for row in self.rows)]
        if known and max(known)[0] > heads[-1][0]:
            raise LedgerError(
                f"the anchor {place.head.name!r} knows of entry {max(known)[0]}, and the archive "
                f"ends at entry {heads[-1][0]}: charges would be forgotten. Restore a later "
                "backup; if there is none, consider the budget of every data set used up"
            )
        if known and known[0] not in heads:
            raise LedgerError(
                f"the anchor {place.head.name!r} knows of entry {known[0][0]}, and the archive has "
                "another in its place: it is of another ledger"
            )
        if place.address is None:
            for end in ("", "-wal", "-shm", "-journal"):
                file = place.file.with_name(place.file.name + end)
                if os.path.lexists(file):
                    raise LedgerError(f"{str(file)!r} is there, and is not replaced: move it away")


def _members(path: Path) -> dict[str, bytes]:
    """Return what is in an archive, by name; refuse any member that does not belong there."""
    with zipfile.ZipFile(path) as file:
        listed = file.infolist()
        names = sorted(info.filename for info in listed)
        if names.count(_MANIFEST) != 1:
            raise ValueError("it has no manifest")

        def content(name: str) -> bytes:
            info = file.getinfo(name)
            most = path.stat().st_size if name == _ENTRIES else _FEW
            if info.compress_type != zipfile.ZIP_STORED or info.file_size > most:
                raise ValueError(f"{name!r} is not stored as it is, or larger than it can be")
            return file.read(info)

        check_written(f"backup {path.name!r}", dict(json.loads(content(_MANIFEST))), _FORMAT)
        whole = [_ENTRIES, _ANCHOR, _KEY, _MANIFEST]
        if names not in (sorted(whole), sorted({*whole} - {_KEY})):
            raise ValueError(f"it holds other files than a backup does: {names!r:.100}")
        return {name: content(name) for name in names}


@contextmanager
def _locked(draft: Path) -> Iterator[IO[bytes]]:
    """Yield a file of one's own that no living process writes; what a dead one left is reused."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        with os.fdopen(os.open(draft, flags, 0o600), "r+b") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.fchmod(stream.fileno(), 0o600)
            try:
                yield stream
            except BaseException:
                draft.unlink(missing_ok=True)
                raise
    except OSError as error:
        why = "another process does that" if isinstance(error, BlockingIOError) else error
        raise LedgerError(f"the ledger cannot be put back: {why}") from None
