"""Files a verb writes and reads: claimed before the work, complete or absent after it."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from privote.errors import InputError
from privote.files import DRAFT, check_file, check_new, complete, exists
from privote.ledger.records import digest_of
from privote.release import Release, decide, digest_of_facts, read_facts, rows_of, statement_of
from privote.votes.arrays import ArrayFile, read_npy
from privote.votes.cells import name_of
from privote.votes.tables import open_table

Array = npt.NDArray[Any]

LABEL_FILES = (".csv", ".npz")
CHANCES = (".csv", ".npy")
_ARRAY_FILES = (".npy", ".npz", ".csv")
# Of whoever wrote a statement, and not of what is stated.
_SOFTWARE = re.compile(r"^Software: privote [\w.+-]+(, [\w-]+ [\w.+-]+){3}\.$", re.MULTILINE)


@contextmanager
def claimed_folder(output: Path, *, force: bool) -> Iterator[None]:
    """Claim a folder for work that may fail; a folder that was made for it is then gone again.

    One that holds anything but a draft is taken with ``force`` only: the same rule as for a file.
    """
    there = output.is_dir()
    if there and not force and any(file.name != DRAFT for file in output.iterdir()):
        raise InputError("output", exists(output, output / DRAFT))
    try:
        output.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=output):
            pass
    except OSError as error:
        why = error.strerror or error
        raise InputError("output", f"{str(output)!r} cannot be a folder: {why}") from None
    try:
        yield
    except BaseException:
        if not there:
            with suppress(OSError):  # somebody else may use it meanwhile
                output.rmdir()
        raise


@contextmanager
def claimed(
    output: Path,
    *,
    force: bool,
    suffixes: tuple[str, ...] = LABEL_FILES,
    keep: Iterable[Path] = (),
    owner_only: bool = False,
) -> Iterator[Path]:
    """Yield a file to write beside ``output`` that becomes it when the block ends well.

    For work that costs nothing: if the block fails, nothing is left behind.
    """
    check_new("output", output, suffixes, force=force, keep=keep)
    with complete(output, force=force, owner_only=owner_only) as part:
        yield part


def write_labels(path: Path, release: Release) -> None:
    """Write a release: ``.npz`` with its facts, ``.csv`` with the labels alone."""
    from privote.report.tables import write_label_csv

    if path.suffix == ".npz":
        release.save(path)
    else:
        write_label_csv(
            release.labels,
            path,
            queries=release.query_names,
            names=release.label_names,
        )


def write_probabilities(path: Path, release: Release) -> None:
    """Write how likely most voters want each label: (queries, labels); a ``.csv`` has names."""
    from privote.report.tables import write_label_csv

    chances = release.probabilities
    if chances is None:  # a test that failed has none either
        chances = np.zeros(release.labels.shape)
    if path.suffix == ".csv":
        queries, names = release.query_names, release.label_names
        # A label is 1 exactly where its printed probability is above one half.
        printed = np.where(chances > 0.5, np.ceil(chances * 1e6), np.floor(chances * 1e6)) / 1e6
        write_label_csv(printed, path, queries=queries, names=names)
    else:
        np.save(path, chances)


def read_stated(path: Path) -> tuple[dict[str, Any], Array | None, list[dict[str, Any]]]:
    """Return the facts of a release, a statement or a student, what was drawn, what does not fit.

    A statement in words must be what the facts beside it say, word for word.
    """
    file, numbers, wrong = check_file(path, "statement"), None, list[dict[str, Any]]()
    try:
        if path.suffix == ".npz":
            arrays = ArrayFile(path)
            kind = "tallies" if "tallies" in arrays else "labels"
            numbers, facts = arrays[kind], read_facts(str(arrays["facts"]))
            try:
                release = Release.of_arrays(arrays)
                if release.tallies is not None and not release.processed:
                    due = decide(release, release.decided)
                    if not np.array_equal(release.labels, due.labels):
                        raise ValueError("its labels do not follow from its tallies")
            except ValueError as error:
                wrong.append(_wrong("file", str(error), None))
        elif path.suffix == ".student":
            facts, wrong = _read_student(path)
        else:
            beside = check_file(path.with_suffix(".json"), "statement")
            facts = read_facts(beside.read_text(encoding="utf-8"))
        if facts.get("drawn") is None:
            raise ValueError("it does not state the digest of the draw")
        trained = "noise_multiplier" in facts  # without votes
        if not trained and digest_of_facts(facts) != facts["digest"]:
            wrong.append(_wrong("digest", facts["digest"], digest_of_facts(facts)))
        if path.suffix not in (".npz", ".json", ".student"):
            words = _of_training(facts).statement() if trained else statement_of(rows_of(facts))
            texts = (_technical(file.read_text(encoding="utf-8")), _technical(words))
            pairs = zip_longest(*(_SOFTWARE.sub("Software", each).split("\n") for each in texts))
            wrong += [_wrong("text", one, two) for one, two in pairs if one != two][:1]
    except (OSError, TypeError, ValueError, LookupError, AttributeError, RecursionError) as error:
        raise InputError("statement", f"{str(path)!r} is not a statement: {error}") from None
    return facts, numbers, wrong


def _technical(text: str) -> str:
    """Return the technical words of a statement: those about a model have plain ones before."""
    return text.rpartition("In technical words:\n")[2].removeprefix("PRIVACY STATEMENT").strip()


def _of_training(facts: dict[str, Any]) -> Any:
    from privote.learning.direct.training import TrainingPrivacy

    return TrainingPrivacy(**{name: facts[name] for name in facts.keys() - {"guarantee"}})


def _read_student(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return what a student's file states; its weights must be those that were drawn, if any."""
    from privote.learning import load_student

    student = load_student(path)
    facts = {name: value for name, value in student.privacy.items() if name != "method"}
    if not hasattr(student.model, "drawn_"):
        return facts, []
    made = [digest_of(*student.model.drawn_())]
    return facts, [_wrong("weights", made, facts["drawn"])] if made != facts["drawn"] else []


def _wrong(fact: str, stated: Any, due: Any) -> dict[str, Any]:
    return {"fact": fact, "stated": stated, "ledger": due}


def check_statement(path: Path, *, force: bool, keep: Sequence[Path]) -> None:
    """Refuse a statement's place before anything is released."""
    if path.suffix == ".json":
        raise InputError(
            "statement",
            "must be a text file; its .json is written beside it",
        )
    check_new("statement", path, force=force, keep=keep)
    check_new("statement", path.with_suffix(".json"), force=force, keep=keep)


def read_names(path: Path, argument: str = "voter_ids") -> list[str]:
    """Read names from a text file, one a line; blanks around a name do not count."""
    try:
        text = check_file(path, argument).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeError) as error:
        raise InputError(argument, f"{str(path)!r} cannot be read: {error}") from None
    return [name.strip() for name in text.rstrip().splitlines()]


def read_array(path: Path, argument: str, *, queries: Sequence[str] | None = None) -> Array:
    """Read one array: ``.npy``, ``.npz`` (called as the argument is), or a table as ``.csv``.

    A table has a header. Its column ``query``, as written by ``privote label``, says which of
    ``queries`` a row is about.
    """
    if path.suffix not in _ARRAY_FILES:
        raise InputError(argument, f"must end in one of {', '.join(_ARRAY_FILES)}", path.name)
    check_file(path, argument)
    try:
        if path.suffix == ".csv":
            return _read_table(path, queries)
        if path.suffix == ".npy":
            return read_npy(path)
        arrays = ArrayFile(path)
        if argument not in arrays:
            raise ValueError(f"needs an array {argument!r}; it has: {', '.join(arrays.names)}")
        return arrays[argument]
    except (OSError, ValueError) as error:
        raise InputError(argument, f"{str(path)!r} cannot be read: {error}") from None


def _read_table(path: Path, queries: Sequence[str] | None) -> Array:
    from privote.datasets.tables import table

    rows = open_table(path)
    named = [name_of(cell) for cell in rows.columns.get("query", ())]
    array: Array = table(rows, features=[name for name in rows.header if name != "query"]).X
    if queries is None or named in ([], [str(row) for row in range(len(named))]):
        return array
    place = {name: row for row, name in enumerate(named)}
    if len(place) < len(named) or not place.keys() >= set(queries):
        raise ValueError("its column 'query' must name every query of the votes exactly once")
    return np.asarray(array[[place[name] for name in queries]])
