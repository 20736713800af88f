"""The listeners of a channel: event handlers, by type or by name, and streams of events.

An exception in a handler is logged, counted and reported as `HandlerFailed`; the channel continues. A message on which
handlers raised stays in the inbox and goes to those handlers again. Coroutine functions are awaited one event after the
other, in order; they do not delay the channel.

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
from functools import partial
from typing import Any, Final, Self

from fairway.channel.inbox import HandOver, Reader
from fairway.errors import ConfigurationError, copy_of
from fairway.events import EVENT_NAMES, Event, HandlerFailed, MessageReceived
from fairway.waku.subscription import Subscription

Handler = Callable[[Any], Awaitable[object] | object]
Told = tuple[Event, HandOver | None]
"""An event; with its `HandOver` if it is a received message."""
Handled = Callable[[Exception | None], None]
"""Called when a handler has ended, with its exception or None."""
Call = tuple[Event, HandOver | None, Handled]

_MAX_EVENTS: Final = 100_000
"""Events that wait for a slow reader; for further ones the oldest are dropped and counted."""
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
        if self._in_hand is not None:
            self._in_hand.finish(Reader.EVENTS)
            self._in_hand = None
        async for event, handing in self._told:
            if handing is None or not handing.is_superseded:
                self._in_hand = handing
                return event
        raise copy_of(self._failure or StopAsyncIteration())


class _Registration:
    """One handler, with a queue and a worker if it is a coroutine function."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.queue: Subscription[Call] | None = None
        self.worker: asyncio.Task[None] | None = None
        if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__):
            self.queue = Subscription(max_items=_MAX_EVENTS)


class Listeners:
    """All handlers and streams of a channel."""

    def __init__(self, unclaimed: Callable[[], Iterable[Told]]) -> None:
        """``unclaimed`` returns the messages that arrived while nothing listened to messages."""
        self.failures = 0
        """Handlers that raised."""
        self._unclaimed = unclaimed
        self._early: deque[Event] | None = deque(maxlen=_MAX_EARLY)
        """Events before the first listener; None once there is a listener."""
        self._turn: asyncio.Handle | None = None
        """Set while early events wait for the end of this turn of the event loop."""
        self._handlers: dict[type, list[_Registration]] = {}
        self._streams: list[EventStream] = []
        self._tasks: dict[asyncio.Future[Any], None] = {}

    def on(self, what: str | type, handler: Handler) -> Callable[[], None]:
        """Call ``handler`` with every event of a type; return a function that removes it."""
        kind = event_type(what)
        if not callable(handler):
            raise ConfigurationError(f"a handler is a function of one event, not {handler!r}")
        registration = _Registration(handler)
        if registration.queue is not None:
            registration.worker = asyncio.ensure_future(self._work(registration, registration.queue))
        registrations = self._handlers.setdefault(kind, [])
        registrations.append(registration)
        self._begin_soon()

        def remove() -> None:
            if registration in registrations:
                registrations.remove(registration)
                if registration.queue is not None:
                    registration.queue.close()

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
        queues = [r.queue for registrations in self._handlers.values() for r in registrations if r.queue is not None]
        return sum(stream.dropped for stream in self._streams) + sum(queue.dropped for queue in queues)

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

    async def close(self) -> None:
        """End the streams, and wait up to a second for handlers that are running."""
        self._begin()
        for stream in list(self._streams):
            stream.close()
        workers: list[asyncio.Future[Any]] = []
        for registrations in self._handlers.values():
            for registration in registrations:
                if registration.queue is not None and registration.worker is not None:
                    registration.queue.close()
                    workers.append(registration.worker)
        current = asyncio.current_task()
        waiting = [task for task in (*workers, *self._tasks) if task is not current and not task.done()]
        if waiting:
            await asyncio.wait(waiting, timeout=1.0)
            for task in waiting:
                if not task.done():
                    task.cancel()

    def _begin_soon(self) -> None:
        if self._turn is None and (self._early is not None or self._reads_messages()):
            self._turn = asyncio.get_running_loop().call_soon(self._begin)

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
        raised: dict[_Registration, Exception] = {}

        def done(registration: _Registration, error: Exception | None) -> None:
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
            if registration.queue is not None:
                registration.queue.put((event, handing, handled))
                continue
            try:
                result = registration.handler(event)
            except Exception as error:  # noqa: BLE001 - an application's handler may raise anything
                handled(error)
                continue
            if inspect.isawaitable(result):
                task = asyncio.ensure_future(result)
                self._tasks[task] = None
                task.add_done_callback(partial(self._awaited, handled))
            else:
                handled(None)

    def _again(self, registrations: list[_Registration], event: Event, handing: HandOver) -> None:
        """Call the given handlers again, as far as they are still registered."""
        registered = self._handlers.get(type(event), ())
        self._call([each for each in registrations if each in registered] or list(registered), event, handing)

    def _awaited(self, handled: Handled, task: asyncio.Future[Any]) -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            return
        error = task.exception()
        if error is None or isinstance(error, Exception):
            handled(error)

    @staticmethod
    async def _work(registration: _Registration, queue: Subscription[Call]) -> None:
        async for event, handing, handled in queue:
            if handing is not None and handing.is_superseded:
                continue
            try:
                result = registration.handler(event)
                if inspect.isawaitable(result):
                    await result
            except Exception as error:  # noqa: BLE001 - an application's handler may raise anything
                handled(error)
            else:
                handled(None)

    def _failed(self, registration: _Registration, event: Event, error: Exception) -> None:
        self.failures += 1
        name = getattr(registration.handler, "__qualname__", repr(registration.handler))
        _LOGGER.error(
            "handler %s raised on %s%s",
            name,
            type(event).__name__,
            "; the message stays in the inbox and comes again" * isinstance(event, MessageReceived),
            exc_info=error,
        )
        if not isinstance(event, HandlerFailed):
            self.tell(HandlerFailed(handler=name, event_name=EVENT_NAMES[type(event)][0], error=repr(error)))
