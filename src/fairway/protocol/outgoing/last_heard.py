"""When each participant was last heard: a long message is sent again only while one of them may lack it.

A message in segments costs many times as much as the note that it did not arrive. So while no awaited participant is
heard, only its last data segment is sent again: a participant that receives it learns of all others, and asks for them.
The others leave as soon as an awaited participant is heard (`fairway.protocol.outgoing.sending`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

_MAX_NAMES: Final = 10_000
"""Anybody can invent names: beyond it, those heard longest ago are forgotten."""


class LastHeard:
    """When each participant was last heard since the start."""

    def __init__(self) -> None:
        """Nobody was heard yet."""
        self._heard_ms: OrderedDict[str, int] = OrderedDict()

    def heard(self, name: str, now_ms: int) -> int | None:
        """Note that a message of a participant came, and return when the one before came; None if none did."""
        before_ms = self._heard_ms.get(name)
        self._heard_ms[name] = now_ms
        self._heard_ms.move_to_end(name)
        if len(self._heard_ms) > _MAX_NAMES:
            self._heard_ms.popitem(last=False)
        return before_ms

    def since(self, at_ms: int) -> Iterator[str]:
        """Yield the participants that were heard at a time or later, the last one first."""
        for name, heard_ms in reversed(self._heard_ms.items()):
            if heard_ms < at_ms:
                return
            yield name
