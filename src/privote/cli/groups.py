"""Options that go together: a dataclass of them is one parameter of a verb."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import wraps
from typing import Any, get_type_hints

Verb = Callable[..., None]
REQUIRED: Any = inspect.Parameter.empty


@dataclass(frozen=True, kw_only=True)
class Group:
    """Which fields of a dataclass a verb offers as options.

    Attributes
    ----------
    of
        The dataclass. Its fields are annotated as a verb's own parameters are.
    without
        Fields that are no options of this verb; they keep their defaults.
    fixed
        Fields that are no options of this verb either, and what they are.
    instead
        Fields with another annotation and default here (``REQUIRED`` for none).
    """

    of: type[Any]
    without: tuple[str, ...] = ()
    fixed: Mapping[str, Any] = field(default_factory=dict)
    instead: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)

    def parameters(self) -> list[inspect.Parameter]:
        """Return the fields as parameters of a function."""
        hints = get_type_hints(self.of, include_extras=True)
        made = []
        for each in fields(self.of):
            if each.name in self.without or each.name in self.fixed:
                continue
            default = REQUIRED if each.default is MISSING else each.default
            annotation, default = self.instead.get(each.name, (hints[each.name], default))
            made.append(_parameter(each.name, annotation, default))
        return made

    def take(self, given: dict[str, Any]) -> Any:
        """Return the dataclass, made from what was given; what it took is gone from there."""
        taken = {parameter.name: given.pop(parameter.name) for parameter in self.parameters()}
        return self.of(**taken, **self.fixed)


def grouped(**groups: Group) -> Callable[[Verb], Verb]:
    """Show the command line a verb's groups of options, each under its parameter's name."""

    def decorate(verb: Verb) -> Verb:
        parameters: list[inspect.Parameter] = []
        for own in inspect.signature(verb, eval_str=True).parameters.values():
            if own.name in groups:
                parameters += groups[own.name].parameters()
            else:
                parameters.append(_parameter(own.name, own.annotation, own.default))

        @wraps(verb)
        def called(**given: Any) -> None:
            made = {name: group.take(given) for name, group in groups.items()}
            verb(**given, **made)

        shown: Any = called
        shown.__signature__ = inspect.Signature(parameters)
        shown.__annotations__ = {each.name: each.annotation for each in parameters}
        return called

    return decorate


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default
    )
