"""One participant's view of one SDS channel (SDS; RELIABLE-CHANNEL-API, "SDS Integration").

`MessageChannel` is the state machine of SDS: what is sent carries a Lamport timestamp, causal history, bloom filter
and repair requests; what is received is checked against the local history, delivered or parked, and weighed as evidence
about own messages. It neither encodes nor sends: messages go out as values, what happened comes back as outcomes.

Sending is two steps, because a message belongs to the history only once it was handed to the network: `send` makes it
and starts waiting for acknowledgements, `broadcast` confirms it with its retrieval hint. No step's cost grows with the
history, and whatever the network can make larger is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from sys import intern
from typing import Final

from fairway.errors import EmptyPayloadError
from fairway.events import Limit
from fairway.options import IdRule, Profile, SdsConfig
from fairway.protocol.journal import Journal
from fairway.protocol.names import checked_name
from fairway.protocol.sds.acknowledgements import (
    ACKNOWLEDGEMENTS,
    OUTGOING,
    Acknowledged,
    OutgoingBuffer,
    OutgoingMessage,
)
from fairway.protocol.sds.dependencies import Dependencies
from fairway.protocol.sds.history import HistoryRecord, LocalHistory
from fairway.protocol.sds.incoming import MissingDependency, Parked
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
    DependenciesMissing,
    Ignored,
    MessageArrived,
    MessageIgnored,
    MessageReady,
    MessageReviewed,
    OwnMessageRecovered,
    SdsOutcome,
    SenderIdShared,
)
from fairway.protocol.sds.owed import OwedCitations, fitting_beside
from fairway.protocol.sds.repair import Repair
from fairway.protocol.sds.retained import RetainedMessages
from fairway.protocol.sds.rolling_bloom import RollingBloom
from fairway.wire.bloom import BloomParameters
from fairway.wire.sds import HistoryEntry, Kind, SdsMessage

META: Final = "sds"
HISTORY: Final = "history"
PARTICIPANTS: Final = "participants"

FORGOTTEN: Final = "forgotten"

_MAX_PARTICIPANTS: Final = 10_000
"""Participants counted for response groups."""
_LARGEST_CLOCK: Final = 1 << 62
"""The clock follows nobody beyond this, so that it can always go on counting and fits any database's integer."""
_MAX_SAME_ID: Final = 16
"""Messages delivered under one id that is no digest of them."""


class Novelty(Enum):
    """Whether a content message is new, to this participant and under its id."""

    NEW = "new"
    KNOWN = "known"
    ANOTHER = "another"
    """Its id is here and its content is not."""
    FORGED = "forged"
    """Its id is that of another message."""
    FORGOTTEN = "forgotten"
    """It stands before what the history keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SdsStatistics:
    """How many messages one participant's SDS state holds."""

    history: int
    """Messages in the local history."""
    retained: int
    """Messages that are kept whole to answer repair requests."""
    unacknowledged: int
    """Own messages in the outgoing buffer."""
    parked: int
    """Messages in the incoming buffer, which wait for their dependencies."""
    parked_bytes: int
    """What it costs to keep them."""
    missing: int
    """Messages that are cited and not here."""


class MessageChannel:
    """The SDS state of one participant in one channel.

    Other layers ask it by the questions and properties of this class; its parts are for the modules of this package.
    """

    def __init__(
        self,
        channel_id: str,
        sender_id: str,
        config: SdsConfig | None = None,
        *,
        now_ms: int,
        profile: Profile = Profile.WAKU,
        journal: Journal | None = None,
        max_missing: int = 10_000,
    ) -> None:
        """Make an empty channel whose Lamport clock starts at ``now_ms`` (SDS, "Participant state").

        ``max_missing`` bounds what is missing (see `fairway.options.ReliableChannelOptions`).
        Every message MUST name both (SDS, "Message"): `ConfigurationError` if one is empty or too long.
        """
        self.channel_id = checked_name("channel_id", channel_id, "give the name that all participants agreed on")
        self.sender_id = checked_name("sender_id", sender_id, "give a name that no other participant has")
        self.config = config = config or SdsConfig()
        self.profile = profile
        self.journal = journal if journal is not None else Journal()
        self.bloom_parameters = BloomParameters.of(config.bloom_capacity, config.bloom_error_rate)
        self.lamport = now_ms // profile.lamport_unit_ms
        self.sequence = 0
        self.born_at = self.lamport
        """The clock when this participant began: whatever it sent since then it knows."""
        self.history = LocalHistory(config.causal_history_size)
        self.bloom = RollingBloom(self.bloom_parameters, profile.codec.bloom)
        self.outgoing = OutgoingBuffer(
            profile.codec, self.bloom_parameters, config.possible_acks_threshold, self.journal
        )
        self.retained = RetainedMessages(config.repair, self.journal, profile.codec)
        self.repair = Repair(
            sender_id, config.repair, profile.repair, self.journal, max_heard=config.max_repair_requests
        )
        self.dependencies = Dependencies(
            config, self.journal, self.history, self.repair, self._deliver_parked, max_missing
        )
        self.owed = OwedCitations(sender_id, profile.segments)
        self.participants: set[str] = set()
        self.ephemeral_count = 0

    @property
    def missing(self) -> Mapping[str, MissingDependency]:
        """Messages that are cited and neither here nor given up, by id; oldest first."""
        return self.dependencies.incoming.missing

    @property
    def parked(self) -> Mapping[str, Parked]:
        """Messages that wait for what they cite, by id; oldest first (SDS: the incoming buffer)."""
        return self.dependencies.incoming.parked

    @property
    def waited_ms(self) -> int:
        """Milliseconds in which something could come, over all lives (`fairway.protocol.sds.waiting`)."""
        return self.dependencies.clock.waited_ms

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

    def log(self) -> list[HistoryRecord]:
        """Return the messages of the local history in their order (SDS: "Local log")."""
        return list(self.history)

    def record(self, message_id: str) -> HistoryRecord | None:
        """Return what the local history has of a message; None if it is not in it."""
        return self.history.get(message_id)

    def unacknowledged(self, message_id: str) -> OutgoingMessage | None:
        """Return an own message that waits for acknowledgement; None if it does not."""
        return self.outgoing.messages.get(message_id)

    def has(self, message_id: str) -> bool:
        """Return whether a message was received, delivered or not, or its content came otherwise."""
        return self._already_received(message_id) or self.dependencies.settled.get(message_id) is False

    def is_settled(self, message_id: str) -> bool:
        """Return whether nobody waits for a message that never came: it was given up, or its content came otherwise."""
        return message_id in self.dependencies.settled

    def cited_by(self, message: SdsMessage) -> tuple[HistoryEntry, ...]:
        """Return the entries of a message's causal history that are looked at: the newest, a bounded number."""
        return self.dependencies.cited(message)

    def waits_for(self, message: SdsMessage) -> list[HistoryEntry]:
        """Return what a message would wait for if it came now."""
        return self.dependencies.unmet(message.message_id, self.dependencies.cited(message))

    def is_waited_for(self, message_id: str) -> bool:
        """Return whether a parked message waits for this one."""
        return self.dependencies.incoming.is_waited_for(message_id)

    def missing_behind(self, message_id: str) -> list[str]:
        """Return the missing messages that a parked one waits for in the end, itself or through others."""
        return self.dependencies.incoming.missing_behind(self.parked[message_id])

    def is_met(self, message: SdsMessage) -> bool:
        """Return whether a message is in the history, and nothing that it cites was given up."""
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

        If ``tracked``, evidence about it is reported (`MessageReviewed`) until `forget_outgoing`. With
        `IdRule.PAYLOAD`, content of a message that is tracked still is not made anew: that message comes back.
        """
        if not content:
            raise EmptyPayloadError("a message needs content; an empty one would be read as a sync message")
        for record in self.owed.read.values():
            # What is cited comes before, in everybody's log.
            self._follow_clock(record.lamport, now_ms)
        self._advance_clock(now_ms)
        message_id = self._make_id(content, now_ms)
        waiting = self.outgoing.messages.get(message_id)
        if waiting is not None:
            return waiting.message
        message = self._compose(message_id, content, now_ms, beside)
        self.sequence += 1
        if tracked:
            self.outgoing.add(message, self.sequence)
        return message

    def broadcast(self, message: SdsMessage, hint: bytes | None) -> None:
        """Confirm that an own message was handed to the network; ``hint`` is the hash of its WakuMessage.

        From now on others may cite it, so it is part of history and bloom filter. A later call adds a missing hint.
        """
        message_id = message.message_id
        waiting = self.outgoing.messages.get(message_id)
        if message_id in self.history:
            self.add_hint(message_id, hint)
            if waiting is not None and not waiting.positions:
                # The same payload was sent before and `IdRule.PAYLOAD` gave it the same id.
                waiting.positions = self.bloom.positions(message_id)
            return
        positions = self.bloom.insert(message_id)
        if waiting is not None:
            waiting.positions = positions
        self.repair.forget(message_id)
        self.repair.earned(message)
        self._enter_history(message, hint, None)

    def add_hint(self, message_id: str, hint: bytes | None) -> None:
        """Give a message that has none a retrieval hint; the first one known stays.

        docs/decisions/specifications.md, "Several hashes of one message".
        """
        if hint is None:
            return
        if self.history.set_hint(message_id, hint):
            self.journal.touch(HISTORY, message_id)
        else:
            self.dependencies.add_hint(message_id, hint)

    def withdraw_hint(self, message_id: str, hint: bytes) -> None:
        """Take a hint back, because the network never took the WakuMessage that it is the hash of."""
        if self.history.clear_hint(message_id, hint):
            self.journal.touch(HISTORY, message_id)

    def send_ephemeral(self, content: bytes, now_ms: int) -> SdsMessage:
        """Make an ephemeral message (SDS, "Ephemeral Messages"): no timestamp, history or filter, no trace."""
        if not content:
            raise EmptyPayloadError("an ephemeral message needs content")
        self.ephemeral_count += 1
        return SdsMessage(
            message_id=make_ephemeral_id(
                self.config.id_rule,
                sender_id=self.sender_id,
                content=content,
                now_ms=now_ms,
                count=self.ephemeral_count,
            ),
            sender_id=self.sender_id,
            channel_id=self.channel_id,
            content=content,
        )

    def send_sync(self, now_ms: int) -> SdsMessage | None:
        """Make a sync message (SDS, "Periodic Sync Message"), or None while there is nothing to tell.

        It MUST NOT enter the outgoing buffer, the log, the filter or any causal history.
        """
        self._advance_clock(now_ms)
        message = self._compose(f"{SYNC_PREFIX}{self._make_id(b'', now_ms)[:16]}", None, now_ms)
        return message if message.causal_history or message.repair_request else None

    def take_back(self, message: SdsMessage, now_ms: int) -> None:
        """Note that an own message never left: what it asked for, and cited beside the newest, is due again."""
        self.repair.ask_again(message.repair_request, now_ms)
        for entry in message.causal_history[: -self.config.causal_history_size or None]:
            self.owed.came_again(entry.message_id)

    def handed_over(self, message_ids: Sequence[str]) -> None:
        """Note that the application has the message of these segments; what it says from now on stands after them.

        Some may wait still for what their author read amid sending them. Everything that he had sent before them is
        here, so that to cite them acknowledges nothing of his that is not.
        """
        parked = self.dependencies.incoming.parked
        last = next((parked[message_id] for message_id in reversed(message_ids) if message_id in parked), None)
        if last is not None:
            message = last.message
            record = HistoryRecord(
                message.lamport_timestamp or 0, message.message_id, last.retrieval_hint, message.sender_id
            )
            self.owed.handed_over(record)

    def is_new_content(self, message: SdsMessage) -> bool:
        """Return whether `receive` would take in a content message of another participant, which acknowledges it."""
        if message.kind is not Kind.CONTENT or message.channel_id != self.channel_id:
            return False
        if message.sender_id == self.sender_id:
            return False
        novelty = self._judge(message)
        return novelty is Novelty.ANOTHER or (novelty is Novelty.NEW and not self.dependencies.no_room_for(message))

    def receive(
        self,
        message: SdsMessage,
        hint: bytes | None,
        now_ms: int,
        encoded: bytes | None = None,
        *,
        from_store: bool = False,
    ) -> list[SdsOutcome]:
        """Process a message from the network (SDS, "Receive Message").

        ``hint`` is the hash of the WakuMessage that carried it and ``encoded`` its bytes, if they are at hand. A copy
        ``from_store`` tells nothing of what its sender knows by now.
        """
        message_id = message.message_id
        kind = message.kind
        if message.channel_id != self.channel_id:
            return [MessageIgnored(message_id=message_id, why=Ignored.FOREIGN_CHANNEL)]
        if message.sender_id == self.sender_id:
            return self._receive_own(message, kind, hint, now_ms, encoded)
        if kind is Kind.EPHEMERAL:
            return [MessageArrived(message=message, kind=kind)]
        if kind is Kind.CONTENT:
            novelty = self._judge(message)
            if novelty is Novelty.KNOWN:
                return [self._came_again(message_id, hint, from_store=from_store)]
            if novelty is Novelty.FORGED:
                return [MessageIgnored(message_id=message_id, why=Ignored.FORGED)]
            if novelty is Novelty.FORGOTTEN:
                # Nobody needs to wait for what was delivered long ago.
                ignored = MessageIgnored(message_id=message_id, why=Ignored.FORGOTTEN)
                return [ignored, *self.dependencies.settle([message_id], now_ms)]
            if novelty is Novelty.NEW and self.dependencies.no_room_for(message):
                ignored = MessageIgnored(message_id=message_id, why=Ignored.NO_ROOM)
                return [ignored, *self.dependencies.turned_away(message, now_ms)]
            # Whoever was about to ask for it, or to answer for it, need not any more (SDS-R).
            self.repair.forget(message_id)
            if novelty is Novelty.ANOTHER:
                return self._receive_another(message, hint, now_ms, encoded)
        outcomes: list[SdsOutcome] = [MessageArrived(message=message, kind=kind)]
        if message.sender_id not in self.participants and len(self.participants) < _MAX_PARTICIPANTS:
            self.participants.add(message.sender_id)
            self.journal.touch(PARTICIPANTS, message.sender_id)
        if message.repair_request:
            outcomes += self.repair.review_requests(message, self._holds, len(self.participants) + 1, now_ms)
        cited = self.dependencies.cited(message)
        if self.outgoing.messages:
            outcomes += self._review_acknowledgements(message, cited)
        if kind is Kind.CONTENT and self._may_vouch_for(message):
            self.bloom.insert(message_id)
        missing = self.dependencies.unmet(message_id, cited)
        if missing:
            outcomes += self._wait_for(message, hint, missing, now_ms, encoded)
        elif kind is Kind.CONTENT:
            self._follow_clock(message.lamport_timestamp, now_ms)
            self.repair.earned(message)
            self._enter_history(message, hint, encoded)
            outcomes.append(MessageReady(message=message, dependencies_met=not self.dependencies.has_lost(cited)))
            outcomes += self.dependencies.release_waiters(message_id, now_ms)
        return outcomes

    def refused(self, message: SdsMessage, now_ms: int) -> list[SdsOutcome]:
        """Note that the layer above has no room for a message, which so was not received; it can come again."""
        return self.dependencies.turned_away(message, now_ms, refused=True)

    def set_aside(self, message: SdsMessage, now_ms: int) -> list[SdsOutcome]:
        """Note that the layer above set a segment aside, which so was not received; others may make it fit."""
        return self.dependencies.set_aside(message, now_ms)

    def is_ahead_of(self, message: SdsMessage, now_ms: int) -> bool:
        """Return whether the sender of a message with causal history seems to lack the newest of what is here.

        It cites its newest messages; if ours is not among them, and nothing of it is missing here, it has not ours.
        """
        newest = self.history.last(self._latest_lamport(now_ms))
        if not newest:
            return False
        cited = {entry.message_id for entry in message.causal_history}
        return newest[-1].message_id not in cited and all(map(self._already_received, cited))

    def settle(self, message_ids: list[str], now_ms: int) -> list[SdsOutcome]:
        """Nobody needs to wait for these ids any more, since their content is known; dependants are delivered."""
        return self.dependencies.settle(message_ids, now_ms)

    def stop_waiting(self, message_id: str, now_ms: int) -> list[SdsOutcome]:
        """Deliver whatever waits for a missing message and for nothing else; it is still asked for."""
        missing = self.missing.get(message_id)
        if missing is None:
            return []
        outcomes = self.dependencies.settle([message_id], now_ms)
        return outcomes + self.dependencies.note_missing([missing.entry], now_ms)

    def adopt(self, message_id: str, lamport: int, sender_id: str, now_ms: int) -> list[SdsOutcome]:
        """Enter a message into the history that never came, because its content was rebuilt from other segments.

        Then it is cited and acknowledged like any other, and all logs stay equal.
        """
        if self._already_received(message_id):
            return []
        self.bloom.insert(message_id)
        self.repair.forget(message_id)
        self._follow_clock(lamport, now_ms)
        self.history.add(HistoryRecord(lamport, message_id, None, intern(sender_id)))
        self._entered_history(message_id, sender_id)
        return self.dependencies.release_waiters(message_id, now_ms)

    def sweep_incoming(self, now_ms: int) -> list[SdsOutcome]:
        """Give up what is missing for too long, and report the rest (SDS, "Periodic Incoming Buffer Sweep")."""
        return self.dependencies.sweep(now_ms)

    def sweep_repair(self, now_ms: int) -> list[tuple[str, bytes]]:
        """Return (id, original bytes) of messages whose turn it is to be broadcast again (SDS-R: T_resp)."""
        due = [(message_id, self._original(message_id)) for message_id in self.repair.take_responses(now_ms)]
        return [
            (message_id, encoded)
            for message_id, encoded in due
            if encoded is not None and self.repair.may_answer(message_id, len(encoded), now_ms)
        ]

    def can_come(self, possible: bool, now_ms: int) -> None:
        """Say whether what is missing can come from now on; only such time counts before it is given up."""
        self.dependencies.can_come(possible, now_ms)

    def count_time_while(self, segments_wait: Callable[[], bool]) -> None:
        """Count the time also while segments wait for others of their message, which the layer above knows."""
        self.dependencies.segments_wait = segments_wait

    def let_time_pass(self, now_ms: int) -> None:
        """Count the time since this was called last, if something waited and could come."""
        self.dependencies.let_time_pass(now_ms)

    def reaches_at(self, waited_ms: int) -> int | None:
        """Return when to look whether `waited_ms` is so much; None while nothing can come."""
        return self.dependencies.clock.reaches_at(waited_ms)

    def limits(self) -> list[tuple[Limit, int, bool]]:
        """Return each bound of what waits, and whether it turned a message away since the last time, or may still."""
        return self.dependencies.limits()

    def next_loss_at(self) -> int | None:
        """Return when a sweep is next to look whether something is to be given up."""
        return self.dependencies.next_loss_at()

    def next_deadline(self) -> int | None:
        """Return when a sweep has something to do: a loss to declare, a repair to answer or to ask for."""
        times = (self.repair.next_request_at(), self.repair.next_response_at(), self.next_loss_at())
        return min((at for at in times if at is not None), default=None)

    def keep_history_within_bounds(self) -> None:
        """Forget the oldest of the history when it is longer than it may be; some at a time, which is cheap."""
        bound = self.config.max_history
        if len(self.history) > bound + bound // 64:
            for message_id in self.history.forget_oldest(len(self.history) - bound):
                self.journal.touch(HISTORY, message_id)
            self.journal.touch(FORGOTTEN, "")

    def forget_outgoing(self, message_id: str) -> OutgoingMessage | None:
        """Stop waiting for the acknowledgement of an own message, and return what was known of it."""
        return self.outgoing.remove(message_id)

    def watch_again(self, known: Mapping[str, Acknowledged]) -> None:
        """Report evidence about forgotten own messages again, as far as they are retained.

        A forgotten message costs nothing, and nobody notes who descends from it. So the descendants are found anew,
        among the retained messages.
        """
        own = self.outgoing.messages
        orders: list[int] = []
        for message_id, (sequence, acknowledged_by) in known.items():
            encoded = self.retained.encoded(message_id)
            if encoded is None:
                continue
            own[message_id] = OutgoingMessage(
                message=self.profile.codec.decode(encoded),
                sequence=sequence,
                positions=self.bloom.positions(message_id),
                acknowledged_by=dict(acknowledged_by),
            )
            self.journal.touch(OUTGOING, message_id)
            self.journal.touch(ACKNOWLEDGEMENTS, message_id)
            orders.append(self.retained.order(message_id))
        if not orders:
            return
        # Descendants entered the history after the first of them.
        first_order = min(orders)
        for message_id in list(self.retained):
            encoded = self.retained.encoded(message_id) if self.retained.order(message_id) >= first_order else None
            if encoded is not None:
                citations = self.profile.codec.decode(encoded).causal_history
                self.outgoing.ancestry.record(message_id, citations, own)

    def _advance_clock(self, now_ms: int) -> None:
        """SDS, "Send Message": the later of wall clock and own clock plus one."""
        self.lamport = max(now_ms // self.profile.lamport_unit_ms, self.lamport + 1)
        self.journal.touch(META, "")

    def _make_id(self, content: bytes, now_ms: int) -> str:
        return make_message_id(
            self.config.id_rule,
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
        tolerance = self.config.lamport_tolerance_ms
        by_the_wall = (now_ms + tolerance) // self.profile.lamport_unit_ms if tolerance else _LARGEST_CLOCK
        return max(min(by_the_wall, _LARGEST_CLOCK), self.lamport + self.profile.lamport_lead)

    def _compose(
        self, message_id: str, content: bytes | None, now_ms: int, beside: tuple[HistoryEntry, ...] = ()
    ) -> SdsMessage:
        cited = self.history.last(self._latest_lamport(now_ms))
        if self.config.causal_history_size:
            cited = self.owed.pay(cited, self.history, beside, content=content)
        return SdsMessage(
            message_id=message_id,
            sender_id=self.sender_id,
            channel_id=self.channel_id,
            lamport_timestamp=self.lamport,
            causal_history=fitting_beside(content, cited),
            bloom_filter=self.profile.codec.write_bloom(self.bloom.words(), self.bloom_parameters),
            repair_request=self.repair.take_requests(now_ms),
            content=content,
        )

    def _already_received(self, message_id: str) -> bool:
        """Return whether a message is in the history or parked (SDS, "Receive Message": MAY drop duplicates by id)."""
        return message_id in self.history or message_id in self.dependencies.incoming

    def _came_again(self, message_id: str, hint: bytes | None, *, from_store: bool) -> MessageIgnored:
        """Note a copy of a message that is here."""
        is_answer = self.repair.forget(message_id)
        self.add_hint(message_id, hint)
        if not (is_answer or from_store):
            self.owed.came_again(message_id)
        return MessageIgnored(message_id=message_id, why=Ignored.ANSWER if is_answer else Ignored.DUPLICATE)

    def _judge(self, message: SdsMessage) -> Novelty:
        """Return what a content message of another participant is to what is here under its id.

        Where ids are opaque, several messages may bear one; then all of them are delivered, so that whoever is quicker
        than the honest sender cannot make his message vanish.
        """
        parked = self.dependencies.incoming.parked.get(message.message_id)
        if parked is not None:
            if _says_the_same(parked.message, message):
                return Novelty.KNOWN
            superseded = follows_a_rule(message) and not follows_a_rule(parked.message)
            return Novelty.ANOTHER if superseded else Novelty.FORGED
        record = self.history.get(message.message_id)
        if record is None:
            if self.history.is_before_window(message.lamport_timestamp or 0, message.message_id):
                return Novelty.FORGOTTEN
            return Novelty.FORGED if self._contradicts_gap(message) else Novelty.NEW
        if record.fingerprints is None:
            return Novelty.KNOWN
        if not record.fingerprints:
            return Novelty.KNOWN if follows_a_rule(message) else Novelty.FORGED
        if fingerprint(message) in _parts(record.fingerprints):
            return Novelty.KNOWN
        room = len(record.fingerprints) < _MAX_SAME_ID * FINGERPRINT_BYTES
        return Novelty.ANOTHER if room or follows_a_rule(message) else Novelty.FORGED

    def _contradicts_gap(self, message: SdsMessage) -> bool:
        """Return whether a message claims an id that is known to be somebody else's, and seems not to be its own."""
        missing = self.dependencies.incoming.missing.get(message.message_id)
        if missing is None or (missing.entry.sender_id or message.sender_id) == message.sender_id:
            return False
        return not self._may_vouch_for(message)

    def _may_vouch_for(self, message: SdsMessage) -> bool:
        """Return whether a bloom filter may hold the id, which cannot tell whose message under that id is here.

        Where participants make ids that can be checked, one that looks like those and fails is likely another's.
        """
        checkable = self.config.id_rule is not IdRule.KECCAK_TIMESTAMP and looks_like_a_digest(message.message_id)
        return not checkable or follows_a_rule(message)

    def _receive_another(
        self, message: SdsMessage, hint: bytes | None, now_ms: int, encoded: bytes | None
    ) -> list[SdsOutcome]:
        """Deliver a message although another one is here under its id; what proves to be the true one replaces it."""
        message_id = message.message_id
        is_true = follows_a_rule(message)
        parked = self.dependencies.incoming.parked.get(message_id)
        if parked is not None:
            # What it was waiting for may be an invention; what waits for it goes on doing so.
            self.dependencies.unpark(message_id)
            return self.receive(message, hint, now_ms, encoded)
        self._follow_clock(message.lamport_timestamp, now_ms)
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
        # What cites the id has been delivered, so that this one no longer has a causal place.
        met = not self.dependencies.unmet(message_id, self.dependencies.cited(message))
        return [
            MessageArrived(message=message, kind=Kind.CONTENT),
            MessageReady(message=message, dependencies_met=met),
        ]

    def _receive_own(
        self, message: SdsMessage, kind: Kind, hint: bytes | None, now_ms: int, encoded: bytes | None
    ) -> list[SdsOutcome]:
        """Ignore an own message that came back (SDS, "Receive Message": SHOULD), unless this process has forgotten it.

        Others cite what we sent in an earlier life. It is taken back into the history, without delivery and without
        acknowledging anything, so that nothing waits for it in vain. But anybody can write our name: what is not ours
        beyond doubt is not looked at, for else a forger could have us take another's message for received.
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
            self.broadcast(waiting.message, hint)
            return ignored
        if self._already_received(message_id):
            if self._judge(message) is not Novelty.KNOWN:
                return forged
            self.repair.forget(message_id)
            self.add_hint(message_id, hint)
            return ignored
        if self.history.is_before_window(message.lamport_timestamp or 0, message_id):
            return [*ignored, *self.dependencies.settle([message_id], now_ms)]
        if not self._may_be_ours(message):
            return [*forged, *self._let_go_of_forged(message_id, now_ms)]
        self.repair.forget(message_id)
        self.bloom.insert(message_id)
        self._follow_clock(message.lamport_timestamp, now_ms)
        self._enter_history(message, hint, encoded)
        outcomes: list[SdsOutcome] = [OwnMessageRecovered(message_id=message_id)]
        if (message.lamport_timestamp or 0) > self.born_at:
            # All that was sent since then is known.
            outcomes.append(SenderIdShared(message_id=message_id))
        return outcomes + self.dependencies.release_waiters(message_id, now_ms)

    def _let_go_of_forged(self, message_id: str, now_ms: int) -> list[SdsOutcome]:
        """Wait no longer for what others took for ours and cite, now that it came and is not.

        It would be refused every time that it is asked for. What is known as somebody else's is still waited for; and
        should one of ours bear the id, nobody here has to be delivered it.
        """
        missing = self.dependencies.incoming.missing.get(message_id)
        if missing is None or missing.entry.sender_id != self.sender_id:
            return []
        return self.dependencies.settle([message_id], now_ms)

    def _may_be_ours(self, message: SdsMessage) -> bool:
        """Return whether a message under our name may be one that an earlier life of ours sent and forgot."""
        missing = self.dependencies.incoming.missing.get(message.message_id)
        cited_as = None if missing is None else missing.entry.sender_id
        if cited_as and cited_as != self.sender_id:
            return False
        if follows_a_rule(message):
            return True
        # Nobody can check an id by a rule that needs more than the message.
        return self.config.id_rule is IdRule.KECCAK_TIMESTAMP and (missing is None or cited_as == self.sender_id)

    def _believe_broadcast(self, cited: tuple[HistoryEntry, ...]) -> None:
        """Take what others cite of ours for broadcast, also when nobody confirmed that it reached the network."""
        waiting = self.outgoing.messages
        for entry in cited:
            if entry[0] in waiting and entry[0] not in self.history:
                self.broadcast(waiting[entry[0]].message, None)

    def _holds(self, message_id: str) -> bool:
        """Return whether a message is here whole, delivered or parked.

        After a partition all participants may wait for each other's messages, and nobody has delivered any.
        """
        return message_id in self.retained or message_id in self.dependencies.incoming

    def _original(self, message_id: str) -> bytes | None:
        parked = self.dependencies.incoming.parked.get(message_id)
        return self.retained.encoded(message_id) if parked is None else parked.encoded

    def _review_acknowledgements(self, message: SdsMessage, cited: tuple[HistoryEntry, ...]) -> list[SdsOutcome]:
        self._believe_broadcast(cited)
        return [MessageReviewed(review=review) for review in self.outgoing.review(message, cited)]

    def _wait_for(
        self, message: SdsMessage, hint: bytes | None, missing: list[HistoryEntry], now_ms: int, encoded: bytes | None
    ) -> list[SdsOutcome]:
        """Park a content message, and ask for what is missing; a sync message only tells what is missing."""
        if message.kind is Kind.CONTENT:
            data = encoded if encoded is not None else self.profile.codec.encode(message)
            self.dependencies.park(message, data, hint, missing, now_ms)
            self.repair.earned(message)
        # A parked message was received: it needs no asking for, only what it waits for does.
        absent = tuple(entry for entry in missing if entry.message_id not in self.dependencies.incoming)
        outcomes = self.dependencies.note_missing(absent, now_ms)
        if absent:
            outcomes.append(DependenciesMissing(entries=absent))
        return outcomes

    def _follow_clock(self, lamport: int | None, now_ms: int) -> None:
        """SDS, "Deliver Message": the clock moves to the message's timestamp if that is greater."""
        believed = min(lamport or 0, self._latest_lamport(now_ms))
        if believed > self.lamport:
            self.lamport = believed
            self.journal.touch(META, "")

    def _enter_history(self, message: SdsMessage, hint: bytes | None, encoded: bytes | None) -> None:
        """SDS, "Deliver Message": insert into the log at its place; and keep it for whoever will miss it."""
        message_id = message.message_id
        # There are few senders and many messages: all records of one share its name.
        sender_id = intern(message.sender_id)
        prints = b"" if follows_a_rule(message) else fingerprint(message)
        self.history.add(HistoryRecord(message.lamport_timestamp or 0, message_id, hint, sender_id, prints))
        self._entered_history(message_id, sender_id)
        # Not when it came: what waits in the incoming buffer is cited by nobody here, and so tells of nothing either.
        self.owed.cited(self.dependencies.cited(message), sender_id, message.content or b"")
        self.outgoing.ancestry.record(message_id, message.causal_history, self.outgoing.messages)
        self.retained.keep(message, encoded)

    def _entered_history(self, message_id: str, author: str) -> None:
        self.journal.touch(HISTORY, message_id)
        self.dependencies.came(message_id)
        self.owed.entered(message_id, author)
        self.keep_history_within_bounds()

    def _deliver_parked(self, parked: Parked, now_ms: int) -> None:
        self._follow_clock(parked.message.lamport_timestamp, now_ms)
        self._enter_history(parked.message, parked.retrieval_hint, parked.encoded)


def _says_the_same(one: SdsMessage, other: SdsMessage) -> bool:
    return (one.sender_id, one.content) == (other.sender_id, other.content)


def _parts(fingerprints: bytes) -> list[bytes]:
    return [fingerprints[at : at + FINGERPRINT_BYTES] for at in range(0, len(fingerprints), FINGERPRINT_BYTES)]
