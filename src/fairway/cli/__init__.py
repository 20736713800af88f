"""The command ``fairway``: the features of the layers below, at a terminal.

Each module in this package is one command: its function ``command`` is registered under the module's name, and its
docstring is the help text. A command with subcommands has a typer app as ``app``, and ``command`` is its callback. A
command is imported when it runs. Several commands share the modules whose names begin with an underscore. A package
within has parts of a command.

Exit codes: 0 success; 1 the command ran and the answer is "no"; 2 it could not run; 130 interrupted. With 2, one line
on stderr gives the reason and the next step. An unexpected exception is a fault of fairway and ends in a traceback.
"""

from __future__ import annotations

import logging
import sys
from itertools import takewhile
from pkgutil import iter_modules
from typing import Annotated, Final, NoReturn

import typer

import fairway
from fairway.cli._lazy import lazy_class, lazy_command
from fairway.errors import FairwayError
from fairway.visible import visible

__all__ = ["app", "main"]

_EXAMPLES: Final = """
Examples:

[bold]fairway demo[/bold]    send a file over a lossy network, and see who has it

[bold]fairway node[/bold]    run a Waku node on this machine; it prints the value for FAIRWAY_NODE

[bold]fairway chat --channel team --sender alice[/bold]    talk to the members of a channel

[bold]fairway send --channel team --sender bob hello[/bold]    send one message

[bold]fairway pipeline run --source store.db --out run[/bold]    rebuild messages, losses and files from an archive

[bold]fairway COMMAND --help[/bold]    the arguments of a command
"""
_INTERRUPTED: Final = 130
_COULD_NOT_RUN: Final = 2

app = typer.Typer(
    name="fairway",
    help="Reliable group channels over the Waku network.",
    epilog=_EXAMPLES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fairway {fairway.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Reliable group channels over the Waku network."""


for _module in iter_modules(__path__, f"{__name__}."):
    _name = _module.name.rpartition(".")[2]
    if not _name.startswith("_") and not _module.ispkg:
        app.command(name=_name, cls=lazy_class(_module.name))(lazy_command(_module.name))


def _command_in(words: list[str]) -> list[str]:
    """Return the words that name the command: two for a subcommand such as ``pipeline run``."""
    is_of_group = bool(words) and hasattr(sys.modules.get(f"{__name__}.{words[0]}"), "app")
    return list(takewhile(lambda word: not word.startswith("-"), words[: 1 + is_of_group]))


def main() -> NoReturn:
    """Run the command line and exit with its code."""
    # Commands show these two logs themselves, so that they do not mix with a typed line.
    for shown in ("fairway.channel.node", "fairway.channel.trouble"):
        logging.getLogger(shown).propagate = False
        logging.getLogger(shown).addHandler(logging.NullHandler())
    try:
        app()
    except FairwayError as error:
        called = " ".join(["fairway", *_command_in(sys.argv[1:])])
        typer.echo(visible(f"fairway: {' '.join(str(error).split())}; see '{called} --help'"), err=True)
        sys.exit(_COULD_NOT_RUN)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    sys.exit(0)
