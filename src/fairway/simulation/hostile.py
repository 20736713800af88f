"""A hostile participant, which publishes forged messages: sender ids are not authenticated.

It has a node of its own, hears everything, and sends what no participant would. What it forges is on record in the
ledger: no participant must receive it, and its claims count for nothing; what honest participants sent is owed all the
same.

One in haste also answers what it hears at once, while that is still under way, and whispers: it is the neighbour of
each participant, and only that one receives what it pushes to it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Awaitable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from fairway.errors import FairwayError
from fairway.options import IdRule, ReliableChannelOptions
from fairway.protocol.encryption import Encryption
from fairway.protocol.sds.channel import HISTORY
from fairway.protocol.sds.rolling_bloom import RollingBloom
from fairway.simulation.world import Observer, World
from fairway.units import DAY_MS, NS_PER_MS
from fairway.waku.node import RoutedMessage
from fairway.wire.bloom import BloomParameters
from fairway.wire.sds import HistoryEntry, SdsMessage
from fairway.wire.segment import Segment
from fairway.wire.topics import autoshard
from fairway.wire.waku_message import WakuMessage

if TYPE_CHECKING:
    from fairway.simulation.ledger import Ledger

_NAME: Final = "mallory"
_REMEMBERED: Final = 200
_INVENTED: Final = 20
"""Invented messages that one message cites."""
_ASKED: Final = 10
"""Messages that a repair is asked for at once."""
_PESTERED: Final = 20
"""Messages whose repair is asked for over and over."""
PESTERED_EVERY_MS: Final = 15_000
ASKED_FOR_ALL_EVERY_MS: Final = 120_000
_HASTE_MS: Final = (0, 40)
_ANSWERED: Final = 0.3
"""Share of what is heard to which each of the answers is given at once."""
_FLOOD: Final = 400
"""Long messages that are begun at once."""
_FLOODERS: Final = 5
_BELIEVED: Final = 20
"""Messages that a bloom filter claims; so few that it is believed."""


class Mallory(Observer):
    """A hostile member."""

    def __init__(
        self,
        world: World,
        options: ReliableChannelOptions,
        encryption: Encryption | None,
        ledger: Ledger,
        haste: random.Random | None = None,
    ) -> None:
        """Join a world's network; ``encryption`` is that of the channel, for hostile members have the key.

        One that draws from ``haste`` answers at once.
        """
        self._world = world
        self._encryption = encryption
        self._ledger = ledger
        self._codec = options.profile.codec
        self._format = options.profile.segments
        self._segment_bytes = options.segmentation.segment_size_bytes
        self._topic = autoshard(world.content_topic, options.cluster_id, options.shard_count)
        self._heard: deque[RoutedMessage] = deque(maxlen=_REMEMBERED)
        self._haste = haste
        self._bloom = BloomParameters.of(options.sds.bloom_capacity, options.sds.bloom_error_rate)
        self._wanted: deque[HistoryEntry] = deque(maxlen=_PESTERED)
        """What others lack, and what they were made to believe that they lack."""
        self._forged: dict[bytes, SdsMessage] = {}
        """Forged messages by the hash of their WakuMessage, with the participant whose name they bear."""
        self._impostures: dict[str, tuple[int, list[int]]] = {}
        """How often each channel was opened, and when since then others spoke to it in its own name."""
        self._count = 0
        world.observers.append(self)

    def published(self, at_ms: int, name: str, message: RoutedMessage) -> None:
        """Remember what others publish; in haste answer it."""
        if name == _NAME:
            return
        self._heard.append(message)
        if self._haste is not None and self._encryption is None:
            self._answer(at_ms, name, message, self._haste)

    def _answer(self, at_ms: int, name: str, message: RoutedMessage, dice: random.Random) -> None:
        try:
            opened = self._codec.decode(message.message.payload)
        except FairwayError:
            return
        self._wanted.extend(entry for entry in opened.repair_request if entry not in self._wanted)
        if not (opened.content and opened.lamport_timestamp) or opened.sender_id != name:
            return
        if opened.message_id in self._ledger.forged:
            # Who took it for his own and forgotten repeats it when he is asked to. If that were answered with a further
            # forgery, which is asked for in turn, the conversation would never end.
            return
        answers = (
            lambda: self._other_segment(opened, dice),
            self._claim_what_is_new,
            lambda: self._speak_for(name, opened, dice),
        )
        for answer in answers:
            if dice.random() < _ANSWERED:
                self._world.at(at_ms + dice.randint(*_HASTE_MS), answer)

    def _other_segment(self, opened: SdsMessage, dice: random.Random) -> None:
        """Send other bytes for a later segment of a message that is just leaving."""
        try:
            segment = self._format.decode(opened.content or b"", 256)
        except FairwayError:
            return
        if not segment.is_parity and segment.index + 1 < segment.data_count:
            later = dice.randrange(segment.index + 1, segment.data_count)
            forged = replace(segment, index=later, payload=dice.randbytes(len(segment.payload)))
            self._count += 1
            self._send(self._message(sender_id=opened.sender_id, content=self._format.encode(forged)))

    def _claim_what_is_new(self) -> None:
        """Claim to have what was said last, by a bloom filter that is as good as any."""
        bloom = RollingBloom(self._bloom, self._codec.bloom)
        for opened in self._read()[-_BELIEVED:]:
            bloom.insert(opened.message_id)
        self._count += 1
        self._send(self._message(bloom_filter=self._codec.write_bloom(bloom.words(), self._bloom), content=None))

    def _speak_for(self, name: str, opened: SdsMessage, dice: random.Random) -> None:
        """Whisper to a participant other content under its own name, and the id of what it just sent."""
        if name in self._world.participants and self._whisper(name, replace(opened, content=dice.randbytes(20))):
            self._spoke_for(name)

    def heard(self, at_ms: int, name: str, message: RoutedMessage) -> None:  # noqa: ARG002 - the world knows the time
        """Count what a participant hears that was forged in its own name, and that it can tell from its own words."""
        forged = self._forged.get(message.message_hash)
        if forged is not None and forged.sender_id == name and self._is_told(name, forged):
            self._spoke_for(name)

    def _is_told(self, name: str, forged: SdsMessage) -> bool:
        """Return whether a participant can tell that a message under its name and a new id is not its own.

        It takes what came for its own and forgotten if ids are made by a rule that needs more than the message, and
        if the message is older than all that it remembers.
        """
        participant = self._world.participants[name]
        if participant.options.sds.id_rule is IdRule.KECCAK_TIMESTAMP:
            return False
        rows, lamport = participant.kept.rows, forged.lamport_timestamp or 0
        return any(table == HISTORY and row[0] <= lamport for (table, _), row in rows.items())

    def _spoke_for(self, name: str) -> None:
        openings = self._world.participants[name].kept.openings
        self._impostures[name] = openings, [*self._times_spoken_for(name), self._world.now_ms]

    def _times_spoken_for(self, name: str) -> list[int]:
        openings, times = self._impostures.get(name, (0, []))
        # A channel that is opened again counts anew.
        return times if openings == self._world.participants[name].kept.openings else []

    def spoken_for(self, name: str, before_ms: int) -> int:
        """Return how often others spoke to a participant in its own name, since its channel was opened."""
        return sum(at_ms < before_ms for at_ms in self._times_spoken_for(name))

    def pester(self) -> None:
        """Whisper to each participant requests for all that is asked for, so that it leaves the asking to others."""
        entries = list(self._wanted)
        for victim in self._world.participants:
            for first in range(0, len(entries), _ASKED):
                self._count += 1
                asked = tuple(entries[first : first + _ASKED])
                self._whisper(victim, self._message(repair_request=asked, content=None))

    def ask_for_all(self) -> None:
        """Request repairs of all that was said, over and over: who answers each time says much for little."""
        said = {opened.message_id: opened.sender_id for opened in self._read() if opened.content}
        entries = [HistoryEntry(message_id, None, sender_id) for message_id, sender_id in said.items()]
        for first in range(0, len(entries), _ASKED):
            self._count += 1
            self._send(self._message(repair_request=tuple(entries[first : first + _ASKED]), content=None))

    def _whisper(self, name: str, message: SdsMessage) -> bool:
        """Push a message to one participant; return whether that listens."""
        carrier = RoutedMessage.of(self._topic, self._carrier(self._codec.encode(message)))
        self._ledger.rules.forged_carriers.add(carrier.message_hash)
        self._ledger.requested(self._world.now_ms, message)
        return self._world.push(name, carrier)

    def forge(self, number: int) -> None:
        """Publish a forgery; the number draws which."""
        dice = random.Random(number)  # noqa: S311 - reproducible, and guards nothing
        self._count += 1
        kind = dice.choice((
            self._invented, self._storm, self._ahead, self._full_bloom, self._segment, self._namesake, self._replay,
            self._garbage,
        ))  # fmt: skip
        kind(dice)

    def flood(self) -> None:
        """Begin more long messages than anybody has room for who keeps tight quotas, and end none."""
        dice = self._haste or random.Random(0)  # noqa: S311 - reproducible, and guards nothing
        for _ in range(_FLOOD):
            segment = self._begun(dice)
            self._count += 1
            sender_id = f"{_NAME}-{dice.randrange(_FLOODERS)}"
            self._send(self._message(sender_id=sender_id, content=self._format.encode(segment)))

    def contradict(self, believer: str) -> None:
        """Begin a long message, and whisper another second segment of it to one participant than to all others.

        Then all others hear the other one, too, and cannot know which of them is forged.
        """
        dice = self._haste or random.Random(0)  # noqa: S311 - reproducible, and guards nothing
        begun = self._begun(dice)
        said = []
        for index in (0, 1, 1):
            self._count += 1
            segment = replace(begun, index=index, payload=dice.randbytes(self._segment_bytes))
            said.append(self._message(content=self._format.encode(segment)))
        first, second, other = said
        for name in self._world.participants:
            for message in (first, other) if name == believer else (first, second, other):
                self._whisper(name, message)

    def _begun(self, dice: random.Random) -> Segment:
        """Return the first segment of a message of four."""
        return Segment(
            payload_hash=dice.randbytes(32),
            index=0,
            data_count=4,
            parity_count=0,
            is_parity=False,
            payload=dice.randbytes(self._segment_bytes),
            payload_length=4 * self._segment_bytes,
        )

    def _invented(self, dice: random.Random) -> None:
        """Cite invented messages, with wrong retrieval hints."""
        cited = tuple(
            HistoryEntry(f"{_NAME}-{self._count}-{number}", dice.randbytes(32), "nobody") for number in range(_INVENTED)
        )
        self._ledger.forged.update(entry.message_id for entry in cited)
        self._wanted.extend(cited)
        self._send(self._message(causal_history=cited, content=None if dice.random() < 0.5 else b"see above"))

    def _storm(self, dice: random.Random) -> None:
        """Request repairs of messages that all participants have."""
        known = [HistoryEntry(opened.message_id, None, opened.sender_id) for opened in self._read() if opened.content]
        asked = tuple(dice.sample(known, min(_ASKED, len(known))))
        self._send(self._message(repair_request=asked, content=None))

    def _ahead(self, dice: random.Random) -> None:
        """Claim a time that has not come."""
        ahead_ms = dice.choice((60_000, 3_500_000, DAY_MS, 1 << 40))
        self._send(self._message(lamport_timestamp=self._world.now_ms + ahead_ms))

    def _full_bloom(self, dice: random.Random) -> None:
        """Claim, by a bloom filter of all ones, to have everything."""
        blooms = [len(opened.bloom_filter) for opened in self._read() if opened.bloom_filter]
        bloom = b"\xff" * (dice.choice(blooms) if blooms else 18_000)
        self._send(self._message(bloom_filter=bloom, content=None))

    def _segment(self, dice: random.Random) -> None:
        """Send other bytes for a segment of another participant's message, with its sender id."""
        for opened in dice.sample(self._read(), len(self._heard)):
            try:
                segment = self._format.decode(opened.content or b"", 256)
            except FairwayError:
                continue
            forged = self._format.encode(replace(segment, payload=dice.randbytes(len(segment.payload))))
            self._send(self._message(sender_id=opened.sender_id, content=forged))
            return

    def _namesake(self, dice: random.Random) -> None:
        """Send a message with another participant's sender id."""
        self._send(self._message(sender_id=dice.choice(sorted(self._world.participants)), content=dice.randbytes(20)))

    def _replay(self, dice: random.Random) -> None:
        """Publish again what others published."""
        if self._heard:
            self._publish(dice.choice(self._heard).message)

    def _garbage(self, dice: random.Random) -> None:
        """Publish what is no SDS message."""
        self._publish(self._carrier(dice.randbytes(dice.randint(0, 2_000))))

    def _read(self) -> list[SdsMessage]:
        """Return what was heard, opened."""
        opened = []
        for heard in self._heard:
            try:
                opened.append(self._codec.decode(self._ledger.opened(heard.message.payload)))
            except FairwayError:
                continue
        return opened

    def _message(
        self,
        *,
        sender_id: str = _NAME,
        lamport_timestamp: int | None = None,
        causal_history: tuple[HistoryEntry, ...] = (),
        repair_request: tuple[HistoryEntry, ...] = (),
        bloom_filter: bytes | None = None,
        content: bytes | None = b"hear me",
    ) -> SdsMessage:
        message = SdsMessage(
            message_id=f"{self._count:064x}",
            sender_id=sender_id,
            channel_id=self._world.channel_id,
            lamport_timestamp=self._world.now_ms if lamport_timestamp is None else lamport_timestamp,
            causal_history=causal_history,
            repair_request=repair_request,
            bloom_filter=bloom_filter,
            content=content,
        )
        self._ledger.forged.add(message.message_id)
        return message

    def _send(self, message: SdsMessage) -> None:
        plain = self._codec.encode(message)
        encrypted = plain if self._encryption is None else self._encryption.encrypt(plain)
        if isinstance(encrypted, bytes):
            carrier = self._carrier(encrypted)
            self._forged[RoutedMessage.of(self._topic, carrier).message_hash] = message
            self._publish(carrier)
        else:
            self._world.spawn(self._publish_encrypted(encrypted))

    async def _publish_encrypted(self, encrypted: Awaitable[bytes]) -> None:
        self._publish(self._carrier(await encrypted))

    def _carrier(self, payload: bytes) -> WakuMessage:
        return WakuMessage(
            payload=payload,
            content_topic=self._world.content_topic,
            timestamp_ns=self._world.now_ms * NS_PER_MS,
            meta=self._heard[-1].message.meta if self._heard else None,
        )

    def _publish(self, message: WakuMessage) -> None:
        nodes = {node.name: node for node in self._world.network.nodes}
        node = nodes.get(_NAME) or self._world.network.node(_NAME)
        self._world.spawn(node.send(RoutedMessage.of(self._topic, message)))
