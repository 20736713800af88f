"""`Worker`: takes the requests of a group for this participant, one at a time (`fairway.protocol.work_queue`).

The inbox keeps the requests that are not over, and the history of the channel has the claims, so a restart knows both.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from fairway.channel.history import HistoryMessage
from fairway.channel.receipt import Receipt
from fairway.errors import DeliveryFailedError, FairwayError
from fairway.events import OrderKey
from fairway.protocol.work_queue import LEASE_MS, RENEW_MS, SETTLE_MS, TURN_MS, RequestKey, WorkQueue
from fairway.waiters import Waiters
from fairway.wire.envelope import Envelope, EnvelopeKind

_LOG: Final = logging.getLogger("fairway.channel")
_RETRY_MS: Final = 60_000
"""Pause after a failure, unless the channel is started before."""


class Worker:
    """One participant in a group."""

    def __init__(
        self,
        group: str,
        sender_id: str,
        now_ms: Callable[[], int],
        send: Callable[..., Awaitable[Receipt]],
        history: Callable[[], Awaitable[Iterable[HistoryMessage]]],
        is_synced: Callable[[], bool],
        offer: Callable[[RequestKey], None],
        wants: Callable[[], bool],
    ) -> None:
        """``offer`` hands a request to the application; ``wants`` returns whether the application asks for one.

        ``is_synced`` returns whether no message is known to be missing. It, ``send`` and ``history`` raise a
        `FairwayError` while the channel is stopped.
        """
        self._group = group
        self._queue = WorkQueue(sender_id)
        self._now_ms = now_ms
        self._send = send
        self._history = history
        self._is_synced = is_synced
        self._offer = offer
        self._wants = wants
        self._changed = Waiters()
        self._held: RequestKey | None = None
        """The request that the last claim of this worker names."""
        self._begun: RequestKey | None = None
        """The request that the application has."""
        self._claims_at_ms: int | None = None
        """When to send the claim again."""

    def add(self, request: RequestKey) -> None:
        """Note a request that is not over."""
        self._queue.add(request, self._now_ms())
        self._changed.wake()

    def remove(self, request: RequestKey) -> None:
        """Note that a request is over."""
        self._queue.remove(request)
        self._changed.wake()

    def claimed(self, worker: str, envelope: Envelope, place: OrderKey | None) -> None:
        """Note a claim of another worker."""
        if place is not None:
            self._queue.claimed(worker, _request_of(envelope), place, self._now_ms())
        self._changed.wake()

    def left(self, worker: str) -> None:
        """Note that another worker is gone."""
        self._queue.left(worker, self._now_ms())
        self._changed.wake()

    def wake(self) -> None:
        """Look again whether the application asks for a request, or the channel is started."""
        self._changed.wake()

    async def run(self) -> None:
        """Take requests until the task is cancelled."""
        while True:
            try:
                await self._begin()
                while True:
                    await self._take_one()
            except FairwayError as error:
                _LOG.info("a worker of group %s waits: %s", self._group, error)
                await self._wait(self._now_ms() + _RETRY_MS)

    async def _begin(self) -> None:
        """Learn the claims of others, and the last own one; tell the others of this worker."""
        held = None
        for message in await self._history():
            envelope = Envelope.decode(message.payload)
            if envelope is None or envelope.kind is not EnvelopeKind.CLAIM or envelope.group != self._group:
                continue
            if message.is_own:
                held = _request_of(envelope)
            else:
                self._queue.claimed(message.sender_id, _request_of(envelope), message.order_key, self._now_ms())
        await self._claim(next((request for request in (self._begun, held) if request in self._queue.open), None))
        begun_ms = self._now_ms()
        while self._now_ms() < begun_ms + (2 * SETTLE_MS if self._is_synced() else TURN_MS):
            await self._wait_and_renew(self._now_ms() + SETTLE_MS)

    async def _take_one(self) -> None:
        """Wait for a request, claim it, and hand it to the application, if no other worker comes first."""
        request = self._held
        is_resumed, is_first = request is not None, request == self._begun
        if request is None:
            choice = self._queue.next(self._now_ms()) if self._wants() else None
            if choice is None or choice.at_ms > self._now_ms():
                await self._wait_and_renew(None if choice is None else choice.at_ms)
                return
            request = choice.request
            is_first = self._queue.take(request, self._now_ms())
            try:
                await (await self._claim(request)).sent()
            except DeliveryFailedError:
                self._held = None
                return
        if not is_first:
            until_ms = self._now_ms() + SETTLE_MS
            while request in self._queue.open and self._now_ms() < until_ms:
                await self._wait_and_renew(until_ms)
            if not self._queue.may_begin(request, self._now_ms(), is_resumed=is_resumed):
                await self._claim(None)
                return
        if request != self._begun and request in self._queue.open:
            self._begun = request
            self._offer(request)
        while request in self._queue.open:
            await self._wait_and_renew(None)
        self._held = self._begun = self._claims_at_ms = None

    async def _claim(self, request: RequestKey | None) -> Receipt:
        """Send what this worker works on."""
        self._held = request
        self._claims_at_ms = None if request is None else self._now_ms() + RENEW_MS
        requester, correlation_id = request or ("", "")
        claim = Envelope(b"", kind=EnvelopeKind.CLAIM, to=requester, correlation_id=correlation_id, group=self._group)
        return await self._send(claim, deadline=LEASE_MS / 1_000)

    async def _wait_and_renew(self, until_ms: int | None) -> None:
        """Wait for a change, or until a time; send the claim again if it is time to."""
        claims_at_ms = self._claims_at_ms
        await self._wait(min((at for at in (until_ms, claims_at_ms) if at is not None), default=None))
        if self._claims_at_ms is not None and self._claims_at_ms <= self._now_ms():
            await self._claim(self._held)

    async def _wait(self, until_ms: int | None) -> None:
        try:
            async with asyncio.timeout(None if until_ms is None else max(0, until_ms - self._now_ms()) / 1_000):
                await self._changed.wait()
        except TimeoutError:
            return


def _request_of(claim: Envelope) -> RequestKey | None:
    return RequestKey(claim.to, claim.correlation_id) if claim.correlation_id else None
