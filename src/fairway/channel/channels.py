"""`Channels`: many reliable channels of one participant, with one node and one store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypedDict, Unpack

from fairway.channel.clock import Clock
from fairway.channel.creation import create_reliable_channel, options_of
from fairway.channel.inbox import MessageLoop
from fairway.channel.open_stores import close_store
from fairway.channel.reliable_channel import ReliableChannel
from fairway.errors import ChannelClosedError, ConfigurationError
from fairway.events import MessageReceived
from fairway.identity import Identity, Members
from fairway.nodes.node import WakuNode
from fairway.options import Receive, ReliableChannelOptions
from fairway.protocol.encryption import Encryption
from fairway.protocol.ratelimit import RlnProofProvider
from fairway.storage.sqlite_store import SqliteStore
from fairway.storage.store_reader import StoreReader
from fairway.type_checks import check_type
from fairway.waiters import Waiters

_NAME: Final = "{channel}"
"""Where a content topic has the name of the channel."""


class SharedArguments(TypedDict, total=False):
    """The arguments of `create_reliable_channel` that `Channels` passes on."""

    encryption: Encryption | None
    options: ReliableChannelOptions | Mapping[str, Any] | None
    receive: Receive | Callable[[MessageReceived], object]
    identity: Identity | None
    members: Members | Mapping[str, bytes | str] | None
    require_signatures: bool | None
    rln: RlnProofProvider | None
    clock: Clock | None


class Channels:
    """Many channels with one store; ``async for message in channels`` reads the messages of all that are open.

    A message names its channel as ``channel_id``. The loop finishes a message as the loop over one channel does. It
    takes from all channels in turn.
    """

    def __init__(
        self,
        node: WakuNode,
        *,
        store: str | PathLike[str] | SqliteStore,
        sender_id: str,
        content_topic: str,
        **settings: Unpack[SharedArguments],
    ) -> None:
        """Name the store and the participant; nothing is opened yet.

        ``content_topic``, such as ``/my-app/1/{channel}/proto``, has the name of each channel in the place of
        ``{channel}``. ``settings`` are further arguments of `create_reliable_channel`, for all channels.

        Raises `ConfigurationError` for arguments that cannot work.
        """
        check_type("node", node, WakuNode, "fairway.connect(...) makes one")
        check_type("store", store, str | PathLike | SqliteStore, "give the path of a file")
        check_type("content_topic", content_topic, str, "give one such as /my-app/1/{channel}/proto")
        if _NAME not in content_topic:
            raise ConfigurationError(
                f"each channel needs a content topic of its own: put {_NAME} into {content_topic!r}"
            )
        _check(settings)
        self._node = node
        self._store = store if isinstance(store, SqliteStore) else SqliteStore(store)
        self._sender_id = sender_id
        self._content_topic = content_topic
        self._settings: SharedArguments = settings
        self._channels: dict[str, ReliableChannel] = {}
        self._ready: dict[str, None] = {}
        """Names of the channels that may have unread messages, in the order of their turns."""
        self._waiters = Waiters()
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<Channels of {self._sender_id!r} in {str(self._store.path)!r}, {len(self._channels)} open>"

    async def open(self, name: str, **settings: Unpack[SharedArguments]) -> ReliableChannel:
        """Return a channel, started; the same object as long as it is open. It is created if the store lacks it.

        ``settings`` are arguments of `create_reliable_channel` for this channel, such as its ``encryption``. They have
        no effect if it is open already. Raises what `create_reliable_channel` raises, and `ChannelClosedError` after
        `close`.
        """
        check_type("name", name, str)
        _check(settings)
        while not self._is_closed:
            channel = self._channels.get(name)
            if channel is None:
                channel = self._channels[name] = await self._new(name, {**self._settings, **settings})
            try:
                await channel.start()
            except ChannelClosedError:
                # The application has closed this one: make another.
                self._drop(name, channel)
            except BaseException:
                if not channel.is_started():
                    self._drop(name, channel)
                raise
            else:
                # Another caller may have failed to start it, and dropped it.
                self._channels.setdefault(name, channel)
                return channel
        raise ChannelClosedError("the channels are closed; make new ones with the same store to go on")

    def names(self, pattern: str = "*") -> list[str]:
        """Return the channels in the store whose names match a pattern, such as ``room-*``, open or not.

        A pattern is as in `fnmatch.fnmatchcase`. The order is that of their creation. Raises a `StorageError` if the
        store cannot be read.
        """
        check_type("pattern", pattern, str, "give one such as room-*")
        if not self._store.path.exists():
            return []
        owners = StoreReader(self._store.path).owners()
        return [owner.channel_id for owner in owners if fnmatchcase(owner.channel_id, pattern)]

    def __getitem__(self, name: str) -> ReliableChannel:
        """Return a channel that `open` opened; raise `ConfigurationError` for another one."""
        channel = self._channels.get(name)
        if channel is None:
            raise ConfigurationError(f"channel {name!r} is not open: call channels.open({name!r})")
        return channel

    def __aiter__(self) -> ChannelsLoop:
        """Return a loop over the messages of all channels, also of those that are opened later.

        If a channel fails, the loop raises its error once, and a new loop continues with the others. `open` starts the
        failed channel again. If there are several loops, each message goes to one of them. Raises `ConfigurationError`
        if the channels receive in another way.
        """
        if self._settings.get("receive", Receive.LOOP) is not Receive.LOOP:
            raise ConfigurationError("these channels were created with receive=, so they receive in another way")
        return ChannelsLoop(self._next)

    async def backup(self, path: str | PathLike[str]) -> None:
        """Copy the store, with all channels, into a new file; see `ReliableChannel.backup`."""
        check_type("path", path, str | PathLike, "give the path of a new file")
        await asyncio.to_thread(self._store.back_up, Path(path))

    async def close(self) -> None:
        """Close all channels; loops end. Can be called twice."""
        await self._end([channel.close() for channel in self._channels.values()])

    async def __aenter__(self) -> Self:
        """Return the channels."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all channels. Without an exception, messages that a loop has taken are finished."""
        await self._end([channel.__aexit__(kind, error, trace) for channel in self._channels.values()])

    async def _end(self, ends: Iterable[Awaitable[None]]) -> None:
        self._is_closed = True
        self._waiters.wake()
        try:
            failures = [each for each in await asyncio.gather(*ends, return_exceptions=True) if each is not None]
        except asyncio.CancelledError:
            # As at the end of asyncio.run: the tasks that close the channels may not have begun.
            for channel in self._channels.values():
                close_store(channel)
            raise
        if failures:
            raise failures[0]

    async def _new(self, name: str, settings: SharedArguments) -> ReliableChannel:
        """Return a channel, not started. This does not let other tasks run."""
        settings["options"] = replace(options_of(settings.get("options")), auto_start=False)
        channel = await create_reliable_channel(
            self._node,
            name,
            self._sender_id,
            self._content_topic.replace(_NAME, name),
            store=self._store.beside(),
            **settings,
        )
        if settings.get("receive", Receive.LOOP) is Receive.LOOP:
            aiter(channel).inbox.watch(partial(self._see, name))
        return channel

    def _drop(self, name: str, channel: ReliableChannel) -> None:
        if self._channels.get(name) is channel:
            del self._channels[name]

    def _see(self, name: str) -> None:
        self._ready[name] = None
        self._waiters.wake()

    async def _next(self) -> MessageLoop:
        """Wait for the next message of any channel; return a loop over its channel that has taken it."""
        while not self._is_closed:
            while self._ready:
                name = next(iter(self._ready))
                del self._ready[name]
                loop = self._take(name)
                if loop is not None:
                    # It is the turn of the other channels.
                    self._ready[name] = None
                    return loop
            await self._waiters.wait()
        raise StopAsyncIteration

    def _take(self, name: str) -> MessageLoop | None:
        try:
            loop = aiter(self[name])
        except (ConfigurationError, ChannelClosedError):
            return None  # The application has closed it.
        try:
            loop.take()
        except Exception as error:
            error.add_note(f"in channel {name!r}")
            raise
        return None if loop.in_hand is None else loop


class ChannelsLoop:
    """A loop over the messages of many channels."""

    def __init__(self, next_loop: Callable[[], Awaitable[MessageLoop]]) -> None:
        """``next_loop`` returns a loop over one channel that has taken a message."""
        self._next = next_loop
        self._loop: MessageLoop | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MessageReceived:
        """Finish the previous message, and wait for the next one of any channel."""
        if self._loop is not None:
            self._loop.finish()
            self._loop = None
        self._loop = await self._next()
        assert self._loop.in_hand is not None, "it has taken a message"
        return self._loop.in_hand.message


def _check(settings: SharedArguments) -> None:
    """Raise `TypeError` for an unknown argument before a channel is opened."""
    unknown = settings.keys() - SharedArguments.__optional_keys__
    if unknown:
        raise TypeError(f"got an unexpected keyword argument {min(unknown)!r}")
