"""The options of a command in a TOML file (``--config FILE``), with their names on the command line.

The command line takes precedence over the file, and the file over the defaults. An unknown name is an error that
suggests the nearest one. `config_text` writes such a file.
"""

from __future__ import annotations

import json
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import typer

from fairway.errors import ConfigurationError

_OF_THE_COMMAND_LINE: Final = frozenset({"config", "print-config", "help"})
"""Options that a file cannot contain."""


def read_config(context: typer.Context, path: Path | None) -> Path | None:
    """Use the values of a file for options that the command line does not give; the callback of an eager option.

    Raises `ConfigurationError` for a file that cannot be read, an unknown name, and a value of the wrong kind.
    """
    if path is not None and not context.resilient_parsing:
        context.default_map = {**(context.default_map or {}), **_values_in(path, context)}
    return path


def config_text(context: typer.Context) -> str:
    """Return all options of the running command as a file; options with their defaults are comments."""
    parts = ["# The options of 'fairway node', for --config; a line that begins with # shows the default.\n"]
    for name, option in _options_of(context).items():
        if name != _longest(option):
            continue  # another name of the same option
        value = context.params.get(option.name)
        source = context.get_parameter_source(option.name)
        is_given = source is not None and source.name in {"COMMANDLINE", "DEFAULT_MAP", "ENVIRONMENT"}
        shown = f"{name} = {_toml(value)}" if is_given else f"# {name} = {_example(option, value)}"
        parts.append(f"# {' '.join((option.help or '').split())}\n{shown}\n")
    return "\n".join(parts)


def _values_in(path: Path, context: typer.Context) -> dict[str, Any]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path}: the options cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{path} is not a TOML file: {error}") from error
    known = _options_of(context)
    values: dict[str, Any] = {}
    for name, value in table.items():
        option = known.get(name)
        if option is None:
            raise ConfigurationError(f"{path}: there is no option {name!r}{_hint(name, list(known))}")
        if option.name in values:
            raise ConfigurationError(f"{path}: {name!r} is a second name of an option that the file already has")
        values[option.name] = _value(option, value, f"{path}: {name}")
    return values


def _options_of(context: typer.Context) -> dict[str, Any]:
    """Return the options of the command, by each of their names."""
    return {
        word.removeprefix("--"): option
        for option in context.command.params
        for word in option.opts
        if word.startswith("--") and word.removeprefix("--") not in _OF_THE_COMMAND_LINE
    }


def _longest(option: Any) -> str:
    names: list[str] = [word.removeprefix("--") for word in option.opts]
    return max(names, key=len)


def _hint(name: str, known: list[str]) -> str:
    near = get_close_matches(name, known, 1)
    if near:
        return f"; did you mean {near[0]!r}?"
    return "; this is for the command line only" if name in _OF_THE_COMMAND_LINE else ""


def _value(option: Any, value: Any, where: str) -> Any:
    """Return a value as the text of the command line, or raise `ConfigurationError`."""
    if option.is_flag:
        if not isinstance(value, bool):
            raise ConfigurationError(f"{where} is true or false, not {value!r}")
        return value
    given = value if isinstance(value, list) else [value]
    if wrong := [one for one in given if isinstance(one, bool) or not isinstance(one, str | int | float)]:
        raise ConfigurationError(f"{where} takes a text or a number{' or a list' * option.multiple}, not {wrong[0]!r}")
    if isinstance(value, list) and not option.multiple:
        raise ConfigurationError(f"{where} takes one value, not a list")
    # The option parses the text as on the command line, and reports what is wrong with it.
    texts = [str(one) for one in given]
    return texts if option.multiple else texts[0]


def _example(option: Any, value: Any) -> str:
    if value not in (None, [], ()):
        return _toml(value)
    word = f'"{option.metavar or "TEXT"}"'
    return f"[{word}]" if option.multiple else word


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(str(value), ensure_ascii=False)
