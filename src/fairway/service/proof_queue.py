"""`ProofQueue`: what waits for verification, in turns by source, so that a flood of one delays nobody else.

Each source has a queue of its own, and they are served one item each in turn. A source whose proof did not hold is
*blamed*: for `_BLAMED_S` it is served only when no other source waits, and it may put no more than `_SUSPECT_BURST`
items and `_SUSPECT_PER_S` a second. An item whose proof held is not counted, so that a program that shares its source
with a forger, as behind a proxy, is still served. So a source costs the others one verification, and the machine a few,
however much it sends.

Both the queue of a source and all of them together are bounded. When all are full, a newcomer takes the place of what
a blamed source put last, or else of what the source with most items put last.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

_Item = TypeVar("_Item")

_BLAMED_S: Final = 60.0
_MAX_BLAMED: Final = 100_000
"""Blamed sources that are remembered; the oldest are forgotten first."""
_SUSPECT_PER_S: Final = 1.0
_SUSPECT_BURST: Final = 4.0


@dataclass(slots=True)
class _Blame:
    """What a blamed source may still put."""

    until_s: float
    allowed: float
    counted_s: float

    def allows(self, now_s: float) -> bool:
        """Return whether the source may put an item now, and count it if it may."""
        self.allowed = min(_SUSPECT_BURST, self.allowed + max(0.0, now_s - self.counted_s) * _SUSPECT_PER_S)
        self.counted_s = now_s
        if self.allowed < 1:
            return False
        self.allowed -= 1
        return True


class ProofQueue(Generic[_Item]):
    """Items by the source that sent them. Times are seconds of a steady clock."""

    def __init__(self, *, max_items: int, max_items_of_source: int) -> None:
        self._max_items: Final = max_items
        self._max_items_of_source: Final = max_items_of_source
        self._waiting: Final[OrderedDict[str, deque[_Item]]] = OrderedDict()
        self._suspect: Final[OrderedDict[str, deque[_Item]]] = OrderedDict()
        self._blamed: Final[OrderedDict[str, _Blame]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        """Return how many items wait."""
        return self._size

    def put(self, source: str, item: _Item, now_s: float) -> _Item | None:
        """Add an item as the last of its source; return one that has no place: another one, or this."""
        blame = self._blame_of(source, now_s)
        sources = self._waiting if blame is None else self._suspect
        own = sources.get(source)
        if own is not None and len(own) >= self._max_items_of_source:
            return item
        if blame is not None and not blame.allows(now_s):
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

    def blame(self, source: str, now_s: float) -> list[_Item]:
        """Note that a proof did not hold; remove and return what waits and the source may no longer put."""
        blame = self._blame_of(source, now_s)
        if blame is None:
            blame = _Blame(until_s=now_s, allowed=_SUSPECT_BURST, counted_s=now_s)
            self._blamed[source] = blame
        blame.until_s = now_s + _BLAMED_S
        self._blamed.move_to_end(source)
        if len(self._blamed) > _MAX_BLAMED:
            self._blamed.popitem(last=False)
        items = self._waiting.pop(source, deque())
        while items and blame.allows(now_s):
            self._suspect.setdefault(source, deque()).append(items.popleft())
        self._size -= len(items)
        return list(items)

    def clear_of_blame(self, source: str) -> None:
        """Note that a proof held: the item does not count for what the source may put."""
        blame = self._blamed.get(source)
        if blame is not None:
            blame.allowed = min(_SUSPECT_BURST, blame.allowed + 1)

    def clear(self) -> list[_Item]:
        """Remove and return all items."""
        items = [item for sources in (self._waiting, self._suspect) for own in sources.values() for item in own]
        self._waiting.clear()
        self._suspect.clear()
        self._size = 0
        return items

    def _blame_of(self, source: str, now_s: float) -> _Blame | None:
        blame = self._blamed.get(source)
        if blame is not None and blame.until_s <= now_s:
            del self._blamed[source]
            return None
        return blame

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
