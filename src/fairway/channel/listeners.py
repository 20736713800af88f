"""Events on their way to the application: handlers by type or by the seeds' names, and streams.

A handler that raises concerns nobody else: it is logged, counted and told as `HandlerFailed`, the channel goes on, and
a message that it did not finish stays in the inbox. Handlers that are coroutine functions are awaited one event after
the other, in order; they never hold up the channel.
"""

from __future__ import annotations

import asyncio
import difflib
import inspect
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, Self

from fairway.channel.inbox import Reader
from fairway.errors import ConfigurationError
from fairway.events import EVENT_NAMES, Event, HandlerFailed, MessageReceived
from fairway.waku.subscription import Subscription

Handler = Callable[[Any], Awaitable[object] | object]
Finished = Callable[[Reader], None]
"""Called with who has finished with a message."""
Told = tuple[Event, Finished]

_MAX_EVENTS: Final = 100_000
"""Events that wait for a slow reader; beyond it the oldest are dropped and counted."""
_TYPES: Final[dict[str, type]] = {name: kind for kind, names in EVENT_NAMES.items() for name in names}
_LOGGER: Final = logging.getLogger("fairway.channel")


def event_type(what: str | type) -> type:
    """Return the event type that a name of any of the three vocabularies means; raise `ConfigurationError`."""
    if isinstance(what, type) and what in EVENT_NAMES:
        return what
    if isinstance(what, str) and what in _TYPES:
        return _TYPES[what]
    known = sorted(_TYPES)
    near = difflib.get_close_matches(str(what), known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise ConfigurationError(f"there is no event {what!r}; {hint}the names are {', '.join(known)}")


def _ignore(_: Reader) -> None:
    """Do nothing: of most events nobody keeps count."""


class EventStream:
    """Events as an async iterator; with nobody else to read messages, moving on finishes them."""

    def __init__(self, told: Subscription[Told]) -> None:
        self._told = told
        self._finished: Finished = _ignore
        self._failure: BaseException | None = None

    @property
    def dropped(self) -> int:
        """Events that came faster than they were read, and are gone."""
        return self._told.dropped

    def put(self, event: Event, finished: Finished) -> None:
        """Add an event."""
        self._told.put((event, finished))

    def close(self, failure: BaseException | None = None) -> None:
        """End the iteration after what has come already, with an error if there is one."""
        self._failure = failure
        self._told.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        """Finish with the event before, and wait for the next one."""
        self._finished(Reader.EVENTS)
        self._finished = _ignore
        try:
            event, self._finished = await anext(self._told)
        except StopAsyncIteration:
            if self._failure is not None:
                raise self._failure from None
            raise
        return event


class _Registration:
    """One handler; its worker exists only if it is asynchronous."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.queue: Subscription[Told] | None = None
        self.worker: asyncio.Task[None] | None = None
        if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__):
            self.queue = Subscription(max_items=_MAX_EVENTS)


class Listeners:
    """Everybody who wants to know."""

    def __init__(self) -> None:
        self.failures = 0
        """Handlers that raised."""
        self._handlers: dict[type, list[_Registration]] = {}
        self._streams: list[EventStream] = []
        self._tasks: set[asyncio.Future[Any]] = set()

    def on(self, what: str | type, handler: Handler) -> Callable[[], None]:
        """Call ``handler`` with every event of a kind; return what ends that."""
        kind = event_type(what)
        if not callable(handler):
            raise ConfigurationError(f"a handler is a function of one event, not {handler!r}")
        registration = _Registration(handler)
        if registration.queue is not None:
            registration.worker = asyncio.ensure_future(self._work(registration, registration.queue))
        registrations = self._handlers.setdefault(kind, [])
        registrations.append(registration)

        def remove() -> None:
            if registration in registrations:
                registrations.remove(registration)
                if registration.queue is not None:
                    registration.queue.close()

        return remove

    def listens(self, kind: type) -> bool:
        """Return whether any handler wants events of a kind."""
        return bool(self._handlers.get(kind))

    def stream(self) -> EventStream:
        """Return every event from now on."""
        told: Subscription[Told] = Subscription(max_items=_MAX_EVENTS, on_close=lambda: self._streams.remove(stream))
        stream = EventStream(told)
        self._streams.append(stream)
        return stream

    def dropped(self) -> int:
        """Return how many events slow readers have lost."""
        queues = [r.queue for registrations in self._handlers.values() for r in registrations if r.queue is not None]
        return sum(stream.dropped for stream in self._streams) + sum(queue.dropped for queue in queues)

    def tell(self, event: Event, finished: Finished = _ignore) -> None:
        """Pass an event to everybody; ``finished`` is called by a stream that moves on, and when all handlers did."""
        for stream in self._streams:
            stream.put(event, finished)
        registrations = self._handlers.get(type(event))
        if registrations:
            self._call(list(registrations), event, finished)

    def tell_handlers(self, event: Event, finished: Finished) -> None:
        """Pass an event to its handlers only."""
        self._call(list(self._handlers.get(type(event), ())), event, finished)

    def fail(self, error: BaseException) -> None:
        """Let the streams raise an error after what has come already."""
        for stream in list(self._streams):
            stream.close(error)

    async def close(self) -> None:
        """End the streams, and wait a moment for handlers that are still at it."""
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
            _, late = await asyncio.wait(waiting, timeout=1.0)
            for task in late:
                task.cancel()

    def _call(self, registrations: list[_Registration], event: Event, finished: Finished) -> None:
        outstanding = len(registrations)

        def one_finished() -> None:
            nonlocal outstanding
            outstanding -= 1
            if not outstanding:
                finished(Reader.HANDLERS)

        for registration in registrations:
            if registration.queue is not None:
                registration.queue.put((event, lambda _: one_finished()))
                continue
            try:
                result = registration.handler(event)
            except Exception as error:  # noqa: BLE001 - an application's handler may raise anything
                self._failed(registration, event, error)
                continue
            if inspect.isawaitable(result):
                task = asyncio.ensure_future(result)
                self._tasks.add(task)
                task.add_done_callback(partial(self._awaited, registration, event, lambda _: one_finished()))
            else:
                one_finished()

    def _awaited(
        self, registration: _Registration, event: Event, finished: Finished, task: asyncio.Future[Any]
    ) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, Exception):
            self._failed(registration, event, error)
        else:
            finished(Reader.HANDLERS)

    async def _work(self, registration: _Registration, queue: Subscription[Told]) -> None:
        async for event, finished in queue:
            try:
                result = registration.handler(event)
                if inspect.isawaitable(result):
                    await result
            except Exception as error:  # noqa: BLE001 - an application's handler may raise anything
                self._failed(registration, event, error)
            else:
                finished(Reader.HANDLERS)

    def _failed(self, registration: _Registration, event: Event, error: Exception) -> None:
        self.failures += 1
        name = getattr(registration.handler, "__qualname__", repr(registration.handler))
        kept = "; the message stays in the inbox and comes again at the next start"
        _LOGGER.error(
            "handler %s raised on %s%s",
            name,
            type(event).__name__,
            kept * isinstance(event, MessageReceived),
            exc_info=error,
        )
        if not isinstance(event, HandlerFailed):
            self.tell(HandlerFailed(handler=name, event_name=EVENT_NAMES[type(event)][0], error=repr(error)))
