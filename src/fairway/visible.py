"""`visible` makes text from the network safe to print in a terminal or a log.

Other participants choose names, error details and payloads. An escape sequence could clear the screen, set the
clipboard or send input for the user. A line break could forge a line of output. A bidirectional override makes one name
look like another. `visible` replaces such characters by escapes, as in Python source.
"""

from __future__ import annotations

import unicodedata
from typing import Final

_SHOWN_BY_NUMBER: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories: control, format, surrogate, private use, unassigned, line and paragraph separators."""
_JOINERS: Final = "\u200c\u200d"
"""Joiners that are not replaced: many languages and composed emoji need them."""


def visible(text: str, *, keep: str = "") -> str:
    r"""Return a text with each invisible character replaced by an escape such as ``\x1b`` or ``\u202e``.

    ``keep`` has characters that are not replaced, such as line breaks.
    """
    if text.isprintable():
        return text
    kept = keep + _JOINERS
    return "".join(
        _number(character)
        if character not in kept and unicodedata.category(character) in _SHOWN_BY_NUMBER
        else character
        for character in text
    )


def _number(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
