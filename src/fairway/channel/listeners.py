"""The listeners of a channel: event handlers, by type or by name, and streams of events.

An exception in a handler is logged, counted and reported as `HandlerFailed`; the channel continues. A message on which
handlers raised stays in the inbox and goes to those handlers again. A coroutine function handles one event after the
other, in order; it does not delay the channel. Each call runs in a task of its own: if that task is cancelled, the call
has failed.

Events before the first listener wait for it, and for all listeners that are added in the same turn of the event loop.
So listeners can be added before or after the start of the channel, and in any order.
"""

from __future__ import annotations

import asyncio
import difflib
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Final, Self

from fairway.channel.inbox import HandOver, Reader
from fairway.errors import ConfigurationError, copy_of
from fairway.events import EVENT_NAMES, Event, HandlerFailed, MessageReceived
from fairway.foreign_code import ForeignCode
from fairway.loop_binding import LoopBinding
from fairway.owned_tasks import OwnedTasks
from fairway.subscription import Subscription
from fairway.type_checks import check_callback

Handler = Callable[[Any], Awaitable[object] | object]
Told = tuple[Event, HandOver | None]
"""An event; with its `HandOver` if it is a received message."""
Handled = Callable[[BaseException | None], None]
"""Called when a handler has ended, with its exception or None."""
Call = tuple[Event, HandOver | None, Handled]

_MAX_EVENTS: Final = 100_000
"""Events that wait for a slow reader; for further ones the oldest are dropped and counted."""
_GRACE_S: Final = 1.0
"""How long `Listeners.close` waits for handlers, and then for the end of those that it cancels."""
_MAX_EARLY: Final = 1_000
"""Events that wait for the first listener; for further ones the oldest are dropped: a program may never listen."""
_TYPES: Final[dict[str, type]] = {name: kind for kind, names in EVENT_NAMES.items() for name in names}
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


class EventStream:
    """An async iterator over events; it finishes received messages if the application reads them in no other way."""

    def __init__(self, told: Subscription[Told]) -> None:
        self._told = told
        self._binding = LoopBinding("the loop over events")
        self._in_hand: HandOver | None = None
        self._failure: BaseException | None = None

    @property
    def dropped(self) -> int:
        """Events that were dropped because this stream was read too slowly."""
        return self._told.dropped

    def put(self, event: Event, handing: HandOver | None) -> None:
        """Add an event."""
        self._told.put((event, handing))

    def close(self, failure: BaseException | None = None) -> None:
        """End the iteration after the events so far, with an error if one is given."""
        self._failure = failure
        self._told.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        """Finish the previous event, and wait for the next one."""
        self._binding.check()
        if self._in_hand is not None:
            self._in_hand.finish(Reader.EVENTS)
            self._in_hand = None
        async for event, handing in self._told:
            if handing is None or not handing.is_superseded:
                self._in_hand = handing
                return event
        raise copy_of(self._failure or StopAsyncIteration())


class _Registration:
    """One handler, and the events that wait for it."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.name: str = getattr(handler, "__qualname__", repr(handler))
        self.is_sequential = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)
        """Whether it handles one event after the other."""
        self.waiting: deque[Call] = deque()
        self.is_busy = False
        self.dropped = 0
        """Events that were dropped because it is too slow."""

    def put(self, call: Call) -> None:
        """Add an event for a handler that handles one after the other."""
        if len(self.waiting) >= _MAX_EVENTS:
            self.waiting.popleft()
            self.dropped += 1
        self.waiting.append(call)


class Listeners:
    """All handlers and streams of a channel."""

    def __init__(self, unclaimed: Callable[[], Iterable[Told]], binding: LoopBinding) -> None:
        """``unclaimed`` returns the messages that arrived while nothing listened to messages."""
        self.failures = 0
        """Handlers that raised."""
        self._unclaimed = unclaimed
        self._binding = binding
        self._early: deque[Event] | None = deque(maxlen=_MAX_EARLY)
        """Events before the first listener; None once there is a listener."""
        self._turn: asyncio.Handle | None = None
        """Set while early events wait for the end of this turn of the event loop."""
        self._handlers: dict[type, list[_Registration]] = {}
        self._streams: list[EventStream] = []
        self._calls = OwnedTasks()
        """Calls of handlers that are being awaited."""

    def on(self, what: str | type, handler: Handler) -> Callable[[], None]:
        """Call ``handler`` with every event of a type; return a function that removes it."""
        kind = event_type(what)
        check_callback("a handler", handler, "an event")
        registration = _Registration(handler)
        registrations = self._handlers.setdefault(kind, [])
        registrations.append(registration)
        self._begin_soon()

        def remove() -> None:
            if registration in registrations:
                registrations.remove(registration)

        return remove

    def listens(self, kind: type) -> bool:
        """Return whether there is a handler of an event type."""
        return bool(self._handlers.get(kind))

    def stream(self) -> EventStream:
        """Return every event from now on."""
        told: Subscription[Told] = Subscription(max_items=_MAX_EVENTS, on_close=lambda: self._streams.remove(stream))
        stream = EventStream(told)
        self._streams.append(stream)
        self._begin_soon()
        return stream

    def dropped(self) -> int:
        """Return the number of events that slow readers lost."""
        registered = (each for registrations in self._handlers.values() for each in registrations)
        return sum(stream.dropped for stream in self._streams) + sum(each.dropped for each in registered)

    def tell(self, event: Event, handing: HandOver | None = None) -> None:
        """Pass an event to all listeners, or keep it for the first one."""
        if self._turn is not None:
            self._begin()
            if handing is not None and handing.is_kept:
                return  # `_begin` passed it on, as one of the unclaimed messages.
        if self._early is None:
            self._pass_on(event, handing)
        elif handing is None:
            self._early.append(event)

    def fail(self, error: BaseException) -> None:
        """Raise an error in the streams, after the events so far."""
        self._begin()
        for stream in list(self._streams):
            stream.close(error)

    def end(self) -> None:
        """End the streams, after the events so far."""
        self._begin()
        for stream in list(self._streams):
            stream.close()

    async def close(self) -> None:
        """Wait up to a second for handlers, and cancel those that have not ended."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                await self._calls.wait()
                return
        for registrations in self._handlers.values():
            for registration in registrations:
                registration.waiting.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                await self._calls.close()

    def _begin_soon(self) -> None:
        if self._turn is None and (self._early is not None or self._reads_messages()):
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
        if self._reads_messages():
            for event, handing in self._unclaimed():
                self._pass_on(event, handing)

    def _reads_messages(self) -> bool:
        return bool(self._streams) or self.listens(MessageReceived)

    def _pass_on(self, event: Event, handing: HandOver | None) -> None:
        registrations = self._handlers.get(type(event))
        if handing is not None:
            if not registrations and not self._streams:
                return
            handing.begin(Reader.HANDLERS if registrations else Reader.EVENTS)
        for stream in self._streams:
            stream.put(event, handing)
        if registrations:
            self._call(list(registrations), event, handing)

    def _call(self, registrations: list[_Registration], event: Event, handing: HandOver | None) -> None:
        """Call handlers. When all have ended, finish the message, or retry the handlers that raised later."""
        outstanding = len(registrations)
        raised: dict[_Registration, BaseException] = {}

        def done(registration: _Registration, error: BaseException | None) -> None:
            nonlocal outstanding
            outstanding -= 1
            if error is not None:
                self._failed(registration, event, error)
                raised[registration] = error
            if outstanding or handing is None:
                return
            if raised:
                handing.fail("; ".join(map(repr, raised.values())), partial(self._again, list(raised), event, handing))
            else:
                handing.finish(Reader.HANDLERS)

        for registration in registrations:
            handled = partial(done, registration)
            if registration.is_sequential:
                registration.put((event, handing, handled))
                self._proceed(registration)
            else:
                self._begin_call(registration, event, handled)

    def _proceed(self, registration: _Registration) -> None:
        """Call a handler with the next event that waits for it, unless it is busy."""
        while registration.waiting and not registration.is_busy:
            event, handing, handled = registration.waiting.popleft()
            if handing is None or not handing.is_superseded:
                registration.is_busy = True
                self._begin_call(registration, event, partial(self._free, registration, handled))

    def _free(self, registration: _Registration, handled: Handled, error: BaseException | None) -> None:
        registration.is_busy = False
        handled(error)
        self._proceed(registration)

    def _begin_call(self, registration: _Registration, event: Event, handled: Handled) -> None:
        name = f"handler {registration.name}"
        try:
            with ForeignCode(name):
                result = registration.handler(event)
        except Exception as error:  # noqa: BLE001 - an application's handler may raise anything
            handled(error)
            return
        if inspect.isawaitable(result):
            self._calls.spawn(_awaited(result, name, handled), name, failed=handled)
        else:
            handled(None)

    def _again(self, registrations: list[_Registration], event: Event, handing: HandOver) -> None:
        """Call the given handlers again, as far as they are still registered."""
        registered = self._handlers.get(type(event), ())
        self._call([each for each in registrations if each in registered] or list(registered), event, handing)

    def _failed(self, registration: _Registration, event: Event, error: BaseException) -> None:
        self.failures += 1
        _LOGGER.error(
            "handler %s raised on %s%s",
            registration.name,
            type(event).__name__,
            "; the message stays in the inbox and comes again" * isinstance(event, MessageReceived),
            exc_info=error,
        )
        if not isinstance(event, HandlerFailed):
            event_name = EVENT_NAMES[type(event)][0]
            self.tell(HandlerFailed(handler=registration.name, event_name=event_name, error=repr(error)))


async def _awaited(result: Awaitable[object], name: str, handled: Handled) -> None:
    with ForeignCode(name):
        await result
    handled(None)
