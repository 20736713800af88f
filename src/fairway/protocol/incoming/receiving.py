"""The way in: Decrypt, SDS, Reassemble, Deliver (LIP-173, "Incoming message processing").

Each layer is one function of `Receiving`, in this order. What SDS finds goes where it belongs (`Receiving.process`):
messages to the application, evidence about own messages to the sending half, and what others say to the timer of sync
messages.

A transmission is a WakuMessage under its deterministic hash. It is taken in once: nodes push it twice, and a store
brings what was heard already. When a sender transmits a message again, the hash is another one, and the sender seems to
miss an acknowledgement.

Nothing is raised here, whatever comes: what cannot be used is counted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from fairway.errors import DecodeError, DecryptionError
from fairway.options import ReliableChannelOptions
from fairway.protocol.effects import AwaitCipher, Effects
from fairway.protocol.encryption.ciphering import Ciphering
from fairway.protocol.incoming.catching_up import QueryOnConnect
from fairway.protocol.incoming.delivering import Delivering, ReceivedWakuMessage
from fairway.protocol.incoming.lost_segments import LostSegments
from fairway.protocol.incoming.undelivered import Undelivered
from fairway.protocol.journal import Journal
from fairway.protocol.limits import LimitWatch
from fairway.protocol.outgoing.dispatching import Outbound
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
from fairway.protocol.segmentation.outcomes import Kept, Outcome, Refused, SegmentDiscarded, SegmentSetAside
from fairway.protocol.segmentation.reassembler import Reassembler
from fairway.protocol.segmentation.segmenter import Segmenter
from fairway.protocol.statistics import Tally
from fairway.wire.sds import Kind, SdsMessage
from fairway.wire.waku_message import WakuMessage

REASSEMBLY: Final = "reassembly"
_MAX_TAKEN_IN: Final = 10_000
"""Transmissions remembered; one that comes again after so many others is processed again, which changes nothing."""
_EARLIEST_NS: Final = -(1 << 63)
_LATEST_NS: Final = (1 << 63) - 1
"""Timestamps beyond 64 bits have no hash, and no network carries them (14/WAKU2-MESSAGE: an int64)."""


class Receiving:
    """The incoming half of a channel."""

    def __init__(
        self,
        content_topic: str,
        options: ReliableChannelOptions,
        *,
        sds: MessageChannel,
        segmenter: Segmenter,
        ciphering: Ciphering,
        outbound: Outbound,
        sending: Sending,
        sync: SyncTimer,
        query_on_connect: QueryOnConnect,
        journal: Journal,
        effects: Effects,
        tally: Tally,
        limits: LimitWatch,
    ) -> None:
        self._content_topic = content_topic
        self._options = options
        self._sds = sds
        self.reassembler = Reassembler(
            options.segmentation, sds.profile.segments, on_change=lambda key: journal.touch(REASSEMBLY, key)
        )
        self.undelivered = Undelivered(journal)
        self._lost_segments = LostSegments(options, sds, segmenter, self.undelivered)
        self.delivering = Delivering(
            content_topic, options, sds, self.reassembler, self.undelivered, self._lost_segments, limits
        )
        self._ciphering = ciphering
        self._outbound = outbound
        self._sending = sending
        self._sync = sync
        self._query_on_connect = query_on_connect
        self._effects = effects
        self._tally = tally
        self._taken_in = RecentHashes(_MAX_TAKEN_IN)

    def receive(self, message: WakuMessage, now_ms: int, message_hash: bytes | None, *, from_store: bool) -> None:
        """Process a message from the network, if it is one of this channel's topic and key, and was not before."""
        transmission = self._transmission_of(message, message_hash, from_store=from_store)
        if transmission is None:
            return
        if transmission.message_hash in self._taken_in:
            self._tally.add("repeated")
            self._query_on_connect.history_heard += 1
        else:
            self._decrypt(message.payload, transmission, now_ms)

    def _transmission_of(
        self, message: WakuMessage, message_hash: bytes | None, *, from_store: bool
    ) -> ReceivedWakuMessage | None:
        """Return what to remember of a WakuMessage, or None if it is nothing for this channel."""
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
                return ReceivedWakuMessage(self._outbound.pubsub_topic, message, message_hash, from_store=from_store)
            self._tally.add("undecodable")
        return None

    def _decrypt(self, payload: bytes, transmission: ReceivedWakuMessage, now_ms: int) -> None:
        """Open a payload and pass it up; `decrypted` goes on where the hook is awaited."""
        try:
            opened = self._ciphering.open(payload, transmission)
        except DecryptionError as error:
            self.decrypted(transmission, error, now_ms)
            return
        if isinstance(opened, AwaitCipher):
            self._effects.add(opened)
        else:
            self._pass_up(opened, transmission, now_ms)

    def decrypted(self, transmission: ReceivedWakuMessage, result: bytes | Exception, now_ms: int) -> None:
        """Pass up what the encryption hook opened; count what is not sealed for this channel."""
        if isinstance(result, bytes):
            self._pass_up(result, transmission, now_ms)
        else:
            self._tally.add("undecryptable")

    def _pass_up(self, plaintext: bytes, transmission: ReceivedWakuMessage, now_ms: int) -> None:
        """Pass one SDS message up the layers: SDS, Reassemble, Deliver.

        SDS acknowledges what it takes in, so that the reassembler is shown the content before.
        """
        message = self._decode(plaintext, transmission)
        if message is None:
            return
        if message.channel_id == self._sds.channel_id and message.causal_history:
            self._query_on_connect.history_heard += 1
            self.process(self._lost_segments.enter_cited(self._sds.cited_by(message), now_ms), now_ms)
        kept: Kept | None = None
        if message.kind is Kind.CONTENT and self._sds.is_new_content(message):
            answer = self._reassemble(message, transmission, now_ms)
            if isinstance(answer, Refused):
                return
            kept = answer
        outcomes = self._apply_sds(message, plaintext, transmission, now_ms)
        outcomes += self._deliver(message, kept, transmission, outcomes, now_ms)
        self.process(outcomes, now_ms)

    def _decode(self, plaintext: bytes, transmission: ReceivedWakuMessage) -> SdsMessage | None:
        """Return the SDS message in a plaintext, without what it says that does not count; None if there is none."""
        try:
            message = self._sds.profile.codec.decode(plaintext)
        except DecodeError:
            self._tally.add("undecodable")
            return None
        self._tally.add("opened")
        if transmission.is_ephemeral and _has_no_place(message):
            message = replace(message, lamport_timestamp=None)
        if message.repair_request and transmission.from_store:
            # Whatever it asked for was answered, or asked for again, long ago.
            message = replace(message, repair_request=())
        return message

    def _apply_sds(
        self, message: SdsMessage, plaintext: bytes, transmission: ReceivedWakuMessage, now_ms: int
    ) -> list[SdsOutcome]:
        """Let SDS take a message in, and return what it found."""
        # Nothing but content is cited, asked for, or turned away.
        hint = transmission.message_hash if message.kind is Kind.CONTENT else None
        outcomes = self._sds.receive(message, hint, now_ms, plaintext, from_store=transmission.from_store)
        for outcome in outcomes:
            self._plan_sync(outcome, now_ms, from_store=transmission.from_store)
        if message.causal_history and all(_is_settled(outcome) for outcome in outcomes):
            self._taken_in.add(transmission.message_hash)
        if hint is not None:
            had_room = not any(isinstance(o, MessageIgnored) and o.why is Ignored.NO_ROOM for o in outcomes)
            if had_room:
                self._query_on_connect.take_in(hint)
            else:
                self._query_on_connect.turn_away(hint, now_ms)
        return outcomes

    def _reassemble(self, message: SdsMessage, transmission: ReceivedWakuMessage, now_ms: int) -> Outcome:
        """Show new content to the reassembler, and return its answer; what it refuses was not received."""
        answer, events = self.delivering.reassemble(message, now_ms)
        self._effects.tell(*events)
        if isinstance(answer, Refused):
            self._tally.add("not_kept")
        if isinstance(answer, SegmentDiscarded) and answer.full is not None:
            self._query_on_connect.turn_away(transmission.message_hash, now_ms)
            self.process(self._sds.refused(message, now_ms), now_ms)
            return answer
        # What there was no room for before may turn out to be nothing that can be taken in.
        self._query_on_connect.take_in(transmission.message_hash)
        if isinstance(answer, SegmentSetAside):
            self.process(self._sds.set_aside(message, now_ms), now_ms)
        return answer

    def _deliver(
        self,
        message: SdsMessage,
        kept: Kept | None,
        transmission: ReceivedWakuMessage,
        outcomes: list[SdsOutcome],
        now_ms: int,
    ) -> list[SdsOutcome]:
        """Deliver what need not wait for its causal place; the rest follows when SDS delivers it (`process`)."""
        if kept is not None:
            self._effects.tell(*self.delivering.taken_in(message, kept, transmission))
        elif message.kind is Kind.EPHEMERAL and any(isinstance(outcome, MessageArrived) for outcome in outcomes):
            self._effects.tell(*self.delivering.deliver_ephemeral(message, transmission))
            if self._sds.profile.ephemeral_is_content:
                # nim-sds logs and cites it like any other, and nobody has to wait for it.
                return self._sds.settle([message.message_id], now_ms)
        return []

    def process(self, outcomes: list[SdsOutcome], now_ms: int) -> None:
        """Act on what SDS found, in order; lost segments that need no waiting for may make it find more."""
        while outcomes:
            for outcome in outcomes:
                self._act_on(outcome, now_ms)
            outcomes = self._lost_segments.release(now_ms)

    def _plan_sync(self, outcome: SdsOutcome, now_ms: int, *, from_store: bool) -> None:
        """Let the timer of sync messages know who spoke, and who waits for an acknowledgement.

        Who spoke into a store did so long ago, and whoever waited then repeats himself if he still does.
        """
        match outcome:
            case MessageArrived(kind=Kind.CONTENT):
                self._sync.content_received(now_ms)
            case _ if from_store:
                return
            case MessageArrived(kind=Kind.SYNC, message=message):
                self._sync.sync_received(now_ms, is_behind=self._sds.is_ahead_of(message, now_ms))
            case MessageIgnored(why=Ignored.DUPLICATE):
                self._sync.copy_received(now_ms)

    def _act_on(self, outcome: SdsOutcome, now_ms: int) -> None:
        match outcome:
            case MessageArrived():
                # What follows from it alone was done when it was taken in.
                return
            case MessageReady(message=message, dependencies_met=met):
                self._effects.tell(*self.delivering.deliver(message, met=met))
            case MessageReviewed(review=review):
                self._sending.reviewed(review, now_ms)
            case DependenciesMissing(entries=entries):
                self._lost_segments.found_missing(entry.message_id for entry in entries)
            case DependenciesLost(entries=entries, reason=reason):
                self._effects.tell(*self.delivering.given_up(entries, reason))
            case SenderIdShared():
                self._tally.add("sender_id_in_use")
            case MessageIgnored(why=why):
                self._tally.add(why.value)


def _is_settled(outcome: SdsOutcome) -> bool:
    """Return whether an outcome means that to receive the same transmission again would change nothing."""
    return not isinstance(outcome, MessageIgnored) or outcome.why in {Ignored.DUPLICATE, Ignored.ANSWER}


def _has_no_place(message: SdsMessage) -> bool:
    """Return whether a message has neither a Lamport timestamp nor a history, as an ephemeral one.

    nim-sds cannot leave the timestamp out, so that there it is zero.
    """
    return not (message.lamport_timestamp or message.causal_history or message.bloom_filter)
