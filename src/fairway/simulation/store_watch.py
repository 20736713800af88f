"""`WatchedStore`: the store of a participant; it compares the restored state with the writes.

After a crash a store has all confirmed writes, and possibly the first of the later ones, each whole
(`ChannelStore.submit`). `Kept` follows the writes over all lives of a participant.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace

from fairway.errors import StorageError
from fairway.events import MessageReceived, OrderKey
from fairway.simulation.history import History
from fairway.storage.channel_store import ChannelStore, HistoryPage, Stored, StoredRequest, Write


class Kept:
    """The content of the store of one participant."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], object] = {}
        """The rows of the protocol, by table and key."""
        self.inbox: dict[int, MessageReceived] = {}
        """Unfinished messages by number."""
        self.pending: deque[Write] = deque()
        """Submitted writes that are not confirmed."""

    def apply(self, write: Write) -> None:
        """Apply a durable write."""
        for change in write.changes:
            if change.row is None:
                self.rows.pop((change.table, change.key), None)
            else:
                self.rows[change.table, change.key] = change.row
        self.inbox.update(write.delivered)
        for number in write.finished:
            self.inbox.pop(number, None)

    def equals(self, stored: Stored) -> bool:
        """Return whether a restored state has this content."""
        rows = {(change.table, change.key): change.row for change in stored.changes}
        inbox = {number: replace(message, redelivered=False) for number, message in stored.inbox}
        return rows == self.rows and inbox == {
            number: replace(message, redelivered=False) for number, message in self.inbox.items()
        }


class WatchedStore(ChannelStore):
    """A store for one life of a participant."""

    def __init__(self, name: str, store: ChannelStore, kept: Kept, history: History) -> None:
        self._name = name
        self._store = store
        self._kept = kept
        self._watch = history

    def open(self, channel_id: str, sender_id: str, content_topic: str) -> Stored:
        """Open the store; note a violation if its state does not match the writes."""
        stored = self._store.open(channel_id, sender_id, content_topic)
        kept = self._kept
        while not kept.equals(stored) and kept.pending:
            self._confirm(kept.pending.popleft())
        kept.pending.clear()
        if not kept.equals(stored):
            text = f"{self._name} found {len(stored.changes)} rows and {len(stored.inbox)} messages in its store, "
            text += f"and had stored {len(kept.rows)} and {len(kept.inbox)}, or others"
            self._watch.store_differs(text)
        return stored

    def submit(self, write: Write, done: Callable[[StorageError | None], None], *, hurry: bool = True) -> None:
        """Submit a write."""
        self._kept.pending.append(write)

        def confirmed(error: StorageError | None) -> None:
            if error is None and self._kept.pending and self._kept.pending[0] is write:
                self._confirm(self._kept.pending.popleft())
            done(error)

        self._store.submit(write, confirmed, hurry=hurry)

    def _confirm(self, write: Write) -> None:
        self._kept.apply(write)
        self._watch.stored(self._name, write)

    def request(self, request_id: str) -> StoredRequest | None:
        """Return a request."""
        return self._store.request(request_id)

    def message(self, number: int) -> MessageReceived | None:
        """Return a message of the inbox."""
        return self._store.message(number)

    def history(self, before: OrderKey | None, limit: int) -> HistoryPage:
        """Return a page of the channel's history."""
        return self._store.history(before, limit)

    def close(self) -> None:
        """Close the store."""
        self._store.close()
