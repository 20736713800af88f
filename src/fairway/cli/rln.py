"""``fairway rln``: identities in keystores, and groups in files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from fairway.cli._password import PasswordFile, password_of
from fairway.errors import ConfigurationError, RlnError
from fairway.rln.epochs import NETWORK_EPOCH_MS, NETWORK_IDENTIFIER
from fairway.rln.identity import RlnIdentity
from fairway.rln.keystore import Keystore, KeystoreMembership
from fairway.rln.membership import ids_beside
from fairway.rln.membership_file import MembershipFile
from fairway.rln.message_ids import MessageIds
from fairway.units import counted
from fairway.visible import visible

_SHOWN_MEMBERS: Final = 20
_DEFAULT_LIMIT: Final = 20
_MOST_MESSAGES: Final = 65_535
"""The circuit compares message ids and limits as numbers of 16 bits."""
_COMMITMENT_BYTES: Final = 32

app = typer.Typer(
    name="rln", no_args_is_help=True, add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False
)

GroupFile = Annotated[Path, typer.Argument(metavar="GROUP", help="File with the group; every node has a copy.")]
KeystoreFile = Annotated[Path, typer.Argument(metavar="KEYSTORE", help="File with the identity, encrypted.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")]


@app.callback()
def command() -> None:
    """Make identities and groups for networks that limit how much each member sends (RLN).

    The secrets of a member are its identity, in a keystore. The group knows the member by its commitment. A group of
    your own is a file, and the nodes and members of the network have copies of it:

    [bold]fairway rln group ours.json --create[/bold]    make a group

    [bold]fairway rln create alice.keystore[/bold]    make an identity, and print its commitment

    [bold]fairway rln register ours.json --commitment HEX --limit 20[/bold]    let it send 20 messages in each epoch

    Passwords come from --password-file, from FAIRWAY_RLN_PASSWORD or from the terminal.
    """


@app.command()
def create(
    keystore: KeystoreFile,
    *,
    password_file: PasswordFile = None,
) -> None:
    """Make an identity and keep it in a new keystore.

    Prints the commitment, which is public: the owner of the group registers it. Other implementations of Waku read the
    keystore, too.

    Example: [bold]fairway rln create alice.keystore[/bold]

    [bold]fairway rln create --password-file secret.txt alice.keystore[/bold]
    """
    if keystore.exists():
        raise ConfigurationError(f"{keystore} exists: give the path of a new file")
    password = password_of(password_file, is_new=True)
    membership = KeystoreMembership(identity=RlnIdentity.create())
    Keystore.create(keystore, [membership], password)
    ids = ids_beside(keystore)
    if not ids.exists():
        MessageIds.create(ids, first_epoch=0).close()  # a new identity has sent nothing
    commitment = membership.identity.commitment.hex()
    typer.echo(f"identity {commitment} is in {visible(str(keystore))}")
    typer.echo(f"its messages are counted in {visible(str(ids))}: a copy of that file would reveal it")
    typer.echo(f"next: fairway rln register GROUP --commitment {commitment} --limit {_DEFAULT_LIMIT}")


@app.command()
def register(
    group: GroupFile,
    *,
    commitment: Annotated[
        str | None, typer.Option("--commitment", metavar="HEX", help="Commitment of the new member, 64 hex digits.")
    ] = None,
    keystore: Annotated[
        Path | None, typer.Option("--keystore", metavar="FILE", help="Keystore with the identity of the new member.")
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=_MOST_MESSAGES, help="Messages that the member may send in an epoch.")
    ] = _DEFAULT_LIMIT,
    password_file: PasswordFile = None,
) -> None:
    """Make an identity a member of a group.

    Give its commitment, or its keystore. Afterwards all nodes and members of the network need the new file.

    Example: [bold]fairway rln register ours.json --keystore alice.keystore --limit 20[/bold]

    [bold]fairway rln register ours.json --commitment 70d81b59...ab0f[/bold]
    """
    if (commitment is None) == (keystore is None):
        raise ConfigurationError("give either --commitment or --keystore, to name the identity")
    members = MembershipFile(group)
    if keystore is not None:
        registered = Keystore(keystore).membership(password_of(password_file)).identity.commitment
    else:
        registered = _commitment(commitment or "")
    index = members.register(registered, limit)
    typer.echo(
        f"{registered.hex()} is member {index} of {visible(str(group))}, {counted(limit, 'message')} in an epoch"
    )
    typer.echo(f"root {members.root.hex()}")


@app.command()
def remove(
    group: GroupFile,
    *,
    index: Annotated[int, typer.Option(min=0, help="Place of the member, as in [bold]fairway rln group[/bold].")],
) -> None:
    """Take a member out of a group; its place stays empty.

    Example: [bold]fairway rln remove ours.json --index 3[/bold]
    """
    members = MembershipFile(group)
    members.remove(index)
    typer.echo(f"place {index} of {visible(str(group))} is empty now")
    typer.echo(f"root {members.root.hex()}")


@app.command(name="group")
def show_group(
    group: GroupFile,
    *,
    create: Annotated[bool, typer.Option("--create", help="Make a new group without members.")] = False,
    identifier: Annotated[
        str, typer.Option(help="Name of the network in its proofs, at most 32 bytes; only with --create.")
    ] = NETWORK_IDENTIFIER.decode(),
    epoch_ms: Annotated[
        int, typer.Option(min=1, help="Length of an epoch in milliseconds; only with --create.")
    ] = NETWORK_EPOCH_MS,
    machine: AsJson = False,
) -> None:
    """Show a group: its root, its members and their limits; or make one.

    Example: [bold]fairway rln group ours.json --create --identifier rln/ours --epoch-ms 600000[/bold]

    [bold]fairway rln group ours.json[/bold]
    """
    if create:
        members = MembershipFile.create(group, identifier=identifier, epoch_ms=epoch_ms)
    elif (identifier, epoch_ms) != (NETWORK_IDENTIFIER.decode(), NETWORK_EPOCH_MS):
        raise ConfigurationError("--identifier and --epoch-ms are for a new group: give --create too")
    else:
        members = MembershipFile(group)
    if machine:
        typer.echo(json.dumps(_told_of_group(group, members)))
        return
    network = members.network
    shown = [(index, member) for index, member in enumerate(members.members) if member is not None]
    typer.echo(f"{visible(str(group))}: {counted(len(members), 'member')}")
    typer.echo(f"network {visible(network.identifier.decode())}, epochs of {network.epoch_ms / 1000:,g} s")
    typer.echo(f"root {members.root.hex()}")
    for index, member in shown[:_SHOWN_MEMBERS]:
        typer.echo(f"place {index}: {member.commitment}, {counted(member.limit, 'message')} in an epoch")
    if len(shown) > _SHOWN_MEMBERS:
        typer.echo(f"{len(shown) - _SHOWN_MEMBERS:,} more, see --json")
    if not shown:
        typer.echo("next: fairway rln register, see fairway rln --help")


@app.command()
def show(
    keystore: KeystoreFile,
    *,
    group: Annotated[
        Path | None, typer.Option("--group", metavar="GROUP", help="Print also their places and limits in this group.")
    ] = None,
    password_file: PasswordFile = None,
    machine: AsJson = False,
) -> None:
    """Show the memberships of a keystore that a password opens, without their secrets.

    Exit code 1 if a group is given and no membership is in it.

    Example: [bold]fairway rln show alice.keystore --group ours.json[/bold]
    """
    found = Keystore(keystore).memberships(password_of(password_file))
    members = None if group is None else MembershipFile(group)
    rows = [_told_of_membership(name, each, members) for name, each in found.items()]
    if machine:
        typer.echo(json.dumps({"keystore": str(keystore), "memberships": rows}))
    else:
        for row in rows:
            typer.echo(visible(_line_of(row)))
    raise typer.Exit(0 if members is None or any(row["in_group"] for row in rows) else 1)


def _commitment(text: str) -> bytes:
    try:
        commitment = bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        commitment = b""
    if len(commitment) != _COMMITMENT_BYTES:
        raise ConfigurationError(f"a commitment has 64 hex digits, as fairway rln create prints it; given was {text!r}")
    return commitment


def _told_of_group(path: Path, members: MembershipFile) -> dict[str, Any]:
    return {
        "group": str(path),
        "identifier": members.network.identifier.decode(),
        "epoch_ms": members.network.epoch_ms,
        "root": members.root.hex(),
        "members": len(members),
        "places": [
            None if member is None else {"commitment": member.commitment, "limit": member.limit}
            for member in members.members
        ],
    }


def _told_of_membership(name: str, kept: KeystoreMembership, members: MembershipFile | None) -> dict[str, Any]:
    told: dict[str, Any] = {
        "membership_hash": name,
        "commitment": kept.identity.commitment.hex(),
        "chain_id": kept.chain_id,
        "contract": kept.contract,
        "index": kept.index if kept.contract else None,
        "limit": kept.limit,
    }
    if members is not None:
        try:
            member = members.member(kept.identity)
        except RlnError:
            return told | {"in_group": False}
        index = sum(bit << level for level, bit in enumerate(member.path.bits))
        told |= {"in_group": True, "index": index, "limit": member.limit}
    return told


def _line_of(told: dict[str, Any]) -> str:
    line = f"{told['commitment']}  membership {told['membership_hash']}"
    if told["contract"]:
        line += f", in contract {told['contract']} of chain {told['chain_id']}"
    if "in_group" in told:
        line += ", in the group" if told["in_group"] else ", not in the group"
    if told["index"] is not None:
        line += f" at place {told['index']}"
    if told["limit"] is not None:
        line += f", {counted(told['limit'], 'message')} in an epoch"
    return line
