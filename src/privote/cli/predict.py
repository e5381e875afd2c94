"""``privote predict``: a saved student on new rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privote.errors import InputError

from . import options


def predict(
    student: Annotated[
        Path,
        typer.Argument(
            metavar="STUDENT", show_default=False, help="A .student file of `privote train`."
        ),
    ],
    rows: Annotated[
        Path,
        typer.Argument(
            metavar="ROWS",
            show_default=False,
            help="Rows to judge: .csv or .parquet with the columns that the student learnt from, "
            "as they were then (words, dates, gaps); or .npz (array X).",
        ),
    ],
    output: Annotated[
        Path, typer.Option(show_default=False, help="Where the predictions go: .csv or .npz.")
    ],
    threshold: Annotated[
        str | None,
        typer.Option(
            metavar="P[,P...]",
            help="A label is 1 at or above this probability; one, or by label. The student's own "
            "unless told, with which labels are as common as released ones say.",
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="Columns of the table that are features, in order; those the student learnt from "
            "unless told.",
        ),
    ] = None,
    trust: Annotated[
        list[str] | None,
        typer.Option(help="A type in the file to allow, as package.module.Class; repeat for more."),
    ] = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Predict with a saved student: for each label its probability and a 1 or a 0.

    Example:

        privote predict run/student.student new.csv --output predictions.csv

    Loading a student runs no code from its file. Predictions cost no privacy: all that they
    follow from was paid for when the student was made, and its file says under which guarantee.
    """
    import numpy as np

    from privote.ballots import check_threshold
    from privote.datasets.tables import columns_of, table
    from privote.learning.students.saving import load_student

    from .files import claimed
    from .output import print_result

    saved = load_student(student, trusted=trust or ())
    bar = saved.thresholds
    if threshold is not None:
        bar = check_threshold(options.parse_threshold(threshold), len(saved.label_names))
    given: object
    if saved.encoder is not None:  # it knows its columns by name, and what was in them
        if columns is not None:
            raise InputError("columns", "cannot be given: this student knows its columns")
        given = columns_of(rows)
    else:
        wanted = saved.feature_names if columns is None else options.names(columns)
        given = table(rows, features=None if rows.suffix == ".npz" else wanted).X
    try:
        chance = saved.predict_proba(given)
    except InputError:
        raise
    except ValueError as error:  # scikit-learn's own words for rows of another width
        raise InputError(f"{rows.name} does not fit this student: {error}") from None
    answers = (chance >= bar).astype(np.int8)
    with claimed(output, force=force, keep=(student, rows)) as draft:
        if output.suffix == ".npz":
            names = np.array(saved.label_names)
            np.savez_compressed(draft, probabilities=chance, labels=answers, label_names=names)
        else:
            _write_csv(draft, saved.label_names, chance, answers)
    facts = {
        "rows": len(chance),
        "labels": len(saved.label_names),
        "student's epsilon, by its file": saved.privacy.get("epsilon"),
        "student's delta, by its file": saved.privacy.get("delta"),
        "student's guarantee, by its file": saved.privacy.get("guarantee"),
        "written to": str(output),
    }
    print_result(facts, json=json, title="Predicted")


def _write_csv(path: Path, names: tuple[str, ...], chance: object, answers: object) -> None:
    import csv

    import numpy as np

    from privote.sheets import write_header

    with path.open("w", newline="", encoding="utf-8") as stream:
        write_header(stream, ["row", *names, *(f"{name} probability" for name in names)])
        writer = csv.writer(stream, lineterminator="\n")
        pairs = zip(np.asarray(answers), np.asarray(chance), strict=True)
        for row, (said, how) in enumerate(pairs):
            writer.writerow([row, *said.tolist(), *(f"{p:.6g}" for p in how)])
