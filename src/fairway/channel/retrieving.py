"""`Retriever`: sends the protocol's store queries, page by page, within the allowed rate.

The time offline is read oldest first (`fairway.protocol.incoming.catching_up`). If the channel has no room for messages
of a page, the page is read again after growing pauses. Other queries run between these pages, because their answers may
make room. A message requested by hash is queued once, even if the protocol requests it several times.

A query by time for missing messages reads newest first. It stops after a page that brought a message with causal
history and left no cited message missing. Otherwise it continues to the end of its window. A failed page is requested
again; after some failures other queries by time take precedence. Queries by hash do not wait for it, because a
participant can cite messages that do not exist. If a store refuses a query for good, an event reports the time range
(`StoreRefused`).

Invariant: messages that were not asked for, or whose message hash is wrong, are ignored: stores are not trusted.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from enum import Enum
from typing import Final

from fairway.channel.clock import Clock
from fairway.errors import NetworkError, StoreQueryError, StoreRefusedError
from fairway.events import Limit, LimitReached, StoreRefused
from fairway.foreign_code import ForeignCode
from fairway.nodes.node import RoutedMessage, StorePage, StoreQuery, WakuNode
from fairway.protocol.effects import Effect, Emit, QueryStore
from fairway.protocol.incoming.catching_up import Backwards, NewestFirst, PagedReading, PageRead, Step, TimeAway
from fairway.protocol.incoming.retrieval import MAX_HASHES_PER_QUERY, QueryBudget
from fairway.protocol.stack import Stack
from fairway.units import MS_PER_S, NS_PER_MS

_ANSWER_TIMEOUT_S: Final = 30.0
_MAX_WAITING: Final = 1_000

_LOG: Final = logging.getLogger("fairway.channel.node")


class _Turn(Enum):
    """The kinds of query, which take turns."""

    TIME_AWAY = "a page of the time offline"
    HASHES = "messages by their message hashes"
    BACKWARDS = "a page of a time in which messages are missing"


class Retriever:
    """Queries the store for missing messages, one page at a time."""

    def __init__(
        self,
        node: WakuNode,
        pubsub_topic: str,
        stack: Stack,
        clock: Clock,
        *,
        carry_out: Callable[[tuple[Effect, ...]], None],
        take_in: Callable[[RoutedMessage], Awaitable[None]],
        processed: Callable[[], Awaitable[None]],
    ) -> None:
        """Query for the channel of a stack.

        ``carry_out`` carries out effects. ``take_in`` gives the stack a message of a store once there is room, and
        ``processed`` waits until all such messages are processed.
        """
        self.queries = 0
        """Requested pages."""
        self.failures = 0
        """Queries that the store did not answer."""
        self.retrieved = 0
        """Messages that the store returned, known ones included."""
        self.mismatches = 0
        """Returned messages that were not requested, or have a wrong message hash."""
        self._node = node
        self._pubsub_topic = pubsub_topic
        self._stack = stack
        self._budget = QueryBudget(stack.options.advanced.max_store_queries_per_minute)
        self._clock = clock
        self._carry_out = carry_out
        self._take_in = take_in
        self._processed = processed
        self._is_limited = False
        self._looks_back = 0
        """Calls of `look_back` under way; meanwhile the time offline is not read."""
        self._hashes: dict[bytes, int] = {}
        """Wanted hashes, the longest waiting first, each with the number of earlier queries for it."""
        self._by_time: deque[Backwards] = deque()
        self._backwards: Backwards | None = None
        """The query by time under way."""
        self._time_away: TimeAway | None = None
        """The query for the time offline, until it is read."""
        self._pauses: dict[_Turn, asyncio.TimerHandle] = {}
        """The kinds of query that pause after a failed page, or a page without room."""
        self._turns = list(_Turn)
        """The kinds of query, the least recently used first."""
        self._arrived = asyncio.Event()

    def put(self, query: QueryStore) -> None:
        """Queue a query; a newer query for the time offline replaces an older one."""
        if query.catch_up:
            reading = TimeAway(query)
            if self._time_away is not None:
                reading.go_on_from(self._time_away)
            self._time_away = reading
            self._end_pause(_Turn.TIME_AWAY)
        elif query.message_hashes:
            self._hashes.update(dict.fromkeys(query.message_hashes, query.tries))
        elif all(query != other.query for other in self._by_time) and len(self._by_time) < _MAX_WAITING:
            self._by_time.append(Backwards(query))
        self._arrived.set()

    async def run(self) -> None:
        """Send queries until cancelled; the kinds take turns, page by page."""
        try:
            while True:
                await self._do_next()
        finally:
            for turn in list(self._pauses):
                self._end_pause(turn)

    async def _do_next(self) -> None:
        turn = next(filter(self._is_due, self._turns), None)
        if turn is None:
            self._arrived.clear()
            await self._arrived.wait()
            return
        self._turns.remove(turn)
        self._turns.append(turn)
        await self._permission()
        if turn is _Turn.TIME_AWAY and self._time_away is not None:
            await self._read_on(self._time_away)
        elif turn is _Turn.BACKWARDS:
            await self._go_back(self._backwards or self._next_by_time())
        else:
            await self._ask_by_hash()

    def _is_due(self, turn: _Turn) -> bool:
        if turn in self._pauses:
            return False
        match turn:
            case _Turn.TIME_AWAY:
                return self._time_away is not None and not self._looks_back
            case _Turn.HASHES:
                return bool(self._hashes)
            case _Turn.BACKWARDS:
                return self._backwards is not None or bool(self._by_time)

    def _begin_pause(self, turn: _Turn, pause_s: float) -> None:
        self._pauses[turn] = asyncio.get_running_loop().call_later(pause_s, self._end_pause, turn)

    def _end_pause(self, turn: _Turn) -> None:
        pause = self._pauses.pop(turn, None)
        if pause is not None:
            pause.cancel()
        self._arrived.set()

    async def _ask_by_hash(self) -> None:
        """Query as many hashes as a query may name, the least often requested first."""
        least_asked = sorted(self._hashes, key=self._hashes.__getitem__)
        query = QueryStore(message_hashes=tuple(least_asked[:MAX_HASHES_PER_QUERY]))
        for message_hash in query.message_hashes:
            del self._hashes[message_hash]
        is_answered = await self._read_all(query.message_hashes)
        for message_hash in query.message_hashes:
            # This answer also counts for hashes queued during the query; otherwise the protocol queues them again.
            self._hashes.pop(message_hash, None)
        note = self._stack.store_answered if is_answered else self._stack.store_unanswered
        self._carry_out(note(query, self._clock()))

    async def _read_all(self, message_hashes: tuple[bytes, ...]) -> bool:
        """Read all pages of a query by hash, and return whether each arrived."""
        cursor: bytes | None = None
        # A page of an honest store has at least one message.
        for _ in message_hashes:
            if cursor is not None:
                await self._permission()
            try:
                page, _ = await self._page(StoreQuery(message_hashes=message_hashes), cursor)
            except StoreQueryError:
                return False
            cursor = page.cursor
            if cursor is None:
                break
        return True

    async def _go_back(self, reading: Backwards) -> None:
        """Read one page of a time in which messages are missing, and note whether to read the next one."""
        self._backwards = reading
        question = replace(self._between(reading.start_ns, reading.end_ns), newest_first=True)
        heard = self._stack.history_heard
        try:
            page, _ = await self._page(question, reading.cursor)
        except StoreRefusedError as error:
            step = self._refused(reading, error)
            if step is Step.AGAIN:
                self._begin_pause(_Turn.BACKWARDS, reading.pause_s)
            elif step is Step.DONE:
                self._backwards = None
            return
        except StoreQueryError:
            reading.failed()
            if reading.gives_way:
                self._by_time.append(reading)
                self._backwards = None
            self._begin_pause(_Turn.BACKWARDS, reading.pause_s)
            return
        # A cut answer needs a second look only if messages are known to be missing.
        is_enough = self._stack.history_heard > heard or page.cursor is None
        if not reading.take(_found_on(page), page.cursor) or (is_enough and not self._stack.has_gaps):
            self._backwards = None

    async def look_back(
        self, query: QueryStore, look: Callable[[RoutedMessage], Awaitable[None]], is_wanted: Callable[[], bool]
    ) -> None:
        """Pass the stored messages before the end of a query to ``look``, page by page, the newest page first.

        The channel does not process them. It ends if ``is_wanted`` returns False, or the store has no more messages. A
        page that does not arrive is requested again.
        """
        reading = NewestFirst(query)
        self._looks_back += 1
        try:
            while is_wanted():
                await self._permission()
                question = replace(self._between(None, reading.end_ns), newest_first=True)
                try:
                    page, _ = await self._page(question, reading.cursor, look)
                except StoreRefusedError as error:
                    if self._refused(reading, error) is Step.DONE:
                        return
                except StoreQueryError:
                    reading.failed()
                else:
                    if not reading.take(_found_on(page), page.cursor):
                        return
                await asyncio.sleep(reading.pause_s)
        finally:
            self._looks_back -= 1
            self._arrived.set()

    def _next_by_time(self) -> Backwards:
        """Take the oldest query by time. A query without a read page is joined with queries that overlap it."""
        reading = self._by_time.popleft()
        for other in list(self._by_time):
            if not (reading.has_begun or other.has_begun) and _overlap(reading.query, other.query):
                reading = reading.joined_with(other)
                self._by_time.remove(other)
        return reading

    async def _read_on(self, reading: TimeAway) -> None:
        """Read one page of the time offline, and note when to read the next one."""
        question = self._between(reading.from_ns, reading.until_ns)
        if reading.is_seeking:
            question = replace(question, page_size=1)
        before_ns = reading.start_ns
        try:
            page, is_doubtful = await self._page(question, reading.cursor)
        except StoreRefusedError as error:
            step = self._refused(reading, error)
        except StoreQueryError:
            reading.failed()
            step = Step.AGAIN
        else:
            read = PageRead(
                found=_found_on(page),
                cursor=page.cursor,
                is_doubtful=is_doubtful,
                was_taken_in=not any(self._stack.was_turned_away(message.message_hash) for message in page.messages),
            )
            step = reading.take(read, self._clock() * NS_PER_MS)
        if step is Step.DONE:
            self._carry_out(self._stack.caught_up(reading.query.end_ns or 0, self._clock()))
        elif reading.start_ns > before_ns:
            self._carry_out(self._stack.catch_up_progressed(reading.start_ns, self._clock()))
        if reading is not self._time_away:
            return
        if step is Step.DONE:
            self._time_away = None
        elif step is Step.AGAIN:
            self._begin_pause(_Turn.TIME_AWAY, reading.pause_s)

    def _between(self, start_ns: int | None, end_ns: int | None) -> StoreQuery:
        """Return the query for the messages of the channel's content topic in a range of time."""
        topics = (self._stack.content_topic,)
        return StoreQuery(pubsub_topic=self._pubsub_topic, content_topics=topics, start_ns=start_ns, end_ns=end_ns)

    def _refused(self, reading: PagedReading, error: StoreRefusedError) -> Step:
        """Note that the store refused a query, and return the next step."""
        step, refused = reading.refused()
        if refused is not None:
            event = StoreRefused(
                start_ms=refused.start_ns // NS_PER_MS,
                end_ms=-(-refused.end_ns // NS_PER_MS),
                is_left_out=refused.is_left_out,
                detail=str(error),
            )
            self._carry_out((Emit(event=event),))
        return step

    async def _page(
        self,
        question: StoreQuery,
        cursor: bytes | None,
        take_in: Callable[[RoutedMessage], Awaitable[None]] | None = None,
    ) -> tuple[StorePage, bool]:
        """Query a page and process its messages; the caller has permission for the query.

        Return the page without wrong messages, and whether there were any. Raises `StoreQueryError` if no page was
        returned, `StoreRefusedError` if the store would refuse it again.
        """
        self.queries += 1
        loop, is_by_hash = asyncio.get_running_loop(), bool(question.message_hashes)
        began_s = loop.time()
        try:
            async with asyncio.timeout(self._stack.answer_patience_ms / MS_PER_S if is_by_hash else _ANSWER_TIMEOUT_S):
                with ForeignCode("the node's query"):
                    page = await self._node.query(question, cursor)
        except Exception as error:
            self.failures += 1
            if not isinstance(error, NetworkError | TimeoutError):
                _LOG.warning("the node's query raised, and is repeated", exc_info=error)
            kind = StoreRefusedError if isinstance(error, StoreRefusedError) else StoreQueryError
            raise kind(f"no page came: {error!r}") from error
        if is_by_hash:
            self._stack.note_answer_time(int((loop.time() - began_s) * MS_PER_S))
        messages = tuple(message for message in page.messages if _belongs(message, question))
        mismatches = len(page.messages) - len(messages)
        self.mismatches += mismatches
        if self._time_away is not None:
            topics = (self._pubsub_topic, self._stack.content_topic)
            self._time_away.shown(
                routed.message.timestamp_ns
                for routed in messages
                if routed.message.timestamp_ns and (routed.pubsub_topic, routed.message.content_topic) == topics
            )
        for message in messages:
            await (take_in or self._take_in)(message)
            self.retrieved += 1
        await self._processed()
        return StorePage(messages=messages, cursor=page.cursor), mismatches > 0

    async def _permission(self) -> None:
        """Wait until another query is allowed (RELIABLE-CHANNEL-API, "Security/Privacy Considerations")."""
        now_ms = self._clock()
        at_ms = self._budget.next_at(now_ms)
        if at_ms > now_ms:
            if not self._is_limited:
                self._is_limited = True
                event = LimitReached(limit=Limit.STORE_QUERIES, bound=self._budget.per_minute)
                self._carry_out((Emit(event=event),))
            await asyncio.sleep((at_ms - now_ms) / 1_000)
        else:
            self._is_limited = False
        self._budget.spend(self._clock())


def _belongs(message: RoutedMessage, question: StoreQuery) -> bool:
    """Return whether a message was asked for, and its message hash is right."""
    if question.message_hashes:
        asked_for = message.message_hash in question.message_hashes
    else:
        timestamp_ns = message.message.timestamp_ns
        asked_for = (
            message.pubsub_topic == question.pubsub_topic
            and message.message.content_topic in question.content_topics
            # A store dates a message without a timestamp by its arrival.
            and (not timestamp_ns or question.start_ns is None or timestamp_ns >= question.start_ns)
            and (not timestamp_ns or question.end_ns is None or timestamp_ns < question.end_ns)
        )
    return asked_for and message.is_genuine


def _found_on(page: StorePage) -> list[tuple[int, bytes]]:
    """Return the timestamp in nanoseconds, 0 if there is none, and the hash of each message on a page."""
    return [(message.message.timestamp_ns or 0, message.message_hash) for message in page.messages]


def _overlap(one: QueryStore, other: QueryStore) -> bool:
    """Return whether the times of two queries overlap."""
    return (one.start_ns or 0) <= (other.end_ns or 0) and (other.start_ns or 0) <= (one.end_ns or 0)
