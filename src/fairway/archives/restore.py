"""`restore`: makes the store of a channel from an archive, so that the live channel need not query the network.

After months offline, or the loss of a disk, a participant would query store nodes for all messages page by page.
`restore` passes the messages of a run folder to the protocol core of a live channel, in the order of their timestamps,
each at its own time. The result is a store that `create_reliable_channel` opens. Delivered messages are in the inbox,
so that the application reads them as new ones. The channel queries missing messages when it starts; it needs no query
for the time up to the last message. A message that waits for a missing one is delivered later by the channel, or with
``around_gaps`` by `restore`.
"""

from __future__ import annotations

import os
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from msgspec.structs import replace

from fairway.errors import ConfigurationError, DecryptionError, StorageError
from fairway.events import MessageReceived
from fairway.options import Profile, ReliableChannelOptions
from fairway.pipeline.keys import ChannelKeys
from fairway.pipeline.location import local_path
from fairway.pipeline.run.reading import RunTables, in_tables
from fairway.protocol.effects import Effect, Emit
from fairway.protocol.stack import Stack
from fairway.storage.channel_store import ChannelStore, Write
from fairway.storage.sqlite_store import SqliteStore
from fairway.units import NS_PER_MS
from fairway.wire.waku_message import WakuMessage

WINDOW_MESSAGES: Final = 20_000
"""Messages of a window, which is in memory with its payloads."""
_WRITE_MESSAGES: Final = 256
_WRITE_BYTES: Final = 8_388_608
"""Bounds of the delivered messages in one durable write."""
_MOST_PARKED: Final = 2_000
"""Most parked messages with ``around_gaps``. Messages of an archive arrive in the order of their timestamps, so a
message that is absent after so many others counts as missing, not as late."""
_MOST_PARKED_BYTES: Final = 33_554_432
"""Most bytes of parked messages with ``around_gaps``."""
_COLUMNS: Final = ("message_hash", "payload", "version", "timestamp_ns", "meta")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A cited message that is not in the archive."""

    message_id: str
    """Id of the SDS message."""
    sender_id: str | None
    """Its author, if a citation names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """Counts of a restored store."""

    messages: int
    """WakuMessages of the channel's content topic that were read."""
    refused: int
    """Messages that the channel's keys do not decrypt: in clear text, or under other keys."""
    delivered: int
    """Messages of others that were delivered; the application finds them unread, except with ``as_read``."""
    history: int
    """Messages in the channel's log."""
    around_gaps: int
    """Delivered messages without all messages that they cite (``dependencies_met`` is False)."""
    parked: int
    """Messages that wait for missing ones."""
    no_room: int
    """Messages that were dropped because too many others were parked; the channel must get them from a store."""
    missing: int
    """Cited messages that are not in the archive."""
    left_out: tuple[LeftOut, ...]
    """The missing messages with ``around_gaps``; else empty."""
    caught_up_to_ns: int
    """Timestamp of the last message that was not refused, but not later than now."""


def restore(
    tables: RunTables,
    store: str | os.PathLike[str],
    *,
    channel_id: str,
    sender_id: str,
    content_topic: str | None = None,
    options: ReliableChannelOptions | None = None,
    keys: ChannelKeys | None = None,
    as_read: bool = False,
    around_gaps: bool = False,
) -> Restored:
    """Make the store of one participant in one channel out of a run's tables.

    ``content_topic`` is needed only if the channel was on several. With ``keys``, messages that the channel's keys do
    not decrypt, and those in clear text, are refused and counted, as in the live channel. With ``as_read`` the messages
    count as finished by the application. With ``around_gaps`` no message waits for a missing one: it is delivered with
    ``dependencies_met`` False. The channel still requests the missing messages when it starts, and delivers them when
    they arrive. The store must not exist; it appears whole or not at all. Raises `ConfigurationError` for an unknown
    channel, an ambiguous topic, keys that are not this channel's or decrypt nothing, or an existing store, and
    `StorageError` if it cannot be written.
    """
    path = local_path(store, "--store")
    if path.exists():
        raise ConfigurationError(f"{path} is there already: give a new file, or move that one away")
    topic = _topic_of(tables, channel_id, content_topic)
    places = _timestamps(tables, topic)
    opened = _Opened(_messages(tables, topic, places), None if keys is None else keys.opening(channel_id, topic))
    messages = iter(opened)
    first = next(messages, None)
    if first is None:
        raise ConfigurationError(
            f"none of the {len(places)} messages on {topic} opens with the key of {channel_id!r}; check the key file"
        )
    stack = Stack(
        channel_id,
        sender_id,
        topic,
        options or _options_for(first),
        now_ms=opened.now_ms,
        seed=secrets.token_bytes(32),
        encryption=None if keys is None else opened,
    )
    # A restore sends nothing; the channel schedules its messages when it starts.
    stack.set_connected(False, opened.now_ms)
    beside = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    file = SqliteStore(beside)
    try:
        file.open(channel_id, sender_id, topic)
        received = _received(stack, chain([first], messages), opened, around_gaps=around_gaps)
        delivered, unmet = _keep_delivered(received, file, as_read=as_read)
        stack.caught_up(opened.latest_ns, opened.now_ms)
        _submit(file, Write(changes=stack.snapshot()))
        file.close()
        beside.replace(path)
    finally:
        file.close()
        for left in beside.parent.glob(f"{beside.name}*"):
            left.unlink()
    figures = stack.statistics()
    return Restored(
        messages=len(places),
        refused=opened.refused,
        delivered=delivered,
        history=figures.history,
        around_gaps=unmet,
        parked=figures.parked,
        no_room=figures.no_room + figures.not_kept,
        missing=figures.missing,
        left_out=_left_out(stack) if around_gaps else (),
        caught_up_to_ns=opened.latest_ns,
    )


class _Opened:
    """The messages that a channel's keys decrypt, in order; also the encryption hook that returns their plaintext.

    Refused messages do not reach the core, so their time and profile have no effect.
    """

    def __init__(self, messages: Iterator[WakuMessage], open_: Callable[[bytes], bytes] | None) -> None:
        self._messages = messages
        self._open = open_
        self._plaintext = b""
        self._until_ns = time.time_ns()
        self.refused = 0
        self.latest_ns = 0
        """The last timestamp so far; a timestamp in the future counts as now."""

    @property
    def now_ms(self) -> int:
        """Return the time of the last message, as its time of reception."""
        return self.latest_ns // NS_PER_MS

    def __iter__(self) -> Iterator[WakuMessage]:
        for message in self._messages:
            if self._open is not None:
                try:
                    self._plaintext = self._open(message.payload)
                except DecryptionError:
                    self.refused += 1
                    continue
            self.latest_ns = min(max(self.latest_ns, message.timestamp_ns or 0), self._until_ns)
            # The version is removed, because a change of cipher may have changed it.
            yield message if self._open is None else replace(message, version=None)

    def encrypt(self, plaintext: bytes, /) -> bytes:
        """Raise `ConfigurationError`: a restore sends nothing."""
        raise ConfigurationError(f"{len(plaintext)} bytes were to be encrypted while a store is restored")

    def decrypt(self, _ciphertext: bytes, /) -> bytes:
        """Return the plaintext of the last message."""
        return self._plaintext


def _received(
    stack: Stack, messages: Iterable[WakuMessage], opened: _Opened, *, around_gaps: bool
) -> Iterator[tuple[Effect, ...]]:
    """Yield the effects of each message; with ``around_gaps`` also those of deliveries around gaps.

    These happen when too many messages are parked, and after the last message.
    """
    for message in messages:
        yield stack.receive_stored([(message, None)], opened.now_ms)
        figures = stack.sds.statistics()
        if around_gaps and (figures.parked > _MOST_PARKED or figures.parked_bytes > _MOST_PARKED_BYTES):
            # Half of them stays parked, because a message with a late timestamp may still arrive.
            yield stack.deliver_around_gaps(opened.now_ms, keep=figures.parked // 2)
    if around_gaps:
        yield stack.deliver_around_gaps(opened.now_ms)


def _left_out(stack: Stack) -> tuple[LeftOut, ...]:
    return tuple(
        LeftOut(message_id=missing.entry.message_id, sender_id=missing.entry.sender_id)
        for missing in stack.sds.missing.values()
    )


def _keep_delivered(received: Iterator[tuple[Effect, ...]], store: ChannelStore, *, as_read: bool) -> tuple[int, int]:
    """Store the delivered messages; return their number, and the number of those with missing dependencies."""
    number = unmet = 0
    messages: list[tuple[int, MessageReceived]] = []

    def write() -> None:
        finished = tuple(each for each, _ in messages) if as_read else ()
        _submit(store, Write(delivered=tuple(messages), finished=finished))
        messages.clear()

    for effects in received:
        for event in _delivered(effects):
            number += 1
            unmet += not event.dependencies_met
            messages.append((number, event))
        if sum(len(event.payload) for _, event in messages) >= _WRITE_BYTES or len(messages) >= _WRITE_MESSAGES:
            write()
    write()
    return number, unmet


def _delivered(effects: tuple[Effect, ...]) -> list[MessageReceived]:
    events = [effect.event for effect in effects if isinstance(effect, Emit)]
    return [event for event in events if isinstance(event, MessageReceived) and not event.ephemeral]


def _submit(store: ChannelStore, write: Write) -> None:
    """Submit a write and wait until it is durable, so that memory holds at most one write."""
    done = threading.Event()
    failed: list[StorageError] = []

    def answer(error: StorageError | None) -> None:
        failed.extend(() if error is None else (error,))
        done.set()

    store.submit(write, answer)
    done.wait()
    if failed:
        raise failed[0]


def _topic_of(tables: RunTables, channel_id: str, content_topic: str | None) -> str:
    """Return the content topic of a channel, which has one (RELIABLE-CHANNEL-API, "Create Reliable Channel")."""
    found: set[str] = set()
    for batch in tables.batches("sds_messages", ["content_topic"], ds.field("channel_id") == channel_id):
        found.update(batch.column("content_topic").unique().to_pylist())
    if not found:
        raise ConfigurationError(
            f"there is no channel {channel_id!r} in {tables.place}; 'fairway pipeline report' lists those that are"
        )
    if content_topic is None and len(found) > 1:
        raise ConfigurationError(f"channel {channel_id!r} is on several content topics, name one: {sorted(found)}")
    topic = content_topic or found.pop()
    if content_topic is not None and content_topic not in found:
        raise ConfigurationError(f"channel {channel_id!r} has nothing on {topic}; its messages are on {sorted(found)}")
    return topic


def _timestamps(tables: RunTables, topic: str) -> npt.NDArray[np.int64]:
    """Return the timestamps of a topic's messages, ascending."""
    batches = tables.batches("waku_messages", ["timestamp_ns"], _on(topic))
    return np.sort(np.concatenate([np.zeros(0, np.int64), *(batch.column(0).to_numpy() for batch in batches)]))


def _messages(tables: RunTables, topic: str, timestamps: npt.NDArray[np.int64]) -> Iterator[WakuMessage]:
    """Yield the messages by time and hash. The table is read once, into a temporary file sorted by windows."""
    bounds = timestamps[WINDOW_MESSAGES::WINDOW_MESSAGES]
    with tempfile.TemporaryFile(prefix="fairway-restore-") as file:
        places: list[list[int]] = [[] for _ in range(len(bounds) + 1)]
        for table in in_tables(tables.batches("waku_messages", _COLUMNS, _on(topic))):
            windows = np.searchsorted(bounds, table["timestamp_ns"].to_numpy(), side="right")
            for window in np.unique(windows).tolist():
                places[window].append(file.tell())
                with pa.ipc.new_stream(file, table.schema) as writer:
                    writer.write_table(table.filter(pa.array(windows == window)))
        for starts in filter(None, places):
            parts = []
            for start in starts:
                file.seek(start)
                parts.append(pa.ipc.open_stream(file).read_all())
            by = [("timestamp_ns", "ascending"), ("message_hash", "ascending")]
            for row in pa.concat_tables(parts).sort_by(by).to_pylist():
                yield _message_of(row, topic)


def _on(topic: str) -> ds.Expression:
    """Return the condition for messages of a topic that at least one store has intact."""
    return (ds.field("content_topic") == topic) & (pc.list_value_length(ds.field("sources")) > 0)


def _message_of(row: dict[str, Any], topic: str) -> WakuMessage:
    return WakuMessage(
        payload=row["payload"],
        content_topic=topic,
        version=row["version"] or None,
        timestamp_ns=row["timestamp_ns"],
        meta=row["meta"],
    )


def _options_for(message: WakuMessage) -> ReliableChannelOptions:
    """Return the default options of the profile of a message, by its marker."""
    return Profile.of_marker(message.meta).options()
