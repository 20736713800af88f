"""The command ``fairway``: what the layers below can do, for people at a terminal.

Each module in this package is one command: its function ``command`` is registered under the module's name, and its
docstring is the help text. A command that has commands of its own is a module with a typer app as ``app``, of which
``command`` is the callback. A command reads its arguments, calls one function of a layer below and prints what comes
back; it has no logic of its own, and it imports what needs an optional extra only when it runs. Modules whose names
begin with an underscore are what commands share.

Exit codes: 0 all is well; 1 the command ran and the answer is "no"; 2 it could not run, with one line on stderr that
says why and what to do next; 130 interrupted. An unexpected exception is a fault of fairway and ends in a
traceback.
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

[bold]fairway demo[/bold]    send a file over a lossy network and see who has it

[bold]fairway node[/bold]    have a Waku node on this machine; it prints what to put into FAIRWAY_NODE

[bold]fairway chat --channel team --sender alice[/bold]    talk to whoever joins

[bold]fairway send --channel team --sender bob hello[/bold]    send one message

[bold]fairway pipeline run --source store.db --out run[/bold]    what an archive holds, who lost what, and all files

[bold]fairway COMMAND --help[/bold]    what a command does and takes
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
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave."),
    ] = False,
) -> None:
    """Reliable group channels over the Waku network."""


for _module in iter_modules(__path__, f"{__name__}."):
    _name = _module.name.rpartition(".")[2]
    if not _name.startswith("_"):
        app.command(name=_name, cls=lazy_class(_module.name))(lazy_command(_module.name))


def _command_in(words: list[str]) -> list[str]:
    """Return the words that name the command which ran: two if it is one of a group, such as ``pipeline run``."""
    is_of_group = bool(words) and hasattr(sys.modules.get(f"{__name__}.{words[0]}"), "app")
    return list(takewhile(lambda word: not word.startswith("-"), words[: 1 + is_of_group]))


def main() -> NoReturn:
    """Run the command line and leave with its exit code."""
    # Commands show the node and the troubles of a channel themselves, where they do not mix with what is typed.
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
