"""Guarantees: what is promised, and how votes are drawn under it."""

from .guarantee import (
    GUARANTEES,
    OWNER_ONLY,
    PERSON,
    RECORD,
    SANITIZED,
    SIMULATED,
    UNCONDITIONAL,
    VOTER,
    Fact,
    Guarantee,
    Later,
    Learnt,
    Sanitized,
    Sealed,
    Shown,
    statement_of,
    to_json,
    worded,
)

__all__ = [
    *("GUARANTEES", "OWNER_ONLY", "PERSON", "RECORD", "SANITIZED", "SIMULATED", "UNCONDITIONAL"),
    *("VOTER", "Fact", "Guarantee", "Later", "Learnt", "Sanitized", "Sealed", "Shown"),
    *("statement_of", "to_json", "worded"),
]
