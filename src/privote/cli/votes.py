"""``privote votes``: the votes of many models on public rows, into a votes file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from . import options
from .options import Group, derived


@derived(asked=Group(of="collect_votes", without=("progress",)))
def votes(
    rows: str,
    voters: list[str],
    *,
    asked: dict[str, Any],
    names: str | None = None,
    json: bool = False,
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

    Parameters
    ----------
    rows
        Public rows: .npy, .npz (array X) or .zarr; or a table, .csv, .tsv or .parquet.
    voters
        Saved models, files or folders of them: .joblib, .pkl, .pickle, whose loading runs the code
        that their authors put there, on every worker; or .student, which runs none. Or
        package.module:function, which is imported and so runs.
    output : PLACE
        Where the votes go: .zarr, a path or a URL such as s3://bucket/votes.zarr.
    labels
        Names of the labels, or how many there are; .student files know theirs.
    names : A,B,...|FILE
        Names of the voters, also in a file as for `label --voter-ids`: needed for a function, which
        is called with them. A model has its file's name by default.
    threshold
        Ask for probabilities: a yes is one at or above P; or one P per label. Without it models
        predict, and a function returns votes.
    backend : NAME
        Where workers run: loky (processes here, the default), dask or ray.
    workers
        How many work at once; by default one, or all of a cluster. The votes are the same for any
        number.
    address
        The scheduler of a cluster: tcp://HOST:8786 (dask), ray://HOST:10001 or auto (ray). By
        default dask and ray are started here.
    chunk
        Queries in a chunk, which is what a crash can cost; by size unless given.
    group
        Voters in a chunk, whose models a worker has in memory at once; up to 32 unless given.
    resume
        Continue a run that failed: the same command again, with this option. Models or rows that
        changed meanwhile are refused.
    force
        Replace votes that were collected before.
    """
    from privote import collect_votes

    from .files import read_names
    from .output import print_result, say, stages

    file = names is not None and Path(names).is_file()
    with stages() as tell, _interrupted():
        found = collect_votes(
            voters[0] if len(voters) == 1 else voters,
            rows,
            names=read_names(Path(names or "")) if file else options.names(names),
            progress=lambda done, chunks: tell("asking", done, chunks),
            **asked,
        )
    output = asked["output"]
    if json:
        print_result(found.facts(), json=True, title="Collected")
        return
    shown = {
        "queries": found.queries,
        "voters": found.voters,
        "labels": found.labels,
        "chunks": found.chunks,
        "of these done before": found.done_before or None,
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
