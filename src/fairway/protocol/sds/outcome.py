"""What SDS judges a received message to be, and what it returns to the layer above, in the order of the events."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from fairway.events import LossReason
from fairway.protocol.sds.acknowledgements import Review
from fairway.wire.sds import HistoryEntry, Kind, SdsMessage


class Judgement(Enum):
    """What a received message is to this participant (`fairway.protocol.sds.channel.MessageChannel.judge`)."""

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
        """Whether SDS takes in its content, and so acknowledges it."""
        return self in {Judgement.NEW, Judgement.SECOND}


class ContentRefusal(Enum):
    """Why the layer above refused the content of a message (`fairway.protocol.sds.channel.MessageChannel.refuse`)."""

    NO_ROOM = "no room"
    """It can be taken in later."""
    USELESS = "useless"
    """Its message was given up."""
    INVALID = "invalid"
    """Another message may have its id."""


class Ignored(Enum):
    """Why a received message changed nothing."""

    FOREIGN_CHANNEL = "foreign-channel"
    OWN = "own"
    DUPLICATE = "duplicate"
    """It was received before. Its sender seems not to know that."""
    FORGED = "forged"
    """It has our sender id without being ours, or the id of another message."""
    FORGOTTEN = "forgotten"
    """It stands before the messages that the history keeps, and so counts as received long ago."""
    NO_ROOM = "no-room"
    """It would have to be parked, and there is no room: it was not received, and has to come again."""
    ANSWER = "answer"
    """It was received before, and is an answer to a repair request: it says nothing about what its sender knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageIgnored:
    """A message came and was ignored."""

    message_id: str
    why: Ignored


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageArrived:
    """A message of another participant was received for the first time, whatever its dependencies."""

    message: SdsMessage
    kind: Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReady:
    """A content message is in the history now: each of its dependencies is, too, was declared lost, or gone around."""

    message: SdsMessage
    dependencies_met: bool
    """False if a dependency was declared lost, or the message was delivered around it."""

    @property
    def message_id(self) -> str:
        """Return the id of the message."""
        return self.message.message_id


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderIdShared:
    """A message with our sender id came that this participant did not send: another process uses the same sender id."""

    message_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DependenciesMissing:
    """These messages are cited, and neither here nor declared lost."""

    entries: tuple[HistoryEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DependenciesLost:
    """These messages were missing for too long: no message waits for them any more."""

    entries: tuple[HistoryEntry, ...]
    reason: LossReason = LossReason.TIMEOUT


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReviewed:
    """Evidence about an own message came in."""

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
