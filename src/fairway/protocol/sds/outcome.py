"""The judgement of a received message, and the outcomes that SDS returns to the layer above in order of events."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from fairway.events import LossReason
from fairway.protocol.sds.acknowledgements import Review
from fairway.wire.sds import HistoryEntry, Kind, SdsMessage


class Judgement(Enum):
    """The kinds of received messages (`fairway.protocol.sds.channel.MessageChannel.judge`)."""

    FOREIGN = "of another channel"
    OWN = "of our sender id"
    NO_CONTENT = "an ephemeral or a sync message"
    NEW = "new content"
    SECOND = "new content under the id of a message that has another content"
    KNOWN = "content that was received before"
    FORGED = "content under the id of another message"
    FORGOTTEN = "older than the history"
    NO_ROOM = "new content for which the incoming buffer has no room"

    @property
    def is_new_content(self) -> bool:
        """Whether SDS accepts, and so acknowledges, the content."""
        return self is Judgement.NEW or self is Judgement.SECOND


class ContentRefusal(Enum):
    """Why the layer above refused the content of a message (`fairway.protocol.sds.channel.MessageChannel.refuse`)."""

    NO_ROOM = "no room"
    """Acceptable later."""
    USELESS = "useless"
    """Of a message that was given up, or that does not match its hash."""
    INVALID = "invalid"
    """Invalid; another message may have its id."""


class Ignored(Enum):
    """Why a received message was ignored."""

    FOREIGN_CHANNEL = "foreign-channel"
    OWN = "own"
    DUPLICATE = "duplicate"
    """Received before; its sender seems not to have an acknowledgement."""
    FORGED = "forged"
    """Not ours despite our sender id, or not the owner of its id."""
    FORGOTTEN = "forgotten"
    """Ordered before the window of the history, so that it counts as received long ago."""
    NO_ROOM = "no-room"
    """Turned away, because it needs parking and the buffer is full: not received, to be transmitted again."""
    ANSWER = "answer"
    """Received before, and an answer to a repair request: its sender may have the acknowledgement."""


class MessageIgnored(Struct, frozen=True, kw_only=True):
    """A message was ignored."""

    message_id: str
    why: Ignored


class MessageArrived(Struct, frozen=True, kw_only=True):
    """A message of another participant was received for the first time; its dependencies may be missing."""

    message: SdsMessage
    kind: Kind


class MessageReady(Struct, frozen=True, kw_only=True):
    """A content message entered the history: each dependency is in the history, lost or skipped."""

    message: SdsMessage
    dependencies_met: bool
    """False if a dependency was declared lost or skipped."""

    @property
    def message_id(self) -> str:
        """Return the id of the message."""
        return self.message.message_id


class SenderIdShared(Struct, frozen=True, kw_only=True):
    """Another process uses our sender id: a message with it arrived that this participant did not send."""

    message_id: str


class DependenciesMissing(Struct, frozen=True, kw_only=True):
    """These cited messages have neither arrived nor been declared lost."""

    entries: tuple[HistoryEntry, ...]


class DependenciesLost(Struct, frozen=True, kw_only=True):
    """These messages were given up: no message waits for them any more."""

    entries: tuple[HistoryEntry, ...]
    reason: LossReason = LossReason.TIMEOUT


class MessageReviewed(Struct, frozen=True, kw_only=True):
    """A received message gave evidence about an own message."""

    review: Review


SdsOutcome = (
    MessageIgnored
    | MessageArrived
    | MessageReady
    | SenderIdShared
    | DependenciesMissing
    | DependenciesLost
    | MessageReviewed
)
