"""What the specifications ask of everything that an honest participant hands to its node, seen from outside.

`WireRules` reads each message as a peer would, keeps what it needs to know of those before, and says what is wrong:
nothing of it comes from the channel that made the message, but what that gave to its store.

================================ ===================================================================================
what                             where that is asked
================================ ===================================================================================
one content for each id          SDS, "Periodic Outgoing Buffer Sweep": what is sent again is the same message
the filter holds what is cited   SDS, "Send Message": the bloom filter is of what the sender has received
a filter forgets                 RELIABLE-CHANNEL-API, "bloomFilterSize": of so many elements that it tells anything
first come, first served         RELIABLE-CHANNEL-API, "Rate Limit Management": what waits is a queue
a hint leads to what is cited    SDS, "Message": the retrieval hint is for this message, and is known to be of use
segments make the message        SEGMENTATION, "Sending": their hash is that of the payload, parity is that of the data
what leaves is paid for          LIP-173, "Rate Limit Manager": a charge is durable before what it pays for leaves
================================ ===================================================================================
"""

from __future__ import annotations

import hashlib
import math
from bisect import insort
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from fairway.errors import FairwayError
from fairway.options import BloomPolicy, Profile, SdsConfig
from fairway.protocol.effects import Change
from fairway.protocol.journal import Row
from fairway.protocol.outgoing.dispatching import RATE_LIMIT
from fairway.protocol.outgoing.requests import SEGMENTS
from fairway.protocol.ratelimit.quota import QuotaSource
from fairway.protocol.sds.acknowledged_by import is_marked
from fairway.protocol.sds.channel import HISTORY
from fairway.protocol.sds.dependencies import PARKED
from fairway.protocol.segmentation import leopard
from fairway.units import NS_PER_MS
from fairway.wire.bloom import BloomParameters, holds
from fairway.wire.hashing import keccak256
from fairway.wire.sds import SdsMessage
from fairway.wire.segment import Segment

RATE_EPOCH_MS: Final = 600_000
"""Length of an epoch of the rate limit, as participants count it."""
_QUOTA_KNOWN_MS: Final = 60_000
"""Within this time a program knows what others used of its membership: it asks every ten seconds, and may get no
answer."""
_UNPROVEN: Final = 1
_RECENT: Final = 100
"""A filter that is large enough holds the messages of so many rows that were written last."""
_KEPT_SHARE: Final = 0.8
"""A full filter keeps so much of its capacity, which is the newest."""
_ANSWER_MS: Final = 1_000
"""Within this time a program acts on the answer of its node."""
_READ_MS: Final = 1_000
"""Within this time a program has read what it hears, where no cipher takes its time."""
_ASKED_STORE_MS: Final = 5_000
"""Within this time a store may have brought what is heard."""
_CITED_AGAIN: Final = 20
"""Messages that came again that one message cites; the next one cites others."""
_IN_A_ROW: Final = 12
"""So much content does not leave in a row while something waits to be repeated."""
_COMMITS: Final = 2
"""What leaves was decided before the answer if it waited for the commit that was under way, and for its own."""
_ANSWERS_AT_FIRST: Final = 16
_ANSWERS_PER_MINUTE: Final = 2
"""Answers for which there is an allowance, beside those that others' messages pay for: a few, as small messages."""
_SYNC_AT_FIRST: Final = 24
"""Sync messages that may follow each other closely, to ask for what is missing."""
_SYNC_PER_INTERVAL: Final = 3
"""One for what is missing, one that says that its sender is there, and one for somebody who is behind."""
_SYNC_EACH: Final = 4
"""How often the author of a message speaks so that all notice it."""
_SMALL_BYTES: Final = 512
_CITATION_BYTES: Final = 128
_FORGED_BYTES: Final = 8_192
"""A message that nobody made who is honest, a segment with many citations, has no more."""
_DEVIATIONS: Final = 5
_MAX_SEGMENTS: Final = 65_536
_MAX_PAYLOADS: Final = 100
"""Payloads of which segments are looked at together; what is sent together is not far apart."""


@dataclass(slots=True)
class _Pieces:
    """The segments of one payload of one sender."""

    data_count: int = 0
    parity_count: int = 0
    data: dict[int, bytes] = field(default_factory=dict)
    parity: dict[int, bytes] = field(default_factory=dict)
    is_whole: bool = False
    """Whether all data was seen; then parity is compared at once, and only it is kept."""
    expected: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class _Received:
    """What a participant received, as far as its bloom filter holds it for sure."""

    heard: set[str] = field(default_factory=set)
    """SDS ids of what the network brought."""
    known: set[str] = field(default_factory=set)
    """SDS ids of all that came, or was rebuilt from other segments."""
    since: dict[str, int] = field(default_factory=dict)
    """How many rows had been written when a message entered the filter, by SDS id; a restart fills the filter anew."""
    waiting: set[str] = field(default_factory=set)
    """SDS ids of what waits for other messages."""
    log: dict[str, int] = field(default_factory=dict)
    """Lamport timestamps of what entered the log, by SDS id."""
    order: list[tuple[int, str]] = field(default_factory=list)
    """The log in its order: Lamport timestamps and SDS ids."""
    cited: set[str] = field(default_factory=set)
    """SDS ids of what stood in the log when a message entered it that cites them, in the present life."""
    entered_ms: int = 0
    """When something last entered the log, or began to wait."""
    rows: int = 0
    """Rows written. What enters the filter writes one at least, also if a crash had made the participant forget it."""

    def wrote(self, sds_id: str) -> None:
        """Note that a row of a message was written, the first one when it came."""
        self.rows += 1
        if sds_id not in self.known:
            self.known.add(sds_id)
            self.since[sds_id] = self.rows

    def restored(self, log: Mapping[str, int], waiting: Collection[str]) -> None:
        """Note what a life finds in its store: its log, and what waits.

        The filter is made anew: of the log in its order, whenever each message came, then of what waits. A message has
        as much behind it in the filter as though that had come after it.
        """
        self.log, self.waiting = dict(log), set(waiting)
        self.order = sorted((lamport, sds_id) for sds_id, lamport in log.items())
        behind = {sds_id: len(self.waiting) + place for place, sds_id in enumerate(self.newest(_RECENT))}
        behind |= dict.fromkeys(self.waiting, len(self.waiting))
        self.cited.clear()
        self.since = {sds_id: self.rows - number for sds_id, number in behind.items()}

    def enter(self, sds_id: str, lamport: int) -> None:
        """Put a message into the log."""
        before = self.log.get(sds_id)
        if before == lamport:
            return
        if before is not None:
            self.order.remove((before, sds_id))
        self.log[sds_id] = lamport
        insort(self.order, (lamport, sds_id))

    def newest(self, count: int) -> Iterator[str]:
        """Yield the SDS ids of the newest in the log that wait for nothing, the newest first."""
        return islice((sds_id for _, sds_id in reversed(self.order) if sds_id not in self.waiting), count)

    def is_held(self, sds_id: str, capacity: int) -> bool:
        """Return whether a filter of some capacity holds a message of the log for sure."""
        held = min(_RECENT, int(_KEPT_SHARE * capacity))
        return sds_id in self.log and sds_id in self.since and self.rows - self.since[sds_id] < held


@dataclass(slots=True)
class _Copies:
    """Messages that a participant had, and that came again from their authors in its present life."""

    heard: set[bytes] = field(default_factory=set)
    """Hashes of the carriers."""
    uncited: dict[str, int] = field(default_factory=dict)
    """When they came, by SDS id, of those not cited since; or when as many others were cited as one message may."""
    again: set[str] = field(default_factory=set)
    """SDS ids of all that came again, whether it must be cited or not, and of what was cited beside the newest: that is
    to be cited anew if the network did not get it."""
    owing: set[str] = field(default_factory=set)
    """SDS ids of all that came otherwise than marked, and that it has not cited since."""
    marked: dict[str, int] = field(default_factory=dict)
    """When a copy came whose author has its acknowledgement, by SDS id, of those that nothing else makes it cite."""
    plain: dict[str, int] = field(default_factory=dict)
    """When messages entered its log, by SDS id, that vouch for nothing, and that it has not cited since."""
    asked: dict[str, int] = field(default_factory=dict)
    """When somebody was last heard to ask for each, by SDS id."""
    unasked: dict[str, int] = field(default_factory=dict)
    """When each was heard first, by SDS id, of what left since somebody was heard to ask for it."""


@dataclass(slots=True)
class _Answers:
    """What a participant sent for others in its present life."""

    earned: set[str] = field(default_factory=set)
    """SDS ids of what it kept, in earlier lives, too: it may answer with as many bytes."""
    since_ms: int | None = None
    """When it first kept something, or answered, in this life."""
    given: set[str] = field(default_factory=set)
    """SDS ids of what it answered with."""
    again_bytes: int = 0
    """What it answered with more than once, but for the first time of each."""


@dataclass(slots=True)
class _Talk:
    """How often a participant spoke in its present life without content, and what gave it a reason."""

    since_ms: int
    sync: set[str] = field(default_factory=set)
    """SDS ids: what the node refused, or took without an answer that came, is handed over again."""
    said: int = 0
    heard: int = 0
    """What came with content, each copy once."""
    stamped_ms: int | None = None
    """What its clock showed last, by the stamps of its messages."""
    passed_ms: int = 0
    """How much time passed by that clock: also what it was set ahead by, for that counts as much to a participant."""

    def stamped(self, stamp_ms: int) -> None:
        """Note what the clock showed when a message was stamped."""
        if self.stamped_ms is not None:
            self.passed_ms += max(0, stamp_ms - self.stamped_ms)
        self.stamped_ms = stamp_ms


@dataclass(slots=True)
class _Queue:
    """Content that a participant handed over in its present life, and of which the network had taken nothing before."""

    handed: dict[str, int] = field(default_factory=dict)
    """Lamport timestamps by SDS id."""
    newest: int = 0
    """The greatest of them."""
    refused: dict[str, int] = field(default_factory=dict)
    """What was refused once and not handed over again, with when its sender knew it."""
    tries: Counter[str] = field(default_factory=Counter)
    """How often each was handed over."""
    to_repeat: dict[str, int] = field(default_factory=dict)
    """Since when what was handed over before is to be handed over again, and waits, by SDS id."""
    in_a_row: int = 0
    """How much was handed over for the first time, and nothing else, since something waited to be repeated."""


class WireRules:
    """Looks at what honest participants hand to their nodes."""

    def __init__(self, profile: Profile, sds: SdsConfig) -> None:
        self.codec = profile.codec
        """What reads messages."""
        self._profile = profile
        self._bloom_policy = sds.bloom_policy
        self._parameters = BloomParameters.of(sds.bloom_capacity, sds.bloom_error_rate)
        self.repeats_in_turn: Callable[[str], bool] = lambda _: False
        """Whether more of a participant's is to be sent again than may be at once, so that some waits for the rest."""
        self.has_filters: Callable[[str], bool] = lambda _: sds.bloom_policy is BloomPolicy.ALWAYS
        """Whether a participant, as its program runs now, gives each of its messages a bloom filter: such messages are
        longer, and answers may be as long."""
        self.order_is_checked = True
        """Whether what is sent first leaves first; where a cipher takes its time over several at once it may not."""
        self.syncs_are_prompt = True
        """Whether sync messages leave when they are made: no node refuses them, or what is before them."""
        self.copies_are_checked = True
        """Whether a message that arrives again must be cited: not where it may be turned away, or clocks are wrong."""
        self.disk_ms = 0
        """How long it takes until a write is known to be durable."""
        self.cipher_ms = 0
        """How long it may take until a message is decrypted."""
        self.answers_hang = False
        """Whether nodes may not answer: while a program waits for that, what was decided before may wait, too."""
        self.forged: set[str] = set()
        """SDS ids of messages that no honest participant made."""
        self.answered_within_ms: int | None = None
        """Within what time a message that arrives again must be cited, where nothing delays the citing message."""
        self.forged_carriers: set[bytes] = set()
        """Hashes of what was forged in somebody's name and pushed to him alone."""
        self.epochs: Counter[tuple[str, int]] = Counter()
        """What each participant handed to its node, by the epoch that it is stamped with."""
        self.answers_are_counted = True
        """Whether who is asked without end must not answer without end: where all that is handed over leaves once."""
        self.answers_wait_ms = 0
        """T_max, before which each holder of a message answers in its turn; 0 where that is not looked at."""
        self.answers_are_called_off = False
        """Whether what a participant hears it also opens at once."""
        self.is_limited = False
        """Whether a rate limit holds."""
        self.configured: int | None = None
        """How many messages all may send in an epoch; None without a limit."""
        self.membership_of: Callable[[str], int | None] = lambda _: None
        """How many a participant's membership allows; None without one."""
        self.used_by_others: Callable[[str, int, int | None], int] = lambda _name, _epoch, _before_ms: 0
        """How many of these another program used in an epoch, perhaps before some time."""
        self.approached_threshold = 1.0
        """After such a share of each limit only what is new may leave."""
        self.interval_ms = 30_000
        """The shortest interval of sync messages that anybody has."""
        self._cited_by_all = sds.causal_history_size
        self.longest_history = sds.causal_history_size
        """How many of the newest messages anybody cites in each message."""
        self.under_way = 0
        """How many messages a participant hands to its node side by side."""
        self._contents: dict[str, bytes] = {}
        """Digest of each content message, as its author first handed it over."""
        self._authors: dict[str, str] = {}
        self._carried: dict[bytes, tuple[str, bytes]] = {}
        """SDS id and digest of what each carrier holds."""
        self._left_ms: dict[bytes, int] = {}
        """When each carrier was handed over."""
        self._acknowledged: dict[bytes, bytes] = {}
        """Whose acknowledgement its author had when he handed it over, for each carrier (`is_marked`)."""
        self._received: defaultdict[str, _Received] = defaultdict(_Received)
        self._queues: defaultdict[str, _Queue] = defaultdict(_Queue)
        self._made_ms: dict[str, int] = {}
        self._refused: dict[str, dict[bytes, int]] = {}
        """Carriers that the node of each participant refused, with when that knew it."""
        self._seen_ms: dict[str, int] = {}
        """When each participant last kept something or handed it over, and so was alive."""
        self._taken: set[str] = set()
        """SDS ids of content that the network took."""
        self._tried: set[str] = set()
        """SDS ids of segments whose author has durably counted an attempt: from then on they are sent again."""
        self._ended: set[str] = set()
        """SDS ids of segments whose send has ended: they leave when somebody asks for them."""
        self._queried_ms: dict[str, int] = {}
        """When each participant last asked a store."""
        self._logged: set[tuple[str, str]] = set()
        """Whose log durably has which message."""
        self._worth: dict[str, int] = {}
        """Bytes of content, filter and citations of each content message."""
        self._answers: defaultdict[str, _Answers] = defaultdict(_Answers)
        self._talks: dict[str, _Talk] = {}
        self._copies: defaultdict[str, _Copies] = defaultdict(_Copies)
        self._cites: dict[str, tuple[str, ...]] = {}
        """What each content message cites, but for later segments."""
        self._plain: set[str] = set()
        """SDS ids of content messages that vouch for nothing: to their authors each message has to be cited."""
        self._repeated: set[bytes] = set()
        """Carriers in which authors handed over again what they had handed over before."""
        self._asked_for: dict[str, int] = {}
        """When somebody first requested the repair of a message, by SDS id: a copy of such a one is the answer."""
        self._pieces: OrderedDict[tuple[str, bytes], _Pieces] = OrderedDict()
        self._paid: dict[str, dict[int, int]] = {}
        """What is durable of each participant's charges, by epoch."""
        self._set_back: Counter[tuple[str, int]] = Counter()
        """How many charges at most an epoch has of a later one, from which a clock was set back into it."""
        self._lost: dict[tuple[str, int], int] = {}
        """How many charges of an epoch had not been handed over when a life of a participant ended."""

    def kept(self, at_ms: int, name: str, changes: Sequence[Change]) -> None:
        """Note what a participant gives to its store."""
        self._seen_ms[name] = at_ms
        for change in changes:
            if change.table == HISTORY and change.row is not None:
                self._entered(at_ms, name, change.key, change.row[0])
            elif change.table == PARKED and change.row is not None:
                self._received[name].waiting.add(change.key)
                self._received[name].wrote(change.key)
                self._earned(at_ms, name, change.key)
            elif change.table == PARKED:
                self._received[name].waiting.discard(change.key)
                self._received[name].entered_ms = at_ms
            elif change.table == SEGMENTS and change.row is not None:
                self._made_ms.setdefault(change.key, at_ms)
                self._ended.discard(change.key)
                _, _, is_parity, attempts, retry_at, *_ = change.row
                if attempts and retry_at is None and not is_parity:
                    self._queues[name].to_repeat.setdefault(change.key, at_ms)
                else:
                    self._queues[name].to_repeat.pop(change.key, None)
            elif change.table == SEGMENTS:
                self._ended.add(change.key)
                self._queues[name].refused.pop(change.key, None)
                self._queues[name].to_repeat.pop(change.key, None)

    def _entered(self, at_ms: int, name: str, sds_id: str, lamport: int) -> None:
        """Note that a message is in a participant's log."""
        received = self._received[name]
        if sds_id not in received.log:
            if sds_id in received.heard:
                # Parity gives the content of a segment back, and not what it cites.
                received.cited.update(cited for cited in self._cites.get(sds_id, ()) if cited in received.log)
            copies = self._copies[name]
            # Of what was rebuilt from other segments a participant does not know that.
            if sds_id in self._plain and self._authors[sds_id] != name and sds_id in copies.owing:
                copies.plain[sds_id] = at_ms
            received.entered_ms = at_ms
        received.enter(sds_id, lamport)
        received.wrote(sds_id)
        self._earned(at_ms, name, sds_id)

    def _earned(self, at_ms: int, name: str, sds_id: str) -> None:
        """Note that a participant keeps a message."""
        self._answers_of(at_ms, name).earned.add(sds_id)

    def _answers_of(self, at_ms: int, name: str) -> _Answers:
        answers = self._answers[name]
        if answers.since_ms is None:
            answers.since_ms = at_ms
        return answers

    def allowed(self, name: str) -> int | None:
        """Return how many messages a participant may send in an epoch; None without a limit."""
        limits = (self.configured, self.membership_of(name))
        return min((limit for limit in limits if limit is not None), default=None)

    def left(self, name: str, epoch: int) -> int | None:
        """Return how many more messages a participant may send in an epoch; None without a limit."""
        membership = self.membership_of(name)
        if membership is not None:
            membership -= self.used_by_others(name, epoch, None)
        limits = (self.configured, membership)
        return min((limit - self.epochs[name, epoch] for limit in limits if limit is not None), default=None)

    def overcharged(self, name: str, epoch: int) -> int:
        """Return how many more messages of an epoch a participant has durably charged than it handed over.

        Taken off is what stays charged although it did not leave: what a life charged that ended before it handed the
        message over, and what a clock that is set back into an epoch takes along of a later one.
        """
        return self._uncovered(name, epoch) - self._lost.get((name, epoch), 0)

    def _uncovered(self, name: str, epoch: int) -> int:
        paid = self._paid.get(name, {}).get(epoch, 0)
        return max(0, paid - self._set_back[name, epoch] - self.epochs[name, epoch])

    def _charged(self, name: str, charges: dict[int, int]) -> None:
        """Note what is durable of the charges of a participant."""
        before = self._paid.get(name, {})
        for epoch, count in charges.items():
            had = before.get(epoch, 0)
            latest = max((used for later, used in charges.items() if later > epoch), default=0)
            self._set_back[name, epoch] += max(0, min(count, latest) - had)
        self._paid[name] = charges

    def written(self, name: str, changes: Sequence[Change]) -> None:
        """Note what is durable of the log, the attempts and the charges of a participant."""
        for change in changes:
            if change.table == HISTORY and change.row is not None:
                self._logged.add((name, change.key))
            elif change.table == HISTORY:
                self._logged.discard((name, change.key))
            if change.table == SEGMENTS and change.row is not None and change.row[3]:
                self._tried.add(change.key)
            if change.table == RATE_LIMIT and change.row is not None:
                self._charged(name, _charges(change.row))

    def began(self, name: str) -> None:
        """Note that a new life of a participant begins."""
        self._queues.pop(name, None)
        self._copies.pop(name, None)
        self._talks.pop(name, None)
        # A life that ended first was not told of a refusal, or had no time to write it down.
        told_until_ms = self._seen_ms.get(name, 0) - _ANSWER_MS - _COMMITS * self.disk_ms
        refused = self._refused.get(name, {})
        self._refused[name] = {carrier: known_ms for carrier, known_ms in refused.items() if known_ms <= told_until_ms}

    def restored(self, name: str, changes: Sequence[Change]) -> None:
        """Note the rows with which a life of a participant begins."""
        received = self._received[name]
        log = {change.key: change.row[0] for change in changes if change.table == HISTORY and change.row is not None}
        received.restored(log, {change.key for change in changes if change.table == PARKED})
        self._answers[name] = _Answers(earned=set(log))
        self._lost |= {(name, epoch): self._uncovered(name, epoch) for epoch in self._paid.get(name, {})}

    def refused(self, at_ms: int, name: str, message_hash: bytes) -> None:
        """Note that a sender knows from a moment on that its node did not take a message."""
        self._refused.setdefault(name, {})[message_hash] = at_ms
        queue, sds_id = self._queues[name], self._carried.get(message_hash, ("", b""))[0]
        if sds_id in queue.handed and queue.tries[sds_id] == 1 and sds_id not in self._taken:
            # What is refused again and again makes way in the end.
            queue.refused[sds_id] = at_ms

    def taken(self, message_hash: bytes) -> None:
        """Note that the network took a message."""
        if message_hash in self._carried:
            self._taken.add(self._carried[message_hash][0])

    def queried(self, at_ms: int, name: str) -> None:
        """Note that a participant asks a store: that may bring what it heard just now before it has read that."""
        self._queried_ms[name] = at_ms
        copies = self._copies.get(name)
        if copies is not None:
            copies.uncited = {
                sds_id: came_ms for sds_id, came_ms in copies.uncited.items() if came_ms + self._read_within_ms < at_ms
            }

    def heard_asking(self, at_ms: int, name: str, asked_for: Collection[str]) -> None:
        """Note that the network brings a message to a participant that asks for others, by their SDS ids."""
        copies = self._copies[name]
        for sds_id in asked_for:
            copies.asked[sds_id] = at_ms
            copies.unasked.pop(sds_id, None)

    def heard(self, at_ms: int, name: str, message_hash: bytes) -> None:
        """Note what the network brings to a participant."""
        copies, (sds_id, _) = self._copies[name], self._carried.get(message_hash, ("", b""))
        if not sds_id or message_hash in copies.heard:
            return
        # What left before is no answer: a store may have brought it first, and then it is not looked at again.
        if self._left_ms[message_hash] >= copies.asked.get(sds_id, 0):
            copies.unasked.setdefault(sds_id, at_ms)
        received = self._received[name]
        was_here = sds_id in received.heard or sds_id in received.known
        received.heard.add(sds_id)
        if name in self._talks:
            self._talks[name].heard += 1
        copies.heard.add(message_hash)
        if is_marked(self._acknowledged[message_hash], name, sds_id):
            if sds_id not in copies.owing:
                copies.marked.setdefault(sds_id, at_ms)
            return
        copies.owing.add(sds_id)
        copies.marked.pop(sds_id, None)
        if was_here or message_hash in self._repeated:
            copies.again.add(sds_id)
        is_copy = message_hash in self._repeated and sds_id not in self._asked_for
        is_copy &= self._queried_ms.get(name, 0) + _ASKED_STORE_MS < at_ms
        if is_copy and (name, sds_id) in self._logged and self._authors[sds_id] != name:
            copies.uncited.setdefault(sds_id, at_ms)

    def heard_restamped(self, name: str, sds_id: str, message_hash: bytes) -> None:
        """Note that the network brings content to a participant under another hash than that of what left.

        Which copy of its author's it is, and whose acknowledgement that has, is not known: it may be cited.
        """
        copies, received = self._copies[name], self._received[name]
        if sds_id in received.heard or sds_id in received.known:
            copies.owing.add(sds_id)
            copies.again.add(sds_id)
            copies.marked.pop(sds_id, None)
        if message_hash not in copies.heard and name in self._talks:
            self._talks[name].heard += 1
        copies.heard.add(message_hash)

    def faults(
        self, at_ms: int, name: str, opened: SdsMessage, plain: bytes, message_hash: bytes, stamp_ns: int
    ) -> Iterator[str]:
        """Yield what is wrong with a message that an honest participant hands to its node."""
        self._seen_ms[name] = at_ms
        yield from self._overdraft(name, stamp_ns // (RATE_EPOCH_MS * NS_PER_MS))
        is_content = bool(opened.content and opened.lamport_timestamp)
        if opened.content and not is_content:
            return
        if opened.message_id in self.forged or opened.channel_id == "":
            return
        if opened.acknowledged_by:
            # That alone tells a copy from what was first sent.
            plain = plain.removesuffix(self.codec.with_acknowledged_by(b"", opened.acknowledged_by))
        digest = hashlib.sha256(plain).digest()
        for entry in opened.repair_request:
            self._asked_for.setdefault(entry.message_id, at_ms)
        yield from self._kept_waiting(at_ms, name, opened)
        talk = self._talks.setdefault(name, _Talk(at_ms))
        talk.stamped(stamp_ns // NS_PER_MS)
        was_said_before = opened.message_id in talk.sync
        yield from self._talked_much(at_ms, name, opened.message_id, is_content=is_content)
        yield from self._used_up(name, opened, stamp_ns // NS_PER_MS)
        if is_content:
            self._carried[message_hash] = opened.message_id, digest
            self._left_ms[message_hash] = at_ms
            self._acknowledged[message_hash] = opened.acknowledged_by
            if self._contents.setdefault(opened.message_id, digest) != digest:
                yield f"{opened.message_id[:12]} says something else than when it was first sent"
            is_new = opened.message_id not in self._authors
            if is_new and not self._profile.segments.is_later_segment(opened.content or b""):
                self._cites[opened.message_id] = tuple(entry.message_id for entry in opened.causal_history)
            size_bytes = len(opened.content or b"") + len(opened.bloom_filter or b"")
            self._worth[opened.message_id] = size_bytes + _CITATION_BYTES * (1 + len(opened.causal_history))
            if is_new and not opened.vouches:
                self._plain.add(opened.message_id)
            if self._authors.setdefault(opened.message_id, name) != name:
                # A repair is the author's word.
                yield from self._overanswered(at_ms, name, opened.message_id, len(plain))
                yield from self._answered_early(at_ms, name, opened)
                yield from self._answered_all_the_same(at_ms, name, opened)
                return
            yield from self._hints(name, opened)
            if opened.message_id not in self._taken:
                yield from self._misplaced(at_ms, name, opened)
            if not is_new:
                self._repeated.add(message_hash)
                if opened.message_id in self._ended:
                    # It is sent again only since somebody asked for it.
                    yield from self._overanswered(at_ms, name, opened.message_id, len(plain))
                return
            yield from self._missegmented(opened)
        yield from self._unfiltered(name, opened)
        yield from self._uncited(at_ms, name, opened)
        if not was_said_before:
            yield from self._without_newest(at_ms, name, opened)

    def _talked_much(self, at_ms: int, name: str, sds_id: str, *, is_content: bool) -> Iterator[str]:
        """See that nobody is made to send one sync message after the other, by who invents what all lack.

        Time passes by the world's clock or its own, whichever is more.
        """
        talk = self._talks.setdefault(name, _Talk(at_ms))
        if is_content:
            talk.said += 1
            return
        talk.sync.add(sds_id)
        intervals = 1 + max(at_ms - talk.since_ms, talk.passed_ms) // self.interval_ms
        allowed = _SYNC_AT_FIRST + _SYNC_PER_INTERVAL * intervals + _SYNC_EACH * talk.said + talk.heard
        if len(talk.sync) > allowed:
            talk.sync.clear()
            yield f"it is a sync message, and in {(at_ms - talk.since_ms) // 1_000} s {allowed} are enough"

    def _overanswered(self, at_ms: int, name: str, sds_id: str, size_bytes: int) -> Iterator[str]:
        """See that nobody is made to say much more than is said to him, by who asks for everything again and again.

        The last answer may exceed what may be said, or a large one would never be given.
        """
        answers = self._answers_of(at_ms, name)
        if sds_id not in answers.given:
            answers.given.add(sds_id)
            return
        before_bytes = answers.again_bytes
        answers.again_bytes += size_bytes
        each_bytes = max(_SMALL_BYTES, self._parameters.byte_length if self.has_filters(name) else 0)
        minutes = 1 + (at_ms - (answers.since_ms or at_ms)) // 60_000
        allowed = (_ANSWERS_AT_FIRST + _ANSWERS_PER_MINUTE * minutes) * each_bytes
        allowed += sum(self._worth.get(earned, _FORGED_BYTES) for earned in answers.earned)
        if self.answers_are_counted and before_bytes > allowed:
            answers.again_bytes = 0
            yield f"it is an answer, and those given more than once have more than {allowed:,} bytes"

    def _answered_early(self, at_ms: int, name: str, opened: SdsMessage) -> Iterator[str]:
        """See that who holds a message answers in its turn, so that one answer may do for all (SDS-R: T_resp)."""
        asked_ms = self._asked_for.get(opened.message_id)
        if asked_ms is None or not self.answers_wait_ms:
            return
        times = self._profile.repair
        turn_ms = times.response_offset(name, opened.sender_id, opened.message_id, self.answers_wait_ms)
        if at_ms < asked_ms + turn_ms - _READ_MS:
            yield f"it is an answer {at_ms - asked_ms} ms after the first request, and its turn is {turn_ms} ms after"

    def _answered_all_the_same(self, at_ms: int, name: str, opened: SdsMessage) -> Iterator[str]:
        """See that who hears an answer does not give one, too (SDS-R: T_resp, so that one answer may do for all)."""
        came_ms = self._copies[name].unasked.get(opened.message_id, at_ms)
        if self.answers_are_called_off and at_ms > came_ms + self._leaves_within_ms:
            yield f"it is an answer, and another one's was heard {at_ms - came_ms} ms before, and nobody asked since"

    @property
    def _read_within_ms(self) -> int:
        """Within this time a program has read what it hears: a cipher that takes its time is asked after a commit."""
        return _READ_MS + (_COMMITS * self.disk_ms + self.cipher_ms if self.cipher_ms else 0)

    @property
    def _leaves_within_ms(self) -> int:
        """Within this time what a participant decided to send has left."""
        return _READ_MS + _COMMITS * self.disk_ms

    def _uncited(self, at_ms: int, name: str, opened: SdsMessage) -> Iterator[str]:
        """See that what somebody waits for an acknowledgement of is cited, and nothing else (SDS, "Review ACK Status").

        The author of what came again seems not to know that it came, unless he says so. If more came than one message
        cites, the next ones cite the rest. Who does not vouch for what a message descends from cannot read that others
        do.
        """
        copies, cited = self._copies.get(name), {entry.message_id for entry in opened.causal_history}
        if copies is None or not self.copies_are_checked:
            return
        made_ms = (opened.lamport_timestamp or 0) * self._profile.lamport_unit_ms
        if opened.content:
            made_ms = self._made_ms.get(opened.message_id, 0)
        elif made_ms > at_ms:
            # A logical clock that is ahead does not tell when a sync message was made.
            made_ms = 0
        due = [sds_id for sds_id, came_ms in copies.uncited.items() if came_ms + self._read_within_ms < made_ms]
        for sds_id in cited:
            came_ms = copies.uncited.pop(sds_id, at_ms)
            if self.answered_within_ms is not None and at_ms - came_ms > self.answered_within_ms:
                yield f"it cites {sds_id[:12]} only {(at_ms - came_ms) // 1_000} s after its author sent that again"
        # Of many that came again each message cites some, and which ones is left to its sender.
        is_full = len(cited & copies.again) >= _CITED_AGAIN
        for sds_id in due:
            if copies.uncited.pop(sds_id, None) is None:
                continue
            if is_full:
                copies.uncited[sds_id] = at_ms
            else:
                yield f"it does not cite {sds_id[:12]}, which its author sent again"
        beside = opened.causal_history[: -self.longest_history or None]
        copies.again.update(entry.message_id for entry in beside)
        for sds_id in cited & copies.plain.keys():
            del copies.plain[sds_id]
        plain = [sds_id for sds_id, came_ms in copies.plain.items() if came_ms + self._read_within_ms < made_ms]
        for sds_id in plain:
            del copies.plain[sds_id]
            # Who attaches a filter to each message, and so never vouches, leaves it to that.
            if opened.vouches and len(plain) <= _CITED_AGAIN:
                yield f"it does not cite {sds_id[:12]}, whose author vouches for nothing"
        copies.owing -= cited
        for sds_id in cited & copies.marked.keys():
            is_repeated = copies.marked.pop(sds_id) + self._read_within_ms < made_ms and not opened.content
            if is_repeated and not self._may_cite(at_ms, name, sds_id):
                yield f"it cites {sds_id[:12]} for an author who has its acknowledgement, and said so"

    def _may_cite(self, at_ms: int, name: str, sds_id: str) -> bool:
        """Return whether a participant may cite a message that it has cited before, of which no copy calls for it."""
        received = self._received[name]
        if self._has_just_entered(at_ms, received):
            # It may have been among the newest when the message was made that cites it.
            return True
        is_uncited = sds_id not in received.cited
        newest = {sds_id for _, sds_id in islice(reversed(received.order), self.longest_history)}
        return is_uncited or sds_id in self._plain or sds_id in newest

    def _has_just_entered(self, at_ms: int, received: _Received) -> bool:
        """Return whether what leaves now may have been made before the latest message entered the log."""
        return received.entered_ms + self._leaves_within_ms >= at_ms

    def _without_newest(self, at_ms: int, name: str, opened: SdsMessage) -> Iterator[str]:
        """See that a sync message cites the newest in its sender's log, whenever they came (SDS, "Send Message").

        Content may have been made long before it leaves; a sync message is made when it first leaves. One that a node
        did not take, since it had just lost its connection, goes again as it was once the node is back.
        """
        received = self._received[name]
        if opened.content or not (self.copies_are_checked and self.order_is_checked and self.syncs_are_prompt):
            return
        if self._has_just_entered(at_ms, received):
            return
        cited = {entry.message_id for entry in opened.causal_history}
        for sds_id in received.newest(self._cited_by_all):
            if sds_id not in cited:
                yield f"it does not cite {sds_id[:12]}, which is one of the newest that its sender has"

    def cited_by(self, sds_id: str) -> tuple[str, ...]:
        """Return what a message cites that was handed over; nothing of a later segment."""
        return self._cites.get(sds_id, ())

    def _kept_waiting(self, at_ms: int, name: str, opened: SdsMessage) -> Iterator[str]:
        """See that a long burst lets through what is to be repeated."""
        queue, sds_id = self._queues[name], opened.message_id
        is_first = bool(opened.content) and sds_id not in self._authors
        queue.to_repeat.pop(sds_id, None)
        # What waits for a slow disk was decided before something was to be repeated.
        is_kept_waiting = min(queue.to_repeat.values(), default=at_ms + 1) + _COMMITS * self.disk_ms <= at_ms
        queue.in_a_row = queue.in_a_row + 1 if is_first and is_kept_waiting else 0
        # What was under way when something was to be repeated leaves before it.
        most = self.under_way + _IN_A_ROW
        is_checked = self.order_is_checked and not (self.is_limited or self.repeats_in_turn(name))
        if queue.in_a_row == most and is_checked:
            waiting = next(iter(queue.to_repeat))
            yield f"it is the {most}th new one in a row, while {waiting[:12]} waits to be sent again"

    def _overdraft(self, name: str, epoch: int) -> Iterator[str]:
        self.epochs[name, epoch] += 1
        if self.is_limited and self._paid.get(name, {}).get(epoch, 0) < self.epochs[name, epoch]:
            yield "a crash now would forget that the rate limit was charged for it"

    def _used_up(self, name: str, opened: SdsMessage, stamp_ms: int) -> Iterator[str]:
        """See that what repeats leaves the rest of an epoch to what is new.

        RELIABLE-CHANNEL-API, "Rate Limit Management".
        """
        is_new = bool(opened.content) and opened.sender_id == name and opened.message_id not in self._tried
        epoch = stamp_ms // RATE_EPOCH_MS
        others = self.used_by_others(name, epoch, stamp_ms - _QUOTA_KNOWN_MS)
        for allowed, used_by_others in ((self.configured, 0), (self.membership_of(name), others)):
            if allowed is None or is_new:
                continue
            most_repeated = max(1, int(allowed * self.approached_threshold))
            # What is charged and not yet proven when a program asks what is used, it takes off from what others used.
            unproven = _UNPROVEN if used_by_others else 0
            if self.epochs[name, epoch] + used_by_others > most_repeated + unproven:
                yield f"it is nothing new, and of the epoch only what is beyond {most_repeated} messages is left"

    def _unfiltered(self, name: str, opened: SdsMessage) -> Iterator[str]:
        if not opened.bloom_filter:
            # Another policy leaves it out (docs/decisions/specifications.md, "When a bloom filter is attached").
            if self._bloom_policy is BloomPolicy.ALWAYS:
                yield "it has no bloom filter"
            return
        bloom = self._profile.codec.read_bloom(opened.bloom_filter, self._parameters)
        if bloom is None:
            yield "its bloom filter cannot be read"
            return
        if int.from_bytes(bloom.words).bit_count() > _most_bits(bloom.parameters):
            yield f"its bloom filter holds more than the {bloom.parameters.capacity} messages that it has room for"
        wire, received = self._profile.codec.bloom, self._received[name]
        for entry in opened.causal_history:
            if received.is_held(entry.message_id, self._parameters.capacity) and entry.message_id not in self.forged:
                positions = wire.positions(entry.message_id, bloom.parameters)
                if not holds(bloom.words, positions, wire.byte_flip):
                    yield f"it cites {entry.message_id[:12]}, which came of late, and its bloom filter lacks it"

    def _misplaced(self, at_ms: int, name: str, opened: SdsMessage) -> Iterator[str]:
        queue, sds_id, lamport = self._queues[name], opened.message_id, opened.lamport_timestamp or 0
        queue.tries[sds_id] += 1
        queue.refused.pop(sds_id, None)
        if not self.order_is_checked or sds_id in self._ended:
            return
        is_first = sds_id not in queue.handed and sds_id not in self._tried
        if is_first and lamport <= queue.newest:
            yield f"{sds_id[:12]} leaves after what was made later"
        queue.handed[sds_id], queue.newest = lamport, max(lamport, queue.newest)
        # What leaves for the first time may have been decided when it was made.
        decided_ms = self._made_ms.get(sds_id, 0) if self.answers_hang and queue.tries[sds_id] == 1 else at_ms
        for other, known_ms in queue.refused.items():
            if decided_ms <= known_ms:
                continue
            if known_ms + _ANSWER_MS + _COMMITS * self.disk_ms < at_ms and queue.handed[other] < lamport:
                yield f"{sds_id[:12]} leaves before {other[:12]}, which was made earlier and refused once"

    def _hints(self, name: str, opened: SdsMessage) -> Iterator[str]:
        made_ms = self._made_ms.get(opened.message_id)
        for entry in opened.causal_history:
            hint = entry.retrieval_hint
            if hint is None or self._authors.get(entry.message_id) != name:
                continue
            carried = self._carried.get(hint)
            if hint in self.forged_carriers:
                yield f"the retrieval hint for {entry.message_id[:12]} leads to what somebody else forged"
            if carried is not None and carried != (entry.message_id, self._contents.get(entry.message_id)):
                yield f"the retrieval hint for {entry.message_id[:12]} leads to something else"
            known_ms = self._refused.get(name, {}).get(hint)
            if known_ms is not None and made_ms is not None and known_ms + _ANSWER_MS < made_ms:
                yield f"the retrieval hint for {entry.message_id[:12]} leads to what its sender knew was refused"

    def _missegmented(self, opened: SdsMessage) -> Iterator[str]:
        content, form = opened.content or b"", self._profile.segments
        if not form.is_segment(content):
            return
        try:
            segment = form.decode(content, _MAX_SEGMENTS)
        except FairwayError as error:
            yield f"its segment breaks a rule ({error})"
            return
        pieces = self._pieces.setdefault((opened.sender_id, segment.payload_hash), _Pieces())
        if len(self._pieces) > _MAX_PAYLOADS:
            self._pieces.popitem(last=False)
        yield from _add(pieces, segment)


def _add(pieces: _Pieces, segment: Segment) -> Iterator[str]:
    """Put a segment to the others of its message, and yield what does not fit."""
    pieces.data_count = pieces.data_count or segment.data_count
    pieces.parity_count = pieces.parity_count or segment.parity_count
    if segment.data_count not in {0, pieces.data_count} or segment.parity_count not in {0, pieces.parity_count}:
        # The same payload was sent again, with other options.
        return
    if segment.is_parity:
        pieces.parity[segment.index] = segment.payload
    elif not pieces.is_whole:
        pieces.data[segment.index] = segment.payload
    if not pieces.is_whole and len(pieces.data) == pieces.data_count > 0:
        payloads = [pieces.data[index] for index in range(pieces.data_count)]
        if keccak256(b"".join(payloads)) != segment.payload_hash:
            yield "its segments together are not what their hash is of"
        if len({len(payload) for payload in payloads[:-1]} | {max(map(len, payloads))}) > 1:
            yield "its data segments but the last are not of one size"
        pieces.is_whole, pieces.data = True, {}
        pieces.expected = [*payloads[:-1], payloads[-1].ljust(len(payloads[0]), b"\0")]
    if pieces.is_whole and pieces.parity:
        shards = leopard.encode(pieces.expected, pieces.parity_count)
        for index, payload in pieces.parity.items():
            if payload != shards[index]:
                yield f"its parity segment {index} is not that of its data"
        pieces.parity.clear()


def _most_bits(parameters: BloomParameters) -> float:
    """Return how many bits a full filter has but for a chance in millions."""
    bits, marks = parameters.bit_count, parameters.hash_count * parameters.capacity
    return bits * (1 - (1 - 1 / bits) ** marks) + _DEVIATIONS * math.sqrt(bits) / 2


def _charges(row: Row) -> dict[int, int]:
    """Return the charges by epoch in a row of the rate limit."""
    for source in row[1:]:
        if source[0] == QuotaSource.CONFIGURED.value:
            return dict(source[-1])
    return {}
