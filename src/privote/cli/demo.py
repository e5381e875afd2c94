"""``privote demo``: everything once, on data that comes with the package."""

from __future__ import annotations

from pathlib import Path


def demo(
    *,
    output: Path = Path("privote-demo"),
    queries: int = 300,
    records: int = 6000,
    seed: int | None = None,
    force: bool = False,
    json: bool = False,
) -> None:
    """Show what privote does by default, on embedded data, in a few seconds.

    Example:

        privote demo --output privote-demo

    First a private model of a table of made-up patients, beside the same model without privacy.
    Then private labels from votes of real models, for aviation reports and for pictures, at epsilon
    8 and 2: what a release says about the quality of its labels, and how good they are.

    The data are the same every time; the noise is not, unless --seed is given.

    Parameters
    ----------
    output
        A new folder for data and report.
    queries
        How many reports and pictures to label.
    records
        How many visits of patients.
    """
    from privote.report import demo as work

    from .files import claimed_folder
    from .output import print_json, print_table, say, telling

    work.check_sizes(records, queries)
    with claimed_folder(output, force=force):
        summary = work.run_demo(
            output, records=records, queries=queries, seed=seed, telling=telling
        )
    if json:
        print_json(summary)
        return
    mark = "SIMULATED: a seed was given. " if seed is not None else ""
    title = f"{mark}Models of a table, on test rows"
    print_table(summary["models"], columns=work.MODELS, title=title, caption=work.MODELS_MEAN)
    title = f"{mark}Labels of {queries:,} reports and as many pictures"
    print_table(summary["labels"], columns=work.LABELS, title=title, caption=work.LABELS_MEAN)
    say(f"Report: {summary['report']}\n\nTry next:\n\n{summary['next']}")
