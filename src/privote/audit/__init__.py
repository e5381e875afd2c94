"""Audit: try to break the guarantee, by enumeration and by sampling.

:func:`exact` lists every neighbour of small elections, :func:`adaptive` every transcript of small
runs with an allowance, :func:`policies` plays against a ledger whose charges follow what was
released, and :func:`sampled` counts what real releases do.
"""

from .adaptive import AdaptiveReport, adaptive
from .exact import AUDIT_ORDERS, exact
from .findings import AuditReport, Violation
from .policies import PolicyReport, by_the_best_order, policies
from .sampled import SampledReport, sampled

__all__ = [
    "AUDIT_ORDERS",
    "AdaptiveReport",
    "AuditReport",
    "PolicyReport",
    "SampledReport",
    "Violation",
    "adaptive",
    "by_the_best_order",
    "exact",
    "policies",
    "sampled",
]
