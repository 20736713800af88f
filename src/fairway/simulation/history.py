"""`History`: the events of a world at its applications, its stores and its network.

Some violations are noted at once: a second delivery, a false acknowledgement, a message sent before it was durable, an
exceeded rate limit. `fairway.simulation.invariants` checks the other invariants at the end.

Sends are numbered. A set of sends is an integer with a bit for each number, because there are many of these sets.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from fairway.channel.reliable_channel import ReliableChannel
from fairway.encryption import Encryption
from fairway.errors import FairwayError
from fairway.events import (
    DeliveryError,
    Event,
    IrretrievableMessage,
    MessageAcknowledged,
    MessageDelivered,
    MessageReceived,
    RequestSent,
)
from fairway.nodes.node import RoutedMessage
from fairway.options import ReliableChannelOptions
from fairway.storage.channel_store import SendOutcome, Write
from fairway.units import NS_PER_MS
from fairway.wire.hashing import keccak256
from fairway.wire.sds import Kind, SdsMessage
from fairway.wire.waku_message import WakuMessage


class Invariant(Enum):
    """The invariants of every world."""

    DELIVERED = "each message reaches every participant that stays"
    ONCE = "each sent message is delivered once, and no other"
    AUTHENTIC = "no message is delivered under a forged name, if participants sign"
    ORDER = "messages are delivered in causal order"
    ENDED = "each send ends once"
    ACKNOWLEDGED = "no acknowledgement is false"
    DURABLE = "a message is durable before it is sent"
    RATE = "the rate limit holds"
    RESTART = "a restart equals the stored rows"
    BOUNDED = "buffers are bounded"
    QUIET = "a channel at rest is quiet"
    LOGS = "all logs are equal"
    RUNS = "no program fails"


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """An invariant that did not hold."""

    invariant: Invariant
    at_ms: int
    """Milliseconds since the world began."""
    text: str


class Traffic(Enum):
    """The kind of a transmission, as the wire shows it."""

    CONTENT = "content"
    RETRY = "retry"
    REPAIR = "repair"
    SYNC = "sync"
    EPHEMERAL = "ephemeral"
    FORGED = "forged"


@dataclass(slots=True, kw_only=True)
class SendRecord:
    """One call of ``send``, repeated under the same request id after a crash."""

    number: int
    sender: str
    request_id: str
    payload_id: str
    """SHA-256 of the payload, in hexadecimal."""
    size_bytes: int
    at_ms: int
    present: frozenset[str]
    """The other participants at that time, also those offline."""
    by: frozenset[str]
    """Participants that must acknowledge it; none: any participant."""
    has_deadline: bool
    """Whether the send has a deadline."""
    knew: int
    """The sends that its sender had received or made before, as bits."""
    is_accepted: bool = False
    is_sent: bool = False
    """Whether its sender knows that the network accepted all of it."""
    has_failed: bool = False
    """Whether a store confirmed the failure, perhaps before the application was notified."""
    sds_ids: dict[str, bool] = field(default_factory=dict)
    """SDS message ids of its segments in the order of transmission, and whether each is parity."""
    received_ms: dict[str, int] = field(default_factory=dict)
    """Time of the first delivery to each participant."""
    data_count: int = 1
    """Number of its data segments."""
    acknowledged_ms: int | None = None
    """Time of the first acknowledgement."""
    ends: list[MessageDelivered | DeliveryError] = field(default_factory=list)
    results: list[tuple[str, ...] | None] = field(default_factory=list)
    """Results of its receipt: the recipients, or None for a failure."""

    def __str__(self) -> str:
        return f"send {self.number} of {self.sender} ({self.size_bytes} bytes, at {self.at_ms / 1_000:.1f} s)"


class History:
    """The events of a world."""

    def __init__(
        self,
        options: ReliableChannelOptions,
        now_ms: Callable[[], int],
        decrypt: Encryption | None,
        *,
        is_signed: bool = False,
    ) -> None:
        """``now_ms`` returns milliseconds since the world began; ``is_signed`` says whether participants sign."""
        self.now_ms = now_ms
        self.sends: list[SendRecord] = []
        self.violations: list[Violation] = []
        self.order: defaultdict[str, list[int]] = defaultdict(list)
        """The sends delivered to each participant, each once, in order."""
        self.joined: dict[str, None] = {}
        """All participants so far."""
        self.left: set[str] = set()
        """Participants that left for good."""
        self.losses: list[tuple[int, str, IrretrievableMessage]] = []
        """Announced losses: time, participant, event."""
        self.ephemeral: set[str] = set()
        """SDS ids of ephemeral messages."""
        self.forged: set[str] = set()
        """SDS ids that a forger made."""
        self.send_of: dict[str, SendRecord] = {}
        """The send of each SDS id of content."""
        self.bytes: Counter[Traffic] = Counter()
        """Encoded bytes accepted by the network, each counted once for all receivers."""
        self.transmissions: Counter[tuple[str, Traffic]] = Counter()
        """The same as messages, by participant."""
        self.lives: Counter[str] = Counter()
        self.happened: Counter[str] = Counter()
        """Events and actions by name."""
        self._options: Final = options
        self._decrypt = decrypt
        self._is_signed = is_signed
        self._known: Counter[str] = Counter()
        """The sends that each participant received or made, as bits."""
        self._by_request: dict[str, SendRecord] = {}
        self._by_payload: defaultdict[tuple[str, bytes], list[SendRecord]] = defaultdict(list)
        """Sends by sender and Keccak-256 of the payload."""
        self._durable: set[str] = set()
        """Request ids of sends that a store confirmed."""
        self._inbox: dict[tuple[str, int], int] = {}
        """Participant and number in its inbox -> send."""
        self._has: set[tuple[str, int]] = set()
        """Participant and send, once the message is durable in the inbox of the participant."""
        self._carried: dict[bytes, str] = {}
        """Message hash -> SDS id of the messages that participants passed to their nodes."""
        self._heard: set[tuple[str, str]] = set()
        """Participant and SDS id of each received message."""
        self._finished: set[tuple[str, int]] = set()
        """Participant and send of each message that is durably finished."""
        self._handed: dict[tuple[str, object], int] = {}
        """Participant and message -> the life of its last delivery."""
        self._used: Counter[tuple[str, int]] = Counter()
        """Messages that each participant passed to its node in each epoch."""
        self._trace = hashlib.sha256()

    # Calls and events of applications.

    def sending(
        self, name: str, request_id: str, payload: bytes, by: frozenset[str], *, has_deadline: bool = False
    ) -> None:
        """Note that an application is about to send."""
        present = frozenset(self.joined.keys() - self.left - {name})
        send = SendRecord(
            number=len(self.sends),
            sender=name,
            request_id=request_id,
            payload_id=ReliableChannel.get_message_id(payload),
            size_bytes=len(payload),
            at_ms=self.now_ms(),
            present=present,
            by=by,
            has_deadline=has_deadline,
            knew=self._known[name],
        )
        self.sends.append(send)
        self._by_request[request_id] = send
        self._by_payload[name, keccak256(payload)].append(send)
        self.note("send", name, request_id)

    def accepted(self, name: str, request_id: str) -> None:
        """Note that ``send`` returned."""
        send = self._by_request[request_id]
        send.is_accepted = True
        self._known[name] |= 1 << send.number

    def answered(self, name: str, request_id: str, delivered_to: tuple[str, ...] | None) -> None:
        """Note the result of a receipt."""
        self._by_request[request_id].results.append(delivered_to)
        self.note("answer", name, request_id)

    def forgotten(self, name: str, request_id: str) -> None:
        """Note that a channel lost an accepted send."""
        self.violate(Invariant.RESTART, f"{name} has lost {self._by_request[request_id]}")

    def told(self, name: str, event: Event) -> None:
        """Note an event."""
        request_id = getattr(event, "request_id", "")
        self.note(type(event).__name__, name, request_id)
        send = self._by_request.get(request_id)
        if isinstance(event, IrretrievableMessage):
            self.losses.append((self.now_ms(), name, event))
        elif send is None:
            return
        elif isinstance(event, RequestSent):
            send.is_sent = True
        elif isinstance(event, MessageAcknowledged):
            send.acknowledged_ms = self.now_ms() if send.acknowledged_ms is None else send.acknowledged_ms
            if event.total_chunks == 1:
                self._check_claim(send, event.acknowledged_by)
        elif isinstance(event, MessageDelivered):
            send.ends.append(event)
            self._check_claim(send, event.delivered_to)
        elif isinstance(event, DeliveryError):
            send.ends.append(event)

    def received(self, name: str, message: MessageReceived) -> None:
        """Note a delivery to an application."""
        self.note("receive", name, message.message_id)
        if not self.forged.isdisjoint(message.sds_ids):
            if self._is_signed and message.sender_id in self.joined:
                self.violate(Invariant.AUTHENTIC, f"{name} got a forged message under the name {message.sender_id}")
            return
        if not message.ephemeral and not self.ephemeral.isdisjoint(message.sds_ids):
            # Profile.LOGOS logs ephemeral messages, and a repair carries them without the ephemeral mark.
            return
        if message.ephemeral:
            if self._handed.get((name, message.sds_ids)) == self.lives[name]:
                self.violate(
                    Invariant.ONCE, f"{name} got an ephemeral message of {message.sender_id} twice in one life"
                )
            self._handed[name, message.sds_ids] = self.lives[name]
            return
        send = next((self.send_of[sds_id] for sds_id in message.sds_ids if sds_id in self.send_of), None)
        if send is None or (send.sender, send.payload_id) != (message.sender_id, message.message_id):
            self.violate(Invariant.ONCE, f"{name} got a message of {message.sender_id} that nobody sent")
            return
        self._check_once(name, send, message)
        if not message.dependencies_met and not any(loser == name for _, loser, _ in self.losses):
            self.violate(Invariant.ORDER, f"{name} got {send} before its dependencies, and no loss was announced")
        if name not in send.received_ms:
            send.received_ms[name] = self.now_ms()
            self.order[name].append(send.number)
            self._known[name] |= 1 << send.number

    def _check_once(self, name: str, send: SendRecord, message: MessageReceived) -> None:
        """Check that a second delivery is in a later life, and that the message was not durably finished."""
        life = self._handed.get((name, send.number))
        if life == self.lives[name]:
            self.violate(Invariant.ONCE, f"{name} got {send} twice in one life")
        elif life is not None and ((name, send.number) in self._finished or not message.redelivered):
            self.violate(Invariant.ONCE, f"{name} got {send} again, and had finished it")
        self._handed[name, send.number] = self.lives[name]

    def _check_claim(self, send: SendRecord, names: Iterable[str]) -> None:
        for name in names:
            heard = sum((name, sds_id) in self._heard for sds_id in send.sds_ids)
            if name in self.joined and heard < send.data_count and (name, send.number) not in self._has:
                self.violate(
                    Invariant.ACKNOWLEDGED, f"{send.sender} was notified that {name} has {send}, which is false"
                )

    # Stores.

    def stored(self, name: str, write: Write) -> None:
        """Note a write that is durable."""
        for request in write.requests:
            self._durable.add(request.request_id)
            if request.outcome is SendOutcome.FAILED and request.request_id in self._by_request:
                self._by_request[request.request_id].has_failed = True
        for number, message in write.delivered:
            for sds_id in message.sds_ids:
                if sds_id in self.send_of:
                    self._inbox[name, number] = self.send_of[sds_id].number
                    self._has.add((name, self.send_of[sds_id].number))
                    break
        for number in write.finished:
            if (name, number) in self._inbox:
                self._finished.add((name, self._inbox[name, number]))

    def store_differs(self, text: str) -> None:
        """Note that a restored state differs from the writes."""
        self.violate(Invariant.RESTART, text)

    # The wire.

    def handed_to_node(self, name: str, message: RoutedMessage) -> None:
        """Note a message that a participant passes to its node."""
        sds = self.read(message.message)
        if name not in self.joined or sds is None:
            return
        self._carried[message.message_hash] = sds.message_id
        limit = self._options.rate_limit
        if limit.enabled:
            epoch = (message.message.timestamp_ns or 0) // NS_PER_MS // limit.epoch_ms
            self._used[name, epoch] += 1
            if self._used[name, epoch] == (limit.messages_per_epoch or 0) + 1:
                self.violate(Invariant.RATE, f"{name} sent more than {limit.messages_per_epoch} messages in an epoch")
        if message.message.ephemeral:
            self.ephemeral.add(sds.message_id)
        elif sds.content and sds.sender_id == name and sds.message_id not in self.send_of:
            self._first_transmission(name, sds)

    def _first_transmission(self, name: str, sds: SdsMessage) -> None:
        segments, content = self._options.profile.segments, sds.content or b""
        segment = segments.decode(content) if segments.is_segment(content) else None
        payload_hash = keccak256(content) if segment is None else segment.payload_hash
        sends = self._by_payload.get((name, payload_hash), [])
        # Equal payloads have one segment each, and are sent in the order of the sends.
        send = next((send for send in sends if not send.sds_ids), sends[-1] if sends else None)
        if send is None:
            return
        self.send_of[sds.message_id] = send
        send.sds_ids[sds.message_id] = segment is not None and segment.is_parity
        if segment is not None and not segment.is_parity:
            send.data_count = segment.data_count
        if send.request_id not in self._durable:
            self.violate(Invariant.DURABLE, f"{send} left before it was durable")

    def published(self, name: str, message: RoutedMessage) -> None:
        """Note a message that the network accepted from a participant."""
        purpose = self._purpose(name, message)
        self.note(purpose.value, name, message.message_hash.hex())
        self.bytes[purpose] += len(message.encoded)
        self.transmissions[name, purpose] += 1

    def heard(self, name: str, message: RoutedMessage) -> None:
        """Note a message that the network or a store delivers to a participant."""
        if (sds_id := self._carried.get(message.message_hash)) is not None:
            self._heard.add((name, sds_id))

    def _purpose(self, name: str, message: RoutedMessage) -> Traffic:
        sds = self.read(message.message)
        if sds is None or name not in self.joined:
            return Traffic.FORGED
        if sds.kind is Kind.SYNC:
            return Traffic.SYNC
        if message.message.ephemeral or sds.kind is Kind.EPHEMERAL:
            return Traffic.EPHEMERAL
        if sds.sender_id != name:
            return Traffic.REPAIR
        key = (name, f"sent {sds.message_id}")
        is_new = key not in self._handed
        self._handed[key] = 0
        return Traffic.CONTENT if is_new else Traffic.RETRY

    def read(self, message: WakuMessage) -> SdsMessage | None:
        """Return the SDS message in a WakuMessage; None if there is none."""
        try:
            opened = message.payload if self._decrypt is None else self._decrypt.decrypt(message.payload)
            return self._options.profile.codec.decode(opened) if isinstance(opened, bytes) else None
        except FairwayError:
            return None

    # The record.

    def note(self, what: str, name: str, detail: str) -> None:
        """Add something to the trace."""
        self.happened[what] += 1
        self._trace.update(f"{self.now_ms()} {what} {name} {detail}\n".encode())

    def trace_hash(self) -> str:
        """Return a hash of all events in order."""
        return self._trace.hexdigest()

    def violate(self, invariant: Invariant, text: str) -> None:
        """Note that an invariant does not hold."""
        self.violations.append(Violation(invariant=invariant, at_ms=self.now_ms(), text=text))

    # Owed messages.

    def lost_send(self, event: IrretrievableMessage) -> SendRecord | None:
        """Return the send that a participant announced as lost; None for a forged one."""
        return next((self.send_of[i] for i in (event.message_id, *event.sds_ids) if i in self.send_of), None)

    def owed_to(self, send: SendRecord) -> frozenset[str]:
        """Return the participants that must receive a message.

        These are the participants at the time of the send that have not left. A message may reach no participant if its
        sender left, if its acceptance is unknown, or if it had a deadline. If it reaches none of them, it is owed to
        none.
        """
        stayed = send.present - self.left
        is_sure = send.is_accepted and send.sender not in self.left and not send.has_deadline
        return stayed if is_sure or stayed & send.received_ms.keys() else frozenset()
