"""js-waku's MessageChannel: fairway's, with js-waku's parts and js-waku's order of steps.

Reproduces version 0.0.8 of js-waku's packages/sds; functions that are named without a file are those of its
src/message_channel/message_channel.ts.
"""

from __future__ import annotations

from typing import Final

from fairway.options import SdsConfig
from fairway.protocol.sds.channel import MessageChannel
from fairway.protocol.sds.history import HistoryRecord
from fairway.protocol.sds.outcome import (
    DependenciesMissing,
    Ignored,
    Judgement,
    MessageArrived,
    MessageIgnored,
    MessageReviewed,
    SdsOutcome,
)
from fairway.wire.sds import HistoryEntry, Kind, SdsMessage
from js_waku.acknowledging import JsOutgoingBuffer
from js_waku.citing import JsCitations
from js_waku.faults import Fault
from js_waku.history import JsBloom, JsLocalHistory
from js_waku.repairing import JsRepair
from js_waku.waiting import JsDependencies, Waiting

_ANY_TIMESTAMP: Final = 1 << 64
"""Beyond every timestamp that the wire can carry."""


class ReceiptAbortedError(Exception):
    """js-waku gave up a message half-way; ``told`` is what happened before, ``error`` the name of what it threw."""

    def __init__(self, error: str, told: list[SdsOutcome]) -> None:
        super().__init__(error)
        self.error = error
        self.told = told


class JsWakuChannel(MessageChannel):
    """The SDS state of one participant that runs js-waku."""

    outgoing: JsOutgoingBuffer
    repair: JsRepair
    dependencies: JsDependencies
    history: JsLocalHistory

    def __init__(self, channel_id: str, sender_id: str, config: SdsConfig, *, now_ms: int) -> None:
        """Make an empty channel of js-waku's parts."""
        super().__init__(channel_id, sender_id, config, now_ms=now_ms)
        self._faults: dict[Fault, None] = {}
        self._now_ms = now_ms
        self._kept: dict[str, SdsMessage] = {}
        codec, notice = self.profile.codec, self._notice
        self.history = JsLocalHistory(config.causal_history_size, notice)
        self.pending_citations = JsCitations(sender_id, self.profile.segments, notice)
        self.bloom = JsBloom(self.bloom_parameters, codec.bloom, notice)
        self.outgoing = JsOutgoingBuffer(
            codec, self.bloom_parameters, config.possible_acks_threshold, self.journal, notice
        )
        self.repair = JsRepair(
            sender_id,
            config.repair,
            self.profile.repair,
            self.journal,
            max_heard=config.max_repair_requests,
            notice=notice,
        )
        self.dependencies = JsDependencies(
            config, self.journal, self.history, self.repair, self._deliver_parked, self._deliver_waiting, notice
        )

    def broadcast(self, message: SdsMessage, hint: bytes | None) -> None:
        """Do what js-waku does once its send callback returned success.

        A resend is the very object that the history holds, so that its hint becomes the latest one. The same payload
        sent after an acknowledgement is a new object of the same id; then the history keeps the older of the two.
        """
        message_id = message.message_id
        self.bloom.insert(message_id)
        if message_id in self.outgoing:
            self.outgoing.confirmed.add(message_id)
        if self._kept.get(message_id) is message:
            self.history.change_hint(message_id, hint)
        else:
            if self.history.put(HistoryRecord(message.lamport_timestamp or 0, message_id, hint, message.sender_id)):
                self._kept[message_id] = message
            elif hint is not None:
                self._notice(Fault.LAST_HINT_COUNTS)
            self.outgoing.ancestry.record(message_id, message.causal_history, self.outgoing.messages)
            self.dependencies.release_waiters(message_id, self._now_ms)
        self.dependencies.time_received[message_id] = self._now_ms

    def receive(
        self,
        message: SdsMessage,
        hint: bytes | None,
        now_ms: int,
        encoded: bytes | None = None,
        *,
        judgement: Judgement | None = None,
        from_store: bool = False,
        sent_ms: int | None = None,
    ) -> list[SdsOutcome]:
        """Process a message from the network; raises `ReceiptAbortedError` where js-waku's task fails."""
        ignored = self._drops(message)
        if ignored is not None:
            return [MessageIgnored(message_id=message.message_id, why=ignored)]
        if message.kind is Kind.EPHEMERAL:
            self._notice(Fault.EPHEMERAL_UNANNOUNCED)
            return []
        field = message.bloom_filter
        if field is not None and self.profile.codec.read_bloom(field, self.bloom_parameters) is None:
            raise ReceiptAbortedError("RangeError", self._receive_until_filter(message, now_ms))
        self._forget_repairs(message)
        return super().receive(
            message, hint, now_ms, encoded, judgement=judgement, from_store=from_store, sent_ms=sent_ms
        )

    def sweep_repair(self, now_ms: int) -> list[tuple[str, bytes]]:
        """Return (id, bytes) of messages whose turn it is, of all that were ever delivered (3)."""
        due = self.repair.take_responses(now_ms)
        return [(message_id, self.profile.codec.encode(self._kept[message_id])) for message_id in due]

    def take_faults(self) -> list[Fault]:
        """Return the faults noticed since the last call, in the order of first notice."""
        faults = list(self._faults)
        self._faults.clear()
        return faults

    def _notice(self, fault: Fault) -> None:
        self._faults[fault] = None

    def _advance_clock(self, now_ms: int) -> None:
        self._now_ms = now_ms
        super()._advance_clock(now_ms)

    def _drops(self, message: SdsMessage) -> Ignored | None:
        """Return why a message is dropped in silence, if it is."""
        if message.channel_id != self.channel_id:
            return Ignored.FOREIGN_CHANNEL
        if message.content and message.message_id in self.dependencies.time_received:
            self._notice_dropped(message)
            return Ignored.DUPLICATE
        if message.sender_id == self.sender_id:
            self._notice_dropped(message)
            return Ignored.OWN
        return None

    def _notice_dropped(self, message: SdsMessage) -> None:
        """Notice what fairway would have made of a message that is dropped."""
        message_id = message.message_id
        if message.kind is Kind.EPHEMERAL:
            self._notice(Fault.EPHEMERAL_UNANNOUNCED)
            return
        self._notice(Fault.COPY_TEACHES_NOTHING)
        if message.sender_id == self.sender_id and message_id not in self.history:
            self._notice(Fault.UNCONFIRMED_SEND if message_id in self.outgoing else Fault.OWN_FORGOTTEN)

    def _receive_until_filter(self, message: SdsMessage, now_ms: int) -> list[SdsOutcome]:
        """Do what js-waku does of a receipt before a filter that is too short makes it throw (reviewAckStatus)."""
        self._notice(Fault.SHORT_FILTER_ABORTS)
        told: list[SdsOutcome] = [MessageArrived(message=message, kind=message.kind)]
        self._forget_repairs(message)
        if message.repair_request:
            self.repair.review_requests(message, self._holds, len(self.participants) + 1, now_ms)
        self._notice_unconfirmed(message.causal_history)
        reviews = self.outgoing.review(message, message.causal_history, now_ms)
        return [*told, *(MessageReviewed(review=review) for review in reviews)]

    def _forget_repairs(self, message: SdsMessage) -> None:
        """Neither ask for nor answer a message that came, also if it is a sync message with another's id."""
        if message.kind is Kind.SYNC and self._repairs(message.message_id):
            self._notice(Fault.SYNC_ENDS_REPAIR)
        self.repair.forget(message.message_id)

    def _repairs(self, message_id: str) -> bool:
        return message_id in self.repair.requests or message_id in self.repair.responses

    def _already_received(self, message_id: str) -> bool:
        """Recognise no copy of what was delivered at once; copies of others were dropped before."""
        if message_id in self.history:
            self._notice(Fault.DELIVERED_AGAIN)
        return False

    def _judge_content(self, message: SdsMessage) -> Judgement:
        """Take whatever was not dropped for new: an id says all that there is to know of a message."""
        if self._already_received(message.message_id):
            return Judgement.KNOWN
        return Judgement.NEW

    def may_vouch_for(self, message: SdsMessage) -> bool:
        """Put every id into the filter."""
        if not super().may_vouch_for(message):
            self._notice(Fault.VOUCHES_UNCHECKED)
        return True

    def leave_unconfirmed(self) -> None:
        """Note that a send callback did not return success: fairway has the message in its history from the start."""
        self._notice(Fault.UNCONFIRMED_SEND)

    def _enter_own(self, message: SdsMessage) -> None:
        """Leave a message out of the history until the send callback returned."""

    def _review(self, message: SdsMessage, now_ms: int, sent_ms: int | None = None) -> list[SdsOutcome]:
        self._notice_unconfirmed(self.dependencies.cited(message))
        return super()._review(message, now_ms, sent_ms)

    def _notice_unconfirmed(self, cited: tuple[HistoryEntry, ...]) -> None:
        """Leave an own message out of the history that others cite, if no callback confirmed it."""
        if any(entry.message_id in self.outgoing and entry.message_id not in self.history for entry in cited):
            self._notice(Fault.UNCONFIRMED_SEND)

    def _holds(self, message_id: str) -> bool:
        """Answer for everything that was ever delivered, and for nothing else (3)."""
        if any(waiting.message.message_id == message_id for waiting in self.dependencies.waiting):
            self._notice(Fault.PARKED_UNANSWERED)
        return message_id in self.history

    def _wait_for(
        self,
        message: SdsMessage,
        hint: bytes | None,
        missing: list[HistoryEntry],
        now_ms: int,
        encoded: bytes | None,
    ) -> list[SdsOutcome]:
        """Park a message, sync messages too, and report what is missing."""
        self.dependencies.hold(message, hint, now_ms)
        self.dependencies.note_missing(missing, now_ms)
        return [DependenciesMissing(entries=tuple(missing))]

    def _latest_lamport(self, now_ms: int) -> int:
        """Believe and cite any timestamp (deliverMessage)."""
        return _ANY_TIMESTAMP

    def _follow_clock(self, lamport: int | None, now_ms: int) -> None:
        if (lamport or 0) > super()._latest_lamport(now_ms):
            self._notice(Fault.FUTURE_BELIEVED)
        super()._follow_clock(lamport, now_ms)

    def _enter_history(self, message: SdsMessage, hint: bytes | None, encoded: bytes | None) -> None:
        if message.message_id not in self.history:
            self._kept[message.message_id] = message
        super()._enter_history(message, hint, encoded)

    def _deliver_waiting(self, waiting: Waiting, now_ms: int) -> None:
        self._follow_clock(waiting.message.lamport_timestamp, now_ms)
        self._enter_history(waiting.message, waiting.retrieval_hint, None)
