"""The main job in one story: texts and a file between participants over a network that loses a third of everything.

`Demo` runs it step by step under virtual time, so that whoever watches can draw progress between steps; `Demo.result`
says what happened; `Demo.write_archive` leaves everything that was broadcast as a store node would have kept it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from typing import Final

from fairway.errors import ConfigurationError
from fairway.events import (
    DeliveryError,
    Event,
    IrretrievableMessage,
    MessageAcknowledged,
    MessageDelivered,
    MessageReceived,
)
from fairway.options import ReliableChannelOptions, SegmentationConfig
from fairway.simulation.network import NetworkFaults
from fairway.simulation.world import World
from fairway.storage.nwaku_archive import NwakuArchive

_NAMES: Final = ("alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi")
MAX_FILE_BYTES: Final = 20_000_000
"""What 256 segments with parity hold, with room to spare."""
MAX_VIRTUAL_MS: Final = 4 * 3_600_000
"""When a demo gives up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentMessage:
    """One message of the story and what became of it."""

    sender: str
    title: str
    request_id: str
    message_id: str
    size_bytes: int
    sent_at_ms: int
    """Virtual milliseconds since the beginning."""
    chunks_acknowledged: int
    total_chunks: int
    received_by: tuple[str, ...]
    delivered_to: tuple[str, ...]
    """Participants that acknowledged it whole."""
    delivered_at_ms: int | None
    failed: str | None
    """Why delivery is not known, if it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """What happened in a demo."""

    participants: tuple[str, ...]
    messages: tuple[SentMessage, ...]
    elapsed_ms: int
    """Virtual time until the last acknowledgement."""
    duplicates: int
    """Deliveries beyond the first of a message to a participant; anything but 0 is a fault."""
    lost: int
    """Messages that somebody did not get; anything but 0 is a fault."""
    file_sha256: str
    copies_with_same_hash: int
    """Participants whose copy of the file has that hash."""
    recovered_by_parity: int
    """Copies of the file for which Reed-Solomon filled in lost segments."""
    transmissions: int
    deliveries_lost: int
    """Deliveries that the network swallowed."""
    deliveries_made: int

    @property
    def succeeded(self) -> bool:
        """Whether everybody has everything once, and everybody's acknowledgement came."""
        acknowledged = all(m.delivered_at_ms is not None for m in self.messages)
        return not (self.lost or self.duplicates) and acknowledged


@dataclass(slots=True)
class _Tracked:
    sender: str
    title: str
    payload_sha256: str
    size_bytes: int
    request_id: str
    message_id: str
    sent_at_ms: int
    received: dict[str, int]
    total_chunks: int = 1
    chunks: int = 0
    delivered_to: tuple[str, ...] = ()
    delivered_at_ms: int | None = None
    failed: str | None = None


class Demo:
    """A story between participants, advanced step by step."""

    def __init__(self, file: bytes, *, loss: float = 0.3, participants: int = 3, seed: int = 1) -> None:
        """Prepare the story; nothing happens before `advance`."""
        if not 2 <= participants <= len(_NAMES):
            raise ConfigurationError(f"a demo has 2 to {len(_NAMES)} participants, not {participants}")
        if not 0 <= loss < 1:
            raise ConfigurationError(f"loss is the share of deliveries that never happen, 0 <= loss < 1, not {loss}")
        if not 1 <= len(file) <= MAX_FILE_BYTES:
            raise ConfigurationError(
                f"the file has {len(file)} bytes; a demo sends 1 to {MAX_FILE_BYTES}, choose another"
            )
        self.names = _NAMES[:participants]
        limit = max(SegmentationConfig().max_message_size_bytes, len(file))
        options = ReliableChannelOptions(segmentation=SegmentationConfig(max_message_size_bytes=limit))
        self._world = World(self.names, seed=seed, faults=NetworkFaults(loss=loss), options=options)
        self._world.observers.append(self._observe)
        self._start_ms = self._world.now_ms
        self._messages: dict[str, _Tracked] = {}
        self._planned = 0
        self._file_sha256 = hashlib.sha256(file).hexdigest()
        self._hashes: dict[str, str] = {}
        self._recovered: set[str] = set()
        self._lost_for_good = 0
        first, second, last = self.names[0], self.names[1], self.names[-1]
        for after_ms, sender, title, payload in (
            (0, first, "Look at the sea tonight!", None),
            (1_000, first, "the file", file),
            (4_000, second, "It is still coming, wait.", None),
            (9_000, last, "ok", None),
            (9_500, second, "ok", None),
            (20_000, last, "What a picture.", None),
        ):
            self._plan(after_ms, sender, title, title.encode() if payload is None else payload)

    @property
    def elapsed_ms(self) -> int:
        """Virtual milliseconds since the beginning."""
        return self._world.now_ms - self._start_ms

    @property
    def finished(self) -> bool:
        """Whether every message reached everybody and its fate is known, or time is up."""
        if self.elapsed_ms >= MAX_VIRTUAL_MS:
            return True
        return len(self._messages) == self._planned and all(
            (tracked.delivered_at_ms is not None or tracked.failed is not None)
            and len(tracked.received) == len(self.names) - 1
            for tracked in self._messages.values()
        )

    def advance(self, for_ms: int) -> None:
        """Let virtual time pass."""
        self._world.run(for_ms, until=lambda: self.finished)

    def messages(self) -> Iterator[SentMessage]:
        """Yield what became of each message so far, in the order of sending."""
        for tracked in self._messages.values():
            yield SentMessage(
                sender=tracked.sender,
                title=tracked.title,
                request_id=tracked.request_id,
                message_id=tracked.message_id,
                size_bytes=tracked.size_bytes,
                sent_at_ms=tracked.sent_at_ms,
                chunks_acknowledged=tracked.chunks,
                total_chunks=tracked.total_chunks,
                received_by=tuple(sorted(tracked.received)),
                delivered_to=tracked.delivered_to,
                delivered_at_ms=tracked.delivered_at_ms,
                failed=tracked.failed,
            )

    def segments_held(self, name: str) -> int:
        """Return how many segments of the file a participant has received."""
        return self._world.participants[name].stack.statistics().reassembly.segments_stored

    def has_file(self, name: str) -> bool:
        """Return whether a participant has the whole file."""
        return name in self._hashes

    def result(self) -> DemoResult:
        """Return what happened so far."""
        tracked = self._messages.values()
        receivers = len(self.names) - 1
        return DemoResult(
            participants=tuple(self.names),
            messages=tuple(self.messages()),
            elapsed_ms=self.elapsed_ms,
            duplicates=sum(count - 1 for message in tracked for count in message.received.values()),
            lost=sum(receivers - len(message.received) for message in tracked) + self._lost_for_good,
            file_sha256=self._file_sha256,
            copies_with_same_hash=sum(digest == self._file_sha256 for digest in self._hashes.values()),
            recovered_by_parity=len(self._recovered),
            transmissions=self._world.network.published,
            deliveries_lost=self._world.network.lost,
            deliveries_made=self._world.network.deliveries,
        )

    def write_archive(self, path: str | PathLike[str]) -> int:
        """Write everything that was broadcast in nwaku's SQLite layout, and return how many messages that was."""
        count = 0
        with NwakuArchive(path) as archive:
            for publication in self._world.network.stored():
                archive.append(publication.pubsub_topic, publication.message, publication.message_hash)
                count += 1
        return count

    def _plan(self, after_ms: int, sender: str, title: str, payload: bytes) -> None:
        self._planned += 1
        others = [name for name in self.names if name != sender]

        def action() -> None:
            accepted = self._world.send(sender, payload, required_from=others)
            segment_size = SegmentationConfig().segment_size_bytes
            self._messages[accepted.request_id] = _Tracked(
                sender=sender,
                title=title,
                payload_sha256=hashlib.sha256(payload).hexdigest(),
                size_bytes=len(payload),
                request_id=accepted.request_id,
                message_id=accepted.message_id,
                sent_at_ms=self.elapsed_ms,
                received={},
                total_chunks=-(-len(payload) // segment_size),
            )

        self._world.at(self._start_ms + after_ms, action)

    def _observe(self, at_ms: int, name: str, event: Event) -> None:
        match event:
            case MessageReceived(sender_id=sender, payload=payload):
                digest = hashlib.sha256(payload).hexdigest()
                same = [m for m in self._messages.values() if (m.sender, m.payload_sha256) == (sender, digest)]
                # The same words said twice are two messages: a further copy is taken for the one that is lacking.
                tracked = next((m for m in same if name not in m.received), same[-1])
                tracked.received[name] = tracked.received.get(name, 0) + 1
                if tracked.title == "the file":
                    self._hashes[name] = digest
                    self._recovered |= {name} if event.recovered else set()
            case MessageAcknowledged(request_id=request_id, chunks_acknowledged=chunks):
                self._messages[request_id].chunks = len(chunks)
            case MessageDelivered(request_id=request_id, delivered_to=delivered_to):
                self._messages[request_id].delivered_to = delivered_to
                self._messages[request_id].delivered_at_ms = at_ms - self._start_ms
            case DeliveryError(request_id=request_id, detail=detail):
                self._messages[request_id].failed = detail
            case IrretrievableMessage():
                self._lost_for_good += 1
