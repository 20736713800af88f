"""Lines for a person at a terminal about the node and the troubles of a channel."""

from __future__ import annotations

from typing import Final, NamedTuple

from fairway.events import (
    Event,
    ForeignMessages,
    IrretrievableMessage,
    LimitReached,
    MemberTrusted,
    MessagesUndecryptable,
    NodeStatusChanged,
    SenderIdInUse,
    SendingBlocked,
    SignatureFault,
    SignatureRefused,
    StoreRefused,
)
from fairway.protocol.signing import public_key_text
from fairway.units import counted
from fairway.visible import visible

_FAULTS: Final = {
    SignatureFault.UNSIGNED: "it is not signed",
    SignatureFault.WRONG_KEY: "the signature is wrong",
    SignatureFault.KEY_CHANGED: "the key has changed; 'fairway identity trust' accepts the new one",
    SignatureFault.UNKNOWN_MEMBER: "the name has no key in the list of members",
}


def refusal_text(sender: str, fault: SignatureFault, signer: str | None) -> str:
    """Return a line about a refused message."""
    by = f", and {signer} signed it" if signer is not None else ""
    return f"a message under the name {sender} was refused: {_FAULTS[fault]}{by}"


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
            case SignatureRefused(sender_id=sender, fault=fault, signer=signer):
                return Note(visible(refusal_text(sender, fault, signer)), "red")
            case MemberTrusted(sender_id=sender, public_key=key):
                return Note(
                    visible(f"{sender} is here for the first time, with the key {public_key_text(key)}"), "yellow"
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
