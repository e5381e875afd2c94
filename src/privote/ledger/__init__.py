"""The ledger: an append-only, crash-safe, tamper-evident record of charges."""

from .book import Ledger, Verification
from .place import Place
from .totals import Budget

__all__ = ["Budget", "Ledger", "Place", "Verification"]
