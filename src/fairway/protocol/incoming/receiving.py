"""The layers on the way in: Decrypt, SDS, Reassemble, Deliver (LIP-173, "Incoming message processing").

Each layer is one function of `Receiving`. `Stack._pass_up` calls them, the reassembler before SDS. What SDS finds goes
where it belongs (`Receiving.process`): messages to the application, evidence about own messages to the sending half,
and what others say to the timer of sync messages.

A transmission is a WakuMessage under its deterministic hash. It is processed once: nodes push it twice, and a store
brings what was heard already. When a sender transmits a message again, the hash is another one, and the sender seems to
miss an acknowledgement.

Nothing is raised here, whatever comes: what cannot be used is counted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from fairway.errors import DecodeError, DecryptionError
from fairway.options import ReliableChannelOptions
from fairway.protocol.effects import Effect, emit
from fairway.protocol.encryption.ciphering import Ciphering
from fairway.protocol.incoming.catching_up import QueryOnConnect
from fairway.protocol.incoming.delivering import Delivering, ReceivedWakuMessage
from fairway.protocol.incoming.lost_segments import LostSegments
from fairway.protocol.incoming.undelivered import Undelivered
from fairway.protocol.journal import Journal
from fairway.protocol.limits import LimitWatch
from fairway.protocol.outgoing.sending import Sending
from fairway.protocol.outgoing.sync_timer import SyncTimer
from fairway.protocol.recent_hashes import RecentHashes
from fairway.protocol.sds.channel import MessageChannel
from fairway.protocol.sds.outcome import (
    DependenciesLost,
    DependenciesMissing,
    Ignored,
    MessageArrived,
    MessageIgnored,
    MessageReady,
    MessageReviewed,
    SdsOutcome,
    SenderIdShared,
)
from fairway.protocol.segmentation.outcomes import (
    GIVEN_UP,
    HASH_MISMATCH,
    MessageComplete,
    Outcome,
    Refused,
    SegmentKept,
)
from fairway.protocol.segmentation.reassembler import Reassembler
from fairway.protocol.statistics import Tally
from fairway.wire.sds import Kind, SdsMessage
from fairway.wire.waku_message import WakuMessage

REASSEMBLY: Final = "reassembly"
_MAX_PROCESSED: Final = 10_000
"""Transmissions remembered; one that comes again after so many others is processed again, which changes nothing."""
_EARLIEST_NS: Final = -(1 << 63)
_LATEST_NS: Final = (1 << 63) - 1
"""Timestamps beyond 64 bits have no hash, and no network carries them (14/WAKU2-MESSAGE: an int64)."""


_CHANGE_NOTHING_AGAIN: Final = frozenset({Ignored.DUPLICATE, Ignored.ACKNOWLEDGED, Ignored.ANSWER, Ignored.OWN})
"""Reasons to ignore a message for which the same transmission need not be processed again."""


class Transmitted(NamedTuple):
    """An SDS message, and how it came in."""

    message: SdsMessage
    plaintext: bytes
    transmission: ReceivedWakuMessage


class Receiving:
    """The incoming half of a channel."""

    def __init__(
        self,
        content_topic: str,
        options: ReliableChannelOptions,
        *,
        sds: MessageChannel,
        ciphering: Ciphering,
        sending: Sending,
        sync: SyncTimer,
        query_on_connect: QueryOnConnect,
        journal: Journal,
        tally: Tally,
        limits: LimitWatch,
    ) -> None:
        self._content_topic = content_topic
        self._options = options
        self._sds = sds
        self.reassembler = Reassembler(
            options.segmentation, options.segment_format, on_change=lambda key: journal.touch(REASSEMBLY, key)
        )
        self.undelivered = Undelivered(journal)
        self._lost_segments = LostSegments(options, sds, self.undelivered)
        self.delivering = Delivering(
            content_topic, options, sds, self.reassembler, self.undelivered, self._lost_segments, limits
        )
        self._ciphering = ciphering
        self._outbound = sending.outbound
        self._sending = sending
        self._sync = sync
        self._query_on_connect = query_on_connect
        self._tally = tally
        self._processed = RecentHashes(_MAX_PROCESSED)

    def transmission_of(
        self, message: WakuMessage, message_hash: bytes | None, *, from_store: bool
    ) -> ReceivedWakuMessage | None:
        """Return what to remember of a WakuMessage; None if it is not for this channel, or was processed before."""
        options = self._options
        if message.content_topic != self._content_topic:
            self._tally.add("foreign_topic")
        elif len(message.payload) > options.max_received_bytes:
            self._tally.add("oversized")
        elif (message.version or 0) != self._outbound.waku_version:
            self._tally.add("undecryptable")
        elif self._sds.profile.marker not in (None, message.meta):
            self._tally.add("unmarked")
        else:
            self._tally.add("received")
            if _EARLIEST_NS <= (message.timestamp_ns or 0) <= _LATEST_NS:
                pubsub_topic = self._outbound.pubsub_topic
                transmission = ReceivedWakuMessage(pubsub_topic, message, message_hash, from_store=from_store)
                if transmission.message_hash not in self._processed:
                    return transmission
                self._tally.add("repeated")
                # Only what has a causal history is remembered as processed (`apply_sds`).
                self._query_on_connect.heard_history()
            else:
                self._tally.add("undecodable")
        return None

    def decrypt(self, payload: bytes, transmission: ReceivedWakuMessage) -> bytes | list[Effect]:
        """Return a payload decrypted, or what to do while the hook is awaited; nothing if that fails."""
        try:
            plaintext = self._ciphering.decrypt(payload, transmission)
        except DecryptionError:
            return self.not_decrypted()
        return plaintext if isinstance(plaintext, bytes) else [plaintext]

    def not_decrypted(self) -> list[Effect]:
        """Count what is not encrypted for this channel."""
        self._tally.add("undecryptable")
        return []

    def decode(self, plaintext: bytes, transmission: ReceivedWakuMessage) -> Transmitted | None:
        """Return the SDS message in a plaintext, without what it says that does not count; None if there is none."""
        try:
            message = self._sds.profile.codec.decode(plaintext)
        except DecodeError:
            self._tally.add("undecodable")
            return None
        if message.sender_id != self._sds.sender_id:
            # A node pushes own messages, too, which a wrong key opens.
            self._tally.add("opened")
        if message.channel_id != self._sds.channel_id:
            self._tally.foreign_channel_id = message.channel_id
        if transmission.is_ephemeral and _has_no_place(message):
            message = replace(message, lamport_timestamp=None)
        if message.repair_request and transmission.from_store:
            # Whatever it asked for was answered, or asked for again, long ago.
            message = replace(message, repair_request=())
        return Transmitted(message, plaintext, transmission)

    def reassemble(self, transmitted: Transmitted, now_ms: int) -> tuple[Outcome | None, list[Effect]]:
        """Show new content to the reassembler, and return its answer and the effects; what it refuses was not received.

        The answer is None for what is no content, or is here already.
        """
        message, _, transmission = transmitted
        if message.channel_id == self._sds.channel_id and message.causal_history:
            self._query_on_connect.heard_history()
        if message.kind is not Kind.CONTENT or not self._sds.is_new_content(message):
            return None, []
        answer, events = self.delivering.reassemble(message, now_ms)
        effects = emit(*events)
        if not isinstance(answer, Refused):
            self._query_on_connect.found_room(transmission.message_hash)
            return answer, effects
        self._tally.add("not_kept")
        effects += self.process(self._sds.heard(message, now_ms, transmission.sent_ms), now_ms)
        if answer.full is not None and self._sds.is_placed(message):
            self._query_on_connect.turn_away(transmission.message_hash, now_ms)
        else:
            # Without room: if it begins a message, the rest of that cites it. Nothing else need be read again for it,
            # which might take a day: it may be one of many that somebody begins and never ends.
            self._query_on_connect.found_room(transmission.message_hash)
        if answer.full is not None:
            self._sds.refused(message, now_ms)
        elif answer.reason in {GIVEN_UP, HASH_MISMATCH}:
            effects += self.process(self._sds.give_up(message, now_ms), now_ms)
        return answer, effects

    def apply_sds(self, transmitted: Transmitted, now_ms: int) -> list[SdsOutcome]:
        """Let SDS take a message in, and return what it found."""
        message, plaintext, transmission = transmitted
        # Nothing but content is cited, asked for, or turned away.
        hint = transmission.message_hash if message.kind is Kind.CONTENT else None
        from_store, sent_ms = transmission.from_store, transmission.sent_ms
        outcomes = self._sds.receive(message, hint, now_ms, plaintext, from_store=from_store, sent_ms=sent_ms)
        if not transmission.from_store:
            self._sending.heard(message.sender_id, now_ms)
        for outcome in outcomes:
            self._plan_sync(outcome, now_ms, from_store=transmission.from_store)
        ignored = [outcome.why for outcome in outcomes if isinstance(outcome, MessageIgnored)]
        if message.causal_history and _CHANGE_NOTHING_AGAIN.issuperset(ignored):
            self._processed.add(transmission.message_hash)
        if hint is not None:
            if Ignored.NO_ROOM not in ignored:
                self._query_on_connect.found_room(hint)
            else:
                self._query_on_connect.turn_away(hint, now_ms)
        return outcomes

    def deliver(
        self,
        transmitted: Transmitted,
        kept: MessageComplete | SegmentKept | None,
        outcomes: list[SdsOutcome],
        now_ms: int,
    ) -> list[Effect]:
        """Deliver what need not wait for its causal place, then act on what SDS found (`process`)."""
        message, _, transmission = transmitted
        effects: list[Effect] = []
        if kept is not None:
            effects = emit(*self.delivering.keep(message, kept, transmission, now_ms))
            self._lost_segments.look_at(message)
        elif message.kind is Kind.EPHEMERAL and any(isinstance(outcome, MessageArrived) for outcome in outcomes):
            effects = emit(*self.delivering.deliver_ephemeral(message, transmission))
            if self._sds.profile.ephemeral_is_content:
                # nim-sds logs and cites it like any other, and no message has to wait for it.
                outcomes = outcomes + self._sds.settle([message.message_id], now_ms)
        return effects + self.process(outcomes, now_ms)

    def process(self, outcomes: list[SdsOutcome], now_ms: int) -> list[Effect]:
        """Act on what SDS found, in order; lost segments that need no waiting for may make it find more."""
        effects: list[Effect] = []
        while outcomes:
            for outcome in outcomes:
                effects += self._act_on(outcome, now_ms)
            outcomes = self._lost_segments.release(now_ms)
        return effects

    def _plan_sync(self, outcome: SdsOutcome, now_ms: int, *, from_store: bool) -> None:
        """Let the timer of sync messages know who spoke, and who waits for an acknowledgement.

        Messages in a store are old: a sender that still waits for an acknowledgement sends again.
        """
        match outcome:
            case MessageArrived(kind=Kind.CONTENT):
                self._sync.content_received(now_ms)
            case _ if from_store:
                return
            case MessageArrived(kind=Kind.SYNC, message=message):
                is_behind, cites_newest, wrote_newest = self._sds.compare(message, now_ms)
                self._sync.sync_received(
                    now_ms, is_behind=is_behind, cites_newest=cites_newest, wrote_newest=wrote_newest
                )
            case MessageIgnored(why=Ignored.DUPLICATE):
                self._sync.copy_received(now_ms)

    def _act_on(self, outcome: SdsOutcome, now_ms: int) -> list[Effect]:
        match outcome:
            case MessageArrived() | DependenciesMissing():
                # What follows from it alone was done when it was taken in.
                return []
            case MessageReady(message=message, dependencies_met=met):
                return emit(*self.delivering.deliver(message, now_ms, met=met))
            case MessageReviewed(review=review):
                return self._sending.reviewed(review, now_ms)
            case DependenciesLost(entries=entries, reason=reason):
                return emit(*self.delivering.given_up(entries, reason))
            case SenderIdShared():
                self._tally.add("sender_id_in_use")
            case MessageIgnored(why=why):
                self._tally.add(why.value)
        return []


def _has_no_place(message: SdsMessage) -> bool:
    """Return whether a message has neither a Lamport timestamp nor a history, as an ephemeral one.

    nim-sds cannot leave the timestamp out, so that there it is zero.
    """
    return not (message.lamport_timestamp or message.causal_history or message.bloom_filter)
