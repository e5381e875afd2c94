"""Every statement, table, figure and algorithm of the paper, in its order."""

from __future__ import annotations

from . import appendix, main_text

CLAIMS = (*main_text.CLAIMS, *appendix.CLAIMS)
BY_KEY = {claim.key: claim for claim in CLAIMS}
