"""Engines for two-party computation: one that is secure, and a reference in clear."""

from .base import engine

__all__ = ["engine"]
