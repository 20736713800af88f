"""Everything that comes in, up the layers (seed 002, "Messaging extended definitions": Decrypt, SDS, Reassemble).

What SDS finds out about a message goes where it belongs: content to the reassembler and the application, evidence about
own messages to the sending half, and whatever says that somebody else spoke to the timer of sync messages.

Nothing is raised here, whatever comes: what cannot be used is counted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from fairway.errors import DecodeError
from fairway.options import Profile, ReliableChannelOptions
from fairway.protocol.ciphering import Ciphering
from fairway.protocol.effects import Effects
from fairway.protocol.inbound import Carrier, Inbound
from fairway.protocol.outbound import LOGOS_MARKER, Outbound
from fairway.protocol.query_on_connect import QueryOnConnect
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
    SenderIdInUse,
)
from fairway.protocol.segmentation.outcomes import Kept, Refused, SegmentDiscarded
from fairway.protocol.sending import Sending
from fairway.protocol.siblings import LostSiblings
from fairway.protocol.statistics import Tally
from fairway.protocol.sync_timer import SyncTimer
from fairway.wire.sds import Kind, SdsMessage
from fairway.wire.waku_message import WakuMessage

_NANOSECONDS_PER_MILLISECOND: Final = 1_000_000
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
        inbound: Inbound,
        siblings: LostSiblings,
        ciphering: Ciphering,
        outbound: Outbound,
        sending: Sending,
        sync: SyncTimer,
        query_on_connect: QueryOnConnect,
        effects: Effects,
        tally: Tally,
    ) -> None:
        self._content_topic = content_topic
        self._options = options
        self._sds = sds
        self._inbound = inbound
        self._siblings = siblings
        self._ciphering = ciphering
        self._outbound = outbound
        self._sending = sending
        self._sync = sync
        self._query_on_connect = query_on_connect
        self._effects = effects
        self._tally = tally

    def receive(self, message: WakuMessage, now_ms: int) -> None:
        """Process a message from the network, if it is one of this channel's topic and key."""
        carrier = self._carrier_of(message)
        if carrier is not None:
            self._ciphering.open(
                message.payload,
                then=lambda plaintext, now: self._decrypted(plaintext, carrier, now),
                failed=lambda _, __: self._tally.add("undecryptable"),
                now_ms=now_ms,
            )

    def process(self, outcomes: list[SdsOutcome], now_ms: int) -> None:
        """Act on what SDS found, in order; lost segments that need no waiting for may make it find more."""
        while outcomes:
            for outcome in outcomes:
                self._act_on(outcome, now_ms)
            outcomes = self._siblings.let_go(now_ms)

    def _carrier_of(self, message: WakuMessage) -> Carrier | None:
        """Return what to remember of a WakuMessage, or None if it is nothing for this channel."""
        options = self._options
        if message.content_topic != self._content_topic:
            self._tally.add("foreign_topic")
        elif len(message.payload) > options.max_received_bytes:
            self._tally.add("oversized")
        elif (message.version or 0) != self._outbound.waku_version:
            self._tally.add("undecryptable")
        elif options.profile is Profile.LOGOS and message.meta != LOGOS_MARKER:
            self._tally.add("unmarked")
        else:
            self._tally.add("received")
            if _EARLIEST_NS <= (message.timestamp_ns or 0) <= _LATEST_NS:
                return Carrier(self._outbound.pubsub_topic, message)
            self._tally.add("undecodable")
        return None

    def _decrypted(self, plaintext: bytes, carrier: Carrier, now_ms: int) -> None:
        """Pass one SDS message up the layers; SDS says what happened, and `_act_on` goes on from there."""
        try:
            message = self._sds.dialect.codec.decode(plaintext)
        except DecodeError:
            self._tally.add("undecodable")
            return
        self._tally.add("opened")
        if carrier.is_ephemeral and _has_no_place(message):
            message = replace(message, lamport_timestamp=None)
        if message.repair_request and self._is_stale(carrier, now_ms):
            message = replace(message, repair_request=())
        if message.channel_id == self._sds.channel_id:
            if message.causal_history:
                self._query_on_connect.history_heard += 1
            self.process(self._siblings.cited(self._sds.dependencies.cited(message), now_ms), now_ms)
        kind = message.kind
        kept: Kept | None = None
        if kind is Kind.CONTENT and self._sds.is_new_content(message):
            answer, events = self._inbound.keep(message, now_ms)
            self._effects.tell(*events)
            if isinstance(answer, Refused):
                self._tally.add("not_kept")
                if isinstance(answer, SegmentDiscarded) and answer.full is not None:
                    self._query_on_connect.turn_away(carrier.message_hash, now_ms)
                return
            kept = answer
        # Nothing but content is cited, asked for, or turned away.
        hint = carrier.message_hash if kind is Kind.CONTENT else None
        outcomes = self._sds.receive(message, hint, now_ms, plaintext)
        if hint is not None:
            had_room = not any(isinstance(o, MessageIgnored) and o.why is Ignored.NO_ROOM for o in outcomes)
            if had_room:
                self._query_on_connect.take_in(hint)
            else:
                self._query_on_connect.turn_away(hint, now_ms)
        if kept is not None:
            self._effects.tell(*self._inbound.arrived(message, kept, carrier))
        elif kind is Kind.EPHEMERAL and any(isinstance(outcome, MessageArrived) for outcome in outcomes):
            self._effects.tell(*self._inbound.ephemeral(message, carrier))
            if self._options.profile is Profile.LOGOS:
                # nim-sds logs and cites it like any other, and nobody has to wait for it.
                outcomes += self._sds.settle([message.message_id], now_ms)
        self.process(outcomes, now_ms)

    def _is_stale(self, carrier: Carrier, now_ms: int) -> bool:
        """Return whether a message comes out of a store rather than from somebody who is asking now.

        Whatever it asked for was answered, or asked for again, long ago.
        """
        sent_at_ms = carrier.timestamp_ns // _NANOSECONDS_PER_MILLISECOND
        return bool(sent_at_ms) and sent_at_ms < now_ms - self._options.sds.repair.t_max_ms

    def _act_on(self, outcome: SdsOutcome, now_ms: int) -> None:
        match outcome:
            case MessageArrived(kind=Kind.CONTENT):
                self._sync.content_received(now_ms)
            case MessageArrived(kind=Kind.SYNC):
                self._sync.sync_received(now_ms)
            case MessageReady(message=message, dependencies_met=met):
                self._effects.tell(*self._inbound.released(message, met=met))
            case MessageReviewed(review=review):
                self._sending.reviewed(review, now_ms)
            case DependenciesMissing(entries=entries):
                self._siblings.missed(entry.message_id for entry in entries)
            case DependenciesLost(entries=entries, reason=reason):
                self._effects.tell(*self._inbound.given_up(entries, reason))
            case SenderIdInUse():
                self._tally.add("sender_id_in_use")
            case MessageIgnored(why=why):
                self._tally.add(why.value)
                if why is Ignored.DUPLICATE:
                    self._sync.copy_received(now_ms)


def _has_no_place(message: SdsMessage) -> bool:
    """Return whether a message has neither a Lamport timestamp nor a history, as an ephemeral one.

    nim-sds cannot leave the timestamp out, so that there it is zero.
    """
    return not (message.lamport_timestamp or message.causal_history or message.bloom_filter)
