"""``privote capc``: take part in a coalition of sites that answer each other's queries."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from privote.errors import ChargedError, InputError

from . import options

if TYPE_CHECKING:
    from privote.capc.certs import Certificate

app = typer.Typer(
    no_args_is_help=True,
    help="Sites label each other's data; no site sees another's rows, model, votes or tallies. "
    "Start with `privote capc simulate`.",
)
certificates = typer.Typer(
    no_args_is_help=True,
    help="Certificates of a coalition: each site makes its own, and the others pin it.",
)
app.add_typer(certificates, name="certs")


@app.command()
def guardian(
    site: Path,
    *,
    json: bool = False,
) -> None:
    """Run the guardian, which keeps the coalition's ledger and decides its batches, until stopped.

    Example:

        privote capc guardian guardian/site.toml

    It charges every batch before it is answered; each answering party has its own budget. It sees
    only masked values, never ballots, rows or labels. SITE.toml must set listen and ledger. It logs
    one line per event to stderr. SIGTERM or Ctrl-C stops it; charges remain.

    Parameters
    ----------
    site : SITE.toml
        This site's settings; they name the coalition's terms.
    json
        Log one JSON object a line.
    """
    from privote.capc.messages import GUARDIAN

    _serve(site, GUARDIAN, json)


@app.command()
def answer(
    site: Path,
    *,
    json: bool = False,
) -> None:
    """Answer other sites' queries with this site's model, until stopped.

    Example:

        privote capc answer north/site.toml

    The model is used only inside a secure two-party computation. This site learns who asks and how
    many queries, but sees neither the rows nor its own answers. SITE.toml must set listen, model
    and the guardian's address.

    Parameters
    ----------
    site : SITE.toml
        This site's settings; they name the coalition's terms.
    json
        Log one JSON object a line.
    """
    from privote.capc.messages import ANSWERING

    _serve(site, ANSWERING, json)


def _serve(file: Path, role: str, json: bool) -> None:
    from privote.capc.site import Site, logging_to, serve

    site = Site.read(file, role)
    with logging_to(sys.stderr, json=json):
        serve(site, role)


@app.command()
def query(
    site: Path,
    rows: Path,
    *,
    output: options.File,
    force: bool = False,
    json: bool = False,
) -> None:
    """Have the other sites label rows; they see neither the rows nor the labels.

    Example:

        privote capc query north/site.toml rows.npz --output answers

    All sites are greeted, then the guardian charges the batch. A site that does not respond is left
    out. The same rows are charged once: if the command fails with exit code 6, or the labels are
    wanted again, run it again, with any --output.

    labels.npz holds the labels, shape (rows, labels): 1, 0, or -1 where the gate abstained.
    statement.txt states the guarantee in plain words.

    Parameters
    ----------
    site : SITE.toml
        This site's settings; they name the coalition's terms.
    rows
        Rows to label: .csv or .parquet with the features that the terms name, in any order, or .npz
        (array X, and feature_names if its columns are not in the order of the terms).
    output
        A folder for labels.npz, statement.txt and statement.json.
    """
    from privote.capc.labelled import warn_of_quality
    from privote.capc.messages import QUERYING
    from privote.capc.site import Site, ask, logging_to, read_rows

    from .files import claimed_folder
    from .output import print_facts, print_json

    read = Site.read(site, QUERYING)
    X = read_rows(rows, read.terms)
    with claimed_folder(output, force=force), logging_to(sys.stderr, json=json):
        warn_of_quality(read.terms, read.name, len(X))
        facts, answers = ask(read, X)
        try:
            answers.write(output, facts)
        except OSError as error:
            raise ChargedError(
                f"the labels are kept in {str(read.state)!r}, but {str(output)!r} cannot be "
                f"written ({error.strerror}); run the command again to write them at no charge"
            ) from None
    if json:
        print_json({**facts, "output": str(output)})
        return
    print_facts({**_shown(facts), "written to": str(output)}, title="Answered")


def _shown(facts: dict[str, Any]) -> dict[str, Any]:
    """Return what is shown of a batch."""
    from privote.accounting.renyi import rounded_up

    least = min(facts["allowance_by_party"].values(), default=None)
    unit, each = facts["contribution_unit"], (least or 0) / facts["queries"]
    return {
        "rows labelled": facts["queries"],
        "sites that took part": f"{len(facts['parties'])} of {facts['voters']}",
        "mechanism": facts["mechanism"],
        "guarantee": facts["guarantee"],
        "epsilon per site, all askers": rounded_up(facts["epsilon"], 3),
        "delta": float(facts["delta"]),
        "allowance": least and f"{least} {unit}s per site in total; {each:.2g} per row",
        "engine": facts["engine"],
        "seconds": facts["seconds"],
        "MB between sites": facts.get("megabytes"),
    }


@app.command()
def check(
    site: Path,
    *,
    role: str = "answer",
    json: bool = False,
) -> None:
    """Check a site's files and reach every peer that its program calls; nothing is charged.

    Example:

        privote capc check north/site.toml --role query

    It looks at the terms, the certificates, the secure engine and the model, and greets the peers,
    which compare the terms. Compare the printed fingerprints with the other sites' administrators.
    Exit code 5 if anything failed.

    Parameters
    ----------
    site : SITE.toml
        This site's settings; they name the coalition's terms.
    role : ROLE
        The program to check: guardian, answer or query.
    """
    from privote.capc.site import ROLES, Site
    from privote.capc.site import check as look
    from privote.errors import PeerError

    from .output import print_json, print_table

    if role not in ROLES:
        raise InputError("role", f"must be one of {', '.join(ROLES)}", role)
    rows = look(Site.read(site, role), role)
    if json:
        print_json({"checks": rows})
    else:
        print_table(rows, title="Checked; nothing was charged")
    failed = [row["check"] for row in rows if row["result"] != "ok"]
    if failed:
        raise PeerError(f"failed: {', '.join(failed)}")


@app.command()
def retrain(
    records: Path,
    rows: Path,
    answers: Path,
    *,
    labels: options.Name,
    output: options.File,
    force: bool = False,
    json: bool = False,
) -> None:
    r"""Retrain this site's model on its own records and the labels it received.

    Example:

        privote capc retrain records.csv rows.csv answers/labels.npz --labels flu,cold \
          --output model.npz

    This costs no privacy budget: the labels are already released to the site. Restart `privote capc
    answer` to use the new model. Thresholds are set from the site's own records. A label without
    any own records is learnt from the received labels alone.

    Parameters
    ----------
    records
        This site's own records: .npz (X, Y), .csv or .parquet, on the same scale as ROWS.
    rows
        The rows that `privote capc query` had labelled.
    answers : LABELS.npz
        The labels.npz it received.
    labels : A,B,...
        Names of the labels among the columns of RECORDS (in an .npz: the columns of Y), as in the
        terms.
    output
        The .npz file for the model.
    """
    from privote.capc.models import Records, gain, train_site
    from privote.datasets.tables import table
    from privote.votes.arrays import ArrayFile

    from .files import claimed
    from .output import print_result

    received = ArrayFile(answers)
    if not {"labels", "label_names"} <= set(received.names):
        raise InputError("LABELS.npz", "must be a file written by privote capc query", answers.name)
    names = [str(name) for name in received["label_names"]]
    new = table(rows)
    own = table(records, labels=options.names(labels) or (), features=new.feature_names)
    have = Records.under(names, own.X, own.Y, own.label_names)
    released = Records(X=new.X, Y=received["labels"].astype("int8"))
    model = train_site(have, names, released)
    before, after = gain(have, names, released)
    keep = (records, rows, answers)
    with claimed(output, force=force, suffixes=(".npz",), keep=keep, owner_only=True) as draft:
        model.save(draft)
    facts = {
        "own records": len(own),
        "rows that were labelled": len(new),
        "labels": ", ".join(model.labels),
        "balanced accuracy before": before,
        "balanced accuracy after": after,
        "written to": str(output),
    }
    caption = "Accuracy is measured on own records held out in turn: for this site's eyes only."
    print_result(facts, json=json, title="Trained again", caption=caption)


@app.command()
def simulate(
    ctx: typer.Context,
    *,
    output: options.File,
    parties: int = 5,
    queries: int = 100,
    clear: bool = False,
    epsilon: float = 20.0,
    delta: float = 1e-05,
    guarantee: str = "allowance",
    mechanism: str = "binary",
    sigma: float | None = None,
    tau: float | None = None,
    gate_threshold: float | None = None,
    gate_sigma: float | None = None,
    seed: int | None = None,
    json: bool = False,
) -> None:
    """Run a whole coalition on this machine: a guardian, answering sites and a querying site.

    Example:

        privote capc simulate --parties 5 --queries 100 --output trial

    The data are scenes of handwritten digits that come with privote. All sites run in this process.
    Unless --clear is given, they compute with the secure engine, as between machines: a few seconds
    per site. examples/coalition runs sites as processes with certificates and mutual TLS.

    --seed selects the scenes. With --clear it also determines masks and noise; the result is then
    marked SIMULATED and protects nobody.

    Parameters
    ----------
    output
        A new folder for all output files.
    parties
        Number of answering sites.
    queries
        Number of scenes to label.
    clear
        Compute in clear text, for large studies. There is no secrecy; the result is marked
        INSECURE.
    epsilon
        Privacy budget of each answering site, with --delta.
    delta
        The probability that the epsilon bound may fail.
    guarantee : NAME
        allowance or worst-case.
    mechanism : NAME
        binary or tau.
    """
    from privote.capc import coalition
    from privote.capc.labelled import warn_of_quality

    from .files import claimed_folder
    from .output import print_json, telling

    # As much noise, for the number of voters, as the paper's sigma of 7 is for 50.
    sigma = max(2.0, 0.14 * parties) if sigma is None else sigma
    built = options.mechanism_of({**ctx.params, "sigma": sigma})
    assert built is not None
    budget: dict[str, Any] = {"guarantee": guarantee, "epsilon": epsilon, "delta": delta}
    terms = coalition.terms_of(built, parties, queries, **budget)
    with claimed_folder(output, force=False):
        warn_of_quality(terms, coalition.QUERIER_NAME, queries)
        facts = coalition.simulate(output, terms, clear=clear, seed=seed, progress=telling)
    if json:
        print_json(facts)
    else:
        _show_simulation(facts, output)


def _show_simulation(facts: dict[str, Any], output: Path) -> None:
    from .output import print_facts, print_table, say

    if facts["stamp"]:
        say(facts["stamp"] + "\n")
    print_facts(
        _shown(facts),
        title="Labelled by a coalition",
        caption="A site that has used up its allowance counts as the baseline: no.",
    )
    print_table(facts["metrics"])
    say(
        "ACC is accuracy; BAC is balanced accuracy (0.5 for random labels). Both compare with "
        "the true\nlabels; an abstention counts as 0. In a real coalition nobody sees votes or "
        f"their majority.\nLabels and statement: {output / 'answers'}"
    )


@certificates.command()
def make(
    name: str,
    *,
    folder: Path = Path(),
    days: int = 365,
    json: bool = False,
) -> None:
    """Make this site's key and certificate: NAME.key, which stays here, and NAME.pem.

    Example:

        privote capc certs make north --folder /etc/privote

    Send NAME.pem to the other sites and confirm its fingerprint by telephone; each of them pins it.
    No one else can make a valid certificate for this site. To renew: make the next one in another
    folder, wait until the others have pinned it, replace the two old files, and restart.

    Parameters
    ----------
    name
        The site's name in the terms.
    folder
        Folder of the site's own key and certificate.
    days
        Validity in days.
    """
    from privote.capc import certs

    made = certs.make(folder, name, days=days)
    _show(
        made,
        f"Made the certificate of {name}",
        f"{folder / f'{name}.key'} stays here. Hand out {folder / f'{name}.pem'}.",
        json,
    )


@certificates.command()
def pin(
    file: Path,
    *,
    trust: Path = Path("trust"),
    name: str | None = None,
    json: bool = False,
) -> None:
    """Trust another site's certificate: the holder of its key is accepted as that site.

    Example:

        privote capc certs pin south.pem --trust /etc/privote/trust --name south

    First compare the fingerprint with the site's administrator, over a channel you trust. A site
    may have two pinned certificates. To revoke trust, remove the site's file from the folder.
    Running programs notice either change.

    Parameters
    ----------
    file
        The other site's certificate.
    trust
        The folder of pinned certificates.
    name
        The expected site; a certificate for another site is refused.
    """
    from privote.capc import certs

    pinned = certs.pin(trust, file, name=name)
    said = "Compare the fingerprint with that site's administrator if you have not."
    _show(pinned, f"Pinned {pinned.name} in {trust}", said, json)


@certificates.command(name="list")
def list_them(
    *,
    trust: Path = Path("trust"),
    folder: Path | None = None,
    json: bool = False,
) -> None:
    """List the pinned certificates, whether they are valid, and for how long.

    Example:

        privote capc certs list --trust /etc/privote/trust --folder /etc/privote

    Parameters
    ----------
    trust
        The folder of pinned certificates.
    folder
        Also list the site's own certificates in this folder.
    """
    from privote.capc import certs

    from .output import print_json, print_table, say

    rows = [_row(each, "pinned") for each in certs.Trust(trust).all()]
    if folder is not None:
        files = sorted(folder.glob("*.pem"))
        rows = [_row(each, "own") for file in files for each in certs.read_all(file)] + rows
    if json:
        print_json({"certificates": rows})
        return
    if rows:
        columns = ("site", "held", "status", "until", "days left", "short")
        print_table([{key: row[key] for key in columns} for row in rows], title="Certificates")
    else:
        say(f"No certificate is pinned in {trust}.")


@certificates.command()
def show(
    file: Path,
    *,
    json: bool = False,
) -> None:
    """Show the certificates in a file, with the short fingerprint to compare by telephone.

    Example:

        privote capc certs show south.pem

    Parameters
    ----------
    file : NAME.pem
        A certificate, one's own or another site's.
    """
    from privote.capc import certs

    from .output import print_json, print_table

    rows = [_row(each, "") for each in certs.read_all(file)]
    if json:
        print_json({"certificates": rows})
        return
    print_table([{key: row[key] for key in ("site", "status", "until", "short")} for row in rows])


def _row(each: Certificate, held: str) -> dict[str, Any]:
    return {
        "site": each.name,
        "held": held,
        "status": each.fault() or "valid",
        "until": each.ends.strftime("%Y-%m-%d"),
        "days left": (each.ends - datetime.now(UTC)).days,
        "fingerprint": each.fingerprint,
        "short": each.short,
    }


def _show(each: Certificate, title: str, said: str, json: bool) -> None:
    from .output import print_result

    facts = {
        "site": each.name,
        "fingerprint": each.fingerprint,
        "valid until": each.ends.strftime("%Y-%m-%d %H:%M UTC"),
    }
    print_result(facts, json=json, title=title, caption=said)
