"""Results that show themselves in a notebook."""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib import import_module
from typing import Any


class Shown(ABC):
    """A result that shows itself in a notebook: what it says in brief, and one drawing of it."""

    @abstractmethod
    def brief(self) -> dict[str, str]:
        """Return what is said about it in a few words each, by name: nothing sealed."""

    def _repr_html_(self) -> str:
        # By name: how it looks is the business of a room above, which is loaded if a notebook asks.
        return str(import_module("privote.report.notebook").html(self))

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}
