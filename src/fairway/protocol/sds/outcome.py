"""What the SDS layer tells the layer above, in the order in which it happened."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from fairway.events import LossReason
from fairway.protocol.sds.acknowledgements import Review
from fairway.wire.sds import HistoryEntry, Kind, SdsMessage


class Ignored(Enum):
    """Why a received message changed nothing."""

    FOREIGN_CHANNEL = "foreign-channel"
    OWN = "own"
    DUPLICATE = "duplicate"
    """Its sender seems not to know that it is here."""
    FORGED = "forged"
    """It bears an id that is not its own: our sender id without being ours, or the id of another message."""
    FORGOTTEN = "forgotten"
    """It stands before the window of the history that is kept, and so counts as received long ago."""
    NO_ROOM = "no-room"
    """It would have to wait, and there is no room: it was not received, and has to come again."""
    ANSWER = "answer"
    """A duplicate that answers somebody's repair request: it tells nothing about what its sender knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageIgnored:
    """A message was received and not looked at further."""

    message_id: str
    why: Ignored


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageArrived:
    """A message of another participant was received for the first time, whatever its dependencies."""

    message: SdsMessage
    kind: Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReady:
    """A content message is in the history now: everything that it depends on is there, or was declared lost."""

    message: SdsMessage
    dependencies_met: bool
    """False if a dependency was declared lost."""

    @property
    def message_id(self) -> str:
        """Return the id of the message."""
        return self.message.message_id


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnMessageRecovered:
    """A message of ours that this process had forgotten came back and is in the history again."""

    message_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderIdShared:
    """A message under our sender id came that this participant did not send: another process speaks under our name."""

    message_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DependenciesMissing:
    """Messages are cited that are neither here nor declared lost."""

    entries: tuple[HistoryEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DependenciesLost:
    """Messages were missing for so long that nobody waits for them any more."""

    entries: tuple[HistoryEntry, ...]
    reason: LossReason = LossReason.TIMEOUT


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReviewed:
    """Evidence about an own message came in."""

    review: Review


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairScheduled:
    """A missing message will be asked for."""

    message_id: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairRequested:
    """Another participant asks for messages."""

    message_ids: tuple[str, ...]
    participant: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseScheduled:
    """A message that was asked for will be broadcast again unless somebody else does."""

    message_id: str
    at_ms: int


SdsOutcome = (
    MessageIgnored
    | MessageArrived
    | MessageReady
    | OwnMessageRecovered
    | SenderIdShared
    | DependenciesMissing
    | DependenciesLost
    | MessageReviewed
    | RepairScheduled
    | RepairRequested
    | ResponseScheduled
)
