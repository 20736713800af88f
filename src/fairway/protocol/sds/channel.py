"""One participant's view of one SDS channel (SDS; RELIABLE-CHANNEL-API, "SDS Integration").

`MessageChannel` is the state machine of SDS. An outgoing message has a Lamport timestamp, a causal history, a bloom
filter and repair requests. A received message is compared with the local history, delivered or parked, and may
acknowledge own messages. The methods do no input or output: they return messages and outcomes.

`send` makes a message, tracks its acknowledgements and inserts it into the history. `withdraw` removes a message that
was never transmitted. The cost of a call does not grow with the history. All state that the network can enlarge is
bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from sys import intern
from typing import Final, NamedTuple

from msgspec.structs import replace

from fairway.errors import EmptyPayloadError
from fairway.options import BloomPolicy, IdRule, Profile, SdsConfig
from fairway.protocol.journal import Journal
from fairway.protocol.names import checked_name
from fairway.protocol.sds.acknowledgements import (
    ACKNOWLEDGEMENTS,
    OUTGOING,
    Acknowledged,
    Evidence,
    OutgoingBuffer,
    OutgoingMessage,
)
from fairway.protocol.sds.dependencies import START, Dependencies
from fairway.protocol.sds.history import HistoryRecord, LocalHistory
from fairway.protocol.sds.incoming_buffer import MissingDependency, Parked
from fairway.protocol.sds.message_id import (
    FINGERPRINT_BYTES,
    SYNC_PREFIX,
    fingerprint,
    follows_a_rule,
    looks_like_a_digest,
    make_ephemeral_id,
    make_message_id,
)
from fairway.protocol.sds.outcome import (
    ContentRefusal,
    DependenciesMissing,
    Ignored,
    Judgement,
    MessageArrived,
    MessageIgnored,
    MessageReady,
    MessageReviewed,
    SdsOutcome,
    SenderIdShared,
)
from fairway.protocol.sds.pending_citations import PendingCitations, fitting_beside
from fairway.protocol.sds.presence import Presence
from fairway.protocol.sds.repair import Repair
from fairway.protocol.sds.retained import RetainedMessages
from fairway.protocol.sds.rolling_bloom import RollingBloom
from fairway.protocol.sds.vouching import BELIEVED_MS, Vouching
from fairway.protocol.signing import Signing
from fairway.wire.bloom import BloomParameters
from fairway.wire.coverage import Coverage
from fairway.wire.sds import HistoryEntry, Kind, SdsMessage
from fairway.wire.segment import SegmentFormat

META: Final = "sds"
HISTORY: Final = "history"
PARTICIPANTS: Final = "participants"

FORGOTTEN: Final = "forgotten"

_OLD_COPIES_FOR_A_FILTER: Final = 20
"""Copies of old messages that cause a bloom filter: a filter of 18,752 bytes costs less than further copies."""
_MAX_PARTICIPANTS: Final = 10_000
"""Participants counted for response groups, and shown as members; a forger can invent names."""
LAMPORT_TOLERANCE_MS: Final = 3_600_000
"""Largest lead over the wall clock that a received Lamport timestamp can give to the own clock."""
_LARGEST_CLOCK: Final = 1 << 62
"""Largest received timestamp that the clock follows: it still counts on, and fits a database's integer."""
_MAX_SAME_ID: Final = 16
"""Messages delivered under one opaque id, at most."""


class Compared(NamedTuple):
    """How a message of another participant relates to the newest message of the history."""

    misses: str | None
    """Id of the newest message if its sender seems not to have that; otherwise None."""
    wrote_newest: bool
    """Whether its sender is the author of the newest message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SdsStatistics:
    """How many messages one participant's SDS state holds."""

    history: int
    """Messages in the local history."""
    retained: int
    """Messages that are kept in full to answer repair requests."""
    unacknowledged: int
    """Own messages in the outgoing buffer."""
    parked: int
    """Messages in the incoming buffer that wait for their dependencies."""
    parked_bytes: int
    """Approximate memory of the parked messages."""
    missing: int
    """Cited messages that have not arrived."""


class MessageChannel:
    """The SDS state of one participant in one channel.

    `dependencies` holds the parked and the missing messages, `history` the log, `repair` the repair requests.

    ``segment_format`` defaults to the profile's format. ``max_missing`` bounds the missing messages
    (`fairway.options.ReliableChannelOptions`). A participant that only sends, and cites messages that it did not
    receive, sets ``vouches`` to False. ``signing`` signs the own messages. Every message MUST name channel and sender
    (SDS, "Message"): `ConfigurationError` is raised if a name is empty or too long.
    """

    def __init__(
        self,
        channel_id: str,
        sender_id: str,
        config: SdsConfig | None = None,
        *,
        now_ms: int,
        profile: Profile = Profile.WAKU,
        segment_format: SegmentFormat | None = None,
        journal: Journal | None = None,
        max_missing: int = 10_000,
        vouches: bool = True,
        signing: Signing | None = None,
    ) -> None:
        """Make an empty channel whose Lamport clock starts at ``now_ms`` (SDS, "Participant state")."""
        self.channel_id = checked_name("channel_id", channel_id, "give the name that all participants agreed on")
        self.sender_id = checked_name("sender_id", sender_id, "give a name that no other participant has")
        self.config = config = config or SdsConfig()
        self.profile = profile
        self.journal = journal if journal is not None else Journal()
        self.bloom_parameters = BloomParameters.of(config.bloom_capacity, config.bloom_error_rate)
        self.lamport = now_ms // profile.lamport_unit_ms
        self.sequence = 0
        self.born_at = self.lamport
        """The clock at the start of this participant: it knows all own messages sent since then."""
        self.history = LocalHistory(config.causal_history_size)
        self.bloom = RollingBloom(self.bloom_parameters, profile.codec.bloom)
        self.outgoing = OutgoingBuffer(
            profile.codec, self.bloom_parameters, config.possible_acks_threshold, self.journal
        )
        self.encode = profile.codec.encode if signing is None else signing.encoder(profile.codec)
        """Returns the bytes of an own message."""
        self._is_authentic = signing is not None and signing.required
        """Whether each received message was sent by the participant that it names."""
        self.retained = RetainedMessages(self.journal, self.encode, enabled=config.repair.enabled)
        self._make_receiving_parts(max_missing, segment_format or profile.segments)
        self.start: Coverage | None = None
        """The coverage of the snapshot from which this participant starts; these messages count as known."""
        self.started_by: HistoryRecord | None = None
        """The first segment of that snapshot."""
        self._missed: frozenset[str] = frozenset()
        """SDS ids of the messages that the snapshot does not cover, or not all messages of a batch."""
        self.participants: set[str] = set()
        self.presence = Presence(self.participants, now_ms)
        self.leaves = False
        """Whether this participant is about to stop; its sync messages then say so."""
        self.vouches = vouches and config.bloom_policy is not BloomPolicy.ALWAYS
        """Whether messages state that they vouch for the ancestors of their citations (`Vouching`)."""
        self.ephemeral_count = 0
        self._old_copies = 0
        """Copies of old messages since such copies last caused a filter."""
        self._checked: tuple[SdsMessage | None, bool] = (None, False)
        """The message whose id was checked last, and the result (`_follows_a_rule`)."""

    def _make_receiving_parts(self, max_missing: int, segment_format: SegmentFormat) -> None:
        config = self.config
        every_message_has_one = config.bloom_policy is BloomPolicy.ALWAYS
        self.repair = Repair(
            self.sender_id,
            config.repair,
            self.profile.repair,
            self.journal,
            bloom_bytes=self.bloom_parameters.byte_length if every_message_has_one else 0,
        )
        self.vouching = Vouching(config.bloom_policy, self.journal, META)
        self.dependencies = Dependencies(
            config, self.journal, self.history, self.repair, self._deliver_parked, max_missing
        )
        self.dependencies.note_gap = self.vouching.note_gap
        self.missing: Mapping[str, MissingDependency] = self.dependencies.incoming.missing
        """Missing messages by id, oldest first: cited, not received, and not given up."""
        self.parked: Mapping[str, Parked] = self.dependencies.incoming.parked
        """Messages that wait for their dependencies, by id, oldest first (SDS: the incoming buffer)."""
        self.pending_citations = PendingCitations(
            self.sender_id, segment_format, None if config.repair.enabled else self.journal
        )

    def waits_behind(self, message_id: str) -> list[SdsMessage]:
        """Return the parked messages that wait for a missing one, directly or through others, the nearest first."""
        return [parked.message for parked in self.dependencies.incoming.waits_behind(message_id)]

    def statistics(self) -> SdsStatistics:
        """Return how many messages are held."""
        return SdsStatistics(
            history=len(self.history),
            retained=len(self.retained),
            unacknowledged=len(self.outgoing),
            parked=len(self.parked),
            parked_bytes=self.dependencies.incoming.parked_bytes,
            missing=len(self.missing),
        )

    def record(self, message_id: str) -> HistoryRecord | None:
        """Return the record of a message in the local history, or None."""
        return self.history.get(message_id)

    def unacknowledged(self, message_id: str) -> OutgoingMessage | None:
        """Return an own message that waits for acknowledgement, or None."""
        return self.outgoing.messages.get(message_id)

    def cited_by(self, message: SdsMessage) -> tuple[HistoryEntry, ...]:
        """Return the newest entries of a message's causal history, a bounded number; the others are not read."""
        return self.dependencies.cited(message)

    def waits_for(self, message: SdsMessage) -> list[HistoryEntry]:
        """Return the unmet dependencies of a message, as of now."""
        return self.dependencies.absent(message, self.dependencies.cited(message))

    def is_placed(self, message: SdsMessage) -> bool:
        """Return whether a message cites another one or is missing; a forger can invent any number of others."""
        return bool(message.causal_history) or message.message_id in self.missing

    def is_met(self, message: SdsMessage) -> bool:
        """Return whether a message is in the history and none of its dependencies was lost or skipped."""
        return message.message_id in self.history and not self.dependencies.has_lost(self.dependencies.cited(message))

    def send(
        self,
        content: bytes,
        now_ms: int,
        *,
        tracked: bool = True,
        beside: tuple[HistoryEntry, ...] = (),
    ) -> SdsMessage:
        """Make a content message (SDS, "Send Message") that also cites ``beside``.

        The evidence for a ``tracked`` message is reported (`MessageReviewed`) until `forget_outgoing`.
        """
        if not content:
            raise EmptyPayloadError("a message needs content; an empty one would be read as a sync message")
        for record in self.pending_citations.read.values():
            # Every log orders a message after the messages that it cites.
            self._follow_clock(record.lamport, now_ms)
        self._advance_clock(now_ms)
        message = self._compose(self._make_id(content, now_ms), content, now_ms, beside)
        self._checked = message, self.profile.id_rule is not IdRule.KECCAK_TIMESTAMP
        self.sequence += 1
        if tracked:
            self.outgoing.add(message, self.sequence, now_ms)
        self.bloom.insert(message.message_id)
        self.repair.forget(message.message_id)
        self.repair.earned(message)
        self._enter_history(message, None, None)
        return message

    def add_hint(self, message_id: str, hint: bytes | None) -> None:
        """Set the retrieval hint of a message that has none; a known hint stays.

        docs/decisions/specifications.md, "Several hashes of one message".
        """
        if hint is None:
            return
        if self.history.set_hint(message_id, hint):
            self.journal.touch(HISTORY, message_id)
        else:
            self.dependencies.add_hint(message_id, hint)

    def withdraw_hint(self, message_id: str, hint: bytes) -> None:
        """Remove a hint, because the network rejected the WakuMessage whose hash it is."""
        if self.history.clear_hint(message_id, hint):
            self.journal.touch(HISTORY, message_id)

    def send_ephemeral(self, content: bytes, now_ms: int) -> SdsMessage:
        """Make an ephemeral message, which has no timestamp, history or filter (SDS, "Ephemeral Messages")."""
        if not content:
            raise EmptyPayloadError("an ephemeral message needs content")
        self.ephemeral_count += 1
        return SdsMessage(
            message_id=make_ephemeral_id(self.sender_id, content, now_ms, self.ephemeral_count),
            sender_id=self.sender_id,
            channel_id=self.channel_id,
            content=content,
        )

    def send_sync(self, now_ms: int, *, even_empty: bool = False) -> SdsMessage | None:
        """Make a sync message (SDS, "Periodic Sync Message").

        None if it has no citation and no repair request, unless it may be ``even_empty``.

        It MUST NOT enter the outgoing buffer, the log, the filter or any causal history.
        """
        self._advance_clock(now_ms)
        message = self._compose(f"{SYNC_PREFIX}{self._make_id(b'', now_ms)[:16]}", None, now_ms)
        return message if message.causal_history or message.repair_request or even_empty else None

    def take_back(self, message: SdsMessage, now_ms: int) -> None:
        """Note that an own message was not sent: its repair requests and additional citations are due again."""
        self.repair.ask_again(message.repair_request, now_ms)
        for entry in message.causal_history[: -self.config.causal_history_size or None]:
            self.pending_citations.came_again(entry.message_id)

    def citing(self, message_id: str) -> list[str]:
        """Return the own messages that wait for acknowledgement and cite a message."""
        return [
            waiting.message.message_id
            for waiting in self.outgoing
            if any(entry.message_id == message_id for entry in waiting.message.causal_history)
        ]

    def withdraw(self, message_id: str, now_ms: int) -> None:
        """Remove an own message that was never transmitted.

        The own messages that cite it must not have been transmitted either. They inherit its citations.
        """
        withdrawn = self.outgoing.messages[message_id].message
        for citing_id in self.citing(message_id):
            waiting = self.outgoing.messages[citing_id]
            kept = [entry for entry in waiting.message.causal_history if entry.message_id != message_id]
            known = {entry.message_id for entry in kept}
            inherited = [entry for entry in withdrawn.causal_history if entry.message_id not in known]
            waiting.message = replace(waiting.message, causal_history=(*inherited, *kept))
            self.journal.touch(OUTGOING, citing_id)
            if citing_id in self.retained:
                self.retained.forget(citing_id)
                self.retained.keep(waiting.message)
        self.outgoing.remove(message_id)
        self.retained.forget(message_id)
        self.pending_citations.withdrawn(message_id)
        if message_id in self.history:
            self.history.remove(message_id)
            self.journal.touch(HISTORY, message_id)
        self.repair.ask_again(withdrawn.repair_request, now_ms)
        for entry in withdrawn.causal_history:
            if entry.sender_id != self.sender_id:
                # The withdrawn message was to acknowledge these.
                self.pending_citations.came_again(entry.message_id)

    def handed_over(self, message_ids: Sequence[str]) -> None:
        """Note that the application received the message of these segments: the next own message is ordered after them.

        Some segments may still be parked, because they cite messages that their author received while sending. All
        earlier messages of the author are here, so a citation of the segments acknowledges no missing message of his.
        """
        parked = self.dependencies.incoming.parked
        last = next((parked[message_id] for message_id in reversed(message_ids) if message_id in parked), None)
        if last is not None:
            message = last.message
            record = HistoryRecord(
                message.lamport_timestamp or 0, message.message_id, last.retrieval_hint, message.sender_id
            )
            self.pending_citations.handed_over(record)

    def judge(self, message: SdsMessage) -> Judgement:
        """Return the judgement of a received message; the caller then calls `receive` or `refuse`."""
        if message.channel_id != self.channel_id:
            return Judgement.FOREIGN
        if message.sender_id == self.sender_id:
            return Judgement.OWN
        if message.kind is not Kind.CONTENT:
            return Judgement.NO_CONTENT
        judgement = self._judge_content(message)
        if judgement is Judgement.NEW and self.dependencies.no_room_for(message):
            return Judgement.NO_ROOM
        return judgement

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
        """Process a message from the network (SDS, "Receive Message").

        ``hint`` is the hash of its WakuMessage, and ``sent_ms`` the timestamp of that. ``encoded`` is the bytes of the
        message, if known, and ``judgement`` the result of `judge`, if just computed. A copy ``from_store`` does not
        show that its sender still waits for an acknowledgement.
        """
        message_id, kind = message.message_id, message.kind
        judgement = judgement or self.judge(message)
        if judgement is Judgement.NEW:
            # SDS-R: remove a received message from both repair buffers.
            self.repair.forget(message_id)
            return self._take_in(message, hint, now_ms, encoded, from_store=from_store, sent_ms=sent_ms)
        match judgement:
            case Judgement.FOREIGN:
                return [MessageIgnored(message_id=message_id, why=Ignored.FOREIGN_CHANNEL)]
            case Judgement.OWN:
                return self._receive_own(message, kind, hint, now_ms, encoded)
            case Judgement.KNOWN:
                return [self._came_again(message, hint, now_ms, from_store=from_store)]
            case Judgement.FORGED:
                return [MessageIgnored(message_id=message_id, why=Ignored.FORGED)]
            case Judgement.FORGOTTEN:
                # It counts as delivered long ago: no message needs to wait for it.
                ignored = MessageIgnored(message_id=message_id, why=Ignored.FORGOTTEN)
                self.vouching.note_gap(now_ms)
                return [ignored, *self.dependencies.settle([message_id], now_ms)]
            case Judgement.NO_ROOM:
                ignored = MessageIgnored(message_id=message_id, why=Ignored.NO_ROOM)
                self.dependencies.turned_away(message, now_ms)
                return [ignored, *self._review(message, now_ms, sent_ms)]
            case Judgement.SECOND:
                self.repair.forget(message_id)
                return self._receive_second(message, hint, now_ms, encoded)
            case Judgement.NO_CONTENT if kind is Kind.EPHEMERAL:
                return [MessageArrived(message=message, kind=kind)]
        return self._take_in(message, hint, now_ms, encoded, from_store=from_store, sent_ms=sent_ms)

    def _take_in(
        self,
        message: SdsMessage,
        hint: bytes | None,
        now_ms: int,
        encoded: bytes | None,
        *,
        from_store: bool,
        sent_ms: int | None,
    ) -> list[SdsOutcome]:
        """Deliver or park new content, and process a sync message."""
        message_id, kind = message.message_id, message.kind
        outcomes: list[SdsOutcome] = [MessageArrived(message=message, kind=kind)]
        if message.sender_id not in self.participants:
            self._add_participant(message.sender_id)
        if message.repair_request:
            self.repair.review_requests(message, self._holds, len(self.participants) + 1, now_ms)
        outcomes += self._review(message, now_ms, sent_ms)
        cited = self.dependencies.cited(message)
        if kind is Kind.CONTENT and self.may_vouch_for(message):
            self.bloom.insert(message_id)
        absent = self.dependencies.absent(message, cited)
        if absent:
            outcomes += self._wait_for(message, hint, absent, now_ms, encoded)
        elif kind is Kind.CONTENT:
            if len(cited) < len(message.causal_history):
                self.vouching.note_gap(now_ms)
            self._follow_clock(message.lamport_timestamp, now_ms)
            self.repair.earned(message)
            self._enter_history(message, hint, encoded)
            self.dependencies.take_room(message)
            outcomes.append(MessageReady(message=message, dependencies_met=not self.dependencies.has_lost(cited)))
            outcomes += self.dependencies.release_waiters(message_id, now_ms)
        if kind is Kind.CONTENT and not from_store and self._is_old(message, now_ms):
            # An old message was sent again, even if this is the first copy received.
            self._owe_citation(message_id, is_old=True)
        return outcomes

    def _add_participant(self, name: str) -> None:
        """Add a participant; if there are too many, forget one that is not present."""
        if len(self.participants) >= _MAX_PARTICIPANTS:
            absent = self.presence.forget_one()
            if absent is None:
                return
            self.participants.remove(absent)
            self.journal.touch(PARTICIPANTS, absent)
        self.participants.add(name)
        self.journal.touch(PARTICIPANTS, name)

    def note_presence(self, message: SdsMessage, now_ms: int, sent_ms: int | None, *, was_missing: bool) -> None:
        """Note that the network transmitted a message: its author is present, if the author transmitted it just now.

        ``was_missing`` says whether others cited it before it arrived.
        """
        lamport = self.believed_lamport(message.lamport_timestamp or 0, now_ms)
        made_ms = None
        if message.kind is Kind.CONTENT:
            self.presence.content_transmitted(now_ms)
            made_ms = lamport * self.profile.lamport_unit_ms
        if not was_missing and self.presence.was_sent_now(sent_ms, made_ms, now_ms):
            leaves = message.leaves and message.kind is Kind.SYNC
            self.presence.heard(message.sender_id, lamport, now_ms, leaves=leaves)

    def refuse(
        self, message: SdsMessage, now_ms: int, why: ContentRefusal, sent_ms: int | None = None
    ) -> list[SdsOutcome]:
        """Process a message whose content the layer above refused: it is not received and not acknowledged."""
        outcomes = self._review(message, now_ms, sent_ms)
        if why is ContentRefusal.NO_ROOM:
            self.dependencies.turned_away(message, now_ms)
        elif why is ContentRefusal.USELESS:
            outcomes += self.dependencies.give_up(message, now_ms)
        return outcomes

    def _review(self, message: SdsMessage, now_ms: int, sent_ms: int | None = None) -> list[SdsOutcome]:
        """Return the evidence of another participant's message about own ones, even of a message that is turned away.

        Otherwise a participant without room would never receive acknowledgements.
        """
        if not self.outgoing.messages:
            return []
        cited = self.dependencies.cited(message)
        return [MessageReviewed(review=review) for review in self.outgoing.review(message, cited, now_ms, sent_ms)]

    def compare(self, message: SdsMessage, now_ms: int) -> Compared:
        """Return how a message relates to the newest message of the history.

        A sender cites the newest messages that it has. If all of these are here, and the newest message of the history
        is not among them, the sender does not have that message.
        """
        newest = self.history.last(self._latest_lamport(now_ms))
        if not newest:
            return Compared(misses=None, wrote_newest=False)
        cited = {entry.message_id for entry in message.causal_history}
        is_behind = newest[-1].message_id not in cited and all(map(self._already_received, cited))
        return Compared(
            misses=newest[-1].message_id if is_behind else None,
            wrote_newest=newest[-1].sender_id == message.sender_id,
        )

    def stop_waiting(self, message_ids: Iterable[str], now_ms: int) -> list[SdsOutcome]:
        """Deliver the messages that wait only for these missing ones; the missing ones are still requested."""
        outcomes: list[SdsOutcome] = []
        for message_id in message_ids:
            missing = self.missing.get(message_id)
            if missing is not None:
                self.vouching.note_gap(now_ms)
                outcomes += self.dependencies.settle([message_id], now_ms)
                self.dependencies.note_missing([missing.entry], now_ms)
        return outcomes

    def start_from(self, coverage: Coverage, snapshot: HistoryRecord, now_ms: int) -> list[SdsOutcome]:
        """Count the messages that a snapshot covers as known; the next own message is ordered after the snapshot.

        Covered messages that are parked do not wait for others any more. The caller does not hand them over.
        """
        dependencies = self.dependencies
        if self.start is not None:
            # An earlier snapshot may have covered messages that this one does not.
            for message_id in [each for each, is_lost in dependencies.settled.items() if not is_lost]:
                dependencies.came(message_id)
        self.vouching.note_gap(now_ms)
        self._follow_clock(snapshot.lamport, now_ms)
        self.set_start(coverage, snapshot, coverage.awaited)
        self.journal.touch(START, "")
        outcomes = dependencies.settle(sorted(coverage.covered), now_ms)
        for parked in list(self.parked.values()):
            message = parked.message
            if self._is_known(message.sender_id, message.lamport_timestamp or 0, message.message_id):
                known = [each for each in parked.waiting_for if each not in self._missed]
                outcomes += dependencies.settle(known, now_ms)
        awaited = (entry for entry in coverage.awaited if not self._already_received(entry.message_id))
        dependencies.note_missing(awaited, now_ms)
        return outcomes

    def set_start(self, coverage: Coverage, snapshot: HistoryRecord, awaited: tuple[HistoryEntry, ...]) -> None:
        """Set the snapshot from which this participant starts, and the messages that it missed and that are awaited."""
        self.start, self.started_by = coverage, snapshot
        self._missed = frozenset(entry.message_id for entry in coverage.missed.values())
        self.dependencies.await_missed(awaited, snapshot.lamport)
        if snapshot.sender_id != self.sender_id and snapshot.message_id not in self.history:
            self.pending_citations.handed_over(snapshot)

    def _is_known(self, sender_id: str, lamport: int, message_id: str) -> bool:
        start = self.start
        return start is not None and message_id not in self._missed and start.covers(sender_id, lamport, message_id)

    def sweep_repair(self, now_ms: int) -> list[tuple[str, bytes]]:
        """Return (id, original bytes) of the messages to broadcast again now (SDS-R: T_resp)."""
        due = [(message_id, self._original(message_id)) for message_id in self.repair.take_responses(now_ms)]
        return [
            (message_id, encoded)
            for message_id, encoded in due
            if encoded is not None and self.repair.may_answer(message_id, len(encoded), now_ms)
        ]

    def not_answered(self, message_id: str) -> None:
        """Note that an answer of `sweep_repair` was not sent: neither the answer nor its bytes count."""
        self.repair.not_answered(message_id, len(self._original(message_id) or b""))

    def keep_history_within_bounds(self) -> None:
        """Forget the oldest messages of a history that is too long, many at a time."""
        bound = self.config.max_history
        if len(self.history) > bound + bound // 64:
            for message_id in self.history.forget_oldest(len(self.history) - bound):
                self.journal.touch(HISTORY, message_id)
            self.journal.touch(FORGOTTEN, "")

    def forget_outgoing(self, message_id: str) -> OutgoingMessage | None:
        """Stop waiting for the acknowledgement of an own message, and return its state."""
        return self.outgoing.remove(message_id)

    def watch_again(self, known: Mapping[str, Acknowledged]) -> None:
        """Wait again for acknowledgements of own messages that `forget_outgoing` forgot, if they are retained.

        The descendants of a forgotten message are not recorded: the retained messages are searched for them.
        """
        own = self.outgoing.messages
        orders: list[int] = []
        for message_id, (sequence, acknowledged_by, made_ms) in known.items():
            encoded = self.retained.encoded(message_id)
            if encoded is None:
                continue
            own[message_id] = OutgoingMessage(
                message=self.profile.codec.decode(encoded),
                sequence=sequence,
                acknowledged_by=dict.fromkeys(acknowledged_by, Evidence.CITED),
                made_ms=made_ms,
            )
            self.journal.touch(OUTGOING, message_id)
            self.journal.touch(ACKNOWLEDGEMENTS, message_id)
            orders.append(self.retained.order(message_id))
        if not orders:
            return
        # Descendants entered the history later.
        first_order = min(orders)
        for message_id in list(self.retained):
            encoded = self.retained.encoded(message_id) if self.retained.order(message_id) >= first_order else None
            if encoded is not None:
                citations = self.profile.codec.decode(encoded).causal_history
                self.outgoing.ancestry.record(message_id, citations, own)

    def _advance_clock(self, now_ms: int) -> None:
        self.lamport = self.next_lamport(now_ms)
        self.journal.touch(META, "")

    def _make_id(self, content: bytes, now_ms: int) -> str:
        return make_message_id(
            self.profile.id_rule,
            sender_id=self.sender_id,
            lamport=self.lamport,
            content=content,
            now_ms=now_ms,
            sequence=self.sequence,
        )

    def _latest_lamport(self, now_ms: int) -> int:
        """Return the latest timestamp of a received message that may move the clock or be cited as one of the newest.

        docs/decisions/specifications.md, "Nothing from the network is trusted".
        """
        by_the_wall = (now_ms + LAMPORT_TOLERANCE_MS) // self.profile.lamport_unit_ms
        return max(min(by_the_wall, _LARGEST_CLOCK), self.lamport + self.profile.lamport_lead)

    def next_lamport(self, now_ms: int) -> int:
        """Return the timestamp of the next message: the later of the wall clock and the own clock plus one.

        SDS, "Send Message".
        """
        return max(now_ms // self.profile.lamport_unit_ms, self.lamport + 1)

    def believed_lamport(self, lamport: int, now_ms: int) -> int:
        """Return a received Lamport timestamp, limited to the latest one that is believed now."""
        return min(lamport, self._latest_lamport(now_ms))

    def _compose(
        self, message_id: str, content: bytes | None, now_ms: int, beside: tuple[HistoryEntry, ...] = ()
    ) -> SdsMessage:
        cited = newest = self.history.last(self._latest_lamport(now_ms))
        if self.config.causal_history_size:
            cited = self.pending_citations.select(newest, self.history, beside, content=content)
        cited = fitting_beside(content, cited)
        if self.pending_citations.cites_too_few:
            self.vouching.filter_requested()
        is_incomplete = cited is not newest and bool(self.history.missing_from(cited))
        bloom, vouches = self._bloom_beside(cited, now_ms, is_incomplete=is_incomplete)
        return SdsMessage(
            message_id=message_id,
            sender_id=self.sender_id,
            channel_id=self.channel_id,
            lamport_timestamp=self.lamport,
            causal_history=cited,
            bloom_filter=bloom,
            repair_request=self.repair.take_requests(now_ms),
            content=content,
            vouches=self.vouches and vouches,
            leaves=self.leaves and content is None,
        )

    def _bloom_beside(
        self, cited: tuple[HistoryEntry, ...], now_ms: int, *, is_incomplete: bool
    ) -> tuple[bytes | None, bool]:
        """Return the bloom field of a message with these citations, and whether the message vouches.

        ``is_incomplete``: a cited message is not in the history.
        """
        self.vouching.review_lacking(self.history.__contains__, self.dependencies.incoming.__contains__, now_ms)
        vouches = self.vouching.vouches(now_ms, is_incomplete=is_incomplete)
        no_bloom = self.profile.codec.no_bloom
        if self.config.bloom_policy is not BloomPolicy.ALWAYS and not cited:
            return no_bloom, True
        if not self.vouching.attaches(now_ms):
            return no_bloom, vouches
        return self.profile.codec.write_bloom(self.bloom.words(), self.bloom_parameters), vouches

    def _already_received(self, message_id: str) -> bool:
        """Return whether a message is in the history or parked (SDS, "Receive Message": MAY drop duplicates by id)."""
        return message_id in self.history or message_id in self.dependencies.incoming

    def _came_again(self, message: SdsMessage, hint: bytes | None, now_ms: int, *, from_store: bool) -> MessageIgnored:
        """Process a copy of a received message."""
        message_id = message.message_id
        is_answer = self.repair.forget(message_id)
        self.add_hint(message_id, hint)
        if is_answer:
            return MessageIgnored(message_id=message_id, why=Ignored.ANSWER)
        if not from_store:
            self._owe_citation(message_id, is_old=self._is_old(message, now_ms))
        return MessageIgnored(message_id=message_id, why=Ignored.DUPLICATE)

    def _owe_citation(self, message_id: str, *, is_old: bool) -> None:
        """Plan a citation of a message whose author still waits for an acknowledgement."""
        self.pending_citations.came_again(message_id)
        self._old_copies += is_old
        if message_id in self.dependencies.incoming:
            self.vouching.filter_requested()
        if self._old_copies >= _OLD_COPIES_FOR_A_FILTER:
            # The author may wait for thousands of acknowledgements; one filter gives all of them.
            self._old_copies = 0
            self.vouching.filter_requested()

    def _is_old(self, message: SdsMessage, now_ms: int) -> bool:
        """Return whether a message is too old to be acknowledged by a vouching citation of a descendant."""
        made_ms = (message.lamport_timestamp or 0) * self.profile.lamport_unit_ms
        return now_ms - made_ms > BELIEVED_MS

    def _judge_content(self, message: SdsMessage) -> Judgement:
        """Return whether a content message is new, to this participant and under its id.

        Several messages may have one opaque id. At most `_MAX_SAME_ID` of them are delivered: otherwise a forger that
        is quicker than the honest sender could suppress his message.
        """
        parked = self.dependencies.incoming.parked.get(message.message_id)
        if parked is not None:
            if _says_the_same(parked.message, message):
                return Judgement.KNOWN
            superseded = self._follows_a_rule(message) and not follows_a_rule(parked.message)
            return Judgement.SECOND if superseded else Judgement.FORGED
        record = self.history.get(message.message_id)
        if record is None:
            lamport = message.lamport_timestamp or 0
            is_known = self.start is not None and self._is_known(message.sender_id, lamport, message.message_id)
            if is_known or self.history.is_before_window(lamport, message.message_id):
                return Judgement.FORGOTTEN
            return Judgement.FORGED if self._contradicts_gap(message) else Judgement.NEW
        if record.fingerprints is None:
            return Judgement.KNOWN
        if not record.fingerprints:
            return Judgement.KNOWN if self._follows_a_rule(message) else Judgement.FORGED
        if fingerprint(message) in _parts(record.fingerprints):
            return Judgement.KNOWN
        room = len(record.fingerprints) < _MAX_SAME_ID * FINGERPRINT_BYTES
        return Judgement.SECOND if room or self._follows_a_rule(message) else Judgement.FORGED

    def _follows_a_rule(self, message: SdsMessage) -> bool:
        """Return whether the id of a content message is a digest of it; the last result is cached."""
        checked, follows = self._checked
        if checked is not message:
            follows = follows_a_rule(message)
            self._checked = message, follows
        return follows

    def _contradicts_gap(self, message: SdsMessage) -> bool:
        """Return whether a message seems to be forged: a citation names another sender for its id."""
        missing = self.dependencies.incoming.missing.get(message.message_id)
        if missing is None or (missing.entry.sender_id or message.sender_id) == message.sender_id:
            return False
        return not self.may_vouch_for(message)

    def may_vouch_for(self, message: SdsMessage) -> bool:
        """Return whether a message counts as the owner of its id, and so enters the bloom filter.

        Participants of a profile with checkable ids make digests. An id that looks like a digest and fails the check
        probably belongs to another message.
        """
        checkable = self.profile.id_rule is not IdRule.KECCAK_TIMESTAMP and looks_like_a_digest(message.message_id)
        return not checkable or self._follows_a_rule(message)

    def _receive_second(
        self, message: SdsMessage, hint: bytes | None, now_ms: int, encoded: bytes | None
    ) -> list[SdsOutcome]:
        """Deliver a message whose id another message has; it replaces the other one if its id is a digest of it."""
        message_id = message.message_id
        is_true = self._follows_a_rule(message)
        parked = self.dependencies.incoming.parked.get(message_id)
        if parked is not None:
            # The parked message is forged, and its citations may be. Messages that wait for the id continue to wait.
            self.dependencies.unpark(message_id)
            return self._take_in(message, hint, now_ms, encoded, from_store=False, sent_ms=None)
        self._follow_clock(message.lamport_timestamp, now_ms)
        # The dependencies of both messages may be missing here.
        self.vouching.note_gap(now_ms)
        old = self.history.get(message_id)
        if is_true or old is None:
            sender_id, lamport = intern(message.sender_id), message.lamport_timestamp or 0
            self.history.replace(HistoryRecord(lamport, message_id, hint, sender_id, b""))
            self.bloom.insert(message_id)
            self.retained.forget(message_id)
            self.retained.keep(message, encoded)
        else:
            self.history.replace(old._replace(fingerprints=(old.fingerprints or b"") + fingerprint(message)))
        self.journal.touch(HISTORY, message_id)
        # Messages that cite the id are already delivered: parking this one would not restore the order.
        met = not self.dependencies.absent(message, self.dependencies.cited(message))
        return [
            MessageArrived(message=message, kind=Kind.CONTENT),
            MessageReady(message=message, dependencies_met=met),
        ]

    def _receive_own(
        self, message: SdsMessage, kind: Kind, hint: bytes | None, now_ms: int, encoded: bytes | None
    ) -> list[SdsOutcome]:
        """Ignore a received own message (SDS, "Receive Message": SHOULD), unless this process has forgotten it.

        Peers cite messages that this participant sent before it lost its state. Such a message enters the history
        again and releases the messages that cite it. It is neither delivered nor read for acknowledgements. A message
        that may not be ours is ignored: otherwise a forger could make another sender's message count as received.
        """
        message_id = message.message_id
        ignored: list[SdsOutcome] = [MessageIgnored(message_id=message_id, why=Ignored.OWN)]
        if kind is not Kind.CONTENT:
            return ignored
        forged: list[SdsOutcome] = [MessageIgnored(message_id=message_id, why=Ignored.FORGED)]
        forged += [SenderIdShared(message_id=message_id)]
        waiting = self.outgoing.messages.get(message_id)
        if waiting is not None:
            if waiting.message.content != message.content:
                return forged
            self.repair.forget(message_id)
            self.add_hint(message_id, hint)
            return ignored
        if self._already_received(message_id):
            if self._judge_content(message) is not Judgement.KNOWN:
                return forged
            self.repair.forget(message_id)
            self.add_hint(message_id, hint)
            return ignored
        if self.history.is_before_window(message.lamport_timestamp or 0, message_id):
            self.vouching.note_gap(now_ms)
            return [*ignored, *self.dependencies.settle([message_id], now_ms)]
        if not self._may_be_ours(message):
            return [*forged, *self._let_go_of_forged(message_id, now_ms)]
        self.repair.forget(message_id)
        # Its dependencies are not awaited, and this participant may have forgotten all of them.
        self.vouching.note_gap(now_ms)
        self.bloom.insert(message_id)
        self._follow_clock(message.lamport_timestamp, now_ms)
        self._enter_history(message, hint, encoded)
        # This process knows all messages that it sent: another process sent this one.
        is_anothers = (message.lamport_timestamp or 0) > self.born_at
        outcomes: list[SdsOutcome] = [SenderIdShared(message_id=message_id)] if is_anothers else []
        return outcomes + self.dependencies.release_waiters(message_id, now_ms)

    def _let_go_of_forged(self, message_id: str, now_ms: int) -> list[SdsOutcome]:
        """Stop waiting for a message that peers cite as ours, after a forged message with its id arrived.

        A further answer would be ignored again, and an own message need not be delivered here. A message that is cited
        as another sender's is still awaited.
        """
        missing = self.dependencies.incoming.missing.get(message_id)
        if missing is None or missing.entry.sender_id != self.sender_id:
            return []
        self.vouching.note_gap(now_ms)
        return self.dependencies.settle([message_id], now_ms)

    def _may_be_ours(self, message: SdsMessage) -> bool:
        """Return whether this participant may have sent a message before it lost its state."""
        if self._is_authentic:
            return True
        missing = self.dependencies.incoming.missing.get(message.message_id)
        cited_as = None if missing is None else missing.entry.sender_id
        if cited_as and cited_as != self.sender_id:
            return False
        if self._follows_a_rule(message):
            return True
        # An id of this rule cannot be checked, because it depends on more than the message.
        return self.profile.id_rule is IdRule.KECCAK_TIMESTAMP and (missing is None or cited_as == self.sender_id)

    def _holds(self, message_id: str) -> bool:
        """Return whether this participant can answer for a message: it is retained, parked or outgoing.

        Parked messages count: after a partition, all participants may wait for each other's messages.
        """
        return message_id in self.retained or message_id in self.dependencies.incoming or message_id in self.outgoing

    def _original(self, message_id: str) -> bytes | None:
        parked = self.dependencies.incoming.parked.get(message_id)
        if parked is not None:
            return parked.encoded
        encoded, own = self.retained.encoded(message_id), self.unacknowledged(message_id)
        return encoded if encoded is not None or own is None else self.encode(own.message)

    def _wait_for(
        self, message: SdsMessage, hint: bytes | None, absent: list[HistoryEntry], now_ms: int, encoded: bytes | None
    ) -> list[SdsOutcome]:
        """Park a content message, and request its missing dependencies; a sync message is not parked."""
        if message.kind is Kind.CONTENT:
            data = encoded if encoded is not None else self.encode(message)
            self.dependencies.park(message, data, hint, absent, now_ms)
            self.repair.earned(message)
            if not message.vouches:
                self.vouching.want_filter()
        return self._ask_for(absent, now_ms)

    def _ask_for(self, absent: list[HistoryEntry], now_ms: int) -> list[SdsOutcome]:
        if not absent:
            return []
        # Parked messages have arrived: they are not requested.
        missing = tuple(entry for entry in absent if entry.message_id not in self.dependencies.incoming)
        self.dependencies.note_missing(missing, now_ms)
        return [DependenciesMissing(entries=missing)] if missing else []

    def _follow_clock(self, lamport: int | None, now_ms: int) -> None:
        """Set the clock to a message's timestamp if that is greater (SDS, "Deliver Message")."""
        believed = min(lamport or 0, self._latest_lamport(now_ms))
        if believed > self.lamport:
            self.lamport = believed
            self.journal.touch(META, "")

    def _enter_history(self, message: SdsMessage, hint: bytes | None, encoded: bytes | None) -> None:
        """Insert a message into the log (SDS, "Deliver Message"), and retain it to answer repair requests."""
        message_id = message.message_id
        # All records of one sender share one string: senders are few, messages many.
        sender_id = intern(message.sender_id)
        prints = b"" if self._follows_a_rule(message) else fingerprint(message)
        self.history.add(HistoryRecord(message.lamport_timestamp or 0, message_id, hint, sender_id, prints))
        self._entered_history(message_id, sender_id)
        # Not earlier: this participant does not cite a parked message, so the parked message's citations do not count.
        self.pending_citations.cited(self.dependencies.cited(message), sender_id, message.content or b"")
        self.outgoing.ancestry.record(message_id, message.causal_history, self.outgoing.messages)
        self.retained.keep(message, encoded)
        parked = self.dependencies.incoming.parked
        if parked and sender_id == self.sender_id:
            self.vouching.note_parked_ancestor(e.message_id for e in message.causal_history if e.message_id in parked)
        elif not message.vouches and self.config.bloom_policy is not BloomPolicy.ALWAYS:
            self.pending_citations.is_read_one_by_one(message_id)

    def _entered_history(self, message_id: str, author: str) -> None:
        self.journal.touch(HISTORY, message_id)
        self.dependencies.came(message_id)
        self.pending_citations.entered(message_id, author)
        self.keep_history_within_bounds()

    def _deliver_parked(self, parked: Parked, now_ms: int) -> None:
        self._follow_clock(parked.message.lamport_timestamp, now_ms)
        self._enter_history(parked.message, parked.retrieval_hint, parked.encoded)


def _says_the_same(one: SdsMessage, other: SdsMessage) -> bool:
    return (one.sender_id, one.content) == (other.sender_id, other.content)


def _parts(fingerprints: bytes) -> list[bytes]:
    return [fingerprints[at : at + FINGERPRINT_BYTES] for at in range(0, len(fingerprints), FINGERPRINT_BYTES)]
