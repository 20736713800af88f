"""`PushClient`: sends a message by light push through two service nodes at a time, and through others if those fail.

WAKU-LIGHTPUSH; WAKU-P2P-RELIABILITY, "Lightpush".

A node is asked in the latest version that it serves: 3, or 2, which go-waku has and which has no status codes: there
they are read from what it says. Invariants: a message counts as sent if a node said 200, and as refused for good if all
nodes said so; a node that said 200 but relayed it to nobody is believed only when no other node does better. A message
that is sent again, because no store has it, goes first to nodes that have not taken it. 503 and 505 are alike: that
node reaches nobody now. A node that is silent holds nothing up: the next one is asked as soon as another one failed,
and a send ends with the first node that relayed the message, while the request to the other one goes on.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from fairway.environment import new_uuid
from fairway.errors import DecodeError
from fairway.waku.libp2p.errors import Libp2pError
from fairway.waku.libp2p.host import Host
from fairway.waku.libp2p.peer_id import PeerId
from fairway.waku.light.options import LightOptions
from fairway.waku.light.peer_pool import PeerPool
from fairway.waku.node import RoutedMessage, SendResult
from fairway.waku.owned_tasks import OwnedTasks
from fairway.waku.protocols.exchange import ask
from fairway.wire.lightpush import (
    LIGHTPUSH_PROTOCOL,
    LIGHTPUSH_V2_PROTOCOL,
    MAX_RESPONSE_BYTES,
    ClientAction,
    LightPushRequest,
    LightPushResponse,
    PushResponseV2,
    StatusCode,
    decode_lightpush_response,
    decode_push_response_v2,
    encode_lightpush_request,
    encode_push_request_v2,
)

PUSH_PROTOCOLS: Final = (LIGHTPUSH_PROTOCOL, LIGHTPUSH_V2_PROTOCOL)
"""Protocols of light push, the preferred one first."""

_MAX_ATTEMPTS: Final = 6
"""Requests made for one message before it counts as not sent."""
_NEEDS_PROOF: Final = "the network asks for RLN proofs: connect with rln=fairway.RlnMembership(...)"
_NO_REQUEST_ID: Final = "N/A"
"""go-waku and nwaku refuse a request for its peer's rate before they read it, so they cannot repeat its id."""
_SAID_BY_V2: Final = (
    (("rate limit", "TOO_MANY_REQUESTS"), StatusCode.TOO_MANY_REQUESTS),
    (("not_published_to_any_peer", "not enough peers"), StatusCode.NO_PEERS_TO_RELAY),
    (("unsubscribed topic",), StatusCode.UNSUPPORTED_PUBSUB_TOPIC),
    (("message size exceed",), StatusCode.PAYLOAD_TOO_LARGE),
    (("invalid request", "decode_rpc_failure", "empty_request_body_failure"), StatusCode.BAD_REQUEST),
)
"""Error texts of go-waku and nwaku -> status code of version 3; other texts are failures of the node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    peer: PeerId
    response: LightPushResponse | None
    """None if there was none."""
    detail: str

    @property
    def relayed(self) -> bool:
        """Whether the node relayed the message to a peer, or does not say."""
        return self.taken and self.response is not None and self.response.relay_peer_count != 0

    @property
    def taken(self) -> bool:
        """Whether the node said 200."""
        return self.response is not None and self.response.is_success

    @property
    def too_many(self) -> bool:
        """Whether the node accepts the message later (429)."""
        return self.response is not None and self.response.action is ClientAction.RETRY_LATER

    @property
    def permanent(self) -> bool:
        """Whether every node would refuse."""
        return self.response is not None and self.response.action is ClientAction.NEVER_RESEND_UNCHANGED


class PushClient:
    """Sends messages through the peers of a pool."""

    def __init__(self, host: Host, pool: PeerPool, options: LightOptions, tasks: OwnedTasks) -> None:
        """``tasks`` are those of the node, which hold the requests."""
        self._host: Final = host
        self._pool: Final = pool
        self._options: Final = options
        self._tasks: Final = tasks
        self._takers: OrderedDict[bytes, set[PeerId]] = OrderedDict()
        """Nodes that said 200, by message hash, for as many messages as are watched."""

    async def push(self, message: RoutedMessage) -> SendResult:
        """Send a message."""
        takers = self._takers.get(message.message_hash, ())
        # What a store lacks was not relayed by those that took it: others come first when it is sent again.
        peers = sorted(self._pool.serving(*PUSH_PROTOCOLS), key=lambda peer: peer in takers)
        untried = deque(peers[:_MAX_ATTEMPTS])
        answers: list[_Answer] = []
        asked: set[asyncio.Task[None]] = set()
        try:
            while (untried or asked) and not any(answer.relayed for answer in answers):
                while untried and len(asked) < self._options.peers_to_use:
                    asked.add(self._tasks.spawn(self._try(untried.popleft(), message, answers)))
                done, asked = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
                if any(task.cancelled() for task in done):
                    break  # the node closes
        except asyncio.CancelledError:
            for task in asked:
                task.cancel()
            raise
        return _result(answers)

    async def _try(self, peer: PeerId, message: RoutedMessage, answers: list[_Answer]) -> None:
        """Send a message through one node, and add its answer."""
        answer = await self._ask(peer, message)
        answers.append(answer)
        if answer.taken and not message.message.ephemeral:
            self._takers.setdefault(message.message_hash, set()).add(peer)
            if len(self._takers) > self._options.max_presence:
                self._takers.popitem(last=False)

    async def _ask(self, peer: PeerId, message: RoutedMessage) -> _Answer:
        served = self._host.protocols_of(peer)
        protocol = next((protocol for protocol in PUSH_PROTOCOLS if protocol in served), LIGHTPUSH_PROTOCOL)
        encode, decode = _VERSIONS[protocol]
        request = LightPushRequest(
            request_id=new_uuid(), pubsub_topic=message.pubsub_topic, message_bytes=message.encoded
        )
        try:
            encoded = await ask(
                self._host,
                peer,
                protocol,
                encode(request),
                max_response_bytes=MAX_RESPONSE_BYTES,
                timeout_s=self._options.request_timeout_s,
            )
            response = decode(encoded)
        except (Libp2pError, TimeoutError, DecodeError) as error:
            self._pool.failed(peer, protocol, was_silent=isinstance(error, TimeoutError))
            return _Answer(peer=peer, response=None, detail=str(error) or "no response in time")
        if response.action in {ClientAction.DONE, ClientAction.NEVER_RESEND_UNCHANGED}:
            self._pool.served(peer, protocol)
        else:
            self._pool.failed(peer, protocol)
        return _Answer(peer=peer, response=response, detail=f"{response.status_code} {response.status_desc or ''}")


def _response_v2(encoded: bytes) -> LightPushResponse:
    response = decode_push_response_v2(encoded)
    return LightPushResponse(
        request_id=response.request_id, status_code=_status_of(response), status_desc=response.info
    )


def _status_of(response: PushResponseV2) -> StatusCode:
    """Return the status code of version 3 for a response of version 2."""
    if response.is_success:
        return StatusCode.SUCCESS
    if response.request_id == _NO_REQUEST_ID:
        return StatusCode.TOO_MANY_REQUESTS
    said = (response.info or "").lower()
    for words, status in _SAID_BY_V2:
        if any(word.lower() in said for word in words):
            return status
    return StatusCode.INTERNAL_SERVER_ERROR


_VERSIONS: Final[dict[str, tuple[Callable[[LightPushRequest], bytes], Callable[[bytes], LightPushResponse]]]] = {
    LIGHTPUSH_PROTOCOL: (encode_lightpush_request, decode_lightpush_response),
    LIGHTPUSH_V2_PROTOCOL: (encode_push_request_v2, _response_v2),
}
"""Protocol -> encoder of requests, and decoder of responses."""


def _result(answers: Sequence[_Answer]) -> SendResult:
    if any(answer.taken for answer in answers):
        return SendResult(accepted=True)
    if not answers:
        return SendResult(accepted=False, detail="no light push peer is connected")
    detail = "; ".join(f"{answer.peer}: {answer.detail}".strip() for answer in answers)
    if any(
        answer.response is not None and answer.response.status_code == StatusCode.OUT_OF_RLN_PROOF for answer in answers
    ):
        detail += f" ({_NEEDS_PROOF})"
    # A permanent refusal of one node does not hold for others, which may be right, and take it a moment later.
    return SendResult(
        accepted=False,
        permanent=all(answer.permanent for answer in answers),
        too_many=any(answer.too_many for answer in answers),
        detail=detail,
    )
