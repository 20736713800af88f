"""`PushClient`: sends a message by light push through two service nodes at a time, and through others if those fail.

WAKU-LIGHTPUSH; WAKU-P2P-RELIABILITY, "Lightpush".

A node is asked in the latest version that it serves: 3, or 2, which go-waku has and which has no status codes.
`fairway.wire.lightpush.client_action` interprets the answers. Invariants: a push asks each node at most once, and ends
within `SEND_TIMEOUT_S`; it retries nothing later. A message counts as sent if a node took or knows it, and as refused
for good if all nodes refused it for good. A node that took a message but relayed it to no peer decides only if no other
node does better.

A node that relays a message to no peer may know it already (`ClientAction.NOT_RELAYED`). The message counts as known if
any node took an earlier push of the same message hash by this client. It also counts as known if this node left an
earlier push of it without an answer. Otherwise the node refused it.

If a node fails, the next one is asked at once. A push ends with the first node that relayed the message; the request to
the other node continues. Nodes whose streams are all in use are asked last. When the push ends, a request that still
waits for a stream is cancelled, so that slow nodes do not fill the memory.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from fairway.bounded import BoundedDict
from fairway.environment import new_uuid
from fairway.errors import DecodeError
from fairway.libp2p.errors import Libp2pError, LimitError
from fairway.libp2p.host import Host
from fairway.libp2p.peer_id import PeerId
from fairway.nodes.light.options import LightOptions
from fairway.nodes.light.peer_pool import PeerPool
from fairway.nodes.light.sent_confirmation import MAX_WATCHED
from fairway.nodes.node import SEND_TIMEOUT_S, RoutedMessage, SendResult
from fairway.nodes.protocols.peer_requests import PeerRequests
from fairway.owned_tasks import OwnedTasks
from fairway.wire.lightpush import (
    LIGHTPUSH_PROTOCOL,
    LIGHTPUSH_V2_PROTOCOL,
    MAX_RESPONSE_BYTES,
    ClientAction,
    LightPushRequest,
    StatusCode,
    client_action,
    decode_lightpush_response,
    decode_push_response_v2,
    encode_lightpush_request,
    encode_push_request_v2,
)

PUSH_PROTOCOLS: Final = (LIGHTPUSH_PROTOCOL, LIGHTPUSH_V2_PROTOCOL)
"""Protocols of light push, the preferred one first."""

_MAX_ATTEMPTS: Final = 6
"""Nodes that one push asks at most."""
_NO_RESPONSE: Final = "no response in time"
_NEEDS_PROOF: Final = "the network asks for RLN proofs: connect with rln=fairway.rln.RlnMembership(...)"
_NO_REQUEST_ID: Final = "N/A"
"""go-waku and nwaku refuse a request for its peer's rate before they read it, so they cannot repeat its id."""
_BLAMELESS: Final = frozenset({ClientAction.DONE, ClientAction.KNOWN}) | {
    action for action in ClientAction if action.is_final
}
"""Answers of a node that does its service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """The answer of a node, or why there is none."""

    peer: PeerId
    protocol: str
    action: ClientAction
    detail: str = ""
    status_code: int | None = None
    """None in version 2, and if there was no answer."""
    has_no_relay_peers: bool = False
    """Whether the node took the message, and relayed it to no peer."""

    @property
    def is_sent(self) -> bool:
        """Whether the message counts as sent."""
        return self.action in {ClientAction.DONE, ClientAction.KNOWN}


@dataclass(slots=True)
class _Past:
    """The nodes that this client handed a message."""

    took: set[PeerId] = field(default_factory=set)
    silent: set[PeerId] = field(default_factory=set)
    """Nodes that did not answer in time."""
    is_relayed: bool = False
    """Whether a node that took the message relayed it, or gave no relay count."""


@dataclass(slots=True)
class _Push:
    """One push of a message."""

    message: RoutedMessage
    is_only: bool
    """Whether one node serves light push."""
    answers: list[_Answer] = field(default_factory=list)
    waiting: dict[asyncio.Task[None], None] = field(default_factory=dict)
    """Requests that wait for a stream; they are cancelled when the push ends. The others go on."""
    is_late: bool = False
    """Whether the push ended after `SEND_TIMEOUT_S`."""

    @property
    def is_relayed(self) -> bool:
        """Whether a node relayed the message, or knows it."""
        return any(answer.is_sent and not answer.has_no_relay_peers for answer in self.answers)


class PushClient:
    """Pushes through the peers of a pool."""

    def __init__(
        self, host: Host, requests: PeerRequests, pool: PeerPool, options: LightOptions, tasks: OwnedTasks
    ) -> None:
        """``tasks`` are those of the node, which hold the requests."""
        self._host: Final = host
        self._requests: Final = requests
        self._pool: Final = pool
        self._options: Final = options
        self._tasks: Final = tasks
        self._past: BoundedDict[bytes, _Past] = BoundedDict(MAX_WATCHED)
        """By message hash, for the newest messages."""

    async def push(self, message: RoutedMessage) -> SendResult:
        """Send a message, within `SEND_TIMEOUT_S`."""
        peers = self._choose(message)
        push = _Push(message, is_only=len(peers) == 1)
        untried = deque(peers)
        asked: set[asyncio.Task[None]] = set()
        loop = asyncio.get_running_loop()
        end_s = loop.time() + SEND_TIMEOUT_S
        try:
            while (untried or asked) and not push.is_relayed:
                while untried and len(asked) < self._options.peers_to_use:
                    asked.add(self._tasks.spawn(self._ask(push, untried.popleft())))
                done, asked = await asyncio.wait(
                    asked, timeout=end_s - loop.time(), return_when=asyncio.FIRST_COMPLETED
                )
                push.is_late = not done
                if push.is_late or any(task.cancelled() for task in done):  # a node that closes cancels its tasks
                    break
        except asyncio.CancelledError:
            push.waiting |= dict.fromkeys(asked)
            raise
        finally:
            for task in push.waiting:
                self._tasks.cancel(task)
        return _result(push)

    def _choose(self, message: RoutedMessage) -> list[PeerId]:
        """Return the nodes to ask, the best first."""
        past = self._past.get(message.message_hash, _Past())
        serving = self._pool.serving(*PUSH_PROTOCOLS)
        # The nodes that took the message are asked last: the message is pushed again because no store has it.
        ordered = sorted(
            serving, key=lambda peer: (peer in past.took, self._requests.is_busy(peer, self._protocol_of(peer)))
        )
        return ordered[:_MAX_ATTEMPTS]

    def _protocol_of(self, peer: PeerId) -> str:
        served = self._host.protocols_of(peer)
        is_old = LIGHTPUSH_V2_PROTOCOL in served and LIGHTPUSH_PROTOCOL not in served
        return LIGHTPUSH_V2_PROTOCOL if is_old else LIGHTPUSH_PROTOCOL

    async def _ask(self, push: _Push, peer: PeerId) -> None:
        """Send a message through one node, and add its answer."""
        task = asyncio.current_task()
        assert task is not None
        push.waiting[task] = None
        protocol, message = self._protocol_of(peer), push.message
        encode, read = _VERSIONS[protocol]
        request = LightPushRequest(
            request_id=new_uuid(), pubsub_topic=message.pubsub_topic, message_bytes=message.encoded
        )
        try:
            encoded = await self._requests.ask(
                peer,
                protocol,
                encode(request),
                max_response_bytes=MAX_RESPONSE_BYTES,
                timeout_s=self._options.request_timeout_s,
                begun=lambda: push.waiting.pop(task, None),
                is_only=push.is_only,
            )
            answer = read(peer, encoded)
        except LimitError as error:
            # The request was not sent: the node does not answer as many requests at once.
            answer = _Answer(peer=peer, protocol=protocol, action=ClientAction.RETRY_LATER, detail=str(error))
        except (Libp2pError, TimeoutError, DecodeError) as error:
            was_silent = isinstance(error, TimeoutError)
            if was_silent:
                self._past_of(message).silent.add(peer)
            self._pool.failed(peer, protocol, was_silent=was_silent)
            detail = str(error) or _NO_RESPONSE
            answer = _Answer(peer=peer, protocol=protocol, action=ClientAction.RETRY_ELSEWHERE, detail=detail)
        else:
            answer = self._judged(push, answer)
        finally:
            push.waiting.pop(task, None)
        push.answers.append(answer)

    def _judged(self, push: _Push, answer: _Answer) -> _Answer:
        """Note the answer of a node, and return the action that follows from it."""
        past = self._past.get(push.message.message_hash, _Past())
        if answer.action is ClientAction.NOT_RELAYED and (past.is_relayed or answer.peer in past.silent):
            answer = replace(answer, action=ClientAction.KNOWN)
        if answer.action in _BLAMELESS:
            self._pool.served(answer.peer, answer.protocol)
        else:
            self._pool.failed(answer.peer, answer.protocol)
        if answer.action is ClientAction.DONE:
            past = self._past_of(push.message)
            past.took.add(answer.peer)
            past.is_relayed |= not answer.has_no_relay_peers
            for other in push.answers:
                if other.action is ClientAction.NOT_RELAYED and past.is_relayed:
                    self._pool.served(other.peer, other.protocol)  # it had the message from this node
        return answer

    def _past_of(self, message: RoutedMessage) -> _Past:
        return self._past.setdefault(message.message_hash, _Past())


def _read(peer: PeerId, encoded: bytes) -> _Answer:
    response = decode_lightpush_response(encoded)
    return _Answer(
        peer=peer,
        protocol=LIGHTPUSH_PROTOCOL,
        action=response.action,
        detail=f"{response.status_code} {response.status_desc or ''}".strip(),
        status_code=response.status_code,
        has_no_relay_peers=response.relay_peer_count == 0,
    )


def _read_v2(peer: PeerId, encoded: bytes) -> _Answer:
    response = decode_push_response_v2(encoded)
    if response.is_success:
        action = ClientAction.DONE
    elif response.request_id == _NO_REQUEST_ID:
        action = ClientAction.RETRY_LATER
    else:
        action = client_action(None, response.info)
    detail = response.info or "the node gives no reason"
    return _Answer(peer=peer, protocol=LIGHTPUSH_V2_PROTOCOL, action=action, detail=detail)


_VERSIONS: Final[dict[str, tuple[Callable[[LightPushRequest], bytes], Callable[[PeerId, bytes], _Answer]]]] = {
    LIGHTPUSH_PROTOCOL: (encode_lightpush_request, _read),
    LIGHTPUSH_V2_PROTOCOL: (encode_push_request_v2, _read_v2),
}
"""Protocol -> encoder of requests, and reader of responses."""


def _result(push: _Push) -> SendResult:
    answers = push.answers
    if any(answer.is_sent for answer in answers):
        return SendResult(accepted=True)
    details = [f"{answer.peer}: {answer.detail}".strip() for answer in answers]
    if push.is_late:
        details.append(f"no further response within {SEND_TIMEOUT_S:g} s")
    if not details:
        return SendResult(accepted=False, detail="no light push peer is connected")
    if any(answer.status_code == StatusCode.OUT_OF_RLN_PROOF for answer in answers):
        details[-1] += f" ({_NEEDS_PROOF})"
    # Other nodes may accept later a message that some nodes refuse for good.
    is_whole = not push.is_late
    return SendResult(
        accepted=False,
        permanent=is_whole and all(answer.action.is_final for answer in answers),
        too_large=is_whole and all(answer.action is ClientAction.TOO_LARGE for answer in answers),
        too_many=any(answer.action is ClientAction.RETRY_LATER for answer in answers) or bool(push.waiting),
        unserved=is_whole and all(answer.status_code == StatusCode.UNSUPPORTED_PUBSUB_TOPIC for answer in answers),
        detail="; ".join(details),
    )
