"""The asyncio shell of the protocol: carries out its effects, feeds in messages from the node, runs the timers.

One engine runs a channel from one start to its stop or failure. Everything happens on one event loop; no call into the
protocol interrupts another. The gate releases each effect after its state is durable.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

import msgspec

from fairway.channel.clock import Clock
from fairway.channel.effect_gate import EffectGate
from fairway.channel.inbox import Delivered, Inbox
from fairway.channel.proving import ProofMaker
from fairway.channel.publishing import Publisher
from fairway.channel.retrieving import Retriever
from fairway.channel.send_records import SendRecords
from fairway.errors import NodeUnavailableError, RlnError, copy_of
from fairway.events import (
    DeliveryError,
    Event,
    Limit,
    LimitReached,
    MessageDelivered,
    MessageEvent,
    MessageReceived,
    MessageSetAside,
    NodeStatusChanged,
    OrderKey,
)
from fairway.foreign_code import ForeignCode, as_exception
from fairway.nodes.node import NodeStatus, RoutedMessage, SendResult, WakuNode
from fairway.nodes.status_board import AWAY
from fairway.owned_tasks import OwnedTasks
from fairway.protocol.effects import (
    AwaitCipher,
    Change,
    Effect,
    Emit,
    NodeAnswer,
    Persist,
    Placed,
    Prove,
    Publish,
    QueryStore,
)
from fairway.protocol.ratelimit import EpochQuota, RlnProofProvider
from fairway.protocol.stack import Accepted, AcceptedBatch, Stack
from fairway.storage.channel_store import (
    ChannelStore,
    SendOutcome,
    TracePoint,
    Write,
)
from fairway.subscription import Subscription
from fairway.visible import visible
from fairway.waiters import Waiters
from fairway.wire.topics import autoshard

_MAX_UNCOMMITTED: Final = 2_000
"""Unconfirmed writes at which the channel stops receiving, so that the disk sets the pace."""
_GOODBYE_S: Final = 1.0
"""Time that a stop waits for the last acknowledgements, and for ciphers that it cancels."""
_TURN: Final = 64
"""Messages processed in a row before other tasks of the event loop run."""

_CLOCK_READ_MS: Final = 50_000
"""Longest time between two readings of the clock. The clock detects a change of the wall clock only when it is read."""

_FOREIGN: Final = "the clock, the node or the store"
_LOG: Final = logging.getLogger("fairway.channel.node")

Outward = Prove | Publish | QueryStore | AwaitCipher | Event | Delivered


class Engine:
    """Runs a channel from one start to its end."""

    def __init__(
        self,
        stack: Stack,
        node: WakuNode,
        store: ChannelStore,
        clock: Clock,
        inbox: Inbox,
        *,
        rln: RlnProofProvider | None = None,
        tell: Callable[[Event], None],
        hand_over: Callable[[Delivered], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self.stack = stack
        options = stack.options
        self._max_unread, self._max_unread_bytes = options.max_unread_messages, options.advanced.max_unread_bytes
        self._pubsub_topic = autoshard(stack.content_topic, options.cluster_id, options.shard_count)
        self.commits: EffectGate[Outward] = EffectGate(store, self._release, self._fail)
        self.publisher = Publisher(node, options.advanced.max_concurrent_publishes, self._published, self._fail)
        self.proofs = None if rln is None else ProofMaker(rln, clock, proven=self._proven, learned=self._learned)
        self.retriever = Retriever(
            node,
            self._pubsub_topic,
            stack,
            clock,
            carry_out=self.carry_out,
            take_in=self._take_in_stored,
            processed=self._processed,
        )
        self.subscription: Subscription[RoutedMessage] | None = None
        self._node = node
        self._store = store
        self._follows = False
        """Whether the store reads the state itself, and keeps no trace (`ChannelStore.follow`)."""
        self._clock = clock
        self._records = SendRecords(store)
        self._inbox = inbox
        self._tell = tell
        self._hand_over = hand_over
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._tasks = OwnedTasks(failed=self._fail)
        self._ciphers: dict[asyncio.Future[bytes], None] = {}
        self._waiters = Waiters()
        """The sends that wait for room in the protocol."""
        self._timer: asyncio.TimerHandle | None = None
        self._plans_timer = False
        self._read_ms = 0
        """The clock when the timer was last set."""
        self._is_running = False
        self._had_store: bool | None = None
        self._plans_held_back = False
        self._node_status: NodeStatus | None = None
        self._quota: object = None

    async def start(self, changes: tuple[Change, ...], first_number: int) -> None:
        """Restore the stored rows, or begin a new state; subscribe, and start the tasks."""
        stack, now_ms = self.stack, self._clock()
        self._records.next_number = first_number
        self._is_running = True
        if not self._node.status.connected:
            stack.set_connected(False, now_ms)
        self._update_room()
        effects = stack.restore(changes, now_ms) if changes else ()
        self._follows = self._store.follow(stack.snapshot)
        if self._follows:
            stack.stop_journal()
        elif not changes:
            effects = (Persist(changes=stack.snapshot()),)
        self.carry_out(effects)
        self._plan_held_back()
        with ForeignCode("the node's subscribe"):
            self.subscription = await self._node.subscribe(self._pubsub_topic, [stack.content_topic])
        self._see_node(self._node.status)
        for work in (self._watch_node(), self._take_in(self.subscription), self.retriever.run()):
            self._tasks.spawn(work)
        if self.proofs is not None:
            self._tasks.spawn(self.proofs.run())
            self._tasks.spawn(self.proofs.watch_quota())

    async def stop(self) -> None:
        """Stop all tasks; writes under way complete."""
        await self._say_goodbye()
        self._is_running = False
        self._waiters.wake()
        if self._timer is not None:
            self._timer.cancel()
        if self.subscription is not None:
            self.subscription.close()
        # Let new tasks begin: a task cancelled before its first step leaves the application's coroutine unawaited.
        await asyncio.sleep(0)
        await self._tasks.close()
        current = asyncio.current_task()
        ciphers = [cipher for cipher in self._ciphers if cipher is not current]
        for cipher in ciphers:
            cipher.cancel()
        if ciphers:
            await asyncio.wait(ciphers, timeout=_GOODBYE_S)
        await self.publisher.stop()

    async def _say_goodbye(self) -> None:
        """Acknowledge received messages in a last sync message, which also says that this participant leaves."""
        if self._is_running and self._node.status.connected:
            self._enter(self.stack.leave)
            try:
                async with asyncio.timeout(_GOODBYE_S):
                    await self._processed()
                    if self.proofs is not None:
                        await self.proofs.idle()
                        await self.commits.passed()
                    await self.publisher.idle()
            except TimeoutError:
                # Their senders retry, and are acknowledged after the next start.
                return

    def carry_out(self, effects: tuple[Effect, ...]) -> None:
        """Store the changes among the effects, then carry out the others."""
        self._carry_out(effects, self._clock())
        self._plan_timer()

    def send(
        self, accepted: Accepted, payload: bytes, now_ms: int, *, is_repeated: bool
    ) -> asyncio.Future[None] | None:
        """Store a send, then carry out its effects; return a future of the store, or None if the send is durable."""
        request_id, message_id, effects = accepted
        lamport, places = self.stack.next_lamport(now_ms), _places_in(effects)
        sent = self._records.accepted(request_id, message_id, payload, places, lamport, now_ms, is_repeated=is_repeated)
        durable = self._carry_out(effects, now_ms, sent=sent)
        self._plan_timer()
        return durable

    def send_batch(
        self, accepted: AcceptedBatch, payloads: Sequence[bytes], now_ms: int
    ) -> asyncio.Future[None] | None:
        """Store the sends of a batch in one write, like `send`."""
        lamport, places = self.stack.next_lamport(now_ms), _places_in(accepted.effects)
        writes = [
            self._records.accepted(*ids, payload, places, lamport, now_ms)
            for ids, payload in zip(accepted.sends, payloads, strict=True)
        ]
        requests, sent, placed = zip(*[(*each.requests, *each.sent, *each.placed) for each in writes], strict=True)
        durable = self._carry_out(accepted.effects, now_ms, sent=Write(requests=requests, sent=sent, placed=placed))
        self._plan_timer()
        return durable

    def _carry_out(
        self, effects: tuple[Effect, ...], now_ms: int, *, sent: Write | None = None
    ) -> asyncio.Future[None] | None:
        self._waiters.wake()
        if not (effects or sent):
            return None
        changes: tuple[Change, ...] = ()
        outward: list[Outward] = []
        delivered: list[tuple[int, MessageReceived]] = []
        # A send that ends at once has one record, that of its end.
        requests = {} if sent is None else {request.request_id: request for request in sent.requests}
        placed = [] if sent is None else list(sent.placed)
        trace: list[TracePoint] = []
        # Only events may wait until more is written.
        hurry = sent is not None
        for effect in effects:
            match effect:
                case Emit(event=event):
                    if isinstance(event, MessageReceived):
                        hurry = True
                        number = None if event.ephemeral else self._records.take_number()
                        outward.append(Delivered(number, event))
                        if not self._follows:
                            trace.append(TracePoint(at_ms=now_ms, event=event, size_bytes=len(event.payload)))
                        if number is not None:
                            delivered.append((number, event))
                            self._inbox.expect(number, event)
                    else:
                        outward.append(event)
                        if not self._follows and isinstance(event, MessageEvent):
                            trace.append(TracePoint(at_ms=now_ms, event=event))
                        ended = self._records.ended(event, now_ms)
                        if ended is not None:
                            requests[ended.request_id] = ended
                case Persist():
                    changes += () if self._follows else effect.changes
                case Placed():
                    moved = self._records.placed(effect)
                    if moved is not None:
                        requests[effect.request_id] = moved[0]
                        placed.append(moved[1])
                case _:
                    outward.append(effect)
                    hurry = True
        write = None
        if changes or delivered or requests or trace:
            write = Write(
                changes=changes,
                delivered=tuple(delivered),
                sent=() if sent is None else sent.sent,
                placed=tuple(placed),
                requests=tuple(requests.values()),
                trace=tuple(trace),
            )
        if write is None and not outward and sent is None:
            return None
        # Requests are looked up in the store.
        return self.commits.add(write, outward, wait=sent is not None, hurry=hurry or bool(requests))

    def keep(self, write: Write, events: tuple[Event, ...] = ()) -> bool:
        """Store changes of the inbox, then emit events; return False if the store has failed."""
        if self.commits.error is not None:
            return False
        self._plan_held_back()
        trace = [TracePoint(at_ms=self._clock(), event=event) for event in events if isinstance(event, MessageSetAside)]
        if trace and not self._follows:
            write = msgspec.structs.replace(write, trace=tuple(trace))
        self.commits.add(write, list(events), hurry=bool(events))
        return True

    def require(self, request_id: str, names: frozenset[str]) -> bool:
        """Require further acknowledgements of a delivered send; return whether they can come."""
        self._enter(lambda now_ms: self.stack.require(request_id, names, now_ms))
        requests = self.stack.requests
        request = requests.get(request_id)
        return request is not None and (request.is_open or request.reaches(0, names, requests.segments_of(request)))

    def release(self, request_id: str, names: frozenset[str]) -> None:
        """Require some acknowledgements of a send no more."""
        self._enter(lambda now_ms: self.stack.release(request_id, names, now_ms))

    def settle(self, request_id: str) -> asyncio.Future[None] | None:
        """Store that the application has noted the outcome of a send; return a future of the store."""
        settled = self._records.settled(request_id)
        return None if settled is None else self.commits.add(Write(requests=(settled,)), [], wait=True)

    def is_unsaid(self, outcome: SendOutcome, request_id: str) -> bool:
        """Return whether the event that ends a send is not durable yet."""
        kind = MessageDelivered if outcome is SendOutcome.DELIVERED else DeliveryError
        return any(isinstance(item, kind) and item.request_id == request_id for item in self.commits.waiting())

    async def durable(self) -> None:
        """Wait until all writes submitted so far are durable; raises the store's error if it failed."""
        await self.commits.passed()
        if self.commits.error is not None:
            raise copy_of(self.commits.error)

    @property
    def has_room(self) -> bool:
        """Whether `room` need not wait."""
        has_room = len(self.commits) <= _MAX_UNCOMMITTED
        return has_room and self.stack.backlog < self.stack.options.rate_limit.max_queued

    async def room(self) -> None:
        """Wait while too many writes are under way, or too many transmissions wait."""
        await self.commits.room(_MAX_UNCOMMITTED)
        while self._is_running and self.stack.backlog >= self.stack.options.rate_limit.max_queued:
            await self._waiters.wait()

    def _release(self, item: Outward) -> None:
        match item:
            case Delivered():
                self._hand_over(item)
            case Prove() | Publish() | QueryStore() if not self._is_running:
                # The state is stored: the next start sends and queries again.
                return
            case Prove():
                assert self.proofs is not None, "a stack without a provider requests no proof"
                self.proofs.put(item)
            case Publish():
                self.publisher.put(item)
            case QueryStore():
                self.retriever.put(item)
            case AwaitCipher():
                self._await_cipher(item)
            case _:
                self._tell(item)

    def _proven(self, token: int, proof: bytes | RlnError | None) -> None:
        self._enter(lambda now_ms: self.stack.proven(token, proof, now_ms))

    def _learned(self, quota: EpochQuota | None) -> None:
        self._enter(lambda now_ms: self.stack.set_provider_quota(quota, now_ms))

    def _published(self, publication: Publish, result: SendResult) -> None:
        def answered(now_ms: int) -> tuple[Effect, ...]:
            self._learn_quota(now_ms)
            answer = NodeAnswer(
                accepted=result.accepted,
                permanent=result.permanent,
                too_large=result.too_large,
                too_many=result.too_many,
                detail=result.detail,
            )
            return self.stack.published(publication.token, answer, now_ms)

        self._enter(answered)
        if result.stored is not None:
            result.stored.add_done_callback(partial(self._looked_for, publication.sds_id))

    def _looked_for(self, sds_id: str, stored: asyncio.Future[bool | None]) -> None:
        """Report to the protocol that no store has a message that the node sent."""
        if not stored.cancelled() and stored.exception() is None and stored.result() is False:
            self._enter(lambda now_ms: self.stack.not_stored(sds_id, now_ms))

    def _learn_quota(self, now_ms: int) -> None:
        quota = self._node.quota
        if quota is not None and quota != self._quota:
            self._quota = quota
            self.carry_out(
                self.stack.set_node_quota(quota.limit, now_ms, epoch_ms=quota.epoch_ms, remaining=quota.remaining)
            )

    async def _take_in_stored(self, routed: RoutedMessage) -> None:
        """Process a message of a store when the application has room for it."""
        await self._room_in_inbox()
        stored = (routed.message, routed.message_hash)
        self._enter(lambda now_ms: self.stack.receive_stored([stored], now_ms))

    async def _take_in(self, subscription: Subscription[RoutedMessage]) -> None:
        """Process received messages, as fast as the disk and the application allow."""
        options = self.stack.options
        pause_s = options.process_task_min_elapse_ms / 1_000
        while True:
            batch = await subscription.next_batch()
            if not batch:
                if self._is_running and self._node.status.connected:
                    raise NodeUnavailableError("the node is connected and has ended the subscription of the channel")
                return
            for count, routed in enumerate(batch, 1):
                await self._room_in_inbox()
                receive = partial(self.stack.receive, routed.message, message_hash=routed.message_hash)
                self._enter(receive)
                if count % _TURN == 0:
                    await asyncio.sleep(0)
                await self.commits.room(_MAX_UNCOMMITTED)
            if pause_s:
                # RELIABLE-CHANNEL-API, "Performance considerations": at most once per process_task_min_elapse_ms.
                await asyncio.sleep(pause_s)

    async def _watch_node(self) -> None:
        """Pass the status of the node to the protocol: whether it is connected, and whether it has a store."""
        async for status in self._node.status_changes():
            self._see_node(status)
        self._see_node(dataclasses.replace(AWAY, detail="the node is closed"))

    def _see_node(self, status: NodeStatus) -> None:
        now_ms = self._clock()
        effects = self.stack.set_connected(status.connected, now_ms)
        self.carry_out((*self._changes_of_node(status), *effects))
        self._learn_quota(now_ms)
        has_store = status.connected and status.store
        if has_store is not self._had_store:
            self.carry_out((self.stack.store_connected if has_store else self.stack.store_disconnected)(now_ms))
        self._had_store = has_store

    def _changes_of_node(self, status: NodeStatus) -> tuple[Emit, ...]:
        """Return the event of a changed status; the first status gives one only if it is not connected."""
        before, self._node_status = self._node_status, status
        if status == before or (before is None and status.connected):
            return ()
        if status.connected != (before is None or before.connected):
            what = "the node is back" if status.connected else "the node is gone, and what is sent waits for it"
            why = f": {status.detail}" if status.detail else ""
            _LOG.warning("channel %s: %s", visible(self.stack.sds.channel_id), visible(f"{what}{why}"))
        event = NodeStatusChanged(
            connected=status.connected, health=status.health, store=status.store, detail=status.detail
        )
        return (Emit(event=event),)

    def _await_cipher(self, cipher: AwaitCipher) -> None:
        task = asyncio.ensure_future(cipher.awaitable)
        self._ciphers[task] = None
        task.add_done_callback(partial(self._ciphered, cipher.token))

    def _ciphered(self, token: int, task: asyncio.Future[bytes]) -> None:
        self._ciphers.pop(task, None)
        self._inbox.wake()
        # The protocol handles a failed or cancelled cipher.
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        result = task.result() if error is None else error
        self._enter(lambda now_ms: self.stack.cipher_done(token, result, now_ms))

    async def _room_in_inbox(self) -> None:
        """Wait until one more message may become unread. The caller processes it before it awaits anything else."""
        bound, is_told = self._max_unread, False
        while self.stack.holds_back or min(self._room()) <= 0:
            if not is_told and min(self._room(decrypting=0)) <= 0:
                is_told = True
                self.carry_out((Emit(event=LimitReached(limit=Limit.UNREAD_MESSAGES, bound=bound)),))
            await self._inbox.changed()

    def _room(self, decrypting: int | None = None) -> tuple[int, int]:
        """Return how many messages, and bytes, may become unread. Each that is being decrypted may become one."""
        coming = self.stack.decrypting if decrypting is None else decrypting
        return self._max_unread - self._inbox.count - coming, self._max_unread_bytes - self._inbox.count_bytes

    def _update_room(self) -> None:
        self.stack.set_room(*self._room())

    def _plan_held_back(self) -> None:
        """Deliver the messages that the protocol holds back, in the next turn of the event loop, if there is room."""
        if self.stack.holds_back and not self._plans_held_back and min(self._room()) > 0:
            self._plans_held_back = True
            self._loop.call_soon(self._deliver_held_back)

    def _deliver_held_back(self) -> None:
        self._plans_held_back = False
        self._enter(self.stack.deliver_held_back)
        self._inbox.wake()

    async def _processed(self) -> None:
        """Wait until all messages under way are encrypted, decrypted and stored.

        Messages that arrive later are not waited for: if they arrive faster than the disk writes, some are always under
        way.
        """
        # Ciphers start after a write, and their results cause further writes.
        await self.commits.passed()
        if self._ciphers:
            await asyncio.wait(list(self._ciphers))
            await self.commits.passed()

    def _plan_timer(self) -> None:
        """Set the timer in the next turn of the event loop, once for all calls of this turn."""
        if self._is_running and not self._plans_timer:
            self._plans_timer = True
            self._loop.call_soon(self._set_timer)

    def _set_timer(self) -> None:
        """Set the timer to the protocol's next deadline, at most ``_CLOCK_READ_MS`` from now.

        An earlier timer stays: nearly every message postpones the deadline, and an early call only looks again.
        """
        self._plans_timer = False
        try:
            if self._is_running:
                self._tick_at(self.stack.next_deadline(), self._clock())
        except BaseException as error:  # noqa: BLE001 - as in `_enter`
            self._fail(as_exception(_FOREIGN, error))

    def _tick_at(self, at_ms: int | None, now_ms: int) -> None:
        self._read_ms = now_ms
        wait_ms = _CLOCK_READ_MS if at_ms is None else min(_CLOCK_READ_MS, max(0, at_ms - now_ms))
        at_s = self._loop.time() + wait_ms / 1_000
        if self._timer is not None:
            if self._timer.when() <= at_s:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(at_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        try:
            at_ms, now_ms = self.stack.next_deadline(), self._clock()
            # If the clock was set back, all deadlines are too late.
            if now_ms < self._read_ms or (at_ms is not None and at_ms <= now_ms):
                self._enter(self.stack.tick)
            elif self._is_running:
                self._tick_at(at_ms, now_ms)
        except BaseException as error:  # noqa: BLE001 - as in `_enter`
            self._fail(as_exception(_FOREIGN, error))

    def _enter(self, call: Callable[[int], tuple[Effect, ...]]) -> None:
        """Call the protocol from a task or a callback. An exception fails the channel: a callback cannot raise."""
        if not self._is_running:
            return
        try:
            self._update_room()
            now_ms = self._clock()
            self._carry_out(call(now_ms), now_ms)
            self._plan_timer()
            self._plan_held_back()
        except BaseException as error:  # noqa: BLE001 - any failure must reach the application
            self._fail(as_exception(_FOREIGN, error))

    def _fail(self, error: BaseException) -> None:
        """Fail the channel, because one of its tasks failed."""
        if self._is_running:
            self._is_running = False
            self._waiters.wake()
            self._failed(error)


def _places_in(effects: Iterable[Effect]) -> dict[str, OrderKey]:
    return {effect.request_id: effect.order_key for effect in effects if isinstance(effect, Placed)}
