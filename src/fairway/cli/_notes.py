"""What a person at a terminal should hear of while messages come and go, in a line each."""

from __future__ import annotations

from typing import NamedTuple

from fairway.events import (
    Event,
    ForeignMessages,
    IrretrievableMessage,
    LimitReached,
    MessagesUndecryptable,
    NodeStatusChanged,
    SenderIdInUse,
    SendingBlocked,
    StoreRefused,
)
from fairway.units import counted
from fairway.visible import visible


class Note(NamedTuple):
    """A line, and how it looks."""

    text: str
    style: str


class Notes:
    """Turns events into notes; remembers whether the node is there, for only its coming and going is worth a line."""

    def __init__(self, sender_id: str) -> None:
        """Make the notes of a participant."""
        self._sender_id = sender_id
        self._is_away = False

    def of(self, event: Event) -> Note | None:
        """Return the note that an event is worth, if it is."""
        match event:
            case NodeStatusChanged(connected=connected, detail=detail) if connected is self._is_away:
                self._is_away = not connected
                if connected:
                    return Note("the node is back", "green")
                why = f" ({detail})" if detail else ""
                return Note(visible(f"the node is not there{why}; what you send goes out when it is back"), "red")
            case MessagesUndecryptable(count=count, opened=opened):
                what = "a message" if count == 1 else counted(count, "message")
                others = "is your key the right one?" if not opened else "of another channel, or under another key"
                return Note(f"{what} could not be opened: {others}", "yellow")
            case SenderIdInUse():
                return Note(
                    visible(f"somebody else speaks as {self._sender_id}: end the other program or take another name"),
                    "red",
                )
            case ForeignMessages(channel_id=other):
                return Note(visible(f"messages of another channel, {other}, come on this content topic"), "yellow")
            case SendingBlocked(detail=detail):
                return Note(visible(f"nothing can be sent: {detail or 'the node gives no reason'}"), "red")
            case IrretrievableMessage(sender_id=sender, reason=reason):
                return Note(visible(f"a message of {sender or 'somebody'} is lost ({reason.value})"), "red")
            case StoreRefused(is_left_out=is_left_out, detail=detail):
                what = "a second that is left out" if is_left_out else "all that was sent before"
                return Note(visible(f"the store refuses {what}; messages may be missing ({detail})"), "yellow")
            case LimitReached(limit=limit, bound=bound):
                return Note(f"the limit of {limit.value} is reached ({bound})", "yellow")
        return None
