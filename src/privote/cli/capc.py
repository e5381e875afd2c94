"""``privote capc``: take part in a coalition of sites that answer each other's queries."""

from __future__ import annotations

import signal
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privote.errors import InputError, PeerError

from . import options
from .capc_certs import app as certs
from .capc_simulate import simulate

if TYPE_CHECKING:
    from privote.capc.site import Site

app = typer.Typer(
    no_args_is_help=True,
    help="Sites label each other's data in secret: nobody sees rows, models, votes or tallies. "
    "Start with `privote capc simulate`.",
)
app.add_typer(certs, name="certs")
app.command()(simulate)

SiteFile = Annotated[
    Path,
    typer.Argument(
        metavar="SITE.toml",
        show_default=False,
        help="This site's settings; they name the coalition's terms.",
    ),
]
LogJson = Annotated[bool, typer.Option("--json", help="Log one JSON object a line.")]


@app.command()
def guardian(site: SiteFile, json: LogJson = False) -> None:
    """Keep the coalition's ledger, decide its batches; runs until it is stopped.

    Charges every batch before it is answered, one budget for each answering party. Sees masks,
    never ballots, rows or labels. Needs listen and ledger in SITE.toml. Logs one line an event on
    stderr; SIGTERM or Ctrl-C stops it, and what was charged stays charged.

    Example:

        privote capc guardian guardian/site.toml
    """
    from privote.capc import launch

    _serve(launch.guardian, site, as_json=json)


@app.command()
def answer(site: SiteFile, json: LogJson = False) -> None:
    """Answer the others' queries with this site's model; runs until it is stopped.

    The model leaves this machine only inside a secure two-party computation. This site sees who
    asks and how many queries, and neither rows nor its own answers. Needs listen, model and the
    guardian's address in SITE.toml.

    Example:

        privote capc answer north/site.toml
    """
    from privote.capc import launch

    _serve(launch.answering, site, as_json=json)


def _serve(make: Any, file: Path, *, as_json: bool) -> None:
    """Run a program that serves until it is told to stop."""
    from privote.capc.rehearsal import LISTENING
    from privote.capc.site import Site

    from .capc_log import Log

    site = Site.read(file)
    _take_all_files()
    with Log(json=as_json) as log:
        _begin(site, log)
        driver = make(site, log)
        _stop_on_signals(driver)
        log(f"{site.name} {LISTENING} {site.listen}, engine {site.engine}")
        driver.run()
        log(f"{site.name} has stopped")


@app.command()
def query(
    site: SiteFile,
    rows: Annotated[
        Path,
        typer.Argument(
            metavar="ROWS",
            show_default=False,
            help="Rows to have labelled: .npz (array X), .csv or .parquet of the terms' features.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            show_default=False, help="A folder for labels.npz, statement.txt and statement.json."
        ),
    ],
    baseline: Annotated[
        Path | None,
        typer.Option(
            help="Allowance, binary voting: this site's own guess (queries, labels), .npy or .csv. "
            "Votes that agree with it are free. It stays secret."
        ),
    ] = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Have rows labelled by the other sites; nobody else sees the rows or the labels.

    The guardian charges the batch first. A site that does not answer is left out; below the
    minimum of the terms there is no answer, and the charge stands. Run it again after a failure:
    a batch that was charged and not decided is resumed.

    labels.npz has labels (rows, labels): 1, 0, or -1 where the gate abstained. statement.txt says
    in plain words what was promised to whom.

    Example:

        privote capc query north/site.toml rows.npz --output answers
    """
    import time

    from privote.capc import launch
    from privote.capc.site import Site
    from privote.datasets.tables import table

    from .capc_log import Log
    from .capc_output import check_folder, facts_of, show, write
    from .files import read_baseline

    read = Site.read(site)
    data = table(rows)
    if data.X.shape[0] > read.terms.most_queries:
        raise InputError(
            f"ROWS must have at most {read.terms.most_queries} rows (most_queries of the terms), "
            f"got {data.X.shape[0]}: ask them in several batches"
        )
    guess = None if baseline is None else read_baseline(baseline)
    check_folder(output, force=force)
    began = time.monotonic()
    with Log() as log:
        _begin(read, log)
        told = _Told(log)
        driver = launch.querying(read, data.X, told, baseline=guess)
        _warn_of_clipping(data.X, read.terms.bound)
        _stop_on_signals(driver)
        try:
            answers = driver.run()
        except PeerError as error:
            raise PeerError(_explained(str(error), read, driver.reasons, told)) from None
        if answers is None:
            raise PeerError("stopped before the batch was answered; run it again to resume it")
    prices = getattr(driver.role, "prices", None)
    facts = facts_of(read.terms, read.name, answers, stamp=read.stamp, prices=prices)
    facts["seconds"] = round(time.monotonic() - began, 2)
    facts["megabytes"] = round(sum(driver.sessions.bytes.values()) / 1e6, 3)
    write(output, facts, read.terms, answers)
    show(facts, output, as_json=json)


@app.command()
def retrain(
    records: Annotated[
        Path,
        typer.Argument(
            metavar="RECORDS",
            show_default=False,
            help="This site's own records: .npz (X, Y), .csv or .parquet, scaled as ROWS are.",
        ),
    ],
    rows: Annotated[
        Path,
        typer.Argument(
            metavar="ROWS", show_default=False, help="The rows that `privote capc query` asked."
        ),
    ],
    answers: Annotated[
        Path,
        typer.Argument(
            metavar="LABELS.npz", show_default=False, help="What it received: its labels.npz."
        ),
    ],
    labels: Annotated[
        str,
        typer.Option(
            metavar="A,B,...",
            show_default=False,
            help="Which columns of RECORDS are labels (in an .npz: of its Y); names of the "
            "coalition.",
        ),
    ],
    output: Annotated[
        Path, typer.Option(show_default=False, help="Where the model goes: an .npz file.")
    ],
    every_label: Annotated[
        bool,
        typer.Option(
            "--every-label",
            help="Keep the labels that this site has no records of, too. A model that answers "
            "others has the labels of its own records only.",
        ),
    ] = False,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    r"""Train this site's model again, on its own records and the labels it received.

    Costs nothing: labels that were released to a site are its own to use. Restart `privote capc
    answer` to answer with the new model. Thresholds follow the site's own records.

    Example:

        privote capc retrain records.csv rows.csv answers/labels.npz --labels flu,cold \
          --output model.npz
    """
    from privote.arrayfiles import ArrayFile
    from privote.capc.retrain import Records, retrain_site
    from privote.datasets.tables import table

    from .files import claimed
    from .output import print_facts, print_json

    received = ArrayFile(answers)
    if not {"labels", "label_names"} <= set(received.names):
        raise InputError(f"LABELS.npz must be what `privote capc query` wrote, got {answers.name}")
    names = [str(name) for name in received["label_names"]]
    own = table(records, labels=[name.strip() for name in labels.split(",")])
    new = table(rows, features=None if rows.suffix == ".npz" else own.feature_names)
    model = retrain_site(
        Records.under(names, own.X, own.Y, own.label_names), names, new.X, received["labels"]
    )
    if not every_label:
        model = model.only([name for name in names if name in own.label_names])
    keep = (records, rows, answers)
    with claimed(output, force=force, suffixes=(".npz",), keep=keep, owner_only=True) as draft:
        model.save(draft)
    facts = {
        "own records": len(own),
        "rows that were labelled": len(new),
        "labels": ", ".join(model.labels),
        "written to": str(output),
    }
    print_json(facts) if json else print_facts(facts, title="Trained again")


class _Told:
    """A log that remembers who was lost or left out, and why."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self.left_out: list[str] = []
        self._log = log

    def __call__(self, text: str) -> None:
        # Of a site that cannot be reached the line before says why.
        unreached = text.endswith("it cannot be reached")
        if text.startswith("lost ") or (" is left out: " in text and not unreached):
            self.left_out.append(text)
        self._log(text)


def _explained(said: str, site: Site, reasons: Mapping[str, str], told: _Told) -> str:
    """Return why a query failed, with whom, and where that site was looked for."""
    guardian = site.terms.guardian
    if not said.startswith(f"{guardian} "):
        # Streams that ended because the query had failed are no reason for it.
        return f"{said} ({'; '.join(told.left_out)})" if told.left_out else said
    where = f"addresses.{guardian} is {site.addresses[guardian]}"
    return f"{said} ({'; '.join(filter(None, (reasons.get(guardian), where)))})"


def _begin(site: Site, log: Callable[[str], None]) -> None:
    """Log what whoever reads the log must know first."""
    if site.stamp:
        log(site.stamp)
    warn_of_others(site, log)


def warn_of_others(site: Site, log: Callable[[str], None]) -> None:
    """Log which of a site's files others on its machine can read, or change."""
    for key, path, others in (
        ("model", site.model, stat.S_IRGRP | stat.S_IROTH),
        ("state", site.state, stat.S_IRGRP | stat.S_IROTH),
        ("trust", site.trust, stat.S_IWGRP | stat.S_IWOTH),
    ):
        if path is None or not path.exists() or not path.stat().st_mode & others:
            continue
        if path.absolute().parent.stat().st_mode & (stat.S_IXGRP | stat.S_IXOTH):
            what = "changed" if key == "trust" else "read"
            log(f"WARNING: {key} {str(path)!r} can be {what} by others: chmod go-rwx {path}")


def _warn_of_clipping(X: Any, bound: float) -> None:
    """Say how many rows lie outside what the models were promised: they are not what was asked."""
    import numpy as np

    outside = int((np.asarray((abs(X) > bound).sum(axis=1)).ravel() > 0).sum())
    if outside:
        typer.echo(
            f"warning: {outside} of {X.shape[0]} rows have values beyond bound={bound:g} of the "
            "terms, and are clipped to it: are they scaled as the models' rows were?",
            err=True,
        )


def _take_all_files() -> None:
    """Allow this process as many open files as the system lets it: a connection is one."""
    import resource

    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _stop_on_signals(driver: Any) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: driver.stop())
