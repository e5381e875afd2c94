"""``privote votes``: the votes of many models on public rows, into a votes file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from . import options

_WHERE, _VOTES = "Where it runs", "What is asked"


def votes(
    rows: Annotated[
        str,
        typer.Argument(
            metavar="ROWS",
            show_default=False,
            help="Public rows: .npy, .npz (array X) or .zarr; or a table, .csv, .tsv or .parquet.",
        ),
    ],
    voters: Annotated[
        list[str],
        typer.Argument(
            metavar="VOTERS",
            show_default=False,
            help="Saved models, files or folders of them: .joblib, .pkl, .pickle, whose loading "
            "runs the code their authors put there, on every worker; or .student, which runs none. "
            "Or package.module:function, which is imported and so runs.",
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            metavar="PLACE",
            show_default=False,
            help="Where the votes go: .zarr, a path or a URL such as s3://bucket/votes.zarr.",
        ),
    ],
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...|K",
            help="Names of the labels, or how many there are; .student files know theirs.",
            rich_help_panel=_VOTES,
        ),
    ] = None,
    names: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...|FILE",
            help="Names of the voters, also in a file as for `label --voter-ids`: needed for a "
            "function, which is called with them. Models are called as their files unless told.",
            rich_help_panel=_VOTES,
        ),
    ] = None,
    threshold: Annotated[
        str | None,
        typer.Option(
            metavar="P[,P...]",
            help="Ask for probabilities: a yes is one at or above P; or one P per label. Without "
            "it models predict, and a function returns votes.",
            rich_help_panel=_VOTES,
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="Which columns of a table voters look at; all unless told.",
            rich_help_panel=_VOTES,
        ),
    ] = None,
    backend: options.Backend = None,
    workers: options.Workers = None,
    address: options.Address = None,
    chunk: Annotated[
        int | None,
        typer.Option(
            help="Queries of a chunk, which is what a crash can cost; by size unless told.",
            rich_help_panel=_WHERE,
        ),
    ] = None,
    group: Annotated[
        int | None,
        typer.Option(
            help="Voters of a chunk, whose models a worker has in memory at once; up to 32 unless "
            "told.",
            rich_help_panel=_WHERE,
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on where a run broke off: the same command again, with this. Models or rows "
            "that changed meanwhile are refused.",
        ),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace votes that were collected before.")
    ] = False,
    json: options.Json = False,
) -> None:
    r"""Collect the votes of many models on many public rows, for `privote label`.

    Example, of models and of a function:

        privote votes rows.npy models/ --labels flu,cold --output votes.zarr --workers 8

        privote votes prompts.csv ask:vote --names sites.txt --labels flu,cold --output votes.zarr

    A function is called as vote(voter, rows), with a voter's name and a run of the rows: an array,
    or for a table a dict of columns. It returns votes of 0 and 1, or with --threshold
    probabilities, in the shape (rows, labels); any framework, or a request to a server.

    Votes are packed bits in a Zarr array, under the names of voters and labels. They are as private
    as the models: keep them to yourself, and release labels.

    The votes are cut into chunks, each on disk as a whole or not at all. After a crash the same
    command with --resume makes the chunks that are missing. The votes are the same bit for bit,
    with any number of workers, and cannot be read before all are there. The digest of every chunk
    is kept with them, so that `privote label` finds a chunk that was lost later.
    """
    from privote.learning.collect import collect_votes

    from .output import print_result, say
    from .progress import stages

    with stages() as tell, _interrupted():
        found = collect_votes(
            voters[0] if len(voters) == 1 else voters,
            rows,
            output,
            labels=_labels(labels),
            names=_names(names),
            threshold=options.parse_threshold(threshold),
            columns=options.names(columns),
            backend=backend,
            workers=workers,
            address=address,
            chunk=chunk,
            group=group,
            resume=resume,
            force=force,
            progress=lambda done, chunks: tell("asking", done, chunks),
        )
    if json:
        print_result(found.facts(), json=True, title="Collected")
        return
    shown = {
        "queries": found.queries,
        "voters": found.voters,
        "labels": found.labels,
        "chunks": found.chunks,
        "of these done before": found.done_before or None,
        "workers that died": found.lost_workers or None,
        "votes written to": output,
    }
    print_result(shown, json=False, title="Collected")
    say(f"Next: privote label {output} --epsilon E --delta D --output labels.csv")


@contextmanager
def _interrupted() -> Iterator[None]:
    from .output import say

    try:
        yield
    except KeyboardInterrupt:
        say("interrupted: what was collected is kept; the same again with --resume", err=True)
        raise typer.Exit(130) from None


def _labels(text: str | None) -> int | Sequence[str] | None:
    if text is not None and text.isdecimal():
        return int(text)
    return options.names(text)


def _names(text: str | None) -> Sequence[str] | None:
    from .files import read_names

    if text is not None and Path(text).is_file():
        return read_names(Path(text))
    return options.names(text)
