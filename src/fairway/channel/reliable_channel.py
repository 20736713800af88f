"""`ReliableChannel`: RELIABLE-CHANNEL-API and its successor LIP-173, on asyncio.

`create_reliable_channel` makes a channel. It can be started and stopped any number of times, and closed once. Every
start loads the state from the store, as after a crash.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar, overload
from weakref import WeakKeyDictionary

from fairway.channel.batching import SendBatches, Terms
from fairway.channel.clock import Clock, steady_clock
from fairway.channel.engine import Engine
from fairway.channel.handling import MessageHandling
from fairway.channel.history import HistoryMessage, messages_of, place_of
from fairway.channel.inbox import Delivered, Inbox, MessageLoop
from fairway.channel.listeners import EventStream, Handler, Listeners
from fairway.channel.open_stores import close_store, open_store
from fairway.channel.receipt import EphemeralReceipt, Progress, Receipt, ReceiptBook
from fairway.channel.requests import LONGEST_DEADLINE_S, Reply, RequestDesk, RequestHandler, RequestLoop
from fairway.channel.snapshots import HISTORY_PAGE, Snapshot, is_later, look_at, snapshot_of
from fairway.channel.statistics import ChannelStatistics
from fairway.channel.trouble_log import TROUBLES, TroubleLog
from fairway.environment import environment
from fairway.errors import (
    ChannelClosedError,
    ConfigurationError,
    EmptyPayloadError,
    LocalError,
    MessageTooLargeError,
    StorageError,
    copy_of,
)
from fairway.events import (
    ChannelStatus,
    ChunkInfo,
    Event,
    MemberAway,
    MessageReceived,
    MessageSendError,
    MessageSetAside,
    OrderKey,
    SendErrorReason,
)
from fairway.foreign_code import call_in_thread
from fairway.loop_binding import LoopBinding
from fairway.nodes.node import WakuNode
from fairway.options import Receive, ReliableChannelOptions
from fairway.protocol.encryption import Encryption
from fairway.protocol.names import checked_name
from fairway.protocol.outgoing.request import wanted_id, wanted_names
from fairway.protocol.ratelimit import RlnProofProvider
from fairway.protocol.ratelimit.membership import Membership
from fairway.protocol.sds.presence import Member
from fairway.protocol.segmentation.segmenter import logical_message_id
from fairway.protocol.signing import Signing
from fairway.protocol.snapshots import KnownSnapshot
from fairway.protocol.stack import Stack
from fairway.protocol.statistics import Gap
from fairway.storage.channel_store import ChannelStore, SendOutcome, Write
from fairway.storage.sqlite_store import SqliteStore
from fairway.type_checks import check_callback, check_fields, check_type
from fairway.visible import visible
from fairway.wire.envelope import Envelope, EnvelopeKind

if TYPE_CHECKING:
    from fairway.channel.telemetry import Telemetry

E = TypeVar("E")

_SEED_BYTES = 32
_REQUEST_ID_BYTES = 10
_REFUSALS = {
    EmptyPayloadError: SendErrorReason.EMPTY_PAYLOAD,
    MessageTooLargeError: SendErrorReason.MESSAGE_TOO_LARGE,
}
_LOG: Final = logging.getLogger("fairway.channel")
_REPLY_TIMEOUT_S: Final = 30.0
_STORE_WAIT_S: Final = 10.0
"""Wait of `latest_snapshot` for a store node."""
_ENDS: Final = (SendOutcome.DELIVERED, SendOutcome.FAILED)

_MEMBERSHIPS: Final[WeakKeyDictionary[WakuNode, Membership]] = WeakKeyDictionary()
"""The rate limit membership of each node, which all its channels share."""


class ReliableChannel:
    """One participant of a reliable group channel; made by `create_reliable_channel`."""

    def __init__(
        self,
        node: WakuNode,
        channel_id: str,
        sender_id: str,
        content_topic: str,
        *,
        options: ReliableChannelOptions,
        store: ChannelStore,
        receive: Receive | Handler = Receive.LOOP,
        encryption: Encryption | None = None,
        signing: Signing | None = None,
        rln: RlnProofProvider | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Use `create_reliable_channel`."""
        self.channel_id, self.sender_id, self.content_topic = channel_id, sender_id, content_topic
        self.options = options
        self._node = node
        self._store = store
        self._encryption = encryption
        self._signing = signing
        self._rln = node.rln if rln is None else rln
        self._clock = clock or steady_clock()
        self._binding = LoopBinding(f"channel {channel_id!r}")
        self._troubles = TroubleLog(channel_id, sender_id)
        self._receipts = ReceiptBook(store, self._so_far, self._started)
        self._engine: Engine | None = None
        self._receive = receive
        self._telemetry = _telemetry_of(channel_id, sender_id, store, self._queue_lengths)
        self._inbox = Inbox(self._finished, None if self._telemetry is None else self._telemetry.received)
        self._listeners = Listeners(self._inbox, self._binding, finishes=receive is Receive.EVENTS)
        if self._telemetry is not None and not isinstance(receive, Receive):
            receive = self._telemetry.processing(receive)
        self._handling = MessageHandling(self._inbox, options, receive, self._listeners, self._keep)
        self._requests = RequestDesk(
            sender_id,
            self._inbox,
            self._clock,
            self.send,
            self._was_sent,
            self.history,
            lambda: self.status is ChannelStatus.SYNCED,
            lambda: self._started().stack.presence,
            self._telemetry,
        )
        self._finished_late: list[int] = []
        """Numbers of messages that were finished while no store was open."""
        self._failure: BaseException | None = None
        self._is_closed = False
        self._lifecycle = asyncio.Lock()
        self._turn = asyncio.Lock()
        """Waiting sends continue in the order of their calls."""
        self._sends_waiting = 0
        self._snapshots = asyncio.Lock()
        """Held by a snapshot until it is accepted."""
        self._batches = SendBatches(options.batch_ms, self._clock, self._receipts, self._started, self._room)
        # Options that cannot work raise here, not at the first start.
        self._new_stack()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "started" if self.is_started() else "stopped"
        return f"<ReliableChannel {self.channel_id!r} of {self.sender_id!r}, {state}>"

    @staticmethod
    def get_message_id(payload: bytes) -> str:
        """Return the id of a message with this payload: its SHA-256 in lower-case hex.

        RELIABLE-CHANNEL-API, "Send messages": getMessageId.
        """
        return logical_message_id(_bytes_of(payload))

    async def start(self) -> None:
        """Load the state from the store, subscribe, and run all timers (RELIABLE-CHANNEL-API, "Channel lifecycle").

        Does nothing if the channel is started. Raises `ChannelClosedError` after `close`, a `StorageError` if the store
        cannot be used, and `NodeUnavailableError` if the node is closed.
        """
        await self._start(handles=True)

    async def _start(self, *, handles: bool) -> None:
        """Start; with ``handles`` the handler of messages is called."""
        self._open()
        async with self._lifecycle:
            self._open()
            if self._engine is not None and self._failure is None:
                return
            await self._end_engine()
            self._failure = None
            stored = open_store(self, self._store, self._binding)
            try:
                self._inbox.restart()
                self._requests.restart()
                engine = Engine(
                    self._new_stack(),
                    self._node,
                    self._store,
                    self._clock,
                    self._inbox,
                    rln=self._rln,
                    tell=self._tell,
                    hand_over=self._hand_over,
                    failed=self._fail,
                )
                self._engine = engine
                self._handling.load(stored.handling)
                late, self._finished_late = set(self._finished_late), []
                for number in late:
                    self._finished(number)
                for number, message in stored.inbox:
                    if number not in late:
                        self._hand_over(Delivered(number, message))
                await engine.start(stored.changes, stored.first_number)
                if handles:
                    self._handling.start()
            except BaseException:
                await self._end_engine()
                close_store(self)
                raise

    async def stop(self) -> None:
        """Stop all timers and leave the content topic (RELIABLE-CHANNEL-API, "Channel lifecycle").

        Receipts and message loops keep waiting, and continue after the next `start`. When this returns, all earlier
        events have been delivered. Does nothing if the channel is not started.
        """
        self._binding.check()
        async with self._lifecycle:
            await self._send_open_batch()
            await self._end_engine()

    async def close(self) -> None:
        """Stop for good: iterations end, receipts that wait raise `ChannelClosedError`. Can be called twice.

        If the event loop of the channel has ended, this closes the store, from any event loop.
        """
        if self._binding.has_ended:
            self._is_closed = True
            await call_in_thread(None, "the store's close", close_store, self)
            return
        self._binding.check()
        async with self._lifecycle:
            if not self._is_closed:
                await self._send_open_batch()
                self._is_closed = True
                try:
                    await self._end_engine()
                finally:
                    closed = ChannelClosedError("the channel was closed; what was accepted is kept in its store")
                    self._receipts.end(closed)
                    self._inbox.end()
                    self._requests.end(closed, StopAsyncIteration())
                    self._listeners.end()
                await self._listeners.close()
                await self._requests.close()

    def is_started(self) -> bool:
        """Return whether the channel is running (RELIABLE-CHANNEL-API, "Channel lifecycle": isStarted)."""
        return self._engine is not None and self._failure is None and not self._binding.has_ended

    @property
    def status(self) -> ChannelStatus:
        """Whether messages may be missing, or nothing can be sent (`ChannelStatus`).

        Raises `ChannelClosedError` if the channel is not started.
        """
        return self._started().stack.status

    async def send(
        self,
        payload: Envelope | bytes,
        *,
        count: int = 1,
        by: Iterable[str] = (),
        request_id: str | None = None,
        deadline: float | timedelta | None = None,
    ) -> Receipt:
        """Send a message to all participants of the channel (RELIABLE-CHANNEL-API, "Send messages").

        ``payload`` has at least 1 byte and at most ``segmentation.max_message_size_bytes``; an `Envelope` adds headers.
        When this returns, the store holds the message. The channel sends it again until at least ``count``
        participants, among them all sender ids in ``by``, have acknowledged it. After the last retry the send fails
        (`DeliveryError`), and the channel continues at a falling rate, because a participant may return after days.

        ``deadline`` is how long the message is of use, in seconds or as a `timedelta`, counted from this call. After it
        the channel does not transmit the message any more, and the send fails with `SendExpiredError`.

        With a ``request_id`` of your own a send can be repeated safely after a crash: the same id and payload are the
        same send. If it failed, it begins anew, and participants that have the message do not get it again. If not,
        further names in ``by`` or a greater ``count`` apply even after delivery. Both hold as long as the channel
        retains the content; after that the message is sent as a new one.

        With ``batch_ms`` small sends without a ``request_id`` share WakuMessages, if their other arguments are equal.

        Raises `ChannelClosedError` if the channel is not started, `EmptyPayloadError` and `MessageTooLargeError`.
        Raises `ConfigurationError` if ``count`` or ``by`` can never be reached. Raises a `StorageError` if the store
        failed. The message was then not sent, but the store may hold it and the next start may send it. The error names
        the request id for a safe repetition.
        """
        accept = partial(self._accept, count=count, by=by, request_id=request_id, deadline=deadline)
        if self._telemetry is None:
            return await accept(payload)
        return await self._telemetry.send(accept, payload, is_carrier=request_id is None)

    async def _accept(
        self,
        payload: Envelope | bytes,
        *,
        count: int,
        by: Iterable[str],
        request_id: str | None,
        deadline: float | timedelta | None,
    ) -> Receipt:
        """Send a message (`send`)."""
        if self._snapshots.locked():
            # The state of a snapshot that waits for room does not contain this message.
            async with self._snapshots:
                pass
        payload, deadline_ms = _bytes_of(payload), _milliseconds_of(deadline)
        names = wanted_names(count, by, self.sender_id)
        if request_id is None and self._batches.takes(payload):
            receipt, failure = await self._batches.send(payload, Terms(count, names, deadline_ms))
            if failure is not None:
                raise _unsure(failure, receipt.request_id) from failure
            return receipt
        if self.options.batch_ms:
            await self._batches.flushed()
        if request_id is not None:
            wanted_id(request_id)
        known = None if request_id is None else await self._sent_before(payload, request_id)
        if known is None:
            await self._room()
            if request_id is not None:
                # During the wait for room the same request may have been accepted, and may have ended.
                known = await self._sent_before(payload, request_id)
        if known is not None and not known.lacks(count, names):
            # The store may be writing the first send.
            await self._started().durable()
            return known
        return await self._accept_now(
            payload, count=count, names=names, request_id=request_id, deadline_ms=deadline_ms, known=known
        )

    async def send_ephemeral(self, payload: Envelope | bytes) -> EphemeralReceipt:
        """Send a message that may be lost, such as "is typing" (RELIABLE-CHANNEL-API, "Ephemeral messages").

        The message is not segmented, stored, acknowledged or sent again. Near the rate limit it is dropped, with the
        event `EphemeralMessageDropped`. Raises `ChannelClosedError` if the channel is not started,
        `EmptyPayloadError`, and `MessageTooLargeError` if the payload exceeds one segment.
        """
        if self._telemetry is None:
            return await self._accept_ephemeral(payload)
        return await self._telemetry.send(self._accept_ephemeral, payload, is_carrier=True)

    async def _accept_ephemeral(self, payload: Envelope | bytes) -> EphemeralReceipt:
        """Send a message that may be lost (`send_ephemeral`)."""
        payload = _bytes_of(payload)
        engine = self._started()
        async with self._turn:
            await engine.room()
            await engine.publisher.room()
        try:
            accepted = self._started().stack.send_ephemeral(payload, self._clock())
        except LocalError as error:
            self._refuse(payload, error)
            raise
        receipt = self._receipts.new_ephemeral(accepted.request_id, accepted.message_id)
        engine.carry_out(accepted.effects)
        return receipt

    async def snapshot(self, state: bytes) -> Receipt:
        """Publish a state of the application, so that newcomers start from it (`latest_snapshot`).

        The state must contain all received messages that are finished, and all that this participant has sent. In the
        body of a loop or in a handler it also contains the message in hand: call this after applying that message. In
        any other task, first `finish` a message that is applied and still in hand.

        A snapshot is sent like a message, but no participant gets it as one. Raises what `send` raises, among them
        `MessageTooLargeError` for a state that does not fit ``segmentation.max_message_size_bytes``.
        """
        check_type("state", state, bytes, "encode text with .encode()")
        in_hand = {
            *self._inbox.in_hand_of_caller(),
            *self._listeners.in_hand_of_caller(),
            *self._handling.in_hand_of_caller(),
        }
        unfinished = self._unfinished()
        covered = self._started().stack.snapshots.coverage(
            [message for number, message in sorted(unfinished.items()) if number not in in_hand], self._clock()
        )
        payload = Envelope(state, kind=EnvelopeKind.SNAPSHOT, coverage=covered).encode()
        try:
            async with self._snapshots:
                await self._batches.flushed()
                await self._room()
                return await self._accept_now(payload)
        except MessageTooLargeError as error:
            hint = (
                f"the state has {len(state)} bytes of these; raise max_message_size_bytes, or send the state as a file"
            )
            raise MessageTooLargeError(error.size_bytes, error.limit_bytes, hint) from error

    async def latest_snapshot(self) -> Snapshot | None:
        """Return the newest snapshot of the channel to start from, or None; call it before receiving messages.

        The application takes its state in place of its own, and applies the messages of `Snapshot.later`. From then on
        the channel hands over the messages that neither contains, each once, and no others. So call it only to start:
        in a new program, or in one that has lost its state or fallen far behind.

        It searches the part of the store node's archive that this participant has not read, from the newest message
        back, and repeats queries that fail; `asyncio.timeout` bounds it. If no store node is reachable within 10 s, it
        returns the newest snapshot that arrived. If the channel is not started, it runs only for the search. A channel
        with a handler is created with ``auto_start=False``, and started once the application has the state.

        Raises `ChannelClosedError` if the channel stops during the search, and a `StorageError` if the store failed.
        """
        self._open()
        if self._engine is not None:
            return await self._start_from_latest()
        await self._start(handles=False)
        try:
            return await self._start_from_latest()
        finally:
            await self.stop()

    async def request(
        self,
        payload: Envelope | bytes,
        *,
        to: str | None = None,
        group: str | None = None,
        timeout: float | timedelta = _REPLY_TIMEOUT_S,  # noqa: ASYNC109 - it travels with the request
        request_id: str | None = None,
    ) -> Reply:
        """Send a request to one participant, and return its reply; without ``to``, the first reply of any participant.

        A request to a ``group`` is answered by one of the workers that serve it (`requests`). A worker does it at least
        once: a second worker takes it over if the first one is gone.

        ``timeout`` is in seconds, or a `timedelta`. The other side knows it, and does not begin after it. If the call
        is cancelled, the handler of the other side is cancelled, too. With a ``request_id`` of your own a call can be
        repeated after a crash, with the same arguments: it is the same request, and a reply that came meanwhile is
        found among the last 1,000 messages of the history.

        Raises `RequestTimeoutError`, a `TimeoutError`, which says whether the other side has the request;
        `RequestFailedError` if the other side, without ``to`` every present participant, answers that it has no reply;
        `NoOneThereError`, without sending, if the other side is known to be away (`members`); and what `send` raises.
        """
        check_type("timeout", timeout, float | timedelta, "it is in seconds")
        timeout_ms = _milliseconds_of(timeout)
        assert timeout_ms is not None, "a timeout was given"
        if request_id is not None:
            wanted_id(request_id)
        if to is not None:
            checked_name("to", to, "give the sender id of a participant, or leave it out")
        group = _group_of(group)
        if to and group:
            raise ConfigurationError("a request goes to one participant or to a group: give to or group, not both")
        envelope = payload if isinstance(payload, Envelope) else Envelope(_bytes_of(payload))
        self._started()
        envelope = replace(envelope, to=to or "", group=group)
        ask = partial(self._requests.request, timeout_s=timeout_ms / 1_000, request_id=request_id)
        if self._telemetry is None:
            return await ask(envelope)
        return await self._telemetry.request(ask, envelope, is_carrier=request_id is None)

    def requests(self, *, group: str | None = None) -> RequestLoop:
        """Return a loop over the requests of other participants to this one, each once, until the channel closes.

        A request is finished when it is answered, cancelled or expired, so a restart hands an unanswered one over
        again. Requests and replies do not appear in the loop over messages; the history has them.

        With a ``group`` this participant becomes a worker of the group. The workers share the requests to the group:
        each goes to one of them, and a worker has at most one at a time. The next one comes after its reply.
        """
        self._open()
        return self._requests.loop(_group_of(group))

    def on_request(self, handler: RequestHandler, *, group: str | None = None) -> Callable[[], None]:
        """Call ``handler`` with every request, several at a time; return a function that removes the handler.

        Its return value, `bytes` or an `Envelope`, is the reply; None sends none. It may be a coroutine function. If it
        raises, the requester gets a `RequestFailedError`. It is cancelled if the request is cancelled or expires. With
        a ``group`` it gets the requests that this worker takes, one at a time (`requests`).

        Raises `ConfigurationError` if the channel has a handler of these requests.
        """
        self._open()
        check_callback("handler", handler, "a request")
        return self._requests.serve(handler, _group_of(group))

    def receipt(self, request_id: str) -> Receipt:
        """Return the receipt of an earlier send, of this run or an earlier one.

        Raises `ConfigurationError` if the request id is unknown, `ChannelClosedError` if the channel is not started.
        """
        self._started()
        check_type("request_id", request_id, str)
        return self._receipts.get(request_id)

    async def settle(self, request_id: str) -> None:
        """Store that the application has noted the outcome of a send; it is durable when this returns.

        `is_settled` returns True from then on, also after a restart. So a program can distinguish outcomes that it
        knows from new ones. Does nothing if the request id is unknown. Raises `ChannelClosedError` if the channel is
        not started, a `StorageError` if the store failed.
        """
        check_type("request_id", request_id, str)
        durable = self._started().settle(request_id)
        if durable is not None:
            await durable

    def is_settled(self, request_id: str) -> bool:
        """Return whether `settle` was called for a send; raise `ChannelClosedError` if the channel is not started."""
        self._started()
        check_type("request_id", request_id, str)
        stored = self._store.request(request_id)
        return stored is not None and stored.is_settled

    def __aiter__(self) -> MessageLoop:
        """Return a loop over messages of other participants, each once and in causal order.

        ``async for message in channel`` finishes a message when it asks for the next one. An unfinished message is
        delivered again after a restart, with ``redelivered`` set. If the channel has several loops, each message goes
        to one of them.

        Raises `ConfigurationError` if the channel was created with another way to receive.
        """
        self._open()
        if self._receive is not Receive.LOOP:
            way = "events()" if self._receive is Receive.EVENTS else "its handler"
            raise ConfigurationError(
                f"this channel receives by {way}: for a loop over the messages create it without receive="
            )
        return self._inbox.loop()

    def finish(self, message: MessageReceived | MessageSetAside) -> None:
        """Finish a received message: a restart does not hand it over again. A message set aside is discarded.

        Raises `ConfigurationError` if the message does not wait to be finished.
        """
        self._binding.check()
        check_type("message", message, MessageReceived | MessageSetAside, "give the object that was handed over")
        if isinstance(message, MessageReceived):
            self._inbox.finish(self._number_of(message))
        elif message.number in self._handling.set_aside:
            self._finished(message.number)
        else:
            raise ConfigurationError(f"message {message.message_id} is not set aside; see set_aside()")

    def set_aside(self) -> tuple[MessageSetAside, ...]:
        """Return the messages on which handlers raised ``max_handling_attempts`` times, oldest first."""
        return tuple(self._handling.set_aside.values())

    def hand_over_again(self, message: MessageSetAside) -> None:
        """Hand over a message that was set aside, as if it had just arrived; its attempts begin at 0 again.

        Raises `ConfigurationError` if the message is not set aside, a `StorageError` if the store cannot read it.
        """
        self._started()
        check_type("message", message, MessageSetAside, "give one of set_aside()")
        stored = self._store.message(message.number) if message.number in self._handling.set_aside else None
        if stored is None or not self._handling.take_back(message.number):
            raise ConfigurationError(f"message {message.message_id} is not set aside; see set_aside()")
        self._hand_over(Delivered(message.number, replace(stored, redelivered=True)))

    def hand_over_later(self, message: MessageReceived, *, after_ms: int) -> None:
        """Hand a received message over again after a time, or at the next start if that comes first.

        For a message that cannot be handled now, such as a file that does not fit the disk. Until then it counts as
        unread, and neither the loop that yielded it nor `finish` finishes it. The message handed over again has
        ``redelivered`` set.

        Raises `ConfigurationError` if the message does not wait to be finished.
        """
        self._started()
        self._handling.later(self._number_of(message), after_ms / 1_000)

    def events(self) -> EventStream:
        """Return a loop over all events from now on; the first listeners also get the events before them.

        `MessageReceived` is among them. When the loop asks for the next event, it finishes the message before, but only
        in a channel that was created with `Receive.EVENTS`.
        """
        self._open()
        return self._listeners.stream()

    @overload
    def on(self, event: type[E], handler: Callable[[E], object]) -> Callable[[], None]: ...

    @overload
    def on(self, event: str, handler: Handler) -> Callable[[], None]: ...

    def on(self, event: str | type[E], handler: Handler) -> Callable[[], None]:
        """Call ``handler`` with every event of a type; return a function that removes the handler.

        ``event`` is an event class or its name in `EVENT_NAMES`. The handler may be a coroutine function. If it raises,
        the channel logs the exception, emits `HandlerFailed` and continues. The first listeners also get the events
        before them.

        Raises `ConfigurationError` for an unknown name, and for `MessageReceived`: its handler is an argument of
        `create_reliable_channel`.
        """
        self._open()
        return self._listeners.on(event, handler)

    def members(self) -> tuple[Member, ...]:
        """Return the other participants: the present ones first, each group by sender id.

        A member is present from its first message, of any kind, until it says goodbye or is silent for too long
        (docs/presence.md). After a start no member is present until it is heard.
        """
        return self._started().stack.presence.members()

    def gaps(self, limit: int = 100) -> tuple[Gap, ...]:
        """Return the missing cited messages, the longest missing first, each with the messages that wait for it.

        The channel requests the missing ones. The waiting ones are delivered when they arrive, or after
        `SdsConfig.gap_timeout_ms` or `SdsConfig.lost_timeout_ms`.
        """
        check_type("limit", limit, int)
        if limit < 0:
            raise ConfigurationError(f"limit must not be negative, not {limit}")
        return self._started().stack.gaps(limit)

    def statistics(self) -> ChannelStatistics:
        """Return counts since the start, and sizes of buffers now."""
        engine = self._started()
        return ChannelStatistics(
            protocol=engine.stack.statistics(),
            unfinished=len(self._inbox),
            unfinished_bytes=self._inbox.unread_bytes,
            publishing=len(engine.publisher),
            refusal=engine.publisher.refusal,
            uncommitted=len(engine.commits),
            store_queries=engine.retriever.queries,
            store_failures=engine.retriever.failures,
            retrieved=engine.retriever.retrieved,
            store_mismatches=engine.retriever.mismatches,
            dropped=engine.subscription.dropped if engine.subscription is not None else 0,
            events_dropped=self._listeners.dropped(),
            handler_failures=self._listeners.failures,
        )

    async def history(
        self, limit: int = 100, *, before: HistoryMessage | MessageReceived | OrderKey | None = None
    ) -> list[HistoryMessage]:
        """Return the last messages of the channel, received and own ones, in its order; at most ``limit``.

        With ``before``, a message or its `OrderKey`, it returns the last messages before that place. Give the first
        message of one page as ``before`` of the next. The store keeps messages over restarts; a store in memory keeps
        them as long as it exists. The order is the same for all participants: a message follows all messages that its
        sender had received. An unsent own message has the place at which it was accepted.

        The history has a message as soon as it is delivered, finished or not. A late message is inserted at its place.
        The history has no message that was declared irretrievable. Beyond 10,000 messages or 64 MiB (in memory 1,000 or
        8 MiB) the store removes the oldest finished ones. `SqliteStore` takes other bounds as ``kept_messages`` and
        ``kept_message_bytes``.

        Raises `ConfigurationError` for a ``limit`` below 1 and an ephemeral ``before``, `ChannelClosedError` if the
        channel is not started, and a `StorageError` if the store failed.
        """
        if limit < 1:
            raise ConfigurationError(f"limit must be at least 1, not {limit}")
        key = place_of(before)
        await self._started().durable()
        page = await call_in_thread(None, "the store's history", self._store.history, key, limit)
        return list(messages_of(page, self.sender_id, self._store))

    async def backup(self, path: str | PathLike[str]) -> None:
        """Copy the store into a new file, with all messages that were accepted and received before the call.

        The channel keeps running. Raises `ConfigurationError` if the file exists or the channel has no store in a
        file, and a `StorageError` if the copy fails.
        """
        if not isinstance(self._store, SqliteStore):
            raise ConfigurationError(
                f"the state of this channel is in {self._store!r}, not in a file: create the channel with store=PATH"
            )
        check_type("path", path, str | PathLike, "give the path of a new file")
        await asyncio.to_thread(self._store.back_up, Path(path))

    @property
    def protocol(self) -> Stack:
        """The state of the protocol, read-only; raises `ChannelClosedError` if the channel is not started."""
        return self._started().stack

    async def __aenter__(self) -> Self:
        """Start the channel if it is not started."""
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the channel. Without an exception, messages that a loop has taken are finished."""
        if kind is None and self._receive is Receive.LOOP:
            self._inbox.finish_in_hand()
        await self.close()

    def _new_stack(self) -> Stack:
        return Stack(
            self.channel_id,
            self.sender_id,
            self.content_topic,
            self.options,
            now_ms=self._clock(),
            seed=environment().random_bytes(_SEED_BYTES),
            encryption=self._encryption,
            signing=self._signing,
            proves=self._rln is not None,
            membership=_MEMBERSHIPS.setdefault(self._node, Membership()),
        )

    def _open(self) -> None:
        if self._is_closed:
            raise ChannelClosedError("the channel is closed; create a new one with the same store to go on")
        self._binding.check()

    def _started(self) -> Engine:
        self._open()
        if self._failure is not None:
            raise copy_of(self._failure)
        if self._engine is None:
            raise ChannelClosedError("the channel is not started; await channel.start(), or use 'async with channel:'")
        return self._engine

    async def _room(self) -> None:
        """Wait for room for a send; the sends that wait continue in the order of their calls."""
        if not self._sends_waiting and self._started().has_room:
            return
        self._sends_waiting += 1
        try:
            async with self._turn:
                await self._started().room()
        finally:
            self._sends_waiting -= 1

    async def _send_open_batch(self) -> None:
        """Send the open batch before a stop, unless it would have to wait for room."""
        if self._engine is not None and self.is_started() and self._engine.has_room:
            await self._batches.flushed()

    async def _end_engine(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            try:
                await engine.stop()
            except (Exception, asyncio.CancelledError):
                close_store(self)
                raise
            self._handling.stop()
            await call_in_thread(None, "the store's close", close_store, self)
            # The events of the last writes are delivered before a new start.
            await engine.commits.passed()

    def _fail(self, error: BaseException) -> None:
        """Stop sending, and raise ``error`` in all waiting calls."""
        _LOG.error("channel %s has failed, and sends and receives nothing", visible(self.channel_id), exc_info=error)
        self._failure = error
        self._receipts.end(error)
        self._inbox.end(error)
        self._requests.end(error)
        self._listeners.end(error)

    async def _accept_now(
        self,
        payload: bytes,
        *,
        count: int = 1,
        names: frozenset[str] = frozenset(),
        request_id: str | None = None,
        deadline_ms: int | None = None,
        known: Receipt | None = None,
    ) -> Receipt:
        """Accept a send for which there is room, before anything else runs; return once the store holds it."""
        engine, now_ms = self._started(), self._clock()
        try:
            accepted = engine.stack.send(
                payload,
                now_ms,
                required_count=count,
                required_from=names,
                request_id=request_id,
                deadline_ms=deadline_ms,
            )
        except LocalError as error:
            self._refuse(payload, error, request_id)
            raise
        receipt = self._receipts.new(accepted.request_id, accepted.message_id)
        if known is not None:
            receipt.reopen(count, names)
        try:
            durable = engine.send(accepted, payload, now_ms, is_repeated=known is not None)
            if durable is not None:
                # Cancellation of the caller does not cancel the write.
                await durable
        except StorageError as error:
            raise _unsure(error, accepted.request_id) from error
        return receipt

    async def _start_from_latest(self) -> Snapshot | None:
        engine = self._started()
        known = await self._found_snapshot(engine)
        if self._started() is not engine:
            return await self._start_from_latest()
        if known is None:
            return None
        engine.carry_out(engine.stack.start_from(known, self._clock()))
        coverage = known.coverage(self._clock())
        await engine.durable()
        unfinished = self._unfinished()
        for number, message in unfinished.items():
            if self._is_covered(message):
                self._inbox.drop(number)
                self._finished(number)
        pages = [await self.history(HISTORY_PAGE)]
        while len(pages[0]) == HISTORY_PAGE:
            pages.insert(0, await self.history(HISTORY_PAGE, before=pages[0][0]))
        waiting = {message.order_key for message in (unfinished | self._unfinished()).values()}
        later = (each for page in pages for each in page if each.order_key not in waiting and is_later(each, coverage))
        return snapshot_of(known, later)

    async def _found_snapshot(self, engine: Engine) -> KnownSnapshot | None:
        """Return the newest snapshot: the known one, or a newer one in the archive of the store node."""
        search = engine.stack.search_snapshots(self._clock())
        if search is None or not await self._has_store():
            return engine.stack.snapshots.newest

        def is_wanted() -> bool:
            return self._started() is engine and not search.is_done

        await engine.retriever.look_back(search.query, lambda routed: look_at(search, routed, self._clock()), is_wanted)
        return search.found

    async def _has_store(self) -> bool:
        """Return whether a store node is reachable, after a wait: of all nodes it may be found last."""
        try:
            async with asyncio.timeout(_STORE_WAIT_S):
                async for status in self._node.status_changes():
                    if status.connected and status.store:
                        return True
        except TimeoutError:
            _LOG.info("channel %s: no store node to search for a snapshot", visible(self.channel_id))
        return False

    def _unfinished(self) -> dict[int, MessageReceived]:
        """Return the received messages that the application has not finished, by number."""
        aside = {number: self._store.message(number) for number in self._handling.set_aside}
        return {number: each for number, each in aside.items() if each is not None} | self._inbox.unfinished()

    def _is_covered(self, message: MessageReceived) -> bool:
        """Return whether the snapshot from which this participant started covers a message."""
        start = None if self._engine is None else self._engine.stack.sds.start
        key = message.order_key
        return start is not None and key is not None and start.covers(message.sender_id, *key)

    async def _sent_before(self, payload: bytes, request_id: str) -> Receipt | None:
        """Return the receipt of an earlier send with an id, with its outcome if it has ended, or None."""
        engine = self._started()
        known = self._receipts.known(request_id, logical_message_id(payload))
        # The protocol may know the outcome before the receipt, because its event waits for the store.
        while known is not None and any(engine.is_unsaid(outcome, known.request_id) for outcome in _ENDS):
            await engine.durable()
            engine = self._started()
        return known

    def _was_sent(self, request_id: str) -> bool:
        self._started()
        return self._store.request(request_id) is not None

    def _so_far(self, request_id: str) -> Progress | None:
        """Return the progress of a request; None if nothing about it can change any more."""
        requests = self._started().stack.requests
        request = requests.get(request_id)
        if request is None:
            return None
        segments = requests.segments_of(request)
        known = [segment for segment in segments if segment.acknowledged_by]
        return Progress(
            total_chunks=request.data_count,
            chunks_sent=tuple(sorted(segment.order for segment in segments if segment.accepted)),
            chunks_acknowledged=tuple(sorted(segment.order for segment in known if not segment.is_parity)),
            acknowledged_by=tuple(sorted({name for segment in known for name in segment.acknowledged_by})),
            delivered_to=tuple(sorted(request.holders(segments))),
            possible_ack_count=0,
        )

    def _refuse(self, payload: bytes, error: LocalError, request_id: str | None = None) -> None:
        """Emit the event of a refused send, as RELIABLE-CHANNEL-API, "Event handling", requires.

        The event carries a request id of its own if the caller gave none.
        """
        reason = _REFUSALS.get(type(error), SendErrorReason.ENCODING_FAILED)
        event = MessageSendError(
            request_id=request_id if request_id is not None else environment().random_bytes(_REQUEST_ID_BYTES).hex(),
            message_id=logical_message_id(payload),
            chunk_info=ChunkInfo(chunk_index=0, total_chunks=1),
            reason=reason,
            detail=str(error),
        )
        self._listeners.tell(event)

    def _hand_over(self, delivered: Delivered) -> None:
        if self._is_covered(delivered.message):
            self._inbox.put(delivered, aside=True)
            self._inbox.finish(delivered.number)
            return
        if self._requests.takes(delivered):
            return
        if delivered.number is not None or self._receive is not Receive.EVENTS:
            self._inbox.put(delivered)
        self._listeners.tell(delivered.message, delivered)
        self._handling.proceed()

    def _tell(self, event: Event) -> None:
        self._receipts.observe(event)
        if self._telemetry is not None:
            self._telemetry.observe(event)
        if isinstance(event, TROUBLES):
            self._troubles.note(event, self._clock())
        if isinstance(event, MemberAway) and self.is_started():
            self._requests.left(event.sender_id)
        self._listeners.tell(event)

    def _queue_lengths(self) -> dict[str, int]:
        """Return the lengths of the queues, by the names in `statistics`; can be called from any thread."""
        engine = self._engine
        if engine is None or not self.is_started():
            return {}
        return {
            "unfinished": len(self._inbox),
            "publishing": len(engine.publisher),
            "uncommitted": len(engine.commits),
            "queued": engine.stack.backlog,
        }

    def _number_of(self, message: MessageReceived) -> int:
        check_type("message", message, MessageReceived, "give the object that was handed over")
        number = self._inbox.number_of(message)
        if number is None:
            raise ConfigurationError("this message is not waiting to be finished; give the object that was handed over")
        return number

    def _finished(self, number: int) -> None:
        self._handling.finished(number)
        if self._engine is None or not self._engine.keep(Write(finished=(number,))):
            self._finished_late.append(number)

    def _keep(self, write: Write, events: tuple[Event, ...]) -> None:
        if self._engine is not None:
            self._engine.keep(write, events)


def _telemetry_of(
    channel_id: str, sender_id: str, store: ChannelStore, queue_lengths: Callable[[], Mapping[str, int]]
) -> Telemetry | None:
    """Return the spans and metrics of a channel; None in a program that has not set up OpenTelemetry."""
    if not any(sys.modules.get(name) for name in ("opentelemetry.trace", "opentelemetry.metrics")):
        return None
    from fairway.channel.telemetry import Telemetry  # noqa: PLC0415 - needs the extra otel

    return Telemetry(channel_id, sender_id, store.request, queue_lengths) if Telemetry.is_wanted() else None


def _unsure(error: StorageError, request_id: str) -> StorageError:
    return type(error)(
        f"{error}; the message may or may not be kept: once the channel has started again, send it with "
        f"request_id={request_id!r}, then it goes out once in either case"
    )


def _bytes_of(payload: Envelope | bytes) -> bytes:
    if isinstance(payload, Envelope):
        check_fields(payload)
        return payload.encode()
    if not isinstance(payload, bytes | bytearray | memoryview):
        raise ConfigurationError(f"a payload is bytes, not {type(payload).__name__}; encode text with .encode()")
    return bytes(payload)


def _group_of(group: str | None) -> str:
    """Return the name of a group of workers, empty for None; raise `ConfigurationError` if it cannot be a name."""
    return "" if group is None else checked_name("group", group, "give the name of a group of workers, or leave it out")


def _milliseconds_of(deadline: float | timedelta | None) -> int | None:
    """Return a deadline in milliseconds, at least 1; raise `ConfigurationError` if it cannot be one."""
    if deadline is None:
        return None
    seconds = deadline.total_seconds() if isinstance(deadline, timedelta) else deadline
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= LONGEST_DEADLINE_S:
        raise ConfigurationError(
            f"a deadline is a number of seconds above 0 and up to {LONGEST_DEADLINE_S:,}, or such a timedelta, not "
            f"{deadline!r}"
        )
    return max(1, int(seconds * 1_000))
