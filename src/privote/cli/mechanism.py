"""From the flags of a command line to a mechanism."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from privote.errors import InputError

from . import options

if TYPE_CHECKING:
    from privote.mechanisms import Mechanism

# Flags that only some mechanisms know; the others go with all of them.
_GOES_WITH = {
    "tau": "tau",
    "norm": "tau",
    "max_positives": "powerset",
    "quota": "binary",
    "false_alarm": "binary",
    "link_cost": "binary",
    "link_order": "binary",
}


@dataclass(frozen=True, kw_only=True)
class MechanismFlags:
    """What was asked for; None where a flag was not given, and no name where none is needed."""

    name: options.Name
    sigma: options.Sigma = None
    tau: options.Tau = None
    norm: options.Norm = None
    max_positives: options.MaxPositives = None
    quota: options.Quota = None
    false_alarm: options.FalseAlarm = None
    link_cost: options.LinkCost = None
    link_order: options.LinkOrder = None
    gate_threshold: options.GateThreshold = None
    gate_sigma: options.GateSigma = None

    def __post_init__(self) -> None:
        from privote.mechanisms import MECHANISMS

        if not self.name:
            stray = [f.name for f in fields(self) if getattr(self, f.name) not in (None, "")]
            if stray:
                raise InputError(f"{_spelled(stray[0])} goes with --mechanism: give it too")
            return
        if self.name not in MECHANISMS:
            known = ", ".join(MECHANISMS)
            raise InputError(f"--mechanism must be one of {known}, got {self.name!r}")
        for flag, owner in _GOES_WITH.items():
            if getattr(self, flag) is not None and owner != self.name:
                raise InputError(
                    f"{_spelled(flag)} goes with mechanism '{owner}', not with '{self.name}'"
                )
        self._check_pair("link_cost", "link_order")
        self._check_pair("gate_threshold", "gate_sigma")
        if self.link_cost is not None and self.sigma is not None:
            raise InputError("--sigma and --link-cost both set the noise: give one of them")

    def _check_pair(self, one: str, other: str) -> None:
        if (getattr(self, one) is None) != (getattr(self, other) is None):
            raise InputError(f"{_spelled(one)} and {_spelled(other)} go together: give both")

    @property
    def noisy(self) -> bool:
        """True if the noise is set, by sigma or by a link."""
        return self.sigma is not None or self.link_cost is not None

    def build_if_named(self) -> Mechanism | None:
        """Return the mechanism; None if there is no name."""
        return self.build() if self.name else None

    def build(self, sigma: float | None = None) -> Mechanism:
        """Return the mechanism, with this sigma or with the one given as a flag."""
        from privote.links import OptimalLink
        from privote.mechanisms import MECHANISMS, Gate

        if sigma is None and not self.noisy:
            more = " (or --link-cost and --link-order)" if self.name == "binary" else ""
            raise InputError(f"--sigma{more} must be given for mechanism '{self.name}', got none")
        if self.name == "tau" and self.tau is None:
            raise InputError("--tau must be given for mechanism 'tau', got none")
        chosen: dict[str, Any] = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name in ("tau", "norm", "max_positives", "quota", "false_alarm")
            and getattr(self, field.name) is not None
        }
        if self.link_cost is not None and self.link_order is not None:
            chosen["link"] = OptimalLink(cost=self.link_cost, order=self.link_order)
        else:
            chosen["sigma"] = self.sigma if sigma is None else sigma
        if self.gate_threshold is not None and self.gate_sigma is not None:
            chosen["gate"] = Gate(threshold=self.gate_threshold, sigma=self.gate_sigma)
        return MECHANISMS[self.name](**chosen)


def words_of(mechanism: Mechanism) -> list[str]:
    """Return the words of a command line that build this very mechanism."""
    known = {flag: getattr(mechanism, flag, None) for flag in ("sigma", "tau", "norm", "quota")}
    known |= {flag: getattr(mechanism, flag, None) for flag in ("max_positives", "false_alarm")}
    link, gate = getattr(mechanism, "link", None), mechanism.gate
    if link is not None:
        known |= {"sigma": None, "link_cost": link.cost, "link_order": link.order}
    if gate is not None:
        known |= {"gate_threshold": gate.threshold, "gate_sigma": gate.sigma}
    words = ["--mechanism", mechanism.name]
    for flag, value in known.items():
        words += [] if value is None else [_spelled(flag), repr(value)]
    return words


def _spelled(flag: str) -> str:
    return "--" + flag.replace("_", "-")
