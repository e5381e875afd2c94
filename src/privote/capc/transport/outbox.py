"""Frames on their way to a peer: a bounded queue that gRPC empties at the peer's pace."""

from __future__ import annotations

import threading
from collections import deque

from privote.errors import PeerError


class Outbox:
    """An iterator of frames for gRPC; whoever puts waits while too much is on its way.

    Parameters
    ----------
    most_bytes
        How much may wait in memory.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most, self._held = most_bytes, 0
        self._frames: deque[bytes] = deque()
        self._closed = False
        self._changed = threading.Condition()

    def put(self, frame: bytes, *, wait: float | None = None) -> None:
        """Add a frame; waits ``wait`` seconds (None: as long as it takes) for room.

        Raises
        ------
        PeerError
            If the stream has ended, or the peer took nothing for that long.
        """
        with self._changed:
            room = self._changed.wait_for(
                lambda: self._closed or not self._frames or self._held + len(frame) <= self._most,
                timeout=wait,
            )
            if self._closed:
                raise PeerError("the stream to the peer has ended")
            if not room:
                raise PeerError(f"the peer took nothing for {wait:g} s")
            self._frames.append(frame)
            self._held += len(frame)
            self._changed.notify_all()

    def close(self) -> None:
        """Let what is waiting go out, and nothing after it."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def drop(self) -> None:
        """End at once: what is waiting goes nowhere."""
        with self._changed:
            self._closed = True
            self._frames.clear()
            self._held = 0
            self._changed.notify_all()

    @property
    def closed(self) -> bool:
        """True once nothing more can be put."""
        return self._closed

    @property
    def waiting(self) -> bool:
        """True while something has not gone out."""
        return bool(self._frames)

    def __iter__(self) -> Outbox:
        return self

    def __next__(self) -> bytes:
        with self._changed:
            self._changed.wait_for(lambda: self._frames or self._closed)
            if not self._frames:
                raise StopIteration
            frame = self._frames.popleft()
            self._held -= len(frame)
            self._changed.notify_all()
            return frame
