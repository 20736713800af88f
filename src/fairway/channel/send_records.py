"""`SendRecords`: the records of a send in the store: the request, its message, and the place of the message."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from fairway.events import DeliveryError, Event, MessageDelivered, OrderKey
from fairway.protocol.effects import Placed
from fairway.storage.channel_store import ChannelStore, MessagePlace, OwnMessage, SendOutcome, StoredRequest, Write
from fairway.wire.file_message import file_header


class SendRecords:
    """Makes the records of sends, and the numbers of messages."""

    def __init__(self, store: ChannelStore) -> None:
        self.next_number = 0
        """The first unused message number."""
        self._store = store
        self._open: dict[str, StoredRequest] = {}
        """The requests of this start that have not ended."""

    def take_number(self) -> int:
        """Return a new message number."""
        self.next_number += 1
        return self.next_number - 1

    def accepted(
        self,
        request_id: str,
        message_id: str,
        payload: bytes,
        places: Mapping[str, OrderKey],
        lamport: int,
        now_ms: int,
        *,
        is_repeated: bool = False,
    ) -> Write:
        """Return the request, the message and the place of a send; nothing if it only asks more of a delivered one.

        ``places`` has the places of sent messages by request id. An unsent one has the place ``lamport``, after all
        messages that the channel had when it was accepted.
        """
        known = self._store.request(request_id) if is_repeated else None
        if known is not None and known.outcome is SendOutcome.DELIVERED:
            return Write()
        if request_id in self._open:
            return Write(requests=(self._open[request_id],))
        number, earlier = (None, None) if known is None else (known.number, known.order_key)
        if number is None:
            number = self.take_number()
        key = places.get(request_id) or earlier or OrderKey(lamport, request_id)
        if known is not None and known.outcome is SendOutcome.OPEN:
            request = replace(known, number=number, order_key=key)
        else:
            request = StoredRequest(
                request_id=request_id,
                message_id=message_id,
                size_bytes=len(payload),
                accepted_at_ms=now_ms,
                file_header=file_header(payload),
                number=number,
                order_key=key,
            )
        self._open[request_id] = request
        own = OwnMessage(
            request_id=request_id, message_id=message_id, payload=payload, accepted_at_ms=request.accepted_at_ms
        )
        return Write(
            requests=(request,), sent=((number, own),), placed=(MessagePlace(number, len(payload), key, earlier),)
        )

    def placed(self, effect: Placed) -> tuple[StoredRequest, MessagePlace] | None:
        """Return the request of a send whose message got another place, and that place; None if nothing changed."""
        known = self._open.get(effect.request_id) or self._store.request(effect.request_id)
        if known is None or known.number is None or known.order_key == effect.order_key:
            return None
        moved = replace(known, order_key=effect.order_key)
        if effect.request_id in self._open:
            self._open[effect.request_id] = moved
        return moved, MessagePlace(known.number, known.size_bytes, effect.order_key, known.order_key)

    def ended(self, event: Event, now_ms: int) -> StoredRequest | None:
        """Return the request that an event ends, with its outcome; None if it ends none."""
        if not isinstance(event, MessageDelivered | DeliveryError):
            return None
        known = self._open.pop(event.request_id, None) or self._store.request(event.request_id)
        if known is None:
            return None
        if isinstance(event, MessageDelivered):
            names = tuple(sorted({*known.delivered_to, *event.delivered_to}))
            return replace(
                known, outcome=SendOutcome.DELIVERED, ended_at_ms=event.at_ms, delivered_to=names, failure=None
            )
        if known.outcome is SendOutcome.DELIVERED:
            # A repeated send asked for more and failed; the first one stays delivered.
            return None
        return replace(known, outcome=SendOutcome.FAILED, ended_at_ms=now_ms, failure=event)

    def settled(self, request_id: str) -> StoredRequest | None:
        """Return a request as settled (`ReliableChannel.settle`); None if it is unknown or settled already."""
        known = self._open.get(request_id) or self._store.request(request_id)
        if known is None or known.is_settled:
            return None
        settled = replace(known, is_settled=True)
        if request_id in self._open:
            self._open[request_id] = settled
        return settled
