"""The guardian: the only door between votes and labels."""

from .door import Guardian
from .seats import seats
from .voters import bills

__all__ = ["Guardian", "bills", "seats"]
