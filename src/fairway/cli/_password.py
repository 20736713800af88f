"""The password of a keystore: from a file, the environment or the terminal, because arguments are public."""

from __future__ import annotations

import os
import sys
from getpass import getpass
from pathlib import Path
from typing import Annotated, Final

import typer

from fairway.errors import ConfigurationError
from fairway.units import counted

PASSWORD_VARIABLE: Final = "FAIRWAY_RLN_PASSWORD"  # noqa: S105 - the name of a variable
_MAX_BYTES: Final = 4_096

PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help=f"File whose first line is the password; without it ${PASSWORD_VARIABLE} is taken, or you are asked.",
    ),
]


def password_of(file: Path | None, *, is_new: bool = False) -> str:
    """Return the password; a new one is typed twice.

    Raises `ConfigurationError` if there is none, or the file cannot be read.
    """
    if file is not None:
        return _checked(_first_line(file), f"the first line of {file}")
    given = os.environ.get(PASSWORD_VARIABLE)
    if given is not None:
        return _checked(given, PASSWORD_VARIABLE)
    if not sys.stdin.isatty():
        raise ConfigurationError(
            f"the keystore needs a password: give --password-file FILE, set {PASSWORD_VARIABLE}, or use a terminal"
        )
    typed = _checked(getpass("Password of the keystore: "), "what was typed")
    if is_new and getpass("The same again: ") != typed:
        raise ConfigurationError("the two passwords differ: nothing was written")
    return typed


def _first_line(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            data = opened.readline(_MAX_BYTES + 1)
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the password file {file} cannot be read: {error}") from None
    if len(data) > _MAX_BYTES:
        raise ConfigurationError(
            f"the first line of {file} has more than {counted(_MAX_BYTES, 'byte')}: that is not a password"
        )
    return text.rstrip("\r\n")


def _checked(password: str, where: str) -> str:
    if not password:
        raise ConfigurationError(f"{where} is empty: a keystore needs a password")
    return password
