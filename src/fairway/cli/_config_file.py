"""The options of a command in a TOML file (``--config FILE``), by their names on the command line.

The command line takes precedence over the file, and the file over the defaults. An unknown name is an error that
suggests the nearest one.
"""

from __future__ import annotations

import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import typer

from fairway.errors import ConfigurationError


def read_config(context: typer.Context, path: Path | None) -> Path | None:
    """Use the values of a file for options that the command line does not give; the callback of an eager option.

    Raises `ConfigurationError` for a file that cannot be read, an unknown name, and a value of the wrong kind.
    """
    if path is not None and not context.resilient_parsing:
        context.default_map = _values_in(path, context)
    return path


def _values_in(path: Path, context: typer.Context) -> dict[str, Any]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read ({error.strerror}); give a TOML file with options") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{path} is not a TOML file: {error}") from error
    known: dict[str, Any] = {
        option.opts[0].removeprefix("--"): option
        for option in context.command.params
        if option.name not in {"config", "help"}
    }
    values: dict[str, Any] = {}
    for name, value in table.items():
        option = known.get(name)
        if option is None:
            near = get_close_matches(name, known, 1)
            raise ConfigurationError(
                f"{path}: there is no option {name!r}{f'; did you mean {near[0]!r}?' if near else ''}"
            )
        values[option.name] = _value(option, value, f"{path}: {name}")
    return values


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
    # The option parses the text as on the command line, and reports its errors.
    texts = [str(one) for one in given]
    return texts if option.multiple else texts[0]
