"""Requests and replies: `ReliableChannel.request`, and the `Request`s that other participants make.

A request is a message in an `Envelope`. It stays unfinished in the inbox until it is answered, cancelled or expired, so
a restart hands it over again. A reply names its request by the correlation id. A participant finishes requests and
replies for others without handing them over.

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
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Self

from fairway.channel.history import HistoryMessage
from fairway.channel.inbox import Delivered, Inbox
from fairway.channel.receipt import Receipt
from fairway.environment import environment
from fairway.errors import (
    ConfigurationError,
    FairwayError,
    MessageTooLargeError,
    RequestFailedError,
    RequestTimeoutError,
    copy_of,
)
from fairway.events import MessageReceived
from fairway.foreign_code import ForeignCode
from fairway.loop_binding import LoopBinding
from fairway.owned_tasks import OwnedTasks
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

    def __init__(self, desk: RequestDesk) -> None:
        self._binding = LoopBinding("the loop over requests")
        self._desk = desk

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Request:
        """Wait for the next request."""
        self._binding.check()
        return await self._desk.next()


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
        telemetry: Telemetry | None,
    ) -> None:
        """``was_sent`` returns whether the store knows a send with a request id, and raises if it is closed."""
        self._sender_id = sender_id
        self._inbox = inbox
        self._now_ms = now_ms
        self._send = send
        self._was_sent = was_sent
        self._history = history
        self._telemetry = telemetry
        self._tasks = OwnedTasks()
        self._asked: dict[str, tuple[str, asyncio.Future[tuple[str, Envelope]]]] = {}
        """By correlation id, the wanted addressee and what waits for the outcome."""
        self._open: dict[int, Request] = {}
        """The requests of others that are not answered, by number in the inbox."""
        self._expiries: dict[int, asyncio.TimerHandle] = {}
        self._running: dict[int, asyncio.Task[None]] = {}
        """The calls of the handler, by number of the request."""
        self._new: OrderedDict[int, Request] = OrderedDict()
        """The requests that no loop has taken."""
        self._handler: RequestHandler | None = None
        self._is_serving = False
        self._waiters = Waiters()
        self._failure: BaseException | None = None

    async def request(self, envelope: Envelope, timeout_s: float, request_id: str | None) -> Reply:
        """Send a request and wait for its reply (`ReliableChannel.request`)."""
        request = replace(envelope, kind=EnvelopeKind.REQUEST, expires_after_ms=max(1, int(timeout_s * 1_000)))
        if request_id is None:
            correlation_id = environment().random_bytes(_CORRELATION_BYTES).hex()
        else:
            # Without a store nothing else tells a repeated request from another one with its id.
            correlation_id = f"{request_id} {sha256(request.encode()).hexdigest()[: 2 * _CORRELATION_BYTES]}"
        if correlation_id in self._asked:
            raise ConfigurationError(f"request {request_id!r} waits for its reply already; choose another id")
        request = replace(request, correlation_id=correlation_id)
        outcome: asyncio.Future[tuple[str, Envelope]] = asyncio.get_running_loop().create_future()
        self._asked[correlation_id] = (request.to, outcome)
        receipt = None
        try:
            async with asyncio.timeout(timeout_s):
                is_repeated = request_id is not None and self._was_sent(request_id)
                by = {request.to} if request.to else ()
                receipt = await self._send(request, by=by, request_id=request_id or correlation_id, deadline=timeout_s)
                if is_repeated:
                    await self._find_outcome(correlation_id)
                sender_id, answer = await outcome
        except TimeoutError as error:
            raise RequestTimeoutError(_silence(request.to, receipt, timeout_s)) from error
        except asyncio.CancelledError:
            self._tasks.spawn(self._cancel(request))
            raise
        finally:
            del self._asked[correlation_id]
        if answer.kind is EnvelopeKind.FAILURE:
            raise RequestFailedError(f"{sender_id} did not reply: {answer.content.decode(errors='replace')}")
        return Reply(
            sender_id=sender_id, payload=answer.content, content_type=answer.content_type, headers=answer.headers
        )

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

    def loop(self) -> RequestLoop:
        """Return a loop over the requests of others."""
        self._is_serving = True
        return RequestLoop(self)

    def serve(self, handler: RequestHandler) -> Callable[[], None]:
        """Call a handler with each request, present ones included; return a function that ends this."""
        if self._handler is not None:
            raise ConfigurationError("this channel has a handler of requests; remove it first")
        self._handler = handler
        while self._new:
            self._call(*self._new.popitem(last=False))

        def remove() -> None:
            if self._handler is handler:
                self._handler = None

        return remove

    async def next(self) -> Request:
        """Wait for the next request that no loop has taken; raise `StopAsyncIteration` when the channel is closed."""
        while self._failure is None:
            if self._new:
                request = self._new.popitem(last=False)[1]
                if self._inbox.received is not None:
                    self._inbox.received(request.message)
                return request
            await self._waiters.wait()
        raise copy_of(self._failure)

    def restart(self) -> None:
        """Continue after a failure; the caller then hands the messages of the store over."""
        self._failure = None

    def end(self, failure: BaseException, loops: BaseException | None = None) -> None:
        """Raise ``failure`` in calls that wait for a reply, and ``loops`` or the same in loops over requests."""
        for _, outcome in self._asked.values():
            if not outcome.done():
                outcome.set_exception(copy_of(failure))
        self._failure = loops or failure
        self._waiters.wake()

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
        is_for_us = envelope.to in {"", self._sender_id}
        if is_for_us and envelope.kind is EnvelopeKind.REQUEST:
            self._note(number, message, envelope)
            return True
        if is_for_us and envelope.kind is EnvelopeKind.CANCEL:
            for each, request in list(self._open.items()):
                if (request.sender_id, request.correlation_id) == (message.sender_id, envelope.correlation_id):
                    self._close(each)
        elif is_for_us:
            self._settle(message.sender_id, envelope)
        self._inbox.finish(number)
        return True

    def _note(self, number: int, message: MessageReceived, envelope: Envelope) -> None:
        """Keep a request until it is over."""
        known = self._open.get(number)
        if known is not None:
            # A start hands over again what the earlier start had: the handler goes on, or could not send its reply.
            if self._handler is not None and self._new.pop(number, None) is not None:
                self._call(number, known)
            return
        now_ms = self._now_ms()
        deadline_ms = (message.timestamp_ns // NS_PER_MS or now_ms) + (envelope.expires_after_ms or _OPEN_AT_MOST_MS)
        # After a start the program may ask for all that it had.
        is_unserved = not self._is_serving and self._handler is None and not message.redelivered
        if deadline_ms <= now_ms or (is_unserved and len(self._new) >= _MAX_UNSERVED):
            self._inbox.finish(number)
            return
        request = Request(self, message, envelope, deadline_ms)
        self._open[number] = request
        loop = asyncio.get_running_loop()
        self._expiries[number] = loop.call_later((deadline_ms - now_ms) / 1_000, self._close, number)
        if self._handler is None:
            self._new[number] = request
            self._waiters.wake()
        else:
            self._call(number, request)

    def _close(self, number: int) -> None:
        """End a request: it is answered, cancelled or expired."""
        request = self._open.pop(number)
        request.is_open = False
        self._new.pop(number, None)
        self._expiries.pop(number).cancel()
        running = self._running.pop(number, None)
        if running is not None and running is not asyncio.current_task():
            self._tasks.cancel(running)
        self._inbox.finish(number)

    def _call(self, number: int, request: Request) -> None:
        assert self._handler is not None, "the caller looked"
        handle, telemetry = partial(self._handle, number, request, self._handler), self._telemetry
        work = handle() if telemetry is None else telemetry.serve(request.message, handle)
        self._running[number] = self._tasks.spawn(work)

    async def _handle(
        self, number: int, request: Request, handler: RequestHandler, failed: Callable[[Exception], None] | None = None
    ) -> None:
        """Call the handler and send its reply; ``failed`` is called with what the handler raises."""
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
                self._new[number] = request  # the next start calls the handler again
        finally:
            self._running.pop(number, None)

    def _settle(self, sender_id: str, envelope: Envelope) -> None:
        """Pass a reply on to the call that waits for it, if one does."""
        to, outcome = self._asked.get(envelope.correlation_id, (None, None))
        if outcome is not None and to in {"", sender_id} and not outcome.done():
            outcome.set_result((sender_id, envelope))

    async def _find_outcome(self, correlation_id: str) -> None:
        """Settle a repeated request with the reply that came before the call."""
        for message in await self._history(_SEARCHED):
            envelope = None if message.is_own else Envelope.decode(message.payload)
            if envelope is not None and envelope.kind in _OUTCOMES and envelope.correlation_id == correlation_id:
                self._settle(message.sender_id, envelope)

    async def _cancel(self, request: Envelope) -> None:
        """Tell the other side that nobody waits for the reply any more."""
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
