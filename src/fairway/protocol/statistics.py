"""What a channel counts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from fairway.protocol.effects import Purpose
from fairway.protocol.segmentation.outcomes import ReassemblyStatistics


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A message that others cite and that is not here, and what waits for it."""

    message_id: str
    """SDS message id."""
    sender_id: str | None
    """Its author, if a citation names it."""
    since_ms: int
    """When it was first noticed to be missing, in Unix milliseconds."""
    waiting: tuple[tuple[str, str], ...]
    """Sender id and SDS message id of each received message that is not delivered before it comes, or is given up;
    first those that cite it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackStatistics:
    """Counts since the stack was made, and what it holds now."""

    received: int
    """WakuMessages on the channel's topic that were looked at."""
    duplicates: int
    """SDS messages that had been received before, in another transmission."""
    repeated: int
    """Transmissions that came again, as when two nodes push the same one, or a store brings what was heard."""
    own: int
    """Own messages that came back."""
    forged: int
    """Messages under our sender id that are not ours, or under the id of another message."""
    foreign_topic: int
    """WakuMessages of another content topic."""
    foreign_channel: int
    """SDS messages of another channel on the same topic."""
    unmarked: int
    """WakuMessages without the marker of the Logos profile."""
    oversized: int
    """WakuMessages too long to be looked at."""
    undecryptable: int
    """Not encrypted for this channel, or of another WakuMessage version."""
    undecodable: int
    """Decrypted, but no SDS message."""
    not_kept: int
    """Content that was not taken in, since it could not be kept; ``reassembly`` says why."""
    reassembly: ReassemblyStatistics
    """What became of received segments."""
    forgotten: int
    """Messages older than the history that is kept (``sds.max_history``)."""
    no_room: int
    """Messages that were not taken in because they would have to wait and there was no room."""
    not_taken: int
    """Transmissions that the node did not take."""
    not_encrypted: int
    """Retries, repairs or sync messages that the encryption hook did not encrypt."""
    refused: int
    """Repairs or sync messages that could never be sent."""
    transmissions: Mapping[Purpose, int]
    """WakuMessages handed to the node, by purpose."""
    transmitted_bytes: Mapping[Purpose, int]
    """Their encoded size."""
    history: int
    """Messages in the local history."""
    retained: int
    """Messages that are kept to repair others."""
    unacknowledged: int
    """Own SDS messages that wait for acknowledgement."""
    parked: int
    """Messages that wait for their dependencies."""
    parked_bytes: int
    """What it costs to keep them."""
    awaiting: int
    """Messages that are whole and wait for what was sent before them."""
    awaiting_bytes: int
    """Bytes of their payloads."""
    missing: int
    """Messages that are cited and not here."""
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
        """What was counted, by name."""
        self._transmissions: Counter[Purpose] = Counter()
        self._bytes: Counter[Purpose] = Counter()
        self.foreign_channel_id = ""
        """Channel id of the latest message of another channel."""

    def add(self, name: str) -> None:
        """Count one."""
        self.counts[name] += 1

    def sent(self, purpose: Purpose, size_bytes: int) -> None:
        """Count a transmission."""
        self._transmissions[purpose] += 1
        self._bytes[purpose] += size_bytes

    def statistics(self, **held: Any) -> StackStatistics:
        """Return the counts beside what is held now, by the names of `StackStatistics`."""
        names = [field.name for field in fields(StackStatistics) if field.name not in held]
        counted: dict[str, Any] = {name: self.counts[_COUNTERS.get(name, name)] for name in names}
        counted |= {"transmissions": dict(self._transmissions), "transmitted_bytes": dict(self._bytes)}
        return StackStatistics(**counted, **held)
