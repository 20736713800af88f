"""Commands that are imported when they run, and not before.

So ``fairway --help`` is fast, and a command that cannot be imported harms no other one. What a command is for is read
from its source, where it is the docstring of the function ``command``; nothing of it is run for that. A command that
has commands of its own is a module with a typer app ``app``, of which ``command`` is the callback.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from importlib import import_module
from importlib.abc import InspectLoader
from importlib.util import find_spec
from typing import Any, Final

import typer
from typer.core import TyperCommand
from typer.main import get_command

_LINE_BREAK: Final = re.compile(r"(?<=\S)\n(?=\S)")


def lazy_command(module: str) -> Callable[[], None]:
    """Return what to register in place of a module's ``command``: it has its help text, and nothing else."""

    def stub() -> None:
        raise AssertionError("make_context puts the real command in this one's place")

    stub.__doc__ = _docstring_of(module)
    return stub


def lazy_class(module: str) -> type[TyperCommand]:
    """Return a class of commands that gives way to the module's ``command`` as soon as it is called."""

    class LazyCommand(TyperCommand):
        """Stands for a command in the list of all."""

        def make_context(self, *args: Any, **extra: Any) -> Any:
            """Read the arguments as the real command does; what runs afterwards is that one."""
            loaded = import_module(module)
            loader: typer.Typer | None = getattr(loaded, "app", None)
            if loader is None:
                # A group of one, whose only command is returned.
                loader = typer.Typer(add_completion=False, rich_markup_mode="rich")
                loader.command(name=self.name)(loaded.command)
            return _flowing(get_command(loader)).make_context(*args, **extra)

    return LazyCommand


def _flowing(command: Any) -> Any:
    """Let the paragraphs of help texts fill the terminal, where typer keeps the line breaks of the source.

    A line that is indented, such as the rest of a long example, stays a line.
    """
    command.help = _LINE_BREAK.sub(" ", inspect.cleandoc(command.help or ""))
    for each in getattr(command, "commands", {}).values():
        _flowing(each)
    return command


def _docstring_of(module: str) -> str:
    spec = find_spec(module)
    source = spec.loader.get_source(module) if spec is not None and isinstance(spec.loader, InspectLoader) else None
    try:
        nodes = ast.parse(source or "").body
    except SyntaxError:
        return "Cannot be loaded: its source has a syntax error."
    functions = (node for node in nodes if isinstance(node, ast.FunctionDef) and node.name == "command")
    return next((ast.get_docstring(function) or "" for function in functions), "")
