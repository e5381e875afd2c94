"""From the flags of a command line to a mechanism."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from privote.errors import InputError

from . import options

if TYPE_CHECKING:
    from privote.mechanisms import Mechanism

# Flags that are parts of one setting; every other one is a setting of its name.
_PARTS = {
    "link_cost": ("link", "cost"),
    "link_order": ("link", "order"),
    "gate_threshold": ("gate", "threshold"),
    "gate_sigma": ("gate", "sigma"),
}


def kind_of(name: str) -> type[Mechanism]:
    """Return the mechanism of this name; ``package.module:Class`` is imported, which runs it."""
    from privote.mechanisms import MECHANISMS, Mechanism

    if name in MECHANISMS:
        return MECHANISMS[name]
    module, colon, place = name.partition(":")
    if not colon:
        known = ", ".join(MECHANISMS)
        raise InputError("mechanism", f"must be one of {known}, or package.module:Class", name)
    try:
        kind = getattr(import_module(module), place)
    except Exception as error:  # somebody else's module may fail as it likes
        raise InputError(f"--mechanism {name!r} cannot be imported: {error}") from error
    if not (isinstance(kind, type) and issubclass(kind, Mechanism)):
        raise InputError("mechanism", "must be a class that extends privote.Mechanism", name)
    return kind


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

        if not self.named:
            stray = [*self._given()]
            if stray:
                raise InputError(f"{_spelled(stray[0])} goes with --mechanism: give it too")
            return
        kind = kind_of(self.name)
        for flag in self._given():
            setting = _PARTS.get(flag, (flag,))[0]
            if setting not in kind.settings():
                owners = [name for name, each in MECHANISMS.items() if setting in each.settings()]
                raise InputError(
                    f"{_spelled(flag)} goes with mechanism {', '.join(map(repr, owners))}, not "
                    f"with {self.name!r}"
                )
        self._check_pair("link_cost", "link_order")
        self._check_pair("gate_threshold", "gate_sigma")
        if self.link_cost is not None and self.sigma is not None:
            raise InputError("--sigma and --link-cost both set the noise: give one of them")

    @property
    def named(self) -> bool:
        """Whether a mechanism is named; where none is, the noise follows from the votes."""
        return self.name not in ("", "auto")

    def _check_pair(self, one: str, other: str) -> None:
        if (getattr(self, one) is None) != (getattr(self, other) is None):
            raise InputError(f"{_spelled(one)} and {_spelled(other)} go together: give both")

    def _given(self) -> dict[str, Any]:
        """Return the flags that were given, but for the name."""
        _, *flags = (field.name for field in fields(self))
        return {flag: getattr(self, flag) for flag in flags if getattr(self, flag) is not None}

    @property
    def chosen(self) -> dict[str, Any]:
        """The settings that were given."""
        from privote.links import OptimalLink
        from privote.mechanisms import Gate

        whole: dict[str, type[Any]] = {"link": OptimalLink, "gate": Gate}
        settings: dict[str, Any] = {}
        for flag, value in self._given().items():
            setting, *part = _PARTS.get(flag, (flag,))
            if part:
                settings.setdefault(setting, {})[part[0]] = value
            else:
                settings[setting] = value
        return settings | {key: whole[key](**settings[key]) for key in whole if key in settings}

    @property
    def noisy(self) -> bool:
        """True if the noise is set, by sigma or by a link."""
        return self.sigma is not None or self.link_cost is not None

    def lacking(self) -> list[tuple[str, ...]]:
        """Return the settings without which there is no mechanism: of each group, one."""
        chosen = self.chosen
        return [group for group in kind_of(self.name).needs() if not chosen.keys() & set(group)]

    def build_if_named(self) -> Mechanism | None:
        """Return the mechanism; None if there is no name."""
        return self.build() if self.named else None

    def build(self, sigma: float | None = None) -> Mechanism:
        """Return the mechanism, with this sigma or with the one given as a flag."""
        flags = self if sigma is None or self.link_cost is not None else replace(self, sigma=sigma)
        for first, *others in flags.lacking():
            more = f" (or {', '.join(map(spelled, others))})" if others else ""
            raise InputError(
                f"{_spelled(first)}{more} must be given for mechanism {self.name!r}, got none"
            )
        return kind_of(self.name)(**flags.chosen)


def words_of(mechanism: Mechanism) -> list[str]:
    """Return the words of a command line that build this very mechanism."""
    from privote.mechanisms import MECHANISMS

    kind = type(mechanism)
    known = mechanism.name if mechanism.name in MECHANISMS else f"{kind.__module__}:{kind.__name__}"
    words = ["--mechanism", known]
    _, *flags = (field.name for field in fields(MechanismFlags))
    for flag in flags:
        value: Any = mechanism
        for part in _PARTS.get(flag, (flag,)):
            value = getattr(value, part, None)
        words += [] if value is None else [_spelled(flag), repr(value)]
    return words


def spelled(setting: str) -> str:
    """Return the options that make a setting, as they are typed."""
    flags = [flag for flag, (whole, _) in _PARTS.items() if whole == setting]
    return " and ".join(map(_spelled, flags or [setting]))


def _spelled(flag: str) -> str:
    return "--" + flag.replace("_", "-")
