"""``fairway identity``: the keys of participants who sign, and lists of members."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from fairway.errors import ConfigurationError
from fairway.identity import Identity, Members
from fairway.protocol.signing import public_key_text
from fairway.protocol.signing.keys import ED25519, SECP256K1
from fairway.units import counted
from fairway.visible import visible

_BEGINNING_BYTES: Final = 64

app = typer.Typer(
    name="identity", no_args_is_help=True, add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False
)

KeyFile = Annotated[Path, typer.Argument(metavar="FILE", help="File with the private key, PEM.")]
MembersFile = Annotated[
    Path, typer.Argument(metavar="MEMBERS", help="File with the public keys of members, JSON; made if it is absent.")
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Sender id of the member in the channel.")]


@app.callback()
def command() -> None:
    """Make keys for participants who sign their messages, and keep the keys of the other members.

    Each participant has a private key, and the public keys of the others:

    [bold]fairway identity new alice.key[/bold]    make a key, and print its public key for the others

    [bold]fairway identity trust team.json bob ed25519:8a88e3dd...[/bold]    add the public key of bob

    [bold]fairway chat --channel team --sender alice --identity alice.key --members team.json[/bold]
    """


@app.command()
def new(
    file: KeyFile,
    *,
    secp256k1: Annotated[
        bool, typer.Option("--secp256k1", help="A key of secp256k1, so that programs of js-waku can verify payloads.")
    ] = False,
) -> None:
    """Make a private key in a new file that only you may read, and print its public key.

    Example: [bold]fairway identity new alice.key[/bold]
    """
    typer.echo(str(Identity.create(file, SECP256K1 if secp256k1 else ED25519)))


@app.command()
def show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File with a private key, or with members.")],
) -> None:
    """Print the public key of a private key, or the members in a file, one a line.

    Example: [bold]fairway identity show alice.key[/bold]

    [bold]fairway identity show team.json[/bold]
    """
    if not _is_of_members(file):
        typer.echo(str(Identity.load(file)))
        return
    for name, key in sorted(Members.load(file).items()):
        typer.echo(f"{public_key_text(key)} {visible(name)}")


@app.command()
def trust(
    members: MembersFile,
    name: Name,
    key: Annotated[
        str, typer.Argument(metavar="KEY", help="Public key, as [bold]fairway identity show[/bold] prints it.")
    ],
) -> None:
    """Add the public key of a member, or replace it. Running programs see it at their next start.

    Use it for a list of members, and after a member has a new key.

    Example: [bold]fairway identity trust team.json bob ed25519:8a88e3dd...[/bold]
    """
    kept = Members.load(members) if members.exists() else Members.trust_on_first_use(members)
    before = kept.get(name)
    kept.trust(name, key)
    now = kept.get(name)
    what = "has a new key" if before not in {None, now} else "is a member"
    typer.echo(f"{visible(name)} {what}; {visible(str(members))} has {counted(len(kept), 'member')}")


@app.command()
def forget(members: MembersFile, name: Name) -> None:
    """Remove a member. Running programs see it at their next start.

    With --trust-on-first-use, the next key that the name shows is trusted.

    Example: [bold]fairway identity forget team.json bob[/bold]
    """
    kept = Members.load(members)
    if name not in kept:
        raise ConfigurationError(f"{members} has no member {name!r}; 'fairway identity show {members}' lists them")
    kept.forget(name)
    typer.echo(f"{visible(name)} is no member; {visible(str(members))} has {counted(len(kept), 'member')}")


def _is_of_members(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            return opened.read(_BEGINNING_BYTES).lstrip().startswith(b"{")
    except OSError:
        # Reading the key gives the error.
        return False
