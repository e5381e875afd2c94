"""Label dependence: how labels go together, labels implied by others, questions asked in turn.

All of it works on labels that are public or were released already: it is post-processing, which
costs nothing. :func:`gated` also asks; what it asks follows from released labels alone.
"""

from .gated import gated
from .implications import Implications, consistent
from .matrices import negative, positive

__all__ = ["Implications", "consistent", "gated", "negative", "positive"]
