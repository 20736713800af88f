"""Names that a caller chooses: of channels, participants and requests.

Their length is at most 256 bytes of UTF-8, because messages and persisted rows contain them.
"""

from __future__ import annotations

from typing import Final

from fairway.errors import ConfigurationError

MAX_NAME_BYTES: Final = 256


def checked_name(what: str, name: str, advice: str) -> str:
    """Return ``name``, or raise `ConfigurationError` with ``what`` the name is for and the ``advice``."""
    if not isinstance(name, str):
        raise ConfigurationError(f"{what} must be text, not {type(name).__name__}; {advice}")
    try:
        size_bytes = len(name.encode())
    except UnicodeEncodeError as error:
        raise ConfigurationError(f"{what} is not Unicode text: {error}; {advice}") from error
    if not size_bytes:
        raise ConfigurationError(f"{what} must not be empty; {advice}")
    if size_bytes > MAX_NAME_BYTES:
        raise ConfigurationError(
            f"{what} has {size_bytes} bytes of UTF-8, at most {MAX_NAME_BYTES} are allowed; {advice}"
        )
    return name
