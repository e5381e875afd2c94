"""Private training without votes: on the private records themselves, with noise."""

from importlib import import_module
from typing import Any

#: Methods by name, and where each is.
METHODS = {
    "gradients": ("gradients", "DPLinear"),
    "moments": ("moments", "DPMoments"),
    "dpsgd": ("dpsgd", "DPSGDClassifier"),
}


def method(name: str) -> Any:
    """Return the estimator of this name; it is loaded when it is asked for."""
    module, kind = METHODS[name]
    return getattr(import_module(f".{module}", __name__), kind)
