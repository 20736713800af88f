"""What a store that does not say how it is makes of an answer (13/WAKU2-STORE names no proof that one is complete).

A lie is about one answer: the store keeps what it has, and says it when it is asked again and tells the truth. It omits
messages, ends before the end, leads back to where it was, adds what nobody asked for, or gives a message whose bytes
are not those that its hash is of.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum

from fairway.waku.node import RoutedMessage, StorePage, StoreQuery
from fairway.wire.waku_message import encode_waku_message

_MOST_ADDED = 3


class Lie(Enum):
    """A way in which an answer is false."""

    OMITS = "omits messages"
    ENDS_EARLY = "ends before the end"
    REPEATS = "leads back to where it was"
    ADDS = "adds messages that nobody asked for"
    FORGES = "gives other bytes than those that the hash is of"


def false_page(
    page: StorePage,
    query: StoreQuery,
    cursor: bytes | None,
    *,
    anything: Callable[[], Sequence[RoutedMessage]],
    dice: random.Random,
) -> StorePage:
    """Return what a store says instead of ``page``, its answer to ``query`` at ``cursor``.

    ``anything`` returns some messages that the store has, asked for or not.
    """
    messages = page.messages
    match dice.choice(list(Lie)):
        case Lie.OMITS:
            return replace(page, messages=tuple(message for message in messages if dice.random() < 0.5))
        case Lie.ENDS_EARLY:
            kept = len(messages) // 2
            return StorePage(messages=messages[len(messages) - kept :] if query.newest_first else messages[:kept])
        case Lie.REPEATS:
            first = (messages[-1 if query.newest_first else 0].message_hash) if messages else None
            return replace(page, cursor=first if cursor is None else cursor)
        case Lie.ADDS:
            asked_for = {message.message_hash for message in messages}
            others = [message for message in anything() if message.message_hash not in asked_for]
            added = dice.sample(others, min(_MOST_ADDED, len(others)))
            return replace(page, messages=(*messages, *added))
        case Lie.FORGES:
            if not messages:
                return page
            place = dice.randrange(len(messages))
            return replace(page, messages=(*messages[:place], _forged(messages[place], dice), *messages[place + 1 :]))


def _forged(message: RoutedMessage, dice: random.Random) -> RoutedMessage:
    """Return a message with one bit of its payload turned, under the hash that it had."""
    payload = bytearray(message.message.payload or b"\0")
    payload[dice.randrange(len(payload))] ^= 1 << dice.randrange(8)
    altered = replace(message.message, payload=bytes(payload))
    return replace(message, message=altered, encoded=encode_waku_message(altered))
