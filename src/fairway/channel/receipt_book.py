"""`ReceiptBook`: finds the receipt of a request, and passes its events on to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from weakref import WeakValueDictionary

from fairway.channel.receipt import EphemeralReceipt, Progress, Receipt
from fairway.errors import ConfigurationError
from fairway.events import Event, MessageEvent
from fairway.storage.channel_store import ChannelStore, SendOutcome


class ReceiptBook:
    """The receipts that the application holds, by request id."""

    def __init__(
        self,
        store: ChannelStore,
        so_far: Callable[[str], Progress | None],
        is_unsaid: Callable[[SendOutcome, str], bool],
    ) -> None:
        """``so_far`` returns how far an open request is, also one of an earlier run.

        ``is_unsaid`` returns whether the event by which a request ended, with this outcome, is still to come.
        """
        self._store = store
        self._so_far = so_far
        self._is_unsaid = is_unsaid
        self._receipts: WeakValueDictionary[str, EphemeralReceipt] = WeakValueDictionary()

    def new(self, request_id: str, message_id: str) -> Receipt:
        """Return the receipt of a send; for a repeated one, the existing receipt."""
        known = self._receipts.get(request_id)
        if isinstance(known, Receipt):
            return known
        receipt = Receipt(request_id, message_id)
        self._receipts[request_id] = receipt
        return receipt

    def new_ephemeral(self, request_id: str, message_id: str) -> EphemeralReceipt:
        """Return the receipt of an ephemeral send."""
        receipt = EphemeralReceipt(request_id, message_id)
        self._receipts[request_id] = receipt
        return receipt

    def known(self, request_id: str, message_id: str) -> Receipt | None:
        """Return the receipt of an earlier request with this id, or None.

        Raises `ConfigurationError` if that request sent another message.
        """
        stored = self._store.request(request_id)
        if stored is None:
            return None
        if stored.message_id != message_id:
            raise ConfigurationError(
                f"request id {request_id!r} was used for another payload already; choose one id per message"
            )
        return self.get(request_id)

    def get(self, request_id: str) -> Receipt:
        """Return the receipt of a request of this or an earlier run; raise `ConfigurationError` if unknown."""
        known = self._receipts.get(request_id)
        if isinstance(known, Receipt):
            return known
        stored = self._store.request(request_id)
        if stored is None:
            raise ConfigurationError(f"request {request_id!r} is unknown here; give an id that send returned")
        if stored.outcome is not SendOutcome.OPEN and self._is_unsaid(stored.outcome, request_id):
            # How it ended is not durable yet, and the event will tell it.
            stored = replace(stored, outcome=SendOutcome.OPEN, failure=None)
        receipt = Receipt.of_stored(stored, self._so_far(request_id))
        self._receipts[request_id] = receipt
        return receipt

    def observe(self, event: Event) -> None:
        """Pass an event of a request on to its receipt."""
        receipt = self._receipts.get(event.request_id) if isinstance(event, MessageEvent) else None
        if receipt is not None:
            receipt.observe(event)

    def end(self, failure: BaseException) -> None:
        """Raise ``failure`` in everything that waits for a receipt."""
        for receipt in list(self._receipts.values()):
            receipt.end(failure)
        self._receipts.clear()
