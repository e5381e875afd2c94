"""Audit: try to break the guarantee, by enumeration and by sampling.

:func:`exact` lists every neighbour of small elections, :func:`adaptive` every transcript of small
runs with an allowance, and :func:`sampled` counts what real releases do.
"""

from .adaptive import AdaptiveReport, adaptive
from .exact import AUDIT_ORDERS, exact
from .findings import AuditReport, Violation
from .sampled import SampledReport, sampled

__all__ = [
    "AUDIT_ORDERS",
    "AdaptiveReport",
    "AuditReport",
    "SampledReport",
    "Violation",
    "adaptive",
    "exact",
    "sampled",
]
