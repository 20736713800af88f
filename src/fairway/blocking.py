"""The API of fairway without asyncio: for scripts, notebooks and threads, such as those of a Flask application.

::

    from fairway import blocking

    with (
        blocking.connect("local:") as node,
        blocking.create_reliable_channel(node, "team", "alice", "/myapp/1/team/proto", store="alice.db") as channel,
    ):
        receipt = channel.send(b"who is on watch?")
        receipt.delivered(timeout=30)
        for message in channel:
            print(message.sender_id, bytes(message))

One thread of this module runs an event loop with all nodes and channels of the process. Each call here runs there and
waits for the result, so any thread may use any object. A wait with ``timeout``, in seconds, raises `TimeoutError`; what
it waited for is not lost, and the call can be repeated.

Handlers run in threads, and may block or call this module; coroutine functions run on the event loop. All
else is as in the API with asyncio, whose documentation applies.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from os import PathLike
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar, Unpack

from fairway import files
from fairway.channel import creation
from fairway.channel.channels import Channels, SharedArguments
from fairway.channel.inbox import READING_THREAD
from fairway.channel.receipt import Acknowledgement, EphemeralReceipt, Progress, Receipt
from fairway.channel.reliable_channel import ReliableChannel
from fairway.channel.requests import Request, RequestLoop
from fairway.errors import DeliveryFailedError, EventLoopError, FairwayError
from fairway.events import ChannelStatus, Event, MessageReceived
from fairway.files.outcomes import FileArriving, FileLimits
from fairway.files.receiving import FileReceiver
from fairway.files.sending import FileDelivery
from fairway.nodes import connecting
from fairway.nodes.node import NodeStatus, WakuNode
from fairway.opening import Opening
from fairway.storage.sqlite_store import SqliteStore
from fairway.type_checks import check_callback, check_type
from fairway.wire.envelope import Envelope

__all__ = [
    "BlockingChannel",
    "BlockingChannels",
    "BlockingEphemeralReceipt",
    "BlockingFileReceiver",
    "BlockingLoop",
    "BlockingNode",
    "BlockingReceipt",
    "BlockingRequest",
    "BlockingRequestLoop",
    "connect",
    "create_reliable_channel",
    "send_file",
]

_MAX_HANDLERS: Final = 1_000
"""Handlers that run side by side: each has a thread, and may wait for another one."""

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E", bound=Event)
T = TypeVar("T")
ChannelsT = TypeVar("ChannelsT", ReliableChannel, Channels)


class _LoopThread:
    """A thread that runs an event loop until the process ends."""

    def __init__(self) -> None:
        self.process: Final = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(ThreadPoolExecutor(_MAX_HANDLERS, "fairway.handler"))
        self._thread = threading.Thread(target=self._loop.run_forever, name="fairway.blocking", daemon=True)
        self._thread.start()

    def wait(self, coroutine: Coroutine[Any, Any, R], timeout: float | None = None) -> R:
        """Run a coroutine, and return its result; raise `TimeoutError` after ``timeout`` seconds."""
        try:
            check_type("timeout", timeout, float | None, "it is in seconds")
            if threading.current_thread() is self._thread:
                raise EventLoopError(
                    "fairway.blocking was called on its own event loop, and would wait for itself: "
                    "call it in a function, not in a coroutine function"
                )
        except FairwayError:
            coroutine.close()
            raise

        async def within() -> R:
            try:
                async with asyncio.timeout(timeout) as limit:
                    return await coroutine
            except TimeoutError as error:
                if limit.expired():
                    raise TimeoutError(f"nothing came within {timeout} s; repeat the wait to go on") from error
                raise

        future = asyncio.run_coroutine_threadsafe(within(), self._loop)
        try:
            return future.result()
        except BaseException:
            # After Ctrl+C nobody waits for the coroutine.
            future.cancel()
            raise


_starting: Final = threading.Lock()
_thread: _LoopThread | None = None


def _loop_thread() -> _LoopThread:
    """Return the thread of this process; a forked process has none at first."""
    global _thread  # noqa: PLW0603 - one thread for the process
    with _starting:
        if _thread is None or _thread.process != os.getpid():
            _thread = _LoopThread()
        return _thread


def _wait(coroutine: Coroutine[Any, Any, R], timeout: float | None = None) -> R:
    READING_THREAD.set(threading.get_ident())
    return _loop_thread().wait(coroutine, timeout)


def _call(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function on the event loop, and return its result."""

    async def called() -> R:
        return function(*args, **kwargs)

    return _wait(called())


class _Blocking(Generic[T]):
    """An object of the API with asyncio, whose methods run on the event loop."""

    def __init__(self, inner: T) -> None:
        self._inner = inner

    def __repr__(self) -> str:
        return f"<fairway.blocking of {self._inner!r}>"


class _Closing(_Blocking[ChannelsT]):
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close. Without an exception, messages that a loop has taken are finished."""
        _wait(self._inner.__aexit__(kind, error, trace))


def _waiting(method: Callable[Concatenate[T, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[_Blocking[T], P], R]:
    """Return the blocking form of a coroutine method."""

    @wraps(method)
    def wait(self: _Blocking[T], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return _wait(method(self._inner, *args, **kwargs))

    return wait


def _calling(method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[_Blocking[T], P], R]:
    """Return the form for other threads of a method that does not wait."""

    @wraps(method)
    def call(self: _Blocking[T], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return _call(method, self._inner, *args, **kwargs)

    return call


class BlockingLoop(_Blocking[AsyncIterator[T]], Iterator[T]):
    """A loop over messages or events; asking for the next message finishes the one before."""

    def __next__(self) -> T:
        return self.next()

    def next(self, timeout: float | None = None) -> T:
        """Wait for the next one; raise `TimeoutError` after ``timeout`` seconds, `StopIteration` at the end."""
        try:
            return _wait(_next(self._inner), timeout)
        except StopAsyncIteration:
            raise StopIteration from None


async def _next(loop: AsyncIterator[T]) -> T:
    return await anext(loop)


class BlockingEphemeralReceipt(_Blocking[EphemeralReceipt]):
    """The outcome of an ephemeral send."""

    @property
    def request_id(self) -> str:
        """Unique for this send."""
        return self._inner.request_id

    @property
    def message_id(self) -> str:
        """SHA-256 of the payload, lower-case hex."""
        return self._inner.message_id

    def sent(self, timeout: float | None = None) -> None:
        """Wait until the node has accepted every segment; see `fairway.EphemeralReceipt.sent`."""
        _wait(self._inner.sent(), timeout)


class BlockingReceipt(BlockingEphemeralReceipt):
    """The progress and the outcome of a send."""

    _inner: Receipt

    @property
    def progress(self) -> Progress:
        """The segments that were sent and acknowledged so far."""
        return _call(lambda: self._inner.progress)

    @property
    def has_ended(self) -> bool:
        """Whether the request was delivered as asked, or failed."""
        return _call(lambda: self._inner.has_ended)

    @property
    def failure(self) -> DeliveryFailedError | None:
        """The failure of the request; None if it did not fail, or was delivered late."""
        return _call(lambda: self._inner.failure)

    def delivered(self, timeout: float | None = None, *, to_all_present: bool = False) -> Acknowledgement:
        """Wait until the wanted participants have acknowledged the message; see `fairway.Receipt.delivered`."""
        return _wait(self._inner.delivered(to_all_present=to_all_present), timeout)

    def updates(self) -> Iterator[Progress]:
        """Yield the progress now and whenever it changes, until the request ends."""
        return BlockingLoop(self._inner.updates())


class BlockingRequest(_Blocking[Request]):
    """A request of another participant."""

    reply = _waiting(Request.reply)
    fail = _waiting(Request.fail)

    def __bytes__(self) -> bytes:
        """Return the payload."""
        return self.payload

    @property
    def sender_id(self) -> str:
        """Who asks."""
        return self._inner.sender_id

    @property
    def payload(self) -> bytes:
        """The payload, without the envelope."""
        return self._inner.payload

    @property
    def content_type(self) -> str:
        """Media type of the payload; empty if it is not named."""
        return self._inner.content_type

    @property
    def group(self) -> str:
        """The workers of which one answers it; empty for a request without a group."""
        return self._inner.group

    @property
    def deadline_ms(self) -> int:
        """The requester waits until then, in Unix milliseconds by its clock; for a day if it gave no limit."""
        return self._inner.deadline_ms

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the request."""
        return self._inner.headers

    @property
    def correlation_id(self) -> str:
        """The same if the request comes again."""
        return self._inner.correlation_id

    @property
    def is_open(self) -> bool:
        """Whether the requester still waits for the reply, as far as is known here."""
        return self._inner.is_open


class BlockingRequestLoop(_Blocking[RequestLoop], Iterator[BlockingRequest]):
    """A loop over requests."""

    def __next__(self) -> BlockingRequest:
        return self.next()

    def next(self, timeout: float | None = None) -> BlockingRequest:
        """Wait for the next one; raise `TimeoutError` after ``timeout`` seconds, `StopIteration` at the end."""
        return BlockingRequest(BlockingLoop(self._inner).next(timeout))


class BlockingNode(_Blocking[WakuNode]):
    """A node of the Waku network."""

    @property
    def status(self) -> NodeStatus:
        """The present status."""
        return _call(lambda: self._inner.status)

    close = _waiting(WakuNode.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the node."""
        self.close()


def _sending(
    method: Callable[Concatenate[ReliableChannel, P], Coroutine[Any, Any, Receipt]],
) -> Callable[Concatenate[BlockingChannel, P], BlockingReceipt]:
    @wraps(method)
    def send(self: BlockingChannel, /, *args: P.args, **kwargs: P.kwargs) -> BlockingReceipt:
        return BlockingReceipt(_wait(method(self._inner, *args, **kwargs)))

    return send


class BlockingChannel(_Closing[ReliableChannel]):
    """A reliable channel; ``for message in channel`` reads its messages."""

    send = _sending(ReliableChannel.send)
    request = _waiting(ReliableChannel.request)
    snapshot = _sending(ReliableChannel.snapshot)
    latest_snapshot = _waiting(ReliableChannel.latest_snapshot)
    start = _waiting(ReliableChannel.start)
    stop = _waiting(ReliableChannel.stop)
    close = _waiting(ReliableChannel.close)
    settle = _waiting(ReliableChannel.settle)
    history = _waiting(ReliableChannel.history)
    backup = _waiting(ReliableChannel.backup)
    is_started = _calling(ReliableChannel.is_started)
    is_settled = _calling(ReliableChannel.is_settled)
    finish = _calling(ReliableChannel.finish)
    set_aside = _calling(ReliableChannel.set_aside)
    hand_over_again = _calling(ReliableChannel.hand_over_again)
    hand_over_later = _calling(ReliableChannel.hand_over_later)
    gaps = _calling(ReliableChannel.gaps)
    members = _calling(ReliableChannel.members)
    statistics = _calling(ReliableChannel.statistics)

    @property
    def channel_id(self) -> str:
        """The name that all participants use for the channel."""
        return self._inner.channel_id

    @property
    def sender_id(self) -> str:
        """The name of this participant."""
        return self._inner.sender_id

    @property
    def status(self) -> ChannelStatus:
        """Whether messages may be missing, or nothing can be sent."""
        return _call(lambda: self._inner.status)

    def send_ephemeral(self, payload: Envelope | bytes) -> BlockingEphemeralReceipt:
        """Send a message that may be lost; see `fairway.ReliableChannel.send_ephemeral`."""
        return BlockingEphemeralReceipt(_wait(self._inner.send_ephemeral(payload)))

    def receipt(self, request_id: str) -> BlockingReceipt:
        """Return the receipt of an earlier send, of this run or an earlier one."""
        return BlockingReceipt(_call(self._inner.receipt, request_id))

    def __iter__(self) -> BlockingLoop[MessageReceived]:
        """Return a loop over messages of other participants, each once and in causal order.

        It finishes a message when it asks for the next one.
        """
        return BlockingLoop(_call(aiter, self._inner))

    def requests(self, *, group: str | None = None) -> BlockingRequestLoop:
        """Return a loop over the requests of other participants to this one, or to a group, until the channel closes.

        See `fairway.ReliableChannel.requests`.
        """
        return BlockingRequestLoop(_call(self._inner.requests, group=group))

    def on_request(
        self,
        handler: Callable[[BlockingRequest], Envelope | bytes | Awaitable[Envelope | bytes | None] | None],
        *,
        group: str | None = None,
    ) -> Callable[[], None]:
        """Call ``handler`` in a thread with every request, several at a time; return a function that removes it.

        Its return value is the reply; None sends none. With a ``group`` it gets the requests that this worker takes,
        one at a time. See `fairway.ReliableChannel.on_request`.
        """
        check_callback("handler", handler, "a request")
        answer: Callable[[BlockingRequest], Any] = _in_thread(handler)

        @wraps(handler)
        async def handle(request: Request) -> Envelope | bytes | None:
            reply: Envelope | bytes | None = await answer(BlockingRequest(request))
            return reply

        return partial(_call, _call(self._inner.on_request, handle, group=group))

    def events(self) -> BlockingLoop[Event]:
        """Return a loop over all events from now on."""
        return BlockingLoop(_call(self._inner.events))

    def on(self, event: str | type[E], handler: Callable[[E], object]) -> Callable[[], None]:
        """Call ``handler`` in a thread with every event of a type; return a function that removes the handler."""
        return partial(_call, _call(self._inner.on, event, _in_thread(handler)))

    def __enter__(self) -> Self:
        """Start the channel if it is not started."""
        self.start()
        return self


class BlockingChannels(_Closing[Channels]):
    """Many channels of one participant in one store; see `fairway.Channels`, which has the same arguments."""

    backup = _waiting(Channels.backup)
    close = _waiting(Channels.close)

    def __init__(
        self,
        node: BlockingNode,
        *,
        store: str | PathLike[str] | SqliteStore,
        sender_id: str,
        content_topic: str,
        **settings: Unpack[SharedArguments],
    ) -> None:
        """Name the store and the participant; nothing is opened yet."""
        check_type("node", node, BlockingNode, "fairway.blocking.connect(...) makes one")

        def new() -> Channels:
            return Channels(
                node._inner,  # noqa: SLF001 - it is of this module
                store=store,
                sender_id=sender_id,
                content_topic=content_topic,
                **_with_thread(settings),
            )

        super().__init__(_call(new))

    def open(self, name: str, **settings: Unpack[SharedArguments]) -> BlockingChannel:
        """Return a channel, started; see `fairway.Channels.open`."""
        return BlockingChannel(_wait(self._inner.open(name, **_with_thread(settings))))

    def names(self, pattern: str = "*") -> list[str]:
        """Return the channels in the store whose names match a pattern, open or not."""
        return self._inner.names(pattern)

    def __getitem__(self, name: str) -> BlockingChannel:
        """Return a channel that `open` opened."""
        return BlockingChannel(_call(self._inner.__getitem__, name))

    def __iter__(self) -> BlockingLoop[MessageReceived]:
        """Return a loop over the messages of all channels; it finishes a message when it asks for the next one."""
        return BlockingLoop(_call(aiter, self._inner))

    def __enter__(self) -> Self:
        """Return the channels."""
        return self


def _with_thread(settings: SharedArguments) -> SharedArguments:
    """Return the arguments of a channel, with its handler in a thread."""
    receive = settings.get("receive")
    return {**settings, "receive": _in_thread(receive)} if callable(receive) else settings


def _in_thread(handler: Callable[[T], object]) -> Callable[[T], Coroutine[Any, Any, object]]:
    """Return a handler that calls another one in a thread, so that it may block; a coroutine function may not."""
    if inspect.iscoroutinefunction(handler):
        return handler

    @wraps(handler)
    async def handle(argument: T) -> object:
        return await asyncio.to_thread(handler, argument)

    return handle


class BlockingFileReceiver(_Blocking[FileReceiver]):
    """Saves the files of a channel in a folder; see `fairway.files.FileReceiver`."""

    take = _waiting(FileReceiver.take)
    postpone = _waiting(FileReceiver.postpone)
    path_of = _calling(FileReceiver.path_of)

    @classmethod
    def open(cls, channel: BlockingChannel, folder: str | PathLike[str], limits: FileLimits | None = None) -> Self:
        """Open a folder for the files of a channel."""
        return cls(_wait(FileReceiver.open(_inner_of(channel), folder, limits)))

    @property
    def incomplete(self) -> tuple[FileArriving, ...]:
        """The incomplete files, including those of earlier runs."""
        return _call(lambda: self._inner.incomplete)


def _inner_of(channel: BlockingChannel) -> ReliableChannel:
    check_type("channel", channel, BlockingChannel, "fairway.blocking.create_reliable_channel(...) makes one")
    return channel._inner  # noqa: SLF001 - it is of this module


def _connecting(function: Callable[P, Opening[WakuNode]]) -> Callable[P, BlockingNode]:
    @wraps(function)
    def connect(*args: P.args, **kwargs: P.kwargs) -> BlockingNode:
        async def opened() -> WakuNode:
            return await function(*args, **kwargs)

        return BlockingNode(_wait(opened()))

    return connect


def _creating(
    function: Callable[Concatenate[WakuNode, P], Opening[ReliableChannel]],
) -> Callable[Concatenate[BlockingNode, P], BlockingChannel]:
    @wraps(function)
    def create(node: BlockingNode, /, *args: P.args, **kwargs: P.kwargs) -> BlockingChannel:
        check_type("node", node, BlockingNode, "fairway.blocking.connect(...) makes one")
        receive: Any = kwargs.get("receive")
        if callable(receive):
            kwargs["receive"] = _in_thread(receive)

        async def opened() -> ReliableChannel:
            return await function(node._inner, *args, **kwargs)  # noqa: SLF001 - it is of this module

        return BlockingChannel(_wait(opened()))

    return create


connect = _connecting(connecting.connect)
create_reliable_channel = _creating(creation.create_reliable_channel)


def _file_sending(
    function: Callable[Concatenate[ReliableChannel, P], Coroutine[Any, Any, FileDelivery]],
) -> Callable[Concatenate[BlockingChannel, P], FileDelivery]:
    @wraps(function)
    def send(channel: BlockingChannel, /, *args: P.args, **kwargs: P.kwargs) -> FileDelivery:
        return _wait(function(_inner_of(channel), *args, **kwargs))

    return send


send_file = _file_sending(files.send_file)
