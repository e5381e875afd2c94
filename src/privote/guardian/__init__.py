"""The guardian: the only door between votes and labels."""

from .accounts import Accounts, Allowance, record_kept
from .allowance import seats
from .guardian import AUTO, Guardian
from .voter_bills import bills

__all__ = [
    "AUTO",
    "Accounts",
    "Allowance",
    "Guardian",
    "bills",
    "record_kept",
    "seats",
]
