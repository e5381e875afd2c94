"""Verification: whether every entry is as it was written, and none is missing.

Takes no lock and writes nothing, so it may run while others write, and on read-only media.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from ..errors import LedgerError
from .chain import START, Anchor, Chain, Head
from .store import Store


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What :meth:`privote.Ledger.verify` found."""

    entries: int
    head: str
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """True if every entry is as it was written, and none is missing."""
        return not self.problems


def misplaced(store: Store, anchor: Anchor, head: Head) -> str | None:
    """Say what is wrong if the entries do not end where an anchor lets them; under the lock.

    They end where it says, or at what it announces. In a shared store others may have gone on who
    anchor elsewhere: there it is enough that what it says is among the entries.
    """
    known = anchor.read()
    if not known:
        return anchor.missing
    if head in known or (store.shared and _holds(store, known[0])):
        return None
    return anchor.rolled_back(head, known)


def against_anchor(store: Store, anchor: Anchor, first: list[Head]) -> str | None:
    """Say what is wrong with the end of the chain, also while others write.

    An entry is announced in the anchor before it is committed and settled there after. So what the
    anchor said *first*, before anything else was read, must be among the entries, and these must
    end where it said so, or where it says so now; in a shared store they may go on beyond.
    """
    if not first:
        return anchor.missing
    head = store.head()
    if not _holds(store, first[0]):
        return anchor.rolled_back(head, first)
    if head in first or store.shared or any(later[0] >= head[0] for later in anchor.read()):
        return None
    return anchor.rolled_back(head, first)


def _holds(store: Store, head: Head) -> bool:
    number = head[0]
    return number == 0 or [(row.number, row.digest) for row in store.rows(number - 1, number)] == [
        head
    ]


def verify(store: Store, chain: Chain, anchor: Anchor | None) -> Verification:
    """Find any entry that was changed, removed, reordered, inserted or rolled back."""
    previous, count, problems = START, 0, list[str]()
    try:
        first = [] if anchor is None else anchor.read()
        problems += store.problems()
        for row in store.rows():
            count += 1
            if row.number != count:
                problems.append(f"entry {count} is missing")
                break
            if row.digest != chain.digest(previous, row.number, row.at, row.body):
                problems.append(f"entry {row.number} was edited")
                break
            seal = json.loads(row.body).get("seal")
            if (row.sealed is None) != (seal is None) or (
                row.sealed is not None and chain.seal(row.sealed) != seal
            ):
                problems.append(f"the sealed part of entry {row.number} was edited")
            previous = row.digest
        wrong = None
        if anchor is not None and not problems:
            wrong = against_anchor(store, anchor, first)
        problems += [wrong] if wrong else []
    except LedgerError as error:
        problems.append(str(error))
    return Verification(entries=count, head=previous, problems=tuple(problems))
