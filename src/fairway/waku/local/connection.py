"""`HubConnection`: one client of a `NetworkServer`, between frames and a `LocalNode`.

A misbehaving client loses its own connection, and harms no other. Requests under way and bytes that wait for a slow
reader are bounded; pushes beyond that are dropped and counted.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

from fairway.errors import DecodeError, FairwayError, StoreQueryError
from fairway.waku.local.frames import (
    FROM_CLIENT,
    VERSION,
    Carried,
    Done,
    Failed,
    Filter,
    FromServer,
    Hello,
    Page,
    PublishFrame,
    Pushed,
    Query,
    Request,
    SentFrame,
    StatusFrame,
    Subscribe,
    Unsubscribe,
    Welcome,
    pack,
    read_frame,
)
from fairway.waku.local.node import LocalNode
from fairway.waku.node import NodeQuota, NodeStatus, RoutedMessage, SendResult
from fairway.waku.owned_tasks import OwnedTasks, report
from fairway.waku.subscription import Subscription
from fairway.wire.waku_message import decode_waku_message

_HELLO_TIMEOUT_S: Final = 10.0
_MAX_IN_FLIGHT: Final = 64
_MAX_FILTERS: Final = 1_000


class HubConnection:
    """Serves one client until one side ends it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, max_waiting_bytes: int) -> None:
        self.pushes_dropped = 0
        """Messages that were dropped because this client reads too slowly."""
        self._reader = reader
        self._writer = writer
        self._max_waiting_bytes = max_waiting_bytes
        self._in_flight = asyncio.Semaphore(_MAX_IN_FLIGHT)
        self._one_query = asyncio.Lock()
        self._filters: dict[int, Subscription[RoutedMessage]] = {}
        self._tasks: Final = OwnedTasks(failed=self._failed)

    async def hello(self) -> Hello:
        """Return the client's first frame; raises `DecodeError` or `EOFError` if it is not a `Hello`."""
        try:
            async with asyncio.timeout(_HELLO_TIMEOUT_S):
                hello = await read_frame(self._reader, FROM_CLIENT)
        except TimeoutError as error:
            raise DecodeError(f"the client did not introduce itself within {_HELLO_TIMEOUT_S:.0f} s") from error
        if not isinstance(hello, Hello):
            raise DecodeError(f"the first frame must be Hello, not {type(hello).__name__}")
        if hello.version != VERSION:
            raise DecodeError(f"the client speaks version {hello.version}, this server {VERSION}")
        return hello

    async def serve(self, node: LocalNode, hello: Hello) -> None:
        """Carry out the client's requests; ends with `DecodeError` or `EOFError`."""
        for wanted in hello.filters:
            await self._subscribe(node, wanted)
        self._write(Welcome(name=node.name, status=node.status, quota=_quota_of(node)))
        self._tasks.spawn(self._tell_status(node, node.status_changes()))
        while True:
            request = await read_frame(self._reader, FROM_CLIENT)
            if isinstance(request, Hello):
                raise DecodeError("the client introduced itself twice")
            # Requests begin in the order in which they came; a client with too many under way is not read.
            await self._in_flight.acquire()
            self._tasks.spawn(self._carry_out(node, request)).add_done_callback(lambda _: self._in_flight.release())

    def abort(self) -> None:
        """End the connection without waiting for anything."""
        self._writer.transport.abort()

    async def close(self) -> None:
        """End all tasks for this client."""
        self.abort()
        for subscription in list(self._filters.values()):
            subscription.close()
        await self._tasks.close()

    def _failed(self, error: BaseException) -> None:
        # An answer is missing: the client must connect again.
        self.abort()
        if not isinstance(error, FairwayError | OSError):
            report(error)

    async def _carry_out(self, node: LocalNode, request: Request) -> None:
        match request:
            case PublishFrame():
                await self._publish(node, request)
            case Query():
                await self._query(node, request)
            case Subscribe():
                await self._subscribe(node, request.filter)
                await self._answer(Done(request=request.request))
            case Unsubscribe():
                subscription = self._filters.pop(request.number, None)
                if subscription is not None:
                    subscription.close()

    async def _publish(self, node: LocalNode, request: PublishFrame) -> None:
        try:
            routed = RoutedMessage.of(request.pubsub_topic, decode_waku_message(request.encoded), request.encoded)
        except FairwayError as error:
            result = SendResult(accepted=False, permanent=True, detail=str(error))
        else:
            result = await node.send(routed)
        await self._answer(SentFrame(request=request.request, result=result, quota=_quota_of(node)))

    async def _query(self, node: LocalNode, request: Query) -> None:
        # One at a time, so that a client which does not read its pages does not have many of them waiting here.
        async with self._one_query:
            try:
                page = await node.query(request.query, request.cursor)
            except StoreQueryError as error:
                await self._answer(Failed(request=request.request, detail=str(error)))
            else:
                messages = tuple(Carried.of(message) for message in page.messages)
                await self._answer(Page(request=request.request, messages=messages, cursor=page.cursor))

    async def _subscribe(self, node: LocalNode, wanted: Filter) -> None:
        if wanted.number in self._filters or len(self._filters) >= _MAX_FILTERS:
            raise DecodeError(f"filter {wanted.number} is there already, or more than {_MAX_FILTERS} are")
        subscription = await node.subscribe(wanted.pubsub_topic, wanted.content_topics)
        self._filters[wanted.number] = subscription
        self._tasks.spawn(self._push(wanted.number, subscription))

    async def _push(self, number: int, subscription: Subscription[RoutedMessage]) -> None:
        while batch := await subscription.next_batch():
            for message in batch:
                if self._writer.transport.get_write_buffer_size() > self._max_waiting_bytes:
                    self.pushes_dropped += 1
                else:
                    self._write(Pushed(number=number, message=Carried.of(message)))

    async def _tell_status(self, node: LocalNode, changes: Subscription[NodeStatus]) -> None:
        async for status in changes:
            await self._answer(StatusFrame(status=status, quota=_quota_of(node)))

    async def _answer(self, frame: FromServer) -> None:
        """Write an answer, as soon as the client has read most of the earlier frames."""
        await self._writer.drain()
        self._write(frame)

    def _write(self, frame: FromServer) -> None:
        self._writer.write(pack(frame))


def _quota_of(node: LocalNode) -> NodeQuota | None:
    """Return the rate limit of a node, without the remaining messages, which change with every send."""
    quota = node.quota
    return None if quota is None else replace(quota, remaining=None)
