"""Engines for two-party computation: one that is secure, and a reference in clear."""

from .base import engine
from .local import LocalLink

__all__ = ["LocalLink", "engine"]
