"""Who was heard lately, which is what a long message is sent again for.

A message in segments is many times as dear as the word that it did not arrive. So while nobody is heard whose
acknowledgement is wanted, only its last data segment is sent again: whoever gets it learns of all others, and says so.
The others leave as soon as such a participant is heard (`fairway.protocol.outgoing.sending`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

_MAX_NAMES: Final = 10_000
"""Anybody can invent names: of more, those heard longest ago are forgotten."""


class LastHeard:
    """When each participant was last heard, in this life."""

    def __init__(self) -> None:
        """Nobody was heard yet."""
        self._heard_ms: OrderedDict[str, int] = OrderedDict()

    def heard(self, name: str, now_ms: int) -> None:
        """Note that a message of a participant came."""
        self._heard_ms[name] = now_ms
        self._heard_ms.move_to_end(name)
        if len(self._heard_ms) > _MAX_NAMES:
            self._heard_ms.popitem(last=False)

    def since(self, at_ms: int) -> Iterator[str]:
        """Yield the participants that were heard at a time or later, the last one first."""
        for name, heard_ms in reversed(self._heard_ms.items()):
            if heard_ms < at_ms:
                return
            yield name
