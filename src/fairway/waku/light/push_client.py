"""Light push, the client side: a message through two service nodes at a time, and others when those fail (seed 004).

Invariant: a message counts as sent if a node said 200; a node that said so but relayed it to nobody is believed only
when no other node does better. 503 and 505 are alike: that node reaches nobody now.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from fairway.errors import DecodeError
from fairway.waku.libp2p.errors import Libp2pError
from fairway.waku.libp2p.host import Host
from fairway.waku.libp2p.peer_id import PeerId
from fairway.waku.light.options import LightOptions
from fairway.waku.light.peer_pool import PeerPool
from fairway.waku.node import RoutedMessage, SendResult
from fairway.waku.protocols.exchange import ask
from fairway.wire.lightpush import (
    LIGHTPUSH_PROTOCOL,
    MAX_RESPONSE_BYTES,
    ClientAction,
    LightPushRequest,
    LightPushResponse,
    decode_lightpush_response,
    encode_lightpush_request,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    peer: PeerId
    response: LightPushResponse | None
    """None if there was none."""
    detail: str

    @property
    def relayed(self) -> bool:
        """Whether the message reached somebody, or the node does not say to how many it relayed."""
        return self.taken and self.response is not None and self.response.relay_peer_count != 0

    @property
    def taken(self) -> bool:
        """Whether the node said 200."""
        return self.response is not None and self.response.is_success

    @property
    def permanent(self) -> bool:
        """Whether every node would refuse."""
        return self.response is not None and self.response.action is ClientAction.NEVER_RESEND_UNCHANGED


class PushClient:
    """Sends messages through the peers of a pool."""

    def __init__(self, host: Host, pool: PeerPool, options: LightOptions) -> None:
        self._host: Final = host
        self._pool: Final = pool
        self._options: Final = options

    async def push(self, message: RoutedMessage, *, avoiding: Iterable[PeerId] = ()) -> SendResult:
        """Send a message; peers to avoid are used when there is no other."""
        avoided = set(avoiding)
        peers = sorted(self._pool.serving(LIGHTPUSH_PROTOCOL), key=lambda peer: peer in avoided)
        peers = peers[: self._options.max_push_attempts]
        answers: list[_Answer] = []
        step = self._options.peers_to_use
        for first in range(0, len(peers), step):
            answers += await asyncio.gather(*(self._ask(peer, message) for peer in peers[first : first + step]))
            if any(answer.relayed for answer in answers) or all(answer.permanent for answer in answers):
                break
        return _result(answers)

    async def _ask(self, peer: PeerId, message: RoutedMessage) -> _Answer:
        request = LightPushRequest(
            request_id=str(uuid.uuid4()), pubsub_topic=message.pubsub_topic, message_bytes=message.encoded
        )
        try:
            encoded = await ask(
                self._host,
                peer,
                LIGHTPUSH_PROTOCOL,
                encode_lightpush_request(request),
                max_response_bytes=MAX_RESPONSE_BYTES,
                timeout_s=self._options.request_timeout_s,
            )
            response = decode_lightpush_response(encoded)
        except (Libp2pError, TimeoutError, DecodeError) as error:
            self._pool.failed(peer, LIGHTPUSH_PROTOCOL)
            return _Answer(peer=peer, response=None, detail=str(error) or "no response in time")
        if response.action in {ClientAction.DONE, ClientAction.NEVER_RESEND_UNCHANGED}:
            self._pool.served(peer, LIGHTPUSH_PROTOCOL)
        else:
            self._pool.failed(peer, LIGHTPUSH_PROTOCOL)
        return _Answer(peer=peer, response=response, detail=f"{response.status_code} {response.status_desc or ''}")


def _result(answers: Sequence[_Answer]) -> SendResult:
    if any(answer.taken for answer in answers):
        return SendResult(accepted=True)
    if not answers:
        return SendResult(accepted=False, detail="no light push peer is connected")
    detail = "; ".join(f"{answer.peer}: {answer.detail}".strip() for answer in answers)
    # One node that refuses for good does not speak for those that could not take it just now.
    told = [answer.permanent for answer in answers if answer.response is not None]
    return SendResult(accepted=False, permanent=bool(told) and all(told), detail=detail)
