"""`Gaps`: the missing messages of a channel in a stream, with bounded memory.

The table ``missing_messages`` is exact, but needs the whole channel. `Gaps` is an estimate for the progress of a
stream: a cited message counts as missing if it is not among the last messages. It keeps at most `MAX_SEEN` and
`MAX_MISSING` hashes of ids, 8 bytes each. So a cited message older than these counts as missing. An evicted missing
message is not reported as found when it arrives.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from itertools import islice
from typing import Final

from fairway.protocol.sds.message_id import SYNC_PREFIX

MAX_SEEN: Final = 2_048
"""Largest number of present messages of a channel in the state."""
MAX_MISSING: Final = 2_048
"""Largest number of missing messages of a channel in the state."""

_BYTES: Final = 8
_OUTSIDE_THE_ORDER: Final = "ephemeral"
_CONTENT: Final = "content"


class Gaps:
    """The last messages of a channel, and its missing messages. The bounds hold between two micro-batches."""

    __slots__ = ("_missing", "_seen")

    def __init__(self, seen: bytes = b"", missing: bytes = b"") -> None:
        """Restore the state from the results of `seen` and `missing`."""
        self._seen = dict.fromkeys(_split(seen))
        self._missing = dict.fromkeys(_split(missing))

    @property
    def seen(self) -> bytes:
        """Return the last messages, the oldest first."""
        return b"".join(islice(self._seen, max(0, len(self._seen) - MAX_SEEN), None))

    @property
    def missing(self) -> bytes:
        """Return the last of the missing messages, the oldest first."""
        return b"".join(islice(self._missing, max(0, len(self._missing) - MAX_MISSING), None))

    def came(self, kind: str, message_id: str) -> bool:
        """Note a message; return whether it was missing."""
        if kind != _CONTENT:
            return False
        mark = _mark(message_id)
        self._seen[mark] = None
        return self._missing.pop(mark, self) is None

    def cited(self, kind: str, message_id: str, cited: Iterable[str]) -> list[str]:
        """Note the citations of a message; return the newly missing messages.

        As in `fairway.pipeline.stages.missing_messages`, citations of the message itself, of an empty id and of sync
        messages do not count, and ephemeral messages are outside the causal order.
        """
        if kind == _OUTSIDE_THE_ORDER:
            return []
        new = []
        for entry in cited:
            if not entry or entry == message_id or entry.startswith(SYNC_PREFIX):
                continue
            mark = _mark(entry)
            if mark in self._seen or mark in self._missing:
                continue
            self._missing[mark] = None
            new.append(entry)
        return new


def _mark(message_id: str) -> bytes:
    return blake2b(message_id.encode("utf-8", "surrogatepass"), digest_size=_BYTES).digest()


def _split(marks: bytes) -> list[bytes]:
    return [marks[place : place + _BYTES] for place in range(0, len(marks), _BYTES)]
