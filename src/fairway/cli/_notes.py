"""Lines for a person at a terminal about the node and the troubles of a channel."""

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
    """A line and its style."""

    text: str
    style: str


class Notes:
    """Turns events into notes; of the node's status only a lost and a restored connection give one."""

    def __init__(self, sender_id: str) -> None:
        """Make the notes of a participant."""
        self._sender_id = sender_id
        self._is_away = False

    def of(self, event: Event) -> Note | None:
        """Return the note for an event; None if it gives none."""
        match event:
            case NodeStatusChanged(connected=connected, detail=detail) if connected is self._is_away:
                self._is_away = not connected
                if connected:
                    return Note("the node is back", "green")
                why = f" ({detail})" if detail else ""
                return Note(visible(f"the node cannot be reached{why}; your messages are sent when it is back"), "red")
            case MessagesUndecryptable(count=count, opened=opened):
                what = "a message" if count == 1 else counted(count, "message")
                others = (
                    "is your key the right one?"
                    if not opened
                    else "they belong to another channel, or have another key"
                )
                return Note(f"{what} could not be opened: {others}", "yellow")
            case SenderIdInUse():
                return Note(
                    visible(
                        f"another participant uses the name {self._sender_id}: end that program or choose another name"
                    ),
                    "red",
                )
            case ForeignMessages(channel_id=other):
                return Note(visible(f"messages of another channel, {other}, arrive on this content topic"), "yellow")
            case SendingBlocked(detail=detail):
                return Note(visible(f"nothing can be sent: {detail or 'the node gives no reason'}"), "red")
            case IrretrievableMessage(sender_id=sender, reason=reason):
                return Note(visible(f"a message of {sender or 'an unknown sender'} is lost ({reason.value})"), "red")
            case StoreRefused(is_left_out=is_left_out, detail=detail):
                what = "one second of messages, now skipped" if is_left_out else "all earlier messages"
                return Note(visible(f"the store refuses {what}; messages may be missing ({detail})"), "yellow")
            case LimitReached(limit=limit, bound=bound):
                return Note(f"the limit of {limit.value} is reached ({bound})", "yellow")
        return None
