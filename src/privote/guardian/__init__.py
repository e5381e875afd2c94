"""The guardian: the only door between votes and labels."""

from .consensus import bills
from .door import Guardian
from .seats import seats

__all__ = ["Guardian", "bills", "seats"]
