"""One line of the log for each kind of trouble of a channel, at a falling rate.

The log is for an operator who reads no events. A trouble that lasts repeats its event: a line for each would hide all
others. Each kind gets its first line at once, the next after a minute, and then at doubled intervals up to an hour. A
line gives the number of events without a line. An hour without an event ends the trouble.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple, get_args

from fairway.events import (
    DeliveryError,
    FailureReason,
    ForeignMessages,
    MessagesUndecryptable,
    SenderIdInUse,
    SendingBlocked,
    SignatureRefused,
)
from fairway.units import counted
from fairway.visible import visible

_LOG: Final = logging.getLogger("fairway.channel.trouble")
Trouble = SendingBlocked | MessagesUndecryptable | SenderIdInUse | ForeignMessages | SignatureRefused | DeliveryError
TROUBLES: Final = get_args(Trouble)
_FIRST_PAUSE_MS: Final = 60_000
_LONGEST_PAUSE_MS: Final = 3_600_000


class _Lines(NamedTuple):
    latest_ms: int
    """Time of the latest event."""
    line_ms: int
    """Time of the latest line."""
    pause_ms: int
    left_out: int


class TroubleLog:
    """Writes the troubles of one channel into the log."""

    def __init__(self, channel_id: str, sender_id: str) -> None:
        self._channel_id = channel_id
        self._sender_id = sender_id
        self._lines: dict[object, _Lines] = {}

    def note(self, event: Trouble, now_ms: int) -> None:
        """Write a line for a trouble if its line is due."""
        kind, text = self._said(event, now_ms)
        lines = self._lines.get(kind)
        if lines is None or not 0 <= now_ms - lines.latest_ms < _LONGEST_PAUSE_MS:
            lines = _Lines(now_ms, now_ms, _FIRST_PAUSE_MS, 0)
        elif now_ms - lines.line_ms < lines.pause_ms:
            self._lines[kind] = lines._replace(latest_ms=now_ms, left_out=lines.left_out + 1)
            return
        else:
            lines = _Lines(now_ms, now_ms, min(2 * lines.pause_ms, _LONGEST_PAUSE_MS), lines.left_out)
        left_out = f" ({lines.left_out} more since the last line)" if lines.left_out else ""
        _LOG.warning("channel %s: %s%s", visible(self._channel_id), visible(text), left_out)
        self._lines[kind] = lines._replace(left_out=0)

    def _said(self, event: Trouble, now_ms: int) -> tuple[object, str]:
        """Return the kind of a trouble, and the text of its line."""
        match event:
            case SendingBlocked(since_ms=since_ms, detail=detail, refusals=count):
                minutes = max(0, now_ms - since_ms) // 60_000
                text = f"nothing could be sent for {minutes} min ({count} refusals): {detail or 'no reason was given'}"
            case MessagesUndecryptable(count=count, opened=0):
                why = "the key is probably wrong, or the group has not handed it out yet"
                text = f"{counted(count, 'message')} could not be decrypted, nor any before: {why}"
            case MessagesUndecryptable(count=count):
                why = "a participant uses another key, or the group has a newer or an earlier one"
                text = f"{counted(count, 'message')} could not be decrypted: {why}"
            case SenderIdInUse(count=count):
                text = f"{counted(count, 'message')} came from another user of the sender id {self._sender_id}"
            case ForeignMessages(count=count, channel_id=channel_id):
                text = f"{counted(count, 'message')} of another channel, {channel_id}, came on the same content topic"
            case SignatureRefused(sender_id=name, fault=fault, signer=signer, count=count):
                by = f", signed by {signer}" if signer is not None else ""
                return (
                    fault,
                    f"{counted(count, 'message')} refused, the latest under the name {name} ({fault.value}{by})",
                )
            case DeliveryError(reason=reason, message_id=message_id, detail=detail, missing=missing):
                names = f"; not acknowledged by {', '.join(missing)}" if missing else ""
                goes_on = ", and is still tried" if reason is FailureReason.NOT_ACKNOWLEDGED else ""
                return reason, f"the send of message {message_id[:8]} has failed{goes_on}: {detail}{names}"
        return type(event), text
