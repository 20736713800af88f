"""`StoreSync`: keeps the archive of a node equal to those of other store nodes (WAKU-SYNC).

At intervals the node compares the messages of the last hour with one connected peer. Each of the two then sends the
messages that the other one lacks, over a stream of the transfer protocol. The node also answers peers that begin a
session. `fairway.nodes.protocols.reconciliation` has the comparison.

An archive keeps no RLN proof, so a transferred message cannot be verified. In a network with RLN only sessions with
configured peers are allowed. Bounds for all peers:

- A peer can begin sessions at `_RATE`, and have one at a time; `MAX_SESSIONS` are open at once.
- A message is accepted only during a session with its sender or soon after, at most `MAX_IDS` of them for a session. It
  must obey the rules of the node, except for the age, and be dated within the time that the session compares. The node
  computes its hash itself.
- A session compares the newest `MAX_IDS` messages, reads `MAX_SESSION_BYTES`, and ends after `SESSION_LIMIT_S`. Its
  work runs in a thread, so that the event loop is free.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from fairway.environment import monotonic_s, time_ns
from fairway.errors import DecodeError, FairwayError
from fairway.libp2p.host import Host
from fairway.libp2p.peer_id import PeerId
from fairway.libp2p.stream import Stream
from fairway.nodes.message_store import MAX_PAGE_SIZE
from fairway.nodes.node import RoutedMessage, StoreQuery
from fairway.nodes.protocols.reconciliation import Reconciliation, SyncStep
from fairway.nodes.protocols.request_limiter import RequestLimiter, RequestRate
from fairway.nodes.protocols.rules import MessageRules, Refusal
from fairway.owned_tasks import OwnedTasks
from fairway.service.archives import NodeArchive
from fairway.service.options import StoreSyncOptions
from fairway.wire.store_sync import (
    MAX_PAYLOAD_BYTES,
    MAX_TRANSFER_BYTES,
    RECONCILIATION_PROTOCOL,
    TRANSFER_PROTOCOL,
    Transfer,
    decode_sync_payload,
    decode_transfer,
    encode_sync_payload,
    encode_transfer,
)

MAX_IDS: Final = 50_000
"""Most messages that a session compares, and that a peer may transfer for a session."""
MAX_SESSIONS: Final = 4
"""Most sessions that are open at once."""
SESSION_LIMIT_S: Final = 300.0
"""Longest time of a session; the next one continues."""
MAX_SESSION_BYTES: Final = 2 * MAX_PAYLOAD_BYTES
"""Most bytes of the payloads that a session reads; a difference of `MAX_IDS` messages takes a fifth of it."""
ALLOWED_AFTER_S: Final = 60.0
"""Time after a session, and after each transferred message, for which the peer may transfer further ones."""
RELAY_DELAY_NS: Final = 20_000_000_000
"""Age from which messages are compared: younger ones may still arrive by relay. nwaku waits as long."""
_SLACK_NS: Final = 60_000_000_000
"""Additional time that the answering node compares, because the other one began earlier and clocks differ."""
_STEP_LIMIT_S: Final = 60.0
"""Longest time in which a peer must send a payload, or read what it is sent."""
_RATE: Final = RequestRate(per_second=0.1, burst=10)
_STREAMS: Final = 8
"""Streams of a peer for each protocol; nwaku opens a further one for transfers only when the last one has ended."""
_MAX_WAITING: Final = 5_000
"""Messages that wait to be written while transferred ones are read; more wait at the peer."""
_WRITE_PAUSE_S: Final = 0.05
_LOG: Final = logging.getLogger(__name__)
_FAULTS: Final = (FairwayError, TimeoutError)
"""Errors of a peer and of the archive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSyncStatistics:
    """Counts since the start."""

    sessions: int
    """Sessions that ended with all differences found."""
    failed: int
    """Sessions that a peer or the archive broke off."""
    refused: int
    """Sessions and transferred messages that were not allowed."""
    received: int
    """Messages that other stores transferred to the archive."""
    sent: int
    """Messages that were transferred to other stores."""


@dataclass(slots=True)
class _Allowance:
    """What a peer may transfer."""

    start_ns: int
    """Time of the oldest message."""
    until_s: float = float("inf")
    """End, on the steady clock; endless during a session."""
    left: int = MAX_IDS


class StoreSync:
    """Synchronizes the archive of one node, from `start` to `close`."""

    def __init__(
        self,
        host: Host,
        archive: NodeArchive,
        rules: MessageRules,
        options: StoreSyncOptions,
        *,
        trusts: Callable[[PeerId], bool],
        rng: random.Random,
    ) -> None:
        """``trusts`` returns whether messages of a connected peer are accepted without verification."""
        self._host: Final = host
        self._archive: Final = archive
        # Messages are compared long after they were sent.
        self._rules: Final = replace(rules, max_clock_offset_ns=None)
        self._options: Final = options
        self._trusts: Final = trusts
        self._rng: Final = rng
        self._tasks: Final = OwnedTasks()
        self._limiter: Final = RequestLimiter(_RATE)
        self._sessions: Final[set[tuple[PeerId, bool]]] = set()
        """The open sessions: the peer, and whether the peer began."""
        self._allowances: Final[dict[PeerId, _Allowance]] = {}
        self.transferred_bytes: Final[Counter[tuple[str, str]]] = Counter()
        """Bytes of payloads by protocol (``reconciliation``, ``transfer``) and direction (``sent``, ``receive``)."""
        self._completed = self._failed = self._refused = self._received = self._sent = 0

    def start(self) -> None:
        """Serve both protocols, and begin to synchronize."""
        self._host.handle(RECONCILIATION_PROTOCOL, self._answer, max_streams_per_peer=_STREAMS)
        self._host.handle(TRANSFER_PROTOCOL, self._receive, max_streams_per_peer=_STREAMS)
        self._tasks.spawn(self._synchronize_at_intervals())

    async def close(self) -> None:
        """Begin no more sessions. Can be called twice."""
        await self._tasks.close()

    def statistics(self) -> StoreSyncStatistics:
        """Return the counts."""
        return StoreSyncStatistics(
            sessions=self._completed,
            failed=self._failed,
            refused=self._refused,
            received=self._received,
            sent=self._sent,
        )

    async def _synchronize_at_intervals(self) -> None:
        while True:
            await asyncio.sleep(self._options.interval_s)
            connected = dict.fromkeys(connection.peer_id for connection in self._host.connections())
            peers = [
                peer
                for peer in connected
                if RECONCILIATION_PROTOCOL in self._host.protocols_of(peer)
                and self._trusts(peer)
                and (peer, True) not in self._sessions  # both sessions would transfer the same messages
            ]
            if peers and len(self._sessions) < MAX_SESSIONS:
                peer = self._rng.choice(peers)
                try:
                    stream = await self._host.open_stream(peer, [RECONCILIATION_PROTOCOL])
                except _FAULTS as error:
                    self._note_failure(peer, error)
                else:
                    await self._run(stream, peer_began=False)

    async def _answer(self, stream: Stream) -> None:
        """Run a session that a peer begins."""
        peer = stream.peer_id
        if (
            (peer, True) in self._sessions
            or len(self._sessions) >= MAX_SESSIONS
            or not self._trusts(peer)
            or not self._limiter.admit(str(peer), monotonic_s())
        ):
            self._refused += 1
            await stream.reset()
        else:
            await self._run(stream, peer_began=True)

    async def _run(self, stream: Stream, *, peer_began: bool) -> None:
        session = (stream.peer_id, peer_began)
        self._sessions.add(session)
        try:
            async with asyncio.timeout(SESSION_LIMIT_S):
                await self._reconcile(stream, peer_began=peer_began)
                self._completed += 1
                await stream.close()
        except _FAULTS as error:
            self._note_failure(stream.peer_id, error)
            await stream.reset()
        finally:
            self._sessions.discard(session)
            if stream.peer_id in self._allowances:
                self._allowances[stream.peer_id].until_s = monotonic_s() + ALLOWED_AFTER_S

    async def _reconcile(self, stream: Stream, *, peer_began: bool) -> None:
        end_ns = time_ns() - RELAY_DELAY_NS
        start_ns = end_ns - round(self._options.range_s * 1e9) - (_SLACK_NS if peer_began else 0)
        stored = await self._archive.newest_ids(start_ns, MAX_IDS + 1)
        if len(stored) > MAX_IDS:
            start_ns = stored[0].timestamp_ns + 1
            stored = [one for one in stored if one.timestamp_ns >= start_ns]
        topics = tuple(self._rules.pubsub_topics)
        here = await asyncio.to_thread(Reconciliation, stored, pubsub_topics=topics, start_ns=start_ns)
        self._forget_allowances()
        self._allowances[stream.peer_id] = _Allowance(start_ns - _SLACK_NS)
        if not peer_began:
            await self._write(stream, encode_sync_payload(here.begin(max(end_ns, start_ns + 1))))
        read_bytes = 0
        while True:
            async with asyncio.timeout(_STEP_LIMIT_S):
                data = await stream.read_frame(MAX_PAYLOAD_BYTES)
            if data is None:
                raise DecodeError("the peer ended a session of reconciliation before its last payload")
            self.transferred_bytes["reconciliation", "receive"] += len(data)
            read_bytes += len(data)
            if read_bytes > MAX_SESSION_BYTES:
                raise DecodeError(f"the payloads of a session have more than {MAX_SESSION_BYTES} bytes")
            step, reply = await asyncio.to_thread(_next_step, here, data)
            if reply is not None:
                await self._write(stream, reply)
            if step.peer_lacks:
                await self._send(stream.peer_id, step.peer_lacks)
            if step.ended:
                return

    async def _write(self, stream: Stream, data: bytes) -> None:
        async with asyncio.timeout(_STEP_LIMIT_S):
            await stream.write_frame(data)
        self.transferred_bytes["reconciliation", "sent"] += len(data)

    async def _send(self, peer: PeerId, message_hashes: Sequence[bytes]) -> None:
        """Transfer messages to a peer."""
        async with await self._host.open_stream(peer, [TRANSFER_PROTOCOL]) as stream:
            for first in range(0, len(message_hashes), MAX_PAGE_SIZE):
                query = StoreQuery(
                    message_hashes=tuple(message_hashes[first : first + MAX_PAGE_SIZE]), page_size=MAX_PAGE_SIZE
                )
                cursor = None
                while True:
                    page = await self._archive.page(query, cursor)
                    for message in page.messages:
                        await self._transfer(stream, message)
                    cursor = page.cursor
                    if cursor is None:
                        break

    async def _transfer(self, stream: Stream, message: RoutedMessage) -> None:
        data = encode_transfer(Transfer(pubsub_topic=message.pubsub_topic, message_bytes=message.encoded))
        # A message that had no timestamp is archived with another one, so that its hash is wrong. nwaku reads no
        # transfers that are longer than the longest message.
        if message.is_genuine and len(data) <= self._rules.max_message_bytes:
            async with asyncio.timeout(_STEP_LIMIT_S):
                await stream.write_frame(data)
            self._sent += 1
            self.transferred_bytes["transfer", "sent"] += len(data)

    async def _receive(self, stream: Stream) -> None:
        """Read the transfers of a peer; nwaku keeps the stream open after a session."""
        while (data := await stream.read_frame(MAX_TRANSFER_BYTES)) is not None:
            self.transferred_bytes["transfer", "receive"] += len(data)
            allowance = self._allowances.get(stream.peer_id)
            if allowance is None or allowance.until_s < monotonic_s() or not allowance.left:
                self._refused += 1
                await stream.reset()
                return
            allowance.left -= 1
            if self._keep(data, allowance):
                self._received += 1
                allowance.until_s = max(allowance.until_s, monotonic_s() + ALLOWED_AFTER_S)
            else:
                self._refused += 1
            while (await self._archive.statistics()).waiting > _MAX_WAITING:  # noqa: ASYNC110 - an archive has no event
                await asyncio.sleep(_WRITE_PAUSE_S)
        await stream.close()

    def _keep(self, data: bytes, allowance: _Allowance) -> bool:
        """Archive a transferred message, and return True; return False if it is refused."""
        now_ns = time_ns()
        try:
            transfer = decode_transfer(data)
        except DecodeError:
            return False
        judged = self._rules.judge(transfer.pubsub_topic, transfer.message_bytes, now_ns)
        if isinstance(judged, Refusal) or judged.ephemeral:
            return False
        if not allowance.start_ns <= (judged.timestamp_ns or 0) <= now_ns:
            return False
        self._archive.put(RoutedMessage.of(transfer.pubsub_topic, judged, transfer.message_bytes), now_ns)
        return True

    def _note_failure(self, peer: PeerId, error: BaseException) -> None:
        self._failed += 1
        _LOG.info("the synchronization with %s failed: %s", peer, str(error) or "it took too long")

    def _forget_allowances(self) -> None:
        now_s = monotonic_s()
        for peer in [peer for peer, allowance in self._allowances.items() if allowance.until_s < now_s]:
            del self._allowances[peer]


def _next_step(here: Reconciliation, data: bytes) -> tuple[SyncStep, bytes | None]:
    """Return the result of a payload, and the encoded reply."""
    step = here.receive(decode_sync_payload(data))
    return step, None if step.reply is None else encode_sync_payload(step.reply)
