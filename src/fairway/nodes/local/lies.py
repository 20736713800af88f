"""False answers of a store, for tests (13/WAKU2-STORE has no proof that an answer is complete).

A false answer omits messages, ends early, or repeats an earlier cursor. It adds messages outside the query, or returns
a message with a wrong message hash. The next answer can be right.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum

from msgspec import structs

from fairway.nodes.node import RoutedMessage, StorePage, StoreQuery
from fairway.wire.waku_message import encode_waku_message

_MOST_ADDED = 3


class Lie(Enum):
    """The kinds of false answers."""

    OMITS = "omits messages"
    ENDS_EARLY = "ends before the end"
    REPEATS = "leads back to where it was"
    ADDS = "adds messages that were not asked for"
    FORGES = "gives other bytes than those that the hash is of"


def false_page(
    page: StorePage,
    query: StoreQuery,
    cursor: bytes | None,
    *,
    anything: Callable[[], Sequence[RoutedMessage]],
    dice: random.Random,
) -> StorePage:
    """Return a false version of ``page``, the answer to ``query`` at ``cursor``.

    ``anything`` returns messages of the store that the query may not ask for.
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
    """Return a message with one bit of its payload flipped, and the unchanged message hash."""
    payload = bytearray(message.message.payload or b"\0")
    payload[dice.randrange(len(payload))] ^= 1 << dice.randrange(8)
    altered = structs.replace(message.message, payload=bytes(payload))
    return replace(message, message=altered, encoded=encode_waku_message(altered))
