"""Audit: try to break the guarantee.

:func:`exact` lists every neighbour of small elections, and :func:`sampled` counts what real
releases do. ``make audit`` adds adaptive runs with an allowance, learnt allowances, and adversaries
whose charges to a ledger follow what was released.
"""

from .exact import AUDIT_ORDERS, AuditReport, Violation, exact
from .reference import subjects
from .sampled import SampledReport, sampled

__all__ = [
    "AUDIT_ORDERS",
    "AuditReport",
    "SampledReport",
    "Violation",
    "exact",
    "sampled",
    "subjects",
]
