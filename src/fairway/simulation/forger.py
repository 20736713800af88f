"""`Forger`: a hostile participant, or a stranger.

In an encrypted channel it has no key: it repeats and damages messages. Otherwise it also cites messages that do not
exist, claims to have all messages, requests repairs, begins long messages and uses the names of others. If participants
sign, it has a key of its own. It forges with that key, with the signatures of others, or without a signature. Unless
it is a member, all its messages are under the names of others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any, Final

from fairway.identity import Identity
from fairway.nodes.node import RoutedMessage, WakuNode
from fairway.options import ReliableChannelOptions
from fairway.protocol.signing import Signing
from fairway.simulation.history import History
from fairway.units import NS_PER_MS
from fairway.wire.sds import HistoryEntry, SdsMessage
from fairway.wire.segment import Segment
from fairway.wire.signature import read_signature, with_signature
from fairway.wire.waku_message import WakuMessage

NAME: Final = "mallory"
_HEARD: Final = 200
_CITED: Final = 10
_CLOCK_AHEAD_MS: Final = (60_000, 3_500_000, 86_400_000, 1 << 40)


class Forger:
    """A hostile participant of a world."""

    def __init__(
        self,
        node: WakuNode,
        channel_id: str,
        options: ReliableChannelOptions,
        history: History,
        clock_ns: Callable[[], int],
        *,
        reads: bool,
        identity: Identity | None,
        is_member: bool,
    ) -> None:
        """Without ``reads`` it makes no messages that others can read. ``identity`` is its key if participants sign."""
        self._node = node
        self._channel_id = channel_id
        self._profile = options.profile
        self._history = history
        self._clock_ns = clock_ns
        self._reads = reads
        self._identity = identity
        self._is_member = is_member
        self._heard: deque[RoutedMessage] = deque(maxlen=_HEARD)
        self._count = 0

    def heard(self, name: str, message: RoutedMessage) -> None:
        """Keep the messages that others send."""
        if name != NAME:
            self._heard.append(message)

    async def forge(self, number: int) -> None:
        """Send a forgery; the number selects its kind."""
        dice = Random(number)  # noqa: S311 - reproducible, not secret
        if not self._heard:
            return
        topic, message = self._heard[-1].pubsub_topic, dice.choice(self._heard).message
        kind = dice.choice(("repeat", "damage", "cite", "claim", "ask", "segment", "imitate", "ahead"))
        if kind == "repeat":
            payload = message.payload
        elif kind == "damage" or not self._reads:
            payload = self._damaged(dice, message.payload)
        else:
            payload = self._signed(self._message(kind, dice), message.payload, dice)
        forged = WakuMessage(
            payload=payload,
            content_topic=message.content_topic,
            timestamp_ns=self._clock_ns() // NS_PER_MS * NS_PER_MS,
            meta=message.meta,
        )
        with suppress(ConnectionError):
            await self._node.send(RoutedMessage.of(topic, forged))

    def _damaged(self, dice: Random, payload: bytes) -> bytes:
        """Return a payload with one bit changed, or random bytes if any change would be accepted."""
        if (self._reads and self._identity is None) or not payload:
            return dice.randbytes(dice.randint(0, 2_000))
        damaged = bytearray(payload)
        damaged[dice.randrange(len(damaged))] ^= 1 << dice.randrange(8)
        return bytes(damaged)

    def _signed(self, message: SdsMessage, heard: bytes, dice: Random) -> bytes:
        """Return the bytes of a message: with the own signature, with that of a heard message, or without one."""
        codec, stolen = self._profile.codec, read_signature(heard)
        if self._identity is None:
            return codec.encode(message)
        way = "own" if message.sender_id == NAME else dice.choice(("own", "stolen", "none"))
        if way == "own":
            signing = Signing(self._channel_id, message.sender_id, self._identity, None, required=False)
            return signing.encoder(codec)(message)
        encoded = codec.encode(message)
        return encoded if way == "none" or stolen is None else with_signature(encoded, stolen.signature)

    def _message(self, kind: str, dice: Random) -> SdsMessage:
        self._count += 1
        now_ms = self._clock_ns() // NS_PER_MS
        lamport = now_ms // self._profile.lamport_unit_ms
        heard = [sds for message in self._heard if (sds := self._history.read(message.message)) is not None]
        fields: dict[str, Any] = {"sender_id": NAME, "content": b"hear me", "lamport_timestamp": lamport}
        match kind:
            case "cite":
                cited = tuple(HistoryEntry(f"invented-{self._count}-{i}", dice.randbytes(32)) for i in range(_CITED))
                fields["causal_history"] = cited
            case "claim":
                fields |= {"bloom_filter": b"\xff" * 18_000, "content": None}
            case "ask":
                asked = dice.sample(heard, min(_CITED, len(heard)))
                entries = tuple(HistoryEntry(sds.message_id, None, sds.sender_id) for sds in asked)
                fields |= {"repair_request": entries, "content": None}
            case "segment":
                fields["content"] = self._profile.segments.encode(_first_segment(dice))
            case "imitate":
                fields |= {"sender_id": dice.choice(sorted(self._history.joined)), "content": dice.randbytes(20)}
            case "ahead":
                fields["lamport_timestamp"] = lamport + dice.choice(_CLOCK_AHEAD_MS)
        if not self._is_member:
            fields["sender_id"] = dice.choice(sorted(self._history.joined))
        message = SdsMessage(message_id=f"{self._count:064x}", channel_id=self._channel_id, **fields)
        self._history.forged.add(message.message_id)
        return message


def _first_segment(dice: Random) -> Segment:
    """Return the first of four segments; the others are never sent."""
    return Segment(
        payload_hash=dice.randbytes(32),
        index=0,
        data_count=4,
        parity_count=0,
        is_parity=False,
        payload=dice.randbytes(1_000),
        payload_length=4_000,
    )
