"""Who votes in PATE: under which names a ledger knows them, and what their ballots may hold."""

from __future__ import annotations

import json
import pickle
import secrets
from collections.abc import Callable, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
from scipy.sparse import issparse

from ..datasets import Images
from ..errors import InputError
from ..files import Draft
from ..release import PERSON, RECORD


class VoterNames:
    """What records are called, and what that makes of the voters' names in a ledger."""

    def __init__(
        self,
        ids: Sequence[Any] | None,
        groups: Sequence[Any] | None,
        electorate: str | None,
        *,
        key: Callable[[], bytes],
        seed: int,
    ) -> None:
        if electorate is not None and (not isinstance(electorate, str) or not electorate.strip()):
            raise InputError("electorate", "must be a name", electorate)
        self.ids, self.groups, self.electorate = ids, groups, electorate
        self._key, self.seed = key, seed
        self._nonce = secrets.token_hex(16)

    @cached_property
    def key(self) -> bytes:
        """The partition's key: asked for once, and only where there are parts."""
        return self._key()

    def protected(self, voters: str, *, known: bool) -> str:
        """Return whom the promise is to, and which change it covers.

        ``known`` says that the partition itself is given: by a seed, or because the promise is
        about these votes.
        """
        if voters == "neighbours":
            change = "replaced by any other; how many there are is public"
        elif not known:
            change = "replaced by any other, or one more or fewer"
        elif self.ids is None and self.groups is None:
            change = "other contents in the same row"
        else:
            change = "other contents under the same id, or one more or fewer"
        return f"{RECORD if self.groups is None else PERSON} ({change})"

    def keep(self, draft: Draft, records: tuple[Any, Any] | None) -> None:
        """Keep in a draft what the voters of a run that resumes it are called, too.

        ``records`` are private rows and labels. They are known again by a keyed digest, which tells
        nobody else of them: a record that came to another voter meanwhile would vote twice.
        """
        mark = None
        if records is not None:
            digest = blake2b(key=self.key, digest_size=16)
            parts: list[Any] = [*records, self.ids, self.groups]
            for part in parts:
                for piece in (part.data, part.indices, part.indptr) if issparse(part) else (part,):
                    if not isinstance(piece, Images):
                        digest.update(pickle.dumps(np.asarray(piece)))
            mark = digest.hexdigest()
        note = draft.read()
        if note is None:
            draft.note(json.dumps([self._nonce, mark]).encode())
            return
        self._nonce, known = json.loads(note)
        if known != mark:
            raise InputError("resume", "must be with the same private records, in the same order")

    def of(self, voters: str, count: int, persons: Sequence[Any] | None = None) -> list[str]:
        """Return one name a voter, which says under which partition and electorate it votes.

        A fit without the name of an electorate never goes on with an allowance: its records may be
        in other parts than those of an earlier fit, whose voters also had one.

        Parameters
        ----------
        voters
            "teachers" or "neighbours".
        count
            How many voters.
        persons
            (count,) of neighbours that may have several rows: whose voter each is, in the order of
            the ballots.
        """
        named = self.ids if self.groups is None else self.groups
        kinds = "rows" if named is None else sorted({type(name).__name__ for name in named})
        how = "groups" if self.groups is not None else "ids"
        nonce = self._nonce if self.electorate is None else f"named {self.electorate}"
        scheme = f"{voters} {count} {how} {kinds} {nonce}".encode()
        if voters == "teachers":
            mark = blake2b(scheme, key=self.key, digest_size=8).hexdigest()
            return [f"{mark}-{teacher}" for teacher in range(count)]
        if persons is not None:
            named = persons
        mark = blake2b(scheme, digest_size=8).hexdigest()
        return [f"{mark}-{name}" for name in (range(count) if named is None else named)]
