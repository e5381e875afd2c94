"""Options of a verb, made from signatures and NumPy docstrings: a parameter is added in one file.

A verb is a function. Its positional parameters are arguments, its keyword-only ones options, each
with the type and default of the signature. A :class:`Group` adds all parameters of a function, or
the fields of a dataclass. What an option means is said by the docstring ("Parameters" or
"Attributes") of the verb, else of :class:`Shared`, else of the group. Docstrings and signatures of
the library are read from its source: nothing heavy is loaded to show help.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache, partial, wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar, cast, get_args, get_type_hints

import typer
from typer.models import OptionInfo

from privote.errors import InputError

if TYPE_CHECKING:
    from privote.mechanisms import Mechanism

Verb = Callable[..., None]
Class = TypeVar("Class", bound=type[Any])
Words = Mapping[str, tuple[str, str | None]]  # by parameter: its help, its metavar
REQUIRED: Any = inspect.Parameter.empty
_LIBRARY = Path(__file__).parents[1]
_PANELS = {
    "Options": "method output seed force resume",
    "Mechanism": "clip",
    "Outcome": "seats quota shares mechanism",
    "Budget": "epsilon delta guarantee queries plan_for baseline voter_ids ledger beside dataset "
    "electorate people budget",
    "Where it runs": "backend workers address chunk group",
}
_PANEL = {name: panel for panel, names in _PANELS.items() for name in names.split()}
_SPELLED = {"n_teachers": "--teachers", "n_jobs": "--jobs"}


class Shared:
    """Options that mean the same wherever they are.

    Attributes
    ----------
    epsilon
        What this run may cost, with ``delta``. Replacing one voter's ballots (in train: one record
        or person; in a poll: one ballot) changes the probability of any outcome by a factor of at
        most e^epsilon. A smaller epsilon protects better.
    delta
        The probability that the epsilon bound may fail. Choose it well below 1 / (number of voters
        or persons), e.g. 1e-5.
    sigma
        Standard deviation of the noise, in votes: PATE's sigma_GNMax. For tally: of the noise added
        to each tally.
    votes : VOTES
        Votes (queries, voters, labels): .csv, .tsv, .npy, .npz, .zarr or .parquet; the last two
        also at a URL such as s3://bucket/votes.zarr.
    threshold : P[,P...]
        The file holds probabilities; P or more counts as a yes. Give one P, or one per label.
    ledger
        The ledger of charges: a file, or a postgresql:// address with ``beside``.
    beside : NAME
        For a ledger in PostgreSQL: keep its key and anchor on this machine, as NAME.key and
        NAME.head.
    voters
        Number of voters.
    labels
        Number of labels per ballot.
    force
        Overwrite existing output.
    resume
        Finish a run that failed after it was charged: repeat the same command with this option. No
        further charge.
    seed
        Draw repeatable noise. The result is marked as simulated and protects nobody.
    show_sealed
        Also show sealed numbers, which must not be published.
    json
        Write JSON to stdout instead of tables.
    """


#: The annotation of a mechanism's name, for a group that gives it another default.
Name = Annotated[str, typer.Option("--mechanism", metavar="NAME", rich_help_panel="Mechanism")]


def numbers(argument: str, text: str | None) -> float | list[float] | None:
    """Return a comma list of numbers, or the number alone if it is one; None if not given."""
    if text is None:
        return None
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(argument, "must be a number or a list: 0.1,0.2", text) from None
    return values[0] if len(values) == 1 else values


def names(text: str | None) -> tuple[str, ...] | None:
    """Return a comma list of names; None if it was not given."""
    return None if text is None else tuple(name.strip() for name in text.split(","))


def _labels(text: str | None) -> int | tuple[str, ...] | None:
    return int(text) if text is not None and text.isdecimal() else names(text)


# By annotation in the library, less "| None": the type here, its metavar, and what reads it.
_TYPES: dict[str, tuple[Any, str | None, Callable[[Any], Any] | None]] = {
    **{kind.__name__: (kind, None, None) for kind in (bool, int, float, str, Path)},
    "Any": (str, None, None),
    "Network": (str, None, None),
    "str | os.PathLike[str]": (str, None, None),
    "Threshold": (str, "P[,P...]", partial(numbers, "threshold")),
    "Sequence[str]": (str, "A,B,...", names),
    "tuple[str, ...]": (str, "A,B,...", names),
    "int | Sequence[str]": (str, "A,B,...|K", _labels),
}


# -- docstrings and signatures ---------------------------------------------------------------------


def words_of(doc: str | None) -> Words:
    """Return what a NumPy docstring says of each parameter or attribute."""
    words: dict[str, tuple[str, str | None]] = {}
    blocks = re.split(r"^(?:Parameters|Attributes)\n-+\n", inspect.cleandoc(doc or ""), flags=re.M)
    for block in blocks[1:]:
        for head, text in re.findall(r"^(\S.*)\n((?:(?: {4}.*)?\n?)+)", block, re.M):
            listed, _, metavar = head.partition(" : ")
            for name in listed.split(", "):
                words.setdefault(name, (" ".join(text.split()), metavar or None))
    return words


@cache
def _definitions(module: tuple[str, ...]) -> dict[str, Any]:
    """Return the classes, functions and imported names of one of the library's modules."""
    file = _LIBRARY.joinpath(*module)
    file = file / "__init__.py" if file.is_dir() else file.with_suffix(".py")
    tree = ast.parse(file.read_text(encoding="utf-8"))
    # Those for type checkers only stand in an if.
    top = [n for each in tree.body for n in (each.body if isinstance(each, ast.If) else [each])]
    imports = [node for node in top if isinstance(node, ast.ImportFrom) and node.level]
    known: dict[str, Any] = {}
    for source in imports:
        package = module if file.name == "__init__.py" else module[:-1]
        place = (*package[: len(package) - source.level + 1], *(source.module or "").split("."))
        known |= {alias.name: place for alias in source.names}
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_HOMES":  # loaded late
            homes = ast.literal_eval(node.value)
            known |= {name: (*module, *home.split(".")) for name, home in homes.items()}
    return known | {node.name: node for node in tree.body if hasattr(node, "name")}


def signature_of(place: str) -> tuple[dict[str, tuple[str, Any]], Words]:
    """Return annotation and default of each parameter of a name, and what is said of it.

    The name is a public one, such as ``label``, or ``module:name``. A default that is no literal is
    None: the library knows it.
    """
    module, _, name = place.rpartition(":")
    node: Any = tuple(module.split(".")) if module else ()
    while isinstance(node, tuple):  # where it was imported from
        node = _definitions(node)[name]
    if isinstance(node, ast.ClassDef):
        own = [each for each in node.body if isinstance(each, ast.AnnAssign)]
        pairs = [(ast.unparse(each.target), each.annotation, each.value) for each in own]
    else:
        some, more = node.args.args, node.args.kwonlyargs
        values = [*[None] * (len(some) - len(node.args.defaults)), *node.args.defaults]
        values += node.args.kw_defaults
        pairs = [(a.arg, a.annotation, v) for a, v in zip([*some, *more], values, strict=True)]
    found = {
        name: (ast.unparse(annotation), REQUIRED if value is None else _literal(value))
        for name, annotation, value in pairs
        if not ast.unparse(annotation).startswith(("ClassVar", "KW_ONLY"))
    }
    return found, words_of(ast.get_docstring(node))


def _literal(value: ast.expr) -> Any:
    try:
        return ast.literal_eval(value)
    except ValueError:
        return None


# -- groups of options, and verbs ------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Group:
    """Options that are one parameter of a verb.

    Attributes
    ----------
    of
        A dataclass: the verb gets an instance. Or the name of a function or a class in the library,
        as :func:`signature_of` takes it: the verb gets a dict of what was given, to call it with.
    only, without
        Which parameters are options; all unless told. The others keep their defaults.
    instead
        Parameters with another annotation and default here (``REQUIRED`` for none).
    unset
        Whether nothing is handed on unless it was given, whatever the default in the library.
    panel
        Under which heading help shows them, unless they have one of their own.
    """

    of: Any
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    instead: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    unset: bool = False
    panel: str | None = None

    def parameters(self) -> dict[str, tuple[Any, Any, Callable[[Any], Any] | None]]:
        """Return annotation, default and reader of each option."""
        every: dict[str, tuple[Any, Any, Callable[[Any], Any] | None]] = {}
        if isinstance(self.of, str):
            for name, (annotation, default) in signature_of(self.of)[0].items():
                kind, metavar, reads = _TYPES.get(annotation.removesuffix(" | None"), _TYPES["Any"])
                empty = default in (None, ()) or (self.unset and default is not REQUIRED)
                panel = _PANEL.get(name, self.panel)
                info = typer.Option(metavar=metavar, rich_help_panel=panel)
                kind = kind | None if empty else kind
                every[name] = Annotated[kind, info], None if empty else default, reads
        else:
            hints = get_type_hints(self.of, include_extras=True)
            for each in fields(self.of):
                default = REQUIRED if each.default is MISSING else each.default
                hint = hints[each.name]
                if self.panel is not None and not hasattr(hint, "__metadata__"):
                    hint = Annotated[hint, typer.Option(rich_help_panel=self.panel)]
                every[each.name] = hint, default, None
        every |= {name: (*other, None) for name, other in self.instead.items()}
        wanted = self.only or every
        return {n: every[n] for n in wanted if n in every and n not in self.without}

    def words(self) -> Words:
        """Return what is said of the options where they come from."""
        return signature_of(self.of)[1] if isinstance(self.of, str) else words_of(self.of.__doc__)

    def take(self, values: dict[str, Any], own: Mapping[str, Any]) -> Any:
        """Return the group made of its options; those are gone from ``values``."""
        taken = {}
        for name, (_, _, reads) in self.parameters().items():
            if name not in own:
                value = values.pop(name)
                taken[name] = value if reads is None else reads(value)
        if isinstance(self.of, str):
            return {name: value for name, value in taken.items() if value is not None}
        return self.of(**taken)


def derived(**groups: Group) -> Callable[[Verb], Verb]:
    """Give a verb its options, with their help; each group under its parameter's name."""

    def decorate(verb: Verb) -> Verb:
        own = inspect.signature(verb, eval_str=True).parameters
        shared, said = words_of(Shared.__doc__), words_of(verb.__doc__)
        options: list[tuple[inspect.Parameter, Words]] = []
        for name, each in own.items():
            group = groups.get(name)
            if group is None:
                options.append((each, {**shared, **said}))
                continue
            words = {**shared, **group.words(), **said}
            if isinstance(group.of, str):  # the library's words are for Python
                words = {**group.words(), **shared, **said}
            for part, (annotation, default, _) in group.parameters().items():
                if part not in own:
                    option = inspect.Parameter(part, each.KEYWORD_ONLY, annotation=annotation)
                    options.append((option.replace(default=default), words))
        spelling = {each.name: _spelled(each.name) for each, _ in options}
        spelling["MECHANISMS"] = ", ".join(_votings())
        made = [_parameter(each, words, spelling) for each, words in options]

        @wraps(verb)
        def called(**values: Any) -> None:
            taken = {name: group.take(values, own) for name, group in groups.items()}
            verb(**values, **taken)

        shown: Any = called
        shown.__doc__ = re.split(r"^ *Parameters\n *-+\n", verb.__doc__ or "", flags=re.M)[0]
        shown.__signature__ = inspect.Signature(made)
        shown.__annotations__ = {each.name: each.annotation for each in made}
        return called

    return decorate


def _spelled(name: str) -> str:
    return _SPELLED.get(name, "--" + name.replace("_", "-"))


def _parameter(
    each: inspect.Parameter, words: Words, spelling: Mapping[str, str]
) -> inspect.Parameter:
    """Return a parameter as Typer takes it: its type with an option, or an argument, and help."""
    kind, keyword = each.annotation, inspect.Parameter.KEYWORD_ONLY
    if kind is typer.Context:
        return each.replace(kind=keyword)
    info: Any = typer.Option() if each.kind is keyword else typer.Argument()
    for given in getattr(kind, "__metadata__", ()):
        kind, info = get_args(kind)[0], copy(given)  # verbs share it, and each has its own words
    text, metavar = words.get(each.name, ("", None))
    if isinstance(info, OptionInfo):
        if info.default is ... and not info.param_decls:
            info.param_decls = (spelling[each.name],)
        if sum(_PANEL.get(name) == _PANEL.get(each.name) for name in spelling) > 2:
            info.rich_help_panel = info.rich_help_panel or _PANEL.get(each.name)
    elif info.metavar is None:
        info.metavar = metavar or each.name.upper()
    # A flag takes no value, so its help names none.
    info.metavar = "" if kind in (bool, bool | None) else info.metavar or metavar
    info.help = plain(info.help or text, spelling)
    return each.replace(kind=keyword, annotation=Annotated[kind, info])


def plain(text: str, spelling: Mapping[str, str]) -> str:
    """Return a sentence of a docstring in the words of the command line."""

    def spell(mention: re.Match[str]) -> str:
        option = spelling.get(mention[1])
        if option is None:
            return mention[0].strip("`")
        return option if mention[2] in (None, "True") else f"{option} {mention[2]}"

    text = re.sub(r":\w+:`~?([^`]+)`", r"\1", text)
    text = re.sub(r"``(\w+)(?:=([^`]*))?``", spell, text)
    return re.sub(r"``([^`]*)``", lambda quoted: quoted[1].strip('"'), text)


# -- a ledger --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Account:
    """Where a verb charges what it releases; nothing is charged without a ledger.

    Attributes
    ----------
    dataset
        The data set's name in the ledger: its budget is for all runs together.
    budget
        The epsilon that all runs of the data set may cost together, said at its first run; default:
        this run's epsilon, so that nothing is left for others.
    electorate
        With ``ledger``: a name under which the same records, with the same ids or groups, continue
        with what is left of their allowance in a later run. Without it every run is a new charge.
    """

    ledger: Annotated[str | None, typer.Option(metavar="FILE|ADDRESS")] = None
    beside: Path | None = None
    dataset: str = "default"
    budget: float | None = None
    electorate: str | None = None

    def __post_init__(self) -> None:
        for each in fields(self):
            if self.ledger is None and getattr(self, each.name) != each.default:
                raise InputError(each.name, "needs `ledger`")

    @property
    def files(self) -> list[Path]:
        """The ledger's own files, which no output may replace."""
        place = self.place
        return [] if place is None else [place.file, place.key, place.head]

    @property
    def place(self) -> Any:
        """Where the ledger is, as the library takes it; None without one."""
        from privote.ledger import Location

        return None if self.ledger is None else Location.of(self.ledger, self.beside)

    @property
    def arguments(self) -> dict[str, Any]:
        """What the library is called with."""
        return {"ledger": self.place, "dataset": self.dataset, "budget": self.budget}


# -- a mechanism -----------------------------------------------------------------------------------

_UNOFFERED = ("grid",)  # for coalitions, and for votes that are probabilities


@cache
def _votings() -> dict[str, str]:
    """Return the classes that ``mechanisms`` exports as a voting, by name."""
    kinds = [kind for kind in _definitions(("mechanisms",)) if kind.endswith("Voting")]
    return {kind.removesuffix("Voting").lower(): kind for kind in kinds}


@cache
def _settings() -> dict[str, tuple[tuple[str, ...], Any]]:
    """Return, by option, the setting it makes (or the setting and its part), and its annotation.

    Every voting is read; a gate goes with all of them.
    """
    texts: dict[str, dict[str, str]] = {}  # by setting, what each mechanism says of it
    types: dict[str, str] = {}
    for name, kind in _votings().items():
        parameters, words = signature_of(f"mechanisms:{kind}")
        for setting, (annotation, _) in parameters.items():
            texts.setdefault(setting, {})[name] = words[setting][0]
            types[setting] = annotation.removesuffix(" | None")
    made: dict[str, tuple[tuple[str, ...], Any]] = {}
    for setting, said in ({**texts, "gate": {}}).items():
        if setting == "gate":  # each of its fields is an option
            parts, words = signature_of("mechanisms:Gate")
            for part, (annotation, _) in parts.items():
                made[f"gate_{part}"] = ("gate", part), _flag(annotation, words[part][0])
        elif setting not in _UNOFFERED:
            shared = words_of(Shared.__doc__).get(setting, (_by(said), None))
            made[setting] = (setting,), _flag(types[setting], shared[0])
    return made


def _by(said: Mapping[str, str]) -> str:
    """Return what each mechanism says of a setting."""
    return " ".join(f"{name}: {text[:1].lower()}{text[1:]}" for name, text in said.items())


def _flag(annotation: str, text: str) -> Any:
    info = typer.Option(help=text, rich_help_panel="Mechanism")
    return Annotated[_TYPES.get(annotation, _TYPES["Any"])[0] | None, info]


def _with_settings(cls: Class) -> Class:
    for option, (_, annotation) in _settings().items():
        cls.__annotations__[option] = annotation
        setattr(cls, option, None)
    made: Any = dataclass(frozen=True, kw_only=True)(cls)
    return cast(Class, made)


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


@_with_settings
class MechanismFlags:
    """What was asked for of a mechanism; None where an option was not given.

    Attributes
    ----------
    name : NAME
        How a tally becomes labels: ``MECHANISMS``; or package.module:Class, a class of your own,
        which is imported and so runs.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]
    name: Name

    if TYPE_CHECKING:

        def __getattr__(self, option: str) -> Any:
            """Return an option that :func:`_with_settings` found."""

    def __post_init__(self) -> None:
        from privote.mechanisms import MECHANISMS

        if not self.named:
            stray = [*self._given()]
            if stray:
                raise InputError(f"{_spelled(stray[0])} needs --mechanism")
            return
        kind = kind_of(self.name)
        for flag in self._given():
            setting = _settings()[flag][0][0]
            if setting not in kind.settings():
                owners = [name for name, each in MECHANISMS.items() if setting in each.settings()]
                raise InputError(
                    f"{_spelled(flag)} applies to mechanism {', '.join(map(repr, owners))}, not "
                    f"to {self.name!r}"
                )
        gate = ("gate_threshold", "gate_sigma")
        if sum(option in self._given() for option in gate) == 1:
            raise InputError(f"{' and '.join(map(_spelled, gate))} must be given together")

    @property
    def named(self) -> bool:
        """Whether a mechanism is named; where none is, the noise follows from the votes."""
        return self.name not in ("", "auto")

    def _given(self) -> dict[str, Any]:
        """Return the flags that were given, but for the name."""
        _, *flags = (field.name for field in fields(self))
        return {flag: getattr(self, flag) for flag in flags if getattr(self, flag) is not None}

    @property
    def chosen(self) -> dict[str, Any]:
        """The settings that were given."""
        from privote.mechanisms import Gate

        settings: dict[str, Any] = {}
        gate: dict[str, Any] = {}
        for flag, value in self._given().items():
            setting, *part = _settings()[flag][0]
            if part:
                gate[part[0]] = value
            else:
                settings[setting] = value
        return {**settings, "gate": Gate(**gate)} if gate else settings

    def build(self, sigma: float | None = None) -> Mechanism:
        """Return the mechanism, with this sigma or with the one given as a flag."""
        kind, flags = kind_of(self.name), self
        if sigma is not None and "sigma" in kind.settings():
            flags = replace(self, sigma=sigma)
        chosen = flags.chosen
        for item in fields(kind):
            if item.name not in chosen and item.default is item.default_factory is MISSING:
                raise InputError(f"{_spelled(item.name)} is required for mechanism {self.name!r}")
        return kind(**chosen)
