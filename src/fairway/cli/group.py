"""``fairway group``: groups whose key is renewed when a member leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairway.group_keys import GroupKeys
from fairway.identity import Identity
from fairway.protocol.signing import public_key_text
from fairway.units import counted
from fairway.visible import visible

app = typer.Typer(
    name="group", no_args_is_help=True, add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False
)

GroupFile = Annotated[Path, typer.Argument(metavar="FILE", help="File with your keys of the group.")]
KeyFile = Annotated[
    Path,
    typer.Option(
        "--identity",
        metavar="FILE",
        envvar="FAIRWAY_IDENTITY",
        help="Your private key, a file of [bold]fairway identity new[/bold].",
    ),
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Sender id of the member in the channel.")]


@app.callback()
def command() -> None:
    """Make groups whose key is renewed when a member leaves, and add and remove members.

    The administrator makes the group and adds members; each member joins with the id of the group:

    [bold]fairway group create team.group alice --identity alice.key[/bold]    make a group, and print its id

    [bold]fairway group add team.group bob ed25519:8a88e3dd... --identity alice.key[/bold]    add the public key of bob

    [bold]fairway group join bob.group 5d3c... --identity bob.key[/bold]    at bob's: the id that alice has given

    [bold]fairway chat --channel team --sender bob --identity bob.key --group bob.group[/bold]
    """


@app.command()
def create(file: GroupFile, name: Name, identity: KeyFile) -> None:
    """Make a group, with you as its administrator, in a new file that only you may read; print the id of the group.

    Example: [bold]fairway group create team.group alice --identity alice.key[/bold]
    """
    typer.echo(GroupKeys.create(file, Identity.load(identity), name).id)


@app.command()
def join(
    file: GroupFile,
    group_id: Annotated[str, typer.Argument(metavar="ID", help="Id of the group, from its administrator.")],
    identity: KeyFile,
) -> None:
    """Make the file of a member; the key of the group comes over the channel.

    Example: [bold]fairway group join bob.group 5d3c... --identity bob.key[/bold]
    """
    _show(GroupKeys.join(file, Identity.load(identity), group_id))


@app.command()
def add(
    file: GroupFile,
    name: Name,
    key: Annotated[
        str, typer.Argument(metavar="KEY", help="Public key, as [bold]fairway identity show[/bold] prints it.")
    ],
    identity: KeyFile,
    *,
    with_history: Annotated[
        bool, typer.Option("--with-history", help="The member may also read earlier messages.")
    ] = False,
) -> None:
    """Add a member. A program with your file hands the new key out: one that runs, or the next one.

    Example: [bold]fairway group add team.group bob ed25519:8a88e3dd... --identity alice.key[/bold]
    """
    group = GroupKeys.load(file, Identity.load(identity))
    group.add(name, key, with_history=with_history)
    _show(group)


@app.command()
def remove(file: GroupFile, name: Name, identity: KeyFile) -> None:
    """Remove a member. A program with your file hands the new key out: one that runs, or the next one.

    Example: [bold]fairway group remove team.group bob --identity alice.key[/bold]
    """
    group = GroupKeys.load(file, Identity.load(identity))
    group.remove(name)
    _show(group)


@app.command()
def show(file: GroupFile, identity: KeyFile) -> None:
    """Print the id of a group and its members, one a line.

    Example: [bold]fairway group show team.group --identity alice.key[/bold]
    """
    _show(GroupKeys.load(file, Identity.load(identity)))


def _show(group: GroupKeys) -> None:
    typer.echo(f"group {group.id}, epoch {group.epoch}, {counted(len(group.members), 'member')}")
    for name, key in group.members.items():
        typer.echo(f"{public_key_text(key)} {visible(name)}")
