"""What a program logs: one line an event, with its time, level, name and fields."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from logging import INFO, WARNING
from typing import Any

__all__ = ["INFO", "WARNING", "Lines", "log"]

_LOGGER = logging.getLogger("privote.capc")
_LOGGER.setLevel(INFO)


def log(event: str, level: int = INFO, **fields: Any) -> None:
    """Log an event of the protocol; nothing secret is ever among its fields."""
    _LOGGER.log(level, event, extra={"fields": fields})


class Lines(logging.Formatter):
    """Writes an event as one line: JSON, or words for a terminal."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        time = datetime.fromtimestamp(record.created, UTC).astimezone()
        fields: dict[str, Any] = vars(record).get("fields", {})
        if self._as_json:
            stamp = {"time": time.isoformat(timespec="milliseconds"), "level": record.levelname}
            return json.dumps({**stamp, "event": record.getMessage(), **fields})
        words = "".join(f" {name}={value}" for name, value in fields.items())
        return f"{time:%Y-%m-%d %H:%M:%S%z} {record.levelname} {record.getMessage()}{words}"
