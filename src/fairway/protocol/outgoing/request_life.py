"""The life of a send, as a table: its states, and the next state for each step.

`RequestTable.step` takes every step by this table, and docs/protocol.md draws it. A send in any state but FORGOTTEN is
persisted, so a restart changes no state.

A failed send may still be acknowledged when an absent participant returns. Then it is delivered late. Until then the
channel retransmits an OVERDUE send at the falling rate of `fairway.protocol.outgoing.overdue`.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class RequestState(Enum):
    """The state of a send."""

    OPEN = "open"
    """The channel transmits its segments, and retransmits them every retry interval."""
    OVERDUE = "overdue"
    """It failed: its retries are used up. The channel retransmits it at a falling rate. Its acknowledgements count."""
    EXPIRED = "expired"
    """It failed: its deadline has passed, or a part of it can never be sent. The channel does not retransmit it. Its
    acknowledgements count."""
    DELIVERED = "delivered"
    """It has the required acknowledgements. They are kept, because a repeated ``send`` may require more."""
    FORGOTTEN = "forgotten"
    """No state of it remains."""


class RequestStep(Enum):
    """An event in the life of a send."""

    ACKNOWLEDGED = "acknowledged as asked"
    EXHAUSTED = "the retries are used up"
    DEADLINE = "the deadline passes"
    UNSENDABLE = "it can never be sent"
    UNSENDABLE_PART = "a part can never be sent, and later messages cite another"
    SENT_AGAIN = "sent again with its request id"
    EVICTED = "newer ones need the room"


_STATE, _STEP = RequestState, RequestStep

LIFE: Final[Mapping[RequestState, Mapping[RequestStep, RequestState]]] = {
    _STATE.OPEN: {
        _STEP.ACKNOWLEDGED: _STATE.DELIVERED,
        _STEP.EXHAUSTED: _STATE.OVERDUE,
        _STEP.DEADLINE: _STATE.EXPIRED,
        _STEP.UNSENDABLE: _STATE.FORGOTTEN,
        _STEP.UNSENDABLE_PART: _STATE.EXPIRED,
    },
    _STATE.OVERDUE: {
        _STEP.ACKNOWLEDGED: _STATE.DELIVERED,
        _STEP.DEADLINE: _STATE.EXPIRED,
        _STEP.UNSENDABLE: _STATE.FORGOTTEN,
        _STEP.UNSENDABLE_PART: _STATE.EXPIRED,
        _STEP.SENT_AGAIN: _STATE.OPEN,
        _STEP.EVICTED: _STATE.FORGOTTEN,
    },
    _STATE.EXPIRED: {
        _STEP.ACKNOWLEDGED: _STATE.DELIVERED,
        _STEP.UNSENDABLE: _STATE.FORGOTTEN,
        _STEP.UNSENDABLE_PART: _STATE.EXPIRED,
        _STEP.SENT_AGAIN: _STATE.OPEN,
        _STEP.EVICTED: _STATE.FORGOTTEN,
    },
    _STATE.DELIVERED: {
        _STEP.SENT_AGAIN: _STATE.OPEN,
        _STEP.EVICTED: _STATE.FORGOTTEN,
    },
}
"""The next state for each state and step; a missing step cannot happen in that state."""

FAILED: Final = frozenset({RequestState.OVERDUE, RequestState.EXPIRED})
"""States of a send that failed and may still be acknowledged."""
