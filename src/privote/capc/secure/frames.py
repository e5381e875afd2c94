"""Messages between an engine's process and the one that started it: JSON and int64 arrays."""

from __future__ import annotations

import json
import select
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]

_HEAD = struct.Struct("<IQ")
_MOST_HEAD, _MOST_BODY = 1 << 26, 1 << 34


class Ended(Exception):  # noqa: N818 - it is an event, not a fault
    """The other end of the socket is gone."""


@dataclass(frozen=True)
class Frame:
    """One message: what it is, what goes with it, and arrays by name."""

    kind: str
    facts: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, IntArray] = field(default_factory=dict)


def send(channel: socket.socket, frame: Frame) -> None:
    """Send one message."""
    places = [[name, list(array.shape)] for name, array in frame.arrays.items()]
    head = json.dumps([frame.kind, frame.facts, places]).encode()
    body = b"".join(np.ascontiguousarray(one, "<i8").tobytes() for one in frame.arrays.values())
    try:
        channel.sendall(_HEAD.pack(len(head), len(body)) + head)
        channel.sendall(body)
    except OSError as error:
        raise Ended from error


def receive(channel: socket.socket) -> Frame:
    """Return the next message; Ended if there is none."""
    head_size, body_size = _HEAD.unpack(_exactly(channel, _HEAD.size))
    if head_size > _MOST_HEAD or body_size > _MOST_BODY:
        raise Ended
    kind, facts, places = json.loads(_exactly(channel, head_size))
    body = _exactly(channel, body_size)
    arrays, start = {}, 0
    for name, shape in places:
        size = 8 * int(np.prod(shape))
        one = np.frombuffer(body, "<i8", size // 8, start)
        arrays[name] = one.astype(np.int64).reshape(shape)
        start += size
    return Frame(kind, facts, arrays)


def ready(channel: socket.socket, seconds: float) -> bool:
    """Say whether something can be read within so many seconds (the end counts as something)."""
    return bool(select.select([channel], [], [], seconds)[0])


def named(values: Mapping[str, IntArray], place: int) -> dict[str, IntArray]:
    """Return the arrays under names that carry their program's place."""
    return {f"{place}.{name}": value for name, value in values.items()}


def at_place(arrays: Mapping[str, IntArray], place: int) -> dict[str, IntArray]:
    """Return the arrays of one program, under their own names."""
    start = f"{place}."
    return {name[len(start) :]: one for name, one in arrays.items() if name.startswith(start)}


def _exactly(channel: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    view, got = memoryview(data), 0
    while got < size:
        try:
            count = channel.recv_into(view[got:])
        except OSError as error:
            raise Ended from error
        if not count:
            raise Ended
        got += count
    return bytes(data)
