from __future__ import annotations


def demo() -> None:
    """Demo."""
