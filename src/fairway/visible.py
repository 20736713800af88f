"""Text of others as a terminal or a log may show it: nothing in it steers the terminal or looks like something else.

Names, error details and payloads come from whoever writes to a channel. An escape sequence in them could clear the
screen, set the clipboard or answer for the user; a line break could forge a line of the program; a bidirectional
override makes a name look like another one. Such characters are shown by their numbers, as in Python source.
"""

from __future__ import annotations

import unicodedata
from typing import Final

_SHOWN_BY_NUMBER: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories: controls, formats, surrogates, private use, not assigned, separators of lines and paragraphs."""
_JOINERS: Final = "\u200c\u200d"
"""Belong to the spelling of many languages, and to pictures that consist of several."""


def visible(text: str, *, keep: str = "") -> str:
    r"""Return a text with every character that is not to be seen as itself in the form of ``\x1b`` or ``\u202e``.

    ``keep`` names characters that stay, such as line breaks.
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
