"""The listeners of a channel: event handlers, by type, and loops over all events.

An exception in a handler is logged, counted and reported as `HandlerFailed`; the channel continues. A handler gets one
event after the other, in order. It may be a coroutine function, or return another awaitable, and never delays the
channel. Each awaitable runs in a task of its own: if that task is cancelled, the call has failed.

Events before the first listener wait for it, and for all listeners that are added in the same turn of the event loop.
So listeners can be added before or after the start of the channel, and in any order.

Received messages are events, too. A loop over events finishes them only in a channel that was created with
`Receive.EVENTS`. In that channel, messages that arrive before the first loop wait for it.
"""

from __future__ import annotations

import asyncio
import difflib
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, Self

from fairway.channel.inbox import Delivered, Inbox, reader
from fairway.errors import ConfigurationError, copy_of
from fairway.events import EVENT_NAMES, Event, HandlerFailed, MessageReceived
from fairway.foreign_code import ForeignCode
from fairway.loop_binding import LoopBinding
from fairway.owned_tasks import OwnedTasks
from fairway.subscription import Subscription
from fairway.type_checks import check_callback

Told = tuple[Event, Delivered | None]
"""An event; for a received message, with its place in the inbox."""

Handler = Callable[[Any], Awaitable[object] | object]

_GRACE_S: Final = 1.0
"""Time that a closing channel waits for running handlers, and again after it cancels them."""
_MAX_EVENTS: Final = 100_000
"""Events that wait for a slow reader; for further ones the oldest are dropped and counted."""
_MAX_EARLY: Final = 1_000
"""Events that wait for the first listener; for further ones the oldest are dropped: a program may never listen."""
_TYPES: Final[dict[str, type]] = {name: kind for kind, name in EVENT_NAMES.items()}
_LOGGER: Final = logging.getLogger("fairway.channel")


def event_type(what: str | type) -> type:
    """Return the event type of a name in `EVENT_NAMES`; raise `ConfigurationError` if there is none."""
    if isinstance(what, type) and what in EVENT_NAMES:
        return what
    if isinstance(what, str) and what in _TYPES:
        return _TYPES[what]
    known = sorted(_TYPES)
    near = difflib.get_close_matches(str(what), known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise ConfigurationError(f"there is no event {what!r}; {hint}the names are {', '.join(known)}")


class SerialHandler:
    """Calls one handler with one argument after the other."""

    def __init__(
        self,
        handler: Handler,
        calls: OwnedTasks,
        take: Callable[[], Any],
        done: Callable[[Any, BaseException | None], None],
    ) -> None:
        """``take`` returns the next argument, or None if there is none now.

        ``done`` is called after each call, with the argument and the exception that the handler raised. ``calls`` owns
        the tasks.
        """
        self.name: str = getattr(handler, "__qualname__", repr(handler))
        self._handler = handler
        self._calls = calls
        self._take = take
        self._done = done
        self._is_busy = False
        self._is_proceeding = False
        self.task: asyncio.Task[None] | None = None
        """The task of the last call of a coroutine function."""

    def proceed(self) -> None:
        """Call the handler with the waiting arguments, unless it is busy; call this for each new argument."""
        if self._is_proceeding:
            return
        self._is_proceeding = True
        try:
            while not self._is_busy and (argument := self._take()) is not None:
                self._is_busy = True
                self._call(argument)
        finally:
            self._is_proceeding = False

    def _call(self, argument: Any) -> None:
        def ended(error: BaseException | None) -> None:
            self._is_busy = False
            self._done(argument, error)
            self.proceed()

        what = f"handler {self.name}"
        try:
            with ForeignCode(what):
                result = self._handler(argument)
        except Exception as error:  # noqa: BLE001 - an application's handler may raise anything
            ended(error)
            return
        if inspect.isawaitable(result):
            self.task = self._calls.spawn(_awaited(result, what, ended), what, failed=ended)
        else:
            ended(None)


class EventStream:
    """A loop over events."""

    def __init__(self, inbox: Inbox, on_close: Callable[[EventStream], None], *, finishes: bool) -> None:
        self.told: Final = Subscription[Told](max_items=_MAX_EVENTS, on_close=lambda: on_close(self))
        self._inbox = inbox
        self._finishes = finishes
        self._binding = LoopBinding("the loop over events")
        self.in_hand: Delivered | None = None
        self.reader: object = None
        """The task or thread that got it (`fairway.channel.inbox.reader`)."""
        self._failure: BaseException | None = None

    def close(self, failure: BaseException | None = None) -> None:
        """End the iteration after the events so far, with an error if one is given."""
        self._failure = failure
        self.told.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        """Finish the previous event, and wait for the next one."""
        self._binding.check()
        in_hand, self.in_hand = self.in_hand, None
        # A later start hands over a new object for each unfinished message; only the newest may finish it.
        if in_hand is not None and self._finishes and self._inbox.held(in_hand.number) is in_hand:
            self._inbox.finish(in_hand.number)
        async for event, delivered in self.told:
            if delivered is None or self._inbox.held(delivered.number) in {None, delivered}:
                self.in_hand, self.reader = delivered, reader()
                if delivered is not None and self._finishes and self._inbox.received is not None:
                    self._inbox.received(delivered.message)
                return event
        raise copy_of(self._failure or StopAsyncIteration())


class Listeners:
    """All handlers and loops of a channel."""

    def __init__(self, inbox: Inbox, binding: LoopBinding, *, finishes: bool) -> None:
        """``finishes`` says whether the loops over events finish the received messages."""
        self.failures = 0
        """Exceptions that handlers raised."""
        self.calls = OwnedTasks()
        """Calls of handlers that are being awaited."""
        self._inbox = inbox
        self._finishes = finishes
        self._binding = binding
        self._early: deque[Event] | None = deque(maxlen=_MAX_EARLY)
        """Events before the first listener; None once there is a listener."""
        self._turn: asyncio.Handle | None = None
        """Set while early events wait for the end of this turn of the event loop."""
        self._handlers: dict[type, list[_Registration]] = {}
        self._streams: list[EventStream] = []

    def on(self, what: str | type, handler: Handler) -> Callable[[], None]:
        """Call ``handler`` with every event of a type; return a function that removes it."""
        kind = event_type(what)
        check_callback("a handler", handler, "an event")
        if kind is MessageReceived:
            raise ConfigurationError(
                "a handler of received messages decides when they are finished: give it to "
                "create_reliable_channel(receive=...), not to on"
            )
        registration = _Registration(handler, self.calls, self.failed)
        registrations = self._handlers.setdefault(kind, [])
        registrations.append(registration)
        self._begin_soon()

        def remove() -> None:
            if registration in registrations:
                registrations.remove(registration)
                registration.waiting.clear()

        return remove

    def stream(self) -> EventStream:
        """Return a loop over every event from now on."""
        stream = EventStream(self._inbox, self._streams.remove, finishes=self._finishes)
        self._streams.append(stream)
        self._begin_soon()
        return stream

    def in_hand_of_caller(self) -> set[int | None]:
        """Return the numbers of the messages that loops over events have returned to the calling task or thread."""
        in_hand = ((stream.in_hand, stream.reader) for stream in self._streams)
        return {each.number for each, by in in_hand if self._finishes and each is not None and by == reader()}

    def dropped(self) -> int:
        """Return the number of events that slow readers lost."""
        registered = (each for registrations in self._handlers.values() for each in registrations)
        return sum(stream.told.dropped for stream in self._streams) + sum(each.dropped for each in registered)

    def tell(self, event: Event, delivered: Delivered | None = None) -> None:
        """Pass an event to all listeners, or keep it for the first one."""
        if self._turn is not None:
            self._begin()
        if delivered is not None and delivered.number is not None and self._finishes:
            self.pass_on_unread()
        elif self._early is None:
            self._pass_on(event, delivered)
        elif delivered is None:
            self._early.append(event)

    def failed(self, name: str, event: Event, error: BaseException) -> None:
        """Count, log and report the exception of a handler."""
        self.failures += 1
        again = "; the message stays in the inbox and comes again" * isinstance(event, MessageReceived)
        _LOGGER.error("handler %s raised on %s%s", name, type(event).__name__, again, exc_info=error)
        if not isinstance(event, HandlerFailed):
            self.tell(HandlerFailed(handler=name, event_name=EVENT_NAMES[type(event)], error=repr(error)))

    def end(self, failure: BaseException | None = None) -> None:
        """End the loops after the events so far, with an error if one is given."""
        self._begin()
        for stream in list(self._streams):
            stream.close(failure)

    async def close(self) -> None:
        """Wait up to a second for handlers, and cancel those that have not ended."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                await self.calls.wait()
                return
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                await self.calls.close()

    def _begin_soon(self) -> None:
        if self._turn is None:
            self._turn = self._binding.check().call_soon(self._begin)

    def _begin(self) -> None:
        """Pass on earlier events and messages, if there are new listeners."""
        if self._turn is None:
            return
        self._turn.cancel()
        self._turn = None
        early, self._early = self._early or (), None
        for event in early:
            self._pass_on(event, None)
        self.pass_on_unread()

    def pass_on_unread(self) -> None:
        """Pass on the messages that no loop over events got, if these loops finish messages."""
        if self._finishes:
            while self._streams and (delivered := self._inbox.take()) is not None:
                self._pass_on(delivered.message, delivered)

    def _pass_on(self, event: Event, delivered: Delivered | None) -> None:
        for stream in self._streams:
            stream.told.put((event, delivered))
        for registration in list(self._handlers.get(type(event), ())):
            registration.put(event)


class _Registration:
    """One event handler, and the events that wait for it."""

    def __init__(
        self, handler: Handler, calls: OwnedTasks, failed: Callable[[str, Event, BaseException], None]
    ) -> None:
        self.waiting: deque[Event] = deque()
        self.dropped = 0
        """Events that were dropped because the handler is too slow."""
        self._failed = failed
        self._calling = SerialHandler(handler, calls, self._take, self._handled)

    def put(self, event: Event) -> None:
        if len(self.waiting) >= _MAX_EVENTS:
            self.waiting.popleft()
            self.dropped += 1
        self.waiting.append(event)
        self._calling.proceed()

    def _take(self) -> Event | None:
        return self.waiting.popleft() if self.waiting else None

    def _handled(self, event: Event, error: BaseException | None) -> None:
        if error is not None:
            self._failed(self._calling.name, event, error)


async def _awaited(result: Awaitable[object], what: str, ended: Callable[[BaseException | None], None]) -> None:
    with ForeignCode(what):
        await result
    ended(None)
