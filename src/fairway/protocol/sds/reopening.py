"""Waiting again for acknowledgements of own messages that nobody waited for any more.

While nobody waits for a message it costs nothing: nothing that is received is held against it. What is lost meanwhile
is who descends from it, and that is found out anew from the messages that are kept whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fairway.protocol.sds.acknowledgements import ACKNOWLEDGEMENTS, OUTGOING, Evidence, OutgoingMessage
from fairway.protocol.sds.channel import MessageChannel


class Waited(NamedTuple):
    """What was known of an own message when the waiting for it ended."""

    sequence: int
    """Its number among own messages."""
    acknowledged_by: dict[str, Evidence]


def wait_again(channel: MessageChannel, message_ids: Iterable[tuple[str, Waited]]) -> None:
    """Wait again for the acknowledgement of own messages, which have to be among the retained ones."""
    first_order: int | None = None
    for message_id, waited in message_ids:
        encoded = channel.retained.encoded(message_id)
        if encoded is None:
            continue
        channel.outgoing.messages[message_id] = OutgoingMessage(
            message=channel.dialect.codec.decode(encoded),
            sequence=waited.sequence,
            positions=channel.bloom.positions(message_id),
            acknowledged_by=dict(waited.acknowledged_by),
        )
        channel.journal.touch(OUTGOING, message_id)
        channel.journal.touch(ACKNOWLEDGEMENTS, message_id)
        order = channel.retained.order(message_id)
        first_order = order if first_order is None else min(first_order, order)
    if first_order is not None:
        _find_descendants(channel, first_order)


def _find_descendants(channel: MessageChannel, first_order: int) -> None:
    """Note who descends from own messages, of all that entered the history from the first of them on."""
    own = channel.outgoing.messages
    for message_id in list(channel.retained):
        if channel.retained.order(message_id) < first_order:
            continue
        encoded = channel.retained.encoded(message_id)
        if encoded is not None:
            message = channel.dialect.codec.decode(encoded)
            channel.outgoing.ancestry.record(message_id, message.causal_history, own)
