"""The life of a segment on its way out, as a table: in which state it is, and what each step makes of it.

`RequestTable.move` takes every step of an SDS message by this table. docs/protocol.md draws it. A step that is not in
the table is a fault of this library, never of the network: `move` raises `KeyError`. Two states come otherwise:

* A segment in the outbox is no SDS message yet, and where it is says its state. From there the table gives the first
  state of the SDS message; that the request may end before is only drawn.
* States are not stored. After a restart a segment of which an attempt counts is SENT, and another one ENCRYPTING.

Acknowledgements are no states: they may come at any time, also while the segment is on its way again, and several
participants give them (`fairway.protocol.outgoing.request`).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class SegmentState(Enum):
    """Where a segment is on its way out."""

    OUTBOX = "in the outbox"
    """It is no SDS message yet (`fairway.protocol.outgoing.pending_segments`)."""
    ENCRYPTING = "being encrypted"
    """It is an SDS message and passes the encryption hook."""
    QUEUED = "queued"
    """It waits until the rate limit and the node's pace let it leave."""
    IN_FLIGHT = "in flight"
    """The node has it and has not answered."""
    SENT = "sent"
    """The node took it. It is sent again unless it is acknowledged in time; parity is not."""
    POSTPONED = "postponed"
    """It did not leave this time, and is tried again later."""
    HELD = "held"
    """It is to be sent again, once fewer others are (``max_active_retries``)."""
    ENDED = "ended"
    """Its send was delivered or forgotten."""


class SegmentStep(Enum):
    """What happens to a segment."""

    TAKEN_OUT = "its turn comes"
    ENCRYPTED = "encrypted"
    NOT_ENCRYPTED = "the hook fails"
    HANDED_OUT = "handed to the node"
    TAKEN = "the node takes it"
    PUT_BACK = "the node refuses it"
    NOT_TAKEN = "the node refuses it too often"
    DISPLACED = "the queue is full"
    UNNEEDED = "not needed any more"
    DUE = "sent again"
    HOLD = "too many others are due"
    REQUEST_ENDS = "the send ends"
    REOPENED = "more is wanted of it"


_STATE, _STEP = SegmentState, SegmentStep

LIFE: Final[Mapping[SegmentState, Mapping[SegmentStep, SegmentState]]] = {
    _STATE.OUTBOX: {
        _STEP.TAKEN_OUT: _STATE.ENCRYPTING,
        _STEP.REQUEST_ENDS: _STATE.ENDED,
    },
    _STATE.ENCRYPTING: {
        _STEP.ENCRYPTED: _STATE.QUEUED,
        _STEP.NOT_ENCRYPTED: _STATE.POSTPONED,
        _STEP.REQUEST_ENDS: _STATE.ENDED,
    },
    _STATE.QUEUED: {
        _STEP.HANDED_OUT: _STATE.IN_FLIGHT,
        _STEP.UNNEEDED: _STATE.SENT,
        _STEP.DISPLACED: _STATE.POSTPONED,
        _STEP.REQUEST_ENDS: _STATE.ENDED,
    },
    _STATE.IN_FLIGHT: {
        _STEP.TAKEN: _STATE.SENT,
        _STEP.PUT_BACK: _STATE.QUEUED,
        _STEP.NOT_TAKEN: _STATE.POSTPONED,
        _STEP.REQUEST_ENDS: _STATE.ENDED,
    },
    _STATE.SENT: {
        _STEP.DUE: _STATE.ENCRYPTING,
        _STEP.HOLD: _STATE.HELD,
        _STEP.REQUEST_ENDS: _STATE.ENDED,
    },
    _STATE.POSTPONED: {
        _STEP.DUE: _STATE.ENCRYPTING,
        _STEP.HOLD: _STATE.HELD,
        _STEP.REQUEST_ENDS: _STATE.ENDED,
    },
    _STATE.HELD: {
        _STEP.DUE: _STATE.ENCRYPTING,
        _STEP.UNNEEDED: _STATE.SENT,
        _STEP.REQUEST_ENDS: _STATE.ENDED,
    },
    _STATE.ENDED: {
        _STEP.REOPENED: _STATE.SENT,
    },
}
"""What each step makes of each state; a step that is not here cannot happen in it."""

UNDER_WAY: Final = frozenset({SegmentState.ENCRYPTING, SegmentState.QUEUED, SegmentState.IN_FLIGHT})
"""States in which a segment is between SDS and the node's answer."""
