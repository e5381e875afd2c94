"""The ledger: an append-only, crash-safe, tamper-evident record of charges."""

from .book import Budget, Ledger, Verification

__all__ = ["Budget", "Ledger", "Verification"]
