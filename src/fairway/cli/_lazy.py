"""Imports each command when it runs.

``fairway --help`` is fast because it imports no command: it reads the docstring of ``command`` from the source. A
command that cannot be imported breaks no other one. A command with subcommands has a typer app as ``app``, and
``command`` is its callback.
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
    """Return a placeholder for a module's ``command`` that has only its help text."""

    def stub() -> None:
        raise AssertionError("make_context replaces the placeholder")

    stub.__doc__ = _docstring_of(module)
    return stub


def lazy_class(module: str) -> type[TyperCommand]:
    """Return a class of commands that becomes the module's ``command`` when it is called."""

    class LazyCommand(TyperCommand):
        """A placeholder in the list of commands."""

        def make_context(self, *args: Any, **extra: Any) -> Any:
            """Return the context of the real command, which then runs."""
            loaded = import_module(module)
            loader: typer.Typer | None = getattr(loaded, "app", None)
            if loader is None:
                # An app with one command is that command.
                loader = typer.Typer(add_completion=False, rich_markup_mode="rich")
                loader.command(name=self.name)(loaded.command)
            return _flowing(get_command(loader)).make_context(*args, **extra)

    return LazyCommand


def _flowing(command: Any) -> Any:
    """Join the lines of each paragraph of a help text, so that it fills the terminal.

    An indented line, such as the rest of a long example, stays a line.
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
