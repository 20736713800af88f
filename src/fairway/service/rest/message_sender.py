"""`MessageSender`: sends the messages of ``/messaging/v1``, and records the outcome of each.

A message that no peer accepts is retried for `SEND_FOR_S`; then the send ends with the event ``error``. An invalid
message ends at once. A message is ``propagated`` when a peer has it, and ``sent`` when an archive has it: the node's,
or else that of a store peer. The archive is queried for `CONFIRM_FOR_S`, except for ephemeral messages.

Invariant: at most `MAX_SENDS` messages wait to be propagated, and `MAX_UNCONFIRMED` hashes for an archive.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import uuid
from dataclasses import dataclass
from typing import Final

from fairway.bounded import BoundedDict
from fairway.environment import monotonic_s, time_ns
from fairway.errors import FairwayError
from fairway.nodes.message_store import MAX_PAGE_SIZE
from fairway.nodes.node import RoutedMessage, SendResult, StoreQuery
from fairway.nodes.proving import with_proof
from fairway.owned_tasks import OwnedTasks
from fairway.service.node import ServiceNode
from fairway.service.parts import NodeParts
from fairway.service.rest.answers import RefusedError
from fairway.service.rest.caches import SendEvents, SendKind
from fairway.service.rest.store_peers import ask_store_peers
from fairway.wire.store import StoreQueryRequest

MAX_SENDS: Final = 256
"""Most messages that wait to be propagated; a further one is refused."""
MAX_UNCONFIRMED: Final = 10_000
"""Propagated messages that wait for an archive; beyond it the oldest is evicted."""
MAX_ASKED: Final = 1_000
"""Most propagated messages in one query."""
SEND_FOR_S: Final = 60.0
RETRY_S: Final = 1.0
CONFIRM_FOR_S: Final = 60.0
CONFIRM_EVERY_S: Final = 1.0
_REQUEST_ID_BYTES: Final = 10
_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Propagated:
    request_id: str
    until_s: float


class MessageSender:
    """The sends of one server."""

    def __init__(self, node: ServiceNode, parts: NodeParts, events: SendEvents) -> None:
        self._node: Final = node
        self._parts: Final = parts
        self._events: Final = events
        self._tasks: Final = OwnedTasks()
        self._confirming: asyncio.Task[None] | None = None
        self._waiting = 0
        self._unconfirmed: BoundedDict[bytes, _Propagated] = BoundedDict(MAX_UNCONFIRMED)
        self.unconfirmed = 0
        """Propagated messages that no archive held in time."""

    def send(self, message: RoutedMessage) -> str:
        """Send a message, and return the request id of its events. Raises `RefusedError` beyond `MAX_SENDS`."""
        if self._waiting >= MAX_SENDS:
            raise RefusedError(503, f"Send failed: {MAX_SENDS} messages wait to be propagated; try again later")
        request_id = secrets.token_hex(_REQUEST_ID_BYTES)
        self._waiting += 1
        self._tasks.spawn(self._send(request_id, message))
        return request_id

    async def close(self) -> None:
        """Cancel all sends. Can be called twice."""
        await self._tasks.close()

    async def _send(self, request_id: str, message: RoutedMessage) -> None:
        try:
            result = await self._propagate(message)
        finally:
            self._waiting -= 1
        if not result.accepted:
            self._record(request_id, "error", message, result.detail)
            return
        self._record(request_id, "propagated", message)
        if not message.message.ephemeral:
            propagated = _Propagated(request_id, monotonic_s() + CONFIRM_FOR_S)
            self.unconfirmed += self._unconfirmed.put(message.message_hash, propagated) is not None
            if self._confirming is None or self._confirming.done():
                self._confirming = self._tasks.spawn(self._confirm())

    async def _propagate(self, message: RoutedMessage) -> SendResult:
        until_s = monotonic_s() + SEND_FOR_S
        while True:
            result = await self._attempt(message)
            if result.accepted or result.permanent or monotonic_s() >= until_s:
                return result
            await asyncio.sleep(RETRY_S)

    async def _attempt(self, message: RoutedMessage) -> SendResult:
        try:
            proven = await with_proof(self._node.rln, message)
            return proven if isinstance(proven, SendResult) else await self._node.send(proven)
        except FairwayError as error:
            return SendResult(accepted=False, detail=str(error))

    async def _confirm(self) -> None:
        while self._unconfirmed:
            await asyncio.sleep(CONFIRM_EVERY_S)
            asked = tuple(self._unconfirmed)[:MAX_ASKED]
            held: set[bytes] = set()
            try:
                for begin in range(0, len(asked), MAX_PAGE_SIZE):
                    held |= await self._held(asked[begin : begin + MAX_PAGE_SIZE])
            except FairwayError as error:
                _LOG.debug("no archive answers: %s", error)
            now_s = monotonic_s()
            for message_hash in asked:
                known = self._unconfirmed.pop(message_hash, None)
                if known is not None and message_hash in held:
                    self._events.record(known.request_id, "sent", message_hash, time_ns())
                elif known is not None and known.until_s <= now_s:
                    self.unconfirmed += 1
                elif known is not None:
                    self._unconfirmed[message_hash] = known  # behind the others, which are asked for first next time

    async def _held(self, hashes: tuple[bytes, ...]) -> set[bytes]:
        """Return those of some message hashes that an archive holds."""
        parts, held = self._parts, set[bytes]()
        if parts.archive is not None:
            query, cursor = StoreQuery(message_hashes=hashes, page_size=len(hashes)), None
            while True:
                page = await parts.archive.page(query, cursor)
                held |= {message.message_hash for message in page.messages}
                cursor = page.cursor
                if cursor is None:
                    return held
        asked = StoreQueryRequest(
            request_id=str(uuid.uuid4()), message_hashes=hashes, pagination_forward=True, pagination_limit=len(hashes)
        )
        answered = await ask_store_peers(parts.requests, asked)
        return {message.message_hash for message in answered.messages}

    def _record(self, request_id: str, kind: SendKind, message: RoutedMessage, error: str = "") -> None:
        self._events.record(request_id, kind, message.message_hash, time_ns(), error)
