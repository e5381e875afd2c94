"""Multi-label CaPC: sites answer each other's queries, and nobody sees what they should not.

A querying party has unlabelled inputs, answering parties have models, the privacy guardian has the
ledger. What they compute together is in :mod:`privote.capc.programs`, run by an engine of
:mod:`privote.capc.engine`.
"""

import os
from importlib.util import find_spec

from ..errors import missing_extra

if not all(map(find_spec, ("cryptography", "grpc", "msgspec", "tomli_w"))):
    raise missing_extra("capc", "a coalition")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # strangers must not fill a site's log
