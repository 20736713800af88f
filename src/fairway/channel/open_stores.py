"""The stores that channels of this process hold open.

A channel that is never closed holds its store until the process ends. Once its event loop has ended or the channel is
collected, nothing can use it any more, and another channel may have the store. While its loop runs, the error of the
other channel names it.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, field
from typing import Final, NoReturn, Protocol
from weakref import ReferenceType, finalize, ref

from fairway.environment import environment
from fairway.errors import StoreLockedError
from fairway.loop_binding import LoopBinding
from fairway.storage.channel_store import ChannelStore, Stored
from fairway.storage.sqlite_store import SqliteStore


class StoreHolder(Protocol):
    """A `ReliableChannel`, as far as its store is concerned."""

    channel_id: str
    sender_id: str
    content_topic: str


@dataclass(slots=True, eq=False)
class _Held:
    """A store that a channel holds open."""

    store: ChannelStore
    binding: LoopBinding
    channel: ReferenceType[StoreHolder]
    warning: finalize[..., StoreHolder] | None
    """Warns when the channel is collected, or the process ends."""
    process: int = field(default_factory=os.getpid)

    @property
    def is_left(self) -> bool:
        """Whether this process opened the store, and its channel or event loop has ended."""
        return self.process == os.getpid() and (self.binding.has_ended or self.channel() is None)


_HELD: Final[list[_Held]] = []


def open_store(channel: StoreHolder, store: ChannelStore, binding: LoopBinding) -> Stored:
    """Open the store of a channel, and return its state.

    Raises `StoreLockedError` if another channel holds the store, and names a channel of this process.
    """
    for held in [held for held in _HELD if held.is_left]:
        _close(held)
    try:
        stored = store.open(channel.channel_id, channel.sender_id, channel.content_topic)
    except StoreLockedError as error:
        _raise_with_holder(error, store)
    # A killed simulated program closes nothing, as a killed process.
    is_real = environment().only_loop is None
    name = f"ReliableChannel {channel.channel_id!r} of {channel.sender_id!r}"
    _HELD.append(_Held(store, binding, ref(channel), finalize(channel, _warn, name) if is_real else None))
    return stored


def close_store(channel: StoreHolder) -> None:
    """Close the store that `open_store` opened for a channel, unless it is closed."""
    for held in [held for held in _HELD if held.channel() is channel]:
        if held.warning is not None:
            held.warning.detach()
        _close(held)


def _close(held: _Held) -> None:
    _HELD.remove(held)
    if held.warning is not None:
        # Does nothing if it was detached.
        held.warning()
    held.store.close()


def _raise_with_holder(error: StoreLockedError, store: ChannelStore) -> NoReturn:
    for held in _HELD:
        channel = held.channel()
        if channel is not None and held.process == os.getpid() and _is_same(held.store, store):
            named = StoreLockedError(
                f"{channel!r} of this process holds the store and was never closed: await its close(), or use "
                "'async with'. It is the attribute 'channel' of this error. Or give each channel a store of its own"
            )
            named.channel = channel
            raise named from error
    raise error


def _is_same(one: ChannelStore, other: ChannelStore) -> bool:
    if isinstance(one, SqliteStore) and isinstance(other, SqliteStore):
        return one.path.resolve() == other.path.resolve()
    return one is other


def _warn(channel: str) -> None:
    warnings.warn(f"unclosed {channel}: await its close(), or use 'async with'", ResourceWarning, stacklevel=2)
