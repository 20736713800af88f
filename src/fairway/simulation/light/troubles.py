"""What goes wrong at a service node, beneath the services and above the connections: in the answers to its clients.

`trouble` puts itself between the streams of a `ServiceNode` and its handlers. For each request the dice say whether it
is refused, carried out without an answer, never answered, or answered by something that is no answer. A bad service
node has a vice at all times, another one every twenty seconds; or it is given one, which it has for some minutes, and
then not, and then again.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, Final, Never, cast

from fairway.errors import DecodeError
from fairway.service.node import ServiceNode
from fairway.waku.libp2p.errors import StreamResetError
from fairway.waku.libp2p.handlers import StreamHandler
from fairway.waku.libp2p.stream import Stream
from fairway.waku.local.faults import FaultDice
from fairway.waku.node import RoutedMessage
from fairway.wire.filter import (
    FILTER_SUBSCRIBE_PROTOCOL,
    FilterSubscribeResponse,
    MessagePush,
    decode_filter_subscribe_request,
    encode_filter_subscribe_response,
    encode_message_push,
)
from fairway.wire.lightpush import (
    LIGHTPUSH_PROTOCOL,
    LightPushResponse,
    StatusCode,
    decode_lightpush_request,
    encode_lightpush_response,
)
from fairway.wire.store import (
    STORE_QUERY_PROTOCOL,
    StoreQueryResponse,
    decode_store_query_request,
    encode_store_query_response,
)
from fairway.wire.waku_message import DEFAULT_MAX_ENVELOPE_BYTES, WakuMessage, encode_waku_message

_SERVED: Final = {LIGHTPUSH_PROTOCOL: "push", FILTER_SUBSCRIBE_PROTOCOL: "subscribe", STORE_QUERY_PROTOCOL: "query"}
_HANGS_S: Final = 120.0
"""How long a service node keeps a stream that it does not answer; clients wait for ten seconds."""
_TRICKLE_S: Final = 0.5
_PIECES: Final = 8
_CLAIMED: Final = 2
"""To so many peers a service node says that it relayed."""
_VICE_S: Final = 20.0
_REQUEST_BYTES: Final = 2 * DEFAULT_MAX_ENVELOPE_BYTES


class Garbling(Enum):
    """What comes in place of an answer."""

    CUT_SHORT = "ends within the answer"
    RESET = "breaks within the answer"
    DAMAGED = "is an answer with wrong bits"
    NOTHING = "ends without an answer"
    TOO_LONG = "announces more than anybody may send"
    OTHER = "is an answer to something else"
    TRICKLING = "comes in pieces over seconds"


_UNANSWERED: Final = frozenset({Garbling.NOTHING, Garbling.RESET})
"""After these a client may repeat its request at once."""
_NONSENSE: Final = tuple(each for each in Garbling if each is not Garbling.TRICKLING)


class Vice(Enum):
    """What a bad service node does, another one every `_VICE_S`."""

    HANGS = "hangs"
    """Answers nothing."""
    REFUSES = "refuses"
    """Refuses everything, and pushes for good."""
    GARBLES = "garbles"
    """Answers nonsense."""
    SWALLOWS = "swallows"
    """Says that it relays what it drops."""
    FORGETS = "forgets"
    """Says that it subscribes, and does not."""
    PESTERS = "pesters"
    """Pushes what nobody asked for."""
    MUTES = "mutes"
    """Answers nothing about subscriptions, and has none."""
    IDLES = "idles"
    """Takes what is pushed, relays it to nobody, and says so."""


_IN_TURN: Final = (Vice.HANGS, Vice.REFUSES, Vice.GARBLES, Vice.SWALLOWS, Vice.FORGETS, Vice.PESTERS)
_BEGINS_S, _ENDS_S, _AGAIN_S = 60.0, 300.0, 360.0
"""A vice that is given lasts from the second minute to the fifth of every six."""


class Troubles:
    """What goes wrong at the service nodes of a world; can be changed at any time."""

    def __init__(
        self,
        dice: FaultDice,
        seed: int,
        *,
        garbled: float,
        bad: int,
        vice: Vice | None,
        clock: Callable[[], float],
        refused: Callable[[bytes, int, int], object],
        pushed: Callable[[bytes, int], object],
        swallowed: Callable[[RoutedMessage], object],
        told: Callable[[str], object],
        claimed: Callable[[bytes], object],
        failed: Callable[[str, int, str], object],
        dropped: Callable[[int], object],
    ) -> None:
        """Let nothing go wrong but what is given.

        ``refused`` takes message hash, code and node of each refusal, ``pushed`` message hash and node of a push,
        ``swallowed`` what a node says that it took, and drops, and ``told`` the peer id of a client to whose query of a
        store an answer of any kind leaves. ``claimed`` takes the hash of what a node says that it relayed to somebody,
        and ``failed`` peer id, node and protocol of a request that gets no answer. ``dropped`` takes the node that
        ended the stream of a push without an answer. ``vice`` is what bad nodes do for some minutes again and again, if
        that is to be always the same.
        """
        self.dice = dice
        """Draws what the faults of the network say."""
        self.garbled = garbled
        """Share of the answers that are none."""
        self.bad = bad
        """So many service nodes, by their numbers, are bad ones."""
        self.refused, self.pushed, self.swallowed, self.told = refused, pushed, swallowed, told
        self.claimed, self.failed, self.dropped, self.given = claimed, failed, dropped, vice
        self.passed_over: set[int] = set()
        """Numbers of service nodes that leave the next request about subscriptions without an answer."""
        self.requests: Counter[str] = Counter()
        """Requests that clients made, by what they ask for."""
        self._seed, self._clock = seed, clock

    def vice(self, number: int, now_s: float | None = None) -> Vice | None:
        """Return what is wrong with a service node at this time; None for a good one."""
        if number >= self.bad:
            return None
        at_s = self._clock() if now_s is None else now_s
        if self.given is not None:
            return self.given if _BEGINS_S <= at_s % _AGAIN_S < _ENDS_S else None
        period = int(at_s // _VICE_S)
        return random.Random(f"vice/{self._seed}/{number}/{period}").choice(_IN_TURN)  # noqa: S311 - reproducible

    def junk(self, pubsub_topic: str) -> bytes:
        """Return a push that no client wants."""
        dice = self.dice.random
        unwanted = WakuMessage(payload=dice.randbytes(20), content_topic="/unwanted/1/junk/proto", timestamp_ns=1)
        pushes = (
            MessagePush(message_bytes=encode_waku_message(unwanted), pubsub_topic=pubsub_topic),
            MessagePush(message_bytes=dice.randbytes(40), pubsub_topic=pubsub_topic),
            MessagePush(message_bytes=unwanted.payload, pubsub_topic=None),
        )
        return dice.choice([*map(encode_message_push, pushes), dice.randbytes(30)])

    def garbling(self) -> Garbling | None:
        """Draw how an answer is garbled, or None."""
        if not (self.garbled and self.dice.random.random() < self.garbled):
            return None
        return self.dice.random.choice(list(Garbling))


def trouble(node: ServiceNode, number: int, troubles: Troubles) -> None:
    """Let answers of a service node go wrong from now on."""
    for protocol in _SERVED:
        handler = node.host.handler_of(protocol)
        if handler is not None:
            node.host.handle(protocol, _Troubled(protocol, handler, troubles, number).handle)


class _Troubled:
    def __init__(self, protocol: str, handler: StreamHandler, troubles: Troubles, number: int) -> None:
        self._protocol, self._handler, self._troubles, self._number = protocol, handler, troubles, number

    async def handle(self, stream: Stream) -> None:
        self._troubles.requests[_SERVED[self._protocol]] += 1
        if self._protocol == FILTER_SUBSCRIBE_PROTOCOL and self._number in self._troubles.passed_over:
            self._troubles.passed_over.remove(self._number)
            await self._without_an_answer(stream)
            return
        match self._troubles.vice(self._number), self._protocol:
            case Vice.HANGS, _:
                await self._never_answer(stream)
            case (Vice.MUTES, protocol) if protocol == FILTER_SUBSCRIBE_PROTOCOL:
                await self._never_answer(stream)
            case Vice.REFUSES, _:
                await self._answer(stream, StatusCode.BAD_REQUEST)
            case Vice.GARBLES, _:
                await self._spoil(stream, self._troubles.dice.random.choice(_NONSENSE))
            case (Vice.SWALLOWS, protocol) if protocol == LIGHTPUSH_PROTOCOL:
                await self._answer(stream, StatusCode.SUCCESS)
            case (Vice.IDLES, protocol) if protocol == LIGHTPUSH_PROTOCOL:
                await self._answer(stream, StatusCode.SUCCESS, relayed_to=0)
            case (Vice.FORGETS, protocol) if protocol == FILTER_SUBSCRIBE_PROTOCOL:
                await self._answer(stream, StatusCode.SUCCESS)
            case _:
                await self._handle(stream)

    async def _handle(self, stream: Stream) -> None:
        dice = self._troubles.dice
        if dice.is_silent():
            await self._hang(stream)
        elif self._protocol == LIGHTPUSH_PROTOCOL and (code := dice.refusal()) is not None:
            await self._answer(stream, code)
        elif self._is_answer_lost():
            await self._without_an_answer(stream)
        elif (garbling := self._troubles.garbling()) is not None:
            await self._spoil(stream, garbling)
        else:
            await self._serve(stream)

    async def _spoil(self, stream: Stream, garbling: Garbling) -> None:
        if self._protocol == LIGHTPUSH_PROTOCOL and garbling in _UNANSWERED:
            self._troubles.dropped(self._number)
        await self._serve(cast("Stream", _Spoiled(stream, garbling, self._troubles.dice.random)))

    async def _serve(self, stream: Stream) -> None:
        await self._handler(stream)
        if self._protocol == STORE_QUERY_PROTOCOL:
            self._troubles.told(str(stream.peer_id))

    def _is_answer_lost(self) -> bool:
        dice = self._troubles.dice
        if self._protocol == STORE_QUERY_PROTOCOL:
            share = dice.faults.loss if dice.faults.query_loss is None else dice.faults.query_loss
            return bool(share) and not dice.is_answered()
        return self._protocol == LIGHTPUSH_PROTOCOL and not dice.is_confirmed()

    async def _hang(self, stream: Stream) -> None:
        if self._troubles.dice.random.random() < 0.5:
            await self._handler(cast("Stream", _Mute(stream)))
        await asyncio.sleep(_HANGS_S)
        raise StreamResetError("this service node never answers")

    async def _without_an_answer(self, stream: Stream) -> None:
        await self._handler(cast("Stream", _Mute(stream)))
        if self._troubles.dice.random.random() < 0.5:
            await asyncio.sleep(_HANGS_S)
        elif self._protocol == LIGHTPUSH_PROTOCOL:
            self._troubles.dropped(self._number)
        raise StreamResetError("the answer of this service node is lost")

    async def _never_answer(self, stream: Stream) -> Never:
        self._troubles.failed(str(stream.peer_id), self._number, self._protocol)
        await asyncio.sleep(_HANGS_S)
        raise StreamResetError("this service node never answers")

    async def _answer(self, stream: Stream, code: StatusCode, relayed_to: int = _CLAIMED) -> None:
        """Answer a request with a status code, whatever it asks for."""
        data = await stream.read_frame(_REQUEST_BYTES) or b""
        try:
            response = self._response(data, code, relayed_to)
        except DecodeError as error:
            raise StreamResetError("no request") from error
        await stream.write_frame(response)
        await stream.close()

    def _response(self, data: bytes, code: StatusCode, relayed_to: int) -> bytes:
        if self._protocol == FILTER_SUBSCRIBE_PROTOCOL:
            wanted = decode_filter_subscribe_request(data)
            return encode_filter_subscribe_response(
                FilterSubscribeResponse(request_id=wanted.request_id, status_code=code, status_desc=code.name)
            )
        if self._protocol == STORE_QUERY_PROTOCOL:
            asked = decode_store_query_request(data)
            return encode_store_query_response(
                StoreQueryResponse(request_id=asked.request_id, status_code=code, status_desc=code.name)
            )
        request = decode_lightpush_request(data, max_bytes=_REQUEST_BYTES)
        message = RoutedMessage.of(request.pubsub_topic or "", request.message(), request.message_bytes)
        self._troubles.pushed(message.message_hash, self._number)
        if code == StatusCode.SUCCESS:
            if relayed_to:
                self._troubles.claimed(message.message_hash)
            self._troubles.swallowed(message)
        else:
            self._troubles.refused(message.message_hash, code, self._number)
        return encode_lightpush_response(
            LightPushResponse(
                request_id=request.request_id, status_code=code, status_desc=code.name, relay_peer_count=relayed_to
            )
        )


class _Around:
    """A stream that does something else on the way out."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def close(self) -> None:
        """Leave it to who made this to end the stream."""


class _Mute(_Around):
    """A stream on which nothing gets out."""

    async def write(self, data: bytes) -> None:
        """Drop what is written."""


class _Spoiled(_Around):
    """A stream on which an answer gets out that is none."""

    def __init__(self, stream: Stream, garbling: Garbling, dice: random.Random) -> None:
        super().__init__(stream)
        self._garbling, self._dice = garbling, dice

    async def write(self, data: bytes) -> None:
        """Send an answer, or what comes in place of it."""
        write: Callable[[bytes], Awaitable[None]] = self._stream.write
        dice = self._dice
        match self._garbling:
            case Garbling.CUT_SHORT:
                await write(data[: dice.randrange(len(data))])
            case Garbling.RESET:
                await write(data[: dice.randrange(len(data))])
                raise StreamResetError("the stream breaks within an answer")
            case Garbling.DAMAGED:
                damaged = bytearray(data)
                for _ in range(dice.randint(1, 4)):
                    damaged[dice.randrange(len(damaged))] ^= 1 << dice.randrange(8)
                await write(bytes(damaged))
            case Garbling.NOTHING:
                return
            case Garbling.TOO_LONG:
                await write(b"\xff\xff\xff\xff\x7f" + data)
            case Garbling.OTHER:
                await write(b"\x0a\x0a\x08someoneelse"[:11])
            case Garbling.TRICKLING:
                size = max(1, len(data) // _PIECES)
                for first in range(0, len(data), size):
                    await write(data[first : first + size])
                    await asyncio.sleep(_TRICKLE_S)

    async def close(self) -> None:
        """End the stream."""
        await self._stream.close()
