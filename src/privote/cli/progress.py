"""Progress on stderr, for whoever sits in front of a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privote.votes.cube import BallotSource, Block

Tick = Callable[[int], None]


@contextmanager
def working(what: str, total: int | None = None) -> Iterator[Tick]:
    """Show a bar while the block runs; yields a function that takes how much is done.

    Nothing is shown if stderr is not a terminal, and nothing stays when the work is done.
    """
    with _bars(counted=total is not None) as progress:
        task = progress.add_task(what, total=total)
        yield lambda done: progress.update(task, completed=done)


@contextmanager
def telling(what: str, total: int | None = None) -> Iterator[Tick]:
    """Show a bar, or where there is no terminal one line, while the block runs."""
    import typer

    if not typer.get_text_stream("stderr").isatty():
        typer.echo(what, err=True)
    with working(what, total) as tick:
        yield tick


@contextmanager
def stages() -> Iterator[Callable[[str, int, int], None]]:
    """Show one bar a stage; yields a function that takes the stage, how much is done, of how much.

    For work whose stages are known only as they come.
    """
    with _bars(counted=True) as progress:
        tasks: dict[str, Any] = {}

        def tell(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=total)
            progress.update(tasks[what], completed=done, total=total)

        yield tell


def _bars(*, counted: bool) -> Any:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    console = Console(stderr=True)
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        *([MofNCompleteColumn()] if counted else []),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


class WatchedBallots:
    """Ballots that report how many queries of a pass have been worked on."""

    def __init__(self, ballots: BallotSource, tick: Tick) -> None:
        self.queries, self.voters, self.labels = ballots.queries, ballots.voters, ballots.labels
        self.missing, self.sparse = ballots.missing, ballots.sparse
        self.steps = getattr(ballots, "steps", 1)
        for name in ("query_names", "voter_names", "label_names"):
            setattr(self, name, getattr(ballots, name, None))
        self._watched, self._tick = ballots, tick

    def blocks(self) -> Iterator[Block]:
        """Yield the same blocks, so that a seed draws the same labels as without the bar."""
        done = 0
        self._tick(done)
        for block in self._watched.blocks():
            yield block
            done += block.queries
            self._tick(done)

    def head(self, queries: int) -> WatchedBallots:
        """Return the first ``queries`` queries."""
        return WatchedBallots(self._watched.head(queries), self._tick)
