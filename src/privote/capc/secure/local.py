"""A link between two threads of one process, for tests and runs on one machine."""

from __future__ import annotations

import queue
import shutil
import threading
from pathlib import Path

from ...errors import PeerError
from .base import OTHER, OWN


class LocalLink:
    """A link between two threads of one process; the sockets are symbolic links.

    Make both ends with :meth:`pair`.
    """

    def __init__(
        self,
        folder: Path,
        outbox: queue.Queue[bytes | None],
        inbox: queue.Queue[bytes | None],
        gone: threading.Event,
        patience: float,
    ) -> None:
        self.folder, self._gone = folder, gone
        self._outbox, self._inbox, self._patience = outbox, inbox, patience

    @classmethod
    def pair(cls, folder: str | Path, *, patience: float = 600.0) -> tuple[LocalLink, LocalLink]:
        """Return the querier's and the peer's end, with folders of their own inside ``folder``.

        An exchange waits ``patience`` seconds for the other side.
        """
        places = [Path(folder) / name for name in ("querier", "peer")]
        for place in places:
            place.mkdir(mode=0o700)
        for mine, other in (places, places[::-1]):
            (mine / OTHER).symlink_to((other / OWN).resolve())
        there: queue.Queue[bytes | None] = queue.Queue()
        back: queue.Queue[bytes | None] = queue.Queue()
        gone = threading.Event()
        return (
            cls(places[0], there, back, gone, patience),
            cls(places[1], back, there, gone, patience),
        )

    def exchange(self, data: bytes) -> bytes:
        """Send ``data``, return the other side's; PeerError if it closed or stays silent."""
        self._outbox.put(data)
        try:
            got = self._inbox.get(timeout=self._patience)
        except queue.Empty:
            raise PeerError(f"the peer sent nothing within {self._patience:g} s") from None
        if got is None:
            self._inbox.put(None)
            raise PeerError("the peer closed the link")
        return got

    def close(self) -> None:
        """End both directions and remove this end's folder."""
        self._gone.set()
        self._outbox.put(None)
        self._inbox.put(None)
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def closed(self) -> bool:
        """Whether either end was closed."""
        return self._gone.is_set()
