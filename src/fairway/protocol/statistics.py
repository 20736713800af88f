"""The counters of a channel."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from fairway.protocol.effects import Purpose
from fairway.protocol.segmentation.outcomes import ReassemblyStatistics


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A missing message that other messages cite, and the messages that wait for it."""

    message_id: str
    """SDS message id."""
    sender_id: str | None
    """Its author, if a citation names it."""
    since_ms: int
    """Time of its first citation that was received, in Unix milliseconds."""
    waiting: tuple[tuple[str, str], ...]
    """Sender id and SDS message id of each received message that waits for the missing one; first those that cite
    it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackStatistics:
    """Counts since the stack was made, and its present contents."""

    received: int
    """WakuMessages on the channel's topic that passed the checks of size, version and marker."""
    duplicates: int
    """SDS messages that were received before, in another transmission."""
    repeated: int
    """Transmissions that were received again, for example from a second node or from a store."""
    own: int
    """Own messages that were received."""
    forged: int
    """Messages of another program under our sender id, or under the id of another message."""
    foreign_topic: int
    """WakuMessages of another content topic."""
    foreign_channel: int
    """SDS messages of another channel on the same topic."""
    unmarked: int
    """WakuMessages without the marker of the Logos profile."""
    oversized: int
    """WakuMessages above the size limit, which were not processed."""
    undecryptable: int
    """WakuMessages that are not encrypted for this channel, or have another version."""
    undecodable: int
    """WakuMessages without an SDS message after decryption, or with a timestamp beyond 64 bits."""
    unverified: int
    """Messages that the key of the member that they name did not sign (`fairway.events.SignatureRefused`)."""
    not_kept: int
    """Segments that the reassembler refused; ``reassembly`` has the reasons."""
    reassembly: ReassemblyStatistics
    """Outcomes of received segments."""
    forgotten: int
    """Messages older than the local history (``sds.max_history``)."""
    no_room: int
    """Messages that were rejected because they must wait for others and the buffer was full."""
    not_taken: int
    """Transmissions that the node did not take."""
    not_encrypted: int
    """Retries, repairs or sync messages that the encryption hook did not encrypt."""
    refused: int
    """Repairs or sync messages that can never be sent."""
    transmissions: Mapping[Purpose, int]
    """WakuMessages handed to the node, by purpose."""
    transmitted_bytes: Mapping[Purpose, int]
    """Encoded bytes of these WakuMessages, by purpose."""
    history: int
    """Messages in the local history."""
    retained: int
    """Messages that are kept to answer repair requests."""
    unacknowledged: int
    """Own SDS messages that wait for acknowledgement."""
    parked: int
    """Messages that wait for their dependencies."""
    parked_bytes: int
    """Approximate memory of the parked messages."""
    awaiting: int
    """Complete messages that wait for their dependencies."""
    awaiting_bytes: int
    """Bytes of their payloads."""
    missing: int
    """Cited messages that were not received."""
    open_requests: int
    """Sends that have neither failed nor been delivered."""
    failed_requests: int
    """Sends that failed and may still be acknowledged (`DeliveryError`)."""
    queued: int
    """Transmissions and segments that wait to leave."""


_COUNTERS: Final = {"duplicates": "duplicate", "foreign_channel": "foreign-channel", "no_room": "no-room"}
"""Counters with other names than their fields."""


class Tally:
    """Counters behind `StackStatistics`."""

    def __init__(self) -> None:
        self.counts: defaultdict[str, int] = defaultdict(int)
        """Counts by name."""
        self._sent: defaultdict[Purpose, list[int]] = defaultdict(lambda: [0, 0])
        """Number and bytes of the transmissions of each purpose."""
        self.foreign_channel_id = ""
        """Channel id of the latest message of another channel."""

    def add(self, name: str) -> None:
        """Add one to a counter."""
        self.counts[name] += 1

    def sent(self, purpose: Purpose, size_bytes: int) -> None:
        """Count a transmission."""
        sent = self._sent[purpose]
        sent[0] += 1
        sent[1] += size_bytes

    def statistics(self, **held: Any) -> StackStatistics:
        """Return the counts together with ``held``, the other fields of `StackStatistics`."""
        names = [field.name for field in fields(StackStatistics) if field.name not in held]
        counted: dict[str, Any] = {name: self.counts[_COUNTERS.get(name, name)] for name in names}
        counted["transmissions"] = {purpose: count for purpose, (count, _) in self._sent.items()}
        counted["transmitted_bytes"] = {purpose: size_bytes for purpose, (_, size_bytes) in self._sent.items()}
        return StackStatistics(**counted, **held)
