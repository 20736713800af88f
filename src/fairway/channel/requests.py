"""Requests and replies: `ReliableChannel.request`, and the `Request`s that other participants make.

A request is a message in an `Envelope`. It stays unfinished in the inbox until it is answered, cancelled or expired, so
a restart hands it over again. A reply names its request by the correlation id. A participant finishes requests and
replies for others without handing them over.

Each request of a group goes to one of the workers of the group (`fairway.channel.working`).

A handler that was called twice for one request, because its process was killed, sends one reply: the second one is the
same send as the first.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Self

from fairway.bounded import BoundedDict
from fairway.channel.history import HistoryMessage
from fairway.channel.inbox import Delivered, Inbox
from fairway.channel.receipt import Receipt
from fairway.channel.working import Worker
from fairway.environment import environment
from fairway.errors import (
    ConfigurationError,
    FairwayError,
    MessageTooLargeError,
    NoOneThereError,
    RequestFailedError,
    RequestTimeoutError,
    copy_of,
)
from fairway.events import MessageReceived
from fairway.foreign_code import ForeignCode
from fairway.loop_binding import LoopBinding
from fairway.owned_tasks import OwnedTasks
from fairway.protocol.sds.presence import Presence
from fairway.protocol.work_queue import RequestKey
from fairway.type_checks import check_type
from fairway.units import NS_PER_MS
from fairway.visible import visible
from fairway.waiters import Waiters
from fairway.wire.envelope import Envelope, EnvelopeKind

if TYPE_CHECKING:
    from fairway.channel.telemetry import Telemetry

_LOG: Final = logging.getLogger("fairway.channel")
_MAX_UNSERVED: Final = 100
"""Requests that wait in a program that has not asked for any; further ones are dropped, because it may never ask."""
_OPEN_AT_MOST_MS: Final = 86_400_000
"""How long a request without an expiry stays open."""
_SEARCHED: Final = 1_000
"""Messages of the history in which a repeated request looks for its reply."""
_MAX_ASKED: Final = 1_000
"""Requests to groups that wait for replies; further ones are sent later. Every worker keeps all of them."""
_MAX_FAILURES: Final = 100
"""Participants that could not answer a request, whose reasons the requester keeps."""
_MAX_REASON: Final = 1_000
"""Characters of a reason."""
_CORRELATION_BYTES: Final = 16
LONGEST_DEADLINE_S: Final = 3_155_760_000
"""Longest deadline of a send, a hundred years."""
_OUTCOMES: Final = (EnvelopeKind.REPLY, EnvelopeKind.FAILURE)

Answer = Envelope | bytes | None
RequestHandler = Callable[["Request"], Awaitable[Answer] | Answer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The reply to a request. ``bytes(reply)`` is the payload."""

    sender_id: str
    """Who replied."""
    payload: bytes
    content_type: str = ""
    headers: Mapping[str, str]

    def __bytes__(self) -> bytes:
        """Return the payload."""
        return self.payload


class Request:
    """A request of another participant. ``bytes(request)`` is the payload."""

    def __init__(self, desk: RequestDesk, message: MessageReceived, envelope: Envelope, deadline_ms: int) -> None:
        self.message = message
        """The message that carried it."""
        self.sender_id = message.sender_id
        self.payload = envelope.content
        self.content_type = envelope.content_type
        self.headers = envelope.headers
        self.correlation_id = envelope.correlation_id
        """The same if the request comes again; use it to recognize work that is done."""
        self.deadline_ms = deadline_ms
        """The requester waits until then, in Unix milliseconds by its clock; for a day if it gave no limit."""
        self.is_open = True
        """Whether the requester still waits for the reply, as far as is known here."""
        self.group = envelope.group
        """The workers of which one answers it; empty for a request without a group."""
        self._desk = desk

    def __repr__(self) -> str:
        return f"<Request {self.correlation_id[:8]} of {self.sender_id!r}, {'open' if self.is_open else 'over'}>"

    def __bytes__(self) -> bytes:
        """Return the payload."""
        return self.payload

    async def reply(self, payload: Envelope | bytes) -> bool:
        """Send the reply, and finish the request; return False, and do nothing, if nobody waits for it any more.

        When this returns, the store holds the reply. Raises what `ReliableChannel.send` raises.
        """
        return await self._desk.answer(self, _reply(payload))

    async def fail(self, reason: str) -> bool:
        """Tell the requester why there is no reply; its call raises `RequestFailedError`. Otherwise like `reply`."""
        return await self._desk.answer(self, _failure(reason))


class RequestLoop:
    """A loop over requests; if a channel has several, each request goes to one of them."""

    def __init__(self, desk: RequestDesk, service: _Service) -> None:
        self._binding = LoopBinding("the loop over requests")
        self._desk = desk
        self._service = service

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Request:
        """Wait for the next request."""
        self._binding.check()
        return await self._desk.next(self._service)


class _Service:
    """How this program takes the requests of a group, or those without one."""

    def __init__(self) -> None:
        self.handler: RequestHandler | None = None
        self.new: OrderedDict[int, Request] = OrderedDict()
        """The requests that no loop has taken, by number in the inbox."""
        self.waiters = Waiters()
        self.readers = 0
        """Loops that wait for a request."""
        self.worker: Worker | None = None
        """None for requests without a group."""

    @property
    def wants(self) -> bool:
        """Whether a handler or a loop waits for a request."""
        return self.handler is not None or self.readers > 0

    def wake(self) -> None:
        self.waiters.wake()
        if self.worker is not None:
            self.worker.wake()


class _Asked:
    """An own request that waits for its reply."""

    def __init__(self, request: Envelope) -> None:
        self.request = request
        self.reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.failures: BoundedDict[str, str] = BoundedDict(_MAX_FAILURES)
        """By participant, why it did not reply."""

    def failure(self) -> RequestFailedError:
        return RequestFailedError("; ".join(f"{name} did not reply: {why}" for name, why in self.failures.items()))

    def end(self, failure: BaseException) -> None:
        if not self.reply.done():
            self.reply.set_exception(failure)
            self.reply.exception()  # a call that cannot send raises before it waits for this


class RequestDesk:
    """The requests of one participant, and those of others to it."""

    def __init__(
        self,
        sender_id: str,
        inbox: Inbox,
        now_ms: Callable[[], int],
        send: Callable[..., Awaitable[Receipt]],
        was_sent: Callable[[str], bool],
        history: Callable[[int], Awaitable[Iterable[HistoryMessage]]],
        is_synced: Callable[[], bool],
        presence: Callable[[], Presence],
        telemetry: Telemetry | None,
    ) -> None:
        """``was_sent`` returns whether the store knows a send with a request id, and raises if it is closed.

        ``presence`` raises if the channel is not started.
        """
        self._sender_id = sender_id
        self._inbox = inbox
        self._now_ms = now_ms
        self._send = send
        self._was_sent = was_sent
        self._history = history
        self._is_synced = is_synced
        self._presence = presence
        self._telemetry = telemetry
        self._tasks = OwnedTasks()
        self._asked: dict[str, _Asked] = {}
        """The own requests that wait, by correlation id."""
        self._room = asyncio.Semaphore(_MAX_ASKED)
        """For own requests to groups."""
        self._open: dict[int, Request] = {}
        """The requests of others that are not answered, by number in the inbox."""
        self._expiries: dict[int, asyncio.TimerHandle] = {}
        self._running: dict[int, asyncio.Task[None]] = {}
        """The calls of the handler, by number of the request."""
        self._services: dict[str, _Service] = {}
        """By group."""
        self._unserved: dict[int, Request] = {}
        """The requests that the program has not asked for."""
        self._numbers: dict[RequestKey, int] = {}
        """The numbers of the open requests of groups."""
        self._failure: BaseException | None = None

    async def request(self, envelope: Envelope, timeout_s: float, request_id: str | None) -> Reply:
        """Send a request and wait for its reply (`ReliableChannel.request`)."""
        request = replace(envelope, kind=EnvelopeKind.REQUEST, expires_after_ms=max(1, int(timeout_s * 1_000)))
        if request_id is None:
            correlation_id = environment().random_bytes(_CORRELATION_BYTES).hex()
        else:
            # Without a store nothing else tells a repeated request from another one with its id.
            correlation_id = f"{request_id} {hashlib.sha256(request.encode()).hexdigest()[: 2 * _CORRELATION_BYTES]}"
        if correlation_id in self._asked:
            raise ConfigurationError(f"request {request_id!r} waits for its reply already; choose another id")
        request = replace(request, correlation_id=correlation_id)
        asked = self._asked[correlation_id] = _Asked(request)
        receipt = None
        try:
            async with asyncio.timeout(timeout_s), self._room if request.group else nullcontext():
                is_repeated = request_id is not None and self._was_sent(request_id)
                # A request to a group waits for a worker.
                asks_others = not (is_repeated or request.group or request.to == self._sender_id)
                if asks_others and self._presence().is_away(request.to):
                    raise NoOneThereError(
                        f"{request.to or 'every other participant'} is away, and the request was not sent; "
                        "send() keeps a message for a participant that returns"
                    )
                by = {request.to} if request.to else ()
                receipt = await self._send(request, by=by, request_id=request_id or correlation_id, deadline=timeout_s)
                if is_repeated:
                    await self._find_outcome(correlation_id)
                return await asked.reply
        except TimeoutError as error:
            if asked.failures:
                raise asked.failure() from error
            raise RequestTimeoutError(_silence(request.to, receipt, timeout_s)) from error
        except asyncio.CancelledError:
            self._tasks.spawn(self._cancel(request))
            raise
        finally:
            del self._asked[correlation_id]

    async def answer(self, request: Request, envelope: Envelope) -> bool:
        """Send the outcome of a request, once, and finish the request; return False if it is over."""
        number = next((number for number, each in self._open.items() if each is request), None)
        if number is None:
            return False
        request_id = _reply_id(request.message)
        if not self._was_sent(request_id):
            if self._telemetry is not None:
                envelope = self._telemetry.with_context(envelope)
            reply = replace(envelope, to=request.sender_id, correlation_id=request.correlation_id)
            rest_s = max(1, request.deadline_ms - self._now_ms()) / 1_000
            await self._send(
                reply,
                by={request.sender_id},
                request_id=request_id,
                deadline=min(rest_s, LONGEST_DEADLINE_S),
            )
        if number in self._open:  # it may have expired during the send
            self._close(number)
        return True

    def loop(self, group: str) -> RequestLoop:
        """Return a loop over the requests of others."""
        return RequestLoop(self, self._service(group))

    def serve(self, handler: RequestHandler, group: str) -> Callable[[], None]:
        """Call a handler with each request, present ones included; return a function that ends this."""
        service = self._service(group)
        if service.handler is not None:
            raise ConfigurationError("this channel has a handler of these requests; remove it first")
        service.handler = handler
        while service.new:
            self._call(*service.new.popitem(last=False), service)
        service.wake()

        def remove() -> None:
            if service.handler is handler:
                service.handler = None

        return remove

    async def next(self, service: _Service) -> Request:
        """Wait for the next request that no loop has taken; raise `StopAsyncIteration` when the channel is closed."""
        service.readers += 1
        if service.worker is not None:
            service.worker.wake()
        try:
            while self._failure is None:
                if service.new:
                    request = service.new.popitem(last=False)[1]
                    if self._inbox.received is not None:
                        self._inbox.received(request.message)
                    return request
                await service.waiters.wait()
        finally:
            service.readers -= 1
        raise copy_of(self._failure)

    def left(self, sender_id: str) -> None:
        """Note that a participant is gone."""
        for asked in self._asked.values():
            self._end_if_failed(asked)
        for service in self._services.values():
            if service.worker is not None:
                service.worker.left(sender_id)

    def restart(self) -> None:
        """Continue after a failure; the caller then hands the messages of the store over."""
        self._failure = None
        for service in self._services.values():
            service.wake()

    def end(self, failure: BaseException, loops: BaseException | None = None) -> None:
        """Raise ``failure`` in calls that wait for a reply, and ``loops`` or the same in loops over requests."""
        for asked in self._asked.values():
            asked.end(copy_of(failure))
        self._failure = loops or failure
        for service in self._services.values():
            service.wake()

    async def close(self) -> None:
        """Stop all handlers; open requests stay in the inbox."""
        for expiry in self._expiries.values():
            expiry.cancel()
        await self._tasks.close()

    def takes(self, delivered: Delivered) -> bool:
        """Take a delivered message that is a request or answers one; return False for any other message."""
        number, message = delivered.number, delivered.message
        envelope = None if number is None else Envelope.decode(message.payload)
        if number is None or envelope is None or envelope.kind is EnvelopeKind.MESSAGE:
            return False
        self._inbox.put(delivered, aside=True)
        service = self._services.get(envelope.group)
        is_for_us = envelope.to in {"", self._sender_id}
        if is_for_us and envelope.kind is EnvelopeKind.REQUEST:
            self._note(number, message, envelope)
            return True
        if is_for_us and envelope.kind is EnvelopeKind.CANCEL:
            for each, request in list(self._open.items()):
                if (request.sender_id, request.correlation_id) == (message.sender_id, envelope.correlation_id):
                    self._close(each)
        elif envelope.kind is EnvelopeKind.CLAIM:
            if service is not None and service.worker is not None:
                service.worker.claimed(message.sender_id, envelope, message.order_key)
        elif is_for_us:
            self._settle(message.sender_id, envelope)
        elif envelope.kind in _OUTCOMES:
            # Another worker has answered the request.
            answered = self._numbers.get(RequestKey(envelope.to, envelope.correlation_id))
            if answered is not None:
                self._close(answered)
        self._inbox.finish(number)
        return True

    def _service(self, group: str) -> _Service:
        """Return how the program takes the requests of a group; the first call hands over those that wait."""
        service = self._services.get(group)
        if service is None:
            service = self._services[group] = _Service()
            if group:
                service.worker = self._worker(group, service)
                self._tasks.spawn(service.worker.run())
            for number in [number for number, request in self._unserved.items() if request.group == group]:
                self._admit(number, self._unserved.pop(number), service)
        return service

    def _worker(self, group: str, service: _Service) -> Worker:
        def offer(key: RequestKey) -> None:
            number = self._numbers[key]
            self._offer(number, self._open[number], service)

        return Worker(
            group,
            self._sender_id,
            self._now_ms,
            self._send,
            lambda: self._history(_SEARCHED),
            self._is_synced,
            offer,
            lambda: service.wants,
        )

    def _note(self, number: int, message: MessageReceived, envelope: Envelope) -> None:
        """Keep a request until it is over."""
        known, service = self._open.get(number), self._services.get(envelope.group)
        if known is not None:
            # A start hands over again what the earlier start had: the handler goes on, or could not send its reply.
            if service is not None and service.handler is not None and service.new.pop(number, None) is not None:
                self._call(number, known, service)
            return
        now_ms = self._now_ms()
        deadline_ms = (message.timestamp_ns // NS_PER_MS or now_ms) + (envelope.expires_after_ms or _OPEN_AT_MOST_MS)
        # After a start the program may ask for all that it had.
        is_too_many = service is None and not message.redelivered and len(self._unserved) >= _MAX_UNSERVED
        key = RequestKey(message.sender_id, envelope.correlation_id) if envelope.group else None
        if deadline_ms <= now_ms or is_too_many or key in self._numbers:
            self._inbox.finish(number)
            return
        request = Request(self, message, envelope, deadline_ms)
        self._open[number] = request
        loop = asyncio.get_running_loop()
        self._expiries[number] = loop.call_later((deadline_ms - now_ms) / 1_000, self._close, number)
        if key is not None:
            self._numbers[key] = number
        if service is None:
            self._unserved[number] = request
        else:
            self._admit(number, request, service)

    def _admit(self, number: int, request: Request, service: _Service) -> None:
        """Hand a request over; one of a group when it is this worker's turn."""
        if service.worker is None:
            self._offer(number, request, service)
        else:
            service.worker.add(_key_of(request))

    def _offer(self, number: int, request: Request, service: _Service) -> None:
        if service.handler is not None:
            self._call(number, request, service)
        else:
            service.new[number] = request
            service.waiters.wake()

    def _close(self, number: int) -> None:
        """End a request: it is answered, cancelled or expired."""
        request = self._open.pop(number)
        request.is_open = False
        self._unserved.pop(number, None)
        service = self._services.get(request.group)
        if request.group:
            del self._numbers[_key_of(request)]
        if service is not None:
            service.new.pop(number, None)
            if service.worker is not None:
                service.worker.remove(_key_of(request))
        self._expiries.pop(number).cancel()
        running = self._running.pop(number, None)
        if running is not None and running is not asyncio.current_task():
            self._tasks.cancel(running)
        self._inbox.finish(number)

    def _call(self, number: int, request: Request, service: _Service) -> None:
        assert service.handler is not None, "the caller looked"
        handle = partial(self._handle, number, request, service, service.handler)
        work = handle() if self._telemetry is None else self._telemetry.serve(request.message, handle)
        self._running[number] = self._tasks.spawn(work)

    async def _handle(
        self,
        number: int,
        request: Request,
        service: _Service,
        handler: RequestHandler,
        failed: Callable[[Exception], None] | None = None,
    ) -> None:
        """Call the handler and send its reply; ``failed`` is called with an error of the handler."""
        try:
            outcome = await _outcome_of(handler, request, failed)
            if outcome is not None:
                try:
                    await self.answer(request, outcome)
                except (ConfigurationError, MessageTooLargeError) as error:
                    _LOG.warning("the reply to %s cannot be sent: %s", visible(request.sender_id), error)
                    await request.fail(f"{type(error).__name__}: {error}")
        except FairwayError as error:
            _LOG.warning("the reply to %s cannot be sent now: %s", visible(request.sender_id), error)
            if number in self._open:
                service.new[number] = request  # the next start calls the handler again
        finally:
            self._running.pop(number, None)

    def _settle(self, sender_id: str, envelope: Envelope) -> None:
        """Pass a reply or a failure on to the call that waits for it, if one does."""
        asked = self._asked.get(envelope.correlation_id)
        if asked is None or asked.reply.done() or asked.request.to not in {"", sender_id}:
            return
        if envelope.kind is EnvelopeKind.FAILURE:
            asked.failures[sender_id] = envelope.content.decode(errors="replace")[:_MAX_REASON]
            self._end_if_failed(asked)
            return
        asked.reply.set_result(
            Reply(
                sender_id=sender_id,
                payload=envelope.content,
                content_type=envelope.content_type,
                headers=envelope.headers,
            )
        )

    def _end_if_failed(self, asked: _Asked) -> None:
        """Raise the failures in the call if no other participant can reply."""
        is_for_one = asked.request.to or asked.request.group
        if asked.failures and (is_for_one or asked.failures.keys() >= self._presence().present()):
            asked.end(asked.failure())

    async def _find_outcome(self, correlation_id: str) -> None:
        """Settle a repeated request with the reply that came before the call."""
        for message in await self._history(_SEARCHED):
            envelope = None if message.is_own else Envelope.decode(message.payload)
            if envelope is not None and envelope.kind in _OUTCOMES and envelope.correlation_id == correlation_id:
                self._settle(message.sender_id, envelope)

    async def _cancel(self, request: Envelope) -> None:
        """Cancel the request at the other side."""
        cancel = Envelope(b"", kind=EnvelopeKind.CANCEL, to=request.to, correlation_id=request.correlation_id)
        try:
            if self._was_sent(request.correlation_id):
                await self._send(cancel, deadline=request.expires_after_ms / 1_000)
        except FairwayError as error:
            _LOG.info("request %s could not be cancelled: %s", request.correlation_id, error)


async def _outcome_of(
    handler: RequestHandler, request: Request, failed: Callable[[Exception], None] | None
) -> Envelope | None:
    """Return the reply of a handler, or a failure with what it raised; None if it sends none."""
    name = getattr(handler, "__qualname__", repr(handler))
    try:
        with ForeignCode(f"handler {name}"):
            answer = handler(request)
            if inspect.isawaitable(answer):
                answer = await answer
        check_type(f"what {name} returns", answer, Envelope | bytes | None, "it is the reply")
    except Exception as error:  # noqa: BLE001 - an application's handler may raise anything
        _LOG.warning("handler %s raised on a request of %s", name, visible(request.sender_id), exc_info=error)
        if failed is not None:
            failed(error)
        return _failure(f"{type(error).__name__}: {error}")
    return None if answer is None else _reply(answer)


def _key_of(request: Request) -> RequestKey:
    return RequestKey(request.sender_id, request.correlation_id)


def _reply(payload: Envelope | bytes) -> Envelope:
    given = payload if isinstance(payload, Envelope) else Envelope(payload)
    return replace(given, kind=EnvelopeKind.REPLY)


def _failure(reason: str) -> Envelope:
    return Envelope(reason.encode(errors="replace"), kind=EnvelopeKind.FAILURE)


def _reply_id(request: MessageReceived) -> str:
    """Return the request id of the send that answers a request, the same in each run."""
    return "reply " + hashlib.sha256(f"{request.message_id} {request.sender_id}".encode()).hexdigest()


def _silence(to: str, receipt: Receipt | None, timeout_s: float) -> str:
    """Return what is known of a request without a reply."""
    if receipt is None:
        return f"the request was not accepted for sending within {timeout_s:g} s"
    holders = receipt.progress.delivered_to
    if to and to not in holders:
        return f"{to} did not acknowledge the request within {timeout_s:g} s; is it there?"
    return f"no reply came within {timeout_s:g} s; the request is with {', '.join(holders) or 'no other participant'}"
