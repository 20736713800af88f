"""The life of a send, as a table: its states, and what each step makes of each state.

`RequestTable.step` takes every step by this table, and docs/protocol.md draws it. A send in any state but FORGOTTEN has
rows, so that a restart changes no state.

A send that failed is not over. Its acknowledgement may come as soon as an absent participant returns: then it is
delivered late. Until then an OVERDUE send is sent again at the falling rate of `fairway.protocol.outgoing.overdue`.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class RequestState(Enum):
    """How far a send is."""

    OPEN = "open"
    """Its segments are sent, and sent again every retry interval."""
    OVERDUE = "overdue"
    """Its retries are used up: it failed. It is sent again at a falling rate, and its acknowledgements count."""
    EXPIRED = "expired"
    """It failed: its deadline has passed, or a part of it can never be sent. It is not sent again. Its acknowledgements
    count."""
    DELIVERED = "delivered"
    """It was acknowledged as asked. Its acknowledgements are remembered, because more may be asked of it."""
    FORGOTTEN = "forgotten"
    """The protocol knows nothing of it any more."""


class RequestStep(Enum):
    """What happens to a send."""

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
"""What each step makes of each state; a step that is not here cannot happen in it."""

FAILED: Final = frozenset({RequestState.OVERDUE, RequestState.EXPIRED})
"""States of a send that failed and may still be acknowledged."""
