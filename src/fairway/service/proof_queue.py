"""`ProofQueue`: what waits for verification, in turns by source, so that a flood of one delays nobody else.

Each source has a queue of its own, and they are served one item each in turn. A source whose proof did not hold is
*blamed*: for `_BLAMED_S` it is served only when no other source waits. So a source costs the others one verification,
however much it sends.

Both the queue of a source and all of them together are bounded. When all are full, a newcomer takes the place of what
a blamed source put last, or else of what the source with most items put last.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final, Generic, TypeVar

_Item = TypeVar("_Item")

_BLAMED_S: Final = 60.0
_MAX_BLAMED: Final = 100_000
"""Blamed sources that are remembered; the oldest are forgotten first."""


class ProofQueue(Generic[_Item]):
    """Items by the source that sent them. Times are seconds of a steady clock."""

    def __init__(self, *, max_items: int, max_items_of_source: int) -> None:
        self._max_items: Final = max_items
        self._max_items_of_source: Final = max_items_of_source
        self._waiting: Final[OrderedDict[str, deque[_Item]]] = OrderedDict()
        self._suspect: Final[OrderedDict[str, deque[_Item]]] = OrderedDict()
        self._blamed: Final[OrderedDict[str, float]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        """Return how many items wait."""
        return self._size

    def put(self, source: str, item: _Item, now_s: float) -> _Item | None:
        """Add an item as the last of its source; return one that has no place: another one, or this."""
        sources = self._suspect if self._is_blamed(source, now_s) else self._waiting
        own = sources.get(source)
        if own is not None and len(own) >= self._max_items_of_source:
            return item
        displaced: _Item | None = None
        if self._size >= self._max_items:
            displaced = self._displaced_by(sources, 0 if own is None else len(own))
            if displaced is None:
                return item
        sources.setdefault(source, deque()).append(item)
        self._size += 1
        return displaced

    def take(self) -> tuple[str, _Item] | None:
        """Remove and return the next item with its source; None if none waits."""
        sources = self._waiting or self._suspect
        if not sources:
            return None
        source, items = sources.popitem(last=False)
        if len(items) > 1:
            sources[source] = items  # at the end: it is served again after all others
        self._size -= 1
        return source, items.popleft()

    def blame(self, source: str, now_s: float) -> None:
        """Serve a source after all that are not blamed, from now on."""
        self._blamed[source] = now_s + _BLAMED_S
        self._blamed.move_to_end(source)
        if len(self._blamed) > _MAX_BLAMED:
            self._blamed.popitem(last=False)
        items = self._waiting.pop(source, None)
        if items is not None:
            self._suspect.setdefault(source, deque()).extend(items)

    def clear(self) -> list[_Item]:
        """Remove and return all items."""
        items = [item for sources in (self._waiting, self._suspect) for own in sources.values() for item in own]
        self._waiting.clear()
        self._suspect.clear()
        self._size = 0
        return items

    def _is_blamed(self, source: str, now_s: float) -> bool:
        until_s = self._blamed.get(source)
        if until_s is not None and until_s <= now_s:
            del self._blamed[source]
            return False
        return until_s is not None

    def _displaced_by(self, sources: OrderedDict[str, deque[_Item]], own: int) -> _Item | None:
        """Remove an item for the sake of a source of which ``own`` items wait; None if no source has to give way."""
        if sources is self._waiting and self._suspect:
            victims, victim = self._suspect, next(reversed(self._suspect))
        else:
            victims = sources
            victim = max(victims, key=lambda source: len(victims[source]), default="")
            if not victim or len(victims[victim]) <= own + 1:
                return None
        items = victims[victim]
        displaced = items.pop()
        if not items:
            del victims[victim]
        self._size -= 1
        return displaced
