"""The order in which js-waku sorts its local history: JavaScript's ``localeCompare`` on ``lamport_id``.

js-waku compares strings, the Lamport timestamp padded to 16 digits and the message id, by the collation of the Unicode
CLDR root (packages/sds, mem_local_history.ts and message.ts there). For lower-case hex ids that is fairway's own order;
for others it is not, so replaying js-waku's records needs it. All printable ASCII is covered: punctuation before
symbols before digits before letters, and case only where nothing else differs.
"""

from __future__ import annotations

from typing import Final

from fairway.errors import ConfigurationError

_ROOT_ORDER: Final = " _-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$0123456789abcdefghijklmnopqrstuvwxyz"
_PRIMARY: Final = {character: weight for weight, character in enumerate(_ROOT_ORDER)} | {
    character.upper(): weight for weight, character in enumerate(_ROOT_ORDER) if character.isalpha()
}
_TIMESTAMP_DIGITS: Final = 16

CollationKey = tuple[tuple[int, ...], tuple[bool, ...]]
"""Compares as ``localeCompare`` does: all primary weights first, then case, lower before upper."""


def collation_key(text: str) -> CollationKey:
    """Return the key by which the CLDR root orders a text of printable ASCII.

    Raises `ConfigurationError` for any other character, whose weight is not known here.
    """
    try:
        primary = tuple(_PRIMARY[character] for character in text)
    except KeyError as error:
        raise ConfigurationError(f"the order of {error.args[0]!r} is not known, only of printable ASCII") from None
    return primary, tuple(character.isupper() for character in text)


def history_key(lamport: int, message_id: str) -> CollationKey:
    """Return the key by which js-waku orders a message in its history.

    A timestamp of more than 16 digits is longer than its padding and then sorts by its leading digits.
    """
    return collation_key(f"{lamport:0{_TIMESTAMP_DIGITS}d}_{message_id}")
