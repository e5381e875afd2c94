"""The version of privote, in its only place."""

__version__ = "0.3.0"
