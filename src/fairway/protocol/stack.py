"""The whole protocol of one channel: its layers, and their order for outgoing and for incoming messages.

::

    out   Segment -> SDS -> Encrypt -> Rate limit -> Dispatch    `send`, `_drain_outgoing`, `_seal_and_admit`
    in    Open -> Order (SDS) -> Reassemble -> Hand over         `_open_message`, `_take_in`, `_hand_over`

LIP-173 gives both orders ("Outgoing message processing", "Incoming message processing"). RELIABLE-CHANNEL-API,
"Architecture", draws the rate limit above SDS. This stack has the rate limit below SDS, because retries, repairs and
sync messages are charged, too (docs/decisions/specifications.md, "Order of the layers"). SDS first judges an incoming
message. Then the reassembler keeps or refuses the content. SDS accepts the message if the content was kept ("Way in" in
the same file).

`Stack` is pure. Every call takes the time and returns effects (`fairway.protocol.effects`) for the shell around it: an
asyncio channel, a simulator, a Spark executor. `next_deadline` returns the time of the next call of `tick`.

Every layer is pure, too. It returns the value for the next layer, or effects that end the processing. The stack joins
the effects in the order in which the shell carries them out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Final, NamedTuple

from fairway.errors import ConfigurationError, EmptyPayloadError, MessageTooLargeError, RlnError, RlnErrorKind
from fairway.events import ChannelStatus, Event, OrderKey, StatusChanged
from fairway.options import ReliableChannelOptions
from fairway.protocol.effects import Change, Effect, NodeAnswer, Persist, Placed, QueryStore, emit
from fairway.protocol.encryption import Encryption
from fairway.protocol.encryption.ciphering import Ciphered
from fairway.protocol.encryption.epochs import EpochCipher, MessageClosedError
from fairway.protocol.incoming.catching_up import QueryOnConnect
from fairway.protocol.incoming.opening import OpenedMessage, Opener, ReceivedWakuMessage
from fairway.protocol.incoming.retrieval import Retrieval
from fairway.protocol.incoming.undelivered import Undelivered
from fairway.protocol.jitter import Jitter
from fairway.protocol.notices import Notices
from fairway.protocol.outgoing.request import wanted_id, wanted_names
from fairway.protocol.outgoing.request_table import RequestTable
from fairway.protocol.outgoing.sending import Sending
from fairway.protocol.outgoing.sync_timer import SyncTimer
from fairway.protocol.outgoing.transmission_queue import Transmission
from fairway.protocol.ratelimit import EpochQuota, Membership, QuotaSource
from fairway.protocol.sds.history import HistoryRecord
from fairway.protocol.sds.outcome import (
    ContentRefusal,
    DependenciesLost,
    Ignored,
    Judgement,
    MessageArrived,
    MessageIgnored,
    MessageReady,
    MessageReviewed,
    SdsOutcome,
    SenderIdShared,
)
from fairway.protocol.segmentation.outcomes import GIVEN_UP, HASH_MISMATCH, Refused
from fairway.protocol.segmentation.segmenter import logical_message_id
from fairway.protocol.shared import Shared
from fairway.protocol.signing import Signing
from fairway.protocol.snapshots import KnownSnapshot, Snapshots, SnapshotSearch, is_snapshot
from fairway.protocol.stack_state import StackState
from fairway.protocol.statistics import Gap, StackStatistics
from fairway.units import NS_PER_MS
from fairway.wire.envelope import ENVELOPE_PREFIX
from fairway.wire.sds import Kind, SdsMessage
from fairway.wire.waku_message import WakuMessage

_NO_ANSWER: Final = NodeAnswer(accepted=False, detail="the node did not answer")
_NO_PROOF: Final = RlnError(RlnErrorKind.TRANSIENT, "no proof came")
_CLOCK_SET_BACK_MS: Final = 1_000
"""Step back of the clock beyond which all times are planned anew."""
_CHANGE_NOTHING_AGAIN: Final = (Ignored.DUPLICATE, Ignored.ANSWER, Ignored.OWN)
"""Reasons to ignore a message that also hold if the same transmission arrives again."""
_OF_NO_MEMBER: Final = (Judgement.FOREIGN, Judgement.OWN, Judgement.FORGED)
"""Messages that do not prove the presence of their sender."""


class Accepted(NamedTuple):
    """The result of a send."""

    request_id: str
    """Unique per send; the events of the send carry it."""
    message_id: str
    """Id of the logical message: SHA-256 of the payload."""
    effects: tuple[Effect, ...]


class AcceptedBatch(NamedTuple):
    """The result of sends that share one SDS message."""

    sends: tuple[tuple[str, str], ...]
    """Request id and message id for each payload."""
    effects: tuple[Effect, ...]


class Stack:
    """The protocol state of one participant in one channel.

    With ``signing`` the stack signs its messages, and SDS reads no message without the signature of its sender. With
    ``proves`` the stack requests an RLN proof for each transmission (`Prove`). ``membership`` is shared with the
    other channels of the node: the count against the rate limit, and the pace of the node. Without it the channel
    shares neither.

    ``now_ms`` is the time in milliseconds since the Unix epoch. ``seed`` is the source of all randomness of timers and
    request ids: pass at least 16 random bytes, and use them for nothing else.
    """

    def __init__(
        self,
        channel_id: str,
        sender_id: str,
        content_topic: str,
        options: ReliableChannelOptions | None = None,
        *,
        now_ms: int,
        seed: bytes,
        encryption: Encryption | None = None,
        signing: Signing | None = None,
        proves: bool = False,
        membership: Membership | None = None,
    ) -> None:
        """Make a channel with an empty history."""
        self.options = options = options or ReliableChannelOptions()
        self.content_topic = content_topic
        shared = Shared.of(channel_id, sender_id, content_topic, options, encryption, signing, now_ms)
        self.sds, self._segmenter, self._ciphering = shared.sds, shared.segmenter, shared.ciphering
        self._tally, self._limits, self._signing = shared.tally, shared.limits, shared.signing
        self._jitter = Jitter(seed)
        self._times = shared.times
        self.sync_timer = SyncTimer(
            lambda: self._times.sync_interval_ms,
            self._jitter,
            now_ms,
            max_unsynced=max(1, options.sds.bloom_capacity // 4),
        )
        self.presence = self.sds.presence
        if options.sds.causal_history_size:
            # Sync messages without citations are not sent.
            self.presence.follow(self.sync_timer.turn_ms)
        self._sending = Sending(shared, membership, self.sync_timer, proves=proves)
        self._query_on_connect = QueryOnConnect(options, shared.journal)
        self._epochs = shared.ciphering.epochs
        self._keys_learned = 0
        if self._epochs is not None:
            self._keys_learned = self._epochs.keys_learned
            longest = options.advanced.max_wire_message_bytes
            self._epochs.max_message_bytes = min(self._epochs.max_message_bytes, longest)
            self._query_on_connect.unread_since_ms = self._epochs.unread_since_ms
        self._opener = Opener(shared)
        self._undelivered = Undelivered(shared)
        self._retrieval = Retrieval(options, self._times)
        self._notices = Notices(shared.tally)
        self._next_sweep_at = now_ms + options.sweep_in_buf_interval_ms
        self._status = ChannelStatus.SYNCED
        self._now_ms = now_ms
        self.snapshots = Snapshots(shared, self._undelivered, self._query_on_connect)
        self._undelivered.is_taken = self.snapshots.takes
        self._state = StackState(
            shared, self._sending, self._undelivered, self._query_on_connect, self.snapshots, self._jitter
        )

    def send(
        self,
        payload: bytes,
        now_ms: int,
        *,
        required_count: int = 1,
        required_from: Iterable[str] = (),
        request_id: str | None = None,
        deadline_ms: int | None = None,
    ) -> Accepted:
        """Send a message to all participants of the channel (LIP-173, "Outgoing message processing").

        The message is delivered, and no longer retransmitted, when ``required_count`` participants and all of
        ``required_from`` acknowledged it. After ``deadline_ms`` it is neither sent nor retransmitted.

        ``request_id`` names the send, at most 256 bytes of UTF-8. A call with the id and payload of an earlier send
        repeats that send (docs/protocol.md, "How a send ends"). Raises `EmptyPayloadError` and `MessageTooLargeError`.
        Raises `ConfigurationError` if the required acknowledgements are impossible, the deadline is not positive, or
        the id belongs to another payload. After an error nothing was sent.
        """
        if not payload:
            raise EmptyPayloadError("an empty payload cannot be sent; give at least one byte")
        names = wanted_names(required_count, required_from, self.sds.sender_id)
        if deadline_ms is not None and deadline_ms <= 0:
            raise ConfigurationError(f"a deadline must be positive, not {deadline_ms} ms")
        segments = self._segmenter.split(payload).segments
        message_id = logical_message_id(payload)
        known = self._sending.sends.known(message_id, request_id)
        if known is not None:
            repeated = self._sending.sends.repeat(known, required_count, names, deadline_ms, now_ms)
            if repeated is not None:
                repeated += self._drain_outgoing(now_ms)
                return Accepted(request_id or known.request_id, message_id, self._finish(repeated, now_ms))
        request = self._sending.sends.begin(
            self._jitter.identifier() if request_id is None else wanted_id(request_id),
            message_id,
            len(payload),
            segments,
            required_count=required_count,
            required_from=names,
            now_ms=now_ms,
            deadline_ms=deadline_ms,
        )
        if payload.startswith(ENVELOPE_PREFIX) and is_snapshot(payload):
            key = OrderKey(self.next_lamport(now_ms), request.request_id)
            own = KnownSnapshot(key, self.sds.sender_id, now_ms * NS_PER_MS, payload, request.request_id)
            self.snapshots.note(own)
        effects = self._drain_outgoing(now_ms) + emit(*self._sending.note_queued(request, now_ms))
        self.sync_timer.content_sent(now_ms)
        return Accepted(request.request_id, message_id, self._finish(effects, now_ms))

    def send_batch(
        self,
        payloads: Sequence[bytes],
        now_ms: int,
        *,
        required_count: int = 1,
        required_from: Iterable[str] = (),
        deadline_ms: int | None = None,
    ) -> AcceptedBatch:
        """Send messages that fit one SDS message together (`fits_batch`), in their order.

        Each is a message of its own for the receivers, and a send with a request id of its own here. If the newest
        batch still waits in the outbox, the messages join it, unless they have a deadline. Raises the errors of `send`.
        """
        batching, sizes = self._sending.batching, list(map(len, payloads))
        if not sizes or not all(sizes):
            raise EmptyPayloadError("an empty payload cannot be sent; give at least one byte")
        if not self.fits_batch(len(sizes), sum(sizes)):
            raise MessageTooLargeError(sum(sizes), batching.limit_bytes, "send fewer messages together")
        names = wanted_names(required_count, required_from, self.sds.sender_id)
        message_ids = list(map(logical_message_id, payloads))
        request = None if deadline_ms else batching.joinable(sizes, required_count, names)
        joins = request is not None
        if request is None:
            request = self._sending.sends.begin(
                self._jitter.identifier(),
                message_ids[0],
                sum(sizes),
                batching.segments(payloads),
                required_count=required_count,
                required_from=names,
                now_ms=now_ms,
                deadline_ms=deadline_ms,
            )
        request_ids = batching.join(request, payloads, message_ids)
        effects = self._drain_outgoing(now_ms)
        queued = self._sending.note_queued(request, now_ms)
        sends = tuple(zip(request_ids, message_ids, strict=True))
        if joins:
            queued = [replace(each, request_id=own, message_id=message) for own, message in sends for each in queued]
        self.sync_timer.content_sent(now_ms)
        return AcceptedBatch(sends, self._finish(effects + emit(*queued), now_ms))

    def fits_batch(self, count: int, payload_bytes: int) -> bool:
        """Return whether ``count`` messages of ``payload_bytes`` in total fit one SDS message."""
        return self._sending.batching.fits(count, payload_bytes)

    def require(self, request_id: str, names: frozenset[str], now_ms: int) -> tuple[Effect, ...]:
        """Retransmit a delivered message until these participants, too, have acknowledged it.

        No effect if its content is not kept, or its deadline has passed.
        """
        request = self.requests.get(request_id)
        effects = [] if request is None else self._sending.sends.require(request, names, now_ms)
        return self._finish(effects + self._drain_outgoing(now_ms), now_ms)

    def release(self, request_id: str, names: frozenset[str], now_ms: int) -> tuple[Effect, ...]:
        """Require the acknowledgements of these participants no more."""
        request = self.requests.get(request_id)
        return self._finish([] if request is None else self._sending.sends.release(request, names, now_ms), now_ms)

    def send_ephemeral(self, payload: bytes, now_ms: int) -> Accepted:
        """Send a message that may be lost (RELIABLE-CHANNEL-API, "Ephemeral messages").

        The message is never segmented, tracked or queued. If the rate limit is near or the node is offline, it is
        dropped with an event. Raises `EmptyPayloadError`, and `MessageTooLargeError` if it does not fit one segment.
        """
        content = self._sending.ephemeral.content_of(payload)
        request_id, message_id = self._jitter.identifier(), logical_message_id(payload)
        composed = self._sending.ephemeral.apply_sds(content, request_id, message_id, now_ms)
        return Accepted(request_id, message_id, self._finish(self._seal_and_admit(composed, now_ms), now_ms))

    def receive(self, message: WakuMessage, now_ms: int, *, message_hash: bytes | None = None) -> tuple[Effect, ...]:
        """Process a message from the network (LIP-173, "Incoming message processing").

        ``message_hash`` is its deterministic hash, if it is known (14/WAKU2-MESSAGE, 32 bytes). An unusable message
        raises nothing; `statistics` counts it.
        """
        return self._finish(self._open_message(message, now_ms, message_hash, from_store=False), now_ms)

    def receive_stored(self, messages: Iterable[tuple[WakuMessage, bytes | None]], now_ms: int) -> tuple[Effect, ...]:
        """Process messages of a store, each with its deterministic hash if that is known.

        They are old, so their repair requests are not answered. An unusable message raises nothing (`receive`).
        """
        effects: list[Effect] = []
        for message, message_hash in messages:
            effects += self._open_message(message, now_ms, message_hash, from_store=True)
        return self._finish(effects, now_ms)

    def cipher_done(self, token: int, result: bytes | BaseException, now_ms: int) -> tuple[Effect, ...]:
        """Process the result or the exception of an asynchronous encryption hook (see `AwaitCipher`)."""
        effects: list[Effect] = []
        match self._ciphering.done(token, result):
            case Ciphered(Transmission() as sent, bytes() as encrypted):
                effects = self._sending.limit(sent, encrypted, now_ms) + self._sending.dispatch(now_ms)
            case Ciphered(Transmission() as sent, Exception() as error):
                effects = self._sending.not_encrypted(sent, error, now_ms)
            case Ciphered(ReceivedWakuMessage() as transmission, bytes() as plaintext):
                effects = self._decode(plaintext, transmission, now_ms)
            case Ciphered(ReceivedWakuMessage(), Exception()):
                self._opener.not_decrypted()
        return self._finish(effects + self._drain_outgoing(now_ms), now_ms)

    def proven(self, token: int, proof: bytes | RlnError | None, now_ms: int) -> tuple[Effect, ...]:
        """Process the proof for a `Prove`, or the error; None sends the message without a proof.

        On NOT_READY and TRANSIENT the proof is requested again after a second, for a new timestamp. On BUDGET_EXHAUSTED
        the message waits for the next epoch. On PERMANENT its send fails. Each error drops an ephemeral message.
        """
        effects = self._sending.proven(token, proof, now_ms)
        return self._finish(effects + self._drain_outgoing(now_ms), now_ms)

    def published(self, token: int, answer: NodeAnswer, now_ms: int) -> tuple[Effect, ...]:
        """Process the node's answer to a `Publish`.

        A segment that the node refused, but not permanently, is sent again with a new timestamp, before later ones. If
        the node refused it for too many requests (429), the pace slows for all channels of the node.
        """
        effects = self._sending.answered(token, answer, now_ms)
        return self._finish(effects + self._drain_outgoing(now_ms), now_ms)

    def not_stored(self, sds_id: str, now_ms: int) -> tuple[Effect, ...]:
        """Note that no store has a message that the node accepted; after the first attempt a retry is due at once."""
        self._sending.retries.not_stored(sds_id, now_ms)
        return self._finish(self._drain_outgoing(now_ms), now_ms)

    def tick(self, now_ms: int) -> tuple[Effect, ...]:
        """Run all due actions: sweeps, repairs, retries, sync messages, store queries, and queued transmissions."""
        self._update_wait_clock(now_ms)
        effects = emit(*self._undelivered.expire(now_ms)) + self._sending.sends.expire(now_ms)
        if self._sending.outbound.connected:
            sweep_at = self._sweep_at()
            if sweep_at is not None and sweep_at <= now_ms:
                self._next_sweep_at = now_ms + self.options.sweep_in_buf_interval_ms
                effects += self._hand_over(self.sds.dependencies.sweep(now_ms), now_ms)
            for token, is_proven in self._sending.outbound.late(now_ms):
                effects += (
                    self._sending.answered(token, _NO_ANSWER, now_ms)
                    if is_proven
                    else self._sending.proven(token, _NO_PROOF, now_ms)
                )
            effects += self._answer_repairs(now_ms)
            # A sync message that is still queued after this may replace the next one.
            effects += self._drain_outgoing(now_ms)
            effects += self._send_sync(now_ms)
            effects += self._hand_out_keys(now_ms)
            effects += self._retrieval.due(self.sds.missing.values(), now_ms)
            effects += self._query_on_connect.due(now_ms)
            self.presence.end_chance(now_ms)
        return self._finish(effects + self._drain_outgoing(now_ms), now_ms)

    def leave(self, now_ms: int) -> tuple[Effect, ...]:
        """Send a last sync message, which acknowledges received messages and says that this participant leaves."""
        self.sds.leaves = True
        self.sync_timer.fire_now(now_ms)
        return self.tick(now_ms)

    def deliver_around_gaps(self, now_ms: int, *, keep: int = 0) -> tuple[Effect, ...]:
        """Deliver waiting messages without their missing dependencies, the oldest first, until at most ``keep`` wait.

        They are marked (`MessageReceived.dependencies_met`). The channel still requests the missing messages, and
        delivers them if they arrive before `SdsConfig.lost_timeout_ms`.
        """
        return self._finish(
            self._hand_over(self.sds.dependencies.deliver_around_gaps(now_ms, keep=keep), now_ms), now_ms
        )

    def set_room(self, messages: int, size_bytes: int) -> None:
        """Set the room of the application, in further messages and bytes of content, until the next call.

        Messages that wait for others are delivered only within the room; the last one may exceed the bytes. Before the
        first call the room is unlimited. A message without missing dependencies is delivered even without room, so the
        caller passes in no messages then.
        """
        self.sds.dependencies.set_room(messages, size_bytes)

    @property
    def holds_back(self) -> bool:
        """Whether messages wait only for room in the application; then call `deliver_held_back`."""
        return bool(self.sds.dependencies.held_back)

    def deliver_held_back(self, now_ms: int) -> tuple[Effect, ...]:
        """Deliver messages that are held back, within the room of the application (`set_room`)."""
        effects = self._hand_over(self.sds.dependencies.deliver_held_back(now_ms), now_ms)
        self._update_wait_clock(now_ms)
        return self._finish(effects, now_ms)

    def set_connected(self, connected: bool, now_ms: int) -> tuple[Effect, ...]:
        """Hold all transmissions while the node is offline, and continue when it is connected.

        RELIABLE-CHANNEL-API, "Message retries": SHOULD NOT retry sending if the node is known to be offline. While it
        is offline no message can arrive, so no message is declared lost.
        """
        if not (connected and self._sending.outbound.connected):
            self._query_on_connect.was_offline(now_ms)
            # Participants may have missed messages of each other.
            self.sync_timer.send_soon(now_ms)
        self._sending.outbound.connected = connected
        self.presence.set_connected(connected, now_ms)
        if not connected:
            self._sending.blockage.ended()
        self._update_wait_clock(now_ms)
        return self._finish(self._drain_outgoing(now_ms), now_ms)

    def store_connected(self, now_ms: int) -> tuple[Effect, ...]:
        """Query a store node that became reachable for the time away (RELIABLE-CHANNEL-API, "Query on connect")."""
        queries = self._query_on_connect.store_connected(now_ms)
        self._times.has_store = True
        self._retrieval.store_connected(now_ms)
        self._update_wait_clock(now_ms)
        return self._finish(queries, now_ms)

    def store_disconnected(self, now_ms: int) -> tuple[Effect, ...]:
        """Note that no store node is reachable: the group is asked sooner for missing messages."""
        self._times.has_store = False
        return self._finish([], now_ms)

    def store_answered(self, query: QueryStore, now_ms: int) -> tuple[Effect, ...]:
        """Note that a store answered a query by hash, and that all messages of its answer were received."""
        self._retrieval.answered(query, now_ms)
        return self._finish([], now_ms)

    def store_unanswered(self, query: QueryStore, now_ms: int) -> tuple[Effect, ...]:
        """Note that no store answered a query by hash."""
        self._retrieval.unanswered(query, now_ms)
        return self._finish([], now_ms)

    def note_answer_time(self, answer_ms: int) -> None:
        """Note the time from a query by hash to its answer."""
        self._times.answers.note(answer_ms)

    @property
    def answer_patience_ms(self) -> int:
        """Longest wait for the answer to a query by hash."""
        return self._retrieval.patience_ms

    def catch_up_progressed(self, up_to_ns: int, now_ms: int) -> tuple[Effect, ...]:
        """Note that all messages up to ``up_to_ns`` of a query for the time away were received and had room."""
        self._query_on_connect.progressed(up_to_ns, now_ms)
        self._update_wait_clock(now_ms)
        return self._finish([], now_ms)

    def was_turned_away(self, message_hash: bytes) -> bool:
        """Return whether the message in a WakuMessage was rejected without room, and must be received again."""
        return self._query_on_connect.was_turned_away(message_hash)

    def caught_up(self, end_ns: int, now_ms: int) -> tuple[Effect, ...]:
        """Note that a query for the time away was read to its end, ``end_ns``."""
        self._query_on_connect.caught_up(end_ns, now_ms)
        self._update_wait_clock(now_ms)
        return self._finish([], now_ms)

    def search_snapshots(self, now_ms: int) -> SnapshotSearch | None:
        """Return a search for a newer snapshot than the known one; None if all stored messages were read."""
        unread = self._query_on_connect.unread(now_ms)
        return None if unread is None else self.snapshots.search(self._opener, self._admits, unread)

    def start_from(self, snapshot: KnownSnapshot, now_ms: int) -> tuple[Effect, ...]:
        """Count the messages that a snapshot covers as known, and read those after it.

        Covered messages are neither handed over nor waited for.
        """
        self.snapshots.note(snapshot)
        coverage, is_other = snapshot.coverage(now_ms), self.sds.start is not None
        if coverage == self.sds.start:
            return ()
        record = HistoryRecord(*snapshot.order_key, None, snapshot.sender_id)
        outcomes = self.sds.start_from(coverage, record, now_ms)
        effects = self._hand_over(outcomes, now_ms)
        queries = self._query_on_connect.start_from(coverage.read_from_ms, now_ms, again=is_other)
        self._update_wait_clock(now_ms)
        return self._finish([*effects, *queries], now_ms)

    def set_node_quota(
        self, limit: int | None, now_ms: int, *, epoch_ms: int | None = None, remaining: int | None = None
    ) -> tuple[Effect, ...]:
        """Set the rate limit of the node, which tightens the configured one and never loosens it; None withdraws it."""
        epoch_ms = self.options.rate_limit.epoch_ms if epoch_ms is None else epoch_ms
        quota = None
        if limit is not None:
            quota = EpochQuota(epoch_index=now_ms // epoch_ms, rate_limit=limit, remaining=remaining, epoch_ms=epoch_ms)
        self._sending.outbound.limiter.set_quota(QuotaSource.NODE, quota, now_ms)
        return self._finish(self._drain_outgoing(now_ms), now_ms)

    def set_provider_quota(self, quota: EpochQuota | None, now_ms: int) -> tuple[Effect, ...]:
        """Set the quota of the RLN membership, which counts the transmissions of all its channels and programs."""
        self._sending.outbound.limiter.set_quota(QuotaSource.PROVIDER, quota, now_ms)
        return self._finish(self._drain_outgoing(now_ms), now_ms)

    def next_deadline(self) -> int | None:
        """Return when to call `tick` next, in milliseconds since the Unix epoch; None if no action is planned.

        A time in the past means at once. After `tick` the result is later than the time that `tick` was given.
        """
        times = [self._undelivered.next_deadline(), self._notices.at_ms, self._sending.requests.deadlines.next_at()]
        if self._sending.outbound.connected:
            times += [
                self._sweep_at(),
                *self._sync_times(),
                self.sds.repair.responses.next_at(),
                *self._sending.retries.next_times(self._now_ms),
                self._retrieval.at_ms,
                self._query_on_connect.next_deadline(),
                self.presence.at_ms,
                None if self._epochs is None else self._hand_out_at(self._epochs),
                self._sending.outbound.next_send_at(self._now_ms),
            ]
        return min([at for at in times if at is not None], default=None)

    @property
    def status(self) -> ChannelStatus:
        """SYNCING if messages may be missing (LIP-173) or nothing can be sent, otherwise SYNCED."""
        return self._status

    @property
    def may_miss_messages(self) -> bool:
        """Whether messages are known to be missing, the node is offline, or the query for the time away is pending."""
        return bool(self.sds.missing) or not self._sending.outbound.connected or self._query_on_connect.pending

    @property
    def has_gaps(self) -> bool:
        """Whether messages are known to be missing."""
        return bool(self.sds.missing)

    @property
    def history_heard(self) -> int:
        """Number of received messages of this channel with causal history, copies included (see `QueryStore`)."""
        return self._query_on_connect.history_heard

    @property
    def decrypting(self) -> int:
        """Number of received messages whose decryption is awaited."""
        return self._ciphering.decrypting

    def next_lamport(self, now_ms: int) -> int:
        """Return the Lamport timestamp of the next own message, if it is made now."""
        return self.sds.next_lamport(now_ms)

    @property
    def requests(self) -> RequestTable:
        """The sends of the channel and their segments."""
        return self._sending.requests

    @property
    def backlog(self) -> int:
        """Number of segments in the outbox while the node is connected; 0 while it is offline."""
        return len(self._sending.outbox) if self._sending.outbound.connected else 0

    def gaps(self, limit: int) -> tuple[Gap, ...]:
        """Return the ``limit`` longest missing messages, each with the messages that wait for it."""
        oldest = sorted(self.sds.missing.values(), key=lambda missing: missing.since_ms)[:limit]
        return tuple(
            Gap(
                message_id=missing.entry.message_id,
                sender_id=missing.entry.sender_id,
                since_ms=missing.since_ms,
                waiting=tuple(
                    (message.sender_id, message.message_id)
                    for message in self.sds.waits_behind(missing.entry.message_id)
                ),
            )
            for missing in oldest
        )

    def statistics(self) -> StackStatistics:
        """Return the counts so far, and the present contents of the stack."""
        complete = self._undelivered.complete
        return self._tally.statistics(
            **asdict(self.sds.statistics()),
            awaiting=len(complete),
            awaiting_bytes=complete.size_bytes,
            open_requests=len(self._sending.requests.open),
            failed_requests=len(self._sending.requests.failed),
            queued=self._sending.queued(),
            reassembly=self._undelivered.reassembler.statistics(),
        )

    def snapshot(self) -> tuple[Change, ...]:
        """Return the complete state as rows; later `Persist` effects carry its changes."""
        return tuple(Change(table=table, key=key, row=row) for table, key, row in self._state.rows())

    def stop_journal(self) -> None:
        """Emit no `Persist` any more, for a shell that reads the state by `snapshot` when it needs it."""
        self._state.is_journaled = False

    def restore(self, rows: Iterable[Change], now_ms: int) -> tuple[Effect, ...]:
        """Restore the rows of an earlier run in a new channel, and continue.

        Raises `SnapshotError` if this version cannot read the rows; then the channel is unusable.
        """
        self._state.load((change.table, change.key, change.row) for change in rows if change.row is not None)
        self._undelivered.resume()
        self._plan_anew(now_ms)
        effects = self._hand_over(self.sds.dependencies.deliver_held_back(now_ms), now_ms)
        for segment in self._sending.restore():
            effects += self._seal_and_admit(self._sending.first_time(segment, now_ms), now_ms)
        return self._finish(effects + self._drain_outgoing(now_ms), now_ms)

    def _open_message(
        self, message: WakuMessage, now_ms: int, message_hash: bytes | None, *, from_store: bool
    ) -> list[Effect]:
        """Decrypt a WakuMessage; `cipher_done` continues if the hook is awaited."""
        transmission = self._opener.transmission_of(message, message_hash, from_store=from_store)
        if transmission is None:
            return []
        if self._opener.was_processed(transmission):
            # Only messages with a causal history are remembered as processed.
            self._query_on_connect.heard_history()
            return []
        try:
            plaintext = self._opener.decrypt(message.payload, transmission)
        except MessageClosedError as closed:
            return self._skip(closed.message_id, now_ms)
        if self._epochs is not None and self._epochs.keys_learned != self._keys_learned:
            self._keys_learned = self._epochs.keys_learned
            self._query_on_connect.keys_came(now_ms)
        if isinstance(plaintext, bytes):
            return self._decode(plaintext, transmission, now_ms)
        return [] if plaintext is None else [plaintext]

    def _skip(self, message_id: str, now_ms: int) -> list[Effect]:
        """Wait no longer for a message that this member of a group may not read, or refuses."""
        if message_id not in self.sds.missing:
            return []
        return self._hand_over(self.sds.dependencies.settle([message_id], now_ms, lost=True), now_ms)

    def _is_of_former_member(self, epochs: EpochCipher, message: SdsMessage, now_ms: int) -> bool:
        lamport = message.lamport_timestamp
        made_ms = now_ms if lamport is None else lamport * self.sds.profile.lamport_unit_ms
        return not epochs.admits(message.sender_id, made_ms)

    def _decode(self, plaintext: bytes, transmission: ReceivedWakuMessage, now_ms: int) -> list[Effect]:
        """Decode a message, verify its signature if the channel has signatures, and pass it to SDS."""
        opened = self._opener.decode(plaintext, transmission)
        if opened is None:
            return []
        if self._signing is None and self._epochs is None:
            return self._take_in(opened, now_ms)
        is_admitted = self._admits(opened, now_ms)
        effects = [] if self._signing is None else emit(*self._signing.take_events())
        if is_admitted:
            return effects + self._take_in(opened, now_ms)
        self._tally.add("unverified")
        message, missing = opened.message, self.sds.missing.get(opened.message.message_id)
        is_cited = missing is not None and missing.entry.sender_id == message.sender_id
        if is_cited and self._epochs is not None and self._is_of_former_member(self._epochs, message, now_ms):
            # A member that did not know of the removal accepted it, and cites it.
            effects += self._skip(message.message_id, now_ms)
        return effects

    def _admits(self, opened: OpenedMessage, now_ms: int) -> bool:
        """Return whether a message has a signature that it must have, and is not of a former member of a group."""
        message, encoded, transmission = opened
        if self._epochs is not None and self._is_of_former_member(self._epochs, message, now_ms):
            return False
        return self._signing is None or self._signing.admits(message, encoded, transmission.signer_key, now_ms)

    def _take_in(self, opened: OpenedMessage, now_ms: int) -> list[Effect]:
        """Order a message by SDS, reassemble its content, and hand over the messages that may be delivered.

        The reassembler runs between the judgement and the order, because SDS acknowledges each message that it accepts.
        """
        message, _, transmission = opened
        judgement = self.sds.judge(message)
        if judgement is not Judgement.FOREIGN and message.causal_history:
            self._query_on_connect.heard_history()
        if not judgement.is_new_content:
            return self._order(opened, judgement, now_ms)
        kept, events = self._undelivered.accept(message, now_ms)
        effects = emit(*events)
        if isinstance(kept, Refused):
            return effects + self._refuse(opened, kept, now_ms)
        outcomes = self._receive(opened, judgement, now_ms)
        effects += emit(*self._undelivered.keep(message, kept, transmission, now_ms))
        return effects + self._hand_over(outcomes, now_ms)

    def _order(self, opened: OpenedMessage, judgement: Judgement, now_ms: int) -> list[Effect]:
        """Pass a message without new content to SDS, and deliver an ephemeral message."""
        message, _, transmission = opened
        outcomes = self._receive(opened, judgement, now_ms)
        effects: list[Effect] = []
        if message.kind is Kind.EPHEMERAL and judgement is Judgement.NO_CONTENT:
            effects = emit(*self._undelivered.deliver_ephemeral(message, transmission))
            if self.sds.profile.ephemeral_is_content:
                # nim-sds logs and cites ephemeral messages, so messages that wait for this one are released.
                outcomes = outcomes + self.sds.dependencies.settle([message.message_id], now_ms)
        return effects + self._hand_over(outcomes, now_ms)

    def _receive(self, opened: OpenedMessage, judgement: Judgement, now_ms: int) -> list[SdsOutcome]:
        """Pass a message to SDS, and return the outcomes."""
        message, encoded, transmission = opened
        # Only content is cited, requested, or turned away.
        hint = transmission.message_hash if message.kind is Kind.CONTENT else None
        missing = self.sds.missing.get(message.message_id)
        if missing is not None and not transmission.from_store and missing.entry.retrieval_hint == hint:
            # The first transmission, which was only late; a retransmission has another hash.
            self._times.note_lateness(now_ms - missing.since_ms)
        from_store, sent_ms = transmission.from_store, transmission.sent_ms
        outcomes = self.sds.receive(
            message, hint, now_ms, encoded, judgement=judgement, from_store=from_store, sent_ms=sent_ms
        )
        if not from_store:
            self._sending.retries.heard(message.sender_id, now_ms)
            if judgement not in _OF_NO_MEMBER:
                self.sds.note_presence(message, now_ms, sent_ms, was_missing=missing is not None)
        changes_nothing_again = bool(message.causal_history)
        for outcome in outcomes:
            self._plan_sync(outcome, now_ms, from_store=from_store)
            if isinstance(outcome, MessageIgnored) and outcome.why not in _CHANGE_NOTHING_AGAIN:
                changes_nothing_again = False
        if changes_nothing_again:
            self._opener.note_processed(transmission)
        if judgement is Judgement.NO_ROOM:
            self._query_on_connect.turn_away(transmission.message_hash, now_ms)
        elif hint is not None:
            self._query_on_connect.found_room(hint)
        return outcomes

    def _refuse(self, opened: OpenedMessage, refused: Refused, now_ms: int) -> list[Effect]:
        """Pass a message with refused content to SDS; its sender retransmits it."""
        message, _, transmission = opened
        self._tally.add("not_kept")
        if refused.full is not None and self.sds.is_placed(message):
            self._query_on_connect.turn_away(transmission.message_hash, now_ms)
        else:
            # Without room and without citations it may be a first segment: the other segments cite it, and so it is
            # requested. A store is not read again for it: that may take a day, and a forger can begin any number of
            # messages.
            self._query_on_connect.found_room(transmission.message_hash)
        is_useless = refused.reason in {GIVEN_UP, HASH_MISMATCH}
        why = (
            ContentRefusal.NO_ROOM
            if refused.full is not None
            else ContentRefusal.USELESS
            if is_useless
            else ContentRefusal.INVALID
        )
        return self._hand_over(self.sds.refuse(message, now_ms, why, transmission.sent_ms), now_ms)

    def _hand_over(self, outcomes: list[SdsOutcome], now_ms: int) -> list[Effect]:
        """Act on the outcomes of SDS, in order; after a delivery no message waits for its unneeded lost segments."""
        effects: list[Effect] = []
        while outcomes:
            for outcome in outcomes:
                effects += self._act_on(outcome, now_ms)
            unneeded = self._undelivered.lost_segments.take_unneeded()
            outcomes = self.sds.stop_waiting(unneeded, now_ms) if unneeded else []
        return effects

    def _act_on(self, outcome: SdsOutcome, now_ms: int) -> list[Effect]:
        match outcome:
            case MessageReady(message=message, dependencies_met=met):
                return emit(*self._undelivered.deliver(message, now_ms, met=met))
            case MessageReviewed(review=review):
                return self._sending.retries.reviewed(review, now_ms)
            case DependenciesLost(entries=entries, reason=reason):
                return emit(*self._undelivered.given_up(entries, reason))
            case SenderIdShared():
                self._tally.add("sender_id_in_use")
            case MessageIgnored(why=why):
                self._tally.add(why.value)
        return []

    def _plan_sync(self, outcome: SdsOutcome, now_ms: int, *, from_store: bool) -> None:
        """Report an outcome to the timer of sync messages.

        Sync messages and copies from a store are ignored, because they are old: a sender that still waits for an
        acknowledgement retransmits.
        """
        match outcome:
            case MessageArrived(kind=Kind.CONTENT):
                self.sync_timer.content_received(now_ms)
            case _ if from_store:
                return
            case MessageArrived(kind=Kind.SYNC, message=message):
                misses, wrote_newest = self.sds.compare(message, now_ms)
                self.sync_timer.sync_received(now_ms, is_behind=misses is not None, wrote_newest=wrote_newest)
                if misses is not None:
                    self._sending.retries.is_missed(misses, now_ms)
            case MessageIgnored(why=Ignored.DUPLICATE):
                self.sync_timer.copy_received(now_ms)

    def _drain_outgoing(self, now_ms: int) -> list[Effect]:
        """Send all that may leave now: due retransmissions, queued transmissions, and segments of the outbox."""
        effects: list[Effect] = []
        for again in self._sending.retries.due(now_ms) if self._sending.outbound.connected else ():
            effects += self._seal_and_admit(again, now_ms)
        effects += self._sending.dispatch(now_ms)
        while (segment := self._sending.next_segment(now_ms)) is not None:
            made = self._sending.apply_sds(segment, now_ms)
            if isinstance(made, Transmission) and made.order_key is not None:
                effects.append(Placed(request_id=segment.request_id, order_key=made.order_key))
                if self.snapshots.newest is not None:
                    self.snapshots.placed(segment.request_id, made.order_key)
            effects += self._seal_and_admit(made, now_ms)
        return effects + self._sending.claim(now_ms)

    def _seal_and_admit(self, sent: Transmission | list[Effect], now_ms: int) -> list[Effect]:
        """Encrypt and limit a transmission, then dispatch; `cipher_done` continues if the hook is awaited."""
        if isinstance(sent, Transmission):
            if sent.carries_segment:
                self.presence.content_transmitted(now_ms)
            encrypted = self._sending.encrypt(sent, now_ms)
            sent = self._sending.limit(sent, encrypted, now_ms) if isinstance(encrypted, bytes) else encrypted
        return sent + self._sending.dispatch(now_ms)

    def _answer_repairs(self, now_ms: int) -> list[Effect]:
        """Send the answers to repair requests that are due (SDS-R)."""
        effects: list[Effect] = []
        for message_id, encoded in self.sds.sweep_repair(now_ms):
            effects += self._seal_and_admit(self._sending.repair(message_id, encoded), now_ms)
        return effects

    def _sweep_at(self) -> int | None:
        """Return when to sweep the waiting messages: regularly, and when a missing message is given up."""
        if not (self.sds.missing or self.sds.parked):
            return None
        loss_at = self.sds.dependencies.next_loss_at()
        return self._next_sweep_at if loss_at is None else min(self._next_sweep_at, loss_at)

    def _sync_for_repair_at(self) -> int | None:
        """Return when to send a sync message for a repair request (SDS-R: SHOULD be sent then regardless).

        Returns None while a sync message is queued: another would only replace it, and use up the limited number of
        sync messages for repairs.
        """
        due_at = self.sds.repair.requests.next_at()
        if due_at is None or not self.options.sds.repair.enabled or self._sending.sync_messages.waits:
            return None
        return self.sync_timer.for_repair_at(due_at)

    def _update_wait_clock(self, now_ms: int) -> None:
        """Run the waiting clock only while missing messages can arrive.

        The clock stops while the channel is offline, while a store is read, and while the application has no room.
        """
        is_reading = self._query_on_connect.may_bring_more(now_ms) or bool(self.sds.dependencies.held_back)
        possible = self._sending.outbound.connected and not is_reading
        self.sds.dependencies.can_come(possible, now_ms)

    def _sync_times(self) -> tuple[int | None, ...]:
        """Return when to send a sync message; empty while a segment is encrypted, because the message would cite it."""
        if self._ciphering.encrypting_segments:
            return ()
        return (self.sync_timer.at_ms, self._sync_for_repair_at())

    def _send_sync(self, now_ms: int) -> list[Effect]:
        """Send a sync message if its time has come, or a repair request needs one."""
        times = self._sync_times()
        if not any(at is not None and at <= now_ms for at in times):
            return []
        self.sync_timer.on_sent(now_ms)
        return self._seal_and_admit(self._sending.sync_messages.compose(now_ms) or [], now_ms)

    def _hand_out_at(self, epochs: EpochCipher) -> int | None:
        """Return when members who do not have the newest key of the group need a message with it."""
        wait_ms = epochs.hand_out_in_ms
        return None if wait_ms is None else self._now_ms + wait_ms

    def _hand_out_keys(self, now_ms: int) -> list[Effect]:
        if self._epochs is None or self._epochs.hand_out_in_ms != 0:
            return []
        sync = self._sending.sync_messages.compose(now_ms, even_empty=True)
        return self._seal_and_admit(sync or [], now_ms)

    def _plan_anew(self, now_ms: int) -> None:
        """Plan all times anew from now: after a restart, and after the clock was set back."""
        self._next_sweep_at = now_ms + self.options.sweep_in_buf_interval_ms
        self._retrieval = Retrieval(self.options, self._times)
        self.sync_timer.begin(now_ms)
        self.presence.plan_anew(now_ms)
        self.sds.repair.plan_anew(now_ms)
        self._sending.plan_anew(now_ms)
        self._query_on_connect.plan_anew(now_ms)

    def _finish(self, effects: Iterable[Effect], now_ms: int) -> tuple[Effect, ...]:
        """Return all effects of an operation: `Persist` first, events about the new state last."""
        if now_ms < self._now_ms - _CLOCK_SET_BACK_MS:
            self._plan_anew(now_ms)
        self._now_ms = now_ms
        limiter = self._sending.outbound.limiter
        self._times.is_limited = limiter.limiting or limiter.pace.limiting
        self.sds.repair.set_t_min(self._times.repair_ms, now_ms)
        self._retrieval.plan(self.sds.missing, self.sds.dependencies.incoming.noticed, now_ms)
        effects = self._sending.requests.for_each_send(effects)
        events: list[Event] = []
        for limit, bound, bites in self.sds.dependencies.limits():
            events += self._limits.note(limit, bound, bites=bites)
        events += self._notices.take(now_ms)
        events += self.presence.take_events()
        blockage = self._sending.blockage
        if blockage.is_long:
            events += blockage.take(now_ms)
        is_behind = self.may_miss_messages or blockage.is_long
        status = ChannelStatus.SYNCING if is_behind else ChannelStatus.SYNCED
        if status is not self._status:
            self._status = status
            events.append(StatusChanged(status=status))
        if events:
            effects = [*effects, *emit(*events)]
        changes = self._state.changes()
        return (Persist(changes=changes), *effects) if changes else tuple(effects)
