"""``privote capc certs``: make, renew, pin, revoke and list a coalition's certificates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from .output import say

if TYPE_CHECKING:
    from privote.capc.certs import Certificate

app = typer.Typer(
    no_args_is_help=True,
    help="Certificates of a coalition: every site makes its own, the others pin exactly that one.",
)

_SHOWN = 16  # digits of a fingerprint in a table


@app.command()
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

    Hand NAME.pem to the other sites and read them its fingerprint over the telephone; each of them
    pins it. Nobody can make a certificate in this site's name.

    Parameters
    ----------
    name
        The site, as the terms name it.
    folder
        Where the site's own key and certificate lie.
    days
        How long it is valid.
    """
    from privote.capc import certs

    made = certs.make(folder, name, days=days)
    _show(
        made,
        f"Made the certificate of {name}",
        f"{folder / f'{name}.key'} stays here. Hand out {folder / f'{name}.pem'}.",
        json,
    )


@app.command()
def renew(
    name: str,
    *,
    folder: Path = Path(),
    days: int = 365,
    switch: bool = False,
    json: bool = False,
) -> None:
    """Make the next certificate beside the one in use; with --switch, use it.

    Example:

        privote capc certs renew north --folder /etc/privote

    Three steps, without a moment in which nobody can connect: renew here; the others pin
    NAME.next.pem, beside the old one; then renew --switch here. The others revoke the old
    fingerprint when they like.

    Parameters
    ----------
    name
        The site, as the terms name it.
    folder
        Where the site's own key and certificate lie.
    days
        How long it is valid.
    switch
        Use the one that `renew` made before.
    """
    from privote.capc import certs

    if switch:
        made = certs.switch(folder, name)
        said = "Programs that run take it at their next connection."
        _show(made, f"{name} uses its renewed certificate", said, json)
        return
    made = certs.renew(folder, name, days=days)
    said = (
        f"Hand out {folder / f'{name}.next.pem'}. When the others have pinned it: "
        "the same command with --switch."
    )
    _show(made, f"Made the next certificate of {name}", said, json)


@app.command()
def pin(
    file: Path,
    *,
    trust: Path = Path("trust"),
    name: str | None = None,
    alone: bool = False,
    json: bool = False,
) -> None:
    """Trust another site's certificate: whoever holds its key is that site from here on.

    Example:

        privote capc certs pin south.pem --trust /etc/privote/trust --name south

    Compare the fingerprint with its administrator first, over a channel you trust. A second
    certificate of the same site is accepted beside the first, unless --alone.

    Parameters
    ----------
    file
        The certificate another site handed over.
    trust
        The folder of pinned certificates.
    name
        The site it must be for; refused if it names another.
    alone
        Drop older pins of that site.
    """
    from privote.capc import certs

    pinned = certs.pin(trust, file, name=name, alone=alone)
    said = "Compare the fingerprint with that site's administrator if you have not."
    _show(pinned, f"Pinned {pinned.name} in {trust}", said, json)


@app.command()
def revoke(
    name: str,
    *,
    trust: Path = Path("trust"),
    fingerprint: str | None = None,
    json: bool = False,
) -> None:
    """Stop trusting a site: its streams end within seconds, and its certificate stays refused.

    Example:

        privote capc certs revoke south --trust /etc/privote/trust

    Parameters
    ----------
    name
        The site, as the terms name it.
    trust
        The folder of pinned certificates.
    fingerprint
        Only this one of its certificates, or the 16 digits `certs list` shows; all unless told.
    """
    from privote.capc import certs

    from .output import print_json

    if fingerprint is not None and len(fingerprint) == _SHOWN:
        held = [each for each in certs.Trust(trust).all() if each.name == name]
        same = [each.fingerprint for each in held if each.fingerprint.startswith(fingerprint)]
        fingerprint = same[0] if len(same) == 1 else fingerprint
    gone = certs.revoke(trust, name, fingerprint=fingerprint)
    if json:
        print_json({"revoked": [each.fingerprint for each in gone], "name": name})
        return
    for each in gone:
        say(f"Revoked {name}: {each.fingerprint}")


@app.command(name="list")
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
        Also the site's own certificates in this folder.
    """
    from privote.capc import certs

    from .output import print_json, print_table

    rows = [_row(each, "pinned") for each in certs.Trust(trust).all()]
    if folder is not None:
        files = sorted(folder.glob("*.pem"))
        rows = [_row(each, "own") for file in files for each in certs.read_all(file)] + rows
    gone = sorted(certs.revoked(trust))
    if json:
        print_json({"certificates": rows, "revoked": gone})
        return
    shown = [{**row, "fingerprint": row["fingerprint"][:_SHOWN]} for row in rows]
    if shown:
        print_table(
            shown, title="Certificates", caption=f"Fingerprints: first {_SHOWN} of 64 digits."
        )
    else:
        say(f"No certificate is pinned in {trust}.")
    for each in gone:
        say(f"revoked: {each}")


def _row(each: Certificate, held: str) -> dict[str, Any]:
    return {
        "site": each.name,
        "held": held,
        "status": each.fault() or "valid",
        "until": each.ends.strftime("%Y-%m-%d"),
        "days left": int(each.days_left),
        "fingerprint": each.fingerprint,
    }


def _show(each: Certificate, title: str, said: str, json: bool) -> None:
    from .output import print_result

    facts = {
        "site": each.name,
        "fingerprint": each.fingerprint,
        "valid until": each.ends.strftime("%Y-%m-%d %H:%M UTC"),
    }
    print_result(facts, json=json, title=title, caption=said)
