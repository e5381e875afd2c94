"""Votes as people have them: a checked cube, bits, contributions, and the readers of files."""

from .arrays import read, write_packed

__all__ = ["read", "write_packed"]
