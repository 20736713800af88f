"""The life of a message on its way in, as a table: in which state its content is, and what each step makes of it.

A state says what is held of the content of one SDS message, which is a whole message or one segment of a longer one. A
message of several segments is delivered with the first of them that came, because that one waits for everything that
was sent before. `Undelivered` looks a step up here where the state decides what it does. Three are only drawn: content
that is refused, segments that are given up, and a complete message that SDS releases. docs/protocol.md draws the table.

What SDS itself waits for is no state here: it says when an SDS message is in its causal place
(`fairway.protocol.sds.channel`). With ``delivery=Delivery.ARRIVAL`` the application does not wait for that.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class MessageState(Enum):
    """Where the content of an SDS message is on its way to the application."""

    NEW = "new"
    """It was decrypted and decoded, and is shown to the reassembler."""
    REFUSED = "refused"
    """It was not kept, so that SDS does not acknowledge it: it comes again."""
    WAITING = "whole, out of place"
    """It is a whole message, and SDS waits for what it cites."""
    INCOMPLETE = "segment, out of place"
    """It is a segment, its message lacks others, and SDS waits for what it cites."""
    IN_PLACE = "segment, in place"
    """It is a segment, its message lacks others, and SDS has delivered it."""
    COMPLETE = "complete, out of place"
    """Its message is complete, and SDS waits for what this segment, the first that came, cites."""
    DELIVERED = "delivered"
    """The application has the message."""
    GIVEN_UP = "given up"
    """The other segments of its message did not come in time."""


class MessageStep(Enum):
    """What happens to the content of an SDS message."""

    KEPT_WHOLE = "kept, a whole message"
    KEPT_SEGMENT = "kept, a segment"
    NOT_KEPT = "no room, or not valid"
    RELEASED = "SDS delivers it"
    COMPLETED = "enough segments are here"
    EXPIRED = "nothing came for too long"


_STATE, _STEP = MessageState, MessageStep

LIFE: Final[Mapping[MessageState, Mapping[MessageStep, MessageState]]] = {
    _STATE.NEW: {
        _STEP.KEPT_WHOLE: _STATE.WAITING,
        _STEP.KEPT_SEGMENT: _STATE.INCOMPLETE,
        _STEP.NOT_KEPT: _STATE.REFUSED,
    },
    _STATE.WAITING: {
        _STEP.RELEASED: _STATE.DELIVERED,
    },
    _STATE.INCOMPLETE: {
        _STEP.RELEASED: _STATE.IN_PLACE,
        _STEP.COMPLETED: _STATE.COMPLETE,
        _STEP.EXPIRED: _STATE.GIVEN_UP,
    },
    _STATE.IN_PLACE: {
        # Another message under its id.
        _STEP.RELEASED: _STATE.IN_PLACE,
        _STEP.COMPLETED: _STATE.DELIVERED,
        _STEP.EXPIRED: _STATE.GIVEN_UP,
    },
    _STATE.COMPLETE: {
        _STEP.RELEASED: _STATE.DELIVERED,
    },
}
"""What each step makes of each state; a step that is not here cannot happen in it."""
