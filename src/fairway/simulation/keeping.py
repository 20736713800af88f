"""What a store has to give back, by what it was given and said that it keeps.

After a crash a store holds everything that it answered for, and of what it was given later a beginning: the first
writes, in the order in which they came, and each of them whole (`ChannelStore.submit`). What was delivered and not
finished comes back in order, said to come again, and no number is ever given to two messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from fairway.events import MessageReceived, OrderKey
from fairway.protocol.journal import Row
from fairway.storage.channel_store import ChannelStore, Handling, Stored, StoredRequest, Write, placement_of

_REMEMBERED: Final = 30
"""Of so many sends, the ones that were written last, it is asked after each opening what is known."""
_MOST_PLACES: Final = 8 * _REMEMBERED
_SHOWN: Final = 40


class Kept:
    """What one store keeps, over all lives of its channel."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], Row] = {}
        """By table and key."""
        self.openings = 0
        self.unread_at_opening = 0
        """How many messages the latest opening found unread."""
        self.messages: dict[int, MessageReceived] = {}
        """Those that were set aside, too."""
        self.handling: dict[int, Handling] = {}
        self._requests: dict[str, StoredRequest] = {}
        self._payloads: dict[int, bytes] = {}
        """Of received and own messages, by number; of the last ones in the order of the channel."""
        self._places: dict[int, OrderKey] = {}
        self._under_way: deque[Write] = deque()
        self._has_failed = False
        self._greatest = -1
        """Number of the newest message that was ever given to it."""

    @property
    def inbox(self) -> dict[int, MessageReceived]:
        """Messages that were delivered and not finished with, nor set aside."""
        return {number: message for number, message in self.messages.items() if not self._is_aside(number)}

    def given(self, write: Write) -> Iterator[str]:
        """Take a write that is not durable yet; yield what is wrong with it."""
        self._under_way.append(write)
        for number, _ in write.delivered:
            if number <= self._greatest:
                yield f"message {number} is to be kept under a number that was given before"
            self._greatest = max(self._greatest, number)

    def written(self, write: Write) -> Iterator[str]:
        """Take a write that became durable; yield what is wrong with that."""
        if self._has_failed:
            yield "a write counts as kept after one failed"
        while self._under_way:
            first = self._under_way.popleft()
            self._apply(first)
            if first is write:
                return
            yield "a write counts as kept before one that came earlier"

    def failed(self) -> None:
        """Note that a write failed: nothing that comes later may be kept."""
        self._has_failed = True

    def opened(self, stored: Stored, store: ChannelStore) -> Iterator[str]:
        """Compare what a store says at an opening, and go on with that; yield how it is not as it must be."""
        self.openings += 1
        self.unread_at_opening = len(stored.inbox)
        numbers = [number for number, _ in stored.inbox]
        if numbers != sorted(numbers):
            yield "what was not read comes back in another order"
        if not all(message.redelivered for _, message in stored.inbox):
            yield "what may have been handed over before comes back as new"
        if stored.first_number <= self._greatest:
            yield f"numbers begin again at {stored.first_number}, and {self._greatest} was given before"
        found = self._found(stored)
        while (wrong := self._difference(found, store)) is not None and self._under_way:
            self._apply(self._under_way.popleft())
        if wrong is not None:
            yield wrong
        self._under_way.clear()
        self._has_failed = False
        self.rows, self.handling = found.rows, found.handling
        aside = {number: message for number, message in self.messages.items() if self._is_aside(number)}
        self.messages = found.messages | aside

    @staticmethod
    def _found(stored: Stored) -> Kept:
        found = Kept()
        found.rows = {(change.table, change.key): change.row for change in stored.changes if change.row is not None}
        found.messages = dict(stored.inbox)
        found.handling = {each.number: each for each in stored.handling}
        return found

    def _difference(self, found: Kept, store: ChannelStore) -> str | None:
        """Return how what was found is not what is kept."""
        if self.rows != found.rows:
            places = self.rows.keys() | found.rows.keys()
            wrong = sorted(place for place in places if self.rows.get(place) != found.rows.get(place))
            return f"{len(wrong)} rows come back otherwise, such as {wrong[0][0]}/{wrong[0][1][:_SHOWN]}"
        if self.handling != found.handling:
            return "how often messages were handled in vain comes back otherwise"
        inbox, there = self.inbox, found.messages
        if inbox.keys() != there.keys() or any(_as_new(inbox[number]) != _as_new(there[number]) for number in inbox):
            return f"of {len(inbox)} unread messages {len(there)} come back, or other ones"
        for number in self.handling:
            if self._is_aside(number) and store.message(number) is None:
                return "a message that was set aside is gone"
        for request_id, request in self._requests.items():
            if store.request(request_id) != request:
                return f"of the send {request_id} something else is known"
        page = store.history(None, _REMEMBERED).messages
        if [(key, message.payload) for key, message in page] != self._last_messages():
            return "the last messages of the channel come back otherwise"
        return None

    def _last_messages(self) -> list[tuple[OrderKey, bytes]]:
        numbers = sorted(self._places, key=lambda number: (self._places[number], number))[-_REMEMBERED:]
        return [(self._places[number], self._payloads[number]) for number in numbers]

    def _place(self, write: Write) -> None:
        self._payloads |= {number: message.payload for number, message in write.delivered}
        self._payloads |= {number: message.payload for number, message in write.sent}
        for number, _, key, _ in (*(placement_of(*each) for each in write.delivered), *write.placed):
            if number in self._payloads:
                self._places[number] = key
        if len(self._places) > _MOST_PLACES:
            for number in sorted(self._places, key=self._places.__getitem__)[: -_MOST_PLACES // 2]:
                del self._places[number], self._payloads[number]

    def _is_aside(self, number: int) -> bool:
        handling = self.handling.get(number)
        return handling is not None and handling.set_aside is not None

    def _apply(self, write: Write) -> None:
        for change in write.changes:
            if change.row is None:
                self.rows.pop((change.table, change.key), None)
            else:
                self.rows[change.table, change.key] = change.row
        self.messages.update(write.delivered)
        self._place(write)
        self.handling.update((handling.number, handling) for handling in write.handling)
        for number in write.finished:
            self.messages.pop(number, None)
            self.handling.pop(number, None)
        for request in write.requests:
            self._requests.pop(request.request_id, None)
            self._requests[request.request_id] = request
        while len(self._requests) > _REMEMBERED:
            del self._requests[next(iter(self._requests))]


def _as_new(message: MessageReceived) -> MessageReceived:
    return replace(message, redelivered=False)
