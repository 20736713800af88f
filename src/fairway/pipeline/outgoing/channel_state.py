"""`ChannelState`: the state of a sender in a channel before the first message of a batch.

Invariant: a batch with the state of a channel cites the channel's newest messages, has them in its bloom filter, and
has a Lamport clock above theirs, so that it continues the log (SDS, "Participant state"). Without a state the clock
begins at the time of the batch, as in a new live channel.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Final

import pyarrow.dataset as ds

from fairway.errors import ConfigurationError
from fairway.options import BloomPolicy, ReliableChannelOptions, SdsConfig
from fairway.pipeline.run.reading import RunTables
from fairway.protocol.sds.channel import LAMPORT_TOLERANCE_MS, MessageChannel
from fairway.protocol.sds.history import HistoryRecord
from fairway.protocol.sds.state import SdsState
from fairway.storage.sqlite_store import SqliteStore

_OF_A_RECORD: Final = ("message_id", "sender_id", "lamport", "message_hash")
_OF_A_CITING_MESSAGE: Final = ("channel_id", "sender_id", "causal_history", "segment_index", "is_parity")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelState:
    """The state for continuing to send in a channel. Can be pickled, for Spark executors."""

    lamport: int
    sequence: int = 0
    """Messages that the sender made before."""
    records: tuple[HistoryRecord, ...] = ()
    """The newest messages of the log, in its order: as many as the bloom filter holds."""
    uncited: tuple[str, ...] = ()
    """Ids of the records that no message cites yet."""


def sending_config(options: ReliableChannelOptions) -> SdsConfig:
    """Return the SDS options of a sender that does not receive.

    It keeps no messages for repair. It attaches bloom filters to all messages or to none, because it receives no
    request for one.
    """
    repair = replace(options.sds.repair, enabled=False)
    is_thrifty = options.sds.bloom_policy is not BloomPolicy.ALWAYS
    return replace(options.sds, repair=repair, bloom_policy=BloomPolicy.NEVER if is_thrifty else BloomPolicy.ALWAYS)


def open_channel(
    channel_id: str, sender_id: str, options: ReliableChannelOptions, state: ChannelState | None, start_ms: int
) -> MessageChannel:
    """Return the SDS channel of a sender at the start of a batch; raise `ConfigurationError` for invalid names.

    With a ``state`` the channel does not vouch for ancestors of its citations, because the state may have gaps.
    """
    config = sending_config(options)
    channel = MessageChannel(
        channel_id, sender_id, config, now_ms=start_ms, profile=options.profile, vouches=state is None
    )
    if state is not None:
        channel.lamport = max(channel.lamport, state.lamport)
        channel.sequence = state.sequence
        _fill_bloom(channel, state.records)
        for record in state.records:
            channel.history.add(record)
        for message_id in state.uncited:
            if uncited := channel.history.get(message_id):
                channel.pending_citations.entered(message_id, uncited.sender_id)
    return channel


def shortened(channel: MessageChannel, keep: int, *, without: Collection[str] = ()) -> MessageChannel:
    """Return a copy of a channel with only the ``keep`` newest messages of its log, which bounds its memory.

    The messages of ``without`` are removed: they are not cited, and the bloom filter is computed without them.
    """
    newest = islice(channel.history, max(0, len(channel.history) - keep), None)
    other = MessageChannel(
        channel.channel_id,
        channel.sender_id,
        channel.config,
        now_ms=0,
        profile=channel.profile,
        journal=channel.journal,  # the pending citations keep it
        vouches=channel.vouches,
    )
    other.lamport, other.sequence, other.ephemeral_count = channel.lamport, channel.sequence, channel.ephemeral_count
    other.pending_citations = channel.pending_citations
    for record in newest:
        if record.message_id not in without:
            other.history.add(record)
    if without:
        _fill_bloom(other, tuple(other.history))
    else:
        other.bloom = channel.bloom
    return other


def _fill_bloom(channel: MessageChannel, records: Sequence[HistoryRecord]) -> None:
    channel.bloom.refill(record.message_id for record in records[-channel.config.bloom_capacity :])


def state_of_store(
    path: str | PathLike[str], channel_id: str, sender_id: str, content_topic: str, options: ReliableChannelOptions
) -> ChannelState:
    """Return the state of a live channel from its store, which stays unchanged.

    Raises `ConfigurationError` for a missing file or an unused store, and `StorageError` if the store is in use, or of
    another channel, sender or topic.
    """
    if not Path(path).is_file():
        raise ConfigurationError(f"{path}: there is no such file; give the store of the channel")
    store = SqliteStore(path)
    try:
        stored = store.open(channel_id, sender_id, content_topic)
    finally:
        store.close()
    channel = MessageChannel(channel_id, sender_id, options.sds, now_ms=0, profile=options.profile)
    state = SdsState(channel)
    rows = [(change.table, change.key, change.row) for change in stored.changes if change.table in state.readers]
    if not rows:
        raise ConfigurationError(f"{path} keeps no channel yet: leave it out to begin a new one")
    state.load((table, key, row) for table, key, row in rows if row is not None)
    records = tuple(islice(channel.history, max(0, len(channel.history) - options.sds.bloom_capacity), None))
    return ChannelState(
        lamport=channel.lamport,
        sequence=channel.sequence,
        records=records,
        uncited=tuple(channel.pending_citations.uncited),
    )


def states_of_run(
    tables: RunTables, channels: Collection[str], options: ReliableChannelOptions, now_ms: int
) -> dict[str, ChannelState]:
    """Return the states of channels at the end of an archive, from the tables of a run; unknown channels are left out.

    The clock follows that of the archive as far as a live channel would (`LAMPORT_TOLERANCE_MS`).
    """
    wanted = ds.field("channel_id").isin(list(channels))
    newest: dict[str, list[HistoryRecord]] = {}
    capacity = options.sds.bloom_capacity
    for batch in tables.batches("sds_ordered", ("channel_id", *_OF_A_RECORD), wanted):
        for row in batch.to_pylist():
            kept = newest.setdefault(row["channel_id"], [])
            kept.append(HistoryRecord(row["lamport"] or 0, row["message_id"], row["message_hash"], row["sender_id"]))
            if len(kept) >= 2 * capacity:
                newest[row["channel_id"]] = sorted(kept)[-capacity:]
    newest = {channel_id: sorted(records)[-capacity:] for channel_id, records in newest.items()}
    uncited = {channel_id: {r.message_id: r.sender_id for r in records} for channel_id, records in newest.items()}
    for batch in tables.batches("sds_messages", _OF_A_CITING_MESSAGE, wanted):
        for row in batch.to_pylist():
            author_of = uncited.get(row["channel_id"], {})
            # Citations of a message by later segments of another sender do not count
            # (`fairway.protocol.sds.pending_citations`).
            is_later = bool(row["is_parity"] or row["segment_index"])
            for entry in row["causal_history"] or ():
                if not is_later or author_of.get(entry["message_id"]) == row["sender_id"]:
                    author_of.pop(entry["message_id"], None)
    latest = (now_ms + LAMPORT_TOLERANCE_MS) // options.profile.lamport_unit_ms
    return {
        channel_id: ChannelState(
            lamport=min(latest, max(record.lamport for record in records)),
            records=tuple(records),
            uncited=tuple(uncited[channel_id]),
        )
        for channel_id, records in newest.items()
    }
