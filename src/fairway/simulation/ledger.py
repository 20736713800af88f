"""`Ledger`: records what happens in a world, observed from outside of the participants.

The ledger observes the applications and the network. It keeps the events of channels apart from the facts (which
application received which message, and when), so that `fairway.simulation.invariants` can compare them.

Messages are numbered in the order of sending. A set of messages is an integer whose bit ``n`` means message ``n``. The
messages that a sender knew when it sent a message are such a set, so that causal order can be checked cheaply.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from fairway.errors import FairwayError
from fairway.events import (
    EVENT_NAMES,
    ChannelStatus,
    DeliveryError,
    Event,
    HandlerFailed,
    IrretrievableMessage,
    Limit,
    LimitReached,
    LossReason,
    MessageAcknowledged,
    MessageDelivered,
    MessageReceived,
    MessageSendError,
    MessageSending,
    MessageSent,
    MessageSetAside,
    NodeStatusChanged,
    RequestSent,
    SendErrorReason,
    StatusChanged,
)
from fairway.protocol.effects import Change, Purpose
from fairway.protocol.incoming.catching_up import CAUGHT_UP
from fairway.protocol.incoming.undelivered import ARRIVALS, AWAITING
from fairway.protocol.outgoing.requests import REQUESTS, SEGMENTS
from fairway.protocol.sds.channel import HISTORY
from fairway.protocol.sds.dependencies import MISSING, PARKED, SETTLED
from fairway.protocol.sds.repair import REPAIR_REQUESTS
from fairway.rln.proof import SignalProof
from fairway.simulation.memberships import ProofRules
from fairway.simulation.wire_rules import WireRules
from fairway.simulation.world import Observer
from fairway.storage.channel_store import Write
from fairway.units import DAY_MS, NS_PER_MS
from fairway.waku.node import RoutedMessage, StoreQuery
from fairway.wire.hashing import keccak256
from fairway.wire.sds import HistoryEntry, SdsMessage

Holds = Callable[[str, str], bool]
"""Whether a participant has an SDS message at this moment; called with (participant, SDS id)."""
MISDATED_MS: Final = 60_000
"""A message waits no longer than this between its stamp and the node."""
_HEEDED_MS: Final = 5_000
"""What is told so soon after more was asked for may have been found before."""
_MINUTE_MS: Final = 59_000
"""A minute, but for what clocks that are being set right may differ by."""
FINISHED_FOR_GOOD_MS: Final = 60_000
"""After so long in one life what an application finished with must not come again, whatever happens."""
_BY_MINUTE_MS: Final = 60_000
_SAME_PAGE_MS: Final = 300_000
SAME_PAGE: Final = 70
"""No page is asked for so often within that time: what is missing is asked for every five seconds at most."""
EXPIRED: Final = frozenset({LossReason.SEGMENTS_EXPIRED, LossReason.HASH_MISMATCH})
"""Why a set of segments is given up: it has waited long enough, which the ledger checks, or cannot be right."""
_SOON_MS: Final = 1_000
"""So much later than a segment came it is kept."""
FORGER: Final = "mallory"
"""What the names of hostile members begin with: who of them claims to have something may have it."""
_OVERDUE_MS: Final = 120_000
"""What a program waits for longer than that, once it could be told, it waits for in vain."""
_LACKING: Final = frozenset({MISSING, REPAIR_REQUESTS})
"""Tables in which a message stands that a participant does not have."""
_STAMPED_MS: Final = 2_000
"""What leaves later than this after its stamp comes to a store when others may have read on."""
_HEARD_MS: Final = 2_000
"""What left so long ago was heard, or got lost."""
_TWICE_AT_ONCE_MS: Final = 1_000
"""Within this time nobody asks again by hash for what he asked for last: what did not come is asked for later."""
_AT_ONCE: Final = 3
_FEW: Final = 10
"""Of so few participants no three draw the same time by chance."""
_READS_ON_MS: Final = 120_000
"""Who reads a store asks for the next page within this time."""
_STORED_MS: Final = 5_000
"""What was published so long before a moment is in the store when that is read up to this moment."""
IDLE_MS: Final = 600_000
"""A channel is idle from so long after the last new content until the next."""
_HELD: Final = frozenset({PARKED, HISTORY})
"""Tables in which a participant writes down a message that it has."""
_LEARNT: Final = frozenset({MISSING, PARKED, HISTORY, SETTLED})
"""Tables in which a participant writes down a message when it learns of it: that it lacks it, or that it came."""


@dataclass(slots=True, kw_only=True)
class SimulatedSend:
    """One send of an application, and its results."""

    number: int
    request_id: str
    sender: str
    payload_id: str
    """Its logical message id, SHA-256 of the payload."""
    size_bytes: int
    at_ms: int
    present: frozenset[str]
    """The other participants in the world at that time, online or not: they must get it."""
    asked: frozenset[str]
    """The participants whose acknowledgement the sender asked for by name."""
    known: int
    """The set of messages that the sender had sent or received before."""
    count: int = 1
    """Number of participants that the sender asked for."""
    asked_more: list[tuple[int, frozenset[str]]] = field(default_factory=list)
    """The participants that the sender asked for later, with the time of each call."""
    accepted_ms: int | None = None
    """The time at which the send was accepted; None if it was not, as when the program was killed before."""
    sds_ids: dict[str, bool] = field(default_factory=dict)
    """Ids of its segments that the network took, with whether each is parity."""
    deliveries: dict[str, list[int]] = field(default_factory=dict)
    """The times at which each participant received it as new; more than one time is a fault."""
    first_acknowledged_ms: int | None = None
    claimed: set[str] = field(default_factory=set)
    """The participants that an event named as having a segment of it."""
    ends: list[tuple[int, MessageDelivered | DeliveryError]] = field(default_factory=list)
    """Terminal events in all lives of the sender; at most one is right."""
    turned_down: set[str] = field(default_factory=set)
    """Of its SDS messages those that a node refused."""
    refused: bool = False
    """Whether its send was refused."""
    in_vain: tuple[str, ...] = ()
    """The participants that had it long enough for the sender to know, when its delivery failed."""
    ended_in: int = 0
    """The life of the sender in which the latest of them was told."""
    answers: list[tuple[int, tuple[str, ...] | None]] = field(default_factory=list)
    """Whom the receipt named, and when, in any life; None where it said that the send failed."""
    life: int = 1
    """The life of the sender in which it was first tried."""
    data_sent: set[int] = field(default_factory=set)
    """Data segments that an event named as sent."""
    data_count: int = 0
    """Number of its data segments, once an event named it."""
    times_sent: Counter[tuple[bool, int]] = field(default_factory=Counter)
    """Number of events for each segment that it was sent."""
    too_soon: int | None = None
    """How often the segment that was sent most often had been sent when its sender gave up, if that life began it."""

    def wanted(self, at_ms: int, heeded_ms: int = _HEEDED_MS) -> frozenset[str]:
        """Return who was asked for by name, so long before a moment that what is told then takes account of it."""
        return self.asked.union(*(names for asked_ms, names in self.asked_more if asked_ms <= at_ms - heeded_ms))


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A participant announced that a message is lost."""

    at_ms: int
    participant: str
    reason: LossReason
    what: str
    sender: str | None
    number: int | None
    """The message that it belongs to, where that is known."""
    place: int
    """How many messages had been delivered to the participant before."""
    is_rebuilt: bool
    """Whether the participant had so many other segments of that message that they suffice, delivered or waiting."""
    is_with_others: bool
    """Whether it could be had because it had come to a participant that had not left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryClaim:
    """An event or receipt named a participant as having a message, or some segments of it."""

    at_ms: int
    number: int
    participant: str
    whole: bool
    """Whether the claim is about all of it (MessageDelivered) or about a segment (MessageAcknowledged)."""
    true: bool
    """Whether it was so at that time; of all of it, whether all was there, handed over or not."""


@dataclass(slots=True)
class Presence:
    """The time for which a participant was in the world, and its deliveries in their order."""

    left_ms: int | None = None
    known: int = 0
    """Messages that it sent or was delivered so far."""
    order: list[int] = field(default_factory=list)
    """Deliveries, first ones only."""


class Ledger(Observer):
    """Everything that happened, and the trace of it."""

    def __init__(
        self,
        holds: Holds,
        rules: WireRules,
        opened: Callable[[bytes], bytes] = lambda payload: payload,
        heard_of_ms: int = 600_000,
    ) -> None:
        """Begin a ledger.

        ``holds`` asks the world for the truth; ``opened`` deciphers what is published, and ``rules`` are those that it
        must follow. An acknowledgement arrives within ``heard_of_ms`` if no participant is away.
        """
        self.heard_of_ms = heard_of_ms
        self.rules = rules
        self.forged = rules.forged
        """SDS ids of forged messages, and those that these cite and that do not exist."""
        self.sent: list[SimulatedSend] = []
        self.presences: dict[str, Presence] = {}
        self.losses: list[Loss] = []
        self.claims: list[DeliveryClaim] = []
        self.unexplained: list[tuple[int, str, str, str]] = []
        """Deliveries of messages that no participant sent: (time in ms, receiver, sender, message id)."""
        self.repeated: list[tuple[int, str, int]] = []
        """Messages that came again although their application had long finished with them: (when, to whom, number)."""
        self.unmet: list[tuple[int, str, int]] = []
        """Deliveries that were said to lack something, without a loss being announced: (when, to whom, number)."""
        self.lacking: list[tuple[int, str, int, int]] = []
        """Deliveries that were said to lack nothing, and lacked what they cite: (when, to whom, number, what)."""
        self.troubled_ms: dict[str, int] = {}
        """When each participant was last away, restarted, or cut off."""
        self.false_words: list[tuple[int, str, str | None, str]] = []
        """What was said that is not so, or published that must not be: (when, by whom, about which request, what)."""
        self.failures: list[tuple[int, str, BaseException]] = []
        """What programs ended with that no program may end with: (when, whose, what)."""
        self.miskept_by: list[tuple[int, str, str]] = []
        """What stores did that no store may do: (when, whose, what)."""
        self.max_attempts: int | None = None
        """How often handlers are called before a message is set aside, if that is watched."""
        self.events_come_late = False
        """Whether an application may ask more of a send when all is known already, and so be told so twice."""
        self._listed_first: dict[str, set[int]] = {}
        """Messages that were listed as set aside before that was told."""
        self._aside: dict[str, dict[int | None, None]] = {}
        """Numbers of the messages that a participant was told are set aside, the one that waits longest first."""
        self.limits_told: defaultdict[str, set[Limit]] = defaultdict(set)
        """Which bounds a participant was told that bite, in its present life."""
        self.rules.repeats_in_turn = lambda name: Limit.ACTIVE_RETRIES in self.limits_told[name]
        self.wall_ms: Callable[[str], int | None] = lambda _: None
        """The time on a participant's clock, unless the clock was set recently."""
        self.misdated: list[tuple[int, str, int]] = []
        """What is stamped otherwise than by the clock of who sends it: (when, by whom, how far ahead in ms)."""
        self.unordered: list[tuple[int, str, str]] = []
        """Messages that are stamped no later than one that they cite: (when, by whom, SDS id)."""
        self.ahead: list[tuple[int, str, str]] = []
        """Messages whose logical time is half a day from now, which no clock is: (when, by whom, SDS id)."""
        self.lamport_unit_ms = 1
        """What one of a Lamport timestamp stands for."""
        self.lamport_lead_ms = 0
        """By how much each message may lead its receiver's clock, whatever the time is (`Profile.lamport_lead`)."""
        self.ephemeral_sent = 0
        self.ephemeral_deliveries: Counter[tuple[str, str, str]] = Counter()
        """How often each was delivered to whom in which life: (participant and life, sender, SDS id)."""
        self.ephemeral_ids: set[str] = set()
        """SDS ids of ephemeral messages."""
        self.noticed_ms: list[int] = []
        """How long after the network lost a message its receiver wrote down that it lacks it, or got it otherwise."""
        self.mended_ms: list[int] = []
        """How long after the network lost a message its receiver had it."""
        self.idle_bytes = 0
        """Bytes transmitted while the channel was idle (`IDLE_MS`)."""
        self.idle_ms = 0
        """How long it was idle before new content came, times the participants of that time."""
        self._spoken_ms: int | None = None
        """When new content was published last."""
        self._to_mend: dict[tuple[str, str], int] = {}
        """What the network lost and its receiver does not have yet, with when that was."""
        self.read_up_to_ms: dict[str, int] = {}
        """Up to when each participant has read a store for the time away."""
        self.store_is_whole = True
        """Whether the store has everything at once, under the time of who reads it, and whatever it brings opens."""
        self.is_stored: Callable[[], bool] = lambda: True
        """Whether the store gets all that is published now."""
        self.was_apart: Callable[[str, int], bool] = lambda _, __: False
        """Whether a participant was, since some time, in a piece of the network that has a store of its own."""
        self.passed_over: list[tuple[int, str, str]] = []
        """What the store had in a time that counts as read, and its reader did not keep: (when, who, SDS id)."""
        self._readable: list[tuple[int, str, str]] = []
        """What was published with content and stored, in order: (when, by whom, SDS id)."""
        self._read: Counter[str] = Counter()
        """How many of these each participant has read."""
        self.sought: set[tuple[str, bytes]] = set()
        """Who asked a store for what, by message hash."""
        self.status_told: dict[str, ChannelStatus] = {}
        """What each participant was last told that its channel is, in its present life."""
        self._reading_ms: dict[str, tuple[int, int]] = {}
        """When each participant began to read the store oldest first, and when it last asked for a page."""
        self._store_came_ms: dict[str, int] = {}
        """When each participant was last told that its node can ask a store, or began."""
        self._asked_up_to_ms: dict[str, int] = {}
        """The end of the time that each participant asked for last, oldest first."""
        self.events: Counter[str] = Counter()
        self.deeds: Counter[str] = Counter()
        self.transmissions: Counter[Purpose] = Counter()
        self.bytes: dict[Purpose, Counter[str]] = {purpose: Counter() for purpose in Purpose}
        """Bytes transmitted for each purpose, by part of the message: "content", "history", "bloom" and "rest"."""
        self._holds = holds
        self._codec = rules.codec
        self.opened = opened
        self._lives: Counter[str] = Counter()
        self._by_request: dict[str, SimulatedSend] = {}
        self._by_hash: dict[tuple[str | None, bytes | None], SimulatedSend] = {}
        """The last send of each payload, by sender and Keccak-256."""
        self._strays_came_ms: dict[tuple[str, str], int] = {}
        """When a participant took in a segment of no known send, by (participant, SDS id)."""
        self._segments: dict[str, tuple[SimulatedSend, bool, int]] = {}
        """What participants keep about their segments, by SDS id: the send of each, whether it is parity, and the life
        in which it was made."""
        self._forgotten_ms: dict[tuple[str, str], int] = {}
        """When a participant removed an SDS message from its history, by (participant, SDS id)."""
        self._carried: dict[bytes, str] = {}
        """SDS id in each published WakuMessage with content, by its hash."""
        self._contents: dict[bytes, str] = {}
        """The same by its payload, which is also that of a copy that the network stamps anew."""
        self._first: dict[bytes, str] = {}
        """Of these the first transmissions of participants."""
        self._lost: dict[tuple[str, str], int] = {}
        """What the network lost and its receiver has not noticed yet, with when that was."""
        self._cites: dict[str, tuple[str, ...]] = {}
        """What each content message cites."""
        self._authors: dict[str, str] = {}
        """Who published an SDS message with content first."""
        self.strays: dict[str, frozenset[str]] = {}
        """Who was there when content was published first of which no send is known, by SDS id. Such are the segments
        that leave of a send that its cipher refused amid it."""
        self._asked_for: dict[str, int] = {}
        """When a message was last asked for, if its author has not sent it since."""
        """SDS messages that a repair was asked for of and that were not published since."""
        self._alike: dict[tuple[str, str], list[SimulatedSend]] = {}
        self._looked_at: dict[tuple[str, tuple[str, ...]], int] = {}
        """In which life a handler that never raises handled a message last."""
        self._finished: dict[tuple[str, tuple[str, ...]], int] = {}
        """When an application finished with a message: by participant and SDS ids."""
        self._once_finished: set[tuple[str, tuple[str, ...]]] = set()
        """Also if another handling of the same message, which a pause began anew, raised later."""
        self._finished_last: dict[tuple[str, tuple[str, ...]], tuple[int, int]] = {}
        """When it did so last, and in which life."""
        self._unsure: set[tuple[str, tuple[str, ...]]] = set()
        """What was finished shortly before the life ended in which it was finished."""
        self._stopping_ms: dict[str, int] = {}
        """When a program asked its channel to stop, which has not done so yet."""
        self._stopped: dict[tuple[str, int], int] = {}
        """When a program asked a channel to stop that then stopped in order: by participant and life."""
        self._raised: dict[tuple[str, tuple[str, ...]], tuple[int, int, str]] = {}
        """What handlers raised on, and so may come again in the same life: when, in which, and the message id."""
        self._inbox_ms: dict[tuple[str, tuple[str, ...]], int] = {}
        """When a message was first in the inbox of a participant."""
        self._handed_ms: dict[str, int] = {}
        """When a participant was last handed a message."""
        self._handed: dict[tuple[str, tuple[str, ...]], tuple[int, str]] = {}
        """In which life a participant was last handed a message, and the message id."""
        self._set_aside: set[tuple[str, str]] = set()
        """Participant and id of each message that was set aside, and so does not come again by itself."""
        self._taken: set[bytes] = set()
        """Hashes of all that the network took."""
        self.slow_uplinks: frozenset[str] = frozenset()
        """Who has an uplink that lets out a message in two seconds."""
        self.max_queries_per_minute: int | None = None
        """Store queries that a participant may make in any minute, if that is watched."""
        self.hop_ms = 0
        """How long a query may be under way."""
        self.tries_are_counted = True
        """Whether every try of a send is told: one that the cipher does not encrypt is not."""
        self.can_give: Holds = holds
        """Whether others can have an SDS message because it came to a participant, and it can still be had."""
        self.lost_ids_follow = True
        """Whether who rebuilt a message can work out the ids of the segments that it did not get: all cut messages into
        the same segments, and no id depends on the time at which it was made."""
        self.is_on_arrival = False
        """Whether an application may have read a message that its channel does not cite, as it waits for others."""
        self.hints_are_checked = True
        """Whether hints must lead to what the network took; a store may bring a message in a carrier of its own."""
        self.queries: Counter[str] = Counter()
        """Pages that each participant asked the store for."""
        self.offered: Counter[tuple[str, int, int]] = Counter()
        """What each life of a participant handed to its node in each minute: one that begins knows of no answers."""
        self.taken_from: Counter[tuple[str, int, int]] = Counter()
        """What the network took from it."""
        self._handed_over: set[bytes] = set()
        """Hashes of all that was handed to a node, of which its sender may not know whether it went any further."""
        self.overasked: list[tuple[int, str, int]] = []
        """Who asked the store for more pages in a minute than allowed: (when, who, how many)."""
        self.reread: list[tuple[int, str, int]] = []
        """Who asked for one page over and over: (when, who, how often)."""
        self._asked: Counter[tuple[str, int, StoreQuery, bytes | None]] = Counter()
        self.most_often_by_hash = SAME_PAGE
        """How often a participant may ask a store for the same messages in five minutes: seldom if it answers."""
        self._queried: dict[str, deque[int]] = {}
        self.asked_twice: list[tuple[int, str]] = []
        """Who asked for the same page twice at once, of messages that it named: (when, who)."""
        self._last_page: dict[str, tuple[int, StoreQuery, bytes | None]] = {}
        """What each participant asked of a store last, and when."""
        self.proofs: ProofRules | None = None
        """What is asked of proofs, where the network asks for some."""
        self.misproven: list[tuple[int | None, str, str]] = []
        """What is wrong with the proofs of messages that participants handed to their nodes."""
        self.misformed: list[tuple[int, str, str]] = []
        """What was published that the wire does not allow: (when, by whom, what is wrong)."""
        self._durable: set[tuple[str, str]] = set()
        """Whose store keeps, or once kept, a row of which SDS message."""
        self._taken_in: set[tuple[str, str]] = set()
        """Whose store keeps, or once kept, that it has which SDS message, or has given it up."""
        self._whole: set[tuple[str, int]] = set()
        """Whose store keeps, or once kept, which message as a whole, by its number."""
        self.ephemeral_heard: set[tuple[str, str]] = set()
        """Who was handed which ephemeral message, by message id."""
        self._ephemeral_published: Counter[str] = Counter()
        self._open: dict[tuple[str, str], int] = {}
        """Sends that a participant keeps as open, with when something of each was last handed to its node."""
        self._on_disk: set[tuple[str, str, str]] = set()
        """Open sends and missing messages that a participant's store knows: (participant, table, key)."""
        self._began_ms: dict[str, int] = {}
        self.segments_expire_ms: float = math.inf
        """After what time without a further segment the rest of a message may be given up."""
        self._grown_ms: dict[tuple[str, int], int] = {}
        """When a participant last got a segment of which message."""
        self._arrived: set[tuple[str, str]] = set()
        """Who got which segment, by SDS id, of those that could not be handed over at once."""
        self.expired: set[tuple[str, int]] = set()
        """Who rightly gave up waiting for the rest of which message."""
        self._missing: defaultdict[str, dict[str, int]] = defaultdict(dict)
        """What each participant knows that it lacks, by SDS id, with when it learned that."""
        self.came: set[tuple[str, str]] = set()
        """Whom the network brought which SDS message with content."""
        self._first_words: dict[str, int] = {}
        """When each participant first handed something over; -1 if that was what its application said."""
        self._asked_ms: dict[str, int] = {}
        """When each participant last asked the others for something that it lacks, or heard another one ask for it."""
        self._asked_itself: defaultdict[str, set[str]] = defaultdict(set)
        """What each asked for in its present life, by SDS id, and heard nobody else ask for since."""
        self._requests: dict[bytes, frozenset[str]] = {}
        """What participants ask the others for, by SDS ids, by the payload that asks for it."""
        self._lamports: dict[str, int] = {}
        """Lamport timestamps of what participants published, by SDS id."""
        self._trace = hashlib.sha256()

    def note(self, at_ms: int, name: str, deed: str) -> None:
        """Record an action of a participant, or a fault that struck it."""
        self.deeds[deed] += 1
        self._trace.update(f"{at_ms} {name} does {deed}\n".encode())

    def joined(self, name: str) -> None:
        """Record that a participant joined."""
        self.presences[name] = Presence()

    def left(self, at_ms: int, name: str) -> None:
        """Record that a participant left for good."""
        self.presences[name].left_ms = at_ms

    def tried(
        self, at_ms: int, name: str, request_id: str, payload: bytes, asked: Iterable[str] = (), count: int = 1
    ) -> None:
        """Record that an application sends a message."""
        presence = self.presences[name]
        sent = SimulatedSend(
            number=len(self.sent),
            request_id=request_id,
            sender=name,
            payload_id=hashlib.sha256(payload).hexdigest(),
            size_bytes=len(payload),
            at_ms=at_ms,
            asked=frozenset(asked),
            present=frozenset(n for n, other in self.presences.items() if other.left_ms is None and n != name),
            known=presence.known,
            count=count,
            life=self._lives[name],
        )
        self.sent.append(sent)
        self._by_request[request_id] = sent
        self._by_hash[name, keccak256(payload)] = sent
        self._alike.setdefault((name, sent.payload_id), []).append(sent)

    def accepted(self, at_ms: int, name: str, request_id: str) -> None:
        """Record that a send was accepted: from then on its sender may rely on it."""
        sent = self._by_request[request_id]
        if sent.accepted_ms is None:
            sent.accepted_ms = at_ms
            self.presences[name].known |= 1 << sent.number
        self._trace.update(f"{at_ms} {name} may rely on {request_id}\n".encode())

    def asked(self, at_ms: int, name: str, request_id: str, more: frozenset[str]) -> None:
        """Write down that an application asked others to acknowledge a send, too; no names if it could not."""
        sent = self._by_request[request_id]
        sent.asked_more = [*sent.asked_more, (at_ms, more)] if more else [(at, more) for at, _ in sent.asked_more]
        self._trace.update(f"{at_ms} {name} asks {sorted(more)} to have {request_id}\n".encode())

    def answered(self, at_ms: int, name: str, request_id: str, delivered_to: tuple[str, ...] | None) -> None:
        """Record the final answer of a receipt."""
        sent = self._by_request[request_id]
        sent.answers.append((at_ms, delivered_to))
        if delivered_to is None and not (sent.ends or sent.sds_ids):
            # It was refused, and a crash came between that and the event.
            sent.refused = True
        self._trace.update(f"{at_ms} {name} learns that {request_id} has {delivered_to}\n".encode())

    def told_late(self, at_ms: int, name: str, request_id: str) -> None:
        """Record that a receipt that knew that all of a message was sent said so only later."""
        self.false_words.append((at_ms, name, request_id, "its receipt said only later that all of it was sent"))

    def unknown(self, at_ms: int, name: str, request_id: str) -> None:
        """Record that the channel of the sender no longer knows an accepted send."""
        self.false_words.append((at_ms, name, request_id, "nothing is known of a send that was accepted"))

    def began(self, at_ms: int, name: str) -> None:
        """Record that a new life of a participant began, and the events that the life before should have had."""
        self._see_what_is_overdue(at_ms, name)
        self._lives[name] += 1
        self._queried.pop(name, None)
        self.rules.began(name)
        self._began_ms[name] = self._store_came_ms[name] = at_ms
        # A crash amid handing over comes with the next transmission, and that perhaps in a later epoch of a rate limit.
        self.troubled(at_ms, name)
        # What the life before had not written when it ended, this one does not know.
        self._open = {
            send: at for send, at in self._open.items() if send[0] != name or (name, REQUESTS, send[1]) in self._on_disk
        }
        self._missing[name] = {
            sds_id: at for sds_id, at in self._missing[name].items() if (name, MISSING, sds_id) in self._on_disk
        }
        self.limits_told.pop(name, None)
        self.status_told.pop(name, None)
        self._asked_itself.pop(name, None)
        self._trace.update(f"{at_ms} {name} begins\n".encode())

    def _see_what_is_overdue(self, at_ms: int, name: str) -> None:
        """Write down what a life that ends waited for in vain; the next one may be told it and would hide that."""
        life = self._lives[name]
        for sent in self.sent if life else ():
            if sent.sender == name and sent.ends and sent.accepted_ms is not None and sent.ended_in == life:
                ended_ms = sent.ends[-1][0]
                is_answered = bool(sent.answers) and sent.answers[-1][0] >= ended_ms
                # Who asks for more just as it ends waits for that.
                is_answered |= any(asked_ms >= ended_ms for asked_ms, _ in sent.asked_more)
                if not is_answered and ended_ms < at_ms - _OVERDUE_MS:
                    text = "its receipt said nothing in all the time until the program ended"
                    self.false_words.append((at_ms, name, sent.request_id, text))
        for (who, sds_ids), (raised_ms, raised_in, message_id) in self._raised.items():
            # It comes after all that came meanwhile, of which a slow application has much after a time away.
            idle_ms = max(raised_ms, self._handed_ms.get(name, 0))
            is_due = raised_in == life and idle_ms < at_ms - _OVERDUE_MS
            if who == name and is_due and (name, message_id) not in self._set_aside:
                text = f"a message ({sds_ids[0][:12]}) on which a handler raised never came again"
                self.false_words.append((at_ms, name, None, text))

    def _see_what_is_overtaken(self, at_ms: int, name: str, message: MessageReceived) -> None:
        """Write down what an application raised on that should come again before what it is handed now."""
        self._handed_ms[name] = at_ms
        came_ms, life = self._inbox_ms.get((name, message.sds_ids), 0), self._lives[name]
        for (who, sds_ids), (raised_ms, raised_in, message_id) in self._raised.items():
            if (name, message_id) in self._set_aside:
                continue
            if who == name and raised_in == life and raised_ms < came_ms - _OVERDUE_MS:
                text = f"a message ({sds_ids[0][:12]}) on which a handler raised comes after what came long after it"
                self.false_words.append((at_ms, name, None, text))

    def set_aside(self, at_ms: int, name: str, waiting: Collection[MessageSetAside]) -> None:
        """Write down what is set aside when a channel has started, and what no longer is although it was told."""
        numbers = {message.number for message in waiting}
        self._listed_first[name] = numbers - self._aside.get(name, {}).keys()
        gone = self._aside.get(name, {}).keys() - numbers
        if gone:
            text = f"{len(gone)} messages that were set aside are gone"
            self.false_words.append((at_ms, name, None, text))
        self._aside[name] = dict.fromkeys(sorted(numbers))
        # A program that was killed when the disk had written it is told of it only by this list.
        self._set_aside |= {(name, message.message_id) for message in waiting}

    def ever_set_aside(self, name: str) -> int:
        """Return how many messages a participant has set aside."""
        return sum(who == name for who, _ in self._set_aside)

    def taken_back(self, at_ms: int, name: str, message: MessageSetAside) -> None:
        """Write down that an application has a message that was set aside handed over again, or discards it."""
        self._aside.setdefault(name, {}).pop(message.number, None)
        self._trace.update(f"{at_ms} {name} takes {message.number} back\n".encode())

    def ended(self, at_ms: int, name: str) -> None:
        """Record what a life finished so shortly before its end that its store need not know it."""
        since_ms = at_ms - FINISHED_FOR_GOOD_MS
        self._unsure |= {
            key for key, (finished_ms, _) in self._finished_last.items() if key[0] == name and finished_ms >= since_ms
        }

    def failed(self, at_ms: int, name: str, error: BaseException) -> None:
        """Record an error that no program may end with."""
        self.failures.append((at_ms, name, error))

    @property
    def any_failed(self) -> bool:
        """Whether any send ended otherwise than as delivered, so that others may have a part of it."""
        return any(
            sent.refused or not isinstance(sent.ends[-1][1], MessageDelivered) for sent in self.sent if sent.ends
        )

    def request(self, request_id: str) -> SimulatedSend:
        """Return a send by the id that its application gave it."""
        return self._by_request[request_id]

    def message_of(self, sds_id: str) -> SimulatedSend | None:
        """Return the message that a segment belongs to, whether the network ever took that or not."""
        made = self._segments.get(sds_id)
        return None if made is None else made[0]

    def trace_hash(self) -> str:
        """Return the SHA-256, in hex, over every deed, event and publication so far, in order."""
        return self._trace.hexdigest()

    def published(self, at_ms: int, name: str, message: RoutedMessage) -> None:
        """Record a message that the network accepted, and count its bytes."""
        purpose, content, history, bloom = self._purpose_of(at_ms, name, message)
        self.transmissions[purpose] += 1
        self._count_idle(at_ms, purpose, len(message.encoded))
        self.taken_from[name, self._lives[name], at_ms // _BY_MINUTE_MS] += 1
        self._taken.add(message.message_hash)
        self.rules.taken(message.message_hash)
        rest = len(message.encoded) - content - history - bloom
        self.bytes[purpose].update(content=content, history=history, bloom=bloom, rest=rest)
        self._trace.update(f"{at_ms} {name} publishes {purpose.value} {message.message_hash.hex()}\n".encode())

    def idle_until(self, at_ms: int) -> int:
        """Return how long the channel is idle up to a time after the last new content, times its participants."""
        if self._spoken_ms is None:
            return 0
        present = sum(presence.left_ms is None for presence in self.presences.values())
        return max(0, at_ms - self._spoken_ms - IDLE_MS) * present

    def _count_idle(self, at_ms: int, purpose: Purpose, size_bytes: int) -> None:
        if purpose is Purpose.CONTENT:
            self.idle_ms += self.idle_until(at_ms)
            self._spoken_ms = at_ms
        elif self._spoken_ms is not None and at_ms > self._spoken_ms + IDLE_MS:
            self.idle_bytes += size_bytes

    def heard(self, at_ms: int, name: str, message: RoutedMessage) -> None:
        """Record a message that the network delivers to a participant."""
        if name in self.presences:
            requested = self._requests.get(message.message.payload)
            if requested is not None:
                # By its payload: a node may have stamped it anew.
                self.rules.heard_asking(at_ms, name, requested)
            self.rules.heard(at_ms, name, message.message_hash)
            sds_id = self._contents.get(message.message.payload)
            if sds_id is not None:
                self.came.add((name, sds_id))
                if message.message_hash not in self._carried:
                    self.rules.heard_restamped(name, sds_id, message.message_hash)
            if requested is not None and not requested.isdisjoint(self._missing[name]):
                self._asked_ms[name] = at_ms
                self._asked_itself[name] -= requested

    def lost(self, at_ms: int, name: str, message: RoutedMessage) -> None:
        """Record that the network lost a message that its receiver did not know."""
        sds_id = self._first.get(message.message_hash)
        if sds_id is not None and name in self.presences:
            self._lost[name, sds_id] = self._to_mend[name, sds_id] = at_ms

    def kept(self, at_ms: int, name: str, changes: Sequence[Change]) -> None:
        """Record the owners of new segments, and the lost messages that a participant notices."""
        self.rules.kept(at_ms, name, changes)
        for change in changes:
            if change.table == REQUESTS and change.row is None:
                self._open.pop((name, change.key), None)
            elif change.table == REQUESTS:
                self._open.setdefault((name, change.key), at_ms)
        for change in changes:
            if change.table == CAUGHT_UP and change.row is not None:
                self.read_up_to_ms[name] = change.row[0]
            elif change.table == SEGMENTS and change.row is not None:
                sent, known = self._by_request.get(change.row[0]), self.message_of(change.key)
                # What a life made of a message, and never handed over, the next one may make of another one alike.
                if sent is not None and (known is None or (known is not sent and change.key not in known.sds_ids)):
                    self._segments[change.key] = (sent, change.row[2], self._lives[name])
            if change.table == ARRIVALS and change.row is not None and change.key not in self._segments:
                self._strays_came_ms.setdefault((name, change.key), at_ms)
            if change.table == ARRIVALS and change.row is not None and change.key in self._segments:
                if (name, change.key) in self._arrived:
                    continue
                self._arrived.add((name, change.key))
                self._grown_ms[name, self._segments[change.key][0].number] = at_ms
            if change.table == MISSING and change.row is None:
                self._missing[name].pop(change.key, None)
            elif change.table == MISSING:
                self._missing[name].setdefault(change.key, at_ms)
            if change.table == HISTORY and change.row is None:
                self._forgotten_ms.setdefault((name, change.key), at_ms)
            if change.table in _LEARNT and (lost_ms := self._lost.pop((name, change.key), None)) is not None:
                self.noticed_ms.append(at_ms - lost_ms)
            is_mended = change.table in _HELD or (change.table == SETTLED and change.row == (False,))
            if is_mended and (lost_ms := self._to_mend.pop((name, change.key), None)) is not None:
                self.mended_ms.append(at_ms - lost_ms)

    def unnoticed(self) -> list[tuple[str, str]]:
        """Return the lost messages that participants which stayed never noticed: (participant, SDS id)."""
        return [lost for lost in self._lost if self.presences[lost[0]].left_ms is None]

    def restored(self, at_ms: int, name: str, changes: Sequence[Change]) -> None:  # noqa: ARG002 - as `Observer` has it
        """Record what a participant knows when a life of it begins."""
        self.rules.restored(name, changes)

    def written(self, at_ms: int, name: str, write: Write) -> None:
        """Record the durable state of a participant."""
        self.rules.written(name, write.changes)
        whole: list[str] = []
        read_up_to_ms: int | None = None
        for table, key, row in write.changes:
            if row is not None:
                self._durable.add((name, key))
                if table not in _LACKING:
                    self._taken_in.add((name, key))
                if table == AWAITING:
                    whole.append(key)
                elif table == CAUGHT_UP:
                    read_up_to_ms = row[0]
            if table in (REQUESTS, MISSING):
                (self._on_disk.discard if row is None else self._on_disk.add)((name, table, key))
        for _, message in write.delivered:
            self._inbox_ms.setdefault((name, message.sds_ids), at_ms)
            self._durable.update((name, sds_id) for sds_id in message.sds_ids)
            self._taken_in.update((name, sds_id) for sds_id in message.sds_ids)
            whole += message.sds_ids
        self._whole.update((name, sent.number) for sent in map(self.message_of, whole) if sent is not None)
        if read_up_to_ms is not None and self.store_is_whole:
            self._see_what_was_read(at_ms, name, read_up_to_ms)

    def _see_what_was_read(self, at_ms: int, name: str, up_to_ms: int) -> None:
        """See that what the store has of a time that counts as read is kept (RELIABLE-CHANNEL-API, "Query on connect").

        A crash would otherwise forget it, and what counts as read nobody reads again. What was not asked for does not
        count: the next reading begins a minute before the time that is noted.

        A segment that contradicts a forged one is set aside, and may be what makes its message whole all the same. The
        message is kept then, and the segment is noted as missing and asked for by itself.
        """
        up_to_ms = min(up_to_ms, self._asked_up_to_ms.get(name, up_to_ms))
        first = last = self._read[name]
        while last < len(self._readable) and self._readable[last][0] <= up_to_ms - _STORED_MS:
            last += 1
        self._read[name] = last
        since_ms, _ = self._reading_ms.get(name, (at_ms, at_ms))
        for _, author, sds_id in self._readable[first:last]:
            is_known = author == name or (name, sds_id) in self._taken_in or sds_id in self.forged
            sent = self.message_of(sds_id)
            # What is left of a message that was given up is turned away.
            is_known |= sent is not None and (name, sent.number) in self.expired
            is_sought = (name, MISSING, sds_id) in self._on_disk
            is_known |= is_sought and sent is not None and (name, sent.number) in self._whole
            if not is_known and not self.was_apart(author, since_ms) and not self.was_apart(name, since_ms):
                self.passed_over.append((at_ms, name, sds_id))

    def hoped_since_ms(self, name: str) -> int:
        """Return when a store last came to a participant, or was asked by it for a page of its time away; 0 if never.

        That it has come is enough: the first page is asked for once a silent node was waited for in vain.
        """
        _, asked_ms = self._reading_ms.get(name, (0, 0))
        return max(asked_ms, self._store_came_ms.get(name, 0))

    def miskept(self, at_ms: int, name: str, fault: str) -> None:
        """Record a fault of a store."""
        self.miskept_by.append((at_ms, name, fault))

    def handed_over(self, at_ms: int, name: str, message: RoutedMessage) -> None:
        """Record a message that a participant hands to its node, and check its timestamp against the clock."""
        self.offered[name, self._lives[name], at_ms // _BY_MINUTE_MS] += 1
        self._handed_over.add(message.message_hash)
        # By the time that a slow node lets it out the clock may show something else.
        stamp_ms, wall_ms = (message.message.timestamp_ns or 0) // NS_PER_MS, self.wall_ms(name)
        if wall_ms is not None and abs(stamp_ms - wall_ms) > MISDATED_MS:
            self.misdated.append((at_ms, name, stamp_ms - wall_ms))
        if name in self.presences:
            if self.proofs is not None:
                self.misproven += [(at_ms, name, fault) for fault in self.proofs.faults(name, message)]
            self._look_at(at_ms, name, message)
        self._trace.update(f"{at_ms} {name} hands over {message.message_hash.hex()}\n".encode())

    def others_signed(self, name: str, proof: SignalProof) -> None:
        """Record what another program signs with a participant's membership."""
        if self.proofs is not None:
            self.misproven += [(None, name, fault) for fault in self.proofs.signed(name, proof)]

    def refused(self, at_ms: int, name: str, message: RoutedMessage, answer_ms: int) -> None:
        """Record that a node refused a message."""
        self.rules.refused(at_ms + answer_ms, name, message.message_hash)
        try:
            sds_id = self._codec.decode(self.opened(message.message.payload)).message_id
        except FairwayError:
            return  # as in `_look_at`
        if (made := self._segments.get(sds_id)) is not None:
            made[0].turned_down.add(sds_id)

    def left_alone(self, name: str, before_ms: int) -> list[str]:
        """Return the open sends of which a participant handed nothing over since some time, though it could."""
        if max(self._began_ms.get(name, 0), self.troubled_ms.get(name, 0)) >= before_ms:
            return []
        return [request_id for (who, request_id), at_ms in self._open.items() if who == name and at_ms < before_ms]

    def asks_nobody(self, name: str, before_ms: int, *, again: bool = False) -> str | None:
        """Return a message that a participant has lacked since some time, if it made no repair request since then.

        Who hears another participant ask for something that it lacks puts its own requests off (SDS-R). To ask
        ``again`` is up to him for what he asked for before, and nobody else since.
        """
        silent_ms = max(self._began_ms.get(name, 0), self.troubled_ms.get(name, 0), self._asked_ms.get(name, 0))
        if silent_ms >= before_ms:
            return None
        lacking = (sds_id for sds_id, since_ms in self._missing[name].items() if since_ms < before_ms)
        return next((sds_id for sds_id in lacking if not again or sds_id in self._asked_itself[name]), None)

    def _look_at(self, at_ms: int, name: str, message: RoutedMessage) -> None:
        try:
            plain = self.opened(message.message.payload)
            opened = self._codec.decode(plain)
        except FairwayError:
            # Said once it is published.
            return
        if name not in self._first_words:
            # What an application says leaves when that says it.
            self._first_words[name] = -1 if opened.content else at_ms
            if list(self._first_words.values()).count(at_ms) >= _AT_ONCE and len(self.presences) <= _FEW:
                self.misformed.append((at_ms, name, "it leaves in the millisecond in which others first speak, too"))
        made = self._segments.get(opened.message_id)
        if made is not None and (name, made[0].request_id) in self._open:
            self._open[name, made[0].request_id] = at_ms
        if opened.repair_request:
            self._asked_ms[name] = at_ms
            self._asked_itself[name].update(entry.message_id for entry in opened.repair_request)
        stamp_ns = message.message.timestamp_ns or 0
        for fault in self.rules.faults(at_ms, name, opened, plain, message.message_hash, stamp_ns):
            self.misformed.append((at_ms, name, fault))

    def queried(self, at_ms: int, name: str, query: StoreQuery, cursor: bytes | None) -> None:
        """Count a page that a participant asks of the store."""
        self.queries[name] += 1
        self.rules.queried(at_ms, name)
        self.sought.update((name, message_hash) for message_hash in query.message_hashes)
        if query.end_ns is not None and not query.newest_first:
            self._asked_up_to_ms[name] = query.end_ns // NS_PER_MS
            since_ms, last_ms = self._reading_ms.get(name, (at_ms, at_ms))
            self._reading_ms[name] = since_ms if at_ms - last_ms <= _READS_ON_MS else at_ms, at_ms
        page = (name, at_ms // _SAME_PAGE_MS, query, cursor)
        self._asked[page] += 1
        most_often = self.most_often_by_hash if query.message_hashes else SAME_PAGE
        if self._asked[page] == most_often + 1:
            self.reread.append((at_ms, name, most_often))
        last_ms, *last = self._last_page.get(name, (0, None))
        self._last_page[name] = at_ms, query, cursor
        is_told = Limit.STORE_QUERIES in self.limits_told[name]
        if query.message_hashes and last == [query, cursor] and at_ms - last_ms < _TWICE_AT_ONCE_MS and not is_told:
            self.asked_twice.append((at_ms, name))
        recent = self._queried.setdefault(name, deque())
        recent.append(at_ms)
        while recent[0] <= at_ms - _MINUTE_MS + self.hop_ms:
            recent.popleft()
        most = self.max_queries_per_minute
        # A clock that was set counts other minutes.
        if most is not None and len(recent) > most and self.wall_ms(name) is not None:
            self.overasked.append((at_ms, name, len(recent)))

    def told(self, at_ms: int, name: str, event: Event) -> None:
        """Record an event that an application received."""
        self.events[type(event).__name__] += 1
        self._trace.update(f"{at_ms} {name} is told {event!r}\n".encode())
        match event:
            case NodeStatusChanged(store=True):
                self._store_came_ms[name] = at_ms
            case MessageSending(request_id=request_id, chunk_info=chunk) if not chunk.is_parity:
                if request_id in self._by_request:
                    self._by_request[request_id].data_count = chunk.total_chunks
            case MessageSent(request_id=request_id, message_hash=message_hash, chunk_info=chunk):
                made = self._segments.get(self._carried.get(message_hash, ""))
                sent = self._by_request.get(request_id)
                if message_hash not in self._taken:
                    text = "a segment is told as sent that the network never took"
                    self.false_words.append((at_ms, name, request_id, text))
                if sent is not None:
                    sent.times_sent[chunk.is_parity, chunk.chunk_index] += 1
                if sent is not None and not chunk.is_parity:
                    sent.data_sent.add(chunk.chunk_index)
                    sent.data_count = chunk.total_chunks
                if made is not None and (made[0] is not sent or made[1] is not chunk.is_parity):
                    text = "a segment is told as sent under the hash of another one"
                    self.false_words.append((at_ms, name, request_id, text))
            case RequestSent(request_id=request_id):
                sent = self._by_request[request_id]
                if self._lives[name] == sent.life and len(sent.data_sent) < sent.data_count:
                    text = f"told as sent with {len(sent.data_sent)} of {sent.data_count} segments"
                    self.false_words.append((at_ms, name, request_id, text))
            case IrretrievableMessage(message_id=message_id, reason=reason, sender_id=sender, sds_ids=sds_ids):
                if reason in EXPIRED:
                    self._rest_expired(at_ms, name, event)
                # A set may begin with a segment that was forged: what is lost with it is what the others are of.
                sent = next((made for made in map(self.message_of, (message_id, *sds_ids)) if made is not None), None)
                if sent is not None and reason in EXPIRED:
                    since_ms = self._grown_ms.get((name, sent.number), at_ms)
                    if at_ms - since_ms >= self.segments_expire_ms - _SOON_MS:
                        self.expired.add((name, sent.number))
                self.losses.append(
                    Loss(
                        at_ms=at_ms,
                        participant=name,
                        reason=reason,
                        what=message_id,
                        sender=sender,
                        number=None if sent is None else sent.number,
                        place=len(self.presences[name].order),
                        is_rebuilt=sent is not None and (name in sent.deliveries or self._has_whole(name, sent)),
                        is_with_others=any(
                            self.can_give(other, message_id)
                            for other, presence in self.presences.items()
                            if other != name and presence.left_ms is None
                        ),
                    )
                )
            case MessageAcknowledged(request_id=request_id, acknowledged_by=names):
                sent = self._by_request[request_id]
                if sent.first_acknowledged_ms is None:
                    sent.first_acknowledged_ms = at_ms
                self._claim_segment(at_ms, sent, names)
            case MessageDelivered(request_id=request_id, delivered_to=names):
                sent = self._by_request[request_id]
                sent.ends.append((at_ms, event))
                sent.ended_in = self._lives[name]
                for participant in names:
                    if self._is_stranger(at_ms, name, request_id, participant):
                        continue
                    true = participant in sent.deliveries or self._has_whole(participant, sent)
                    self.claims.append(
                        DeliveryClaim(at_ms=at_ms, number=sent.number, participant=participant, whole=True, true=true)
                    )
            case DeliveryError(request_id=request_id):
                sent = self._by_request[request_id]
                sent.ends.append((at_ms, event))
                sent.ended_in = self._lives[name]
                sent.in_vain = self._should_have_heard(at_ms, sent)
                if self.tries_are_counted and self._lives[name] == sent.life:
                    sent.too_soon = max(sent.times_sent.values(), default=0)
            case HandlerFailed(event_name=what, error=error) if what != EVENT_NAMES[MessageReceived][0]:
                # Applications raise on messages only: here a watcher did, and the rest of it was left undone.
                self.failures.append((at_ms, name, RuntimeError(f"whoever watches raised on {what}: {error}")))
            case MessageSetAside(number=number, message_id=message_id, attempts=attempts):
                self._set_aside.add((name, message_id))
                if number in self._listed_first.get(name, ()):
                    # Its application may have taken it back by now.
                    self._listed_first[name].discard(number)
                else:
                    self._aside.setdefault(name, {})[number] = None
                if self.max_attempts is not None and attempts < self.max_attempts:
                    text = f"a message is set aside after {attempts} attempts of {self.max_attempts}"
                    self.false_words.append((at_ms, name, None, text))
            case StatusChanged(status=status):
                if self.status_told.get(name) is status:
                    self.false_words.append((at_ms, name, None, f"told twice in a row that it is {status.value}"))
                self.status_told[name] = status
            case LimitReached(limit=Limit.SET_ASIDE):
                aside = self._aside.get(name, {})
                aside.pop(next(iter(aside), None), None)
            case LimitReached(limit=limit):
                self.limits_told[name].add(limit)
            case MessageSendError(request_id=request_id, reason=reason) if request_id in self._by_request:
                self._by_request[request_id].refused = True
                if reason is not SendErrorReason.ENCRYPTION_FAILED:
                    text = f"told as something that can never be sent ({reason.value}), which no node said"
                    self.false_words.append((at_ms, name, request_id, text))

    def received(self, at_ms: int, name: str, message: MessageReceived) -> None:
        """Record a message that an application received."""
        self.events[type(message).__name__] += 1
        # A payload is named by its id, which is its hash.
        self._trace.update(f"{at_ms} {name} is handed {replace(message, payload=b'')!r}\n".encode())
        was_raised_on = self._raised.pop((name, message.sds_ids), None) is not None
        if not message.ephemeral:
            self._see_what_is_overtaken(at_ms, name, message)
        if not self.forged.isdisjoint(message.sds_ids):
            if not self.forged.issuperset(message.sds_ids):
                # A forged part among true ones is no message that anybody sent.
                self.unexplained.append((at_ms, name, message.sender_id, message.message_id))
            return
        if hashlib.sha256(message.payload).hexdigest() != message.message_id:
            self.unexplained.append((at_ms, name, message.sender_id, message.message_id))
            return
        if message.ephemeral or not self.ephemeral_ids.isdisjoint(message.sds_ids):
            self.ephemeral_heard.add((name, message.message_id))
            self.ephemeral_deliveries[f"{name}/{self._lives[name]}", message.sender_id, message.sds_ids[0]] += 1
            return
        key, life = (name, message.sds_ids), self._lives[name]
        if was_raised_on:
            # Its application has not finished with it, although a handler that a restart overtook said so.
            self._finished.pop(key, None)
            self._finished_last.pop(key, None)
        handed, self._handed[key] = self._handed.get(key), (life, message.message_id)
        sent = self._meant(name, message, again=handed is not None)
        if sent is None:
            self.unexplained.append((at_ms, name, message.sender_id, message.message_id))
            return
        if handed is not None and (message.redelivered or was_raised_on):
            finished_ms = self._finished.get(key)
            last_ms, in_life = self._finished_last.get(key, (at_ms, 0))
            if last_ms < self._stopped.get((name, in_life), 0):
                text = f"a message ({message.sds_ids[0][:12]}) with which it had finished before it stopped comes again"
                self.false_words.append((at_ms, name, None, text))
            long_ago_ms = at_ms - FINISHED_FOR_GOOD_MS
            may_be_unknown = key in self._unsure and self._began_ms[name] >= long_ago_ms
            if finished_ms is not None and finished_ms < long_ago_ms and not may_be_unknown:
                self.repeated.append((at_ms, name, sent.number))
            return
        if message.dependencies_met:
            self._see_what_is_met(at_ms, name, message, sent)
        elif not any(loss.participant == name for loss in self.losses):
            self.unmet.append((at_ms, name, sent.number))
        times = sent.deliveries.setdefault(name, [])
        times.append(at_ms)
        if len(times) == 1:
            presence = self.presences[name]
            presence.known |= 1 << sent.number
            presence.order.append(sent.number)

    def _see_what_is_met(self, at_ms: int, name: str, message: MessageReceived, sent: SimulatedSend) -> None:
        """Write down what a message cites that was not delivered before, although it is said to lack nothing.

        Of a long message its sender may cite segments before it has the message. With delivery on arrival its
        application may even have read the message, while the other segments wait for what they cite, and so are not
        cited: its receivers can tell that it comes before only if enough of its segments do. What was told as lost may
        lack.
        """
        cited = (self.message_of(cited) for sds_id in message.sds_ids for cited in self.rules.cited_by(sds_id))
        lacking = {
            other.number
            for other in cited
            if other is not None
            and sent.known >> other.number & 1
            and other.sender != name
            and name not in other.deliveries
        }
        if lacking and self.is_on_arrival:
            past = self._past_of(message.sds_ids)
            lacking = {number for number in lacking if self._suffices(self.sent[number], past.__contains__)}
        if lacking:
            told = {loss.number for loss in self.losses if loss.participant == name}
            told |= {number for who, number in self.expired if who == name}
            self.lacking += [(at_ms, name, sent.number, number) for number in sorted(lacking - told)]

    def _past_of(self, sds_ids: Iterable[str]) -> set[str]:
        """Return these messages, what they cite, what that cites, and so on."""
        past: set[str] = set()
        line = list(sds_ids)
        while line:
            sds_id = line.pop()
            if sds_id not in past:
                past.add(sds_id)
                line += self._cites.get(sds_id, ())
        return past

    def raised(self, at_ms: int, name: str, message: MessageReceived) -> None:
        """Record that a handler raised on a message."""
        if not message.ephemeral:
            self._raised[name, message.sds_ids] = at_ms, self._lives[name], message.message_id

    def stopping(self, at_ms: int, name: str) -> None:
        """Record that a program asks its channel to stop."""
        self._stopping_ms[name] = at_ms

    def stopped(self, at_ms: int, name: str) -> None:
        """Record that it did: all that was said to it before is on the disk now."""
        self._stopped[name, self._lives[name]] = self._stopping_ms.get(name, at_ms)

    def looked_at(self, at_ms: int, name: str, message: MessageReceived) -> None:
        """Record that a handler that never raises handled a message: others may raise, and only they try again."""
        key, life = (name, message.sds_ids), self._lives[name]
        if message.ephemeral or not self.forged.isdisjoint(message.sds_ids):
            return
        if self._looked_at.get(key) == life:
            text = f"a message ({message.sds_ids[0][:12]}) comes again to a handler that has handled it"
            self.false_words.append((at_ms, name, None, text))
        self._looked_at[key] = life

    def finished(self, at_ms: int, name: str, message: MessageReceived) -> None:
        """Record that an application has finished a message."""
        self._finished.setdefault((name, message.sds_ids), at_ms)
        self._finished_last[name, message.sds_ids] = at_ms, self._lives[name]
        self._once_finished.add((name, message.sds_ids))
        self._unsure.discard((name, message.sds_ids))

    def dropped(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield who was killed amid which message, by SDS ids, that did not come again in a later life."""
        for (name, sds_ids), (life, message_id) in self._handed.items():
            is_finished = (name, sds_ids) in self._once_finished or (name, message_id) in self._set_aside
            if life < self._lives[name] and not is_finished:
                yield name, sds_ids

    def troubled(self, at_ms: int, name: str) -> None:
        """Record that a participant cannot be expected to send or to receive."""
        self.troubled_ms[name] = at_ms

    def _should_have_heard(self, at_ms: int, sent: SimulatedSend) -> tuple[str, ...]:
        """Return whose acknowledgement the sender should have had, if those are all that it asked for."""
        since_ms = at_ms - self.heard_of_ms

        def is_sound(name: str) -> bool:
            return self.presences[name].left_ms is None and self.troubled_ms.get(name, 0) < since_ms

        # A participant forgets what its history has no room for, and cannot tell a copy of it from a message that it
        # never had: it acknowledges neither. So it must have remembered for long while the sender waited, who does not
        # wait between a delivery and the moment when more is asked for.
        waits_since_ms = max((asked_ms for asked_ms, _ in sent.asked_more), default=sent.at_ms)

        def could_tell(name: str, came_ms: int) -> bool:
            forgot_ms = min(
                (self._forgotten_ms.get((name, sds_id), math.inf) for sds_id in sent.sds_ids), default=math.inf
            )
            return max(came_ms, waits_since_ms) < forgot_ms - self.heard_of_ms

        had = {
            name
            for name, times in sent.deliveries.items()
            if times[0] < since_ms and is_sound(name) and could_tell(name, times[0])
        }
        wanted = sent.asked.union(*(names for _, names in sent.asked_more))
        if not is_sound(sent.sender) or len(had) < sent.count or not wanted <= had:
            return ()
        return tuple(sorted(had))

    def _purpose_of(self, at_ms: int, name: str, message: RoutedMessage) -> tuple[Purpose, int, int, int]:
        """Return why something was transmitted, by what it is, and the bytes of its content, citations and filter."""
        try:
            opened = self._codec.decode(self.opened(message.message.payload))
        except FairwayError:
            if name in self.presences:
                self.false_words.append((at_ms, name, None, "what left cannot be opened with the key of the channel"))
            return (Purpose.EPHEMERAL if message.message.ephemeral else Purpose.CONTENT), 0, 0, 0
        content, bloom = len(opened.content or b""), len(opened.bloom_filter or b"")
        history = sum(map(_size_of, (*opened.causal_history, *opened.repair_request)))
        if name in self.presences:
            for fault in self._misforms(name, opened, message):
                self.misformed.append((at_ms, name, fault))
        if message.message.ephemeral:
            self.ephemeral_ids.add(opened.message_id)
            return Purpose.EPHEMERAL, content, history, bloom
        self.requested(at_ms, opened)
        if opened.repair_request and name in self.presences:
            requested = frozenset(entry.message_id for entry in opened.repair_request)
            self._requests[message.message.payload] = requested
        if not content:
            return Purpose.SYNC, content, history, bloom
        self._carried[message.message_hash] = opened.message_id
        self._contents[message.message.payload] = opened.message_id
        stamp_ms = (message.message.timestamp_ns or 0) // NS_PER_MS
        is_prompt = 0 <= at_ms - stamp_ms <= _STAMPED_MS and self.is_stored()
        if name in self.presences and is_prompt and not self.was_apart(name, at_ms):
            self._readable.append((at_ms, opened.sender_id, opened.message_id))
        if (made := self._segments.get(opened.message_id)) is not None:
            # Participants that receive it have it, even if its sender never learns that the network took it.
            sent, is_parity, _ = made
            sent.sds_ids[opened.message_id] = is_parity
        author = self._authors.get(opened.message_id)
        if author is None:
            self._authors[opened.message_id] = name
            self._cites[opened.message_id] = tuple(entry.message_id for entry in opened.causal_history)
            if made is None:
                there = (who for who, presence in self.presences.items() if presence.left_ms is None)
                self.strays[opened.message_id] = frozenset(there)
            if name in self.presences:
                self._first[message.message_hash] = opened.message_id
            self._compare_lamports(at_ms, name, opened)
            return Purpose.CONTENT, content, history, bloom
        is_answer = author != name or opened.message_id in self._asked_for
        # What was asked for a moment ago may still be under way to the author, and is answered later.
        if at_ms - self._asked_for.get(opened.message_id, at_ms) >= _HEARD_MS:
            del self._asked_for[opened.message_id]
        return (Purpose.REPAIR if is_answer else Purpose.RETRY), content, history, bloom

    def requested(self, at_ms: int, message: SdsMessage) -> None:
        """Record what a message asks for, which may have been said to some only: they answer it to all."""
        self._asked_for.update((entry.message_id, at_ms) for entry in message.repair_request)

    def _misforms(self, name: str, opened: SdsMessage, message: RoutedMessage) -> Iterator[str]:
        """Yield what is wrong with a message by itself (SDS, "Message" and "Ephemeral Messages"; SDS-R)."""
        # The Logos wire has a timestamp of 0 where that of the specification has none.
        is_ephemeral = bool(opened.content) and not opened.lamport_timestamp
        if message.message.ephemeral != is_ephemeral:
            yield f"its carrier says that it is {'' if message.message.ephemeral else 'not '}ephemeral"
        if is_ephemeral:
            self._ephemeral_published[opened.message_id] += 1
            if self._ephemeral_published[opened.message_id] > 1:
                yield "an ephemeral message is published again"
            if opened.causal_history or opened.bloom_filter or opened.repair_request:
                yield "an ephemeral message cites others, or says what its sender has"
        cited = [entry.message_id for entry in opened.causal_history]
        said = [*cited, *([opened.message_id] if opened.content and not is_ephemeral else [])]
        if any((name, sds_id) not in self._durable for sds_id in said):
            yield "a crash now would forget what it rests on"
        if len(set(cited)) < len(cited):
            yield "one message is cited twice by another"
        if opened.message_id in cited:
            yield "a message cites itself"
        if not self.ephemeral_ids.isdisjoint(cited):
            yield "an ephemeral message is cited"
        # What was made before a crash may cite what that kept from the node; and a repair is its author's word.
        is_old = opened.message_id in self._segments and self._segments[opened.message_id][2] < self._lives[name]
        is_own = opened.sender_id == name
        for entry in opened.causal_history if self.hints_are_checked and is_own and not is_old else ():
            hint = entry.retrieval_hint
            if hint is None or hint in self._handed_over or entry.message_id in self.forged:
                continue
            cited_message = self.message_of(entry.message_id)
            # What was made before a crash cites what was to leave before it, and leaves only after it under another.
            if cited_message is None or cited_message.sender != name or cited_message.life == self._lives[name]:
                yield "a retrieval hint leads to nothing that anybody ever handed to the network"

    def _compare_lamports(self, at_ms: int, name: str, opened: SdsMessage) -> None:
        """See that a message is ordered after all that it cites (SDS, "Send Message")."""
        # What a forger said somebody who believed it may give to others.
        if name not in self.presences or opened.message_id in self.forged:
            return
        lamport = self._lamports[opened.message_id] = opened.lamport_timestamp or 0
        # Each forged one leads the clocks of all by so much: they cannot know that nobody talks as fast as that.
        forged_ms = self.lamport_lead_ms * len(self.forged)
        if lamport * self.lamport_unit_ms > at_ms + DAY_MS // 2 + forged_ms:
            self.ahead.append((at_ms, name, opened.message_id))
        if any(self._lamports.get(entry.message_id, -1) >= lamport for entry in opened.causal_history):
            self.unordered.append((at_ms, name, opened.message_id))

    def _meant(self, name: str, message: MessageReceived, *, again: bool) -> SimulatedSend | None:
        """Return which send a delivery is of: the one that its segments belong to.

        The same payload sent twice by one participant is two messages that cannot be told apart, and parity may
        rebuild one with segments of the other; then the one that is still lacking is meant.
        """
        named = [sent for sds_id in message.sds_ids if (sent := self.message_of(sds_id)) is not None]
        alike = self._alike.get((message.sender_id, message.message_id), [])
        # What was refused may never have left, and is meant only if nothing else can be.
        possible = (*named, *sorted(alike, key=lambda sent: sent.refused))
        fitting = [sent for sent in possible if sent.payload_id == message.message_id]
        lacking = (sent for sent in fitting if name not in sent.deliveries)
        first = fitting[0] if fitting else None
        return first if again else next(lacking, first)

    def _rest_expired(self, at_ms: int, name: str, loss: IrretrievableMessage) -> None:
        """Note who rightly gave up what left of a send that its cipher refused: no send is known of those segments."""
        sent = self._by_hash.get((loss.sender_id, loss.payload_hash))
        came_ms = [self._strays_came_ms[key] for i in loss.sds_ids if (key := (name, i)) in self._strays_came_ms]
        is_due = bool(came_ms) and at_ms - max(came_ms) >= self.segments_expire_ms - _SOON_MS
        if sent is not None and sent.refused and is_due:
            self.expired.add((name, sent.number))

    def _has_whole(self, name: str, sent: SimulatedSend) -> bool:
        """Return whether a participant received enough of a message, delivered or still waiting for its place."""
        return self._suffices(sent, partial(self._holds, name))

    @staticmethod
    def _suffices(sent: SimulatedSend, is_had: Callable[[str], bool]) -> bool:
        """Return whether the segments of a message that somebody has suffice to put it together."""
        data = max(sent.data_count, sum(not is_parity for is_parity in sent.sds_ids.values()))
        return sum(map(is_had, sent.sds_ids)) >= data

    def _is_stranger(self, at_ms: int, name: str, request_id: str, participant: str) -> bool:
        """Return whether somebody is no participant; if he does not forge, he is an invention."""
        if participant in self.presences:
            return False
        if not participant.startswith(FORGER):
            text = f"it is said to have come to {participant!r}, who does not exist"
            self.false_words.append((at_ms, name, request_id, text))
        return True

    def _claim_segment(self, at_ms: int, sent: SimulatedSend, names: tuple[str, ...]) -> None:
        """Note who is newly said to have a segment; the event does not say which, so that any of them makes it true."""
        for name in names:
            if name not in sent.claimed and not self._is_stranger(at_ms, sent.sender, sent.request_id, name):
                sent.claimed.add(name)
                true = name in sent.deliveries or any(self._holds(name, sds_id) for sds_id in sent.sds_ids)
                self.claims.append(
                    DeliveryClaim(at_ms=at_ms, number=sent.number, participant=name, whole=False, true=true)
                )


def _size_of(entry: HistoryEntry) -> int:
    """Return the encoded size of a citation or repair request in a message, in bytes."""
    parts = (entry.message_id.encode(), entry.retrieval_hint or b"", (entry.sender_id or "").encode())
    return _field_bytes(sum(_field_bytes(len(part)) for part in parts if part))


def _field_bytes(size_bytes: int) -> int:
    return 1 + max(1, -(-size_bytes.bit_length() // 7)) + size_bytes
